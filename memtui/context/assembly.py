"""Assemble the memory context that a model reads before a run, and count its tokens.

The screen, the command and the hook all call `assemble`, so a person sees the bytes that the model
gets. A fact's text is used exactly as stored. A fact must be one line (seed 004 §6.2); one with a
line break or control characters is still shown and sent unchanged, with a warning, since a silent
repair would hide what is stored.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain, islice
from math import inf
from typing import TypeVar

from memtui.context.cost import TokenCounter
from memtui.context.data import DATA_NOTICE, as_data, inert, opening_tag
from memtui.contract import Invalid, Model, Problem, Record, RecordHandle, Scope, UtcDatetime
from memtui.passages import passage, words_in

T = TypeVar("T")

DEFAULT_BUDGET = 500
"""Tokens of memory context that a request should stay under (seed 004 §2.1)."""
FAR_OVER = 2
"""More tokens than this multiple of the budget get a separate warning (seed 002)."""
TRUNCATED = "[truncated]"
"""The line that marks where a text was cut."""
GIVEN_BEFORE = "It was delivered to this run before."
NO_ROOM = "It does not fit into the rest of the budget."
NOT_RELEVANT = "No word of the prompt is in it, and the search did not find it."
NO_PROMPT = "Facts are delivered by relevance, and there is no prompt."
"""Reasons to leave out a record that has no fault."""
ORDER: tuple[frozenset[str], ...] = (
    frozenset({"rule", "rules"}),
    frozenset({"style", "preference", "preferences"}),
    frozenset({"bio", "profile", "about"}),
)
"""Topics, tags and kinds that lead a section, first to last; everything else follows."""

_MARKED = re.compile(r"\n<memory\b.*?\n</memory>(?=\n)", re.DOTALL)
_NAMED = 3
"""Most facts that a warning names."""
_PREFIX = re.compile(r"\[MEMORY [^\]]*\]: ")
"""The prefix of a company's fact; it is not part of the fact."""
_LINE_BREAK = re.compile(r"[\n\r]")
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Tier(StrEnum):
    """Tiers of the context before a run, the most lasting first (seed 002)."""

    IDENTITY = "L0 identity"
    FACTS = "L1 facts"
    GUIDANCE = "L1 guidance"
    TOPIC = "L2 topic"
    SEARCH = "L3 search"


class SectionKind(StrEnum):
    """The kinds of sections, in the order in which a model reads them."""

    IDENTITY = "identity"
    USER = "user"
    WORKSPACE = "workspace"
    FACTS = "facts"
    """Facts of the agent."""
    COMPANY = "company"
    GUIDANCE = "guidance"
    """Notes of `memory/guidance/`."""
    PROFILE = "profile"
    """The provider's profile of the scope as a whole."""
    TOPIC = "topic"
    RELATED = "related"
    """Search results for the prompt, best first."""
    NOTICE = "notice"
    """Why nothing was searched."""


@dataclass(frozen=True, slots=True)
class SectionRule:
    """How a kind of section is titled, budgeted (tokens, advisory) and written."""

    tier: Tier
    title: str
    budget: int
    """Ignored with `fills`: then it is the rest of the whole budget."""
    bullets: bool = True
    """Whether each entry is a bullet; else it is plain lines."""
    marked: bool = False
    """Whether entries are marked as data (`memtui.context.data`): nobody chose them for prompts."""
    summaries: bool = False
    """Whether a record's summary, if any, replaces its text."""
    fills: bool = False
    """Whether it gets only the rest of the whole budget, filled in the order given."""


