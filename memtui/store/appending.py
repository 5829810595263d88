"""Writes an operation's intent, its rows in the log, and its steps in the undo journal."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from os import urandom
from typing import Any, TypeAlias

from memtui.contract import OperationType, Snapshot, Usage
from memtui.store import limits, statements
from memtui.store.database import DatabaseConnection, stored
from memtui.store.digest import GENESIS, SALT_BYTES, LogHead, digest_of
from memtui.store.operation import COLUMNS, OperationDraft
from memtui.store.rows import IntentRow

# A row to insert is a tuple of stored values in the order of its table's columns: every operation
# is written here, and converting a mapping takes three times as long.
Stored = tuple[Any, ...]
_values = attrgetter(*COLUMNS.values())
# Without a source, each of its columns gets the `source` itself: None.
_values_without_source = attrgetter(
    *("source" if path.startswith("source.") else path for path in COLUMNS.values())
)
_usage_values = attrgetter(*Usage.model_fields)
Step: TypeAlias = tuple[Snapshot, Snapshot | None]
"""A record before and after a mutation; after is None if the outcome is unknown."""


def append(connection: DatabaseConnection, draft: OperationDraft) -> int:
    """Append an operation to its company's log, in the caller's write transaction.

    Returns its `seq`.
    """
    return append_all(connection, [draft])


def append_all(connection: DatabaseConnection, drafts: Sequence[OperationDraft]) -> int:
    """Append operations of one company, in order; returns the last one's `seq`, 0 for none."""
    if not drafts:
        return 0
    company_id = drafts[0].scope.company_id
    first, previous, company = _take_head(connection, company_id)
    operations: list[Stored] = []
    usage: list[Stored] = []
    handles: list[Stored] = []
    for seq, draft in enumerate(drafts, first):
        salt = urandom(SALT_BYTES)
        digest = digest_of(draft, seq=seq, previous_digest=previous, salt=salt, company=company)
        operations.append(operation_row(draft, seq, previous, digest, salt))
        usage += usage_rows(draft, seq)
        handles += handle_rows(draft, seq)
        previous = digest
    statements.ADD_OPERATION.insert(connection, operations)
    statements.ADD_USAGE.insert(connection, usage)
    limits.add_up(connection, drafts)
    statements.ADD_HANDLE.insert(connection, handles)
    last = first + len(drafts) - 1
    statements.ADVANCE_HEAD.run(connection, company=company_id, last_seq=last, last_digest=previous)
    begun, _ = connection.heads[company_id]
    connection.heads[company_id] = begun, LogHead(last, previous)
    return last


def hold(connection: DatabaseConnection, company_id: str) -> None:
    """Lock a company's log against other appends until the caller's write transaction ends."""
    _take_head(connection, company_id)


def _take_head(connection: DatabaseConnection, company_id: str) -> tuple[int, str, bytes]:
    heads = statements.HEAD.rows(connection, company_id=company_id)
    if not heads:
        start = {"seq": 0, "digest": GENESIS, "salt": urandom(SALT_BYTES)}
        statements.ADD_HEAD.run(connection, company_id=company_id, **start)
        heads = statements.HEAD.rows(connection, company_id=company_id)
    [(seq, digest, salt)] = heads
    head = LogHead(seq, digest)
    connection.heads.setdefault(company_id, (head, head))  # in case a kill prevented its note
    return seq + 1, digest, salt


def begin(
    connection: DatabaseConnection,
    unseen: OperationDraft,
    before: Sequence[Snapshot],
    *,
    host: str,
    session: str,
) -> None:
    """Store the intent of a mutation that begins.

    Args:
        connection: With a write transaction.
        unseen: The operation as it will be logged if its outcome stays unknown.
        before: The records that it will change.
        host: The host of the process.
        session: The lock file that the process holds as long as it lives.
    """
    statements.BEGIN_INTENT.run(
        connection,
        operation_id=unseen.operation_id,
        company_id=unseen.scope.company_id,
        draft=unseen.model_dump(mode="json") | {"salts": unseen.salts},
        before=[snapshot.model_dump(mode="json") for snapshot in before],
        host=host,
        session=session,
        started_at=unseen.started_at,
    )


def end(connection: DatabaseConnection, operation_id: str) -> bool:
    """Remove the intent; returns whether it was still there."""
    return statements.END_INTENT.run(connection, operation_id=operation_id) > 0


def open_intents(connection: DatabaseConnection, company_id: str | None = None) -> list[IntentRow]:
    """Return the intents of unfinished mutations, of one company or of all."""
    waiting = statements.INTENTS.found(connection, IntentRow)
    return [row for row in waiting if company_id in {None, row.company_id}]


