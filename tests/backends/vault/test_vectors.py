"""The vectors beside the index: their model changed, killed half way, deleted, and erased."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.backends.vault.vectors import Scores, Vectors
from memtui.contract import (
    Embedding,
    EraseRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    Scope,
    Unavailable,
)
from tests.loopback import Embeddings

from .conftest import COMPANY, SCOPE, Open, note, put

STATIC = {"embedding": "static"}


@pytest.fixture
def server() -> Iterator[Embeddings]:
    running = Embeddings()
    yield running
    running.stop()


def vectors_of(adapter: VaultAdapter) -> Vectors:
    assert adapter._vectors is not None
    return adapter._vectors


async def ask(adapter: VaultAdapter, query: str) -> Scores:
    scores = await asyncio.to_thread(vectors_of(adapter).scores, query)
    assert scores is not None
    return scores


async def embed(adapter: VaultAdapter, most: int) -> Embedding:
    return (await adapter.embed(most)).embedding


async def nearest(adapter: VaultAdapter, query: str) -> str:
    """Return the text that lies nearest to a query."""
    scores = await ask(adapter, query)
    [(best, cosine)] = scores.outstanding(0, 1).items()
    assert cosine == scores.values.max()
    return vectors_of(adapter)._said([best])[best]


def fill(root: Path, count: int = 200) -> None:
    for number in range(count):
        put(root, f"projects/web/notes/{number}.md", f"word{number} and nothing else")


async def test_only_a_model_that_reads_no_sentences_lifts_neighbours(
    open_vault: Open, server: Embeddings
) -> None:
    request = QueryRequest(scope=SCOPE, query="quokka leaves")
    for embedding, is_lifted in (("static", True), (server.embedding, False)):
        adapter = await open_vault(config={"embedding": embedding})
        if not is_lifted:
            await embed(adapter, 100)
        else:
            for text in ("The quokka came by.", "It ate leaves."):
                await note(adapter, text, scope=SCOPE.model_copy(update={"run_id": "r"}))
        stages = {stage.name for stage in (await adapter.explain(request)).stages}
        assert ("neighbours" in stages) is is_lifted
        await adapter.close()


async def test_a_search_by_meaning_sees_what_was_just_written(open_vault: Open, root: Path) -> None:
    adapter = await open_vault(config=STATIC)
    assert adapter.capabilities.semantic
    assert await asyncio.to_thread(vectors_of(adapter).scores, "anything") is None
    await note(adapter, "She prefers short answers.")
    await note(adapter, "The server runs on port 80.")
    assert "short answers" in await nearest(adapter, "likes brief replies")
    other = await open_vault(config=STATIC)
    handle = await note(adapter, "Kittens sleep all day.")
    assert "Kittens" in await nearest(other, "cats nap")
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,)))
    await ask(other, "cats nap")
    assert vectors_of(other).progress().texts == 2


async def test_a_question_about_other_things_means_nothing(open_vault: Open, root: Path) -> None:
    dishes = ("soup", "bread", "pasta", "salad", "curry", "stew", "cake", "omelette", "pie", "rice")
    added = ("lemon", "garlic", "butter", "ginger", "basil", "onion", "cheese", "pepper", "honey",
             "mushrooms", "cream", "spinach")  # fmt: skip
    for number, (dish, more) in enumerate(product(dishes, added)):
        put(root, f"projects/web/notes/{number}.md", f"Her {dish} is made with {more}.")
    adapter = await open_vault(config=STATIC)
    scope = Scope(company_id="acme", project_id="web")
    for query, means in (("citrus dessert", True), ("terraform state lock timeout", False)):
        assert bool((await ask(adapter, query)).outstanding(2, 10)) is means
        found = await adapter.query(QueryRequest(scope=scope, query=query))
        assert bool(found.snippets) is means


async def test_another_model_answers_when_it_has_seen_all(
    open_vault: Open, root: Path, server: Embeddings
) -> None:
    fill(root)
    adapter = await open_vault(config=STATIC)
    assert (await nearest(adapter, "word7")).startswith("7")
    await adapter.close()
    adapter = await open_vault(config={"embedding": server.embedding})
    assert vectors_of(adapter).progress().serving == "static"
    progress = await embed(adapter, 100)
    assert (progress.embedded, progress.texts, progress.is_done) == (100, 200, False)
    assert (await ask(adapter, "word7")).model.name == "static"
    progress = await embed(adapter, 100)
    assert (progress.is_done, progress.dimensions) == (True, 256)
    scores = await ask(adapter, "word7")
    assert scores.model.name == server.embedding
    assert len(scores.usage) == 1
    assert len(server.texts) == 201
    assert vectors_of(adapter).embed(100) == ()


BUILDER = """
import asyncio, sys
from pathlib import Path
from memtui.backends.vault import VaultAdapter
from memtui.contract import BindingContext

