"""The text that a model reads before a run, assembled, with an account of every token of it.

The screen, the command and the hook all call `assemble`, so a person sees the bytes that the model
gets. The text of a fact goes in as it is stored, whatever it holds: a fact is one line by rule
(seed 004 §6.2), but one with a line break or control characters that got past that rule is shown
and sent unchanged, with a warning, since a silent repair here would hide what the store holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from memtui.context.cost import TokenCounter
from memtui.contract import Invalid, Model, Problem, Record, RecordHandle, UtcDatetime

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


FAR_OVER = 2
"""A budget exceeded more than so many times is a warning of its own (seed 002)."""

_LINE_BREAK = re.compile(r"[\n\r]")
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class WarningKind(StrEnum):
    """The sorts of warning."""

    OVER_BUDGET = "over_budget"
    FAR_OVER_BUDGET = "far_over_budget"
    CUT = "cut"
    LINE_BREAK = "line_break"
    CONTROL_CHARACTERS = "control_characters"
    UNREAD = "unread"


class ContextWarning(Model):
    """One thing wrong. `section` is a title; None means the whole context."""

    kind: WarningKind
    section: str | None = None
    message: str
    handles: tuple[RecordHandle, ...] = ()


def budget_warning(tokens: int, budget: int, section: str | None) -> tuple[ContextWarning, ...]:
    """Warn where `tokens` exceed `budget`, more so over twice the budget."""
    if tokens <= budget:
        return ()
    far = tokens > FAR_OVER * budget
    what = "The memory context" if section is None else f"The section {section}"
    degree = "more than twice" if far else "over"
    return (
        ContextWarning(
            kind=WarningKind.FAR_OVER_BUDGET if far else WarningKind.OVER_BUDGET,
            section=section,
            message=f"{what} has {tokens:,} tokens, {degree} its budget of {budget:,}; prune it.",
        ),
    )


def unread_warning(problem: Problem) -> ContextWarning:
    """Warn that something which belongs into the context may not be in it."""
    message = f"The model is not told what could not be read. {problem.sentence()}"
    return ContextWarning(kind=WarningKind.UNREAD, message=message)


def cut_warning(limits: str) -> ContextWarning:
    """Warn that the text was cut to `limits`."""
    return ContextWarning(
        kind=WarningKind.CUT,
        message=f"The memory context was cut to {limits}; what was left out is listed.",
    )


def text_warnings(
    facts: Sequence[ContextFact], section: str, *, one_line: bool
) -> tuple[ContextWarning, ...]:
    """Warn of text that a model may read as something else than one fact."""
    found = []
    broken = [fact for fact in facts if one_line and _LINE_BREAK.search(fact.text)]
    if broken:
        found.append(
            _about(
                WarningKind.LINE_BREAK,
                section,
                broken,
                f"{_count(broken)} in {section} with a line break: the model reads more lines "
                "than facts; edit or forget it.",
            )
        )
    odd = [fact for fact in facts if _CONTROL.search(fact.text)]
    if odd:
        found.append(
            _about(
                WarningKind.CONTROL_CHARACTERS,
                section,
                odd,
                f"{_count(odd)} in {section} with invisible control characters, which the model "
                "reads; edit or forget it.",
            )
        )
    return tuple(found)


def _count(facts: Sequence[ContextFact]) -> str:
    return "There is 1 fact" if len(facts) == 1 else f"There are {len(facts):,} facts"


def _about(
    kind: WarningKind, section: str, facts: Sequence[ContextFact], message: str
) -> ContextWarning:
    handles = tuple(fact.handle for fact in facts if fact.handle is not None)
    return ContextWarning(kind=kind, section=section, message=message, handles=handles)


DEFAULT_BUDGET = 500
"""Tokens of memory context that a request should stay under (seed 004 §2.1)."""
TRUNCATED = "[truncated]"
"""The line that stands where a text was cut."""


class AssembledFact(ContextFact):
    """A fact as the model reads it. `text` is the part that is in the context."""

    tokens: int
    """What its line, bullet and line end included, costs the prompt."""
    truncated: bool = False


class AssembledSection(Model):
    """A section as the model reads it."""

    kind: SectionKind
    tier: Tier
    title: str
    text: str
    tokens: int
    budget: int
    """Advisory, in tokens."""
    facts: tuple[AssembledFact, ...]


class AssembledContext(Model):
    """The memory context: its exact text, what it costs, what it lacks and what is wrong."""

    text: str
    tokens: int
    """The tokenizer's own count of the whole text; the parts' counts need not add up to it."""
    exact: bool
    tokenizer: str
    budget: int
    over_budget: bool
    sections: tuple[AssembledSection, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def assemble_memory_context(user_facts: Sequence[str], drive_facts: Sequence[str] | None) -> str:
    """Return the memory context of seed 004 §6.3, byte for byte."""
    return "".join(
        _section_text(RULES[kind].title, [_bullet(fact) for fact in facts])
        for kind, facts in ((SectionKind.USER, user_facts), (SectionKind.WORKSPACE, drive_facts))
        if facts
    )


def fact_tokens(text: str, counter: TokenCounter) -> int:
    """Return what a fact costs a prompt: the tokens of its bullet line."""
    return counter.tokens(_bullet(text) + "\n")


def assemble(
    sections: Iterable[ContextSection],
    *,
    counter: TokenCounter,
    budget: int = DEFAULT_BUDGET,
    max_tokens: int | None = None,
    max_characters: int | None = None,
) -> AssembledContext:
    """Assemble sections into the text for the model, in the order of their kinds.

    Budgets only warn (seed 002). Only `max_tokens` and `max_characters`, the hard limits of whoever
    carries the text, cut it: after a whole fact or a whole line of a note, never inside one, with
    `[truncated]` in place and everything cut listed in `left_out`. The end goes first.

    Args:
        sections: The sections; those of one kind keep their order, empty ones have no heading.
        counter: Counts as the model does that will read the text.
        budget: Tokens that the whole text should stay under.
        max_tokens: Tokens that it may not exceed; None sets no limit.
        max_characters: Characters that it may not exceed; None sets no limit.

    Raises:
        Invalid: a budget or limit is negative.
    """
    if min(budget, max_tokens or 0, max_characters or 0) < 0:
        raise Invalid("A budget or limit cannot be below 0; give a number of tokens.")
    order = list(SectionKind)
    drafts = [_Draft(s) for s in sorted(sections, key=lambda s: order.index(s.kind))]
    limits = _Limits(counter, max_tokens, max_characters)
    kept = limits.lines_that_fit(drafts)
    return _account(drafts, kept, limits, counter, budget)


class _Draft:
    """A section as lines; a line is a whole fact, or one line of a note."""

    def __init__(self, section: ContextSection) -> None:
        self.section = section
        self.lines: list[str] = []
        self.ends: list[int] = []
        for fact in section.facts:
            self.lines.extend(self._lines_of(fact.text))
            self.ends.append(len(self.lines))

    def _lines_of(self, text: str) -> list[str]:
        if self.section.bullets:
            return [_bullet(text)]
        lines = text.split("\n")
        if self.lines:
            lines[0] = f"\n{lines[0]}"
        return lines

    def text(self, kept: int, *, mark: bool) -> str:
        """Return the section with its first `kept` lines."""
        lines = self.lines[:kept]
        return _section_text(self.section.title, [*lines, TRUNCATED] if mark else lines)

    def part(self, fact: int, kept: int) -> tuple[list[str], list[str]]:
        """Split a fact's lines into those kept and those cut."""
        start = self.ends[fact - 1] if fact else 0
        lines = self.lines[start : self.ends[fact]]
        return lines[: max(0, kept - start)], lines[max(0, kept - start) :]


