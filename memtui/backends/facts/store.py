"""The provider's operations on the fact tables, each in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Invalid,
    Namespace,
    NotFound,
    QueryRequest,
    RecordHandle,
    Scope,
    Snapshot,
    Unsupported,
    WriteMode,
    WriteRequest,
)

from .config import FactsConfig
from .database import FactsDatabase
from .fact import KEY, Details, Fact
from .reading import Page, Reader
from .restoring import restore, take
from .rules import check_id, check_text, maker
from .tables import written
from .writing import Writer

T = TypeVar("T")

_OWNER_IDS = {"user": "subject_id", "drive": "project_id"}


class FactStore:
    """Facts of users and drives. Blocking: the adapter calls it from worker threads."""

    def __init__(
        self,
        database: FactsDatabase,
        config: FactsConfig,
        company_id: str,
        now: Callable[[], datetime],
    ) -> None:
        self.database = database
        self._config = config
        self._company_id = company_id
        self._now = now

    def get(self, handle: RecordHandle, scope: Scope) -> Fact | None:
        """Return one fact that has not expired."""
        found = self._read(lambda reader: reader.by_handles(_names([handle]), scope))
        fact = found.get(handle.provider_record_id)
        if fact is None or fact.details is None:
            return fact
        expires_at = fact.details.fields()["expires_at"]
        return None if expires_at is not None and expires_at <= self._now() else fact

    def all_of(self, request: QueryRequest) -> list[Fact]:
        """Return the facts that a query may answer with, the oldest first."""
        return self._read(lambda reader: reader.all_of(request, self._now()))

    def browse(self, request: BrowseRequest) -> Page:
        """Return one page."""
        return self._read(lambda reader: reader.browse(request, self._now()))

    def namespaces(self) -> list[Namespace]:
        """Return every user and drive with facts."""
        return self._read(lambda reader: reader.namespaces(self._now()))

    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> list[Snapshot]:
        """Return the exact rows of these handles, in order."""
        found = self._read(lambda reader: reader.by_handles(_names(handles), scope))
        return [take(h, found.get(h.provider_record_id), self._company_id) for h in handles]

    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> None:
        """Put rows back, digit for digit; all or none."""
        names = _names([snapshot.handle for snapshot in snapshots])
        with self.database.write() as connection:
            found = self._reader(connection).by_handles(names, scope)
            restore(snapshots, found, self._writer(connection), self._company_id, scope)

    def write(self, request: WriteRequest) -> Snapshot:
        """Store a fact; return what stood under its handle before."""
        check_text(request.content, self._config.max_chars)
        kind, owner = owner_of(request.scope)
        self._refuse_unkept(pinned=request.pinned, expiring=request.expires_at is not None)
        with self.database.write() as connection:
            reader, writer = self._reader(connection), self._writer(connection)
            before = None
            if request.record_id and request.mode is WriteMode.UPSERT:
                own = Scope(company_id=self._company_id, **{_OWNER_IDS[kind]: owner})
                before = reader.by_handles([request.record_id], own).get(request.record_id)
            new = self._new(request, before)
            if before is not None:
                writer.replace(before, new)
            else:
                writer.check_free(new.id)
                writer.check_room(kind, owner, self._config.max_facts)
                writer.add(new, _creators(request))
        return take(new.handle, before, self._company_id)

    def correct(self, request: CorrectRequest) -> None:
        """Change a fact's text, or what is kept beside it."""
        if request.text is not None:
            check_text(request.text, self._config.max_chars)
        self._refuse_unkept(
            pinned=request.pinned is not None,
            expiring=request.expires_at is not None,
            labelled=request.topic is not None or request.tags is not None,
        )
        with self.database.write() as connection:
            found = self._reader(connection).by_handles(_names([request.handle]), request.scope)
            fact = found.get(request.handle.provider_record_id)
            if fact is None:
                raise NotFound(
                    f"There is no fact {request.handle.provider_record_id} in this scope; list "
                    "the facts again."
                )
            self._check_revision(fact, request.revision, request.text)
            changes: dict[str, object] = {}
            if request.text is not None:
                changes["text"] = request.text
            if self.database.has_details:
                details = fact.details or Details()
                changes["details"] = details.corrected(request, written(self._now()))
            self._writer(connection).replace(fact, fact.model_copy(update=changes))

    def forget(self, request: ForgetRequest) -> list[RecordHandle]:
        """Delete facts, all or none; return the handles that name none."""
        with self.database.write() as connection:
            found = self._reader(connection).by_handles(_names(request.handles), request.scope)
            for record_id, fact in found.items():
                self._check_revision(fact, request.revisions.get(record_id))
            writer = self._writer(connection)
            for fact in found.values():
                writer.remove(fact)
        return [handle for handle in request.handles if handle.provider_record_id not in found]

    def _new(self, request: WriteRequest, before: Fact | None) -> Fact:
        kind, owner = owner_of(request.scope)
        now = written(self._now())
        given = written(request.created_at) if request.created_at else None
        record_id = check_id(request.record_id) if request.record_id else uuid.uuid4().hex
        fact = before or Fact(
            scope=kind, owner=owner, id=record_id, text="", created_at=now, record_id=record_id
        )
        changes = {
            "text": request.content,
            "created_at": given or fact.created_at,
            "source": maker(request),
            "details": Details.of(request, now) if self.database.has_details else None,
        }
        return fact.model_copy(update=changes)

    def _check_revision(
        self, fact: Fact, revision: str | None, proposed: str | None = None
    ) -> None:
        if revision is not None and revision != fact.revision:
            raise Conflict(
                "The fact changed since you read it; look at both and decide.",
                current=fact.record(self._company_id),
                proposed=proposed,
            )

    def _refuse_unkept(self, *, pinned: bool, expiring: bool, labelled: bool = False) -> None:
        if not self.database.has_details and (pinned or expiring or labelled):
            raise Unsupported(
                "This database has no place for pins, expiry, topics and tags; set create to true "
                "to have memtui add a table of its own for them."
            )

    def _read(self, work: Callable[[Reader], T]) -> T:
        with self.database.read() as connection:
            return work(self._reader(connection))

    def _reader(self, connection: Connection) -> Reader:
        return Reader(connection, has_details=self.database.has_details)

    def _writer(self, connection: Connection) -> Writer:
        return Writer(connection, has_details=self.database.has_details)


def owner_of(scope: Scope) -> tuple[str, str]:
    """Return whose memory a write goes to: the project's (drive), else the subject's (user).

    Raises:
        Invalid: the scope names neither.
    """
    if scope.project_id:
        return "drive", scope.project_id
    if scope.subject_id:
        return "user", scope.subject_id
    raise Invalid("A fact is about a user or a project; name one with --subject or --project.")


def _creators(request: WriteRequest) -> list[str | None]:
    """Return who may stand in `createdBy`, the best first; a foreign key may refuse some."""
    if not request.scope.project_id:
        return [None]
    principal = request.created_by
    known = [principal, principal and principal.removeprefix("user:"), request.scope.subject_id]
    return [*dict.fromkeys(name for name in known if name), None]


def _names(handles: Sequence[RecordHandle]) -> list[str]:
    return [handle.provider_record_id for handle in handles if handle.provider_key == KEY]
