"""A run as a whole: what it leaves behind, what stops it, and what it makes of odd servers."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memtui.conformance import CheckResult, choose_checks, run_conformance
from memtui.contract import Invalid, Unavailable
from tests.backends.plugin_v1.servers.loopback import Answer, Request, Talk, response
from tests.backends.plugin_v1.servers.loopback import serve as serve_talk
from tests.backends.plugin_v1.servers.loopback import talk as plain_talk
from tests.backends.plugin_v1.servers.nasty import TRICKS
from tests.backends.plugin_v1.servers.reference import Reference

from .conftest import TTL_S, Serve, failed
from .faults import NulCrashes
from .plugin import Plugin, Refused, Row, talk


class Bare(Plugin):
    def health(self) -> Row:
        return super().health() | {"capabilities": []}


@pytest.mark.slow
async def test_a_correct_server_passes_everything_and_is_left_as_it_was(serve: Serve) -> None:
    plugin = Plugin()
    url = await serve(plugin)
    told: list[CheckResult] = []
    report = await run_conformance(url, on_result=told.append, ttl_s=TTL_S)
    assert failed(report) == set()
    assert (report.passed, report.failed, report.not_applicable) == (len(report.checks), 0, 0)
    assert {one.name for one in told} == {one.name for one in report.checks}
    assert report.leftovers == ()
    assert (plugin.spaces, plugin.rows) == ({}, {})
    assert report.server.version == "1.0.0"


async def test_what_a_server_does_not_list_is_not_applicable(serve: Serve) -> None:
    gated = [check.name for check in choose_checks() if check.needs]
    report = await run_conformance(await serve(Bare()), only=gated, ttl_s=TTL_S)
    assert report.not_applicable == len(gated) > 10
    assert "does not list" in report.checks[0].detail


async def test_it_touches_no_namespace_but_its_own(serve: Serve) -> None:
    plugin = Plugin()
    plugin.put("custom:mine", {"kind": "custom"})
    _, made = plugin.write("custom:mine", {"content": "kept", "kind": "fact", "source": "user"})
    before = json.dumps([plugin.spaces, str(plugin.rows)])
    await run_conformance(await serve(plugin), only=["namespace", "forget", "malformed-paths"])
    assert json.dumps([plugin.spaces, str(plugin.rows)]) == before
    assert made["id"] in plugin.rows
    assert not any("custom:mine" in one.path for one in plugin.requests)


class KeepsNamespaces(Plugin):
    def delete(self, name: str) -> Answer:
        raise Refused(500, "internal", "disk full")


async def test_what_cannot_be_removed_is_told(serve: Serve) -> None:
    told: list[tuple[str, ...]] = []
    plugin = KeepsNamespaces()
    report = await run_conformance(
        await serve(plugin), only=["write-created"], on_leftovers=told.append
    )
    assert report.leftovers == tuple(f"namespace {name}" for name in plugin.spaces)
    assert told == [report.leftovers]
    assert plugin.rows == {}


async def test_a_run_that_is_cancelled_cleans_up(serve: Serve) -> None:
    plugin = Plugin()
    url = await serve(plugin)
    run = asyncio.create_task(run_conformance(url, only=["ttl"], ttl_s=30))
    while len(plugin.rows) < 5:
        await asyncio.sleep(0.01)
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert run.cancelled()
    assert (plugin.spaces, plugin.rows) == ({}, {})


class SlowWrites(Plugin):
    """Refuses the first write at once, and takes its time for those sent beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.under_way = self.left = 0

    async def handle(self, request: Request) -> Answer:
        if not request.path.endswith("/memories"):
            return await super().handle(request)
        self.asked += 1
        if self.asked == 1:
            return Refused(500, "internal", "disk full").answer
        self.under_way += 1
        try:
            await asyncio.sleep(0.2)
            return await super().handle(request)
        finally:
            self.under_way -= 1

    def delete(self, name: str) -> Answer:
        self.left = max(self.left, self.under_way)
        return super().delete(name)


