"""The command palette: every action, theme, company, binding and saved view by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from memtui.actions import ACTIONS
from memtui.contract import Scope
from memtui.screens.base import MemtuiScreen
from memtui.screens.help import group_title
from memtui.screens.state import GoTo, ViewChosen
from memtui.widgets.dimmed import DimmingScreen
from memtui.widgets.display import DIM, display


class Palette(CommandPalette, DimmingScreen[None]):
    """The command palette over the dimmed screen."""


class Commands(Provider):
    """Finds commands for the screen under the palette."""

    async def discover(self) -> Hits:
        """Yield everything there is before anything was typed."""
        for hit in self._commands():
            yield hit

    async def search(self, query: str) -> Hits:
        """Yield what matches `query`."""
        matcher = self.matcher(query)
        for one in self._commands():
            if (score := matcher.match(one.text or "")) > 0:
                yield Hit(score, one.display, one.command, text=one.text, help=one.help)

    def _commands(self) -> Iterable[DiscoveryHit]:
        screen = self.screen
        if isinstance(screen, MemtuiScreen):
            yield from _actions(screen)
            yield from _themes(screen)
            yield from _places(screen)


def _command(title: Content, help: str, run: Callable[[], Any]) -> DiscoveryHit:  # noqa: A002
    """Return a line of the palette. `help` is memtui's own text, as it is read as markup."""
    return DiscoveryHit(title, run, text=title.plain, help=help)


def _actions(screen: MemtuiScreen) -> Iterable[DiscoveryHit]:
    for name in screen.action_ids():
        action = ACTIONS[name]
        reason = screen.why_disabled(name)
        key = Content.styled(f"  {screen.state.keymap.label(name)}", DIM)
        yield _command(
            display(f"{group_title(action.group)}: {action.label}") + key,
            f"{action.description}{f' Not now: {reason}' if reason else ''}".replace("[", "("),
            partial(screen.call_later, screen.perform, name),
        )


def _themes(screen: MemtuiScreen) -> Iterable[DiscoveryHit]:
    for name in sorted(screen.app.available_themes):
        yield _command(
            display(f"Theme: {name}"),
            "Change the colours.",
            partial(setattr, screen.app, "theme", name),
        )


def _places(screen: MemtuiScreen) -> Iterable[DiscoveryHit]:
    for company in screen.state.companies:
        yield _command(
            display(f"Company: {company.name}", limit=100),
            "Go to this company.",
            partial(screen.post_message, GoTo(scope=Scope(company_id=company.company_id))),
        )
    for binding in screen.state.bindings:
        yield _command(
            display(f"Binding: {binding.provider_key}·{binding.key}", limit=100),
            "Look at this binding.",
            partial(screen.post_message, GoTo(binding_key=binding.key)),
        )
    for view in screen.state.views:
        yield _command(
            display(f"View: {view.name}", limit=100),
            f"Show the screen {view.screen} so.",
            partial(screen.post_message, ViewChosen(view)),
        )
