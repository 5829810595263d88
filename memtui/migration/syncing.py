"""Keep two bindings in sync, both ways: a vault and its Milvus collections (seed 002 §7).

A change on one side since the last sync goes to the other. A record that changed on both is a
conflict: a person decides, and both versions stay until then. A deletion is copied only if the
pair was in sync before, the side that lacks the record was read whole, and deletions are few. Each
change is an operation of the service, so it can be undone. After a kill at any moment, the next run
ends in sync, since unpaired records of the same content are paired.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    Problem,
    Record,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteRequest,
    owner_of,
)
from memtui.fact_values import entry_of, pair_of, value_of
from memtui.migration.endpoints import Endpoints, ProgressFile, check_writable
from memtui.migration.envelope import as_json, why_left
from memtui.migration.moving import Failure, MigrationProgress, Pace
from memtui.service.operations.in_sync import InSync, SyncedRecord
from memtui.service.operations.undo import as_write

_COMPARED = (
    "text", "kind", "title", "summary", "topic", "tags", "pinned", "expires_at", "metadata",
)  # fmt: skip
_CORRECTED = frozenset({"text", "summary", "topic", "tags", "pinned", "expires_at"})
"""Fields that a correction can change; for others the record is rewritten."""
_OF_TEXT = frozenset({"entry_type", "key", "value"})
"""Metadata of a `key: value` fact that repeats its text."""
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES = 8
_Doomed = tuple[list[tuple[SyncedRecord, Record]], list[tuple[SyncedRecord, Record]]]
"""Records to delete on each side, since their counterpart is gone."""
_MOST_DELETED = 0.05
"""Largest share of the paired records that is deleted without confirmation."""
_NOTED_AT_ONCE = 50
_LISTED_FAILURES = 1_000
_FAILURES_TO_STOP = 10


class Meeting(StrEnum):
    """How the two sides of a record are in conflict."""

    BOTH_CHANGED = "changed on both sides"
    REMOVED_LEFT = "removed on the left, changed on the right"
    REMOVED_RIGHT = "changed on the left, removed on the right"
    SAME_KEY = "the same key with another value"


class Divided(Model):
    """A conflict; each side keeps its version until a person decides."""

    what: str
    records: tuple[Record | None, Record | None]
    """The record on each side; None: it is gone there."""


class HeldBack(Model):
    """Deletions that were held back, and why."""

    key: str
    """The binding in which the records still are."""
    record_ids: tuple[str, ...]
    reason: str


class Synced(Model):
    """The result of a sync or a dry run, with the changes counted by changed binding."""

    left: str
    right: str
    records: tuple[int, int] = (0, 0)
    """Number of records on each side."""
    in_sync: int = 0
    """Records that were already the same."""
    written: dict[str, int] = {}
    changed: dict[str, int] = {}
    deleted: dict[str, int] = {}
    conflicts: tuple[Divided, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    failed: int = 0
    failures: tuple[Failure, ...] = ()
    """The first thousand."""
    dry_run: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether both sides have the same records now."""
        return not (self.failed or self.conflicts or self.held_back)


@dataclass(slots=True)
class _Side:
    """One of the two bindings, as it was read."""

    key: str
    records: dict[str, Record] = field(default_factory=dict)
    versions: dict[str, Sequence[Record]] = field(default_factory=dict)
    """Versions of facts by record id, where the provider stores them."""
    owners: frozenset[tuple[str, str]] = frozenset()
    """Owners of the records that it lists."""
    count: int = 0
    is_whole: bool = True
    unread: tuple[str, ...] = ()
    problems: dict[Problem, None] = field(default_factory=dict)
    """Problems met while reading this side, without duplicates."""
    made: dict[str, str] = field(default_factory=dict)
    """The `made` metadata of each namespace; another value means that it was recreated."""

    def problem_of(self, record_id: str) -> Problem | None:
        """Return the problem with a record's file or a folder above it, if any."""
        path = PurePosixPath(record_id.partition("#")[0])
        places = [f"/{one}" for one in (path, *path.parents) if one.name]
        for one in self.problems:
            if one.location is None:
                continue
            if any(f"/{one.location.path}".endswith(place) for place in places):
                return one
        return None


