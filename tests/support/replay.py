"""Replays a recording through workloads and diagnosis; run as a program it writes the golden files anew."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mlxp import diagnosis, workloads
from airflow_mlxp.models import Phase, ReplicaStatus
from airflow_mlxp.workloads import replicas, verdict

if TYPE_CHECKING:
    from airflow_mlxp.workloads.base import Workload

RECORDINGS = Path(__file__).parent.parent / "golden" / "recordings"


def cases() -> list[str]:
    return sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))


@dataclass
class Replay:
    """The state of a recording after the events so far."""

    workload: Workload
    obj: dict[str, Any] | None = None
    last_object: dict[str, Any] | None = None
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    suspended: set[str] = field(default_factory=set)
    succeeded_at: float | None = None
    now: float = 0.0

    def feed(self, event: dict[str, Any]) -> None:
        obj, deleted, self.now = event["object"], event["type"] == "DELETED", event["t"]
        if obj["kind"] == "Pod":
            uid = obj["metadata"]["uid"]
            self.pods.pop(uid, None)
            (self.removed if deleted else self.pods)[uid] = obj
        elif obj["kind"] == "Event":
            self.events.append(obj)
        else:
            self.obj, self.last_object = (None if deleted else obj), obj
        if self.phase is Phase.SUSPENDED:
            self.suspended |= self.removed.keys()
        if self.phase is Phase.SUCCEEDED and self.succeeded_at is None:
            self.succeeded_at = self.now

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return replicas.current_replicas(self.workload, self.obj, self.pods.values(), self.removed.values())

    @property
    def phase(self) -> Phase:
        return replicas.effective_phase(self.workload.phase_of(self.obj), self.replicas)

    @property
    def verdict(self) -> verdict.Verdict:
        waited = self.now - self.succeeded_at if self.succeeded_at is not None else 0.0
        return verdict.verdict(self.workload, self.obj, self.replicas, waited=waited)

    @property
    def restarts(self) -> dict[str, int]:
        return replicas.restart_counts(self.workload, self.all_pods, suspended=self.suspended)

    @property
    def all_pods(self) -> list[dict[str, Any]]:
        return [*self.removed.values(), *self.pods.values()]

    def facts(self, **changes: Any) -> diagnosis.Facts:
        given = {
            "workload": self.workload,
            "phase": self.phase,
            "object": self.last_object,
            "replicas": self.replicas,
            "pods": self.all_pods,
            "events": [event for event in self.events if event["type"] == "Warning"],
            "verdict": self.verdict,
            "restarts": self.restarts,
        }
        return diagnosis.Facts(**(given | changes))

    def line(self) -> str:
        judged = self.verdict
        names = [f"{what}: {' '.join(found)}" for what in ("left", "failed", "missing") if (found := getattr(judged, what))]
        parts = [self.phase.value, *(_replica(replica) for replica in self.replicas), " ".join([judged.state.value, *names])]
        return " | ".join(parts)


def _replica(replica: ReplicaStatus) -> str:
    words = [replica.replica, replica.phase.value, replica.reason]
    words.append("" if replica.exit_code is None else f"exit={replica.exit_code}")
    words.append(f"restarts={replica.restarts}" if replica.restarts else "")
    words += ["ended" if replica.ended else "", "stopped" if replica.stopped else ""]
    return " ".join(word for word in words if word)


def load(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDINGS / f"{case}.jsonl").read_text().splitlines()]


def start(case: str) -> Replay:
    return Replay(workload=workloads.get("Job" if case.startswith("job-") else "PyTorchJob"))


def run(case: str, *, until: float = 1e9) -> Replay:
    replay = start(case)
    for event in load(case):
        if event["t"] <= until:
            replay.feed(event)
    return replay


def transcript(case: str) -> str:
    """One line for each change, and the diagnosis of what did not succeed at the end."""
    replay, lines, last = start(case), [], ""
    for event in load(case):
        replay.feed(event)
        line = replay.line()
        if line != last:
            lines.append(f"{event['t']:7.3f} {line}")
        last = line
    lines.append(f"restarts {replay.restarts}")
    if replay.verdict.is_final and not replay.facts().succeeded:
        found = diagnosis.diagnose(replay.facts())
        lines += [f"{found.category} ({found.failure_class.value}) {found.replica}".rstrip(), found.as_text()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in cases():
        (RECORDINGS / f"{name}.txt").write_text(transcript(name))
