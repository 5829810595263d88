"""Writing: what comes back is what went in, and it is there at once and for good."""

# ruff: noqa: S101  # an assertion is what a check is made of
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memtui.contract import (
    Adapter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    RecordHandle,
    Unsupported,
    WriteMode,
    WriteRequest,
)

from .kit import Kit, day, need, need_exact

HOSTILE = {
    "ansi": "\x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 \x9b1m",
    "bidi": "ab\u202edc\u2066x\u2069",
    "markup": "[/tmp/x] [$error]bold[/a] <script>&amp;",
    "lines": "one\r\ntwo\n\n---\nkey: value\n---\n",
    "blank edges": "\n  text \n\n",
    "nul": "before\0after",
    "astral": "\U0001f600 e\u0301 \u4e2d\u6587 \ufeff end",
    "long line": "x" * 300_000,
}
ODD_IDS = ("../../etc/passwd", "/etc/passwd", "a\0b", "x" * 10_000, "💥", " ", "#", "a#b")


class WriteChecks(Kit):
    """Checks of `write`."""

    async def test_key_and_config_model(self, adapter: Adapter) -> None:
        """The adapter names itself and validates its config."""
        assert adapter.key, "key is empty"
        schema = adapter.config_model.model_json_schema()
        assert schema["type"] == "object", "config_model must describe an object"

    async def test_write_then_get(self, adapter: Adapter) -> None:
        """A record comes back with its text, source and metadata."""
        need_exact(adapter)
        metadata = {"ticket": "A-1", "weight": 2, "nested": {"flags": [True, None, "yes"]}}
        handle = await self.write(adapter, "Deploys happen from main.", metadata=metadata)
        record = await self.read(adapter, handle)
        assert record.text == "Deploys happen from main.", "the text is not what was written"
        assert record.handle == handle, "the record bears another handle than write returned"
        assert record.source == self.source(), "the source reference was lost or changed"
        assert record.scope.project_id == "apollo", "the record lost its project"
        kept = {key: record.metadata.get(key) for key in metadata}
        assert kept == metadata, "the metadata was lost or changed"

    async def test_hostile_text_is_kept_exactly_or_refused(self, adapter: Adapter) -> None:
        """No text is changed in silence."""
        need_exact(adapter)
        for name, text in HOSTILE.items():
            try:
                handle = await self.write(adapter, text)
            except Invalid:
                continue
            record = await self.read(adapter, handle)
            assert record.text == text, f"the text ({name}) came back changed"

    async def test_two_writes_are_two_records(self, adapter: Adapter) -> None:
        """The same text twice is two records unless it is an upsert."""
        need_exact(adapter)
        first = await self.write(adapter, "The same sentence.")
        second = await self.write(adapter, "The same sentence.")
        assert first != second, "a second write took the place of the first"

    async def test_parallel_writes_are_all_kept(self, adapter: Adapter) -> None:
        """Twenty writes at once lose nothing."""
        need_exact(adapter)
        texts = [f"parallel note number {number}" for number in range(20)]
        handles = await asyncio.gather(*(self.write(adapter, text) for text in texts))
        ids = {handle.provider_record_id for handle in handles}
        assert len(ids) == len(texts), "parallel writes share an id"
        records = await asyncio.gather(*(self.read(adapter, handle) for handle in handles))
        assert [r.text for r in records] == texts, "a parallel write was lost or mixed up"

    async def test_record_outlives_the_adapter(self, adapter: Adapter, tmp_path: Path) -> None:
        """A write is durable once it returned."""
        need_exact(adapter)
        if not self.is_durable:
            pytest.skip("the provider says that it keeps nothing")
        handle = await self.write(adapter, "Durable once acknowledged.")
        await adapter.close()
        again = await self.open_adapter(tmp_path)
        try:
            record = await again.get(handle, self.scope())
        finally:
            await again.close()
        assert record is not None, "the record did not outlive the adapter"
        assert record.text == "Durable once acknowledged.", "the record changed over a reopening"

    async def test_given_id_is_kept(self, adapter: Adapter) -> None:
        """`keeps_ids`: the record is stored under the id that was given, and upsert replaces it."""
        need(adapter, "writable", "keeps_ids")
        given = "6f1c7e9e-3a51-4a53-9b5e-0a8f3a0c1d11"
        handle = await self.write(adapter, "First text.", record_id=given)
        assert handle.provider_record_id == given, "the record got another id than was given"
        again = await self.write(adapter, "Second text.", record_id=given, mode=WriteMode.UPSERT)
        assert again == handle, "an upsert on an id made another record"
        assert (await self.read(adapter, handle)).text == "Second text.", "upsert kept the old text"

    async def test_creation_time_is_kept(self, adapter: Adapter) -> None:
        """A record that says when it was created keeps the time that was given."""
        need_exact(adapter)
        handle = await self.write(adapter, "From the past.", created_at=day(3))
        record = await self.read(adapter, handle)
        if record.created_at is not None:
            assert record.created_at == day(3), "created_at is not the time that was given"

    async def test_expired_is_not_returned(self, adapter: Adapter) -> None:
        """`expiry`: a record past its time is found by nothing."""
        need(adapter, "writable", "expiry")
        late = await self.write(adapter, "Stale zebra token.", expires_at=day(1))
        future = day(36_500)
        fresh = await self.write(adapter, "Fresh zebra token.", expires_at=future)
        assert await adapter.get(late, self.scope()) is None, "get returns an expired record"
        ids = await self.found(adapter, "zebra token")
        assert late.provider_record_id not in ids, "query returns an expired record"
        assert fresh.provider_record_id in ids, "query hides a record that has not expired"
        assert (await self.read(adapter, fresh)).expires_at == future, "expires_at was lost"
        if adapter.capabilities.browse:
            ids = await self.listed(adapter)
            assert late.provider_record_id not in ids, "browse returns an expired record"

    async def test_pin_is_kept(self, adapter: Adapter) -> None:
        """`pin`: a pinned record says so."""
        need(adapter, "writable", "pin")
        handle = await self.write(adapter, "Always remember this.", pinned=True)
        assert (await self.read(adapter, handle)).pinned, "the pin was lost"
        other = await self.write(adapter, "Remember this perhaps.")
        assert not (await self.read(adapter, other)).pinned, "a record is pinned unasked"

    async def test_read_only_refuses(self, adapter: Adapter) -> None:
        """Without `writable`, nothing can be changed."""
        if adapter.capabilities.writable:
            pytest.skip("the adapter is writable")
        request = WriteRequest(scope=self.scope(), source=self.source(), content="No.")
        with pytest.raises(Unsupported):
            await adapter.write(request)
        with pytest.raises(Unsupported):
            await adapter.forget(
                ForgetRequest(scope=self.scope(), handles=(self.unknown(adapter),))
            )

    async def test_malformed_handles(self, adapter: Adapter) -> None:
        """A handle that cannot be right names nothing; no error but the contract's comes out."""
        for record_id in ODD_IDS:
            await self._names_nothing(adapter, record_id)

    async def _names_nothing(self, adapter: Adapter, record_id: str) -> None:
        handle = RecordHandle(provider_key=adapter.key, provider_record_id=record_id)
        try:
            record = await adapter.get(handle, self.scope())
        except MemtuiError:
            record = None
        assert record is None, f"get answered a record for the id {record_id[:40]!r}"
        if adapter.capabilities.writable:
            try:
                reply = await adapter.forget(ForgetRequest(scope=self.scope(), handles=(handle,)))
            except MemtuiError:
                return
            assert reply.missing == (handle,), "forgetting nothing must report it as missing"
