"""The conditions of a query or a page, as SQL over `records`."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memtui.contract import OWNER_FIELDS, Filter, Json, Scope
from memtui.fuzzy import finds

from .index import microseconds

_COLUMNS = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


@dataclass(slots=True)
class Where:
    """Conditions that must all hold, and their values."""

    clauses: list[str] = field(default_factory=lambda: ["1"])
    values: list[Any] = field(default_factory=list)

    def add(self, clause: str, *values: Any) -> None:
        """Add one condition."""
        self.clauses.append(clause)
        self.values += values

    @property
    def sql(self) -> str:
        """The conditions joined."""
        return " AND ".join(f"({clause})" for clause in self.clauses)


def holding(now: datetime, as_of: datetime | None, *, expired: bool = False) -> Where:
    """Records that hold now, or held at `as_of`; expired ones only where they are asked for."""
    where = Where()
    if not expired:
        where.add("expires IS NULL OR expires > ?", microseconds(now))
    if as_of is None:
        where.add("is_current")
        return where
    moment = microseconds(as_of)
    where.add("valid_from IS NULL OR valid_from <= ?", moment)
    where.add("valid_to IS NULL OR valid_to > ?", moment)
    where.add("kind = 'fact' OR created IS NULL OR created <= ?", moment)
    return where


def narrow(where: Where, scope: Scope, wanted: Filter) -> None:
    """Add the fields of a page's scope and filter; every one that is set narrows."""
    for column in _COLUMNS:
        for value in (getattr(scope, column), getattr(wanted, column)):
            if value is not None:
                where.add(f"{column} = ?", value)
    for clause, value in (
        ("source_kind = ?", wanted.source_kind and wanted.source_kind.value),
        ("COALESCE(created, updated) >= ?", microseconds(wanted.since)),
        ("COALESCE(created, updated) < ?", microseconds(wanted.until)),
        ("topic = ?", wanted.topic),
        ("kind = ?", wanted.kind),
        ("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", wanted.tag),
    ):
        if value is not None:
            where.add(clause, value)
    for word in (wanted.text or "").casefold().split():
        where.add("instr(memtui_folded(COALESCE(title, '') || char(10) || text), ?)", word)
    for word in wanted.fuzzy:
        where.add("memtui_finds(?, COALESCE(title, '') || char(10) || text)", word)


def owned_by(where: Where, owners: Sequence[Scope]) -> None:
    """Let through only what one of the scopes owns; no owners, no condition."""
    if not owners:
        return
    values: dict[str | None, list[str]] = defaultdict(list)
    for scope in owners:
        column = next((name for name in OWNER_FIELDS if getattr(scope, name)), None)
        values[column].append(getattr(scope, column or "company_id"))
    clauses: list[str] = []
    for place, column in enumerate(OWNER_FIELDS):
        if column in values:
            wider = [f"{name} IS NULL" for name in OWNER_FIELDS[:place]]
            chosen = f"{column} IN (SELECT value FROM json_each(?))"  # noqa: S608 — constants
            clauses.append(" AND ".join([*wider, chosen]))
    if None in values:
        clauses.append(" AND ".join(f"{name} IS NULL" for name in OWNER_FIELDS))
    where.add(
        " OR ".join(clauses), *(json.dumps(values[name]) for name in OWNER_FIELDS if name in values)
    )


def match_metadata(where: Where, wanted: Json) -> None:
    """Add an exact metadata filter; kind, topic and tag name the record's own fields."""
    for key, value in wanted.items():
        if key in {"kind", "topic"}:
            where.add(f"{key} IS ?", value if value is None else str(value))
        elif key == "tag":
            where.add("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", str(value))
        else:
            where.add("memtui_has(metadata, ?, ?)", key, _canonical(value))


def add_functions(connection: sqlite3.Connection) -> None:
    """Teach a connection the functions that the conditions use."""
    connection.create_function("memtui_folded", 1, _folded, deterministic=True)
    connection.create_function("memtui_finds", 2, finds, deterministic=True)
    connection.create_function("memtui_has", 3, _has, deterministic=True)


def _folded(text: str) -> str:
    return text.casefold()


def _has(metadata: str, key: str, wanted: str) -> bool:
    fields = json.loads(metadata)
    return key in fields and _canonical(fields[key]) == wanted


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
