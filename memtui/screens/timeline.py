"""The timeline of one record: every version with its validity, author and reason.

Between the versions are other changes: of a pin, tags, an expiry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Record, RecordHandle, Scope, SourceRef
from memtui.presenters import format as fmt
from memtui.record_changes import changed_fields
from memtui.screens.modal import ModalListScreen, Reasons
from memtui.screens.open_source import open_source
from memtui.screens.state import AppState, GoTo
from memtui.store.operation import Operation
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import (
    Line,
    actor,
    change_lines,
    diff_lines,
    heading,
    joined,
    key_hint,
    labelled,
    moment,
    outcome_words,
    scope_words,
    who_and_when,
)
from memtui.widgets.display import DIM, STRONG, WARN, display, hanging, line, lines
from memtui.widgets.panes import Drawn

if TYPE_CHECKING:
    from memtui.service.answers import Change
    from memtui.service.history.past import TimelineAnswer, TimelineEntry


NO_OPERATION = "memtui's log does not say."


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A version of the record, or a change through memtui that made no version."""

    key: str
    """Its key in the list."""
    began: datetime | None
    """Start of the version's validity, or time of the change; None: unknown."""
    made_by: Operation | None
    """The operation that made it; None: none is known."""
    text: str
    """The version's text, or the change in one line."""
    source: SourceRef | None
    """The reason of its operation, else the source from the provider."""
    who: str | None
    """Its author; None: unknown."""
    fields: tuple[tuple[str, str], ...]
    """Names and changes of other fields than the text."""
    number: int = 0
    """The version's number; 1 is the oldest."""
    before: str | None = None
    """The text of the version before."""
    entry: TimelineEntry | None = None
    """The version; None: it is another change."""
    change: Change | None = None
    """The other change; None: it is a version."""


def _version(
    number: int, entry: TimelineEntry, before: str | None, change: Change | None
) -> TimelineRow:
    made_by = entry.made_by
    return TimelineRow(
        key=str(number),
        began=entry.valid_from,
        made_by=made_by,
        text=entry.text,
        source=made_by.reason if made_by else entry.source,
        who=actor(made_by) if made_by else entry.created_by and fmt.author(entry.created_by),
        fields=_fields(change) if change else (),
        number=number,
        before=before,
        entry=entry,
    )


def _other(change: Change) -> TimelineRow:
    operation, fields = change.operation, _fields(change)
    parts = [f"{name}: {words}" for name, words in fields]
    if change.after is None:
        parts.append("removed")
    elif change.before is None or change.before.text != change.after.text:
        parts.append(change.after.text)
    return TimelineRow(
        key=operation.operation_id,
        began=operation.started_at,
        made_by=operation,
        text=", ".join(parts) or "nothing that is shown",
        source=operation.reason,
        who=actor(operation),
        fields=fields,
        change=change,
    )


class TimelineScreen(ModalListScreen[TimelineRow]):
    """Lists all known versions of a record, and its other changes, the newest first."""

    ACTION_GROUP = "timeline"
    NOUN = "version"
    READING = "Reading the versions …"
    NOTHING = (
        "No version of this record is known.",
        "It was never changed through memtui, and its provider keeps none.",
    )

    def __init__(
        self, state: AppState, binding_key: str, handle: RecordHandle, scope: Scope, name: str
    ) -> None:
        """Prepare the list; `name` is a text that a person knows the record by."""
        super().__init__(state)
        self._binding_key, self._handle, self._scope = binding_key, handle, scope
        self._name = name
        self._answer: TimelineAnswer | None = None

    def columns(self) -> list[Column[TimelineRow]]:
        """Return the columns of the list."""
        return columns(self.state)

    def key(self, row: TimelineRow) -> str:
        """Return the number of a version, or the id of another change."""
        return row.key

    def draw_head(self) -> Drawn:
        """Return the record, the numbers of versions and changes, and problems."""
        name = display(self._name, limit=200, style=STRONG)
        where = f"{scope_words(self._scope)} · {self._binding_key}"
        if self._answer is not None:
            versions = len(self._answer.timeline)
            where = f"{where} · {fmt.counted(versions, 'version')}"
            if others := self.rows.loaded - versions:
                where = f"{where} · {fmt.counted(others, 'other change')}"
        below = [display(where, limit=200, style=DIM)]
        if self._answer is not None and self._answer.problems:
            below.append(display(fmt.not_read(self._answer.problems), limit=300, style=WARN))
        title = Content("timeline of  ")
        return lambda width: lines([hanging(title, name, width, most=1), *below])

    def detail(self, row: TimelineRow, width: int) -> Content:
        """Return the details of a row."""
        return row_content(row, self.state.clock(), self.state.zone, width)

    def reasons(self) -> Reasons:
        """Return why actions cannot run now."""
        if (row := self.current) is None:
            return ()
        is_ahead = row.began is not None and row.began > self.state.true_clock()
        return (
            ("see", row.began is None, "Nobody knows since when it held."),
            ("see", is_ahead, "This is still to come."),
            ("operation", not row.made_by, NO_OPERATION),
            ("open", not row.source, "This version names no source."),
        )

    async def read(self) -> list[TimelineRow]:
        """Read the versions."""
        session = self.session
        self._answer = await session.service.past.timeline(
            session.caller, self._handle, self._scope, binding_key=self._binding_key
        )
        return rows_of(self._answer)

    def action_see(self) -> None:
        """Go to the past moment at which the version began."""
        self.post_message(GoTo(as_of=self.row.began))

    def action_operation(self) -> None:
        """Show the operation that made the version."""
        operation = self.row.made_by
        if operation is not None:
            self.post_message(GoTo("operations", select=operation.operation_id))

    def action_open(self) -> None:
        """Open the source of the version."""
        open_source(self, self.row.source)

    def action_copy(self) -> None:
        """Copy the text of the version."""
        self.copy(self.row.text, "Copied the text of the version.")


