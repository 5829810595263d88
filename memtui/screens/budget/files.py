"""The commands that carry facts into files and back, for the scope that is looked at."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from textual.content import Content

from memtui.screens.facts.rows import Place
from memtui.widgets.display import ACCENT, DIM, display, lines

_FLAGS = {"user": "--subject", "workspace": "--project", "agent": "--agent"}


def files_content(places: Sequence[Place]) -> Content:
    """Return the commands for each place, or in general where nobody is chosen."""
    return lines(_lines(places))


def _lines(places: Sequence[Place]) -> Iterator[Content]:
    yield display("Facts go into files and come back on the command line:", style=DIM)
    for flags in [_flags(place) for place in places] or ["--subject NAME"]:
        yield Content("")
        yield display(f"memtui facts export {flags} --to facts.jsonl", style=ACCENT)
        yield display(f"memtui facts export {flags} --to facts.md", style=ACCENT)
        yield display(f"memtui facts import {flags} facts.jsonl", style=ACCENT)


def _flags(place: Place) -> str:
    return f"{_FLAGS[place.word]} {shlex.quote(place.name)}"
