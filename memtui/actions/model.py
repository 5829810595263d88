"""What an action, a need and a numbered screen are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """What must hold before an action can run; the value is the reason shown when it does not."""

    SERVICE = "memtui is still opening its database."
    WRITABLE = "This is read-only."
    ROW = "Nothing is selected."
    SOURCE = "There is no source here that opens."
    CORRECTION = "This provider cannot correct a record in place."
    HISTORY = "This provider keeps no history."
    EXPLAIN = "This provider does not explain its results."
    SYNC = "This provider has nothing to sync."
    UNDO = "There is nothing to undo."
    UNKNOWN_OUTCOME = "The outcome of this operation is known."
    FINDING = "No memories found on this machine are selected."
    TABLE = "This list has no columns."
    BINDING = "No binding is selected."
    NAMESPACES = "This provider has no namespaces."
    PLUGIN = "Only a memory plugin (plugin-v1) has a contract to check."
    DESTINATION = "There is no other binding to move to; a adds one."
    SCOPE = "Nobody is chosen; s chooses a user, project or agent."
    CHARTS = "This is for the charts; t shows them."
    SQL = "This is for SQL; t goes there."


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do. `footer` ranks it among the six keys shown; 0 keeps it out."""

    id: str
    keys: tuple[str, ...]
    label: str
    """One or two words for the footer."""
    description: str
    """A sentence for help, tooltip and documentation."""
    footer: int = 0
    mutates: bool = False
    needs: tuple[Need, ...] = ()

    @property
    def group(self) -> str:
        """Who carries it out: `app`, a screen's name, or a shared widget's."""
        return self.id.partition(".")[0]

    @property
    def verb(self) -> str:
        """The name of the `action_…` method."""
        return self.id.partition(".")[2]


@dataclass(frozen=True, slots=True)
class ScreenTab:
    """A numbered screen, the words of its tab, and the shared groups whose keys work on it."""

    mode: str
    number: int
    title: str
    short: str
    """The title where columns are few."""
    groups: tuple[str, ...] = ()


ROW = (Need.SERVICE, Need.ROW)
CHANGE = (Need.SERVICE, Need.WRITABLE)
CHANGE_ROW = (Need.SERVICE, Need.WRITABLE, Need.ROW)
BINDING = (Need.SERVICE, Need.BINDING)
CHANGE_BINDING = (Need.SERVICE, Need.WRITABLE, Need.BINDING)
"""What the usual actions need, one constant for each sort."""
