"""The sections of a memory context: their tiers, titles, budgets and order, made from records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from memtui.contract import Model, Record, RecordHandle, UtcDatetime

ORDER: tuple[frozenset[str], ...] = (
    frozenset({"rule", "rules"}),
    frozenset({"style", "preference", "preferences"}),
    frozenset({"bio", "profile", "about"}),
)
"""Topics, tags and kinds that lead a section, first to last; everything else follows."""


class Tier(StrEnum):
    """What is loaded before a run, the most lasting first (seed 002)."""

    IDENTITY = "L0 identity"
    FACTS = "L1 facts"
    GUIDANCE = "L1 guidance"
    TOPIC = "L2 topic"


class SectionKind(StrEnum):
    """The sections there are, in the order in which a model reads them."""

    IDENTITY = "identity"
    USER = "user"
    WORKSPACE = "workspace"
    FACTS = "facts"
    """Facts of the agent and of the company."""
    GUIDANCE = "guidance"
    """Notes of `memory/guidance/`."""
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class SectionRule:
    """How a kind of section is titled, budgeted (tokens, advisory) and written."""

    tier: Tier
    title: str
    budget: int
    bullets: bool = True


RULES: dict[SectionKind, SectionRule] = {
    SectionKind.IDENTITY: SectionRule(Tier.IDENTITY, "Identity", 400, bullets=False),
    SectionKind.USER: SectionRule(Tier.FACTS, "About This User", 250),
    SectionKind.WORKSPACE: SectionRule(Tier.FACTS, "About This Workspace", 250),
    SectionKind.FACTS: SectionRule(Tier.FACTS, "Facts", 200),
    SectionKind.GUIDANCE: SectionRule(Tier.GUIDANCE, "Guidance", 300, bullets=False),
    SectionKind.TOPIC: SectionRule(Tier.TOPIC, "Topic", 500, bullets=False),
}
"""Budgets of seed 002's tiers; the user's and the workspace's share seed 004's 500 (§11)."""


class ContextFact(Model):
    """One record as the model is to read it: a fact's line, or a note's text."""

    text: str
    handle: RecordHandle | None = None
    kind: str = "fact"
    created_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    pinned: bool = False


class LeftOut(Model):
    """A record, or the end of one, that the model does not get to read, and why."""

    section: str
    text: str
    handle: RecordHandle | None = None
    reason: str


class ContextSection(Model):
    """What one section is made of, in order, before it is assembled."""

    kind: SectionKind
    title: str
    budget: int
    facts: tuple[ContextFact, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def tier(self) -> Tier:
        """The tier that the section belongs to."""
        return RULES[self.kind].tier

    @property
    def bullets(self) -> bool:
        """Whether each entry is a bullet; else it is text of its own lines."""
        return RULES[self.kind].bullets


def section_of_texts(
    kind: SectionKind, texts: Iterable[str], *, title: str | None = None, budget: int | None = None
) -> ContextSection:
    """Make a section of plain texts, every one of them, in the order given."""
    rule = RULES[kind]
    return ContextSection(
        kind=kind,
        title=title or rule.title,
        budget=rule.budget if budget is None else budget,
        facts=tuple(ContextFact(text=text) for text in texts),
    )


def section_of_records(
    kind: SectionKind,
    records: Iterable[Record],
    *,
    now: datetime,
    title: str | None = None,
    budget: int | None = None,
) -> ContextSection:
    """Make a section of the records that hold at `now`, rules first, then style, then bio.

    An expired record, one outside its validity window and one without text are left out, each with
    its reason. Records of the same rank keep a stable order, pinned first and then the oldest, so
    that a prompt's cached beginning survives a new fact.
    """
    rule = RULES[kind]
    name = title or rule.title
    facts, left_out = [], []
    for record in sorted(records, key=_prompt_order):
        reason = _why_not(record, now)
        if reason is None:
            facts.append(_fact(record))
        else:
            left_out.append(
                LeftOut(section=name, text=record.text, handle=record.handle, reason=reason)
            )
    return ContextSection(
        kind=kind,
        title=name,
        budget=rule.budget if budget is None else budget,
        facts=tuple(facts),
        left_out=tuple(left_out),
    )


def _fact(record: Record) -> ContextFact:
    return ContextFact(
        text=record.text,
        handle=record.handle,
        kind=record.kind,
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        pinned=record.pinned,
    )


def _why_not(record: Record, now: datetime) -> str | None:
    if record.expires_at is not None and record.expires_at <= now:
        return f"It expired on {record.expires_at:%Y-%m-%d %H:%M} UTC."
    if record.valid_to is not None and record.valid_to <= now:
        return f"It stopped being valid on {record.valid_to:%Y-%m-%d %H:%M} UTC."
    if record.valid_from is not None and record.valid_from > now:
        return f"It is not valid before {record.valid_from:%Y-%m-%d %H:%M} UTC."
    if not record.text.strip():
        return "It has no text."
    return None


def _prompt_order(record: Record) -> tuple[int, bool, float, str]:
    words = {record.kind.casefold(), *(tag.casefold() for tag in record.tags)}
    if record.topic is not None:
        words.add(record.topic.casefold())
    rank = next((place for place, leads in enumerate(ORDER) if leads & words), len(ORDER))
    created = record.created_at.timestamp() if record.created_at else float("inf")
    return rank, not record.pinned, created, record.handle.provider_record_id
