"""The control plane's database, SQLite or PostgreSQL: connections, statements and its schema."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from memtui.contract import Conflict, Denied, Invalid, MemtuiError, NotFound, Unavailable
from memtui.paths import is_writable
from memtui.patterns import late_pattern
from memtui.sqlite import add_lower, use_wal
from memtui.store.digest import HeadNotes, LogHead
from memtui.wording import missing_extra

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PICO = Decimal(10) ** 12
MARK = "\ue000"
"""Begins the escape of a character that no database holds: four hexadecimal digits follow it."""
_UNSTORABLE = late_pattern(f"[\x00\ud800-\udfff{MARK}]")
_MARKED = late_pattern(f"{MARK}([0-9a-f]{{4}})")
_ASCII_JSON = json.JSONEncoder(separators=(",", ":"))


def stored_moment(value: datetime | None) -> int | None:
    """Return a moment in microseconds since 1970."""
    return None if value is None else (value - _EPOCH) // _MICROSECOND


def loaded_moment(value: Any) -> datetime | None:
    """Return the moment that was stored, in UTC."""
    return None if value is None else _EPOCH + value * _MICROSECOND


def stored_dollars(value: Decimal | None) -> int | None:
    """Return US dollars in units of 1e-12 dollars."""
    return None if value is None else int(value * _PICO)


def loaded_dollars(value: Any) -> Decimal | None:
    """Return the US dollars that were stored."""
    return None if value is None else Decimal(value).scaleb(-12)


def stored_text(value: str | None) -> str | None:
    """Return a text with NUL and lone surrogates, which no database stores, escaped."""
    if value is None:
        return None
    plain = value if type(value) is str else str(value)
    if plain.isascii() and "\x00" not in plain:
        return plain
    return _UNSTORABLE.sub(lambda match: f"{MARK}{ord(match[0]):04x}", plain)


def loaded_text(value: Any) -> str | None:
    """Return the text that was stored."""
    if value is None or MARK not in value:
        return None if value is None else str(value)
    return _MARKED.sub(lambda match: chr(int(match[1], 16)), value)


def stored_json(value: object) -> str:
    """Return the text of a JSON column."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except PydanticSerializationError:  # half of a surrogate pair, which UTF-8 cannot encode
        return _ASCII_JSON.encode(value)


def loaded_json(value: Any) -> Any:
    """Return the value of a JSON column."""
    if value is None:
        return None
    try:
        return from_json(value)
    except ValueError:  # half of a surrogate pair, as above; `json` takes 1.5 times as long
        return json.loads(value)


def loaded_flag(value: Any) -> bool | None:
    """Return the value of a Boolean column, which SQLite stores as a number."""
    return None if value is None else bool(value)


def unsigned_zero(value: float | None) -> float | None:
    """Return a number as every database stores it: SQLite has no -0.0."""
    return None if value is None else value + 0.0


Convert: TypeAlias = "Callable[[Any], Any] | None"
"""A conversion; None: the value is left as it is."""
_STORED: dict[type, Convert] = {
    str: stored_text,
    datetime: stored_moment,
    Decimal: stored_dollars,
    float: unsigned_zero,
    dict: stored_json,
    list: stored_json,
    tuple: stored_json,
}
_LOADED: Mapping[str, Convert] = {
    "text": loaded_text,
    "moment": loaded_moment,
    "json": loaded_json,
    "flag": loaded_flag,
    "plain": None,
}
LOADED: Mapping[str, Mapping[str, Convert]] = {
    "sqlite": _LOADED,
    "postgresql": {**_LOADED, "json": None},  # its driver parses JSON
}
"""The conversions on loading, by dialect and kind of column."""


def stored(value: Any) -> Any:
    """Return a value as a statement's parameter, by its type."""
    kind = type(value)
    if kind not in _STORED:  # a subclass is stored as its base is
        _STORED[kind] = next((_STORED[one] for one in kind.__mro__ if one in _STORED), None)
    convert = _STORED[kind]
    return value if convert is None else convert(value)


def quoted(text: object) -> str:
    """Return a text as an SQL literal, valid in DuckDB, SQLite and PostgreSQL."""
    return "'" + str(text).replace("'", "''") + "'"


if TYPE_CHECKING:
    import sqlalchemy


HEAD = "0001"
"""The newest revision under `migrations/versions`."""

MIGRATIONS = Path(__file__).parent / "migrations"
_SCHEMA = Path(__file__).parent / "schema.sql"

SEE_RECOVERY = "`memtui doctor` says what can be got back, and docs/recovery.md how"
"""The end of a sentence about a database that is damaged or gone."""

