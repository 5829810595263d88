from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.backends.vault import MADE
from memtui.backends.vault.markdown import marks_of
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    EraseRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Json,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    Term,
    Unsupported,
    WriteMode,
)

from .conftest import COMPANY, SCOPE, Open, ask, contents, note, put

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
HAND = """---
# kept as it is
created: 2026-02-01
tags:
  - deploy
  - "why not"
topic: ops
source_task: task-17
aliases: [x, y]
---

# Deploying

Deploys happen from main.
"""


def handle(path: str) -> RecordHandle:
    return RecordHandle(provider_key="vault", provider_record_id=path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, title=st.none() | texts, tags=st.lists(texts, max_size=3), topic=texts)
async def test_any_text_comes_back(
    open_vault: Open, text: str, title: str | None, tags: list[str], topic: str
) -> None:
    adapter = await open_vault()
    try:
        written = await note(adapter, text, title=title, tags=tuple(tags), topic=topic)
    finally:
        await adapter.close()
    record = await adapter.get(written, SCOPE)
    assert record is not None
    said = marks_of(text).added_to(tuple(tags))
    assert (record.text, record.tags, record.topic) == (text, said, topic)
    assert title is None or record.title == title


async def test_the_file_of_a_note(open_vault: Open, root: Path) -> None:
    now = datetime(2026, 3, 9, 8, 30, tzinfo=UTC)
    adapter = await open_vault(now=lambda: now)
    written = await note(
        adapter, "Deploys happen from main, always.", tags=("deploy",), created_by="agent:coding",
        scope=SCOPE.model_copy(update={"agent_id": "coding"}),
    )  # fmt: skip
    path = "projects/web/memory/2026-03-09-deploys-happen-from-main-always.md"
    assert written.provider_record_id == path
    assert (root / path).read_text() == (
        "---\ncreated: 2026-03-09T08:30:00+00:00\n"
        'created_by: "agent:coding"\n'
        "source: {kind: issue_comment, issue_id: I-1, comment_id: c}\n"
        "tags: [deploy]\nagent_id: coding\n---\n\nDeploys happen from main, always.\n"
    )
    assert (root / path).stat().st_mode & 0o777 == 0o600
    assert (root / path).parent.stat().st_mode & 0o777 == 0o700
    again = await note(adapter, "Deploys happen from main, always.")
    assert again.provider_record_id == path.replace(".md", "-2.md")


@pytest.mark.parametrize(
    ("kind", "ids", "folder"),
    [
        ("note", {"project_id": "p"}, "projects/p/memory"),
        ("guidance", {"project_id": "p"}, "projects/p/memory/guidance"),
        ("reference", {"project_id": "p"}, "projects/p/references"),
        ("reference", {"agent_id": "coding"}, "agent-types/coding/memory"),
        ("insight", {"subject_id": "ana/../b"}, "users/ana%2F..%2Fb/memory"),
        ("note", {}, "system/memory"),
    ],
)
async def test_where_a_kind_is_kept(
    open_vault: Open, kind: str, ids: dict[str, str], folder: str
) -> None:
    adapter = await open_vault()
    scope = Scope(company_id="acme", **ids)
    written = await note(adapter, "Text.", kind=kind, scope=scope)
    assert written.provider_record_id.rpartition("/")[0] == folder
    record = await adapter.get(written, scope)
    assert record is not None
    assert record.kind == kind
    assert record.scope.model_dump(exclude_none=True) == {"company_id": "acme"} | ids


async def test_a_note_written_by_hand(open_vault: Open, root: Path) -> None:
    put(root, "projects/web/notes/deploying.md", HAND)
    adapter = await open_vault()
    record = await adapter.get(handle("projects/web/notes/deploying.md"), SCOPE)
    assert record is not None
    assert record.title == "Deploying"
    assert record.text == "# Deploying\n\nDeploys happen from main."
    assert record.tags == ("deploy", "why not")
    assert record.topic == "ops"
    assert record.created_at == datetime(2026, 2, 1, tzinfo=UTC)
    assert record.source is not None
    assert (record.source.kind, record.source.issue_id) == (SourceKind.ISSUE, "task-17")
    assert record.metadata == {"source_task": "task-17", "aliases": ["x", "y"]}
    assert record.location is not None
    assert record.location.line == 12
    terms = (Term(field="issue_id", values=("task-17",), excluded=True),)
    of_source = {Filter(issue_id="task-17"): 1, Filter(issue_id="x"): 0, Filter(terms=terms): 0}
    for chosen, found in of_source.items():
        page = await adapter.browse(BrowseRequest(scope=SCOPE, filter=chosen))
        assert len(page.records) == found


