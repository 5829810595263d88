"""The facts of a context as rows: in the order in which a model reads them, then what it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memtui.context.assembly import RULES, AssembledContext, AssembledFact, LeftOut, SectionKind
from memtui.contract import Filter, RecordHandle, Scope, UtcDatetime
from memtui.fuzzy import finds


@dataclass(frozen=True, slots=True)
class Place:
    """Whose facts they are, and which binding holds them."""

    word: str
    """`user`, `workspace` or `agent`."""
    name: str
    scope: Scope
    binding_key: str = ""

    @property
    def label(self) -> str:
        """Name it to a person: `user ana`."""
        return f"{self.word} {self.name}"

    @property
    def section(self) -> SectionKind:
        """The section of a context that its facts stand in."""
        sections = {"user": SectionKind.USER, "workspace": SectionKind.WORKSPACE}
        return sections.get(self.word, SectionKind.FACTS)


@dataclass(frozen=True, slots=True)
class FactRow:
    """One fact, or note, of a context."""

    key: str
    section: SectionKind
    text: str
    handle: RecordHandle | None
    tokens: int | None
    """What its line costs the prompt; None where it was left out."""
    kind: str = "fact"
    created_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    pinned: bool = False
    left_out: str = ""
    """Why the model does not get to read it."""


def places_of(scope: Scope) -> tuple[Place, ...]:
    """Return whose facts a context of this scope is made of, without their bindings."""
    company_id = scope.company_id
    found = []
    if scope.agent_id:
        own = Scope(company_id=company_id, agent_id=scope.agent_id)
        found.append(Place("agent", scope.agent_id, own))
    if scope.subject_id:
        own = Scope(company_id=company_id, subject_id=scope.subject_id)
        found.append(Place("user", scope.subject_id, own))
    if scope.project_id:
        own = Scope(company_id=company_id, project_id=scope.project_id)
        found.append(Place("workspace", scope.project_id, own))
    return tuple(found)


_WORDS = {
    SectionKind.USER: "user",
    SectionKind.WORKSPACE: "workspace",
    SectionKind.TOPIC: "workspace",
}


def place_of_section(kind: SectionKind, places: Iterable[Place]) -> Place | None:
    """Return whose facts a section is made of."""
    word = _WORDS.get(kind, "agent")
    return next((place for place in places if place.word == word), None)


_TITLES = {rule.title: kind for kind, rule in RULES.items()}


def rows_of(context: AssembledContext) -> list[FactRow]:
    """Return the facts of a context, the first that a model reads first, those left out last."""
    rows = [_read(section.kind, fact) for section in context.sections for fact in section.facts]
    return [*rows, *(_left(one) for one in context.left_out)]


def _read(kind: SectionKind, fact: AssembledFact) -> FactRow:
    return FactRow(
        key=_key(kind, fact.handle, fact.text),
        section=kind,
        text=fact.text,
        handle=fact.handle,
        tokens=fact.tokens,
        kind=fact.kind,
        created_at=fact.created_at,
        created_by=fact.created_by,
        expires_at=fact.expires_at,
        pinned=fact.pinned,
    )


def _left(one: LeftOut) -> FactRow:
    kind = _TITLES.get(one.section, SectionKind.FACTS)
    return FactRow(
        key=_key(kind, one.handle, one.text),
        section=kind,
        text=one.text,
        handle=one.handle,
        tokens=None,
        left_out=one.reason,
    )


def _key(kind: SectionKind, handle: RecordHandle | None, text: str) -> str:
    name = text if handle is None else f"{handle.provider_key}\x1f{handle.provider_record_id}"
    return f"{kind}\x1f{name}"


def narrowed(rows: Sequence[FactRow], chosen: Filter) -> list[FactRow]:
    """Return the rows that the words, person, kind and dates of a filter line let through."""
    words = (chosen.text or "").casefold().split()
    return [
        row
        for row in rows
        if all(word in row.text.casefold() for word in words)
        and all(finds(word, row.text) for word in chosen.fuzzy)
        and chosen.principal in (None, row.created_by)
        and chosen.kind in (None, row.kind)
        and (
            chosen.since is None or (row.created_at is not None and row.created_at >= chosen.since)
        )
        and (chosen.until is None or (row.created_at is not None and row.created_at < chosen.until))
    ]
