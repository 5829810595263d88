"""Where answers go: stdout carries the answer only, stderr the rest.

People's lines pass through `visible()`, whatever stdout is; a JSON document is exact.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtui.contract import Model, Problem

_DIM, _RESET = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Dim:
    """A line of secondary meaning."""

    text: str


Line = str | Dim


@dataclass(frozen=True, slots=True)
class Output:
    """Prints one command's answer, for a person or as JSON."""

    as_json: bool = False

    def answer(self, document: Model | dict[str, Any], lines: Callable[[], Iterable[Line]]) -> None:
        """Print `document` as JSON if that was asked for, else the `lines`.

        What could not be read for it is in the JSON; a person is told on stderr.
        """
        if self.as_json:
            self.document(document)
            return
        for line in lines():
            self.line(line)
        get = document.get if isinstance(document, dict) else partial(getattr, document)
        # A report's own problems are sentences, and its lines have them.
        self.tell(one for one in get("problems", ()) if not isinstance(one, str))

    def tell(self, problems: Iterable[Problem | dict[str, Any]]) -> None:
        """Say on stderr what could not be read for an answer."""
        from memtui.contract import Problem

        for problem in problems:
            self.say(f"not read: {Problem.model_validate(problem).sentence()}")

    def document(self, document: Model | dict[str, Any]) -> None:
        """Print one JSON document on a line of its own."""
        _write_json(jsonable(document))

    def line(self, line: Line) -> None:
        """Print one line for a person."""
        sys.stdout.write(shown(line, colour=use_colour()) + "\n")

    def say(self, sentence: str) -> None:
        """Tell a person something that is not the answer, on stderr."""
        say(sentence)


def say(sentence: str) -> None:
    """Print a sentence on stderr, made safe to show; where it cannot be, nobody can be told."""
    from memtui.visible import visible

    with suppress(OSError):
        sys.stderr.write(visible(sentence, keep_newlines=True) + "\n")


def shown(line: Line, *, colour: bool) -> str:
    """Return the line as it is printed: nothing in it that a terminal would obey but our own."""
    from memtui.visible import visible

    if isinstance(line, str):
        return visible(line)
    safe = visible(line.text)
    return f"{_DIM}{safe}{_RESET}" if colour else safe


def use_colour() -> bool:
    """Return whether stdout is a terminal that takes colours and NO_COLOR is not set."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def jsonable(value: Any) -> Any:
    """Return a value's JSON form, with models taken apart field by field."""
    from memtui.contract import Model

    if isinstance(value, Model):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    return value


def _write_json(document: Any) -> None:
    sys.stdout.flush()
    from memtui.json_text import json_text

    sys.stdout.buffer.write(json_text(document).encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()
