"""Dialogs to save statements under names and to open them again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from memtui.screens.base import ServiceScreen
from memtui.screens.dialogs import Choice, Choose, Prompt
from memtui.screens.kept import SavedStatement, checked_name, load_named, save_named
from memtui.screens.views import delete, rename


@dataclass(frozen=True, slots=True)
class Chosen:
    """A person's choice for a statement; `name` is empty if it is not saved."""

    what: Literal["open", "rename", "delete"]
    statement: str
    name: str = ""


class ChooseQuery(Choose[Chosen]):
    """A dialog to choose a statement, saved or run before, and to rename or delete a saved one."""

    BINDINGS = [
        ("q", "back", "back"),
        ("e", "take('rename')", "rename"),
        ("d,delete", "take('delete')", "delete"),
        ("j", "step(1)", "down"),
        ("k", "step(-1)", "up"),
    ]
    KEYS = "enter open   e rename   d delete   esc go back"
    NARROWED = False
    NOTHING = "Nothing is saved yet; ctrl+s in the statement keeps it under a name."

    def action_take(self, what: Literal["rename", "delete"]) -> None:
        """Rename or delete a saved statement."""
        one = self.highlighted
        if one is not None and one.name:
            self.dismiss(replace(one, what=what))


async def keep_statement(screen: ServiceScreen, statement: str) -> None:
    """Ask for a name, and save a statement under it; part of a conversation."""
    path = screen.state.paths.queries_file
    prompt = Prompt(
        "Keep the statement as",
        placeholder="cost by agent",
        hint="enter save; replaces one of that name   esc go back",
        check=checked_name,
    )
    if (name := await screen.ask(prompt)) is not None:
        one = SavedStatement(name=checked_name(name), statement=statement)
        await screen.change(lambda: asyncio.to_thread(save_named, path, one))
        screen.toast(f"Kept as {one.name}.")


async def choose_statement(
    screen: ServiceScreen, earlier: Sequence[str], opened: Callable[[str], None]
) -> None:
    """Let a person open a statement, saved or run before; after a rename or delete, ask again."""
    path, names = screen.state.paths.queries_file, list[str]()

    async def choices() -> list[Choice[Chosen]]:
        found = await asyncio.to_thread(load_named, path, SavedStatement)
        names[:] = [one.name for one in found]
        saved = {one.statement for one in found}
        listed = [(one.statement, one.name) for one in found]
        listed += [(text, "") for text in earlier if text not in saved]
        return [
            Choice(Chosen("open", text, name), " ".join(text.split()), name or "run before")
            for text, name in listed
        ]

    while True:
        if (chosen := await screen.ask(ChooseQuery("Statements", choices))) is None:
            return
        if chosen.what == "open":
            opened(chosen.statement)
            return
        one = SavedStatement(name=chosen.name, statement=chosen.statement)
        if chosen.what == "rename":
            kept = await rename(screen, path, one, names)
        else:
            kept = await delete(screen, path, one)
        if kept is None:
            return
