"""`doctor --repair`: what the archive and the vaults hold comes back, the rest is named."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.analytics.layout import ArchiveFolder, Manifest
from memtui.contract import (
    Denied,
    Filter,
    Invalid,
    OperationType,
    QueryRequest,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.service import (
    Caller,
    Capture,
    Membership,
    MemoryService,
    ReviewRule,
    Role,
    TargetView,
    open_service,
)
from memtui.service.home.repair import Repair, plan, repair
from memtui.store import appending, bindings
from memtui.store.database import Database
from memtui.store.erasing import erase_fields, purge_request
from memtui.store.limits import Spent, spent
from memtui.store.log import OperationStore
from memtui.store.rows import CompanyRow, MemberRow
from tests.analytics.logs import draft
from tests.service.conftest import Lived
from tests.service.test_limits import spend, used

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANA = Caller(company_id="local", principal="user:ana", channel="test")
SCOPE = Scope(company_id="local")
NOTE = WriteRequest(
    scope=SCOPE,
    source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local"),
    content="After the repair",
)


def mend(lived: Lived) -> Repair:
    wanted = plan(lived.paths, lived.settings, NOW)
    repair(lived.paths, lived.settings, wanted, principal="user:ana", now=NOW)
    return wanted


async def opened(lived: Lived) -> MemoryService:
    return await open_service(lived.paths, lived.settings)


def cut(path: Path, size: int) -> bytes:
    content = path.read_bytes()[:size]
    path.write_bytes(content)
    return content


async def test_what_is_sealed_and_the_vault_come_back(lived: Lived) -> None:
    sealed = ArchiveFolder(lived.paths.archive, "local").read()
    damaged = cut(lived.paths.database, 30_000)
    wanted = mend(lived)
    assert "is damaged" in wanted.fault
    assert wanted.aside is not None
    assert Path(wanted.aside).read_bytes() == damaged
    service = await opened(lived)
    try:
        found = await service.query(ANA, QueryRequest(scope=SCOPE, query="deploy"))
        assert [one.text for one in found.snippets] == ["We deploy"]
        [binding] = await service.bindings.all(ANA)
        assert (binding.key, binding.provider_key, binding.enabled) == ("default", "vault", True)
        assert [(one.target_type, one.target_id) for one in binding.targets] == [
            ("company", "local")
        ]
        checked = await service.analysis.verify_chain(ANA)
        assert checked.problem is None
        [gap] = checked.gaps
        assert (gap.seq, gap.lost_from) == (sealed.sealed_through + 1, sealed.sealed_through + 1)
        assert not (await service.analysis.verify_archive(ANA)).problems
        first = await service.log.page(ANA, Filter(operation_type=OperationType.REPAIR), limit=9)
        assert [one.seq for one in first.operations] == [sealed.sealed_through + 1]
        assert first.operations[0].principal == "user:ana"
    finally:
        await service.close()


def test_the_name_of_the_new_database_is_durable(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, synced = lived.paths.database, []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode) and found.st_ino == database.parent.stat().st_ino:
            synced.append(database.stat().st_ino if database.exists() else None)

    cut(database, 30_000)
    monkeypatch.setattr(os, "fsync", fsync)
    mend(lived)
    assert database.stat().st_ino in synced


async def test_it_is_read_only_until_it_has_an_owner(lived: Lived) -> None:
    lived.paths.database.unlink()
    mend(lived)
    service = await opened(lived)
    try:
        with pytest.raises(Denied, match="is read-only"):
            await service.write(ANA, NOTE)
        member = Membership(principal="user:bob", role=Role.MEMBER)
        with pytest.raises(Invalid, match="must be an owner"):
            await service.members.set(ANA, member)
        await service.members.set(ANA, member.model_copy(update={"role": Role.OWNER}))
        with pytest.raises(Denied):
            await service.write(ANA, NOTE)
        bob = ANA.model_copy(update={"principal": "user:bob"})
        assert (await service.write(bob, NOTE)).handles
        assert (await service.analysis.verify_chain(bob)).problem is None
    finally:
        await service.close()


async def test_a_company_that_is_read_only_otherwise_stays_so(lived: Lived) -> None:
    other = ANA.model_copy(update={"company_id": "past"})
    service = await opened(lived)
    try:
        await service.companies.add(other, "Past", read_only=True)
        with pytest.raises(Denied, match="read-only"):
            await service.members.set(other, Membership(principal="user:ana", role=Role.OWNER))
        assert (await service.companies.get(other)).read_only
    finally:
        await service.close()


async def test_bindings_and_targets_are_as_the_sealed_log_tells(lived: Lived) -> None:
    service = await opened(lived)
    for key in ("web", "gone", "far"):
        config = {"path": str(lived.paths.data.parent / "far")} if key == "far" else {}
        await service.bindings.add(ANA, key, "vault", config, read_only=key == "web")
    for key in ("lines", "far-lines"):
        await service.bindings.add(ANA, key, "facts", {}, serves=("agent", key))
    await service.write(ANA, NOTE.model_copy(update={"binding_key": "gone"}))
    await service.bindings.update(ANA, "web", capture={Capture.COMMENTS: True})
    rules = [ReviewRule(action="hold", test=one) for one in ("all", "instruction")]
    for rule in rules:
        await service.review.add_rule(ANA, "web", rule)
    await service.review.remove_rule(ANA, "web", rules[1])
    await service.bindings.set_target(ANA, "project", "site", "web")
    await service.bindings.set_target(ANA, "agent", "coding", "web")
    await service.bindings.clear_target(ANA, "agent", "coding")
    moved = [TargetView(target_type="project", target_id="docs")]
    await service.bindings.cut_over(ANA, "lines", moved, "web", read_only=True)
    await service.bindings.remove(ANA, "gone")
    await service.analysis.seal(ANA, everything=True)
    await service.close()
    (lived.paths.binding_dir("local/web") / "vault").mkdir()
    shutil.rmtree(lived.paths.binding_dir("local/gone"))
    shutil.rmtree(lived.paths.binding_dir("local/far-lines"))
    (lived.paths.binding_dir("local/strange")).mkdir()
    lived.paths.database.unlink()
    [company] = mend(lived).companies
    assert [(one.key, one.enabled, one.read_only) for one in company.bindings] == [
        ("default", True, False),
        ("web", True, True),
        ("far", False, False),
        ("lines", True, True),
        ("far-lines", False, False),
    ]
    assert set(company.targets) == {
        ("company", "local", "default"),
        ("project", "site", "web"),
        ("project", "docs", "web"),
        ("agent", "lines", "lines"),
        ("agent", "far-lines", "far-lines"),
    }
    assert "Nothing says which provider the binding strange had" in company.problems[0]
    service = await opened(lived)
    asked = Scope(company_id="local", project_id="site")
    found = await service.resolve(ANA, asked)
    assert (found.binding_key, found.captures) == ("web", (Capture.COMMENTS,))
    assert await service.review.rules(ANA, "web") == (rules[0],)
    await service.close()


async def test_what_was_undone_is_undone_and_what_was_redone_is_there(lived: Lived) -> None:
    service = await opened(lived)
    rule = ReviewRule(action="hold", test="all")
    await service.review.add_rule(ANA, "default", rule)
    await service.review.remove_rule(ANA, "default", rule)
    await service.undo(ANA)
    for key in ("back", "again", "undone"):
        await service.bindings.add(ANA, key, "facts", {})
    await service.undo(ANA)
    await service.bindings.set_target(ANA, "project", "site", "back")
    await service.bindings.remove(ANA, "back")
    await service.undo(ANA)
    await service.bindings.remove(ANA, "again")
    undone = await service.undo(ANA)
    await service.undo(ANA, undone.operation_id)
    await service.analysis.seal(ANA, everything=True)
    known = {one.key for one in await service.bindings.all(ANA)}
    assert known == {"default", "back"}
    await service.close()
    for key in ("again", "undone"):
        shutil.rmtree(lived.paths.binding_dir(f"local/{key}"), ignore_errors=True)
    lived.paths.database.unlink()
    [company] = mend(lived).companies
    assert {one.key: one.review for one in company.bindings} == {"default": (rule,), "back": ()}
    assert set(company.targets) == {("company", "local", "default"), ("project", "site", "back")}


async def test_a_binding_that_was_added_switched_off_stays_off(lived: Lived) -> None:
    service = await opened(lived)
    added = draft(1, company="local", operation_type="configure", status="ok", undoes=None)
    asked = {"add_binding": "off", "provider": "facts", "read_only": False, "enabled": False}
    with service.analysis.database.write() as connection:
        appending.append(connection, added.model_copy(update={"request": asked}))
    await service.analysis.seal(ANA, everything=True)
    await service.close()
    lived.paths.database.unlink()
    [company] = mend(lived).companies
    assert [(one.key, one.enabled) for one in company.bindings] == [
        ("default", True),
        ("off", False),
    ]


async def test_a_binding_that_is_added_again_serves_nothing_of_before(lived: Lived) -> None:
    service = await opened(lived)
    await service.bindings.add(ANA, "web", "facts", {})
    await service.bindings.set_target(ANA, "project", "site", "web")
    await service.bindings.remove(ANA, "web")
    await service.bindings.add(ANA, "web", "facts", {})
    await service.analysis.seal(ANA, everything=True)
    await service.close()
    lived.paths.database.unlink()
    [company] = mend(lived).companies
    assert set(company.targets) == {("company", "local", "default")}


async def test_what_was_spent_is_added_up_again(lived: Lived) -> None:
    service = await opened(lived)
    spend(service, used("1.5", tokens=7), used(None, tokens=2**62), agent=None, at=NOW)
    spend(service, used("2.25", tokens=2**62), at=NOW)
    await service.analysis.seal(ANA, everything=True)
    within = "local", NOW - timedelta(hours=1), NOW + timedelta(hours=1)

    def found(service: MemoryService) -> list[Spent]:
        with service._runtime.database.read() as database:
            return sorted(spent(database, *within), key=lambda one: one.agent_id)

    before = found(service)
    await service.close()
    cut(lived.paths.database, 30_000)
    mend(lived)
    service = await opened(lived)
    assert [one.tokens for one in before] == [2**62 + 7, 2**62]
    assert found(service) == before
    await service.close()


async def test_spending_that_cannot_be_added_up_is_named(lived: Lived) -> None:
    service = await opened(lived)
    spend(service, used("1.5"), at=NOW)
    await service.analysis.seal(ANA, everything=True)
    await service.close()
    for file in lived.paths.archive.rglob("*usage*.parquet"):
        cut(file, 100)
    cut(lived.paths.database, 30_000)
    wanted = plan(lived.paths, lived.settings, NOW)
    done = repair(lived.paths, lived.settings, wanted, principal="user:ana", now=NOW)
    [[*known, problem]] = [one.problems for one in done.companies]
    assert known == list(wanted.companies[0].problems)
    assert problem.startswith("The spending limits of local begin again at 0: ")


async def test_without_an_archive_the_log_begins_with_the_gap(lived: Lived) -> None:
    shutil.rmtree(lived.paths.archive)
    lived.paths.database.unlink()
    [company] = mend(lived).companies
    assert (company.sealed_through, [one.key for one in company.bindings]) == (0, ["default"])
    service = await opened(lived)
    checked = await service.analysis.verify_chain(ANA)
    assert (checked.problem, checked.gaps[0].lost_from) == (None, 1)
    await service.close()


async def test_a_database_that_is_older_than_its_archive_is_moved_aside(lived: Lived) -> None:
    older = lived.paths.data.with_name("older.db")
    database = Database.open(older)
    with database.write() as connection:
        row = CompanyRow(company_id="local", name="Local", link_templates={}, created_at=NOW)
        bindings.add_company(connection, row)
        appending.append(connection, draft(1, company="local"))
        owner = MemberRow(company_id="local", principal="user:ana", project_id="", role="owner")
        bindings.set_member(connection, owner)
    database.close()
    shutil.copy(older, lived.paths.database)
    with pytest.raises(Unavailable, match="its database at 1"):
        await opened(lived)
    with pytest.raises(Denied, match="owner or admin of each"):
        plan(lived.paths, lived.settings.model_copy(update={"principal": "user:eve"}), NOW)
    assert "ends at operation 1, and its archive at 5" in mend(lived).fault
    service = await opened(lived)
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()


async def test_what_is_in_order_is_not_repaired(lived: Lived, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="nothing to repair"):
        plan(lived.paths, lived.settings, NOW)
    before = lived.paths.database.read_bytes()
    with pytest.raises(Unavailable, match="failed"):
        plan(
            lived.paths,
            lived.settings.model_copy(
                update={"database_url": "postgresql://nobody@127.0.0.1:1/x?connect_timeout=1"}
            ),
            NOW,
        )
    assert lived.paths.database.read_bytes() == before
    for folder in ("archive", "bindings"):
        shutil.rmtree(lived.paths.data / folder)
    lived.paths.database.write_bytes(b"x" * 5000)
    with pytest.raises(Invalid, match="Nothing is left"):
        plan(lived.paths, lived.settings, NOW)


async def test_an_empty_postgres_is_filled_in(lived: Lived, control_plane_url: str) -> None:
    lived.paths.database.unlink()
    shared = Lived(
        lived.paths, lived.settings.model_copy(update={"database_url": control_plane_url})
    )
    wanted = mend(shared)
    assert (wanted.aside, wanted.fault) == (
        None,
        "The control plane's database at database_url is gone or empty.",
    )
    service = await opened(shared)
    assert (await service.analysis.verify_chain(ANA)).gaps[0].lost_from == 6
    await service.close()
    with pytest.raises(Invalid, match="nothing to repair"):
        plan(shared.paths, shared.settings, NOW)


@pytest.mark.parametrize("step", range(4))
async def test_a_repair_that_is_killed_is_done_again(
    lived: Lived, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    damaged = cut(lived.paths.database, 30_000)
    lived.paths.database.with_name("memtui.db-wal").write_bytes(b"left")
    rename = Path.rename
    done: list[Path] = []

    def killed(path: Path, target: Path) -> Path:
        if len(done) == step:
            raise KeyboardInterrupt
        done.append(path)
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with suppress(KeyboardInterrupt):
            mend(lived)
    if len(done) == step:
        with pytest.raises(Unavailable):
            await opened(lived)
        mend(lived)
    [aside] = [
        path
        for path in lived.paths.data.glob("memtui.db.damaged-*")
        if path.read_bytes() == damaged
    ]
    service = await opened(lived)
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()
    assert aside.exists()


async def test_values_whose_purge_is_lost_are_told_of(lived: Lived) -> None:
    service = await opened(lived)
    note = await service.write(ANA, NOTE)
    database = service.analysis.database
    with database.write() as connection:
        [one] = OperationStore(connection, "local").by_ids([note.operation_id])
        gone = erase_fields(connection, "local", {one.seq: {"request.content"}})
    await service.analysis.seal(ANA, everything=True)
    with database.write() as connection:
        purge = draft(1, company="local", operation_type="purge", status="ok")
        appending.append(connection, purge.model_copy(update={"request": purge_request(gone)}))
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()
    lived.paths.database.unlink()
    [company] = mend(lived).companies
    assert company.erased == ({"fields": ["request.content"], "seqs": [[one.seq, one.seq]]},)
    service = await opened(lived)
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()


async def test_segments_that_no_manifest_names_are_not_lost(lived: Lived) -> None:
    folder = ArchiveFolder(lived.paths.archive, "local")
    manifest = folder.manifest_file.read_text()
    [segment] = folder.read().segments
    sealed = {path.name: path.read_bytes() for path in folder.segment(segment).iterdir()}
    lived.paths.database.unlink()
    folder.manifest_file.unlink()
    with pytest.raises(Unavailable, match="no manifest that fits it"):
        plan(lived.paths, lived.settings, NOW)
    folder.manifest_file.write_text(json.dumps(json.loads(manifest) | {"segments": []}))
    [company] = mend(lived).companies
    assert f"kept as kept-{segment.name}" in company.problems[0]
    service = await opened(lived)
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()
    kept = folder.path / f"kept-{segment.name}"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == sealed


async def test_a_manifest_that_is_gone_is_made_of_its_segments(lived: Lived) -> None:
    folder = ArchiveFolder(lived.paths.archive, "local")
    manifest = folder.manifest_file.read_text()
    folder.manifest_file.unlink()
    with pytest.raises(Unavailable, match="does not name"):
        await opened(lived)
    [segment] = Manifest.model_validate_json(manifest).segments
    file = folder.file(segment, "handles")
    whole, other = file.read_bytes(), folder.file(segment, "usage").read_bytes()
    file.write_bytes(other)
    with pytest.raises(Unavailable, match="does not match the log"):
        mend(lived)
    assert not folder.manifest_file.exists()
    file.write_bytes(whole)
    assert mend(lived).manifests == ("local",)
    assert folder.manifest_file.read_text() == manifest
    service = await opened(lived)
    assert (await service.analysis.verify_chain(ANA)).problem is None
    await service.close()
