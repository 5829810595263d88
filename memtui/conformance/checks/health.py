"""Health: what the server says of itself, and whether it is true."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, hours, memory, quoted, word
from memtui.conformance.wire import Failed

from .sources import CAPABILITIES, HEALTH

KNOWN = ("embedding", "fts", "ttl", "pin", "propagation")
_SIZES = (384, 768, 1024, 1536, 3072, 256, 512, 4)
"""Lengths of embeddings that are in use; a server may take one of them only."""
_LONGEST = 16_384
_TRIES = 20
_NUMBER = re.compile(r"(?<![\w.])\d{1,5}(?![\w.]*\d)", re.ASCII)

check = Section()


@check(HEALTH)
async def health_shape(probe: Probe) -> None:
    """Health answers 200 with a status of ok or degraded, a version and a list of capabilities."""
    reply = (await probe.call("GET", "/v1/health")).expect(200)
    fields = reply.fields
    if fields.get("status") not in ("ok", "degraded"):
        reply.fail(f"status is {quoted(fields.get('status'))}; ok or degraded is due.")
    if not isinstance(fields.get("version"), str) or not fields["version"]:
        reply.fail(f"version is {quoted(fields.get('version'))}; a text is due.")
    listed = fields.get("capabilities")
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        reply.fail(f"capabilities is {quoted(listed)}; a list of names is due, [] for none.")


@check(CAPABILITIES)
async def health_capabilities(probe: Probe) -> None:
    """Health lists known capabilities only, each once."""
    reply = (await probe.call("GET", "/v1/health")).expect(200)
    listed = reply.fields.get("capabilities")
    if not isinstance(listed, list):
        return  # health-shape says so
    strange = [one for one in listed if one not in KNOWN]
    if strange:
        reply.fail(f"{quoted(strange[0])} is no capability; known are {', '.join(KNOWN)}.")
    if len(listed) != len(set(listed)):
        reply.fail("A capability is listed more than once.")


@check(CAPABILITIES)
async def health_honest(probe: Probe) -> None:
    """Whatever health lists can be seen to work."""
    for capability in KNOWN:
        if capability in probe.capabilities:
            try:
                await _PROOFS[capability](probe)
            except Failed as error:
                sentence = f"{capability} is listed and does not work. {error}"
                raise Failed(sentence, error.request, error.reply) from error


async def _embedding(probe: Probe) -> None:
    space = await probe.space()
    health = (await probe.call("GET", "/v1/health")).expect(200)
    said = (f"{name} {value}" for name, value in health.fields.items())
    waiting = [*_told([one for one in said if "dim" in one]), *_SIZES]
    tried: list[int] = []
    while waiting and len(tried) < _TRIES:
        size = waiting.pop(0)
        if size in tried:
            continue
        tried.append(size)
        near, far = [1.0] + [0.0] * (size - 1), [0.0] * (size - 1) + [1.0]
        first = await probe.post(space, memory("near", embedding=near))
        if not first.is_ok:  # another length is due, and the refusal may name it
            waiting = [*_told(first.body), *waiting]
            continue
        identity = first.fields.get("id")
        await probe.write(space, "far", embedding=far)
        found = await probe.search(space, embedding=near)
        if not found.ids or found.ids[0] != identity:
            found.fail("The memory with the very embedding that was asked for is not the first.")
        return
    probe.fail(f"No embedding of {', '.join(map(str, tried))} numbers is accepted.")


def _told(said: object) -> list[int]:
    """Return the lengths of an embedding that a server may mean by what it says."""
    found = (int(number) for number in _NUMBER.findall(str(said)))
    return [number for number in found if 2 <= number <= _LONGEST]


async def _fts(probe: Probe) -> None:
    space, wanted = await probe.space(), word()
    identity = await probe.write(space, f"The {wanted} is kept in the cellar.")
    await probe.write(space, f"The {word()} is kept in the attic.")
    found = await probe.search(space, query=wanted)
    if not found.ids or found.ids[0] != identity:
        found.fail("The only memory with the word that was asked for is not the first.")


async def _ttl(probe: Probe) -> None:
    space, lasting = await probe.space(), hours(1)
    identity = await probe.write(space, "lasting", expires_at=lasting.isoformat())
    row = await probe.stored(space, identity)
    if not row.get("expires_at"):
        probe.fail("The memory lost its expires_at.")


async def _pin(probe: Probe) -> None:
    space = await probe.space()
    row = await probe.stored(space, await probe.write(space, "pinned", pin=True))
    if row.get("pin") is not True:
        probe.fail("The memory lost its pin.")


async def _propagation(probe: Probe) -> None:
    space = await probe.space()
    row = await probe.stored(space, await probe.write(space, "x", propagation={"run": "r-1"}))
    if not row.get("propagation"):
        probe.fail("The memory lost its propagation.")


_PROOFS: dict[str, Callable[[Probe], Awaitable[None]]] = {
    "embedding": _embedding,
    "fts": _fts,
    "ttl": _ttl,
    "pin": _pin,
    "propagation": _propagation,
}
