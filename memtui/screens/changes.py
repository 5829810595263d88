"""The difference between a scope's records at two moments: changes, authors and reasons."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import MemtuiError, NotFound, Record
from memtui.filters import FilterTarget, parse_when, supported_by
from memtui.presenters import format as fmt
from memtui.record_changes import changed_fields
from memtui.screens.exports import export
from memtui.screens.modal import ModalListScreen, Reasons
from memtui.screens.open_source import open_source
from memtui.screens.past import ChooseMoment
from memtui.screens.state import AppState, GoTo
from memtui.screens.timeline import NO_OPERATION, timeline_of
from memtui.widgets.columns import Cell, Column, Tone
from memtui.widgets.detail_lines import (
    Line,
    actor,
    change_lines,
    heading,
    joined,
    key_hint,
    labelled,
    outcome_words,
    record_words,
    risk_lines,
    scope_words,
    spread,
    who_and_when,
)
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.record_names import RecordName, risky_cell

if TYPE_CHECKING:
    from memtui.screens.analytics.files import Table
    from memtui.service.history.past import CompareAnswer, Difference

SINCE = "last monday"
"""The default earlier moment."""
_KINDS: dict[str, tuple[str, str, Tone]] = {
    "changed": ("~", WARN, "warning"),
    "removed": ("-", BAD, "error"),
    "added": ("+", OK, "success"),
}
"""Sign, style and tone of each kind of change, in the order of the list."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_EXPORTED = ("csv", "json", "parquet")
_HINT = "topic:deploy tag:release words ~fuzzy; empty: all   enter filter   esc go back"


