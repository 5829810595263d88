"""Checks of expiry, pins and propagation of memories, and of forgetting."""

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from memtui.conformance.probe import (
    CAPABILITIES,
    FORGET,
    PUT,
    TURN_S,
    WRITE,
    Probe,
    check,
    fresh_id,
    hours,
    memory,
    word,
)
from memtui.conformance.wire import memory_path, quoted
from memtui.contract import Json

_STRETCHES = (1, 4, 16)
"""How much longer an expiry is put off where the server was too slow for the shorter one."""
_EAST = timezone(timedelta(hours=14))
_WEST = timezone(timedelta(hours=-12))


@check(WRITE, "ttl")
async def ttl_kept(probe: Probe, space: str) -> None:
    """A memory's expires_at comes back as the moment that was given."""
    moment = hours(1)
    identity = await probe.write(space, "lasting", expires_at=moment.isoformat())
    found = await probe.search(space)
    found.reply.expect_expiry(moment, found.row(identity))


@check(CAPABILITIES, "ttl")
async def ttl_past(probe: Probe) -> None:
    """A memory that is past its expiry when it is written is refused, or never returned."""
    await _hides(probe, hours(-1), wait=False)


@check(CAPABILITIES, "ttl")
async def ttl_passes(probe: Probe) -> None:
    """A memory is not returned from its expiry on."""
    await _hides(probe, probe.soon(), wait=True)


@check(CAPABILITIES, "ttl")
async def ttl_zones(probe: Probe, space: str) -> None:
    """An expiry is a moment, whatever the zone that it is written in."""
    await _write_expiring(probe, space, "past", hours(-1).astimezone(_EAST))
    lasting = hours(1).astimezone(_WEST)
    identity = await probe.write(space, "lasting", expires_at=lasting.isoformat())
    found = await probe.search(space)
    found.row(identity)
    if len(found.rows) != 1:
        found.fail("An expired memory is returned; its expiry has a time zone east of Greenwich.")


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
        probe.remark = (
            "Memories are returned after their namespace has expired; the contract allows both."
        )


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
            found.fail("An expired memory is returned.")
    (await probe.search(space)).row(kept)


async def _write_expiring(probe: Probe, space: str, content: str, moment: datetime) -> None:
    reply = await probe.post(space, memory(content, expires_at=moment.isoformat()))
    if not reply.is_ok:
        reply.expect(400, when="to an expiry")


@check(WRITE, "pin")
async def pin_kept(probe: Probe, space: str) -> None:
    """A pinned memory comes back pinned, and one that is not does not."""
    pinned = await probe.write(space, "pinned", pin=True)
    plain = [await probe.write(space, "plain"), await probe.write(space, "off", pin=False)]
    found = await probe.search(space)
    if found.row(pinned).get("pin") is not True:
        found.fail(f"pin is {quoted(found.row(pinned).get('pin'))} on a pinned memory.")
    if any(found.row(identity).get("pin") for identity in plain):
        found.fail("A memory that nobody pinned is pinned.")


@check(CAPABILITIES, "pin")
async def pin_first(probe: Probe, space: str) -> None:
    """Without a query pinned memories come first, older ones too."""
    pinned = await probe.write(space, "pinned long ago", pin=True)
    await asyncio.sleep(TURN_S)
    for number in range(3):
        await probe.write(space, f"newer {number}")
    found = await probe.search(space)
    if not found.ids or found.ids[0] != pinned:
        found.fail("The pinned memory is not the first row.")
    first = await probe.search(space, limit=1)
    if first.ids[:1] != [pinned]:
        first.fail("With a limit of 1 the pinned memory is not the returned row.")


@check(CAPABILITIES, "pin")
async def pin_query(probe: Probe) -> None:
    """With a query too the pinned ones of the memories that it finds come first."""
    if "fts" not in probe.capabilities:
        return
    space, wanted = await probe.space(), word()
    pinned = await probe.write(space, f"A long way off there may be some {wanted}.", pin=True)
    await asyncio.sleep(TURN_S)
    for _ in range(3):
        await probe.write(space, f"{wanted} {wanted}")
    for limit in (100, 1):
        found = await probe.search(space, query=wanted, limit=limit)
        if found.ids[:1] != [pinned]:
            found.fail("The pinned memory with the word is not the first row.")


@check(CAPABILITIES, "pin")
async def pin_taken_away(probe: Probe, space: str) -> None:
    """A second write with the same id and pin false takes the pin away."""
    identity = fresh_id()
    await probe.write(space, "pinned", id=identity, pin=True)
    await probe.write(space, "no more", id=identity, pin=False)
    found = await probe.search(space)
    if any(row.get("pin") for row in found.rows if row.get("content") == "no more"):
        found.fail("The memory is still pinned.")


_NESTED: Json = {
    "zulu": {"list": ["one", "two", None, True, False, {"deep": [[], {}, [[0.5]]]}], "empty": ""},
    "alpha": "0123",
    "": "an empty key",
    'a.b/c d\\e"f': "odd keys",
    "mike": None,
}
_UNICODE: Json = {"schlüssel": "世界", "👩‍👩‍👧": "e\u0301", "\u202e": "\u200b\x1b[31m\t\n"}
_NUMBERS: Json = {
    "past 2^53": 9007199254740993,
    "64 bits": [9223372036854775807, -9223372036854775808],
    "small": 1e-7,
    "fraction": 0.1,
    "negative": -17,
}

