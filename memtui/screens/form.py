"""A form over a screen: named fields, what helps with each or is wrong, and two buttons.

For whoever writes one. Derive from `Form` and give `rows()` and `action_submit()`, which takes what
is written or says with `refused` what is wrong; nothing that was written is lost by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

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
"""Lines of frame, title, buttons and keys, and the blanks between them."""
_AROUND_FLAT = 3
"""Lines of title, buttons and keys alone."""
_AROUND_LOW = 2
"""Lines of title and keys, where `ctrl+s` is the only way on."""
_WIDEST = 120
_BESIDE = 6
"""Cells of the frame and the blanks at both sides."""


class FieldRow(Vertical):
    """One field: its name, what it is written in, and what helps or is wrong.

    The name is drawn beside the widget, or above it, in the blank that the styles leave there, and
    what helps below it: a form has many fields, and widgets for both would be half of what opening
    it takes.
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
        """What helps or is wrong, in lines for that width."""

    def compose(self) -> ComposeResult:
        """Lay the field out."""
        yield self.widget

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines of the widget, and of what is said below it."""
        return super().get_content_height(container, viewport, width) + len(self._below(width))

    def _below(self, width: int) -> list[Content]:
        """Return the lines of what helps or is wrong."""
        indent, said = self.widget.styles.margin.left, self._wrong or self._help
        asked = said, indent, width
        if asked != self._drawn_for:  # each layout asks several times
            self._drawn_for = asked
            # Nothing wraps to a line of its own.
            wrapped = said.wrap(max(1, width - indent - 1)) if said else []
            self._drawn = [one.pad_left(indent) for one in wrapped]
        return self._drawn

    def render(self) -> Content:
        """Draw the name, what a switch says, and what helps or is wrong."""
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
        """What is written, as a draft holds it."""
        widget = self.widget
        if isinstance(widget, Select):
            return None if widget.is_blank() else widget.value
        return widget.value if isinstance(widget, (Input, Switch)) else None

    def say(self, wrong: str = "") -> None:
        """Say what is wrong with the field, else what helps; and what a switch says."""
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
        """Begin with `go` on the button that goes on, and sentences on what is asked."""
        super().__init__(title, _keys(go))
        self._go = go
        self._about = about
        self._said = Content("")
        self._refused = False
        """Whether it says what is wrong."""

    def rows(self) -> Iterator[FieldRow]:
        """Yield the fields."""
        raise NotImplementedError

    def action_submit(self) -> None:
        """Take what is written, or say what is wrong."""
        raise NotImplementedError

    def body(self) -> ComposeResult:
        """Yield the fields, what was said of all of them, and the buttons."""
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
        """What is written, by field."""
        return {name: row.value for name, row in self.fields.items()}

    def on_mount(self) -> None:
        """Be as high as the fields need from the start."""
        self.on_resize()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take back what was said of another text."""
        self._changed(event.input)

    def on_switch_changed(self, event: Switch.Changed) -> None:
        """Take back what was said of another value."""
        self._changed(event.switch)

    def on_select_changed(self, event: Select.Changed) -> None:
        """Take back what was said of another value."""
        self._changed(event.select)

    def _changed(self, widget: Widget) -> None:
        if isinstance(row := widget.parent, FieldRow):
            row.say()
        if self._refused:
            self.say(Content(""), self._go)
        self.changed()

    def changed(self) -> None:
        """Take note that something else is written now."""

    def on_input_submitted(self) -> None:
        """Go on from any field."""
        self.action_submit()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Go on or back."""
        if event.button.id == "form-go":
            self.action_submit()
        else:
            self.action_back()

    def failed(self, error: MemtuiError) -> None:
        """Say why what is written cannot be taken, at the fields too that the error names."""
        fields = getattr(error, "fields", {})
        self.refused("The settings do not fit." if fields else str(error), fields)

    def refused(self, sentence: str, wrong: Mapping[str, str]) -> None:
        """Say what is wrong, at the fields too, and go to the first of them."""
        self.say(display(f"✗ {sentence}", limit=600, style=BAD), self._go)
        self._refused = True
        rows = [row for row in self.query(FieldRow) if row.field in wrong]
        for row in rows:
            row.say(wrong[row.field])
        if rows:
            rows[0].widget.focus(scroll_visible=False)
            self.call_after_refresh(rows[0].scroll_visible, animate=False)

    def say(self, words: Content, go: str) -> None:
        """Say something of all that is written, and what the button does next."""
        self._said, self._refused = words, False
        self.query_one(".dialog-error", Static).update(words)
        self.query_one("#form-go", Button).label = go
        self.query_one(KeyLine).say(_keys(go))
        self.on_resize()

    def on_resize(self) -> None:
        """Be as high as the fields, and leave room for what is around them where they are many."""
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
