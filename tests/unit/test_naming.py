"""Names and label values."""

import pytest

from airflow_mlxp import naming

TI = "0195d8a0-0000-7000-8000-000000000001"


def test_the_name_is_readable_and_ends_in_a_hash_of_the_try():
    name = naming.workload_name("retrain-train", TI)
    assert name == f"retrain-train-{naming.digest(TI, 12)}"
    assert name == naming.workload_name("retrain-train", TI)
    assert name != naming.workload_name("retrain-train", TI.replace("1", "2"))


@pytest.mark.parametrize("prefix", ["", "데이터", "123", "-_-", "9" * 300])
def test_a_prefix_without_a_letter_still_gives_a_name(prefix):
    assert naming.workload_name(prefix, TI) == f"task-{naming.digest(TI, 12)}"


def test_a_long_prefix_is_cut_to_fifty_characters():
    assert len(naming.workload_name("x" * 200, TI)) == 50


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Retrain_DAG.daily", "retrain-dag-daily"), ("Größe", "groe"), ("a--b__c", "a-b-c"), ("2nd-try", "nd-try"), ("x-", "x")],
)
def test_slug(text, expected):
    assert naming.slug(text, 50) == expected


def test_a_slug_is_cut_without_a_hyphen_at_its_end():
    assert naming.slug("abc-def", 4) == "abc"


@pytest.mark.parametrize("value", ["train", "A.b_c-1", "1", "x" * 63])
def test_valid_label_values_stay(value):
    assert naming.label_value(value) == value


@pytest.mark.parametrize("value", ["", "-1", "manual__2026-12-01T00:00:00+00:00", "x" * 64, "모델", "a\n", "trailing-"])
def test_other_label_values_get_a_hash_of_all_of_them(value):
    made = naming.label_value(value)
    assert made.endswith(naming.digest(value, 12))
    assert naming.label_value(made) == made


def test_long_values_that_differ_at_the_end_stay_different():
    assert naming.label_value("x" * 200 + "a") != naming.label_value("x" * 200 + "b")


def test_rename_takes_references_along():
    manifest = {
        "metadata": {"name": "train"},
        "spec": {
            "elasticPolicy": {"rdzvId": "train", "rdzvHost": "train-worker-0"},
            "env": [
                {"name": "MASTER_ADDR", "value": "train-master-0"},
                {"value": "pretrain-worker-0"},
                {"value": "train-worker-0x"},
            ],
            "command": ["tcp://train-worker-12:23456", "train.py", "other.train-worker-0"],
        },
    }
    assert naming.rename(manifest, "t-1") == {
        "metadata": {"name": "t-1"},
        "spec": {
            "elasticPolicy": {"rdzvId": "t-1", "rdzvHost": "t-1-worker-0"},
            "env": [
                {"name": "MASTER_ADDR", "value": "t-1-master-0"},
                {"value": "pretrain-worker-0"},
                {"value": "train-worker-0x"},
            ],
            "command": ["tcp://t-1-worker-12:23456", "train.py", "other.train-worker-0"],
        },
    }


def test_rename_leaves_a_rendezvous_id_of_the_users_own():
    manifest = {"metadata": {"name": "train"}, "spec": {"elasticPolicy": {"rdzvId": "shared"}}}
    assert naming.rename(manifest, "t-1")["spec"]["elasticPolicy"]["rdzvId"] == "shared"


@pytest.mark.parametrize("manifest", [{}, {"metadata": {"name": 3}}, {"metadata": {"name": "x"}, "spec": None}])
def test_rename_of_nearly_nothing(manifest):
    assert naming.rename(manifest, "t-1")["metadata"]["name"] == "t-1"
