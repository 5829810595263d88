"""Erase copies of forgotten memories, prove it by searching, and keep the log's chain verifiable.

`docs/purge.md` lists the places, and what each one loses. A killed purge can be run again: each
step erases what is left, and the journal, from which the texts are known, comes last.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import accumulate, groupby, islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from memtui.analytics.traces import Trace, as_bytes, searchable
from memtui.config import Paths
from memtui.contract import (
    Conflict,
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    Json,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    Scope,
    Unavailable,
    owner_scope,
)
from memtui.external_editor import DRAFT_OF
from memtui.json_text import json_text
from memtui.paths import replacing
from memtui.scratch import remove_left, remove_left_of
from memtui.service.connections import Connection
from memtui.service.history.analysis import Analysis
from memtui.service.home.survey import (
    Copies,
    PurgeAnswer,
    PurgeRequest,
    Survey,
    operations,
    place_of,
    reach,
    survey,
    texts_of,
)
from memtui.service.operations.memories import Operations
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule, ServiceRuntime, find_company, to_its_end
from memtui.service.visibility import Caller, Permission
from memtui.store import appending, bindings, erasing, log, pending
from memtui.store.database import DatabaseConnection
from memtui.store.details import BrowseDetails, LogDetails, SettingDetails
from memtui.store.digest import CONTROL, committed_subject
from memtui.store.erasing import Aim, erase_fields, purge_request
from memtui.store.journal import Journal
from memtui.store.operation import Operation, OperationDraft
from memtui.store.rows import BindingRow

if TYPE_CHECKING:
    from memtui.analytics.layout import ArchiveFolder, Segment

StepHook = Callable[[str], None]
"""Called with the name of each finished step of a purge; tests interrupt it there."""

_BATCH = 2_000
"""Operations whose values are erased in one transaction."""

_AT_ONCE = 500
_REBUILT = 10_000
"""A provider's erasing rebuilds indexes, so it gets the time-out of a call with so many records."""

_CHECK = re.compile(rb"""(?:^[ \t]*#.*\n)*^[ \t]*\[\[[ \t"']*check[ \t"']*\]\]""", re.MULTILINE)
"""The begin of a check in its file, with the comments above it."""
_A_DAY = timedelta(days=1)
_REFUSALS = {"notfound", "denied", "invalid"}
"""Kinds of errors with which a purge fails before it erases anything."""