async def test_a_correction_changes_nothing_around_it(open_vault: Open, root: Path) -> None:
    path = put(root, "projects/web/notes/deploying.md", HAND.replace("\n", "\r\n"))
    adapter = await open_vault()
    it = handle("projects/web/notes/deploying.md")
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="New\r\ntext"))
    wanted = HAND.partition("# Deploying")[0].replace("\n", "\r\n") + "New\r\ntext\r\n"
    assert path.read_bytes().decode() == wanted
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, tags=("one",), pinned=True))
    assert path.read_bytes().decode() == wanted.replace('deploy\r\n  - "why not"', "one").replace(
        "[x, y]\r\n", "[x, y]\r\npinned: true\r\n"
    )


async def test_a_folder_that_was_there_before(open_vault: Open, root: Path) -> None:
    put(root, "Journal/2024/Monday.md", "Fed the llama.\n")
    put(root, "inbox.md", "---\ntags: llama, zoo\n---\nBuy llama food.\n")
    put(root, ".obsidian/workspace.md", "llama settings")
    put(root, ".git/x.md", "llama")
    put(root, "node_modules/x/README.md", "llama package")
    put(root, "picture.png", b"\x89PNG llama")
    put(root, "empty.md", "")
    put(root, "blank.md", "\n\n")
    for number in range(300):
        put(root, f"many/{number}/note {number}.md", f"Number {number}\n")
    before = contents(root)
    adapter = await open_vault(read_only=True)
    assert sorted(await ask(adapter, "llama", scope=COMPANY)) == [
        "Buy llama food.",
        "Fed the llama.",
    ]
    page = await adapter.browse(BrowseRequest(scope=COMPANY, limit=1000))
    assert page.total == 304
    assert {record.title for record in page.records if not record.text.strip()} == {
        "empty", "blank"
    }  # fmt: skip
    assert {record.kind for record in page.records} == {"note"}
    health = await adapter.health()
    assert (health.status, health.records) == ("ok", 304)
    assert not adapter.capabilities.writable
    with pytest.raises(Unsupported):
        await note(adapter, "No.")
    assert contents(root) == before
    assert not list(root.glob(".memtui*"))


BROKEN = {
    "projects/web/memory/unclosed.md": (b"---\na: 1\n\nText about yaks.\n", "never closed", 1),
    "projects/web/memory/yaml.md": (b"---\na: [1\n---\nText about yaks.\n", "cannot be read", 1),
    "projects/web/memory/list.md": (b"---\n- a\n---\nYaks.\n", "key: value", 1),
}


async def test_broken_files_are_problems_and_stay(open_vault: Open, root: Path) -> None:
    for path, (raw, _, _) in BROKEN.items():
        put(root, path, raw)
    put(root, "projects/web/memory/fine.md", "Yaks are fine.\n")
    before = contents(root)
    adapter = await open_vault(config={"max_file_mb": 1})
    put(root, "projects/web/memory/huge.md", b"yaks " * 300_000)
    assert sorted(await ask(adapter, "yaks")) == [
        "---\na: 1\n\nText about yaks.",
        "Text about yaks.",
        "Yaks are fine.",
        "Yaks.",
    ]
    health = await adapter.health()
    assert health.status == "degraded"
    found = {p.location.path: (p.message, p.location.line) for p in health.problems if p.location}
    for path, (_, word, line) in BROKEN.items():
        message, at = found.pop(str(root / path))
        assert word in message
        assert at == line
    assert "larger than 1 MB" in found.pop(str(root / "projects/web/memory/huge.md"))[0]
    assert found == {}
    for path in BROKEN:
        it = handle(path)
        record = await adapter.get(it, SCOPE)
        assert record is not None
        assert BROKEN[path][1] in (record.problem or "")
        for change in (
            adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="Mended?")),
            adapter.correct(CorrectRequest(scope=SCOPE, handle=it, tags=("a",))),
            note(adapter, "Mended?", record_id=path, mode=WriteMode.UPSERT),
        ):
            with pytest.raises(Invalid, match="Fix the file by hand first"):
                await change
        reply = await adapter.forget(ForgetRequest(scope=SCOPE, handles=(it,)))
        assert "Fix the file by hand first" in reply.refused[path]
    assert {k: v for k, v in contents(root).items() if "huge" not in k} == before
    (root / "projects/web/memory/list.md").write_text("Mended yaks.")
    assert len((await adapter.health()).problems) == 3
    assert "Mended yaks." in await ask(adapter, "yaks")


