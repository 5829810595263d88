"""The facts of Hermes's plugin `holographic`, beside its own store of the registry's package."""

from __future__ import annotations

import asyncio
import cmath
import re
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.hermes_facts import HermesFactsAdapter, entities_in, fact_vector
from memtui.contract import (
    BindingContext,
    Conflict,
    CorrectRequest,
    EraseRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    Record,
    Scope,
)
from memtui.service.answers import MutationAnswer
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends import one_binding
from tests.backends.hermes import FACTS, run_hermes
from tests.backends.one_binding import SCOPE, by_text

TABLES = ("facts", "entities", "fact_entities", "memory_banks")
ADDED = (
    "s.add_fact('Ana Smith reviews \"billing\".', 'project', 'review, team')\n"
    "s.add_fact('Deploys leave main.', 'project')\n"
    "s.add_fact('Ana Smith likes short answers.', 'user_pref')\n"
    "s.record_feedback(1, True)\n"
)

Hermes = Callable[[str], Any]
"""Runs lines on Hermes's open store `s`; returns what they leave in `out`."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "hermes"
    folder.mkdir()
    return folder


@pytest.fixture
def hermes(home: Path) -> Hermes:
    return lambda lines: run_hermes(home, f"{FACTS}{lines}\ns.close()")


def rows(home: Path) -> dict[str, list[Any]]:
    """Return every value of every table with its storage type, and what Hermes's search finds."""
    with closing(sqlite3.connect(home / "memory_store.db")) as lite:
        found: dict[str, list[Any]] = {}
        for table in TABLES:
            columns = [one[1] for one in lite.execute(f"PRAGMA table_info({table})")]
            wanted = ", ".join(f"{one}, typeof({one})" for one in columns)
            found[table] = lite.execute(f"SELECT {wanted} FROM {table} ORDER BY 1, 3").fetchall()
        lite.execute("INSERT INTO facts_fts(facts_fts, rank) VALUES ('integrity-check', 1)")
        return found


async def bound(service: MemoryService, caller: Caller, home: Path, **config: Any) -> None:
    path = str(home / "memory_store.db")
    await service.bindings.add(caller, "facts", "hermes-facts", {"path": path, **config})


listed = partial(by_text, key="facts")
note = partial(one_binding.note, key="facts")


def change(record: Record, **changes: Any) -> CorrectRequest:
    return CorrectRequest(
        binding_key="facts", scope=SCOPE, handle=record.handle, revision=record.revision, **changes
    )


def gone(*records: Record) -> ForgetRequest:
    handles = tuple(one.handle for one in records)
    return ForgetRequest(binding_key="facts", scope=SCOPE, handles=handles)


def angles(vector: bytes) -> list[complex]:
    return [cmath.rect(1, one) for one in struct.unpack(f"{len(vector) // 8}d", vector)]


def assert_as_hermes_derives(home: Path, hermes: Hermes) -> None:
    """Compare links and vectors with those that Hermes makes of the same texts."""
    found = rows(home)
    derived = hermes(
        "import base64\n"
        "out = [[f['fact_id'], s._extract_entities(f['content']), f['content']]\n"
        "       for f in s.list_facts(limit=9999)]"
    )
    names = {row[0]: row[2] for row in found["entities"]}
    links: dict[int, set[str]] = {}
    for fact, _, entity, _ in found["fact_entities"]:
        links.setdefault(fact, set()).add(names[entity].lower())
    for number, wanted, _ in derived:
        assert links.pop(number, set()) == {one.lower() for one in wanted}
    assert not links
    vectors = {row[0]: row[-2] for row in found["facts"]}
    assert hermes("out = s.rebuild_all_vectors()") == len(vectors)
    for row in rows(home)["facts"]:
        there, wanted = angles(vectors[row[0]]), angles(row[-2])
        assert max(abs(a - b) for a, b in zip(there, wanted, strict=True)) < 1e-9


