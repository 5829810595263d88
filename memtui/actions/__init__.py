"""The one registry of what a person can do in the terminal app, as pure data.

Footer, help screen, command palette, keymap checks and `docs/keys.md` all come from `ACTIONS`.

For a screen author: an action's id is `<group>.<verb>`. The group says who carries it out: `app`,
a screen (`records`), or a widget that several screens share (`list`, `filter`). The carrier binds
its group with `memtui.widgets.keys.bindings_for("records")` and defines `action_<verb>` for each
of its actions; nothing else names a key. An action that cannot run now needs no code of its own:
it lists what it `needs`, and the screen says which needs are `missing`, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memtui.actions.analytics import ANALYTICS, SQL
from memtui.actions.bindings import CONFORMANCE, MIGRATION, NAMESPACES
from memtui.actions.budget import BUDGET, PRUNE
from memtui.actions.general import APP, ASK, FILTER, LIST, SCREENS
from memtui.actions.model import Action, Need, ScreenTab
from memtui.actions.screens import BINDINGS, OPERATIONS, QUERY, RECORDS

__all__ = [
    "ACTIONS",
    "DIALOG_GROUPS",
    "INPUT_GROUPS",
    "SCREENS",
    "Action",
    "Need",
    "ScreenTab",
    "actions_of",
    "footer_actions",
    "groups_on",
    "key_label",
    "screen_tab",
]

INPUT_GROUPS = frozenset({"filter", "ask", "sql"})
"""Groups whose keys count only while their line has the focus; printable keys are text there."""

DIALOG_GROUPS = frozenset({"prune", "namespaces", "conformance", "migration"})
"""Groups of what lies over a screen: while it does, only its keys and those of its list count."""

ACTIONS: Mapping[str, Action] = {
    action.id: action
    for action in (
        *APP,
        *BINDINGS,
        *OPERATIONS,
        *QUERY,
        *RECORDS,
        *BUDGET,
        *ANALYTICS,
        *PRUNE,
        *NAMESPACES,
        *CONFORMANCE,
        *MIGRATION,
        *LIST,
        *FILTER,
        *ASK,
        *SQL,
    )
}
"""Every action by its id."""


def actions_of(group: str) -> Iterator[Action]:
    """Yield the actions of a group, in the registry's order."""
    return (action for action in ACTIONS.values() if action.group == group)


def screen_tab(mode: str) -> ScreenTab:
    """Return the screen of a mode; raises `KeyError` for one that does not exist."""
    return {tab.mode: tab for tab in SCREENS}[mode]


def groups_on(mode: str) -> tuple[str, ...]:
    """Return the groups whose keys work on a screen, the nearest first."""
    return (mode, *screen_tab(mode).groups, "app")


def footer_actions(group: str, count: int = 6) -> list[Action]:
    """Return the actions that the footer shows in rank order; a screen's end with `app.help`.

    Those of a line or of a dialog are its own alone.
    """
    own = sorted((one for one in actions_of(group) if one.footer), key=lambda one: one.footer)
    if group in INPUT_GROUPS | DIALOG_GROUPS:
        return own
    shared = [ACTIONS[name] for name in ("app.filter", "app.scope")]
    return [*(*own, *shared)[: count - 1], ACTIONS["app.help"]]


_KEY_WORDS = {
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "minus": "-",
    "dollar_sign": "$",
    "at": "@",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "space": "space",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "delete": "del",
}


def key_label(key: str) -> str:
    """Return how a key is written for a person: `ctrl+d`, `?`, `esc`."""
    *modifiers, last = key.split("+")
    return "+".join([*modifiers, _KEY_WORDS.get(last, last)])
