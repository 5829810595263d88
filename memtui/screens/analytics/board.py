"""The questions of the dashboard, their time ranges, and the figures that answer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from memtui.analytics.figures import Bucket, FigureGroup, HitSign, Stats, begin_of, end_of
from memtui.contract import Filter
from memtui.store.operation import Operation

if TYPE_CHECKING:
    from memtui.screens.session import ServiceSession

MOST_BUCKETS = 5_000
"""Most buckets of a board without gaps; beyond, only buckets with operations are listed."""


class Period(Enum):
    """A time range that ends now."""

    DAY = ("24 h", 1, Bucket.HOUR, (Bucket.HOUR, Bucket.DAY))
    WEEK = ("7 d", 7, Bucket.DAY, (Bucket.HOUR, Bucket.DAY))
    MONTH = ("30 d", 30, Bucket.DAY, (Bucket.HOUR, Bucket.DAY, Bucket.WEEK))
    QUARTER = ("90 d", 90, Bucket.WEEK, tuple(Bucket))
    ALL = ("all", 0, Bucket.WEEK, tuple(Bucket))

    def __init__(self, words: str, days: int, bucket: Bucket, buckets: tuple[Bucket, ...]) -> None:
        self.words = words
        self.days = days
        """Local days including today; 0: the whole log."""
        self.bucket = bucket
        """Its default bucket."""
        self.buckets = buckets
        """Buckets that a person can choose."""

    def step(self, by: int) -> Period:
        """Return the period `by` places on, longer if positive; it wraps around."""
        periods = list(Period)
        return periods[(periods.index(self) + by) % len(periods)]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range from `since` to before `until`; None: unbounded.

    `days`: it consists of whole local days up to today. `filtered`: the filter line sets it,
    not the period.
    """

    since: datetime | None = None
    until: datetime | None = None
    days: bool = False
    filtered: bool = False

    @property
    def words(self) -> str:
        """The start of a period: `since 10-26` or `since 14:00`; empty for any other range."""
        if self.since is None or self.filtered:
            return ""
        return f"since {bucket_label(Bucket.DAY if self.days else Bucket.HOUR, self.since)}"


def span_of(period: Period, chosen: Filter, now: datetime, zone: str) -> TimeRange:
    """Return the time range of the filter, if it has one, else of the period."""
    if chosen.since is not None or chosen.until is not None:
        return TimeRange(chosen.since, chosen.until, filtered=True)
    if period is Period.ALL:
        return TimeRange(days=True)
    if period is Period.DAY:
        return TimeRange(begin_in(Bucket.HOUR, now - timedelta(hours=23), zone))
    today = now.astimezone(ZoneInfo(zone)).date()
    return TimeRange(begin_of(today - timedelta(days=period.days - 1), zone), days=True)


def begin_in(bucket: Bucket, moment: datetime, zone: str) -> datetime:
    """Return the beginning of the bucket that contains a moment."""
    local = moment.astimezone(ZoneInfo(zone))
    day = local.date()
    if bucket is Bucket.HOUR:
        past = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        return (local.astimezone(UTC) - past).astimezone(ZoneInfo(zone))
    if bucket is Bucket.WEEK:
        day -= timedelta(days=day.weekday())
    return begin_of(day.replace(day=1) if bucket is Bucket.MONTH else day, zone)


def after(bucket: Bucket, begins: datetime, zone: str) -> datetime:
    """Return the beginning of the bucket after the one that begins at `begins`."""
    if bucket is Bucket.HOUR:
        return (begins.astimezone(UTC) + timedelta(hours=1)).astimezone(ZoneInfo(zone))
    return end_of(bucket, begins.astimezone(ZoneInfo(zone)).date(), zone)


def bucket_label(bucket: Bucket, begins: datetime, *, of_days: bool = False) -> str:
    """Return a bucket's axis label: `14:00`, `03-09`, `2026-03`; with `of_days`, `03-09 14h`."""
    if bucket is Bucket.HOUR:
        return f"{begins:%m-%d %Hh}" if of_days else f"{begins:%H:%M}"
    return f"{begins:%Y-%m}" if bucket is Bucket.MONTH else f"{begins:%m-%d}"


