"""`ops`: the operation log, its export, and the import of other systems' logs."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from memtui.channels.cli.marks import changed, marks_of
from memtui.channels.cli.options import (
    Before,
    DryRun,
    Exact,
    FilterLine,
    Force,
    Limit,
    OperationOptions,
    RecordId,
    ScopeOptions,
    complete_binding,
    pairs,
)
from memtui.channels.cli.output import Dim, Line, columns, fields, jsonable, table, ticker
from memtui.channels.cli.records import change_lines, say_no_operation, say_unknown_of_operations
from memtui.channels.cli.session import FirstSession, Session
from memtui.contract import Filter, Invalid, OperationType
from memtui.presenters import format as shown
from memtui.store.operation import OperationPage, Parts, details
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.importing.importer import Import, ImportReport
    from memtui.service import Change, Erasure, Operation
    from memtui.service.answers import TakenBackBy
    from memtui.store.journal import OutcomeCheck


OperationId = Annotated[
    str,
    typer.Argument(
        metavar="OPERATION", help="Its id, the beginning of its id, or its number in the log."
    ),
]
_POLL_SECONDS = 0.5
_ORDERED = 100


async def ops_list(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    limit: Limit = 100,
    before: Before = None,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    parts: bool = False,
) -> int:
    """List operations, newest first.

    The scope options narrow the list. A question over several bindings is one line, with the sums
    of its operations, unless the filter asks for a binding, a status, a word, an amount or a risk.
    With --follow the list continues until ctrl+c, with a line for each binding. Exit 1 if an
    operation is damaged; it is named, and the others are listed.

    Args:
        follow: Continue with new operations; with --json one document a line.
        parts: List a question over several bindings once for each of them.
    """
    chosen = which.filter(session, line, scope)
    await session.service.ask_later(session.caller)
    page = await session.service.log.page(
        session.caller, chosen, limit=limit, before=before, folded=not (parts or follow)
    )
    if follow:
        await _follow(session, chosen, page.operations)
    return await _answer_page(session, chosen, page)


async def in_order(session: Session, line: list[str] | None, sort: str) -> int:
    """List the first operations in the order `sort`."""
    chosen = OperationOptions().filter(session, line, ScopeOptions())
    view = await session.service.analysis.open_log(session.caller, chosen, sort, folded=True)
    try:
        first = await asyncio.to_thread(view.window, 0, _ORDERED)
    finally:
        view.close()
    page = OperationPage(
        operations=first, total=view.count, left_out=view.left_out, folded=view.folded
    )
    return await _answer_page(session, chosen, page)


async def _answer_page(session: Session, chosen: Filter, page: OperationPage) -> int:
    titles = columns(
        "seq>", "when>", "", "type", "binding", "by", "agent", "project", "source", "took>",
        "cost>", "", "what*",
    )  # fmt: skip
    marks = await marks_of(session, (at for one in page.operations for at in changed(one)))
    more = f"; the next page: --before {page.next_before}" if page.next_before else ""
    found, undone = await _later(session, page.operations)
    folded = page.operations if page.folded else ()
    parts = await session.service.log.parts(session.caller, folded)
    backs = {
        name: {
            "by": one.operation.operation_id,
            "whole": one.whole,
            "records": sorted(one.record_ids),
        }
        for name, one in undone.items()
    }
    session.out.answer(
        jsonable(page)
        | {
            "operations": [*map(marks.with_risks, page.operations)],
            "found": jsonable(found),
            "undone": jsonable(backs),
            "parts": {
                name: one.model_dump(mode="json", exclude={"operations"})
                | {"operation_ids": [part.operation_id for part in one.operations]}
                for name, one in parts.items()
            },
        },
        table(
            titles,
            (
                _cells(
                    session,
                    one,
                    found,
                    undone,
                    marks.worst_at(changed(one)),
                    parts=parts.get(one.operation_id),
                )
                for one in page.operations
            ),
        ),
        f"{shown.of_total(len(page.operations), page.total)}{_left_out(page.left_out)}{more}.",
    )
    if not page.total:
        await say_no_operation(session, chosen)
    return say_damaged(session, page.operations)


async def _later(
    session: Session, operations: Sequence[Operation]
) -> tuple[dict[str, OutcomeCheck], dict[str, TakenBackBy]]:
    """Return the findings of checks of operations, and what was undone of them, by id."""
    log, caller = session.service.log, session.caller
    changes = [one.operation_id for one in operations if one.operation_type.mutates]
    return await log.found_outcomes(caller, operations), await log.undone(caller, changes)


async def ops_show(session: Session, operation_id: OperationId) -> int:
    """Show one operation: what was asked, returned and changed.

    Exit 1 if it was altered since it was logged.
    """
    await session.service.ask_later(session.caller)
    operation = await session.service.log.get(session.caller, operation_id)
    changes = await session.service.log.changes(session.caller, operation.operation_id)
    found = await session.service.log.found_outcome(session.caller, operation.operation_id)
    undone = await session.service.log.undone(session.caller, [operation.operation_id])
    back = undone.get(operation.operation_id)
    erasures = await session.service.log.erasures(session.caller, operation)
    problem = await session.service.log.problem(session.caller, operation.operation_id)
    asked = await session.service.log.parts(session.caller, [operation])
    parts = asked.get(operation.operation_id)
    document = jsonable(operation) | {
        "parts": list(parts.operations) if parts else [],
        "problem": problem,
        "changes": [{"before": change.before, "after": change.after} for change in changes],
        "found": found,
        "extraction": shown.extraction(operation, changes, found),
        "undone_by": back.operation.operation_id if back and back.whole else None,
        "undone_records": sorted(back.record_ids) if back else [],
        "erasures": list(erasures),
    }
    lines = _detail(session, operation, changes, found, erasures, back=back, parts=parts)
    session.out.answer(jsonable(document), lines)
    if problem is not None:
        session.out.say(f"{problem} docs/recovery.md says what to do.")
    return 0 if problem is None else 1


async def ops_sources(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    limit: Limit = 50,
) -> int:
    """List the sources of recent writes (runs, issues, comments, documents), newest first.

    The filter and the options narrow the writes that count. Exit 1 if the last write of a source is
    damaged; it is named.
    """
    chosen = which.filter(session, line, scope)
    found = await session.service.log.sources(session.caller, chosen, limit=limit)
    titles = columns("when>", "source*", "records>", "writes>", "by", "agent", "through", "opens*")
    rows = (
        [
            shown.ago(one.last_at, session.now),
            shown.write_source(one.source, one.run_id),
            shown.count(one.records),
            shown.count(one.writes),
            one.principal,
            one.agent_id or "",
            one.channel or ("damaged" if one.problem else ""),
            session.company.link(one.source) or "",
        ]
        for one in found
    )
    more = f"; --limit shows more than {limit}" if len(found) == limit else ""
    session.out.answer(
        {"sources": found}, table(titles, rows), f"{shown.counted(len(found), 'source')}{more}."
    )
    if not found:
        await say_unknown_of_operations(session, chosen)
    problems = [one.problem for one in found if one.problem]
    for problem in problems:
        session.out.say(problem)
    return 1 if problems else 0


async def ops_check(session: Session, operation_id: OperationId) -> None:
    """Find out whether an operation of unknown outcome happened.

    The check is logged as an operation; a change that happened can be undone from then on. The
    result stays, and is shown again without another check.
    """
    log, caller = session.service.log, session.caller
    checked = (await log.get(caller, operation_id)).operation_id
    found = await session.service.check_outcome(caller, checked)
    words = f"{found.sentence} (found by {found.check_id})"
    session.out.answer({"operation_id": checked, **dict(found)}, [words])
    back = (await log.undone(caller, [checked])).get(checked)
    if found.happened and not (back and back.whole):
        session.out.say(f"memtui undo {checked} undoes it.")


def say_damaged(session: Session, operations: Iterable[Operation]) -> int:
    """Name damaged operations; return the exit code."""
    found = [one for one in operations if one.damaged]
    for one in found:
        session.out.say(one.error_message or "")
    return 1 if found else 0


async def _follow(session: Session, chosen: Filter, first: Sequence[Operation]) -> NoReturn:
    """Print `first`, oldest first, then every new operation, until interrupted."""
    newest = max((operation.seq for operation in first), default=0)
    await _print_each(session, first)
    while True:
        page = await session.service.log.page(session.caller, chosen, after=newest)
        await _print_each(session, page.operations)
        newest = max((operation.seq for operation in page.operations), default=newest)
        if not page.operations:
            await session.service.ask_later(session.caller)
            await asyncio.sleep(_POLL_SECONDS)


async def _print_each(session: Session, operations: Sequence[Operation]) -> None:
    say_damaged(session, operations)
    later = await _later(session, operations)
    marks = await marks_of(session, (at for one in operations for at in changed(one)))
    for operation in reversed(operations):
        if session.out.as_json:
            session.out.document(marks.with_risks(operation))
        else:
            cells = _cells(session, operation, *later, marks.worst_at(changed(operation)))
            session.out.line("  ".join(cell for cell in cells if cell))
    sys.stdout.flush()


def _cells(
    session: Session,
    operation: Operation,
    found: Mapping[str, OutcomeCheck],
    undone: Mapping[str, TakenBackBy],
    mark: str,
    *,
    parts: Parts | None = None,
) -> list[str]:
    back = undone.get(operation.operation_id)
    lead, whole = (parts.lead, parts) if parts else (operation, operation)
    what = _what(lead, found.get(operation.operation_id))
    return [
        str(operation.seq),
        shown.ago(operation.started_at, session.now),
        shown.outcome(lead.status, found.get(operation.operation_id)).symbol,
        operation.operation_type.value,
        shown.bindings(parts) if parts else operation.binding_key or "",
        operation.principal,
        operation.scope.agent_id or "",
        operation.scope.project_id or "",
        shown.source_line(operation.source) if operation.source else "",
        shown.duration(whole.latency_ms),
        shown.short_money(whole.cost_usd, unpriced=whole.unpriced),
        mark,
        f"{shown.undone(back)}: {what}" if back else what,
    ]


def _left_out(internal: int) -> str:
    return f" · {shown.left_out(internal)}, --internal shows them" if internal else ""


def _what(operation: Operation, found: OutcomeCheck | None) -> str:
    """Return an operation's error or check, else its request, else its first record."""
    if ending := shown.ending(operation, found):
        return ending
    if words := (
        shown.configured(operation) or shown.judged(operation) or shown.reversal(operation)
    ):
        return words
    is_context = operation.operation_type is OperationType.CONTEXT
    for word in ("query", "prompt", "content", "text", "key", "embedding", "what"):
        value = operation.request.get(word)
        if isinstance(value, str) and not (is_context and word == "text"):
            return value
    if is_context and isinstance(tokens := operation.request.get("tokens"), int):
        return shown.counted(tokens, "token")
    if not operation.handles or operation.erased:
        purpose = operation.request.get("purpose")  # set if another command made this read
        aim = f"for {purpose.replace('_', ' ')}" if isinstance(purpose, str) else ""
        return "erased" if operation.erased else aim
    more = operation.result_count - 1
    return operation.handles[0].provider_record_id + (f" and {more:,} more" if more > 0 else "")


