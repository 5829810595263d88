"""The demo's own time."""

from datetime import UTC, datetime, timedelta

from memtui.demo.player import DemoClock

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_what_is_timed_takes_as_long_as_it_was_told() -> None:
    clock = DemoClock(START)
    clock.move_to(START + HOUR, takes=timedelta(milliseconds=12))
    began = clock.timer()
    assert clock.now() == START + HOUR
    assert round(clock.timer() - began, 6) == 0.012
    again = clock.timer()
    assert round(clock.timer() - again, 6) == 0.012


def test_time_never_goes_back() -> None:
    clock = DemoClock(START)
    clock.move_to(START + HOUR, takes=timedelta(0))
    clock.move_to(START, takes=timedelta(0))
    assert clock.now() == START + HOUR
