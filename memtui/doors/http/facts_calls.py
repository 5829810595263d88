"""What the fact endpoints do: each call is operations of the service, and nothing beside it."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.contract import (
    BrowseRequest,
    ForgetRequest,
    NotFound,
    Record,
    Scope,
    Unavailable,
    WriteRequest,
    own_filter,
    owned,
)
from memtui.doors.http import ids
from memtui.doors.http.facts_wire import NewFact
from memtui.service import Caller, MemoryService
from memtui.service.facts import FACT

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class FactCalls:
    """The facts of one company, as one caller may see and change them."""

    service: MemoryService
    caller: Caller

    async def user(self) -> Scope:
        """Return the scope of the caller's own memory; an agent's is that of the person."""
        subject = await self.service.members.own_subject(self.caller)
        return Scope(company_id=self.caller.company_id, subject_id=subject)

    def drive(self, drive_id: str) -> Scope:
        """Return the scope of a drive's memory."""
        return Scope(company_id=self.caller.company_id, project_id=drive_id)

    async def listed(self, scope: Scope) -> tuple[list[Record], bool]:
        """Return a scope's own facts, the oldest first, and whether the provider cut the list."""
        request = BrowseRequest(
            scope=scope, filter=own_filter(scope, kind=FACT), sort="created_at", limit=_PAGE
        )
        records: list[Record] = []
        while True:
            page = await self.service.browse(self.caller, request)
            records += owned(page.records, scope)
            if page.next_cursor is None:
                return records, page.at_least
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def add(self, scope: Scope, new: NewFact) -> tuple[Record | None, str]:
        """Store a fact; return it as it is kept (None: shown later) and the operation's id."""
        request = WriteRequest(
            scope=scope,
            source=new.reference(scope.company_id),
            content=new.fact,
            kind=FACT,
        )
        answer = await self.service.write(self.caller, request)
        return (answer.records[0] if answer.records else None), answer.operation_id

    async def delete_of_user(self, wire_id: str) -> None:
        """Delete a fact of the caller's user."""
        parts = ids.decode(wire_id, 1)
        await self._delete(await self.user(), parts[0] if parts else wire_id)

    async def delete_of_drive(self, wire_id: str) -> None:
        """Delete a fact of the drive that its id names.

        An id that names none is looked for among the caller's own facts, so that this call too is
        an operation; it can only end as not found.
        """
        parts = ids.decode(wire_id, 2)
        if parts is None:
            await self._delete(await self.user(), wire_id, found=False)
        else:
            await self._delete(self.drive(parts[0]), parts[1])

    async def _delete(self, scope: Scope, record_id: str, *, found: bool = True) -> None:
        record = (await self.service.get(self.caller, record_id, scope)).record
        if not found or record.kind != FACT or not owned([record], scope):
            raise NotFound("There is no such fact here; list the facts again.")
        name = record.handle.provider_record_id
        request = ForgetRequest(
            scope=scope,
            handles=(record.handle,),
            revisions={name: record.revision} if record.revision else {},
        )
        answer = await self.service.forget(self.caller, request)
        if answer.ghosts:
            raise Unavailable(
                "The provider says that the fact is deleted, and still returns it; try again."
            )
