"""The fact tables, in SQLite or in a PostgreSQL shared with other programs (seed 004 §6.1).

They are the seed's two tables, and one of memtui's own. Tables that memtui creates have no foreign
keys, because it has no `users` and `drives`; existing tables may have them.
Times are UTC: `timestamp` without a zone in PostgreSQL, ISO 8601 text with microseconds in SQLite.
"""

from __future__ import annotations

import os
from contextlib import closing
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
)
from sqlalchemy.pool import QueuePool

from memtui.contract import Denied, Invalid, Unavailable
from memtui.paths import is_writable
from memtui.provider_kit.databases import (
    WAIT_MS,
    DatabasePool,
    as_it_lies,
    begin_sqlite,
    open_postgres,
    translated,
)
from memtui.provider_kit.derived import scrub
from memtui.sqlite import use_wal
from memtui.text_analysis import folded

FILE = "facts.sqlite3"

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


class FactsDatabase(DatabasePool):
    """The tables of facts."""

    has_details = False
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
            engine = open_postgres(url, read_only=read_only)
        elif not lies_still:
            engine = _sqlite(path)
        elif path.exists():
            engine = as_it_lies(path, _prepare_reading)
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

    def scrub(self) -> bool:
        """Remove deleted rows from the file, its freed pages and its write-ahead log.

        Returns False if another process still uses the log. PostgreSQL is left to its owner.
        """
        if self.is_shared:
            return True
        with translated(), self._lock, closing(self._engine.raw_connection()) as connection:
            plain: Any = connection.driver_connection
            return scrub(plain)

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


def _sqlite(path: Path) -> Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise Unavailable(f"Cannot use {path}: {error.strerror}.") from error
    engine = create_engine(
        URL.create("sqlite", database=str(path)), connect_args={"timeout": WAIT_MS / 1000}
    )
    _listen(engine)
    return engine


def _listen(engine: Engine) -> None:
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", begin_sqlite)


def _configure_sqlite(connection: Any, _record: object) -> None:
    _prepare_reading(connection, _record)
    use_wal(connection, WAIT_MS / 1000)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _prepare_reading(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.create_function("memtui_folded", 1, folded, deterministic=True)