async def test_unreadable_names_and_links(open_vault: Open, root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/secret.md", "A secret yeti.")
    put(root, "real/inside.md", "An inside yeti.")
    (root / "escape.md").symlink_to(outside)
    (root / "folder").symlink_to(outside.parent)
    (root / "loop").symlink_to(root)
    (root / "again.md").symlink_to(root / "real/inside.md")
    (root / "projects").mkdir()
    (root / "projects/web").symlink_to(outside.parent)
    Path(os.fsdecode(os.fsencode(root / "bad") + b"\xff.md")).write_text("yeti")
    os.mkfifo(root / "pipe.md")
    adapter = await open_vault()
    assert await ask(adapter, "yeti", scope=COMPANY) == ["An inside yeti."]
    problems = {
        Path(p.location.path).name: p.message
        for p in (await adapter.health()).problems
        if p.location
    }
    assert set(problems) == {"escape.md", "folder", "web", "bad\\udcff.md", "pipe.md"}
    for path in ("escape.md", "folder/secret.md", "again.md", "projects/web/secret.md", "pipe.md"):
        assert await adapter.get(handle(path), COMPANY) is None
    with pytest.raises(Denied):
        await note(adapter, "Over the wall.")
    assert [path.name for path in outside.parent.iterdir()] == ["secret.md"]


async def test_a_hand_edit_between_read_and_save(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    written = await note(adapter, "As read.")
    record = await adapter.get(written, SCOPE)
    assert record is not None
    path = root / written.provider_record_id
    path.write_text(path.read_text().replace("As read.", "By hand."))
    with pytest.raises(Conflict) as caught:
        await adapter.correct(
            CorrectRequest(scope=SCOPE, handle=written, text="By tool.", revision=record.revision)
        )
    assert caught.value.current is not None
    assert caught.value.current.text == "By hand."
    assert caught.value.proposed == "By tool."
    assert "By hand." in path.read_text()
    path.unlink()
    with pytest.raises(Conflict) as caught:
        await adapter.correct(
            CorrectRequest(scope=SCOPE, handle=written, text="By tool.", revision=record.revision)
        )
    assert caught.value.current is None


async def test_restoring_notes_to_the_byte(open_vault: Open, root: Path) -> None:
    path = "projects/web/notes/by hand.md"
    put(root, path, "\ufeff---\r\ntitle: x # y\r\n---\r\nText\r\n\r\n")
    adapter = await open_vault()
    written = await note(adapter, "Second.")
    both = [handle(path), written]
    before = contents(root)
    times = {p: (root / p).stat().st_mtime_ns for p in before}
    taken = await adapter.snapshot(both, SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=tuple(both)))
    assert contents(root) == {}
    await adapter.restore(taken, SCOPE)
    assert contents(root) == before
    assert {p: (root / p).stat().st_mtime_ns for p in before} == times
    for it in both:
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="Changed.", pinned=True))
    await adapter.restore(list(reversed(taken)), SCOPE)
    assert contents(root) == before
    third = await note(adapter, "Third.")
    await adapter.restore([Snapshot(handle=third, record=None)], SCOPE)
    assert contents(root) == before


