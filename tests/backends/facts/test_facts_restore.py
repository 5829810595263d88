from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memtui.backends.facts import FactsAdapter
from memtui.contract import (
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    RecordHandle,
    WriteMode,
)
from tests.backends.facts.kit import ANA, APOLLO, EVERYONE, add, context, dump, read, request, seed
from tests.databases import ON_BOTH

pytestmark = ON_BOTH

Opening = dict[str, Any]
_ODD = datetime(2026, 1, 16, 10, 0, 0, 120_003, tzinfo=UTC)


@pytest.fixture
def opening(tmp_path: Path, database_url: str) -> Opening:
    if not database_url:
        return {"where": tmp_path}
    seed(database_url, users=("ana",), drives=("apollo",))
    return {"where": database_url, "url": database_url, "create": True}


@pytest.fixture
async def facts(tmp_path: Path, opening: Opening) -> AsyncIterator[FactsAdapter]:
    config = {name: value for name, value in opening.items() if name != "where"}
    adapter = await FactsAdapter.open(context(tmp_path, **config))
    yield adapter
    await adapter.close()


async def _some(facts: FactsAdapter) -> list[RecordHandle]:
    full: dict[str, Any] = {
        "tags": ("a", "b\n"),
        "topic": "t",
        "pinned": True,
        "metadata": {"n": [1, None]},
    }
    return [
        await add(facts, "First fact, 日本語 \U0001f600.", created_at=_ODD, **full),
        await add(facts, "Second.", APOLLO, created_by="user:ana", expires_at=_ODD),
        await add(facts, "Third.", APOLLO, created_by="agent:x"),
    ]


async def test_forget_then_restore_is_exact(facts: FactsAdapter, opening: Opening) -> None:
    handles = await _some(facts)
    before = dump(opening["where"])
    assert sum(len(rows) for rows in before.values()) == 6
    taken = await facts.snapshot(handles, EVERYONE)
    await facts.forget(ForgetRequest(scope=EVERYONE, handles=tuple(handles)))
    assert not any(dump(opening["where"]).values())
    await facts.restore(taken, EVERYONE)
    assert dump(opening["where"]) == before
    await facts.restore(taken, EVERYONE)
    assert dump(opening["where"]) == before
    assert await facts.snapshot(handles, EVERYONE) == taken


async def test_correct_then_restore_is_exact(facts: FactsAdapter, opening: Opening) -> None:
    handle = (await _some(facts))[0]
    before, record = dump(opening["where"]), await read(facts, handle)
    taken = await facts.snapshot([handle], ANA)
    later = _ODD + timedelta(days=99_999)
    await facts.correct(
        CorrectRequest(
            scope=ANA, handle=handle, text="Changed.", revision=record.revision, pinned=False,
            topic="u", tags=(), expires_at=later,
        )
    )  # fmt: skip
    after = await read(facts, handle)
    assert (after.text, after.pinned, after.topic, after.tags) == ("Changed.", False, "u", ())
    assert (after.created_at, after.expires_at) == (_ODD, later)
    assert after.revision != record.revision
    await facts.restore(taken, ANA)
    assert dump(opening["where"]) == before


async def test_upsert_tells_what_was_before(facts: FactsAdapter, opening: Opening) -> None:
    await add(facts, "Old.", record_id="k", created_at=_ODD, tags=("x",))
    before = dump(opening["where"])
    reply = await facts.write(request("New.", record_id="k", mode=WriteMode.UPSERT))
    record = await read(facts, reply.records[0])
    assert (record.text, record.created_at, record.tags) == ("New.", _ODD, ())
    await facts.restore(reply.before, ANA)
    assert dump(opening["where"]) == before
    new = await facts.write(request("Another."))
    await facts.restore(new.before, ANA)
    assert dump(opening["where"]) == before


async def test_restore_is_all_or_nothing_and_never_over_another(
    facts: FactsAdapter, opening: Opening
) -> None:
    handles = await _some(facts)
    taken = await facts.snapshot(handles, EVERYONE)
    await facts.forget(ForgetRequest(scope=EVERYONE, handles=tuple(handles)))
    await add(facts, "A stranger.", record_id=handles[0].provider_record_id)
    before = dump(opening["where"])
    with pytest.raises(Conflict, match="Another fact has the id"):
        await facts.restore(list(reversed(taken)), EVERYONE)
    assert dump(opening["where"]) == before
    with pytest.raises(Invalid, match="another scope"):
        await facts.restore(taken[1:], ANA)
    broken = taken[1].model_copy(update={"state": {}})
    with pytest.raises(Invalid, match="not of a fact"):
        await facts.restore([broken], EVERYONE)


@pytest.mark.parametrize("odd", ["\ud800", "a\0b"])
async def test_odd_text_beside_a_fact(facts: FactsAdapter, opening: Opening, odd: str) -> None:
    handle = await add(facts, "Odd metadata.", metadata={odd: odd}, tags=(odd,), created_by=odd)
    record = await read(facts, handle)
    assert (record.metadata[odd], record.tags, record.created_by) == (odd, (odd,), odd)
    try:
        await facts.correct(CorrectRequest(scope=ANA, handle=handle, topic=odd))
    except Invalid:
        assert (await read(facts, handle)).revision == record.revision
    else:
        assert (await read(facts, handle)).topic == odd


async def test_times_of_other_programs_keep_their_digits(
    facts: FactsAdapter, opening: Opening
) -> None:
    rows = ["2026-01-16 10:00:00", "2026-01-16 10:00:00.5"]
    where = opening["where"]
    connect: Any = psycopg.connect(where) if isinstance(where, str) else sqlite3.connect(
        where / "facts.sqlite3"
    )  # fmt: skip
    for number, moment in enumerate(rows):
        connect.execute(
            'INSERT INTO user_memories (id, "userId", fact, "createdAt") '
            f"VALUES ('f{number}', 'ana', 'Foreign.', '{moment}')"
        )
    connect.commit()
    connect.close()
    before = dump(where)
    page = [await read(facts, h) for h in [_handle("f0"), _handle("f1")]]
    assert [record.created_at for record in page] == [
        datetime(2026, 1, 16, 10, tzinfo=UTC),
        datetime(2026, 1, 16, 10, 0, 0, 500_000, tzinfo=UTC),
    ]
    taken = await facts.snapshot([r.handle for r in page], ANA)
    await facts.forget(ForgetRequest(scope=ANA, handles=tuple(r.handle for r in page)))
    await facts.restore(taken, ANA)
    assert dump(where) == before


def _handle(record_id: str) -> RecordHandle:
    return RecordHandle(provider_key="facts", provider_record_id=record_id)


async def test_a_fact_is_found_behind_hundreds_of_other_ids(facts: FactsAdapter) -> None:
    first, second, _ = await _some(facts)
    unknown = [
        RecordHandle(provider_key="facts", provider_record_id=f"{end}{number}")
        for number in range(600)
        for end in ("!", "~")  # before and behind every id that there is
    ]
    taken = await facts.snapshot([*unknown[:600], first, second, *unknown[600:]], EVERYONE)
    there = [one.handle for one in taken if one.record is not None]
    assert there == [first, second]
