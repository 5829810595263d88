"""The words of the conformance report: columns, head, and one check whole; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from textual.content import Content

from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.conformance import CheckResult, Outcome

State = Literal["", "running", "stopping", "stopped", "done", "failed"]
"""How far the run is; nothing before the first."""

WARNING = (
    "It writes into namespaces of its own, named custom:memtui-conformance-…, and removes them. "
    "Some checks load the server or send it malformed requests."
)
_BODY_CELLS = 4_000
_LEFTOVERS = 1
_MARKS: dict[Outcome, tuple[Literal["✓", "✗", "–"], Literal["success", "error", "muted"], str]] = {
    "pass": ("✓", "success", "passed"),
    "fail": ("✗", "error", "failed"),
    "not_applicable": ("–", "muted", "not applicable"),
}
_STYLES = {"success": OK, "error": BAD, "muted": DIM}


def columns() -> list[Column[CheckResult]]:
    """Return the columns of the report."""
    return [
        Column("mark", "", _mark, 2, keep=100),
        Column("name", "check", lambda one: Cell(one.name), 24, flexible=True, keep=99, share=0.3),
        Column("rule", "rule", _rule, 24, flexible=True, keep=80, share=0.5),
        Column("ms", "ms", lambda one: Cell(f"{one.duration_ms:,.0f}", "muted"), 6, "right",
               keep=10),
    ]  # fmt: skip


def _mark(one: CheckResult) -> Cell:
    mark, tone, _ = _MARKS[one.outcome]
    return Cell(mark, tone)


def _rule(one: CheckResult) -> Cell:
    return Cell(one.rule, "muted" if one.outcome == "not_applicable" else "")


def head_content(
    place: str, results: Iterable[CheckResult], total: int, state: State, took_ms: float | None
) -> Content:
    """Return what is checked and the counts."""
    title = line("conformance of", display(place, limit=200, style=STRONG))
    counts = Counter(one.outcome for one in results)
    found = [
        display(f"{mark} {counts[outcome]} {word}", style=_STYLES[tone])
        for outcome, (mark, tone, word) in _MARKS.items()
        if counts[outcome]
    ]
    summary = line(*found, _state_words(state, sum(counts.values()), total, took_ms), gap="   ")
    return lines([title, summary])


def _state_words(state: State, done: int, total: int, took_ms: float | None) -> Content:
    if state == "running":
        return display(f"… {done} of {total}", style=WARN)
    if state == "stopping":
        return display("… stopping, and removing what it made", style=WARN)
    if state == "stopped":
        return display(f"stopped after {done} of {total}", style=WARN)
    if state == "failed":
        return display("not finished", style=BAD)
    if state == "done":
        return display(f"in {fmt.duration(took_ms)}" if took_ms is not None else "", style=DIM)
    return display(f"{fmt.counted(total, 'check')}; r runs them", style=DIM)


def leftovers_content(names: Sequence[str]) -> Content:
    """Return what a run made and could not remove; the written report names all of it."""
    words = f"▲ {fmt.count(len(names))} left on the server: "
    return display(words + ", ".join(names[:_LEFTOVERS]), limit=300, style=WARN) + (
        display(" …", style=WARN) if len(names) > _LEFTOVERS else Content("")
    )


def row_content(one: CheckResult | None, width: int) -> Content:
    """Return a check with the request and the reply that show a failure."""
    if one is None:
        return Content("")
    mark, tone, word = _MARKS[one.outcome]
    head = line(
        display(one.name, limit=120, style=STRONG),
        display(f"{mark} {word}", style=_STYLES[tone]),
        gap="  ",
    )
    about: list[Line] = [labelled("rule", one.rule)]
    if one.detail:
        style = BAD if one.outcome == "fail" else ""
        about.append(labelled("found", display(one.detail, limit=2_000, style=style)))
    blocks: list[Sequence[Line]] = [[head], about]
    if one.request is not None:
        sent = f"{one.request.method} {one.request.path}"
        blocks.append([heading("Request"), display(sent, limit=1_000), *_body(one.request.body)])
    if one.reply is not None:
        seen = f"{one.reply.status} {one.reply.content_type or ''}"
        blocks.append([heading("Reply"), display(seen, limit=300), *_body(one.reply.body)])
    elif one.request is not None:
        blocks.append([heading("Reply", "none came")])
    took = labelled("took", fmt.duration(one.duration_ms))
    blocks.append([labelled("stands in", one.source), took])
    return joined(blocks, width)


def _body(body: str | None) -> list[Line]:
    return [display(body, limit=_BODY_CELLS, keep_newlines=True)] if body else []


def as_text(one: CheckResult) -> str:
    """Return a check as text to copy."""
    parts = [f"{_MARKS[one.outcome][0]} {one.name}: {one.rule} ({one.source})", one.detail]
    if one.request is not None:
        parts.append(f"→ {one.request.method} {one.request.path} {one.request.body or ''}".rstrip())
    if one.reply is not None:
        parts.append(f"← {one.reply.status} {one.reply.body}".rstrip())
    return "\n".join(part for part in parts if part)
