"""What every change of the control plane's own settings shares: each is an operation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import TypeVar

from sqlalchemy import Connection

from memtui.contract import Denied, Invalid, Json, OperationType, Scope
from memtui.service.answers import Caller
from memtui.service.core import Core, company_read_only
from memtui.service.permissions import Action
from memtui.service.recorder import Entry
from memtui.store import bindings, log, settings

T = TypeVar("T")

SETUP_DOOR = "setup"
"""Through it comes what memtui sets up by itself."""

_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@asynccontextmanager
async def configured(
    core: Core, caller: Caller, asked: Json, *, in_read_only: bool = False
) -> AsyncIterator[Entry]:
    """Record a change of the settings, and refuse it to who may not make it.

    `in_read_only`: what is done changes nothing that a read-only company keeps as it is.
    """
    scope = Scope(company_id=caller.company_id)
    async with core.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked) as entry:
        await refuse_configuring(core, entry, in_read_only=in_read_only)
        yield entry


async def refuse_configuring(core: Core, entry: Entry, *, in_read_only: bool = False) -> None:
    """Raise `Denied` where something is read-only or the caller may not change the settings."""
    if core.read_only:
        raise Denied("memtui runs read-only; start it without --read-only to change anything.")
    await core.authorise(entry, Action.CONFIGURE)
    if not in_read_only:
        await refuse_read_only(core, entry.caller.company_id)


async def refuse_read_only(core: Core, company_id: str) -> None:
    """Raise `Denied` where a company is read-only."""

    def read() -> bool:
        with core.database.read() as database:
            row = bindings.company(database, company_id)
            return row is not None and row.read_only

    if await asyncio.to_thread(read):
        raise company_read_only(company_id)


async def write(
    core: Core,
    entry: Entry,
    change: Callable[[Connection], T],
    kinds: Collection[str] = settings.COMMON,
) -> T:
    """Change the company's settings and log the operation, in one transaction.

    Each setting of these kinds is kept before and after, so that the change can be taken back.
    What memtui itself sets up in a new home is no change that anybody made.
    """
    company_id = entry.caller.company_id

    def run() -> T:
        with core.database.write() as database:
            log.hold(database, company_id)
            before = settings.read(database, company_id, kinds)
            result = change(database)
            if entry.caller.door == SETUP_DOOR:
                entry.lasting = None
            elif entry.lasting is None:
                entry.settings = settings.changes(
                    before, settings.read(database, company_id, kinds)
                )
            core.recorder.append_within(database, entry)
        entry.logged = True
        return result

    return await asyncio.to_thread(run)


def check_key(key: str, what: str) -> str:
    """Return the key of a company or binding; raises `Invalid` where it is no slug."""
    if not _KEY.fullmatch(key):
        raise Invalid(
            f"{key!r} is no {what}; take 1 to 63 lower-case letters, digits, dots, dashes "
            "or underscores."
        )
    return key
