"""Part of an operation is undone: some of its records, and the rest later."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    ForgetRequest,
    Invalid,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService
from memtui.service.home.survey import PurgeRequest
from memtui.service.usecases.undoing import undo
from tests.service.conftest import start
from tests.service.fake import FakeAdapter
from tests.service.usecases.ways import ANA, PERSON, Command, last, remember

_TEXTS = ("Likes tea", "Writes Lua", "Runs Arch", "Uses vim")


async def texts(service: MemoryService, caller: Caller = PERSON, scope: Scope = ANA) -> list[str]:
    page = await service.browse(caller, BrowseRequest(scope=scope))
    return sorted(one.text for one in page.records)


def contents(paths: Paths) -> dict[Path, bytes]:
    files = (one for one in paths.data.rglob("*.md") if one.is_file())
    return {one: one.read_bytes() for one in files}


async def test_records_of_a_forget_come_back_one_by_one(
    service: MemoryService, paths: Paths
) -> None:
    records = await remember(service, *_TEXTS)
    ids = [one.handle.provider_record_id for one in records]
    whole = contents(paths)
    request = ForgetRequest(scope=ANA, handles=[one.handle for one in records])
    forgot = (await service.forget(PERSON, request)).operation_id

    for named, error in ((["nothing"], Invalid), ([ids[1], "nothing"], Invalid)):
        with pytest.raises(error, match="nothing is not among the records"):
            await service.undo(PERSON, forgot, records=named)
    assert await texts(service) == []
    part = await service.undo(PERSON, forgot, records=[ids[2], ids[0]])
    assert await texts(service) == ["Likes tea", "Runs Arch"]
    with pytest.raises(Invalid, match="is not among the records"):
        await service.undo(PERSON, forgot, records=[ids[0], ids[1]])
    [candidate, *_] = await service.undoable(PERSON)
    assert (candidate.operation.operation_id, candidate.records) == (forgot, 2)

    again = await service.undo(PERSON, part.operation_id, records=[ids[0]])
    assert await texts(service) == ["Runs Arch"]
    await service.undo(PERSON, again.operation_id)
    rest = await service.undo(PERSON, forgot)
    assert (len(rest.handles), contents(paths)) == (2, whole)
    with pytest.raises(Conflict, match="already undone"):
        await service.undo(PERSON, forgot, records=[ids[0]])
    await service.undo(PERSON, rest.operation_id)
    assert await texts(service) == ["Likes tea", "Runs Arch"]


@pytest.mark.parametrize("keeps_ids", [True, False])
async def test_records_that_come_back_by_single_writes_are_named_by_any_of_their_ids(
    paths: Paths, settings: Settings, *, keeps_ids: bool
) -> None:
    caller = Caller(company_id="acme", principal="user:ana", channel="test")
    scope = Scope(company_id="acme", subject_id="ana")
    FakeAdapter.reset()
    service = await start(paths, settings, caller, restore=False, keeps_ids=keeps_ids)
    try:
        source = SourceRef(kind="manual_note", company_id="acme")
        writes = [WriteRequest(scope=scope, source=source, content=one) for one in _TEXTS]
        handles = [(await service.write(caller, one)).handles[0] for one in writes]
        ids = [one.provider_record_id for one in handles]
        request = ForgetRequest(scope=scope, handles=handles)
        forgot = (await service.forget(caller, request)).operation_id
        part = await service.undo(caller, forgot, records=ids[:2])
        assert await texts(service, caller, scope) == ["Likes tea", "Writes Lua"]
        await service.undo(caller, part.operation_id, records=[ids[0]])
        assert await texts(service, caller, scope) == ["Writes Lua"]
        now = part.handles[1].provider_record_id
        assert (now == ids[1]) is keeps_ids
        await service.undo(caller, part.operation_id, records=[now])
        await service.undo(caller, forgot, records=[ids[1]])
        assert await texts(service, caller, scope) == ["Writes Lua"]
        await service.undo(caller, forgot)
        assert await texts(service, caller, scope) == sorted(_TEXTS)
    finally:
        await service.close()


async def test_an_id_that_ends_like_a_number_of_another_is_a_record_of_its_own(
    paths: Paths, settings: Settings
) -> None:
    caller = Caller(company_id="acme", principal="user:ana", channel="test")
    scope = Scope(company_id="acme", subject_id="ana")
    FakeAdapter.reset()
    service = await start(paths, settings, caller)
    source = SourceRef(kind="manual_note", company_id="acme")
    ids = ("note", "note~2")
    for one in ids:
        asked = WriteRequest(scope=scope, source=source, content=f"Is {one}", record_id=one)
        await service.write(caller, asked)
    handles = [RecordHandle(provider_key="fake", provider_record_id=one) for one in ids]
    request = ForgetRequest(scope=scope, handles=handles)
    forgot = (await service.forget(caller, request)).operation_id
    await service.undo(caller, forgot, records=["note"])
    assert await texts(service, caller, scope) == ["Is note"]
    await service.undo(caller, forgot, records=["note~2"])
    assert await texts(service, caller, scope) == ["Is note", "Is note~2"]
    await service.close()


async def test_the_command_names_only_the_records_that_came_back(
    service: MemoryService, command: Command
) -> None:
    records = await remember(service, *_TEXTS)
    request = ForgetRequest(scope=ANA, handles=[one.handle for one in records])
    forgot = (await service.forget(PERSON, request)).operation_id
    named = [part for one in records[:2] for part in ("--record", one.handle.provider_record_id)]
    typed = await command("undo", forgot, *named)
    assert typed.code == 0, typed.err
    assert " and 1 more; memtui undo" in typed.err


async def test_an_erased_part_is_not_counted_among_what_was_undone(service: MemoryService) -> None:
    records = await remember(service, *_TEXTS)
    ids = [one.handle.provider_record_id for one in records]
    request = ForgetRequest(scope=ANA, handles=[one.handle for one in records])
    forgot = (await service.forget(PERSON, request)).operation_id
    await service.undo(PERSON, forgot, records=ids[:1])
    assert (await service.log.undone(PERSON, [forgot]))[forgot].record_ids == {ids[0]}
    erased = PurgeRequest(record_id=ids[0], binding_key="default")
    await service.purging.apply(PERSON, erased)
    assert await service.log.undone(PERSON, [forgot]) == {}
    await service.undo(PERSON, forgot)
    assert (await service.log.undone(PERSON, [forgot]))[forgot].whole


async def test_a_line_of_an_imported_file_is_undone_alone(
    service: MemoryService, command: Command, tmp_path: Path
) -> None:
    lines = tmp_path / "facts.jsonl"
    await remember(service, *_TEXTS[:1])
    lines.write_text("".join(f'{{"text": "{one}", "kind": "fact"}}\n' for one in _TEXTS[1:]))
    typed = await command("facts", "import", str(lines), "--subject", "ana")
    assert typed.code == 0, typed.err
    imported = await last(service)
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    ids = {one.text: one.handle.provider_record_id for one in page.records}
    other = ids["Likes tea"]
    typed = await command("undo", imported, "--record", ids["Writes Lua"], "--record", other)
    assert (typed.code, f"{other} is not among" in typed.err) == (2, True)
    typed = await command("undo", imported, "--record", ids["Writes Lua"])
    assert typed.code == 0, typed.err
    assert await texts(service) == ["Likes tea", "Runs Arch", "Uses vim"]
    undone = await undo(service, PERSON, [imported])
    assert (len(undone.answers), undone.failed) == (2, None)
    assert await texts(service) == ["Likes tea"]
