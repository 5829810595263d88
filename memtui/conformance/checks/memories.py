"""Checks of writing and searching: memories come back unchanged, and only the requested ones."""

import asyncio
import uuid

from memtui.conformance.probe import (
    CARE,
    IDEMPOTENCY,
    SEARCH,
    TURN_S,
    WRITE,
    Probe,
    check,
    fresh_id,
    memory,
    same_items,
    word,
)
from memtui.conformance.wire import as_moment, quoted
from memtui.contract import Json

_KINDS = ("fact", "summary", "checkpoint")
_SOURCES = ("agent", "runtime", "user")
_EDGES = (
    "  both ends  ", "\n\nlines around\n", "tab\tand\r\nCRLF", "a  double  space", "\u00a0x\u2003",
)  # fmt: skip
_SCRIPTS = (
    "Grüße, 世界 and 日本語 — naïve café",
    "e\u0301 is not \u00e9",
    "👩‍👩‍👧 🇳🇴 \U0001f9ff",
    "עברית and العربية \u202eturned\u202c",
    "zero\u200bwidth\u00a0and\ufeffmarks",
    "C1 \x85 and DEL \x7f, escape \x1b[31m",
    '<b>&amp;</b> "quotes" \\ back\\nslash %41 {{x}}',
)


@check(WRITE)
async def write_created(probe: Probe, space: str) -> None:
    """A write answers 201 with the memory's id and its namespace."""
    reply = (await probe.post(space, memory("new"))).expect(201)
    identity = reply.fields.get("id")
    if not isinstance(identity, str) or not identity:
        reply.fail(f"id is {quoted(identity)}; a string is expected.")
    reply.expect_fields({"namespace": space})


@check(IDEMPOTENCY)
async def write_ids_unique(probe: Probe, space: str) -> None:
    """Without an id each write gets a fresh UUID, the same text too."""
    made = [await probe.write(space, "the same text") for _ in range(4)]
    if len(set(made)) != len(made):
        probe.fail("Two writes got the same id.")
    for identity in made:
        if not _is_uuid(identity):
            probe.fail(f"The generated id {quoted(identity)} is not a UUID.")
    found = await probe.search(space)
    if sorted(found.ids) != sorted(made):
        found.fail(f"{len(made)} memories were stored and {len(found.rows)} are found.")


@check(IDEMPOTENCY)
async def write_id_kept(probe: Probe, space: str) -> None:
    """A write with an id is stored under this id."""
    identity = fresh_id()
    reply = (await probe.post(space, memory("mine", id=identity))).expect_ok()
    if _plain(reply.fields.get("id")) != identity:
        reply.fail(f"The id {identity} was returned as {quoted(reply.fields.get('id'))}.")
    found = await probe.search(space)
    if [_plain(one) for one in found.ids] != [identity]:
        found.fail("The memory is not found under the id that it was given.")


@check(IDEMPOTENCY)
async def write_id_upserts(probe: Probe, space: str) -> None:
    """A second write with the same id replaces the first in place and makes no duplicate."""
    identity = fresh_id()
    await probe.write(space, "first", id=identity)
    reply = await probe.post(space, memory("second", id=identity, kind="summary", source="user"))
    reply.expect_ok()
    found = await probe.search(space)
    if len(found.rows) != 1:
        found.fail(f"One id was written twice, and {len(found.rows)} memories are found.")
    row = found.rows[0]
    stored = (row.get("content"), row.get("kind"), row.get("source"))
    if stored != ("second", "summary", "user"):
        found.fail(f"After the second write the memory still holds {quoted(stored)}.")


@check(IDEMPOTENCY)
async def write_id_elsewhere(probe: Probe, space: str) -> None:
    """An id that is written again into another namespace is moved or refused, and never two."""
    other, identity = await probe.space(), fresh_id()
    await probe.write(space, "first", id=identity)
    reply = await probe.post(other, memory("second", id=identity))
    if not reply.is_ok:
        reply.expect(400, 403, 409, when="to an id of another namespace")
    wanted = (other, "second") if reply.is_ok else (space, "first")
    found = await probe.search(space, other)
    stored = [(row.get("namespace"), row.get("content")) for row in found.rows]
    if stored != [wanted]:
        found.fail(f"One id was written, and the two namespaces hold {quoted(stored)}.")
    probe.remark = "The memory moves." if reply.is_ok else f"It is refused ({reply.status})."