async def test_nothing_is_removed_while_a_failed_check_is_still_writing(serve: Serve) -> None:
    plugin = SlowWrites()
    report = await run_conformance(await serve(plugin), only=["search-no-silent-cap"])
    assert failed(report) == {"search-no-silent-cap"}
    assert plugin.left == 0
    assert (plugin.spaces, plugin.rows) == ({}, {})


async def test_a_unix_socket_is_served_too(serve: Serve, tmp_path: Path) -> None:
    socket = tmp_path / "plugin.sock"
    await serve(Plugin(), socket)
    report = await run_conformance("http://plugin", uds=socket, only=["write-created"])
    assert report.passed == 1


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        await run_conformance("http://127.0.0.1:9")


class Down(Plugin):
    def health(self) -> Row:
        raise Refused(503, "unavailable", "starting")


async def test_a_server_that_says_it_cannot_serve_is_unavailable(serve: Serve) -> None:
    with pytest.raises(Unavailable, match="503"):
        await run_conformance(await serve(Down()))


@pytest.mark.parametrize(
    "url", ["", "localhost:9100", "ftp://x", "http://", "http://u:p@x", "http://x/?a=1", "http://["]
)
async def test_an_address_that_is_none_is_invalid(url: str) -> None:
    with pytest.raises(Invalid):
        await run_conformance(url)


async def test_a_check_that_does_not_exist_is_invalid() -> None:
    with pytest.raises(Invalid, match="no check nonsense"):
        await run_conformance("http://127.0.0.1:9", only=["health", "nonsense"])


def test_a_name_chooses_one_check_and_a_beginning_several() -> None:
    assert [check.name for check in choose_checks(["namespace-delete"])] == ["namespace-delete"]
    assert {check.name for check in choose_checks(["pin"])} > {"pin-first", "pin-kept"}


async def test_after_a_crash_the_rest_is_not_blamed(serve: Serve) -> None:
    report = await run_conformance(
        await serve(NulCrashes()), only=["malformed-nul", "malformed-depth", "recovery"]
    )
    assert {one.name: one.outcome for one in report.checks} == {
        "malformed-nul": "fail",
        "malformed-depth": "not_applicable",
        "recovery": "fail",
    }
    assert "stopped answering at malformed-nul" in report.checks[1].detail
    assert report.leftovers


class Hangs(Plugin):
    """Health answers, and nothing else does."""

    async def handle(self, request: Request) -> Answer:
        if request.method != "GET":
            await asyncio.sleep(60)
        return self(request)


async def test_a_server_that_hangs_fails_and_does_not_hold_up_the_run(serve: Serve) -> None:
    url = await serve(Hangs())
    async with asyncio.timeout(5):
        report = await run_conformance(url, only=["write", "recovery"], timeout_s=0.1)
    assert report.failed == len(report.checks)
    assert {one.detail for one in report.checks} == {"No answer within 0.1 s."}


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("drips its body", "No answer within 0.6 s."),
        ("resets midway", "broke off the connection"),
        ("100 MB", "longer than 32 MB"),
        ("gzip bomb", "not JSON"),
        ("redirect to itself", "Answered 307"),
    ],
)
async def test_a_nasty_answer_fails_the_check(name: str, detail: str) -> None:
    good = talk(Plugin())

    async def answer(request: Request, writer: asyncio.StreamWriter) -> bool:
        nasty = request.path == "/v1/search"
        return await (TRICKS[name](writer) if nasty else good(request, writer))

    async with serve_talk(answer) as url:
        timeout_s = 0.6 if name.startswith("drips") else 20
        report = await run_conformance(url, only=["search-shape"], timeout_s=timeout_s)
    assert detail in report.checks[0].detail
    assert report.failed == 1


_ROW = {"id": 7, "namespace": ["x"], "content": {"a": 1}, "kind": None, "source": [], "pin": "yes",
        "created_at": 5, "expires_at": [], "propagation": "\ud800"}  # fmt: skip