async def test_undo_never_overwrites_what_hands_wrote(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    written = await note(adapter, "One.")
    path = root / written.provider_record_id
    taken = await adapter.snapshot([written], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(written,)))
    put(root, written.provider_record_id, "Another by hand.")
    with pytest.raises(Conflict):
        await adapter.restore(taken, SCOPE)
    assert path.read_text() == "Another by hand."
    path.unlink()
    await adapter.restore(taken, SCOPE)
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=written, text="Two."))
    path.write_text(path.read_text() + "By hand.")
    for snapshot in (taken[0], Snapshot(handle=written, record=None)):
        with pytest.raises(Conflict) as caught:
            await adapter.restore([snapshot], SCOPE)
        assert caught.value.current is not None
    assert path.read_text().endswith("By hand.")


async def test_a_folder_goes_with_its_last_note_only_where_memtui_made_it(
    open_vault: Open, root: Path
) -> None:
    (root / "projects").mkdir(parents=True)
    adapter = await open_vault()
    notes = [await note(adapter, text) for text in ("One.", "Two.")]
    taken = await adapter.snapshot(notes, SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(notes[0],)))
    folder = root / "projects" / "web" / "memory"
    assert folder.is_dir()
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(notes[1],)))
    assert list(root.rglob("*")) == [root / "projects"]
    await adapter.restore(taken, SCOPE)
    assert len(list(folder.iterdir())) == 2
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=tuple(notes)))
    assert list(root.rglob("*")) == [root / "projects"]
    folder.mkdir(parents=True)
    for text in ("Three.", "Four."):
        again = await note(adapter, text)
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=(again,)))
        assert list(folder.iterdir()) == []


async def test_a_forget_that_was_killed_before_its_folder_went_is_finished_by_the_next(
    open_vault: Open, root: Path
) -> None:
    adapter = await open_vault()
    written = await note(adapter, "One.")
    (root / written.provider_record_id).unlink()
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(written,)))
    assert list(root.iterdir()) == []


async def test_purging_drops_the_names_of_folders_that_are_no_more(
    open_vault: Open, root: Path, tmp_path: Path
) -> None:
    adapter = await open_vault()
    await note(adapter, "One.")
    shutil.rmtree(root / "projects")
    await note(adapter, "Two.", scope=COMPANY)
    made = tmp_path / "data" / MADE
    assert any(b"projects/web" in one.read_bytes() for one in made.iterdir())
    await adapter.erase(EraseRequest(scope=SCOPE, apply=True))
    assert not any(b"projects" in one.read_bytes() for one in made.iterdir())


async def test_undo_refuses_another_note_of_the_same_name(open_vault: Open) -> None:
    adapter = await open_vault()
    written = await note(adapter, "Same words.")
    taken = await adapter.snapshot([written], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(written,)))
    assert await note(adapter, "Same words.", tags=("new",)) == written
    with pytest.raises(Conflict):
        await adapter.restore(taken, SCOPE)


