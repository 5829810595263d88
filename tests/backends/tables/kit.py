"""Opens the providers of tables, and reads the rows of another program as they are stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from memtui.contract import BindingContext, Scope

NOW = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
COMPANY = Scope(company_id="acme")
Stored = list[tuple[Any, ...]]


def context(folder: Path, **fields: Any) -> BindingContext:
    """Return what to open an adapter with; what is no field of it is of the config."""
    own = {name: fields.pop(name) for name in ("secret", "read_only", "now") if name in fields}
    return BindingContext(
        company_id="acme", binding_key="main", config=fields, data_dir=folder / "data", **own
    )


def stored(where: str, table: str) -> Stored:
    """Return every row: of SQLite each value with its storage type, of PostgreSQL its text."""
    if where.startswith("postgresql"):
        with psycopg.connect(where) as connection:
            name = Identifier(*table.split("."))
            found = connection.execute(SQL("SELECT t::text, t.* FROM {} t").format(name))
            return sorted(found.fetchall(), key=repr)
    with closing(sqlite3.connect(where)) as lite:
        lite.text_factory = bytes
        columns = [name for _, name, *_ in lite.execute(f"PRAGMA table_info({table})")]
        names = [name.decode() for name in columns]
        wanted = ", ".join(f'"{name}", typeof("{name}")' for name in names)
        return sorted(lite.execute(f"SELECT {wanted} FROM {table}").fetchall(), key=repr)


NAMESPACES = {
    "project": "{project_id}.notes",
    "subject": "memories.{subject_id}",
    "agent": "agents.{agent_id}",
    "company": "shared",
}


@contextmanager
def agno(where: str) -> Iterator[Any]:
    """Yield Agno's database at a path or URL, with its table of memories made."""
    from agno.db.postgres import PostgresDb
    from agno.db.schemas.memory import UserMemory
    from agno.db.sqlite import SqliteDb

    is_postgres = where.startswith("postgresql:")
    url = where.replace("postgresql:", "postgresql+psycopg:")
    database = PostgresDb(db_url=url) if is_postgres else SqliteDb(db_file=where)
    try:
        database.upsert_user_memory(UserMemory(memory="gone", memory_id="gone"))
        database.delete_user_memory("gone")
        yield database
    finally:
        database.db_engine.dispose()


def drop_agno(url: str) -> None:
    """Remove the schema that Agno makes in a PostgreSQL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS ai CASCADE")


@contextmanager
def langgraph(where: str, **settings: Any) -> Iterator[Any]:
    """Yield LangGraph's store at a path or URL, with its tables made."""
    from langgraph.store.postgres import PostgresStore
    from langgraph.store.sqlite import SqliteStore

    kind = PostgresStore if where.startswith("postgresql:") else SqliteStore
    with kind.from_conn_string(where, **settings) as store:
        store.setup()
        yield store
