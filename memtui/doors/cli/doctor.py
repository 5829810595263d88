"""`doctor`: check that everything works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.checks import Check, run_checks
from memtui.doors.cli.output import Line
from memtui.doors.cli.session import Invocation

if TYPE_CHECKING:
    from memtui.service import StoredSecret

_MARKS = {"ok": "✓", "warning": "!", "broken": "✗"}


async def doctor(
    invocation: Invocation,
    *,
    secrets: Annotated[
        bool,
        typer.Option("--secrets", help="Look for secrets in what is stored already, instead."),
    ] = False,
) -> int:
    """Check that everything works, and say what to do.

    Exit 1 if something is broken, or a secret is stored.
    """
    if secrets:
        return await _look_for_secrets(invocation)
    checks = [check async for check in run_checks(invocation)]
    broken = any(check.status == "broken" for check in checks)
    invocation.out.answer(
        {"ok": not broken, "checks": [asdict(check) for check in checks]}, lambda: _lines(checks)
    )
    return 1 if broken else 0


async def _look_for_secrets(invocation: Invocation) -> int:
    async with invocation.session() as session:
        folders = (session.paths.data, session.paths.config)
        found = [one async for one in session.service.stored_secrets(session.caller, folders)]
    invocation.out.answer(
        {"ok": not found, "secrets": [one.model_dump(mode="json") for one in found]},
        lambda: _secret_lines(found),
    )
    return 1 if found else 0


def _secret_lines(found: list[StoredSecret]) -> Iterator[Line]:
    if not found:
        yield "No secrets are stored, as far as their shapes and names tell."
        return
    for one in found:
        sorts = f": {', '.join(one.labels)}" if one.labels else ""
        yield f"{_MARKS['broken']} {one.place}, {one.where}{sorts}"
    yield "Give each of them up where it was issued; then correct or forget the records,"
    yield "and erase memtui's own copies with memtui purge."


def _lines(checks: list[Check]) -> Iterator[Line]:
    for check in checks:
        advice = f" — {check.advice}" if check.advice else ""
        yield f"{_MARKS[check.status]} {check.name}: {check.message}{advice}"
