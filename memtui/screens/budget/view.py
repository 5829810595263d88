"""The contents of the Budget screen: owners of facts, facts as rows, head, bars and charts."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from textual.content import Content

from memtui.context.assembly import (
    DEFAULT_BUDGET,
    RULES,
    AssembledContext,
    ContextFact,
    SectionKind,
    WarningKind,
)
from memtui.context.cost import Price, PromptShare, price
from memtui.contract import (
    FieldTest,
    Filter,
    MemtuiError,
    RecordHandle,
    Scope,
    owner_of,
    owner_words,
)
from memtui.fuzzy import finds
from memtui.paths import project_here
from memtui.presenters import format as fmt
from memtui.pruning.uses import Used, is_used_as
from memtui.screens.scope_choices import going, seen_scopes
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState
from memtui.service.usecases.remembered import OwnerShare, Remembered, remembered
from memtui.service.visibility import without_prefix
from memtui.widgets.charts import Chart, Series, budget_bar, draw, numbers_width
from memtui.widgets.columns import Cell, Column, after_point, fit_cell
from memtui.widgets.detail_lines import SEPARATOR, Line, heading, joined, key_hint, labelled, moment
from memtui.widgets.display import ACCENT, DIM, STRONG, WARN, display, line, lines
from memtui.widgets.record_names import RecordName, read_column

if TYPE_CHECKING:
    from memtui.service.answers import RetrievalCount
    from memtui.service.context.contexts import ContextAnswer, ContextRequest
    from memtui.service.history.metrics import FactDay, FactMetrics
    from memtui.service.review.known_risks import RiskMark

_FIELDS = {"agent": "agent_id", "user": "subject_id", "project": "project_id"}
"""The scope field of each kind of owner."""
_WORD_OF = {field: word for word, field in _FIELDS.items()} | {"company_id": "company"}
_FLAGS = {"agent": "--agent", "user": "--subject", "project": "--project"}
COMPANY = "company"
_SECTIONS = {
    SectionKind.IDENTITY: "agent",
    SectionKind.USER: "user",
    SectionKind.WORKSPACE: "project",
    SectionKind.FACTS: "agent",
    SectionKind.COMPANY: COMPANY,
    SectionKind.GUIDANCE: "agent",
    SectionKind.TOPIC: "project",
}
"""The owner of each section's records; in other sections every record names its owner."""
_FACTS_OF = {
    "agent": SectionKind.FACTS,
    "user": SectionKind.USER,
    "project": SectionKind.WORKSPACE,
    COMPANY: SectionKind.COMPANY,
}
_ORDER = ("user", "project", "agent", COMPANY)
_MOST_OFFERS = 200
_NAME_CELLS = 24
DAYS = 60
"""Days that the charts go back."""
_LABEL_CELLS = 10
_BAR_CELLS = (8, 40)
_LEAST_NAME = 12
"""Least cells for the owner's name beside the cost."""
_BEHIND_CELLS = 34
_SHOWN_WARNINGS = 2
_SHARE_NAME_CELLS = 24
_SHARE_CELLS = 8
_WIDE_CELLS = 100
_CHART_LINES = 10


@dataclass(frozen=True, slots=True)
class FactsPlace:
    """An owner of facts, and the binding that stores them."""

    word: str
    """`user`, `project`, `agent` or `company`."""
    name: str
    scope: Scope
    binding_key: str = ""

    @property
    def label(self) -> str:
        """The owner in words: `user ana`."""
        return f"{self.word} {self.name}"

    @property
    def section(self) -> SectionKind:
        """The section of a context with its facts."""
        return _FACTS_OF[self.word]


def places_of(scope: Scope) -> tuple[FactsPlace, ...]:
    """Return the owners of the facts in a context of this scope, without their bindings.

    The company is added elsewhere, for those who may change its facts.
    """
    return tuple(
        FactsPlace(word, name, Scope.model_validate({"company_id": scope.company_id, field: name}))
        for word, field in _FIELDS.items()
        if (name := getattr(scope, field))
    )


