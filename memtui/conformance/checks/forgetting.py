"""Forgetting: on behalf of the right namespace, and of no other."""

from __future__ import annotations

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, fresh_id, word
from memtui.conformance.wire import memory_path

from .sources import FORGET

check = Section()


@check(FORGET)
async def forget_removes(probe: Probe) -> None:
    """A memory that its namespace forgets is gone from every search; the answer is 204."""
    space, shared = await probe.space(), word()
    gone = await probe.write(space, f"{shared} gone")
    kept = await probe.write(space, f"{shared} kept")
    (await probe.forget(gone, space)).expect(204)
    for fields in ({}, {"query": shared}, {"kinds": ["fact"]}):
        found = await probe.search(space, **fields)
        if gone in found.ids:
            found.fail("A memory that was forgotten is still found.")
    await probe.stored(space, kept)


@check(FORGET)
async def forget_twice(probe: Probe) -> None:
    """Forgetting a memory a second time is 404."""
    space = await probe.space()
    identity = await probe.write(space, "gone")
    (await probe.forget(identity, space)).expect_ok()
    (await probe.forget(identity, space)).expect(404, when="the second time")


@check(FORGET)
async def forget_wrong_namespace(probe: Probe) -> None:
    """A namespace that does not hold a memory cannot forget it: 403 or 404, and it stays."""
    space, other = await probe.space(), await probe.space()
    identity = await probe.write(space, "stays")
    reply = await probe.forget(identity, other)
    reply.expect(403, 404, when="on behalf of another namespace")
    unknown = await probe.forget(identity, probe.name())
    unknown.expect(403, 404, when="on behalf of an unknown namespace")
    await probe.stored(space, identity)


@check(FORGET)
async def forget_unknown(probe: Probe) -> None:
    """Forgetting an id that is not there is 404, one that is no UUID 404 or 400."""
    space = await probe.space()
    (await probe.forget(fresh_id(), space)).expect(404, when="to an unknown id")
    (await probe.forget("flat-1", space)).expect(400, 404, when="to an id that is no UUID")


@check(FORGET)
async def forget_unsigned(probe: Probe) -> None:
    """Forgetting without requested_by_namespace is 400, and the memory stays."""
    space = await probe.space()
    identity = await probe.write(space, "stays")
    for body in (None, {}, {"requested_by_namespace": ""}):
        reply = await probe.call("DELETE", memory_path(identity), body)
        reply.expect(400, when="to a request of nobody")
    await probe.stored(space, identity)
