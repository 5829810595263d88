"""Review of changes that agents ask for: the queue, the decisions, and the rules.

A person who could make a change may accept or refuse it; an agent may not. Accepting runs the
write, correction or forgetting in the person's name: roles, read-only, limits and secrets are
checked again, and a record that changed meanwhile is a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

from memtui.contract import (
    CorrectRequest,
    Denied,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Model,
    OperationType,
    Proposal,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    UtcDatetime,
    WriteMode,
    WriteRequest,
)
from memtui.record_changes import corrected
from memtui.service.answers import SAME, MutationAnswer, ReviewRule, RuleAction, RuleTest, Similar
from memtui.service.connections import Connection
from memtui.service.home.bindings import refuse_shared
from memtui.service.operations.memories import Operations
from memtui.service.operations.redaction import redact
from memtui.service.operations.similar import already_there
from memtui.service.recorder import RunningOperation
from memtui.service.review.elsewhere import Proposed, read_again, read_all, settle
from memtui.service.review.holding import (
    NOT_COMPARED,
    Acceptance,
    Request,
    as_record,
    decided_meanwhile,
    find,
    fixed,
    json_of,
    met_by,
    queue,
    reads_like_order,
    request_of,
    rules_of,
    state_of,
    text_of,
)
from memtui.service.review.proposals import ProposedChange, as_records, carry_out
from memtui.service.runtime import ServiceModule, find_binding, grouped, to_its_end
from memtui.service.visibility import (
    AGENT_PREFIX,
    Caller,
    Membership,
    Permission,
    may_read,
    person_of,
    refusal,
)
from memtui.store import appending, bindings, pending, settings
from memtui.store.database import DatabaseConnection
from memtui.store.details import ChangeDetails, RecordDetails, SettingDetails
from memtui.store.rows import BindingRow, PendingRow
from memtui.store.settings import SettingChange
from memtui.store.visibility import Visibility
from memtui.threads import in_thread

Rules: TypeAlias = "tuple[ReviewRule, ...]"

DOORS = ("mcp", "wrap", "http", "hook", "cli", "plugin")
"""The channels that agents use."""

_MOST_RULES = 100
_MOST_CHARS = 200


class PendingWrite(Model):
    """A change that an agent asked for and that waits for review."""

    pending_id: str
    """The id of the operation that asked for it."""
    binding_key: str
    operation_type: OperationType
    owners: tuple[Scope, ...]
    """The owners of the memories that it would change."""
    text: str
    """The text to store; empty where no text would change."""
    request: WriteRequest | CorrectRequest | ForgetRequest | ProposedChange | Proposal
    """The complete request, redacted; `ProposedChange`: of settings, for a second person;
    `Proposal`: it waits in another program."""
    handles: tuple[RecordHandle, ...] = ()
    """The records that it names."""
    texts_before: tuple[str, ...] = ()
    """The texts of the records that it would change, as they were when it began to wait."""
    reasons: tuple[str, ...]
    """The names of the rules that hold it."""
    principal: str
    acts_for: str | None = None
    channel: str
    run_id: str | None = None
    source: SourceRef | None = None
    times: int
    """How often the agent asked for it."""
    pending_since: UtcDatetime
    last_at: UtcDatetime
    decider: str | None = None
    """The operation that began to accept it and has not ended; None: none has."""
    kept: str = ""
    """Why the caller may not decide on it; empty: they may."""
    unfit: str = ""
    """Why the program in which it waits does not accept it; empty: it does."""
    hold_id: str | None = None
    """The hold that it is part of: agents do not get its records until it is decided on."""
    is_own: bool = False
    """Whether the caller proposed this change of settings, and so may only refuse it."""


class ReviewQueue(Model):
    """What waits for review, in memtui and in other programs."""

    writes: tuple[PendingWrite, ...]
    unread: dict[str, str] = {}
    """The bindings whose program was not asked, with the reason."""


class PendingDifference(Model):
    """A record before and after the change; None: it does not exist."""

    before: Record | None
    after: Record | None


class PendingDetails(PendingWrite):
    """A pending write, compared with the stored records."""

    differences: tuple[PendingDifference, ...] = ()
    """Each record that it would change, before and after."""
    changes: tuple[Record, ...] = ()
    """The records that it would change or remove, or that have its key, as they are now."""
    contradicts: tuple[Record, ...] = ()
    """Records on the same subject that disagree."""
    same: tuple[Record, ...] = ()
    """Records that say the same as the one to add."""
    orders: bool = False
    """Whether the text reads like an instruction or hides characters; independent of the rules."""
    then: tuple[Record, ...] = ()
    """`changes` as they were when it was held."""
    changed: bool = False
    """Whether `changes` differs from `then`."""
    gone: bool = False
    """All records that it names are gone: it can only be refused."""
    seen: str
    """State of `changes`, to pass to `accept`: it fails if the records changed since."""


class Review(ServiceModule):
    """The queue of pending writes, and the rules that hold writes for review."""

    async def waiting(self, caller: Caller, binding_key: str | None = None) -> list[PendingWrite]:
        """Return the writes of `queue`; a program that cannot be asked has none."""
        return list((await self.queue(caller, binding_key)).writes)

    async def queue(self, caller: Caller, binding_key: str | None = None) -> ReviewQueue:
        """Return the pending writes that the caller may see, oldest first. Not an operation.

        Raises:
            Denied: the caller is not a person, or not a member.
            Invalid: the caller has `as_of`.
        """
        rows, unread = await self._all(caller, binding_key)
        roles = await asyncio.to_thread(self._runtime.memberships, caller)
        found = [
            _view(row, roles, caller) for row in rows if binding_key in {None, row.binding_key}
        ]
        found.sort(key=lambda one: one.pending_since)
        return ReviewQueue(
            writes=tuple(found), unread={key: str(one) for key, one in unread.items()}
        )

    async def get(self, caller: Caller, pending_id: str) -> PendingWrite:
        """Return a pending write by its id or the beginning of it. Not an operation.

        Raises:
            Denied: the caller is not a person, or not a member.
            NotFound: no visible pending write has this id, or several ids begin with it.
        """
        row = find((await self._all(caller))[0], pending_id)
        return _view(row, await asyncio.to_thread(self._runtime.memberships, caller), caller)

    async def _all(
        self, caller: Caller, binding_key: str | None = None
    ) -> tuple[list[PendingRow | Proposed], dict[str, MemtuiError]]:
        """Return what waits here and in other programs, and the errors of those not read."""
        rows = await asyncio.to_thread(self._rows, caller)
        visibility = await asyncio.to_thread(self._runtime.visibility, caller)
        company = Scope(company_id=caller.company_id)
        found, unread = await read_all(self._runtime, caller, binding_key)
        seen = [
            one
            for one in found
            if all(may_read(owner, company, visibility) for owner in one.owners)
        ]
        return [*rows, *seen], unread

    async def show(self, caller: Caller, pending_id: str) -> PendingDetails:
        """Return a pending write, compared with the stored records.

        Raises:
            NotFound: no visible pending write has this id.
        """
        row = await self._find(caller, pending_id, "show")
        if isinstance(row, Proposed):
            return await self._show_proposed(caller, row)
        if row.operation_type == OperationType.CONFIGURE:
            view = await self.get(caller, row.pending_id)
            proposal = ProposedChange.model_validate(row.request)
            records = (as_records(one, proposal.scope) for one in proposal.changes)
            differences = tuple(
                PendingDifference(before=before, after=after) for before, after in records
            )
            return PendingDetails(**dict(view), differences=differences, seen="")
        request = request_of(row)
        scope = _owners(row)[0].outside_run()
        async with self._runtime.connected(
            OperationType.GET, caller, scope, RecordDetails(pending=row.pending_id), row.binding_key
        ) as (entry, connection):
            handles = _handles(request)
            found = await self._runtime.found(connection, handles, scope) if handles else {}
            there = list({one.handle: one for one in found.values()}.values())
            met = await met_by(entry, connection, request, there)
            alike: tuple[Similar, ...] = ()
            if isinstance(request, WriteRequest) and request.mode is WriteMode.APPEND:
                alike = await already_there(entry, connection, request)
            entry.about(met.changes)
        then = tuple(Record.model_validate(one) for one in row.base)
        view = _view(row, await asyncio.to_thread(self._runtime.memberships, caller), caller)
        untold = () if met.compared or NOT_COMPARED in view.reasons else (NOT_COMPARED,)
        return PendingDetails(
            **dict(view) | {"reasons": (*view.reasons, *untold)},
            differences=tuple(_differences(connection, request, met.changes)),
            changes=met.changes,
            contradicts=met.contradicts,
            same=tuple(one.record for one in alike if one.likeness >= SAME),
            orders=reads_like_order(request),
            then=then,
            changed=state_of(met.changes) != state_of(then),
            gone=bool(handles) and not met.changes,
            seen=state_of(met.changes),
        )

    async def _show_proposed(self, caller: Caller, one: Proposed) -> PendingDetails:
        from memtui.pruning.candidates import misleading

        async with self._runtime.connected(
            OperationType.GET, caller, one.owners[0].outside_run(),
            RecordDetails(pending=one.pending_id), one.binding_key, needs="proposals",
        ) as (entry, connection):  # fmt: skip
            now = await read_again(entry, connection, one)
        before = {record.handle: record for record in now.proposal.before}
        differences = [
            PendingDifference(before=before.get(after.handle), after=after)
            for after in now.proposal.after
        ]
        roles = await asyncio.to_thread(self._runtime.memberships, caller)
        return PendingDetails(
            **dict(_view(now, roles, caller)),
            differences=tuple(differences),
            orders=any(misleading([now.proposal.text])),
            seen=now.seen,
        )

    async def accept(
        self,
        caller: Caller,
        pending_id: str,
        *,
        text: str | None = None,
        seen: str | None = None,
        together: str | None = None,
    ) -> MutationAnswer:
        """Accept a pending write, and carry it out in the caller's name.

        Args:
            caller: The person who decides.
            pending_id: The id, or the beginning of it.
            text: A text to store instead; None: the agent's.
            seen: `PendingDetails.seen` as shown to the person: the records must still be so. None:
                they must be as they were when it was held.
            together: The id of a group of decisions that one undo takes back.

        Raises:
            Conflict: a record that it would change has changed, or somebody else has decided.
            Denied: the caller may not make the change, is not a person, or something is read-only.
            Invalid: `text` is given, but the request has no text.
            NotFound: no visible pending write has this id.
        """
        decision = "accept" if text is None else "fix"
        row = await self._find(caller, pending_id, decision)
        if isinstance(row, Proposed):
            if text is not None:
                raise Invalid(
                    f"{row.pending_id} waits in another program, so its text cannot be edited; "
                    "accept it and edit the memory then, or refuse it."
                )
            return await settle(self._runtime, caller, row, decision, seen=seen, together=together)
        is_settings = row.operation_type == OperationType.CONFIGURE
        if text is not None and (is_settings or not text_of(request_of(row))):
            raise Invalid(f"{row.pending_id} has no text to edit; accept or refuse it.")
        if is_settings:
            return await self._agree(caller, row, together)
        request = fixed(request_of(row), text)
        accepts = Acceptance(row=row, decision=decision, seen=seen)
        operations = self._runtime.module(Operations)
        if isinstance(request, WriteRequest):
            return await operations.write(caller, request, together=together, accepts=accepts)
        if isinstance(request, CorrectRequest):
            return await operations.correct(caller, request, together=together, accepts=accepts)
        return await operations.forget(caller, request, together=together, accepts=accepts)

    @to_its_end
    async def _agree(self, caller: Caller, row: PendingRow, together: str | None) -> MutationAnswer:
        """Make a change of settings that somebody else proposed, as the second person."""
        runtime, company_id = self._runtime, caller.company_id
        proposal = ProposedChange.model_validate(row.request)
        changes = proposal.changes
        asked = cast("SettingDetails", {
            **proposal.asked, "decision": "accept", "pending": row.pending_id,
            "author": row.principal,
        })  # fmt: skip
        does = OperationType.UNDO if proposal.undoes else OperationType.CONFIGURE
        async with runtime.recorder.recorded(
            does, caller, proposal.scope, grouped(asked, together)
        ) as entry:
            entry.undoes = proposal.undoes
            await runtime.refuse_configuring(caller)
            await self._authorise(caller, row)
            if why := _own(row, caller):
                raise Denied(why)
            proposer = Caller(
                company_id=company_id, principal=row.principal, acts_for=row.acts_for,
                channel=row.channel,
            )  # fmt: skip
            try:
                await runtime.may_configure(proposer)
            except Denied as error:
                raise Denied(
                    f"{row.principal}, who proposed this, may not change settings any more; "
                    "refuse it."
                ) from error
            stores = [BindingRow(**one.after) for one in changes
                      if one.setting == "binding" and one.after is not None]  # fmt: skip
            looks = [await refuse_shared(runtime, one) for one in stores]
            entry.binding = await runtime.ask(bindings.binding, company_id, row.binding_key)
            entry.result_count = len(changes)

            def change(database: DatabaseConnection) -> None:
                for look_again in looks:
                    look_again(database)
                if pending.one(database, company_id, row.pending_id) is None:
                    raise decided_meanwhile(None, row)
                carry_out(database, company_id, changes)
                pending.remove(database, row)

            await runtime.configure(
                entry, change, kinds={one.setting for one in changes}, agreed=True
            )
        for one in changes:
            if (found := one.after or one.before) and one.setting == "binding":
                await runtime.reopen(BindingRow(**found))
        return MutationAnswer(
            **entry.answer(), undoes=proposal.undoes, settings=tuple(entry.settings)
        )

    @to_its_end
    async def refuse(
        self, caller: Caller, pending_id: str, reason: str = "", *, together: str | None = None
    ) -> str:
        """Remove a pending write from the queue; return the id of this operation, to undo it.

        `together`: id of a group of decisions that one undo takes back.

        Raises:
            Conflict: somebody else has decided, or is deciding.
            Denied: the caller may not make the change, is not a person, or something is read-only.
            NotFound: no visible pending write has this id.
        """
        row = await self._find(caller, pending_id, "refuse")
        if isinstance(row, Proposed):
            settled = await settle(
                self._runtime, caller, row, "refuse", reason=reason, together=together
            )
            return settled.operation_id
        runtime, company_id = self._runtime, caller.company_id
        owners = _owners(row)
        asked: ChangeDetails = {
            "decision": "refuse",
            "pending": row.pending_id,
            "author": row.principal,
        }
        if reason:
            asked["reason"] = redact(reason)[0]
        asked = grouped(asked, together)
        is_settings = row.operation_type == OperationType.CONFIGURE
        source = None if is_settings else request_of(row).source
        async with runtime.recorder.recorded(
            OperationType.REVIEW, caller, owners[0].outside_run(), asked, source
        ) as entry:
            runtime.refuse_read_only()
            await runtime.refuse_changes(company_id)
            await self._authorise(caller, row)
            entry.binding = await runtime.ask(bindings.binding, company_id, row.binding_key)
            entry.about(() if is_settings else _handles(request_of(row)))

            def change(database: DatabaseConnection) -> None:
                now = pending.one(database, company_id, row.pending_id)
                running = {one.operation_id for one in appending.open_intents(database, company_id)}
                if now is None or now.decider in running:
                    raise decided_meanwhile(now, row)
                pending.remove(database, now)

            await runtime.configure(entry, change, kinds=(settings.PENDING,))
        return entry.operation_id

    @to_its_end
    async def hold(
        self, caller: Caller, request: ForgetRequest, reason: str, *, together: str | None = None
    ) -> MutationAnswer:
        """Let forgetting some records wait for a person, and keep them back from agents until then.

        Raises:
            Denied: the caller is not a person, or may not forget one of them.
            NotFound: none of them exists.
        """
        runtime, reason = self._runtime, redact(reason)[0]
        asked = ChangeDetails(decision="hold", reason=reason, records=len(request.handles))
        async with runtime.recorder.recorded(
            OperationType.REVIEW, caller, request.scope, grouped(asked, together)
        ) as entry:
            if not caller.by_person:
                raise Denied("Only people hold what is stored for review; let a person do it.")
            await runtime.refuse_changes(caller.company_id)
            await runtime.may_change(caller, [request.scope])
            # Also where the binding is read-only, since nothing in it is changed.
            routed = await runtime.resolve(caller, request.scope, request.binding_key)
            entry.binding = routed.binding
            connection = await runtime.open(
                routed.binding, company_read_only=routed.company_read_only
            )
            found = (await runtime.found(connection, request.handles, request.scope)).values()
            there = [one.record for one in found if one.record is not None]
            if not there:
                raise connection.lacks(request.handles[0])
            await runtime.may_mutate(entry, [one.scope for one in there])
            entry.about(there)
            entry.result_count = len(there)

            def change(database: DatabaseConnection) -> None:
                for one in there:
                    forgets = ForgetRequest.of([one], request.scope, connection.binding.key)
                    queue(runtime, database, entry, forgets, [one], [reason], runtime.new_id())

            await runtime.configure(entry, change, kinds=(settings.PENDING,))
        handles = tuple(one.handle for one in there)
        return MutationAnswer(**entry.answer(), handles=handles, settings=tuple(entry.settings))

    async def may_decide(self, entry: RunningOperation, changed: Sequence[SettingChange]) -> None:
        """Raise `Denied` where the caller may not undo these decisions."""
        self._runtime.refuse_read_only()
        await self._runtime.refuse_changes(entry.caller.company_id)
        for one in changed:
            await self._authorise(entry.caller, _row_of(one))

    @in_thread
    def rules(self, caller: Caller, binding_key: str) -> Rules:
        """Return the rules of a binding.

        Raises:
            NotFound: no such binding.
        """
        self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            return rules_of(find_binding(database, caller.company_id, binding_key))

    async def add_rule(
        self, caller: Caller, binding_key: str, rule: ReviewRule, *, together: str | None = None
    ) -> Rules:
        """Add a rule to a binding, and return all its rules; `per-run` replaces an earlier one.

        `together`: id of a group of changes that one undo takes back.

        Raises:
            Invalid: the rule is not valid.
            NotFound: no such binding.
        """
        rule = _checked(rule, binding_key)
        asked = grouped(SettingDetails(add_rule=rule.model_dump(mode="json")), together)

        def added(rules: Rules) -> Rules:
            once = rule.test is RuleTest.PER_RUN  # of two, only the smaller would have an effect
            return (*(one for one in rules if not (once and one.test is rule.test)), rule)

        return await self._change_rules(caller, binding_key, asked, added)

    async def remove_rule(self, caller: Caller, binding_key: str, rule: ReviewRule) -> Rules:
        """Remove a rule, and return the others; the writes that it holds stay pending.

        Raises:
            Invalid: the binding has no such rule.
            NotFound: no such binding.
        """

        def without(rules: Rules) -> Rules:
            if rule not in rules:
                known = "; ".join(one.name for one in rules) or "none"
                raise Invalid(f"{binding_key} has no rule {rule.name}; it has: {known}.")
            return tuple(one for one in rules if one != rule)

        asked = SettingDetails(remove_rule=rule.model_dump(mode="json"))
        return await self._change_rules(caller, binding_key, asked, without)

    def rule_from(self, one: PendingWrite, action: RuleAction, test: RuleTest) -> ReviewRule:
        """Return a rule for writes that have the same value for `test` as a pending one.

        Raises:
            Invalid: the pending write has no value for the test.
        """
        from memtui.fact_values import pair_of

        if isinstance(one.request, ProposedChange | Proposal):
            raise Invalid(
                "A rule is about what agents write through memtui; this is "
                + (
                    "what another program keeps back."
                    if isinstance(one.request, Proposal)
                    else "a change of settings."
                )
            )
        value: str | None = None
        if test is RuleTest.AGENT:
            value = one.principal.removeprefix(AGENT_PREFIX)
        elif test is RuleTest.DOOR:
            value = one.channel
        elif test is RuleTest.TEXT:
            value = " ".join(one.text.split())[:_MOST_CHARS]
        elif test is RuleTest.SUBJECT:
            pair, request = pair_of(one.text), one.request
            candidates = (pair and pair.key, getattr(request, "topic", None),
                    getattr(request, "title", None), one.owners[0].subject_id)  # fmt: skip
            value = next(filter(None, candidates), None)
        if not value:
            raise Invalid(
                "A rule made from this change tests its agent, channel, text or subject, and it "
                f"has no {test}."
            )
        return _checked(ReviewRule(action=action, test=test, value=value), one.binding_key)

    async def _change_rules(
        self,
        caller: Caller,
        binding_key: str,
        asked: SettingDetails,
        make: Callable[[Rules], Rules],
    ) -> Rules:
        def change(database: DatabaseConnection) -> Rules:
            row = find_binding(database, caller.company_id, binding_key)
            rules = tuple(dict.fromkeys(make(rules_of(row))))
            if len(rules) > _MOST_RULES:
                raise Invalid(f"A binding has at most {_MOST_RULES} rules; take one away first.")
            values = {"review": json_of(rules)}
            bindings.update_binding(database, row.binding_id, values)
            return rules

        asked = {"update_binding": binding_key, **asked}
        return await self._runtime.change(caller, asked, change, binding_key=binding_key)

    async def _find(self, caller: Caller, pending_id: str, decision: str) -> PendingRow | Proposed:
        """Return a pending write by its id; a failed attempt is logged as a review operation."""
        try:
            return find((await self._all(caller))[0], pending_id)
        except MemtuiError:
            scope = Scope(company_id=caller.company_id)
            asked = ChangeDetails(decision=decision, pending=pending_id[:_MOST_CHARS])
            async with self._runtime.recorder.recorded(OperationType.REVIEW, caller, scope, asked):
                raise

    def _rows(self, caller: Caller) -> list[PendingRow]:
        if not caller.by_person:
            raise Denied("Only people see and decide pending changes; let a person do it.")
        if caller.as_of is not None:
            raise Invalid("Pending changes are known only as they are now; go back to now first.")
        visibility = self._runtime.visibility(caller)
        with self._runtime.database.read() as database:
            rows = pending.waiting(database, caller.company_id)
        return [row for row in rows if _is_seen(row, visibility)]

    def may_know(
        self, change: SettingChange, caller: Caller, visibility: Visibility | None
    ) -> bool:
        """Whether the caller may see a settings change; of the queue: if its owners are visible."""
        if change.setting != settings.PENDING:
            return True
        return caller.by_person and _is_seen(_row_of(change), visibility)

    async def _authorise(self, caller: Caller, row: PendingRow) -> None:
        """Raise `Denied` where the caller is not a person, or may not make the change."""
        if not caller.by_person:
            raise Denied("An agent cannot decide on pending changes; let a person do it.")
        await self._runtime.authorise(caller, _action_of(row), _owners(row))


def _checked(rule: ReviewRule, binding_key: str) -> ReviewRule:
    """Return a rule with normalised whitespace.

    Raises:
        Invalid: its test, action and value do not go together.
    """
    value = " ".join(rule.value.split())
    if rule.test.takes_value and not value:
        raise Invalid(
            f"Say what {rule.test} is about: `memtui review rule {binding_key} {rule.action} "
            f"{rule.test} VALUE`."
        )
    if not rule.test.takes_value and value:
        raise Invalid(f"The rule {rule.test} takes no value.")
    if len(value) > _MOST_CHARS:
        raise Invalid(f"A rule's value has at most {_MOST_CHARS} characters; shorten it.")
    if redact(value)[1]:
        raise Invalid("A rule must not contain a secret; choose other words.")
    if rule.test is RuleTest.PER_RUN and not (value.isdecimal() and value.isascii()):
        raise Invalid(
            "per-run takes a whole number: how many memories a run, and its agent in an hour, may "
            "write unreviewed."
        )
    if rule.test is RuleTest.DOOR and value.casefold() not in DOORS:
        raise Invalid(f"Agents come through no channel {value}; name one of {', '.join(DOORS)}.")
    broad = {RuleTest.ALL, RuleTest.PER_RUN}
    if rule.action is not RuleAction.HOLD and rule.test in broad:
        raise Invalid(
            f"{rule.test} can only hold changes. Without any rule all are accepted; `memtui "
            "bindings read-only` refuses all."
        )
    narrow = {RuleTest.NEW_SUBJECT, RuleTest.CONTRADICTION, RuleTest.INSTRUCTION}
    if rule.action is RuleAction.ACCEPT and rule.test in narrow:
        raise Invalid(f"{rule.test} is a reason to hold or refuse, not to accept.")
    return rule.model_copy(update={"value": value})


def passed_over(made: ReviewRule, rules: Rules) -> str:
    """Warn that a new `accept` rule precedes the rules that check texts; empty: it does not."""
    looking = {RuleTest.INSTRUCTION, RuleTest.CONTRADICTION}
    names = [one.name for one in rules if one.action is RuleAction.HOLD and one.test in looking]
    if made.action is not RuleAction.ACCEPT or not names:
        return ""
    return f"It comes before {' and '.join(names)}, which do not test changes that it accepts."


def _differences(
    connection: Connection, request: Request, there: Sequence[Record]
) -> Iterator[PendingDifference]:
    """Yield each existing record before and after a request."""
    if isinstance(request, WriteRequest):
        replaced = there[0] if there else None
        new = as_record(connection, request)
        if replaced is not None:
            new = new.model_copy(update={"handle": replaced.handle})
        yield PendingDifference(before=replaced, after=new)
        return
    for record in there:
        after = corrected(record, request) if isinstance(request, CorrectRequest) else None
        yield PendingDifference(before=record, after=after)


def _row_of(change: SettingChange) -> PendingRow:
    return PendingRow(**(change.before or change.after or {}))


def _is_seen(row: PendingRow, visibility: Visibility | None) -> bool:
    if row.operation_type == OperationType.CONFIGURE:
        return visibility is None or visibility.manages
    company = Scope(company_id=row.company_id)
    return all(may_read(one, company, visibility) for one in _owners(row))


def _owners(row: PendingRow) -> tuple[Scope, ...]:
    return tuple(map(Scope.model_validate, row.owners))


def _handles(request: Request) -> tuple[RecordHandle, ...]:
    if isinstance(request, WriteRequest):
        return ()
    return (request.handle,) if isinstance(request, CorrectRequest) else request.handles


def _own(row: PendingRow, caller: Caller) -> str:
    """Return why a change of settings is the caller's own; empty: somebody else proposed it."""
    if row.operation_type != OperationType.CONFIGURE:
        return ""
    is_own = person_of(caller) in {row.principal, row.acts_for}
    return "You proposed this, so another owner or admin has to accept it." if is_own else ""


