"""What a project's own files are not: memories that a purge has to forget."""

from __future__ import annotations

from pathlib import Path

from memtui.contract import BrowseRequest, Scope, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService
from memtui.service.home.survey import PurgeRequest

WEB = Scope(company_id="acme", project_id="web")


async def test_a_purge_of_a_project_leaves_its_own_files(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    readme = tmp_path / "web" / "README.md"
    readme.parent.mkdir()
    readme.write_text("How the web is built.")
    config = {"path": str(tmp_path / "vault"), "workspaces": {"web": str(readme.parent)}}
    await service.bindings.add(caller, "notes", "vault", config)
    source = SourceRef(kind="manual_note", company_id="acme")
    request = WriteRequest(scope=WEB, source=source, content="Ours alone.", binding_key="notes")
    [written] = (await service.write(caller, request)).handles

    asked = PurgeRequest(project_id="web")
    plan = await service.purging.plan(caller, asked)
    assert [one.record_id for one in plan.living] == [written.provider_record_id]
    done = await service.purging.apply(caller, asked.model_copy(update={"forget": True}))
    assert (done.forgotten, done.left) == (1, ())
    page = await service.browse(caller, BrowseRequest(scope=WEB, binding_key="notes"))
    assert [one.text for one in page.records] == ["How the web is built."]
    assert readme.read_text() == "How the web is built."
