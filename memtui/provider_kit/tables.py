"""The base of the providers over tables of other programs, in SQLite or PostgreSQL.

A provider names the table and its key, and says how a row becomes a record and how a change of the
record changes the row. The records are kept in memory, and those whose rows changed are read again.
"""

import asyncio
import gc
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from sqlalchemy import Connection

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Snippet,
    Unsupported,
    Usage,
    WriteMode,
    WriteReply,
    WriteRequest,
    holds_at,
    owner_of,
    place_of_path,
    sees,
)
from memtui.json_text import compact_json
from memtui.provider_kit import (
    LocalPath,
    abilities_in,
    blocking,
    check_revision,
    read_only,
    require_kept,
    require_unprotected,
    require_writable,
)
from memtui.provider_kit.databases import (
    KEPT_BY_POSTGRES,
    DatabaseConfig,
    DatabasePool,
    Undecodable,
    open_postgres,
    open_sqlite,
    place_of,
)
from memtui.provider_kit.matching import eligible, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.rows import Row, RowTable, revision_of, row_from_json, row_to_json
from memtui.provider_kit.search import TextIndex
from memtui.threads import TurnLock

_NOTED = "noted"
_TOLD_ROWS = 1_000
"""After how many rows, read or made records, the time limit of the call begins anew."""
T = TypeVar("T")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking through all objects, again and again, while many are made."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class TablesConfig(DatabaseConfig):
    """Settings that all providers of tables share."""

    path: LocalPath | None = None
    """The SQLite file; absolute, or from `~`. Set this, `url` or `url_secret`."""
    table: str | None = None
    """The table's name if it is another than usual; in PostgreSQL also `schema.name`."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config = super().of(context)
        if (config.path is None) == (config.url is None and config.url_secret is None):
            raise Invalid("Set either path, for a SQLite file, or url or url_secret.")
        return config


ConfigT = TypeVar("ConfigT", bound=TablesConfig)


class TablesAdapter(Adapter, Generic[ConfigT]):
    """Shows the rows of a table as records and changes them, unless the binding is read-only.

    A change locks its row, is refused if the row is no longer as the caller read it, and touches
    only the columns that differ. A snapshot has the whole row, and the rows beside it.
    """

    config_model: ClassVar[type[TablesConfig]] = TablesConfig
    capabilities = Capabilities(
        browse=True, correction=True, restore=True, chosen_owners=True, full_text=True,
        without=True,
    )  # fmt: skip
    table: ClassVar[str]
    """The usual name of the table."""
    keys: ClassVar[tuple[str, ...]]
    """The columns that identify a row."""
    needs: ClassVar[frozenset[str]]
    """The other columns without which the table is not the program's."""
    leaves_out: ClassVar[frozenset[str]] = frozenset()
    """Columns that are not read: large ones that are derived from the others."""
    beside: ClassVar[str | None] = None
    """A table with what the program derived from the text of a row, by the same keys. Its rows go
    with the row, or where its text changes; not every database has it."""
    once: ClassVar[str | None] = None
    """The column of the text, if the table has each text once."""
    counted: ClassVar[frozenset[str]] = frozenset()
    """Columns in which the program counts its reads. A new value there is no conflict, and an undo
    leaves it."""

    def __init__(self, context: BindingContext, config: ConfigT, database: DatabasePool) -> None:
        self.config, self.context = config, context
        self.capabilities = abilities_in(context, type(self).capabilities)
        self._database = database
        self._name = config.table or self.table
        self._lock = TurnLock()
        self._records: dict[str, Record] = {}
        self._stamp: object = None
        """Of the table when the records were read; None: they are to be read again."""
        self._index: TextIndex | None = None
        self._is_still = False
        """Whether the records are a fixed copy that no longer follows the table."""

    @abstractmethod
    def scope_of(self, row: Row) -> Scope:
        """Return the owner of a row's record; it must not depend on the other columns."""

    @abstractmethod
    def record_of(self, row: Row) -> Json:
        """Return the other fields of a row's record, without handle and revision.

        Raises:
            ValueError, TypeError: the row is not as the program writes it.
        """

    def new_row(self, request: WriteRequest, record_id: str | None, now: datetime) -> Row:
        """Return the row of a new record, without the keys that the database gives.

        Raises:
            Invalid: the table cannot store it.
        """
        del request, record_id, now
        raise self._only_read()

    def corrected(self, row: Row, request: CorrectRequest, now: datetime) -> Row:
        """Return the columns that a correction changes, with their new values."""
        del row, request, now
        raise self._only_read()

    def _only_read(self) -> Unsupported:
        return Unsupported(f"memtui only reads the table {self._name}; change it in its program.")

    def id_of(self, row: Row) -> str:
        """Return a row's record id, by default its one key."""
        return str(row[self.keys[0]])

    def key_of(self, record_id: str) -> Row | None:
        """Return the keys of a record id; None: no row has such an id."""
        return {self.keys[0]: record_id}

    def derive(self, connection: Connection, before: Row | None, after: Row | None) -> None:
        """Make the other changes that the program makes when it adds, changes or removes a row."""

    def noted(self, connection: Connection, rows: Sequence[Row | None]) -> Sequence[Json]:
        """Return what `put_back` has to know of each row's surroundings; None: it is not there."""
        del connection
        return [{} for _ in rows]

    def put_back(
        self, connection: Connection, wanted: Sequence[Json], found: Sequence[Json]
    ) -> None:
        """Restore what is around rows that were restored.

        `wanted` was noted when the rows were as they are again, `found` before they were restored.
        """

    def told_of(self, lacking: int) -> str:
        """Return a sentence on rows for which the table beside has no row; empty: it is no loss."""
        del lacking
        return ""

    def stamp_of(self, connection: Connection, table: RowTable) -> object:
        """Return a value that changes whenever the records do, by default with the table."""
        return table.stamp(connection)

    def rows_of(self, connection: Connection, table: RowTable) -> Iterable[Row]:
        """Return the rows that are records, by default every one."""
        return table.every(connection)

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the file or the database."""
        config = cls.config_model.of(context)
        url = config.find_url(context)
        return [place_of(url) if url else place_of_path(config.path or Path())]

    @classmethod
    @blocking
    def open(cls, context: BindingContext) -> Self:
        """Open the table.

        Raises:
            Invalid: the config is bad, or the table is not there or has not the needed columns.
            Unavailable: there is no such file or server, or it is no database.
        """
        config: Any = cls.config_model.of(context)
        url = config.find_url(context)
        read_only = context.read_only or not cls.capabilities.writable
        engine = (
            open_postgres(url, read_only=read_only)
            if url
            else open_sqlite(config.path, read_only=read_only)
        )
        adapter = cls(context, config, DatabasePool(engine))
        try:
            with adapter._database.read() as connection:
                adapter._tables(connection)
        except BaseException:
            engine.dispose()
            raise
        return adapter

    @blocking
    def close(self) -> None:
        """Close the connections and free the index."""
        with self._lock:
            self._drop_index()
            if not self._is_still:
                self._database.close()

    def _tables(self, connection: Connection) -> tuple[RowTable, RowTable | None]:
        """Return the table and, if it is there, the one beside it."""
        found = RowTable.find(connection, self._name, self.leaves_out)
        if found is None:
            raise Invalid(
                f"The database has no table {self._name}; check what the binding "
                f"{self.context.binding_key} opens, or start the program that makes the table."
            )
        if lacking := sorted({*self.keys, *self.needs} - found.columns):
            raise Invalid(
                f"The table {self._name} has no column {lacking[0]}; it is not one of {self.key}."
            )
        schema = self._name.rpartition(".")[0]
        beside = self.beside and RowTable.find(
            connection, f"{schema}.{self.beside}" if schema else self.beside
        )
        return found, beside or None

    # Reading.

    @blocking
    def query(self, request: QueryRequest) -> ContextBundle:
        """Return the best matches of any word; with a topic, records without one also match."""
        with self._lock:
            records = self._fresh()
            self._index = self._index or TextIndex(tuple(records.values()), self._with_signs)
            may_be, is_shown = eligible(request), self._shown(request.owners)
            found = (
                Snippet(**dict(record), score=score)
                for record, score in self._index.search(request.query)
                if may_be(record) and is_shown(record)
            )
            snippets = tuple(islice(found, request.top_k))
            return ContextBundle(snippets=snippets, capped=next(found, None) is not None)

    @blocking
    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a record that has not expired."""
        with self._lock:
            record = self._fresh().get(handle.provider_record_id)
        is_there = record and handle.provider_key == self.key and sees(scope, record.scope)
        return record if is_there and self._shown()(record) else None

    @blocking
    def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page and the exact total."""
        fits = matcher(request.filter)
        is_shown = self._shown(request.owners, expired=request.expired)
        with self._lock:
            records = self._fresh().values()
        seen = (r for r in self._with_signs(records) if sees(request.scope, r.scope))
        return page([one for one in seen if is_shown(one) and fits(one)], request)

    def _shown(self, owners: Sequence[Scope] = (), *, expired: bool = False) -> Any:
        """Return the test whether a record has not expired and is of one of the owners."""
        now, chosen = self.context.now(), {owner_of(one) for one in owners}
        return lambda record: (
            (expired or holds_at(record, now)) and (not chosen or owner_of(record.scope) in chosen)
        )

    @blocking
    def without(self, record_ids: Collection[str]) -> Adapter:
        """Return a copy of the present records without some."""
        with self._lock:
            kept = {name: one for name, one in self._fresh().items() if name not in record_ids}
        still = copy(self)
        still.stand_still(kept)
        return still

    def stand_still(self, records: dict[str, Record]) -> None:
        """Have these records, and follow the table no longer."""
        self.capabilities = read_only(self.capabilities)
        self._lock, self._index, self._is_still, self._records = TurnLock(), None, True, records

    @blocking
    def health(self) -> Health:
        """Count the records, and say for how many the program has nothing derived."""
        try:
            with self._lock:
                records = len(self._fresh())
                with self._database.read() as connection:
                    table, beside = self._tables(connection)
                    lacking = table.count_without(connection, beside, self.keys) if beside else 0
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        return Health(message=self.told_of(lacking) if lacking else "", records=records)

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Empty a file's log; say who has to remove what else is kept of deleted rows."""
        if request.apply and not self.context.read_only and self.config.path is not None:
            await asyncio.to_thread(self._database.empty_log)
        key, path = self.context.binding_key, self.config.path
        if path is None:
            return EraseReply(beyond=(KEPT_BY_POSTGRES.format(key),))
        kept = f"The file of {key} keeps deleted rows in its free pages until {path} is vacuumed."
        return EraseReply(beyond=(kept,), folders=(path,))

    @_uncollected()
    def _fresh(self) -> dict[str, Record]:
        """Return the present records by id. The caller has the lock."""
        if self._is_still:
            return self._records
        with self._database.read() as connection:
            table, _ = self._tables(connection)
            stamp = self.stamp_of(connection, table)
            if stamp == self._stamp:
                return self._records
            # All at once, since a program that writes waits for the end of a read of its file.
            rows = list(self._with_signs(self.rows_of(connection, table)))
        records: dict[str, Record] = {}
        for row in self._with_signs(rows):
            record_id = self.id_of(row)
            if record_id in records:
                raise Invalid(
                    f"Two rows of {self._name} have the id {record_id}; remove one of them."
                )
            old = self._records.get(record_id)
            is_same = old is not None and not self.counted and old.revision == revision_of(row)
            records[record_id] = old if old and is_same else self._record(row)
        self._drop_index()
        self._records, self._stamp = records, stamp
        return records

    def _with_signs(self, rows: Iterable[T]) -> Iterator[T]:
        """Yield rows, and signal progress now and then, as there may be many."""
        for number, row in enumerate(rows):
            if not number % _TOLD_ROWS:
                self._lock.goes_on()
            yield row

    def _drop_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None

    def _record(self, row: Row) -> Record:
        own: Json = {
            "handle": self._handle(self.id_of(row)),
            "scope": self.scope_of(row),
            "revision": revision_of({k: v for k, v in row.items() if k not in self.counted}),
        }
        why = "a text in it is not UTF-8"
        if not any(isinstance(value, Undecodable) for value in row.values()):
            try:
                return Record(**{**own, **self.record_of(row)})
            except (ValueError, TypeError, RecursionError):
                why = "it is not as its program writes it"
        return Record(**own, text="(unreadable)", problem=f"The row cannot be read: {why}.")

    def _handle(self, record_id: str) -> RecordHandle:
        return RecordHandle(provider_key=self.key, provider_record_id=record_id)

    # Changes.

    @contextmanager
    def _changing(self) -> Iterator[tuple[Connection, RowTable, RowTable | None]]:
        if not type(self).capabilities.writable:
            raise self._only_read()
        require_writable(self.context, f"The memories of {self.key}")
        if self._is_still:
            raise Unsupported("A copy of the records is not changed.")
        with self._lock:
            if self.config.path is not None:
                require_unprotected(self.config.path, f"The file {self.config.path}")
            self._stamp = None
            with self._database.write() as connection:
                yield connection, *self._tables(connection)

    def _row(
        self, connection: Connection, table: RowTable, handle: RecordHandle, scope: Scope
    ) -> Row | None:
        """Return the row of a handle that a scope sees, locked where it is to be changed."""
        key = self.key_of(handle.provider_record_id) if handle.provider_key == self.key else None
        rows = table.of_key(connection, key) if key else []
        # A database may find a key that only looks alike, such as the number 1 for the text 01.
        own = [row for row in rows if self.id_of(row) == handle.provider_record_id]
        return own[0] if len(own) == 1 and sees(scope, self.scope_of(own[0])) else None

    def _key(self, row: Row) -> Row:
        return {name: row[name] for name in self.keys}

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Add a row, or replace the record of an id."""
        require_kept(self.capabilities, request)
        try:
            compact_json(request.metadata)
        except ValueError as error:
            raise Invalid("The metadata is not JSON; leave NaN and infinities out.") from error
        record_id = request.record_id if self.capabilities.keeps_ids else None
        with self._changing() as (connection, table, beside):
            new = self.new_row(request, record_id, self.context.now())
            self._require_new(connection, table, new)
            has_key = new.keys() >= {*self.keys}
            there = table.of_key(connection, self._key(new)) if has_key else []
            if not there:
                [noted] = self.noted(connection, [None])
                new = {**new, **table.insert(connection, new, self.keys)}
                self.derive(connection, None, new)
                handle = self._handle(self.id_of(new))
                before = Snapshot(handle=handle, record=None, state=_with({}, noted))
            elif request.mode is not WriteMode.UPSERT or not sees(
                request.scope, self.scope_of(there[0])
            ):
                raise Conflict(
                    f"A record {self.id_of(new)} exists already; write it with mode upsert in its "
                    "own scope, or leave the id out."
                )
            else:
                handle = self._handle(self.id_of(new))
                [noted] = self.noted(connection, there)
                before = self._taken(connection, beside, handle, there[0], noted)
                self._replace(connection, table, there[0], new)
                if beside is not None:
                    beside.delete(connection, self._key(new))
                self.derive(connection, there[0], {**there[0], **new})
        return WriteReply(records=(handle,), before=(before,))

    def _require_new(
        self, connection: Connection, table: RowTable, changes: Row, record_id: str = ""
    ) -> None:
        """Raise `Conflict` if another row has the text of a change, where each stands once."""
        if self.once is None or self.once not in changes:
            return
        for row in table.of_key(connection, {self.once: changes[self.once]}):
            if self.id_of(row) != record_id:
                raise Conflict(
                    f"The text is stored already, as {self.id_of(row)}; {self._name} has each text "
                    "once.",
                    current=self._record(row),
                )

    def _replace(self, connection: Connection, table: RowTable, before: Row, after: Row) -> None:
        """Change the columns of a row that differ, by value or by type."""
        changes = {
            name: value
            for name, value in after.items()
            if (type(before.get(name)), before.get(name)) != (type(value), value)
        }
        if changes:
            table.update(connection, self._key(before), changes)

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a row; what was derived of a text that changed is removed."""
        require_kept(self.capabilities, request)
        for name in request.changes("summary", "topic", "tags"):
            if name in self.lacks or (name == "summary" and not self.capabilities.summaries):
                raise Unsupported(f"The provider {self.key} keeps no {name}; leave that out.")
        removed = 0
        with self._changing() as (connection, table, beside):
            row = self._row(connection, table, request.handle, request.scope)
            if row is None:
                raise NotFound(
                    f"There is no record {request.handle.provider_record_id} in {self._name}."
                )
            record = self._record(row)
            self._require_readable(record)
            check_revision(record, request.revision, request.text)
            changes = self.corrected(row, request, self.context.now())
            self._require_new(connection, table, changes, self.id_of(row))
            self._replace(connection, table, row, changes)
            if beside is not None and request.text not in {None, record.text}:
                removed = beside.delete(connection, self._key(row))
            self.derive(connection, row, {**row, **changes})
        return CorrectReply(handle=request.handle, usage=self._usage(removed))

    def _require_readable(self, record: Record) -> None:
        if record.problem is not None:
            raise Invalid(f"{record.problem} Correct it in the program that wrote it.")

    def _usage(self, removed: int) -> tuple[Usage, ...]:
        """Return the usage of an operation that removed derived rows; empty: it removed none."""
        if not removed:
            return ()
        details = {"removed": {str(self.beside): removed}}
        return (Usage(provider=self.key, cost_usd=Decimal(0), details=details),)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete rows, all or none."""
        gone: list[RecordHandle] = []
        with self._changing() as (connection, table, beside):
            for handle in request.handles:
                row = self._row(connection, table, handle, request.scope)
                if row is None:
                    gone.append(handle)
                    continue
                check_revision(self._record(row), request.revisions.get(handle.provider_record_id))
                self._remove(connection, table, beside, row)
                self.derive(connection, row, None)
        return ForgetReply(missing=tuple(gone))

    def _remove(
        self, connection: Connection, table: RowTable, beside: RowTable | None, row: Row
    ) -> None:
        if beside is not None:
            beside.delete(connection, self._key(row))
        table.delete(connection, self._key(row))

    # Undo.

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return the whole rows, in order, expired ones included."""
        with self._lock, self._database.read() as connection:
            table, beside = self._tables(connection)
            rows = [self._row(connection, table, one, scope) for one in handles]
            return [
                self._taken(connection, beside, *one)
                for one in zip(handles, rows, self.noted(connection, rows), strict=True)
            ]

    def _taken(
        self,
        connection: Connection,
        beside: RowTable | None,
        handle: RecordHandle,
        row: Row | None,
        noted: Json,
    ) -> Snapshot:
        if row is None:
            return Snapshot(handle=handle, record=None, state=_with({}, noted))
        derived = beside.of_key(connection, self._key(row)) if beside else []
        state: Json = {
            "row": row_to_json(row),
            "beside": list(map(row_to_json, derived)),
            "postgres": self._database.is_shared,
        }
        return Snapshot(handle=handle, record=self._record(row), state=_with(state, noted))

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put rows back exactly, with those beside them, or remove them; all or none.

        Raises:
            Conflict: a row is no longer the one that the restore expects.
            Invalid: a snapshot is not of this provider and scope.
        """
        with self._changing() as (connection, table, beside):
            there = [self._row(connection, table, one.handle, scope) for one in snapshots]
            found = self.noted(connection, there)
            for snapshot, now in zip(snapshots, there, strict=True):
                present = self._record(now) if now is not None else None
                if snapshot.replaces is not None and present is not None:
                    check_revision(present, snapshot.replaces)
                if snapshot.record is not None:
                    wanted, derived = self._rows_in(snapshot, scope)
                    if now is None:
                        table.insert(connection, wanted)
                    else:
                        self._replace(
                            connection, table, now,
                            {name: one for name, one in wanted.items() if name not in self.counted},
                        )  # fmt: skip
                    if beside is not None:
                        beside.delete(connection, self._key(wanted))
                        for one in derived:
                            beside.insert(connection, one)
                elif now is not None:
                    self._remove(connection, table, beside, now)
            wanted_notes = [one.state.get(_NOTED, {}) for one in snapshots]
            self.put_back(connection, wanted_notes, found)
        return WriteReply(records=tuple(one.handle for one in snapshots if one.record is not None))

    def _rows_in(self, snapshot: Snapshot, scope: Scope) -> tuple[Row, list[Row]]:
        try:
            row = row_from_json(snapshot.state["row"])
            derived = list(map(row_from_json, snapshot.state["beside"]))
            is_own = snapshot.state["postgres"] == self._database.is_shared
            fits = is_own and self.id_of(row) == snapshot.handle.provider_record_id
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise Invalid("The snapshot is not of this table; it cannot be restored.") from error
        if not fits or not sees(scope, self.scope_of(row)):
            raise Invalid("The snapshot is of another scope or database; restore it there.")
        return row, derived


def _with(state: Json, noted: Json) -> Json:
    """Return the state of a snapshot with what is noted of the row's surroundings."""
    return {**state, _NOTED: noted} if noted else state
