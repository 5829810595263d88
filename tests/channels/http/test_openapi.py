"""Each server's own description: right, and held to by every reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi import checks

from tests.channels.http.plugin_server import VAULT, facts_over, plugin_over

BOUNDED = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
MODES = pytest.mark.parametrize("mode", schemathesis.GenerationMode)
POSITIVE = schemathesis.GenerationMode.POSITIVE
REFUSED = {"400", "403", "503"}
SPACE = "workspace:web"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Ana's client of a company's facts."""
    with facts_over(tmp_path_factory.mktemp("facts"), *VAULT) as (url, token):
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            yield client


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a vault served as a memory plugin."""
    home = tmp_path_factory.mktemp("plugin")
    with plugin_over(home, *VAULT) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def test_the_document_of_facts_tells_of_the_token_and_of_every_endpoint(
    facts: httpx.Client,
) -> None:
    document = facts.get("/openapi.json").json()
    assert {path: set(item) for path, item in document["paths"].items()} == {
        "/api/memory/user": {"get", "post"},
        "/api/memory/user/{id}": {"delete"},
        "/api/memory/drive/{id}": {"get", "post", "delete"},
        "/api/memory/feedback": {"post"},
    }
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["security"]
            assert {"401", "403", "404", "422", "503"} <= operation["responses"].keys()
            assert "500" not in operation["responses"]


def test_the_document_of_a_plugin_tells_every_status_and_no_other(plugin: httpx.Client) -> None:
    document = plugin.get("/openapi.json").json()
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
    assert schemas["RefusalBody"]["required"] == ["code", "message"]
    assert "HTTPValidationError" not in schemas


def replies_to(client: httpx.Client, mode: schemathesis.GenerationMode) -> set[int]:
    """Ask each operation well or badly, the same every time; return the statuses that came.

    Each reply must be one that the description has. That what fits the schema is taken is not
    asked: a full list takes nothing, a blank text is not a memory, and which texts are facts
    depends on the settings and the provider.
    """
    replies: list[int] = []
    headers = {name: value for name, value in client.headers.items() if name == "authorization"}
    schema = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))
    operations: list[Any] = list(schema.get_all_operations())
    for operation in (found.ok() for found in operations):
        if operation.path == "/v1/health" and mode is not POSITIVE:
            continue  # there is nothing in it that could be wrong
        if "{name}" in operation.path:
            made = client.put(f"/v1/namespaces/{SPACE}", json={"kind": "workspace"})
            assert made.status_code == 200
        strategy = operation.as_strategy(generation_mode=mode)

        @BOUNDED
        @given(case=strategy)
        def check(case: Any) -> None:
            if mode is POSITIVE and "name" in (case.path_parameters or {}):
                case.path_parameters["name"] = SPACE
            reply = case.call(headers=headers)
            replies.append(reply.status_code)
            case.validate_response(
                reply,
                headers=headers,
                excluded_checks=[checks.positive_data_acceptance],
            )

        check()
    assert len(replies) > BOUNDED.max_examples
    assert max(replies) < 500
    return set(replies)


@MODES
def test_facts_reply_as_described(facts: httpx.Client, mode: schemathesis.GenerationMode) -> None:
    replies = replies_to(facts, mode)
    assert mode is not POSITIVE or {200, 201} <= replies


@MODES
def test_a_plugin_replies_as_described(
    plugin: httpx.Client, mode: schemathesis.GenerationMode
) -> None:
    replies = replies_to(plugin, mode)
    assert mode is not POSITIVE or {200, 201, 204} <= replies