@dataclass(frozen=True, slots=True)
class _Known:
    """A pair: its record on each side, and the fields changed there since the last sync."""

    pair: SyncedRecord
    records: tuple[Record | None, Record | None]
    changed: tuple[frozenset[str], frozenset[str]]


async def sync(
    endpoints: Endpoints,
    data: Path,
    *,
    dry_run: bool = False,
    delete: int | None = None,
    rebuild: bool = False,
    report: Callable[[MigrationProgress], None] = lambda _progress: None,
) -> Synced:
    """Sync two bindings.

    Args:
        endpoints: The vault, and the binding to sync with it.
        data: memtui's data folder.
        dry_run: Only return what would be done.
        delete: Confirms deletions that were held back, if their number is exactly this.
        rebuild: Rewrite what the second binding lacks, with its history; delete nothing.
        report: Receives the progress, a few times a second.

    Raises:
        Denied: one of the bindings is read-only.
        Conflict: another migration or sync into the binding is running.
        Invalid: `delete` is not the number of deletions held back.
        Unavailable: a provider failed ten times in a row; a further run continues.
    """
    if not dry_run:
        for one in (endpoints, _turned(endpoints)):
            await check_writable(one)
    with ProgressFile(data, endpoints).alone():
        return await _Sync(endpoints, Pace(report), dry_run=dry_run, rebuild=rebuild).run(delete)


BOTH = "both"
"""Value of `keep` with which `resolve` copies each version to the other side."""


async def resolve(endpoints: Endpoints, data: Path, record_id: str, keep: str) -> Synced:
    """Decide a conflict.

    The version of the binding `keep` goes to both sides, a deletion included; with `BOTH`, both
    sides get both versions as separate records.

    Raises:
        NotFound: there is no such conflict.
        Invalid: `keep` names neither binding, or both versions cannot be kept.
    """
    keys = (endpoints.source.key, endpoints.destination.key)
    if keep not in {*keys, BOTH}:
        raise Invalid(f"{keep} is no version to keep; name {keys[0]}, {keys[1]} or {BOTH}.")
    for one in (endpoints, _turned(endpoints)):
        await check_writable(one)
    with ProgressFile(data, endpoints).alone():
        kept = keys.index(keep) if keep in keys else None
        return await _Sync(endpoints, Pace(lambda _progress: None)).decide(record_id, kept)


