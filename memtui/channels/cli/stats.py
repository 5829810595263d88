"""`stats` and `sql`: figures of the operation log."""

from __future__ import annotations

import asyncio
import csv
import io
import sys
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtui.analytics.figures import (
    DIMENSIONS,
    USE_WITHIN,
    Bucket,
    FigureGroup,
    Figures,
    HitSign,
    Stats,
)
from memtui.channels.cli.input import read_stdin
from memtui.channels.cli.options import Exact, FilterLine, OperationOptions, ScopeOptions
from memtui.channels.cli.output import Dim, Line, TextColumn, columns, fields, table, write_exactly
from memtui.channels.cli.records import say_no_operation
from memtui.channels.cli.session import Session
from memtui.contract import Filter, Invalid, NotFound, owner_of, owner_words
from memtui.json_text import plain, plain_text
from memtui.presenters import format as shown
from memtui.presenters.risks import totals, verdict_words
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.analytics.sql import SqlAnswer
    from memtui.pruning.patterns import Pattern
    from memtui.service.review.known_risks import RiskFigures


_FIGURES = columns(
    "operations>", "queries>", "writes>", "failed>", "hits>", "p50>", "p95>", "tokens>", "cost>"
)
_NOTHING = "(none)"


def _complete_dimension(incomplete: str) -> list[str]:
    """Return the dimensions of figures that begin with `incomplete`."""
    return [name for name in DIMENSIONS if name.startswith(incomplete)]


async def stats(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    by: Annotated[list[str] | None, typer.Option(autocompletion=_complete_dimension)] = None,
    bucket: Literal["hour", "day", "week", "month"] | None = None,
    hit_sign: Literal["used", "score"] | None = None,
    patterns: bool = False,
    insights: bool = False,
    verdict: bool = False,
) -> None:
    """Show what the operations did, took and cost.

    It covers the whole log, sealed operations included, unless the filter and the options narrow
    it. The figures of facts are in `memtui facts stats`.

    Args:
        by: Group by this: agent, project, issue, run, binding, provider, model, type, source_kind,
            status, channel, principal or company. Several: again, or with commas.
        bucket: Also group by time, in your time zone.
        hit_sign: What counts as a hit. used: a result was opened afterwards; score: a result scored
            high enough. Left out: used, if the log has any such opening.
        patterns: Show instead which facts change often, which changed after months, and on which
            scopes and bindings disagree.
        insights: Show instead whose memories nobody updates, reads or keeps small: of everything,
            or of the user, project or agent that is named.
        verdict: Show instead how much is remembered, what it costs a session, and how many memories
            are dangerous, contradicting, doubled and stale; reads all of them.
    """
    if patterns or insights or verdict:
        if line or by or bucket or hit_sign or any(asdict(which).values()):
            raise Invalid("--patterns and --insights take only whose memories, and --binding.")
        if patterns + insights + verdict > 1:
            raise Invalid("Give --patterns, --insights or --verdict, only one of them.")
        if verdict and any(asdict(scope).values()):
            raise Invalid("--verdict is of all memories; leave out whose.")
        shows = _show_patterns if patterns else _show_insights if insights else _show_verdict
        await shows(session, scope)
        return
    zone = session.zone_name()
    chosen = which.filter(session, line, scope)
    words = (word.strip() for given in by or () for word in given.split(","))
    names = tuple(dict.fromkeys(word for word in words if word))
    found = await session.service.analysis.stats(
        session.caller,
        chosen,
        by=names,
        bucket=Bucket(bucket) if bucket else None,
        hit_sign=HitSign(hit_sign) if hit_sign else None,
        zone=zone,
    )
    asked = {
        "filter": chosen.model_dump(mode="json", exclude_defaults=True),
        "by": list(names),
        "bucket": bucket,
        "zone": zone,
    }
    pending_count = await _pending_count(session, chosen)
    risks = None
    if pending_count is not None:  # risks, like pending writes, are of the present
        risks = await session.service.risks.figures(session.caller, chosen.binding_key)
    document = _document(found) | {"pending_count": pending_count, "risks": risks} | asked
    session.out.answer(document, _lines(found, names, bucket, pending_count, risks))
    if not found.operation_count:
        await say_no_operation(session, chosen)


