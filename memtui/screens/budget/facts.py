"""Whose facts a context is made of, the facts as rows, and how each one reads here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.context.assembly import RULES, AssembledContext, ContextFact, SectionKind
from memtui.contract import Filter, MemtuiError, Namespace, RecordHandle, Scope
from memtui.fuzzy import finds
from memtui.screens.dialogs import Choice
from memtui.screens.editing import read_column
from memtui.screens.scope_choices import ScopeStep, seen_scopes
from memtui.screens.state import AppState
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import SEPARATOR, Line, joined, labelled, moment
from memtui.widgets.display import DIM, WARN, display

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount

_FIELDS = {"agent": "agent_id", "user": "subject_id", "workspace": "project_id"}
"""The field of a scope that names the owner of a place's facts."""
_OFFERED = {"user": "subject_id", "project": "project_id", "agent": "agent_id"}
_MOST_OFFERS = 200


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


def places_of(scope: Scope) -> tuple[Place, ...]:
    """Return whose facts a context of this scope is made of, without their bindings."""
    return tuple(
        Place(word, name, Scope.model_validate({"company_id": scope.company_id, field: name}))
        for word, field in _FIELDS.items()
        if (name := getattr(scope, field))
    )


_WORDS = {
    SectionKind.USER: "user",
    SectionKind.WORKSPACE: "workspace",
    SectionKind.TOPIC: "workspace",
}


def place_of_section(kind: SectionKind, places: Iterable[Place]) -> Place | None:
    """Return whose facts a section is made of."""
    word = _WORDS.get(kind, "agent")
    return next((place for place in places if place.word == word), None)


async def find_offers(state: AppState) -> list[Choice[ScopeStep]]:
    """Return the users, projects and agents that the log and the active binding know."""
    session = state.session
    if session is None:
        return []
    spaces: tuple[Namespace, ...] = ()
    if state.binding is not None and state.binding.capabilities.namespaces:
        # Without them the log still names those that were worked with.
        with suppress(MemtuiError):
            spaces = await session.service.namespaces.all(session.caller, state.binding.key)
    return offers_of(await seen_scopes(session), spaces)[:_MOST_OFFERS]


def offers_of(seen: Sequence[Scope], spaces: Iterable[Namespace]) -> list[Choice[ScopeStep]]:
    """Return what can be offered, users first, each sort by name."""
    counts = {(one.kind, one.name.partition(":")[2]): one.records for one in spaces}
    found = []
    for word, field in _OFFERED.items():
        names = {getattr(scope, field) for scope in seen}
        names |= {value for kind, value in counts if kind == word}
        for name in sorted(filter(None, names)):
            records = counts.get((word, name))
            held = "" if records is None else f"  {fmt.counted(records, 'record')}"
            found.append(Choice(ScopeStep(field, name), f"{name}{held}", word))
    return found


@dataclass(frozen=True, slots=True)
class FactRow:
    """One fact, or note, of a context."""

    section: SectionKind
    fact: ContextFact
    tokens: int | None = None
    """What its line costs the prompt; None where it was left out."""
    left_out: str = ""
    """Why the model does not get to read it."""

    @property
    def text(self) -> str:
        """Its text."""
        return self.fact.text

    @property
    def handle(self) -> RecordHandle | None:
        """Its record; None where none stands behind it."""
        return self.fact.handle

    @property
    def record_id(self) -> str:
        """The id of its record; empty where none stands behind it."""
        return self.handle.provider_record_id if self.handle else ""

    @property
    def key(self) -> str:
        """What names it in the list."""
        provider = self.handle.provider_key if self.handle else ""
        return f"{self.section}\x1f{provider}\x1f{self.record_id or self.text}"


def rows_of(context: AssembledContext) -> tuple[FactRow, ...]:
    """Return the facts of a context, the first that a model reads first, those left out last."""
    titles = {rule.title: kind for kind, rule in RULES.items()}
    read = (
        FactRow(section.kind, fact, fact.tokens)
        for section in context.sections
        for fact in section.facts
    )
    left = (
        FactRow(
            titles.get(one.section, SectionKind.FACTS),
            ContextFact(text=one.text, handle=one.handle),
            left_out=one.reason,
        )
        for one in context.left_out
    )
    return (*read, *left)


