"""Arguments that both kinds take: where each lands, and what is said of a wrong one."""

import pytest
from kubernetes import client as k8s

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import job, pytorchjob
from airflow_mlxp.manifests.elastic import Elastic
from airflow_mlxp.manifests.spec import JobSpec, PyTorchJobSpec, SchedulingPolicy, Volume

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["bad"]}]}
            ]
        }
    }
}


def built(**arguments):
    return job.build(JobSpec(**{"image": "i"} | arguments), namespace="p-x")


def distributed(**arguments):
    return pytorchjob.build(PyTorchJobSpec(**{"image": "i", "workers": 2} | arguments), namespace="p-x")


def pod(**arguments):
    return built(**arguments).manifest["spec"]["template"]["spec"]


def main(**arguments):
    return pod(**arguments)["containers"][0]


def of_pod(**fields):
    return {"spec": {"template": {"spec": {"containers": [{"name": "main"}], **fields}}}}


def env(container):
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def test_env_from_is_added_once():
    source = {"secretRef": {"name": "wandb"}}
    manifest = {"spec": {"template": {"spec": {"containers": [{"name": "main", "envFrom": [source]}]}}}}
    other = k8s.V1EnvFromSource(prefix="X_", config_map_ref=k8s.V1ConfigMapEnvSource(name="settings"))
    expected = [source, {"prefix": "X_", "configMapRef": {"name": "settings"}}]
    assert main(manifest=manifest, env_from=[source, other])["envFrom"] == expected


