"""Files that cannot be read whole: what can be is, what cannot is named, no byte of it is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Record,
    Scope,
)

from .conftest import COMPANY, SCOPE, Open, ask, fact, note, put

BAD = b"# Facts\n\n- first: 1\n- b\xffd \xe2\x82 byte\n  \xc0 detail\n- last: 3\n"


async def texts(adapter: VaultAdapter, scope: Scope = SCOPE, **fields: str) -> list[str]:
    return [record.text for record in await records(adapter, scope, **fields)]


async def records(adapter: VaultAdapter, scope: Scope = SCOPE, **fields: str) -> list[Record]:
    asked = BrowseRequest(scope=scope, filter=Filter(**fields), sort="created_at")
    return list((await adapter.browse(asked)).records)


async def told(adapter: VaultAdapter, scope: Scope = SCOPE) -> list[str]:
    return [problem.sentence() for problem in await adapter.problems(scope)]


async def test_one_bad_byte_hides_no_other_fact(open_vault: Open, root: Path) -> None:
    path = put(root, "projects/web/facts.md", BAD)
    adapter = await open_vault()
    assert sorted(await texts(adapter)) == ["b\ufffdd \ufffd byte", "first: 1", "last: 3"]
    [problem] = await told(adapter)
    assert problem.startswith(f"{path}:4: The line holds bytes that are not UTF-8, one of 2")
    assert (await adapter.health()).status == "degraded"
    await fact(adapter, "added: 4")
    assert BAD in path.read_bytes()
    [bad] = [one for one in await records(adapter) if "byte" in one.text]
    assert await adapter.get(bad.handle, SCOPE) == bad
    before = await adapter.snapshot([bad.handle], SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(bad.handle,)))
    assert b"\xff" not in path.read_bytes()
    await adapter.restore(before, SCOPE)
    assert BAD in path.read_bytes()
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=bad.handle, text="mended"))
    assert b"- mended\n  \xc0 detail\n" in path.read_bytes()


async def test_a_note_with_a_bad_byte_is_read_and_goes_back_to_the_byte(
    open_vault: Open, root: Path
) -> None:
    content = b"---\ntags: [x]\n---\n\nA gecko in b\xffd light.\n"
    path = put(root, "projects/web/memory/a.md", content)
    adapter = await open_vault()
    [found] = await records(adapter)
    assert found.text == "A gecko in b\ufffdd light."
    assert await ask(adapter, "gecko") == [found.text]
    assert [line.split(": ")[0] for line in await told(adapter)] == [f"{path}:5"]
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=found.handle, topic="t"))
    assert path.read_bytes() == content.replace(b"[x]\n", b"[x]\ntopic: t\n")
    [changed] = await records(adapter)
    assert changed.revision != found.revision
    before = await adapter.snapshot([found.handle], SCOPE)
    kept = path.read_bytes()
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(found.handle,)))
    await adapter.restore(before, SCOPE)
    assert path.read_bytes() == kept


@pytest.mark.parametrize("front", ["---\n- open: 1\n", "---\na: [1\n---\n- open: 1\n"])
async def test_facts_below_frontmatter_that_cannot_be_read(
    open_vault: Open, root: Path, front: str
) -> None:
    path = put(root, "projects/web/facts.md", front)
    adapter = await open_vault()
    assert await texts(adapter) == ["open: 1"]
    [problem] = await told(adapter)
    assert "frontmatter" in problem
    with pytest.raises(Invalid, match="Fix the file by hand first"):
        await fact(adapter, "new: 2")
    assert path.read_text() == front


@pytest.mark.parametrize(
    "front", ["subject_id: [bob\n---", "subject_id: bob", "a: 1\nsubject_id : bob"]
)
async def test_a_note_with_frontmatter_that_cannot_be_read_is_named_and_not_shown(
    open_vault: Open, root: Path, front: str
) -> None:
    """It may say whose the note is."""
    path = put(root, "projects/web/memory/a.md", f"---\n{front}\n\nSecret.\n")
    adapter = await open_vault()
    assert await texts(adapter) == []
    [problem] = await told(adapter)
    assert problem.startswith(f"{path}:1: The frontmatter ")


@pytest.mark.parametrize("owner", ["[bob]", "{name: bob}", "\n- bob"])
async def test_a_note_whose_owner_is_no_name_is_not_shown(
    open_vault: Open, root: Path, owner: str
) -> None:
    path = put(root, "projects/web/memory/a.md", f"---\nsubject_id: {owner}\n---\n\nSecret.\n")
    adapter = await open_vault()
    assert await texts(adapter) == []
    [problem] = await told(adapter)
    assert problem == f"{path}:1: The note's subject_id is no name, so the note is not shown."


async def test_a_history_line_with_a_bad_byte(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    kept = await fact(adapter, "first: 1")
    path = root / "projects/web/facts.history.jsonl"
    path.write_bytes(path.read_bytes() + b'{"fact": "x", "text": "b\xffd"}\n{"fact": cut off')
    assert await texts(adapter) == ["first: 1"]
    assert [line.split(": ")[0] for line in await told(adapter)] == [
        f"{path}:{line}" for line in (2, 2, 3)
    ]
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=kept, text="first: 2"))
    assert b'"b\xffd"}\n{"fact": cut off' in path.read_bytes()


async def test_a_file_that_cannot_be_opened(open_vault: Open, root: Path) -> None:
    put(root, "projects/web/facts.md", "").unlink()
    os.mkfifo(root / "projects/web/facts.md")
    adapter = await open_vault()
    assert "It is not a regular file" in (await told(adapter))[0]


async def test_only_what_the_scope_reads_is_told(open_vault: Open, root: Path) -> None:
    put(root, "projects/web/facts.md", b"- \xff\n")
    put(root, "users/bob/facts.md", b"- \xff\n")
    (root / "projects/api/memory").mkdir(parents=True)
    (root / "projects/api/memory/out.md").symlink_to("/etc/hostname")
    adapter = await open_vault()
    await note(adapter, "Fine.")
    assert len(await told(adapter, COMPANY)) == 3
    assert [one.scope and one.scope.project_id for one in await adapter.problems(SCOPE)] == ["web"]
    bob = SCOPE.model_copy(update={"project_id": None, "subject_id": "bob"})
    assert [one.scope and one.scope.subject_id for one in await adapter.problems(bob)] == ["bob"]
    assert await told(adapter, Scope(company_id="acme", project_id="none")) == []


async def test_of_many_files_that_cannot_be_read_each_is_told(open_vault: Open, root: Path) -> None:
    for number in range(1_001):
        put(root, f"projects/api/{number:04}.md", b"---\nnever closed\n")
    path = put(root, "projects/web/notes/plan.md", b"---\nnever closed\n")
    [problem] = await told(await open_vault())
    assert problem.startswith(str(path))
