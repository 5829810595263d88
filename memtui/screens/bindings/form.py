"""The form of a binding: its key and its provider's settings, with a field for each type.

The input is checked in two steps: the settings against the provider's config, then the provider
by opening it once. After an error, or if the person goes back, the input is not lost: the
answer's draft has it, and the form can be opened again with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from textual.content import Content
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Button, Select, Switch

from memtui.contract import Health, Json
from memtui.presenters.format import counted
from memtui.screens.bindings.view import HEALTH_MARKS
from memtui.screens.form import FieldRow, Form
from memtui.visible import visible
from memtui.widgets.background import Background
from memtui.widgets.display import DIM, WARN, display, lines
from memtui.widgets.editor import ForeignInput

if TYPE_CHECKING:
    from memtui.service.home.provider_views import ConfigField, ProviderView


class BindingProbe(Protocol):
    """Opens a binding once with the written settings, and returns its health."""

    def __call__(self, key: str, config: Json, *, read_only: bool) -> Awaitable[Health]:
        """Raise one of the contract's errors if it cannot be opened."""


_ENTRIES = 2_000
"""Most entries of a folder that are read to complete a path."""
_PROBLEMS = 3
_OF_SECRETS = (
    "The name of a secret, never the secret itself: memtui looks up the environment variable of "
    "that name, then the keyring under the service memtui."
)
_LIST = "Several with commas between them, or a JSON list."
_KEY, _READ_ONLY = "binding key", "binding read-only"
"""The form's own fields; provider settings have no space in their names."""


@dataclass(frozen=True, slots=True)
class BindingDraft:
    """The input of a form, unparsed; a missing name: the field was never shown."""

    key: str = ""
    read_only: bool = False
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """The input of a form, and the config from it; None: the person went back."""

    draft: BindingDraft
    config: Json | None = None


def written(view: ProviderView, config: Json) -> dict[str, Any]:
    """Return a config as values of the form's fields."""
    return {one.name: _written(one, config.get(one.name)) for one in view.config}


def _written(field: ConfigField, value: Any) -> Any:
    """Return a setting as the value of its field."""
    if field.kind == "switch":
        return bool(field.default if value is None else value)
    if field.kind == "choice":
        return field.default if value is None else value
    if value is None:
        return ""
    if field.kind == "list" and not any("," in one or one != one.strip() for one in value):
        return ", ".join(value)
    if field.kind in {"list", "json"}:
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def config_of(view: ProviderView, draft: BindingDraft) -> tuple[Json, dict[str, str]]:
    """Return the config from a draft, and an error for each wrong field.

    Settings equal to their default are left out of the config.
    """
    config: Json = {}
    wrong: dict[str, str] = {}
    for field in view.config:
        written = draft.values.get(field.name)
        try:
            value = _meant(field, written)
        except ValueError:
            wrong[field.name] = f"This does not fit; expected: {field.words}."
            continue
        if value is not None and value != field.default:
            config[field.name] = value
        elif field.required and value is None:
            wrong[field.name] = "This is needed."
    return config, wrong


def _meant(field: ConfigField, written: Any) -> Any:
    """Parse the value of a field; None: it is empty. Raises `ValueError`."""
    if not isinstance(written, str) or field.kind == "choice":
        return written
    text = written.strip()
    if not text:
        return None
    if field.kind == "path":
        return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - any text at all
    if field.kind == "json" or (field.kind == "list" and text.startswith("[")):
        return json.loads(text)
    if field.kind == "list":
        return [one.strip() for one in text.split(",") if one.strip()]
    return text


