"""The review of held writes, each shown as the difference that it would make."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.content import Content

from memtui.contract import Invalid, MemtuiError, NotFound, OperationType, Proposal, Record
from memtui.presenters import format as fmt
from memtui.presenters import pending
from memtui.record_changes import changed_fields
from memtui.screens.dialogs import Choice, Choose, Confirm, EditText, Prompt
from memtui.screens.following import News, tells_of_review
from memtui.screens.modal import ModalListScreen, Reasons
from memtui.screens.open_source import edited_outside, open_source
from memtui.screens.state import AppState, ConfigurationChanged, GoTo
from memtui.service import ReviewRule, RuleAction, RuleTest
from memtui.service.review.queue import PendingDetails, PendingWrite, passed_over
from memtui.service.usecases.deciding import Decided, decide
from memtui.widgets.background import Background
from memtui.widgets.columns import Column
from memtui.widgets.detail_lines import MAX_CHARACTERS, Line, diff_lines, heading, joined, labelled
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines
from memtui.widgets.editor import keeps
from memtui.widgets.virtual_list import Highlighted, SelectionChanged

if TYPE_CHECKING:
    from memtui.screens.drafts import KeptDraft
    from memtui.service import BindingView

_ABOUT = "No agent gets any of it until a person decides."
_DRAFT = "This is your draft, which was not accepted."
_NO_RULE = "A rule is about what agents write; this is a change of settings."
_ELSEWHERE = "It waits in another program: accept it and edit the memory then, or refuse it."
_UNCHANGED = "Unchanged; a accepts it as it is."
_GONE = f"{pending.GONE} with d."
_MOST_LINES = 2_000
_LONGER = f"Only its first {MAX_CHARACTERS:,} characters are here; memtui review show prints all."
_WARNING = frozenset({"not yours", "unfit", "unknown"})
_TESTS = (RuleTest.AGENT, RuleTest.DOOR, RuleTest.TEXT, RuleTest.SUBJECT)


class ReviewScreen(ModalListScreen[PendingWrite]):
    """Lists the held writes, the oldest first, to decide on them."""

    ACTION_GROUP = "review"
    NOUN = "write"
    READING = "Reading what waits …"
    NOTHING = ("Nothing waits for review.", "H chooses which writes of agents are held.")

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._details: PendingDetails | None = None
        self._asked = ""
        """Id of the write whose details were read last; each read is logged, not repeated."""
        self._unread: dict[str, str] = {}
        """The bindings whose program was not asked what waits there, with the reason."""
        self._problem = ""
        """Why the details could not be read."""
        self._looking = Background(self, "review-details")
        self._turn = asyncio.Lock()

    def columns(self) -> list[Column[PendingWrite]]:
        """Return the columns of the list."""
        return [
            Column("age", "waits", self._age, 6, "right", keep=80, tone="muted"),
            Column("by", "by", lambda one: one.principal, 12, flexible=True, keep=90, share=0.15),
            Column("does", "asks to", lambda one: one.operation_type.value, 7, keep=85, share=0.05),
            Column("of", "of", pending.owners_of, 14, flexible=True, keep=60, share=0.15),
            Column("why", "rule", lambda one: ", ".join(one.reasons), 12, flexible=True, keep=70,
                   share=0.2),
            Column("what", "what", pending.briefly, 16, flexible=True, keep=100, share=0.5),
        ]  # fmt: skip

    def key(self, row: PendingWrite) -> str:
        """Return the id of a held write."""
        return row.pending_id

    def _age(self, one: PendingWrite) -> str:
        return fmt.ago(one.pending_since, self.state.true_clock())

    @property
    def _marked(self) -> list[PendingWrite]:
        """The writes to decide on: the marked ones, else the row's."""
        return list(self.rows_list.selection.marks.values()) or [self.row]

    def draw_head(self) -> Content:
        """Return the number of pending writes, with a sentence that explains them."""
        name = display(self.session.company.name, limit=120, style=STRONG)
        marked = len(self.rows_list.selection.marks)
        chosen = display(f"{fmt.count(marked)} marked" if marked else "", style=WARN)
        head = line(line("held for review in", name), self.number, chosen, gap="   ")
        unread = [
            display(f"{key} was not asked what waits there: {why}", limit=300, style=WARN)
            for key, why in self._unread.items()
        ]
        return lines([head, display(_ABOUT, style=DIM), *unread])

    def detail(self, row: PendingWrite, width: int) -> Content:
        """Return the details of a held write, with the difference that it would make."""
        found = self._shown_of(row)
        blocks = [about(row, self.state)]
        if found is not None:
            blocks = [difference(found, self.state.zone), *blocks, *beside(found)]
        else:
            wait = self._problem or "Reading what is there now …"
            blocks.insert(0, [display(row.text, limit=4_000, keep_newlines=True), Content(""),
                              display(wait, limit=600, style=DIM)])  # fmt: skip
        return joined(blocks, width)

    def reasons(self) -> Reasons:
        """Return why the write cannot be decided on."""
        if (one := self.current) is None:
            return ()
        is_alone = len(self.rows_list.selection.marks) < 2
        shown = self._shown_of(one)
        gone = shown is not None and shown.gone
        return (
            ("accept fix fix_external rule", is_alone and one.kept, one.kept),
            ("refuse", is_alone and one.kept and not one.is_own, one.kept),
            ("rule", one.operation_type is OperationType.CONFIGURE, _NO_RULE),
            ("fix fix_external rule", isinstance(one.request, Proposal), _ELSEWHERE),
            ("accept", is_alone and one.unfit, one.unfit),
            ("fix fix_external", not one.text, "This changes no text; a accepts it, d refuses it."),
            ("fix fix_external", gone, _GONE),
            ("accept", gone and is_alone, _GONE),
        )

    def labels(self) -> dict[str, str]:
        """Return labels with the number of marked writes."""
        marked = len(self.rows_list.selection.marks)
        if not marked:
            return {}
        return {f"review.{verb}": f"{verb} {fmt.count(marked)}" for verb in ("accept", "refuse")}

    def happened(self, news: News) -> None:
        """Read the queue again if a write was held or decided on, or memories changed."""
        if news.changes(self) or any(map(tells_of_review, news.excluding(self))):
            self.load()

    def load(self) -> None:
        """Read the queue and the details again."""
        self._details, self._asked = None, ""
        super().load()

    async def read(self) -> list[PendingWrite]:
        """Read the held writes."""
        found = await self.service.review.queue(self.caller)
        self._unread = found.unread
        return list(found.writes)

    def fill(self, found: Iterable[PendingWrite], *notice: str) -> None:
        """Show the held writes, and read the details of the row under the cursor."""
        super().fill(found, *notice)
        self._look()

    @on(Highlighted)
    def _look(self) -> None:
        """Read the details of the row under the cursor, unless they were read."""
        one = self.rows_list.current
        if one is None or one.pending_id == self._asked:
            return
        session, self._problem, self._asked = self.session, "", one.pending_id

        def show(found: PendingDetails) -> None:
            self._details = found
            self.draw()

        def failed(error: MemtuiError) -> None:
            self._problem = f"✗ {error}"
            self.draw()

        work = partial(session.service.review.show, session.caller, one.pending_id)
        self._looking.latest(work, show, failed)

    @on(SelectionChanged)
    def _turned(self) -> None:
        self.draw()

    def action_mark_all(self) -> None:
        """Mark all held writes."""
        self.rows_list.action_mark_all()

    async def _chosen(self) -> list[PendingWrite]:
        """Return the marked writes, else the row's, or all of its hold, as the person says."""
        row, is_marked = self.row, bool(self.rows_list.selection.marks)
        waiting = (one for _, one in self.rows.held())
        hold = [one for one in waiting if row.hold_id and one.hold_id == row.hold_id]
        if is_marked or len(hold) < 2:
            return self._marked
        choices = [
            Choice(hold, f"All {fmt.count(len(hold))} that were held with it"),
            Choice([row], "Only this one"),
        ]
        why = f"It is one of {fmt.count(len(hold))}: {', '.join(row.reasons)}"
        return await self.ask(Choose(why, choices)) or []

    async def action_accept(self) -> None:
        """Accept the write; several, or one whose record has changed, after a yes."""
        chosen = await self._chosen()
        if len(chosen) > 1:
            asked = Confirm(
                f"Accept {_counted(chosen)}?",
                verb="accept",
                detail="A write whose record has changed since then stays in the queue.",
                otherwise="go back",
            )
            if await self.ask(asked):
                await self._decide(chosen, RuleAction.ACCEPT)
        elif chosen:
            await self._accept_one(chosen[0], None)

    async def _accept_one(
        self, one: PendingWrite, text: str | None, always: RuleTest | None = None
    ) -> bool:
        """Accept a write, after a yes if its record has changed; return whether it was accepted."""
        if (found := self._shown_of(one)) is None:  # its details are still being read
            await self.wait("reading what it would change", self._settled)
            found = self._shown_of(one)
        if found is not None and found.changed:
            asked = Confirm(
                f"What {one.principal} would change has changed since. Accept it all the same?",
                verb="accept",
                detail="\n".join(_versions(found, text)),
                otherwise="go back",
            )
            if not await self.ask(asked):
                return False
        seen = found.seen if found is not None else None
        accepted = await self._decide([one], RuleAction.ACCEPT, text=text, seen=seen, always=always)
        if accepted and text is not None and (gone := pending.left_out(one, text)):
            self.toast(gone)
        return accepted

    async def _settled(self) -> None:
        """Wait until the queue and the details are read."""
        await self.reads.delivered()
        await self._looking.delivered()

    def _shown_of(self, one: PendingWrite) -> PendingDetails | None:
        return (
            self._details if self._details and self._details.pending_id == one.pending_id else None
        )

    async def action_fix(self) -> None:
        """Edit the text of the write, and accept it."""
        one = self.row
        draft = self.state.mended.get(one.pending_id)
        if not keeps(one.text) or (draft is not None and not keeps(draft)):
            raise Invalid("This text cannot be edited in place; E opens it in your editor.")
        edit = EditText(
            f"Fix what {one.principal} wrote",
            one.text,
            draft,
            " ".join(filter(None, (_DRAFT * (draft is not None), _stays(one)))),
            go="accept",
            unchanged=_UNCHANGED,
            one_line=_is_fact(one, self._shown_of(one)),
        )
        text = await self.ask_text(edit, partial(_kept, one.pending_id))
        if text is None:
            self.state.mended.pop(one.pending_id, None)
        else:
            await self._accept_fixed(one, text)

    async def action_fix_external(self) -> None:
        """Edit the text in the person's own editor, and accept the write."""
        one = self.row
        begin = self.state.mended.get(one.pending_id, one.text)
        with edited_outside(self, begin, (one.binding_key, one.pending_id)) as text:
            if text == one.text:
                self.state.mended.pop(one.pending_id, None)
                self.toast(_UNCHANGED)
            else:
                await self._accept_fixed(one, text)

    async def _accept_fixed(self, one: PendingWrite, text: str) -> None:
        """Accept a write with another text; the text is saved until then."""
        self.state.mended[one.pending_id] = text
        if await self._accept_one(one, text):
            return
        await self.reads.delivered()
        if self.rows.index_of(one.pending_id) is None:
            self.copy(text, "It does not wait any more; your text is copied.")
        else:
            self.toast("Your text is kept; e on the write takes it up.")

    async def action_refuse(self) -> None:
        """Ask for a reason, and refuse the writes."""
        if not (chosen := await self._chosen()):
            return
        title = f"Why is this refused? ({_counted(chosen)}; the reason may be empty)"
        prompt = Prompt(title, placeholder="not ours, wrong, a trick …", go="refuse")
        reason = await self.ask(prompt)
        if reason is None:
            return
        await self._decide(chosen, RuleAction.REFUSE, reason=reason)

    async def _decide(self, chosen: list[PendingWrite], action: RuleAction, **how: Any) -> bool:
        """Decide on the writes; failed ones stay, and a toast shows the first error.

        Returns whether all were decided on.
        """
        self._let_go({one.pending_id for one in chosen})
        try:
            found = await self.change(partial(self._decided, chosen, action, how))
        except MemtuiError as error:
            self.fail(error)
            return False
        finally:
            self.action_read()
        if done := [one for one, _ in found.writes.done]:
            said = "Accepted" if how.get("text") is None else "Fixed and accepted"
            said = "Refused" if action is RuleAction.REFUSE else said
            which = "it" if len(done) == 1 else "them"
            self.toast(f"{said} {_counted(done)}; u undoes {which}.")
        for (key, rule), beware in found.rules.items():
            self._tell_rule(key, rule, beware)
        self.fail_each([error for _, error in found.failed])
        return not found.writes.failed

    async def _decided(
        self, chosen: list[PendingWrite], action: RuleAction, how: dict[str, Any]
    ) -> Decided:
        """Carry out a decision after earlier ones have ended, so that `u` undoes the latest."""
        session, mended = self.session, self.state.mended

        async def decided() -> Decided:
            async with self._turn:
                found = await decide(session.service, session.caller, chosen, action, **how)
            for one, _ in found.writes.done:
                mended.pop(one.pending_id, None)
            return found

        return await asyncio.shield(decided())  # the person may leave the screen meanwhile

    def _let_go(self, decided: set[str]) -> None:
        """Remove decided writes from the list, so that they are neither decided nor read again."""
        self._looking.forget()
        self.rows.remove(decided)
        self.rows_list.selection.drop(decided)
        self.rows_list.rows_changed()
        self.draw()

    async def action_rule(self) -> None:
        """Ask for a rule made from this write, and decide on the write by it."""
        one, session = self.row, self.session
        choices = []
        for action in (RuleAction.ACCEPT, RuleAction.REFUSE):
            for test in _TESTS:
                try:
                    like = session.service.review.rule_from(one, action, test)
                except Invalid:
                    continue  # it has none of the sort
                choices.append(Choice(like, _wording(like)))
        title = f"This one, and from now on, of what agents write to {one.binding_key}"
        rule = await self.ask(Choose(title, choices))
        if rule is None:
            return
        if rule.action is RuleAction.ACCEPT:
            await self._accept_one(one, None, rule.test)
        else:
            await self._decide([one], RuleAction.REFUSE, always=rule.test)

    async def _add(self, key: str, rule: ReviewRule) -> None:
        review, caller = self.session.service.review, self.session.caller
        there = await self.change(partial(review.add_rule, caller, key, rule))
        self._tell_rule(key, rule, passed_over(rule, there))

    def _tell_rule(self, key: str, rule: ReviewRule, beware: str) -> None:
        self.toast(f"{key}: {_wording(rule)}, from now on. {beware}".rstrip())
        self.post_message(ConfigurationChanged())

    async def action_rules(self) -> None:
        """Show the rules of a binding, to remove or add one."""
        read = partial(self.service.bindings.all, self.caller)
        bindings = await self.wait("reading the rules", read)
        if not bindings:
            raise NotFound("There is no binding with writes to review; a on screen 1 adds one.")
        keys = [Choice(one.key, _with_rules(one)) for one in bindings]
        key = keys[0].value
        if len(keys) > 1:
            which = await self.ask(Choose("Which binding's rules?", keys))
            if which is None:
                return
            key = which
        there = next(one.review for one in bindings if one.key == key)
        offered: list[ReviewRule | RuleTest] = [*there, *RuleTest]
        title = f"Rules for what agents write to {key}"
        chosen = await self.ask(Choose(title, list(map(_rule_choice, offered))))
        if isinstance(chosen, ReviewRule):
            await self._remove(key, chosen)
        elif chosen is not None:
            await self._make(key, chosen, there)

    async def _remove(self, key: str, rule: ReviewRule) -> None:
        asked = Confirm(f"Remove the rule “{_wording(rule)}” from {key}?", verb="remove")
        if await self.ask(asked):
            remove = partial(self.service.review.remove_rule, self.caller, key, rule)
            await self.configure(remove, f"{key}: {rule.name} removed; u undoes it.")

    async def _make(self, key: str, test: RuleTest, there: Collection[ReviewRule]) -> None:
        """Ask for the action and the value of a new rule, and add it."""
        rules = [ReviewRule(action=action, test=test) for action in _ACTIONS[test]]
        choices = [Choice(one, _wording(one)) for one in rules if one not in there]
        if not choices:
            raise Invalid(f"{key} has every rule of that sort already.")
        rule: ReviewRule | None = choices[0].value
        if len(choices) > 1:
            rule = await self.ask(Choose("What happens with it?", choices))
        if rule is not None and test.takes_value:
            value = await self.ask(Prompt(f"{_wording(rule)}: which?", hint=_VALUES[test]))
            rule = rule.model_copy(update={"value": value}) if value else None
        if rule is not None:
            await self._add(key, rule)

    def action_open(self) -> None:
        """Open the source of the write."""
        if (source := self.row.source) is None:
            raise NotFound("It has no source.")
        open_source(self, source)

    def action_operation(self) -> None:
        """Show the held operation."""
        self.post_message(GoTo("operations", filter_line="", select=self.row.pending_id))

    def action_copy(self) -> None:
        """Copy the text, or the id if there is none."""
        one = self.row
        self.copy(one.text or one.pending_id, "Copied the text." if one.text else "Copied the id.")


