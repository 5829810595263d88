"""Reads the operation log: hot operations in the database, sealed ones in DuckDB over their files.

Each statement is written once. Functions that take a `DatabaseConnection` also take a connection to
the sealed operations (`memtui.analytics.sealed`), whose tables have the same names and columns.
Facts are counted from the undo journal, which is never sealed.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import product
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Integer,
    Row,
    Select,
    Text,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    text,
    true,
    type_coerce,
)

from memtui.contract import (
    Filter,
    OperationStatus,
    OperationType,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
)
from memtui.store.conditions import among, conditions, is_folded_away
from memtui.store.database import DatabaseConnection, stored_moment
from memtui.store.digest import CONTROL
from memtui.store.limits import HALF, halves
from memtui.store.operation import (
    APP_CHANNEL,
    DELIVERIES,
    INTERNAL,
    READS,
    Loaded,
    Operation,
    OperationPage,
    Place,
    apart,
    damaged,
    is_folded,
    to_operation,
    why_damaged,
)
from memtui.store.tables import (
    HANDLES,
    HEADS,
    IS_COPY,
    JOURNAL,
    MIGRATED_FROM,
    OPERATIONS,
    USAGE,
    of_review,
)
from memtui.store.visibility import Visibility, seen

_SEQ: Column[int] = OPERATIONS.c.seq

_NO_USE = sorted(map(str, (OperationType.CONFIGURE, *CONTROL)))
"""Types of operation that use no memory."""
_MUTATIONS = tuple(kind for kind in OperationType if kind.mutates)
_AGENT = "agent:"
SOURCE_IDS = tuple(one for one in SourceRef.model_fields if one not in {"kind", "company_id"})
"""The ids that identify a work object, together with its kind."""
_IS_INTERNAL: ColumnElement[bool] = literal_column(INTERNAL, Boolean)
_DAY = 86_400_000_000
"""Microseconds."""
_ROWS_AT_ONCE = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (stored_moment(datetime(year, 1, 1, tzinfo=UTC)) for year in (1, 9999))
"""Bounds of a valid moment; Python has no dates beyond them."""

_BY = func.coalesce(OPERATIONS.c.agent_id, OPERATIONS.c.principal).label("by")
"""The agent of an operation, else its principal."""
_CONSUMED = (
    USAGE.c.input_tokens,
    USAGE.c.output_tokens,
    USAGE.c.embedding_tokens,
    type_coerce(USAGE.c.cost_usd, BigInteger),
)

T = TypeVar("T")

UNREADABLE = (
    "The log contains values that memtui never writes; `memtui audit verify` names the operation "
    "that is damaged."
)


class Retrieved(NamedTuple):
    """A read that returned a record."""

    operation: Operation
    rank: int
    score: float | None


class Reads(NamedTuple):
    """How often a record was returned, and when and where last."""

    times: int
    last_at: datetime
    last_rank: int


class SourceWrites(NamedTuple):
    """The successful writes that came from one work object."""

    key: str
    """Identifies the work object."""
    writes: int
    records: int
    first_at: datetime | None
    """`first_at` and `last_at` are None where no write has a readable time."""
    last_at: datetime | None
    last_seq: int
    named: tuple[Any, ...]
    """Kind, the ids of `SOURCE_IDS`, and the run (of notes by hand only)."""


class TimeSpan(NamedTuple):
    """When an operation began and ended, both included."""

    operation_id: str
    begins: datetime
    ends: datetime


class Word(NamedTuple):
    """A principal's feedback on a record that a query or a context returned."""

    record_id: str
    judged: str
    """The operation that returned it."""
    principal: str
    seq: int
    helped: bool | None
    """None: earlier feedback is withdrawn."""


class ContextDay(NamedTuple):
    """The contexts assembled on one UTC day; `day` counts the days since 1970."""

    day: int
    contexts: int
    delivered: int
    over_budget: int
    tokens: int
    budget: int
    """`tokens` and `budget` are sums over the day's contexts."""
    most_tokens: int


class RunPart(NamedTuple):
    """A run's operations that have the same values in the fields from `run_id` to `channel`."""

    run_id: str
    operation_type: str
    status: str
    agent_id: str | None
    project_id: str | None
    subject_id: str | None
    issue_id: str | None
    principal: str
    channel: str
    operations: int
    with_results: int
    first_seq: int
    last_seq: int
    first_at: datetime | None
    """`first_at` and `last_at` are None where no operation has a readable time."""
    last_at: datetime | None


class RunContexts(NamedTuple):
    """A run's successful contexts with equal values; an imported one may have any text in them.

    `delivered` is None where the request lacks it, and false where a person only looked at it.
    """

    run_id: str
    delivered: str | None
    tokens: str | None
    contexts: int


class RunUsage(NamedTuple):
    """Usage of a run's operations; `cost_pico` sums the priced calls, in 1e-12 dollars."""

    run_id: str
    calls: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    embedding_tokens: int
    cost_pico: int


class RunFigures(NamedTuple):
    """Figures of some runs; the sealed part of a run and the hot part are separate entries."""

    parts: list[RunPart]
    contexts: list[RunContexts]
    usage: list[RunUsage]
    damaged: list[int]
    """The numbers of damaged operations, which the figures may leave out."""


class Delivered(NamedTuple):
    """The deliveries of a record to one run, or outside runs to one agent or principal."""

    record_id: str
    run_id: str | None
    by: str
    is_seen: bool
    """Whether the visibility includes them."""
    first_seq: int
    times: int


class RecordText(NamedTuple):
    """A record before and after a successful mutation; None where it did not exist."""

    seq: int
    before: Record | None
    after: Record | None

    @property
    def is_same(self) -> bool:
        """Whether the record said the same before and after."""
        said = [one and (one.summary, one.text) for one in (self.before, self.after)]
        return None not in said and said[0] == said[1]


