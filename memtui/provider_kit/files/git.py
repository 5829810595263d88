"""Reads and changes git repositories of other programs without running anything that they name.

The config and hooks of a repository name programs that git runs: filters, monitors, signers.
So git is never pointed at the repository itself. It is given a git folder of memtui's own, whose
config memtui writes, and in which only the objects, the refs and the reflog are links into the
repository; the environment is memtui's own too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import NamedTuple

from memtui.contract import Conflict, Denied, Unavailable, Unsupported
from memtui.provider_kit.files.reading import FileRefused, read_whole
from memtui.scratch import Scratch

_SECONDS = 20.0
"""Time limit of one git command."""
_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_MOST_BYTES = 64 * 1024 * 1024
"""Most bytes of the output of one git command."""
_MOST_VERSIONS = 200
_MOST_ARGUMENTS = 500
_CONFIG = """[core]
\tbare = false
\tlogAllRefUpdates = true
\tfsync = all
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
[gc]
\tauto = 0
[maintenance]
\tauto = false
[protocol]
\tallow = never
"""
_TAKEN_OVER = {
    "core.repositoryformatversion": ("0", "1"),
    "core.filemode": ("true", "false"),
    "core.ignorecase": ("true", "false"),
    "core.precomposeunicode": ("true", "false"),
    "core.autocrlf": ("true", "false", "input"),
    "core.eol": ("lf", "crlf", "native"),
    "extensions.objectformat": ("sha1", "sha256"),
}
"""Settings that say how a repository is stored, and their values; no other one is read."""
_EXTENSIONS = frozenset(
    {"noop", "objectformat", "partialclone", "preciousobjects", "relativeworktrees",
     "worktreeconfig"}
)  # fmt: skip
_UNFINISHED = {
    "MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase", "rebase-apply": "a rebase", "sequencer": "a rebase",
}  # fmt: skip
_OF_WORK_TREE = ("status", "diff", "diff-files", "diff-index")
_OWN_EMAIL = "memtui@localhost"


class FileVersion(NamedTuple):
    """A file as one commit left it."""

    commit: str
    author: str
    """The name and address of the author; memtui's own commits have no address."""
    moment: datetime | None
    content: bytes | None
    """None: the commit removed the file."""


class _GitFailed(Exception):
    """Git ended with an error, whose words are the text."""


