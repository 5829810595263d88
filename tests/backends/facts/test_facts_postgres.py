"""Facts in a PostgreSQL that another application owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from memtui.backends.facts import FactsAdapter
from memtui.config import Paths, Settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    NotFound,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.service import Caller, open_service
from memtui.service.visibility import Membership, Role
from tests.backends.facts.kit import ANA, APOLLO, EVERYONE, add, context, dump, read, seed
from tests.test_text_analysis import SAME


@pytest.fixture
def url(postgres_url: str) -> str:
    seed(postgres_url, users=("ana", "ben"), drives=("apollo",))
    return postgres_url


@pytest.fixture
async def facts(tmp_path: Path, url: str) -> AsyncIterator[FactsAdapter]:
    """Without memtui's own table: nothing was created."""
    adapter = await FactsAdapter.open(context(tmp_path, url=url))
    yield adapter
    await adapter.close()


def run(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


async def test_nothing_is_created_unasked(facts: FactsAdapter, url: str) -> None:
    await add(facts, "A fact.")
    tables = run(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    assert [name for (name,) in tables] == ["drive_memories", "drives", "user_memories", "users"]
    assert not facts.capabilities.pin
    assert not facts.capabilities.expiry
    assert "not kept" in (await facts.health()).message


async def test_what_cannot_be_kept_is_refused(facts: FactsAdapter) -> None:
    handle = await add(facts, "A fact.")
    with pytest.raises(Unsupported, match="create to true"):
        await add(facts, "Pinned.", pinned=True)
    with pytest.raises(Unsupported):
        await facts.correct(CorrectRequest(scope=ANA, handle=handle, tags=("x",)))
    await facts.correct(CorrectRequest(scope=ANA, handle=handle, text="Changed."))
    assert (await read(facts, handle)).text == "Changed."
    listed = await facts.browse(BrowseRequest(scope=ANA, filter=Filter(tag="x")))
    assert listed.records == ()


async def test_missing_tables(tmp_path: Path, postgres_url: str) -> None:
    with pytest.raises(Invalid, match="no table user_memories and drive_memories; set create"):
        await FactsAdapter.open(context(tmp_path, url=postgres_url))
    made = await FactsAdapter.open(context(tmp_path, url=postgres_url, create=True))
    await add(made, "A fact.")
    await made.close()
    again = await FactsAdapter.open(context(tmp_path, url=postgres_url))
    assert again.capabilities.pin
    assert (await again.health()).records == 1
    await again.close()


async def test_foreign_tables_are_left_alone(tmp_path: Path, postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE user_memories (id text PRIMARY KEY, note text)")
    with pytest.raises(Invalid, match="user_memories has no column userId"):
        await FactsAdapter.open(context(tmp_path, url=postgres_url, create=True))
    assert run(postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


async def test_foreign_keys(facts: FactsAdapter, url: str) -> None:
    with pytest.raises(NotFound, match="no user zoe"):
        await add(facts, "A fact.", ANA.model_copy(update={"subject_id": "zoe"}))
    with pytest.raises(NotFound, match="no drive gemini"):
        await add(facts, "A fact.", APOLLO.model_copy(update={"project_id": "gemini"}))
    both = APOLLO.model_copy(update={"subject_id": "ben"})
    for scope, principal, stored in (
        (APOLLO, "ana", "ana"),
        (APOLLO, "user:ana", "ana"),
        (APOLLO, "user:stranger", None),
        (APOLLO, "agent:coder", None),
        (both, "agent:coder", "ben"),
    ):
        handle = await add(facts, "A fact.", scope, created_by=principal)
        found = run(url, 'SELECT "createdBy" FROM drive_memories '
                         f"WHERE id = '{handle.provider_record_id}'")  # fmt: skip
        assert found == [(stored,)]


@pytest.mark.parametrize(("subject", "stored"), [(None, "ana"), ("ben", "ben"), ("nobody", "ana")])
async def test_a_fact_of_an_agent_is_by_the_person_that_it_acts_for(
    url: str, paths: Paths, settings: Settings, subject: str | None, stored: str
) -> None:
    service = await open_service(paths, settings)
    person = Caller(company_id="local", principal="user:ana", channel="test")
    await service.bindings.add(person, "table", "facts", {"url": url})
    if subject is not None:
        owner = Membership(principal="user:ana", role=Role.OWNER, subject_id=subject)
        await service.members.set(person, owner)
    agent = person.model_copy(update={"principal": "agent:coding", "acts_for": "user:ana"})
    scope = Scope(company_id="local", project_id="apollo")
    source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
    for number, caller in enumerate((agent, person)):
        fact = WriteRequest(
            scope=scope, source=source, kind="fact", content=f"branch{number}: main",
            binding_key="table", users=("ben",),
        )  # fmt: skip
        await service.write(caller, fact)
    made = run(url, 'SELECT "createdBy", source FROM drive_memories ORDER BY fact')
    assert made == [(stored, "ai"), (stored, "user")]
    await service.close()


async def test_a_deleted_user_takes_the_facts_along(facts: FactsAdapter, url: str) -> None:
    handle = await add(facts, "A fact.")
    taken = await facts.snapshot([handle], ANA)
    run(url, "DELETE FROM users WHERE id = 'ana'")
    assert await facts.get(handle, ANA) is None
    with pytest.raises(NotFound, match="no user ana"):
        await facts.restore(taken, ANA)


@pytest.mark.parametrize(("record_id", "left"), [("x", "Of apollo."), ("drive:x", "Of ana.")])
async def test_the_same_id_in_both_tables(
    facts: FactsAdapter, url: str, record_id: str, left: str
) -> None:
    run(url, "INSERT INTO user_memories VALUES ('x', 'ana', 'Of ana.', now(), 'user')")
    run(url, "INSERT INTO drive_memories VALUES ('x', 'apollo', 'Of apollo.', now(), NULL, 'ai')")
    page = await facts.browse(BrowseRequest(scope=EVERYONE))
    named = {r.handle.provider_record_id: r.text for r in page.records}
    assert named == {"x": "Of ana.", "drive:x": "Of apollo."}
    handle = RecordHandle(provider_key="facts", provider_record_id=record_id)
    before = dump(url)
    taken = await facts.snapshot([handle], EVERYONE)
    await facts.forget(ForgetRequest(scope=EVERYONE, handles=(handle,)))
    page = await facts.browse(BrowseRequest(scope=EVERYONE))
    assert [record.text for record in page.records] == [left]
    await facts.restore(taken, EVERYONE)
    assert dump(url) == before


async def test_what_another_program_changes_is_a_conflict(facts: FactsAdapter, url: str) -> None:
    handle = await add(facts, "Ours.")
    revision = (await read(facts, handle)).revision
    run(url, "UPDATE user_memories SET fact = 'Theirs.'")
    with pytest.raises(Conflict) as caught:
        await facts.correct(
            CorrectRequest(scope=ANA, handle=handle, text="Mine.", revision=revision)
        )
    assert caught.value.current is not None
    assert caught.value.current.text == "Theirs."


async def test_fifty_is_the_limit_for_writers_at_once(
    facts: FactsAdapter, tmp_path: Path, url: str
) -> None:
    other = await FactsAdapter.open(context(tmp_path / "other", url=url))
    run(url, "INSERT INTO user_memories SELECT i::text, 'ana', 'f', now(), 'user' "
             "FROM generate_series(1, 45) i")  # fmt: skip
    tries = [add(adapter, f"late {n}") for n in range(10) for adapter in (facts, other)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, Invalid) for outcome in outcomes) == 15
    assert run(url, "SELECT count(*) FROM user_memories") == [(50,)]
    await other.close()


async def test_corrections_at_once(facts: FactsAdapter) -> None:
    handle = await add(facts, "Zero.")
    revision = (await read(facts, handle)).revision
    tries = [
        facts.correct(CorrectRequest(scope=ANA, handle=handle, text=f"N{n}.", revision=revision))
        for n in range(8)
    ]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7


async def test_odd_text_in_conditions(facts: FactsAdapter) -> None:
    await add(facts, 'It\'s 100% "fine" \\ ok; DROP TABLE users; --')
    for text, count in (("100%", 1), ("1_0", 0), ("\\", 1), ("'s", 1)):
        page = await facts.browse(BrowseRequest(scope=ANA, filter=Filter(text=text)))
        assert page.total == count
    for one, other in SAME:
        await add(facts, f"about {one} here")
        for chosen in (Filter(text=other), Filter(fuzzy=(other.split()[0],))):
            assert (await facts.browse(BrowseRequest(scope=ANA, filter=chosen))).total == 1, other
    for scope in (ANA.model_copy(update={"subject_id": "a\0b"}),):
        with pytest.raises(Invalid):
            await add(facts, "A fact.", scope)
        with pytest.raises(Invalid):
            await facts.query(QueryRequest(scope=scope, query="x"))


async def test_a_role_with_few_rights(tmp_path: Path, url: str) -> None:
    run(url, "DROP ROLE IF EXISTS reader")
    run(url, "CREATE ROLE reader LOGIN; GRANT SELECT ON user_memories, drive_memories TO reader")
    theirs = url.replace("postgres:@", "reader:@").replace("//postgres@", "//reader@")
    assert theirs != url
    secrets = {"FACTS_URL": theirs}.get
    with pytest.raises(Denied, match="may not create memtui_fact_details"):
        await FactsAdapter.open(
            context(tmp_path, url_secret="FACTS_URL", secret=secrets, create=True)
        )
    facts = await FactsAdapter.open(context(tmp_path, url_secret="FACTS_URL", secret=secrets))
    assert (await facts.health()).status == "ok"
    with pytest.raises(Denied, match="refused permission"):
        await add(facts, "A fact.")
    await facts.close()
    run(url, "REVOKE ALL ON user_memories, drive_memories FROM reader")
    run(url, "DROP ROLE reader")


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await FactsAdapter.open(context(tmp_path, url=f"postgresql://x@/n?host={tmp_path}"))


async def test_a_table_that_goes_away(facts: FactsAdapter, url: str) -> None:
    run(url, "ALTER TABLE user_memories RENAME TO elsewhere")
    with pytest.raises(Unavailable, match="changed while memtui had them open"):
        await facts.get(RecordHandle(provider_key="facts", provider_record_id="x"), ANA)
    assert (await facts.health()).status == "down"


async def test_no_connection_is_left_open(tmp_path: Path, url: str) -> None:
    facts = await FactsAdapter.open(context(tmp_path, url=url))
    await add(facts, "A fact.")
    await facts.close()
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    async with asyncio.timeout(30):  # a server's process takes a moment to end
        while run(url, asked) != [(1,)]:
            await asyncio.sleep(0.01)


_ENUM = """
    CREATE TYPE origin AS ENUM ('manual');
    ALTER TABLE user_memories ALTER source TYPE origin USING 'manual'
"""


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ("ALTER TABLE user_memories ALTER id TYPE uuid USING gen_random_uuid()", "id of user_mem"),
        ("ALTER TABLE drive_memories ALTER fact TYPE bytea USING fact::bytea", "fact of drive"),
        (_ENUM, "source of user_memories"),
    ],
)
async def test_columns_that_are_no_text_are_refused_when_it_is_opened(
    tmp_path: Path, url: str, change: str, column: str
) -> None:
    run(url, change)
    with pytest.raises(Invalid, match=f"The column {column}"):
        await FactsAdapter.open(context(tmp_path, url=url))
