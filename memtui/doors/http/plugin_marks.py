"""What the contract says of a memory and a record has no field for, kept in the record's metadata.

A record that carries no mark was not written through a plugin: its namespace, kind and maker follow
from its scope and source then, and its id is made of the binding's and its own.
"""

from __future__ import annotations

import json
import unicodedata
import uuid
from typing import Any

from pydantic import ConfigDict, ValidationError

from memtui.contract import Json, Model, Record, SourceKind, SourceRef
from memtui.doors.http.plugin_wire import Kind, Maker, MemoryWrite
from memtui.service.redaction import redact, redact_json

KEY = "memtui_plugin"
NOTE = "note"
"""The kind of a fact's record: memtui's own facts are one short line, the contract's are not."""
_SEED = uuid.UUID("0d6f4b9c-3f0a-5a7e-8a57-5d8f1f6e2c40")
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_SOURCES = {
    Maker.AGENT: SourceKind.RUN,
    Maker.RUNTIME: SourceKind.ACTIVITY,
    Maker.USER: SourceKind.MANUAL_NOTE,
}


class Mark(Model):
    """A memory's part of its record's metadata."""

    model_config = ConfigDict(extra="ignore")

    id: str
    namespace: str
    kind: Kind
    source: Maker
    propagation: str | None = None
    """JSON, so that no provider's own notation changes it."""
    content: str | None = None
    """The text, where the provider keeps single lines only and this is none."""
    line: str | None = None
    """What is kept as the text instead of `content`, which holds as long as nobody edits it."""

    def as_json(self) -> Json:
        """Return what is kept."""
        return self.model_dump(mode="json", exclude_none=True)

    def text_of(self, record: Record) -> str:
        """Return a record's text as it was written."""
        if self.content is not None and self.line == record.text:
            return self.content
        return record.text

    @property
    def propagated(self) -> Json | None:
        """What was to be propagated, None where there is nothing or it cannot be read."""
        if self.propagation is None:
            return None
        try:
            found: Any = json.loads(self.propagation)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) and found else None


def mark_for(memory_id: str, namespace: str, body: MemoryWrite, *, as_line: bool) -> Mark:
    """Return the mark of a memory that is written, its secrets taken out.

    `as_line`: the provider keeps single lines only.
    """
    propagation = redact_json(body.propagation)[0] if body.propagation else None
    text = redact(body.content)[0]
    line = _line(text) if as_line else text
    return Mark(
        id=memory_id,
        namespace=namespace,
        kind=body.kind,
        source=body.source,
        propagation=json.dumps(propagation) if propagation else None,
        content=text if line != text else None,
        line=line if line != text else None,
    )


def _line(text: str) -> str:
    """Return a text as one line without control characters."""
    plain = "".join(" " if unicodedata.category(one) in _UNPRINTABLE else one for one in text)
    return plain if plain.strip() or not text.strip() else "\ufffd"


def mark_of(record: Record, kept: Json | None = None) -> Mark | None:
    """Return a record's mark, else what is kept of it elsewhere; None: it has none."""
    for found in (record.metadata.get(KEY), kept):
        try:
            mark = Mark.model_validate(found)
        except ValidationError:
            continue
        if mark.propagation is None or mark.propagated is not None:
            return mark
    return None


def made_id(binding_id: str, record: Record) -> str:
    """Return the id of a memory whose record carries none."""
    name = f"{binding_id}/{record.handle.provider_record_id}"
    return str(uuid.uuid5(_SEED, name.encode("utf-8", "surrogatepass").hex()))


def record_kind(kind: Kind) -> str:
    """Return memtui's word for a kind of the contract's."""
    return NOTE if kind is Kind.FACT else kind.value


def source_for(maker: Maker, company_id: str) -> SourceRef:
    """Return the source that stands for who wrote a memory."""
    return SourceRef(kind=_SOURCES[maker], company_id=company_id)


def kind_of(record: Record) -> Kind:
    """Return the contract's word for the kind of a record that has no mark."""
    return Kind(record.kind) if record.kind in set(Kind) else Kind.FACT


def maker_of(record: Record) -> Maker:
    """Return who wrote a record that has no mark."""
    author = (record.created_by or "").partition(":")[0]
    if author in set(Maker):
        return Maker(author)
    kind = record.source.kind if record.source else None
    return next((maker for maker, source in _SOURCES.items() if source is kind), Maker.AGENT)
