"""A record as a row of the list, and its details with source, readers and changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Links, OperationStatus, OperationType, Record, folded
from memtui.presenters import format as fmt
from memtui.store.operation import Operation
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import (
    SEPARATOR,
    Line,
    below_heading,
    joined,
    key_hint,
    labelled,
    marked,
    moment,
    outcome_words,
    risk_lines,
    scope_words,
    who_and_when,
)
from memtui.widgets.display import DIM, STRONG, WARN, display, leading, line
from memtui.widgets.record_names import RecordName, read_column, risk_column

if TYPE_CHECKING:
    from memtui.service.answers import Provenance, RetrievalCount
    from memtui.service.operations.facts import FactAnswer, FactValue
    from memtui.service.review.known_risks import RiskMark

_SHOWN_RETRIEVALS = 5
_SHOWN_LINKS = 8
_WRITTEN = re.compile(r"\[\[(?P<link>[^\[\]|\n]+)(?:\|[^\[\]\n]*)?\]\]|(?<!\S)#(?P<tag>[^\s#]+)")
PROVIDER_SORTS = {"age": "updated_at", "size": "size", "text": "title"}
"""The provider's sort field of each column that it can sort by."""
TOKENS = "tokens"
"""Key of the column of tokens; they are not counted while it is hidden."""


def record_columns(
    now: Callable[[], datetime],
    stats: Mapping[RecordName, RetrievalCount],
    marks: Mapping[RecordName, RiskMark],
    ghosts: Collection[RecordName],
    *,
    name_of: Callable[[Record], RecordName],
    tokens_of: Callable[[Record], int],
) -> list[Column[Record]]:
    """Return the columns; relative times count from `now`."""
    return [
        risk_column(name_of, marks),
        Column("age", "age", lambda one: fmt.ago(one.updated_at or one.created_at, now()), 6,
               "right", keep=90, tone="muted"),
        Column("size", "size", lambda one: fmt.count(len(one.text)), 6, "right", keep=20,
               tone="muted"),
        Column(TOKENS, "tokens", lambda one: fmt.count(tokens_of(one)), 7, "right", keep=10,
               tone="muted", order=tokens_of),
        Column("kind", "kind", lambda one: one.kind, 9, keep=40, tone="muted"),
        Column("binding", "binding", lambda one: name_of(one).binding_key, 12, keep=95,
               tone="muted"),
        Column("where", "where", lambda one: _place(one) or Cell("company", "muted"), 14, keep=86),
        Column("who", "who", lambda one: one.created_by and fmt.author(one.created_by), 9, keep=84,
               tone="muted", whole=True),
        read_column(name_of, stats, now),
        Column("text", "text", lambda one: _text(one, now(), is_ghost=name_of(one) in ghosts), 26,
               flexible=True, keep=100, share=0.36),
    ]  # fmt: skip


def _place(record: Record) -> str | None:
    scope = record.scope
    return scope.project_id or scope.agent_id or scope.subject_id


def _text(record: Record, now: datetime, *, is_ghost: bool) -> Cell:
    words = " ".join(below_heading(record.shown[:2_000], record.title).split())
    if record.title and not words.startswith(record.title):
        words = ": ".join(filter(None, (record.title, words)))
    if is_ghost:
        return Cell(f"ghost: {words}", "warning")
    if record.expires_at is not None and record.expires_at <= now:
        return Cell(f"expired: {words}", "muted")
    if record.valid_to is not None and record.valid_to <= now:
        return Cell(f"was: {words}", "muted")
    return Cell(f"⚑ {words}" if record.pinned else words)


@dataclass(frozen=True, slots=True)
class RecordView:
    """The content of the details; the provenance arrives later, or never."""

    record: Record
    now: datetime
    zone: tzinfo | None = None
    ghost: bool = False
    mark: RiskMark | None = None
    """What is known of its risks; None: nothing yet."""
    provenance: Provenance | None = None
    problem: str = ""
    """Why the provenance could not be read."""
    words: frozenset[str] = frozenset()
    """Words of a query to mark in the text."""
    score: float | None = None
    """Its score for that query; None: there is none."""
    links: Links | None = None
    """Its links and backlinks; None: not known."""
    key: FactAnswer | None = None
    """The value in force for the fact's key; None: not read."""
    prune_key: str = "P"
    """The key of the plan that removes a risk; empty: none leads there."""


