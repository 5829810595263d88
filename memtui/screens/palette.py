"""The command palette: every action, theme, company, binding and saved view by name.

Over a review it has the review's own actions first; those of other screens close the review.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from textual.fuzzy import Matcher
from textual.message import Message

from memtui.actions import ACTIONS, SCREENS, Need, actions_of
from memtui.contract import Scope
from memtui.screens.base import MemtuiScreen
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.help import group_title
from memtui.screens.modal import ModalListScreen
from memtui.screens.state import GoTo, ViewChosen

T = TypeVar("T")
Command = Choice[Callable[[], Any]]
Top: TypeAlias = MemtuiScreen | ModalListScreen[Any]
"""The screen that the palette opens over."""


class Palette(Choose[Callable[[], Any]]):
    """Choose a command by letters of its name, or by words of its description.

    The best match of a name comes first.
    """

    NO_MATCH = (
        "Nothing here matches; `memtui --help` lists the commands of the shell, such as backup."
    )

    def __init__(self, screen: Top) -> None:
        super().__init__("Commands", list(commands(screen)), placeholder="type some of its letters")

    async def action_everywhere(self, verb: str) -> None:
        """Close for the palette's own key; else as in any dialog."""
        if verb == "palette":
            self.dismiss(None)
        else:
            await super().action_everywhere(verb)

    def narrowed(self, choices: Sequence[Command], text: str) -> Sequence[Command]:
        """Return the commands that match the typed text."""
        return best(choices, text) if text.strip() else choices


def best(choices: Sequence[Choice[T]], text: str) -> list[Choice[T]]:
    """Return choices with these letters in their names, then those described with these words."""
    matcher, words = Matcher(text.strip()), text.casefold().split()
    scores = [matcher.match(one.label) for one in choices]
    named = sorted((at for at, score in enumerate(scores) if score), key=lambda at: -scores[at])
    described = (
        at
        for at, one in enumerate(choices)
        if not scores[at] and all(word in one.sentence.casefold() for word in words)
    )
    return [choices[at] for at in (*named, *described)]


_ANYWHERE = {Need.SERVICE, Need.WRITABLE, Need.NOW}
"""Needs of actions that run on a screen one comes to; other actions need a row that is seen."""


def commands(screen: Top) -> Iterable[Command]:
    """Yield a screen's actions, then other screens', themes, companies, bindings, saved views."""
    for name in screen.action_ids():
        action, reason = ACTIONS[name], screen.why_disabled(name)
        yield Choice(
            partial(screen.call_later, screen.perform, name),
            f"{group_title(action.group)}: {action.label}",
            screen.state.keymap.label(name),
            f"{action.description}{f' Not now: {reason}' if reason else ''}",
        )
    here = screen.MODE if isinstance(screen, MemtuiScreen) else ""
    anywhere = _ANYWHERE if screen.state.as_of is None else _ANYWHERE - {Need.NOW}
    for tab in SCREENS:
        for action in actions_of(tab.mode) if tab.mode != here else ():
            goes = GoTo(tab.mode, then=action.id if anywhere.issuperset(action.needs) else "")
            keys = f"{tab.number} {screen.state.keymap.label(action.id)}"
            words = f"{action.description} Goes to {tab.title}."
            yield _sent(screen, goes, f"{tab.title}: {action.label}", words, keys)
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


def _sent(screen: Top, message: Message, label: str, sentence: str, keys: str = "") -> Command:
    return Choice(partial(screen.post_message, message), label, keys, sentence)
