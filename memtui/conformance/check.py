"""A check: a rule of the contract with a name, and the function that tries it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .probe import Probe

Try = Callable[[Probe], Awaitable[None]]
"""Tries a rule; returns where it holds, raises `Failed` where it is broken."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the contract."""

    name: str
    rule: str
    """One sentence."""
    source: str
    """Where the contract says so."""
    needs: tuple[str, ...]
    """The capabilities without which it does not apply."""
    alone: bool
    """It loads or attacks the server, and runs after the others, by itself."""
    run: Try


class Section:
    """The checks of one subject, in the order in which they are written.

    A function that it decorates becomes a check: its name is the check's, its docstring the rule.
    """

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def __call__(self, source: str, *needs: str, alone: bool = False) -> Callable[[Try], Try]:
        """Add a check: where its rule stands, and the capabilities that it needs."""

        def add(function: Try) -> Try:
            name = str(getattr(function, "__name__", "")).replace("_", "-")
            rule = " ".join((inspect.getdoc(function) or "").split())
            self.checks.append(Check(name, rule, source, needs, alone, function))
            return function

        return add
