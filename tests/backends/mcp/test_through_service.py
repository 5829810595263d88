"""Through the service: the yes before a start, changes with undo and redo, and the log."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from memtui.backends.mcp import McpAdapter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Json,
    OperationStatus,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from memtui.service.home.provider_views import class_view
from tests.backends.mcp.conftest import MAPPING, notes_command, without
from tests.backends.mcp.fakes import FAKE
from tests.node import NodeProgram

SCOPE = Scope(company_id="local")


async def add(service: MemoryService, caller: Caller, config: Json, key: str = "notes") -> None:
    starts = await service.bindings.to_agree(caller, key, "mcp", config)
    assert starts is not None
    await service.bindings.add(caller, key, "mcp", config, starts=starts)


async def listed(service: MemoryService, caller: Caller) -> dict[str, Record]:
    found: dict[str, Record] = {}
    cursor: str | None = None
    while True:
        asked = BrowseRequest(binding_key="notes", scope=SCOPE, limit=300, cursor=cursor)
        page = await service.browse(caller, asked)
        found |= {one.text: one for one in page.records}
        if (cursor := page.next_cursor) is None:
            return found


def write(text: str, **more: str) -> WriteRequest:
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    given = {"scope": SCOPE, "source": source, "content": text, **more}
    return WriteRequest(binding_key="notes", **given)


def fake(folder: Path, *behaviour: str) -> Json:
    command = shlex.join([sys.executable, "-S", str(FAKE), str(folder), *behaviour])
    return {"command": command, "mapping": MAPPING}


async def test_nothing_is_started_without_a_yes(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    config = fake(tmp_path)
    with pytest.raises(Denied, match=r"nobody has agreed to that: .*fakes\.py"):
        await service.bindings.add(caller, "notes", "mcp", config)
    with pytest.raises(Denied):
        await service.bindings.trial(caller, "notes", "mcp", config)
    with pytest.raises(Denied):
        await service.bindings.add(caller, "notes", "mcp", config, starts="something else")
    assert not (tmp_path / "pids").exists()
    await add(service, caller, config)
    assert await service.bindings.to_agree(caller, "notes", "mcp", config) is None
    [view] = [one for one in await service.bindings.all(caller) if one.key == "notes"]
    assert view.agreed == ()
    other = fake(tmp_path, "stays=yes")
    with pytest.raises(Denied):
        await service.bindings.update(caller, "notes", config=other)
    assert len(await listed(service, caller)) == 1
    starts = await service.bindings.to_agree(caller, "notes", "mcp", other)
    await service.bindings.update(caller, "notes", config=other, starts=starts)
    await service.bindings.update(caller, "notes", config={**other, "max_listed": 7})
    assert len(await listed(service, caller)) == 1
    variable = {**other, "env": {"PYTHONPATH": "/nowhere"}}
    assert "PYTHONPATH=/nowhere" in str(
        await service.bindings.to_agree(caller, "notes", "mcp", variable)
    )


async def test_a_change_whose_outcome_is_unknown_is_logged_so(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await add(service, caller, fake(tmp_path, "add_note=dies"))
    with pytest.raises(Unavailable) as unknown:
        await service.write(caller, write("A badger."))
    assert unknown.value.operation_id is not None
    logged = await service.log.get(caller, unknown.value.operation_id)
    assert logged.status is OperationStatus.UNKNOWN


async def test_a_write_to_a_server_that_reads_nothing_again_is_no_failure(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    mapping = tmp_path / "blind.toml"
    mapping.write_text(without("list", "get"))
    await add(service, caller, {**fake(tmp_path), "mapping": str(mapping)})
    written = await service.write(caller, write("A badger."))
    assert (await service.log.get(caller, written.operation_id)).status is OperationStatus.OK


@pytest.mark.parametrize("tool", ["add_note", "delete_note"])
async def test_a_refused_change_is_settled_by_a_check(
    service: MemoryService, caller: Caller, tmp_path: Path, tool: str
) -> None:
    await add(service, caller, fake(tmp_path, f"{tool}=is_error"))
    handle = RecordHandle(provider_key="mcp", provider_record_id="k1")
    gone = ForgetRequest(binding_key="notes", scope=SCOPE, handles=(handle,))
    writes = tool == "add_note"
    change = service.write(caller, write("A badger.")) if writes else service.forget(caller, gone)
    with pytest.raises(Unavailable) as unknown:
        await change
    assert unknown.value.operation_id is not None
    found = await service.check_outcome(caller, unknown.value.operation_id)
    assert found.happened is False


async def test_a_server_is_stopped_with_its_binding(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    await add(service, caller, fake(tmp_path, "stays=yes"))
    pid = int((tmp_path / "pids").read_text())
    os.kill(pid, 0)
    await service.bindings.remove(caller, "notes")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await service.undo(caller)
    assert len(await listed(service, caller)) == 1
    again = int((tmp_path / "pids").read_text().split()[1])
    os.kill(again, signal.SIGKILL)
    assert len(await listed(service, caller)) == 1


async def test_each_change_is_undone_and_redone(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    file = tmp_path / "notes.json"
    await add(service, caller, {"command": notes_command(file), "mapping": MAPPING})

    def content() -> list[Json]:
        notes = json.loads(file.read_text()).values()
        return sorted(({**one, "key": ""} for one in notes), key=lambda one: str(one["body"]))

    await service.write(caller, write("Deploys on Fridays.", topic="work"))
    await service.write(caller, write("Tea, not coffee."))
    found = await listed(service, caller)
    assert found["Deploys on Fridays."].topic == "work"
    [hit] = (
        await service.query(
            caller, QueryRequest(binding_key="notes", scope=SCOPE, query="what deploys")
        )
    ).snippets
    assert hit.text == "Deploys on Fridays."

    handle = found["Deploys on Fridays."].handle
    changed = CorrectRequest(
        binding_key="notes", scope=SCOPE, handle=handle, text="Never on Fridays.", tags=("rule",)
    )
    gone = ForgetRequest(
        binding_key="notes", scope=SCOPE, handles=(found["Tea, not coffee."].handle,)
    )
    for change in (lambda: service.correct(caller, changed), lambda: service.forget(caller, gone)):
        before = content()
        done = await change()
        after = content()
        assert after != before
        undone = await service.undo(caller, done.operation_id)
        assert content() == before
        await service.undo(caller, undone.operation_id)
        assert content() == after
        await service.undo(caller)
        assert content() == before


async def test_a_thousand_observations_of_server_memory(
    service: MemoryService, caller: Caller, tmp_path: Path, memory_server: NodeProgram
) -> None:
    file = tmp_path / "memory.jsonl"
    entities = [
        {"type": "entity", "name": f"e{n}", "entityType": "thing",
         "observations": [f"Note {n * 10 + one}." for one in range(10)]}
        for n in range(100)
    ]  # fmt: skip
    link = {"type": "relation", "from": "e1", "to": "e2", "relationType": "knows"}
    file.write_text("\n".join(map(json.dumps, [*entities, link])))
    command = shlex.join(map(str, memory_server))
    env = {"MEMORY_FILE_PATH": str(file)}
    await add(service, caller, {"command": command, "mapping": "server-memory", "env": env})

    def content() -> Json:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        return {
            str([row.get("name"), row.get("from")]): sorted(row.get("observations", []))
            for row in rows
        }

    before = content()
    found = await listed(service, caller)
    assert len(found) == 1_000
    assert found["Note 17."].title == "e1"
    handles = tuple(found[f"Note {n}."].handle for n in range(5, 25))
    await service.forget(caller, ForgetRequest(binding_key="notes", scope=SCOPE, handles=handles))
    assert len(await listed(service, caller)) == 980
    assert content()["['e1', None]"] == []
    await service.undo(caller)
    assert content() == before
    corrected = await service.correct(
        caller,
        CorrectRequest(
            binding_key="notes", scope=SCOPE, handle=found["Note 17."].handle, text="Corrected."
        ),
    )
    assert "Corrected." in content()["['e1', None]"]
    await service.undo(caller, corrected.operation_id)
    assert content() == before
    await service.write(caller, write("Likes tea.", title="Ana", kind="person"))
    assert content()["['Ana', None]"] == ["Likes tea."]
    await service.undo(caller)
    assert content()["['Ana', None]"] == []
    hits = await service.query(
        caller, QueryRequest(binding_key="notes", scope=SCOPE, query="note 517")
    )
    assert hits.snippets[0].text == "Note 517."


def test_what_is_needed_first_stands_before_the_limits() -> None:
    names = [one.name for one in class_view(McpAdapter)["config"]]
    assert names[:4] == ["url", "token_secret", "command", "mapping"]
    assert names[-4:] == ["allow_http", "timeout_seconds", "max_body_mb", "max_listed"]
