"""`memtui serve plugin` as a process: its address, its warning, its own description."""

from __future__ import annotations

import asyncio
import signal
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis.specs.openapi import checks

from tests.doors.http.test_openapi import BOUNDED
from tests.doors.http.test_serve import ToLoopback, end, home, refused, started

__all__ = ["home"]

pytestmark = pytest.mark.slow

FEWER = settings(BOUNDED, max_examples=10)
REFUSED = {"400", "403", "503"}


def test_start_answer_and_stop(home: Path) -> None:
    with started(home, "plugin", "--port", "0") as (process, told):
        assert told == {
            "contract": "plugin",
            "company_id": "local",
            "binding_key": "default",
            "url": told["url"],
            "socket": None,
        }
        assert told["url"].startswith("http://127.0.0.1:")
        assert httpx.get(f"{told['url']}/v1/health").json()["status"] == "ok"
        assert end(process, signal.SIGTERM) == (0, "", "")


def test_a_unix_socket_that_only_its_owner_opens(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "plugin.sock"
    with started(home, "plugin", "--binding", "default", "--uds", str(path)) as (process, told):
        assert told["socket"] == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://plugin/v1/health").json()["status"] == "ok"
        assert end(process, signal.SIGTERM)[0] == 0
    assert not path.exists()


def test_another_host_comes_with_a_warning(home: Path) -> None:
    with started(home, "plugin", "--host", "0.0.0.0", "--port", "0") as (process, told):
        port = httpx.URL(told["url"]).port

        async def ask() -> int:
            async with httpx.AsyncClient(transport=ToLoopback()) as client:
                return (await client.get(f"http://lan.test:{port}/v1/health")).status_code

        assert asyncio.run(ask()) == 200
        code, _, said = end(process, signal.SIGTERM)
    assert code == 0
    assert "asks for no login" in said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plugin", "--binding", "nothing"), 1),
        (("facts", "--binding", "default"), 2),
    ],
)
def test_refusals_to_start(home: Path, arguments: tuple[str, ...], code: int) -> None:
    assert refused(home, *arguments)[0] == code


def test_the_document_tells_every_status_and_no_other(home: Path) -> None:
    with started(home, "plugin", "--port", "0") as (_, told):
        document = httpx.get(f"{told['url']}/openapi.json").json()
    answers = {
        (method, path): set(operation["responses"])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    one, many = "/v1/namespaces/{name}", "/v1/namespaces/{name}/memories"
    assert answers == {
        ("get", "/v1/health"): {"200"} | REFUSED,
        ("put", one): {"200", "404"} | REFUSED,
        ("patch", one): {"200", "404"} | REFUSED,
        ("delete", one): {"204", "404"} | REFUSED,
        ("post", many): {"201", "202", "404"} | REFUSED,
        ("post", "/v1/search"): {"200", "404"} | REFUSED,
        ("delete", "/v1/memories/{id}"): {"202", "204", "404"} | REFUSED,
    }
    schemas = document["components"]["schemas"]
    assert schemas["Refusal"]["required"] == ["code", "message"]
    assert "HTTPValidationError" not in schemas


@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_no_fault_and_no_undocumented_reply(home: Path, mode: schemathesis.GenerationMode) -> None:
    """Well-formed or malformed requests of every kind, the same ones every time."""
    replies: list[int] = []
    with started(home, "plugin", "--port", "0") as (_, told):
        space = f"{told['url']}/v1/namespaces/workspace:web"
        schema = schemathesis.openapi.from_url(f"{told['url']}/openapi.json")
        operations: list[Any] = list(schema.get_all_operations())
        for found in operations:
            if found.ok().path == "/v1/health" and mode is schemathesis.GenerationMode.NEGATIVE:
                continue  # there is nothing in it that could be wrong
            assert httpx.put(space, json={"kind": "workspace"}).status_code == 200
            strategy = found.ok().as_strategy(generation_mode=mode)

            @FEWER
            @given(case=strategy)
            def check(case: Any) -> None:
                if mode is schemathesis.GenerationMode.POSITIVE and "name" in (
                    case.path_parameters or {}
                ):
                    case.path_parameters["name"] = "workspace:web"
                reply = case.call()
                replies.append(reply.status_code)
                # That what fits the schema is taken is not asked: a blank text is not a memory.
                case.validate_response(reply, excluded_checks=[checks.positive_data_acceptance])

            check()
    assert len(replies) > FEWER.max_examples
    assert max(replies) < 500
    if mode is schemathesis.GenerationMode.POSITIVE:
        assert {200, 201, 204} <= set(replies)