_SOME = (RuleAction.HOLD, RuleAction.REFUSE)
_ACTIONS: Mapping[RuleTest, tuple[RuleAction, ...]] = {
    **dict.fromkeys(RuleTest, _SOME),
    **dict.fromkeys((RuleTest.ALL, RuleTest.PER_RUN), _SOME[:1]),
    **dict.fromkeys(_TESTS, (RuleAction.HOLD, RuleAction.ACCEPT, RuleAction.REFUSE)),
}
"""Possible actions of each test."""
_WORDS = {
    RuleTest.ALL: "all that agents write",
    RuleTest.NEW_SUBJECT: "keys and topics that are new",
    RuleTest.CONTRADICTION: "what contradicts or changes what is there",
    RuleTest.INSTRUCTION: "text that looks like an instruction",
    RuleTest.PER_RUN: "what a run writes after its first {}",
    RuleTest.AGENT: "what the agent {} writes",
    RuleTest.DOOR: "what comes through the channel {}",
    RuleTest.TEXT: "text that contains “{}”",
    RuleTest.SUBJECT: "what is about {}",
}
_VALUES = {
    RuleTest.PER_RUN: "a number   enter add   esc go back",
    RuleTest.AGENT: "the agent's id   enter add   esc go back",
    RuleTest.DOOR: "mcp, http, hook, cli or plugin   enter add   esc go back",
    RuleTest.TEXT: "words, in any case   enter add   esc go back",
    RuleTest.SUBJECT: "a key, a topic, a title or a user   enter add   esc go back",
}


