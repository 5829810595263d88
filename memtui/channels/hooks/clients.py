"""The clients whose hooks memtui can install, and the entries in their files."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from memtui.backends.client_configs import GEMINI, codex_folder
from memtui.channels.clients import (
    Addition,
    ClientProgram,
    FileChange,
    adding,
    form_of,
    read,
    removing,
    unchanged,
)
from memtui.contract import Invalid, Json, NotFound

HOLDER = "hooks"
EVENT = "EVENT"
"""Placeholder in a command for the name of the hook."""

_PRE, _POST = "pre-run", "post-run"
_SECONDS = 5
"""Seconds that a client waits for a hook beyond the hook's own time-out."""
_OURS = re.compile(rf"memtui.*\bhook ({_PRE}|{_POST})\b", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HookClient(ClientProgram):
    """A client whose file has its hooks, and the events at which it calls them."""

    events: Mapping[str, str]
    """The hook that each event calls, by the event's name."""
    then: str
    """The next step for the person, as a sentence."""
    grouped: bool = True
    """Whether an event has groups of hooks instead of hooks."""
    milliseconds: bool = False
    """Whether its time-outs are in milliseconds instead of seconds."""
    begin: Json | None = None
    """Members that an empty file gets first."""

    @property
    def leaves_notes(self) -> bool:
        """Whether it calls a hook after an answer, so that notes can be written."""
        return _POST in self.events.values()

    def has_memtui(self, home: Path) -> bool:
        """Whether its file calls memtui. Raises `Invalid` for a file that cannot be read."""
        return bool(_ours(self, self.file(home)))

    def entry(self, event: str, command: Sequence[str], most_ms: int) -> Json:
        """Return the file's entry for an event; the hook's own time-out is `most_ms`."""
        words = shlex.join(self.events[event] if word == EVENT else word for word in command)
        seconds = _SECONDS + ceil(most_ms / 1_000)
        timeout = seconds * (1_000 if self.milliseconds else 1)
        if not self.grouped:
            return {"command": words, "timeout": timeout}
        return {HOLDER: [{"type": "command", "command": words, "timeout": timeout}]}


def _folder(variable: str, usual: Path) -> Path:
    return Path(os.environ.get(variable) or usual)


_CLAUDE_EVENTS = {
    "SessionStart": _PRE,
    "UserPromptSubmit": _PRE,
    "Stop": _POST,
    "SessionEnd": _POST,
}
CLIENTS = (
    HookClient(
        "claude-code",
        "Claude Code",
        lambda home: _folder("CLAUDE_CONFIG_DIR", home / ".claude") / "settings.json",
        _CLAUDE_EVENTS,
        "new sessions call it",
    ),
    HookClient(
        "codex",
        "Codex",
        lambda home: codex_folder(home, os.environ) / "hooks.json",
        {name: kind for name, kind in _CLAUDE_EVENTS.items() if name != "SessionEnd"},
        "Codex runs it once you have trusted it there with /hooks",
    ),
    HookClient(
        "gemini",
        "Gemini CLI",
        lambda home: home / GEMINI,
        {
            "SessionStart": _PRE,
            "PreCompress": _PRE,
            "BeforeAgent": _PRE,
            "AfterAgent": _POST,
            "SessionEnd": _POST,
        },
        "new sessions call it",
        milliseconds=True,
    ),
    HookClient(
        "cursor",
        "Cursor",
        lambda home: home / ".cursor" / "hooks.json",
        {"sessionStart": _PRE, "preCompact": _PRE, "beforeSubmitPrompt": _PRE},
        "new chats call it",
        grouped=False,
        begin={"version": 1},
    ),
)


def installing(client: HookClient, path: Path, command: Sequence[str], most_ms: int) -> FileChange:
    """Return the change that makes a client call a command; EVENT in it becomes the hook's name.

    The hook's own time-out is `most_ms`; the client's is a little longer.

    Raises:
        Invalid: the file cannot be read or edited, or calls memtui in another way.
    """
    wanted = [
        Addition((HOLDER, event), client.entry(event, command, most_ms), listed=True)
        for event in client.events
    ]
    there = _ours(client, path)
    if there == wanted:
        return unchanged(path)
    if there:
        raise Invalid(
            f"{path} calls memtui in another way; take that out first with "
            f"`memtui hook uninstall {client.key}`."
        )
    return adding(path, wanted, _begin(client))


def uninstalling(client: HookClient, path: Path) -> FileChange:
    """Return the change that removes memtui's hooks.

    Raises:
        NotFound: there are none.
        Invalid: the file cannot be read or edited.
    """
    there = _ours(client, path)
    if not there:
        raise NotFound(f"{client.name} does not call memtui by {path}.")
    return removing(path, there, _begin(client))


def _begin(client: HookClient) -> list[Addition]:
    return [Addition((name,), value) for name, value in (client.begin or {}).items()]


def _ours(client: HookClient, path: Path) -> list[Addition]:
    """Return memtui's hooks in a file, in the order in which they were added."""
    events = form_of(path).load(path, read(path)).get(HOLDER)
    hooks = {
        event: entries
        for event, entries in (events.items() if isinstance(events, dict) else ())
        if isinstance(entries, list)
    }
    return [
        Addition((HOLDER, event), entry, listed=True)
        for event in client.events
        for entry in hooks.get(event, ())
        if _is_ours(entry)
    ]


def _is_ours(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    hooks = entry.get(HOLDER, [entry])
    return isinstance(hooks, list) and bool(hooks) and all(map(_calls_memtui, hooks))


def _calls_memtui(hook: Any) -> bool:
    return isinstance(hook, dict) and bool(_OURS.search(str(hook.get("command", ""))))
