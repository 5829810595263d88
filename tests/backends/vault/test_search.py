from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.vault import search
from memtui.contract import BrowseRequest, Filter, Invalid, QueryRequest, Scope
from memtui.provider_kit.search import ranked
from memtui.text_analysis import take_apart
from tests.test_text_analysis import SAME

from .conftest import COMPANY, SCOPE, Open, ask, fact, note, put


def scope(**ids: str) -> Scope:
    return Scope(company_id="acme", **ids)


@given(st.text())
def test_any_query_is_taken_apart(query: str) -> None:
    words = take_apart(query)
    assert len(words.kept) <= 64
    assert not any(set(word) & set(' "_*-') for word in words.terms)


def test_stopwords_are_dropped_unless_there_is_nothing_else() -> None:
    assert take_apart("What is the deploy branch?").kept == ("deploy", "branch")
    assert take_apart("to be or not to be").kept == ("to", "be", "or", "not")


async def test_a_key_is_first_and_words_are_stemmed(open_vault: Open) -> None:
    adapter = await open_vault()
    await note(adapter, "deploy branch deploy branch deploys branches")
    await fact(adapter, "deploy_branch: release", topic="Project")
    found = await ask(adapter, "what is the deploy branch")
    assert found[0] == "deploy_branch: release"
    assert len(found) == 2
    assert await ask(adapter, "deploy_branch") == found
    assert await ask(adapter, "deploying") == found[1:] + found[:1]


async def test_spellings_and_scripts_as_everywhere_else(open_vault: Open) -> None:
    adapter = await open_vault()
    texts = [f"about {one} here" for one, _ in SAME]
    texts += ["Docker runs on host A", "今天部署服务到生产环境", "今日は成語しりとりをした"]
    for text in texts:
        await note(adapter, text)
    records = (await adapter.browse(BrowseRequest(scope=SCOPE, limit=100))).records
    asked = [other for _, other in SAME]
    asked += ["Docker 部署", "生产环境部署", "服务部署在哪里？", "境", "成語"]
    for query in asked:
        found = await ask(adapter, query, top_k=50)
        assert found, query
        assert set(found) == {one.text for one in ranked(records, query)}, query
    for one, other in SAME:
        page = await adapter.browse(BrowseRequest(scope=SCOPE, filter=Filter(text=other)))
        assert f"about {one} here" in [record.text for record in page.records]
    assert set(await ask(adapter, "Docker 部署")) == {texts[-3], texts[-2]}


async def test_scopes_are_weighed(open_vault: Open) -> None:
    adapter = await open_vault()
    places = {
        "project": scope(project_id="web"),
        "agent": scope(agent_id="coding"),
        "orchestrator": scope(agent_id="orchestrator"),
        "system": scope(),
        "other": scope(project_id="other"),
        "user": scope(subject_id="ana"),
    }
    for name, where in places.items():
        await note(adapter, f"Tapirs eat leaves, says {name}.", scope=where)

    async def names(asking: Scope) -> list[str]:
        found = await ask(adapter, "tapirs leaves", scope=asking)
        return [text.removesuffix(".").rpartition(" ")[2] for text in found]

    assert await names(scope(project_id="web", agent_id="coding")) == [
        "project", "agent", "orchestrator", "system",
    ]  # fmt: skip
    assert await names(scope(project_id="web", run_id="r")) == ["project", "orchestrator", "system"]
    assert set(await names(scope(project_id="web", subject_id="ana"))) >= {"user", "project"}
    assert await names(scope(subject_id="ana")) == ["user"]
    assert await names(scope(agent_id="coding")) == ["agent", "orchestrator", "system"]
    assert set(await names(COMPANY)) == set(places)
    request = QueryRequest(
        scope=scope(project_id="web", agent_id="coding"), query="tapirs leaves", top_k=2
    )
    bundle = await adapter.query(request)
    assert bundle.capped
    scores = [snippet.score for snippet in bundle.snippets]
    assert scores[0] == 1.0
    assert scores[1] == pytest.approx(0.7, abs=0.05)


