from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtui.backends.plugin_v1.config import NamespaceMap, Templates
from memtui.backends.plugin_v1.memories import (
    details_of,
    handle_of,
    is_expired,
    places,
    record_of,
    split,
    wire_id,
)
from memtui.backends.plugin_v1.wire import (
    Memory,
    moment,
    read_health,
    read_hits,
    read_namespace,
    read_written,
)
from memtui.contract import MemtuiError, Snippet

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


def one(**fields: Any) -> Memory:
    return read_hits({"memories": [ROW | fields]}).memories[0]


@example({"memories": [ROW | {"propagation": {"memtui": {"title": "\ud800", "id": "\ud800"}}}]})
@given(anything | st.fixed_dictionaries({"memories": st.lists(row_like, max_size=5)}))
def test_any_json_is_read_or_is_an_error_of_the_contract(answer: Any) -> None:
    for read in (read_health, read_written, partial(read_namespace, name="org:x")):
        with suppress(MemtuiError):
            read(answer)
    rows: tuple[Memory, ...] = ()
    with suppress(MemtuiError):
        hits = read_hits(answer)
        rows = hits.memories
        assert len(rows) + hits.unreadable == hits.returned == len(answer.get("memories") or [])
    for row in rows:
        is_expired(row, NOON)
        record = record_of(row, NAMES)
        json.loads(record.model_dump_json())
        assert record.scope.company_id == "acme"
        assert record.revision == record_of(row, NAMES).revision
        assert Snippet(**dict(record), score=row.score).text == record.text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
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
        "scope": {"project_id": "other", "agent_id": "coder", "company_id": "evil"},
        "source": {"kind": "run", "company_id": "evil", "run_id": "r-1"},
    }})  # fmt: skip
    record = record_of(row, NAMES)
    assert (record.scope.company_id, record.scope.project_id) == ("acme", "web")
    assert record.source is not None
    assert record.source.company_id == "acme"


def test_what_others_keep_is_shown_and_what_cannot_be_read_is_no_part_of_ours() -> None:
    row = one(propagation={"trace": [1], "memtui": {"metadata": {"a": 1}}})
    assert record_of(row, NAMES).metadata == {"a": 1, "propagation": {"trace": [1]}}
    assert details_of(one(propagation={"memtui": {"tags": 7}})) is None
    assert details_of(one(propagation=[1])) is None


@given(st.text(min_size=1, max_size=40))
def test_an_id_names_one_place_in_a_namespace(record_id: str) -> None:
    found = places(record_id, ("workspace:web", "org:acme"))
    if split(record_id) is None:
        assert ("workspace:web", wire_id("workspace:web", record_id)) in found
    assert {namespace for namespace, _ in found} <= {"workspace:web", "org:acme"}
