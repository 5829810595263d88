"""A migration record restores what it keeps, and nobody gains by forging one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import Record, RecordHandle, Scope, SourceKind, SourceRef, Unavailable
from memtui.migration.envelope import (
    FIELDS,
    as_json,
    differing,
    living,
    pack,
    prints_of,
    unpack,
    unpack_clean,
)
from memtui.migration.index import RecordIndex
from memtui.store.tables import MIGRATED_FROM

NOW = datetime(2026, 5, 1, tzinfo=UTC)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def record(**fields: Any) -> Record:
    values: dict[str, Any] = {
        "handle": RecordHandle(provider_key="x", provider_record_id="r1"),
        "text": "We deploy from release",
        "scope": Scope(company_id="acme", project_id="p"),
    }
    return Record(**(values | fields))


def stored(given: Record, lost: set[str]) -> Record:
    """Return what a destination makes of a packed record if it loses some fields."""
    request = pack(unpack(given), "a", "b", lost, [])
    names = Record.model_fields.keys() & type(request).model_fields.keys()
    fields = {name: getattr(request, name) for name in names - lost}
    fields["scope"] = request.scope
    fields["created_at"] = fields.get("created_at") or NOW
    fields["created_by"] = fields.get("created_by") or "user:mover"
    return record(**fields, text=request.content)


@given(
    kept=st.fixed_dictionaries(
        {},
        optional={
            "kind": _TEXT,
            "title": st.none() | _TEXT,
            "topic": st.none() | _TEXT,
            "tags": st.lists(_TEXT, max_size=3).map(tuple),
            "created_at": st.none() | st.just(NOW - timedelta(days=9)),
            "created_by": st.none() | _TEXT,
            "expires_at": st.none() | st.just(NOW + timedelta(days=99_999)),
            "pinned": st.booleans(),
            "valid_from": st.none() | st.just(NOW),
            "valid_to": st.none() | st.just(NOW.replace(year=NOW.year + 1)),
            "source": st.none()
            | st.builds(SourceRef, kind=st.sampled_from(SourceKind), company_id=st.just("acme")),
            "metadata": st.dictionaries(
                _TEXT.filter(lambda name: name != MIGRATED_FROM), _JSON, max_size=3
            ),
        },
    ),
    lost=st.sets(st.sampled_from([*FIELDS[1:-2]])),
)
def test_what_is_lost_comes_back(kept: dict[str, Any], lost: set[str]) -> None:
    original = record(**kept)
    there = unpack(stored(original, lost - {"metadata", "scope"}))
    assert as_json(there.record) == as_json(original)
    assert there.prints == prints_of(original)
    assert there.migration_record is not None
    assert there.migration_record.origin_id == "r1"


def forged(**kept: object) -> Record:
    request = pack(unpack(record()), "a", "b", [], [])
    stamp = {**request.metadata[MIGRATED_FROM], "kept": json.dumps(kept)}
    return record(metadata={MIGRATED_FROM: stamp, "own": 1})


@pytest.mark.parametrize(
    "scope",
    [
        {"company_id": "acme"},
        {"company_id": "acme", "project_id": "q"},
        {"company_id": "other"},
        {"company_id": "acme", "agent_id": "x"},
    ],
)
def test_a_forged_passport_moves_no_record_to_another_owner(scope: dict[str, str]) -> None:
    assert unpack_clean(forged(scope=scope)).record.scope == record().scope


def test_another_company_of_the_same_project_is_no_way_out() -> None:
    scope = {"company_id": "other", "project_id": "p"}
    assert unpack(forged(scope=scope)).record.scope == record().scope


@pytest.mark.parametrize("kept", [{"text": "another"}, {"handle": {}}, {"revision": "9"}])
def test_a_passport_keeps_only_what_it_may(kept: dict[str, object]) -> None:
    found = unpack(forged(**kept))
    assert found.record.text == "We deploy from release"
    assert found.record_id == "r1"
    assert found.record.metadata == {"own": 1}


@pytest.mark.parametrize("stamp", [3, {}, {"binding": "a"}, None, "x"])
def test_a_broken_passport_is_metadata_like_any(stamp: object) -> None:
    found = unpack(record(metadata={MIGRATED_FROM: stamp}))
    assert found.migration_record is None
    assert found.record.metadata == {MIGRATED_FROM: stamp}


@pytest.mark.parametrize("kept", ["[]", "{", '{"created_at": "never"}', "[" * 100_000])
def test_a_broken_part_of_a_passport_harms_nothing(kept: str) -> None:
    request = pack(unpack(record()), "a", "b", [], [])
    found = unpack(
        record(metadata={MIGRATED_FROM: {**request.metadata[MIGRATED_FROM], "kept": kept}})
    )
    assert found.record.text == "We deploy from release"


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize(
    "fields", [{}, {"title": "Catan"}, {"title": "Catan", "summary": "A board game."}]
)
def test_a_record_without_a_text_is_carried(text: str, fields: dict[str, str]) -> None:
    given = record(text=text, metadata={"rating": 7}, **fields)
    there = stored(given, set())
    assert there.text == (fields.get("summary") or fields.get("title") or "(no text)")
    assert as_json(unpack(there).record) == as_json(given)
    edited = there.model_copy(update={"text": "Somebody wrote this."})
    assert unpack(edited).record.text == "Somebody wrote this."


def test_no_secret_leaves_with_a_record_without_a_text() -> None:
    envelope = unpack_clean(
        record(text="", title="Bearer sk-proj-abcdefghijklmnopqrstuvwxyz012345")
    )
    assert envelope.redacted
    assert "abcdefghij" not in envelope.record.model_dump_json()
    assert envelope.record.text == ""


def test_a_record_that_expired_where_nobody_knows_is_left_out() -> None:
    past = forged(expires_at="2020-01-01T00:00:00Z")
    ahead = forged(expires_at="2990-01-01T00:00:00Z")
    assert len(living([past, ahead], unpack)) == 1


def test_fields_that_differ_are_named() -> None:
    left, right = record(pinned=True, tags=("a",)), record(title="T", tags=("a",))
    assert differing(prints_of(left), prints_of(right)) == ("title", "pinned")


def test_an_index_that_cannot_be_used_says_so() -> None:
    with pytest.raises(Unavailable, match="temporary index"):
        _use_closed()


@pytest.mark.parametrize("place", ["Scratch", "sqlite3.connect"])
def test_a_full_temporary_folder_is_a_sentence(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"memtui.migration.index.{place}", full)
    with pytest.raises(Unavailable, match="temporary index"):
        RecordIndex("a", "b")


def _use_closed() -> None:
    with RecordIndex("a", "b") as index:
        index._database.close()
        index.named("x")
