"""Rows to the contract's records, and a record's names.

A handle is `<namespace>/<id>`. Where the caller gave an id of its own, the row carries it and the
handle is that id: a UUID is the plugin's id as well, any other text is hashed into one.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence

from memtui.contract import Record, RecordHandle, Scope, Snippet, SourceRef

from .config import is_namespace
from .details import FOREIGN, SCOPE_IDS, Details, details_of, foreign, whole
from .scoping import NamespaceMap
from .wire import Row

PROVIDER = "plugin-v1"
Place = tuple[str, str]
"""A namespace and the plugin's id of a memory in it."""
_SEED = uuid.UUID("6a0f3f6e-5f0b-5c55-9a53-0d3c7a9b8e11")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_NOT_ADDRESSABLE = {".", ".."}


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as we write them."""
    return _UUID.fullmatch(text) is not None


def wire_id(namespace: str, given: str) -> str:
    """Return the UUID that a caller's own id is stored under."""
    if _UUID.fullmatch(given):
        return given
    name = f"{namespace}/{given}".encode("utf-8", "surrogatepass")
    return str(uuid.uuid5(_SEED, name.hex()))


def split(record_id: str) -> Place | None:
    """Take `<namespace>/<id>` apart; None for any other id."""
    namespace, _, identity = record_id.partition("/")
    if not identity or identity in _NOT_ADDRESSABLE or not is_namespace(namespace):
        return None
    return namespace, identity


def places(record_id: str, readable: Sequence[str]) -> list[Place]:
    """Return where a record of this handle can be, in the namespaces that may be read."""
    place = split(record_id)
    if place is not None:
        return [place] if place[0] in readable else []
    found = [(namespace, wire_id(namespace, record_id)) for namespace in readable]
    if not _UUID.fullmatch(record_id) and record_id not in _NOT_ADDRESSABLE:
        found += [(namespace, record_id) for namespace in readable]
    return found


def handle_of(row: Row) -> RecordHandle:
    """Return a row's handle.

    A caller's id counts only if the row has the UUID made of it: no row takes another's name.
    """
    details = details_of(row)
    given = details.id if details else None
    if given and split(given) is None and wire_id(row.namespace, given) == row.id:
        return handle(given)
    return handle(f"{row.namespace}/{row.id}")


def handle(record_id: str) -> RecordHandle:
    """Return the handle of an id."""
    return RecordHandle(provider_key=PROVIDER, provider_record_id=record_id)


class Reader:
    """Makes records of one company's rows."""

    def __init__(self, company_id: str, namespaces: NamespaceMap) -> None:
        self._company_id = company_id
        self._namespaces = namespaces

    def record(self, row: Row) -> Record:
        """Return a row as a record; `created_by` is the principal, else the wire's source."""
        details = details_of(row) or Details()
        metadata = whole(details.metadata)
        if others := foreign(row):
            metadata = {**metadata, FOREIGN: whole(others)}
        created_at = details.created_at or row.created_at
        return Record(
            handle=handle_of(row),
            text=whole(row.content),
            scope=self._scope(row, details),
            source=self._source(details),
            title=details.title,
            kind=details.kind or whole(row.kind),
            topic=details.topic,
            tags=details.tags,
            created_at=created_at,
            updated_at=details.updated_at or created_at,
            created_by=details.created_by or whole(row.source),
            expires_at=row.expires_at or details.expires_at,
            pinned=row.pin or details.pinned,
            valid_from=details.valid_from,
            revision=row.revision,
            metadata=metadata,
        )

    def records(self, rows: Iterable[Row]) -> list[Record]:
        """Return rows as records, in order."""
        return [self.record(row) for row in rows]

    def snippet(self, row: Row, score: float | None) -> Snippet:
        """Return a row as a query returned it."""
        return Snippet(**dict(self.record(row)), score=score)

    def _scope(self, row: Row, details: Details) -> Scope:
        ids = self._namespaces.ids_of(row.namespace)
        said = {name: details.scope[name] for name in SCOPE_IDS if name in details.scope}
        return Scope(company_id=self._company_id, **(said | ids))

    def _source(self, details: Details) -> SourceRef | None:
        if details.source is None:
            return None
        return details.source.model_copy(update={"company_id": self._company_id})
