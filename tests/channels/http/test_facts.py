"""Facts over HTTP: kept exactly, found again, attributed, and never more than there may be."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.channels.http.facts import decode_id, encode_id
from memtui.contract import (
    BrowseRequest,
    Filter,
    OperationType,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, ReviewRule, RuleAction, RuleTest
from tests.channels.cli.conftest import HOSTILE
from tests.channels.http.conftest import DRIVE, DRIVE_PATH, USER_PATH
from tests.reads import reads_of

NASTY = [
    HOSTILE[:200],
    "\u202eevil\u2066 \u200b",
    "# heading - bullet * star ``` fence <!-- comment",
    "key: value: more",
    "日本語 🏴‍☠️ e\u0301",
    "a\x00b",
    "x" * 200,
    "[/tmp/x](javascript:alert(1)) {{ }} %s %00 &amp;",
]


async def texts(client: httpx.AsyncClient, path: str) -> list[str]:
    return [fact["fact"] for fact in (await client.get(path)).json()["memories"]]


async def test_a_person_who_lists_facts_is_no_reader_of_them(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    client = await speak("user:ana")
    await client.post(USER_PATH, json={"fact": "We drink tea."})
    for _ in range(2):
        assert await texts(client, USER_PATH) == ["We drink tea."]
    own = Scope(company_id=caller.company_id, subject_id="ana")
    page = await memories.browse(caller, BrowseRequest(scope=own))
    assert await reads_of(memories, caller, page.records[0], page.binding_key) == 0


@pytest.mark.parametrize("path", [USER_PATH, DRIVE_PATH])
async def test_add_list_delete(speak: Any, path: str) -> None:
    client = await speak("user:ana")
    first = await client.post(path, json={"fact": "Deploys happen from main."})
    second = await client.post(path, json={"fact": "Uses Go."})
    assert [reply.status_code for reply in (first, second)] == [201, 201]
    listed = await client.get(path)
    assert listed.json() == {"memories": [first.json(), second.json()], "atLeast": False}
    assert first.json().keys() - {"createdBy"} == {"id", "fact", "createdAt", "source"}
    assert ("createdBy" in first.json()) == (path == DRIVE_PATH)
    assert first.json()["createdAt"].endswith("Z")
    base = path.removesuffix(f"/{DRIVE}")
    gone = await client.delete(f"{base}/{first.json()['id']}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert await texts(client, path) == ["Uses Go."]
    assert (await client.delete(f"{base}/{first.json()['id']}")).status_code == 404


async def test_an_agent_says_whether_a_fact_helped_that_it_was_given(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    agent = await speak("agent:x", acts_for="user:ana")
    kept = (await agent.post(DRIVE_PATH, json={"fact": "Deploys happen from main."})).json()
    said = {"id": kept["id"], "helped": True}
    unknown = await agent.post("/api/memory/feedback", json=said)
    assert (unknown.status_code, unknown.json()["error"]["kind"]) == (404, "not_found")
    scope = Scope(company_id=caller.company_id, project_id=DRIVE)
    asker = caller.model_copy(update={"principal": "agent:x", "acts_for": "user:ana"})
    asked = await memories.query(asker, QueryRequest(scope=scope, query="deploys"))
    told = await agent.post("/api/memory/feedback", json=said)
    assert (told.status_code, told.json()["judged"]) == (201, asked.operation_id)
    logged = await memories.log.get(caller, told.json()["operationId"])
    assert (logged.principal, logged.request["verdict"]) == ("agent:x", "helped")
    person = await speak("user:ana")
    other = await person.post("/api/memory/feedback", json=said | {"helped": "perhaps"})
    assert other.status_code in {400, 422}


async def test_what_an_agent_asks_is_held_for_review(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    person, agent = await speak("user:ana"), await speak("agent:x", acts_for="user:ana")
    kept = (await person.post(DRIVE_PATH, json={"fact": "Uses Go."})).json()
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    for binding in await memories.bindings.all(caller):
        await memories.review.add_rule(caller, binding.key, rule)
    base = DRIVE_PATH.removesuffix(f"/{DRIVE}")
    replies = [
        await agent.post(DRIVE_PATH, json={"fact": "Uses Rust."}),
        await agent.delete(f"{base}/{kept['id']}"),
    ]
    held = {one.pending_id for one in await memories.review.waiting(caller)}
    assert [one.status_code for one in replies] == [202, 202]
    assert {one.json()["pendingId"] for one in replies} == held
    assert {one.json()["status"] for one in replies} == {"pending"}
    assert await texts(person, DRIVE_PATH) == ["Uses Go."]


async def test_users_and_drives_are_apart(speak: Any) -> None:
    client = await speak("user:ana")
    for path in (USER_PATH, DRIVE_PATH, "/api/memory/drive/gemini"):
        await client.post(path, json={"fact": f"Of {path}."})
    for path in (USER_PATH, DRIVE_PATH, "/api/memory/drive/gemini"):
        assert await texts(client, path) == [f"Of {path}."]


async def test_only_facts_of_that_very_drive_are_shown_and_deleted(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    client = await speak("user:ana")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    project = Scope(company_id="local", project_id=DRIVE)
    note = WriteRequest(
        scope=project, source=source, content="A note.", kind="note", binding_key="default"
    )
    company = note.model_copy(update={"scope": Scope(company_id="local"), "kind": "fact"})
    wrote = [await memories.write(caller, one) for one in (note, company)]
    assert await texts(client, DRIVE_PATH) == []
    for answer in wrote:
        wire_id = encode_id(DRIVE, answer.handles[0].provider_record_id)
        assert (await client.delete(f"/api/memory/drive/{wire_id}")).status_code == 404


async def test_any_drive_id_is_one_segment(speak: Any, url: str) -> None:
    client = await speak("user:ana")
    for drive in ("a/b", "日本", "p#1?x=%2F", "..", ".", "a b", "%", "x" * 200):
        path = f"{url}/api/memory/drive/{quote(drive, safe='').replace('.', '%2E')}"
        added = await client.post(path, json={"fact": "Here."})
        assert added.status_code in {201, 422}, (drive, added.text)
        if added.status_code == 201:
            assert (await client.get(path)).json()["memories"] == [added.json()], drive
            gone = await client.delete(f"/api/memory/drive/{added.json()['id']}")
            assert gone.status_code == 204, drive


async def test_hostile_text_is_kept_exactly_or_refused(speak: Any) -> None:
    client = await speak("user:ana")
    kept: list[str] = []
    for text in NASTY:
        added = await client.post(USER_PATH, json={"fact": text})
        assert added.status_code in {201, 422}, (text, added.text)
        kept += [text] if added.status_code == 201 else []
        assert await texts(client, USER_PATH) == kept, text


@pytest.mark.slow
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(min_size=1, max_size=210))
async def test_any_text_is_kept_exactly_or_refused(speak: Any, text: str) -> None:
    client = await speak("user:ana")
    added = await client.post(DRIVE_PATH, json={"fact": text})
    assert added.status_code in {201, 422}, added.text
    if added.status_code == 201:
        assert await texts(client, DRIVE_PATH) == [added.json()["fact"]]
        assert added.json()["fact"] in {text, text.strip(" \t")}
        deleted = await client.delete(f"/api/memory/drive/{added.json()['id']}")
        assert deleted.status_code == 204
    assert await texts(client, DRIVE_PATH) == []


async def test_a_secret_is_taken_out(speak: Any) -> None:
    client = await speak("user:ana")
    token = "ghp_" + "a1B2" * 9
    added = await client.post(USER_PATH, json={"fact": f"The token is {token}"})
    assert added.status_code == 201
    assert token not in added.text
    assert token not in (await client.get(USER_PATH)).text


async def test_the_source_of_a_fact_is_kept(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    agent = await speak("agent:coding", "user:ana")
    source = {"kind": "run", "runId": "r-17", "issueId": "ISS-1"}
    added = await agent.post(DRIVE_PATH, json={"fact": "Uses Go.", "sourceRef": source})
    assert added.json()["source"] == "ai"
    written = Filter(operation_type=OperationType.WRITE, run_id="r-17")
    (operation,) = (await memories.log.page(caller, written)).operations
    assert operation.source == SourceRef(
        kind=SourceKind.RUN, company_id="local", run_id="r-17", issue_id="ISS-1"
    )
    assert (operation.principal, operation.channel) == ("agent:coding", "http")


@pytest.mark.parametrize(("whose", "steps"), [("agent:coding", ["write"]), ("user:ana", [])])
async def test_a_fact_from_a_run_belongs_to_the_agents_run_and_to_no_persons(
    speak: Any, memories: MemoryService, caller: Caller, whose: str, steps: list[str]
) -> None:
    client = await speak(whose, *(["user:ana"] if whose != "user:ana" else []))
    source = {"kind": "run", "runId": "r-17"}
    added = await client.post(USER_PATH, json={"fact": "Uses Go.", "sourceRef": source})
    assert added.status_code == 201
    of_run = (await memories.log.page(caller, Filter(run_id="r-17"))).operations
    assert [one.operation_type for one in of_run if one.scope.run_id == "r-17"] == steps
    assert await texts(client, USER_PATH) == ["Uses Go."]


async def test_a_full_list_takes_no_more_however_many_come_at_once(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    client = await speak("user:ana")

    async def add(number: int) -> int:
        reply = await client.post(DRIVE_PATH, json={"fact": f"Fact number {number}."})
        return int(reply.status_code)

    found = await asyncio.gather(*(add(number) for number in range(60)))
    assert sorted(found) == [201] * 50 + [422] * 10
    assert len(await texts(client, DRIVE_PATH)) == 50
    assert await add(61) == 422
    writes = await memories.log.page(caller, Filter(operation_type=OperationType.WRITE))
    assert writes.total == 61


async def test_two_deletes_of_one_fact_at_once(speak: Any) -> None:
    client = await speak("user:ana")
    added = await client.post(USER_PATH, json={"fact": "Once."})
    address = f"{USER_PATH}/{added.json()['id']}"
    replies = await asyncio.gather(client.delete(address), client.delete(address))
    codes = sorted(reply.status_code for reply in replies)
    assert codes[0] == 204
    assert codes[1] in {204, 404, 409}
    assert await texts(client, USER_PATH) == []


@given(parts=st.lists(st.text(min_size=1), min_size=1, max_size=2))
def test_ids_are_reversible_segments(parts: list[str]) -> None:
    wire_id = encode_id(*parts)
    assert quote(wire_id, safe="") == wire_id
    assert decode_id(wire_id, len(parts)) == parts
    assert decode_id(wire_id, len(parts) + 1) is None