_SCHEMA_LOCK = 0x6D656D747569
"""PostgreSQL advisory lock: several machines may start at once."""
_BUSY_TIMEOUT_S = 30
_ALONE_TIMEOUT_S = 1
"""How long `alone` waits for a command that is still running."""
_MAGIC = b"SQLite format 3\x00"
_SHARED_BYTES = 32_768
"""Size of SQLite's shared memory; a smaller file was cut short by a full disk."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


IDS_AT_ONCE = 50
"""How many ids a statement on several records takes."""


class Driver(sqlite3.Connection):
    """SQLite's connection, which SQLAlchemy shares: only its owner ends a transaction or closes."""

    def commit(self) -> None:
        """Leave it to the owner."""

    def rollback(self) -> None:
        """Leave it to the owner."""

    def close(self) -> None:
        """Leave it to the owner."""

    def end(self) -> None:
        """Close it."""
        super().close()


class DatabaseConnection:
    """A connection with an open transaction.

    A `memtui.store.statements.Statement` runs on the database's driver. `execute` takes any
    statement of SQLAlchemy, and imports it on first use: most commands do not need it.
    """

    def __init__(self, dialect: str, driver: Any, alchemy: Callable[[], Any]) -> None:
        self.dialect = dialect
        """`sqlite` or `postgresql`."""
        self.driver = driver
        self.heads: dict[str, tuple[LogHead, LogHead]] = {}
        """By company, the end of its log before this transaction, and now."""
        self._open_alchemy = alchemy
        self._alchemy: sqlalchemy.Connection | None = None

    @property
    def alchemy(self) -> sqlalchemy.Connection:
        """The SQLAlchemy connection over the same driver connection."""
        if self._alchemy is None:
            self._alchemy = self._open_alchemy()
        return self._alchemy

    def execute(
        self, statement: sqlalchemy.Executable, parameters: Any = None
    ) -> sqlalchemy.CursorResult[*tuple[Any, ...]]:
        """Run a statement of SQLAlchemy."""
        return self.alchemy.execute(statement, parameters)

    def digest_at(self, company_id: str, seq: int) -> str | None:
        """Return the digest of a hot operation; None: it is sealed, or does not exist.

        Not a `Statement`, as that imports this module.
        """
        mark = "?" if self.dialect == "sqlite" else "%s"
        cursor = self.driver.cursor()
        cursor.execute(
            f"SELECT digest FROM memory_operations WHERE company_id = {mark} AND seq = {mark}",  # noqa: S608
            (stored_text(company_id), seq),
        )
        found = cursor.fetchone()
        cursor.close()
        return str(found[0]) if found else None

    def exec_driver_sql(self, sql: str) -> Any:
        """Run plain SQL and return the driver's cursor."""
        cursor = self.driver.cursor()
        cursor.execute(sql)
        return cursor

    def forget_transaction(self) -> None:
        """Let SQLAlchemy know that the transaction has ended."""
        if self._alchemy is not None:
            self._alchemy.rollback()


