"""What every change of the control plane's own settings shares: each is an operation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from memtui.contract import Denied, Invalid, Json, OperationType, Scope
from memtui.service.answers import Caller
from memtui.service.core import Core
from memtui.service.recorder import Entry

_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@asynccontextmanager
async def configured(core: Core, caller: Caller, asked: Json) -> AsyncIterator[Entry]:
    """Record a change of the settings, and refuse it to who may not make it."""
    scope = Scope(company_id=caller.company_id)
    async with core.recorder.recorded(OperationType.CONFIGURE, caller, scope, asked) as entry:
        if core.read_only:
            raise Denied("memtui runs read-only; start it without --read-only to change anything.")
        await core.authorise(entry)
        yield entry


async def write(core: Core, change: Callable[[Any], object]) -> None:
    """Change the control plane's own tables in one transaction."""

    def run() -> None:
        with core.database.write() as database:
            change(database)

    await asyncio.to_thread(run)


def check_key(key: str, what: str) -> str:
    """Return the key of a company or binding; raises `Invalid` where it is no slug."""
    if not _KEY.fullmatch(key):
        raise Invalid(
            f"{key!r} is no {what}; take 1 to 63 lower-case letters, digits, dots, dashes "
            "or underscores."
        )
    return key
