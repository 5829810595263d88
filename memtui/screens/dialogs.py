"""Short questions over a screen. Each is dismissed with its answer; None: the person went back."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Generic, Literal, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label, OptionList, Static

from memtui.contract import Invalid, MemtuiError, Record, Scope
from memtui.widgets.background import Background, Work
from memtui.widgets.choice_list import ChoiceList
from memtui.widgets.detail_lines import HINT_GAP, diff_lines, key_hint, spread
from memtui.widgets.dimmed import DimmingScreen
from memtui.widgets.display import ACCENT, BAD, DIM, STRONG, WARN, display, line, lines, toast
from memtui.widgets.editor import ForeignInput, ForeignTextArea, OneLineArea
from memtui.widgets.keys import bindings_everywhere
from memtui.widgets.panes import Drawn, Fitted

T = TypeVar("T")

READING = display("… reading", style=DIM)
_CHOICES = 200
"""The most choices drawn at once; typing finds the rest."""
HIGH = 16
"""Terminal lines from which a dialog has padding."""
TALL = 30
"""Terminal lines from which a form has blanks around it and between its fields."""
_FITS = 22
"""Terminal lines from which the field of a text is as high as the text."""
LOW = 8
"""Terminal lines below which a dialog has no frame."""
_AROUND_SHEET = 8
"""Lines of frame, title and keys, and the blanks between them."""
_AROUND_LIST = 10
"""Lines of frame, title, line to type in and keys, and the blanks between them."""
_HIGHEST_LIST = 26
"""Lines that a list with what is around it may take of a low terminal."""
_FEWEST_LINES = 4
"""Lines that a list has at least, as typing may offer more."""
_LIST_CELLS = 66
"""Cells of a line in a list, where there is room for them."""
_AROUND_FLAT_SHEET = 4
"""Lines of frame, title and keys alone."""
_AROUND_LOW_SHEET = 2
"""Lines of title and keys alone."""
_WAITING_SECONDS = 0.3
"""How long `Waiting` waits before it shows itself."""


class KeyLine(Fitted):
    """The keys of a dialog; a line break never splits a key."""

    def __init__(self, keys: str | Content) -> None:
        super().__init__()
        self.add_class("dialog-keys")
        self.say(keys)

    def say(self, keys: str | Content) -> None:
        """Show keys, which blanks part from each other."""
        all_of_them = display(keys, style=DIM) if isinstance(keys, str) else keys
        hints = all_of_them.split(HINT_GAP)
        self.fit(lambda width: all_of_them if self.app.size.height < HIGH else spread(hints, width))


class Dialog(DimmingScreen[T]):
    """A box over the screen; `esc` goes back without an answer.

    A click beside the box does so too, unless it would discard text: the click may be a slip.
    """

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (HIGH, "-high")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_everywhere("tour", "help", "palette"),
        ("escape", "back", "back"),
    ]
    BOX: ClassVar[str] = ""
    """The style class of the box, beside `dialog`."""
    ASKS: ClassVar[bool] = True
    """Whether it asks something; the palette opens once it is answered or left."""
    THROWN_AWAY: ClassVar[tuple[str, ...] | None] = None
    """Arguments of `throw_away` to ask before text is discarded; None: it is discarded unasked."""

    def __init__(self, title: str, keys: str | Content) -> None:
        super().__init__()
        self._title = title
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Lay out title, body and keys."""
        with Vertical(classes=f"dialog {self.BOX}".rstrip()):
            title = display(self._title, limit=600, style=STRONG)
            yield Static(title, classes="dialog-title")
            yield from self.body()
            yield KeyLine(self._keys)

    def body(self) -> ComposeResult:
        """Yield the widgets between title and keys."""
        yield from ()

    def action_back(self) -> None:
        """Go back without an answer, after a yes if text would be discarded."""

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self.dismiss(None)

        if self.THROWN_AWAY is not None and self.is_written:
            self.app.push_screen(throw_away(*self.THROWN_AWAY), answered)
        else:
            self.dismiss(None)

    async def action_everywhere(self, verb: str) -> None:
        """Show help or tour over it, or go back and show a numbered screen or the palette."""
        if verb == "palette" and self.ASKS:
            toast(self.app, "Answer this or leave it with esc; then this key finds every action.")
            return
        if verb.startswith("go_") or verb == "palette":
            self.action_back()
            if self.is_written and self.THROWN_AWAY is not None:
                return  # it asks first
        await self.app.run_action(verb, self.app)

    def on_resize(self) -> None:
        """Drop the frame if question and keys need its lines."""
        self.set_class(self.app.size.height < LOW, "-low")

    @property
    def is_written(self) -> bool:
        """Whether going back would discard text without asking."""
        return False

    @property
    def written(self) -> T:
        """The answer that the current text would give."""
        raise NotImplementedError

    def on_click(self, event: Click) -> None:
        """Go back for a click beside the box."""
        if event.widget is self and not self.is_written:
            self.action_back()

    def refuse(self, sentence: str) -> None:
        """Show why the written answer is refused."""
        self.query_one(".dialog-error", Static).update(display(sentence, style=BAD))


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """A choice in a list: its value, its label, a word at the left, and a sentence below."""

    value: T
    label: str
    detail: str = ""
    sentence: str = ""


