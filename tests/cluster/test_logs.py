"""The log of one container: every line once and in order, whatever happens to the stream."""

import asyncio

import pytest

from airflow_mlxp.cluster.log_cursor import LogCursor
from airflow_mlxp.cluster.logs import LogFollower, LogLimits, tail
from airflow_mlxp.cluster.settings import Settings
from tests.support.log_server import SECOND, Container, log_server, stamp

FAST = LogLimits(look_interval=0.02, first_delay=0.005, longest_delay=0.02, failure_delay=0.02, end_quiet=0.1, end_grace=2.0)


def a_follower(client, **changes):
    known = {"namespace": "p-demo", "pod": "train-worker-0", "container": "pytorch", "replica": "worker-0", "limits": FAST}
    return LogFollower(client, **{**known, **changes})


async def texts(follower, is_running, **given):
    return [line.text async for batch in follower.batches(is_running, **given) for line in batch.lines]


def numbered(count, *, same=(), first=0):
    """Lines 1 ms apart; those in ``same`` share one time."""
    moments = (min(same) if number in same else number for number in range(first, first + count))
    return [(moment * 1_000_000, b"line %d" % number) for number, moment in enumerate(moments, first)]


@pytest.mark.parametrize("cut", ["close", "reset"])
async def test_every_line_once_though_the_stream_is_cut_after_every_seventh(cut):
    # Each new stream repeats the last second or two, so a cut that counted repetitions would never get on.
    container = Container(instances=[[]], cut=cut)
    lines = numbered(300, same=range(100, 150))
    async with log_server(container) as client:
        follower = a_follower(client)

        async def write():
            for count, line in enumerate(lines):
                container.write(*line)
                if count % 7 == 6:
                    container.cut_after = len(container.instances[0])
                    container.tell()
                    await asyncio.sleep(0)
            container.cut_after = 0
            container.end()

        writer = asyncio.create_task(write())
        assert await texts(follower, lambda: container.running) == [text.decode() for _, text in lines]
        await writer
    assert follower.gaps == []


