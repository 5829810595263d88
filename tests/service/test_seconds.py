"""Of several records, owners, pages and answers each counts, and not the first alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.contract import (
    Capabilities,
    Conflict,
    ContextBundle,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    NotFound,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    SourceRef,
    Unavailable,
    Usage,
    WriteRequest,
)
from memtui.record_changes import changed_fields, corrected
from memtui.service import Caller, Membership, MemoryService, Role
from memtui.service.answers import Answer, BindingOutcome, BrowseAnswer
from memtui.service.context.contexts import ContextRequest, _may_include, _Reading
from memtui.service.context.impact import AnsweredRecord, Effect, Impact, Side, _effect
from memtui.service.history.runs import _runs
from memtui.service.home.backup import _is_derived
from memtui.service.operations.everywhere import (
    Asked,
    FoundAt,
    FoundSnippet,
    _first_of_keys,
    _same_texts_once,
)
from memtui.service.operations.facts import FactRequest
from memtui.service.operations.filling import fields_of, filled, filled_in, not_kept
from memtui.service.operations.undo import (
    _as_correction,
    _came_back,
    _refuse_overtaken,
    as_write,
    reaching,
)
from memtui.service.recorder import FanOut, note_owner
from memtui.service.usecases.forgetting import _forgetting, forget
from memtui.service.usecases.merging import _of_all, merge
from memtui.service.visibility import Permission, _in_project, abilities, as_agents_read, refusal
from memtui.store import appending
from memtui.store.erasing import Aim, names
from memtui.store.log import RunContexts, RunFigures, RunPart, RunUsage
from memtui.store.operation import Operation
from memtui.store.tables import LINKS, PLUGIN_IDS, SYNC_PAIRS
from memtui.store.visibility import Visibility
from tests.service.conftest import start
from tests.service.fake import FakeAdapter, down
from tests.store.test_log import draft

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ACME = Scope(company_id="acme")
P, Q = (Scope(company_id="acme", project_id=name) for name in "pq")
ANA = Scope(company_id="acme", subject_id="ana")
CALLER = Caller(company_id="acme", principal="user:ana", channel="test")
SOURCE = SourceRef(kind="run", company_id="acme", run_id="r")


def handle(record_id: str) -> RecordHandle:
    return RecordHandle(provider_key="fake", provider_record_id=record_id)


def record(record_id: str = "r1", text: str = "a", scope: Scope = P, **fields: Any) -> Record:
    return Record(handle=handle(record_id), text=text, scope=scope, **fields)


def snippet(record_id: str, text: str, scope: Scope = P, **fields: Any) -> Snippet:
    return Snippet(handle=handle(record_id), text=text, scope=scope, **fields)


def place(key: str, rank: int, weight: float, record_id: str = "r1") -> FoundAt:
    return FoundAt(
        binding_key=key, handle=handle(record_id), rank=rank, score=None, weight=weight, source=None
    )


# Facts that become one


@pytest.mark.parametrize("at", range(3))
def test_the_fact_that_stays_gets_what_any_of_the_others_has(at: int) -> None:
    ends = [NOW + timedelta(days=one) for one in (1, 2, 3)]
    survivor = record("s", expires_at=ends[0], tags=("s",))

    def others(**fields: Any) -> list[Record]:
        plain = {"expires_at": ends[0]}
        return [record(f"o{n}", **(plain | (fields if n == at else {}))) for n in range(3)]

    assert _of_all(survivor, others(), None) == {}
    assert _of_all(survivor, others(), "a") == {}
    assert _of_all(survivor, others(), "b") == {"text": "b"}
    assert _of_all(survivor, others(pinned=True), None) == {"pinned": True}
    assert _of_all(survivor, others(tags=("t", "s")), None) == {"tags": ("s", "t")}
    assert _of_all(survivor, others(expires_at=ends[2]), None) == {"expires_at": ends[2]}
    assert _of_all(survivor, others(expires_at=None), None) == {"never_expires": True}
    lasting = survivor.model_copy(update={"expires_at": None, "pinned": True})
    assert _of_all(lasting, others(pinned=True, expires_at=ends[2]), None) == {}


# All bindings at once


def test_what_a_binding_answers_in_turn_is_added_up() -> None:
    outcome = BindingOutcome(binding_key="b", provider_key="fake")
    asked = Asked(fan_out=FanOut("t", 0), outcomes={"b": outcome})
    for number in (1, 2):
        answer = Answer(
            operation_id=f"o{number}", binding_key="b", binding_reason="", latency_ms=5,
            usage=(Usage(provider="fake", input_tokens=number),),
        )  # fmt: skip
        asked.note("b", answer, number, capped=False)
    [found] = asked.outcomes.values()
    assert (found.operation_ids, found.found, found.latency_ms) == (("o1", "o2"), 3, 10)
    assert [one.input_tokens for one in found.usage] == [1, 2]


def test_an_answer_of_several_bindings_reads_like_one_of_one() -> None:
    ended = BindingOutcome(binding_key="ended", provider_key="fake", status="ok")
    failed = BindingOutcome(binding_key="failed", provider_key="fake", status="failed")
    answered = BindingOutcome(
        binding_key="b", provider_key="fake", status="ok", operation_ids=("o1", "o2")
    )
    several = BrowseAnswer(together="t", bindings=(ended, failed, answered))
    assert (several.operation_id, several.binding_key) == ("o1", "b")
    assert (several.operation_of("b"), several.operation_of("ended")) == ("o1", None)
    nobody = BrowseAnswer(together="t", bindings=(ended, failed))
    assert (nobody.operation_id, nobody.binding_key) == ("", "")
    assert BrowseAnswer(bindings=(answered,)).binding_of(record("r1")) == "b"


def test_each_owner_is_asked_for_its_own_records() -> None:
    records = [record("r1", scope=P, revision="1"), record("r2", scope=Q), record("r3", scope=P)]
    apart = _forgetting("b", records, None)
    assert [(one.scope, [h.provider_record_id for h in one.handles]) for one in apart] == [
        (P, ["r1", "r3"]), (Q, ["r2"]),
    ]  # fmt: skip
    [whole] = _forgetting("b", records, ACME)
    assert (whole.scope, len(whole.handles), whole.revisions) == (ACME, 3, {"r1": "1"})
    [one] = _forgetting("b", [records[0], records[2]], ACME)
    assert one.scope == P


def test_a_fact_is_hidden_by_the_nearest_of_its_key_and_namespace() -> None:
    def found(name: str, weight: float, topic: str | None = None) -> FoundSnippet:
        fields: dict[str, Any] = {"binding_key": name, "places": (place(name, 1, weight, name),)}
        return FoundSnippet(
            **dict(snippet(name, f"branch: {name}", kind="fact", topic=topic)), **fields
        )

    facts = [found("near", 1.0), found("middle", 0.7), found("far", 0.4)]
    for some in permutations(facts):
        shown, hidden = _first_of_keys(some)
        assert [one.binding_key for one in shown] == ["near"]
        assert [(one.binding_key, one.hidden_by_binding) for one in hidden] == [
            ("middle", "near"), ("far", "near"),
        ]  # fmt: skip
        assert {one.hidden_by for one in hidden} == {handle("near")}
    apart = [found("near", 1.0, "git"), found("far", 0.4, "ops"), found("other", 0.4)]
    shown, hidden = _first_of_keys(apart)
    assert [one.binding_key for one in shown] == ["near", "far"]
    assert [one.binding_key for one in hidden] == ["other"]
    beside = [found("one", 1.0), found("two", 1.0)]
    assert len(_first_of_keys(beside)[0]) == 2


def test_a_text_stands_once_in_its_best_place_with_all_of_them() -> None:
    found = [
        (snippet("r1", "The  same\nText"), place("a", 3, 1.0)),
        (snippet("r2", "the same text"), place("b", 1, 1.0, "r2")),
        (snippet("r3", "the same text"), place("c", 1, 0.4, "r3")),
        (snippet("r4", "another text"), place("c", 2, 0.4, "r4")),
    ]
    one, other = _same_texts_once(found)
    assert (one.binding_key, [at.binding_key for at in one.places]) == ("b", ["b", "a", "c"])
    assert one.score == pytest.approx(1 / 3 + 1 / 5 + 0.4 / 3)
    assert other.binding_key == "c"
    assert other.score == pytest.approx(0.1)


# Taking back


FIELDS: dict[str, tuple[Any, Any]] = {
    "text": ("a", "b"), "pinned": (False, True), "summary": (None, "S"), "topic": (None, "t"),
    "tags": ((), ("x", "y")), "expires_at": (None, NOW),
}  # fmt: skip
UNDO: Any = SimpleNamespace(scope=P, binding_key="default")


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_correction_back_sets_the_field_that_changed(name: str, turned: bool) -> None:
    values = FIELDS[name][::-1] if turned else FIELDS[name]
    before, current = (record(**({"text": "a"} | {name: one})) for one in values)
    change = _as_correction(UNDO, before, current.model_copy(update={"revision": "7"}))
    given = change.model_dump(include={*FIELDS, "never_expires"}, exclude_defaults=True)
    if name == "expires_at" and values[0] is None:
        assert given == {"text": "a", "never_expires": True}
    else:
        assert given == {"text": before.text, name: values[0] or ("" if name != "tags" else ())} | (
            {"pinned": False} if name == "pinned" and not values[0] else {}
        )
    assert change.revision == "7"


def test_the_fields_of_a_correction_are_all_taken_back() -> None:
    own = {"scope", "handle", "binding_key", "revision", "never_expires", "source", "created_by"}
    assert CorrectRequest.model_fields.keys() - own == FIELDS.keys()


WRITTEN: dict[str, Any] = {
    "kind": "summary", "title": "T", "summary": "S", "topic": "t", "tags": ("x", "y"),
    "pinned": True, "created_at": NOW, "created_by": "user:eve", "expires_at": NOW,
    "valid_from": NOW, "valid_to": NOW + timedelta(days=1), "metadata": {"a": 1}, "source": SOURCE,
}  # fmt: skip


def test_a_record_is_stored_again_with_all_that_a_write_can_carry() -> None:
    own = {"scope", "content", "binding_key", "mode", "record_id", "users", "embedding"}
    assert WriteRequest.model_fields.keys() - own == WRITTEN.keys()
    request = as_write(record("r9", **WRITTEN), "default")
    assert {name: getattr(request, name) for name in WRITTEN} == WRITTEN
    assert (request.record_id, request.content, request.scope) == ("r9", "a", P)


@pytest.mark.parametrize("name", [*FIELDS, "title", "kind"])
def test_a_record_came_back_where_it_says_the_same(name: str) -> None:
    left, now = record("r1"), record("r2")
    assert _came_back(left, now)
    other = {"title": "T", "kind": "fact"} | {one: value for one, (_, value) in FIELDS.items()}
    assert not _came_back(left, now.model_copy(update={name: other[name]}))
    assert not _came_back(left, left)
    assert not _came_back(left, None)


def test_records_of_several_users_are_reached_in_the_scope_of_none() -> None:
    eve = Scope(company_id="acme", subject_id="eve")
    for records in permutations([record(scope=ANA), record(scope=eve)]):
        assert reaching(ANA, records) == ACME
    assert reaching(ANA, [record(scope=ANA)]) == ANA


@pytest.mark.parametrize("at", range(3))
def test_a_change_of_any_of_the_records_meanwhile_stops_an_undo(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    entry: Any = SimpleNamespace(
        caller=CALLER, binding=None, handles=tuple(handle(f"r{n}") for n in range(3))
    )
    database: Any = None
    for since, under_way in (({f"r{at}": "op"}, {}), ({}, {f"r{at}": "op"})):
        monkeypatch.setattr("memtui.store.journal.Journal.changed_since", lambda *_, one=since: one)
        monkeypatch.setattr(appending, "changing", lambda *_, one=under_way: one)
        with pytest.raises(Conflict, match=f"r{at} "):
            _refuse_overtaken(database, entry, 1)


@pytest.mark.parametrize("keeps_ids", [False, True])
async def test_every_field_comes_back_where_nothing_is_restored(
    paths: Paths, settings: Settings, fake: type[FakeAdapter], keeps_ids: bool
) -> None:
    service = await start(paths, settings, CALLER, restore=False, keeps_ids=keeps_ids)
    kept = [one for one in WRITTEN if one not in {"valid_to", "created_by", "source"}]
    try:
        request = WriteRequest.model_validate({"scope": P, "content": "a", **WRITTEN})
        [it] = (await service.write(CALLER, request)).records
        changes = {"text": "b", "pinned": False, "summary": "", "topic": "u", "tags": (),
                   "never_expires": True}  # fmt: skip
        asked = {"scope": P, "handle": it.handle, **changes}
        await service.correct(CALLER, CorrectRequest.model_validate(asked))
        await service.undo(CALLER)
        back = (await service.get(CALLER, it.handle, P)).record
        assert [getattr(back, name) for name in kept] == [getattr(it, name) for name in kept]
        await service.forget(CALLER, ForgetRequest(scope=P, handles=(it.handle,)))
        await service.undo(CALLER)
        back = (await service.get(CALLER, it.handle, P)).record
        assert [getattr(back, name) for name in kept] == [getattr(it, name) for name in kept]
        assert (back.handle == it.handle) is keeps_ids
        logged = (await service.log.page(CALLER, limit=20)).operations
        [correct] = [one for one in logged if one.operation_type == "correct"]
        assert {"pinned", "topic", "never_expires"} <= correct.request.keys()
    finally:
        await service.close()


# Who may see and change


async def test_the_right_is_asked_of_every_owner(service: MemoryService) -> None:
    boss = CALLER.model_copy(update={"principal": "user:boss"})
    await service.members.set(CALLER, Membership(principal="user:boss", role=Role.OWNER))
    member = Membership(principal="user:ana", role=Role.ADMIN, project_id="p")
    await service.members.set(boss, member)
    core = service.runtime
    await core.authorise(CALLER, Permission.DELETE, [P, P])
    for scopes in ([P, Q], [Q, P], [P, ACME], [P, ANA.model_copy(update={"subject_id": "eve"})]):
        with pytest.raises(Denied):
            await core.authorise(CALLER, Permission.DELETE, scopes)
        await core.authorise(boss, Permission.DELETE, [one for one in scopes if one.project_id])


def test_company_wide_words_reach_an_agent_with_their_prefix_each() -> None:
    own = record(text="Do it", scope=P, summary="In short", title="T")
    [told, seen] = as_agents_read([own.model_copy(update={"scope": ACME}), own])
    assert seen == own
    for text, was in ((told.text, "Do it"), (told.summary or "", "In short")):
        assert text.startswith("[MEMORY id=r1 scope=ORG ns=org:acme]: ")
        assert text.endswith(was)


@pytest.mark.parametrize(
    ("scopes", "is_change", "has_members", "subject"),
    [
        ([ANA], False, True, "ana"),
        ([ANA], True, False, "ana"),
        ([ANA], False, False, None),
        ([Scope(company_id="acme", subject_id="ana", project_id="p")], True, True, None),
        ([P, ANA], True, True, "ana"),
        ([Scope(company_id="acme", subject_id="bea"), ANA], True, True, "ana"),
        ([Scope(company_id="acme", subject_id="bea"), ANA], True, False, None),
        ([P, Q], True, True, None),
    ],
)
def test_an_operation_is_the_users_whose_own_memories_it_touched(
    scopes: Sequence[Scope], is_change: bool, has_members: bool, subject: str | None
) -> None:
    entry: Any = SimpleNamespace(
        scope=ACME,
        visibility=Visibility(person="user:x") if has_members else None,
        operation_type=SimpleNamespace(mutates=is_change),
    )
    note_owner(entry, scopes)
    assert entry.scope.subject_id == subject
    entry.scope = Scope(company_id="acme", subject_id="eve")
    note_owner(entry, scopes)
    assert entry.scope.subject_id == "eve"


@pytest.mark.parametrize(
    ("owner", "is_told"),
    [
        (ACME, True), (Scope(company_id="acme", agent_id="other"), True), (P, True), (Q, False),
        (ANA, True), (Scope(company_id="acme", subject_id="bea"), False),
        (Scope(company_id="acme", project_id="q", subject_id="ana"), False),
        (Scope(company_id="acme", project_id="p", subject_id="bea"), True),
    ],
)  # fmt: skip
def test_a_context_tells_nothing_of_other_projects_and_users(owner: Scope, is_told: bool) -> None:
    scope = Scope(company_id="acme", project_id="p", subject_id="ana")
    assert _may_include(owner, scope) is is_told


async def test_texts_that_were_given_are_those_of_the_request_and_of_the_run() -> None:
    async def ask(*_: object) -> tuple[list[str], bool]:
        return ["of the run"], True

    def given(skip: bool, run_id: str | None = "r") -> Any:
        request = ContextRequest(scope=P, given=("named",), skip_given=skip)
        entry: Any = SimpleNamespace(scope=SimpleNamespace(run_id=run_id), caller=CALLER)
        core: Any = SimpleNamespace(ask=ask)
        return _Reading(core, entry, request, 0.0).given()

    assert await given(True) == ["named", "of the run"]
    assert await given(False) == await given(True, None) == ["named"]


# What forgetting would change


def told(rank: int, record_id: str, text: str = "a", key: str = "default") -> AnsweredRecord:
    return AnsweredRecord(rank=rank, handle=handle(record_id), binding_key=key, text=text)


def operation(seq: int, **fields: Any) -> Operation:
    return Operation(**dict(draft(seq, **fields)), seq=seq, previous_digest="", digest="")


def test_an_effect_names_everybody_who_asked() -> None:
    asked = [
        operation(
            number,
            scope=Scope(
                company_id="acme", run_id=f"run-{number}", project_id=f"p{number}",
                subject_id=f"s{number}", agent_id=None if number == 3 else f"a{number}",
            ),
            principal=f"user:{number}",
        )
        for number in (1, 3, 2)
    ]  # fmt: skip
    before = Side(records=(told(1, "r1", "x y z"), told(2, "r2", "p q r")), tokens=9)
    found = _effect(before, Side(records=(told(1, "r3", "x y z"),), tokens=4), asked)
    assert (found.operation.seq, found.times) == (3, 3)
    assert found.operation_ids == tuple(asked[n].operation_id for n in (1, 2, 0))
    assert found.runs == ("run-1", "run-2", "run-3")
    assert (found.projects, found.subjects) == (("p1", "p2", "p3"), ("s1", "s2", "s3"))
    assert (found.agents, found.principals) == (("a1", "a2"), ("user:3",))
    assert [one.handle for one in found.gone] == [handle("r1"), handle("r2")]
    assert found.still_said == (("default", "r1"),)
    assert not found.loses_nothing
    impact = Impact(records=(), effects=(found, found))
    assert (impact.differ, impact.would_lose, impact.tokens_saved) == (6, 6, 30)


@pytest.mark.parametrize(
    ("after", "reordered", "gone", "come"),
    [
        (["r1", "r2", "r3"], False, [], []), (["r2", "r1", "r3"], True, [], []),
        (["r2", "r3"], False, ["r1"], []), (["r3", "r2"], True, ["r1"], []),
        (["r4", "r2", "r3"], False, ["r1"], ["r4"]), (["r3", "r4", "r1"], True, ["r2"], ["r4"]),
    ],
)  # fmt: skip
def test_what_stays_in_another_order_is_told_apart_from_what_goes(
    after: list[str], reordered: bool, gone: list[str], come: list[str]
) -> None:
    sides = [
        Side(records=tuple(told(rank, name) for rank, name in enumerate(some, 1)))
        for some in (["r1", "r2", "r3"], after)
    ]
    one = Effect(operation=operation(1), operation_ids=("a",), before=sides[0], after=sides[1])
    assert one.reordered is reordered
    for found, ids in ((one.gone, gone), (one.come, come)):
        assert [told.handle.provider_record_id for told in found] == ids
    same = told(1, "r1", key="other")
    other = Effect(
        operation=operation(1), operation_ids=("a",), before=sides[0], after=Side(records=(same,))
    )
    assert len(other.gone) == 3
    assert [one.binding_key for one in other.come] == ["other"]


# What is under way, and what is erased


def test_every_record_of_a_change_under_way_is_known(service: MemoryService) -> None:
    from memtui.contract import Snapshot

    with service.runtime.database.write() as database:
        for key, ids in (("default", ("r1", "r2")), ("other", ("r3",))):
            unseen = draft(1, operation_id=f"op-{key}", binding_key=key, scope=ACME)
            before = [Snapshot(handle=handle(one), record=None) for one in ids]
            appending.begin(database, unseen, before, host="h", session="s")
        assert appending.changing(database, "acme", "default") == dict.fromkeys(
            ("r1", "r2"), "op-default"
        )
        assert appending.changing(database, "other", "default") == {}


def rows(database: Any, table: Any) -> Iterator[Any]:
    from sqlalchemy import select

    return iter(database.execute(select(table)).all())


async def test_every_id_of_what_is_gone_goes_whatever_names_it(service: MemoryService) -> None:
    from sqlalchemy import insert

    links = [("old", "gone-1"), ("gone-2", "new"), ("a", "b")]
    pairs = [("gone-1", "x1"), ("x2", "gone-2"), ("x3", "x4")]
    gone = {key: frozenset({"gone-1", "gone-2"}) for key in ("k1", "k2")}
    row: dict[str, Any]
    with service.runtime.database.write() as database:
        for company in ("acme", "other"):
            for key in ("k1", "k2", "k3"):
                of = {"company_id": company, "binding_key": key, "operation_id": "o"}
                for old, new in links:
                    row = {**of, "old_record_id": old, "new_record_id": new}
                    database.execute(insert(LINKS), row)
                for record_id in ("gone-1", "gone-2", "lives"):
                    row = {"company_id": company, "binding_id": f"{company}/{key}", "mark": None,
                           "memory_id": f"m-{record_id}", "record_id": record_id,
                           "namespace": "n"}  # fmt: skip
                    database.execute(insert(PLUGIN_IDS), row)
            for left, right in pairs:
                row = {"company_id": company, "left_id": f"{company}/k1",
                       "right_id": f"{company}/k2", "left_record": left, "right_record": right,
                       "left_prints": b"l", "right_prints": b"r"}  # fmt: skip
                database.execute(insert(SYNC_PAIRS), row)
    aim = Aim(company_id="acme", gone=gone)
    with service.runtime.database.write() as database:
        assert names(database, aim) == names(database, aim, drop=True) == (4, 6)
        assert names(database, aim) == (0, 0)
        left_links = [(row.binding_key, row.old_record_id) for row in rows(database, LINKS)
                      if row.company_id == "acme"]  # fmt: skip
        assert sorted(left_links) == [
            ("k1", "a"), ("k2", "a"), ("k3", "a"), ("k3", "gone-2"), ("k3", "old"),
        ]  # fmt: skip
        paired = {(row.left_record, row.right_record, row.left_prints, row.right_prints)
                  for row in rows(database, SYNC_PAIRS) if row.company_id == "acme"}  # fmt: skip
        assert ("x3", "x4", b"l", b"r") in paired
        assert {one[1:] for one in paired if one[1] == "x1"} == {("x1", b"", b"r")}
        assert {(one[0], *one[2:]) for one in paired if one[0] == "x2"} == {("x2", b"l", b"")}
        assert not any("gone" in name for one in paired for name in one[:2])
        others = [row for table in (LINKS, PLUGIN_IDS, SYNC_PAIRS) for row in rows(database, table)
                  if row.company_id == "other"]  # fmt: skip
        assert len(others) == 9 + 9 + 3


# What a change makes, who looks when, and what a home keeps


@pytest.mark.parametrize("name", FIELDS)
def test_a_correction_makes_of_a_record_what_it_asks(name: str) -> None:
    for was, value in (FIELDS[name], FIELDS[name][::-1]):
        given = {name: value}
        if value is None:
            given = {"never_expires": True} if name == "expires_at" else {name: ""}
        before = record(**{"text": "a", "revision": "7", name: was})
        request = CorrectRequest(scope=P, handle=before.handle, **given)
        after = corrected(before, request)
        assert after.model_dump(exclude={name}) == before.model_dump(exclude={name})
        assert (getattr(after, name) or None) == (value or None)
        told = changed_fields(before, after, UTC)
        if name == "text":
            assert told == []
        else:
            [(field, words)] = told
            assert field == name.removesuffix("_at")
            assert " → " in words


@pytest.mark.parametrize(
    ("until", "ends"),
    [(None, NOW), (NOW - timedelta(days=1), NOW - timedelta(days=1)),
     (NOW + timedelta(days=1), NOW)],
)  # fmt: skip
def test_who_looks_at_a_moment_sees_what_began_by_then(
    until: datetime | None, ends: datetime
) -> None:
    then = CALLER.at(NOW)
    found = then.by_then(Filter(until=until, agent_id="a"))
    instant = timedelta(microseconds=1) if ends == NOW else timedelta(0)
    assert (found.until, found.agent_id) == (ends + instant, "a")
    assert CALLER.by_then(Filter(until=until)).until == until
    assert then.at(None) == then


def test_a_token_of_a_project_has_the_roles_that_hold_there() -> None:
    held = [
        Membership(principal="user:ana", role=Role.ADMIN, project_id="p"),
        Membership(principal="user:ana", role=Role.MEMBER),
        Membership(principal="user:ana", role=Role.OWNER, project_id="q"),
    ]
    assert [(one.role, one.project_id) for one in _in_project(held, "p")] == [
        (Role.ADMIN, "p"), (Role.MEMBER, "p"),
    ]  # fmt: skip
    with pytest.raises(Denied):
        _in_project(held[::2], "r")
    for some, action, scope, is_refused in (
        (held[:1], Permission.DELETE, P, False), (held[:1], Permission.DELETE, Q, True),
        (held[:1], Permission.VIEW, Q, True), (held[1:2], Permission.VIEW, Q, False),
        (held[1:2], Permission.DELETE, P, True), (held[::2], Permission.DELETE, ACME, True),
        (held[::2], Permission.VIEW, ACME, True), (held[1:2], Permission.ADD_AI, ACME, False),
        (held[::2], Permission.ADD_AI, ACME, True), (held[1:2], Permission.CONFIGURE, ACME, True),
        (held[::2], Permission.CONFIGURE, P, True),
    ):  # fmt: skip
        assert (refusal(some, action, scope) is not None) is is_refused, (action, scope)


@pytest.mark.parametrize(
    ("inside", "is_derived"),
    [("bindings/local/default/index", True), ("bindings/local/default/vault", False),
     ("bindings/local/index", False), ("bindings/local/default/vault/index", False),
     ("archive/.work", True), ("archive/local/daily-3", True), ("archive/local/seg", False),
     ("migrations/local/default/index", False)],
)  # fmt: skip
def test_what_is_made_anew_stays_out_of_a_backup(inside: str, is_derived: bool) -> None:
    assert _is_derived(PurePosixPath(inside)) is is_derived


async def test_what_was_to_stay_is_looked_at_in_every_binding(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.add(CALLER, "second", "fake", {})
    read: dict[str, list[Record]] = {}
    for key in ("default", "second"):
        for text in ("stays", "goes"):
            given: dict[str, Any] = {"scope": P, "source": SOURCE, "content": text}
            answer = await service.write(CALLER, WriteRequest(**given, binding_key=key))
            read.setdefault(key, []).append(answer.records[0])
    going = {key: own[1:] for key, own in read.items()}
    staying = {key: own[:1] for key, own in read.items()}
    change = CorrectRequest(
        scope=P, handle=staying["second"][0].handle, text="other", binding_key="second"
    )
    await service.correct(CALLER, change)
    found = await forget(service, CALLER, going, staying)
    [failed] = found.failed
    assert (failed.binding_key, failed.error_kind) == ("second", "conflict")
    left = {key: sorted(one.text for one in fake.records[f"acme/{key}"].values()) for key in read}
    assert left == {"default": ["stays"], "second": ["goes", "other"]}


def test_the_figures_of_a_run_are_its_own() -> None:
    def part(run_id: str, **fields: Any) -> RunPart:
        given: dict[str, Any] = {
            "run_id": run_id, "operation_type": "query", "status": "ok", "agent_id": None,
            "project_id": None, "subject_id": None, "issue_id": None, "principal": "user:ana",
            "channel": "cli", "operations": 2, "with_results": 1, "first_seq": 3, "last_seq": 4,
            "first_at": NOW, "last_at": NOW,
        }  # fmt: skip
        return RunPart(**{**given, **fields})

    later = NOW + timedelta(hours=1)
    figures = RunFigures(
        parts=[
            part("a"),
            part("a", status="pending", operation_type="write", operations=5, last_seq=9),
            part("a", status="error", principal="agent:x", first_at=NOW - timedelta(hours=1)),
            part("b", operation_type="write", project_id="p", last_at=later, first_seq=1),
        ],
        contexts=[
            RunContexts("a", "true", "7", 2), RunContexts("a", "false", "9", 4),
            RunContexts("a", None, "5", 1), RunContexts("b", "true", "11", 3),
        ],
        usage=[RunUsage("a", 2, 1, 3, 4, 5, 10**12), RunUsage("b", 2, 2, 30, 40, 50, 0),
               RunUsage("a", 1, 0, 1, 1, 1, 10**12)],
        damaged=[],
    )  # fmt: skip
    found = _runs(figures)
    a, b = found["a"], found["b"]
    assert (a.operations, a.queries, a.writes, a.pending, a.failures) == (9, 4, 0, 5, 2)
    assert (a.first_seq, a.last_seq, a.started_at, a.last_at) == (
        3,
        9,
        NOW - timedelta(hours=1),
        NOW,
    )
    assert (a.input_tokens, a.output_tokens, a.embedding_tokens, a.unpriced_count) == (4, 5, 6, 1)
    assert a.cost_usd == Decimal(2)
    assert b.cost_usd is None
    assert (b.contexts, b.tokens_given, b.writes, b.projects) == (3, 33, 2, ("p",))
    assert (a.projects, a.principals) == ((), ("agent:x", "user:ana"))
    assert (a.contexts, a.tokens_given, b.input_tokens) == (3, 19, 30)


@pytest.mark.parametrize(("runs", "run"), [(("r", "r"), "r"), (("r", "s"), None), (("r",), "r")])
async def test_what_is_forgotten_comes_from_what_all_of_it_comes_from(
    service: MemoryService, runs: tuple[str, ...], run: str | None
) -> None:
    handles: list[RecordHandle] = []
    for number, name in enumerate(runs):
        source = SOURCE.model_copy(update={"run_id": name})
        request = WriteRequest(scope=P, source=source, content=f"Note {number}")
        handles += (await service.write(CALLER, request)).handles
    gone = await service.forget(CALLER, ForgetRequest(scope=P, handles=tuple(handles)))
    logged = (await service.log.get(CALLER, gone.operation_id)).source
    assert (logged and logged.run_id) == run


@pytest.mark.parametrize("name", ["pinned", "topic", "tags", "expires_at", "never_expires"])
async def test_the_log_says_what_a_correction_sets(service: MemoryService, name: str) -> None:
    [it] = (await service.write(CALLER, WriteRequest(scope=P, source=SOURCE, content="a"))).handles
    value = FIELDS[name][1] if name in FIELDS else True
    change = CorrectRequest.model_validate({"scope": P, "handle": it, name: value})
    done = await service.correct(CALLER, change)
    told = change.model_dump(mode="json", include={name})[name]
    logged = {**(await service.log.get(CALLER, done.operation_id)).request}[name]
    assert logged == (value.isoformat() if isinstance(value, datetime) else told)


async def test_a_list_that_is_kept_is_dropped_by_every_change(service: MemoryService) -> None:
    routed = await service.runtime.resolve(CALLER, P, None)
    connection = await service.runtime.open(routed.binding, company_read_only=False)
    found: Any = connection.found
    request = WriteRequest(scope=P, source=SOURCE, content="a")
    found["asked"] = "a list"
    [it] = (await service.write(CALLER, request)).handles
    assert not found
    found["asked"] = "a list"
    await service.get(CALLER, it, P)
    assert found
    for change in (
        service.correct(CALLER, CorrectRequest(scope=P, handle=it, tags=("x",))),
        service.forget(CALLER, ForgetRequest(scope=P, handles=(it,))),
        service.undo(CALLER),
    ):
        found["asked"] = "a list"
        await change
        assert not found


async def test_of_a_key_that_stands_often_the_nearest_and_newest_counts(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.add(CALLER, "second", "fake", {})
    agent = Scope(company_id="acme", agent_id="coding")

    def put(key: str, name: str, scope: Scope, days: int, field: str = "valid_from") -> None:
        at = NOW + timedelta(days=days)
        fields: dict[str, Any] = {"kind": "fact", field: at}
        held = fake.records.setdefault(f"acme/{key}", {})
        held[name] = record(name, f"branch: {name}", scope, **fields)

    async def told(scope: Scope, **asked: Any) -> tuple[list[Any], str]:
        found = await service.facts.get(CALLER, "branch", FactRequest(scope=scope, **asked))
        [listed] = (await service.facts.keys(CALLER, FactRequest(scope=scope, **asked))).facts
        assert (listed.value, listed.hidden, listed.why) == (found.value, found.hidden, found.why)
        return [found.value, *(one.value for one in found.hidden)], found.why

    both = P.model_copy(update={"agent_id": "coding"})
    put("default", "wide", ACME, 9)
    assert await told(both) == (
        ["wide"], "Nobody but company acme has this key; default holds it (company default).",
    )  # fmt: skip
    put("default", "agents", agent, 8)
    put("default", "other", Q, 7)
    for name, days, field in (("mid", 2, "updated_at"), ("old", 1, "created_at"),
                              ("new", 3, "valid_from")):  # fmt: skip
        put("default", name, P, days, field)
    names, why = await told(both)
    assert names == ["new", "mid", "old", "agents", "wide"]
    assert why == (
        "Project p comes before agent coding and company acme; it is the newest of 3 in project p; "
        "default holds it (company default)."
    )
    put("second", "far", P, 20)
    put("second", "wider", ACME, 21)
    names, why = await told(both, all_bindings=True)
    assert names == ["new", "mid", "old", "far", "agents", "wide", "wider"]
    assert "default is the binding of project p; default holds" in why
    names, why = await told(both, binding_key="second")
    assert (names, why) == (
        ["far", "wider"], "Project p comes before company acme; second holds it (asked for).",
    )  # fmt: skip
    await service.bindings.set_target(CALLER, "project", "p", "second")
    names, why = await told(both)
    assert names == ["far", "agents", "wide"]
    await service.bindings.update(CALLER, "second", enabled=False)
    found = await service.facts.get(CALLER, "branch", FactRequest(scope=both))
    assert (found.value, len(found.problems)) == ("agents", 1)
    assert found.problems[0].message.startswith("project p: ")


async def test_only_facts_of_one_place_are_merged_and_a_failed_merge_is_told_whole(
    service: MemoryService, fake: type[FakeAdapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"source": SOURCE, "kind": "fact"}

    async def write(text: str, scope: Scope = P, **more: Any) -> Record:
        asked = WriteRequest.model_validate({"content": text, "scope": scope, **given, **more})
        return (await service.write(CALLER, asked)).records[0]

    one, two, other = await write("a: 1"), await write("b: 2", tags=("x",)), await write("c: 3", Q)
    for others in ([], [one], [two, other], [other]):
        with pytest.raises(Invalid):
            await merge(service, CALLER, one, others, binding_key="default")
    held = fake.records["acme/default"]
    assert len(held) == 3

    async def fails(self: FakeAdapter, *_: Any) -> Any:
        raise down()

    for restores in (True, False):
        monkeypatch.setattr(FakeAdapter, "correct", fails)
        if not restores:
            monkeypatch.setattr(FakeAdapter, "restore", fails)
        with pytest.raises(Unavailable) as caught:
            await merge(service, CALLER, one, [one, two], binding_key="default")
        assert ("could not be brought back" in str(caught.value)) is not restores
        assert sorted(r.text for r in held.values()) == ["a: 1", *["b: 2"] * restores, "c: 3"]
    monkeypatch.undo()
    undone = str(caught.value).partition("memtui undo ")[2].partition("`")[0]
    await service.undo(CALLER, undone)
    assert sorted(r.text for r in held.values()) == ["a: 1", "b: 2", "c: 3"]


@pytest.mark.parametrize("name", [one for one in WRITTEN if one not in {"valid_from", "valid_to"}])
def test_a_field_that_any_record_of_a_write_lacks_is_told(name: str) -> None:
    adapter: Any = SimpleNamespace(lacks=frozenset({name}), only_facts=False)
    asked = {one: WRITTEN[one] for one in WRITTEN if not one.startswith("valid")}
    whole = record(**asked)
    nothing = {"pinned": False, "tags": (), "metadata": {}}.get(name)
    lacking = whole.model_copy(update={name: nothing})
    for stored in ([whole, lacking], [lacking, whole], [lacking]):
        assert not_kept(adapter, asked, stored) == (name,)
    assert not_kept(adapter, asked, [whole, whole]) == ()
    is_filled = name not in {"kind", "created_at", "pinned", "expires_at"}
    assert filled_in(adapter, [name, "other"]) == ((name,) if is_filled else ())
    again = filled(adapter, lacking, fields_of(whole))
    assert again == (whole if is_filled else lacking)
    other = whole.model_copy(update={name: "theirs" if name != "tags" else ("theirs",)})
    if name == "metadata":
        other = whole.model_copy(update={name: {"a": 2, "b": 3}})
    kept = filled(adapter, other, fields_of(whole))
    assert kept == (whole if name == "created_by" else other)


ABLE: dict[str, set[str]] = {
    "browse": {"browse"}, "explain": {"explain"}, "profile": {"profile"}, "correction": {"correct"},
    "history": set(), "restore": set(),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ABLE, None])
@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_a_provider_does_what_it_can_and_changes_only_where_it_may(
    name: str | None, writable: bool, closed: bool
) -> None:
    given = {name: True} if name else {}
    found = abilities(Capabilities(writable=writable, **given), closed=closed)
    expected = {"query", "get", *ABLE.get(name or "", ())} | {"write", "forget"}
    if closed or not writable:
        expected -= {"write", "forget", "correct"}
    assert found == expected


async def test_what_all_bindings_used_and_could_not_read_is_told_of_each(
    service: MemoryService, fake: type[FakeAdapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("default", "second", "third")
    for key in keys[1:]:
        await service.bindings.add(CALLER, key, "fake", {})
    for key in keys:
        request = WriteRequest(scope=P, source=SOURCE, content=f"Ship {key}", binding_key=key)
        await service.write(CALLER, request)
    query: Any = FakeAdapter.query

    async def found(self: FakeAdapter, request: QueryRequest) -> ContextBundle:
        if self.context.binding_key == "third":
            raise down()
        bundle: ContextBundle = await query(self, request)
        name = self.context.binding_key
        used = (Usage(provider=name, input_tokens=1), Usage(provider=name, input_tokens=2))
        return bundle.model_copy(update={"usage": used})

    async def problems(self: FakeAdapter, _: Scope) -> Sequence[Problem]:
        if self.context.binding_key == "second":
            raise down()
        return [Problem(message="one"), Problem(message="two")]

    monkeypatch.setattr(FakeAdapter, "query", found)
    monkeypatch.setattr(FakeAdapter, "problems", problems)
    answer = await service.everywhere.query(CALLER, QueryRequest(scope=P, query="ship"))
    names = ("default", "default", "second", "second")
    assert [(one.provider, one.input_tokens) for one in answer.usage] == [
        (name, number) for name, number in zip(names, (1, 2, 1, 2), strict=True)
    ]
    *both, unknown = [one.message for one in answer.problems]
    assert (both, str(down()) in unknown) == (["one", "two"], True)
    assert [one.binding_key for one in answer.failed] == ["third"]
    assert sorted(one.text for one in answer.snippets) == ["Ship default", "Ship second"]
    logged = (await service.log.page(CALLER, limit=3)).operations
    assert {one.binding_key: (one.status, len(one.usage)) for one in logged} == {
        "default": ("ok", 2), "second": ("ok", 2), "third": ("error", 0),
    }  # fmt: skip


async def test_what_was_written_to_a_binding_is_taken_back_in_that_one_alone(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.add(CALLER, "spare", "fake", {})
    asked = WriteRequest(scope=P, source=SOURCE, content="a", binding_key="spare")
    written = (await service.write(CALLER, asked)).operation_id
    held = fake.records["acme/spare"]
    await service.bindings.update(CALLER, "spare", read_only=True)
    await service.bindings.update(CALLER, "spare", read_only=False)
    await service.bindings.remove(CALLER, "spare")
    removed = (await service.log.page(CALLER, limit=1)).operations[0].operation_id
    with pytest.raises(NotFound):
        await service.undo(CALLER, written)
    await service.bindings.add(CALLER, "spare", "fake", {})
    added = (await service.log.page(CALLER, limit=1)).operations[0].operation_id
    with pytest.raises(Conflict):
        await service.undo(CALLER, written)
    assert [one.text for one in held.values()] == ["a"]
    for one in (added, removed):
        await service.undo(CALLER, one)
    await service.undo(CALLER, written)
    assert not held
