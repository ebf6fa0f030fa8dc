"""PyTorchJob manifests: elastic policy, restarts, processes, refusals."""

import pytest

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import pytorchjob
from airflow_mlxp.manifests.elastic import Elastic
from airflow_mlxp.manifests.spec import PyTorchJobSpec


def build(retries=0, **arguments):
    return pytorchjob.build(PyTorchJobSpec(**{"image": "i", "workers": 2} | arguments), namespace="p-x", retries=retries)


def spec(**arguments):
    return build(**arguments).manifest["spec"]


def worker(built):
    return built.manifest["spec"]["pytorchReplicaSpecs"]["Worker"]


def of_replicas(**fields):
    """A manifest with these replica specs, each with a training container."""
    template = {"spec": {"containers": [{"name": "pytorch"}]}}
    return {"spec": {"pytorchReplicaSpecs": {kind: {"template": template} | values for kind, values in fields.items()}}}


@pytest.mark.parametrize(
    ("arguments", "policy", "restarts", "backoff_limit"),
    [
        ({}, "OnFailure", 3, 9),
        ({"retries": 2}, "Never", 0, 3),
        ({"retries": 2, "elastic": Elastic(min_replicas=1)}, "OnFailure", 3, 9),
        ({"retries": 2, "elastic": Elastic(max_replicas=4)}, "OnFailure", 3, 17),
        ({"retries": 2, "elastic": Elastic(min_replicas=2, max_replicas=2, max_restarts=5)}, "Never", 0, 3),
        ({"container_restarts": 0}, "Never", 0, 3),
        ({"container_restarts": "5", "retries": 1}, "OnFailure", 5, 13),
        ({"container_restarts": None, "retries": 1}, "OnFailure", None, None),
        ({"container_restarts": 0, "elastic": Elastic(min_replicas=1)}, "OnFailure", 0, 3),
        ({"restart_policy": "Never"}, "Never", 0, 3),
        ({"restart_policy": "ExitCode", "retries": 1}, "ExitCode", 3, 9),
        ({"backoff_limit": 7}, "OnFailure", 3, 7),
        ({"backoff_limit": None}, "OnFailure", 3, None),
        ({"manifest": of_replicas(Worker={"restartPolicy": "Never"})}, "Never", 0, 3),
        ({"manifest": of_replicas(Worker={"restartPolicy": "Always"}), "retries": 3}, "Always", 3, 9),
    ],
)
def test_who_starts_a_failed_replica_again(arguments, policy, restarts, backoff_limit):
    built = build(**arguments)
    assert worker(built)["restartPolicy"] == policy
    assert built.container_restarts == restarts
    assert built.manifest["spec"]["runPolicy"].get("backoffLimit") == backoff_limit


def test_the_note_multiplies_what_can_start_again():
    assert build(retries=2, elastic=Elastic(max_restarts=3)).notes == (
        "Starts at most: 3 (tries of the task) x 1 (container starts of each replica) x 4 (starts by torchrun)",
    )
    assert "any number (container starts" in build(container_restarts=None).notes[0]


