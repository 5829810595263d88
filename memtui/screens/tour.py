"""The tour: an overview in one dialog, with things to try; shown once in each home."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from memtui.actions import ACTIONS, SCREENS
from memtui.contract import Scope
from memtui.paths import HOME_VARIABLE
from memtui.presenters.format import counted
from memtui.processes import end_process
from memtui.screens.dialogs import Sheet
from memtui.screens.state import AppState, GoTo, Phase, find_memories
from memtui.widgets.background import Background
from memtui.widgets.display import ACCENT, DIM, STRONG, display, hanging, line, lines, toast

if TYPE_CHECKING:
    from memtui.backends.discovery import DiscoveredMemory
    from memtui.screens.base import MemtuiScreen

_ANSWERS = {
    "bindings": "which memory system serves whom, and its health",
    "operations": "who did what to the memory, when, and at what cost",
    "query": "what an agent would find, and where that comes from",
    "records": "all that is remembered: edit, forget, undo",
    "budget": "what the model is given, its cost, and what could go",
    "analytics": "cost, speed and hits as charts, or in SQL",
}
_PROJECT, _QUESTION = "mech-fighters", "which branch do we deploy from"
"""A project of the demo with all sorts of operations, and a question of its agents."""
_POISON = 'kind:fact "note to all agents"'
"""The filter line that finds the demo's poisoned note."""
_KEYS = "abcefhil"
"""The keys of the things to try, of which some tours have fewer: `d` only ever removes, and `g`
scrolls."""
_COMPARE = "compare default handbook --last 100"
_NO_GIT = "This demo was made without git, so there is no repository to look into."
_FORGETTING = "bindings conformance --forgetting default --yes"
_NAMED = 3
"""Most providers of found memories that are named."""
_FOR_AGENTS = """\
In a shell, these tell Claude Code of memtui; each shows what it changes and asks first:

memtui mcp install claude-code --project-from-folder
   gives the agent tools to search and to note
memtui hook install claude-code --project-from-folder
   tells it what is remembered when a session starts and at each prompt

memtui mcp clients and memtui hook clients list the other programs.
Then start a new session, and watch it here: 1 shows who is connected, 2 what they do."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A suggestion of the tour: its text, and the screen that it opens."""

    words: str
    leads: GoTo | None
    """The screen to go to; None: the tour shows it."""
    why_not: str = ""
    """Why it cannot be tried here; empty: it can."""
    command: str = ""
    """The command whose output the tour shows."""


