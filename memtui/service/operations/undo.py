"""Undo mutations: restore every record to its state before.

A mutation of unknown outcome is first checked at the provider.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from time import monotonic

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    WriteRequest,
)
from memtui.patterns import late_pattern
from memtui.service.answers import MutationAnswer, Together, UndoCandidate
from memtui.service.connections import Connection
from memtui.service.history.log import LoggedOperations
from memtui.service.home.bindings import refuse_shared
from memtui.service.home.members import REVOKED
from memtui.service.operations.filling import fields_of
from memtui.service.operations.reading import change_of, received
from memtui.service.recorder import CONTENT, RunningOperation
from memtui.service.review.proposals import refuse_impossible
from memtui.service.review.queue import Review
from memtui.service.runtime import ServiceModule, refuse_agents, refuse_unreviewed, to_its_end
from memtui.service.visibility import Caller, for_caller
from memtui.store import appending, bindings, pending, settings
from memtui.store.appending import Step
from memtui.store.database import DatabaseConnection
from memtui.store.details import UndoDetails
from memtui.store.digest import is_value_of
from memtui.store.erasing import IRREVERSIBLE
from memtui.store.journal import (
    SETTINGS,
    Journal,
    OutcomeCheck,
    OutcomeFinding,
    Undoable,
    exchanged,
)
from memtui.store.limits import last_seq
from memtui.store.operation import Operation, set_by
from memtui.store.rows import BindingRow
from memtui.store.settings import SettingChange
from memtui.threads import in_thread

_AT_ONCE = timedelta(hours=1)
"""The longest time between the starts of two operations of one group."""
_COPY = late_pattern(r"~\d+$")
_SEARCHED_WORDS = 8
_LOOK_SECONDS = 2.0
"""How long a look at the log waits for a provider that stores later."""
_NEVER = {
    OperationType.PURGE: IRREVERSIBLE,
    OperationType.SYNC: "A sync only reads changes made elsewhere; it has nothing to undo.",
}
"""Types that cannot be undone, and why."""
_SAID = ("text", "title", "summary", "kind", "topic", "tags", "pinned", "expires_at")
"""The fields in which a person sees that a record has changed."""


class Undo(ServiceModule):
    """Undoing mutations, and checking those of unknown outcome."""

    @to_its_end
    async def undo(
        self,
        caller: Caller,
        operation_id: str | None = None,
        *,
        records: Collection[str] = (),
        together: str | None = None,
    ) -> MutationAnswer:
        """Undo an operation; None: the newest undoable one. Undoing an undo redoes.

        Args:
            caller: Who undoes it.
            operation_id: The operation.
            records: Ids of the only records to restore; empty: all that it changed.
            together: The id of the group of undos that this undo belongs to.

        Raises:
            Invalid: the operation changed nothing, cannot be undone, or leaves no such record
                to restore.
            Conflict: it was undone already, or something that it changed has changed since.
            NotFound: there is no such operation, or nothing to undo.
        """
        asked = UndoDetails(operation_id=operation_id) if operation_id else UndoDetails()
        async with self._runtime.recorder.recorded(
            OperationType.UNDO, caller, Scope(company_id=caller.company_id), asked
        ) as entry:
            if operation_id is not None:
                for one in await asyncio.to_thread(self._unsettled, caller, operation_id):
                    await self.check_outcome(caller, one)
            operation, steps, changed = await asyncio.to_thread(
                self._pick, caller, operation_id, records
            )
            entry.scope = operation.asked_scope
            entry.take_source(operation.source)
            entry.undoes = operation.operation_id
            entry.request["operation_id"] = operation.operation_id
            entry.request["type"] = operation.operation_type
            if operation.operation_type is OperationType.CORRECT:
                entry.request["set"] = set_by(operation)
            if together is not None:
                entry.request["together"] = together
            if changed and not steps:
                return await self._settings_back(entry, operation, changed)
            await self._refuse_other_binding(operation)
            connection = await self._runtime.connect(entry, operation.binding_key)
            refuse_unreviewed(entry, "takes nothing back")
            refuse_agents(entry, connection)
            if not caller.by_person and any(before.handle.is_file for before, _ in steps):
                raise Denied("A person decided on this, so a person has to take it back.")
            changes = [state.record for step in steps for state in step if state and state.record]
            await self._runtime.may_mutate(entry, [record.scope for record in changes])
            scope = reaching(operation.asked_scope, changes)
            operation = operation.model_copy(update={"scope": scope})
            entry.about([before.handle for before, _ in steps])
            newest = await self._runtime.ask(last_seq, caller.company_id)
            now = await self._now(connection, steps, scope)
            await self._refuse_changed(connection, operation, steps, now)
            handles = [one.handle for one in now]
            entry.about(handles)
            entry.at_end = partial(_review_back, changed)
            check = partial(_refuse_late, operation, changed, newest)
            await self._runtime.recorder.begin(entry, now, check)
            befores = [
                before.model_copy(
                    update={
                        "handle": current.handle,
                        "replaces": current.record and current.record.revision,
                    }
                )
                for (before, _), current in zip(steps, now, strict=True)
            ]
            if connection.adapter.capabilities.restore:
                reply = await entry.mutate(
                    connection,
                    lambda: connection.adapter.restore(befores, scope),
                    records=len(befores),
                )
                entry.usage = reply.usage
                entry.lacks(reply.lacking)
                if (pair := exchanged(operation.operation_type, steps)) is not None:
                    (back, _), (gone, _) = pair
                    entry.links[gone.handle.provider_record_id] = back.handle.provider_record_id
            else:
                await _rebuild(entry, connection, operation, befores, now)
            moved = [_moved(handle, entry.links) for handle in handles]
            own = [before.handle for before, _ in steps]  # the journal's ids
            touched = list(dict.fromkeys((*own, *handles, *moved)))
            known = {
                handle: fields_of(before.record)
                for handle, (before, _) in zip(moved, steps, strict=True)
            }
            after = await entry.read_back(connection, now, touched, scope, given=known)
        return MutationAnswer(
            **entry.answer(),
            handles=tuple(dict.fromkeys(moved)),
            records=for_caller(caller, [step.record for step in after if step.record]),
            linked=entry.links,
            undoes=operation.operation_id,
            lacking=entry.request.get("lacking", ""),
            settings=tuple(entry.settings),
        )

    async def _refuse_other_binding(self, operation: Operation) -> None:
        """Raise `Conflict` where the operation's binding was removed and its key reused."""
        key = operation.binding_key or ""
        changes = await self._runtime.ask_journal(
            operation.scope.company_id, Journal.binding_changes, key, operation.seq
        )
        if not changes:
            return
        # Compared by creation time: a binding restored by undo is the same one.
        then, now = (one and one["created_at"] for one in (changes[0].before, changes[-1].after))
        if now is not None and then != now:
            raise Conflict(
                f"Operation {operation.operation_id} was done in a binding {key} that has been "
                "removed; the one of that name today is another. Undo what came after it first."
            )

    async def _now(
        self, connection: Connection, steps: Sequence[Step], scope: Scope
    ) -> list[Snapshot]:
        """Return the records as they are now, under their new id if restored under one."""
        left = [before.handle for before, after in steps if after and after.record]
        found = await self._runtime.found(connection, left, scope)
        others = [before.handle for before, _ in steps if before.handle not in found]
        seen = await connection.snapshots(others, scope)
        found |= {one.handle: one for one in seen}
        return [found[before.handle] for before, _ in steps]

    async def _refuse_changed(
        self,
        connection: Connection,
        operation: Operation,
        steps: Sequence[Step],
        now: Sequence[Snapshot],
    ) -> None:
        """Raise `Conflict` where a record differs from how the operation, or an undo, left it."""
        for (_, left), current in zip(steps, now, strict=True):
            expected = left.record if left else None
            record_id = current.handle.provider_record_id
            same = {state_of(expected)}
            if expected and state_of(current.record) not in same:
                company_id, key = operation.scope.company_id, connection.binding.key
                led = await self._runtime.ask_journal(company_id, Journal.led_back, key, record_id)
                states = [(state_of(found), state_of(made)) for found, made in led]
                # Rows come sorted by id, so follow the links until nothing new is found.
                while more := {made for found, made in states if found in same} - same:
                    same |= more
            if state_of(current.record) not in same and not _came_back(expected, current.record):
                raise Conflict(
                    f"{record_id} has changed since operation {operation.operation_id}; "
                    "undo what came after it first, or correct it by hand.",
                    current=current.record,
                )

    @to_its_end
    async def undo_together(
        self,
        caller: Caller,
        operation_id: str | None = None,
        *,
        records: Collection[str] = (),
        answers: list[MutationAnswer] | None = None,
    ) -> tuple[MutationAnswer, ...]:
        """Undo an operation and its group: bindings concurrently, within each one by one.

        Args:
            caller: Who undoes it.
            operation_id: The operation; None: the newest undoable one.
            records: Ids of the only records to restore; empty: all of the group.
            answers: Receives each answer as it comes, also if another undo fails.

        Raises:
            MemtuiError: one of them cannot be undone; the others are undone nevertheless.
        """
        done = await asyncio.to_thread(self._done_together, caller, operation_id)
        answers = [] if answers is None else answers
        before = len(answers)
        if len(done) < 2:
            named = None if operation_id is None else done[0].operation_id
            answers.append(await self.undo(caller, named, records=records))
            return tuple(answers[before:])
        parts = await asyncio.to_thread(self._parts, done, records)
        undo = partial(self.undo, caller, together=self._runtime.new_id())
        failed: list[MemtuiError] = []

        async def in_turn(operations: Sequence[Operation]) -> None:
            for one in operations:
                try:
                    answers.append(await undo(one.operation_id, records=parts[one.operation_id]))
                except MemtuiError as error:
                    failed.append(error)

        by_binding: dict[str | None, list[Operation]] = {}
        done = [one for one in done if one.operation_id in parts]
        for one in sorted(done, key=lambda one: -one.seq):
            by_binding.setdefault(one.binding_key, []).append(one)
        await asyncio.gather(*map(in_turn, by_binding.values()))
        if failed:
            raise failed[0]
        return tuple(answers[before:])

    def _parts(
        self, done: Sequence[Operation], records: Collection[str]
    ) -> dict[str, Collection[str]]:
        """Return which records to restore of each operation of a group; empty: all of it.

        Raises:
            Invalid: no operation, or one in each of several bindings, changed a record of that id.
        """
        if not records:
            return {one.operation_id: () for one in done}
        parts: dict[str, list[str]] = {}
        with self._runtime.database.read() as database:
            for name in records:
                found = [one for one in done if self._ids_left(database, one, name)]
                if len({one.binding_key for one in found}) > 1:
                    found = [one for one in found if one.binding_key == done[0].binding_key]
                if not found:
                    raise _not_of(done[0], name)
                for one in found:
                    parts.setdefault(one.operation_id, []).append(name)
        return dict(parts)

    def _ids_left(self, database: DatabaseConnection, operation: Operation, name: str) -> set[str]:
        """Return the ids of a record, by any of its ids, whose change was not undone.

        Those of a record that got another id are two. With it come back the equal records of one
        file, where the provider numbers them.
        """
        journal = Journal(database, operation.scope.company_id)
        left = journal.in_force(operation.operation_id) - {SETTINGS}
        ids = left.intersection(journal.ids_of(operation.binding_key or "", name))
        steps = journal.steps(operation.operation_id)
        pair = exchanged(operation.operation_type, steps) or ()
        both = {before.handle.provider_record_id for before, _ in pair} & left
        ids |= both if ids & both else set()
        if not ids or not self._runtime.providers.load(operation.provider_key or "").numbers_equals:
            return ids
        stems = {_COPY.sub("", one) for one in ids}
        return {one for one in left if _COPY.sub("", one) in stems}

    def _done_together(self, caller: Caller, operation_id: str | None) -> list[Operation]:
        """Return an operation and the others of its group, without those undone already."""
        if operation_id is None:
            newest = self._candidates(caller, 1)
            if not newest:
                return []
            operation = newest[0].operation
        else:
            log = self._runtime.log(caller.company_id, self._runtime.visibility(caller))
            operation = log.named(operation_id)
        together = operation.request.get("together")
        if not together or not operation.operation_type.mutates:
            return [operation]
        near = Filter(
            text=str(together),
            since=operation.started_at - _AT_ONCE,
            until=operation.started_at + _AT_ONCE,
        )
        log = self._runtime.log(caller.company_id, self._runtime.visibility(caller))
        others = [
            one
            for one in log.each(near)
            if one.request.get("together") == together
            and one.operation_type.mutates
            and one.status in {OperationStatus.OK, OperationStatus.UNKNOWN}
            and one.operation_id != operation.operation_id
        ]
        with self._runtime.database.read() as database:
            journal = Journal(database, caller.company_id)
            there = [
                one
                for one in (operation, *others)
                # An earlier undo of the group may have undone only some of it.
                if journal.undone_by(one.operation_id) is None
                # Left out: members that changed nothing, such as adding a rule that existed.
                and journal.kept(one.operation_id) is not None
            ]
        return there or [operation]

    @in_thread
    def undoable(self, caller: Caller, limit: int = 20) -> list[UndoCandidate]:
        """Return the newest changes that the caller may see, and why some cannot be undone."""
        return self._candidates(caller, limit)

    @in_thread
    def candidate(self, caller: Caller, operation_id: str) -> UndoCandidate:
        """Return the changes of an operation, and why it cannot be undone.

        Raises:
            NotFound: the caller sees no such operation.
            Invalid: it changed nothing.
        """
        company_id = caller.company_id
        operation = self._runtime.log(company_id, self._runtime.visibility(caller)).named(
            operation_id
        )
        with self._runtime.database.read() as database:
            change = Journal(database, company_id).kept(operation.operation_id)
            if change is None:
                raise _nothing_to_undo(operation)
            together = self._together(database, caller, operation)
            return self._candidate(database, caller, operation, change, together)

    @in_thread
    def refuse_undo(self, caller: Caller, operation_ids: Sequence[str]) -> Together:
        """Check by the journal alone whether operations can be undone in turn; return the extent.

        Not logged.

        Raises:
            Invalid: one of them changed nothing, or cannot be undone.
            Conflict: there is only one, and it was undone already.
        """
        found: dict[str, Operation] = {}
        for one in operation_ids:
            left, *others = self._done_together(caller, one)
            found |= {each.operation_id: each for each in (left, *others)}
            # Of several: undoing an earlier one can redo one that is undone now.
            with suppress(Conflict) if len(operation_ids) > 1 else nullcontext():
                self._pick(caller, left.operation_id)
        with self._runtime.database.read() as database:
            return _extent(database, found.values())

    def _candidates(self, caller: Caller, limit: int) -> list[UndoCandidate]:
        company_id, visibility = caller.company_id, self._runtime.visibility(caller)
        found: list[UndoCandidate] = []
        known: dict[str, Together | None] = {"": None}
        with (
            self._runtime.database.read() as database,
            closing(Journal(database, company_id).undoable()) as undoable,
        ):
            while len(found) < limit and (
                some := {o.operation_id: o for o in islice(undoable, limit)}
            ):
                for operation in self._runtime.log(company_id, visibility).by_ids(list(some)):
                    change = some[operation.operation_id]
                    name = str(operation.request.get("together") or "")
                    if name not in known:
                        known[name] = self._together(database, caller, operation)
                    together = known[name]
                    found.append(self._candidate(database, caller, operation, change, together))
        return found[:limit]

    def _together(
        self, database: DatabaseConnection, caller: Caller, operation: Operation
    ) -> Together | None:
        """Return the extent of undoing an operation with its group; None: it has no group."""
        done = self._done_together(caller, operation.operation_id)
        is_alone = [one.operation_id for one in done] == [operation.operation_id]
        return None if is_alone else _extent(database, done)

    def _candidate(
        self,
        database: DatabaseConnection,
        caller: Caller,
        operation: Operation,
        change: Undoable,
        together: Together | None,
    ) -> UndoCandidate:
        journal, visibility = Journal(database, caller.company_id), self._runtime.visibility(caller)
        steps = journal.steps_left(operation)
        settings = journal.settings_changed(operation.operation_id)
        only, before = None, None
        if len(steps) == 1:
            seen = received(caller, change_of(operation, steps[0], visibility))
            only, before = seen.after or seen.before, seen.before
        may_know = partial(
            self._runtime.module(Review).may_know, caller=caller, visibility=visibility
        )
        return UndoCandidate(
            operation=operation,
            records=len(steps),
            record=only,
            before=before,
            settings=tuple(filter(may_know, settings)),
            together=together,
            why_not=_why_not(operation, change),
        )

    def _unsettled(self, caller: Caller, operation_id: str) -> list[str]:
        """Return the interrupted undos of an operation, whose outcome is unknown."""
        operation = self._runtime.log(caller.company_id, self._runtime.visibility(caller)).named(
            operation_id
        )
        with self._runtime.database.read() as database:
            return Journal(database, caller.company_id).unsettled_undos(operation.operation_id)

    def _pick(
        self, caller: Caller, operation_id: str | None, records: Collection[str] = ()
    ) -> tuple[Operation, list[Step], list[SettingChange]]:
        company_id = caller.company_id
        if operation_id is None:
            newest = self._candidates(caller, 1)
            if not newest:
                raise NotFound("There is nothing to undo.")
            operation = newest[0].operation
            which = f"The last change, {operation.operation_type} #{operation.seq},"
        else:
            operation = self._runtime.log(company_id, self._runtime.visibility(caller)).named(
                operation_id
            )
            which = f"The {operation.operation_type} #{operation.seq}"
        if (why := _NEVER.get(operation.operation_type)) is not None:
            raise Invalid(f"{which} cannot be undone. {why}")
        with self._runtime.database.read() as database:
            journal, asked = Journal(database, company_id), operation.operation_id
            kept, left = journal.kept(asked), journal.in_force(asked)
            steps = [
                step for step in journal.steps(asked) if step[0].handle.provider_record_id in left
            ]
            changed = journal.settings_changed(asked) if SETTINGS in left else []
            if kept is None or kept.status not in {OperationStatus.OK, OperationStatus.UNKNOWN}:
                raise _nothing_to_undo(operation)
            if (why_not := _why_not(operation, kept)) is not None:
                raise Invalid(f"{which} cannot be undone. {why_not}")
            _refuse_undone(database, operation)
            if records:
                chosen: set[str] = set()
                for name in records:
                    if not (ids := self._ids_left(database, operation, name)):
                        raise _not_of(operation, name)
                    chosen |= ids
                part = [one for one in steps if one[0].handle.provider_record_id in chosen]
                # Settings, as a write that waits again, come back with the last of the records.
                steps, changed = part, changed if len(part) == len(steps) else []
        return operation, steps, changed

    async def _settings_back(
        self, entry: RunningOperation, operation: Operation, changed: Sequence[SettingChange]
    ) -> MutationAnswer:
        """Restore settings, in one transaction that also journals their current values.

        Raises:
            Denied: the caller may not change the settings.
            Conflict: one of them has changed since; a restored binding's storage is another
                company's by now; or the settings would contradict each other.
            Invalid: a revoked token would be restored.
        """
        if {change.setting for change in changed} == {settings.PENDING}:
            await self._runtime.module(Review).may_decide(entry, changed)
        elif {change.setting for change in changed} == {settings.RISK}:
            await self._runtime.may_dismiss(entry.caller, [operation.scope])
        else:
            await self._runtime.refuse_configuring(entry.caller)
        company_id = entry.caller.company_id
        kinds = {change.setting for change in changed}

        def change(database: DatabaseConnection) -> None:
            for look_again in looks:
                look_again(database)
            _refuse_undone(database, operation)
            there = settings.read(database, company_id, kinds)
            for one in reversed(changed):
                now = settings.shown(there, settings.place_of(company_id, one))
                if not settings.same(now, one.after):
                    raise Conflict(
                        f"The {one.name} has changed since operation "
                        f"{operation.operation_id}; undo what came after it first, or set it by "
                        "hand."
                    )
                if one.setting == "token" and one.before is not None:
                    raise Invalid(REVOKED)
                settings.put(database, company_id, one)
            refuse_impossible(database, company_id)

        entry.result_count = len(changed)
        looks = [
            await refuse_shared(self._runtime, BindingRow(**one.before))
            for one in changed
            if one.setting == "binding" and one.before is not None
        ]
        await self._runtime.configure(entry, change, kinds)
        for one in changed:
            if (row := one.before or one.after) and one.setting == "binding":
                await self._runtime.reopen(BindingRow(**row))
        return MutationAnswer(
            **entry.answer(), undoes=operation.operation_id, settings=tuple(entry.settings)
        )

    async def ask_later(self, caller: Caller) -> tuple[str, ...]:
        """Ask providers for the outcome of writes that they store later, where an answer is due.

        Returns the ids of those that have ended. It never waits long: a provider that does not
        answer is asked again later.
        """
        await asyncio.to_thread(self._runtime.visibility, caller)  # refuses strangers
        if caller.as_of is not None or self._runtime.database.read_only:
            return ()
        due = await self._runtime.ask_journal(
            caller.company_id, Journal.later_writes, self._runtime.clock()
        )
        if not due:
            return ()
        rows = await self._runtime.ask(bindings.bindings, caller.company_id)
        there = {row.key for row in rows if row.enabled}
        seen = await self._runtime.module(LoggedOperations).by_ids(caller, list(due))
        ended: list[str] = []
        until = monotonic() + _LOOK_SECONDS
        for one in seen:
            if due[one.operation_id] not in there or monotonic() >= until:
                continue
            with suppress(MemtuiError):  # such as a log that cannot be written now
                found = await self.check_outcome(caller, one.operation_id, by_itself=True)
                if found.happened is not None:
                    ended.append(one.operation_id)
        return tuple(ended)

    @to_its_end
    async def check_outcome(
        self, caller: Caller, operation_id: str, *, by_itself: bool = False
    ) -> OutcomeCheck:
        """Find out whether an operation of unknown outcome happened.

        The finding is logged as a separate operation; a change found can then be undone. An earlier
        finding stands, since the records may have changed for other reasons since. `by_itself`:
        memtui asks again about a write that is stored later. It does not wait long, a failure is
        a finding, and the log hides the check while nothing is found.

        Raises:
            Invalid: the operation's status is not unknown.
            Conflict: its binding was removed and its key reused.
        """
        asked = await self._runtime.module(LoggedOperations).get(caller, operation_id)
        if asked.status is not OperationStatus.UNKNOWN:
            raise Invalid(f"The outcome of {asked.operation_id} is known: {asked.status}.")
        known = await self._runtime.module(LoggedOperations).found_outcome(
            caller, asked.operation_id
        )
        if known is not None and known.happened is not None:
            return known
        if "event" in asked.request:
            return await self._check_later(caller, asked, by_itself=by_itself)
        async with self._runtime.connected(
            OperationType.CHECK,
            caller,
            asked.asked_scope,
            UndoDetails(checks=asked.operation_id),
            asked.binding_key,
            source=asked.source,
        ) as (entry, connection):
            await self._refuse_other_binding(asked)
            known_steps = await self._runtime.ask_journal(
                caller.company_id, Journal.steps, asked.operation_id
            )
            before = [state for state, _ in known_steps]
            if before:
                finding = await self._look_for_changed(connection, asked, before)
            else:
                finding = await self._look_for_written(connection, asked)
            if asked.operation_type is OperationType.CORRECT and _is_gone(finding.steps):
                [(old, _)] = finding.steps
                written = await self._look_for_written(connection, asked)
                for _, now in written.steps:  # it may have got another id
                    finding = finding._replace(steps=[*finding.steps, *written.steps])
                    if now is not None:
                        entry.links[old.handle.provider_record_id] = now.handle.provider_record_id
            keeps_ids = connection.adapter.capabilities.keeps_ids
            if asked.operation_type is OperationType.UNDO and not keeps_ids:
                finding = await self._with_what_came_back(
                    connection, asked, before, finding, entry.links
                )
            return _concluded(entry, finding)

    async def _check_later(
        self, caller: Caller, asked: Operation, *, by_itself: bool
    ) -> OutcomeCheck:
        """Ask the provider for the outcome of a write that it stores later."""
        scope = asked.asked_scope.outside_run()  # a run ends before its texts are stored
        request = UndoDetails(checks=asked.operation_id)
        async with self._runtime.recorder.recorded(
            OperationType.CHECK, caller, scope, request, asked.source
        ) as entry:
            try:
                async with asyncio.timeout(_LOOK_SECONDS if by_itself else None):
                    connection = await self._runtime.connect(entry, asked.binding_key)
                    await self._refuse_other_binding(asked)
                    finding = await self._came_of(entry, connection, asked)
            except (MemtuiError, TimeoutError) as error:
                if not by_itself:
                    raise
                why = str(error) or f"It did not answer within {_LOOK_SECONDS:g} s."
                sentence = f"{asked.binding_key} could not be asked: {why}"
                finding = OutcomeFinding(asked, happened=None, sentence=sentence, steps=())
            entry.to_show = by_itself and finding.happened is None
            return _concluded(entry, finding)

    async def _came_of(
        self, entry: RunningOperation, connection: Connection, asked: Operation
    ) -> OutcomeFinding:
        """Return the provider's answer about a write that it stores later."""
        scope, key, event = asked.asked_scope, connection.binding.key, asked.request["event"]
        unknown = OutcomeFinding(asked, happened=None, sentence="", steps=())
        try:
            reply = await connection.read(partial(connection.adapter.ingested, event, scope))
        except NotFound:
            found = await self._look_for_written(connection, asked)
            lost = f"{key} no longer knows the event {event}, so what it stored is not known."
            return found if found.happened else unknown._replace(sentence=lost)
        except Invalid as error:
            return unknown._replace(happened=False, sentence=f"It did not happen: {error}")
        if reply is None:
            return unknown._replace(sentence=f"{key} has not stored it yet; memtui asks again.")
        entry.usage += reply.usage
        known = {one.handle: one for one in reply.before}
        befores = [known.get(one, Snapshot(handle=one, record=None)) for one in reply.records]
        # As the company, since a purge may have erased whose they are from the operation.
        now = await connection.snapshots(reply.records, Scope(company_id=scope.company_id))
        # Asked after the records were read, so that a change which came meanwhile is found too.
        since = await self._runtime.ask_journal(
            asked.scope.company_id, _found_since, asked, befores
        )
        left = [then or one for one, (_, then) in zip(now, since, strict=True)]
        kept = "1 record" if len(left) == 1 else f"{len(left):,} records"
        sentence = f"It happened: {key} stored {kept if left else 'nothing of it'}."
        steps = list(zip(befores, left, strict=True))
        return unknown._replace(happened=True, sentence=sentence, steps=steps)

    async def _with_what_came_back(
        self,
        connection: Connection,
        asked: Operation,
        before: Sequence[Snapshot],
        finding: OutcomeFinding,
        links: dict[str, str],
    ) -> OutcomeFinding:
        """Look for records that an undo restored under other ids; adds these to `links`."""
        changed = list(finding.steps) if finding.happened else []
        there = {old.handle for old, _ in changed}
        undone = await self._runtime.ask_journal(
            asked.scope.company_id, Journal.steps, asked.undoes or ""
        )
        texts = {old.handle: old.record.text for old, _ in undone if old.record}
        found: set[RecordHandle] = set()
        for old in before:
            if old.record is not None or old.handle in there or old.handle not in texts:
                continue
            written = await self._look_for_written(connection, asked, texts[old.handle], found)
            if written.happened is None and not finding.happened:
                finding = written  # undecided, so the undo must not count as not done
            for gone, now in written.steps:
                # Two steps, as for any record restored under another id: the old id stays gone.
                changed += [(old, old), (gone, now)]
                found.add(gone.handle)
                links[old.handle.provider_record_id] = gone.handle.provider_record_id
        if not found:
            return finding
        part = "" if len(there) + len(found) == len(before) else " in part"
        back = "1 record is" if len(found) == 1 else f"{len(found):,} records are"
        sentence = f"It happened{part}: {back} back under another id."
        return OutcomeFinding(asked, happened=True, sentence=sentence, steps=changed)

    async def _look_for_changed(
        self, connection: Connection, asked: Operation, before: Sequence[Snapshot]
    ) -> OutcomeFinding:
        """Compare records with their state before an operation of unknown outcome.

        A record that another operation has changed since is compared as that one found it.
        """
        since = await self._runtime.ask_journal(asked.scope.company_id, _found_since, asked, before)
        left = [
            old.handle
            for old, (was_changed, _) in zip(before, since, strict=True)
            if not was_changed
        ]
        scope = reaching(asked.asked_scope, [one.record for one in before if one.record])
        now = iter(await connection.snapshots(left, scope) if left else ())
        after = [found if was_changed else next(now) for was_changed, found in since]
        return _compare(asked, before, after, is_past=len(left) < len(before))

    async def _look_for_written(
        self,
        connection: Connection,
        asked: Operation,
        text: str = "",
        others: Collection[RecordHandle] = (),
    ) -> OutcomeFinding:
        """Look for a record with the written text, or with `text`; skip `others`."""
        content = text or str(asked.request.get("content") or "")
        known = content or CONTENT in asked.salts
        if not known or not connection.adapter.capabilities.browse:
            sentence = "The provider does not show it, so memtui cannot tell whether it happened."
            return OutcomeFinding(asked, happened=None, sentence=sentence, steps=())
        words = " ".join(content.split()[:_SEARCHED_WORDS]) or None
        request = BrowseRequest(scope=asked.asked_scope, filter=Filter(text=words))
        async for page in connection.pages(request):
            for record in page.records:
                same = (
                    record.text.startswith(content)  # the log has only the beginning of a long text
                    if content
                    else is_value_of(asked, CONTENT, record.text)
                )
                if (
                    same
                    and text in {"", record.text}
                    and record.handle not in others
                    and not await self._is_known(asked, record.handle)
                ):
                    sentence = "It happened: a record holds the text."
                    [now] = await connection.snapshots([record.handle], asked.asked_scope)
                    step = Snapshot(handle=record.handle, record=None), now
                    return OutcomeFinding(asked, happened=True, sentence=sentence, steps=[step])
        if page.at_least:
            words = "The provider shows only a part of its records, and none there holds the text."
            return OutcomeFinding(asked, happened=None, sentence=words, steps=())
        company_id = asked.scope.company_id
        for one in await self._runtime.ask_journal(company_id, Journal.texts_since, asked):
            if one.startswith(content) if content else is_value_of(asked, CONTENT, one):
                sentence = (
                    "A record with that text was changed since, so nobody can tell who wrote it."
                )
                return OutcomeFinding(asked, happened=None, sentence=sentence, steps=())
        return OutcomeFinding(
            asked, happened=False, sentence="It did not happen: no record holds the text.", steps=()
        )

    async def _is_known(self, asked: Operation, handle: RecordHandle) -> bool:
        """Whether the record existed before, or another operation has changed it since."""
        log, place = self._runtime.log(asked.scope.company_id), asked.binding_key or ""
        record_id = handle.provider_record_id
        ids = await asyncio.to_thread(log.mutations_of_record, place, record_id)
        others = await asyncio.to_thread(log.by_ids, [i for i in ids if i != asked.operation_id])
        was_gone = await self._runtime.ask_journal(
            asked.scope.company_id, Journal.was_gone, place, record_id, asked.started_at
        )
        changing = {OperationStatus.OK, OperationStatus.UNKNOWN}
        return any(
            one.status in changing and (not was_gone or one.seq > asked.seq) for one in others
        )


