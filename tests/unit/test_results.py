"""Results: termination messages to one JSON value."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.results import ResultError, combine, limit_for

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("results", [{}, {"0": ""}, {"worker-0": " \n"}])
def test_no_result_is_none(results):
    assert combine(results, indexed=False) is None


@given(value=JSON)
def test_json_comes_back_as_the_value(value):
    assert combine({"worker-0": json.dumps(value), "worker-1": ""}, indexed=False) == value


@pytest.mark.parametrize("text", ["/data/model.pt", "{'a': 1}", '{"loss": NaN}', "[1, 2", "[" * 3000])
def test_text_that_is_no_json_comes_back_as_it_is(text):
    assert combine({"worker-0": f"{text}\n"}, indexed=False) == text


def test_equal_texts_are_one():
    assert combine({"worker-0": '{"a": 1}', "worker-1": '{"a": 1}\n'}, indexed=False) == {"a": 1}
    assert combine({"0": "1", "1": "1"}, indexed=True) == 1


def test_different_texts_of_an_indexed_job_are_a_mapping_in_index_order():
    assert list(combine({"10": '"c"', "2": '"b"', "0": '"a"'}, indexed=True).items()) == [("0", "a"), ("2", "b"), ("10", "c")]


def test_different_texts_else_are_ambiguous():
    with pytest.raises(ResultError, match=r"2 replicas wrote different results \(worker-0, worker-1\)") as raised:
        combine({"worker-0": "1", "worker-1": "2"}, indexed=False)
    assert raised.value.category == "ambiguous_result"


def test_text_that_the_kubelet_cut_is_too_large():
    whole = json.dumps({"weights": "x" * 5000})
    with pytest.raises(ResultError, match="return its path") as raised:
        combine({"worker-0": whole[-4096:]}, indexed=False)
    assert raised.value.category == "result_too_large"


def test_size_counts_in_bytes_and_the_limit_itself_is_allowed():
    fits = json.dumps("é" * 100, ensure_ascii=False)
    assert combine({"0": fits}, indexed=False, limit=len(fits.encode())) == "é" * 100
    with pytest.raises(ResultError):
        combine({"0": fits}, indexed=False, limit=len(fits.encode()) - 1)


@pytest.mark.parametrize(("containers", "limit"), [(0, 4096), (1, 4096), (3, 4096), (4, 3072), (12, 1024)])
def test_limit_is_shared_by_the_containers_of_a_pod(containers, limit):
    assert limit_for(containers) == limit


@given(results=st.dictionaries(st.text(max_size=4), st.text(max_size=40), max_size=4), indexed=st.booleans())
def test_any_text_gives_a_value_or_a_named_refusal(results, indexed):
    with contextlib.suppress(ResultError):
        combine(results, indexed=indexed, limit=30)
