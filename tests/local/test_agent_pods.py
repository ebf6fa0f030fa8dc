"""What a user of the node agent sees: logs, exit codes, restarts, volumes, environment, deletion."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

import psutil
import pytest

from airflow_mlxp import errors
from airflow_mlxp.local.agent import process
from airflow_mlxp.local.client import CLAIMS, CONFIG_MAPS, PODS, PYTORCHJOBS, SECRETS
from tests.support.platform import QUICK_AGENT, a_pytorchjob, has, is_gone, log_of, platform, reasons_of, running_platform, until

__all__ = ["platform"]


def a_pod(*command: str, name: str = "one", pod: dict | None = None, **container):
    main = {"name": "main", "image": "registry.example/train:1"} | ({"command": ["sh", "-c", *command]} if command else {})
    spec = {"restartPolicy": "Never", "containers": [main | container]} | (pod or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"team": "vision"}}, "spec": spec}


async def run(platform, body, *, phase=("Succeeded", "Failed")):
    await platform.client.create(PODS, platform.namespace, body)
    return await until(platform, PODS, body["metadata"]["name"], lambda pod: (pod.get("status") or {}).get("phase") in phase)


def main_status(pod):
    return (pod.get("status", {}).get("containerStatuses") or [{}])[0]


def terminated(pod):
    return main_status(pod)["state"]["terminated"]


async def state_of(platform, kind, reason):
    def met(pod):
        statuses = (pod.get("status") or {}).get("containerStatuses") or [{"state": {}}]
        return statuses[0]["state"].get(kind, {}).get("reason") == reason

    return await until(platform, PODS, "one", met)


async def test_exit_code_output_and_conditions(platform):
    pod = await run(platform, a_pod("echo out; echo err >&2; exit 3"))
    assert pod["status"]["phase"] == "Failed"
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (3, "Error")
    assert sorted((await log_of(platform, "one")).splitlines()) == ["err", "out"]
    conditions = {item["type"]: (item["status"], item.get("reason")) for item in pod["status"]["conditions"]}
    assert conditions["Ready"] == ("False", "PodFailed")
    assert conditions["PodScheduled"][0] == "True"
    assert pod["status"]["podIP"] == "127.0.0.1"


async def test_termination_message_is_the_result(platform):
    env = [{"name": "MLXP_RESULT_PATH", "value": "/dev/termination-log"}]
    pod = await run(platform, a_pod("""printf '{"accuracy": 0.97}' > "$MLXP_RESULT_PATH" """, env=env))
    assert terminated(pod)["message"] == '{"accuracy": 0.97}'


async def test_last_log_lines_explain_a_crash(platform):
    body = a_pod("for i in $(seq 100); do echo line $i; done; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
    message = terminated(await run(platform, body))["message"]
    assert message.splitlines()[-1] == "line 100"
    assert len(message.splitlines()) == 80


async def test_memory_limit(platform):
    script = "import time; x = bytearray(80_000_000); time.sleep(60)"
    body = a_pod(resources={"limits": {"memory": "40Mi"}}) | {}
    body["spec"]["containers"][0]["command"] = [sys.executable, "-c", script]
    pod = await run(platform, body)
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (137, "OOMKilled")


async def test_restart_on_failure_keeps_the_log_of_the_instance_before(platform, tmp_path):
    marker = tmp_path / "crashed"
    script = f"echo start; [ -e {marker} ] && sleep 60; touch {marker}; exit 9"
    await platform.client.create(PODS, platform.namespace, a_pod(f"{script}", pod={"restartPolicy": "OnFailure"}))
    pod = await until(platform, PODS, "one", lambda pod: main_status(pod).get("restartCount") == 1)
    assert main_status(pod)["lastState"]["terminated"]["exitCode"] == 9
    await until(platform, PODS, "one", lambda pod: main_status(pod)["ready"])
    assert await log_of(platform, "one", previous="true") == "start\n"


async def test_crash_loop_backs_off(platform):
    await platform.client.create(PODS, platform.namespace, a_pod("exit 1", pod={"restartPolicy": "Always"}))
    pod = await state_of(platform, "waiting", "CrashLoopBackOff")
    assert main_status(pod)["state"]["waiting"]["message"].startswith(
        f"back-off {platform.settings.agent.restart_backoff}s restarting failed container=main pod=one_{platform.namespace}("
    )
    assert pod["status"]["phase"] == "Running"


async def test_init_container_and_sidecar(platform):
    init = [
        {
            "name": "first",
            "image": "i",
            "command": ["sh", "-c", "echo prepared > $OUT"],
            "env": [{"name": "OUT", "value": "/work/x"}],
        },
        {"name": "side", "image": "i", "command": ["sh", "-c", "sleep 60"], "restartPolicy": "Always"},
    ]
    mount = [{"name": "work", "mountPath": "/work"}]
    init[0]["volumeMounts"] = mount
    body = a_pod("cat /work/x", volumeMounts=mount, pod={"initContainers": init, "volumes": [{"name": "work", "emptyDir": {}}]})
    pod = await run(platform, body)
    assert pod["status"]["phase"] == "Succeeded"
    assert await log_of(platform, "one", container="main") == "prepared\n"


async def test_failing_init_container_fails_the_pod(platform):
    pod = await run(platform, a_pod("exit 0", pod={"initContainers": [{"name": "first", "image": "i", "command": ["false"]}]}))
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert main_status(pod)["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_volume_is_a_folder_and_its_mount_path_is_translated(platform):
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "demo-data"}}]}
    body = a_pod("echo 42 > /data/out/model", volumeMounts=[{"name": "data", "mountPath": "/data"}], pod=volumes)
    folder = platform.settings.folder / "volumes" / platform.namespace / "demo-data"
    (folder / "out").mkdir(parents=True)
    assert (await run(platform, body))["status"]["phase"] == "Succeeded"
    assert (folder / "out" / "model").read_text() == "42\n"


async def test_missing_claim_is_unschedulable(platform):
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "no-such"}}]}
    await platform.client.create(PODS, platform.namespace, a_pod("exit 0", pod=volumes))
    pod = await until(platform, PODS, "one", lambda pod: (pod.get("status") or {}).get("conditions"))
    condition = pod["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    assert 'persistentvolumeclaim "no-such" not found' in condition["message"]
    await platform.make_claim(platform.namespace, "no-such")
    await until(platform, PODS, "one", lambda pod: pod["status"]["phase"] == "Succeeded")


async def test_claim_of_a_user_is_bound(platform):
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}, "spec": spec}
    await platform.client.create(CLAIMS, platform.namespace, body)
    claim = await until(platform, CLAIMS, "mine", lambda claim: (claim.get("status") or {}).get("phase") == "Bound")
    assert claim["status"]["capacity"] == {"storage": "5Gi"}


async def test_zone_has_to_be_one_of_the_node(tmp_path):
    zone = {"nodeSelector": {"mlx.navercorp.com/zone": "ai-infra"}}
    elsewhere = {"nodeSelector": {"mlx.navercorp.com/zone": "elsewhere"}}
    async with running_platform(tmp_path, agent=replace(QUICK_AGENT, zones=("ai-infra",))) as platform:
        assert (await run(platform, a_pod("exit 0", pod=zone)))["status"]["phase"] == "Succeeded"
        await platform.client.create(PODS, platform.namespace, a_pod("exit 0", name="two", pod=elsewhere))
        pod = await until(platform, PODS, "two", lambda pod: (pod.get("status") or {}).get("conditions"))
        assert "didn't match Pod's node affinity/selector" in pod["status"]["conditions"][0]["message"]


async def test_gpus_are_counted(tmp_path):
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    async with running_platform(tmp_path, gpus=1) as platform:
        await run(platform, a_pod("sleep 60", resources=gpu), phase=("Running",))
        await platform.client.create(PODS, platform.namespace, a_pod("exit 0", name="two", resources=gpu))
        pod = await until(platform, PODS, "two", lambda pod: (pod.get("status") or {}).get("conditions"))
        assert "1 Insufficient nvidia.com/gpu" in pod["status"]["conditions"][0]["message"]
        assert "FailedScheduling" in await reasons_of(platform, "two")
        first = await platform.client.get(PODS, platform.namespace, "one")
        await platform.client.delete(PODS, first, grace_seconds=0)
        await until(platform, PODS, "two", lambda pod: pod["status"]["phase"] == "Succeeded")


async def test_environment_from_everywhere(platform):
    def make(kind, data):
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "more"}, "data": data}

    await platform.client.create(SECRETS, platform.namespace, make("Secret", {"KEY": "aHVudGVyMg=="}))
    await platform.client.create(CONFIG_MAPS, platform.namespace, make("ConfigMap", {"color": "blue"}))
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "more", "key": "KEY"}}},
        {"name": "BOTH", "value": "$(POD)-$(TEAM)-$(UNKNOWN)-$$(POD)"},
    ]
    source = [{"configMapRef": {"name": "more"}, "prefix": "THE_"}]
    body = a_pod('echo "$SECRET $THE_color $BOTH $(hostname_of)"', env=env, envFrom=source)
    body["spec"]["containers"][0]["command"][-1] = 'echo "$SECRET $THE_color $BOTH"'
    await run(platform, body)
    assert await log_of(platform, "one") == "hunter2 blue one-vision-$(UNKNOWN)-$(POD)\n"


async def test_missing_secret_is_told_and_waited_for(platform):
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "later", "key": "KEY"}}}]
    await platform.client.create(PODS, platform.namespace, a_pod("echo $KEY", env=env))
    pod = await state_of(platform, "waiting", "CreateContainerConfigError")
    assert main_status(pod)["state"]["waiting"]["message"] == 'secret "later" not found'
    with pytest.raises(errors.ClusterError, match="CreateContainerConfigError") as caught:
        await platform.client.request("GET", f"/api/v1/namespaces/{platform.namespace}/pods/one/log")
    assert caught.value.status == 400
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": {"KEY": "v"}}
    await platform.client.create(SECRETS, platform.namespace, secret)
    await until(platform, PODS, "one", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert await log_of(platform, "one") == "v\n"


async def test_image_pull_error(platform):
    await platform.client.create(PODS, platform.namespace, a_pod("exit 0", image="registry.invalid/train:1"))
    pod = await state_of(platform, "waiting", "ImagePullBackOff")
    assert "registry.invalid: no such host" in main_status(pod)["state"]["waiting"]["message"]
    assert pod["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("command", "text"), [(["no-such-program"], '"no-such-program": executable file not found'), ([], "no command")]
)
async def test_program_that_cannot_be_started(platform, command, text):
    body = a_pod()
    body["spec"]["containers"][0] |= {"command": command} if command else {}
    pod = await run(platform, body)
    assert (terminated(pod)["reason"], terminated(pod)["exitCode"]) == ("StartError", 128)
    assert text in terminated(pod)["message"]


async def test_deletion_lets_the_program_save_its_work(platform, tmp_path):
    saved = tmp_path / "saved"
    body = a_pod(f"trap 'echo checkpoint > {saved}; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    await run(platform, body, phase=("Running",))
    await log_ready(platform)
    await platform.client.delete(PODS, await platform.client.get(PODS, platform.namespace, "one"), grace_seconds=20)
    await until(platform, PODS, "one", is_gone)
    assert saved.read_text() == "checkpoint\n"


async def log_ready(platform):
    while "ready" not in await log_of(platform, "one"):
        await until(platform, PODS, "one", lambda pod: pod)


async def test_program_that_ignores_sigterm_is_killed_with_all_it_started(platform):
    script = "import os, signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN); "
    script += (
        "child = subprocess.Popen(['sleep', '61'], start_new_session=True); print('ready', child.pid, flush=True); time.sleep(60)"
    )
    body = a_pod()
    body["spec"]["containers"][0]["command"] = [sys.executable, "-c", script]
    await run(platform, body, phase=("Running",))
    await log_ready(platform)
    child = int((await log_of(platform, "one")).split()[1])
    await platform.client.delete(PODS, await platform.client.get(PODS, platform.namespace, "one"), grace_seconds=1)
    await until(platform, PODS, "one", is_gone)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


async def test_nothing_runs_after_the_platform_has_stopped(tmp_path):
    async with running_platform(tmp_path) as platform:
        await run(platform, a_pod("echo ready $$$$; sleep 62"), phase=("Running",))
        await log_ready(platform)
        pid = int((await log_of(platform, "one")).split()[1])
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)
    assert list((tmp_path / "processes").iterdir()) == []


async def test_workers_find_each_other_by_service_name(platform):
    script = (
        "import os, socket; host, port = os.environ['PET_RDZV_ENDPOINT'].split(':')\n"
        "if os.environ['HOSTNAME'].endswith('-0'):\n"
        "    server = socket.create_server((host, int(port))); peer, _ = server.accept(); print(peer.recv(99).decode())\n"
        "else:\n"
        "    import time\n"
        "    while True:\n"
        "        try: peer = socket.create_connection((host, int(port))); break\n"
        "        except OSError: time.sleep(0.05)\n"
        "    peer.sendall(b'hello from ' + os.environ['HOSTNAME'].encode())\n"
    )
    job = a_pytorchjob("train", elasticPolicy={"rdzvId": "r"}, container={"command": [sys.executable, "-c", script]})
    await platform.client.create(PYTORCHJOBS, platform.namespace, job)
    await until(platform, PYTORCHJOBS, "train", has("Succeeded"))
    await until(platform, PODS, "train-worker-0", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert await log_of(platform, "train-worker-0") == "hello from train-worker-1\n"


async def test_log_is_followed_live(platform):
    await run(platform, a_pod("for i in 1 2 3; do echo $i; sleep 0.2; done"), phase=("Running",))
    text = await log_of(platform, "one", follow="true", timestamps="true")
    stamps = [line.split(" ")[0] for line in text.splitlines()]
    assert [line.split(" ")[1] for line in text.splitlines()] == ["1", "2", "3"]
    assert stamps == sorted(stamps)
    assert all(len(stamp) == 30 for stamp in stamps)


async def test_leftovers_of_a_dead_agent_are_killed(tmp_path):
    sleeper = await asyncio.create_subprocess_exec(
        "sleep", "63", env={**os.environ, process.MARK: "lost"}, start_new_session=True, stdout=asyncio.subprocess.DEVNULL
    )
    process._remember(tmp_path, sleeper.pid, "lost")
    assert await asyncio.to_thread(process.kill_leftovers, tmp_path) == [sleeper.pid]
    assert await sleeper.wait() == -9
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "expected"), [("/data/deep", "/volumes/{namespace}/demo-data/deep"), ("/only/in/the/image", "/root")]
)
async def test_working_directory(platform, folder, expected):
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "demo-data"}}]}
    body = a_pod("pwd", workingDir=folder, volumeMounts=[{"name": "data", "mountPath": "/data"}], pod=volumes)
    await run(platform, body)
    assert (await log_of(platform, "one")).rstrip().endswith(expected.format(namespace=platform.namespace))


async def test_a_pod_past_its_deadline_fails_and_stays(platform):
    pod = await run(platform, a_pod("sleep 60", pod={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}))
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert terminated(pod)["exitCode"] == 143
    assert await log_of(platform, "one") == ""
    await platform.client.delete(PODS, pod)
    await until(platform, PODS, "one", is_gone)
