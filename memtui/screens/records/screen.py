"""Screen 4: the records of the active binding, and on the right the selected one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.content import Content

from memtui.contract import (
    OWNER_FIELDS,
    BrowseRequest,
    Filter,
    Invalid,
    Links,
    MemtuiError,
    NotFound,
    Record,
    Scope,
    Unsupported,
    owner_scope,
)
from memtui.fact_values import entry_of
from memtui.filters import FilterTarget, supported_by
from memtui.presenters import format as fmt
from memtui.presenters.filter_words import values_of
from memtui.presenters.risks import by_severity, verdict_words
from memtui.provider_kit.matching import matcher
from memtui.screens.dialogs import Choice, Choose, WriteRecord
from memtui.screens.editing import EditingScreen, kept_new, record_key
from memtui.screens.following import News
from memtui.screens.leading import choose_reader, choose_tag, show_tagged
from memtui.screens.list_screen import MOST_MARKED, too_many
from memtui.screens.open_source import open_file, open_source, source_filter
from memtui.screens.records.view import (
    PROVIDER_SORTS,
    TOKENS,
    RecordView,
    record_columns,
    record_content,
)
from memtui.screens.state import AppState, GoTo
from memtui.widgets.background import Background
from memtui.widgets.panes import Fitted
from memtui.widgets.record_names import RecordName
from memtui.widgets.rows import PAGE_ROWS, AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.context.cost import TokenCounter
    from memtui.service.answers import BindingOutcome, BindingView, BrowseAnswer, Provenance
    from memtui.service.operations.facts import FactAnswer

NEWEST_FIRST = ("age", True)
_MOST_AT_ONCE = 1_000
_KEPT_S = 0.3
"""Seconds that the old rows stay while new ones are read."""
_MARGINS = 2
"""Cells of the filter line left and right of its text."""


class RecordsScreen(EditingScreen[Record]):
    """The records of the active binding, or of all bindings at once.

    Reading again keeps cursor and marks on their records. Every page that is read is an operation
    in the log, so pages come only when a person scrolls to them.
    """

    MODE = "records"
    NOUN = "record"
    NARROWS = FilterTarget.RECORDS
    EVERYWHERE = True

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._rows: AppendedRows[Record] = AppendedRows(self._key_of)
        self._binding_key = ""
        """The binding of the rows, if they are of one binding, and the binding of new records."""
        self._outcomes: dict[str, BindingOutcome] = {}
        """The outcome of each binding, if all bindings were read."""
        self._silent: set[tuple[str, str]] = set()
        """Company and key of the bindings whose failure was shown already."""
        self._problems: Sequence[object] = ()
        """The problems that were shown last."""
        self._question: BrowseRequest | None = None
        self._is_new = False
        """Whether the current request has no answer yet."""
        self._was_on: str | None = None
        """Key of the row that the person went to last, in an earlier list."""
        self._marked_in: tuple[object, ...] = ()
        """Company, scope and binding in which the marks were set."""
        self._everywhere = False
        """Whether all bindings were asked."""
        self._begun: BrowseRequest | None = None
        """The request whose answers are shown as they come."""
        self._page: BrowseAnswer | None = None
        """The last page that was read."""
        self._unread: tuple[str, ...] = ()
        """The sentences on unread records that were shown last."""
        self._total: int | None = None
        self._whole: tuple[tuple[object, ...], int] | None = None
        """The last request without a filter, and its number of records."""
        self._read_since = False
        """Whether records were read since reads were last counted."""
        self._pointed_at: str | None = None
        """The record that another screen went to, until the rows are read."""
        self._story: Provenance | None = None
        self._no_story = ""
        """Why the provenance of the record under the cursor could not be read."""
        self._links: dict[RecordName, Links] = {}
        """Links and backlinks of the loaded records."""
        self._stories = Background(self, "record-provenance")
        self._key: tuple[Record, datetime | None, FactAnswer] | None = None
        """The record whose key was looked up, the moment, and the answer."""
        self._keys = Background(self, "record-key")
        self._counter: TokenCounter | None = None

    def make_list(self) -> VirtualList[Record]:
        """Return the list, the newest records first."""
        columns = record_columns(
            self.state.clock, self.stats, self.marks, self.ghosts,
            name_of=self.name_of, tokens_of=self._tokens_of,
        )  # fmt: skip
        found: VirtualList[Record] = VirtualList(columns, self._rows, name="record-list")
        found.sort = NEWEST_FIRST
        found.hidden = frozenset({TOKENS, "size"})
        return found

    def _tokens_of(self, record: Record) -> int:
        """Return the number of tokens of a record's text for the model of contexts."""
        from memtui.context.cost import TokenCounter

        model = self.state.settings.context_model
        if self._counter is None or self._counter.model != model:
            self._counter = TokenCounter(model)
        return self._counter.tokens(record.text)

    # Reading.

    def load(self) -> None:
        """Read the first page; if the request is the same, read as many records as were loaded."""
        state, shown = self.state, self.rows_list
        column, descending = shown.sort or NEWEST_FIRST
        field = PROVIDER_SORTS.get(column, "updated_at")
        down = descending if column in PROVIDER_SORTS else True
        everywhere = state.asks_all
        question = BrowseRequest(
            scope=state.record_scope,
            binding_key=None if everywhere else state.filter.binding_key or state.binding_key,
            filter=state.filter,
            sort=f"-{field}" if down else field,
            limit=PAGE_ROWS,
            links=True,
        )
        limit = min(_MOST_AT_ONCE, max(PAGE_ROWS, self._rows.loaded))
        is_new = question != self._question or everywhere != self._everywhere
        if is_new:
            self._question, self._everywhere, limit = question, everywhere, PAGE_ROWS
            self._outcomes, self._is_new = {}, True
            self._was_on = shown.gone_to or self._was_on
            shown.notice = ("Reading the records …",)
        else:
            self._whole = None  # records that the filter hides may have changed too
        same = set() if everywhere else {"binding"}
        if state.record_scope.project_id and not state.record_scope.subject_id:
            same.add("where")
        shown.fixed = frozenset(same)
        request = question.model_copy(update={"limit": limit})
        self._begun = request if is_new or not self._rows.loaded else None
        if is_new and self._page is not None:
            self.set_timer(_KEPT_S, partial(self._forget_before, request))  # not if it is quick
        self.reads.latest(lambda: self._browse(request), self._show_first, self._broken)

    def forget(self) -> None:
        """Remove the rows; after the next read the cursor returns to its record if it is listed."""
        self._rows.replace(())
        self.rows_list.notice = ("Reading the records …",)
        self.rows_list.refresh()
        self.draw_keys()
        self.draw_detail()

    def _forget_before(self, request: BrowseRequest | None) -> None:
        """Remove the rows of the previous request."""
        if request is self._begun and self._page is not None:
            self._page = self._total = None
            self.forget()
            self.look()

    def _browse(self, request: BrowseRequest) -> Awaitable[BrowseAnswer]:
        service, caller = self.session.service, self.session.caller
        report = partial(self._tell_progress, request)
        if self._everywhere:
            so_far = partial(self._show_so_far, request)
            return service.everywhere.browse(
                caller, request, seen_only=True, so_far=so_far, report=report
            )
        return service.browse(caller, request, report=report)

    def _tell_progress(self, request: BrowseRequest, read: int, total: int | None) -> None:
        """Show the progress, when a whole scope is read before the first row can be shown."""
        if request is self._begun and self.is_attached:
            of = f" of {fmt.count(total)}" if total is not None else ""
            words = f"Reading the records … {fmt.count(read)}{of}"
            if read == total:
                words = f"Comparing {fmt.counted(read, 'record')} …"
            self.rows_list.notice = (words,)
            self.rows_list.refresh()

    def _show_so_far(self, request: BrowseRequest, page: BrowseAnswer) -> None:
        """Show the records of the bindings that have answered, while others are still read."""
        if request is not self._begun or not self.is_attached:
            return
        self._page = self._total = None
        self._begin_rows(page.records)
        self._note_outcomes(page.bindings)
        self.rows_list.rows_changed(follow=True)
        if self._pointed_at is None:
            self._go_back()
        else:
            self._go_to(self._binding_key, self._pointed_at)
        self.look()

    def _keep_marks(self) -> None:
        """Keep marks within one company, scope and binding, whatever filter or order is used."""
        selection, state = self.rows_list.selection, self.state
        key = "" if self._everywhere else self._binding_key
        place = self.session.caller.company_id, state.scope, self._everywhere, key
        if place != self._marked_in:
            if selection.marks:
                marks = fmt.counted(len(selection.marks), "mark")
                self.toast(f"{marks} taken away, as the records of another place are shown.")
            selection.reset()
            self._marked_in = place

    def _begin_rows(self, records: Sequence[Record] = ()) -> None:
        """Replace the rows; after a new request the list begins at the first row."""
        if self.typed is None:
            self._rows.narrow(None)
        self._rows.replace(records)
        if self._is_new:
            self._is_new = False
            self.rows_list.begin_anew()

    def _go_back(self) -> None:
        """Return the cursor to its earlier record, unless it was moved since."""
        if self._was_on is not None and self.rows_list.gone_to is None:
            self.rows_list.go_to_key(self._was_on)

    def _show_first(self, page: BrowseAnswer) -> None:
        self._binding_key = self._resolved if self._everywhere else page.binding_key
        self.follow([one.binding_key for one in page.bindings if one.status == "ok"])
        self._keep_marks()
        came_in_parts = self._begun is not None and self._everywhere
        self._begun = None
        self._tell_unread(page)
        self._begin_rows()
        self._links.clear()
        self._show(page, follow=came_in_parts)
        self.reorder()
        if self._pointed_at is None:
            self._go_back()
        else:
            self._find_pointed(self._pointed_at)
        if not self._rows.more and not self._is_narrowed and self.typed is None:
            self.rows_list.selection.keep_held()
        self.rows_list.notice = self._nothing()

    def _tell_unread(self, page: BrowseAnswer) -> None:
        """Show which records were not read, unless that is shown already."""
        if page.unread and page.unread != self._unread:
            self.toast(" ".join(page.unread), severity="warning")
        self._unread = page.unread

    def fetch(self, pages: tuple[int, ...]) -> None:
        """Read the next page; one at a time."""
        del pages
        page, question = self._page, self._question
        if page is None or not page.next_cursor or question is None or self.reads.busy:
            return
        request = question.model_copy(update={"cursor": page.next_cursor})
        self.reads.latest(lambda: self._browse(request), self._show, self.fail)

    def _show(self, page: BrowseAnswer, *, follow: bool = False) -> None:
        """Append a page to the rows; with `follow` a cursor at the top stays there."""
        if page.problems and page.problems != self._problems:
            self.toast(fmt.not_read(page.problems), severity="warning")
        self._problems = page.problems
        self._page, self._total = page, page.total
        self._links |= {
            self.name_of(one): links for one in page.records if (links := page.links_of(one))
        }
        self._note_outcomes(page.bindings)
        self._rows.append(page.records, more=page.next_cursor is not None)
        whole = self.total()
        if whole is not None and not self._at_least and not self._is_narrowed:
            self._whole = self._asked_of, whole
        self.rows_list.rows_changed(follow=follow)
        self._count(page.records)
        self.look()

    def total(self) -> int | None:
        """Return how many records the filter lets through; None: not known."""
        return self._total if self._rows.more else self._rows.loaded

    async def all_rows(self) -> Sequence[Record]:
        """Read and show the remaining pages."""
        question = self._question
        while (page := self._page) is not None and page.next_cursor and question is not None:
            if self._rows.loaded > MOST_MARKED:
                raise too_many(f"More than {fmt.count(MOST_MARKED)} records")
            update = {"cursor": page.next_cursor, "limit": _MOST_AT_ONCE}
            following = await self._browse(question.model_copy(update=update))
            if self._question is not question or self._page is not page:
                raise Invalid("The list has changed meanwhile; mark its rows again.")
            self._show(following)
        return [row for _, row in self._rows.held()]

    def _note_outcomes(self, outcomes: Iterable[BindingOutcome]) -> None:
        """Store the outcomes of bindings, and show each new failure once.

        A binding that fails in later requests too is not reported again until it has answered.
        """
        company = self.session.caller.company_id
        for one in outcomes:
            place = company, one.binding_key
            if one.status == "failed" and place not in self._silent:
                self.toast(one.sentence, severity="warning")
                self._silent.add(place)
            elif one.status == "ok":
                self._silent.discard(place)
            self._outcomes[one.binding_key] = one

    @property
    def _at_least(self) -> bool:
        """Whether there may be more records than the total says."""
        page = self._page
        unknown = page is not None and page.total is None and page.next_cursor is not None
        still_reads = page is None and self._begun is not None
        return still_reads or unknown or (page is not None and page.at_least)

    def _nothing(self) -> tuple[str, str]:
        if self.typed is not None:
            return "None of the loaded records matches.", "enter looks among all of them."
        if self.state.filter_line:
            yet = " yet: the demo is still being made" * (self.state.demo_percent is not None)
            return (
                f"No record matches{yet}.",
                "/ changes the filter, ctrl+l clears it, s widens the scope.",
            )
        if self.state.as_of is not None:
            back = self.state.keymap.label("app.past")
            return "Nothing was here then.", f"{back} goes back to now, s widens the scope."
        if self._at_least:
            return (
                "Nothing that this provider can list.",
                "s chooses whose records to ask for, 3 asks it a question, B looks elsewhere.",
            )
        return (
            "No records here yet.",
            "a writes one, 0 shows all bindings, B another one, 1 finds memory stores here.",
        )

    def _broken(self, error: MemtuiError) -> None:
        self._begun = self._question = self._page = self._total = None
        self._binding_key = self._resolved
        self._rows.narrow(None)
        self._rows.replace(())
        hint = "r reads again, B looks at another binding."
        if not self.state.bindings:
            hint = "There is none yet; a on screen 1 adds one."
        if isinstance(error, Unsupported):
            hint = "3 asks it a question instead, B looks at another binding."
        self.show_error(error, hint)
        if self._pointed_at is not None:
            # A record that is not listed may still be readable.
            self._find_pointed(self._pointed_at)

    @property
    def _resolved(self) -> str:
        """Key of the active binding; empty: there is none."""
        return self.state.resolution.binding_key if self.state.resolution is not None else ""

    def on_screen_resume(self) -> None:
        """Count reads again if there were any meanwhile, or if that is not known."""
        if self._read_since or self.state.not_live:
            self._count_again()

    def _count_again(self) -> None:
        self._read_since = not self.is_current
        if self.is_current and self.state.session is not None and self._rows.loaded:
            self._count(record for _, record in self._rows.held())

    def risks_found(self) -> None:
        """Read the marks again, of what is loaded."""
        self._count_again()
        self.look()

    def _count(self, records: Iterable[Record]) -> None:
        ids: dict[str, list[str]] = defaultdict(list)
        for name in map(self.name_of, records):
            ids[name.binding_key].append(name.record_id)
        self.count_reads(ids)

    def changed_outside(self) -> None:
        """Read again."""
        self.reload()

    def happened(self, news: News) -> None:
        """Read the list again after changes elsewhere; after reads elsewhere count reads again."""
        shown = {None, *(self._outcomes or (self._binding_key,))}
        if news.is_part or any(one.binding_key in shown for one in news.changes(self)):
            self._whole = None  # a waiting read may be of another filter
            self.reload()
        elif any(one.handles and one.binding_key in shown for one in news.operations):
            self._count_again()

    def sort(self, column: str) -> None:
        """Order by a column, or turn its order around."""
        shown = self.rows_list.sort
        descending = not shown[1] if shown and shown[0] == column else column != "text"
        self.rows_list.sort = (column, descending)
        if column in PROVIDER_SORTS:
            self.load()
            return
        self.reorder()
        if self._rows.more:
            self.toast(
                f"Ordered by {column} among the {fmt.count(self._rows.loaded)} that are loaded; "
                "the provider cannot order all by it."
            )

    def reorder(self) -> None:
        """Sort the loaded rows by a column that the provider cannot sort by."""
        column, descending = self.rows_list.sort or NEWEST_FIRST
        if column not in PROVIDER_SORTS:
            self._rows.order(self.rows_list.column(column).rank, descending=descending)
        self.rows_list.rows_changed()

    def look(self) -> None:
        """Show the number of records, of how many if a filter is set, and the number marked."""
        words = ["reading …" if self._begun and not self._rows.loaded else self._counted()]
        risks = self.state.risks[1] if self.state.risks is not None else None
        if risks and not risks.is_complete:
            words.insert(0, risks.sentence)
        if self._page and self._page.problems:
            words.insert(0, f"▲ {fmt.counted(len(self._page.problems), 'problem')}")
        shown = self.rows_list
        for status, phrase in (("waiting", "waiting for"), ("failed", "▲ no answer from")):
            if keys := [key for key, one in self._outcomes.items() if one.status == status]:
                words.insert(0, f"{phrase} {', '.join(keys)}")
        if marked := len(shown.chosen) if shown.selection.active else 0:
            words.insert(0, fmt.marked(marked, shown.selection.hidden))
        verdict = self._verdict(len("  ".join(words)))
        if risks and risks.risky and self._is_all and not verdict:
            words.insert(0, by_severity(risks))
        said = "  ".join(words)
        self.show_count(" · ".join(filter(None, [verdict, said])))

    def _verdict(self, taken: int) -> str:
        """Return the verdict on all memories, beside `taken` cells; empty: unknown, or not all."""
        figures = self.state.prune_figures
        if not figures or not figures.verdict or not self._is_all:
            return ""
        room = (self.size.width - _MARGINS) * 7 // 10 - taken - len(" · ")
        return verdict_words(figures.verdict, room)

    def on_resize(self) -> None:
        """Fit the verdict to the new width, once the screen is styled for it."""
        if self._page is not None:
            self.call_later(self.look)

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Show another verdict, and the notice of the empty list while a demo is being made."""
        super().watch_state(before, now)
        if before.demo_percent != now.demo_percent and self._page is not None:
            self.rows_list.notice = self._nothing()
        if self.is_mounted and before.prune_figures != now.prune_figures:
            self.look()

    def _counted(self) -> str:
        """Return how many records pass the filter, and of how many, if that is known."""
        if self.typed is not None:
            loaded = fmt.count(self._rows.loaded)
            waits = "applies all of it" if _waits(self.typed) else "looks among all"
            return f"{fmt.count(self._rows.count)} of the {loaded} loaded, enter {waits}"
        total = self.total()
        if total is None or (self._at_least and self._total is None):
            found = f"{fmt.count(self._rows.loaded)}+"
        else:
            found = f"{'≥ ' * self._at_least}{fmt.count(max(total, self._rows.loaded))}"
        if not self._is_narrowed:
            return found
        if self._whole is None or self._whole[0] != self._asked_of:
            return f"{found} match"
        return f"{found} of {fmt.count(max(self._whole[1], self._rows.loaded, total or 0))}"

    @property
    def _is_all(self) -> bool:
        """Whether the list is of the whole company, of all bindings, and of now."""
        state, here = self.state, self.state.record_scope
        is_whole = here == Scope(company_id=here.company_id) and not self._is_narrowed
        return (
            is_whole
            and self.typed is None
            and state.as_of is None
            and (self._everywhere or len(state.bindings) == 1)
        )

    @property
    def _is_narrowed(self) -> bool:
        """Whether the filter in force keeps records from being listed."""
        narrowing = supported_by(self.state.filter, self.NARROWS).model_copy(
            update={"binding_key": None}
        )
        return narrowing != Filter()

    @property
    def _asked_of(self) -> tuple[object, ...]:
        """Scope, binding and moment of the request, without its filter."""
        asked, here = self._question, self.state.scope
        if asked is None:
            return ()
        # A filter may name an owner: one within the scope narrows it, any other is another scope.
        named = here.model_dump(exclude_none=True)
        within = asked.scope.model_dump(include=set(named)) == named
        place = here if within else asked.scope
        return place, asked.binding_key, self._everywhere, self.state.as_of

    def try_filter(self, chosen: Filter) -> None:
        """Show those of the loaded records that pass a filter, as each read is logged.

        Usage, risks and bindings are not looked at before the filter is applied.
        """
        shown = self.rows_list
        self._was_on = shown.gone_to or self._was_on
        wanted = supported_by(chosen, self.NARROWS)
        self._rows.narrow(None if self.typed is None else matcher(wanted))
        shown.notice = self._nothing()
        shown.begin_anew()
        shown.rows_changed()
        self._go_back()
        self.look()

    # Results of an edit are shown without reading the page again.

    async def records_of(self, rows: Sequence[Record]) -> list[Record]:
        """Return the rows, which are records."""
        return list(rows)

    def binding_of(self, record: Record | None) -> str:
        """Return the binding of a record; for None, the binding of new records."""
        # Only records that were listed from all bindings have a binding key.
        return str(getattr(record, "binding_key", self._binding_key))

    def binding_at(self, row: Record | None) -> BindingView | None:
        """Return the binding of a row, or else the active binding."""
        key = self.binding_of(row)
        return next((one for one in self.state.bindings if one.key == key), self.state.binding)

    def _key_of(self, record: Record) -> str:
        return self._row_key(self.name_of(record))

    def _row_key(self, name: RecordName) -> str:
        return "\n".join(name) if self._everywhere else name.record_id

    def lists(self, name: RecordName) -> bool:
        """Return whether a record is on a loaded page."""
        return self._rows.has(self._row_key(name))

    def changed(self, now: Mapping[RecordName, Record]) -> None:
        """Show the new state of records in their rows; new records go to the top.

        A marked record that the filter hides stays hidden.
        """
        # Another company may be shown since the change began.
        company = self.session.caller.company_id
        now = {name: one for name, one in now.items() if one.scope.company_id == company}
        marks = self.rows_list.selection.marks
        hidden = {name for name in now if self._row_key(name) in marks and not self.lists(name)}
        marks |= self._as_rows({name: now[name] for name in hidden})
        shown = {name: record for name, record in now.items() if name not in hidden}
        if new := [name for name in shown if not self.lists(name)]:
            self._add(len(new))
        self._place(shown)
        self._read_past()

    def _read_past(self) -> None:
        """Begin again a read that began before a change: it may answer with the state before."""
        if self.reading:
            self.reload()

    def _as_rows(self, now: Mapping[RecordName, Record]) -> dict[str, Record]:
        from memtui.service.operations.everywhere import ListedRecord

        rows: dict[str, Record] = {}
        for name, record in now.items():
            fields = dict(record) | {"binding_key": name.binding_key}
            rows[self._row_key(name)] = ListedRecord(**fields) if self._everywhere else record
        return rows

    def _place(self, now: Mapping[RecordName, Record]) -> None:
        self._rows.change(self._as_rows(now))
        self.rows_list.rows_changed()
        self.look()

    def _add(self, records: int) -> None:
        """Adjust the totals by added or removed records, until they are counted again."""
        if self._total is not None:
            self._total += records
        if self._whole is not None:
            self._whole = self._whole[0], self._whole[1] + records

    def gone(self, names: set[RecordName], ghosts: set[RecordName]) -> None:
        """Remove forgotten records; ghosts stay, shown as ghosts.

        If some are on pages that are not loaded yet, the list is read again, because the total may
        count them.
        """
        self.ghosts |= ghosts
        self._pointed_at = None  # it may be one of these
        left = set(map(self._row_key, names - ghosts))
        listed = sum(map(self._rows.has, left))
        self._add(-listed)
        if listed < len(left):
            self._whole = None
        reads_again = self._rows.more and listed < len(left)
        self._rows.remove(left)
        self.rows_list.selection.drop(set(map(self._row_key, names)))
        self.rows_list.rows_changed()
        self.look()
        if reads_again:
            self.reload()
        else:
            self._read_past()

    async def action_prune(self) -> None:
        """Review which records could go: the plan that removes the risk under the cursor, if any.

        Without one, at first those of the screen's scope and filter are shown.
        """
        from memtui.screens.prune import PruneReview
        from memtui.screens.prune_review import Narrowing

        scope = owner_scope(self.state.record_scope)
        is_company = scope == Scope(company_id=scope.company_id)
        narrowing = Narrowing(
            owner=None if is_company else scope,
            filter=supported_by(self.state.filter, self.NARROWS),
            now=self.state.clock(),
        )
        row = self.rows_list.current
        name = self.name_of(row) if row is not None else None
        risky = name if name and (mark := self.marks.get(name)) and mark.reasons else None
        await self.visit(PruneReview(self, narrowing=narrowing, at=risky))

    # The record under the cursor.

    def select(self, name: str) -> None:
        """Put the cursor on a record once it is loaded; a record on no page is fetched."""
        if not name:
            return
        if not self.reads.busy:
            self._find_pointed(name)
            return
        self._pointed_at, self._was_on = name, None
        if self._is_new:  # a key would act on a row of the previous request
            self._forget_before(self._begun)
        else:
            self._go_to(self._binding_key, name)

    def is_on(self, name: str) -> bool:
        """Whether the cursor is on this record of the shown binding."""
        row = self.rows_list.current
        return not name or (row is not None and self.name_of(row) == (self._binding_key, name))

    def _go_to(self, binding_key: str, name: str) -> bool:
        return self.rows_list.go_to_key(self._row_key(RecordName(binding_key, name)))

    def _find_pointed(self, name: str) -> None:
        self._pointed_at = None
        if not self._go_to(self._binding_key, name):
            self.talk(self._fetch_pointed(self._binding_key, name))

    async def _fetch_pointed(self, key: str, name: str) -> None:
        session, scope = self.session, self.state.record_scope
        try:
            answer = await self.change(
                lambda: session.service.get(session.caller, name, scope, binding_key=key)
            )
        except MemtuiError:
            self.carry_on("")
            raise
        found = RecordName(key, record_key(answer.record))
        self._links[found] = Links.like(answer)
        # Not added to the total, which counts it on a later page.
        self._place({found: answer.record})
        self._go_to(*found)

    def moved(self) -> None:
        """Read the record's provenance; a cursor that the person moved stays where it is."""
        name = self._pointed_at
        if name and self.lists(RecordName(self._binding_key, name)) and not self.is_on(name):
            self._pointed_at = None
            self.carry_on("")
        record = self.rows_list.current
        if record is not None:
            self._read_story(record)
        self._go_on()

    def detail(self, row: Record, width: int) -> Content:
        """Return the details of a record, as far as they have been read."""
        view = RecordView(
            record=row,
            now=self.state.clock(),
            zone=self.state.zone,
            ghost=self.name_of(row) in self.ghosts,
            mark=self.marks.get(self.name_of(row)),
            prune_key=self.state.keymap.label("records.prune"),
            provenance=self._story_of(row),
            problem=self._no_story,
            links=self._links.get(self.name_of(row)),
            key=self._value_that_counts(row),
        )
        return record_content(view, width)

    def _value_that_counts(self, record: Record) -> FactAnswer | None:
        """Return the answer for the record's key, unless it is of another moment or version."""
        if self._key is None or self._key[:2] != (record, self.state.as_of):
            return None
        return self._key[2]

    def _story_of(self, record: Record) -> Provenance | None:
        story = self._story
        return story if story is not None and story.handle == record.handle else None

    def _read_story(self, record: Record) -> None:
        """Read the record's provenance; not an operation."""
        session, key = self.session, self.binding_of(record)

        def show(story: Provenance) -> None:
            self._story, self._no_story = story, ""
            self.draw_detail()

        def failed(error: MemtuiError) -> None:
            self._no_story = str(error)
            self.draw_detail()

        self._stories.latest(
            lambda: session.service.log.provenance(session.caller, key, record.handle), show, failed
        )

    def action_key(self) -> None:
        """Show or hide which value of the fact's key counts here; looking it up is an operation."""
        from memtui.service.operations.facts import FactRequest

        record, session, asked = self.row, self.session, self.state.record_scope
        as_of = self.state.as_of
        entry = entry_of(record)
        if entry is None:
            raise NotFound("This record is not a fact with a key, such as deploy_branch: main.")
        if self._value_that_counts(record) is not None:
            self._key = None
            self.draw_detail()
            return
        owners = {
            name: getattr(asked, name) or getattr(record.scope, name) for name in OWNER_FIELDS
        }
        request = FactRequest(
            scope=Scope(company_id=asked.company_id, **owners), namespace=record.topic or ""
        )

        def show(found: FactAnswer) -> None:
            self._key = record, as_of, found
            self.draw_detail()

        self._keys.latest(
            lambda: session.service.facts.get(session.caller, entry.key, request), show, self.fail
        )

    def action_unmark(self) -> None:
        """Go back from the details to the list; there, take away the range, else all marks."""
        self.action_back()

    async def action_add(self) -> None:
        """Write a new record."""
        if self.state.resolution_problem:
            raise NotFound(self.state.resolution_problem)
        where, scope = self.where([None]), self.state.record_scope
        begin = await self.taken_up()
        known = values_of(row for _, row in self._rows.held())
        new = await self.ask_text(WriteRecord(where, scope, begin, known), kept_new)
        self.let_go(begin)
        if new is not None:
            await self.add(new)

    async def action_queries(self) -> None:
        """Offer the queries that returned the record, and go to the chosen one."""
        await choose_reader(self, self.binding_of(self.row), self.row.handle)

    async def action_links(self) -> None:
        """Offer the records that it links to or that link to it, and go to the one chosen."""
        found = self._links.get(self.name_of(self.row), Links())
        choices = [
            Choice(one.handle.provider_record_id, fmt.link_words(one), way)
            for way, links in (("links to", found.links), ("linked by", found.backlinks))
            for one in links
            if one.handle is not None
        ]
        if not choices:
            raise NotFound("It links to no other record, and none links to it.")
        if name := await self.ask(Choose("Links", list(dict.fromkeys(choices)))):
            self._follow_link(name)

    @on(Fitted.Clicked)
    def _clicked(self, event: Fitted.Clicked) -> None:
        if event.sort == "tag":
            show_tagged(self, event.name)
        else:
            self._follow_link(event.name)

    async def action_tags(self) -> None:
        """Offer all tags, the record's first, and list the records with the chosen one."""
        await choose_tag(self, self.rows_list.current)

    def _follow_link(self, name: str) -> None:
        key = self.binding_of(self.row)
        if not self._go_to(key, name):
            self.talk(self._fetch_pointed(key, name))

    async def action_runs(self) -> None:
        """Show the runs to which the record was delivered."""
        from memtui.screens.runs import RunsScreen

        record = self.row
        record_at = (self.binding_of(record), record.handle, record.text)
        await self.visit(RunsScreen(self.state, record_at))

    async def action_trace(self) -> None:
        """Show the trace of the record."""
        from memtui.screens.traces import TraceScreen

        record = self.row
        of = self.binding_of(record), record.handle
        await self.visit(TraceScreen(self.state, of, record.text))

    def action_open(self) -> None:
        """Open the record's source, else the file that contains it."""
        record = self.row
        open_source(self, record.source, record.location)

    def action_open_file(self) -> None:
        """Open the file that contains the record, at its line."""
        location = self.row.location
        if location is None:
            raise NotFound("This provider keeps its records in no file that opens.")
        open_file(self, location)

    def action_copy(self) -> None:
        """Copy the text."""
        text = self.row.text
        self.copy(text, f"Copied the text, {fmt.counted(len(text), 'character')}.")

    def action_copy_id(self) -> None:
        """Copy the id."""
        self.copy(record_key(self.row), "Copied the id.")

    def action_same_source(self) -> None:
        """Narrow every screen to the source of the record."""
        self.post_message(GoTo(filter_line=source_filter(self.row.source)))


def _waits(typed: Filter) -> bool:
    """Whether a filter has terms that are not looked at while it is being typed."""
    return any(
        one.uses or any(test.field == "binding_key" for test in one.field_tests())
        for one in (typed, *typed.alternatives)
    )
