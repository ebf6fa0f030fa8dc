"""How the workload as a whole came to its end; what lies behind it is asked of the replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_mlxp.diagnosis import failures
from airflow_mlxp.diagnosis.causes import replica as replica_causes
from airflow_mlxp.diagnosis.causes import waiting
from airflow_mlxp.diagnosis.conclude import conclude, cut, seconds
from airflow_mlxp.diagnosis.facts import StoppedBy
from airflow_mlxp.models import Diagnosis, FailureClass, Phase
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.verdict import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.diagnosis.facts import Facts


def gone(facts: Facts) -> Diagnosis | None:
    """The object vanished: by its TTL when it had ended, else because somebody deleted it."""
    if facts.phase is not Phase.GONE or facts.stopped_by:
        return None
    ended = facts.object is not None and facts.workload.phase_of(facts.object).is_terminal
    if ended:
        sentence = f"{facts.what} had ended and was removed before its end was read; how it ended is not known for certain"
        return conclude("expired", sentence, failure_class=FailureClass.INFRASTRUCTURE)
    since = objects.text(objects.at(facts.object, "metadata", "deletionTimestamp"))
    evidence = [f"deletion was requested at {since}"] if since else []
    sentence = f"{facts.what} was deleted before it ended"
    return conclude("deleted", sentence, failure_class=FailureClass.INFRASTRUCTURE, evidence=evidence)


def start_timeout(facts: Facts) -> Diagnosis | None:
    """Not all replicas started in time."""
    if facts.stopped_by is not StoppedBy.START_TIMEOUT:
        return None
    limit = seconds(facts.limits.start_timeout)
    cause = waiting.explain(facts) or _root(facts)
    if cause is None:
        sentence = f"not all replicas that {facts.what} needs started within {limit}"
        return conclude("start_timeout", sentence, failure_class=FailureClass.INFRASTRUCTURE, evidence=_states(facts))
    return replace(cause, sentence=cut(f"{facts.what} did not start within {limit}: {cause.sentence}"))


def timeout(facts: Facts) -> Diagnosis | None:
    """It took longer than the task allows."""
    if facts.stopped_by is not StoppedBy.TIMEOUT:
        return None
    sentence = f"{facts.what} did not end within its timeout of {seconds(facts.limits.timeout)}"
    return _with_background("timeout", sentence, facts)


def container_restarts(facts: Facts) -> Diagnosis | None:
    """A replica was restarted more often than allowed."""
    if facts.stopped_by is not StoppedBy.CONTAINER_RESTARTS:
        return None
    limit = facts.limits.container_restarts or 0
    over = [name for name, count in facts.restarts.items() if count > limit] or [r.replica for r in facts.replicas]
    found = failures.of_replicas(failures.failures(facts), over)
    failure = found[0] if found else None
    name = failure.replica if failure else ", ".join(over[:3])
    counted = facts.restarts.get(name, limit + 1)
    sentence = f"{name} needed {counted} restart{'s' * (counted != 1)}, container_restarts allows {limit}"
    if failure is None:
        return conclude("container_restarts", sentence)
    cause = replica_causes.explain(failure)
    return _within("container_restarts", f"{sentence}: {cause.sentence}", cause)


def partial_failure(facts: Facts) -> Diagnosis | None:
    """The operator says Succeeded, the replicas do not agree."""
    judged = facts.verdict
    if judged is None or judged.state is not State.PARTIAL_FAILURE:
        return None
    parts = []
    if judged.left:
        parts.append(f"{_names(judged.left)} did not end within {seconds(facts.limits.drain_timeout)}")
    if judged.missing:
        parts.append(f"{_names(judged.missing)} never started")
    found = failures.of_replicas(failures.failures(facts), judged.failed)
    if found:
        cause = replica_causes.explain(found[0])
        sentence = "; ".join([cause.sentence, *parts])
        return _within("partial_failure", f"{facts.what} is Succeeded, but {sentence}", cause)
    if judged.failed:
        parts.insert(0, f"{_names(judged.failed)} ended without an exit code")
    return conclude("partial_failure", f"{facts.what} is Succeeded, but {'; '.join(parts)}", evidence=_states(facts))


def deadline_exceeded(facts: Facts) -> Diagnosis | None:
    """The manifest's activeDeadlineSeconds is over."""
    condition = facts.condition
    if facts.phase is not Phase.FAILED or condition is None:
        return None
    if condition.reason != "DeadlineExceeded" and "longer than specified deadline" not in condition.message:
        return None
    sentence = f"{facts.what} was active longer than its activeDeadlineSeconds"
    return _with_background("deadline_exceeded", sentence, facts, condition.message)


def of_replica(facts: Facts) -> Diagnosis | None:
    """What the first replica that failed ended with."""
    cause = _root(facts)
    message = facts.condition.message if facts.condition and facts.phase is Phase.FAILED else ""
    return replace(cause, evidence=(*filter(None, [cut(message)]), *cause.evidence)) if cause else None


def not_running(facts: Facts) -> Diagnosis | None:
    """It never came to run."""
    return waiting.explain(facts)


def failed(facts: Facts) -> Diagnosis:
    """Nothing more than the condition is known, for instance because the pods are gone."""
    condition = facts.condition
    told = f": {condition.message or condition.reason}" if condition else ""
    limit_reached = condition is not None and (condition.reason == "BackoffLimitExceeded" or "backoff limit" in condition.message)
    category = "backoff_limit" if limit_reached else "failed"
    return conclude(category, f"{facts.what} ended as {facts.phase.value}{told}", evidence=_states(facts))


_TABLE: tuple[Callable[[Facts], Diagnosis | None], ...] = (
    gone,
    start_timeout,
    timeout,
    container_restarts,
    partial_failure,
    deadline_exceeded,
    of_replica,
    not_running,
)


def explain(facts: Facts) -> Diagnosis:
    """The first cause of the table that fits."""
    return next((diagnosis for cause in _TABLE if (diagnosis := cause(facts)) is not None), failed(facts))


def _root(facts: Facts) -> Diagnosis | None:
    found = failures.failures(facts)
    return replica_causes.explain(found[0]) if found else None


def _within(category: str, sentence: str, cause: Diagnosis) -> Diagnosis:
    """The cause as the content of another category: the advice of both."""
    outer = conclude(category, sentence)
    return replace(cause, category=category, sentence=outer.sentence, advice=f"{cause.advice} {outer.advice}".strip())


def _with_background(category: str, sentence: str, facts: Facts, *messages: str) -> Diagnosis:
    """With what held it up, or a replica's own failure, as evidence."""
    found = [failure for failure in failures.failures(facts) if not failure.was_stopped]
    behind = replica_causes.explain(found[0]) if found else waiting.explain(facts)
    evidence = [*messages, *([behind.sentence, *behind.evidence] if behind else _states(facts))]
    return conclude(category, sentence, failure=found[0] if found else None, evidence=evidence)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _states(facts: Facts) -> list[str]:
    """One line for each replica as it was left."""
    return [
        f"{replica.replica}: {replica.phase.value}" + "".join(f", {part}" for part in (replica.reason, replica.message) if part)
        for replica in facts.replicas[:10]
    ]