def narrowed(rows: Iterable[FactRow], chosen: Filter) -> list[FactRow]:
    """Return the rows that the words, person, kind and dates of a filter line let through."""
    words = (chosen.text or "").casefold().split()

    def passes(fact: ContextFact) -> bool:
        made = fact.created_at
        return (
            all(word in fact.text.casefold() for word in words)
            and all(finds(word, fact.text) for word in chosen.fuzzy)
            and chosen.principal in (None, fact.created_by)
            and chosen.kind in (None, fact.kind)
            and (chosen.since is None or (made is not None and made >= chosen.since))
            and (chosen.until is None or (made is not None and made < chosen.until))
        )

    return [row for row in rows if passes(row.fact)]


def by_words(principal: str | None) -> str:
    """Return who made a fact: `ai coding`, `ana`; a dash where it is not known."""
    if not principal:
        return "–"
    sort, _, name = principal.rpartition(":")
    return f"ai {name}" if sort == "agent" else name


def fact_columns(
    now: Callable[[], datetime], reads: Mapping[str, RetrievalCount]
) -> list[Column[FactRow]]:
    """Return the columns; `now` is what relative times count from."""

    def age(row: FactRow) -> float:
        return row.fact.created_at.timestamp() if row.fact.created_at else 0.0

    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=95, order=lambda row: row.tokens or 0),
        Column("age", "age", lambda row: fmt.ago(row.fact.created_at, now()), 6, "right", keep=90,
               tone="muted", order=age),
        Column("section", "section", lambda row: row.section.value, 9, keep=40, tone="muted"),
        Column("by", "by", lambda row: by_words(row.fact.created_by), 12, keep=60, tone="muted"),
        read_column(lambda row: row.record_id, reads, now),
        Column("text", "text", lambda row: _text(row, now()), 36, flexible=True, keep=100,
               share=0.5, order=lambda row: row.text.casefold()[:200]),
    ]  # fmt: skip


def _tokens(row: FactRow) -> str | None:
    return None if row.tokens is None else fmt.count(row.tokens)


def _text(row: FactRow, now: datetime) -> Cell:
    words = " ".join(row.text[:2_000].split())
    if row.left_out:
        return Cell(f"left out: {words}", "muted")
    if row.fact.expires_at is not None:
        words = f"{words} (expires {fmt.ago(row.fact.expires_at, now)})"
    return Cell(f"⚑ {words}" if row.fact.pinned else words)


def fact_content(
    row: FactRow,
    place: Place | None,
    read: RetrievalCount | None,
    state: AppState,
    width: int,
    *,
    exact: bool = True,
) -> Content:
    """Return everything about a fact, its text first; `exact` says how its tokens were counted."""
    text = [display(row.text, keep_newlines=True)]
    return joined([text, list(_about(row, place, read, state, exact=exact))], width)


def _about(
    row: FactRow, place: Place | None, read: RetrievalCount | None, state: AppState, *, exact: bool
) -> Iterator[Line]:
    fact, now = row.fact, state.clock()
    if row.left_out:
        yield labelled("left out", display(row.left_out, limit=300, style=WARN))
    else:
        how = "in every prompt" if exact else "in every prompt, estimated"
        yield labelled("costs", f"{fmt.counted(row.tokens or 0, 'token')} {how}")
    if place is not None:
        where = SEPARATOR.join((place.label, fact.kind, place.binding_key))
        yield labelled("of", display(where, limit=200))
    when = moment(fact.created_at, now, state.zone)
    yield labelled("added", display(f"{when} by {by_words(fact.created_by)}", limit=200))
    if read is None:
        yield labelled("read", display("never", style=DIM))
    else:
        last = fmt.since(read.last_at, now)
        yield labelled("read", f"{fmt.counted(read.count, 'time')}, last {last}")
    if fact.expires_at is not None:
        yield labelled("expires", moment(fact.expires_at, now, state.zone))
    yield labelled("pinned", "⚑ yes" if fact.pinned else "")
    yield labelled("id", display(row.record_id, limit=300, style=DIM))
