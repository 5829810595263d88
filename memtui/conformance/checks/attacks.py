"""Checks of refusals, load and malformed input: the server must neither fail nor hang."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from memtui.conformance.probe import (
    CARE,
    CONTRACT,
    ERRORS,
    IDEMPOTENCY,
    SEARCH,
    WRITE,
    Probe,
    check,
    fresh_id,
    memory,
    same_items,
    together,
    word,
)
from memtui.conformance.wire import (
    JSON_TYPE,
    Exchange,
    encoded,
    memory_path,
    namespace_path,
    quoted,
)
from memtui.contract import Json

_CODES = {
    400: "bad_request", 403: "forbidden", 404: "not_found", 500: "internal", 503: "unavailable",
}  # fmt: skip
_WRITES = 100
_ROWS = 120
_SAME_ID = 20
_LETTERS = 1_000_000
_PATIENCE = 5.0
"""The last of many requests at once waits for all before it."""
_DEEP = 20_000
"""So many brackets within each other break a reader that recurses."""
_LONG = 100_000


@check(ERRORS)
async def error_bodies(probe: Probe) -> None:
    """A refusal is a JSON object with a code and a message, and says so in its content type."""
    for reply in await _refusals(probe):
        if not reply.is_json:
            reply.fail(f"A refusal of the content type {quoted(reply.content_type)}.")
        for field in ("code", "message"):
            value = reply.fields.get(field)
            if not isinstance(value, str) or not value:
                reply.fail(f"{field} is {quoted(value)}; a string is expected.")


@check(ERRORS)
async def error_codes(probe: Probe) -> None:
    """The code of a refusal is the one of its status."""
    for reply in await _refusals(probe):
        # The check error-bodies reports a refusal without a code.
        code = reply.fields.get("code") if reply.body.lstrip().startswith(b"{") else None
        due = _CODES.get(reply.status)
        if due is not None and isinstance(code, str) and code != due:
            reply.fail(f"The code of this {reply.status} is {quoted(code)}; {due} is expected.")


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
    """A path that is not part of the contract is 404."""
    for path in ("/v1/memtui-no-such-path", "/v2/health", "/v1/namespaces"):
        (await probe.call("GET", path)).expect(404, 405, when=f"to {path}")


@check(CONTRACT)
async def method_wrong(probe: Probe, space: str) -> None:
    """A method that is not part of the contract is 405 or 404, and changes nothing."""
    identity = await probe.write(space, "stays")
    wrong = (
        ("POST", "/v1/health"),
        ("GET", "/v1/search"),
        ("POST", namespace_path(space)),
        ("PUT", _memories(space)),
        ("PATCH", memory_path(identity)),
    )
    for method, path in wrong:
        (await probe.call(method, path, {})).expect(404, 405, when=f"to {method}")
    await probe.stored(space, identity)


async def _refusals(probe: Probe) -> list[Exchange]:
    """Return what the server answers to the caller's usual mistakes."""
    space, unknown = await probe.space(), probe.name()
    probe.spaces.add(unknown)
    replies = [
        await probe.post(space, memory("")),
        await probe.post(space, memory("x", kind="dream")),
        await probe.post(space, b"{no JSON"),
        await probe.post(unknown, memory("x")),
        await probe.call("PATCH", namespace_path(probe.name()), {"metadata": {"a": 1}}),
        await probe.delete(probe.name()),
        await probe.call("POST", "/v1/search", {"namespaces": []}),
        await probe.forget(fresh_id(), space),
    ]
    return [reply for reply in replies if not reply.is_ok]


@check(WRITE, alone=True)
async def parallel_writes(probe: Probe, space: str) -> None:
    """A hundred writes at once are all stored, each once."""
    contents = [f"write {number} {word()}" for number in range(_WRITES)]
    replies = await _at_once(probe, space, [memory(content) for content in contents])
    found = await probe.search(space)
    if len(found.rows) != _WRITES:
        found.fail(f"{_WRITES} memories were stored at once, and {len(found.rows)} are found.")
    if not same_items([row.get("content") for row in found.rows], contents):
        found.fail("A memory of many that were stored at once is missing or twice there.")
    if not same_items(found.ids, [str(reply.fields.get("id")) for reply in replies]):
        found.fail("The ids that the writes returned are not the ids that the search returns.")


