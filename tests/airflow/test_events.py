"""The payload of the trigger's event."""

import json
import warnings
from typing import Any

import pytest
from airflow.sdk.serde import deserialize, serialize
from airflow.triggers.base import DiscrimatedTriggerEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from airflow_mlxp.models import Diagnosis, FailureClass, LogGap, Outcome, Phase, Timings, WorkloadRef
from airflow_mlxp.triggers import events
from airflow_mlxp.triggers.events import EventStatus, FinishedEvent, WorkloadEvent

REF = WorkloadRef(kind="Job", namespace="p-demo", name="train-1", uid="u-1")


def diagnosis(**changed: Any) -> Diagnosis:
    return Diagnosis(**{"category": "exit_code", "failure_class": FailureClass.WORKLOAD, "sentence": "It broke."} | changed)


def outcome(**changed: Any) -> Outcome:
    return Outcome(**{"succeeded": True, "phase": Phase.SUCCEEDED} | changed)


def from_outcome(given: Outcome, results: Any = "single") -> WorkloadEvent:
    return events.from_outcome(given, ref=REF, server="https://api.test", results=results)


def test_it_survives_airflows_serialization() -> None:
    event = from_outcome(outcome(results={"worker-0": '{"accuracy": 0.97}'}, timings=Timings(created="2026-01-01T00:00:00Z")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sent = TypeAdapter(DiscrimatedTriggerEvent).dump_json(FinishedEvent(payload=event.to_payload()))
    received = TypeAdapter(DiscrimatedTriggerEvent).validate_json(sent)
    stored = deserialize(json.loads(json.dumps(serialize(received.payload))))
    assert events.decode(stored) == event
    assert event.result == {"accuracy": 0.97}


def test_it_prints_as_one_sentence() -> None:
    event = FinishedEvent(payload=from_outcome(outcome(results={"0": '"secret result"'})).to_payload())
    assert repr(event) == str(event) == "<Job p-demo/train-1: succeeded>"


@given(st.text(max_size=5000), st.lists(st.text(max_size=5000), max_size=80), st.text(max_size=5000))
def test_a_diagnosis_never_exceeds_its_limit(sentence: str, evidence: list[str], advice: str) -> None:
    event = WorkloadEvent(diagnosis=diagnosis(sentence=sentence, evidence=tuple(evidence), advice=advice))
    payload = event.to_payload()
    assert (
        len(json.dumps(payload["diagnosis"], ensure_ascii=False).encode("utf-8", "surrogatepass")) <= events.MAX_DIAGNOSIS_BYTES
    )


def test_the_newest_evidence_is_kept() -> None:
    lines = tuple(f"line {number} " + "x" * 900 for number in range(40))
    kept = WorkloadEvent(diagnosis=diagnosis(evidence=lines)).to_payload()["diagnosis"]["evidence"]
    assert kept[-1] == lines[-1]
    assert "earlier lines left out" in kept[0]
    assert len(kept) < len(lines)


def test_gaps_are_bounded() -> None:
    gap = LogGap(replica="0", pod="p", container="main", since="", reason="deleted")
    assert len(WorkloadEvent(log_gaps=(gap,) * 1000).to_payload()["log_gaps"]) == events.MAX_GAPS


def test_fields_of_a_later_version_are_ignored_and_missing_ones_take_defaults() -> None:
    event = events.decode({"schema_version": 9, "status": "succeeded", "invented": {"a": 1}})
    assert (event.status, event.result, event.log_gaps) == (EventStatus.SUCCEEDED, None, ())


@pytest.mark.parametrize("payload", ["success", None, {"status": "of tomorrow"}, {"diagnosis": {"category": "x"}}])
def test_what_cant_be_read_says_so(payload: object) -> None:
    event = events.decode(payload)
    assert event.status is EventStatus.LOST
    assert event.diagnosis is not None
    assert "can't read" in event.diagnosis.sentence


@pytest.mark.parametrize(
    ("results", "shape", "status", "value"),
    [
        ({}, "single", "succeeded", None),
        ({"worker-0": "1", "worker-1": "1"}, "single", "succeeded", 1),
        ({"worker-0": "1", "worker-1": "2"}, "single", "failed", None),
        ({"worker-0": "1", "worker-1": "2"}, "ignored", "succeeded", None),
        ({"0": "1", "1": "2"}, "indexed", "succeeded", {"0": 1, "1": 2}),
        ({str(index): f'"{index:04}{"x" * 4000}"' for index in range(40)}, "indexed", "failed", None),
    ],
)
def test_results(results: dict[str, str], shape: Any, status: str, value: object) -> None:
    event = from_outcome(outcome(results=results), shape)
    assert (event.status, event.result) == (status, value)
    assert (event.diagnosis is None) == (status == "succeeded")


def test_registered_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mlxp import compat

    compat.mask("hunter2-hunter2")
    payload = WorkloadEvent(diagnosis=diagnosis(sentence="no hunter2-hunter2", evidence=("x hunter2-hunter2",))).to_payload()
    assert "hunter2" not in json.dumps(payload)
