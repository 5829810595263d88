"""`doctor`: check that everything works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from memtui.doors.cli.checks import Check, run_checks
from memtui.doors.cli.output import Line
from memtui.doors.cli.session import Invocation

_MARKS = {"ok": "✓", "warning": "!", "broken": "✗"}


async def doctor(invocation: Invocation) -> int:
    """Check that everything works, and say what to do.

    Exit 1 if something is broken.
    """
    checks = [check async for check in run_checks(invocation)]
    broken = any(check.status == "broken" for check in checks)
    invocation.out.answer(
        {"ok": not broken, "checks": [asdict(check) for check in checks]}, lambda: _lines(checks)
    )
    return 1 if broken else 0


def _lines(checks: list[Check]) -> Iterator[Line]:
    for check in checks:
        advice = f" — {check.advice}" if check.advice else ""
        yield f"{_MARKS[check.status]} {check.name}: {check.message}{advice}"
