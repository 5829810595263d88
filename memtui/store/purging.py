"""What of the control plane's own tables a purge is about, and erasing it there.

Erased is what somebody worded about records, a subject or a project, or before a moment. What lives
stays, with its id; so do settings, and the structure of the log: who did what, when, at what cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, String, cast, delete, false, or_, select, true, update

from memtui.contract import OperationStatus, OperationType, Scope, Snapshot
from memtui.store import bindings, log
from memtui.store.connection import Connection
from memtui.store.digest import SUBJECT, canonical, fields
from memtui.store.operation import Operation, OperationHandle
from memtui.store.tables import HandleLinkRow, HandleRow, JournalRow, OperationRow, PluginIdRow
from memtui.store.values import stored_json

_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]
_HANDLES = HandleRow.__table__  # type: ignore[attr-defined]
_JOURNAL = JournalRow.__table__  # type: ignore[attr-defined]
_LINKS = HandleLinkRow.__table__  # type: ignore[attr-defined]
_IDS = PluginIdRow.__table__  # type: ignore[attr-defined]

TABLES = (_OPERATIONS.name, _JOURNAL.name)
"""Where the database has what records say."""

LASTING = "What a purge erased is nowhere any more."
"""Why no purge can be taken back."""

SHORTEST = 12
"""Characters of a text by which alone an operation is taken to repeat it."""

_PAGE = 1_000
_CHUNK = 400
_MOST_CONDITIONS = 60
_LONG = 5
_WORD = re.compile(r"\w+")
_KEPT = frozenset(
    {OperationType.CONFIGURE, OperationType.SEAL, OperationType.PURGE, OperationType.NAMESPACES}
)
"""Types that hold settings and proofs, no memories."""
_STRUCTURE = frozenset(
    {
        "binding_reason",
        "source.activity_id",
        "source.comment_id",
        *(f"request.{name}" for name in ("operation_id", "checks", "sort", "model", "kind")),
    }
)
_ID = re.compile(r"handles\.\d+\.provider_record_id|request\.record_ids?(\.\d+)?")


@dataclass(frozen=True)
class Aim:
    """What is to be erased: what is about the records, or of the subject, the project, the time."""

    company_id: str
    subject_id: str | None = None
    project_id: str | None = None
    before: datetime | None = None
    gone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ids of records that are gone, by binding."""
    living: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ids of records that stay, by binding: what was said of them goes, their ids do not."""
    texts: frozenset[str] = frozenset()
    """What the gone records said, in every version that is known."""

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the texts, in lower case."""
        return frozenset(word for text in self.texts for word in _words(text))

    @cached_property
    def telling(self) -> tuple[str, ...]:
        """The texts and ids that no other operation has by chance, the longest first."""
        ids = {one for known in self.gone.values() for one in known}
        return tuple(sorted({t for t in self.texts | ids if len(t) >= SHORTEST}, key=len))[::-1]

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The same as canonical JSON has them inside of a text."""
        return tuple(canonical(text)[1:-1] for text in self.telling)

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subject, where it is about one."""
        return () if self.subject_id is None else (self.subject_id,)

    @cached_property
    def _naming(self) -> re.Pattern[str] | None:
        """The subject as a filter or a quoted value has it, in JSON too."""
        if self.subject_id is None:
            return None
        written = canonical(self.subject_id)[1:-1]
        forms = "|".join(re.escape(one) for one in (self.subject_id, written))
        return re.compile(rf"""(?:\bsubject:|["'])(?:{forms})(?=["'\\\s]|$)""")

    def says(self, text: str) -> bool:
        """Whether a text holds one of the gone records' or names the subject."""
        return any(one in text for one in self.telling) or self._names_subject(text)

    def says_written(self, value: str) -> bool:
        """The same of the canonical JSON of a value."""
        return any(one in value for one in self.written) or self._names_subject(value)

    def _names_subject(self, text: str) -> bool:
        return self._naming is not None and self._naming.search(text) is not None

    def names(self, binding_key: str | None, record_id: str) -> bool:
        """Whether a record is one of those that it is about."""
        key = binding_key or ""
        known = self.gone.get(key, frozenset()) | self.living.get(key, frozenset())
        return record_id in known

    def is_of(self, scope: Scope) -> bool:
        """Whether a scope is that of the subject or the project."""
        if self.subject_id is not None:
            return scope.subject_id == self.subject_id
        return self.project_id is not None and scope.project_id == self.project_id


