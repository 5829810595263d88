"""The one registry of the terminal app's actions; `actions.toml` has them all.

Footer, help screen, command palette, keymap checks and `docs/keys.md` all come from `ACTIONS`.

For a screen author: an action's id is `<group>.<verb>`. The group names the class that runs it:
`app`, a screen (`records`), or a widget that several screens share (`list`, `filter`). A screen
binds its group by naming it, a widget with `memtui.widgets.keys.bindings_for("filter")`. The class
defines `action_<verb>` for each of its actions; nothing else names a key. An action lists the
conditions it `needs`; the screen says which of them are `missing`, and why, so the action itself
checks nothing.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

KEEPS_ORDER = "This list keeps its own order."
"""The reason shown why lists in dialogs cannot be sorted."""


class Need(StrEnum):
    """A condition of an action; its value is the reason shown where it does not hold."""

    SERVICE = "memtui is still opening its database."
    WRITABLE = "memtui was started with --read-only."
    TAKES_CHANGES = "This binding is read-only."
    NOW = "This works only in the present; go back to now first."
    ROW = "Nothing is selected."
    MEMORY = "memtui only reads this file of the project; o opens it."
    SOURCE = "This has no source that can be opened."
    CORRECTION = "This provider cannot correct a record in place."
    HISTORY = "This provider keeps no history."
    EXPLAIN = "This provider does not explain its results."
    AGENTS_SEARCH = "This provider cannot be searched as its agents search it."
    SYNC = "This provider has nothing to sync."
    PROFILE = "This provider makes no profiles."
    UNDO = "There is nothing to undo."
    UNKNOWN_OUTCOME = "The outcome of this operation is known."
    FINDING = "Nothing was found on this machine that could still be added; r looks again."
    TABLE = "This list has no columns."
    BINDING = "No binding is selected."
    SETTINGS = "There are no settings here; go to the company or to a binding."
    NAMESPACES = "This provider has no namespaces."
    PLUGIN = "Only a memory plugin has a contract to check."
    DESTINATION = "There is no other binding to move to; a adds one."
    SCOPE = "Nobody is chosen; s chooses a user, project or agent."
    OWNERS = "Nothing is remembered yet."
    CHARTS = "This is for the charts; t shows them."
    SQL = "This is for SQL; t goes there."


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do."""

    group: str
    """The class that runs it: `app`, a screen's name, or a shared widget's."""
    verb: str
    """The name of the `action_…` method."""
    keys: tuple[str, ...]
    """Empty for a rare action, which the palette and the keymap reach."""
    label: str
    """One or two words for the footer."""
    description: str
    """A sentence for help, tooltip and documentation."""
    needs: tuple[Need, ...] = ()

    @property
    def id(self) -> str:
        """Its name in the keymap: `<group>.<verb>`."""
        return f"{self.group}.{self.verb}"

    @property
    def mutates(self) -> bool:
        """Whether it changes a memory or a setting."""
        return Need.WRITABLE in self.needs


@dataclass(frozen=True, slots=True)
class ScreenTab:
    """A numbered screen, the words of its tab, and the shared groups whose keys work on it."""

    mode: str
    number: int
    title: str
    short: str
    """The title where columns are few."""
    groups: tuple[str, ...] = ()


_NEEDS = {
    "CHANGE": (Need.SERVICE, Need.WRITABLE),
    "CHANGE_THERE": (Need.SERVICE, Need.WRITABLE, Need.TAKES_CHANGES),
    "CHANGE_ROW": (Need.SERVICE, Need.WRITABLE, Need.TAKES_CHANGES, Need.ROW, Need.MEMORY),
    **{one.name: (one,) for one in Need},
}
"""The words of `needs` in `actions.toml`."""


def _action(
    group: str, verb: str, *, description: str, keys: str = "", needs: str = "", label: str = ""
) -> Action:
    """Return an action as `actions.toml` has it; the label defaults to the verb."""
    needed = tuple(one for word in needs.split() for one in _NEEDS[word])
    return Action(
        group, verb, tuple(keys.split()), label or verb.replace("_", " "), description, needed
    )


_GROUPS = tomllib.loads(Path(__file__).with_name("actions.toml").read_text("utf-8"))

