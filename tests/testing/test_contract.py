from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    ForgetReply,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    Unavailable,
    WriteReply,
    WriteRequest,
)
from memtui.testing import AdapterContract, InMemoryAdapter

pytest_plugins = ["pytester"]


class TestInMemory(AdapterContract):
    capabilities = InMemoryAdapter.capabilities
    is_durable = False

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        return await InMemoryAdapter.open(self.context(tmp_path))


class LosesSource(InMemoryAdapter):
    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        record = await super().get(handle, scope)
        return record and record.model_copy(update={"source": None})


class StripsText(InMemoryAdapter):
    async def write(self, request: WriteRequest) -> WriteReply:
        text = request.content.replace("\x1b", "").strip() or "-"
        return await super().write(request.model_copy(update={"content": text}))


class IgnoresTopK(InMemoryAdapter):
    async def query(self, request: QueryRequest) -> ContextBundle:
        return await super().query(request.model_copy(update={"top_k": 1000}))


class RaisesForUnknown(InMemoryAdapter):
    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        return self._records[handle.provider_record_id]


class KeepsGhosts(InMemoryAdapter):
    async def forget(self, request: ForgetRequest) -> ForgetReply:
        kept = dict(self._records)
        reply = await super().forget(request)
        self._ghosts = kept
        return reply

    async def query(self, request: QueryRequest) -> ContextBundle:
        self._records, real = getattr(self, "_ghosts", self._records), self._records
        bundle = await super().query(request)
        self._records = real
        return bundle


class ForgetsHalf(InMemoryAdapter):
    async def forget(self, request: ForgetRequest) -> ForgetReply:
        replies = [
            await super(ForgetsHalf, self).forget(request.model_copy(update={"handles": (handle,)}))
            for handle in request.handles
        ]
        return ForgetReply(missing=tuple(itertools.chain(*(reply.missing for reply in replies))))


class HidesMissing(InMemoryAdapter):
    async def forget(self, request: ForgetRequest) -> ForgetReply:
        await super().forget(request)
        return ForgetReply()


class RepeatsPages(InMemoryAdapter):
    async def browse(self, request: BrowseRequest) -> BrowsePage:
        page = await super().browse(request)
        return page.model_copy(update={"records": page.records[-1:] + page.records[1:]})


class CountsOnePage(InMemoryAdapter):
    async def browse(self, request: BrowseRequest) -> BrowsePage:
        page = await super().browse(request)
        return page.model_copy(update={"total": len(page.records)})


class IgnoresFilters(InMemoryAdapter):
    async def browse(self, request: BrowseRequest) -> BrowsePage:
        return await super().browse(request.model_copy(update={"filter": type(request.filter)()}))


class OverwritesStale(InMemoryAdapter):
    async def correct(self, request: CorrectRequest) -> CorrectReply:
        return await super().correct(request.model_copy(update={"revision": None}))


class KeepsRevision(InMemoryAdapter):
    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        record = await super().get(handle, scope)
        return record and record.model_copy(update={"revision": "always"})


class RestoresElsewhere(InMemoryAdapter):
    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        for snapshot in snapshots:
            if snapshot.record:
                other = snapshot.record.handle.model_copy(update={"provider_record_id": "other"})
                self._put(snapshot.record.model_copy(update={"handle": other}))
        return WriteReply(records=tuple(s.handle for s in snapshots))


class MixesProjects(InMemoryAdapter):
    async def query(self, request: QueryRequest) -> ContextBundle:
        wide = Scope(company_id=request.scope.company_id)
        return await super().query(request.model_copy(update={"scope": wide}))


class NeverExpires(InMemoryAdapter):
    async def write(self, request: WriteRequest) -> WriteReply:
        return await super().write(request.model_copy(update={"expires_at": None}))


class OldestFirst(InMemoryAdapter):
    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        return list(reversed(await super().history(handle, scope)))


class AnswersUnasked(InMemoryAdapter):
    async def namespaces(self) -> Sequence[Any]:
        return []


class ChokesOnQuotes(InMemoryAdapter):
    async def query(self, request: QueryRequest) -> ContextBundle:
        if '"' in request.query:
            message = "unterminated string"
            raise ValueError(message)
        return await super().query(request)


class RenamesIds(InMemoryAdapter):
    async def write(self, request: WriteRequest) -> WriteReply:
        return await super().write(request.model_copy(update={"record_id": None}))


class StoresLater(InMemoryAdapter):
    """It stores each text as it is asked of the event, at the latest."""

    capabilities = InMemoryAdapter.capabilities.model_copy(
        update={"async_ingestion": True, "provider_managed_extraction": True}
    )

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.said: dict[str, WriteRequest] = {}
        self.made: dict[str, WriteReply] = {}

    async def write(self, request: WriteRequest) -> WriteReply:
        name = f"event-{len(self.said)}"
        self.said[name] = request
        return WriteReply(event=name)

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        del scope
        if event not in self.said:
            raise NotFound(f"There is no event {event}.")
        if event not in self.made:
            self.made[event] = await super().write(self.said[event])
        return self.made[event]


class StoresAgain(StoresLater):
    """Each question of an event stores its text anew."""

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        self.made.pop(event, None)
        return await super().ingested(event, scope)


class BringsBack(StoresLater):
    """A question of an event stores anew what was forgotten."""

    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        reply = await super().ingested(event, scope)
        for name in [one.provider_record_id for one in reply.records] if reply else ():
            self._records.setdefault(name, self._versions[name][0])
        return reply


