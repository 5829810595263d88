"""Gemini CLI's memories, beside its own modules of the registry's package."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.gemini import GeminiAdapter, entries_of
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.provider_kit.files.entries import _Content, _Part
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.node import NodeProgram

SCOPE = Scope(company_id="local")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
CONTENT = """\
# About Ana

Ana writes Go,
and reads Rust.

## Gemini Added Memories
- Deploys leave main.
- Tests run with pytest:

  ```
  pytest -q

  # not a heading
  ```
1. First format, then lint.
* No weekends.

## Never
- Push to main by force.
"""

Gemini = Callable[[str], Any]
"""Runs lines of JavaScript beside Gemini's module `m`, with `config`; returns their `out`."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "home" / ".gemini"
    place.mkdir(parents=True)
    (tmp_path / "app").mkdir()
    return place


@pytest.fixture
def project(folder: Path) -> Path:
    place = folder / "tmp" / "app" / "memory"
    place.mkdir(parents=True)
    (place.parent / ".project_root").write_text(str(folder.parents[1] / "app"))
    return place


@pytest.fixture
def gemini(gemini_core: NodeProgram, folder: Path) -> Gemini:
    return running(gemini_core, folder)


def running(core: NodeProgram, folder: Path) -> Gemini:
    app = folder.parents[1] / "app"

    def run(lines: str) -> Any:
        script = f"""
        const m = await import({json.dumps(str(core.script))});
        const fs = await import('node:fs');
        const storage = new m.Storage({json.dumps(str(app))}, 's');
        await storage.initialize();
        const config = {{
          storage, isTrustedFolder: () => true, getExtensionLoader: () => ({{getExtensions: () => []}}),
          getWorkspaceContext: () => ({{getDirectories: () => []}}),
          getMemoryBoundaryMarkers: () => ['.git'], getImportFormat: () => 'tree',
          getMcpClientManager: () => undefined,
        }};
        let out = null;
        {lines}
        process.stdout.write('\\n' + JSON.stringify(out));
        """  # noqa: E501
        ran = subprocess.run(
            [core.node, "--input-type=module", "-"], input=script, capture_output=True, text=True,
            check=False, cwd=app, env=os.environ | {"GEMINI_CLI_HOME": str(folder.parent)},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])

    return run


def read_by(gemini: Gemini) -> tuple[str, str]:
    """Return what Gemini puts into a prompt: its global memory, and the project's."""
    found = gemini(
        "const read = new m.MemoryContextManager(config); await read.refresh();"
        "out = [read.getGlobalMemory(), read.getUserProjectMemory()]"
    )
    return found[0], found[1]


async def bound(service: MemoryService, caller: Caller, folder: Path, **config: Any) -> None:
    await service.bindings.add(caller, "gemini", "gemini", {"path": str(folder), **config})


async def listed(service: MemoryService, caller: Caller) -> dict[str, Record]:
    request = BrowseRequest(binding_key="gemini", scope=SCOPE, limit=1000)
    found = await service.browse(caller, request)
    return {one.text: one for one in found.records}


def note(text: str, **fields: Any) -> WriteRequest:
    asked = {"binding_key": "gemini", "scope": SCOPE, "source": SOURCE, "content": text}
    return WriteRequest.model_validate({**asked, **fields})


def corrected(record: Record, text: str) -> CorrectRequest:
    return CorrectRequest(binding_key="gemini", scope=SCOPE, handle=record.handle, text=text)


def forgotten(*records: Record) -> ForgetRequest:
    handles = tuple(one.handle for one in records)
    return ForgetRequest(binding_key="gemini", scope=SCOPE, handles=handles)


