from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtui.backends.plugin_v1.config import NamespaceMap, Templates
from memtui.backends.plugin_v1.memories import (
    PluginDetails,
    details_for,
    details_of,
    handle_of,
    is_expired,
    is_readable,
    places,
    propagation,
    record_of,
    split,
    wire_id,
)
from memtui.backends.plugin_v1.wire import (
    PluginMemory,
    moment,
    read_health,
    read_hits,
    read_namespace,
    read_written,
)
from memtui.contract import Record, Snippet, WriteRequest
from memtui.provider_kit.servers import Unreadable
from tests.backends.damaged import DAMAGED

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROW: dict[str, Any] = {
    "id": "1", "namespace": "workspace:web", "content": "x", "kind": "fact", "source": "user",
    "created_at": "2026-03-01T12:00:00Z",
}  # fmt: skip
NAMES = NamespaceMap(Templates(), "acme")

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["2026-03-01", "ok", "workspace:web", "1", "fact", "\ud800", "a\0"])
)  # fmt: skip
names = st.sampled_from([
    "memories", "id", "namespace", "content", "kind", "source", "pin", "created_at", "expires_at",
    "propagation", "score", "memtui", "status", "capabilities", "version", "metadata", "tags",
    "scope", "project_id", "company_id",
])  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=8),
    max_leaves=30,
)
parts = (
    "id", "source", "kind", "tags", "scope", "metadata", "created_at", "expires_at", "pinned",
    "title",
)  # fmt: skip
details = st.fixed_dictionaries({}, optional=dict.fromkeys(parts, anything))
row_like = st.fixed_dictionaries(
    dict.fromkeys(ROW, anything)
) | st.fixed_dictionaries(
    {name: st.just(value) for name, value in ROW.items()},
    optional={
        "pin": anything, "score": anything, "expires_at": anything,
        "propagation": anything | st.fixed_dictionaries({"memtui": details}),
    },
)  # fmt: skip


def sent(document: object) -> bytes:
    return json.dumps(document).encode()


def one(**fields: Any) -> PluginMemory:
    [memory] = read_hits(sent({"memories": [ROW | fields]})).memories
    return memory


@example({"memories": [ROW | {"propagation": {"memtui": {"title": "\ud800", "id": "\ud800"}}}]})
@given(anything | st.fixed_dictionaries({"memories": st.lists(row_like, max_size=5)}))
def test_any_json_is_read_or_is_an_error_of_the_contract(answer: Any) -> None:
    for read in (read_health, read_written, partial(read_namespace, name="org:x")):
        with suppress(Unreadable):
            read(sent(answer))
    rows: tuple[PluginMemory, ...] = ()
    with suppress(Unreadable):
        hits = read_hits(sent(answer))
        rows = hits.memories
        assert len(rows) + hits.unreadable == hits.returned == len(answer.get("memories") or [])
    for row in filter(is_readable, rows):
        is_expired(row, NOON)
        record = record_of(row, NAMES)
        json.loads(record.model_dump_json())
        assert record.scope.company_id == "acme"
        assert record.revision == record_of(row, NAMES).revision
        assert Snippet(**dict(record), score=row.score).text == record.text


OURS: dict[str, Any] = {
    "source": {"kind": "issue_comment", "issue_id": "I-1", "comment_id": "c-2", "run_id": "r-3",
               "company_id": "other"},
    "kind": "note", "title": "Title", "summary": "Short", "topic": "ops", "tags": ["a", "b"],
    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-02T00:00:00Z",
    "created_by": "user:ana", "expires_at": "2026-05-01T00:00:00Z", "pinned": True,
    "valid_from": "2026-01-03T00:00:00Z", "metadata": {"a": 1, "b": [2]},
    "scope": {"issue_id": "I-1", "run_id": "r-3", "agent_id": "coder", "subject_id": "ana"},
}  # fmt: skip


def test_a_memory_that_we_wrote_has_every_field_of_its_record() -> None:
    row = one(propagation={"memtui": OURS, "x": 1, "y": 2}, pin=False)
    record = record_of(row, NAMES)
    assert record.model_dump(mode="json", exclude={"handle", "revision", "location"}) == (
        Record(
            handle=record.handle, text="x", **OURS | {
                "source": {**OURS["source"], "company_id": "acme"},
                "scope": {**OURS["scope"], "company_id": "acme", "project_id": "web"},
                "metadata": {"a": 1, "b": [2], "propagation": {"x": 1, "y": 2}},
            },
        ).model_dump(mode="json", exclude={"handle", "revision", "location"})
    )  # fmt: skip
    assert record.revision == row.revision
    known = details_of(row)
    assert known is not None
    assert details_of(one(propagation=propagation(known, {"x": 1}))) == known
    assert propagation(known, {"x": 1})["x"] == 1


