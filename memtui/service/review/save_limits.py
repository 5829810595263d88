"""Limits on how many memories an agent may write, in a run and in an hour (seed 004 §10).

An agent's writes on every channel count, those of unknown outcome too, and a model's writes over
MCP with a person's token. Not counted are writes by people, corrections, records that an undo
restores, and texts that a hook captures, since a person has enabled that for the binding.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from memtui.config import Settings
from memtui.contract import Denied
from memtui.service.recorder import RunningOperation
from memtui.store import appending
from memtui.store.database import DatabaseConnection
from memtui.visible import visible

CAPTURING_CHANNEL = "hook"
"""The channel of captured texts, which no agent chose to save."""

_HOUR = timedelta(hours=1)


def check_saves(
    settings: Settings, connection: DatabaseConnection, entry: RunningOperation
) -> None:
    """Refuse a write beyond a limit, in the transaction that writes its intent.

    Raises:
        Denied: the agent has reached the limit.
    """
    caller, run_id = entry.caller, entry.scope.run_id
    per_run, per_hour = settings.saves_per_run, settings.saves_per_hour
    if not caller.by_ai or caller.channel == CAPTURING_CHANNEL:
        return
    appending.hold(connection, caller.company_id)
    written = partial(
        appending.writes,
        connection,
        caller.company_id,
        caller.principal,
        excluding=CAPTURING_CHANNEL,
    )
    who = visible(caller.principal)
    if per_run and run_id is not None and written(run_id) >= per_run:
        raise _refused(who, per_run, "this run", "saves_per_run")
    if per_hour and written(entry.started_at - _HOUR) >= per_hour:
        raise _refused(who, per_hour, "the last hour", "saves_per_hour")


def _refused(who: str, most: int, within: str, setting: str) -> Denied:
    return Denied(
        f"{who} has saved {most:,} memories in {within} and may save no more; correct or forget "
        f"one that is there instead, or ask a person to raise the setting {setting}."
    )
