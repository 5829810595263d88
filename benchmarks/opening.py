"""What it takes to open something: `python -m benchmarks.opening [HOME] [ROUNDS] [WORDS]`.

memtui and a bare Textual app run in terminals of 120x40. Each key is pressed, and what the process
used of the processor until it is at rest again is read from the kernel, all threads together. The
bare app opens a box with an input and forty lines, which is what Textual itself takes. HOME is that
of a demo; without one it is made first. First visits are measured in an app that prepared its
screens while nobody pressed a key, and in one where keys came too fast for that: it has imported
its screens, and no more. Screen 6 is visited once more in one that never answers what the log adds
up to, as the screen does not wait for that. Records are shown already. With WORDS, only dialogs
whose names have one of them are opened, and no screen is visited.

What counts is how many times as long as the bare app's box it takes, and that box is opened right
before each: processors differ by more than twice, and one that others share changes its speed from
minute to minute. The middle one of the rounds counts; the least milliseconds stand beside it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import Line, environment, show
from memtui.demo.making import COMPANY

BARE_APP = """
from textual.app import App
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

LINES = [f"line {number}" for number in range(40)]

class Box(ModalScreen):
    CSS = "Vertical { width: 72; height: 70%; }"
    BINDINGS = [("escape", "dismiss", "back")]
    def compose(self):
        with Vertical():
            yield Static("Choose")
            yield Input(compact=True)
            yield OptionList(*LINES, compact=True)
            yield Static("esc back")

class Bare(App):
    BINDINGS = [("m", "box", "box")]
    def compose(self):
        yield OptionList(*LINES)
    def action_box(self):
        self.push_screen(Box())

Bare().run()
"""
OUR_APP = """
import asyncio
import sys
from functools import partial
from memtui import app
from memtui.config import find_paths, load_settings
from memtui.service.history.analysis import Analysis

async def never(*_, **__):
    await asyncio.Event().wait()

paths = find_paths()
if sys.argv[2] != "prepared":
    app._GAP_SECONDS = 3600
if sys.argv[2] == "without figures":
    Analysis.dashboard = never
app.run_app(paths, partial(load_settings, paths), company=sys.argv[1], screen="records")
"""
LIMIT = 100 / 60
"""How many times as long as the bare app's box: 100 ms on a processor where that takes 60."""
OPENED = {
    "4": {
        "help": ["?"],
        "tour": ["?", "\x1bOR"],
        "palette": ["\x10"],
        "scope": ["s"],
        "binding": ["B"],
        "theme": ["\x14"],
        "saved views": ["V"],
        "picture, as any export": ["\x1b[24~"],
        "columns": ["C"],
        "past, with its changes": ["@"],
        "limits": ["$"],
        "limits: whose": ["$", "a"],
        "limits: of what": ["$", "a", "\r"],
        "review": ["Q"],
        "review: rules of which binding": ["Q", "H"],
        "review: rules": ["Q", "H", "\r"],
        "edit": ["e"],
        "new record": ["a"],
        "forget": ["d"],
        "erase, with its traces": ["X"],
        "undo": ["u"],
        "expiry": ["K"],
        "summary": ["\x10", "records summary", "\r"],
        "timeline": ["h"],
        "timeline: help": ["h", "?"],
        "who read it": ["w"],
        "runs told": ["T"],
        "tags": ["#"],
        "changes, with its records": ["W"],
        "changes: since": ["W", "["],
        "changes: export": ["W", "x"],
        "changes: filter": ["W", "/"],
        "prune, with its plan": ["P"],
        "prune: whose": ["P", "s"],
        "prune: stale": ["P", "m"],
        "prune: insights": ["P", "n"],
        "prune: forget": ["P", "d"],
        "impact of forgetting, with its answers": ["d", "c"],
    },
    "2": {
        "operations: copy": ["y"],
        "operations: go to time": ["J"],
        "operations: export": ["x"],
        "operations: export proof": ["\x10", "export proof", "\r"],
        "operations: undo": ["u"],
        "verify log, with its log": ["\x10", "verify log", "\r"],
        "runs": ["t"],
        "runs: replay, with its records": ["t", "T"],
        "what wrote, with its log": ["\x10", "what wrote", "\r"],
    },
    "1": {
        "binding's settings": ["e"],
        "new binding": ["a"],
        "new binding: settings": ["a", "\r"],
        "enable": ["\x10", "on/off", "\r"],
        "remove": ["d"],
        "target": ["l"],
        "capture": ["\x10", "bindings capture", "\r"],
        "namespaces": ["\x10", "bindings namespaces", "\r"],
        "migration: to which": ["\x10", "bindings migrate", "\r"],
        "migration, with its plan": ["\x10", "bindings migrate", "\r", "\r"],
        "in sync: with which": ["\x10", "keep in sync", "\r"],
        "in sync, with its differences": ["\x10", "keep in sync", "\r", "\r"],
        "synced, with its sync": ["\x10", "bindings sync", "\r"],
        "bindings: undo": ["u"],
    },
    "6": {
        "group by": ["b"],
        "figures: export": ["x"],
        "insights, with its records": ["n"],
    },
    "6t": {
        "views of SQL": ["\x1bOQ"],
        "statements": ["\x0f"],
        "save a statement": ["\x13"],
    },
    "3": {
        "explain": ["w"],
        "result: tags": ["#"],
    },
    "5": {
        "budget: prune, with its plan": ["P"],
        "budget: new fact": ["a"],
        "budget: edit": ["e"],
        "budget: forget": ["d"],
        "budget: clear": ["D"],
        "budget: what is asked": ["i"],
        "model": ["\x10", "budget model", "\r"],
        "tokens": ["m"],
        "whole prompt": ["\x10", "whole prompt", "\r"],
        "left out": ["w"],
        "charts": ["z"],
        "fact's timeline": ["h"],
        "files": ["x"],
    },
}
"""What lies over each screen, by the keys of which the last opens it; `esc` leaves each. `6t` is
the half of screen 6 that `t` leads to."""
BEFORE = {"3": ["\x1b", "i", "deploy", "\r", "\x1b"], "5": ["s", "ana", "\r"]}
"""What is pressed on a screen first, so that there is something to open a dialog on."""
WORKS = "with its"
"""What reads or computes over all records or operations goes on behind what was opened, and is in
the figure."""
ADDS_UP = "6"
"""The screen that adds up the log, behind what it shows."""
SCREENS = "123564"
"""The numbers of the screens."""
SHOWN = "4"
"""The one that is shown from the start."""
UNPREPARED = "not prepared"
FRAMED = "without figures"
"""How the screen that adds up is visited where it never gets an answer."""
_STARTS = 3
"""How often an app is started for its first visits, of which each start has one."""
_KEY_SECONDS = 0.05
"""Shorter than a person has to do nothing before screens are prepared."""
_REST_SECONDS = 0.15
_AT_REST_MS = 1.5
_TURN_SECONDS = 1.0
_LEAST_MS = 10
"""No dialog opens in less."""
_BEGIN_SECONDS = 4.0
_PREPARE_SECONDS = 9.0
"""Longer than preparing takes, unless the machine is busy, and shorter than the rest after which an
app counts what could go."""