def _extent(database: DatabaseConnection, operations: Iterable[Operation]) -> Together:
    """Count the records and settings that undoing operations restores, by the journal."""
    records = count = waiting = 0
    keys: set[str | None] = set()
    for one in operations:
        journal = Journal(database, one.scope.company_id)
        change = journal.kept(one.operation_id)
        if change is None or _why_not(one, change) is not None:
            continue
        changed = len(journal.steps_left(one))
        changes = journal.settings_changed(one.operation_id)
        pending_writes = sum(each.setting == settings.PENDING for each in changes)
        records += changed
        keys |= {one.binding_key} if changed else set()
        count += len(changes) - pending_writes
        waiting += 0 if changed else pending_writes  # a record that waits again is counted
    return Together(records=records, bindings=len(keys), settings=count, waiting=waiting)


def _concluded(entry: RunningOperation, finding: OutcomeFinding) -> OutcomeCheck:
    """Log what a check found, and return it."""
    entry.finding = finding
    entry.request["happened"], entry.request["found"] = finding.happened, finding.sentence
    entry.about([before.handle for before, _ in finding.steps])
    return OutcomeCheck(
        check_id=entry.operation_id, happened=finding.happened, sentence=finding.sentence
    )


def _is_gone(steps: Sequence[Step]) -> bool:
    """Whether these steps belong to one record that existed and has lost its id."""
    if len(steps) != 1:
        return False
    [(before, after)] = steps
    return before.record is not None and after is not None and after.record is None


