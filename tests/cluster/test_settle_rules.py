"""What is done about each thing that an earlier try can have left: the rule alone."""

from typing import Any

import pytest

from airflow_mlxp import workloads
from airflow_mlxp.cluster import ownership, settle
from airflow_mlxp.cluster.settle import Step
from airflow_mlxp.identity import WorkloadIdentity
from airflow_mlxp.models import Phase
from tests.support.objects import a_job, a_try

JOB = workloads.get("Job")
HASH = "spec-1"


def left_by(
    number: int, phase: Phase = Phase.RUNNING, *, live: bool = True, outcome: str = "", **changes: Any
) -> settle.Predecessor:
    """What try ``number`` left; ``changes`` are those of its identity, or ``owner``, ``spec_hash`` or ``deleted``."""
    owner, deleted = changes.pop("owner", ""), changes.pop("deleted", False)
    spec_hash = changes.pop("spec_hash", HASH)
    obj = a_job()
    annotations = a_try(number, **changes).annotations(spec_hash)
    annotations["airflow-mlxp/outcome"] = outcome
    if owner:
        annotations["airflow-mlxp/owner"] = owner
    obj["metadata"]["annotations"] = annotations
    if deleted:
        obj["metadata"]["deletionTimestamp"] = "2026-12-01T10:00:00Z"
    return settle.Predecessor(
        obj=obj, ref=ownership.ref_of(JOB, obj), identity=WorkloadIdentity.from_object(obj), phase=phase, live=live
    )


def step(found: settle.Predecessor, *, own: int = 2, may_adopt: bool = True, **changes: Any) -> Step:
    return settle.step_for(a_try(own, **changes), HASH, found, known_nonces=frozenset(), may_adopt=may_adopt)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.CREATED, Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED])
def test_goes_on_with_what_a_lost_worker_left_running(phase):
    assert step(left_by(1, phase)) is Step.ADOPT


@pytest.mark.parametrize(("outcome", "expected"), [("", Step.ADOPT), ("success", Step.ADOPT), ("partial_failure", Step.LEAVE)])
def test_takes_the_result_of_a_success_unless_an_earlier_try_called_it_a_failure(outcome, expected):
    assert step(left_by(1, Phase.SUCCEEDED, live=False, outcome=outcome)) is expected


def test_a_failed_predecessor_is_left_and_deleted_only_while_pods_of_it_run():
    assert step(left_by(1, Phase.FAILED, live=False)) is Step.LEAVE
    assert step(left_by(1, Phase.FAILED, live=True)) is Step.DELETE


def test_a_success_that_was_called_a_failure_and_still_has_pods_is_deleted():
    assert step(left_by(1, Phase.SUCCEEDED, live=True, outcome="partial_failure")) is Step.DELETE


@pytest.mark.parametrize(
    "left",
    [
        pytest.param({"spec_hash": "spec-0"}, id="another manifest"),
        pytest.param({"max_tries": 5}, id="before a clear"),
        pytest.param({"owner": "deleting/somebody"}, id="deleted by one of us"),
        pytest.param({"deleted": True}, id="deleted by the server"),
    ],
)
def test_deletes_what_runs_and_can_not_be_adopted(left):
    assert step(left_by(1, **left)) is Step.DELETE


def test_a_newer_try_makes_us_the_stale_one_whatever_its_state():
    assert step(left_by(3)) is Step.STALE
    assert step(left_by(3, Phase.SUCCEEDED, live=False)) is Step.STALE


def test_leaves_alone_what_may_be_another_airflows():
    assert step(left_by(1, start_date=None)) is Step.FOREIGN
    assert step(left_by(1, Phase.FAILED, live=False, start_date=None)) is Step.LEAVE
    assert step(left_by(3, start_date=None)) is Step.FOREIGN, "nobody else's newer try stops us"


def test_adopts_nothing_once_it_has_created_its_own():
    assert step(left_by(1), may_adopt=False) is Step.DELETE
    assert step(left_by(1, Phase.SUCCEEDED, live=False), may_adopt=False) is Step.LEAVE


def test_finds_its_own_object_again_though_nothing_proves_the_run():
    assert step(left_by(2, start_date=None), own=2, start_date=None) is Step.ADOPT
