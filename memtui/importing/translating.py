"""Translate a row of a foreign log into an operation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any

from pydantic import ValidationError

from memtui.contract import OperationStatus, Scope, SourceRef, Usage
from memtui.importing import values
from memtui.importing.rows import Row
from memtui.importing.staging import ParsedOperation, key_of
from memtui.prices import ModelCall, cost_of, table_name
from memtui.service.home.imports import IMPORTED
from memtui.store.operation import OWN_FIELDS, TITLES, OperationDraft, OperationHandle
from memtui.wording import misfit

DOOR = "import"
PRICED_BY = "priced_by"
"""The member of a usage's details that names the price table, if memtui priced it."""

_SCOPE = tuple(name for name in Scope.model_fields if name != "company_id")
_SOURCE = tuple(name for name in SourceRef.model_fields if name not in {"kind", "company_id"})
_OF_SOURCE = ("source_kind", *(f"source_{name}" for name in _SOURCE))
_COUNTS = ("input_tokens", "output_tokens", "embedding_tokens")
_CACHED = ("cache_read_tokens", "cache_write_tokens")
_UNKNOWN_PROVIDER = "unknown"
_MOST_CALLS = 1_000
_NOT_KEPT = frozenset({"company_id", "source_company_id", "previous_digest"})
"""Columns of memtui's own export that are dropped: they do not describe the operation."""

Given = dict[str, Any]
"""Values by field."""

_READERS: dict[Callable[[Any], Any], Iterable[str]] = {
    values.operation_type: ("operation_type",),
    values.status: ("status",),
    values.identifier: (
        *_SCOPE, "binding_key", "provider_key", "principal", "channel", "error_kind", "provider",
        "model",
    ),
    values.text: ("operation_id", "query", "content", *_OF_SOURCE),
    values.unicode: ("error_message", "undoes", *TITLES),
    values.count: ("result_count", "unpriced_count", *_COUNTS, *_CACHED),
    values.flag: ("capped",),
    values.duration: ("latency_ms",),
    values.money: ("cost_usd",),
    partial(values.structure, kind=dict): ("request", IMPORTED),
    partial(values.structure, kind=list): ("usage", "handles"),
}  # fmt: skip
FIELDS = {
    "started_at": None,
    **{name: reader for reader, names in _READERS.items() for name in names},
}
"""The function that reads each field of an imported operation; None: it needs the zone too."""
NEEDED = ("started_at", "operation_type")


@dataclass(slots=True)
class Translator:
    """Translates rows into operations of one company."""

    company_id: str
    zone: tzinfo = UTC
    taken: frozenset[str] = frozenset()
    """Columns that a mapping names, so they are not kept as well."""
    naive: int = 0
    """How many moments had no zone."""

    def keeps(self, column: str) -> bool:
        """Whether a column is stored in the request, as it belongs to no field."""
        return not (column in FIELDS or column in self.taken or column in _NOT_KEPT)

    def entry(self, file: str, row: Row, mapped: Mapping[str, Any]) -> ParsedOperation:
        """Return the operation of a row.

        Args:
            file: The name of the row's file.
            row: A row that can be read.
            mapped: Values by field, which replace those of the row's columns.

        Raises:
            ValueError: a value is missing or does not fit; the message names the field.
        """
        assert row.values is not None  # noqa: S101 — the caller has reported those
        present = {
            name: value
            for name, value in {**row.values, **mapped}.items()
            if value not in (None, "", {})
        }
        given = {name: value for name, value in present.items() if name in FIELDS}
        kept = {name: value for name, value in present.items() if self.keeps(name)}
        for name in NEEDED:
            if name not in given:
                raise ValueError(f"it has no {name}")
        given = _read(given)
        moment, naive = values.moment(given["started_at"], self.zone)
        foreign_id = given.pop("operation_id", "").strip() or None
        origin: dict[str, Any] = {"file": file, "line": row.line}
        if foreign_id is not None:
            origin["id"] = foreign_id
        # A mapping of the kept columns counts even if its value is empty in this row.
        if kept := given.pop(IMPORTED, {} if IMPORTED in mapped else kept):
            origin["columns"] = values.plain(kept)
        try:
            draft = self._draft(given, moment, origin)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{where}: {misfit(first)}") from error
        self.naive += naive
        at = values.microseconds(moment)
        key = key_of("id", foreign_id, at) if foreign_id else key_of("row", row.values)
        return ParsedOperation(row.line, draft, key, foreign_id)

    def _draft(self, given: Given, moment: datetime, origin: dict[str, Any]) -> OperationDraft:
        get = given.get
        agent, handles = get("agent_id"), _handles(given.get("handles", ()))
        ended = OperationStatus.ERROR if "error_message" in given else OperationStatus.OK
        own = {name: given[name] for name in OWN_FIELDS if name in given}
        apart = {
            "operation_id": "",
            "operation_type": given["operation_type"],
            "status": get("status", ended),
            "scope": Scope(company_id=self.company_id, **{name: get(name) for name in _SCOPE}),
            "source": self._source(given),
            "principal": get("principal") or (f"agent:{agent}" if agent else DOOR),
            "channel": get("channel") or DOOR,
            "request": {**_request(given), IMPORTED: origin},
            "result_count": get("result_count", len(handles)),
            "handles": handles,
            "usage": _usage(given, moment),
            "started_at": moment,
            "latency_ms": None if (took := get("latency_ms")) is None else float(took),
        }
        return OperationDraft(**own | apart)

    def _source(self, given: Given) -> SourceRef | None:
        if given.keys().isdisjoint(_OF_SOURCE):
            return None
        parts = {name: given.get(f"source_{name}") for name in _SOURCE}
        kind = given.get("source_kind") or "external_document"
        return SourceRef.model_validate({"kind": kind, "company_id": self.company_id, **parts})


def _read(given: Given) -> Given:
    """Return the values, converted for their fields."""
    found = {}
    for name, value in given.items():
        reader = FIELDS[name]
        try:
            found[name] = value if reader is None else reader(value)
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
    # The call that the columns describe may be one of the unpriced calls.
    unpriced -= any(usage.cost_usd is None for usage in known)
    return (*known, *[Usage(provider=_UNKNOWN_PROVIDER)] * unpriced)


def _call(given: Given, at: datetime) -> tuple[Usage, ...]:
    """Return the model call that a row's columns describe, if any."""
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
    """Price a call; None where input and embedding tokens show that it was several calls."""
    read, embedded = counts["input_tokens"], counts["embedding_tokens"]
    if (read and embedded) or not any(counts.values()):
        return None
    if sum(cached.values()) > read + embedded:
        raise ValueError("cache_read_tokens and cache_write_tokens are more than input_tokens")
    return cost_of(
        ModelCall(model, provider, at, read + embedded, counts["output_tokens"], **cached)
    )


def _request(given: Given) -> dict[str, Any]:
    request: dict[str, Any] = values.plain(given.get("request", {}))
    return request | {name: given[name] for name in ("query", "content") if name in given}


def _handles(parts: Sequence[Any]) -> tuple[OperationHandle, ...]:
    handles = tuple(OperationHandle.model_validate(part) for part in values.plain(parts))
    if len({handle.rank for handle in handles}) < len(handles):
        raise ValueError("handles: two of them have the same rank")
    return handles
