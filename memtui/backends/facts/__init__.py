"""Fact memory in two scopes, users and projects, in SQLite or PostgreSQL (seed 004)."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, ValidationError

from memtui.backends.fact_base import (
    DRIVE_PREFIX,
    OWNER_IDS,
    FactProvider,
    check_line,
    fact_owner,
    missing,
)
from memtui.backends.facts.database import FILE, FactsDatabase
from memtui.backends.facts.rows import KEY, FactDetails, FactRows, MemoryRow, written
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
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
    Namespace,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceKind,
    Unsupported,
    Usage,
    WriteMode,
    WriteReply,
    WriteRequest,
)
from memtui.provider_kit import blocking, check_revision
from memtui.provider_kit.databases import KEPT_BY_POSTGRES, DatabaseConfig, place_of

USAGE = Usage(provider=KEY, cost_usd=Decimal(0))
"""The usage of one call: a local table costs nothing."""
_ID_CHARS = 500
_READ_ELSEWHERE = (
    "Another program has the facts of {} open, so their write-ahead log may keep deleted rows; "
    "close that program and purge again."
)


class FactsConfig(DatabaseConfig):
    """Short facts about users and projects, in SQLite or PostgreSQL.

    Without a URL the facts are in a SQLite file of the binding's own data folder. With one they
    are in the tables `user_memories` and `drive_memories` of that PostgreSQL database.
    """

    create: bool = False
    """Create missing tables: the two of facts, and memtui's own `memtui_fact_details` for sources,
    tags, topics, pins, expiry and times of change. In SQLite they are always created; in PostgreSQL
    nothing is created without this, and existing tables are never changed."""
    max_chars: int = Field(default=200, ge=1, le=10_000)
    """The longest fact, in Unicode code points (what Python and PostgreSQL count as characters;
    an emoji that JavaScript counts as two is one)."""
    max_facts: int = Field(default=50, ge=1, le=1_000_000)
    """How many facts one user or one drive may have."""
    templates: Json = {}
    """The namespaces of `memtui serve plugin` for project, agent, subject and company, such as
    `{"project": "workspace:acme-{project_id}"}`; a part that is left out keeps its usual
    namespace."""


class FactsAdapter(FactProvider):
    """Facts of users and projects in the tables of seed 004 §6.1, each call in one transaction.

    A write goes to the project's drive if the scope names a project, or else to the subject's user.
    A read returns the facts of both; if the scope names neither, it returns everybody's, but none
    for a prompt. A fact's record id is the id of its row; if both tables have the same id, the
    drive's is `drive:<id>`.
    """

    key: ClassVar[str] = KEY
    config_model = FactsConfig
    abilities = Capabilities(
        browse=True, correction=True, namespaces=True, restore=True, keeps_ids=True,
        chosen_owners=True, full_text=True, without=True,
    )  # fmt: skip
    usage = USAGE
    capabilities = abilities

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:
        """Raise `Invalid` for a text that is not a line or too long."""
        check_text(
            record.text, config.get("max_chars", FactsConfig.model_fields["max_chars"].default)
        )

    def __init__(
        self, context: BindingContext, config: FactsConfig, database: FactsDatabase
    ) -> None:
        super().__init__(context)
        self._config = config
        self._database = database
        has = database.has_details
        self.capabilities = self.capabilities.model_copy(update={"pin": has, "expiry": has})

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the database: its two tables have no column for the company."""
        url = FactsConfig.of(context).find_url(context)
        return [place_of(url)] if url else ()

    @classmethod
    def lives_in(cls, data_dir: Path) -> bool:
        """Whether the `data_dir` contains the database."""
        return (data_dir / FILE).is_file()

    @classmethod
    @blocking
    def open(cls, context: BindingContext) -> Self:
        """Open the tables.

        Raises:
            Invalid: the config is bad, or the tables are missing or have another shape.
            Denied: the tables may not be created.
            Unavailable: the database cannot be reached.
        """
        config = FactsConfig.of(context)
        url = config.find_url(context)
        database = FactsDatabase.open(
            context.data_dir, url, create=config.create, read_only=context.read_only
        )
        return cls(context, config, database)

    @blocking
    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    @contextmanager
    def _read(self) -> Iterator[FactRows]:
        with self._database.read() as connection:
            yield FactRows(connection, has_details=self._database.has_details)

    @contextmanager
    def _change(self) -> Iterator[FactRows]:
        self.require_writable()
        with self._database.write() as connection:
            yield FactRows(connection, has_details=self._database.has_details)

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Store a fact, or replace the one of its id. Raises `Invalid` beyond a limit."""
        self.require_writable()
        check_text(request.content, self._config.max_chars)
        kind, owner = fact_owner(request.scope)
        self._refuse_unkept(pinned=request.pinned, expiring=request.expires_at is not None)
        with self._change() as rows:
            before = None
            if request.record_id and request.mode is WriteMode.UPSERT:
                own = Scope(company_id=self.context.company_id, **{OWNER_IDS[kind]: owner})
                before = rows.by_handles([request.record_id], own).get(request.record_id)
            new = self._new(request, before)
            if before is not None:
                rows.replace(before, new)
            else:
                rows.check_free(new.id)
                rows.check_room(kind, owner, self._config.max_facts)
                rows.add(new, _creators(request))
        taken = self._taken(new.handle, before)
        return WriteReply(records=(new.handle,), before=(taken,), usage=(USAGE,))

    @blocking
    def candidates(self, request: QueryRequest) -> Sequence[Record]:
        """Return the facts of a query's scope, the oldest first."""
        with self._read() as rows:
            return [self._record(fact) for fact in rows.all_of(request, self.context.now())]

    @blocking
    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a fact that has not expired."""
        with self._read() as rows:
            fact = rows.by_handles(_names([handle]), scope).get(handle.provider_record_id)
        record = self._record(fact) if fact else None
        ends = record.expires_at if record else None
        return None if ends is not None and ends <= self.context.now() else record

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete facts, all or none."""
        with self._change() as rows:
            found = rows.by_handles(_names(request.handles), request.scope)
            for record_id, fact in found.items():
                check_revision(self._record(fact), request.revisions.get(record_id))
            for fact in found.values():
                rows.remove(fact)
        gone = tuple(one for one in request.handles if one.provider_record_id not in found)
        return ForgetReply(missing=gone, usage=(USAGE,))

    @blocking
    def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page with the exact total; a fact's title is its text."""
        with self._read() as rows:
            facts, total, cursor = rows.browse(request, self.context.now())
        records = tuple(map(self._record, facts))
        return BrowsePage(records=records, next_cursor=cursor, total=total, usage=(USAGE,))

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a fact's row; its creation time and author stay."""
        self.require_writable()
        if request.text is not None:
            check_text(request.text, self._config.max_chars)
        self._refuse_unkept(
            pinned=request.pinned is not None,
            expiring=request.expires_at is not None,
            labelled=request.topic is not None or request.tags is not None,
        )
        with self._change() as rows:
            found = rows.by_handles(_names([request.handle]), request.scope)
            fact = found.get(request.handle.provider_record_id)
            if fact is None:
                raise missing(request.handle)
            check_revision(self._record(fact), request.revision, request.text)
            changes: Json = {} if request.text is None else {"text": request.text}
            if self._database.has_details:
                details = fact.details or FactDetails()
                changes["details"] = details.corrected(request, written(self.context.now()))
            rows.replace(fact, fact.model_copy(update=changes))
        return CorrectReply(handle=request.handle, usage=(USAGE,))

    @blocking
    def namespaces(self) -> Sequence[Namespace]:
        """List the users and projects that have facts."""
        with self._read() as rows:
            return rows.namespaces(self.context.now())

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return the exact rows, in order, expired facts included."""
        with self._read() as rows:
            found = rows.by_handles(_names(handles), scope)
        return [self._taken(one, found.get(one.provider_record_id)) for one in handles]

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Restore rows exactly, or remove them; all or none.

        The limit of facts does not apply: these facts were stored before.

        Raises:
            Conflict: another fact has a row's place.
            Invalid: a snapshot is not of this provider and scope.
        """
        with self._change() as rows:
            found = rows.by_handles(_names([one.handle for one in snapshots]), scope)
            for snapshot in snapshots:
                now = found.get(snapshot.handle.provider_record_id)
                if snapshot.record is not None:
                    self._put_back(rows, now, _row_in(snapshot, scope))
                elif now is not None:
                    rows.remove(now)
        there = tuple(snapshot.handle for snapshot in snapshots if snapshot.record is not None)
        return WriteReply(records=there, usage=(USAGE,))

    def _put_back(self, rows: FactRows, now: MemoryRow | None, wanted: MemoryRow) -> None:
        if wanted.details is not None and not self._database.has_details:
            raise Invalid(
                "The fact had a pin, tags or a source, and the table for them is gone; set create "
                "to true to create it again."
            )
        # A fact of the other table is no conflict: a bare id means the user's fact first.
        if now is None or now.scope != wanted.scope:
            rows.add(wanted, [wanted.created_by, *([None] if wanted.created_by else [])])
        elif (now.owner, now.created_at) != (wanted.owner, wanted.created_at):
            raise Conflict(
                f"Another fact has the id {wanted.record_id} now; look at it first.",
                current=self._record(now),
                proposed=wanted.text,
            )
        elif now != wanted:
            rows.replace(now, wanted)

    @blocking
    def without(self, record_ids: Collection[str]) -> Adapter:
        """Return a copy of the present facts without some, in tables in memory."""
        with self._read() as rows:
            kept = [fact for fact in rows.every() if fact.record_id not in record_ids]
        database = FactsDatabase.in_memory()
        with database.write() as connection:
            FactRows(connection, has_details=True).fill(kept)
        read_only = self.context.model_copy(update={"read_only": True})
        return FactsAdapter(read_only, self._config, database)

    @blocking
    def erase(self, request: EraseRequest) -> EraseReply:
        """Remove deleted rows from memtui's own file; a PostgreSQL database is its owner's task."""
        beyond: tuple[str, ...] = ()
        if self._database.is_shared:
            beyond = (KEPT_BY_POSTGRES.format(self.context.binding_key),)
        elif request.apply and not self._database.scrub():
            beyond = (_READ_ELSEWHERE.format(self.context.binding_key),)
        return EraseReply(beyond=beyond)

    async def health(self) -> Health:
        """Count the facts, and report if their details are not stored."""
        try:
            page = await self.browse(
                BrowseRequest(scope=Scope(company_id=self.context.company_id), limit=1)
            )
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        message = "" if self._database.has_details else (
            "Sources, tags, topics, pins and expiry are not kept; set create to true to add a "
            "table for them."
        )  # fmt: skip
        return Health(message=message, records=page.total)

    def _record(self, fact: MemoryRow) -> Record:
        return fact.record(self.context.company_id)

    def _taken(self, handle: RecordHandle, fact: MemoryRow | None) -> Snapshot:
        if fact is None:
            return Snapshot(handle=handle, record=None)
        state = fact.model_dump(mode="json")
        return Snapshot(handle=handle, record=self._record(fact), state=state)

    def _new(self, request: WriteRequest, before: MemoryRow | None) -> MemoryRow:
        kind, owner = fact_owner(request.scope)
        now = written(self.context.now())
        given = written(request.created_at) if request.created_at else None
        record_id = _checked_id(request.record_id) if request.record_id else uuid.uuid4().hex
        fact = before or MemoryRow(
            scope=kind, owner=owner, id=record_id, text="", created_at=now, record_id=record_id
        )
        # The seed's `source`: `ai` for a write by an agent or from a run, otherwise `user`.
        source, author = request.source, request.created_by or ""
        by_agent = author.startswith("agent:") or (source and source.kind is SourceKind.RUN)
        by = "ai" if by_agent else "user"
        changes = {
            "text": request.content,
            "created_at": given or fact.created_at,
            "source": by if source or author else None,
            "details": FactDetails.of(request, now) if self._database.has_details else None,
        }
        return fact.model_copy(update=changes)

    def _refuse_unkept(self, *, pinned: bool, expiring: bool, labelled: bool = False) -> None:
        if not self._database.has_details and (pinned or expiring or labelled):
            raise Unsupported(
                "This database has no table for pins, expiry, topics and tags; set create to true "
                "to have memtui add one."
            )


