"""Finds the run of a client, so that its MCP calls and hooks are logged as one run.

Hook and MCP server share an ancestor: the client's process, above any shells and launchers. A hook
notes the run under that process; the MCP server looks it up at each call, since a client can begin
another session without restarting the server. A note is a private file in the home, named by the
process's id and start time, and is removed once that process has ended.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memtui.paths import HOOK_PARENT, Paths, make_private, replacing

_LAUNCHERS = frozenset(
    {"sh", "bash", "zsh", "dash", "ash", "ksh", "fish", "env", "timeout", "nice", "uv", "uvx",
     "pipx", "npx", "npm", "memtui"}
)  # fmt: skip
_RUN_BY = ("python", "node")
"""Programs that run launchers written as scripts."""
_MOST_ANCESTORS = 20
_ID_CHARS = 200
_COMPACTED = "\ncompacted"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by id and start time, since ids are reused."""

    pid: int
    started: str
    parent: int
    words: tuple[str, ...]
    """Its command line."""

    @property
    def name(self) -> str:
        """The file name of its run's note."""
        return f"{self.pid}-{self.started}"

    @property
    def is_launcher(self) -> bool:
        """Whether it is a shell or launcher between a client and the program it starts."""
        program, *rest = (Path(word).name for word in self.words) if self.words else ("",)
        if program.startswith(_RUN_BY):
            scripts = (word for word in rest if not word.startswith("-"))
            return next(scripts, "").removesuffix(".js") in {*_LAUNCHERS, "npx-cli", "npm-cli"}
        return program.lstrip("-") in _LAUNCHERS


def client_process() -> Process | None:
    """Return the client process that started this one; None: none was found.

    A forked hook gets its caller's id from the environment variable `HOOK_PARENT`.
    """
    given = os.environ.get(HOOK_PARENT, "")
    start = int(given) if given.isascii() and given.isdigit() else os.getppid()
    return next((one for one in _ancestors(start) if not one.is_launcher), None)


@dataclass(frozen=True, slots=True)
class RunNote:
    """The note about a client's run."""

    run_id: str
    compacted: bool = False
    """Whether its conversation was compacted, so that earlier contexts are lost."""


def note_run(paths: Paths, client: Process, note: RunNote) -> None:
    """Note the current run of a client, and remove the notes of ended clients.

    Raises:
        OSError: the home cannot be written.
    """
    if noted(paths, client) == note:
        return
    folder = _folder(paths)
    make_private(folder)
    for other in folder.iterdir():
        pid = other.name.partition("-")[0]
        alive = process_of(int(pid)) if pid.isdigit() else None
        if alive is None or alive.name != other.name:
            with suppress(FileNotFoundError):  # another hook was faster
                other.unlink()
    with replacing(folder / client.name) as fresh:
        fresh.write_text(note.run_id + _COMPACTED * note.compacted, encoding="utf-8")


def noted(paths: Paths, client: Process | None) -> RunNote | None:
    """Return the last note about a client; None: none of its hooks wrote one."""
    if client is None:
        return None
    try:
        text = (_folder(paths) / client.name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    run_id = text.removesuffix(_COMPACTED)
    fits = 0 < len(run_id) <= _ID_CHARS and run_id.isprintable()
    return RunNote(run_id, compacted=text != run_id) if fits else None


def _folder(paths: Paths) -> Path:
    return paths.data / "clients"


def _ancestors(pid: int) -> Iterator[Process]:
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1 or (found := process_of(pid)) is None:
            return
        yield found
        pid = found.parent


def process_of(pid: int) -> Process | None:
    """Return the process with an id; None: there is none, or it cannot be seen."""
    return _of_proc(pid) if sys.platform == "linux" else _of_ps(pid)


def _of_proc(pid: int) -> Process | None:
    folder = Path("/proc") / str(pid)
    try:
        # The name is in brackets and may contain anything; fields 4 and 22 come after it.
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        words = (folder / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    return Process(pid, fields[19], int(fields[1]), tuple(word for word in words if word))


def _of_ps(pid: int) -> Process | None:
    asked = ["ps", "-o", "ppid=,lstart=,args=", "-p", str(pid)]
    plain = os.environ | {"LC_ALL": "C"}
    try:
        words = subprocess.run(  # noqa: S603 - ps itself, by the person's own path
            asked, capture_output=True, text=True, timeout=2, check=False, env=plain
        ).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return None
    if len(words) < 7:
        return None
    return Process(pid, "-".join(words[1:6]).replace(":", ""), int(words[0]), tuple(words[6:]))
