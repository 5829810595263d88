"""The timeline of one record: every version, since when it held, who made it so, and why."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.content import Content

from memtui.contract import MemtuiError, Record, SourceRef
from memtui.screens.modal import ModalListScreen
from memtui.screens.open_source import open_source
from memtui.screens.state import GoTo
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import (
    Line,
    actor,
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
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.screens.state import AppState
    from memtui.service.past import TimelineAnswer, TimelineEntry
    from memtui.store.operation import Operation


NO_OPERATION = "memtui's log does not say."


class Version(NamedTuple):
    """A version of the record, and the text that it took the place of."""

    number: int
    """From 1, the oldest."""
    entry: TimelineEntry
    before: str | None

    @property
    def source(self) -> SourceRef | None:
        """Why it was made: what its operation gives, else where the provider says it is from."""
        operation = self.entry.made_by
        return operation.reason if operation else self.entry.source

    @property
    def who(self) -> str | None:
        """Who made it; None where nobody knows."""
        operation = self.entry.made_by
        if operation is not None:
            return actor(operation)
        return self.entry.created_by and fmt.author(self.entry.created_by)


class Timeline(ModalListScreen[Version]):
    """Every version of a record that is known, the newest first."""

    ACTION_GROUP = "timeline"
    NOUN = "version"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("timeline")

    def __init__(self, state: AppState, binding_key: str, record: Record) -> None:
        super().__init__(state)
        self._binding_key = binding_key
        self._record = record
        self._answer: TimelineAnswer | None = None
        self._rows: AppendedRows[Version] = AppendedRows(lambda one: str(one.number))

    def make_list(self) -> VirtualList[Version]:
        """Return the list."""
        return VirtualList(columns(self.state), self._rows, name="version-list")

    def draw_head(self, width: int) -> Content:
        """Return whose timeline it is, and what of it is not known."""
        name = display(fmt.record_name(self._record), limit=200, style=STRONG)
        where = f"{scope_words(self._record.scope)} · {self._binding_key}"
        if self._answer is not None:
            where = f"{where} · {fmt.counted(self._rows.loaded, 'version')}"
        head = [
            hanging(Content("timeline of  "), name, width, most=1),
            display(where, limit=200, style=DIM),
        ]
        if self._answer is not None and self._answer.problems:
            head.append(display(fmt.not_read(self._answer.problems), limit=300, style=WARN))
        return lines(head)

    def draw_row(self, width: int) -> Content:
        """Return the version under the cursor."""
        state, version = self.state, self.rows_list.current
        if version is None:
            return Content("")
        return version_content(version, state.clock(), state.zone, width)

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now."""
        if (version := self.rows_list.current) is None:
            is_of_row = verb in {"see", "open", "operation", "copy"}
            return self.none_selected if is_of_row else ""
        begun = version.entry.valid_from
        is_ahead = begun is not None and begun > self.state.true_clock()
        refusals = {
            "see": (
                begun is not None and not is_ahead,
                "This is still to come." if is_ahead else "Nobody knows since when it held.",
            ),
            "operation": (version.entry.made_by, NO_OPERATION),
            "open": (version.source, "This version names no source."),
        }
        there, why = refusals.get(verb, (True, ""))
        return "" if there else why

    def on_mount(self) -> None:
        """Read the versions."""
        self.action_read()

    def action_read(self) -> None:
        """Read the versions again."""
        session, record, key = self.session, self._record, self._binding_key
        self.rows_list.notice = ("Reading the versions …",)

        def show(answer: TimelineAnswer) -> None:
            self._answer = answer
            self.fill(
                self._rows,
                versions_of(answer.timeline),
                "No version of it is known.",
                "It was never changed through memtui, and its provider keeps none.",
            )

        def failed(error: MemtuiError) -> None:
            self.fill(self._rows, (), f"✗ {error}", "r reads again, esc goes back.")

        self.reads.latest(
            lambda: session.service.past.timeline(
                session.caller, record.handle, record.scope, binding_key=key
            ),
            show,
            failed,
        )

    def action_see(self) -> None:
        """Show everything as it was when the version began to hold."""
        self.post_message(GoTo(as_of=self.row.entry.valid_from))

    def action_operation(self) -> None:
        """Show the operation that made the version."""
        operation = self.row.entry.made_by
        if operation is not None:
            self.post_message(GoTo("operations", select=operation.operation_id))

    def action_open(self) -> None:
        """Open where the version came from."""
        open_source(self, self.acts, self.row.source)

    def action_copy(self) -> None:
        """Copy the text of the version."""
        self.copy(self.row.entry.text, "Copied the text of the version.")