class _Sync:
    """One run. Sides have numbers, the vault 0, so that the same code serves both directions."""

    def __init__(
        self, endpoints: Endpoints, pace: Pace, *, dry_run: bool = False, rebuild: bool = False
    ) -> None:
        self._endpoints, self._pace = endpoints, pace
        self._dry_run, self._rebuild = dry_run, rebuild
        self._service, self._caller = endpoints.service, endpoints.caller
        self._bindings = endpoints.source, endpoints.destination
        self._sides = tuple(_Side(one.key) for one in self._bindings)
        self._counts: dict[str, dict[str, int]] = {
            name: defaultdict(int) for name in ("written", "changed", "deleted")
        }
        self._conflicts: list[Divided] = []
        self._failures: list[Failure] = []
        self._failed = self._in_a_row = self._same = 0
        self._kept: list[HeldBack] = []
        self._noted: list[SyncedRecord] = []
        self._dropped: list[SyncedRecord] = []
        self._state: InSync
        self._sees_all = False

    async def run(self, delete: int | None) -> Synced:
        """Read both sides, and sync them."""
        known = await self._read()
        doomed: _Doomed = ([], [])
        for one in known:
            await self._meet(one, doomed)
        await self._follow_renamed(doomed)
        await self._pair_the_rest()
        await self._delete(doomed, delete, len(known))
        made = {
            f"{place} {name}": value
            for place, side in enumerate(self._sides)
            for name, value in side.made.items()
        }
        self._state = self._state.model_copy(
            update={
                "synced_at": datetime.now(UTC),
                "made": self._state.made if self._kept else {**self._state.made, **made},
                "conflicts": len(self._conflicts),
                "held_back": sum(len(one.record_ids) for one in self._kept),
            }
        )
        await self._note()
        self._pace.tell()
        return self._answer()

    async def decide(self, record_id: str, kept: int | None) -> Synced:
        """Sync one record to the version of side `kept`; None: keep both versions."""
        known = await self._read()
        found = [one for one in known if record_id in one.pair.ids and _meeting(one)]
        if not found:
            found = [
                _Known(self._pair_of(*both), both, (frozenset(), frozenset()))
                for both in self._rivals()
                if record_id in {one.handle.provider_record_id for one in both}
            ]
        if not found:
            raise NotFound(
                f"There is no conflict about {record_id}; `memtui vault conflicts "
                f"{self._bindings[1].key}` lists them."
            )
        await (self._keep_both(found[0]) if kept is None else self._keep(found[0], kept))
        # Only this record was examined; other deletions stay held back.
        left = max(0, self._state.conflicts - (not self._failed))
        self._state = self._state.model_copy(update={"conflicts": left})
        await self._note()
        return self._answer()

    async def _keep(self, one: _Known, kept: int) -> None:
        lost = 1 - kept
        record, other = one.records[kept], one.records[lost]
        if record and other:
            changed = _other_fields(self._prints(record), self._prints(other))
            await self._try(self._change(record, other, changed, lost), record, "changed", lost)
        elif record:
            await self._try(self._copy(record, lost), record, "written", lost)
        elif other:
            await self._try(self._forget(one.pair, other, lost), other, "deleted", lost)

    async def _keep_both(self, one: _Known) -> None:
        left, right = one.records
        if left is None or right is None:
            raise Invalid(
                "One side no longer has the record; keep the version of one of the bindings."
            )
        if _key(left) is not None and _key(left) == _key(right):
            raise Invalid("A fact's key has one value; keep the version of one of the bindings.")
        self._dropped.append(one.pair)
        await self._try(self._copy(left, 1), left, "written", 1)
        await self._try(self._copy(right, 0), right, "written", 0)

    # Read

    async def _read(self) -> list[_Known]:
        state, pairs = await self._service.pairs.of(
            self._caller, self._sides[0].key, self._sides[1].key
        )
        self._state = state
        self._sees_all = await self._service.pairs.sees_all(self._caller)
        for side, binding in zip(self._sides, self._bindings, strict=True):
            async for page in self._endpoints.pages(binding, all_problems=True):
                side.records |= {one.handle.provider_record_id: one for one in page.records}
                side.is_whole, side.unread = not page.at_least, page.unread
                side.problems |= dict.fromkeys(page.problems)
            side.owners = frozenset(owner_of(one.scope) for one in side.records.values())
            side.count = len(side.records)
            if binding.capabilities.validity:
                side.versions = await self._service.pairs.versions(self._caller, side.key)
            if binding.capabilities.namespaces:
                side.made = {
                    one.name: str(made)
                    for one in await self._service.namespaces.all(self._caller, side.key)
                    if (made := one.metadata.get("made"))
                }
        self._pace.total = max(side.count for side in self._sides)
        # In a thread: hashing thousands of records would block the app.
        return await asyncio.to_thread(lambda: [self._known(pair) for pair in pairs])

    def _known(self, pair: SyncedRecord) -> _Known:
        left, right = (
            side.records.pop(name, None) for side, name in zip(self._sides, pair.ids, strict=True)
        )
        return _Known(
            pair, (left, right),
            (self._differing(left, pair.prints[0]), self._differing(right, pair.prints[1])),
        )  # fmt: skip

    def _differing(self, record: Record | None, prints: bytes) -> frozenset[str]:
        if record is None:
            return frozenset()
        return _other_fields(self._prints(record), prints)

    def _prints(self, record: Record) -> bytes:
        fields = as_json(_own(record))
        return b"".join(
            blake2b(repr(fields[name]).encode("utf-8", "surrogatepass"), digest_size=_BYTES,
                    key=self._state.salt).digest()
            for name in _COMPARED
        )  # fmt: skip

    def _pair_of(self, left: Record, right: Record) -> SyncedRecord:
        return SyncedRecord(
            ids=(left.handle.provider_record_id, right.handle.provider_record_id),
            prints=(self._prints(left), self._prints(right)),
        )

    # Compare

    async def _meet(self, one: _Known, doomed: _Doomed) -> None:
        """Sync a pair, or note its conflict or deletion."""
        left, right = one.records
        there = 1 if left is None else 0
        record = left or right
        if record is None:
            if self._sees_all and all(side.is_whole for side in self._sides):
                self._dropped.append(one.pair)
        elif left and right:
            await self._meet_both(one, left, right)
        elif self._rebuild and there == 0:
            self._dropped.append(one.pair)
            await self._try(self._copy(record, 1), record, "written", 1)
        elif meeting := _meeting(one):
            self._conflicts.append(Divided(what=meeting, records=one.records))
        else:
            doomed[there].append((one.pair, record))
        self._pace.add()

    async def _meet_both(self, one: _Known, left: Record, right: Record) -> None:
        changed = one.changed
        if not changed[0] and not changed[1]:
            self._same += 1
        elif meeting := _meeting(one):
            self._conflicts.append(Divided(what=meeting, records=(left, right)))
        elif changed[0] and changed[1]:
            self._noted.append(self._pair_of(left, right))
            self._same += 1
        elif changed[0]:
            await self._try(self._change(left, right, changed[0], 1), left, "changed", 1)
        else:
            await self._try(self._change(right, left, changed[1], 0), right, "changed", 0)

    async def _follow_renamed(self, doomed: _Doomed) -> None:
        """Pair records whose id changed, as when a file was moved."""
        for there, ones in enumerate(doomed):
            side = self._sides[1 - there]
            unpaired: dict[tuple[object, ...], list[Record]] = defaultdict(list)
            for record in side.records.values() if ones else ():
                unpaired[_says_untitled(record)].append(record)
            gone, ones[:] = list(ones), []
            for pair, record in gone:
                if not (same := unpaired[_says_untitled(record)]):
                    ones.append((pair, record))
                    continue
                moved = same.pop(0)
                del side.records[moved.handle.provider_record_id]
                both = (moved, record) if there == 1 else (record, moved)
                ids = (both[0].handle.provider_record_id, both[1].handle.provider_record_id)
                now = SyncedRecord(ids=ids, prints=pair.prints)
                self._dropped.append(pair)
                self._noted.append(now)
                left, right = (
                    self._differing(one, prints)
                    for one, prints in zip(both, pair.prints, strict=True)
                )
                await self._meet_both(_Known(now, both, (left, right)), *both)

    async def _pair_the_rest(self) -> None:
        """Pair records of the same content, and copy those that only one side has."""
        unpaired: dict[tuple[object, ...], list[Record]] = defaultdict(list)
        for record in self._sides[1].records.values():
            unpaired[_says(record)].append(record)
        for name, record in list(self._sides[0].records.items()):
            if same := unpaired[_says(record)]:
                other = same.pop(0)
                del self._sides[0].records[name]
                del self._sides[1].records[other.handle.provider_record_id]
                self._noted.append(self._pair_of(record, other))
                self._same += 1
                self._pace.add()
        await self._pair_equal_facts()
        for left, right in self._rivals():
            for side, record in zip(self._sides, (left, right), strict=True):
                del side.records[record.handle.provider_record_id]
            self._conflicts.append(Divided(what=Meeting.SAME_KEY, records=(left, right)))
        for here, there in ((0, 1), (1, 0)):
            for record in self._sides[here].records.values():
                await self._try(self._copy(record, there), record, "written", there)
                self._pace.add()
        await self._write_gone_facts()

    async def _pair_equal_facts(self) -> None:
        """Pair equal facts with different tags, and give both the union of the tags.

        Tags differ because a facts file gives all its facts the tags of its frontmatter.
        """
        unpaired: dict[tuple[object, ...], list[Record]] = defaultdict(list)
        for right in self._sides[1].records.values():
            if right.kind == "fact":
                unpaired[_fact(right)].append(right)
        for left in list(self._sides[0].records.values()):
            if left.kind != "fact" or not (same := unpaired[_fact(left)]):
                continue
            right = same.pop(0)
            del self._sides[0].records[left.handle.provider_record_id]
            del self._sides[1].records[right.handle.provider_record_id]
            tags = tuple(dict.fromkeys((*left.tags, *right.tags)))
            whole = [one.model_copy(update={"tags": tags}) for one in (left, right)]
            lacking = [to for to, one in enumerate((left, right)) if set(one.tags) != set(tags)]
            for to in reversed(lacking):
                change = self._change(whole[1 - to], (left, right)[to], frozenset({"tags"}), to)
                await self._try(change, whole[1 - to], "changed", to)
            if not lacking:
                self._noted.append(self._pair_of(left, right))
                self._same += 1
            self._pace.add()

    def _rivals(self) -> list[tuple[Record, Record]]:
        """Return unpaired facts of the same key and scope with different values."""
        rights: dict[tuple[object, ...], Record] = {}
        for record in self._sides[1].records.values():
            if key := _key(record):
                rights.setdefault(key, record)
        found = []
        for record in self._sides[0].records.values():
            key = _key(record)
            if key and (other := rights.pop(key, None)) and _says(record) != _says(other):
                found.append((record, other))
        return found

    # Change

    async def _try(
        self, change: Coroutine[Any, Any, None], record: Record, done: str, to: int
    ) -> None:
        """Await a change of side `to` and count it as `done`; a failure does not stop the run."""
        why = None
        if done != "deleted":
            no_text = "It has no text, and a memory needs one."
            why = why_left(record, self._sides[1 - to].problems)
            why = why or (None if record.text.strip() else no_text)
        try:
            if why is not None or self._dry_run:
                change.close()
            else:
                await change
            if why is not None:
                raise Invalid(why)
        except MemtuiError as error:
            self._failed += 1
            self._in_a_row = self._in_a_row + 1 if isinstance(error, Unavailable) else 0
            if len(self._failures) < _LISTED_FAILURES:
                name = record.handle.provider_record_id
                self._failures.append(Failure(record_id=name, reason=str(error)))
            if self._in_a_row >= _FAILURES_TO_STOP:
                await self._note()
                raise
        else:
            self._in_a_row = 0
            self._counts[done][self._sides[to].key] += 1

    async def _copy(self, record: Record, to: int) -> None:
        """Write a record to the other side, a fact with its earlier versions."""
        stored = await self._write(record, to, WriteMode.APPEND)
        name = stored.handle.provider_record_id
        # A fact removed on that side is still there as an earlier version.
        there = {(one.text, one.valid_from) for one in self._sides[to].versions.get(name, ())}
        for version in self._past_of(record, to):
            if (version.text, version.valid_from) not in there:
                await self._write(version, to, WriteMode.UPSERT, name)
        await self._paired(record, stored, to)

    def _past_of(self, record: Record, to: int) -> list[Record]:
        """Return earlier versions of a fact, newest first, if the other side stores versions."""
        if record.kind != "fact" or not self._bindings[to].capabilities.validity:
            return []
        versions = self._sides[1 - to].versions.get(record.handle.provider_record_id, ())
        return [one for one in reversed(versions) if one.valid_to is not None]

    async def _write_gone_facts(self) -> None:
        """Write facts that are no longer valid to the second binding if it has no versions yet."""
        left, right = self._sides
        if not self._bindings[1].capabilities.validity or right.versions:
            return
        for versions in left.versions.values():
            if versions and versions[-1].valid_to is not None:
                await self._try(self._write_past(versions), versions[-1], "written", 1)

    async def _write_past(self, versions: Sequence[Record]) -> None:
        name: str | None = None
        for version in reversed(versions):
            request = self._request(version, 1, WriteMode.UPSERT, name)
            answer = await self._service.write(self._caller, request, copied=True)
            name = answer.handles[0].provider_record_id

    def _request(
        self, record: Record, to: int, mode: WriteMode, record_id: str | None = None
    ) -> WriteRequest:
        binding = self._bindings[to]
        can = binding.capabilities
        update = {
            "record_id": record_id,
            "mode": mode,
            "pinned": record.pinned and can.pin,
            "expires_at": record.expires_at if can.expiry else None,
            "valid_from": _begin(record) if can.validity else None,
            "valid_to": record.valid_to if can.validity else None,
            "summary": record.summary if can.summaries else None,
        }
        written = _own(record) if pair_of(record.text) else record
        return as_write(written, binding.key).model_copy(update=update)

    async def _write(
        self, record: Record, to: int, mode: WriteMode, record_id: str | None = None
    ) -> Record:
        request = self._request(record, to, mode, record_id)
        answer = await self._service.write(self._caller, request, copied=True)
        if not answer.records:
            raise Unavailable(f"{self._sides[to].key} stored it, but has not returned its id yet.")
        return answer.records[0]

    async def _paired(self, record: Record, stored: Record, to: int) -> None:
        both = (record, stored) if to == 1 else (stored, record)
        self._noted.append(self._pair_of(*both))
        if len(self._noted) + len(self._dropped) >= _NOTED_AT_ONCE:
            await self._note()

    async def _change(
        self, record: Record, other: Record, changed: frozenset[str], to: int
    ) -> None:
        """Update the other side's record to this one."""
        stored = None
        if changed <= _CORRECTED:
            try:
                stored = await self._corrected(record, other, changed, to)
            except (Invalid, Unsupported):  # such as another heading of a fact
                stored = None
        if stored is None:
            await self._forget_record(other, to)
            begin = _begin(record)
            # The new version must begin after the old one.
            if begin and other.valid_from and begin <= other.valid_from:
                begin = datetime.now(UTC)
            again = record.model_copy(update={"valid_from": begin})
            stored = await self._write(again, to, WriteMode.APPEND)
        await self._paired(record, stored, to)

    async def _corrected(
        self, record: Record, other: Record, changed: frozenset[str], to: int
    ) -> Record | None:
        if "text" in changed and (stored := await self._followed(record, other, to)):
            changed, other = changed - {"text"}, stored
        can = self._bindings[to].capabilities
        able = {"pinned": can.pin, "expires_at": can.expiry, "summary": can.summaries}
        wanted = {name: getattr(record, name) for name in changed if able.get(name, True)}
        wanted = {name: value for name, value in wanted.items() if value != getattr(other, name)}
        if "expires_at" in wanted and wanted["expires_at"] is None:
            wanted["never_expires"] = True
        if "summary" in wanted:
            wanted["summary"] = wanted["summary"] or ""
        if wanted.get("topic", "") is None:
            return None
        if not wanted:
            return other
        if not can.correction:
            return None
        request = CorrectRequest(
            scope=other.scope.outside_run(), handle=other.handle,
            binding_key=self._sides[to].key, revision=other.revision, source=record.source,
            **wanted,
        )  # fmt: skip
        answer = await self._service.correct(self._caller, request)
        return answer.records[0] if answer.records else None

    async def _followed(self, record: Record, other: Record, to: int) -> Record | None:
        """Write the versions of a fact that the other side lacks; None: the last is not written."""
        own = self._sides[1 - to].versions.get(record.handle.provider_record_id, ())
        if record.kind != "fact" or not own or not self._bindings[to].capabilities.validity:
            return None
        texts = [one.text for one in own]
        known = len(texts) - 1 - texts[::-1].index(other.text) if other.text in texts else -1
        begins = other.valid_from
        stored = None
        for version in islice(own, known + 1, None):
            if version.valid_from is None or (begins and version.valid_from <= begins):
                continue
            open_ended = version.model_copy(update={"valid_to": None})
            stored = await self._write(
                open_ended, to, WriteMode.UPSERT, other.handle.provider_record_id
            )
        return stored if stored is not None and stored.text == record.text else None

    # Delete

    async def _delete(self, doomed: _Doomed, confirmed: int | None, pairs: int) -> None:
        reasons = [
            self._why_kept(1 - there, ones, pairs) if ones else None
            for there, ones in enumerate(doomed)
        ]
        asked = sum(len(ones) for ones, why in zip(doomed, reasons, strict=True) if why)
        if confirmed is not None and confirmed != asked:
            how = f"confirm with --delete {asked}" if asked else "leave out --delete"
            raise Invalid(
                f"The number of deletions held back is {asked}, not {confirmed}; look at them with "
                f"--dry-run and {how}."
            )
        for there, (ones, why) in enumerate(zip(doomed, reasons, strict=True)):
            if why is not None and confirmed is None:
                ids = tuple(pair.ids[there] for pair, _ in ones)
                self._kept.append(HeldBack(key=self._sides[there].key, record_ids=ids, reason=why))
                continue
            for pair, record in ones:
                await self._try(self._forget(pair, record, there), record, "deleted", there)

    def _why_kept(  # noqa: PLR0911 — one reason after the other
        self, gone: int, ones: Sequence[tuple[SyncedRecord, Record]], pairs: int
    ) -> str | None:
        """Return why records whose counterparts are gone are not deleted; None: they may be."""
        side = self._sides[gone]
        if self._rebuild:
            return "A rebuild deletes nothing."
        if not side.is_whole:
            return f"{side.key} could not be read completely. {' '.join(side.unread)}".strip()
        for pair, _ in ones:
            if problem := side.problem_of(pair.ids[gone]):
                return f"{pair.ids[gone]} may still exist, but cannot be read. {problem.sentence()}"
        if not self._sees_all:
            return (
                f"You do not see all of {side.key}, so records missing from your view may still "
                "exist there."
            )
        remade = [name for name, made in self._state.made.items()
                  if name.startswith(f"{gone} ") and side.made.get(name[2:]) != made]  # fmt: skip
        if remade:
            names = ", ".join(name[2:] for name in remade)
            return f"In {side.key} {names} is gone or was recreated since the last sync."
        lost = {owner_of(record.scope) for _, record in ones} - side.owners
        if lost:
            names = ", ".join(sorted(name for _, name in lost))
            return f"{side.key} has no records of {names} any more."
        many = f"{len(ones)} of {pairs} records are gone from {side.key}, more than 5%."
        return many if len(ones) > _MOST_DELETED * pairs else None

    async def _forget(self, pair: SyncedRecord, record: Record, there: int) -> None:
        await self._forget_record(record, there)
        self._dropped.append(pair)

    async def _forget_record(self, record: Record, there: int) -> None:
        name = record.handle.provider_record_id
        await self._service.forget(
            self._caller,
            ForgetRequest(
                scope=record.scope.outside_run(), handles=(record.handle,),
                binding_key=self._sides[there].key,
                revisions={name: record.revision} if record.revision else {},
            ),
        )  # fmt: skip

    # Note

    async def _note(self) -> None:
        """Save the pairs in sync so far, so that a crash loses little work."""
        if not self._dry_run:
            gone, self._dropped = self._dropped, []
            lefts = {one.ids[0]: one for one in self._noted}
            there = {one.ids[1]: one for one in lefts.values()}.values()
            self._noted = []
            await self._service.pairs.note(self._caller, self._state, gone=gone, there=there)

    def _answer(self) -> Synced:
        return Synced(
            left=self._sides[0].key, right=self._sides[1].key,
            records=(self._sides[0].count, self._sides[1].count),
            in_sync=self._same, failed=self._failed, failures=tuple(self._failures),
            conflicts=tuple(self._conflicts), held_back=tuple(self._kept), dry_run=self._dry_run,
            **{name: dict(counts) for name, counts in self._counts.items()},
        )  # fmt: skip


