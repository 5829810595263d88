"""Erase memtui's own copies of what is gone, prove it by looking, and leave the log's proof whole.

`docs/purge.md` lists the places and what of each goes. A purge that is killed is asked for again:
each step takes what it still finds, and what the texts are known from goes last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from memtui.analytics.traces import SHORTEST, Found, Trace, searchable
from memtui.config import Paths
from memtui.contract import (
    BrowseRequest,
    Conflict,
    Denied,
    EraseReply,
    EraseRequest,
    Filter,
    ForgetRequest,
    Invalid,
    Json,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    UtcDatetime,
    owner_of,
    owner_scope,
)
from memtui.service import kept_files
from memtui.service.answers import Caller
from memtui.service.connections import Connection
from memtui.service.core import Core, Group, find_company, to_its_end
from memtui.service.mutations import Mutations, take
from memtui.service.recorder import Entry
from memtui.store import appending, bindings, journal, log, purging
from memtui.store.compiled import BindingRow
from memtui.store.digest import CONTROL
from memtui.store.erasing import erase_fields, purge_request
from memtui.store.operation import Operation, OperationDraft
from memtui.store.purging import Aim, Step
from memtui.store.sight import Sight

if TYPE_CHECKING:
    from pathlib import Path

    from memtui.analytics.layout import Folder, Segment
    from memtui.service.analysis import Analysis

StepHook = Callable[[str], None]
"""Told each step of a purge once it is done; a test stops there."""

_BATCH = 2_000
"""Operations whose values go in one transaction."""

_AT_ONCE = 500
_REBUILT = 10_000
"""Erasing makes indexes anew, so a provider gets the time of a large bulk call."""

_A_DAY = timedelta(days=1)
_SHOWN = 200


class PurgeRequest(Model):
    """What is to be erased: exactly one of a record, a subject, a project and an age."""

    record_id: str | None = None
    binding_key: str | None = None
    """The record's binding; None: every one where its id is known."""
    subject_id: str | None = None
    project_id: str | None = None
    before: UtcDatetime | None = None
    """The texts of operations that began before; never a record."""
    forget: bool = False
    """Forget what still lives first."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        named = (self.record_id, self.subject_id, self.project_id, self.before)
        if sum(one is not None for one in named) != 1:
            raise ValueError("name a record, a subject, a project or an age, and one of them only")
        if self.forget and self.before is not None:
            raise ValueError("what an age erases is in the log, and no record is forgotten for it")
        return self

    @property
    def what(self) -> str:
        """Its kind, in a word."""
        kinds = ("record", "subject", "project")
        return next((kind for kind in kinds if getattr(self, f"{kind}_id") is not None), "age")


class Copies(Model):
    """What is kept in one place."""

    place: str
    count: int
    what: str
    """What is counted."""


class Living(Model):
    """A record that lives; its id and text are empty where the caller may not see it."""

    binding_key: str
    record_id: str
    text: str
    only_read: bool = False
    """Its binding is only read, so that it cannot be forgotten."""


class PurgeAnswer(Model):
    """What would go, or went."""

    what: str
    applied: bool
    operation_id: str | None = None
    copies: tuple[Copies, ...] = ()
    living: tuple[Living, ...] = ()
    """Those that stay with their history; with `forget` and not applied: that would be forgotten.
    """
    forgotten: int = 0
    found: Found | None = None
    """Where the texts still are; None: not applied, so not looked for."""
    others: tuple[Trace, ...] = ()
    """Of these, the places in memories that live and say the same; they are left alone."""
    short: int = 0
    """Texts too short to be looked for: they are proved by the places that were emptied."""
    beyond: tuple[str, ...] = ()
    """Copies that are not in memtui's reach, a sentence each."""

    @property
    def left(self) -> tuple[Trace, ...]:
        """Where a text still is though nothing that lives says it there."""
        return (
            tuple(one for one in self.found.traces if one not in self.others) if self.found else ()
        )


