"""Maps records to the memories and namespaces of the memory plugin contract.

Namespaces are scopes: `workspace:web` is the project `web`, `team:ops` the agent `ops`, `user:ana`
the subject `ana`, and every `org:` the company, unless the binding's config has `templates` of its
own. Any other namespace is a subject of that whole name, so that none is lost.

Fields of a memory that a record lacks are stored as a mark in the record's metadata. A record
without a mark was not written through a plugin: its namespace, kind and maker are derived from its
scope and source, and its memory id from the binding's id and its own.
"""

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
"""Most characters of a percent-encoded id; longer ones are shortened, to fit a file name."""
_KEPT = 40


class Places:
    """Maps the namespaces of one company to scopes of a binding, and back."""

    def __init__(self, company_id: str, binding: BindingView, *, only_facts: bool) -> None:
        """Read a binding's mapping. Raises `Invalid` for invalid `templates`.

        Facts belong to projects and subjects only, so `only_facts` leaves out other namespaces.
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
        """Return the namespace of a record in `scope`, whose mark names the namespace `said`.

        `said` counts if it has the same owner. None: no namespace can contain the record.
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
"""The record kind of the contract's facts, which may be longer than memtui's one-line facts."""
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
    """JSON text, so that no provider changes its values."""
    content: str | None = None
    """The text, if the provider only stores single lines and this is not one."""
    line: str | None = None
    """The record's text instead of `content`, which counts until this text is edited."""

    def as_json(self) -> Json:
        """Return the mark as stored."""
        return self.model_dump(mode="json", exclude_none=True)

    def text_of(self, record: Record) -> str:
        """Return the text of a record's memory: the mark's, unless the record was edited since."""
        if self.content is not None and self.line == record.text:
            return self.content
        return record.text

    @property
    def propagated(self) -> Json | None:
        """The memory's propagation; None if there is none, or it is unreadable."""
        if self.propagation is None:
            return None
        try:
            found: Any = json.loads(self.propagation)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) and found else None


def mark_for(memory_id: str, namespace: str, body: MemoryWrite, *, as_line: bool) -> Mark:
    """Return the mark for a write, with secrets redacted.

    `as_line`: the provider only stores single lines.
    """
    propagation = redact_json(body.propagation)[0] if body.propagation else None
    text = line = body.content
    if as_line and _line(text) != text:
        # Only the mark's text is redacted here; the service redacts the record.
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
    """Return a record's mark, or else the separately stored one; None: it has none."""
    for found in (record.metadata.get(KEY), kept):
        try:
            mark = Mark.model_validate(found)
        except ValidationError:
            continue
        if mark.propagation is None or mark.propagated is not None:
            return mark
    return None


def made_id(binding_id: str, record: Record) -> str:
    """Return the memory id of a record without a mark."""
    name = f"{binding_id}/{record.handle.provider_record_id}"
    return str(uuid.uuid5(_SEED, name.encode("utf-8", "surrogatepass").hex()))


def record_kind(kind: Kind) -> str:
    """Return the record kind of a kind in the contract."""
    return NOTE if kind is Kind.FACT else kind.value


def source_for(maker: Maker, company_id: str) -> SourceRef:
    """Return the record source for a memory's maker."""
    return SourceRef(kind=_SOURCES[maker], company_id=company_id)


def kind_of(record: Record) -> Kind:
    """Return the contract's kind of a record without a mark."""
    return Kind(record.kind) if record.kind in set(Kind) else Kind.FACT


def maker_of(record: Record) -> Maker:
    """Return the maker of a record without a mark."""
    author = (record.created_by or "").partition(":")[0]
    if author in set(Maker):
        return Maker(author)
    kind = record.source.kind if record.source else None
    return next((maker for maker, source in _SOURCES.items() if source is kind), Maker.AGENT)


def marked(record: Record, mark: Mark | None, memory_id: str, namespace: str) -> Mark:
    """Return a record's mark with this id and namespace, or a new one."""
    if mark is not None:
        return mark.model_copy(update={"id": memory_id, "namespace": namespace})
    return Mark(id=memory_id, namespace=namespace, kind=kind_of(record), source=maker_of(record))
