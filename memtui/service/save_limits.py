"""How many memories an agent may write (seed 004 §10): in a run, and in an hour.

Its own writes count, through whatever door, those of unknown outcome too. What a person does does
not, and neither do corrections, what undo brings back, and what a hook captures because the person
has enabled that for the binding.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from memtui.contract import Denied, Model
from memtui.service.recorder import RunningOperation
from memtui.store import appending
from memtui.store.database import Connection
from memtui.visible import visible

CAPTURING_DOOR = "hook"
"""Through it comes what is captured, not what an agent chose to save."""

_HOUR = timedelta(hours=1)


class SaveLimits(Model):
    """How many memories an agent may write; 0 sets no limit."""

    per_run: int = 50
    per_hour: int = 200

    def check(self, connection: Connection, entry: RunningOperation) -> None:
        """Refuse a write beyond a limit, in the transaction that writes down that it begins.

        Raises:
            Denied: the agent has made as many.
        """
        caller, run_id = entry.caller, entry.scope.run_id
        if not caller.by_ai or caller.door == CAPTURING_DOOR:
            return
        within: list[tuple[str, str, int, str | datetime | None]] = [
            ("this run", "saves_per_run", self.per_run, run_id),
            ("the last hour", "saves_per_hour", self.per_hour, entry.started_at - _HOUR),
        ]
        limits = [
            (words, setting, most, place)
            for words, setting, most, place in within
            if most and place is not None
        ]
        if limits:
            appending.hold(connection, caller.company_id)
        for words, setting, most, place in limits:
            if appending.writes(connection, caller.company_id, caller.principal, place) >= most:
                raise Denied(
                    f"{visible(caller.principal)} has saved {most:,} memories in {words} and may "
                    "save no more; correct or forget one that is there instead, or ask a person "
                    f"to raise the setting {setting}."
                )