class Database:
    """A pool of connections. Blocking: the service calls it from worker threads.

    On SQLite a writer takes the write lock at its start (`BEGIN IMMEDIATE`), so that nothing it
    reads changes before it writes; on PostgreSQL the statements lock the rows concerned.
    """

    def __init__(self, place: _SqliteFile | sqlalchemy.Engine) -> None:
        self._sqlite = place if isinstance(place, _SqliteFile) else None
        self._postgres = None if isinstance(place, _SqliteFile) else place
        self._write_lock = threading.Lock()
        self.read_only = bool(self._sqlite and self._sqlite.read_only)
        """Whether the file is on read-only media, so that no operation can be recorded."""
        self.notes: HeadNotes | None = None
        """The notes of the ends of its logs; None: they are not noted."""

    @classmethod
    def open(
        cls, path: Path, url: str = "", *, create: bool = True, read_only: bool = False
    ) -> Database:
        """Open the database at `url`, else the SQLite file at `path`, with the newest schema.

        `read_only`: the SQLite file is on read-only media.

        Raises:
            Invalid: the URL is not valid, or a newer memtui made the database.
            NotFound: it has no tables yet, and `create` is False; nothing was written.
            Unavailable: the database cannot be reached, is damaged, or is not a database.
        """
        if url:
            database = cls(_open_url(url, create=create))
        else:
            database = cls(_SqliteFile(path, create=create, read_only=read_only))
        try:
            database._prepare(create=create)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, *, create: bool) -> None:
        with self.read() as connection:
            revision = current_revision(connection)
        if revision is None and (not create or self.read_only):
            raise NotFound("The control plane's database has no tables yet.")
        if revision == HEAD:
            return
        if self.read_only:
            raise Invalid(
                f"The database is at schema {revision} and this memtui reads {HEAD}; use the "
                "memtui that made it, or open it once where it can be written."
            )
        with self.write() as connection:
            ensure_schema(connection)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return "sqlite" if self._sqlite else "postgresql"

    @contextmanager
    def read(self) -> Iterator[DatabaseConnection]:
        """Open a transaction for reading: every statement sees the same state."""
        with self._guard():
            if self._sqlite is not None:
                with self._sqlite.reading() as connection:
                    yield connection
            elif self._postgres is not None:
                repeatable = self._postgres.execution_options(isolation_level="REPEATABLE READ")
                with repeatable.connect() as alchemy:
                    yield _of_postgres(alchemy)

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[DatabaseConnection]:
        """Open a transaction for writing. `durable`: it survives a power cut, not only a crash.

        Raises:
            Denied: the database is read-only.
        """
        if self.read_only:
            raise Denied(
                "This home is on a read-only medium, so nothing can be changed; copy it to a place "
                "that can be written."
            )
        if self._sqlite is not None:
            with self._guard(), self._write_lock, self._sqlite.writing(durable) as connection:
                connection.heads = {}
                yield connection
                heads = connection.heads
            self._note(heads, durable=durable)
        elif self._postgres is not None:
            with self._guard(), self._postgres.begin() as alchemy:
                connection = _of_postgres(alchemy)
                yield connection
            self._note(connection.heads, durable=True)

    @contextmanager
    def claim(self, what: str) -> Iterator[bool]:
        """Claim a task, named in words, among the machines that share a PostgreSQL.

        Gives whether it was free, which on SQLite it always is. A lost connection ends the claim.
        """
        if self._postgres is None:
            yield True
            return
        from sqlalchemy import func, select

        number = func.hashtextextended(what, 0)
        with self._guard(), self._postgres.begin() as alchemy:
            yield bool(alchemy.scalar(select(func.pg_try_advisory_xact_lock(number))))

    def _note(self, heads: Mapping[str, tuple[LogHead, LogHead]], *, durable: bool) -> None:
        """Note the ends of logs after a commit; a failure is only logged, as the commit stands."""
        if self.notes is None:
            return
        for company_id, (before, last) in heads.items():

            def digest_at(seq: int, company_id: str = company_id) -> str | None:
                with self.read() as connection:
                    return connection.digest_at(company_id, seq)

            try:
                self.notes.advance(company_id, before, last, durable=durable, digest_at=digest_at)
            except OSError as error:
                import logging

                message = "Where the log of %s ends could not be noted (%s)"
                logging.getLogger(__name__).warning(message, company_id, error.strerror)

    def problems(self) -> list[str]:
        """Return what is wrong with the pages of a SQLite file, at most five sentences.

        It reads the whole file. PostgreSQL is not checked: the list is empty.
        """
        if self._sqlite is None:
            return []
        with self.read() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(5)").fetchall()
        return [str(one) for (one,) in found if one != "ok"]

    def scrub(self) -> bool:
        """Remove deleted and overwritten data from the database's files.

        SQLite rewrites its file and empties its write-ahead log; PostgreSQL rewrites memtui's
        tables and their statistics, and its write-ahead log is left to its owner. Returns False
        where another process still uses SQLite's log.
        """
        with self._guard(), self._write_lock:
            if self._sqlite is not None:
                return self._sqlite.scrub()
            if self._postgres is not None:
                _scrub_postgres(self._postgres)
            return True

    def close(self) -> None:
        """Close every pooled connection."""
        with self._write_lock:
            if self._sqlite is not None:
                self._sqlite.close()
            elif self._postgres is not None:
                self._postgres.dispose()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        path = self._sqlite.path if self._sqlite else None
        if self._sqlite is not None and self._sqlite.was_replaced():
            # SQLite would go on in the unlinked file, or create an empty one.
            raise Unavailable(
                f"The control plane's database {path} is gone or was replaced; "
                "end memtui, put the file back, and start again."
            )
        try:
            yield
        except _database_errors() as error:
            raise _failure(error, path) from error


