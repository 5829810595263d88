"""The editor of an SQL statement, with completions."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from memtui.presenters import format as fmt
from memtui.screens.base import ServiceScreen, frame_of
from memtui.screens.dialogs import READING, Choice, Choose, Prompt, Sheet
from memtui.screens.kept import SavedStatement, checked_name, load_named, save_named
from memtui.screens.views import delete, rename
from memtui.widgets.background import Background
from memtui.widgets.detail_lines import heading
from memtui.widgets.display import ACCENT, DIM, display, hanging, line, lines
from memtui.widgets.editor import ForeignTextArea
from memtui.widgets.keys import bindings_for
from memtui.widgets.panes import Drawn

_KEYWORDS = """
SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET HAVING JOIN LEFT INNER FULL CROSS SEMI ANTI ON USING
AS AND OR NOT IN IS NULL LIKE ILIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT WITH RECURSIVE UNION
ALL EXCEPT INTERSECT DESC ASC NULLS FIRST LAST INTERVAL OVER PARTITION QUALIFY FILTER EXCLUDE
REPLACE VALUES DESCRIBE SUMMARIZE EXISTS TRUE FALSE CAST DATE TIMESTAMP
"""
_FUNCTIONS = """
count sum avg min max median quantile_cont mode stddev any_value arg_max arg_min list string_agg
bool_and bool_or count_if histogram approx_count_distinct date_trunc date_part date_diff strftime
now age epoch epoch_ms extract coalesce nullif greatest least round floor ceil abs ln log sqrt pow
lower upper trim length contains starts_with substr replace split_part regexp_matches
regexp_extract regexp_replace concat concat_ws json_extract_string json_extract json_array_length
unnest range generate_series row_number rank dense_rank lag lead first_value last_value ntile
to_seconds to_minutes to_hours to_days if typeof
"""
KEYWORDS = tuple(_KEYWORDS.split())
FUNCTIONS = tuple(_FUNCTIONS.split())
EXAMPLE = """\
-- ctrl+r runs this example; write, and it makes room for yours
SELECT date_trunc('day', started_at) AS day, agent_id,
       count(*) AS operations, round(sum(cost_usd), 6) AS cost_usd
FROM operations
WHERE started_at > now() - INTERVAL 7 DAY
GROUP BY ALL ORDER BY day DESC, operations DESC"""

_WORD = re.compile(r"[A-Za-z_][\w.]*\Z|\Z")
_SOURCE = re.compile(r"\b(?:from|join)\s+(\w+)(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE)
_AFTER_SOURCE = re.compile(r"\b(?:from|join)\s+\w*\Z", re.IGNORECASE)
_PLAIN = re.compile(r"'(?:[^']|'')*'|--[^\n]*")
_PIECES = re.compile(r"(?P<note>--.*)|(?P<text>'(?:[^']|'')*'?)|(?P<word>[A-Za-z_]\w*)")
_MOST = 40
_UPPER = frozenset(KEYWORDS)


class Completion(NamedTuple):
    """A completion; `sort` is function, keyword, view, or the view of a column."""

    word: str
    sort: str
    meaning: str = ""

    @property
    def written(self) -> str:
        """The text to insert; a function gets an opening parenthesis."""
        return f"{self.word}(" if self.sort == "function" else self.word


Views = Mapping[str, Sequence[tuple[str, str]]]
"""The columns of each view, each with its meaning."""


def word_before(text: str) -> str:
    """Return the word at the end of `text`; empty in a string or a comment."""
    rest = _PLAIN.sub("", text)
    if "'" in rest or "--" in text.rpartition("\n")[2]:
        return ""
    found = _WORD.search(text)
    return found.group() if found else ""


def completions(views: Views, statement: str, before: str) -> list[Completion]:
    """Return the completions of the word at the end of `before`, the best first.

    Args:
        views: All views.
        statement: The whole statement, for the views that it names.
        before: The statement up to the cursor.
    """
    typed = word_before(before)
    owner, dot, part = typed.rpartition(".")
    sources = _sources(views, statement)
    if dot:
        view = sources.get(owner.casefold(), owner.casefold())
        return _fitting(_columns(views, [view] if view in views else views), part)
    if not typed:
        return []
    named = [Completion(view, "view") for view in views]
    if _AFTER_SOURCE.search(before):
        return _fitting(named, typed)
    offered = [
        *_columns(views, dict.fromkeys(sources.values()) or views),
        *named,
        *(Completion(name, "function") for name in FUNCTIONS),
        *(Completion(name, "keyword") for name in KEYWORDS),
    ]
    return _fitting(offered, typed)


def _sources(views: Views, statement: str) -> dict[str, str]:
    """Return the views that a statement reads, by name and by alias."""
    found: dict[str, str] = {}
    for view, alias in _SOURCE.findall(_PLAIN.sub("", statement)):
        if (name := view.casefold()) in views:
            found[name] = name
            if alias and alias.upper() not in _UPPER:
                found[alias.casefold()] = name
    return found


def _columns(views: Views, chosen: Iterable[str]) -> list[Completion]:
    named: dict[str, Completion] = {}
    for view in chosen:
        for name, meaning in views[view]:
            named.setdefault(name, Completion(name, view, meaning))
    return list(named.values())


def _fitting(offered: Iterable[Completion], typed: str) -> list[Completion]:
    """Return completions that begin with the typed text, then those with a part that does."""
    wanted = typed.casefold()
    begin, inside = [], []
    for one in offered:
        name = one.word.casefold()
        if name == wanted and one.sort != "function":
            continue
        if name.startswith(wanted):
            begin.append(one)
        elif wanted and f"_{wanted}" in name:
            inside.append(one)
    return [*begin, *inside][:_MOST]


def emphasised(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and style of each keyword, string and comment of a line."""
    styles = {"note": "dim italic", "text": "italic"}
    found = []
    for piece in _PIECES.finditer(text):
        sort = piece.lastgroup or ""
        if sort == "word" and piece.group().upper() in _UPPER:
            found.append((*piece.span(), "bold"))
        elif sort in styles:
            found.append((*piece.span(), styles[sort]))
    return found