@dataclass(slots=True)
class _Survey:
    """What there is of it."""

    aim: Aim
    living: list[tuple[Connection, Record]]
    steps: list[Step]
    providers: list[tuple[Connection, EraseRequest, EraseReply]] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    sight: Sight | None = None
    """What the caller may see; None: everything."""
    seen: frozenset[str] = frozenset()
    """Texts and ids of it that the caller may see."""

    def going(self) -> list[tuple[Connection, Record]]:
        """Return what lives and can be forgotten: not in a binding that is only read."""
        return [one for one in self.living if one[0].adapter.capabilities.writable]

    def reads(self, record: Record) -> bool:
        """Whether the caller may see a record."""
        return self.sight is None or self.sight.reads(record.scope)

    def count(self, place: str, count: int, what: str) -> None:
        if count:
            self.copies.append(Copies(place=place, count=count, what=what))


class Purging(Group):
    """Purges of one service's companies."""

    def __init__(
        self, core: Core, analysis: Analysis, memory: Mutations, paths: Paths, after_days: int
    ) -> None:
        """Set it up; `after_days` is the setting `purge_after_days`."""
        super().__init__(core)
        self._memory = memory
        self._analysis = analysis
        self._paths = paths
        self._after_days = after_days

    async def plan(self, caller: Caller, request: PurgeRequest) -> PurgeAnswer:
        """Return what a purge would erase, and change nothing. Not an operation.

        Raises:
            Denied: the caller may not purge this.
            Unavailable: a provider that may hold what lives cannot be asked.
        """
        survey = await self._survey(caller, request)
        if request.forget:
            survey.aim = _with_living(survey)
        scope = Scope(company_id=caller.company_id)
        entry = self._core.recorder.entry(OperationType.PURGE, caller, scope)
        await self._authorise(entry, request, survey)
        await asyncio.to_thread(self._count, survey)
        return self._answer(request, survey)

    @to_its_end
    async def apply(
        self, caller: Caller, request: PurgeRequest, *, step: StepHook = lambda _name: None
    ) -> PurgeAnswer:
        """Erase it, look for what is left, and record that.

        Raises:
            Conflict: another purge runs, or the log is being sealed.
            Denied: the caller may not purge this, or memtui or the company is read-only.
            Unavailable: a provider that may hold what lives cannot be asked.
        """
        core = self._core
        scope = Scope(company_id=caller.company_id)
        asked: Json = {"what": request.what, "forget": request.forget}
        if request.before is not None:
            asked["before"] = request.before.isoformat()
        async with core.recorder.recorded(OperationType.PURGE, caller, scope, asked) as entry:
            await self._core.refuse_changes(caller.company_id)
            with self._alone():
                survey = await self._survey(caller, request)
                await self._authorise(entry, request, survey)
                await core.recorder.begin(entry, [])
                entry.lasting = purging.LASTING
                step("begun")
                going = survey.going() if request.forget else []
                if going:
                    await self._forget(caller, going)
                    step("forgotten")
                    said = frozenset(text for _, one in going for text in _texts(one))
                    survey = await self._survey(caller, request, said)
                await asyncio.to_thread(self._count, survey)
                beyond = await self._erase_from_providers(survey)
                step("providers")
                await asyncio.to_thread(self._erase_from_log, entry, survey, step)
                await asyncio.to_thread(kept_files.scrub, self._paths, survey.aim)
                step("files")
                if not await asyncio.to_thread(core.database.scrub):
                    beyond.append(_HELD)
                self._analysis.forget_copies(caller.company_id)
                step("scrubbed")
                answer = await asyncio.to_thread(
                    self._looked, self._answer(request, survey), survey
                )
            entry.result_count = sum(one.count for one in answer.copies)
            entry.request = asked | {
                "copies": {one.place: one.count for one in answer.copies if "/" not in one.place},
                "forgotten": len(going),
                "looked_for": answer.found.texts if answer.found else 0,
                "left": len(answer.left),
            }
        return answer.model_copy(
            update={
                "operation_id": entry.operation_id,
                "forgotten": len(going),
                "beyond": (*answer.beyond, *beyond),
            }
        )

    @to_its_end
    async def keep_doing(self, caller: Caller, days: int | None) -> None:
        """Allow the setting `purge_after_days` to take effect, from so many days on; None: not."""
        if days is not None and days < 1:
            raise Invalid("Texts are kept for a day at least; give an older moment.")
        async with self._core.configured(caller, {"purge_after_days": days}) as entry:
            await self._core.refuse_changes(caller.company_id)
            await self._core.configure(
                entry,
                lambda database: bindings.keep_purging(database, caller.company_id, days),
            )

    @to_its_end
    async def due(self, caller: Caller) -> PurgeAnswer | None:
        """Purge by age where the setting says so, a person has allowed it, and not yet today."""
        company = await asyncio.to_thread(find_company, self._core.database, caller.company_id)
        allowed, now = company.purge_after_days, self._core.clock()
        if (
            not self._after_days
            or allowed is None
            or allowed > self._after_days
            or company.read_only
            or self._core.read_only
        ):
            return None
        page = await asyncio.to_thread(
            lambda: self._core.log.page(
                caller.company_id,
                Filter(operation_type=OperationType.PURGE, since=now - _A_DAY),
                limit=100,
                before=None,
                after=None,
                sight=None,
            )
        )
        if any(
            one.request.get("what") == "age" and one.status is OperationStatus.OK
            for one in page.operations
        ):
            return None
        request = PurgeRequest(before=now - timedelta(days=self._after_days))
        return await self.apply(caller, request)

    async def _authorise(self, entry: Entry, request: PurgeRequest, survey: _Survey) -> None:
        """Let owners and admins of the company, and a person whose own memories these are."""
        if entry.caller.by_ai:
            raise Denied("An agent purges nothing; let the person do it for whom it acts.")
        company = entry.scope
        if (subject_id := _only_subject(request, survey)) is not None:
            entry.scope = company.model_copy(update={"subject_id": subject_id})
            try:
                return await self._core.authorise(entry)
            except Denied:
                pass
            finally:
                entry.scope = company
        return await self._core.authorise(entry)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            with FileLock(self._paths.data / "purge.lock", timeout=0, mode=0o600):
                yield
        except Timeout as error:
            raise Conflict("Another purge is running; wait until it is done.") from error

    # What there is of it

    async def _survey(
        self, caller: Caller, request: PurgeRequest, said: frozenset[str] = frozenset()
    ) -> _Survey:
        """Find what lives, what is gone, and what the gone records said.

        Args:
            caller: Whose company.
            request: What is to be erased.
            said: Texts of it that are known already.
        """
        aim = Aim(
            company_id=caller.company_id,
            subject_id=request.subject_id,
            project_id=request.project_id,
            before=request.before,
        )
        connections, beyond = await self._connections(caller)
        if request.record_id is not None:
            known = await asyncio.to_thread(self._known_ids, caller, request)
            connections = {key: one for key, one in connections.items() if key in known}
            aim = replace(aim, living=known)
        survey = _Survey(
            aim,
            [],
            await asyncio.to_thread(self._steps, aim),
            beyond=beyond,
            sight=await asyncio.to_thread(self._core.sight, caller),
        )
        if request.before is not None:
            gone = await asyncio.to_thread(self._forgotten, aim)
        else:
            gone = await self._gone(survey, connections)
        texts = set(said)
        if request.before is None:
            texts |= await self._ask_providers(survey, connections, gone)
        stay: dict[str, set[str]] = {}
        for connection, record in survey.living:
            stay.setdefault(connection.binding.key, set()).add(record.handle.provider_record_id)
        for one in survey.steps:
            if one.record_id in gone.get(one.binding_key, ()):
                texts.update(text for now in one.snapshots for text in _texts(now.record))
        still = {text for _, record in survey.living for text in _texts(record)}
        survey.seen = _seen(survey)
        survey.aim = replace(
            aim,
            gone={key: frozenset(of) for key, of in gone.items() if of},
            living={key: frozenset(of) for key, of in stay.items()},
            texts=frozenset(texts - still),
        )
        return survey

    async def _gone(
        self, survey: _Survey, connections: Mapping[str, Connection]
    ) -> dict[str, set[str]]:
        """Note what lives, and return the ids of what does not, by binding."""
        ids: dict[str, set[str]] = {key: set(of) for key, of in survey.aim.living.items()}
        for one in survey.steps:
            ids.setdefault(one.binding_key, set()).add(one.record_id)
        for key, connection in connections.items():
            found = await _living(connection, survey.aim, sorted(ids.get(key, ())))
            survey.living += [(connection, record) for record in found]
            ids.setdefault(key, set()).difference_update(
                record.handle.provider_record_id for record in found
            )
        return ids

    async def _ask_providers(
        self, survey: _Survey, connections: Mapping[str, Connection], gone: dict[str, set[str]]
    ) -> set[str]:
        """Note what providers keep of what is gone; returns what that says."""
        texts: set[str] = set()
        aim = survey.aim
        scope = Scope(
            company_id=aim.company_id, subject_id=aim.subject_id, project_id=aim.project_id
        )
        for key, connection in connections.items():
            if not connection.adapter.capabilities.writable:
                continue
            asked = EraseRequest(scope=scope, record_ids=tuple(sorted(gone.get(key, ()))))
            reply = await connection.read(partial(connection.adapter.erase, asked))
            survey.beyond += reply.beyond
            texts.update(reply.texts)
            gone.setdefault(key, set()).update(reply.record_ids)
            # What it finds once the others are known is asked for with them.
            asked = asked.model_copy(update={"record_ids": tuple(sorted(gone[key]))})
            survey.providers.append((connection, asked, reply))
        return texts

    async def _connections(self, caller: Caller) -> tuple[dict[str, Connection], list[str]]:
        """Open the company's bindings; also say which are not looked into."""

        def rows() -> list[BindingRow]:
            with self._core.database.read() as database:
                return bindings.bindings(database, caller.company_id)

        company = await asyncio.to_thread(find_company, self._core.database, caller.company_id)
        found: dict[str, Connection] = {}
        beyond = await asyncio.to_thread(self._running, caller)
        for row in await asyncio.to_thread(rows):
            if not row.enabled:
                beyond.append(f"The binding {row.key} is disabled, so nobody looked into it.")
                continue
            found[row.key] = await self._core.open(row, company_read_only=company.read_only)
            if not found[row.key].adapter.capabilities.writable:
                beyond.append(f"The binding {row.key} is only read; what it keeps stays.")
        return found, beyond

    def _running(self, caller: Caller) -> list[str]:
        with self._core.database.read() as database:
            waiting = appending.pending(database, caller.company_id)
        running = sum(one.draft["operation_type"] != OperationType.PURGE for one in waiting)
        if not running:
            return []
        return [
            f"{running} of the company's changes are running; purge again once they have ended."
        ]

    def _known_ids(self, caller: Caller, request: PurgeRequest) -> dict[str, frozenset[str]]:
        """Return all ids of the record by binding, in those where one of them is known."""
        assert request.record_id is not None  # noqa: S101 — only asked for a record
        company_id, asked = caller.company_id, request.record_id
        with self._core.database.read() as database:
            rows = bindings.bindings(database, company_id)
            # The log outlives the bindings that are removed.
            used = {row.key for row in rows} | journal.binding_keys(database, company_id)
        keys = sorted(used)
        if request.binding_key is not None and request.binding_key not in used:
            raise NotFound(
                f"There is and was no binding {request.binding_key}; known are: "
                f"{', '.join(keys) or 'none'}."
            )
        found: dict[str, frozenset[str]] = {}
        met: dict[str, frozenset[str]] = {}
        for key in keys if request.binding_key is None else [request.binding_key]:
            with self._core.database.read() as database:
                ids = journal.ids_of(database, company_id, key, asked)
            found[key] = frozenset({*ids, asked})
            if any(
                self._core.log.mutations_of_record(company_id, key, one, None)
                or self._core.log.retrievals(company_id, key, one, 1, None)[0]
                for one in found[key]
            ):
                met[key] = found[key]
        return met or found

    def _steps(self, aim: Aim) -> list[Step]:
        with self._core.database.read() as database:
            return list(purging.steps(database, aim))

    def _forgotten(self, aim: Aim) -> dict[str, set[str]]:
        with self._core.database.read() as database:
            return purging.forgotten(database, aim.company_id)

    def _operations(self, aim: Aim) -> Iterator[Operation]:
        """Return the operations that may hold something of it, sealed ones first."""
        yield from self._core.log.sealed_about(aim)
        above = self._core.log.sealed_through(aim.company_id)
        with self._core.database.read() as database:
            yield from purging.operations(database, aim, above=above)

    def _count(self, survey: _Survey) -> None:
        """Note what is kept where."""
        aim = survey.aim
        through = self._core.log.sealed_through(aim.company_id)
        hot = sealed = 0
        for operation in self._operations(aim):
            if purging.doomed(operation, aim):
                if operation.seq <= through:
                    sealed += 1
                else:
                    hot += 1
        survey.count("operation log", hot, "operations")
        survey.count("sealed log", sealed, "operations")
        if sealed and self._analysis.archive_url:
            survey.count("object store", sealed, "operations")
        survey.count("undo journal", len(survey.steps), "records before and after")
        with self._core.database.read() as database:
            links, ids = purging.names(database, aim)
        survey.count("handle links", links, "ids")
        survey.count("plugin ids", ids, "ids")
        for connection, _, reply in survey.providers:
            for place, count in reply.kept.items():
                survey.count(f"{connection.binding.key}: {place}", count, "versions")
        for path in kept_files.holding(self._paths, aim):
            survey.count(str(path), 1, "file")

    def _answer(self, request: PurgeRequest, survey: _Survey) -> PurgeAnswer:
        return PurgeAnswer(
            what=request.what,
            applied=False,
            copies=tuple(survey.copies),
            living=tuple(
                Living(
                    binding_key=connection.binding.key,
                    record_id=record.handle.provider_record_id if survey.reads(record) else "",
                    text=record.text[:_SHOWN] if survey.reads(record) else "",
                    only_read=not connection.adapter.capabilities.writable,
                )
                for connection, record in survey.living
            ),
            short=sum(len(text.strip()) < SHORTEST for text in survey.aim.texts),
            beyond=(*dict.fromkeys(survey.beyond), *self._always_beyond()),
        )

    def _always_beyond(self) -> Iterator[str]:
        if self._core.database.dialect == "postgresql":
            yield _POSTGRESQL
        if self._analysis.archive_url:
            yield _BUCKET
        yield _DISKS

    # Erasing it

    async def _forget(self, caller: Caller, living: Sequence[tuple[Connection, Record]]) -> None:
        """Forget records as any forget does; each is an operation that the purge then erases."""

        def place(one: tuple[Connection, Record]) -> tuple[str, str]:
            return one[0].binding.key, owner_scope(one[1].scope).model_dump_json()

        for (key, _), group in groupby(sorted(living, key=place), place):
            records = [record for _, record in group]
            for start in range(0, len(records), _AT_ONCE):
                part = records[start : start + _AT_ONCE]
                request = ForgetRequest(
                    scope=owner_scope(part[0].scope),
                    handles=tuple(record.handle for record in part),
                    binding_key=key,
                )
                answer = await self._memory.forget(caller, request)
                if answer.ghosts:
                    raise Conflict(
                        f"{answer.ghosts[0].provider_record_id} is still found in {key} after it "
                        "was forgotten; nothing was erased."
                    )

    async def _erase_from_providers(self, survey: _Survey) -> list[str]:
        beyond: list[str] = []
        for connection, asked, known in survey.providers:
            apply = asked.model_copy(update={"apply": True})
            reply = await connection.mutate(
                partial(connection.adapter.erase, apply), records=_REBUILT
            )
            beyond += [one for one in reply.beyond if one not in known.beyond]
        return beyond

    def _erase_from_log(self, entry: Entry, survey: _Survey, step: StepHook) -> None:
        """Erase the log's values, then the journal's: the texts are known from there. Blocking."""
        from memtui.analytics.layout import Folder
        from memtui.analytics.recovery import locked

        aim = survey.aim
        folder = Folder(self._analysis.archive_folder, aim.company_id)
        folder.create()
        with locked(folder):
            self._erase_sealed(entry, aim, folder, step)
            step("sealed")
            above = self._core.log.sealed_through(aim.company_id)
            while batch := self._next(aim, above):
                above = max(batch)
                with self._core.database.write() as database:
                    done = erase_fields(database, aim.company_id, batch)
                    if done:
                        appending.append(database, _proof(self._core, entry, done))
                step("batch")
            step("log")
            with self._core.database.write() as database:
                purging.erase_steps(database, aim, survey.steps, entry.operation_id)
                purging.drop_names(database, aim)
            step("journal")

    def _erase_sealed(self, entry: Entry, aim: Aim, folder: Folder, step: StepHook) -> None:
        """Write the segments anew that hold something of it, here and in the object store."""
        from memtui.analytics import recovery, rewriting

        recovery.recover_locked(self._core.database, folder)
        manifest = folder.read()
        with self._core.database.read() as database:
            salt = log.company_salt(database, aim.company_id)
        doomed = {
            one.seq: paths
            for one in self._core.log.sealed_about(aim)
            if (paths := purging.doomed(one, aim))
        }
        told = self._segments_told(aim.company_id) if doomed else {}
        for segment in manifest.segments:
            own = range(segment.first_seq, segment.last_seq + 1)
            here = {seq: paths for seq, paths in doomed.items() if seq in own}
            # What is written anew counts as proved, so nothing that was altered may go into it.
            if here and not _is_as_told(folder, segment, told.get(segment.span)):
                raise Conflict(
                    f"The segment {segment.name} is not as the log tells, so nothing was erased "
                    "from it; find the place with memtui audit verify, bring its files back from "
                    "a backup and purge again."
                )
            fresh = rewriting.rewrite(folder, manifest, segment, here, salt) if here else None
            if fresh is None:
                continue
            step("rewritten")
            manifest = manifest.with_segment(fresh.segment)
            rewriting.wait(folder, manifest)
            step("waiting")
            with self._core.database.write() as database:
                proof = _proof(self._core, entry, fresh.erased, [fresh.segment.proof()])
                appending.append(database, proof)
            step("proved")
            rewriting.replace(folder)
            step("replaced")
        self._analysis.renew_store(folder)

    def _segments_told(self, company_id: str) -> dict[str, Json]:
        """Return what the log says last of each segment, by its span."""
        newest: dict[str, tuple[int, Json]] = {}
        for kind in sorted(CONTROL):
            chosen = Filter(operation_type=kind, status=OperationStatus.OK)
            before: int | None = None
            while True:
                found = self._core.log.page(
                    company_id, chosen, limit=_AT_ONCE, before=before, after=None, sight=None
                ).operations
                for one in found:
                    for segment in one.request.get("segments") or ():
                        span = segment["name"].partition(".")[0]
                        if one.seq > newest.get(span, (0, {}))[0]:
                            newest[span] = one.seq, segment
                if len(found) < _AT_ONCE:
                    break
                before = found[-1].seq
        return {span: segment for span, (_, segment) in newest.items()}

    def _next(self, aim: Aim, above: int) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        with self._core.database.read() as database:
            for operation in purging.operations(database, aim, above=above):
                if paths := purging.doomed(operation, aim):
                    found[operation.seq] = paths
                    if len(found) == _BATCH:
                        break
        return found

    def _of_others(
        self, traces: Sequence[Trace], aim: Aim, folders: Sequence[Path]
    ) -> tuple[Trace, ...]:
        """Return those where another memory says it: in its store, or in what the log has of it."""
        if not traces:
            return ()
        with self._core.database.read() as database:
            said = purging.said_by_others(database, aim, sorted({one.text for one in traces}))
        memories = tuple(str(path) for path in (self._paths.data / "bindings", *folders))
        logs = (str(self._paths.database), str(self._paths.archive), *purging.TABLES)
        return tuple(
            one
            for one in traces
            if one.place.startswith(memories) or (one.text in said and one.place.startswith(logs))
        )

    def _looked(self, answer: PurgeAnswer, survey: _Survey) -> PurgeAnswer:
        """Look for the texts wherever a copy can lie."""
        from memtui.analytics.traces import look

        aim = survey.aim
        own = [path for _, _, reply in survey.providers for path in reply.folders]
        texts = searchable(aim.texts | {one for of in aim.gone.values() for one in of})
        found = look([self._paths.data, self._paths.config, *own], texts, self._core.database)
        others = self._of_others(found.traces, aim, own)
        if survey.sight is not None:
            found = found.model_copy(update={"traces": _shown(found.traces, survey.seen)})
            others = _shown(others, survey.seen)
        return answer.model_copy(update={"applied": True, "found": found, "others": others})


