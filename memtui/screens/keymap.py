"""The keys in force: the registry's defaults and the settings' changes, checked at load."""

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from memtui.actions import (
    ACTIONS,
    DIALOG_GROUPS,
    INPUT_GROUPS,
    SCREENS,
    Action,
    footer_actions,
    groups_on,
    key_label,
)
from memtui.widgets.frame import FooterEntry

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_SENT = {
    "ctrl+h": "backspace",
    "ctrl+i": "tab",
    "ctrl+left_square_bracket": "escape",
    "ctrl+m": "enter",
    "ctrl+slash": "ctrl+underscore",
    "ctrl+space": "ctrl+@",
}
"""The key that terminals without the kitty keyboard protocol send instead."""


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys of each action. Make it with `load_keymap`, which checks it."""

    moved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def keys(self, action_id: str) -> tuple[str, ...]:
        """Return the keys of an action, the one to show first."""
        return self.moved.get(action_id) or ACTIONS[action_id].keys

    def label(self, action_id: str) -> str:
        """Return the first key of an action, in words; empty: it has none."""
        return self.labels(action_id).partition(" ")[0]

    def labels(self, action_id: str) -> str:
        """Return all keys of an action, in words."""
        return " ".join(key_label(key) for key in self.keys(action_id))

    @property
    def doubt(self) -> str:
        """A warning about actions whose keys many terminals send as others; empty: none."""
        return " ".join(
            f"Only with the kitty keyboard protocol do terminals send {key_label(key)}, which "
            f"{name} has; others send {_SENT[key]}."
            for name, keys in self.moved.items()
            if all(one in _SENT for one in keys)
            for key in keys
        )

    def for_textual(self) -> dict[str, str]:
        """Return the moved keys in the form of `App.set_keymap`."""
        return {name: ",".join(keys) for name, keys in self.moved.items()}


def load_keymap(settings: Mapping[str, str]) -> Keymap:
    """Check the keymap of the settings and return the keys in force.

    Raises:
        Invalid: an unknown action, an unknown key, or two actions of one screen on one key.
    """
    moved = {name: _keys_of(name, keys) for name, keys in settings.items()}
    keymap = Keymap(moved)
    for tab in SCREENS:
        _refuse_clash(tab.title, keymap, [g for g in groups_on(tab.mode) if g not in INPUT_GROUPS])
    for group, place in DIALOG_GROUPS.items():
        _refuse_clash(place, keymap, [group, "list"])
    for group, place in INPUT_GROUPS.items():
        _refuse_clash(place, keymap, [group])
    return keymap


def _unfit(sentence: str) -> Exception:
    from memtui.contract import Invalid  # only here: the first paint does without the contract

    return Invalid(sentence)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    from memtui.wording import unknown

    return unknown(what, name, known)


def _keys_of(action_id: str, text: str) -> tuple[str, ...]:
    if action_id not in ACTIONS:
        raise _unfit(
            f"{_unknown('action', action_id, ACTIONS)} The keymap names it; docs/keys.md lists all."
        )
    keys = tuple(_key_named(key, action_id) for part in text.split(",") if (key := part.strip()))
    if not keys:
        raise _unfit(f"The keymap gives {action_id} no key; name one, such as ctrl+n or f2.")
    return keys


def _key_named(key: str, action_id: str) -> str:
    *modifiers, last = key.split("+") if key != "+" else [key]
    known, pressed = _key_names(), sorted(set(modifiers))
    if len(last) == 1 and last.isprintable():
        if pressed == ["shift"] and last.isalpha():
            pressed, last = [], last.upper()
        elif pressed == ["ctrl"]:
            last = last.lower()
        elif pressed and last != last.lower():
            pressed, last = sorted({*pressed, "shift"}), last.lower()
        if (pressed, last) != (["ctrl"], "@"):  # which Textual calls so
            last = known.get(last, last)
    elif last not in known.values():
        raise _unfit(f"{_unknown('key', last, known.values())} The keymap gives it to {action_id}.")
    if wrong := [name for name in pressed if name not in _MODIFIERS]:
        raise _unfit(
            f"The keymap gives {action_id} the key {key!r} with an unknown modifier {wrong[0]!r}; "
            f"modifiers are {', '.join(sorted(_MODIFIERS))}."
        )
    return "+".join([*pressed, last])


def _key_names() -> dict[str, str]:
    """Return the name of each key; a printable character maps to its long name."""
    from textual.keys import Keys, _character_to_key

    names = [key.value for key in Keys if key.value.isalnum() and key is not Keys.Return]
    return {name: name for name in names} | {
        char: _character_to_key(char) for char in string.printable if char.isprintable()
    }


def _refuse_clash(where: str, keymap: Keymap, groups: list[str]) -> None:
    taken: dict[str, str] = {}
    for action in ACTIONS.values():
        if action.group not in groups:
            continue
        for key in keymap.keys(action.id):
            other = taken.setdefault(key, action.id)
            if other != action.id:
                raise _unfit(
                    f"The keymap puts {other} and {action.id} on the same key {key_label(key)} "
                    f"in {where}; give one of them another key."
                )


def footer_entries(
    group: str,
    keymap: Keymap,
    why_disabled: Callable[[str], str],
    labels: Mapping[str, str],
) -> tuple[FooterEntry, ...]:
    """Return the footer entries of a group."""
    return action_entries(footer_actions(group), keymap, why_disabled, labels)


def action_entries(
    actions: Iterable[Action],
    keymap: Keymap,
    why_disabled: Callable[[str], str],
    labels: Mapping[str, str],
) -> tuple[FooterEntry, ...]:
    """Return actions as footer entries."""

    def entry(action: Action) -> FooterEntry:
        return FooterEntry(
            action.id,
            keymap.label(action.id),
            labels.get(action.id, action.label),
            action.description,
            why_disabled(action.id),
        )

    return tuple(entry(action) for action in actions)
