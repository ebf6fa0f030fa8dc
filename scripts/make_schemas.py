"""Write the JSON schemas of the kinds that are sent, from the models of the packages ``kubernetes`` and ``kubeflow-training``.

``python scripts/make_schemas.py`` writes ``airflow_mlxp/schemas/*.json``; ``--check`` only compares and fails on a difference.

Where a real server knows better than the models, the tables below win: ``_PYTORCHJOB_LACKS`` is what the PyTorchJob resource
definition of training-operator 1.9.3 (``manifests/base/crds/kubeflow.org_pytorchjobs.yaml``) doesn't have of the newer models.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "airflow_mlxp" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_KUBEFLOW_PREFIX = "KubeflowOrgV1"
_QUANTITY = "Quantity"
_INT_OR_STRING = "IntOrString"
_SHARED = {
    _QUANTITY: {
        "anyOf": [
            {"type": "number"},
            {"type": "string", "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"},
        ]
    },
    _INT_OR_STRING: {"type": ["integer", "string"]},
}
_QUANTITIES = {
    ("V1ResourceRequirements", "limits"),
    ("V1ResourceRequirements", "requests"),
    ("V1VolumeResourceRequirements", "limits"),
    ("V1VolumeResourceRequirements", "requests"),
    ("V1PodSpec", "overhead"),
    ("V1EmptyDirVolumeSource", "sizeLimit"),
    ("V1ResourceFieldSelector", "divisor"),
}
_INT_OR_STRINGS = {("V1HTTPGetAction", "port"), ("V1TCPSocketAction", "port")}
_OPEN = {"V1JobStatus", "KubeflowOrgV1JobStatus", "V1ManagedFieldsEntry"}
"""Written by servers and controllers only: accepted as they come."""
_METRICS = "K8sIoApiAutoscalingV2MetricSpec"
"""No model of that name exists; ``elasticPolicy.metrics`` is left to the server."""
_NOT_REQUIRED = {("KubeflowOrgV1PyTorchJobSpec", "runPolicy")}
"""Required by the models, not by the resource definition."""
_PYTORCHJOB_LACKS = {
    "V1PodSpec": {"hostnameOverride", "resources", "schedulingGroup"},
    "V1Container": {"restartPolicyRules"},
    "V1EphemeralContainer": {"restartPolicyRules"},
    "V1EnvVarSource": {"fileKeyRef"},
    "V1Lifecycle": {"stopSignal"},
    "V1PodSecurityContext": {"seLinuxChangePolicy"},
    "V1VolumeProjection": {"podCertificate"},
}
_TEMPLATE_METADATA = ("annotations", "finalizers", "labels", "name", "namespace")
"""All that a PyTorchJob's templates may have as metadata."""


def model(name: str) -> Any:
    """The model class of a name."""
    package = "kubeflow.training.models" if name.startswith(_KUBEFLOW_PREFIX) else "kubernetes.client.models"
    return getattr(importlib.import_module(package), name)


def collect(root: str) -> dict[str, Any]:
    """Definitions of a model and of all that it refers to."""
    found: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found and name not in _SHARED:
            found[name] = _definition(name)
            waiting += re.findall(r'"#/\$defs/(\w+)"', json.dumps(found[name]))
    return found


def _definition(name: str) -> dict[str, Any]:
    if name in _OPEN:
        return {"type": "object"}
    cls = model(name)
    wire = cls.attribute_map
    properties = {wire[attribute]: _property(name, wire[attribute], kind) for attribute, kind in cls.openapi_types.items()}
    required = sorted(
        wire[attribute] for attribute in wire if _is_required(cls, attribute) and (name, wire[attribute]) not in _NOT_REQUIRED
    )
    definition: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return definition | ({"required": required} if required else {})


def _is_required(cls: type, attribute: str) -> bool:
    return "must not be `None`" in inspect.getsource(getattr(cls, attribute).fset)


def _property(owner: str, field: str, kind: str) -> dict[str, Any]:
    if (owner, field) in _INT_OR_STRINGS:
        return _type(_INT_OR_STRING)
    if (owner, field) in _QUANTITIES:
        return _type(kind.replace("str]", f"{_QUANTITY}]") if "[" in kind else _QUANTITY)
    return _type(kind)