def _found_since(
    journal: Journal, asked: Operation, before: Sequence[Snapshot]
) -> list[tuple[bool, Snapshot | None]]:
    ids = [one.handle.provider_record_id for one in before]
    return [journal.next_state(asked, record_id) for record_id in ids]


def _compare(
    asked: Operation,
    before: Sequence[Snapshot],
    after: Sequence[Snapshot | None],
    *,
    is_past: bool,
) -> OutcomeFinding:
    """Compare records before and after an operation; a None after: its state is unknown.

    `is_past`: some have changed since; these are compared as the next change found them.
    """
    steps = list(zip(before, after, strict=True))
    changed = [
        (old, new)
        for old, new in steps
        if new is not None and state_of(old.record) != state_of(new.record)
    ]
    until = f"the {asked.operation_type}{' when changed next' if is_past else ''}"
    if not changed and None in after:
        sentence = "Its records were changed since, so nobody can tell whether it happened."
        return OutcomeFinding(asked, happened=None, sentence=sentence, steps=())
    if not changed:
        sentence = f"It did not happen: {_records(len(before), is_past=is_past)} as before {until}."
        return OutcomeFinding(asked, happened=False, sentence=sentence, steps=steps)
    if len(changed) == len(before):
        sentence = (
            f"It happened: {_records(len(changed), is_past=is_past)} no longer as before {until}."
        )
    else:
        sentence = (
            f"It happened in part: {len(changed)} of {_records(len(before), is_past=is_past)} "
            "no longer as before."
        )
    return OutcomeFinding(asked, happened=True, sentence=sentence, steps=changed)