def _shown(traces: Sequence[Trace], seen: Collection[str]) -> tuple[Trace, ...]:
    """Return traces without the texts, and the names of rows, that the caller may not see."""
    hidden = {"text": "", "key": ""}
    return tuple(one if one.text in seen else one.model_copy(update=hidden) for one in traces)


def _with_living(survey: _Survey) -> Aim:
    """Return what is erased once the living are forgotten."""
    aim, gone, texts = survey.aim, dict(survey.aim.gone), set(survey.aim.texts)
    for connection, record in survey.going():
        key, record_id = connection.binding.key, record.handle.provider_record_id
        gone[key] = gone.get(key, frozenset()) | {record_id}
        texts.update(_texts(record))
    living = {key: ids - gone.get(key, frozenset()) for key, ids in aim.living.items()}
    return replace(aim, gone=gone, living=living, texts=frozenset(texts))


def _is_as_told(folder: Folder, segment: Segment, told: Json | None) -> bool:
    """Whether a segment's files are those whose SHA-256 the log has."""
    from memtui.analytics.layout import sha256_of

    if segment.proof() != told:
        return False
    paths = {folder.file(segment, table): file for table, file in segment.files.items()}
    return all(path.is_file() and sha256_of(path) == file.sha256 for path, file in paths.items())