def _type(kind: str) -> dict[str, Any]:
    if match := re.fullmatch(r"list\[(.+)\]", kind):
        return {"type": "array", "items": _type(match[1])}
    if match := re.fullmatch(r"dict[\[(]str, (.+)[\])]", kind):
        return {"type": "object", "additionalProperties": _type(match[1])}
    simple = {
        "str": {"type": "string"},
        "int": {"type": "integer"},
        "bool": {"type": "boolean"},
        "object": {"type": "object"},
        # Clients written in Go send ``creationTimestamp: null``.
        "datetime": {"type": ["string", "null"], "format": "date-time"},
        _METRICS: {"type": "object"},
    }
    return simple.get(kind, {"$ref": f"#/$defs/{kind}"})


def job() -> dict[str, Any]:
    """Definitions of ``batch/v1`` Job."""
    return collect("V1Job")


def pytorchjob() -> dict[str, Any]:
    """Definitions of ``kubeflow.org/v1`` PyTorchJob, as its resource definition has them."""
    found = collect("KubeflowOrgV1PyTorchJob")
    for name, lacking in _PYTORCHJOB_LACKS.items():
        found[name]["properties"] = {key: value for key, value in found[name]["properties"].items() if key not in lacking}
    metadata = found["V1ObjectMeta"]["properties"]
    narrow = {"type": "object", "properties": {key: metadata[key] for key in _TEMPLATE_METADATA}, "additionalProperties": False}
    found["TemplateMetadata"] = narrow
    for name in ("V1PodTemplateSpec", "V1PersistentVolumeClaimTemplate"):
        found[name]["properties"]["metadata"] = {"$ref": "#/$defs/TemplateMetadata"}
    return _reachable(found, "KubeflowOrgV1PyTorchJob")


def _reachable(definitions: dict[str, Any], root: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in kept:
            kept[name] = definitions[name]
            waiting += re.findall(r'"#/\$defs/(\w+)"', json.dumps(kept[name]))
    return kept


def _kind(root: str, definitions: dict[str, Any], *, api_version: str, kind: str) -> dict[str, Any]:
    whole = definitions.pop(root)
    whole["properties"] |= {"apiVersion": {"const": api_version}, "kind": {"const": kind}}
    whole["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return {"$schema": DIALECT, "title": kind, **whole, "$defs": definitions}


def schemas() -> dict[str, dict[str, Any]]:
    """File name -> schema. What both kinds define alike stands once, in ``common``."""
    jobs = _kind("V1Job", job(), api_version="batch/v1", kind="Job")
    torch = _kind("KubeflowOrgV1PyTorchJob", pytorchjob(), api_version="kubeflow.org/v1", kind="PyTorchJob")
    common = {name: value for name, value in jobs["$defs"].items() if torch["$defs"].get(name) == value} | _SHARED
    for schema in (jobs, torch):
        schema["$defs"] = {name: value for name, value in schema["$defs"].items() if name not in common}
    return {"common": {"$defs": common}, "job": jobs, "pytorchjob": torch}


def text(schema: dict[str, Any]) -> str:
    """Compact JSON in a stable order, one definition a line, so that differences can be read."""
    definitions = schema["$defs"]
    head = json.dumps({key: value for key, value in schema.items() if key != "$defs"}, sort_keys=True, separators=(",", ":"))
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(definitions[name], sort_keys=True, separators=(',', ':'))}"
        for name in sorted(definitions)
    )
    opening = head.removesuffix("}") + ("," if len(head) > 2 else "")
    return f'{opening}"$defs":{{\n{lines}\n}}}}\n'


def main(arguments: list[str]) -> int:
    """Write or compare; the exit status is 1 when a file is not what the models give."""
    stale = []
    for name, schema in schemas().items():
        path, wanted = TARGET / f"{name}.json", text(schema)
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(wanted, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"not up to date: {', '.join(stale)}; run python scripts/make_schemas.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
