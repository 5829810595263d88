"""Back a home up to one file, and restore it from there.

The file is a ZIP archive: `backup.json` lists its files with their SHA-256, and the end of each
company's log; the other files have the same paths as in the home. SQLite files are copied as
consistent snapshots.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path, PurePosixPath
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING

from sqlalchemy import select

from memtui import __version__
from memtui.config import Paths, Settings, find_paths, make_private
from memtui.contract import Conflict, Invalid, Model, Unavailable, UtcDatetime
from memtui.paths import is_writable, refuse_other_than_file, replacing
from memtui.scratch import Scratch
from memtui.service.home.files import (
    SealedLog,
    find_remains,
    open_database,
    read_sqlite,
    refuse_unless_all_is_theirs,
)
from memtui.service.providers import Providers
from memtui.store import bindings
from memtui.store.database import Database
from memtui.store.rows import BindingRow
from memtui.store.tables import HEADS

if TYPE_CHECKING:
    from memtui.analytics.layout import LogEnds

_CONTENTS = "backup.json"
_DATABASE = "memtui.db"
_OUTSIDE = "outside"
_FILES = (
    "config.toml", "session.json", "views.json", "queries.json", "checks.toml", "demo.json",
)  # fmt: skip
_TOPS = {_DATABASE, "archive", "bindings", "migrations", _OUTSIDE, *_FILES}
_SQLITE = b"SQLite format 3\x00"
_BESIDE_SQLITE = ("-wal", "-shm", "-journal")
_PACKED = {".parquet", ".gz", ".zip", ".png", ".jpg", ".zst"}
"""Extensions of files that compression makes no smaller."""
_NO_BACKUP = (
    zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError, TypeError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
"""Errors from reading a file that is not a ZIP file, is encrypted, or was altered."""
_LOCK = "LOCK"
"""The name of the file that a process such as Milvus Lite locks while it has a store open."""
_LOCK_SECONDS = 15.0
_POLL_SECONDS = 0.1
_CHUNK = 1 << 20
_MAX_CONTENTS_BYTES = 1 << 30


class BackedFile(Model):
    """A file of a backup."""

    sha256: str
    bytes: int
    mode: int
    modified_ns: int


class LogEnd(Model):
    """The newest operation of a company's log in a backup."""

    seq: int
    digest: str


class Backup(Model):
    """The contents of a backup, `backup.json`."""

    version: int = 1
    memtui: str = __version__
    made_at: UtcDatetime
    database: str
    """`sqlite`, which the backup contains, or `postgresql`, which it does not."""
    logs: dict[str, LogEnd] = {}
    """The end of each company's log."""
    outside: dict[str, str] = {}
    """The original paths of memories outside the home, by their path in the ZIP file."""
    left_out: tuple[str, ...] = ()
    """Parts of the home that the backup lacks, one sentence each."""
    files: dict[str, BackedFile] = {}


def backup(
    paths: Paths, settings: Settings, target: Path, *, outside: bool = False, now: datetime
) -> Backup:
    """Write a home to a new file with mode 0600; memtui may run meanwhile. Blocking.

    Secrets in the keyring are not in the home, and so in no backup. `outside`: include memories
    that bindings keep outside the home.

    Raises:
        Conflict: the file exists.
        Denied: a company has members, and the caller does not manage it.
        Invalid: the file cannot be written.
        NotFound: there is nothing to back up.
        Unavailable: a part of the home is damaged or cannot be read.
    """
    if os.path.lexists(target):
        raise Conflict(f"{target} exists already; give another name.")
    work = None
    try:
        with closing(open_database(paths, settings, make=False)) as database, ExitStack() as stack:
            refuse_unless_all_is_theirs(database, settings, "A backup holds")
            work = stack.enter_context(replacing(target, is_new=True))
            for log in find_remains(paths).sealed:
                stack.enter_context(_unchanged(log))
            with work.open("wb") as file:
                done = _Writer(file, paths, work.parent).write(database, outside=outside, now=now)
    except FileExistsError as error:
        raise Conflict(f"{target} exists already; give another name.") from error
    except OSError as error:
        raise Invalid(
            f"{target if work is None else error.filename or target}: {error.strerror}; no backup "
            "was made."
        ) from error
    return done


@contextmanager
def _unchanged(log: SealedLog) -> Iterator[None]:
    """Prevent a log from being sealed; if its folder is not writable, no lock is needed."""
    from memtui.analytics.archive import locked
    from memtui.analytics.layout import ArchiveFolder

    if log.manifest is None:
        raise Unavailable(
            f"{log.folder} has no manifest that fits it, so no backup was made; "
            "`memtui doctor` tells more."
        )
    if not is_writable(log.folder):
        yield
        return
    with locked(ArchiveFolder(log.folder.parent, log.manifest.company_id)):
        yield


