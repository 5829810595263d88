"""A project's own specs and docs: read where they lie, followed, and never written."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.backends.vault.layout import handle_of
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    Record,
    Scope,
    SourceKind,
    SourceRef,
)

from .conftest import COMPANY, SCOPE, Open, ask, contents, note, put

ID = "projects/web/.workspace/"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The project's folder, a git repository."""
    folder = tmp_path / "src" / "web"
    folder.mkdir(parents=True)
    git = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(["git", "init", "-q", folder], check=True, env=git)
    return folder


async def documents(adapter: VaultAdapter, scope: Scope = COMPANY) -> dict[str, Record]:
    asked = BrowseRequest(scope=scope, filter=Filter(kind="document"), sort="title", limit=1000)
    found = (await adapter.browse(asked)).records
    return {one.handle.provider_record_id.removeprefix(ID): one for one in found}


async def test_what_is_read_is_what_the_patterns_name_and_git_does_not_ignore(
    open_vault: Open, code: Path
) -> None:
    ignored = {
        ".gitignore": "build/\n*.draft.md\n!docs/kept.draft.md\n",
        "docs/deep/.gitignore": "/secret.md\n",
        "docs/build/out.md": "", "docs/a.draft.md": "", "docs/deep/secret.md": "",
    }  # fmt: skip
    passed_by = ("src/notes.md", "docs/.hidden/x.md", "docs/node_modules/x.md", "docs/code.py")
    read = ("README.md", "docs/a.md", "docs/deep/b.md", "docs/kept.draft.md", "specs/One.md")
    for path, text in {**ignored, **dict.fromkeys((*passed_by, *read))}.items():
        put(code, path, text or f"About {path}.")
    (code / "docs/link.md").symlink_to(code / "src/notes.md")
    git = ["git", "-C", str(code), "ls-files", "-o", "--exclude-standard", "docs", "*.md"]
    listed = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    assert "docs/kept.draft.md" in listed
    assert not {"docs/build/out.md", "docs/a.draft.md", "docs/deep/secret.md"} & set(listed)

    for _ in range(2):  # a vault that has no folder yet stays one
        adapter = await open_vault(config={"workspaces": {"web": str(code)}})
        assert sorted(await documents(adapter)) == sorted(read)
    for path in ("docs/a.draft.md", "docs/deep/secret.md", "../../etc/passwd.md", "src/notes.md"):
        assert await adapter.get(handle_of(ID + path), COMPANY) is None
    only = {"path": str(code), "patterns": ["*.md", "!/docs/**"]}
    config = {"workspaces": {"web": only, "specs": str(code / "specs")}}
    chosen = await open_vault(config=config, data="other")
    assert sorted(await documents(chosen)) == [
        "README.md", "projects/specs/.workspace/One.md", "specs/One.md", "src/notes.md",
    ]  # fmt: skip


async def test_a_document_is_the_projects_whatever_it_says_of_itself(
    open_vault: Open, code: Path, root: Path
) -> None:
    front = "subject_id: ana\nkind: fact\npinned: true\nexpires: 2020-01-01\ntags: [adr]\n"
    file = put(code, "docs/adr.md", f"---\n{front}---\n\n# Choosing SQLite\n\nSee [[plan]] #db\n")
    put(code, "docs/odd.md", "---\nnot: [closed\n---\nGeckos stay.\n")
    put(code, "docs/empty.md", "\n")
    put(root, "projects/web/notes/plan.md", "By the [[docs/adr]].")
    adapter = await open_vault(config={"workspaces": {"web": str(code)}})
    found = await documents(adapter)
    assert sorted(found) == ["docs/adr.md", "docs/odd.md"]
    record = found["docs/adr.md"]
    assert record == await adapter.get(record.handle, SCOPE)
    assert (record.scope, record.kind, record.read_only) == (SCOPE, "document", True)
    assert (record.title, record.tags) == ("Choosing SQLite", ("adr", "db"))
    assert (record.pinned, record.expires_at, record.created_by) == (False, None, None)
    assert record.source == SourceRef(
        kind=SourceKind.EXTERNAL_DOCUMENT, company_id="acme", external_ref=str(file)
    )
    assert record.location is not None
    assert (record.location.path, record.location.line) == (str(file), 9)
    other = Scope(company_id="acme", project_id="other")
    assert await documents(adapter, other) == {}
    assert await adapter.get(record.handle, other) is None
    assert await ask(adapter, "SQLite") == [record.text]
    assert (await ask(adapter, "geckos"))[0].endswith("Geckos stay.")
    linked = (await adapter.links([record.handle], SCOPE))[record.handle.provider_record_id]
    plan = handle_of("projects/web/notes/plan.md")
    assert (
        [one.handle for one in linked.links] == [one.handle for one in linked.backlinks] == [plan]
    )