def place_of_owner(scope: Scope, binding_key: str) -> FactsPlace:
    """Return the place of an owner's facts: a scope that names only the owner, and the binding."""
    word, _, name = owner_words(scope).partition(" ")
    return FactsPlace(word, name, scope, binding_key)


def section_word(kind: SectionKind) -> str:
    """Return the name of a section on the screen; the workspace is called project."""
    return "project" if kind is SectionKind.WORKSPACE else kind.value


def place_of_section(kind: SectionKind, places: Iterable[FactsPlace]) -> FactsPlace | None:
    """Return the owner of a section's facts; None: it is not one of `places`."""
    word = _SECTIONS.get(kind)
    return next((place for place in places if place.word == word), None)


@dataclass(frozen=True, slots=True)
class Offer:
    """An owner to look at, with its records in one binding."""

    place: FactsPlace
    """Its binding is named where the owner's context does not read it otherwise."""
    share: OwnerShare | None = None
    """None: the log names the owner, and no binding has a record of it."""
    cost: Decimal | None = None
    """The price of what a context includes, in US dollars; None: unpriced."""

    @property
    def has_context(self) -> bool:
        """Whether a context of the owner has something to show, or nothing is remembered yet."""
        is_company = self.place.word == COMPANY
        return not is_company and (self.share is None or self.share.in_contexts > 0)


async def find_offers(state: AppState, model: str) -> tuple[Offer, ...]:
    """Return the owners of all records, and the others that the log knows.

    The project of the working folder comes first.
    """
    session = state.session
    if session is None:
        return ()
    seen, found = await seen_scopes(session), Remembered()
    with suppress(MemtuiError):  # the log still names the owners used so far
        found = await remembered(session.service, session.caller, model)
    offers = await asyncio.to_thread(offers_of, seen, found.shares, model)
    return tuple([await _routed(session, one) for one in offers[:_MOST_OFFERS]])


async def _routed(session: ServiceSession, offer: Offer) -> Offer:
    """Return the offer without its binding where that serves the owner anyway."""
    place, key = offer.place, ""
    with suppress(MemtuiError):
        key = (await session.service.resolve(session.caller, place.scope, None)).binding_key
    is_served = key == place.binding_key
    return replace(offer, place=replace(place, binding_key="")) if is_served else offer


def offers_of(seen: Sequence[Scope], shares: Iterable[OwnerShare], model: str) -> list[Offer]:
    """Return an offer for each share, and for each user, project and agent in `seen`. Blocking."""

    def offer(owner: Scope, share: OwnerShare | None = None) -> Offer:
        field, name = owner_of(owner)
        place = FactsPlace(_WORD_OF[field], name, owner, share.binding_key if share else "")
        return Offer(place, share, price(model, share.context_tokens).cost_usd if share else None)

    offers = [offer(one.owner, one) for one in shares]
    known = {one.place.scope for one in offers}
    offers += [
        offer(place.scope)
        for place in {place.scope: place for scope in seen for place in places_of(scope)}.values()
        if place.scope not in known
    ]
    here = project_here()

    def rank(one: Offer) -> tuple[object, ...]:
        place = one.place
        is_elsewhere = (place.word, place.name) != ("project", here)
        return is_elsewhere, _ORDER.index(place.word), place.name, place.binding_key

    return sorted(offers, key=rank)


@dataclass(frozen=True, slots=True)
class FactRow:
    """One fact, or note, of a context."""

    section: SectionKind
    fact: ContextFact
    tokens: int | None = None
    """Tokens of its line in the prompt; None: it was left out."""
    left_out: str = ""
    """Why it is not in the prompt; empty: it is."""
    warning: str = ""
    """The warning about it; empty: none."""

    @property
    def text(self) -> str:
        """Its text."""
        return self.fact.text

    @property
    def handle(self) -> RecordHandle | None:
        """Its record; None: it has none."""
        return self.fact.handle

    @property
    def record_id(self) -> str:
        """The id of its record; empty: it has none."""
        return self.handle.provider_record_id if self.handle else ""

    @property
    def name(self) -> RecordName:
        """Identifies its record across all bindings."""
        return RecordName(self.fact.binding_key or "", self.record_id)

    @property
    def key(self) -> str:
        """Its key in the list."""
        provider = self.handle.provider_key if self.handle else ""
        return f"{self.section}\x1f{provider}\x1f{self.record_id or self.text}"


