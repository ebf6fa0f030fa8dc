"""Whatever happens to objects and streams, in whatever order, an observer ends up with what the server has."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mlxp import workloads
from airflow_mlxp.cluster import hub
from airflow_mlxp.cluster.watch import WatchLimits
from airflow_mlxp.models import WorkloadRef
from tests.support.watch_server import DONE, FAILED, NAMESPACE, RUNNING, Cluster, a_job, a_pod, error_event, watch_server

JOB = workloads.get("Job")
FAST = WatchLimits(first_delay=0.002, longest_delay=0.01, quick_end=0.01, poll_interval=0.01, poll_span=0.02, refusal_grace=5)
LIMITS = hub.HubLimits(first_list=10, event_linger=0.01, watch=FAST)

NUMBERS = st.integers(0, 2)
PLURALS = st.sampled_from(["jobs", "pods"])
STEPS = st.one_of(
    st.tuples(st.just("job"), NUMBERS, st.sampled_from([{}, RUNNING, DONE, FAILED])),
    st.tuples(st.just("pod"), NUMBERS, st.integers(0, 2), st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
    st.tuples(st.just("remove job"), NUMBERS),
    st.tuples(st.just("remove pod"), NUMBERS, st.integers(0, 2)),
    st.tuples(st.just("join"), NUMBERS),
    st.tuples(st.just("leave"), NUMBERS),
    st.tuples(st.just("fault"), st.sampled_from(["watch", "list"]), PLURALS, st.sampled_from([500, 429, 410, "reset"])),
    st.tuples(
        st.just("fault"), st.just("watch"), PLURALS, st.sampled_from([403, 504, error_event(410), error_event(500), b'{"ty'])
    ),
    st.tuples(st.just("drop")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("pause"), st.sampled_from([0.0, 0.002, 0.01])),
)


class World:
    """The server, the observers of at most three jobs, and the pods that each of them must know of."""

    def __init__(self, client, cluster):
        self.client, self.cluster = client, cluster
        self.open = {}

    async def step(self, what, *given):
        await getattr(self, what.replace(" ", "_"))(*given)

    async def job(self, number, status):
        self.cluster.put("jobs", a_job(number, **status))

    async def pod(self, number, index, phase):
        self.cluster.put("pods", a_pod(number, index, phase))

    async def remove_job(self, number):
        if ("jobs", f"job-{number}") in self.cluster.objects:
            self.cluster.delete("jobs", f"job-{number}")

    async def remove_pod(self, number, index):
        if ("pods", f"job-{number}-{index}") in self.cluster.objects:
            self.cluster.delete("pods", f"job-{number}-{index}")

    async def join(self, number):
        if number not in self.open:
            ref = WorkloadRef(kind="Job", namespace=NAMESPACE, name=f"job-{number}", uid=f"uid-{number}")
            context = hub.observe(self.client, JOB, ref, limits=LIMITS)
            self.open[number] = context, await context.__aenter__()

    async def leave(self, number):
        if number in self.open:
            context, _ = self.open.pop(number)
            await context.__aexit__(None, None, None)

    async def fault(self, verb, plural, answer):
        self.cluster.faults[verb, plural].append(answer)

    async def drop(self):
        self.cluster.drop_streams()

    async def compact(self):
        self.cluster.compact()
        self.cluster.drop_streams()

    async def pause(self, seconds):
        await asyncio.sleep(seconds)

    def agrees(self, number, observation):
        pods = {
            obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"]
            for (plural, _), obj in self.cluster.objects.items()
            if plural == "pods" and obj["metadata"]["uid"].startswith(f"pod-{number}-")
        }
        job = self.cluster.objects.get(("jobs", f"job-{number}"))
        return (
            _version(observation.workload) == _version(job)
            and {uid: _version(pod) for uid, pod in observation.pods.items()} == pods
        )


def _version(obj):
    return obj and obj["metadata"]["resourceVersion"]


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_observers_end_up_with_what_the_server_has(steps):
    async def run():
        cluster = Cluster()
        async with watch_server(cluster) as client:
            world = World(client, cluster)
            try:
                for step in steps:
                    await world.step(*step)
                for number, (_, observation) in world.open.items():
                    async with asyncio.timeout(8):
                        while not world.agrees(number, observation):
                            await observation.changed()
            finally:
                for number in list(world.open):
                    await world.leave(number)

    asyncio.run(run())
