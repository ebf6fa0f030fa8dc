"""The embedded platform for tests: started in the test's own event loop, on free ports, in a folder of the test.

``async with running_platform(tmp_path) as platform`` or the fixture ``platform`` (import it in a conftest). What tests use:
``platform.kubeconfig`` (a path), ``platform.namespace`` (``p-demo``), ``platform.client`` (``airflow_mlxp.local.client.Client``)
and the helpers below.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from airflow_mlxp.local.client import EVENTS, PODS, Resource
from airflow_mlxp.local.platform import Platform, PlatformSettings
from airflow_mlxp.local.settings import AgentSettings, ControllerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from airflow_mlxp.local.client import Client

QUICK_CONTROLLERS = ControllerSettings(pod_backoff=0.1, retry_backoff_max=0.5)
QUICK_AGENT = AgentSettings(restart_backoff=0.5, image_pull_backoff=0.2, config_retry=0.1, memory_interval=0.1)


class Target(Protocol):
    """What helpers need of a control plane, be it embedded or real."""

    @property
    def client(self) -> Client:
        """A client of the administrator."""

    @property
    def namespace(self) -> str:
        """The namespace that a test works in."""


@contextlib.asynccontextmanager
async def running_platform(folder: Path, **settings: Any) -> AsyncIterator[Platform]:
    """A platform with short back-offs; ``settings`` are those of PlatformSettings, ``gpus`` is the agent's."""
    agent = settings.pop("agent", QUICK_AGENT)
    agent = replace(agent, gpus=settings.pop("gpus", agent.gpus))
    settings.setdefault("controllers", QUICK_CONTROLLERS)
    async with Platform(PlatformSettings(folder=folder, agent=agent, **settings)) as platform:
        yield platform


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    """A platform with one project ``demo`` and a volume ``demo-data``."""
    async with running_platform(tmp_path / "platform", volumes={"demo-data": None}) as running:
        yield running


def a_job(name: str = "train", *command: str, **spec: Any) -> dict[str, Any]:
    """A Job of one container ``main`` that runs a shell command; ``container`` and ``pod`` add fields there."""
    container = {"name": "main", "image": "registry.example/train:1", "command": ["sh", "-c", *(command or ("exit 0",))]}
    container |= spec.pop("container", {})
    pod = {"restartPolicy": "Never", "containers": [container]} | spec.pop("pod", {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}} | spec,
    }


def a_pytorchjob(name: str = "train", *command: str, workers: int = 2, policy: str = "OnFailure", **spec: Any) -> dict[str, Any]:
    """A PyTorchJob of workers that run a shell command; ``container`` and ``master`` (a command) beside fields of its spec."""
    extra = spec.pop("container", {})
    master = spec.pop("master", None)

    def replica(count: int, line: tuple[str, ...]) -> dict[str, Any]:
        container = {"name": "pytorch", "image": "registry.example/train:1", "command": ["sh", "-c", *line]} | extra
        return {"replicas": count, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}

    replicas = {"Worker": replica(workers, command or ("exit 0",))}
    if master is not None:
        replicas["Master"] = replica(1, (master,))
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas} | spec,
    }


async def until(
    platform: Target,
    resource: Resource,
    name: str,
    met: Callable[[dict[str, Any]], Any],
    *,
    namespace: str = "",
    seconds: float = 30.0,
) -> dict[str, Any]:
    """The object as soon as ``met(object)`` is true; an object that doesn't exist yet is ``{}``."""
    found: dict[str, Any] = {}
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = await platform.client.find(resource, namespace or platform.namespace, name) or {}
                if met(found):
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{resource.kind} {name} never got there; its last status: {found.get('status')}") from None


def has(kind: str) -> Callable[[dict[str, Any]], bool]:
    """A condition for ``until``: the object's condition ``kind`` is True."""

    def met(obj: dict[str, Any]) -> bool:
        conditions = (obj.get("status") or {}).get("conditions") or []
        return any(item["type"] == kind and item["status"] == "True" for item in conditions)

    return met


def is_gone(obj: dict[str, Any]) -> bool:
    """A condition for ``until``: there is no such object."""
    return not obj


async def pods_of(platform: Target, name: str, *, namespace: str = "") -> list[dict[str, Any]]:
    """Pods whose first owner is called ``name``, by name."""
    answer = await platform.client.list(PODS, namespace or platform.namespace)
    pods = [pod for pod in answer["items"] if (pod["metadata"].get("ownerReferences") or [{}])[0].get("name") == name]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


async def reasons_of(platform: Target, name: str, *, namespace: str = "") -> dict[str, str]:
    """Message of the newest event of each reason about the object called ``name``."""
    answer = await platform.client.list(EVENTS, namespace or platform.namespace)
    return {item["reason"]: item["message"] for item in answer["items"] if item["involvedObject"]["name"] == name}


async def log_of(platform: Target, pod: str, **query: str) -> str:
    """A pod's log, read as any client reads it."""
    path = f"/api/v1/namespaces/{platform.namespace}/pods/{pod}/log"
    async with platform.client._open("GET", path, params=query) as response:
        text = await response.text()
        assert response.status == 200, text
        return text
