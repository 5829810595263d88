"""Records move whole, once, and back again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    Capabilities,
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    NotFound,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.migration import endpoints as migration_ends
from memtui.migration.endpoints import ProgressFile, open_endpoints
from memtui.migration.moving import MigrationProgress, apply
from memtui.migration.planning import plan
from memtui.migration.verifying import verify
from memtui.service import Caller, MemoryService
from memtui.service.context.pruning import PruneRequest
from memtui.store.tables import MIGRATED_FROM
from memtui.testing import InMemoryAdapter
from tests.migration.conftest import COMPANY, ends_of, fill, held, mutations, states

SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


async def move(
    service: MemoryService, caller: Caller, paths: Paths, source: str, destination: str
) -> tuple[int, int, int, int]:
    """Migrate and return written, replaced, unchanged, failed."""
    ends = await ends_of(service, caller, source, destination)
    done = await apply(ends, paths.data)
    assert done.failed == len(done.failures)
    return done.written, done.replaced, done.unchanged, done.failed


async def test_what_a_vault_reads_where_it_lies_is_not_moved(
    service: MemoryService, caller: Caller, paths: Paths, tmp_path: Path
) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web/README.md").write_text("How the web is built.")
    for key in ("default", "second"):
        config = {"workspaces": {"web": str(tmp_path / "web")}}
        await service.bindings.update(caller, key, config=config)
    await fill(service, caller, "default", 5)
    ends = await ends_of(service, caller, "default", "second")
    found = await plan(ends, Settings())
    assert (found.records, found.staying) == (5, 1)
    assert await move(service, caller, paths, "default", "second") == (5, 0, 0, 0)
    verified = await verify(ends, paths.data)
    assert (verified.passed, verified.checked, verified.others) == (True, 5, 0)
    pruned = await service.pruning.plan(caller, PruneRequest(scope=ends.scope, kind=None))
    assert "How the web" not in pruned.model_dump_json()


@pytest.mark.parametrize("middle", ["memory", "lossy", "second"])
async def test_there_and_back_is_the_same(
    service: MemoryService,
    caller: Caller,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    middle: str,
) -> None:
    monkeypatch.setattr(migration_ends, "_PAGE", 7)
    await fill(service, caller, "default", 28)
    await service.bindings.add(caller, "third", "vault", {})
    before = await states(service, caller, "default")
    runs = (await service.runs.page(caller)).runs
    assert [one.run_id for one in runs] == ["r-1"]
    files = _files(paths, "default")
    assert await move(service, caller, paths, "default", middle) == (28, 0, 0, 0)
    assert await states(service, caller, middle) == before
    assert await move(service, caller, paths, middle, "third") == (28, 0, 0, 0)
    assert await states(service, caller, "third") == before
    assert (await service.runs.page(caller)).runs == runs
    assert await move(service, caller, paths, middle, "default") == (0, 0, 28, 0)
    assert _files(paths, "default") == files
    for source, destination in (("default", middle), (middle, "third"), ("default", "third")):
        ends = await ends_of(service, caller, source, destination)
        found = await verify(ends, paths.data)
        assert found.passed
        assert (found.checked, found.matched, found.others) == (28, 28, 0)


async def test_a_vault_keeps_its_file_names_on_the_way_to_another(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 15)
    await move(service, caller, paths, "default", "memory")
    await move(service, caller, paths, "memory", "second")
    assert _files(paths, "default").keys() == _files(paths, "second").keys()


def _files(paths: Paths, key: str) -> dict[str, bytes]:
    root = paths.binding_dir(f"local/{key}") / "vault"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.md")
        if path.is_file()
    }


@pytest.mark.parametrize("destination", ["memory", "second", "lossy", "bare"])
async def test_a_second_run_changes_nothing(
    service: MemoryService, caller: Caller, paths: Paths, destination: str
) -> None:
    await fill(service, caller, "default", 12)
    await move(service, caller, paths, "default", destination)
    count, first = await mutations(service, caller), await held(service, caller, destination)
    assert await move(service, caller, paths, "default", destination) == (0, 0, 12, 0)
    assert await held(service, caller, destination) == first
    assert await mutations(service, caller) == count


async def test_a_fact_brings_no_past_that_it_did_not_have(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await service.bindings.add(caller, "facts", "facts", {})
    scope = Scope(company_id="local", project_id="p")
    write = WriteRequest(
        scope=scope, source=SOURCE, content="branch: main", binding_key="facts", kind="fact"
    )
    await service.write(caller, write)
    assert await move(service, caller, paths, "facts", "second") == (1, 0, 0, 0)
    [moved] = await held(service, caller, "second")
    past = await service.history(caller, moved.handle, scope, binding_key="second")
    assert [(one.text, one.valid_to) for one in past.versions] == [("branch: main", None)]


@pytest.mark.parametrize("destination", ["memory", "second", "lossy"])
async def test_what_changed_in_the_source_is_replaced(
    service: MemoryService, caller: Caller, paths: Paths, destination: str
) -> None:
    await fill(service, caller, "default", 12)
    await move(service, caller, paths, "default", destination)
    record = next(one for one in await held(service, caller, "default") if one.kind != "fact")
    await service.correct(
        caller,
        CorrectRequest(
            scope=record.scope, handle=record.handle, text="Now from main.", binding_key="default"
        ),
    )
    assert await move(service, caller, paths, "default", destination) == (0, 1, 11, 0)
    assert await states(service, caller, destination) == await states(service, caller, "default")


EDITED: dict[str, tuple[object, object]] = {
    "text": ("As it was.", "Edited here."), "tags": (("a",), ("a", "mine")),
    "topic": ("deploys", "mine"), "pinned": (False, True),
    "expires_at": (datetime(2190, 1, 1, tzinfo=UTC), datetime(2191, 1, 1, tzinfo=UTC)),
}  # fmt: skip
"""What a record has, and what a person makes of it in the destination."""


@pytest.mark.parametrize("field", EDITED)
async def test_what_changed_in_the_destination_is_kept(
    service: MemoryService, caller: Caller, paths: Paths, field: str
) -> None:
    given = {name: values[0] for name, values in EDITED.items() if name != "text"}
    for text in (EDITED["text"][0], "Another one."):
        await service.write(caller, WriteRequest.model_validate(
            {"scope": COMPANY, "source": SOURCE, "content": text, "binding_key": "default", **given}
        ))  # fmt: skip
    await move(service, caller, paths, "default", "memory")
    [record] = [r for r in await held(service, caller, "memory") if r.text == EDITED["text"][0]]
    change = {field: EDITED[field][1]}
    await service.correct(caller, CorrectRequest.model_validate(
        {"scope": record.scope, "handle": record.handle, "binding_key": "memory", **change}
    ))  # fmt: skip
    ends = await ends_of(service, caller, "default", "memory")
    done = await apply(ends, paths.data)
    assert (done.failed, done.unchanged) == (1, 1)
    assert f"{field.replace('_', ' ')} changed in memory" in done.failures[0].reason
    there = await held(service, caller, "memory")
    assert [getattr(one, field) for one in there if one.handle == record.handle] == [
        *change.values()
    ]
    found = await verify(ends, paths.data)
    assert not found.passed
    assert [(one.what, one.fields) for one in found.mismatches] == [("different", (field,))]
    assert await move(service, caller, paths, "memory", "default") == (0, 1, 1, 0)
    assert EDITED[field][1] in [
        getattr(one, field) for one in await held(service, caller, "default")
    ]


async def test_another_record_of_the_same_id_is_left_alone(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 3)
    taken = (await held(service, caller, "default"))[0].handle.provider_record_id
    await service.write(
        caller,
        WriteRequest(
            scope=Scope(company_id="local"), source=SOURCE, content="Mine", record_id=taken,
            binding_key="memory",
        ),
    )  # fmt: skip
    assert await move(service, caller, paths, "default", "memory") == (3, 0, 0, 0)
    assert await move(service, caller, paths, "default", "memory") == (0, 0, 3, 0)
    texts = [one.text for one in await held(service, caller, "memory")]
    assert len(texts) == 4
    assert "Mine" in texts
    found = await verify(await ends_of(service, caller, "default", "memory"), paths.data)
    assert (found.passed, found.matched, found.others) == (True, 3, 1)


async def test_equal_records_stay_as_many_as_they_are(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    for _ in range(3):
        await service.write(
            caller,
            WriteRequest(
                scope=Scope(company_id="local"), source=SOURCE, content="The same",
                created_at=datetime(2026, 1, 1, tzinfo=UTC), binding_key="default",
            ),
        )  # fmt: skip
    for destination in ("second", "bare"):
        assert (await move(service, caller, paths, "default", destination))[0] == 3
        assert await move(service, caller, paths, "default", destination) == (0, 0, 3, 0)
        assert len(await held(service, caller, destination)) == 3


async def test_a_bad_record_does_not_keep_the_others(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 5)
    long = WriteRequest(
        scope=Scope(company_id="local"), source=SOURCE, content="x" * 300, binding_key="memory",
        record_id="long", metadata={"k": 1},
    )  # fmt: skip
    await service.write(caller, long)
    await service.write(caller, long.model_copy(update={"content": "short", "record_id": "short"}))
    await service.bindings.add(caller, "facts", "facts", {})
    ends = await ends_of(service, caller, "memory", "facts")
    report = await plan(ends, Settings())
    assert (report.records, report.refused) == (2, 2)
    in_project = {"scope": Scope(company_id="local", project_id="p"), "record_id": "good"}
    await service.write(caller, long.model_copy(update={"content": "fine", **in_project}))
    done = await apply(ends, paths.data)
    assert (done.written, done.failed) == (1, 2)
    said = [one.what for one in report.losses if one.carried]
    assert [(one.what, one.records) for one in done.losses] == [(what, 1) for what in said]
    assert said == ["kind"]
    assert {one.record_id for one in done.failures} == {"long", "short"}
    found = await verify(ends, paths.data)
    assert (found.matched, found.missing) == (1, 2)
    assert await states(service, caller, "facts") == [
        one for one in await states(service, caller, "memory") if "fine" in one
    ]


async def test_secrets_are_taken_out_and_that_is_no_difference(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 2)
    note = paths.binding_dir("local/default") / "vault" / "system" / "by-hand.md"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("The key is sk-abcdefghijklmnop1234567890.\n")
    await service.sync(caller, "default")
    ends = await ends_of(service, caller, "default", "memory")
    assert (await plan(ends, Settings())).redacted == 1
    done = await apply(ends, paths.data)
    assert (done.written, done.redacted) == (3, 1)
    texts = "".join(one.text for one in await held(service, caller, "memory"))
    assert "[REDACTED:API_KEY]" in texts
    assert "sk-abc" not in texts
    assert (await verify(ends, paths.data)).passed
    assert (await apply(ends, paths.data)).unchanged == 3
    assert "sk-abc" in note.read_text()


async def test_one_project_alone_moves(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 40)
    ends = await ends_of(service, caller, "default", "memory", project_id="p1")
    seen: list[MigrationProgress] = []
    done = await apply(ends, paths.data, seen.append)
    records = await held(service, caller, "memory")
    assert {one.scope.project_id for one in records} == {"p1"}
    assert (seen[-1].done, seen[-1].total) == (done.written, done.written)
    assert (await verify(ends, paths.data)).passed
    whole = await ends_of(service, caller, "default", "memory")
    assert (await verify(whole, paths.data)).missing == 40 - done.written


async def test_the_source_is_only_read_and_carries_no_passport(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 10)
    files = _files(paths, "default")
    await move(service, caller, paths, "default", "memory")
    assert _files(paths, "default") == files
    assert all(MIGRATED_FROM in one.metadata for one in await held(service, caller, "memory"))


async def test_a_plan_changes_nothing_and_asks_for_pages_only(
    service: MemoryService, caller: Caller
) -> None:
    await fill(service, caller, "default", 40)
    before = (await service.log.page(caller, limit=1)).operations[0].seq
    ends = await ends_of(service, caller, "default", "second")
    report = await plan(ends, Settings())
    page = await service.log.page(caller, limit=1000, after=before)
    assert {one.operation_type for one in page.operations} == {"browse"}
    assert report.records == sum(one.records for one in report.scopes) == 40
    places = {one.scope: one.place for one in report.scopes}
    assert places["project p1"] == "projects/p1"
    assert places["user Ana 0"] == "users/Ana 0"
    assert places["company"] == "system"
    assert {one.what for one in report.losses} == {
        "id", "history", "time of the last change"
    }  # fmt: skip
    to_lossy = await ends_of(service, caller, "default", "lossy")
    lossy = await plan(to_lossy, Settings(fact_max_chars=1))
    carried = {one.what: one.carried for one in lossy.losses}
    assert carried["expiry"]
    assert carried["pin"]
    assert not carried["history"]
    assert lossy.refused == len([one for one in range(40) if one % 7 == 3])


async def test_the_ends_are_checked(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="both source and destination"):
        await open_endpoints(service, caller, "default", "default")
    with pytest.raises(Invalid):
        await open_endpoints(service, caller, "default", "local/default")
    with pytest.raises(NotFound, match="no binding nope"):
        await open_endpoints(service, caller, "default", "nope")
    with pytest.raises(Denied, match="another company"):
        await open_endpoints(service, caller, "default", "other/default")
    monkeypatch.setattr(InMemoryAdapter, "capabilities", Capabilities())
    await service.bindings.add(caller, "blind", "memory", {})
    with pytest.raises(Unsupported, match="cannot list"):
        await open_endpoints(service, caller, "blind", "default")
    await service.bindings.update(caller, "second", read_only=True)
    count = await mutations(service, caller)
    with pytest.raises(Denied, match="read-only"):
        await apply(await ends_of(service, caller, "default", "second"), paths.data)
    assert await mutations(service, caller) == count
    assert (await plan(await ends_of(service, caller, "default", "second"), Settings())) is not None


async def test_two_migrations_into_one_binding_do_not_run_at_once(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    ends = await ends_of(service, caller, "default", "memory")
    with ProgressFile(paths.data, ends).alone(), pytest.raises(Conflict, match="Another migration"):
        await apply(ends, paths.data)


async def test_a_provider_that_stays_down_stops_the_run(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 40)
    await service.bindings.add(caller, "failing", "memory", {"failing": ["write"]})
    ends = await ends_of(service, caller, "default", "failing")
    with pytest.raises(Unavailable):
        await apply(ends, paths.data)


async def test_verify_names_each_mismatch(
    service: MemoryService, caller: Caller, paths: Paths
) -> None:
    await fill(service, caller, "default", 60)
    ends = await ends_of(service, caller, "default", "memory")
    await apply(ends, paths.data)
    records = await held(service, caller, "memory")
    gone, pinned = records[50], next(one for one in records if not one.pinned)
    await service.forget(
        caller, ForgetRequest(scope=gone.scope, handles=(gone.handle,), binding_key="memory")
    )
    await service.correct(
        caller,
        CorrectRequest(
            scope=pinned.scope, handle=pinned.handle, pinned=True, binding_key="memory",
            expires_at=datetime(2090, 1, 1, tzinfo=UTC),
        ),
    )  # fmt: skip
    twice = records[40]
    await service.write(
        caller,
        WriteRequest(
            scope=twice.scope, source=SOURCE, content=twice.text, metadata=twice.metadata,
            record_id="twice", binding_key="memory",
        ),
    )  # fmt: skip
    found = await verify(ends, paths.data)
    assert not found.passed
    assert (found.checked, found.matched) == (60, 58)
    assert {one.what: one.fields for one in found.mismatches} == {
        "missing": (),
        "different": ("expires_at", "pinned"),
        "extra": (),
    }
    extra = next(one for one in found.mismatches if one.what == "extra")
    assert extra.destination_id == "twice"
    sampled = await verify(ends, paths.data, sample=20, seed=3)
    assert (sampled.checked, sampled.sample, sampled.seed) == (20, 20, 3)
    assert sampled == await verify(ends, paths.data, sample=20, seed=3)
    assert (await verify(ends, paths.data, sample=1000, seed=1)).missing == 1
    drawn = await verify(ends, paths.data, sample=5)
    assert drawn.seed is not None


async def test_what_cannot_be_read_is_named_and_not_copied_with_bytes_lost(
    service: MemoryService, caller: Caller, paths: Paths, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "latin.md").write_bytes(b"Caf\xe9 opens at nine")
    (notes / "plain.md").write_text("A caf\N{REPLACEMENT CHARACTER} that is meant so.")
    (notes / "out.md").symlink_to(paths.data / "memtui.db")
    await service.bindings.update(caller, "second", config={"path": str(notes)})
    ends = await ends_of(service, caller, "second", "default")
    found = await plan(ends, Settings())
    assert [place.partition(":")[0] for place in found.problems] == [
        str(notes / "latin.md"),
        str(notes / "out.md"),
    ]
    [refused] = found.refusals
    assert (refused.record_id, found.refused, found.complete) == ("latin.md", 1, False)
    assert "not UTF-8" in refused.reason

    done = await apply(ends, paths.data)
    assert (done.written, done.failed, done.complete) == (1, 1, False)
    assert done.problems == found.problems
    assert [(one.record_id, one.reason) for one in done.failures] == [("latin.md", refused.reason)]
    [record] = await held(service, caller, "default")
    assert "meant so" in record.text

    (notes / "latin.md").write_text("Café opens at nine")
    (notes / "out.md").unlink()
    await service.sync(caller, "second")
    done = await apply(ends, paths.data)
    assert (done.written, done.unchanged, done.failed, done.problems) == (1, 1, 0, ())
    assert (await verify(ends, paths.data)).passed


async def test_notes_without_a_text_and_with_broken_frontmatter(
    service: MemoryService, caller: Caller, paths: Paths, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "Catan.md").write_text("---\nrating: 7\nversion: 1.10\n---\n")
    (notes / "empty.md").write_text("")
    (notes / "broken.md").write_text("---\ntitle: 50% off: now\n---\nText.\n")
    await service.bindings.update(caller, "second", config={"path": str(notes)})
    ends = await ends_of(service, caller, "second", "default")
    [refused] = (await plan(ends, Settings())).refusals
    assert (refused.record_id, "Fix that first" in refused.reason) == ("broken.md", True)
    done = await apply(ends, paths.data)
    assert (done.written, done.failed) == (2, 1)
    assert [(one.what, one.source_id) for one in (await verify(ends, paths.data)).mismatches] == [
        ("missing", "broken.md")
    ]
    (notes / "broken.md").write_text("---\ntitle: '50% off: now'\n---\nText.\n")
    await service.sync(caller, "second")
    await apply(ends, paths.data)
    assert (await verify(ends, paths.data)).passed


@pytest.mark.parametrize("kind", ["note", "fact"])
async def test_what_nobody_knows_of_a_record_stays_unknown(
    service: MemoryService, caller: Caller, paths: Paths, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put, unknown = InMemoryAdapter._put, {"source": None, "created_by": None, "created_at": None}
    monkeypatch.setattr(
        InMemoryAdapter, "_put", lambda memory, one: put(memory, one.model_copy(update=unknown))
    )
    scope = Scope(company_id="local", project_id="p")
    write = WriteRequest(
        scope=scope, source=SOURCE, content="branch: main", binding_key="memory", kind=kind
    )
    await service.write(caller, write)
    ends = await ends_of(service, caller, "memory", "second")
    losses = (await plan(ends, Settings())).losses
    assert [(one.what, one.records) for one in losses if one.filled] == [("time of creation", 1)]
    assert await move(service, caller, paths, "memory", "second") == (1, 0, 0, 0)
    [moved] = await held(service, caller, "second")
    assert (moved.source, moved.created_by) == (None, None)
    assert (await verify(ends, paths.data)).passed
    with pytest.raises(Invalid, match="needs a source"):
        await service.write(caller, write.model_copy(update={"source": None}))
