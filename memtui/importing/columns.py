"""What a column of a foreign log becomes: what the person said, else what its name tells."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memtui.contract import Invalid, OperationStatus, OperationType, field_docstrings
from memtui.paths import refuse_other_than_file
from memtui.store.digest import CONTROL
from memtui.store.operation import TITLES, OperationDraft
from memtui.wording import unknown

Kind = Literal[
    "moment", "type", "status", "id", "text", "count", "ms", "usd", "flag", "object", "list"
]

KEEP, DROP = "imported", "-"
"""In place of a field: keep the column in the request under `imported`, or leave it out."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an imported operation."""

    kind: Kind
    meaning: str
    aliases: tuple[str, ...] = ()
    """Column names that are taken for it without a map, the likeliest first."""


FIELDS: dict[str, Field] = {
    "started_at": Field(
        "moment",
        "When it began: ISO 8601, or seconds, milliseconds or microseconds since 1970.",
        ("timestamp", "ts", "@timestamp", "time", "datetime", "event_time", "occurred_at",
         "start_time", "started", "created_at", "created", "logged_at", "date"),
    ),
    "operation_type": Field(
        "type",
        "What it did: one of memtui's types, or a word that means one.",
        ("type", "operation", "op", "action", "event_type", "event", "tool", "tool_name",
         "method", "command", "run_type", "gen_ai.operation.name"),
    ),
    "operation_id": Field(
        "text",
        "The other system's id of it.",
        ("id", "event_id", "op_id", "log_id", "uuid", "request_id", "span_id"),
    ),
    "status": Field(
        "status",
        "How it ended: a status, a word that means one, true or false, or an HTTP status code.",
        ("outcome", "success", "ok", "state", "status_code", "status.status_code", "http_status",
         "level"),
    ),
    "agent_id": Field(
        "id",
        "The agent.",
        ("scope.agent_id", "agent", "agent_name", "assistant", "gen_ai.agent.name"),
    ),
    "project_id": Field(
        "id",
        "The project.",
        ("scope.project_id", "project", "project_name", "workspace", "workspace_id", "repo",
         "repository"),
    ),
    "subject_id": Field(
        "id",
        "Whom it is about.",
        ("scope.subject_id", "subject", "user_id", "end_user", "customer_id"),
    ),
    "issue_id": Field(
        "id", "The issue.", ("scope.issue_id", "issue", "ticket", "ticket_id", "task_id")
    ),
    "run_id": Field(
        "id",
        "The run or session.",
        ("scope.run_id", "run", "session_id", "session", "conversation_id", "thread_id",
         "gen_ai.conversation.id", "trace_id"),
    ),
    "binding_key": Field(
        "id", "The memory it went to.", ("binding", "collection", "store", "memory_store")
    ),
    "provider_key": Field(
        "id", "The system behind that memory.", ("backend", "memory_provider")
    ),
    "principal": Field(
        "id",
        "Who did it; `agent:` and the agent where it is left out, else `import`.",
        ("user", "username", "actor", "caller", "author"),
    ),
    "channel": Field(
        "id", "What it came in through; `import` where it is left out.", ("door", "interface")
    ),
    "query": Field(
        "text",
        "What was asked, kept as `query` of the request.",
        ("request.query", "search_query", "question", "q", "prompt", "input"),
    ),
    "content": Field(
        "text",
        "What was written, kept as `content` of the request.",
        ("request.content", "text", "body", "message"),
    ),
    "request": Field("object", "The whole request, a JSON object."),
    "result_count": Field(
        "count",
        "How many records it returned or touched.",
        ("results", "n_results", "num_results", "hits", "returned"),
    ),
    "capped": Field("flag", "Whether the reply was cut."),
    "latency_ms": Field(
        "ms",
        "How long it took, in milliseconds.",
        ("duration_ms", "elapsed_ms", "took_ms", "response_time_ms", "latency_millis"),
    ),
    "latency_s": Field(
        "ms",
        "How long it took, in seconds.",
        ("duration_s", "elapsed_s", "latency_seconds", "duration_seconds", "elapsed_seconds"),
    ),
    "latency_us": Field(
        "ms", "How long it took, in microseconds.", ("duration_us", "elapsed_us")
    ),
    "ended_at": Field(
        "moment",
        "When it ended; how long it took, where the row does not say that.",
        ("end_time", "ended", "finished_at", "finished", "completed_at"),
    ),
    "error_message": Field(
        "text",
        "Why it failed. A row with one and no status has failed.",
        ("error", "error.message", "error_msg", "exception", "failure", "status_message"),
    ),
    "error_kind": Field(
        "id", "The kind of error.", ("error.type", "error_type", "exception_type", "error_code")
    ),
    "source_kind": Field(
        "text", "The kind of work object it comes from.", ("source.kind",)
    ),
    "source_issue_id": Field("text", "That object's issue.", ("source.issue_id",)),
    "source_comment_id": Field("text", "Its comment.", ("source.comment_id",)),
    "source_document_key": Field("text", "Its document.", ("source.document_key",)),
    "source_run_id": Field("text", "Its run.", ("source.run_id",)),
    "source_activity_id": Field("text", "Its activity.", ("source.activity_id",)),
    "source_external_ref": Field(
        "text", "Its URL or path.", ("source.external_ref", "url", "link")
    ),
    "provider": Field(
        "id",
        "Whose model was used.",
        ("model_provider", "llm_provider", "vendor", "gen_ai.provider.name", "gen_ai.system",
         "extra.metadata.ls_provider"),
    ),
    "model": Field(
        "id",
        "The model that was used.",
        ("model_name", "llm_model", "model_id", "gen_ai.response.model", "gen_ai.request.model",
         "message.model", "extra.metadata.ls_model_name"),
    ),
    "input_tokens": Field(
        "count",
        "Tokens that the model read, cached ones included.",
        ("prompt_tokens", "tokens_in", "usage.prompt_tokens", "usage.input_tokens",
         "gen_ai.usage.input_tokens", "input_token_count", "usage_details.input",
         "usage.input"),
    ),
    "output_tokens": Field(
        "count",
        "Tokens that the model wrote.",
        ("completion_tokens", "tokens_out", "usage.completion_tokens", "usage.output_tokens",
         "gen_ai.usage.output_tokens", "output_token_count", "usage_details.output",
         "usage.output"),
    ),
    "embedding_tokens": Field("count", "Tokens that were embedded.", ("embed_tokens",)),
    "cache_read_tokens": Field(
        "count",
        "Those of `input_tokens` read from a cache.",
        ("cached_tokens", "input_cached_tokens", "usage.prompt_tokens_details.cached_tokens",
         "usage_details.input_cached_tokens"),
    ),
    "cache_write_tokens": Field("count", "Those of `input_tokens` written to a cache."),
    "cost_usd": Field(
        "usd",
        "What it cost in US dollars. Empty is not zero: memtui's price table is asked.",
        ("cost", "total_cost", "price_usd", "cost_in_usd", "usd", "cost_details.total"),
    ),
    "unpriced_count": Field("count", "How many calls of models it made that have no price."),
    "usage": Field("list", "memtui's own list of usage."),
    "handles": Field("list", "memtui's own list of records."),
    "undoes": Field("text", "The operation that it took back."),
    **{name: Field("text", field_docstrings(OperationDraft)[name]) for name in TITLES},
}  # fmt: skip

