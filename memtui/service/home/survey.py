"""Survey of a purge's target: living records, gone records, and the texts of these."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from pydantic import model_validator

from memtui.analytics.traces import Trace, TraceReport
from memtui.contract import (
    Adapter,
    BrowseRequest,
    EraseReply,
    EraseRequest,
    Filter,
    Invalid,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    UtcDatetime,
    owner_of,
)
from memtui.record_changes import names_beside, texts_beside
from memtui.service.connections import Connection
from memtui.service.history.traces import Certainty, MemoryTrace, TracedRecord, Traces, Unknown
from memtui.service.runtime import ServiceRuntime, find_company
from memtui.service.visibility import Caller
from memtui.store import appending, bindings, erasing
from memtui.store.digest import committed_subject
from memtui.store.erasing import SHORTEST, Aim, JournalStep
from memtui.store.journal import Journal
from memtui.store.log import company_salt
from memtui.store.operation import Operation, OperationHandle, Place
from memtui.store.rows import PendingRow
from memtui.store.visibility import Visibility

_AT_ONCE = 500
_SHOWN = 200
_READ_ONLY = "its binding is read-only"
_DERIVED = "its provider makes it of others, and alone changes it"
_CHANGED = "it says something else now"
_BROKEN_OFF = "a purge that broke off found it; name its id to purge it"


class PurgeRequest(Model):
    """The target of a purge: one of a record, a subject, a project, a run, a document and an age.

    Raises:
        Invalid: it names none or several, or combines `forget` with an age.
    """

    record_id: str | None = None
    binding_key: str | None = None
    """The record's binding; None: every binding where the id is known."""
    subject_id: str | None = None
    project_id: str | None = None
    run_id: str | None = None
    """What a run wrote, and what came of it."""
    source: str | None = None
    """The address of a document: what was written from it, and what came of that."""
    through: Certainty = Certainty.RETURNED
    """The least certainty with which something came of a run's or a document's writes."""
    before: UtcDatetime | None = None
    """Erase the texts of operations that began before this moment; records are never erased."""
    forget: bool = False
    """Forget the living records first."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        named = (self.record_id, self.subject_id, self.project_id, self.before, self.traced)
        if sum(one is not None for one in named) != 1 or None not in (self.run_id, self.source):
            raise Invalid(
                "Name a record, a user, a project, a run, a document or an age, and one of them "
                "only."
            )
        if self.through is not Certainty.RETURNED and self.traced is None:
            raise Invalid("Only what came of a run or a document is more or less certain.")
        if self.forget and self.before is not None:
            raise Invalid(
                "A purge by age erases texts of the log and forgets no record; leave out --forget."
            )
        return self

    @property
    def what(self) -> str:
        """The kind of target, in a word."""
        kinds = ("record", "subject", "project", "run")
        other = "age" if self.source is None else "source"
        return next((kind for kind in kinds if getattr(self, f"{kind}_id") is not None), other)

    @property
    def traced(self) -> str | None:
        """The run or document of which the trace is followed; None: neither is named."""
        return self.source if self.run_id is None else self.run_id


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
    stays: str = ""
    """Why it cannot be forgotten; empty: it can."""


class Reached(Model):
    """How many records of a binding a purge of a run or document is about."""

    binding_key: str
    written: int
    """Written or corrected by the run, or from the document."""
    came_of_it: int
    """Written later by whoever was given these, with their text."""
    derived: int
    """Made of these by the provider itself."""
    stay: int
    """Of all these, the living ones that cannot be forgotten."""


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
    reached: tuple[Reached, ...] = ()
    """The records of a run or document, by binding; hidden ones are not among them."""
    unknown: dict[Unknown, int] = {}
    """Operations from which the log cannot tell what came of the run or document."""
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
class Reach:
    """The records that came of a run or a document."""

    target: str = ""
    """A commitment to the run or document, for the log."""
    traced: dict[Place, list[TracedRecord]] = field(default_factory=dict)
    """What the trace found, by place; nothing where only a purge that broke off found a record."""
    unknown: dict[Unknown, int] = field(default_factory=dict)
    derived: set[Place] = field(default_factory=set)
    """The records that providers made of these."""

    def ids(self) -> dict[str, frozenset[str]]:
        """Return the ids of the traced records, by binding."""
        keys = {key for key, _ in self.traced}
        return {key: frozenset(one for of, one in self.traced if of == key) for key in keys}

    def texts(self) -> frozenset[str]:
        """Return the texts of the traced records, as they were written."""
        return frozenset(one.text for found in self.traced.values() for one in found if one.text)

    def counts(self, staying: Iterable[Place]) -> tuple[Reached, ...]:
        """Return how many records there are of each binding."""
        stay, places = {*staying}, self.traced.keys() | self.derived
        begun = {place for place, found in self.traced.items()
                 if any(one.certainty is Certainty.BEGUN for one in found)}  # fmt: skip
        return tuple(
            Reached(
                binding_key=key, written=len(begun & own),
                came_of_it=len((own & self.traced.keys()) - begun),
                derived=len(own - self.traced.keys()), stay=len(own & stay),
            )
            for key in sorted({key for key, _ in places})
            if (own := {place for place in places if place[0] == key})
        )  # fmt: skip


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
    reach: Reach
    """Empty where no run or document is purged."""
    living: list[tuple[Connection, Record]] = field(default_factory=list)
    stays: dict[Place, str] = field(default_factory=dict)
    """Why living records cannot be forgotten, by place."""
    providers: list[tuple[Connection, EraseRequest, EraseReply]] = field(default_factory=list)
    """For each writable binding the request to erase its remains, and the reply to a trial."""
    pending: list[PendingRow] = field(default_factory=list)
    """Pending writes about the target, with holds of its records."""
    seen: frozenset[str] = frozenset()
    """Texts and ids of the target that the caller may see."""

    def going(self) -> list[tuple[Connection, Record]]:
        """Return the living records that can be forgotten."""
        return [one for one in self.living if place_of(*one) not in self.stays]

    def waiting(self) -> list[PendingRow]:
        """Return the pending writes to erase; a hold stays until its record is gone."""
        return [
            row
            for row in self.pending
            if row.hold_id is None
            or self.aim.gone.get(row.binding_key, frozenset()).issuperset(held_ids(row))
        ]

    def handles(self) -> tuple[OperationHandle, ...]:
        """Return the traced and derived records, for the log."""
        places = sorted(self.reach.traced.keys() | self.reach.derived)
        return tuple(
            OperationHandle(rank=rank, provider_key="", provider_record_id=one, binding_key=key)
            for rank, (key, one) in enumerate(places, 1)
        )

    def with_living(self) -> Aim:
        """Return the aim for when the living records are forgotten too."""
        gone, texts, beside = dict(self.aim.gone), set(self.aim.texts), set(self.aim.beside)
        for connection, record in self.going():
            key, record_id = connection.binding.key, record.handle.provider_record_id
            gone[key] = gone.get(key, frozenset()) | {record_id}
            texts.update(texts_of(record))
            beside.update(texts_beside(record))
        living = {key: ids - gone.get(key, frozenset()) for key, ids in self.aim.living.items()}
        return replace(
            self.aim, gone=gone, living=living, texts=frozenset(texts), beside=frozenset(beside)
        )

    def only_subject(self) -> str | None:
        """Return the user who owns every state of the target; None: not one user."""
        owners = {owner_of(record.scope) for record in self.states()}
        [kind, subject_id] = owners.pop() if len(owners) == 1 else ("", "")
        return subject_id if kind == "subject_id" else None

    def states(self) -> Iterator[Record]:
        """Yield every known state of the target's records."""
        yield from (record for _, record in self.living)
        yield from (s.record for one in self.steps for s in one.snapshots if s.record)

    async def said_by_living(self, texts: Collection[str]) -> set[str]:
        """Return those of `texts` that a record says which is still stored where this searched."""
        found = set[str]()
        request = BrowseRequest(scope=Scope(company_id=self.aim.company_id), expired=True)
        for connection, _, _ in self.providers if texts else ():
            if not connection.adapter.capabilities.browse:
                continue
            async for page in connection.pages(request, whole=True):
                for one in page.records:
                    said = "\n".join((one.text, *texts_beside(one), *names_beside(one)))
                    found.update(text for text in texts if text in said)
        return found

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
                    stays=self.stays.get(place_of(connection, record), ""),
                )
                for connection, record in self.living
            ),
            reached=self.reach.counts(self.stays),
            unknown=self.reach.unknown,
            short=sum(len(text.strip()) < SHORTEST for text in self.aim.texts),
            beyond=tuple(dict.fromkeys(self.beyond)),
        )


