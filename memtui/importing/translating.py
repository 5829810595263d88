"""A row of a foreign log as an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any

from pydantic import ValidationError

from memtui.context.prices import table_name
from memtui.contract import OperationStatus, OperationType, Scope, SourceRef, Usage
from memtui.importing import values
from memtui.importing.columns import ColumnMap
from memtui.importing.entry import Entry, key_of
from memtui.importing.fields import DROP, FIELDS, KEEP
from memtui.importing.pricing import Call, price
from memtui.importing.rows import Row
from memtui.store.operation import OperationDraft, OperationHandle

DOOR = "import"
IMPORTED = "imported"
"""Where the request of an imported operation says what it was imported from."""

PRICED_BY = "priced_by"
"""Where the details of a usage name the price table, if the cost is not the log's own."""

_SCOPE = tuple(name for name in Scope.model_fields if name != "company_id")
_SOURCE = tuple(name for name in SourceRef.model_fields if name not in {"kind", "company_id"})
_LATENCY_UNITS = {"latency_ms": 1, "latency_s": 1_000, "latency_us": Decimal("0.001")}
_COUNTS = ("input_tokens", "output_tokens", "embedding_tokens")
_UNKNOWN_PROVIDER = "unknown"
_MOST_CALLS = 1_000
_NOT_KEPT = frozenset({"company_id", "scope.company_id", "source.company_id", "previous_digest"})
"""Columns of memtui's own export that say nothing about the operation itself."""

Given = dict[str, Any]
"""Values by field."""


@dataclass(slots=True)
class Translator:
    """Makes operations of one company out of rows, and remembers what it took for what."""

    company_id: str
    columns: ColumnMap
    zone: tzinfo = UTC
    types: dict[str, OperationType] = field(default_factory=dict)
    """What each word for a type was taken for."""
    naive: int = 0
    """How many moments named no zone."""

    def entry(self, file: str, row: Row) -> Entry:
        """Return the operation of a row.

        Raises:
            ValueError: something in the row does not fit; the text says what.
        """
        assert row.values is not None  # noqa: S101 — the caller has reported those
        given, rest = self._sorted(row.values)
        moment, naive = values.moment(_needed(given, "started_at"), self.zone)
        foreign = given.get("operation_id")
        foreign_id = None if foreign is None else values.text(foreign).strip() or None
        origin: dict[str, Any] = {"file": file, "line": row.line}
        if foreign_id is not None:
            origin["id"] = foreign_id
        if rest:
            origin["columns"] = values.plain(rest)
        try:
            draft = self._draft(given, moment, origin)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{where}: {first['msg']}") from error
        self.naive += naive
        at = values.microseconds(moment)
        key = key_of("id", foreign_id, at) if foreign_id else key_of("row", row.values)
        return Entry(row.line, draft, key, foreign_id)

    def _sorted(self, row: Mapping[str, Any]) -> tuple[Given, dict[str, Any]]:
        """Split a row into values by field and columns to keep as they are."""
        given: Given = {}
        ranks: dict[str, tuple[int, str]] = {}
        rest: dict[str, Any] = {}
        for column, value in row.items():
            name, rank = self.columns.target(column)
            if value is None or value == "" or name == DROP:
                continue
            if name == KEEP:
                if column not in _NOT_KEPT:
                    rest[column] = value
                continue
            if name in ranks:
                other, held = ranks[name]
                if other <= rank:
                    rest[column] = value
                    continue
                rest[held] = given[name]
            given[name], ranks[name] = value, (rank, column)
        for name, constant in self.columns.constants.items():
            given.setdefault(name, constant)
        return given, rest

    def _draft(self, given: Given, moment: datetime, origin: dict[str, Any]) -> OperationDraft:
        scope = {name: _optional(given, name, values.identifier) for name in _SCOPE}
        message = _optional(given, "error_message", values.text)
        agent = scope["agent_id"]
        latency = self._latency(given)
        handles = _handles(given)
        result_count = _optional(given, "result_count", values.count)
        return OperationDraft(
            operation_id="",
            operation_type=self._type(given),
            status=self._status(given, failed=message is not None),
            scope=Scope(company_id=self.company_id, **scope),
            source=self._source(given),
            binding_key=_optional(given, "binding_key", values.identifier),
            provider_key=_optional(given, "provider_key", values.identifier),
            binding_reason=_optional(given, "binding_reason", values.text),
            principal=_optional(given, "principal", values.identifier)
            or (f"agent:{agent}" if agent else DOOR),
            door=_optional(given, "door", values.identifier) or DOOR,
            request=_request(given) | {IMPORTED: origin},
            error_kind=_optional(given, "error_kind", values.identifier),
            error_message=message,
            result_count=len(handles) if result_count is None else result_count,
            capped=_optional(given, "capped", values.flag) or False,
            handles=handles,
            usage=self._usage(given, moment),
            started_at=moment,
            latency_ms=latency,
            undoes=_optional(given, "undoes", values.text),
        )

    def _type(self, given: Given) -> OperationType:
        value = _needed(given, "operation_type")
        word = values.text(value).strip()
        found = self.types.get(word)
        if found is None:
            found = values.operation_type(value, self.columns.types)
            if len(self.types) < 1000:
                self.types[word] = found
        return found

    def _status(self, given: Given, *, failed: bool) -> OperationStatus:
        if "status" in given:
            return values.status(given["status"], self.columns.statuses)
        return OperationStatus.ERROR if failed else OperationStatus.OK

    def _source(self, given: Given) -> SourceRef | None:
        kind = _optional(given, "source_kind", values.text)
        parts = {name: _optional(given, f"source_{name}", values.text) for name in _SOURCE}
        if kind is None and any(parts.values()):
            kind = "external_document"
        if kind is None:
            return None
        return SourceRef.model_validate({"kind": kind, "company_id": self.company_id, **parts})

    def _latency(self, given: Given) -> float:
        """0 where the row does not tell; the log has no empty length of time."""
        for name, unit in _LATENCY_UNITS.items():
            if name in given:
                return float(_fitting(name, given[name], values.duration) * unit)
        return 0.0

    def _usage(self, given: Given, at: datetime) -> tuple[Usage, ...]:
        if "usage" in given:
            parts = _fitting("usage", given["usage"], partial(values.structure, kind=list))
            return tuple(Usage.model_validate(part) for part in parts)
        known = self._call(given, at)
        unpriced = _optional(given, "unpriced_count", values.count) or 0
        if unpriced > _MOST_CALLS:
            raise ValueError(f"unpriced_count: {unpriced} is more than {_MOST_CALLS:,}")
        unpriced -= any(usage.cost_usd is None for usage in known)
        return (*known, *[Usage(provider=_UNKNOWN_PROVIDER)] * unpriced)

    def _call(self, given: Given, at: datetime) -> tuple[Usage, ...]:
        """Return the call of a model that a row's columns tell, if they tell any."""
        counts = {name: _optional(given, name, values.count) or 0 for name in _COUNTS}
        cost = _optional(given, "cost_usd", values.money)
        model = _optional(given, "model", values.identifier)
        if not any(counts.values()) and cost is None and model is None:
            return ()
        provider = _optional(given, "provider", values.identifier)
        details: dict[str, Any] = {}
        if cost is None and model is not None:
            cached = {
                name: _optional(given, name, values.count) or 0
                for name in ("cache_read_tokens", "cache_write_tokens")
            }
            details |= {name: count for name, count in cached.items() if count}
            found = _priced(Call(model=model, provider=provider, at=at, **cached), counts)
            if found is not None:
                owner, cost = found
                provider = provider or owner
                details[PRICED_BY] = table_name()
        usage = Usage(
            provider=provider or _UNKNOWN_PROVIDER,
            model=model,
            cost_usd=cost,
            details=details,
            **counts,
        )
        return (usage,)


