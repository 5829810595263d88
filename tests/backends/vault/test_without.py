"""A vault read without some records answers as the vault does once they are forgotten."""

from __future__ import annotations

import random
from pathlib import Path
from typing import cast

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.contract import (
    Adapter,
    BrowseRequest,
    ForgetRequest,
    QueryRequest,
    Scope,
    Unsupported,
)
from tests.loopback import Embeddings

from .conftest import COMPANY, SCOPE, Open, fact, note

WORDS = [
    "deploy",
    "branch",
    "release",
    "token",
    "vault",
    "staging",
    "cache",
    "queue",
    "worker",
    "schema",
    "index",
    "budget",
]
RARE = ["marmot", "heron", "badger", "stoat"]
QUERIES = [*WORDS[:6], "deploy the release branch", "cache queue marmot", "heron", "test_command"]
ANA = Scope(company_id="acme", subject_id="ana")


async def answers(adapter: Adapter) -> list[object]:
    """What a few questions, prompts and lists come to, with every score."""
    told: list[object] = []
    for scope in (SCOPE, COMPANY, ANA):
        for query in QUERIES:
            bundle = await adapter.query(QueryRequest(scope=scope, query=query, top_k=5))
            found = [(one.handle, one.text, one.score) for one in bundle.snippets]
            told.append((found, bundle.capped))
        page = await adapter.browse(BrowseRequest(scope=scope, sort="created_at"))
        told.append(([one.handle for one in page.records], page.total))
    return told


@pytest.mark.parametrize("config", [{}, {"embedding": "static"}], ids=["words", "meaning"])
async def test_every_rank_and_score_is_that_after_the_forget(
    open_vault: Open, config: dict[str, str]
) -> None:
    if config:
        pytest.importorskip("wordllama")
    chance = random.Random(5)
    vault = await open_vault(config=config)
    handles = []
    for number in range(60):
        text = " ".join(chance.choices(WORDS, k=6) + chance.choices(RARE, k=number % 7 == 0))
        scope = SCOPE.model_copy(update={"run_id": f"r{number // 8}"}) if number % 2 else SCOPE
        fields = {"scope": scope, "pinned": number % 9 == 0}
        handles.append(await note(vault, text, **fields))
    for number, key in enumerate(("test_command", "branch", "lint", "build")):
        text = f"{key}: run the {WORDS[number]}"
        handles += [await fact(vault, text, scope=scope) for scope in (SCOPE, ANA)]
    gone = [*chance.sample(handles[:60], 9), *(handles[place] for place in (0, 60, 63, 65))]

    before = await answers(vault)
    whole = await vault.without(())
    less = await whole.without({one.provider_record_id for one in gone})
    without = await answers(less)
    assert await answers(whole) == before
    assert without != before
    for scope in (SCOPE, ANA):
        await vault.forget(ForgetRequest(scope=scope, handles=tuple(gone)))
    assert await answers(vault) == without
    assert await answers(whole) == before
    for copy in (whole, less):
        await copy.close()


async def test_a_copy_is_not_written_and_leaves_no_file(open_vault: Open, tmp_path: Path) -> None:
    vault = await open_vault()
    await note(vault, "The heron stays.")
    files = sorted(tmp_path.rglob("*"))
    copy = await vault.without(())
    assert not copy.capabilities.writable
    with pytest.raises(Unsupported, match="read-only"):
        await note(cast("VaultAdapter", copy), "Another heron.")
    await copy.close()
    assert sorted(tmp_path.rglob("*")) == files


async def test_no_server_is_sent_a_question_anew(open_vault: Open) -> None:
    server = Embeddings()
    try:
        vault = await open_vault(config={"embedding": f"openai:{server.url}/v1#m"})
        await note(vault, "The heron stays.")
        await (await vault.without(())).close()  # words alone answer as yet
        await vault.embed(10)
        calls = len(server.calls)
        with pytest.raises(Unsupported, match="would send the queries"):
            await vault.without(())
        assert len(server.calls) == calls
    finally:
        server.stop()
