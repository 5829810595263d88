"""Propagation: opaque JSON that comes back as it went in."""

from __future__ import annotations

import json
from typing import Any

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, fresh_id, memory, quoted
from memtui.contract import Json

from .sources import CAPABILITIES

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

check = Section()


@check(CAPABILITIES, "propagation")
async def propagation_nested(probe: Probe) -> None:
    """Nested objects, lists, nulls and odd keys in propagation come back as they were."""
    held = await _round_trip(probe, _NESTED)
    if list(held) != list(_NESTED):
        probe.remark = "The keys come back in another order, which JSON allows."


@check(CAPABILITIES, "propagation")
async def propagation_unicode(probe: Probe) -> None:
    """Characters of any script in propagation come back as they were, in keys too."""
    await _round_trip(probe, _UNICODE)


@check(CAPABILITIES, "propagation")
async def propagation_numbers(probe: Probe) -> None:
    """Numbers in propagation keep their value and kind, integers past 2^53 too."""
    await _round_trip(probe, _NUMBERS)


@check(CAPABILITIES, "propagation")
async def propagation_replaced(probe: Probe) -> None:
    """A second write with the same id replaces propagation whole."""
    space, identity = await probe.space(), fresh_id()
    await probe.write(space, "first", id=identity, propagation={"a": 1, "b": 2})
    await probe.write(space, "second", id=identity, propagation={"b": 3})
    found = await probe.search(space)
    for row in found.rows:
        if row.get("content") == "second" and row.get("propagation") != {"b": 3}:
            found.fail(f'propagation is {quoted(row.get("propagation"))}; {{"b": 3}} is due.')


@check(CAPABILITIES, "propagation", alone=True)
async def propagation_large(probe: Probe) -> None:
    """Propagation of 10 KB to a megabyte comes back whole, or is refused with 400 or 413."""
    space = await probe.space()
    most = 0
    for size in _LARGE:
        given: Json = {"words": ["a word é 世 \n"] * (size // 20)}
        reply = await probe.post(space, memory("carries", propagation=given), _PATIENCE)
        if reply.is_ok:
            held = (await probe.stored(space, str(reply.fields.get("id")))).get("propagation")
            if held != given:
                probe.fail(f"About {size:,} characters of propagation came back as others.")
            most = size
            continue
        reply.expect(400, 413, when=f"to propagation of {size:,} characters")
        if not reply.fields.get("message"):
            reply.fail("The refusal does not say why.")
    await probe.stored(space, await probe.write(space, "afterwards"))
    if most < _LARGE[-1]:
        probe.remark = f"Propagation of {most:,} characters is the most that was stored."


async def _round_trip(probe: Probe, given: Json) -> Json:
    space = await probe.space()
    identity = await probe.write(space, "carries", propagation=given)
    found = await probe.search(space)
    held = found.row(identity).get("propagation")
    if not isinstance(held, dict):
        found.fail(f"propagation is {quoted(held)}; an object is due.")
    for key, value in given.items():
        if key not in held or _exact(held[key]) != _exact(value):
            lost = quoted(held[key]) if key in held else "nothing"
            found.fail(f"Under {quoted(key)} {quoted(value)} was given, and {lost} came back.")
    if held.keys() != given.keys():
        found.fail(f"propagation came back with the keys {quoted(list(held))}.")
    return held


def _exact(value: Any) -> str:
    """Return a value's JSON with sorted keys: 1, 1.0, true and "1" differ."""
    return json.dumps(value, sort_keys=True)
