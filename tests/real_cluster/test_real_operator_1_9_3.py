"""Limits and leftovers with training-operator 1.9.3, which deletes all pods before it sets Failed."""

import pytest

from tests.real_cluster.cluster import ClusterSettings
from tests.real_cluster.threads import running_cluster
from tests.support.following import no_pod_runs, run
from tests.support.platform import a_pytorchjob


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real-cluster-1.9.3") / "cluster"
    with running_cluster(ClusterSettings(folder=folder, training_operator="1.9.3")) as running:
        yield running


async def test_the_limit_of_the_operator_itself_leaves_nothing_running(client):
    manifest = a_pytorchjob("train", "echo attempt; exit 3", workers=2, runPolicy={"backoffLimit": 3})
    followed = await run(client, manifest)
    diagnosis = followed.outcome.diagnosis
    assert (diagnosis.category, diagnosis.exit_code) == ("exit_code", 3), diagnosis
    assert "attempt" in followed.lines("worker-0")
    await no_pod_runs(client)


async def test_a_deadline_of_the_operator_itself(client):
    # The operator looks at the deadline only when something happens: the other worker's end makes it look.
    script = "echo up; case $HOSTNAME in *-1) sleep 3;; *) exec sleep 100;; esac"
    manifest = a_pytorchjob("train", script, workers=2, runPolicy={"activeDeadlineSeconds": 1})
    followed = await run(client, manifest)
    assert not followed.outcome.succeeded
    assert "deadline" in followed.outcome.diagnosis.as_text()
    assert followed.lines("worker-0") == ["up"]
    await no_pod_runs(client)