def bucket_words(bucket: Bucket, begins: datetime) -> str:
    """Return a bucket's full name: `Mon 2026-03-09`, `week of 2026-03-09`, `2026-03`."""
    if bucket is Bucket.HOUR:
        return f"{begins:%a %Y-%m-%d %H:00 %Z}".rstrip()
    if bucket is Bucket.DAY:
        return f"{begins:%a %Y-%m-%d}"
    return f"week of {begins:%Y-%m-%d}" if bucket is Bucket.WEEK else f"{begins:%Y-%m}"


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the log."""

    chosen: Filter
    """The filter without the time range."""
    span: TimeRange
    bucket: Bucket
    hit_sign: HitSign | None
    """What counts as a hit; None: the best sign available."""
    zone: str
    now: datetime

    @property
    def painted(self) -> bool:
        """Whether precomputed daily figures answer it."""
        return self.chosen == Filter() and self.span.days and self.bucket is not Bucket.HOUR

    @property
    def filter(self) -> Filter:
        """The filter with the time range."""
        span = {"since": self.span.since, "until": self.span.until}
        return self.chosen.model_copy(update=span)

    def is_over(self, now: datetime) -> bool:
        """Whether its time range is outdated: by now another day, or another hour, has begun."""
        whole_days = self.span.days and self.bucket is not Bucket.HOUR
        begins = [begin_in(Bucket.DAY if whole_days else Bucket.HOUR, moment, self.zone)
                  for moment in (self.now, now)]  # fmt: skip
        return begins[0] != begins[1]


@dataclass(frozen=True, slots=True)
class Board:
    """The figures of one question, by bucket; `spending` is by bucket and provider."""

    question: Question
    stats: Stats
    buckets: tuple[FigureGroup, ...]
    spending: tuple[FigureGroup, ...]

    def with_internal(self, news: Sequence[Operation]) -> Board | None:
        """Return the board with new operations counted as left out, if all are memtui's own reads.

        None: the figures must be read again.
        """
        since = self.question.span.since
        fresh = [one for one in news if one.seq > self.stats.last_seq]
        if not fresh:
            return self
        is_plain = self.question.chosen == Filter() and self.question.span.until is None
        if not is_plain or not all(one.internal for one in fresh):
            return None
        more = sum(since is None or one.started_at >= since for one in fresh)
        left_out = self.stats.left_out_count + more
        counted = {"left_out_count": left_out, "last_seq": max(one.seq for one in fresh)}
        return replace(self, stats=self.stats.model_copy(update=counted))


async def read_board(session: ServiceSession, question: Question) -> Board:
    """Read the figures by bucket; whole days come from precomputed figures."""
    ask, caller = session.service.analysis, session.caller
    chosen, bucket, zone = question.filter, question.bucket, question.zone
    sign, since = question.hit_sign, question.span.since
    if question.painted:
        begin = since.date() if since else None
        painted = await ask.dashboard(caller, bucket, since=begin, hit_sign=sign, zone=zone)
        stats, spending = painted.stats, painted.spending
    else:
        stats = await ask.stats(caller, chosen, bucket=bucket, hit_sign=sign, zone=zone)
        by_provider = await ask.stats(
            caller, chosen, by=("provider",), bucket=bucket, hit_sign=stats.hit_sign, zone=zone
        )
        spending = by_provider.groups
    return Board(question, stats, _filled(question, stats.groups), spending)


async def read_groups(
    session: ServiceSession, board: Board, dimension: str
) -> tuple[FigureGroup, ...]:
    """Read the figures of a board's question by another dimension."""
    question = board.question
    found = await session.service.analysis.stats(
        session.caller,
        question.filter,
        by=(dimension,),
        hit_sign=board.stats.hit_sign,
        zone=question.zone,
    )
    return found.groups


def _filled(question: Question, groups: Sequence[FigureGroup]) -> tuple[FigureGroup, ...]:
    """Return the groups, with empty ones in the gaps unless there are too many."""
    if not groups:
        return ()
    found = {one.begins: one for one in groups}
    filled = []
    for begins, ends in _times(question, groups):
        filled.append(found.get(begins) or FigureGroup(begins=begins, ends=ends))
        if len(filled) > MOST_BUCKETS:
            return tuple(groups)
    return tuple(filled)


def _times(
    question: Question, groups: Sequence[FigureGroup]
) -> Iterator[tuple[datetime, datetime]]:
    bucket, zone = question.bucket, question.zone
    first, last = groups[0].begins or question.now, groups[-1].begins or question.now
    begins = begin_in(bucket, min(question.span.since or first, first), zone)
    if question.span.until is None:
        last = max(last, begin_in(bucket, question.now, zone))
    while begins <= last:
        ends = after(bucket, begins, zone)
        yield begins, ends
        begins = ends