class Purging(ServiceModule):
    """Purges of one service's companies."""

    async def plan(self, caller: Caller, request: PurgeRequest) -> PurgeAnswer:
        """Return what a purge would erase, and change nothing.

        Raises:
            Denied: the caller may not purge this.
            NotFound: its target is unknown, and there is no copy of it.
            Unavailable: a provider that may store living records cannot be reached.
        """
        scope = Scope(company_id=caller.company_id)
        # Without the target's name: a later purge would have to erase it.
        asked = BrowseDetails(purpose="purge", what=request.what, forget=request.forget)
        async with self._runtime.recorder.recorded(
            OperationType.BROWSE, caller, scope, asked
        ) as entry:
            found = await self._survey(caller, request)
            if request.forget:
                found.aim = found.with_living()
            entry.result_count = len(found.living)
            await asyncio.to_thread(self._refuse_unknown, request, found)
            return await asyncio.to_thread(self._planned, request, found)

    @to_its_end
    async def apply(
        self, caller: Caller, request: PurgeRequest, *, step: StepHook = lambda _name: None
    ) -> PurgeAnswer:
        """Erase the target's copies, search for leftovers, and record the result.

        Raises:
            Conflict: another purge runs, the log is being sealed, or a sealed segment to rewrite
                was altered; nothing was changed.
            Denied: the caller may not purge this, or memtui or the company is read-only.
            NotFound: its target is unknown, and there is no copy of it; nothing was done.
            Unavailable: a provider that may store living records cannot be reached.
        """
        runtime = self._runtime
        scope = Scope(company_id=caller.company_id)
        asked = LogDetails(what=request.what, forget=request.forget)
        if request.before is not None:
            asked["before"] = request.before.isoformat()
        async with runtime.recorder.recorded(OperationType.PURGE, caller, scope, asked) as entry:
            await runtime.refuse_changes(caller.company_id)
            with self._alone():
                found = await self._survey(caller, request)
                await asyncio.to_thread(self._refuse_unknown, request, found)
                going = found.going() if request.forget else []
                aim = found.with_living() if going else found.aim
                await asyncio.to_thread(self._refuse_altered, aim)
                if request.traced is not None:  # what is erased below led to these
                    entry.handles = found.handles()
                    entry.request["target"] = found.reach.target
                await runtime.recorder.begin(entry, [])
                entry.irreversible = erasing.IRREVERSIBLE
                step("begun")
                if going:
                    await self._forget(caller, going)
                    step("forgotten")
                    said = frozenset(text for _, one in going for text in texts_of(one))
                    stays = found.stays
                    found = await survey(runtime, caller, request, found.reach, said)
                    found.stays |= stays
                planned = await asyncio.to_thread(self._planned, request, found)
                beyond = await _erase_from_providers(found)
                step("providers")
                await asyncio.to_thread(_scrub_files, self._runtime.paths, found.aim)
                for path in {path for _, _, reply in found.providers for path in reply.folders}:
                    is_file = not path.is_dir()
                    folder = path.parent if is_file else path
                    await asyncio.to_thread(remove_left, folder, deep=not is_file)
                step("files")
                await asyncio.to_thread(self._erase_from_log, entry, found, step)
                if not await asyncio.to_thread(runtime.database.scrub):
                    beyond.append(_PENDING)
                self._runtime.module(Analysis).forget_copies(caller.company_id)
                step("scrubbed")
                answer = await self._looked(planned, found)
            entry.result_count = sum(one.count for one in answer.copies)
            entry.request["copies"] = {
                one.place: one.count for one in answer.copies if "/" not in one.place
            }
            entry.request["forgotten"], entry.request["left"] = len(going), len(answer.left)
            entry.request["looked_for"] = answer.found.texts if answer.found else 0
        return answer.model_copy(
            update={
                "operation_id": entry.operation_id,
                "forgotten": len(going),
                "beyond": (*answer.beyond, *beyond),
            }
        )

    async def keep_doing(self, caller: Caller, days: int | None) -> None:
        """Allow the setting `purge_after_days`, if it is at least `days`; None: forbid it."""
        if days is not None and days < 1:
            raise Invalid("Texts are kept for a day at least; give an older moment.")
        await self._runtime.change(
            caller,
            SettingDetails(purge_after_days=days),
            lambda database: bindings.update_company(
                database, caller.company_id, {"purge_after_days": days}
            ),
        )

    @to_its_end
    async def due(self, caller: Caller) -> PurgeAnswer | None:
        """Purge by age, at most once a day, if the setting asks for it and a person allowed it.

        None: nothing was due.
        """
        runtime, now = self._runtime, self._runtime.clock()
        company = await runtime.ask(find_company, caller.company_id)
        settings = runtime.settings
        days, allowed = settings.purge_after_days, company.purge_after_days
        is_closed = company.read_only or settings.read_only
        if not days or allowed is None or allowed > days or is_closed:
            return None
        purges = Filter(operation_type=OperationType.PURGE, since=now - _A_DAY)
        page = await asyncio.to_thread(runtime.log(caller.company_id).page, purges, limit=100)
        if any(
            one.request.get("what") == "age" and one.status is OperationStatus.OK
            for one in page.operations
        ):
            return None
        return await self.apply(caller, PurgeRequest(before=now - timedelta(days=days)))

    async def _survey(self, caller: Caller, request: PurgeRequest) -> Survey:
        """Survey the target, and check that the caller may purge it.

        With `forget`, the caller must also be allowed to forget its living records.
        """
        runtime = self._runtime
        if caller.by_ai:
            raise Denied("An agent cannot purge; let the person for whom it acts do it.")
        await asyncio.to_thread(runtime.visibility, caller)
        if request.record_id is None:
            await self._authorise(caller, request.subject_id)
        found = await survey(runtime, caller, request, await reach(runtime, caller, request))
        if request.record_id is not None:  # its owner is known only now
            await self._authorise(caller, found.only_subject())
        for one in found.going() if request.forget else ():
            try:
                await runtime.authorise(caller, Permission.DELETE, [owner_scope(one[1].scope)])
            except Denied as error:
                if request.traced is None:
                    raise
                found.stays[place_of(*one)] = str(error).rstrip(".")
        return found

    async def _authorise(self, caller: Caller, subject_id: str | None) -> None:
        """Raise `Denied` unless a company owner or admin calls, or the user `subject_id`."""
        company = Scope(company_id=caller.company_id)
        if subject_id is not None:
            own = company.model_copy(update={"subject_id": subject_id})
            with suppress(Denied):
                return await self._runtime.authorise(caller, Permission.DELETE, [own])
        return await self._runtime.authorise(caller, Permission.DELETE, [company])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            with FileLock(self._runtime.paths.data / "purge.lock", timeout=0, mode=0o600):
                yield
        except Timeout as error:
            raise Conflict("Another purge is running; wait until it is done.") from error

    def _planned(self, request: PurgeRequest, found: Survey) -> PurgeAnswer:
        """Count the copies in each place."""
        runtime, aim = self._runtime, found.aim
        through = runtime.log(aim.company_id).sealed_through
        doomed: list[bool] = []
        later: list[Operation] = []
        for one in operations(runtime, aim):
            if erasing.doomed(one, aim):
                doomed.append(one.seq <= through)
                later += [one] if "event" in one.request and request.before is None else []
        copied = doomed.count(True) if self._runtime.module(Analysis).archive_url else 0
        with runtime.database.read() as database:
            links, ids = erasing.names(database, aim)
            found_of = Journal(database, aim.company_id).found_of
            checks = [(one, found_of(one.operation_id)) for one in later]
        counts = [
            ("operation log", doomed.count(False), "operations"),
            ("sealed log", doomed.count(True), "operations"),
            ("object store", copied, "operations"),
            ("undo journal", len(found.steps), "records before and after"),
            ("held for review", len(found.waiting()), "writes"),
            ("handle links", links, "ids"),
            ("ids beside providers", ids, "ids"),
            *(
                (f"{connection.binding.key}: {place}", kept, "versions")
                for connection, _, reply in found.providers
                for place, kept in reply.kept.items()
            ),
            *((str(path), 1, "file") for path, _ in _files(self._runtime.paths, aim)),
        ]
        found.beyond += [
            f"{one.binding_key} may still store what operation {one.operation_id} gave it: once "
            f"`memtui ops check {one.operation_id}` says that it has ended, purge again."
            for one, check in checks
            if check is None or check.happened is None
        ]
        if runtime.database.dialect == "postgresql":
            found.beyond.append(_POSTGRESQL)
        if self._runtime.module(Analysis).archive_url:
            found.beyond.append(_BUCKET)
        found.beyond.append(_DISKS)
        copies = [Copies(place=place, count=n, what=what) for place, n, what in counts if n]
        return found.answer(request, copies)

    def _refuse_unknown(self, request: PurgeRequest, found: Survey) -> None:
        """Raise `NotFound` for a mistyped target: no record, no copy, no operation about it.

        The message leaves the name out, since it is logged and a purge may just have erased the
        name. After a purge that broke off nothing is refused: its last steps may be left to do.
        """
        if found.living or request.before is not None or self._was_met(request, found.aim):
            return
        own_log = self._runtime.log(found.aim.company_id)
        purges = Filter(operation_type=OperationType.PURGE, internal=True)
        if any(
            one.status is not OperationStatus.OK and one.error_kind not in _REFUSALS
            for one in own_log.each(purges)
        ):
            return
        if self._planned(request, found).copies:  # last, as it searches everything
            return
        purged = "; it never was, or was purged before" if request.record_id is not None else ""
        what = {"subject": "user", "source": "document"}.get(request.what, request.what)
        raise NotFound(
            f"There is no such {what}, and memtui keeps no copy of one{purged}. Nothing was erased."
        )

    def _was_met(self, request: PurgeRequest, aim: Aim) -> bool:
        """Whether the log has an operation about the target, also if its user is erased there."""
        own_log = self._runtime.log(aim.company_id)
        if request.record_id is not None:
            ids = [(key, one) for key, of in aim.gone.items() for one in of]
            return any(
                own_log.mutations_of_record(*place) or own_log.retrievals(*place, 1)[0]
                for place in ids
            )
        if request.subject_id is None:
            own = {"project_id": request.project_id, "run_id": request.run_id}
            named = [Filter(**own, internal=True)] if request.source is None else []
        else:
            with self._runtime.database.read() as database:
                salt = log.company_salt(database, aim.company_id)
            named = [
                Filter(subject_id=request.subject_id, internal=True),
                Filter(subject_id=committed_subject(request.subject_id, salt), internal=True),
                Filter(principal=f"user:{request.subject_id}", internal=True),
            ]
        return any(own_log.page(one, limit=1).operations for one in named)

    # Erasing

    async def _forget(self, caller: Caller, living: Sequence[tuple[Connection, Record]]) -> None:
        """Forget records by ordinary operations, whose values the purge then erases."""

        def place(one: tuple[Connection, Record]) -> tuple[str, str]:
            return one[0].binding.key, owner_scope(one[1].scope).model_dump_json()

        for (key, _), group in groupby(sorted(living, key=place), place):
            records = [record for _, record in group]
            for start in range(0, len(records), _AT_ONCE):
                part = records[start : start + _AT_ONCE]
                request = ForgetRequest.of(part, owner_scope(part[0].scope), key)
                answer = await self._runtime.module(Operations).forget(caller, request)
                if answer.refused:
                    raise Denied(
                        f"{next(iter(answer.refused.values()))} Then purge again. So far the rest "
                        f"is only forgotten, which `memtui undo {answer.operation_id}` takes back; "
                        "nothing was erased."
                    )
                if answer.ghosts:
                    raise Conflict(
                        f"{answer.ghosts[0].provider_record_id} is still found in {key} after it "
                        "was forgotten; nothing was erased."
                    )

    @contextmanager
    def _archive(self, company_id: str) -> Iterator[ArchiveFolder]:
        """Lock the folder of sealed segments, and finish an interrupted change of it."""
        from memtui.analytics import archive
        from memtui.analytics.layout import ArchiveFolder

        folder = ArchiveFolder(self._runtime.module(Analysis).archive_folder, company_id)
        folder.create()
        with archive.locked(folder):
            archive.recover_locked(self._runtime.database, folder)
            yield folder

    def _refuse_altered(self, aim: Aim) -> None:
        """Raise `Conflict` for an altered segment now, before anything is forgotten."""
        with self._archive(aim.company_id) as folder:
            for _ in self._touched(aim, folder):
                pass

    def _touched(
        self, aim: Aim, folder: ArchiveFolder
    ) -> Iterator[tuple[Segment, dict[int, tuple[str, ...]]]]:
        """Yield the segments with values to erase, and these fields by `seq`.

        Raises:
            Conflict: a segment's files differ from their hashes in the log. Rewriting would record
                new hashes, and so hide the alteration.
        """
        doomed = {
            one.seq: paths
            for one in self._runtime.log(aim.company_id).sealed_about(aim)
            if (paths := erasing.doomed(one, aim))
        }
        proofs = self._logged_proofs(aim.company_id) if doomed else {}
        for segment in folder.read().segments:
            own = range(segment.first_seq, segment.last_seq + 1)
            here = {seq: paths for seq, paths in doomed.items() if seq in own}
            if not here:
                continue
            if not _is_as_logged(folder, segment, proofs.get(segment.span)):
                raise Conflict(
                    f"The segment {segment.name} does not match the log, so nothing was erased "
                    "from it; find the place with memtui audit verify, restore its files from a "
                    "backup and purge again."
                )
            yield segment, here

    def _erase_from_log(self, entry: RunningOperation, found: Survey, step: StepHook) -> None:
        """Erase the log's values, then the journal's, from which the texts are known. Blocking."""
        runtime, aim = self._runtime, found.aim
        with self._archive(aim.company_id) as folder:
            self._erase_sealed(entry, aim, folder, step)
            step("sealed")
            above = runtime.log(aim.company_id).sealed_through
            while batch := self._next(aim, above):
                above = max(batch)
                with runtime.database.write() as database:
                    done = erase_fields(database, aim.company_id, batch)
                    if done:
                        appending.append(database, _proof(runtime, entry, done))
                step("batch")
            step("log")
            with runtime.database.write() as database:
                erasing.erase_steps(database, aim, found.steps, entry.operation_id)
                erasing.names(database, aim, drop=True)
                for row in found.waiting():
                    pending.remove(database, row)
                entry.handles = ()  # nothing is left to which they could lead
                runtime.recorder.begin_anew(database, entry)
            step("journal")

    def _erase_sealed(
        self, entry: RunningOperation, aim: Aim, folder: ArchiveFolder, step: StepHook
    ) -> None:
        """Rewrite the segments with values to erase, here and in the object store."""
        from memtui.analytics import seal

        manifest = folder.read()
        with self._runtime.database.read() as database:
            salt = log.company_salt(database, aim.company_id)
        for segment, here in self._touched(aim, folder):
            fresh = seal.rewrite(folder, manifest, segment, here, salt)
            if fresh is None:
                continue
            step("rewritten")
            manifest = manifest.with_segment(fresh.segment)
            folder.write(manifest, waiting=True)
            step("waiting")
            with self._runtime.database.write() as database:
                proof = _proof(self._runtime, entry, fresh.erased, [fresh.segment.proof()])
                appending.append(database, proof)
            step("proved")
            seal.replace_waiting(folder)
            step("replaced")
        self._runtime.module(Analysis).renew_store(folder)

    def _logged_proofs(self, company_id: str) -> dict[str, Json]:
        """Return the last logged proof of each segment, by its span."""
        whole, ok = self._runtime.log(company_id), OperationStatus.OK
        operations = [
            one for kind in CONTROL for one in whole.each(Filter(operation_type=kind, status=ok))
        ]
        return {
            segment["name"].partition(".")[0]: segment
            for one in sorted(operations, key=attrgetter("seq"))
            for segment in one.request.get("segments") or ()
        }

    def _next(self, aim: Aim, above: int) -> dict[int, tuple[str, ...]]:
        with self._runtime.database.read() as database:
            doomed = (
                (one.seq, paths)
                for one in erasing.operations(database, aim, above=above)
                if (paths := erasing.doomed(one, aim))
            )
            return dict(islice(doomed, _BATCH))

    # Searching for leftovers

    async def _looked(self, answer: PurgeAnswer, found: Survey) -> PurgeAnswer:
        """Search for the texts in every place that can have a copy."""
        from memtui.analytics.traces import look

        aim, paths, database = found.aim, self._runtime.paths, self._runtime.database
        own = [path for _, _, reply in found.providers for path in reply.folders]
        texts = searchable(aim.texts | {one for of in aim.gone.values() for one in of})
        places = [paths.data, paths.config, *own]
        left = await asyncio.to_thread(look, places, texts, database)
        traces = await asyncio.to_thread(self._of_company, left.traces, aim.company_id)
        others = await self._of_others(traces, found)
        if found.visibility is not None:
            traces, others = _shown(traces, found.seen), _shown(others, found.seen)
        left = left.model_copy(update={"traces": traces})
        return answer.model_copy(update={"applied": True, "found": left, "others": others})

    def _of_company(self, traces: Sequence[Trace], company_id: str) -> tuple[Trace, ...]:
        """Return the traces without rows of other companies, which the caller must not see."""
        with self._runtime.database.read() as database:
            ids = {one.company_id for one in bindings.companies(database)} - {company_id}
        theirs = tuple(f"{one} " for one in ids)
        return tuple(one for one in traces if not one.key.startswith(theirs))

    async def _of_others(self, traces: Sequence[Trace], found: Survey) -> tuple[Trace, ...]:
        """Return the traces of another memory with the same text: in its store, or log rows.

        Everything in the store of a binding that was not searched counts as another memory's.
        """
        if not traces:
            return ()
        texts, paths = {one.text for one in traces}, self._runtime.paths
        searched = {connection.binding.binding_id for connection, _, _ in found.providers}

        def look(database: DatabaseConnection) -> tuple[set[str], list[BindingRow]]:
            companies = bindings.companies(database)
            rows = [row for of in companies for row in bindings.bindings(database, of.company_id)]
            return erasing.said_by_others(database, found.aim, sorted(texts)), rows

        said, rows = await self._runtime.ask(look)
        folders = (path for _, _, reply in found.providers for path in reply.folders)
        memories = tuple(map(str, (paths.data / "bindings", *folders)))
        others = tuple(f"{paths.binding_dir(one.binding_id)}/" for one in rows
                       if one.binding_id not in searched)  # fmt: skip
        logs = (str(paths.database), str(paths.archive), *erasing.TABLES)
        living = await found.said_by_living(
            {one.text for one in traces if one.place.startswith(memories)} - said
        )
        return tuple(
            one
            for one in traces
            if one.place.startswith(others)
            or (one.text in said and one.place.startswith((*logs, *memories)))
            or (one.text in living and one.place.startswith(memories))
        )


