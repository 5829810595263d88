"""Reads and changes git repositories of other programs without running anything that they name.

The config and hooks of a repository name programs that git runs: filters, monitors, signers.
So git is never pointed at the repository itself. It is given a git folder of memtui's own, whose
config memtui writes, and in which only the objects, the refs and the reflog are links into the
repository; the environment is memtui's own too.
"""

import os
import re
import shutil
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM
from tempfile import TemporaryFile

from memtui.contract import Denied, Unavailable, Unsupported
from memtui.provider_kit.files.reading import FileRefused, read_whole

_SECONDS = 20.0
"""Time limit of one git command."""
_GRACE_SECONDS = 5.0
"""How long a command that is ended may remove its locks."""
_MOST_BYTES = 64 * 1024 * 1024
"""Most bytes of the output of one git command."""
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
    "core.sharedrepository": ("true", "false", "umask", "group", "all", "world", "everybody"),
    "core.autocrlf": ("true", "false", "input"),
    "core.eol": ("lf", "crlf", "native"),
    "extensions.objectformat": ("sha1", "sha256"),
}
"""Settings that say how a repository is stored, and their values; no other one is read."""
_EXTENSIONS = frozenset(
    {"noop", "objectformat", "partialclone", "preciousobjects", "relativeworktrees",
     "worktreeconfig"}
)  # fmt: skip
_USED = {"HEAD", "index", "info", "logs", "objects", "packed-refs", "refs", "shallow"}
"""What git is given of a repository."""
_OF_WORK_TREE = ("status", "diff", "diff-files", "diff-index")
OWN_EMAIL = "memtui@localhost"


class GitFailed(Exception):
    """Git ended with an error, whose words are the text."""


class AnsweredTooMuch(Unavailable):
    """Git's answer was longer than what is read of one."""