def rows_of(context: AssembledContext) -> tuple[FactRow, ...]:
    """Return the facts of a context in the order of the prompt, those left out last."""
    titles = {rule.title: kind for kind, rule in RULES.items()}
    wrong = {handle: one.message for one in context.warnings for handle in one.handles}
    read = (
        FactRow(
            section.kind,
            fact,
            fact.tokens,
            warning=wrong.get(fact.handle, "") if fact.handle else "",
        )
        for section in context.sections
        for fact in section.facts
    )
    left = (
        FactRow(
            titles.get(one.section, SectionKind.FACTS),
            ContextFact.like(one),
            left_out=one.reason,
        )
        for one in context.left_out
    )
    return (*read, *left)


def narrowed(
    rows: Iterable[FactRow],
    chosen: Filter,
    *,
    stats: Mapping[RecordName, RetrievalCount],
    marks: Mapping[RecordName, RiskMark],
    repeated: Collection[RecordHandle],
    now: datetime,
) -> list[FactRow]:
    """Return the rows that match a filter: words, author, kind, dates and use.

    A row without a mark is unchecked: it has neither a risk nor none.
    """
    words = (chosen.text or "").split()
    asked = [
        *(one for one in chosen.field_tests() if one.field in _TESTS),
        *(FieldTest("text", (word,)) for word in words),
        *(FieldTest("fuzzy", (word,)) for word in chosen.fuzzy),
    ]

    def passes(row: FactRow) -> bool:
        fact, reads, mark = row.fact, stats.get(row.name), marks.get(row.name)
        made, repeats = fact.created_at, row.handle in repeated
        last_read = reads.last_at if reads else None
        used = Used(last_read, row.tokens or 0, repeats, mark.states if mark else None)
        return is_used_as(chosen, used, now) and (
            all(
                any(_TESTS[field](fact, value) for value in values) != excluded
                for field, values, excluded in asked
            )
            and (chosen.since is None or (made is not None and made >= chosen.since))
            and (chosen.until is None or (made is not None and made < chosen.until))
        )

    return [row for row in rows if passes(row)]


_TESTS: dict[str, Callable[[ContextFact, str], bool]] = {
    "kind": lambda fact, value: fact.kind == value,
    "principal": lambda fact, value: (
        fact.created_by == value
        or (value.endswith(":") and (fact.created_by or "").startswith(value))
    ),
    "text": lambda fact, word: word.casefold() in fact.text.casefold(),
    "fuzzy": lambda fact, word: finds(word, fact.text),
}


def by_words(principal: str | None) -> str:
    """Return the author of a fact: `ai coding`, `ana`; a dash if unknown."""
    if not principal:
        return "–"
    name = fmt.author(principal)
    return f"ai {name}" if principal.startswith("agent:") else name


def fact_columns(
    now: Callable[[], datetime], reads: Mapping[RecordName, RetrievalCount]
) -> list[Column[FactRow]]:
    """Return the columns of the facts; relative times count from `now`."""

    def age(row: FactRow) -> float:
        return row.fact.created_at.timestamp() if row.fact.created_at else 0.0

    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=95, order=lambda row: row.tokens or 0),
        Column("age", "added", lambda row: fmt.ago(row.fact.created_at, now()), 6, "right", keep=90,
               tone="muted", order=age),
        Column("section", "section", lambda row: section_word(row.section), 9, keep=40,
               tone="muted"),
        Column("by", "by", lambda row: by_words(row.fact.created_by), 12, keep=60, tone="muted"),
        read_column(lambda row: row.name, reads, now),
        Column("text", "text", lambda row: _text(row, now()), 36, flexible=True, keep=100,
               share=0.5, order=lambda row: row.text.casefold()[:200]),
    ]  # fmt: skip


def _tokens(row: FactRow) -> str | None:
    return None if row.tokens is None else fmt.count(row.tokens)


