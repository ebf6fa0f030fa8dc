"""The training container: image, command, environment, resources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import tree, typed, wire

if TYPE_CHECKING:
    from airflow_mlxp.manifests.spec import Env, WorkloadSpec
    from airflow_mlxp.profile import Profile

GPU = "nvidia.com/gpu"
RESULT_PATH = "MLXP_RESULT_PATH"
RESULT_LIMIT = "MLXP_RESULT_LIMIT"

_POD_MESSAGES = 12_288
"""Bytes of termination messages that a kubelet keeps of all containers of a pod together (Kubernetes)."""
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_IMAGE = re.compile(r"\S+")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def apply(container: dict[str, Any], spec: WorkloadSpec, profile: Profile, *, kind: str) -> None:
    """Write the arguments into a container of a workload of this kind, then fill what the profile has for it."""
    if spec.image is not None and (not isinstance(spec.image, str) or not _IMAGE.fullmatch(spec.image)):
        raise InvalidArgument("image", spec.image, expected="an image such as 'registry/train:3', without spaces")
    tree.put(container, "image", spec.image)
    policy = tree.one_of(spec.image_pull_policy, "image_pull_policy", _PULL_POLICIES)
    tree.settle(container, "imagePullPolicy", policy, profile.image_pull_policy.value)
    tree.put(container, "command", None if spec.command is None else tree.texts(spec.command, "command"))
    tree.put(container, "args", None if spec.args is None else tree.texts(spec.args, "args"))
    tree.put(container, "workingDir", tree.text(spec.working_dir, "working_dir"))
    if tree.flag(spec.debug, "debug"):
        tree.merge_named(tree.items(container, "env"), _env_list(profile.debug.value or {}, kind))
    if spec.env:
        tree.merge_named(tree.items(container, "env"), _env_list(spec.env, kind))
    if spec.env_from:
        sources = tree.items(container, "envFrom")
        given = typed.mappings(spec.env_from, "V1EnvFromSource", "env_from", kind=kind)
        sources.extend(source for source in given if source not in sources)
    if spec.ports:
        tree.merge_named(tree.items(container, "ports"), _ports(spec.ports, kind), key="containerPort")
    _resources(container, spec)
    tree.fill(container, "terminationMessagePolicy", profile.termination_message_policy.value)


def fill_env(container: dict[str, Any], values: Mapping[str, str]) -> None:
    """Add environment variables that the container doesn't have yet."""
    env = tree.items(container, "env")
    present = {entry.get("name") for entry in env}
    env.extend({"name": name, "value": value} for name, value in values.items() if name not in present)


def fill_result(container: dict[str, Any], profile: Profile, *, containers: int) -> None:
    """Tell the program where to write its result and how many bytes; ``containers`` counts all of the pod."""
    path, limit = profile.result_path.value, profile.result_limit.value
    if path is not None and limit is not None:
        path = container.get("terminationMessagePath") or path
        fill_env(container, {RESULT_PATH: path, RESULT_LIMIT: str(min(limit, _POD_MESSAGES // containers))})


def add_capability(container: dict[str, Any], capability: str | None) -> None:
    """Add a Linux capability to those that the container asks for."""
    if capability:
        capabilities = tree.child(tree.child(container, "securityContext"), "capabilities")
        added = capabilities.get("add") or []
        capabilities["add"] = added if capability in added else [*added, capability]


def gpu_count(container: Mapping[str, Any]) -> int:
    """GPUs in the container's limits; 0 when none are asked for."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return quantity.whole(limits.get(GPU, 0), f"resources.limits[{GPU!r}]", minimum=0)


def _resources(container: dict[str, Any], spec: WorkloadSpec) -> None:
    gpus = None if spec.gpus is None else quantity.whole(spec.gpus, "gpus", minimum=0)
    limits = {
        "cpu": None if spec.cpu is None else quantity.cpu(spec.cpu),
        "memory": None if spec.memory is None else quantity.memory(spec.memory),
        GPU: str(gpus) if gpus else None,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    if given or gpus == 0:
        resources = tree.child(container, "resources")
        _forget(resources, [*given, GPU] if gpus == 0 else list(given))
        tree.child(resources, "limits").update(given)


def _forget(resources: dict[str, Any], names: Sequence[str]) -> None:
    """Drop a manifest's own requests and limits: Kubernetes makes a missing request equal to the limit."""
    for section in ("requests", "limits"):
        values = resources.get(section)
        if isinstance(values, dict):
            resources[section] = {name: value for name, value in values.items() if name not in names}
            if not resources[section]:
                del resources[section]


def _ports(given: object, kind: str) -> list[dict[str, Any]]:
    if not isinstance(given, list | tuple):
        raise InvalidArgument("ports", given, expected="a list of port numbers or ContainerPorts")
    ports = []
    for index, port in enumerate(given):
        is_number = isinstance(port, int | str)
        entry = {"containerPort": quantity.whole(port, f"ports[{index}]", minimum=1)} if is_number else port
        ports.append(typed.mapping(entry, "V1ContainerPort", f"ports[{index}]", kind=kind))
    return ports


def _env_list(env: Env, kind: str) -> list[dict[str, Any]]:
    if isinstance(env, Mapping):
        return [_env_entry(name, value, kind) for name, value in env.items()]
    if not isinstance(env, list | tuple):
        raise InvalidArgument("env", type(env).__name__, expected="a mapping of names to values, or a list as in a manifest")
    return [_listed(entry, index, kind) for index, entry in enumerate(env)]


def _env_entry(name: str, value: object, kind: str) -> dict[str, Any]:
    if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
        raise InvalidArgument("env", name, expected="names of letters, digits, '_', '-' and '.' that start with no digit")
    if isinstance(value, Mapping) or wire.is_model(value):
        return {"name": name, "valueFrom": typed.mapping(value, "V1EnvVarSource", f"env[{name!r}]", kind=kind)}
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        # The value may be a secret that a template was to fill in: name its type only.
        raise InvalidArgument(f"env[{name!r}]", type(value).__name__, expected="text, a number or an EnvVarSource")
    return {"name": name, "value": str(value)}


def _listed(given: Any, index: int, kind: str) -> dict[str, Any]:
    entry = wire.fields_of(given) if wire.is_model(given) else given
    if not isinstance(entry, Mapping) or "name" not in entry:
        raise InvalidArgument(f"env[{index}]", type(entry).__name__, expected="a mapping with a name")
    source = entry.get("valueFrom")
    return _env_entry(entry["name"], entry.get("value", "") if source is None else source, kind)
