"""Records under the names of the memory plugin contract.

Namespaces are scopes: `workspace:web` is the project `web`, `team:ops` the agent `ops`, `user:ana`
the subject `ana`, and every `org:` the company, unless the binding's config has `templates` of its
own. Any other namespace is a subject of that whole name, so that none is lost.

What the contract says of a memory and a record has no field for is a mark in the record's metadata.
A record that carries none was not written through a plugin: its namespace, kind and maker follow
from its scope and source then, and its id is made of the binding's and its own.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import ConfigDict, ValidationError

from memtui.backends.plugin_v1.config import NamespaceMap, Templates
from memtui.channels.http.plugin_wire import Kind, Maker, MemoryWrite
from memtui.contract import Invalid, Json, Model, Record, Scope, SourceKind, SourceRef, owner_of
from memtui.service import BindingView
from memtui.service.operations.redaction import redact, redact_json
from memtui.wording import misfit

_ORG = "org:"
_LONGEST = 180
"""Of an id, percent-encoded: longer ones are shortened, as a file name would have to be."""
_KEPT = 40


class Places:
    """Where the namespaces of one company are in a binding."""

    def __init__(self, company_id: str, binding: BindingView, *, only_facts: bool) -> None:
        """Take up a binding's mapping. Raises `Invalid` where its `templates` do not fit.

        Facts are of projects and subjects alone, so theirs have no other namespaces.
        """
        templates = _templates(binding, {"agent": None, "company": None} if only_facts else {})
        self._company_id = company_id
        self._names = NamespaceMap(templates, company_id)
        self._company = (
            self._names.target(Scope(company_id=company_id)) if templates.company else None
        )

    def _is_company(self, name: str) -> bool:
        """Whether a namespace is the company's: an `org:` of any name, if its own is one."""
        if self._company is None:
            return False
        return name == self._company or (name.startswith(_ORG) and self._company.startswith(_ORG))

    def scope_of(self, name: str) -> Scope:
        """Return the scope that a namespace's memories are written to."""
        if self._is_company(name):
            return Scope(company_id=self._company_id)
        ids = self._names.ids_of(name)
        if not ids or not all(value.isprintable() for value in ids.values()):
            ids = {"subject_id": name}
        short = {field: _shortened(value) for field, value in ids.items()}
        return Scope(company_id=self._company_id, **short)

    def name_of(self, scope: Scope, said: str | None) -> str | None:
        """Return the namespace of a record in `scope`, which says that it is `said`.

        It is believed where that namespace has the same owner. None: no namespace can hold it.
        """
        owner = owner_of(scope)
        if said is not None and owner_of(self.scope_of(said)) == owner:
            return said
        try:
            name = self._names.target(Scope(**{"company_id": self._company_id, **dict([owner])}))
        except Invalid:
            return None
        return name if owner_of(self.scope_of(name)) == owner else None


def _templates(binding: BindingView, fixed: Mapping[str, None]) -> Templates:
    given = binding.config.get("templates") or {}
    try:
        return Templates(**{**given, **fixed})
    except (ValidationError, TypeError) as error:
        what = misfit(error.errors()[0]) if isinstance(error, ValidationError) else str(error)
        raise Invalid(f"The templates of the binding {binding.key} do not fit: {what}.") from error


def _shortened(value: str) -> str:
    if len(quote(value, safe="")) <= _LONGEST:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:_KEPT]}~{digest[:16]}"


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
    text = line = body.content
    if as_line and _line(text) != text:
        # Only what is kept beside the record is redacted here; the service redacts the record.
        text = redact(text)[0]
        line = _line(text)
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


def marked(record: Record, mark: Mark | None, memory_id: str, namespace: str) -> Mark:
    """Return the mark of a memory under the id and in the namespace that it is known by."""
    if mark is not None:
        return mark.model_copy(update={"id": memory_id, "namespace": namespace})
    return Mark(id=memory_id, namespace=namespace, kind=kind_of(record), source=maker_of(record))
