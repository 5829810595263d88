"""`compare`: the log's own questions asked of two bindings, now or of a shadow for a time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.input import confirm
from memtui.channels.cli.migrate import switched_lines
from memtui.channels.cli.options import Yes, complete_binding
from memtui.channels.cli.output import Dim, Line, columns, jsonable, table, ticker
from memtui.channels.cli.records import say_unknown_owners
from memtui.channels.cli.session import Session
from memtui.contract import Json, NotFound, Scope
from memtui.presenters import comparison as words
from memtui.presenters import format as shown
from memtui.presenters.spending import parse_amount

if TYPE_CHECKING:
    from memtui.service.usecases.comparing import ComparedQuestion, MemoryComparison
    from memtui.service.usecases.shadowing import ShadowState

_LISTED, _WIDE = 20, 400
_BILL = "Some providers count or bill searches."
Key = Annotated[str, typer.Argument(autocompletion=complete_binding)]
Other = Annotated[str | None, typer.Argument(autocompletion=complete_binding)]


async def compare_run(
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
    machine; the yes is stored for the two, and undo takes it back.

    Args:
        a: The key of a binding.
        b: The key of another.
        last: How many of the newest questions in the log are looked at; each is asked once.
        question: Ask only this one, and show both answers: its number or the operation's id.
    """
    from memtui.service.usecases import comparing

    plan = await comparing.plan_comparison(session.service, session.caller, (a, b), last, question)
    number = shown.counted(len(plan.asked), "question")
    if not (plan.agreed or yes):
        confirm(
            f"{number}, without secrets, may leave this machine, to {' and '.join(plan.leave)}. "
            f"{_BILL} The yes is stored for these two. Ask?"
        )
    with ticker() as show:
        found = await comparing.compare_memories(
            session.service, session.caller, plan, agreed=True,
            progress=lambda done: show(f"{done:,} of {number} asked"),
        )  # fmt: skip
    if question is None:
        _answer(session, found)
    else:
        session.out.answer(_document(found), _page(found.bindings, found.questions[0]))


async def compare_shadow_start(
    session: Session,
    a: Key,
    b: Key,
    *,
    share: Annotated[float, typer.Option(min=0.001, max=1)] = 0.2,
    budget: Annotated[str, typer.Option(metavar="USD")] = "1",
    calls: Annotated[int, typer.Option(min=1, max=1_000_000)] = 1_000,
    days: Annotated[int, typer.Option(min=1, max=365)] = 14,
    project: str | None = None,
    yes: Yes = False,
) -> None:
    """Let B be asked, for a time, what A is asked; nobody gets its answers.

    It starts anew where B is asked already. Undo ends it and takes back the yes.

    Args:
        a: The key of the binding that answers.
        b: The key of its shadow.
        share: The share of the questions.
        budget: Ask no more once the answers have cost so much.
        calls: Ask no more after so many calls, as those without a price do not count in the budget.
        days: Ask no more after so many days.
        project: Ask only questions of this project.
    """
    from memtui.service.usecases import comparing

    service, caller, keys = session.service, session.caller, (a, b)
    cost = parse_amount("usd", budget)
    if project is not None:
        scope = Scope(company_id=caller.company_id, project_id=project)
        await say_unknown_owners(session, scope, a)
    leave = await comparing.leaving(service, caller, keys)
    if leave and not yes:
        whose = f"of {project}" if project else "of everybody"
        confirm(
            f"{shown.share(share, share)} of the questions {whose}, without secrets, may leave "
            f"this machine for {days} days, to {' and '.join(leave)}. {_BILL} "
            f"{'' if project else 'The yes is stored, and good for `memtui compare` too. '}Agree?"
        )
    made = await comparing.agree(
        service, caller, keys, leave, days,
        share=share, budget_usd=cost, most_calls=calls, project_id=project,
    )  # fmt: skip
    session.out.answer(made, [f"{b} is asked what {a} is asked; nobody gets its answers"])


async def compare_shadow_stop(session: Session, a: Key, b: Key, *, withdraw: bool = False) -> None:
    """Ask B no more what A is asked; what it answered stays in the log.

    Args:
        a: The key of the binding that answers.
        b: The key of its shadow.
        withdraw: Take back the yes too, so that the next comparison asks again.
    """
    from memtui.service.usecases.comparing import shadow_of

    shadow = await shadow_of(session.service, session.caller, (a, b))
    if shadow.until is None and not withdraw:
        raise NotFound(f"{b} is no shadow of {a}; --withdraw takes back the yes to asking both.")
    until = min(session.now, shadow.until) if shadow.until else None
    ended = None if withdraw else shadow.model_copy(update={"until": until})
    await session.service.bindings.set_shadow(session.caller, (a, b), ended)
    session.out.answer({"withdrawn": withdraw}, [f"{b} is asked no more what {a} is asked"])