def doomed(operation: Operation, aim: Aim) -> tuple[str, ...]:
    """Return the paths of an operation's fields that are to be erased and still have a value."""
    if operation.operation_type in _KEPT:
        return ()
    is_search = operation.operation_type in {OperationType.QUERY, OperationType.EXPLAIN}
    here = [handle for handle in operation.handles if _touches(operation, handle, aim)]
    whole = aim.is_of(operation.scope) or (
        aim.before is not None and operation.started_at < aim.before
    )
    if not is_search:
        others = len(here) < len(operation.handles)
        whole = whole or (bool(here) and not others)
        whole = whole or (not here and not others and _asks_for(operation, aim))
    # What another record says stays, and be it the same: it is that record's.
    is_others = operation.operation_type.mutates and bool(operation.handles) and not whole
    found = []
    for path, value in fields(operation):
        if path in operation.absent or path in _STRUCTURE:
            continue
        if path == SUBJECT:
            doom = aim.subject_id is not None and operation.scope.subject_id == aim.subject_id
        elif _ID.fullmatch(path):
            doom = _is_gone(operation, path, value, aim)
        elif whole or (here and path == "request.query" and _echoes(operation, aim)):
            doom = True
        else:
            doom = not is_others and aim.says_written(value)
        if doom:
            found.append(path)
    withheld = (path for path in operation.absent if whole and path in operation.salts)
    return (*found, *withheld)


def _touches(operation: Operation, handle: OperationHandle, aim: Aim) -> bool:
    return aim.names(handle.binding_key or operation.binding_key, handle.provider_record_id)


def _asks_for(operation: Operation, aim: Aim) -> bool:
    asked = operation.request.get("record_id")
    return isinstance(asked, str) and aim.names(operation.binding_key, asked)


def _is_gone(operation: Operation, path: str, written: str, aim: Aim) -> bool:
    """Whether an id is that of a record that is gone."""
    key = operation.binding_key or ""
    if path.startswith("handles."):
        rank = int(path.split(".")[1])
        key = next((h.binding_key or key for h in operation.handles if h.rank == rank), key)
    return json.loads(written) in aim.gone.get(key, frozenset())


def _echoes(operation: Operation, aim: Aim) -> bool:
    """Whether a query that returned the record has a longer word of it, or no other words."""
    asked = _words(str(operation.request.get("query", "")))
    shared = [word for word in asked if word in aim.words]
    return bool(asked) and (len(shared) == len(asked) or any(len(word) >= _LONG for word in shared))


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def operations(connection: Connection, aim: Aim, *, above: int) -> Iterator[Operation]:
    """Return the operations in the tables above a `seq` that a purge may be about, oldest first."""
    company, seq = _OPERATIONS.c.company_id == aim.company_id, _OPERATIONS.c.seq
    while True:
        page = connection.execute(
            select(seq).where(company, seq > above, _may_be(aim)).order_by(seq).limit(_PAGE)
        )
        seqs = list(page.scalars())
        if not seqs:
            return
        yield from sorted(log.by_seqs(connection, aim.company_id, seqs), key=lambda one: one.seq)
        above = seqs[-1]


def _may_be(aim: Aim) -> ColumnElement[bool]:
    """What lets through all that `doomed` names a field of, and some more."""
    columns = _OPERATIONS.c
    ids = sorted({one for known in (*aim.gone.values(), *aim.living.values()) for one in known})
    conditions: list[ColumnElement[bool]] = [false()]
    if aim.subject_id is not None:
        conditions.append(columns.subject_id == aim.subject_id)
    if aim.project_id is not None:
        conditions.append(columns.project_id == aim.project_id)
    if aim.before is not None:
        conditions.append(columns.started_at < aim.before)
    for start in range(0, len(ids), _CHUNK):
        touched = select(_HANDLES.c.seq).where(
            _HANDLES.c.company_id == aim.company_id,
            _HANDLES.c.provider_record_id.in_(ids[start : start + _CHUNK]),
        )
        conditions.append(columns.seq.in_(touched))
    said = {*aim.telling, *ids, *aim.subjects}
    if len(said) > _MOST_CONDITIONS:
        return true()
    for text in said:
        for place in (cast(columns.request, String), columns.error_message):
            # A text with half of a surrogate pair is stored with ASCII escapes.
            both = {stored_json(text)[1:-1], canonical(text)[1:-1]}
            conditions += [place.contains(one, autoescape=True) for one in both]
    return or_(*conditions)


