"""ResourceQuota: refuses pods that don't fit and keeps the usage in ``status`` (admission plugin and controller in one)."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import defaults, formats, problem
from airflow_mlxp.local.server.resources import PODS, QUOTAS, RESOURCES

if TYPE_CHECKING:
    from airflow_mlxp.local.server.storage import Change, Object, Store

_COUNTED = {(f"count/{r.plural}.{r.group}" if r.group else f"count/{r.plural}"): r for r in RESOURCES} | {
    r.plural: r
    for r in RESOURCES
    if r.plural in {"services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas", "pods"}
}
_MUST_BE_SPECIFIED = ("cpu", "memory")


def pod_usage(pod: Object) -> dict[str, Decimal]:
    """What a pod counts for, by the names that a quota uses: ``requests.cpu``, ``limits.memory``, ``pods``, ...

    The larger of the sum of all containers and the largest init container counts. A pod that has ended counts for nothing.
    """
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return {}
    usage = {"pods": Decimal(1), "count/pods": Decimal(1)}
    spec = pod.get("spec") or {}
    for kind in ("requests", "limits"):
        running = _total(spec.get("containers") or [], kind)
        for container in spec.get("initContainers") or []:
            for name, amount in _total([container], kind).items():
                running[name] = max(running.get(name, Decimal(0)), amount)
        for name, amount in running.items():
            usage[f"{kind}.{name}"] = amount
            if kind == "requests":
                usage[name] = amount
    return usage


def _total(containers: list[dict[str, Any]], kind: str) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in containers:
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
            total[name] = total.get(name, Decimal(0)) + formats.quantity(amount)
    return total


def _used(store: Store, namespace: str, hard: dict[str, str]) -> dict[str, Decimal]:
    """Usage of the namespace for the names that a quota limits."""
    used = {name: Decimal(0) for name in hard}
    for stored in store.items(PODS, namespace):
        for name, amount in pod_usage(stored.data).items():
            if name in used:
                used[name] += amount
    for name, resource in _COUNTED.items():
        if name in used and resource is not PODS:
            used[name] = Decimal(len(store.items(resource, namespace)))
    return used


def admit(store: Store, pod: Object) -> None:
    """Refuse a pod that a quota of its namespace doesn't allow.

    Raises:
        ApiError: Forbidden, with requested, used and limited amounts.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    wanted = pod_usage(pod)
    for stored in store.items(QUOTAS, namespace):
        hard: dict[str, str] = (stored.data.get("spec") or {}).get("hard") or {}
        if missing := _unspecified(pod, hard):
            raise problem.forbidden(PODS.plural, "", name, f"failed quota: {stored.key[1]}: must specify {missing}")
        used = _used(store, namespace, hard)
        over = sorted(n for n in hard if wanted.get(n) and used[n] + wanted[n] > formats.quantity(hard[n]))
        if over:
            texts = {
                "requested": {n: _shown(wanted[n], hard[n]) for n in over},
                "used": {n: _shown(used[n], hard[n]) for n in over},
                "limited": {n: hard[n] for n in over},
            }
            told = ", ".join(f"{word}: {','.join(f'{n}={v}' for n, v in amounts.items())}" for word, amounts in texts.items())
            raise problem.forbidden(PODS.plural, "", name, f"exceeded quota: {stored.key[1]}, {told}")


def _has_ended(change: Change) -> bool:
    """Whether a change of a pod is one of its phase, so that it may count no more."""
    before = change.before.data.get("status") if change.before is not None else None
    return (before or {}).get("phase") != (change.after.data.get("status") or {}).get("phase")


def _shown(amount: Decimal, like: str) -> str:
    """A sum in the notation of the limit."""
    return formats.canonical_quantity(str(amount), binary=like.endswith("i"))


def _unspecified(pod: Object, hard: dict[str, str]) -> str:
    """Memory and cpu that the quota limits and a container leaves open, as the plugin tells them."""
    missing = []
    for limited in sorted(hard):
        kind, _, name = limited.rpartition(".")
        if name not in _MUST_BE_SPECIFIED or kind not in {"", "requests", "limits"}:
            continue
        open_in = [
            container["name"]
            for container in defaults.containers_of(pod["spec"])
            if name not in ((container.get("resources") or {}).get(kind or "requests") or {})
        ]
        if open_in:
            missing.append(f"{limited} for: {','.join(open_in)}")
    return "; ".join(missing)


class QuotaController:
    """Keeps ``status.hard`` and ``status.used`` of every quota up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._busy = False

    def on_change(self, change: Change) -> None:
        """Recompute the quotas of the namespace in which something changed."""
        resource = change.after.resource
        counted = resource is QUOTAS or change.type != "MODIFIED" or (resource is PODS and _has_ended(change))
        if self._busy or not resource.namespaced or not counted or (resource is QUOTAS and change.type == "DELETED"):
            return
        self._busy = True
        try:
            self._refresh(change.after.key[0])
        finally:
            self._busy = False

    def _refresh(self, namespace: str) -> None:
        for stored in self._store.items(QUOTAS, namespace):
            hard = (stored.data.get("spec") or {}).get("hard") or {}
            used = _used(self._store, namespace, hard)
            status = {"hard": dict(hard), "used": {n: _shown(used[n], hard[n]) for n in hard}}
            if stored.data.get("status") != status:
                data = copy.deepcopy(stored.data)
                data["status"] = status
                self._store.put(QUOTAS, data)
