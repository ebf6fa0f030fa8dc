"""Whatever arguments are given: the manifest is valid, or the argument is named; and a built manifest builds itself again."""

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp import identity, naming, schemas
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.identity import TaskIdentity
from airflow_mlxp.manifests import job, pytorchjob
from airflow_mlxp.manifests.elastic import Elastic
from airflow_mlxp.manifests.spec import JobSpec, PyTorchJobSpec, SchedulingPolicy, Volume
from airflow_mlxp.manifests.unset import UNSET
from airflow_mlxp.workloads.job import JOB
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB

words = st.text("abc-1. /", max_size=8)
maybe = st.none()
counts = st.integers(0, 5) | st.sampled_from(["1", "3"])
texts = st.dictionaries(st.text("abc", min_size=1, max_size=3), words, max_size=2)
labels = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sampled_from(["", "a", "A-b_c.1"]), max_size=2)
flags = st.booleans() | st.sampled_from(["True", "false"])
OTHER = {"name": "other", "image": "o"}
AFFINITY = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
OVERRIDES = {"metadata": {"annotations": {"a": "b"}}}
env_sources = st.just({"secretKeyRef": {"name": "s", "key": "k"}})
common = {
    "name": maybe | st.text(max_size=80),
    "image": st.just("registry/i:1"),
    "command": maybe | st.lists(words, max_size=2),
    "args": maybe | st.lists(words | st.integers(), max_size=2),
    "env": maybe | st.dictionaries(st.sampled_from(["A", "NCCL_DEBUG", "MLXP_RESULT_PATH"]), words | env_sources, max_size=3),
    "cpu": maybe | st.sampled_from([1, 0.5, "250m", "4", 1.333]),
    "memory": maybe | st.sampled_from(["1Gi", 2**30, "512M", 1.5e9]),
    "gpus": maybe | counts,
    "working_dir": maybe | st.just("/w"),
    "image_pull_policy": st.sampled_from([UNSET, None, "IfNotPresent"]),
    "image_pull_secrets": st.lists(st.sampled_from(["a", "b"]), max_size=2),
    "volumes": st.dictionaries(
        st.sampled_from(["/data", "/out", "/dev/shm"]),
        st.sampled_from(
            [
                "c",
                "shared-memory",
                "a.b",
                Volume(claim="c", read_only=True),
                Volume(secret="s", items={"k": "f"}),
                Volume(config_map="c", default_mode=256),
                Volume(empty_dir="1Gi"),
                {"nfs": {"server": "s", "path": "/"}},
            ]
        ),
    ),
    "shared_memory": st.sampled_from([UNSET, True, False, None, "1Gi"]),
    "env_from": st.lists(st.just({"secretRef": {"name": "s"}}), max_size=2),
    "debug": flags,
    "affinity": maybe | st.just(AFFINITY),
    "priority_class": maybe | st.just("high"),
    "queue_name": maybe | st.just("team"),
    "security_context": maybe | st.just({"runAsNonRoot": True}),
    "pod_security_context": maybe | st.just({"supplementalGroups": [500]}),
    "run_as": maybe | st.sampled_from([0, "500", "500:500"]),
    "ports": st.lists(st.sampled_from([8080, "8080", {"containerPort": 1, "name": "a"}]), max_size=2),
    "init_containers": st.lists(st.just({"name": "init", "image": "i"}), max_size=1),
    "sidecars": st.lists(st.just(OTHER), max_size=1),
    "overrides": maybe | st.just(OVERRIDES),
    "zone": maybe | st.just("z"),
    "infiniband": flags,
    "node_selector": labels,
    "tolerations": st.lists(st.just({"operator": "Exists"}), max_size=1),
    "service_account": maybe | st.just("sa"),
    "labels": labels,
    "annotations": texts,
    "ttl_seconds_after_finished": st.sampled_from([UNSET, None, 0, "60"]),
    "backoff_limit": st.sampled_from([UNSET, None, 0, 3]),
    "active_deadline_seconds": maybe | st.just(60),
    "suspend": flags,
}


