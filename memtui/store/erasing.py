"""Erases values from the log and the undo journal, and proves that nothing else was removed.

An erased value leaves its commitment behind, so the digest of its operation still matches. An
operation of type `purge` in the same chain lists the values that it erased, by operation; an absent
value that no purge lists was removed by somebody else.

A purge erases free text about records, a subject or a project, or from before a moment. Living
records stay, with their ids; so do settings, and the structure of the log: who did what, when, at
what cost.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, String, cast, delete, false, func, or_, select, true, update

from memtui.contract import FILE, Json, OperationStatus, OperationType, Scope, Snapshot
from memtui.store import bindings, pending
from memtui.store.database import DatabaseConnection, stored_json
from memtui.store.digest import (
    COMMITTED,
    SOURCE_COMMITTED,
    SUBJECT,
    canonical,
    commitments,
    fields,
    is_own,
    salt_of,
)
from memtui.store.log import OperationStore, company_salt, parts
from memtui.store.operation import Absent, Operation
from memtui.store.rows import PendingRow
from memtui.store.settings import PENDING as PENDING_CHANGE
from memtui.store.settings import RISK
from memtui.store.tables import (
    DISMISSED_RISKS,
    HANDLES,
    JOURNAL,
    LINKS,
    OPERATIONS,
    PENDING,
    PLUGIN_IDS,
    RISK_CHECKS,
    RISKS,
    SYNC_PAIRS,
    USAGE,
)
from memtui.text_analysis import terms_of

TABLES = (OPERATIONS.name, JOURNAL.name, PENDING.name)
"""The tables that hold content of records."""

IRREVERSIBLE = "A purge erases every copy, so nothing is left to restore."
"""Why no purge can be undone."""

SHORTEST = 12
"""Characters a text needs so that another value that contains it counts as a repetition."""

_PAGE = 1_000
_MOST_CONDITIONS = 60
_LONG = 5
_ASKING = (OperationType.QUERY, OperationType.EXPLAIN, OperationType.CONTEXT)
_KEPT = frozenset(
    {OperationType.CONFIGURE, OperationType.SEAL, OperationType.PURGE, OperationType.NAMESPACES}
)
"""Types about settings and proofs, not memories; only their error messages may quote one."""
_STRUCTURE = frozenset(
    {
        "binding_reason",
        "to_show",
        "part_of",
        *(
            f"request.{name}"
            for name in "operation_id checks event sort model kind what target".split()  # noqa: SIM905
        ),
    }
)
_REFERENCES = frozenset({"source.activity_id", "source.comment_id"})
"""Structure too, except in operations of an erased subject, whose name they may contain."""
_ID = re.compile(r"handles\.\d+\.provider_record_id|request\.record_ids?(\.\d+)?")
_NOWHERE = re.compile(r"(?!)")
_PLACE = re.compile(r"\.\d+(?=\.|$)")


def erased(operation: Operation, paths: Collection[str], company: bytes) -> Operation:
    """Return the operation without the values of some fields, ready to be stored in its place.

    Args:
        operation: As read from the log.
        paths: Paths of the fields; `*` in a path stands for any number.
        company: The company's salt.
    """
    there = {path: value for path, value in fields(operation) if path not in operation.absent}
    gone = {path for path in there if covers(paths, path)}
    unsalted = {path for path in operation.absent if covers(paths, path)} & operation.salts.keys()
    if not gone and not unsalted:
        return operation
    committed = commitments(operation, operation.salt, company)
    absent = operation.absent | {path: Absent(commitment=committed[path]) for path in gone}
    salts = {path: salt for path, salt in operation.salts.items() if path not in gone | unsalted}
    for path, value in there.items():
        if path not in gone and path != SUBJECT:
            salts[path] = salt_of(operation, path, value, operation.salt, company).hex()
    return operation.model_copy(
        update=_emptied(operation, gone, committed)
        | {"absent": absent, "salts": salts, "salt": None}
    )


def covers(paths: Collection[str], path: str) -> bool:
    """Whether `paths` has a field's path, as it is or with `*` for its numbers."""
    return path in paths or _PLACE.sub(".*", path) in paths


