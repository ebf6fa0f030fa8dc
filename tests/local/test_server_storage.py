"""A watch from any kept version brings a list of that version up to the present."""

from __future__ import annotations

import contextlib
import copy

from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.local.server import deletion, selectors, watching
from airflow_mlxp.local.server.problem import ApiError
from airflow_mlxp.local.server.registry import MERGE_PATCH, Registry, WriteOptions
from airflow_mlxp.local.server.resources import CONFIG_MAPS, NAMESPACES
from airflow_mlxp.local.server.storage import Store

_NAMES = st.sampled_from(["a", "b", "c"])
_STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "label", "delete"]), _NAMES, st.sampled_from(["x", "y", None])), min_size=1, max_size=25
)
_SELECTORS = st.sampled_from(["", "app=x", "app!=x", "!app", "app in (x,y)"])


def _apply(registry, step, name, value):
    key = "ns", name
    if step == "create":
        metadata = {"name": name, "labels": {"app": value} if value else {}}
        registry.create(CONFIG_MAPS, "ns", {"metadata": metadata}, WriteOptions())
    elif step == "label":
        registry.patch(CONFIG_MAPS, key, {"metadata": {"labels": {"app": value}}}, MERGE_PATCH, WriteOptions())
    else:
        deletion.delete(registry, registry.existing(CONFIG_MAPS, key), deletion.DeleteOptions())


def _selected(items, selection):
    return {stored.key: stored.data for stored in items if selection.matches(stored.data)}


@given(steps=_STEPS, start=st.integers(0, 25), text=_SELECTORS)
def test_list_and_watch_agree(steps, start, text):
    registry = Registry(Store(history=1000))
    store = registry.store
    registry.create(NAMESPACES, "", {"metadata": {"name": "ns"}}, WriteOptions())
    selection = selectors.Selection("ns", selectors.parse_labels(text))
    versions, states = [store.version], [copy.deepcopy(_selected(store.items(CONFIG_MAPS), selection))]
    for step, name, value in steps:
        with contextlib.suppress(ApiError):  # the name is taken, or there is no such object
            _apply(registry, step, name, value)
        versions.append(store.version)
        states.append(copy.deepcopy(_selected(store.items(CONFIG_MAPS), selection)))
    at = min(start, len(versions) - 1)
    assert _selected(store.snapshot(CONFIG_MAPS, "ns", versions[at]), selection) == states[at]
    known = dict(states[at])
    for change in store.changes_since(CONFIG_MAPS, versions[at]):
        if (seen := watching.see(change, selection)) is None:
            continue
        assert (seen.type == "ADDED") is (seen.stored.key not in known)
        if seen.type == "DELETED":
            del known[seen.stored.key]
        else:
            known[seen.stored.key] = seen.stored.data
    assert known == states[-1]
