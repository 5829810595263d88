"""Survey of a purge's target: living records, gone records, and the texts of these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from pydantic import model_validator

from memtui.analytics.traces import Trace, TraceReport
from memtui.contract import (
    BrowseRequest,
    EraseReply,
    EraseRequest,
    Filter,
    Invalid,
    Model,
    NotFound,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    UtcDatetime,
    owner_of,
)
from memtui.service.connections import Connection
from memtui.service.runtime import ServiceRuntime, find_company
from memtui.service.visibility import Caller
from memtui.store import appending, bindings, erasing
from memtui.store.erasing import SHORTEST, Aim, JournalStep
from memtui.store.journal import Journal
from memtui.store.operation import Operation
from memtui.store.rows import PendingRow
from memtui.store.visibility import Visibility

_AT_ONCE = 500
_SHOWN = 200


class PurgeRequest(Model):
    """The target of a purge: exactly one of a record, a subject, a project and an age.

    Raises:
        Invalid: it names none or several, or combines `forget` with an age.
    """

    record_id: str | None = None
    binding_key: str | None = None
    """The record's binding; None: every binding where the id is known."""
    subject_id: str | None = None
    project_id: str | None = None
    before: UtcDatetime | None = None
    """Erase the texts of operations that began before this moment; records are never erased."""
    forget: bool = False
    """Forget the living records first."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        named = (self.record_id, self.subject_id, self.project_id, self.before)
        if sum(one is not None for one in named) != 1:
            raise Invalid("Name a record, a user, a project or an age, and one of them only.")
        if self.forget and self.before is not None:
            raise Invalid(
                "A purge by age erases texts of the log and forgets no record; leave out --forget."
            )
        return self

    @property
    def what(self) -> str:
        """The kind of target, in a word."""
        kinds = ("record", "subject", "project")
        return next((kind for kind in kinds if getattr(self, f"{kind}_id") is not None), "age")


class Copies(Model):
    """The number of copies in one place."""

    place: str
    count: int
    what: str
    """The unit of `count`."""


class Living(Model):
    """A living record; id and text are empty where the caller may not see it."""

    binding_key: str
    record_id: str
    text: str
    only_read: bool = False
    """Its binding is read-only, so it cannot be forgotten."""


class PurgeAnswer(Model):
    """The result of a purge, or of its plan."""

    what: str
    applied: bool
    operation_id: str | None = None
    copies: tuple[Copies, ...] = ()
    living: tuple[Living, ...] = ()
    """Living records of the target. They stay, with their history, unless `forget` is set."""
    forgotten: int = 0
    found: TraceReport | None = None
    """Places that still have the texts; None: not applied, so not searched."""
    others: tuple[Trace, ...] = ()
    """Of these, the places in other memories with the same text; they are not erased."""
    short: int = 0
    """Number of texts too short to search for, so that leftovers of them would not be found."""
    beyond: tuple[str, ...] = ()
    """Copies out of memtui's reach, a sentence each."""

    @property
    def left(self) -> tuple[Trace, ...]:
        """Traces that belong to no other memory."""
        traces = self.found.traces if self.found else ()
        return tuple(one for one in traces if one not in self.others)


@dataclass(slots=True)
class Survey:
    """The findings about a purge's target."""

    aim: Aim
    steps: list[JournalStep]
    """Its steps in the undo journal."""
    visibility: Visibility | None
    """What the caller may see; None: everything."""
    beyond: list[str]
    """Copies out of memtui's reach, a sentence each."""
    living: list[tuple[Connection, Record]] = field(default_factory=list)
    providers: list[tuple[Connection, EraseRequest, EraseReply]] = field(default_factory=list)
    """For each writable binding the request to erase its remains, and the reply to a trial."""
    pending: list[PendingRow] = field(default_factory=list)
    """Pending writes about the target."""
    seen: frozenset[str] = frozenset()
    """Texts and ids of the target that the caller may see."""

    def going(self) -> list[tuple[Connection, Record]]:
        """Return the living records that can be forgotten: those in writable bindings."""
        return [one for one in self.living if one[0].adapter.capabilities.writable]

    def with_living(self) -> Aim:
        """Return the aim for when the living records are forgotten too."""
        gone, texts = dict(self.aim.gone), set(self.aim.texts)
        for connection, record in self.going():
            key, record_id = connection.binding.key, record.handle.provider_record_id
            gone[key] = gone.get(key, frozenset()) | {record_id}
            texts.update(texts_of(record))
        living = {key: ids - gone.get(key, frozenset()) for key, ids in self.aim.living.items()}
        return replace(self.aim, gone=gone, living=living, texts=frozenset(texts))

    def only_subject(self) -> str | None:
        """Return the user who owns every state of the target; None: not one user."""
        owners = {owner_of(record.scope) for record in self.states()}
        [kind, subject_id] = owners.pop() if len(owners) == 1 else ("", "")
        return subject_id if kind == "subject_id" else None

    def states(self) -> Iterator[Record]:
        """Yield every known state of the target's records."""
        yield from (record for _, record in self.living)
        yield from (s.record for one in self.steps for s in one.snapshots if s.record)

    def reads(self, record: Record) -> bool:
        """Whether the caller may see a record."""
        return self.visibility is None or self.visibility.reads(record.scope)

    def answer(self, request: PurgeRequest, copies: Sequence[Copies]) -> PurgeAnswer:
        """Return the answer of a plan."""
        return PurgeAnswer(
            what=request.what,
            applied=False,
            copies=tuple(copies),
            living=tuple(
                Living(
                    binding_key=connection.binding.key,
                    record_id=record.handle.provider_record_id if self.reads(record) else "",
                    text=record.text[:_SHOWN] if self.reads(record) else "",
                    only_read=not connection.adapter.capabilities.writable,
                )
                for connection, record in self.living
            ),
            short=sum(len(text.strip()) < SHORTEST for text in self.aim.texts),
            beyond=tuple(dict.fromkeys(self.beyond)),
        )


