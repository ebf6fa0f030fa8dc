"""The hook for users' own tasks, on the embedded platform."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_mlxp import MLXPHook
from airflow_mlxp.local.platform import Platform
from tests.support.platform import running_platform

pytestmark = pytest.mark.platform


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    async with running_platform(tmp_path) as running:
        yield running


@contextmanager
def closing(hook: MLXPHook) -> Iterator[None]:
    """Close what the kubernetes client leaves open."""
    yield
    pools = hook.api_client.rest_client.pool_manager.pools
    for key in list(pools.keys()):
        pools[key].close()


def connections(platform: Platform) -> dict[str, dict[str, Any]]:
    server = platform.server
    return {
        "path": {"extra": {"kube_config_path": str(platform.kubeconfig)}},
        "content": {"extra": {"kube_config": platform.kubeconfig.read_text()}},
        "host": {"host": server.url, "password": server.token, "extra": {"ca": server.ca_pem, "project": "demo"}},
        "provider": {"conn_type": "kubernetes", "extra": {"kube_config_path": str(platform.kubeconfig), "namespace": "p-demo"}},
    }


@pytest.mark.parametrize("name", ["path", "content", "host", "provider"])
async def test_every_kind_of_connection_reaches_the_server(
    platform: Platform, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({"conn_type": "mlxp"} | connections(platform)[name]))
    hook = MLXPHook("c")
    assert hook.get_namespace() == "p-demo"
    with closing(hook):
        works, message = await asyncio.to_thread(hook.test_connection)
        assert works, message
        assert "p-demo" in message
        jobs = await asyncio.to_thread(hook.batch_v1_client.list_namespaced_job, "p-demo")
        assert jobs.items == []


async def test_a_wrong_token_is_told(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    given = connections(platform)["host"] | {"password": "wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({"conn_type": "mlxp"} | given))
    hook = MLXPHook("c")
    with closing(hook):
        assert await asyncio.to_thread(hook.test_connection) == (False, "401 Unauthorized for Jobs in namespace p-demo")


async def test_a_mistake_in_the_connection_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({"conn_type": "mlxp", "extra": {"kubeconfig": "x"}}))
    works, message = MLXPHook("c").test_connection()
    assert not works
    assert "kube_config_path" in message