def _records(count: int, *, is_past: bool) -> str:
    if count == 1:
        return "1 record was" if is_past else "1 record is"
    return f"{count:,} records {'were' if is_past else 'are'}"


def _review_back(
    changed: Sequence[SettingChange], database: DatabaseConnection, entry: RunningOperation
) -> None:
    """Return an accepted change to the queue, or on redo remove it, if the undo succeeds."""
    if entry.status is OperationStatus.OK:
        company_id = entry.caller.company_id
        entry.settings = tuple(pending.take_back(database, company_id, one) for one in changed)


def _refuse_late(
    operation: Operation,
    changed: Sequence[SettingChange],
    newest: int,
    database: DatabaseConnection,
    entry: RunningOperation,
) -> None:
    """Raise `Conflict` where another operation since, or under way, rules the undo out.

    `newest`: the sequence number of the newest operation when the records were read.
    """
    appending.hold(database, entry.caller.company_id)  # two at once would not see each other
    _refuse_undone(database, operation)
    _refuse_overtaken(database, entry, newest)
    _refuse_decided(changed, database, entry)


def _refuse_undone(database: DatabaseConnection, operation: Operation) -> None:
    """Raise `Conflict` where an operation was undone, or is being undone."""
    company_id = operation.scope.company_id
    undone_by = Journal(database, company_id).undone_by(operation.operation_id)
    if undone_by is not None:
        raise Conflict(f"It was already undone by {undone_by}; undo that one to redo it.")
    for one in appending.open_intents(database, company_id):
        if one.draft["undoes"] == operation.operation_id:
            raise _under_way("It is being undone", one.operation_id)