class _Limits:
    """The hard limits, and how many lines stay under them."""

    def __init__(
        self, counter: TokenCounter, max_tokens: int | None, max_characters: int | None
    ) -> None:
        self._counter = counter
        self._max_tokens = max_tokens
        self._max_characters = max_characters

    def lines_that_fit(self, drafts: Sequence[_Draft]) -> int:
        total = sum(len(draft.lines) for draft in drafts)
        if self._fits("".join(_texts(drafts, total))):
            return total
        fits, too_many = 0, total
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self._fits("".join(_texts(drafts, middle))):
                fits = middle
            else:
                too_many = middle
        return fits

    def _fits(self, text: str) -> bool:
        if self._max_characters is not None and len(text) > self._max_characters:
            return False
        return self._max_tokens is None or self._counter.tokens(text) <= self._max_tokens

    def words(self) -> str:
        """Name the limits to a person."""
        named = ((self._max_tokens, "tokens"), (self._max_characters, "characters"))
        return " and ".join(f"{limit:,} {unit}" for limit, unit in named if limit is not None)


def _bullet(text: str) -> str:
    return f"- {text}"


def _section_text(title: str, lines: Sequence[str]) -> str:
    return f"## {title}\n\n" + "\n".join(lines) + "\n\n"


def _shares(drafts: Sequence[_Draft], kept: int) -> list[int]:
    """Return how many of the first `kept` lines of all fall to each draft."""
    shares = []
    for draft in drafts:
        shares.append(min(kept, len(draft.lines)))
        kept -= shares[-1]
    return shares


