"""`tokens`: what programs prove with who they are."""

from __future__ import annotations

from typing import Annotated

import typer

from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, table

Label = Annotated[str, typer.Argument(metavar="LABEL", help="Its name among the company's tokens.")]
_COLUMNS = (Column("label"), Column("principal"), Column("acts for"), Column("made", right=True))


async def list_tokens(session: Session) -> None:
    """List the company's bearer tokens.

    The tokens themselves are not kept.
    """
    from memtui.widgets import format as shown

    tokens = await session.service.tokens.all(session.caller)
    session.out.answer(
        {"tokens": tokens},
        lambda: table(
            _COLUMNS,
            [
                [t.label, t.principal, t.acts_for or "", shown.ago(t.created_at, session.now)]
                for t in tokens
            ],
        ),
    )


async def add_token(
    session: Session,
    label: Label,
    holder: Annotated[
        str, typer.Option("--for", metavar="PRINCIPAL", help="Whom it stands for: user:ana.")
    ],
    acts_for: Annotated[
        str | None,
        typer.Option(metavar="PRINCIPAL", help="The person on whose behalf an agent acts."),
    ] = None,
) -> None:
    """Make a bearer token and print it, this once.

    It cannot be read again.
    """
    token = await session.service.tokens.add(session.caller, label, holder, acts_for=acts_for)
    session.out.answer(token, lambda: [token.token])
    if not session.out.as_json:
        session.out.say("Keep it now; it cannot be shown again.")


async def remove_token(session: Session, label: Label) -> None:
    """Revoke a bearer token."""
    await session.service.tokens.remove(session.caller, label)
    session.out.answer({"removed": label}, lambda: [label])
