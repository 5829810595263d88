"""The connection to the control plane's database, SQLite or PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlmodel import SQLModel

from memtui.contract import Denied, Invalid, NotFound, Unavailable
from memtui.store.columns import stored_json
from memtui.store.schema import current_revision, ensure_schema, require_newest

SEE_RECOVERY = "`memtui doctor` says what can be got back, and docs/recovery.md how"
"""The end of a sentence about a database that is damaged or gone."""

_BUSY_TIMEOUT_MS = 30_000
_MAGIC = b"SQLite format 3\x00"
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class Database:
    """A pool of connections. Blocking: the service calls it from worker threads.

    On SQLite a writer takes the write lock at its start (`BEGIN IMMEDIATE`), so that what it reads
    is what it builds on; on PostgreSQL the rows that matter are locked by their statements.
    """

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self._engine = engine
        self.read_only = read_only
        """Whether it lies where nothing can be written, so that no operation can be recorded."""
        self._sqlite = engine.dialect.name == "sqlite"
        self._errors: tuple[type[Exception], ...] = (
            SQLAlchemyError,
            engine.dialect.loaded_dbapi.Error,
        )
        self._write_lock = threading.Lock()
        self._writer: Connection | None = None
        self._path = _path_of(engine) if self._sqlite else None
        self._file = self._path and _identity(self._path)

    @classmethod
    def open(
        cls, path: Path, url: str = "", *, create: bool = True, read_only: bool = False
    ) -> Database:
        """Open the database at `url`, else the SQLite file at `path`, with the newest schema.

        `read_only`, of a SQLite file: nothing can be written where it lies.

        Raises:
            Invalid: the URL makes no sense, or a newer memtui made the database.
            NotFound: it has no tables yet, and `create` is False; nothing was written.
            Unavailable: the database cannot be reached, is damaged, or is no database.
        """
        if read_only and not url:
            database = cls(_make_reading_engine(path), read_only=True)
        else:
            engine = _make_engine(url, create=create) if url else _make_sqlite_engine(path, create)
            database = cls(engine)
        try:
            with database.read() as connection:
                connection.exec_driver_sql("SELECT 1")
                if not create or database.read_only:
                    _require_tables(connection)
                if database.read_only:
                    require_newest(connection)
            if not database.read_only:
                with database.write() as connection:
                    ensure_schema(connection)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent read."""
        with self._guard(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Connection]:
        """One transaction. `durable`: once it ends it survives a power cut, not just a crash.

        Raises:
            Denied: it can only be read.
        """
        if self.read_only:
            raise Denied("This home cannot be written where it lies, so nothing can be changed.")
        if not self._sqlite:
            with self._guard(), self._engine.begin() as connection:
                yield connection
            return
        with self._guard(), self._write_lock:
            # Kept, because getting a connection takes longer than a small transaction.
            if self._writer is None:
                self._writer = self._engine.connect().execution_options(immediate=True)
            _set_synchronous(self._writer, "FULL" if durable else "NORMAL")
            with self._writer.begin():
                yield self._writer

    def problems(self) -> list[str]:
        """Return what is wrong with the pages of a SQLite file, at most five sentences.

        It reads the whole file. Of PostgreSQL it knows nothing.
        """
        if not self._sqlite:
            return []
        with self.read() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(5)").scalars().all()
        return [str(one) for one in found if one != "ok"]

    def scrub(self) -> bool:
        """Keep nothing of what was deleted or overwritten in the database's own files.

        SQLite writes its file anew and empties its write-ahead log; PostgreSQL writes memtui's
        tables and their statistics anew, and its own log is its owner's. Returns False where
        another process still holds SQLite's log.
        """
        with self._guard(), self._write_lock:
            connection = self._engine.raw_connection()
            try:
                if not self._sqlite:
                    connection.driver_connection.autocommit = True  # type: ignore[union-attr]
                    cursor = connection.cursor()
                    for table in SQLModel.metadata.sorted_tables:
                        cursor.execute(f'VACUUM (FULL, ANALYZE) "{table.name}"')
                    connection.invalidate()
                    return True
                cursor = connection.cursor()
                cursor.execute("VACUUM")
                [busy, *_] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return not busy
            finally:
                connection.close()

    def close(self) -> None:
        """Close every pooled connection."""
        with self._write_lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._engine.dispose()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        if self._path is not None and _identity(self._path) != self._file:
            # SQLite would go on in a file without a name, or begin an empty one.
            raise Unavailable(
                f"The control plane's database {self._path} is gone or was replaced; "
                "end memtui, put the file back, and start again."
            )
        try:
            yield
        except self._errors as error:
            cause = getattr(error, "orig", error)
            reason = (str(cause).strip().splitlines() or [""])[0]
            if getattr(cause, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise _damaged(self._path, reason) from error
            raise Unavailable(
                f"The control plane's database failed ({reason}); "
                "check its disk, permissions or server and try again."
            ) from error


def _path_of(engine: Engine) -> Path:
    name = engine.url.database or ""
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def _require_tables(connection: Connection) -> None:
    if current_revision(connection) is None:
        raise NotFound("The control plane's database has no tables yet.")


def _make_engine(url: str, *, create: bool) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgres", "postgresql"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            return _make_sqlite_engine(Path(parsed.database or ""), create)
        if parsed.get_backend_name() != "postgresql":
            raise Invalid(f"{parsed.drivername} is no database memtui runs on; use postgresql://.")
        return create_engine(parsed, pool_pre_ping=True, json_serializer=stored_json)
    except (ArgumentError, NoSuchModuleError) as error:
        raise Invalid(
            "database_url is no database URL; use postgresql://user@host/name."
        ) from error
    except ModuleNotFoundError as error:
        raise Invalid('PostgreSQL needs its driver: pip install "memtui[postgres]".') from error


def _make_sqlite_engine(path: Path, create: bool) -> Engine:  # noqa: FBT001
    try:
        if not create:
            _refuse_other(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise Invalid(
            f"Cannot use the database file {path} ({error.strerror}); choose another place."
        ) from error
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
        # A write empties the page caches of the other connections, so the same one is taken again.
        pool_use_lifo=True,
        json_serializer=stored_json,
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_reading_engine(path: Path) -> Engine:
    """SQLite's shared memory cannot be made there; unmerged changes need that of whoever wrote."""
    changes, shared = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
    try:
        _refuse_other(path)
        unmerged = changes.exists() and changes.stat().st_size > 0
        if unmerged and not shared.exists():
            raise Unavailable(
                f"{path} has changes in {changes.name} that can only be merged where it can be "
                "written; copy the home to such a place and read it there."
            )
    except OSError as error:
        raise Invalid(f"Cannot read the database file {path} ({error.strerror}).") from error
    still = {} if unmerged or shared.exists() else {"immutable": "1"}
    engine = create_engine(
        URL.create("sqlite", database=path.as_uri(), query={"mode": "ro", "uri": "true", **still}),
        connect_args={"check_same_thread": False},
        json_serializer=stored_json,
    )
    event.listen(engine, "connect", _configure_reading)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _refuse_other(path: Path) -> None:
    """Look at a file before SQLite does, which would make one and takes a byte for an empty one."""
    if not path.exists() or not path.stat().st_size:
        raise NotFound(f"The control plane's database {path} is not there.")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise _damaged(path, "file is not a database")


def _damaged(path: Path | None, reason: str) -> Unavailable:
    return Unavailable(
        f"The control plane's database {path} is damaged ({reason}); {SEE_RECOVERY}."
    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of its name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _configure_sqlite(connection: Any, record: object) -> None:
    _configure_reading(connection, record)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _configure_reading(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    # SQLite's own lower() knows ASCII only, and a filter's words come in any script.
    connection.create_function("lower", 1, _lower, deterministic=True)


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    _run(connection, "BEGIN IMMEDIATE" if immediate else "BEGIN")


def _set_synchronous(connection: Connection, level: str) -> None:
    """How durable a commit is. SQLite keeps it for the connection, and so does the pool's note."""
    if connection.info.get("synchronous") != level:
        _run(connection, f"PRAGMA synchronous = {level}")
        connection.info["synchronous"] = level


def _run(connection: Connection, sql: str) -> None:
    connection.connection.cursor().execute(sql)


def _lower(value: object) -> str | None:
    return None if value is None else str(value).lower()