def _text(row: FactRow, now: datetime) -> Cell:
    words = " ".join(without_prefix(row.text[:2_000]).split())
    if row.left_out:
        return Cell(f"left out: {words}", "muted")
    if row.fact.expires_at is not None:
        words = f"{words} (expires {fmt.ago(row.fact.expires_at, now)})"
    words = f"⚑ {words}" if row.fact.pinned else words
    return Cell(f"▲ {words}", "warning") if row.warning else Cell(words)


def fact_content(
    row: FactRow,
    place: FactsPlace | None,
    read: RetrievalCount | None,
    state: AppState,
    width: int,
    *,
    exact: bool = True,
) -> Content:
    """Return the details of a fact; `exact`: its tokens were counted, not estimated."""
    text = [display(row.text, keep_newlines=True)]
    return joined([text, list(_about(row, place, read, state, exact=exact))], width)


def _about(
    row: FactRow,
    place: FactsPlace | None,
    read: RetrievalCount | None,
    state: AppState,
    *,
    exact: bool,
) -> Iterator[Line]:
    fact, now = row.fact, state.clock()
    if fact.why:
        label = "relevant" if row.left_out else "why"
        yield labelled(label, display(fmt.relevance(fact), limit=300))
    if row.left_out:
        yield labelled("left out", display(row.left_out, limit=300, style=WARN))
    else:
        if row.warning:
            yield labelled("warning", display(f"▲ {row.warning}", limit=300, style=WARN))
        is_found = row.section is SectionKind.RELATED or bool(fact.why)
        how = "for this prompt" if is_found else "in every prompt"
        how = f"{how}, by its line alone{'' if exact else ', estimated'}"
        yield labelled("costs", f"{fmt.counted(row.tokens or 0, 'token')} {how}")
    if fact.scope is not None:
        field, name = owner_of(fact.scope)
        whose = place.label if place else f"{field.removesuffix('_id')} {name}"
        where = SEPARATOR.join(filter(None, (whose, fact.kind, fact.binding_key)))
        yield labelled("of", display(where, limit=200))
    when = moment(fact.created_at, now, state.zone)
    yield labelled("added", display(f"{when} by {by_words(fact.created_by)}", limit=200))
    if read is None:
        yield labelled("read", display("never", style=DIM))
    else:
        last = fmt.since(read.last_at, now)
        yield labelled("read", f"{fmt.counted(read.count, 'time')}, last {last}")
    if fact.expires_at is not None:
        yield labelled("expires", moment(fact.expires_at, now, state.zone))
    yield labelled("pinned", "⚑ yes" if fact.pinned else "")
    yield labelled("id", display(row.record_id, limit=300, style=DIM))


# The context as a whole.


@dataclass(frozen=True, slots=True)
class ContextTimeline:
    """Figures of a context from the log: its assemblies, and the changes of its facts.

    `company` has those of the whole company, for figures that need all of it.
    """

    contexts: FactMetrics
    facts: tuple[FactMetrics, ...]
    company: FactMetrics


@dataclass(frozen=True, slots=True)
class BudgetView:
    """The shown context; `answer` is None until it was assembled."""

    model: str = ""
    budget: int = DEFAULT_BUDGET
    places: tuple[FactsPlace, ...] = ()
    offers: tuple[Offer, ...] = ()
    """Owners to choose from, while none is chosen."""
    answer: ContextAnswer | None = None
    request: ContextRequest | None = None
    """The request of the answer."""
    rows: tuple[FactRow, ...] = ()
    """All its facts, even those that the filter hides."""
    same: Mapping[str, frozenset[RecordHandle]] = field(default_factory=dict)
    """Facts that repeat another, by the word of their place."""
    timeline: ContextTimeline | None = None
    prompt: str = ""
    """The prompt to search related records for; empty: no search."""
    profile: bool = False
    """Whether the context includes the provider's profile."""
    raw: bool = False
    """Whether the context's text is shown instead of the list of facts."""

    def place_of(self, row: FactRow | None) -> FactsPlace | None:
        """Return the owner of a row's fact; None: unknown."""
        return place_of_section(row.section, self.places) if row else None


