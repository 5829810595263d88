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
_MEANINGS = {
    "seq": "Place in the log, from 1 without a gap.",
    "started_at": "TIMESTAMPTZ; days and hours are cut in your time zone.",
    "latency_ms": "Milliseconds.",
    "request": "JSON, less any lone surrogates: what was asked, redacted.",
    "details": "JSON, less any lone surrogates: the provider's own.",
    "cost_usd": "US dollars; NULL where unpriced.",
    "ordinal": "Place among the operation's usage, from 0.",
    "rank": "Place among the operation's records, from 1.",
    "undoes": "The operation that this one took back.",
    "digest": "SHA-256 of the operation and of `previous_digest`.",
}
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
    return tuple(name for name in columns_of(table) if name != "company_id")


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
    "bindings": tuple(Column(name=name) for name in _BINDINGS),
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
        micros = UtcMicroseconds().process_bind_param(row.created_at, None)  # type: ignore[arg-type]
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
