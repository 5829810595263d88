"""Changes that wait in other programs, beside those that memtui keeps back itself.

Nothing of them is stored before a decision: they are read from their program's files each time. A
decision leaves there what the program's own command would, and can be undone as any change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from memtui.contract import (
    Conflict,
    Denied,
    Invalid,
    MemtuiError,
    OperationType,
    Proposal,
    Scope,
    Snapshot,
    owner_scope,
)
from memtui.service.answers import MutationAnswer
from memtui.service.connections import Connection
from memtui.service.operations.redaction import redact
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceRuntime, grouped
from memtui.service.visibility import Caller, for_caller
from memtui.store import bindings
from memtui.store.details import ChangeDetails
from memtui.store.digest import canonical


@dataclass(frozen=True, slots=True)
class Proposed:
    """A change that waits in another program, in one of its bindings."""

    binding_key: str
    proposal: Proposal

    @property
    def pending_id(self) -> str:
        """Its id, which is another one once it has changed."""
        place = self.binding_key, self.proposal.handle.provider_record_id, self.proposal.content
        return _digest(place)

    @property
    def seen(self) -> str:
        """A digest of it and of the files that it would change, as they are now."""
        return _digest([self.pending_id, [one.replaces for one in self.proposal.accepted]])

    @property
    def owners(self) -> tuple[Scope, ...]:
        """The owners of what it would change, or shows."""
        return tuple(dict.fromkeys(map(owner_scope, self.proposal.owners)))


def _digest(value: object) -> str:
    return sha256(canonical(value).encode()).hexdigest()[:16]


async def read_all(
    runtime: ServiceRuntime, caller: Caller, binding_key: str | None = None
) -> tuple[list[Proposed], dict[str, MemtuiError]]:
    """Return what waits in every binding, oldest first, and the errors of those not read."""
    found: list[Proposed] = []
    unread: dict[str, MemtuiError] = {}
    company = await runtime.ask(bindings.company, caller.company_id)
    for row in await runtime.ask(bindings.bindings, caller.company_id):
        asked = binding_key in {None, row.key} and row.enabled
        if not asked or not row.capabilities.get("proposals"):
            continue
        try:
            is_closed = company is not None and company.read_only
            found += await _read(await runtime.open(row, company_read_only=is_closed))
        except MemtuiError as error:
            unread[row.key] = error
    return sorted(found, key=lambda one: one.proposal.since), unread


async def _read(connection: Connection) -> list[Proposed]:
    scope = Scope(company_id=connection.binding.company_id)
    found = await connection.read(lambda: connection.adapter.proposals(scope))
    return [Proposed(connection.binding.key, one) for one in found]


async def read_again(entry: RunningOperation, connection: Connection, one: Proposed) -> Proposed:
    """Return a change that waits as it is now.

    Raises:
        Conflict: it has changed, or somebody has decided on it.
    """
    entry.about([one.proposal.handle])
    for now in await _read(connection):
        if now.pending_id == one.pending_id:
            return now
    raise Conflict(f"{one.pending_id} has changed or is decided on; look at what waits again.")


async def settle(
    runtime: ServiceRuntime,
    caller: Caller,
    one: Proposed,
    decision: str,
    *,
    reason: str = "",
    seen: str | None = None,
    together: str | None = None,
) -> MutationAnswer:
    """Accept or refuse a change that waits in another program.

    Args:
        runtime: The service's.
        caller: The person who decides.
        one: What waits, as it was read.
        decision: `accept` or `refuse`.
        reason: Why.
        seen: `Proposed.seen` as shown to the person; None: as it is now.
        together: The id of a group of decisions that one undo takes back.

    Raises:
        Conflict: it or what it would change is not as it was shown.
        Denied: the caller may not change these records.
        Invalid: the program would not accept it.
    """
    asked = ChangeDetails(decision=decision, pending=one.pending_id, author=one.proposal.by)
    if reason:
        asked["reason"] = redact(reason)[0]
    scope = one.owners[0].outside_run()
    async with runtime.connected(
        OperationType.REVIEW, caller, scope, grouped(asked, together), one.binding_key,
        needs="proposals",
    ) as (entry, connection):  # fmt: skip
        if not caller.by_person:
            raise Denied("An agent cannot decide on pending changes; let a person do it.")
        now = await read_again(entry, connection, one)
        await runtime.may_mutate(entry, now.owners)
        if seen not in {None, now.seen}:
            raise Conflict("What it would change has changed since you looked; look again.")
        wanted: Sequence[Snapshot] = now.proposal.accepted
        if decision == "refuse":
            wanted = wanted[-1:]
        elif now.proposal.refused:
            raise Invalid(now.proposal.refused)
        records = now.proposal.records if decision == "accept" else ()
        handles = [*(each.handle for each in wanted), *records]
        before = await connection.snapshots(handles, scope)
        await runtime.recorder.begin(entry, before)
        await entry.mutate(
            connection, lambda: connection.adapter.restore(wanted, scope), records=len(handles)
        )
        after = await entry.read_back(connection, before, handles, scope)
        there = [each.record for each in after if each.record and each.handle in records]
        entry.about([*records, *(each.handle for each in wanted)])
    return MutationAnswer(**entry.answer(), handles=records, records=for_caller(caller, there))
