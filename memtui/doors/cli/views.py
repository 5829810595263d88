"""`views`: filters, with a screen, order and columns, kept under names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.contract import Invalid, NotFound, unknown
from memtui.doors.cli.options import FilterLine, OperationOptions, ScopeOptions
from memtui.doors.cli.output import columns, table
from memtui.doors.cli.session import Invocation, Session
from memtui.filters import parse_filter

if TYPE_CHECKING:
    from memtui.screens.kept import SavedView

Name = Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")]
Screen = Literal["operations", "query", "records", "budget", "analytics"]


def views_list(invocation: Invocation) -> None:
    """List the saved views: their screens and filters."""
    from memtui.screens.kept import load_views

    views = load_views(invocation.paths().views_file)
    titles = columns("name", "screen", "filter*")
    rows = ([one.name, one.screen, one.filter_line] for one in views)
    invocation.out.answer({"views": views}, table(titles, rows))


def views_save(
    invocation: Invocation,
    name: Name,
    line: FilterLine = None,
    *,
    screen: Annotated[Screen, typer.Option(help="The screen that shows it.")] = "operations",
) -> None:
    """Keep a filter under NAME, in place of the view that has the name.

    The app keeps order and columns with it, under the same key on every screen.
    """
    from memtui.screens.kept import SavedView, checked_name, save_view

    paths = invocation.paths()
    if not paths.is_begun:
        raise NotFound(f"{paths.data} holds nothing of memtui yet; start memtui once.")
    written = " ".join(line or ())
    parse_filter(written, now=datetime.now(UTC))
    view = SavedView(name=checked_name(name), screen=screen, filter_line=written)
    save_view(paths.views_file, view)
    invocation.out.answer(view, [], f"Kept the view {view.name}.")


async def views_use(session: Session, name: Name) -> None:
    """List what a view shows: operations, records, or the figures of screen 6."""
    view = _named(session.paths.views_file, name)
    line = [view.filter_line] if view.filter_line else None
    if view.screen == "operations":
        from memtui.doors.cli.ops import ops_list

        await ops_list(session, ScopeOptions(), OperationOptions(), line)
    elif view.screen == "records":
        from memtui.doors.cli.records import browse

        await browse(session, ScopeOptions(), line)
    elif view.screen == "analytics":
        from memtui.doors.cli.stats import stats

        await stats(session, ScopeOptions(), OperationOptions(), line)
    else:
        raise Invalid(
            f"The view {view.name} is one of the screen {view.screen}, which lists nothing by its "
            f"filter alone; give the filter to a command: {view.filter_line or 'it has none'}."
        )


def views_delete(invocation: Invocation, name: Name) -> None:
    """Delete a view; what it shows stays."""
    from memtui.screens.kept import delete_view

    path = invocation.paths().views_file
    view = _named(path, name)
    left = delete_view(path, view.name)
    invocation.out.answer({"deleted": view, "views": left}, [], f"Deleted the view {view.name}.")


def _named(path: Path, name: str) -> SavedView:
    from memtui.screens.kept import load_views

    views = load_views(path)
    found = next((one for one in views if one.name == name), None)
    if found is None:
        raise NotFound(unknown("view", name, [one.name for one in views]))
    return found
