"""What the charts show, as one frozen value, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from memtui.analytics.figures import Bucket, Group, HitSign, Stats
from memtui.contract import Filter
from memtui.screens.analytics.period import MOST_BUCKETS, Span, after, begin_in

if TYPE_CHECKING:
    from memtui.screens.state import ServiceSession

DIMENSIONS = (
    "binding",
    "agent",
    "project",
    "provider",
    "model",
    "type",
    "source_kind",
    "status",
    "door",
    "principal",
)
"""What the table can group by."""

SIGN_WORDS = {
    HitSign.USED: "share of queries whose record was opened later",
    HitSign.SCORE: "share of queries with a score ≥ threshold",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the log."""

    chosen: Filter
    """What to let through, the stretch of time left out."""
    span: Span
    bucket: Bucket
    dimension: str
    hit_sign: HitSign | None
    """None takes the best there is."""
    zone: str
    now: datetime

    @property
    def painted(self) -> bool:
        """Whether what was added up before answers it."""
        return self.chosen == Filter() and self.span.days and self.bucket is not Bucket.HOUR

    @property
    def filter(self) -> Filter:
        """Everything that is let through."""
        span = {"since": self.span.since, "until": self.span.until}
        return self.chosen.model_copy(update=span)


@dataclass(frozen=True, slots=True)
class Board:
    """The figures of one question. `buckets` has no gaps, `spending` is by bucket and provider."""

    question: Question
    stats: Stats
    buckets: tuple[Group, ...]
    spending: tuple[Group, ...]


async def read_board(session: ServiceSession, question: Question) -> Board:
    """Read the figures in buckets of time; of whole days, from what was added up before."""
    ask, caller, span = session.service.analysis, session.caller, question.span
    if question.painted:
        painted = await ask.dashboard(
            caller,
            question.bucket,
            since=span.since.date() if span.since else None,
            hit_sign=question.hit_sign,
            zone=question.zone,
        )
        stats, spending = painted.stats, painted.spending
    else:
        chosen, bucket, zone = question.filter, question.bucket, question.zone
        stats = await ask.stats(
            caller, chosen, bucket=bucket, hit_sign=question.hit_sign, zone=zone
        )
        by_provider = await ask.stats(
            caller, chosen, by=("provider",), bucket=bucket, hit_sign=stats.hit_sign, zone=zone
        )
        spending = by_provider.groups
    return Board(question, stats, _filled(question, stats.groups), spending)


async def read_groups(session: ServiceSession, question: Question) -> tuple[Group, ...]:
    """Read the figures by the dimension, those with the most operations first."""
    found = await session.service.analysis.stats(
        session.caller,
        question.filter,
        by=(question.dimension,),
        hit_sign=question.hit_sign,
        zone=question.zone,
    )
    return tuple(sorted(found.groups, key=lambda one: -one.operation_count))


def _filled(question: Question, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the groups with empty ones where there was no operation."""
    if not groups:
        return ()
    found = {one.begins: one for one in groups}
    filled = []
    for begins, ends in _times(question, groups):
        filled.append(found.get(begins) or Group(begins=begins, ends=ends))
        if len(filled) > MOST_BUCKETS:
            return tuple(groups)
    return tuple(filled)


def _times(question: Question, groups: Sequence[Group]) -> Iterator[tuple[datetime, datetime]]:
    bucket, zone = question.bucket, question.zone
    first, last = groups[0].begins or question.now, groups[-1].begins or question.now
    begins = begin_in(bucket, min(question.span.since or first, first), zone)
    if question.span.until is None:
        last = max(last, begin_in(bucket, question.now, zone))
    while begins <= last:
        ends = after(bucket, begins, zone)
        yield begins, ends
        begins = ends