def test_without_a_master_there_is_always_an_elastic_policy():
    expected = {"rdzvId": "pytorchjob", "rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 2, "maxRestarts": 0}
    assert spec()["elasticPolicy"] == expected


def test_with_a_master_only_when_asked_for():
    manifest = of_replicas(Master={}, Worker={})
    assert "elasticPolicy" not in spec(manifest=manifest)
    built = build(manifest=manifest, elastic=Elastic())
    assert built.manifest["spec"]["elasticPolicy"]["minReplicas"] == 2
    assert built.warnings == ("torchrun with a Master replica: the guide recommends workers only, since rank 0 may move",)
    assert built.manifest["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] == 1


@pytest.mark.parametrize(
    ("given", "bounds"),
    [({"maxReplicas": 2}, (2, 2)), ({"minReplicas": 2}, (2, 2)), ({"minReplicas": 1, "maxReplicas": 3}, (1, 3))],
)
def test_a_bound_that_a_manifest_leaves_out_is_the_other_one(given, bounds):
    policy = spec(manifest={"spec": {"elasticPolicy": given}})["elasticPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"]) == bounds


def test_every_field_of_elastic():
    elastic = Elastic(
        min_replicas=1,
        max_replicas=3,
        max_restarts=2,
        rdzv_backend="etcd",
        rdzv_id="r",
        rdzv_host="h",
        rdzv_port=2379,
        rdzv_conf={"ttl": "5"},
    )
    assert spec(elastic=elastic)["elasticPolicy"] == {
        "minReplicas": 1, "maxReplicas": 3, "maxRestarts": 2, "rdzvBackend": "etcd", "rdzvId": "r", "rdzvHost": "h",
        "rdzvPort": 2379, "rdzvConf": [{"key": "ttl", "value": "5"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "processes"),
    [
        ({}, "1"),
        ({"gpus": 8}, "8"),
        ({"gpus": 8, "nproc_per_node": 4}, "4"),
        ({"nproc_per_node": "gpu"}, "gpu"),
        ({"gpus": 0}, "1"),
    ],
)
def test_processes_of_a_node(arguments, processes):
    assert spec(**arguments)["nprocPerNode"] == processes


def test_the_old_field_for_processes_is_brought_to_the_new_one():
    manifest = {"spec": {"elasticPolicy": {"nProcPerNode": 8}}}
    built = build(manifest=manifest)
    assert built.manifest["spec"]["nprocPerNode"] == "8"
    assert "nProcPerNode" not in built.manifest["spec"]["elasticPolicy"]
    assert built.notes[0] == "elasticPolicy.nProcPerNode is deprecated: sent as spec.nprocPerNode: '8'"
    assert spec(manifest=manifest, nproc_per_node=2)["nprocPerNode"] == "2"


def test_of_both_fields_for_processes_the_new_one_stays():
    built = build(manifest={"spec": {"nprocPerNode": "4", "elasticPolicy": {"nProcPerNode": 8}}})
    assert built.manifest["spec"]["nprocPerNode"] == "4"
    assert "nProcPerNode" not in built.manifest["spec"]["elasticPolicy"]
    assert "elasticPolicy.nProcPerNode 8 is left out" in built.warnings[0]


def test_one_replica_is_a_case_for_a_job():
    built = build(workers=1)
    assert built.warnings == ("A PyTorchJob with one replica: the guide recommends a Job for a single node",)
    assert "securityContext" not in worker(built)["template"]["spec"]["containers"][0]
    alone = build(workers=1, infiniband=True)
    assert worker(alone)["template"]["spec"]["containers"][0]["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}


def test_shared_memory_can_be_left_out():
    assert "volumes" not in worker(build(shared_memory=False))["template"]["spec"]


def test_variables_that_the_operator_overwrites_are_told():
    assert build(env={"PET_TEE": "1", "NCCL_DEBUG": "INFO"}).warnings == ()
    assert build(env={"PET_NNODES": "9"}).warnings == (
        "The training operator overwrites PET_NNODES: use elastic and nproc_per_node instead",
    )


def test_the_init_container_of_the_operator_counts_for_the_result_limit():
    containers = [{"name": name, "image": "i"} for name in ("pytorch", "a", "b")]
    template = {"spec": {"containers": containers}}
    manifest = {"spec": {"pytorchReplicaSpecs": {"Master": {"template": template}, "Worker": {"template": template}}}}
    found = build(manifest=manifest, workers=1).manifest["spec"]["pytorchReplicaSpecs"]
    limits = {
        kind: entry["value"]
        for kind, replica in found.items()
        for entry in replica["template"]["spec"]["containers"][0]["env"]
        if entry["name"] == "MLXP_RESULT_LIMIT"
    }
    assert limits == {"Master": "4096", "Worker": "3072"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": None}, "workers=None"),
        ({"workers": 0}, "workers=0.*at least 1"),
        ({"workers": "many"}, "workers='many'"),
        ({"elastic": Elastic(min_replicas=3, max_replicas=2)}, "elastic.min_replicas=3.*at most max_replicas=2"),
        ({"elastic": Elastic(min_replicas=3)}, "elastic.min_replicas=3"),
        ({"elastic": Elastic(min_replicas=3, max_replicas=5)}, "workers=2.*3 to 5"),
        ({"elastic": Elastic(min_replicas=0)}, "elastic.min_replicas=0"),
        ({"elastic": Elastic(rdzv_backend="nccl")}, "elastic.rdzv_backend='nccl'.*c10d"),
        ({"elastic": {"max_restarts": 3}}, r"elastic=.*an Elastic\(\.\.\.\)"),
        ({"manifest": {"spec": {"elasticPolicy": {"minReplicas": "2", "maxReplicas": [3]}}}}, "elasticPolicy.maxReplicas"),
        ({"manifest": of_replicas(Master={}), "workers": None, "elastic": Elastic()}, "elastic=.*worker replicas"),
        ({"manifest": of_replicas(Master={"replicas": 2}), "workers": None}, "Master.replicas=2"),
        ({"manifest": of_replicas(worker={})}, "pytorchReplicaSpecs=.*only Master and Worker"),
        (
            {
                "manifest": {
                    "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main"}]}}}}}
                }
            },
            "rename",
        ),
        ({"nproc_per_node": 0}, "nproc_per_node=0"),
        ({"clean_pod_policy": "none"}, "clean_pod_policy='none'.*None, Running, All"),
        ({"container_restarts": -1}, "container_restarts=-1"),
        ({"restart_policy": "never"}, "restart_policy='never'"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        build(**arguments)
