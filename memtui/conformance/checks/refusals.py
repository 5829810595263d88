"""Refusals: their bodies, their content type, and what is no part of the contract."""

from __future__ import annotations

from memtui.conformance.check import Section
from memtui.conformance.probe import Probe, fresh_id, memory, quoted
from memtui.conformance.wire import Reply, memory_path, namespace_path

from .sources import CONTRACT, ERRORS

_CODES = {
    400: "bad_request",
    403: "forbidden",
    404: "not_found",
    500: "internal",
    503: "unavailable",
}

check = Section()


@check(ERRORS)
async def error_bodies(probe: Probe) -> None:
    """A refusal is a JSON object with a code and a message, and says so in its content type."""
    for reply in await _refusals(probe):
        if not reply.is_json:
            reply.fail(f"A refusal of the content type {quoted(reply.content_type)}.")
        for field in ("code", "message"):
            value = reply.fields.get(field)
            if not isinstance(value, str) or not value:
                reply.fail(f"{field} is {quoted(value)}; a text is due.")


@check(ERRORS)
async def error_codes(probe: Probe) -> None:
    """The code of a refusal is the one of its status."""
    for reply in await _refusals(probe):
        due = _CODES.get(reply.status)
        code = _code(reply)
        if due is not None and code is not None and code != due:
            reply.fail(f"The code of this {reply.status} is {quoted(code)}; {due} is due.")


@check(CONTRACT)
async def replies_are_json(probe: Probe) -> None:
    """Every answer with a body has the content type application/json."""
    name = probe.name()
    replies = [
        await probe.call("GET", "/v1/health"),
        await probe.put(name, {"kind": "custom"}),
        await probe.post(name, memory("x")),
        await probe.call("POST", "/v1/search", {"namespaces": [name]}),
    ]
    for reply in replies:
        if reply.is_ok and not reply.is_json:
            reply.fail(f"The content type is {quoted(reply.content_type)}.")


@check(CONTRACT)
async def path_unknown(probe: Probe) -> None:
    """A path that is no part of the contract is 404."""
    for path in ("/v1/memtui-no-such-path", "/v2/health", "/v1/namespaces"):
        (await probe.call("GET", path)).expect(404, 405, when=f"to {path}")


@check(CONTRACT)
async def method_wrong(probe: Probe) -> None:
    """A method that is no part of the contract is 405 or 404, and changes nothing."""
    space = await probe.space()
    identity = await probe.write(space, "stays")
    wrong = (
        ("POST", "/v1/health"),
        ("GET", "/v1/search"),
        ("POST", namespace_path(space)),
        ("PUT", f"{namespace_path(space)}/memories"),
        ("PATCH", memory_path(identity)),
    )
    for method, path in wrong:
        (await probe.call(method, path, {})).expect(404, 405, when=f"to {method}")
    await probe.stored(space, identity)


async def _refusals(probe: Probe) -> list[Reply]:
    """Return what the server answers to the caller's usual mistakes."""
    space, unknown = await probe.space(), probe.name()
    probe.spaces.add(unknown)
    replies = [
        await probe.post(space, memory("")),
        await probe.post(space, memory("x", kind="dream")),
        await probe.post(space, b"{no JSON"),
        await probe.post(unknown, memory("x")),
        await probe.call("PATCH", namespace_path(probe.name()), {"metadata": {"a": 1}}),
        await probe.call("DELETE", namespace_path(probe.name())),
        await probe.call("POST", "/v1/search", {"namespaces": []}),
        await probe.forget(fresh_id(), space),
    ]
    return [reply for reply in replies if not reply.is_ok]


def _code(reply: Reply) -> str | None:
    """Return the code of a refusal; None where there is none, which `error_bodies` tells."""
    if not reply.body.lstrip().startswith(b"{"):
        return None
    code = reply.fields.get("code")
    return code if isinstance(code, str) else None
