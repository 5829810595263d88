from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.actions import ACTIONS
from memtui.contract import Invalid
from memtui.screens.keymap import Keymap, footer_entries, load_keymap


def test_the_default_keys_clash_nowhere() -> None:
    keymap = load_keymap({})
    assert keymap.keys("records.forget") == ACTIONS["records.forget"].keys
    assert keymap.for_textual() == {}


def test_an_action_moves_to_other_keys() -> None:
    keymap = load_keymap({"records.forget": "D, f9", "app.help": "f6"})
    assert keymap.keys("records.forget") == ("D", "f9")
    assert keymap.label("app.help") == "f6"
    assert keymap.for_textual() == {"records.forget": "D,f9", "app.help": "f6"}


def test_a_character_becomes_the_name_of_its_key() -> None:
    assert load_keymap({"app.help": "~"}).keys("app.help") == ("tilde",)


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("shift+ä", "Ä"),
        ("ctrl+X", "ctrl+x"),
        ("alt+X", "alt+shift+x"),
        ("shift+ctrl+up", "ctrl+shift+up"),
        ("ctrl+@", "ctrl+@"),
    ],
)
def test_a_key_is_what_a_terminal_sends_for_it(written: str, key: str) -> None:
    assert load_keymap({"app.tour": written}).keys("app.tour") == (key,)


def test_the_default_keys_can_be_written_as_the_documents_name_them() -> None:
    keymap = load_keymap({one.id: ",".join(one.keys) for one in ACTIONS.values() if one.keys})
    assert all(keymap.keys(one.id) == one.keys for one in ACTIONS.values() if one.keys)


def test_two_actions_may_swap() -> None:
    keymap = load_keymap({"records.edit": "d", "records.forget": "e"})
    assert keymap.keys("records.edit") == ("d",)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"records.forgt": "x"}, "did you mean records.forget?"),
        ({"zzz": "x"}, "docs/keys.md"),
        ({"records.forget": "ctlr+x"}, "unknown modifier 'ctlr'"),
        ({"records.forget": "escpe"}, "did you mean escape?"),
        ({"records.forget": "zzzzz"}, "of 134 keys the nearest are"),
        ({"records.forget": " , "}, "no key"),
        ({"records.forget": "e"}, "same key e in Records"),
        ({"records.forget": "q"}, "app.quit"),
        ({"list.down": "space"}, "Operations"),
        ({"filter.previous": "enter"}, "the filter line"),
    ],
)
def test_what_does_not_fit_is_a_sentence(settings: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as raised:
        load_keymap(settings)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_key_that_few_terminals_tell_apart_is_taken_and_named() -> None:
    keymap = load_keymap({"records.forget": "ctrl+i", "app.help": "f6"})
    assert keymap.keys("records.forget") == ("ctrl+i",)
    assert keymap.doubt == (
        "Only with the kitty keyboard protocol do terminals send ctrl+i, which records.forget has; "
        "others send tab."
    )
    assert load_keymap({"records.forget": "ctrl+i, f9"}).doubt == "", "a second key is what helps"


@given(st.dictionaries(st.sampled_from(list(ACTIONS)), st.text(max_size=12), max_size=3))
def test_any_keymap_is_taken_whole_or_refused(settings: dict[str, str]) -> None:
    try:
        keymap = load_keymap(settings)
    except Invalid:
        return
    assert set(keymap.for_textual()) == set(settings)
    assert all(keymap.keys(name) for name, one in ACTIONS.items() if one.keys)


def test_the_footer_carries_labels_and_reasons() -> None:
    entries = footer_entries(
        "records",
        Keymap(),
        lambda name: "This is read-only." if name == "records.forget" else "",
        {"records.forget": "forget 3…"},
    )
    forget = next(one for one in entries if one.action_id == "records.forget")
    assert (forget.key, forget.label, forget.reason) == ("d", "forget 3…", "This is read-only.")
