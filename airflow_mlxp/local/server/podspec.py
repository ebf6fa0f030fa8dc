"""Validation of a pod's spec (``ValidatePodSpec`` of kube-apiserver): the rules that training manifests run into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import formats, problem

if TYPE_CHECKING:
    from airflow_mlxp.local.server.problem import FieldError

_RESTART_POLICIES = ["Always", "OnFailure", "Never"]
_PULL_POLICIES = ["Always", "IfNotPresent", "Never"]


def validate(spec: dict[str, Any] | None, path: str) -> list[FieldError]:
    """Every field error of a pod spec at ``path``."""
    spec = spec or {}
    volumes = spec.get("volumes") or []
    errors = _names(volumes, f"{path}.volumes")
    names = {volume.get("name") for volume in volumes}
    containers = spec.get("containers") or []
    if not containers:
        errors.append(problem.required(f"{path}.containers"))
    for group in ("containers", "initContainers"):
        items = spec.get(group) or []
        errors += _names(items, f"{path}.{group}")
        for number, container in enumerate(items):
            errors += _container(container, names, f"{path}.{group}[{number}]")
    if spec.get("restartPolicy") not in {None, *_RESTART_POLICIES}:
        errors.append(problem.not_supported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES))
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        value = spec["terminationGracePeriodSeconds"]
        errors.append(problem.invalid(f"{path}.terminationGracePeriodSeconds", value, "must be greater than or equal to 0"))
    for key, value in (spec.get("nodeSelector") or {}).items():
        errors += [problem.invalid(f"{path}.nodeSelector", key, text) for text in formats.qualified_name(key)]
        errors += [problem.invalid(f"{path}.nodeSelector", value, text) for text in formats.label_value(str(value))]
    return errors


def _names(items: list[dict[str, Any]], path: str) -> list[FieldError]:
    """Names of containers and volumes: given, DNS labels, each once."""
    errors, seen = [], set()
    for number, item in enumerate(items):
        at, name = f"{path}[{number}].name", item.get("name") or ""
        if not name:
            errors.append(problem.required(at))
            continue
        errors += [problem.invalid(at, name, text) for text in formats.dns1123_label(name)]
        if name in seen:
            errors.append(problem.duplicate_field(at, name))
        seen.add(name)
    return errors


def _container(container: dict[str, Any], volumes: set[str | None], path: str) -> list[FieldError]:
    errors = []
    image = container.get("image") or ""
    if not image:
        errors.append(problem.required(f"{path}.image"))
    elif image != image.strip():
        errors.append(problem.invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    if container.get("imagePullPolicy") not in {None, *_PULL_POLICIES}:
        errors.append(problem.not_supported(f"{path}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES))
    for number, variable in enumerate(container.get("env") or []):
        errors += _variable(variable, f"{path}.env[{number}]")
    return errors + _mounts(container, volumes, path) + _resources(container.get("resources") or {}, f"{path}.resources")


def _variable(variable: dict[str, Any], path: str) -> list[FieldError]:
    name = variable.get("name") or ""
    if not name:
        return [problem.required(f"{path}.name")]
    if "=" in name or not name.isascii() or not name.isprintable():
        text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        return [problem.invalid(f"{path}.name", name, text)]
    source = variable.get("valueFrom")
    if source is not None and variable.get("value"):
        return [problem.invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")]
    if source is not None and not source:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        return [problem.invalid(f"{path}.valueFrom", "", text)]
    return []


def _mounts(container: dict[str, Any], volumes: set[str | None], path: str) -> list[FieldError]:
    errors, seen = [], set()
    for number, mount in enumerate(container.get("volumeMounts") or []):
        at = f"{path}.volumeMounts[{number}]"
        if not mount.get("name"):
            errors.append(problem.required(f"{at}.name"))
        if mount.get("name") not in volumes:
            errors.append(problem.not_found_field(f"{at}.name", mount.get("name") or ""))
        where = mount.get("mountPath") or ""
        if not where:
            errors.append(problem.required(f"{at}.mountPath"))
        elif where in seen:
            errors.append(problem.invalid(f"{at}.mountPath", where, "must be unique"))
        seen.add(where)
    return errors


def quantities(given: dict[str, Any], path: str) -> list[FieldError]:
    """Errors of a map of quantities: each must be one, and not negative."""
    errors = []
    for name, value in given.items():
        try:
            amount = formats.quantity(value)
        except ValueError as error:
            errors.append(problem.invalid(f"{path}[{name}]", value, str(error)))
            continue
        if amount < 0:
            errors.append(problem.invalid(f"{path}[{name}]", value, "must be greater than or equal to 0"))
    return errors


def _resources(resources: dict[str, Any], path: str) -> list[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors = quantities(limits, f"{path}.limits") + quantities(requests, f"{path}.requests")
    if errors:
        return errors
    for name, value in requests.items():
        extended = _is_extended(name)
        if name in limits:
            limit = limits[name]
            wanted, most = formats.quantity(value), formats.quantity(limit)
            if extended and wanted != most:
                errors.append(problem.invalid(f"{path}.requests", str(value), f"must be equal to {name} limit of {limit}"))
            elif wanted > most:
                text = f"must be less than or equal to {name} limit of {limit}"
                errors.append(problem.invalid(f"{path}.requests", str(value), text))
        elif extended:
            errors.append(problem.required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
    return errors


def _is_extended(name: str) -> bool:
    """Whether a resource is one that can't be overcommitted: GPUs, RDMA devices, huge pages."""
    return name.startswith("hugepages-") or ("/" in name and not name.partition("/")[0].endswith("kubernetes.io"))