class Step(NamedTuple):
    """A row of the undo journal."""

    operation_id: str
    ordinal: int
    binding_key: str
    record_id: str
    snapshots: tuple[Snapshot, ...]


def steps(connection: Connection, aim: Aim) -> Iterator[Step]:
    """Return what the undo journal holds that a purge is about and that is not erased yet."""
    columns = _JOURNAL.c
    rows = connection.execute(
        select(_JOURNAL)
        .where(columns.company_id == aim.company_id, columns.erased_by.is_(None))
        .order_by(columns.operation_id, columns.ordinal)
    )
    for row in rows:
        if aim.before is not None and row.started_at >= aim.before:
            continue
        if "handle" not in row.before:
            said = canonical(row.before) if "found" in row.before else ""
            if any(text in said for text in aim.written):
                yield Step(row.operation_id, row.ordinal, row.binding_key, "", ())
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
            yield Step(row.operation_id, row.ordinal, row.binding_key, record_id, snapshots)


def said_by_others(connection: Connection, aim: Aim, texts: Sequence[str]) -> set[str]:
    """Return those of some texts that the undo journal has as what another record says or said."""
    columns = _JOURNAL.c
    rows = connection.execute(
        select(
            columns.binding_key, columns.provider_record_id, columns.before, columns.after
        ).where(columns.company_id == aim.company_id, columns.erased_by.is_(None))
    )
    found: set[str] = set()
    wanted = {text: canonical(text)[1:-1] for text in texts}
    for key, record_id, *states in rows:
        if not aim.names(key, record_id):
            said = canonical(states)
            found.update(text for text, written in wanted.items() if written in said)
    return found


def erase_steps(connection: Connection, aim: Aim, found: Sequence[Step], by: str) -> None:
    """Take states and the ids of gone records out of the journal; that it was changed stays.

    Args:
        connection: With a write transaction.
        aim: What is erased.
        found: What `steps` returned.
        by: The operation that erases them.
    """
    columns = _JOURNAL.c
    company = columns.company_id == aim.company_id
    for step in found:
        connection.execute(
            update(_JOURNAL)
            .where(
                company,
                columns.operation_id == step.operation_id,
                columns.ordinal == step.ordinal,
            )
            .values(before={}, after=None, erased_by=by)
        )
    for key, known in aim.gone.items():
        for start in range(0, len(known), _CHUNK):
            ids = sorted(known)[start : start + _CHUNK]
            connection.execute(
                update(_JOURNAL)
                .where(
                    company,
                    columns.binding_key == key,
                    columns.provider_record_id.in_(ids),
                    columns.erased_by.is_not(None),
                )
                .values(provider_record_id="")
            )


def forgotten(connection: Connection, company_id: str) -> dict[str, set[str]]:
    """Return the ids of the records that were last seen to be gone, by binding."""
    columns = _JOURNAL.c
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


def names(connection: Connection, aim: Aim) -> tuple[int, int]:
    """Return how many links between ids, and ids of the served plugin, name gone records."""
    links, served = (
        sum(len(connection.execute(select(table).where(*where)).all()) for where in found)
        for table, found in _naming(connection, aim)
    )
    return links, served


def drop_names(connection: Connection, aim: Aim) -> None:
    """Drop what `names` counts."""
    for table, found in _naming(connection, aim):
        for where in found:
            connection.execute(delete(table).where(*where))


def _naming(connection: Connection, aim: Aim) -> list[tuple[Any, list[list[Any]]]]:
    links: list[list[Any]] = []
    served: list[list[Any]] = []
    for key, known in aim.gone.items():
        for start in range(0, len(known), _CHUNK):
            ids = sorted(known)[start : start + _CHUNK]
            named = or_(_LINKS.c.old_record_id.in_(ids), _LINKS.c.new_record_id.in_(ids))
            company = aim.company_id
            links.append([_LINKS.c.company_id == company, _LINKS.c.binding_key == key, named])
            binding = _IDS.c.binding_id == _binding_id(connection, company, key)
            served.append([_IDS.c.company_id == company, binding, _IDS.c.record_id.in_(ids)])
    return [(_LINKS, links), (_IDS, served)]


def _binding_id(connection: Connection, company_id: str, key: str) -> str:
    row = bindings.binding(connection, company_id, key)
    return row.binding_id if row is not None else ""
