"""Screen 5: the context of a scope, its tokens and cost, and its facts.

Bars are on top, the facts below, details and charts beside them. Each assembly of a context is
logged as an operation.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import var
from textual.widgets import OptionList, Static

from memtui.actions import Need
from memtui.context.cost import TokenCounter
from memtui.contract import (
    Invalid,
    MemtuiError,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    owner_of,
    owner_scope,
)
from memtui.filters import FilterTarget
from memtui.presenters import format as fmt
from memtui.screens.budget.view import (
    COMPANY,
    BudgetView,
    FactRow,
    FactsPlace,
    Offer,
    bars_content,
    charts_content,
    charts_of,
    doubts_content,
    fact_columns,
    fact_content,
    files_content,
    find_offers,
    head_content,
    narrowed,
    notes_content,
    offers_content,
    place_of_owner,
    places_of,
    read_timeline,
    rows_of,
    share_content,
    short_head,
)
from memtui.screens.dialogs import Choice, Choose, NewRecord, Prompt, Sheet, TypedConfirm
from memtui.screens.editing import EditingScreen, kept_new
from memtui.screens.following import News
from memtui.screens.state import AppState, GoTo
from memtui.service.usecases.owned import owned_records
from memtui.widgets.background import Background
from memtui.widgets.charts import Charts
from memtui.widgets.display import DIM, STRONG, display, line, lines
from memtui.widgets.panes import DetailPane, Notice, OptionRows, Split
from memtui.widgets.record_names import RecordName
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.service.answers import BindingView
    from memtui.service.context.contexts import ContextAnswer

_TALL = 30
"""From this height on, the whole head is shown."""
_SHORT_HEAD = 5
"""Most lines of the head on a lower screen."""
_BESIDE_HEAD = 10
"""Lines that the head leaves to the rest of a low screen."""
_MOST_COMPARED = 2_000
"""Most facts that are compared automatically; with more, only the prune review compares."""
_MODELS = (
    "claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5", "gpt-5", "gpt-5-mini", "gpt-4.1",
    "gpt-4o", "gpt-4o-mini", "o3", "gemini-2.5-pro", "gemini-2.5-flash", "mistral-large-latest",
    "deepseek-chat", "grok-4",
)  # fmt: skip
"""Models to choose from; any other can be typed."""


class BudgetScreen(EditingScreen[FactRow]):
    """The context that a model gets before a run, and its cost."""

    MODE = "budget"
    NOUN = "fact"
    SPLIT = "#budget-split"
    NARROWS = FilterTarget.BUDGET
    READS_WITH = ("memtui.service.context.contexts", "memtui.service.operations.namespaces")

    view: var[BudgetView] = var(BudgetView)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._rows: AppendedRows[FactRow] = AppendedRows(lambda row: row.key)
        self._binding_keys: dict[RecordHandle, str] = {}
        self._again = False
        """Whether to assemble again, since records changed during an assembly."""
        self._added = ""
        """Record id of an added fact, until a context with it is assembled."""
        self._compared: object = None
        self._finding = Background(self, "budget-offers")
        self._drawing = Background(self, "budget-charts")
        self._comparing = Background(self, "budget-same")
        start = BudgetView(state.settings.context_model, state.settings.context_budget)
        self.set_reactive(BudgetScreen.view, start)

    def compose_body(self) -> ComposeResult:
        """Lay out bars, facts or text, details and charts."""
        yield Static(id="budget-head")
        yield Notice(id="budget-notice")
        yield OptionRows(id="budget-offers")
        with Split(self.MODE, self.state.shares, id="budget-split", classes=None):
            with Vertical(id="budget-left"):
                yield Static(id="budget-title")
                yield self.make_list()
                with DetailPane(id="budget-text"):
                    yield Static(id="budget-words")
            with Vertical(id="budget-side"):
                yield self.make_detail()
                yield Charts(id="budget-charts")

    def make_list(self) -> VirtualList[FactRow]:
        """Return the list of the facts."""
        columns = fact_columns(self.state.clock, self.stats)
        return VirtualList(columns, self._rows, name="fact-list")

    def on_mount(self) -> None:
        """Draw the data known so far."""
        self._draw()

    # Reading.

    def load(self) -> None:
        """Assemble the context of the scope, or offer owners if it names none."""
        view, shown, places = self.view, self.rows_list, places_of(self.state.record_scope)
        looked_at = [place.scope for place in view.places if place.word != COMPANY]
        if [place.scope for place in places] != looked_at:
            self._compared = None
            view = BudgetView(view.model, view.budget, places)
            shown.selection.reset()
        if view.answer is None:
            self._rows.replace([])
            shown.notice = ("Assembling the context …",)
            shown.show(self._rows)
        self.view = view
        if places:
            self._finding.forget()
            self._assemble()
        else:
            self.reads.forget()
            self.follow(())
            self.show_count("")
            find = partial(find_offers, self.state, self.view.model)
            self._finding.latest(find, self._show_offers, self.fail)

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Update the prune figures of the offered owners."""
        super().watch_state(before, now)
        if self.is_mounted and before.prune_figures != now.prune_figures and not self.view.places:
            self._draw_offers()

    def select(self, name: str) -> None:
        """Put the cursor on an added fact once a context with it is assembled."""
        self._added = name

    def forget(self) -> None:
        """Clear the context."""
        self._compared = None
        self.view = replace(self.view, answer=None)

    def _show_offers(self, offers: tuple[Offer, ...]) -> None:
        self.view = replace(self.view, offers=offers)
        if offers:
            self.query_one("#budget-offers", OptionRows).focus()

    @on(OptionList.OptionSelected, "#budget-offers")
    def _take_offer(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        offer = self.view.offers[event.option_index]
        if not offer.has_context:
            self.talk(self._cut(offer))
            return
        field, name = owner_of(offer.place.scope)
        scope = self.state.scope.model_copy(update={field: name})
        # A filter of another binding, as a review of its records has, would empty the context.
        chosen = "" if self.state.filter.binding_key else None
        go = GoTo(filter_line=chosen, scope=scope, binding_key=offer.place.binding_key)
        self.post_message(go)

    async def _cut(self, offer: Offer) -> None:
        """Review which of the offered records could go; scope and filter stay."""
        from memtui.screens.prune import PruneReview
        from memtui.screens.prune_review import Narrowing

        key = offer.share.binding_key if offer.share else ""
        await self.visit(PruneReview(self, narrowing=Narrowing(offer.place.scope, key)))

    def _assemble(self) -> None:
        """Assemble the context again; cursor and marks stay on their facts."""
        from memtui.service.context.contexts import ContextRequest
        from memtui.service.usecases.pruning import fact_owners

        state, session = self.state, self.session
        key = state.filter.binding_key or state.binding_key
        request = ContextRequest(
            scope=state.record_scope,
            model=self.view.model,
            budget=self.view.budget,
            binding_key=key,
            prompt=self.view.prompt or None,
            by_relevance=bool(self.view.prompt) and state.settings.facts_by_relevance,
            profile=self.view.profile,
        )

        async def assemble() -> BudgetView:
            answer = await session.service.context(session.caller, request)
            owners = await fact_owners(session.service, session.caller, request.scope, key)
            places = tuple(place_of_owner(scope, at) for scope, at in owners)
            await asyncio.to_thread(lambda: answer.price)  # the first one reads the price table
            rows = await asyncio.to_thread(rows_of, answer)
            return replace(self.view, places=places, answer=answer, request=request, rows=rows)

        self.reads.latest(assemble, self._assembled, self._broken)

    def _assembled(self, view: BudgetView) -> None:
        self.view = view
        self._binding_keys = {
            row.handle: row.fact.binding_key
            for row in view.rows
            if row.handle and row.fact.binding_key
        }
        self.reorder()
        added, self._added = self._added, ""
        if row := next((one for one in view.rows if added and one.record_id == added), None):
            self.rows_list.go_to_key(row.key)
        self.follow(place.binding_key for place in view.places)
        self._read_timeline()
        self._compare()
        self.risks_found()
        if self.focused is None or not self.focused.display:
            self.focus_body()
        if self._again:
            self._again = False
            self.call_later(self.changed_outside)

    def _broken(self, error: MemtuiError) -> None:
        self._rows.replace([])
        self.show_error(error, "r reads again, s chooses another scope.")
        self.view = replace(self.view, answer=None, rows=())

    def reorder(self) -> None:
        """Show the facts that match the filter, in the chosen order."""
        if self.view.answer is None:
            return  # the notice stays
        shown = self.rows_list
        lets_through = narrowed(
            self.view.rows,
            self.state.filter,
            stats=self.stats,
            marks=self.marks,
            repeated={one for same in self.view.same.values() for one in same},
            now=self.state.clock(),
        )
        self._rows.replace(shown.ordered(lets_through))
        shown.selection.drop(shown.selection.marks.keys() - {row.key for row in self.view.rows})
        shown.notice = self._nothing()
        shown.show(self._rows)
        self.look()

    def risks_found(self) -> None:
        """Read the marks of the facts again, and how often each was read."""
        ids: dict[str, list[str]] = defaultdict(list)
        for handle, key in self._binding_keys.items():
            ids[key].append(handle.provider_record_id)
        self.count_reads(ids)

    def _nothing(self) -> tuple[str, str]:
        if self.view.rows:
            return "No fact matches.", "/ changes the filter, ctrl+l clears it."
        # A binding may have been chosen on another screen.
        if key := self.state.filter.binding_key or self.state.binding_key:
            hint = f"{self.state.keymap.label('app.binding')} asks another binding"
            return f"{key} has no facts of it.", f"{hint}, s chooses another scope."
        hint = "a adds the first, s chooses another scope, i shows which notes a question finds."
        return "There are no facts here.", hint

    def sort(self, column: str) -> None:
        """Sort by a column, then reverse, then restore the order of the prompt."""
        first = column in {"tokens", "age"}
        orders = [(column, first), (column, not first), None]
        now = self.rows_list.sort
        self.rows_list.sort = orders[orders.index(now) + 1] if now in orders[:2] else orders[0]
        self.reorder()

    def look(self) -> None:
        """Show how many facts are shown and marked."""
        count, whole = self._rows.loaded, len(self.view.rows)
        words = [fmt.count(count) if count == whole else fmt.of_total(count, whole)]
        chosen = self.rows_list.chosen if self.rows_list.selection.active else []
        if chosen:
            tokens = sum(row.tokens or 0 for row in chosen)
            marked = fmt.marked(len(chosen), self.rows_list.selection.hidden)
            words.insert(0, f"{marked}, {fmt.counted(tokens, 'token')}")
        self.show_count("  ".join(words))

    def _compare(self) -> None:
        """Find facts that repeat another, if a text has changed."""
        texts = hash(tuple((row.key, row.text) for row in self.view.rows))
        if texts != self._compared:
            self._compared = texts
            self._comparing.latest(self._find_same, self._show_same, self.fail)

    def _show_same(self, same: Mapping[str, frozenset[RecordHandle]]) -> None:
        self.view = replace(self.view, same=same)
        self.reorder()

    async def _find_same(self) -> Mapping[str, frozenset[RecordHandle]]:
        from memtui.pruning.candidates import REPEATS
        from memtui.service.context.pruning import PruneRequest

        session, view = self.session, self.view
        found = {}
        for place in view.places if 0 < len(view.rows) <= _MOST_COMPARED else ():
            request = PruneRequest(
                scope=place.scope,
                model=view.model,
                binding_key=place.binding_key,
                only_company=place.word == COMPANY,
            )
            plan = (await session.service.pruning.plan(session.caller, request)).plan
            found[place.word] = frozenset(
                one.record.handle for one in plan.candidates if one.reason in REPEATS
            )
        return found

    def _read_timeline(self) -> None:
        session, places, now = self.session, self.view.places, self.state.clock()
        wanted = self.state.record_scope.model_copy(update={"issue_id": None, "run_id": None})
        self._drawing.latest(
            lambda: read_timeline(session, wanted, places, now),
            lambda found: setattr(self, "view", replace(self.view, timeline=found)),
            self.fail,
        )

    # What others do.

    def changed_outside(self) -> None:
        """Assemble again after the running assembly; a person's own change does so itself."""
        if self.acts.changing:
            return
        if self.reads.busy:
            self._again = True
            return
        self._assemble()

    def happened(self, news: News) -> None:
        """Assemble again after a change of its facts that was not made on this screen."""
        scopes = [one.scope for one in news.changes(self)]
        if news.is_part or any(
            _touches(scope, place) for scope in scopes for place in self.view.places
        ):
            if self.is_current:
                self.changed_outside()
            else:
                self.reload()

    # Drawing.

    def watch_view(self, before: BudgetView, now: BudgetView) -> None:
        """Draw the view."""
        if self.is_mounted:
            self._draw()
            if (before.timeline, before.budget) != (now.timeline, now.budget):
                charts = charts_of(now.timeline, now.budget) if now.timeline else ()
                self.query_one("#budget-charts", Charts).show(charts)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        view = self.view
        chosen = bool(view.places)
        self.query_one("#budget-split").display = chosen
        head = self.query_one("#budget-head", Static)
        head.display = chosen
        width = head.content_size.width or self.size.width - 2
        if self.size.height < _TALL:
            most = max(2, min(_SHORT_HEAD, self.size.height - _BESIDE_HEAD))
            parts = [short_head(view, width, most)]
        else:
            parts = [head_content(view, width), bars_content(view, width), notes_content(view)]
        head.update(lines([part for part in parts if part.plain]))
        self._draw_offers()
        self._draw_text()
        self.draw_keys()

    def _draw_offers(self) -> None:
        offers, found = self.query_one("#budget-offers", OptionRows), self.view.offers
        notice = self.query_one("#budget-notice", Notice)
        notice.display = not self.view.places
        notice.set_class(bool(found), "-over-offers")
        offers.display = bool(found) and not self.view.places
        at = (offers.option_count == len(found) and offers.highlighted) or 0
        offers.show(offers_content(self.view, self.state, self.size.width - 4), at)
        if found:
            hint = "enter shows one, or what of it could go; s chooses by name."
        else:
            hint = "s takes a name that is not known yet, 4 shows all records."
        if not self.view.places:
            said = "Choose a user, project or agent"
            if any(one.share for one in found):
                of = f"tokens of a budget of {fmt.count(self.view.budget)}"
                said = f"All memories: {of}, dollars a session ({self.view.model})"
            if found and (figures := self.state.prune_figures) is not None:
                counted = fmt.since(figures.planned_at, self.state.clock())
                hint += f" What could go was counted {counted}{figures.without}."
            notice.show("empty", f"{said}.", hint)

    def _draw_text(self) -> None:
        view = self.view
        self.rows_list.display = not view.raw
        self.query_one("#budget-text").display = view.raw
        self.query_one("#budget-split").set_class(view.raw, "-raw")
        shown = "exactly this text" if view.raw else "fact by fact"
        keys = "t shows its facts" if view.raw else "t shows the text"
        title = line(display("what the model sees", style=STRONG), display(shown), gap=", ")
        self.query_one("#budget-title", Static).update(
            line(title, display(keys, style=DIM), gap="   ")
        )
        text = view.answer.text if view.raw and view.answer else ""
        words = display(text, keep_newlines=True) if text else display("Nothing.", style=DIM)
        self.query_one("#budget-words", Static).update(words)

    def detail(self, row: FactRow, width: int) -> Content:
        """Return the details of a fact."""
        answer, read = self.view.answer, self.stats.get(row.name)
        exact = answer is None or answer.exact
        return fact_content(row, self.view.place_of(row), read, self.state, width, exact=exact)

    def missing_for(self, row: FactRow | None) -> dict[Need, str]:
        """Return the needs that are not met; the text view has no row."""
        missing = super().missing_for(row)
        if not self.view.places:
            missing[Need.SCOPE] = ""
        if not (self.view.places or self.view.offers):
            missing[Need.OWNERS] = ""
        binding = self.state.binding
        if binding is not None and not binding.capabilities.profile:
            missing[Need.PROFILE] = ""
        if self.view.raw:
            missing[Need.ROW] = "t goes back to the list of facts."
        elif not self.view.places:
            missing[Need.ROW] = ""
        return missing

    def draw_keys(self) -> None:
        """Update which keys are enabled, and the label of `t`."""
        super().draw_keys()
        self.labels = {**self.labels, "budget.text": "as facts" if self.view.raw else "as text"}

    # What is shown, as records.

    @property
    def _place(self) -> FactsPlace:
        """The owner of the fact under the cursor, else the first owner."""
        return self.view.place_of(self.rows_list.current) or self.view.places[0]

    @property
    def row(self) -> FactRow:
        """The fact under the cursor; raises `NotFound` if it has no record."""
        row = super().row
        if row.handle is None:
            raise NotFound("No fact is selected.")
        return row

    def binding_at(self, row: FactRow | None) -> BindingView | None:
        """Return the binding of a fact; None: unknown."""
        key = row.fact.binding_key if row else ""
        return next((one for one in self.state.bindings if one.key == key), None)

    def binding_of(self, record: Record | None) -> str:
        """Return the binding key of a record; empty: a new one, whose scope decides."""
        if record is None:
            return ""
        # Records of a review of all bindings have their binding key.
        return str(getattr(record, "binding_key", self._binding_keys.get(record.handle, "")))

    async def records_of(self, rows: Sequence[FactRow]) -> list[Record]:
        """Read the present records of rows, in the rows' order.

        The rows of a context lack the revisions that a change needs.

        Raises:
            NotFound: one of them is gone.
        """
        return await self.wait("reading the facts", lambda: self._read_records(rows))

    async def _read_records(self, rows: Sequence[FactRow]) -> list[Record]:
        found: dict[RecordHandle, Record] = {}
        for place in (None, *self.view.places):
            mine = [row for row in rows if self.view.place_of(row) == place]
            if place is None or len(mine) == 1:
                found |= {row.handle: await self._read_one(row) for row in mine if row.handle}
            elif handles := {row.handle for row in mine}:
                listed = await self._records_of(place)
                found |= {one.handle: one for one in listed if one.handle in handles}
        missing = sum(row.handle not in found for row in rows)
        if missing:
            raise NotFound(
                f"{fmt.counted(missing, 'fact')} of these {'is' if missing == 1 else 'are'} gone; "
                "r reads them again."
            )
        return [found[row.handle] for row in rows if row.handle is not None]

    async def _read_one(self, row: FactRow) -> Record:
        whole, fact = self.state.record_scope, row.fact
        scope = owner_scope(fact.scope) if fact.scope else whole
        answer = await self.session.service.get(
            self.session.caller, row.record_id, scope, binding_key=fact.binding_key
        )
        return answer.record

    async def _records_of(self, place: FactsPlace, kind: str | None = None) -> list[Record]:
        """Read all records of an owner from its binding, of one kind or of all."""
        session, scope = self.session, place.scope
        records, _ = await owned_records(
            session.service, session.caller, scope, kind=kind, binding_key=place.binding_key
        )
        return [record for record in records if owner_of(record.scope) == owner_of(scope)]

    def changed(self, now: Mapping[RecordName, Record]) -> None:
        """Assemble again after records changed."""
        del now
        self.load()

    def gone(self, names: set[RecordName], ghosts: set[RecordName]) -> None:
        """Unmark the forgotten records, and assemble again without them."""
        self.ghosts |= ghosts
        self.rows_list.selection.drop({row.key for row in self.view.rows if row.name in names})
        self.load()

    # Changing facts.

    async def action_add(self) -> None:
        """Write a new fact; begin with a text that could not be written before."""
        if self.state.resolution_problem:
            raise NotFound(self.state.resolution_problem)
        begun = await self.taken_up()
        begin = begun.text if begun is not None else ""
        most = self.state.settings.fact_max_chars
        prompt = Prompt(
            "Remember",
            value=begin,
            placeholder="one short fact",
            hint=f"{f'at most {most:,} characters   ' if most else ''}enter save   esc go back",
            check=self._check_fact,
        )
        where = self.state.record_scope
        text = await self.ask_text(
            prompt, lambda text: kept_new(NewRecord(text, where, "fact", None, ()))
        )
        if text is None:
            return
        self.let_go(begun)
        new = NewRecord(text.strip(), self.state.record_scope, "fact", None, ())
        self._unwritten.append(new)
        if (place := await self._ask_place()) is None:
            self.toast("Your text is kept; a takes it up again.")
            return
        self.let_go(new)
        await self.add(replace(new, scope=place.scope), place.binding_key)

    def _check_fact(self, text: str) -> None:
        length, most = len(text.strip()), self.state.settings.fact_max_chars
        if not length:
            raise Invalid("A fact needs a text.")
        if 0 < most < length:
            raise Invalid(f"A fact has at most {most:,} characters; this one has {length:,}.")

    async def _ask_place(self) -> FactsPlace | None:
        """Ask for the owner of a fact, offering the cursor's owner first; None: went back."""
        here, others = self._place, list(self.view.places)
        others.remove(here)
        if not others:
            return here
        choices = [Choice(place, place.label) for place in (here, *others)]
        return await self.ask(Choose("About whom is it?", choices))

    async def action_clear(self) -> None:
        """Forget all facts of the cursor's owner, after its name was typed."""
        place = self._place
        records = await self.wait("reading the facts", lambda: self._records_of(place, "fact"))
        if not records:
            raise Invalid(f"There are no facts of {place.label}.")
        count = fmt.counted(len(records), "fact")
        question = TypedConfirm(
            f"Forget all {count} of {place.label} from {self.where(records)}?",
            word=place.name,
            verb="forget them all",
            detail="u brings them back.",
        )
        if await self.ask(question):
            await self.forget_now(records)

    async def action_merge(self) -> None:
        """Merge the marked facts into one."""
        chosen = self.rows_list.chosen
        if len(chosen) < 2:
            raise Invalid("Mark the facts to merge first, two at least.")
        if await self.merge(await self.records_of(chosen)):
            self.rows_list.action_unmark()

    async def action_prune(self) -> None:
        """Review the prune candidates, of an offered owner if nobody is chosen."""
        from memtui.screens.prune import PruneReview

        place = self.query_one("#budget-offers", OptionRows).highlighted
        if not self.view.places and place is not None:
            await self._cut(self.view.offers[place])
            return
        await self.visit(PruneReview(self, self.view))

    # Looking.

    @property
    def _answer(self) -> ContextAnswer:
        if self.view.answer is None:
            raise NotFound("There is no context yet.")
        return self.view.answer

    def action_back(self) -> None:
        """Go back to the list; there, clear the range, else all marks."""
        if self.view.raw:
            self.action_text()
        elif self.view.places:
            super().action_back()
        else:  # the offered owners are shown, and keep the focus
            self.drop_filter()

    def action_text(self) -> None:
        """Show the context's text, or the list of its facts."""
        self.view = replace(self.view, raw=not self.view.raw)
        self.query_one("#budget-text" if self.view.raw else "#fact-list").focus()

    async def action_model(self) -> None:
        """Choose the model whose tokens and prices are used."""
        used = dict.fromkeys((self.view.model, self.state.settings.context_model))
        chooser: Choose[str] = Choose(
            "Count and price for which model?",
            lambda: asyncio.to_thread(_model_choices, used),
            placeholder="type a model's name",
            offer=lambda text: [Choice(text, f"{text}  — as written", "other")],
        )
        if (model := await self.ask(chooser)) is not None:
            self.view = replace(self.view, model=model)
            self.reload()

    async def action_budget(self) -> None:
        """Set the token budget."""
        prompt = Prompt("Budget in tokens", value=str(self.view.budget), go="set", check=_budget)
        if (text := await self.ask(prompt)) is not None:
            self.view = replace(self.view, budget=_budget(text))
            self.reload()

    async def action_prompt(self) -> None:
        """Ask for a prompt, and include the records that a search finds for it."""
        prompt = Prompt(
            "What is the model asked?",
            value=self.view.prompt,
            placeholder="which branch do we deploy from?",
            hint="enter search for it   empty: no search   esc go back",
        )
        if (text := await self.ask(prompt)) is not None:
            self.view = replace(self.view, prompt=text.strip())
            self.reload()

    def action_profile(self) -> None:
        """Include the provider's profile of the scope, or leave it out."""
        self.view = replace(self.view, profile=not self.view.profile)
        self.reload()

    def action_whole(self) -> None:
        """Show the memory's share of a whole prompt."""
        content = partial(share_content, self._answer.share)
        self.app.push_screen(Sheet("The memory in a whole prompt", content))

    def action_left_out(self) -> None:
        """Show all warnings and left-out facts."""
        self.app.push_screen(Sheet("Warnings and left out", doubts_content(self._answer)))

    def action_charts(self) -> None:
        """Show the charts in large."""
        timeline, budget = self.view.timeline, self.view.budget
        if timeline is None:
            raise NotFound("The charts are still being drawn.")
        draw = partial(charts_content, timeline, budget)
        self.app.push_screen(Sheet("The context, day by day", draw))

    def action_files(self) -> None:
        """Show the commands that export and import facts."""
        self.app.push_screen(Sheet("Facts as files", files_content(self.view.places)))

    def action_record(self) -> None:
        """Show the fact in Records."""
        row = self.row
        if key := row.fact.binding_key:
            self.post_message(GoTo("records", binding_key=key, select=row.record_id))

    def action_copy(self) -> None:
        """Copy the text of the fact."""
        self.copy(self.row.text, "Copied the fact.")

    def action_copy_text(self) -> None:
        """Copy the context's text."""
        text = self._answer.text
        self.copy(text, f"Copied what the model sees, {fmt.counted(len(text), 'character')}.")


def _budget(text: str) -> int:
    """Parse a budget: `500`, `1,000`. Raises `Invalid`."""
    digits = text.strip().replace(",", "").replace("_", "")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise Invalid(f"{text.strip()!r} is not a budget; give a number of tokens, such as 500.")
    return int(digits)


def _model_choices(used: Iterable[str]) -> list[Choice[str]]:
    """Return the models to choose from, those in use first, and whether tokens are exact."""
    return [
        Choice(model, model, "exact" if TokenCounter(model).exact else "estimated")
        for model in dict.fromkeys([*used, *_MODELS])
    ]


def _touches(changed: Scope, place: FactsPlace) -> bool:
    """Whether a change in a scope may affect an owner's facts; the company's always may."""
    owner, (field, name) = owner_of(changed)[0], owner_of(place.scope)
    return owner == "company_id" or (field != "company_id" and getattr(changed, field) == name)
