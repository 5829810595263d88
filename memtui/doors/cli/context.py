"""`context`: what a model reads before a run, to the byte, and what that costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.doors.cli.complete import complete_binding, complete_name
from memtui.doors.cli.output import Dim, Line, jsonable
from memtui.doors.cli.session import Session, build

if TYPE_CHECKING:
    from memtui.service import ContextAnswer

_BAR = 24


async def context(
    session: Session,
    *,
    subject: Annotated[str | None, typer.Option(help="The user that the request is for.")] = None,
    project: Annotated[
        str | None,
        typer.Option(help="The project it is about.", autocompletion=complete_name("project")),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="The agent that runs.", autocompletion=complete_name("agent"))
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Bring the project's notes of this topic too.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Count and price for it, instead of context_model.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, help="Tokens, instead of context_budget.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, help="Cut the text to so many tokens, and say what went.")
    ] = None,
    binding: Annotated[
        str | None,
        typer.Option(help="Read this binding alone.", autocompletion=complete_binding),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 if it is over its budget.")
    ] = False,
    delivered: Annotated[
        bool, typer.Option("--delivered", help="A model gets it: its records count as read.")
    ] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Print the text alone, every byte as it is.")
    ] = False,
) -> int:
    """Show what a model is told before a run, and its tokens and price.

    Its records count as read only with --delivered.
    """
    from memtui.contract import Scope
    from memtui.service import ContextRequest

    settings = session.settings
    scope = build(
        Scope,
        company_id=session.company.company_id,
        subject_id=subject,
        project_id=project,
        agent_id=agent,
    )
    request = build(
        ContextRequest,
        scope=scope,
        model=model or settings.context_model,
        budget=settings.context_budget if budget is None else budget,
        max_tokens=max_tokens,
        topic=topic,
        binding_key=binding,
        delivered=delivered,
    )
    answer = await session.service.context(session.caller, request)
    if text and not session.out.as_json:
        _write_exactly(answer.text)
        session.out.tell(answer.problems)
    else:
        session.out.answer(_document(answer), lambda: _lines(answer))
    if check and answer.over_budget:
        session.out.say(
            f"The memory context has {answer.tokens:,} tokens and its budget is "
            f"{answer.budget:,}; prune it with memtui facts prune."
        )
        return 1
    return 0


def _document(answer: ContextAnswer) -> dict[str, Any]:
    share = jsonable(answer.share) | {"over_target": answer.share.over_target}
    document: dict[str, Any] = jsonable(answer) | {"share": share}
    return document


def _lines(answer: ContextAnswer) -> Iterator[Line]:
    from memtui.widgets import format as shown

    yield from answer.text.rstrip("\n").split("\n") if answer.text else ()
    yield ""
    width = max((len(section.title) for section in answer.sections), default=0)
    for section in answer.sections:
        count = f"{shown.count(section.tokens)} of {shown.count(section.budget)}"
        yield f"{section.title:<{width}}  {_bar(section.tokens, section.budget)}  {count} tokens"
    over = ", over budget" if answer.over_budget else ""
    kind = "" if answer.exact else ", estimated"
    yield (
        f"{shown.counted(answer.tokens, 'token')} of {shown.count(answer.budget)}{over} "
        f"({answer.model}, {answer.tokenizer}{kind})"
    )
    yield from _cost(answer)
    for left in answer.left_out:
        yield Dim(f"left out of {left.section}: {left.text} ({left.reason})")
    for warning in answer.warnings:
        yield Dim(f"warning: {warning.message}")


def _cost(answer: ContextAnswer) -> Iterator[Line]:
    from memtui.widgets import format as shown

    cost, share = answer.price, answer.share
    if cost.priced:
        yield (
            f"{shown.money(cost.cost_usd)} a request, "
            f"{shown.money(cost.per_1000_requests_usd)} per 1,000 requests"
        )
    else:
        yield f"unpriced: {cost.table} has no price for {answer.model}"
    dated = f", newest price of {cost.table_date}" if cost.table_date else ""
    yield Dim(f"prices of {cost.table}{dated}")
    yield (
        f"{share.min_share:.1%} to {share.max_share:.1%} of a whole prompt"
        f"{', more than it should be' if share.over_target else ''}"
    )


def _bar(tokens: int, budget: int) -> str:
    filled = min(_BAR, round(_BAR * tokens / budget)) if budget else _BAR
    return "█" * filled + "░" * (_BAR - filled)


def _write_exactly(text: str) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
