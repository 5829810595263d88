"""Notices facts that come from elsewhere while a person watches, and says so in a toast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from memtui.contract import Filter, MemtuiError, Scope
from memtui.screens.base import MemtuiScreen
from memtui.screens.budget.facts import FactRow, Place
from memtui.store.operation import Operation
from memtui.widgets.background import Background
from memtui.widgets.format import count

POLL_SECONDS = 2.0
TOAST_SECONDS = 5.0
"""Between two toasts; what arrives meanwhile is told together."""
_PAGE = 200
_SHOWN = 120


class Arrivals:
    """Looks at the end of the log for changes by others, and is told of those of the stores.

    `changed` is called when the context is to be assembled again; give what it holds then to
    `tell`, with whether it was others who changed it.
    """

    def __init__(self, screen: MemtuiScreen, changed: Callable[[], None]) -> None:
        self._screen = screen
        self._changed = changed
        self._tail = Background(screen, "budget-tail")
        self._last_seq: int | None = None
        self._places: tuple[Place, ...] = ()
        self._keys: frozenset[str] | None = None
        self._waiting: list[str] = []
        self._quiet = True

    def follow(self, places: Sequence[Place]) -> None:
        """Watch these places; other ones than before begin with nothing known."""
        if [place.scope for place in places] != [place.scope for place in self._places]:
            self._keys = None
        self._places = tuple(places)

    def notice(self) -> None:
        """Pass a change on; while a person's own is under way, what comes of it is read anyway."""
        own = (one for one in self._screen.workers if str(one.group).endswith(":change"))
        if all(one.is_finished for one in own):
            self._changed()

    def poll(self) -> None:
        """Look for operations newer than the last one seen, unless a look is under way."""
        if self._tail.busy or not self._places:
            return
        session, after = self._screen.session, self._last_seq

        async def look() -> Sequence[Operation]:
            if after is None:
                page = await session.service.log.page(session.caller, Filter(), limit=1)
            else:
                page = await session.service.log.page(
                    session.caller, Filter(), limit=_PAGE, after=after
                )
            return page.operations

        self._tail.latest(look, self._looked, _ignored)

    def _looked(self, operations: Sequence[Operation]) -> None:
        first = self._last_seq is None
        self._last_seq = max([self._last_seq or 0, *(one.seq for one in operations)])
        if not first and any(map(self._matters, operations)):
            self.notice()

    def _matters(self, operation: Operation) -> bool:
        return operation.operation_type.mutates and any(
            _touches(operation.scope, place.scope) for place in self._places
        )

    def tell(self, rows: Iterable[FactRow], *, by_others: bool) -> None:
        """Take the facts there are now, and tell which are new with one toast for all of them."""
        now = {row.key: row.text for row in rows if not row.left_out}
        known, self._keys = self._keys, frozenset(now)
        if known is None or not by_others:
            return
        self._waiting += [text for key, text in now.items() if key not in known]
        if self._waiting and self._quiet:
            self._say()

    def _say(self) -> None:
        if not self._waiting or not self._screen.is_attached:
            self._quiet = True
            return
        texts, self._waiting = self._waiting, []
        words = texts[0] if len(texts[0]) <= _SHOWN else texts[0][: _SHOWN - 1] + "…"
        more = f", and {count(len(texts) - 1)} more" if len(texts) > 1 else ""
        self._screen.toast(f"Remembered: {words}{more}")
        self._quiet = False
        self._screen.set_timer(TOAST_SECONDS, self._say)


def _touches(changed: Scope, watched: Scope) -> bool:
    """Return whether a change in a scope may be one of a place; the whole company's always may."""
    fields = ("project_id", "subject_id", "agent_id")
    named = [name for name in fields if getattr(changed, name)]
    return not named or any(
        getattr(changed, name) == getattr(watched, name) for name in named if getattr(watched, name)
    )


def _ignored(error: MemtuiError) -> None:
    """The next look tells whether the log can be read again."""
    del error
