"""A picture of what the app shows, as SVG."""

import re
from typing import Any

from textual.app import App
from textual.strip import Strip
from textual.widgets import Input, TextArea

_FONT = "'Fira Code', ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

_BACKGROUND = re.compile(
    r'<rect fill="([^"]*)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"/>'
)
_BACKGROUNDS = re.compile(rf"(?:{_BACKGROUND.pattern.replace('(', '(?:')}){{2,}}")
_ROUNDED = 0.3
"""Largest distance of two edges that count as the same, in the picture's units."""


def picture_of(app: App[Any]) -> str:
    """Return the app's screen as SVG, without a blinking cursor."""
    _hold_cursors(app)
    return slim(app.export_screenshot(title="memtui", simplify=True))


def lines_of(app: App[Any]) -> list[Strip]:
    """Return the lines of the app's screen, to compare; a picture takes far longer."""
    _hold_cursors(app)
    update: Any = app.screen._compositor.render_update(  # noqa: SLF001 - as Textual does for a picture
        full=True,
        screen_stack=app._background_screens,  # noqa: SLF001
        simplify=True,
    )
    return [strip for line in update.strips for strip in line]


def _hold_cursors(app: App[Any]) -> None:
    for widget in app.screen.query("*"):
        if isinstance(widget, Input | TextArea):
            widget.cursor_blink = False


def slim(svg: str) -> str:
    """Remove the parts of a picture of Rich's that no viewer needs: three quarters of its size.

    These are web fonts, long names, and a clip path for each line. An attribute makes viewers
    preserve spaces.
    """
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<clipPath id=\"[\w-]+-line-\d+\">.*?</clipPath>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r" clip-path=\"url\(#[\w-]+-line-\d+\)\"", "", svg)
    svg = re.sub(r"terminal-\d+(?=-)", "t", svg).replace(' shape-rendering="crispEdges"', "")
    svg = svg.replace("<style>", "<style>\n    rect { shape-rendering: crispEdges }", 1)
    svg = svg.replace("font-family: Fira Code, monospace;", f"font-family: {_FONT};")
    svg = re.sub(r'="[^"]*"', lambda one: re.sub(r"(\d\.\d)\d{3,}", r"\1", one[0]), svg)
    svg = svg.replace("&#160;", "\N{NO-BREAK SPACE}")
    return re.sub(r"\n\s+", "\n", _BACKGROUNDS.sub(_merged, svg))


def _merged(run: re.Match[str]) -> str:
    """Merge neighbouring rectangles of one colour."""
    merged: list[tuple[str, float, str, float, str]] = []
    for fill, x, y, width, height in _BACKGROUND.findall(run[0]):
        left, wide = float(x), float(width)
        if merged:
            colour, start, row, so_far, high = merged[-1]
            if (colour, row, high) == (fill, y, height) and abs(start + so_far - left) < _ROUNDED:
                merged[-1] = colour, start, row, left + wide - start, high
                continue
        merged.append((fill, left, y, wide, height))
    return "".join(
        f'<rect fill="{fill}" x="{x:.6g}" y="{y}" width="{width:.6g}" height="{height}"/>'
        for fill, x, y, width, height in merged
    )