class ChangesScreen(ModalListScreen["Difference"]):
    """Lists the differences of a scope between two moments."""

    ACTION_GROUP = "changes"
    NOUN = "change"
    READING = "Comparing …"
    NOTHING = (
        "Nothing changed between these moments.",
        "[ chooses an earlier one, / another filter, esc goes back.",
    )
    AGAIN = "[ and ] choose other moments, r reads again."
    FILTERS = ("Compare the records that pass", _HINT)
    NARROWS = FilterTarget.RECORDS

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._earlier = parse_when(SINCE, now=state.clock(), zone=state.local_zone)
        self._later = state.as_of
        """None: now."""
        self.chosen = supported_by(state.filter, FilterTarget.RECORDS)
        self._answer: CompareAnswer | None = None

    def columns(self) -> list[Column[Difference]]:
        """Return the columns of the list."""
        clock = self.state.clock
        return [
            Column("change", "change", _kind, 9, keep=100),
            Column("when", "when", lambda one: fmt.ago(_changed_at(one), clock()), 6, "right",
                   keep=80, tone="muted"),
            Column("by", "by", _who, 10, keep=75),
            Column("where", "where", _where, 14, keep=50, tone="muted"),
            Column("text", "text", self._text, 24, flexible=True, keep=90),
        ]  # fmt: skip

    def names_of(self, row: Difference) -> list[RecordName]:
        """Return the name of the record, if it is still there."""
        key = self._answer.binding_key if self._answer else ""
        return [RecordName(key, self.key(row))] if row.after and self._later is None else []

    def _text(self, row: Difference) -> Cell:
        return risky_cell(record_words(_record(row)), self.names_of(row), self.marks)

    def key(self, row: Difference) -> str:
        """Return the id of the record."""
        return _record(row).handle.provider_record_id

    def draw_head(self) -> Content:
        """Return the scope, the two moments, and the number of changes."""
        state, answer = self.state, self._answer
        zone, now = state.zone, state.clock()
        later = "now" if self._later is None else fmt.exact(self._later, zone)
        span = f"{fmt.exact(self._earlier, zone)}, {fmt.since(self._earlier, now)}, to {later}"
        where = scope_words(state.record_scope)
        if answer is not None:
            where = f"{where} · {answer.binding_key}"
        head = [
            line("what changed in", display(where, limit=200, style=STRONG)),
            display(f"from {span}", limit=200),
        ]
        if answer is not None:
            head.append(_counts(answer))
            if answer.problems:
                head.append(display(fmt.not_read(answer.problems), limit=300, style=WARN))
        return lines([*head, *self.narrowed()])

    def detail(self, row: Difference, width: int) -> Content:
        """Return the details of a difference."""
        record = _record(row)
        sign, style, _ = _KINDS[row.kind.value]
        whose = display(f"{record.kind} · {scope_words(record.scope)}", limit=200, style=DIM)
        kind = display(f"{sign} {row.kind.value}", style=f"{STRONG} {style}")
        before, after = row.before, row.after
        fields = changed_fields(before, after) if before and after else []
        changed: list[Line] = [
            *change_lines(row),
            *(labelled(*one) for one in fields),
        ]
        made, hints = _made(row, self.state), spread(_hints(row), width)
        risks = [one for name in self.names_of(row) for one in risk_lines(self.marks.get(name))]
        return joined([[line(kind, whose, gap="  ")], risks, changed, made, [hints]], width)

    def reasons(self) -> Reasons:
        """Return why actions cannot run now."""
        if (found := self.current) is None:
            return ()
        return (
            ("record", not found.after, "The record is gone; its timeline has every version."),
            ("operation", not found.operations, NO_OPERATION),
            ("open", not _record(found).source, "This record names no source."),
        )

    async def read(self) -> list[Difference]:
        """Compare the scope at both moments."""
        state, session, chosen = self.state, self.session, self.chosen
        self._answer = await session.service.past.compare(
            session.caller,
            state.record_scope,
            self._earlier,
            self._later,
            chosen=chosen,
            binding_key=chosen.binding_key or state.binding_key,
        )
        return ordered(self._answer.differences)

    def not_read(self, error: MemtuiError) -> None:
        """Show the error."""
        self._answer = None
        super().not_read(error)

    async def action_since(self) -> None:
        """Choose the earlier moment."""
        moment = await self.ask(ChooseMoment(self.state, "What changed since"))
        if moment is not None:
            self._earlier = moment
            self.action_read()

    async def action_until(self) -> None:
        """Choose the later moment."""
        moment = await self.ask(ChooseMoment(self.state, "What changed until"))
        if moment is not None:
            self._later = moment
            self.action_read()

    async def action_timeline(self) -> None:
        """Show every version of the record."""
        answer = self._answer
        if answer is not None:
            record = _record(self.row)
            await self.visit(timeline_of(self.state, answer.binding_key, record))

    def action_record(self) -> None:
        """Show the record in Records."""
        answer, record = self._answer, self.row.after
        if answer is not None and record is not None:
            chosen = record.handle.provider_record_id
            self.post_message(GoTo("records", binding_key=answer.binding_key, select=chosen))

    def action_operation(self) -> None:
        """Show the newest operation that changed the record."""
        newest = self.row.operations[0]
        self.post_message(GoTo("operations", select=newest.operation_id))

    def action_open(self) -> None:
        """Open the source of the record."""
        open_source(self, _record(self.row).source)

    def action_copy(self) -> None:
        """Copy the change as a difference."""
        self.copy(difference_text(self.row), "Copied the change.")

    def action_export(self) -> None:
        """Ask for a file, and export all changes to it."""
        found = [one for _, one in self.rows.held()]
        number = fmt.counted(len(found), "change")

        async def write(path: Path, *, overwrite: bool) -> str:
            from memtui.screens.analytics.files import write_table

            await asyncio.to_thread(write_table, path, as_table(found), overwrite=overwrite)
            return f"Wrote {number} to {path}."

        self.talk(export(self, f"Export {number} to", "changes.csv", _EXPORTED, write))


def ordered(found: Iterable[Difference]) -> list[Difference]:
    """Return differences by kind, within a kind the newest first."""
    by_time = sorted(found, key=lambda one: _changed_at(one) or _NEVER, reverse=True)
    return sorted(by_time, key=lambda one: list(_KINDS).index(one.kind.value))


