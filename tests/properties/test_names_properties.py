"""Whatever people call things, names and labels are valid and differ where they must."""

import re

from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp import identity, naming
from airflow_mlxp.identity import TaskIdentity
from airflow_mlxp.workloads.job import JOB

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
LABEL_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

ids = st.text(st.characters(exclude_categories=("Cs",)), max_size=250)
tasks = st.builds(
    TaskIdentity,
    dag_id=ids,
    task_id=ids,
    run_id=ids,
    ti_id=st.uuids().map(str),
    try_number=st.integers(0, 10_000),
    max_tries=st.integers(0, 10_000),
    map_index=st.integers(-1, 10_000),
    instance=ids,
)


@given(ids, st.uuids().map(str))
def test_every_name_is_a_dns_label_of_fifty_characters(prefix, ti_id):
    name = naming.workload_name(prefix, ti_id)
    assert DNS_1035.fullmatch(name)
    assert len(name) <= 50


@given(ids, st.integers(1, 63))
def test_every_slug_is_empty_or_a_dns_label(text, limit):
    slug = naming.slug(text, limit)
    assert slug == "" or DNS_1035.fullmatch(slug)
    assert len(slug) <= limit


@given(tasks)
def test_every_label_is_valid(task):
    for key, value in task.labels().items():
        assert LABEL_KEY.fullmatch(key)
        assert LABEL_VALUE.fullmatch(value)
        assert len(value) <= 63


@given(ids, ids)
def test_different_texts_have_different_label_values(one, other):
    assert (naming.label_value(one) == naming.label_value(other)) == (one == other)


@given(tasks)
def test_what_is_stamped_is_read_back(task):
    manifest = {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": []}}}}
    obj = identity.stamp(manifest, task, JOB.pod_templates_of, name=naming.workload_name("x", task.ti_id))
    other = identity.WorkloadIdentity.from_object(obj)
    assert (other.ti_id, other.owner, other.max_tries) == (task.ti_id, task.ti_id, task.max_tries)
    assert other.task_label == task.task_label
    assert other.spec_hash == identity.spec_hash(manifest)
    assert identity.is_same_chain(task, other)
    assert identity.is_certainly_ours(task, other) is bool(task.instance)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5) | st.sampled_from(["metadata", "spec"]), json_values, max_size=4))
def test_the_spec_hash_is_total_and_blind_for_the_order_of_keys(manifest):
    assert identity.spec_hash(manifest) == identity.spec_hash(dict(reversed(manifest.items())))


@given(json_values)
def test_reading_an_object_never_raises(value):
    identity.WorkloadIdentity.from_object({"metadata": value})
    identity.WorkloadIdentity.from_object({"metadata": {"labels": value, "annotations": value}})
