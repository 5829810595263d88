"""Statements that a person gave a name, in a file of the home, and the dialogs that keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from memtui.contract import Invalid, Model, NotFound
from memtui.screens.base import ServiceScreen
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.kept import load_document, save_document


class Queries(Model):
    """Statements by name."""

    queries: dict[str, str] = {}


def read_queries(path: Path) -> dict[str, str]:
    """Return the statements by name, in order of it; no file is none.

    Raises:
        Invalid: the file cannot be read.
    """
    problem = f"The saved statements in {path} cannot be read; fix the file or move it away."
    found = load_document(path, Queries, problem)
    return dict(sorted(found.queries.items(), key=lambda pair: pair[0].casefold()))


def save_query(path: Path, name: str, statement: str) -> None:
    """Keep a statement under a name, in place of the one that has it.

    Raises:
        Invalid: the name is empty, or the file cannot be read or written.
    """
    _write(path, {**read_queries(path), checked_name(name): statement})


def rename_query(path: Path, name: str, other: str) -> None:
    """Give a statement another name, which is not taken; raises as `save_query`."""
    queries, other = read_queries(path), checked_name(other)
    if name not in queries:
        raise NotFound(f"The saved statement {name!r} was deleted.")
    if other in queries and other != name:
        raise Invalid(f"{other!r} is taken; give another name or delete that one.")
    _write(path, {other if key == name else key: text for key, text in queries.items()})


def delete_query(path: Path, name: str) -> None:
    """Let go of a statement; raises as `save_query`."""
    _write(path, {key: text for key, text in read_queries(path).items() if key != name})


def checked_name(name: str) -> str:
    """Return a name without the blanks around it; raises `Invalid` for one that is none."""
    kept = " ".join(name.split())
    if not kept or len(kept) > 100:
        raise Invalid("A name has 1 to 100 characters.")
    return kept


def _write(path: Path, queries: dict[str, str]) -> None:
    save_document(path, Queries(queries=queries))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a person wants with a statement; `name` is empty for one that is not saved."""

    what: Literal["open", "rename", "delete"]
    statement: str
    name: str = ""


class ChooseQuery(Choose[Chosen]):
    """Choose a saved statement, or one run before; rename or delete a saved one."""

    BINDINGS = [
        ("q", "back", "back"),
        ("r", "take('rename')", "rename"),
        ("d,delete", "take('delete')", "delete"),
        ("j", "step(1)", "down"),
        ("k", "step(-1)", "up"),
    ]
    KEYS = "enter open   r rename   d delete   esc go back"
    NARROWED = False
    NOTHING = "Nothing is saved yet; ctrl+s in the statement keeps it under a name."

    def action_take(self, what: Literal["rename", "delete"]) -> None:
        """Rename or delete a saved statement."""
        one = self.highlighted
        if one is not None and one.name:
            self.dismiss(replace(one, what=what))


async def keep_statement(screen: ServiceScreen, statement: str) -> None:
    """Ask in a conversation for a name, and keep a statement under it."""
    path = screen.state.paths.queries_file
    prompt = Prompt(
        "Keep the statement as",
        placeholder="cost by agent",
        hint="enter keep; a name that is there is replaced   esc go back",
        check=checked_name,
    )
    if (name := await screen.ask(prompt)) is not None:
        await screen.change(lambda: asyncio.to_thread(save_query, path, name, statement))
        screen.toast(f"Kept as {checked_name(name)}.")


async def choose_statement(
    screen: ServiceScreen, earlier: Sequence[str], opened: Callable[[str], None]
) -> None:
    """Let a person open a saved statement or one run before; rename and delete until then."""
    path = screen.state.paths.queries_file

    async def choices() -> list[Choice[Chosen]]:
        saved = await asyncio.to_thread(read_queries, path)
        listed = [*saved.items(), *(("", one) for one in earlier if one not in saved.values())]
        return [
            Choice(Chosen("open", text, name), " ".join(text.split()), name or "run before")
            for name, text in listed
        ]

    while True:
        if (chosen := await screen.ask(ChooseQuery("Statements", choices))) is None:
            return
        name = chosen.name
        if chosen.what == "open":
            opened(chosen.statement)
            return
        if chosen.what == "rename":
            prompt = Prompt(f"Rename {name} to", value=name, check=checked_name)
            if (other := await screen.ask(prompt)) is None:
                return
            await screen.change(partial(asyncio.to_thread, rename_query, path, name, other))
        else:
            question = Confirm(f"Delete the saved statement {name}?", verb="delete it")
            if not await screen.ask(question):
                return
            await screen.change(partial(asyncio.to_thread, delete_query, path, name))
