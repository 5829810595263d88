"""Importing the lines of a file leaves the same from the service and from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.contract import BrowseRequest, Denied, WriteRequest
from memtui.service import MemoryService, ReviewRule, RuleAction, RuleTest
from memtui.service.usecases.importing_lines import ImportLine, import_lines, plan_import
from tests.service.usecases.ways import (
    ANA,
    BOT,
    PERSON,
    SOURCE,
    Command,
    kept,
    last,
    logged,
    remember,
)

_TEXTS = ("Likes tea", "port: 81", "Has a cat", "Has a cat", "x" * 201, "tests: pytest")
_OUTCOMES = ["skipped", "changed", "added", "skipped", "refused", "added"]


def _lines(*texts: str, topic: str | None = None) -> list[ImportLine]:
    given = {"scope": ANA, "source": SOURCE, "kind": "fact", "topic": topic}
    requests = [WriteRequest.model_validate(given | {"content": one}) for one in texts]
    return [ImportLine(number, one.content, one) for number, one in enumerate(requests, start=1)]


async def _texts(service: MemoryService) -> list[str]:
    page = await service.browse(PERSON, BrowseRequest(scope=ANA))
    return [text for text, *_ in kept(page.records)]


@pytest.mark.parametrize("way", ["service", "command"])
async def test_each_line_has_its_outcome_and_one_undo_takes_all_back(
    way: str, service: MemoryService, command: Command, tmp_path: Path
) -> None:
    await remember(service, "Likes tea", "port: 80")
    begun = await last(service)
    if way == "service":
        lines = _lines(*_TEXTS)
        await plan_import(service, PERSON, lines)
        assert [one.outcome for one in lines] == _OUTCOMES
        assert await last(service) == begun
        await import_lines(service, PERSON, lines)
        found = {one.number: one.outcome for one in lines}
        assert [one.was for one in lines if one.was] == ["port: 80"]
    else:
        file = tmp_path / "facts.md"
        file.write_text("".join(f"- {text}\n" for text in _TEXTS))
        typed = await command("facts", "import", str(file), "--subject", "ana", "--json")
        assert typed.code == 1
        outcomes = ("added", "changed", "skipped", "refused")
        found = {one["line"]: name for name in outcomes for one in typed.document[name]}
    assert [found[number] for number in range(1, 7)] == _OUTCOMES
    assert await _texts(service) == ["Has a cat", "Likes tea", "port: 81", "tests: pytest"]
    changes = await logged(service, begun)
    assert [(one["type"], one["status"], one["group"]) for one in changes] == [
        ("correct", "ok", 1), ("write", "ok", 1), ("write", "ok", 1),
    ]  # fmt: skip
    await service.undo_together(PERSON)
    assert await _texts(service) == ["Likes tea", "port: 80"]


@pytest.mark.parametrize("way", ["service", "command"])
async def test_the_last_line_of_a_key_decides_its_value(
    way: str, service: MemoryService, command: Command, tmp_path: Path
) -> None:
    await remember(service, "port: 80")
    texts = ("port: 81", "port: 80", "host: a", "host: b", "host: a")
    if way == "service":
        lines = _lines(*texts)
        await plan_import(service, PERSON, lines)
        assert [one.outcome for one in lines] == [
            "changed",
            "changed",
            "added",
            "changed",
            "changed",
        ]
        await import_lines(service, PERSON, lines)
    else:
        file = tmp_path / "facts.md"
        file.write_text("".join(f"- {text}\n" for text in texts))
        assert (await command("facts", "import", str(file), "--subject", "ana")).code == 0
    assert await _texts(service) == ["host: a", "port: 80"]


async def test_a_plan_finds_the_fact_of_a_key_under_its_heading(service: MemoryService) -> None:
    await remember(service, "port: 80", topic="server")
    await remember(service, "host: a", topic="server")
    await remember(service, "host: b", topic="client")
    planned, lines = (
        [
            *_lines("port: 81", topic="client"),
            *_lines("port: 82", topic="client"),
            *_lines("port: 83", topic="server"),
            *_lines("port: 84", "host: c"),
        ]
        for _ in range(2)
    )
    await plan_import(service, PERSON, planned)
    assert [(one.outcome, one.was) for one in planned] == [
        ("added", None), ("changed", "port: 81"), ("changed", "port: 80"), ("refused", None),
        ("refused", None),
    ]  # fmt: skip
    for one in lines:
        one.outcome = "added"
    await import_lines(service, PERSON, lines)
    assert [(one.outcome, one.was) for one in lines] == [(one.outcome, one.was) for one in planned]


async def test_a_pending_line_is_refused_and_a_denied_one_stops_the_import(
    service: MemoryService,
) -> None:
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    await service.review.add_rule(PERSON, "default", rule)
    lines = _lines("Likes tea", "Has a cat")
    await plan_import(service, BOT, lines)
    await import_lines(service, BOT, lines)
    assert [(one.outcome, one.operation_id) for one in lines] == [("refused", "")] * 2
    await service.bindings.update(PERSON, "default", read_only=True)
    lines = _lines("Likes tea", "Has a cat")
    await plan_import(service, PERSON, lines)
    with pytest.raises(Denied):
        await import_lines(service, PERSON, lines)
    assert await _texts(service) == []
