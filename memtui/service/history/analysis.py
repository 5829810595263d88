"""Reads of the whole operation log: views, figures, SQL, the archive and its proof."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar, cast

from memtui.contract import Denied, Filter, Invalid, OperationType, Unavailable
from memtui.service.history.narrowing import operations_asked
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, person_of
from memtui.store.database import Database
from memtui.store.details import SettingDetails
from memtui.store.visibility import Visibility
from memtui.threads import in_thread

if TYPE_CHECKING:
    from memtui.analytics.archive import ArchiveCheck
    from memtui.analytics.audit import AuditCheck, Watch
    from memtui.analytics.engine import Stop
    from memtui.analytics.export import Exported, ExportFormat
    from memtui.analytics.figures import Bucket, HitSign, Stats
    from memtui.analytics.layout import ArchiveFolder, Manifest, Segment
    from memtui.analytics.objects import ObjectStore
    from memtui.analytics.reading import LogView, Progress
    from memtui.analytics.rows import LogDatabase
    from memtui.analytics.seal import SealReport
    from memtui.analytics.sql import SqlAnswer
    from memtui.analytics.stats import Dashboard, Rollups
    from memtui.service.runtime import ServiceRuntime

EngineT = TypeVar("EngineT", bound="LogDatabase")

SQL_SECONDS = 60.0
SQL_ROWS = 10_000
_SHOWN_GAPS = 100


class Analysis(ServiceModule):
    """Reads of a company's operations, hot and sealed; only `seal` and `fetch` are logged.

    Answers and figures cover what the caller may see (`memtui.store.visibility.Visibility`). The
    segments and the checks of archive and chain show counts only, and are open to every member.
    Each method raises `Denied` where the company has members and the caller is not one.

    DuckDB starts with the first question that needs it and stays until `close`.
    """

    def __init__(self, runtime: ServiceRuntime) -> None:
        super().__init__(runtime)
        self.database: Database = self._runtime.database
        """The control plane's database."""
        self.archive_folder: Path = self._runtime.paths.archive
        """The folder of the sealed operations."""
        self.archive_url = runtime.settings.archive_url
        """The object store with a copy of the archive; empty: none."""
        self._making = threading.Lock()
        self._engines: dict[tuple[type[LogDatabase], str, Visibility | None, str], LogDatabase] = {}
        """By kind, company, visibility and time zone."""

    @in_thread
    def recover(self) -> None:
        """Finish or roll back a seal that a dead process left, for every company."""
        from memtui.analytics.layout import is_settled
        from memtui.store import bindings

        with self.database.read() as database:
            companies = bindings.companies(database)
        for company in companies:
            if not is_settled(self.database, self._folder(company.company_id)):
                from memtui.analytics import archive

                archive.recover(self.database, self.archive_folder, company.company_id)

    async def open_log(
        self,
        caller: Caller,
        chosen: Filter | None = None,
        sort: str = "-seq",
        *,
        early: Callable[[Progress], None] | None = None,
        stop: Stop | None = None,
        folded: bool = False,
    ) -> LogView:
        """Open a view of the log; cancelling the task that waits for it stops the work.

        The view's own methods block. If the caller's visibility has changed since, reading from it
        raises `Denied`.

        Args:
            caller: Whose company's log.
            chosen: The filter; None: everything.
            sort: A name of `memtui.store.conditions.SORTS`, `-` in front for descending.
            early: Called in this event loop while older operations are still searched, with the
                matches so far; in the log's default order only.
            stop: Ends the search, so that the view has what was found (`search_on`).
            folded: As in `operations_asked`, in the log's order only.

        Raises:
            Invalid: `sort` is unknown.
            Unavailable: the log cannot be read.
        """
        from memtui.analytics.engine import Stop
        from memtui.analytics.reading import LogView
        from memtui.analytics.rows import LogDatabase

        stop = stop or Stop()
        report = _in_this_loop(early, stop)

        def open_view() -> LogView:
            visibility = self._runtime.visibility(caller)
            asked = operations_asked(self._runtime, caller, chosen, folded=folded)

            def check() -> None:
                if self._runtime.visibility(caller) != visibility:
                    raise Denied("What you may see has changed; open the operations again.")

            duck = self._engine(LogDatabase, caller.company_id, visibility)
            return LogView(duck, asked, sort, stop=stop, early=report, check=check)

        opening = asyncio.ensure_future(asyncio.to_thread(open_view))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            stop.stop()
            opening.add_done_callback(_let_go)
            raise

    async def search_on(
        self, view: LogView, *, early: Callable[[Progress], None], stop: Stop
    ) -> LogView:
        """Search on where a view's search was ended, as in `open_log`, and update the view."""
        try:
            await asyncio.to_thread(view.search_on, stop, _in_this_loop(early, stop))
        finally:
            stop.stop()
        view.update()
        return view

    @in_thread
    def stats(
        self,
        caller: Caller,
        chosen: Filter | None = None,
        *,
        by: Sequence[str] = (),
        bucket: Bucket | None = None,
        hit_sign: HitSign | None = None,
        zone: str = "UTC",
    ) -> Stats:
        """Return the exact figures of the operations that match a filter (`Rollups.stats`)."""
        figures = self.figures(caller.company_id, self._runtime.visibility(caller), zone)
        asked = operations_asked(self._runtime, caller, chosen)
        return figures.stats(asked, by=by, bucket=bucket, hit_sign=hit_sign)

    @in_thread
    def dashboard(
        self,
        caller: Caller,
        bucket: Bucket,
        *,
        since: date | None = None,
        until: date | None = None,
        hit_sign: HitSign | None = None,
        zone: str = "UTC",
    ) -> Dashboard:
        """Return the figures of whole days from stored sums (`Rollups.dashboard`).

        For a caller with `as_of`, they cover operations that had begun by then.
        """
        figures = self.figures(caller.company_id, self._runtime.visibility(caller), zone)
        end = caller.by_then(None).until
        return figures.dashboard(bucket, since=since, until=until, before=end, hit_sign=hit_sign)

    @in_thread
    def prepare(self, caller: Caller, *, zone: str = "UTC") -> None:
        """Compute the dashboard's figures of sealed operations, so that it opens quickly."""
        self.figures(caller.company_id, self._runtime.visibility(caller), zone).prepare()

    @in_thread
    def sql(
        self,
        caller: Caller,
        statement: str,
        *,
        zone: str = "UTC",
        time_limit_s: float = SQL_SECONDS,
        max_rows: int = SQL_ROWS,
    ) -> SqlAnswer:
        """Run one statement that reads the company's views (`SqlConsole.run`).

        Raises:
            Invalid: the statement cannot be run, or the caller has `as_of`.
        """
        from memtui.analytics.sql import SqlConsole

        if caller.as_of is not None:
            raise Invalid(
                "SQL reads the whole log, not the log of a past moment; go back to now first, and "
                "select by started_at."
            )

        console = self._engine(
            SqlConsole, caller.company_id, self._runtime.visibility(caller), zone
        )
        return console.run(statement, time_limit_s=time_limit_s, max_rows=max_rows)

    def cancel_sql(self, caller: Caller) -> None:
        """Stop the caller's running statements, which then raise `Invalid`.

        In a company without members, stop everybody's.
        """
        from memtui.analytics.sql import SqlConsole

        person = person_of(caller)
        for (_, company_id, visibility, _), engine in tuple(self._engines.items()):
            is_own = company_id == caller.company_id and (
                visibility is None or visibility.person == person
            )
            if is_own and isinstance(engine, SqlConsole):
                engine.cancel()

    @in_thread
    def segments(self, caller: Caller) -> Manifest:
        """Return the manifest of the sealed segments, oldest first."""
        self._runtime.visibility(caller)
        return self._folder(caller.company_id).read()

    async def seal(
        self, caller: Caller, *, everything: bool = False, before: datetime | None = None
    ) -> SealReport:
        """Move operations older than the hot window into the archive; logged as a configuration.

        Args:
            caller: The caller, whose company's log is sealed.
            everything: Move every operation.
            before: Move the operations that began before this moment instead.

        Raises:
            Conflict: another process seals this log, its chain is broken or was altered, or the
                object store has a different log.
            Denied: the caller may not seal, or memtui is read-only.
            Unavailable: the segments are sealed here, but not copied to the object store.
        """
        from memtui.analytics import seal

        now = self._runtime.clock()
        limit = (
            None if everything else before or now - timedelta(days=self._runtime.settings.hot_days)
        )
        asked = SettingDetails(seal="everything" if limit is None else limit.isoformat())
        async with self._runtime.configured(caller, asked, in_read_only=True):
            done = await asyncio.to_thread(
                lambda: seal.seal(
                    self.database,
                    self.archive_folder,
                    caller.company_id,
                    before=limit,
                    now=now,
                    principal=caller.principal,
                    channel=caller.channel,
                )
            )
            if self.archive_url:
                await asyncio.to_thread(self._store().keep, self._folder(caller.company_id))
        return done

    async def fetch(self, caller: Caller) -> tuple[Segment, ...]:
        """Download the segments that other machines sealed from the object store.

        Raises:
            Conflict: the store has a different log, or fewer segments than this machine.
            Denied: the caller may not fetch, or memtui is read-only.
            Invalid: no object store is set, or it cannot be used.
            Unavailable: the store cannot be reached, or a file in it is damaged.
        """
        asked = SettingDetails(fetch=self.archive_url)
        async with self._runtime.configured(caller, asked, in_read_only=True):
            return await asyncio.to_thread(self._store().fetch, self._folder(caller.company_id))

    @in_thread
    def verify_archive(self, caller: Caller) -> ArchiveCheck:
        """Check the sealed files against their manifest, and the manifest against the log."""
        from memtui.analytics import archive

        self._runtime.visibility(caller)
        return archive.verify(self.archive_folder, caller.company_id, self.database)

    async def verify_chain(
        self,
        caller: Caller,
        report: Callable[[int, int], None] | None = None,
        *,
        expected: int | None = None,
    ) -> AuditCheck:
        """Check the digest of every operation and its place in the chain.

        `expected` is the number of an operation whose digest is returned, whoever may see it.
        `report(checked, total)` is called in this event loop. Cancelling the task that waits for
        the answer stops the work.
        """
        from memtui.analytics.engine import Stop

        stop, loop = Stop(), asyncio.get_running_loop()

        def tell(checked: int, number: int) -> None:
            if report is not None and not stop.stopped:
                report(checked, number)

        def watch(checked: int, number: int) -> None:
            stop.check()
            loop.call_soon_threadsafe(tell, checked, number)

        try:
            return await asyncio.to_thread(self._verify_chain, caller, watch, expected)
        except asyncio.CancelledError:
            stop.stop()
            raise

    def _verify_chain(self, caller: Caller, watch: Watch, expected: int | None) -> AuditCheck:
        from memtui.analytics import audit

        self._runtime.visibility(caller)
        company_id, notes = caller.company_id, self.database.notes
        # Read before the log: operations added meanwhile then only make the log longer.
        noted = notes.read(company_id) if notes else None
        found = audit.verify(
            self.database, self.archive_folder, company_id, watch, noted=noted, expected=expected
        )
        if found.problem is not None:
            return found
        chosen = Filter(operation_type=OperationType.REPAIR)
        repairs = self._runtime.log(caller.company_id).page(chosen, limit=_SHOWN_GAPS).operations
        gaps = tuple(
            audit.Gap.like(
                one,
                at=one.started_at,
                lost_from=one.request.get("lost_from"),
                lost_through=one.request.get("lost_through"),
            )
            for one in repairs
        )
        return found.model_copy(update={"gaps": gaps})

    @in_thread
    def export_proof(self, caller: Caller, target: Path) -> int:
        """Write every operation with its digest, which anybody can verify (`docs/audit.md`).

        Operations that the caller may not see are written as hashes only.
        """
        from memtui.analytics import audit

        visibility = self._runtime.visibility(caller)
        return audit.export(
            self.database,
            self.archive_folder,
            caller.company_id,
            target,
            visible=lambda operation: visibility is None or visibility.sees(operation),
        )

    async def export(
        self,
        caller: Caller,
        target: Path | IO[bytes],
        form: ExportFormat,
        chosen: Filter | None = None,
        *,
        force: bool = False,
        exact: bool = False,
    ) -> Exported:
        """Write the operations that match a filter to a file or an open stream (`Exporter`).

        Operations are written in order of `seq`. If cancelled, no file is left behind.
        """
        from memtui.analytics.export import Exporter

        visibility = await asyncio.to_thread(self._runtime.visibility, caller)
        exporter = Exporter(
            self.database, self.archive_folder, caller.company_id, visibility=visibility
        )

        def export() -> Exported:
            try:
                asked = operations_asked(self._runtime, caller, chosen)
                if isinstance(target, Path):
                    return exporter.to_file(target, form, asked, force=force, exact=exact)
                return exporter.to_stream(target, form, asked, exact=exact)
            finally:
                exporter.close()

        try:
            return await asyncio.to_thread(export)
        except asyncio.CancelledError:
            exporter.stop()
            raise

    @in_thread
    def remove(self, company_id: str, remove_rows: Callable[[], None]) -> None:
        """Remove a company's sealed operations and its rows. Only `Companies.remove` calls it.

        The store's copy goes first, as that can fail, and the files last: without the rows nothing
        reads them, and repeating the removal deletes them.

        Raises:
            Conflict: another process seals this log, or the store's copy is of a different log.
            Unavailable: the object store cannot be reached or written, or files remain.
        """
        from memtui.analytics.archive import locked
        from memtui.analytics.layout import usable

        folder = self._folder(company_id)
        if self.archive_url:
            self._store().remove(folder)
        with usable(folder):
            folder.create()
        with locked(folder):
            remove_rows()
            try:
                shutil.rmtree(folder.path)
            except OSError as error:
                raise Unavailable(
                    f"The files of {company_id} in {folder.path} could not all be removed "
                    f"({error.strerror}); make that possible and ask again."
                ) from error

    def figures(self, company_id: str, visibility: Visibility | None, zone: str = "UTC") -> Rollups:
        """Return the `Rollups` of a log for a visibility; for other service modules."""
        from memtui.analytics.rows import LogDatabase
        from memtui.analytics.stats import Rollups

        return Rollups(
            self._engine(LogDatabase, company_id, visibility),
            zone=zone,
            score_threshold=self._runtime.settings.score_threshold,
            thresholds=self._runtime.settings.score_thresholds,
        )

    def _engine(
        self, kind: type[EngineT], company_id: str, visibility: Visibility | None, zone: str = "UTC"
    ) -> EngineT:
        place = kind, company_id, visibility, zone
        with self._making:
            if place not in self._engines:
                self._engines[place] = kind(
                    self.database, self.archive_folder, company_id, visibility=visibility, zone=zone
                )
            return cast("EngineT", self._engines[place])

    def forget_copies(self, company_id: str) -> None:
        """Drop the cached copies of a company's operations; open views keep theirs."""
        for place in [place for place in self._engines if place[1] == company_id]:
            del self._engines[place]

    def renew_store(self, folder: ArchiveFolder) -> None:
        """Upload rewritten segments to the object store, if there is one. Blocking.

        Raises:
            Conflict: the store has a different log.
            Unavailable: it cannot be reached or written.
        """
        if self.archive_url:
            self._store().renew(folder)

    def _store(self) -> ObjectStore:
        from memtui.analytics.objects import ObjectStore

        if not self.archive_url:
            raise Invalid("No object store is set; give its URL in the setting archive_url.")
        return ObjectStore(self.archive_url)

    def _folder(self, company_id: str) -> ArchiveFolder:
        from memtui.analytics.layout import ArchiveFolder

        return ArchiveFolder(self.archive_folder, company_id)

    @in_thread
    def close(self) -> None:
        """Free the resources of DuckDB."""
        for engine in self._engines.values():
            engine.close()


def _in_this_loop(
    early: Callable[[Progress], None] | None, stop: Stop
) -> Callable[[Progress], None] | None:
    """Return what calls `early` in this event loop from any thread, until it is stopped."""
    if early is None:
        return None
    loop, report = asyncio.get_running_loop(), early

    def show(progress: Progress) -> None:
        if not stop.stopped:
            report(progress)

    def tell(progress: Progress) -> None:
        loop.call_soon_threadsafe(show, progress)

    return tell


def _let_go(opening: asyncio.Future[LogView]) -> None:
    """Close a view that was opened after its caller was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
