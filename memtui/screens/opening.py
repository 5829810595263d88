"""The first paint: the frame of a screen, while its modules are still being imported.

This module imports neither the contract nor a screen, and so paints in half the time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from memtui.actions import ACTIONS, Need, screen_tab
from memtui.paths import Paths, flat, read_environment, read_file
from memtui.screens.keymap import Keymap, footer_entries, load_keymap
from memtui.widgets.display import ACCENT, DIM, STRONG
from memtui.widgets.frame import (
    FILTER_PLACEHOLDER,
    ScopeBar,
    ScopeView,
    ScreenTabs,
    entry_content,
    fitting,
)
from memtui.widgets.sized import RestingScreen

OPENING = "Opening your memories"
HINT = "The keys work already; q quits."


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The data of the first paint; only the keymap was checked."""

    mode: str = ""
    company: str = ""
    theme: str = ""
    mouse: bool = True
    keymap: Keymap = field(default_factory=Keymap)


def first_look(paths: Paths, company: str | None = None) -> FirstLook:
    """Read the data of the first paint from the settings and the last session.

    Raises:
        Invalid: the settings cannot be read, or their keymap is invalid.
    """
    values = read_file(paths.config_file)
    environment = read_environment()
    keymap = flat(values.get("keymap")) | flat(environment.pop("keymap", None))
    values |= environment
    saved = _saved_session(paths)
    company = str(company or values.get("company") or saved.get("company") or "")
    place = _table(_table(saved.get("companies")).get(company))
    return FirstLook(
        mode=str(place.get("screen") or ""),
        company=company,
        theme=str(values.get("theme") or saved.get("theme") or ""),
        mouse=str(values.get("mouse", True)).lower() not in {"0", "false", "f", "no", "n", "off"},
        keymap=load_keymap({name: str(keys) for name, keys in keymap.items()}),
    )


def _saved_session(paths: Paths) -> Mapping[str, Any]:
    try:
        return _table(json.loads(paths.session_file.read_bytes()))
    except (OSError, ValueError):
        return {}  # reading the session later reports the problem


def _table(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


class Opening(RestingScreen[None]):
    """The frame of a numbered screen, without its body."""

    AUTO_FOCUS = ""
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]

    def __init__(self, mode: str, look: FirstLook) -> None:
        super().__init__()
        self._mode = mode
        self._look = look

    def compose(self) -> ComposeResult:
        """Lay out the frame."""
        bar = ScopeBar(id="scope-bar")
        bar.view = ScopeView(parts=(self._look.company or "local",), word="opening")
        yield bar
        yield ScreenTabs(self._mode, id="tabs")
        if "filter" in screen_tab(self._mode).groups:
            sign = Content.styled("/ ", f"bold {ACCENT}")
            yield Static(sign + Content.styled(FILTER_PLACEHOLDER, DIM), id="opening-filter")
        said = [Content.styled(f"… {OPENING}", STRONG), Content(""), Content.styled(HINT, DIM)]
        yield Static(Content("\n").join(said), id="phase")
        entries = footer_entries(self._mode, self._look.keymap, _why_disabled, {})
        keys = map(entry_content, fitting(entries, self.app.size.width - 2))
        yield Static(Content("  ").join(keys), id="opening-footer")

    async def show(self, mode: str) -> None:
        """Show the frame of another screen."""
        self._mode = mode
        await self.recompose()


def _why_disabled(action_id: str) -> str:
    return Need.SERVICE.value if Need.SERVICE in ACTIONS[action_id].needs else ""
