"""`compare`: the log's own questions asked of two bindings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import Yes, complete_binding
from memtui.channels.cli.output import Dim, Line, columns, jsonable, table, ticker
from memtui.channels.cli.session import Session
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service.usecases.comparing import ComparedQuestion, MemoryComparison

_HALF, _ERRORS, _LISTED, _WIDE = 0.5, 3, 20, 400
Key = Annotated[str, typer.Argument(autocompletion=complete_binding)]


async def compare(
    session: Session,
    a: Key,
    b: Key,
    *,
    last: Annotated[int, typer.Option(min=1, max=1_000)] = 500,
    question: str | None = None,
    yes: Yes = False,
) -> None:
    """Ask two bindings the log's own questions, and say which found more.

    Exit 1 if the log has no question. Nothing is asked before a yes where questions may leave this
    machine.

    Args:
        a: The key of a binding.
        b: The key of another.
        last: How many of the newest questions in the log are looked at; each is asked once.
        question: Ask only this one, and show both answers: its number or the operation's id.
    """
    from memtui.service.usecases import comparing

    plan = await comparing.plan_comparison(session.service, session.caller, (a, b), last, question)
    number = shown.counted(len(plan.asked), "question")
    if plan.leave and not yes:
        confirm(
            f"{number}, without secrets, may leave this machine, to {' and '.join(plan.leave)}. "
            "Some providers count or bill searches. Ask?"
        )
    with ticker() as show:
        found = await comparing.compare_memories(
            session.service, session.caller, plan, agreed=True,
            progress=lambda done: show(f"{done:,} of {number} asked"),
        )  # fmt: skip
    names = ("agreement", "more_hits", "interval")
    document = jsonable(found) | {name: getattr(found, name) for name in names}
    if question is None:
        session.out.answer(document, _lines(found), *_sentences(found))
    else:
        session.out.answer(document, _page(found.bindings, found.questions[0]))


def _lines(found: MemoryComparison) -> Iterator[Line]:
    sides, both = [], found.both
    for place in (0, 1):
        answers = [one.answers[place] for one in found.questions]
        took = sorted(one.latency_ms for one in answers if not one.error)
        cuts = [took[int(len(took) * part)] if took else None for part in (0.5, 0.95)]
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
    names = (
        "answered", "failed", "found something", "records only here", "hits: helped",
        "hits: used later", "tokens of answers", "tokens of provider", "cost", "latency, median",
        "latency, p95",
    )  # fmt: skip
    keys = [f"{key}>" for key in found.bindings]
    yield from table(columns("", *keys), zip(names, *sides, strict=True))
    yield ""
    rows = (
        (f"{one.seq}", shown.share(one.agreement, one.agreement),
         *("failed" if side.error else f"{len(side.records)}" for side in one.answers),
         *(f"{side.hits}" for side in one.answers), f"{one.times}", one.question)
        for one in found.questions[:_LISTED]
    )  # fmt: skip
    yield from table(columns("#>", "alike>", *keys, "hits>", "hits>", "times>", "question*"), rows)


def _sentences(found: MemoryComparison) -> Iterator[str]:
    (a, b), (more, less), both = found.bindings, found.more_hits, len(found.both)
    alike = shown.share(found.agreement, found.agreement)
    yield f"{shown.counted(both, 'question')} answered by both; {alike} of the records alike."
    low, high = found.interval
    better = a if low > _HALF else b if high < _HALF else ""
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
        yield f"{found.left_out:,} in the log were erased, cut or of the past, and not asked."


def _page(keys: tuple[str, str], one: ComparedQuestion) -> Iterator[Line]:
    yield f"#{one.seq}  {one.question}"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE
    room = max(20, (width - 8) // 2)
    sides = [
        [f"{'=' * (record.rank in same):1}{'+' * (record.rank in hits):1} {record.text}"[:room]
         for record in answer.records] or [answer.error or "nothing"]
        for answer, same in zip(one.answers, (one.same, one.same.values()), strict=True)
        for hits in [{*answer.helped, *answer.used}]
    ]  # fmt: skip
    rows = enumerate(zip_longest(*sides, fillvalue=""), 1)
    yield from table(columns(">", *keys), ((f"{rank}", *cells) for rank, cells in rows))
    yield Dim("= both found it, + it helped or was used later")
