"""Lists of records filtered by usage, which providers do not know (`memtui.pruning.uses`).

The provider's pages are read until enough of their records match, so a list begins at once, however
much is stored. Only for a filter on repeated records is the whole scope read first; the matches are
cached for the further pages of the list.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from memtui.context.assembly import fact_tokens
from memtui.context.cost import TokenCounter
from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    Filter,
    Record,
    RecordHandle,
    Unavailable,
    Usage,
    Use,
)
from memtui.provider_kit.matching import matcher
from memtui.provider_kit.pages import read_cursor, write_cursor
from memtui.pruning.candidates import RetrievalTally
from memtui.pruning.duplicates import static_vectors
from memtui.pruning.uses import Used, asks, is_used_as
from memtui.service.answers import not_checked
from memtui.service.connections import Connection, FoundList
from memtui.service.context.contexts import DEFAULT_MODEL
from memtui.service.recorder import RunningOperation
from memtui.service.review.known_risks import KnownRisks, RiskMark, refuse_past
from memtui.service.runtime import ServiceRuntime
from memtui.service.visibility import readable

_AT_ONCE = 1_000
_MOST_KEPT = 2_000
"""Most records of a list cached for its further pages; a longer list is read again."""

ReportProgress = Callable[[int, int | None], None]
"""Called with the number of records read so far, and of all (None: unknown). When both are equal,
the records are compared."""


class UsedRecords:
    """The records of one request whose usage matches its filter, page by page."""

    def __init__(
        self,
        runtime: ServiceRuntime,
        entry: RunningOperation,
        connection: Connection,
        request: BrowseRequest,
        report: ReportProgress,
    ) -> None:
        self._runtime, self._entry, self._connection = runtime, entry, connection
        self._report = report
        self._request, self._chosen = request, request.filter
        self._now = entry.caller.as_of or runtime.clock()
        self._counter = TokenCounter(DEFAULT_MODEL)
        self._repeated: frozenset[RecordHandle] = frozenset()
        self._unchecked: set[RecordHandle] = set()
        self._usage: tuple[Usage, ...] = ()
        self._until: float | None = None
        """The time to stop reading, in a fan-out; None: no limit."""

    async def page(self) -> BrowsePage:
        """Return one page; its total is known if every record had to be read for it.

        Raises:
            Invalid: the cursor is of another list.
        """
        cursor: str | None = None
        skipped = 0
        if self._request.cursor is not None:
            kinds = (str, type(None)), int
            cursor, skipped = read_cursor(self._request.cursor, self._request.sort, *kinds)
        elif asks(self._chosen, Use.RISK):
            await self._check()
        if asks(self._chosen, Use.DUP):
            return await self._page_of_all(skipped)
        return await self._page_from(cursor, skipped)

    async def _check(self) -> None:
        """Find the risks that are not known, without a time limit."""
        refuse_past(self._entry.caller)
        if (limit := self._entry.limit) is not None:
            limit.reschedule(None)
        with suppress(Unavailable):  # the answer says how many records are unchecked
            from memtui.service.review.risk_checks import RiskChecks

            risks = self._runtime.module(RiskChecks)
            await risks.checked(self._entry.caller, self._connection.binding.key, self._report)

    async def _page_of_all(self, skipped: int) -> BrowsePage:
        """Return a page of repeated records, for which the whole scope must be read."""
        lists, asked = self._connection.found, self._asked()
        found = lists.get(asked) if skipped else None
        if found is None:
            found = await self._found()
            lists.clear()
            if len(found.records) <= _MOST_KEPT:
                lists[asked] = found
        end, total = skipped + self._request.limit, len(found.records)
        following = write_cursor(self._request.sort, None, end) if end < total else None
        return await self._answer(found.records[skipped:end], following, found.last, total=total)

    def _asked(self) -> Hashable:
        """Return a cache key for a list: its request without the page, and the reader."""
        asked = self._request.model_dump_json(exclude={"cursor", "limit"})
        return asked, self._entry.scope, self._entry.visibility, self._entry.caller.as_of

    async def _found(self) -> FoundList:
        """Return the matches among all records, or among those that could be read in time."""
        page = await self._read_first(Filter(), None)
        records = [*page.records]
        while page.next_cursor is not None:
            self._report(len(records), page.total)
            more = await self._read_in_time(Filter(), page.next_cursor)
            if more is None:
                said = _compared(self._connection, len(records), page.total)
                update = {"at_least": True, "unread": (*page.unread, said)}
                page = page.model_copy(update=update)
                break
            page = more
            records += page.records
        self._report(len(records), len(records))
        self._repeated = await asyncio.to_thread(
            self._connection.repeats.among,
            records,
            now=self._now,
            retrievals=await self._retrievals(records),
            vectors=static_vectors(),
        )
        passes = matcher(self._chosen)
        return FoundList(await self._fitting([one for one in records if passes(one)]), page)

    async def _page_from(self, cursor: str | None, skipped: int) -> BrowsePage:
        """Return a page that begins at `cursor` of the provider, after `skipped` matches there."""
        request, narrowed = self._request, self._chosen.model_copy(update={"uses": ()})
        found: list[Record] = []
        following: str | None
        page = await self._read_first(narrowed, cursor)
        while True:
            fitting = (await self._fitting(page.records))[skipped:]
            missing = request.limit - len(found)
            found += fitting[:missing]
            if len(fitting) > missing:
                following = write_cursor(request.sort, cursor, skipped + missing)
                break
            cursor, skipped = page.next_cursor, 0
            following = write_cursor(request.sort, cursor, 0) if cursor else None
            if cursor is None or len(found) == request.limit:
                break
            more = await self._read_in_time(narrowed, cursor)
            if more is None:  # out of time: the next page continues there
                break
            page = more
        is_all = request.cursor is None and following is None
        return await self._answer(found, following, page, total=len(found) if is_all else None)

    async def _answer(
        self, found: Sequence[Record], following: str | None, last: BrowsePage, *, total: int | None
    ) -> BrowsePage:
        """Return the page; `last`: the provider's page that was read last."""
        return BrowsePage(
            records=tuple(found),
            next_cursor=following,
            total=None if last.at_least else total,
            at_least=last.at_least,
            unread=(*last.unread, *not_checked(len(self._unchecked)), *await self._unknown(found)),
            unfinished=last.unfinished,
            usage=self._usage,
        )

    async def _read(self, chosen: Filter, cursor: str | None) -> BrowsePage:
        update = {"filter": chosen, "cursor": cursor, "limit": _AT_ONCE}
        asked = self._request.model_copy(update=update)
        page = await self._connection.read(lambda: self._connection.adapter.browse(asked))
        self._usage += page.usage
        key = self._connection.binding.key
        kept = readable(page.records, self._entry.scope, self._entry.visibility, key)
        return page.model_copy(update={"records": kept})

    async def _read_first(self, chosen: Filter, cursor: str | None) -> BrowsePage:
        """Return the first page, and lift the time limit of the whole read.

        From now on only the reads of further pages are limited, so that this page is not lost.
        """
        page = await self._read(chosen, cursor)
        if (limit := self._entry.limit) is not None:
            self._until = limit.when()
            limit.reschedule(None)
        return page

    async def _read_in_time(self, chosen: Filter, cursor: str) -> BrowsePage | None:
        """Return a further page; None: it did not arrive in time."""
        try:
            async with asyncio.timeout_at(self._until):
                return await self._read(chosen, cursor)
        except TimeoutError:
            return None

    async def _retrievals(self, records: Sequence[Record]) -> dict[RecordHandle, RetrievalTally]:
        handles = {one.handle.provider_record_id: one.handle for one in records}
        log, key = self._runtime.log_of(self._entry.caller), self._connection.binding.key
        counts = await asyncio.to_thread(log.retrieval_counts, key, list(handles))
        return {
            handles[name]: RetrievalTally(count=one.times, last_at=one.last_at)
            for name, one in counts.items()
        }

    async def _fitting(self, records: Sequence[Record]) -> list[Record]:
        """Return the records whose usage matches the filter."""
        is_read = asks(self._chosen, Use.READ)
        reads = await self._retrievals(records) if is_read and records else {}
        is_counted = asks(self._chosen, Use.COST)
        key = self._connection.binding.key
        marks: Mapping[tuple[str, str], RiskMark] = {}
        if asks(self._chosen, Use.RISK) and records:
            marks = await self._runtime.module(KnownRisks).marks(self._entry.caller, {key: records})

        def used(record: Record) -> Used:
            read = reads.get(record.handle, RetrievalTally())
            tokens = fact_tokens(record.text, self._counter) if is_counted else 0
            mark = marks.get((key, record.handle.provider_record_id))
            if mark is not None and not mark.checked:
                self._unchecked.add(record.handle)
            known = mark.states if mark is not None else None
            return Used(read.last_at, tokens, record.handle in self._repeated, known)

        def fitting() -> list[Record]:
            return [one for one in records if is_used_as(self._chosen, used(one), self._now)]

        return await asyncio.to_thread(fitting)

    async def _unknown(self, found: Sequence[Record]) -> tuple[str, ...]:
        """Warn of records older than the log, whose earlier reads are unknown."""
        if not asks(self._chosen, Use.READ) or not found:
            return ()
        log = self._runtime.log_of(self._entry.caller)
        first = await asyncio.to_thread(log.page, Filter(), limit=1, after=0)
        begun = first.operations[0].started_at if first.operations else self._now
        older = sum(made is not None and made < begun for made in map(_made, found))
        if not older:
            return ()
        since = f"The log begins on {begun:%Y-%m-%d}, so what read {older:,} older"
        return (f"{since} record{'s' * (older > 1)} before that is not known.",)


def _compared(connection: Connection, read: int, total: int | None) -> str:
    of = f" of {total:,}" if total is not None else ""
    return (
        f"{connection.binding.key}: {read:,}{of} records were read in time and compared; "
        "raise all_bindings_timeout_ms to compare more."
    )


def _made(record: Record) -> datetime | None:
    return record.created_at or record.updated_at
