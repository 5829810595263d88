"""The worth of a record to a context: of records that do not fit, those worth least go first."""

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from memtui.contract import Record
from memtui.pruning.candidates import Reason, RetrievalTally, times, unread_since

_HARMFUL_OR_NEEDLESS = frozenset({
    Reason.HOLDS_SECRET, Reason.POISONED, Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE,
    Reason.CONTRADICTED, Reason.FORGOTTEN_BEFORE,
})  # fmt: skip
_DOUBTFUL = frozenset({Reason.SAME_MEANING, Reason.SAYS_OTHERWISE})


class Standing(IntEnum):
    """The first criterion of a record's worth, least first."""

    HARMFUL_OR_NEEDLESS = 0
    """It is harmful, repeats another word by word, is contradicted or was deleted before."""
    DOUBTFUL = 1
    """It seems to mean the same as another, or to be contradicted by one."""
    DID_NOT_HELP = 2
    NEVER_DELIVERED = 3
    """Known for `unread_days`, and neither delivered nor found since."""
    IN_USE = 4
    """Delivered, or too new to say."""
    HELPED = 5


class Worth(NamedTuple):
    """A record's worth; sorts least first."""

    standing: Standing
    deliveries_a_day: float
    """Deliveries and one more, by the days since it is known and one more: a new record counts as
    delivered, less with each day on which it is not."""
    made_at: float
    """Seconds since 1970: of two that are alike, the older one is worth less …"""
    minus_tokens: int
    """… and then the longer one."""
    name: str
    """Its binding and id, so that no two records are equal."""
    words: str
    """The figures in words: `never delivered, 61 days old, 40 tokens`."""


def worth_of(
    record: Record,
    use: RetrievalTally,
    reasons: Collection[Reason],
    *,
    tokens: int,
    now: datetime,
    counted_since: datetime | None = None,
    unread_days: int = 7,
) -> Worth:
    """Return the worth of a record.

    Args:
        record: The record.
        use: Its deliveries and its feedback.
        reasons: The reasons for which it could be forgotten.
        tokens: Tokens of its line in a prompt.
        now: The current time.
        counted_since: When memtui began to count deliveries; None: before the record was made.
        unread_days: Days for which a new record does not count as never delivered.
    """
    known = now - (unread_since(record, counted_since) or now)
    if not _HARMFUL_OR_NEEDLESS.isdisjoint(reasons):
        standing = Standing.HARMFUL_OR_NEEDLESS
    elif not _DOUBTFUL.isdisjoint(reasons):
        standing = Standing.DOUBTFUL
    elif use.helped != use.not_helped:
        standing = Standing.HELPED if use.helped > use.not_helped else Standing.DID_NOT_HELP
    elif not use.count and known >= timedelta(unread_days):
        standing = Standing.NEVER_DELIVERED
    else:
        standing = Standing.IN_USE
    made = record.created_at or record.updated_at
    words = [
        f"helped {times(use.helped)}" if use.helped else "",
        f"did not help {times(use.not_helped)}" if use.not_helped else "",
        f"delivered {times(use.count)}" if use.count else "never delivered",
        _age(now - made) if made else "of unknown age",
        _counted(tokens, "token"),
    ]
    return Worth(
        standing,
        (use.count + 1) / (max(0, known.days) + 1),
        made.timestamp() if made else 0,
        -tokens,
        "\x1f".join(record.handle.model_dump().values()),
        ", ".join(filter(None, words)),
    )


def _age(age: timedelta) -> str:
    return f"{_counted(age.days, 'day')} old" if age.days > 0 else "made today"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