def _wording(rule: ReviewRule) -> str:
    return f"{rule.action} {_WORDS[rule.test].format(rule.value or '…')}"


def rule_words(name: str) -> str:
    """Return a rule such as `hold per-run 5` in words."""
    action, _, rest = name.partition(" ")
    test, _, value = rest.partition(" ")
    return f"{action} {_WORDS[RuleTest(test)].format(value)}" if test in set(RuleTest) else name


def _rule_choice(one: ReviewRule | RuleTest) -> Choice[ReviewRule | RuleTest]:
    if isinstance(one, ReviewRule):
        return Choice(one, _wording(one), "remove")
    return Choice(one, _WORDS[one].format("…"), "add")


def _with_rules(binding: BindingView) -> str:
    is_open = not binding.read_only and binding.capabilities.writable
    else_ = "everything is stored at once" if is_open else "it is read-only, nothing is stored"
    return f"{binding.key}: {'; '.join(map(_wording, binding.review)) or else_}"


# Held writes in words.


def _counted(some: list[PendingWrite]) -> str:
    are_removals = all(one.operation_type is OperationType.FORGET for one in some)
    return fmt.counted(len(some), "removal" if are_removals else "write")


def _kept(pending_id: str, text: str) -> KeptDraft:
    """Return the draft of a text for a held write."""
    from memtui.screens.drafts import KeptDraft

    return KeptDraft(text=text, pending_id=pending_id)


