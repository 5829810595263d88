"""Changes of entries; each is one request to Milvus, so that a crash cannot leave half of one.

The caller keeps out other changes of this process. Milvus has no transactions: on a server, another
program can change an entry between our read and our write.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Invalid,
    Json,
    Unsupported,
    WriteMode,
    WriteRequest,
)

from .expressions import all_of, json_list, one_of, quoted
from .facts import MilvusFact, MilvusVersion, find, of_fact
from .rows import (
    DETAILS,
    DOCUMENT,
    KV,
    SCHEMA,
    TEMPORAL,
    VECTOR,
    RecordAddress,
    Row,
    check_row,
    details_of,
    fact_name,
    fact_text,
    microseconds,
    own_ids,
    set_fact,
    set_window,
    set_written,
    source_fields,
    window_of,
)
from .store import Collection, MilvusStore

SEAL = "milvus"
_KEPT_APART = frozenset({"pinned", "expires_at", "metadata", "title"})


class EntryChanges:
    """The changes of one collection's entries, all with the same time."""

    def __init__(self, store: MilvusStore, collection: Collection, now: datetime) -> None:
        self._store, self._collection, self._now = store, collection, now

    # Read

    def entry(self, entry_id: str) -> Row | None:
        """Return a document or a key-value with its vector."""
        rows = self._store.rows(self._collection, one_of("entry_id", [entry_id]), whole=True)
        return rows[0] if rows and rows[0].get("entry_type") != TEMPORAL else None

    def fact(self, name: str) -> MilvusFact | None:
        """Return a fact with all its versions."""
        return find(self._store.rows(self._collection, of_fact(name), whole=True), name)

    # Write

    def document(self, request: WriteRequest, vector: Sequence[float]) -> RecordAddress:
        """Store a document."""
        row = self._new(request, DOCUMENT)
        row[VECTOR] = list(vector)
        row["topic"] = request.topic or ""
        set_document(row, request.content, request.summary)
        self._put([row])
        return RecordAddress(self._collection.name, entry_id=row["entry_id"])

    def write_fact(self, request: WriteRequest) -> tuple[RecordAddress, list[Row]]:
        """Store a fact; return its address and its entries from before the write."""
        row = self._new(request, TEMPORAL)
        row["kv_namespace"] = request.topic or ""
        set_fact(row, request.content)
        set_window(row, request.valid_from or request.created_at or self._now, request.valid_to)
        if not row["kv_key"]:
            self._name(row, fact_name(row))
        is_upsert = request.mode is WriteMode.UPSERT
        meant = RecordAddress.of(request.record_id or "") if is_upsert else None
        if meant and meant.fact and meant.collection == self._collection.name:
            self._name(row, meant.fact)
        known = self.fact(fact_name(row))
        last = known.current(self._now) if known else None
        if last is None and is_upsert and (old := self._key_value(row)) is not None:
            row |= {"entry_id": old["entry_id"], "entry_type": KV}
            set_window(row, None, None)
            self._put([row])
            return RecordAddress(self._collection.name, entry_id=row["entry_id"]), [old]
        if last is not None and not is_upsert:
            known, last = self._rename(row, fact_name(row)), None
        if last is not None and fact_text(last.row) == request.content and not request.valid_from:
            row["entry_id"] = last.row["entry_id"]
            set_window(row, last.begins, request.valid_to or last.ends)
            last = None
        if last is not None and _is_before(row, last):
            last = None  # a past value: it does not end the current one
        self._follow(row, last)
        before = [version.row for version in known.versions] if known else []
        return RecordAddress(self._collection.name, fact=fact_name(row)), before

    def _key_value(self, row: Row) -> Row | None:
        """Return the key-value of a fact's namespace and key, which has no history."""
        same = {name: row[name] for name in ("kv_namespace", "kv_key")}
        if not row["kv_key"]:
            return None
        parts = [f"{name} == {quoted(value)}" for name, value in {"entry_type": KV, **same}.items()]
        return next(iter(self._store.rows(self._collection, all_of(parts), whole=True)), None)

    def _rename(self, row: Row, natural: str) -> MilvusFact | None:
        """Number a second fact of one key; return the ended fact of that name, if any."""
        if not self._collection.keeps_details:
            raise Conflict(
                (
                    "A fact with that key exists, and this collection stores one for each key; "
                    "update it instead."
                ),
                proposed=row["content"],
            )
        number = 2
        while True:
            name = f"{natural}-{number}"
            known = self.fact(name)
            if known is None or known.current(self._now) is None:
                self._name(row, name)
                return known
            number += 1

    def _name(self, row: Row, name: str) -> None:
        if self._collection.keeps_details:
            row[DETAILS] = {**details_of(row), "fact": name}

    def _follow(self, row: Row, last: MilvusVersion | None) -> None:
        """Store a new version and end the current one, in one request."""
        if last is None:
            self._put([row])
            return
        begins, _ = window_of(row)
        if last.begins is not None and begins is not None and begins < last.begins:
            raise Invalid(
                "The new value would begin before the current one; give a later valid_from."
            )
        closed = dict(last.row)
        set_window(closed, last.begins, begins)
        self._put([closed, row])

    def correct(
        self, row: Row, request: CorrectRequest, vector: Sequence[float] | None
    ) -> RecordAddress:
        """Change a document or a key-value in place; `vector`: of the new text, if it changes."""
        changed = self._changed(row, request)
        if row["entry_type"] == KV:
            if request.text is not None:
                set_fact(changed, request.text)
            if request.topic is not None:
                changed["kv_namespace"] = request.topic
        else:
            if request.topic is not None:
                changed["topic"] = request.topic
            text = row.get("original") or row.get("content") or ""
            summary = row.get("content") if row.get("original") else None
            if summary == text:
                summary = None
            if request.summary is not None:
                summary = request.summary or None
            set_document(changed, text if request.text is None else request.text, summary)
        if vector is not None:
            changed[VECTOR] = list(vector)
        set_written(changed, self._now)
        self._put([changed])
        return RecordAddress(self._collection.name, entry_id=row["entry_id"])

    def correct_fact(self, last: MilvusVersion, request: CorrectRequest) -> RecordAddress:
        """Change a fact; another text ends the current version and starts a new one.

        Another key or topic makes it another fact, which starts then. Raises `Conflict` if that
        fact exists.
        """
        changed = self._changed(last.row, request)
        set_written(changed, self._now)
        if request.topic is not None:
            changed["kv_namespace"] = request.topic
        if request.text is not None and request.text != fact_text(last.row):
            set_fact(changed, request.text)
            if request.source is not None:
                self._tell(changed, source=source_fields(request.source))
            self._tell(changed, created_by=request.created_by)
        is_moved = any(changed[name] != last.row.get(name) for name in ("kv_key", "kv_namespace"))
        if is_moved:
            self._begin_elsewhere(changed)
        if is_moved or fact_text(changed) != fact_text(last.row):
            changed["entry_id"] = new_id()
            set_window(changed, max(self._now, last.begins or self._now), None)
            self._follow(changed, last)
        else:
            self._put([changed])
        return RecordAddress(self._collection.name, fact=fact_name(changed))

    def _begin_elsewhere(self, row: Row) -> None:
        """Move a version to the fact of its key and topic. Raises `Conflict` if that exists."""
        self._tell(row, fact=None)
        if not row["kv_key"]:
            self._name(row, fact_name(row))
        other = self.fact(fact_name(row))
        last = other.current(self._now) if other else None
        if other is not None and last is not None:
            raise Conflict(
                "Another fact has that key and topic already; correct that one, or forget it.",
                current=other.record(last, self._collection.name, self._collection.owner),
                proposed=fact_text(row),
            )

    def _changed(self, row: Row, request: CorrectRequest) -> Row:
        changed = dict(row)
        if request.tags is not None:
            changed["tags"] = json_list(request.tags)
        if request.pinned is not None:
            self._tell(changed, pinned=request.pinned or None)
        if request.sets_expiry:
            ends = request.expires_at
            self._tell(changed, expires_at=None if ends is None else microseconds(ends))
        return changed

    def close(self, facts: Sequence[MilvusVersion]) -> None:
        """End current versions now; a future version gets an empty window."""
        closed = []
        for version in facts:
            row = dict(version.row)
            set_window(row, version.begins, max(self._now, version.begins or self._now))
            set_written(row, self._now)
            closed.append(row)
        self._put(closed)

    def _new(self, request: WriteRequest, entry_type: str) -> Row:
        collection = self._collection
        row: Row = {name: "" if size else 0 for name, size in SCHEMA.items()}
        row |= {"entry_id": new_id(), "entry_type": entry_type, "tags": json_list(request.tags)}
        row["source"] = (request.source and request.source.external_ref) or ""
        if collection.dimensions is not None:
            row[VECTOR] = [0.0] * collection.dimensions
        ends = request.expires_at
        created = request.created_at or self._now
        usual = "fact" if entry_type == TEMPORAL else "note"
        self._tell(
            row,
            kind=None if request.kind == usual else request.kind,
            title=request.title,
            created_at=microseconds(created),
            created_by=request.created_by,
            source=request.source and source_fields(request.source),
            scope=own_ids(request.scope, collection.owner) or None,
            pinned=request.pinned or None,
            expires_at=None if ends is None else microseconds(ends),
            metadata=request.metadata or None,
        )
        set_written(row, self._now)
        return row

    def _tell(self, row: Row, **known: Any) -> None:
        """Set details, for which the schema has no field; None removes one.

        Raises `Unsupported` for a requested detail that the collection cannot store.
        """
        if not self._collection.keeps_details:
            if asked := [name for name in _KEPT_APART if known.get(name)]:
                raise Unsupported(
                    f"The collection {self._collection.name} was made by another program and "
                    f"stores no {' and no '.join(sorted(asked)).replace('_', ' ')}; leave it out."
                )
            return
        merged = {**details_of(row), **known}
        row[DETAILS] = {name: value for name, value in merged.items() if value is not None}

    # Put back

    def entries(self, place: RecordAddress) -> Entries:
        """Return all entries of a record, for a snapshot."""
        if place.entry_id is not None:
            row = self.entry(place.entry_id)
            rows = [] if row is None else [row]
        else:
            fact = self.fact(place.fact or "")
            rows = [version.row for version in fact.versions] if fact else []
        return Entries(rows, self._collection.model)

    def past(self, place: RecordAddress) -> list[Row]:
        """Return the past entries of a fact; empty for another record."""
        fact = self.fact(place.fact) if place.fact is not None else None
        last = fact.current(self._now) if fact else None
        return [one.row for one in fact.versions if one is not last] if fact else []

    def restore(self, place: RecordAddress, rows: Sequence[Row]) -> None:
        """Replace all entries of a record by these."""
        if place.entry_id is not None:
            there = {place.entry_id}
        else:
            fact = self.fact(place.fact or "")
            there = {str(one.row["entry_id"]) for one in fact.versions} if fact else set()
        self._put(rows)
        gone = there - {str(row["entry_id"]) for row in rows}
        self._store.delete(self._collection, sorted(gone))

    def _put(self, rows: Sequence[Row]) -> None:
        fields = self._collection.fields
        ready = []
        for row in rows:
            check_row(row, fields)
            declared = {*SCHEMA, VECTOR}
            ready.append({name: one for name, one in row.items()
                          if name in fields or name not in declared})  # fmt: skip
        self._store.put(self._collection, ready)


