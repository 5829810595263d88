"""Texts that a terminal or a markup reader would obey, and a check that none got through."""

from __future__ import annotations

import unicodedata
from typing import Any

from textual.app import App
from textual.content import Content

from tests.headless import picture

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "c1 \x9b31m \x9d0;t\x9c \x85",
    "\u202eright to left\u202c \u2066isolate\u2069",
    "[$error] [/a [/tmp/x] [bold]b[/] [@click=app.quit]x[/]",
    "nul \x00 bell \x07 back \x08 del \x7f",
    "lone \ud800 surrogate",
    "z" + "\u0301" * 2_000,
    "line\r\nline\n\tline\u2028\u2029",
    "x" * 10_000_000,
    "$primary {curly} %s",
)


def assert_harmless(text: str) -> None:
    """Fail if a character is in the text that a terminal obeys or that hides another."""
    wrong = {
        char
        for char in text
        if char != "\n"
        and unicodedata.category(char) in {"Cc", "Cs", "Cf"}
        and char not in "\u200c\u200d"
    }
    assert not wrong, sorted(map(hex, map(ord, wrong)))


def assert_content_harmless(content: Content) -> None:
    """The same for a content, with no span that a text could have brought in."""
    assert_harmless(content.plain)
    for span in content.spans:  # where a span leads to is data; what it does is not
        style = span.style if isinstance(span.style, str) else str(list(span.style.meta))
        assert "click" not in style


def screen_text(app: App[Any]) -> str:
    """Return what the shown screen paints, and what shows from below it."""
    return picture(app)
