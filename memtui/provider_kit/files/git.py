"""The history of a folder that another program keeps under git: read, and continued."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from memtui.contract import Conflict, Unavailable, Unsupported
from memtui.provider_kit import from_epoch
from memtui.provider_kit.files.guarded_git import OWN_EMAIL, GitFailed, GuardedGit, line_of
from memtui.scratch import Scratch

_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_MOST_VERSIONS = 200
_MOST_ARGUMENTS = 500
_UNFINISHED = {
    "MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase", "rebase-apply": "a rebase", "sequencer": "a rebase",
}  # fmt: skip


class FileVersion(NamedTuple):
    """A file as one commit left it."""

    commit: str
    author: str
    """The name and address of the author; memtui's own commits have no address."""
    moment: datetime | None
    content: bytes | None
    """None: the commit removed the file."""


class GitRepository(GuardedGit):
    """The files of a repository: their history, their state, and commits of single ones."""

    def __init__(self, folder: Path, own: Path) -> None:
        super().__init__(folder, own)
        self._base = self._head()
        """The last commit that is known not to change files which memtui changes."""

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
                name if email == OWN_EMAIL else f"{name} <{email}>",
                from_epoch(stamp),
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
        if unfinished or line_of(self._git / "HEAD") != f"ref: {self._branch}":
            what = _UNFINISHED.get(unfinished or "", "a change of branches")
            raise Conflict(
                f"{self.folder} is in the middle of {what}; finish that first, then try again."
            )

    def _head(self) -> str | None:
        """Return the last commit; None: there is none yet."""
        try:
            return self.run("rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
        except GitFailed:
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
                with suppress(OSError):
                    (tree / path).chmod((self.folder / path).stat().st_mode & 0o111 | 0o600)
        named = ["--pathspec-from-file=-", "--pathspec-file-nul"]
        there = [path for path, content in files.items() if content is not None]
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                self._refuse_committed([*files], tree)
                if there:
                    self.run("add", "--force", "--intent-to-add", *named, given=_lines(there),
                              tree=tree)  # fmt: skip
                self.run(
                    "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--only", "--message",
                    message, *named, given=_lines(files), tree=tree, author=author,
                )  # fmt: skip
            except GitFailed as error:
                if not self.changed([*files], tree):
                    return  # another program's commit took these changes along
                if "lock" in str(error) and time.monotonic() < until:
                    time.sleep(_LOOK_SECONDS)
                    continue
                with suppress(GitFailed):  # an intent to add a file commits nothing
                    self.run("reset", "--quiet", *named, given=_lines(files), tree=tree)
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
            listed = self.run("ls-tree", "-r", "-z", "--name-only", head)
        else:
            listed = self.run("diff-tree", "-r", "-z", "--name-only", self._base, head)
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
        yield GitRepository(folder, scratch.path)


def _lines(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(f"{one}\0") for one in paths)


def _blob_of(raw: str) -> str | None:
    """Return the object of a raw difference line; None: the file was removed, or is no file."""
    fields = raw.lstrip("\n").split("\0")[0].split(" ")
    if len(fields) != 5 or not fields[1].startswith("100"):
        return None
    return fields[3]
