"""One fact whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from memtui.screens.facts.columns import by_words
from memtui.screens.facts.rows import FactRow, Place
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import SEPARATOR, Line, joined, labelled, moment
from memtui.widgets.display import DIM, WARN, display
from memtui.widgets.panes import DetailPane

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount


@dataclass(frozen=True, slots=True)
class FactView:
    """A fact with what is known about it."""

    row: FactRow
    now: datetime
    zone: tzinfo | None = None
    place: Place | None = None
    read: RetrievalCount | None = None
    model: str = ""
    exact: bool = True


def fact_content(view: FactView, width: int) -> Content:
    """Return everything about a fact, its text first."""
    text = [display(view.row.text, keep_newlines=True)]
    return joined([text, list(_about(view))], width)


def _about(view: FactView) -> Iterator[Line]:
    row = view.row
    if row.left_out:
        yield labelled("left out", display(row.left_out, limit=300, style=WARN))
    else:
        how = "in every prompt" if view.exact else "in every prompt, estimated"
        yield labelled("costs", f"{fmt.counted(row.tokens or 0, 'token')} {how}")
    if view.place is not None:
        where = f"{view.place.label}{SEPARATOR}{row.kind}{SEPARATOR}{view.place.binding_key}"
        yield labelled("of", display(where, limit=200))
    when = moment(row.created_at, view.now, view.zone)
    yield labelled("added", display(f"{when} by {by_words(row.created_by)}", limit=200))
    if view.read is None:
        yield labelled("read", display("never", style=DIM))
    else:
        last = fmt.since(view.read.last_at, view.now)
        yield labelled("read", f"{fmt.counted(view.read.count, 'time')}, last {last}")
    if row.expires_at is not None:
        yield labelled("expires", moment(row.expires_at, view.now, view.zone))
    if row.pinned:
        yield labelled("pinned", "⚑ yes")
    if row.handle is not None:
        yield labelled("id", display(row.handle.provider_record_id, limit=300, style=DIM))


class FactDetail(DetailPane):
    """Shows a `FactView`."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, classes="split-detail")
        self._view: FactView | None = None

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Static()

    def show(self, view: FactView | None) -> None:
        """Draw a fact; None empties the pane."""
        other = view is None or self._view is None or view.row.key != self._view.row.key
        self._view = view
        content = Content("") if view is None else fact_content(view, self._cells)
        self.query_one(Static).update(content)
        if other:
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Lay out again for another width."""
        self.show(self._view)
