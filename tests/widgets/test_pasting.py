"""What is pasted is one event, and nothing in it is a key that was pressed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.events import Key, Paste

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings
from memtui.widgets.pasting import PasteParser

TEXT = "a\x1b[31mred\x1b[0m\x1b[200~\x1b[201\x1bd\x1by\n\x1bOP [\x00end\x1b"
SENT = f"j\x1b[200~{TEXT}\x1b[201~\x1b[A"


@given(st.lists(st.integers(1, len(SENT)), max_size=6))
def test_a_paste_is_one_event_however_it_is_cut_and_whatever_is_in_it(cuts: list[int]) -> None:
    parser, found = PasteParser(), []
    ends = sorted({*cuts, len(SENT)})
    # Textual's own parser takes the beginning where it came in parts.
    ends = [end for end in ends if not 1 < end < 7]
    for begin, end in zip([0, *ends], ends, strict=False):
        found += list(parser.feed(SENT[begin:end]))
    assert [one.text for one in found if isinstance(one, Paste)] == [TEXT.replace("\x00", "")]
    assert [one.key for one in found if isinstance(one, Key)] == ["j", "up"]


def test_megabytes_of_escape_codes_are_one_event() -> None:
    text = "\x1b[31mred\x1b[0m " * 100_000
    sent = f"\x1b[200~{text}\x1b[201~"
    parser, found = PasteParser(), []
    for begin in range(0, len(sent), 4096):
        found += list(parser.feed(sent[begin : begin + 4096]))
    assert [type(one) for one in found] == [Paste]


def test_the_app_reads_its_terminal_with_it(paths: Paths, settings: Settings) -> None:
    from textual.drivers import linux_driver

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linux_driver, "XTermParser", XTermParser)
        driver = MemtuiApp(paths, settings).get_driver_class()
        assert driver is App().get_driver_class()
        assert vars(linux_driver)["XTermParser"] is PasteParser
