"""Every key of a screen and of the whole app, and why one does not work now."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.content import Content

from memtui.actions import ACTIONS, DIALOG_GROUPS, INPUT_GROUPS, Need, actions_of, screen_tab
from memtui.screens.keymap import Keymap
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, hanging, lines

_PLACES = {"list": "the list", **INPUT_GROUPS, **DIALOG_GROUPS}


def group_title(group: str) -> str:
    """Return how a group of keys is called."""
    if group == "app":
        return "Everywhere"
    return f"In {_PLACES[group]}" if group in _PLACES else screen_tab(group).title


def group_help(
    groups: Iterable[str], keymap: Keymap, why_disabled: Callable[[str], str], width: int = 0
) -> Content:
    """Return all keys of some groups, wrapped to `width` cells; 0 does not wrap."""
    lead = max(len(keymap.labels(name)) for name in ACTIONS) + 2
    blocks: list[Content] = []
    for group in groups:
        blocks.append(display(group_title(group), style=STRONG))
        for action in actions_of(group):
            keys = Content.styled(f"  {keymap.labels(action.id):<{lead}}", f"bold {ACCENT}")
            reason = why_disabled(action.id)
            if reason == Need.TABLE.value:
                continue
            said = display(action.description, style=DIM if reason else "")
            note = display(f"  ({reason})" if reason else "", style=WARN)
            blocks.append(hanging(keys, said + note, width))
        blocks.append(Content(""))
    return lines(blocks[:-1])