async def survey(
    runtime: ServiceRuntime,
    caller: Caller,
    request: PurgeRequest,
    said: frozenset[str] = frozenset(),
) -> Survey:
    """Find the target's living records, its gone records, and the texts of the gone ones.

    Args:
        runtime: The service's parts.
        caller: The caller, whose company is searched.
        request: The target.
        said: Texts of the target that are known already.

    Raises:
        NotFound: the request names a binding that never existed.
        Unavailable: a provider that may store living records cannot be reached.
    """
    aim = Aim(
        company_id=caller.company_id,
        subject_id=request.subject_id,
        project_id=request.project_id,
        before=request.before,
    )
    connections, beyond = await _connections(runtime, caller)
    if request.record_id is not None:
        known = await asyncio.to_thread(_known_ids, runtime, aim, request.record_id, request)
        connections = {key: one for key, one in connections.items() if key in known}
        aim = replace(aim, living=known)
    if request.subject_id is not None:
        aim = replace(aim, living=await asyncio.to_thread(_stored_for, runtime, aim))

    steps = await runtime.ask(lambda database: list(erasing.steps(database, aim)))
    found = Survey(aim, steps, await asyncio.to_thread(runtime.visibility, caller), beyond)
    if request.before is not None:
        gone, texts = await runtime.ask(erasing.forgotten, aim.company_id), set[str]()
    else:
        gone, texts = await _look(found, connections)
    texts |= said
    found.pending = await runtime.ask(erasing.pending_about, aim)
    texts.update(text for row in found.pending for text in pending_texts(row))
    stay: dict[str, set[str]] = {}
    for connection, record in found.living:
        stay.setdefault(connection.binding.key, set()).add(record.handle.provider_record_id)
    for one in found.steps:
        if one.record_id in gone.get(one.binding_key, ()):
            texts.update(text for now in one.snapshots for text in texts_of(now.record))
    still = {text for _, record in found.living for text in texts_of(record)}
    own = [record for record in found.states() if found.reads(record)]
    found.seen = frozenset(
        {text for record in own for text in texts_of(record)}
        | {record.handle.provider_record_id for record in own}
    )
    found.aim = replace(
        aim,
        gone={key: frozenset(of) for key, of in gone.items() if of},
        living={key: frozenset(of) for key, of in stay.items()},
        texts=frozenset(texts - still),
        pending=frozenset(
            [one.pending_id for one in found.pending] + [one.pending_id for one in found.steps]
        )
        - {""},
    )
    found.steps += await runtime.ask(erasing.files_saying, found.aim)
    return found


async def _connections(
    runtime: ServiceRuntime, caller: Caller
) -> tuple[dict[str, Connection], list[str]]:
    """Open the company's enabled bindings; also return sentences on what a purge would miss."""
    read_only = (await runtime.ask(find_company, caller.company_id)).read_only
    waiting = await runtime.ask(appending.open_intents, caller.company_id)
    running = sum(one.draft["operation_type"] != OperationType.PURGE for one in waiting)
    found: dict[str, Connection] = {}
    beyond: list[str] = []
    if running:
        beyond.append(
            f"{running} of the company's changes are running; purge again once they have ended."
        )
    for row in await runtime.ask(bindings.bindings, caller.company_id):
        if not row.enabled:
            beyond.append(f"The binding {row.key} is disabled, so it was not searched.")
            continue
        found[row.key] = await runtime.open(row, company_read_only=read_only)
        if not found[row.key].adapter.capabilities.writable:
            beyond.append(f"The binding {row.key} is read-only, so its records stay.")
    return found, beyond


def _known_ids(
    runtime: ServiceRuntime, aim: Aim, record_id: str, request: PurgeRequest
) -> dict[str, frozenset[str]]:
    """Return a record's ids, by binding: where the log knows one of them, or else everywhere."""
    company_id = aim.company_id
    with runtime.database.read() as database:
        rows, journal = bindings.bindings(database, company_id), Journal(database, company_id)
        # The log outlives the bindings that are removed.
        used = {row.key for row in rows} | journal.binding_keys()
        keys = sorted(used) if request.binding_key is None else [request.binding_key]
        if not used.issuperset(keys):
            raise NotFound(
                f"There is and was no binding {request.binding_key}; known are: "
                f"{', '.join(sorted(used)) or 'none'}."
            )
        found = {key: frozenset({*journal.ids_of(key, record_id), record_id}) for key in keys}
    log = runtime.log(company_id)
    met = {
        key: ids
        for key, ids in found.items()
        if any(log.mutations_of_record(key, one) or log.retrievals(key, one, 1)[0] for one in ids)
    }
    return met or found


