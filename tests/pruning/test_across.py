"""What one binding says of another: which repeats which, in which line, and which contradicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memtui.contract import Location, Record, RecordHandle, Scope
from memtui.pruning.candidates import find_across

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
WEB = Scope(company_id="acme", project_id="web")


def record(text: str, days: int, **fields: Any) -> Record:
    """Return a record so many days old."""
    at = NOW - timedelta(days=days)
    handle = RecordHandle(provider_key="vault", provider_record_id=fields.pop("name", text))
    given = {"handle": handle, "text": text, "kind": "note", "scope": WEB, "updated_at": at}
    return Record.model_validate(given | fields)


def found(
    records: dict[str, list[Record]], **options: Any
) -> list[tuple[str, str, str, str, str | None]]:
    """Return binding, text, reason, and the other text with its place, of each that could go."""
    return [
        (key, one.record.text, one.reason.value, other.text,
         f"{other.location.path}:{other.location.line}" if other.location else None)
        for key, some in find_across(records, now=NOW, tokens_of=len, **options).items()
        for one, other in some
    ]  # fmt: skip


SECTION = """Use four spaces for indentation.
Run it. Deploys need two approvals.
Ask Ana about billing.\f

1. Number one is a numbered item.
- [ ] A task that is in a checkbox.
  * First wrapped bullet continues
    on the next line.
> Quoted words stand here.

Wrapped sentences go over two lines
and are one sentence still. Use
`make` for everything.
Use tabs
only in Makefiles.
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("USE **four** spaces, for indentation", 8),
        ("Deploys need two approvals.", 9),
        ("Run it. Deploys need two approvals.", 9),
        ("Number one is a numbered item", 12),
        ("A task that is in a checkbox.", 13),
        ("First wrapped bullet continues on the next line.", 14),
        ("Quoted words stand here.", 16),
        ("Wrapped sentences go over two lines and are one sentence still.", 18),
        ("Use `make` for everything.", 19),
        ("Use tabs only in Makefiles.", 21),
        ("Use tabs", None),
        ("Use four spaces", None),
        ("Do not use four spaces for indentation.", None),
        ("Ask Ben about billing.", None),
        ("Deploys need two approvals. Releases are cut on Fridays.", None),
    ],
)
def test_the_line_or_sentence_of_a_file_that_says_it_is_named(text: str, line: int | None) -> None:
    section = record(SECTION, 1, location=Location(path="CLAUDE.md", line=8))
    records = {"notes": [record(text, 0)], "rules": [section]}
    told = [place for *_, reason, _, place in found(records, first={"rules"})
            if reason == "said_elsewhere"]  # fmt: skip
    assert told == ([f"CLAUDE.md:{line}"] if line else [])


def test_a_line_with_a_key_contradicts_an_older_fact() -> None:
    section = record("- deploy_branch: release\n- port: 80\n", 1, topic="loaded")
    fact = record("deploy_branch: main", 2, kind="fact", topic="Project")
    told = [("facts", "deploy_branch: main", "says_otherwise", "deploy_branch: release", None)]
    assert found({"facts": [fact], "rules": [section]}, first={"rules"}) == told
    newer = record("deploy_branch: main", 0, kind="fact")
    assert not found({"facts": [newer], "rules": [section]}, first={"rules"})


def test_each_other_binding_that_contradicts_it_is_named() -> None:
    old, mid = record("Deploys happen from main.", 9), record("Deploys happen from trunk.", 5)
    own = record("Deploys happen from release.", 1)
    told = found({"a": [old, own], "b": [mid], "c": [own]})
    assert {(key, text, other) for key, text, reason, other, _ in told
            if reason == "says_otherwise"} == {
        ("a", old.text, own.text), ("a", old.text, mid.text), ("b", mid.text, own.text),
    }  # fmt: skip


def test_of_two_that_say_the_same_one_stays() -> None:
    old, new = record("Use tabs now", 5, name="1"), record("use tabs now.", 1, name="1")
    assert [one[:2] for one in found({"a": [old], "b": [new]})] == [("a", old.text)]
    pinned = old.model_copy(update={"pinned": True})
    assert [one[:2] for one in found({"a": [pinned], "b": [new]})] == [("b", new.text)]
    fixed = {("a", old.handle)}  # records of two bindings may have one id
    assert [one[:2] for one in found({"a": [old], "b": [new]}, fixed=fixed)] == [("b", new.text)]
    assert not found({"a": [old], "b": [record("Use tabs now", 1, scope=Scope(company_id="acme"))]})


def test_a_person_decides_and_is_told_the_tokens_of_the_whole_record() -> None:
    notes = [record("Use tabs, now!", 5), record("Deploys happen from main.", 5)]
    others = [record("use tabs now", 1), record("Deploys happen from trunk.", 1)]
    across = find_across(
        {"a": notes, "b": others}, now=NOW, tokens_of=lambda text: 7 * len(text.split())
    )["a"]
    assert [(one.tokens_saved, one.suggested, one.survivor) for one, _ in across] == [
        (21, False, None), (28, False, None)
    ]  # fmt: skip


@pytest.mark.parametrize("over", [{"expires_at": NOW}, {"valid_to": NOW}])
def test_what_is_over_says_nothing_any_more(over: dict[str, datetime]) -> None:
    notes, ended = [record("Use tabs now", 5)], [record("use tabs now", 1, **over)]
    assert not found({"a": notes, "b": ended})
