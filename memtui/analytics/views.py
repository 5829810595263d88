"""The views that a person's SQL reads: one company's log, hot and sealed, and its bindings."""

from __future__ import annotations

from typing import Any

from memtui.analytics.source import columns_of, stored_text
from memtui.contract import Model
from memtui.store import bindings
from memtui.store.columns import UtcMicroseconds
from memtui.store.database import Database

_USD = "cost_pico * 0.000000000001::DECIMAL(13, 12) AS cost_usd"
_SURROGATE = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_DERIVED = {
    "input_tokens": "Sum over the operation's usage.",
    "output_tokens": "Sum over the operation's usage.",
    "embedding_tokens": "Sum over the operation's usage.",
    "cost_usd": "US dollars, the sum of the priced usage; NULL where nothing is priced.",
    "usage_count": "Calls of models and providers.",
    "unpriced_count": "How many of them have no price.",
    "handle_count": "Records that the operation returned or touched, and listed.",
    "best_score": "The highest score of a returned record.",
}
_SOURCE = "Of the work object that the memory comes from."
_MEANINGS = {
    "seq": "Place in the log, from 1 without a gap.",
    "operation_id": "Unique in the company.",
    "operation_type": "`write`, `query`, `get`, `correct`, `forget`, `browse` …",
    "status": "`ok`, `error`, `denied`, `conflict`, `cancelled` or `unknown`.",
    "binding_key": "The binding that served it; NULL where none did.",
    "provider_key": "The binding's provider.",
    "binding_reason": "Why this binding was chosen.",
    "agent_id": "Whose memory was asked.",
    "project_id": "Whose memory was asked.",
    "issue_id": "What was worked on.",
    "run_id": "The run that asked.",
    "subject_id": "The person or identity that the memory is about.",
    "source_kind": "The kind of work object that the memory comes from.",
    "source_issue_id": _SOURCE,
    "source_comment_id": _SOURCE,
    "source_document_key": _SOURCE,
    "source_run_id": _SOURCE,
    "source_activity_id": _SOURCE,
    "source_external_ref": "A URL, or a path.",
    "principal": "Who asked, such as `user:ana` or `agent:bob`.",
    "door": "Through what: `cli`, `tui`, `http` …",
    "error_kind": "What failed, as a word; NULL where nothing did.",
    "error_message": "What failed, as a sentence.",
    "result_count": "Records returned or touched, listed or not.",
    "capped": "Whether there was more to return.",
    "previous_digest": "The digest of the operation before it.",
    "provider": "Who was called.",
    "model": "The model that was called; NULL where it was none.",
    "input_tokens": "Tokens that were read.",
    "output_tokens": "Tokens that were written.",
    "embedding_tokens": "Tokens that were embedded.",
    "provider_record_id": "The provider's own id of the record.",
    "score": "Its relevance to a query; NULL where the provider gives none.",
    "ghost": "Whether it was forgotten and the provider still returned it.",
    "started_at": "TIMESTAMPTZ; days and hours are cut in your time zone.",
    "latency_ms": "Milliseconds; NULL: nobody measured it.",
    "request": "JSON, less any lone surrogates: what was asked, redacted.",
    "details": "JSON, less any lone surrogates: the provider's own.",
    "cost_usd": "US dollars; NULL where unpriced.",
    "ordinal": "Place among the operation's usage, from 0.",
    "rank": "Place among the operation's records, from 1.",
    "undoes": "The operation that this one took back.",
    "digest": "SHA-256 of the operation's document, which holds `previous_digest`.",
    "absent": "JSON: the values that the log does not hold, with what stands for each; else NULL.",
}
_OF_BINDINGS = {
    "key": "What it is called.",
    "provider_key": "Its provider.",
    "enabled": "Whether it serves at all.",
    "read_only": "Whether it refuses changes.",
    "created_at": "When it was added.",
}
_RETURNED = "o.operation_type IN ('query', 'context')"
_OPENED = "o.operation_type IN ('get', 'history')"
_FORGOTTEN = (
    "coalesce(arg_max(o.operation_type = 'forget' OR (o.operation_type = 'undo' "
    'AND contains(o.request, \'"type":"write"\')), h.seq) '
    "FILTER (o.operation_type IN ('write', 'correct', 'forget', 'undo')), false)"
)
_RECORDS = {
    "binding_key": ("h.binding_key", "The binding that it is in."),
    "provider_record_id": ("h.provider_record_id", "The provider's own id of the record."),
    "provider_key": ("arg_max(h.provider_key, h.seq)", "The binding's provider."),
    "first_seen": ("min(o.started_at)", "When an operation first returned or touched it."),
    "last_seen": ("max(o.started_at)", "When an operation last did."),
    "written_at": (
        "min(o.started_at) FILTER (o.operation_type = 'write')",
        "When it was written through memtui; NULL where it was not.",
    ),
    "query_count": (
        f"count(*) FILTER ({_RETURNED})",
        "How often a query or a context returned it.",
    ),
    "last_query_at": (f"max(o.started_at) FILTER ({_RETURNED})", "When one last did."),
    "best_rank": (f"min(h.rank) FILTER ({_RETURNED})", "Its best place among the results, from 1."),
    "best_score": (f"max(h.score) FILTER ({_RETURNED})", "Its highest score."),
    "open_count": (f"count(*) FILTER ({_OPENED})", "How often it or its history was opened."),
    "last_opened_at": (f"max(o.started_at) FILTER ({_OPENED})", "When it last was."),
    "correction_count": (
        "count(*) FILTER (o.operation_type = 'correct')",
        "How often it was corrected.",
    ),
    "last_corrected_at": (
        "max(o.started_at) FILTER (o.operation_type = 'correct')",
        "When it last was.",
    ),
    "forgotten": (_FORGOTTEN, "Whether its last change forgot it, or took its writing back."),
    "ghost": ("bool_or(h.ghost)", "Whether it was forgotten and yet returned."),
}
RECORDS = (
    f"SELECT {', '.join(f'{sql} AS {name}' for name, (sql, _) in _RECORDS.items())} "
    "FROM handles h JOIN operations o ON o.seq = h.seq WHERE o.status = 'ok' "
    "GROUP BY h.binding_key, h.provider_record_id"
)
"""The query of the view `records`, over the views of the log: successful operations only."""

