"""`ops export`: the operations as a file for other programs."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from memtui.doors.cli.nearest import say_unknown_of_operations
from memtui.doors.cli.options import Exact, FilterLine, OperationOptions, ScopeOptions
from memtui.doors.cli.session import Session

_STDOUT = "-"


async def export_operations(
    session: Session,
    scope: ScopeOptions,
    which: OperationOptions,
    line: FilterLine = None,
    *,
    to: Annotated[
        str, typer.Option(metavar="FILE", help="The file to write; - is stdout, for jsonl and csv.")
    ],
    form: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        typer.Option("--format", help="How to write it, if the file's name does not say."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Put it in place of a file that is there.")
    ] = False,
    exact: Exact = False,
) -> None:
    """Write operations, sealed ones too, to a file, in the order of their numbers.

    All of them, unless the filter and the options narrow it. What is in the file is in
    docs/audit.md.
    """
    from memtui.analytics.export import ExportFormat, format_of
    from memtui.contract import Invalid
    from memtui.visible import visible
    from memtui.widgets import format as shown

    if to == _STDOUT and session.out.as_json:
        raise Invalid("--json and --to - would both print on stdout; name a file.")
    chosen = which.filter(session, line, scope)
    if form is not None:
        as_format = ExportFormat(form)
    else:
        as_format = ExportFormat.JSONL if to == _STDOUT else format_of(to)
    target: Path | IO[bytes] = sys.stdout.buffer if to == _STDOUT else Path(to)
    shown_first = io.BytesIO()
    on_terminal = to == _STDOUT and sys.stdout.isatty() and as_format is ExportFormat.CSV
    count = await session.service.analysis.export(
        session.caller,
        shown_first if on_terminal else target,
        as_format,
        chosen,
        force=force,
        exact=exact,
    )
    if on_terminal:
        made = shown_first.getvalue().decode("utf-8", "replace")
        sys.stdout.write(visible(made, keep_newlines=True))
    session.out.answer(
        {"file": to, "operation_count": count, "format": as_format.value}, lambda: ()
    )
    if not session.out.as_json:
        where = "stdout" if to == _STDOUT else to
        session.out.say(f"Wrote {shown.counted(count, 'operation')} to {where}.")
    if not count:
        await say_unknown_of_operations(session, chosen)
