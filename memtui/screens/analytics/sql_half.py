"""The SQL of the Analytics screen: a statement, how it went, and its rows."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from memtui.contract import MemtuiError, NotFound
from memtui.screens.analytics import files
from memtui.screens.analytics.results import (
    ResultRow,
    result_columns,
    row_content,
    sort_key,
)
from memtui.screens.analytics.sql_editor import (
    Completions,
    SqlEditor,
    Words,
    read_words,
    views_content,
)
from memtui.screens.analytics.statements import choose_statement, keep_statement
from memtui.screens.base import frame_of
from memtui.screens.dialogs import READING, Drawn, Sheet
from memtui.screens.exports import Writer
from memtui.screens.list_screen import choose_columns
from memtui.screens.state import ServiceSession
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.detail_lines import SEPARATOR
from memtui.widgets.display import BAD, DIM, WARN, display, line
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import ColumnsAsked, Opened, SortAsked, VirtualList

_LINE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_NEAR = re.compile(r'(?:at or near|at) "(.+)"')


def place_of(statement: str, written: str, error: MemtuiError) -> tuple[int, int] | None:
    """Return the line and column, from 0, in what is written, at which an error was found.

    None where it is not known, or something else is written by now.
    """
    start = written.find(statement)
    if start < 0 or not statement:
        return None
    found = _LINE.search(str(error.__cause__ or ""))
    if found is not None and not found[2].startswith("..."):
        row = int(found[1]) - 1
        column = len(found[3]) - len(f"LINE {found[1]}: ")
    else:
        near = _NEAR.search(str(error))
        if near is None or statement.count(near[1]) != 1:
            return None
        before = statement[: statement.index(near[1])]
        row, column = before.count("\n"), len(before.rpartition("\n")[2])
    if row < 0 or column < 0:
        return None
    lead = written[:start]
    return row + lead.count("\n"), column + (len(lead.rpartition("\n")[2]) if row == 0 else 0)


_TICK_SECONDS = 0.25


class Result(NamedTuple):
    """What a statement returned, and how long it took in seconds."""

    statement: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    seconds: float


class SqlHalf(Container):
    """Runs a person's statements; one at a time."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._completions = Completions(id="sql-completions")
        self._rows: AppendedRows[ResultRow] = AppendedRows(lambda row: str(row.place))
        self._result: Result | None = None
        self._earlier: list[str] = []
        self._first = 0
        self._session: ServiceSession | None = None
        """Where the last statement was asked."""
        self._began: float | None = None
        self._stopping = False
        self._asking = Background(self, "sql")
        self._learning = Background(self, "sql-words")

    def compose(self) -> ComposeResult:
        """Lay out statement, status and rows."""
        yield SqlEditor(self._completions, id="sql-editor")
        yield Static(id="sql-status")
        rows: VirtualList[ResultRow] = VirtualList((), self._rows, name="sql-rows")
        rows.notice = (
            "ctrl+r runs the statement.",
            "ctrl+o opens a saved one, f2 shows the views, esc leaves it.",
        )
        yield rows
        yield self._completions

    def on_mount(self) -> None:
        """Begin to keep the time of what runs."""
        self._completions.display = False
        self.set_interval(_TICK_SECONDS, self._tick)

    @property
    def _editor(self) -> SqlEditor:
        return self.query_one(SqlEditor)

    @property
    def _list(self) -> VirtualList[ResultRow]:
        found: VirtualList[ResultRow] = self.query_one("#sql-rows", VirtualList)
        return found

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(frame_of(self).state.zone_name)

    def how(self, width: int) -> Content:
        """Return how the result reads."""
        del width
        return display(f"times in {frame_of(self).state.zone_name}", style=DIM)

    @property
    def running(self) -> bool:
        """Whether a statement runs."""
        return self._began is not None

    def enter(self) -> None:
        """Go to the statement, and learn what completes it."""
        self.screen.set_focus(self._editor)
        if not self._editor.words.views:
            self._learning.latest(read_words, self._learned, frame_of(self).fail)

    def give(self, statement: str) -> None:
        """Begin with another statement."""
        self._editor.put(statement)

    def forget(self) -> None:
        """Let go of the result, which is another company's, and of what still runs."""
        self.stop()
        self._asking.forget()
        self._began, self._result = None, None
        self._rows.replace(())
        self._list.columns = ()
        self._list.show(self._rows)
        self._say(Content(""))

    def stop(self) -> None:
        """Stop the running statement without waiting for its end."""
        session = self._session
        if self.running and session is not None:
            session.service.analysis.cancel_sql(session.caller)

    def on_unmount(self) -> None:
        """Let nobody wait for a statement when the app is left."""
        self.stop()

    def _learned(self, words: Words) -> None:
        self._editor.words = words

    # Running.

    @on(SqlEditor.Asked)
    def _asked(self, event: SqlEditor.Asked) -> None:
        event.stop()
        doing = {
            "run": self.run_statement,
            "leave": self._leave,
            "save": self.save,
            "saved": self.show_saved,
            "views": self.show_views,
        }
        if event.verb in doing:
            doing[event.verb]()

    def run_statement(self) -> None:
        """Run what is written."""
        if self.running:
            frame_of(self).toast("A statement is running; esc stops it.", severity="warning")
            return
        session, zone = frame_of(self).session, frame_of(self).state.zone_name
        statement = self._editor.text.strip()
        if statement:
            self._earlier = [one for one in self._earlier if one != statement]
            self._earlier.insert(0, statement)

        async def run() -> Result:
            began = time.perf_counter()
            found = await session.service.analysis.sql(session.caller, statement, zone=zone)
            seconds = time.perf_counter() - began
            return Result(
                statement, found.columns, found.types, found.rows, found.truncated, seconds
            )

        self._session, self._began, self._stopping = session, time.monotonic(), False
        self._tick()
        self._asking.latest(run, self._show, lambda error: self._failed(statement, error))

    def cancel(self) -> bool:
        """Stop the running statement; False where none runs."""
        if not self.running:
            return False
        self._stopping = True
        self._tick()
        return True

    def _tick(self) -> None:
        if self._began is None:
            return
        if self._stopping:
            # A statement that has not quite begun cannot be stopped yet; so ask until it is.
            self.stop()
        seconds = int(time.monotonic() - self._began)
        words = f"… running {seconds} s" if not self._stopping else "… stopping"
        self._say(line(display(words), display("esc stops it", style=DIM), gap="   "))

    def _show(self, result: Result) -> None:
        self._began, self._result, self._first = None, result, 0
        rows = [ResultRow(place, values) for place, values in enumerate(result.rows)]
        self._rows.replace(rows)
        listed = self._list
        listed.columns = result_columns(result.columns, result.types, rows, self._zone)
        listed.hidden, listed.wider, listed.sort = frozenset(), {}, None
        listed.notice = ("No row.", "The statement is right; nothing fits it.")
        listed.show(self._rows)
        listed.go_to(0)
        self._draw_status()

    def _failed(self, statement: str, error: MemtuiError) -> None:
        self._began = None
        place = place_of(statement, self._editor.text, error)
        sentence = str(error)
        if place is not None:
            where = f"line {place[0] + 1}, column {place[1] + 1}"
            sentence = f"{sentence.rstrip('.!')}, at {where}."
            self._editor.point_at(*place)
        self._say(display(f"✗ {sentence}", limit=600, style=BAD))

    def _draw_status(self) -> None:
        result = self._result
        if result is None:
            return
        counts = [
            fmt.counted(len(result.rows), "row"),
            fmt.counted(len(result.columns), "column"),
            fmt.duration(result.seconds * 1_000),
        ]
        cut = "there are more rows; narrow it down" if result.truncated else ""
        behind = f"columns from {self._first + 1} on" if self._first else ""
        self._say(
            line(
                display(f"✓ {SEPARATOR.join(counts)}"),
                display(f"▲ {cut}" if cut else "", style=WARN),
                display(behind, style=DIM),
                gap="   ",
            )
        )

    def _say(self, content: Content) -> None:
        self.query_one("#sql-status", Static).update(content)

    # The rows.

    def move(self, by: int) -> None:
        """Show the columns further right or left."""
        result = self._result
        if result is not None and result.columns:
            self._first = max(0, min(self._first + by, len(result.columns) - 1))
            self._list.hidden = frozenset(map(str, range(self._first)))
            self._list.refresh()
            self._draw_status()

    @on(SortAsked)
    def _sort(self, event: SortAsked) -> None:
        listed, place = self._list, int(event.column)
        shown = listed.sort
        descending = not shown[1] if shown is not None and shown[0] == event.column else False
        listed.sort = (event.column, descending)
        rows = [row for _, row in self._rows.held()]
        known = [row for row in rows if row.values[place] is not None]
        known.sort(key=sort_key(place), reverse=descending)
        self._rows.replace([*known, *(row for row in rows if row.values[place] is None)])
        listed.rows_changed()

    @on(ColumnsAsked)
    def _choose_columns(self) -> None:
        if self._list.columns:
            choose_columns(frame_of(self), self._list)

    @on(Opened)
    def _open_row(self) -> None:
        row, result, zone = self._list.current, self._result, self._zone
        if row is not None and result is not None:
            self.app.push_screen(
                Sheet(
                    f"Row {fmt.count(row.place + 1)}",
                    lambda width: row_content(result.columns, row, zone, width),
                )
            )

    def copy(self) -> None:
        """Copy the row under the cursor as JSON."""
        row, result = self._list.current, self._result
        if row is None or result is None:
            raise NotFound("There is no row to copy.")
        named = dict(zip(result.columns, map(files.json_value, row.values), strict=True))
        frame_of(self).copy(json.dumps(named, indent=1, ensure_ascii=False), "Copied the row.")

    def back(self) -> None:
        """Stop a running statement, else go to it."""
        if not self.cancel():
            self.screen.set_focus(self._editor)

    def _leave(self) -> None:
        if not self.cancel():
            self._list.focus()

    @property
    def export_words(self) -> str:
        """What an export would hold."""
        if self._result is None:
            raise NotFound("There is no result to export; ctrl+r runs the statement.")
        return f"Export {fmt.counted(len(self._result.rows), 'row')} to"

    def writer(self, path: Path) -> Writer:
        """Return what writes the result."""
        result = self._result
        if result is None:
            raise NotFound("There is no result to export; ctrl+r runs the statement.")
        table = files.Table(result.columns, result.types, result.rows)

        async def write(*, overwrite: bool) -> str:
            rows = await asyncio.to_thread(files.write_table, path, table, overwrite=overwrite)
            return f"Wrote {fmt.counted(rows, 'row')} to {path}."

        return write

    # Statements with a name, and the views.

    def save(self) -> None:
        """Keep the statement under a name."""
        screen = frame_of(self)
        screen.talk(keep_statement(screen, self._editor.text))

    def show_saved(self) -> None:
        """Choose a saved statement, or one run before."""
        screen = frame_of(self)
        screen.talk(choose_statement(screen, tuple(self._earlier), self._open))

    def _open(self, statement: str) -> None:
        self._editor.put(statement)
        self.screen.set_focus(self._editor)

    def show_views(self) -> None:
        """Show the views and their columns."""

        async def read() -> Drawn:
            words = self._editor.words = await read_words()
            return lambda width: views_content(words, width)

        self.app.push_screen(Sheet("Views", READING, read=read))
