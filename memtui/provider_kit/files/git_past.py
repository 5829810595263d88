"""What a repository of another program has now and once had: paths, words, branches, commits.

Only the history of the checked-out commit counts, and of it the last 20,000 commits at most.
Nothing follows a link, and nothing that the repository names is run (`GuardedGit`).
"""

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from memtui.contract import Unavailable
from memtui.provider_kit.files.guarded_git import GitFailed, GuardedGit
from memtui.provider_kit.files.reading import FileRefused, read_whole

MOST_COMMITS = 20_000
_MOST_UNTRACKED = 500
_UNTRACKED_BYTES = 1_000_000
"""Most untracked files that are searched for words, and their longest."""
_TOKENS = re.compile(r"[\w-]+|[^\w\s]")
_SHARE = 0.6
"""The share of a name's removed lines that must have the same new name."""


class Gone(NamedTuple):
    """A thing that a repository had once and has no longer."""

    name: str
    commit: str = ""
    """The commit that removed it; empty: not known."""
    new_name: str | None = None

    @property
    def words(self) -> str:
        """What became of it: “`a.py` is gone since 1a2b3c4, now `b.py`”."""
        since = f" since {self.commit[:8]}" if self.commit else ""
        return f"`{self.name}` is gone{since}{f', now `{self.new_name}`' if self.new_name else ''}"