def changing(connection: DatabaseConnection, company_id: str, binding_key: str) -> dict[str, str]:
    """Return, by id of the record it changes, each unfinished mutation in a binding."""
    return {
        snapshot["handle"]["provider_record_id"]: row.operation_id
        for row in open_intents(connection, company_id)
        if row.draft["binding_key"] == binding_key
        for snapshot in row.before
    }


def writes(
    connection: DatabaseConnection,
    company_id: str,
    principal: str,
    within: str | datetime,
    *,
    excluding: str,
) -> int:
    """Return how often a principal wrote in a run, or since a moment; unfinished writes count.

    Writes through the channel `excluding` are not counted.
    """
    who = {"company_id": company_id, "principal": principal, "excluding": excluding}
    run_id = within if isinstance(within, str) else None
    if run_id is not None:
        found = statements.WRITES_OF_RUN.rows(connection, run_id=run_id, **who)
    else:
        found = statements.WRITES_SINCE.rows(connection, since=within, **who)
    drafts = (row.draft for row in open_intents(connection, company_id))
    under_way: int = sum(
        draft["operation_type"] == "write"
        and draft["principal"] == principal
        and draft["channel"] != excluding
        and run_id in {None, draft["scope"]["run_id"]}
        for draft in drafts
    )
    return int(found[0][0]) + under_way


def has_written(connection: DatabaseConnection, company_id: str, field: str, name: str) -> bool:
    """Return whether the hot log has a write for this `project_id` or `subject_id`."""
    asked = {
        "project_id": statements.WRITE_OF_PROJECT,
        "subject_id": statements.WRITE_OF_SUBJECT,
    }
    found = asked[field].rows(connection, company_id=company_id, **{field: name})
    return bool(found)


def record(
    connection: DatabaseConnection, operation: OperationDraft, seq: int, steps: Sequence[Step]
) -> None:
    """Write each record before and after to the journal, in order; `seq` is the operation's.

    Links from and to the id of a newly written record are removed: a provider that derives ids from
    content may reuse the id that a corrected record had.
    """
    if operation.operation_type is OperationType.WRITE:
        for before, after in steps:
            if before.record is None and after is not None and after.record is not None:
                statements.REMOVE_LINKS_OF.run(
                    connection,
                    company=operation.scope.company_id,
                    binding=operation.binding_key or "",
                    record=before.handle.provider_record_id,
                )
    keep(
        connection,
        operation,
        seq,
        [
            (
                before.handle.provider_record_id,
                before.model_dump(mode="json"),
                after.model_dump(mode="json") if after else None,
            )
            for before, after in steps
        ],
    )


def keep(
    connection: DatabaseConnection,
    operation: OperationDraft,
    seq: int,
    kept: Sequence[tuple[str, dict[str, Any], dict[str, Any] | None]],
    *,
    first: int = 0,
) -> None:
    """Write an operation's changes to the journal, in order: record id or "", before and after.

    `first` is the ordinal of the first row.
    """
    for ordinal, (record_id, before, after) in enumerate(kept, first):
        statements.ADD_STEP.run(
            connection,
            company_id=operation.scope.company_id,
            operation_id=operation.operation_id,
            ordinal=ordinal,
            seq=seq,
            binding_key=operation.binding_key or "",
            provider_record_id=record_id,
            before=before,
            after=after,
            operation_type=operation.operation_type,
            status=operation.status,
            principal=operation.principal,
            started_at=operation.started_at,
            undoes=operation.undoes,
            erased_by=None,
        )


def operation_row(
    draft: OperationDraft, seq: int, previous: str, digest: str, salt: bytes | None
) -> Stored:
    """Return the operation's row."""
    absent = {path: gone.model_dump() for path, gone in draft.absent.items()} or None
    place = (previous, digest, salt, draft.salts or None, absent)
    values = (_values if draft.source else _values_without_source)(draft)
    return _stored(draft.scope.company_id, seq, *values, *place)


def usage_rows(draft: OperationDraft, seq: int) -> list[Stored]:
    """Return the rows of the operation's usage."""
    return [
        _stored(draft.scope.company_id, seq, ordinal, *_usage_values(usage))
        for ordinal, usage in enumerate(draft.usage)
    ]


def handle_rows(draft: OperationDraft, seq: int) -> list[Stored]:
    """Return the rows of the operation's handles."""
    return [
        _stored(
            draft.scope.company_id,
            seq,
            handle.rank,
            handle.binding_key or draft.binding_key,
            draft.operation_type,
            handle.provider_key,
            handle.provider_record_id,
            handle.score,
            handle.ghost,
        )
        for handle in draft.handles
    ]


def _stored(*values: object) -> Stored:
    return tuple(map(stored, values))