async def test_a_document_is_never_changed_or_copied(
    open_vault: Open, code: Path, root: Path
) -> None:
    put(code, "docs/a.md", "# A\n\nIt stays.\n")
    adapter = await open_vault(config={"workspaces": {"web": str(code)}})
    own = await note(adapter, "A note.")
    handle = handle_of(f"{ID}docs/a.md")
    before = contents(code) | contents(root)
    with pytest.raises(Denied, match=r"docs/a\.md is a file of the project web itself"):
        await adapter.correct(CorrectRequest(scope=SCOPE, handle=handle, text="Changed."))
    with pytest.raises(Denied, match="change it there"):
        await adapter.forget(ForgetRequest(scope=SCOPE, handles=(own, handle)))
    [snapshot] = await adapter.snapshot([handle], SCOPE)
    with pytest.raises(Invalid, match="is not the path of a note"):
        await adapter.restore([snapshot], SCOPE)
    with pytest.raises(Invalid, match="is not the path of a note"):
        await note(adapter, "Written.", record_id=f"{ID}docs/b.md")
    assert contents(code) | contents(root) == before
    assert [one for one in root.rglob("*") if one.name == "a.md"] == []


async def test_documents_are_followed_and_a_folder_that_is_gone_is_told(
    open_vault: Open, code: Path, root: Path
) -> None:
    root.mkdir()
    put(code, "docs/a.md", "First words.")
    config = {"workspaces": {"web": str(code)}, "refresh_seconds": 3600}
    adapter = await open_vault(config=config)
    watching = adapter.watch()
    coming = asyncio.ensure_future(anext(watching))
    while not coming.done():
        put(code, "docs/a.md", "Other words.")
        put(code, "docs/b.draft.md", "Ignored.")
        put(code, ".gitignore", "*.draft.md")
        await asyncio.wait([coming], timeout=0.3)
    assert await coming == [handle_of(f"{ID}docs/a.md")]
    await watching.aclose()  # type: ignore[attr-defined]
    assert await ask(adapter, "other words") == ["Other words."]

    adapter = await open_vault(config=config | {"refresh_seconds": 0}, data="other")
    code.rename(code.with_name("away"))
    assert await documents(adapter) == {}
    [problem] = await adapter.problems(SCOPE)
    assert (problem.scope, str(code) in problem.sentence()) == (SCOPE, True)
    assert list(await adapter.problems(Scope(company_id="acme", project_id="other"))) == []
    assert (await adapter.health()).status == "degraded"


@pytest.mark.parametrize(
    ("workspaces", "words"),
    [
        ({"web": "src"}, "give an absolute path"),
        ({"web": {"path": "/src", "pattern": []}}, "pattern"),
        ({"": "/src"}, "project id must have"),
        ({"web": "{root}/projects"}, "lies in the vault"),
    ],
)
async def test_a_workspace_that_cannot_be_is_refused(
    open_vault: Open, root: Path, workspaces: dict[str, object], words: str
) -> None:
    named = {
        name: value.format(root=root) if isinstance(value, str) else value
        for name, value in workspaces.items()
    }
    with pytest.raises(Invalid, match=words):
        await open_vault(config={"workspaces": named})
