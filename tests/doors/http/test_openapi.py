"""The server's own description: right, and held to by every reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi import checks

from tests.doors.http.test_serve import home, started, token

__all__ = ["home", "token"]

EXAMPLES = 40
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_the_document_tells_of_the_token_and_of_every_endpoint(home: Path, token: str) -> None:
    with started(home, "--port", "0") as (_, told):
        document = httpx.get(f"{told['url']}/openapi.json").json()
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_no_fault_and_no_undocumented_reply(
    home: Path, token: str, mode: schemathesis.GenerationMode
) -> None:
    """Well-formed or malformed requests of every kind, the same ones every time.

    That what fits the schema is taken is not asked: a full list takes nothing, and which texts are
    facts depends on the settings and the provider.
    """
    headers = {"Authorization": f"Bearer {token}"}
    replies: list[int] = []
    with started(home, "--port", "0") as (_, told):
        schema = schemathesis.openapi.from_url(f"{told['url']}/openapi.json")
        operations: list[Any] = list(schema.get_all_operations())
        for found in operations:
            strategy = found.ok().as_strategy(generation_mode=mode)

            @BOUNDED
            @given(case=strategy)
            def check(case: Any) -> None:
                reply = case.call(headers=headers)
                replies.append(reply.status_code)
                case.validate_response(
                    reply, headers=headers, excluded_checks=[checks.positive_data_acceptance]
                )

            check()
    assert len(replies) > EXAMPLES
    assert max(replies) < 500
    assert mode is schemathesis.GenerationMode.NEGATIVE or {200, 201} <= set(replies)