def head_content(view: BudgetView, width: int) -> Content:
    """Return the head: owners, model, and the cost of a request."""
    wide = width >= _WIDE_CELLS
    labels = (place.label for place in view.places if place.word != COMPANY)
    whose = display(" in ".join(labels), limit=120, style=STRONG)
    who = line("context for" if wide else None, whose)
    model = line("model" if wide else None, display(view.model, limit=80, style=ACCENT))
    if view.answer is None:
        return line(who, model, gap=SEPARATOR)
    counted = "exact tokens" if view.answer.exact else "estimated tokens"
    how = f"({counted}, {view.answer.tokenizer})" if wide else f"({counted})"
    named = line(model, display(how, style=DIM))
    shown = [line(who, named, gap=SEPARATOR), price_content(view.answer.price)]
    if view.prompt:
        shown.append(line("asked", display(view.prompt, limit=max(20, width - 6), style=ACCENT)))
    return lines(shown)


def price_content(price: Price) -> Content:
    """Return the cost of a request and of a thousand, and the price table."""
    since = f" of {price.table_date:%Y-%m-%d}" if price.table_date else ""
    table = display(f"{price.table}{since}", style=DIM)
    if not price.priced:
        unknown = display(f"unpriced: no price is known for {price.model}", limit=200, style=WARN)
        return line(unknown, table, gap=SEPARATOR)
    request = f"{fmt.money(price.cost_usd)} a request"
    thousand = f"{fmt.money(price.per_1000_requests_usd)} per 1,000"
    return line(display(request, style=STRONG), thousand, table, gap=SEPARATOR)


def short_head(view: BudgetView, width: int, most: int) -> Content:
    """Return head, bars and the first warning, in at most `most` lines."""
    if view.answer is None:
        return head_content(view, width)
    whose = " in ".join(place.label for place in view.places if place.word != COMPANY)
    price = view.answer.price
    cost = f"{fmt.money(price.cost_usd)} a request" if price.priced else "unpriced"
    room = max(_LEAST_NAME, width - len(f"…{SEPARATOR}{cost}"))
    head = line(
        display(whose, limit=min(80, room), style=STRONG),
        display(cost, style=STRONG),
        display(view.model, limit=40, style=ACCENT),
        gap=SEPARATOR,
    )
    notes = [one for one in notes_content(view).split()[: max(0, most - 3)][:1] if one.plain]
    return lines([head, bars_content(view, width, most - 1 - len(notes)), *notes])


def bars_content(view: BudgetView, width: int, most: int = 100) -> Content:
    """Return a bar for each section, and one for the total, against their budgets.

    If that is more than `most` lines, the least full sections are left out. A single line shows the
    fullest section if it is over its budget, else the total.
    """
    answer = view.answer
    if answer is None:
        return Content("")
    low, high = _BAR_CELLS
    cells = max(low, min(high, width - _LABEL_CELLS - 14 - _BEHIND_CELLS))
    numbers = numbers_width([answer.tokens, *(section.tokens for section in answer.sections)])

    def bar(label: str, tokens: int, budget: int, behind: Content, style: str = "") -> Content:
        drawn = budget_bar(tokens, budget, cells, numbers=numbers)
        return display(f"{label:<{_LABEL_CELLS}}", style=style) + drawn + "  " + behind

    sections = {section.kind: section for section in answer.sections}
    places = {place.section: place for place in view.places}
    drawn: list[Content] = []
    fullness: list[float] = []
    for kind in SectionKind:
        is_asked_for = kind is SectionKind.RELATED and view.prompt
        is_there = kind in places and kind is not SectionKind.COMPANY
        if not (kind in sections or is_there or is_asked_for):
            continue
        section, rule = sections.get(kind), RULES[kind]
        facts = len(section.facts) if section else 0
        noun = "fact" if rule.bullets else "record" if rule.fills else "note"
        said = display(fmt.counted(facts, noun) if facts else f"no {noun}s", style=DIM)
        if same := view.same.get(places[kind].word) if kind in places else None:
            twice = display(f"{fmt.count(len(same))} said twice  ", style=WARN)
            said = line(said, twice + key_hint("P", "prune"), gap="   ")
        if section:
            tokens, budget = section.tokens, section.budget
        else:
            left = max(0, view.budget - answer.tokens)
            tokens, budget = 0, left if rule.fills else rule.budget
        drawn.append(bar(section_word(kind), tokens, budget, said))
        fullness.append(tokens / max(1, budget))
    share = f"{share_words(answer.share)} of {answer.share.prompt.name}"
    by_fullness = sorted(range(len(drawn)), key=lambda place: -fullness[place])
    if most < 2 and by_fullness and fullness[by_fullness[0]] > 1:
        return drawn[by_fullness[0]]
    fullest = by_fullness[: most - 1]
    if left := len(drawn) - len(fullest):
        share = f"{share_words(answer.share)}{SEPARATOR}{fmt.counted(left, 'section')} not shown"
    drawn = [drawn[place] for place in sorted(fullest)]
    return lines(
        [*drawn, bar("total", answer.tokens, view.budget, display(share, style=DIM), STRONG)]
    )


