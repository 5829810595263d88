"""The store of LangGraph's agents, a table `store`, and the memories that langmem keeps there.

A row's `prefix` is its namespace, labels joined by dots, and its `value` a JSON object: a blob in
SQLite, jsonb in PostgreSQL. An edit replaces the text within it and leaves all else as it is.
What LangGraph has no column for is in the value, under `memtui`.
"""

import json
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Self
from urllib.parse import unquote

from pydantic import TypeAdapter, model_validator

from memtui.contract import (
    BindingContext,
    CorrectRequest,
    Invalid,
    Json,
    Model,
    Namespace,
    Scope,
    WriteRequest,
    owner_of,
    owner_words,
)
from memtui.json_text import compact_json, json_members, whole, with_member
from memtui.provider_kit import blocking, read_moment
from memtui.provider_kit.kept import OWN, KeptFields
from memtui.provider_kit.rows import Row
from memtui.provider_kit.tables import TablesAdapter, TablesConfig

KEY = "langgraph"
_LANGMEM = "content.content"
_TEXTS = (_LANGMEM, "content", "text", "memory", "data")
"""Where the text is searched if the config names no field; a new record has it in `content`."""
_KIND = "memory"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class LanggraphNamespaces(Model):
    """The namespaces of projects, users and agents, and the one of the company's own memories."""

    project: str | None = None
    subject: str | None = None
    agent: str | None = None
    company: str = "memories"

    @model_validator(mode="after")
    def _name_their_own(self) -> Self:
        for part, template in self:
            if part != "company" and template and _PLACEHOLDER.findall(template) != [f"{part}_id"]:
                raise ValueError(f"the namespace of a {part} must contain {{{part}_id}} once")
        if _PLACEHOLDER.search(self.company) or not all(self.company.split(".")):
            raise ValueError("the company's namespace is labels joined by dots")
        return self


class LanggraphConfig(TablesConfig):
    """The long-term memory of LangGraph's agents, langmem's included, in SQLite or PostgreSQL.

    That is the table `store` of a `SqliteStore` or `PostgresStore`.
    """

    text_field: str | None = None
    """Where the text is in a value, such as `content` or `data.note`. Unset: the first of
    `content.content` (langmem), `content`, `text`, `memory` and `data` that is a text; if there is
    none, the whole value is shown and edited as JSON."""
    namespaces: LanggraphNamespaces = LanggraphNamespaces()
    """Whose a namespace is, such as `{"subject": "memories.{subject_id}", "project":
    "{project_id}.notes"}`, for project, subject and agent; all other namespaces are the company's,
    whose new memories go to `company`, by default `memories`."""


