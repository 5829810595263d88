"""`bindings embedding`: how far it is, to the end, and the yes on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.channels.cli.conftest import Run
from tests.loopback import Embeddings

SHOW = ("bindings", "embedding", "default")
ELSEWHERE = "https://llm.acme.invalid"


@pytest.fixture
def server() -> Iterator[Embeddings]:
    running = Embeddings()
    yield running
    running.stop()


def set_model(here: Run, embedding: str) -> int:
    return here("bindings", "configure", "default", "--set", f"embedding={embedding}").code


def test_a_model_is_set_built_and_changed(here: Run, server: Embeddings) -> None:
    assert here("note", "The sky is blue.").code == 0
    bare = here(*SHOW)
    assert (bare.code, bare.out) == (2, "")
    assert "has no embedding model; set embedding" in bare.err
    assert set_model(here, "words") == 2
    assert set_model(here, "static") == 0
    built = here(*SHOW, "--build", "--json")
    assert built.code == 0
    assert built.document["embedding"]["serving"] == "static"
    assert set_model(here, server.embedding) == 0
    waiting = here(*SHOW, "--background", "off")
    assert "needs re-index: 0 of 1 texts" in waiting.out
    assert "static answers meanwhile" in waiting.out
    assert "in the background  off" in waiting.out
    synced = here("bindings", "sync", "default")
    assert f"by meaning with {server.embedding}" in synced.out
    assert "by meaning with" in here("doctor").out
    assert here("ops", "list", "--type", "embed", "--json").document["total"] == 2


def test_texts_go_elsewhere_after_a_flag_or_an_answer(here: Run) -> None:
    assert here("note", "The sky is blue.").code == 0
    assert set_model(here, f"openai:{ELSEWHERE}/v1#m") == 0
    refused = here(*SHOW, "--build")
    assert refused.code == 4
    assert f"--allow {ELSEWHERE}" in refused.err
    assert here(*SHOW, "--allow", "https://else.invalid").code == 2
    allowed = here(*SHOW, "--allow", ELSEWHERE)
    assert f"agreed to          {ELSEWHERE}" in allowed.out
    assert here(*SHOW, "--build").code == 3
    assert here(*SHOW, "--disallow", ELSEWHERE).code == 0
    asked = here(*SHOW, "--build", stdin=b"n\n", terminal=True)
    assert asked.code == 1
    assert f"The texts of default go to {ELSEWHERE}" in asked.err
    answered = here(*SHOW, "--build", stdin=b"y\n", terminal=True)
    assert answered.code == 3
    assert here(*SHOW, "--json").document["agreed"] == [ELSEWHERE]
