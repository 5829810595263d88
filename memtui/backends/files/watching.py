"""Wake up when files may have changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from memtui.contract import Unavailable


async def wakes(
    folders: Callable[[], list[Path]], stopped: asyncio.Event
) -> AsyncGenerator[None, None]:
    """Yield whenever something in the folders may have changed, and at the latest after 5 s.

    `folders` is asked again after each wake, since what there is to watch changes too; it runs in
    a thread. The pause covers file systems that tell no changes.

    Raises:
        Unavailable: the system refuses to watch.
    """
    import watchfiles

    while not stopped.is_set():
        watched = await asyncio.to_thread(folders)
        yield
        changes = watchfiles.awatch(
            *watched,
            watch_filter=None,
            recursive=False,
            stop_event=stopped,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        try:
            async with contextlib.aclosing(changes):
                async for _ in changes:
                    yield
                    if await asyncio.to_thread(folders) != watched:
                        break
        except FileNotFoundError:
            continue
        except (OSError, RuntimeError) as error:
            raise Unavailable(
                f"The system does not let files be watched ({error}); refresh by hand."
            ) from error
