"""Whatever a client sends, the server answers with an object or a Status, never with a crash."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_mlxp.local.server.problem import ApiError
from airflow_mlxp.local.server.registry import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Registry, WriteOptions
from airflow_mlxp.local.server.resources import EVENTS, JOBS, NAMESPACES, PODS, PYTORCH_JOBS, QUOTAS, SERVICES
from airflow_mlxp.local.server.storage import Store
from tests.local.conftest import a_job, a_pod, a_pytorchjob

_CONTAINER = {
    "name": "main",
    "image": "x",
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "ports": [{"containerPort": 1}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
    "livenessProbe": {"httpGet": {"port": 1}},
}
_VOLUMES = [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]
_BODIES = [
    (JOBS, a_job(labels={"a": "b"}, annotations={"c": "d"})),
    (
        PODS,
        a_pod(spec={"containers": [_CONTAINER], "volumes": _VOLUMES, "tolerations": [{"key": "a"}], "nodeSelector": {"a": "b"}}),
    ),
    (PYTORCH_JOBS, a_pytorchjob(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}])),
    (SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "clusterIP": "None"}}),
    (QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}}),
    (EVENTS, {"metadata": {"name": "e"}, "involvedObject": {"name": "x"}, "source": {"component": "y"}}),
]
_VALUES = st.sampled_from([None, True, 0, -1, 1.5, "", "x", [], [None], ["x"], [{}], {}, {"a": None}, {"": ""}])


def _paths(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _paths(inner, (*path, number))


def _replaced(body, path, value):
    if not path:
        return value
    body = copy.deepcopy(body)
    container = body
    for step in path[:-1]:
        container = container[step]
    container[path[-1]] = copy.deepcopy(value)
    return body


def _registry():
    registry = Registry(Store(history=100))
    registry.create(NAMESPACES, "", {"metadata": {"name": "ns"}}, WriteOptions())
    return registry


@pytest.mark.parametrize(("resource", "body"), _BODIES, ids=lambda value: getattr(value, "kind", ""))
@settings(max_examples=150)
@given(data=st.data())
def test_a_spoilt_object_is_refused_or_stored(resource, body, data):
    registry = _registry()
    spoilt = _replaced(body, data.draw(st.sampled_from(list(_paths(body)))), data.draw(_VALUES))
    try:
        stored = registry.create(resource, "ns", spoilt, WriteOptions(validation="Strict")).stored
    except ApiError:
        return
    assert stored.full()


@pytest.mark.parametrize("media_type", [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH])
@pytest.mark.parametrize(("resource", "body"), _BODIES, ids=lambda value: getattr(value, "kind", ""))
@settings(max_examples=60)
@given(data=st.data())
def test_a_spoilt_patch_is_refused_or_applied(resource, body, media_type, data):
    registry = _registry()
    name = registry.create(resource, "ns", copy.deepcopy(body), WriteOptions()).stored.key[1]
    path, value = data.draw(st.sampled_from(list(_paths(body)))), data.draw(_VALUES)
    patch = _replaced(body, path, value)
    if media_type == JSON_PATCH:
        pointer = "".join(f"/{step}" for step in path)
        patch = [{"op": data.draw(st.sampled_from(["add", "replace", "test", "remove"])), "path": pointer, "value": value}]
    for subresource in ("", "status"):
        try:
            stored = registry.patch(
                resource, ("ns", name), copy.deepcopy(patch), media_type, WriteOptions(), subresource=subresource
            ).stored
        except ApiError:
            continue
        assert stored.full()
