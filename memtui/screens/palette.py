"""The command palette: every action, theme, company, binding and saved view by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from memtui.actions import ACTIONS
from memtui.contract import Scope
from memtui.screens.base import MemtuiScreen
from memtui.screens.help import group_title
from memtui.screens.state import BindingChosen, ScopeChosen, ViewChosen
from memtui.widgets.display import DIM, display


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the palette. `help` is memtui's own text, as the palette reads it as markup."""

    title: Content
    help: str
    run: Callable[[], Any]


class Commands(Provider):
    """Finds commands for the screen under the palette."""

    async def discover(self) -> Hits:
        """Yield everything there is before anything was typed."""
        for command in self._commands():
            yield DiscoveryHit(
                command.title, command.run, text=command.title.plain, help=command.help
            )

    async def search(self, query: str) -> Hits:
        """Yield what matches `query`."""
        matcher = self.matcher(query)
        for command in self._commands():
            score = matcher.match(command.title.plain)
            if score > 0:
                yield Hit(
                    score, command.title, command.run, text=command.title.plain, help=command.help
                )

    def _commands(self) -> Iterable[Command]:
        screen = self.screen
        if not isinstance(screen, MemtuiScreen):
            return
        yield from _actions(screen)
        yield from _themes(screen)
        yield from _places(screen)


def _actions(screen: MemtuiScreen) -> Iterable[Command]:
    for name in screen.action_ids():
        action = ACTIONS[name]
        reason = screen.why_disabled(name)
        key = Content.styled(f"  {screen.state.keymap.label(name)}", DIM)
        yield Command(
            display(f"{group_title(action.group)}: {action.label}") + key,
            f"{action.description}{f' Not now: {reason}' if reason else ''}".replace("[", "("),
            partial(screen.call_later, screen.perform, name),
        )


def _themes(screen: MemtuiScreen) -> Iterable[Command]:
    for name in sorted(screen.app.available_themes):
        yield Command(
            display(f"Theme: {name}"),
            "Change the colours.",
            partial(setattr, screen.app, "theme", name),
        )


def _places(screen: MemtuiScreen) -> Iterable[Command]:
    for company in screen.state.companies:
        yield Command(
            display(f"Company: {company.name}", limit=100),
            "Go to this company.",
            partial(screen.post_message, ScopeChosen(Scope(company_id=company.company_id))),
        )
    for binding in screen.state.bindings:
        yield Command(
            display(f"Binding: {binding.provider_key}·{binding.key}", limit=100),
            "Look at this binding.",
            partial(screen.post_message, BindingChosen(binding.key)),
        )
    for view in screen.state.views:
        yield Command(
            display(f"View: {view.name}", limit=100),
            "Show the operation log so.",
            partial(screen.post_message, ViewChosen(view)),
        )
