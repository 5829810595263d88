"""State of two bindings that are kept in sync: the pairs of records (seed 002 §7)."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence

from memtui.contract import Invalid, Model, OperationType, Record, Scope, UtcDatetime
from memtui.service.runtime import ServiceModule, find_binding
from memtui.service.visibility import Caller, readable
from memtui.store import bindings
from memtui.store import pairs as kept
from memtui.store.database import DatabaseConnection
from memtui.store.details import RecordDetails
from memtui.store.rows import SyncRow
from memtui.threads import in_thread


class SyncedRecord(Model):
    """A record that both bindings have: its ids, and salted hashes of its fields, on each side."""

    ids: tuple[str, str]
    prints: tuple[bytes, bytes]


class InSync(Model):
    """State of two bindings after their last sync."""

    left: str
    """The key of the binding that was named first."""
    right: str
    salt: bytes
    synced_at: UtcDatetime | None = None
    made: dict[str, str] = {}
    """By side and namespace, a mark of its creation; it differs once it is recreated."""
    conflicts: int = 0
    held_back: int = 0
    """Number of unconfirmed deletions."""


class SyncedRecords(ServiceModule):
    """The state of synced bindings. No method is an operation.

    Every method raises `NotFound` for an unknown binding, and `Denied` where the company has
    members and the caller is not one. Ids can reveal records, so only callers who may configure get
    them.
    """

    async def of(self, caller: Caller, left: str, right: str) -> tuple[InSync, list[SyncedRecord]]:
        """Return the sync state of two bindings, and the records that both have."""
        await self._runtime.may_configure(caller)
        return await asyncio.to_thread(self._read, caller, left, right)

    def _read(self, caller: Caller, left: str, right: str) -> tuple[InSync, list[SyncedRecord]]:
        with self._runtime.database.read() as database:
            two = _two(database, caller, left, right)
            row = kept.sync(database, two)
            if row is None:
                return InSync(left=left, right=right, salt=secrets.token_bytes(16)), []
            found = [SyncedRecord(ids=one[:2], prints=one[2:]) for one in kept.pairs(database, two)]
            return InSync.like(row, left=left, right=right), found

    @in_thread
    def all(self, caller: Caller) -> list[InSync]:
        """Return the sync states of the company's bindings."""
        self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            keys = {
                row.binding_id: row.key for row in bindings.bindings(database, caller.company_id)
            }
            return [
                InSync.like(row, left=keys[row.left_id], right=keys[row.right_id])
                for row in kept.syncs(database, caller.company_id)
                if row.left_id in keys and row.right_id in keys
            ]

    async def note(
        self,
        caller: Caller,
        known: InSync,
        *,
        gone: Iterable[SyncedRecord] = (),
        there: Iterable[SyncedRecord] = (),
    ) -> None:
        """Store the sync state of two bindings and of their records."""
        await self._runtime.refuse_configuring(caller)
        await asyncio.to_thread(self._write, caller, known, gone, there)

    def _write(
        self,
        caller: Caller,
        known: InSync,
        gone: Iterable[SyncedRecord],
        there: Iterable[SyncedRecord],
    ) -> None:
        with self._runtime.database.write() as database:
            two = _two(database, caller, known.left, known.right)
            names = dict(zip(("company_id", "left_id", "right_id"), two, strict=True))
            row = {**dict(known), "synced_at": known.synced_at or self._runtime.clock(), **names}
            kept.set_sync(database, SyncRow(**{k: v for k, v in row.items() if k not in _SIDES}))
            pairs = [(*one.ids, *one.prints) for one in there]
            kept.set_pairs(database, two, [one.ids for one in gone], pairs)

    async def versions(self, caller: Caller, key: str) -> dict[str, Sequence[Record]]:
        """Return every version of a binding's records, by id, oldest first.

        Empty if the provider has no versions.
        """
        scope = Scope(company_id=caller.company_id)
        found: dict[str, list[Record]] = defaultdict(list)
        async with self._runtime.connected(
            OperationType.HISTORY, caller, scope, RecordDetails(purpose="sync"), key
        ) as (entry, connection):
            if connection.adapter.capabilities.validity:
                everything = await connection.read(lambda: connection.adapter.versions(scope))
                for one in readable(everything, scope, entry.visibility, key):
                    found[one.handle.provider_record_id].append(one)
            entry.result_count = sum(map(len, found.values()))
        return dict(found)

    async def sees_all(self, caller: Caller) -> bool:
        """Whether the caller may see all memories of the company."""
        return await asyncio.to_thread(self._runtime.visibility, caller) is None


_SIDES = frozenset({"left", "right"})


def _two(database: DatabaseConnection, caller: Caller, left: str, right: str) -> kept.Two:
    if left == right:
        raise Invalid(f"{left} is one binding; name two.")
    one, other = (find_binding(database, caller.company_id, key) for key in (left, right))
    return caller.company_id, one.binding_id, other.binding_id
