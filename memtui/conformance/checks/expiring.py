"""Expiry: what is past is never returned, what is not is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, hours, memory, word

from .sources import CAPABILITIES, PUT, WRITE

_SECOND = timedelta(seconds=1)
_STRETCHES = (1, 4, 16)
"""How much longer an expiry is put off where the server was too slow for the shorter one."""
_EAST = timezone(timedelta(hours=14))
_WEST = timezone(timedelta(hours=-12))

check = Section()


@check(WRITE, "ttl")
async def ttl_kept(probe: Probe) -> None:
    """A memory's expires_at comes back as the moment that was given."""
    space, moment = await probe.space(), hours(1)
    identity = await probe.write(space, "lasting", expires_at=moment.isoformat())
    found = await probe.search(space)
    held = found.reply.moment("expires_at", found.row(identity))
    if abs(held - moment) > _SECOND:
        found.fail(f"expires_at is {held.isoformat()}; {moment.isoformat()} is due.")


@check(CAPABILITIES, "ttl")
async def ttl_past(probe: Probe) -> None:
    """A memory that is past its expiry when it is written is refused, or never returned."""
    await _hides(probe, hours(-1), wait=False)


@check(CAPABILITIES, "ttl")
async def ttl_passes(probe: Probe) -> None:
    """A memory is not returned from its expiry on."""
    await _hides(probe, probe.soon(), wait=True)


@check(CAPABILITIES, "ttl")
async def ttl_zones(probe: Probe) -> None:
    """An expiry is a moment, whatever the zone that it is written in."""
    space = await probe.space()
    await _write_expiring(probe, space, "past", hours(-1).astimezone(_EAST))
    lasting = hours(1).astimezone(_WEST)
    identity = await probe.write(space, "lasting", expires_at=lasting.isoformat())
    found = await probe.search(space)
    found.row(identity)
    if len(found.rows) != 1:
        found.fail("A memory whose expiry is past, east of Greenwich, is returned.")


@check(PUT, "ttl")
async def ttl_namespace(probe: Probe) -> None:
    """A namespace whose expiry is past can be searched, whether or not its memories are shown."""
    moment = probe.soon()
    space = await probe.space(expires_at=moment.isoformat())
    await probe.post(space, memory("short"))
    await probe.until_past(moment)
    reply = await probe.call("POST", "/v1/search", {"namespaces": [space]})
    reply.expect(200, 404)
    if reply.status == 200 and reply.fields.get("memories"):
        probe.remark = "Memories are shown past their namespace's expiry; the contract leaves that."


@check(PUT, "ttl")
async def ttl_cleared_by_put(probe: Probe) -> None:
    """A PUT without expires_at takes a namespace's expiry away, and its memories stay."""
    for stretch in _STRETCHES:
        moment = probe.soon(stretch)
        space = await probe.space(expires_at=moment.isoformat())
        written = await probe.post(space, memory("stays"))
        cleared = await probe.put(space, {"kind": "custom"})
        if datetime.now(UTC) < moment:
            break
    else:
        probe.remark = "Not judged: the server is too slow to be asked before an expiry."
        return
    identity = written.expect_ok().fields.get("id")
    cleared.expect_ok()
    await probe.until_past(moment)
    await probe.stored(space, str(identity))


async def _hides(probe: Probe, moment: datetime, *, wait: bool) -> None:
    space, shared = await probe.space(), word()
    kept = await probe.write(space, f"{shared} kept", expires_at=hours(1).isoformat())
    await _write_expiring(probe, space, f"{shared} gone", moment)
    if wait:
        await probe.until_past(moment)
    for fields in ({}, {"query": shared}, {"kinds": ["fact"]}):
        found = await probe.search(space, **fields)
        if any(row.get("id") != kept for row in found.rows):
            found.fail("A memory whose expiry is past is returned.")
    (await probe.search(space)).row(kept)


async def _write_expiring(probe: Probe, space: str, content: str, moment: datetime) -> None:
    reply = await probe.post(space, memory(content, expires_at=moment.isoformat()))
    if not reply.is_ok:
        reply.expect(400, when="to an expiry")