def _detail(
    session: Session,
    operation: Operation,
    changes: Sequence[Change],
    found: OutcomeCheck | None,
    erasures: Sequence[Erasure],
    *,
    back: TakenBackBy | None,
    parts: Parts | None,
) -> Iterator[Line]:
    outcome = shown.outcome(operation.status, found)
    link = operation.source and session.company.link(operation.source)
    scope = operation.scope.model_dump(exclude_none=True)
    request = {name: value for name, value in operation.request.items() if name != "stages"}
    undone = f"  {shown.undone(back)} by #{back.operation.seq}" if back else ""
    yield f"{operation.operation_type} #{operation.seq}  {outcome.symbol} {outcome.word}{undone}"
    yield from fields(
        ("operation", operation.operation_id),
        ("found", f"{found.sentence} (by {found.check_id})" if found else ""),
        ("before that" if found else "error", operation.error_message or ""),
        ("when", shown.exact(operation.started_at, session.zone)),
        ("took", shown.duration(operation.latency_ms)),
        ("by", f"{operation.principal} through {operation.channel}"),
        ("scope", " ".join(f"{name.removesuffix('_id')}:{scope[name]}" for name in scope)),
        ("binding", operation.binding_key or ""),
        *details(operation),
        ("source", shown.source_line(operation.source) if operation.source else ""),
        ("open", link or ""),
        ("tokens", shown.tokens(operation.usage) if operation.usage else ""),
        ("cost", shown.operation_cost(operation) if operation.usage else ""),
        ("undoes", operation.undoes or ""),
        ("digest", operation.digest),
        ("request", json.dumps(request, ensure_ascii=False, default=str)),
    )
    for erasure in erasures:
        when = shown.exact(erasure.at, session.zone)
        yield (
            f"{', '.join(erasure.fields)}: erased on {when}, by {erasure.principal} "
            f"in {erasure.operation_id}"
        )
    for handle in operation.handles:
        also = "  ghost" if handle.ghost else ""
        also += "  undone" if back and handle.provider_record_id in back.record_ids else ""
        record_id = handle.provider_record_id or "erased"
        yield Dim(f"{handle.rank:>4}  {shown.score(handle.score):>6}  {record_id}{also}")
    for stage in operation.stages:
        yield f"{stage.name}: {stage.detail}"
        if stage.scores:
            yield Dim(f"      {shown.by_rank(stage, operation.handles)}")
    if parts is not None:
        yield ""
        yield f"{shown.bindings(parts)}:"
        titles = columns("seq>", "", "binding", "records>", "took>", "cost>", "operation", "error*")
        yield from table(titles, map(_part, parts.operations))
    if extracted := shown.extraction(operation, changes, found):
        texts = [("given", extracted.given or "(not in the log)")]
        yield from fields(*texts, *(("kept", one) for one in extracted.kept or ("nothing",)))
    for change in changes:
        yield from change_lines(session, change)


