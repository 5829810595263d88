"""The fact tables, in SQLite or in a PostgreSQL shared with other programs (seed 004 §6.1).

They are the seed's two tables, and one of memtui's own. Tables that memtui creates have no foreign
keys, because it has no `users` and `drives`; existing tables may have them.
Times are UTC: `timestamp` without a zone in PostgreSQL, ISO 8601 text with microseconds in SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Boolean,
    Column,
    Connection,
    DateTime,
    Engine,
    Enum,
    Index,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from memtui.contract import Conflict, Denied, Invalid, MemtuiError, Unavailable, place_of_url
from memtui.paths import is_writable
from memtui.sqlite import use_wal
from memtui.text_analysis import folded
from memtui.wording import missing_extra

FILE = "facts.sqlite3"
_WAIT_MS = 10_000
_ADVISORY_LOCK = 0x6D65_6D74_7569
"""Key of the advisory lock that serialises memtui's writers of one database."""


# No SQLModel: the tables are not part of the control plane, and two are another program's.
METADATA = MetaData()
MOMENT = Text().with_variant(DateTime(), "postgresql")


def _memories(name: str, owner: str, *more: Column[str]) -> Table:
    return Table(
        name,
        METADATA,
        Column("id", Text, primary_key=True),
        Column(owner, Text, nullable=False),
        Column("fact", Text, nullable=False),
        Column("createdAt", MOMENT, nullable=False, server_default=func.current_timestamp()),
        *more,
        Column("source", Text),
        Index(f"{name}_{owner}_idx", owner),
    )


USERS = _memories("user_memories", "userId")
DRIVES = _memories("drive_memories", "driveId", Column("createdBy", Text))
DETAILS = Table(
    "memtui_fact_details",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("updated_at", MOMENT),
    Column("expires_at", MOMENT),
    Column("pinned", Boolean, nullable=False),
    Column("topic", Text),
    Column("tags", Text, nullable=False),
    Column("source_kind", Text),
    Column("agent_id", Text),
    Column("issue_id", Text),
    Column("run_id", Text),
    Column("extra", Text, nullable=False),
)

TABLES = {"user": USERS, "drive": DRIVES}
OWNERS = {"user": "userId", "drive": "driveId"}


def is_postgres(connection: Connection) -> bool:
    """Whether a connection is to PostgreSQL, not SQLite."""
    return connection.dialect.name == "postgresql"


class FactsDatabase:
    """A pool of connections. Blocking: the adapter calls it from worker threads.

    memtui's writers are serialised, so that a write builds on what it reads. Other programs are
    not, so each change requires that the row is still as it was read.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self.has_details = False
        """Whether memtui's own table exists."""

    @classmethod
    def open(cls, folder: Path, url: str | None, *, create: bool, read_only: bool) -> FactsDatabase:
        """Open the database at `url`, or else the SQLite file in `folder`.

        Raises:
            Invalid: the URL is malformed, or a table is missing or has another shape.
            Denied: the tables may not be created.
            Unavailable: the database cannot be reached, or is not a database.
        """
        path = folder / FILE
        lies_still = read_only and folder.is_dir() and not is_writable(folder)
        if url:
            engine = _postgres(url, read_only=read_only)
        elif not lies_still:
            engine = _sqlite(path)
        elif path.exists():
            engine = _as_it_lies(path)
        else:
            return cls.in_memory()
        database = cls(engine)
        try:
            database._prepare(create=(create and not read_only) or not url)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def in_memory(cls) -> FactsDatabase:
        """Return empty tables that exist until they are closed."""
        engine = create_engine(
            "sqlite://", poolclass=QueuePool, pool_size=1, max_overflow=0,
            connect_args={"check_same_thread": False},
        )  # fmt: skip
        _listen(engine)
        database = cls(engine)
        database._prepare(create=True)
        return database

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for one consistent read."""
        with translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection for one transaction, exclusive among memtui's writers.

        It is durable once it ends.
        """
        with translated(), self._lock, self._engine.connect() as plain:
            connection = plain.execution_options(immediate=True)
            with connection.begin() as transaction:
                if is_postgres(connection):
                    connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
                yield connection
                with translated(sent=True):
                    transaction.commit()

    def scrub(self) -> bool:
        """Remove deleted rows from the file, its freed pages and its write-ahead log.

        Returns False if another process still uses the log. PostgreSQL is left to its owner.
        """
        if self.is_shared:
            return True
        with translated(), self._lock:
            connection = self._engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute("VACUUM")
                [busy, *_] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.close()
        return not busy

    @property
    def is_shared(self) -> bool:
        """Whether the database is a PostgreSQL, not memtui's own file."""
        return self._engine.dialect.name == "postgresql"

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()

    def _prepare(self, *, create: bool) -> None:
        with translated(), self._engine.connect() as connection:
            missing = _missing(connection)
        if missing and create:
            try:
                with self.write() as connection:
                    METADATA.create_all(connection, tables=_missing(connection))
            except Denied as error:
                names = " and ".join(table.name for table in missing)
                raise Denied(
                    f"The database's role may not create {names}; let the database's owner do it."
                ) from error
            missing = []
        self.has_details = DETAILS not in missing
        needed = [table.name for table in missing if table is not DETAILS]
        if needed:
            raise Invalid(
                f"The database has no table {' and '.join(needed)}; set create to true to have "
                "memtui create what is missing."
            )