def timeline_of(state: AppState, binding_key: str, record: Record) -> TimelineScreen:
    """Return the timeline of a record that is there."""
    return TimelineScreen(state, binding_key, record.handle, record.scope, fmt.record_name(record))


def rows_of(answer: TimelineAnswer) -> list[TimelineRow]:
    """Return versions and other changes of a timeline by time, the newest first."""
    changes = {one.operation.operation_id: one for one in answer.changes}
    entries = answer.timeline
    ends = (one for entry in entries for one in (entry.made_by, entry.ended_by) if one)
    named = {one.operation_id for one in ends}
    others = [
        one
        for name, one in changes.items()
        if name not in named and (one.before or one.after)  # else the caller may not know of it
    ]
    rows: list[TimelineRow] = []
    older = [*[entry.text for entry in entries[1:]], None]
    for place, (entry, before) in enumerate(zip(entries, older, strict=True)):
        while others and entry.valid_from and others[0].operation.started_at >= entry.valid_from:
            rows.append(_other(others.pop(0)))
        made = changes.get(entry.made_by.operation_id) if entry.made_by else None
        rows.append(_version(len(entries) - place, entry, before, made))
    end = len(rows) - bool(entries and entries[-1].valid_from is None)
    return [*rows[:end], *map(_other, others), *rows[end:]]


def _fields(change: Change) -> tuple[tuple[str, str], ...]:
    before, after = change.before, change.after
    return tuple(changed_fields(before, after)) if before and after else ()


# Rows in words.


def columns(state: AppState) -> list[Column[TimelineRow]]:
    """Return the columns of the list."""

    def at(when: datetime | None, unknown: str) -> str:
        return fmt.minute(when, state.zone) if when else unknown

    def lasted(one: TimelineRow) -> str:
        if one.entry is None:
            return ""
        begun, now = one.began, state.clock()
        if begun is None or begun > now:
            return "–"
        return fmt.ago(begun, min(one.entry.valid_to or now, now))

    def until(one: TimelineRow) -> Cell:
        if (entry := one.entry) is None:
            return Cell("")
        if entry.valid_from is not None and entry.valid_from > state.clock():
            return Cell(at(entry.valid_to, "still to come"), "warning")
        return Cell(at(entry.valid_to, "")) if entry.valid_to else Cell("still holds", "success")

    def text(one: TimelineRow) -> Cell:
        tone: Tone = "" if one.entry else "muted"
        return Cell(" ".join(one.text[:400].split()), tone)

    return [
        Column("from", "from", lambda one: at(one.began, "before"), 16, keep=95),
        Column("until", "until", until, 16, keep=60),
        Column("held", "held", lasted, 6, "right", keep=50, tone="muted"),
        Column("by", "by", lambda one: one.who, 10, keep=85),
        Column("why", "why", lambda one: one.source and fmt.source_line(one.source), 16, keep=70),
        Column("text", "text", text, 20, flexible=True, keep=90, share=0.4),
    ]  # fmt: skip


def row_content(row: TimelineRow, now: datetime, zone: tzinfo | None, width: int) -> Content:
    """Return the details of a version or change: time, author, reason and difference."""
    see = [labelled("", key_hint("@", "see everything as it was then"))] if row.began else []
    fields = [labelled(*one) for one in row.fields]
    if row.change is not None:
        title = fmt.done(row.change.operation)
        window: list[Line] = [labelled("at", moment(row.began, now, zone)), *_made(row, now), *see]
        changed = [heading("what it changed"), *_texts(row.change), *fields]
        if len(changed) == 1:
            changed.append(display(row.text, style=DIM))
    else:
        title = f"version {row.number}"
        window = [*_window(row.entry, now, zone), *_made(row, now), *see]
        what = "what it changed" if row.before is not None else "what it said"
        changed = [heading(what), *diff_lines(row.before, row.text), *fields]
    return joined([[display(title, style=STRONG)], window, changed], width)


def _texts(change: Change) -> Iterator[Line]:
    """Yield the diff of the text; nothing if it did not change."""
    before, after = change.before, change.after
    if before is None or after is None or before.text != after.text:
        yield from change_lines(change)


def _window(entry: TimelineEntry | None, now: datetime, zone: tzinfo | None) -> list[Line]:
    """Return the validity of a version."""
    if entry is None:
        return []
    began = moment(entry.valid_from, now, zone) if entry.valid_from else "nobody knows since when"
    ended = moment(entry.valid_to, now, zone) if entry.valid_to else "it still holds"
    return [labelled("from", began), labelled("until", ended)]


def _made(row: TimelineRow, now: datetime) -> list[Line]:
    """Return author and reason of a row, and the operation that ended a version."""
    found: list[Line] = []
    if row.made_by is not None:
        found.append(labelled("made", _by(row.made_by, now)))
        found.append(labelled("", key_hint("O", "show the operation")))
    else:
        who = f"by {row.who}" if row.who else "nobody knows by whom"
        found.append(labelled("made", f"{who}; not in memtui's log"))
    if row.source is not None:
        source = display(fmt.source_line(row.source), limit=200)
        found.append(labelled("why", line(source, key_hint("o", "open"), gap="   ")))
    if row.entry is not None and row.entry.ended_by is not None:
        found.append(labelled("ended", _by(row.entry.ended_by, now)))
    return found


def _by(operation: Operation, now: datetime) -> Content:
    words = f"{operation.operation_type.value} #{fmt.count(operation.seq)}"
    return line(outcome_words(operation), display(f"{words}, {who_and_when(operation, now)}"))
