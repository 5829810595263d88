"""Builds the demo in its own home, and never overwrites a user's memories."""

from __future__ import annotations

import asyncio
import selectors
import shlex
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from memtui.config import Paths, Settings, find_paths
from memtui.contract import Conflict, Denied, Invalid, Model, NotFound, Unavailable, UtcDatetime
from memtui.demo import content
from memtui.demo.content import load
from memtui.demo.plan import DAYS, AddBinding, seeded
from memtui.demo.player import DemoClock, Player
from memtui.demo.recall import Recall
from memtui.demo.repository import FOLDER, make_repository
from memtui.demo.timeline import timeline
from memtui.demo.work import RUNS
from memtui.paths import HOME_VARIABLE, replacing
from memtui.service import Caller, open_service
from memtui.service.home.files import find_remains
from memtui.store import bindings
from memtui.store.database import Database, DatabaseConnection, alone, current_revision

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Called with the current task, its number of completed steps, and its total."""

COMPANY = "acme"

_LOCK = "demo.lock"
_SQLITE_ENDS = ("", "-wal", "-shm")
_SEED = 60
_PROVIDER_TIMEOUT_MS = 60_000
_STEPS_A_REPORT = 40
_PERCENT_A_MARK = 4


class DemoSummary(Model):
    """The contents of a complete demo."""

    home: str
    company: str
    name: str
    projects: tuple[str, ...]
    agents: tuple[str, ...]
    bindings: tuple[str, ...]
    issues: int
    runs: int
    records: int
    """Total of all bindings."""
    operations: int
    made_until: UtcDatetime
    """Time of its last operation."""
    commands: tuple[str, ...]
    """Commands to try next."""


class Marker(Model):
    """Marks a folder as a demo's; without a summary, it is being built or was interrupted."""

    made_by: str = "memtui demo"
    begun: bool = False
    """Whether it can be opened already."""
    percent: int = 0
    """Progress of the build, for display meanwhile."""
    binding_ids: tuple[str, ...] = ()
    summary: DemoSummary | None = None


def demo_paths(env: Mapping[str, str]) -> Paths:
    """Return the demo's folders: `MEMTUI_HOME`, else `demo` inside memtui's data folder."""
    if home := env.get(HOME_VARIABLE):
        return find_paths(Path(home))
    return find_paths(find_paths().data / "demo")


def can_open(paths: Paths, settings: Settings) -> bool:
    """Whether a demo is complete, or another process has built enough of one.

    Raises:
        Invalid, Denied: there is none, and `build_demo` would refuse to build it.
    """
    from filelock import FileLock, Timeout

    marker = _read_marker(paths)
    if marker is not None and marker.summary is not None:
        return True
    if marker is not None:
        try:
            with FileLock(paths.data / _LOCK, timeout=0, mode=0o600):
                _write_marker(paths, Marker(binding_ids=marker.binding_ids))  # nothing of it stays
        except Timeout:
            return marker.begun
    _refuse_unfit(settings)
    return False


def is_begun(paths: Paths) -> bool:
    """Whether an incomplete demo can be opened already."""
    marker = _read_marker(paths)
    return marker is not None and marker.begun


def build_demo(
    paths: Paths,
    settings: Settings,
    *,
    reset: bool = False,
    now: datetime | None = None,
    progress: Progress | None = None,
) -> DemoSummary:
    """Build the demo company under `paths`, unless it exists, and return its summary. Blocking.

    Changes of memories go through the service; everyday reads are logged in bulk. The same `now`,
    the UTC moment at which the demo ends (None: the last full hour), gives the same operations, ids
    and files. An interrupted demo is built again; `reset` builds a complete one again.

    Raises:
        Conflict: it is to be built again, and another process has it open.
        Invalid: the folder has memories of other origin, or a shared database is set.
        Denied: memtui runs read-only and there is no demo yet.
        Unavailable: another process builds the demo in this folder.
    """
    from filelock import FileLock, Timeout

    marker = _read_marker(paths)
    if marker is not None and marker.summary is not None and not reset:
        return marker.summary
    _refuse_unfit(settings)
    paths.create()
    end = now or datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    try:
        with (
            FileLock(paths.data / _LOCK, timeout=0, mode=0o600),
            asyncio.Runner(loop_factory=_NoThreads) as runner,
        ):
            return runner.run(_make_anew(paths, settings, end, progress))
    except Timeout as error:
        raise Unavailable(
            f"Another memtui is making the demo in {paths.data}; wait until it is done."
        ) from error


