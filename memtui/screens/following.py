"""Following of the company's log, so that an open app shows what is done elsewhere.

Operations from MCP, hooks, HTTP or another process are in the log at once. The follower polls the
log's end, which reads one row while nothing happens, and passes new operations to every screen
(`MemtuiScreen.happened`). Files changed by hand are not in the log; their provider watches them
(`EditingScreen.follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from textual.app import App

from memtui.contract import MemtuiError, OperationStatus, OperationType
from memtui.presenters.format import count
from memtui.store.operation import Operation
from memtui.widgets.background import Background
from memtui.widgets.display import toast

if TYPE_CHECKING:
    from memtui.screens.session import ServiceSession

LOOK_SECONDS = 0.5
NOTICE_SECONDS = 5.0
"""Seconds between two notices; saves between them share one notice."""
_MOST_SKIPPED = 3
"""Most polls skipped in a row while others write continuously."""
_FRESH = timedelta(minutes=1)
"""Older operations give no notice: they come from an imported log or the like."""
_MOST = 200
"""Most operations that one poll reads: the newest."""
_NOTICE_CHARACTERS = 120
_CHANGED = (OperationStatus.OK, OperationStatus.UNKNOWN)


@dataclass(frozen=True, slots=True)
class News:
    """Operations logged since the last poll that the person may see."""

    operations: tuple[Operation, ...]
    """Oldest first."""
    is_part: bool = False
    """Whether there were more operations than these."""
    begun_on: Mapping[str, object] = field(default_factory=dict)
    """The screens of this app on which operations were begun, by operation id."""

    def excluding(self, screen: object) -> list[Operation]:
        """Return operations not begun on this screen: a screen shows its own results itself."""
        return [one for one in self.operations if self.begun_on.get(one.operation_id) is not screen]

    def changes(self, screen: object) -> list[Operation]:
        """Return operations of `excluding` that may have changed memories."""
        return [
            one
            for one in self.excluding(screen)
            if one.operation_type.mutates
            and one.operation_type is not OperationType.CONFIGURE
            and one.status in _CHANGED
        ]

    @property
    def embedded(self) -> list[Operation]:
        """Embedding operations of others."""
        return [one for one in self.elsewhere if one.operation_type is OperationType.EMBED]

    @property
    def configures(self) -> bool:
        """Whether settings of the company may have been changed elsewhere."""
        return self.is_part or any(
            one.operation_type in (OperationType.CONFIGURE, OperationType.UNDO)
            for one in self.elsewhere
        )

    @property
    def elsewhere(self) -> list[Operation]:
        """Operations not begun in this app."""
        return [one for one in self.operations if one.operation_id not in self.begun_on]


def tells_of_review(operation: Operation) -> bool:
    """Whether an operation may have changed the pending writes; reads of these do not."""
    done = operation.operation_type
    return (
        operation.status is OperationStatus.PENDING
        or (done.mutates and "pending" in operation.request)
        or done in {OperationType.UNDO, OperationType.CHECK}
    )


class Follower:
    """Follows the log of the shown company.

    `tell` takes new operations. `stopped` takes the reason why the log cannot be followed, and ""
    once it can be again. `here` returns the current screen.
    """

    def __init__(
        self,
        app: App[Any],
        *,
        here: Callable[[], object],
        tell: Callable[[News], None],
        stopped: Callable[[str], None],
        notify: bool,
        clock: Callable[[], datetime],
    ) -> None:
        self._app = app
        self._here = here
        self._tell = tell
        self._stopped = stopped
        self._notify = notify
        self._clock = clock
        self._busy = self._skip = 0
        """Polls in a row that found operations of others, and polls still to skip."""
        self._session: ServiceSession | None = None
        self._seen: int | None = None
        """Sequence number of the newest operation seen; None: no poll was made yet."""
        self._begun: dict[str, object] = {}
        self._looking = Background(app, "log-end")
        self._untold: list[Operation] = []
        self._quiet = True
        """Whether no notice was shown lately."""

    def begin(self) -> None:
        """Poll every `LOOK_SECONDS` from now on."""
        self._app.set_interval(LOOK_SECONDS, self.look)

    def new_id(self) -> str:
        """Return an id for an operation of this app, and note the current screen for it."""
        from memtui.service.recorder import new_operation_id

        made = new_operation_id()
        self._begun[made] = self._here()
        return made

    def follow(self, session: ServiceSession) -> None:
        """Follow only this company's log from now on; nothing is followed in the past."""
        self._looking.forget()
        is_past = session.caller.as_of is not None
        self._session, self._seen, self._untold = None if is_past else session, None, []
        self._busy = self._skip = 0
        self.look()

    def look(self) -> None:
        """Poll for newer operations, unless a poll is under way or to be skipped."""
        session, seen = self._session, self._seen
        if self._skip:
            self._skip -= 1
        elif session is not None and not self._looking.busy:
            self._looking.latest(lambda: _since(session, seen), self._looked, self._failed)

    def _failed(self, error: MemtuiError) -> None:
        self._stopped(str(error))

    def _looked(self, found: tuple[int, tuple[Operation, ...], bool]) -> None:
        self._stopped("")
        self._seen, operations, is_part = found
        if not operations and not is_part:
            self._busy = 0
            return
        begun = {
            one.operation_id: self._begun.pop(one.operation_id)
            for one in operations
            if one.operation_id in self._begun
        }
        news = News(operations, is_part, begun)
        self._busy = self._busy + 1 if news.elsewhere else 0
        self._skip = max(0, min(self._busy - 1, _MOST_SKIPPED))
        self._tell(news)
        if self._notify:
            self._untold += filter(self._is_saved, news.elsewhere)
            if self._quiet:
                self._notice()

    def _is_saved(self, one: Operation) -> bool:
        is_write = one.operation_type is OperationType.WRITE and one.status is OperationStatus.OK
        return is_write and self._clock() - one.started_at < _FRESH

    def _notice(self) -> None:
        """Show one toast for all that others saved since the last notice."""
        saved, self._untold = self._untold, []
        self._quiet = not saved
        if saved:
            toast(self._app, _words(saved), title=_by_whom(saved))
            self._app.set_timer(NOTICE_SECONDS, self._notice)


async def _since(
    session: ServiceSession, seen: int | None
) -> tuple[int, tuple[Operation, ...], bool]:
    """Return the newest sequence number, the operations since `seen`, and whether some are cut."""
    log, caller = session.service.log, session.caller
    newest = await log.newest(caller)
    if seen is None or newest <= seen:
        return newest, (), False
    after = max(seen, newest - _MOST)
    page = await log.page(caller, after=after, limit=newest - after)
    found = tuple(one for one in reversed(page.operations) if one.seq <= newest)
    return newest, found, after > seen


def _words(saved: list[Operation]) -> str:
    content = saved[0].request.get("content")
    text = content if isinstance(content, str) and content else "a record of the company"
    first = text.strip().partition("\n")[0]
    words = first if len(first) <= _NOTICE_CHARACTERS else f"{first[: _NOTICE_CHARACTERS - 1]}…"
    more = f", and {count(len(saved) - 1)} more" if len(saved) > 1 else ""
    return f"Remembered: {words}{more}"


def _by_whom(saved: list[Operation]) -> str:
    names = list(dict.fromkeys(one.principal.partition(":")[2] or one.principal for one in saved))
    channels = list(dict.fromkeys(one.channel for one in saved))
    if len(names) > 1:
        return f"{names[0]} and {count(len(names) - 1)} more"
    return f"{names[0]} · {channels[0]}" if len(channels) == 1 else names[0]
