"""Notes in a SQLite file, a row each: a whole provider of memtui, as small as one can be.

Several programs may have the file open. Every call has a connection of its own, and each change is
one transaction. A list and a search read all notes, so it is for thousands of them, not millions.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Self

from pydantic import Field, ValidationError

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    ForgetReply,
    ForgetRequest,
    Health,
    MemtuiError,
    Model,
    NotFound,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    WriteReply,
    WriteRequest,
    place_of_path,
    sees,
)
from memtui.provider_kit import (
    LocalPath,
    abilities_in,
    blocking,
    check_revision,
    read_config,
    require_kept,
    require_writable,
)
from memtui.provider_kit.matching import eligible, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.search import ranked

_TABLE = "CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, record TEXT NOT NULL)"


class NotesConfig(Model):
    """A SQLite file of notes.

    It is made where there is none, unless the binding is read-only.
    """

    path: LocalPath
    """The file; absolute, or from `~`."""
    busy_seconds: float = Field(default=5.0, gt=0, le=60)
    """How long, in seconds, a call waits for another program that is writing."""


class NotesAdapter(Adapter):
    """Keep each record as JSON under its id."""

    key = "notes"
    config_model = NotesConfig
    capabilities = Capabilities(browse=True, correction=True, full_text=True)

    def __init__(self, context: BindingContext, config: NotesConfig) -> None:
        self._context, self._config = context, config
        self.capabilities = abilities_in(context, self.capabilities)

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Name the file: it holds the memories of one company."""
        return [place_of_path(read_config(NotesConfig, context).path)]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the file. Raises `Unavailable` where it is no database, or may not be made."""
        adapter = cls(context, read_config(NotesConfig, context))
        await adapter._begin()
        return adapter

    @blocking
    def _begin(self) -> None:
        with self._connected() as database:
            if not self._context.read_only:
                database.execute(_TABLE)
            database.execute("SELECT id, record FROM notes LIMIT 1")

    @contextmanager
    def _connected(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """Run one transaction, which is taken back where anything fails."""
        path, seconds = self._config.path, self._config.busy_seconds
        mode = "ro" if self._context.read_only else "rwc"
        try:
            opened = sqlite3.connect(f"{path.as_uri()}?mode={mode}", timeout=seconds, uri=True)
            with closing(opened) as database, database:
                database.execute(begin)
                yield database
        except sqlite3.Error as error:
            raise Unavailable(
                f"The notes in {path} cannot be used ({error}); see that the file is a SQLite "
                "database of notes and that nobody holds it."
            ) from error

    def _changing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run a transaction that no other program changes anything in. Raises `Unsupported`."""
        require_writable(self._context, "The notes are")
        return self._connected("BEGIN IMMEDIATE")

    def _record(self, text: str) -> Record:
        try:
            return Record.model_validate_json(text)
        except ValidationError as error:
            raise Unavailable(
                f"{self._config.path} holds a note that this provider did not write; take the row "
                "out, or choose another file."
            ) from error

    def _seen(
        self, database: sqlite3.Connection, handle: RecordHandle, scope: Scope
    ) -> Record | None:
        """Return a record where the scope sees it."""
        named = (handle.provider_record_id,)
        row = database.execute("SELECT record FROM notes WHERE id = ?", named).fetchone()
        record = self._record(row[0]) if row else None
        is_ours = record is not None and handle == record.handle and sees(scope, record.scope)
        return record if is_ours else None

    def _all(self) -> list[Record]:
        with self._connected() as database:
            rows = database.execute("SELECT record FROM notes ORDER BY rowid").fetchall()
        return [self._record(text) for (text,) in rows]

    @staticmethod
    def _put(database: sqlite3.Connection, record: Record) -> None:
        database.execute(
            "INSERT INTO notes (id, record) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            (record.handle.provider_record_id, record.model_dump_json()),
        )

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Store a note under a new id."""
        require_kept(self.capabilities, request)
        now = self._context.now()
        handle = RecordHandle(provider_key=self.key, provider_record_id=uuid.uuid4().hex)
        record = Record.like(
            request,
            handle=handle,
            text=request.content,
            created_at=request.created_at or now,
            updated_at=now,
            revision=uuid.uuid4().hex,
        )
        with self._changing() as database:
            self._put(database, record)
        return WriteReply(records=(handle,))

    @blocking
    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a note."""
        with self._connected() as database:
            return self._seen(database, handle, scope)

    @blocking
    def query(self, request: QueryRequest) -> ContextBundle:
        """Find notes by their words."""
        may_be = eligible(request)
        found = ranked([one for one in self._all() if may_be(one)], request.query)
        snippets = tuple(found[: request.top_k])
        return ContextBundle(snippets=snippets, capped=len(found) > len(snippets))

    @blocking
    def browse(self, request: BrowseRequest) -> BrowsePage:
        """List notes."""
        fits = matcher(request.filter)
        shown = [one for one in self._all() if sees(request.scope, one.scope) and fits(one)]
        return page(shown, request)

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a note in place."""
        require_kept(self.capabilities, request)
        with self._changing() as database:
            record = self._seen(database, request.handle, request.scope)
            if record is None:
                raise NotFound("There is no such note in this scope; list those there are.")
            check_revision(record, request.revision, request.text)
            named = ("text", "topic", "tags")
            given = {name: getattr(request, name) for name in named}
            changes = {name: value for name, value in given.items() if value is not None}
            changes |= {"updated_at": self._context.now(), "revision": uuid.uuid4().hex}
            self._put(database, record.model_copy(update=changes))
        return CorrectReply(handle=request.handle)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove notes, all or none."""
        missing = []
        with self._changing() as database:
            for handle in request.handles:
                record = self._seen(database, handle, request.scope)
                if record is None:
                    missing.append(handle)
                    continue
                check_revision(record, request.revisions.get(handle.provider_record_id))
                database.execute("DELETE FROM notes WHERE id = ?", (handle.provider_record_id,))
        return ForgetReply(missing=tuple(missing))

    @blocking
    def health(self) -> Health:
        """Count the notes."""
        try:
            with self._connected() as database:
                [count] = database.execute("SELECT count(*) FROM notes").fetchone()
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        return Health(records=count)