async def _erase_from_providers(found: Survey) -> list[str]:
    beyond: list[str] = []
    for connection, asked, known in found.providers:
        apply = asked.model_copy(update={"apply": True})
        reply = await connection.mutate(partial(connection.adapter.erase, apply), records=_REBUILT)
        beyond += [one for one in reply.beyond if one not in known.beyond]
    return beyond


def _shown(traces: Sequence[Trace], seen: Collection[str]) -> tuple[Trace, ...]:
    """Return traces; those with a text hidden from the caller lose text and row key."""
    hidden = {"text": "", "key": ""}
    return tuple(one if one.text in seen else one.model_copy(update=hidden) for one in traces)


def _is_as_logged(folder: ArchiveFolder, segment: Segment, proof: Json | None) -> bool:
    """Whether a segment's files have the SHA-256 that the log has."""
    from memtui.analytics.layout import sha256_of

    if segment.proof() != proof:
        return False
    paths = {folder.file(segment, table): file for table, file in segment.files.items()}
    return all(path.is_file() and sha256_of(path) == file.sha256 for path, file in paths.items())


def _proof(
    runtime: ServiceRuntime,
    entry: RunningOperation,
    erased: Mapping[int, Sequence[str]],
    segments: Sequence[Json] = (),
) -> OperationDraft:
    """Return the logged operation that lists the fields erased by one part of a purge."""
    return OperationDraft(
        operation_id=runtime.new_id(),
        operation_type=OperationType.PURGE,
        status=OperationStatus.OK,
        scope=Scope(company_id=entry.caller.company_id),
        principal=entry.caller.principal,
        channel=entry.caller.channel,
        request=purge_request(erased, segments) | {"purge": entry.operation_id},
        result_count=sum(len(paths) for paths in erased.values()),
        started_at=runtime.clock(),
        latency_ms=None,
    )


