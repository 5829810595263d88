"""Checks of health and namespaces: creation and replacement by PUT, PATCH, and removal."""

import re
from collections.abc import Callable
from urllib.parse import quote

from memtui.conformance.probe import (
    CAPABILITIES,
    DELETE,
    HEALTH,
    IMPLEMENT,
    PATCH,
    PUT,
    Probe,
    Try,
    check,
    hours,
    memory,
    word,
)
from memtui.conformance.wire import Exchange, Failed, namespace_path, quoted
from memtui.contract import Json

KNOWN = ("embedding", "fts", "ttl", "pin", "propagation")
_SIZES = (384, 768, 1024, 1536, 3072, 256, 512, 4)
"""Lengths of embeddings that are in use; a server may take one of them only."""
_LONGEST = 16_384
_TRIES = 20
_NUMBER = re.compile(r"(?<![\w.])\d{1,5}(?![\w.]*\d)", re.ASCII)


@check(HEALTH)
async def health_shape(probe: Probe) -> None:
    """Health answers 200 with a status of ok or degraded, a version and a list of capabilities."""
    reply = (await probe.call("GET", "/v1/health")).expect(200)
    fields = reply.fields
    if fields.get("status") not in ("ok", "degraded"):
        reply.fail(f"status is {quoted(fields.get('status'))}; ok or degraded is expected.")
    if not isinstance(fields.get("version"), str) or not fields["version"]:
        reply.fail(f"version is {quoted(fields.get('version'))}; a string is expected.")
    listed = fields.get("capabilities")
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        reply.fail(f"capabilities is {quoted(listed)}; a list of names is expected, [] for none.")


@check(CAPABILITIES)
async def health_capabilities(probe: Probe) -> None:
    """Health lists known capabilities only, each once."""
    reply = (await probe.call("GET", "/v1/health")).expect(200)
    listed = reply.fields.get("capabilities")
    if not isinstance(listed, list):
        return  # the check health-shape reports it
    strange = [one for one in listed if one not in KNOWN]
    if strange:
        reply.fail(
            f"{quoted(strange[0])} is not a capability; the capabilities are {', '.join(KNOWN)}."
        )
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
    waiting = [*_lengths([one for one in said if "dim" in one]), *_SIZES]
    tried: list[int] = []
    while waiting and len(tried) < _TRIES:
        size = waiting.pop(0)
        if size in tried:
            continue
        tried.append(size)
        near, far = [1.0] + [0.0] * (size - 1), [0.0] * (size - 1) + [1.0]
        first = await probe.post(space, memory("near", embedding=near))
        if not first.is_ok:  # the server wants another length, which the refusal may name
            waiting = [*_lengths(first.body), *waiting]
            continue
        identity = first.fields.get("id")
        await probe.write(space, "far", embedding=far)
        found = await probe.search(space, embedding=near)
        if not found.ids or found.ids[0] != identity:
            found.fail("The memory with exactly the requested embedding is not the first.")
        return
    probe.fail(f"No embedding of {', '.join(map(str, tried))} numbers is accepted.")


def _lengths(said: object) -> list[int]:
    """Return the embedding lengths that a server's statement may mean."""
    found = (int(number) for number in _NUMBER.findall(str(said)))
    return [number for number in found if 2 <= number <= _LONGEST]


async def _fts(probe: Probe) -> None:
    space, wanted = await probe.space(), word()
    identity = await probe.write(space, f"The {wanted} is kept in the cellar.")
    await probe.write(space, f"The {word()} is kept in the attic.")
    found = await probe.search(space, query=wanted)
    if not found.ids or found.ids[0] != identity:
        found.fail("The only memory with the requested word is not the first.")


def _keeps(field: str, given: Callable[[], object]) -> Try:
    async def proof(probe: Probe) -> None:
        space, value = await probe.space(), given()
        row = await probe.stored(space, await probe.write(space, "kept", **{field: value}))
        if not row.get(field) or (value is True and row[field] is not True):
            probe.fail(f"The memory lost its {field}.")

    return proof


_PROOFS: dict[str, Try] = {
    "embedding": _embedding,
    "fts": _fts,
    "ttl": _keeps("expires_at", lambda: hours(1).isoformat()),
    "pin": _keeps("pin", lambda: True),
    "propagation": _keeps("propagation", lambda: {"run": "r-1"}),
}


_KINDS = ("workspace", "team", "org", "custom")