async def test_a_topic_narrows_unless_too_little_is_left(open_vault: Open) -> None:
    adapter = await open_vault()
    for number in range(3):
        await note(adapter, f"Otter {number}.", topic="zoo")
    await note(adapter, "Otter without.")
    await note(adapter, "Otter elsewhere.", topic="sea")
    found = await ask(adapter, "otter", topic="zoo")
    assert len(found) == 4
    assert "Otter elsewhere." not in found
    assert len(await ask(adapter, "otter", topic="sea")) == 5
    explained = await adapter.explain(QueryRequest(scope=SCOPE, query="otter", topic="sea"))
    assert explained.stages[-1].name == "topic"


async def test_pins_tags_titles_and_subjects_count(open_vault: Open) -> None:
    adapter = await open_vault()
    await note(adapter, "Plain wombat text here.")
    await note(adapter, "Plain wombat text here.", pinned=True, tags=("burrow",))
    request = QueryRequest(scope=SCOPE, query="wombat")
    best = (await adapter.query(request)).snippets[0]
    assert best.pinned
    assert await ask(adapter, "burrow") == ["Plain wombat text here."]
    mine = SCOPE.model_copy(update={"subject_id": "Caroline"})
    await note(adapter, "Went to the museum.", scope=mine, title="Saturday")
    assert await ask(adapter, "caroline") == ["Went to the museum."]
    assert await ask(adapter, "saturday") == ["Went to the museum."]


@pytest.mark.parametrize(
    ("query", "is_found"),
    [("日本", True), ("支店", True), ("犬", False), ("branch東京支店", True), ("ÜBERGANG", True),
     ("uberg", True), ("***", False), ("(c)", True)],
)  # fmt: skip
async def test_other_scripts_and_signs(open_vault: Open, query: str, is_found: bool) -> None:
    adapter = await open_vault()
    await note(adapter, "東京の日本支店 (C) übergang")
    assert bool(await ask(adapter, query)) is is_found


async def test_metadata_of_hand_written_notes_can_be_asked_for(open_vault: Open) -> None:
    adapter = await open_vault()
    await note(adapter, "Heron one.", metadata={"flag": True, "list": [1, {"a": None}]})
    await note(adapter, "Heron two.", metadata={"flag": 1}, tags=("t",), kind="insight")
    assert await ask(adapter, "heron", metadata_filter={"flag": True}) == ["Heron one."]
    assert await ask(adapter, "heron", metadata_filter={"list": [1, {"a": None}]}) == ["Heron one."]
    assert await ask(adapter, "heron", metadata_filter={"tag": "t"}) == ["Heron two."]
    assert await ask(adapter, "heron", metadata_filter={"kind": "insight"}) == ["Heron two."]
    assert await ask(adapter, "heron", metadata_filter={"flag": None}) == []


async def test_notes_of_later_are_not_of_the_past(open_vault: Open) -> None:
    adapter = await open_vault()
    await note(adapter, "Ibex early.", created_at=datetime(2025, 1, 1, tzinfo=UTC))
    await note(adapter, "Ibex late.", created_at=datetime(2026, 1, 1, tzinfo=UTC))
    moment = datetime(2025, 6, 1, tzinfo=UTC)
    assert await ask(adapter, "ibex", as_of=moment) == ["Ibex early."]


async def test_a_date_in_a_query_finds_what_is_of_that_time(open_vault: Open) -> None:
    adapter = await open_vault()
    days = {"first": (2025, 6, 16), "second": (2025, 6, 17), "third": (2024, 6, 16)}
    for name, day in days.items():
        await note(adapter, f"Tapir, {name}.", created_at=datetime(*day, tzinfo=UTC))
    assert await ask(adapter, "news of 16 June 2025") == ["Tapir, first."]
    assert set(await ask(adapter, "in June")) == {f"Tapir, {name}." for name in days}
    assert (await ask(adapter, "a tapir on June 17th, 2025"))[0] == "Tapir, second."
    assert set(await ask(adapter, "2025-06")) == {"Tapir, first.", "Tapir, second."}
    assert await ask(adapter, "who may see it") == []