_LARGE = (10_000, 60_000, 250_000, 1_000_000)
_PATIENCE = 5.0


@check(CAPABILITIES, "propagation")
async def propagation_nested(probe: Probe) -> None:
    """Nested objects, lists, nulls and odd keys in propagation come back as they were."""
    returned = await _round_trip(probe, _NESTED)
    if list(returned) != list(_NESTED):
        probe.remark = "The keys are returned in another order, which JSON allows."


@check(CAPABILITIES, "propagation")
async def propagation_unicode(probe: Probe) -> None:
    """Characters of any script in propagation come back as they were, in keys too."""
    await _round_trip(probe, _UNICODE)


@check(CAPABILITIES, "propagation")
async def propagation_numbers(probe: Probe) -> None:
    """Numbers in propagation keep their value and kind, integers past 2^53 too."""
    await _round_trip(probe, _NUMBERS)


@check(CAPABILITIES, "propagation")
async def propagation_replaced(probe: Probe, space: str) -> None:
    """A second write with the same id replaces propagation whole."""
    identity = fresh_id()
    await probe.write(space, "first", id=identity, propagation={"a": 1, "b": 2})
    await probe.write(space, "second", id=identity, propagation={"b": 3})
    found = await probe.search(space)
    for row in found.rows:
        if row.get("content") == "second" and row.get("propagation") != {"b": 3}:
            found.fail(f'propagation is {quoted(row.get("propagation"))}; {{"b": 3}} is expected.')


@check(CAPABILITIES, "propagation", alone=True)
async def propagation_large(probe: Probe, space: str) -> None:
    """Propagation of 10 KB to a megabyte comes back whole, or is refused with 400 or 413."""
    most = 0
    for size in _LARGE:
        given: Json = {"words": ["a word é 世 \n"] * (size // 20)}
        reply = await probe.post(space, memory("carries", propagation=given), _PATIENCE)
        if reply.is_ok:
            returned = (await probe.stored(space, str(reply.fields.get("id")))).get("propagation")
            if returned != given:
                probe.fail(f"About {size:,} characters of propagation came back changed.")
            most = size
            continue
        reply.expect(400, 413, when=f"to propagation of {size:,} characters")
        reply.expect_message()
    await probe.stored(space, await probe.write(space, "afterwards"))
    if most < _LARGE[-1]:
        probe.remark = f"Propagation of {most:,} characters is the most that was stored."


async def _round_trip(probe: Probe, given: Json) -> Json:
    space = await probe.space()
    identity = await probe.write(space, "carries", propagation=given)
    found = await probe.search(space)
    returned = found.row(identity).get("propagation")
    if not isinstance(returned, dict):
        found.fail(f"propagation is {quoted(returned)}; an object is expected.")
    for key, value in given.items():
        if key not in returned or _exact(returned[key]) != _exact(value):
            lost = quoted(returned[key]) if key in returned else "nothing"
            found.fail(f"{quoted(key)} was {quoted(value)}, and {lost} was returned.")
    if returned.keys() != given.keys():
        found.fail(f"propagation was returned with the keys {quoted(list(returned))}.")
    return returned


def _exact(value: Any) -> str:
    """Return a value's JSON with sorted keys: 1, 1.0, true and "1" differ."""
    return json.dumps(value, sort_keys=True)


@check(FORGET)
async def forget_removes(probe: Probe, space: str) -> None:
    """A memory that its namespace forgets is gone from every search; the answer is 204."""
    shared = word()
    gone = await probe.write(space, f"{shared} gone")
    kept = await probe.write(space, f"{shared} kept")
    (await probe.forget(gone, space)).expect(204)
    for fields in ({}, {"query": shared}, {"kinds": ["fact"]}):
        found = await probe.search(space, **fields)
        if gone in found.ids:
            found.fail("A memory that was forgotten is still found.")
    await probe.stored(space, kept)


@check(FORGET)
async def forget_twice(probe: Probe, space: str) -> None:
    """Forgetting a memory a second time is 404."""
    identity = await probe.write(space, "gone")
    (await probe.forget(identity, space)).expect_ok()
    (await probe.forget(identity, space)).expect(404, when="the second time")


@check(FORGET)
async def forget_wrong_namespace(probe: Probe, space: str) -> None:
    """A namespace that does not hold a memory cannot forget it: 403 or 404, and it stays."""
    other = await probe.space()
    identity = await probe.write(space, "stays")
    reply = await probe.forget(identity, other)
    reply.expect(403, 404, when="on behalf of another namespace")
    unknown = await probe.forget(identity, probe.name())
    unknown.expect(403, 404, when="on behalf of an unknown namespace")
    await probe.stored(space, identity)


@check(FORGET)
async def forget_unknown(probe: Probe, space: str) -> None:
    """Forgetting an id that is not there is 404, one that is not a UUID 404 or 400."""
    (await probe.forget(fresh_id(), space)).expect(404, when="to an unknown id")
    (await probe.forget("flat-1", space)).expect(400, 404, when="to an id that is not a UUID")


@check(FORGET)
async def forget_unsigned(probe: Probe, space: str) -> None:
    """Forgetting without requested_by_namespace is 400, and the memory stays."""
    identity = await probe.write(space, "stays")
    for body in (None, {}, {"requested_by_namespace": ""}):
        reply = await probe.call("DELETE", memory_path(identity), body)
        reply.expect(400, when="to a request of nobody")
    await probe.stored(space, identity)
