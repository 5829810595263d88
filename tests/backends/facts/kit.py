"""A PostgreSQL database as the application that owns the facts left it, and shorthands."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from memtui.backends.facts import FactsAdapter
from memtui.contract import (
    BindingContext,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)

SEED_TABLES = """
CREATE TABLE users (id text PRIMARY KEY, name text);
CREATE TABLE drives (id text PRIMARY KEY, name text);
CREATE TABLE user_memories (
  "id" text PRIMARY KEY NOT NULL,
  "userId" text NOT NULL REFERENCES users(id) ON DELETE CASCADE,
  "fact" text NOT NULL,
  "createdAt" timestamp DEFAULT now() NOT NULL,
  "source" text
);
CREATE TABLE drive_memories (
  "id" text PRIMARY KEY NOT NULL,
  "driveId" text NOT NULL REFERENCES drives(id) ON DELETE CASCADE,
  "fact" text NOT NULL,
  "createdAt" timestamp DEFAULT now() NOT NULL,
  "createdBy" text REFERENCES users(id) ON DELETE SET NULL,
  "source" text
);
"""
TABLES = ("user_memories", "drive_memories", "memtui_fact_details")
COMPANY = "acme"
ANA = Scope(company_id=COMPANY, subject_id="ana")
APOLLO = Scope(company_id=COMPANY, project_id="apollo")
BOTH = Scope(company_id=COMPANY, subject_id="ana", project_id="apollo")
EVERYONE = Scope(company_id=COMPANY)


def seed(url: str, *, users: tuple[str, ...] = (), drives: tuple[str, ...] = ()) -> None:
    """Create the application's tables, with these users and drives."""
    with psycopg.connect(url) as connection:
        connection.execute(SEED_TABLES)
        for table, ids in (("users", users), ("drives", drives)):
            for one in ids:
                connection.execute(f"INSERT INTO {table} VALUES (%s, %s)", (one, one.title()))


def dump(where: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of the tables of facts that are there, with times as text."""
    if isinstance(where, Path):
        lite = sqlite3.connect(where / "facts.sqlite3")
        try:
            return {t: sorted(lite.execute(f"SELECT * FROM {t}"), key=repr) for t in TABLES}
        finally:
            lite.close()
    with psycopg.connect(where) as connection:
        there = [
            t
            for t in TABLES
            if connection.execute("SELECT to_regclass(%s)", (t,)).fetchone() != (None,)
        ]
        return {
            t: sorted(connection.execute(f"SELECT {t}::text, * FROM {t}").fetchall(), key=repr)
            for t in there
        }


def context(folder: Path, **fields: Any) -> BindingContext:
    """Return what to open an adapter with."""
    own = {name: fields.pop(name) for name in ("secret", "read_only", "now") if name in fields}
    return BindingContext(
        company_id=COMPANY, binding_key="facts", config=fields, data_dir=folder, **own
    )


def request(text: str, scope: Scope = ANA, **fields: Any) -> WriteRequest:
    """Return a write."""
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=COMPANY)
    return WriteRequest(**({"scope": scope, "source": source, "content": text} | fields))


async def add(adapter: FactsAdapter, text: str, scope: Scope = ANA, **fields: Any) -> RecordHandle:
    """Write a fact and return its handle."""
    return (await adapter.write(request(text, scope, **fields))).records[0]


async def read(adapter: FactsAdapter, handle: RecordHandle, scope: Scope = EVERYONE) -> Record:
    """Return a fact that must be there."""
    record = await adapter.get(handle, scope)
    assert record is not None
    return record
