"""Output of answers: stdout gets only the answer, stderr everything else.

Lines for a person pass through `visible()`, even if stdout is no terminal; JSON is exact.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtui.contract import Model, Problem
    from memtui.service.answers import OutcomesAnswer


_DIM, _RESET = "\x1b[2m", "\x1b[0m"
_SECONDS_A_LINE = 5.0
"""Least pause between lines of progress outside a terminal."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A line of secondary information."""

    text: str


Line = str | Dim


@dataclass(frozen=True, slots=True)
class Output:
    """Prints one command's answer, for a person or as JSON."""

    as_json: bool = False

    def answer(
        self, document: Model | dict[str, Any], lines: Iterable[Line] = (), *sentences: str
    ) -> None:
        """Print `document` with `as_json`, else the `lines`.

        Without `as_json`, the document's problems and then the `sentences` go to stderr.
        """
        if self.as_json:
            self.document(document)
            return
        for line in lines:
            self.line(line)
        get = document.get if isinstance(document, dict) else partial(getattr, document)
        # Problems that are plain sentences are already in the lines.
        self.tell(one for one in get("problems", ()) if not isinstance(one, str))
        for sentence in filter(None, sentences):
            say(sentence)

    def tell(self, problems: Iterable[Problem | dict[str, Any]]) -> None:
        """Print on stderr what could not be read for an answer."""
        from memtui.contract import Problem

        for problem in problems:
            self.say(f"not read: {Problem.model_validate(problem).sentence()}")

    def document(self, document: Model | dict[str, Any]) -> None:
        """Print one JSON document on a line of its own."""
        from memtui.json_text import json_text

        write_exactly(json_text(jsonable(document)).encode("utf-8") + b"\n")

    def line(self, line: Line) -> None:
        """Print one line for a person."""
        sys.stdout.write(shown(line, colour=use_colour()) + "\n")

    def say(self, sentence: str) -> None:
        """Print a sentence on stderr."""
        say(sentence)


def say(sentence: str) -> None:
    """Print a sentence on stderr, with control characters made visible; ignore write errors."""
    from memtui.visible import visible

    with suppress(OSError):
        sys.stderr.write(visible(sentence, keep_newlines=True) + "\n")


def shown(line: Line, *, colour: bool) -> str:
    """Return the line to print: control characters visible, dimmed with an escape if `colour`."""
    from memtui.visible import visible

    if isinstance(line, str):
        return visible(line)
    safe = visible(line.text)
    return f"{_DIM}{safe}{_RESET}" if colour else safe


def use_colour() -> bool:
    """Return whether stdout is a terminal with colours and NO_COLOR is not set."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def jsonable(value: Any) -> Any:
    """Return the JSON form of a value, with models as objects."""
    from memtui.contract import Model

    if isinstance(value, Model):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    return value


def write_exactly(content: bytes) -> None:
    """Write bytes to stdout unchanged, after flushing the text before them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


@contextmanager
def ticker(*, on_terminal_only: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress on stderr; each line replaces the one before.

    After an error the last line stays. If stderr is no terminal, it prints a line every few
    seconds, or nothing if `on_terminal_only`.
    """
    last, is_open = monotonic(), False

    def show(line: str) -> None:
        nonlocal last, is_open
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            is_open = True
        elif not on_terminal_only and monotonic() - last >= _SECONDS_A_LINE:
            sys.stderr.write(f"{line}\n")
            last = monotonic()

    try:
        yield show
    except BaseException:
        if is_open:
            sys.stderr.write("\n")
        raise
    if is_open:
        sys.stderr.write("\r\x1b[K")


def of_bindings(answer: OutcomesAnswer) -> str:
    """Return which binding answered, or how many of them did, and how long it took."""
    from memtui.presenters.format import counted, duration

    took = duration(answer.latency_ms)
    if answer.together is None:
        [one] = answer.bindings
        where = f"from {one.binding_key} ({one.binding_reason})"
        return f"{where} in {took}; operation {one.operation_ids[0]}"
    asked = counted(len(answer.bindings), "binding")
    answered = len(answer.bindings) - len(answer.failed)
    of = f"{answered} of {asked}" if answer.failed else asked
    return f"from {of} in {took}"


_GAP = "  "
_CELL_LIMIT = 200


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column; `right`: its cells are numbers; `stretch`: it is cut to fit the terminal."""

    title: str
    right: bool = False
    stretch: bool = False


def columns(*titles: str) -> tuple[TextColumn, ...]:
    """Return columns from titles: `count>` has numbers, `text*` is cut to fit the terminal."""
    return tuple(
        TextColumn(title.rstrip(">*"), right=title.endswith(">"), stretch=title.endswith("*"))
        for title in titles
    )


def table(columns: Sequence[TextColumn], rows: Iterable[Sequence[str]]) -> Iterator[Line]:
    """Yield the title line and a line for each row; nothing without rows.

    A cell has at most 200 characters; only on a terminal a column is cut to its width.
    """
    from memtui.visible import visible

    shown = [[visible(cell, limit=_CELL_LIMIT) for cell in row] for row in rows]
    if not shown:
        return
    titles = [column.title for column in columns]
    widths = [max(map(_width, cells)) for cells in zip(titles, *shown, strict=True)]
    _fit(columns, widths)
    yield Dim(_join(columns, titles, widths))
    for row in shown:
        yield _join(columns, row, widths)


def fields(*pairs: tuple[str, str]) -> Iterator[Line]:
    """Yield `name  value` lines with the values aligned; empty values are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        yield f"{name:<{width}}{_GAP}{value}"


def _fit(columns: Sequence[TextColumn], widths: list[int]) -> None:
    """Narrow the stretching column so that a line fits the terminal."""
    if not sys.stdout.isatty():
        return
    room = shutil.get_terminal_size().columns - len(_GAP) * (len(columns) - 1)
    for place, column in enumerate(columns):
        if column.stretch:
            others = sum(widths) - widths[place]
            widths[place] = max(20, min(widths[place], room - others))


def _join(columns: Sequence[TextColumn], cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len, set_cell_size

    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        size = cell_len(cell)
        if size > width:
            parts.append(set_cell_size(cell, width - 1) + "…")
        else:
            pad = " " * (width - size)
            parts.append(pad + cell if column.right else cell + pad)
    return _GAP.join(parts).rstrip()


def _width(cell: str) -> int:
    from rich.cells import cell_len

    return cell_len(cell)
