"""Move one record: find what became of it before, write or replace it, look what was kept."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from memtui.contract import (
    Conflict,
    ForgetRequest,
    Invalid,
    Record,
    RecordHandle,
    WriteMode,
    WriteRequest,
)
from memtui.migration.ends import Ends
from memtui.migration.index import Held, Index
from memtui.migration.passport import Parcel, pack, unpack
from memtui.migration.state import differing, digest_of, identity_of, is_empty, print_of
from memtui.service import MutationAnswer

_FACT = "fact"
Found = tuple[Held | None, str | None]


class Outcome(StrEnum):
    """What became of a record."""

    WRITTEN = "written"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


class Mover:
    """Moves records of one source, and learns what the destination cannot hold."""

    def __init__(self, ends: Ends, index: Index) -> None:
        self._ends = ends
        self._index = index
        self._facts = asyncio.Lock()
        can = ends.destination.capabilities
        able = {"expires_at": can.expiry, "pinned": can.pin, "valid_from": can.validity}
        self._unable = {name for name, is_able in able.items() if not is_able}
        self._lost: set[tuple[str, str]] = set()
        self._added: set[str] = set()

    @property
    def carried(self) -> tuple[str, ...]:
        """The fields that travel in the metadata, so far as is known."""
        return tuple(sorted(self._unable | {name for _, name in self._lost}))

    async def move(self, parcel: Parcel, found: Found) -> Outcome:
        """Bring the destination to hold a record as the source does.

        `found` is what `find` gave for it.

        Raises:
            Conflict: the record was changed in the destination since it was migrated.
            Invalid: the destination takes no such record, or kept another text.
        """
        if not parcel.record.text.strip():
            raise Invalid("It has no text, and no provider takes such a record.")
        held, base = found
        if held is None:
            adopted = await self._write_new(parcel)
            if adopted is None:
                return Outcome.WRITTEN
            held, base = adopted, adopted.state
        if held.prints == parcel.prints or base is None:
            return Outcome.UNCHANGED
        self._refuse_edited(parcel, held, base)
        await self._replace(parcel, held)
        return Outcome.REPLACED

    def find(self, parcel: Parcel) -> Found:
        """Return the record's like in the destination, and the state that both began with.

        Blocking. That state is None where neither has a passport: nothing tells then who changed
        what, and the record stays.
        """
        identity = identity_of(self._ends.source.key, parcel.record_id)
        if (held := self._index.migrated(identity)) is not None:
            return held, held.state
        passport = parcel.passport
        if passport is not None and passport.binding == self._ends.destination.key:
            held = self._index.named(passport.record_id)
            if held is not None:
                return held, passport.state
        return self._index.take_alike(parcel.prints), None

    def _refuse_edited(self, parcel: Parcel, held: Held, base: str) -> None:
        if digest_of(held.prints) == base:
            return
        can = self._ends.destination.capabilities
        kept = {"text": True, "pinned": can.pin, "expires_at": can.expiry}
        edited = [
            name
            for name in differing(held.prints, parcel.prints)
            if kept.get(name, name in {"topic", "tags"} and not is_empty(held.prints, name))
        ]
        if edited:
            raise Conflict(
                f"Its {' and '.join(edited).replace('_', ' ')} changed in "
                f"{self._ends.destination.key} (as {held.id}) since it was migrated; forget it "
                "there to have the source's again."
            )

    async def _write_new(self, parcel: Parcel) -> Held | None:
        """Write a record; returns the one that stands in its place if it is this very record."""
        request = self._packed(parcel)
        try:
            answer = await self._write(request)
        except Conflict as error:
            occupant = error.current and _held(error.current)
            if occupant and occupant.identity == identity_of(
                self._ends.source.key, parcel.record_id
            ):
                return occupant
            # Another record has the id, so this one gets one of its own.
            own = identity_of(self._ends.source.key, parcel.record_id)
            answer = await self._write(request.model_copy(update={"record_id": own}))
        await self._settle(parcel, answer)
        return None

    async def _settle(self, parcel: Parcel, answer: MutationAnswer) -> None:
        """Compare what is stored with what was sent, and carry what was not kept.

        Raises:
            Invalid: the text is another one now.
        """
        if not answer.records:
            return
        stored = unpack(answer.records[0])
        if print_of(stored.prints, "text") != print_of(parcel.prints, "text"):
            raise Invalid(f"{self._ends.destination.key} stored another text than it was given.")
        if stored.passport is None or stored.prints == parcel.prints:
            return
        lost = set(differing(stored.prints, parcel.prints))
        extra = stored.record.metadata.keys() - parcel.record.metadata.keys()
        if extra and all(
            stored.record.metadata.get(name) == value
            for name, value in parcel.record.metadata.items()
        ):
            self._added |= extra
            lost.discard("metadata")
        self._lost |= {(parcel.record.kind, name) for name in lost}
        held = _held(answer.records[0])
        again = await self._replace(parcel, held, settle=False)
        left = unpack(again.records[0]) if again.records else stored
        if left.prints != parcel.prints:
            names = ", ".join(differing(left.prints, parcel.prints)).replace("_", " ")
            raise Invalid(f"{self._ends.destination.key} did not keep its {names}.")

    async def _replace(self, parcel: Parcel, held: Held, *, settle: bool = True) -> MutationAnswer:
        request = self._packed(parcel)
        if self._ends.destination.capabilities.keeps_ids and held.scope == parcel.record.scope:
            update = {"record_id": held.id, "mode": WriteMode.UPSERT}
            answer = await self._write(request.model_copy(update=update))
        else:
            await self._forget(held)
            answer = await self._write(request)
        if settle:
            await self._settle(parcel, answer)
        return answer

    async def _forget(self, held: Held) -> None:
        """Take away what is written again at once; the source still has it."""
        destination = self._ends.destination
        handle = RecordHandle(provider_key=destination.provider_key, provider_record_id=held.id)
        await self._ends.service.forget(
            self._ends.caller,
            ForgetRequest(
                scope=held.scope,
                handles=(handle,),
                binding_key=destination.key,
                revisions={held.id: held.revision} if held.revision else {},
            ),
        )

    async def _write(self, request: WriteRequest) -> MutationAnswer:
        if request.kind != _FACT:
            return await self._ends.service.write(self._ends.caller, request)
        async with self._facts:  # their number is limited, so each must see the one before
            return await self._ends.service.write(self._ends.caller, request)

    def _packed(self, parcel: Parcel) -> WriteRequest:
        lost = {name for kind, name in self._lost if kind == parcel.record.kind} | self._unable
        ends = self._ends
        return pack(parcel, ends.source.key, ends.destination.key, lost, self._added)


def _held(record: Record) -> Held:
    parcel = unpack(record)
    passport = parcel.passport
    return Held(
        0,
        parcel.record_id,
        parcel.prints,
        passport.identity if passport else None,
        passport.state if passport else None,
        passport.binding if passport else None,
        record.scope,
        record.revision,
    )