@check(IDEMPOTENCY, alone=True)
async def parallel_upserts(probe: Probe, space: str) -> None:
    """Many writes at once with the same id make one memory, and none of them is an error."""
    identity = fresh_id()
    bodies = [memory(f"write {number}", id=identity) for number in range(_SAME_ID)]
    await _at_once(probe, space, bodies)
    found = await probe.search(space)
    if len(found.rows) != 1:
        found.fail(
            f"One id was written {_SAME_ID} times at once, and {len(found.rows)} rows were "
            "returned."
        )


async def _at_once(probe: Probe, space: str, bodies: list[Json]) -> list[Exchange]:
    replies = await together(probe.post(space, body, _PATIENCE) for body in bodies)
    return [reply.expect_ok() for reply in replies]


@check(SEARCH, alone=True)
async def search_no_silent_cap(probe: Probe, space: str) -> None:
    """A search with a limit of 100 returns 100 rows where there are more."""
    made = await probe.fill(space, [f"row {number}" for number in range(_ROWS)])
    found = await probe.search(space, limit=100)
    if len(found.rows) != 100:
        found.fail(f"{len(found.rows)} of {_ROWS} rows were returned; 100 were requested.")
    if len(set(found.ids)) != 100 or not set(found.ids) <= set(made):
        found.fail("A row was returned twice, or a row that nobody wrote.")