class GitPast(GuardedGit):
    """The history of the commit that a folder's repository had checked out first. Blocking."""

    @cached_property
    def head(self) -> str:
        """The checked-out commit; empty: there is none yet."""
        try:
            return self.run("rev-parse", "--verify", "-q", "HEAD").decode().strip()
        except GitFailed:
            return ""

    @cached_property
    def limits(self) -> set[str]:
        """What of the history is not looked at, in sentences."""
        at = f"{self.commits[-1][1]:%Y-%m-%d}"
        if len(self.commits) >= MOST_COMMITS:
            return {f"Only the last {MOST_COMMITS:,} commits, since {at}, were looked at."}
        shallow = {f"{self.folder} is a shallow clone, whose history begins on {at}."}
        return shallow if (self._common / "shallow").exists() else set()

    @cached_property
    def commits(self) -> list[tuple[str, datetime]]:
        """The checked-out commit and those before it, newest first, each with its time."""
        shown = self._shown("log", "--first-parent", "--format=%H %ct", self.head)
        pairs = map(str.split, shown)
        return [(name, datetime.fromtimestamp(int(at), UTC)) for name, at in pairs]

    def _shown(self, command: str, *arguments: str) -> list[str]:
        """Return the lines that `git log` or another command answers, of at most 20,000 commits."""
        most = [f"--max-count={MOST_COMMITS}"] if command == "log" else []
        return self.read(command, *most, *arguments).decode("utf-8", "replace").splitlines()

    @cached_property
    def files(self) -> frozenset[str]:
        """The files of the checked-out commit, and those that are new in the index."""
        shown = self.read("ls-tree", "-r", "-z", "--name-only", self.head)
        return frozenset(_names(shown + self.read("ls-files", "-z")))

    @cached_property
    def deleted(self) -> dict[str, str]:
        """The commit that last deleted each path that was ever deleted."""
        before = [f"^{self.commits[-1][0]}"] if self.limits else []
        found: dict[str, str] = {}
        try:
            shown = self.read("log", "-z", "--no-renames", "--diff-filter=D", "--name-only",
                              "--format=%x01%H", self.head, *before)  # fmt: skip
        except Unavailable as error:
            self.limits.add(f"Paths were not looked for: {error}")
            return found
        for part in shown.split(b"\x01")[1:]:
            commit, _, paths = part.partition(b"\0")
            for path in _names(paths):
                found.setdefault(path.removeprefix("\n"), commit.decode())
        return found

    def renamed(self, commit: str, path: str) -> str | None:
        """Return where a commit moved a file or folder to; None: it moved it nowhere."""
        if commit not in self._renames:
            try:
                shown = self.read("show", "-z", "-M", "--diff-filter=R", "--name-status",
                                  "--format=", "--diff-merges=first-parent", commit)  # fmt: skip
            except Unavailable:  # too many files to compare
                shown = b""
            parts = _names(shown)
            self._renames[commit] = [*zip(parts[1::3], parts[2::3], strict=False)]
        for old, new in self._renames[commit]:
            if old == path:
                return new
            inner = old.removeprefix(f"{path}/")
            if inner != old and new.endswith(f"/{inner}"):
                return new.removesuffix(f"/{inner}")
        return None

    def lines(self, revision: str, words: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield each file's path and a line of it that has one of some whole words."""
        if not words:
            return
        named = "|".join(one.replace(".", r"\.") for one in words)  # one pattern: git tries each
        try:
            shown = self.run("grep", "-I", "-z", "-w", "-E", "--no-color", "-f", "-", revision,
                             given=f"({named})\n".encode())  # fmt: skip
        except GitFailed as error:
            if str(error) != "exit code 1.":
                raise Unavailable(f"`git grep` failed in {self.folder}: {error}") from error
            return
        for line in shown.decode("utf-8", "replace").split("\n"):
            place, is_found, text = line.partition("\0")
            if is_found:
                yield place.partition(":")[2], text

    def removals(self, words: Collection[str], gone: str, there: str) -> dict[str, Gone]:
        """Return the last commit that removed each word, after `there` and up to `gone`."""
        pattern = "|".join(one.replace(".", r"\.") for one in words)
        try:
            shown = self.read("log", "-p", "-U0", "--no-renames", "--no-color", "--no-ext-diff",
                              "--no-textconv", "--diff-merges=first-parent", f"-G{pattern}",
                              "--format=%x01%H", gone, f"^{there}")  # fmt: skip
        except Unavailable:
            return {}
        found: dict[str, Gone] = {}
        for part in shown.decode("utf-8", "replace").split("\x01")[1:]:
            commit, _, patch = part.partition("\n")
            for word in set(words) - found.keys():
                if re.search(rf"^-.*{whole(word)}", patch, re.MULTILINE):
                    found[word] = Gone(word, commit, _new_name(word, patch))
        return found

    @cached_property
    def _renames(self) -> dict[str, list[tuple[str, str]]]:
        return {}

    def uncommitted(self) -> str:
        """The text that the work tree has beyond the checked-out commit."""
        shown = self.read("diff", "-U0", "--no-color", "--no-ext-diff", "--no-textconv",
                          self.head)  # fmt: skip
        added = [line for line in shown.split(b"\n") if line.startswith(b"+")]
        untracked = _names(self.read("ls-files", "-z", "--others", "--exclude-standard"))
        for path in untracked[:_MOST_UNTRACKED]:
            with suppress(FileRefused, OSError):  # it is gone meanwhile, or no file
                place = self.folder / path
                if not leaves(self.folder, path) and place.lstat().st_size <= _UNTRACKED_BYTES:
                    added.append(read_whole(place)[0])
        return b"\n".join(added).decode("utf-8", "replace")

    def ignores(self, path: str) -> bool:
        """Whether the folder's `.gitignore` has a path, as that of files which a build writes."""
        from pathspec import GitIgnoreSpec

        lines = (self.content(self.head, ".gitignore") or "").splitlines()
        return GitIgnoreSpec.from_lines(lines).match_file(path)

    @cached_property
    def branches(self) -> frozenset[str]:
        """The names of all branches, with and without the name of their remote, and all tags."""
        plain = {
            one.split("/", 2)[-1] for one in self._shown("for-each-ref", "--format=%(refname)")
        }
        return frozenset(plain | {one.partition("/")[2] for one in plain})

    @cached_property
    def past_branches(self) -> dict[str, Gone]:
        """Branches that the reflog or a merge names: with the commit, or the branch's new name."""
        found: dict[str, Gone] = {}
        merges = self._shown("log", "--merges", "--format=%H %s", self.head)
        for line in merges + self._shown("log", "--walk-reflogs", "--format=%H %gs", "HEAD"):
            for *names, old, new in _BRANCHES.findall(line):
                found |= {old: Gone(old, line[:40], new)} if old else {}
                for name in filter(None, names):
                    found.setdefault(name, Gone(name, line[:40]))
        return found

    def commit_gone(self, name: str) -> Gone | None:
        """Return what a commit became that no branch has any more; None: one has it, or unknown."""
        form = "--format=%H%x00%at%x00%s"
        try:
            shown = self.run("log", "-1", form, name, "--").decode("utf-8", "replace").strip()
            if self.read("for-each-ref", "--count=1", f"--contains={name}"):
                return None
            self.run("merge-base", "--is-ancestor", name, self.head)
        except GitFailed as error:
            if str(error) != "exit code 1.":
                return None
            like = (one.split("\0", 1) for one in self._shown("log", form, self.head))
            was = shown.partition("\0")[2]
            return Gone(name, "", next((new for new, is_now in like if is_now == was), None))
        return None

    def content(self, revision: str | None, path: str) -> str | None:
        """Return the text of a file in a commit; None: it is not there."""
        try:
            shown = self.run("cat-file", "blob", f"{revision}:{path}")
        except (GitFailed, Unavailable):
            return None
        return shown.decode("utf-8", "replace")

    def place_at(self, moment: datetime) -> int:
        """Return the place in `commits` of the one that was checked out at a moment."""
        return bisect_left(self.commits, -moment.timestamp(), key=lambda one: -one[1].timestamp())

    def commit_at(self, moment: datetime) -> str | None:
        """Return the commit that was checked out at a moment; None: it is not known."""
        place = self.place_at(moment)
        return self.commits[place][0] if place < len(self.commits) else None


def leaves(folder: Path, path: str) -> bool:
    """Whether a relative path leads through a link or out of the folder, or can be no file's."""
    parts = Path(path).parts
    if ".." in parts or Path(path).is_absolute():
        return True
    try:
        return any(Path(folder, *parts[: end + 1]).is_symlink() for end in range(len(parts)))
    except OSError:  # it is too long
        return True


def modified_at(path: Path) -> datetime | None:
    """Return when a file was last changed; None: there is no such file."""
    try:
        return datetime.fromtimestamp(path.lstat().st_mtime, UTC)
    except (OSError, ValueError):
        return None


_BRANCHES = re.compile(
    r" Merge (?:remote-tracking )?branch '(?:origin/)?([^']+)'"
    r"| Merge pull request #\d+ from [^/\s]+/(\S+)|checkout: moving from (\S+) to (\S+)"
    r"|Branch: renamed refs/heads/(\S+) to refs/heads/(\S+)"
)


def whole(word: str) -> str:
    """Return a pattern of a whole word, as `git grep -w` has it."""
    return rf"(?<!\w){re.escape(word)}(?!\w)"


def _names(shown: bytes) -> list[str]:
    return [os.fsdecode(one) for one in shown.split(b"\0") if one]


def _new_name(word: str, patch: str) -> str | None:
    """Return the word that stands in place of another in most of the lines that a patch changes."""
    found, number = Counter[str](), 0
    for hunk in re.split(r"^@.*$", patch, flags=re.MULTILINE):
        removed, added = ([_TOKENS.findall(line[1:]) for line in hunk.splitlines()
                           if line.startswith(sign)] for sign in "-+")  # fmt: skip
        number += sum(word in one for one in removed)
        for old, new in zip(removed, added, strict=False):
            pairs = {*zip(old, new, strict=False)} if len(old) == len(new) else set()
            changed = [(one, other) for one, other in pairs if one != other]
            found.update(other for one, other in changed if one == word and len(changed) == 1)
    [(name, times)] = found.most_common(1) or [("", 0)]
    return name if times and times >= _SHARE * number else None