def _refuse_overtaken(database: DatabaseConnection, entry: RunningOperation, newest: int) -> None:
    """Raise `Conflict` where a record was changed after operation `newest`, or is being changed."""
    company_id, key = entry.caller.company_id, entry.binding.key if entry.binding else ""
    since = Journal(database, company_id).changed_since(key, newest)
    under_way = appending.changing(database, company_id, key)
    for record_id in (one.provider_record_id for one in entry.handles):
        if record_id in since:
            raise Conflict(
                f"{record_id} was changed by {since[record_id]} meanwhile; undo that one first, or "
                "correct it by hand."
            )
        if record_id in under_way:
            raise _under_way(f"{record_id} is being changed", under_way[record_id])


def _under_way(event: str, operation_id: str) -> Conflict:
    return Conflict(
        f"{event} by {operation_id}; if that does not end, `memtui ops check {operation_id}` finds "
        "out what became of it."
    )


def _refuse_decided(
    changed: Sequence[SettingChange], database: DatabaseConnection, entry: RunningOperation
) -> None:
    """Raise `Conflict` where an accepted change is pending again, or was decided on since."""
    for one in changed:
        row = pending.one(database, entry.caller.company_id, one.key["pending_id"])
        if (row is None) is not (one.after is None) or (row is not None and row.decider):
            raise Conflict(f"The {one.name} was decided on since; undo what came after it first.")


