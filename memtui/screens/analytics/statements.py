"""Keeps statements under a name, and lets a person choose, rename and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.dom import DOMNode

from memtui.screens.analytics import queries
from memtui.screens.analytics.queries_dialog import ChooseQuery, Chosen
from memtui.screens.base import frame_of
from memtui.screens.dialogs import Confirm, Prompt
from memtui.widgets.background import Background


class Statements:
    """The saved statements as a part of a screen; `opened` gets the one that was chosen."""

    def __init__(self, owner: DOMNode, opened: Callable[[str], None]) -> None:
        self._owner = owner
        self._opened = opened
        self._earlier: Sequence[str] = ()
        self._work = Background(owner, "sql-queries")

    @property
    def _path(self) -> Path:
        return frame_of(self._owner).state.queries_file

    def save(self, statement: str) -> None:
        """Ask for a name and keep a statement under it."""
        path = self._path

        def keep(name: str | None) -> None:
            if name is not None:
                self._work.every(
                    lambda: asyncio.to_thread(queries.save_query, path, name, statement),
                    lambda _: frame_of(self._owner).toast(f"Kept as {queries.checked_name(name)}."),
                    frame_of(self._owner).fail,
                )

        prompt = Prompt(
            "Keep the statement as",
            placeholder="cost by agent",
            hint="enter keep; a name that is there is replaced   esc go back",
            check=queries.checked_name,
        )
        frame_of(self._owner).app.push_screen(prompt, keep)

    def choose(self, earlier: Sequence[str]) -> None:
        """Let a person choose a saved statement, or one of those run before."""
        path, self._earlier = self._path, tuple(earlier)
        dialog = ChooseQuery(lambda: asyncio.to_thread(queries.read_queries, path), self._earlier)
        frame_of(self._owner).app.push_screen(dialog, self._use)

    def _use(self, chosen: Chosen | None) -> None:
        if chosen is None:
            return
        if chosen.what == "open":
            self._opened(chosen.statement)
        elif chosen.what == "rename":
            self._rename(chosen.name)
        else:
            self._delete(chosen.name)

    def _rename(self, name: str) -> None:
        path = self._path

        def rename(other: str | None) -> None:
            if other is not None:
                self._change(lambda: queries.rename_query(path, name, other))

        prompt = Prompt(f"Rename {name} to", value=name, check=queries.checked_name)
        frame_of(self._owner).app.push_screen(prompt, rename)

    def _delete(self, name: str) -> None:
        path = self._path

        def delete(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._change(lambda: queries.delete_query(path, name))

        question = Confirm(f"Delete the saved statement {name}?", verb="delete it")
        frame_of(self._owner).app.push_screen(question, delete)

    def _change(self, change: Callable[[], None]) -> None:
        self._work.every(
            lambda: asyncio.to_thread(change),
            lambda _: self.choose(self._earlier),
            frame_of(self._owner).fail,
        )
