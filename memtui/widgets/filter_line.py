"""The filter line: one input, its history, how many rows match, and under it what it may become.

Under the line stands what completes the term that is being written, else what the line says in
words, or what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.widgets import Input, Static

from memtui.contract import Filter, Invalid
from memtui.filters import parse_filter
from memtui.widgets.display import ACCENT, BAD, DIM, display, line
from memtui.widgets.editor import ForeignInput
from memtui.widgets.filter_words import completed, completions, last_term, understood
from memtui.widgets.keys import bindings_for

PLACEHOLDER = "such as agent:coding,ops -draft since:7d words ~fuzzy"
PAUSE_SECONDS = 0.15
"""How long a person stops writing before the line counts as typed."""


def _ending(word: str) -> str:
    """Return what a completion adds to those before it: the last value, or the field."""
    return word.rpartition(",")[2] if "," in word else word.partition(":")[2] or word


class LineMessage(Message):
    """Tells of a filter line."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line


class FilterLine(Vertical):
    """Takes a filter; posts `Applied` with a line that parses, `Left` when done with it.

    While the person writes and pauses, `Typed` comes with each line that parses. `Entered` comes
    with the cursor: whoever knows values of the fields may put them into `known`.

    `history` is the lines applied before, the newest last. `count` is shown at the right end.
    """

    ACTION_GROUP = "filter"
    BINDINGS = bindings_for("filter")

    count: reactive[str] = reactive("")
    error: reactive[str] = reactive("")
    known: reactive[Mapping[str, Sequence[str]]] = reactive(dict)
    """Values of fields that are offered."""

    class Typed(LineMessage):
        """The line parses as it is now; the person may write on."""

    class Applied(LineMessage):
        """A filter line that parses was entered."""

    class Entered(Message):
        """The cursor came into the line."""

    class Left(Message):
        """The person is done with the line."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.history: tuple[str, ...] = ()
        self._back = 0
        self._draft = ""
        self._pause: Timer | None = None
        self._chosen = Filter()
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        """Gives the moment that spans go back from."""
        self.zone: tzinfo = UTC
        """Where days begin."""

    def compose(self) -> ComposeResult:
        """Lay out the sign, the input, the count and the error."""
        with Horizontal(id="filter-row"):
            yield Static(Content.styled("/", f"bold {ACCENT}"), id="filter-sign")
            yield ForeignInput(placeholder=PLACEHOLDER, compact=True, id="filter-input")
            yield Static(id="filter-count")
        yield Static(id="filter-words")
        yield Static(id="filter-error")

    @property
    def _input(self) -> Input:
        return self.query_one("#filter-input", Input)

    @property
    def _before(self) -> str:
        """What is written up to the cursor."""
        return self._input.value[: self._input.cursor_position]

    def _tell(self) -> None:
        """Show what the term may become while it is being written, and what the line says."""
        place, is_written = self.query_one("#filter-words", Static), self._input.has_focus
        words = completions(self._before, self.known) if is_written else []
        said = display(understood(self._chosen, self.zone), limit=400)
        place.display = not self.error and (is_written or bool(said))
        if words and last_term(self._before):
            first = line(Content.styled("tab", ACCENT), display(words[0], limit=80))
            rest = [display(_ending(word), limit=80, style=DIM) for word in words[1:]]
            told = line(first, *rest, gap="  ")
        else:
            told = line(said, *(display(word, style=DIM) for word in words), gap="  ")
        place.update(told, layout=False)  # it is one line, as wide as the screen

    def show_line(self, text: str, chosen: Filter) -> None:
        """Show the filter in force as it is written and read, unless another is being written."""
        if self.is_mounted and not self._input.has_focus:
            self._chosen = chosen
            if self._input.value != text:
                self._input.value = text
                self.error = ""
            self._tell()

    def enter(self) -> None:
        """Put the cursor into the line."""
        self._back, self._draft = 0, self._input.value
        self.screen.set_focus(self._input)

    def watch_known(self) -> None:
        """Offer what is known now."""
        if self.is_mounted:
            self._tell()

    def watch_count(self, before: str, count: str) -> None:
        """Draw the count; it takes other room only where it is longer or shorter."""
        if self.is_mounted:
            drawn, other = display(count, style=DIM), cell_len(before) != cell_len(count)
            self.query_one("#filter-count", Static).update(drawn, layout=other)

    def watch_error(self, error: str) -> None:
        """Show the error under the line, or close the gap."""
        if self.is_mounted:
            place = self.query_one("#filter-error", Static)
            place.update(display(f"✗ {error}" if error else "", limit=400, style=BAD))
            place.display = bool(error)
            self._tell()

    def on_mount(self) -> None:
        """Start without an error line."""
        self.watch_error("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take an old error away while the person writes."""
        event.stop()
        self.error = ""
        if self._input.has_focus:
            self._parsed()
        self._tell()
        self._forget_pause()
        if self._input.has_focus:
            self._pause = self.set_timer(PAUSE_SECONDS, self._paused)

    def on_descendant_focus(self) -> None:
        """Offer what completes the line."""
        self._tell()
        self.post_message(self.Entered())

    def on_descendant_blur(self) -> None:
        """Offer nothing any more."""
        self._tell()

    def _forget_pause(self) -> None:
        if self._pause is not None:
            self._pause.stop()
            self._pause = None

    def _paused(self) -> None:
        if not self._input.has_focus:
            return
        text, wrong = self._parsed()
        if not wrong:
            self.post_message(self.Typed(text))
        elif not completions(self._before, self.known):
            self.error = wrong

    def _parsed(self) -> tuple[str, str]:
        """Return what is written, and what is wrong with it; what it says is kept."""
        text, self._chosen = self._input.value.strip(), Filter()
        try:
            self._chosen = parse_filter(text, now=self.clock(), zone=self.zone)
        except Invalid as error:
            return text, str(error)
        return text, ""

    @on(Input.Submitted)
    def action_apply(self, event: Input.Submitted | None = None) -> None:
        """Apply the line if it parses, else say what is wrong with it."""
        if event is not None:
            event.stop()
        self._forget_pause()
        text, self.error = self._parsed()
        if not self.error:
            self.post_message(self.Applied(text))
            self.post_message(self.Left())

    def action_leave(self) -> None:
        """Clear the line and its filter; leave it if it is empty already."""
        if self._input.value:
            self._input.value = ""
            self._forget_pause()
            self.post_message(self.Applied(""))
        else:
            self.post_message(self.Left())

    def action_complete(self) -> None:
        """Take the first word that completes the term; without one, leave the line."""
        before, after = self._before, self._input.value[self._input.cursor_position :]
        words = completions(before, self.known) if last_term(before) else []
        if not words:
            self.post_message(self.Left())
            return
        written = completed(before, words[0])
        self._input.value = written + after.removeprefix(" ")
        self._input.cursor_position = len(written)

    def action_previous(self) -> None:
        """Show the filter used before."""
        self._step(1)

    def action_next(self) -> None:
        """Show the filter used after, and at last what was being written."""
        self._step(-1)

    def _step(self, by: int) -> None:
        back = min(max(self._back + by, 0), len(self.history))
        if back == self._back:
            return
        if self._back == 0:
            self._draft = self._input.value
        self._back = back
        self._input.value = self.history[-back] if back else self._draft
        self._input.cursor_position = len(self._input.value)
