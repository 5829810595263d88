"""What a benchmark prints: a line for each question, with its goal and what was seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple


class Line(NamedTuple):
    """One question."""

    what: str
    seen: str
    goal: str = ""
    met: bool | None = None
    """None: there is no goal."""


def limited(what: str, ratio: float, limit: float, details: str = "") -> Line:
    """Return the line of a ratio that is to be at most the limit."""
    return Line(what, f"{ratio:.2f} x{details}", f"<= {limit:g} x", ratio <= limit)


def reached(what: str, ratio: float, floor: float, details: str = "") -> Line:
    """Return the line of a ratio that is to be at least the floor."""
    return Line(what, f"{ratio:.2f} x{details}", f">= {floor:g} x", ratio >= floor)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that is timed.

    Python keeps what it compiled, as an installed program has it: some machines forbid that, and
    then every start pays for compiling all of it.
    """
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return inherited | more


def best(works: Sequence[Callable[[], object]], rounds: int = 3) -> list[float]:
    """Return the shortest time of each work in seconds, taken in turns so that all share noise."""
    shortest = [float("inf")] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            began = perf_counter()
            work()
            shortest[place] = min(shortest[place], perf_counter() - began)
    return shortest


def show(title: str, lines: Sequence[Line]) -> None:
    """Print a table."""
    print(f"\n{title}")
    for line in lines:
        verdict = {None: "", True: "met", False: "MISSED"}[line.met]
        print(f"  {line.what:<44} {line.seen:<46} {line.goal:>9}  {verdict}".rstrip(), flush=True)
