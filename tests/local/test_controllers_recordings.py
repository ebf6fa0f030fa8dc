"""The controllers against the recordings of a real control plane: same conditions in the same order, same events.

All recorded workloads run at the same time, each in a namespace of its own. Compared are the distinct lists of conditions that a
watcher sees, and the events about the workload. Left out is what depends on how a write and a cache happen to interleave.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pprint
import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mlxp import errors
from airflow_mlxp.local.client import EVENTS, JOBS, NAMESPACES, PODS, PYTORCHJOBS, Resource
from tests.support.platform import QUICK_CONTROLLERS, running_platform, until

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
RECORDINGS = Path(__file__).parent.parent / "golden" / "recordings"

SCRIPTS = {
    "job-deadline-exceeded": "sleep 60",
    "job-deleted-while-running": "sleep 60",
    "job-failed-backoff-limit": "echo boom >&2; exit 3",
    "job-parallel-indexed": "sleep 2",
    "job-success": "echo hello; sleep 2",
    "job-suspended-then-resumed": "sleep 2",
    "job-ttl": "true",
    "pytorchjob-backoff-limit": "sleep 1; exit 1",
    "pytorchjob-clean-pod-policy-running": "case $HOSTNAME in *-0) sleep 2;; *) sleep 20;; esac",
    "pytorchjob-elastic-first-done-other-fails": "case $HOSTNAME in *-0) sleep 2;; *) sleep 8; exit 1;; esac",
    "pytorchjob-elastic-first-worker-done": "case $HOSTNAME in *-0) sleep 2;; *) sleep 14;; esac",
    "pytorchjob-elastic-success": "sleep 3",
    "pytorchjob-exit-code-permanent": "exit 1",
    "pytorchjob-image-pull-backoff": "true",
    "pytorchjob-master-and-workers": "case $HOSTNAME in *master-0) sleep 3;; *) sleep 4;; esac",
    "pytorchjob-quota-exceeded": "sleep 3",
    "pytorchjob-suspended-while-running-then-resumed": "sleep 3",
    "pytorchjob-ttl": "true",
    "pytorchjob-worker-fails-never": "case $HOSTNAME in *-1) sleep 2; exit 1;; *) sleep 12;; esac",
    "pytorchjob-worker-restarts-once-then-succeeds": (
        "case $HOSTNAME in *-0) sleep 4;; *) [ -e /marks/seen ] && sleep 2 || { touch /marks/seen; exit 9; };; esac"
    ),
}
"""What the containers ran; the recordings in the repository leave it out."""

OPERATOR_1_9_3 = {"pytorchjob-backoff-limit"}
"""Recorded on 1.9.3, whose deletion of all pods 1.9.4 gave up."""

RACES = {
    # A stale cache made the operator create a pod and warn after it had set Failed.
    "pytorchjob-backoff-limit": {"PyTorchJobRestarting"},
    # Pods that end at once are seen running or not.
    "pytorchjob-exit-code-permanent": {"Running"},
    "pytorchjob-ttl": {"Running"},
}

EVENTS_OF_CHANCE = {"ExitedWithCode", "CrashLoopBackOff", "Error", "ErrImagePull", "ContainersNotReady"}
"""Reasons of events that appear or not with the moment at which the controller looks at the pods. ErrImagePull: the node
of the recordings pulled no images."""


def recorded(name):
    lines = (RECORDINGS / f"{name}.jsonl").read_text().splitlines()
    return [(item["t"], item["type"], item["object"]) for item in map(json.loads, lines)]


def names():
    return sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))


def conditions_of(obj):
    return tuple((c["type"], c["status"], c["reason"]) for c in (obj.get("status") or {}).get("conditions") or [])


def message_shape(message):
    """A message without what differs from run to run: namespaces and random name parts."""
    message = re.sub(r"p-rec-[a-z0-9-]+|q-\d+", "NS", message)
    message = re.sub(r"train-(\d+-)?[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"train-\1RAND", message)
    message = re.sub(r"because \d (\w+) replica", r"because N \1 replica", message)
    return re.sub(r"(registry\.invalid/)?no-such-image:1.*", "IMAGE", message)


def event_shapes(events):
    return {
        (item["type"], item["reason"], message_shape(item["message"]))
        for item in events
        if item["involvedObject"]["kind"] != "Pod" and item["reason"] not in EVENTS_OF_CHANCE
    }


def distinct(sequence):
    found = []
    for item in sequence:
        if item and (not found or found[-1] != item):
            found.append(item)
    return found


class Case:
    """One recorded workload, run again."""

    def __init__(self, platform, number, name):
        self.platform, self.namespace, self.name = platform, f"q-{number}", name
        self.events = recorded(name)
        self.workload = next(obj for _, _, obj in self.events if obj["kind"] in {"Job", "PyTorchJob"})
        self.resource = JOBS if self.workload["kind"] == "Job" else PYTORCHJOBS
        self.seen = []
        self.changed = asyncio.Event()

    @property
    def expected(self):
        return distinct(conditions_of(obj) for _, _, obj in self.events if obj["kind"] == self.workload["kind"])

    @property
    def expected_events(self):
        return event_shapes(obj for _, _, obj in self.events if obj["kind"] == "Event")

    async def run(self):
        client = self.platform.client
        await client.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        if "quota" in self.name:
            spec = {"hard": {"requests.nvidia.com/gpu": "2"}}
            body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "normal-quota"}, "spec": spec}
            await client.create(QUOTAS, self.namespace, body)
        watcher = asyncio.create_task(self._watch())
        try:
            await client.create(self.resource, self.namespace, self._body())
            await self._act()
            await self._until(lambda: distinct(self.seen)[-1:] == self.expected[-1:])
        except TimeoutError:
            pass  # the comparison says what is missing
        finally:
            watcher.cancel()
        with contextlib.suppress(AssertionError):
            await until(self.platform, EVENTS, "", self._has_all_events, namespace=self.namespace, seconds=10)

    def _body(self):
        spec = json.loads(json.dumps(self.workload["spec"]))
        spec.pop("selector", None)
        if self.resource is JOBS:
            templates = [spec["template"]]
            spec["template"].pop("metadata", None)
            spec["template"]["spec"]["restartPolicy"] = "Never"
        else:
            templates = [replica["template"] for replica in spec["pytorchReplicaSpecs"].values()]
        for template in templates:
            (container,) = template["spec"]["containers"]
            image = "registry.invalid/no-such-image:1" if "image" in self.name else "registry.example/train:1"
            container |= {"image": image, "command": ["sh", "-c", SCRIPTS[self.name]]}
            container["volumeMounts"] = [{"name": "marks", "mountPath": "/marks"}]
            container["resources"] = {"limits": {"nvidia.com/gpu": "2"}} if "quota" in self.name else {}
            template["spec"]["volumes"] = [{"name": "marks", "emptyDir": {}}]
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": "train"},
            "spec": spec,
        }

    async def _act(self):
        """What the recording's user did: suspend, resume, delete, make room in the quota."""
        client, suspended = self.platform.client, "suspended" in self.name
        if suspended and self.resource is PYTORCHJOBS:
            await self._until(lambda: "Running" in str(self.seen[-1:]))
            await client.patch(self.resource, self.namespace, "train", {"spec": {"runPolicy": {"suspend": True}}})
        if suspended:
            await self._until(lambda: ("Suspended", "True") in [item[:2] for item in (self.seen or [()])[-1]])
            await until(self.platform, PODS, "", lambda pods: not pods["items"], namespace=self.namespace)
            field = {"suspend": False} if self.resource is JOBS else {"runPolicy": {"suspend": False}}
            await client.patch(self.resource, self.namespace, "train", {"spec": field})
        if "deleted" in self.name:
            job = await until(self.platform, JOBS, "train", is_ready, namespace=self.namespace)
            await client.delete(self.resource, job)
        if "quota" in self.name:
            await until(self.platform, EVENTS, "", self._was_refused, namespace=self.namespace)
            await client.patch(QUOTAS, self.namespace, "normal-quota", {"spec": {"hard": {"requests.nvidia.com/gpu": "4"}}})

    def _has_all_events(self, events):
        self.our_events = event_shapes(events["items"])
        return self.our_events >= {item for item in self.expected_events if item[1] not in RACES.get(self.name, ())}

    @staticmethod
    def _was_refused(events):
        return any(item["reason"] == "FailedCreatePod" for item in events.get("items", ()))

    async def _until(self, met):
        async with asyncio.timeout(20):
            while not met():
                self.changed.clear()
                await self.changed.wait()

    async def _watch(self):
        while True:
            try:
                async for _, obj in self.platform.client.watch(self.resource, resource_version="0"):
                    if obj["metadata"].get("namespace") == self.namespace:
                        self.seen.append(conditions_of(obj))
                        self.changed.set()
            except errors.ClusterError:
                await asyncio.sleep(0.1)


