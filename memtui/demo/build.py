"""Make the demo, or leave what is there: nobody's memories are ever in its way."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from memtui.config import Paths, Settings
from memtui.contract import Denied, Invalid, Unavailable
from memtui.demo.content import load
from memtui.demo.home import DemoSummary, lock_path, read_marker, remove
from memtui.demo.making import Progress, make
from memtui.service import BindingView, Caller, CompanyView, open_service


async def build_demo(
    paths: Paths,
    settings: Settings,
    *,
    reset: bool = False,
    now: datetime | None = None,
    progress: Progress | None = None,
) -> DemoSummary:
    """Make the demo company under `paths`, unless it is there, and say what it holds.

    Everything goes through the service. The same `now`, the UTC moment at which the demo ends
    (None: the last full hour), makes the same operations, ids and files. A demo whose making was
    interrupted is made anew; `reset` makes a complete one anew.

    Raises:
        Invalid: the folder holds memories that no demo made, or a shared database is set.
        Denied: memtui runs read-only and there is no demo yet.
        Unavailable: another process makes the demo in this folder.
    """
    from filelock import FileLock, Timeout

    marker = await asyncio.to_thread(read_marker, paths)
    if marker is not None and marker.summary is not None and not reset:
        return marker.summary
    _refuse_unfit(settings)
    await asyncio.to_thread(paths.create)
    try:
        with FileLock(lock_path(paths), timeout=0, thread_local=False, mode=0o600):
            await _clear(paths, settings)
            return await make(paths, settings, now or _last_full_hour(), progress)
    except Timeout as error:
        raise Unavailable(
            f"Another memtui is making the demo in {paths.data}; wait until it is done."
        ) from error


async def _clear(paths: Paths, settings: Settings) -> None:
    marker = await asyncio.to_thread(read_marker, paths)
    if marker is None:
        return
    companies, bindings = await _held(paths, settings)
    own = [view.name for view in companies if view.company_id != load().company.id]
    if marker.summary is not None:
        own += [view.key for view in bindings if view.binding_id not in marker.binding_ids]
    if own:
        raise Invalid(
            f"The demo in {paths.data} now also holds {', '.join(own)}, which the demo did not "
            "make; move that elsewhere first, or give the demo an empty folder in MEMTUI_HOME."
        )
    ids = marker.binding_ids or tuple(view.binding_id for view in bindings)
    await asyncio.to_thread(remove, paths, ids)


async def _held(paths: Paths, settings: Settings) -> tuple[list[CompanyView], list[BindingView]]:
    """Return the companies of a demo's home and the bindings of the demo's own company."""
    if not paths.database.exists():
        return [], []
    caller = Caller(company_id=load().company.id, principal="user:demo", door="demo")
    service = await open_service(paths, settings, first_company=False)
    try:
        return await service.companies.all(), await service.bindings.all(caller)
    finally:
        await service.close()


def _refuse_unfit(settings: Settings) -> None:
    if settings.read_only:
        raise Denied("The demo has to be made first; start it once without --read-only.")
    if settings.database_url:
        raise Invalid(
            "The demo keeps to a folder of its own; unset MEMTUI_DATABASE_URL to make it."
        )


def _last_full_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