async def test_beginnings_of_words_are_sought_only_in_what_a_person_reads(open_vault: Open) -> None:
    adapter = await open_vault()
    await note(adapter, "The parrot is silent.")
    assert await ask(adapter, "parr") == ["The parrot is silent."]
    assert await ask(adapter, "d2") == []
    assert await ask(adapter, "4 5 6 7 8 9") == []


async def test_namespaces_and_sorting(open_vault: Open) -> None:
    adapter = await open_vault()
    await note(adapter, "One.")
    await fact(adapter, "two: 2")
    await note(adapter, "Three.", scope=scope(subject_id="ana"))
    await note(adapter, "Four.", scope=COMPANY)
    found = {name.name: name.records for name in await adapter.namespaces()}
    assert found == {"project:web": 2, "user:ana": 1, "system": 1}
    page = await adapter.browse(BrowseRequest(scope=COMPANY, sort="kind", limit=2))
    assert (page.total, [record.kind for record in page.records]) == (4, ["fact", "note"])
    with pytest.raises(Invalid):
        await adapter.browse(BrowseRequest(scope=COMPANY, sort="score"))
    with pytest.raises(Invalid):
        await adapter.browse(BrowseRequest(scope=COMPANY, sort="-kind", cursor=page.next_cursor))


async def test_what_has_expired_is_counted_nowhere(open_vault: Open) -> None:
    times = [datetime(2026, 5, 1, tzinfo=UTC)]
    adapter = await open_vault(now=lambda: times[-1])
    await note(adapter, "Stays.")
    await fact(adapter, "goes: soon", expires_at=times[0] + timedelta(hours=1))
    assert (await adapter.health()).records == 2
    times.append(times[0] + timedelta(days=1))
    assert (await adapter.browse(BrowseRequest(scope=COMPANY))).total == 1
    assert (await adapter.health()).records == 1
    assert [one.records for one in await adapter.namespaces()] == [1]


async def test_file_names_of_hand_written_notes_are_found(open_vault: Open, root: Path) -> None:
    adapter = await open_vault()
    put(root, "Garden plan.md", "Tomatoes.")
    assert await ask(adapter, "garden", scope=COMPANY) == ["Tomatoes."]


async def test_what_stands_next_to_a_hit_in_its_run_or_file_is_lifted(open_vault: Open) -> None:
    adapter = await open_vault()
    for run, before in (("a", "Nothing of note."), ("b", "The quokka came by.")):
        for text in (before, "It ate leaves.", "Rain."):
            await note(adapter, text, scope=SCOPE.model_copy(update={"run_id": run}))
    found = (await adapter.query(QueryRequest(scope=SCOPE, query="quokka leaves"))).snippets
    assert [(one.text, one.scope.run_id) for one in found] == [
        ("The quokka came by.", "b"), ("It ate leaves.", "b"), ("It ate leaves.", "a"),
    ]  # fmt: skip
    explained = await adapter.explain(QueryRequest(scope=SCOPE, query="quokka leaves"))
    stages = {stage.name: stage.scores for stage in explained.stages}
    assert set(stages["neighbours"]) == {one.handle.provider_record_id for one in found[:2]}
    for text in ("falcon: nests on the roof", "roof_access: by the ladder", "roof: flat"):
        await fact(adapter, text)
    assert (await ask(adapter, "falcon roof"))[:2] == [
        "falcon: nests on the roof", "roof_access: by the ladder",
    ]  # fmt: skip


async def test_a_condition_looks_beyond_the_best_matches(open_vault: Open, root: Path) -> None:
    for number in range(300):
        put(root, f"projects/web/memory/{number}.md", "Gecko " * 3)
        put(root, f"projects/other/memory/{number}.md", "Gecko " * 3)
    put(root, "projects/web/memory/long.md", "---\nflag: 1\n---\n\nGecko. " + "Other words. " * 50)
    adapter = await open_vault()
    found = await ask(adapter, "gecko", metadata_filter={"flag": 1})
    assert [text[:6] for text in found] == ["Gecko."]
    assert len(await ask(adapter, "gecko", scope=COMPANY, top_k=700)) == 601


