"""The views that a statement reads, for completion and for a person."""

from __future__ import annotations

import asyncio

from textual.content import Content

from memtui.screens.analytics.words import Words
from memtui.widgets import format as fmt
from memtui.widgets.detail_lines import heading
from memtui.widgets.display import ACCENT, DIM, display, hanging, lines


async def read_words() -> Words:
    """Return the views and their columns, without waiting for what they come from."""

    def read() -> Words:
        from memtui.analytics.sql import VIEWS

        return Words(
            {
                view: tuple((column.name, column.meaning) for column in columns)
                for view, columns in VIEWS.items()
            }
        )

    return await asyncio.to_thread(read)


def views_content(words: Words, width: int) -> Content:
    """Return every view with its columns."""
    shown: list[Content] = []
    wide = max((len(name) for columns in words.views.values() for name, _ in columns), default=0)
    for view, columns in words.views.items():
        shown.append(heading(view, fmt.counted(len(columns), "column")))
        for name, meaning in columns:
            lead = display(f"  {name:<{wide}}  ", style=ACCENT)
            shown.append(hanging(lead, display(meaning, style=DIM), width))
        shown.append(Content(""))
    return lines(shown[:-1])
