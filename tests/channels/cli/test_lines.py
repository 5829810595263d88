"""What commands print of a record and of an answer: each field, each of several, each exit code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.channels.cli import facts, forget, ops, records
from memtui.contract import Location, Record, RecordHandle, Scope, SourceRef
from memtui.service.answers import BindingOutcome, MutationAnswer

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ACME = Scope(company_id="acme")
SESSION: Any = SimpleNamespace(
    zone=UTC, now=NOW, company=SimpleNamespace(link=lambda _: "https://tracker/PAP-12")
)


def handles(*ids: str) -> tuple[RecordHandle, ...]:
    return tuple(RecordHandle(provider_key="x", provider_record_id=one) for one in ids)


def answer(**fields: Any) -> MutationAnswer:
    given = {"operation_id": "op", "binding_key": "default", "binding_reason": "", "latency_ms": 1}
    return MutationAnswer.model_validate(given | fields)


FIELDS: dict[str, tuple[Any, str]] = {
    "title": ("The title", "The title"), "summary": ("In short", "In short"),
    "kind": ("guidance", "guidance"), "topic": ("git", "git"), "tags": (("a", "b"), "a, b"),
    "source": (SourceRef(kind="issue", company_id="acme", issue_id="PAP-12"), "PAP-12"),
    "created_by": ("user:eve", "user:eve"), "created_at": (NOW, "2026-03-01"),
    "updated_at": (NOW + timedelta(days=1), "2026-03-02"),
    "expires_at": (NOW + timedelta(days=2), "2026-03-03"), "pinned": (True, "yes"),
    "valid_to": (NOW + timedelta(days=3), "2026-03-04"), "revision": ("rev7", "rev7"),
    "location": (Location(path="notes/a.md", line=9), "notes/a.md:9"),
    "problem": ("It is torn", "It is torn"),
    "caution": ("It is written again each night", "It is written again each night"),
    "metadata": ({"build": 7}, '{"build": 7}'),
}  # fmt: skip
UNTOLD = {"handle", "text", "scope", "valid_from", "read_only"}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_record_has_a_line(name: str) -> None:
    assert FIELDS.keys() == Record.model_fields.keys() - UNTOLD
    value, words = FIELDS[name]
    [it] = handles("r1")
    plain = Record(handle=it, text="a", scope=ACME)
    before = [*records._details(SESSION, plain)]
    after = [*records._details(SESSION, plain.model_copy(update={name: value}))]
    new = [one for one in after if one not in before]
    assert new
    assert any(one.endswith(words) or words in one for one in new)
    assert any("r1" in one for one in before)


def test_each_record_that_stays_is_told() -> None:
    gone = answer(
        handles=handles("r1", "r2"), missing=handles("r3", "r4"),
        refused={"r5": "It is fixed.", "r6": "It is read."}, ghosts=handles("r7", "r8"),
    )  # fmt: skip
    told = "\n".join(forget.forgotten(gone))
    for words in ("no record r3", "no record r4", "r5 was not forgotten: It is fixed.",
                  "r6 was not forgotten: It is read.", "returns r7", "returns r8",
                  "Forgot 2 records from default", "brings them back"):  # fmt: skip
        assert words in told
    assert "brings it back" in "\n".join(forget.forgotten(answer(handles=handles("r1"))))
    assert forget.ids_of(["b", "a", "b", ""]) == ["b", "a"]


FAULTS: list[dict[str, Any]] = [
    {"missing": handles("r1")}, {"refused": {"r1": "Why."}}, {"ghosts": handles("r1")},
]  # fmt: skip


@pytest.mark.parametrize("fault", [None, *FAULTS], ids=str)
def test_what_stays_is_an_exit_of_1(fault: dict[str, Any] | None) -> None:
    out: Any = SimpleNamespace(out=SimpleNamespace(answer=lambda *_: None))
    done = answer(handles=handles("r2"))
    bad = answer(handles=handles("r2"), **(fault or {}))
    assert forget.answer_forgotten(out, [bad]) == int(fault is not None)
    for answers in ((done, bad), (bad, done)):
        assert forget.answer_forgotten(out, answers) == int(fault is not None)
    failed = BindingOutcome(binding_key="b", provider_key="x", status="failed")
    assert forget.answer_forgotten(out, [done], [failed]) == 1


def test_several_changes_are_taken_back_by_the_last_of_them() -> None:
    one, two = answer(operation_id="first"), answer(operation_id="last")
    [told] = facts._changed([one, two])
    assert "2 facts" in told
    assert "undo last undoes all" in told
    assert len([*facts._changed([one])]) == 1


async def test_what_follows_is_asked_for_behind_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    pages = [[3, 2], [7, 6, 5], []]

    async def page(*_: Any, after: int) -> Any:
        asked.append(after)
        found = [SimpleNamespace(seq=seq) for seq in pages[len(asked) - 1]]
        return SimpleNamespace(operations=found)

    async def nothing(*_: Any) -> None:
        if len(asked) == len(pages):
            raise KeyboardInterrupt

    session: Any = SimpleNamespace(
        service=SimpleNamespace(log=SimpleNamespace(page=page)), caller=None
    )
    monkeypatch.setattr(ops, "_print_each", nothing)
    first: Any = [SimpleNamespace(seq=1), SimpleNamespace(seq=0)]
    chosen: Any = None
    with pytest.raises(KeyboardInterrupt):
        await ops._follow(session, chosen, first)
    assert asked == [1, 3, 7]
