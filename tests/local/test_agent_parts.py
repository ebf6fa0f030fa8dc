"""Parts of the node agent that need no platform: log files, translated paths and names, quantities, images."""

from __future__ import annotations

import asyncio
import json
import os
from decimal import Decimal

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.local import images
from airflow_mlxp.local.agent import quantity
from airflow_mlxp.local.agent.environment import expand
from airflow_mlxp.local.agent.logs import PART_LIMIT, LogFile, ReadOptions, stamp
from airflow_mlxp.local.agent.names import NameMap, PortTable
from airflow_mlxp.local.agent.paths import PathMap
from airflow_mlxp.local.agent.process import Command, ContainerProcess, _belongs


async def text_of(log, **options):
    return b"".join([block async for block in log.read(ReadOptions(**options))])


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_log_gives_back_what_was_written_however_it_was_cut(tmp_path_factory, pieces):
    log = LogFile(tmp_path_factory.mktemp("log") / "0.log")
    stream = log.stream("stdout")
    for piece in pieces:
        stream.feed(piece)
    stream.end()
    log.close()
    assert asyncio.run(text_of(log)) == b"".join(pieces)


async def test_long_line_has_one_time(tmp_path):
    log = LogFile(tmp_path / "0.log")
    log.stream("stdout").feed(b"x" * (3 * PART_LIMIT + 5) + b"\nshort\n")
    first, second = (await text_of(log, timestamps=True)).splitlines()
    assert first[31:] == b"x" * (3 * PART_LIMIT + 5)
    assert second[31:] == b"short"
    log.close()


@pytest.mark.parametrize(("count", "expected"), [(0, b""), (2, b"8\n9\n"), (50, b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n")])
async def test_tail(tmp_path, count, expected):
    log = LogFile(tmp_path / "0.log")
    log.stream("stdout").feed(b"".join(b"%d\n" % number for number in range(10)))
    assert await text_of(log, tail_lines=count) == expected
    log.close()


async def test_since_and_byte_limit(tmp_path):
    log = LogFile(tmp_path / "0.log")
    log.append(f"{stamp(1_000_000_000)} stdout F early\n{stamp(2_500_000_000)} stderr F late\n".encode())
    assert await text_of(log, since=stamp(2_000_000_000)) == b"late\n"
    assert await text_of(log, limit_bytes=7) == b"early\nl"
    log.close()


async def test_follower_ends_with_the_container(tmp_path):
    log = LogFile(tmp_path / "0.log")
    reader = asyncio.create_task(text_of(log, follow=True))
    stream = log.stream("stdout")
    for number in range(3):
        stream.feed(b"%d\n" % number)
        await asyncio.sleep(0)
    log.close()
    assert await reader == b"0\n1\n2\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/v"),
        ("/data/x", "/v/x"),
        ("--out=/data/x", "--out=/v/x"),
        ("python /data/a.py --log '/data/log'", "python /v/a.py --log '/v/log'"),
        ("/bin:/data/bin", "/bin:/v/bin"),
        ("/data/sub/x", "/w/x"),
        ("/database", "/database"),
        ("/data-1", "/data-1"),
        ("/mnt/data", "/mnt/data"),
        ("s3://bucket/data", "s3://bucket/data"),
        ("./data", "./data"),
    ],
)
def test_mount_path_is_replaced_as_a_whole(text, expected):
    assert PathMap({"/data": "/v", "/data/sub/": "/w"}).translate(text) == expected


@given(st.text())
def test_text_without_a_mount_path_stays(text):
    assert PathMap({"/data": "/v"}).translate(text.replace("/data", "")) == text.replace("/data", "")


def a_pod(**labels):
    return {"metadata": {"namespace": "p-demo", "labels": labels}}


def test_service_names_become_loopback_ports():
    ports = PortTable()
    names = NameMap(a_pod(**{"training.kubeflow.org/job-name": "train"}), ["db"], ports)
    port = ports.port("p-demo", "train-worker-0", 23456)
    assert names.translate("train-worker-0:23456") == f"127.0.0.1:{port}"
    assert names.translate("tcp://train-worker-0.p-demo.svc.cluster.local:23456") == f"tcp://127.0.0.1:{port}"
    assert names.translate("db") == "127.0.0.1"
    assert names.translate("a train-worker-0 in a sentence") == "a train-worker-0 in a sentence"
    assert names.translate("other-worker-0:23456") == "other-worker-0:23456"
    env = names.translate_environment({"MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456", "POD": "train-worker-0"})
    assert env == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports.port("p-demo", "train-master-0", 23456)),
        "POD": "train-worker-0",  # a pod's own name, by fieldRef
    }
    ports.forget("p-demo", "train")
    assert ports._ports == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", "2"), ("500m", "0.5"), ("16Gi", str(16 * 2**30)), ("1e3", "1000"), ("1k", "1000"), ("1.5Mi", "1572864")],
)
def test_quantities(text, value):
    assert quantity.parse(text) == Decimal(value)


def test_references_in_variables():
    assert expand("$(A)/$(B) $$(A) $A", {"A": "x"}) == "x/$(B) $(A) $A"


def test_first_row_that_fits_counts(tmp_path):
    table = tmp_path / "images.json"
    rows = [{"name": "reg/torch:*", "path": "/opt/torch", "env": {"PET_TEE": 1}, "clean_env": True}, {"name": "reg/*"}]
    table.write_text(json.dumps({"images": rows}))
    found = images.ImageTable.from_file(table).find("reg/torch:2")
    environment = found.environment()
    assert environment["PATH"].startswith("/opt/torch:")
    assert environment["PET_TEE"] == "1"
    assert "VIRTUAL_ENV" not in environment


def test_wrong_row_is_named(tmp_path):
    table = tmp_path / "images.yaml"
    table.write_text("- name: a\n  paths: /x\n")
    with pytest.raises(InvalidArgument, match="paths"):
        images.ImageTable.from_file(table)


def test_image_option(tmp_path):
    (tmp_path / "bin").mkdir()
    assert images.parse_option(f"reg/a:1={tmp_path}") == images.Image(name="reg/a:1", path=(tmp_path / "bin",))
    with pytest.raises(InvalidArgument, match="a folder that exists"):
        images.parse_option("reg/a:1=/no/such/folder")


@pytest.mark.parametrize(
    ("reference", "fails"), [("a.invalid/x:1", True), ("a.invalid:5000/x", True), ("invalid/x", False), ("x", False)]
)
def test_only_registries_under_invalid_cannot_be_pulled(reference, fails):
    assert (images.pull_error(reference) is not None) is fails


@pytest.mark.parametrize("rounds", range(12))
async def test_a_process_that_is_cancelled_while_it_starts_is_ended(tmp_path, rounds):
    command = Command(argv=["sleep", "600"], env={"PATH": os.environ["PATH"]}, folder=tmp_path)
    mark = f"cancelled-{rounds}"
    starting = asyncio.create_task(
        ContainerProcess.start(command, mark=mark, log=LogFile(tmp_path / "log"), records=tmp_path / "records")
    )
    for _ in range(rounds):  # each round of the loop is another step of the start
        await asyncio.sleep(0)
    starting.cancel()
    done, _ = await asyncio.wait([starting], timeout=20)
    assert done
    if starting.cancelled():
        assert [process for process in psutil.process_iter() if _belongs(process, mark, -1)] == []
    else:
        await starting.result().aclose()
