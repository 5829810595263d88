"""How far a run has come: told as records are finished, with the rate of the last seconds."""

from __future__ import annotations

from memtui.migration.moving import MigrationProgress, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_record_is_told_but_not_more_often_than_is_of_use() -> None:
    told: list[MigrationProgress] = []
    clock = Clock()
    pace = Pace(told.append, clock)
    pace.total = 1_000
    for _ in range(300):  # 100 records a second
        clock.now += 0.01
        pace.add()
    assert len(told) == 30
    assert [one.done for one in told[:3]] == [1, 11, 21]
    pace.tell()
    assert (told[-1].done, told[-1].failed) == (300, 0)
    assert round(told[-1].rate) == 100
    assert told[-1].seconds_left is not None
    assert round(told[-1].seconds_left) == 7


def test_what_was_there_already_does_not_make_the_rest_look_quick() -> None:
    told: list[MigrationProgress] = []
    clock = Clock()
    pace = Pace(told.append, clock)
    pace.total = 10_100
    pace.add(10_000)  # moved before
    for _ in range(40):
        clock.now += 0.5
        pace.add()
    assert told[-1].done == 10_040
    assert round(told[-1].rate) == 2
    assert round(told[-1].seconds_left or 0) == 30


def test_nobody_says_how_long_it_takes_where_the_total_is_unknown() -> None:
    told: list[MigrationProgress] = []
    clock = Clock()
    pace = Pace(told.append, clock)
    clock.now += 1
    pace.add()
    assert (told[-1].total, told[-1].seconds_left) == (None, None)
