"""Read the rows of foreign files, in order, each with its line number."""

import codecs
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic_core import from_json

from memtui.contract import Invalid
from memtui.csv_text import text_of
from memtui.json_text import spliced_json
from memtui.paths import refuse_other_than_file

FormatName = Literal["jsonl", "csv", "parquet", "claude-code"]

_ENDINGS: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_BOM = codecs.BOM_UTF8
_LINE_BYTES = 16 << 20
"""A longer line is refused."""
_ARRAY_BYTES = 256 << 20
"""A larger file of one JSON array is refused, as an array is read whole."""
_LOOKED_AT = 50
"""How many lines of a file are searched for one of a transcript."""
_TRANSCRIPT = {"sessionId", "type", "uuid"}
"""Fields that most lines of a transcript have."""
_OWN_EXPORT = {"operation_id", "operation_type", "scope", "source", "digest"}
"""Fields that every line of memtui's own export has."""


class Row(NamedTuple):
    """A row: its values by column, or the reason why it cannot be read."""

    line: int
    """Counted from 1; in Parquet and in a JSON array the number of the row."""
    values: dict[str, Any] | None
    problem: str = ""


def format_of(path: Path) -> FormatName:
    """Return a file's format by its ending; a transcript of Claude Code by its content.

    A folder contains transcripts.

    Raises:
        Invalid: the ending is unknown, or there is no such file.
    """
    if path.is_dir():
        return "claude-code"
    found = _ENDINGS.get(path.suffix.lower())
    if found is None:
        untold = f"The name of {path} does not show its format; add --format."
        raise Invalid(untold if path.exists() else f"There is no file {path}; check its path.")
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
    """Yield the rows of a log in CSV or JSON.

    Raises:
        Invalid: the file cannot be read, or is of another format.
    """
    if form == "csv":
        yield from _csv_rows(path)
        return
    for row in json_lines(path):
        is_own = row.values is not None and row.values.keys() >= _OWN_EXPORT
        yield _own_row(row) if is_own else row


def _own_row(row: Row) -> Row:
    """Return a row of memtui's JSON export with the columns of its CSV export."""
    values = {**(row.values or {})}
    scope, source = values.pop("scope") or {}, values.pop("source") or {}
    named = {f"source_{name}": value for name, value in source.items()}
    return row._replace(values=values | scope | named)


def json_lines(path: Path, *, spliced: bool = False) -> Iterator[Row]:
    """Yield the JSON object of each line that is not empty, or each element of a JSON array.

    `spliced`: a line that is not JSON is searched for whole objects and for parts of others.

    Raises:
        Invalid: the file cannot be read.
    """
    refuse_other_than_file(path)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LINE_BYTES + 1):
                number += 1
                if number == 1 and line.removeprefix(_BOM).lstrip().startswith(b"["):
                    yield from _array_rows(path)
                    return
                if len(line) > _LINE_BYTES:
                    # The rest of the line is skipped, so that the next row begins with its line.
                    while line and not line.endswith(b"\n"):
                        line = file.readline(_LINE_BYTES)
                    yield Row(number, None, f"it is longer than {_LINE_BYTES >> 20} MiB")
                elif stripped := line.removeprefix(_BOM if number == 1 else b"").strip():
                    row = _object_row(number, *_parsed(stripped))
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


def _array_rows(path: Path) -> Iterator[Row]:
    if path.stat().st_size > _ARRAY_BYTES:
        raise Invalid(
            f"{path} is one JSON array of more than {_ARRAY_BYTES >> 20} MiB; write one object on "
            "each line, as jq -c '.[]' does."
        )
    found, problem = _parsed(path.read_bytes().removeprefix(_BOM))
    if problem:
        yield Row(1, None, problem)
        return
    for number, value in enumerate(found, 1):
        yield _object_row(number, value)


def _object_row(number: int, value: Any, problem: str = "") -> Row:
    if not problem and not isinstance(value, dict):
        problem = "it is not a JSON object"
    return Row(number, None if problem else value, problem)


def _parsed(text: bytes) -> tuple[Any, str]:
    """Return the value of a JSON text, or None with the reason why it is not JSON."""
    try:
        return from_json(text, allow_inf_nan=False), ""
    except ValueError:  # also for texts that the standard library reads, as with a lone surrogate
        try:
            return json.loads(text.decode("utf-8"), parse_constant=_refuse_constant), ""
        except UnicodeDecodeError:
            return None, "it is not UTF-8 text"
        except (ValueError, RecursionError):
            return None, "it is not JSON"


def _refuse_constant(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON


def _csv_rows(path: Path) -> Iterator[Row]:
    refuse_other_than_file(path)
    csv.field_size_limit(_LINE_BYTES)
    try:
        # Invalid UTF-8 becomes lone surrogates, so that only its row is refused.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            # The separator is the one that the first line has most often.
            start = file.readline(_LINE_BYTES)
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t|", key=start.count))
            try:
                names = [name.strip() for name in next(reader, [])]
            except csv.Error as error:
                raise Invalid(f"{path} is not CSV ({error}).") from error
            if len(set(names)) < len(names) or not all(names):
                raise Invalid(f"The first line of {path} must name every column exactly once.")
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
            found = (text_of(cell) or None for cell in cells)
            yield Row(line, dict(zip(names, found, strict=True)))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(path: Path, error: OSError) -> Invalid:
    return Invalid(f"{path} cannot be read ({error.strerror}).")
