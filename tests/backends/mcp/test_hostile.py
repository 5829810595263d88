"""Servers that die, flood, lie or say nothing: memtui answers with one sentence, and goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    EraseRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from tests.backends.damaged import DAMAGED, WHOLE, hidden
from tests.backends.mcp.conftest import MAPPING, Opened, without
from tests.backends.mcp.fakes import FAKE

SCOPE = Scope(company_id="acme")
BROWSE = BrowseRequest(scope=SCOPE)
HANDLE = RecordHandle(provider_key="mcp", provider_record_id="k1")


def write(text: str = "A badger.") -> WriteRequest:
    return WriteRequest(scope=SCOPE, source=None, content=text)


def pids(folder: Path) -> list[int]:
    return [int(one) for one in (folder / "pids").read_text().split()]


async def gone(pid: int) -> None:
    """Wait until a process has ended and its parent knows it."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["noise", "wrong_ids", "asks"])
async def test_what_is_not_the_reply_is_skipped(tmp_path: Path, opened: Opened, how: str) -> None:
    adapter = await opened(f"list_notes={how}")
    page = await adapter.browse(BROWSE)
    assert [one.text for one in page.records] == ["An otter."]
    if how == "asks":
        ping, roots = json.loads((tmp_path / "answers.json").read_text())
        assert ping["result"] == {}
        assert roots["error"]["code"] == -32601


@pytest.mark.parametrize("how", ["flood", "endless"])
async def test_a_server_that_never_ends_is_stopped(
    tmp_path: Path, opened: Opened, how: str
) -> None:
    adapter = await opened(f"list_notes={how}", max_body_mb=0.2)
    with pytest.raises(Unavailable, match="larger than 200,000 bytes"):
        await adapter.browse(BROWSE)
    await gone(pids(tmp_path)[0])
    assert (await adapter.health()).status == "ok"
    assert len(pids(tmp_path)) == 2


async def test_a_silent_server_is_late(opened: Opened) -> None:
    adapter = await opened("list_notes=silent", "add_note=silent", timeout_seconds=0.5)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.5 s"):
        await adapter.browse(BROWSE)
    with pytest.raises(Unavailable) as late:
        await adapter.write(write())
    assert late.value.sent


async def test_a_server_that_died_is_started_again(tmp_path: Path, opened: Opened) -> None:
    adapter = await opened("list_notes=once_dies")
    with pytest.raises(Unavailable, match=r"ended before it answered \(It hurts: •••\)") as died:
        await adapter.browse(BROWSE)
    assert not died.value.sent
    assert len((await adapter.browse(BROWSE)).records) == 1
    first, second = pids(tmp_path)
    os.kill(second, signal.SIGKILL)
    while (await adapter.health()).status != "ok":
        await asyncio.sleep(0.01)
    assert len(pids(tmp_path)) == 3
    await gone(first)


@pytest.mark.parametrize("how", ["dies", "is_error", "fails", "no_result", "odd_result"])
async def test_the_outcome_of_a_change_is_unknown_if_the_server_does_not_tell_it(
    opened: Opened, how: str
) -> None:
    adapter = await opened(f"add_note={how}", f"change_note={how}", f"delete_note={how}")
    changes = [
        adapter.write(write()),
        adapter.correct(CorrectRequest(scope=SCOPE, handle=HANDLE, text="New.")),
        adapter.forget(ForgetRequest(scope=SCOPE, handles=(HANDLE,))),
    ]
    is_told = how == "odd_result"  # a reply without a memory says what a delete needs to say
    for change in changes[: 1 if is_told else 3]:
        with pytest.raises(Unavailable) as unknown:
            await change
        assert unknown.value.sent
    for rest in changes[1:] if is_told else []:
        await rest


async def test_a_request_that_was_refused_changed_nothing(opened: Opened) -> None:
    adapter = await opened("add_note=refuses")
    with pytest.raises(Invalid, match="refused the request: Bad"):
        await adapter.write(write())