def share_words(share: PromptShare) -> str:
    """Return the memory's share of a prompt, for the largest and the smallest: `0.9 to 2.6%`."""
    return fmt.share(share.min_share, share.max_share)


def notes_content(view: BudgetView) -> Content:
    """Return the first warnings, and the number of others and of facts left out.

    Exceeded budgets are not among them: the bars show these.
    """
    answer = view.answer
    if answer is None:
        return Content("")
    warnings = [one for one in answer.warnings if one.kind is not WarningKind.OVER_BUDGET]
    shown = [
        line(
            display(f"▲ {warning.message}", limit=300, style=WARN),
            key_hint("w", "says which") if warning.handles else None,
            gap="  ",
        )
        for warning in warnings[:_SHOWN_WARNINGS]
    ]
    more = len(warnings) - len(shown)
    words = [
        fmt.counted(more, "more warning") if more else "",
        f"{fmt.count(len(answer.left_out))} left out" if answer.left_out else "",
    ]
    if words_shown := ", ".join(filter(None, words)):
        shown.append(line(display(words_shown, style=WARN), key_hint("w", "says why"), gap="  "))
    return lines(shown)


def offers_content(view: BudgetView, state: AppState, width: int) -> list[Content]:
    """Return the owners to choose from, one a line, with tokens of the budget and their cost."""
    found, offers = state.prune_figures, view.offers
    could_go = dict(found.owners) if found else {}
    wide = width >= _WIDE_CELLS
    names = min(_NAME_CELLS, max((len(one.place.name) for one in offers), default=0))
    shares = [one.share for one in offers if one.share]
    times = Counter(one.place.scope for one in offers)
    bindings = {
        one: one.share.binding_key
        for one in offers
        if one.share and (wide or times[one.place.scope] > 1)
    }
    most = _NAME_CELLS if wide else _LEAST_NAME
    keys = min(most, max(map(len, bindings.values()), default=0))
    names = names if wide else max(_LEAST_NAME, names - keys)
    numbers = numbers_width([one.context_tokens for one in shares])
    costs = [fmt.short_money(one.cost, unpriced=one.cost is None) for one in offers if one.share]
    decimals = max(map(after_point, costs), default=0)
    others = names + numbers + keys + (72 if wide else 52 if keys else 50)
    least = 0 if keys and not wide else 4
    cells = max(least, min(_BAR_CELLS[1], width - others))

    def row(one: Offer) -> Content:
        share, place = one.share, one.place
        cost = fmt.short_money(one.cost, unpriced=one.cost is None)
        lead = line(
            display(f"{place.word:<7}", style=DIM), display(fit_cell(place.name, names)), gap="  "
        )
        if share is None:
            return line(lead, display("nothing is remembered of it", style=DIM), gap="  ")
        drawn = budget_bar(share.context_tokens, view.budget, cells, numbers=numbers)
        if not share.in_contexts:
            tokens, most = fmt.count(share.tokens), drawn.cell_length
            forms = f"{tokens} tokens, if found", f"{tokens} tokens", tokens
            searched = next((one for one in forms if len(one) <= most), tokens)
            drawn = display(fit_cell(searched, most), style=DIM)
        going_words = going(place.scope, could_go) if wide and place.word != COMPANY else ""
        could_go.pop(place.scope, None)
        return line(
            lead,
            display(fit_cell(bindings.get(one, ""), keys), style=DIM) if keys else None,
            display(f"{fmt.counted(share.records, 'record'):>13}"),
            drawn,
            display(f"{cost + ' ' * (decimals - after_point(cost)):>{decimals + 3}}"),
            display(going_words, style=DIM),
            gap="  ",
        )

    return [row(one) for one in offers]


