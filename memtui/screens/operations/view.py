"""An operation as a row of the list, and its details."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static

from memtui.contract import Filter, MemtuiError, OperationStatus, OperationType, Record
from memtui.filters import WORD_OF, format_filter
from memtui.presenters import format as fmt
from memtui.presenters.risks import briefly
from memtui.store.operation import ASKED, Operation, OperationHandle, Parts, Place, details
from memtui.widgets.columns import Cell, Column, by_cell
from memtui.widgets.detail_lines import (
    SEPARATOR,
    Line,
    change_lines,
    ending_lines,
    heading,
    joined,
    key_hint,
    labelled,
    moment,
    outcome_words,
    record_words,
    scope_words,
    usage_lines,
)
from memtui.widgets.display import DIM, STRONG, TONES, WARN, display, hanging, line
from memtui.widgets.panes import DetailPane, Fitted, OptionRows
from memtui.widgets.record_names import RecordName, risky_cell

if TYPE_CHECKING:
    from memtui.service.answers import Change, TakenBackBy
    from memtui.service.review.known_risks import RiskMark
    from memtui.store.journal import OutcomeCheck

_TEXTS = ("query", "prompt", "content", "text")
_COUNTED = {"tokens": "token", "content_chars": "character", "records": "record"}
_OF_CONTENT = frozenset({"content_chars"})
_SAID_BELOW = _OF_CONTENT | {"record_ids"}
_MOST_HANDLES = 50

SORTS = {
    "when": "seq",
    "number": "seq",
    "type": "operation_type",
    "status": "status",
    "binding": "binding_key",
    "provider": "provider_key",
    "agent": "agent_id",
    "project": "project_id",
    "issue": "issue_id",
    "run": "run_id",
    "subject": "subject_id",
    "source": "source_kind",
    "what": "what",
    "channel": "channel",
    "by": "principal",
    "records": "result_count",
    "score": "best_score",
    "tokens": "tokens",
    "ms": "latency_ms",
    "cost": "cost_usd",
    "error": "error_kind",
}
"""The sort of the log for each column (`memtui.store.conditions.SORTS`)."""

SHOWN = frozenset({"when", "type", "binding", "by", "agent", "what", "source", "ms", "cost"})
"""Columns shown by default."""


def operation_columns(
    now: Callable[[], datetime],
    is_typed: Callable[[], bool] = lambda: True,
    marks: Mapping[RecordName, RiskMark] = MappingProxyType({}),
    undone: Mapping[str, TakenBackBy] = MappingProxyType({}),
    parts: Mapping[str, Parts] = MappingProxyType({}),
    *,
    found: Mapping[str, OutcomeCheck | None] = MappingProxyType({}),
) -> list[Column[Operation]]:
    """Return the columns; relative times count from `now`.

    Without `is_typed` the filter says the type, and its column has only the outcome's sign.
    `marks`: what is known of the risks of their records; `undone`: what was undone, by operation.
    `parts`: the operations of questions over several bindings, by the one that stands for them.
    `found`: what checks of unknown outcomes found, by operation.
    """

    def lead(one: Operation) -> Operation:
        return parts[one.operation_id].lead if one.operation_id in parts else one

    def whole(one: Operation) -> Operation | Parts:
        return parts.get(one.operation_id, one)

    def alone(one: Operation, text: str | None, several: str | None = None) -> str | None:
        return several if one.operation_id in parts else text

    return [
        Column("number", "#", lambda one: fmt.count(one.seq), 10, "right", keep=75, tone="muted"),
        Column("when", "when", lambda one: fmt.ago(one.started_at, now()), 6, "right", keep=90,
               tone="muted"),
        Column("type", "type", lambda one: _type(lead(one), undone, found, is_named=is_typed()),
               11, keep=100),
        Column("status", "status", lambda one: lead(one).status.value, 8, keep=45),
        Column("binding", "binding", lambda one: alone(one, one.binding_key, "several"), 9,
               keep=40),
        Column("provider", "provider", lambda one: alone(one, one.provider_key), 9, keep=35),
        Column("agent", "agent", lambda one: one.scope.agent_id, 9, flexible=True, keep=82,
               whole=True),
        Column("by", "by", lambda one: by_cell(one.principal, one.scope.agent_id), 9,
               flexible=True, keep=80),
        Column("project", "project", lambda one: one.scope.project_id, 10, keep=55),
        Column("issue", "issue", lambda one: one.scope.issue_id, 8, keep=55),
        Column("run", "run", lambda one: one.scope.run_id, 9, keep=55),
        Column("subject", "user", lambda one: one.scope.subject_id, 9, keep=55),
        Column("what", "what", lambda one: _what(one, undone, marks, parts), 16,
               flexible=True, keep=95, share=0.33),
        Column("source", "source", _source, 16, keep=43),
        Column("channel", "channel", lambda one: one.channel, 6, keep=50),
        Column("records", "records", lambda one: whole(one).result_count, 7, "right", keep=50),
        Column("score", "score", lambda one: alone(one, _score(one)), 6, "right", keep=50),
        Column("tokens", "tokens", lambda one: _tokens(whole(one)), 8, "right", keep=50),
        Column("ms", "ms", lambda one: _milliseconds(whole(one)), 6, "right", keep=60),
        Column("cost", "$", lambda one: _cost(whole(one)), 9, "point", keep=70),
        Column("error", "error", lambda one: lead(one).error_kind, 10, keep=50),
    ]  # fmt: skip


def names_of(operation: Operation, parts: Parts | None = None) -> list[RecordName]:
    """Return the names of the records of an operation, or of all its parts, that details list."""
    return [
        RecordName(*one.place_of(handle))
        for one in (parts.operations if parts else (operation,))
        for handle in one.handles[:_MOST_HANDLES]
        if handle.provider_record_id
    ]


def _what(
    operation: Operation,
    undone: Mapping[str, TakenBackBy],
    marks: Mapping[RecordName, RiskMark],
    parts: Mapping[str, Parts],
) -> Cell:
    asked_all = parts.get(operation.operation_id)
    lead = f"{fmt.bindings(asked_all)}: " if asked_all else ""
    cell = risky_cell(lead + about(operation), names_of(operation, asked_all), marks)
    if asked_all is not None and asked_all.failed and not cell.tone:
        return Cell(cell.text, "warning")
    if (back := undone.get(operation.operation_id)) is None:
        return cell
    return Cell(f"{fmt.undone(back)}: {cell.text}", cell.tone or "muted")


def _type(
    operation: Operation,
    undone: Mapping[str, TakenBackBy],
    found: Mapping[str, OutcomeCheck | None],
    *,
    is_named: bool,
) -> Cell:
    wanted = operation.operation_id
    ended, back = fmt.outcome(operation.status, found.get(wanted)), undone.get(wanted)
    tone: Any = "" if ended.tone == "success" else ended.tone
    tone = "muted" if back and back.whole else tone
    name = f" {operation.operation_type.value}" if is_named else ""
    return Cell(f"{ended.symbol}{name}", tone)


FIXED_BY = {
    "status": "status", "binding": "binding_key", "provider": "provider_key", "agent": "agent_id",
    "project": "project_id", "issue": "issue_id", "run": "run_id", "subject": "subject_id",
    "channel": "channel",
}  # fmt: skip
"""The field of each column that a filter with one value of it makes superfluous."""


def about(operation: Operation) -> str:
    """Return the subject of an operation as `asked` does, without the folders of a record id."""
    words = asked(operation)
    if words and words in (operation.request.get("record_id"), _withheld(operation)):
        words = words.rstrip("/").rpartition("/")[2]  # the folders are mostly the same
    return words


def _source(operation: Operation) -> str | None:
    if operation.source is not None:
        return fmt.source_line(operation.source)
    run = operation.scope.run_id
    return f"run {run.removeprefix('run-')}" if run else None


def _score(operation: Operation) -> str | None:
    scores = [handle.score for handle in operation.handles if handle.score is not None]
    return fmt.score(max(scores)) if scores else None


def _tokens(operation: Operation | Parts) -> Cell:
    return Cell(fmt.count(operation.tokens), "" if operation.tokens else "muted")


def _milliseconds(operation: Operation | Parts) -> str:
    took = operation.latency_ms
    return "–" if took is None else fmt.count(round(took))


def _cost(operation: Operation | Parts) -> Cell:
    free = not operation.cost_usd and not operation.unpriced
    words = fmt.short_money(operation.cost_usd, unpriced=operation.unpriced)
    return Cell(words, "muted" if free else "")


def asked(operation: Operation) -> str:
    """Return the subject of an operation on one line: its text, setting, verdict or count.

    Empty: the request has none.
    """
    if words := fmt.configured(operation):
        return words
    for name in ASKED:
        value = operation.request.get(name)
        if name == "text" and operation.operation_type is OperationType.CONTEXT:
            break  # the details show the text of a context
        if isinstance(value, str) and value:
            return " ".join(value[:400].split())
    for words_of in (_withheld, _counted, fmt.judged, fmt.reversal):
        if words := words_of(operation):
            return words
    if operation.operation_type is OperationType.PURGE:
        return str(operation.request.get("what", "proof"))
    return "erased" if operation.erased else ""


def _withheld(operation: Operation) -> str:
    """Return the record id, in place of a company-wide text, which is not logged; else empty."""
    if "content_chars" in operation.request and operation.handles and not operation.erased:
        return operation.handles[0].provider_record_id
    return ""


def _counted(operation: Operation) -> str:
    for name, noun in _COUNTED.items():
        if isinstance(count := operation.request.get(name), int):
            return fmt.counted(count, noun)
    return ""


@dataclass(frozen=True, slots=True)
class OperationView:
    """The content of the details; `records` grows while texts of the handles are read."""

    operation: Operation
    now: datetime
    zone: tzinfo | None = None
    records: Mapping[Place, Record | str] = field(default_factory=dict)
    """Records, or a sentence why one could not be read."""
    changes: tuple[Change, ...] = ()
    found: OutcomeCheck | None = None
    """The result of a check of an unknown outcome."""
    undone: TakenBackBy | None = None
    """What was undone of it."""
    marks: Mapping[RecordName, RiskMark] = field(default_factory=dict)
    """What is known of the risks of its records."""
    parts: Parts | None = None
    """All operations of the question over several bindings that it stands for."""

    @property
    def whole(self) -> Operation | Parts:
        """What is added up."""
        return self.parts or self.operation


def head(view: OperationView, width: int) -> Content:
    """Return the part above the handles."""
    operation, parts = view.operation, view.parts
    title = line(
        display(operation.operation_type.value, style=STRONG),
        display(f"#{operation.seq:,}", style=DIM),
        None
        if operation.damaged
        else outcome_words(parts.lead if parts else operation, view.found),
        gap="  ",
    )
    when = display(
        f"{moment(operation.started_at, view.now, view.zone)}{SEPARATOR}"
        f"{fmt.duration(view.whole.latency_ms)}",
        style=DIM,
    )
    blocks: list[list[Line]] = [
        [title, when],
        list(_asked(operation)),
        [] if parts else list(_ending(view)),
        [] if operation.damaged else _origin(operation, parts),
    ]
    return joined(blocks, width)


def _asked(operation: Operation) -> Iterator[Line]:
    for name in _TEXTS:
        if isinstance(value := operation.request.get(name), str) and value:
            yield display(f"“{value}”", limit=4_000, keep_newlines=True)
    if words := request_words(operation):
        yield display(words, limit=2_000, style=DIM)


def request_words(operation: Operation) -> str:
    """Return the request without its texts: `intent answer · top k 5`."""
    said = _SAID_BELOW if "content" in operation.request else _SAID_BELOW - _OF_CONTENT
    return SEPARATOR.join(
        f"{name.replace('_', ' ')} {_filter_words(name, value) or _value_words(value)}"
        for name, value in operation.request.items()
        if name not in {"stages", "inferred"}
        and value not in (None, "", [], {})
        and not (name in said and operation.handles)
        and not (name in _TEXTS and isinstance(value, str))
    )


def _filter_words(name: str, value: object) -> str:
    """Return the line of a filter; empty if the value is no filter, as an imported log may have."""
    try:
        return format_filter(Filter.model_validate(value)) if name == "filter" else ""
    except (ValueError, MemtuiError):
        return ""


def _value_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value_words, value))
    if isinstance(value, dict):
        parts = (
            (WORD_OF.get(name, str(name).replace("_", " ")), part) for name, part in value.items()
        )
        named = ((name, part) for name, part in parts if part not in (None, ""))
        return ", ".join(f"{name} {_value_words(part)}" for name, part in named)
    return str(value)


def _ending(view: OperationView) -> Iterator[Line]:
    operation = view.operation
    yield from ending_lines(operation, view.found)
    if operation.status is OperationStatus.UNKNOWN and view.found is None:
        is_later = operation.request.get("event") is not None
        words = "It started, and its outcome is unknown."
        yield Content.styled("Its provider stores it later." if is_later else words, WARN)
        yield key_hint("c", "ask the provider whether it happened")
    if (back := view.undone) is not None:
        yield Content.styled(f"{fmt.undone(back)} by #{back.operation.seq:,}", WARN)
    yield labelled("undoes", operation.undoes)


def _origin(operation: Operation, parts: Parts | None) -> list[Line]:
    source = display(fmt.source_line(operation.source))
    return [
        labelled("source", line(source, key_hint("o", "open") if operation.source else None)),
        labelled("scope", scope_words(operation.scope)),
        labelled("by", fmt.done_by(operation.principal, operation.channel)),
        *(_chosen(operation) if parts is None else [labelled("binding", fmt.bindings(parts))]),
    ]


def _chosen(operation: Operation) -> list[Line]:
    provider = f" ({operation.provider_key})" if operation.provider_key else ""
    return [
        labelled("binding", operation.binding_key and f"{operation.binding_key}{provider}"),
        *(labelled(title, text) for title, text in details(operation)),
    ]


def foot(view: OperationView, width: int) -> Content:
    """Return the part below the handles: stages, changes, usage and digests."""
    operation = view.operation
    name = labelled("id", display(operation.operation_id, style=DIM))
    if operation.damaged:
        return joined([[name]], width)
    if view.parts is not None:  # each part has its own stages and digest
        return joined([list(usage_lines(view.parts)), [name]], width)
    digests = f"{fmt.digest(operation.digest)} after {fmt.digest(operation.previous_digest)}"
    chain: list[Line] = [name, labelled("digest", display(digests, style=DIM))]
    found: list[list[Line]] = [list(_stages(operation))] if operation.stages else []
    found.append(list(_extraction(view)))
    return joined([*found, *map(_change, view.changes), list(usage_lines(operation)), chain], width)


def _extraction(view: OperationView) -> Iterator[Line]:
    if (found := fmt.extraction(view.operation, view.changes, view.found)) is not None:
        yield heading("given", "" if found.given else "not in the log")
        yield display(found.given or "", limit=4_000, keep_newlines=True)
        yield heading("kept", fmt.counted(len(found.kept), "text"))
        for one in found.kept:
            yield display(one, limit=2_000, keep_newlines=True)


def _stages(operation: Operation) -> Iterator[Line]:
    yield heading("how it was found", "by rank")
    for stage in operation.stages:
        yield labelled(stage.name, display(stage.detail, limit=300))
        if stage.scores:
            yield labelled("", display(fmt.by_rank(stage, operation.handles), style=DIM))


def _change(change: Change) -> list[Line]:
    record = change.after or change.before
    if record is None:
        return []
    words = "changed" if change.before and change.after else "added" if change.after else "removed"
    return [heading(words, record.handle.provider_record_id), *change_lines(change)]


def handles_title(operation: Operation) -> str:
    """Return the title of the handles: `4 records returned`, and whether more may match."""
    verb = "touched" if operation.operation_type.mutates else "returned"
    words = f"{fmt.counted(operation.result_count, 'record')} {verb}"
    return f"{words}, more may match" if operation.capped else words


def handles_content(operation: Operation, width: int) -> Content:
    """Return rank, score and name of the handles, without texts, which are not read yet."""
    rows = [heading(handles_title(operation))]
    for one in operation.handles[:_MOST_HANDLES]:
        lead = display(f"{one.rank:>3}  {fmt.score(one.score)}  ", style=DIM)
        name = one.provider_record_id.rpartition("/")[2] or one.provider_record_id or "erased"
        rows.append(hanging(lead, display(name, limit=200), width, most=1))
    return Content("\n").join(rows)


def part_lines(operation: Operation) -> Content:
    """Return the outcome, binding and figures of one operation of a question, and its error."""
    ended = fmt.outcome(operation.status)
    figures = [
        fmt.counted(operation.result_count, "record"),
        fmt.duration(operation.latency_ms),
        fmt.short_money(operation.cost_usd, unpriced=operation.unpriced),
    ]
    sign = Content.styled(ended.symbol, TONES[ended.tone])
    name = display(operation.binding_key or "no binding", limit=200)
    error = display(operation.error_message or "", limit=300, style=WARN)
    under = line(" ", error or display(operation.provider_key or "", style=DIM), gap=" ")
    number = display(f"#{operation.seq:,}", style=DIM)
    row = line(sign, name, number, display(SEPARATOR.join(figures), style=DIM), gap="  ")
    return Content("\n").join([row, under])


def handle_lines(
    handle: OperationHandle,
    record: Record | str | None,
    mark: RiskMark | None = None,
    *,
    undone: bool = False,
) -> Content:
    """Return rank, score and text of a handle, with its risks and its origin below.

    `undone`: its change was undone.
    """
    score = display(fmt.score(handle.score), style=DIM)
    rank = display(f"{handle.rank:>3}", style=DIM)
    ghost = Content.styled("ghost: forgotten and still there", WARN) if handle.ghost else None
    back = Content.styled("undone", WARN) if undone else None
    if isinstance(record, Record):
        text = display(record_words(record), limit=200)
        place = fmt.place_line(record.location) if record.location else ""
        below = SEPARATOR.join(filter(None, [fmt.source_line(record.source), place]))
    else:
        folder, slash, name = handle.provider_record_id.rpartition("/")
        text = display(name or folder, limit=200)
        said = record or ("" if handle.provider_record_id else "erased")
        below = SEPARATOR.join(filter(None, [said, folder + slash]))
    risk = display(briefly(mark), style=WARN) if mark and mark.reasons else None
    under = line(" " * 10, risk, display(below, limit=300, style=DIM), gap=" ")
    return Content("\n").join([line(rank, score, back, text, ghost, gap="  "), under])


class OperationDetail(DetailPane):
    """Shows an `OperationView`."""

    @dataclass
    class RecordChosen(Message):
        """The person chose a record of the operation."""

        handle: OperationHandle

    @dataclass
    class PartChosen(Message):
        """The person chose one of the operations of a question over several bindings."""

        operation: Operation

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name, id=name, classes="split-detail")
        self._view: OperationView | None = None
        self.marked: set[str] = set()
        """Ids of the marked records."""

    def compose(self) -> ComposeResult:
        """Lay out head, handles and foot."""
        yield Fitted(id="operation-head")
        yield Static(id="operation-handles-title")
        yield OptionRows(id="operation-handles")
        yield Fitted(id="operation-foot")

    @property
    def handle(self) -> OperationHandle | None:
        """The handle under the cursor; None: the handles do not have the focus."""
        rows = self.query_one(OptionRows)
        place = rows.highlighted if rows.has_focus else None
        return self._handles[place] if place is not None and place < len(self._handles) else None

    @property
    def _parts(self) -> Sequence[Operation]:
        """The operations that are listed in place of the handles."""
        return self._view.parts.operations if self._view and self._view.parts else ()

    @property
    def _handles(self) -> Sequence[OperationHandle]:
        if self._view is None or self._parts:
            return ()
        return self._view.operation.handles[:_MOST_HANDLES]

    def show(self, view: OperationView | None) -> None:
        """Draw a view; None empties the pane. The cursor stays if it is the same operation."""
        before, self._view = self._view, view
        same = (
            before
            and view
            and (before.operation.operation_id, before.parts is None)
            == (
                view.operation.operation_id,
                view.parts is None,
            )
        )
        title = self.query_one("#operation-handles-title", Static)
        handles = self.query_one(OptionRows)
        place = handles.highlighted if same else None
        if not same:
            self.marked.clear()
        for part, content in (("head", head), ("foot", foot)):
            draw = partial(content, view) if view else Content("")
            self.query_one(f"#operation-{part}", Fitted).fit(draw)
        if view is not None and view.parts is not None:
            opens = key_hint("enter", "opens one")
            title.update(Content("\n").join([heading(fmt.bindings(view.parts)), opens]))
            handles.show([*map(part_lines, self._parts)], place)
        elif view is not None:
            found = [view.records.get(view.operation.place_of(one)) for one in self._handles]
            unread = any(
                text is None and one.provider_record_id
                for one, text in zip(self._handles, found, strict=True)
            )
            hint = [key_hint("enter", "shows what they say")] if unread else []
            title.update(Content("\n").join([heading(handles_title(view.operation)), *hint]))
            marks = [
                view.marks.get(RecordName(*view.operation.place_of(one))) for one in self._handles
            ]
            undone = view.undone.record_ids if view.undone else frozenset()
            rows = [
                handle_lines(one, text, mark, undone=one.provider_record_id in undone)
                for one, text, mark in zip(self._handles, found, marks, strict=True)
            ]
            for n, one in enumerate(self._handles):
                if one.provider_record_id in self.marked:
                    rows[n] = Content.styled("●", STRONG) + rows[n][1:]
            handles.show(rows, place)
        else:
            handles.show([], place)
        handles.display = title.display = bool(self._parts or self._handles)
        if not same:
            self.scroll_home(animate=False)

    def turn_mark(self) -> bool:
        """Mark or unmark the record under the cursor, and go on to the next; False: none is."""
        if (handle := self.handle) is None:
            return False
        self.marked ^= {handle.provider_record_id}
        self.show(self._view)
        self.query_one(OptionRows).move(1)
        return True

    def enter(self) -> None:
        """Focus the handles or the parts, or the pane if there are none."""
        handles = self.query_one(OptionRows)
        if self._parts or self._handles:
            handles.focus()
            handles.highlighted = handles.highlighted or 0
        else:
            self.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Post `PartChosen` or `RecordChosen`."""
        event.stop()
        if event.option_index < len(self._parts):
            self.post_message(self.PartChosen(self._parts[event.option_index]))
        if event.option_index < len(self._handles):
            self.post_message(self.RecordChosen(self._handles[event.option_index]))