async def test_a_read_that_fails_says_why(opened: Opened) -> None:
    adapter = await opened("list_notes=is_error", "search_notes=no_result")
    with pytest.raises(Unavailable, match=r"failed at list_notes: It .* failed") as failed:
        await adapter.browse(BROWSE)
    assert "\n" not in str(failed.value)
    with pytest.raises(Unavailable, match="unreadable"):
        await adapter.query(QueryRequest(scope=SCOPE, query="otter"))


@pytest.mark.parametrize("how", ["texts", "escapes"])
async def test_a_reply_may_have_several_texts_and_any_characters(opened: Opened, how: str) -> None:
    adapter = await opened(f"list_notes={how}")
    [record] = (await adapter.browse(BROWSE)).records
    assert ("\x1b" in record.text) is (how == "escapes")


async def test_rows_that_are_no_memories_are_counted(opened: Opened) -> None:
    adapter = await opened("list_notes=odd_rows")
    page = await adapter.browse(BROWSE)
    assert sorted(one.handle.provider_record_id for one in page.records) == ["k1", "k2", "k3"]
    assert page.unread[0].startswith("4 memories of the server could not be read, so nobody ")


async def test_a_memory_whose_owner_cannot_be_read_is_nobodys(
    tmp_path: Path, opened: Opened
) -> None:
    (tmp_path / "parts.json").write_text(json.dumps((*DAMAGED, *WHOLE)))
    adapter = await opened("list_notes=damaged", "search_notes=damaged", "get_note=damaged")
    records = await hidden(adapter, "otter")
    assert [one.scope.subject_id for one in records] == ["ana"] * len(WHOLE)
    with pytest.raises(Unavailable, match="unreadable: whose k0 is"):
        await adapter.get(HANDLE.model_copy(update={"provider_record_id": "k0"}), SCOPE)


async def test_a_missing_tool_is_a_missing_ability(opened: Opened) -> None:
    adapter = await opened("tools=4")
    assert not adapter.capabilities.correction
    with pytest.raises(Exception, match="no tool that deletes"):
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=(HANDLE,)))
    assert not (await opened("tools=3")).capabilities.writable


@pytest.mark.parametrize("hint", ["writes", "destroys"])
async def test_a_mapping_reads_with_no_tool_that_changes_something(
    opened: Opened, hint: str
) -> None:
    with pytest.raises(Invalid, match="reads with the tool search_notes, of which the server says"):
        await opened(f"hint={hint}")


async def test_a_tool_that_the_server_lacks_is_named(opened: Opened) -> None:
    health = await (await opened("tools=5")).health()
    assert health.message.endswith("update; the server has no delete_note.")
    with pytest.raises(Invalid, match=r"calls itself notes and has the tools : .* set mapping"):
        await opened("tools=0")


async def test_without_a_mapping_the_tools_are_named(opened: Opened) -> None:
    with pytest.raises(
        Invalid, match=r"calls itself notes and has the tools search_notes, .* set mapping"
    ):
        await opened(mapping="")