def _emptied(
    operation: Operation, gone: Collection[str], committed: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields of an operation that change when values are erased."""
    scope, source = operation.scope, operation.source
    if SUBJECT in gone:
        scope = scope.model_copy(update={"subject_id": committed[SUBJECT]})
    if source is not None:
        names = (path.removeprefix("source.") for path in gone if path.startswith("source."))
        source = source.model_copy(update=dict.fromkeys(names))
    return {
        **{name: None for name in COMMITTED if name in gone},
        "scope": scope,
        "source": source,
        "request": _without(operation, gone),
        "handles": tuple(
            handle.model_copy(update={"provider_record_id": ""})
            if f"handles.{handle.rank}.provider_record_id" in gone
            else handle
            for handle in operation.handles
        ),
        "usage": tuple(
            usage.model_copy(update={"details": {}})
            if f"usage.{ordinal}.details" in gone
            else usage
            for ordinal, usage in enumerate(operation.usage)
        ),
    }


def _without(operation: Operation, gone: Collection[str]) -> Json:
    """Return the request with null for erased members; members not memtui's own are dropped."""
    kept: Json = {}
    for name, value in operation.request.items():
        path = f"request.{name}"
        if not is_own(operation.operation_type, name):
            if "request" not in gone:
                kept[name] = value
        elif path in gone:
            kept[name] = None
        elif isinstance(value, list | tuple):
            kept[name] = [
                None if f"{path}.{place}" in gone else part for place, part in enumerate(value)
            ]
        else:
            kept[name] = value
    return kept


def erase_fields(
    connection: DatabaseConnection, company_id: str, fields_of: Mapping[int, Collection[str]]
) -> dict[int, tuple[str, ...]]:
    """Erase values of operations in the database, in the caller's write transaction.

    In the same transaction the caller appends an operation of type `purge` whose request is
    `purge_request` of the result. It locks the archive's folder, so that nothing is sealed then.

    Args:
        connection: With a write transaction.
        company_id: The operations' company.
        fields_of: The paths to erase, by `seq`; `*` in a path stands for any number.

    Returns:
        The paths that lost their value or their salt, by `seq`.
    """
    company = company_salt(connection, company_id)
    done: dict[int, tuple[str, ...]] = {}
    for operation in OperationStore(connection, company_id).by_seqs(list(fields_of)):
        fresh = erased(operation, fields_of[operation.seq], company)
        if fresh is operation:
            continue
        own = (OPERATIONS.c.company_id == company_id, OPERATIONS.c.seq == operation.seq)
        connection.execute(update(OPERATIONS).where(*own).values(**row_of(fresh)))
        done[operation.seq] = gone = newly_absent(operation, fresh)
        for ordinal in _numbers(gone, "usage"):
            own = (USAGE.c.company_id == company_id, USAGE.c.seq == operation.seq)
            place = USAGE.c.ordinal == ordinal
            connection.execute(update(USAGE).where(*own, place).values(details={}))
        for rank in _numbers(gone, "handles"):
            own = (HANDLES.c.company_id == company_id, HANDLES.c.seq == operation.seq)
            place = HANDLES.c.rank == rank
            connection.execute(update(HANDLES).where(*own, place).values(provider_record_id=""))
    return done


def row_of(operation: Operation) -> dict[str, Any]:
    """Return the columns of an operation's own row that erasing may change."""
    source = operation.source
    return {
        **{name: getattr(operation, name) for name in COMMITTED},
        "subject_id": operation.scope.subject_id,
        **{f"source_{name}": source and getattr(source, name) for name in SOURCE_COMMITTED},
        "request": operation.request,
        "salt": operation.salt,
        "salts": operation.salts,
        "absent": {path: gone.model_dump() for path, gone in operation.absent.items()},
    }


def newly_absent(before: Operation, after: Operation) -> tuple[str, ...]:
    """Return the fields that lost their value or their salt, sorted."""
    unsalted = before.absent.keys() & before.salts.keys() - after.salts.keys()
    return tuple(sorted((after.absent.keys() - before.absent.keys()) | unsalted))


def _numbers(paths: Iterable[str], table: str) -> list[int]:
    return [int(path.split(".")[1]) for path in paths if path.startswith(f"{table}.")]


def purge_request(
    erased_fields: Mapping[int, Collection[str]], segments: Sequence[Json] = ()
) -> Json:
    """Return the members of a purge's request that prove what it erased.

    Args:
        erased_fields: What `erase_fields` and the rewriting of segments returned.
        segments: The segments that were rewritten (`memtui.analytics.layout.Segment.proof`).
    """
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for seq in sorted(erased_fields):
        alike[tuple(sorted(erased_fields[seq]))].append(seq)
    return {
        "erased": [{"fields": list(paths), "seqs": _ranges(seqs)} for paths, seqs in alike.items()],
        "segments": list(segments),
    }


def purged(operation: Operation) -> Iterator[tuple[range, frozenset[str]]]:
    """Yield the operation numbers and fields that a purge lists as erased; all precede it.

    A repair lists the erased fields of lost purges.
    """
    if operation.operation_type in {OperationType.PURGE, OperationType.REPAIR}:
        for part in operation.request.get("erased", ()):
            paths = frozenset(part["fields"])
            for first, last in part["seqs"]:
                yield range(first, min(last + 1, operation.seq)), paths


def _ranges(seqs: Sequence[int]) -> list[list[int]]:
    """Return sorted numbers as the first and last of each run."""
    found: list[list[int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    return found


@dataclass(frozen=True)
class Aim:
    """What to erase: values about records, of a subject, project, run or document, or of a time."""

    company_id: str
    subject_id: str | None = None
    project_id: str | None = None
    run_id: str | None = None
    source: str | None = None
    """The address of a document (`SourceRef.external_ref`)."""
    before: datetime | None = None
    gone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ids of deleted records, by binding."""
    living: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ids of records that stay, by binding: texts about them are erased, their ids are not."""
    texts: frozenset[str] = frozenset()
    """The texts of the deleted records, in every known version."""
    pending: frozenset[str] = frozenset()
    """Operations that requested pending or decided changes of these records."""

    beside: frozenset[str] = frozenset()
    """The texts in their other fields: tags, topics, metadata. Only words of these are compared."""

    @cached_property
    def words(self) -> frozenset[str]:
        """Every search term of the texts."""
        return frozenset(one for text in self.texts | self.beside for one in chain(*terms_of(text)))

    @cached_property
    def telling(self) -> tuple[str, ...]:
        """Texts and ids too long to recur by chance (`SHORTEST`), the longest first."""
        ids = {one for known in self.gone.values() for one in known}
        return tuple(sorted({t for t in self.texts | ids if len(t) >= SHORTEST}, key=len))[::-1]

    @cached_property
    def written(self) -> tuple[str, ...]:
        """`telling`, escaped as in a string of canonical JSON."""
        return tuple(canonical(text)[1:-1] for text in self.telling)

    @cached_property
    def _subject(self) -> re.Pattern[str]:
        """Matches the subject's id in a filter (`subject:`, `user:`) or in quotes, in JSON too."""
        if self.subject_id is None:
            return _NOWHERE
        written = canonical(self.subject_id)[1:-1]
        forms = "|".join(re.escape(one) for one in (self.subject_id, written))
        named = r"""(?:\b(?i:subject)|(?<![\w:"'])(?i:user)):(?:[^\s"']*,)?"""  # not `by:user:`
        return re.compile(rf"""(?:{named}|["'])(?:{forms})(?=["'\\\s,]|$)""")

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        """`telling` as it is, and escaped as in ASCII and in Unicode JSON."""
        unicode = (json.dumps(text, ensure_ascii=False)[1:-1] for text in self.telling)
        return tuple(dict.fromkeys((*self.telling, *self.written, *unicode)))

    def says(self, text: str) -> bool:
        """Whether a text or JSON contains one of `telling` or names the subject."""
        return any(one in text for one in self._forms) or bool(self._subject.search(text))

    def says_written(self, value: str) -> bool:
        """As `says`, for canonical JSON."""
        return any(one in value for one in self.written) or bool(self._subject.search(value))

    def names(self, binding_key: str | None, record_id: str) -> bool:
        """Whether the aim has this record, deleted or living."""
        key = binding_key or ""
        known = self.gone.get(key, frozenset()) | self.living.get(key, frozenset())
        return record_id in known

    def is_in(self, operation: Operation) -> bool:
        """Whether an operation is on a binding that has or had one of the records."""
        return operation.binding_key in self.gone or operation.binding_key in self.living

    def is_of(self, scope: Scope) -> bool:
        """Whether a scope is of the aim's subject or, without one, its project or run."""
        for name in ("subject_id", "project_id", "run_id"):
            if (wanted := getattr(self, name)) is not None:
                return bool(getattr(scope, name) == wanted)
        return False

    def is_from(self, external_ref: str | None) -> bool:
        """Whether a source's reference is the aim's document."""
        return self.source is not None and self.source == external_ref


def doomed(operation: Operation, aim: Aim) -> tuple[str, ...]:
    """Return the paths of an operation's fields that are to be erased and still have a value."""
    if operation.operation_type in _KEPT and not operation.handles:
        message = operation.error_message or ""
        is_kept = "error_message" in operation.absent or not aim.says(message)
        return () if is_kept else ("error_message",)
    is_search = operation.operation_type in {OperationType.QUERY, OperationType.EXPLAIN}
    own = operation.binding_key
    here = [
        one
        for one in operation.handles
        if aim.names(one.binding_key or own, one.provider_record_id)
    ]
    whole = aim.is_of(operation.scope) or (
        aim.before is not None and operation.started_at < aim.before
    )
    whole = whole or operation.operation_id in aim.pending
    whole = whole or aim.is_from(operation.source.external_ref if operation.source else None)
    if not is_search:
        others = len(here) < len(operation.handles)
        whole = whole or (bool(here) and not others)
        asked = operation.request.get("record_id")
        asks_for = isinstance(asked, str) and aim.names(own, asked)
        whole = whole or (not here and not others and asks_for)
    # The same text stays in a change of other records, as it is theirs.
    is_others = operation.operation_type.mutates and bool(operation.handles) and not whole
    is_subjects = whole and aim.subject_id is not None
    stays = operation.absent.keys() | (_STRUCTURE if is_subjects else _STRUCTURE | _REFERENCES)
    found = []
    for path, value in fields(operation):
        if path in stays:
            continue
        if path == SUBJECT:
            doom = aim.subject_id is not None and operation.scope.subject_id == aim.subject_id
        elif _ID.fullmatch(path):
            doom = _is_gone(operation, path, value, aim)
        elif whole or ((here or _is_blind(operation, aim)) and _repeats(operation, path, aim)):
            doom = True
        else:
            doom = not is_others and aim.says_written(value)
        if doom:
            found.append(path)
    withheld = (path for path in operation.absent if whole and path in operation.salts)
    return (*found, *withheld)


def _is_gone(operation: Operation, path: str, written: str, aim: Aim) -> bool:
    """Whether an id is that of a deleted record."""
    key = operation.binding_key or ""
    if path.startswith("handles."):
        rank = int(path.split(".")[1])
        key = next((h.binding_key or key for h in operation.handles if h.rank == rank), key)
    return json.loads(written) in aim.gone.get(key, frozenset())


def _is_blind(operation: Operation, aim: Aim) -> bool:
    """Whether the log does not name the records that a question found.

    So it is if memtui asked for a purpose of its own, or explained a search in a record's binding.
    """
    explains = operation.operation_type is OperationType.EXPLAIN and aim.is_in(operation)
    return (explains or bool(operation.request.get("purpose"))) and not operation.handles


def _repeats(operation: Operation, path: str, aim: Aim) -> bool:
    """Whether a field of an operation that returned the record may repeat its content.

    The text of a context, or of a read that passed to another server, does. A query or prompt does
    if it shares a word of at least `_LONG` characters with the records, or has no other words.
    """
    if path == "request.text":
        return operation.operation_type is OperationType.CONTEXT or "tool" in operation.request
    if path not in {"request.query", "request.prompt"}:
        return False
    asked = terms_of(str(operation.request.get(path.removeprefix("request."), "")))
    long = [one for one in asked.words if len(one) >= _LONG]
    long += [one for one in asked.pairs if len(one) > 1]
    every = [*asked.words, *asked.pairs]
    return bool(every) and (aim.words.issuperset(every) or not aim.words.isdisjoint(long))


def operations(connection: DatabaseConnection, aim: Aim, *, above: int) -> Iterator[Operation]:
    """Yield the hot operations above a `seq` that a purge may concern, the oldest first."""
    company, seq = OPERATIONS.c.company_id == aim.company_id, OPERATIONS.c.seq
    while True:
        page = connection.execute(
            select(seq).where(company, seq > above, _may_be(aim)).order_by(seq).limit(_PAGE)
        )
        seqs = list(page.scalars())
        if not seqs:
            return
        found = OperationStore(connection, aim.company_id).by_seqs(seqs)
        yield from sorted(found, key=lambda one: one.seq)
        above = seqs[-1]


def _may_be(aim: Aim) -> ColumnElement[bool]:
    """Condition for all operations in which `doomed` may find a field, and some more."""
    columns = OPERATIONS.c
    ids = sorted({one for known in (*aim.gone.values(), *aim.living.values()) for one in known})
    conditions: list[ColumnElement[bool]] = [false()]
    if aim.words:
        has_purpose = cast(columns.request, String).contains('"purpose"')
        conditions.append(has_purpose & columns.operation_type.in_(_ASKING))
        conditions.append(columns.operation_type == OperationType.EXPLAIN)
    conditions += [
        columns[name] == wanted
        for name in ("subject_id", "project_id", "run_id")
        if (wanted := getattr(aim, name)) is not None
    ]
    if aim.source is not None:
        conditions.append(columns.source_external_ref == aim.source)
    if aim.before is not None:
        conditions.append(columns.started_at < aim.before)
    conditions += [columns.operation_id.in_(part) for part in parts(sorted(aim.pending))]
    for part in parts(ids):
        touched = select(HANDLES.c.seq).where(
            HANDLES.c.company_id == aim.company_id, HANDLES.c.provider_record_id.in_(part)
        )
        conditions.append(columns.seq.in_(touched))
    said = {*aim.telling, *ids} | ({aim.subject_id} if aim.subject_id is not None else set())
    if len(said) > _MOST_CONDITIONS:  # too many texts for one statement: read every operation
        return true()
    for text in said:
        for place in (cast(columns.request, String), columns.error_message):
            # A text with half of a surrogate pair is stored with ASCII escapes.
            both = {stored_json(text)[1:-1], canonical(text)[1:-1]}
            conditions += [place.contains(one, autoescape=True) for one in both]
    return or_(*conditions)


class JournalStep(NamedTuple):
    """A row of the undo journal."""

    operation_id: str
    ordinal: int
    binding_key: str
    record_id: str
    snapshots: tuple[Snapshot, ...]
    pending_id: str = ""
    """The pending change that was decided on, if the row is about one."""


def steps(connection: DatabaseConnection, aim: Aim) -> Iterator[JournalStep]:
    """Yield the rows of the undo journal that a purge concerns and that are not erased yet."""
    columns = JOURNAL.c
    rows = connection.execute(
        select(JOURNAL)
        .where(columns.company_id == aim.company_id, columns.erased_by.is_(None))
        .order_by(columns.operation_id, columns.ordinal)
    )
    about = ""
    """The last operation with such records; the row of its decision follows theirs."""
    for row in rows:
        if aim.before is not None and row.started_at >= aim.before:
            continue
        if (decided := _decided(row.before)) is not None:
            if aim.before is not None or about == row.operation_id or is_about(decided, aim):
                place = row.operation_id, row.ordinal, row.binding_key
                yield JournalStep(*place, "", (), decided.pending_id)
            continue
        if "handle" not in row.before:
            said = canonical(row.before) if "found" in row.before else ""
            if _dismisses(row.before, aim) or any(text in said for text in aim.written):
                yield JournalStep(row.operation_id, row.ordinal, row.binding_key, "", ())
            continue
        snapshots = tuple(
            Snapshot.model_validate(one) for one in (row.before, row.after) if one is not None
        )
        record_id = row.provider_record_id
        if (
            aim.before is not None
            or aim.names(row.binding_key, record_id)
            or any(one.record is not None and aim.is_of(one.record.scope) for one in snapshots)
        ):
            about = row.operation_id
            if record_id.startswith(FILE):  # no record, which could be forgotten
                record_id, snapshots = "", ()
            yield JournalStep(row.operation_id, row.ordinal, row.binding_key, record_id, snapshots)


def files_saying(connection: DatabaseConnection, aim: Aim) -> list[JournalStep]:
    """Return the rows of the undo journal with whole files that have a text of the aim."""
    columns = JOURNAL.c
    rows = connection.execute(
        select(JOURNAL).where(
            columns.company_id == aim.company_id,
            columns.erased_by.is_(None),
            columns.provider_record_id.startswith(FILE),
        )
    )
    return [
        JournalStep(row.operation_id, row.ordinal, row.binding_key, "", ())
        for row in rows
        if any(_file_says(one, aim) for one in (row.before, row.after) if one)
    ]


def _file_says(taken: Json, aim: Aim) -> bool:
    content = b64decode(taken.get("state", {}).get("content", "")).decode("utf-8", "replace")
    return aim.says(content) or any(text in content for text in aim.texts)


def _dismisses(before: Json, aim: Aim) -> bool:
    """Whether a journal row is about a dismissed risk of one of the aim's records."""
    change = before.get("changed") or {}
    row = change.get("before") or change.get("after") or {}
    return change.get("setting") == RISK and aim.names(row["binding_key"], row["record_id"])


def _decided(before: Json) -> PendingRow | None:
    """Return the pending change from a journal row that records a decision on it; else None."""
    change = before.get("changed") or {}
    kept = change.get("before") or change.get("after")
    return PendingRow(**kept) if change.get("setting") == PENDING_CHANGE and kept else None


def is_about(row: PendingRow, aim: Aim) -> bool:
    """Whether a purge concerns a pending or decided change."""
    ids = [one["handle"]["provider_record_id"] for one in row.base]
    return (
        row.pending_id in aim.pending
        or any(aim.is_of(Scope.model_validate(one)) for one in row.owners)
        or aim.is_from((row.request.get("source") or {}).get("external_ref"))
        or any(aim.names(row.binding_key, one) for one in ids)
        or aim.says_written(canonical([row.request, row.base]))
    )


def pending_about(connection: DatabaseConnection, aim: Aim) -> list[PendingRow]:
    """Return the pending changes that a purge concerns."""
    return [
        row
        for row in pending.waiting(connection, aim.company_id)
        if (row.pending_since < aim.before if aim.before is not None else is_about(row, aim))
    ]


def said_by_others(connection: DatabaseConnection, aim: Aim, texts: Sequence[str]) -> set[str]:
    """Return those of `texts` that another record has or had, by the undo journal.

    Records of other companies count too, as they share the database, and so do pending changes.
    """
    columns, own = JOURNAL.c, aim.company_id
    rows = connection.execute(
        select(
            columns.company_id, columns.binding_key, columns.provider_record_id, columns.before,
            columns.after,
        ).where(columns.erased_by.is_(None))
    )  # fmt: skip
    found: set[str] = set()
    wanted = {text: canonical(text)[1:-1] for text in texts}
    others = [
        (one.company_id, "", "", row.request, row.base)
        for one in bindings.companies(connection)
        for row in pending.waiting(connection, one.company_id)
        if one.company_id != own or not is_about(row, aim)
    ]
    for company, key, record_id, *states in (*others, *rows):
        if company != own or not aim.names(key, record_id):
            said = canonical(states)
            found.update(text for text, written in wanted.items() if written in said)
    return found


def erase_steps(
    connection: DatabaseConnection, aim: Aim, found: Sequence[JournalStep], by: str
) -> None:
    """Erase states and the ids of deleted records from the journal; the rows themselves stay.

    Args:
        connection: With a write transaction.
        aim: What to erase.
        found: What `steps` returned.
        by: The id of the operation that erases them.
    """
    columns = JOURNAL.c
    company = columns.company_id == aim.company_id
    for step in found:
        connection.execute(
            update(JOURNAL)
            .where(
                company,
                columns.operation_id == step.operation_id,
                columns.ordinal == step.ordinal,
            )
            .values(before={}, after=None, erased_by=by)
        )
    for key, known in aim.gone.items():
        for ids in parts(sorted(known)):
            connection.execute(
                update(JOURNAL)
                .where(
                    company,
                    columns.binding_key == key,
                    columns.provider_record_id.in_(ids),
                    columns.erased_by.is_not(None),
                )
                .values(provider_record_id="")
            )


def forgotten(connection: DatabaseConnection, company_id: str) -> dict[str, set[str]]:
    """Return by binding the ids of the records whose last successful change deleted them."""
    columns = JOURNAL.c
    rows = connection.execute(
        select(columns.binding_key, columns.provider_record_id, columns.after)
        .where(
            columns.company_id == company_id,
            columns.erased_by.is_(None),
            columns.status == str(OperationStatus.OK),
        )
        .order_by(columns.seq, columns.ordinal)
    )
    last = {
        (key, record_id): after is not None and after.get("record") is None
        for key, record_id, after in rows
    }
    found: dict[str, set[str]] = {}
    for (key, record_id), is_gone in last.items():
        if is_gone:
            found.setdefault(key, set()).add(record_id)
    return found


def _risks_of_owner(connection: DatabaseConnection, aim: Aim, *, drop: bool) -> int:
    """Return how many rows of checks name a record of the subject or project that does not stay.

    A check notes also records that memtui never wrote. With `drop` all that is known of them goes.
    """
    columns = RISK_CHECKS.c
    owned = [
        columns[name] == value
        for name in ("subject_id", "project_id")
        if (value := getattr(aim, name)) is not None
    ]
    if not owned:
        return 0
    rows = connection.execute(
        select(columns.binding_key, columns.record_id).where(
            columns.company_id == aim.company_id, *owned
        )
    )
    unknown = [
        (key, record_id)
        for key, record_id in rows.all()
        if not any(record_id in known.get(key, ()) for known in (aim.gone, aim.living))
    ]
    for key, record_id in unknown if drop else ():
        for table in (RISKS, RISK_CHECKS, DISMISSED_RISKS):
            own = (table.c.company_id == aim.company_id, table.c.binding_key == key)
            connection.execute(delete(table).where(*own, table.c.record_id == record_id))
        others = (RISKS.c.company_id == aim.company_id, RISKS.c.binding_key == key)
        connection.execute(delete(RISKS).where(*others, RISKS.c.other_id == record_id))
    return len(unknown)


def names(connection: DatabaseConnection, aim: Aim, *, drop: bool = False) -> tuple[int, int]:
    """Return how many id links, and how many other ids in memtui's tables, name deleted records.

    The other ids are those of the served plugin, of pairs of records in sync, and of risks that
    were found or dismissed. With `drop` they are deleted. A pair in sync only loses the id, so that
    the next sync deletes the other side's record and does not take it for a new one.
    """
    found = [0, _risks_of_owner(connection, aim, drop=drop)]
    for key, known in aim.gone.items():
        own_id = f"{aim.company_id}/{key}"  # a removed binding's too
        for ids in parts(sorted(known)):
            linked = or_(LINKS.c.old_record_id.in_(ids), LINKS.c.new_record_id.in_(ids))
            for place, table, *where in (
                (0, LINKS, LINKS.c.binding_key == key, linked),
                (1, PLUGIN_IDS, PLUGIN_IDS.c.binding_id == own_id,
                 PLUGIN_IDS.c.record_id.in_(ids)),
                (1, RISKS, RISKS.c.binding_key == key,
                 or_(RISKS.c.record_id.in_(ids), RISKS.c.other_id.in_(ids))),
                *((1, one, one.c.binding_key == key, one.c.record_id.in_(ids))
                  for one in (RISK_CHECKS, DISMISSED_RISKS)),
            ):  # fmt: skip
                own = (table.c.company_id == aim.company_id, *where)
                counted = select(func.count()).select_from(table).where(*own)
                found[place] += connection.execute(counted).scalar_one()
                if drop:
                    connection.execute(delete(table).where(*own))
            for side in ("left", "right"):
                name = SYNC_PAIRS.c[f"{side}_record"]
                own = (
                    SYNC_PAIRS.c.company_id == aim.company_id,
                    SYNC_PAIRS.c[f"{side}_id"] == own_id,
                )
                paired = connection.execute(select(name).where(*own, name.in_(ids))).all()
                found[1] += len(paired)
                for (record_id,) in paired if drop else ():
                    nameless = {
                        name: f"purged {secrets.token_hex(8)}",
                        SYNC_PAIRS.c[f"{side}_prints"]: b"",
                    }
                    connection.execute(
                        update(SYNC_PAIRS).where(*own, name == record_id).values(nameless)
                    )
    return found[0], found[1]