def test_a_memory_of_another_client_is_what_its_own_fields_say() -> None:
    bare = record_of(one(source="agent", kind="summary", propagation=None), NAMES)
    assert (bare.kind, bare.created_by, bare.created_at, bare.updated_at, bare.expires_at) == (
        "summary", "agent", NOON, NOON, None,
    )  # fmt: skip
    assert (bare.tags, bare.pinned, bare.metadata, bare.title, bare.source) == (
        (), False, {}, None, None,
    )  # fmt: skip
    both = one(pin=True, expires_at="2027-01-01T00:00:00Z", propagation={"memtui": OURS})
    assert record_of(both, NAMES).expires_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert record_of(one(pin=True), NAMES).pinned


@pytest.mark.parametrize(
    ("row", "is_past"),
    [
        ({"expires_at": "2026-03-01T12:00:00Z"}, True),
        ({"expires_at": "2026-03-01T12:00:00.000001Z"}, False),
        ({"propagation": {"memtui": {"expires_at": "2026-03-01T12:00:00Z"}}}, True),
        ({"propagation": {"memtui": {"expires_at": "2026-03-01T12:00:00.000001Z"}}}, False),
        ({"expires_at": "2027-01-01T00:00:00Z",
          "propagation": {"memtui": {"expires_at": "2026-01-01T00:00:00Z"}}}, True),
        ({}, False),
    ],
)  # fmt: skip
def test_a_memory_is_past_its_time_from_the_moment_on(row: dict[str, Any], is_past: bool) -> None:
    assert is_expired(one(**row), NOON) is is_past


def test_what_a_write_carries_for_the_wire_is_all_that_was_given() -> None:
    given = {name: value for name, value in OURS.items() if name != "updated_at"}
    request = WriteRequest(
        content="x", **given | {
            "scope": {"company_id": "acme", "project_id": "web", "agent_id": "coder"},
            "source": {**OURS["source"], "company_id": "acme"},
            "metadata": {"a": 1, "propagation": {"memtui": "theirs", "x": 1, "y": 2}},
        },
    )  # fmt: skip
    for carry in (True, False):
        details, others = details_for(
            request, given_id="notes/a", carry_expiry=carry, carry_pin=carry
        )
        assert others == {"x": 1, "y": 2}
        assert details.id == "notes/a"
        assert details.scope == {"project_id": "web", "agent_id": "coder"}
        assert details.metadata == {"a": 1}
        assert (details.expires_at is not None, details.pinned) == (carry, carry)
        for name in ("source", "kind", "title", "summary", "topic", "tags", "created_at",
                     "created_by", "valid_from"):  # fmt: skip
            assert getattr(details, name) == getattr(request, name), name


