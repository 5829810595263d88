"""Put facts back digit for digit, never over something that another wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from memtui.contract import Conflict, Invalid, RecordHandle, Scope, Snapshot

from .fact import Fact
from .writing import Writer


def take(handle: RecordHandle, fact: Fact | None, company_id: str) -> Snapshot:
    """Return the state of a handle's row; an expired fact is there as well."""
    if fact is None:
        return Snapshot(handle=handle, record=None)
    state = fact.model_dump(mode="json")
    return Snapshot(handle=handle, record=fact.record(company_id), state=state)


def restore(
    snapshots: Sequence[Snapshot],
    found: Mapping[str, Fact],
    writer: Writer,
    company_id: str,
    scope: Scope,
) -> None:
    """Put every row back as its snapshot has it, or take it away; `found` is what stands there.

    A limit of facts does not hold here: what was there before may be there again.

    Raises:
        Conflict: another fact stands in one's place.
        Invalid: a snapshot is not one of this provider and scope.
    """
    for snapshot in snapshots:
        now = found.get(snapshot.handle.provider_record_id)
        if snapshot.record is None:
            if now is not None:
                writer.remove(now)
            continue
        wanted = _read(snapshot, scope)
        writer.check_details(wanted)
        # A bare id is the user's before the drive's, so the other table's fact is in no way.
        if now is None or now.scope != wanted.scope:
            writer.add(wanted, [wanted.created_by, *([None] if wanted.created_by else [])])
        elif (now.scope, now.owner, now.created_at) != (
            wanted.scope, wanted.owner, wanted.created_at,
        ):  # fmt: skip
            raise Conflict(
                f"Another fact stands in the place of {wanted.record_id}; look at it first.",
                current=now.record(company_id),
                proposed=wanted.text,
            )
        elif now != wanted:
            writer.replace(now, wanted)


def _read(snapshot: Snapshot, scope: Scope) -> Fact:
    try:
        fact = Fact.model_validate(snapshot.state)
    except ValidationError as error:
        raise Invalid("The snapshot is not one of a fact; it cannot be put back.") from error
    named = [
        owner for owner in (("drive", scope.project_id), ("user", scope.subject_id)) if owner[1]
    ]
    is_outside = named and (fact.scope, fact.owner) not in named
    if fact.record_id != snapshot.handle.provider_record_id or is_outside:
        raise Invalid("The snapshot is of another scope; it cannot be put back here.")
    return fact
