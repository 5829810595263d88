"""Git repositories of other programs: read and changed, and nothing that they name is run."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memtui.contract import Conflict, Denied, MemtuiError, Unavailable, Unsupported
from memtui.provider_kit.files import git as module
from memtui.provider_kit.files import guarded_git
from memtui.provider_kit.files.git import FileVersion, repository
from tests.processes import is_running

THEIRS = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Coder", "GIT_AUTHOR_EMAIL": "agent-1@letta.com",
    "GIT_COMMITTER_NAME": "Coder", "GIT_COMMITTER_EMAIL": "agent-1@letta.com",
}  # fmt: skip

Git = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "memory"
    place.mkdir()
    return place


@pytest.fixture
def git(folder: Path) -> Git:
    """Git as the other program runs it; the repository has one commit of two files."""

    def run(*arguments: str, **more: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True,
            env=os.environ | THEIRS | more,
        )  # fmt: skip
        return done.stdout

    run("init", "-q", "-b", "main")
    (folder / "a.md").write_text("One.\n")
    (folder / "b.md").write_text("Other.\n")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    return run


def commit(folder: Path, files: dict[str, bytes | None], author: str | None = None) -> None:
    """Change files as a provider does."""
    with repository(folder) as ours:
        ours.require_ready([*files])
        for name, content in files.items():
            if content is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(content)
        ours.commit(files, "memtui: change", author)


def versions(folder: Path, path: str) -> list[FileVersion]:
    with repository(folder) as ours:
        return ours.versions(path)


def test_commits_of_both_programs_are_one_history(folder: Path, git: Git) -> None:
    commit(folder, {"a.md": b"Two.\n", "new.md": b"New.\n"}, "user:ana")
    assert git("status", "--porcelain") == ""
    (folder / "a.md").write_text("Three.\n")
    git("commit", "-q", "-a", "-m", "theirs")
    commit(folder, {"new.md": None})
    assert git("status", "--porcelain") == ""
    assert git("log", "--format=%an <%ae> %s").splitlines() == [
        "memtui <memtui@localhost> memtui: change",
        "Coder <agent-1@letta.com> theirs",
        "user:ana <memtui@localhost> memtui: change",
        "Coder <agent-1@letta.com> first",
    ]
    told = [(one.author, one.content) for one in versions(folder, "a.md")]
    assert told == [
        ("Coder <agent-1@letta.com>", b"Three.\n"),
        ("user:ana", b"Two.\n"),
        ("Coder <agent-1@letta.com>", b"One.\n"),
    ]
    assert [one.content for one in versions(folder, "new.md")] == [None, b"New.\n"]
    assert versions(folder, "nothing.md") == []
    assert "memtui: change" in git("reflog")
    git("fsck", "--strict")


def test_the_first_commit_of_a_new_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    assert versions(folder, "a.md") == []
    commit(folder, {"a.md": b"One.\n"})
    assert [one.content for one in versions(folder, "a.md")] == [b"One.\n"]


def test_what_others_staged_stays_staged_and_their_edits_stay_theirs(
    folder: Path, git: Git
) -> None:
    (folder / "b.md").write_text("Staged.\n")
    git("add", "b.md")
    (folder / "b.md").write_text("Edited.\n")
    (folder / "c.md").write_text("Untracked.\n")
    before = git("status", "--porcelain")
    commit(folder, {"a.md": b"Two.\n"})
    assert git("status", "--porcelain") == before == "MM b.md\n?? c.md\n"
    assert git("show", "--format=", "--name-only").split() == ["a.md"]
    for theirs in ("b.md", "c.md"):
        with pytest.raises(Conflict, match="nobody committed"):
            commit(folder, {theirs: b"Ours.\n"})
    assert (folder / "b.md").read_text() == "Edited.\n"


def test_line_ends_that_git_converts_leave_the_tree_clean(folder: Path, git: Git) -> None:
    (folder / ".gitattributes").write_text("*.md text eol=crlf\n")
    git("add", ".")
    git("commit", "-q", "-m", "attributes")
    commit(folder, {"a.md": b"One.\r\nTwo.\r\n"})
    assert git("status", "--porcelain") == ""
    assert versions(folder, "a.md")[0].content == b"One.\nTwo.\n"


def test_a_lock_is_waited_for_and_a_commit_made_meanwhile_is_kept(folder: Path, git: Git) -> None:
    lock = folder / ".git" / "index.lock"
    with repository(folder) as ours:
        ours.require_ready(["a.md"])
        (folder / "b.md").write_text("Theirs.\n")
        git("commit", "-q", "-a", "-m", "theirs")
        lock.touch()
        done = threading.Thread(target=ours.commit, args=({"a.md": b"Two.\n"}, "ours", None))
        done.start()
        assert git("log", "-1", "--format=%s") == "theirs\n"
        lock.unlink()
        done.join()
    (folder / "a.md").write_text("Two.\n")
    assert git("status", "--porcelain") == ""
    assert git("log", "--format=%s").split() == ["ours", "theirs", "first"]


def test_a_lock_that_stays_is_told(folder: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.1)
    lock = folder / ".git" / "index.lock"
    lock.touch()
    with pytest.raises(Unavailable, match=r"remove .*index\.lock"):
        commit(folder, {"a.md": b"Two.\n"})
    assert (folder / "a.md").read_text() == "One.\n"
    lock.unlink()
    with repository(folder) as ours:
        lock.touch()
        with pytest.raises(Unavailable, match="could not be committed"):
            ours.commit({"c.md": b"New.\n"}, "ours", None)
        lock.unlink()
    assert git("status", "--porcelain") == ""
    assert git("log", "--format=%s") == "first\n"


def test_a_commit_of_the_same_file_meanwhile_is_a_conflict(folder: Path, git: Git) -> None:
    with repository(folder) as ours:
        (folder / "a.md").write_text("Theirs.\n")
        git("commit", "-q", "-a", "-m", "theirs")
        with pytest.raises(Conflict, match=r"a\.md at this moment"):
            ours.commit({"a.md": b"Ours.\n"}, "ours", None)
    assert git("log", "-1", "--format=%s") == "theirs\n"
    with repository(folder) as ours:
        (folder / "a.md").write_text("Same.\n")
        git("commit", "-q", "-a", "-m", "took it along")
        ours.commit({"a.md": b"Same.\n"}, "ours", None)
    assert git("log", "-1", "--format=%s") == "took it along\n"


@pytest.mark.parametrize("state", ["merge", "rebase", "detached"])
def test_nothing_is_committed_in_the_middle_of_something(
    folder: Path, git: Git, state: str
) -> None:
    if state == "detached":
        git("checkout", "-q", "--detach")
    else:
        git("checkout", "-q", "-b", "side")
        (folder / "a.md").write_text("Side.\n")
        git("commit", "-q", "-a", "-m", "side")
        git("checkout", "-q", "main")
        (folder / "a.md").write_text("Main.\n")
        git("commit", "-q", "-a", "-m", "main")
        with pytest.raises(subprocess.CalledProcessError):
            git(state, "side")
    before = git("log", "--format=%s", "--all"), git("status", "--porcelain")
    with pytest.raises((Conflict, Unsupported), match=r"in the middle of|no branch"):
        commit(folder, {"b.md": b"Ours.\n"})
    assert (git("log", "--format=%s", "--all"), git("status", "--porcelain")) == before


def test_a_work_tree_is_used_and_a_folder_that_only_names_a_repository_is_not(
    folder: Path, git: Git, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git("worktree", "add", "-q", "-b", "side", str(other))
    commit(other, {"a.md": b"Side.\n"})
    assert git("log", "-1", "--format=%s", "side") == "memtui: change\n"
    assert git("log", "-1", "--format=%s", "main") == "first\n"
    assert subprocess.run(
        ["git", "-C", str(other), "status", "--porcelain"], capture_output=True, check=True
    ).stdout == b""  # fmt: skip
    planted = tmp_path / "planted"
    planted.mkdir()
    for target in (folder / ".git", folder / ".git" / "worktrees" / "other"):
        (planted / ".git").write_text(f"gitdir: {target}\n")
        with pytest.raises(Denied, match="does not know this folder"):
            versions(planted, "a.md")


@pytest.mark.parametrize(
    "name",
    [".git", "objects", "refs", "HEAD", "index", "logs/HEAD", "logs", "packed-refs", "refs/heads",
     "refs/heads/main", "config", "info", "shallow", "info/exclude", "refs/tags/one",
     "objects/ff/1"],
)  # fmt: skip
def test_a_link_out_of_the_repository_is_not_followed(
    folder: Path, git: Git, tmp_path: Path, name: str
) -> None:
    git("pack-refs")
    git("tag", "one")
    for one in ("shallow", "info/exclude", "objects/ff/1"):
        (folder / ".git" / one).parent.mkdir(exist_ok=True)
        (folder / ".git" / one).touch()
    git("update-ref", "refs/heads/main", git("rev-parse", "HEAD").strip())
    (folder / ".git" / "refs" / "heads" / "main").write_text(git("rev-parse", "HEAD"))
    place = folder / ".git" / ("" if name == ".git" else name)
    target = tmp_path / "elsewhere"
    place.rename(target)
    place.symlink_to(target)
    with pytest.raises(Denied, match="is a link"):
        versions(folder, "a.md")


@pytest.mark.parametrize(
    "name", ["index", "packed-refs", "shallow", "refs/tags/two", "info/exclude"]
)
def test_a_part_that_is_no_file_is_not_waited_for(folder: Path, git: Git, name: str) -> None:
    place = folder / ".git" / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(Denied, match=f"{name} is no file"):
        versions(folder, "a.md")


def test_a_submodule_is_used(folder: Path, git: Git, tmp_path: Path) -> None:
    place = folder / "part"
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(folder), "part")
    commit(place, {"a.md": b"Part.\n"})
    assert [one.content for one in versions(place, "a.md")][:1] == [b"Part.\n"]
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / ".git").write_text(f"gitdir: {folder}/.git/modules/part\n")
    with pytest.raises(Denied, match="does not know this folder"):
        versions(tmp_path / "planted", "a.md")


def test_objects_of_another_repository_are_not_borrowed(folder: Path, git: Git) -> None:
    (folder / ".git" / "objects" / "info" / "alternates").write_text("/elsewhere/objects\n")
    with pytest.raises(Unsupported, match="borrows objects"):
        versions(folder, "a.md")


def test_an_unknown_extension_is_refused(folder: Path, git: Git) -> None:
    git("config", "core.repositoryformatversion", "1")
    git("config", "extensions.future", "true")
    with pytest.raises(Unsupported, match="'future'"):
        versions(folder, "a.md")


def test_another_users_repository_is_left_alone(
    folder: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(Denied, match="belongs to another user"):
        versions(folder, "a.md")


def test_without_git_a_sentence_says_so(
    folder: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(Unavailable, match="git is not installed"):
        versions(folder, "a.md")


def test_time_and_size_are_limited(folder: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    with repository(folder) as ours:
        monkeypatch.setattr(guarded_git, "_MOST_BYTES", 4)
        with pytest.raises(Unavailable, match="too much"):
            ours.versions("a.md")
    monkeypatch.undo()
    slow = folder.parent / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\ncase $* in *log*) exec sleep 600;; esac\n"
                              f"exec {shutil.which('git')} \"$@\"\n")  # fmt: skip
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    monkeypatch.setattr(guarded_git, "_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="too long"):
        versions(folder, "a.md")


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_what_a_late_git_started_ends_with_it(
    folder: Path, git: Git, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    bin_folder, said = folder.parent / "bin", folder.parent / "pids"
    bin_folder.mkdir()
    (bin_folder / "git").write_text(
        f"#!/bin/sh\ncase $* in *log*) {trap}sleep 600 & echo $! $$ > {said}; wait; wait;; esac\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    (bin_folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setattr(guarded_git, "_SECONDS", 0.5)
    monkeypatch.setattr(guarded_git, "_GRACE_SECONDS", 0.5)
    with pytest.raises(Unavailable, match="too long"):
        versions(folder, "a.md")
    for pid in said.read_text().split():
        while is_running(int(pid)):
            time.sleep(0.01)


def test_a_damaged_repository_is_told_in_one_sentence(folder: Path, git: Git) -> None:
    for name in ("config", "HEAD"):
        place = folder / ".git" / name
        kept = place.read_bytes()
        for content in (b"\0\xff[", None):
            place.unlink()
            if content is None:
                os.mkfifo(place)
            else:
                place.write_bytes(content)
            with pytest.raises(MemtuiError):
                commit(folder, {"a.md": b"Two.\n"})
            place.unlink()
            place.write_bytes(kept)
    assert (folder / "a.md").read_text() == "One.\n"
    commit(folder, {"a.md": b"Two.\n"})


# What a hostile repository plants


class Trap:
    """Makes programs that leave a file of their name behind when they are run."""

    def __init__(self, root: Path) -> None:
        self._bin, self._fired = root / "bin", root / "fired"
        self._bin.mkdir()
        self._fired.mkdir()

    def program(self, name: str, last: str = "exit 1") -> str:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\ntouch {self._fired}/{name}\n{last}\n")
        path.chmod(0o755)
        return str(path)

    def fired(self) -> set[str]:
        found = {one.name for one in self._fired.iterdir()}
        for one in self._fired.iterdir():
            one.unlink()
        return found


HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change",
         "reference-transaction", "pre-auto-gc", "fsmonitor-watchman")  # fmt: skip


def settings(trap: Trap) -> dict[str, str]:
    """Return settings that make git run a program, by the kind of what they name."""
    return {
        "core.fsmonitor": trap.program("fsmonitor", "echo /"),
        "core.sshCommand": trap.program("ssh"), "core.editor": trap.program("editor"),
        "core.pager": trap.program("pager"), "core.gitProxy": trap.program("proxy"),
        "core.askPass": trap.program("askpass"),
        "core.alternateRefsCommand": trap.program("alternate-refs"),
        "pager.log": trap.program("pager-log"), "sequence.editor": trap.program("sequence"),
        "filter.planted.clean": trap.program("clean", "cat"),
        "filter.planted.smudge": trap.program("smudge"),
        "filter.served.process": trap.program("process"),
        "diff.external": trap.program("external"),
        "diff.planted.textconv": trap.program("textconv", 'cat "$1"'),
        "diff.planted.command": trap.program("diff-command"),
        "merge.planted.driver": trap.program("merge-driver"),
        "interactive.diffFilter": trap.program("diff-filter"),
        "gpg.program": trap.program("gpg", "exit 1"), "commit.gpgSign": "true",
        "log.showSignature": "true", "tag.gpgSign": "true",
        "credential.helper": trap.program("credential"),
        "uploadpack.packObjectsHook": trap.program("pack-objects"),
        "trailer.planted.command": trap.program("trailer"), "trailer.planted.key": "planted",
        "alias.versions": f"!{trap.program('alias')}",
        "gc.auto": "1", "maintenance.auto": "true", "gc.recentObjectsHook": trap.program("recent"),
        "remote.origin.url": f"ext::{trap.program('fetch')}", "protocol.ext.allow": "always",
        "remote.origin.promisor": "true", "remote.origin.partialclonefilter": "blob:none",
        "remote.origin.uploadpack": trap.program("uploadpack"),
        "extensions.partialClone": "origin", "core.repositoryformatversion": "1",
        "submodule.sub.update": f"!{trap.program('submodule')}", "submodule.recurse": "true",
        "status.submoduleSummary": "true", "diff.submodule": "diff",
    }  # fmt: skip


def plant(folder: Path, git: Git, trap: Trap, tmp_path: Path) -> str:
    """Make the repository hostile; return the object that a test takes away."""
    inner = folder / "sub"
    for words in (
        ("init", "-q", str(inner)),
        ("-C", str(inner), "commit", "-q", "--allow-empty", "-m", "x"),
    ):
        subprocess.run(["git", *words], check=True, env=os.environ | THEIRS)
    (folder / ".gitmodules").write_text(
        '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n'
    )
    (folder / ".gitattributes").write_text(
        "*.md filter=planted diff=planted merge=planted\n*.bin filter=served\n"
    )
    (folder / "c.txt").write_text("Text.\n")
    (folder / "lost.txt").write_text("This object is fetched when it is read.\n")
    git("add", ".")
    git("commit", "-q", "-m", "planted")
    missing = git("rev-parse", "HEAD:lost.txt").strip()
    for key, value in settings(trap).items():
        git("config", key, value)
    included = tmp_path / "included"
    included.write_text(f'[core]\n\thooksPath = "{tmp_path / "hooks"}"\n')
    with (folder / ".git" / "config").open("a") as file:
        file.write(f'[include]\n\tpath = "{included}"\n')
        file.write(f'[includeIf "gitdir:**"]\n\tpath = "{included}"\n')
    with (inner / ".git" / "config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "{trap.program("of-submodule", "echo /")}"\n')
    (tmp_path / "hooks").mkdir()
    for name in HOOKS:
        for place in (folder / ".git" / "hooks", tmp_path / "hooks"):
            place.mkdir(exist_ok=True)
            hook = place / name
            hook.write_text(Path(trap.program(name, "exit 0")).read_text())
            hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    return missing


def test_a_hostile_repository_runs_nothing(
    folder: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(tmp_path)
    missing = plant(folder, git, trap, tmp_path)
    # What git itself would run shows that the traps work.
    (folder / "a.md").write_text("Edited.\n")
    (folder / "c.txt").write_text("Edited.\n")
    lost, kept = folder / ".git" / "objects" / missing[:2] / missing[2:], tmp_path / "kept"
    for words in (
        ("status",), ("add", "a.md"), ("diff", "HEAD", "--", "c.txt"), ("log", "-p"),
        ("diff", "HEAD", "--", "a.md"), ("commit", "-m", "x"), ("cat-file", "-p", missing),
    ):  # fmt: skip
        if words[0] == "cat-file":
            lost.rename(kept)
        subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, check=False,
            stdin=subprocess.DEVNULL, timeout=20, env=os.environ | THEIRS,
        )  # fmt: skip
    works = trap.fired()
    shown = {"fsmonitor", "clean", "external", "gpg", "of-submodule", "fetch", "textconv"}
    assert {*shown, "diff-command", "pre-commit", "post-index-change"} <= works
    git("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c",
        "filter.planted.clean=cat", "reset", "-q", "--", "a.md")  # fmt: skip
    trap.fired()

    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f'[core]\n\thooksPath = "{tmp_path / "hooks"}"\n')
    exec_path = tmp_path / "exec"
    exec_path.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name, value in {
        "GIT_DIR": str(tmp_path / "no"), "GIT_WORK_TREE": str(tmp_path), "GIT_INDEX_FILE": "/no",
        "GIT_EXTERNAL_DIFF": trap.program("env-diff"), "GIT_PAGER": trap.program("env-pager"),
        "GIT_SSH_COMMAND": trap.program("env-ssh"), "GIT_EDITOR": trap.program("env-editor"),
        "GIT_ASKPASS": trap.program("env-askpass"), "GIT_EXEC_PATH": str(exec_path),
        "GIT_PROXY_COMMAND": trap.program("env-proxy"), "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": trap.program("env-monitor"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tmp_path),
        "GIT_NAMESPACE": "planted", "GIT_TEMPLATE_DIR": str(tmp_path / "hooks"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    with repository(folder) as ours:
        ours.changed(["a.md", "sub"])
        assert ours.read("status", "--porcelain")
        assert b"+Edited." in ours.read("diff", "HEAD", "--", "a.md")
        assert b"+Other." in ours.read("log", "-p", "--", "a.md", "b.md")
        assert b"One." in ours.read("show", "HEAD:a.md")
        assert b"Edited." in ours.read("blame", "--", "a.md")
        assert ours.read("cat-file", "-t", "HEAD") == b"commit\n"
        for words in (("cat-file", "-p", missing), ("show", "HEAD:lost.txt")):
            with pytest.raises(Unavailable, match=f"{missing}|lost.txt"):
                ours.read(*words)
        with pytest.raises(Unavailable, match="versions"):
            ours.read("versions")
        assert ours.versions("lost.txt")[0].content is None
        kept.rename(lost)
        ours.commit({"a.md": b"Edited.\n", "new.md": b"New.\n", "c.bin": b"\0"}, "ours", None)
        for name, driver in {"a.md": "planted", "c.bin": "served"}.items():
            with pytest.raises(Unsupported, match=driver):
                ours.require_ready([name])
        assert [one.author for one in ours.versions("new.md")] == ["memtui"]
    assert trap.fired() == set()
    assert not (tmp_path / "trace").exists()


def test_a_work_tree_that_uses_another_repository_is_left_alone(
    folder: Path, git: Git, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "evil").mkdir(parents=True)
    (other / ".git").write_text(f"gitdir: {other}/evil\n")
    (other / "evil" / "gitdir").write_text(f"{other}/.git\n")
    (other / "evil" / "HEAD").write_text("ref: refs/heads/main\n")
    (other / "evil" / "commondir").write_text(f"{folder}/.git\n")
    before = git("rev-parse", "HEAD")
    with pytest.raises(Denied, match="left alone"):
        versions(other, "a.md")
    (other / ".git").unlink()
    (other / "evil").rename(other / ".git")
    with pytest.raises(Denied, match="left alone"):
        commit(other, {"a.md": b"Two.\n"})
    assert git("rev-parse", "HEAD") == before


def test_a_file_keeps_its_mode_in_the_repository(folder: Path, git: Git) -> None:
    (folder / "a.md").chmod(0o755)
    git("commit", "-q", "-a", "-m", "mode")
    commit(folder, {"a.md": b"Two.\n"})
    assert git("status", "--porcelain") == ""
    assert git("ls-files", "--stage", "a.md").startswith("100755 ")


def test_objects_of_a_shared_repository_stay_shared(folder: Path, git: Git) -> None:
    git("config", "core.sharedRepository", "group")
    before = {*folder.glob(".git/objects/??")}
    commit(folder, {"a.md": b"Two.\n"})
    new = {*folder.glob(".git/objects/??")} - before
    assert new
    assert all(one.stat().st_mode & stat.S_IWGRP for one in new)
