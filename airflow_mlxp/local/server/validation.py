"""Validation of objects: names, labels, and what kube-apiserver checks of the kinds that the platform runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import formats, podspec, problem
from airflow_mlxp.local.server.resources import JOBS, PODS, QUOTAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.local.server.problem import FieldError
    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.storage import Object, Stored

_NAME_RULES: dict[str, Callable[[str], list[str]]] = {
    "subdomain": formats.dns1123_subdomain,
    "label": formats.dns1123_label,
    "label1035": formats.dns1035_label,
}
_ANNOTATIONS_LIMIT = 256 * 1024


def validate(resource: Resource, before: Stored | None, data: Object, *, subresource: str = "") -> list[FieldError]:
    """Every field error of a new object or version."""
    errors = _metadata(resource, data["metadata"])
    if subresource:
        return errors
    if resource is PODS:
        errors += podspec.validate(data.get("spec"), "spec") if before is None else _pod_update(before.data, data)
    if resource is JOBS:
        errors += _job(data) if before is None else _job_update(before.data, data)
    if resource is QUOTAS:
        errors += podspec.quantities((data.get("spec") or {}).get("hard") or {}, "spec.hard")
    return errors


def _metadata(resource: Resource, metadata: dict[str, Any]) -> list[FieldError]:
    name = metadata.get("name") or ""
    if not name:
        return [problem.required("metadata.name", "name or generateName is required")]
    errors = [problem.invalid("metadata.name", name, text) for text in _NAME_RULES[resource.dns_name](name)]
    errors += _owners(metadata.get("ownerReferences") or [])
    return errors + labels(metadata.get("labels") or {}, "metadata.labels") + _annotations(metadata.get("annotations") or {})


def _owners(references: list[dict[str, Any]]) -> list[FieldError]:
    return [
        problem.invalid(f"metadata.ownerReferences[{number}].{name}", "", "must not be empty")
        for number, reference in enumerate(references)
        for name in ("apiVersion", "kind", "name", "uid")
        if not reference.get(name)
    ]


def labels(given: dict[str, str], path: str) -> list[FieldError]:
    """Errors of labels: keys are qualified names, values at most 63 characters of a fixed set."""
    errors = []
    for key, value in given.items():
        errors += [problem.invalid(path, key, text) for text in formats.qualified_name(key)]
        errors += [problem.invalid(path, value, text) for text in formats.label_value(value or "")]
    return errors


def _annotations(given: dict[str, str]) -> list[FieldError]:
    errors = [
        problem.invalid("metadata.annotations", key, text) for key in given for text in formats.qualified_name(key.lower())
    ]  # fmt: skip
    if sum(len(key) + len(value or "") for key, value in given.items()) > _ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        errors.append(problem.FieldError("FieldValueTooLong", "metadata.annotations", text))
    return errors


def _job(job: Object) -> list[FieldError]:
    spec = job.get("spec") or {}
    template = spec.get("template") or {}
    errors = [
        problem.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
        if (spec.get(name) or 0) < 0
    ]
    if spec.get("completionMode") not in {"NonIndexed", "Indexed"}:
        errors.append(problem.not_supported("spec.completionMode", spec.get("completionMode"), ["Indexed", "NonIndexed"]))
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        errors.append(problem.required("spec.completions", "when completion mode is Indexed"))
    errors += labels((template.get("metadata") or {}).get("labels") or {}, "spec.template.labels")
    pod_spec = template.get("spec")
    errors += podspec.validate(pod_spec, "spec.template.spec")
    if (pod_spec or {}).get("restartPolicy") not in {"OnFailure", "Never"}:
        errors.append(problem.required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return errors


def _job_update(before: Object, after: Object) -> list[FieldError]:
    old, new = before["spec"], after.get("spec") or {}
    suspended = old.get("suspend") and not (before.get("status") or {}).get("startTime")
    fixed = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", *([] if suspended else ["template"])]
    errors = [
        problem.invalid(f"spec.{name}", new.get(name), "field is immutable") for name in fixed if old.get(name) != new.get(name)
    ]
    elastic = new.get("completionMode") == "Indexed" and new.get("completions") == new.get("parallelism")
    if old.get("completions") != new.get("completions") and not elastic:
        errors.append(problem.invalid("spec.completions", new.get("completions"), "field is immutable"))
    return errors


_MUTABLE_POD_FIELDS = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")


def _pod_update(before: Object, after: Object) -> list[FieldError]:
    def fixed(spec: dict[str, Any]) -> dict[str, Any]:
        part = {key: value for key, value in spec.items() if key not in _MUTABLE_POD_FIELDS}
        for name in ("containers", "initContainers"):
            part[name] = [{key: value for key, value in c.items() if key != "image"} for c in spec.get(name) or ()]
        return part

    if fixed(before["spec"]) == fixed(after.get("spec") or {}):
        return []
    text = (
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [problem.forbidden_field("spec", text)]
