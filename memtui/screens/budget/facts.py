"""The facts of a context as rows, as a model reads them, and how each one reads here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from textual.content import Content

from memtui.context.assembly import RULES, AssembledContext, AssembledFact, LeftOut, SectionKind
from memtui.contract import Filter, RecordHandle, Scope, UtcDatetime
from memtui.fuzzy import finds
from memtui.screens.editing import read_cell
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import SEPARATOR, Line, joined, labelled, moment
from memtui.widgets.display import DIM, WARN, display

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount


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

    @property
    def record_id(self) -> str:
        """The id of its record; empty where none stands behind it."""
        return self.handle.provider_record_id if self.handle else ""


def places_of(scope: Scope) -> tuple[Place, ...]:
    """Return whose facts a context of this scope is made of, without their bindings."""
    fields = {"agent": "agent_id", "user": "subject_id", "workspace": "project_id"}
    return tuple(
        Place(word, name, Scope.model_validate({"company_id": scope.company_id, field: name}))
        for word, field in fields.items()
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
    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=95),
        Column("age", "age", lambda row: fmt.ago(row.created_at, now()), 6, "right", keep=90,
               tone="muted"),
        Column("section", "section", lambda row: row.section.value, 9, keep=40, tone="muted"),
        Column("by", "by", lambda row: by_words(row.created_by), 12, keep=60, tone="muted"),
        Column("read", "read", lambda row: read_cell(reads.get(row.record_id), now()), 10, keep=80),
        Column("text", "text", lambda row: _text(row, now()), 36, flexible=True, keep=100,
               share=0.5),
    ]  # fmt: skip


def sort_key(column: str, reads: Mapping[str, RetrievalCount]) -> Callable[[FactRow], Any]:
    """Return what the rows are ordered by under a column."""
    keys: dict[str, Callable[[FactRow], Any]] = {
        "tokens": lambda row: row.tokens or 0,
        "age": lambda row: row.created_at.timestamp() if row.created_at else 0.0,
        "section": lambda row: row.section.value,
        "by": lambda row: by_words(row.created_by),
        "read": lambda row: found.count if (found := reads.get(row.record_id)) else 0,
        "text": lambda row: row.text.casefold()[:200],
    }
    return keys[column]


def _tokens(row: FactRow) -> str | None:
    return None if row.tokens is None else fmt.count(row.tokens)


def _text(row: FactRow, now: datetime) -> Cell:
    words = " ".join(row.text[:2_000].split())
    if row.left_out:
        return Cell(f"left out: {words}", "muted")
    if row.expires_at is not None:
        words = f"{words} (expires {fmt.ago(row.expires_at, now)})"
    return Cell(f"⚑ {words}" if row.pinned else words)


@dataclass(frozen=True, slots=True)
class FactView:
    """A fact with what is known about it."""

    row: FactRow
    now: datetime
    zone: tzinfo | None = None
    place: Place | None = None
    read: RetrievalCount | None = None
    exact: bool = True


def fact_content(view: FactView, width: int) -> Content:
    """Return everything about a fact, its text first."""
    text = [display(view.row.text, keep_newlines=True)]
    return joined([text, list(_about(view))], width)


def _about(view: FactView) -> Iterator[Line]:
    row = view.row
    if row.left_out:
        yield labelled("left out", display(row.left_out, limit=300, style=WARN))
    else:
        how = "in every prompt" if view.exact else "in every prompt, estimated"
        yield labelled("costs", f"{fmt.counted(row.tokens or 0, 'token')} {how}")
    if view.place is not None:
        where = f"{view.place.label}{SEPARATOR}{row.kind}{SEPARATOR}{view.place.binding_key}"
        yield labelled("of", display(where, limit=200))
    when = moment(row.created_at, view.now, view.zone)
    yield labelled("added", display(f"{when} by {by_words(row.created_by)}", limit=200))
    if view.read is None:
        yield labelled("read", display("never", style=DIM))
    else:
        last = fmt.since(view.read.last_at, view.now)
        yield labelled("read", f"{fmt.counted(view.read.count, 'time')}, last {last}")
    if row.expires_at is not None:
        yield labelled("expires", moment(row.expires_at, view.now, view.zone))
    yield labelled("pinned", "⚑ yes" if row.pinned else "")
    yield labelled("id", display(row.record_id, limit=300, style=DIM))
