"""The parts of a memory as a mapping names them, and memtui's fields where there is no place."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256

from memtui.contract import (
    OWNER_FIELDS,
    BindingContext,
    EraseReply,
    EraseRequest,
    Json,
    MemtuiError,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    WriteRequest,
)
from memtui.provider_kit import from_epoch, read_moment
from memtui.provider_kit.kept import KeptFields
from memtui.provider_kit.known import KNOWN, KnownFile, remains
from memtui.provider_kit.server_provider import ServerRows, revision_of
from memtui.provider_kit.servers import as_text

_STAYS = f"What {KNOWN} has of deleted memories stays: the list of the others is not whole."


def marked(text: str) -> str:
    """Return the name in `known.json` of a memory whose id is not known."""
    return f"text:{sha256(' '.join(text.split()).encode()).hexdigest()}"


def kept_row(known: Mapping[str, KeptFields], row: Json) -> Json:
    """Return a row of a mapping with its owner, metadata, and `kept`, memtui's fields of it.

    Raises:
        ValueError: it has no id or text, or its owner cannot be read.
    """
    if not (row["id"] and row["text"]):
        raise ValueError("it has no id or no text")
    kept = known.get(row["id"]) or known.get(marked(row["text"]))
    kept = kept or KeptFields.found_in(row.get("metadata"))
    said = {name: as_text(row[name]) for name in OWNER_FIELDS if row.get(name)}
    ids = kept.ids or KeptFields.model_validate({"ids": said}).ids
    metadata = found if isinstance(found := row.get("metadata"), dict) else {}
    return {**row, "kept": kept, "ids": ids, "metadata": metadata}


def record_of(item: Json, handle: RecordHandle, company_id: str, uses: Collection[str]) -> Record:
    """Return a row of a mapping, with `kept` in it, as a record.

    `uses` are the names in the metadata that change as the record is read: they are left out.
    """
    kept: KeptFields = item["kept"].model_copy(update={"ids": item["ids"]})
    metadata = {name: value for name, value in item["metadata"].items() if name not in uses}
    given: Json = {name: item[name] for name in ("title", "topic") if _is_word(item.get(name))}
    tags = _tags(item.get("tags"))
    given["tags"] = kept.tags or () if tags is None else tags
    given["kind"] = kept.kind or (item["kind"] if _is_word(item.get("kind")) else "note")
    created_at = kept.created_at or _moment(item.get("created_at"))
    author = item.get("created_by")
    return kept.record(
        company_id,
        metadata,
        handle=handle,
        text=item["text"],
        read_only=item["read_only"],
        created_at=created_at,
        updated_at=_moment(item.get("updated_at")) or created_at,
        created_by=kept.created_by or (author if _is_word(author) else None),
        revision=revision_of(item["text"], given, metadata, kept.to_json()),
        **given,
    )


def values_of(one: WriteRequest | Record) -> Json:
    """Return the values of a memory's placeholders."""
    moment = one.created_at
    return {
        **one.scope.model_dump(exclude={"company_id"}, exclude_none=True),
        "text": one.content if isinstance(one, WriteRequest) else one.text,
        "title": one.title,
        "kind": one.kind,
        "topic": one.topic,
        "tags": [*one.tags] or None,
        "created_at": moment and moment.isoformat(),
        "created_by": one.created_by,
    }


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _tags(value: object) -> tuple[str, ...] | None:
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list):
        return None
    return tuple(one.strip() for one in found if isinstance(one, str) and one.strip())


def _moment(value: object) -> datetime | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return from_epoch(value)
    return read_moment(value)


class KeptHere:
    """The file `known.json` of a binding; nothing is in it where the server keeps all."""

    def __init__(self, context: BindingContext, *, is_here: bool) -> None:
        self.is_here, self._company = is_here, context.company_id
        self._file = KnownFile(
            context.data_dir, KeptFields, f"the memories of {context.binding_key}"
        )

    async def now(self) -> Mapping[str, KeptFields]:
        """Return the kept fields, by a memory's id, or by its text where no id is known."""
        return await asyncio.to_thread(self._file.read) if self.is_here else {}

    async def change(self, changes: Mapping[str, KeptFields | None]) -> None:
        """Store some changes, of which None removes a memory's."""
        if self.is_here and changes:
            await asyncio.to_thread(self._file.change_alone, changes)

    @asynccontextmanager
    async def during(
        self, kept: KeptFields, text: str, known_id: str = ""
    ) -> AsyncIterator[list[str]]:
        """Keep a memory's fields while it is being stored; the body fills in its ids.

        It is kept by the text at first, so that the memory is never everybody's, and stays so if
        nobody learns the id.
        """
        mark, ids = known_id or marked(text), list[str]()
        before = await self.now()
        await self.change({mark: kept})
        try:
            yield ids
        except MemtuiError as error:
            if not (isinstance(error, Unavailable) and error.sent):
                await self.change({mark: before.get(mark)})
            raise
        if ids:
            await self.change({mark: None, **dict.fromkeys(ids, kept)})

    async def erase(self, request: EraseRequest, rows: ServerRows[Json] | None) -> EraseReply:
        """Erase the kept fields of memories that are not in `rows`, the server's whole list."""
        if rows is None or rows.more or rows.unreadable:
            return EraseReply(beyond=(_STAYS,))
        known = await self.now()
        owners = {name: Scope(company_id=self._company, **one.ids) for name, one in known.items()}
        there = {name for one in rows.items for name in (one["id"], marked(one["text"]))}
        found = remains(owners, there, request)
        if request.apply:
            await self.change(dict.fromkeys(found.record_ids))
        return found
