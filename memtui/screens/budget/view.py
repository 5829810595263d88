"""What the Budget screen shows, as one frozen value, and how each part of it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.context.assembly import DEFAULT_BUDGET, RULES, SectionKind, WarningKind
from memtui.context.cost import Price, PromptShare
from memtui.screens.budget.facts import Place, place_of_section
from memtui.widgets import format as fmt
from memtui.widgets.charts import budget_bar, numbers_width
from memtui.widgets.detail_lines import SEPARATOR, key_hint
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.service.context import ContextAnswer

_LABEL_CELLS = 10
_BAR_CELLS = (8, 40)
_BEHIND_CELLS = 34
_SHOWN_WARNINGS = 2
_WIDE_CELLS = 100


@dataclass(frozen=True, slots=True)
class BudgetView:
    """The context that is looked at. `answer` is None until it has been assembled."""

    model: str = ""
    budget: int = DEFAULT_BUDGET
    places: tuple[Place, ...] = ()
    answer: ContextAnswer | None = None
    same: Mapping[str, int] = field(default_factory=dict)
    """Facts that say what another says, by the word of their place."""
    raw: bool = False
    """Whether the text is shown as the model sees it, instead of the list of its facts."""


def head_content(view: BudgetView, width: int) -> Content:
    """Return whose context it is, for which model, and what a request of it costs."""
    wide = width >= _WIDE_CELLS
    whose = display(" in ".join(place.label for place in view.places), limit=120, style=STRONG)
    who = line("context for", whose) if wide else whose
    model = line("model" if wide else None, display(view.model, limit=80, style=ACCENT))
    if view.answer is None:
        return line(who, model, gap=SEPARATOR)
    counted = "exact tokens" if view.answer.exact else "estimated tokens"
    how = f"({counted}, {view.answer.tokenizer})" if wide else f"({counted})"
    named = line(model, display(how, style=DIM))
    return lines([line(who, named, gap=SEPARATOR), price_content(view.answer.price)])


def price_content(price: Price) -> Content:
    """Return what a request and a thousand of them cost, and out of which table."""
    since = f" of {price.table_date:%Y-%m-%d}" if price.table_date else ""
    table = display(f"{price.table}{since}", style=DIM)
    if not price.priced:
        unknown = display(f"unpriced: no price is known for {price.model}", limit=200, style=WARN)
        return line(unknown, table, gap=SEPARATOR)
    request = f"{_dollars(price.cost_usd)} a request"
    thousand = f"{_dollars(price.per_1000_requests_usd)} per 1,000"
    return line(display(request, style=STRONG), thousand, table, gap=SEPARATOR)


def _dollars(amount: Decimal | None) -> str:
    return "$0" if amount is not None and not amount else fmt.money(amount, unpriced=amount is None)


def bars_content(view: BudgetView, width: int) -> Content:
    """Return a bar for each section, and one for the whole against its budget."""
    answer = view.answer
    if answer is None:
        return Content("")
    sizes = {section.kind: section for section in answer.sections}
    kinds = [kind for kind in SectionKind if kind in sizes or kind in _always(view.places)]
    low, high = _BAR_CELLS
    cells = max(low, min(high, width - _LABEL_CELLS - 14 - _BEHIND_CELLS))
    wide = numbers_width([answer.tokens, *(section.tokens for section in sizes.values())])
    drawn = []
    for kind in kinds:
        section = sizes.get(kind)
        tokens, budget = (section.tokens, section.budget) if section else (0, RULES[kind].budget)
        facts = len(section.facts) if section else 0
        behind = line(_facts_words(kind, facts), _same_hint(view, kind), gap="   ")
        bar = budget_bar(tokens, budget, cells, numbers=wide)
        drawn.append(_labelled_bar(kind.value, bar, behind))
    share = display(f"{share_words(answer.share)} of the prompt", style=DIM)
    total = budget_bar(answer.tokens, view.budget, cells, numbers=wide)
    drawn.append(_labelled_bar("total", total, share, STRONG))
    return lines(drawn)


def _always(places: tuple[Place, ...]) -> set[SectionKind]:
    kinds = (SectionKind.USER, SectionKind.WORKSPACE, SectionKind.FACTS)
    return {kind for kind in kinds if place_of_section(kind, places)}


def _facts_words(kind: SectionKind, number: int) -> Content:
    noun = "fact" if RULES[kind].bullets else "note"
    return display(fmt.counted(number, noun) if number else f"no {noun}s", style=DIM)


def _same_hint(view: BudgetView, kind: SectionKind) -> Content:
    place = place_of_section(kind, view.places)
    same = view.same.get(place.word, 0) if place and RULES[kind].bullets else 0
    if not same:
        return Content("")
    return display(f"{fmt.count(same)} said twice  ", style=WARN) + key_hint("p", "prune")


def _labelled_bar(label: str, bar: Content, behind: Content, style: str = "") -> Content:
    return display(f"{label:<{_LABEL_CELLS}}", style=style) + bar + Content("  ") + behind


def share_words(share: PromptShare) -> str:
    """Return the memory's share of the largest to the smallest prompt: `0.9 to 2.6 %`."""
    least, most = f"{share.min_share * 100:.1f}", f"{share.max_share * 100:.1f}"
    return f"{least} %" if least == most else f"{least} to {most} %"


def notes_content(view: BudgetView) -> Content:
    """Return the first warnings, and how many more things there are to know.

    That a budget is exceeded the bars say already.
    """
    answer = view.answer
    if answer is None:
        return Content("")
    warnings = [one for one in answer.warnings if one.kind is not WarningKind.OVER_BUDGET]
    shown = [
        display(f"▲ {warning.message}", limit=300, style=WARN)
        for warning in warnings[:_SHOWN_WARNINGS]
    ]
    more = len(warnings) - len(shown)
    words = [
        f"{fmt.counted(more, 'more warning')}" if more else "",
        f"{fmt.count(len(answer.left_out))} left out" if answer.left_out else "",
    ]
    if told := ", ".join(word for word in words if word):
        shown.append(line(display(told, style=WARN), key_hint("l", "says why"), gap="  "))
    return lines(shown)


def doubts_content(answer: ContextAnswer) -> Content:
    """Return every warning, and everything that was left out with its reason."""
    blocks = [display(f"▲ {one.message}", limit=600, style=WARN) for one in answer.warnings]
    if not blocks:
        blocks.append(display("Nothing is wrong with this context."))
    blocks.append(Content(""))
    if not answer.left_out:
        blocks.append(display("Nothing was left out.", style=DIM))
    for one in answer.left_out:
        blocks.append(line(display(one.section, style=DIM), display(one.text, limit=400)))
        blocks.append(display(f"    {one.reason}", limit=300, style=WARN))
    return lines(blocks)


def share_content(share: PromptShare) -> Content:
    """Return the parts of a whole prompt, with the memory's share of it (seed 004 §11)."""
    return lines(_share_lines(share))


def _share_lines(share: PromptShare) -> Iterator[Content]:
    yield display(f"{'':<24}{'least':>10}{'most':>10}   tokens", style=DIM)
    for row in (*share.rows, share.baseline, share.total):
        total = row in (share.baseline, share.total)
        words = f"{row.name:<24}{fmt.count(row.min_tokens):>10}{fmt.count(row.max_tokens):>10}"
        yield display(words, style=STRONG if total or row is share.rows[-1] else "")
    yield Content("")
    yield line("The memory is", display(share_words(share), style=STRONG), "of the whole prompt.")
    if share.over_target:
        yield display("▲ It should stay under 5 %; prune it.", style=WARN)
    else:
        yield display("It should stay under 5 %.", style=DIM)
