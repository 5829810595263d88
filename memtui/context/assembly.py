"""Assemble the text that a model reads before a run, and account for every token of it.

The screen, the command and the hook all call `assemble`, so a person sees the bytes that the model
gets. The text of a fact goes in as it is stored, whatever it holds: a fact is one line by rule
(seed 004 §6.2), but one with a line break or control characters that got past that rule is shown
and sent unchanged, with a warning, since a silent repair here would hide what the store holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memtui.context.sections import RULES, ContextFact, ContextSection, LeftOut, SectionKind, Tier
from memtui.context.tokens import TokenCounter
from memtui.context.warnings import ContextWarning, budget_warning, cut_warning, text_warnings
from memtui.contract import Invalid, Model

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
