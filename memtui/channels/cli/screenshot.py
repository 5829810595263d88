"""`views screenshot`: a picture of a screen of the terminal app, without a terminal."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from memtui.channels.cli.options import FilterLine, OwnerOptions
from memtui.channels.cli.session import Invocation
from memtui.contract import Conflict, Invalid

_SIZE = re.compile(r"(\d{1,4})[x×](\d{1,4})")
_LEAST, _MOST = (40, 10), (400, 200)
"""Smallest and largest size, in columns and rows."""


async def views_screenshot(
    invocation: Invocation,
    screen: str,
    owner: OwnerOptions,
    line: FilterLine = None,
    *,
    to: Annotated[Path, typer.Option(metavar="FILE.svg")],
    size: str = "120x40",
    theme: str = "",
    overwrite: bool = False,
) -> None:
    """Write a picture of a screen to an SVG file.

    It shows the whole company unless options narrow it: check the picture before you share it. Its
    reads are logged as the app's own.

    Args:
        screen: bindings, operations, query, records, budget or analytics.
        to: The file to write.
        size: Columns and rows.
        theme: The theme; default: the app's.
        overwrite: Replace the file.
    """
    from memtui.channels.cli.pictures import Shot, take
    from memtui.paths import check_target
    from memtui.screens.exports import path_of, write_file

    columns_and_rows = _size(size)
    path = path_of(str(to), ["svg"])
    if path.exists() and not overwrite:
        raise Conflict(f"{path} is there already; give --overwrite to replace it.")
    check_target(path, force=overwrite)
    paths, settings = invocation.begun_paths(), invocation.settings()
    if theme:
        settings = settings.model_copy(update={"theme": theme})
    chosen = {f"{name}_id": value for name, value in asdict(owner).items()}
    shot = Shot(screen, chosen, " ".join(line or ()))
    company = settings.company or None
    [picture] = await take(paths, settings, [shot], size=columns_and_rows, company=company)
    write_file(path, lambda work: work.write_text(picture.svg, "utf-8"), overwrite=overwrite)
    columns, rows = columns_and_rows
    document = {
        "file": str(path),
        "screen": screen,
        "columns": columns,
        "rows": rows,
        "whole": picture.is_whole,
    }
    late = "" if picture.is_whole else "Something on it was still being read after a minute."
    invocation.out.answer(document, [str(path)], late)


def _size(text: str) -> tuple[int, int]:
    """Return columns and rows. Raises `Invalid` for anything else, or a size out of range."""
    match = _SIZE.fullmatch(text.strip())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(least <= one <= most for least, one, most in zip(_LEAST, size, _MOST, strict=True)):
        raise Invalid(
            f"{text!r} is not a size; give columns and rows from {_LEAST[0]}x{_LEAST[1]} to "
            f"{_MOST[0]}x{_MOST[1]}, such as 120x40."
        )
    return size
