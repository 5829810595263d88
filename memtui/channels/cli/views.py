"""`views`: filters saved under names, each with screen, order and columns."""

import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from memtui.channels.cli.options import (
    FilterLine,
    OperationOptions,
    OwnerOptions,
    ScopeOptions,
    complete_read,
)
from memtui.channels.cli.output import columns, table
from memtui.channels.cli.session import Invocation, Session
from memtui.contract import Conflict, Denied, Invalid, NotFound
from memtui.filters import parse_filter
from memtui.paths import Paths, check_target
from memtui.screens.kept import SavedView, checked_name, delete_named, load_named, save_named
from memtui.wording import unknown


async def _names(session: Session) -> list[str]:
    return [one.name for one in load_named(session.paths.views_file, SavedView)]


Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The view's name.", autocompletion=complete_read(_names)),
]
Screen = Literal["operations", "query", "records", "budget", "analytics"]


def views_list(invocation: Invocation) -> None:
    """List the saved views: their screens and filters."""
    views = load_named(invocation.begun_paths().views_file, SavedView)
    titles = columns("name", "screen", "filter*")
    rows = ([one.name, one.screen, one.filter_line] for one in views)
    invocation.out.answer({"views": views}, table(titles, rows))


def views_save(
    invocation: Invocation, name: Name, line: FilterLine = None, *, screen: Screen = "operations"
) -> None:
    """Save a filter under NAME; it replaces the view of that name.

    In the app V saves the order and the columns too.

    Args:
        screen: The screen that shows it.
    """
    paths = _writable(invocation)
    written = " ".join(line or ())
    parse_filter(written, now=datetime.now(UTC))
    view = SavedView(name=checked_name(name), screen=screen, filter_line=written)
    save_named(paths.views_file, view)
    invocation.out.answer(view, [], f"Kept the view {view.name}.")


async def views_use(session: Session, name: Name, text: str | None = None) -> int:
    """Show what a saved view selects.

    It lists operations or records in the view's order, the figures of Analytics, or the facts of
    Budget. A view of Query answers TEXT; without TEXT it lists the records that a question is
    answered from.

    Args:
        text: The question; with a view of Query.
    """
    view = _named(session.paths.views_file, name)
    line = [view.filter_line] if view.filter_line else None
    if text is not None and view.screen != "query":
        raise Invalid(f"The view {view.name} is one of {view.screen}, which takes no question.")
    if view.screen == "operations":
        return await _operations(session, view, line)
    if view.screen == "analytics":
        from memtui.channels.cli.stats import stats

        await stats(session, ScopeOptions(), OperationOptions(), line)
    elif view.screen == "budget":
        from memtui.channels.cli.facts import facts_list
        from memtui.channels.cli.options import FactScope

        await facts_list(session, FactScope(), line)
    elif text is not None:
        from memtui.channels.cli.query import query

        await query(session, text, ScopeOptions(), line)
    else:
        from memtui.channels.cli.records import browse

        await browse(session, ScopeOptions(), line, sort=_sort_of(view))
    return 0


async def _operations(session: Session, view: SavedView, line: list[str] | None) -> int:
    from memtui.channels.cli.ops import in_order, ops_list

    if not view.column:
        return await ops_list(session, ScopeOptions(), OperationOptions(), line)
    from memtui.screens.operations.view import SORTS

    if view.column not in SORTS:
        raise Invalid(
            f"The view {view.name} is ordered by {view.column}, which operations are not; save it "
            "anew."
        )
    return await in_order(session, line, f"{'-' if view.descending else ''}{SORTS[view.column]}")


def _sort_of(view: SavedView) -> str:
    """Return a view's order of records; by default, and for other columns, the latest update."""
    if view.screen == "records" and view.column:
        from memtui.screens.records.view import PROVIDER_SORTS

        if field := PROVIDER_SORTS.get(view.column):
            return f"{'-' if view.descending else ''}{field}"
    return "-updated_at"


def views_delete(invocation: Invocation, name: Name) -> None:
    """Delete a saved view; the memories that it shows stay."""
    path = _writable(invocation).views_file
    view = _named(path, name)
    left = delete_named(path, SavedView, view.name)
    invocation.out.answer({"deleted": view, "views": left}, [], f"Deleted the view {view.name}.")


def _writable(invocation: Invocation) -> Paths:
    if invocation.settings().read_only:
        raise Denied("memtui runs read-only; start it without --read-only to change views.")
    return invocation.begun_paths()


def _named(path: Path, name: str) -> SavedView:
    views = load_named(path, SavedView)
    found = next((one for one in views if one.name == name), None)
    if found is None:
        raise NotFound(unknown("view", name, [one.name for one in views]))
    return found


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
