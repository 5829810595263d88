"""Any value can go, its operation still fits its digest, and nothing else has changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from memtui.contract import Filter, OperationType, Scope, Usage
from memtui.store.database import Database
from memtui.store.digest import GENESIS, SUBJECT, digest_of, fields, is_intact, withhold
from memtui.store.erasing import (
    Aim,
    doomed,
    erase_fields,
    erased,
    is_about,
    names,
    purge_request,
    purged,
)
from memtui.store.log import OperationStore, company_salt
from memtui.store.operation import Operation, OperationHandle
from memtui.store.rows import PendingRow
from memtui.store.tables import RISK_CHECKS, RISKS
from tests.databases import ON_BOTH
from tests.store.test_digest import COMPANY, EVERYTHING, LONG, drafts
from tests.store.test_log import append, draft

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LISTED = {"query": "q", "record_ids": ["one", "two", None], "tags": [], "their own": "word"}


def read(database: Database) -> tuple[dict[int, Operation], bytes]:
    with database.read() as connection:
        found = OperationStore(connection, "acme").page(Filter(internal=True), limit=100).operations
        return {one.seq: one for one in found}, company_salt(connection, "acme")


def erase(database: Database, doomed: dict[int, Any]) -> dict[int, tuple[str, ...]]:
    with database.write() as connection:
        return erase_fields(connection, "acme", doomed)


@ON_BOTH
def test_what_is_erased_is_gone_and_the_digest_holds(database: Database) -> None:
    scope = Scope(company_id="acme", subject_id="bob")
    append(database, draft(1, request=LISTED, scope=scope), EVERYTHING, draft(2, scope=scope))
    before, _ = read(database)
    done = erase(
        database,
        {
            1: {"request.query", "request.record_ids.1", "request.topic", SUBJECT},
            2: {path for path, _ in fields(EVERYTHING)},
            3: {"request"},
        },
    )
    assert done[1] == ("request.query", "request.record_ids.1", SUBJECT)
    assert done.keys() == {1, 2}
    after, company = read(database)
    assert all(is_intact(one, company) for one in after.values())
    assert after[1].request == {**LISTED, "query": None, "record_ids": ["one", None, None]}
    assert after[3] == before[3]
    gone = after[2]
    assert LONG not in gone.model_dump_json()
    assert (gone.salt, gone.salts, gone.error_message, gone.usage[0].details) == (
        None,
        {},
        None,
        {},
    )
    assert gone.request == {
        "query": None,
        "top_k": 5,
        "intent": "answer",
        "tags": [None],
        "mode": None,
    }
    assert gone.handles[0].provider_record_id == ""
    again = erase(database, {1: {"request"}, 2: {"request.query"}})
    assert again == {1: ("request",)}
    after, company = read(database)
    assert "their own" not in after[1].request
    assert is_intact(after[1], company)


def test_a_subject_has_one_name_after_it_is_erased(database: Database) -> None:
    scopes = [Scope(company_id="acme", subject_id=name) for name in ("bob", "ana", "bob")]
    append(database, *(draft(number, scope=scope) for number, scope in enumerate(scopes, 1)))
    erase(database, {seq: {SUBJECT} for seq in (1, 2, 3)})
    after, company = read(database)
    names = [after[seq].scope.subject_id for seq in (1, 2, 3)]
    assert names[0] == names[2] != names[1]
    assert all(is_intact(one, company) for one in after.values())


@ON_BOTH
def test_a_withheld_value_is_erased_by_its_salt(database: Database) -> None:
    absent, salt = withhold("request.content", "we deploy on Tuesdays")
    one = draft(1, request={"kind": "note"}, absent={"request.content": absent})
    append(database, one.model_copy(update={"salts": {"request.content": salt}}))
    assert erase(database, {1: {"request.content"}}) == {1: ("request.content",)}
    after, company = read(database)
    assert after[1].salts.keys() == {"request.kind"}
    assert after[1].absent == {"request.content": absent}
    assert is_intact(after[1], company)
    assert erase(database, {1: {"request.content"}}) == {}


@ON_BOTH
@pytest.mark.parametrize(
    "forged",
    [
        {"request": {"query": "forged"}},
        {"request": {"query": None, "their own": "word"}},
        {"error_message": "forged"},
        {"scope": Scope(company_id="acme", subject_id="eve")},
    ],
)
def test_no_value_can_be_put_in_the_place_of_an_erased_one(
    database: Database, forged: dict[str, Any]
) -> None:
    scope = Scope(company_id="acme", subject_id="bob")
    asked = {"query": "q", "their own": "words"}
    append(database, draft(1, request=asked, scope=scope, error_message="why"))
    erase(database, {1: {"request.query", "request", "error_message", SUBJECT}})
    found, company = read(database)
    assert is_intact(found[1], company)
    assert not is_intact(found[1].model_copy(update=forged), company)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(one=drafts, data=st.data())
def test_any_fields_of_any_operation_can_go_in_any_order(one: Any, data: st.DataObject) -> None:
    salt = bytes(range(16))
    digest = digest_of(one, seq=1, previous_digest=GENESIS, salt=salt, company=COMPANY)
    operation = Operation.model_construct(
        **one.__dict__, seq=1, previous_digest=GENESIS, digest=digest, salt=salt
    )
    paths = [path for path, _ in fields(one)]
    for part in data.draw(
        st.lists(st.lists(st.sampled_from(paths)), max_size=3) if paths else st.just([])
    ):
        operation = erased(operation, set(part), COMPANY)
        assert is_intact(operation, COMPANY)
        assert all(path in operation.absent for path in part)
    untouched = erased(operation, set(), COMPANY)
    assert untouched is operation


def test_a_text_that_gave_the_record_to_an_agent_goes_however_short_the_record_is(
    database: Database,
) -> None:
    handles = tuple(
        OperationHandle(rank=rank, provider_key="vault", provider_record_id=name)
        for rank, name in enumerate(("r1", "r2"), start=1)
    )
    request = {"text": "- Tea\n- Uses SQLite\n", "prompt": "coffee or tea?"}
    context: Any = {"operation_type": OperationType.CONTEXT, "handles": handles}
    append(
        database,
        draft(1, request=request, **context),
        draft(2, request=request | {"prompt": "tea"}, **context),
        draft(3, request=request, **context | {"handles": handles[1:]}),
    )
    key = "default"
    aim = Aim(company_id="acme", living={key: frozenset({"r1"})}, texts=frozenset({"Tea"}))
    found, _ = read(database)
    told = [one.model_copy(update={"binding_key": key}) for _, one in sorted(found.items())]
    assert [doomed(one, aim) for one in told] == [
        ("request.text",), ("request.text", "request.prompt"), (),
    ]  # fmt: skip


def test_a_purge_tells_in_ranges_what_it_erased() -> None:
    many = dict.fromkeys((7, 2, 1, 3), ("request.query", "error_message"))
    request = purge_request({5: ("request.query",), **many})
    assert request == {
        "erased": [
            {"fields": ["error_message", "request.query"], "seqs": [[1, 3], [7, 7]]},
            {"fields": ["request.query"], "seqs": [[5, 5]]},
        ],
        "segments": [],
    }
    purge = draft(9, operation_type=OperationType.PURGE, request=request)
    placed = Operation(**dict(purge), seq=7, previous_digest="", digest="")
    assert [(list(seqs), len(paths)) for seqs, paths in purged(placed)] == [
        ([1, 2, 3], 2),
        ([], 2),
        ([5], 1),
    ]


@ON_BOTH
def test_of_several_rows_those_go_that_are_named(database: Database) -> None:
    usage = tuple(Usage(provider=name, details={"said": name}) for name in ("one", "two", "three"))
    handles = tuple(
        OperationHandle(rank=rank, provider_key="vault", provider_record_id=f"id-{rank}")
        for rank in (1, 2, 3)
    )
    append(database, draft(1, usage=usage, handles=handles))
    erase(
        database,
        {
            1: {
                "usage.1.details",
                "usage.2.details",
                "handles.2.provider_record_id",
                "handles.3.provider_record_id",
            }
        },
    )
    after, company = read(database)
    assert [one.details for one in after[1].usage] == [{"said": "one"}, {}, {}]
    assert [one.provider_record_id for one in after[1].handles] == ["id-1", "", ""]
    assert is_intact(after[1], company)


@ON_BOTH
def test_risks_go_by_either_of_their_records(database: Database) -> None:
    pairs = [("gone", "kept"), ("kept", "gone"), ("kept", "other"), ("hers", "kept"),
             ("kept", "hers"), ("his", "hers")]  # fmt: skip
    keys = ("company_id", "binding_key", "reason", "mark")
    rows = [
        {**dict.fromkeys(keys, "acme"), "binding_key": key, "record_id": one, "other_id": other}
        for key in ("default", "twin")
        for one, other in pairs
    ]
    check = {"company_id": "acme", "binding_key": "default", "text_digest": "", "state_digest": ""}
    with database.write() as connection:
        connection.execute(insert(RISKS), rows)
        connection.execute(
            insert(RISK_CHECKS),
            [check | {"record_id": f"{name}s", "subject_id": name} for name in ("her", "hi")],
        )
    aim = Aim(company_id="acme", subject_id="her", gone={"default": frozenset({"gone"})})
    with database.write() as connection:
        names(connection, aim, drop=True)
        left = connection.execute(select(RISKS.c.binding_key, RISKS.c.record_id, RISKS.c.other_id))
        here = {tuple(row[1:]) for row in left if row[0] == "default"}
    assert here == {("kept", "other")}


@pytest.mark.parametrize("name", ["ana", "bea"])
def test_what_waits_is_about_each_of_its_owners(name: str) -> None:
    owners = [Scope(company_id="acme", subject_id=one).model_dump() for one in ("ana", "bea")]
    row = PendingRow(
        company_id="acme", pending_id="p", binding_key="default", binding_added_at=NOW,
        operation_type="forget", request={}, owners=owners, base=[], reasons=[],
        principal="agent:bot", acts_for=None, channel="mcp", likeness="", times=1,
        pending_since=NOW, last_at=NOW,
    )  # fmt: skip
    assert is_about(row, Aim(company_id="acme", subject_id=name))
    assert not is_about(row, Aim(company_id="acme", subject_id="cy"))


def logged(**changes: Any) -> Operation:
    return Operation(
        **dict(draft(1, binding_key="default", **changes)), seq=1, previous_digest="", digest=""
    )


@pytest.mark.parametrize(
    ("query", "goes"),
    [("tower of loaf", False), ("bread abbey", True), ("her hero", False), ("hero", True)],
)
def test_a_search_that_found_it_loses_words_that_it_shares(query: str, goes: bool) -> None:
    handles = tuple(
        OperationHandle(rank=rank, provider_key="vault", provider_record_id=f"r{rank}")
        for rank in (1, 2)
    )
    asked = logged(request={"query": query}, handles=handles)
    living = {"default": frozenset({"r1"})}
    texts = frozenset({"Above the hero of bread lies a loaf."})
    aim = Aim(company_id="acme", living=living, texts=texts)
    assert doomed(asked, aim) == (("request.query",) if goes else ())


def test_the_error_of_who_asked_for_it_goes_however_short_it_is() -> None:
    failed = {"operation_type": OperationType.GET, "error_message": "No tea."}
    aim = Aim(company_id="acme", living={"default": frozenset({"r1"})})
    assert doomed(logged(request={"record_id": "r1"}, **failed), aim) == ("error_message",)
    assert doomed(logged(request={"record_id": "r2"}, **failed), aim) == ()