async def compare_shadow_status(session: Session, a: Other = None, b: Other = None) -> None:
    """List who said yes to which bindings, and what shadows were asked; or compare two.

    Args:
        a: The key of the binding that answers; left out: all.
        b: The key of its shadow: compare what both answered.
    """
    from memtui.service.usecases import comparing, shadowing

    service, caller = session.service, session.caller
    if a is not None and b is not None:
        shadow = await comparing.shadow_of(service, caller, (a, b))
        if shadow.until is None:
            raise NotFound(
                f"{b} is no shadow of {a}; `memtui compare shadow start {a} {b}` makes it one."
            )
        _answer(session, await shadowing.report_shadow(service, caller, shadow))
        return
    states = await shadowing.shadow_states(service, caller)
    found = [one for one in states if a in {None, one.shadow.binding_key}]
    session.out.answer({"shadows": found}, _states(session, found))
    if not found:
        session.out.say("There is no shadow; `memtui compare shadow start A B` makes B one of A.")


async def compare_shadow_ask(session: Session) -> None:
    """Ask shadows the questions that wait for them, of those that you see in the log.

    The app and MCP servers do so every minute; from cron it serves hooks and scripts.
    """
    from memtui.service.usecases.shadowing import ask_shadows

    found = await ask_shadows(session.service, session.caller, {})
    session.out.answer({"shadows": found}, _states(session, found))


async def compare_cutover(
    session: Session, a: Key, b: Key, *, force: bool = False, yes: Yes = False
) -> int:
    """Let B serve what A serves, if what it answered as a shadow supports that.

    A becomes read-only; one undo takes back both. Exit 1 with fewer than 30 questions that both
    answered, if B failed more than 1 in 20, if A is ahead, or if B is not and their records differ.

    Args:
        a: The key of the binding that answers.
        b: The key of its shadow.
        force: Do it although the figures do not support it.
    """
    from memtui.migration.cutover import plan_by_shadow, switch
    from memtui.migration.endpoints import open_endpoints

    endpoints = await open_endpoints(session.service, session.caller, a, b, moves=False)
    found, why = await plan_by_shadow(endpoints)
    targets = ", ".join(f"{one.target_type} {one.target_id}" for one in endpoints.source.targets)
    asked = f"{b} would serve {targets}, and {a} would become read-only"
    if why and not force:
        said = (*words.sentences(found), *why, "This does not support a cut-over; --force does it.")
        session.out.answer(_document(found) | {"objections": why}, _lines(found), *said)
        return 1
    if not yes:
        for sentence in (*words.sentences(found), *why):
            session.out.say(sentence)
        confirm(f"{asked}. Cut over?")
    done = await switch(endpoints, session.paths.data, force=True)
    session.out.answer(jsonable(done) | {"objections": why}, switched_lines(done))
    return 0


def _states(session: Session, found: list[ShadowState]) -> Iterator[Line]:
    titles = ["binding", "shadow", "project", "share>", "calls>", "cost>", "waiting>", "ends>"]
    rows = (
        (own.binding_key, own.shadow_key, own.project_id or "all",
         shown.share(own.share, own.share), shown.of_total(one.calls, own.most_calls),
         f"{shown.money(one.cost_usd, unpriced=one.unpriced > 0)} of {shown.money(own.budget_usd)}",
         f"{one.waiting:,}", shown.since(own.until, session.now) if own.until else "–",
         own.principal, one.why_not)
        for one in found for own in [one.shadow]
    )  # fmt: skip
    yield from table(columns(*titles, "yes by", "not now, because*"), rows)


def _document(found: MemoryComparison) -> Json:
    names = ("agreement", "more_hits", "interval")
    return {**jsonable(found), **{name: getattr(found, name) for name in names}}


def _answer(session: Session, found: MemoryComparison) -> None:
    session.out.answer(_document(found), _lines(found), *words.sentences(found))


def _lines(found: MemoryComparison) -> Iterator[Line]:
    keys = [f"{key}>" for key in found.bindings]
    yield from table(columns("", *keys), words.figures(found))
    yield ""
    rows = (
        (f"{one.seq}", shown.share(one.agreement, one.agreement),
         *("failed" if side.error else f"{len(side.records)}" for side in one.answers),
         *(f"{side.hits}" for side in one.answers), f"{one.times}", one.question)
        for one in found.questions[:_LISTED]
    )  # fmt: skip
    yield from table(columns("#>", "alike>", *keys, "hits>", "hits>", "times>", "question*"), rows)


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
