"""Hours, days, weeks and months of a person's time zone, across its clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from memtui.analytics.engine import quoted


class Bucket(StrEnum):
    """How long a stretch of time is. A week begins on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def bucket_of(bucket: Bucket, zone: str) -> str:
    """Return the SQL of the bucket that `started_at` is in.

    It is the bucket's first local date, or, for an hour, the moment it began: on the day the
    clocks go back one hour of the day comes twice.
    """
    local = f"timezone({quoted(zone)}, started_at)"
    if bucket is Bucket.HOUR:
        return f"epoch_us(started_at - ({local} - date_trunc('hour', {local})))"
    return f"date_trunc('{bucket}', {local})::DATE"


def begin_of(found: date | int, zone: str) -> datetime:
    """Return when the bucket that `bucket_of` found begins, in the zone."""
    if isinstance(found, int):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found)
    else:
        moment = _first_moment(found, zone)
    return moment.astimezone(ZoneInfo(zone))


def end_of(bucket: Bucket, found: date | int, zone: str) -> datetime:
    """Return when it ends, which is when the next one begins."""
    if isinstance(found, int):
        return (begin_of(found, zone).astimezone(UTC) + timedelta(hours=1)).astimezone(
            ZoneInfo(zone)
        )
    after = {
        Bucket.DAY: found + timedelta(days=1),
        Bucket.WEEK: found + timedelta(days=7),
        Bucket.MONTH: (found.replace(day=1) + timedelta(days=32)).replace(day=1),
    }
    return begin_of(after[bucket], zone)


def _first_moment(day: date, zone: str) -> datetime:
    """The first moment of a local day; where midnight is skipped, the moment it is skipped at."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