def _part(operation: Operation) -> list[str]:
    return [
        str(operation.seq), shown.outcome(operation.status).symbol, operation.binding_key or "",
        shown.count(operation.result_count), shown.duration(operation.latency_ms),
        shown.short_money(operation.cost_usd, unpriced=operation.unpriced), operation.operation_id,
        operation.error_message or "",
    ]  # fmt: skip


_STDOUT = ("-", "/dev/stdout")


async def ops_export(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    to: Annotated[str, typer.Option(metavar="FILE")],
    form: Annotated[Literal["jsonl", "csv", "parquet"] | None, typer.Option("--format")] = None,
    force: Force = False,
    exact: Exact = False,
) -> int:
    """Write operations, sealed ones too, to a file, in the order of their numbers.

    It writes all of them, unless the filter and the options narrow it. docs/audit.md describes the
    file. Exit 1 if an operation is damaged; it is written as it is stored.

    Args:
        to: The file to write; - is stdout, for jsonl and csv.
        form: How to write it, if the file's name does not say.
    """
    from memtui.analytics.export import ExportFormat, format_of

    is_stdout = to in _STDOUT
    if is_stdout and session.out.as_json:
        raise Invalid(f"--json and --to {to} would both print on stdout; name a file.")
    chosen = which.filter(session, line, scope)
    form = form or ("jsonl" if is_stdout else None)
    as_format = ExportFormat(form) if form else format_of(to)
    target: Path | IO[bytes] = sys.stdout.buffer if is_stdout else Path(to)
    on_terminal = is_stdout and sys.stdout.isatty() and as_format is ExportFormat.CSV
    made = io.BytesIO()
    done = await session.service.analysis.export(
        session.caller,
        made if on_terminal else target,
        as_format,
        chosen,
        force=force,
        exact=exact,
    )
    if on_terminal:
        sys.stdout.write(visible(made.getvalue().decode("utf-8", "replace"), keep_newlines=True))
    session.out.answer(
        {
            "file": to,
            "operation_count": done.operations,
            "damaged_count": done.damaged,
            "format": as_format.value,
        },
        (),
        f"Wrote {shown.counted(done.operations, 'operation')} to {'stdout' if is_stdout else to}.",
    )
    if not done.operations:
        await say_unknown_of_operations(session, chosen)
    if done.problem is not None:
        session.out.say(done.problem)
    return 0 if done.problem is None else 1