def _proof(
    core: Core,
    entry: Entry,
    erased: Mapping[int, Sequence[str]],
    segments: Sequence[Json] = (),
) -> OperationDraft:
    """Return the operation of the chain that says which fields a part of a purge erased."""
    return OperationDraft(
        operation_id=core.new_id(),
        operation_type=OperationType.PURGE,
        status=OperationStatus.OK,
        scope=Scope(company_id=entry.caller.company_id),
        principal=entry.caller.principal,
        door=entry.caller.door,
        request=purge_request(erased, segments) | {"purge": entry.operation_id},
        result_count=sum(len(paths) for paths in erased.values()),
        started_at=core.clock(),
        latency_ms=None,
    )


def _only_subject(request: PurgeRequest, survey: _Survey) -> str | None:
    """Return the user whose memories alone these are."""
    if request.record_id is None:
        return request.subject_id
    scopes = [record.scope for _, record in survey.living]
    scopes += [s.record.scope for one in survey.steps for s in one.snapshots if s.record]
    owners = {owner_of(scope) for scope in scopes}
    [kind, subject_id] = owners.pop() if len(owners) == 1 else ("", "")
    return subject_id if kind == "subject_id" else None


async def _living(connection: Connection, aim: Aim, ids: Sequence[str]) -> list[Record]:
    """Return the records that are still stored, expired ones too, of those that it is about."""
    scope = Scope(company_id=aim.company_id)
    found: dict[str, Record] = {}
    if aim.subject_id is not None or aim.project_id is not None:
        for record in await _stored(connection, aim):
            found[record.handle.provider_record_id] = record
    unseen = [one for one in ids if one not in found]
    for start in range(0, len(unseen), _AT_ONCE):
        handles = [
            RecordHandle(provider_key=connection.adapter.key, provider_record_id=one)
            for one in unseen[start : start + _AT_ONCE]
            if one
        ]
        for snapshot in await _taken(connection, handles, scope):
            if snapshot is not None:
                found[snapshot.handle.provider_record_id] = snapshot
    return list(found.values())