async def _pending_count(session: Session, chosen: Filter) -> int | None:
    """Return the number of held writes; None: the filter, caller or moment excludes them."""
    is_of_now = not chosen.model_dump(exclude_defaults=True, exclude={"binding_key"})
    if not is_of_now or not session.caller.by_person or session.caller.as_of is not None:
        return None
    return len(await session.service.review.waiting(session.caller, chosen.binding_key))


async def _show_patterns(session: Session, scope: ScopeOptions) -> None:
    from memtui.service.history.patterns import PatternRequest

    request = scope.request(session, PatternRequest)
    answer = await session.service.patterns.find(session.caller, request)
    read = shown.counted(len(answer.operation_ids), "binding")
    session.out.answer(
        answer,
        _pattern_lines(session, answer.patterns),
        f"{shown.counted(len(answer.patterns), 'pattern')} in the facts of {read}.",
    )


async def _show_verdict(session: Session, _scope: ScopeOptions) -> None:
    from memtui.service.usecases.pruning import plan_everything
    from memtui.service.usecases.verdict import verdict_of

    answer = await plan_everything(session.service, session.caller)
    model = session.settings.context_model
    found = await asyncio.to_thread(verdict_of, answer, model, session.now)
    cost = None if found.cost_usd is None else f"{found.cost_usd.normalize():f}"
    document = {**asdict(found), "cost_usd": cost, "bindings": answer.bindings}
    session.out.answer(document, [verdict_words(found)], *(one.sentence for one in answer.failed))


async def _show_insights(session: Session, scope: ScopeOptions) -> None:
    from memtui.channels.cli.prune import insight_lines
    from memtui.service.usecases.pruning import plan_everything

    chosen = Filter(binding_key=scope.binding)
    answer = await plan_everything(session.service, session.caller, chosen)
    asked = scope.scope(session)
    of_whom = owner_of(asked)
    everybodys = of_whom[0] == "company_id"
    items = (item for plan in answer.plans.values() for item in plan.items)
    if not everybodys and all(owner_of(item.record.scope) != of_whom for item in items):
        raise NotFound(f"Nothing is remembered of {owner_words(asked)}, so nothing shows.")
    found = [one for one in answer.insights if everybodys or owner_of(one.scope) == of_whom]
    read = shown.counted(len(answer.plans), "binding")
    session.out.answer(
        {"together": answer.together, "bindings": answer.bindings, "insights": found},
        insight_lines(found),
        f"{shown.counted(len(found), 'insight')} over the memories of {read}.",
        *(one.sentence for one in answer.failed),
    )


def _pattern_lines(session: Session, patterns: Sequence[Pattern]) -> Iterator[Line]:
    for one in patterns:
        name = f"{one.namespace}/{one.key}" if one.namespace else one.key
        yield f"{one.kind.replace('_', ' ')}: {name}"
        yield f"    {one.sentence}"
        for version in one.versions:
            record = version.record
            since = shown.exact(record.valid_from, session.zone) if record.valid_from else "before"
            by = f"by {record.created_by}" if record.created_by else ""
            place = f"{owner_words(record.scope)} in {version.binding_key}"
            parts = (since, record.text, by, shown.source_line(record.source), place)
            yield Dim("    " + " · ".join(part for part in parts if part))


def _document(found: Stats) -> dict[str, Any]:
    return {
        **_exact(found),
        "bindings": [
            {"key": one.keys.get("binding"), **_exact(one, exclude={"keys", "begins", "ends"})}
            for one in found.bindings
        ],
        "groups": [_exact(one) for one in found.groups],
    }


def _exact(found: Figures, exclude: set[str] | None = None) -> dict[str, Any]:
    """Return figures as JSON, with the cost in plain digits."""
    document = found.model_dump(mode="json", exclude=exclude)
    return document | {"cost_usd": f"{found.cost_usd.normalize():f}"}


