from __future__ import annotations

from pathlib import Path

from memtui.actions import ACTIONS, SCREENS, groups_on
from memtui.screens.help import help_content, keys_document
from memtui.screens.keymap import load_keymap

DOCUMENT = Path(__file__).parents[2] / "docs" / "keys.md"


def test_the_document_of_keys_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == keys_document(), (
        "write it again: python -c 'from memtui.screens.help import keys_document; "
        'print(keys_document(), end="")\' > docs/keys.md'
    )


def test_the_document_names_every_action() -> None:
    text = keys_document()
    assert all(f"`{name}`" in text for name in ACTIONS)


def test_help_names_every_key_of_a_screen_and_why_one_does_not_work() -> None:
    keymap = load_keymap({"app.scope": "f7"})
    for tab in SCREENS:
        shown = help_content(
            tab.mode, keymap, lambda name: "Not today." if name == "app.scope" else ""
        ).plain
        for action in ACTIONS.values():
            if action.group in groups_on(tab.mode):
                assert action.description in shown
        assert "f7" in shown
        assert "(Not today.)" in shown