@check(PUT)
async def namespace_shape(probe: Probe) -> None:
    """PUT answers 200 with the namespace: its name, its kind and when it was created."""
    name = probe.name()
    reply = (await probe.put(name, {"kind": "custom"})).expect(200)
    reply.expect_fields({"name": name, "kind": "custom"})
    reply.moment("created_at")


@check(PUT)
async def namespace_kinds(probe: Probe) -> None:
    """A namespace can be of the kind workspace, team, org or custom."""
    for kind in _KINDS:
        reply = (await probe.put(probe.name(kind), {"kind": kind})).expect_ok()
        reply.expect_fields({"kind": kind})


@check(PUT)
async def namespace_kind_unknown(probe: Probe) -> None:
    """PUT of an unknown kind, or of none, is 400."""
    (await probe.put(probe.name(), {"kind": "galaxy"})).expect(400, when="to an unknown kind")
    (await probe.put(probe.name(), {})).expect(400, when="to a namespace without a kind")


@check(PUT)
async def namespace_name(probe: Probe) -> None:
    """A name may hold letters, digits and _ : . - and is the same percent-encoded."""
    name = f"{probe.name()}:A.b_c-9:Z"
    (await probe.put(name, {"kind": "custom"})).expect_ok().expect_fields({"name": name})
    identity = await probe.write(name, "one")
    path = f"/v1/namespaces/{quote(name, safe='').replace('-', '%2D')}/memories"
    (await probe.call("POST", path, memory("two"))).expect_ok()
    found = await probe.search(name)
    if identity not in found.ids or len(found.rows) != 2:
        found.fail("The name with : as %3A is another namespace.")


@check(PUT)
async def namespace_name_malformed(probe: Probe) -> None:
    """A name without a prefix and a colon, with other characters or over 256 long is 400."""
    own = word()
    for name in (own, f"{own}:", f"Custom:{own}", f"custom:{own} b", f"custom:{own}ü"):
        (await probe.put(name, {"kind": "custom"})).expect(400, 404, when="to a malformed name")
    long = f"{probe.name()}{'x' * 256}"
    (await probe.put(long, {"kind": "custom"})).expect(400, 404, 414, when="to a name too long")


@check(IMPLEMENT)
async def namespace_put_idempotent(probe: Probe) -> None:
    """PUT of a namespace that exists is 200, and leaves its memories and created_at alone."""
    name = probe.name()
    first = (await probe.put(name, {"kind": "custom"})).expect_ok()
    identity = await probe.write(name, "kept")
    again = (await probe.put(name, {"kind": "custom"})).expect(200, when="to the same PUT again")
    _same_creation(first, again)
    await probe.stored(name, identity)


@check(PUT)
async def namespace_put_replaces(probe: Probe) -> None:
    """PUT replaces kind and metadata whole: what it leaves out is cleared."""
    name = probe.name()
    first = await probe.put(name, {"kind": "custom", "metadata": {"a": 1, "b": {"c": [2]}}})
    _has_metadata(first.expect_ok(), {"a": 1, "b": {"c": [2]}})
    second = (await probe.put(name, {"kind": "team", "metadata": {"d": "é"}})).expect_ok()
    _has_metadata(second, {"d": "é"})
    second.expect_fields({"kind": "team"})
    third = (await probe.put(name, {"kind": "team"})).expect_ok()
    _has_metadata(third, {})
    _same_creation(first, third)


@check(PUT, "ttl")
async def namespace_put_expiry(probe: Probe) -> None:
    """PUT sets a namespace's expires_at, replaces it, and clears it where it is left out."""
    name = probe.name()
    for moment in (hours(1), hours(2)):
        body = {"kind": "custom", "expires_at": moment.isoformat()}
        (await probe.put(name, body)).expect_ok().expect_expiry(moment)
    last = (await probe.put(name, {"kind": "custom"})).expect_ok()
    if last.fields.get("expires_at"):
        last.fail("A PUT without expires_at left the old one in place.")


@check(PATCH, "ttl")
async def namespace_patch_expiry(probe: Probe) -> None:
    """PATCH of expires_at sets it, and leaves metadata, kind and created_at alone."""
    name, moment = probe.name(), hours(3)
    first = (await probe.put(name, {"kind": "custom", "metadata": {"a": 1}})).expect_ok()
    reply = await _patch(probe, name, {"expires_at": moment.isoformat()})
    reply.expect(200).expect_expiry(moment)
    _has_metadata(reply, {"a": 1})
    _same_creation(first, reply)
    reply.expect_fields({"name": name, "kind": "custom"})


