"""Searching: by word, by kind, in several namespaces, never more than was asked for."""

from __future__ import annotations

import asyncio

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, quoted, same_items, word
from memtui.contract import Json

from .sources import CARE, SEARCH

_TURN_S = 0.02
"""Between two writes whose order matters."""

check = Section()


@check(SEARCH)
async def search_shape(probe: Probe) -> None:
    """A row holds the id, namespace, content, kind, source and creation time of its memory."""
    space = await probe.space()
    identity = await probe.write(space, "the text", kind="summary", source="user")
    found = await probe.search(space)
    row = found.row(identity)
    wanted = {"namespace": space, "content": "the text", "kind": "summary", "source": "user"}
    for field, value in wanted.items():
        if row.get(field) != value:
            found.fail(f"{field} is {quoted(row.get(field))}; {quoted(value)} is due.")
    found.reply.moment("created_at", row)
    if not isinstance(row.get("pin", False), bool):
        found.fail(f"pin is {quoted(row['pin'])}; true, false or nothing is due.")
    if not isinstance(row.get("propagation") or {}, dict):
        found.fail(f"propagation is {quoted(row['propagation'])}; an object is due.")


@check(SEARCH, "fts")
async def search_query(probe: Probe) -> None:
    """A query finds the memories that hold its word, and ranks them before all others."""
    space, wanted = await probe.space(), word()
    hits = [await probe.write(space, f"The {wanted} {thing}.") for thing in ("lamp", "table")]
    await probe.fill(space, [f"The {word()} lamp number {number}." for number in range(3)])
    found = await probe.search(space, query=wanted)
    if not same_items(found.ids[:2], hits):
        found.fail(f"Two memories hold {wanted}, and they are not what is found first.")


@check(SEARCH)
async def search_without_hits(probe: Probe) -> None:
    """Where nothing is found memories is an empty list, not null."""
    space = await probe.space()
    for fields in ({}, {"query": word()}, {"kinds": ["summary"]}):
        found = await probe.search(space, **fields)
        if found.reply.fields.get("memories") != []:
            found.fail(f"memories is {quoted(found.reply.fields.get('memories'))}; [] is due.")


@check(SEARCH)
async def search_kinds(probe: Probe) -> None:
    """A search for kinds returns these kinds only, and all of them."""
    space = await probe.space()
    for kind in ("fact", "summary", "checkpoint"):
        await probe.write(space, f"a {kind}", kind=kind)
    for kinds in (["summary"], ["fact", "checkpoint"]):
        found = await probe.search(space, kinds=kinds)
        held = [row.get("kind") for row in found.rows]
        if not same_items(held, kinds):
            found.fail(f"The kinds {quoted(kinds)} were asked for, and {quoted(held)} came.")


@check(SEARCH)
async def search_limit(probe: Probe) -> None:
    """A search returns as many rows as its limit, where there are as many."""
    space = await probe.space()
    await probe.fill(space, [f"row {number}" for number in range(5)])
    for limit in (1, 3):
        found = await probe.search(space, limit=limit)
        if len(found.rows) != limit:
            found.fail(f"The limit is {limit}, and {len(found.rows)} of 5 rows came.")


@check(SEARCH)
async def search_limit_default(probe: Probe) -> None:
    """Without a limit a search returns 20 rows."""
    space = await probe.space()
    await probe.fill(space, [f"row {number}" for number in range(24)])
    reply = await probe.call("POST", "/v1/search", {"namespaces": [space]})
    rows = reply.expect(200).fields.get("memories")
    count = len(rows) if isinstance(rows, list) else 0
    if count != 20:
        reply.fail(f"{count} of 24 rows came without a limit; 20 are due.")


@check(SEARCH)
async def search_limit_range(probe: Probe) -> None:
    """A limit below 0 or over 100 is 400."""
    space = await probe.space()
    for limit in (-1, 101, 1_000_000):
        body = {"namespaces": [space], "limit": limit}
        reply = await probe.call("POST", "/v1/search", body)
        reply.expect(400, when=f"to the limit {limit}")
    zero = await probe.call("POST", "/v1/search", {"namespaces": [space], "limit": 0})
    zero.expect(200, 400, when="to the limit 0")


@check(SEARCH)
async def search_namespaces(probe: Probe) -> None:
    """A search of several namespaces returns the memories of all of them."""
    spaces = [await probe.space() for _ in range(3)]
    made = [await probe.write(space, f"in {number}") for number, space in enumerate(spaces)]
    found = await probe.search(*spaces)
    if not same_items(found.ids, made):
        found.fail(f"Three namespaces hold a memory each, and {len(found.rows)} came.")


@check(CARE)
async def search_isolated(probe: Probe) -> None:
    """A search never returns a memory of a namespace that it does not name."""
    space, other, shared = await probe.space(), await probe.space(), word()
    mine = await probe.write(space, f"{shared} mine")
    await probe.write(other, f"{shared} theirs")
    for fields in ({}, {"query": shared}, {"kinds": ["fact"]}, {"query": "theirs"}):
        found = await probe.search(space, **fields)
        strange = [row for row in found.rows if row.get("id") != mine]
        if strange:
            found.fail(f"A memory of {quoted(strange[0].get('namespace'))} is among the rows.")


@check(SEARCH)
async def search_namespaces_missing(probe: Probe) -> None:
    """A search that names no namespace is 400."""
    bodies: list[Json] = [{"query": "x"}, {"namespaces": []}]
    for body in bodies:
        reply = await probe.call("POST", "/v1/search", body)
        reply.expect(400, when="to a search without a namespace")


@check(SEARCH)
async def search_namespace_unknown(probe: Probe) -> None:
    """A search of a namespace that does not exist finds nothing and is no error of the server."""
    reply = await probe.call("POST", "/v1/search", {"namespaces": [probe.name()]})
    reply.expect(200, 404, when="to an unknown namespace")
    if reply.status == 200 and reply.fields.get("memories"):
        reply.fail("An unknown namespace holds memories.")


@check(SEARCH)
async def search_newest_first(probe: Probe) -> None:
    """Without a query the newest memory comes first."""
    space = await probe.space()
    made = []
    for number in range(4):
        made.append(await probe.write(space, f"row {number}"))
        await asyncio.sleep(_TURN_S)
    found = await probe.search(space)
    moments = {str(row.get("created_at")) for row in found.rows}
    is_told_apart = len(moments) == len(made)
    if is_told_apart and found.ids != made[::-1]:
        found.fail("The rows are not in the order in which they were written, newest first.")
    if not is_told_apart:
        probe.remark = "Memories written shortly after each other bear the same created_at."