def record_content(view: RecordView, width: int) -> Content:
    """Return the details of a record."""
    record = view.record
    return joined(
        [
            list(_head(view)),
            list(risk_lines(view.mark, view.prune_key)),
            [_summary_of(view)] if record.summary else [],
            [_text_of(view)],
            list(_key(view)),
            list(_links(view)),
            list(_origin(view)),
            list(_reads(view)),
            list(_marks(view)),
            list(_identity(record)),
        ],
        width,
    )


def _text_of(view: RecordView) -> Content:
    """Return the text with the words of a query marked, and with clickable links and tags."""
    text = marked(display(view.record.text, keep_newlines=True), view.words)
    links = view.links.links if view.links else ()
    ends = {one.target: one.handle for one in links if one.handle}
    tags = set(map(folded, view.record.tags))
    for found in _WRITTEN.finditer(text.plain):
        if folded(found["tag"] or "") in tags:
            text = leading(text, "tag", found["tag"], *found.span())
        elif handle := ends.get((found["link"] or "").strip()):
            text = leading(text, "record", handle.provider_record_id, *found.span())
    return text


def _summary_of(view: RecordView) -> Line:
    """Return the summary, which searches use; the original text is below."""
    summary = display(view.record.summary, limit=2_000, keep_newlines=True)
    return labelled("summary", marked(summary, view.words))


def _key(view: RecordView) -> Iterator[Line]:
    found = view.key
    if found is None:
        return
    under = f" under {found.namespace}" if found.namespace else ""
    yield labelled("key", display(f"{found.key}{under}", limit=300))
    yield labelled("counts", _value(found, view))
    yield labelled("why", display(found.why, limit=600, style=DIM))
    for number, one in enumerate(found.hidden):
        yield labelled("" if number else "hides", _value(one, view))
    for problem in found.problems:
        yield labelled("not read", display(problem.sentence(), limit=400, style=WARN))


def _value(found: FactValue, view: RecordView) -> Content:
    """Return a value of a key with owner and binding; a link to its fact, unless that is shown."""
    value = display(found.written, limit=300)
    handle = found.record.handle
    if handle != view.record.handle:
        value = leading(value, "record", handle.provider_record_id)
    return line(value, display(f"{found.belongs_to} · {found.binding_key}", style=DIM), gap="   ")


def _links(view: RecordView) -> Iterator[Line]:
    if view.links is None:
        return
    for label, found in (("links to", view.links.links), ("linked by", view.links.backlinks)):
        for number, one in enumerate(found[:_SHOWN_LINKS]):
            name = display(fmt.link_words(one), limit=160)
            if one.handle is None:
                where = Content.styled(fmt.NOWHERE, WARN)
            else:
                name = leading(name, "record", one.handle.provider_record_id)
                where = display(scope_words(one.scope) if one.scope else "", style=DIM)
            yield labelled("" if number else label, line(name, where, gap="   "), most=1)
        if (more := len(found) - _SHOWN_LINKS) > 0:
            least = "at least " if label == "linked by" and view.links.backlinks_capped else ""
            yield labelled("", display(f"{least}{fmt.count(more)} more", style=DIM))
    if any(one.handle for one in (*view.links.links, *view.links.backlinks)):
        yield labelled("", key_hint("L", "go to one of them"))


def _head(view: RecordView) -> Iterator[Content]:
    record = view.record
    if record.title and record.title not in record.text[:2_000]:
        yield display(record.title, limit=200, style=STRONG)
    score = "" if view.score is None else f"score {fmt.score(view.score)}"
    words = SEPARATOR.join(filter(None, [score, record.kind, scope_words(record.scope)]))
    yield display(words, limit=200, style=DIM)
    if view.ghost:
        yield Content.styled("ghost: it was forgotten, and the provider still returns it", WARN)
    for words in filter(None, (record.problem, record.caution)):
        yield display(words, limit=400, style=WARN)