def doubts_content(answer: ContextAnswer) -> Content:
    """Return all warnings, and all left-out facts with their reasons."""
    warnings = (f"▲ {one.message} {one.where}".rstrip() for one in answer.warnings)
    blocks = [display(one, limit=600, style=WARN) for one in warnings]
    if not blocks:
        blocks.append(display("Nothing is wrong with this context."))
    blocks.append(Content(""))
    if not answer.left_out:
        blocks.append(display("Nothing was left out.", style=DIM))
    for one in answer.left_out:
        blocks.append(line(display(one.section, style=DIM), display(one.text, limit=400)))
        blocks.append(display(f"    {one.reason}", limit=300, style=WARN))
    return lines(blocks)


def share_content(share: PromptShare, width: int) -> Content:
    """Return the parts of a whole prompt, with the memory's share of it (seed 004 §11)."""
    return lines(_share_lines(share, width))


def _share_lines(share: PromptShare, width: int) -> Iterator[Content]:
    name = max(14, min(_SHARE_NAME_CELLS, width - 2 * _SHARE_CELLS))
    yield display(f"{'tokens':<{name}}{'least':>{_SHARE_CELLS}}{'most':>{_SHARE_CELLS}}", style=DIM)
    for row in (*share.rows, share.baseline, share.total):
        total = row in (share.baseline, share.total)
        least, most = fmt.count(row.min_tokens), fmt.count(row.max_tokens)
        words = f"{fit_cell(row.name, name - 1)} {least:>{_SHARE_CELLS}}{most:>{_SHARE_CELLS}}"
        yield display(words, style=STRONG if total or row is share.rows[-1] else "")
    yield Content("")
    yield line(
        "The memory is", display(share_words(share), style=STRONG), f"of {share.prompt.words}."
    )
    if share.over_target:
        yield display("▲ It should stay under 5%; prune it.", style=WARN)
    else:
        yield display("It should stay under 5%.", style=DIM)


def files_content(places: Sequence[FactsPlace]) -> Content:
    """Return the commands for each place; an example if there is none."""
    said = [display("These commands export facts to files and import them:", style=DIM)]
    flags = [
        f"{_FLAGS[place.word]} {shlex.quote(place.name)}"
        for place in places
        if place.word in _FLAGS
    ]
    for whose in flags or ["--subject NAME"]:
        said.append(Content(""))
        export = f"export {whose} --to facts"
        commands = (f"{export}.jsonl", f"{export}.md", f"import {whose} facts.jsonl")
        said += [display(f"memtui facts {command}", style=ACCENT) for command in commands]
    return lines(said)


# Context and facts over time, by day.


async def read_timeline(
    session: ServiceSession, scope: Scope, places: Sequence[FactsPlace], now: datetime
) -> ContextTimeline:
    """Read the figures of the last 60 days; these reads are not logged."""
    facts, since = session.service.metrics.facts, now - timedelta(days=DAYS)
    own = (place.scope for place in places if place.word != COMPANY)
    scopes = (scope, None, *own)
    contexts, company, *others = await asyncio.gather(
        *(facts(session.caller, since, scope=one) for one in scopes)
    )
    return ContextTimeline(contexts, tuple(others), company)


