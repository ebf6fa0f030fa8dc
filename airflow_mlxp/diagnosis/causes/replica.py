"""Why one replica ended badly: the node, its memory, its start, its program."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from airflow_mlxp.diagnosis import tails
from airflow_mlxp.diagnosis.causes import logs
from airflow_mlxp.diagnosis.conclude import conclude
from airflow_mlxp.models import Diagnosis, FailureClass
from airflow_mlxp.workloads import objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.diagnosis.failures import Failure

_POD_REASONS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"^(Preempt|PreemptionBy)"), "preempted", "was preempted"),
    (re.compile(r"^Evict"), "evicted", "was evicted"),
    (re.compile(r"^(NodeLost|NodeShutdown|Shutdown|Terminated|TerminationByKubelet|DeletionBy)"), "node_lost", "lost its node"),
    (re.compile(r"^(OutOf|UnexpectedAdmissionError|NodeAffinity|NodePorts|Node)"), "node_refused", "was refused by its node"),
)
"""``status.reason`` of a pod and reasons of its condition DisruptionTarget (core/v1)."""
_START_REASONS = {"StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError"}
_SHELL_CODES = {126: "the command is not executable", 127: "the command was not found"}


def disrupted(failure: Failure) -> Diagnosis | None:
    """Evicted, preempted, node lost or refused: the platform's doing."""
    if failure.source != "pod":
        return None
    known = ((category, words) for pattern, category, words in _POD_REASONS if pattern.search(failure.reason))
    category, words = next(known, ("evicted", "was ended by the platform"))
    where = objects.text(objects.at(failure.pod, "spec", "nodeName"))
    sentence = f"{failure.who} {words} ({failure.reason}{f', node {where}' if where else ''})"
    return conclude(category, sentence, failure_class=FailureClass.INFRASTRUCTURE, failure=failure, evidence=[failure.message])


def oom_killed(failure: Failure) -> Diagnosis | None:
    """The kernel killed the container for its memory limit."""
    if failure.reason != "OOMKilled":
        return None
    limit = _memory_limit(failure)
    sentence = f"{failure.who} was killed because it used more memory than its limit{f' of {limit}' if limit else ''} (OOMKilled)"
    return conclude("oom_killed", sentence, failure=failure, evidence=tails.last_lines(failure.tail))


def init_failed(failure: Failure) -> Diagnosis | None:
    """An init container ended badly: the training container never started."""
    if failure.source != "init":
        return None
    sentence = f"{failure.who} did not start: its init container {failure.container} ended with exit code {failure.exit_code}"
    return conclude("init_failed", sentence, failure=failure, evidence=failure.message.splitlines())


def not_started(failure: Failure) -> Diagnosis | None:
    """The runtime could not start the command."""
    if failure.reason not in _START_REASONS:
        return None
    sentence = f"{failure.who} could not start its command ({failure.reason})"
    return conclude("container_start", sentence, failure=failure, evidence=failure.message.splitlines())


def stopped_from_outside(failure: Failure) -> Diagnosis | None:
    """The pod was being deleted and the program ended by that signal."""
    if not failure.was_stopped or not objects.at(failure.pod, "metadata", "deletionTimestamp"):
        return None
    sentence = f"the pod of {failure.who} was deleted while it ran (exit code {failure.exit_code})"
    return conclude("pod_deleted", sentence, failure_class=FailureClass.INFRASTRUCTURE, failure=failure)


def exit_code(failure: Failure) -> Diagnosis | None:
    """The program's own exit code, with its exception where the log shows one."""
    raised, report = tails.raised_in(failure.tail), tails.root_cause(failure.tail)
    sentence = f"{failure.who} ended with exit code {failure.exit_code}{_meaning(failure.exit_code)}"
    evidence = tails.last_lines(failure.tail) if raised is None else [raised.frame, raised.exception]
    if report and report.rank and report.is_certain:
        by = f" on host {report.host}" if report.host else ""
        evidence.insert(0, f"torchrun: rank {report.rank}{by} failed first, {_process_end(report.exit_code)}")
        sentence += f"; rank {report.rank} failed first"
    if raised:
        sentence += f": {raised.exception}"
    killed = report is not None and report.exit_code == -signal.SIGKILL
    return conclude(
        "exit_code",
        sentence,
        failure=failure,
        evidence=evidence,
        advice="A process killed by SIGKILL mostly ran out of memory: raise memory, or use less." if killed else "",
    )


_TABLE: tuple[Callable[[Failure], Diagnosis | None], ...] = (
    disrupted,
    oom_killed,
    init_failed,
    not_started,
    stopped_from_outside,
    logs.known_pattern,
    exit_code,
)


def explain(failure: Failure) -> Diagnosis:
    """The first cause of the table that fits; the exit code fits always."""
    found = (cause(failure) for cause in _TABLE)
    return next(diagnosis for diagnosis in found if diagnosis is not None)


def _meaning(code: int | None) -> str:
    if code is None:
        return ""
    if code in _SHELL_CODES:
        return f" ({_SHELL_CODES[code]})"
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""


def _process_end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _memory_limit(failure: Failure) -> str:
    for container in objects.mappings(objects.at(failure.pod, "spec", "containers")):
        if container.get("name") == failure.container:
            return str(objects.at(container, "resources", "limits", "memory") or "")
    return ""
