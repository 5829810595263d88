"""Hermes's memories, beside Hermes's own memory module of the registry's package."""

from __future__ import annotations

import asyncio
import errno
import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlalchemy import select

from memtui.backends.hermes import HermesAdapter, entries_of
from memtui.config import Paths
from memtui.contract import (
    FILE,
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    NotFound,
    OperationStatus,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Unavailable,
)
from memtui.provider_kit.files.entries import _Content
from memtui.service import Membership, Role
from memtui.service.home.survey import PurgeRequest
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from memtui.store.tables import JOURNAL
from tests.backends import one_binding
from tests.backends.hermes import run_hermes
from tests.backends.one_binding import SCOPE, SOURCE, by_text

Hermes = Callable[[str], Any]
"""Runs lines on a loaded `MemoryStore` called `s`; returns what they leave in `out`."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "hermes" / "memories"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def hermes(folder: Path) -> Hermes:
    start = "from tools.memory_tool import MemoryStore; s = MemoryStore(); s.load_from_disk()"
    return lambda lines: run_hermes(folder.parent, f"{start}\n{lines}")


def own(hermes: Hermes) -> tuple[list[str], list[str]]:
    """Return what Hermes itself reads: the agent's notes, and those of its user."""
    notes, user = hermes("out = [s.memory_entries, s.user_entries]")
    return notes, user


async def bound(service: MemoryService, caller: Caller, folder: Path, **config: Any) -> None:
    await service.bindings.add(caller, "hermes", "hermes", {"path": str(folder), **config})


listed = partial(by_text, key="hermes")
note = partial(one_binding.note, key="hermes")


