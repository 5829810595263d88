"""The stand-in for a hosted provider is a complete provider, and fails when it is told to."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from memtui.contract import (
    Adapter,
    BindingContext,
    CorrectRequest,
    ForgetRequest,
    QueryIntent,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteMode,
    WriteRequest,
)
from memtui.demo.hosted import HostedAdapter, HostedConfig, Outage, Trouble
from memtui.testing import AdapterContract

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCOPE = Scope(company_id="acme", project_id="docs-site")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")


class TestContract(AdapterContract):
    capabilities = HostedAdapter.capabilities

    async def open_adapter(self, tmp_path: Path) -> Adapter:
        context = self.context(tmp_path)
        context.data_dir.mkdir(exist_ok=True)
        return await HostedAdapter.open(context)


class Time:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def opened(tmp_path: Path, time: Time) -> Callable[..., Awaitable[HostedAdapter]]:
    async def open_with(*outages: tuple[Trouble, int]) -> HostedAdapter:
        """Open with troubles that last from noon on for some minutes."""
        config = HostedConfig(
            outages=tuple(
                Outage(kind=kind, start=NOON, end=NOON + timedelta(minutes=minutes))
                for kind, minutes in outages
            )
        )
        return await HostedAdapter.open(
            BindingContext(
                company_id="acme",
                binding_key="kb",
                config=config.model_dump(mode="json"),
                data_dir=tmp_path,
                now=time,
            )
        )

    return open_with


def _write(text: str, **fields: object) -> WriteRequest:
    return WriteRequest.model_validate(
        {"scope": SCOPE, "source": SOURCE, "content": text, **fields}
    )


def _query(text: str, intent: QueryIntent = QueryIntent.ANSWER) -> QueryRequest:
    return QueryRequest(scope=SCOPE, query=text, intent=intent)


async def test_a_write_is_billed_by_fee_and_tokens(
    opened: Callable[..., Awaitable[HostedAdapter]],
) -> None:
    adapter = await opened()
    [usage] = (await adapter.write(_write("a" * 400))).usage
    assert usage.embedding_tokens == 100
    assert usage.cost_usd == Decimal("0.002") + 100 * Decimal("0.02") / 1_000_000
    reply = await adapter.write(_write("One sentence. Another.", mode=WriteMode.SUMMARIZE))
    assert [one.model for one in reply.usage] == ["demo-embed-1", "demo-mini-2"]
    record = await adapter.get(reply.records[0], SCOPE)
    assert record is not None
    assert record.text == "One sentence. Another."
    assert record.summary == "One sentence"
    again = await adapter.write(_write("One sentence.", summary=record.summary))
    back = await adapter.get(again.records[0], record.scope)
    assert back is not None
    assert back.summary == record.summary
    await adapter.close()


async def test_reranking_is_unpriced(opened: Callable[..., Awaitable[HostedAdapter]]) -> None:
    adapter = await opened()
    await adapter.write(_write("The goose is a mod."))
    answer = await adapter.query(_query("goose"))
    assert [one.cost_usd is None for one in answer.usage] == [False, True]
    preamble = await adapter.query(_query("goose", QueryIntent.AGENT_PREAMBLE))
    assert len(preamble.usage) == 1
    await adapter.close()


async def test_down_refuses_before_anything_is_done(
    opened: Callable[..., Awaitable[HostedAdapter]], time: Time
) -> None:
    adapter = await opened((Trouble.DOWN, 10))
    with pytest.raises(Unavailable) as caught:
        await adapter.write(_write("Lost."))
    assert not caught.value.sent
    assert (await adapter.health()).status == "down"
    time.now += timedelta(minutes=10)
    assert (await adapter.health()).records == 0
    await adapter.close()


async def test_slow_does_it_and_loses_the_answer(
    opened: Callable[..., Awaitable[HostedAdapter]], time: Time
) -> None:
    adapter = await opened((Trouble.SLOW, 10))
    with pytest.raises(Unavailable) as caught:
        await adapter.write(_write("It happened all the same."))
    assert caught.value.sent
    assert (await adapter.health()).status == "degraded"
    time.now += timedelta(minutes=10)
    [snippet] = (await adapter.query(_query("happened"))).snippets
    assert snippet.text == "It happened all the same."
    await adapter.close()


async def test_lag_returns_what_was_forgotten_for_a_while(
    opened: Callable[..., Awaitable[HostedAdapter]], time: Time
) -> None:
    adapter = await opened((Trouble.LAG, 10))
    [handle] = (await adapter.write(_write("A ghost."))).records
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,)))
    assert await adapter.get(handle, SCOPE) is not None
    time.now += timedelta(minutes=10)
    assert await adapter.get(handle, SCOPE) is None
    assert (await adapter.query(_query("ghost"))).snippets == ()
    await adapter.close()


async def test_two_of_them_share_one_file(opened: Callable[..., Awaitable[HostedAdapter]]) -> None:
    one, other = await opened(), await opened()
    [first] = (await one.write(_write("Written by one."))).records
    [second] = (await other.write(_write("Written by the other."))).records
    await one.correct(CorrectRequest(scope=SCOPE, handle=second, text="Corrected by one."))
    assert await _text(other, first) == "Written by one."
    assert await _text(other, second) == "Corrected by one."
    await one.close()
    await other.close()


async def test_its_files_are_private(
    opened: Callable[..., Awaitable[HostedAdapter]], tmp_path: Path
) -> None:
    adapter = await opened()
    await adapter.write(_write("Private."))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"records.json": 0o600, "records.lock": 0o600}
    await adapter.close()


async def test_a_colleague_in_the_same_project_sees_it(
    opened: Callable[..., Awaitable[HostedAdapter]],
) -> None:
    adapter = await opened()
    by_docs = SCOPE.model_copy(update={"agent_id": "docs"})
    [handle] = (await adapter.write(_write("Shared.", scope=by_docs))).records
    scout = SCOPE.model_copy(update={"agent_id": "scout"})
    assert await adapter.get(handle, scout) is not None
    elsewhere = Scope(company_id="acme", project_id="infra", agent_id="docs")
    assert await adapter.get(handle, elsewhere) is None
    await adapter.close()


async def test_a_file_that_is_not_its_own_is_reported(
    opened: Callable[..., Awaitable[HostedAdapter]], tmp_path: Path
) -> None:
    adapter = await opened()
    (tmp_path / "records.json").write_text("[1, 2")
    with pytest.raises(Unavailable, match="--reset"):
        await adapter.write(_write("No."))
    assert (tmp_path / "records.json").read_text() == "[1, 2"
    await adapter.close()


async def _text(adapter: HostedAdapter, handle: RecordHandle) -> str | None:
    record = await adapter.get(handle, SCOPE)
    return None if record is None else record.text