def _stays(one: PendingWrite) -> str:
    """Return which of the agent's fields are stored with an edited text, and which are not."""
    kept = pending.kept_with(one)
    return " ".join(filter(None, (pending.left_out(one, ""), f"Stays: {kept}." if kept else "")))


def _is_fact(one: PendingWrite, found: PendingDetails | None) -> bool:
    """Whether the record is a fact, as far as it was read."""
    if one.operation_type is OperationType.WRITE:
        return getattr(one.request, "kind", "") == "fact"
    return found is not None and any(there.kind == "fact" for there in found.changes)


def difference(found: PendingDetails, zone: tzinfo | None) -> list[Line]:
    """Return the difference that the write would make now."""
    if found.gone:
        return [display(_GONE, style=WARN)]
    shown: list[Line] = []
    if found.changed:
        shown.append(display("The record has changed since this write was held.", style=WARN))
    for one in found.differences:
        before, after = one.before, one.after
        if before is not None and len(found.differences) > 1:
            shown.append(display(before.handle.provider_record_id, limit=300, style=DIM))
        texts = (before.text if before else None, after.text if after else None)
        shown += diff_lines(*texts, most=_MOST_LINES, chars=MAX_CHARACTERS)
        if max(len(text or "") for text in texts) > MAX_CHARACTERS:
            shown.append(display(_LONGER, style=WARN))
        shown += [
            labelled(name, display(value, limit=MAX_CHARACTERS, keep_newlines=True))
            for name, value in pending.fields(one, zone)
        ]
    return shown