def _texts(drafts: Sequence[_Draft], kept: int) -> list[str]:
    """Return each draft's text with the first `kept` lines of all, the cut marked once."""
    shares = _shares(drafts, kept)
    cut = kept < sum(len(draft.lines) for draft in drafts)
    last = max((place for place, share in enumerate(shares) if share), default=None)
    return [
        draft.text(share, mark=cut and place == last) if share else ""
        for place, (draft, share) in enumerate(zip(drafts, shares, strict=True))
    ]


def _account(
    drafts: Sequence[_Draft], kept: int, limits: _Limits, counter: TokenCounter, budget: int
) -> AssembledContext:
    texts = _texts(drafts, kept)
    text = "".join(texts)
    tokens = counter.tokens(text)
    sections: list[AssembledSection] = []
    left_out: list[LeftOut] = []
    warnings: list[ContextWarning] = []
    for draft, share, part in zip(drafts, _shares(drafts, kept), texts, strict=True):
        facts, cut = _divide(draft, share, limits, counter)
        left_out += [*draft.section.left_out, *cut]
        if not facts:
            continue
        section = AssembledSection(
            kind=draft.section.kind,
            tier=draft.section.tier,
            title=draft.section.title,
            text=part,
            tokens=counter.tokens(part),
            budget=draft.section.budget,
            facts=tuple(facts),
        )
        sections.append(section)
        warnings += budget_warning(section.tokens, section.budget, section.title)
        warnings += text_warnings(facts, section.title, one_line=draft.section.bullets)
    if kept < sum(len(draft.lines) for draft in drafts):
        warnings.insert(0, cut_warning(limits.words()))
    return AssembledContext(
        text=text,
        tokens=tokens,
        exact=counter.exact,
        tokenizer=counter.tokenizer,
        budget=budget,
        over_budget=tokens > budget,
        sections=tuple(sections),
        left_out=tuple(left_out),
        warnings=(*budget_warning(tokens, budget, None), *warnings),
    )


def _divide(
    draft: _Draft, kept: int, limits: _Limits, counter: TokenCounter
) -> tuple[list[AssembledFact], list[LeftOut]]:
    """Split a draft's facts into what is in the context and what was cut."""
    facts: list[AssembledFact] = []
    left_out: list[LeftOut] = []
    for place, fact in enumerate(draft.section.facts):
        inside, cut = draft.part(place, kept)
        if inside:
            lines = "\n".join(inside)
            facts.append(
                AssembledFact(
                    **vars(fact) | {"text": fact.text if not cut else lines.removeprefix("\n")},
                    tokens=counter.tokens(lines + "\n"),
                    truncated=bool(cut),
                )
            )
        if cut:
            left_out.append(
                LeftOut(
                    section=draft.section.title,
                    text="\n".join(cut).removeprefix("\n") if inside else fact.text,
                    handle=fact.handle,
                    reason=f"It does not fit the limit of {limits.words()}.",
                )
            )
    return facts, left_out