async def test_gemini_reads_each_change_and_an_undo_leaves_the_same_bytes(
    service: MemoryService, caller: Caller, folder: Path, gemini: Gemini
) -> None:
    path = folder / "GEMINI.md"
    path.write_text(CONTENT)
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert list(found) == [
        "Ana writes Go,\nand reads Rust.",
        "Deploys leave main.",
        "Tests run with pytest:\n\n```\npytest -q\n\n# not a heading\n```",
        "First format, then lint.",
        "No weekends.",
        "Push to main by force.",
    ]
    asked = QueryRequest(binding_key="gemini", scope=SCOPE, query="where do deploys leave from")
    assert (await service.query(caller, asked)).snippets[0].text == "Deploys leave main."
    paragraph, deploys, tests, lint, weekends, never = found.values()
    for change, there in (
        (
            lambda: service.write(caller, note("We ship on Mondays.")),
            "* No weekends.\n- We ship on Mondays.\n\n## Never",
        ),
        (
            lambda: service.correct(caller, corrected(deploys, "Deploys\nleave release.")),
            "- Deploys\n  leave release.\n- Tests",
        ),
        (lambda: service.correct(caller, corrected(lint, "Lint first.")), "1. Lint first.\n"),
        (
            lambda: service.correct(caller, corrected(paragraph, "Ana writes Go.")),
            "# About Ana\n\nAna writes Go.\n\n## Gemini",
        ),
        (
            lambda: service.forget(caller, forgotten(deploys, weekends)),
            "  ```\n1. First format, then lint.\n\n## Never",
        ),
        (
            lambda: service.forget(caller, forgotten(deploys, tests, lint, weekends)),
            "## Gemini Added Memories\n\n## Never\n- Push",
        ),
        (lambda: service.forget(caller, forgotten(never)), "* No weekends.\n\n## Never"),
        (lambda: service.forget(caller, forgotten(*found.values())), "## Never"),
    ):
        before = path.read_bytes()
        done = await change()
        after, theirs = path.read_bytes(), read_by(gemini)[0]
        assert there.strip() in theirs
        assert after.decode().strip() in theirs
        undone = await service.undo(caller, done.operation_id)
        assert path.read_bytes() == before
        await service.undo(caller, undone.operation_id)
        assert path.read_bytes() == after
        await service.undo(caller)
        assert path.read_bytes() == before


async def test_the_memory_of_a_project(
    service: MemoryService, caller: Caller, project: Path, gemini: Gemini
) -> None:
    index, notes = project / "MEMORY.md", project / "debugging.md"
    await bound(service, caller, project, project_id="app")
    await service.write(caller, note("The database runs on 5433."))
    assert "The database runs on 5433." in read_by(gemini)[1]
    notes.write_text("# Debugging\n\nUse gdb.\n")
    index.write_text("# Project Memory\n- The database runs on 5433.\n- See debugging.md.\n")
    assert {text: one.kind for text, one in (await listed(service, caller)).items()} == {
        "The database runs on 5433.": "note", "See debugging.md.": "note", "Use gdb.": "debugging",
    }  # fmt: skip
    await service.write(caller, note("Or lldb.", kind="debugging"))
    assert notes.read_text() == "# Debugging\n\nUse gdb.\n- Or lldb.\n"
    await service.write(caller, note("Another."))
    assert index.read_text().endswith("- See debugging.md.\n- Another.\n")
    assert "Another." in read_by(gemini)[1]


async def test_neither_loses_what_the_other_writes_at_the_same_time(
    service: MemoryService, caller: Caller, folder: Path, gemini: Gemini
) -> None:
    path = folder / "GEMINI.md"
    path.write_text("- Old.\n")
    await bound(service, caller, folder)
    # Gemini's tools write a file anew from what they have just read.
    theirs = asyncio.create_task(asyncio.to_thread(gemini, f"""
        const path = {json.dumps(str(path))};
        for (let n = 0; n < 25; n++) {{
          fs.writeFileSync(path, fs.readFileSync(path, 'utf-8') + `- Theirs ${{n}}.\\n`);
          await new Promise(r => setTimeout(r, 60));
        }}
    """))  # fmt: skip
    for n in range(8):
        await service.write(caller, note(f"Ours {n}."))
    await theirs
    wanted = {"Old."} | {f"Theirs {n}." for n in range(25)} | {f"Ours {n}." for n in range(8)}
    assert {*await listed(service, caller)} == wanted
    assert all(f"- {one}" in read_by(gemini)[0] for one in wanted)