def _meeting(one: _Known) -> Meeting | None:
    """Return the kind of conflict of a pair; None: there is none."""
    (left, right), (of_left, of_right) = one.records, one.changed
    if left and right:
        both = of_left and of_right
        differ = both and not all(_alike(left, right, name) for name in of_left | of_right)
        return Meeting.BOTH_CHANGED if differ else None
    if left:
        return Meeting.REMOVED_RIGHT if of_left else None
    return Meeting.REMOVED_LEFT if right and of_right else None


def _other_fields(now: bytes, then: bytes) -> frozenset[str]:
    """Return the fields whose hashes differ."""
    return frozenset(
        name
        for place, name in enumerate(_COMPARED)
        if now[place * _BYTES : (place + 1) * _BYTES] != then[place * _BYTES : (place + 1) * _BYTES]
    )


def _own(record: Record) -> Record:
    """Return a record without metadata that is derived from its text."""
    if record.kind != "fact":
        return record
    idle = _OF_TEXT if pair_of(record.text) else frozenset({"entry_type"})
    own = {name: value for name, value in record.metadata.items() if name not in idle}
    return record.model_copy(update={"metadata": own})


def _begin(record: Record) -> datetime | None:
    """Return the start of a fact's validity; 1970 where it is not known (seed 002 §6)."""
    return record.valid_from or (_ALWAYS if record.kind == "fact" else None)


