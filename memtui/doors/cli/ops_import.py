"""`ops import`: another system's operation log, as a company of its own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.doors.cli.options import pairs
from memtui.doors.cli.output import Dim, Line
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, facts, table

if TYPE_CHECKING:
    from memtui.importing.importer import Import, ImportReport

FormatName = Literal["jsonl", "csv", "parquet", "claude-code"]

_COLUMNS = (Column("column"), Column("becomes"))


async def import_operations(
    session: Session,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Logs of one format, or transcripts of Claude Code and folders of them.",
        ),
    ],
    *,
    company: Annotated[
        str | None,
        typer.Option(help="The company they become; named after the first file if left out."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="COLUMN=FIELD",
            help="What a column is, or a .toml file that says it of many; the rest is guessed.",
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--map-type", metavar="WORD=TYPE", help="What a word of theirs means; - leaves out."
        ),
    ] = None,
    statuses: Annotated[
        list[str] | None,
        typer.Option("--map-status", metavar="WORD=STATUS", help="The same for outcomes."),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="For rows that have no such value."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Zone of times that name none, such as Europe/Berlin; else UTC."),
    ] = None,
    form: Annotated[
        FormatName | None,
        typer.Option("--format", help="Where the file's name and content do not tell."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows that do not fit.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be imported, and change nothing.")
    ] = False,
) -> int:
    """Import another system's operation log as a company of its own.

    A company that is not there is made, read-only. What was imported before is not added again, so
    that a log which has grown can be imported once more. If a row does not fit nothing is imported,
    unless --skip-bad. docs/import.md lists the fields.
    """
    from memtui.importing.columns import column_map
    from memtui.importing.importer import Import, company_for

    chosen = column_map(
        columns or (),
        types=pairs(types, "--map-type"),
        statuses=pairs(statuses, "--map-status"),
        constants=pairs(constants, "--set"),
        timezone=timezone,
    )
    gc.freeze()  # what is there by now stays: a large import would look at it again and again
    target = company or company_for(files, form)
    ticker = _Ticker()
    work = Import(files, target, chosen, form=form)
    try:
        report = await work.run(
            session.service,
            session.caller,
            skip_bad=skip_bad,
            dry_run=dry_run,
            report=ticker.show,
        )
    finally:
        ticker.end()
        work.close()
        _tell_bad(session, work)
    session.out.answer(report, lambda: _lines(report))
    return 1 if dry_run and report.bad_count and not skip_bad else 0


class _Ticker:
    """One line on stderr, on a terminal, that says how far it has come."""

    def __init__(self) -> None:
        self._is_open = False

    def show(self, what: str, count: int) -> None:
        """Show how many operations were read or gone through."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{count:,} {what}")
            sys.stderr.flush()
            self._is_open = True

    def end(self) -> None:
        """Leave the line."""
        if self._is_open:
            sys.stderr.write("\n")
            self._is_open = False


def _tell_bad(session: Session, work: Import) -> None:
    for row in work.bad:
        session.out.say(f"{row.file} line {row.line}: {row.reason}")
    if (more := work.bad_count - len(work.bad)) > 0:
        session.out.say(f"and {more:,} more that do not fit")


def _lines(report: ImportReport) -> Iterator[Line]:
    from memtui.widgets import format as shown

    if report.dry_run and report.columns:
        yield from table(_COLUMNS, [[one.column, one.field] for one in report.columns])
        yield ""
    yield from facts(list(_facts(report)))
    words = ("would be added", "there already") if report.dry_run else ("added", "there already")
    parts = [f"{report.added:,} {words[0]}", f"{report.known:,} {words[1]}"]
    if report.bad_count:
        parts.append(f"{report.bad_count:,} left out")
    yield ", ".join(parts)
    if report.unmeasured_count:
        count = shown.counted(report.unmeasured_count, "operation")
        yield Dim(f"{count} without a duration; percentiles are of the others")


def _facts(report: ImportReport) -> Iterator[tuple[str, str]]:
    from memtui.widgets import format as shown

    made = (" (to be made)" if report.dry_run else " (new)") if report.created else ""
    yield "company", f"{report.company_id}{made}"
    yield "format", report.format
    yield "operations", shown.count(report.operations)
    if report.first is not None and report.last is not None:
        yield "from", report.first.isoformat(sep=" ", timespec="seconds")
        yield "to", report.last.isoformat(sep=" ", timespec="seconds")
    if report.naive_count:
        count = shown.counted(report.naive_count, "time")
        yield "zone", f"{count} named no zone, read as {report.timezone}"
    yield "types", _counted(report.types_count)
    guessed = {word: kind for word, kind in report.types.items() if word != kind}
    yield "taken for", ", ".join(f"{word} → {kind}" for word, kind in list(guessed.items())[:20])
    yield "outcomes", _counted(report.status_count)
    if report.usage_count:
        words = ("in", "out", "embedded")
        counts = (report.input_tokens, report.output_tokens, report.embedding_tokens)
        tokens = [f"{count:,} {word}" for count, word in zip(counts, words, strict=True)]
        yield "tokens", ", ".join(tokens)
        yield "cost", _cost(report)
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
