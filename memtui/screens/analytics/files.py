"""Writes figures and results as CSV, JSON or Parquet, and charts as SVG; blocking."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.strip import Strip

from memtui.analytics.engine import DuckDb
from memtui.analytics.figures import FigureGroup, Figures, Latency
from memtui.contract import Unavailable
from memtui.csv_text import cell
from memtui.json_text import plain, plain_text
from memtui.screens.exports import write_file
from memtui.screens.picture import slim
from memtui.store.database import quoted

if TYPE_CHECKING:
    from memtui.analytics.sql import SqlAnswer

_KINDS = {
    name: "BIGINT" if field.annotation is int else "DECIMAL(38, 12)"
    for name, field in Figures.model_fields.items()
    if field.annotation is not Latency
} | dict.fromkeys(Figures.model_computed_fields, "DOUBLE")
"""The type of every figure except the latency."""
_LATENCY = tuple(Latency.model_fields)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns with DuckDB's types."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def figures_table(groups: Sequence[FigureGroup]) -> Table:
    """Return figures as a table: keys, begin and end of the bucket, then every figure."""
    keys = tuple(dict.fromkeys(key for one in groups for key in one.keys))
    timed = any(one.begins for one in groups)
    times = ("begins", "ends") if timed else ()
    return Table(
        (*keys, *times, *_KINDS, *(f"latency_ms_{name}" for name in _LATENCY)),
        (
            *("VARCHAR" for _ in keys),
            *("TIMESTAMP WITH TIME ZONE" for _ in times),
            *_KINDS.values(),
            *("DOUBLE" for _ in _LATENCY),
        ),
        tuple(
            (
                *(one.keys.get(key) for key in keys),
                *((one.begins, one.ends) if timed else ()),
                *(getattr(one, name) for name in _KINDS),
                *(getattr(one.latency_ms, name) for name in _LATENCY),
            )
            for one in groups
        ),
    )


def write_table(path: Path, table: Table | SqlAnswer, *, overwrite: bool) -> None:
    """Write a table in the format of the file's suffix, with `write_file`."""
    write = {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}
    write_file(path, lambda work: write[path.suffix.lower()](work, table), overwrite=overwrite)


def _write_csv(work: Path, table: Table | SqlAnswer) -> None:
    with work.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(cell, table.columns))
        for row in table.rows:
            writer.writerow(["" if value is None else cell(plain_text(value)) for value in row])


def _write_json(work: Path, table: Table | SqlAnswer) -> None:
    rows = [dict(zip(table.columns, map(plain, row), strict=True)) for row in table.rows]
    work.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _write_parquet(work: Path, table: Table | SqlAnswer) -> None:
    import duckdb

    named = _unique(table.columns)
    engine = DuckDb()
    try:
        duck = engine.connection
        kinds = [_storable(duck, kind) for kind in table.types]
        columns = ", ".join(
            f"{name} {kind or 'VARCHAR'}" for name, kind in zip(named, kinds, strict=True)
        )
        duck.execute(f"CREATE TABLE rows ({columns})")
        with duck.appender("rows") as rows:
            rows.append_rows(
                [
                    tuple(
                        value if kind or value is None else plain_text(value)
                        for value, kind in zip(row, kinds, strict=True)
                    )
                    for row in table.rows
                ]
            )
        duck.execute(f"COPY rows TO {quoted(work)} (FORMAT parquet, COMPRESSION zstd)")
    except duckdb.Error as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise Unavailable(f"This cannot be written as Parquet ({first}); choose CSV.") from error
    finally:
        engine.close()


def _storable(duck: Any, kind: str) -> str:
    """Return the column type for Parquet; empty: the values are written as text."""
    import duckdb

    if kind in {"JSON", '"NULL"'} or kind.startswith(("UNION", "MAP")):
        return ""
    try:
        duck.execute(f"SELECT NULL::{kind}")
    except duckdb.Error:
        return ""
    return kind


def _unique(columns: Sequence[str]) -> list[str]:
    """Return the names quoted and made unique with numbers."""
    named: list[str] = []
    taken: set[str] = set()
    for column in columns:
        name, number = column or "column", 1
        while name.casefold() in taken:
            number += 1
            name = f"{column}_{number}"
        taken.add(name.casefold())
        named.append('"' + name.replace('"', '""') + '"')
    return named


def write_svg(path: Path, strips: Sequence[Strip], title: str, *, overwrite: bool) -> None:
    """Write terminal lines as an SVG picture, with `write_file`."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    width = max((strip.cell_length for strip in strips), default=1)
    console = Console(
        width=width,
        file=io.StringIO(),
        record=True,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    for strip in strips:
        console.print(Segments([*strip, Segment.line()]), end="")
    picture = slim(console.export_svg(title=title))
    write_file(path, lambda work: work.write_text(picture, encoding="utf-8"), overwrite=overwrite)