def _not_of(operation: Operation, name: str) -> Invalid:
    return Invalid(
        f"{name} is not among the records that undoing operation {operation.operation_id} "
        f"restores; `memtui ops show {operation.operation_id}` lists them."
    )


def _nothing_to_undo(operation: Operation) -> Invalid:
    return Invalid(
        f"Operation {operation.operation_id} ({operation.operation_type}, "
        f"{operation.status}) changed nothing, so there is nothing to undo."
    )


def _why_not(operation: Operation, found: Undoable) -> str | None:
    if found.status is OperationStatus.UNKNOWN:
        return (
            "Its outcome is unknown; "
            f"`memtui ops check {operation.operation_id}` tells whether it happened."
        )
    return found.irreversible


def state_of(record: Record | None) -> str | None:
    """Return a value that is equal while a record is unchanged: its revision, else its fields."""
    if record is None:
        return None
    return record.revision or record.model_dump_json(include=set(_SAID))


def _came_back(left: Record | None, now: Record | None) -> bool:
    """Whether a record is back under another id, with the same fields.

    A failed correction can cause that; it journals no state before and after.
    """
    if left is None or now is None or left.handle == now.handle:
        return False
    return all(getattr(left, name) == getattr(now, name) for name in _SAID)


def reaching(scope: Scope, records: Iterable[Record]) -> Scope:
    """Return the scope in which a provider finds all records of an operation.

    An operation that named no user is logged with a user whose memories it touched, but may have
    touched those of others too; then the scope has no user.
    """
    if all(one.scope.subject_id == scope.subject_id for one in records):
        return scope
    return scope.model_copy(update={"subject_id": None})