async def test_a_thousand_memories(
    service: MemoryService, caller: Caller, folder: Path, gemini: Gemini
) -> None:
    path = folder / "GEMINI.md"
    path.write_text("## Gemini Added Memories\n" + "".join(f"- Note {n}.\n" for n in range(1000)))
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert len(found) == 1000
    before = path.read_bytes()
    await service.forget(caller, forgotten(*(found[f"Note {n}."] for n in range(0, 1000, 3))))
    kept = [f"- Note {n}." for n in range(1000) if n % 3]
    assert read_by(gemini)[0].splitlines()[2:-1] == kept
    await service.undo(caller)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" blank before", "blanks"),
        ("one\r\ntwo", "carriage"),
        ("- -", "give this text back"),
        ("See @docs/style.md", "between backticks"),
    ],
)
async def test_what_gemini_would_read_otherwise_is_refused(
    service: MemoryService, caller: Caller, folder: Path, text: str, words: str
) -> None:
    path = folder / "GEMINI.md"
    path.write_text(CONTENT)
    await bound(service, caller, folder)
    with pytest.raises(Invalid, match=words):
        await service.write(caller, note(text))
    assert path.read_text() == CONTENT


async def test_an_import_is_no_text_for_gemini_unless_it_is_between_backticks(
    service: MemoryService, caller: Caller, folder: Path, gemini: Gemini
) -> None:
    await bound(service, caller, folder)
    await service.write(caller, note("See `@docs/style.md`, ask ana@x.org."))
    assert "- See `@docs/style.md`, ask ana@x.org." in read_by(gemini)[0]
    (folder / "GEMINI.md").write_text("- Old: @docs/style.md\n")
    assert "Import failed" in read_by(gemini)[0]
    [there] = (await listed(service, caller)).values()
    await service.correct(caller, corrected(there, "New: @docs/style.md"))
    assert (folder / "GEMINI.md").read_text() == "- New: @docs/style.md\n"


async def test_what_was_changed_since_is_a_conflict(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    path = folder / "GEMINI.md"
    path.write_text("- One.\n")
    await bound(service, caller, folder)
    [one] = (await listed(service, caller)).values()
    done = await service.correct(caller, corrected(one, "Two."))
    path.write_text("- Three.\n")
    with pytest.raises(Conflict):
        await service.undo(caller, done.operation_id)
    assert path.read_text() == "- Three.\n"


_PARTS = st.lists(
    st.sampled_from(["- a", "* b\n  more", "c", "## H", "# T", "```\nx\n\n- y\n```", "", "---",
                     "1. d\n\n   e", "- f  ", "\ufeff", "## Gemini Added Memories", "g\r"]),
    max_size=9,
)  # fmt: skip


def apart(content: str) -> _Content:
    return _Content(content, [*entries_of(content)], "GEMINI.md", on_lines=True)


@given(st.data(), _PARTS, st.sampled_from(["", "\n", "\n\n"]))
def test_entries_come_back_into_the_same_bytes(
    data: st.DataObject, parts: list[str], end: str
) -> None:
    content = "\n".join(parts) + end
    there = apart(content)
    assert str(there) == content
    heads = [one.rstrip() for one in content.splitlines() if one.startswith("#")]
    places = data.draw(st.lists(st.integers(0, len(there.parts) - 1), unique=True)
                       if there.parts else st.just([]))  # fmt: skip
    taken = {at: (there.parts[at], there.around(at)) for at in places}
    for at in sorted(places, reverse=True):
        there.remove(at)
    left = str(there).splitlines()
    assert [one.rstrip() for one in left if one.startswith("#")] == heads
    for at, (part, around) in sorted(taken.items()):
        there.insert(at, part, around, "\n")
    assert str(there) == content


@given(_PARTS, st.sampled_from(["", "\n", "\n\n"]))
def test_an_added_entry_leaves_the_same_bytes_when_it_is_removed(
    parts: list[str], end: str
) -> None:
    content = "\n".join(parts) + end
    adapter: GeminiAdapter = object.__new__(GeminiAdapter)
    there = apart(content)
    at = adapter.place_of_new(content)
    assert at is not None
    there.add(at, _Part("- new", "new", ""))
    place = [one.text for one in there.parts].index("new")
    assert "- new" in str(there).splitlines()
    there.remove(place)
    assert str(there) == content