def place_of(connection: Connection, record: Record) -> Place:
    """Return the binding and the id of a record."""
    return connection.binding.key, record.handle.provider_record_id


async def reach(runtime: ServiceRuntime, caller: Caller, request: PurgeRequest) -> Reach:
    """Follow what came of a run or document that is to be purged.

    Places that a purge of the same target found before it broke off are added, since it may have
    erased the operations that led there.
    """
    if request.traced is None:
        return Reach()
    try:
        chosen = Filter(run_id=request.run_id)
        trace = await runtime.module(Traces).of_writes(caller, chosen, request.source or "")
    except NotFound:  # the purge of an unknown target is refused where its copies are looked for
        trace = MemoryTrace([], 0, {}, ())
    target, places = await asyncio.to_thread(_broken_off, runtime, caller, request.traced)
    found = Reach(target, {place: [] for place in places}, trace.unknown)
    for one in trace.through(request.through):
        found.traced.setdefault(one.place, []).append(one)
    return found


def _broken_off(runtime: ServiceRuntime, caller: Caller, name: str) -> tuple[str, set[Place]]:
    """Return the commitment to a target, and the places of its purges that did not end."""
    with runtime.database.read() as database:
        target = committed_subject(name, company_salt(database, caller.company_id))
    purges = Filter(operation_type=OperationType.PURGE, internal=True)
    return target, {
        one.place_of(handle)
        for one in runtime.log(caller.company_id).each(purges)
        if one.request.get("target") == target
        for handle in one.handles
        if handle.provider_record_id
    }


