"""Gathers what the detail of a record shows beyond the record itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memtui.contract import MemtuiError, Record
from memtui.screens.base import MemtuiScreen
from memtui.screens.records.columns import record_key
from memtui.screens.records.detail import RecordView
from memtui.screens.records.feed import RecordFeed
from memtui.widgets.background import Background

if TYPE_CHECKING:
    from memtui.service.answers import HistoryAnswer, Provenance


class RecordDetails:
    """Reads provenance for the record under the cursor, and its history when asked."""

    def __init__(self, screen: MemtuiScreen, feed: RecordFeed, changed: Callable[[], None]) -> None:
        self._screen = screen
        self._feed = feed
        self._changed = changed
        self._stories = Background(screen, "record-provenance")
        self._histories = Background(screen, "record-history")
        self._story: Provenance | None = None
        self._history: HistoryAnswer | None = None
        self._problem = ""

    def view(self, record: Record) -> RecordView:
        """Return what is known of a record by now."""
        story, history = self.provenance(record), self._history
        return RecordView(
            record=record,
            now=self._screen.state.clock(),
            zone=self._screen.state.zone,
            ghost=record_key(record) in self._feed.known.ghosts,
            provenance=story,
            history=history if history and history.handle == record.handle else None,
            problem=self._problem,
        )

    def provenance(self, record: Record) -> Provenance | None:
        """Return the record's provenance if it has been read."""
        story = self._story
        return story if story is not None and story.handle == record.handle else None

    def read(self, record: Record) -> None:
        """Read who wrote the record and which queries returned it; not an operation."""
        session, key = self._screen.session, self._feed.binding_key

        def show(story: Provenance) -> None:
            self._story = story
            self._problem = ""
            self._changed()

        def failed(error: MemtuiError) -> None:
            self._problem = str(error)
            self._changed()

        self._stories.latest(
            lambda: session.service.log.provenance(session.caller, key, record.handle), show, failed
        )

    def turn_history(self, record: Record) -> None:
        """Show the record's history, or hide it; reading it is an operation."""
        if self._history is not None and self._history.handle == record.handle:
            self._history = None
            self._changed()
            return
        session, key = self._screen.session, self._feed.binding_key

        def show(history: HistoryAnswer) -> None:
            self._history = history
            self._changed()

        self._histories.latest(
            lambda: session.service.history(
                session.caller, record.handle, record.scope, binding_key=key
            ),
            show,
            self._screen.fail,
        )