_ALIASES = {
    alias: (name, rank)
    for name, field in reversed(FIELDS.items())
    for rank, alias in enumerate((name, *field.aliases))
}
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s\-]+")


def guess(column: str) -> tuple[str, int] | None:
    """Return the field that a column's name tells, and how likely (0 is its own name)."""
    name = _SEPARATORS.sub("_", _WORD_START.sub("_", column.strip())).lower()
    return _ALIASES.get(name.removeprefix("attributes."))


_TABLES = ("columns", "operation_type", "status", "set")


@dataclass(slots=True)
class ColumnMap:
    """How rows are read. What it does not name is guessed."""

    columns: dict[str, str] = field(default_factory=dict)
    """Field by column; `imported` keeps a column as it is, `-` leaves it out."""
    types: dict[str, OperationType] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    """Words for types of which no row becomes an operation."""
    statuses: dict[str, OperationStatus] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    """Value by field, for rows that have none of their own."""
    timezone: str | None = None
    """The zone of moments that name none."""
    known: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)
    """What `target` has returned so far, in order of appearance."""

    def target(self, column: str) -> tuple[str, int]:
        """Return the field of a column, and its rank among those of the same field (0 first)."""
        found = self.known.get(column)
        if found is None:
            if column in self.columns:
                found = self.columns[column], 0
            else:
                guessed = guess(column)
                is_free = guessed and guessed[0] not in self.columns.values()
                found = guessed if guessed and is_free else (KEEP, 0)
            self.known[column] = found
        return found

    @property
    def seen(self) -> dict[str, str]:
        """The field of every column so far, in order of appearance."""
        return {column: name for column, (name, _) in self.known.items()}

    def unused(self) -> list[str]:
        """Return the columns that were named and never met."""
        return [column for column in self.columns if column not in self.known]