def _priced(call: Call, counts: Mapping[str, int]) -> tuple[str, Decimal] | None:
    """Price a call; one that both read and embedded is several calls, and left unpriced."""
    tokens = [counts["input_tokens"], counts["embedding_tokens"]]
    if all(tokens) or not any(counts.values()):
        return None
    if call.cache_read_tokens + call.cache_write_tokens > sum(tokens):
        raise ValueError("cache_read_tokens and cache_write_tokens are more than input_tokens")
    return price(
        Call(
            model=call.model,
            provider=call.provider,
            at=call.at,
            input_tokens=sum(tokens),
            output_tokens=counts["output_tokens"],
            cache_read_tokens=call.cache_read_tokens,
            cache_write_tokens=call.cache_write_tokens,
        )
    )


def _request(given: Given) -> dict[str, Any]:
    request: dict[str, Any] = {}
    whole = given.get("request")
    if isinstance(whole, str) and not whole.lstrip().startswith("{"):
        request["query"] = whole
    elif whole is not None:
        found = _fitting("request", whole, partial(values.structure, kind=dict))
        request |= values.plain(found)
    for name in ("query", "content"):
        if name in given:
            request[name] = values.text(given[name])
    return request


def _handles(given: Given) -> tuple[OperationHandle, ...]:
    if "handles" not in given:
        return ()
    parts = _fitting("handles", given["handles"], partial(values.structure, kind=list))
    handles = tuple(OperationHandle.model_validate(part) for part in parts)
    if len({handle.rank for handle in handles}) < len(handles):
        raise ValueError("handles: two of them have the same rank")
    return handles


def _needed(given: Given, name: str) -> Any:
    if name in given:
        return given[name]
    raise ValueError(
        f"no column tells {name}; say --map COLUMN={name}"
        + (f" or --set {name}=TYPE" if FIELDS[name].kind == "type" else "")
    )


def _optional(given: Given, name: str, read: Callable[[Any], Any]) -> Any:
    return _fitting(name, given[name], read) if name in given else None


def _fitting(name: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