@check(CARE, alone=True)
async def write_content_large(probe: Probe, space: str) -> None:
    """Content of a megabyte is stored whole, or refused with 400 or 413 and a message."""
    line = f"{word()} says something long, é 世 \n"
    content = (line * (_LETTERS // len(line) + 1))[:_LETTERS]
    reply = await probe.post(space, memory(content))
    if not reply.is_ok:
        reply.expect(400, 413, when="to a megabyte of content").expect_message()
        probe.remark = f"A megabyte of content is refused ({reply.status})."
        return
    stored = (await probe.stored(space, str(reply.fields.get("id")))).get("content")
    if stored != content:
        size = len(stored) if isinstance(stored, str) else 0
        probe.fail(f"{len(content):,} characters were stored; {size:,} or others came back.")


@dataclass(frozen=True, slots=True)
class _Case:
    """One malformed request."""

    method: str
    path: str
    body: bytes
    must_refuse: bool = False
    """It is the caller's mistake beyond doubt: success is as wrong as a failure."""
    content_type: str | None = JSON_TYPE


async def _all(probe: Probe, cases: Iterable[_Case]) -> None:
    """Send every case. Raises `Failed` for a 5xx, a silence, or success where it must not be."""
    for case in cases:
        reply = await probe.call(case.method, case.path, case.body, case.content_type)
        if case.must_refuse and not reply.is_refusal:
            reply.fail(f"Answered {reply.status} to malformed input; a refusal (4xx) is expected.")
        if not (reply.is_ok or reply.is_refusal):
            reply.fail(f"Answered {reply.status} to malformed input.")
    await _alive(probe)


async def _alive(probe: Probe) -> None:
    (await probe.call("GET", "/v1/health")).expect(200, when="after that")


def _memories(space: str) -> str:
    return f"{namespace_path(space)}/memories"


def _raw(space: str, body: bytes) -> _Case:
    return _Case("POST", _memories(space), body)


def _post(space: str, body: Json, *, must_refuse: bool = False) -> _Case:
    return _Case("POST", _memories(space), encoded(body), must_refuse=must_refuse)


def _search(body: Json, *, must_refuse: bool = False) -> _Case:
    return _Case("POST", "/v1/search", encoded(body), must_refuse=must_refuse)


def _put(probe: Probe, body: Json, *, must_refuse: bool = False) -> _Case:
    name = probe.name()
    probe.spaces.add(name)
    return _Case("PUT", namespace_path(name), encoded(body), must_refuse=must_refuse)


async def _everywhere(probe: Probe, bodies: Iterable[bytes]) -> None:
    """Send each body to every endpoint that takes one; all have to be refused."""
    space = await probe.space()
    identity = await probe.write(space, "stays")
    endpoints = (
        ("PUT", namespace_path(space)),
        ("PATCH", namespace_path(space)),
        ("POST", _memories(space)),
        ("POST", "/v1/search"),
        ("DELETE", memory_path(identity)),
    )
    await _all(probe, [_Case(*one, body, must_refuse=True) for body in bodies for one in endpoints])


@check(CONTRACT, alone=True)
async def malformed_json(probe: Probe) -> None:
    """A body that is not JSON is refused by every endpoint."""
    bodies = (b"{", b"nonsense", b'{"kind": }', b"{'kind': 'custom'}", b'{"kind": "\xff\xfe"}')
    await _everywhere(probe, bodies)


@check(CONTRACT, alone=True)
async def malformed_shapes(probe: Probe) -> None:
    """A body that is JSON and no object is refused by every endpoint."""
    await _everywhere(probe, (b"[]", b'"text"', b"17", b"true", b"[{}]"))


@check(WRITE, alone=True)
async def malformed_types(probe: Probe, space: str) -> None:
    """A required field of the wrong type is refused, an optional one no error of the server."""
    wrong: list[object] = [17, True, ["x"], {"a": 1}]
    required = [
        memory("x") | {name: one} for name in ("content", "kind", "source") for one in wrong
    ]
    optional: list[Json] = [
        {"pin": "yes"}, {"pin": 7}, {"propagation": [1]}, {"propagation": "x"},
        {"embedding": "x"}, {"embedding": ["a"]}, {"embedding": {}}, {"expires_at": 5},
        {"expires_at": {}}, {"id": 17}, {"id": ["x"]},
    ]  # fmt: skip
    names: list[object] = ["x", 17, {}, [17], [None]]
    searches: list[Json] = [
        {"limit": "10"}, {"limit": 1.5}, {"limit": []}, {"kinds": "fact"}, {"kinds": [5]},
        {"kinds": ["dream"]}, {"query": 5}, {"query": []}, {"embedding": "x"}, {"embedding": []},
    ]  # fmt: skip
    spaces: list[Json] = [{"metadata": "x"}, {"metadata": [1]}, {"expires_at": 5}]
    cases = [
        *(_post(space, body, must_refuse=True) for body in required),
        *(_post(space, memory("x") | more) for more in optional),
        *(_search({"namespaces": one}, must_refuse=True) for one in names),
        *(_search({"namespaces": [space], **more}) for more in searches),
        *(_put(probe, {"kind": "custom", **more}) for more in spaces),
    ]
    await _all(probe, cases)


@check(WRITE, "ttl", alone=True)
async def malformed_dates(probe: Probe, space: str) -> None:
    """An expires_at that is not a moment is refused, not dropped."""
    bad = ("tomorrow", "2031-13-45T00:00:00Z", "2031-02-30T25:61:00Z", "12/31/2031")
    doubtful = ("", "2031-01-01", "2031-01-01T00:00:00", "9999999-01-01T00:00:00Z", "0000-00-00")
    cases: list[_Case] = []
    for text in (*bad, *doubtful):
        body, must_refuse = {"kind": "custom", "expires_at": text}, text in bad
        cases.append(_post(space, memory("x", expires_at=text), must_refuse=must_refuse))
        cases.append(_put(probe, body, must_refuse=must_refuse))
    await _all(probe, cases)


@check(WRITE, alone=True)
async def malformed_nul(probe: Probe, space: str) -> None:
    """A NUL is stored as it is or refused, and never a failure of the server."""
    content = "before\0after"
    reply = await probe.post(space, memory(content))
    if reply.is_ok:
        stored = (await probe.stored(space, str(reply.fields.get("id")))).get("content")
        if stored != content:
            probe.fail("Content with a NUL was returned changed.")
    signed = encoded({"requested_by_namespace": space})
    cases = [
        _post(space, memory("x", propagation={"a\0b": "c\0d"})),
        _search({"namespaces": [space], "query": "a\0b"}),
        _search({"namespaces": [f"{space}\0"]}),
        _put(probe, {"kind": "custom", "metadata": {"a": "\0"}}),
        _Case("DELETE", memory_path("\0"), signed, must_refuse=True),
    ]
    reply.expect(200, 201, 400, 413, 422, when="to a NUL in content")
    await _all(probe, cases)


@check(WRITE, alone=True)
async def malformed_surrogates(probe: Probe, space: str) -> None:
    r"""Half a character, as \ud800, is refused or replaced, and never a failure of the server."""
    bodies = [memory("a\ud800b"), memory("x", propagation={"\udfff": "\ud800"})]
    query = {"namespaces": [space], "query": "\udc00"}
    cases = [_raw(space, json.dumps(body).encode()) for body in bodies]
    await _all(probe, [*cases, _Case("POST", "/v1/search", json.dumps(query).encode())])


@check(WRITE, alone=True)
async def malformed_depth(probe: Probe, space: str) -> None:
    """JSON that is nested very deep is refused or stored, and never a failure of the server."""
    deep = b"[" * _DEEP + b"]" * _DEEP
    objects = b'{"a":' * _DEEP + b"1" + b"}" * _DEEP
    start = encoded(memory("x"))[:-1]
    bodies = [
        start + b', "propagation": {"a": ' + deep + b"}}",
        start + b', "more": ' + objects + b"}",
        deep,
    ]
    cases = [_raw(space, body) for body in bodies]
    await _all(probe, [*cases, _Case("POST", "/v1/search", b"[" * _DEEP, must_refuse=True)])


@check(WRITE, alone=True)
async def malformed_huge(probe: Probe, space: str) -> None:
    """Very long names, numbers, queries and lists are never a failure of the server."""
    start = encoded(memory("x"))[:-1]
    number = b"9" * 5_000
    limit = b'{"namespaces": ["custom:x"], "limit": ' + number + b"}"
    cases = [
        _raw(space, start + b', "propagation": {"n": ' + number + b"}}"),
        _raw(space, start + b', "propagation": {"n": 1e999}}'),
        _Case("POST", "/v1/search", limit, must_refuse=True),
        _post(space, memory("x", propagation={"k" * _LONG: 1})),
        _post(space, memory("x", id="a" * _LONG)),
        _post(space, memory("x", kind="k" * _LONG)),
        _search({"namespaces": [space], "query": "word " * (_LONG // 5)}),
        _search({"namespaces": [f"custom:{word()}-{number}" for number in range(5_000)]}),
        _search({"namespaces": ["custom:" + "x" * _LONG]}),
        _post(space, memory("x", embedding=[0.5] * 20_000)),
    ]
    await _all(probe, cases)


@check(CONTRACT, alone=True)
async def malformed_content_type(probe: Probe) -> None:
    """JSON under another content type, or under none, is taken or refused."""
    path, body = _memories(await probe.space()), encoded(memory("x"))
    form = "application/x-www-form-urlencoded"
    kinds = ("text/plain", form, "multipart/form-data", "no/such", None)
    await _all(probe, [_Case("POST", path, body, content_type=kind) for kind in kinds])


@check(CONTRACT, alone=True)
async def malformed_paths(probe: Probe) -> None:
    """A path with a slash, dots or a NUL in a name is refused."""
    own, body = word(), encoded({"kind": "custom"})
    names = (f"custom:{own}/x", f"custom:{own}\0", f"../{own}", f" {own}")
    for name in names:
        probe.spaces.add(name)
        probe.spaces.refused(name)
    cases = [_Case("PUT", namespace_path(name), body, must_refuse=True) for name in names]
    await _all(probe, cases)


@check(CONTRACT, alone=True)
async def recovery(probe: Probe) -> None:
    """After malformed input the server still stores, finds and forgets."""
    await _alive(probe)
    space = await probe.space()
    reply = await probe.post(space, b'{"content": "broken off')
    if reply.is_ok:
        reply.fail("An incomplete body was accepted.")
    identity = await probe.write(space, "still here")
    await probe.stored(space, identity)
    (await probe.forget(identity, space)).expect_ok()
    if (await probe.search(space)).rows:
        probe.fail("A memory that was forgotten is still found.")
