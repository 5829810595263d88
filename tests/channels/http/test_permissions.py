"""The table of seed 004 §6.5 over HTTP, cell by cell; every refusal is in the log."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from memtui.contract import EVERYTHING, OperationStatus, OperationType
from memtui.service import Caller, MemoryService, Operation
from memtui.store.log import OperationStore
from tests.channels.http.conftest import DRIVE, DRIVE_PATH, USER_PATH

pytestmark = [
    pytest.mark.usefixtures("members"),
    pytest.mark.parametrize("memories", ["vault"], indirect=True),  # the service decides
]

OWNER, ADMIN, MEMBER = ("user:ana", None), ("user:adam", None), ("user:mia", None)
ELSEWHERE, STRANGER = ("user:eve", None), ("user:zoe", None)
AGENT_OF_OWNER, AGENT_OF_ADMIN = ("agent:coding", "user:ana"), ("agent:coding", "user:adam")
AGENT_OF_MEMBER, AGENT_OF_NOBODY = ("agent:coding", "user:mia"), ("agent:coding", None)
AGENT_OF_STRANGER = ("agent:coding", "user:zoe")

VIEWS, ADDS, DELETES = {"view"}, {"view", "add"}, {"view", "add", "delete"}
DRIVE_TABLE = [
    (OWNER, DELETES),
    (ADMIN, DELETES),
    (MEMBER, VIEWS),
    (ELSEWHERE, set()),
    (STRANGER, set()),
    (AGENT_OF_OWNER, DELETES),
    (AGENT_OF_ADMIN, DELETES),
    (AGENT_OF_MEMBER, ADDS),
    (AGENT_OF_NOBODY, set()),
    (AGENT_OF_STRANGER, set()),
]
USER_TABLE = [
    (OWNER, DELETES),
    (ADMIN, DELETES),
    (MEMBER, DELETES),
    (ELSEWHERE, DELETES),
    (STRANGER, set()),
    (AGENT_OF_OWNER, DELETES),
    (AGENT_OF_MEMBER, DELETES),
    (AGENT_OF_NOBODY, set()),
    (AGENT_OF_STRANGER, set()),
]
DONE = {"view": 200, "add": 201, "delete": 204}
LOGGED = {
    "view": OperationType.BROWSE,
    "add": OperationType.WRITE,
    "delete": OperationType.FORGET,
}


async def newest(service: MemoryService, caller: Caller) -> Operation:
    """Return the newest operation, whoever may see it."""
    with service.analysis.database.read() as connection:
        return OperationStore(connection, caller.company_id).page(EVERYTHING, limit=1).operations[0]


async def added(client: httpx.AsyncClient, path: str, text: str) -> str:
    reply = await client.post(path, json={"fact": text})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


async def act(client: httpx.AsyncClient, action: str, path: str, fact_id: str) -> httpx.Response:
    if action == "view":
        return await client.get(path)
    if action == "add":
        return await client.post(path, json={"fact": "One more."})
    return await client.delete(f"{path.removesuffix('/' + DRIVE)}/{fact_id}")


async def assert_cell(
    memories: MemoryService,
    caller: Caller,
    principal: str,
    reply: httpx.Response,
    action: str,
    *,
    allowed: bool,
) -> None:
    logged = await newest(memories, caller)
    assert (logged.principal, logged.channel) == (principal, "http")
    if allowed:
        assert (reply.status_code, logged.status) == (DONE[action], OperationStatus.OK), action
        assert logged.operation_type is LOGGED[action]
    else:
        assert (reply.status_code, logged.status) == (403, OperationStatus.DENIED), action
        assert reply.json()["error"]["kind"] == "denied"


@pytest.mark.parametrize(("who", "allowed"), DRIVE_TABLE)
async def test_drive_memory(
    memories: MemoryService,
    caller: Caller,
    speak: Any,
    who: tuple[str, str | None],
    allowed: set[str],
) -> None:
    owner, client = await speak("user:ana"), await speak(*who)
    fact_id = await added(owner, DRIVE_PATH, "Uses Go.")
    for action in DONE:
        reply = await act(client, action, DRIVE_PATH, fact_id)
        await assert_cell(memories, caller, who[0], reply, action, allowed=action in allowed)
    left = {fact["fact"] for fact in (await owner.get(DRIVE_PATH)).json()["memories"]}
    assert ("Uses Go." in left) == ("delete" not in allowed)
    assert ("One more." in left) == ("add" in allowed)


async def test_a_members_delete_of_a_drive_fact_is_logged_as_a_denied_forget(
    memories: MemoryService, caller: Caller, speak: Any
) -> None:
    fact_id = await added(await speak("user:ana"), DRIVE_PATH, "Uses Go.")
    reply = await (await speak("user:mia")).delete(f"/api/memory/drive/{fact_id}")
    logged = await newest(memories, caller)
    assert reply.status_code == 403
    assert (logged.operation_type, logged.status, logged.scope.project_id) == (
        OperationType.FORGET, OperationStatus.DENIED, DRIVE,
    )  # fmt: skip


@pytest.mark.parametrize(("who", "allowed"), USER_TABLE)
async def test_user_memory(
    memories: MemoryService,
    caller: Caller,
    speak: Any,
    who: tuple[str, str | None],
    allowed: set[str],
) -> None:
    client = await speak(*who)
    fact_id = await added(await speak("user:ana"), USER_PATH, "Ana likes tea.")
    if allowed:
        fact_id = await added(client, USER_PATH, "Likes it short.")
    for action in DONE:
        reply = await act(client, action, USER_PATH, fact_id)
        await assert_cell(memories, caller, who[0], reply, action, allowed=action in allowed)


async def test_nobody_sees_or_deletes_another_users_facts(speak: Any) -> None:
    ana, mia = await speak("user:ana"), await speak("user:mia")
    fact_id = await added(mia, USER_PATH, "Mia likes coffee.")
    assert (await ana.get(USER_PATH)).json()["memories"] == []
    assert (await ana.delete(f"{USER_PATH}/{fact_id}")).status_code == 404
    assert len((await mia.get(USER_PATH)).json()["memories"]) == 1


async def test_an_agent_speaks_of_the_person_it_acts_for(speak: Any) -> None:
    person, agent = await speak("user:mia"), await speak("agent:coding", "user:mia")
    await added(person, USER_PATH, "By hand.")
    await added(agent, USER_PATH, "By an agent.")
    seen = (await agent.get(USER_PATH)).json()
    assert seen == (await person.get(USER_PATH)).json()
    told = {fact["fact"]: fact["source"] for fact in seen["memories"]}
    assert told == {"By hand.": "user", "By an agent.": "ai"}


async def test_a_drives_facts_tell_who_added_them(speak: Any) -> None:
    owner, agent = await speak("user:ana"), await speak("agent:coding", "user:mia")
    await added(owner, DRIVE_PATH, "By hand.")
    await added(agent, DRIVE_PATH, "By an agent.")
    seen = (await owner.get(DRIVE_PATH)).json()["memories"]
    assert [(fact["createdBy"], fact["source"]) for fact in seen] == [
        ("user:ana", "user"),
        ("agent:coding", "ai"),
    ]


async def test_the_id_of_a_fact_opens_no_other_drive(speak: Any) -> None:
    from memtui.channels.http.facts import decode_id, encode_id

    owner, eve = await speak("user:ana"), await speak("user:eve")
    fact_id = await added(owner, DRIVE_PATH, "Uses Go.")
    _, record_id = decode_id(fact_id, 2) or ("", "")
    forged = encode_id("gemini", record_id)
    assert (await eve.delete(f"/api/memory/drive/{forged}")).status_code == 404
    assert (await eve.delete(f"/api/memory/user/{encode_id(record_id)}")).status_code == 404
    assert (await owner.delete(f"/api/memory/drive/{record_id}")).status_code in {404, 422}
    assert len((await owner.get(DRIVE_PATH)).json()["memories"]) == 1


async def test_a_member_is_the_user_of_their_own_name(
    speak: Any, memories: MemoryService, caller: Caller
) -> None:
    from memtui.service.visibility import Membership, Role

    member = Membership(principal="user:sam", project_id=DRIVE, role=Role.ADMIN)
    await memories.members.set(caller, member)
    sam = await speak("user:sam")
    assert (await sam.get(USER_PATH)).status_code == 200
    assert (await sam.get(DRIVE_PATH)).status_code == 200
    await memories.members.set(
        caller, Membership(principal="user:x", project_id=DRIVE, role=Role.MEMBER, subject_id="kim")
    )
    named = Membership(principal="user:kim", project_id=DRIVE, role=Role.MEMBER)
    assert (await memories.members.set(caller, named)).subject_id is None
