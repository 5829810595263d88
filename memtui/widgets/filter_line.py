"""The filter line: an input with history, the number of matching rows, and a line of help.

The help shows completions of the term that is being written, else the filter in words, or its
error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.widgets import Input

from memtui.contract import Filter, Invalid
from memtui.filters import parse_filter
from memtui.presenters.filter_words import completed, completions, last_term, understood
from memtui.widgets.display import ACCENT, BAD, DIM, display, line, lines
from memtui.widgets.editor import ForeignInput
from memtui.widgets.frame import FILTER_PLACEHOLDER
from memtui.widgets.keys import bindings_for

PAUSE_SECONDS = 0.15
"""Pause in typing after which `Typed` is posted or the error is shown."""
_SIGN = Content.styled("/", f"bold {ACCENT}")
_INDENT = 2
_GAP = 2
_MOST_WRONG = 3
"""Most lines of an error."""


def _ending(word: str) -> str:
    """Return the new part of a completion: its last value, or its field."""
    return word.rpartition(",")[2] if "," in word else word.partition(":")[2] or word


@dataclass
class LineMessage(Message):
    """A message with the text of a filter line."""

    line: str


class FilterLine(Vertical):
    """Takes a filter; posts `Applied` with a line that parses, and `Left` when the person is done.

    At each pause in typing it posts `Typed` if the line parses. It posts `Entered` when it gets the
    focus, so that the owner can set `known`.

    `history` has the lines applied before, the newest last. `count` is shown at the right end.
    """

    ACTION_GROUP = "filter"
    BINDINGS = bindings_for("filter")

    count: reactive[str] = reactive("")
    error: reactive[str] = reactive("")
    words: reactive[Content | None] = reactive(None)
    """Help below the line; None: there is none, and it takes no room."""
    known: reactive[Mapping[str, Sequence[str]]] = reactive(dict)
    """Values to offer, by field."""

    class Typed(LineMessage):
        """The person paused, and the line parses."""

    class Applied(LineMessage):
        """A filter line that parses was entered."""

    class Entered(Message):
        """The line got the focus."""

    class Left(Message):
        """The person is done with the line."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.history: tuple[str, ...] = ()
        self._back = 0
        self._draft = ""
        self._pause: Timer | None = None
        self._chosen = Filter()
        self._applied = self._posted = ""
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        """Returns now, from which spans such as `7d` count."""
        self.zone: tzinfo = UTC
        """Time zone of days."""

    def compose(self) -> ComposeResult:
        """Lay out the input; `render` draws the rest, as each further widget costs a layout."""
        yield ForeignInput(placeholder=FILTER_PLACEHOLDER, compact=True, id="filter-input")

    def render(self) -> Content:
        """Draw the sign and the count around the input, and the help below it."""
        width = self.content_size.width
        count = self._count(width)
        between = max(0, width - 1 - count.cell_length)
        return lines([line(_SIGN, count, gap=" " * between), *self._below(width)])

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return one line, and the lines of the help."""
        del container, viewport
        return 1 + len(self._below(width))

    def _below(self, width: int) -> list[Content]:
        """Return the lines of the error, else of the help."""
        room = max(1, width - 2 * _INDENT)
        said = []
        if self.error:
            said = display(f"✗ {self.error}", limit=400, style=BAD).wrap(room)[:_MOST_WRONG]
        elif self.words is not None:
            said = [self.words.truncate(room, ellipsis=True)]
        return [one.pad_left(_INDENT) for one in said]

    def _count(self, width: int) -> Content:
        return display(self.count, style=DIM).truncate(width * 7 // 10, ellipsis=True)

    def _make_room(self) -> None:
        """Let the input end before the count."""
        count = self._count(self.content_size.width).cell_length
        self._input.styles.margin = (0, count and count + _GAP, 0, _INDENT)

    def on_resize(self) -> None:
        """Make room for the count in the new width."""
        self._make_room()

    @property
    def _input(self) -> Input:
        return self.query_one("#filter-input", Input)

    @property
    def _before(self) -> str:
        """The text up to the cursor."""
        return self._input.value[: self._input.cursor_position]

    def _tell(self) -> None:
        """Show completions while a term is being written, else the filter in words."""
        is_written = self._input.has_focus
        words = completions(self._before, self.known) if is_written else []
        said = display(understood(self._chosen, self.zone), limit=400)
        if words and last_term(self._before):
            first = line(Content.styled("tab", ACCENT), display(words[0], limit=80))
            rest = [display(_ending(word), limit=80, style=DIM) for word in words[1:]]
            shown = line(first, *rest, gap="  ")
        else:
            shown = line(said, *(display(word, style=DIM) for word in words), gap="  ")
        self.words = shown if is_written or said else None

    def show_line(self, text: str, chosen: Filter) -> None:
        """Show the filter in force, unless the person is writing another."""
        if text != self._applied:  # else what was typed since then is still shown by the owner
            self._applied = self._posted = text
        if self.is_mounted and not self._input.has_focus:
            self._chosen = chosen
            if self._input.value != text:
                self._input.value = text
                self.error = ""
            self._tell()

    def take(self, text: str) -> None:
        """Show a filter that came into force, also over another that is being written.

        It was chosen later, such as in the palette; else leaving the line would undo the choice.
        """
        if self.is_mounted and text != self._applied:
            self._applied = self._posted = self._input.value = text

    def enter(self) -> None:
        """Focus the line, and start its history from the newest."""
        self._back, self._draft = 0, self._input.value
        self.screen.set_focus(self._input)

    def watch_known(self) -> None:
        """Update the completions."""
        if self.is_mounted:
            self._tell()

    def watch_count(self) -> None:
        """Make room for the count."""
        if self.is_mounted:
            self._make_room()

    def watch_error(self) -> None:
        """Lay out again, since lines come or go."""
        self.refresh(layout=True)

    def watch_words(self, before: Content | None, words: Content | None) -> None:
        """Lay out again where the help comes or goes."""
        if (before is None) != (words is None):
            self.refresh(layout=True)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Clear the old error, update the help, and wait for a pause."""
        event.stop()
        self.error = ""
        if self._input.has_focus:
            self._parsed()
        self._tell()
        self._forget_pause()
        if self._input.has_focus:
            self._pause = self.set_timer(PAUSE_SECONDS, self._paused)

    def on_descendant_focus(self) -> None:
        """Show completions, and post `Entered`."""
        self._tell()
        self.post_message(self.Entered())

    def on_descendant_blur(self) -> None:
        """Apply the line, however it was left, and hide the completions.

        If it does not parse, the filter in force is applied again.
        """
        self._forget_pause()
        if self.app.app_focus:  # else the terminal lost the focus, and the person comes back
            text, self.error = self._parsed()
            self._apply(self._applied if self.error else text)
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
            self._posted = text
            self.post_message(self.Typed(text))
        elif not completions(self._before, self.known):
            self.error = wrong

    def _parsed(self) -> tuple[str, str]:
        """Parse the line into `_chosen`; return its text and its error, empty if it parses."""
        text, self._chosen = self._input.value.strip(), Filter()
        try:
            self._chosen = parse_filter(text, now=self.clock(), zone=self.zone)
        except Invalid as error:
            return text, str(error)
        return text, ""

    @on(Input.Submitted)
    def action_apply(self, event: Input.Submitted | None = None) -> None:
        """Apply the line if it parses, else show its error."""
        if event is not None:
            event.stop()
        self._forget_pause()
        text, self.error = self._parsed()
        if not self.error:
            self._apply(text)
            self.post_message(self.Left())

    def action_leave(self) -> None:
        """Leave and apply the line; if it does not parse, the filter in force stays."""
        if self._parsed()[1]:
            self._input.value = self._applied
        self.post_message(self.Left())

    def clear(self) -> None:
        """Clear the line and its filter, also while it is being written.

        `Applied` is posted even if no filter is in force: one may be on its way to the owner.
        """
        self._input.value = ""
        self._forget_pause()
        self._applied = self._posted = ""
        self.post_message(self.Applied(""))

    def _apply(self, text: str) -> None:
        if text != self._applied or text != self._posted:
            self._applied = self._posted = text
            self.post_message(self.Applied(text))

    def action_complete(self) -> None:
        """Take the first completion, if there is one.

        The line keeps the focus without one too: the next letters would be commands elsewhere.
        """
        before, after = self._before, self._input.value[self._input.cursor_position :]
        words = completions(before, self.known) if last_term(before) else []
        if not words:
            return
        written = completed(before, words[0])
        self._input.value = written + after.removeprefix(" ")
        self._input.cursor_position = len(written)

    def action_previous(self) -> None:
        """Show the previous filter of the history."""
        self._step(1)

    def action_next(self) -> None:
        """Show the next filter of the history, and after the newest the text being written."""
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