async def test_a_note_under_a_given_path(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    path = "projects/web/memory/kept.md"
    assert (await note(adapter, "One.", record_id=path)).provider_record_id == path
    with pytest.raises(Conflict):
        await note(adapter, "Two.", record_id=path)
    put(root, path, (root / path).read_text().replace("created", "# mine\ncreated"))
    await note(adapter, "Two.", record_id=path, mode=WriteMode.UPSERT, topic="new")
    assert "# mine" in (root / path).read_text()
    record = await adapter.get(handle(path), SCOPE)
    assert record is not None
    assert (record.text, record.topic) == ("Two.", "new")
    elsewhere = await note(adapter, "Three.", record_id="projects/other/memory/x.md")
    assert elsewhere.provider_record_id.startswith("projects/web/memory/")
    with pytest.raises(Invalid):
        await note(adapter, "Four.", record_id="projects/web/../../x.md")


async def test_another_company_is_denied(open_vault: Open) -> None:
    adapter = await open_vault()
    with pytest.raises(Denied):
        await note(adapter, "x", scope=Scope(company_id="evil"))
    with pytest.raises(Denied):
        await adapter.get(handle("projects/web/memory/x.md"), Scope(company_id="evil"))


@pytest.mark.parametrize("config", [{"path": 7}, {"paht": "/x"}, {"lock_seconds": 0}])
async def test_a_bad_config(open_vault: Open, config: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        await open_vault(config=config)


async def test_a_path_that_is_a_file(open_vault: Open, root: Path) -> None:
    root.write_text("not a folder")
    with pytest.raises(Invalid):
        await open_vault()


async def test_a_folder_that_is_named_like_a_note(open_vault: Open, root: Path) -> None:
    put(root, "projects/web/memory/folder.md/inside.md", "Inside.")
    adapter = await open_vault()
    it = handle("projects/web/memory/folder.md")
    assert await adapter.get(it, SCOPE) is None
    assert (await adapter.forget(ForgetRequest(scope=SCOPE, handles=(it,)))).missing == (it,)
    with pytest.raises(Invalid, match="It is a folder"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="x"))
    assert await ask(adapter, "inside") == ["Inside."]


async def test_a_note_with_crlf_keeps_it(open_vault: Open, root: Path) -> None:
    path = put(root, "projects/web/memory/a.md", b"---\r\ntags: [a]\r\n---\r\n\r\none\r\ntwo\r\n")
    adapter = await open_vault()
    it = handle("projects/web/memory/a.md")
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="one\nthree\r\n\nfour"))
    body = b"one\r\nthree\r\n\r\nfour\r\n"
    assert path.read_bytes() == b"---\r\ntags: [a]\r\n---\r\n\r\n" + body
    mixed = put(root, "projects/web/memory/b.md", b"one\r\ntwo\nthree\r\n")
    it = handle("projects/web/memory/b.md")
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="one\r\ntwo\nfour"))
    assert mixed.read_bytes() == b"one\r\ntwo\nfour\r\n"


async def test_a_forgotten_note_comes_back_with_its_permissions(
    open_vault: Open, root: Path
) -> None:
    path = put(root, "projects/web/memory/a.md", "One.\n")
    path.chmod(0o664)
    adapter = await open_vault()
    it = handle("projects/web/memory/a.md")
    before = await adapter.snapshot([it], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(it,)))
    await adapter.restore(before, SCOPE)
    assert path.stat().st_mode & 0o777 == 0o664
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, text="Two."))
    assert path.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("kind", ["note", "fact"])
async def test_a_file_without_the_right_to_write_is_left_alone(
    open_vault: Open, root: Path, kind: str
) -> None:
    adapter = await open_vault()
    kept = await note(adapter, "Stays.", kind=kind)
    other = await note(adapter, "Goes.", kind=kind, scope=COMPANY)
    path = root / kept.provider_record_id.partition("#")[0]
    path.chmod(0o444)
    before = await adapter.snapshot([kept], SCOPE)
    files = {one: one.read_bytes() for one in path.parent.iterdir()}
    with pytest.raises(Denied, match="write-protected"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=kept, text="Says more."))
    reply = await adapter.forget(ForgetRequest(scope=SCOPE, handles=(kept, other)))
    assert list(reply.refused) == [kept.provider_record_id]
    with pytest.raises(Denied, match="write-protected"):
        await adapter.restore([before[0].model_copy(update={"record": None, "state": {}})], SCOPE)
    assert {one: one.read_bytes() for one in path.parent.iterdir()} == files
    assert await adapter.get(other, COMPANY) is None
    path.chmod(0o644)
    assert not (await adapter.forget(ForgetRequest(scope=SCOPE, handles=(kept,)))).refused


@pytest.mark.parametrize("kind", ["note", "fact"])
async def test_metadata_as_large_as_a_plugin_takes_it(
    open_vault: Open, root: Path, kind: str
) -> None:
    adapter = await open_vault()
    half_a_pair = "\ud800" if kind == "note" else ""
    text = f"é\x85\u2028{half_a_pair}"
    large: Json = {"deep": [{"n": n, "text": text} for n in range(20_000)]}
    written = await note(adapter, "Large.", kind=kind, metadata=large, tags=("a",))
    found = await adapter.get(written, SCOPE)
    assert found is not None
    assert found.metadata["deep"] == large["deep"]
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=written, tags=("b",)))
    found = await adapter.get(written, SCOPE)
    assert found is not None
    assert (found.tags, found.metadata["deep"]) == (("b",), large["deep"])
    before = contents(root)
    if kind == "fact":
        with pytest.raises(Invalid, match="UTF-8 cannot encode"):
            await note(adapter, "Half.", kind=kind, metadata={"x": "\ud800"})
    with pytest.raises(Invalid, match="larger than 20 MB"):
        await note(adapter, "Larger.", kind=kind, metadata={"x": "y" * 21_000_000})
    assert contents(root) == before


