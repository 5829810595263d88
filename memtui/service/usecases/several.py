"""Several changes in turn, each with its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from memtui.contract import MemtuiError, Unavailable

T = TypeVar("T")
A = TypeVar("A")


@dataclass(slots=True)
class Outcomes(Generic[T, A]):
    """The outcomes of several changes, in order."""

    done: list[tuple[T, A]] = field(default_factory=list)
    failed: list[tuple[T, MemtuiError]] = field(default_factory=list)

    @property
    def answers(self) -> list[A]:
        """The answers of the successful changes."""
        return [answer for _, answer in self.done]


async def each(
    items: Iterable[tuple[str, T]],
    change: Callable[[T], Awaitable[A]],
) -> Outcomes[T, A]:
    """Change each item in turn, also where an earlier change failed.

    After an `Unavailable`, such as a time-out, the other items of that binding fail with the same
    error, untried.

    Args:
        items: The items, each with the key of its binding.
        change: The change of one item.

    Raises:
        MemtuiError: the only item failed.
    """
    found: Outcomes[T, A] = Outcomes()
    down: dict[str, Unavailable] = {}
    items = list(items)
    for key, item in items:
        try:
            if key in down:
                raise down[key]
            found.done.append((item, await change(item)))
        except MemtuiError as error:
            if len(items) == 1:
                raise
            if isinstance(error, Unavailable):
                down[key] = error
            found.failed.append((item, error))
    return found