_BINDINGS = {
    "key": "VARCHAR",
    "provider_key": "VARCHAR",
    "enabled": "BOOLEAN",
    "read_only": "BOOLEAN",
    "created_at": "TIMESTAMPTZ",
}


class Column(Model):
    """A column of a view, for completion and documentation."""

    name: str
    meaning: str = ""


def _columns(table: str) -> tuple[str, ...]:
    return tuple(name for name in columns_of(table) if name not in {"company_id", "salt", "salts"})


VIEWS: dict[str, tuple[Column, ...]] = {
    "operations": tuple(
        Column(name=name, meaning=(_DERIVED | _MEANINGS if table else _DERIVED).get(name, ""))
        for table, names in ((1, _columns("operations")), (0, tuple(_DERIVED)))
        for name in names
    ),
    "usage": tuple(
        Column(name=name, meaning=_MEANINGS.get(name, "")) for name in _columns("usage")
    ),
    "handles": tuple(
        Column(name=name, meaning=_MEANINGS.get(name, "")) for name in _columns("handles")
    ),
    "records": tuple(Column(name=name, meaning=meaning) for name, (_, meaning) in _RECORDS.items()),
    "bindings": tuple(Column(name=name, meaning=_OF_BINDINGS[name]) for name in _BINDINGS),
}
"""Every view and its columns, in order. A binding's config is left out: it is nobody's figure."""


def select_list(view: str) -> str:
    """Return the columns of a view of the log, out of those of `memtui.analytics.columns`."""
    return ", ".join(_selected(column.name) for column in VIEWS[view])


def _selected(name: str) -> str:
    if name == "cost_usd":
        return _USD
    if name in {"request", "details"}:
        # One lone surrogate would make every question about the column fail.
        return (
            f"CASE WHEN contains({name}, '\\ud') "
            f"THEN regexp_replace({name}, '({_PAIR})|{_SURROGATE}', '\\1', 'g') "
            f"ELSE {name} END AS {name}"
        )
    return name


def load_bindings(duck: Any, database: Database, company_id: str) -> None:
    """Put the company's bindings in place of those that were there."""
    with database.read() as connection:
        rows = bindings.bindings(connection, company_id)
    columns = ", ".join(f"{name} {kind}" for name, kind in _BINDINGS.items())
    duck.execute(f"CREATE OR REPLACE TABLE bindings ({columns})")
    for row in rows:
        micros = UtcMicroseconds.stored(row.created_at)
        duck.execute(
            "INSERT INTO bindings VALUES (?, ?, ?, ?, make_timestamptz(?))",
            [
                stored_text(row.key),
                stored_text(row.provider_key),
                row.enabled,
                row.read_only,
                micros,
            ],
        )
