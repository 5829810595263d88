"""Claude Code's auto memory changed through memtui: its files, and the index that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    Record,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.provider_kit.files import committed
from memtui.provider_kit.files.shared import content_of, put

ACME = Scope(company_id="acme")
SESSION = "5da15695-411e-4859-a37b-b739ede023ae"
FILES = {
    "MEMORY.md": "# Memory\r\n\r\n- [Deploy](project_deploy.md) — Deploys leave main.\r\n"
    "* [Real database](feedback_db.md): no mocks\r\n\r\n## Notes\r\nThe host is `bee`.\r\n"
    "It has [two names](feedback_db.md).\r\n\r\nLast.",
    "project_deploy.md": "---\r\nname: Deploy  # ours\r\ndescription: Deploys leave main.\r\n"
    "metadata:\r\n  node_type: memory\r\n  type: project\r\n  weight: 1.0\r\n---\r\n"
    "Deploys leave main.\r\n\r\nAlways.\r\n",
    "feedback_db.md": "---\ntype: feedback\nname: 'Real database'\n---\n\nNever mock it.",
    "plain.md": "No frontmatter at all.\n",
}
LONG = f"caf\u00a0e {'x' * 200}.md"
"""A name that no id can be."""


async def opened(tmp_path: Path, files: dict[str, str] | None = None) -> ClaudeMemoryAdapter:
    folder = tmp_path / "memory"
    folder.mkdir()
    for name, text in (FILES if files is None else files).items():
        (folder / name).write_bytes(text.encode())
    config = {"path": str(folder)}
    state = tmp_path / "state"
    return await ClaudeMemoryAdapter.open(
        BindingContext(company_id="acme", binding_key="b", config=config, data_dir=state)
    )


def held(tmp_path: Path) -> dict[str, str]:
    return {one.name: one.read_bytes().decode() for one in (tmp_path / "memory").iterdir()}


async def every(adapter: ClaudeMemoryAdapter) -> dict[str, Record]:
    page = await adapter.browse(BrowseRequest(scope=ACME))
    return {record.handle.provider_record_id: record for record in page.records}


def correction(record: Record, text: str) -> CorrectRequest:
    return CorrectRequest(scope=ACME, handle=record.handle, text=text, revision=record.revision)


def note(text: str, **fields: object) -> WriteRequest:
    source = SourceRef(kind=SourceKind.RUN, company_id="acme", run_id=SESSION)
    given = {"scope": ACME, "source": source, "content": text}
    return WriteRequest.model_validate(given | fields)


async def test_every_change_taken_back_leaves_every_byte(tmp_path: Path) -> None:
    files = FILES | {LONG: "Has a long name.\n"}
    files["MEMORY.md"] = f"- [Long]({quote(LONG)}) — y\r\n{FILES['MEMORY.md']}"
    adapter = await opened(tmp_path, files)
    records = await every(adapter)
    assert len(records) == 5
    for record in records.values():
        [old] = await adapter.snapshot([record.handle], ACME)
        await adapter.correct(correction(record, "Other words,\nin two lines."))
        assert (await every(adapter))[record.handle.provider_record_id].text.startswith("Other")
        await adapter.restore([old], ACME)
        assert held(tmp_path) == files
        await adapter.forget(ForgetRequest(scope=ACME, handles=(record.handle,)))
        assert await adapter.get(record.handle, ACME) is None
        await adapter.restore([old], ACME)
        assert held(tmp_path) == files


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_a_description_that_is_no_yaml_follows_the_text(tmp_path: Path, end: str) -> None:
    said = "---\nname: x\ndescription: Use X: always\ntype: feedback\n---\nUse X: always\n"
    files = {
        "a.md": said.replace("\n", end), "MEMORY.md": f"- [x](a.md) — Use X: always{end}",
    }  # fmt: skip
    adapter = await opened(tmp_path, files)
    record = (await every(adapter))["a.md"]
    [old] = await adapter.snapshot([record.handle], ACME)
    await adapter.correct(correction(record, "Use Y: never"))
    assert held(tmp_path) == {
        "a.md": said.replace("description: Use X: always", 'description: "Use Y: never"')
        .replace("Use X: always", "Use Y: never")
        .replace("\n", end),
        "MEMORY.md": f"- [x](a.md) — Use Y: never{end}",
    }
    await adapter.restore([old], ACME)
    assert held(tmp_path) == files


async def test_the_index_stays_true(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    records = await every(adapter)
    await adapter.correct(correction(records["project_deploy.md"], "Deploys leave release."))
    await adapter.correct(correction(records["feedback_db.md"], "Mock nothing."))
    reply = await adapter.write(note("Prefers tea.\nGreen.", kind="user", title="Tea [drinker]"))
    now = held(tmp_path)
    expected = FILES["MEMORY.md"].replace("Deploys leave main.", "Deploys leave release.")
    line = "no mocks\r\n- [Tea drinker](user_tea_drinker.md) — Prefers tea.\r\n"
    assert now["MEMORY.md"] == expected.replace("no mocks\r\n", line)
    assert now["project_deploy.md"] == FILES["project_deploy.md"].replace(
        "Deploys leave main.\r\n\r\nAlways.", "Deploys leave release."
    ).replace("Deploys leave main.", "Deploys leave release.")
    assert now["feedback_db.md"] == FILES["feedback_db.md"].replace("Never mock it", "Mock nothing")
    assert now["user_tea_drinker.md"] == (
        '---\nname: "Tea [drinker]"\ndescription: Prefers tea.\nmetadata:\n  node_type: memory\n'
        f'  type: user\n  originSessionId: "{SESSION}"\n---\n\nPrefers tea.\nGreen.\n'
    )
    record = (await every(adapter))["user_tea_drinker.md"]
    assert record.source is not None
    assert (record.source.run_id, record.kind) == (SESSION, "user")
    [made] = reply.records
    await adapter.restore([Snapshot(handle=made, record=None)], ACME)
    assert sorted(held(tmp_path)) == sorted(FILES)
    assert "tea" not in held(tmp_path)["MEMORY.md"]


async def test_a_new_folder_gets_an_index_and_an_old_one_its_own_frontmatter(
    tmp_path: Path,
) -> None:
    adapter = await opened(tmp_path, {"old.md": "---\nname: x\ntype: user\n---\nx\n"})
    await adapter.write(note("The same."))
    await adapter.write(note("The same."))
    now = held(tmp_path)
    assert now["MEMORY.md"] == (
        "- [The same.](project_the_same.md) — The same.\n"
        "- [The same.](project_the_same_2.md) — The same.\n"
    )
    assert (
        now["project_the_same_2.md"]
        == now["project_the_same.md"]
        == (
            "---\nname: The same.\ndescription: The same.\ntype: project\n"
            f'originSessionId: "{SESSION}"\n---\n\nThe same.\n'
        )
    )
    with pytest.raises(Invalid, match="blank lines"):
        await adapter.write(note("\nThe same.\n"))
    assert held(tmp_path) == now


async def test_a_write_that_the_index_refuses_leaves_nothing(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    index = tmp_path / "memory" / "MEMORY.md"
    index.write_bytes(b"caf\xe9\n")
    ana = ACME.model_copy(update={"subject_id": "ana"})
    with pytest.raises(Invalid, match="not UTF-8"):
        await adapter.write(note("Is ill.", scope=ana))
    assert sorted(one.name for one in index.parent.iterdir()) == sorted(FILES)
    assert index.read_bytes() == b"caf\xe9\n"


async def test_what_is_somebodys_is_not_everybodys_once_that_cannot_be_read(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    bob, ana = (ACME.model_copy(update={"subject_id": one}) for one in ("bob", "ana"))
    [handle] = (await adapter.write(note("Is ill.", scope=ana))).records
    known = tmp_path / "state" / "known.json"
    kept = known.read_text()
    known.write_text(kept[:-1])
    with pytest.raises(Unavailable, match=r"known\.json \(it is damaged\)"):
        await adapter.get(handle, bob)
    with pytest.raises(Unavailable, match="it is damaged"):
        await adapter.write(note("Likes tea.", scope=bob))
    known.write_text(kept)
    assert await adapter.get(handle, bob) is None
    assert await adapter.get(handle, ana) is not None


async def test_an_edit_of_what_claude_code_changed_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    record = (await every(adapter))["plain.md"]
    (tmp_path / "memory" / "plain.md").write_text("Changed by its agent.\n")
    with pytest.raises(Conflict) as caught:
        await adapter.correct(correction(record, "Changed by a person."))
    assert caught.value.current is not None
    assert caught.value.current.text == "Changed by its agent."
    assert (tmp_path / "memory" / "plain.md").read_text() == "Changed by its agent.\n"


async def test_a_memory_that_is_rewritten_before_it_is_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = await opened(tmp_path)
    record, read = (await every(adapter))["plain.md"], content_of

    def rewritten(path: Path) -> bytes | None:
        if path.name == "plain.md":
            path.write_text("Changed by its agent.\n")
        return read(path)

    monkeypatch.setattr(committed, "content_of", rewritten)
    with pytest.raises(Conflict):
        await adapter.forget(ForgetRequest.of([record], ACME))
    assert held(tmp_path) == FILES | {"plain.md": "Changed by its agent.\n"}


async def test_a_private_memory_that_was_away_during_a_forget_stays_private(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    await adapter.write(note("Prefers tea.", scope=Scope(company_id="acme", subject_id="cy")))
    place, aside = tmp_path / "memory" / "project_prefers_tea.md", tmp_path / "aside.md"
    place.rename(aside)  # as a switch of branches, or a backup, does
    record = (await every(adapter))["plain.md"]
    [taken] = await adapter.snapshot([record.handle], ACME)
    await adapter.forget(ForgetRequest.of([record], ACME))
    await adapter.restore([taken], ACME)
    aside.rename(place)
    assert (await every(adapter))[place.name].scope.subject_id == "cy"


async def test_an_undo_gives_a_line_back_that_a_new_memory_took(tmp_path: Path) -> None:
    index = "# Memory\r\n- [Tea](project_prefers_tea.md) — of old\r\n\r\n* [More](./a.md)"
    adapter = await opened(tmp_path, {"MEMORY.md": index})
    written = await adapter.write(note("Prefers tea."))
    assert "of old" not in held(tmp_path)["MEMORY.md"]
    await adapter.restore(written.before, ACME)
    assert held(tmp_path) == {"MEMORY.md": index}


async def test_what_stands_between_index_lines_is_not_changed_here(tmp_path: Path) -> None:
    index = "Above.\n- [Plain](plain.md) — x\nBelow.\n"
    adapter = await opened(tmp_path, FILES | {"MEMORY.md": index})
    [between] = [one for one in (await every(adapter)).values() if one.kind == "index"]
    with pytest.raises(Invalid, match="edit the file itself"):
        await adapter.correct(correction(between, "Other."))
    assert held(tmp_path)["MEMORY.md"] == index


async def test_what_is_past_the_loaded_part_of_the_index_is_a_problem(tmp_path: Path) -> None:
    lines = "".join(f"- line {number}\n" for number in range(250))
    adapter = await opened(tmp_path, {"MEMORY.md": lines})
    [problem] = await adapter.problems(ACME)
    assert problem.location is not None
    assert (problem.location.line, "first 200 lines" in problem.message) == (201, True)


async def test_an_index_that_is_a_link_out_of_the_folder_is_not_changed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("Somebody's own.\n")
    adapter = await opened(tmp_path, {"plain.md": FILES["plain.md"]})
    (tmp_path / "memory" / "MEMORY.md").symlink_to(elsewhere)
    with pytest.raises(Invalid, match="is or lies behind a link"):
        await adapter.write(note("Deploys leave main."))
    assert elsewhere.read_text() == "Somebody's own.\n"
    assert sorted(held(tmp_path)) == ["MEMORY.md", "plain.md"]


async def test_a_file_without_the_right_to_write_is_left_alone(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    records = await every(adapter)
    kept, other = records["feedback_db.md"], records["project_deploy.md"]
    before = held(tmp_path)
    file, index = tmp_path / "memory" / "feedback_db.md", tmp_path / "memory" / "MEMORY.md"
    index.chmod(0o444)
    with pytest.raises(Denied, match="write-protected"):
        await adapter.forget(ForgetRequest.of([kept, other], ACME))
    with pytest.raises(Denied, match=r"MEMORY\.md is write-protected"):
        await adapter.correct(correction(other, "Deploys leave release."))
    assert held(tmp_path) == before
    index.chmod(0o644)
    file.chmod(0o444)
    with pytest.raises(Denied, match="write-protected"):
        await adapter.correct(correction(kept, "Mock it."))
    reply = await adapter.forget(ForgetRequest.of([kept, other], ACME))
    assert list(reply.refused) == ["feedback_db.md"]
    assert before.keys() - held(tmp_path).keys() == {"project_deploy.md"}
    assert "feedback_db.md" in index.read_text()
    assert "project_deploy.md" not in index.read_text()


class Killed(BaseException):
    """Its process ends here."""


@pytest.mark.parametrize("change", ["write", "correct", "forget", "restore"])
async def test_what_is_killed_between_index_and_file_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    adapter = await opened(tmp_path)
    record = (await every(adapter))["project_deploy.md"]
    [taken] = await adapter.snapshot([record.handle], ACME)
    if change == "restore":
        await adapter.forget(ForgetRequest.of([record], ACME))
    before = held(tmp_path)

    async def do() -> None:
        if change == "write":
            await adapter.write(note("Prefers tea."))
        elif change == "correct":
            await adapter.correct(correction(record, "Deploys leave release."))
        elif change == "forget":
            await adapter.forget(ForgetRequest.of([record], ACME))
        else:
            await adapter.restore([taken], ACME)

    def kill(path: Path, *rest: Any, **named: Any) -> None:
        if path.name != "MEMORY.md":
            raise Killed
        put(path, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(committed, "put", kill)
        with pytest.raises(Killed):
            await do()
    between = held(tmp_path)
    assert {name for name in FILES if before.get(name) != between.get(name)} == {"MEMORY.md"}
    told = [one.message for one in await adapter.problems(ACME)]
    assert any("which does not exist" in one for one in told) is (change in {"write", "restore"})
    await do()
    done = held(tmp_path)
    assert done["MEMORY.md"].count("(project_deploy.md)") == (change != "forget")
    assert done["MEMORY.md"].count("(project_prefers_tea.md)") == (change == "write")
    assert [one.message for one in await adapter.problems(ACME)] == []
    assert ("project_deploy.md" in done) is (change != "forget")
    if change == "restore":
        assert done == FILES


@pytest.mark.parametrize("change", ["forget", "restore"])
async def test_a_killed_forget_of_several_leaves_no_source_once_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    adapter = await opened(tmp_path)
    for text in ("Prefers tea.", "Prefers trains."):
        await adapter.write(note(text))
    theirs = [one for name, one in (await every(adapter)).items() if "prefers" in name]
    assert len(theirs) == 2

    async def remove(records: list[Record]) -> None:
        if change == "forget":
            await adapter.forget(ForgetRequest.of(records, ACME))
        else:
            await adapter.restore(
                [Snapshot(handle=one.handle, record=None) for one in records], ACME
            )

    def kill(path: Path, *rest: Any, **named: Any) -> None:
        put(path, *rest, **named)
        if path.name != "MEMORY.md":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(committed, "put", kill)
        with pytest.raises(Killed):
            await remove(theirs)
    await remove(theirs)
    assert held(tmp_path) == FILES
    assert json.loads((tmp_path / "state" / "known.json").read_text()) == {}


async def test_an_undo_that_is_killed_before_a_file_is_back_did_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = await opened(tmp_path)
    await adapter.write(note("Prefers tea."))
    name = "project_prefers_tea.md"
    record = (await every(adapter))[name]
    files = held(tmp_path)
    [taken] = await adapter.snapshot([record.handle], ACME)
    await adapter.correct(correction(record, "Prefers trains."))
    before = (await every(adapter))[name]

    def kill(*_: object, **_named: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(committed, "put", kill)
        with pytest.raises(Killed):
            await adapter.restore([taken], ACME)
    assert (await every(adapter))[name] == before
    await adapter.restore([taken], ACME)
    assert held(tmp_path) == files


async def test_a_folder_that_nothing_can_be_kept_in_is_a_sentence(tmp_path: Path) -> None:
    adapter = await opened(tmp_path)
    (tmp_path / "state").write_text("a file in its place")
    with pytest.raises(Unavailable, match=r"/state cannot be changed"):
        await adapter.write(note("Prefers tea."))
    assert held(tmp_path) == FILES
