"""`query`: find what is relevant, with its sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.options import IntentName, ScopeOptions, json_object
from memtui.doors.cli.output import Dim, Line
from memtui.doors.cli.session import Session, build

if TYPE_CHECKING:
    from memtui.contract import QueryRequest, Snippet
    from memtui.service import QueryAnswer


async def query(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to look for, in plain words.")],
    scope: ScopeOptions,
    *,
    top_k: Annotated[int, typer.Option(min=1, max=1000, help="At most this many snippets.")] = 10,
    intent: Annotated[IntentName, typer.Option(help="What the answer is for.")] = "answer",
    topic: Annotated[str | None, typer.Option(help="Only records of this topic.")] = None,
    as_of: Annotated[str | None, typer.Option(help="What was valid at this moment.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Metadata that must match, as a JSON object.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the provider finds its answer instead.")
    ] = False,
) -> None:
    """Find the records that are relevant to TEXT, best first."""
    from memtui.contract import QueryIntent, QueryRequest
    from memtui.filters import parse_when

    request = build(
        QueryRequest,
        scope=scope.scope(session),
        query=text,
        binding_key=scope.binding,
        top_k=top_k,
        intent=QueryIntent(intent),
        metadata_filter=json_object(where, "--where"),
        topic=topic,
        as_of=parse_when(as_of, now=session.now, zone=session.zone) if as_of else None,
    )
    if explain:
        await _explain(session, request)
        return
    answer = await session.service.query(session.caller, request)
    session.out.answer(answer, lambda: _snippets(session, answer))
    if not session.out.as_json:
        session.out.say(_summary(answer))


async def _explain(session: Session, request: QueryRequest) -> None:
    answer = await session.service.explain(session.caller, request)

    def lines() -> Iterator[Line]:
        for stage in answer.explanation.stages:
            yield f"{stage.name}: {stage.detail}"
            for record_id, score in stage.scores.items():
                yield f"  {score:.3f}  {record_id}"

    session.out.answer(answer, lines)


def _snippets(session: Session, answer: QueryAnswer) -> Iterator[Line]:
    if answer.profile_summary:
        yield answer.profile_summary
    for rank, snippet in enumerate(answer.snippets, start=1):
        yield from _snippet(session, rank, snippet)


def _snippet(session: Session, rank: int, snippet: Snippet) -> Iterator[Line]:
    from memtui.widgets import format as shown

    score = "" if snippet.score is None else f"{snippet.score:.3f}"
    for number, line in enumerate(snippet.text.split("\n")):
        yield f"{rank:>3}  {score:>6}  {line}" if number == 0 else f"{'':13}{line}"
    origin = [
        shown.source_line(snippet.source),
        shown.since(snippet.created_at, session.now),
        f"by {snippet.created_by}" if snippet.created_by else "",
        snippet.handle.provider_record_id,
    ]
    yield Dim(" " * 13 + " · ".join(part for part in origin if part))


def _summary(answer: QueryAnswer) -> str:
    from memtui.widgets import format as shown

    count = shown.counted(len(answer.snippets), "snippet")
    more = " (more may match)" if answer.capped else ""
    return (
        f"{count}{more} from {answer.binding_key} ({answer.binding_reason}) "
        f"in {shown.duration(answer.latency_ms)}; operation {answer.operation_id}."
    )