class _Writer:
    """Writes the ZIP file of a backup."""

    def __init__(self, file: IO[bytes], paths: Paths, work: Path) -> None:
        self._work = work
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self._paths = paths
        self._files: dict[str, BackedFile] = {}
        self._left_out: list[str] = []

    def write(self, database: Database, *, outside: bool, now: datetime) -> Backup:
        with self._zip, self._database(database) as (copy, logs):
            for name in _FILES:
                place = self._paths.config if name == "config.toml" else self._paths.data
                if (place / name).is_file():
                    self._file(place / name, name)
            self._folder(self._paths.archive, "archive")
            for company_id, (_, ends) in logs.items():
                self._refuse_damage(company_id, ends)
            self._refuse_unproved(copy, [*logs])
            for name in ("bindings", "migrations"):
                self._folder(self._paths.data / name, name)
            places = self._outside(database, wanted=outside)
            done = Backup(
                made_at=now,
                database=database.dialect,
                logs={company_id: end for company_id, (end, _) in logs.items()},
                outside=places,
                left_out=tuple(self._left_out),
                files=self._files,
            )
            self._zip.writestr(_info(_CONTENTS, 0o600), done.model_dump_json(indent=1))
        return done

    @contextmanager
    def _database(
        self, database: Database
    ) -> Iterator[tuple[Path | None, dict[str, tuple[LogEnd, LogEnds]]]]:
        """Add the database; yield the added copy and the ends of its logs.

        PostgreSQL is not added: the copy is None.
        """
        if database.dialect != "sqlite":
            self._left_out.append(
                "The control plane is in PostgreSQL: back that up with pg_dump at the same time, "
                "while nothing is sealed."
            )
            yield None, _logs(database)
            return
        with self._copied(self._paths.database) as copy:
            with closing(Database.open(copy, create=False)) as copied:
                if problems := copied.problems():
                    raise Unavailable(
                        f"The control plane's database is damaged ({problems[0]}), so no backup "
                        "was made; `memtui doctor` says what can be got back."
                    )
                logs = _logs(copied)
            self._add(copy, _DATABASE, copy.stat())
            yield copy, logs

    @contextmanager
    def _copied(self, path: Path) -> Iterator[Path]:
        """Yield a temporary copy of a SQLite file, a consistent snapshot."""
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            copy = Path(folder) / _DATABASE
            copy.touch(mode=0o600)
            try:
                with (
                    closing(read_sqlite(path)) as source,
                    closing(sqlite3.connect(copy)) as target,
                ):
                    source.backup(target)
            except sqlite3.Error as error:
                raise Unavailable(
                    f"{path} cannot be copied ({error}); no backup was made."
                ) from error
            yield copy

    def _refuse_damage(self, company_id: str, ends: LogEnds) -> None:
        """Raise `Unavailable` for a missing or damaged segment, before the backup is needed."""
        from memtui.analytics.archive import refuse_gap
        from memtui.analytics.layout import ArchiveFolder

        folder = ArchiveFolder(self._paths.archive, company_id)
        manifest = folder.read()
        refuse_gap(manifest, ends)
        for segment in manifest.segments:
            for table, file in segment.files.items():
                name = f"archive/{folder.path.name}/{segment.name}/{table}.parquet"
                found = self._files.get(name)
                if found is None or found.sha256 != file.sha256:
                    raise Unavailable(
                        f"{folder.file(segment, table)} is missing or damaged, so no backup "
                        "was made; `memtui ops archive verify` tells more."
                    )

    def _refuse_unproved(self, copy: Path | None, companies: Sequence[str]) -> None:
        """Raise `Unavailable` for a log that `restore` would refuse."""
        home = self._paths.data
        with closing(Database.open(copy, create=False)) if copy else nullcontext() as database:
            for problem in _log_problems(database, self._paths.archive, companies):
                raise Unavailable(
                    f"The log cannot be verified: {problem} No backup was made, because it could "
                    "not be restored; `memtui audit verify` and `memtui ops archive verify` say "
                    f"more. To keep it as it is, stop memtui and copy the folder {home}."
                )

    def _outside(self, database: Database, *, wanted: bool) -> dict[str, str]:
        places: dict[str, str] = {}
        with database.read() as connection:
            rows = [
                row
                for company in bindings.companies(connection)
                for row in bindings.bindings(connection, company.company_id)
            ]
        providers = Providers()
        for row in rows:
            given = row.config.get("path")
            path = Path(given).expanduser() if isinstance(given, str) else None
            if path is None and self._is_elsewhere(providers, row):
                self._left_out.append(
                    f"The binding {row.binding_id} keeps its memories elsewhere, in "
                    f"{row.provider_key}; back them up there."
                )
            if path is None or path.resolve().is_relative_to(self._paths.data.resolve()):
                continue
            if not self._keeps_memories(providers, row):
                self._left_out.append(
                    f"The binding {row.binding_id} reads {path}, which belongs to another program."
                )
            elif not wanted:
                self._left_out.append(
                    f"The binding {row.binding_id} keeps its files in {path}; --vaults includes "
                    "them."
                )
            else:
                name = f"{_OUTSIDE}/{row.binding_id}"
                places[name] = str(path)
                (self._file if path.is_file() else self._folder)(path, name)
        return places

    def _is_elsewhere(self, providers: Providers, row: BindingRow) -> bool:
        """Whether a binding stores its memories outside its folder, as far as that is known."""
        if not row.config or providers.is_foreign(row.provider_key):
            return False
        return not self._lives_in_own(providers, row)

    def _keeps_memories(self, providers: Providers, row: BindingRow) -> bool:
        """Whether a binding's files are memtui's, rather than those of another program.

        Such a program's folder may hold its credentials too. Of another package's provider, whose
        class is not loaded for this, the binding's capabilities tell.
        """
        if providers.is_foreign(row.provider_key):
            return bool(row.capabilities.get("writable", True))
        return self._lives_in_own(providers, row) is not None

    def _lives_in_own(self, providers: Providers, row: BindingRow) -> bool | None:
        own = self._paths.data / "bindings" / row.binding_id
        return providers.load(row.provider_key).lives_in(own)

    def _folder(self, root: Path, name: str) -> None:
        """Add a folder, without derived data, locks and links."""
        with ExitStack() as stack:
            stack.enter_context(_still(root))
            for where, folders, files in os.walk(root, onerror=_raise):
                here = Path(where)
                inside = PurePosixPath(name, *here.relative_to(root).parts)
                for link in [one for one in (*folders, *files) if (here / one).is_symlink()]:
                    self._left_out.append(f"{here / link} is a link to somewhere else.")
                folders[:] = sorted(one for one in folders if not _is_derived(inside / one))
                for one in folders:  # lock it before `os.walk` lists it
                    if not (here / one).is_symlink():
                        stack.enter_context(_still(here / one))
                for one in sorted(files):
                    path = here / one
                    if path.is_symlink() or _is_lock(one) or _is_beside_sqlite(path):
                        continue
                    self._file(path, str(inside / one))

    def _file(self, path: Path, name: str) -> None:
        try:
            with path.open("rb") as file:
                is_sqlite = file.read(len(_SQLITE)) == _SQLITE
            if is_sqlite:
                with self._copied(path) as copy:
                    self._add(copy, name, path.stat())
            elif path.is_file():
                self._add(path, name, path.stat())
        except FileNotFoundError:
            return  # deleted since its folder was listed

    def _add(self, path: Path, name: str, status: os.stat_result) -> None:
        mode = stat.S_IMODE(status.st_mode)
        digest, size = hashlib.sha256(), 0
        info = _info(name, mode)
        if path.suffix in _PACKED:
            info.compress_type = zipfile.ZIP_STORED
        with path.open("rb") as source, self._zip.open(info, "w", force_zip64=True) as target:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                target.write(chunk)
        self._files[name] = BackedFile(
            sha256=digest.hexdigest(), bytes=size, mode=mode, modified_ns=status.st_mtime_ns
        )


