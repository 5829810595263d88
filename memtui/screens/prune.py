"""The review of what could be pruned: candidates by reason, what they save, and the yes.

`Review` knows of no widget: what is marked, and what that saves.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import on
from textual.binding import BindingType
from textual.content import Content

from memtui.context.assembly import ContextSection, assemble, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import Conflict, Invalid, MemtuiError, Record, RecordHandle
from memtui.pruning.candidates import PruneCandidate, PruneRules, Reason
from memtui.pruning.plan import PlanItem, PrunePlan
from memtui.screens.base import conversation
from memtui.screens.budget.view import COMPANY, Place, by_words
from memtui.screens.dialogs import Confirm, Prompt
from memtui.screens.modal import ModalListScreen
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import joined, labelled
from memtui.widgets.display import DIM, OK, STRONG, WARN, display, line, lines
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import Opened, VirtualList

if TYPE_CHECKING:
    from memtui.screens.budget.view import BudgetView
    from memtui.screens.editing import EditingScreen

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
    Reason.CHANGED_LATE: "stood for months, then changed",
    Reason.REDACTED: "a secret was taken out",
    Reason.COSTLY: "long, and never read",
    Reason.NEVER_READ: "never read",
    Reason.STALE: "not read for a while",
    Reason.TOO_LONG: "too long",
}
_STAYS = "It stays and says the same, or says it anew."


class Sort(StrEnum):
    """What a line of the review is."""

    REASON = "reason"
    STAYS = "stays"
    GOES = "goes"


@dataclass(frozen=True, slots=True)
class Line:
    """A reason with its candidates under it, one candidate, or the fact that says it and stays."""

    key: str
    sort: Sort
    reason: Reason
    text: str
    record: Record | None = None
    sentence: str = ""
    tokens: int = 0
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """The plan for one place."""

    place: Place
    plan: PrunePlan


class Review:
    """The plans of all places of a context, under one set of marks.

    Made once, off the event loop; marking changes nothing but `marks`. `size_of` returns what a
    model reads once some records are gone, in tokens: the whole context as one text, as the Budget
    screen counts it.
    """

    def __init__(
        self,
        parts: Sequence[Part] = (),
        size_of: Callable[[frozenset[RecordHandle]], int] = lambda _: 0,
    ) -> None:
        self._size_of = cache(size_of)
        self._items = {item.record.handle: item for part in parts for item in part.plan.items}
        self._candidates = [one for part in parts for one in part.plan.candidates]
        self.groups = _by_first_reason(self._candidates)
        self.lines = _lines(self.groups, self._candidates, self._items)
        self.before = self._size_of(frozenset())
        self.marks = {one.handle for part in parts for one in part.plan.marked}

    @property
    def marked(self) -> list[Record]:
        """The records that would go, in the plans' order."""
        return [item.record for item in self._items.values() if item.record.handle in self.marks]

    @property
    def saved(self) -> int:
        """By how many tokens the context gets shorter without what is marked."""
        return self.before - self._size_of(frozenset(self.marks))

    @property
    def lost(self) -> int:
        """How many marked duplicates would go together with the fact that says the same."""
        going = self.marks
        return len(
            {
                one.record.handle
                for one in self._candidates
                if one.survivor in going and one.record.handle in going
            }
        )

    def chosen(self, reason: Reason) -> tuple[int, int]:
        """Return how many candidates of a reason are marked, and how many there are."""
        group = self.groups[reason]
        return sum(one.record.handle in self.marks for one in group), len(group)

    def is_marked(self, line: Line) -> bool:
        """Return whether a candidate, or every one of a reason, is marked."""
        if line.sort is Sort.REASON:
            marked, of = self.chosen(line.reason)
            return marked == of
        return (
            line.sort is Sort.GOES and line.record is not None and line.record.handle in self.marks
        )

    def turn(self, line: Line) -> None:
        """Mark a candidate, or all of a reason, or take the marks away where they are there.

        Of a reason pinned ones are left as they are: they are marked one by one.
        """
        if line.sort is Sort.GOES and line.record is not None:
            self.marks ^= {line.record.handle}
        elif line.sort is Sort.REASON:
            unpinned = {one.record.handle for one in self.groups[line.reason] if not _pinned(one)}
            if unpinned <= self.marks:
                self.marks -= unpinned
            else:
                self.marks |= unpinned

    def mark_all(self) -> None:
        """Mark every candidate that is not pinned, and no other."""
        self.marks = {one.record.handle for one in self._candidates if not _pinned(one)}

    def mark_suggested(self) -> None:
        """Mark what was suggested, and no other."""
        self.marks = {one.record.handle for one in self._candidates if one.suggested}

    def mark_as(self, before: Iterable[Record]) -> None:
        """Mark the candidates that are just as they were among `before`, and no other."""
        wanted = {(record.handle, record.revision) for record in before}
        records = (one.record for one in self._candidates)
        self.marks = {one.handle for one in records if (one.handle, one.revision) in wanted}

    def cluster(self, name: str) -> list[Record]:
        """Return the records of a cluster, the one that stays first."""
        found: dict[RecordHandle, Record] = {}
        for one in self._candidates if name else ():
            if one.cluster_id == name and one.survivor is not None:
                found.setdefault(one.survivor, self._items[one.survivor].record)
                found[one.record.handle] = one.record
        return list(found.values())

    def diff(self) -> list[Line]:
        """Return what goes, and before the first of those that say the same what stays."""
        found: list[Line] = []
        stays: Line | None = None
        for one in self.lines:
            goes = one.record is not None and one.record.handle in self.marks
            if one.sort is not Sort.GOES:
                stays = None if goes or one.sort is Sort.REASON else one
            elif goes:
                if stays is not None and stays.cluster == one.cluster:
                    found.append(stays)
                    stays = None
                found.append(one)
        return found


