"""The undo journal: each record and setting before and after every change.

An irreversible change leaves a row too, so that undoing never reaches past it. A second table links
the ids that records had before an undo to those under which they came back.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from memtui.contract import Model, OperationStatus, OperationType, Record, Scope, Snapshot
from memtui.store import pending, statements
from memtui.store.appending import Step, keep, record
from memtui.store.database import DatabaseConnection
from memtui.store.operation import Operation, OperationDraft, as_member
from memtui.store.settings import PENDING, SettingChange
from memtui.store.statements import Statement

SETTINGS = ""
"""In place of a record id: the row is a change of settings."""
_FIRST_CHECK = timedelta(seconds=2)
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


class OutcomeCheck(Model):
    """The logged result of checking an operation of unknown outcome."""

    check_id: str
    """The operation that found it."""
    happened: bool | None
    """None: the provider does not show whether it happened."""
    sentence: str
    """The result as a sentence."""


class OutcomeFinding(NamedTuple):
    """The result of checking an operation of unknown outcome, to be logged."""

    checked: Operation
    happened: bool | None
    sentence: str
    steps: Sequence[Step]
    """The records that it changed, before and after."""


class Undoable(NamedTuple):
    """A change that was not undone."""

    operation_id: str
    status: OperationStatus
    """`OK`, or `UNKNOWN` where its outcome is not known."""
    changed: int
    """How many records or settings it changed; 0 where it is irreversible."""
    irreversible: str | None
    """Why it cannot be undone; None: it can."""


class Then(NamedTuple):
    """The state at a moment of a record that was changed later."""

    record: Record | None
    """None: it did not exist."""
    taken_back: bool
    """A change before the moment was undone later, so the provider's history may lack it."""


class StepSince(NamedTuple):
    """A change of a record, without the record's content."""

    record_id: str
    operation_id: str
    at: datetime
    scope: Scope
    """The record's."""
    was_there: bool
    is_there: bool
    taken_back: bool
    """It is an undo, or was undone later."""


