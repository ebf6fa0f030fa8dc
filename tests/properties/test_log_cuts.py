"""Whatever a log looks like and wherever its streams are cut, each line is carried once and in order."""

from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.cluster.log_cursor import DISORDER, LogCursor, LogPosition, nanoseconds_of, parse
from tests.support.log_server import SECOND, stamp

# Steps of zero give many lines one time; small steps back are those of stdout and stderr.
STEPS = st.lists(
    st.one_of(st.just(0), st.integers(0, 2 * SECOND), st.integers(0, 500), st.integers(-DISORDER // 2, 0)),
    min_size=1,
    max_size=80,
)
CUTS = st.lists(st.integers(0, 40), max_size=12)


def a_log(steps):
    """Raw lines; the lines that went back in time never go below the newest by more than the permitted disorder."""
    newest, lines = 10 * SECOND, []
    for number, step in enumerate(steps):
        moment = newest + step
        newest = max(newest, moment)
        lines.append(f"{stamp(moment)} {number}".encode())
    return lines


def served(lines, since_time):
    """What a kubelet sends: every line that is not before the whole second asked for."""
    since = nanoseconds_of(since_time.encode()) if since_time else 0
    return [parse(line) for line in lines if nanoseconds_of(line.split(b" ")[0]) >= since]


def read(position, lines, upto=None):
    replay = position.replay()
    carried = []
    for line in served(lines, position.since_time)[:upto]:
        for new in replay.news([line]):
            position.accept(new)
            carried.append(int(new.text))
    return carried


@given(STEPS, CUTS)
def test_each_line_once_across_cuts(steps, cuts):
    lines, position, carried = a_log(steps), LogPosition(), []
    for cut in [*cuts, None]:
        carried += read(position, lines, cut)
    assert carried == list(range(len(lines)))


@given(STEPS, CUTS, st.data())
def test_each_line_once_while_the_log_grows(steps, cuts, data):
    lines, position, carried, written = a_log(steps), LogPosition(), [], 0
    for cut in cuts:
        written = data.draw(st.integers(written, len(lines)))
        carried += read(position, lines[:written], cut)
    carried += read(position, lines)
    assert carried == list(range(len(lines)))


@given(st.lists(st.integers(1, 2 * SECOND), min_size=1, max_size=80), st.integers(0, 80))
def test_a_rotated_file_loses_what_is_gone_and_nothing_else(steps, rotated):
    lines, position = a_log(steps), LogPosition()
    carried = read(position, lines, len(lines) // 2)
    expected = carried + list(range(max(len(carried), min(rotated, len(lines))), len(lines)))
    assert carried + read(position, lines[rotated:]) == expected


@given(st.lists(st.integers(0, SECOND), min_size=1, max_size=60).map(sorted), st.integers(0, 60))
def test_a_successor_repeats_and_loses_nothing(moments, cut):
    lines = [f"{stamp(moment)} {number}".encode() for number, moment in enumerate(moments)]
    first = LogPosition()
    carried = read(first, lines, cut)
    assert carried + read(LogPosition(first.cursor), lines) == list(range(len(lines)))


@given(st.integers(0, 10**6), st.integers(0, SECOND - 1), st.integers(-14 * 60, 14 * 60))
def test_zones_and_precision_of_times_make_no_difference(seconds, nanoseconds, minutes):
    from datetime import UTC, datetime, timedelta, timezone

    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    local = moment.astimezone(timezone(timedelta(minutes=minutes)))
    zone = local.isoformat()[-6:]
    fraction = f"{nanoseconds:09d}".rstrip("0")
    text = f"{local:%Y-%m-%dT%H:%M:%S}{'.' + fraction if fraction else ''}{zone}"
    assert nanoseconds_of(text.encode()) == int(moment.timestamp()) * SECOND + nanoseconds


@given(st.binary(max_size=40))
def test_no_bytes_are_refused(line):
    parsed = parse(line)
    assert parsed.nanoseconds is not None or parsed.text == line


def test_no_cursor_of_a_log_without_lines():
    assert LogPosition().cursor == LogCursor()
    assert LogPosition(LogCursor()).since_time == ""
