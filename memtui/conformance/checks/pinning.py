"""Pins: kept, and first where nothing else ranks."""

from __future__ import annotations

import asyncio

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, fresh_id, quoted, word

from .sources import CAPABILITIES, WRITE

_TURN_S = 0.02

check = Section()


@check(WRITE, "pin")
async def pin_kept(probe: Probe) -> None:
    """A pinned memory comes back pinned, and one that is not does not."""
    space = await probe.space()
    pinned = await probe.write(space, "pinned", pin=True)
    plain = [await probe.write(space, "plain"), await probe.write(space, "off", pin=False)]
    found = await probe.search(space)
    if found.row(pinned).get("pin") is not True:
        found.fail(f"pin is {quoted(found.row(pinned).get('pin'))} on a pinned memory.")
    if any(found.row(identity).get("pin") for identity in plain):
        found.fail("A memory that nobody pinned is pinned.")


@check(CAPABILITIES, "pin")
async def pin_first(probe: Probe) -> None:
    """Without a query pinned memories come first, older ones too."""
    space = await probe.space()
    pinned = await probe.write(space, "pinned long ago", pin=True)
    await asyncio.sleep(_TURN_S)
    for number in range(3):
        await probe.write(space, f"newer {number}")
    found = await probe.search(space)
    if not found.ids or found.ids[0] != pinned:
        found.fail("The pinned memory is not the first row.")
    first = await probe.search(space, limit=1)
    if first.ids[:1] != [pinned]:
        first.fail("With a limit of 1 the pinned memory is not the row that comes.")


@check(CAPABILITIES, "pin")
async def pin_query(probe: Probe) -> None:
    """With a query too the pinned ones of the memories that it finds come first."""
    if "fts" not in probe.capabilities:
        return
    space, wanted = await probe.space(), word()
    pinned = await probe.write(space, f"A long way off there may be some {wanted}.", pin=True)
    await asyncio.sleep(_TURN_S)
    for _ in range(3):
        await probe.write(space, f"{wanted} {wanted}")
    for limit in (100, 1):
        found = await probe.search(space, query=wanted, limit=limit)
        if found.ids[:1] != [pinned]:
            found.fail("The pinned memory that holds the word is not the first row.")


@check(CAPABILITIES, "pin")
async def pin_taken_away(probe: Probe) -> None:
    """A second write with the same id and pin false takes the pin away."""
    space, identity = await probe.space(), fresh_id()
    await probe.write(space, "pinned", id=identity, pin=True)
    await probe.write(space, "no more", id=identity, pin=False)
    found = await probe.search(space)
    if any(row.get("pin") for row in found.rows if row.get("content") == "no more"):
        found.fail("The memory is still pinned.")
