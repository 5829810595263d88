"""Building what is found by meaning: its record, its cost, and the yes before texts leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal

import pytest

from memtui.contract import (
    Denied,
    Embedding,
    Invalid,
    NotFound,
    OperationStatus,
    OperationType,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from memtui.store.operation import Operation
from tests.loopback import Embeddings

COMPANY = Scope(company_id="local")
ELSEWHERE = "https://llm.acme.invalid"


@pytest.fixture
def server() -> Iterator[Embeddings]:
    running = Embeddings()
    yield running
    running.stop()


async def remember(service: MemoryService, caller: Caller, *texts: str) -> None:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for text in texts:
        await service.write(caller, WriteRequest(scope=COMPANY, source=source, content=text))


async def configure(service: MemoryService, caller: Caller, **config: object) -> None:
    await service.bindings.update(caller, "default", config=config)


async def newest(service: MemoryService, caller: Caller) -> Operation:
    return (await service.log.page(caller, limit=1)).operations[0]


async def test_a_build_is_an_operation_with_its_cost(
    service: MemoryService, caller: Caller, server: Embeddings
) -> None:
    await remember(service, caller, "The sky is blue.", "Deploys are on Friday.")
    with pytest.raises(Unsupported, match="no embedding"):
        await service.embedding.state(caller, "default")
    await configure(service, caller, embedding=server.embedding, embedding_usd=2)
    steps: list[Embedding] = []
    found = await service.embedding.build(caller, "default", steps.append)
    assert (found.is_done, found.embedded, steps[-1]) == (True, 2, found)
    built = await newest(service, caller)
    assert (built.operation_type, built.status) == (OperationType.EMBED, OperationStatus.OK)
    assert (built.result_count, built.request["embedding"]) == (2, server.embedding)
    assert [one.cost_usd for one in built.usage] == [Decimal("0.000002")]
    health = (await service.bindings.health(caller, "default")).health
    assert health.embedding == found
    [view] = await service.bindings.all(caller)
    assert view.capabilities.semantic


async def test_no_text_leaves_before_a_yes_and_none_after_it_is_taken_back(
    service: MemoryService, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.embedding._PAUSE_SECONDS", 0)
    await remember(service, caller, "The sky is blue.")
    await configure(service, caller, embedding=f"openai:{ELSEWHERE}/v1#m")
    with pytest.raises(Denied, match=ELSEWHERE):
        await service.embedding.build(caller, "default")
    assert (await newest(service, caller)).status is OperationStatus.DENIED
    with pytest.raises(Invalid, match="would go to"):
        await service.embedding.agree(caller, "default", "https://else.invalid")
    await service.embedding.agree(caller, "default", ELSEWHERE)
    agreed = await newest(service, caller)
    assert agreed.request["texts_may_go_to"] == ELSEWHERE
    with pytest.raises(Unavailable, match="cannot be reached"):
        await service.embedding.build(caller, "default")
    await service.undo(caller, agreed.operation_id)
    assert not (await service.embedding.state(caller, "default")).agreed
    with pytest.raises(NotFound, match="Nobody had agreed"):
        await service.embedding.agree(caller, "default", ELSEWHERE, agreed=False)
    with pytest.raises(Denied, match=ELSEWHERE):
        await service.embedding.build(caller, "default")


async def test_what_leaves_holds_no_secret(
    service: MemoryService, caller: Caller, server: Embeddings
) -> None:
    elsewhere = server.url.replace("127.0.0.1", "0.0.0.0")  # which is not a loopback address
    await configure(service, caller, embedding=f"openai:{elsewhere}/v1#m")
    await remember(service, caller, "The sky is blue.")
    [vault] = service.paths.data.glob("bindings/*/default/vault")
    (vault / "by hand.md").write_text("The staging key is AKIAIOSFODNN7EXAMPLE, says Ana.")
    await service.embedding.agree(caller, "default", elsewhere)
    assert (await service.embedding.build(caller, "default")).is_done
    await service.query(caller, QueryRequest(scope=COMPANY, query="what of AKIAIOSFODNN7EXAMPLE"))
    assert len(server.texts) == 3
    assert not any("AKIA" in text for text in server.texts)
    assert sum("[REDACTED:" in text for text in server.texts) == 2
    queried = await newest(service, caller)
    assert (queried.operation_type, queried.unpriced) == (OperationType.QUERY, True)


async def test_what_is_new_is_embedded_in_the_background_until_that_is_turned_off(
    service: MemoryService, caller: Caller, server: Embeddings
) -> None:
    await configure(service, caller, embedding=server.embedding)
    await remember(service, caller, *(f"Note {number}." for number in range(70)))
    step = asyncio.Event()

    async def turn_off() -> None:
        await service.bindings.update(caller, "default", embeds=False)
        server.gate.set()

    def told(key: str, found: Embedding) -> None:
        assert (key, found.texts) == ("default", 70)
        step.set()

    server.gate.clear()
    keeping = asyncio.create_task(service.embedding.catch_up(caller, told))
    while not server.calls:  # the first call has arrived
        await asyncio.sleep(0.01)
    await turn_off()
    await step.wait()
    await keeping
    assert (await service.embedding.state(caller, "default")).embedded == 64


async def test_a_model_that_cannot_be_used_leaves_the_words(
    service: MemoryService, caller: Caller
) -> None:
    with pytest.raises(Invalid, match="is not an embedding"):
        await configure(service, caller, embedding="openai")
    await configure(
        service, caller, embedding="openai:http://127.0.0.1:9/v1#m", embedding_secret="NO_SUCH_KEY"
    )
    await remember(service, caller, "The sky is blue.")
    health = (await service.bindings.health(caller, "default")).health
    assert (health.status, health.embedding) == ("degraded", None)
    assert "NO_SUCH_KEY" in health.message
    with pytest.raises(Unsupported, match="NO_SUCH_KEY"):
        await service.embedding.build(caller, "default")
