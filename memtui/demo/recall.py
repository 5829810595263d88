"""Simulates the thousands of everyday reads of the demo, and logs them in bulk.

Changes of memories go through the service. Everyday searches run here, over the plan's records, and
are logged as the service would have logged them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice

from memtui.contract import (
    Json,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    SourceRef,
    Usage,
)
from memtui.demo import hosted
from memtui.demo.plan import DEFAULT, HOSTED, Ask, Look, Open, PlannedStep, Write, is_hosted
from memtui.provider_kit.search import TextIndex
from memtui.service import Resolution
from memtui.store.appending import append_all
from memtui.store.database import Database
from memtui.store.operation import OperationDraft, OperationHandle

Scored = tuple[RecordHandle, float | None]


class Recall:
    """Searches the records of the plan, and buffers reads for the log."""

    def __init__(
        self, database: Database, steps: Iterable[PlannedStep], new_id: Callable[[], str]
    ) -> None:
        self.there: dict[str, RecordHandle] = {}
        """The records that exist at the current time, by name."""
        self._database = database
        self._new_id = new_id
        self._prices = hosted.HostedConfig()
        self._texts: dict[str, str] = {}
        self._sources: dict[str, SourceRef] = {}
        self._indexes = {key: TextIndex() for key in (DEFAULT, HOSTED)}
        self._records: dict[str, list[Record]] = {key: [] for key in self._indexes}
        self._drafts: list[OperationDraft] = []
        for step in steps:
            if isinstance(step.action, Write):
                self._add(step, step.action)
        for key, index in self._indexes.items():
            index.fill(self._records[key])

    def _add(self, step: PlannedStep, write: Write) -> None:
        key = write.binding_key or (HOSTED if is_hosted(step.scope) else DEFAULT)
        self._texts[write.name], self._sources[write.name] = write.text, write.source
        if key in self._records:
            record = Record(
                handle=RecordHandle(provider_key="", provider_record_id=write.name),
                text=write.text,
                title=write.title,
                topic=write.topic,
                kind=write.kind,
                tags=write.tags,
                scope=step.scope,
            )
            self._records[key].append(record)

    def note(
        self,
        step: PlannedStep,
        read: Ask | Look | Open,
        where: Resolution,
        now: datetime,
        takes: timedelta,
    ) -> None:
        """Simulate a read, and buffer its log entry."""
        found: Sequence[Scored] = ()
        usage: tuple[Usage, ...] = ()
        source: SourceRef | None = None
        asked: Json
        if isinstance(read, Ask):
            kind = OperationType.QUERY
            asked = {"query": read.text, "intent": read.intent, "top_k": read.top_k}
            names = list(islice(self._search(step, read.text, where), read.top_k))
            found = [(self.there[name], score) for name, score in names]
            usage = self._usage(read, [self._texts[name] for name, _ in names], where)
            count = len(found)
        elif isinstance(read, Look):
            kind = OperationType.BROWSE
            asked = {"filter": {}, "sort": read.sort, "limit": read.limit, "cursor": None}
            own = [
                one for one in self._read(where) if one.scope.project_id == step.scope.project_id
            ]
            count = min(read.limit, len(own))
        else:
            kind, count, handle = OperationType.GET, 1, self.there[read.name]
            asked = {"record_id": handle.provider_record_id}
            found, source = [(handle, None)], self._sources[read.name]
        draft = OperationDraft(
            operation_id=self._new_id(),
            operation_type=kind,
            status=OperationStatus.OK,
            scope=step.scope,
            binding_key=where.binding_key,
            provider_key=where.provider_key,
            binding_reason=where.reason,
            source=source,
            principal=step.principal,
            channel=step.channel,
            request=asked,
            result_count=count,
            handles=tuple(
                OperationHandle(rank=rank, score=score, **dict(handle))
                for rank, (handle, score) in enumerate(found, start=1)
            ),
            usage=usage,
            started_at=now,
            latency_ms=takes / timedelta(milliseconds=1),
        )
        self._drafts.append(draft)

    def write_down(self, *, durable: bool = False) -> None:
        """Append the buffered reads to the log, in one transaction. Blocking."""
        if self._drafts or durable:
            with self._database.write(durable=durable) as connection:
                append_all(connection, self._drafts)
            self._drafts.clear()

    def _read(self, where: Resolution) -> Iterable[Record]:
        records = self._records[where.binding_key]
        return (one for one in records if one.handle.provider_record_id in self.there)

    def _search(
        self, step: PlannedStep, text: str, where: Resolution
    ) -> Iterable[tuple[str, float | None]]:
        seen: set[str] = set()
        for record, score in self._indexes[where.binding_key].scored(text):
            name = record.handle.provider_record_id
            if name in seen or name not in self.there or not hosted.sees(step.scope, record.scope):
                continue
            seen.add(name)
            # The vault's scores lie between 0 and 1.
            yield name, round(score if where.binding_key == HOSTED else score / (1 + score), 6)

    def _usage(self, read: Ask, texts: Sequence[str], where: Resolution) -> tuple[Usage, ...]:
        if where.binding_key == HOSTED:
            return self._prices.query_usage(read.text, read.intent, texts)
        return (Usage(provider=where.provider_key, cost_usd=Decimal(0)),)
