"""Changes to records: each is based on the revision that was read, and can be undone.

The last change may be several operations, such as a forget in each of two bindings; one key undoes
all of them. A text that could not be written becomes a draft: editing the same record resumes it,
or adding a record if the record is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from memtui.actions import Need
from memtui.contract import (
    Conflict,
    CorrectRequest,
    Denied,
    Invalid,
    MemtuiError,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
    owner_scope,
)
from memtui.presenters import format as fmt
from memtui.screens.base import ServiceScreen
from memtui.screens.dialogs import (
    Choice,
    Choose,
    Confirm,
    ConflictScreen,
    EditText,
    NewRecord,
    Prompt,
    Resolve,
)
from memtui.screens.list_screen import ListScreen
from memtui.screens.open_source import edited_outside
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState
from memtui.widgets.background import Background
from memtui.widgets.editor import keeps
from memtui.widgets.record_names import RecordName

if TYPE_CHECKING:
    from memtui.screens.drafts import KeptDraft
    from memtui.screens.prune_review import LeftReview
    from memtui.service.answers import BindingView, MutationAnswer, RetrievalCount
    from memtui.service.review.known_risks import RiskMark

R = TypeVar("R")
Answers: TypeAlias = "Sequence[MutationAnswer]"


def refused_by(binding: BindingView | None) -> dict[Need, str]:
    """Return the needs that a binding does not meet, with reasons ("": the default)."""
    missing: dict[Need, str] = {}
    if binding is None:
        return missing
    if binding.read_only:
        missing[Need.TAKES_CHANGES] = (
            f"The binding {binding.key} is read-only; ! on it in Bindings opens it."
        )
    elif not binding.capabilities.writable:
        missing[Need.TAKES_CHANGES] = f"The provider of {binding.key} only reads."
    if not binding.capabilities.correction:
        missing[Need.CORRECTION] = ""
    return missing


class Draft(NamedTuple):
    """A text that could not be written, and the record as it was when the text was begun."""

    text: str
    began_from: Record


class EditingScreen(ListScreen[R]):
    """A list of records, or of rows that stand for records, with actions to change them.

    A subclass implements `records_of`, `binding_of`, `binding_at`, `changed`, `changed_outside`,
    `gone` and `reorder`, and binds those of these actions that it offers.
    """

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self.stats: dict[RecordName, RetrievalCount] = {}
        """How often each record was read; a missing record was never read."""
        self.ghosts: set[RecordName] = set()
        """Forgotten records that their provider still returns."""
        self.left_review: LeftReview | None = None
        """The saved position of the prune review, to resume it."""
        self._unwritten: list[NewRecord] = []
        """Texts of new records that could not be written."""
        self._goes_on: NewRecord | None = None
        """The one of `_unwritten` that the last new record resumed."""
        self._last: tuple[str, ...] = ()
        self._drafts: dict[tuple[str, RecordName], Draft] = {}
        """Drafts by company id and record."""
        self._counting = Background(self, "reads-of-records")
        self._following: dict[tuple[str, str], Background] = {}
        """Watchers for changes from outside, by company id and binding key."""

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Drop read counts and ghosts when the session or the active binding changes."""
        if _asked_of(before) != _asked_of(now):
            self.stats.clear()
            self.marks.clear()
            self.ghosts.clear()
        super().watch_state(before, now)
        if now.risks is not None and before.risks != now.risks:
            self.risks_found()

    def risks_found(self) -> None:
        """Show the risks of the loaded rows, which were looked for."""

    @property
    def unsaved(self) -> Sequence[str]:
        """Texts that could not be written, each with the record that it was meant for."""
        drafts = [
            f"{fmt.quoted(one.text)}, meant for {fmt.quoted(fmt.record_name(one.began_from))}"
            for one in self._drafts.values()
        ]
        return drafts + [f"{fmt.quoted(one.text)}, new" for one in self._unwritten]

    @property
    def to_keep(self) -> Sequence[KeptDraft]:
        """Drafts to save if memtui ends without asking."""
        written = super().to_keep
        drafts = [
            _as_kept(place[1].binding_key, one.began_from, one.text)
            for place, one in self._drafts.items()
        ]
        newer = {_name_of(one) for one in written}  # an open editor may have resumed a draft
        drafts = [one for one in drafts if _name_of(one) not in newer]
        begun = self._goes_on if any(one.new for one in written) else None
        unwritten = [kept_new(one) for one in self._unwritten if one is not begun]
        return [*drafts, *unwritten, *written]

    def _draft_of(self, record: Record) -> tuple[str, RecordName]:
        return record.scope.company_id, self.name_of(record)

    def _draft(self, record: Record) -> Draft | None:
        """Return the draft of a record, including one saved when memtui ended."""
        place = self._draft_of(record)
        if place in self._drafts:  # one at a time: a saved draft is offered after this one
            return self._drafts[place]
        for folder, one in list(self.state.left.items()):
            if one.began_from is not None and _name_of(one) == place:
                self._drafts[place] = Draft(one.text, one.began_from)
                del self.state.left[folder]
                break
        return self._drafts.get(place)

    def name_of(self, record: Record) -> RecordName:
        """Return the name of a record, unique among all bindings."""
        return RecordName(self.binding_of(record), record_key(record))

    async def records_of(self, rows: Sequence[R]) -> list[Record]:
        """Return the records of rows, with the revisions that changes are based on."""
        raise NotImplementedError

    def binding_of(self, record: Record | None) -> str:
        """Return the key of a record's binding; None: the binding of new records."""
        raise NotImplementedError

    def changed(self, now: Mapping[RecordName, Record]) -> None:
        """Show changed records; each key is the record's name before the change."""
        raise NotImplementedError

    def lists(self, name: RecordName) -> bool:
        """Return whether the list has a record, so that `changed` updates it in place."""
        del name
        return False

    def gone(self, names: set[RecordName], ghosts: set[RecordName]) -> None:
        """Remove forgotten records from the list; ghosts stay, shown as ghosts."""
        raise NotImplementedError

    def changed_outside(self) -> None:
        """React to a change made outside memtui."""
        raise NotImplementedError

    def reorder(self) -> None:
        """Sort the loaded rows again."""
        raise NotImplementedError

    def count_reads(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Update `stats` and `marks` for these record ids, by binding key; not an operation."""
        session, asked_in = self.session, _asked_of(self.state)

        async def count() -> tuple[dict[RecordName, RetrievalCount], dict[RecordName, RiskMark]]:
            found: dict[RecordName, RetrievalCount] = {}
            for key, names in ids.items():
                counts = await session.service.log.retrieval_stats(session.caller, key, names)
                found |= {RecordName(key, name): one for name, one in counts.items()}
            return found, await self.known_marks(session, ids)

        def show(
            found: tuple[dict[RecordName, RetrievalCount], dict[RecordName, RiskMark]],
        ) -> None:
            if asked_in == _asked_of(self.state):
                self.stats.update(found[0])
                self.marks.update(found[1])
                self.reorder()

        self._counting.every(count, show, self.fail)

    def follow(self, keys: Iterable[str]) -> None:
        """Call `changed_outside` for each change of these bindings, and of no others.

        Nothing is watched while the past is shown.
        """
        session = self.session
        is_past = session.caller.as_of is not None
        wanted = {(session.caller.company_id, key) for key in keys if not is_past}
        for place, work in self._following.items():
            if place not in wanted:
                work.forget()
        for place in wanted:
            key = place[1]
            work = self._following.setdefault(place, Background(self, f"records-watch-{key}"))
            if not work.busy:
                work.latest(partial(self._wait_for, session, key), lambda _: None, self.fail)

    async def _wait_for(self, session: ServiceSession, key: str) -> None:
        with suppress(Unsupported):
            async for _ in session.service.watch(session.caller, key):
                self.changed_outside()

    # Enabled actions.

    def binding_at(self, row: R | None) -> BindingView | None:
        """Return the binding of a row; None if it is not known."""
        raise NotImplementedError

    def missing_for(self, row: R | None) -> dict[Need, str]:
        """Return the needs that a row or its binding does not meet."""
        missing = super().missing_for(row)
        binding = self.binding_at(row)
        if isinstance(row, Record) and row.read_only:
            missing[Need.MEMORY] = ""
        return missing | refused_by(binding)

    def draw_keys(self) -> None:
        """Update the enabled keys and the count in the label of forget."""
        super().draw_keys()
        chosen = len(self.rows_list.chosen)
        label = f"forget {fmt.count(chosen)}…" if chosen > 1 else "forget…"
        self.labels = {**self.labels, f"{self.MODE}.forget": label}

    def _need(self, capability: str, cannot: str, rows: Iterable[R]) -> None:
        for binding in map(self.binding_at, rows):
            if binding is not None and not getattr(binding.capabilities, capability):
                raise Unsupported(f"The provider of {binding.key} {cannot}.")

    @property
    def _chosen(self) -> list[R]:
        """The marked rows, else the row under the cursor; raises `NotFound` if there is none."""
        return self.rows_list.chosen or [self.row]

    async def _changeable(self, rows: Sequence[R]) -> list[Record]:
        """Return the changeable records of rows; raises `Denied` if all are read-only."""
        found = await self.records_of(rows)
        records = [record for record in found if not record.read_only]
        if not records:
            raise Denied(Need.MEMORY.value)
        if files := len(found) - len(records):
            self.toast(
                f"{fmt.counted(files, 'file')} of projects' own stay; memtui only reads them."
            )
        return records

    def _not_shown(self) -> str:
        """Return a sentence with the number of marked rows that the filter hides; "" for none."""
        hidden = self.rows_list.selection.hidden
        return f"{fmt.count(hidden)} of them the filter does not show." if hidden else ""

    def where(self, records: Iterable[Record | None]) -> str:
        """Name the bindings of records, such as `vault·default`; None stands for a new record."""
        keys = dict.fromkeys(map(self.binding_of, records))
        providers = {one.key: f"{one.provider_key}·" for one in self.state.bindings}
        return " and ".join(f"{providers.get(key, '')}{key}" for key in keys)

    def fail(self, error: MemtuiError) -> None:
        """Show an error; a conflict also reloads the list."""
        if isinstance(error, Conflict):
            self.load()
            self.toast(
                f"{error} The list shows it as it is now; look again and repeat.", severity="error"
            )
        else:
            super().fail(error)

    # Changing a record.

    async def action_edit(self) -> None:
        """Edit the text in place."""
        [record] = await self.records_of([self.row])
        draft = self._draft(record)
        if draft is None:
            await self._edit_in_place(record, None, record.caution or "")
            return
        holds = "still holds the text it had."
        if draft.began_from.text != record.text:
            holds = "holds another text by now; saving shows you both."
        note = f"This is your draft; the record {holds}"
        await self._edit_in_place(_as_begun(record, draft), draft.text, note)

    async def _edit_in_place(self, record: Record, draft: str | None, note: str) -> None:
        """Edit a text in place; raises `Invalid` for a text that a text area would alter."""
        if not keeps(record.text) or (draft is not None and not keeps(draft)):
            raise Invalid(
                "This text is too long for editing in place, or has line ends that it would "
                "change; E opens it in your editor."
            )
        title = f"Edit {fmt.record_name(record)[:80]}"
        one_line = record.kind == "fact"
        edit = EditText(title, record.text, draft, note, one_line=one_line)
        text = await self.ask_text(edit, partial(_as_kept, self.binding_of(record), record))
        if text is None:
            self._drafts.pop(self._draft_of(record), None)
        else:
            await self._correct_text(record, text)

    async def action_edit_external(self) -> None:
        """Edit the text in the person's own editor."""
        [record] = await self.records_of([self.row])
        text = record.text
        if record.caution:
            self.toast(record.caution, severity="warning")
        if draft := self._draft(record):
            record, text = _as_begun(record, draft), draft.text
        with edited_outside(self, text, (self.binding_of(record), record_key(record))) as new:
            if new == record.text:
                self._drafts.pop(self._draft_of(record), None)
                self.toast("Unchanged, nothing was written.")
            else:
                await self._correct_text(record, new)

    async def _correct_text(self, record: Record, text: str) -> None:
        draft, place = Draft(text, record), self._draft_of(record)
        self._drafts[place] = draft
        try:
            answer = await self.correct(record, text=text)
        except Conflict as error:
            theirs = error.current or await self._as_it_is(record)
            if theirs is None or theirs.revision != record.revision or theirs.text != record.text:
                await self._resolve(record, theirs, text)
            else:  # a name that is taken, say, and no newer version
                self._tell_kept(record, f"{error} ", severity="error")
        except MemtuiError as error:
            self._tell_kept(record, f"{error} ", severity="error")
        else:
            if self._drafts.get(place) is draft:  # else it was edited again meanwhile
                del self._drafts[place]
            self.toast(said("Changed. u undoes it.", answer))

    def _tell_kept(
        self,
        record: Record,
        why: str = "",
        severity: Literal["information", "error"] = "information",
    ) -> None:
        name = fmt.quoted(fmt.record_name(record))
        self.toast(f"{why}Your text for {name} is kept; e on it takes it up.", severity=severity)

    async def _as_it_is(self, record: Record, binding_key: str = "") -> Record | None:
        """Read a record again from its provider; None: it is gone."""
        read = partial(
            self.service.get,
            self.caller,
            record.handle,
            record.scope,
            binding_key=binding_key or self.binding_of(record),
        )
        try:
            return (await self.wait("reading the record again", read)).record
        except NotFound:
            return None

    async def _resolve(self, record: Record, theirs: Record | None, mine: str) -> None:
        if theirs is None:
            await self._resolve_gone(record, mine)
            return
        # The listed record may have fields that the provider does not return, such as its binding.
        theirs = record.model_copy(update=dict(theirs))
        choice = await self.ask(ConflictScreen(record, theirs, mine))
        if choice is Resolve.MINE:
            await self._correct_text(theirs, mine)
            return
        self.changed({self.name_of(record): theirs})
        if choice is Resolve.THEIRS:
            self._drafts.pop(self._draft_of(record), None)
        elif choice is Resolve.AGAIN:
            note = "Saving puts this on top of the record as it is now."
            await self._edit_in_place(theirs, mine, note)
        else:
            self._tell_kept(record)

    async def _resolve_gone(self, record: Record, mine: str) -> None:
        """Ask what becomes of an edited text whose record is gone, so that no row is left."""
        binding_key = self.binding_of(record)
        new = _as_new(record, mine)
        choice = await self.ask(ConflictScreen(record, None, mine))
        if choice is Resolve.AGAIN:
            note = "The record is gone; saving asks again what becomes of this."
            await self._edit_in_place(record, mine, note)
            return
        self._drafts.pop(self._draft_of(record), None)
        self.gone({self.name_of(record)}, set())
        if choice is Resolve.MINE:
            await self.add(new, binding_key, record.source)
        elif choice is not Resolve.THEIRS:
            self._unwritten.append(new)
            self.toast("Your text is kept; a takes it up again.")

    async def correct(self, record: Record, **fields: Any) -> MutationAnswer:
        """Change some fields of a record and show the result; raises the service's error."""
        request = CorrectRequest(
            scope=place_of(record),
            handle=record.handle,
            binding_key=self.binding_of(record),
            revision=record.revision,
            **fields,
        )
        answer = await self.change(partial(self.service.correct, self.caller, request))
        self.own(answer)
        for now in answer.records:
            self.changed({self.name_of(record): now})
        return answer

    async def action_pin(self) -> None:
        """Pin what is marked, or unpin it where all of it is pinned; else the record."""
        chosen = self._chosen
        self._need("pin", f"cannot pin a {self.NOUN}", chosen)
        records = await self._changeable(chosen)
        pinned = not all(one.pinned for one in records)
        verb = "pin" if pinned else "unpin"
        if len(records) > 1:
            number = fmt.counted(len(records), self.NOUN)
            question = f"{verb.capitalize()} {number} of {self.where(records)}?"
            asked = Confirm(question, verb=verb, detail=self._not_shown(), otherwise="go back")
            if not await self.ask(asked):
                return
        if answers := await self._change_all(records, pinned=pinned):
            of = f" {fmt.counted(len(answers), self.NOUN)}" if len(answers) > 1 else ""
            self.toast(said(f"{verb.capitalize()}ned{of}. u undoes it.", *answers))

    async def action_expire(self) -> None:
        """Set or remove the expiry of the marked records, else of the record."""
        chosen = self._chosen
        self._need("expiry", "keeps no expiry", chosen)
        records = await self._changeable(chosen)
        several = fmt.counted(len(records), self.NOUN) if len(records) > 1 else ""
        expiries = {one.expires_at for one in records}
        of_all = next(iter(expiries)) if len(expiries) == 1 else None
        title = f"When do {several} expire? {self._not_shown()}" if several else "Expires when?"
        prompt = Prompt(
            title.rstrip(),
            value=self.state.written_expiry(of_all),
            placeholder="30d, tomorrow, 2026-12-31",
            hint="enter set   empty: never   esc go back",
            check=self.state.expiry,
        )
        text = await self.ask(prompt)
        if text is None:
            return
        moment = self.state.expiry(text)
        fields = {"expires_at": moment} if moment is not None else {"never_expires": True}
        if answers := await self._change_all(records, **fields):
            how = "expire{} as you said" if moment is not None else "never expire{}"
            several = fmt.counted(len(answers), self.NOUN) if len(answers) > 1 else ""
            expire = f"{several} {how.format('')}" if several else f"It {how.format('s')}"
            self.toast(said(f"{expire}. u undoes it.", *answers))

    async def _change_all(self, records: Sequence[Record], **fields: Any) -> list[MutationAnswer]:
        """Change fields that do not depend on the text of records; one `u` undoes all."""
        from memtui.service.usecases import changing

        session, groups = self.session, self._by_binding(records)
        found = await self.change(
            partial(changing.change, session.service, session.caller, groups, **fields)
        )
        if found.answers:
            self.own(*found.answers)
        for record, answer in found.done:
            self.changed({self.name_of(record): now for now in answer.records})
        if not found.done and not found.failed:
            self.toast("That is so already, nothing was changed.")
        self.fail_each([error for _, error in found.failed])
        return found.answers

    async def action_summary(self) -> None:
        """Set the summary by which the record is searched and shown, or take it away."""
        self._need("summaries", "keeps no summaries", [self.row])
        [record] = await self.records_of([self.row])
        prompt = Prompt(
            "Summary by which it is searched and shown",
            value=record.summary or "",
            hint="enter set   empty: none   esc go back",
        )
        text = await self.ask(prompt)
        if text is None:
            return
        if text.strip() == (record.summary or ""):
            self.toast("Its summary is as it was, nothing was changed.")
            return
        answer = await self.correct(record, summary=text.strip())
        notice = "The summary is set." if text.strip() else "It has no summary any more."
        self.toast(said(f"{notice} u undoes it.", answer))

    async def taken_up(self) -> NewRecord | None:
        """Return an unwritten text of this company to begin a new record with; None: there is none.

        This includes a draft whose record is gone: no row is left to resume it from. The text
        stays in `_unwritten` until `let_go`.
        """
        company = self.session.caller.company_id
        own = (one for one in reversed(self._unwritten) if one.scope.company_id == company)
        self._goes_on = next(own, None)
        if self._goes_on is None and (found := await self._found_gone(company)) is not None:
            self._unwritten.append(found)
            self._goes_on = found
        return self._goes_on

    async def _found_gone(self, company: str) -> NewRecord | None:
        """Return a draft whose record is gone by now, else one saved when memtui ended."""
        for place, draft in list(self._drafts.items()):
            name = place[1]
            if place[0] != company or self.lists(name):
                continue
            if await self._as_it_is(draft.began_from, name.binding_key) is None:
                del self._drafts[place]
                return _as_new(draft.began_from, draft.text)
        return await self._left(company)

    async def _left(self, company: str) -> NewRecord | None:
        """Return a draft saved when memtui ended: of a new record, or of one that is gone."""
        for folder, one in list(self.state.left.items()):
            new, began = one.new, one.began_from
            if began is not None and began.scope.company_id == company:
                is_listed = self.lists(RecordName(one.binding_key, record_key(began)))
                if not is_listed and await self._as_it_is(began, one.binding_key) is None:
                    new = _as_new(began, one.text)
            if new is not None and new.scope.company_id == company:
                self.state.left.pop(folder, None)
                return new
        return None

    def let_go(self, new: NewRecord | None) -> None:
        """Drop an unwritten text that was written by now or discarded."""
        if new is not None:
            self._unwritten.remove(new)

    async def add(
        self, new: NewRecord, binding_key: str = "", source: SourceRef | None = None
    ) -> None:
        """Write a new record, as a manual note if no source is given; a failure keeps its text."""
        manual = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=new.scope.company_id)
        request = WriteRequest.like(
            new,
            source=source or manual,
            binding_key=binding_key or self.binding_of(None) or None,
            content=new.text,
        )
        self._unwritten.append(new)
        try:
            answer = await self.change(
                partial(self.service.write, self.caller, request, tell_similar=True)
            )
        except MemtuiError as error:
            self.toast(f"{error} Your text is kept; a takes it up again.", severity="error")
            return
        self.let_go(new)
        self.own(answer)
        if answer.records:
            there = {RecordName(answer.binding_key, record_key(one)): one for one in answer.records}
            self.changed(there)
            self.select(record_key(answer.records[0]))
        if answer.similar:
            instead = await self.ask(_same_or_near(answer))
            if instead:
                await self._change_instead(answer, new.text)
                return
        self.toast(said("Written. u undoes it.", answer))

    async def _change_instead(self, written: MutationAnswer, text: str) -> None:
        """Correct the similar record to the new text, and undo the write of the new record."""
        session, record = self.session, written.similar[0].record
        request = CorrectRequest(
            scope=place_of(record),
            handle=record.handle,
            binding_key=written.binding_key,
            revision=record.revision,
            text=text,
        )
        answer = await self.change(lambda: session.service.correct(session.caller, request))
        undone = await self.take_back([written.operation_id])
        if undone.failed is not None:
            raise undone.failed
        self.own(*undone.answers, answer)
        self._show_reversed(undone.answers)
        for now in answer.records:
            self.changed({RecordName(answer.binding_key, record_key(record)): now})
            self.select(record_key(now))
        self.toast("Changed that one, and the new one is gone. u takes both back.")

    # Forgetting.

    async def action_forget(self) -> None:
        """Forget what is marked, else the row under the cursor, after a yes."""
        records = await self._changeable(self._chosen)
        question = f"Forget {fmt.counted(len(records), 'record')} from {self.where(records)}?"
        cautions = dict.fromkeys(one.caution for one in records)
        breaks: str | None = ""
        while breaks is not None:
            asked = Confirm(
                question,
                verb="forget",
                detail="\n".join(
                    filter(None, [*cautions, self._reads_of(records), self._not_shown(), breaks])
                ),
                aside="what breaks",
                aside_key="c",
            )
            yes = await self.ask(asked)
            if yes:
                await self.forget_now(records)
            breaks = await self.show_impact(records) if yes is False else None

    async def show_impact(
        self, records: Sequence[Record], over: ServiceScreen | None = None
    ) -> str | None:
        """Show which answers forgetting would change, over this screen or `over`.

        Returns the outcome in words, empty if it was not determined; None if the person went to
        another screen from there.
        """
        from memtui.screens.impact import ImpactScreen

        handles: dict[str, list[RecordHandle]] = defaultdict(list)
        for record in records:
            handles[self.binding_of(record)].append(record.handle)
        what = fmt.record_name(records[0]) if len(records) == 1 else ""
        shown = ImpactScreen(self.state, handles, what or fmt.counted(len(records), "record"))
        return None if await (over or self).visit(shown) else shown.outcome

    def _reads_of(self, records: Sequence[Record]) -> str:
        never = sum(self.name_of(record) not in self.stats for record in records)
        if len(records) == 1:
            counted = self.stats.get(self.name_of(records[0]))
            read = fmt.read_words(counted, self.state.clock()) if counted else "It was never read."
            goes_with = str(records[0].metadata.get("goes_with", ""))
            addition = f"\n{goes_with[:100]} go with it." if goes_with else ""
            return f"“{fmt.record_name(records[0])[:100]}”{addition}\n{read}"
        if never == len(records):
            return "None of them was ever read."
        return f"{fmt.count(never)} of them {'was' if never == 1 else 'were'} never read."

    async def forget_now(
        self, records: Sequence[Record], saved: str = "", staying: Sequence[Record] = ()
    ) -> None:
        """Forget confirmed records.

        `saved` is the gain shown if no record was refused: `, saved 61 tokens`; `staying` are the
        records that stay in their place.
        """
        answers = await self.forget_quietly(records, staying=staying)
        gone = sum(len(answer.handles) - len(answer.ghosts) for answer in answers)
        saved = "" if any(answer.refused for answer in answers) else saved
        self.toast(said(f"Forgot {fmt.count(gone)}{saved}. u brings them back.", *answers))

    async def merge(self, records: Sequence[Record]) -> bool:
        """Merge facts of one binding and owner, after asking which wording stays.

        False: the person went back, or the merge waits for review.
        """
        from memtui.service.usecases import merging

        if len({(self.binding_of(one), owner_scope(one.scope)) for one in records}) > 1:
            raise Invalid(merging.SEVERAL_PLACES)
        ordered, now = sorted(records, key=lambda one: not one.pinned), self.state.clock()

        def described(one: Record) -> str:
            return f"{'⚑ ' * one.pinned}{fmt.ago(one.updated_at or one.created_at, now)}"

        chooser: Choose[str] = Choose(
            f"Merge {fmt.count(len(ordered))} facts into one: which wording stays?",
            [Choice(one.text, one.text, described(one)) for one in ordered],
            placeholder="type to narrow, or a new wording",
            offer=lambda text: [Choice(text, text, "new")],
        )
        text = await self.ask(chooser)
        if text is None:
            return False
        stays = next((one for one in ordered if one.text == text), ordered[0])
        merged = await self.change(
            partial(
                merging.merge, self.service, self.caller, stays, ordered,
                binding_key=self.binding_of(stays), text=text,
            )
        )  # fmt: skip
        forgot = merged.forgot
        if forgot.pending:
            self.toast(said("", forgot))
            return False
        if self.is_attached:
            self.own(*merged.answers)
            asked = names_in(forgot, (*forgot.handles, *forgot.missing))
            self.gone(asked, names_in(forgot, forgot.ghosts))
            for one in merged.change.records if merged.change else ():
                self.changed({self.name_of(stays): one})
        count = fmt.counted(len(ordered), "fact")
        self.toast(said(f"Made one of {count}. u undoes it.", *merged.answers))
        return True

    async def forget_quietly(
        self,
        records: Sequence[Record],
        *,
        staying: Sequence[Record] = (),
    ) -> Answers:
        """Forget records of several bindings at once.

        If a binding fails, `u` still brings back what the others forgot.
        """
        from memtui.service.usecases import forgetting

        groups, stay = self._by_binding(records), self._by_binding(staying)
        gone = await self.change(
            partial(forgetting.forget, self.service, self.caller, groups, stay)
        )
        if self.is_attached:
            self.own(*gone.answers)
            ghosts, asked = set(), set()
            for answer in gone.answers:
                ghosts |= names_in(answer, answer.ghosts)
                asked |= names_in(answer, (*answer.handles, *answer.missing))
            self.gone(asked, ghosts)
        if gone.failed:
            failures = " ".join(one.sentence for one in gone.failed)
            kept = f"{failures} What the other bindings forgot is gone; u brings it back."
            is_conflict = any(one.error_kind == "conflict" for one in gone.failed)
            raise (Conflict if is_conflict else Unavailable)(kept)
        return gone.answers

    def _by_binding(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        groups: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            groups[self.binding_of(record)].append(record)
        return groups

    async def action_history(self) -> None:
        """Show every version of the record."""
        from memtui.screens.timeline import timeline_of

        [record] = await self.records_of([self.row])
        await self.visit(timeline_of(self.state, self.binding_of(record), record))

    async def action_erase(self) -> None:
        """Erase the record for good, after a yes to what that would take."""
        from memtui.service.home.survey import PurgeRequest

        purging, caller = self.service.purging, self.caller
        [record] = await self.records_of([self.row])
        request = PurgeRequest(
            record_id=record_key(record), binding_key=self.binding_of(record), forget=True
        )
        plan = await self.wait("looking for every copy", partial(purging.plan, caller, request))
        copies = [f"{one.place}: {fmt.count(one.count)} {one.what}" for one in plan.copies]
        lead = "The record and memtui's copies go; u cannot bring them back."
        question = f"Erase “{fmt.record_name(record)[:60]}” for good?"
        detail = "\n".join([lead, *copies])
        if not await self.ask(Confirm(question, verb="erase", detail=detail, final=True)):
            return
        done = await self.change(lambda: purging.apply(caller, request))
        self._drafts.pop(self._draft_of(record), None)
        self.gone({self.name_of(record)}, set())
        if done.left:
            self.toast(f"Erased, but a text is still in {done.left[0].place}.", severity="error")
        elif done.found is not None:
            looked = fmt.counted(done.found.files, "file")
            self.toast(f"Erased for good. Looked through {looked}: nothing is left.")

    # Undo.

    def own(self, *answers: MutationAnswer) -> None:
        """Note the last change of this screen: `u` undoes it without asking."""
        self._last = tuple(one.operation_id for one in answers)

    async def action_undo(self) -> None:
        """Undo the last change; one that was not made here only after a yes."""
        if (found := await self.last_change()) is None:
            return
        newest = found.operation.operation_id
        undone = [newest]
        if newest in self._last:
            # Operations made in parallel end in any order, so any one may be the newest.
            gone = {answer.undoes for done in self.session.undone for answer in done}
            undone += [one for one in reversed(self._last) if one != newest and one not in gone]
        elif not await self.ask(self.undo_question(found)):
            return
        answers = await self.undo_all(undone)
        self._show_reversed(answers)
        self._last = ()
        self.toast(said(f"Undone: {await self.came_back(answers)}. U redoes it.", *answers))

    async def action_redo(self) -> None:
        """Redo what was undone last, also on another screen."""
        undone, answers = await self.redo_all()
        self._show_reversed(answers)
        # Redo runs in reverse, so the operation undone first is the newest again.
        self._last = tuple(answer.undoes for answer in reversed(undone) if answer.undoes)
        self.toast(said(f"Redone: {await self.came_back(answers)}. u undoes it.", *answers))

    def stopped_halfway(self) -> None:
        """Reload, and make `u` ask before it undoes."""
        self._last = ()
        self.load()

    def _show_reversed(self, answers: Answers) -> None:
        """Show the records as they are after an undo or redo.

        If all are listed they keep their places, as after an edit; else the list is read again.
        """
        named: set[RecordName] = set()
        now: dict[RecordName, Record] = {}
        for answer in answers:
            named |= names_in(answer, answer.handles)
            now |= {RecordName(answer.binding_key, record_key(one)): one for one in answer.records}
        self.ghosts -= named
        if now.keys() == named and all(map(self.lists, named)):
            self.changed(now)
        else:
            self.load()


def _same_or_near(written: MutationAnswer) -> Choose[bool]:
    """Return the question whether to change the similar record instead of adding one."""
    one = written.similar[0]
    how = "As good as there already" if one.is_same else "Close to what is there"
    return Choose(
        f"{how} ({one.likeness:.2f}): “{fmt.record_name(one.record)[:_SIMILAR_CHARS]}”",
        [
            Choice(False, "keep both"),  # noqa: FBT003
            Choice(True, "change that one to your words, and remove the new one"),  # noqa: FBT003
        ],
    )


def _as_new(record: Record, text: str) -> NewRecord:
    """Return a new record with this text and the other fields of a record that is gone."""
    return NewRecord(text, record.scope, record.kind, record.topic, record.tags, record.summary)


def _as_kept(binding_key: str, record: Record, text: str) -> KeptDraft:
    """Return the draft to save for a changed text of a record."""
    from memtui.screens.drafts import KeptDraft

    return KeptDraft(text=text, binding_key=binding_key, began_from=Record.like(record))


def _name_of(draft: KeptDraft) -> tuple[str, RecordName] | None:
    """Return company id and name of a draft's record; None for a new record."""
    if (began := draft.began_from) is None:
        return None
    return began.scope.company_id, RecordName(draft.binding_key, record_key(began))


def kept_new(new: NewRecord) -> KeptDraft:
    """Return the draft to save for a new record."""
    from memtui.screens.drafts import KeptDraft

    return KeptDraft(text=new.text, new=new)


def _as_begun(record: Record, draft: Draft) -> Record:
    """Return a record with the text and revision that its draft began from, if they differ."""
    begun = draft.began_from
    if begun.text == record.text:
        return record
    return record.model_copy(update={"text": begun.text, "revision": begun.revision})


def _asked_of(state: AppState) -> tuple[ServiceSession | None, str | None]:
    """Return the session and the active binding that `stats` and `ghosts` belong to."""
    return state.session, state.resolution.binding_key if state.resolution else None


def record_key(record: Record) -> str:
    """Return the provider's id of a record, unique only within its binding."""
    return record.handle.provider_record_id


def names_in(answer: MutationAnswer, handles: Iterable[RecordHandle]) -> set[RecordName]:
    """Return the names of handles in an answer's binding."""
    return {RecordName(answer.binding_key, one.provider_record_id) for one in handles}


def place_of(record: Record) -> Scope:
    """Return a record's scope without the issue and run that it came from."""
    return record.scope.model_copy(update={"issue_id": None, "run_id": None})


_SIMILAR_CHARS = 60


def said(done: str, *answers: MutationAnswer) -> str:
    """Return the notice: what was done, with caveats. Of a pending change: that it waits."""
    if waiting := [answer.pending.sentence for answer in answers if answer.pending]:
        return waiting[0]
    words = [done]
    redacted = dict.fromkeys(label for answer in answers for label in answer.redacted)
    if redacted:
        words.append(f"Taken out before it was stored: {', '.join(redacted)}.")
    for answer in answers:
        words += (one for one in (answer.loss, answer.no_search) if one and one not in words)
    if ghosts := sum(len(answer.ghosts) for answer in answers):
        words.append(
            f"The provider still returns {fmt.counted(ghosts, 'record')}: shown as ghosts."
        )
    if refused := [why for answer in answers for why in answer.refused.values()]:
        more = f" {fmt.counted(len(refused) - 1, 'more record')} stayed too." * (len(refused) > 1)
        words.append(f"{refused[0]}{more}")
    if missing := sum(len(answer.missing) for answer in answers):
        words.append(f"{fmt.counted(missing, 'record')} had gone before.")
    if linked := sum(len(answer.linked) for answer in answers):
        words.append(f"Another id now: {fmt.counted(linked, 'record')}.")
    return " ".join(words)