async def _taken(
    connection: Connection, handles: Sequence[RecordHandle], scope: Scope
) -> list[Record | None]:
    try:
        return [one.record for one in await take(connection, handles, scope)]
    except NotFound:
        # One that nobody can look up: the others are asked for one by one.
        if len(handles) == 1:
            return []
        return [record for one in handles for record in await _taken(connection, [one], scope)]


async def _stored(connection: Connection, aim: Aim) -> list[Record]:
    if not connection.adapter.capabilities.browse:
        return []
    request = BrowseRequest(
        scope=Scope(company_id=aim.company_id),
        filter=Filter(subject_id=aim.subject_id, project_id=aim.project_id),
        expired=True,
    )
    return [
        record
        async for page in connection.pages(request, whole=True)
        for record in page.records
        if aim.is_of(record.scope)
    ]


def _seen(survey: _Survey) -> frozenset[str]:
    """Return the texts and ids of it that the caller may see."""
    states = [now.record for one in survey.steps for now in one.snapshots if now.record]
    states += [record for _, record in survey.living]
    own = [record for record in states if survey.reads(record)]
    texts = {text for record in own for text in _texts(record)}
    return frozenset(texts | {record.handle.provider_record_id for record in own})


def _texts(record: Record | None) -> Iterator[str]:
    if record is not None:
        yield from (one for one in (record.text, record.title, record.summary) if one)


_HELD = (
    "Another program reads the control plane's database, whose write-ahead log may keep what was "
    "erased until it is done; end it and purge again."
)
_POSTGRESQL = (
    "PostgreSQL's write-ahead log, replicas and backups, as long as whoever runs it keeps them."
)
_BUCKET = (
    "Old versions of files in a bucket that keeps them: remove them there. The archive folders of "
    "other machines, until each of them runs memtui archive fetch."
)
_DISKS = (
    "Backups, snapshots of the file system, freed blocks of the disk, and files that were exported."
)
