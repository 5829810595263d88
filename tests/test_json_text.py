from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from memtui.json_text import json_text
from memtui.visible import visible

JOINERS = "\u200c\u200d"


@pytest.mark.parametrize("text", ["\x9b31m", "\x7f", "\u202ebdi", "\ufeff", "\ud800", "\U000e0041"])
def test_what_a_terminal_obeys_is_escaped_and_the_same_json(text: str) -> None:
    written = json_text({text: [text]})
    assert written.isascii()
    assert json.loads(written) == {text: [text]}


def test_every_control_and_format_character_is_escaped_and_nothing_else() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        category = unicodedata.category(char)
        if category in {"Cc", "Cf", "Cs", "Zl", "Zp"} and char not in JOINERS:
            assert json_text(char).isascii(), hex(code)
        elif code > 0x7F and category not in {"Cn", "Co"}:
            assert json_text(char) == f'"{char}"', hex(code)


def test_a_json_text_is_shown_as_it_is() -> None:
    text = json_text({"x": "\x9b\x7f\u202e\u200b\u2028é漢👩\u200d💻"})
    assert visible(text) == text
