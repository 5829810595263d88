"""Rows of foreign files, one after the other, with the line that each stands in."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from pydantic_core import from_json

from memtui.contract import Invalid
from memtui.csv_text import text_of
from memtui.json_text import spliced_json
from memtui.paths import refuse_other_than_file

_OWN = {
    "spanId": "id",
    "traceId": "trace_id",
    "parentSpanId": "parent_span_id",
    "name": "name",
    "startTimeUnixNano": "start_time",
    "endTimeUnixNano": "end_time",
}
"""What is taken of a span, and the name of its column."""

_STATUS = {0: "ok", 1: "ok", 2: "error"}
_NUMBERS = {"intValue": int, "doubleValue": float}


def is_batch(document: Mapping[str, Any]) -> bool:
    """Tell whether a line is a batch of spans."""
    return isinstance(document.get("resourceSpans"), list)


def spans(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans of a batch as flat rows, with the attributes of their resource.

    Raises:
        ValueError: it is not a batch in OTLP's JSON.
    """
    try:
        for resource in document["resourceSpans"]:
            shared = _attributes(resource.get("resource", {}).get("attributes", ()))
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    yield shared | _row(span)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("it is not OTLP JSON") from error


def _row(span: Mapping[str, Any]) -> dict[str, Any]:
    row = {column: span[name] for name, column in _OWN.items() if span.get(name)}
    status = span.get("status", {})
    row["status"] = _STATUS[status.get("code", 0)]
    if status.get("message"):
        row["status_message"] = status["message"]
    return row | _attributes(span.get("attributes", ()))


def _attributes(given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {one["key"]: _value(one["value"]) for one in given}


def _value(given: Mapping[str, Any]) -> Any:
    [(kind, value)] = given.items()
    if kind == "arrayValue":
        return [_value(one) for one in value.get("values", ())]
    if kind == "kvlistValue":
        return _attributes(value.get("values", ()))
    return _NUMBERS[kind](value) if kind in _NUMBERS else value


FormatName = Literal["jsonl", "csv", "parquet", "claude-code"]

_ENDINGS: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_LINE_BYTES = 16 << 20
"""A longer line is refused."""
_CHUNK = 1 << 20
_BEGIN, _BETWEEN = re.compile(r"\s*\[\s*"), re.compile(r"[\s,]*")
_BATCH = 2_000
_LOOKED_AT = 50
"""Lines that are looked at to tell a transcript from a log."""
_TRANSCRIPT = {"sessionId", "type", "uuid"}
"""What a line of a transcript has, most of them."""
_DEPTH = 4
_WHOLE = "request"
"""The structure that is a field of its own."""


class Row(NamedTuple):
    """A row: its columns by name, or why it cannot be read."""

    line: int
    """From 1; in Parquet the number of the row."""
    values: dict[str, Any] | None
    problem: str = ""


def format_of(path: Path) -> FormatName:
    """Return a file's format by its ending; Claude Code's transcripts are told by what they hold.

    Raises:
        Invalid: the ending tells nothing, or there is no such file.
    """
    if path.is_dir():
        return "claude-code"
    found = _ENDINGS.get(path.suffix.lower())
    if found is None:
        untold = f"The name of {path} does not tell its format; give --format."
        raise Invalid(untold if path.exists() else f"There is no file {path}.")
    return "claude-code" if found == "jsonl" and _is_transcript(path) else found


def _is_transcript(path: Path) -> bool:
    for row in json_lines(path):
        values = row.values or {}
        if values.keys() >= _TRANSCRIPT:
            return True
        if row.line >= _LOOKED_AT:
            break
    return False


def read(path: Path, form: FormatName) -> Iterator[Row]:
    """Yield the rows of a log; structures in JSON become columns with dots in their names.

    Raises:
        Invalid: the file cannot be read, or is of another format.
    """
    if form == "csv":
        yield from _csv_rows(path)
    elif form == "parquet":
        yield from _parquet_rows(path)
    else:
        for row in json_lines(path):
            if row.values is None:
                yield row
            elif is_batch(row.values):
                yield from _spans(row.line, row.values)
            else:
                yield row._replace(values=_flat(row.values))


def _spans(line: int, batch: dict[str, Any]) -> Iterator[Row]:
    try:
        for span in spans(batch):
            yield Row(line, span)
    except ValueError as error:
        yield Row(line, None, str(error))


def json_lines(path: Path, *, spliced: bool = False) -> Iterator[Row]:
    """Yield the JSON object of every line that is not empty, or of every one in an array.

    `spliced`: a line that is no JSON may hold several objects, and parts of some.

    Raises:
        Invalid: the file cannot be read.
    """
    refuse_other_than_file(path)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LINE_BYTES + 1):
                number += 1
                if len(line) > _LINE_BYTES:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(_LINE_BYTES)
                    yield Row(number, None, f"it is longer than {_LINE_BYTES >> 20} MiB")
                elif stripped := line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip():
                    if number == 1 and stripped.startswith(b"["):
                        with path.open(encoding="utf-8-sig", errors="surrogateescape") as text:
                            yield from _array_rows(text)
                        return
                    row = _json_row(number, stripped)
                    if spliced and row.values is None:
                        yield from _spliced_rows(row, stripped)
                    else:
                        yield row
    except OSError as error:
        raise _unreadable(path, error) from error