def _action_of(row: PendingRow) -> Permission:
    if row.operation_type == OperationType.CONFIGURE:
        return Permission.CONFIGURE
    is_write = row.operation_type == OperationType.WRITE
    return Permission.ADD_MANUAL if is_write else Permission.DELETE


def _view(
    row: PendingRow | Proposed, roles: Sequence[Membership] | None, caller: Caller
) -> PendingWrite:
    """Return a pending write; `roles`: the caller's, None: the company has no members."""
    if isinstance(row, Proposed):
        return _view_of_proposed(row, roles)
    action, own = _action_of(row), _own(row, caller)
    whys = () if roles is None else (refusal(roles, action, one) for one in _owners(row))
    if action is Permission.CONFIGURE:
        return PendingWrite.like(
            row,
            operation_type=OperationType.CONFIGURE,
            owners=_owners(row),
            text="",
            request=ProposedChange.model_validate(row.request),
            reasons=tuple(row.reasons),
            kept=next(filter(None, (own, *whys)), ""),
            is_own=bool(own),
        )
    request = request_of(row)
    return PendingWrite.like(
        row,
        operation_type=OperationType(row.operation_type),
        owners=_owners(row),
        text=text_of(request),
        request=request,
        handles=_handles(request),
        texts_before=tuple(one["text"] for one in row.base),
        reasons=tuple(row.reasons),
        run_id=request.scope.run_id or (request.source.run_id if request.source else None),
        source=request.source,
        kept=next(filter(None, whys), ""),
    )


def _view_of_proposed(one: Proposed, roles: Sequence[Membership] | None) -> PendingWrite:
    proposal = one.proposal
    whys = () if roles is None else (refusal(roles, Permission.DELETE, of) for of in one.owners)
    program = proposal.handle.provider_key
    return PendingWrite(
        pending_id=one.pending_id,
        binding_key=one.binding_key,
        operation_type=proposal.operation_type,
        owners=one.owners,
        text=proposal.text,
        request=proposal,
        handles=proposal.records,
        reasons=(f"waits in {program}",),
        principal=proposal.by,
        channel=program,
        times=1,
        pending_since=proposal.since,
        last_at=proposal.since,
        kept=next(filter(None, whys), ""),
        unfit=proposal.refused,
    )
