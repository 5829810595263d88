"""Spending limits in words: amounts, periods, sentences and the badge, as pure functions.

Foreign strings are returned unchanged; the caller shows them through `display()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING

from memtui.contract import Invalid
from memtui.presenters.format import counted, money, target_words

if TYPE_CHECKING:
    from memtui.service.spending import SpendingLimit, SpendingStatus

_CURRENT = {"day": "today", "month": "this month"}
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
_MARKS = {"ok": "✓ ok", "near": "▲ near", "passed": "✗ passed"}
_WORDS = {
    "ok": "is within its limit",
    "near": "is near its limit",
    "passed": "has passed its limit",
}


ACTIONS = {
    "warn": "only warn",
    "no-search": "no search: no query or embedding, contexts have the facts alone",
    "read-only": "read-only: nothing is written or corrected",
    "refuse": "refuse: no search, context, write or correction",
}
"""What each action does once a limit is passed, for a person who chooses."""


def then(limit: SpendingLimit) -> str:
    """Return what follows once a limit is passed: `, then read-only`; empty: a warning."""
    return "" if limit.action == "warn" else f", then {limit.action}"


def whole(limit: SpendingLimit) -> str:
    """Return a limit without its target: `$5 a day, then read-only`."""
    return f"{amount(limit)} a {limit.period}{then(limit)}"


def amount(limit: SpendingLimit) -> str:
    """Return the amount of a limit: `$5`, `1,000,000 tokens`."""
    return _exact(limit.measure, limit.amount)


def spent(status: SpendingStatus) -> str:
    """Return the exact spending; `≥ $0.12` if some calls have no price."""
    return _at_least(status) + _exact(status.measure, status.spent)


def share(status: SpendingStatus) -> str:
    """Return the spending as a percentage of the limit, rounded down."""
    return f"{_at_least(status)}{int(status.share * 100):,}%"


def mark(status: SpendingStatus) -> str:
    """Return the state as a symbol and a word."""
    return _MARKS[status.state]


def period(status: SpendingStatus, now: datetime, zone: tzinfo | None) -> str:
    """Return `today`, `this month`, or the past day or month in `zone`."""
    if status.since <= now < status.until:
        return _CURRENT[status.period]
    first = status.since.astimezone(zone).date().isoformat()
    return first if status.period == "day" else first[:7]


def sentence(status: SpendingStatus, now: datetime, zone: tzinfo | None) -> str:
    """Return the status of a limit as one sentence."""
    when = period(status, now, zone)
    if when not in _CURRENT.values():
        when = f"{'on' if status.period == 'day' else 'in'} {when}"
    return f"The {target_words(status)} {_WORDS[status.state]}: {stand(status, when)}."


def stand(status: SpendingStatus, when: str) -> str:
    """Return `≥ $0.12 of $5 today (≥ 2%), then read-only; 3 calls unpriced`."""
    unpriced = status.unpriced_count
    rest = f"; {counted(unpriced, 'call')} unpriced" if unpriced else ""
    known = spent(status).removesuffix(" tokens")
    return f"{known} of {amount(status)} {when} ({share(status)}){then(status)}{rest}"


def parse_amount(measure: str, text: str) -> Decimal | int:
    """Parse an amount: dollars (`5`, `$0.25`), or whole tokens (`200,000`).

    Raises:
        Invalid: it is not a number above 0.
    """
    plain = text.strip().replace(",", "").removeprefix("$")
    try:
        found: Decimal | int = Decimal(plain) if measure == "usd" else int(plain)
    except (InvalidOperation, ValueError):
        found = 0
    if not (Decimal(found).is_finite() and found > 0):
        example = "dollars such as 5 or 0.25" if measure == "usd" else "whole tokens such as 200000"
        raise Invalid(f"A limit is more than 0, in {example}, not {text.strip()!r}.")
    return found


def badge(statuses: Sequence[SpendingStatus]) -> tuple[str, ...]:
    """Return the forms of the badge, the longest first; empty if no limit is near or passed.

    It shows the limit with the highest share, and how many others are passed.
    """
    if not (alarming := [one for one in statuses if one.state != "ok"]):
        return ()
    worst = max(alarming, key=lambda one: one.share)
    passed = worst.state == "passed"
    others = sum(one.state == "passed" for one in alarming) - 1
    more = f" +{others}" if others > 0 else ""
    lead = "✗ over limit" if passed else "▲"
    gap = ": " if passed else " "
    what = f"{_at_least(worst)}{_brief(worst)}"
    when = _CURRENT[worst.period]
    shortest = lead if passed else f"{lead} {share(worst)} spent"
    return (
        f"{lead}{gap}{target_words(worst)} {what} {when}{more}",
        f"{lead}{gap}{what} {when}{more}",
        f"{lead}{gap}{what}{more}",
        f"{shortest}{more}",
    )


def is_passed(statuses: Sequence[SpendingStatus]) -> bool:
    """Return whether any limit is passed."""
    return any(one.state == "passed" for one in statuses)


def _at_least(status: SpendingStatus) -> str:
    return "≥ " if status.unpriced_count else ""


def _exact(measure: str, value: Decimal | int) -> str:
    if measure == "tokens":
        return counted(int(value), "token")
    return money(Decimal(value)).removesuffix(".00") if value else "$0"


def _brief(status: SpendingStatus) -> str:
    """Return `$4.10 of $5`, `820k of 1M tokens`, rounded so that a passed limit stays passed."""
    spent_way, limit_way = ROUND_DOWN, ROUND_UP
    if status.state == "passed":
        spent_way, limit_way = ROUND_UP, ROUND_DOWN
    if status.measure == "tokens":
        known, most = (
            _short(int(value), way)
            for value, way in ((status.spent, spent_way), (status.amount, limit_way))
        )
        return f"{known} of {most} tokens"
    limit = Decimal(status.amount)
    cents = Decimal(1).scaleb(min(limit.adjusted(), 0) - 2)
    known = _exact(status.measure, Decimal(status.spent).quantize(cents, rounding=spent_way))
    return f"{known} of {_exact(status.measure, limit)}"


def _short(number: int, rounding: str) -> str:
    """Return a number of tokens in three digits: `820k`, `1.25M`."""
    size, unit = next((one for one in _UNITS if number >= one[0]), (1, ""))
    scaled = Decimal(number) / size
    digits = max(0, 2 - scaled.adjusted())
    shown = f"{scaled.quantize(Decimal(1).scaleb(-digits), rounding=rounding):,f}"
    return (shown.rstrip("0").rstrip(".") if "." in shown else shown) + unit