def is_ready(job):
    return (job.get("status") or {}).get("ready")


def without(sequence, unwanted):
    return distinct(tuple(item for item in conditions if item[0] not in unwanted) for conditions in sequence)


@pytest.mark.skipif(not names(), reason="the recordings are not there")
async def test_conditions_and_events_are_those_of_the_real_control_plane(tmp_path):
    differences = {}
    for version in ("1.9.3", "1.9.4"):
        controllers = replace(QUICK_CONTROLLERS, training_operator=version)
        async with running_platform(tmp_path / version, gpus=64, controllers=controllers) as platform:
            chosen = [name for name in names() if (name in OPERATOR_1_9_3) == (version == "1.9.3")]
            cases = [Case(platform, number, name) for number, name in enumerate(chosen)]
            await asyncio.gather(*(case.run() for case in cases))
            for case in cases:
                races = RACES.get(case.name, set())
                expected, ours = without(case.expected, races), without(case.seen, races)
                if expected != ours:
                    differences[case.name] = {"recorded": expected, "ours": ours}
                missing = {item for item in case.expected_events if item[1] not in races} - case.our_events
                surplus = case.our_events - case.expected_events
                if missing or surplus:
                    differences[case.name, "events"] = {"missing": missing, "surplus": surplus}
    assert not differences, pprint.pformat(differences, width=160)