def _lines(
    found: Stats,
    names: tuple[str, ...],
    bucket: str | None,
    pending_count: int | None,
    risks: RiskFigures | None,
) -> Iterator[Line]:
    risky = [("risks", totals(risks))] if risks is not None and risks.records else []
    yield from fields(*_totals(found), *risky)
    if pending_count:
        yield from fields(("held", f"{shown.count(pending_count)} now; memtui review list"))
    if found.bindings:
        yield ""
        rows = ([_key(one, "binding"), *_cells(one)] for one in found.bindings)
        yield from table((*columns("binding*"), *_FIGURES), rows)
    if not found.groups:
        return
    yield ""
    titles = [bucket] if bucket else []
    titles += [name.replace("_", " ") for name in names]
    rows = (
        [
            *([_begin(one.begins, bucket)] if one.begins and bucket else []),
            *(_key(one, name) for name in names),
            *_cells(one),
        ]
        for one in found.groups
    )
    yield from table((*columns(*titles), *_FIGURES), rows)


def _totals(found: Stats) -> Iterator[tuple[str, str]]:
    yield "operations", f"{shown.count(found.operation_count)}, {_failed(found)}"
    if found.left_out_count:
        left_out = shown.count(found.left_out_count)
        yield "left out", f"{left_out} of memtui's own; --internal counts them"
    yield "queries", shown.count(found.query_count)
    yield "writes", shown.count(found.write_count)
    by_hand = shown.count(found.correction_count)
    yield "corrections", f"{by_hand} by people; those of agents do not count"
    read, written, embedded = map(
        shown.count, (found.input_tokens, found.output_tokens, found.embedding_tokens)
    )
    yield "tokens", f"{read} in · {written} out · {embedded} embedding"
    yield "cost", _cost(found)
    p50, p95, p99 = (shown.duration(value) for _, value in found.latency_ms)
    yield "latency", f"p50 {p50} · p95 {p95} · p99 {p99}"
    yield "hit rate", _hits(found)
    if said := found.helped_count + found.not_helped_count:
        yield "helped", _share(found.helped_rate, said, "judged results")
    yield "empty queries", _share(found.empty_query_rate, found.answered_count, "answered queries")


def _failed(found: Figures) -> str:
    share = found.failure_count / found.operation_count if found.operation_count else 0
    stopped = f", {found.cancelled_count:,} were cancelled" if found.cancelled_count else ""
    return f"{found.failure_count:,} of them failed ({share:.1%}){stopped}"


def _cost(found: Stats) -> str:
    if not found.usage_count:
        return "– (nothing was consumed)"
    amount = shown.money(found.cost_usd)
    if not found.unpriced_count:
        return f"{amount}, every call priced"
    calls = shown.counted(found.usage_count, "call")
    share = found.unpriced_count / found.usage_count
    return (
        f"{amount}, and what {found.unpriced_count:,} of {calls} ({share:.1%}) cost is not known: "
        "they have no price"
    )


def _hits(found: Stats) -> str:
    hours = int(USE_WITHIN.total_seconds() // 3600)
    share = _share(found.hit_rate, found.answered_count, "answered queries")
    if found.hit_sign is HitSign.USED:
        return f"{share}; a hit is a query with a record that was opened within {hours} h"
    return f"{share}; a hit is a query with a record at or above the score threshold"


def _share(rate: float | None, count: int, of: str) -> str:
    return f"– (no {of})" if rate is None else f"{rate:.1%} of {count:,} {of}"


def _key(group: FigureGroup, name: str) -> str:
    value = group.keys.get(name)
    return _NOTHING if value is None else value


def _begin(begins: datetime, bucket: str) -> str:
    form = {"hour": "%Y-%m-%d %H:%M %Z", "month": "%Y-%m"}.get(bucket, "%Y-%m-%d")
    return begins.strftime(form)


def _cells(found: FigureGroup) -> list[str]:
    spent = found.input_tokens + found.output_tokens + found.embedding_tokens
    return [
        shown.count(found.operation_count),
        shown.count(found.query_count),
        shown.count(found.write_count),
        shown.count(found.failure_count),
        "–" if found.hit_rate is None else f"{found.hit_rate:.1%}",
        shown.duration(found.latency_ms.p50),
        shown.duration(found.latency_ms.p95),
        shown.count(spent),
        shown.short_money(found.priced_usd, unpriced=found.unpriced_count > 0),
    ]


_RIGHT = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "BIGINT")