def _origin(view: RecordView) -> Iterator[Line]:
    record, story = view.record, view.provenance
    written = story.written if story else None
    if written is not None:
        yield labelled("written", who_and_when(written, view.now))
    else:
        who = f" by {fmt.author(record.created_by)}" if record.created_by else ""
        outside = "" if story is None or story.mutations else ", outside of memtui"
        if record.created_at is not None or who:
            yield labelled("written", f"{fmt.since(record.created_at, view.now)}{who}{outside}")
    if record.source is not None:
        source = display(fmt.source_line(record.source))
        yield labelled("from", line(source, key_hint("o", "open"), gap="   "))
    corrections = [one for one in (story.mutations if story else ()) if one != written]
    for change in corrections[:3]:
        yield labelled(_done_later(change), _mutation(change, view.now))
    if len(corrections) > 3:
        yield labelled("", display(f"{len(corrections) - 3} more, h shows them", style=DIM))
    changed, begun = (fmt.since(at, view.now) for at in (record.updated_at, record.created_at))
    if not corrections and record.updated_at is not None and changed != begun:
        yield labelled("changed", changed)
    if record.location is not None:
        place = display(fmt.place_line(record.location))
        hint = None if record.source else key_hint("o", "open")
        yield labelled("file", line(place, hint, gap="   "))


def _done_later(operation: Operation) -> str:
    """Return what was done to an existing record; a successful write replaced it."""
    is_write = operation.operation_type is OperationType.WRITE
    went_well = operation.status is OperationStatus.OK
    return "rewritten" if is_write and went_well else fmt.done(operation)


def _mutation(operation: Operation, now: datetime) -> Content:
    words = display(who_and_when(operation, now))
    went_well = operation.status is OperationStatus.OK
    return words if went_well else line(outcome_words(operation), words)


def _reads(view: RecordView) -> Iterator[Line]:
    story = view.provenance
    if view.problem:
        yield labelled("read", display(view.problem, limit=400, style=WARN))
    if story is None:
        return
    if not story.retrieval_count:
        yield labelled("read", display("never returned by a query", style=DIM))
        return
    last = story.retrievals[0]
    times = fmt.counted(story.retrieval_count, "query", "queries")
    yield labelled("read", f"by {times}, last {fmt.since(last.at, view.now)} at rank {last.rank}")
    yield labelled("said", fmt.helpfulness(story.helped, story.not_helped))
    for one in story.retrievals[:_SHOWN_RETRIEVALS]:
        ago = fmt.ago(one.at, view.now).rjust(6)
        words = f"{ago}  rank {one.rank:<3} {fmt.who(one.principal)}  “{one.query}”"
        yield labelled("", display(words, limit=160, style=DIM), most=1)
    if story.retrieval_count > 1:
        yield labelled("", key_hint("w", "go to one of them"))


def _marks(view: RecordView) -> Iterator[Line]:
    record = view.record
    yield labelled("topic", record.topic)
    tags = [leading(display(tag, limit=200), "tag", tag) for tag in record.tags]
    yield labelled("tags", Content(SEPARATOR).join(tags))
    yield labelled("pinned", "⚑ yes" if record.pinned else "")
    for label, value in (
        ("expires", record.expires_at),
        ("valid from", record.valid_from),
        ("valid until", record.valid_to),
    ):
        if value is not None:
            over = value <= view.now and label != "valid from"
            words = moment(value, view.now, view.zone)
            yield labelled(label, display(words, style=WARN if over else ""))


def _identity(record: Record) -> Iterator[Line]:
    revision = fmt.digest(record.revision) if record.revision else ""
    yield labelled("id", display(record.handle.provider_record_id, limit=300, style=DIM))
    yield labelled("provider", display(record.handle.provider_key, limit=300, style=DIM))
    yield labelled("revision", display(revision, style=DIM))
