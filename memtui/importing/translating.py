"""A row of a foreign log as an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from memtui.contract import OperationStatus, OperationType, Scope, SourceRef, Usage
from memtui.importing import values
from memtui.importing.columns import DROP, FIELDS, KEEP, ColumnMap
from memtui.importing.rows import Row
from memtui.importing.staging import ParsedOperation, key_of, key_of_id, made, scope_of
from memtui.prices import ModelCall, cost_of, table_name
from memtui.service.home.imports import IMPORTED
from memtui.store.operation import OWN_FIELDS, TITLES, OperationDraft, OperationHandle
from memtui.wording import misfit

DOOR = "import"
PRICED_BY = "priced_by"
"""Where the details of a usage name the price table, if the cost is not the log's own."""

_SCOPE = tuple(name for name in Scope.model_fields if name != "company_id")
_SOURCE = tuple(name for name in SourceRef.model_fields if name not in {"kind", "company_id"})
_LATENCY_UNITS = {"latency_ms": 1, "latency_s": 1_000, "latency_us": Decimal("0.001")}
_OF_SOURCE = frozenset({"source_kind", *(f"source_{name}" for name in _SOURCE)})
_COUNTS = ("input_tokens", "output_tokens", "embedding_tokens")
_CACHED = ("cache_read_tokens", "cache_write_tokens")
_UNKNOWN_PROVIDER = "unknown"
_MOST_CALLS = 1_000
_MOST_WORDS = 1_000
_NOT_KEPT = frozenset({"company_id", "scope.company_id", "source.company_id", "previous_digest"})
"""Columns of memtui's own export that say nothing about the operation itself."""

T = TypeVar("T")
Given = dict[str, Any]
"""Values by field."""

_READ: dict[str, Callable[[Any], Any]] = {
    "id": values.identifier,
    "text": values.text,
    "count": values.count,
    "usd": values.money,
    "flag": values.flag,
    "ms": values.duration,
    "list": partial(values.structure, kind=list),
}
_READERS = {
    **{name: _READ[field.kind] for name, field in FIELDS.items() if field.kind in _READ},
    **dict.fromkeys(("error_message", "undoes", *TITLES), values.unicode),
}
"""What reads the value of a field; the others depend on more than the value."""


class SkippedRow(Exception):
    """A row of a type that the person wants no operation of; its text is the word."""


@dataclass(slots=True)
class Translator:
    """Makes operations of one company out of rows, and remembers what it took for what."""

    company_id: str
    columns: ColumnMap
    zone: tzinfo = UTC
    types: dict[str, OperationType] = field(default_factory=dict)
    """What each word for a type was taken for."""
    statuses: dict[str, OperationStatus] = field(default_factory=dict)
    """The same for outcomes."""
    naive: int = 0
    """How many moments named no zone."""

    def entry(self, file: str, row: Row) -> ParsedOperation:
        """Return the operation of a row.

        Raises:
            LeftOut: it is of a type that is left out.
            ValueError: something in the row does not fit; the text says what.
        """
        assert row.values is not None  # noqa: S101 — the caller has reported those
        given, rest = self._sorted(row.values)
        moment, naive = values.moment(_needed(given, "started_at"), self.zone)
        kind = self._type(_needed(given, "operation_type"))
        foreign = given.get("operation_id")
        foreign_id = None if foreign is None else values.text(foreign).strip() or None
        origin: dict[str, Any] = {"file": file, "line": row.line}
        if foreign_id is not None:
            origin["id"] = foreign_id
        if rest:
            origin["columns"] = values.plain(rest)
        try:
            draft = self._draft(_read(given), kind, moment, origin)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{where}: {misfit(first)}") from error
        self.naive += naive
        at = values.microseconds(moment)
        key = key_of_id(foreign_id, at) if foreign_id else key_of("row", row.values)
        return ParsedOperation(row.line, draft, key, foreign_id)

    def _sorted(self, row: Mapping[str, Any]) -> tuple[Given, dict[str, Any]]:
        """Split a row into values by field and columns to keep as they are."""
        given: Given = {}
        ranks: dict[str, tuple[int, str]] = {}
        rest: dict[str, Any] = {}
        known, target = self.columns.known, self.columns.target
        for column, value in row.items():
            name, rank = known.get(column) or target(column)
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

    def _draft(
        self, given: Given, kind: OperationType, moment: datetime, origin: dict[str, Any]
    ) -> OperationDraft:
        get = given.get
        agent, handles = get("agent_id"), _handles(given.get("handles", ()))
        own = {name: given[name] for name in OWN_FIELDS if name in given}
        apart = {
            "operation_id": "",
            "operation_type": kind,
            "status": self._status(given, failed="error_message" in given),
            "scope": scope_of((self.company_id, *map(get, _SCOPE))),
            "source": self._source(given),
            "principal": get("principal") or (f"agent:{agent}" if agent else DOOR),
            "channel": get("channel") or DOOR,
            "request": {**_request(given), IMPORTED: origin},
            "result_count": get("result_count", len(handles)),
            "handles": handles,
            "usage": _usage(given, moment),
            "started_at": moment,
            "latency_ms": self._latency(given, moment),
        }
        return made(**own | apart)

    def _type(self, value: Any) -> OperationType:
        word = values.text(value).strip()
        if word in self.columns.left_out:
            raise SkippedRow(word)
        return _known(word, self.types, self.columns.types, values.operation_type)

    def _status(self, given: Given, *, failed: bool) -> OperationStatus:
        if "status" not in given:
            return OperationStatus.ERROR if failed else OperationStatus.OK
        word = values.text(given["status"]).strip()
        return _known(word, self.statuses, self.columns.statuses, values.status)

    def _latency(self, given: Given, began: datetime) -> float | None:
        """None where the row does not tell."""
        for name, unit in _LATENCY_UNITS.items():
            if name in given:
                return float(given[name] * unit)
        if "ended_at" not in given:
            return None
        took = values.moment(given["ended_at"], self.zone)[0] - began
        if took < timedelta(0):
            raise ValueError("ended_at: it is before started_at")
        return took / timedelta(milliseconds=1)

    def _source(self, given: Given) -> SourceRef | None:
        if given.keys().isdisjoint(_OF_SOURCE):
            return None
        parts = {name: given.get(f"source_{name}") for name in _SOURCE}
        kind = given.get("source_kind") or "external_document"
        return SourceRef.model_validate({"kind": kind, "company_id": self.company_id, **parts})