class Tour(Sheet):
    """The overview; each of its lines has a key."""

    BOX = "dialog-sheet dialog-tour"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"try_out({place})", "try") for place, key in enumerate(_KEYS)),
        Binding(",".join(ACTIONS["app.tour"].keys), "back", "close", id="app.tour"),
        Binding("enter", "back", "start"),
    ]

    def __init__(self, frame: MemtuiScreen) -> None:
        super().__init__("Welcome to memtui", self._drawn)
        state = frame.state
        self._frame = frame
        self._is_demo = state.paths.is_demo
        self._findings: Sequence[DiscoveredMemory] | None = None
        self._looking = Background(self, "discovery")
        self._chosen: int | None = None
        """The chosen thing, while the service is being opened."""
        again = f"{state.keymap.label('app.tour')} brings this back"
        self._keys = display(f"enter start   {state.keymap.label('app.help')} all keys   {again}")

    def on_mount(self) -> None:
        """Look for memories on this machine, except in the demo."""
        self.watch(self._frame, "state", self._state_changed)
        if not self._is_demo:
            self._looking.latest(find_memories, self._show_findings, self._frame.fail)

    def _show_findings(self, findings: Sequence[DiscoveredMemory]) -> None:
        self._findings = findings
        self.show(self._drawn)

    def most_lines(self, height: int) -> int:
        """Leave a narrow margin, so that all of it fits 24 lines."""
        return height - 6

    @property
    def things(self) -> Sequence[Thing]:
        """The things to try."""
        return list(self._of_demo() if self._is_demo else self._of_own())

    def _of_demo(self) -> Iterator[Thing]:
        whole = Scope(company_id=self._frame.state.scope.company_id)
        scope = whole.model_copy(update={"project_id": _PROJECT})
        yield Thing(
            f"Ask as an agent does: “{_QUESTION}?”",
            GoTo("query", filter_line="", scope=scope, select=_QUESTION),
        )
        yield Thing(
            "See what agents wrote this week: for which issue, at what cost",
            GoTo("operations", filter_line="type:write by:agent since:7d"),
        )
        yield Thing(
            "Prune: what is said twice, contradicted, or was never read",
            GoTo("records", filter_line="", scope=whole, then="records.prune"),
        )
        yield Thing(
            "Trace a poisoned note: which runs it reached, and what they wrote",
            GoTo("records", filter_line=_POISON, scope=whole, then="records.trace"),
        )
        yield Thing(
            "Check what the memory answers: one of four checks fails",
            GoTo("query", filter_line="", scope=whole, then="query.checks"),
        )
        yield Thing(
            "Is it still true? One memory names a file that is gone",
            GoTo("records", filter_line="risk:gone", scope=whole, then="records.prune"),
            "" if self._frame.state.settings.workspaces else _NO_GIT,
        )
        yield Thing("Compare two memories by what agents asked of them", None, command=_COMPARE)
        words = "Does a memory forget? Write four notes, forget three, ask again"
        yield Thing(words, None, command=_FORGETTING)

    def _of_own(self) -> Iterator[Thing]:
        bound = [(one.provider_key, one.config) for one in self._frame.state.bindings]
        usable = [one for one in self._findings or () if one.usable]
        found = [one for one in usable if not any(one.is_read_by(*each) for each in bound)]
        kinds = list(dict.fromkeys(one.provider for one in found))
        named = ", ".join([*kinds[:_NAMED], *(["…"] if len(kinds) > _NAMED else [])])
        if self._findings is None:
            words = why_not = "Looking for memory stores on this machine."
        elif found:
            words = f"Add {counted(len(found), 'memory store')}, read-only: {named}"
            why_not = ""
        else:
            words = why_not = "No other memory stores were found on this machine."
        yield Thing(words, GoTo("bindings", then="bindings.add_all"), why_not)
        yield Thing("Write your first record", GoTo("records", then="records.add"))
        yield Thing("Let your agents use memtui: two commands", None)

    def _drawn(self, width: int) -> Content:
        state = self._frame.state
        made_up = "This is a made-up company: sixty days of what its agents remember."
        if state.demo_percent is not None:
            made_up = f"A made-up company of which {state.demo_percent}% is made so far."
        own = "See, search, correct and prune what your agents remember."
        wide = max(len(tab.title) for tab in SCREENS) + 4
        keys = [state.keymap.label(f"app.go_{tab.mode}") for tab in SCREENS]

        def row(lead: Content, words: str, style: str = "") -> Content:
            gap = Content(" " * (wide - lead.cell_length))
            return hanging(lead + gap, display(words, limit=200, style=style), width)

        def keyed(key: str, name: str = "") -> Content:
            return line(Content.styled(key, f"bold {ACCENT}"), display(name, style=STRONG))

        return lines(
            [
                display(made_up if self._is_demo else own),
                *(
                    row(keyed(key, tab.title), _ANSWERS[tab.mode])
                    for key, tab in zip(keys, SCREENS, strict=True)
                ),
                Content(""),
                display("Try first", style=STRONG),
                *(
                    hanging(keyed(key) + Content("  "), _said(thing), width)
                    for key, thing in zip(_KEYS, self.things, strict=False)
                ),
            ]
        )

    def action_try_out(self, place: int) -> None:
        """Go to a thing to try, if there are so many."""
        if place >= len(self.things):
            return
        thing = self.things[place]
        if thing.why_not:
            toast(self, thing.why_not, severity="warning")
        elif thing.command:
            title, words = (
                f"memtui {thing.command}",
                display("This takes some seconds …", style=DIM),
            )
            said = partial(self._said, thing.command.split())
            self.app.push_screen(Sheet(title, words, read=said))
        elif thing.leads is None:
            commands = display(_FOR_AGENTS, keep_newlines=True)
            self.app.push_screen(Sheet("memtui for your agents", commands))
        else:
            self._chosen = place
            self._go_on()

    async def _said(self, words: Sequence[str]) -> Content:
        """Return what a command prints, run in this home by a process of its own."""
        state = self._frame.state
        flags = ["--read-only"] if state.settings.read_only else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "memtui", *flags, *words),
            stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True,
            env=os.environ | {HOME_VARIABLE: str(state.paths.data)},
        )  # fmt: skip
        try:
            said = await process.communicate()
        finally:
            await end_process(process)
        return display(b"\n".join(said).decode(errors="replace"), keep_newlines=True)

    def _state_changed(self, before: AppState, now: AppState) -> None:
        if (before.demo_percent, before.bindings) != (now.demo_percent, now.bindings):
            self.show(self._drawn)
        self._go_on()

    def _go_on(self) -> None:
        """Go to the chosen thing once the service is open; close if opening failed."""
        state = self._frame.state
        if state.phase is Phase.FAILED and self.is_current:
            self.dismiss(None)
            return
        if self._chosen is None or (state.session is None and state.phase is Phase.OPENING):
            return
        thing, self._chosen = self.things[self._chosen], None
        self.dismiss(None)
        if thing.leads is not None:
            self.app.post_message(thing.leads)


def _said(thing: Thing) -> Content:
    return display(thing.words, limit=200, style=DIM if thing.why_not else "")