async def _rebuild(
    entry: RunningOperation,
    connection: Connection,
    operation: Operation,
    befores: Sequence[Snapshot],
    now: Sequence[Snapshot],
) -> None:
    """Undo by single writes, for a provider without `restore`; links old ids to new ones."""
    if (exchanged := _exchanged(operation, befores, now)) is not None:
        old_id, change = exchanged
        corrected = await entry.mutate(connection, partial(connection.adapter.correct, change))
        entry.links[old_id] = corrected.handle.provider_record_id
        return
    for before, current in zip(befores, now, strict=True):
        if before.record is None and current.record is not None:
            gone = ForgetRequest.of([current.record], operation.scope, operation.binding_key)
            await entry.mutate(connection, partial(connection.adapter.forget, gone))
        elif before.record is not None and current.record is not None:
            old = _as_correction(operation, before.record, current.record)
            await entry.mutate(connection, partial(connection.adapter.correct, old))
        elif before.record is not None:
            again = as_write(before.record, operation.binding_key)
            reply = await entry.mutate(connection, partial(connection.adapter.write, again))
            old_id = before.handle.provider_record_id
            new_ids = [handle.provider_record_id for handle in reply.records]
            if new_ids and new_ids[0] != old_id:
                entry.links[old_id] = new_ids[0]


