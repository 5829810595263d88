"""How a comparison of two memories reads, in figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service.usecases.comparing import MemoryComparison

_HALF, _P95, _ERRORS = 0.5, 0.95, 3
NAMES = (
    "answered", "failed", "found something", "records only here", "hits: helped",
    "hits: used later", "tokens of answers", "tokens of provider", "cost", "latency, median",
    "latency, p95",
)  # fmt: skip


def figures(found: MemoryComparison) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each figure, and its value for either binding."""
    sides, both = [], found.both
    for place in (0, 1):
        answers = [one.answers[place] for one in found.questions]
        took = sorted(one.latency_ms for one in answers if not one.error)
        n = len(took)
        middle = (took[(n - 1) // 2] + took[n // 2]) / 2 if n else None
        cuts = [middle, took[ceil(n * _P95) - 1] if n else None]
        usage = [row for one in answers for row in one.usage]
        priced = [row.cost_usd for row in usage if row.cost_usd is not None]
        cost = sum(priced[1:], priced[0]) if priced else None
        only = [len(one.answers[place].records) - len(one.same) for one in both]
        sides.append((
            f"{len(took):,}", f"{len(answers) - len(took):,}",
            f"{sum(bool(one.records) for one in answers):,}", f"{sum(only):,}",
            f"{sum(len(one.helped) for one in answers):,}",
            f"{sum(len(one.used) for one in answers):,}",
            f"{sum(one.tokens for one in answers):,}", shown.tokens(usage),
            shown.money(cost, unpriced=len(priced) < len(usage)),
            *map(shown.duration, cuts),
        ))  # fmt: skip
    yield from zip(NAMES, *sides, strict=True)


def sentences(found: MemoryComparison) -> Iterator[str]:
    """Yield what the figures show, and what they do not."""
    (a, b), (more, less), both = found.bindings, found.more_hits, len(found.both)
    alike = found.agreement
    known = "" if alike is None else f"; {shown.share(alike, alike)} of the records alike"
    yield f"{shown.counted(both, 'question')} answered by both{known}."
    low, high = found.interval
    better = a if low > _HALF else b if high < _HALF else ""
    if both:
        yield (
            f"{a} found more hits in {more:,} of {both:,}, {b} in {less:,}: "
            f"{f'{better} is ahead by more than chance' if better else 'no difference shown'} "
            f"({a} ahead in {shown.share(low, high)} of those that differ, at 95%)."
        )
    if more or less:
        yield "What helped or was used speaks for the memory that answered at the time."
    for place, key in enumerate(found.bindings):
        errors = {one.answers[place].error for one in found.questions} - {""}
        yield from (f"{key} failed: {error}" for error in sorted(errors)[:_ERRORS])
    if found.left_out:
        yield f"Erased, cut, of the past or hidden, so left out: {found.left_out:,}."
