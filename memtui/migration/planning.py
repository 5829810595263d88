"""What a migration would do: where records go, and what the destination refuses or loses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import ValidationError, computed_field

from memtui.contract import BrowseRequest, Invalid, Model, Record, Scope, owner_of
from memtui.migration.ends import Ends
from memtui.migration.parcel import living, unpack_clean
from memtui.service import BindingView
from memtui.service.mutations import FACT, FactLimits, check_text

_FACT_PROVIDERS = ("facts", "facts-http")


def place_for(binding: BindingView, scope: Scope) -> str | None:
    """Return the folder, namespace or owner that a scope's records go to; None: nobody knows.

    Raises:
        Invalid: the destination has no place for the scope.
    """
    if binding.provider_key == "vault":
        from memtui.backends.vault.layout import folder_for

        return folder_for(scope)
    if binding.provider_key == "plugin-v1":
        return _namespace(binding, scope)
    if binding.provider_key in _FACT_PROVIDERS:
        return _owner(binding, scope)
    return None


def refusal(ends: Ends, record: Record, limits: FactLimits) -> str | None:
    """Return why the destination will not take a record, None where nothing is known against it."""
    if not record.text.strip():
        return "It has no text, and no provider takes such a record."
    try:
        place_for(ends.destination, record.scope)
        if record.kind == FACT:
            check_text(record.text, limits)
        if ends.destination.provider_key == "facts":
            most = ends.destination.config.get("max_chars", limits.max_chars)
            check_text(record.text, FactLimits(max_chars=most))
        record.text.encode()
    except Invalid as error:
        return str(error)
    except UnicodeEncodeError:
        return "Its text holds a character that UTF-8 cannot carry."
    return None


def label_of(scope: Scope) -> str:
    """Return whose records a scope holds, in words."""
    field, value = owner_of(scope)
    return "company" if field == "company_id" else f"{field.removesuffix('_id')} {value}"


def _namespace(binding: BindingView, scope: Scope) -> str | None:
    from memtui.backends.plugin_v1.config import NamespaceMap, Templates

    try:
        templates = Templates.model_validate(binding.config.get("templates", {}))
    except ValidationError:
        return None
    return NamespaceMap(templates, scope.company_id).target(scope)


def _owner(binding: BindingView, scope: Scope) -> str:
    if scope.project_id is not None:
        return f"drive {scope.project_id}"
    if scope.subject_id is not None:
        return f"user {scope.subject_id}"
    raise Invalid(f"{binding.key} keeps facts of projects and subjects only; this is neither's.")


_LISTED = 1_000
_COUNTED = 10_000


class ScopeCount(Model):
    """The records of one owner and kind, and where they go."""

    scope: str
    """`company`, `project p`, `subject s`, `agent a`."""
    kind: str
    records: int
    place: str | None = None
    """The destination's folder, namespace or owner; None where it cannot be said before."""


class Loss(Model):
    """What the destination does not keep as the source has it."""

    what: str
    records: int
    carried: bool
    """True: it travels in the metadata, and a migration back restores it."""


class Refusal(Model):
    """A record that the destination will not take."""

    record_id: str
    reason: str


class Plan(Model):
    """What a migration would do."""

    source: str
    destination: str
    records: int
    source_at_least: bool = False
    """The source may hold more than it lists."""
    source_unread: tuple[str, ...] = ()
    """In sentences, what that is and which setting reads further."""
    destination_records: int | None = None
    """How many the destination holds already, where it knows."""
    destination_at_least: bool = False
    scopes: tuple[ScopeCount, ...] = ()
    """At most ten thousand."""
    losses: tuple[Loss, ...] = ()
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()
    """The first thousand."""
    redacted: int = 0
    """Records that hold a secret, which will be taken out."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether this is all that the source holds."""
        return not self.source_at_least


