"""Correcting, undoing and history: a change is based on what was read, and can be taken back."""

# ruff: noqa: S101  # an assertion is what a check is made of
from __future__ import annotations

from typing import Any

import pytest

from memtui.contract import (
    Adapter,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    MemtuiError,
    NotFound,
    QueryRequest,
    Record,
    Snapshot,
    WriteMode,
)

from .kit import Kit, day, need, need_exact

_SAME = ("handle", "text", "source", "title", "kind", "topic", "tags", "created_at", "created_by",
         "expires_at", "pinned", "metadata", "scope")  # fmt: skip


def _essence(record: Record) -> dict[str, object]:
    return {name: getattr(record, name) for name in _SAME}


class ChangeChecks(Kit):
    """Checks of `correct`, `snapshot`, `restore` and `history`."""

    async def test_correct(self, adapter: Adapter) -> None:
        """A correction changes the text and the revision, and nothing else."""
        need_exact(adapter)
        need(adapter, "correction")
        handle = await self.write(adapter, "Old heron wording.", metadata={"keep": "me"})
        before = await self.read(adapter, handle)
        reply = await adapter.correct(
            CorrectRequest(
                scope=self.scope(), handle=handle, text="New falcon wording.",
                revision=before.revision,
            )
        )  # fmt: skip
        await self.settle(adapter)
        after = await self.read(adapter, reply.handle)
        assert after.text == "New falcon wording.", "the text was not corrected"
        assert after.revision != before.revision, "the revision did not change with the record"
        assert after.source == before.source, "a correction lost the source"
        assert after.metadata.get("keep") == "me", "a correction lost the metadata"
        assert after.created_at == before.created_at, "a correction changed the creation time"
        ids = await self.found(adapter, "falcon")
        assert ids == [reply.handle.provider_record_id], "query misses the corrected text"
        assert await self.found(adapter, "heron") == [], "query still finds the old text"

    async def test_correct_the_rest(self, adapter: Adapter) -> None:
        """Topic, tags and pin can be corrected while the text stays."""
        need_exact(adapter)
        need(adapter, "correction", "pin")
        handle = await self.write(adapter, "Unchanged text.", topic="old", tags=("one",))
        request = CorrectRequest(
            scope=self.scope(), handle=handle, topic="new", tags=("two", "three"), pinned=True
        )
        after = await self.read(adapter, (await adapter.correct(request)).handle)
        assert after.text == "Unchanged text.", "the text changed unasked"
        assert after.topic == "new", "the topic was not corrected"
        assert after.tags == ("two", "three"), "the tags were not corrected"
        assert after.pinned, "the pin was not set"
        unpin = CorrectRequest(scope=self.scope(), handle=handle, pinned=False)
        after = await self.read(adapter, (await adapter.correct(unpin)).handle)
        assert not after.pinned, "the pin was not taken away"
        assert after.topic == "new", "a field that was not given changed"

    async def test_expiry_is_set_and_taken_away(self, adapter: Adapter) -> None:
        """`expiry`: a correction sets it, leaves it alone, and takes it away."""
        need_exact(adapter)
        need(adapter, "correction", "expiry")
        handle = await self.write(adapter, "Kept for a while.", expires_at=day(36_500))

        async def corrected(**change: Any) -> Record:
            request = CorrectRequest(scope=self.scope(), handle=handle, **change)
            return await self.read(adapter, (await adapter.correct(request)).handle)

        longer = await corrected(expires_at=day(40_000))
        assert longer.expires_at == day(40_000), "the expiry was not corrected"
        handle = longer.handle
        other = await corrected(text="Kept for long.")
        assert other.expires_at == day(40_000), "a correction of the text changed the expiry"
        handle = other.handle
        last = await corrected(never_expires=True)
        assert last.expires_at is None, "the expiry was not taken away"
        assert last.text == "Kept for long.", "the text changed unasked"

    async def test_stale_correction(self, adapter: Adapter) -> None:
        """A correction based on an old revision is a conflict, and changes nothing."""
        need_exact(adapter)
        need(adapter, "correction")
        handle = await self.write(adapter, "Version one.")
        stale = (await self.read(adapter, handle)).revision
        if stale is None:
            pytest.skip("the provider has no revisions")
        first = CorrectRequest(scope=self.scope(), handle=handle, text="Version two.")
        handle = (await adapter.correct(first)).handle
        late = CorrectRequest(
            scope=self.scope(), handle=handle, text="Version three.", revision=stale
        )
        with pytest.raises(Conflict) as caught:
            await adapter.correct(late)
        assert caught.value.proposed == "Version three.", "the conflict lacks the proposed text"
        current = caught.value.current
        assert current is not None, "the conflict lacks the current record"
        assert current.text == "Version two.", "the conflict's record is not the current one"
        assert (await self.read(adapter, handle)).text == "Version two.", "a conflict changed text"

    async def test_correct_nothing(self, adapter: Adapter) -> None:
        """Correcting a record that does not exist is `NotFound`."""
        need(adapter, "writable", "correction")
        with pytest.raises(NotFound):
            await adapter.correct(
                CorrectRequest(scope=self.scope(), handle=self.unknown(adapter), text="x")
            )

    async def test_stale_forget(self, adapter: Adapter) -> None:
        """One stale revision among several: a conflict, and none is removed."""
        need_exact(adapter)
        handles = [await self.write(adapter, f"Bulk {number}.") for number in range(3)]
        records = [await self.read(adapter, handle) for handle in handles]
        if records[0].revision is None:
            pytest.skip("the provider has no revisions")
        revisions = {r.handle.provider_record_id: r.revision or "" for r in records}
        revisions[handles[2].provider_record_id] = "stale"
        with pytest.raises(Conflict):
            await adapter.forget(
                ForgetRequest(scope=self.scope(), handles=tuple(handles), revisions=revisions)
            )
        for handle in handles:
            assert await adapter.get(handle, self.scope()), "a refused forget removed a record"

    async def test_restore_after_forget(self, adapter: Adapter) -> None:
        """`restore`: a forgotten record comes back whole, under its own id."""
        need_exact(adapter)
        need(adapter, "restore")
        handles = [
            await self.write(adapter, f"Restorable {n}.", tags=("t",), metadata={"n": n})
            for n in range(3)
        ]
        before = [await self.read(adapter, handle) for handle in handles]
        taken = await adapter.snapshot(handles, self.scope())
        assert [s.handle for s in taken] == handles, "snapshots are not in the order asked for"
        assert [s.record for s in taken] == before, "a snapshot's record is not the record"
        await adapter.forget(ForgetRequest(scope=self.scope(), handles=tuple(handles)))
        reply = await adapter.restore(list(reversed(taken)), self.scope())
        await self.settle(adapter)
        assert set(reply.records) == set(handles), "restore returned other handles"
        after = [await self.read(adapter, handle) for handle in handles]
        assert [_essence(r) for r in after] == [_essence(r) for r in before], "not as it was"
        ids = await self.found(adapter, "restorable")
        assert set(ids) == {h.provider_record_id for h in handles}, "query misses restored records"

    async def test_restore_after_correct(self, adapter: Adapter) -> None:
        """`restore`: a corrected record gets its old text back."""
        need_exact(adapter)
        need(adapter, "restore", "correction")
        handle = await self.write(adapter, "Before the correction.")
        taken = await adapter.snapshot([handle], self.scope())
        await adapter.correct(CorrectRequest(scope=self.scope(), handle=handle, text="After."))
        await adapter.restore(taken, self.scope())
        record = await self.read(adapter, handle)
        assert record.text == "Before the correction.", "the old text did not come back"

    async def test_restore_of_nothing_removes(self, adapter: Adapter) -> None:
        """`restore`: a snapshot without a record takes the record away."""
        need_exact(adapter)
        need(adapter, "restore")
        handle = await self.write(adapter, "Written by mistake.")
        await adapter.restore([Snapshot(handle=handle, record=None)], self.scope())
        assert await adapter.get(handle, self.scope()) is None, "the record is still there"
        unknown = (await adapter.snapshot([self.unknown(adapter)], self.scope()))[0]
        assert unknown.record is None, "a snapshot of nothing has a record"

    async def test_snapshots_of_malformed_handles(self, adapter: Adapter) -> None:
        """Only errors of the contract come out of handles that cannot be right."""
        need(adapter, "restore")
        for record_id in ("../../x", "a\0b", "💥", "facts.md#", "x" * 5000):
            handle = self.unknown(adapter, record_id)
            try:
                taken = await adapter.snapshot([handle], self.scope())
            except MemtuiError:
                continue
            assert taken[0].record is None, f"a snapshot of {record_id[:20]!r} has a record"

    async def test_history(self, adapter: Adapter) -> None:
        """`history`: newest first, and the newest is what holds."""
        need_exact(adapter)
        need(adapter, "history")
        handle = await self.write(adapter, "First wording.")
        if adapter.capabilities.correction:
            request = CorrectRequest(scope=self.scope(), handle=handle, text="Second wording.")
            handle = (await adapter.correct(request)).handle
        record = await self.read(adapter, handle)
        versions = await adapter.history(handle, self.scope())
        assert versions, "a record that is there has no history"
        assert versions[0].text == record.text, "the newest version is not what holds"
        starts = [version.valid_from for version in versions if version.valid_from is not None]
        assert starts == sorted(starts, reverse=True), "history is not newest first"
        nothing = await adapter.history(self.unknown(adapter), self.scope())
        assert list(nothing) == [], "an unknown record has a history"

    async def test_validity(self, adapter: Adapter) -> None:
        """`validity`: replacing a key's value closes its window and opens the next."""
        need_exact(adapter)
        need(adapter, "validity", "history")
        fields: dict[str, Any] = {"kind": "fact", "mode": WriteMode.UPSERT}
        await self.write(adapter, "deploy_branch: main", valid_from=day(10), **fields)
        handle = await self.write(adapter, "deploy_branch: release", valid_from=day(20), **fields)
        assert (await self.read(adapter, handle)).text == "deploy_branch: release", "old value"
        versions = await adapter.history(handle, self.scope())
        texts = [version.text for version in versions]
        assert texts == ["deploy_branch: release", "deploy_branch: main"], "history is wrong"
        asked: dict[str, Any] = {"scope": self.scope(), "query": "deploy branch"}
        windows = [(version.valid_from, version.valid_to) for version in versions]
        assert windows == [(day(20), None), (day(10), day(20))], "the windows do not meet"
        past = await adapter.query(QueryRequest(**asked, as_of=day(15)))
        assert [s.text for s in past.snippets] == ["deploy_branch: main"], "as_of is not honoured"
        now = await adapter.query(QueryRequest(**asked))
        assert [s.text for s in now.snippets] == ["deploy_branch: release"], "the past is returned"
