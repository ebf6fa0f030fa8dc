"""Labels, annotations, spec hash, and the rules that decide whose a workload is."""

import copy
import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_mlxp import identity
from airflow_mlxp.identity import TaskIdentity, WorkloadIdentity
from airflow_mlxp.workloads.job import JOB
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB

START = datetime(2026, 12, 1, 14, 0, 0, 123456, tzinfo=UTC)
OLD, NEW = "0195d8a0-0000-7000-8000-000000000009", "0195d8a1-0000-7000-8000-000000000001"


def a_task(**changes):
    values = {
        "dag_id": "retrain", "task_id": "train", "run_id": "manual__2026-12-01T00:00:00+00:00", "ti_id": NEW, "try_number": 1,
        "max_tries": 2, "retries": 2, "clear_number": 0, "start_date": START, "logical_date": START - timedelta(hours=1),
        "run_after": START - timedelta(minutes=1), "instance": "", "nonce": "n1",
    }  # fmt: skip
    return TaskIdentity(**values | changes)


def a_job():
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "p-x", "labels": {"team": "vision"}},
        "spec": {"backoffLimit": 1, "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
    }


def stamped(task=None, manifest=None, name="train-1"):
    return identity.stamp(manifest or a_job(), task or a_task(), JOB.pod_templates_of, name=name)


def read(task=None, **changes):
    """What another worker reads of a workload that ``task`` made."""
    return dataclasses.replace(WorkloadIdentity.from_object(stamped(task)), **changes)


def test_labels_and_annotations_of_object_and_pods():
    obj = stamped(a_task(map_index=3, instance="prod"))
    labels = obj["metadata"]["labels"]
    assert labels.pop("team") == "vision"
    assert labels == obj["spec"]["template"]["metadata"]["labels"]
    assert labels["airflow-mlxp/dag-id"] == "retrain"
    assert labels["airflow-mlxp/task-id"] == "train"
    assert labels["airflow-mlxp/run-id"].startswith("manual-2026-12-01t00-00-00-00-00-")
    assert labels["airflow-mlxp/map-index"] == "3"
    assert labels["airflow-mlxp/try"] == "1"
    assert labels["airflow-mlxp/instance"] == "prod"
    assert obj["metadata"]["annotations"] == {
        "airflow-mlxp/dag-id": "retrain",
        "airflow-mlxp/task-id": "train",
        "airflow-mlxp/run-id": "manual__2026-12-01T00:00:00+00:00",
        "airflow-mlxp/map-index": "3",
        "airflow-mlxp/owner": NEW,
        "airflow-mlxp/ti-id": NEW,
        "airflow-mlxp/max-tries": "2",
        "airflow-mlxp/clear-number": "0",
        "airflow-mlxp/dag-run-start-date": "2026-12-01T14:00:00.123456+00:00",
        "airflow-mlxp/nonce": "n1",
        "airflow-mlxp/spec-hash": identity.spec_hash(a_job()),
    }
    assert obj["spec"]["template"]["metadata"]["annotations"] == {
        "airflow-mlxp/dag-id": "retrain",
        "airflow-mlxp/task-id": "train",
        "airflow-mlxp/run-id": "manual__2026-12-01T00:00:00+00:00",
        "airflow-mlxp/map-index": "3",
    }


def test_what_airflow_does_not_tell_is_left_out():
    obj = stamped(a_task(clear_number=None, start_date=None, nonce=""))
    absent = {identity.CLEAR_NUMBER_ANNOTATION, identity.START_DATE_ANNOTATION, identity.NONCE_ANNOTATION}
    assert not absent & obj["metadata"]["annotations"].keys()
    assert not {identity.INSTANCE_LABEL, identity.MAP_INDEX} & obj["metadata"]["labels"].keys()


def test_the_task_label_is_equal_for_tries_and_differs_for_everything_else():
    label = a_task().task_label
    assert label == a_task(ti_id=OLD, try_number=2, nonce="n2", clear_number=1).task_label
    for change in ({"dag_id": "x"}, {"task_id": "x"}, {"run_id": "x"}, {"map_index": 0}):
        assert a_task(**change).task_label != label
    assert a_task(dag_id="a", task_id="b-c").task_label != a_task(dag_id="a-b", task_id="c").task_label


