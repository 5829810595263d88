"""Let the destination serve what the source serves, and give it back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from memtui.contract import Conflict, Model
from memtui.migration.ends import Ends, MigrationState, ProgressFile
from memtui.service import BindingView, TargetView


class Switched(Model):
    """Which targets another binding serves now."""

    served_by: str
    targets: tuple[TargetView, ...]
    left: tuple[TargetView, ...] = ()
    """Not given back: somebody let a third binding serve them since."""
    closed: bool = False
    """The source is read-only now and was not before."""
    opened: bool = False
    """The source can be written again."""


async def switch(ends: Ends, data: Path, *, back: bool = False, force: bool = False) -> Switched:
    """Switch the targets of the source to the destination, or with `back` those again.

    The source becomes read-only, so that nothing is written there that the destination lacks, and
    `back` opens it again (seed 001). No record is touched, so both ways may be gone at any time.

    Raises:
        Conflict: the records were not found to be the same since they were last moved, unless
            `force`; or there is nothing to switch.
        Denied: memtui runs read-only, or the caller may not configure it.
    """
    kept = ProgressFile(data, ends)
    with kept.alone():
        state = await asyncio.to_thread(kept.read)
        if back:
            return await _give_back(ends, kept, state)
        if not force:
            _refuse_unverified(ends, state)
        return await _take_over(ends, kept, state)


def _refuse_unverified(ends: Ends, state: MigrationState) -> None:
    pair = f"{ends.source.key} {ends.destination.key}"
    if state.verified_at is None:
        raise Conflict(
            f"{ends.destination.key} was not found to hold all of {ends.source.key} since the "
            f"last migration; run `memtui migrate {pair} --verify` first, or add --force."
        )
    if not state.verified_whole:
        raise Conflict(
            f"{ends.source.key} could not be listed whole, so nobody knows whether all of it was "
            "moved; add --force to switch all the same."
        )


async def _take_over(ends: Ends, kept: ProgressFile, state: MigrationState) -> Switched:
    targets = ends.source.targets
    if not targets:
        raise Conflict(f"{ends.source.key} serves nothing, so there is nothing to switch.")
    closes = not ends.source.read_only
    # Remembered first: one that stops half way can still give everything back.
    both = tuple(dict.fromkeys((*state.switched, *targets)))
    remembered = {"switched": both, "closed": closes or state.closed}
    await asyncio.to_thread(kept.write, state.model_copy(update=remembered))
    together = uuid4().hex
    if closes:
        await ends.service.bindings.update(
            ends.caller, ends.source.key, read_only=True, together=together
        )
    await _serve(ends, targets, ends.destination, together)
    return Switched(served_by=ends.destination.key, targets=targets, closed=closes)


async def _give_back(ends: Ends, kept: ProgressFile, state: MigrationState) -> Switched:
    if not state.switched:
        raise Conflict(
            f"Nothing was switched from {ends.source.key} to {ends.destination.key}, so there is "
            "nothing to give back."
        )
    served = {*ends.source.targets, *ends.destination.targets}
    returned = tuple(target for target in state.switched if target in served)
    left = tuple(target for target in state.switched if target not in served)
    opens = state.closed and ends.source.read_only
    together = uuid4().hex
    if opens:
        await ends.service.bindings.update(
            ends.caller, ends.source.key, read_only=False, together=together
        )
    await _serve(ends, returned, ends.source, together)
    done = {"switched": (), "closed": False}
    await asyncio.to_thread(kept.write, state.model_copy(update=done))
    return Switched(served_by=ends.source.key, targets=returned, left=left, opened=opens)


async def _serve(
    ends: Ends, targets: tuple[TargetView, ...], binding: BindingView, together: str
) -> None:
    for target in targets:
        await ends.service.bindings.set_target(
            ends.caller, target.target_type, target.target_id, binding.key, together=together
        )
