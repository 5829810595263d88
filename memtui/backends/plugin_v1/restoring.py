"""Take memories' states and put them back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from memtui.contract import (
    Conflict,
    Invalid,
    Json,
    NotFound,
    RecordHandle,
    Scope,
    Snapshot,
    Unavailable,
    WriteReply,
)

from .changing import remove, resent
from .details import details_of, foreign, propagation
from .lookup import find_all
from .plugin import Plugin, together
from .records import handle, handle_of, places
from .wire import Row, read_rows
from .writing import post, snapshot_of


async def snapshot(plugin: Plugin, handles: Sequence[RecordHandle], scope: Scope) -> list[Snapshot]:
    """Return each record's row as it is; of one out of reach the state says that."""
    readable = await plugin.readable(scope)
    found = await find_all(plugin, [places(one.provider_record_id, readable) for one in handles])
    return [snapshot_of(plugin, one, each) for one, each in zip(handles, found, strict=True)]


async def restore(plugin: Plugin, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
    """Write rows again as they were, and remove those that were not there.

    `created_at` cannot be set over the wire: of a record that was gone it is carried in
    `propagation`, so memtui shows the old one and other clients the moment of the restoring.

    Raises:
        Conflict: nobody could see whether there was a record, so nothing is touched.
    """
    readable = await plugin.readable(scope)
    rows = [_kept(one) for one in snapshots]
    for one, row in zip(snapshots, rows, strict=True):
        if row is None and one.state.get("unknown"):
            raise Conflict(
                f"memtui could not see whether there was a record "
                f"{one.handle.provider_record_id} before, so it cannot be put back."
            )
        # A company's namespace that was removed is known no more, and comes back with its rows.
        known = row is None or row.namespace in readable or plugin.is_company_wide(scope)
        if row is not None and not known:
            raise NotFound(f"The namespace {row.namespace} is not of this scope.")
    gone = [
        places(one.handle.provider_record_id, readable)
        for one, row in zip(snapshots, rows, strict=True)
        if row is None
    ]
    back = [row for row in rows if row is not None]
    try:
        ids = await together(partial(post, plugin, row.namespace, _whole(row)) for row in back)
        await remove(plugin, gone)
    except Unavailable as error:
        raise Unavailable(str(error), sent=True) from error
    return WriteReply(
        records=tuple(
            handle_of(row) if stored == row.id else handle(f"{row.namespace}/{stored}")
            for row, stored in zip(back, ids, strict=True)
        )
    )


def _kept(taken: Snapshot) -> Row | None:
    """Return the row of a snapshot. Raises `Invalid` for one that is not this provider's."""
    if taken.record is None:
        return None
    try:
        rows, _ = read_rows({"memories": [json.loads(taken.state["row"])]})
    except (KeyError, TypeError, ValueError, Unavailable) as error:
        raise Invalid("The snapshot is not of a memory plugin; it cannot be restored.") from error
    return rows[0]


def _whole(row: Row) -> Json:
    body = resent(row)
    details = details_of(row)
    if details is not None and details.created_at is None and row.created_at is not None:
        body["propagation"] = propagation(
            details.model_copy(update={"created_at": row.created_at}), foreign(row)
        )
    return body
