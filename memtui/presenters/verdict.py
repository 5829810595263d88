"""The verdict on all memories in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memtui.presenters.format import counted, short_money

if TYPE_CHECKING:
    from memtui.service.usecases.verdict import MemoryVerdict


def verdict_words(found: MemoryVerdict, most: int) -> str:
    """Return a verdict in at most `most` characters; empty where that is too few."""
    cost = f"{short_money(found.cost_usd, unpriced=found.cost_usd is None)} a session"
    named = ((found.risky, "risky"), (found.doubled, "doubled"), (found.stale, "stale"))
    doubts = ", ".join(f"{number:,} {word}" for number, word in named if number)
    doubts = doubts or "nothing risky, doubled or stale"
    much = f"{counted(found.records, 'memory', 'memories')}: {counted(found.tokens, 'token')}"
    forms = (f"{much}, {cost}, {doubts}", f"{cost}, {doubts}", doubts)
    return next((one for one in forms if len(one) <= most), "")