async def test_large_metadata_takes_the_place_of_small_and_back(
    open_vault: Open, root: Path
) -> None:
    adapter = await open_vault()
    wanted = "projects/web/memory/a.md"
    for metadata in ({"a": 1}, {"x": "y" * 100_000}, {"x": "z" * 100_000}, {"b": 2}):
        await note(adapter, "One.", record_id=wanted, mode=WriteMode.UPSERT, metadata=metadata)
        found = await adapter.get(handle(wanted), SCOPE)
        assert found is not None
        assert found.metadata == metadata
    assert (root / wanted).read_text().count("metadata:") == 1


async def test_a_note_whose_folder_is_gone_can_be_undone(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    written = await note(adapter, "Deploys happen from main.")
    path = root / written.provider_record_id
    path.unlink()
    path.parent.rmdir()
    reply = await adapter.restore([Snapshot(handle=written, record=None)], SCOPE)
    assert reply.records == ()
    assert contents(root) == {}


@pytest.mark.parametrize("odd", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-10:00"])
async def test_a_moment_outside_of_all_calendars_is_none(
    open_vault: Open, root: Path, odd: str
) -> None:
    put(root, "projects/web/memory/a.md", f"---\ncreated: {odd}\nexpires: '{odd}'\n---\n\nOdd.\n")
    record = await (await open_vault()).get(handle("projects/web/memory/a.md"), SCOPE)
    assert record is not None
    assert (record.text, record.created_at, record.expires_at) == ("Odd.", None, None)


async def test_a_summary_is_what_is_searched_and_the_text_what_opens(
    open_vault: Open, root: Path
) -> None:
    adapter = await open_vault()
    text = "Tuesday: the importer read 40 files, twice, and the numbers agreed."
    written = await note(adapter, text, title="Log", summary="The importer may run again: safe.")
    path = root / written.provider_record_id
    assert 'summary: "The importer may run again: safe."\n' in path.read_text()
    by_hand = HAND.replace("topic: ops\n", "topic: ops\nsummary: Deploys are cut on Thursdays.\n")
    put(root, "projects/web/notes/deploy.md", by_hand)
    await adapter.sync()
    assert await ask(adapter, "safe to run again") == [text]
    assert await ask(adapter, "which Thursdays") == [HAND.split("---\n\n")[1].rstrip()]
    assert await ask(adapter, "main happening") == []
    record = await adapter.get(handle("projects/web/notes/deploy.md"), SCOPE)
    assert record is not None
    assert record.summary == "Deploys are cut on Thursdays."
    assert "summary" not in record.metadata
    await adapter.correct(
        CorrectRequest(scope=SCOPE, handle=record.handle, summary="", revision=record.revision)
    )
    assert 'summary: ""\n' in (root / "projects/web/notes/deploy.md").read_text()
    assert len(await ask(adapter, "main happening")) == 1


@pytest.mark.parametrize("path", ["../out.md", "a/../../out.md", "/out.md", ".hidden.md", "a.txt"])
async def test_nothing_is_restored_to_a_place_that_no_note_can_have(
    path: str, open_vault: Open, root: Path, tmp_path: Path
) -> None:
    adapter = await open_vault()
    kept = await note(adapter, "Kept.")
    [taken] = await adapter.snapshot([kept], SCOPE)
    for place in (tmp_path / "out.md", root / ".hidden.md", root / "a.txt"):
        place.write_text("Of others.\n")
    before = contents(tmp_path)
    for changed in (taken.model_copy(update={"handle": handle(path)}),
                    Snapshot(handle=handle(path), record=None)):  # fmt: skip
        with pytest.raises(Invalid, match="is not the path of a note"):
            await adapter.restore([taken, changed], SCOPE)
    assert contents(tmp_path) == before
    assert (root / ".hidden.md").read_text() == "Of others.\n"