ODD: dict[str, Any] = {
    "null": None,
    "a list": [[], {}],
    "a number": 17,
    "text": "half \ud800",
    "empty object": {},
    "strange fields": {"status": [], "version": {"a": 1}, "capabilities": [{}, 5], "id": [1],
                       "memories": 5, "code": 4, "created_at": "2026"},
    "strange rows": {"version": "\ud800\x1b[31m", "capabilities": ["ttl", "ttl", "\udfff", "pin"],
                     "id": "a\ud800/../", "namespace": "\ud800", "memories": [_ROW, _ROW],
                     "created_at": "2026-01-01T00:00:00Z", "message": [], "code": "\ud800"},
    "rows that are none": {"id": "x", "memories": [None, 5, "x", []], "capabilities": "ttl"},
}  # fmt: skip


def saying(status: int, body: bytes) -> Talk:
    """Return what answers every request alike."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> bool:
        said = response(status, body)
        writer.write(said.replace(b"text/plain", b"application/json"))
        await writer.drain()
        return True

    return answer


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"null"), (404, b'{"code": "not_found", "message": "no such page"}'), (500, b"boom"),
     (200, b"<html>hello</html>"), (302, b"")],
)  # fmt: skip
async def test_another_sort_of_server_is_told_in_one_sentence(status: int, body: bytes) -> None:
    async with serve_talk(saying(status, body)) as url:
        with pytest.raises(Unavailable, match=f"no memory plugin v1 .* {status} ") as told:
            await run_conformance(url)
    assert str(told.value).count(".") == url.count(".") + 1


class NoHealth(Plugin):
    def route(self, request: Request) -> Answer:
        return (404, None) if request.path == "/v1/health" else super().route(request)


async def test_a_plugin_without_health_alone_is_checked(serve: Serve) -> None:
    report = await run_conformance(await serve(NoHealth()), only=["health-shape", "write-created"])
    assert failed(report) == {"health-shape"}


@pytest.mark.parametrize("name", ODD)
async def test_odd_answers_fail_checks_and_nothing_else(name: str) -> None:
    fast = [check.name for check in choose_checks() if not check.alone]
    async with serve_talk(saying(200, json.dumps(ODD[name]).encode())) as url:
        report = await run_conformance(url, only=fast, timeout_s=1, ttl_s=0.01)
    assert report.failed > 20
    report.model_dump_json()


BROKEN_BY_THE_REFERENCE = {
    "write-id-malformed",
    "write-namespace-unknown",
    "namespace-delete-final",
    "search-without-hits",
}
KEPT_BY_THE_REFERENCE = {
    "namespace-put-replaces",
    "namespace-patch-metadata",
    "write-id-upserts",
    "search-limit-range",
    "ttl-past",
    "pin-first",
    "forget-wrong-namespace",
}


async def test_the_reference_server_as_it_was_seen_breaks_some_rules() -> None:
    judged = BROKEN_BY_THE_REFERENCE | KEPT_BY_THE_REFERENCE
    async with serve_talk(plain_talk(Reference())) as url:
        report = await run_conformance(url, only=sorted(judged), ttl_s=TTL_S)
    assert failed(report) == BROKEN_BY_THE_REFERENCE


class Vectors(Plugin):
    """Takes embeddings of 1,999 numbers only, and says so when it refuses another."""

    def row(self, name: str, body: Row) -> Row:
        given = body.get("embedding")
        if given and len(given) != 1999:
            raise Refused(500, "internal", f"expected 1999 dimensions, not {len(given)}")
        return super().row(name, body)


class LateMemories(Plugin):
    """Shows what is in a namespace past the namespace's expiry, which the contract allows open."""

    def is_alive(self, row: Row) -> bool:
        return super().is_alive(row | {"namespace": ""})


async def test_the_length_of_an_embedding_is_the_servers(serve: Serve) -> None:
    report = await run_conformance(await serve(Vectors()), only=["health-honest"])
    assert failed(report) == set()


async def test_what_the_contract_leaves_open_is_told_and_no_failure(serve: Serve) -> None:
    report = await run_conformance(await serve(LateMemories()), only=["ttl-namespace"], ttl_s=TTL_S)
    assert failed(report) == set()
    assert "contract allows" in report.checks[0].detail