RULES: dict[SectionKind, SectionRule] = {
    SectionKind.IDENTITY: SectionRule(Tier.IDENTITY, "Identity", 400, bullets=False),
    SectionKind.USER: SectionRule(Tier.FACTS, "About This User", 250),
    SectionKind.WORKSPACE: SectionRule(Tier.FACTS, "About This Workspace", 250),
    SectionKind.FACTS: SectionRule(Tier.FACTS, "Facts", 200),
    SectionKind.COMPANY: SectionRule(Tier.FACTS, "About This Company", 200),
    SectionKind.GUIDANCE: SectionRule(Tier.GUIDANCE, "Guidance", 300, bullets=False),
    SectionKind.PROFILE: SectionRule(Tier.FACTS, "Profile", 300, bullets=False, marked=True),
    SectionKind.TOPIC: SectionRule(Tier.TOPIC, "Topic", 500, bullets=False, summaries=True),
    SectionKind.RELATED: SectionRule(
        Tier.SEARCH,
        "Related Memories",
        0,
        bullets=False,
        marked=True,
        summaries=True,
        fills=True,
    ),
    SectionKind.NOTICE: SectionRule(Tier.SEARCH, "About This Memory", 100, bullets=False),
}
"""Budgets of seed 002's tiers; the user's and the workspace's share seed 004's 500 (§11)."""


class ContextFact(Model):
    """One record for the model to read: a fact's line, or a note's text."""

    text: str
    handle: RecordHandle | None = None
    kind: str = "fact"
    created_at: UtcDatetime | None = None
    created_by: str | None = None
    expires_at: UtcDatetime | None = None
    pinned: bool = False
    scope: Scope | None = None
    binding_key: str | None = None
    """The binding that stores the record."""
    is_summary: bool = False
    """True: `text` is the record's summary, not its text."""
    is_passage: bool = False
    """True: `text` is only the passage that answers the prompt."""
    truncated: bool = False
    """True: `text` is only the beginning."""
    why: str = ""
    """Why a prompt needs it, where facts are delivered by relevance."""
    relevance: float | None = None
    """How well it fits the prompt, at least 1; None: that was not asked, or it is always there."""


class LeftOut(Model):
    """A record, or the end of one, that is not in the context, and why."""

    section: str
    text: str
    handle: RecordHandle | None = None
    scope: Scope | None = None
    binding_key: str | None = None
    reason: str
    why: str = ""
    """Why the prompt would need it, where facts are delivered by relevance."""
    relevance: float | None = None
    """How well it fits the prompt, as of a fact."""


