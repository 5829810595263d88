"""Every spending limit and what was spent of it, as a text over the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.actions import Need
from memtui.contract import Unavailable
from memtui.screens.dialogs import READING, Drawn, Sheet
from memtui.screens.state import AppState
from memtui.widgets import spending
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, hanging, lines

if TYPE_CHECKING:
    from memtui.service.limits import SpendingStatus

_STYLES = {"ok": OK, "near": WARN, "passed": f"{STRONG} {BAD}"}
_LEAD = Content(" " * 10)
_SET = "`memtui budget set` sets one, `memtui budget remove` takes it away."


def limits_sheet(state: AppState) -> Sheet:
    """Return the sheet of the limits, which are added up while it is shown."""

    async def read() -> Drawn:
        session = state.session
        if session is None:
            raise Unavailable(Need.SERVICE.value)
        found = await session.service.limits.check(session.caller, zone=state.zone)
        return lambda width: limits_content(found, state, width)

    return Sheet("Spending limits", READING, read=read)


def limits_content(found: Sequence[SpendingStatus], state: AppState, width: int) -> Content:
    """Return the limits, those that are passed first, wrapped to `width` cells."""
    if not found:
        return lines([display("There are no spending limits."), display(_SET, style=DIM)])
    said = "A limit warns; no operation is refused because of it. Days and months are your zone's."
    return lines([*_rows(found, state, width), display(said, style=DIM), display(_SET, style=DIM)])


def _rows(found: Sequence[SpendingStatus], state: AppState, width: int) -> Iterator[Content]:
    now = state.clock()
    for status in sorted(found, key=lambda one: -one.share):
        mark = display(spending.mark(status), style=_STYLES[status.state])
        name = display(spending.target(status), limit=200, style=STRONG)
        gap = Content(" " * (_LEAD.cell_length - mark.cell_length))
        yield hanging(mark + gap, name, width)
        when = spending.period(status, now, state.zone)
        yield hanging(_LEAD, display(spending.stand(status, when)), width)
        yield Content("")
