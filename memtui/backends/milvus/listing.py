"""Lists the records visible to a scope: now, at an earlier moment, or in every version."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from memtui.contract import BrowseRequest, Record, Scope, owner_of
from memtui.provider_kit.matching import matcher

from .expressions import all_of, has_tag, one_of, quoted
from .facts import facts_of
from .naming import weight
from .rows import EVERY, KV, TEMPORAL, Row, is_empty, record_of
from .store import Collection, MilvusStore


def listed(
    store: MilvusStore, collections: Iterable[Collection], request: BrowseRequest, now: datetime,
    most: int,
) -> tuple[list[Record], bool]:  # fmt: skip
    """Return the records of a browse request, sorted by id, and whether some were not read.

    At most `most` entries are read of each collection.
    """
    passes = matcher(request.filter)
    owners = frozenset(map(owner_of, request.owners))
    moment = request.as_of or now
    found: list[Record] = []
    is_cut = False
    for collection in collections:
        rows = store.rows(collection, _narrowed(request, collection), most=most)
        is_cut |= len(rows) >= most
        found += [
            record
            for record in _holding(collection, rows, request.as_of, now)
            if weight(request.scope, collection.owner, record.scope) > 0
            and (request.expired or record.expires_at is None or record.expires_at > moment)
            and (not owners or owner_of(record.scope) in owners)
            and passes(record)
        ]
    found.sort(key=lambda record: record.handle.provider_record_id)
    return found, is_cut


def _narrowed(request: BrowseRequest, collection: Collection) -> str:
    """Return an expression that matches all records of the filter, and more."""
    wanted, parts = request.filter, [EVERY]
    if wanted.tag is not None and "tags" in collection.fields:
        parts.append(has_tag("tags", wanted.tag))
    if wanted.kind == "fact":
        parts.append(one_of("entry_type", [KV, TEMPORAL]))
    return all_of(parts)


def _holding(
    collection: Collection, rows: Sequence[Row], as_of: datetime | None, now: datetime
) -> Iterator[Record]:
    """Yield the records that are valid now or at `as_of`."""
    for record in _without_versions(collection, rows):
        if as_of is None or (record.created_at or as_of) <= as_of:
            yield record
    for fact in facts_of(rows):
        version = fact.at(as_of) if as_of else fact.current(now)
        if version is not None:
            yield fact.record(version, collection.name, collection.owner)


def _without_versions(collection: Collection, rows: Sequence[Row]) -> Iterator[Record]:
    for row in rows:
        if row.get("entry_type") != TEMPORAL and not is_empty(row):
            yield record_of(row, collection.name, collection.owner)


def all_versions(
    store: MilvusStore, collections: Iterable[Collection], scope: Scope
) -> list[Record]:
    """Return every version of every fact; other entries have no versions in Milvus."""
    found: list[Record] = []
    for collection in collections:
        name, owner = collection.name, collection.owner
        for fact in facts_of(store.rows(collection, f"entry_type == {quoted(TEMPORAL)}")):
            known = [fact.record(version, name, owner) for version in fact.versions]
            found += [one for one in known if weight(scope, owner, one.scope) > 0]
    return found