def _turned(endpoints: Endpoints) -> Endpoints:
    return Endpoints(
        endpoints.service, endpoints.caller, endpoints.destination, endpoints.source, endpoints.part
    )


def _says(record: Record) -> tuple[object, ...]:
    """Return the key by which two records count as the same: owner and content."""
    kind = record.kind if record.kind != "note" else None
    own = owner_of(record.scope)
    return own, kind, record.topic, record.title, record.text, tuple(sorted(record.tags))


def _fact(record: Record) -> tuple[object, ...]:
    """Return the key by which two facts are the same, tags aside: owner, key and value or text."""
    own, entry = owner_of(record.scope), entry_of(record)
    if entry is None:
        return own, (record.topic or "").casefold(), record.text
    return own, *entry, json.dumps(value_of(record), sort_keys=True)


def _says_untitled(record: Record) -> tuple[object, ...]:
    """Return `_says` without the title: a renamed file may have its title from its name."""
    own, kind, topic, _title, *rest = _says(record)
    return own, kind, topic, *rest


def _alike(left: Record, right: Record, name: str) -> bool:
    """Whether two records agree in a field; metadata always does, as providers add theirs."""
    if name == "metadata":
        return True
    if name == "kind":
        return _says(left)[1] == _says(right)[1]
    one, other = getattr(left, name), getattr(right, name)
    return sorted(one) == sorted(other) if name == "tags" else bool(one == other)


def _key(record: Record) -> tuple[object, ...] | None:
    """Return owner, namespace and key of a fact, which identify it; None: not a keyed fact."""
    entry = entry_of(record)
    return None if entry is None else (owner_of(record.scope), *entry)
