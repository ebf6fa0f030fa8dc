"""One real cluster for all tests of this folder, a project of its own for each."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from airflow_mlxp.cluster import access
from airflow_mlxp.cluster.rest import Client
from tests.real_cluster import build
from tests.real_cluster.cluster import ClusterSettings, RealCluster
from tests.real_cluster.project import Project, new_project
from tests.real_cluster.threads import running_cluster

HERE = Path(__file__).parent
BUILD = "AIRFLOW_MLXP_REAL_CLUSTER"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is in this folder."""
    if HERE in item.path.parents:
        item.add_marker(pytest.mark.real_cluster)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run ours last, so that the cluster runs beside no other test; without the programs skip them, unless they are asked for."""
    ours = [item for item in items if HERE in item.path.parents]
    if not ours or config.option.collectonly:
        return
    items[:] = [item for item in items if HERE not in item.path.parents] + ours
    if os.environ.get(BUILD) == "1":
        build.build_all()
    if reason := build.missing():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"real control plane: {reason}"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """The cluster; its components' logs lie in its folder, which pytest keeps for the last three runs."""
    folder = tmp_path_factory.mktemp("real-cluster") / "cluster"
    with running_cluster(ClusterSettings(folder=folder)) as running:
        yield running


@pytest.fixture
async def platform(cluster: RealCluster, tmp_path: Path) -> AsyncIterator[Project]:
    """A project with a volume ``demo-data``."""
    async with new_project(cluster, tmp_path, volumes=("demo-data",)) as project:
        yield project


@pytest.fixture
async def client(platform: Project) -> AsyncIterator[Client]:
    """The product's client with the rights of the project's user."""
    async with Client(access.from_kubeconfig(path=str(platform.kubeconfig))) as opened:
        yield opened
