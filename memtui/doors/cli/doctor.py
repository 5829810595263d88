"""`doctor`: check that everything works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.checks import Check, run_checks
from memtui.doors.cli.forget import confirm
from memtui.doors.cli.options import Yes
from memtui.doors.cli.output import Line
from memtui.doors.cli.session import Invocation

if TYPE_CHECKING:
    from memtui.service import StoredSecret
    from memtui.service.repair import Repair

_MARKS = {"ok": "✓", "warning": "!", "broken": "✗"}


async def doctor(
    invocation: Invocation,
    *,
    secrets: Annotated[
        bool,
        typer.Option("--secrets", help="Look for secrets in what is stored already, instead."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Put a new database in the place of a lost one, instead."),
    ] = False,
    yes: Yes = False,
) -> int:
    """Check that everything works, and say what to do.

    Exit 1 if something is broken, or a secret is stored. --repair says first what it will do:
    docs/recovery.md tells what can be got back.
    """
    from memtui.contract import Invalid

    if secrets and repair:
        raise Invalid("Give --secrets or --repair, not both.")
    if repair:
        return await _repair(invocation, yes=yes)
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
        found = [one async for one in session.service.secrets.stored(session.caller, folders)]
    invocation.out.answer(
        {"ok": not found, "secrets": [one.model_dump(mode="json") for one in found]},
        lambda: _secret_lines(found),
    )
    return 1 if found else 0


async def _repair(invocation: Invocation, *, yes: bool) -> int:
    from datetime import UTC, datetime

    from memtui.contract import Denied
    from memtui.service import repair as repairing

    paths, settings, now = invocation.paths(), invocation.settings(), datetime.now(UTC)
    if settings.read_only:
        raise Denied("memtui runs read-only; start it without --read-only to repair the home.")
    wanted = await asyncio.to_thread(repairing.plan, paths, settings, now)
    for line in _repair_lines(wanted):
        invocation.out.say(line)
    if not yes:
        confirm("Put a new database in place?")
    await asyncio.to_thread(
        repairing.repair, paths, settings, wanted, principal=settings.principal, now=now
    )
    first = wanted.companies[0].company_id
    invocation.out.answer(
        wanted.model_dump(mode="json"), lambda: [f"Repaired; a new database is in {paths.data}."]
    )
    invocation.out.say(
        "Its companies are read-only until each has an owner: "
        f"memtui --company {first} members add {settings.principal} --role owner"
    )
    return 0


def _repair_lines(wanted: Repair) -> Iterator[str]:
    from memtui.widgets.format import counted

    yield wanted.fault
    if wanted.aside:
        yield f"It goes to {wanted.aside}; nothing of it is deleted."
    for one in wanted.companies:
        sealed = counted(one.sealed_through, "sealed operation")
        keys = ", ".join(
            binding.key if binding.enabled else f"{binding.key} (off: its config is not known)"
            for binding in one.bindings
        )
        yield f"{one.company_id} comes back with {sealed} and the bindings: {keys or 'none'}."
        end = f" to {one.lost_through}" if one.lost_through else " on"
        if one.erased:
            yield f"Why sealed operations of {one.company_id} lack values is lost; it is noted."
        yield f"Of {one.company_id} the operations from {one.sealed_through + 1}{end} are lost."
        yield from one.problems
    yield f"Lost too: {', '.join(wanted.lost)}. What vaults and other providers hold stays."


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
