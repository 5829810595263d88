"""Erases the entries of ended facts, and deleted entries that remain in a file."""

from collections.abc import Iterable
from datetime import datetime

from memtui.contract import EraseReply, EraseRequest, owner_of

from .expressions import quoted
from .facts import MilvusFact, facts_of
from .reindex import write_anew
from .rows import TEMPORAL, RecordAddress, scope_of
from .store import Collection, MilvusStore


def erase(
    store: MilvusStore, collections: Iterable[Collection], request: EraseRequest, now: datetime
) -> EraseReply:
    """Return the remains of deleted records; erase them if `request.apply`."""
    kept: dict[str, int] = {}
    texts: list[str] = []
    ids: list[str] = []
    beyond: list[str] = []
    places = [place for one in request.record_ids if (place := RecordAddress.of(one))]
    for collection in collections:
        here = [place for place in places if place.collection == collection.name]
        is_whole = request.scope.project_id is not None or request.scope.subject_id is not None
        is_own = is_whole and owner_of(collection.owner) == owner_of(request.scope)
        if not (here or is_own or request.scope.subject_id):
            continue
        names = {place.fact for place in here}
        gone = [
            fact
            for fact in _gone(store, collection, now)
            if is_own or fact.name in names or _is_about(fact, collection, request)
        ]
        rows = [version.row for fact in gone for version in fact.versions]
        if rows:
            kept[collection.name] = len(rows)
        for fact in gone:
            ids.append(RecordAddress(collection.name, fact=fact.name).handle.provider_record_id)
            texts += [
                fact.record(one, collection.name, collection.owner).text for one in fact.versions
            ]
        if request.apply:
            store.delete(collection, [str(row["entry_id"]) for row in rows])
        if said := _out_of_files(store, collection, apply=request.apply):
            beyond.append(said)
    return EraseReply(kept=kept, texts=tuple(texts), record_ids=tuple(ids), beyond=tuple(beyond))


def _is_about(fact: MilvusFact, collection: Collection, request: EraseRequest) -> bool:
    """Whether a fact is about the subject to erase, in any collection."""
    subject = request.scope.subject_id
    scopes = (scope_of(version.row, collection.owner) for version in fact.versions)
    return subject is not None and any(scope.subject_id == subject for scope in scopes)


def _gone(store: MilvusStore, collection: Collection, now: datetime) -> list[MilvusFact]:
    rows = store.rows(collection, f"entry_type == {quoted(TEMPORAL)}")
    return [fact for fact in facts_of(rows) if fact.current(now) is None]


def _out_of_files(store: MilvusStore, collection: Collection, *, apply: bool) -> str | None:
    """Rewrite a collection if possible; return a sentence if deleted entries remain."""
    name = collection.name
    if not store.is_file:
        return (
            f"The server keeps deleted entries of {name} until it compacts them, and its backups "
            "keep them longer; ask its administrator to erase both."
        )
    if collection.model is None:
        return (
            f"{name} was made by another program and is not rewritten, so its files keep "
            "deleted entries until Milvus Lite compacts them."
        )
    if apply:
        write_anew(store, collection)
    return None
