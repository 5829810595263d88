"""The result of verifying the log, in words; pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memtui.presenters.format import counted

if TYPE_CHECKING:
    from memtui.analytics.audit import AuditCheck, Gap


def proof_facts(found: AuditCheck) -> list[tuple[str, str]]:
    """Return the facts of a check that found the chain intact, as names and values."""
    facts = [("intact", counted(found.seq, "operation"))]
    facts += [("gap", _gap(one)) for one in found.gaps]
    seen = (
        f"operation {found.seen_seq} is the last that this machine had seen"
        if found.seen_seq
        else "this machine has seen none of it before, so a cut there would not show"
    )
    return [*facts, ("end", seen), ("note this", noted(found))]


def noted(found: AuditCheck) -> str:
    """Return number and digest of the last operation, to compare a later check with."""
    return f"{found.seq}:{found.digest}" if found.seq else ""


def _gap(gap: Gap) -> str:
    lost = f"operations from {gap.lost_from} on are lost"
    if gap.lost_through is not None:
        lost += f", as far as is known to {gap.lost_through}"
    return f"{lost}; operation {gap.seq} took their place on {gap.at:%Y-%m-%d}"
