"""Switch the targets of the source binding to the destination, and back."""

import asyncio
from pathlib import Path

from memtui.contract import Conflict, Model
from memtui.migration.endpoints import Endpoints, MigrationState, ProgressFile, refuse_held
from memtui.service import TargetView
from memtui.service.usecases import comparing, shadowing

_SERVES_NOTHING = "{} serves no company, project or agent, so there is nothing to switch."


class Switched(Model):
    """Targets that were switched, and the binding that serves them now."""

    served_by: str
    targets: tuple[TargetView, ...]
    left: tuple[TargetView, ...] = ()
    """Targets not given back: a third binding serves them now."""
    closed: bool = False
    """Whether this switch made the source read-only."""
    opened: bool = False
    """Whether this switch made the source writable again."""


async def switch(
    endpoints: Endpoints, data: Path, *, back: bool = False, force: bool = False
) -> Switched:
    """Switch the targets of the source to the destination; with `back`, return them.

    The source becomes read-only, so that no write misses the destination; `back` makes it writable
    again (seed 001): one change of settings, for which a second person may have to agree. No record
    is changed, so either direction is safe at any time.

    Raises:
        Conflict: no verify has passed since the last migration (`force` skips this check), records
            of the source are held for review, or there is nothing to switch.
        AwaitsSecond: it waits until a second person agrees.
        Denied: memtui runs read-only, or the caller may not configure it.
    """
    kept = ProgressFile(data, endpoints)
    with kept.alone():
        state = await asyncio.to_thread(kept.read)
        if back:
            return await _give_back(endpoints, kept, state)
        await refuse_held(endpoints)
        if not force:
            _refuse_unverified(endpoints, state)
        return await _take_over(endpoints, kept, state)


async def plan_by_shadow(
    endpoints: Endpoints,
) -> tuple[comparing.MemoryComparison, tuple[str, ...]]:
    """Return what the destination answered as the source's shadow, and why that supports no switch.

    Raises:
        Conflict: the source serves nothing.
    """
    if not endpoints.source.targets:
        raise Conflict(_SERVES_NOTHING.format(endpoints.source.key))
    keys = endpoints.source.key, endpoints.destination.key
    shadow = await comparing.shadow_of(endpoints.service, endpoints.caller, keys)
    found = await shadowing.report_shadow(endpoints.service, endpoints.caller, shadow)
    return found, shadowing.objections(found)


def _refuse_unverified(endpoints: Endpoints, state: MigrationState) -> None:
    pair = f"{endpoints.source.key} {endpoints.destination.key}"
    if state.verified_at is None:
        raise Conflict(
            f"{endpoints.destination.key} has not been verified against {endpoints.source.key} "
            f"since the last migration; run `memtui migrate verify {pair}` first, or add --force."
        )
    if not state.verified_whole:
        raise Conflict(
            f"{endpoints.source.key} cannot be listed completely, so memtui cannot tell whether "
            "all of it was moved; add --force to switch all the same."
        )


async def _take_over(endpoints: Endpoints, kept: ProgressFile, state: MigrationState) -> Switched:
    targets = endpoints.source.targets
    if not targets:
        raise Conflict(_SERVES_NOTHING.format(endpoints.source.key))
    closes = not endpoints.source.read_only
    # Saved before the switch: it may be interrupted, or wait until a second person agrees.
    both = tuple(dict.fromkeys((*state.switched, *targets)))
    remembered = {"switched": both, "closed": closes or state.closed}
    await asyncio.to_thread(kept.write, state.model_copy(update=remembered))
    to = endpoints.destination.key
    await endpoints.service.bindings.cut_over(
        endpoints.caller, endpoints.source.key, targets, to, read_only=True if closes else None
    )
    return Switched(served_by=to, targets=targets, closed=closes)


async def _give_back(endpoints: Endpoints, kept: ProgressFile, state: MigrationState) -> Switched:
    if not state.switched:
        raise Conflict(
            f"Nothing was switched from {endpoints.source.key} to {endpoints.destination.key}, so "
            "there is nothing to give back."
        )
    served = endpoints.destination.targets
    returned = tuple(target for target in state.switched if target in served)
    left = tuple(target for target in state.switched if target not in served)
    opens = state.closed and endpoints.source.read_only
    to = endpoints.source.key
    await endpoints.service.bindings.cut_over(
        endpoints.caller, to, returned, to, read_only=False if opens else None
    )
    done = {"switched": (), "closed": False}
    await asyncio.to_thread(kept.write, state.model_copy(update=done))
    return Switched(served_by=to, targets=returned, left=left, opened=opens)