def about(one: PendingWrite, state: AppState) -> list[Line]:
    """Return who requested the write, when, from where, and why it is held."""
    named = pending.about(one, state.true_clock(), state.zone)
    return [
        labelled(
            name,
            "; ".join(map(rule_words, one.reasons))
            if name == "rule"
            else display(value, limit=MAX_CHARACTERS, style=WARN if name in _WARNING else ""),
        )
        for name, value in named
    ]


def beside(found: PendingDetails) -> Iterator[list[Line]]:
    """Yield warnings: instructions in it, contradicted and equal records, earlier versions."""
    if found.orders:
        yield [display(pending.ORDERS, style=WARN)]
    for title, records in pending.beside(found):
        if records:
            yield [heading(title), *(one for record in records for one in _record_lines(record))]


def _record_lines(record: Record) -> Iterator[Line]:
    yield display(record.handle.provider_record_id, limit=120, style=DIM)
    yield display(record.text, limit=MAX_CHARACTERS, keep_newlines=True)
    for name, value in changed_fields(None, record):
        yield labelled(name, display(value, limit=MAX_CHARACTERS))


def _versions(found: PendingDetails, text: str | None) -> Iterator[str]:
    yield "When it was held:"
    yield from (f"  {one.text}" for one in found.then)
    yield "Now:"
    yield from ([f"  {one.text}" for one in found.changes] or ["  nothing"])
    yield f"It would say: {text or found.text}" if text or found.text else "It would be removed."
