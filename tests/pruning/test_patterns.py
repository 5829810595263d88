"""Patterns of change, from the versions of facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from memtui.contract import Record, RecordHandle, Scope
from memtui.pruning.patterns import FactVersion, Pattern, PatternKind, find_patterns

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def history(
    text: str, days: list[int | None], binding: str = "default", **more: Any
) -> list[FactVersion]:
    """Return versions `key: value-1`, `key: value-2` … that begin so many days ago."""
    scope = Scope(company_id="acme", **more.pop("scope", {"project_id": "apollo"}))
    starts = [None if day is None else NOW - timedelta(days=day) for day in days]
    ends = [*starts[1:], more.pop("ended", None)]
    key, _, values = text.partition(": ")
    return [
        FactVersion(
            binding_key=binding,
            record=Record(
                handle=RecordHandle(provider_key="vault", provider_record_id=f"{scope}{key}"),
                text=f"{key}: {value}",
                kind="fact",
                scope=scope,
                valid_from=start,
                valid_to=end,
                **more,
            ),
        )
        for value, start, end in zip(values.split("/"), starts, ends, strict=True)
    ]


def found(*versions: list[FactVersion]) -> list[Pattern]:
    return list(find_patterns([one for known in versions for one in known], now=NOW))


def test_a_key_that_changes_often() -> None:
    often = history("branch: a/b/a/c", [300, 80, 40, 10], topic="Project")
    [pattern] = found(often, history("calm: a/b/c", [300, 80, 40]))
    assert (pattern.kind, pattern.namespace, pattern.key) == (
        PatternKind.CHANGES_OFTEN, "Project", "branch",
    )  # fmt: skip
    assert pattern.sentence == "It changed 3 times in 90 days: “a” → “b” → “a” → “c”."
    assert list(pattern.versions) == often
    assert not found(history("same: a/a/a/a", [80, 60, 40, 10]))
    assert not found(history("older: a/b/c/d", [300, 200, 150, 95]))
    assert not found(history("gone: a/b/c/d", [80, 60, 40, 10], ended=NOW - timedelta(days=1)))


def test_a_value_that_stood_for_months_and_changed() -> None:
    [pattern] = found(history("db: one/two", [400, 5]))
    assert pattern.kind is PatternKind.CHANGED_LATE
    assert pattern.sentence == "It said “one” for 395 days, and has said “two” since 2026-04-26."
    assert not found(history("db: one/two", [400, 40]), history("x: one/two", [50, 5]))
    assert not found(history("db: one/two", [None, 5]), history("new: one", [5]))
    [rewritten] = found(history("db: one/one/two", [400, 30, 5]))
    assert "395 days" in rewritten.sentence


def test_scopes_that_disagree() -> None:
    company: dict[str, Any] = {"scope": {}, "topic": "Conventions"}
    coding: dict[str, Any] = {"scope": {"agent_id": "coding"}}
    of_apollo = history("naming: snake", [None], topic="conventions")
    of_zeus = history("naming: kebab", [9], scope={"project_id": "zeus"}, topic="Conventions")
    whole = history("naming: camel", [99], **company)
    [pattern] = found(
        whole, of_apollo, of_zeus, history("naming: snake", [9], scope={"agent_id": "x"})
    )
    assert pattern.kind is PatternKind.DISAGREES
    assert [one.record.text for one in pattern.versions] == [
        "naming: snake", "naming: kebab", "naming: camel",
    ]  # fmt: skip
    assert pattern.sentence == (
        "Project apollo in default says “snake”; project zeus in default says “kebab”; "
        "company acme in default says “camel”."
    )
    assert not found(of_apollo, of_zeus), "nobody is told what two projects say"
    assert not found(history("naming: camel", [9]), history("naming: x", [9], **company))
    assert not found(whole, history("naming: camel", [9], topic="Conventions"))
    [twice] = found(history("n: 1", [9]), history("n: 2", [9], "kb"))
    assert twice.sentence == "Project apollo in default says “1”; project apollo in kb says “2”."
    both: dict[str, Any] = {"scope": {"project_id": "apollo", "agent_id": "coding"}}
    assert len(found(history("n: 1", [9], **both), history("n: 2", [9], **coding))) == 1
    assert not found(history("n: [a,b]", [9]), history("n: [a, b]", [9], "kb"))