def check_text(text: str, max_chars: int) -> None:
    """Raise `Invalid` for a text that is not one line, or longer than `max_chars`."""
    if len(text) > max_chars:
        raise Invalid(
            f"A fact has {max_chars} characters at most, and this one has {len(text)}; shorten it "
            "or split it."
        )
    check_line(text)


def _checked_id(record_id: str) -> str:
    if record_id.startswith(DRIVE_PREFIX) or not (
        record_id.isprintable() and record_id.strip() and len(record_id) <= _ID_CHARS
    ):
        raise Invalid(
            f"A fact's id is printable, has {_ID_CHARS} characters at most and does not begin with "
            f"{DRIVE_PREFIX!r}; leave the id out to get a new one."
        )
    return record_id


def _creators(request: WriteRequest) -> list[str | None]:
    """Return candidates for `createdBy`, the best first; a foreign key may refuse some."""
    if not request.scope.project_id:
        return [None]
    principal = request.created_by or ""
    known = [principal, principal.removeprefix("user:"), request.scope.subject_id]
    place = 0 if principal.startswith("agent:") else 1  # an agent is no row of a users table
    known[place:place] = request.users
    return [*dict.fromkeys(name for name in known if name), None]


def _names(handles: Sequence[RecordHandle]) -> list[str]:
    return [handle.provider_record_id for handle in handles if handle.provider_key == KEY]


def _row_in(snapshot: Snapshot, scope: Scope) -> MemoryRow:
    try:
        fact = MemoryRow.model_validate(snapshot.state)
    except ValidationError as error:
        raise Invalid("The snapshot is not of a fact; it cannot be restored.") from error
    named = [
        owner for owner in (("drive", scope.project_id), ("user", scope.subject_id)) if owner[1]
    ]
    is_outside = named and (fact.scope, fact.owner) not in named
    if fact.record_id != snapshot.handle.provider_record_id or is_outside:
        raise Invalid("The snapshot is of another scope; it cannot be restored here.")
    return fact