def _stored_for(runtime: ServiceRuntime, aim: Aim) -> dict[str, frozenset[str]]:
    """Return the ids of records that were first stored for the subject, by binding. Blocking.

    They come from the log, since a provider may not store the subject.
    """
    of = Filter(subject_id=aim.subject_id, operation_type=OperationType.WRITE, internal=True)
    found: dict[str, set[str]] = {}
    for written in runtime.log(aim.company_id).each(of):
        key = written.binding_key or ""
        with runtime.database.read() as database:
            journal = Journal(database, aim.company_id)
            for _, after in journal.record_steps(written):
                if after is None or after.record is None:
                    continue
                record_id = after.handle.provider_record_id
                if journal.stored_by(key, record_id) == written.operation_id:
                    found.setdefault(key, set()).add(record_id)
    return {key: frozenset(ids) for key, ids in found.items()}


async def _look(
    found: Survey, connections: Mapping[str, Connection]
) -> tuple[dict[str, set[str]], set[str]]:
    """Add the living records, and the remains that providers have of gone ones, to a survey.

    Returns the ids of the gone records, by binding, and their texts in the remains.
    """
    aim, texts = found.aim, set[str]()
    gone: dict[str, set[str]] = {key: set(of) for key, of in aim.living.items()}
    for one in found.steps:
        gone.setdefault(one.binding_key, set()).add(one.record_id)
    scope = Scope(company_id=aim.company_id, subject_id=aim.subject_id, project_id=aim.project_id)
    for key, connection in connections.items():
        ids = gone.setdefault(key, set())
        for record in await _living(connection, aim, sorted(ids)):
            found.living.append((connection, record))
            ids.discard(record.handle.provider_record_id)
        if not connection.adapter.capabilities.writable:
            continue
        asked = EraseRequest(scope=scope, record_ids=tuple(sorted(ids)))
        reply = await connection.read(partial(connection.adapter.erase, asked))
        found.beyond += reply.beyond
        texts.update(reply.texts)
        ids.update(reply.record_ids)
        # The ids that the provider found itself are erased with the known ones.
        asked = asked.model_copy(update={"record_ids": tuple(sorted(ids))})
        found.providers.append((connection, asked, reply))
    return gone, texts


async def _living(connection: Connection, aim: Aim, ids: Sequence[str]) -> list[Record]:
    """Return the target's records that are still stored, expired ones included.

    Files that a provider only reads where they lie (`read_only` records) are left out.
    """
    scope = Scope(company_id=aim.company_id)
    found: dict[str, Record] = {}
    about_owner = aim.subject_id is not None or aim.project_id is not None
    if about_owner and connection.adapter.capabilities.browse:
        request = BrowseRequest(
            scope=scope,
            filter=Filter(subject_id=aim.subject_id, project_id=aim.project_id),
            expired=True,
        )
        async for page in connection.pages(request, whole=True):
            for record in page.records:
                if aim.is_of(record.scope):
                    found[record.handle.provider_record_id] = record
    handles = [
        RecordHandle(provider_key=connection.adapter.key, provider_record_id=one)
        for one in ids
        if one and one not in found
    ]
    for start in range(0, len(handles), _AT_ONCE):
        for snapshot in await _taken(connection, handles[start : start + _AT_ONCE], scope):
            if snapshot is not None:
                found[snapshot.handle.provider_record_id] = snapshot
    return [record for record in found.values() if not record.read_only]


async def _taken(
    connection: Connection, handles: Sequence[RecordHandle], scope: Scope
) -> list[Record | None]:
    try:
        return [one.record for one in await connection.snapshots(handles, scope)]
    except NotFound:
        # One id cannot be looked up: ask for each alone, so that the others are found.
        if len(handles) == 1:
            return []
        return [record for one in handles for record in await _taken(connection, [one], scope)]


def operations(runtime: ServiceRuntime, aim: Aim) -> Iterator[Operation]:
    """Yield the operations that may contain the target, sealed ones first. Blocking."""
    yield from runtime.log(aim.company_id).sealed_about(aim)
    above = runtime.log(aim.company_id).sealed_through
    with runtime.database.read() as database:
        yield from erasing.operations(database, aim, above=above)


def pending_texts(row: PendingRow) -> Iterator[str]:
    """Yield the texts that a pending write would store."""
    named = (row.request.get(name) for name in ("content", "text", "title", "summary"))
    yield from (one for one in named if one)


def texts_of(record: Record | None) -> Iterator[str]:
    """Yield the texts of a record."""
    if record is not None:
        yield from (one for one in (record.text, record.title, record.summary) if one)
