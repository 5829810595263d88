"""The command palette: every action, theme, company, binding and saved view by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from textual.fuzzy import Matcher
from textual.message import Message

from memtui.actions import ACTIONS
from memtui.contract import Scope
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.help import group_title
from memtui.screens.state import GoTo, ViewChosen

Command = Choice[Callable[[], Any]]


class Palette(Choose[Callable[[], Any]]):
    """Choose one of the commands of a screen by some letters of its name; the best match first."""

    def __init__(self, screen: MemtuiScreen) -> None:
        super().__init__("Commands", list(commands(screen)), placeholder="type some of its letters")

    def narrowed(self, choices: Sequence[Command], text: str) -> Sequence[Command]:
        """Return the commands with these letters in this order."""
        if not text.strip():
            return choices
        matcher = Matcher(text.strip())
        scores = {place: matcher.match(one.label) for place, one in enumerate(choices)}
        found = [place for place, score in scores.items() if score > 0]
        return [choices[place] for place in sorted(found, key=lambda place: -scores[place])]


def commands(screen: MemtuiScreen) -> Iterable[Command]:
    """Yield everything that can be done on a screen, its own actions first."""
    for name in screen.action_ids():
        action, reason = ACTIONS[name], screen.why_disabled(name)
        yield Choice(
            partial(screen.call_later, screen.perform, name),
            f"{group_title(action.group)}: {action.label}",
            screen.state.keymap.label(name),
            f"{action.description}{f' Not now: {reason}' if reason else ''}",
        )
    for name in sorted(screen.app.available_themes):
        use = partial(setattr, screen.app, "theme", name)
        yield Choice(use, f"Theme: {name}")
    for company in screen.state.companies:
        goes = GoTo(scope=Scope(company_id=company.company_id))
        yield _sent(screen, goes, f"Company: {company.name}", "Go to this company.")
    for binding in screen.state.bindings:
        words = f"Binding: {binding.provider_key}·{binding.key}"
        yield _sent(screen, GoTo(binding_key=binding.key), words, "Look at this binding.")
    for view in screen.state.views:
        words = f"Show the screen {view.screen} so."
        yield _sent(screen, ViewChosen(view), f"View: {view.name}", words)


def _sent(screen: MemtuiScreen, message: Message, label: str, sentence: str) -> Command:
    return Choice(partial(screen.post_message, message), label, sentence=sentence)
