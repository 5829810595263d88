"""How an open app learns what is done elsewhere: it follows the company's log.

Whatever comes in by MCP, hooks, HTTP or another process is in the log at once. The follower looks
at the log's end, which costs one read of one row while nothing happens, and hands what is new to
every screen (`MemtuiScreen.happened`). Files that are changed by hand are not in the log: those a
provider watches (`EditingScreen.follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from textual.app import App

from memtui.contract import MemtuiError, OperationStatus, OperationType
from memtui.widgets.background import Background
from memtui.widgets.display import toast
from memtui.widgets.format import count

if TYPE_CHECKING:
    from memtui.screens.session import ServiceSession
    from memtui.store.operation import Operation

LOOK_SECONDS = 0.5
NOTICE_SECONDS = 5.0
"""Between two notices; what is saved meanwhile is told together."""
_MOST_SKIPPED = 3
"""Looks that are left out at most, one after another, while others write without a pause."""
_FRESH = timedelta(minutes=1)
"""What began longer ago comes from an imported log or the like; nobody saved it just now."""
_MOST = 200
"""Operations that one look reads; of more, the newest."""
_TOLD_CHARACTERS = 120
_CHANGED = (OperationStatus.OK, OperationStatus.UNKNOWN)


@dataclass(frozen=True, slots=True)
class News:
    """What came into the log since the last look, as far as the person may see it."""

    operations: tuple[Operation, ...]
    """Oldest first."""
    is_part: bool = False
    """Whether there were more than these."""
    begun_on: Mapping[str, object] = field(default_factory=dict)
    """The screens of this app on which operations were begun, by operation id."""

    def besides(self, screen: object) -> list[Operation]:
        """Return what was not begun on this screen, which shows itself what it does."""
        return [one for one in self.operations if self.begun_on.get(one.operation_id) is not screen]

    def changes(self, screen: object) -> list[Operation]:
        """Return what may have changed memories, but for what was begun on this screen."""
        return [
            one
            for one in self.besides(screen)
            if one.operation_type.mutates
            and one.operation_type is not OperationType.CONFIGURE
            and one.status in _CHANGED
        ]

    @property
    def embedded(self) -> list[Operation]:
        """Texts that others had embedded."""
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
        """What others did, or the person in another program."""
        return [one for one in self.operations if one.operation_id not in self.begun_on]


def tells_of_review(operation: Operation) -> bool:
    """Whether an operation may have changed what waits for review; to look at it does not."""
    done = operation.operation_type
    return (
        operation.status is OperationStatus.PENDING
        or (done.mutates and "pending" in operation.request)
        or done in {OperationType.UNDO, OperationType.CHECK}
    )


class Follower:
    """Follows the log of the company that is shown.

    `tell` gets what is new. `stopped` gets the sentence why the log cannot be followed, and an
    empty one once it can be again. `here` gives the screen that a person works on.
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
        """How many looks in a row found what others do, and how many are to be left out."""
        self._session: ServiceSession | None = None
        self._seen: int | None = None
        """The number of the newest operation that was looked at; None: none was."""
        self._begun: dict[str, object] = {}
        self._looking = Background(app, "log-end")
        self._untold: list[Operation] = []
        self._quiet = True
        """Whether no notice was shown lately."""

    def begin(self) -> None:
        """Look again and again from now on."""
        self._app.set_interval(LOOK_SECONDS, self.look)

    def new_id(self) -> str:
        """Return an id for an operation of this app, and note on which screen it is begun."""
        from memtui.service.recorder import new_operation_id

        made = new_operation_id()
        self._begun[made] = self._here()
        return made

    def follow(self, session: ServiceSession) -> None:
        """Follow a company's log from now on, and no other's; a moment of the past stands still."""
        self._looking.forget()
        is_past = session.caller.as_of is not None
        self._session, self._seen, self._untold = None if is_past else session, None, []
        self._busy = self._skip = 0
        self.look()

    def look(self) -> None:
        """Look for operations newer than the last one, unless a look is under way."""
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
        """Tell what others saved, with one toast for all of it."""
        saved, self._untold = self._untold, []
        self._quiet = not saved
        if saved:
            toast(self._app, _words(saved), title=_by_whom(saved))
            self._app.set_timer(NOTICE_SECONDS, self._notice)


async def _since(
    session: ServiceSession, seen: int | None
) -> tuple[int, tuple[Operation, ...], bool]:
    """Return the newest operation's number, what came since `seen`, and whether there is more."""
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
    text = content if isinstance(content, str) and content else "a memory of the company"
    first = text.strip().partition("\n")[0]
    words = first if len(first) <= _TOLD_CHARACTERS else f"{first[: _TOLD_CHARACTERS - 1]}…"
    more = f", and {count(len(saved) - 1)} more" if len(saved) > 1 else ""
    return f"Remembered: {words}{more}"


def _by_whom(saved: list[Operation]) -> str:
    names = list(dict.fromkeys(one.principal.partition(":")[2] or one.principal for one in saved))
    channels = list(dict.fromkeys(one.channel for one in saved))
    if len(names) > 1:
        return f"{names[0]} and {count(len(names) - 1)} more"
    return f"{names[0]} · {channels[0]}" if len(channels) == 1 else names[0]