class GuardedGit:
    """Git on the repository of a folder, under memtui's own config and environment. Blocking.

    Raises:
        Denied: the repository, or a part of it, is a link, no file, or another user's.
        Unavailable: git is not installed, or the repository is not whole.
        Unsupported: it is stored in a way that memtui does not know.
    """

    def __init__(self, folder: Path, own: Path) -> None:
        self.folder = folder
        self._own = own
        try:
            self._open()
        except GitFailed as error:
            raise Unavailable(f"The config of {folder}/.git cannot be read: {error}") from error
        except (OSError, FileRefused) as error:
            why = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise Unavailable(f"The git repository of {folder} cannot be read ({why}).") from error

    def _open(self) -> None:
        path = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
        program = shutil.which("git", path=path)
        if program is None:
            raise Unavailable(
                f"git is not installed, so the history of {self.folder} can neither be read nor "
                "continued; install git."
            )
        self._git = self._git_folder()
        self._common = self._git
        if (pointer := self._git / "commondir").exists():
            self._common = self._mine(Path(self._git, line_of(pointer)).resolve())
            if self._git.resolve().parent != self._common / "worktrees":
                raise Denied(
                    f"{self._git} uses the repository {self._common}, which does not know it, so "
                    "it is left alone."
                )
        head, names = line_of(self._git / "HEAD"), ("objects", "refs", "config")
        self._branch = head.removeprefix("ref: ") if head.startswith("ref: refs/heads/") else None
        for name in names:
            self._mine(self._common / name)
        self._refuse_links()
        self._environment = {
            "PATH": path, "LC_ALL": "C", "HOME": str(self._own), "XDG_CONFIG_HOME": str(self._own),
            "GIT_DIR": str(self._own / "git"), "GIT_INDEX_FILE": str(self._git / "index"),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0",
            "GIT_GRAFT_FILE": str(self._own / "none"), "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "", "GIT_EDITOR": "false",
            "GIT_ASKPASS": "false",
            "GIT_COMMITTER_NAME": "memtui", "GIT_COMMITTER_EMAIL": OWN_EMAIL,
        }  # fmt: skip
        self._program = program
        self._make_own(head)

    def _git_folder(self) -> Path:
        """Return the git folder; `.git` may be a file only in a work tree that it knows."""
        place = self.folder / ".git"
        self._mine(self.folder)
        self._mine(place)
        if place.is_dir():
            return place
        named = Path(self.folder, line_of(place).removeprefix("gitdir: "))
        back = Path(line_of(named / "gitdir")) if (named / "gitdir").is_file() else None
        if any(named.resolve().is_relative_to(one / ".git/modules") for one in self.folder.parents):
            config = read_whole(named / "config")[0]
            found = re.search(rb"^\s*worktree\s*=\s*(.+)$", config, re.MULTILINE)
            back = named / os.fsdecode(found[1]) / ".git" if found else None
        if back is None or back.resolve() != place.resolve():
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
        """Refuse links and pipes, which git would follow or wait for, and objects elsewhere."""
        branch = Path(self._branch or "refs")
        is_known = self._branch or re.match(r"ref: refs/|[0-9a-f]{40}", line_of(self._git / "HEAD"))
        if not is_known or not branch.is_relative_to("refs") or ".." in branch.parts:
            raise Denied(f"{self._git / 'HEAD'} names no branch, so the repository is left alone.")
        every = [*os.scandir(self._git), *os.scandir(self._common)]
        entries = [one for one in every if one.name in _USED]
        while entries:
            one = entries.pop()
            if one.is_dir(follow_symlinks=False):
                entries += os.scandir(one.path)
            elif not one.is_file(follow_symlinks=False):
                kind = "a link" if one.is_symlink() else "no file"
                raise Denied(f"{one.path} is {kind}, so the git repository is left alone.")
        objects = self._common / "objects"
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
        config = self.run("config", "--file", "-", "--no-includes", "-z", "--list", given=theirs)
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
            return self.run(*arguments, given=given, tree=tree)
        except GitFailed as error:
            words = f"`git {arguments[0]}` failed in {self.folder}: {error}"
            raise Unavailable(words) from error

    def run(self, *arguments: str, given: bytes = b"", tree: Path | None = None,
             author: str | None = None) -> bytes:  # fmt: skip
        """Return the output of a git command.

        Raises:
            GitFailed: it ended with an error.
            Unavailable: it took too long, or answered too much.
        """
        command, *rest = arguments
        if command in _OF_WORK_TREE:  # git would ask each submodule by its own config
            rest = ["--ignore-submodules=all", *rest]
        names = {"GIT_AUTHOR_NAME": author or "memtui", "GIT_AUTHOR_EMAIL": OWN_EMAIL,
                 "GIT_WORK_TREE": str(tree or self.folder)}  # fmt: skip
        with TemporaryFile(dir=self._own) as stdin, TemporaryFile(dir=self._own) as errors:
            stdin.write(given)
            stdin.seek(0)
            process = subprocess.Popen(  # noqa: S603 - git itself, by the person's own path
                [self._program, "--no-pager", command, *rest],
                stdin=stdin, stdout=subprocess.PIPE, stderr=errors, cwd=self._own,
                env=self._environment | names, start_new_session=True,
            )  # fmt: skip
            limits = (_SECONDS, SIGTERM), (_SECONDS + _GRACE_SECONDS, SIGKILL)
            timers = [threading.Timer(one, _end, (process, kind)) for one, kind in limits]
            for one in timers:
                one.start()
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                output = process.stdout.read(_MOST_BYTES + 1)
                if len(output) > _MOST_BYTES:
                    _end(process, SIGTERM)
                process.stdout.close()
                code = process.wait()
            finally:
                for one in timers:
                    one.cancel()
            if len(output) > _MOST_BYTES:
                raise AnsweredTooMuch(f"`git {command}` answered too much in {self.folder}.")
            if code < 0:
                raise Unavailable(f"`git {command}` took too long in {self.folder}.")
            if code:
                errors.seek(0)
                words = errors.read(2_000).decode("utf-8", "replace").split()
                raise GitFailed(f"{' '.join(words) or f'exit code {code}'}.")
            return output


def _end(process: subprocess.Popen[bytes], kind: int) -> None:
    """Send a signal to a command that has not been waited for, and to all that it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, kind)


def line_of(path: Path) -> str:
    """Return a file's first line. Raises `FileRefused`, `OSError`."""
    return os.fsdecode(read_whole(path)[0][:4_096].partition(b"\n")[0])
