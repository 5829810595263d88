"""The sealed operations of a company, for what the hot tables are asked by SQL otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memtui.analytics.conditions import condition, visible_to
from memtui.analytics.engine import Engine, quoted
from memtui.analytics.layout import TABLES, Folder, Manifest
from memtui.analytics.rows import among, fetch, sealed_rows, text_of
from memtui.analytics.source import stored_text
from memtui.contract import Filter, OperationStatus, OperationType
from memtui.store.columns import UtcMicroseconds
from memtui.store.digest import CONTROL, canonical
from memtui.store.metrics import ContextDay
from memtui.store.operation import Operation
from memtui.store.retrieval import READS
from memtui.store.sight import Sight
from memtui.store.values import stored_json

if TYPE_CHECKING:
    from memtui.store.purging import Aim

_AT_ONCE = 4_096
_MOST_CONDITIONS = 60
_DAY = 86_400_000_000
"""Microseconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Retrieved(NamedTuple):
    """A read that returned a record; as a row of `memtui.store.retrieval.retrievals`."""

    operation_id: str
    seq: int
    started_at: datetime
    request: dict[str, Any]
    principal: str
    rank: int
    score: float | None


class Reads(NamedTuple):
    """How often a record was returned, and when and where last."""

    times: int
    last_at: datetime
    last_rank: int


class Archive:
    """The sealed operations of every company. DuckDB starts with the first that are asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._engine = Engine()

    def of(self, company_id: str, sight: Sight | None = None) -> Sealed:
        """Return what may be seen of a company's sealed operations; raises `Unavailable`."""
        folder = Folder(self._root, company_id)
        return Sealed(self._engine, folder, folder.read(), visible_to(sight))

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()