def _pinned(one: PruneCandidate) -> bool:
    return one.record.pinned


def _by_first_reason(candidates: Iterable[PruneCandidate]) -> dict[Reason, list[PruneCandidate]]:
    """Return each record once, under the surest of its reasons."""
    order = {reason: place for place, reason in enumerate(Reason)}
    first: dict[RecordHandle, PruneCandidate] = {}
    for one in candidates:
        known = first.get(one.record.handle)
        if known is None or order[one.reason] < order[known.reason]:
            first[one.record.handle] = one
    groups: dict[Reason, list[PruneCandidate]] = defaultdict(list)
    for one in first.values():
        groups[one.reason].append(one)
    return groups


def _lines(
    groups: Mapping[Reason, Sequence[PruneCandidate]],
    candidates: Iterable[PruneCandidate],
    items: Mapping[RecordHandle, PlanItem],
) -> list[Line]:
    """Return the candidates by reason and by cluster, with the survivors beside them.

    A candidate stands in one group only; the sentences of its other reasons stand with it.
    """
    sentences: dict[RecordHandle, list[str]] = defaultdict(list)
    for one in candidates:
        sentences[one.record.handle].append(one.sentence)
    found: list[Line] = []
    for reason in Reason:
        if group := groups.get(reason):
            tokens = sum(one.tokens_saved for one in group)
            key = f"reason\x1f{reason}"
            found.append(Line(key, Sort.REASON, reason, WORDS[reason], tokens=tokens))
            survivor: RecordHandle | None = None
            for one in sorted(group, key=_by_cluster):
                if one.survivor is not None and one.survivor != survivor and one.survivor in items:
                    stays = items[one.survivor]
                    found.append(_line(Sort.STAYS, one, stays.record, _STAYS, stays.tokens))
                survivor = one.survivor
                why = " ".join(sentences[one.record.handle])
                found.append(_line(Sort.GOES, one, one.record, why, one.tokens_saved))
    return found


def _by_cluster(one: PruneCandidate) -> tuple[str, str]:
    survivor = one.survivor.provider_record_id if one.survivor else ""
    return one.cluster_id or survivor, one.record.handle.provider_record_id


def _line(sort: Sort, one: PruneCandidate, record: Record, sentence: str, tokens: int) -> Line:
    of = f"{one.reason}\x1f" if sort is Sort.STAYS else ""
    return Line(
        key=f"{sort}\x1f{of}{_name(record.handle)}",
        sort=sort,
        reason=one.reason,
        text=record.text,
        record=record,
        sentence=sentence,
        tokens=tokens,
        cluster=one.cluster_id or "",
    )


def _name(handle: RecordHandle) -> str:
    return f"{handle.provider_key}\x1f{handle.provider_record_id}"


# The screen.

