"""Load: many writes at once, many rows, long content."""

from __future__ import annotations

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, fresh_id, memory, same_items, together, word
from memtui.conformance.wire import Reply
from memtui.contract import Json

from .sources import CARE, IDEMPOTENCY, SEARCH, WRITE

_WRITES = 100
_ROWS = 120
_SAME_ID = 20
_LETTERS = 1_000_000
_PATIENCE = 5.0
"""The last of many requests at once waits for all before it."""

check = Section()


@check(WRITE, alone=True)
async def parallel_writes(probe: Probe) -> None:
    """A hundred writes at once are all stored, each once."""
    space = await probe.space()
    contents = [f"write {number} {word()}" for number in range(_WRITES)]
    replies = await _at_once(probe, space, [memory(content) for content in contents])
    for reply in replies:
        reply.expect_ok()
    found = await probe.search(space)
    if len(found.rows) != _WRITES:
        found.fail(f"{_WRITES} memories were stored at once, and {len(found.rows)} are found.")
    if not same_items(found.contents, contents):
        found.fail("A memory of many that were stored at once is missing or twice there.")
    if not same_items(found.ids, [str(reply.fields.get("id")) for reply in replies]):
        found.fail("The ids that were answered are not the ids that are found.")


@check(IDEMPOTENCY, alone=True)
async def parallel_upserts(probe: Probe) -> None:
    """Many writes at once with the same id make one memory, and none of them is an error."""
    space, identity = await probe.space(), fresh_id()
    bodies = [memory(f"write {number}", id=identity) for number in range(_SAME_ID)]
    for reply in await _at_once(probe, space, bodies):
        reply.expect_ok()
    found = await probe.search(space)
    if len(found.rows) != 1:
        found.fail(f"One id was written at once {_SAME_ID} times; {len(found.rows)} rows came.")


@check(SEARCH, alone=True)
async def search_no_silent_cap(probe: Probe) -> None:
    """A search with a limit of 100 returns 100 rows where there are more."""
    space = await probe.space()
    made = await probe.fill(space, [f"row {number}" for number in range(_ROWS)])
    found = await probe.search(space, limit=100)
    if len(found.rows) != 100:
        found.fail(f"{len(found.rows)} of {_ROWS} rows came, and 100 were asked for.")
    if len(set(found.ids)) != 100 or not set(found.ids) <= set(made):
        found.fail("A row came twice, or one that nobody wrote.")


@check(CARE, alone=True)
async def write_content_large(probe: Probe) -> None:
    """Content of a megabyte is stored whole, or refused with 400 or 413 and a message."""
    space = await probe.space()
    line = f"{word()} says something long, é 世 \n"
    content = (line * (_LETTERS // len(line) + 1))[:_LETTERS]
    reply = await probe.post(space, memory(content))
    if not reply.is_ok:
        reply.expect(400, 413, when="to a megabyte of content")
        if not reply.fields.get("message"):
            reply.fail("The refusal does not say why.")
        probe.remark = f"A megabyte of content is refused ({reply.status})."
        return
    held = (await probe.stored(space, str(reply.fields.get("id")))).get("content")
    if held != content:
        size = len(held) if isinstance(held, str) else 0
        probe.fail(f"{len(content):,} characters were stored; {size:,} came back, or others.")


async def _at_once(probe: Probe, space: str, bodies: list[Json]) -> list[Reply]:
    return await together(probe.post(space, body, _PATIENCE) for body in bodies)