class GitRepository:
    """A repository in a folder: its history, its state, and commits of single files. Blocking."""

    def __init__(self, folder: Path, own: Path) -> None:
        self.folder = folder
        self._own = own
        path = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
        program = shutil.which("git", path=path)
        if program is None:
            raise Unavailable(
                f"git is not installed, so the history of {folder} can neither be read nor "
                "continued; install git."
            )
        self._git = self._git_folder()
        self._common = self._git
        if (pointer := self._git / "commondir").exists():
            self._common = self._mine(Path(self._git, _line_of(pointer)).resolve())
        head, names = _line_of(self._git / "HEAD"), ("objects", "refs", "config")
        self._branch = head.removeprefix("ref: ") if head.startswith("ref: refs/heads/") else None
        for name in names:
            self._mine(self._common / name)
        self._refuse_links()
        self._environment = {
            "PATH": path, "LC_ALL": "C", "HOME": str(own), "XDG_CONFIG_HOME": str(own),
            "GIT_DIR": str(own / "git"), "GIT_INDEX_FILE": str(self._git / "index"),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0",
            "GIT_GRAFT_FILE": str(own / "none"), "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "", "GIT_EDITOR": "false",
            "GIT_ASKPASS": "false",
            "GIT_COMMITTER_NAME": "memtui", "GIT_COMMITTER_EMAIL": _OWN_EMAIL,
        }  # fmt: skip
        self._program = program
        self._make_own(head)
        self._base = self._head()
        """The last commit that is known not to change files which memtui changes."""

    def _git_folder(self) -> Path:
        """Return the git folder; `.git` may be a file only in a work tree that it knows."""
        place = self.folder / ".git"
        self._mine(self.folder)
        self._mine(place)
        if place.is_dir():
            return place
        named = Path(self.folder, _line_of(place).removeprefix("gitdir: "))
        back = named / "gitdir"
        if not back.is_file() or Path(_line_of(back)).resolve() != place.resolve():
            raise Denied(
                f"{place} leads to {named}, which does not know this folder, so it is left alone."
            )
        return self._mine(named.resolve())

    def _mine(self, path: Path) -> Path:
        """Return a path. Raises `Denied` if it is a link or another user's."""
        try:
            found = path.lstat()
        except OSError as error:
            raise Unavailable(
                f"{self.folder} is not a whole git repository: {path} cannot be read "
                f"({error.strerror})."
            ) from error
        if path.is_symlink():
            raise Denied(f"{path} is a link, so the git repository is left alone.")
        if found.st_uid != os.geteuid():
            raise Denied(
                f"{path} belongs to another user, so the git repository is left alone; only its "
                "owner can use it."
            )
        return path

    def _refuse_links(self) -> None:
        """Refuse links where git would write, and objects that are elsewhere."""
        branch = Path(self._branch or "refs")
        if not branch.is_relative_to("refs") or ".." in branch.parts:
            raise Denied(f"{self._git / 'HEAD'} names no branch, so the repository is left alone.")
        above = [self._common / one for one in (branch, *branch.parents[:-1])]
        logs = [self._common / "logs" / one for one in (branch, *branch.parents)]
        objects = self._common / "objects"
        stored = [Path(one.path) for one in os.scandir(objects)]
        beside = [self._git / one for one in ("HEAD", "index", "logs", "logs/HEAD")]
        packed = [self._common / one for one in ("packed-refs", "info", "info/attributes")]
        for path in (*above, *logs, *stored, *beside, *packed):
            if path.is_symlink():
                raise Denied(f"{path} is a link, so the git repository is left alone.")
        for name in ("alternates", "http-alternates"):
            if (objects / "info" / name).exists():
                raise Unsupported(
                    f"{self.folder} borrows objects of another repository ({objects}/info/{name}), "
                    "which memtui does not read; `git repack -a` makes it whole."
                )

    def _make_own(self, head: str) -> None:
        own = self._own / "git"
        (own / "logs").mkdir(parents=True)
        (own / "HEAD").write_bytes(os.fsencode(f"{head}\n"))
        for name in ("objects", "refs", "packed-refs", "info", "shallow"):
            (own / name).symlink_to(self._common / name)
        for name, place in (("HEAD", self._git / "logs"), ("refs", self._common / "logs")):
            if (place / name).exists():
                (own / "logs" / name).symlink_to(place / name)
        (own / "config").write_text(_CONFIG, "ascii")
        theirs = read_whole(self._common / "config")[0]
        config = self._run("config", "--file", "-", "--no-includes", "-z", "--list", given=theirs)
        lines = [_CONFIG]
        for pair in config.decode("utf-8", "replace").split("\0"):
            key, _, value = pair.partition("\n")
            section, _, name = key.rpartition(".")
            is_known = name in _EXTENSIONS or (name, value) == ("refstorage", "files")
            if section == "extensions" and not is_known:
                raise Unsupported(
                    f"{self.folder} is stored with git's extension {name[:40]!r}, which memtui "
                    "does not know."
                )
            if value in _TAKEN_OVER.get(key, ()):
                lines.append(f"[{section}]\n\t{name} = {value}\n")
        (own / "config").write_text("".join(lines), "ascii")

    def read(self, *arguments: str, given: bytes = b"", tree: Path | None = None) -> bytes:
        """Return the output of a git command that only reads, such as `log` and `blame`.

        `tree`: the work tree, if it is not the repository's folder.

        Raises:
            Unavailable: it failed, took too long, or answered too much.
        """
        try:
            return self._run(*arguments, given=given, tree=tree)
        except _GitFailed as error:
            words = f"`git {arguments[0]}` failed in {self.folder}: {error}"
            raise Unavailable(words) from error

    def _run(self, *arguments: str, given: bytes = b"", tree: Path | None = None,
             author: str | None = None) -> bytes:  # fmt: skip
        command, *rest = arguments
        if command in _OF_WORK_TREE:  # git would ask each submodule by its own config
            rest = ["--ignore-submodules=all", *rest]
        names = {"GIT_AUTHOR_NAME": author or "memtui", "GIT_AUTHOR_EMAIL": _OWN_EMAIL,
                 "GIT_WORK_TREE": str(tree or self.folder)}  # fmt: skip
        with TemporaryFile(dir=self._own) as stdin, TemporaryFile(dir=self._own) as errors:
            stdin.write(given)
            stdin.seek(0)
            process = subprocess.Popen(  # noqa: S603 - git itself, by the person's own path
                [self._program, "--no-pager", command, *rest],
                stdin=stdin, stdout=subprocess.PIPE, stderr=errors, cwd=self._own,
                env=self._environment | names, start_new_session=True,
            )  # fmt: skip
            timer = threading.Timer(_SECONDS, process.terminate)  # git removes its locks then
            timer.start()
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                output = process.stdout.read(_MOST_BYTES + 1)
                if len(output) > _MOST_BYTES:
                    process.terminate()
                process.stdout.close()
                code = process.wait()
            finally:
                timer.cancel()
            if code < 0 or len(output) > _MOST_BYTES:
                raise Unavailable(
                    f"`git {command}` took too long, or answered too much, in {self.folder}."
                )
            if code:
                errors.seek(0)
                words = errors.read(2_000).decode("utf-8", "replace").split()
                raise _GitFailed(f"{' '.join(words) or f'exit code {code}'}.")
            return output

    def versions(self, path: str) -> list[FileVersion]:
        """Return how commits left a file, the newest first; at most 200."""
        if self._head() is None:
            return []
        log = self.read(
            "log", "-z", f"--max-count={_MOST_VERSIONS}", "--raw", "--no-abbrev",
            "--no-renames", "--diff-merges=first-parent",
            "--format=format:%x01%H%x02%an%x02%ae%x02%at%x02", "--", path,
        ).decode("utf-8", "replace")  # fmt: skip
        commits = [one.split("\x02") for one in log.split("\x01")[1:] if one.count("\x02") == 4]
        blobs = [_blob_of(raw) for *_, raw in commits]
        contents = self._blobs([one for one in blobs if one is not None])
        return [
            FileVersion(
                commit,
                name if email == _OWN_EMAIL else f"{name} <{email}>",
                _moment_of(stamp),
                None if blob is None else contents.get(blob),
            )
            for (commit, name, email, stamp, _), blob in zip(commits, blobs, strict=True)
        ]

    def _blobs(self, names: Sequence[str]) -> dict[str, bytes]:
        output = self.read("cat-file", "--batch", given="\n".join([*names, ""]).encode())
        found: dict[str, bytes] = {}
        at = 0
        for name in names:
            header, at = output[at : output.index(b"\n", at)], output.index(b"\n", at) + 1
            if header.endswith(b"missing"):
                continue
            size = int(header.rsplit(b" ", 1)[1])
            found[name] = output[at : at + size]
            at += size + 1
        return found

    def changed(self, paths: Sequence[str], tree: Path | None = None) -> list[str]:
        """Return those of some files that differ from the last commit, or are in none.

        `tree`: the folder that has them, if it is not the repository's.
        """
        few = paths if len(paths) <= _MOST_ARGUMENTS else ()
        shown = self.read(
            "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all",
            "--ignored", "--", *few, tree=tree,
        )  # fmt: skip
        asked = {*paths}
        found = (os.fsdecode(line[3:]) for line in shown.split(b"\0") if line)
        return [one for one in found if one in asked]

    def require_ready(self, paths: Sequence[str]) -> None:
        """Check that files can be committed, before they are changed.

        Raises:
            Conflict: some have changes that nobody committed, or a merge is unfinished.
            Unavailable: another program holds the lock of the repository.
            Unsupported: no branch is checked out, or a filter changes what is committed.
        """
        self._require_quiet()
        listed = self.read("check-attr", "-z", "--stdin", "filter", given=_lines(paths))
        fields = os.fsdecode(listed).split("\0")
        for path, value in zip(fields[::3], fields[2::3], strict=False):
            if value not in {"unspecified", "unset"}:
                raise Unsupported(
                    f"{self.folder / path} is committed through the filter {value!r}, which memtui "
                    "does not run; change it with its own program."
                )
        if differing := self.changed(paths):
            raise Conflict(
                f"{self.folder / differing[0]} has changes that nobody committed; commit them "
                f"first (`git -C {self.folder} commit`), so that they keep their author."
            )
        until = time.monotonic() + _LOCK_SECONDS
        while (lock := self._git / "index.lock").exists():
            if time.monotonic() > until:
                raise Unavailable(
                    f"Another program is changing {self.folder}; try again. If none runs, remove "
                    f"{lock}."
                )
            time.sleep(_LOOK_SECONDS)

    def _require_quiet(self) -> None:
        if self._branch is None:
            raise Unsupported(f"{self.folder} has no branch checked out; check one out first.")
        unfinished = next((one for one in _UNFINISHED if (self._git / one).exists()), None)
        if unfinished or _line_of(self._git / "HEAD") != f"ref: {self._branch}":
            what = _UNFINISHED.get(unfinished or "", "a change of branches")
            raise Conflict(
                f"{self.folder} is in the middle of {what}; finish that first, then try again."
            )

    def _head(self) -> str | None:
        """Return the last commit; None: there is none yet."""
        try:
            return self._run("rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
        except _GitFailed:
            return None

    def commit(self, files: Mapping[str, bytes | None], message: str, author: str | None) -> None:
        """Commit these contents of files, None for a removed one; nothing else is committed.

        What others staged stays staged. The work tree is not read, so that a change which another
        program makes meanwhile is not committed as memtui's. Its lock is waited for, and a commit
        of other files that is made meanwhile becomes the parent.

        Raises:
            Conflict: another program committed a change of one of the files, or began a merge.
            Unavailable: git failed; nothing was committed.
        """
        tree = Path(mkdtemp(dir=self._own))
        for path, content in files.items():
            if content is not None:
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_bytes(content)
        named = ["--pathspec-from-file=-", "--pathspec-file-nul"]
        there = [path for path, content in files.items() if content is not None]
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                self._refuse_committed([*files], tree)
                if there:
                    self._run("add", "--force", "--intent-to-add", *named, given=_lines(there),
                              tree=tree)  # fmt: skip
                self._run(
                    "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--only", "--message",
                    message, *named, given=_lines(files), tree=tree, author=author,
                )  # fmt: skip
            except _GitFailed as error:
                if not self.changed([*files], tree):
                    return  # another program's commit took these changes along
                if "lock" in str(error) and time.monotonic() < until:
                    time.sleep(_LOOK_SECONDS)
                    continue
                with suppress(_GitFailed):  # an intent to add a file commits nothing
                    self._run("reset", "--quiet", *named, given=_lines(files), tree=tree)
                raise Unavailable(f"{self.folder} could not be committed: {error}") from error
            self._base = self._head()
            return

    def _refuse_committed(self, paths: Sequence[str], tree: Path) -> None:
        """Raise `Conflict` if a file was committed, other than in the tree, since the opening."""
        self._require_quiet()
        head = self._head()
        if head == self._base or head is None:
            return
        if self._base is None:
            listed = self._run("ls-tree", "-r", "-z", "--name-only", head)
        else:
            listed = self._run("diff-tree", "-r", "-z", "--name-only", self._base, head)
        theirs = {*paths} & {*os.fsdecode(listed).split("\0")}
        if theirs and self.changed(paths, tree):
            raise Conflict(
                f"Another program committed {self.folder / min(theirs)} at this moment; look at "
                "it again."
            )
        self._base = head


@contextmanager
def repository(folder: Path) -> Iterator[GitRepository]:
    """Open the git repository of a folder. Blocking.

    Raises:
        Denied: the repository, or a part of it, is a link or another user's.
        Unavailable: git is not installed, or the repository is not whole.
        Unsupported: it is stored in a way that memtui does not know.
    """
    with closing(Scratch()) as scratch:
        try:
            git = GitRepository(folder, scratch.path)
        except _GitFailed as error:
            raise Unavailable(f"The config of {folder}/.git cannot be read: {error}") from error
        except (OSError, FileRefused) as error:
            why = getattr(error, "strerror", None) or "a part of it is not a file"
            raise Unavailable(f"The git repository of {folder} cannot be read ({why}).") from error
        yield git


def is_repository(folder: Path) -> bool:
    """Whether a folder is the top of a git repository."""
    return os.path.lexists(folder / ".git")


def _lines(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(f"{one}\0") for one in paths)


def _line_of(path: Path) -> str:
    return os.fsdecode(read_whole(path)[0][:4_096].partition(b"\n")[0])


def _blob_of(raw: str) -> str | None:
    """Return the object of a raw difference line; None: the file was removed, or is no file."""
    fields = raw.lstrip("\n").split("\0")[0].split(" ")
    if len(fields) != 5 or not fields[1].startswith("100"):
        return None
    return fields[3]


def _moment_of(stamp: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(stamp), UTC)
    except (ValueError, OverflowError, OSError):
        return None
