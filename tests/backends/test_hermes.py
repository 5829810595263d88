"""Hermes's memories, beside Hermes's own memory module of the registry's package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import assume, given
from hypothesis import strategies as st

from memtui.backends.hermes import HermesAdapter
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.provider_kit.files.entries import _Content
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends.hermes import run_hermes

SCOPE = Scope(company_id="local")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")

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


async def listed(service: MemoryService, caller: Caller) -> dict[str, Record]:
    request = BrowseRequest(binding_key="hermes", scope=SCOPE, limit=1000)
    found = await service.browse(caller, request)
    return {one.text: one for one in found.records}


def note(text: str, **fields: Any) -> WriteRequest:
    asked = {"binding_key": "hermes", "scope": SCOPE, "source": SOURCE, "content": text}
    return WriteRequest.model_validate({**asked, **fields})


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
    monkeypatch.setattr("memtui.provider_kit.files.entries._LOCK_SECONDS", 0.1)
    adapter = await HermesAdapter.open(BindingContext(
        company_id="local", binding_key="hermes", config={"path": str(folder)},
        data_dir=tmp_path / "data",
    ))  # fmt: skip
    with FileLock(folder / "MEMORY.md.lock"), pytest.raises(Unavailable, match="Another program"):
        await adapter.write(note("Now."))
    assert (await adapter.browse(BrowseRequest(scope=SCOPE))).total == 0
    await adapter.write(note("Now."))
    await adapter.close()


_TEXTS = st.lists(st.text("ab §\r\n\ufeff", max_size=6), max_size=6)


def apart(content: str) -> _Content:
    adapter: HermesAdapter = object.__new__(HermesAdapter)
    return _Content(content, [*adapter.entries(content)], "MEMORY.md")


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