def _failure(error: Exception, path: Path | None) -> MemtuiError:
    """Return the error to raise for a database's error; `path` is SQLite's file."""
    cause = getattr(error, "orig", error)
    reason = (str(cause).strip().splitlines() or [""])[0]
    if getattr(cause, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
        return _damaged(path, reason)
    if path is not None and not is_writable(path.parent):
        return Unavailable(
            f"{path.parent} cannot be written or its disk is full ({reason}); make some "
            "room, or read it with --read-only."
        )
    if _is_of_another_schema(cause, reason):
        return Unavailable(
            f"The database {path or 'of this home'} was made by another version of memtui "
            f"({reason}); open it with that version, or name another home by MEMTUI_HOME."
        )
    return Unavailable(
        f"The control plane's database failed ({reason}); "
        "check its disk, permissions or server and try again."
    )


def _is_of_another_schema(cause: Any, reason: str) -> bool:
    """Whether a statement failed because a table or column is missing."""
    undefined = {"42P01", "42703"}  # PostgreSQL's codes for a table, a column
    sqlstate = getattr(cause, "sqlstate", None)
    return sqlstate in undefined or reason.startswith(("no such column", "no such table"))


@contextmanager
def alone(path: Path) -> Iterator[DatabaseConnection]:
    """Open a transaction on a SQLite file that no other connection has open or can open.

    Raises:
        Conflict: another connection has it open.
        NotFound: there is no such file.
        Unavailable: it is damaged, or cannot be written.
    """
    driver = _SqliteFile(path, create=False).open_driver(_ALONE_TIMEOUT_S)
    try:
        try:
            # Every connection to a file with a write-ahead log locks it as long as it is open.
            driver.execute("PRAGMA locking_mode = EXCLUSIVE")
            driver.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in _IN_USE:
                raise Conflict(f"{path} is open in another memtui; end that first.") from error
            raise _failure(error, path) from error
        yield DatabaseConnection("sqlite", driver, lambda: _ALCHEMY.over(driver))
    finally:
        driver.end()


class _SqliteFile:
    """A SQLite file: a pool of connections for reading, and one for writing."""

    def __init__(self, path: Path, *, create: bool = True, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._uri = _reading_uri(path) if read_only else _writable_uri(path, create=create)
        self._identity = _identity(path)
        self._idle: list[DatabaseConnection] = []
        self._writer: DatabaseConnection | None = None
        self._synchronous = ""

    def was_replaced(self) -> bool:
        """Whether another file, or none, is at its path now."""
        return _identity(self.path) != self._identity

    @contextmanager
    def reading(self) -> Iterator[DatabaseConnection]:
        # The connection used last has the warmest page cache.
        connection = self._idle.pop() if self._idle else self._connect()
        try:
            with _transaction(connection, "BEGIN", "ROLLBACK"):
                yield connection
        finally:
            self._idle.append(connection)

    @contextmanager
    def writing(self, durable: bool) -> Iterator[DatabaseConnection]:  # noqa: FBT001
        # Reused, because opening a connection takes longer than a small transaction.
        if self._writer is None:
            self._writer = self._connect()
        level = "FULL" if durable else "NORMAL"
        if self._synchronous != level:
            self._writer.driver.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = level
        with _transaction(self._writer, "BEGIN IMMEDIATE", "COMMIT"):
            yield self._writer

    def scrub(self) -> bool:
        driver = self._connect().driver
        try:
            driver.execute("VACUUM")
            [busy, *_] = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy
        finally:
            driver.end()

    def close(self) -> None:
        connections = [*self._idle, *([self._writer] if self._writer else [])]
        self._idle, self._writer = [], None
        for connection in connections:
            connection.driver.end()

    def open_driver(self, timeout_s: float) -> Driver:
        return sqlite3.connect(
            self._uri,
            uri=True,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=Driver,
        )

    def _connect(self) -> DatabaseConnection:
        driver = self.open_driver(_BUSY_TIMEOUT_S)
        add_lower(driver)
        try:
            if not self.read_only:
                use_wal(driver, _BUSY_TIMEOUT_S)
                driver.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            # On closing, SQLite removes the files that it made beside a damaged one.
            driver.end()
            raise
        return DatabaseConnection("sqlite", driver, lambda: _ALCHEMY.over(driver))


class _Alchemy:
    """SQLAlchemy over connections to SQLite files; one engine shares the compiled statements."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: sqlalchemy.Engine | None = None
        self._handed_over: Driver | None = None

    def over(self, driver: Driver) -> sqlalchemy.Connection:
        """Return a SQLAlchemy connection over the driver's."""
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        with self._lock:
            if self._engine is None:
                self._engine = create_engine(
                    "sqlite://",
                    creator=lambda: self._handed_over,
                    poolclass=NullPool,
                    json_serializer=stored_json,
                )
            self._handed_over = driver
            return self._engine.connect()


_ALCHEMY = _Alchemy()


@contextmanager
def _transaction(connection: DatabaseConnection, begin: str, end: str) -> Iterator[None]:
    driver = connection.driver
    driver.execute(begin)
    try:
        yield
        # If SQLite has rolled back by itself, this fails instead of committing nothing.
        driver.execute(end)
    finally:
        connection.forget_transaction()
        if driver.in_transaction:
            driver.execute("ROLLBACK")


def current_revision(connection: DatabaseConnection) -> str | None:
    """Return the database's schema revision; None for an empty database."""
    if connection.dialect == "sqlite":
        has_table = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    else:
        has_table = "SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL"
    if connection.exec_driver_sql(has_table).fetchone() is None:
        return None
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


def ensure_schema(connection: DatabaseConnection) -> None:
    """Migrate to `HEAD` in the caller's transaction; nothing changes if it is up to date.

    Raises:
        Invalid: the database was made by a newer memtui.
    """
    if connection.dialect == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
    revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision is not None and revision > HEAD:
        raise Invalid(
            f"The database is at schema {revision} and this memtui knows {HEAD}; upgrade memtui."
        )
    if revision is None and connection.dialect == "sqlite":
        for statement in _SCHEMA.read_text("utf-8").splitlines():
            connection.exec_driver_sql(statement)
        return
    migrate(connection.alchemy)


def migrate(connection: sqlalchemy.Connection) -> None:
    """Run the migrations up to `HEAD` that were not yet run."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def _open_url(url: str, *, create: bool) -> _SqliteFile | sqlalchemy.Engine:
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgres", "postgresql"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            return _SqliteFile(Path(parsed.database or ""), create=create)
        if parsed.get_backend_name() != "postgresql":
            raise Invalid(f"memtui does not run on {parsed.drivername}; use postgresql://.")
        return create_engine(parsed, pool_pre_ping=True, json_serializer=stored_json)
    except (ArgumentError, NoSuchModuleError) as error:
        raise Invalid(
            "database_url is not a database URL; use postgresql://user@host/name."
        ) from error
    except ModuleNotFoundError as error:
        raise missing_extra("PostgreSQL", "postgres") from error


def _of_postgres(alchemy: sqlalchemy.Connection) -> DatabaseConnection:
    return DatabaseConnection("postgresql", alchemy.connection, lambda: alchemy)


def _scrub_postgres(engine: sqlalchemy.Engine) -> None:
    from sqlmodel import SQLModel

    connection: Any = engine.raw_connection()
    try:
        connection.driver_connection.autocommit = True
        cursor = connection.cursor()
        for table in SQLModel.metadata.sorted_tables:
            cursor.execute(f'VACUUM (FULL, ANALYZE) "{table.name}"')
        connection.invalidate()
    finally:
        connection.close()


def _writable_uri(path: Path, *, create: bool) -> str:
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
    return path.absolute().as_uri()


def _reading_uri(path: Path) -> str:
    """Return the URI for read-only media, where SQLite cannot create its shared memory.

    Changes in the write-ahead log can be read only through the shared memory of their writer.
    """
    changes, shared = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
    try:
        _refuse_other(path)
        unmerged = changes.exists() and changes.stat().st_size > 0
        if unmerged and not shared.exists():
            raise Unavailable(
                f"{path} has changes in {changes.name}, which can only be merged on a medium that "
                "can be written; copy the home to one and read it there."
            )
    except OSError as error:
        raise Invalid(f"Cannot read the database file {path} ({error.strerror}).") from error
    is_shared = unmerged or (shared.exists() and shared.stat().st_size >= _SHARED_BYTES)
    still = "" if is_shared else "&immutable=1"
    return f"{path.absolute().as_uri()}?mode=ro{still}"


def _refuse_other(path: Path) -> None:
    """Refuse a missing, empty or foreign file, before SQLite creates or initialises it."""
    if not path.exists() or not path.stat().st_size:
        raise NotFound(f"The control plane's database {path} is not there.")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise _damaged(path, "file is not a database")


def _damaged(path: Path | None, reason: str) -> Unavailable:
    return Unavailable(
        f"The control plane's database {path} is damaged ({reason}); {SEE_RECOVERY}."
    )


def _database_errors() -> tuple[type[Exception], ...]:
    """Return the error classes of the loaded database modules; others cannot have raised one."""
    errors: list[type[Exception]] = [sqlite3.Error]
    for module, name in (("sqlalchemy.exc", "SQLAlchemyError"), ("psycopg", "Error")):
        if loaded := sys.modules.get(module):
            errors.append(getattr(loaded, name))
    return tuple(errors)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode, which identify a file; None where it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
