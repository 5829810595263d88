"""Opens sources.

A file opens in the person's editor at its line, a web address in the desktop's browser (never in
a terminal browser); a run or an issue without an address shows its operations.
"""

import asyncio
import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from textual.app import App, SuspendNotSupported

from memtui.contract import Filter, Invalid, Location, MemtuiError, NotFound, SourceRef, Unavailable
from memtui.external_editor import command_at, edited, editor_words, run_program
from memtui.filters import format_filter
from memtui.presenters.format import parse_place, source_line
from memtui.screens.base import ServiceScreen
from memtui.screens.state import GoTo


@dataclass(frozen=True, slots=True)
class WebAddress:
    """An address to open in the browser."""

    url: str


@dataclass(frozen=True, slots=True)
class LogEntries:
    """Operations to show, by a filter."""

    filter: Filter


Opening = Location | WebAddress | LogEntries


def find_opening(
    source: SourceRef | None, link: str | None, location: Location | None = None
) -> Opening | None:
    """Return how to open a source: its link, or the operations of its run or issue.

    Without a source, `location` is opened. A link with a scheme other than http, https or file is
    never opened: a source is foreign text.
    """
    if source is None:
        return location
    if link and (opened := _from_link(link)):
        return opened
    if source.run_id:
        return LogEntries(Filter(run_id=source.run_id))
    if source.issue_id:
        return LogEntries(Filter(issue_id=source.issue_id))
    return None


def source_filter(source: SourceRef | None) -> str:
    """Return the filter line for the issue of a source, else its run, else its kind.

    Raises:
        NotFound: there is no source.
    """
    if source is None:
        raise NotFound("This record names no source.")
    if source.issue_id:
        return format_filter(Filter(issue_id=source.issue_id))
    if source.run_id:
        return format_filter(Filter(run_id=source.run_id))
    return format_filter(Filter(source_kind=source.kind))


def _from_link(link: str) -> Opening | None:
    try:
        parts = urlsplit(link)
    except ValueError:
        return None
    if parts.scheme in {"http", "https"}:
        return WebAddress(link) if parts.netloc and link.isprintable() else None
    if parts.scheme == "file":
        return parse_place(unquote(parts.path))
    return None if "://" in link else parse_place(link)


_NONE = "It has no source that could be opened."


def open_source(
    screen: ServiceScreen, source: SourceRef | None, location: Location | None = None
) -> None:
    """Open a source, else `location`; a toast says why if nothing can be opened."""
    session = screen.session
    link = session.company.link(source) if source is not None else None
    opening = find_opening(source, link, location)
    if opening is None:
        problem = f"There is nothing to open for {source_line(source)}." if source else _NONE
        screen.fail(Invalid(problem))
    elif isinstance(opening, LogEntries):
        screen.post_message(GoTo("operations", filter_line=format_filter(opening.filter)))
    elif isinstance(opening, WebAddress):
        open_in_browser(screen, opening.url)
    else:
        open_file(screen, opening)


def open_file(screen: ServiceScreen, location: Location) -> None:
    """Open a file at its line in the person's editor, if it exists."""

    def show(found: Location) -> None:
        try:
            editor = editor_words(screen.state.settings.editor)
            if code := run_in_terminal(screen.app, command_at(editor, found)):
                raise Unavailable(f"The editor ended with code {code}.")
        except MemtuiError as error:
            screen.fail(error)

    screen.acts.every(lambda: _existing(location), show, screen.fail)


def edited_outside(
    screen: ServiceScreen, text: str, of: tuple[str, str]
) -> AbstractContextManager[str]:
    """Let the person edit a text in their own editor; after a failure the text is kept in a file.

    Args:
        screen: The screen.
        text: The initial text.
        of: Binding key and id of the text's record.
    """
    return edited(
        text,
        screen.state.settings.editor,
        partial(run_in_terminal, screen.app),
        within=screen.state.paths.data,
        keep=lambda file: screen.toast(f"Your text is kept in {file}."),
        of=of,
    )


def run_in_terminal(app: App[Any], command: Sequence[str]) -> int:
    """Give the terminal to a program until it ends; return its exit code.

    The event loop stands still meanwhile, or the app would paint over the program.

    Raises:
        Invalid: the program cannot be started, or the terminal cannot be handed over.
    """
    try:
        with app.suspend():
            return run_program(command)
    except SuspendNotSupported as error:
        raise Invalid("This terminal cannot be handed to an editor; use e instead.") from error


async def _existing(location: Location) -> Location:
    found = await asyncio.to_thread(_file, location.path)
    if found is None:
        raise NotFound(f"The file {location.path} is not there any more.")
    return Location(path=str(found), line=location.line)


def _file(path: str) -> Path | None:
    try:
        found = Path(path).expanduser()
        return found if found.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def open_in_browser(screen: ServiceScreen, url: str) -> None:
    """Open a page in the desktop's browser; without a desktop, copy its address."""
    if screen.app.is_web:
        screen.app.open_url(url)
        return
    if not _has_desktop():
        screen.copy(url, f"No browser was found; copied {url}")
        return

    def opened(ok: bool) -> None:  # noqa: FBT001 - the answer of webbrowser.open
        if ok:
            screen.toast(f"Opened {url}")
        else:
            screen.copy(url, f"The browser did not open; copied {url}")

    screen.acts.every(lambda: _open(url), opened, screen.fail)


async def _open(url: str) -> bool:
    try:
        return await asyncio.to_thread(webbrowser.open, url)
    except webbrowser.Error as error:
        raise Unavailable(f"The browser did not open: {error}.") from error


def _has_desktop() -> bool:
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(shown) or sys.platform in {"darwin", "win32"}
