"""A plugin that embeds, as the commands show it: a served vault with a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from memtui.conformance import run_conformance
from tests.channels.cli.conftest import Run
from tests.channels.http.plugin_server import VAULT, plugin_over


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plugin_over(tmp_path_factory.mktemp("served"), VAULT[0], {"embedding": "static"}) as url:
        yield url


async def test_a_served_vault_offers_embedding_where_it_has_a_model(
    served: str, tmp_path: Path
) -> None:
    report = await run_conformance(served, only=["health"])
    assert [one.outcome for one in report.checks] == ["pass"] * 3
    assert "embedding" in httpx.get(f"{served}/v1/health").json()["capabilities"]
    httpx.put(f"{served}/v1/namespaces/workspace:web", json={"kind": "workspace"})
    memory = {"content": "It has a vector.", "kind": "fact", "source": "agent"}
    where = f"{served}/v1/namespaces/workspace:web/memories"
    refused = httpx.post(where, json={**memory, "embedding": [1.0, 2.0]})
    assert refused.status_code == 400
    assert refused.json()["message"] == (
        "The vectors of this vault's model static have 256 numbers that are not all zero, and "
        "this one has 2; leave it out, and it is made here."
    )
    asked = {"namespaces": ["workspace:web"]}
    assert httpx.post(f"{served}/v1/search", json=asked).json()["memories"] == []
    refused = httpx.post(f"{served}/v1/search", json={**asked, "embedding": [0.0] * 256})
    assert refused.status_code == 400
    own = [0.0] * 255 + [1.0]
    assert httpx.post(where, json={**memory, "embedding": own}).status_code == 201
    other = {**memory, "content": "Another has one too.", "embedding": [1.0] + [0.0] * 255}
    assert httpx.post(where, json=other).status_code == 201
    found = httpx.post(f"{served}/v1/search", json={**asked, "embedding": own}).json()["memories"]
    assert found[0]["content"] == "It has a vector."


def test_a_vault_without_a_model_offers_none(tmp_path: Path) -> None:
    with plugin_over(tmp_path / "served", *VAULT) as url:
        assert "embedding" not in httpx.get(f"{url}/v1/health").json()["capabilities"]


def test_a_plugin_is_searched_by_meaning_and_a_dead_model_stops_nothing(
    here: Run, served: str
) -> None:
    added = here(
        "bindings", "add", "far", "plugin-v1", "--set", f"url={served}", "--set", "embedding=static"
    )
    assert added.code == 0, added.err
    views = {one["key"]: one for one in here("bindings", "list", "--json").document["bindings"]}
    assert views["far"]["capabilities"]["semantic"]
    for text in ("The video driver of the tests is old.", "Tea is in the kitchen."):
        assert here("note", text, "--project", "web", "--binding", "far").code == 0
    found = here("query", "graphics card", "--project", "web", "--binding", "far", "--json")
    assert found.document["snippets"][0]["text"] == "The video driver of the tests is old."

    far = "https://embeddings.invalid"
    there = f"embedding=openai:{far}/v1#m"
    assert here("bindings", "configure", "far", "--set", there).code == 0
    noted = here("note", "Nobody agreed.", "--project", "web", "--binding", "far")
    assert "Nobody has agreed that texts of far go to" in noted.err
    state = here("bindings", "embedding", "far", "--allow", far, "--json").document
    assert (state["agreed"], state["embedding"]["agreed"]) == ([far], True)
    away = "embedding=openai:http://127.0.0.1:9/v1#none"
    assert here("bindings", "configure", "far", "--set", away).code == 0
    noted = here("note", "Kettles boil.", "--project", "web", "--binding", "far")
    assert noted.code == 0
    assert "It has no vector: The embedding server 127.0.0.1" in noted.err
    [written, *_] = here("ops", "list", "type:write", "--json").document["operations"]
    assert written["request"]["lacking"].startswith("It has no vector: ")
    asked = here("query", "kettles", "--project", "web", "--binding", "far", "--json")
    assert [one["text"] for one in asked.document["snippets"]] == ["Kettles boil."]
    texts = here("browse", "--project", "web", "--binding", "far", "--json").document["records"]
    assert len(texts) == 4