def matching(choices: Sequence[Choice[T]], text: str) -> list[Choice[T]]:
    """Return the choices in which every word of `text` occurs, whatever its case."""
    words = text.casefold().split()
    return [
        one
        for one in choices
        if all(word in f"{one.detail} {one.label}".casefold() for word in words)
    ]


class Choose(Dialog[T]):
    """Let a person choose one of a list, narrowing it by typing.

    `choices` may be work that reads them: the dialog opens at once and takes typed text meanwhile.
    `now` is highlighted first. `offer` makes further choices from the typed text, for a value that
    is not in the list.
    """

    BINDINGS = [
        ("down", "step(1)", "down"),
        ("up", "step(-1)", "up"),
        ("ctrl+n", "step(1)", "down"),
        ("ctrl+k", "step(-1)", "up"),
        ("pagedown", "page(1)", "a page down"),
        ("pageup", "page(-1)", "a page up"),
        ("home", "end(-1)", "the first"),
        ("end", "end(1)", "the last"),
        ("enter", "choose", "choose"),
    ]
    BOX = "dialog-list"
    KEYS: ClassVar[str] = "↑↓ move   enter choose   esc go back"
    NARROWED: ClassVar[bool] = True
    """Whether there is a line to type in; without one, letters can be keys."""
    NOTHING: ClassVar[str] = ""
    """The notice shown if there are no choices."""
    NO_MATCH: ClassVar[str] = "Nothing matches."
    """The notice shown if there are choices, but none is like the typed text."""

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice[T]] | Work[Sequence[Choice[T]]],
        *,
        now: T | None = None,
        placeholder: str = "type to narrow",
        offer: Callable[[str], Sequence[Choice[T]]] = lambda _: (),
    ) -> None:
        super().__init__(title, self.KEYS)
        self._choices: Sequence[Choice[T]] = () if callable(choices) else choices
        self._work = choices if callable(choices) else None
        self._reading = Background(self, "choices")
        self._entered = False
        """Whether `enter` was pressed while the choices were being read."""
        self._now = now
        self._placeholder = placeholder
        self._offer = offer
        self._shown: list[Choice[T]] = []

    def body(self) -> ComposeResult:
        """Yield input and list."""
        if self.NARROWED:
            yield ForeignInput(placeholder=self._placeholder, compact=True, classes="dialog-input")
        reading = Static(READING, classes="dialog-reading")
        reading.display = self._work is not None
        yield reading
        yield ChoiceList()

    def on_mount(self) -> None:
        """Show all choices, or read them."""
        self._show("")
        self._fit()
        if self._work is None:
            self._say(display("" if self._choices else self.NOTHING, style=DIM))
        else:
            self._reading.latest(self._work, self._found, self._failed)
            self.paint_with(self._reading.delivered)

    def _fit(self) -> None:
        """Fit the height to the choices, with room for offered ones."""
        screen = self.app.size
        if screen.height < HIGH:
            return
        most = max(screen.height * 7 // 10, min(screen.height - 4, _HIGHEST_LIST))
        wide = max((len(one.detail) + 1 for one in self._choices), default=0)
        lines = sum(
            1 + (wide + len(one.label)) // _LIST_CELLS + bool(one.sentence)
            for one in self._choices[: screen.height]
        )
        needed = max(lines, _FEWEST_LINES) + len(self._title) // _LIST_CELLS + _AROUND_LIST
        self.query_one(".dialog").styles.height = min(most, needed)

    def update(self, choices: Sequence[Choice[T]]) -> None:
        """Offer other choices; the highlight stays on its value."""
        self._now = self.highlighted
        self._choices = choices
        self._fit()
        self._show("".join(one.value for one in self.query(Input)))

    def _found(self, choices: Sequence[Choice[T]]) -> None:
        self._choices, self._work = choices, None
        self._fit()
        self._say(display("" if choices else self.NOTHING))
        self._show("".join(one.value for one in self.query(Input)))
        if self._entered:
            self.action_choose()

    def _failed(self, error: MemtuiError) -> None:
        self._work = None
        self._say(display(f"✗ {error}", limit=400, style=BAD))

    def _say(self, words: Content) -> None:
        place = self.query_one(".dialog-reading", Static)
        place.update(words)
        place.display = bool(words)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        event.stop()
        self._entered = False
        self._show(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the highlighted choice, once the choices are there."""
        event.stop()
        self.action_choose()

    def on_choice_list_taken(self, event: ChoiceList.Taken) -> None:
        """Take the choice that was clicked."""
        event.stop()
        self.dismiss(self._shown[event.place].value)

    @property
    def highlighted(self) -> T | None:
        """The value under the highlight."""
        place = self._listed.highlighted
        return None if place is None else self._shown[place].value

    @property
    def _listed(self) -> ChoiceList:
        return self.query_one(ChoiceList)

    def action_choose(self) -> None:
        """Take the highlighted choice, once the choices are there."""
        self._entered = self._work is not None
        if not self._entered and (value := self.highlighted) is not None:
            self.dismiss(value)

    def action_step(self, by: int) -> None:
        """Move the highlight while the cursor stays in the input."""
        self._listed.step(by)

    def action_page(self, by: int) -> None:
        """Move the highlight by pages."""
        self._listed.step(by * self._listed.page)

    def action_end(self, by: int) -> None:
        """Move the highlight to the first choice, or to the last one."""
        self._listed.step(by * max(2, len(self._shown)))

    def narrowed(self, choices: Sequence[Choice[T]], text: str) -> Sequence[Choice[T]]:
        """Return the choices that match the typed text."""
        return matching(choices, text)

    def _show(self, text: str) -> None:
        self._shown = list(self.narrowed(self._choices, text)[:_CHOICES])
        first = 0
        if not text and self._now is not None:
            values: list[T | None] = [one.value for one in self._shown]
            first = values.index(self._now) if self._now in values else 0
        if text.strip():
            self._shown.extend(self._offer(text.strip()))
        if self._work is None and self._choices:
            self._say(display("" if self._shown else self.NO_MATCH, style=DIM))
        details = [display(one.detail, limit=28, style=DIM) for one in self._shown]
        wide = max((detail.cell_length for detail in details), default=0)
        lead = wide + 1 if wide else 0
        self._listed.show(
            [
                [
                    detail
                    + Content(" " * (lead - detail.cell_length))
                    + display(one.label, limit=200),
                    *([display(f"{' ' * lead}{one.sentence}", style=DIM)] if one.sentence else []),
                ]
                for detail, one in zip(details, self._shown, strict=True)
            ],
            lead=lead,
            highlighted=first,
        )


class ChooseAll(Dialog[tuple[T, ...]]):
    """Let a person turn each of a few choices on or off; `chosen` are on at first."""

    BINDINGS = [("space", "turn", "turn on or off"), ("ctrl+s", "save", "save")]

    def __init__(
        self, title: str, choices: Sequence[Choice[T]], chosen: Collection[T], detail: str = ""
    ) -> None:
        super().__init__(title, "space on or off   ctrl+s save   esc go back")
        self._choices = choices
        self._before = [one.value in chosen for one in choices]
        self._on = list(self._before)
        self._detail = detail

    def body(self) -> ComposeResult:
        """Yield the choices and the detail."""
        listed = OptionList(*map(self._drawn, range(len(self._choices))), compact=True)
        listed.styles.height = len(self._choices)
        yield listed
        yield from _detail(self._detail)

    def _drawn(self, place: int) -> Content:
        mark = Content.styled("● on   ", ACCENT) if self._on[place] else display("○ off  ")
        return mark + display(self._choices[place].label, limit=200)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Turn the clicked choice on or off."""
        event.stop()
        self.action_turn()

    def action_turn(self) -> None:
        """Turn the highlighted choice on or off."""
        listed = self.query_one(OptionList)
        if (place := listed.highlighted) is not None:
            self._on[place] = not self._on[place]
            listed.replace_option_prompt_at_index(place, self._drawn(place))

    def action_save(self) -> None:
        """Answer with the choices that are on."""
        on = zip(self._choices, self._on, strict=True)
        self.dismiss(tuple(one.value for one, is_on in on if is_on))

    @property
    def is_written(self) -> bool:
        """Whether a choice was turned on or off."""
        return self._on != self._before


class Confirm(Dialog[bool]):
    """Ask a yes or no; only `y` says yes, which is never the key that asked.

    `question` names the object and the count: "Forget 3 records from vault·default?". `verb` is
    the word beside the key: "forget"; `otherwise` the one beside `esc`. `enter` does nothing here.
    With `aside` (the word beside it), `aside_key` answers False: the person first wants a change
    (`e`) or a preview (`c`).
    """

    BINDINGS = [("y", "yes", "yes"), ("e", "aside('e')", "first"), ("c", "aside('c')", "first")]

    def __init__(
        self,
        question: str,
        *,
        verb: str,
        detail: str = "",
        otherwise: str = "keep",
        aside: str = "",
        aside_key: Literal["e", "c"] = "e",
        final: bool = False,
    ) -> None:
        pairs = [("y", verb), *([(aside_key, aside)] if aside else []), ("esc", otherwise)]
        parts = (Content.styled(key, f"bold {ACCENT}") + display(f" {verb}") for key, verb in pairs)
        super().__init__(question, line(*parts, gap=HINT_GAP))
        self._detail = detail
        self._aside_key = aside_key if aside else None
        self.final = final

    def body(self) -> ComposeResult:
        """Yield the detail."""
        yield from _detail(self._detail)

    def action_yes(self) -> None:
        """Answer yes."""
        self.dismiss(True)  # noqa: FBT003 - the answer itself

    def action_aside(self, key: str) -> None:
        """Answer False, if this is the key of `aside`."""
        if key == self._aside_key:
            self.dismiss(False)  # noqa: FBT003 - the answer itself


def throw_away(
    question: str = "Throw away what you wrote?", verb: str = "throw it away"
) -> Confirm:
    """Return the question whether text may be discarded."""
    return Confirm(question, verb=verb, otherwise="go on", final=True)


def _detail(text: str) -> Iterator[Static]:
    if text:
        shown = display(text, limit=2_000, keep_newlines=True)
        yield Static(shown, classes="dialog-detail")


class Prompt(Dialog[str]):
    """Ask for one line of text.

    `go` is what enter does; `hint` names the keys where there is more to say. `check` is called
    with the text and raises one of the contract's errors to refuse it. `look` does the same as a
    coroutine, for checks that read the disk; keys are queued meanwhile.
    """

    def __init__(
        self,
        title: str,
        *,
        value: str = "",
        placeholder: str = "",
        go: str = "ok",
        hint: str = "",
        check: Callable[[str], object] = str,
        look: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(title, hint or f"enter {go}   esc go back")
        self._value = value
        self._placeholder = placeholder
        self._check = check
        self._look = look

    def body(self) -> ComposeResult:
        """Yield the line to write in."""
        yield ForeignInput(
            self._value, placeholder=self._placeholder, compact=True, classes="dialog-input"
        )
        yield Static(classes="dialog-error")

    @property
    def is_written(self) -> bool:
        """Whether the line was changed."""
        return self.written != self._value

    @property
    def written(self) -> str:
        """The line as it is now."""
        return self.query_one(Input).value

    def on_input_changed(self, event: Input.Changed) -> None:
        """Clear the message about the previous text."""
        event.stop()
        self.refuse("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the text if it passes the check."""
        event.stop()
        text = event.value
        try:
            self._check(text)
        except MemtuiError as error:
            self.refuse(str(error))
            return
        if (look := self._look) is None:
            self.dismiss(text)
            return

        def take(_: object) -> None:
            self.dismiss(text)

        def failed(error: MemtuiError) -> None:
            self.refuse(str(error))

        waiting = Waiting("looking there", lambda: look(text), take, failed)
        self.app.push_screen(waiting, lambda _: None)


def number_in(text: str, most: int) -> int:
    """Return the number from 1 to `most` that was written; raises `Invalid` for anything else."""
    written = text.strip()
    if not written.isascii() or not written.isdigit() or not 0 < int(written[:9]) <= most:
        raise Invalid(f"{written!r} is not a number from 1 to {most:,}; write one.")
    return int(written)


class TypedConfirm(Prompt):
    """Ask for a yes by typing `word`, for changes with a wide reach."""

    def __init__(
        self, question: str, *, word: str, verb: str, detail: str = "", final: bool = False
    ) -> None:
        def check(text: str) -> None:
            if text.strip() != word:
                raise Invalid(f"That is not {word!r}; nothing was changed.")

        super().__init__(question, hint=f"enter {verb}   esc keep", check=check)
        self.final = final
        self._detail = detail
        self._wanted = line("Type", display(word, style=STRONG), f"to {verb}.")

    def body(self) -> ComposeResult:
        """Yield the detail, the word to type, and the input."""
        yield from _detail(self._detail)
        yield Static(self._wanted)
        yield from super().body()


class _Editor(Dialog[T]):
    """A text to write, discarded only after a yes."""

    VERTICAL_BREAKPOINTS = [(0, "-flat"), (HIGH, "-high"), (TALL, "-tall")]
    BINDINGS = [("ctrl+s", "save", "save")]
    BOX = "dialog-editor"
    _note = ""

    def on_resize(self) -> None:
        """Make the field as high as its text where there is room for all around it."""
        self.set_class(self.app.size.height >= _FITS and not self._note, "-fits")

    def on_mount(self) -> None:
        """Begin at the end of the text."""
        area = self.query_one(ForeignTextArea)
        area.move_cursor(area.document.end)
        self.set_focus(area)

    @property
    def text(self) -> str:
        """The current text."""
        return self.query_one(ForeignTextArea).text


class EditText(_Editor[str]):
    """Let the person change a text; None: nothing is to be written.

    `original` counts as unchanged, `text` is shown at first: they differ when a draft is resumed.
    `one_line` is for a text without line breaks: `enter` saves it.
    """

    BINDINGS = [("enter", "save", "save")]
    THROWN_AWAY = ("Throw your changes away?", "throw them away")

    def __init__(
        self,
        title: str,
        original: str,
        text: str | None = None,
        note: str = "",
        *,
        go: str = "save",
        unchanged: str = "Unchanged, nothing was written.",
        one_line: bool = False,
    ) -> None:
        super().__init__(title, f"{'enter' if one_line else 'ctrl+s'} {go}   esc go back")
        self._area = OneLineArea if one_line else ForeignTextArea
        self._unchanged = unchanged
        self._original = original
        self._begin = original if text is None else text
        self._note = note

    def body(self) -> ComposeResult:
        """Yield the note and the text."""
        if self._note:
            yield Static(display(self._note, limit=600, style=WARN))
        yield self._area(self._begin, soft_wrap=True, show_line_numbers=False)

    @property
    def is_written(self) -> bool:
        """Whether the text was changed."""
        return self.text != self._original

    @property
    def written(self) -> str:
        """The text."""
        return self.text

    def action_save(self) -> None:
        """Answer with the text; for an unchanged one answer None, and say so."""
        if not self.is_written:
            toast(self.app, self._unchanged)
        self.dismiss(self.written if self.is_written else None)


@dataclass(frozen=True, slots=True)
class NewRecord:
    """The text and fields of a record to be written."""

    text: str
    scope: Scope
    kind: str
    topic: str | None
    tags: tuple[str, ...]
    summary: str | None = None


class WriteRecord(_Editor[NewRecord]):
    """Ask for a text, its scope, kind, topic, tags and summary.

    A fact is one line: `enter` writes it, as it does from any field.
    """

    BINDINGS = [("enter", "save", "save")]
    THROWN_AWAY = ("Throw your text away?", "throw it away")

    def __init__(
        self,
        where: str,
        scope: Scope,
        begin: NewRecord | None = None,
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Create it; `known` has the values that `→` completes in each field."""
        self._scope = scope
        self._known = known or {}
        self._begin = begin or NewRecord("", scope, "note", None, ())
        super().__init__(f"New record in {where}", _keys_to_write(self._begin.kind))

    def body(self) -> ComposeResult:
        """Yield the text and its fields."""
        begin = self._begin
        values = {
            "project": begin.scope.project_id,
            "agent": begin.scope.agent_id,
            "subject": begin.scope.subject_id,
            "kind": begin.kind,
            "topic": begin.topic,
            "tags": ", ".join(begin.tags),
            "summary": begin.summary,
        }
        fields = list(values.items())
        area = OneLineArea(begin.text, soft_wrap=True, placeholder="What to remember")
        area.one_line = begin.kind == "fact"
        yield area
        for first in range(0, len(fields), 2):
            row = fields[first : first + 2]
            with Horizontal(classes="fields"):
                for name, value in row:
                    last = "-last" if name == row[-1][0] else None
                    yield Label("user" if name == "subject" else name)
                    known = SuggestFromList(self._known.get(name, ()), case_sensitive=False)
                    field = f"field-{name}"
                    yield ForeignInput(
                        value or "", suggester=known, compact=True, id=field, classes=last
                    )
        yield Static(classes="dialog-error")

    @property
    def is_written(self) -> bool:
        """Whether there is any text."""
        return bool(self.text.strip())

    @property
    def written(self) -> NewRecord:
        """The text with its fields."""
        owners = {f"{one}_id": self._field(one) or None for one in ("project", "agent", "subject")}
        tags = tuple(tag.strip() for tag in self._field("tags").split(",") if tag.strip())
        return NewRecord(
            self.text,
            self._scope.model_copy(update=owners),
            self._field("kind") or "note",
            self._field("topic") or None,
            tags,
            self._field("summary") or None,
        )

    def on_text_area_changed(self) -> None:
        """Clear the message that there is no text."""
        self.refuse("")

    def on_input_changed(self) -> None:
        """Let `enter` write a fact, which has one line, and begin a new line in other texts."""
        kind = self._field("kind")
        self.query_one(OneLineArea).one_line = kind == "fact"
        self.query_one(KeyLine).say(_keys_to_write(kind))

    def on_input_submitted(self) -> None:
        """Write from any field."""
        self.action_save()

    def action_save(self) -> None:
        """Answer with the record, if it has a text."""
        if not self.is_written:
            self.refuse("A record needs a text.")
            return
        self.dismiss(self.written)

    def _field(self, name: str) -> str:
        return self.query_one(f"#field-{name}", Input).value.strip()


def _keys_to_write(kind: str) -> str:
    write = "enter" if kind == "fact" else "ctrl+s"
    return f"{write} write   tab next field   → complete   esc go back"


class Resolve(Enum):
    """How to resolve a conflict between two versions of a record."""

    THEIRS = auto()
    MINE = auto()
    AGAIN = auto()
    LATER = auto()
    """Decide later; the person's text is kept as a draft."""


class ConflictScreen(DimmingScreen[Resolve]):
    """Both versions of a record that changed while a person edited it; nothing is lost."""

    final = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (HIGH, "-short"), (TALL, "-tall")]
    BINDINGS = [
        ("t", "take('THEIRS')", "keep theirs"),
        ("m", "take('MINE')", "put mine on top"),
        ("e", "take('AGAIN')", "edit again"),
        ("escape", "take('LATER')", "decide later"),
    ]

    def __init__(self, base: Record, theirs: Record | None, mine: str) -> None:
        super().__init__()
        self._base = base
        self._theirs = theirs
        self._mine = mine

    def compose(self) -> ComposeResult:
        """Lay out both versions and the choice."""
        gone = self._theirs is None
        title = "The record is gone" if gone else "The record changed while you edited it"
        theirs = self._theirs.text if self._theirs else None
        with Vertical(classes="dialog dialog-editor"):
            yield Static(display(f"{title}; nothing was written.", style=WARN))
            with Container(classes="versions"):
                for whose, text in (("Theirs", theirs), ("Mine", self._mine)):
                    with VerticalScroll(classes="version"):
                        yield Static(self._version(whose, text))
            keys = line(
                key_hint("t", "let it be gone" if gone else "keep theirs"),
                key_hint(
                    "m", "write mine as a new record" if gone else "put mine on top of theirs"
                ),
                key_hint("e", "edit again"),
                key_hint("esc", "decide later, mine is kept"),
                gap=HINT_GAP,
            )
            yield KeyLine(keys)

    def _version(self, whose: str, text: str | None) -> Content:
        against = display("against what you read", style=DIM)
        head = line(display(whose, style=STRONG), against, gap="  ")
        none = [display("no record", style=DIM)]
        return lines([head, *(none if text is None else diff_lines(self._base.text, text))])

    def action_take(self, choice: str) -> None:
        """Answer with a choice."""
        self.dismiss(Resolve[choice])


class Sheet(Dialog[None]):
    """Show a content that scrolls, as it is or as it is drawn for a width in cells.

    `read` loads content that replaces it, so the sheet opens at once. `q` and `?` close it too.
    """

    BINDINGS = [
        ("q,question_mark,f1", "back", "close"),
        ("j,down", "scroll(1)", "down"),
        ("k,up", "scroll(-1)", "up"),
        ("ctrl+d,pagedown,space", "scroll(10)", "down"),
        ("ctrl+u,pageup", "scroll(-10)", "up"),
        ("g,home", "scroll(-100000)", "top"),
        ("G,end", "scroll(100000)", "bottom"),
    ]
    BOX = "dialog-sheet"
    ASKS = False

    def __init__(
        self,
        title: str,
        content: Drawn,
        *,
        read: Work[Drawn] | None = None,
        keys: str = "↑↓ scroll   esc close",
    ) -> None:
        super().__init__(title, keys)
        self._content = content
        self._read = read
        self._reading = Background(self, "sheet")

    def body(self) -> ComposeResult:
        """Yield the text."""
        with VerticalScroll(can_focus=False):
            yield Fitted(id="sheet-text")

    def on_mount(self) -> None:
        """Lay the text out, and read what is still to come."""
        self.on_resize()
        self.show(self._content)
        if self._read is not None:
            self._reading.latest(self._read, self.show, self._failed)
            self.paint_with(self._reading.delivered)

    def _failed(self, error: MemtuiError) -> None:
        self.show(display(f"✗ {error}", limit=600, style=BAD))

    def show(self, content: Drawn) -> None:
        """Show another content."""
        self.query_one("#sheet-text", Fitted).fit(content)

    def on_resize(self) -> None:
        """Fit the height to the text, and leave room for the lines around a long one."""
        self.query_one(VerticalScroll).styles.max_height = max(
            1, self.most_lines(self.app.size.height)
        )

    def most_lines(self, height: int) -> int:
        """Return how many lines of text are shown at once on so many lines."""
        if height < LOW:
            return height - _AROUND_LOW_SHEET
        return height - _AROUND_FLAT_SHEET if height < HIGH else height * 9 // 10 - _AROUND_SHEET

    def action_scroll(self, by: int) -> None:
        """Scroll by some lines."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class Waiting(DimmingScreen[bool], Generic[T]):
    """Reads something, then calls `then` with the result.

    Keys are queued meanwhile, so that none reaches the screen below, and go to whatever is open
    after the read. `esc` stops the read and drops them. An error calls `failed` and drops them too.
    It becomes visible only after `_WAITING_SECONDS`.
    """

    keeps_keys = True
    BINDINGS = [("escape", "stop", "stop")]
    KEYS = "esc stops it"

    def __init__(
        self,
        words: str,
        work: Work[T],
        then: Callable[[T], object],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        super().__init__()
        self._words = words
        self._work = work
        self._then = then
        self._failed = failed
        self._reading = Background(self, "waiting")

    def on_mount(self) -> None:
        """Begin to read."""
        self.set_timer(_WAITING_SECONDS, self._show)
        self._begin()

    async def _show(self) -> None:
        words = Static(display(f"… {self._words}", limit=400))
        await self.mount(Vertical(words, KeyLine(self.KEYS), classes="dialog"))

    def _begin(self) -> None:
        self._reading.latest(self._work, self._read, self._broken)
        self.paint_with(self._reading.delivered)

    def _read(self, found: T) -> None:
        self.dismiss(True)  # noqa: FBT003 - the answer itself
        self._then(found)

    def _broken(self, error: MemtuiError) -> None:
        self.dismiss(None)
        self._failed(error)

    def action_stop(self) -> None:
        """Stop reading."""
        self.dismiss(None)


class Saving(Waiting[T]):
    """Carries out a change that cannot be stopped, and stays open until it is done or refused.

    Keys are dropped: they were meant for the dialog below it, which closes once it is done.
    """

    KEYS = "it cannot be stopped any more"

    def _begin(self) -> None:
        self._reading.every(self._work, self._read, self._broken)
        self.paint_with(self._reading.settled)

    def _read(self, found: T) -> None:
        self.dismiss(None)
        self._then(found)

    def action_stop(self) -> None:
        """Keep waiting: a change cannot be stopped."""