class TakenBack(NamedTuple):
    """The part of an operation that undos took back, which were not themselves undone."""

    undo_id: str
    """The undo; the newest, if several took back a part each."""
    record_ids: frozenset[str]
    whole: bool
    """Nothing of the operation is in force any more."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The undo journal of a company, in the transaction of a connection."""

    connection: DatabaseConnection
    company_id: str

    def _rows(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        return statement.rows(self.connection, company_id=self.company_id, **values)

    def _of_record(self, binding_key: str, record_id: str) -> list[tuple[Any, ...]]:
        return self._rows(
            statements.STEPS_OF_RECORD, binding_key=binding_key, provider_record_id=record_id
        )

    def found_of(self, operation_id: str, until: datetime | None = None) -> OutcomeCheck | None:
        """Return the last result of checking an operation, up to a moment if one is given."""
        for check_id, at, kept in self._rows(statements.FINDINGS, undoes=operation_id):
            if until is None or at <= until:
                return OutcomeCheck(check_id=check_id, **kept["found"])
        return None

    def later_writes(self, now: datetime) -> dict[str, str]:
        """Return the writes whose provider stores later and is to be asked again; their bindings.

        It is asked two seconds after the write, and then once twice the time of the last check has
        passed.
        """
        due: dict[str, str] = {}
        for operation_id, begun, key, request in self._rows(statements.UNKNOWN_WRITES):
            if not request.get("event"):
                continue
            checks = self._rows(statements.FINDINGS, undoes=operation_id)
            known = any(kept["found"]["happened"] is not None for *_, kept in checks)
            waited = checks[0][1] - begun if checks else timedelta(0)
            if not known and now - begun >= max(_FIRST_CHECK, 2 * waited):
                due[operation_id] = key
        return due

    def steps(self, operation_id: str) -> list[Step]:
        """Return each record before and after an operation, in the order of the changes."""
        rows = self._rows(statements.STEPS, operation_id=operation_id)
        return [_step(before, after) for before, after in rows if "handle" in before]

    def record_steps(self, operation: Operation) -> list[Step]:
        """Return each record before and after an operation, as one step even if its id changed."""
        found = [
            (before, after)
            for before, after in self.steps(operation.operation_id)
            # Left out: ids absent before and after, as an undo restored them under another.
            if before.record or after is None or after.record
        ]
        if (pair := exchanged(operation.operation_type, found)) is None:
            return found
        gone, new = pair
        return [(gone[0], new[1]) if one is gone else one for one in found if one is not new]

    def steps_left(self, operation: Operation) -> list[Step]:
        """Return `record_steps` still in force, if the operation was partly undone; else all."""
        found = self.record_steps(operation)
        left = self.in_force(operation.operation_id)
        return [one for one in found if one[0].handle.provider_record_id in left] or found

    def settings_changed(self, operation_id: str) -> list[SettingChange]:
        """Return each setting before and after an operation."""
        rows = self._rows(statements.STEPS, operation_id=operation_id)
        return [
            SettingChange.model_validate(before["changed"])
            for before, _ in rows
            if "changed" in before
        ]

    def binding_changes(self, key: str, since: int) -> list[SettingChange]:
        """Return the changes of a binding after operation number `since`, in order."""
        rows = self._rows(statements.SETTINGS_SINCE, seq=since)
        changes = [before["changed"] for (before,) in rows if "changed" in before]
        return [
            SettingChange.model_validate(one)
            for one in changes
            if one["setting"] == "binding" and one["key"]["key"] == key
        ]

    def changes_of_record(self, binding_key: str, record_id: str) -> dict[str, Step]:
        """Return the steps of one record by operation id."""
        rows = self._of_record(binding_key, record_id)
        return {operation_id: _step(before, after) for operation_id, _, before, after in rows}

    def stored_by(self, binding_key: str, record_id: str) -> str | None:
        """Return the last operation, other than an undo, that created a record."""
        rows = self._of_record(binding_key, record_id)
        stored = [
            one for one, undoes, before, _ in rows if not (undoes or _snapshot(before).record)
        ]
        return stored[-1] if stored else None

    def changed_since(self, binding_key: str, since: int) -> dict[str, str]:
        """Return, by record id, the operation that changed it after operation number `since`."""
        return dict(self._rows(statements.CHANGED_SINCE, binding_key=binding_key, seq=since))

    def led_back(self, binding_key: str, record_id: str) -> list[tuple[Record, Record]]:
        """Return, for each undone change of a record, the record before it and after the undo.

        Both have the same content; a provider that counts revisions has two revisions of it.
        """
        links: dict[str, tuple[str | None, Record | None, Record | None]] = {}
        for one in self.ids_of(binding_key, record_id):
            for operation_id, undoes, *states in self._of_record(binding_key, one):
                before, after = _step(*states)
                _, was, now = links.get(operation_id, (undoes, None, None))
                left = after.record if after else None
                links[operation_id] = undoes, was or before.record, now or left
        pairs = [(links[undoes][1], now) for undoes, _, now in links.values() if undoes in links]
        return [(found, made) for found, made in pairs if found and made]

    def states_at(self, binding_key: str, moment: datetime) -> dict[str, Then]:
        """Return by id the state at a moment of a binding's records that were changed after it."""
        rows = self._rows(statements.STEPS_SINCE, binding_key=binding_key, since=moment)
        later = {operation_id for _, operation_id, *_ in rows}
        firsts: dict[str, dict[str, Any]] = {}
        back: set[str] = set()
        for record_id, _, operation_type, undoes, _, before, _ in rows:
            firsts.setdefault(record_id, before)
            if operation_type == OperationType.UNDO and undoes not in later:
                back.add(record_id)
        return {
            record_id: Then(_snapshot(before).record, record_id in back)
            for record_id, before in firsts.items()
        }

    def next_state(self, operation: Operation, record_id: str) -> tuple[bool, Snapshot | None]:
        """Return whether a record was changed again after an operation, and the state then.

        The state is None where it was erased, or where that change may have come during the
        operation.
        """
        rows = self._rows(
            statements.NEXT_STEP,
            binding_key=operation.binding_key or "",
            provider_record_id=record_id,
            operation=operation.operation_id,
            after=operation.seq,
            since=operation.started_at,
        )
        if not rows:
            return False, None
        [(seq, before)] = rows
        return True, _snapshot(before) if before and seq > operation.seq else None

    def texts_since(self, operation: Operation) -> list[str]:
        """Return the texts that later changes replaced in records of an operation's binding."""
        key, since = operation.binding_key or "", operation.started_at
        rows = self._rows(statements.STEPS_SINCE, binding_key=key, since=since)
        befores = [_snapshot(before).record for *_, before, _ in rows]
        return [record.text for record in befores if record is not None]

    def steps_since(self, binding_key: str, since: datetime) -> list[StepSince]:
        """Return the changes of a binding's records after a moment, the oldest first."""
        rows = self._rows(statements.STEPS_SINCE, binding_key=binding_key, since=since)
        undone = {(one, undoes) for one, _, does, undoes, *_ in rows if does == OperationType.UNDO}
        found: list[StepSince] = []
        for record_id, operation_id, _, undoes, at, before, after in rows:
            was, now = before.get("record"), (after or {}).get("record")
            if was or now:
                scope = Scope.model_validate((now or was)["scope"])
                back = undoes is not None or (record_id, operation_id) in undone
                found.append(
                    StepSince(record_id, operation_id, at, scope, bool(was), bool(now), back)
                )
        return found

    def earlier_facts(self, binding_key: str, until: datetime | None) -> list[Record]:
        """Return the earlier versions of a binding's facts that memtui replaced or deleted.

        The oldest first, each with the window in which it was valid; up to a moment, if one is
        given.
        """
        found: list[Record] = []
        since: dict[str, datetime] = {}
        rows = self._rows(statements.STEPS_SINCE, binding_key=binding_key, since=_EVER)
        for record_id, _, _, _, at, before, after in rows:
            was, now = before.get("record"), (after or {}).get("record")
            if (until is not None and at > until) or (was or now or {}).get("kind") != "fact":
                continue
            if not was:
                since[record_id] = at
            elif now is None or now["text"] != was["text"]:
                record = _snapshot(before).record
                if record is not None:
                    begun = since.get(record_id, record.valid_from or record.created_at)
                    window = {"valid_from": begun, "valid_to": at}
                    found.append(record.model_copy(update=window))
                since[record_id] = at
        return found

    def last_seen(self, binding_key: str, record_id: str, by: datetime) -> Record | None:
        """Return a record after its last change up to a moment; None: no change, or it was gone."""
        left = self._last_left(binding_key, record_id, by)
        return left.record if left else None

    def was_gone(self, binding_key: str, record_id: str, by: datetime) -> bool:
        """Return whether the last change of a record up to a moment deleted it."""
        left = self._last_left(binding_key, record_id, by)
        return left is not None and left.record is None

    def last_left(self, binding_key: str, since: datetime, ids: Sequence[str]) -> dict[str, Record]:
        """Return by id the records after their last change since a moment, without deleted ones."""
        found: dict[str, Record | None] = {}
        for asked in statements.id_lists(ids):
            rows = self._rows(statements.LAST_STEPS, binding_key=binding_key, since=since, **asked)
            last = {record_id: after for record_id, after in rows if after}
            found |= {record_id: _snapshot(after).record for record_id, after in last.items()}
        return {record_id: record for record_id, record in found.items() if record}

    def _last_left(self, binding_key: str, record_id: str, by: datetime) -> Snapshot | None:
        rows = self._rows(
            statements.LAST_STEP, binding_key=binding_key, provider_record_id=record_id, by=by
        )
        return _snapshot(rows[0][0]) if rows and rows[0][0] else None

    def taken_back(
        self, operation_ids: Sequence[str], until: datetime | None = None
    ) -> dict[str, TakenBack]:
        """Return by id what undos took back of operations; absent: they took nothing.

        Only undos up to `until` count, if it is given.
        """
        found = {}
        for asked in statements.id_lists(operation_ids):
            for (one,) in self._rows(statements.UNDONE, **asked):
                left, undo_id = self._left(one, until)
                gone = self._touched(one).keys() - left
                whole = not any(left.values())
                if undo_id is not None and (gone or whole):  # else a purge erased what it took back
                    found[one] = TakenBack(undo_id, frozenset(gone - {SETTINGS}), whole)
        return found

    def undone_by(self, operation_id: str) -> str | None:
        """Return the undo that took back all of an operation; None: some of it is in force."""
        if not self._rows(statements.UNDOING, undoes=operation_id):
            return None
        left, undo_id = self._left(operation_id, None)
        return None if any(left.values()) else undo_id

    def in_force(self, operation_id: str) -> set[str]:
        """Return the ids of the records whose change by an operation was not undone.

        `SETTINGS` among them stands for the operation's changes of settings.
        """
        left, _ = self._left(operation_id, None)
        return {record_id for record_id, is_changed in left.items() if is_changed}

    def _left(
        self, operation_id: str, until: datetime | None
    ) -> tuple[dict[str, bool], str | None]:
        """Return the ids that an operation touched and no undo did, and whether each changed.

        Also return the newest operation that undid something.
        """
        left, newest = self._touched(operation_id), None
        undoing = self._rows(statements.UNDOING, undoes=operation_id)
        for undo_id, at, status in undoing:
            if status == OperationStatus.OK and (until is None or at <= until):
                back, redone_by = self._left(undo_id, until)
                if any(back.values()) or redone_by is None:  # an erased undo lists no records
                    left = {one: is_changed for one, is_changed in left.items() if one not in back}
                    newest = newest or str(undo_id)
        return left, newest

    def _touched(self, operation_id: str) -> dict[str, bool]:
        found = {}
        for before, after in self._rows(statements.STEPS, operation_id=operation_id):
            if "changed" in before:
                found[SETTINGS] = True
            elif "handle" in before:
                # Unchanged: an id absent before and after, as an undo restored it elsewhere.
                is_changed = bool(before["record"] or after is None or after["record"])
                found[before["handle"]["provider_record_id"]] = is_changed
        return found

    def unsettled_undos(self, operation_id: str) -> list[str]:
        """Return the undos of an operation that have an unknown outcome and were never checked."""
        undoing = self._rows(statements.UNDOING, undoes=operation_id)
        return [
            str(undo_id)
            for undo_id, _, status in undoing
            if status == OperationStatus.UNKNOWN and self.found_of(undo_id) is None
        ]

    def undoable(self) -> Generator[Undoable, None, None]:
        """Yield the changes that were not undone, irreversible ones too, newest first."""
        changes = statements.CHANGES.each(self.connection, company_id=self.company_id)
        with closing(changes):
            for operation_id, operation_type, status in changes:
                took_back = (operation_type, status) == (OperationType.UNDO, OperationStatus.OK)
                if took_back or self.undone_by(operation_id) is not None:
                    continue
                if (change := self.kept(operation_id)) is not None:
                    yield change

    def kept(self, operation_id: str) -> Undoable | None:
        """Return the journal's entry of an operation's change; None: it changed nothing."""
        rows = self._rows(statements.FIRST_STEP, operation_id=operation_id)
        if not rows:
            return None
        [(status, before, erased_by)] = rows
        irreversible = before.get("irreversible")
        count = 0
        if irreversible is None:
            [(count,)] = self._rows(statements.COUNT_STEPS, operation_id=operation_id)
        if irreversible is None and not count:
            irreversible = f"Its records were erased by {erased_by}, so they cannot be restored."
        return Undoable(operation_id, as_member(OperationStatus, status), count, irreversible)

    def follow_link(self, binding_key: str, record_id: str) -> str | None:
        """Return the current id of a record that came back under another; None: it did not."""
        found = self._rows(statements.LINK, binding_key=binding_key, old_record_id=record_id)
        return str(found[0][0]) if found else None

    def ids_of(self, binding_key: str, record_id: str) -> list[str]:
        """Return all ids of the record that has or had this id, the current one first."""
        now = self.follow_link(binding_key, record_id) or record_id
        older = self._rows(statements.OLDER_IDS, binding_key=binding_key, new_record_id=now)
        return [now, *(old for (old,) in older)]

    def older_ids(self, binding_key: str, record_ids: Collection[str]) -> dict[str, str]:
        """Return the former ids of some records, each with the current one."""
        now = set(record_ids)
        return {old: new for old, new in self.moved_ids(binding_key).items() if new in now}

    def moved_ids(self, binding_key: str) -> dict[str, str]:
        """Return the former ids of all records that came back under another, with the present."""
        return dict(self._rows(statements.LINKS_OF, binding_key=binding_key))

    def binding_keys(self) -> set[str]:
        """Return the keys of the bindings in a company's journal."""
        rows = self._rows(statements.JOURNAL_BINDINGS)
        # Changes of settings have no binding.
        return {key for (key,) in rows} - {""}

    def forgotten_by_hand(self, limit: int) -> list[tuple[Record, datetime]]:
        """Return the newest records that people (not agents) forgot, newest first, and when."""
        rows = self._rows(statements.FORGOTTEN_BY_HAND, most=limit)
        found = [(_snapshot(before).record, at) for before, at in rows]
        return [(record, at) for record, at in found if record is not None]


def exchanged(operation_type: OperationType, found: Sequence[Step]) -> tuple[Step, Step] | None:
    """Return the step of the id that a record lost in a correction, and the step of its new id.

    None: its id stayed, or the operation is neither a correction nor an undo.
    """
    gone = [one for one in found if one[0].record and one[1] and not one[1].record]
    new = [one for one in found if one[1] and one[1].record and not one[0].record]
    corrects = operation_type in {OperationType.CORRECT, OperationType.UNDO}
    return (gone[0], new[0]) if corrects and len(gone) == len(new) == 1 else None


def _step(before: dict[str, Any], after: dict[str, Any] | None) -> Step:
    return _snapshot(before), _snapshot(after) if after else None


def _snapshot(value: dict[str, Any]) -> Snapshot:
    return Snapshot.model_validate(value)


def record_settings(
    connection: DatabaseConnection,
    operation: OperationDraft,
    seq: int,
    changed: Sequence[SettingChange],
    *,
    behind: int = 0,
) -> None:
    """Write each setting before and after to the journal, in order.

    Args:
        connection: With a write transaction.
        operation: The operation that changed them.
        seq: The operation's number.
        changed: The settings.
        behind: How many rows of records the operation has in the journal before them.
    """
    rows = [(SETTINGS, {"changed": change.model_dump(mode="json")}, None) for change in changed]
    keep(connection, operation, seq, rows, first=behind)


def record_irreversible(
    connection: DatabaseConnection, operation: OperationDraft, seq: int, why: str
) -> None:
    """Write to the journal that an operation made an irreversible change, and why."""
    keep(connection, operation, seq, [(SETTINGS, {"irreversible": why}, None)])


def settle(
    connection: DatabaseConnection, check: OperationDraft, seq: int, finding: OutcomeFinding
) -> None:
    """Log the result of a check, and rewrite the checked operation's journal rows to match.

    `seq` is the check's. An operation that proved to have happened can be undone from now on. If
    another check finished first, its finding is kept.
    """
    asked = finding.checked
    known = Journal(connection, asked.scope.company_id).found_of(asked.operation_id)
    if known is not None and known.happened is not None:
        return
    logged = check.model_copy(update={"undoes": asked.operation_id})
    found = {"happened": finding.happened, "sentence": finding.sentence}
    keep(connection, logged, seq, [(SETTINGS, {"found": found}, None)])
    if finding.happened is None:
        return
    place = {"company_id": asked.scope.company_id, "operation_id": asked.operation_id}
    statements.REMOVE_STEPS.run(connection, **place)
    status = OperationStatus.OK if finding.happened else OperationStatus.ERROR
    settled = asked.model_copy(update={"status": status})
    record(connection, settled, asked.seq, finding.steps)
    changed = _of_review(connection, asked, happened=finding.happened)
    record_settings(connection, settled, asked.seq, changed, behind=len(finding.steps))


def _of_review(
    connection: DatabaseConnection, asked: Operation, *, happened: bool
) -> list[SettingChange]:
    """Remove the decided pending change if the operation happened, else let it wait again."""
    company_id = asked.scope.company_id
    row = pending.decided_by(connection, company_id, asked.operation_id)
    if row is not None and happened:
        return [pending.remove(connection, row)]
    pending.release(connection, company_id, asked.operation_id)
    if not happened or asked.undoes is None:
        return []
    undone = Journal(connection, company_id).settings_changed(asked.undoes)
    return [
        pending.take_back(connection, company_id, one) for one in undone if one.setting == PENDING
    ]


def link(
    connection: DatabaseConnection,
    operation: OperationDraft,
    links: Mapping[str, str],
) -> None:
    """Store the ids under which records came back, and point their older ids there too."""
    company_id, key = operation.scope.company_id, operation.binding_key or ""
    journal = Journal(connection, company_id)
    for old, new in links.items():
        ids = [old]
        earlier = journal.follow_link(key, old)
        # If the record under `earlier` exists, the old id belongs to another record by now.
        if earlier and not journal.last_seen(key, earlier, operation.started_at):
            ids.insert(0, earlier)
        for one in ids:
            moved = {"company": company_id, "binding": key, "old": one, "new": new}
            statements.MOVE_LINKS.run(connection, **moved)
            statements.REMOVE_LINKS.run(connection, **moved)
            statements.ADD_LINK.run(
                connection,
                company_id=company_id,
                binding_key=key,
                old_record_id=one,
                new_record_id=new,
                operation_id=operation.operation_id,
            )
