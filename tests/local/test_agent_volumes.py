"""Volumes and paths as a pod sees them, and who may read its log."""

from __future__ import annotations

import ssl

import aiohttp
import pytest

from airflow_mlxp.local.agent.aliases import Aliases
from airflow_mlxp.local.client import CONFIG_MAPS, NODES, PODS, SECRETS
from tests.local.test_agent_pods import a_pod, platform, run
from tests.support.platform import log_of, reasons_of, running_platform, until

__all__ = ["platform"]


def mounted(volume, shell, **container):
    mount = {"name": "v", "mountPath": "/mounted", **container.pop("mount", {})}
    return a_pod(shell, volumeMounts=[mount], pod={"volumes": [{"name": "v", **volume}]}, **container)


async def test_unquoted_mount_paths_work_though_the_platform_lies_under_a_folder_with_blanks(tmp_path):
    async with running_platform(tmp_path / "my work/데이터", volumes={"data": tmp_path / "the data"}) as platform:
        claim = {"persistentVolumeClaim": {"claimName": "data"}}
        await run(platform, mounted(claim, "echo kept > /mounted/x; cat /mounted/x; cd $PWD && pwd"))
        assert (await log_of(platform, "one")).splitlines()[0] == "kept"
        assert (tmp_path / "the data/x").read_text() == "kept\n"
        pod = a_pod("echo why > /dev/termination-log", name="two")
        ended = await run(platform, pod)
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "why\n"


def test_aliases_link_no_more_than_needed_and_leave_nothing(tmp_path):
    aliases = Aliases()
    odd = tmp_path / "a b"
    (odd / "c").mkdir(parents=True)
    assert aliases.plain(tmp_path / "plain") == tmp_path / "plain"
    link = aliases.plain(odd / "c")
    assert (link.name, link.resolve(), " " in str(link)) == ("c", odd / "c", False)
    aliases.close()
    assert not link.parent.parent.exists()


async def test_a_script_of_a_config_map_can_be_the_command(platform):
    script = {"metadata": {"name": "scripts"}, "data": {"run.sh": "#!/bin/sh\necho ran\n"}}
    await platform.client.create(CONFIG_MAPS, platform.namespace, script)
    volume = {"configMap": {"name": "scripts", "defaultMode": 0o755}}
    await run(platform, mounted(volume, "", command=["/mounted/run.sh"]))
    assert await log_of(platform, "one") == "ran\n"


async def test_projected_volume_of_secret_config_map_and_fields(platform):
    await platform.client.create(SECRETS, platform.namespace, {"metadata": {"name": "s"}, "data": {"key": "c2VjcmV0"}})
    config = {"metadata": {"name": "c"}, "data": {"a": "1"}, "binaryData": {"b": "AAE="}}
    await platform.client.create(CONFIG_MAPS, platform.namespace, config)
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    limit = {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}}
    sources = [
        {"secret": {"name": "s", "items": [{"key": "key", "path": "deep/token", "mode": 0o400}]}},
        {"configMap": {"name": "c"}},
        {"downwardAPI": {"items": [field, limit]}},
    ]
    command = "cd /mounted; cat deep/token a labels memory; wc -c < b | tr -d ' '; stat -c %a deep/token a"
    body = mounted({"projected": {"sources": sources}}, command, resources={"limits": {"memory": "512Mi"}})
    await run(platform, body)
    assert (await log_of(platform, "one")).split() == ['secret1team="vision"5122', "400", "644"]


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "gone", "path": "x"}]}}, "references non-existent secret key: gone"),
        ({"persistentVolumeClaim": {"claimName": "unusable"}}, "unusable"),
    ],
)
async def test_a_volume_that_cannot_be_mounted_is_told(tmp_path, volume, message):
    (tmp_path / "file").touch()
    async with running_platform(tmp_path / "platform", volumes={"unusable": tmp_path / "file/unusable"}) as platform:
        await platform.client.create(SECRETS, platform.namespace, {"metadata": {"name": "s"}, "data": {}})
        await platform.client.create(PODS, platform.namespace, mounted(volume, "exit 0"))
        pod = {}
        while "FailedMount" not in pod:
            pod = await reasons_of(platform, "one")
        assert 'MountVolume.SetUp failed for volume "v"' in pod["FailedMount"]
        assert message in pod["FailedMount"]


async def test_a_sub_path_is_made(platform):
    claim = {"persistentVolumeClaim": {"claimName": "demo-data"}}
    await run(platform, mounted(claim, "echo x > /mounted/y && echo done", mount={"subPath": "runs/1"}))
    assert await log_of(platform, "one") == "done\n"


async def test_logs_are_given_to_the_api_server_only(platform):
    await run(platform, a_pod("echo private"))
    node = await platform.client.get(NODES, "", "local")
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://127.0.0.1:{port}/containerLogs/{platform.namespace}/one/main", ssl=context)
    assert await log_of(platform, "one") == "private\n"


async def test_a_cordoned_or_tainted_node_takes_no_pod(platform):
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    await platform.client.patch(NODES, "", "local", {"spec": {"unschedulable": True, "taints": [taint]}})

    def refused(why):
        return lambda pod: why in str((pod.get("status") or {}).get("conditions"))

    await platform.client.create(PODS, platform.namespace, a_pod("exit 0"))
    await until(platform, PODS, "one", refused("were unschedulable"))
    await platform.client.patch(NODES, "", "local", {"spec": {"unschedulable": None}})
    await until(platform, PODS, "one", refused("had untolerated taint {gpu: yes}"))
    tolerations = [{"key": "gpu", "operator": "Equal", "value": "yes"}]
    pod = await run(platform, a_pod("exit 0", name="two", pod={"tolerations": tolerations}))
    assert pod["status"]["phase"] == "Succeeded"
