"""The limit met exactly, two rows of one id, and what a fact leaves behind."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.backends.facts import FactsAdapter
from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    Invalid,
    QueryRequest,
    RecordHandle,
    Scope,
    WriteMode,
)
from tests.backends.facts.kit import ANA, APOLLO, COMPANY, EVERYONE, add, context, dump, read

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BO = Scope(company_id=COMPANY, subject_id="bo")


async def test_each_owner_has_room_for_as_many_as_the_limit_says(tmp_path: Path) -> None:
    facts = await FactsAdapter.open(context(tmp_path, max_facts=2))
    kept = {
        (owner, number): await add(facts, f"fact {number}", scope)
        for owner, scope in (("ana", ANA), ("bo", BO), ("apollo", APOLLO))
        for number in (1, 2)
    }
    for scope in (ANA, BO, APOLLO):
        with pytest.raises(Invalid, match="has 2 facts, and 2 is the limit"):
            await add(facts, "fact 3", scope)
    given = kept["ana", 2].provider_record_id
    await add(facts, "fact 2, again", record_id=given, mode=WriteMode.UPSERT)
    first = kept["ana", 1]
    taken = await facts.snapshot([first], ANA)
    await facts.forget(ForgetRequest(scope=ANA, handles=(first,)))
    await add(facts, "fact 3")
    with pytest.raises(Invalid, match="is the limit"):
        await add(facts, "fact 4")
    await facts.restore(taken, ANA)
    assert (await read(facts, first)).text == "fact 1"
    await facts.close()


async def test_two_rows_of_one_id_keep_their_own(tmp_path: Path) -> None:
    facts = await FactsAdapter.open(context(tmp_path))
    await add(facts, "of ana", record_id="x", tags=("ana",), pinned=True)
    rows = sqlite3.connect(tmp_path / "facts.sqlite3")
    rows.execute("INSERT INTO drive_memories (id, driveId, fact, createdAt) VALUES "
                 "('x', 'apollo', 'of apollo', '2026-01-01 00:00:00')")  # fmt: skip
    rows.commit()
    rows.close()
    both = {name: RecordHandle(provider_key="facts", provider_record_id=name)
            for name in ("x", "drive:x")}  # fmt: skip
    before = await read(facts, both["x"])
    request = CorrectRequest(scope=EVERYONE, handle=both["drive:x"], tags=("d",), topic="ops")
    await facts.correct(request)
    assert await read(facts, both["x"]) == before
    changed = await read(facts, both["drive:x"])
    assert (changed.text, changed.tags, changed.topic) == ("of apollo", ("d",), "ops")
    assert changed.scope.project_id == "apollo"
    await facts.correct(CorrectRequest(scope=EVERYONE, handle=both["x"], tags=("e",)))
    assert await read(facts, both["drive:x"]) == changed
    taken = await facts.snapshot([both["drive:x"]], EVERYONE)
    await facts.forget(ForgetRequest(scope=EVERYONE, handles=(both["drive:x"],)))
    assert (await read(facts, both["x"])).tags == ("e",)
    assert [row[:2] for row in dump(tmp_path)["memtui_fact_details"]] == [("user", "x")]
    await facts.restore(taken, EVERYONE)
    assert await read(facts, both["drive:x"]) == changed
    await facts.close()


async def test_of_what_is_forgotten_no_row_stays(tmp_path: Path) -> None:
    facts = await FactsAdapter.open(context(tmp_path))
    handles = [await add(facts, f"fact {n}", scope, tags=(f"t{n}",), topic="ops")
               for n, scope in enumerate((ANA, APOLLO, ANA, APOLLO))]  # fmt: skip
    await facts.forget(ForgetRequest(scope=EVERYONE, handles=tuple(handles[:2])))
    left = {one.provider_record_id for one in handles[2:]}
    tables = dump(tmp_path)
    assert {name: len(rows) for name, rows in tables.items()} == {
        "user_memories": 1, "drive_memories": 1, "memtui_fact_details": 2
    }  # fmt: skip
    assert {row[1] for row in tables["memtui_fact_details"]} == left
    less = await facts.without([handles[2].provider_record_id])
    found = await less.query(QueryRequest(scope=EVERYONE, query=""))
    assert [one.text for one in found.snippets] == ["fact 3"]
    assert found.snippets[0].tags == ("t3",)
    await less.close()
    await facts.close()


@pytest.mark.parametrize(
    ("extra", "tags"),
    [
        ({"scope": {"company_id": "other", "subject_id": "bo", "agent_id": 5}}, "\n[1, 2]\n"),
        ({"scope": ["a"], "created_by": {"a": 1}, "source": 3, "metadata": "m"}, "\nfive\n[]\n"),
        ([], '\n"a"\n5\n["t","T"]\n'),
    ],
)
async def test_details_that_another_program_changed_do_not_hide_the_fact(
    tmp_path: Path, extra: object, tags: str
) -> None:
    facts = await FactsAdapter.open(context(tmp_path))
    handle = await add(facts, "fact one", tags=("t",))
    with closing(sqlite3.connect(tmp_path / "facts.sqlite3")) as rows, rows:
        changed = json.dumps(extra), tags
        rows.execute("UPDATE memtui_fact_details SET extra = ?, tags = ?", changed)
    found = await read(facts, handle)
    assert (found.text, found.scope, found.created_by) == ("fact one", ANA, None)
    assert found.tags == (("T",) if '"T"' in tags else ())
    await facts.close()


async def test_what_was_made_at_the_moment_asked_for_is_there(tmp_path: Path) -> None:
    facts = await FactsAdapter.open(context(tmp_path, now=lambda: NOW))
    await add(facts, "fact one", created_at=NOW)
    await add(facts, "fact two", created_at=NOW + timedelta(microseconds=1))
    for offset, wanted in ((-1, []), (0, ["fact one"]), (1, ["fact one", "fact two"])):
        moment = NOW + timedelta(microseconds=offset)
        asked = QueryRequest(scope=EVERYONE, query="fact", as_of=moment)
        assert sorted(one.text for one in (await facts.query(asked)).snippets) == wanted
    await facts.close()