class LanggraphAdapter(TablesAdapter[LanggraphConfig]):
    """A record is a row; its id is the namespace and the key. An expiry is the row's `expires_at`.

    A correction removes the vectors of the old text, so LangGraph's own search by meaning finds
    the record again once a program puts it anew.
    """

    key: ClassVar[str] = KEY
    config_model = LanggraphConfig
    capabilities = TablesAdapter.capabilities.model_copy(
        update={"namespaces": True, "expiry": True, "pin": True, "summaries": True}
    )
    table = "store"
    keys = ("prefix", "key")
    needs = frozenset({"value", "created_at", "updated_at", "expires_at", "ttl_minutes"})
    beside = "store_vectors"

    def __init__(self, context: BindingContext, config: LanggraphConfig, database: Any) -> None:
        super().__init__(context, config, database)
        self._company = Scope(company_id=context.company_id)
        self._scopes: dict[str, Scope] = {}
        """By namespace: many records share one."""
        self._templates = {f"{part}_id": one for part, one in config.namespaces if one}
        self._patterns = {
            field: re.compile("([^.]+)".join(map(re.escape, template.split(f"{{{field}}}"))))
            for field, template in self._templates.items()
            if field != "company_id"
        }

    def told_of(self, lacking: int) -> str:
        """Say how many records LangGraph's search by meaning does not find."""
        return (
            f"Records without a vector: {lacking}. LangGraph's search by meaning does not find "
            "these, such as those edited here, until a program puts them anew."
        )

    def id_of(self, row: Row) -> str:
        """Return namespace and key: `memories.ana/3f2a`."""
        prefix = str(row["prefix"]).replace("%", "%25").replace("/", "%2F")
        return f"{prefix}/{row['key']}"

    def key_of(self, record_id: str) -> Row | None:
        """Return the namespace and the key."""
        prefix, slash, key = record_id.partition("/")
        return {"prefix": unquote(prefix), "key": key} if slash else None

    def scope_of(self, row: Row) -> Scope:
        """Return the owner of the row's namespace; the company where none is configured."""
        prefix = str(row["prefix"])
        if prefix not in self._scopes:
            self._scopes[prefix] = self._owner(prefix)
        return self._scopes[prefix]

    def _owner(self, prefix: str) -> Scope:
        for field, pattern in self._patterns.items():
            if found := pattern.fullmatch(prefix):
                return Scope(company_id=self.context.company_id, **{field: found[1]})
        return self._company

    def record_of(self, row: Row) -> Json:
        """Return the record in a value."""
        raw, own = _raw(row), self.scope_of(row)
        value = whole(_value(raw)) if "\\u" in raw else _value(raw)
        kept = KeptFields.found_in(value)
        text, path = self._text(raw, value)
        scope = Scope(**kept.ids | own.model_dump(exclude_none=True)) if kept.ids else own
        created_at = read_moment(row["created_at"])
        source = kept.source and kept.source.model_copy(update={"company_id": own.company_id})
        return {
            **{name: getattr(kept, name) for name in _SHOWN},
            "text": text,
            "kind": kept.kind or _KIND,
            "tags": kept.tags or (),
            # The owner in a value may narrow the owner of its namespace, never replace it.
            "scope": scope if owner_of(scope) == owner_of(own) else own,
            "source": source,
            "created_at": created_at,
            "updated_at": read_moment(row["updated_at"]) or created_at,
            "expires_at": read_moment(row["expires_at"]),
            "metadata": _rest(value, path) | kept.metadata,
        }

    def _text(self, raw: str, value: Json) -> tuple[str, str]:
        """Return the text of a value and the path to it; empty: it is the whole value."""
        chosen = self.config.text_field
        for path in (chosen,) if chosen else _TEXTS:
            found: Any = value
            for name in path.split("."):
                found = found.get(name) if isinstance(found, dict) else None
            if isinstance(found, str) and found:
                return found, path
        members = {name: raw[slice(*at)] for name, at in json_members(raw).items() if name != OWN}
        lines = ",\n  ".join(f"{json.dumps(name)}: {one}" for name, one in members.items())
        return whole(f"{{\n  {lines}\n}}"), ""

    def new_row(self, request: WriteRequest, record_id: str | None, now: datetime) -> Row:
        """Return the row of a write, as LangGraph writes it."""
        del record_id
        path = (self.config.text_field or "content").split(".")
        value: Any = request.content
        for name in reversed(path):
            value = {name: value}
        if ".".join(path) == _LANGMEM:
            value = {"kind": "Memory", **value}
        taken = {OWN, "kind", *_TOPS, path[0]}
        details = KeptFields.like(
            request,
            kind=None if request.kind == _KIND else request.kind,
            created_at=None,
            expires_at=None,
            metadata={name: one for name, one in request.metadata.items() if name in taken},
            ids={name: one for name, one in request.scope if name != "company_id" and one},
        )
        value |= {name: one for name, one in request.metadata.items() if name not in taken}
        text = with_member(compact_json(value), (OWN,), details.to_json())
        return {
            "prefix": self._namespace(request.scope),
            "key": str(uuid.uuid4()),
            "value": text if self._database.is_shared else text.encode(),
            "created_at": self._moment(request.created_at or now),
            "updated_at": self._moment(now),
            "expires_at": request.expires_at and self._moment(request.expires_at),
            "ttl_minutes": None,
        }

    def _namespace(self, scope: Scope) -> str:
        field, owner = owner_of(scope)
        prefix = str(self._templates.get(field, "")).replace(f"{{{field}}}", owner)
        if not prefix or owner_of(self.scope_of({"prefix": prefix})) != (field, owner):
            raise Invalid(
                f"No namespace of LangGraph is that of {owner_words(scope)}; change namespaces of "
                f"the binding {self.context.binding_key}. A label has no dot."
            )
        return prefix

    def corrected(self, row: Row, request: CorrectRequest, now: datetime) -> Row:
        """Return the value with a new text and details, and the times."""
        raw = _raw(row)
        value = _value(raw)
        kept = KeptFields.found_in(value)
        if request.text is not None:
            _, path = self._text(raw, value)
            edited = (raw, path.split("."), request.text)
            raw = with_member(*edited) if path else _rewritten(raw, request.text)
        after = kept.corrected(request).model_copy(update={"expires_at": None})
        if after != kept:
            raw = with_member(raw, (OWN,), after.to_json())
        changes: dict[str, Any] = {
            "value": raw.encode() if isinstance(row["value"], bytes) else raw,
            "updated_at": self._moment(now),
        }
        if request.sets_expiry:
            # Without ttl_minutes no reader of LangGraph moves the moment again.
            ends = request.expires_at
            changes |= {"expires_at": ends and self._moment(ends), "ttl_minutes": None}
        return changes

    def _moment(self, moment: datetime) -> str:
        """Return a moment as LangGraph's columns have it: UTC, in SQLite without a zone."""
        zone = UTC if self._database.is_shared else None
        return moment.astimezone(UTC).replace(tzinfo=zone).isoformat(" ")

    @blocking
    def namespaces(self) -> Sequence[Namespace]:
        """List the namespaces that have records."""
        with self._lock:
            shown = [one for one in self._fresh().values() if self._shown()(one)]
        found = Counter(unquote(one.handle.provider_record_id.partition("/")[0]) for one in shown)
        kinds = {name: owner_of(self.scope_of({"prefix": name}))[0] for name in found}
        return [
            Namespace(name=name, kind=kinds[name].removesuffix("_id"), records=count)
            for name, count in sorted(found.items())
        ]


_OBJECT = TypeAdapter(Json)
_SHOWN = frozenset({"title", "summary", "topic", "created_by", "pinned"})
_TOPS = frozenset(path.partition(".")[0] for path in _TEXTS)


def _raw(row: Row) -> str:
    value = row["value"]
    return value.decode() if isinstance(value, bytes) else str(value)


def _value(raw: str) -> Json:
    """Return a value. Raises `ValueError` for one that is no JSON object."""
    return _OBJECT.validate_python(json.loads(raw))


def _rewritten(raw: str, text: str) -> str:
    """Return an edited value with memtui's part unchanged."""
    try:
        compact_json(_value(text)).encode()
    except (ValueError, RecursionError) as error:
        raise Invalid(
            "This record is a JSON object without a text; keep it a JSON object."
        ) from error
    place = json_members(raw).get(OWN)
    return with_member(text, (OWN,), json.loads(raw[slice(*place)])) if place else text


def _rest(value: Json, path: str) -> Json:
    """Return a value without the text at `path`; empty: all of it is the text."""
    name, _, inner = path.partition(".")
    others = {key: one for key, one in value.items() if path and key not in {name, OWN}}
    beside = _rest(value[name], inner) if inner else {}
    return others | ({name: beside} if beside else {})
