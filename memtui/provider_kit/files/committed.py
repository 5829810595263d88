"""Changes whole files of a folder that another program keeps under git, a commit each time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from memtui.contract import Conflict, Invalid, MemtuiError, Model, Unavailable
from memtui.paths import replacing
from memtui.provider_kit import refused_by_system, require_unprotected
from memtui.provider_kit.files.git import GitRepository, repository
from memtui.provider_kit.files.reading import digest, resolved
from memtui.provider_kit.files.shared import FileRights, content_of, put


class ContentChange(NamedTuple):
    """A file's content before and after a change; None: there is no file."""

    before: bytes | None
    after: bytes | None
    rights: FileRights | None = None
    """Those of a file that is made; None: as the other program makes its files."""


class FilesDraft:
    """Files by their paths in a folder, as a change will leave them; None: there is no file."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        """Begin with no change; `read` returns the present content of a file."""
        self._read = read
        self._before: dict[str, bytes | None] = {}
        self._after: dict[str, bytes | None] = {}
        self.rights: dict[str, FileRights | None] = {}
        """Those of files that are made, where they had some."""

    def __getitem__(self, path: str) -> bytes | None:
        if path not in self._before:
            self._before[path] = self._read(path)
        return self._after.get(path, self._before[path])

    def __setitem__(self, path: str, content: bytes | None) -> None:
        if content != self[path]:
            self._after[path] = content

    def changes(self) -> dict[str, ContentChange]:
        """Return what is to change, in the order of the first changes."""
        return {
            path: ContentChange(self._before[path], after, self.rights.get(path))
            for path, after in self._after.items()
            if after != self._before[path]
        }


class _Uncommitted(Model):
    """What a killed process may have left uncommitted: the digest of each file's new content."""

    files: dict[str, str | None]
    message: str
    author: str | None


class CommittedFiles:
    """The files of a folder by their paths in it. Without a repository, nothing is committed.

    Blocking; the caller serialises memtui's own processes.
    """

    def __init__(
        self, folder: Path, *, note: Path, marker: Path, is_committed: bool = True
    ) -> None:
        """Set up the folder.

        Args:
            folder: The top of the repository.
            note: A file that names the commit under way; it exists during the commit only.
            marker: A file whose modification time is that of memtui's last change.
            is_committed: Whether the other program commits its changes.
        """
        self._folder, self._note, self._marker = folder, note, marker
        self._is_committed = is_committed

    @property
    def has_history(self) -> bool:
        """Whether the folder is a repository."""
        return self._is_committed and (self._folder / ".git").exists()

    @contextmanager
    def repository(self) -> Iterator[GitRepository | None]:
        """Open the repository; None: there is none."""
        with repository(self._folder) if self.has_history else nullcontext() as git:
            yield git

    def content(self, path: str) -> bytes | None:
        """Return a file's content; None: there is none. Raises `Denied`, `Unavailable`."""
        return content_of(self._folder / path)

    def change(
        self, changes: Mapping[str, ContentChange], message: str, author: str | None = None
    ) -> None:
        """Change files and commit them. If that fails, all are as they were.

        Raises:
            Conflict: another program changed one of the files, or left a change uncommitted.
            Denied: a file or the repository is protected.
            Invalid: a file lies behind a link.
            Unavailable: the files could not be changed or committed.
            Unsupported: git stores a file, or the repository, in a way that memtui does not know.
        """
        with self.repository() as git:
            self._finish(git)
            if git is not None:
                git.require_ready([*changes])
            for path in changes:
                self._require_file(path)
            after = {path: one.after for path, one in changes.items()}
            done: dict[str, ContentChange] = {}
            try:
                if git is not None:
                    self._take_note(after, message, author)
                for path, change in changes.items():
                    rights = FileRights.of(self._folder / path)
                    self._put(path, change)
                    done[path] = ContentChange(change.after, change.before, rights)
                if git is not None:
                    git.commit(after, message, author)
            except MemtuiError:
                self._take_back(done)
                self._note.unlink(missing_ok=True)
                raise
            self._note.unlink(missing_ok=True)

    @property
    def is_unfinished(self) -> bool:
        """Whether a change is being committed, or a killed process could not commit one."""
        return self._note.exists()

    def finish(self) -> None:
        """Commit what a killed process could not."""
        with self.repository() as git:
            self._finish(git)

    def _finish(self, git: GitRepository | None) -> None:
        """Commit the files that a killed process changed, and nobody has changed since."""
        try:
            left = _Uncommitted.model_validate_json(self._note.read_bytes())
        except (FileNotFoundError, ValueError):
            return
        if git is not None:
            there = {path: self.content(path) for path in git.changed([*left.files])}
            ours = {path: one for path, one in there.items() if _digest(one) == left.files[path]}
            if ours:
                git.commit(ours, left.message, left.author)
        self._note.unlink()

    def _take_note(
        self, files: Mapping[str, bytes | None], message: str, author: str | None
    ) -> None:
        digests = {path: _digest(content) for path, content in files.items()}
        note = _Uncommitted(files=digests, message=message, author=author)
        try:
            with replacing(self._note) as fresh:
                fresh.write_text(note.model_dump_json(), "utf-8")
        except OSError as error:
            raise refused_by_system(str(self._note), error) from error

    def _require_file(self, path: str) -> None:
        place, root = self._folder / path, resolved(self._folder)
        above = next(one for one in place.parents if one.exists())
        own = above.relative_to(self._folder)
        if root is None or place.is_symlink() or resolved(above) != root / own:
            raise Invalid(f"{place} is or lies behind a link; replace that with a file first.")
        require_unprotected(place, str(place))

    def _put(self, path: str, change: ContentChange) -> None:
        before, after, rights = change
        put(self._folder / path, before, after, marker=self._marker, rights=rights)

    def _take_back(self, done: Mapping[str, ContentChange]) -> None:
        for path, change in done.items():
            try:
                with suppress(Conflict):  # another program has changed it since
                    self._put(path, change)
            except MemtuiError as error:
                problem = f"{self._folder / path} stays changed and is not committed: {error}"
                raise Unavailable(problem, sent=True) from error


def _digest(content: bytes | None) -> str | None:
    return None if content is None else digest(content.decode("latin-1"))