# Small files of the home that can contain texts of memories


def _scrub_files(paths: Paths, aim: Aim) -> None:
    """Erase texts from the session, saved views and statements, checks, drafts and the error log.

    Temporary files of killed processes are deleted.

    Raises:
        Unavailable: a file cannot be written.
    """
    for home in {paths.data, paths.config}:
        remove_left_of(home)
    for path, fresh in _files(paths, aim):
        try:
            if fresh is None:
                shutil.rmtree(path)
            else:
                with replacing(path) as beside:
                    beside.write_bytes(fresh)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be changed ({error.strerror}); make it writable and purge again."
            ) from error


def _files(paths: Paths, aim: Aim) -> list[tuple[Path, bytes | None]]:
    """Return the files with texts to erase, and their new content; None: delete the folder."""
    found: list[tuple[Path, bytes | None]] = []
    for path in (paths.session_file, paths.views_file, paths.queries_file):
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        fresh = _without(document, aim)
        if fresh != document:
            found.append((path, json_text(fresh, indent=1).encode()))
    written = _read(paths.checks_file) or b""
    starts = [one.start() for one in _CHECK.finditer(written)]
    first, *checks = (written[a:b] for a, b in pairwise([0, *starts, len(written)]))
    others = (one for one in checks if _lines_without(one, aim) == one)
    if (fresh := b"".join([_lines_without(first, aim), *others])) != written:
        found.append((paths.checks_file, fresh))
    for path in sorted(paths.data.glob(f"{paths.log_file.name}*")):  # and the rotated ones
        logged = _read(path) or b""
        kept = _lines_without(logged, aim)
        if kept != logged:
            found.append((path, kept))
    for folder in sorted(paths.data.glob("draft-*")):
        drafts = [_read(path) or b"" for path in folder.iterdir()] if folder.is_dir() else []
        said = any(aim.says(draft.decode("utf-8", "replace")) for draft in drafts)
        if said or _is_draft_of(folder, aim):
            found.append((folder, None))
    return found