# A difference in words.


def _record(found: Difference) -> Record:
    """Return the record after the change, else before it."""
    record = found.after or found.before
    if record is None:
        raise NotFound("This change has no record.")
    return record


def _counts(answer: CompareAnswer) -> Content:
    number = Counter(one.kind.value for one in answer.differences)
    parts = [
        display(f"{sign} {fmt.count(number[kind])} {kind}", style=style)
        for kind, (sign, style, _) in _KINDS.items()
    ]
    return line(*parts, display(f"{fmt.count(answer.same)} unchanged", style=DIM), gap="   ")


def _kind(found: Difference) -> Cell:
    sign, _, tone = _KINDS[found.kind.value]
    return Cell(f"{sign} {found.kind.value}", tone)


def _changed_at(found: Difference) -> datetime | None:
    """Return the time of the last change; None: unknown."""
    if found.operations:
        return found.operations[0].started_at
    if found.after is None:
        return None
    return found.after.valid_from or found.after.updated_at or found.after.created_at


def _who(found: Difference) -> str | None:
    if found.operations:
        return actor(found.operations[0])
    made_by = found.after.created_by if found.after and not found.before else None
    return made_by and fmt.author(made_by)


def _where(found: Difference) -> str:
    scope = _record(found).scope
    return scope.project_id or scope.agent_id or scope.subject_id or "company"


def _made(found: Difference, state: AppState) -> list[Line]:
    """Return the operations that made the change, with their reasons."""
    now = state.clock()
    if not found.operations:
        return [labelled("made", display("nothing in memtui's log", style=DIM))]
    lines_of: list[Line] = [heading("made by", fmt.counted(len(found.operations), "operation"))]
    for one in found.operations:
        words = f"{one.operation_type.value} #{fmt.count(one.seq)}, {who_and_when(one, now)}"
        lines_of.append(line(outcome_words(one), display(words)))
        if one.reason is not None:
            lines_of.append(labelled("why", fmt.source_line(one.reason)))
    return lines_of


def _hints(found: Difference) -> list[Content]:
    hints = [("h", "timeline"), ("O", "operation"), ("o", "source"), ("R", "record")]
    return [
        key_hint(key, what)
        for key, what in hints
        if (key != "O" or found.operations)
        and (key != "R" or found.after)
        and (key != "o" or _record(found).source)
    ]


def difference_text(found: Difference) -> str:
    """Return a difference as text: earlier lines after `-`, present ones after `+`."""
    before, after = found.before, found.after
    changed = [
        f"{sign} {part}"
        for sign, record in (("-", before), ("+", after))
        if record is not None
        for part in record.text.splitlines() or [""]
    ]
    if before is not None and after is not None:
        fields = [f"{name}: {change}" for name, change in changed_fields(before, after)]
        changed = fields if before.text == after.text else changed + fields
    return "\n".join(changed)


def as_table(found: Sequence[Difference]) -> Table:
    """Return differences as a table, one a row."""
    from memtui.screens.analytics.files import Table

    names = ("change", "record_id", "scope", "kind", "topic", "before", "after", "at", "by", "why",
             "operation_id")  # fmt: skip
    rows = []
    for one in found:
        record, newest = _record(one), one.operations[0] if one.operations else None
        rows.append(
            (
                one.kind.value,
                record.handle.provider_record_id,
                scope_words(record.scope),
                record.kind,
                record.topic,
                one.before.text if one.before else None,
                one.after.text if one.after else None,
                _changed_at(one),
                newest.author if newest else _who(one),
                fmt.source_line(newest.reason) if newest and newest.reason else None,
                newest.operation_id if newest else None,
            )
        )
    kinds = tuple("TIMESTAMP WITH TIME ZONE" if name == "at" else "VARCHAR" for name in names)
    return Table(names, kinds, tuple(rows))
