"""The memories that Agno's agents keep of their users, a table `agno_memories`.

A text is JSON in its column `memory`, and times are seconds since 1970.
"""

import json
import uuid
from datetime import datetime
from typing import Any, ClassVar

from memtui.contract import BindingContext, CorrectRequest, Invalid, Json, Scope, WriteRequest
from memtui.json_text import whole
from memtui.provider_kit import from_epoch
from memtui.provider_kit.databases import DatabasePool
from memtui.provider_kit.rows import Row
from memtui.provider_kit.tables import TablesAdapter, TablesConfig

KEY = "agno"
_OWNERS = {"project_id": "team_id", "subject_id": "user_id", "agent_id": "agent_id"}
"""Scope fields, and the columns that they become."""


class AgnoConfig(TablesConfig):
    """The memories that Agno's agents keep of their users, in SQLite or PostgreSQL.

    That is the memory table of a `SqliteDb` or `PostgresDb`: `agno_memories` unless its
    `memory_table` says otherwise, and in PostgreSQL `ai.agno_memories`.
    """


class AgnoAdapter(TablesAdapter[AgnoConfig]):
    """A record is a row: of the user, the agent and, as its project, the team that it names."""

    key: ClassVar[str] = KEY
    config_model = AgnoConfig
    capabilities = TablesAdapter.capabilities.model_copy(update={"keeps_ids": True})
    lacks = frozenset({"source", "kind", "title", "topic", "created_by", "metadata"})
    table = "agno_memories"
    keys = ("memory_id",)
    needs = frozenset({"memory", "topics", *_OWNERS.values(), "created_at", "updated_at"})

    def __init__(self, context: BindingContext, config: AgnoConfig, database: DatabasePool) -> None:
        super().__init__(context, config, database)
        if config.table is None and database.is_shared:
            self._name = f"ai.{self.table}"  # Agno's usual schema

    def scope_of(self, row: Row) -> Scope:
        """Return the user, agent and team of a row."""
        ids = {field: str(row[name]) for field, name in _OWNERS.items() if row[name]}
        return Scope(company_id=self.context.company_id, **ids)

    def record_of(self, row: Row) -> Json:
        """Return the record in a row, with what else is in it as metadata."""
        topics = json.loads(row["topics"] or "null") or ()
        created_at = from_epoch(row["created_at"] or "")
        return {
            "text": _text(row),
            "kind": "memory",
            "tags": tuple(str(one) for one in whole(topics) if one),
            "created_at": created_at,
            "updated_at": from_epoch(row["updated_at"] or "") or created_at,
            "metadata": {name: row[name] for name in ("input", "feedback") if row.get(name)},
        }

    def new_row(self, request: WriteRequest, record_id: str | None, now: datetime) -> Row:
        """Return the row of a write, as Agno writes it."""
        created_at = _seconds(request.created_at or now)
        return {
            "memory_id": record_id or str(uuid.uuid4()),
            "memory": json.dumps(request.content),
            "topics": json.dumps(request.tags),
            **{column: getattr(request.scope, field) for field, column in _OWNERS.items()},
            "created_at": created_at,
            "updated_at": created_at,
        }

    def corrected(self, row: Row, request: CorrectRequest, now: datetime) -> Row:
        """Return the new text and topics, and the time."""
        changes: dict[str, Any] = {"updated_at": _seconds(now)}
        if request.text is not None:
            if not isinstance(json.loads(row["memory"]), str):
                raise Invalid("This memory is JSON, not a text; correct it in Agno.")
            changes["memory"] = json.dumps(request.text)
        if request.tags is not None:
            changes["topics"] = json.dumps(request.tags)
        return changes


def _text(row: Row) -> str:
    found = whole(json.loads(row["memory"]))
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2)


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