class Sealed:
    """What is sealed of one log at one moment. Blocking; where nothing is sealed, it is empty.

    Every method raises `Unavailable` where a file cannot be read.
    """

    def __init__(self, engine: Engine, folder: Folder, manifest: Manifest, visible: str) -> None:
        self._engine = engine
        self._folder = folder
        self._visible = visible
        self.manifest = manifest

    @property
    def through(self) -> int:
        """The highest sealed `seq`, 0 where nothing is sealed."""
        return self.manifest.sealed_through

    def by_ids(self, operation_ids: Sequence[str]) -> tuple[Operation, ...]:
        """Return the operations with these ids, newest first."""
        if not operation_ids:
            return ()
        return self._operations(f"operation_id IN ({_texts(operation_ids)})", "seq DESC")

    def begun(self, operation_ids: Sequence[str]) -> dict[str, datetime]:
        """Return when each of these operations began, those that are here."""
        if not operation_ids:
            return {}
        rows = self._ask(
            f"SELECT operation_id, epoch_us(started_at) FROM {self._log} "
            f"WHERE operation_id IN ({_texts(operation_ids)})"
        )
        return {str(text_of(name)): _EPOCH + at * _MICROSECOND for name, at in rows}

    def by_id(self, operation_id: str) -> tuple[Operation, ...]:
        """Return the operation with this id, else this `seq`, else up to two whose id starts so."""
        if not operation_id:
            return ()
        exact = self.by_ids([operation_id])
        if not exact and operation_id.isdecimal() and int(operation_id) <= self.through:
            exact = self._operations(f"seq = {int(operation_id)}", "seq")
        start = f"starts_with(operation_id, {_text(operation_id)})"
        return exact or self._operations(start, "seq", limit=2)

    def lacking(self) -> tuple[Operation, ...]:
        """Return the operations that lack a value, and those that can tell why, oldest first."""
        return self._operations(
            f"absent IS NOT NULL OR operation_type IN ({_texts(sorted(CONTROL))})", "seq"
        )

    def count(self, chosen: Filter) -> int:
        """Return how many operations a filter lets through."""
        if not (where := condition(chosen)) and not self._visible:
            return self.through
        found = self._ask(f"SELECT count(*) FROM {self._log} WHERE {where or 'true'}")
        return int(found[0][0]) if found else 0

    def newest(self, chosen: Filter, *, before: int, limit: int) -> tuple[Operation, ...]:
        """Return the newest operations below a `seq` that a filter lets through, newest first."""
        where = _all(condition(chosen), f"seq < {before}")
        return self._operations(where, "seq DESC", limit=limit)

    def oldest(self, chosen: Filter, *, after: int, limit: int) -> tuple[Operation, ...]:
        """Return the oldest operations above a `seq` that a filter lets through, oldest first."""
        if after >= self.through:
            return ()
        where = _all(condition(chosen), f"seq > {after}")
        return self._operations(where, "seq", limit=limit)

    def about(self, aim: Aim) -> Iterator[Operation]:
        """Return the operations that a purge may be about, oldest first."""
        rows = self._ask(f"SELECT seq FROM {self._log} WHERE {self._may_be(aim)} ORDER BY seq")
        for start in range(0, len(rows), _AT_ONCE):
            seqs = [seq for (seq,) in rows[start : start + _AT_ONCE]]
            found = self._by_seqs(seqs)
            yield from (found[seq] for seq in seqs)

    def _may_be(self, aim: Aim) -> str:
        """What lets through all that `memtui.store.purging.doomed` names a field of, and more."""
        ids = sorted({one for known in (*aim.gone.values(), *aim.living.values()) for one in known})
        said = {*aim.telling, *ids, *aim.subjects}
        if len(said) > _MOST_CONDITIONS:
            return "true"
        conditions = ["false"]
        if aim.subject_id is not None:
            conditions.append(f"subject_id = {_text(aim.subject_id)}")
        if aim.project_id is not None:
            conditions.append(f"project_id = {_text(aim.project_id)}")
        if aim.before is not None:
            conditions.append(f"epoch_us(started_at) < {UtcMicroseconds.stored(aim.before)}")
        if ids:
            conditions.append(
                f"seq IN (SELECT seq FROM {self._handles} "
                f"WHERE provider_record_id IN ({_texts(ids)}))"
            )
        for text in said:
            for one in {stored_json(text)[1:-1], canonical(text)[1:-1]}:
                conditions.append(f"contains(request::VARCHAR, {_text(one)})")
                conditions.append(f"contains(error_message, {_text(one)})")
        return " OR ".join(conditions)

    def latencies(self, binding_key: str, limit: int) -> list[float]:
        """Return the latencies of a binding's newest operations in milliseconds, oldest first."""
        rows = self._ask(
            f"SELECT latency_ms FROM {self._log} WHERE binding_key = {_text(binding_key)} "
            f"AND latency_ms IS NOT NULL ORDER BY seq DESC LIMIT {limit}"
        )
        return [float(latency) for (latency,) in rows][::-1]

    def values(self, chosen: Filter, field: str) -> set[str]:
        """Return the distinct values of an id among the successful operations of a filter.

        Configuring is left out.
        """
        used = f"{field} IS NOT NULL AND operation_type <> 'configure'"
        where = _all(condition(_successful(chosen)), used)
        rows = self._ask(f"SELECT DISTINCT {field} FROM {self._log} WHERE {where}")
        return {str(text_of(value)) for (value,) in rows}

    def contexts_by_day(self, chosen: Filter) -> list[ContextDay]:
        """Return a row a UTC day with its assembled contexts."""
        only = _successful(chosen).model_copy(update={"operation_type": OperationType.CONTEXT})
        tokens, budget = (f"(request->>'$.{name}')::BIGINT" for name in ("tokens", "budget"))
        delivered, over = (
            f"count(*) FILTER ((request->>'$.{name}')::BOOLEAN)"
            for name in ("delivered", "over_budget")
        )
        rows = self._ask(
            f"SELECT epoch_us(started_at) // {_DAY} AS day, count(*), {delivered}, {over}, "
            f"sum({tokens})::BIGINT, sum({budget})::BIGINT, max({tokens}) FROM {self._log} "
            f"WHERE {_all(condition(only), f'{tokens} IS NOT NULL')} GROUP BY day ORDER BY day"
        )
        return [ContextDay(*row) for row in rows]

    def mutations_of_record(self, binding_key: str, record_id: str) -> list[str]:
        """Return the ids of the mutations that touched a record."""
        kinds = [kind for kind in OperationType if kind.mutates]
        rows = self._ask(
            f"SELECT operation_id FROM {self._log} WHERE seq IN (SELECT seq FROM {self._handles} "
            f"WHERE {_touched(binding_key, kinds, [record_id])})"
        )
        return [str(text_of(operation_id)) for (operation_id,) in rows]

    def retrievals(
        self, binding_key: str, record_id: str, limit: int
    ) -> tuple[int, list[Retrieved]]:
        """Return how many reads returned a record, and the newest of them."""
        rows = self._ask(
            f"SELECT count(*) OVER (), seq, rank, score FROM {self._handles} "
            f"WHERE {_touched(binding_key, READS, [record_id])} ORDER BY seq DESC LIMIT {limit}"
        )
        found = self._by_seqs([seq for _, seq, _, _ in rows])
        return (rows[0][0] if rows else 0), [
            Retrieved(
                operation_id=found[seq].operation_id,
                seq=seq,
                started_at=found[seq].started_at,
                request=found[seq].request,
                principal=found[seq].principal,
                rank=rank,
                score=score,
            )
            for _, seq, rank, score in rows
        ]

    def retrieval_counts(self, binding_key: str, record_ids: Sequence[str]) -> dict[str, Reads]:
        """Return how often each record was returned by a read; those never returned are absent."""
        rows = self._ask(
            "SELECT h.record, h.times, epoch_us(o.started_at), h.last_rank FROM ("
            "SELECT provider_record_id AS record, count(*) AS times, max(seq) AS seq, "
            f"arg_max(rank, seq) AS last_rank FROM {self._handles} "
            f"WHERE {_touched(binding_key, READS, record_ids)} GROUP BY record) h "
            f"JOIN {self._log} o ON o.seq = h.seq"
        )
        return {
            str(text_of(record)): Reads(times, _EPOCH + at * _MICROSECOND, rank)
            for record, times, at, rank in rows
        }

    def _operations(
        self, where: str, order: str, *, limit: int | None = None
    ) -> tuple[Operation, ...]:
        tail = "" if limit is None else f" LIMIT {limit}"
        rows = self._ask(f"SELECT seq FROM {self._log} WHERE {where} ORDER BY {order}{tail}")
        seqs = [seq for (seq,) in rows]
        found = self._by_seqs(seqs)
        return tuple(found[seq] for seq in seqs)

    def _by_seqs(self, seqs: Sequence[int]) -> dict[int, Operation]:
        if not seqs:
            return {}
        with self._engine.asking() as cursor:
            return fetch(cursor, {table: self._files(table) for table in TABLES}, among(seqs))

    def _ask(self, sql: str) -> list[Any]:
        if not self.manifest.segments:
            return []
        with self._engine.asking() as cursor:
            return cursor.execute(sql).fetchall()

    @property
    def _log(self) -> str:
        return self._files("operations")

    @property
    def _handles(self) -> str:
        return self._files("handles")

    def _files(self, table: str) -> str:
        return sealed_rows(self._folder, self.manifest.segments, table, self._visible)


def _successful(chosen: Filter) -> Filter:
    return chosen.model_copy(update={"status": OperationStatus.OK})


def _touched(binding_key: str, kinds: Sequence[OperationType], record_ids: Sequence[str]) -> str:
    return (
        f"binding_key = {_text(binding_key)} AND operation_type IN ({_texts(kinds)}) "
        f"AND provider_record_id IN ({_texts(record_ids)})"
    )


def _all(*conditions: str) -> str:
    return " AND ".join(part for part in conditions if part) or "true"


def _texts(values: Sequence[str]) -> str:
    return ", ".join(map(_text, values))


def _text(value: str) -> str:
    return quoted(stored_text(str(value)))