def job_fits(spec):
    """Whether the arguments of a Job go together."""
    counted = not spec.completion_mode or spec.completions or not spec.parallelism
    return counted and (spec.pod_failure_policy is None or spec.restart_policy != "OnFailure")


jobs = st.builds(
    JobSpec,
    **common,
    parallelism=maybe | st.integers(1, 3),
    completions=maybe | st.integers(1, 3),
    completion_mode=st.sampled_from([None, "Indexed"]),
    restart_policy=st.sampled_from([UNSET, "Never", "OnFailure"]),
    pod_failure_policy=maybe | st.just({"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]}),
).filter(job_fits)
elastics = st.builds(
    Elastic,
    min_replicas=maybe | st.integers(1, 4),
    max_replicas=maybe | st.integers(1, 4),
    max_restarts=maybe | st.integers(0, 3),
    standalone=flags,
    rdzv_conf=st.dictionaries(st.just("timeout"), st.sampled_from([900, "5"])),
    metrics=st.lists(st.just({"type": "Resource"}), max_size=1),
)


pytorchjobs = st.builds(
    PyTorchJobSpec,
    **common,
    workers=counts,
    elastic=maybe | elastics,
    master=maybe | flags | st.just({"template": {"metadata": {"labels": {"role": "master"}}}}),
    nproc_per_node=st.sampled_from([None, "auto", 2]),
    scheduling_policy=st.sampled_from([None, {"queue": "q"}, SchedulingPolicy(min_available=1, min_resources={"cpu": "1"})]),
    managed_by=st.sampled_from([None, "kubeflow.org/training-operator"]),
    clean_pod_policy=st.sampled_from([UNSET, None, "Running"]),
    container_restarts=st.sampled_from([UNSET, None, 0, 2]),
    restart_policy=st.sampled_from([UNSET, "Never", "OnFailure", "ExitCode"]),
)
NOT_IN_MANIFESTS = (
    "image_pull_policy",
    "shared_memory",
    "ttl_seconds_after_finished",
    "backoff_limit",
    "clean_pod_policy",
    "container_restarts",
)
"""Arguments that can take a default away: a manifest can't say that."""
VALIDATORS = {kind: jsonschema.Draft202012Validator(schemas.schema_for(kind)) for kind in ("Job", "PyTorchJob")}
TASK = TaskIdentity(dag_id="d", task_id="t", run_id="r", ti_id="0195d8a0-0000-7000-8000-000000000001", try_number=1, max_tries=0)


def check(module, workload, spec, retries):
    built = module.build(spec, namespace="p-x", retries=retries)
    VALIDATORS[workload.kind].validate(built.manifest)
    name = naming.workload_name(built.name_prefix or "d-t", TASK.ti_id)
    stamped = identity.stamp(built.manifest, TASK, workload.pod_templates_of, name=name)
    VALIDATORS[workload.kind].validate(stamped)
    assert all(TASK.task_label in template["metadata"]["labels"].values() for template in workload.pod_templates_of(stamped))
    kept = {name: getattr(spec, name) for name in NOT_IN_MANIFESTS if hasattr(spec, name)}
    again = module.build(type(spec)(manifest=built.manifest, **kept), namespace="other", retries=retries)
    assert again.manifest == built.manifest


@given(jobs, st.integers(0, 2))
def test_every_job_is_valid_and_stays_as_it_is_when_built_again(spec, retries):
    check(job, JOB, spec, retries)


def fits(spec):
    """Whether the numbers of workers go together."""
    workers = int(spec.workers)
    low, high = (spec.elastic.min_replicas, spec.elastic.max_replicas) if spec.elastic else (None, None)
    return workers >= 1 and (low or workers) <= workers <= (high or workers)


@given(pytorchjobs, st.integers(0, 2))
def test_every_pytorchjob_is_valid_or_its_numbers_are_refused(spec, retries):
    if fits(spec):
        check(pytorchjob, PYTORCHJOB, spec, retries)
    else:
        with pytest.raises(InvalidArgument, match=r"workers|replicas"):
            pytorchjob.build(spec, namespace="p-x", retries=retries)
