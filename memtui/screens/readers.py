"""A question for one of the queries that returned a record."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memtui.contract import NotFound, RecordHandle
from memtui.presenters import format as fmt
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.state import GoTo

if TYPE_CHECKING:
    from memtui.screens.base import ServiceScreen


async def choose_reader(screen: ServiceScreen, binding_key: str, handle: RecordHandle) -> None:
    """Offer the queries that returned a record, and go to the chosen one.

    Raises:
        NotFound: no query has returned it.
    """
    session, now = screen.session, screen.state.clock()
    read = partial(session.service.log.provenance, session.caller, binding_key, handle)
    story = await screen.wait("reading who read it", read)
    if not story.retrievals:
        raise NotFound("No query has returned this record.")
    choices = [
        Choice(
            one.operation_id,
            one.query,
            f"{fmt.ago(one.at, now):>6}  {f'rank {one.rank}':<7} {fmt.who(one.principal)}",
        )
        for one in story.retrievals
    ]
    if operation_id := await screen.ask(Choose("Queries that returned it", choices)):
        screen.post_message(GoTo("operations", select=operation_id))