def test_stamping_changes_neither_the_input_nor_forgets_a_replica():
    manifest = {
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {}}}, "Worker": {"template": {"spec": {}}}}},
    }
    before = copy.deepcopy(manifest)
    obj = identity.stamp(manifest, a_task(), PYTORCHJOB.pod_templates_of, name="train-1")
    assert manifest == before
    assert obj["metadata"]["name"] == "train-1"
    for replica in obj["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["metadata"]["labels"][identity.TASK_LABEL] == a_task().task_label


def test_identity_that_was_copied_from_the_cluster_is_replaced():
    first = stamped(a_task(ti_id=OLD, instance="staging", map_index=3))
    first["metadata"]["annotations"][identity.OUTCOME_ANNOTATION] = "success"
    assert stamped(manifest=first, name="train-2") == stamped(name="train-2")


def test_the_spec_hash_knows_neither_order_nor_names_nor_identity():
    job = a_job()
    assert identity.spec_hash(dict(reversed(job.items()))) == identity.spec_hash(job)
    assert identity.spec_hash(stamped()) == identity.spec_hash(job)
    assert identity.spec_hash(stamped(a_task(ti_id=OLD), name="other")) == identity.spec_hash(job)
    del job["metadata"]["name"]
    assert identity.spec_hash(job) == identity.spec_hash(a_job())
    elastic = {"spec": {"elasticPolicy": {"rdzvId": "a", "minReplicas": 1}}}
    assert identity.spec_hash(elastic) == identity.spec_hash({"spec": {"elasticPolicy": {"minReplicas": 1, "rdzvId": "b"}}})


@pytest.mark.parametrize("path", [("spec", "backoffLimit"), ("metadata", "namespace"), ("metadata", "labels")])
def test_the_spec_hash_knows_everything_else(path):
    other = a_job()
    other[path[0]][path[1]] = {"other": "value"}
    assert identity.spec_hash(other) != identity.spec_hash(a_job())


def test_the_spec_hash_stays_the_same_over_versions():
    assert identity.spec_hash({"kind": "Job", "spec": {"parallelism": 1}}) == (
        "c103990aca7429bfa49102e945e58d2ce1829677873536035962ba0f9632523e"
    )


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": None},
        {"metadata": {"labels": [], "annotations": "x"}},
        {"metadata": {"annotations": {identity.MAX_TRIES_ANNOTATION: "two", identity.CLEAR_NUMBER_ANNOTATION: 1}}},
    ],
)
def test_an_object_that_says_nothing_is_read_as_nothing(obj):
    other = WorkloadIdentity.from_object(obj)
    assert (other.ti_id, other.owner, other.max_tries, other.clear_number) == ("", "", None, None)
    assert not identity.is_same_chain(a_task(), other)
    assert not identity.is_certainly_ours(a_task(instance="prod"), other, frozenset({""}))


@pytest.mark.parametrize(
    ("own", "other", "same"),
    [
        # An automatic retry: nothing differs but the try.
        ({"try_number": 2}, {}, True),
        ({"try_number": 2, "clear_number": None}, {"clear_number": None}, True),
        # A clear of this task: max_tries has been raised.
        ({"try_number": 2, "max_tries": 3}, {"max_tries": 2}, False),
        ({}, {"max_tries": None}, False),
        # Another task was cleared. Ours is its first try since its own clear, or since the start: not the same chain ...
        ({"try_number": 1, "clear_number": 1}, {}, False),
        # ... or one that can only be automatic, from max_tries - retries + 2 to max_tries + 1.
        ({"try_number": 2, "clear_number": 1}, {}, True),
        ({"try_number": 3, "clear_number": 1}, {}, True),
        ({"try_number": 4, "clear_number": 1}, {}, False),
        ({"try_number": 4, "max_tries": 5, "clear_number": 2}, {"max_tries": 5, "clear_number": 1}, False),
        ({"try_number": 5, "max_tries": 5, "clear_number": 2}, {"max_tries": 5, "clear_number": 1}, True),
        # Without retries no try is automatic.
        ({"try_number": 1, "max_tries": 0, "retries": 0, "clear_number": 1}, {"max_tries": 0}, False),
        ({"try_number": 1, "max_tries": 0, "retries": None, "clear_number": 1}, {"max_tries": 0}, False),
        # An object of a version that didn't know the number.
        ({"try_number": 1}, {"clear_number": None}, False),
        ({"try_number": 2}, {"clear_number": None}, True),
    ],
)
def test_same_chain(own, other, same):
    assert identity.is_same_chain(a_task(**own), read(**other)) is same


@pytest.mark.parametrize(
    ("own", "made_by", "nonces", "ours"),
    [
        ({}, {}, (), True),
        ({"start_date": START.astimezone(timezone(timedelta(hours=9)))}, {}, (), True),
        ({}, {"start_date": START + timedelta(microseconds=1)}, (), False),
        # A run that was set back to queued has no start; dag.test() starts at its own logical date.
        ({"start_date": None}, {"start_date": None}, (), False),
        ({"start_date": None}, {}, (), False),
        ({"logical_date": START}, {}, (), False),
        ({"run_after": START}, {}, (), False),
        ({"logical_date": None}, {}, (), True),
        # A configured instance on both sides; a long one is hashed.
        ({"start_date": None, "instance": "prod"}, {"instance": "prod"}, (), True),
        ({"start_date": None, "instance": "x y " * 40}, {"instance": "x y " * 40}, (), True),
        ({"start_date": None, "instance": "prod"}, {"instance": "staging"}, (), False),
        ({"start_date": None, "instance": ""}, {"instance": ""}, (), False),
        # A nonce of the state store.
        ({"start_date": None}, {"nonce": "n7"}, ("n6", "n7"), True),
        ({"start_date": None}, {"nonce": "n7"}, ("n6",), False),
        ({"start_date": None}, {"nonce": ""}, ("",), False),
    ],
)
def test_ours_for_certain(own, made_by, nonces, ours):
    assert identity.is_certainly_ours(a_task(**own), read(a_task(**made_by)), frozenset(nonces)) is ours


@pytest.mark.parametrize(
    ("first", "second", "newer"),
    [
        (NEW, OLD, True),
        (OLD, NEW, False),
        (NEW, NEW, False),
        (NEW.upper(), OLD, True),
        (OLD, "", True),
        ("", OLD, False),
        ("x", "", False),
    ],
)
def test_newer(first, second, newer):
    assert identity.is_newer(first, second) is newer