Doing = Literal["", "looking", "forgetting"]
"""What the review is doing; nothing while it waits for the person."""
_BUSY: dict[Doing, str] = {
    "looking": "What could go is still being looked for.",
    "forgetting": "The facts are being forgotten.",
}


class PruneReview(ModalListScreen[Line]):
    """Review what could go from the places of a context; nothing goes without a yes."""

    ACTION_GROUP = "prune"
    NOUN = "line"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("prune")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def __init__(self, below: EditingScreen[Any], view: BudgetView) -> None:
        """Review what `view` shows; the screen below carries out what is decided."""
        super().__init__(below.state)
        self._below = below
        self._view = view
        self._rules = PruneRules(
            max_characters=self.state.settings.fact_max_chars or PruneRules().max_characters
        )
        self._review = Review()
        self._doing: Doing = "looking"
        self._nothing: tuple[str, ...] = ()
        """What is said where there are no candidates."""
        self._rows: AppendedRows[Line] = AppendedRows(lambda row: row.key)
        """The candidates, or the diff."""
        self._diff_shown = False
        self._reading = Background(self, "prune-plan")

    def make_list(self) -> VirtualList[Line]:
        """Return the list, which shows the candidates or the diff."""
        columns = review_columns(lambda: self._review)
        return VirtualList(columns, self._rows, name="prune-list")

    def on_mount(self) -> None:
        """Look for candidates."""
        self._read()

    # Reading.

    def _read(self, keep: Review | None = None) -> None:
        """Plan; of another review the marks are kept where a fact is as it was."""
        from memtui.service.pruning import PruneRequest

        session = self.session
        self._doing, self._nothing = "looking", ("Looking for what could go …",)
        self.rows_list.notice = self._nothing
        self.draw()

        async def plan() -> Review:
            parts = []
            for place in self._view.places:
                request = PruneRequest(
                    scope=place.scope,
                    rules=self._rules,
                    model=self._view.model,
                    binding_key=place.binding_key,
                    only_company=place.word == COMPANY,
                )
                answer = await session.service.pruning.plan(session.caller, request)
                parts.append(Part(place, answer.plan))
            review = await asyncio.to_thread(self._review_of, parts)
            if keep is not None:
                review.mark_as(keep.marked)
            return review

        nothing = ("Nothing could go.", "Every fact says something of its own, and is read.")
        self._reading.latest(plan, lambda review: self._show(review, *nothing), self._failed)

    def _review_of(self, parts: Sequence[Part]) -> Review:
        """Review the plans; what is no fact of them stays in the context as it was. Blocking."""
        from memtui.service.visibility import as_agents_read

        counter, now = TokenCounter(self._view.model), self.state.clock()
        reviewed = {part.place.section for part in parts}
        others = [
            ContextSection(kind=one.kind, facts=one.facts)
            for one in (self._view.answer.sections if self._view.answer else ())
            if one.kind not in reviewed
        ]

        def size_of(gone: frozenset[RecordHandle]) -> int:
            kept = [
                section_of_records(
                    part.place.section,
                    as_agents_read(
                        [one.record for one in part.plan.items if one.record.handle not in gone]
                    ),
                    now=now,
                )
                for part in parts
            ]
            return assemble([*others, *kept], counter=counter).tokens

        return Review(parts, size_of)

    def _failed(self, error: MemtuiError) -> None:
        self._show(Review(), f"✗ {error}")

    # Drawing.

    def _show(self, review: Review, *nothing: str) -> None:
        self._doing, self._nothing = "", (*nothing, "esc goes back.")
        self._review = review
        self._draw_rows()

    def _draw_rows(self) -> None:
        """Draw the candidates, or the diff of what is marked now."""
        shown = self.rows_list
        if self._diff_shown:
            shown.notice = ("Nothing is marked.", "t goes back, space marks.")
            self._rows.replace(self._review.diff())
        else:
            shown.notice = self._nothing
            self._rows.replace(self._review.lines)
        shown.show(self._rows)
        self.draw()

    def draw_head(self, width: int) -> Content:
        """Return whose facts are reviewed, how many are marked and what that saves."""
        del width
        return head_content(self._view.places, self._review, self._doing)

    def draw_row(self, width: int) -> Content:
        """Return the line under the cursor whole."""
        return line_content(self.rows_list.current, self._review, self.state.clock(), width)

    def labels(self) -> dict[str, str]:
        """Return how many would be forgotten, and what `t` shows."""
        chosen = len(self._review.marks)
        return {
            "prune.apply": f"forget {fmt.count(chosen)}…" if chosen else "forget…",
            "prune.diff": "list" if self._diff_shown else "diff",
        }

    def refusal(self, verb: str) -> str:
        """Return why an action cannot run now; what the Budget screen refuses is refused here."""
        if verb in {"leave", "help"}:
            return ""
        if self._doing:
            return _BUSY[self._doing]
        if verb in {"apply", "impact"} and not self._review.marks:
            return "Nothing is marked."
        return self._below.why_disabled(f"prune.{verb}")

    @on(Opened)
    def _chosen(self, event: Opened) -> None:
        event.prevent_default()  # the frame would go into the details
        self.action_turn()

    # Marking.

    def action_turn(self) -> None:
        """Mark or unmark the candidate, or all of its reason, and go on to the next."""
        current = self.rows_list.current
        if self._diff_shown or current is None:
            return
        self._review.turn(current)
        self._draw_rows()
        if current.sort is not Sort.REASON:
            self.rows_list.move(1)

    def action_all(self) -> None:
        """Mark everything that is not pinned."""
        self._review.mark_all()
        self._draw_rows()

    def action_none(self) -> None:
        """Take all marks away."""
        self._review.marks.clear()
        self._draw_rows()

    def action_suggested(self) -> None:
        """Mark again what was suggested."""
        self._review.mark_suggested()
        self._draw_rows()

    def action_diff(self) -> None:
        """Show the diff, or the list."""
        self._diff_shown = not self._diff_shown
        columns = diff_columns() if self._diff_shown else review_columns(lambda: self._review)
        self.rows_list.columns = tuple(columns)
        self._draw_rows()

    # Acting.

    @conversation
    async def action_stale(self) -> None:
        """Ask after how many days without a reading a fact is stale."""
        value = str(self._rules.stale_days)
        title = "Stale after how many days without being read?"
        if (text := await self.ask(Prompt(title, value=value, check=_days))) is not None:
            self._rules = self._rules.model_copy(update={"stale_days": _days(text)})
            self._read(self._review)

    @conversation
    async def action_apply(self) -> None:
        """Forget what is marked, after a yes that names the count and the tokens."""
        records, saved = self._review.marked, self._review.saved
        facts, tokens = fmt.counted(len(records), "fact"), fmt.counted(saved, "token")
        question = f"Forget {facts}, {tokens}, from {self._below.where(records)}?"
        if not await self.ask(Confirm(question, verb="forget", detail="u brings them back.")):
            return
        self._doing = "forgetting"
        self.draw()
        # It goes on where this review is left meanwhile.
        self._below.talk(self._forget(records, f", saved {tokens}"))

    async def _forget(self, records: Sequence[Record], saved: str) -> None:
        try:
            await self._below.forget_now(records, saved)
        except MemtuiError as error:
            hint = " The plan was made again; look again and repeat."
            said = f"{error}{hint if isinstance(error, Conflict) else ''}"
            self._below.toast(said, severity="error")
            if self.is_attached:
                self._read(self._review)
        else:
            if self.is_attached:
                self.dismiss(None)

    @conversation
    async def action_impact(self) -> None:
        """Show which of the log's last answers would differ without what is marked."""
        await self._below.show_impact(self._review.marked, over=self)

    def action_merge(self) -> None:
        """Make one fact of the cluster under the cursor."""
        current = self.rows_list.current
        records = self._review.cluster(current.cluster) if current is not None else []
        if len(records) < 2:
            self.toast("Nothing else says the same; go to a duplicate.", severity="warning")
            return
        self._below.talk(self._merge(records))

    async def _merge(self, records: Sequence[Record]) -> None:
        if await self._below.merge(records) and self.is_attached:
            self._read(self._review)

    def action_copy(self) -> None:
        """Copy the text of the fact."""
        current = self.rows_list.current
        if current is not None and current.sort is not Sort.REASON:
            self.copy(current.text, "Copied the fact.")

    def may_leave(self) -> bool:
        """Go back from the diff to the list first; a forget under way goes on."""
        if self._diff_shown:
            self.action_diff()
            return False
        return True


