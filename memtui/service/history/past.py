"""The past of a scope: its changes, the differences of two moments, a record's versions.

Records of a provider with validity windows are read from its versions, others from the undo
journal. The operation log has who made a change, and why.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from memtui.contract import (
    BrowseRequest,
    Filter,
    Invalid,
    Model,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Term,
    UtcDatetime,
)
from memtui.service.answers import Answer, Change, HistoryAnswer
from memtui.service.connections import Connection
from memtui.service.operations.memories import Operations
from memtui.service.operations.reading import received_history
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, for_caller, may_read, readable, versions_for
from memtui.store.details import RecordDetails
from memtui.store.journal import Journal
from memtui.store.operation import Operation
from memtui.threads import in_thread

_SHOWN = ("text", "title", "summary", "topic", "kind", "tags", "pinned", "expires_at")
"""The fields compared between two moments."""
_CHANGING = (
    OperationType.WRITE, OperationType.CORRECT, OperationType.FORGET, OperationType.UNDO,
    OperationType.SYNC,
)  # fmt: skip
_LONGEST = timedelta(minutes=10)
"""An operation that began longer than this before a moment is taken to have ended by then."""
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class ChangeKind(StrEnum):
    """Kind of change of a record."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class DayOfChanges(Model):
    """How many records were added, changed and removed on a day."""

    day: date
    added: int = 0
    changed: int = 0
    removed: int = 0


class MomentsAnswer(Answer):
    """The moments and days at which a scope's list changed, oldest first."""

    moments: tuple[UtcDatetime, ...] = ()
    days: tuple[DayOfChanges, ...] = ()
    """The days with changes."""


class Difference(Model):
    """A record that differs between the earlier and the later moment."""

    kind: ChangeKind
    before: Record | None
    after: Record | None
    operations: tuple[Operation, ...] = ()
    """Its changes through memtui in between, newest first. Empty: it was changed elsewhere."""


class CompareAnswer(Answer):
    """The differences of a scope's list between two moments: removed, changed, added."""

    earlier: UtcDatetime
    later: UtcDatetime
    differences: tuple[Difference, ...] = ()
    same: int = 0
    """Number of unchanged records."""


class TimelineEntry(RecordVersion):
    """One version of a record, with the operations that made and ended it; None: not by memtui."""

    made_by: Operation | None = None
    ended_by: Operation | None = None


class TimelineAnswer(HistoryAnswer):
    """Every known version of a record, newest first."""

    timeline: tuple[TimelineEntry, ...] = ()


class _Event(NamedTuple):
    at: datetime
    kind: ChangeKind


