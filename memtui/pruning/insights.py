"""Insights into an owner's memories: not updated, not read, or growing.

"You haven't updated workspace context in 30 days" (seed 004, phase 3). No reason to forget.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from memtui.contract import Model, Record, Scope, owner_of, owner_scope, owner_words
from memtui.pruning.candidates import RetrievalTally, unread_since

_WEEK = timedelta(days=7)


class InsightKind(StrEnum):
    """The kinds of insight."""

    NOT_UPDATED = "not_updated"
    """No record of an owner was written or changed for long."""
    NEVER_READ = "never_read"
    READ_BY_ONE = "read_by_one"
    """Only one agent reads these records; they could be its own."""
    GROWING = "growing"
    """A topic of an owner took more tokens in the last week than it used to."""


class InsightRules(Model):
    """Thresholds of the insights."""

    still_days: int = 30
    """Days without a change after which an owner's memories are not kept up (seed 004)."""
    unread_days: int = 7
    """A younger record does not count as unread."""
    read_by_one: int = 3
    """Least number of records read by one agent alone."""
    growing_tokens: int = 40
    """Least growth of a topic in the last week, in tokens …"""
    growing_times: float = 1.5
    """… and as a multiple of the weekly mean of the four weeks before."""
    growing_listed: int = 10
    """At most so many growing topics, the fastest ones."""


class Insight(Model):
    """One insight and its figures."""

    kind: InsightKind
    scope: Scope
    """The owner's scope, without other ids."""
    topic: str | None = None
    agent_id: str | None = None
    """The only agent that reads them, for `READ_BY_ONE`."""
    records: int
    """How many records show it."""
    of: int
    """How many records the owner has."""
    tokens: int
    """Tokens that those records cost in a prompt."""
    sentence: str


class RatedRecord(NamedTuple):
    """A record with its tokens and its use."""

    record: Record
    tokens: int
    use: RetrievalTally
    counted_since: datetime | None = None
    """When memtui began to count retrievals in the record's binding."""


def find_insights(
    known: Iterable[RatedRecord], *, now: datetime, rules: InsightRules | None = None
) -> tuple[Insight, ...]:
    """Return the insights by kind, within a kind those with most tokens first.

    Args:
        known: Records of any scopes and bindings of one company.
        now: The current time.
        rules: The thresholds.
    """
    rules = rules or InsightRules()
    owners: dict[tuple[str, str], list[RatedRecord]] = defaultdict(list)
    for one in known:
        ends = (one.record.valid_to, one.record.expires_at)
        if all(end is None or end > now for end in ends):
            owners[owner_of(one.record.scope)].append(one)
    found: list[Insight] = []
    growing: list[Insight] = []
    for own in owners.values():
        found += _not_updated(own, now, rules)
        found += _never_read(own, now, rules)
        found += _read_by_one(own, rules)
        growing += _growing(own, now, rules)
    fastest = sorted(growing, key=lambda one: (-one.tokens, one.sentence))[: rules.growing_listed]
    order = list(InsightKind)
    return tuple(
        sorted(
            (*found, *fastest), key=lambda one: (order.index(one.kind), -one.tokens, one.sentence)
        )
    )


def _not_updated(
    own: Sequence[RatedRecord], now: datetime, rules: InsightRules
) -> Iterator[Insight]:
    times = [one.record.updated_at or one.record.created_at for one in own]
    last = max((at for at in times if at is not None), default=None)
    if last is not None and None not in times and now - last >= timedelta(rules.still_days):
        sentence = (
            f"No record of {_owner(own)} was written or changed for {(now - last).days:,} days: "
            f"{_figures(own)}."
        )
        yield _insight(InsightKind.NOT_UPDATED, own, own, sentence)


def _never_read(
    own: Sequence[RatedRecord], now: datetime, rules: InsightRules
) -> Iterator[Insight]:
    old = now - timedelta(rules.unread_days)
    unread = [
        one
        for one in own
        if not one.use.count and (unread_since(one.record, one.counted_since) or old) <= old
    ]
    if unread:
        sentence = (
            f"{_owner(own)} has {_figures(unread, own)} that no query returned in "
            f"{rules.unread_days} days or more."
        )
        yield _insight(InsightKind.NEVER_READ, own, unread, sentence)


def _read_by_one(own: Sequence[RatedRecord], rules: InsightRules) -> Iterator[Insight]:
    owner = owner_of(own[0].record.scope)
    by_agent: dict[str, list[RatedRecord]] = defaultdict(list)
    for one in own:
        if len(one.use.agents) == 1:
            by_agent[one.use.agents[0]].append(one)
    for agent, alone in by_agent.items():
        if len(alone) >= rules.read_by_one and owner != ("agent_id", agent):
            sentence = f"{_owner(own)} has {_figures(alone, own)} read by agent {agent} alone."
            yield _insight(InsightKind.READ_BY_ONE, own, alone, sentence, agent_id=agent)


def _growing(own: Sequence[RatedRecord], now: datetime, rules: InsightRules) -> Iterator[Insight]:
    topics: dict[str, list[tuple[RatedRecord, timedelta]]] = defaultdict(list)
    for one in own:
        if one.record.created_at is not None:
            topics[one.record.topic or ""].append((one, now - one.record.created_at))
    for topic, dated in topics.items():
        new = [one for one, age in dated if age < _WEEK]
        tokens = sum(one.tokens for one in new)
        before = sum(one.tokens for one, age in dated if _WEEK <= age < 5 * _WEEK) / 4
        if tokens >= rules.growing_tokens and tokens > rules.growing_times * before:
            about = f"{_owner(own)}, topic {topic}," if topic else _owner(own)
            sentence = (
                f"{about} grew by {_figures(new)} in the last 7 days, "
                f"by {before:,.0f} tokens a week in the four weeks before."
            )
            yield _insight(InsightKind.GROWING, own, new, sentence, topic=topic or None)


def _owner(own: Sequence[RatedRecord]) -> str:
    return owner_words(own[0].record.scope)


def _figures(showing: Sequence[RatedRecord], of: Sequence[RatedRecord] = ()) -> str:
    count = len(of) or len(showing)
    share = f"{len(showing):,} of {count:,}" if of else f"{count:,}"
    tokens = sum(one.tokens for one in showing)
    return f"{share} {'record' if count == 1 else 'records'} ({tokens:,} tokens)"


def _insight(
    kind: InsightKind,
    own: Sequence[RatedRecord],
    showing: Sequence[RatedRecord],
    sentence: str,
    *,
    topic: str | None = None,
    agent_id: str | None = None,
) -> Insight:
    return Insight(
        kind=kind,
        scope=owner_scope(own[0].record.scope),
        topic=topic,
        agent_id=agent_id,
        records=len(showing),
        of=len(own),
        tokens=sum(one.tokens for one in showing),
        sentence=f"{sentence[0].upper()}{sentence[1:]}",
    )
