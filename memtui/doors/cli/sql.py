"""`sql`: any question about the operation log, in SQL."""

from __future__ import annotations

import csv
import io
import math
import sys
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtui.doors.cli.options import Exact
from memtui.doors.cli.output import Dim, Line, jsonable
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, table

if TYPE_CHECKING:
    from memtui.analytics.sql import SqlAnswer

_STDIN = "-"
_NULL = "NULL"
_RIGHT = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "BIGINT")


async def sql(
    session: Session,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="One statement that reads; - takes it from stdin."),
    ] = None,
    *,
    views: Annotated[
        bool, typer.Option("--views", help="List the views and their columns instead.")
    ] = False,
    form: Annotated[
        Literal["table", "csv"], typer.Option("--format", help="How to print the rows.")
    ] = "table",
    exact: Exact = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000_000, help="At most this many rows.")
    ] = 10_000,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Stop it after this many seconds.")
    ] = 60.0,
) -> None:
    """Ask anything about the operation log in SQL, in DuckDB's dialect.

    The views operations, usage, handles and bindings can be read, and nothing else; docs/sql.md has
    their columns. Days are cut in your time zone.
    """
    from memtui.contract import Invalid

    if views:
        await _list_views(session)
        return
    if statement is None:
        raise Invalid("Give a statement, - to read it from stdin, or --views.")
    found = await _ask(session, _read() if statement == _STDIN else statement, limit, timeout)
    if session.out.as_json or form == "table":
        session.out.answer(_document(found), lambda: _lines(found))
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
    for view, columns in VIEWS.items():
        described = await _ask(session, f"DESCRIBE {view}", 1000, 60.0)
        types = {str(row[0]): str(row[1]) for row in described.rows}
        document[view] = [
            {"name": column.name, "type": types[column.name], "meaning": column.meaning}
            for column in columns
        ]
    session.out.answer({"views": document}, lambda: _views(document))


def _views(document: dict[str, list[dict[str, str]]]) -> Iterator[Line]:
    columns = (Column("view"), Column("column"), Column("type"), Column("meaning", stretch=True))
    rows = (
        [view, column["name"], column["type"], column["meaning"]]
        for view, its in document.items()
        for column in its
    )
    yield from table(columns, rows)


def _read() -> str:
    from memtui.contract import Invalid

    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid("The statement on stdin is not UTF-8 text.") from error


def plain(value: Any) -> Any:
    """Return the JSON form of a value that DuckDB answered.

    Decimals are text, as money is everywhere; moments, days and intervals too. A number that is
    none is `NaN`, `Infinity` or `-Infinity` as text, bytes are hexadecimal.
    """
    if isinstance(value, dict):
        return {_text(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _infinite(value)
    return value.hex() if isinstance(value, bytes) else _written(value)


def _written(value: Any) -> str:
    """Return a decimal without an exponent, a moment or day in ISO 8601, all else as it prints."""
    from decimal import Decimal

    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def _infinite(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _document(found: SqlAnswer) -> dict[str, Any]:
    return {
        "columns": list(found.columns),
        "types": list(found.types),
        "rows": [plain(row) for row in found.rows],
        "truncated": found.truncated,
    }


def _lines(found: SqlAnswer) -> Iterator[Line]:
    from memtui.visible import visible
    from memtui.widgets import format as shown

    columns = [
        Column(visible(name), right=kind.startswith(_RIGHT) or kind.endswith("INT"))
        for name, kind in zip(found.columns, found.types, strict=True)
    ]
    yield from table(columns, (_cells(row, _NULL) for row in found.rows))
    yield Dim(shown.counted(len(found.rows), "row"))


def _cells(row: Sequence[Any], null: str) -> list[str]:
    return [null if value is None else _text(value) for value in row]


def _text(value: Any) -> str:
    from memtui.json_text import json_text

    found = plain(value)
    return found if isinstance(found, str) else json_text(jsonable(found))


def _write_csv(found: SqlAnswer, *, exact: bool) -> None:
    from memtui.csv_text import cell
    from memtui.visible import visible

    made = io.StringIO(newline="")
    writer = csv.writer(made, lineterminator="\n")
    for row in (found.columns, *(_cells(row, "") for row in found.rows)):
        writer.writerow(row if exact else map(cell, row))
    text = made.getvalue()
    if sys.stdout.isatty():
        text = visible(text, keep_newlines=True)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", errors="backslashreplace"))
    sys.stdout.buffer.flush()
