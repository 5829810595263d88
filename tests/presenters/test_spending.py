from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from memtui.presenters.spending import badge, sentence, share
from memtui.service.spending import (
    LimitMeasure,
    LimitPeriod,
    LimitState,
    LimitTarget,
    SpendingStatus,
)
from memtui.widgets.frame import ScopeView, spending_content
from tests.screens.hostile import HOSTILE, assert_content_harmless

SINCE, UNTIL = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def status(
    spent: Decimal | int,
    amount: Decimal | int,
    *,
    target: str = "agent coding",
    period: str = "day",
    unpriced: int = 0,
) -> SpendingStatus:
    kind, _, name = target.partition(" ")
    ratio = float(Decimal(spent) / Decimal(amount))
    return SpendingStatus(
        target_type=LimitTarget(kind),
        target_id=name or "acme",
        measure=LimitMeasure.TOKENS if isinstance(amount, int) else LimitMeasure.USD,
        amount=amount,
        period=LimitPeriod(period),
        since=SINCE,
        until=UNTIL,
        spent=spent,
        unpriced_count=unpriced,
        share=ratio,
        state=LimitState("passed" if ratio > 1 else "near" if ratio >= 0.8 else "ok"),
    )


def test_nothing_is_said_where_all_is_well() -> None:
    assert badge(()) == ()
    assert badge((status(Decimal(1), Decimal(5), unpriced=3),)) == ()


@pytest.mark.parametrize(
    ("found", "longest", "shortest"),
    [
        (
            status(Decimal("4.1"), Decimal(5)),
            "▲ agent coding $4.10 of $5 today",
            "▲ 82% spent",
        ),
        (
            status(Decimal("6.02"), Decimal(5)),
            "✗ over limit: agent coding $6.02 of $5 today",
            "✗ over limit",
        ),
        (
            status(Decimal("6.02"), Decimal(5), target="company", unpriced=1),
            "✗ over limit: company ≥ $6.02 of $5 today",
            "✗ over limit",
        ),
        (
            status(820_999, 10**6, target="company", period="month"),
            "▲ company 820k of 1M tokens this month",
            "▲ 82% spent",
        ),
        (
            status(1_000_001, 10**6, target="binding mem0"),
            "✗ over limit: binding mem0 1.01M of 1M tokens today",
            "✗ over limit",
        ),
        (
            status(Decimal("5.000000000001"), Decimal(5)),
            "✗ over limit: agent coding $5.01 of $5 today",
            "✗ over limit",
        ),
        (
            status(Decimal("0.00450000001"), Decimal("0.005")),
            "▲ agent coding $0.0045 of $0.005 today",
            "▲ 90% spent",
        ),
        (status(9, 10), "▲ agent coding 9 of 10 tokens today", "▲ 90% spent"),
    ],
)
def test_the_badge_in_its_forms(found: SpendingStatus, longest: str, shortest: str) -> None:
    forms = badge((found,))
    assert (forms[0], forms[-1]) == (longest, shortest)
    assert [*map(len, forms)] == sorted(map(len, forms), reverse=True)


def test_the_worst_is_named_and_other_passed_ones_are_counted() -> None:
    near = status(Decimal(4), Decimal(5), target="agent a")
    passed = status(Decimal(6), Decimal(5), target="agent b")
    worst = status(30, 10, target="agent c")
    assert badge((near, passed))[0] == "✗ over limit: agent b $6 of $5 today"
    assert badge((near, passed, worst))[-1] == "✗ over limit +1"


def test_the_badge_takes_the_form_that_fits() -> None:
    view = ScopeView(
        parts=("Acme Robots & Sons", "mech-fighters", "coding"),
        binding="vault·default",
        status="ok",
        word="ok",
        spending=badge((status(Decimal("6.02"), Decimal(5)),)),
        over_limit=True,
    )
    wide, middle, narrow = (spending_content(view, width).plain for width in (118, 78, 58))
    assert wide == "✗ over limit: agent coding $6.02 of $5 today"
    assert middle == "✗ over limit: $6.02 of $5 today"
    assert narrow == spending_content(view, 0).plain == "✗ over limit"
    assert spending_content(ScopeView(), 78).plain == ""


@pytest.mark.parametrize(
    ("found", "now", "said"),
    [
        (
            status(Decimal("0.12"), Decimal(5), unpriced=3),
            SINCE,
            "The agent coding is within its limit: ≥ $0.12 of $5 today (≥ 2%); 3 calls unpriced.",
        ),
        (
            status(0, 10, target="company"),
            UNTIL,
            "The company is within its limit: 0 of 10 tokens on 2026-03-29 (0%).",
        ),
        (
            status(Decimal(6), Decimal("2.5"), target="project p", period="month"),
            UNTIL,
            "The project p has passed its limit: $6 of $2.50 in 2026-03 (240%).",
        ),
    ],
)
def test_a_limit_in_a_sentence(found: SpendingStatus, now: datetime, said: str) -> None:
    assert sentence(found, now, BERLIN) == said


def test_a_share_is_never_rounded_up() -> None:
    assert share(status(Decimal("3.9999"), Decimal(5))) == "79%"


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\ud800" not in text])
def test_hostile_names_are_harmless(text: str) -> None:
    forms = badge((status(6, 5, target=f"agent {text}"),))
    content = spending_content(ScopeView(spending=forms, over_limit=True), 10**8)
    assert_content_harmless(content)