def test_sources_of_variables():
    sources = {
        "KEY": {"secretKeyRef": {"name": "s", "key": "k"}},
        "SIZE": k8s.V1EnvVarSource(config_map_key_ref=k8s.V1ConfigMapKeySelector(name="c", key="k")),
        "NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    }
    found = env(main(env=sources))
    assert found["SIZE"] == {"configMapKeyRef": {"name": "c", "key": "k"}}
    assert found["NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert env(main(env=[k8s.V1EnvVar(name="A", value="1")]))["A"] == "1"


def test_debug_makes_nccl_and_torch_talk_unless_env_says_otherwise():
    found = env(main(debug=True, env={"NCCL_DEBUG": "TRACE"}))
    assert (found["NCCL_DEBUG"], found["TORCH_DISTRIBUTED_DEBUG"], found["TORCH_CPP_LOG_LEVEL"]) == ("TRACE", "DETAIL", "INFO")
    assert env(main(debug="True"))["NCCL_DEBUG"] == "INFO"
    assert "NCCL_DEBUG" not in env(main(debug="False"))


@pytest.mark.parametrize(
    ("given", "volume", "mount"),
    [
        (
            Volume(claim="c", sub_path="a", read_only=True),
            {"persistentVolumeClaim": {"claimName": "c"}},
            {"subPath": "a", "readOnly": True},
        ),
        (Volume(secret="s"), {"secret": {"secretName": "s"}}, {}),
        (
            Volume(secret="s", items={"key": "file"}, default_mode=0o400),
            {"secret": {"secretName": "s", "items": [{"key": "key", "path": "file"}], "defaultMode": 256}},
            {},
        ),
        (Volume(config_map="c"), {"configMap": {"name": "c"}}, {}),
        (Volume(empty_dir=True), {"emptyDir": {}}, {}),
        (Volume(empty_dir="50Gi"), {"emptyDir": {"sizeLimit": "50Gi"}}, {}),
        ({"nfs": {"server": "s", "path": "/p"}}, {"nfs": {"server": "s", "path": "/p"}}, {}),
        (k8s.V1Volume(name="v", empty_dir=k8s.V1EmptyDirVolumeSource(medium="Memory")), {"emptyDir": {"medium": "Memory"}}, {}),
    ],
)
def test_sources_of_volumes(given, volume, mount):
    spec = pod(volumes={"/mnt": given})
    (found,) = spec["volumes"]
    name = found.pop("name")
    assert found == volume
    assert spec["containers"][0]["volumeMounts"] == [{"name": name, "mountPath": "/mnt", **mount}]


def test_two_empty_folders_are_two_volumes():
    spec = pod(volumes={"/a": Volume(empty_dir=True), "/b": Volume(empty_dir=True)})
    assert [volume["name"] for volume in spec["volumes"]] == ["scratch-a", "scratch-b"]


def test_the_size_of_shared_memory():
    assert pod(shared_memory="64Gi")["volumes"] == [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    ]
    assert pod(shared_memory="true")["volumes"] == [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    mounted = {"name": "main", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    manifest = {"spec": {"template": {"spec": {"containers": [mounted], "volumes": [{"name": "shm", "emptyDir": {}}]}}}}
    assert pod(manifest=manifest, shared_memory="1Gi")["volumes"][0]["emptyDir"]["sizeLimit"] == "1Gi"
    assert not {"volumes"} & pod(manifest=manifest, shared_memory=False).keys()


def test_scheduling():
    toleration = {"key": "gpu", "operator": "Exists"}
    found = built(affinity=AFFINITY, priority_class="high", queue_name="team", tolerations=[k8s.V1Toleration(**toleration)])
    spec = found.manifest["spec"]["template"]["spec"]
    assert (spec["affinity"], spec["priorityClassName"], spec["tolerations"]) == (AFFINITY, "high", [toleration])
    assert found.manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    assert "labels" not in found.manifest["spec"]["template"]["metadata"]


def test_security_contexts_are_merged():
    manifest = {"spec": {"template": {"spec": {"containers": [{"name": "main", "securityContext": {"privileged": False}}]}}}}
    spec = pod(
        manifest=manifest,
        security_context={"capabilities": {"add": ["SYS_PTRACE"]}},
        pod_security_context={"runAsNonRoot": True},
        run_as="500:500",
        infiniband=True,
    )
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 500, "runAsGroup": 500}
    context = {"privileged": False, "capabilities": {"add": ["SYS_PTRACE", "IPC_LOCK"]}}
    assert spec["containers"][0]["securityContext"] == context


def test_another_user_on_a_claim_is_warned_of():
    assert built(run_as=1000, volumes={"/data": "claim"}).warnings == (
        "The pods run with runAsUser 1000; high-performance storage expects UID and GID 500:500",
    )
    assert built(run_as=1000).warnings == ()
    assert built(run_as="500", volumes={"/data": "claim"}).warnings == ()


def test_containers_before_and_beside_the_training():
    first, beside = {"name": "fetch", "image": "f"}, k8s.V1Container(name="agent", image="a")
    assert pod(init_containers=[first], sidecars=[beside])["initContainers"] == [
        first,
        {"name": "agent", "image": "a", "restartPolicy": "Always"},
    ]


def test_ports():
    http = {"name": "http", "containerPort": 8080}
    assert main(ports=["29500", http])["ports"] == [{"containerPort": 29500}, http]


def test_a_folder_of_the_node_in_a_manifest_is_warned_of():
    manifest = of_pod(volumes=[{"name": "disk", "hostPath": {"path": "/mnt"}}])
    assert built(manifest=manifest).warnings == (
        "hostPath volumes (disk) tie pods to one node's disk: use PersistentVolumeClaims",
    )


def test_exact_keeps_name_and_references():
    manifest = {"metadata": {"name": "mine"}, "spec": {"elasticPolicy": {"rdzvId": "mine", "rdzvHost": "mine-worker-0"}}}
    found = distributed(manifest=manifest, name="exact")
    assert (found.name_prefix, found.exact_name, found.manifest["metadata"]["name"]) == ("mine", True, "mine")
    assert not distributed(manifest=manifest).exact_name


def test_a_policy_for_failures():
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    assert built(pod_failure_policy=policy).manifest["spec"]["podFailurePolicy"] == policy
    with pytest.raises(InvalidArgument, match=r"restart_policy='OnFailure'.*pod_failure_policy"):
        built(pod_failure_policy=policy, restart_policy="OnFailure")


def test_a_master_of_the_same_template():
    specs = distributed(master=True, manifest={"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {
        "hostNetwork": True, "containers": [{"name": "pytorch"}]}}}}}}).manifest["spec"]["pytorchReplicaSpecs"]  # fmt: skip
    assert specs["Master"]["replicas"] == 1
    assert specs["Master"]["template"] == specs["Worker"]["template"]
    assert specs["Master"]["template"] is not specs["Worker"]["template"]


