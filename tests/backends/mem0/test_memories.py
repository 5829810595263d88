"""Memories of mem0 to records and back, at the edges of days and of what mem0 says."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from memtui.backends.mem0.memories import (
    Mem0Memory,
    day,
    draft_of,
    last_day,
    owners_of,
    read_memories,
    record_of,
    versions_of,
    written,
)
from memtui.contract import CorrectRequest, Invalid, RecordHandle, Scope, WriteRequest
from memtui.provider_kit.kept import KeptFields
from tests.backends.damaged import DAMAGED

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ACME = Scope(company_id="acme")
MOMENT = timedelta(microseconds=1)
FIELDS: dict[str, Any] = {
    "kind": "guidance", "title": "T", "summary": "S", "topic": "O", "tags": ("a", "b"),
    "created_at": NOW, "created_by": "user:ana", "expires_at": NOW, "pinned": True,
    "valid_from": NOW, "metadata": {"x": 1, "data": "kept apart"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "last"),
    [
        (datetime(2026, 6, 2, tzinfo=UTC), date(2026, 6, 1)),
        (datetime(2026, 6, 2, tzinfo=UTC) - MOMENT, date(2026, 6, 1)),
        (datetime(2026, 6, 2, tzinfo=UTC) + MOMENT, date(2026, 6, 2)),
        (datetime(2026, 3, 1, tzinfo=UTC), date(2026, 2, 28)),
        (None, None),
    ],
)
def test_the_last_day_is_that_before_a_midnight(ends: datetime | None, last: date | None) -> None:
    assert last_day(ends) == last


def test_a_day_that_mem0_tells_ends_at_its_end() -> None:
    memory = Mem0Memory(id="1", expiration_date="2026-06-01")
    assert record_of(memory, "acme", "shared").expires_at == datetime(2026, 6, 2, tzinfo=UTC)
    told = Mem0Memory(**dict(memory) | {"metadata": written(KeptFields(expires_at=NOW))})
    assert record_of(told, "acme", "shared").expires_at == NOW
    assert day("2026-06-01T23:30:00+00:00") == date(2026, 6, 1)
    assert day(None) is None


def test_each_field_comes_back() -> None:
    names = ("project_id", "agent_id", "run_id", "issue_id", "subject_id")
    scope = ACME.model_copy(update={name: f"my-{name}" for name in names})
    request = WriteRequest(scope=scope, source=None, content="Text.", **FIELDS)
    for has_apps in (True, False):
        draft = draft_of(request, "shared", has_apps=has_apps)
        assert draft.expires == date(2026, 6, 1)
        memory = Mem0Memory(id="1", memory=draft.text, metadata=draft.metadata, **draft.owners)
        record = record_of(memory, "acme", "shared")
        assert record.scope == scope
        assert {name: getattr(record, name) for name in FIELDS} == FIELDS
    nobody = draft_of(request.model_copy(update={"scope": ACME}), "shared", has_apps=True)
    assert nobody.owners == {"user_id": "shared"}
    memory = Mem0Memory(id="1", memory="x", metadata=nobody.metadata, **nobody.owners)
    assert record_of(memory, "acme", "shared").scope == ACME


@pytest.mark.parametrize("part", DAMAGED)
def test_a_memory_whose_details_cannot_be_read_is_none(part: object) -> None:
    rows = [{"id": "1", "memory": "x", "metadata": one} for one in ({"memtui": part}, {})]
    found = read_memories(rows)
    assert (len(found.items), found.unreadable) == (1, 1)


def test_a_project_is_a_name_or_a_number_or_the_memory_is_none() -> None:
    projects = ("apollo", 7, None, ["apollo"], {"id": "apollo"}, True)
    rows = [{"id": "1", "memory": "x", "metadata": {"project_id": one}} for one in projects]
    found = read_memories(rows)
    records = [record_of(one, "acme", "shared") for one in found.items]
    assert [one.scope.project_id for one in records] == ["apollo", "7", None]
    assert found.unreadable == 3


def test_a_correction_changes_what_it_names() -> None:
    fixed = {"scope", "handle", "binding_key", "text", "revision", "source", "created_by"}
    changes = {"summary": "S2", "topic": "O2", "tags": ("c",), "pinned": False,
               "expires_at": NOW + MOMENT, "never_expires": True}  # fmt: skip
    assert changes.keys() == CorrectRequest.model_fields.keys() - fixed
    before = KeptFields(**{k: v for k, v in FIELDS.items() if k != "metadata"})
    memory = Mem0Memory(id="1", metadata=written(before))
    assert memory.kept == before
    handle = RecordHandle(provider_key="mem0", provider_record_id="1")
    for name, value in changes.items():
        request = CorrectRequest.model_validate({"scope": ACME, "handle": handle, name: value})
        field, wanted = ("expires_at", None) if name == "never_expires" else (name, value)
        assert before.corrected(request) == before.model_copy(update={field: wanted})


def test_owners_that_mem0_mixes_up_are_refused() -> None:
    for ids in (
        {"subject_id": "shared"},
        {"agent_id": "*"},
        {"run_id": "a b"},
        {"project_id": "a b"},
    ):
        with pytest.raises(Invalid):
            owners_of(ACME.model_copy(update=ids), "shared", has_apps=True)
    assert owners_of(ACME.model_copy(update={"project_id": "p"}), "s", has_apps=True) == {
        "app_id": "p"
    }


def test_what_cannot_be_read_is_counted_and_the_others_stay() -> None:
    found = [{"id": "1"}, {"memory": "no id"}, "x", {"id": "2"}, {"id": ""}]
    rows = read_memories({"results": found})
    assert ([one.id for one in rows.items], rows.unreadable) == (["1", "2"], 3)


def test_history_is_of_texts_and_their_windows() -> None:
    def row(text: str | None, hours: int, **more: Any) -> dict[str, Any]:
        at = (NOW + timedelta(hours=hours)).astimezone(timezone(timedelta(hours=2)))
        return {"new_memory": text, "created_at": at.isoformat(), **more}

    told = versions_of([
        row("two", 2, actor_id="bo"), row("one", 0), row("one", 1), row("one", 3), row(None, 4),
        "no row", row("one", 5, updated_at=(NOW + timedelta(hours=6)).isoformat()),
    ])  # fmt: skip
    hour = timedelta(hours=1)
    assert [(one.text, one.valid_from, one.valid_to, one.created_by) for one in told] == [
        ("one", NOW + 6 * hour, None, None), ("one", NOW + 3 * hour, NOW + 4 * hour, None),
        ("two", NOW + 2 * hour, NOW + 3 * hour, "bo"), ("one", NOW, NOW + 2 * hour, None),
    ]  # fmt: skip