@check(IDEMPOTENCY)
async def write_id_keeps_created_at(probe: Probe, space: str) -> None:
    """A second write with the same id keeps the memory's created_at."""
    identity = fresh_id()
    moments = []
    for content in ("first", "second"):
        await probe.write(space, content, id=identity)
        found = await probe.search(space)
        if len(found.rows) != 1:
            return  # the check write-id-upserts reports it
        created_at = found.rows[0].get("created_at")
        moments.append(as_moment(created_at) or created_at)
    if moments[0] != moments[1]:
        probe.fail(f"created_at moved from {moments[0]} to {moments[1]}.")


@check(WRITE)
async def write_id_malformed(probe: Probe, space: str) -> None:
    """An id that is not a UUID is 400."""
    for identity in ("flat-1", "12345", "zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz"):
        reply = await probe.post(space, memory("x", id=identity))
        reply.expect(400, when=f"to the id {identity}")


@check(WRITE)
async def write_kinds(probe: Probe) -> None:
    """A memory of the kind fact, summary or checkpoint is stored as that."""
    await _stores_each(probe, "kind", _KINDS)


@check(WRITE)
async def write_sources(probe: Probe) -> None:
    """A memory from an agent, the runtime or a user is stored as that."""
    await _stores_each(probe, "source", _SOURCES)


@check(WRITE)
async def write_kind_unknown(probe: Probe) -> None:
    """A memory of an unknown kind, or of none, is 400."""
    await _refuses(probe, "kind", "dream")


@check(WRITE)
async def write_source_unknown(probe: Probe) -> None:
    """A memory from an unknown source, or from none, is 400."""
    await _refuses(probe, "source", "oracle")


@check(WRITE)
async def write_content_empty(probe: Probe) -> None:
    """A memory with empty content, or with none, is 400."""
    await _refuses(probe, "content", "")


@check(WRITE)
async def write_namespace_unknown(probe: Probe) -> None:
    """A write to an unknown namespace is 404."""
    name = probe.name()
    probe.spaces.add(name)
    (await probe.post(name, memory("lost"))).expect(404, when="to an unknown namespace")


@check(CARE)
async def write_content_exact(probe: Probe) -> None:
    """Content comes back byte for byte: nothing is trimmed, folded or redacted."""
    await _returns_each(probe, _EDGES)


@check(CARE)
async def write_content_unicode(probe: Probe) -> None:
    """Content in any script comes back byte for byte: not normalised, not escaped."""
    await _returns_each(probe, _SCRIPTS)


async def _stores_each(probe: Probe, field: str, values: tuple[str, ...]) -> None:
    space = await probe.space()
    made = {value: await probe.write(space, value, **{field: value}) for value in values}
    found = await probe.search(space)
    for value, identity in made.items():
        found.reply.expect_fields({field: value}, found.row(identity))


async def _refuses(probe: Probe, field: str, value: str) -> None:
    space = await probe.space()
    reply = await probe.post(space, memory("x") | {field: value})
    reply.expect(400, when=f"to the {field} {quoted(value)}")
    without = {name: given for name, given in memory("x").items() if name != field}
    (await probe.post(space, without)).expect(400, when=f"to a memory without {field}")
    found = await probe.search(space)
    if found.rows:
        found.fail("A memory that was refused is found.")


async def _returns_each(probe: Probe, contents: tuple[str, ...]) -> None:
    space = await probe.space()
    made = {content: await probe.write(space, content) for content in contents}
    found = await probe.search(space)
    for content, identity in made.items():
        found.reply.expect_fields({"content": content}, found.row(identity))


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _plain(identity: object) -> str:
    """Return an id in the canonical form, so that a UUID in capitals is the same."""
    text = str(identity)
    return str(uuid.UUID(text)) if _is_uuid(text) else text


