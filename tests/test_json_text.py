from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from memtui.json_text import json_text, spliced_json
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


ENTRY = '{"type":"user","uuid":"u","message":{"id":"m","a":[{"type":"x"}]}}'


@pytest.mark.parametrize(
    ("line", "objects", "lost"),
    [
        (ENTRY, 1, 0),
        (ENTRY + ENTRY, 2, 0),
        ("\0\0" + ENTRY, 1, 0),
        (ENTRY[:30] + "\0\0" + ENTRY, 1, 1),
        *((ENTRY[:cut] + ENTRY, 1, 1) for cut in range(1, len(ENTRY))),
        *((ENTRY[:cut], 0, 1) for cut in range(1, len(ENTRY))),
        (f"x{ENTRY}y{ENTRY[:40]}", 1, 2),
        ("words", 0, 1),
        (" \0 ", 0, 0),
        ('{"a":' * 50_000, 0, 1),
        ('{"' * 50_000, 0, 1),
    ],
)
def test_a_damaged_line_gives_its_whole_objects(line: str, objects: int, lost: int) -> None:
    found = list(spliced_json(line.encode()))
    assert [one for one in found if one] == [json.loads(ENTRY)] * objects
    assert found.count(None) == lost