# How a review reads.


def review_columns(review: Callable[[], Review]) -> list[Column[Line]]:
    """Return the columns of the candidates, marked as in the review there is now."""
    return [
        Column("mark", "", lambda line: _mark(line, review()), 3, keep=100),
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("text", "fact", lambda line: _text(line, review()), 24, flexible=True, keep=99,
               share=0.5),
        Column("why", "why", lambda line: line.sentence if line.sort is Sort.GOES else "", 30,
               flexible=True, keep=50, tone="muted"),
    ]  # fmt: skip


def diff_columns() -> list[Column[Line]]:
    """Return the columns of the diff."""
    return [
        Column("tokens", "tok", _tokens, 5, "right", keep=90),
        Column("diff", "what goes, and what stays", _diff, 24, flexible=True, keep=100, share=0.5),
        Column("why", "why", lambda line: line.sentence, 30, flexible=True, keep=50, tone="muted"),
    ]


def reason_words(line: Line, review: Review) -> str:
    """Return a reason with how many of its candidates are marked."""
    marked, of = review.chosen(line.reason)
    return f"{line.text}, {marked:,} of {of:,} marked"


def _mark(line: Line, review: Review) -> Cell:
    if line.sort is Sort.STAYS:
        return Cell(" · ", "muted")
    if review.is_marked(line):
        return Cell("[x]", "accent")
    if line.sort is Sort.REASON and review.chosen(line.reason)[0]:
        return Cell("[-]", "accent")
    return Cell("[ ]")


