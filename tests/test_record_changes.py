"""Every field that a change can set is told of, before it is let in and after."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteMode,
    WriteRequest,
)
from memtui.record_changes import asked_fields, changed_fields, corrected, texts_beside

HANDLE = RecordHandle(provider_key="vault", provider_record_id="a.md")
SCOPE = Scope(company_id="acme")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="acme")
BERLIN = ZoneInfo("Europe/Berlin")
SUMMER, WINTER = (datetime(2026, month, 1, 22, 30, tzinfo=UTC) for month in (7, 12))

FIELDS: dict[str, tuple[Any, str, str]] = {
    "title": ("Ports", "title", "Ports"),
    "summary": ("In short", "summary", "In short"),
    "kind": ("guidance", "kind", "guidance"),
    "topic": ("ops", "topic", "ops"),
    "tags": (("a", "b"), "tags", "a, b"),
    "pinned": (True, "pinned", "yes"),
    "expires_at": (SUMMER, "expires", "2026-07-02 00:30:00 CEST"),
    "metadata": ({"x": {"y": [1]}}, "metadata", "x.y: [1]"),
}
"""A value of each field, and what is said of it."""
BESIDE: dict[str, tuple[Any, str, str]] = {
    "created_by": ("agent:coding", "author", "agent:coding"),
    "created_at": (WINTER, "made", "2026-12-01 23:30:00 CET"),
    "valid_from": (SUMMER, "holds from", "2026-07-02 00:30:00 CEST"),
    "valid_to": (WINTER, "holds to", "2026-12-01 23:30:00 CET"),
    "record_id": ("b.md", "stored as", "b.md"),
    "embedding": ((0.5, 0.5), "vector", "2 numbers of its own, by which it is found"),
}
"""The same of what a write says besides."""
_NO_FIELDS = {"scope", "source", "binding_key", "content", "mode", "users"}


def record(**fields: Any) -> Record:
    return Record.model_validate({"handle": HANDLE, "text": "It.", "scope": SCOPE} | fields)


def write(**fields: Any) -> WriteRequest:
    given = {"scope": SCOPE, "source": SOURCE, "content": "It."}
    return WriteRequest.model_validate(given | fields)


def correct(**fields: Any) -> CorrectRequest:
    return CorrectRequest.model_validate({"scope": SCOPE, "handle": HANDLE} | fields)


def test_each_field_of_a_write_is_told() -> None:
    every = FIELDS | BESIDE
    assert every.keys() == WriteRequest.model_fields.keys() - _NO_FIELDS, "tell the new field"
    for name, (value, word, said) in every.items():
        assert asked_fields(write(**{name: value}), BERLIN) == [(word, said)]
    told = asked_fields(write(**{name: value for name, (value, *_) in every.items()}), BERLIN)
    assert told == [(word, said) for _, word, said in every.values()]
    assert asked_fields(write(record_id="b.md", mode=WriteMode.UPSERT)) == [
        ("stored as", "in the place of b.md")
    ]
    assert asked_fields(write()) == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_changes_is_told_with_what_it_was(name: str) -> None:
    value, word, said = FIELDS[name]
    plain, rich = record(), record(**{name: value})
    none = {"pinned": "no", "expires": "never", "kind": "note"}.get(word, "none")
    path, _, shown = said.rpartition(": ") if name == "metadata" else ("", "", said)
    lead = f"{path}: " if path else ""
    assert changed_fields(plain, rich, BERLIN) == [(word, f"{lead}{none} → {shown}")]
    assert changed_fields(rich, plain, BERLIN) == [(word, f"{lead}{shown} → {none}")]
    assert changed_fields(None, rich, BERLIN) == [(word, said)]
    assert changed_fields(rich, None, BERLIN) == [(word, said)]
    assert changed_fields(rich, rich.model_copy(update={"text": "Another."})) == []


def test_each_field_of_a_correction_is_told_and_made() -> None:
    of_record = {"summary", "topic", "tags", "pinned", "expires_at"}
    fixed = {"scope", "handle", "binding_key", "text", "revision", "source", "never_expires"}
    assert of_record | {"created_by"} == CorrectRequest.model_fields.keys() - fixed
    before = record(**{name: value for name, (value, *_) in FIELDS.items()})
    for name in of_record:
        value, word, said = FIELDS[name]
        assert asked_fields(correct(**{name: value}), BERLIN) == [(word, said)]
        made = corrected(record(), correct(**{name: value}))
        assert made == record(**{name: value})
    for name, empty, word, said in (
        ("summary", "", "summary", "none"), ("tags", (), "tags", "none"),
        ("pinned", False, "pinned", "no"), ("never_expires", True, "expires", "never"),
    ):  # fmt: skip
        assert asked_fields(correct(**{name: empty})) == [(word, said)]
        made = corrected(before, correct(**{name: empty}))
        changed = [one for one in Record.model_fields if getattr(made, one) != getattr(before, one)]
        assert changed == [name.replace("never_expires", "expires_at")]
        assert not getattr(made, changed[0])
    assert asked_fields(correct(created_by="user:bo", text="New.")) == [("author", "user:bo")]
    assert asked_fields(ForgetRequest(scope=SCOPE, handles=(HANDLE,))) == []


def test_every_text_that_a_model_reads_is_found() -> None:
    metadata = {"k": "v", "l": ["x", {"m": "y"}], "n": {"key": "port", "value": "1"}}
    it = record(title="T", summary="S", topic="O", tags=("a", "b"), metadata=metadata)
    assert texts_beside(it) == [
        "T", "S", "O", "a", "b", "k: v", "l: x", "m: y", "key: port", "port: 1"
    ]  # fmt: skip
    assert texts_beside(it, ["summary"]) == ["S"]
    assert texts_beside(record()) == []
