"""The verbs that write, without HTTP: create, update, patch. Each is one step of the event loop."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_mlxp.local.server import admission, decoding, metadata, patching, problem, strategic
from airflow_mlxp.local.server.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from airflow_mlxp.local.server.storage import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.storage import Key, Object, Store

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_NAME_ATTEMPTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """The query of a write."""

    dry_run: bool = False
    validation: str = "Warn"
    """``fieldValidation``: Strict, Warn or Ignore."""
    field_manager: str = ""


@dataclass(slots=True)
class Written:
    """What a write made."""

    stored: Stored
    warnings: list[str] = field(default_factory=list)
    created: bool = False


class Registry:
    """Writes to a store as the API server does them: decode, default, validate, admit, store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def existing(self, resource: Resource, key: Key) -> Stored:
        """The object under a key.

        Raises:
            ApiError: NotFound.
        """
        stored = self.store.get(resource, key)
        if stored is None:
            raise problem.not_found(resource.plural, resource.group, key[1])
        return stored

    def create(self, resource: Resource, namespace: str, data: Any, options: WriteOptions) -> Written:
        """Store a new object; ``data`` is the decoded body and is given away.

        Raises:
            ApiError: for everything that the API server refuses.
        """
        warnings = decoding.check(resource, data, options.validation)
        metadata.check_address(resource, data, namespace)
        self._require_namespace(resource, data, namespace)
        prefix = data["metadata"].get("generateName")
        if data["metadata"].get("name") or not prefix:
            return self._create_named(resource, data, options, warnings)
        for attempt in range(_NAME_ATTEMPTS):
            candidate = copy.deepcopy(data)
            candidate["metadata"]["name"] = metadata.generated_name(prefix)
            try:
                return self._create_named(resource, candidate, options, warnings)
            except problem.ApiError as error:
                if error.reason != "AlreadyExists" or attempt == _NAME_ATTEMPTS - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    def _create_named(self, resource: Resource, data: Object, options: WriteOptions, warnings: list[str]) -> Written:
        metadata.prepare_create(resource, data)
        warnings = warnings + admission.admit(self.store, resource, None, data)
        key = data["metadata"].get("namespace", ""), data["metadata"]["name"]
        if self.store.get(resource, key) is not None:
            raise problem.already_exists(resource.plural, resource.group, key[1])
        if options.dry_run:
            del data["metadata"]["resourceVersion"]
            return Written(Stored(resource, data, 0), warnings, created=True)
        stored = self.store.put(resource, data)
        if resource is NAMESPACES:
            self._add_service_account(key[1])
        return Written(stored, warnings, created=True)

    def _require_namespace(self, resource: Resource, data: Object, namespace: str) -> None:
        if not resource.namespaced:
            return
        found = self.store.get(NAMESPACES, ("", namespace))
        if found is None:
            raise problem.not_found(NAMESPACES.plural, "", namespace)
        if "deletionTimestamp" in found.data["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise problem.forbidden(resource.plural, resource.group, data["metadata"].get("name", ""), why, causes=[cause])

    def _add_service_account(self, namespace: str) -> None:
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
        self.create(SERVICE_ACCOUNTS, namespace, account, WriteOptions())

    def update(self, resource: Resource, key: Key, data: Any, options: WriteOptions, *, subresource: str = "") -> Written:
        """Replace an object, or only its status; ``data`` is the decoded body and is given away.

        Raises:
            ApiError: for everything that the API server refuses.
        """
        warnings = decoding.check(resource, data, options.validation)
        metadata.check_address(resource, data, *key)
        return self._write(resource, self.existing(resource, key), data, options, warnings, subresource=subresource)

    def patch(
        self, resource: Resource, key: Key, patch: Any, media_type: str, options: WriteOptions, *, subresource: str = ""
    ) -> Written:
        """Change an object by a patch of one of the four media types.

        Server-side apply creates the object or merges into it: owners of fields are not recorded.

        Raises:
            ApiError: UnsupportedMediaType for a strategic merge patch of a custom resource, Invalid (422) for a JSON patch
                that can't be applied and a result that can't be decoded, and everything that an update is refused for.
        """
        applier = _applier(resource, media_type)
        if applier is not patching.apply_operations and not isinstance(patch, dict):
            why = f"json: cannot unmarshal {decoding.go_name(patch)} into Go value of type map[string]interface {{}}"
            raise problem.bad_request(why if applier is strategic.merge else f"error decoding patch: {why}")
        found = self.store.get(resource, key)
        if found is None and media_type == APPLY_PATCH and not subresource:
            return self.create(resource, key[0], patch, options)
        before = self.existing(resource, key) if found is None else found
        whole = {"kind": resource.kind, "apiVersion": resource.api_version, **before.data}
        data = copy.deepcopy(applier(whole, patch))
        if not isinstance(data, dict) or not isinstance(data.get("metadata"), dict):
            raise problem.patch_not_applicable()
        data["metadata"].setdefault("resourceVersion", str(before.version))
        shown = patching.go_text(patch) if applier is strategic.merge else msgspec.json.encode(data).decode()
        try:
            warnings = decoding.check(resource, data, options.validation)
        except decoding.Undecodable as error:
            raise problem.invalid_object("", "", "", [problem.invalid("patch", shown, error.why)]) from error
        metadata.check_address(resource, data, *key)
        return self._write(resource, before, data, options, warnings, subresource=subresource, patched=True)

    def _write(
        self,
        resource: Resource,
        before: Stored,
        data: Object,
        options: WriteOptions,
        warnings: list[str],
        *,
        subresource: str,
        patched: bool = False,
    ) -> Written:
        metadata.prepare_update(resource, before, data, subresource=subresource, patched=patched)
        warnings = warnings + admission.admit(self.store, resource, before, data, subresource=subresource)
        if data == before.data:
            return Written(before, warnings)
        if options.dry_run:
            return Written(Stored(resource, data, before.version), warnings)
        return Written(self.replace(before, data), warnings)

    def replace(self, before: Stored, data: Object) -> Stored:
        """Store a new version; an object that is being deleted and has no finalizer left is removed by it."""
        meta = data["metadata"]
        stored = self.store.put(before.resource, data)
        ended = "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        if ended and before.data["metadata"].get("finalizers"):
            return self.store.remove(stored)
        return stored

    def bind(self, key: Key, binding: Any) -> None:
        """``pods/binding``: assign a pod to a node.

        Raises:
            ApiError: Conflict, when the pod has a node already or is being deleted, BadRequest for a binding of another
                name, 500 for one without a target.
        """
        node = _bound_node(binding, key[1])
        before = self.existing(PODS, key)
        if before.data["spec"].get("nodeName"):
            why = f'pod {key[1]} is already assigned to node "{before.data["spec"]["nodeName"]}"'
            raise problem.conflict("pods/binding", "", key[1], why)
        if "deletionTimestamp" in before.data["metadata"]:
            raise problem.conflict("pods/binding", "", key[1], f"pod {key[1]} is being deleted, cannot be assigned to a host")
        data = copy.deepcopy(before.data)
        data["spec"]["nodeName"] = node
        conditions = [c for c in data["status"].get("conditions") or () if c.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": metadata.now()}
        data["status"]["conditions"] = [*conditions, scheduled]
        self.store.put(PODS, data)


def accepted_patches(resource: Resource) -> list[str]:
    """Media types of the patches that a resource takes."""
    merging = [MERGE_PATCH] if resource.custom else [MERGE_PATCH, STRATEGIC_MERGE_PATCH]
    return [JSON_PATCH, *merging, APPLY_PATCH]


def _bound_node(binding: Any, pod: str) -> str:
    """The node that a binding names.

    Raises:
        ApiError: BadRequest for a binding of another pod or one that can't be decoded, 500 for one without a target.
    """
    given = binding if isinstance(binding, dict) else {}
    for name, go_type in (("metadata", "ObjectMeta"), ("target", "ObjectReference")):
        if not isinstance(given.get(name), dict | None):
            why = (
                f"json: cannot unmarshal {decoding.go_name(given[name])} into Go struct field Binding.{name} of type v1.{go_type}"
            )
            raise problem.bad_request(f'Binding in version "v1" cannot be handled as a Binding: {why}')
    if (given.get("metadata") or {}).get("name") != pod:
        raise problem.bad_request("name in URL does not match name in Binding object")
    node = (given.get("target") or {}).get("name")
    if not node or not isinstance(node, str):
        raise problem.ApiError(500, "", "target.name: Required value")
    return node


def _applier(resource: Resource, media_type: str) -> Callable[[Any, Any], Any]:
    if media_type not in accepted_patches(resource):
        raise problem.unsupported_media_type(accepted_patches(resource))
    if media_type == JSON_PATCH:
        return patching.apply_operations
    if media_type == MERGE_PATCH or resource.custom:
        return patching.merge
    return strategic.merge