async def test_each_change_is_as_hermes_makes_it_and_is_undone(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes(ADDED)
    await bound(service, caller, home)
    found = await listed(service, caller)
    ana = found['Ana Smith reviews "billing".']
    assert (ana.kind, ana.topic, ana.tags) == ("fact", "project", ("review", "team"))
    assert ana.metadata == {"trust_score": 0.55, "retrieval_count": 0, "helpful_count": 1}
    asked = QueryRequest(binding_key="facts", scope=SCOPE, query="who reviews billing")
    assert (await service.query(caller, asked)).snippets[0].handle == ana.handle

    async def write() -> MutationAnswer:
        wanted = note("Bo Ek calls 'uv' aka the installer.", topic="tool", tags=("py",))
        return await service.write(caller, wanted)

    async def correct() -> MutationAnswer:
        return await service.correct(caller, change(ana, text="Cy Dahl reviews it.", topic="tool"))

    async def tag() -> MutationAnswer:
        return await service.correct(caller, change(ana, tags=("a", "b")))

    async def forget() -> MutationAnswer:
        return await service.forget(caller, gone(*found.values()))

    for work in (write, correct, tag, forget):
        before = rows(home)
        done = await work()
        after = rows(home)
        assert after != before
        undone = await service.undo(caller, done.operation_id)
        assert rows(home) == before
        redone = await service.undo(caller, undone.operation_id)
        assert rows(home) == after
        await service.undo(caller, redone.operation_id)
        assert rows(home) == before
    await write()
    await correct()
    theirs = {one["content"]: one for one in hermes("out = s.list_facts()")}
    assert set(theirs) == set(await listed(service, caller))
    assert theirs["Cy Dahl reviews it."]["category"] == "tool"
    assert theirs["Bo Ek calls 'uv' aka the installer."]["tags"] == "py"
    assert theirs["Bo Ek calls 'uv' aka the installer."]["trust_score"] == 0.5
    assert [one["content"] for one in hermes("out = s.search_facts('installer')")] == [
        "Bo Ek calls 'uv' aka the installer."
    ]
    assert hermes("out = s.search_facts('billing')") == []
    assert_as_hermes_derives(home, hermes)
    assert hermes("out = s.update_fact(2, content='Deploys leave release.')")
    assert hermes("out = s.remove_fact(3)")


async def test_undo_leaves_what_hermes_has_made_of_an_entity_since(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes(ADDED)
    await bound(service, caller, home)
    before = rows(home)
    await service.write(caller, note("Bo Ek answers.", topic="project"))
    hermes("s.add_fact('Bo Ek asks.', 'project')")
    await service.undo(caller)
    after = rows(home)
    assert [row[2] for row in after["entities"]] == ["Ana Smith", "billing", "Bo Ek"]
    assert [row[2] for row in after["facts"]] == [*(r[2] for r in before["facts"]), "Bo Ek asks."]
    assert "cat:project" not in [row[2] for row in after["memory_banks"]], "its vectors changed"
    assert_as_hermes_derives(home, hermes)


async def test_what_hermes_counts_is_no_change_and_is_kept(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes(ADDED)
    await bound(service, caller, home)
    deploys = (await listed(service, caller))["Deploys leave main."]
    hermes("s.search_facts('deploys')")
    await service.correct(caller, change(deploys, text="Deploys leave release."))
    hermes("s.search_facts('deploys')")
    await service.undo(caller)
    there = (await listed(service, caller))["Deploys leave main."]
    assert there.metadata["retrieval_count"] == 2
    hermes("s.record_feedback(2, False)")
    with pytest.raises(Conflict):
        await service.correct(caller, change(there, text="Too late."))


async def test_neither_loses_what_the_other_writes_at_the_same_time(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes("")
    await bound(service, caller, home)
    theirs = asyncio.create_task(asyncio.to_thread(
        hermes, "for n in range(40): s.add_fact(f'Theirs {n} of Ana Smith.', 'project')"
    ))  # fmt: skip
    for n in range(12):
        written = await service.write(caller, note(f"Ours {n} of Bo Ek.", topic="project"))
        if n % 3 == 0:
            await service.correct(caller, change(written.records[0], text=f"Ours {n}, again."))
    await theirs
    wanted = {f"Theirs {n} of Ana Smith." for n in range(40)}
    wanted |= {f"Ours {n}, again." if n % 3 == 0 else f"Ours {n} of Bo Ek." for n in range(12)}
    assert {one["content"] for one in hermes("out = s.list_facts(limit=999)")} == wanted
    assert set(await listed(service, caller)) == wanted
    assert_as_hermes_derives(home, hermes)


async def test_a_thousand_facts(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes(
        "rebuild, s._rebuild_bank = s._rebuild_bank, lambda category: None\n"  # it takes a minute
        "for n in range(1000): s.add_fact(f'Fact {n} of Ana Smith.', ('tool', 'project')[n % 2])\n"
        "rebuild('tool'); rebuild('project')"
    )
    await bound(service, caller, home)
    before = rows(home)
    found = await listed(service, caller)
    assert len(found) == 1000
    await service.forget(
        caller, gone(*(found[f"Fact {n} of Ana Smith."] for n in range(0, 1000, 3)))
    )
    left = {one["content"] for one in hermes("out = s.list_facts(limit=9999)")}
    assert left == {f"Fact {n} of Ana Smith." for n in range(1000) if n % 3}
    await service.undo(caller)
    assert rows(home) == before


async def test_without_numpy_hermes_has_no_vectors_and_gets_none(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes(f"s._hrr_available = False\n{ADDED}")
    await bound(service, caller, home)
    await service.write(caller, note("Bo Ek answers."))
    assert {row[-2] for row in rows(home)["facts"]} == {None}


async def test_a_vector_has_the_size_of_the_others(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes
) -> None:
    hermes("s.hrr_dim = 64\ns.add_fact('Short.')")
    await bound(service, caller, home)
    await service.write(caller, note("!?"))
    assert [len(row[-2]) for row in rows(home)["facts"]] == [512, 512]
    assert rows(home)["facts"][1][-2] == fact_vector("!?", (), 64)


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        (" blank before", {}, "blanks around"),
        ("one", {"tags": ("a,b",)}, "commas"),
        ("one", {"scope": Scope(company_id="local", subject_id="ana")}, "not of user ana"),
    ],
)
async def test_what_hermes_cannot_keep_is_refused(
    service: MemoryService, caller: Caller, home: Path, hermes: Hermes,
    text: str, fields: dict[str, Any], words: str,
) -> None:  # fmt: skip
    hermes("")
    await bound(service, caller, home)
    with pytest.raises(Invalid, match=words):
        await service.write(caller, note(text, **fields))
    assert rows(home)["facts"] == []


async def test_a_database_by_url_is_refused_and_erasing_names_what_stays(
    home: Path, hermes: Hermes
) -> None:
    hermes("")
    context = BindingContext(
        company_id="local", binding_key="facts", data_dir=home, config={"url": "postgresql://x/y"}
    )
    with pytest.raises(Invalid, match="SQLite"):
        await HermesFactsAdapter.open(context)
    config = {"path": str(home / "memory_store.db"), "project_id": "web"}
    adapter = await HermesFactsAdapter.open(context.model_copy(update={"config": config}))
    reply = await adapter.erase(EraseRequest(scope=SCOPE))
    assert any("entities" in one for one in reply.beyond)
    record = await adapter.write(note("x", scope=Scope(company_id="local", project_id="web")))
    assert record.records[0].provider_record_id == "1"
    await adapter.close()


_ALSO = re.compile(r"(\w+(?:\s+\w+)*)\s+(?:aka|also known as)\s+(\w+(?:\s+\w+)*)", re.IGNORECASE)


@given(st.lists(st.sampled_from(
    ["aka", "AKA", "also known as", "also", "known", "as", "bo", "Zü", " ", "  ", "\n", ".", "aka2"]
), max_size=12).map("".join))  # fmt: skip
def test_other_names_are_found_as_by_the_expression_of_hermes(text: str) -> None:
    found = {name.lower() for one in _ALSO.finditer(text) for name in one.groups()}
    assert {one.lower() for one in entities_in(text)} == found


def test_a_long_text_is_searched_for_names_at_once() -> None:
    assert entities_in("word " * 20_000 + "aka " + "thing " * 20_000) != []
    assert entities_in("word " * 40_000) == []