def _known(
    word: str, known: dict[str, T], told: dict[str, T], find: Callable[[str, dict[str, T]], T]
) -> T:
    """Return what a word means, and remember it: a log has few, and many rows."""
    found = known.get(word)
    if found is None:
        found = find(word, told)
        if len(known) < _MOST_WORDS:
            known[word] = found
    return found


def _read(given: Given) -> Given:
    """Return the values as what their fields hold."""
    found = dict(given)
    for name, value in given.items():
        try:
            found[name] = _READERS[name](value) if name in _READERS else value
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return found


def _usage(given: Given, at: datetime) -> tuple[Usage, ...]:
    if "usage" in given:
        return tuple(Usage.model_validate(part) for part in values.plain(given["usage"]))
    known = _call(given, at)
    unpriced = given.get("unpriced_count", 0)
    if not unpriced:
        return known
    if unpriced > _MOST_CALLS:
        raise ValueError(f"unpriced_count: {unpriced} is more than {_MOST_CALLS:,}")
    unpriced -= any(usage.cost_usd is None for usage in known)
    return (*known, *[Usage(provider=_UNKNOWN_PROVIDER)] * unpriced)


def _call(given: Given, at: datetime) -> tuple[Usage, ...]:
    """Return the call of a model that a row's columns tell, if they tell any."""
    get = given.get
    counts = {name: get(name, 0) for name in _COUNTS}
    cost, model, provider = get("cost_usd"), get("model"), get("provider")
    if cost is None and model is None and not any(counts.values()):
        return ()
    details: dict[str, Any] = {}
    if cost is None and model is not None:
        details |= {name: count for name in _CACHED if (count := get(name, 0))}
        found = _price(model, provider, at, counts, details)
        if found is not None:
            owner, cost = found
            provider = provider or owner
            details[PRICED_BY] = table_name()
    whose = provider or _UNKNOWN_PROVIDER
    return (Usage(provider=whose, model=model, cost_usd=cost, details=details, **counts),)


def _price(
    model: str,
    provider: str | None,
    at: datetime,
    counts: Mapping[str, int],
    cached: Mapping[str, int],
) -> tuple[str, Decimal] | None:
    """Price a call; one that both read and embedded is several calls, and left unpriced."""
    read, embedded = counts["input_tokens"], counts["embedding_tokens"]
    if (read and embedded) or not any(counts.values()):
        return None
    if sum(cached.values()) > read + embedded:
        raise ValueError("cache_read_tokens and cache_write_tokens are more than input_tokens")
    return cost_of(
        ModelCall(model, provider, at, read + embedded, counts["output_tokens"], **cached)
    )


def _request(given: Given) -> dict[str, Any]:
    request: dict[str, Any] = {}
    whole = given.get("request")
    if isinstance(whole, str) and not whole.lstrip().startswith("{"):
        request["query"] = whole
    elif whole is not None:
        try:
            request |= values.plain(values.structure(whole, kind=dict))
        except ValueError as error:
            raise ValueError(f"request: {error}") from error
    for name in ("query", "content"):
        if name in given:
            request[name] = given[name]
    return request


def _handles(parts: Sequence[Any]) -> tuple[OperationHandle, ...]:
    handles = tuple(OperationHandle.model_validate(part) for part in values.plain(parts))
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
