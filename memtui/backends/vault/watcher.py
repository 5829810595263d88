"""Follow edits made outside memtui."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path, PurePath

from memtui.contract import RecordHandle, Unavailable

from .entries import handle_of
from .index import Index
from .units import unit_path

_DEBOUNCE_MS, _STEP_MS = 200, 50
_ABSENT_SECONDS = 1.0


async def watch(
    root: Path, index: Index, stopped: asyncio.Event
) -> AsyncIterator[Sequence[RecordHandle]]:
    """Yield the handles whose records changed on disk, until `stopped`.

    Our own writes are in the index before their events arrive, so they are not among them.
    """
    import watchfiles

    while not stopped.is_set() and not await asyncio.to_thread(root.is_dir):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _ABSENT_SECONDS)
    if stopped.is_set():
        return
    changes = watchfiles.awatch(
        root, watch_filter=None, debounce=_DEBOUNCE_MS, step=_STEP_MS, stop_event=stopped
    )
    index.is_watched = True
    try:
        async for batch in changes:
            found = await asyncio.to_thread(_follow, root, index, {path for _, path in batch})
            if found:
                yield [handle_of(record_id) for record_id in found]
    except OSError as error:
        raise Unavailable(f"The folder {root} cannot be watched: {error}.") from error
    finally:
        index.is_watched = False


def _follow(root: Path, index: Index, paths: set[str]) -> list[str]:
    index.check()
    units = set()
    for path in paths:
        relative = PurePath(path).relative_to(root)
        if any(part.startswith(".") for part in relative.parts):
            continue
        name = relative.as_posix()
        if name.lower().endswith(".md") or name.endswith(".jsonl"):
            units.add(unit_path(name))
        else:
            units.add(None)
    wanted = [unit for unit in units if unit is not None]
    return index.update(wanted) if wanted else []
