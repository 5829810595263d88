"""What each step of a migration found, as the rows of one list; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column

if TYPE_CHECKING:
    from memtui.migration.cutover import Switched
    from memtui.migration.moving import Applied
    from memtui.migration.planning import Plan
    from memtui.migration.verifying import Verified
    from memtui.service.answers import TargetView

Tone = Literal["", "muted", "success", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that a step found."""

    what: str
    records: int | None = None
    where: str = ""
    """Where it goes, why it does not, or what is not the same."""
    tone: Tone = ""
    number: int = 0
    """Its place in the list, which names it."""


def columns() -> list[Column[Row]]:
    """Return the columns of the list."""
    return [
        Column("what", "what", lambda one: Cell(one.what, one.tone), 24, flexible=True, keep=100,
               share=0.4),
        Column("records", "records", _records, 9, "right", keep=90),
        Column("where", "where, or why", lambda one: Cell(one.where, "muted"), 20, flexible=True,
               keep=80),
    ]  # fmt: skip


def _records(one: Row) -> Cell:
    return Cell("" if one.records is None else fmt.count(one.records), one.tone)


def planned(plan: Plan) -> Iterator[Row]:
    """Yield where the records go, then what will be lost and what is refused."""
    yield from _unread(plan.source_unread)
    if plan.refused:
        why = "The destination does not take them; each is listed below."
        yield Row("refused", plan.refused, why, "error")
    for loss in plan.losses:
        if loss.carried:
            why = "carried in the metadata; a migration back restores it"
            yield Row(f"carried: {loss.what}", loss.records, why, "warning")
        else:
            yield Row(f"lost: {loss.what}", loss.records, "kept by the source only", "error")
    if plan.redacted:
        why = "The records stay; what looks like a secret is taken out of them."
        yield Row("secrets taken out", plan.redacted, why, "warning")
    for one in plan.scopes:
        yield Row(f"{one.scope} · {one.kind}", one.records, f"→ {one.place}" if one.place else "")
    for refused in plan.refusals:
        yield Row(f"refused: {refused.record_id}", None, refused.reason, "error")


def applied(done: Applied) -> Iterator[Row]:
    """Yield what was done with how many records, then each that was not moved."""
    yield from _unread(done.source_unread)
    yield Row("written", done.written, "new in the destination", "success")
    yield Row("replaced", done.replaced, "moved before, and changed in the source since")
    yield Row("unchanged", done.unchanged, "there already")
    yield Row("failed", done.failed, "not moved", "error" if done.failed else "muted")
    if done.redacted:
        yield Row("secrets taken out", done.redacted, "", "warning")
    for name in done.carried:
        yield Row(f"carried: {name.replace('_', ' ')}", None, "in the metadata", "warning")
    for failure in done.failures:
        yield Row(f"failed: {failure.record_id}", None, failure.reason, "error")


def verified(found: Verified) -> Iterator[Row]:
    """Yield the counts of a comparison, then each record that is not the same."""
    yield from _unread(found.source_unread)
    if found.sample is not None:
        least = "" if found.complete else "at least "
        drawn = f"drawn from {least}{found.source_records:,}, seed {found.seed}"
        yield Row("sample", found.sample, drawn, "muted")
    missing = "not in the destination"
    if found.destination_at_least:
        missing = "not found in the destination, which cannot be listed whole"
    yield Row("matched", found.matched, f"of {found.checked:,} that were compared", "success")
    for what, number, why in (
        ("missing", found.missing, missing),
        ("different", found.different, "not the same on both sides"),
        ("extra", found.extra, "in the destination only, or more than once"),
    ):
        yield Row(what, number, why, "error" if number else "muted")
    yield Row("others", found.others, "the destination's own", "muted")
    for one in found.mismatches:
        names = " → ".join(name for name in (one.source_id, one.destination_id) if name)
        yield Row(f"{one.what}: {names}", None, ", ".join(one.fields).replace("_", " "), "error")


def _unread(sentences: Sequence[str]) -> Iterator[Row]:
    """Yield why the source could not be listed whole."""
    for sentence in sentences:
        yield Row("the source may hold more", None, sentence, "warning")


def switched(done: Switched) -> Iterator[Row]:
    """Yield who is served by whom now."""
    for target in done.targets:
        yield Row(_served(target), None, f"is served by {done.served_by}", "success")
    for target in done.left:
        yield Row(_served(target), None, "is served by a third binding, and stays", "warning")


def _served(target: TargetView) -> str:
    if target.target_type == "company":
        return "the whole company"
    return f"{target.target_type} {target.target_id}"
