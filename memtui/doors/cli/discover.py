"""`bindings discover`: the memories that are on this machine already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.output import Dim, Line, jsonable
from memtui.doors.cli.session import Session

if TYPE_CHECKING:
    from memtui.backends.discovery import Finding
    from memtui.service import BindingView


async def discover(
    session: Session,
    *,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Add this one as a read-only binding; repeatable."),
    ] = None,
) -> None:
    """List the memories found on this machine.

    Nothing is added but what --add names, and that read-only: turn it with bindings read-only.
    """
    import asyncio

    findings = await asyncio.to_thread(find)
    wanted = [_named(findings, key) for key in add or ()]
    added = [
        await session.service.bindings.add(
            session.caller, each.key, each.provider, each.config, read_only=True
        )
        for each in wanted
    ]
    bound = _bound(findings, await session.service.bindings.all(session.caller))
    document = {
        "findings": [
            jsonable(each) | {"usable": each.usable, "binding_key": bound.get(each.key)}
            for each in findings
        ],
        "added": [view.key for view in added],
    }
    session.out.answer(document, lambda: _lines(findings, bound))
    if not session.out.as_json:
        for view in added:
            session.out.say(f"Added {view.key}, read-only.")


def find() -> list[Finding]:
    """Look at the usual places and from the working folder up. Blocking; changes nothing."""
    from memtui.backends.discovery import discover as look

    home = Path.home()
    try:
        here = Path.cwd()
    except FileNotFoundError:
        here = home
    return look(home, here, os.environ)


def _named(findings: Sequence[Finding], key: str) -> Finding:
    """Return the usable finding of that key. Raises `NotFound` or `Invalid`."""
    from memtui.contract import Invalid, NotFound

    for finding in findings:
        if finding.key == key:
            if finding.usable:
                return finding
            raise Invalid(f"{key} cannot be opened: {' '.join(finding.problems)}")
    known = ", ".join(finding.key for finding in findings if finding.usable)
    raise NotFound(f"Nothing was found under {key}; found are: {known or 'none'}.")


def _bound(findings: Sequence[Finding], views: Sequence[BindingView]) -> dict[str, str]:
    """Return which findings a binding opens already, by finding key."""
    return {
        finding.key: view.key
        for finding in findings
        for view in views
        if view.provider_key == finding.provider
        and finding.config
        and finding.config.items() <= view.config.items()
    }


def _lines(findings: Sequence[Finding], bound: dict[str, str]) -> Iterator[Line]:
    if not findings:
        yield "no memories were found outside memtui"
    for finding in findings:
        about = "about " if finding.estimated else ""
        records = "" if finding.records is None else f"  {about}{finding.records:,} records"
        state = f"  bound as {bound[finding.key]}" if finding.key in bound else ""
        yield f"{finding.key}  {finding.title}{records}{state}"
        yield Dim(f"  {finding.path}  {finding.why}")
        for problem in finding.problems:
            yield Dim(f"  {problem}")
