"""A real terminal: the program on a pty, and the screen that its output paints."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyte

_PATIENCE = 60.0
"""Seconds after which a text that did not appear never will."""
_LOOK = 0.05


class Terminal:
    """Types into the program and reads the screen."""

    def __init__(self, child: pexpect.spawn[str], columns: int, rows: int) -> None:
        self.child = child
        self.output = ""
        """Everything the program wrote, escapes included."""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without the blanks at their ends."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines)

    def press(self, *keys: str) -> None:
        """Send keys or text as the terminal would."""
        for key in keys:
            self.child.send(key)

    def until(self, *wanted: str, gone: str = "") -> None:
        """Read until all of the texts are on the screen, and `gone` is not."""
        end = time.monotonic() + _PATIENCE
        while not _shows(self.text, wanted, gone):
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{wanted} did not appear:\n{self.text}")

    def until_ended(self) -> int:
        """Read until the program ends; return its exit code."""
        end = time.monotonic() + _PATIENCE
        while self._read():
            assert time.monotonic() < end, self.text
        self.child.close()
        assert self.child.exitstatus is not None
        return self.child.exitstatus

    def _read(self) -> bool:
        """Take what was written meanwhile; False once the program has ended."""
        try:
            written = self.child.read_nonblocking(65_536, timeout=_LOOK)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.output += written
        self._stream.feed(written)
        return True


def _shows(text: str, wanted: tuple[str, ...], gone: str) -> bool:
    return all(one in text for one in wanted) and not (gone and gone in text)


@contextmanager
def opened(
    home: Path, *arguments: str, columns: int, rows: int, environment: Mapping[str, str]
) -> Iterator[Terminal]:
    """Run memtui on a pty of its own, and end it if the test did not.

    It is somebody's who has seen the tour.
    """
    folder, session = home / "user", home / "memtui" / "session.json"
    folder.mkdir(exist_ok=True)
    session.parent.mkdir(exist_ok=True)
    if not session.exists():
        session.write_text('{"toured": true}')
    child = pexpect.spawn(
        sys.executable,
        ["-m", "memtui", *arguments],
        cwd=str(folder),
        env={
            **environment,
            "HOME": str(folder),
            "MEMTUI_HOME": str(home / "memtui"),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        },
        dimensions=(rows, columns),
        encoding="utf-8",
        codec_errors="replace",
    )
    try:
        yield Terminal(child, columns, rows)
    finally:
        child.close(force=True)