async def survey(
    runtime: ServiceRuntime,
    caller: Caller,
    request: PurgeRequest,
    reach: Reach,
    said: frozenset[str] = frozenset(),
) -> Survey:
    """Find the target's living records, its gone records, and the texts of the gone ones.

    Args:
        runtime: The service's parts.
        caller: The caller, whose company is searched.
        request: The target.
        reach: What came of it, if it is a run or a document.
        said: Texts of the target that are known already.

    Raises:
        NotFound: the request names a binding that never existed.
        Unavailable: a provider that may store living records cannot be reached.
    """
    aim = Aim(
        company_id=caller.company_id,
        subject_id=request.subject_id,
        project_id=request.project_id,
        run_id=request.run_id,
        source=request.source,
        before=request.before,
    )
    connections, beyond = await _connections(runtime, caller)
    if request.record_id is not None:
        known = await asyncio.to_thread(_known_ids, runtime, aim, request.record_id, request)
        connections = {key: one for key, one in connections.items() if key in known}
        aim = replace(aim, living=known)
    if request.subject_id is not None:
        aim = replace(aim, living=await asyncio.to_thread(_stored_for, runtime, aim))
    if request.traced is not None:
        aim = await asyncio.to_thread(_traced, runtime, aim, reach)

    steps = await runtime.ask(lambda database: list(erasing.steps(database, aim)))
    visibility = await asyncio.to_thread(runtime.visibility, caller)
    found = Survey(aim, steps, visibility, beyond, reach)
    if request.before is not None:
        gone, texts = await runtime.ask(erasing.forgotten, aim.company_id), set[str]()
    else:
        gone, texts = await _look(found, connections)
    texts |= said | reach.texts()
    found.pending = await runtime.ask(erasing.pending_about, aim)
    texts.update(text for row in found.pending for text in pending_texts(row))
    stay: dict[str, set[str]] = {}
    for connection, record in found.living:
        stay.setdefault(connection.binding.key, set()).add(record.handle.provider_record_id)
    beside = set[str]()
    for one in found.steps:
        if one.record_id in gone.get(one.binding_key, ()):
            for now in one.snapshots:
                texts.update(texts_of(now.record))
                beside.update(texts_beside(now.record))
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
        beside=frozenset(beside),
        pending=aim.pending.union(
            [one.pending_id for one in found.pending], [one.pending_id for one in found.steps]
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


def _traced(runtime: ServiceRuntime, aim: Aim, reach: Reach) -> Aim:
    """Return the aim with the traced records under all their ids, and what waits of the run."""
    with runtime.database.read() as database:
        journal = Journal(database, aim.company_id)
        off = {row.key for row in bindings.bindings(database, aim.company_id) if not row.enabled}
        known = {
            key: frozenset(name for one in ids for name in journal.ids_of(key, one))
            for key, ids in reach.ids().items()
            if key not in off  # nobody can tell whether they are gone
        }
    waits = Filter(run_id=aim.run_id, status=OperationStatus.PENDING, internal=True)
    log = runtime.log(aim.company_id)
    pending = [one.operation_id for one in log.each(waits)] if aim.run_id is not None else []
    return replace(aim, living=known, pending=frozenset(pending))


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
        if found.reach.target:
            await _add_derived(found, connection)
        for at, record in found.living:
            if at is connection and (why := _why_stays(found, at, record)):
                found.stays[place_of(at, record)] = why
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


def _why_stays(found: Survey, connection: Connection, record: Record) -> str:
    if not connection.adapter.capabilities.writable:
        return _READ_ONLY
    if record.read_only:
        return _DERIVED
    versions = found.reach.traced.get(place_of(connection, record))
    if versions is None or any(one.is_in(record) for one in versions):
        return ""
    return _CHANGED if versions else _BROKEN_OFF


async def _add_derived(found: Survey, connection: Connection) -> None:
    """Add the living records that the provider itself made of traced ones, and of these again."""
    adapter, key = connection.adapter, connection.binding.key
    if type(connection.unfilled.adapter).made_of is Adapter.made_of:
        return
    own = [record for one, record in found.living if one is connection]
    changed = {one.handle.provider_record_id for one in own
               if _why_stays(found, connection, one) == _CHANGED}  # fmt: skip
    own += [now.record for step in found.steps if step.binding_key == key
            for now in step.snapshots if now.record]  # fmt: skip
    fresh = [one for one in own if one.handle.provider_record_id not in changed]
    request, rest = BrowseRequest(scope=Scope(company_id=found.aim.company_id)), list[Record]()
    async for page in connection.pages(request, whole=True):
        rest += [one for one in page.records if (key, one.handle.provider_record_id)
                 not in found.reach.traced]  # fmt: skip
    while fresh:
        fresh = [one for one in rest if any(adapter.made_of(one, source) for source in fresh)]
        rest = [one for one in rest if one not in fresh]
        found.living += [(connection, one) for one in fresh]
        found.reach.derived |= {place_of(connection, one) for one in fresh}


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


def held_ids(row: PendingRow) -> set[str]:
    """Return the ids of the records that a pending change would change or forget."""
    return {one["handle"]["provider_record_id"] for one in row.base}


def pending_texts(row: PendingRow) -> Iterator[str]:
    """Yield the texts that a pending write would store."""
    named = (row.request.get(name) for name in ("content", "text", "title", "summary"))
    yield from (one for one in named if one)


def texts_of(record: Record | None) -> Iterator[str]:
    """Yield the texts of a record."""
    if record is not None:
        yield from (one for one in (record.text, record.title, record.summary) if one)