def _exchanged(
    operation: Operation, befores: Sequence[Snapshot], now: Sequence[Snapshot]
) -> tuple[str, CorrectRequest] | None:
    """Return the id that a correction replaced, and the correction that reverts it.

    Correcting is safer than write and forget: the provider knows a safe order, even when full.
    """
    steps = list(zip(befores, now, strict=True))
    if (pair := exchanged(operation.operation_type, steps)) is None:
        return None
    (old, _), (_, new) = pair
    if old.record is None or new is None or new.record is None:
        return None
    return old.handle.provider_record_id, _as_correction(operation, old.record, new.record)


def _as_correction(operation: Operation, before: Record, current: Record) -> CorrectRequest:
    """Return the correction that restores a record; it names only the fields that differ."""
    old, now = (
        {
            "pinned": one.pinned,
            "summary": one.summary or "",
            "topic": one.topic or "",
            "tags": one.tags,
        }
        for one in (before, current)
    )
    expiry = {"expires_at": before.expires_at, "never_expires": before.expires_at is None}
    return CorrectRequest(
        scope=operation.scope,
        handle=current.handle,
        binding_key=operation.binding_key,
        text=before.text,
        revision=current.revision,
        **{name: value for name, value in old.items() if value != now[name]},
        **(expiry if before.expires_at != current.expires_at else {}),
    )


def as_write(record: Record, binding_key: str | None) -> WriteRequest:
    """Return the write that stores a record again, with every field that a write has."""
    return WriteRequest.like(
        record,
        content=record.text,
        binding_key=binding_key,
        record_id=record.handle.provider_record_id,
    )


def _moved(handle: RecordHandle, links: dict[str, str]) -> RecordHandle:
    new_id = links.get(handle.provider_record_id)
    return handle if new_id is None else handle.model_copy(update={"provider_record_id": new_id})
