"""The words of the review: its sums, and the line under the cursor whole; pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from textual.content import Content

from memtui.screens.facts.columns import by_words
from memtui.screens.facts.rows import Place
from memtui.screens.prune.columns import reason_words
from memtui.screens.prune.review import Line, Review, Sort
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import joined, labelled
from memtui.widgets.display import DIM, OK, STRONG, WARN, display, line, lines

State = Literal["", "looking", "forgetting"]
"""What the review is doing; nothing while it waits for the person."""


def head_content(places: Sequence[Place], review: Review, state: State) -> Content:
    """Return whose facts are reviewed, how many are marked and what that saves."""
    whose = " and ".join(place.label for place in places)
    title = line("prune", display(whose, limit=120, style=STRONG))
    if state == "looking":
        return line(title, display("looking for what could go …", style=DIM), gap="   ")
    marked, saved = len(review.marks), review.saved
    if state == "forgetting":
        words = f"… forgetting {fmt.counted(marked, 'fact')}, {fmt.counted(saved, 'token')}"
        return line(title, display(words, style=WARN), gap="   ")
    sums = f"context {fmt.counted(review.before, 'token')} → {fmt.count(review.before - saved)}"
    gain = display(f"saves {fmt.count(saved)}", style=OK if saved else DIM)
    chosen = display(f"{fmt.count(marked)} marked", style=STRONG)
    head = line(title, chosen, display(sums), gain, gap="   ")
    if not (lost := review.lost):
        return head
    words = f"▲ {fmt.counted(lost, 'marked fact')} would go with all that say the same."
    return lines([head, display(words, style=WARN)])


def line_content(shown: Line | None, review: Review, now: datetime, width: int) -> Content:
    """Return a line of the review whole."""
    if shown is None:
        return Content("")
    if shown.sort is Sort.REASON:
        words = display(reason_words(shown, review), style=STRONG)
        how = "space marks all of it, or none; pinned facts are only marked one by one."
        return joined([[words], [display(how, style=DIM)]], width)
    about = [labelled("why", display(shown.sentence, limit=1_000))]
    about.append(labelled("tokens", fmt.count(shown.tokens)))
    if (record := shown.record) is not None:
        made = f"{fmt.since(record.created_at, now)} by {by_words(record.created_by)}"
        about.append(labelled("added", display(made, limit=200)))
        if record.pinned:
            about.append(labelled("pinned", "⚑ yes, so it is never suggested"))
    return joined([[display(shown.text, keep_newlines=True)], about], width)