async def sql(
    session: Session,
    statement: Annotated[str | None, typer.Argument(metavar="SQL")] = None,
    *,
    views: bool = False,
    form: Annotated[Literal["table", "csv"], typer.Option("--format")] = "table",
    exact: Exact = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000_000)] = 10_000,
    timeout: Annotated[float, typer.Option(min=0.001, max=86_400)] = 60.0,
) -> None:
    """Query the operation log in SQL, in DuckDB's dialect.

    The views operations, usage, handles, records and bindings can be read, and nothing else;
    --views lists their columns. Days are those of your time zone.

    Args:
        statement: One statement that only reads; - reads it from stdin.
        views: List the views and their columns instead.
        form: How to print the rows.
        limit: At most this many rows.
        timeout: Stop it after this many seconds.
    """
    if views:
        await _list_views(session)
        return
    if statement is None:
        raise Invalid("Give a statement, - to read it from stdin, or --views.")
    text = read_stdin() if statement == "-" else statement
    found = await _ask(session, text, limit, timeout)
    if session.out.as_json or form == "table":
        session.out.answer(_sql_document(found), _sql_lines(found))
    else:
        _write_csv(found, exact=exact)
    if found.truncated:
        session.out.say(f"There are more rows than {limit:,}; raise --limit to see them.")


async def _ask(session: Session, statement: str, limit: int, timeout: float) -> SqlAnswer:
    analysis = session.service.analysis
    try:
        return await analysis.sql(
            session.caller,
            statement,
            zone=session.zone_name(),
            time_limit_s=timeout,
            max_rows=limit,
        )
    except CancelledError:
        analysis.cancel_sql(session.caller)
        raise


async def _list_views(session: Session) -> None:
    from memtui.analytics.sql import VIEWS

    document = {}
    for view, meanings in VIEWS.items():
        described = await _ask(session, f"DESCRIBE {view}", 1000, 60.0)
        types = {str(row[0]): str(row[1]) for row in described.rows}
        document[view] = [
            {"name": name, "type": types[name], "meaning": meaning}
            for name, meaning in meanings.items()
        ]
    rows = [
        [view, column["name"], column["type"], column["meaning"]]
        for view, its in document.items()
        for column in its
    ]
    lines = table(columns("view", "column", "type", "meaning*"), rows)
    session.out.answer({"views": document}, lines)


def _sql_document(found: SqlAnswer) -> dict[str, Any]:
    return {
        "columns": list(found.columns),
        "types": list(found.types),
        "rows": [plain(row) for row in found.rows],
        "truncated": found.truncated,
    }


def _sql_lines(found: SqlAnswer) -> Iterator[Line]:
    columns = [
        TextColumn(visible(name), right=kind.startswith(_RIGHT) or kind.endswith("INT"))
        for name, kind in zip(found.columns, found.types, strict=True)
    ]
    yield from table(columns, (_sql_cells(row, "NULL") for row in found.rows))
    yield Dim(shown.counted(len(found.rows), "row"))


def _sql_cells(row: Sequence[Any], null: str) -> list[str]:
    return [null if value is None else plain_text(value) for value in row]


def _write_csv(found: SqlAnswer, *, exact: bool) -> None:
    from memtui.csv_text import cell

    made = io.StringIO(newline="")
    writer = csv.writer(made, lineterminator="\n")
    for row in (found.columns, *(_sql_cells(row, "") for row in found.rows)):
        writer.writerow(row if exact else map(cell, row))
    text = made.getvalue()
    if sys.stdout.isatty():
        text = visible(text, keep_newlines=True)
    write_exactly(text.encode("utf-8", errors="backslashreplace"))