def _is_lock(name: str) -> bool:
    return name.endswith(".lock") or name == _LOCK


@contextmanager
def _still(folder: Path) -> Iterator[None]:
    """Lock a store of several files, so that no other process writes to it.

    A folder without a lock file is not locked.

    Raises:
        Unavailable: another process keeps using the store.
    """
    try:
        lock = (folder / _LOCK).open("rb")
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    import fcntl  # not on Windows, which has no such stores

    until = monotonic() + _LOCK_SECONDS
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if monotonic() > until:
                    raise Unavailable(
                        f"{folder} is in use by another program, so no backup was made; try again "
                        "when that is done."
                    ) from error
            sleep(_POLL_SECONDS)
        yield


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_derived(inside: PurePosixPath) -> bool:
    """Whether a folder has only derived data: an index, daily sums, temporary files."""
    top, last = inside.parts[0], inside.name
    if top == "archive":
        return last.startswith((".", "daily-"))
    return top == "bindings" and len(inside.parts) == 4 and last == "index"


def _is_beside_sqlite(path: Path) -> bool:
    return any(
        path.name.endswith(end) and path.with_name(path.name.removesuffix(end)).exists()
        for end in _BESIDE_SQLITE
    )


def _logs(database: Database) -> dict[str, tuple[LogEnd, LogEnds]]:
    """Return the end of each company's log, and its ends in the database."""
    from memtui.analytics.layout import log_ends

    with database.read() as connection:
        rows = list(connection.execute(select(HEADS)))
    return {row.company_id: (LogEnd.like(row), log_ends(database, row.company_id)) for row in rows}


