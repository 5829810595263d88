"""A form dialog: named fields, each with a hint or an error, and two buttons.

For the author of a form. Derive from `Form` and implement `rows()` and `action_submit()`, which
accepts the input, or shows errors with `refused`; the input stays in the fields then.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Button, Input, Select, Static, Switch

from memtui.contract import MemtuiError
from memtui.screens.dialogs import HIGH, LOW, TALL, Dialog, KeyLine
from memtui.widgets.display import BAD, DIM, display, lines

T = TypeVar("T")

_AROUND = 10
"""Lines of frame, title, buttons and keys, with the blank lines between them."""
_AROUND_FLAT = 3
"""Lines of title, buttons and keys on a low terminal."""
_AROUND_LOW = 2
"""Lines of title and keys on a very low terminal, where only `ctrl+s` submits."""
_WIDEST = 120
_BESIDE = 6
"""Cells of the frame and the margins at both sides."""


class FieldRow(Vertical):
    """One field: its name, its widget, and a hint or an error.

    Name and hint are drawn around the widget, in the space that the styles leave. Separate widgets
    for them would take half of the time to open a form.
    """

    def __init__(self, name: str, label: str, widget: Widget, help: Content) -> None:  # noqa: A002
        super().__init__(classes="form-field")
        self.field = name
        self.widget = widget
        self._label = label
        self._help = help
        self._wrong = Content("")
        self._drawn_for: tuple[Content, int, int] | None = None
        self._drawn: list[Content] = []
        """The hint or error, wrapped for that width."""

    def compose(self) -> ComposeResult:
        """Lay out the widget."""
        yield self.widget

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines of the widget and of the hint or error."""
        return super().get_content_height(container, viewport, width) + len(self._below(width))

    def _below(self, width: int) -> list[Content]:
        """Return the hint or error as lines."""
        indent, said = self.widget.styles.margin.left, self._wrong or self._help
        asked = said, indent, width
        if asked != self._drawn_for:  # each layout asks several times
            self._drawn_for = asked
            # An empty content would wrap to one empty line.
            wrapped = said.wrap(max(1, width - indent - 1)) if said else []
            self._drawn = [one.pad_left(indent) for one in wrapped]
        return self._drawn

    def render(self) -> Content:
        """Draw the name, the word of a switch, and the hint or error."""
        below = self._below(self.content_size.width)
        blank = max(0, self.content_size.height - 1 - len(below))
        return lines([self._first_line(), *[Content("")] * blank, *below])

    def _first_line(self) -> Content:
        name = display(self._label, limit=100, style=DIM)
        room = self.widget.styles.margin.left
        if isinstance(self.widget, Switch):
            word = "yes" if self.value else "no"
            blanks = " " * (self.widget.outer_size.width + 1)
            beside = name.truncate(room, ellipsis=True, pad=True) + blanks
            return (beside if room else name + "  ") + word
        return name.truncate(room - 1, ellipsis=True) if room else name

    @property
    def value(self) -> Any:
        """The present value, as in a draft."""
        widget = self.widget
        if isinstance(widget, Select):
            return None if widget.is_blank() else widget.value
        return widget.value if isinstance(widget, (Input, Switch)) else None

    def say(self, wrong: str = "") -> None:
        """Show an error of the field, or its hint if empty."""
        error = display(wrong and f"✗ {wrong}", limit=400, style=BAD)
        if error != self._wrong:
            self._wrong = error
            self.refresh(layout=True)
        if isinstance(self.widget, Switch):
            self.refresh()


class Form(Dialog[T]):
    """Ask for several values at once; see the module's text."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (HIGH, "-high"), (TALL, "-tall")]
    BINDINGS = [("ctrl+s", "submit", "go on")]
    BOX: ClassVar[str] = "dialog-editor dialog-form"
    THROWN_AWAY = ()

    def __init__(self, title: str, *, go: str, about: tuple[str, ...] = ()) -> None:
        """Set up with `go` on the submit button, and the sentences `about` above the fields."""
        super().__init__(title, _keys(go))
        self._go = go
        self._about = about
        self._said = Content("")
        self._refused = False
        """Whether errors are shown."""

    def rows(self) -> Iterator[FieldRow]:
        """Yield the fields."""
        raise NotImplementedError

    def action_submit(self) -> None:
        """Accept the input, or show its errors."""
        raise NotImplementedError

    def body(self) -> ComposeResult:
        """Yield the fields, the message below them, and the buttons."""
        with VerticalScroll(can_focus=False):
            for words in self._about:
                yield Static(display(words, limit=600, style=DIM), classes="form-about")
            yield from self.rows()
        yield Static(classes="dialog-error")
        with Horizontal(classes="form-buttons"):
            yield Button(self._go, id="form-go", compact=True)
            yield Button("back", id="form-back", compact=True)

    @property
    def fields(self) -> dict[str, FieldRow]:
        """The fields by their names."""
        return {row.field: row for row in self.query(FieldRow)}

    @property
    def values(self) -> dict[str, Any]:
        """The present values, by field."""
        return {name: row.value for name, row in self.fields.items()}

    def on_mount(self) -> None:
        """Set the height from the start."""
        self.on_resize()

    @on(Input.Changed)
    @on(Switch.Changed)
    @on(Select.Changed)
    def _changed(self, event: Input.Changed | Switch.Changed | Select.Changed) -> None:
        """Clear the errors about the earlier value."""
        if event.control and isinstance(row := event.control.parent, FieldRow):
            row.say()
        if self._refused:
            self.say(Content(""), self._go)
        self.changed()

    def changed(self) -> None:
        """React to a changed value."""

    def on_input_submitted(self) -> None:
        """Submit from any field."""
        self.action_submit()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Submit or go back."""
        if event.button.id == "form-go":
            self.action_submit()
        else:
            self.action_back()

    def failed(self, error: MemtuiError) -> None:
        """Show an error, also at the fields that it names."""
        fields = getattr(error, "fields", {})
        self.refused("The settings do not fit." if fields else str(error), fields)

    def refused(self, sentence: str, wrong: Mapping[str, str]) -> None:
        """Show a sentence and the errors of fields, and focus the first of these."""
        self.say(display(f"✗ {sentence}", limit=600, style=BAD), self._go)
        self._refused = True
        rows = [row for row in self.query(FieldRow) if row.field in wrong]
        for row in rows:
            row.say(wrong[row.field])
        if rows:
            rows[0].widget.focus(scroll_visible=False)
            self.call_after_refresh(rows[0].scroll_visible, animate=False)

    def say(self, words: Content, go: str) -> None:
        """Show a message, and set the label of the submit button."""
        self._said, self._refused = words, False
        self.query_one(".dialog-error", Static).update(words)
        self.query_one("#form-go", Button).label = go
        self.query_one(KeyLine).say(_keys(go))
        self.on_resize()

    def on_resize(self) -> None:
        """Limit the height of the fields to the room that the rest of the form leaves."""
        wide, high = self.app.size
        cells = max(1, min(wide * 9 // 10, _WIDEST) - _BESIDE)
        said = sum(max(1, -(-one.cell_length // cells)) for one in self._said.split("\n"))
        if high < LOW:
            around, said = _AROUND_LOW, 1
        elif high < HIGH:
            around = _AROUND_FLAT
        else:
            around = _AROUND + (high // 10 if high >= TALL else 0)
        self.query_one(VerticalScroll).styles.max_height = max(1, high - around - said)


def _keys(go: str) -> str:
    return f"ctrl+s {go}   tab next field   esc go back"