def _refuse_unfit(settings: Settings) -> None:
    if settings.read_only:
        raise Denied("The demo has to be made first; start it once without --read-only.")
    if settings.database_url:
        raise Invalid(
            "The demo keeps to a folder of its own; unset MEMTUI_DATABASE_URL to make it."
        )


async def _make_anew(
    paths: Paths, settings: Settings, end: datetime, progress: Progress | None
) -> DemoSummary:
    _clear(paths)
    return await _make(paths, settings, end, progress)


class _Impatient(selectors.DefaultSelector):
    """A selector that skips idle time instead of waiting."""

    passed_over = 0.0
    """Seconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready keys; without any, advance the time by `timeout` instead of waiting."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self.passed_over += timeout
        return found


class _NoThreads(asyncio.SelectorEventLoop):
    """An event loop that runs executor calls inline, and skips waiting times.

    Nothing runs concurrently here. Switching threads would be a third of the work, and retries
    during the story's outages would really wait.
    """

    def __init__(self) -> None:
        self._impatient = _Impatient()
        super().__init__(self._impatient)

    def time(self) -> float:
        """Return the loop's time, including skipped time."""
        return super().time() + self._impatient.passed_over

    def run_in_executor(  # type: ignore[override]  # typeshed calls it a coroutine function
        self, _: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 — it is for whoever waits for the call
            done.set_exception(error)
        return done


def _clear(paths: Paths) -> None:
    """Remove an existing demo, unless it is in use or contains the user's own data."""
    marker = _read_marker(paths)
    if marker is None:
        return
    made = marker.binding_ids or _binding_ids()
    try:
        with alone(paths.database) as connection:
            own = _own_settings(connection, made) if current_revision(connection) else []
            _refuse_own(paths, own, made)
            _remove(paths, marker)
    except Conflict as error:
        raise Conflict(
            f"The demo in {paths.data} is open in another memtui; end that first. "
            "Nothing was removed."
        ) from error
    except NotFound:  # its removal was interrupted
        _refuse_own(paths, [], made)
        _remove(paths, marker)


def _binding_ids() -> tuple[str, ...]:
    """Return the ids of all bindings that a demo's story creates."""
    steps = timeline()
    keys = [step.action.key for step in steps if isinstance(step.action, AddBinding)]
    return tuple(f"{COMPANY}/{key}" for key in keys)


def _own_settings(connection: DatabaseConnection, made: Collection[str]) -> list[str]:
    """Return the names of companies and bindings in the database that the demo did not create."""
    companies = bindings.companies(connection)
    return [
        *(row.name for row in companies if row.company_id != COMPANY),
        *(row.key for row in bindings.bindings(connection, COMPANY) if row.binding_id not in made),
    ]


def _refuse_own(paths: Paths, own: Sequence[str], made: Collection[str]) -> None:
    """Refuse to remove data that the demo did not create and that may contain memories.

    This includes the folder that a removed binding leaves behind.
    """
    remains = find_remains(paths)
    own = [
        *own,
        *(
            str(one.path)
            for one in remains.bindings
            if f"{one.company_id}/{one.key}" not in made and one.key not in own
        ),
        *(
            str(one.folder)
            for one in remains.sealed
            if one.manifest is None or one.manifest.company_id != COMPANY
        ),
    ]
    if own:
        raise Invalid(
            f"The demo in {paths.data} now also holds {', '.join(own)}, which the demo did not "
            "make; move that elsewhere first, or give the demo an empty folder in MEMTUI_HOME."
        )


async def _make(
    paths: Paths, settings: Settings, end: datetime, progress: Progress | None
) -> DemoSummary:
    """Build the demo in an empty home; the marker is written first."""
    _write_marker(paths, Marker(binding_ids=_binding_ids()))
    await asyncio.to_thread(make_repository, paths, end)
    clock = DemoClock(end - timedelta(days=DAYS))
    ids = seeded(_SEED)

    def new_id() -> str:
        return uuid.UUID(int=ids.getrandbits(128), version=4).hex

    service = await open_service(
        paths,
        settings.model_copy(update={"provider_timeout_ms": _PROVIDER_TIMEOUT_MS}),
        clock=clock.now,
        timer=clock.timer,
        new_id=new_id,
        first_company=False,
    )
    try:
        with closing(Database.open(paths.database)) as database:
            company = load().company
            admin = Caller(company_id=company.id, principal="user:bo", channel="cli")
            await service.companies.add(admin, company.name, link_templates=company.link_templates)
            recall = Recall(database, timeline(), new_id)
            player = Player(service, recall, clock, end, seeded(_SEED))
            await _play(player, paths, progress)
            recall.write_down(durable=True)
        bindings = await service.bindings.all(admin)
        health = [await service.bindings.health(admin, view.key) for view in bindings]
        summary = DemoSummary(
            home=str(paths.data),
            commands=_commands(paths),
            company=company.id,
            name=company.name,
            projects=company.projects,
            agents=tuple(agent.id for agent in company.agent),
            bindings=tuple(view.key for view in bindings),
            issues=len(load().issues),
            runs=RUNS,
            records=sum(one.health.records or 0 for one in health),
            operations=(await service.log.page(admin, limit=1)).total,
            made_until=end,
        )
        if not paths.checks_file.exists():
            paths.checks_file.write_bytes((files(content) / "checks.toml").read_bytes())
        ids_made = tuple(view.binding_id for view in bindings)
        _write_marker(paths, Marker(binding_ids=ids_made, summary=summary))
        return summary
    finally:
        await service.close()


async def _play(player: Player, paths: Paths, progress: Progress | None) -> None:
    steps, reported = timeline(), -1
    for number, step in enumerate(steps):
        percent = 100 * number // len(steps)
        if number >= _STEPS_A_REPORT and percent >= reported + _PERCENT_A_MARK:
            reported = percent
            begun = Marker(begun=True, percent=percent, binding_ids=_binding_ids())
            _write_marker(paths, begun)
        if progress is not None and number % _STEPS_A_REPORT == 0:
            progress("Making the demo company", number, len(steps))
        await player.play(step)
    if progress is not None:
        progress("Making the demo company", len(steps), len(steps))


def _commands(paths: Paths) -> tuple[str, ...]:
    """Return commands to try with a demo, as lines for a shell."""
    home = f"{HOME_VARIABLE}={shlex.quote(str(paths.data))}"
    return (
        f'{home} memtui query "deploy branch"',
        f"{home} memtui browse --project infra --limit 10",
        f"{home} memtui ops list --status unknown",
        f"{home} memtui runs list",
        f"{home} memtui",
    )


def _read_marker(paths: Paths) -> Marker | None:
    """Return the folder's marker; None if there is none.

    The paths in its summary are adapted if the folder was moved.

    Raises:
        Invalid: it is unreadable, or the folder has memories and no marker.
    """
    path = paths.demo_file
    elsewhere = f"give it an empty folder: {HOME_VARIABLE}=~/memtui-demo memtui demo"
    try:
        marker = Marker.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        if paths.database.exists() or paths.binding_dir("any").parent.exists():
            raise Invalid(
                f"{paths.data} holds memories of your own, and the demo leaves them alone; "
                + elsewhere
            ) from None
        return None
    except (OSError, ValidationError) as error:
        raise Invalid(
            f"{path} cannot be read, so nobody knows whose memories lie beside it; "
            + elsewhere.replace("give it", "give the demo")
        ) from error
    if marker.summary is None:
        return marker
    here = {"home": str(paths.data), "commands": _commands(paths)}
    return marker.model_copy(update={"summary": marker.summary.model_copy(update=here)})


def _write_marker(paths: Paths, marker: Marker) -> None:
    try:
        with replacing(paths.demo_file) as fresh:
            fresh.write_text(marker.model_dump_json(indent=1), "utf-8")
    except OSError as error:
        raise Invalid(f"Cannot write to {paths.data}: {error.strerror}.") from error


def _remove(paths: Paths, marker: Marker) -> None:
    """Remove the database and the data created by using a home; settings and views stay.

    The marker is first rewritten as incomplete and stays, so that an interruption at any moment
    allows another build.
    """
    database = paths.database
    folders = ("bindings", "heads", "migrations", "sessions", FOLDER)
    try:
        _write_marker(paths, Marker(binding_ids=marker.binding_ids))
        for end in _SQLITE_ENDS:
            database.with_name(database.name + end).unlink(missing_ok=True)
        paths.session_file.unlink(missing_ok=True)
        for folder in (paths.archive, *(paths.data / name for name in folders)):
            if folder.is_dir():
                shutil.rmtree(folder)
    except OSError as error:
        raise Invalid(
            f"Only a part of the demo in {paths.data} could be removed ({error}); "
            "make that possible and begin again."
        ) from error
