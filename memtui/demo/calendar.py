"""When things happen in the demo: a rhythm of days and weeks, counted back from its end."""

from __future__ import annotations

from datetime import timedelta
from random import Random

DAYS = 60
END_HOUR = 16
"""The hour of the day, in the plan's own calendar, at which the demo ends."""
_END_WEEKDAY = 2
_QUIET_DAYS = frozenset({5, 6})
_HOURS = (1, 1, 1, 1, 1, 1, 2, 6, 12, 16, 17, 14, 9, 12, 16, 16, 13, 8, 4, 3, 2, 2, 1, 1)
"""How busy each hour of a day is, relative to the others."""


def moments(count: int, random: Random, *, nights: bool = True) -> list[timedelta]:
    """Return `count` spans back from the end, the longest first; busier towards the end."""
    slots = [
        (day, hour)
        for day in range(DAYS)
        for hour in range(24)
        if _ago(day, hour) > timedelta(0) and (nights or _HOURS[hour] > 2)
    ]
    weights = [
        _HOURS[hour] * (0.2 if is_quiet(day) else 1.0) * (1.3 - day / 100) for day, hour in slots
    ]
    chosen = random.choices(slots, weights, k=count)
    spans = [_ago(day, hour) - timedelta(seconds=random.randrange(3600)) for day, hour in chosen]
    return sorted((max(span, timedelta(minutes=4)) for span in spans), reverse=True)


def at(day: float, hour: float) -> timedelta:
    """Return the span from `hour` of the day `day` days before the last one to the end."""
    return max(timedelta(days=day, hours=END_HOUR - hour), timedelta(minutes=10))


def is_quiet(day: int) -> bool:
    """Whether little happens on the day `day` days before the last one."""
    return (_END_WEEKDAY - day) % 7 in _QUIET_DAYS


def is_night(ago: timedelta) -> bool:
    """Whether only those work who work at night."""
    hour = (END_HOUR - ago.total_seconds() / 3600) % 24
    return not 6 <= hour < 20


def _ago(day: int, hour: int) -> timedelta:
    return timedelta(days=day, hours=END_HOUR - hour)
