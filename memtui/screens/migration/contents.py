"""The words above and beside the list of a migration; pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.screens.migration.lines import Row
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import joined
from memtui.widgets.display import ACCENT, BAD, DIM, OK, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.migration.ends import MigrationState
    from memtui.migration.moving import Progress
    from memtui.service.answers import BindingView

_TONES = {"": "", "muted": DIM, "success": OK, "warning": WARN, "error": BAD}
_BAR_CELLS = 20


def steps_content(state: MigrationState | None, now: datetime, *, planned: bool) -> Content:
    """Return how far the migration is: planned → applied → verified → cut over."""
    applied = state.applied_at if state else None
    begun = state.begun_at if state and applied is None else None
    verified = state.verified_at if state else None
    cut = bool(state and state.switched)
    steps = [
        _step("planned", done=planned, note=""),
        _step("applied", done=applied is not None, note=_when(applied, now))
        if begun is None
        else display(f"◐ applied in part, begun {_when(begun, now)}", style=WARN),
        _step("verified", done=verified is not None, note=_when(verified, now)),
        _step("cut over", done=cut, note=""),
    ]
    return line(*steps, gap=" → ")


def _when(moment: datetime | None, now: datetime) -> str:
    return fmt.since(moment, now) if moment is not None else ""


def _step(word: str, *, done: bool, note: str) -> Content:
    if not done:
        return display(f"○ {word}", style=DIM)
    return line(display(f"● {word}", style=OK), display(note, style=DIM))


def head_content(
    source: BindingView, destination: BindingView, steps: Content, status: Content
) -> Content:
    """Return from where to where, how far it is, and what goes on."""
    ends = [f"{one.provider_key}·{one.key}" for one in (source, destination)]
    names = Content(" → ").join(display(one, limit=100, style=STRONG) for one in ends)
    return lines([line("migrate", names), steps, status])


def progress_content(doing: str, progress: Progress) -> Content:
    """Return how much of a run is done, how fast it goes and how long it takes."""
    done = fmt.of_total(progress.done, progress.total)
    if progress.found:
        done = f"{fmt.counted(progress.found, 'record')} found so far"
    left = progress.seconds_left
    return line(
        display(f"… {doing}", style=WARN),
        _bar(progress.done, progress.total),
        display(done),
        display(f"{progress.rate:,.0f}/s", style=DIM) if progress.rate else None,
        display(f"{fmt.duration(left * 1_000)} left", style=DIM) if left is not None else None,
        display(f"{fmt.count(progress.failed)} failed", style=BAD) if progress.failed else None,
        gap="  ",
    )


def _bar(done: int, total: int | None) -> Content | None:
    if not total:
        return None
    filled = min(_BAR_CELLS, done * _BAR_CELLS // total)
    empty = Content.styled("░" * (_BAR_CELLS - filled), DIM)
    return Content.styled("█" * filled, ACCENT) + empty


def row_content(row: Row | None, width: int) -> Content:
    """Return a row whole."""
    if row is None:
        return Content("")
    head = display(row.what, limit=2_000, style=f"bold {_TONES[row.tone]}".rstrip())
    number = "" if row.records is None else fmt.counted(row.records, "record")
    words = [display(number), display(row.where, limit=2_000)]
    return joined([[head], [one for one in words if one.plain]], width)