class Terminal:
    """A Python app in a terminal of its own."""

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.execve(sys.executable, [sys.executable, *arguments], variables)
        # As clock_getcpuclockid(3) makes it. /proc has nothing of threads that have ended.
        self._clock = (~self._child << 3) | 2
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def used(self) -> float:
        """Return milliseconds that all threads have used of the processor, ended ones too."""
        return time.clock_gettime(self._clock) * 1000

    def is_running(self) -> bool:
        """Whether a thread runs, or would if the machine were not busy."""
        for one in Path(f"/proc/{self._child}/task").glob("*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended by now
                if one.read_text().rpartition(") ")[2][0] in "RD":
                    return True
        return False

    def read(self, seconds: float) -> None:
        """Take what the app writes for some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                os.read(self._terminal, 65536)

    def rest(self, at_least: float = 0.0) -> float:
        """Wait until the app is at rest; return milliseconds it had used when it came to that."""
        began = time.monotonic()
        used, since = self.used(), time.monotonic()
        while time.monotonic() < max(since + _REST_SECONDS, began + at_least):
            self.read(0.01)
            now = self.used()
            if now - used > _AT_REST_MS or self.is_running():
                used, since = now, time.monotonic()
        return self.used()

    def write(self, keys: str) -> None:
        """Press keys, and wait for nothing."""
        os.write(self._terminal, keys.encode())

    def press(self, keys: str) -> float:
        """Press keys; return milliseconds of the processor until the app is at rest again."""
        before, began = self.used(), time.monotonic()
        self.write(keys)
        # On a busy machine an app may get no turn for longer than one at rest takes none.
        while self.used() - before < _AT_REST_MS and time.monotonic() < began + _TURN_SECONDS:
            time.sleep(0.01)
        return self.rest() - before

    def close(self) -> None:
        """End the app."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        os.close(self._terminal)


@contextmanager
def started(arguments: list[str], variables: dict[str, str]) -> Iterator[Terminal]:
    """Start an app, and let it come to rest; a key now and then keeps it from preparing screens."""
    terminal = Terminal(arguments, variables)
    end = time.monotonic() + _BEGIN_SECONDS
    try:
        while time.monotonic() < end:
            terminal.write("\x1b")
            terminal.read(_KEY_SECONDS)
        yield terminal
    finally:
        terminal.close()


class Taken(NamedTuple):
    """What an opening took, and what the bare app's box took right before."""

    ms: float
    box_ms: float


Seen = dict[str, list[Taken]]
"""What the openings took, by what was opened."""


class Pair:
    """memtui, and the bare app beside it."""

    def __init__(self, ours: Terminal, bare: Terminal) -> None:
        self.ours = ours
        self._bare = bare

    def press(self, key: str) -> Taken:
        """Open the bare app's box, leave it, then press a key of memtui."""
        box_ms = self._bare.press("m")
        self._bare.press("\x1b")
        return Taken(self.ours.press(key), box_ms)


def opened(pair: Pair, keys: dict[str, list[str]], rounds: int) -> Seen:
    """Return what each opening takes; the first of each imports, and is left out."""
    seen: Seen = {name: [] for name in keys}
    for turn in range(rounds + 1):
        for name, (*leading, opening) in keys.items():
            for key in leading:
                pair.ours.press(key)
            if turn:
                seen[name].append(pair.press(opening))
            else:
                pair.ours.press(opening)
            for _ in (*leading, opening):
                pair.ours.press("\x1b")
    return seen


def opened_on_screens(pair: Pair, words: list[str], rounds: int) -> Seen:
    """Return what opening each dialog on its screen takes, or those whose names have a word."""
    seen: Seen = {}
    for screen, dialogs in OPENED.items():
        wanted = {
            name: keys
            for name, keys in dialogs.items()
            if not words or any(word in name for word in words)
        }
        if wanted:
            for key in ("\x1b", *screen, *BEFORE.get(screen, ())):  # out of the statement first
                pair.ours.press(key)
            seen |= opened(pair, wanted, rounds)
    return seen


def switched(pair: Pair, first: str, screens: str, rounds: int) -> Seen:
    """Return what going to each screen takes, the first time and again."""
    seen: Seen = {}
    for turn in range(rounds + 1):
        for number in screens:
            is_first = not turn and number != SHOWN
            how = f"screen {number}, {first if is_first else 'again'}"
            if is_first and number == ADDS_UP and first.endswith(UNPREPARED):
                how += f", {WORKS} figures"
            seen.setdefault(how, []).append(pair.press(number))
            pair.ours.press("\x1b")  # out of a line to write in
    return seen


def visited(
    bare: Terminal, variables: dict[str, str], words: list[str], rounds: int
) -> tuple[Seen, list[float]]:
    """Return what was opened in some starts, and the milliseconds of preparing in idle time."""
    seen: Seen = {}
    idle: list[float] = []
    for how in ("prepared",) if words else (UNPREPARED, FRAMED, "prepared"):
        for start in range(1 if words else _STARTS):
            with started(["-c", OUR_APP, COMPANY, how], variables) as ours:
                pair, before = Pair(ours, bare), ours.used()
                rested = ours.rest(_PREPARE_SECONDS if how == "prepared" else 0) - before
                if how == "prepared":
                    idle.append(rested)
                if not words:
                    screens, again = (ADDS_UP, 0) if how == FRAMED else (SCREENS, rounds)
                    for name, taken in switched(pair, f"first, {how}", screens, again).items():
                        seen.setdefault(name, []).extend(taken)
                if how == "prepared" and (words or start == _STARTS - 1):
                    seen |= opened_on_screens(pair, words, rounds)
    return seen, idle


def judged(name: str, taken: Sequence[Taken]) -> Line:
    """Return the line of what something took."""
    least = min(one.ms for one in taken)
    if least < _LEAST_MS and not name.startswith("screen"):
        return Line(name, "was not opened", met=False)
    ratio = statistics.median(one.ms / one.box_ms for one in taken)
    said = f"{ratio:.1f} x of the box, {least:.0f} ms"
    if WORKS in name:
        return Line(name, said)
    return Line(name, said, f"<= {LIMIT:.1f} x", ratio <= LIMIT)


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    words = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        home = sys.argv[1] if len(sys.argv) > 1 else folder
        variables = environment(MEMTUI_HOME=home, TERM="xterm-256color", COLORTERM="truecolor")
        if home == folder:
            making = [sys.executable, "-m", "memtui", "demo", "--no-tui"]
            subprocess.run(making, env=variables, check=True, capture_output=True)
        with started(["-c", BARE_APP], variables) as bare:
            bare.press("m")  # which imports
            bare.press("\x1b")
            seen, idle = visited(bare, variables, words, rounds)
    lines = [
        judged(name, taken)
        for name, taken in sorted(seen.items(), key=lambda one: one[0].startswith("screen"))
    ]
    boxes = [one.box_ms for taken in seen.values() for one in taken]
    said = f"{min(boxes):.0f} ms ({statistics.median(boxes):.0f}, at most {max(boxes):.0f})"
    lines.insert(0, Line("a bare app's box", said))
    lines.append(Line("prepared in idle time", f"{min(idle):.0f} ms"))
    show("Opening, milliseconds of the processor", lines)


if __name__ == "__main__":
    main()