def _missing(connection: Connection) -> list[Table]:
    inspector = inspect(connection)
    missing = []
    for table in (USERS, DRIVES, DETAILS):
        if not inspector.has_table(table.name):
            missing.append(table)
            continue
        there = {column["name"]: column["type"] for column in inspector.get_columns(table.name)}
        lacking = [column.name for column in table.columns if column.name not in there]
        if lacking:
            raise Invalid(
                f"The table {table.name} has no column {lacking[0]}; this is not a table of facts "
                "that memtui knows."
            )
        for column in table.columns:
            found = there[column.name]
            is_text = isinstance(found, String) and not isinstance(found, Enum)
            if isinstance(column.type, Text) and column.type is not MOMENT and not is_text:
                raise Invalid(
                    f"The column {column.name} of {table.name} is of the type {found}, and memtui "
                    "needs text there; use tables whose columns are text."
                )
    return missing


def _postgres(url: str, *, read_only: bool) -> Engine:
    parsed = _parse(url)
    defaults = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": 30_000}
    arguments: dict[str, Any] = {
        name: value for name, value in defaults.items() if name not in parsed.query
    }
    # Off: prepared statements outlive a transaction, but a pooler may switch connections then.
    arguments["prepare_threshold"] = None
    try:
        engine = create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
    except ModuleNotFoundError as error:
        raise missing_extra("PostgreSQL", "postgres") from error
    settings = {
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "lock_timeout": str(_WAIT_MS),
        "statement_timeout": str(3 * _WAIT_MS),
        **({"transaction_read_only": "on"} if read_only else {}),
    }
    calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(f"SELECT {calls}"))
    return engine


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgres", "postgresql"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.drivername != "postgresql+psycopg":
            raise Invalid(f"Facts cannot be kept in {parsed.drivername}; use postgresql://.")
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise Invalid(
            "The facts' url is not a database URL; use postgresql://user@host/name."
        ) from error
    return parsed


def place_of(url: str) -> tuple[str, ...]:
    """Return the place of a database (`Adapter.places`). Raises `Invalid` for a malformed URL."""
    parsed = _parse(url)
    # As in libpq, a query may name the server; a socket's folder means this machine.
    host = str(parsed.query.get("host", parsed.host) or "localhost")
    port = parsed.query.get("port", parsed.port) or 5432
    server = "localhost" if host.startswith("/") else host
    return place_of_url(f"postgresql://{server}:{port}/{parsed.database or parsed.username or ''}")


def has_password(url: str) -> bool:
    """Whether a database URL contains a password. Raises `Invalid` for a malformed URL."""
    parsed = _parse(url)
    return bool(parsed.password) or not {"password", "sslpassword"}.isdisjoint(parsed.query)


def _sqlite(path: Path) -> Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise Unavailable(f"Cannot use {path}: {error.strerror}.") from error
    engine = create_engine(
        URL.create("sqlite", database=str(path)), connect_args={"timeout": _WAIT_MS / 1000}
    )
    _listen(engine)
    return engine


def _as_it_lies(path: Path) -> Engine:
    """Open a file in a read-only folder, where SQLite cannot even write its shared memory."""
    changes = path.with_name(f"{path.name}-wal")
    is_still = not (changes.exists() and changes.stat().st_size)
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        creator=lambda: sqlite3.connect(uri, uri=True, check_same_thread=False),
    )
    event.listen(engine, "connect", _prepare_reading)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _listen(engine: Engine) -> None:
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)


def _configure_sqlite(connection: Any, _record: object) -> None:
    _prepare_reading(connection, _record)
    use_wal(connection, _WAIT_MS / 1000)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _prepare_reading(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.create_function("memtui_folded", 1, folded, deterministic=True)


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


_DENIED = frozenset({"42501", "25006", "28000", "28P01", "SQLITE_READONLY"})
_CLASH = frozenset({"23505", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"})
_MISSING = frozenset({"23503", "SQLITE_CONSTRAINT_FOREIGNKEY"})
_CHANGED = frozenset({"42P01", "42703", "42804"})


def code_of(error: DBAPIError) -> str:
    """Return PostgreSQL's state code, or SQLite's name of the error."""
    original = error.orig
    return str(
        getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None) or ""
    )


def is_missing_parent(error: IntegrityError) -> bool:
    """Whether a foreign key refers to a missing row."""
    return code_of(error) in _MISSING


@contextmanager
def translated(*, sent: bool = False) -> Iterator[None]:
    """Translate the database's errors to the contract's; `sent`: the change may have happened."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise Invalid(
            "The text contains half a character (a lone surrogate), which no database stores; "
            "remove it."
        ) from error
    except DBAPIError as error:
        raise _translate(error, sent=sent) from error


def _translate(error: DBAPIError, *, sent: bool) -> MemtuiError:
    code, reason = code_of(error), _reason(error)
    if code in _DENIED:
        return Denied(f"The database refused permission ({reason}); ask its owner to grant it.")
    if code in _CLASH:
        return Conflict("A fact with the same id exists already; read it and try again.")
    if code in _CHANGED:
        return Unavailable(
            f"The fact tables were changed while memtui had them open ({reason}); try again."
        )
    if code.startswith(("22", "23")) or "NUL" in reason:
        return Invalid(f"The database refused the values ({reason}); change them.")
    return Unavailable(
        f"The facts' database failed ({reason}); check its disk or server and try again.", sent=sent
    )


def _reason(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0][:200] if lines else type(error.orig).__name__
