"""Spending limits: setting them, and holding them against the log, hot and sealed."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from memtui.analytics.figures import Bucket, begin_of, end_of
from memtui.config import Paths, load_settings
from memtui.contract import Denied, Filter, Invalid, NotFound, OperationType, Scope, Usage
from memtui.service import Caller, MemoryService, open_service
from memtui.service.spending import (
    LimitMeasure,
    LimitPeriod,
    LimitState,
    LimitTarget,
    SpendingLimit,
    SpendingStatus,
    span,
)
from memtui.store.operation import OperationDraft
from tests.analytics.logs import HOSTILE, append

ANA = Caller(company_id="local", principal="user:ana", channel="test")
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
_numbers = itertools.count()


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service(paths: Paths, clock: Clock) -> AsyncIterator[MemoryService]:
    opened = await open_service(paths, load_settings(paths), clock=clock)
    yield opened
    await opened.close()


def limit(target: str, amount: Decimal | int, period: str = "day") -> SpendingLimit:
    kind, _, name = target.partition(" ")
    return SpendingLimit(
        target_type=LimitTarget(kind),
        target_id=name or "local",
        measure=LimitMeasure.TOKENS if isinstance(amount, int) else LimitMeasure.USD,
        amount=amount,
        period=LimitPeriod(period),
    )


def spend(
    service: MemoryService,
    *usage: Usage,
    at: datetime = NOON,
    agent: str | None = "coding",
    company: str = "local",
    binding: str | None = "default",
) -> None:
    append(
        service._runtime.database,
        [
            OperationDraft(
                operation_id=f"spent-{next(_numbers)}",
                operation_type=OperationType.QUERY,
                status="ok",
                scope=Scope(company_id=company, agent_id=agent, project_id="p"),
                binding_key=binding,
                principal="agent:coding",
                channel="test",
                usage=usage,
                started_at=at,
                latency_ms=1,
            )
        ],
    )


def used(usd: str | None = "1", tokens: int = 0) -> Usage:
    cost = None if usd is None else Decimal(usd)
    return Usage(provider="mem0", input_tokens=tokens, cost_usd=cost)


async def checked(service: MemoryService, **options) -> list[SpendingStatus]:
    return await service.limits.check(ANA, **({"zone": BERLIN} | options))


async def only(service: MemoryService, **options) -> SpendingStatus:
    [found] = await checked(service, **options)
    return found


async def test_a_limit_is_set_replaced_and_removed_each_as_an_operation(
    service: MemoryService,
) -> None:
    made = await service.limits.set(ANA, limit("agent coding", Decimal("5.50")))
    assert (made.amount, str(made.amount)) == (Decimal("5.5"), "5.5")
    await service.limits.set(ANA, limit("agent coding", Decimal(6)))
    await service.limits.set(ANA, limit("agent coding", 1000))
    await service.limits.set(ANA, limit("company", 10**6, "month"))
    found = await service.limits.all(ANA)
    assert [(one.target_type, one.measure, one.amount) for one in found] == [
        ("agent", "tokens", 1000),
        ("agent", "usd", Decimal(6)),
        ("company", "tokens", 10**6),
    ]
    removed = await service.limits.remove(ANA, LimitTarget.AGENT, "coding")
    assert len(removed) == 2
    with pytest.raises(NotFound, match="has no such limit"):
        await service.limits.remove(ANA, LimitTarget.AGENT, "coding")
    chosen = Filter(operation_type=OperationType.CONFIGURE)
    newest, *_ = (await service.log.page(ANA, chosen)).operations
    assert newest.status == "error"
    page = await service.log.page(ANA, chosen, limit=3)
    assert page.operations[2].request == {
        "set_spending_limit": {
            "target_type": "company", "target_id": "local", "measure": "tokens",
            "amount": 10**6, "period": "month", "action": "warn",
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (limit("agent coding", 0), "whole number"),
        (limit("agent coding", 2**63), "whole number"),
        (limit("agent coding", Decimal(0)), "more than 0"),
        (limit("agent coding", Decimal(-1)), "more than 0"),
        (limit("agent coding", Decimal(9000001)), "more than 0"),
        (limit("agent coding", Decimal("1e999999")), "more than 0"),
        (limit("agent coding", Decimal("0.0000000000001")), "12 digits"),
        (limit("agent coding", 1).model_copy(update={"amount": Decimal("1.5")}), "whole number"),
        (limit(f"project {'x' * 201}", 1), "printable"),
        (limit(f"agent {HOSTILE}", 1), "printable"),
        (limit("company acme", 1), "name no other"),
    ],
)
async def test_what_is_no_limit(service: MemoryService, wrong: SpendingLimit, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        await service.limits.set(ANA, wrong)
    assert await service.limits.all(ANA) == []


async def test_a_binding_that_is_not_there_has_no_limit(service: MemoryService) -> None:
    with pytest.raises(NotFound, match="the bindings are default"):
        await service.limits.set(ANA, limit("binding nope", 1))


async def test_read_only_refuses_and_still_checks(service: MemoryService, paths: Paths) -> None:
    await service.limits.set(ANA, limit("company", 1000))
    frozen = await open_service(paths, load_settings(paths, read_only=True))
    with pytest.raises(Denied, match="read-only"):
        await frozen.limits.set(ANA, limit("company", 2000))
    with pytest.raises(Denied, match="read-only"):
        await frozen.limits.remove(ANA, LimitTarget.COMPANY, "local")
    assert [one.amount for one in await frozen.limits.check(ANA)] == [1000]
    await frozen.close()


async def test_a_target_counts_what_is_its_own(service: MemoryService) -> None:
    await service.companies.add(ANA.model_copy(update={"company_id": "other"}), "Other")
    targets = ("company", "agent coding", "agent x", "project p", "project q", "binding default")
    for target in targets:
        await service.limits.set(ANA, limit(target, Decimal(100)))
    spend(service, used("1.5"), used("0.25"))
    spend(service, used("2"), agent="x", binding=None)
    spend(service, used("50"), company="other")
    found = {f"{one.target_type} {one.target_id}": one.spent for one in await checked(service)}
    assert found == {
        "company local": Decimal("3.75"),
        "agent coding": Decimal("3.75"),  # its principal did it, though it named x
        "agent x": Decimal(2),
        "project p": Decimal("3.75"),
        "project q": Decimal(0),
        "binding default": Decimal("1.75"),
    }


@pytest.mark.parametrize(
    ("spent", "state"),
    [("3.99", "ok"), ("4", "near"), ("5", "near"), ("5.000000000001", "passed")],
)
async def test_near_and_passed(service: MemoryService, spent: str, state: str) -> None:
    await service.limits.set(ANA, limit("agent coding", Decimal(5)))
    spend(service, used(spent))
    found = await only(service)
    assert (found.spent, found.state) == (Decimal(spent), LimitState(state))
    assert found.share == float(Decimal(spent) / 5)
    early = await only(service, near=Decimal("0.5"))
    assert early.state is (LimitState.PASSED if state == "passed" else LimitState.NEAR)


async def test_what_has_no_price_is_said_and_not_taken_for_nothing(service: MemoryService) -> None:
    await service.limits.set(ANA, limit("agent coding", Decimal(5)))
    await service.limits.set(ANA, limit("agent coding", 100))
    spend(service, used("0.12", 10), used(None, 30), used(None))
    tokens, dollars = await checked(service)
    assert (dollars.spent, dollars.unpriced_count) == (Decimal("0.12"), 2)
    assert (tokens.spent, tokens.unpriced_count) == (40, 0)


@pytest.mark.parametrize("period", ["day", "month"])
@pytest.mark.parametrize("day", [date(2026, 3, 29), date(2026, 10, 25)])
async def test_a_period_ends_where_the_next_begins_on_days_of_clock_changes(
    service: MemoryService, period: str, day: date
) -> None:
    await service.limits.set(ANA, limit("company", 10, period))
    begin, end = span(LimitPeriod(period), day, BERLIN)
    if period == "day":
        assert end - begin == timedelta(hours=23 if day.month == 3 else 25)
    tick = timedelta(microseconds=1)
    for tokens, at in ((1, begin - tick), (2, begin), (4, end - tick), (8, end)):
        spend(service, used(tokens=tokens), at=at)
    found = await only(service, at=day)
    assert (found.spent, found.since, found.until) == (6, begin, end)
    assert (await only(service, at=begin.astimezone(BERLIN).date() - timedelta(days=1))).spent == 1
    assert (await only(service, at=end.astimezone(BERLIN).date())).spent == 8


def test_days_and_months_are_those_of_the_figures() -> None:
    zones = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia")
    days = [date(2011, 12, 28) + timedelta(days=number) for number in range(5)]
    days += [date(2018, 1, 1) + timedelta(days=number) for number in range(365)]
    for zone, day in itertools.product(zones, days):
        for period, bucket in ((LimitPeriod.DAY, Bucket.DAY), (LimitPeriod.MONTH, Bucket.MONTH)):
            first = day if period is LimitPeriod.DAY else day.replace(day=1)
            within = begin_of(first, zone), end_of(bucket, first, zone)
            assert span(period, day, ZoneInfo(zone)) == within


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_new_york")
async def test_without_a_zone_days_are_the_systems(service: MemoryService, clock: Clock) -> None:
    clock.now = datetime(2026, 3, 9, 3, tzinfo=UTC)
    await service.limits.set(ANA, limit("company", 10))
    found = await only(service, zone=None)
    assert found.since == datetime(2026, 3, 8, 5, tzinfo=UTC)
    assert found.until == datetime(2026, 3, 9, 4, tzinfo=UTC)


@pytest.mark.parametrize("day", [date(1, 1, 1), date(9999, 12, 31)])
async def test_a_day_at_an_end_of_the_calendar(service: MemoryService, day: date) -> None:
    await service.limits.set(ANA, limit("company", 10))
    with pytest.raises(Invalid, match="end of the calendar"):
        await checked(service, at=day, zone=timezone(timedelta(hours=14 if day.year == 1 else -12)))


async def test_a_later_check_counts_each_operation_once(
    service: MemoryService, clock: Clock
) -> None:
    await service.limits.set(ANA, limit("agent coding", 10))
    for number in range(1, 5):
        spend(service, used(tokens=number))
        spend(service, used(tokens=number), at=NOON - timedelta(days=2))
        assert (await only(service)).spent == sum(range(number + 1))
        assert (await only(service)).spent == sum(range(number + 1))
    clock.now += timedelta(days=1)
    assert (await only(service)).spent == 0
    assert (await only(service, at=date(2026, 3, 27))).spent == 10


async def test_no_limits_no_reading(service: MemoryService) -> None:
    assert await checked(service) == []


@pytest.mark.parametrize("seed", range(3))
async def test_sealed_operations_count_like_hot_ones(
    service: MemoryService, clock: Clock, seed: int
) -> None:
    chance = random.Random(seed)
    agents = ("coding", "x", HOSTILE, None)
    for target, amount in (("company", 10**9), ("agent coding", Decimal(9)), ("agent x", 100)):
        for period in ("day", "month"):
            await service.limits.set(ANA, limit(target, amount, period))
    for part in range(2):
        for _ in range(20):
            usage = [
                used(
                    chance.choice([None, f"0.{chance.randrange(10**12):012}"]),
                    chance.randrange(1000),
                )
                for _ in range(chance.randrange(3))
            ]
            moved = timedelta(hours=chance.randrange(-40, 12))
            spend(service, *usage, at=NOON + moved, agent=chance.choice(agents))
        before = await checked(service)
        if part == 0:
            report = await service.analysis.seal(ANA, everything=True)
            assert report.operations > 20
            assert await checked(service) == before
    await service.analysis.seal(ANA, everything=True)
    assert await checked(service) == before
    assert any(one.spent for one in before)


async def test_each_company_counts_its_own_whoever_asked_before(service: MemoryService) -> None:
    other = ANA.model_copy(update={"company_id": "other"})
    await service.companies.add(other, "Other")
    for who, usd in ((ANA, "1"), (other, "20")):
        company = limit(f"company {who.company_id}", Decimal(100))
        await service.limits.set(who, company)
        spend(service, used(usd), company=who.company_id)
    for who, spent in ((ANA, 1), (other, 20), (ANA, 1)):
        [found] = await service.limits.check(who, zone=BERLIN)
        assert found.spent == spent