async def main(root, data, embedding):
    adapter = await VaultAdapter.open(BindingContext(
        company_id="acme", binding_key="v", data_dir=Path(data),
        config={"path": root, "embedding": embedding}))
    for _ in range(3):
        await asyncio.to_thread(adapter._vectors.embed, 64)
        print("embedded", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_build_goes_on_where_it_was(
    open_vault: Open, root: Path, tmp_path: Path, server: Embeddings
) -> None:
    fill(root)
    command = [sys.executable, "-c", BUILDER, str(root), str(tmp_path / "data"), server.embedding]
    builder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    assert builder.stdout.readline()
    server.gate.clear()
    adapter = await open_vault(config={"embedding": server.embedding})
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    # What a kill in the middle of a write leaves: a row without its digest, and half a digest.
    [shelf] = [one for one in (tmp_path / "data/index/vectors").iterdir() if one.is_dir()]
    for name in ("rows", "keys"):
        with (shelf / name).open("ab") as file:
            file.write(b"\1" * 5)
    server.gate.set()
    already = vectors_of(adapter).progress().embedded
    assert already >= 64
    sent = len(server.texts)
    assert (await embed(adapter, 1000)).is_done
    assert len(server.texts) - sent <= 200 - already + 64
    assert (await nearest(adapter, "199: word199 and nothing else")).startswith("199")


def lose(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_rows(folder: Path) -> None:
    (folder / "1/rows").unlink()


def cut_rows(folder: Path) -> None:
    os.truncate(folder / "1/rows", 2_000)


@pytest.mark.parametrize("harm", [lose, lose_rows, cut_rows])
async def test_lost_vectors_are_made_again(
    open_vault: Open, root: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    fill(root, 3)
    adapter = await open_vault(config=STATIC)
    assert (await nearest(adapter, "word2")).startswith("2")
    harm(tmp_path / "data/index/vectors")
    for one in (adapter, await open_vault(config=STATIC)):
        assert (await nearest(one, "word2")).startswith("2")


async def test_another_model_of_the_same_name_is_noticed(
    open_vault: Open, root: Path, server: Embeddings
) -> None:
    fill(root, 3)
    adapter = await open_vault(config={"embedding": server.embedding})
    assert (await embed(adapter, 10)).is_done
    server.dimensions = 100
    other = await open_vault(config={"embedding": server.embedding})
    with pytest.raises(Invalid, match="embedded again"):
        await ask(other, "word1")
    assert not (await embed(other, 0)).is_done
    assert (await embed(other, 10)).dimensions == 100
    server.dimensions = 200
    put(root, "new.md", "Something else.")
    third = await open_vault(config={"embedding": server.embedding})
    found = await embed(third, 10)
    assert (found.is_done, found.dimensions, found.texts) == (True, 200, 4)
    assert (await nearest(third, "new: Something else.")).startswith("new")


async def test_a_server_that_is_away_is_said_and_a_refused_text_holds_up_no_other(
    open_vault: Open, root: Path, server: Embeddings
) -> None:
    fill(root, 3)
    adapter = await open_vault(config={"embedding": server.embedding})
    server.refusals = [400, 400, 400]  # all together, the first alone, and its beginning
    assert (await embed(adapter, 10)).is_done
    scores = await ask(adapter, "and nothing else")
    assert sorted(scores.values > 0.1) == [False, True, True]
    server.refusals = [503]
    asked = len(server.calls)
    for _ in range(2):  # once it is asked, and then left alone for a while
        with pytest.raises(Unavailable, match="503"):
            await ask(adapter, "word1")
    assert len(server.calls) == asked + 1


async def test_what_is_erased_leaves_no_vector(
    open_vault: Open, root: Path, tmp_path: Path
) -> None:
    adapter = await open_vault(config=STATIC)
    handle = await note(adapter, "Her number is secret.")
    await note(adapter, "The sky is blue.")
    assert "sky" in await nearest(adapter, "sky")
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(handle,)))
    await adapter.erase(EraseRequest(scope=COMPANY, apply=True))
    [rows] = (tmp_path / "data/index/vectors").glob("*/rows")
    assert rows.stat().st_size == 256 * 4
    assert "sky" in await nearest(adapter, "sky")
    await adapter.close()
    bare = await open_vault()
    await bare.erase(EraseRequest(scope=COMPANY, apply=True))
    assert not (tmp_path / "data/index/vectors").exists()
