"""A fact whose window lies in the past, in the present alone, or ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.contract import BrowseRequest, CorrectRequest, ForgetRequest, Invalid, Snapshot
from tests.backends.vault.conftest import SCOPE, Open, contents, fact, upsert

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FILE = "projects/web/facts.md"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


async def at(adapter: VaultAdapter, day: int | None) -> list[str]:
    """Return the facts of a day, counted from today; None: what is listed without a moment."""
    moment = None if day is None else NOW + day * DAY
    page = await adapter.browse(BrowseRequest(scope=SCOPE, sort="title", as_of=moment))
    return [record.text for record in page.records]


async def test_a_window_cuts_what_held_and_lets_it_go_on(open_vault: Open, root: Path) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    await upsert(adapter, "branch: main", topic="Project", valid_from=NOW - 20 * DAY)
    before = contents(root)
    window = {"valid_from": NOW - 10 * DAY, "valid_to": NOW - 5 * DAY}
    it = await upsert(adapter, "branch: frozen", topic="Project", **window)
    assert (root / FILE).read_text() == "# Facts\n\n## Project\n- branch: main\n"
    found = [await at(adapter, day) for day in (-15, -7, -5, None)]
    assert found == [["branch: main"], ["branch: frozen"], ["branch: main"], ["branch: main"]]
    with pytest.raises(Invalid, match="would be lost"):
        await upsert(adapter, "branch: x", topic="Project", valid_from=NOW - 30 * DAY,
                     valid_to=NOW - 4 * DAY)  # fmt: skip
    taken = await adapter.history(it, SCOPE)
    assert [one.text for one in taken] == ["branch: main", "branch: frozen", "branch: main"]
    assert contents(root) != before


async def test_what_lies_ahead_comes_by_itself(open_vault: Open, root: Path) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    await fact(adapter, "By hand or not", topic="Project")
    it = await upsert(adapter, "branch: main", topic="Project")
    before = contents(root)
    [taken] = await adapter.snapshot([it], SCOPE)
    await upsert(adapter, "branch: next", topic="Project", valid_from=NOW + 5 * DAY,
                 valid_to=NOW + 9 * DAY)  # fmt: skip
    alone = await upsert(adapter, "freeze: on", topic="Stats", valid_from=NOW + 6 * DAY)
    assert await adapter.get(alone, SCOPE) is None
    assert "next" not in (root / FILE).read_text()
    days = {0: "main", 4: "main", 5: "next", 8: "next", 9: "main", 400: "main"}
    for day, value in days.items():
        assert f"branch: {value}" in await at(adapter, day)
    for day in (0, 6, 8, 10):
        clock.now = NOW + day * DAY
        assert await at(adapter, None) == await at(adapter, day)
        text = (root / FILE).read_text()
        shown = next(value for start, value in reversed(days.items()) if start <= day)
        assert f"\n- branch: {shown}\n" in text
        assert ("## Stats\n- freeze: on\n" in text) == (day >= 6)
    clock.now = NOW
    later = await open_vault(now=clock, data="elsewhere")
    assert [f"branch: {days[day]}" in await at(later, day) for day in days] == [True] * len(days)
    await adapter.restore([Snapshot(handle=alone, record=None)], SCOPE)
    await adapter.restore([taken], SCOPE)
    kept = (root / FILE).read_text()
    assert kept.replace("\n## Stats\n", "") == before[FILE].decode()


async def test_an_end_is_kept_by_a_change_and_by_what_hands_do(
    open_vault: Open, root: Path
) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    it = await upsert(adapter, "mode: careful", valid_to=NOW + 5 * DAY)
    other = await upsert(adapter, "mode2: careful")
    await upsert(adapter, "mode2: bold", valid_from=NOW + 5 * DAY)
    clock.now += DAY
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=other, text="mode2: calm"))
    await adapter.correct(CorrectRequest(scope=SCOPE, handle=it, pinned=True))
    assert await at(adapter, None) == ["mode2: calm", "mode: careful"]
    clock.now += 5 * DAY
    assert await at(adapter, None) == ["mode2: bold"]
    assert await adapter.get(it, SCOPE) is None
    assert (root / FILE).read_text() == "# Facts\n\n- mode2: bold\n"
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=(other,)))
    assert await at(adapter, None) == []
    assert await at(adapter, 3) == ["mode2: calm", "mode: careful"]


async def test_what_lies_ahead_of_a_forgotten_fact_never_comes(
    open_vault: Open, root: Path
) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    for word, ahead in (("one", 2), ("two", 3)):
        await upsert(adapter, f"{word}: now", topic="Project")
        await upsert(adapter, f"{word}: then", topic="Project", valid_from=NOW + ahead * DAY)
        await upsert(adapter, f"{word}: last", topic="Project", valid_from=NOW + 4 * DAY)
    kept = await fact(adapter, "three: now", topic="Project")
    clock.now += DAY
    page = await adapter.browse(BrowseRequest(scope=SCOPE))
    gone = tuple(one.handle for one in page.records if one.handle != kept)
    taken = await adapter.snapshot(gone, SCOPE)
    await adapter.forget(ForgetRequest(scope=SCOPE, handles=gone))
    assert "then" not in (root / "projects/web/facts.history.jsonl").read_text()
    assert await at(adapter, 3) == ["three: now"]
    clock.now += 4 * DAY
    assert await at(adapter, None) == ["three: now"]
    assert "last" not in (root / FILE).read_text()
    await adapter.restore(taken, SCOPE)
    assert await at(adapter, None) == ["one: last", "three: now", "two: last"]


async def test_what_begins_and_ends_at_a_moment(open_vault: Open) -> None:
    clock = Clock()
    adapter = await open_vault(now=clock)
    await upsert(adapter, "freeze: on", valid_from=NOW + DAY, valid_to=NOW + 2 * DAY)
    moment = timedelta(microseconds=1)
    for now, wanted in (
        (NOW + DAY - moment, []), (NOW + DAY, ["freeze: on"]),
        (NOW + 2 * DAY - moment, ["freeze: on"]), (NOW + 2 * DAY, []),
    ):  # fmt: skip
        page = await adapter.browse(BrowseRequest(scope=SCOPE, as_of=now))
        assert [record.text for record in page.records] == wanted
        clock.now = now
        assert await at(adapter, None) == wanted
