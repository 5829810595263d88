"""Reading one and searching: what is there is found, what is not there is nothing."""

# ruff: noqa: S101  # an assertion is what a check is made of
from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from memtui.contract import (
    Adapter,
    BrowseRequest,
    CorrectRequest,
    Explanation,
    ForgetRequest,
    Namespace,
    QueryRequest,
    Unsupported,
)

from .kit import Kit, need, need_exact

ODD_QUERIES = (
    '"', "*", "NEAR", "AND OR NOT", "the", "a", "%_", "(", "日本語", "\0", "x" * 100_000, " ",
)  # fmt: skip


class ReadChecks(Kit):
    """Checks of `get`, `query`, `forget` and of what an adapter says about itself."""

    async def test_get_of_nothing(self, adapter: Adapter) -> None:
        """An unknown handle is None, not an error."""
        record = await adapter.get(self.unknown(adapter), self.scope())
        assert record is None, "get of an unknown handle must return None"

    async def test_query_of_nothing(self, adapter: Adapter) -> None:
        """Nothing found is an empty bundle."""
        assert await self.found(adapter, "qxzvkj") == [], "query found what nobody wrote"

    async def test_query_right_after_write(self, adapter: Adapter) -> None:
        """A write can be found at once."""
        need(adapter, "writable")
        handle = await self.write(adapter, "The staging cluster runs on marmoset hardware.")
        ids = await self.found(adapter, "marmoset hardware")
        assert handle.provider_record_id in ids, "query does not find what was just written"

    async def test_snippet_is_the_record(self, adapter: Adapter) -> None:
        """A snippet carries the record's text, source and handle."""
        need_exact(adapter)
        handle = await self.write(adapter, "Invoices are archived by the pelican job.")
        request = QueryRequest(scope=self.scope(), query="pelican invoices")
        snippet = (await adapter.query(request)).snippets[0]
        record = await self.read(adapter, handle)
        assert snippet.handle == handle, "the best snippet is not the record"
        assert snippet.text == record.text, "the snippet's text is not the record's"
        assert snippet.source == record.source, "the snippet's source is not the record's"

    async def test_top_k(self, adapter: Adapter) -> None:
        """No more than top_k, best first, and `capped` where more would match."""
        need_exact(adapter)
        for number in range(6):
            await self.write(adapter, f"Walrus observation number {number}.")
        bundle = await adapter.query(
            QueryRequest(scope=self.scope(), query="walrus observation", top_k=4)
        )
        assert len(bundle.snippets) == 4, "query returned another number than top_k"
        scores = [snippet.score for snippet in bundle.snippets if snippet.score is not None]
        assert scores == sorted(scores, reverse=True), "snippets are not best first"
        ids = [snippet.handle.provider_record_id for snippet in bundle.snippets]
        assert len(set(ids)) == len(ids), "query returned a record twice"

    async def test_odd_queries(self, adapter: Adapter) -> None:
        """Any text can be asked for."""
        need(adapter, "writable")
        await self.write(adapter, "An ordinary record.")
        for query in ODD_QUERIES:
            bundle = await adapter.query(QueryRequest(scope=self.scope(), query=query))
            assert len(bundle.snippets) <= 1, f"{query[:9]!r} returned more records than there are"

    async def test_metadata_filter(self, adapter: Adapter) -> None:
        """A metadata filter keeps out what does not match it."""
        need_exact(adapter)
        await self.write(adapter, "Otter note one.", metadata={"stage": "draft"})
        kept = await self.write(adapter, "Otter note two.", metadata={"stage": "final"})
        ids = await self.found(adapter, "otter note", metadata_filter={"stage": "final"})
        assert ids == [kept.provider_record_id], "the metadata filter is not applied"

    async def test_projects_are_apart(self, adapter: Adapter) -> None:
        """A project's records are not seen from another project."""
        need_exact(adapter)
        other = self.scope(project_id="gemini")
        handle = await self.write(adapter, "Gemini keeps a secret heron.", scope=other)
        assert await self.found(adapter, "secret heron") == [], "query crossed projects"
        assert await adapter.get(handle, self.scope()) is None, "get crossed projects"
        ids = await self.found(adapter, "secret heron", scope=other)
        assert ids == [handle.provider_record_id], "query misses its own project"

    async def test_forget(self, adapter: Adapter) -> None:
        """A forgotten record is found by nothing; forgetting nothing is reported."""
        need_exact(adapter)
        handle = await self.write(adapter, "Obsolete badger procedure.")
        kept = await self.write(adapter, "Current badger procedure.")
        unknown = self.unknown(adapter)
        reply = await adapter.forget(ForgetRequest(scope=self.scope(), handles=(handle, unknown)))
        await self.settle(adapter)
        assert reply.missing == (unknown,), "missing must name exactly the unknown handle"
        assert await adapter.get(handle, self.scope()) is None, "get finds a forgotten record"
        ids = await self.found(adapter, "badger procedure")
        assert ids == [kept.provider_record_id], "query finds a forgotten record, or lost another"
        again = await adapter.forget(ForgetRequest(scope=self.scope(), handles=(handle,)))
        assert again.missing == (handle,), "a second forget must report the handle as missing"

    async def test_forgotten_is_not_listed(self, adapter: Adapter) -> None:
        """Browse does not list what was forgotten."""
        need_exact(adapter)
        need(adapter, "browse")
        handle = await self.write(adapter, "Soon forgotten.")
        await adapter.forget(ForgetRequest(scope=self.scope(), handles=(handle,)))
        await self.settle(adapter)
        assert await self.listed(adapter) == [], "browse lists a forgotten record"

    async def test_abilities_that_are_not_there(self, adapter: Adapter) -> None:
        """A method whose capability is unset raises `Unsupported`."""
        can, scope, handle = adapter.capabilities, self.scope(), self.unknown(adapter)
        query = QueryRequest(scope=scope, query="x")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "browse": lambda: adapter.browse(BrowseRequest(scope=scope)),
            "correction": lambda: adapter.correct(
                CorrectRequest(scope=scope, handle=handle, text="x")
            ),
            "profile": lambda: adapter.profile(scope),
            "sync": adapter.sync,
            "explain": lambda: adapter.explain(query),
            "history": lambda: adapter.history(handle, scope),
            "namespaces": adapter.namespaces,
            "restore": lambda: adapter.restore((), scope),
        }
        for ability, call in calls.items():
            if not getattr(can, ability):
                try:
                    await call()
                except Unsupported:
                    continue
                pytest.fail(f"{ability} is not offered, and its method answers all the same")
        if not can.watch:
            with pytest.raises(Unsupported):
                adapter.watch()

    async def test_explain(self, adapter: Adapter) -> None:
        """`explain` names at least one stage."""
        need(adapter, "explain")
        explained = await adapter.explain(QueryRequest(scope=self.scope(), query="anything"))
        assert isinstance(explained, Explanation), "explain must return an Explanation"
        assert explained.stages, "explain names no stage"

    async def test_namespaces(self, adapter: Adapter) -> None:
        """`namespaces` are named, each once."""
        need(adapter, "namespaces")
        if adapter.capabilities.writable:
            await self.write(adapter, "Something in a namespace.")
        names = await adapter.namespaces()
        assert all(isinstance(name, Namespace) for name in names), "not a Namespace"
        keys = [name.name for name in names]
        assert len(set(keys)) == len(keys), "a namespace is listed twice"

    async def test_sync_changes_nothing_that_is_in_step(self, adapter: Adapter) -> None:
        """`sync` after a write sees the record and keeps it."""
        need_exact(adapter)
        need(adapter, "sync")
        handle = await self.write(adapter, "Kept over a sync, says the ibex.")
        reply = await adapter.sync()
        assert reply.seen >= 1, "sync did not see the record"
        assert reply.removed == 0, "sync removed something that is there"
        ids = await self.found(adapter, "ibex")
        assert ids == [handle.provider_record_id], "the record is not found after a sync"

    async def test_health(self, adapter: Adapter) -> None:
        """Health answers and never raises."""
        health = await adapter.health()
        assert health.status in {"ok", "degraded", "down"}, "health has an unknown status"

    async def test_close_twice(self, adapter: Adapter) -> None:
        """Closing again is harmless."""
        await adapter.close()
        await adapter.close()