def test_replies_are_counted_and_joined_whole() -> None:
    found = read_hits(
        sent({"memories": [ROW, 7, ROW | {"id": "2"}, {"id": "3"}], "next_cursor": "c"})
    )
    assert (found.returned, found.unreadable, found.cursor, found.whole) == (4, 2, "c", False)
    assert list(found.by_place()) == [("workspace:web", "1"), ("workspace:web", "2")]
    more = replace(read_hits(sent({"memories": [ROW | {"id": "4"}]})), expired=3, strangers=5)
    assert more.whole
    for both in (found.joined(more), more.joined(found)):
        assert {memory.id for memory in both.memories} == {"1", "2", "4"}
        assert (both.returned, both.expired, both.strangers, both.unreadable) == (5, 3, 5, 2)
        assert not both.capped
        assert both.joined(replace(more, capped=True)).capped
        assert replace(both, capped=True).joined(more).capped
    assert read_hits(sent({"memories": None, "next_cursor": ""})).cursor is None
    health = read_health(sent({"status": "ok", "version": 2, "capabilities": ["fts", 3, "pin"]}))
    assert (health.status, health.version, health.capabilities, health.message) == (
        "ok", None, frozenset({"fts", "pin"}), "",
    )  # fmt: skip
    odd = read_health(sent({"status": "so-so", "version": "1.2", "capabilities": "fts"}))
    assert (odd.status, odd.version, odd.capabilities) == ("degraded", "1.2", None)
    assert "so-so" in odd.message
    named = read_namespace(sent({"kind": "team", "metadata": {"a": 1}, "expires_at": 0}), "team:x")
    assert (named.name, named.kind, named.metadata) == ("team:x", "team", {"a": 1})
    assert named.expires_at == datetime(1970, 1, 1, tzinfo=UTC)
    plain = read_namespace(sent({"kind": 7, "metadata": []}), "x:y")
    assert (plain.kind, plain.metadata, plain.expires_at) == ("custom", {}, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (100_000_000_000, datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC)),
        (99_999_999_999, datetime(5138, 11, 16, 9, 46, 39, tzinfo=UTC)),
        ("2026-03-01T12:00:00Z", NOON),
        ("2026-03-01T17:30:00.000000+05:30", NOON),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01 12:00:00+00", NOON),
        ("2026-03-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        (NOON.timestamp(), NOON),
        (int(NOON.timestamp() * 1000), NOON),
        ("", None),
        ("soon", None),
        (None, None),
        (True, None),
        ("0001-01-01T00:00:00+14:00", None),
        (1e300, None),
        (10**400, None),
        (float("nan"), None),
        ([], None),
    ],
)
def test_times_in_any_form(given: object, expected: datetime | None) -> None:
    assert moment(given) == expected


def test_the_servers_time_zone_is_no_change() -> None:
    here, there = one(), one(created_at="2026-03-01T17:30:00.000000+05:30", score=0.5)
    assert here.revision == there.revision


@pytest.mark.parametrize(
    "change",
    [{"content": "y"}, {"pin": True}, {"kind": "summary"}, {"propagation": {"a": 1}},
     {"expires_at": "2027-01-01T00:00:00Z"}, {"namespace": "org:acme"}],
    ids=str,
)  # fmt: skip
def test_any_change_changes_the_revision(change: dict[str, Any]) -> None:
    assert one().revision != one(**change).revision


def test_a_row_does_not_take_the_name_of_another() -> None:
    given = "6f1c7e9e-3a51-4a53-9b5e-0a8f3a0c1d11"
    liar = one(propagation={"memtui": {"id": given}})
    assert handle_of(liar).provider_record_id == "workspace:web/1"
    honest = one(id=wire_id("workspace:web", "notes/a.md"),
                 propagation={"memtui": {"id": "notes/a.md"}})  # fmt: skip
    assert handle_of(honest).provider_record_id == "notes/a.md"


def test_a_row_does_not_choose_its_company_or_project() -> None:
    row = one(propagation={"memtui": {
        "scope": {"project_id": "other", "agent_id": "coder"},
        "source": {"kind": "run", "company_id": "evil", "run_id": "r-1"},
    }})  # fmt: skip
    record = record_of(row, NAMES)
    assert (record.scope.company_id, record.scope.project_id) == ("acme", "web")
    assert record.source is not None
    assert record.source.company_id == "acme"


def test_what_others_keep_is_shown_and_a_memory_whose_owner_cannot_be_read_is_not() -> None:
    row = one(propagation={"trace": [1], "memtui": {"metadata": {"a": 1}}})
    assert record_of(row, NAMES).metadata == {"a": 1, "propagation": {"trace": [1]}}
    assert details_of(one(propagation=[1])) == PluginDetails()
    assert is_readable(one(propagation="of another program"))
    assert is_readable(one(propagation={"memtui": {"scope": {"subject_id": "ana"}}}))
    for part in ({"tags": 7}, {"scope": {"company_id": "evil"}}, *DAMAGED[:4]):
        assert not is_readable(one(propagation={"memtui": part}))
    assert not is_readable(one(propagation='{"memtui": {"scope": {"sub'))


@given(st.text(min_size=1, max_size=40))
def test_an_id_names_one_place_in_a_namespace(record_id: str) -> None:
    found = places(record_id, ("workspace:web", "org:acme"))
    if split(record_id) is None:
        assert ("workspace:web", wire_id("workspace:web", record_id)) in found
    assert {namespace for namespace, _ in found} <= {"workspace:web", "org:acme"}
