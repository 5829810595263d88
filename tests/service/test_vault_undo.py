"""Undo over the real vault leaves every file as it was, to the byte."""

from __future__ import annotations

from pathlib import Path

from memtui.config import Paths, Settings
from memtui.contract import CorrectRequest, ForgetRequest, Scope, SourceRef, WriteMode, WriteRequest
from memtui.service import Caller, open_service


def files_of(paths: Paths) -> dict[Path, bytes]:
    vault = paths.data / "bindings" / "local" / "default" / "vault"
    return {
        path.relative_to(vault): path.read_bytes()
        for path in vault.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


async def test_every_mutation_is_taken_back_to_the_byte(paths: Paths, settings: Settings) -> None:
    caller = Caller(company_id="local", principal="user:ana", door="test")
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="run", company_id="local", run_id="r1")

    def fact(text: str, mode: WriteMode = WriteMode.APPEND) -> WriteRequest:
        return WriteRequest(scope=scope, source=source, content=text, kind="fact", mode=mode)

    service = await open_service(paths, settings)
    try:
        states = [files_of(paths)]
        first = await service.write(caller, fact("deploy_branch: main"))
        states.append(files_of(paths))
        await service.write(caller, fact("Prefers tabs"))
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
        await service.forget(
            caller, ForgetRequest(scope=scope, handles=(first.handles[0], note.handles[0]))
        )
        for state in reversed(states):
            await service.undo(caller)
            assert files_of(paths) == state
    finally:
        await service.close()


async def test_everything_in_the_home_is_private(paths: Paths, settings: Settings) -> None:
    caller = Caller(company_id="local", principal="user:ana", door="test")
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
