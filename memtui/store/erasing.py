"""Values taken out of the log, and the proof that nothing else was.

An erased value leaves its commitment behind, so the digest of its operation still holds. An
operation of type `purge` in the same chain says which values of which operations it erased; a
value that is absent and that no such operation names was removed by somebody else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import update

from memtui.contract import Json, OperationType
from memtui.store import log
from memtui.store.connection import Connection
from memtui.store.digest import (
    SOURCE_COMMITTED,
    SUBJECT,
    commitments,
    fields,
    is_own,
    salt_of,
)
from memtui.store.operation import Absent, Operation
from memtui.store.tables import HandleRow, OperationRow, UsageRow

_PLACE = re.compile(r"\.\d+(?=\.|$)")
_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]
_USAGE = UsageRow.__table__  # type: ignore[attr-defined]
_HANDLES = HandleRow.__table__  # type: ignore[attr-defined]


def erased(operation: Operation, paths: Collection[str], company: bytes) -> Operation:
    """Return the operation without the values of some fields, ready to be stored in its place.

    Args:
        operation: As the log has it.
        paths: The fields, each by its path or with `*` for every number in it.
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
    """Whether a field is among those that are named, by itself or with `*` for its numbers."""
    return path in paths or _PLACE.sub(".*", path) in paths


def _emptied(
    operation: Operation, gone: Collection[str], committed: Mapping[str, str]
) -> dict[str, Any]:
    """Return the members of an operation that change when values go."""
    scope, source = operation.scope, operation.source
    if SUBJECT in gone:
        scope = scope.model_copy(update={"subject_id": committed[SUBJECT]})
    if source is not None:
        names = (path.removeprefix("source.") for path in gone if path.startswith("source."))
        source = source.model_copy(update=dict.fromkeys(names))
    return {
        "binding_reason": None if "binding_reason" in gone else operation.binding_reason,
        "error_message": None if "error_message" in gone else operation.error_message,
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
    """Return the request with null in the place of what goes, and without names of others."""
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
    connection: Connection, company_id: str, fields_of: Mapping[int, Collection[str]]
) -> dict[int, tuple[str, ...]]:
    """Erase values of operations in the database, in the caller's write transaction.

    The caller appends an operation of type `purge` with `purge_request` of what is returned in the
    same transaction, and holds the archive's folder, so that nothing is sealed meanwhile.

    Args:
        connection: With a write transaction.
        company_id: Whose operations.
        fields_of: The paths to erase by `seq`, as in `erased`; `*` stands for any number in one.

    Returns:
        The paths that had a value and have none now, by `seq`.
    """
    company = log.company_salt(connection, company_id)
    done: dict[int, tuple[str, ...]] = {}
    for operation in log.by_seqs(connection, company_id, list(fields_of)):
        fresh = erased(operation, fields_of[operation.seq], company)
        if fresh is operation:
            continue
        own = (_OPERATIONS.c.company_id == company_id, _OPERATIONS.c.seq == operation.seq)
        connection.execute(update(_OPERATIONS).where(*own).values(**row_of(fresh)))
        done[operation.seq] = gone = newly_absent(operation, fresh)
        for ordinal in _numbers(gone, "usage"):
            own = (_USAGE.c.company_id == company_id, _USAGE.c.seq == operation.seq)
            place = _USAGE.c.ordinal == ordinal
            connection.execute(update(_USAGE).where(*own, place).values(details={}))
        for rank in _numbers(gone, "handles"):
            own = (_HANDLES.c.company_id == company_id, _HANDLES.c.seq == operation.seq)
            place = _HANDLES.c.rank == rank
            connection.execute(update(_HANDLES).where(*own, place).values(provider_record_id=""))
    return done


def row_of(operation: Operation) -> dict[str, Any]:
    """Return the columns of an operation's own row that erasing may change."""
    source = operation.source
    return {
        "binding_reason": operation.binding_reason,
        "subject_id": operation.scope.subject_id,
        **{f"source_{name}": source and getattr(source, name) for name in SOURCE_COMMITTED},
        "request": operation.request,
        "error_message": operation.error_message,
        "salt": operation.salt,
        "salts": operation.salts,
        "absent": {path: gone.model_dump() for path, gone in operation.absent.items()},
    }


def newly_absent(before: Operation, after: Operation) -> tuple[str, ...]:
    """Return the fields that went, or whose salt did, in order."""
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
    """Yield the numbers and fields that a purge says it erased; all are older than itself.

    Or that a repair says it found erased, where the purge itself was lost.
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
