"""Undo over the real vault leaves every file as it was, to the byte."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from memtui.backends.vault.files import VaultFolder
from memtui.config import Paths, Settings
from memtui.contract import (
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    OperationStatus,
    RecordHandle,
    Scope,
    SourceRef,
    Unavailable,
    WriteMode,
    WriteRequest,
)
from memtui.service import Caller, open_service


def files_of(paths: Paths) -> dict[Path, bytes]:
    vault = paths.data / "bindings" / "local" / "default" / "vault"
    return {
        path.relative_to(vault): path.read_bytes() if path.is_file() else b"a folder"
        for path in vault.rglob("*")
        if not path.name.startswith(".")
    }


async def test_every_mutation_is_taken_back_to_the_byte(paths: Paths, settings: Settings) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="run", company_id="local", run_id="r1")

    def fact(text: str, mode: WriteMode = WriteMode.APPEND) -> WriteRequest:
        return WriteRequest(scope=scope, source=source, content=text, kind="fact", mode=mode)

    service = await open_service(paths, settings)
    try:
        states = [files_of(paths)]
        first = await service.write(caller, fact("deploy_branch: main"))
        states.append(files_of(paths))
        second = await service.write(caller, fact("Prefers tabs"))
        states.append(files_of(paths))
        await service.write(caller, fact("deploy_branch: release", WriteMode.UPSERT))
        states.append(files_of(paths))
        note = await service.write(
            caller, WriteRequest(scope=scope, source=source, content="A note\nof two lines")
        )
        states.append(files_of(paths))
        await service.correct(
            caller, CorrectRequest(scope=scope, handle=note.handles[0], text="Another", tags=("x",))
        )
        states.append(files_of(paths))
        handles = (*first.handles, *second.handles, *note.handles)
        await service.forget(caller, ForgetRequest(scope=scope, handles=handles))
        gone = files_of(paths)
        undone = await service.undo(caller)
        await service.undo(caller, undone.operation_id)
        assert files_of(paths) == gone
        for state in reversed(states):
            await service.undo(caller)
            assert files_of(paths) == state
    finally:
        await service.close()


@pytest.mark.parametrize("kind", ["note", "fact"])
async def test_a_folder_goes_with_the_write_that_made_it_and_no_other(
    paths: Paths, settings: Settings, kind: str
) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    source = SourceRef(kind="run", company_id="local", run_id="r1")

    def request(project: str) -> WriteRequest:
        scope = Scope(company_id="local", project_id=project)
        return WriteRequest(scope=scope, source=source, content="Prefers tabs", kind=kind)

    projects = paths.data / "bindings" / "local" / "default" / "vault" / "projects"
    service = await open_service(paths, settings)
    try:
        (projects / "by-hand" / "memory").mkdir(parents=True)
        before = files_of(paths)
        await service.write(caller, request("by-hand"))
        await service.undo(caller)
        assert files_of(paths) == before

        await service.write(caller, request("new"))
        written = files_of(paths)
        undone = await service.undo(caller)
        assert files_of(paths) == before
        redone = await service.undo(caller, undone.operation_id)
        assert files_of(paths) == written
        await service.undo(caller, redone.operation_id)
        assert files_of(paths) == before

        written_again = await service.write(caller, request("new"))
        (projects / "new" / "picture.png").write_bytes(b"a person's own")
        await service.undo(caller, written_again.operation_id)
        assert set(files_of(paths)) - set(before) == {
            Path("projects/new"), Path("projects/new/picture.png")
        }  # fmt: skip
    finally:
        await service.close()


async def test_a_timeline_has_what_was_edited_outside(paths: Paths, settings: Settings) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="manual_note", company_id="local")
    service = await open_service(paths, settings)

    def edit(old: str, new: str) -> None:
        file = paths.data / "bindings/local/default/vault" / note.provider_record_id
        file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")

    try:
        written = await service.write(
            caller, WriteRequest(scope=scope, source=source, content="One.")
        )
        [note] = written.handles
        edit("One.", "One, edited outside.")
        await service.correct(caller, CorrectRequest(scope=scope, handle=note, text="Two."))
        edit("Two.", "Two, edited outside.")
        found = await service.past.timeline(caller, note, scope)
    finally:
        await service.close()
    assert [(one.text, one.made_by is not None) for one in found.timeline] == [
        ("Two, edited outside.", False),
        ("Two.", True),
        ("One, edited outside.", False),
        ("One.", True),
    ]
    newest, *older = found.timeline
    assert newest.valid_to is None
    assert all(one.valid_to is not None for one in older)
    assert newest.valid_from == found.edited_at == older[0].valid_to


async def test_everything_in_the_home_is_private(paths: Paths, settings: Settings) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", subject_id="ana")
    source = SourceRef(kind="manual_note", company_id="local")
    service = await open_service(paths, settings)
    for kind in ("note", "fact"):
        await service.write(
            caller, WriteRequest(scope=scope, source=source, content="Prefers tabs", kind=kind)
        )
    everything = [paths.data, *paths.data.rglob("*")]
    open_to_others = [path for path in everything if path.stat().st_mode & 0o077]
    await service.close()
    assert open_to_others == []


@pytest.mark.usefixtures("held_by_rights")
async def test_a_bulk_forget_goes_on_behind_a_folder_that_may_not_be_written(
    paths: Paths, settings: Settings
) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    company = Scope(company_id="local")
    source = SourceRef(kind="manual_note", company_id="local")
    service = await open_service(paths, settings)
    try:
        ids: list[RecordHandle] = []
        for kind in ("note", "fact"):
            for project in ("a", "shut", "z"):
                scope = Scope(company_id="local", project_id=project)
                request = WriteRequest(scope=scope, source=source, content="Old", kind=kind)
                ids += (await service.write(caller, request)).handles
        before = files_of(paths)
        shut = paths.data / "bindings" / "local" / "default" / "vault" / "projects" / "shut"
        folders = [one for one in (shut, *shut.rglob("*")) if one.is_dir()]
        for folder in folders:
            folder.chmod(0o500)
        answer = await service.forget(caller, ForgetRequest(scope=company, handles=tuple(ids)))
        stay = {one.provider_record_id for one in (ids[1], ids[4])}
        assert set(answer.refused) == stay
        assert all("(Permission denied)" in why for why in answer.refused.values())
        assert {one.provider_record_id for one in answer.handles}.isdisjoint(stay)
        assert len(answer.handles) == 4
        logged = await service.log.get(caller, answer.operation_id)
        assert (logged.status, logged.request["refused"]) == (OperationStatus.OK, 2)
        with pytest.raises(Denied, match="Permission denied"):
            await service.forget(caller, ForgetRequest(scope=company, handles=(ids[1],)))
        await service.undo(caller)
        for folder in folders:
            folder.chmod(0o700)
        assert files_of(paths) == before
    finally:
        await service.close()


@pytest.mark.parametrize("then", ["undo", "undo the undo", "redo", "check first"])
async def test_a_bulk_undo_on_a_full_disk_leaves_the_rest_undoable(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="run", company_id="local", run_id="r1")
    notes = [
        WriteRequest(scope=scope, source=source, content=f"Note {number}", title=f"N{number}")
        for number in range(6)
    ]
    service = await open_service(paths, settings)
    try:
        handles = [(await service.write(caller, note)).handles[0] for note in notes]
        whole = files_of(paths)
        forgotten = await service.forget(caller, ForgetRequest(scope=scope, handles=handles))
        gone = files_of(paths)
        left = iter(range(2))
        replace = VaultFolder.replace

        def full(folder: VaultFolder, *arguments: Any) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(folder, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(VaultFolder, "replace", full)
            with pytest.raises(Unavailable, match="Outcome unknown") as failed:
                await service.undo(caller, forgotten.operation_id)
        undo_id = failed.value.operation_id
        assert undo_id is not None
        assert whole.keys() > files_of(paths).keys() > gone.keys()
        if then != "undo":
            found = await service.check_outcome(caller, undo_id)
            assert (found.happened, found.sentence[:33]) == (
                True,
                "It happened in part: 2 of 6 recor",
            )
            [candidate, *_] = await service.undoable(caller)
            assert (candidate.operation.operation_id, candidate.records) == (
                forgotten.operation_id, 4,
            )  # fmt: skip
        if then in {"undo the undo", "redo"}:
            redone = await service.undo(caller, undo_id)
            assert files_of(paths) == gone
            if then == "redo":
                await service.undo(caller, redone.operation_id)
                assert whole.keys() > files_of(paths).keys() > gone.keys()
        done = await service.undo(caller, forgotten.operation_id)
        assert len(done.handles) == (6 if then == "undo the undo" else 4)
        assert files_of(paths) == whole
        with pytest.raises(Conflict, match="already undone"):
            await service.undo(caller, forgotten.operation_id)
        await service.undo(caller, done.operation_id)
        assert (files_of(paths) == gone) is (then == "undo the undo")
        undone = await service.log.undone(caller, [forgotten.operation_id])
        backs = [(len(one.record_ids), one.whole) for one in undone.values()]
        assert backs == ([] if then == "undo the undo" else [(2, False)])
    finally:
        await service.close()


async def test_a_facts_file_that_forgetting_emptied_stays_when_that_is_done_again(
    paths: Paths, settings: Settings
) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="run", company_id="local", run_id="r1")
    service = await open_service(paths, settings)
    try:
        request = WriteRequest(scope=scope, source=source, content="branch: main", kind="fact")
        written = await service.write(caller, request)
        await service.forget(caller, ForgetRequest(scope=scope, handles=written.handles))
        gone = files_of(paths)
        undone = await service.undo(caller)
        await service.undo(caller, undone.operation_id)
        assert files_of(paths) == gone
    finally:
        await service.close()