async def test_what_means_the_same_is_found_without_a_word_of_it(open_vault: Open) -> None:
    adapter = await open_vault(config={"embedding": "static"})
    texts = ["The automobile needs new tyres.", "Bread is baked at dawn.", "The choir sings."]
    for text in texts:
        await note(adapter, text)
    assert await ask(adapter, "car wheels") == texts[:1]
    explained = await adapter.explain(QueryRequest(scope=SCOPE, query="car wheels"))
    stages = {stage.name: stage.scores for stage in explained.stages}
    assert stages["words"] == {}
    assert len(stages["meaning"]) == len(stages["fused"]) == 1
    assert await ask(adapter, "car wheels", scope=scope(project_id="other")) == []


@pytest.mark.parametrize("config", [{}, {"embedding": "static"}], ids=["words", "meaning"])
@pytest.mark.parametrize("seed", range(2))
async def test_looking_at_a_few_finds_what_looking_at_all_does(
    open_vault: Open, root: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], seed: int
) -> None:
    if config:
        pytest.importorskip("wordllama")
    monkeypatch.setattr(search, "_FOUND", 16)
    monkeypatch.setattr(search, "_LIFTING", 4)
    chance = Random(seed)
    words = ["heron", "nest", "river", "bread", "choir", "tyre", "lamp", "stone"]
    weights = [chance.random() ** 2 + 0.02 for _ in words]
    for number in range(160):
        area = chance.choice(("projects/web", "projects/web", "company"))
        front = [f"run_id: r{number // 5}"] if chance.random() < 0.6 else []
        front += ["pinned: true"] if chance.random() < 0.1 else []
        body = " ".join(chance.choices(words, weights, k=chance.randrange(2, 14)))
        text = "\n".join(("---", *front, "---", "", body))
        put(root, f"{area}/memory/2025-01-{number % 28 + 1:02}-{number}.md", text)
    put(root, "projects/web/facts.md", "- nest: by the river\n- lamp: in the choir\n")
    adapter = await open_vault(config=config)
    asked = [
        QueryRequest(scope=scope, query=" ".join(chance.sample(words, k=size)), top_k=top_k)
        for scope in (SCOPE, COMPANY)
        for size in (1, 1, 2, 3)
        for top_k in (1, 3, 8)
    ]
    few = [await adapter.query(one) for one in asked]
    with monkeypatch.context() as patch:
        patch.setattr(search._Query, "_holds", lambda *_: False)
        every = [await adapter.query(one) for one in asked]
    assert few == every


async def test_the_intent_orders_and_cuts_what_is_found(open_vault: Open) -> None:
    minutes = count()
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    adapter = await open_vault(now=lambda: begun + timedelta(minutes=next(minutes)))
    texts: dict[str, dict[str, Any]] = {
        "wombat wombat wombat": {},
        "wombat by topic": {"topic": "Rules"},
        "wombat by tag": {"tags": ("Rule",)},
        "a pinned wombat among a great many other words of no use at all": {"pinned": True},
        "the guidance on a wombat": {"kind": "guidance", "scope": scope(agent_id="coding")},
        "one more wombat, the last of all that were written down here": {},
    }
    for text, fields in texts.items():
        await note(adapter, text, **fields)
    asking = {"scope": scope(project_id="web", agent_id="coding")}

    async def found(intent: str, **fields: Any) -> list[str]:
        return await ask(adapter, "wombat", intent=intent, **asking, **fields)

    answer, newest = await found("answer"), list(texts)[::-1]
    assert sorted(answer) == sorted(texts)
    assert answer != newest
    assert await found("browse") == newest
    assert await found("browse", top_k=2) == newest[:2]
    preamble = await found("agent_preamble")
    rules = {"wombat by topic", "wombat by tag", "the guidance on a wombat"}
    first = [newest[2], *(text for text in answer if text in rules)]
    assert preamble == first + [text for text in answer if text not in first]
    assert await found("agent_preamble", top_k=1) == newest[2:3]

    assert await found("agent_preamble", max_tokens=16) == preamble[:1]
    assert await found("answer", max_tokens=16) == answer
    await note(adapter, f"wombat {'x ' * 1_000}")
    assert await found("agent_preamble") == preamble
    assert len(await found("agent_preamble", max_tokens=None)) == len(texts) + 1