def charts_of(timeline: ContextTimeline, budget: int) -> tuple[Chart, ...]:
    """Return charts of context sizes, added and deleted facts, and saves."""
    days = timeline.contexts.days

    def chart(title: str, nothing: str, *series: Series, **options: Any) -> Chart:
        labels = tuple(f"{day.day:%m-%d}" for day in days)
        title = f"{title}, {DAYS} days"
        return Chart(title, labels, series, squeezed="day", nothing=nothing, **options)

    def summed(value: Callable[[FactDay], int]) -> tuple[float, ...]:
        """Return the sum over all places for each day of the contexts."""
        totals: Counter[date] = Counter()
        for metrics in timeline.facts:
            for day in metrics.days:
                totals[day.day] += value(day)
        return tuple(float(totals[day.day]) for day in days)

    sizes = tuple(day.average_context_tokens for day in days)
    return (
        chart(
            "contexts",
            "No context of this scope was assembled yet; each look and each run counts.",
            Series("day's average", sizes, "primary", "●"),
            lines=True,
            limit=float(budget),
        ),
        chart(
            "facts",
            "No fact came or went in these days; a adds one.",
            Series("added", summed(lambda day: day.facts_added), "ok", "█"),
            Series("deleted", summed(lambda day: -day.facts_deleted), "bad", "▒"),
        ),
        chart(
            "saves",
            "Nobody saved a fact in these days.",
            Series("ai", summed(lambda day: day.saves_by_ai), "primary", "█"),
            Series("user", summed(lambda day: day.saves_by_user), "accent", "▒"),
        ),
    )


def charts_content(timeline: ContextTimeline, budget: int, width: int) -> Content:
    """Return all charts in large, followed by the metrics."""
    words = (
        "The bar of the total is one context, as it would be now. A day's average is of all that "
        "were assembled for this scope, with whatever else belonged to them."
    )
    drawn = [
        row
        for chart in charts_of(timeline, budget)
        for row in (*draw(chart, width, _CHART_LINES).lines, Content(""))
    ]
    said = display(words, style=DIM)
    return lines([said, Content(""), *drawn, metrics_content(timeline, width)])


def metrics_content(timeline: ContextTimeline, width: int) -> Content:
    """Return the metrics of facts in the company and here, with their targets (seed 004 §8)."""
    whole, here = timeline.company, timeline.contexts
    adoption, deleted = whole.adoption, whole.share_deleted_by_hand
    users = f"{whole.active_users_with_facts} of {fmt.counted(whole.active_users, 'active user')}"
    saves = fmt.counted(whole.facts_saved, "save")
    by_hand = f"{whole.deleted_by_hand_within_7_days} of {saves} by hand in 7 days"
    over = here.contexts_over_budget / here.contexts if here.contexts else None
    contexts = f"{here.contexts_over_budget} of {fmt.counted(here.contexts, 'context')} here"
    shares = (
        ("adoption", adoption, f"{users} have facts, target {whole.adoption_target:.0%}",
         adoption is not None and adoption < whole.adoption_target),
        ("deleted", deleted, f"{by_hand}, at most {whole.share_deleted_target:.0%}",
         deleted is not None and deleted > whole.share_deleted_target),
        ("over", over, contexts, bool(over)),
    )  # fmt: skip
    averages = (
        ("a user", whole.average_facts_per_user, "facts", whole.facts_per_user_target),
        ("a project", whole.average_facts_per_active_drive, "facts", whole.facts_per_drive_target),
        ("context", here.average_context_tokens, "tokens here", None),
    )
    block: list[Line] = [heading("how facts serve", f"the whole company, {DAYS} days")]
    block += [
        labelled(name, _share(value, words, missed=bad)) for name, value, words, bad in shares
    ]
    block += [labelled(name, _average(value, noun, aim)) for name, value, noun, aim in averages]
    return joined([block], width)


def _share(value: float | None, words: str, *, missed: bool) -> Content:
    shown = "–" if value is None else f"{value:.0%}{' ▲' if missed else ''}"
    return display(shown, style=WARN if missed else "") + display(f"  {words}", style=DIM)


def _average(value: float | None, noun: str, target: tuple[int, int] | None) -> Content:
    if value is None:
        return display("–", style=DIM)
    shown = fmt.count(round(value)) if value >= 100 else f"{value:.1f}"
    aim = f"  target {target[0]} to {target[1]}" if target else ""
    return display(f"{shown} {noun}") + display(aim, style=DIM)