@check(PATCH)
async def namespace_patch_metadata(probe: Probe) -> None:
    """PATCH of metadata sets it, and leaves the rest alone."""
    name, moment = probe.name(), hours(3)
    has_ttl = "ttl" in probe.capabilities
    expiry = {"expires_at": moment.isoformat()} if has_ttl else {}
    first = await probe.put(name, {"kind": "custom", "metadata": {"a": 1}, **expiry})
    reply = (await _patch(probe, name, {"metadata": {"b": 2}})).expect(200)
    metadata = reply.fields.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("b") != 2:
        reply.fail(f"metadata is {quoted(metadata)}; b is missing.")
    if has_ttl:
        reply.expect_expiry(moment)
    _same_creation(first.expect_ok(), reply)
    reply.expect_fields({"name": name, "kind": "custom"})
    if "a" in metadata:
        probe.remark = "PATCH merges metadata; the reference server replaces it."


@check(PATCH)
async def namespace_patch_empty(probe: Probe) -> None:
    """PATCH with nothing to set is 400."""
    (await _patch(probe, await probe.space(), {})).expect(400, when="to an empty PATCH")


@check(PATCH)
async def namespace_patch_unknown(probe: Probe) -> None:
    """PATCH of an unknown namespace is 404, and makes none."""
    name = probe.name()
    probe.spaces.add(name)
    reply = await _patch(probe, name, {"metadata": {"a": 1}})
    reply.expect(404, when="to an unknown namespace")
    again = await _patch(probe, name, {"metadata": {"a": 1}})
    again.expect(404, when="the second time, as if the first had made it")


@check(DELETE)
async def namespace_delete(probe: Probe) -> None:
    """DELETE of a namespace is 204, and 404 from then on."""
    name = await probe.space()
    (await probe.delete(name)).expect(204)
    (await probe.delete(name)).expect(404, when="to a second DELETE")


@check(DELETE)
async def namespace_delete_cascades(probe: Probe) -> None:
    """DELETE of a namespace removes every memory in it and none elsewhere."""
    name, other = await probe.space(), await probe.space()
    await probe.fill(name, ["one", "two", "three"])
    kept = await probe.write(other, "kept")
    (await probe.delete(name)).expect_ok()
    (await probe.put(name, {"kind": "custom"})).expect_ok()
    found = await probe.search(name)
    if found.rows:
        found.fail(f"{len(found.rows)} memories outlived their namespace.")
    await probe.stored(other, kept)


@check(DELETE)
async def namespace_delete_final(probe: Probe) -> None:
    """A write to a namespace that was removed is 404."""
    name = await probe.space()
    (await probe.delete(name)).expect_ok()
    reply = await probe.post(name, memory("too late"))
    reply.expect(404, when="to a write after the DELETE")


@check(PUT)
async def namespace_prefix(probe: Probe) -> None:
    """Two namespaces stay apart if the name of one is a prefix of the other's."""
    base = probe.name()
    await _apart(probe, f"{base}1", f"{base}12")


@check(PUT)
async def namespace_case(probe: Probe) -> None:
    """Two namespaces stay apart if their names differ in case only."""
    base = probe.name()
    await _apart(probe, f"{base}-a", f"{base}-A")


async def _apart(probe: Probe, name: str, other: str) -> None:
    for one in (name, other):
        (await probe.put(one, {"kind": "custom"})).expect_ok()
    mine, theirs = await probe.write(name, "mine"), await probe.write(other, "theirs")
    for one, identity in ((name, mine), (other, theirs)):
        found = await probe.search(one)
        if found.ids != [identity]:
            found.fail(f"{quoted(one)} holds one memory, and {len(found.rows)} were returned.")
    crossed = await probe.forget(theirs, name)
    crossed.expect(403, 404, when="to forgetting in the name of the other namespace")
    (await probe.delete(name)).expect_ok()
    await probe.stored(other, theirs)


async def _patch(probe: Probe, name: str, body: Json) -> Exchange:
    return await probe.call("PATCH", namespace_path(name), body)


def _has_metadata(reply: Exchange, wanted: Json) -> None:
    metadata = reply.fields.get("metadata")
    if (metadata or {}) != wanted:
        reply.fail(f"metadata is {quoted(metadata)}; {quoted(wanted)} is expected.")


def _same_creation(first: Exchange, later: Exchange) -> None:
    if first.moment("created_at") != later.moment("created_at"):
        later.fail("created_at moved.")