class Past(ServiceModule):
    """The past of scopes and records. Records that the caller may not read now are left out."""

    async def moments(
        self,
        caller: Caller,
        scope: Scope,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        zone: tzinfo = UTC,
        binding_key: str | None = None,
    ) -> MomentsAnswer:
        """Return when the list of a scope changed, from `since` (inclusive) to `until` (exclusive).

        Days are those of `zone`.
        """
        asked = RecordDetails(purpose="moments", since=since.isoformat() if since else None)
        async with self._runtime.connected(
            OperationType.HISTORY, caller, scope, asked, binding_key
        ) as (entry, connection):
            events = [
                event
                for event in await self._events(entry, connection, since)
                if (since is None or since <= event.at)
                and (until is None or event.at < until)
                and (caller.as_of is None or event.at <= caller.as_of)
            ]
            entry.result_count = len(events)
        counts: dict[date, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for event in events:
            counts[event.at.astimezone(zone).date()][event.kind] += 1
        return MomentsAnswer(
            **entry.answer(),
            moments=tuple(sorted({event.at for event in events})),
            days=tuple(DayOfChanges(day=day, **counts[day]) for day in sorted(counts)),
        )

    async def _events(
        self, entry: RunningOperation, connection: Connection, since: datetime | None
    ) -> list[_Event]:
        able, scope = connection.adapter.capabilities, entry.scope
        versions: dict[str, list[Record]] = defaultdict(list)
        if able.validity:
            everything = Scope(company_id=scope.company_id)
            for one in await connection.read(lambda: connection.adapter.versions(everything)):
                versions[one.handle.provider_record_id].append(one)

        def is_seen(owner: Scope) -> bool:
            return connection.adapter.lists(scope, owner) and may_read(
                owner, scope, entry.visibility
            )

        company_id, key = connection.binding.company_id, connection.binding.key
        events = [
            event
            for own in versions.values()
            if is_seen(own[-1].scope)
            for event in _events_of(own)
        ]
        # `steps_since` leaves out changes at its moment, `since` includes them.
        begin = since - _MICROSECOND if since else _EPOCH
        for step in await self._runtime.ask_journal(company_id, Journal.steps_since, key, begin):
            # A provider with validity windows may have no version of a change that was undone.
            if (step.record_id not in versions or step.taken_back) and is_seen(step.scope):
                kind = ChangeKind.ADDED if step.is_there else ChangeKind.REMOVED
                both = step.was_there and step.is_there
                events.append(_Event(step.at, ChangeKind.CHANGED if both else kind))
        return events

    @in_thread
    def made_by(
        self, caller: Caller, moments: Sequence[datetime], binding_key: str
    ) -> list[str | None]:
        """Return, for each moment, the id of the changing operation that was running then.

        None: the change was not made through memtui, or the caller may not see the operation.
        """
        if not moments:
            return []
        chosen = Filter(
            since=min(moments) - _LONGEST,
            until=max(moments) + _MICROSECOND,
            status=OperationStatus.OK,
            binding_key=binding_key,
            terms=(Term(field="operation_type", values=_CHANGING),),
        )
        spans = self._runtime.log_of(caller).spans(chosen)
        ends = list(accumulate((span.ends for span in spans), max))
        found: list[str | None] = []
        for moment in moments:
            place = bisect_right(spans, moment, key=lambda span: span.begins) - 1
            while place >= 0 and spans[place].ends < moment:
                # An earlier one may have run longer; `ends` tells when none of them did.
                place = place - 1 if ends[place] >= moment else -1
            found.append(spans[place].operation_id if place >= 0 else None)
        return found

    async def compare(
        self,
        caller: Caller,
        scope: Scope,
        earlier: datetime,
        later: datetime | None = None,
        *,
        chosen: Filter | None = None,
        binding_key: str | None = None,
    ) -> CompareAnswer:
        """Return how the list of a scope differs between two moments, and by which operations.

        Args:
            caller: Who asks.
            scope: The scope to list.
            earlier: The first moment.
            later: The second moment; None: the caller's `as_of`, or now.
            chosen: A filter on the records, applied at each moment.
            binding_key: The binding to list; None: the scope's.

        Raises:
            Invalid: the later moment is not later.
        """
        end = later or caller.as_of or self._runtime.clock()
        if end <= earlier:
            raise Invalid("The later moment is not after the earlier one; swap them.")
        asked = RecordDetails(purpose="compare", earlier=earlier.isoformat(), later=end.isoformat())
        async with self._runtime.connected(
            OperationType.HISTORY, caller, scope, asked, binding_key, needs="browse"
        ) as (entry, connection):
            request = BrowseRequest(scope=scope, filter=chosen or Filter(), sort="created_at")
            company_id, key = connection.binding.company_id, connection.binding.key
            first, second = (self._runtime.then(connection, moment) for moment in (earlier, end))
            before, after = [
                {
                    record.handle.provider_record_id: record
                    async for page in then.pages(request)
                    for record in for_caller(
                        caller, readable(page.records, scope, entry.visibility, key)
                    )
                }
                for then in (first, second)
            ]
            unknown = await self._runtime.unreadable(entry, first)
            steps = await self._runtime.ask_journal(company_id, Journal.steps_since, key, earlier)
            done: dict[str, list[str]] = defaultdict(list)
            for step in steps:
                if step.at <= end:
                    done[step.record_id].append(step.operation_id)
            pairs = {name: (before.get(name), after.get(name)) for name in (*before, *after)}
            kinds = {name: kind for name, pair in pairs.items() if (kind := _kind(*pair))}
            ids = [one for name in kinds for one in done[name]]
            log = self._runtime.log(caller.company_id, entry.visibility)
            known = await asyncio.to_thread(log.by_ids, list(dict.fromkeys(ids)))
            differences = [
                Difference(
                    kind=kind,
                    before=pairs[name][0],
                    after=pairs[name][1],
                    operations=tuple(one for one in known if one.operation_id in done[name]),
                )
                for name, kind in kinds.items()
            ]
            entry.result_count = len(differences)
        order = [ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.ADDED]
        all_problems = dict.fromkeys((*entry.problems, *unknown))
        return CompareAnswer(
            **entry.answer() | {"problems": tuple(all_problems)},
            earlier=earlier,
            later=end,
            differences=tuple(sorted(differences, key=lambda one: order.index(one.kind))),
            same=len(after) - sum(one.kind is not ChangeKind.REMOVED for one in differences),
        )

    async def timeline(
        self,
        caller: Caller,
        asked: RecordHandle | str,
        scope: Scope,
        *,
        binding_key: str | None = None,
    ) -> TimelineAnswer:
        """Return every known version of a record, with the operations that made and ended it.

        The versions are the provider's or those of the undo journal, whichever are more.

        Raises:
            NotFound: no such record exists or existed.
        """
        found, owner = await self._runtime.module(Operations).kept_history(
            caller, asked, scope, binding_key=binding_key
        )
        by_provider, by_memtui = list(_of_versions(found)), _of_changes(found.changes)
        by_memtui = [*_edited(found, by_memtui), *by_memtui[1:]] if by_memtui else []
        longer = by_memtui if len(by_memtui) > len(by_provider) else by_provider
        return TimelineAnswer(
            **dict(received_history(caller, found, owner)),
            timeline=versions_for(caller, longer, found.handle, owner),
        )


def _events_of(versions: Sequence[Record]) -> Iterator[_Event]:
    """Yield when a record was added, changed and removed, from its versions, oldest first."""
    # A version that ended as it began was never in force.
    real = [one for one in versions if one.valid_from is None or one.valid_from != one.valid_to]
    last_end: datetime | None = None
    for number, one in enumerate(real):
        if one.valid_from is not None:
            is_next = number > 0 and last_end == one.valid_from
            yield _Event(one.valid_from, ChangeKind.CHANGED if is_next else ChangeKind.ADDED)
        last_end = one.valid_to
        follows = number + 1 < len(real) and real[number + 1].valid_from == last_end
        if last_end is not None and not follows:
            yield _Event(last_end, ChangeKind.REMOVED)


def _kind(before: Record | None, after: Record | None) -> ChangeKind | None:
    if before is None or after is None:
        return ChangeKind.ADDED if before is None else ChangeKind.REMOVED
    is_same = all(getattr(before, name) == getattr(after, name) for name in _SHOWN)
    return None if is_same else ChangeKind.CHANGED


def _of_versions(found: HistoryAnswer) -> Iterator[TimelineEntry]:
    """Yield the provider's versions, the newest first, with the operations that made them."""
    for version in found.versions:
        made = [one for one in found.changes if _made(one, version)]
        ended = [one for one in found.changes if _ended(one, version)]
        yield TimelineEntry(
            **dict(version),
            made_by=made[-1].operation if made else None,
            ended_by=ended[0].operation if ended else None,
        )


def _made(change: Change, version: RecordVersion) -> bool:
    """Whether a change made a version: it wrote that text, at the version's begin."""
    before, after = change.before, change.after
    if after is None or after.text != version.text or (before and before.text == after.text):
        return False
    if after.valid_from is not None:
        return after.valid_from == version.valid_from
    return _is_then(change, version.valid_from)


def _ended(change: Change, version: RecordVersion) -> bool:
    """Whether a change ended a version: it replaced or removed that text, at the version's end."""
    before, after = change.before, change.after
    if before is None or before.text != version.text or (after and after.text == before.text):
        return False
    if before.valid_from is not None:
        ends, begun = version.valid_to, change.operation.started_at
        return before.valid_from == version.valid_from and ends is not None and begun <= ends
    return _is_then(change, version.valid_to)


def _is_then(change: Change, moment: datetime | None) -> bool:
    """Whether a moment is the time of a change: in its record, or while its operation ran."""
    if moment is None:
        return False
    if change.after is not None and moment in {change.after.updated_at, change.after.valid_from}:
        return True
    begun = change.operation.started_at
    return begun <= moment <= begun + timedelta(milliseconds=change.operation.latency_ms or 0)


def _edited(found: HistoryAnswer, entries: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Return the newest entry, after the present text if that was edited outside memtui."""
    newest = entries[0]
    now = next((one for one in found.versions if one.valid_to is None), None)
    if now is None or newest.valid_to is not None or now.text == newest.text:
        return [newest]
    return _by_hand(newest, now.text, found.edited_at, None)[::-1]


def _by_hand(
    last: TimelineEntry, text: str, edited_at: datetime | None, until: datetime | None
) -> list[TimelineEntry]:
    """Return an entry and its successor `text`, which no operation made.

    The successor began at `edited_at` if that is possible: after the entry, and by `until`.
    """
    is_between = (
        edited_at is not None
        and (last.valid_from is None or last.valid_from <= edited_at)
        and (until is None or edited_at <= until)
    )
    at = edited_at if is_between else None
    ended = last.valid_to or at or until
    return [last.model_copy(update={"valid_to": ended}), TimelineEntry(text=text, valid_from=at)]


def _of_changes(changes: Sequence[Change]) -> list[TimelineEntry]:
    """Return the texts of a record between its changes, newest first."""
    entries: list[TimelineEntry] = []
    oldest = changes[-1].before if changes else None
    if oldest is not None:
        first = TimelineEntry(text=oldest.text, valid_from=oldest.created_at, source=oldest.source)
        entries.append(first.model_copy(update={"created_by": oldest.created_by}))
    for change in reversed(changes):
        operation, after = change.operation, change.after
        at = operation.started_at
        if entries and change.before is not None and change.before.text != entries[-1].text:
            entries[-1:] = _by_hand(entries[-1], change.before.text, change.before.updated_at, at)
        is_new = after is not None and (not entries or after.text != entries[-1].text)
        is_back = after is not None and bool(entries) and entries[-1].valid_to is not None
        if after is not None and not (is_new or is_back):
            continue
        if entries and entries[-1].valid_to is None:
            entries[-1] = entries[-1].model_copy(update={"valid_to": at, "ended_by": operation})
        if after is not None:
            entries.append(
                TimelineEntry(
                    text=after.text,
                    valid_from=at,
                    created_by=operation.author,
                    source=operation.reason,
                    made_by=operation,
                )
            )
    return entries[::-1]