def versions_of(entries: tuple[TimelineEntry, ...]) -> list[Version]:
    """Return the entries of a timeline, newest first, each with what was before it."""
    older = [*[entry.text for entry in entries[1:]], None]
    return [
        Version(len(entries) - place, entry, before)
        for place, (entry, before) in enumerate(zip(entries, older, strict=True))
    ]


# How a version reads.


def columns(state: AppState) -> list[Column[Version]]:
    """Return the columns of the list."""

    def at(when: datetime | None, unknown: str) -> str:
        return fmt.minute(when, state.zone) if when else unknown

    def held(one: Version) -> str:
        begun, now = one.entry.valid_from, state.clock()
        if begun is None or begun > now:
            return "–"
        return fmt.ago(begun, min(one.entry.valid_to or now, now))

    def until(one: Version) -> Cell:
        entry = one.entry
        if entry.valid_from is not None and entry.valid_from > state.clock():
            return Cell(at(entry.valid_to, "still to come"), "warning")
        return Cell(at(entry.valid_to, "")) if entry.valid_to else Cell("still holds", "success")

    return [
        Column("from", "from", lambda one: at(one.entry.valid_from, "before"), 16, keep=95),
        Column("until", "until", until, 16, keep=60),
        Column("held", "held", held, 6, "right", keep=50, tone="muted"),
        Column("by", "by", lambda one: one.who, 10, keep=85),
        Column("why", "why", lambda one: one.source and fmt.source_line(one.source), 16, keep=70),
        Column("text", "text", lambda one: " ".join(one.entry.text[:400].split()), 20,
               flexible=True, keep=90, share=0.4),
    ]  # fmt: skip


def version_content(version: Version, now: datetime, zone: tzinfo | None, width: int) -> Content:
    """Return a version whole: when it held, who made it so and why, and what it changed."""
    entry = version.entry
    began = moment(entry.valid_from, now, zone) if entry.valid_from else "nobody knows since when"
    ended = moment(entry.valid_to, now, zone) if entry.valid_to else "it still holds"
    held: list[Line] = [
        labelled("from", began),
        labelled("until", ended),
        *_made(version, now),
    ]
    if entry.valid_from is not None:
        held.append(labelled("", key_hint("@", "see everything as it was then")))
    changed = heading("what it changed" if version.before is not None else "what it said")
    return joined(
        [
            [display(f"version {version.number}", style=STRONG)],
            held,
            [changed, *diff_lines(version.before, entry.text)],
        ],
        width,
    )


def _made(version: Version, now: datetime) -> list[Line]:
    """Return who made a version, why, and what ended it."""
    entry = version.entry
    found: list[Line] = []
    if entry.made_by is not None:
        found.append(labelled("made", _by(entry.made_by, now)))
        found.append(labelled("", key_hint("O", "show the operation")))
    else:
        who = f"by {version.who}" if version.who else "nobody knows by whom"
        found.append(labelled("made", f"{who}; not in memtui's log"))
    if version.source is not None:
        source = display(fmt.source_line(version.source), limit=200)
        found.append(labelled("why", line(source, key_hint("o", "open"), gap="   ")))
    if entry.ended_by is not None:
        found.append(labelled("ended", _by(entry.ended_by, now)))
    return found


def _by(operation: Operation, now: datetime) -> Content:
    words = f"{operation.operation_type.value} #{fmt.count(operation.seq)}"
    return line(outcome_words(operation), display(f"{words}, {who_and_when(operation, now)}"))