def _spliced_rows(row: Row, line: bytes) -> Iterator[Row]:
    found = list(spliced_json(line))
    if not any(found):
        yield row
        return
    for values in found:
        yield Row(row.line, values, "" if values is not None else "part of it is lost")


def _array_rows(text: TextIO) -> Iterator[Row]:
    """Yield the elements of an array, with the line that each begins in."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    held, at, line = text.read(_CHUNK), 0, 1
    between = _BEGIN
    while True:
        begins = between.match(held, at).end()  # type: ignore[union-attr]  # it matches anything
        line += held.count("\n", at, begins)
        at, between = begins, _BETWEEN
        try:
            value, end = decoder.raw_decode(held, at)
        except (ValueError, RecursionError):
            if len(held) - at <= _LINE_BYTES and (more := text.read(_CHUNK)):
                held, at = held[at:] + more, 0
                continue
            if not held.startswith("]", at):
                yield Row(line, None, "it is not JSON, nor is what follows")
            return
        if not isinstance(value, dict):
            yield Row(line, None, "it is not a JSON object")
        elif _is_unicode(held[at:end]):
            yield Row(line, value)
        else:
            yield Row(line, None, "it is not UTF-8 text")
        line += held.count("\n", at, end)
        at = end


def _json_row(number: int, line: bytes) -> Row:
    try:
        value = from_json(line, allow_inf_nan=False)
    except ValueError:  # also for what the standard library can read, such as a lone surrogate
        try:
            value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError:
            return Row(number, None, "it is not UTF-8 text")
        except (ValueError, RecursionError):
            return Row(number, None, "it is not JSON")
    if not isinstance(value, dict):
        return Row(number, None, "it is not a JSON object")
    return Row(number, value)


def _refuse_constant(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON


def _flat(values: dict[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    if not prefix and dict not in map(type, values.values()):
        return values
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and depth < _DEPTH and prefix + name != _WHOLE:
            found.update(_flat(value, f"{prefix}{name}.", depth + 1))
        else:
            found[prefix + name] = value
    return found


def _csv_rows(path: Path) -> Iterator[Row]:
    refuse_other_than_file(path)
    csv.field_size_limit(_LINE_BYTES)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            start = file.readline(_LINE_BYTES)
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t|", key=start.count))
            names = [name.strip() for name in next(reader, [])]
            if len(set(names)) < len(names) or not all(names):
                raise Invalid(f"The first line of {path} has to name every column, each once.")
            yield from _csv_body(reader, names)
    except OSError as error:
        raise _unreadable(path, error) from error


def _csv_body(reader: Any, names: list[str]) -> Iterator[Row]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(line, None, f"it is not CSV ({error})")
            continue
        if not cells:
            continue
        if len(cells) != len(names):
            yield Row(line, None, f"it has {len(cells)} cells and the first line {len(names)}")
        elif not _is_unicode("".join(cells)):
            yield Row(line, None, "it is not UTF-8 text")
        else:
            yield Row(line, dict(zip(names, map(text_of, cells), strict=True)))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_rows(path: Path) -> Iterator[Row]:
    import duckdb

    from memtui.analytics.engine import first_line, opened

    refuse_other_than_file(path)
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                raise Invalid(f"{path} is not a Parquet file.")
    except OSError as error:
        raise _unreadable(path, error) from error
    with opened() as duck:
        try:
            found = duck.execute("SELECT * FROM read_parquet(?)", [str(path)])
            names = [column[0] for column in found.description or ()]
            line = 0
            while rows := found.fetchmany(_BATCH):
                for cells in rows:
                    line += 1
                    yield Row(line, _flat(dict(zip(names, cells, strict=True))))
        except duckdb.Error as error:
            raise Invalid(f"{path} cannot be read as Parquet ({first_line(error)}).") from error


def _unreadable(path: Path, error: OSError) -> Invalid:
    return Invalid(f"{path} cannot be read ({error.strerror}).")
