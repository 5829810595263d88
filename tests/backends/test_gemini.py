"""Gemini CLI's memories, beside its own modules of the registry's package."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.gemini import GeminiAdapter, entries_of
from memtui.backends.patches import apply_patch, read_patch
from memtui.contract import (
    Conflict,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryRequest,
    Record,
    Scope,
)
from memtui.provider_kit.files.entries import _Content, _Part
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends import one_binding
from tests.backends.one_binding import SCOPE, by_text
from tests.node import NodeProgram

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
    (tmp_path / "web").mkdir()
    return place


@pytest.fixture
def project(folder: Path) -> Path:
    place = folder / "tmp" / "web" / "memory"
    place.mkdir(parents=True)
    (place.parent / ".project_root").write_text(str(folder.parents[1] / "web"))
    return place


_SERVES = """
const m = await import(%s);
const fs = await import('node:fs');
const Run = (async () => {}).constructor;
for await (const line of (await import('node:readline')).createInterface({input: process.stdin})) {
  const {home, app, lines} = JSON.parse(line);
  process.env.GEMINI_CLI_HOME = home;
  process.chdir(app);
  const said = {};
  try {
    const storage = new m.Storage(app, 's');
    await storage.initialize();
    const config = {
      storage, isTrustedFolder: () => true, getExtensionLoader: () => ({getExtensions: () => []}),
      getWorkspaceContext: () => ({getDirectories: () => []}),
      getMemoryBoundaryMarkers: () => ['.git'], getImportFormat: () => 'tree',
      getMcpClientManager: () => undefined,
    };
    said.out = await new Run('m', 'fs', 'config', `let out = null; ${lines}; return out`)(
      m, fs, config);
  } catch (error) { said.error = String(error.stack); }
  process.stdout.write('\\n' + JSON.stringify(said) + '\\nANSWERED\\n');
}
"""


@pytest.fixture(scope="session")
def gemini_process(gemini_core: NodeProgram) -> Iterator[subprocess.Popen[str]]:
    """Gemini's module in a process of Node that reads it once: that takes most of a second."""
    script = _SERVES % json.dumps(str(gemini_core.script))
    with subprocess.Popen(
        [gemini_core.node, "--input-type=module", "-e", script], text=True, encoding="utf-8",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        yield process
        process.kill()


@pytest.fixture
def gemini(gemini_process: subprocess.Popen[str], folder: Path) -> Gemini:
    told, heard = gemini_process.stdin, gemini_process.stdout
    assert told is not None
    assert heard is not None
    place = {"home": str(folder.parent), "app": str(folder.parents[1] / "web")}

    def run(lines: str) -> Any:
        told.write(json.dumps({**place, "lines": lines}) + "\n")
        told.flush()
        said = ""
        while (line := heard.readline()) != "ANSWERED\n":
            assert line, "Gemini's process has ended"
            said = line
        answer = json.loads(said)
        assert "error" not in answer, answer
        return answer.get("out")

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


listed = partial(by_text, key="gemini")
note = partial(one_binding.note, key="gemini")
corrected = partial(one_binding.corrected, key="gemini")


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
    await bound(service, caller, project, project_id="web")
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
    prompt = read_by(gemini)[0]
    assert all(f"- {one}" in prompt for one in wanted)


async def test_what_gemini_writes_over_a_new_memory_does_not_lose_it(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    path = folder / "GEMINI.md"
    path.write_text("- Old.\n")
    await bound(service, caller, folder)

    def overwrite() -> None:
        while "Ours." not in path.read_text():
            pass
        path.write_text("- Old.\n- Theirs.\n")  # of what it had read before

    theirs = asyncio.create_task(asyncio.to_thread(overwrite))
    await service.write(caller, note("Ours."))
    await theirs
    assert {*await listed(service, caller)} == {"Old.", "Theirs.", "Ours."}


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
    assert "- new" in map(str.rstrip, str(there).splitlines())
    there.remove(place)
    assert str(there) == content


def decided_by_gemini(gemini: Gemini, name: str, verb: str = "apply") -> dict[str, Any]:
    kind = name.split("/", maxsplit=1)[0]
    asked = json.dumps([kind, name.removeprefix(f"{kind}/")])
    found: dict[str, Any] = gemini(f"out = await m.{verb}InboxMemoryPatch(config, ...{asked})")
    return found


def put(project: Path, name: str, patch: str) -> Path:
    path = project / ".inbox" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(patch.encode())
    return path


def files_of(home: Path) -> dict[str, bytes]:
    """Return the files of Gemini's home that say something."""
    return {
        str(one.relative_to(home)): one.read_bytes()
        for one in sorted(home.rglob("*"))
        if one.is_file() and one.suffix in {".md", ".patch"}
    }


def set_back(home: Path, before: dict[str, bytes]) -> None:
    for path in files_of(home).keys() - before.keys():
        (home / path).unlink()
    for name, content in before.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


async def waiting(service: MemoryService, caller: Caller) -> list[Any]:
    return list(await service.review.waiting(caller))


INDEX = "# Project Memory\n- One.\n- Two.\n- Three.\n- Four.\n- Five.\n- Six.\n- Seven.\n"
CHANGE = """--- {index}
+++ {index}
@@ -1,3 +1,3 @@
 # Project Memory
-- One.
+- First.
 - Two.
"""
NOTE = """--- /dev/null
+++ {folder}/how-to_build.md
@@ -0,0 +1,2 @@
+# Build
+Run make.
"""
PATCHES = {
    "change": CHANGE,
    "git prefixes": CHANGE.replace("--- ", "--- a/").replace("+++ ", "+++ b/"),
    "a new note": NOTE,
    "a note with its mention": NOTE + CHANGE.replace("First", "See how-to_build.md"),
    "lines moved": CHANGE.replace("@@ -1,3 +1,3 @@", "@@ -5,3 +5,3 @@"),
    "two parts": CHANGE + "@@ -7,2 +7,3 @@\n - Six.\n+- Six and a half.\n - Seven.\n",
    "at the end": "--- {index}\n+++ {index}\n@@ -8,1 +8,2 @@\n - Seven.\n+- Eight.\n"
    "\\ No newline at end of file\n",
    "far away": "--- {index}\n+++ {index}\n@@ -90,0 +91,1 @@\n+- Eight.\n",
    "Windows ends": CHANGE.replace("\n", "\r\n"),
    "does not fit": CHANGE.replace("Two", "2"),
    "is there already": NOTE.replace("how-to_build", "MEMORY"),
    "is gone": CHANGE.replace("MEMORY.md", "gone.md").replace("{index}", "{folder}/gone.md"),
    "wrong counts": CHANGE.replace("-1,3", "-1,9"),
    "no patch": "Remember that we ship on Mondays.\n",
    "half": CHANGE[:60],
    "relative": CHANGE.replace("{index}", "MEMORY.md"),
    "above": CHANGE.replace("{index}", "{folder}/../MEMORY.md"),
    "absolute": CHANGE.replace("{index}", "{folder}/../../../settings.json"),
    "below": NOTE.replace("how-to", "notes/how-to"),
    "hidden": NOTE.replace("how-to", ".how-to"),
    "not markdown": NOTE.replace(".md", ".sh"),
    "renamed": CHANGE.replace("+++ {index}", "+++ {folder}/other.md"),
    "deleted": CHANGE.replace("+++ {index}", "+++ /dev/null"),
    "nowhere": CHANGE.replace("{index}", "/dev/null"),
    "global from private": CHANGE.replace("{index}", "{folder}/../../../GEMINI.md"),
    "one of two leaves": CHANGE + NOTE.replace("{folder}", "{folder}/.."),
}


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        *((name, "\n") for name in PATCHES),
        *((name, "\r\n") for name in ("change", "two parts", "Windows ends", "at the end")),
    ],
)
async def test_accepting_a_patch_leaves_what_gemini_leaves(
    service: MemoryService, caller: Caller, project: Path, gemini: Gemini, name: str, ends: str
) -> None:
    home = project.parents[2]
    (project / "MEMORY.md").write_bytes(INDEX.replace("\n", ends).encode())
    text = PATCHES[name].format(index=project / "MEMORY.md", folder=project)
    put(project, "private/extraction.patch", text)
    before = files_of(home)
    theirs = decided_by_gemini(gemini, "private/extraction.patch")
    after = files_of(home)
    set_back(home, before)

    await bound(service, caller, project)
    [one] = await waiting(service, caller)
    assert (not one.unfit) is theirs["success"], theirs
    if one.unfit:
        assert after == before
        shown = await service.review.show(caller, one.pending_id)
        assert [each.after.text for each in shown.differences if each.after] == [text]
        with pytest.raises(Invalid):
            await service.review.accept(caller, one.pending_id)
        assert files_of(home) == before
        await service.review.refuse(caller, one.pending_id)
        gone = "tmp/web/memory/.inbox/private/extraction.patch"
        assert set(before) - set(files_of(home)) == {gone}
        await service.undo(caller)
        assert files_of(home) == before
        return
    shown = await service.review.show(caller, one.pending_id)
    assert all(each.after for each in shown.differences)
    done = await service.review.accept(caller, one.pending_id, seen=shown.seen)
    assert files_of(home) == after
    assert not await waiting(service, caller)
    undone = await service.undo(caller, done.operation_id)
    assert files_of(home) == before
    assert [again.pending_id for again in await waiting(service, caller)] == [one.pending_id]
    await service.undo(caller, undone.operation_id)
    assert files_of(home) == after


