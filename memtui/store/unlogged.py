"""Calls that another memory server got past the operation log."""

from collections.abc import Iterable
from typing import NamedTuple, Self


class UnloggedCalls(NamedTuple):
    """Calls that passed and are not logged: a gap of the log."""

    calls: int
    since: float
    until: float
    """When the first and the last of them passed, in seconds since 1970."""

    @classmethod
    def joined(cls, gaps: Iterable[Self | None]) -> Self | None:
        """Return the gap that all are; None: there is none."""
        found = [one for one in gaps if one is not None]
        if not found:
            return None
        calls, since, until = zip(*found, strict=True)
        return cls(sum(calls), min(since), max(until))