FormatName = Literal["jsonl", "csv", "parquet", "claude-code"]


async def ops_import(
    session: FirstSession,
    files: Annotated[list[Path], typer.Argument(metavar="FILE")],
    *,
    company: str | None = None,
    expressions: Annotated[
        list[str] | None, typer.Option("--map", metavar="FIELD=EXPRESSION")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="EXPRESSION")] = None,
    timezone: str | None = None,
    form: Annotated[FormatName | None, typer.Option("--format")] = None,
    skip_bad: bool = False,
    dry_run: DryRun = False,
) -> int:
    """Import another system's operation log as a new company.

    A company that does not exist is created, read-only. Operations that were imported before are
    not added again, so that a log that has grown can be imported again. If a row does not fit,
    nothing is imported, unless --skip-bad is given. docs/import.md lists the fields.

    Args:
        files: Logs of one format, or transcripts of Claude Code and folders of them.
        company: The company to import into; left out: one named after the first file.
        expressions: A field as an expression in DuckDB's SQL over the file's columns; left out: the
            column of its name.
        where: Import only rows of which this is true.
        timezone: Zone of times that name none, such as Europe/Berlin; else UTC.
        form: The format, if the file's name and content do not tell.
        skip_bad: Leave out rows that do not fit.
    """
    from memtui.importing.importer import Import, company_for

    work = Import(
        files,
        company or company_for(files, form),
        pairs(expressions, "--map"),
        where=where,
        timezone=timezone,
        form=form,
    )
    gc.freeze()  # a large import would scan all present objects again and again
    try:
        with ticker(on_terminal_only=True) as show:
            report = await work.run(
                session.service,
                session.caller,
                skip_bad=skip_bad,
                dry_run=dry_run,
                report=lambda what, count: show(f"{count:,} {what}"),
            )
    finally:
        gc.unfreeze()
        work.close()
        _tell_bad(session, work)
    session.out.answer(report, _lines(report))
    is_strict = report.format != "claude-code" and not skip_bad
    return 1 if dry_run and report.bad_count and is_strict else 0