@check(SEARCH)
async def search_shape(probe: Probe, space: str) -> None:
    """A row holds the id, namespace, content, kind, source and creation time of its memory."""
    identity = await probe.write(space, "the text", kind="summary", source="user")
    found = await probe.search(space)
    row = found.row(identity)
    wanted = {"namespace": space, "content": "the text", "kind": "summary", "source": "user"}
    found.reply.expect_fields(wanted, row)
    found.reply.moment("created_at", row)
    if not isinstance(row.get("pin", False), bool):
        found.fail(f"pin is {quoted(row['pin'])}; true, false or no value is expected.")
    if not isinstance(row.get("propagation") or {}, dict):
        found.fail(f"propagation is {quoted(row['propagation'])}; an object is expected.")


@check(SEARCH, "fts")
async def search_query(probe: Probe, space: str) -> None:
    """A query finds the memories that contain its word, and ranks them before all others."""
    wanted = word()
    hits = [await probe.write(space, f"The {wanted} {thing}.") for thing in ("lamp", "table")]
    await probe.fill(space, [f"The {word()} lamp number {number}." for number in range(3)])
    found = await probe.search(space, query=wanted)
    if not same_items(found.ids[:2], hits):
        found.fail(f"Two memories contain {wanted}, and they are not returned first.")


@check(SEARCH)
async def search_without_hits(probe: Probe, space: str) -> None:
    """Where nothing is found memories is an empty list, not null."""
    for fields in ({}, {"query": word()}, {"kinds": ["summary"]}):
        found = await probe.search(space, **fields)
        if found.reply.fields.get("memories") != []:
            found.fail(f"memories is {quoted(found.reply.fields.get('memories'))}; [] is expected.")


@check(SEARCH)
async def search_kinds(probe: Probe, space: str) -> None:
    """A search for kinds returns these kinds only, and all of them."""
    for kind in ("fact", "summary", "checkpoint"):
        await probe.write(space, f"a {kind}", kind=kind)
    for kinds in (["summary"], ["fact", "checkpoint"]):
        found = await probe.search(space, kinds=kinds)
        stored = [row.get("kind") for row in found.rows]
        if not same_items(stored, kinds):
            found.fail(
                f"The kinds {quoted(kinds)} were requested, and {quoted(stored)} were returned."
            )


@check(SEARCH)
async def search_limit(probe: Probe, space: str) -> None:
    """A search returns as many rows as its limit, where there are as many."""
    await probe.fill(space, [f"row {number}" for number in range(5)])
    for limit in (1, 3):
        found = await probe.search(space, limit=limit)
        if len(found.rows) != limit:
            found.fail(f"The limit is {limit}, and {len(found.rows)} of 5 rows were returned.")


@check(SEARCH)
async def search_limit_default(probe: Probe, space: str) -> None:
    """Without a limit a search returns 20 rows."""
    await probe.fill(space, [f"row {number}" for number in range(24)])
    reply = await probe.call("POST", "/v1/search", {"namespaces": [space]})
    rows = reply.expect(200).fields.get("memories")
    count = len(rows) if isinstance(rows, list) else 0
    if count != 20:
        reply.fail(f"{count} of 24 rows were returned without a limit; 20 are expected.")


@check(SEARCH)
async def search_limit_range(probe: Probe, space: str) -> None:
    """A limit below 0 or over 100 is 400."""
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
        found.fail(f"Three namespaces hold a memory each, and {len(found.rows)} were returned.")


@check(CARE)
async def search_isolated(probe: Probe, space: str) -> None:
    """A search never returns a memory of a namespace that it does not name."""
    other, shared = await probe.space(), word()
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
    """Searching a namespace that does not exist finds nothing, without a server error."""
    reply = await probe.call("POST", "/v1/search", {"namespaces": [probe.name()]})
    reply.expect(200, 404, when="to an unknown namespace")
    if reply.status == 200 and reply.fields.get("memories"):
        reply.fail("An unknown namespace holds memories.")


@check(SEARCH)
async def search_newest_first(probe: Probe, space: str) -> None:
    """Without a query the newest memory comes first."""
    made = []
    for number in range(4):
        made.append(await probe.write(space, f"row {number}"))
        await asyncio.sleep(TURN_S)
    found = await probe.search(space)
    moments = {str(row.get("created_at")) for row in found.rows}
    is_distinct = len(moments) == len(made)
    if is_distinct and found.ids != made[::-1]:
        found.fail("The rows are not in the order in which they were written, newest first.")
    if not is_distinct:
        probe.remark = "Memories written shortly after each other bear the same created_at."
