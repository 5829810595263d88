"""`agents`: who is connected now."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from memtui.channels.cli.output import columns, table
from memtui.channels.cli.session import Session
from memtui.presenters import format as shown


async def agents(
    session: Session, *, minutes: Annotated[int, typer.Option(min=1, max=1440)] = 10
) -> None:
    """List the connected agents, and the last answer of each.

    An agent with an open MCP session on this machine is listed while the session lasts; any other
    agent while it did something lately.

    Args:
        minutes: Minutes that count as lately.
    """
    within = timedelta(minutes=minutes)
    found = await session.service.agents.connected(session.caller, within)
    rows = [
        [
            one.principal,
            one.channel,
            one.client or "",
            one.project_id or "",
            one.run_id or "",
            shown.ago(one.since, session.now),
            shown.ago(one.last_seen, session.now) if not one.is_open else "open",
            shown.last_answer_words(one.last_answer, session.now),
        ]
        for one in found
    ]
    titles = columns("who", "channel", "client", "project", "run", "since>", "seen>", "last given")
    none = "" if found else f"No agent is connected, and none did anything in {minutes} minutes."
    session.out.answer({"agents": found}, table(titles, rows) if rows else (), none)