def _tell_bad(session: Session, work: Import) -> None:
    for row in work.bad:
        session.out.say(f"{row.file} line {row.line}: {row.reason}")
    if (more := work.bad_count - len(work.bad)) > 0:
        session.out.say(f"and {more:,} more that do not fit")


def _lines(report: ImportReport) -> Iterator[Line]:
    if report.dry_run and report.fields:
        yield from table(columns("field", "made of"), map(list, report.fields.items()))
        yield ""
    yield from fields(*_facts(report))
    words = ("would be added", "there already") if report.dry_run else ("added", "there already")
    parts = [f"{report.added:,} {words[0]}", f"{report.known:,} {words[1]}"]
    if report.bad_count:
        parts.append(f"{report.bad_count:,} left out")
    yield ", ".join(parts)
    if report.unmeasured_count:
        count = shown.counted(report.unmeasured_count, "operation")
        yield Dim(f"{count} without a duration; percentiles are of the others")


def _facts(report: ImportReport) -> Iterator[tuple[str, str]]:
    made = (" (to be made)" if report.dry_run else " (new)") if report.created else ""
    yield "company", f"{report.company_id}{made}"
    yield "format", report.format
    least = "at least " if report.bad_count else ""
    yield "operations", f"{least}{shown.count(report.operations)}"
    if report.first is not None and report.last is not None:
        yield "from", report.first.isoformat(sep=" ", timespec="seconds")
        yield "to", report.last.isoformat(sep=" ", timespec="seconds")
    if report.naive_count:
        count = shown.counted(report.naive_count, "time")
        yield "zone", f"{count} named no zone, read as {report.timezone}"
    yield "types", _counted(report.types_count)
    yield "outcomes", _counted(report.status_count)
    if report.usage_count:
        words = ("in", "out", "embedded")
        counts = (report.input_tokens, report.output_tokens, report.embedding_tokens)
        tokens = [f"{count:,} {word}" for count, word in zip(counts, words, strict=True)]
        yield "tokens", f"{least}{', '.join(tokens)}"
        yield "cost", f"{least if report.cost_usd is not None else ''}{_cost(report)}"
    yield "kept", ", ".join(report.kept)
    yield "skipped", _counted(report.skipped)
    if report.repeated:
        yield "repeated", shown.counted(report.repeated, "line")


def _cost(report: ImportReport) -> str:
    parts = ["unpriced" if report.cost_usd is None else f"${report.cost_usd:,.6f}"]
    if report.priced_here_count:
        parts.append(f"{report.priced_here_count:,} priced by memtui's table")
    if report.unpriced_count and report.cost_usd is not None:
        parts.append(f"{report.unpriced_count:,} unpriced")
    return ", ".join(parts)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{word} {count:,}" for word, count in sorted(counts.items()))


async def ops_feedback(
    session: Session,
    operation_id: Annotated[str, typer.Argument(metavar="OPERATION")],
    record_id: RecordId,
    *,
    helped: bool = False,
    not_helped: Annotated[bool, typer.Option("--not")] = False,
    withdraw: bool = False,
    binding: Annotated[str | None, typer.Option(autocompletion=complete_binding)] = None,
) -> None:
    """Say whether a record that a query or a context returned helped.

    Your last verdict counts in the figures, and is shown with the record.

    Args:
        operation_id: The query or context that returned it: its id, the beginning of it, or its
            number.
        helped: It helped.
        not_helped: It did not help.
        withdraw: Withdraw what you said of it before.
        binding: The record's binding, where several returned a record of this id.
    """
    from memtui.service.operations.feedback import Verdict

    said = {Verdict.HELPED: helped, Verdict.NOT_HELPED: not_helped, Verdict.WITHDRAWN: withdraw}
    chosen = [verdict for verdict, is_said in said.items() if is_said]
    if len(chosen) != 1:
        raise Invalid("Give one of --helped, --not and --withdraw.")
    answer = await session.service.feedback.say(
        session.caller, record_id, chosen[0], operation_id=operation_id, binding_key=binding
    )
    name = answer.handle.provider_record_id
    session.out.answer(answer, [f"{shown.VERDICTS[answer.verdict]}: {name}"])
