"""Textual key bindings from the registry of actions."""

from textual.binding import Binding, BindingType

from memtui.actions import actions_of

NO_KEY = "no_key"
"""The key of an action that has none; the keymap may give it one."""


def bindings_everywhere(*verbs: str) -> list[BindingType]:
    """Return the bindings by which a dialog or review leads to the numbered screens.

    `verbs` are further actions of the app. The screen carries them out as `action_everywhere`.
    """
    return [
        Binding(",".join(one.keys), f"everywhere('{one.verb}')", one.label, id=one.id, show=False)
        for one in actions_of("app")
        if one.verb.startswith("go_") or one.verb in verbs
    ]


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
