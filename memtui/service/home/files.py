"""The files of a home beside its database, and the checks before the database is opened."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from memtui.config import Paths, Settings
from memtui.contract import Denied, NotFound, Unavailable
from memtui.paths import is_writable
from memtui.service.visibility import caller_of, memberships_of, person_of, visibility_of
from memtui.store import bindings
from memtui.store.database import SEE_RECOVERY, Database
from memtui.store.digest import HeadNotes
from memtui.wording import nothing_yet

if TYPE_CHECKING:
    from memtui.analytics.layout import Manifest

_MAX_SESSION_BYTES = 10_000_000
_MAKING = "making.lock"
_MAKING_TIMEOUT_S = 30


class SealedLog(NamedTuple):
    """A folder of the archive."""

    folder: Path
    manifest: Manifest | None
    """None: it is missing or cannot be read."""


class BindingFolder(NamedTuple):
    """The folder of one binding of a company."""

    company_id: str
    key: str
    path: Path


class Remains(NamedTuple):
    """Files in a home that show that it had a database."""

    sealed: tuple[SealedLog, ...] = ()
    bindings: tuple[BindingFolder, ...] = ()
    companies: tuple[str, ...] = ()
    """Companies that the terminal app has opened."""
    changes: Path | None = None
    """Changes that SQLite had not yet merged into the database, which is missing or empty."""

    @property
    def words(self) -> str:
        """The remains in words, for a sentence; empty: there are none."""
        logs = len(self.sealed)
        parts = [
            f"{logs} sealed log{'s' * (logs != 1)}" if logs else "",
            ", ".join(f"the binding {one.company_id}/{one.key}" for one in self.bindings[:3]),
            f"{len(self.bindings) - 3} more" if len(self.bindings) > 3 else "",
            f"the session of {', '.join(self.companies[:3])}" if self.companies else "",
            str(self.changes.name) if self.changes else "",
        ]
        return ", ".join(part for part in parts if part)


def find_remains(paths: Paths) -> Remains:
    """Find the files in a home that show that it had a database. Blocking.

    Raises:
        Unavailable: a folder may not be read.
    """
    changes = paths.database.with_name(paths.database.name + "-wal")
    try:
        return Remains(
            tuple(_sealed(paths.archive)),
            tuple(_bindings(paths.data / "bindings")),
            _companies(paths.session_file),
            changes if _size(changes) and not _size(paths.database) else None,
        )
    except OSError as error:
        raise Unavailable(
            f"{error.filename} cannot be read ({error.strerror}); let its owner open it."
        ) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sealed(root: Path) -> Iterator[SealedLog]:
    from memtui.analytics.layout import ArchiveFolder

    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if not folder.is_dir() or all(path.name.startswith(".") for path in folder.iterdir()):
            continue
        try:
            # The manifest names the company; the folder's name must be that of the company.
            company_id = json.loads((folder / "manifest.json").read_bytes())["company_id"]
            own = ArchiveFolder(root, company_id)
            yield SealedLog(folder, own.read() if own.path == folder else None)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, Unavailable):
            yield SealedLog(folder, None)


def _bindings(root: Path) -> Iterator[BindingFolder]:
    for company in sorted(root.iterdir()) if root.is_dir() else ():
        for folder in sorted(company.iterdir()) if company.is_dir() else ():
            if folder.is_dir():
                yield BindingFolder(company.name, folder.name, folder)


def _companies(session_file: Path) -> tuple[str, ...]:
    try:
        if session_file.stat().st_size > _MAX_SESSION_BYTES:
            return ()
        found = json.loads(session_file.read_bytes())["companies"]
        return tuple(sorted(str(name) for name in found))
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def may_be_half_made(paths: Paths, settings: Settings) -> bool:
    """Whether a home is new, or is being made, or was left half-made by a killed process."""
    return (
        bool(settings.database_url)
        or not paths.database.exists()
        or (paths.data / _MAKING).exists()  # made before the database and gone after the rest
    )


@asynccontextmanager
async def making(paths: Paths) -> AsyncIterator[None]:
    """Lock a home while it is made; other processes wait and then find it made.

    Raises:
        Invalid: the folder cannot be used.
        Unavailable: another process keeps the lock too long.
    """
    from filelock import AsyncFileLock, Timeout

    paths.create()
    path = paths.data / _MAKING
    lock = AsyncFileLock(path, timeout=_MAKING_TIMEOUT_S, mode=0o600, poll_interval=0.01)
    try:
        await lock.acquire()
    except Timeout as error:
        raise Unavailable(
            f"Another memtui has been making {paths.data} for too long; end it and try again."
        ) from error
    except OSError as error:
        raise Unavailable(f"Cannot use {path}: {error.strerror}.") from error
    try:
        yield
        path.unlink(missing_ok=True)
    finally:
        await lock.release()


def open_database(paths: Paths, settings: Settings, *, make: bool = True) -> Database:
    """Open the database of a home; create one only if no file shows that the home had one.

    Raises:
        Invalid: the folder or the setting `database_url` cannot be used.
        NotFound: the home is empty, and `make` is False.
        Unavailable: the database cannot be reached or is damaged, or it is missing or empty
            although files show that the home had one.
    """
    make = make and not settings.read_only
    if make:
        paths.create()
    try:
        if (database := used_database(paths, settings)) is not None:
            return database
    except Unavailable as error:
        if not settings.database_url or not find_remains(paths).words:
            raise
        raise Unavailable(f"{error} Nothing was written; {SEE_RECOVERY}.") from error
    remains = find_remains(paths)
    if not remains.words:
        if not make:
            raise nothing_yet(paths.data)
        return _noted(Database.open(paths.database, settings.database_url), paths, settings)
    # Another process may have made the database meanwhile, and then the other files.
    if (database := used_database(paths, settings)) is not None:
        return database
    where = "at database_url" if settings.database_url else str(paths.database)
    raise Unavailable(
        f"The control plane's database {where} is gone or empty, but what it made is still in "
        f"{paths.data}: {remains.words}. Nothing was written; {SEE_RECOVERY}."
    )


def used_database(paths: Paths, settings: Settings) -> Database | None:
    """Return the database; None: it is missing, or nothing was ever stored in it."""
    try:
        database = Database.open(
            paths.database,
            settings.database_url,
            create=False,
            # A home that is opened read-only and cannot be written.
            read_only=settings.read_only and paths.data.is_dir() and not is_writable(paths.data),
        )
    except NotFound:
        return None
    is_used = False
    try:
        with database.read() as connection:
            is_used = bindings.is_used(connection)
    finally:
        if not is_used:
            database.close()
    return _noted(database, paths, settings) if is_used else None


def _noted(database: Database, paths: Paths, settings: Settings) -> Database:
    """Let a database note the ends of its logs in the home."""
    url = urlsplit(settings.database_url)
    database.notes = HeadNotes(paths.heads, f"{url.hostname or ''}:{url.port or ''}{url.path}")
    return database


def refuse_unless_all_is_theirs(database: Database, settings: Settings, does: str) -> None:
    """Refuse an act on a whole home to a caller who does not manage each company with members.

    Args:
        database: The database of the home.
        settings: They name the caller.
        does: The first words of the error message, such as "A backup holds".

    Raises:
        Denied: the caller is an agent, or neither owner nor admin of one of them.
        Invalid: the caller acts for another agent.
    """
    with database.read() as connection:
        for company in bindings.companies(connection):
            caller = caller_of(settings, company.company_id, "")
            rows = bindings.roles_of(connection, company.company_id, person_of(caller))
            if rows is None:
                continue
            visibility = (
                None
                if caller.by_ai or not rows
                else visibility_of(memberships_of(rows, caller), caller)
            )
            if visibility is None or not visibility.manages:
                raise Denied(
                    f"{does} everybody's memories in every company of this home; only a person "
                    "who is an owner or admin of each that has members may do that."
                )


def read_sqlite(path: Path) -> sqlite3.Connection:
    """Open a SQLite file read-only."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