async def test_each_sees_what_the_other_wrote_and_an_undo_leaves_the_same_bytes(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    hermes(
        "for text in ('Deploys leave main.', 'Tests run\\nwith § and pytest.', 'No weekends.'):\n"
        "    s.add('memory', text)\n"
        "s.add('user', 'Ana likes short answers.')"
    )
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert {text: one.kind for text, one in found.items()} == {
        "Deploys leave main.": "note", "Tests run\nwith § and pytest.": "note",
        "No weekends.": "note", "Ana likes short answers.": "user",
    }  # fmt: skip
    asked = QueryRequest(binding_key="hermes", scope=SCOPE, query="where do deploys leave from")
    assert (await service.query(caller, asked)).snippets[0].text == "Deploys leave main."
    files = folder / "MEMORY.md", folder / "USER.md"

    def content() -> list[bytes]:
        return [file.read_bytes() for file in files]

    handles = {text: one.handle for text, one in found.items()}
    for change, there in (
        (lambda: service.write(caller, note("We ship on Mondays.")), "We ship on Mondays."),
        (lambda: service.write(caller, note("Ana reads Rust.", kind="user")), "Ana reads Rust."),
        (
            lambda: service.correct(
                caller,
                CorrectRequest(
                    binding_key="hermes", scope=SCOPE, handle=handles["Deploys leave main."],
                    text="Deploys leave release.",
                ),
            ),
            "Deploys leave release.",
        ),
        (
            lambda: service.forget(
                caller,
                ForgetRequest(
                    binding_key="hermes", scope=SCOPE,
                    handles=(handles["Ana likes short answers."], handles["No weekends."],
                             handles["Deploys leave main."]),
                ),
            ),
            "Tests run\nwith § and pytest.",
        ),
    ):  # fmt: skip
        before = content()
        done = await change()
        after, theirs = content(), own(hermes)
        assert after != before
        assert there in [*theirs[0], *theirs[1]]
        undone = await service.undo(caller, done.operation_id)
        assert content() == before
        await service.undo(caller, undone.operation_id)
        assert (content(), own(hermes)) == (after, theirs)
        await service.undo(caller)
        assert content() == before
    assert hermes("out = s.replace('memory', 'weekends', 'No Fridays.')")["success"]
    assert hermes("out = s.remove('user', 'short')")["success"]


async def test_neither_loses_what_the_other_writes_at_the_same_time(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    await bound(service, caller, folder)
    theirs = asyncio.create_task(asyncio.to_thread(
        hermes, "for n in range(40): assert s.add('memory', f'Theirs {n}.')['success']"
    ))  # fmt: skip
    for n in range(12):
        written = await service.write(caller, note(f"Ours {n}."))
        if n % 3 == 0:
            await service.correct(caller, CorrectRequest(
                binding_key="hermes", scope=SCOPE, handle=written.handles[0],
                text=f"Ours {n}, again.",
            ))  # fmt: skip
    await theirs
    wanted = {f"Theirs {n}." for n in range(40)}
    wanted |= {f"Ours {n}, again." if n % 3 == 0 else f"Ours {n}." for n in range(12)}
    assert {*own(hermes)[0]} == {*await listed(service, caller)} == wanted


async def test_a_thousand_memories(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    (folder / "MEMORY.md").write_text("\n§\n".join(f"Note {n}." for n in range(1000)))
    await bound(service, caller, folder, memory_chars=20_000)
    found = await listed(service, caller)
    assert len(found) == 1000
    before = (folder / "MEMORY.md").read_bytes()
    gone = tuple(found[f"Note {n}."].handle for n in range(0, 1000, 3))
    await service.forget(caller, ForgetRequest(binding_key="hermes", scope=SCOPE, handles=gone))
    assert own(hermes)[0] == [f"Note {n}." for n in range(1000) if n % 3]
    await service.undo(caller)
    assert (folder / "MEMORY.md").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (" blank before", "note", "blanks around"),
        ("one\r\ntwo", "note", "line ends"),
        ("one\n§\ntwo", "note", "one by one"),
        ("§\ntwo", "note", "one by one"),
        ("x" * 2_201, "note", "2,200"),
        ("x" * 1_376, "user", "1,375"),
    ],
)
async def test_what_hermes_would_not_keep_is_refused(
    service: MemoryService, caller: Caller, folder: Path, text: str, kind: str, words: str
) -> None:
    await bound(service, caller, folder)
    await service.write(caller, note("There before."))
    before = (folder / "MEMORY.md").read_bytes()
    with pytest.raises(Invalid, match=words):
        await service.write(caller, note(text, kind=kind))
    assert (folder / "MEMORY.md").read_bytes() == before
    assert not (folder / "USER.md").exists()


async def test_an_undo_that_a_file_has_no_room_for_changes_none(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    handles = [
        (await service.write(caller, note(f"A {kind}.", kind=kind))).handles[0]
        for kind in ("note", "user")
    ]
    gone = ForgetRequest(binding_key="hermes", scope=SCOPE, handles=tuple(handles))
    await service.forget(caller, gone)
    (folder / "USER.md").write_text("x" * 1_370)
    with pytest.raises(Invalid, match="1,375"):
        await service.undo(caller)
    assert (folder / "MEMORY.md").read_text() == ""
    assert (folder / "USER.md").read_text() == "x" * 1_370


async def test_a_text_that_is_there_is_not_written_twice(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    first = (await service.write(caller, note("Only once."))).handles[0]
    second = (await service.write(caller, note("Another."))).handles[0]
    with pytest.raises(Conflict, match="already"):
        await service.write(caller, note("Only once."))
    with pytest.raises(Conflict, match="already"):
        await service.correct(caller, CorrectRequest(
            binding_key="hermes", scope=SCOPE, handle=second, text="Only once.",
        ))  # fmt: skip
    assert (folder / "MEMORY.md").read_text() == "Only once.\n§\nAnother."
    assert (await listed(service, caller))["Only once."].handle == first


async def test_one_of_two_equal_memories_comes_back_into_its_place(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    file = folder / "MEMORY.md"
    file.write_text("Twice.\n§\nOnce.\n§\nTwice.")
    await bound(service, caller, folder)
    second = (await listed(service, caller))["Twice."].handle
    first = second.model_copy(
        update={"provider_record_id": second.provider_record_id.removesuffix("~2")}
    )
    gone = ForgetRequest(binding_key="hermes", scope=SCOPE, handles=(first,))
    await service.forget(caller, gone)
    assert file.read_text() == "Once.\n§\nTwice."
    await service.undo(caller)
    assert file.read_text() == "Twice.\n§\nOnce.\n§\nTwice."


async def test_a_change_that_would_take_another_memory_along_is_refused(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    content = "\na\n§\n§\n"
    (folder / "MEMORY.md").write_text(content)
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert found.keys() == {"a", "§"}
    with pytest.raises(Invalid, match="other entries"):
        await service.forget(
            caller,
            ForgetRequest(binding_key="hermes", scope=SCOPE, handles=(found["a"].handle,)),
        )
    assert (folder / "MEMORY.md").read_text() == content


async def test_a_lock_that_hermes_keeps_is_waited_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.backends.hermes._LOCK_SECONDS", 0.1)
    adapter = await HermesAdapter.open(BindingContext(
        company_id="local", binding_key="hermes", config={"path": str(folder)},
        data_dir=tmp_path / "data",
    ))  # fmt: skip
    with FileLock(folder / "MEMORY.md.lock"), pytest.raises(Unavailable, match="Another program"):
        await adapter.write(note("Now."))
    assert (await adapter.browse(BrowseRequest(scope=SCOPE))).total == 0
    await adapter.write(note("Now."))
    await adapter.close()


async def test_of_equal_entries_each_keeps_its_own_tags(tmp_path: Path, folder: Path) -> None:
    (folder / "MEMORY.md").write_text("Same.\n§\nOther.\n§\nSame.\n§\nSame.")
    adapter = await HermesAdapter.open(BindingContext(
        company_id="local", binding_key="hermes", config={"path": str(folder)},
        data_dir=tmp_path / "data",
    ))  # fmt: skip

    async def tags() -> list[str]:
        found = (await adapter.browse(BrowseRequest(scope=SCOPE))).records
        same = sorted((one for one in found if one.text == "Same."), key=_line)
        return [" ".join(one.tags) for one in same]

    async def handles() -> list[RecordHandle]:
        found = (await adapter.browse(BrowseRequest(scope=SCOPE))).records
        return [one.handle for one in sorted(found, key=_line) if one.text == "Same."]

    for one, tag in zip(await handles(), ("first", "", "last"), strict=True):
        given = (tag,) if tag else ()
        await adapter.correct(CorrectRequest(handle=one, scope=SCOPE, source=SOURCE, tags=given))
    first, second, _last = await handles()
    taken = await adapter.snapshot([first, second], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(first,)))
    assert await tags() == ["", "last"]
    await adapter.restore(taken[:1], SCOPE)
    assert await tags() == ["first", "", "last"]
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(first, second)))
    assert await tags() == ["last"]
    await adapter.restore(taken, SCOPE)
    assert await tags() == ["first", "", "last"]
    changed = CorrectRequest(handle=first, scope=SCOPE, source=SOURCE, text="New.")
    new = (await adapter.correct(changed)).handle
    assert await tags() == ["", "last"]
    gone = Snapshot(handle=new, record=None)
    await adapter.restore([taken[0], gone], SCOPE)
    assert await tags() == ["first", "", "last"]
    await adapter.close()


def _line(record: Record) -> int:
    assert record.location is not None
    return record.location.line


_TEXTS = st.lists(st.text("ab §\r\n\ufeff", max_size=6), max_size=6)


def apart(content: str) -> _Content:
    return _Content(content, [*entries_of(content)], "MEMORY.md")


@given(st.data(), _TEXTS, st.sampled_from(["\n§\n", "\r\n§\r\n", "\n§\n\n"]))
def test_entries_come_back_into_the_same_bytes(
    data: st.DataObject, texts: list[str], between: str
) -> None:
    content = between.join(texts)
    there = apart(content)
    assert str(there) == content
    # Such a memory, beside blank lines, may become a separator: the change is refused then.
    assume(not any(text.startswith("§") for text in there.texts))
    places = data.draw(st.lists(st.integers(0, len(there.parts) - 1), unique=True)
                       if there.parts else st.just([]))  # fmt: skip
    taken = {at: (there.parts[at], there.around(at)) for at in places}
    for at in sorted(places, reverse=True):
        there.remove(at)
    assert apart(str(there)).texts == there.texts
    for at, (part, around) in sorted(taken.items()):
        there.insert(at, part, around, "\n§\n")
    assert str(there) == content


def staged(hermes: Hermes, **payload: Any) -> str:
    """Let Hermes stage a write; return its id there."""
    payload = {"target": "memory", "content": None, "old_text": None} | payload
    return str(hermes(
        "from tools import write_approval as wa\n"
        f"asked = {payload!r}\n"
        "out = wa.stage_write(wa.MEMORY, asked, summary='s', origin='background_review')['id']"
    ))  # fmt: skip


def approved_by_hermes(hermes: Hermes, pending_id: str, verb: str = "approve") -> str:
    return str(hermes(
        "from hermes_cli.write_approval_commands import handle_pending_subcommand as run\n"
        f"out = run('memory', ['{verb}', '{pending_id}'], memory_store=s)"
    ))  # fmt: skip


def files_of(home: Path) -> dict[str, bytes]:
    """Return the files of Hermes's home that say something."""
    return {
        str(one.relative_to(home)): one.read_bytes()
        for one in sorted(home.rglob("*"))
        if one.suffix in {".md", ".json"}
    }


NOTES = b"Deploys leave main.\n\xc2\xa7\nNo weekends.\n\xc2\xa7\nTests run with pytest."
STAGED: dict[str, dict[str, Any]] = {
    "add": {"action": "add", "content": " We ship on Mondays. "},
    "add again": {"action": "add", "content": "No weekends."},
    "add for the user": {"action": "add", "target": "user", "content": "Ana reads Rust."},
    "replace": {"action": "replace", "old_text": "leave", "content": "Deploys leave release."},
    "remove": {"action": "remove", "old_text": "weekends"},
    "batch": {"action": "batch", "operations": [
        {"action": "remove", "old_text": "weekends"},
        {"action": "replace", "old_text": "pytest", "content": "Tests run\nwith nox."},
        {"action": "add", "content": "Ask Bo."},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("ends", [b"", b"\n", b"\n\xc2\xa7\nNo weekends.\n"])
@pytest.mark.parametrize("name", STAGED)
async def test_accepting_what_waits_leaves_what_hermes_leaves(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes, name: str, ends: bytes
) -> None:
    home = folder.parent
    (folder / "MEMORY.md").write_bytes(NOTES + ends)
    pending_id = staged(hermes, **STAGED[name])
    before = files_of(home)
    said = approved_by_hermes(hermes, pending_id)
    theirs = files_of(home)
    for path in theirs.keys() - before.keys():
        (home / path).unlink()
    for path, content in before.items():
        (home / path).write_bytes(content)

    await bound(service, caller, folder)
    [one] = await service.review.waiting(caller)
    assert (one.principal, one.channel) == ("hermes (background_review)", "hermes")
    if "Approved 1" not in said:
        assert one.unfit
        with pytest.raises(Invalid):
            await service.review.accept(caller, one.pending_id)
        assert files_of(home) == before
        return
    shown = await service.review.show(caller, one.pending_id)
    done = await service.review.accept(caller, one.pending_id, seen=shown.seen)
    assert files_of(home) == theirs
    assert not await service.review.waiting(caller)
    [operation] = (await service.log.page(caller, limit=1)).operations
    assert operation.principal == "user:ana"
    assert operation.request["decision"] == "accept"
    undone = await service.undo(caller, done.operation_id)
    assert files_of(home) == before | dict.fromkeys(files_of(home).keys() - before.keys(), b"")
    [again] = await service.review.waiting(caller)
    assert again.pending_id == one.pending_id
    await service.undo(caller, undone.operation_id)
    assert files_of(home) == theirs


async def test_refusing_what_waits_does_what_hermes_does(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    home = folder.parent
    (folder / "MEMORY.md").write_bytes(NOTES)
    there = files_of(home)
    assert "Rejected" in approved_by_hermes(hermes, staged(hermes, **STAGED["add"]), "reject")
    assert files_of(home) == there
    staged(hermes, **STAGED["add"])
    (home / "pending" / "memory" / "bad.json").write_bytes(b'{"id": "ba')
    before = files_of(home)
    await bound(service, caller, folder)
    found = await service.review.waiting(caller)
    assert ["could be read" in one.unfit for one in found] == [False, True]
    for one in found:
        await service.review.refuse(caller, one.pending_id, "not ours")
    assert files_of(home) == there
    await service.undo(caller)
    await service.undo(caller)
    assert files_of(home) == before


async def test_a_waiting_write_that_changed_or_went_is_a_conflict(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    (folder / "MEMORY.md").write_bytes(NOTES)
    first, second = staged(hermes, **STAGED["replace"]), staged(hermes, **STAGED["remove"])
    await bound(service, caller, folder)
    one, other = await service.review.waiting(caller)
    shown = await service.review.show(caller, other.pending_id)
    hermes("s.remove('memory', 'Deploys leave')")
    [changed] = [
        write
        for write in await service.review.waiting(caller)
        if write.pending_id == one.pending_id
    ]
    assert "No entry has" in changed.unfit
    before = files_of(folder.parent)
    with pytest.raises(Invalid, match="No entry has the text"):
        await service.review.accept(caller, one.pending_id)
    with pytest.raises(Conflict, match="since you looked"):
        await service.review.accept(caller, other.pending_id, seen=shown.seen)
    assert files_of(folder.parent) == before
    staged_file = folder.parent / "pending" / "memory" / f"{second}.json"
    staged_file.write_text(staged_file.read_text().replace("weekends", "pytest"))
    with pytest.raises(NotFound):
        await service.review.accept(caller, other.pending_id)
    approved_by_hermes(hermes, first, "reject")
    with pytest.raises(NotFound):
        await service.review.refuse(caller, one.pending_id)


async def test_only_people_with_the_role_decide_on_what_waits(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    (folder / "MEMORY.md").write_bytes(NOTES)
    staged(hermes, **STAGED["add"])
    await bound(service, caller, folder)
    before = files_of(folder.parent)
    [one] = await service.review.waiting(caller)
    agent = Caller(company_id="local", principal="agent:bot", channel="mcp", acts_for="user:ana")
    viewer = Caller(company_id="local", principal="user:eve", channel="cli")
    roles = {"user:ana": Role.OWNER, "user:eve": Role.MEMBER}
    for who, role in roles.items():
        await service.members.set(caller, Membership(principal=who, role=role))
    for other in (agent, viewer):
        for decide in (service.review.accept, service.review.refuse):
            with pytest.raises(Denied):
                await decide(other, one.pending_id)
    [seen] = await service.review.waiting(viewer)
    assert seen.kept
    assert files_of(folder.parent) == before
    done = await service.review.accept(caller, one.pending_id)
    with pytest.raises(Denied):
        await service.undo(agent, done.operation_id)
    await service.undo(caller, done.operation_id)
    await service.bindings.update(caller, "hermes", read_only=True)
    [waits] = await service.review.waiting(caller)
    with pytest.raises(Denied, match="read-only"):
        await service.review.accept(caller, waits.pending_id)
    assert files_of(folder.parent) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "../../memories/MEMORY"}, "another file"),
        ({"payload": {"action": "frobnicate"}}, "no change frobnicate"),
        ({"payload": {"action": "batch", "operations": []}}, "no change"),
        ({"payload": {"action": "add", "content": "x" * 2_300}}, "2,200"),
        ({"payload": {"action": "remove", "old_text": "s"}}, "Several entries"),
        ({"payload": {"action": "add", "content": 7}}, "could be read"),
        ({"payload": None}, "could be read"),
    ],
)
async def test_what_hermes_would_not_accept_is_shown_with_the_reason(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes, change: Any, words: str
) -> None:
    (folder / "MEMORY.md").write_bytes(NOTES)
    path = folder.parent / "pending" / "memory" / f"{staged(hermes, **STAGED['add'])}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    await bound(service, caller, folder)
    [one] = await service.review.waiting(caller)
    assert words in one.unfit
    before = files_of(folder.parent)
    with pytest.raises(Invalid, match=words):
        await service.review.accept(caller, one.pending_id)
    assert files_of(folder.parent) == before
    await service.review.refuse(caller, one.pending_id)
    assert not path.exists()


async def test_a_purge_erases_what_was_accepted(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes, paths: Paths
) -> None:
    (folder / "MEMORY.md").write_bytes(NOTES)
    staged(hermes, action="add", content="Bea plans a plumword.")
    await bound(service, caller, folder)
    [one] = await service.review.waiting(caller)
    done = await service.review.accept(caller, one.pending_id)
    assert [handle.provider_record_id for handle in done.handles]
    name = done.handles[0].provider_record_id
    purge = PurgeRequest(record_id=name, binding_key="hermes", forget=True)
    await service.purging.apply(caller, purge)
    assert (folder / "MEMORY.md").read_bytes() == NOTES
    with pytest.raises(Invalid, match="erased"):
        await service.undo(caller, done.operation_id)
    steps = await service.runtime.ask(lambda database: list(database.execute(select(JOURNAL))))
    assert "plumword" not in str(steps)
    contents = [
        b64decode(state["state"].get("content", ""))
        for step in steps
        for state in (step.before, step.after)
        if state and "state" in state
    ]
    assert not any(b"plumword" in one for one in contents)


async def test_the_past_has_no_whole_files(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    (folder / "MEMORY.md").write_bytes(NOTES)
    staged(hermes, **STAGED["replace"])
    await bound(service, caller, folder)
    [one] = await service.review.waiting(caller)
    moment = datetime.now(UTC)
    await service.review.accept(caller, one.pending_id)
    then = await listed(service, caller.model_copy(update={"as_of": moment}))
    assert then.keys() == {"Deploys leave main.", "No weekends.", "Tests run with pytest."}


async def test_a_memory_in_the_place_of_another_keeps_its_owner(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes
) -> None:
    await bound(service, caller, folder)
    ana = Scope(company_id="local", subject_id="ana")
    await service.write(caller, note("Ana is ill.", scope=ana))
    staged(hermes, action="replace", old_text="ill", content="Ana is well.")
    [one] = await service.review.waiting(caller)
    assert ana in one.owners
    bad = folder.parent / "pending" / "memory" / "bad.json"
    bad.write_text("Ana is ill.")
    assert [ana in each.owners for each in await service.review.waiting(caller)] == [True, True]
    bad.unlink()
    done = await service.review.accept(caller, one.pending_id)
    assert {text: record.scope for text, record in (await listed(service, caller)).items()} == {
        "Ana is well.": ana
    }
    await service.undo(caller, done.operation_id)
    assert {text: record.scope for text, record in (await listed(service, caller)).items()} == {
        "Ana is ill.": ana
    }


async def test_a_decision_that_breaks_off_in_the_middle_is_found_out(
    service: MemoryService, caller: Caller, folder: Path, hermes: Hermes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (folder / "MEMORY.md").write_bytes(NOTES)
    staged(hermes, **STAGED["replace"])
    await bound(service, caller, folder)
    before = files_of(folder.parent)
    [one] = await service.review.waiting(caller)

    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("memtui.provider_kit.files.shared.remove_if", full)
        with pytest.raises(Unavailable):
            await service.review.accept(caller, one.pending_id)
    [operation] = (await service.log.page(caller, limit=1)).operations
    assert operation.status is OperationStatus.UNKNOWN
    assert b"release" in (folder / "MEMORY.md").read_bytes()
    [still] = await service.review.waiting(caller)
    assert still.pending_id == one.pending_id
    found = await service.check_outcome(caller, operation.operation_id)
    assert found.happened
    await service.undo(caller, operation.operation_id)
    assert files_of(folder.parent) == before


async def test_no_one_forgets_or_corrects_a_whole_file(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    (folder / "MEMORY.md").write_bytes(NOTES)
    await bound(service, caller, folder)
    handle = RecordHandle(provider_key="hermes", provider_record_id=f"{FILE}MEMORY.md")
    asked: dict[str, Any] = {"binding_key": "hermes", "scope": SCOPE}
    with pytest.raises(NotFound):
        await service.forget(caller, ForgetRequest(handles=(handle,), **asked))
    with pytest.raises(NotFound):
        await service.correct(caller, CorrectRequest(handle=handle, text="x", **asked))
    assert (folder / "MEMORY.md").read_bytes() == NOTES
