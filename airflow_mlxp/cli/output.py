"""What the command line prints: domain events as lines, with text from the cluster made harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp import models

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEPT = "\t"


def escape(text: str) -> str:
    """Show control characters, except tabs, as escapes: a log line or a message must not move the cursor or colour the terminal.

    Bidirectional overrides and other invisible format characters are escaped too; printable text of any script is kept.
    """
    return "".join(char if char in _KEPT or char.isprintable() else _escaped(char) for char in text)


def lines_of(event: models.Event) -> Iterator[str]:
    """The lines that one event of ``follow()`` is worth."""
    match event:
        case models.PhaseChanged():
            yield _phase(event)
        case models.ReplicaChanged(replica=replica):
            yield _replica(replica)
        case models.Warned(reason=reason, message=message):
            yield escape(f"! {reason}: {message}" if reason else f"! {message}")
        case models.LogLines():
            for line in event.lines:
                yield f"[{escape(event.replica)}] {escape(line.text)}"
        case models.Finished(outcome=outcome):
            yield from _outcome(outcome)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _phase(event: models.PhaseChanged) -> str:
    because = ": ".join(part for part in (event.reason, event.message) if part)
    return escape(f"* {event.phase}  {because}".rstrip())


def _replica(replica: models.ReplicaStatus) -> str:
    has_ended = replica.ended and replica.exit_code is not None
    parts = [f"  {replica.replica} {'ended' if has_ended else replica.phase}"]
    if replica.reason:
        parts.append(replica.reason)
    if replica.exit_code is not None:
        parts.append(f"exit code {replica.exit_code}")
    if replica.restarts:
        parts.append(f"restarts {replica.restarts}")
    if replica.node:
        parts.append(f"on {replica.node}")
    return escape("  ".join(parts))


def _outcome(outcome: models.Outcome) -> Iterator[str]:
    if outcome.succeeded:
        yield "* finished: success"
    else:
        category = outcome.diagnosis.category if outcome.diagnosis else str(outcome.phase)
        yield escape(f"* finished: failure ({category})")
    for replica, text in outcome.results.items():
        if text:
            yield escape(f"  result of {replica}: {text}")
    if outcome.diagnosis:
        for line in outcome.diagnosis.as_text().split("\n"):
            yield escape(f"  {line}")