class ContextSection(Model):
    """The records of one section, in order, before assembly."""

    kind: SectionKind
    facts: tuple[ContextFact, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def rule(self) -> SectionRule:
        """The rule for this kind of section."""
        return RULES[self.kind]


class AssembledFact(ContextFact):
    """A fact in the context. `text` is the part that the model reads."""

    tokens: int
    """Tokens of its line, including bullet and line end."""


class AssembledSection(Model):
    """A section in the context, as the model reads it."""

    kind: SectionKind
    tier: Tier
    title: str
    text: str
    tokens: int
    budget: int
    """Advisory, in tokens."""
    facts: tuple[AssembledFact, ...]


class WarningKind(StrEnum):
    """The kinds of warning."""

    OVER_BUDGET = "over_budget"
    FAR_OVER_BUDGET = "far_over_budget"
    CUT = "cut"
    LINE_BREAK = "line_break"
    CONTROL_CHARACTERS = "control_characters"
    POISONED = "poisoned"
    """It reads like an instruction to the model, or hides characters. Shown only to a person."""
    UNREAD = "unread"
    LATE = "late"


class ContextWarning(Model):
    """One fault. `section` is a title; None: the whole context."""

    kind: WarningKind
    section: str | None = None
    message: str
    where: str = ""
    """A sentence that names its first records; empty: it has none."""
    handles: tuple[RecordHandle, ...] = ()


class AssembledContext(Model):
    """The memory context: its exact text, tokens, sections, omissions and warnings."""

    text: str
    tokens: int
    """Tokens of the whole text; the sum of its parts may differ."""
    exact: bool
    tokenizer: str
    budget: int
    over_budget: bool
    sections: tuple[AssembledSection, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def section_of_records(
    kind: SectionKind,
    records: Iterable[Record],
    *,
    now: datetime,
    binding_key: str | None = None,
    prompt: str = "",
) -> ContextSection:
    """Make a section of the records valid at `now`: rules first, then style, then bio.

    A record that is expired, outside its validity window or without text is left out with its
    reason. Records of the same rank have a stable order, pinned first and then the oldest, so that
    a new fact does not change the cached beginning of a prompt. Results of a search for `prompt`
    keep their order, and a long text is reduced to the passage that answers the prompt.
    """
    facts, left_out = [], []
    for record in records if RULES[kind].fills else sorted(records, key=_prompt_order):
        fact = ContextFact.like(record, binding_key=binding_key)
        if RULES[kind].summaries and record.summary:
            fact = fact.model_copy(update={"text": record.summary, "is_summary": True})
        if RULES[kind].fills:
            part = passage(fact.text, prompt)
            fact = fact.model_copy(update={"text": part.text, "is_passage": part.is_cut})
        reason = _why_not(record, now)
        if reason is None:
            facts.append(fact)
        else:
            left_out.append(_left_out(fact, kind, reason))
    return ContextSection(kind=kind, facts=tuple(facts), left_out=tuple(left_out))


def _left_out(
    fact: ContextFact, kind: SectionKind, reason: str, text: str | None = None
) -> LeftOut:
    shown = {} if text is None else {"text": text}
    return LeftOut.like(fact, section=RULES[kind].title, reason=reason, **shown)


def without_given(
    section: ContextSection, given: Sequence[str], *, logged: Callable[[str], str]
) -> ContextSection:
    """Leave out facts that earlier texts already contain, word for word.

    Args:
        section: The section to reduce.
        given: The texts delivered before, as stored in the log.
        logged: Returns a text as the log stores it.
    """
    kept, left_out = [], list(section.left_out)
    if not section.rule.marked:  # a memory that quotes a fact does not replace it
        given = [_MARKED.sub("\n", text) for text in given]
    for fact in section.facts:
        if _is_in(given, fact, section.rule, logged):
            left_out.append(_left_out(fact, section.kind, GIVEN_BEFORE))
        else:
            kept.append(fact)
    return ContextSection(kind=section.kind, facts=tuple(kept), left_out=tuple(left_out))


def _is_in(
    texts: Sequence[str], fact: ContextFact, rule: SectionRule, logged: Callable[[str], str]
) -> bool:
    """Whether a text contains a fact, or its beginning where it was truncated."""
    written = "\n".join(_lines(fact, rule))
    forms = {f"\n{one}\n" for one in (written, logged(written))}
    if any(form in text for text in texts for form in forms):
        return True
    if not rule.marked:
        return False
    whole, tag = logged(inert(fact.text)), f"\n{opening_tag(_said(fact))}\n"
    for text in texts:
        _, _, after = text.partition(tag)
        beginning, cut, _ = after.partition(f"\n{TRUNCATED}\n</memory>\n")
        if cut and whole.startswith(f"{beginning}\n"):
            return True
    return False


def _lines(fact: ContextFact, rule: SectionRule) -> list[str]:
    """Return a fact as units to cut between; a bullet or marked entry is one uncut unit."""
    if rule.marked:
        cut = f"\n{TRUNCATED}" if fact.truncated else ""
        return [as_data(fact.text + cut, _said(fact))]
    if rule.bullets:
        return [f"- {fact.text}"]
    of = f" of {inert(fact.handle.provider_record_id)}" if fact.handle else ""
    lead = f"[summary{of}] " if fact.is_summary else ""
    return f"{lead}{fact.text}".split("\n")


def _said(fact: ContextFact) -> dict[str, str | None]:
    return {
        "id": fact.handle.provider_record_id if fact.handle else None,
        "on": fact.created_at.date().isoformat() if fact.created_at else None,
        "as": "passage" if fact.is_passage else "summary" if fact.is_summary else None,
    }


def _why_not(record: Record, now: datetime) -> str | None:
    if record.expires_at is not None and record.expires_at <= now:
        return f"It expired on {record.expires_at:%Y-%m-%d %H:%M} UTC."
    if record.valid_to is not None and record.valid_to <= now:
        return f"It stopped being valid on {record.valid_to:%Y-%m-%d %H:%M} UTC."
    if record.valid_from is not None and record.valid_from > now:
        return f"It is not valid before {record.valid_from:%Y-%m-%d %H:%M} UTC."
    return None if record.shown.strip() else "It has no text."


def is_rule(record: Record) -> bool:
    """Whether a record is a rule: by its kind, topic or a tag."""
    return not ORDER[0].isdisjoint(_labels(record))


def least_left_out(
    ranked: Sequence[T],
    tokens_without: Callable[[frozenset[T]], int],
    tokens_of: Callable[[T], int],
    budget: int,
) -> frozenset[T] | None:
    """Return which of some records to leave out of a context, so that it fits its budget.

    From the most to the least important, each record that still fits stays. So a record that goes
    could stay only in place of a more important one. None: the context exceeds the budget even
    without all of them.

    Args:
        ranked: The records that may go, the least important first; no two are equal.
        tokens_without: Returns the tokens of the context without some of them.
        tokens_of: Returns the tokens of one record's line.
        budget: Most tokens of the context.
    """

    def fits(count: int) -> bool:
        return tokens_without(frozenset(ranked[:count])) <= budget

    count = bisect_left(range(len(ranked) + 1), 1, key=fits)
    if count > len(ranked):
        return None
    gone = frozenset(ranked[:count])
    room = budget - tokens_without(gone)
    for one in reversed(ranked[:count]):
        # Within the text a line may have a token or two fewer than alone.
        if tokens_of(one) <= room + 2 and (tokens := tokens_without(gone - {one})) <= budget:
            gone, room = gone - {one}, budget - tokens
    return gone


def by_relevance(
    sections: Sequence[ContextSection],
    prompt: str,
    *,
    always: Mapping[tuple[str | None, RecordHandle | None], str],
    found: Collection[tuple[str | None, RecordHandle | None]],
    counter: TokenCounter,
    budget: int,
) -> list[ContextSection]:
    """Leave out the facts that a prompt does not need.

    A fact is relevant if it has a word of the prompt, a rare one more than one of many facts, or if
    the search found it. The most relevant ones stay, as far as the budget has room beside what
    does not depend on the prompt. Those beyond the budget of their section go first, so that no
    section takes the room of another.

    Args:
        sections: The sections of the context; only those of facts change.
        prompt: The prompt; empty: no fact is relevant.
        always: Facts that always stay, by binding and handle, each with the reason.
        found: Facts that the search for the prompt found.
        counter: The token counter of the model.
        budget: Tokens of the whole context.
    """
    weighed = _weighed(sections, prompt, always, found)
    facts = {
        (place, at): fact
        for place, section in enumerate(weighed)
        if section.rule.bullets
        for at, fact in enumerate(section.facts)
    }
    beyond = {(place, at) for place, section in enumerate(weighed) if section.rule.bullets
              for at in _beyond_budget(section, counter)}  # fmt: skip

    def without(gone: frozenset[tuple[int, int]]) -> list[ContextSection]:
        return [
            _needed(section, {at for of, at in gone if of == place}, prompt)
            if section.rule.bullets
            else section
            for place, section in enumerate(weighed)
        ]

    def tokens_without(gone: frozenset[tuple[int, int]]) -> int:
        kept = [one for one in without(gone) if not one.rule.fills]
        return assemble(kept, counter=counter, budget=budget).tokens

    least_first = sorted(
        (name for name, fact in facts.items() if fact.relevance is not None),
        key=lambda name: (name not in beyond, facts[name].relevance or 0, -name[0], -name[1]),
    )
    gone = least_left_out(
        least_first, tokens_without, lambda name: fact_tokens(facts[name].text, counter), budget
    )
    return without(frozenset(least_first) if gone is None else gone)


def _weighed(
    sections: Sequence[ContextSection],
    prompt: str,
    always: Mapping[tuple[str | None, RecordHandle | None], str],
    found: Collection[tuple[str | None, RecordHandle | None]],
) -> list[ContextSection]:
    """Return the sections whose facts say why a prompt needs them, and how well they fit."""
    facts = [fact for one in sections if one.rule.bullets for fact in one.facts]
    said = (_PREFIX.sub("", one.text, count=1).replace("_", " ") for one in facts)
    shared = [words_in(text, prompt) if prompt else [] for text in said]
    common = Counter(word for words in shared for word in words)

    def weighed(fact: ContextFact, words: Sequence[str]) -> ContextFact:
        name = fact.binding_key, fact.handle
        if name in always:
            return fact.model_copy(update={"why": always[name]})
        if words:
            why = f"the prompt says {', '.join(f'“{word}”' for word in words)}"
            relevance = round(1 + sum(1 / common[word] for word in words), 3)
            return fact.model_copy(update={"why": why, "relevance": relevance})
        if name in found:
            why = "the search for the prompt found it"
            return fact.model_copy(update={"why": why, "relevance": 1.0})
        return fact

    made = map(weighed, facts, shared)
    return [
        one.model_copy(update={"facts": tuple(islice(made, len(one.facts)))})
        if one.rule.bullets
        else one
        for one in sections
    ]


def _needed(section: ContextSection, gone: Collection[int], prompt: str) -> ContextSection:
    """Return a section with the facts that a prompt needs, but for those that go for room."""
    stay, left_out = [], list(section.left_out)
    for at, fact in enumerate(section.facts):
        if fact.why and at not in gone:
            stay.append(fact)
        else:
            reason = NO_ROOM if fact.why else NOT_RELEVANT if prompt else NO_PROMPT
            left_out.append(_left_out(fact, section.kind, reason))
    return ContextSection(kind=section.kind, facts=tuple(stay), left_out=tuple(left_out))


def _beyond_budget(section: ContextSection, counter: TokenCounter) -> Iterator[int]:
    """Yield which facts exceed the section's own budget, taken from the most relevant one on."""
    room = section.rule.budget - counter.tokens(_heading(section.rule))
    relevant = [at for at, fact in enumerate(section.facts) if fact.why]
    relevance = [one.relevance or inf for one in section.facts]  # inf: always there
    for at in sorted(relevant, key=lambda at: -relevance[at]):
        room -= fact_tokens(section.facts[at].text, counter)
        if room < 0:
            yield at


def _labels(record: Record) -> set[str]:
    return {word.casefold() for word in (record.kind, record.topic or "", *record.tags)}


def _prompt_order(record: Record) -> tuple[int, bool, float, str]:
    words = _labels(record)
    rank = next((place for place, leads in enumerate(ORDER) if leads & words), len(ORDER))
    created = record.created_at.timestamp() if record.created_at else float("inf")
    return rank, not record.pinned, created, record.handle.provider_record_id


def fact_tokens(text: str, counter: TokenCounter) -> int:
    """Return the tokens of a fact's bullet line."""
    return counter.tokens(f"- {text}\n")


def assemble(
    sections: Iterable[ContextSection],
    *,
    counter: TokenCounter,
    budget: int = DEFAULT_BUDGET,
    max_tokens: int | None = None,
    max_characters: int | None = None,
) -> AssembledContext:
    """Assemble sections into the text for the model, in the order of their kinds.

    Budgets only warn (seed 002), but a section that `fills` gets the rest of the whole budget. Only
    the hard limits `max_tokens` and `max_characters` cut the text: from the end, after a whole fact
    or a whole line of a note, marked with `[truncated]`; `left_out` lists everything cut.

    Args:
        sections: The sections; those of one kind keep their order, empty ones have no heading.
        counter: The token counter of the model that will read the text.
        budget: Advisory tokens of the whole text.
        max_tokens: Most tokens of the text; None sets no limit.
        max_characters: Most characters of the text; None sets no limit.

    Raises:
        Invalid: a budget or limit is negative.
    """
    if min(budget, max_tokens or 0, max_characters or 0) < 0:
        raise Invalid("A budget or limit cannot be below 0; give a number of tokens.")
    order = list(SectionKind)
    drafts = _drafts(sorted(sections, key=lambda one: order.index(one.kind)), budget, counter)

    def fits(kept: int) -> bool:
        text = "".join(_texts(drafts, kept))
        if max_characters is not None and len(text) > max_characters:
            return False
        return max_tokens is None or counter.tokens(text) <= max_tokens

    kept = total = sum(draft.size for draft in drafts)
    if not fits(total):
        kept = bisect_left(range(1, total), 1, key=lambda count: not fits(count))
    named = ((max_tokens, "tokens"), (max_characters, "characters"))
    limits = " and ".join(f"{most:,} {unit}" for most, unit in named if most is not None)
    texts = _texts(drafts, kept)
    text = "".join(texts)
    tokens = counter.tokens(text)
    warnings = list(_over_budget(tokens, budget, None))
    if kept < total:
        message = f"The memory context was cut to {limits}; what was left out is listed."
        warnings.append(ContextWarning(kind=WarningKind.CUT, message=message))
    assembled: list[AssembledSection] = []
    left_out: list[LeftOut] = []
    for draft, part in zip(drafts, texts, strict=True):
        rule, cost = draft.section.rule, counter.tokens(part)
        facts, cut = draft.divided(kept, limits, counter)
        kept = max(0, kept - draft.size)
        left_out += [*draft.section.left_out, *cut]
        if facts:
            assembled.append(
                AssembledSection(
                    kind=draft.section.kind,
                    tier=rule.tier,
                    title=rule.title,
                    text=part,
                    tokens=cost,
                    budget=draft.budget,
                    facts=tuple(facts),
                )
            )
            warnings += _over_budget(cost, draft.budget, rule.title)
            warnings += _odd_texts(facts, rule)
    return AssembledContext(
        text=text,
        tokens=tokens,
        exact=counter.exact,
        tokenizer=counter.tokenizer,
        budget=budget,
        over_budget=tokens > budget,
        sections=tuple(assembled),
        left_out=tuple(left_out),
        warnings=tuple(warnings),
    )


def _drafts(sections: Sequence[ContextSection], budget: int, counter: TokenCounter) -> list[_Draft]:
    """Draft sections in order; a section that `fills` gets the budget left by those before."""
    drafts: list[_Draft] = []
    for one in sections:
        if one.rule.fills:
            room = max(0, budget - counter.tokens("".join(_texts(drafts, sys.maxsize))))
            drafts.append(_Draft(_fitting(one, room, counter), room))
        else:
            drafts.append(_Draft(one, one.rule.budget))
    return drafts


def _fitting(section: ContextSection, room: int, counter: TokenCounter) -> ContextSection:
    """Return a section with as many of its facts, in order, as fit into `room` tokens.

    The first fact that does not fit is truncated to the lines that do, and ends the section.
    """
    rule, kept, left_out = section.rule, [], list(section.left_out)
    room -= counter.tokens(_heading(rule))
    for fact in section.facts:
        lines = fact.text.split("\n")

        def cost(count: int, fact: ContextFact = fact, lines: Sequence[str] = lines) -> int:
            written = "\n".join(_lines(_beginning(fact, lines, count), rule))
            return counter.tokens(f"{written}\n")

        whole = len(lines)
        fits = whole
        if cost(whole) > room:
            fits = bisect_left(range(1, whole), 1, key=lambda count: cost(count) > room)
        if fits:
            kept.append(_beginning(fact, lines, fits))
            room -= cost(fits)
        if fits < whole:
            room = 0 if fits else room
            rest = "\n".join(lines[fits:])
            left_out.append(_left_out(fact, section.kind, NO_ROOM, rest))
    return ContextSection(kind=section.kind, facts=tuple(kept), left_out=tuple(left_out))


def _beginning(fact: ContextFact, lines: Sequence[str], count: int) -> ContextFact:
    if count == len(lines):
        return fact
    return fact.model_copy(update={"text": "\n".join(lines[:count]), "truncated": True})


def _heading(rule: SectionRule) -> str:
    """Return the heading of a section (seed 004 §6.3), with the notice where it is data."""
    return f"## {rule.title}\n\n" + (f"{DATA_NOTICE}\n\n" if rule.marked else "")


class _Draft:
    """A section as lines; a line is a whole fact, or one line of a note."""

    def __init__(self, section: ContextSection, budget: int) -> None:
        rule = section.rule
        self.section = section
        self.budget = budget
        self.parts = [_lines(fact, rule) for fact in section.facts]
        """Each fact's lines, with an empty line between two notes."""
        if not (rule.bullets or rule.marked):
            for part in self.parts[1:]:
                part[0] = f"\n{part[0]}"
        self.size = sum(map(len, self.parts))

    def divided(
        self, kept: int, limits: str, counter: TokenCounter
    ) -> tuple[list[AssembledFact], list[LeftOut]]:
        """Split the facts into the first `kept` lines, which stay, and the rest, which is cut."""
        facts: list[AssembledFact] = []
        left_out: list[LeftOut] = []
        for fact, part in zip(self.section.facts, self.parts, strict=True):
            inside, cut = "\n".join(part[:kept]), "\n".join(part[kept:])
            is_in, is_cut = kept > 0, kept < len(part)
            kept = max(0, kept - len(part))
            if is_in:
                facts.append(
                    AssembledFact(
                        **vars(fact)
                        | {
                            "text": inside.removeprefix("\n") if is_cut else fact.text,
                            "truncated": is_cut or fact.truncated,
                            "tokens": counter.tokens(inside + "\n"),
                        }
                    )
                )
            if is_cut:
                rest = cut.removeprefix("\n") if is_in else fact.text
                reason = f"It does not fit the limit of {limits}."
                left_out.append(_left_out(fact, self.section.kind, reason, rest))
        return facts, left_out


def _texts(drafts: Sequence[_Draft], kept: int) -> list[str]:
    """Return each draft's text, cut after `kept` lines in all; the cut is marked once."""
    shares = []
    for draft in drafts:
        shares.append(list(chain.from_iterable(draft.parts))[:kept])
        kept -= len(shares[-1])
    filled = [lines for lines in shares if lines]
    if filled and sum(map(len, shares)) < sum(draft.size for draft in drafts):
        filled[-1].append(TRUNCATED)
    return [
        _heading(draft.section.rule) + "\n".join(lines) + "\n\n" if lines else ""
        for draft, lines in zip(drafts, shares, strict=True)
    ]


def unread_warning(problem: Problem) -> ContextWarning:
    """Warn that an unreadable record may be missing from the context."""
    message = f"Not delivered to the model: records that could not be read. {problem.sentence()}"
    return ContextWarning(kind=WarningKind.UNREAD, message=message)


def late_warning(kind: SectionKind) -> ContextWarning:
    """Warn that a section is missing or incomplete because reading it took too long."""
    title = RULES[kind].title
    message = f"What belongs to {title} was not read in time and is left out."
    return ContextWarning(kind=WarningKind.LATE, section=title, message=message)


def _over_budget(tokens: int, budget: int, section: str | None) -> tuple[ContextWarning, ...]:
    """Warn if `tokens` exceed `budget`, with another kind above `FAR_OVER` budgets."""
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


def named(facts: Sequence[ContextFact]) -> str:
    """Return a sentence that names the first records among some facts; empty for none."""
    places = [
        f"{fact.handle.provider_record_id} in {fact.binding_key}"
        if fact.binding_key
        else fact.handle.provider_record_id
        for fact in facts
        if fact.handle is not None
    ]
    more = f" and {len(places) - _NAMED:,} more" if len(places) > _NAMED else ""
    return f"See {', '.join(places[:_NAMED])}{more}." if places else ""


def _odd_texts(facts: Sequence[ContextFact], rule: SectionRule) -> Iterator[ContextWarning]:
    """Warn of texts with line breaks or control characters, which a model may misread."""
    broken = [fact for fact in facts if rule.bullets and _LINE_BREAK.search(fact.text)]
    odd = [fact for fact in facts if not rule.marked and _CONTROL.search(fact.text)]
    for kind, found, what in (
        (
            WarningKind.LINE_BREAK,
            broken,
            "with a line break: the model reads more lines than facts; edit or forget it.",
        ),
        (
            WarningKind.CONTROL_CHARACTERS,
            odd,
            "with invisible control characters, which the model reads; edit or forget it.",
        ),
    ):
        if found:
            count = "There is 1 fact" if len(found) == 1 else f"There are {len(found):,} facts"
            yield ContextWarning(
                kind=kind,
                section=rule.title,
                message=f"{count} in {rule.title} {what}",
                where=named(found),
                handles=tuple(fact.handle for fact in found if fact.handle is not None),
            )
