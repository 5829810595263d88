"""`bindings namespace`: make a namespace of a provider, set its expiry, and remove one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.options import BindingKey, future
from memtui.doors.cli.output import Line
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import facts

if TYPE_CHECKING:
    from memtui.contract import Namespace
    from memtui.service.namespaces import NamespaceDeleted

Name = Annotated[str, typer.Argument(metavar="NAME", help="The namespace, such as workspace:web.")]


async def put_namespace(
    session: Session,
    key: BindingKey,
    name: Name,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When it expires: 30d, 2027-01-31; left out: never. What becomes of its records "
            "then is the provider's affair: some hide them, others keep them.",
        ),
    ] = None,
) -> None:
    """Make a namespace, or set its expiry.

    Without --expires it never expires: an expiry that it had is taken away.
    """
    from memtui.contract import Invalid

    now = session.now
    moment = future(expires or None, now=now, zone=session.zone)
    if moment is not None and moment <= now:
        raise Invalid(f"{expires} is over already; give a time that is still to come.")
    made = await session.service.namespaces.put(session.caller, key, name, expires_at=moment)
    session.out.answer(made, lambda: _made(session, made))


async def delete_namespace(
    session: Session,
    key: BindingKey,
    name: Name,
    confirm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name once more, instead of typing it.")
    ] = None,
    *,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Also where it holds more than can be listed and brought back."
        ),
    ] = False,
) -> None:
    """Remove a namespace with all that is in it.

    Its records are forgotten first, which undo brings back. Refused with exit 5 where it holds
    more than can be listed, unless --unseen.
    """
    from memtui.contract import Conflict

    await _confirm(session, key, name, confirm)
    try:
        gone = await session.service.namespaces.delete(session.caller, key, name, unseen=unseen)
    except Conflict as error:
        if unseen:
            raise
        raise Conflict(f"{error} That is --unseen.") from error
    session.out.answer(gone, lambda: _deleted(gone))


async def _confirm(session: Session, key: str, name: str, given: str | None) -> None:
    """Have the name typed.

    Raises:
        Invalid: another name was given, or nobody is there to type it.
        NotFound: there is no such namespace.
    """
    from memtui.contract import Invalid, NotFound
    from memtui.visible import visible
    from memtui.widgets.format import held_words

    again = f"memtui bindings namespace delete {key} {name} --confirm {name}"
    if given is None and not sys.stdin.isatty():
        raise Invalid(f"Nobody can type the name here, so say it once more: {again}")
    if given is None:
        there = {one.name: one for one in await session.service.namespaces.all(session.caller, key)}
        if name not in there:
            raise NotFound(f"{key} has no namespace {name} that memtui knows of.")
        question = f"This removes {name} and {held_words(there[name])}. Type its name to do it"
        given = str(typer.prompt(visible(question), err=True))
    if given.strip() != name:
        raise Invalid(f"{given!r} is not {name!r}, so nothing was removed.")


def _made(session: Session, made: Namespace) -> Iterator[Line]:
    from memtui.widgets.format import exact

    expires = exact(made.expires_at, session.zone) if made.expires_at else "never"
    yield from facts([("name", made.name), ("kind", made.kind), ("expires", expires)])


def _deleted(gone: NamespaceDeleted) -> Iterator[Line]:
    from memtui.widgets.format import counted

    more = ", and more that were not listed" if gone.at_least else ""
    yield f"removed {gone.name} with {counted(gone.records, 'record')}{more}"
    if gone.forget_operation_id is not None:
        yield f"memtui undo {gone.forget_operation_id} brings the listed records back"