def _is_before(row: Row, last: MilvusVersion) -> bool:
    _, ends = window_of(row)
    return ends is not None and last.begins is not None and ends <= last.begins


def set_document(row: Row, text: str, summary: str | None) -> None:
    """Put a document's text and summary into their fields (seed 002 §6)."""
    row["content"], row["original"] = summary or text, text


def new_id() -> str:
    """Return a new id; later ids sort after earlier ones."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries of a record at one moment, with their vectors."""

    rows: list[Row]
    model: str | None
    """The embedding model of their vectors."""

    def seal(self) -> Json:
        """Encode the entries as a snapshot's state in base64, which no redaction alters."""
        import numpy as np

        plain = [
            {
                name: base64.b64encode(np.asarray(one, "<f4").tobytes()).decode()
                if name == VECTOR
                else one
                for name, one in row.items()
            }
            for row in self.rows
        ]
        said = json.dumps({"model": self.model, "rows": plain})
        return {SEAL: base64.b64encode(said.encode()).decode()}

    @classmethod
    def unseal(cls, state: Json) -> Entries | None:
        """Decode a snapshot's state; None if empty. Raises `Invalid` for a foreign one."""
        import numpy as np

        if not state:
            return None
        try:
            said = json.loads(base64.b64decode(state[SEAL], validate=True))
            for row in said["rows"]:
                if VECTOR in row:
                    row[VECTOR] = np.frombuffer(base64.b64decode(row[VECTOR]), "<f4").tolist()
            return cls(said["rows"], said["model"])
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(
                "This snapshot was not taken by this provider; it cannot be restored."
            ) from error
