"""What is said of results: who may say it, whose last word counts, and where it is counted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memtui.analytics.figures import Bucket, Figures
from memtui.analytics.stats import Rollups
from memtui.config import Paths, Settings
from memtui.contract import (
    Denied,
    Filter,
    Invalid,
    NotFound,
    OperationType,
    QueryIntent,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.service.operations.feedback import Verdict

ACME = Scope(company_id="acme")
ASKED = QueryRequest(scope=ACME, query="deploy branch")
HELPED, NOT_HELPED, WITHDRAWN = Verdict


async def figures(service: MemoryService, caller: Caller) -> tuple[int, int]:
    """Return what the exact figures and the dashboard count, which are the same."""
    exact: Figures = await service.analysis.stats(caller, Filter())
    painted = (await service.analysis.dashboard(caller, Bucket.DAY)).stats
    found = exact.helped_count, exact.not_helped_count
    assert (painted.helped_count, painted.not_helped_count) == found
    by_agent = await service.analysis.stats(caller, Filter(), by=("principal",))
    assert sum(group.helped_count for group in by_agent.groups) == found[0]
    return found


@pytest.mark.slow
async def test_the_last_word_of_each_counts_sealed_or_not(
    service: MemoryService,
    caller: Caller,
    note: WriteRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Rollups, "short", 0)
    handle = (await service.write(caller, note)).handles[0]
    record_id, other = handle.provider_record_id, caller.model_copy(update={"principal": "user:bo"})
    first, second = [(await service.query(caller, ASKED)).operation_id for _ in range(2)]

    async def counted() -> tuple[int, int]:
        found = (await service.log.retrieval_stats(caller, "default", [record_id]))[record_id]
        told = await service.log.provenance(caller, "default", handle)
        assert (told.helped, told.not_helped) == (found.helped, found.not_helped)
        assert await figures(service, caller) == (found.helped, found.not_helped)
        return found.helped, found.not_helped

    said = (
        (caller, first, HELPED, (1, 0)),
        (caller, second, HELPED, (2, 0)),
        (other, second, NOT_HELPED, (2, 1)),
        (caller, first, NOT_HELPED, (1, 2)),
        (caller, first, NOT_HELPED, (1, 2)),
        (caller, second, WITHDRAWN, (0, 2)),
        (caller, second, HELPED, (1, 2)),
    )
    for number, (who, operation_id, verdict, expected) in enumerate(said):
        answer = await service.feedback.say(who, handle, verdict, operation_id=operation_id)
        assert (answer.judged, answer.binding_key) == (operation_id, "default")
        logged = await service.log.get(caller, answer.operation_id)
        assert logged.operation_type is OperationType.FEEDBACK
        assert [one.provider_record_id for one in logged.handles] == [record_id]
        assert await counted() == expected
        if number in {2, 5}:
            await service.analysis.seal(caller, everything=True)
            assert await counted() == expected
    assert (await service.analysis.verify_chain(caller)).problem is None


async def test_an_agent_can_only_speak_of_what_it_was_given(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    handle = (await service.write(caller, note)).handles[0]
    say = service.feedback.say
    by_person = (await service.query(caller, ASKED)).operation_id
    agent = Caller(company_id="acme", principal="agent:x", channel="mcp", acts_for="user:ana")
    with pytest.raises(Denied, match="only on its own queries"):
        await say(agent, handle, HELPED, operation_id=by_person)
    with pytest.raises(NotFound, match="No query or context of yours"):
        await say(agent, handle, HELPED)
    plugin = Caller(company_id="acme", principal="plugin:anonymous", channel="plugin")
    with pytest.raises(Denied, match="only on its own queries"):
        await say(plugin, handle, HELPED, operation_id=by_person)
    in_run = agent.model_copy(update={"run_id": "run-1"})
    of_run = (await service.query(in_run, ASKED)).operation_id
    sub_agent = in_run.model_copy(update={"principal": "agent:y"})
    assert (await say(sub_agent, handle, HELPED)).judged == of_run
    assert (await say(agent, handle.provider_record_id, NOT_HELPED)).judged == of_run
    statuses = [
        one.status
        for one in (
            await service.log.page(caller, Filter(operation_type=OperationType.FEEDBACK))
        ).operations
    ]
    assert statuses == ["ok", "ok", "denied", "error", "denied"]


async def test_what_returned_nothing_cannot_have_helped(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    written = await service.write(caller, note)
    asked = await service.query(caller, ASKED)
    say, handle = service.feedback.say, written.handles[0]
    with pytest.raises(Invalid, match=r"#\d+ is a write"):
        await say(caller, handle, HELPED, operation_id=written.operation_id)
    with pytest.raises(NotFound, match="did not return another"):
        await say(caller, "another", HELPED, operation_id=asked.operation_id)
    with pytest.raises(NotFound, match="There is no operation nowhere"):
        await say(caller, handle, HELPED, operation_id="nowhere")
    with pytest.raises(Denied, match="This is the past"):
        await say(caller.at(datetime.now(UTC)), handle, HELPED, operation_id=asked.operation_id)


async def test_a_preamble_has_what_helped_before_after_pins_and_rules(
    paths: Paths, settings: Settings
) -> None:
    service = await open_service(paths, settings)
    caller, scope = (
        Caller(company_id="local", principal="user:ana", channel="cli"),
        Scope(company_id="local"),
    )
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    asking = QueryRequest(scope=scope, query="deploy branch")
    texts: dict[str, dict[str, Any]] = {
        "deploy branch deploy branch": {},
        "of the deploy branch, at length": {},
        "the deploy branch, among many other words that nobody asked for": {},
        "rule: a deploy branch among still more words that nobody asked for": {"kind": "rule"},
        "a pin that names a deploy branch among the most words of all of them": {"pinned": True},
    }
    ids = {}
    for text, fields in texts.items():
        request = WriteRequest(scope=scope, source=source, content=text, **fields)
        ids[text] = (await service.write(caller, request)).handles[0]
    best, second, last, rule, pin = texts
    preamble = asking.model_copy(update={"intent": QueryIntent.AGENT_PREAMBLE})

    async def found() -> list[str]:
        return [one.text for one in (await service.query(caller, preamble)).snippets]

    other = caller.model_copy(update={"principal": "user:bo"})
    asked = (await service.query(caller, asking)).operation_id
    for who, text, verdict, after in (
        (caller, rule, WITHDRAWN, (pin, rule, best, second, last)),
        (caller, last, HELPED, (pin, rule, last, best, second)),
        (caller, second, HELPED, (pin, rule, second, last, best)),
        (other, second, NOT_HELPED, (pin, rule, last, best, second)),
        (caller, last, WITHDRAWN, (pin, rule, best, second, last)),
    ):
        await service.feedback.say(who, ids[text], verdict, operation_id=asked)
        assert await found() == list(after)
    [logged] = (await service.log.page(caller, Filter(), limit=1)).operations
    assert set(logged.request) == {"query", "intent", "top_k", "stages"}
    answer = await service.query(caller, asking)
    assert answer.snippets[0].text == best, "an answer is ranked by relevance"
    await service.close()


async def test_a_record_has_helped_where_more_say_so_than_not(
    service: MemoryService, caller: Caller, note: WriteRequest
) -> None:
    other = caller.model_copy(update={"principal": "user:bo"})
    said: dict[str, list[tuple[Caller, int, Verdict]]] = {
        "once": [(caller, 0, HELPED)], "never": [(caller, 0, NOT_HELPED)],
        "both": [(caller, 0, HELPED), (other, 0, NOT_HELPED)],
        "more": [(caller, 0, HELPED), (other, 0, NOT_HELPED), (other, 1, HELPED)],
        "less": [(caller, 0, NOT_HELPED), (other, 0, NOT_HELPED), (other, 1, HELPED)],
        "turned": [(caller, 0, NOT_HELPED), (caller, 0, HELPED)],
        "withdrawn": [(caller, 0, HELPED), (caller, 0, WITHDRAWN)], "unsaid": [],
    }  # fmt: skip
    handles = {
        name: (await service.write(caller, note.model_copy(update={"record_id": name}))).handles[0]
        for name in said
    }
    asked = [(await service.query(caller, ASKED)).operation_id for _ in range(2)]
    for name, words in said.items():
        for who, number, verdict in words:
            await service.feedback.say(who, handles[name], verdict, operation_id=asked[number])
    log = service.runtime.log(caller.company_id)
    assert log.helped("default") == {"once", "more", "turned"}
    assert log.helped("second") == frozenset()
    counted = await service.log.retrieval_stats(caller, "default", list(said))
    assert {name: (one.helped, one.not_helped) for name, one in counted.items()} == {
        "once": (1, 0), "never": (0, 1), "both": (1, 1), "more": (2, 1), "less": (1, 2),
        "turned": (1, 0), "withdrawn": (0, 0), "unsaid": (0, 0),
    }  # fmt: skip