class NeverEnds(StoresLater):
    async def ingested(self, event: str, scope: Scope) -> WriteReply | None:
        del event, scope
        return None


class LosesOwner(StoresLater):
    async def write(self, request: WriteRequest) -> WriteReply:
        company = Scope(company_id=request.scope.company_id)
        return await super().write(request.model_copy(update={"scope": company}))


class NamesNoEvent(StoresLater):
    async def write(self, request: WriteRequest) -> WriteReply:
        return (await super().write(request)).model_copy(update={"event": None})


FAULTS = [
    StoresAgain, BringsBack, NeverEnds, LosesOwner, NamesNoEvent,
    LosesSource, StripsText, IgnoresTopK, RaisesForUnknown, KeepsGhosts, ForgetsHalf, HidesMissing,
    RepeatsPages, CountsOnePage, IgnoresFilters, OverwritesStale, KeepsRevision, RestoresElsewhere,
    MixesProjects, NeverExpires, OldestFirst, AnswersUnasked, ChokesOnQuotes, RenamesIds,
]  # fmt: skip


async def failures(adapter_class: type[Adapter], folder: Path) -> set[str]:
    """Return the names of the checks that an adapter fails."""

    class Checks(AdapterContract):
        capabilities = adapter_class.capabilities
        is_durable = False
        has_events = issubclass(adapter_class, StoresLater)

        async def open_adapter(self, tmp_path: Path) -> Adapter:
            return await adapter_class.open(self.context(tmp_path))

    failed = set()
    for name, check in inspect.getmembers(Checks(), inspect.iscoroutinefunction):
        if not name.startswith("test_"):
            continue
        extra = {"tmp_path": folder} if "tmp_path" in inspect.signature(check).parameters else {}
        adapter = await Checks().open_adapter(folder)
        try:
            await check(adapter=adapter, **extra)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # any error is a failed check
            failed.add(name)
    return failed


async def test_a_right_adapter_fails_nothing(tmp_path: Path) -> None:
    for right in (InMemoryAdapter, StoresLater):
        assert await failures(right, tmp_path) == set()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_found(fault: type[Adapter], tmp_path: Path) -> None:
    assert await failures(fault, tmp_path)


def test_the_checks_run_in_strict_mode(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from memtui.testing import AdapterContract, InMemoryAdapter

        class Broken(InMemoryAdapter):
            async def query(self, request):
                bundle = await super().query(request)
                return bundle.model_copy(update={"snippets": bundle.snippets[1:]})

        class TestGood(AdapterContract):
            capabilities = InMemoryAdapter.capabilities
            is_durable = False
            async def open_adapter(self, tmp_path):
                return await InMemoryAdapter.open(self.context(tmp_path))

        class TestBroken(AdapterContract):
            capabilities = InMemoryAdapter.capabilities
            is_durable = False
            async def open_adapter(self, tmp_path):
                return await Broken.open(self.context(tmp_path))
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-o", "asyncio_mode=strict", "-k", "write or query",
        "-o", "asyncio_default_fixture_loop_scope=function",
    )  # fmt: skip
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] > 0
    assert "errors" not in outcomes
    failed = [line for line in result.outlines if line.startswith("FAILED")]
    assert all("TestBroken" in line for line in failed)
    result.stdout.fnmatch_lines(["*query does not find what was just written*"])


def test_an_author_sees_which_checks_do_not_apply(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from memtui.contract import Capabilities
        from memtui.testing import AdapterContract, InMemoryAdapter

        class Bare(InMemoryAdapter):
            capabilities = Capabilities(pin=True)

        class TestBare(AdapterContract):
            capabilities = Bare.capabilities
            is_durable = False
            async def open_adapter(self, tmp_path):
                return await Bare.open(self.context(tmp_path))

        class TestMore(TestBare):
            capabilities = Capabilities(pin=True, browse=True)
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-o", "asyncio_mode=strict", "-rfP",
        "-k", "history or order or pin or capabilities",
        "-o", "asyncio_default_fixture_loop_scope=function",
    )  # fmt: skip
    assert "skipped" not in result.parseoutcomes()
    result.stdout.fnmatch_lines(["*test_history does not apply: it lacks history"])
    result.stdout.fnmatch_lines(["*`capabilities` and the adapter's differ in browse;*"])
    failed = [line for line in result.outlines if line.startswith("FAILED")]
    assert [line.split()[1].split("::", 1)[1] for line in failed] == ["TestMore::test_capabilities"]
    assert result.parseoutcomes()["passed"] == 4  # those of TestBare, and pin and order of TestMore


async def test_the_knobs_of_the_memory_provider(tmp_path: Path) -> None:
    context = BindingContext(
        company_id="c", binding_key="b", data_dir=tmp_path, config={"failing": ["query", "health"]}
    )
    adapter = await InMemoryAdapter.open(context)
    with pytest.raises(Unavailable):
        await adapter.query(QueryRequest(scope=Scope(company_id="c"), query="x"))
    assert (await adapter.health()).status == "down"
    with pytest.raises(Invalid):
        await InMemoryAdapter.open(context.model_copy(update={"config": {"latency_ms": -1}}))


def test_importing_the_memory_provider_does_not_import_pytest() -> None:
    import subprocess
    import sys

    code = "import sys, memtui.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