def _is_draft_of(folder: Path, aim: Aim) -> bool:
    """Whether a draft belongs to an erased record or pending write, whatever its text now."""
    try:
        key, name = json.loads((folder / DRAFT_OF).read_bytes())
    except (OSError, ValueError, TypeError):
        return False
    return name in aim.gone.get(key, ()) or name in aim.pending


def _lines_without(logged: bytes, aim: Aim) -> bytes:
    """Return a log without the lines that contain an erased text or a part of it."""
    lines = logged.splitlines(keepends=True)
    starts = [*accumulate(map(len, lines), initial=0)]
    gone = {n for n, line in enumerate(lines) if aim.says(line.decode("utf-8", "replace"))}
    for written in (form for text in searchable(aim.telling) for form in as_bytes(text)):
        for found in re.finditer(re.escape(written), logged):
            first, end = found.span()
            gone.update(range(bisect_right(starts, first) - 1, bisect_left(starts, end)))
    return b"".join(line for n, line in enumerate(lines) if n not in gone)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _without(value: Any, aim: Aim) -> Any:
    """Return a JSON value without the list members, texts and scopes of the purge's target."""
    if isinstance(value, dict):
        if _is_of(value, aim):
            return None
        return {k: _without(v, aim) for k, v in value.items() if not aim.says(k)}
    if isinstance(value, list):
        return [one for one in value if _without(one, aim) == one]
    return "" if isinstance(value, str) and aim.says(value) else value


def _is_of(value: dict[str, Any], aim: Aim) -> bool:
    if "company_id" not in value:
        return False
    try:
        scope = Scope.model_validate(value)
    except ValidationError:
        return False
    return scope.company_id == aim.company_id and aim.is_of(scope)


_PENDING = (
    "Another program has the control plane's database open, so its write-ahead log may keep erased "
    "texts; close that program and purge again."
)
_POSTGRESQL = (
    "PostgreSQL's write-ahead log, replicas and backups, as long as its administrator keeps them."
)
_BUCKET = (
    "Old versions of files in a bucket that keeps them: remove them there. The archive folders of "
    "other machines, until each of them runs memtui ops archive fetch."
)
_DISKS = (
    "Backups, snapshots of the file system, freed blocks of the disk, and files that were exported."
)