async def test_cut_inside_a_second_goes_on_behind_the_last_line():
    container = Container(instances=[[(SECOND // 10 * tenth, b"%d" % tenth) for tenth in (1, 5)]], cut_after=2)
    container.write(SECOND // 10 * 9, b"9")
    async with log_server(container) as client:
        running = iter([True, True, True])
        container.running = False

        def is_running():
            container.cut_after = 0 if len(container.requests) > 1 else 2
            return next(running, False)

        assert await texts(a_follower(client), is_running) == ["1", "5", "9"]


async def test_a_pod_that_is_gone_is_not_asked_for_by_its_name():
    container = Container(instances=[[(1, b"one")]], running=False)
    async with log_server(container) as client:
        follower = a_follower(client)

        def is_there():
            return not container.requests  # deleted after the first stream, and another pod has its name

        found = await texts(follower, is_there, exists=is_there)
    assert found == ["one"]
    assert follower.gaps == []
    assert len(container.requests) == 1


async def test_a_stream_that_the_server_ends_is_opened_anew_while_the_container_runs():
    container = Container(instances=[numbered(3)], cut_after=3)
    async with log_server(container) as client:
        batches = a_follower(client).batches(lambda: container.running)
        assert [line.text for line in (await anext(batches)).lines] == ["line 0", "line 1", "line 2"]
        container.cut_after = 0
        container.write(5 * SECOND, b"late")
        assert [line.text for line in (await anext(batches)).lines] == ["late"]
        container.end()
        assert [batch async for batch in batches] == []


async def test_a_successor_goes_on_where_the_cursor_says():
    container = Container(instances=[numbered(10, same=range(2, 8))])
    container.end()
    async with log_server(container) as client:
        first = a_follower(client)
        assert await texts(first, lambda: False) == [f"line {number}" for number in range(10)]
        assert first.cursor == LogCursor(stamp(9_000_000), 1)
        successor = a_follower(client, cursor=LogCursor(stamp(2_000_000), 4))
        assert await texts(successor, lambda: False) == ["line 6", "line 7", "line 8", "line 9"]


async def test_the_rest_of_an_instance_comes_before_the_lines_of_the_next():
    container = Container(instances=[numbered(4)], cut_after=2)
    async with log_server(container) as client:
        restarts = 0
        batches = a_follower(client).batches(lambda: container.running, restarts=lambda: restarts)
        assert [line.text for line in (await anext(batches)).lines] == ["line 0", "line 1"]
        container.restart()
        container.write(20 * SECOND, b"second instance")
        restarts = 1
        container.cut_after = 0
        assert [line.text for line in (await anext(batches)).lines] == ["line 2", "line 3"]
        assert [line.text for line in (await anext(batches)).lines] == ["second instance"]
        container.end()
        assert [batch async for batch in batches] == []


async def test_the_rest_of_an_instance_is_read_though_the_next_one_says_nothing():
    container = Container(instances=[numbered(4)], cut_after=2)
    async with log_server(container) as client:
        batches = a_follower(client).batches(lambda: container.running)
        await anext(batches)
        container.restart()
        container.end()
        assert [line.text async for batch in batches for line in batch.lines] == ["line 2", "line 3"]


async def test_instances_that_nobody_could_read_are_told():
    container = Container(instances=[numbered(2), numbered(1, first=10), numbered(1, first=20), numbered(1, first=30)])
    container.end()
    async with log_server(container) as client:
        follower = a_follower(client)
        assert await texts(follower, lambda: False, restarts=lambda: 3) == ["line 20", "line 30"]
    assert [gap.reason for gap in follower.gaps] == [
        "the container was restarted 3 times meanwhile; only the last two instances have logs"
    ]


async def test_a_container_that_waits_to_start_is_waited_for():
    waiting = (400, 'container "pytorch" in pod "train-worker-0" is waiting to start: PodInitializing')
    container = Container(instances=[numbered(1)], refusals=[waiting] * 3)
    container.end()
    async with log_server(container) as client:
        follower = a_follower(client)
        assert await texts(follower, lambda: len(container.requests) < 5) == ["line 0"]
    assert follower.gaps == []


async def test_failures_are_ridden_over():
    container = Container(instances=[numbered(2)], refusals=[(500, "no route to the kubelet")] * 3)
    container.end()
    async with log_server(container) as client:
        follower = a_follower(client)
        assert await texts(follower, lambda: False) == ["line 0", "line 1"]
    assert follower.gaps == []


async def test_failures_that_stay_end_in_a_gap():
    container = Container(instances=[numbered(2)], refusals=[(500, "no route to the kubelet")] * 10_000)
    async with log_server(container) as client:
        follower = a_follower(client, limits=LogLimits(look_interval=0.02, first_delay=0.01, failure_delay=0.02, end_grace=0.5))
        assert await texts(follower, lambda: False) == []
    (gap,) = follower.gaps
    assert (gap.replica, gap.since) == ("worker-0", "")
    assert "no route to the kubelet" in gap.reason


@pytest.mark.parametrize("code", [403, 404])
async def test_a_log_that_is_refused_is_a_gap_and_no_error(code):
    container = Container(refusals=[(code, "refused")])
    async with log_server(container) as client:
        follower = a_follower(client)
        assert await texts(follower, lambda: True) == []
    assert "refused" in follower.gaps[0].reason


async def test_a_pod_that_goes_after_its_log_has_been_read_leaves_no_gap():
    container = Container(instances=[numbered(2)], cut_after=2)
    async with log_server(container) as client:
        follower = a_follower(client)
        batches = follower.batches(lambda: True)
        await anext(batches)
        container.refusals = [(404, "pod not found")]
        assert [batch async for batch in batches] == []
    assert follower.gaps == []


async def test_a_stream_that_does_not_end_with_its_container_is_left():
    container = Container(instances=[numbered(2)], ends_streams=False)
    async with log_server(container) as client:
        follower = a_follower(client)
        batches = follower.batches(lambda: container.running)
        await anext(batches)
        container.running = False
        async with asyncio.timeout(1.5):
            assert [batch async for batch in batches] == []
    assert follower.gaps == []


@pytest.mark.looptime
async def test_a_log_that_is_too_long_for_the_time_after_the_end_is_a_gap():
    class Long:
        async def logs(self, *_, previous, **__):
            for number in range(0 if previous else 5000):
                yield f"{stamp(number)} x".encode()

    follower = a_follower(Long(), limits=LogLimits(end_grace=60))
    seen = 0
    async for batch in follower.batches(lambda: False):
        seen += len(batch.lines)
        await asyncio.sleep(10)  # virtual time
    assert 1000 <= seen <= 1400
    assert [gap.since for gap in follower.gaps] == [follower.cursor.time]
    assert follower.gaps[0].reason == "not read within 60 s of the container's end"


async def test_form_of_lines():
    odd = [b"", b"10%\r20%\r30%", b"caf\xe9", b"a\xe2\x80\xa8b\x0cc", b"x" * 500]
    container = Container(instances=[[(number, text) for number, text in enumerate(odd)]])
    container.end()
    async with log_server(container, settings=Settings(max_line_bytes=100)) as client:
        *short, long = await texts(a_follower(client), lambda: False)
    assert short == ["", "10%\r20%\r30%", "caf\ufffd", "a\u2028b\x0cc"]
    assert len(long) < 100
    assert "cut" in long


async def test_lines_that_arrive_together_come_together():
    container = Container(instances=[numbered(450)])
    container.end()
    async with log_server(container) as client:
        sizes = [len(batch.lines) async for batch in a_follower(client).batches(lambda: False)]
    assert sum(sizes) == 450
    assert max(sizes) <= 200
    assert len(sizes) <= 4


async def test_a_log_that_the_kubelet_has_lost_is_a_gap():
    container = Container(instances=[[]])

    async def lost(*_, **__):
        yield b"unable to retrieve container logs for containerd://1234"

    async with log_server(container) as client:
        client.logs = lost
        follower = a_follower(client)
        assert await texts(follower, lambda: False) == []
    assert follower.gaps[0].reason.startswith("unable to retrieve")


async def test_a_slow_consumer_slows_the_stream_down():
    class Endless:
        given = 0

        async def logs(self, *_, previous, **__):
            while not previous:
                self.given += 1
                yield f"{stamp(self.given)} x".encode()

    client = Endless()
    batches = a_follower(client).batches(lambda: True)
    taken = len((await anext(batches)).lines)
    for _ in range(50):
        await asyncio.sleep(0)
    assert client.given <= taken + 200
    await batches.aclose()


async def test_tail_gives_the_last_lines_and_never_raises():
    container = Container(instances=[numbered(3)], refusals=[(500, "no")])
    container.end()
    async with log_server(container) as client:
        given = {"namespace": "p-demo", "pod": "train-worker-0", "container": "pytorch", "lines": 2}
        assert await tail(client, **given) == ()
        assert [line.text for line in await tail(client, **given)][-1] == "line 2"
    assert container.requests[-1]["tailLines"] == "2"