def owners(
    connection: DatabaseConnection, operation_ids: Sequence[str]
) -> dict[str, tuple[str, datetime]]:
    """Return company and start of each of these operations that exists, by operation id."""
    columns = OPERATIONS.c
    wanted = (columns.operation_id, columns.company_id, columns.started_at)
    return {
        row.operation_id: (row.company_id, row.started_at)
        for part in parts(operation_ids)
        for row in connection.execute(select(*wanted).where(columns.operation_id.in_(part)))
    }


def company_salt(connection: DatabaseConnection, company_id: str) -> bytes:
    """Return the salt of a company's subject commitments; empty before its first operation."""
    found = connection.execute(select(HEADS.c.salt).where(HEADS.c.company_id == company_id))
    return found.scalar() or b""


@dataclass(frozen=True, slots=True)
class OperationStore:
    """The operations of a company in one place: the database, or its archive.

    Operations up to number `above`, and those that the visibility excludes, are left out.
    """

    connection: DatabaseConnection
    company_id: str
    visibility: Visibility | None = None
    """None: everything."""
    above: int = 0

    @property
    def _own(self) -> tuple[ColumnElement[bool], ...]:
        company = OPERATIONS.c.company_id == self.company_id
        return (company, self.above < _SEQ) if self.above else (company,)

    def _matching(self, chosen: Filter) -> list[ColumnElement[bool]]:
        chosen = chosen if self._folds(chosen) else apart(chosen)
        return conditions(self.connection.dialect, self.company_id, chosen, self.visibility)

    def page(
        self,
        chosen: Filter,
        *,
        limit: int,
        before: int | None = None,
        after: int | None = None,
        strict: bool = True,
    ) -> OperationPage:
        """Return one page, newest first: the newest below `before`, or the oldest above `after`.

        `strict`: a damaged row fails the page; otherwise `by_seqs` documents its placeholder.
        """
        total, left_out = self.count(chosen), self.left_out(chosen)
        found: tuple[Operation, ...] = ()
        next_before = None
        if after is not None and total and limit:
            found = self.newer(chosen, after, limit, strict=strict)[::-1]
        elif total and limit:
            older = () if before is None else (before > _SEQ,)
            matching = *older, *self._matching(chosen)
            seqs = self._numbers(*matching, order=_SEQ.desc(), limit=limit + 1)
            next_before = seqs[limit - 1] if len(seqs) > limit else None
            found = self._in_order(seqs[:limit], strict=strict)
        return OperationPage(
            operations=found,
            total=total,
            left_out=left_out,
            folded=is_folded(chosen),
            next_before=next_before,
        )

    def newer(
        self, chosen: Filter, after: int, limit: int, *, strict: bool = False
    ) -> tuple[Operation, ...]:
        """Return the first matching operations above number `after`, the oldest first."""
        matching = (after < _SEQ, *self._matching(chosen))
        return self._in_order(self._numbers(*matching, order=_SEQ, limit=limit), strict=strict)

    def count(self, chosen: Filter, through: int | None = None) -> int:
        """Return how many operations match, up to number `through`."""
        by_then = () if through is None else (through >= _SEQ,)
        if self._matching(apart(chosen).with_internal()):
            return self._count(*by_then, *self._matching(chosen))
        # No condition is left: numbers have no gaps, so the first and the last give the count.
        ends = (select(end(_SEQ)).where(*self._own, *by_then) for end in (func.min, func.max))
        first, last = (end.scalar_subquery() for end in ends)
        found = self.connection.execute(select(func.coalesce(last - first + 1, 0)))
        folded = self._count(*self._folded(chosen), *by_then) if self._folds(chosen) else 0
        return int(found.scalar_one()) - self.left_out(chosen, through) - folded

    def left_out(self, chosen: Filter, through: int | None = None) -> int:
        """Count the matches that are hidden as memtui's own reads, up to `through`."""
        if not chosen.excludes_internal:
            return 0
        by_then = () if through is None else (through >= _SEQ,)
        matching = self._matching(apart(chosen).with_internal())
        return self._count(_IS_INTERNAL, *by_then, *matching)

    def _count(self, *where: ColumnElement[bool]) -> int:
        statement = select(func.count()).select_from(OPERATIONS).where(*self._own, *where)
        return int(self.connection.execute(statement).scalar_one())

    def internal_seqs(self, last: int) -> Sequence[int]:
        """Return the numbers of memtui's own reads up to `last`."""
        return self._numbers(_IS_INTERNAL, last >= _SEQ, *seen(self.visibility), order=_SEQ)

    def folded_seqs(self, chosen: Filter, last: int) -> Sequence[int]:
        """Return the numbers up to `last` of the matches that are part of another one."""
        if not self._folds(chosen):
            return ()
        return self._numbers(last >= _SEQ, *self._folded(chosen), order=_SEQ)

    def some_part(self) -> Sequence[int]:
        """Return the number of an operation that is part of another one, if there is any."""
        return self._numbers(OPERATIONS.c.part_of > "", limit=1)

    def _folds(self, chosen: Filter) -> bool:
        """Whether any operation may be listed as part of another one."""
        return is_folded(chosen) and bool(self.some_part())

    def _folded(self, chosen: Filter) -> list[ColumnElement[bool]]:
        """Return the conditions of the matches that are part of another one."""
        how = (self.connection.dialect, self.company_id, chosen, self.visibility)
        return [is_folded_away(*how), *self._matching(apart(chosen))]

    def by_id(self, operation_id: str) -> tuple[Operation, ...]:
        """Return the operation with this id or `seq`, else up to two whose id starts with it."""
        if not operation_id:
            return ()
        column, own = OPERATIONS.c.operation_id, OPERATIONS.c.company_id == self.company_id
        matches: list[tuple[Any, ...]] = [(own, column == operation_id)]
        if operation_id.isdecimal() and len(operation_id) < 19:
            matches.append((own, int(operation_id) == _SEQ))
        if self.connection.dialect == "sqlite":
            # LIKE uses no index in SQLite; `+ ""` keeps it off indexes that begin with the company.
            own = (OPERATIONS.c.company_id + "") == self.company_id
            matches.append((own, column >= operation_id, column < operation_id + "\U0010ffff"))
        else:
            matches.append((own, column.startswith(operation_id, autoescape=True)))
        for match in matches:
            found = self.connection.execute(
                select(_SEQ).where(*match, *seen(self.visibility)).limit(2)
            ).scalars()
            if numbers := found.all():
                return self._in_order(numbers)
        return ()

    def by_ids(
        self, operation_ids: Sequence[str], record_ids: Sequence[str] = (), *, strict: bool = True
    ) -> tuple[Operation, ...]:
        """Return the operations with these ids, newest first; other arguments as `by_seqs`."""
        column = OPERATIONS.c.operation_id
        found = [
            seq
            for part in parts(operation_ids)
            for seq in self._numbers(column.in_(part), *seen(self.visibility))
        ]
        return self._in_order(sorted(found, reverse=True), record_ids, strict=strict)

    def parts(self, operation_ids: Sequence[str]) -> list[tuple[str, Operation]]:
        """Return the operations that are part of these, oldest first, each with the other's id.

        A placeholder stands for a damaged one, as in `by_seqs`.
        """
        of = OPERATIONS.c
        found: dict[int, str] = {}
        for some in parts(operation_ids):
            named = select(_SEQ, of.part_of).where(
                *self._own, of.part_of.in_(some), *seen(self.visibility)
            )
            found |= dict(self.connection.execute(named).all())
        operations = self._in_order(sorted(found), strict=False)
        return [(found[one.seq], one) for one in operations]

    def latencies(self, binding_key: str, limit: int) -> list[float]:
        """Return the latencies of a binding's newest operations in milliseconds, oldest first."""
        newest = (
            select(OPERATIONS.c.latency_ms)
            .where(
                *self._own,
                OPERATIONS.c.binding_key == binding_key,
                OPERATIONS.c.latency_ms.is_not(None),
                *seen(self.visibility),
            )
            .order_by(_SEQ.desc())
            .limit(limit)
        )
        found = map(_milliseconds, self.connection.execute(newest).scalars())
        return [one for one in found if one is not None][::-1]

    def seqs(self, chosen: Filter, first: int, last: int) -> Sequence[int]:
        """Return the numbers of matching operations from `first` to `last`, ends included."""
        within = _SEQ.between(first, last)
        return self._numbers(within, *self._matching(chosen), order=_SEQ)

    def lacking(self) -> tuple[Operation, ...]:
        """Return operations with absent values, and `CONTROL` ones, which say why; oldest first."""
        columns = OPERATIONS.c
        tells = columns.operation_type.in_(sorted(CONTROL))
        found = self._numbers(or_(columns.absent.is_not(None), tells), order=_SEQ)
        return self._in_order(found)

    def last_begun(self, chosen: Filter, by: datetime, last: int) -> tuple[datetime, int] | None:
        """Return start and number of the last operation to begin by a moment; None if none did.

        Only operations that match the filter and are not above number `last` count.
        """
        columns = OPERATIONS.c
        statement = (
            select(columns.started_at, columns.seq)
            .where(*self._own, columns.started_at <= by, columns.seq <= last)
            .where(*self._matching(chosen))
            .order_by(columns.started_at.desc(), columns.seq.desc())
            .limit(1)
        )
        found = self.connection.execute(statement).one_or_none()
        return None if found is None else (found.started_at, found.seq)

    def spans(self, chosen: Filter) -> list[TimeSpan]:
        """Return start and end of each matching operation, ordered by start.

        An operation without a readable latency ends as it begins.

        Raises:
            Unavailable: the start of one cannot be read.
        """
        columns = OPERATIONS.c
        statement = select(columns.operation_id, columns.started_at, columns.latency_ms)
        found = self.connection.execute(
            statement.where(*self._own, *self._matching(chosen)).order_by(columns.started_at, _SEQ)
        )
        spans = []
        try:
            for operation_id, at, took in found:
                # An imported operation may claim any latency: count a day at most.
                known = min(_milliseconds(took) or 0, _DAY / 1_000)
                spans.append(TimeSpan(operation_id, at, at + timedelta(milliseconds=known)))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise Unavailable(UNREADABLE) from error
        return spans

    def _successful(self, chosen: Filter) -> Any:
        """Return the successful operations that match, as a subquery for FROM."""
        only = chosen.model_copy(update={"status": OperationStatus.OK})
        return select(OPERATIONS).where(*self._own, *self._matching(only)).subquery()

    def retrievals(
        self, binding_key: str, record_id: str, limit: int
    ) -> tuple[int, list[Retrieved]]:
        """Return how many reads returned a record, and the newest of them with rank and score."""
        columns, returned = HANDLES.c, self._returned(binding_key, [record_id])
        total = self.connection.execute(select(func.count()).select_from(HANDLES).where(*returned))
        newest = select(columns.seq, columns.rank, columns.score).where(*returned)
        rows = self.connection.execute(newest.order_by(columns.seq.desc()).limit(limit)).all()
        found = {one.seq: one for one in self.by_seqs([row.seq for row in rows])}
        return total.scalar_one(), [Retrieved(found[seq], rank, score) for seq, rank, score in rows]

    def retrieval_counts(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, Reads]:
        """Return how often each record was returned by a read; those never returned are absent."""
        columns, found = HANDLES.c, {}
        for part in parts(record_ids):
            counted = (
                select(columns.provider_record_id, func.count(), func.max(columns.seq))
                .where(*self._returned(binding_key, part))
                .group_by(columns.provider_record_id)
            )
            last = {(one, seq): times for one, times, seq in self.connection.execute(counted)}
            newest = sorted({seq for _, seq in last})
            placed = (
                select(
                    columns.provider_record_id, columns.seq, OPERATIONS.c.started_at, columns.rank
                )
                .join(OPERATIONS, _of_operation(columns))
                .where(
                    columns.company_id == self.company_id,
                    _among(self.connection, columns.seq, newest),
                )
            )
            for record_id, seq, at, rank in self.connection.execute(placed) if newest else ():
                if (record_id, seq) in last:
                    found[record_id] = Reads(last[record_id, seq], at, rank)
        return found

    def sources(
        self, chosen: Filter, *, limit: int | None = None, among: Sequence[str] | None = None
    ) -> list[SourceWrites]:
        """Return the sources of writes, latest write first; `among` narrows to some keys."""
        found = self._successful(chosen)
        kind = found.c.source_kind
        # A note by hand names no work object: its run stands for one.
        by_hand = case((kind == str(SourceKind.MANUAL_NOTE), found.c.run_id), else_=None)
        ids = [found.c[f"source_{name}"] for name in SOURCE_IDS]
        key = reduce(
            operator.add, (func.coalesce(one, "") + "\x1f" for one in (kind, *ids, by_hand))
        ).label("key")
        last = func.max(found.c.seq).label("last_seq")
        statement = (
            select(
                key,
                func.count().label("writes"),
                cast(func.sum(found.c.result_count), BigInteger).label("records"),
                func.min(_moment(found.c.started_at)).label("first_at"),
                func.max(_moment(found.c.started_at)).label("last_at"),
                last,
                *(func.max(one) for one in (kind, *ids, by_hand)),
            )
            .where(kind.is_not(None), found.c.operation_type == str(OperationType.WRITE))
            .group_by(key)
            .order_by(last.desc())
            .limit(limit)
        )
        if among is not None:
            statement = statement.where(key.element.in_(among))
        rows = self.connection.execute(statement)
        return [SourceWrites._make((*row[:6], tuple(row[6:]))) for row in rows]

    def words(self, binding_key: str, record_ids: Sequence[str]) -> list[Word]:
        """Return the feedback on records, in no order."""
        columns, of = HANDLES.c, OPERATIONS.c
        found: list[Word] = []
        for part in parts(record_ids):
            # In two steps: for a join SQLite would scan every operation of the company.
            given = self.connection.execute(
                select(columns.provider_record_id, columns.seq, columns.score).where(
                    *self._touched(binding_key, (OperationType.FEEDBACK,), part),
                    columns.seq > self.above,
                )
            ).all()
            wanted = sorted({seq for _, seq, _ in given})
            statement = select(_SEQ, of.request, of.principal).where(
                *self._own,
                _among(self.connection, _SEQ, wanted),
                of.status == str(OperationStatus.OK),
                *seen(self.visibility),
            )
            rows = {one.seq: one for one in self.connection.execute(statement)} if wanted else {}
            for record_id, seq, score in given:
                if (one := rows.get(seq)) is not None:
                    helped = None if score is None else score > 0
                    judged = str(one.request.get("operation_id"))
                    found.append(Word(record_id, judged, one.principal, seq, helped))
        return found

    def judged(self, newest: int) -> set[str]:
        """Return the ids of the records that the `newest` latest feedback operations are about."""
        of, columns = OPERATIONS.c, HANDLES.c
        said = (
            select(_SEQ)
            .where(
                *self._own,
                of.operation_type == str(OperationType.FEEDBACK),
                of.status == str(OperationStatus.OK),
            )
            .order_by(_SEQ.desc())
            .limit(newest)
        )
        named = select(columns.provider_record_id).where(
            columns.company_id == self.company_id, columns.seq.in_(said)
        )
        return {record_id for (record_id,) in self.connection.execute(named.distinct())}

    def readers(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, set[str]]:
        """Return the principals that read each record."""
        columns, found, readers = HANDLES.c, defaultdict[str, set[str]](set), dict[int, str]()
        for part in parts(record_ids):
            returned = self.connection.execute(
                select(columns.provider_record_id, columns.seq)
                .where(*self._returned(binding_key, part))
                .distinct()
            ).all()
            wanted = {seq for _, seq in returned} - readers.keys()
            readers |= self._principals(sorted(wanted))
            for record_id, seq in returned:
                found[record_id].add(readers[seq])
        return found

    def _principals(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the principal of each operation; an agent with an `agent_id` is named by that."""
        columns = OPERATIONS.c
        statement = select(_SEQ, columns.agent_id, columns.principal).where(
            *self._own, _among(self.connection, _SEQ, numbers)
        )
        rows = self.connection.execute(statement) if numbers else ()
        return {
            seq: f"{_AGENT}{agent_id}" if agent_id and principal.startswith(_AGENT) else principal
            for seq, agent_id, principal in rows
        }

    def mutations_of_record(self, binding_key: str, record_id: str) -> list[str]:
        """Return the ids of the mutations that touched a record."""
        statement = (
            select(OPERATIONS.c.operation_id)
            .join(HANDLES, _of_operation(HANDLES.c))
            .where(*self._touched(binding_key, _MUTATIONS, [record_id]), *seen(self.visibility))
        )
        return [str(operation_id) for (operation_id,) in self.connection.execute(statement)]

    def mutations(self, binding_key: str, record_ids: Sequence[str]) -> set[int]:
        """Return the `seq` of the mutations that touched records."""
        columns, found = HANDLES.c, set[int]()
        for part in parts(record_ids):
            touched = self._touched(binding_key, _MUTATIONS, part)
            rows = select(columns.seq).where(*touched, columns.seq > self.above)
            found |= {*self.connection.execute(rows).scalars()}
        return found

    def active(self, chosen: Filter, field: str) -> set[str]:
        """Return the distinct values of an id field among the successful operations that match.

        Operations on settings or on the log itself, such as sealing, are left out.
        """
        found = self._successful(chosen)
        column = found.c[field]
        used = found.c.operation_type.not_in(_NO_USE)
        rows = self.connection.execute(select(column).where(column.is_not(None), used).distinct())
        return {str(value) for (value,) in rows}

    def scopes(self, newest: int) -> dict[Scope, bool]:
        """Return the distinct scopes of the `newest` latest operations, the last used first.

        False: the scope's namespace was removed, and nothing was written there since.

        Left out are scopes in which a person found nothing, as the name may be mistyped, and those
        of a subject of whom nobody found anything. An erased subject, now a hash, counts as none.
        """
        columns = OPERATIONS.c
        erased = cast(columns.absent, Text).contains('"scope.subject_id"')
        named = case((func.coalesce(erased, False), None), else_=columns.subject_id)
        subject = named.label("subject_id")
        fields = [subject if name == "subject_id" else columns[name] for name in Scope.model_fields]
        removal = _said(_readable(self.connection, columns.request), "remove_namespace")
        is_removal = removal.is_not(None)
        is_write = columns.operation_type == str(OperationType.WRITE)
        is_agents = not_(columns.principal.startswith("user:"))
        looked_at = (
            select(
                _SEQ,
                case((is_removal, _SEQ), else_=0).label("removed"),
                case((is_write, _SEQ), else_=0).label("written"),
                *fields,
            )
            .where(*self._own, *self._matching(Filter()))
            .where(
                or_(
                    columns.result_count > 0,
                    and_(is_agents, columns.subject_id.is_(None)),
                    is_removal,
                )
            )
            .order_by(_SEQ.desc())
            .limit(newest)
            .subquery()
        )
        alike = [looked_at.c[name] for name in Scope.model_fields]
        last, removed, written = (
            func.max(looked_at.c[name]) for name in ("seq", "removed", "written")
        )
        statement = select(removed <= written, *alike).group_by(*alike).order_by(last.desc())
        return {
            Scope(**dict(zip(Scope.model_fields, row, strict=True))): bool(is_there)
            for is_there, *row in self.connection.execute(statement)
        }

    def runs(
        self, chosen: Filter, record: tuple[str, Sequence[str]] | None = None
    ) -> dict[str, int]:
        """Return the runs of the matching operations, each with the last such `seq`.

        Args:
            chosen: Its `run_id` is compared with the operation's run, not with its source's.
            record: A binding and a record's ids there: only its deliveries.
        """
        run, columns = OPERATIONS.c.run_id, HANDLES.c
        terms = tuple(one for one in chosen.terms if one.field != "run_id")
        where = self._matching(chosen.model_copy(update={"run_id": None, "terms": terms}))
        named = [among(run, test) for test in chosen.field_tests() if test.field == "run_id"]
        where += [run.is_not(None), *named]
        if record is not None:
            touched = self._touched(record[0], DELIVERIES, record[1])
            where.append(_SEQ.in_(select(columns.seq).where(*touched)))
        own = (*self._own, OPERATIONS.c.channel != APP_CHANNEL)
        found = select(run, func.max(_SEQ)).where(*own, *where).group_by(run)
        return dict(self.connection.execute(found).all())

    def deliveries(
        self, binding_key: str, spans: Mapping[str, tuple[int, int]], limit: int
    ) -> list[Delivered]:
        """Return the deliveries of records, each between two numbers; at most `limit` groups.

        Those outside the visibility are returned too, marked so; later ones than it has are not.
        """
        of, columns, found = OPERATIONS.c, HANDLES.c, list[Delivered]()
        is_seen = (self.visibility.condition() if self.visibility else true()).label("is_seen")
        alike = (columns.provider_record_id, of.run_id, _BY, is_seen)
        is_delivery = (
            func.coalesce(of.status, "") == str(OperationStatus.OK),
            func.coalesce(of.channel, "") != APP_CHANNEL,
            not_(func.coalesce(of.to_show, False)),
            *self._in_time(),
        )
        for names in parts(list(spans)):
            after, before = (
                case({one: spans[one][end] for one in names}, value=columns.provider_record_id)
                for end in (0, 1)
            )
            first = max(self.above, min(spans[one][0] for one in names))
            within = (columns.seq > first, columns.seq > after, columns.seq < before)
            statement = (
                select(*alike, func.min(_SEQ), func.count())
                # An outer join and COALESCE: else SQLite would scan every operation of the company.
                .join(OPERATIONS, _of_operation(columns), isouter=True)
                .where(*self._touched(binding_key, DELIVERIES, names), *within, *is_delivery)
            )
            rows = self.connection.execute(statement.group_by(*alike).limit(limit))
            found += [Delivered(*row) for row in rows]
        return found

    def writes(
        self, runs: Sequence[str], agents: Sequence[str], above: int, limit: int
    ) -> list[int]:
        """Return the numbers of the first writes and corrections of runs, or else of agents.

        An accepted write has its run in its source. Visible or not; not later than the visibility.
        """
        of, found = OPERATIONS.c, set[int]()
        kinds = [str(one) for one in (OperationType.WRITE, OperationType.CORRECT)]
        made = [str(one) for one in OperationStatus if one.name in {"OK", "UNKNOWN", "PENDING"}]
        places = (of.run_id, of.source_run_id) if runs else (of.agent_id, of.principal)
        where = (of.operation_type.in_(kinds), of.status.in_(made), above < _SEQ, *self._in_time())
        # One by one: for a choice of two DuckDB would read both columns of every operation.
        for place, names in product(places, parts(runs or agents)):
            found.update(self._numbers(place.in_(names), *where, order=_SEQ, limit=limit))
        return sorted(found)[:limit]

    def _in_time(self) -> tuple[ColumnElement[bool], ...]:
        moment = self.visibility.until if self.visibility else None
        return () if moment is None else (OPERATIONS.c.started_at <= moment,)

    def run_figures(self, run_ids: Sequence[str]) -> RunFigures:
        """Return the figures of some runs."""
        found = RunFigures([], [], [], [])
        columns, is_damaged = OPERATIONS.c, _is_damaged(self.connection)
        alike = [columns[name] for name in RunPart._fields if name in columns]
        asked = _readable(self.connection, columns.request)
        sums = [half for column in _CONSUMED for half in halves(column)]
        for run_ids_of_part in parts(run_ids):
            own = self._of_runs(run_ids_of_part)
            found.damaged.extend(self._numbers(*own, is_damaged, order=_SEQ))
            counted = self.connection.execute(
                select(
                    *alike,
                    func.count().label("operations"),
                    _count_true(columns.result_count > 0).label("with_results"),
                    func.min(_SEQ).label("first_seq"),
                    func.max(_SEQ).label("last_seq"),
                    func.min(_moment(columns.started_at)).label("first_at"),
                    func.max(_moment(columns.started_at)).label("last_at"),
                )
                .where(*own)
                .group_by(*alike)
            )
            found.parts.extend(RunPart(*row) for row in counted)
            said = [_said(asked, name) for name in ("delivered", "tokens")]
            given = self.connection.execute(
                select(
                    columns.run_id,
                    said[0].label("delivered"),
                    said[1].label("tokens"),
                    func.count().label("contexts"),
                )
                .where(
                    *own,
                    columns.operation_type == str(OperationType.CONTEXT),
                    columns.status == str(OperationStatus.OK),
                    not_(is_damaged),
                )
                .group_by(columns.run_id, *said)
            )
            found.contexts.extend(RunContexts(*row) for row in given)
            calls = func.count().label("calls")
            unpriced = (func.count() - func.count(USAGE.c.cost_usd)).label("unpriced")
            used = self.connection.execute(
                select(columns.run_id, calls, unpriced, *sums)
                .join(USAGE, _of_operation(USAGE.c))
                .where(*own)
                .group_by(columns.run_id)
            )
            for run_id, call_count, unpriced_count, *parted in used:
                pairs = zip(parted[::2], parted[1::2], strict=True)
                whole = [int(high) * HALF + int(low) for high, low in pairs]
                found.usage.append(RunUsage(run_id, call_count, unpriced_count, *whole))
        return found

    def of_run(self, run_id: str, after: int, limit: int) -> tuple[Operation, ...]:
        """Return the first operations of a run above number `after`, the oldest first.

        A placeholder stands for a damaged one, as in `by_seqs`.
        """
        found = self._numbers(after < _SEQ, *self._of_runs([run_id]), order=_SEQ, limit=limit)
        return self._in_order(found, strict=False)

    def _of_runs(self, run_ids: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
        columns = OPERATIONS.c
        ids = columns.run_id.in_(run_ids)
        return (*self._own, ids, columns.channel != APP_CHANNEL, *seen(self.visibility))

    def contexts_by_day(self, chosen: Filter) -> list[ContextDay]:
        """Return the days with contexts, the oldest first.

        A context that skips what its run was given before does not count: it is not whole.
        """
        only = chosen.model_copy(update={"operation_type": OperationType.CONTEXT})
        found = self._successful(only)
        asked = _readable(self.connection, found.c.request)
        tokens, budget = (_number(asked, name) for name in ("tokens", "budget"))
        day = type_coerce(found.c.started_at, BigInteger) // _DAY
        rows = self.connection.execute(
            select(
                day.label("day"),
                func.count().label("contexts"),
                _count_true(_is_true(asked, "delivered")).label("delivered"),
                _count_true(_is_true(asked, "over_budget")).label("over_budget"),
                cast(func.sum(tokens), BigInteger).label("tokens"),
                cast(func.coalesce(func.sum(budget), 0), BigInteger).label("budget"),
                func.max(tokens).label("most_tokens"),
            )
            .where(tokens.is_not(None), ~_is_true(asked, "skip_given"))
            .group_by(day)
            .order_by(day)
        )
        return [ContextDay(*row) for row in rows]

    def prompt_sizes(self, limit: int) -> list[int]:
        """Return the tokens of the prompts of the newest contexts, newest first; 0: not measured.

        Measured are the prompts of imported replies, and those that hooks found in a transcript.
        """
        contexts = Filter(
            operation_type=OperationType.CONTEXT, status=OperationStatus.OK, internal=True
        )
        asked = _readable(self.connection, OPERATIONS.c.request)
        # SQLite ends a query at a damaged request.
        valid = func.json_valid(asked) == 1 if self.connection.dialect == "sqlite" else true()
        newest = (
            select(
                _SEQ,
                _said(asked, "imported").is_not(None),
                _is_true(asked["imported"], "sidechain"),
                _number(asked, "prompt_tokens"),
            )
            .where(*self._own, *self._matching(contexts), valid)
            .order_by(_SEQ.desc())
            .limit(limit)
        )
        found, replies = {}, []
        for seq, is_imported, is_aside, tokens in self.connection.execute(newest):
            found[seq] = 0 if is_imported else tokens or 0
            if is_imported and not is_aside:
                replies.append(seq)
        used = select(USAGE.c.seq, USAGE.c.input_tokens).where(
            USAGE.c.company_id == self.company_id, _among(self.connection, USAGE.c.seq, replies)
        )
        for seq, tokens in self.connection.execute(used) if replies else ():
            found[seq] += tokens
        return list(found.values())

    def _returned(
        self, binding_key: str, record_ids: Sequence[str]
    ) -> tuple[ColumnElement[bool], ...]:
        """Conditions on handles: those by which a visible read returned one of the records."""
        touched = (HANDLES.c.seq > self.above, *self._touched(binding_key, READS, record_ids))
        if self.visibility is None:
            return touched
        of = OPERATIONS.alias()
        own = (of.c.company_id == HANDLES.c.company_id, of.c.seq == HANDLES.c.seq)
        return (*touched, exists().where(*own, self.visibility.condition(of.c)))

    def _touched(
        self, binding_key: str, types: Sequence[OperationType], record_ids: Sequence[str]
    ) -> tuple[ColumnElement[bool], ...]:
        columns = HANDLES.c
        return (
            columns.company_id == self.company_id,
            columns.binding_key == binding_key,
            columns.operation_type.in_([str(kind) for kind in types]),
            columns.provider_record_id.in_(record_ids),
        )

    def _numbers(
        self, *where: ColumnElement[bool], order: Any = None, limit: int | None = None
    ) -> Sequence[int]:
        statement: Select[Any] = select(_SEQ).where(*self._own, *where)
        return self.connection.execute(statement.order_by(order).limit(limit)).scalars().all()

    def by_seqs(
        self, wanted: Sequence[int], record_ids: Sequence[str] = (), *, strict: bool = True
    ) -> list[Operation]:
        """Return the operations with these numbers that exist, in no order.

        With `record_ids`, only the handles of these records are loaded: one operation may have
        forgotten tens of thousands. Without `strict`, a placeholder stands for a damaged operation
        (`Operation.damaged`).

        Raises:
            Unavailable: one of them is damaged; the message names it.
        """
        found: list[Operation] = []
        for part in parts(wanted):
            try:
                found += self._read(part, record_ids)
            except (TypeError, ValueError, ArithmeticError) as error:
                if len(wanted) > 1:
                    each = (self.by_seqs([seq], record_ids, strict=strict) for seq in part)
                    found += (one for alone in each for one in alone)
                elif strict:
                    raise Unavailable(why_damaged(wanted[0])) from error
                else:
                    found.append(self._damaged(wanted[0]))
        return found

    def _damaged(self, seq: int) -> Operation:
        def value_of(column: Column[T], otherwise: T) -> T:
            only = select(column).where(OPERATIONS.c.company_id == self.company_id, _SEQ == seq)  # noqa: SIM300
            try:
                found: T = self.connection.execute(only).scalar_one()
            except (TypeError, ValueError, ArithmeticError):
                return otherwise
            return found

        columns = OPERATIONS.c
        operation_id = value_of(columns.operation_id, str(seq))
        return damaged(seq, operation_id, self.company_id, value_of(columns.started_at, _EPOCH))

    def _read(self, wanted: Sequence[int], record_ids: Sequence[str]) -> list[Operation]:
        only = HANDLES.c.provider_record_id.in_(record_ids) if record_ids else true()
        operations, usage, handles = (
            self.connection.execute(
                select(table)
                .where(
                    table.c.company_id == self.company_id,
                    _among(self.connection, table.c.seq, wanted),
                    narrowed,
                )
                .order_by(*order)
            ).all()
            for table, order, narrowed in (
                (OPERATIONS, (), true()),
                (USAGE, (USAGE.c.seq, USAGE.c.ordinal), true()),
                (HANDLES, (HANDLES.c.seq, HANDLES.c.rank), only),
            )
        )
        used, touched = _by_seq(usage), _by_seq(handles)
        return [
            to_operation(row._mapping, used[row.seq], touched[row.seq])  # noqa: SLF001
            for row in operations
        ]

    def _in_order(
        self, wanted: Sequence[int], record_ids: Sequence[str] = (), *, strict: bool = True
    ) -> tuple[Operation, ...]:
        found = {one.seq: one for one in self.by_seqs(wanted, record_ids, strict=strict)}
        return tuple(found[seq] for seq in wanted)


def _milliseconds(value: object) -> float | None:
    """Return a latency; None where it is missing or, in a tampered row, no number."""
    return value if isinstance(value, (int, float)) else None


def fact_steps(connection: DatabaseConnection, company_id: str, until: datetime) -> Iterator[Any]:
    """Yield a row for every change of a fact by a successful mutation before `until`.

    The rows of one record (`binding_key`, `record_id`) are adjacent, the oldest first. Each has
    `seq`, `at`, `operation_type`, `principal`, `was` and `is_now` (1 where the record was a fact
    before, and is one after), `accepted` (1 where a person accepted an agent's forget), the ids of
    its scope, and its author `created_by`, from the record afterwards.
    """
    before = _readable(connection, JOURNAL.c.before)
    after = _readable(connection, JOURNAL.c.after)
    was, is_now = (_is_fact(snapshot) for snapshot in (before, after))
    is_forget = JOURNAL.c.operation_type == str(OperationType.FORGET)
    is_accepted = is_forget & of_review(JOURNAL.c)
    statement = (
        select(
            JOURNAL.c.binding_key,
            JOURNAL.c.provider_record_id.label("record_id"),
            JOURNAL.c.seq,
            JOURNAL.c.started_at.label("at"),
            JOURNAL.c.operation_type,
            JOURNAL.c.principal,
            case((is_accepted, 1), else_=0).label("accepted"),
            was.label("was"),
            is_now.label("is_now"),
            after["record"]["created_by"].as_string().label("created_by"),
            *(
                func.coalesce(_scope_id(after, name), _scope_id(before, name)).label(name)
                for name in ("project_id", "subject_id", "agent_id")
            ),
        )
        .where(
            JOURNAL.c.company_id == company_id,
            JOURNAL.c.status == str(OperationStatus.OK),
            JOURNAL.c.started_at < until,
            (was == 1) | (is_now == 1),
        )
        .order_by(JOURNAL.c.binding_key, JOURNAL.c.provider_record_id, JOURNAL.c.seq)
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    yield from connection.execute(statement)


def record_texts(
    connection: DatabaseConnection, company_id: str, binding_key: str, record_ids: Sequence[str]
) -> dict[str, list[RecordText]]:
    """Return the journal's states of records before and after each change, by id, oldest first."""
    found: dict[str, list[RecordText]] = defaultdict(list)
    columns = JOURNAL.c
    wanted = (columns.provider_record_id, columns.seq, columns.before, columns.after)
    for part in parts(record_ids):
        rows = connection.execute(
            select(*wanted)
            .where(
                columns.company_id == company_id,
                columns.binding_key == binding_key,
                columns.provider_record_id.in_(part),
                columns.status == str(OperationStatus.OK),
                columns.erased_by.is_(None),
            )
            .order_by(columns.seq, columns.ordinal)
        )
        for record_id, seq, *states in rows:
            before, after = (
                Record.model_validate(state["record"]) if state and state.get("record") else None
                for state in states
            )
            found[record_id].append(RecordText(seq, before, after))
    return found


def copied_from(
    connection: DatabaseConnection, company_id: str, above: int
) -> dict[Place, list[int]]:
    """Return the writes above a `seq` that copied a record of another binding, by that record."""
    found, columns = defaultdict[Place, list[int]](list), JOURNAL.c
    stamp = _readable(connection, columns.after)["record"]["metadata"][MIGRATED_FROM]
    rows = select(_said(stamp, "binding"), _said(stamp, "record_id"), columns.seq).where(
        columns.company_id == company_id,
        columns.seq > above,
        columns.operation_type == str(OperationType.WRITE),
        columns.status == str(OperationStatus.OK),
        columns.erased_by.is_(None),
        text(IS_COPY),
    )
    for binding_key, record_id, seq in connection.execute(rows):
        found[binding_key, record_id].append(seq)
    return found


def known(moments: Iterable[datetime | None]) -> list[datetime]:
    """Return the moments that are not None; if there are none, the epoch, as `damaged` has."""
    return [one for one in moments if one is not None] or [_EPOCH]


def _moment(column: ColumnElement[datetime]) -> ColumnElement[datetime | None]:
    """Return the moment; null where the column holds no valid one (a tampered row)."""
    return case((type_coerce(column, BigInteger).between(_FIRST, _LAST), column), else_=None)


def _is_damaged(connection: DatabaseConnection) -> ColumnElement[bool]:
    """Return the condition of values that memtui never writes; only SQLite accepts them."""
    if connection.dialect != "sqlite":
        return false()
    columns = OPERATIONS.c
    request = func.coalesce(func.json_valid(columns.request), 1) == 0
    used = exists().where(_of_operation(USAGE.c), or_(*map(_is_no_number, _CONSUMED)))
    numbers = (columns.result_count, columns.latency_ms)
    begun = _moment(columns.started_at).is_(None)
    return or_(request, used, begun, *map(_is_no_number, numbers))


def _is_no_number(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition of text in a column of numbers, which SQLite accepts."""
    return func.typeof(column).in_(("text", "blob"))


def _count_true(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0), type_=Integer)


def _readable(connection: DatabaseConnection, column: Any) -> Any:
    r"""Return a JSON column whose members can be extracted, whatever foreign text it holds.

    PostgreSQL rejects a whole document that holds `\u0000` or half a surrogate pair anywhere, so
    every escape in it becomes a question mark first.
    """
    if connection.dialect == "sqlite":
        return column
    return cast(func.regexp_replace(cast(column, Text), r"\\.", "?", "g"), JSON)


def _said(asked: Any, name: str) -> ColumnElement[str]:
    """Return a member of the request as text: an imported one may be of any type."""
    return cast(asked[name].as_string(), Text)


def _number(asked: Any, name: str) -> ColumnElement[int | None]:
    """Return a member of the request; null where it is not a whole number below 1e9."""
    said = _said(asked, name)
    is_number = and_(func.length(said).between(1, 9), func.rtrim(said, "0123456789") == "")
    return case((is_number, cast(said, Integer)), else_=None)


def _is_true(asked: Any, name: str) -> ColumnElement[bool]:
    return func.coalesce(_said(asked, name), "").in_(("true", "1"))


def _is_fact(snapshot: Any) -> ColumnElement[int]:
    return case((snapshot["record"]["kind"].as_string() == "fact", 1), else_=0)


def _scope_id(snapshot: Any, name: str) -> Any:
    return snapshot["record"]["scope"][name].as_string()


def _of_operation(columns: Any) -> ColumnElement[bool]:
    of = OPERATIONS.c
    return and_(columns.company_id == of.company_id, columns.seq == of.seq)


def _by_seq(rows: Sequence[Row[Any]]) -> dict[int, list[Loaded]]:
    found: dict[int, list[Loaded]] = defaultdict(list)
    for row in rows:
        found[row.seq].append(row._mapping)  # noqa: SLF001 — SQLAlchemy's public name
    return found


def _among(
    connection: DatabaseConnection, column: Any, numbers: Sequence[int]
) -> ColumnElement[bool]:
    if connection.dialect != "duckdb" or not numbers:
        return and_(column.in_(numbers))
    # DuckDB skips parts of a file by a range, not by a list.
    low, high = min(numbers), max(numbers)
    within: ColumnElement[bool] = column.between(low, high)
    return within if high - low + 1 == len(numbers) else and_(within, column.in_(numbers))


def parts(values: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Yield values in parts small enough for the parameters of one statement."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
