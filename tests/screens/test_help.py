from __future__ import annotations

from memtui.actions import ACTIONS, SCREENS, groups_on
from memtui.screens.help import group_help
from memtui.screens.keymap import load_keymap


def test_help_names_every_key_of_a_screen_and_why_one_does_not_work() -> None:
    keymap = load_keymap({"app.scope": "f7"})
    for tab in SCREENS:
        shown = group_help(
            groups_on(tab.mode), keymap, lambda name: "Not today." if name == "app.scope" else ""
        ).plain
        for action in ACTIONS.values():
            if action.group in groups_on(tab.mode):
                assert action.description in shown
        assert "f7" in shown
        assert "(Not today.)" in shown