async def test_a_command_gets_a_small_environment(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_KEY", "k-1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    await opened(env={"A": "1"}, env_secrets={"KEY": "NOTES_KEY"})
    given = json.loads((tmp_path / "environment.json").read_text())
    given.pop("LC_CTYPE", None)  # Python sets it itself
    assert given == {
        "PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8",
        "A": "1", "KEY": "k-1",
    }  # fmt: skip


async def test_a_command_runs_without_a_shell(tmp_path: Path, opened: Opened) -> None:
    with pytest.raises(Unavailable, match="cannot be started"):
        await opened(command=f"nowhere; touch {tmp_path}/made")
    assert not (tmp_path / "made").exists()


async def test_closing_stops_a_server_that_does_not_end_by_itself(
    tmp_path: Path, opened: Opened
) -> None:
    adapter = await opened("stays=yes")
    await adapter.close()
    await gone(pids(tmp_path)[0])


async def test_a_server_ends_with_a_memtui_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from memtui.backends.mcp.client import ToolClient, StdioChannel\n"
        "async def main():\n"
        "    command = [sys.executable, '-S', *sys.argv[1:]]\n"
        "    channel = StdioChannel('It', command, {}, seconds=9, most_bytes=9999, redact=str)\n"
        "    client = ToolClient('It', channel)\n"
        "    await client.tools()\n"
        "    print('there', flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    memtui = subprocess.Popen(
        [sys.executable, "-c", code, str(FAKE), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert memtui.stdout is not None
    assert memtui.stdout.readline() == "there\n"
    memtui.kill()
    memtui.wait()
    memtui.stdout.close()
    await gone(pids(tmp_path)[0])


@pytest.mark.parametrize("config", [{}, {"url": "http://127.0.0.1:1/mcp"}])
async def test_a_binding_has_either_a_command_or_a_url(
    opened: Opened, config: dict[str, str]
) -> None:
    with pytest.raises(Invalid, match="Set either the command"):
        await opened(**(config or {"command": ""}))


async def test_a_server_with_shorter_pages_than_asked_is_read_to_the_end(
    tmp_path: Path, opened: Opened
) -> None:
    adapter = await opened("list_notes=short_pages")
    page = await adapter.browse(BROWSE)
    assert sorted(one.handle.provider_record_id for one in page.records) == ["k0", "k1", "k2"]


async def test_what_is_known_is_erased_only_beside_a_whole_list(
    tmp_path: Path, opened: Opened
) -> None:
    mapping = tmp_path / "bare.toml"
    mapping.write_text(Path(MAPPING).read_text().replace(', extra = "{metadata}"', ""))
    odd = await opened("list_notes=odd_rows", mapping=str(mapping))
    await odd.write(write("An otter."))
    known = tmp_path / "data" / "known.json"
    assert [*json.loads(known.read_text())] == ["k1"]
    asked = EraseRequest(scope=SCOPE, record_ids=("k1", "k9"), apply=True)
    [why] = (await odd.erase(asked)).beyond
    assert "is not whole" in why
    whole = await opened("list_notes=empty", mapping=str(mapping))
    assert (await whole.erase(asked)).record_ids == ("k1",)
    assert json.loads(known.read_text()) == {}


@pytest.mark.parametrize("mapping", ["./notes.toml", "notes.toml", "~nobody-here/notes.toml"])
async def test_the_path_of_a_mapping_is_absolute(opened: Opened, mapping: str) -> None:
    with pytest.raises(Invalid, match=r"mapping of the binding notes does not fit: .*absolute"):
        await opened(mapping=mapping)


@pytest.fixture(params=[', extra = "{metadata}"', 'metadata = "extra"'])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A mapping of the notes' server that writes no metadata, or does not read it."""
    mapping = tmp_path / "bare.toml"
    mapping.write_text(Path(MAPPING).read_text().replace(request.param, ""))
    return str(mapping)


def of_agent(agent: str) -> Scope:
    return Scope(company_id="acme", agent_id=agent)


@pytest.mark.parametrize("how", ["dies", "fails", "odd_result"])
async def test_a_memory_is_its_writers_if_its_id_never_came(
    opened: Opened, bare: str, tmp_path: Path, how: str
) -> None:
    adapter = await opened(f"add_note={how}", mapping=bare)
    request = WriteRequest(scope=of_agent("ana"), source=None, content="An otter.")
    with pytest.raises(Unavailable):
        await adapter.write(request)
    again = await opened(mapping=bare)
    assert not (await again.browse(BrowseRequest(scope=of_agent("ben")))).records
    [found] = (await again.browse(BrowseRequest(scope=of_agent("ana")))).records
    assert found.scope == of_agent("ana")
    # What is known of it is erased with it, and not before.
    asked = EraseRequest(scope=of_agent("ana"), apply=True)
    assert not (await again.erase(asked)).record_ids
    gone = await opened("list_notes=empty", mapping=bare)
    assert len((await gone.erase(asked)).record_ids) == 1
    assert json.loads((tmp_path / "data" / "known.json").read_text()) == {}


async def test_a_refused_write_takes_no_memory_from_its_writer(opened: Opened, bare: str) -> None:
    request = WriteRequest(scope=of_agent("ana"), source=None, content="An otter.")
    with pytest.raises(Unavailable):
        await (await opened("add_note=dies", mapping=bare)).write(request)
    again = await opened("add_note=refuses", mapping=bare)
    with pytest.raises(Invalid):
        await again.write(request.model_copy(update={"scope": of_agent("ben")}))
    assert not (await again.browse(BrowseRequest(scope=of_agent("ben")))).records
    assert len((await again.browse(BrowseRequest(scope=of_agent("ana")))).records) == 1


async def test_nothing_is_kept_of_a_write_that_was_refused(
    opened: Opened, bare: str, tmp_path: Path
) -> None:
    adapter = await opened("add_note=refuses", mapping=bare)
    with pytest.raises(Invalid):
        await adapter.write(write("An otter."))
    assert json.loads((tmp_path / "data" / "known.json").read_text()) == {}
    stored = await opened(mapping=bare)
    await stored.write(write("An otter."))
    assert [*json.loads((tmp_path / "data" / "known.json").read_text())] == ["k1"]


async def test_an_owner_for_whom_there_is_no_place_is_refused(
    opened: Opened, bare: str, tmp_path: Path
) -> None:
    file = Path(bare)
    file.write_text(f"extracts = true\n{file.read_text()}")
    adapter = await opened(mapping=bare)
    request = WriteRequest(scope=of_agent("ana"), source=None, content="An otter.")
    with pytest.raises(Unsupported, match="no place for the owner"):
        await adapter.write(request)
    assert not (tmp_path / "calls").exists()
    await adapter.write(write("An otter."))
    text = file.read_text().replace("[record]", '[record]\nagent_id = "box"')
    file.write_text(text.replace('"{box}"', '"{agent_id}"'))
    await (await opened(mapping=bare)).write(request)


async def test_a_memory_that_nothing_reads_again_is_written_and_not_corrected(
    opened: Opened, tmp_path: Path
) -> None:
    (tmp_path / "blind.toml").write_text(without("list", "get"))
    adapter = await opened(mapping=str(tmp_path / "blind.toml"))
    assert len((await adapter.write(write())).records) == 1
    assert not adapter.capabilities.correction
    with pytest.raises(Unsupported, match="lists memories or reads one"):
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=(HANDLE,)))


@pytest.mark.parametrize("how", ["refuses", "is_error", "is_missing"])
async def test_a_written_memory_that_cannot_be_read_again_is_no_failed_write(
    opened: Opened, how: str
) -> None:
    adapter = await opened(f"get_note={how}")
    if how == "is_missing":
        assert len((await adapter.write(write("An otter."))).records) == 1
        return
    with pytest.raises(Unavailable) as unknown:
        await adapter.write(write("An otter."))
    assert unknown.value.sent


async def test_a_number_is_sent_where_the_tool_takes_one(opened: Opened, tmp_path: Path) -> None:
    adapter = await opened(
        "keys=numbers",
    )
    handle = RecordHandle(provider_key="mcp", provider_record_id="7")
    await adapter.get(handle, SCOPE)
    odd = RecordHandle(provider_key="mcp", provider_record_id="\u00b2")
    await adapter.get(odd, SCOPE)
    calls = map(json.loads, (tmp_path / "calls").read_text().splitlines())
    assert [given["key"] for _, given in calls] == [7, "\u00b2"]
