from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.facts import FactsAdapter, check_text
from memtui.contract import (
    CorrectRequest,
    Invalid,
    QueryIntent,
    QueryRequest,
    SourceKind,
    SourceRef,
    WriteMode,
)
from tests.backends.facts.kit import ANA, APOLLO, BOTH, COMPANY, EVERYONE, add, context, read


@pytest.fixture
async def facts(tmp_path: Path) -> AsyncIterator[FactsAdapter]:
    adapter = await FactsAdapter.open(context(tmp_path))
    yield adapter
    await adapter.close()


@given(st.text(max_size=12))
def test_what_is_accepted_is_one_storable_line(text: str) -> None:
    try:
        check_text(text, 10)
    except Invalid:
        return
    assert len(text) <= 10
    assert text.strip()
    assert text.splitlines() == [text]
    assert "\0" not in text
    text.encode()


async def test_limit_counts_code_points(facts: FactsAdapter) -> None:
    for text in ("x" * 200, "\U0001f600" * 200, "e\u0301" * 100):
        assert (await read(facts, await add(facts, text))).text == text
    for text in ("x" * 201, "\U0001f600" * 201, "e\u0301" * 101):
        with pytest.raises(Invalid, match=f"200 characters at most, and this one has {len(text)}"):
            await add(facts, text)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\u2028b", "a\0b", "a\tb", "\x1b[31m"])
async def test_control_characters_are_refused(facts: FactsAdapter, text: str) -> None:
    with pytest.raises(Invalid):
        await add(facts, text)
    handle = await add(facts, "fine")
    for wrong in (text, "\ud800"):
        with pytest.raises(Invalid):
            await facts.correct(CorrectRequest(scope=ANA, handle=handle, text=wrong))
    assert (await read(facts, handle)).text == "fine"


async def test_limits_are_settings(tmp_path: Path) -> None:
    facts = await FactsAdapter.open(context(tmp_path, max_chars=5, max_facts=2))
    with pytest.raises(Invalid, match="5 characters"):
        await add(facts, "123456")
    await add(facts, "one")
    await add(facts, "two")
    with pytest.raises(Invalid, match="user ana has 2 facts, and 2 is the limit"):
        await add(facts, "three")
    await add(facts, "other", APOLLO)
    await facts.close()


async def test_fifty_is_the_limit_for_two_writers_at_once(tmp_path: Path) -> None:
    one = await FactsAdapter.open(context(tmp_path))
    two = await FactsAdapter.open(context(tmp_path))
    for number in range(45):
        await add(one, f"fact {number}")
    tries = [add(adapter, f"late {n}") for n in range(10) for adapter in (one, two)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    refused = [o for o in outcomes if isinstance(o, Invalid)]
    assert len(refused) == 15
    page = await one.query(QueryRequest(scope=ANA, query="", top_k=1000))
    assert len(page.snippets) == 50
    await one.close()
    await two.close()


async def test_who_made_it(facts: FactsAdapter) -> None:
    run = SourceRef(kind=SourceKind.RUN, company_id=COMPANY, run_id="r-1")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"created_by": "user:ana"}, "user"),
        ({}, "user"),
        ({"created_by": "agent:coder"}, "ai"),
        ({"created_by": "user:ana", "source": run}, "ai"),
    ]
    for fields, maker in cases:
        handle = await add(facts, "A fact.", APOLLO, metadata={"fact_source": "user"}, **fields)
        record = await read(facts, handle)
        assert record.metadata == {"fact_source": maker}
        assert record.created_by == fields.get("created_by")


async def test_the_project_wins_and_somebody_is_needed(facts: FactsAdapter) -> None:
    assert (await read(facts, await add(facts, "Both.", BOTH))).scope.project_id == "apollo"
    assert (await read(facts, await add(facts, "Ana's."))).scope.subject_id == "ana"
    with pytest.raises(Invalid, match="about a user or a project"):
        await add(facts, "Nobody's.", EVERYONE)


async def test_a_prompt_gets_every_fact_in_order(facts: FactsAdapter) -> None:
    texts = [f"fact {number}" for number in range(12)]
    for number, text in enumerate(texts):
        await add(facts, text, ANA if number % 2 else APOLLO)
    await add(facts, "not theirs", ANA.model_copy(update={"subject_id": "ben"}))
    asked = QueryRequest(
        scope=BOTH, query="nothing of this", top_k=50, intent=QueryIntent.AGENT_PREAMBLE
    )
    bundle = await facts.query(asked)
    assert [snippet.text for snippet in bundle.snippets] == texts
    assert not bundle.capped
    assert bundle.usage[0].cost_usd == 0
    few = await facts.query(asked.model_copy(update={"top_k": 5}))
    assert [s.text for s in few.snippets] == texts[:5]
    assert few.capped
    nobody = await facts.query(asked.model_copy(update={"scope": EVERYONE}))
    assert nobody.snippets == ()


async def test_scopes_are_apart(facts: FactsAdapter) -> None:
    mine = await add(facts, "Ana likes tea.")
    ours = await add(facts, "Apollo uses Go.", APOLLO)
    assert await facts.get(mine, APOLLO) is None
    assert await facts.get(ours, ANA) is None
    assert await facts.get(mine, BOTH)
    assert await facts.get(ours, BOTH)
    names = {n.name: n.records for n in await facts.namespaces()}
    assert names == {"user:ana": 1, "drive:apollo": 1}


async def test_an_id_is_never_in_both_tables(facts: FactsAdapter) -> None:
    await add(facts, "First.", record_id="same")
    for mode in (WriteMode.APPEND, WriteMode.UPSERT):
        with pytest.raises(Exception, match="A fact same exists"):
            await add(facts, "Second.", APOLLO, record_id="same", mode=mode)
    with pytest.raises(Invalid, match="does not begin"):
        await add(facts, "Third.", record_id="drive:same")


async def test_a_url_with_a_password_is_a_secret(tmp_path: Path) -> None:
    for url in ("postgresql://a:b@h/n", "postgresql://h/n?password=b"):
        with pytest.raises(Invalid, match="url_secret") as caught:
            await FactsAdapter.open(context(tmp_path, url=url))
        assert ":b@" not in str(caught.value)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"url_secret": "NONE"}, "no secret NONE"),
        (
            {
                "url": "sqlite:///x",
            },
            "use postgresql",
        ),
        ({"url": "nonsense"}, "not a database URL"),
        ({"url": "postgresql://h/n", "url_secret": "S"}, "not both"),
        ({"max_facts": 0}, "max_facts"),
        ({"nope": 1}, "nope"),
    )
    for config, words in cases:
        with pytest.raises(Invalid, match=words):
            await FactsAdapter.open(context(tmp_path, **config))


async def test_the_file_is_private(facts: FactsAdapter, tmp_path: Path) -> None:
    await add(facts, "A fact.")
    assert (tmp_path / "facts.sqlite3").stat().st_mode & 0o777 == 0o600


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "facts.sqlite3").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="Cannot use"):
        await FactsAdapter.open(context(tmp_path))
    assert not (tmp_path / "elsewhere").exists()
