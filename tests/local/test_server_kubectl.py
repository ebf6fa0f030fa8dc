"""The everyday verbs of the real kubectl against the embedded API server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil

import pytest
import yaml

from airflow_mlxp.local.server.authorization import Denied
from tests.local.conftest import JOBS, PODS, PYTORCH_JOBS, a_job, a_pod, a_pytorchjob

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: its way of speaking is not tested")
MERGE_PATCH = "application/merge-patch+json"


class Kubectl:
    """Runs kubectl with a kubeconfig and a home of its own."""

    def __init__(self, kubeconfig, home) -> None:
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(kubeconfig)}

    async def start(self, *arguments):
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            KUBECTL, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment
        )

    async def __call__(self, *arguments, stdin=None, code=0):
        process = await self.start(*arguments)
        async with asyncio.timeout(60):
            out, err = await process.communicate(yaml.safe_dump(stdin).encode() if stdin else None)
        assert process.returncode == code, (arguments, out.decode(), err.decode())
        return out.decode() + err.decode()


@pytest.fixture
def kubectl(server, tmp_path):
    return Kubectl(server.write_kubeconfig(tmp_path / "kubeconfig", "p-demo"), tmp_path)


def test_the_kubeconfig_is_private(server, tmp_path):
    assert server.write_kubeconfig(tmp_path / "config").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("body", "path"), [(a_job(), JOBS), (a_pytorchjob(), PYTORCH_JOBS)], ids=["Job", "PyTorchJob"])
async def test_apply_creates_then_patches_then_finds_nothing_to_do(kubectl, http, server, body, path):
    plural = path.rpartition("/")[2]
    assert "created" in await kubectl("apply", "-f", "-", stdin=body)
    body["metadata"]["labels"] = {"team": "vision"}
    assert "configured" in await kubectl("apply", "-f", "-", stdin=body)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=body)
    assert (await http("GET", f"{path}/train")).body["metadata"]["labels"]["team"] == "vision"
    patches = [record for record in server.audit if record.method == "PATCH"]
    assert [(record.code, record.path) for record in patches] == [(200, f"{path}/train")]
    shown = json.loads(await kubectl("get", plural, "train", "-o", "json"))
    assert shown["metadata"]["name"] == "train"
    assert "train" in await kubectl("describe", plural, "train")
    assert "deleted" in await kubectl("delete", plural, "train")
    assert "NotFound" in await kubectl("get", plural, "train", code=1)


async def test_apply_is_strict(kubectl):
    body = a_pytorchjob()
    body["spec"]["foo"] = 1
    said = await kubectl("apply", "-f", "-", stdin=body, code=1)
    assert 'strict decoding error: unknown field "spec.foo"' in said


async def test_tables(kubectl, http):
    await http.create(JOBS, a_job())
    lines = (await kubectl("get", "jobs")).splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert lines[1].split()[:3] == ["train", "Running", "0/1"]
    assert "registry.example/train:1" in await kubectl("get", "jobs", "-o", "wide")
    await http.create(PYTORCH_JOBS, a_pytorchjob())
    status = {"status": {"conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]}}
    await http("PATCH", f"{PYTORCH_JOBS}/train/status", status, media_type=MERGE_PATCH)
    lines = (await kubectl("get", "pytorchjobs")).splitlines()
    assert lines[0].split() == ["NAME", "STATE", "AGE"]
    assert lines[1].split()[:2] == ["train", "Running"]
    await http.create(PODS, a_pod())
    crashing = {"name": "main", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    await http("PATCH", f"{PODS}/worker/status", {"status": {"containerStatuses": [crashing]}}, media_type=MERGE_PATCH)
    lines = (await kubectl("get", "pods")).splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["worker", "0/1", "CrashLoopBackOff", "3"]
    everything = await kubectl("get", "all")
    assert "pod/worker" in everything
    assert "job.batch/train" in everything


async def test_get_watch_prints_changes(kubectl, http, server):
    await http.create(JOBS, a_job())
    process = await kubectl.start("get", "jobs", "-w")
    async with asyncio.timeout(60):
        assert (await process.stdout.readline()).split()[0] == b"NAME"
        assert (await process.stdout.readline()).split()[1] == b"Running"
        done = {"status": {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}}
        await http("PATCH", f"{JOBS}/train/status", done, media_type=MERGE_PATCH)
        assert (await process.stdout.readline()).split()[1:3] == [b"Complete", b"1/1"]
        process.kill()
        await process.wait()
        process._transport.close()


async def test_wait_returns_when_the_condition_is_met(kubectl, http, server):
    await http.create(PYTORCH_JOBS, a_pytorchjob())
    waiting = asyncio.ensure_future(kubectl("wait", "--for=condition=Succeeded", "pytorchjob/train", "--timeout=30s"))
    async with asyncio.timeout(30):
        while not any("watch=true" in record.query for record in server.audit):
            await asyncio.wait({waiting}, timeout=0.05)
    done = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    await http("PATCH", f"{PYTORCH_JOBS}/train/status", done, media_type=MERGE_PATCH)
    assert "condition met" in await waiting


async def test_describe_and_events_show_events(kubectl, http):
    pod = await http.create(PODS, a_pod())
    event = {
        "metadata": {"name": "worker.1"},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": "p-demo",
            "name": "worker",
            "uid": pod["metadata"]["uid"],
        },
        "reason": "FailedScheduling",
        "message": "0/1 nodes are available",
        "type": "Warning",
        "count": 2,
        "firstTimestamp": pod["metadata"]["creationTimestamp"],
        "lastTimestamp": pod["metadata"]["creationTimestamp"],
        "source": {"component": "default-scheduler"},
    }
    await http.create("/api/v1/namespaces/p-demo/events", event)
    for arguments in (("describe", "pod", "worker"), ("events",), ("get", "events"), ("events", "--for", "pod/worker")):
        assert "0/1 nodes are available" in await kubectl(*arguments)


async def test_small_objects_can_be_created(kubectl, http):
    await kubectl("create", "secret", "generic", "key", "--from-literal=token=abc")
    await kubectl(
        "create", "secret", "docker-registry", "registry", "--docker-server=r", "--docker-username=u", "--docker-password=p"
    )
    await kubectl("create", "configmap", "settings", "--from-literal=a=b")
    await kubectl("create", "quota", "normal-quota", "--hard=requests.nvidia.com/gpu=8,pods=10")
    await kubectl("create", "namespace", "p-other")
    await kubectl("create", "job", "hello", "--image=x:1", "--", "sh", "-c", "echo hi")
    template = (await http("GET", f"{JOBS}/hello")).body["spec"]["template"]["spec"]
    assert template["containers"][0]["command"] == ["sh", "-c", "echo hi"]
    assert "kubernetes.io/dockerconfigjson" in await kubectl("get", "secrets")
    assert "requests.nvidia.com/gpu" in await kubectl("describe", "quota")
    assert "p-other" in await kubectl("get", "namespaces")
    await kubectl("label", "configmap", "settings", "team=vision")
    await kubectl("annotate", "configmap", "settings", "note=x")
    reply = await http("GET", "/api/v1/namespaces/p-demo/configmaps/settings")
    assert reply.body["metadata"]["labels"] == {"team": "vision"}


async def test_may_i(kubectl):
    assert "yes" in await kubectl("auth", "can-i", "create", "jobs")


async def test_server_side_apply_and_dry_run(kubectl, http):
    await kubectl("apply", "-f", "-", "--dry-run=server", stdin=a_job())
    assert (await http("GET", JOBS)).names == []
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", stdin=a_job())


async def test_logs_are_followed(kubectl, http, kubelet):
    await http.create(PODS, a_pod())
    await http("POST", f"{PODS}/worker/binding", {"metadata": {"name": "worker"}, "target": {"name": "node"}})
    process = await kubectl.start("logs", "-f", "worker")
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"first\n"
        kubelet.go_on.set()
        assert (await process.communicate())[0] == b"second\n"
    assert process.returncode == 0


async def test_can_i_honours_what_is_denied(kubectl, server):
    assert await kubectl("auth", "can-i", "create", "jobs") == "yes\n"
    server.denied.update({Denied("kubernetes-admin", "create", "jobs"), Denied("kubernetes-admin", "get", "pods/log")})
    assert await kubectl("auth", "can-i", "create", "jobs.batch", code=1) == "no\n"
    assert await kubectl("auth", "can-i", "get", "pods", "--subresource=log", code=1) == "no\n"
    assert await kubectl("auth", "can-i", "get", "pods") == "yes\n"
    assert "incomplete" in await kubectl("auth", "can-i", "--list")
    assert "kubernetes-admin" in await kubectl("auth", "whoami")


@pytest.mark.parametrize("kind", ["Deployment", "PytorchJob"])
async def test_an_unknown_kind_is_named(kubectl, kind):
    body = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "x"}}
    assert f'no matches for kind "{kind}" in version "kubeflow.org/v1"' in await kubectl("apply", "-f", "-", stdin=body, code=1)


async def test_explain_knows_the_fields_of_jobs(kubectl):
    assert "backoffLimit" in await kubectl("explain", "job.spec")
    assert "pytorchReplicaSpecs" in await kubectl("explain", "pytorchjob.spec")
    assert "describes the fields of Job and PyTorchJob only" in await kubectl("explain", "pod")


@pytest.mark.parametrize("command", [("exec", "worker", "--", "ls"), ("attach", "worker"), ("port-forward", "worker", "8080")])
async def test_streams_into_a_pod_are_refused_in_plain_words(kubectl, http, command):
    await http.create(PODS, a_pod())
    await http("PATCH", f"{PODS}/worker/status", {"status": {"phase": "Running"}}, media_type=MERGE_PATCH)
    assert "is not served: pods of the embedded platform are processes of its host" in await kubectl(*command, code=1)


async def test_a_drain_empties_the_node(kubectl, http):
    await http.create("/api/v1/nodes", {"metadata": {"name": "node"}})
    await http.create(PODS, a_pod(spec={"nodeName": "node"}))
    await http("PATCH", f"{PODS}/worker/status", {"status": {"phase": "Succeeded"}}, media_type=MERGE_PATCH)
    assert "node/node drained" in await kubectl("drain", "node", "--force")
    assert (await http("GET", f"{PODS}/worker")).code == 404


async def test_a_running_sidecar_is_counted_and_hides_nothing(kubectl, http):
    sidecar = {"name": "proxy", "image": "i", "restartPolicy": "Always"}
    await http.create(PODS, a_pod(spec={"initContainers": [sidecar]}))
    running = {"ready": True, "started": True, "restartCount": 1, "state": {"running": {}}}
    status = {
        "phase": "Running",
        "initContainerStatuses": [{"name": "proxy", **running}],
        "containerStatuses": [{"name": "main", **running}],
    }
    await http("PATCH", f"{PODS}/worker/status", {"status": status}, media_type=MERGE_PATCH)
    assert (await kubectl("get", "pods")).splitlines()[1].split()[:4] == ["worker", "2/2", "Running", "2"]
    crashing = {"name": "proxy", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    await http("PATCH", f"{PODS}/worker/status", {"status": {"initContainerStatuses": [crashing]}}, media_type=MERGE_PATCH)
    assert (await kubectl("get", "pods")).splitlines()[1].split()[2:4] == ["Init:CrashLoopBackOff", "3"]


async def test_a_field_that_no_controller_follows_is_warned_of(kubectl):
    body = a_job(
        spec={"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "template": {"spec": a_pod()["spec"]}}
    )
    assert "Warning: spec.backoffLimitPerIndex: the embedded platform doesn't follow this field" in await kubectl(
        "create", "-f", "-", stdin=body
    )
