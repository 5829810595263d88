"""`bindings` too: what serves a scope, and what the provider behind a binding says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.complete import complete_binding
from memtui.doors.cli.options import BindingKey, ScopeOptions
from memtui.doors.cli.output import Dim, Line
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, table

if TYPE_CHECKING:
    from memtui.service import BindingHealth


async def resolve(session: Session, scope: ScopeOptions) -> None:
    """Say which binding serves a scope, and why."""
    found = await session.service.resolve(session.caller, scope.scope(session), scope.binding)
    session.out.answer(
        found, lambda: [f"{found.binding_key}  {found.provider_key}  {found.reason}"]
    )


async def health(
    session: Session,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="The binding; left out: all that are on.",
            autocompletion=complete_binding,
        ),
    ] = None,
) -> int:
    """Ask bindings whether they can serve now.

    Exit 3 if one is down.
    """
    if key is None:
        views = await session.service.bindings.all(session.caller)
        keys = [view.key for view in views if view.enabled]
    else:
        keys = [key]
    answers = [await session.service.bindings.health(session.caller, each) for each in keys]
    session.out.answer({"health": answers}, lambda: _health(answers))
    return 3 if any(answer.health.status == "down" for answer in answers) else 0


async def providers(session: Session) -> None:
    """List the providers that are installed."""
    names = session.service.bindings.providers()
    session.out.answer({"providers": names}, lambda: names)


async def sync(session: Session, key: BindingKey) -> None:
    """Read a provider's outside source again.

    Or rebuild what it derives from it, such as an index.
    """
    reply = await session.service.sync(session.caller, key)
    words = f"saw {reply.seen}, changed {reply.changed}, removed {reply.removed}"
    session.out.answer(reply, lambda: [words])


async def namespaces(session: Session, key: BindingKey) -> None:
    """List the partitions of a provider."""
    from memtui.widgets.format import exact, held

    found = await session.service.namespaces.all(session.caller, key)
    rows = [
        [
            each.kind,
            each.name,
            held(each),
            exact(each.expires_at, session.zone) if each.expires_at else "",
        ]
        for each in found
    ]
    columns = (
        Column("kind"),
        Column("name"),
        Column("records", right=True),
        Column("expires", right=True),
    )
    session.out.answer({"namespaces": found}, lambda: table(columns, rows))


def _health(answers: list[BindingHealth]) -> Iterator[Line]:
    from memtui.widgets.format import counted

    for answer in answers:
        found = answer.health
        records = "" if found.records is None else counted(found.records, "record")
        waiting = "resting after failures" if answer.breaker_open else ""
        words = [answer.key, found.status, records, found.message, waiting]
        yield "  ".join(word for word in words if word)
        for problem in found.problems:
            place = problem.location
            at = f"{place.path}:{place.line}: " if place else ""
            yield Dim(f"  {at}{problem.message}")