SCREENS = tuple(
    ScreenTab(name, tab["number"], tab["title"], tab["short"], tuple(tab["groups"].split()))
    for name, group in _GROUPS.items()
    if (tab := group.get("screen"))
)
"""All numbered screens; the numbers stay the same when a screen is added."""

INPUT_GROUPS = {name: one["line"] for name, one in _GROUPS.items() if "line" in one}
"""Input lines: their keys work only with the focus, and printable keys are text there."""

DIALOG_GROUPS = {name: one["dialog"] for name, one in _GROUPS.items() if "dialog" in one}
"""Groups of dialogs: while one is open, only its keys and those of its list work."""

_GO = [
    Action("app", f"go_{tab.mode}", (str(tab.number),), tab.title, f"Go to {tab.title}.")
    for tab in SCREENS
]
_LISTED = [
    _action(name, verb, **fields)
    for name, group in _GROUPS.items()
    for verb, fields in group["actions"].items()
]
ACTIONS: Mapping[str, Action] = {action.id: action for action in (*_GO, *_LISTED)}
"""Every action by its id."""

_TOGETHER = {
    verbs: sentence
    for names, sentence in (
        ("down up top bottom", "Move by a row; go to the first row or the last."),
        ("half_down half_up page_down page_up", "Move by half a page, or by a page."),
        ("sort reverse", "Choose the column to sort by; reverse the order."),
        ("columns wider narrower", "Choose the columns; widen or narrow the sorting one."),
        ("grow shrink", "Give the list more room, or its details."),
        (" ".join(f"go_{tab.mode}" for tab in SCREENS), "Go to the screen of this number."),
        ("filter clear_filter", "Narrow what every screen shows; show all of it again."),
        ("binding everywhere", "Choose the binding to look at; show all bindings at once."),
        ("picture theme suspend", "Write a picture, choose a theme, go back to the shell."),
        ("mark range", "Mark or unmark the row; mark from here to where you move."),
        ("edit edit_external", "Change the text in place, or in your editor."),
        ("undo redo", "Undo the last change, or the marked ones; redo what was undone."),
    )
    for verbs in [tuple(names.split())]
}
"""Actions whose keys share a line of the help, and the text of that line."""


def help_rows(group: str) -> Iterator[tuple[list[Action], str]]:
    """Yield the lines of a group's help: the actions that share one, and its sentence."""
    left = {one.verb: one for one in actions_of(group)}
    for verb, one in list(left.items()):
        shared = next((all_ for all_ in _TOGETHER if verb in all_ and left.keys() >= {*all_}), None)
        if shared is not None:
            yield [left.pop(name) for name in shared], _TOGETHER[shared]
        elif left.pop(verb, None) is not None:
            yield [one], one.description


def actions_of(group: str) -> Iterator[Action]:
    """Yield the actions of a group, in the registry's order."""
    return (action for action in ACTIONS.values() if action.group == group)


def screen_tab(mode: str) -> ScreenTab:
    """Return the screen of a mode; raises `KeyError` for one that does not exist."""
    return {tab.mode: tab for tab in SCREENS}[mode]


def groups_on(mode: str) -> tuple[str, ...]:
    """Return the groups whose keys work on a screen, the nearest first."""
    return (mode, *screen_tab(mode).groups, "app")


def footer_actions(group: str, count: int = 8) -> list[Action]:
    """Return the footer's actions of a group, the most used first.

    A screen gets at most `count`: its actions, then shared ones, `app.help` last. An input line or
    a dialog gets only its own actions, all of them.
    """
    own = [ACTIONS[f"{group}.{verb}"] for verb in _GROUPS[group]["footer"].split()]
    if group in INPUT_GROUPS | DIALOG_GROUPS:
        return own
    shared = [ACTIONS[name] for name in ("app.filter", "app.scope")]
    return [*(*own, *shared)[: count - 1], ACTIONS["app.help"]]


_KEY_WORDS = {
    "question_mark": "?",
    "ampersand": "&",
    "exclamation_mark": "!",
    "slash": "/",
    "plus": "+",
    "minus": "-",
    "dollar_sign": "$",
    "number_sign": "#",
    "at": "@",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
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
