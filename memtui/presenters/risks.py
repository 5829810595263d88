"""Reasons to forget a record, and its risks, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memtui.presenters.format import counted
from memtui.pruning.candidates import Reason

if TYPE_CHECKING:
    from memtui.service.review.known_risks import FoundRisk, RiskFigures, RiskMark

WORDS = {
    Reason.HOLDS_SECRET: "holds a secret",
    Reason.POISONED: "reads like an order, or hides something",
    Reason.EXACT_DUPLICATE: "same text apart from punctuation",
    Reason.EXPIRED: "expired",
    Reason.CONTRADICTED: "contradicted by a newer one",
    Reason.NEAR_DUPLICATE: "says nearly the same",
    Reason.FORGOTTEN_BEFORE: "deleted by hand before",
    Reason.SAME_MEANING: "means the same, in other words",
    Reason.SAYS_OTHERWISE: "a later one says otherwise",
    Reason.DISAGREES: "scopes disagree",
    Reason.CHANGES_OFTEN: "changes often",
    Reason.CHANGED_LATE: "unchanged for months, then changed",
    Reason.REDACTED: "a secret was taken out",
    Reason.DID_NOT_HELP: "did not help as a result",
    Reason.COSTLY: "long, and never read",
    Reason.NEVER_READ: "never read",
    Reason.STALE: "not read for a while",
    Reason.TOO_LONG: "too long",
    Reason.LEAST_WORTH: "worth least",
}


def said(risk: FoundRisk) -> str:
    """Return a risk in words, with the records that it was compared with."""
    others = f": {', '.join(risk.others)}" if risk.others else ""
    return f"{WORDS[Reason(risk.reason)]}{others}{' (not a risk)' if risk.dismissed else ''}"


def sign(mark: RiskMark | None) -> str:
    """Return one character for a list: `!` a risk, `?` not checked, blank none."""
    if mark is None or not mark.checked:
        return "?"
    return "!" if mark.reasons else ""


def totals(figures: RiskFigures) -> str:
    """Return how many records are risky and for what, and how much was looked at."""
    if not figures.checked:
        return f"{figures.sentence}; memtui doctor --risks checks them"
    why = ", ".join(f"{number:,} {WORDS[Reason(one)]}" for one, number in figures.by_reason.items())
    risky = counted(figures.risky, "record") if figures.risky else "no record"
    gone = f"; {figures.dismissed:,} with risks that are none" if figures.dismissed else ""
    return f"{risky}{f' ({why})' if why else ''}{gone}; {figures.sentence}"