def _tokens(line: Line) -> Cell:
    return Cell(fmt.count(line.tokens), "muted" if line.sort is Sort.STAYS else "")


def _text(line: Line, review: Review) -> Cell:
    if line.sort is Sort.REASON:
        return Cell(reason_words(line, review), "accent")
    words = " ".join(line.text[:2_000].split())
    if line.sort is Sort.STAYS:
        return Cell(f"  stays: {words}", "muted")
    pin = "⚑ " if line.record is not None and line.record.pinned else ""
    return Cell(f"  {pin}{words}")


def _diff(line: Line) -> Cell:
    words = " ".join(line.text[:2_000].split())
    return Cell(f"- {words}", "error") if line.sort is Sort.GOES else Cell(f"  {words}", "muted")


def head_content(places: Sequence[Place], review: Review, doing: Doing) -> Content:
    """Return whose facts are reviewed, how many are marked and what that saves."""
    whose = " and ".join(place.label for place in places)
    title = line("prune", display(whose, limit=120, style=STRONG))
    if doing == "looking":
        return line(title, display("looking for what could go …", style=DIM), gap="   ")
    marked, saved = len(review.marks), review.saved
    if doing == "forgetting":
        words = f"… forgetting {fmt.counted(marked, 'fact')}, {fmt.counted(saved, 'token')}"
        return line(title, display(words, style=WARN), gap="   ")
    sums = f"context {fmt.counted(review.before, 'token')} → {fmt.count(review.before - saved)}"
    gain = display(f"saves {fmt.count(saved)}", style=OK if saved else DIM)
    chosen = display(f"{fmt.count(marked)} marked", style=STRONG)
    head = line(title, chosen, display(sums), gain, gap="   ")
    if not (lost := review.lost):
        return head
    words = f"▲ {fmt.counted(lost, 'marked fact')} would go with all that say the same."
    return lines([head, display(words, style=WARN)])


def line_content(shown: Line | None, review: Review, now: datetime, width: int) -> Content:
    """Return a line of the review whole."""
    if shown is None:
        return Content("")
    if shown.sort is Sort.REASON:
        words = display(reason_words(shown, review), style=STRONG)
        how = "space marks all of it, or none; pinned facts are only marked one by one."
        return joined([[words], [display(how, style=DIM)]], width)
    about = [labelled("why", display(shown.sentence, limit=1_000))]
    about.append(labelled("tokens", fmt.count(shown.tokens)))
    if (record := shown.record) is not None:
        made = f"{fmt.since(record.created_at, now)} by {by_words(record.created_by)}"
        about.append(labelled("added", display(made, limit=200)))
        if record.pinned:
            about.append(labelled("pinned", "⚑ yes, so it is never suggested"))
    return joined([[display(shown.text, keep_newlines=True)], about], width)


def _days(text: str) -> int:
    written = text.strip()
    if not written.isascii() or not written.isdigit() or not 0 < int(written[:6]) <= 36_500:
        raise Invalid(f"{written!r} is no number of days; give 1 to 36500.")
    return int(written)