class PathSuggester(Suggester):
    """Completes the last name of a path, relative to the working folder or from `~`."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """Return the path with its last name completed, with a slash after a folder."""
        return await asyncio.to_thread(_completed, value)


def _completed(written: str) -> str | None:
    head, slash, begun = written.rpartition("/")
    if not begun or written == "~":  # a whole folder may be all that is meant
        return None
    folder = Path(os.path.expanduser(f"{head}/") if slash else "")  # noqa: PTH111 - of anybody
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_ENTRIES), entries, strict=False):
                name = entry.name
                if name.startswith(begun) and name.isprintable():
                    found.append(f"{name}/" if entry.is_dir() else name)
    except (OSError, ValueError):
        return None
    return f"{head}{slash}{min(found)}" if found else None


class PathInput(ForeignInput):
    """A path field; `tab` takes the shown completion, else it goes to the next field."""

    BINDINGS = [("tab", "complete", "complete")]

    def __init__(self, value: str, **options: Any) -> None:
        super().__init__(value, suggester=PathSuggester(), **options)

    def action_complete(self) -> None:
        """Take the completion, or go to the next field."""
        if self.cursor_at_end and self._suggestion and self._suggestion != self.value:
            self.action_cursor_right()
        else:
            self.screen.focus_next()


class BindingForm(Form[FormAnswer]):
    """Ask for a binding of one provider; dismissed with the input, even if the person goes back.

    `verb` is the action after the form, such as "add". With `has_key` the form also asks for key
    and mode of the binding.
    """

    def __init__(
        self, title: str, view: ProviderView, draft: BindingDraft, check: BindingProbe, *, verb:
        str, has_key: bool,
    ) -> None:  # fmt: skip
        super().__init__(title, go="check", about=tuple(filter(None, (view.opens, view.about))))
        self._view = view
        self._begin = draft
        self._check = check
        self._verb = verb
        self._has_key = has_key
        self._checking = Background(self, "check")
        self._passed: BindingDraft | None = None
        """The draft that passed the check; None: none has."""

    def rows(self) -> Iterator[FieldRow]:
        """Yield key and mode if `has_key`, then the provider's settings."""
        if self._has_key:
            words = "A short name for the binding: lowercase letters, digits, - and _."
            key = ForeignInput(self._begin.key, compact=True)
            yield FieldRow(_KEY, "key", key, display(words, style=DIM))
            words = "Refuse every change through it."
            switch = Switch(self._begin.read_only, animate=False)
            yield FieldRow(_READ_ONLY, "read-only", switch, display(words, style=DIM))
        for field in self._view.config:
            yield self._row(field, self._begin.values.get(field.name))

    def _row(self, field: ConfigField, value: Any) -> FieldRow:
        hints = [field.help, {"secret": _OF_SECRETS, "list": _LIST}.get(field.kind, "")]
        hint = display(" ".join(filter(None, hints)) or field.words, limit=600, style=DIM)
        return FieldRow(field.name, field.name, _widget(field, value), hint)

    @property
    def draft(self) -> BindingDraft:
        """The present input."""
        values = self.values
        key, read_only = values.pop(_KEY, None), values.pop(_READ_ONLY, None)
        draft = replace(self._begin, values=values)
        return draft if key is None else replace(draft, key=key.strip(), read_only=read_only)

    @property
    def is_written(self) -> bool:
        """Whether the person changed a field."""
        return self.draft != self._begin

    def changed(self) -> None:
        """Require another check if the draft differs from the one that passed."""
        if self._passed is not None and self._passed != self.draft:
            self._passed = None
            self.say(Content(""), "check")

    def action_back(self) -> None:
        """Close with the present input."""
        self.dismiss(FormAnswer(self.draft))

    def action_submit(self) -> None:
        """Check the input; if it has passed, close with it."""
        draft = self.draft
        config, wrong = config_of(self._view, draft)
        if self._has_key and not draft.key:
            wrong = {_KEY: "A binding needs a key.", **wrong}
        if wrong:
            self.refused("Something is missing or cannot be read.", wrong)
        elif draft == self._passed:
            self.dismiss(FormAnswer(draft, config))
        else:
            self.say(display("… opening it once, to look inside", style=DIM), "check")
            self._checking.latest(
                lambda: self._check(draft.key, config, read_only=draft.read_only),
                lambda health: self._found(draft, health),
                self.failed,
            )

    def _found(self, draft: BindingDraft, health: Health) -> None:
        if draft != self.draft:
            self.say(display("It was changed meanwhile; check it again.", style=WARN), "check")
            return
        self._passed = draft
        mark, style = HEALTH_MARKS[health.status]
        records = "" if health.records is None else counted(health.records, "record")
        words = "   ".join(filter(None, (f"{mark} {health.status}", records, health.message)))
        problems = [f"! {one.sentence()}" for one in health.problems[:_PROBLEMS]]
        if more := len(health.problems[_PROBLEMS:]):
            problems.append(f"! and {counted(more, 'more problem')}")
        said = [display(words, limit=400, style=style)]
        said += [display(one, limit=200, style=WARN) for one in problems]
        said += [display(one, limit=100, style=DIM) for one in health.first]
        said.append(display(f"ctrl+s: {self._verb} it", style=DIM))
        self.say(lines(said), self._verb)
        self.query_one("#form-go", Button).focus()


def _choice_word(choice: Any) -> str:
    return ("no", "yes")[choice] if isinstance(choice, bool) else str(choice)


def _widget(field: ConfigField, value: Any) -> Widget:
    """Return the widget of a field."""
    if field.kind == "switch":
        return Switch(bool(value), animate=False)
    if field.kind == "choice":
        choices = [(display(_choice_word(one), limit=100), one) for one in field.choices]
        begin = value if value in field.choices else Select.NULL
        return Select(choices, prompt="choose", value=begin, compact=True)
    nothing = field.default in (None, "", [], {})
    default = "" if nothing else f"{_written(field, field.default)}"
    words = "needed" if field.required else default or "not set"
    make = PathInput if field.kind == "path" else ForeignInput
    return make(value or "", placeholder=visible(words, limit=200), compact=True)
