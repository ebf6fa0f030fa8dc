from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.cluster.backoff import Backoff

seconds = st.floats(min_value=0.001, max_value=1000)
units = st.floats(min_value=0, max_value=1, exclude_max=True)


@given(seconds, seconds, st.lists(units, min_size=1, max_size=80))
def test_pauses_double_up_to_the_maximum_and_are_never_less_than_half(initial, maximum, randoms):
    source = iter(randoms)
    backoff = Backoff(initial=initial, maximum=maximum, random_unit=lambda: next(source))
    for n, _ in enumerate(randoms):
        ceiling = min(maximum, initial * 2 ** min(n, 64))
        assert ceiling / 2 <= backoff.next() <= ceiling
    assert backoff.failures == len(randoms)


@given(seconds, seconds, st.floats(min_value=0, max_value=10_000), units, st.integers(0, 20))
def test_never_earlier_than_the_server_asked_and_little_later(initial, maximum, retry_after, unit, failures):
    backoff = Backoff(initial=initial, maximum=maximum, random_unit=lambda: unit)
    backoff.failures = failures
    pause = backoff.next(retry_after)
    assert retry_after <= pause <= max(maximum, retry_after + 1)


@given(st.integers(1, 5000))
def test_progress_starts_anew_and_many_failures_do_not_overflow(failures):
    backoff = Backoff(initial=1, maximum=30, random_unit=lambda: 0)
    for _ in range(failures):
        backoff.next()
    backoff.reset()
    assert backoff.next() == 0.5
    backoff.failures = 10**9
    assert backoff.next() == 15