def test_a_master_of_its_own_kind():
    own = {"template": {"spec": {"containers": [{"name": "pytorch", "args": ["--coordinate"]}]}}}
    specs = distributed(master=own, args=["--train"], gpus=8).manifest["spec"]["pytorchReplicaSpecs"]
    arguments = {kind: replica["template"]["spec"]["containers"][0]["args"] for kind, replica in specs.items()}
    assert arguments == {"Master": ["--coordinate"], "Worker": ["--train"]}
    assert specs["Master"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


def test_a_part_of_a_master_is_enough():
    specs = distributed(master={"template": {"spec": {"nodeSelector": {"a": "b"}}}}).manifest["spec"]["pytorchReplicaSpecs"]
    assert {kind: "nodeSelector" in replica["template"]["spec"] for kind, replica in specs.items()} == {
        "Master": True,
        "Worker": False,
    }


def test_a_master_alone_and_none():
    assert list(distributed(master=True, workers=None).manifest["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    manifest = {"spec": {"pytorchReplicaSpecs": {"Master": {}, "Worker": {}}}}
    assert list(distributed(master=False, manifest=manifest).manifest["spec"]["pytorchReplicaSpecs"]) == ["Worker"]


def test_torchrun_with_a_master_is_warned_of():
    said = "torchrun with a Master replica: the guide recommends workers only, since rank 0 may move"
    assert said in distributed(master=True, command=["torchrun", "train.py"]).warnings
    assert said not in distributed(master=True, command=["python", "train.py"]).warnings


@pytest.mark.parametrize("given", [SchedulingPolicy(min_available="2", queue="q"), {"minAvailable": 2, "queue": "q"}])
def test_gang_scheduling(given):
    policy = distributed(scheduling_policy=given, managed_by="kueue.x-k8s.io/multikueue").manifest["spec"]["runPolicy"]
    assert policy["schedulingPolicy"] == {"minAvailable": 2, "queue": "q"}
    assert policy["managedBy"] == "kueue.x-k8s.io/multikueue"


def test_the_rest_of_elastic():
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    policy = distributed(elastic=Elastic(standalone=True, metrics=[metric], rdzv_conf={"timeout": 900})).manifest["spec"]
    policy = policy["elasticPolicy"]
    assert (policy["standalone"], policy["metrics"]) == (True, [metric])
    assert policy["rdzvConf"] == [{"key": "timeout", "value": "900"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": "two words"}, "image='two words'"),
        ({"image": 3}, "image=3"),
        ({"working_dir": 3}, "working_dir=3"),
        ({"name": 3}, "name=3"),
        ({"name": "exact"}, "name='exact'.*not None"),
        ({"name": "exact", "manifest": {"metadata": {"name": "My_Job"}}}, "'My_Job'"),
        ({"namespace": "P X"}, "namespace='P X'"),
        ({"env": {"A": {"secretKeyref": {}}}}, r"env\['A'\].secretKeyref"),
        ({"env": {"A": {"secretKeyRef": {"name": "s"}}}}, r"env\['A'\].secretKeyRef.*the field key"),
        ({"env_from": {"secretRef": {"name": "s"}}}, "env_from=.*a list"),
        ({"env_from": [{"secret": "s"}]}, r"env_from\[0\].secret='s'.*secretRef"),
        ({"debug": "yes"}, "debug='yes'.*True or False"),
        ({"infiniband": 1}, "infiniband=1"),
        ({"suspend": "no"}, "suspend='no'"),
        ({"volumes": {"/a": {"hostPath": {"path": "/"}}}}, r"volumes\['/a'\].source='hostPath'.*PersistentVolumeClaim"),
        ({"volumes": {"/a": Volume()}}, "exactly one of claim, secret"),
        ({"volumes": {"/a": Volume(claim="a", secret="b")}}, r"\['claim', 'secret'\]"),
        ({"volumes": {"/a": Volume(secret="B_")}}, "'B_'.*a Secret"),
        ({"volumes": {"/a": Volume(claim="a", sub_path=3)}}, "sub_path=3"),
        ({"volumes": {"/a": Volume(empty_dir="much")}}, "empty_dir='much'"),
        ({"volumes": {"/a": {"nfs": {}, "emptyDir": {}}}}, "source"),
        ({"shared_memory": "much"}, "shared_memory='much'"),
        ({"shared_memory": 64}, "shared_memory=64.*'64Gi'"),
        ({"zone": "a zone"}, "zone.*'a zone'"),
        ({"labels": {"team": "a b"}}, r"labels\['team'\]='a b'"),
        ({"labels": {"a b": "c"}}, "labels='a b'"),
        ({"node_selector": {"/x": "c"}}, "node_selector='/x'"),
        ({"affinity": {"nodeAffinty": {}}}, "affinity.nodeAffinty.*nodeAffinity.*overrides"),
        ({"affinity": "x"}, "affinity='x'.*a mapping"),
        ({"tolerations": [{"tolerationSeconds": "60"}]}, r"tolerations\[0\].tolerationSeconds='60'.*a whole number"),
        ({"priority_class": "High"}, "priority_class='High'"),
        ({"queue_name": 3}, "queue_name=3"),
        ({"service_account": ""}, "service_account=''"),
        ({"image_pull_secrets": ["ro_foobar"]}, r"image_pull_secrets\[0\]='ro_foobar'"),
        ({"security_context": {"fsGroup": 5}}, "security_context.fsGroup=5"),
        ({"pod_security_context": {"fsGroup": 5}}, "securityContext.fsGroup=5"),
        ({"run_as": "root"}, "run_as='root'.*'500:500'"),
        ({"run_as": "500:"}, "run_as='500:'"),
        ({"run_as": True}, "run_as=True"),
        ({"ports": 8080}, "ports=8080.*a list"),
        ({"ports": ["http"]}, r"ports\[0\]='http'"),
        ({"ports": [{"port": 1}]}, r"ports\[0\]"),
        ({"init_containers": [{"image": "i"}]}, r"init_containers\[0\].*the field name"),
        ({"init_containers": [{"name": "a"}]}, "image=None.*'a'"),
        ({"sidecars": [{"name": "main", "image": "i"}]}, "containers=.*different name"),
        ({"pod_failure_policy": {"rules": "x"}}, "pod_failure_policy.rules='x'.*a list"),
        ({"completion_mode": "Indexed", "parallelism": 2}, "completions=None"),
        ({"restart_policy": None}, "restart_policy=None"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        built(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"master": "yes"}, "master='yes'"),
        ({"master": {"replicas": 2}}, "master.replicas=2"),
        ({"master": {"template": {"spec": {"container": []}}}}, "master.template.spec.container"),
        (
            {"master": {"template": {"spec": {"containers": [{"name": "pytorch", "$patch": "delete"}]}}}},
            "image=None",
        ),
        ({"elastic": {"min_replicas": 1}}, "elastic=.*Elastic"),
        ({"elastic": Elastic(standalone="yes")}, "elastic.standalone='yes'"),
        ({"elastic": Elastic(metrics={"type": "Resource"})}, "elastic.metrics"),
        ({"elastic": Elastic(rdzv_conf=["a"])}, "elastic.rdzv_conf"),
        ({"elastic": Elastic(rdzv_conf={"a": "b,c"})}, r"elastic.rdzv_conf\['a'\]='b,c'"),
        ({"elastic": Elastic(rdzv_port="http")}, "elastic.rdzv_port='http'"),
        ({"elastic": Elastic(rdzv_id=3)}, "elastic.rdzv_id=3"),
        ({"scheduling_policy": SchedulingPolicy(min_available=0)}, "scheduling_policy.minAvailable=0"),
        ({"scheduling_policy": {"minMember": 2}}, "scheduling_policy.minMember"),
        ({"scheduling_policy": "q"}, "scheduling_policy='q'"),
        ({"managed_by": "me"}, "managed_by='me'"),
    ],
)
def test_refused_of_a_pytorchjob(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        distributed(**arguments)