def _info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFREG | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def restore(source: Path, paths: Paths) -> Backup:
    """Restore a backup into an empty home, after verifying it. Blocking.

    Memories that were outside the home go to its folder `outside`.

    Raises:
        Invalid: the home is not empty, the file is not a complete backup or fails verification, or
            the home cannot be written.
    """
    for folder in dict.fromkeys((paths.data, paths.config)):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Invalid(
                f"{folder} is not empty, and a restore never replaces files; give an empty folder "
                "with --to."
            )
    try:
        make_private(paths.data.parent)
        with closing(Scratch(paths.data.parent)) as scratch:
            work = scratch.path / paths.data.name
            work.mkdir(mode=0o700)
            with _read(source) as (file, found):
                _unpack(file, found, work)
            _prove(found, work)
            if paths.config != paths.data and (work / "config.toml").exists():
                make_private(paths.config)
                shutil.move(work / "config.toml", paths.config_file)
            work.rename(paths.data)
    except OSError as error:
        raise Invalid(
            f"{error.filename or source}: {error.strerror}; nothing was restored."
        ) from error
    return found


@contextmanager
def _read(source: Path) -> Iterator[tuple[zipfile.ZipFile, Backup]]:
    refuse_other_than_file(source)
    try:
        with zipfile.ZipFile(source) as file:
            info = file.getinfo(_CONTENTS)
            if info.file_size > _MAX_CONTENTS_BYTES:
                raise ValueError("too large")
            contents = json.loads(file.read(info))
            if contents["version"] != 1:
                raise Invalid("A newer memtui made this backup; upgrade memtui.")
            found = Backup.model_validate(contents)
            _check(file, found)
            yield file, found
    except _NO_BACKUP as error:
        raise Invalid(
            f"{source} is not a backup that memtui made, or it was altered or cut short; "
            "nothing was restored."
        ) from error


def _check(file: zipfile.ZipFile, found: Backup) -> None:
    """Raise `ValueError` unless the file has exactly the listed files, all inside the home."""
    names = [info.filename for info in file.infolist()]
    if sorted(names) != sorted([*found.files, _CONTENTS]):
        raise ValueError("other files than it says")
    for info in file.infolist():
        parts = info.filename.split("/")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if (
            not {"", ".", ".."}.isdisjoint(parts)
            or "\\" in info.filename
            or "\0" in info.orig_filename
            or kind not in (0, stat.S_IFREG)
            or (parts[0] not in _TOPS and info.filename != _CONTENTS)
        ):
            raise ValueError("a name that leads elsewhere")


def _unpack(file: zipfile.ZipFile, found: Backup, work: Path) -> None:
    for name, known in found.files.items():
        path = work.joinpath(*name.split("/"))
        make_private(path.parent)
        digest, left = hashlib.sha256(), known.bytes
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(path, flags, 0o600), "wb") as target, file.open(name) as packed:
            while chunk := packed.read(min(_CHUNK, left + 1)):
                left -= len(chunk)
                if left < 0:
                    break
                digest.update(chunk)
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        if left or digest.hexdigest() != known.sha256:
            raise ValueError("a file that differs from its checksum")
        path.chmod(known.mode & 0o700)
        os.utime(path, ns=(known.modified_ns, known.modified_ns))


def _prove(found: Backup, work: Path) -> None:
    """Verify an unpacked home: database pages, log ends, archive, and each operation's digest."""
    inside = find_paths(work)
    problems: list[str] = []
    if found.database != "sqlite":
        problems += _log_problems(None, inside.archive, [*found.logs])
    else:
        with closing(Database.open(inside.database, create=False)) as database:
            problems += database.problems()
            if {one: end for one, (end, _) in _logs(database).items()} != found.logs:
                problems.append("The operation log does not end where the backup says.")
            problems += _log_problems(database, inside.archive, [*found.logs])
    if problems:
        raise Invalid(
            f"The backup cannot be verified: {problems[0]} Nothing was restored; try another "
            "backup."
        )


def _log_problems(database: Database | None, root: Path, companies: Sequence[str]) -> Iterator[str]:
    """Yield the problems of the archive under `root` and of the database, if there is one."""
    from memtui.analytics import archive, audit

    for company_id in companies:
        yield from archive.verify(root, company_id, database).problems
        if database is not None and (problem := audit.verify(database, root, company_id).problem):
            yield problem
