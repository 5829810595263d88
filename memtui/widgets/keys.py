"""Textual key bindings from the registry of actions."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from memtui.actions import actions_of

NO_KEY = "no_key"
"""What stands for the key of an action without one; the keymap may give it a key."""


def bindings_for(group: str) -> list[BindingType]:
    """Return the bindings of a group, for the `BINDINGS` of its screen or widget.

    Each binding's id is the action's id, so that the keymap can move it.
    """
    return [
        Binding(
            ",".join(action.keys) or NO_KEY,
            action.verb,
            action.label,
            id=action.id,
            tooltip=action.description,
            show=False,
        )
        for action in actions_of(group)
    ]
