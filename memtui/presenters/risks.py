"""Reasons to forget a record, and its risks, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from memtui.contract import RISKS_BY_SEVERITY, severity_of
from memtui.presenters import format as fmt

if TYPE_CHECKING:
    from memtui.service.review.known_risks import FoundRisk, RiskFigures, RiskMark
    from memtui.service.usecases.verdict import MemoryVerdict

WORDS: dict[str, str] = {
    "holds_secret": "holds a secret",
    "poisoned": "reads like an order, or hides something",
    "exact_duplicate": "same text apart from punctuation",
    "expired": "expired",
    "contradicted": "contradicted by a newer one",
    "near_duplicate": "says nearly the same",
    "forgotten_before": "deleted by hand before",
    "same_meaning": "means the same, in other words",
    "says_otherwise": "a later one says otherwise",
    "disagrees": "scopes disagree",
    "refers_to_gone": "refers to what is gone",
    "source_changed": "its source has changed",
    "said_elsewhere": "another binding says it too",
    "changes_often": "changes often",
    "changed_late": "unchanged for months, then changed",
    "redacted": "a secret was taken out",
    "did_not_help": "did not help as a result",
    "costly": "long, and never read",
    "never_read": "never read",
    "stale": "not read for a while",
    "too_long": "too long",
    "least_worth": "worth least",
}

SIGNS = {"dangerous": "!", "contradicting": "≠", "outdated": "~", "doubled": "="}
"""The mark of a record in a list, by the severity of its worst risk."""
HELD = "◔"
"""The mark of a record that is held for review, whatever its risks."""
HELD_WORDS = "held for review: agents do not get it"


def said(risk: FoundRisk) -> str:
    """Return a risk in words, with the records that it was compared with."""
    others = f": {', '.join(risk.others)}" if risk.others else ""
    return f"{WORDS[risk.reason]}{others}{' (not a risk)' if risk.dismissed else ''}"


def sign(mark: RiskMark | None) -> str:
    """Return one character for a list: `HELD`, that of the worst risk, or `?` for not checked.

    Empty: it has no risk, or is of the past, of which nothing is known.
    """
    if mark is None:
        return ""
    if mark.held:
        return HELD
    return sign_of(mark.reasons) if mark.checked else "?"


def sign_of(reasons: Iterable[str]) -> str:
    """Return the sign of the worst of some risks; empty: there are none."""
    severity = severity_of(reasons)
    return SIGNS[severity] if severity else ""


def briefly(mark: RiskMark) -> str:
    """Return what is known of a record's risks in a few words; empty where it has none."""
    if mark.held:
        return "; ".join((f"{HELD} {HELD_WORDS}", *(WORDS[one] for one in mark.reasons)))
    if not mark.checked:
        return "? not checked for risks"
    return f"{sign(mark)} {'; '.join(WORDS[one] for one in mark.reasons)}" if mark.reasons else ""


def by_severity(figures: RiskFigures) -> str:
    """Return how many records have a risk, by the worst of each: “1 dangerous, 12 doubled”."""
    return ", ".join(f"{number:,} {severity}" for severity, number in figures.by_severity.items())


def totals(figures: RiskFigures) -> str:
    """Return how many records are risky and for what, and how much was looked at."""
    if not figures.checked:
        return f"{figures.sentence}; memtui doctor --risks checks them"
    found = [
        f"{number:,} {severity} ({_why(figures, severity)})"
        for severity, number in figures.by_severity.items()
    ]
    gone = [f"{figures.dismissed:,} dismissed"] if figures.dismissed else []
    return "; ".join([*(found or ["no record"]), *gone, figures.sentence])


def _why(figures: RiskFigures, severity: str) -> str:
    reasons = RISKS_BY_SEVERITY[severity]
    return ", ".join(f"{number:,} {WORDS[one]}" for one, number in figures.by_reason.items()
                     if one in reasons)  # fmt: skip


def verdict_words(found: MemoryVerdict, most: int = 1_000) -> str:
    """Return a verdict in at most `most` characters; empty where that is too few."""
    cost = f"{fmt.short_money(found.cost_usd, unpriced=found.cost_usd is None)} a session"
    named = ("dangerous", "contradicting", "doubled", "stale")
    doubts = ", ".join(f"{number:,} {word}" for word in named if (number := getattr(found, word)))
    doubts = doubts or "nothing dangerous, contradicting, doubled or stale"
    much = (
        f"{fmt.counted(found.records, 'memory', 'memories')}: {fmt.counted(found.tokens, 'token')}"
    )
    forms = (f"{much}, {cost}, {doubts}", f"{cost}, {doubts}", doubts)
    return next((one for one in forms if len(one) <= most), "")
