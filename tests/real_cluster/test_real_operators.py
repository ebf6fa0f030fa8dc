"""Both operators in ``dag.test()`` against the real API server, with the rights of a project's user."""

import pytest

from airflow_mlxp.local.client import JOBS, PODS
from tests.airflow import test_dag_test as embedded
from tests.real_cluster.project import Project
from tests.real_cluster.seed import USER
from tests.support.airflow_home import AirflowHome, connection_environment


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    made = AirflowHome(tmp_path_factory.mktemp("airflow"))
    made.migrate()
    return made


@pytest.mark.airflow
async def test_scenarios(home: AirflowHome, platform: Project) -> None:
    connection = connection_environment(platform.kubeconfig, platform.name)
    run = await home.run("scenarios", embedded.SCENARIOS, kubeconfig=platform.kubeconfig, **connection)
    jobs = (await platform.client.list(JOBS, platform.namespace))["items"]
    pods = (await platform.client.list(PODS, platform.namespace))["items"]
    embedded.check(run, jobs, pods, namespace=platform.namespace)
    user = f"system:serviceaccount:{platform.namespace}:{USER}"
    refused = [entry for entry in platform.requests(user=user) if entry["responseStatus"]["code"] == 403]
    assert refused == [], "the user's role has all that the operators need"