async def test_a_patch_of_the_global_memory(
    service: MemoryService, caller: Caller, project: Path, gemini: Gemini
) -> None:
    home, path = project.parents[2], project.parents[2] / "GEMINI.md"
    patch = f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+- Ana reads Rust.\n"
    put(project, "global/deep/a.patch", patch)
    before = files_of(home)
    assert decided_by_gemini(gemini, "global/deep/a.patch")["success"]
    after = files_of(home)
    set_back(home, before)
    await bound(service, caller, project, project_id="web")
    [one] = await waiting(service, caller)
    assert Scope(company_id="local") in one.owners
    done = await service.review.accept(caller, one.pending_id)
    assert files_of(home) == after
    assert "Ana reads Rust." in read_by(gemini)[0]
    await service.undo(caller, done.operation_id)
    assert files_of(home) == before
    await service.review.refuse(caller, one.pending_id)
    set_back(home, before)
    assert decided_by_gemini(gemini, "global/deep/a.patch", "dismiss")["success"]


async def test_a_patch_through_a_link_is_refused(
    service: MemoryService, caller: Caller, project: Path, tmp_path: Path, gemini: Gemini
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(INDEX)
    (project / "linked.md").symlink_to(outside)
    text = CHANGE.format(index=project / "linked.md")
    put(project, "private/a.patch", text)
    (project / ".inbox" / "private" / "b.patch").symlink_to(outside)
    assert not decided_by_gemini(gemini, "private/a.patch")["success"]
    await bound(service, caller, project)
    [one] = await waiting(service, caller)
    assert "is a link" in one.unfit
    with pytest.raises(Invalid, match="is a link"):
        await service.review.accept(caller, one.pending_id)
    assert outside.read_text() == INDEX


async def test_what_changes_between_showing_and_accepting_is_a_conflict(
    service: MemoryService, caller: Caller, project: Path
) -> None:
    index = project / "MEMORY.md"
    index.write_text(INDEX)
    path = put(project, "private/a.patch", CHANGE.format(index=index))
    await bound(service, caller, project)
    [one] = await waiting(service, caller)
    shown = await service.review.show(caller, one.pending_id)
    index.write_text(INDEX + "- Theirs.\n")
    with pytest.raises(Conflict, match="since you looked"):
        await service.review.accept(caller, one.pending_id, seen=shown.seen)
    path.write_text(path.read_text().replace("First", "1st"))
    with pytest.raises(NotFound):
        await service.review.accept(caller, one.pending_id)
    [now] = await waiting(service, caller)
    done = await service.review.accept(caller, now.pending_id)
    assert index.read_text() == INDEX.replace("One", "1st") + "- Theirs.\n"
    index.write_text("- Else.\n")
    with pytest.raises(Conflict):
        await service.undo(caller, done.operation_id)
    assert index.read_text() == "- Else.\n"


_LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=7)


@given(_LINES, _LINES, _LINES, st.booleans(), st.booleans(), st.integers(0, 3))
def test_a_patch_of_a_text_makes_the_other(
    old: list[str], new: list[str], more: list[str], has_end: bool, gets_end: bool, context: int
) -> None:
    def written(lines: list[str], end: bool) -> list[str]:
        kept = [f"{one}\n" for one in lines]
        return kept if end or not kept or not lines[-1] else [*kept[:-1], lines[-1]]

    before, after = written(old, has_end), written(new, gets_end)
    made = [*unified_diff(before, after, "/f", "/f", n=context)]
    if not made:
        return
    text = "".join(
        one if one.endswith("\n") else f"{one}\n\\ No newline at end of file\n" for one in made
    )
    [patch] = read_patch(text)
    assert apply_patch("".join(before), patch) == "".join(after)
    apply_patch("".join(written(more, has_end)), patch)  # fits or not, and ends
