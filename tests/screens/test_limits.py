"""The spending badge in the header, and the sheet behind it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from memtui.app import MemtuiApp
from memtui.config import Paths, Settings, load_settings
from memtui.contract import Invalid, OperationType, Scope, Unavailable, Usage
from memtui.presenters.spending import parse_amount
from memtui.screens.limits import LimitsScreen
from memtui.service import Caller, MemoryService
from memtui.service.review.limits import Limits
from memtui.service.spending import LimitMeasure, LimitPeriod, LimitTarget, SpendingLimit
from memtui.store.operation import OperationDraft
from tests.analytics.logs import append
from tests.screens.hostile import screen_text
from tests.screens.piloting import click_on, running, toasts, until, write_notes

ANA = Caller(company_id="local", principal="user:ana", channel="test")


async def limit(service: MemoryService, usd: str = "5", agent: str = "coding") -> None:
    await service.limits.set(
        ANA,
        SpendingLimit(
            target_type=LimitTarget.AGENT,
            target_id=agent,
            measure=LimitMeasure.USD,
            amount=Decimal(usd),
            period=LimitPeriod.DAY,
        ),
    )


def spend(service: MemoryService, operation_id: str, usd: str) -> None:
    append(
        service._runtime.database,
        [
            OperationDraft(
                operation_id=operation_id,
                operation_type=OperationType.QUERY,
                status="ok",
                scope=Scope(company_id="local", agent_id="coding"),
                principal="agent:coding",
                channel="test",
                usage=(Usage(provider="mem0", cost_usd=Decimal(usd)),),
                started_at=datetime.now(UTC),
                latency_ms=1,
            )
        ],
    )


def top(app: MemtuiApp) -> str:
    return screen_text(app).splitlines()[0]


@pytest.mark.slow
async def test_the_badge_comes_with_the_spending(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    await limit(service)
    async with running(paths, settings, "records", (80, 24)) as (app, pilot):
        await until(pilot, lambda: app.state.spending)
        assert "$" not in top(app)
        spend(service, "one", "4.1")
        await pilot.press("r")
        await until(pilot, lambda: "▲ " in top(app))
        assert "$4.10 of $5 today" in top(app)
        spend(service, "two", "1.92")
        app.controller.check_spending()
        await until(pilot, lambda: "✗ over limit: " in top(app))
        assert "$6.02 of $5" in top(app)
        assert "vault·default  ● ok" in top(app)
        await click_on(pilot, "✗ over limit")
        await until(pilot, lambda: "✗ passed" in screen_text(app))
        assert isinstance(app.screen, LimitsScreen)
        assert "$6.02 of $5 today (120%)" in " ".join(screen_text(app).split())
        await pilot.press("escape", "dollar_sign")
        await until(pilot, lambda: isinstance(app.screen, LimitsScreen))
        await service.limits.remove(ANA, LimitTarget.AGENT, "coding")
        await pilot.press("escape", "r")
        await until(pilot, lambda: "over limit" not in top(app))


@pytest.mark.slow
async def test_the_badge_fits_beside_read_only(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    await write_notes(service, ANA, ["Deploys happen from main"])
    await limit(service)
    spend(service, "one", "6.02")
    frozen = load_settings(paths, read_only=True)
    async with running(paths, frozen, "records", (80, 24)) as (app, pilot):
        await until(pilot, lambda: "over limit" in top(app) and "● ok" in top(app))
        assert top(app).rstrip().endswith("vault·default  ● ok   read-only")
        assert top(app).startswith(" Local  ")


@pytest.mark.slow
async def test_another_companys_badge_does_not_stay(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    await limit(service)
    spend(service, "one", "6")
    await service.companies.add(ANA.model_copy(update={"company_id": "other"}), "Other")
    async with running(paths, settings, "operations") as (app, pilot):
        await until(pilot, lambda: "over limit" in top(app))
        app.controller.choose_scope(Scope(company_id="other"))
        await until(pilot, lambda: "Other" in top(app))
        assert app.state.spending == ()
        await until(pilot, lambda: "over limit" not in top(app))


@pytest.mark.slow
async def test_a_check_that_fails_is_told_once(
    paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("The archive's manifest cannot be read.")

    monkeypatch.setattr(Limits, "check", fail)
    async with running(paths, settings, "operations") as (app, pilot):
        await until(pilot, lambda: toasts(app))
        app.controller.check_spending()
        await until(pilot, lambda: not app.controller._adding_up.busy)
        assert toasts(app) == ["The archive's manifest cannot be read."]


@pytest.mark.slow
async def test_a_limit_is_set_changed_removed_and_brought_back(
    paths: Paths, settings: Settings, service: MemoryService
) -> None:
    async def stand() -> list[tuple[str, str]]:
        found = await service.limits.all(ANA)
        return [(one.target_id, f"{one.amount} {one.action}") for one in found]

    async with running(paths, settings, "bindings", (80, 24)) as (app, pilot):
        await pilot.press("dollar_sign")
        await until(pilot, lambda: "There are no spending limits." in screen_text(app))
        await pilot.press("a", *"default")
        await until(pilot, lambda: getattr(app.screen, "highlighted", None))
        await pilot.press("enter", "enter", *"$0", "enter")
        await until(pilot, lambda: "dollars such as 5 or 0.25" in screen_text(app))
        await pilot.press("backspace", *"2.5", "enter")
        await until(pilot, lambda: "And once it is passed?" in screen_text(app))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: "binding default" in screen_text(app))
        assert await stand() == [("default", "2.5 read-only")]
        await pilot.press("e")
        await until(pilot, lambda: "How many US dollars" in screen_text(app))
        await pilot.press(*"7.5", "enter")
        await until(pilot, lambda: "And once it is passed?" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "$7.50" in screen_text(app))
        await pilot.press("d", "y")
        await until(pilot, lambda: "There are no spending limits." in screen_text(app))
        assert await stand() == []
        await pilot.press("u")
        await until(pilot, lambda: "Undo the change of settings" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: any("Undone" in one for one in toasts(app)))
        assert await stand() == [("default", "7.5 read-only")]
        await pilot.press("U")
        await until(pilot, lambda: any("Redone: limit " in one for one in toasts(app)))
        assert await stand() == []
        await pilot.press("U")
        assert "nothing to redo" in toasts(app)[-1]


@pytest.mark.parametrize(
    ("measure", "text", "amount"),
    [
        ("usd", " $1,000.50 ", Decimal("1000.50")),
        ("tokens", "200,000", 200_000),
        ("tokens", "1.5", None),
        ("usd", "inf", None),
        ("usd", "NaN", None),
        ("usd", "-1", None),
        ("tokens", "", None),
    ],
)
def test_an_amount_is_read_as_it_is_written(
    measure: str, text: str, amount: Decimal | int | None
) -> None:
    if amount is not None:
        assert parse_amount(measure, text) == amount
        return
    with pytest.raises(Invalid, match="A limit is more than 0, in"):
        parse_amount(measure, text)