def column_map(
    words: Iterable[str],
    *,
    types: Mapping[str, str],
    statuses: Mapping[str, str],
    constants: Mapping[str, str],
    timezone: str | None,
) -> ColumnMap:
    """Build the map of `column=field` words and TOML files; a later word wins.

    Raises:
        Invalid: there is no such file, field, type, status or zone.
    """
    tables: dict[str, dict[str, str]] = {name: {} for name in _TABLES}
    zone = timezone
    for word in words:
        column, sign, name = word.rpartition("=")
        if sign and column and not word.endswith(".toml"):
            tables["columns"][column] = name
            continue
        if not word.endswith(".toml"):
            raise Invalid(f"--map takes COLUMN=FIELD or a file that ends in .toml, not {word}.")
        found = _load(Path(word))
        zone = zone or found.pop("timezone", None)
        for table in _TABLES:
            tables[table] |= found.get(table, {})
    tables["set"] |= constants
    for name in (*tables["columns"].values(), *tables["set"]):
        if name not in FIELDS and (name not in {KEEP, DROP} or name in tables["set"]):
            raise Invalid(unknown("field", name, FIELDS))
    kinds = tables["operation_type"] | dict(types)
    kept = {word: kind for word, kind in kinds.items() if kind != DROP}
    meant: dict[str, OperationType] = _enum(OperationType, kept, "operation type")
    for word, kind in meant.items():
        if kind in CONTROL:
            raise Invalid(f"{word} cannot be a {kind}: that tells what memtui did to its own log.")
    return ColumnMap(
        columns=tables["columns"],
        types=meant,
        left_out=frozenset(kinds.keys() - kept.keys()),
        statuses=_enum(OperationStatus, tables["status"] | dict(statuses), "status"),
        constants=tables["set"],
        timezone=zone,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        refuse_other_than_file(path)
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"{path} is not a TOML file ({error}).") from error
    for name, value in found.items():
        if name == "timezone" and isinstance(value, str):
            continue
        texts = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        if name not in _TABLES or not texts:
            raise Invalid(
                f"{path} has {name}; it may have timezone, and tables of texts named "
                f"{', '.join(_TABLES)}."
            )
    return found


def _enum(kind: Any, named: Mapping[str, str], what: str) -> dict[str, Any]:
    try:
        return {word: kind(value) for word, value in named.items()}
    except ValueError as error:
        known = ", ".join(one.value for one in kind)
        raise Invalid(f"{error}; each {what} is one of {known}.") from error
