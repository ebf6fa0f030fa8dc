"""Binds PersistentVolumeClaims: on this platform every claim has a folder, so there is nothing to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.local.client import CLAIMS
from airflow_mlxp.local.controllers.base import Controller

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Object


class ClaimController(Controller):
    """Reports every claim as Bound, with the size it asks for."""

    resource = CLAIMS
    component = "persistentvolume-controller"
    pod_label = ""

    async def reconcile(self, namespace: str, name: str) -> None:
        """Bind one claim that isn't bound."""
        claim = await self.client.find(CLAIMS, namespace, name)
        if claim is None or (claim.get("status") or {}).get("phase") == "Bound":
            return
        await self.client.patch(CLAIMS, namespace, name, {"status": _bound(claim)}, subresource="status")


def _bound(claim: Object) -> Object:
    spec = claim["spec"]
    requests = (spec.get("resources") or {}).get("requests") or {}
    return {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": {"storage": requests.get("storage", "0")}}
