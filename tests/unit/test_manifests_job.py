"""Job manifests: what golden files don't show."""

import pytest

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import job
from airflow_mlxp.manifests.spec import JobSpec, Volume


def build(**arguments):
    return job.build(JobSpec(**{"image": "i"} | arguments), namespace="p-x")


def pod(**arguments):
    return build(**arguments).manifest["spec"]["template"]["spec"]


def container(**arguments):
    return pod(**arguments)["containers"][0]


def test_command_only_when_given():
    assert "command" not in container(args=["x"])
    assert container(command=["python", "x.py"])["command"] == ["python", "x.py"]


def test_the_manifests_namespace_comes_before_the_connections_and_the_arguments_before_both():
    manifest = {"metadata": {"namespace": "p-own"}}
    assert build().manifest["metadata"]["namespace"] == "p-x"
    assert build(manifest=manifest).manifest["metadata"]["namespace"] == "p-own"
    assert build(manifest=manifest, namespace="p-arg").manifest["metadata"]["namespace"] == "p-arg"
    with pytest.raises(InvalidArgument, match="namespace"):
        job.build(JobSpec(image="i"), namespace="")


def test_a_manifest_with_other_containers_keeps_them():
    manifest = {"spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "p"}, {"name": "main", "image": "m"}]}}}}
    proxy, main = pod(manifest=manifest, image="new", cpu=1)["containers"]
    assert proxy == {"name": "proxy", "image": "p"}
    assert (main["image"], main["resources"]) == ("new", {"limits": {"cpu": "1"}})


def test_the_result_limit_shrinks_with_the_number_of_containers():
    names = ["main", "a", "b"]
    containers = [{"name": name, "image": "i"} for name in names]
    manifest = {"spec": {"template": {"spec": {"containers": containers, "initContainers": [{"name": "init", "image": "i"}]}}}}
    assert {"name": "MLXP_RESULT_LIMIT", "value": "3072"} in container(manifest=manifest, image=None)["env"]


def test_the_users_own_result_path_stays():
    env = container(env={"MLXP_RESULT_PATH": "/elsewhere"})["env"]
    assert [entry["value"] for entry in env if entry["name"] == "MLXP_RESULT_PATH"] == ["/elsewhere"]


def test_gpus_none_keeps_and_zero_removes_those_of_the_manifest():
    manifest = {
        "spec": {"template": {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}
    }
    assert container(manifest=manifest)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert container(manifest=manifest, gpus=0)["resources"] == {"limits": {}}


def test_one_claim_at_two_paths_is_one_volume():
    spec = pod(volumes={"/a": "data", "/b": Volume(claim="data", sub_path="b")})
    assert spec["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "data", "mountPath": "/a"},
        {"name": "data", "mountPath": "/b", "subPath": "b"},
    ]


def test_a_claim_whose_name_is_taken_by_another_volume():
    spec = pod(volumes={"/data": "shared-memory"}, shared_memory=True)
    names = [volume["name"] for volume in spec["volumes"]]
    assert len(set(names)) == 2
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == names


def test_a_replaced_mount_takes_its_volume_along_unless_somebody_else_mounts_it():
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("old", "both")]
    main = {"name": "main", "volumeMounts": [{"name": "old", "mountPath": "/old"}, {"name": "both", "mountPath": "/both"}]}
    other = {"name": "other", "image": "i", "volumeMounts": [{"name": "both", "mountPath": "/both"}]}
    manifest = {"spec": {"template": {"spec": {"containers": [main, other], "volumes": claims}}}}
    spec = pod(manifest=manifest, volumes={"/old": "new", "/both": "new"})
    assert [volume["name"] for volume in spec["volumes"]] == ["both", "new"]


def test_shared_memory_that_the_manifest_mounts_stays():
    mounted = {"name": "main", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    manifest = {
        "spec": {"template": {"spec": {"containers": [mounted], "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]}}}
    }
    assert pod(manifest=manifest, shared_memory=True)["volumes"] == [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]


def test_none_removes_what_the_manifest_has_too():
    manifest = {"spec": {"ttlSecondsAfterFinished": 5, "backoffLimit": 3}}
    spec = build(manifest=manifest, ttl_seconds_after_finished=None, backoff_limit=None).manifest["spec"]
    assert not {"ttlSecondsAfterFinished", "backoffLimit"} & spec.keys()
    assert build(backoff_limit=None).notes == (
        "Starts at most: 1 (tries of the task) x Kubernetes' own number (pods, by backoffLimit)",
    )


def test_the_name_of_argument_or_manifest_is_reported_as_prefix():
    assert build().name_prefix == ""
    assert build(manifest={"metadata": {"name": "mine"}}).name_prefix == "mine"
    named = build(manifest={"metadata": {"name": "mine"}}, name="My Job")
    assert (named.name_prefix, named.manifest["metadata"]["name"]) == ("My Job", "my-job")


def test_infiniband_adds_the_capability_to_the_users_own():
    manifest = {
        "spec": {
            "template": {"spec": {"containers": [{"name": "main", "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}]}}
        }
    }
    assert container(manifest=manifest, infiniband=True)["securityContext"] == {
        "capabilities": {"add": ["SYS_PTRACE", "IPC_LOCK"]}
    }
    assert "securityContext" not in container()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": None}, "image=None.*container 'main'"),
        ({"command": "python x.py"}, "command='python x.py'.*'bash', '-c'"),
        ({"args": [True]}, r"args\[0\]=True"),
        ({"env": {"A": True}}, r"env\['A'\]='bool'"),
        ({"env": {"A": None}}, r"env\['A'\]='NoneType'"),
        ({"env": {"1A": "x"}}, "env='1A'"),
        ({"env": "A=1"}, "env='str'"),
        ({"env": [{"value": "x"}]}, r"env\[0\]"),
        ({"env": ["A=1"]}, r"env\[0\]='str'"),
        ({"cpu": "four"}, "cpu='four'"),
        ({"memory": 16}, "memory=16.*give the unit"),
        ({"gpus": -1}, "gpus=-1"),
        ({"gpus": 0.5}, "gpus=0.5"),
        ({"volumes": {"data": "pvc"}}, "volumes='data'.*absolute"),
        ({"volumes": {"/data": "My_PVC"}}, r"volumes\['/data'\]='My_PVC'"),
        ({"volumes": {"/data": 3}}, r"volumes\['/data'\]=3"),
        ({"image_pull_policy": "always"}, "image_pull_policy='always'.*Always, IfNotPresent, Never"),
        ({"restart_policy": "Always"}, "restart_policy='Always'.*Never, OnFailure"),
        ({"labels": {"airflow-mlxp/task": "x"}}, "labels='airflow-mlxp/task'"),
        ({"labels": {"a": 1}}, r"labels\['a'\]=1.*quote it"),
        ({"annotations": ["a"]}, "annotations="),
        ({"node_selector": {"a": False}}, r"node_selector\['a'\]=False"),
        ({"backoff_limit": -1}, "backoff_limit=-1"),
        ({"ttl_seconds_after_finished": "soon"}, "ttl_seconds_after_finished='soon'"),
        ({"active_deadline_seconds": 0}, "active_deadline_seconds=0"),
        ({"completions": 0}, "completions=0"),
        ({"completion_mode": "indexed"}, "completion_mode='indexed'.*Indexed, NonIndexed"),
        ({"manifest": {"spec": {"template": {"spec": {"securityContext": {"fsGroup": 500}}}}}}, "securityContext.fsGroup=500"),
        ({"manifest": {"spec": []}}, "spec=.*a mapping"),
        ({"manifest": {"spec": {"template": {"spec": {"containers": {}}}}}}, "containers=.*a list of mappings"),
        (
            {
                "manifest": {
                    "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}}}
                }
            },
            "containers=.*different name",
        ),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        build(**arguments)


def test_a_value_of_the_environment_is_in_no_error():
    with pytest.raises(InvalidArgument) as raised:
        build(env={"PASSWORD": ["hunter2"]})
    assert "hunter2" not in str(raised.value)


def test_grace_seconds_reach_the_pods_and_leave_a_manifests_own_alone():
    manifest = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 600}}}}
    assert "terminationGracePeriodSeconds" not in pod()
    assert pod(manifest=manifest)["terminationGracePeriodSeconds"] == 600
    assert pod(manifest=manifest, grace_seconds="5")["terminationGracePeriodSeconds"] == 5
    with pytest.raises(InvalidArgument, match="grace_seconds"):
        pod(grace_seconds=-1)
