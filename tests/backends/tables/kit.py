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


ROOT, TEAM, WORKER, OTHER = (f"00000000-0000-4000-8000-00000000000{n}" for n in range(4))
"""Workspaces of EnterOS: a root, one below it, one below that, and another root."""


def memory_id(number: int) -> str:
    return f"00000000-0000-4000-9000-{number:012}"


@contextmanager
def enteros(url: str, *, old: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection to EnterOS's two tables with four workspaces; `old`: as they began."""
    with psycopg.connect(url, autocommit=True) as connection:
        if not old:
            connection.execute("CREATE EXTENSION vector")
        connection.execute(
            "CREATE TABLE workspaces (id uuid PRIMARY KEY, name text NOT NULL, parent_id uuid)"
        )
        later = "" if old else (
            ", namespace varchar(50) NOT NULL DEFAULT 'general', embedding vector(1536)"
        )  # fmt: skip
        connection.execute(
            "CREATE TABLE agent_memories (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "
            "workspace_id uuid NOT NULL, content text NOT NULL, "
            "scope varchar(10) NOT NULL CHECK (scope IN ('LOCAL', 'TEAM', 'GLOBAL')), "
            f"created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(){later}, "
            "content_tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)"
        )
        tree = ((ROOT, None), (TEAM, ROOT), (WORKER, TEAM), (OTHER, None))
        for name, parent in tree:
            put_workspace(connection, name, parent)
        yield connection


def put_workspace(connection: psycopg.Connection[Any], name: str, parent: str | None) -> None:
    connection.execute(
        "INSERT INTO workspaces VALUES (%s, 'w', %s) "
        "ON CONFLICT (id) DO UPDATE SET parent_id = excluded.parent_id",
        (name, parent),
    )


def put_memory(
    connection: psycopg.Connection[Any], number: int, workspace: str, scope: str, text: str = ""
) -> None:
    """Add a memory, created on a day of 2024 that its number names."""
    made = datetime(2024, 1, 1 + number % 28, 12, tzinfo=UTC)
    connection.execute(
        "INSERT INTO agent_memories (id, workspace_id, content, scope, created_at, updated_at) "
        "VALUES (%s, %s, %s, %s, %s, %s)",
        (memory_id(number), workspace, text or f"Memory {number}", scope, made, made),
    )
