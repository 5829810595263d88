"""Ends processes that memtui started with pipes."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress
from typing import Any

_PIPE_SECONDS = 5.0
"""How long the rest of the output is read: a process of another session may keep a pipe open."""


def kill_group(process: Process) -> None:
    """Kill a process group, by the process that leads it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def end_process(process: Process, *readers: asyncio.Task[Any]) -> None:
    """Kill a group whose first process still runs, and wait for that, even if cancelled meanwhile.

    `readers` read the output and are cancelled. What nobody has read is thrown away: a full pipe
    would stay open.
    """
    if process.returncode is None:
        kill_group(process)
    ending = asyncio.create_task(_ended(process, readers))
    is_cancelled = False
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            is_cancelled = True
    ending.result()
    if is_cancelled:
        raise asyncio.CancelledError


async def _ended(process: Process, readers: tuple[asyncio.Task[Any], ...]) -> None:
    for one in readers:
        one.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(_PIPE_SECONDS):
            await asyncio.gather(
                *(_thrown_away(one) for one in (process.stdout, process.stderr) if one)
            )
    await process.wait()


async def _thrown_away(stream: asyncio.StreamReader) -> None:
    while await stream.read(65_536):
        pass
