"""Keeps the list of records filled from the provider's pages, and fresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memtui.contract import BrowseRequest, MemtuiError, Problem, Record, Unsupported
from memtui.screens.base import MemtuiScreen
from memtui.screens.records.columns import (
    PROVIDER_SORTS,
    Known,
    local_sort,
    record_key,
)
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.rows import PAGE_ROWS, AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.service.answers import BrowseAnswer, RetrievalCount

_MOST_AT_ONCE = 1_000
NEWEST_FIRST = ("age", True)


class RecordFeed:
    """Reads the records of the active binding for one list.

    Reading again keeps cursor and marks on their records. Every page that is read is an operation
    in the log, so pages come only when a person scrolls to them.
    """

    def __init__(self, screen: MemtuiScreen) -> None:
        self._screen = screen
        self.rows: AppendedRows[Record] = AppendedRows(record_key)
        self.known = Known()
        self.binding_key = ""
        """The binding that the rows came from."""
        self._question: BrowseRequest | None = None
        self._cursor: str | None = None
        self._total: int | None = None
        self._at_least = False
        self._problems: tuple[Problem, ...] = ()
        self._reading = Background(screen, "records-page")
        self._counting = Background(screen, "records-stats")

    @property
    def _list(self) -> VirtualList[Record]:
        return self._screen.query_one(VirtualList)

    @property
    def busy(self) -> bool:
        """Whether a page is being read."""
        return self._reading.busy

    def load(self) -> None:
        """Read the first page, or as many records as were there if the question is the same."""
        state, session = self._screen.state, self._screen.session
        column, descending = self._list.sort or NEWEST_FIRST
        field = PROVIDER_SORTS.get(column, "updated_at")
        down = descending if column in PROVIDER_SORTS else True
        question = BrowseRequest(
            scope=state.record_scope,
            binding_key=state.filter.binding_key or state.binding_key,
            filter=state.filter,
            sort=f"-{field}" if down else field,
            limit=PAGE_ROWS,
        )
        again = question == self._question
        if not again:
            self._question = question
            self._list.selection.marks.clear()
            self._list.selection.clear()
            self._list.notice = ("Reading the records …",)
        limit = min(_MOST_AT_ONCE, max(PAGE_ROWS, self.rows.loaded)) if again else PAGE_ROWS
        request = question.model_copy(update={"limit": limit})
        self._reading.latest(
            lambda: session.service.browse(session.caller, request), self._show, self._broken
        )

    def _show(self, page: BrowseAnswer) -> None:
        self.binding_key = page.binding_key
        self._take(page)
        self.rows.replace(page.records, more=page.next_cursor is not None)
        self._reorder()
        if not self.rows.more:
            marks = self._list.selection.marks
            self._list.selection.drop({key for key in marks if self.rows.index_of(key) is None})
        self._list.notice = self._nothing()
        self._list.show(self.rows)
        self._count(page.records)
        self.look()

    def fetch(self) -> None:
        """Read the next page; one at a time."""
        cursor, question, session = self._cursor, self._question, self._screen.session
        if cursor is None or question is None or self._reading.busy:
            return
        request = question.model_copy(update={"cursor": cursor})
        self._reading.latest(
            lambda: session.service.browse(session.caller, request), self._append, self._screen.fail
        )

    def _append(self, page: BrowseAnswer) -> None:
        self._take(page)
        self.rows.append(page.records, more=page.next_cursor is not None)
        self._list.rows_changed()
        self._count(page.records)
        self.look()

    def _take(self, page: BrowseAnswer) -> None:
        if page.problems and page.problems != self._problems:
            self._screen.toast(fmt.not_read(page.problems), severity="warning")
        self._problems = page.problems
        self._cursor = page.next_cursor
        self._total = page.total
        self._at_least = page.at_least or (page.total is None and page.next_cursor is not None)

    def _nothing(self) -> tuple[str, ...]:
        if self._screen.state.filter_line:
            return (
                "No record matches.",
                "/ changes the filter, ctrl+l takes it away, s widens the scope.",
            )
        if self._at_least:
            return (
                "Nothing that this provider can list.",
                "s chooses whose memories to ask for, 3 asks it a question, B looks elsewhere.",
            )
        return (
            "No memories here yet.",
            "n writes one, B looks at another binding, 1 finds memories on this machine.",
        )

    def _broken(self, error: MemtuiError) -> None:
        self._question = None
        self._cursor = self._total = None
        self._at_least = False
        self.rows.replace([])
        hint = "r reads again, B looks at another binding."
        if isinstance(error, Unsupported):
            hint = "3 asks it a question instead, B looks at another binding."
        self._list.notice = (f"✗ {error}", hint)
        self._list.show(self.rows)
        self._screen.show_count("")

    def recount(self) -> None:
        """Read again how often the loaded records were returned; not an operation."""
        if self.binding_key and self.rows.loaded:
            self._count([record for _, record in self.rows.held()])

    def _count(self, records: Sequence[Record]) -> None:
        session, key = self._screen.session, self.binding_key
        ids = [record_key(record) for record in records]

        def show(found: dict[str, RetrievalCount]) -> None:
            self.known.stats.update(found)
            self._reorder()
            self._list.rows_changed()

        self._counting.every(
            lambda: session.service.log.retrieval_stats(session.caller, key, ids),
            show,
            self._screen.fail,
        )

    def sort(self, column: str) -> None:
        """Order by a column, or turn its order around."""
        shown = self._list.sort
        descending = not shown[1] if shown and shown[0] == column else column != "text"
        self._list.sort = (column, descending)
        if column in PROVIDER_SORTS:
            self.load()
            return
        self._reorder()
        self._list.rows_changed()
        if self.rows.more:
            self._screen.toast(
                f"Ordered by {column} among the {fmt.count(self.rows.loaded)} that are loaded; "
                "the provider cannot order all by it."
            )

    def _reorder(self) -> None:
        column, descending = self._list.sort or NEWEST_FIRST
        if column not in PROVIDER_SORTS:
            self.rows.order(local_sort(column, self.known), descending=descending)

    # What an edit did, without asking the provider for the page again.

    def binding_of(self, record: Record | None) -> str:
        """Return the binding that the rows came from, which is that of new ones too."""
        del record
        return self.binding_key

    def changed(self, old_id: str, record: Record) -> None:
        """Put the record, as it is now, in its place; a new one goes to the top."""
        if self.rows.index_of(old_id) is None and self._total is not None:
            self._total += 1
        self.rows.change(old_id, record)
        self._list.rows_changed()
        self.look()

    def gone(self, ids: set[str], ghosts: set[str]) -> None:
        """Let go of forgotten records; ghosts stay, shown as such."""
        self.known.ghosts |= ghosts
        left = ids - ghosts
        if self._total is not None:
            self._total -= sum(self.rows.index_of(one) is not None for one in left)
        self.rows.remove(left)
        self._list.selection.drop(ids)
        self._list.rows_changed()
        self.look()

    def look(self) -> None:
        """Say how much is shown and marked."""
        words = [fmt.of_total(self.rows.loaded, self._total, at_least=self._at_least)]
        if self._problems:
            words.insert(0, f"▲ {fmt.counted(len(self._problems), 'problem')}")
        marked = len(self._list.chosen) if self._list.selection.active else 0
        if marked:
            words.insert(0, f"{fmt.count(marked)} marked")
        self._screen.show_count("  ".join(words))
