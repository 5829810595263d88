"""Keeps the context of the Budget screen assembled, and its facts listed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memtui.contract import BrowseRequest, MemtuiError, NotFound, Record, RecordHandle
from memtui.screens.base import MemtuiScreen
from memtui.screens.facts.columns import Reads, sort_key
from memtui.screens.facts.rows import (
    FactRow,
    Place,
    narrowed,
    place_of_section,
    places_of,
    rows_of,
)
from memtui.screens.records.columns import Known
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount
    from memtui.service.context import ContextAnswer

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Assembled:
    """A context, whose facts it holds, and its rows."""

    answer: ContextAnswer
    places: tuple[Place, ...]
    rows: tuple[FactRow, ...]
    by_others: bool = False
    """Whether it was assembled because others changed something."""


class FactFeed:
    """Assembles the context of the scope that is chosen; every assembly is an operation."""

    def __init__(
        self,
        screen: MemtuiScreen,
        shown: Callable[[Assembled], None],
        broken: Callable[[MemtuiError], None],
    ) -> None:
        self._screen = screen
        self._shown = shown
        self._broken = broken
        self.rows: AppendedRows[FactRow] = AppendedRows(lambda row: row.key)
        self.reads: Reads = {}
        self.known = Known()
        self.all: tuple[FactRow, ...] = ()
        self.places: tuple[Place, ...] = ()
        self.adding_to: Place | None = None
        """Where the fact goes that is written next."""
        self._bindings: dict[RecordHandle, str] = {}
        self._model, self._budget = "", 0
        self._question: object = None
        self._again = False
        self._reading = Background(screen, "budget-context")
        self._counting = Background(screen, "budget-reads")

    @property
    def _list(self) -> VirtualList[FactRow]:
        found: VirtualList[FactRow] = self._screen.query_one("#fact-list", VirtualList)
        return found

    @property
    def busy(self) -> bool:
        """Whether a context is being assembled."""
        return self._reading.busy

    def ask_for(self, model: str, budget: int) -> None:
        """Set for which model and budget contexts are assembled."""
        self._model, self._budget = model, budget

    def load(self, *, by_others: bool = False) -> None:
        """Assemble the context again; cursor and marks stay on their facts.

        What others changed waits for an assembly that is under way, and is read after it.
        """
        if by_others and self._reading.busy:
            self._again = True
            return
        from memtui.service.context import ContextRequest

        state, session = self._screen.state, self._screen.session
        key = state.filter.binding_key or state.binding_key
        request = ContextRequest(
            scope=state.record_scope, model=self._model, budget=self._budget, binding_key=key
        )
        if request.scope != self._question:
            self._question = request.scope
            self._list.selection.marks.clear()
            self._list.selection.clear()
            self.rows.replace([])
            self._list.notice = ("Assembling the context …",)
            self._list.show(self.rows)

        async def assemble() -> Assembled:
            answer = await session.service.context(session.caller, request)
            places = []
            for place in places_of(request.scope):
                found = await session.service.resolve(session.caller, place.scope, key)
                places.append(replace(place, binding_key=found.binding_key))
            rows = await asyncio.to_thread(rows_of, answer)
            return Assembled(answer, tuple(places), tuple(rows), by_others)

        self._reading.latest(assemble, self._show, self._fail)

    def forget_scope(self) -> None:
        """Let go of what is shown: nobody is chosen."""
        self._reading.forget()
        self._question = None
        self.all = self.places = ()
        self.rows.replace([])

    def _show(self, found: Assembled) -> None:
        self.all, self.places = found.rows, found.places
        self._bindings = {
            row.handle: place.binding_key
            for row in found.rows
            if row.handle and (place := self.place_of(row))
        }
        self.narrow()
        self._shown(found)
        self._count(found.rows)
        if self._again:
            self._again = False
            self._screen.call_later(self.load, by_others=True)

    def _fail(self, error: MemtuiError) -> None:
        self._question = None
        self.all = ()
        self.rows.replace([])
        self._list.notice = (f"✗ {error}", "r reads again, s chooses another scope.")
        self._list.show(self.rows)
        self._screen.show_count("")
        self._broken(error)

    def narrow(self) -> None:
        """Show the facts that the filter line lets through, in the order that was chosen."""
        rows = narrowed(self.all, self._screen.state.filter)
        if (order := self._list.sort) is not None:
            rows.sort(key=sort_key(order[0], self.reads), reverse=order[1])
        self.rows.replace(rows)
        marks = self._list.selection.marks
        self._list.selection.drop({key for key in marks if self.rows.index_of(key) is None})
        self._list.notice = (
            ("No fact matches.", "/ changes the filter, ctrl+l takes it away.")
            if self.all
            else ("Nothing is remembered here.", "a adds the first fact, s chooses another scope.")
        )
        self._list.show(self.rows)
        self.look()

    def sort(self, column: str) -> None:
        """Order by a column; asked a third time, in the order that the model reads."""
        shown = self._list.sort
        first = column in {"tokens", "age"}
        if shown is None or shown[0] != column:
            self._list.sort = (column, first)
        else:
            self._list.sort = (column, not first) if shown[1] is first else None
        self.narrow()

    def look(self) -> None:
        """Say how much is shown and marked."""
        words = [fmt.of_total(self.rows.loaded, len(self.all))]
        chosen = self._list.chosen if self._list.selection.active else []
        if chosen:
            tokens = sum(row.tokens or 0 for row in chosen)
            words.insert(0, f"{fmt.count(len(chosen))} marked, {fmt.counted(tokens, 'token')}")
        self._screen.show_count("  ".join(words))

    def _count(self, rows: Sequence[FactRow]) -> None:
        """Read how often each fact was read."""
        groups: dict[str, list[RecordHandle]] = defaultdict(list)
        for row in rows:
            place = place_of_section(row.section, self.places)
            if place is not None and row.handle is not None:
                groups[place.binding_key].append(row.handle)
        session = self._screen.session

        async def count() -> dict[RecordHandle, RetrievalCount]:
            found: dict[RecordHandle, RetrievalCount] = {}
            for key, handles in groups.items():
                ids = [handle.provider_record_id for handle in handles]
                stats = await session.service.log.retrieval_stats(session.caller, key, ids)
                found |= {
                    handle: stats[handle.provider_record_id]
                    for handle in handles
                    if handle.provider_record_id in stats
                }
            return found

        self._counting.latest(count, self._counted, self._screen.fail)

    def _counted(self, found: Reads) -> None:
        self.reads.clear()
        self.reads.update(found)
        self.known.stats.clear()
        self.known.stats.update({one.provider_record_id: read for one, read in found.items()})
        if self._list.sort is not None and self._list.sort[0] == "read":
            self.narrow()
        else:
            self._list.rows_changed()

    # The records behind the rows, with the revisions that a change is based on.

    def place_of(self, row: FactRow) -> Place | None:
        """Return whose fact a row is."""
        return place_of_section(row.section, self.places)

    async def records(self, rows: Sequence[FactRow]) -> list[Record]:
        """Return the records of rows as their providers hold them now, in the rows' order.

        Raises:
            NotFound: one of them is gone.
        """
        session = self._screen.session
        if len(rows) == 1 and (place := self.place_of(rows[0])) and rows[0].handle:
            answer = await session.service.get(
                session.caller, rows[0].handle, place.scope, binding_key=place.binding_key
            )
            return [answer.record]
        found: dict[RecordHandle, Record] = {}
        for place in self.places:
            mine = {row.handle for row in rows if self.place_of(row) == place}
            for record in await self.held(place) if mine else ():
                if record.handle in mine:
                    found[record.handle] = record
        missing = sum(row.handle not in found for row in rows)
        if missing:
            raise NotFound(
                f"{fmt.counted(missing, 'fact')} of these {'is' if missing == 1 else 'are'} gone; "
                "r reads them again."
            )
        return [found[row.handle] for row in rows if row.handle is not None]

    async def held(self, place: Place, kind: str | None = None) -> list[Record]:
        """Return all records of a place, of one kind or of all, as its binding holds them."""
        from memtui.contract import own_filter, owned

        session = self._screen.session
        request = BrowseRequest(
            scope=place.scope,
            binding_key=place.binding_key,
            filter=own_filter(place.scope, kind=kind),
            sort="created_at",
            limit=_PAGE,
        )
        records: list[Record] = []
        while True:
            page = await session.service.browse(session.caller, request)
            records += page.records
            if page.next_cursor is None:
                return owned(records, place.scope)
            request = request.model_copy(update={"cursor": page.next_cursor})

    # What an edit did (`EditedRows`).

    def binding_of(self, record: Record | None) -> str:
        """Return the binding that holds a record, or takes the fact that is written next."""
        if record is None:
            return self.adding_to.binding_key if self.adding_to else ""
        return self._bindings.get(record.handle, "")

    def changed(self, old_id: str, record: Record) -> None:
        """Assemble again after a record changed."""
        del old_id, record
        self.load()

    def gone(self, ids: set[str], ghosts: set[str]) -> None:
        """Assemble again without the forgotten records, which lose their marks."""
        self.known.ghosts |= ghosts
        keys = {row.key for row in self.all if row.handle and row.handle.provider_record_id in ids}
        self._list.selection.drop(keys)
        self.load()