class _Survey:
    """What the records of the source come to, page by page."""

    def __init__(self, ends: Ends, limits: FactLimits) -> None:
        self._ends = ends
        self._limits = limits
        self.has: Counter[str] = Counter()
        """How many records have something that a destination may not keep."""
        self.scopes: Counter[tuple[str, str, str]] = Counter()
        self.refusals: list[Refusal] = []
        self._facts: Counter[str] = Counter()

    def add(self, records: Sequence[Record]) -> None:
        for parcel in living(records, unpack_clean):
            record, label = parcel.record, label_of(parcel.record.scope)
            self._count_fields(record)
            self.has["secret"] += bool(parcel.redacted)
            key = (label, record.kind, self._place(record) or "")
            if key in self.scopes or len(self.scopes) < _COUNTED:
                self.scopes[key] += 1
            reason = refusal(self._ends, record, self._limits) or self._too_many(record, label)
            if reason is not None:
                self.has["refused"] += 1
                if len(self.refusals) < _LISTED:
                    self.refusals.append(Refusal(record_id=parcel.record_id, reason=reason))

    def _place(self, record: Record) -> str | None:
        try:
            return place_for(self._ends.destination, record.scope)
        except Invalid:
            return None

    def _too_many(self, record: Record, label: str) -> str | None:
        most = self._limits.max_count
        if record.kind != FACT or not most or not label.startswith(("project ", "subject ")):
            return None
        self._facts[label] += 1
        if self._facts[label] <= most:
            return None
        return f"The {label} may hold {most} facts; prune some, or raise fact_max_count."

    def _count_fields(self, record: Record) -> None:
        for name in ("expires_at", "valid_from", "valid_to", "summary", "title"):
            self.has[name] += getattr(record, name) is not None
        self.has["pinned"] += record.pinned
        self.has["kind"] += record.kind != FACT
        self.has["record"] += 1

    def losses(self) -> tuple[Loss, ...]:
        keeps, has = self._ends.destination.capabilities, self.has
        only_facts = self._ends.destination.provider_key in _FACT_PROVIDERS
        found = (
            ("expiry", "expires_at", not keeps.expiry, True),
            ("pin", "pinned", not keeps.pin, True),
            ("begin of validity", "valid_from", not keeps.validity, True),
            ("end of validity", "valid_to", True, False),
            ("kind", "kind", only_facts, True),
            ("title", "title", only_facts, True),
            ("id", "record", not keeps.keeps_ids, True),
            ("summary", "summary", True, False),
            ("time of the last change", "record", True, False),
            ("history", "record", self._ends.source.capabilities.history, False),
        )
        return tuple(
            Loss(what=what, records=has[field], carried=carried)
            for what, field, is_lost, carried in found
            if is_lost and has[field]
        )


async def plan(
    ends: Ends, limits: FactLimits, report: Callable[[int], None] = lambda _read: None
) -> Plan:
    """Read the source and say what would happen; nothing but pages is asked of either side.

    `limits` are those that the service holds facts to.
    """
    survey = _Survey(ends, limits)
    async for page in ends.pages(ends.source, report):
        await asyncio.to_thread(survey.add, page.records)
        report(survey.has["record"])
    asked = BrowseRequest(
        scope=ends.scope, binding_key=ends.destination.key, filter=ends.part.filter, limit=1
    )
    there = await ends.service.browse(ends.caller, asked)
    return Plan(
        source=ends.source.key,
        destination=ends.destination.key,
        records=survey.has["record"],
        source_at_least=page.at_least,
        source_unread=page.unread,
        destination_records=there.total,
        destination_at_least=there.at_least,
        scopes=tuple(
            ScopeCount(scope=scope, kind=kind, place=place or None, records=count)
            for (scope, kind, place), count in sorted(survey.scopes.items())
        ),
        losses=survey.losses(),
        refused=survey.has["refused"],
        refusals=tuple(survey.refusals),
        redacted=survey.has["secret"],
    )
