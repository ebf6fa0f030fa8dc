import asyncio
import resource
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.cluster import access, rest
from airflow_mlxp.cluster.settings import Settings
from airflow_mlxp.cluster.streams import LineSplitter
from tests.support.api_server import Reply, Stream, scripted_server

LOG = "/api/v1/namespaces/ns/pods/p/log"


def split(chunks, limit=1 << 20):
    splitter = LineSplitter(limit=limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + list(splitter.end())


def cut(data, places):
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(ends)]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=20))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data, places):
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert split(cut(data, places)) == expected


@given(st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b" ")), max_size=10), st.integers(40, 120))
def test_no_line_is_longer_than_the_limit_and_a_cut_is_told(lines, limit):
    got = split([b"".join(line + b"\n" for line in lines)], limit)
    assert len(got) == len(lines)
    for line, shown in zip(lines, got, strict=True):
        assert len(shown) <= limit
        assert shown == line or shown.endswith(b" [line cut: %d bytes]" % len(line))


def test_only_newlines_end_lines():
    text = "epoch 10%\r 20%\r 100%\nloss \x0c0.1 \x85 \u2028 end\n".encode()
    assert split([text]) == text.split(b"\n")[:2]


@pytest.fixture
async def server():
    async with scripted_server() as server:
        yield server


async def test_a_line_of_64_megabytes_costs_little_memory(server):
    piece = b"x" * (1 << 20)
    server.on("GET", LOG, Stream([*[piece] * 64, b"\nnext\n"]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with rest.Client(access.from_fields(server=server.url)) as client:
        lines = [line async for line in client.logs("ns", "p", "c", follow=True)]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    assert lines[0].startswith(b"xxxx")
    assert lines[0].endswith(b" [line cut: 67108864 bytes]")
    assert lines[1:] == [b"next"]


async def test_a_silent_log_ends_without_its_half_line(server):
    server.on("GET", LOG, Stream([b"one\ntw"], end="hang"))
    began = time.monotonic()
    async with rest.Client(access.from_fields(server=server.url), settings=Settings(log_inactivity=0.2)) as client:
        assert [line async for line in client.logs("ns", "p", "c", follow=True)] == [b"one"]
    assert 0.2 <= time.monotonic() - began < 5


async def test_a_consumer_that_leaves_early_closes_its_connection(server):
    closed = asyncio.Event()

    class Pieces:
        def __iter__(self):
            try:
                while True:
                    yield b"line\n" * 1000
            finally:
                closed.set()

    server.on("GET", LOG, Stream(Pieces()))
    async with rest.Client(access.from_fields(server=server.url)) as client:
        lines = client.logs("ns", "p", "c", follow=True)
        assert await anext(lines) == b"line"
        await lines.aclose()
        server.on("GET", "/version", Reply(body={"gitVersion": "v1"}))
        assert await client.get("/version") == {"gitVersion": "v1"}
        async with asyncio.timeout(10):
            await closed.wait()
