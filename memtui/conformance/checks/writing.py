"""Writing: what is stored, under which id, and that it is stored as it came."""

from __future__ import annotations

import uuid

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, fresh_id, memory, quoted
from memtui.conformance.wire import as_moment

from .sources import CARE, IDEMPOTENCY, WRITE

_KINDS = ("fact", "summary", "checkpoint")
_SOURCES = ("agent", "runtime", "user")
_EDGES = (
    "  both ends  ",
    "\n\nlines around\n",
    "tab\tand\r\nCRLF",
    "a  double  space",
    "\u00a0x\u2003",
)
_SCRIPTS = (
    "Grüße, 世界 and 日本語 — naïve café",
    "e\u0301 is not \u00e9",
    "👩‍👩‍👧 🇳🇴 \U0001f9ff",
    "עברית and العربية \u202eturned\u202c",
    "zero\u200bwidth\u00a0and\ufeffmarks",
    "C1 \x85 and DEL \x7f, escape \x1b[31m",
    '<b>&amp;</b> "quotes" \\ back\\nslash %41 {{x}}',
)

check = Section()


@check(WRITE)
async def write_created(probe: Probe) -> None:
    """A write answers 201 with the memory's id and its namespace."""
    space = await probe.space()
    reply = (await probe.post(space, memory("new"))).expect(201)
    identity = reply.fields.get("id")
    if not isinstance(identity, str) or not identity:
        reply.fail(f"id is {quoted(identity)}; a text is due.")
    if reply.fields.get("namespace") != space:
        reply.fail(f"namespace is {quoted(reply.fields.get('namespace'))}, not the one asked for.")


@check(IDEMPOTENCY)
async def write_ids_unique(probe: Probe) -> None:
    """Without an id each write gets a fresh UUID, the same text too."""
    space = await probe.space()
    made = [await probe.write(space, "the same text") for _ in range(4)]
    if len(set(made)) != len(made):
        probe.fail("Two writes got the same id.")
    for identity in made:
        if not _is_uuid(identity):
            probe.fail(f"The generated id {quoted(identity)} is no UUID.")
    found = await probe.search(space)
    if sorted(found.ids) != sorted(made):
        found.fail(f"{len(made)} memories were stored and {len(found.rows)} are found.")


@check(IDEMPOTENCY)
async def write_id_kept(probe: Probe) -> None:
    """A write with an id is stored under this id."""
    space, identity = await probe.space(), fresh_id()
    reply = (await probe.post(space, memory("mine", id=identity))).expect_ok()
    if _plain(reply.fields.get("id")) != identity:
        reply.fail(f"The id {identity} came back as {quoted(reply.fields.get('id'))}.")
    found = await probe.search(space)
    if [_plain(one) for one in found.ids] != [identity]:
        found.fail("The memory is not found under the id that it was given.")


@check(IDEMPOTENCY)
async def write_id_upserts(probe: Probe) -> None:
    """A second write with the same id replaces the first in place and makes no duplicate."""
    space, identity = await probe.space(), fresh_id()
    await probe.write(space, "first", id=identity)
    reply = await probe.post(space, memory("second", id=identity, kind="summary", source="user"))
    reply.expect_ok()
    found = await probe.search(space)
    if len(found.rows) != 1:
        found.fail(f"One id was written twice, and {len(found.rows)} memories are found.")
    row = found.rows[0]
    held = (row.get("content"), row.get("kind"), row.get("source"))
    if held != ("second", "summary", "user"):
        found.fail(f"After the second write the memory still holds {quoted(held)}.")


@check(IDEMPOTENCY)
async def write_id_elsewhere(probe: Probe) -> None:
    """An id that is written again into another namespace is moved or refused, and never two."""
    space, other, identity = await probe.space(), await probe.space(), fresh_id()
    await probe.write(space, "first", id=identity)
    reply = await probe.post(other, memory("second", id=identity))
    if not reply.is_ok:
        reply.expect(400, 403, 409, when="to an id of another namespace")
    wanted = (other, "second") if reply.is_ok else (space, "first")
    found = await probe.search(space, other)
    held = [(row.get("namespace"), row.get("content")) for row in found.rows]
    if held != [wanted]:
        found.fail(f"One id was written, and the two namespaces hold {quoted(held)}.")
    probe.remark = "The memory moves." if reply.is_ok else f"It is refused ({reply.status})."


@check(IDEMPOTENCY)
async def write_id_keeps_created_at(probe: Probe) -> None:
    """A second write with the same id keeps the memory's created_at."""
    space, identity = await probe.space(), fresh_id()
    moments = []
    for content in ("first", "second"):
        await probe.write(space, content, id=identity)
        found = await probe.search(space)
        if len(found.rows) != 1:
            return  # write-id-upserts says so
        created_at = found.rows[0].get("created_at")
        moments.append(as_moment(created_at) or created_at)
    if moments[0] != moments[1]:
        probe.fail(f"created_at moved from {moments[0]} to {moments[1]}.")


@check(WRITE)
async def write_id_malformed(probe: Probe) -> None:
    """An id that is no UUID is 400."""
    space = await probe.space()
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
        held = found.row(identity).get(field)
        if held != value:
            found.fail(f"The {field} {value} came back as {quoted(held)}.")


async def _refuses(probe: Probe, field: str, value: str) -> None:
    space = await probe.space()
    reply = await probe.post(space, memory("x") | {field: value})
    reply.expect(400, when=f"to the {field} {quoted(value)}")
    without = {name: held for name, held in memory("x").items() if name != field}
    (await probe.post(space, without)).expect(400, when=f"to a memory without {field}")
    found = await probe.search(space)
    if found.rows:
        found.fail("A memory that was refused is found.")


async def _returns_each(probe: Probe, contents: tuple[str, ...]) -> None:
    space = await probe.space()
    made = {content: await probe.write(space, content) for content in contents}
    found = await probe.search(space)
    for content, identity in made.items():
        held = found.row(identity).get("content")
        if held != content:
            found.fail(f"{quoted(content)} came back as {quoted(held)}.")


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