_LEAST = 2
"""Letters after which completions show automatically."""
_SHOWN = 8


class Completions(OptionList, can_focus=False):
    """The list of completions, below the cursor."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, compact=True, markup=False)
        self.words: tuple[Completion, ...] = ()
        self.moved = False

    def offer(self, words: Sequence[Completion], place: Offset) -> None:
        """Show completions at a position of the screen; an empty list hides it."""
        self.words = tuple(words)
        self.moved = False
        self.display = bool(words)
        self.clear_options()
        if not words:
            return
        wide = max(len(one.word) for one in words)
        self.add_options(
            [
                Option(line(f"{one.word:<{wide}}", display(_note(one), limit=48, style=DIM)))
                for one in words
            ]
        )
        self.highlighted = 0
        self.styles.height = min(_SHOWN, len(words))
        self.absolute_offset = place

    def step(self, by: int) -> None:
        """Move the highlight."""
        self.highlighted = ((self.highlighted or 0) + by) % len(self.words)
        self.moved = True

    @property
    def chosen(self) -> Completion | None:
        """The highlighted completion."""
        return self.words[self.highlighted] if self.words and self.highlighted is not None else None


def _note(one: Completion) -> str:
    return f"{one.sort}: {one.meaning}" if one.meaning else one.sort


class SqlEditor(ForeignTextArea):
    """Edits one statement.

    While completions show, `tab` takes the highlighted one, the arrows move the highlight, `enter`
    takes it once it was moved, and `escape` hides them.
    """

    ACTION_GROUP = "sql"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("sql")

    class Run(Message):
        """The person asked to run the statement."""

    class Left(Message):
        """The person asked to stop a running statement, else to go to the rows."""

    def __init__(self, offered: Completions, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(EXAMPLE, id=id, soft_wrap=True, show_line_numbers=True)
        self.views: Views = {}
        self._offered = offered
        self._by_hand = False
        self._earlier: list[str] = []
        """Statements run before, the newest first."""
        self._learning = Background(self, "sql-words")

    def on_mount(self) -> None:
        """Select the example, so that typing replaces it."""
        self.select_all()

    def get_line(self, line_index: int) -> Text:
        """Return a line with keywords, strings and comments emphasised."""
        text = super().get_line(line_index)
        for start, end, style in emphasised(text.plain):
            text.stylize(style, start, end)
        return text

    def put(self, statement: str) -> None:
        """Replace the statement."""
        self._by_hand = False
        self.load_text(statement)
        self.move_cursor(self.document.end)
        self._close()

    def take(self) -> str:
        """Return the statement, and remember it as run."""
        statement = self.text.strip()
        if statement:
            others = [one for one in self._earlier if one != statement]
            self._earlier = [statement, *others]
        return statement

    def on_focus(self) -> None:
        """Read the views for completion."""
        if not self.views:
            self._learning.latest(read_views, self._learn, frame_of(self).fail)

    def _learn(self, views: Views) -> None:
        self.views = views

    async def on_event(self, event: events.Event) -> None:
        """Let the shown completions handle a key before the editor does."""
        if isinstance(event, events.Key):
            if self._offered.display and self._with_words(event.key):
                return
            self._by_hand = event.is_printable or event.key == "backspace"
        await super().on_event(event)

    def _with_words(self, key: str) -> bool:
        """Handle a key of the completions; return whether it was one."""
        if key in {"up", "down"}:
            self._offered.step(1 if key == "down" else -1)
        elif key == "tab" or (key == "enter" and self._offered.moved):
            self._take()
        elif key == "escape":
            self._close()
        else:
            return False
        return True

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Show completions of the word that is being typed."""
        event.stop()
        typed = word_before(self._before)
        if self._by_hand and (len(typed) >= _LEAST or typed.endswith(".")):
            self._offer()
        else:
            self._close()

    def on_text_area_selection_changed(self) -> None:
        """Hide the completions when the cursor leaves the word."""
        if self._offered.display and not word_before(self._before):
            self._close()

    def on_blur(self) -> None:
        """Hide the completions."""
        self._close()

    @property
    def _before(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def _offer(self) -> None:
        before = self._before
        words = completions(self.views, self.text, before)
        typed = word_before(before).rpartition(".")[2]
        place = self.cursor_screen_offset - (len(typed) + 1, -1)
        self._offered.offer(words, place)

    def _close(self) -> None:
        self._offered.offer((), Offset())

    def _take(self) -> None:
        chosen = self._offered.chosen
        if chosen is None:
            return
        row, column = self.cursor_location
        typed = word_before(self._before).rpartition(".")[2]
        self._by_hand = False
        self.replace(chosen.written, (row, column - len(typed)), (row, column))
        self._close()

    def action_complete(self) -> None:
        """Show completions at the cursor."""
        self._offer()

    def action_run(self) -> None:
        """Run the statement."""
        self._close()
        self.post_message(self.Run())

    def action_leave(self) -> None:
        """Stop a running statement, or go to the result."""
        self.post_message(self.Left())

    def action_save(self) -> None:
        """Save the statement under a name."""
        frame = frame_of(self)
        frame.talk(keep_statement(frame, self.text))

    def action_saved(self) -> None:
        """Open a saved statement, or one run before."""
        frame = frame_of(self)

        def opened(statement: str) -> None:
            self.put(statement)
            frame.set_focus(self)

        frame.talk(choose_statement(frame, tuple(self._earlier), opened))

    def action_views(self) -> None:
        """Show the views and their columns."""

        async def read() -> Drawn:
            views = self.views = await read_views()
            return lambda width: views_content(views, width)

        self.app.push_screen(Sheet("Views", READING, read=read))


async def read_views() -> Views:
    """Return the views and their columns; the import runs in a thread, so that the app goes on."""

    def read() -> Views:
        from memtui.analytics.sql import VIEWS

        return {view: tuple(columns.items()) for view, columns in VIEWS.items()}

    return await asyncio.to_thread(read)


def views_content(views: Views, width: int) -> Content:
    """Return every view with its columns."""
    shown: list[Content] = []
    wide = max((len(name) for columns in views.values() for name, _ in columns), default=0)
    for view, columns in views.items():
        shown.append(heading(view, fmt.counted(len(columns), "column")))
        for name, meaning in columns:
            lead = display(f"  {name:<{wide}}  ", style=ACCENT)
            shown.append(hanging(lead, display(meaning, style=DIM), width))
        shown.append(Content(""))
    return lines(shown[:-1])


@dataclass(frozen=True, slots=True)
class Chosen:
    """A person's choice for a statement; `name` is empty if it is not saved."""

    what: Literal["open", "rename", "delete"]
    statement: str
    name: str = ""


class ChooseQuery(Choose[Chosen]):
    """A dialog to choose a statement, saved or run before, and to rename or delete a saved one."""

    BINDINGS = [
        ("q", "back", "back"),
        ("e", "take('rename')", "rename"),
        ("d,delete", "take('delete')", "delete"),
        ("j", "step(1)", "down"),
        ("k", "step(-1)", "up"),
    ]
    KEYS = "enter open   e rename   d delete   esc go back"
    NARROWED = False
    NOTHING = "Nothing is saved yet; ctrl+s in the statement keeps it under a name."

    def action_take(self, what: Literal["rename", "delete"]) -> None:
        """Rename or delete a saved statement."""
        one = self.highlighted
        if one is not None and one.name:
            self.dismiss(replace(one, what=what))


async def keep_statement(screen: ServiceScreen, statement: str) -> None:
    """Ask for a name, and save a statement under it; part of a conversation."""
    path = screen.state.paths.queries_file
    prompt = Prompt(
        "Keep the statement as",
        placeholder="cost by agent",
        hint="enter save; replaces one of that name   esc go back",
        check=checked_name,
    )
    if (name := await screen.ask(prompt)) is not None:
        one = SavedStatement(name=checked_name(name), statement=statement)
        await screen.change(lambda: asyncio.to_thread(save_named, path, one))
        screen.toast(f"Kept as {one.name}.")


async def choose_statement(
    screen: ServiceScreen, earlier: Sequence[str], opened: Callable[[str], None]
) -> None:
    """Let a person open a statement, saved or run before; after a rename or delete, ask again."""
    path, names = screen.state.paths.queries_file, list[str]()

    async def choices() -> list[Choice[Chosen]]:
        found = await asyncio.to_thread(load_named, path, SavedStatement)
        names[:] = [one.name for one in found]
        saved = {one.statement for one in found}
        listed = [(one.statement, one.name) for one in found]
        listed += [(text, "") for text in earlier if text not in saved]
        return [
            Choice(Chosen("open", text, name), " ".join(text.split()), name or "run before")
            for text, name in listed
        ]

    while True:
        if (chosen := await screen.ask(ChooseQuery("Statements", choices))) is None:
            return
        if chosen.what == "open":
            opened(chosen.statement)
            return
        one = SavedStatement(name=chosen.name, statement=chosen.statement)
        if chosen.what == "rename":
            kept = await rename(screen, path, one, names)
        else:
            kept = await delete(screen, path, one)
        if kept is None:
            return
