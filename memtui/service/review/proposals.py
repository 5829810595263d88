"""Changes of settings that wait until a second person agrees.

A company can ask for that (`CompanyRow.second_yes`). Every change of settings goes through
`ServiceRuntime.configure`, which makes a proposal of one that `needs_second`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from memtui.contract import (
    Conflict,
    Invalid,
    Json,
    MemtuiError,
    Model,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
)
from memtui.json_text import json_text
from memtui.service.answers import PendingChange
from memtui.service.operations.redaction import redact_config
from memtui.service.recorder import Recorder, RunningOperation
from memtui.service.visibility import USER_PREFIX, Role
from memtui.store import appending, bindings, pending, settings
from memtui.store.database import Database, DatabaseConnection
from memtui.store.rows import CompanyRow, PendingRow
from memtui.store.settings import SettingChange

SECOND = "second person"
"""The reason for which a proposal waits."""

_GATED = {"binding", "target", "member"}
_ENOUGH = 2
_NOT_SHOWN = {"company_id", "capabilities", "created_at"}


class AwaitsSecond(MemtuiError):
    """The change of settings was not made: it waits until a second person agrees."""

    def __init__(self, change: PendingChange) -> None:
        known = "It waits already" if change.again else "Nothing is changed yet: it waits"
        super().__init__(
            f"{known} as {change.pending_id} until another owner or admin accepts it in Q or with "
            f"`memtui review accept {change.pending_id}`."
        )
        self.details: Mapping[str, object] = {"pending": change.model_dump(mode="json")}


class ProposedChange(Model):
    """A change of settings that waits for a second person."""

    scope: Scope
    source: SourceRef | None = None
    changes: tuple[SettingChange, ...]
    asked: Json
    """The request of the operation that proposed it."""
    undoes: str | None = None
    """The operation that it would undo."""


def needs_second(company: CompanyRow | None, changes: Iterable[SettingChange]) -> bool:
    """Whether a second person has to agree to changes; `company`: as it was before them."""
    return (
        company is not None
        and company.second_yes
        and any(
            one.setting in _GATED or (one.setting == "company" and "second_yes" in one.fields)
            for one in changes
        )
    )


def refuse_alone(database: DatabaseConnection, company_id: str) -> None:
    """Raise `Invalid` where a second person has to agree, and there are not two who may."""
    company = bindings.company(database, company_id)
    if company is None or not company.second_yes:
        return
    people = {
        row.principal
        for row in bindings.members(database, company_id)
        if not row.project_id
        and row.role in {Role.OWNER, Role.ADMIN}
        and row.principal.startswith(USER_PREFIX)
    }
    if len(people) < _ENOUGH:
        raise Invalid(
            "A second person can agree only where two people are owner or admin of the whole "
            "company; `memtui companies members add` adds one."
        )


def propose(
    database: Database,
    recorder: Recorder,
    entry: RunningOperation,
    changes: Sequence[SettingChange],
) -> AwaitsSecond:
    """Put changes of settings into the queue, and log the operation as pending. Blocking."""
    caller, company_id = entry.caller, entry.caller.company_id
    scope = Scope(company_id=company_id)
    proposal = ProposedChange(
        scope=scope, changes=tuple(changes), asked=dict(entry.request), undoes=entry.undoes
    )
    alike = [_without_moment(one.model_dump(mode="json")) for one in changes]
    with database.write() as connection:
        appending.hold(connection, company_id)
        likeness = pending.likeness(connection, company_id, {"changes": alike})
        known = pending.alike(connection, company_id, likeness)
        pending_id = known or entry.operation_id
        if known is not None:
            pending.ask_again(connection, company_id, known, entry.started_at)
        else:
            row = PendingRow(
                company_id=company_id,
                pending_id=pending_id,
                binding_key=next(_keys_of(company_id, changes), ""),
                binding_added_at=entry.started_at,
                operation_type=OperationType.CONFIGURE,
                request=proposal.model_dump(mode="json"),
                owners=[scope.model_dump(mode="json")],
                base=[],
                reasons=[SECOND],
                principal=caller.principal,
                acts_for=caller.acts_for,
                channel=caller.channel,
                likeness=likeness,
                times=1,
                pending_since=entry.started_at,
                last_at=entry.started_at,
            )
            pending.add(connection, row)
        entry.status, entry.settings = OperationStatus.PENDING, ()
        entry.undoes = None  # nothing is undone yet
        entry.request["pending"], entry.request["reasons"] = pending_id, [SECOND]
        recorder.append_within(connection, entry)
    entry.logged = True
    change = PendingChange(pending_id=pending_id, reasons=(SECOND,), again=known is not None)
    return AwaitsSecond(change)


def carry_out(
    database: DatabaseConnection, company_id: str, changes: Sequence[SettingChange]
) -> None:
    """Make changes of settings that were proposed.

    Raises:
        Conflict: one of the settings has changed since, or they would contradict each other.
    """
    there = settings.read(database, company_id, {one.setting for one in changes})
    for one in changes:
        now = settings.shown(there, settings.place_of(company_id, one))
        if not settings.same(now, one.before):
            raise Conflict(
                f"The {one.name} has changed since this was proposed; refuse it, and propose it "
                "again."
            )
        back = one.model_copy(update={"before": one.after, "after": one.before})
        settings.put(database, company_id, back)
        if one.setting == "binding" and one.before is None and one.after is not None:
            bindings.forget_namesake(database, company_id, one.after["binding_id"])
        if one.setting == "binding" and one.after is None and one.before is not None:
            from memtui.store import pairs

            pairs.forget_binding(database, one.before["binding_id"])
    refuse_impossible(database, company_id)


def refuse_impossible(database: DatabaseConnection, company_id: str) -> None:
    """Raise `Conflict` where members lack an owner, or a target its binding."""
    roles = bindings.members(database, company_id)
    if roles and not any(row.role == Role.OWNER and not row.project_id for row in roles):
        raise Conflict("It would leave the members without an owner; make somebody else one first.")
    known = {row.binding_id for row in bindings.bindings(database, company_id)}
    for target in bindings.targets(database, company_id):
        if target.binding_id not in known:
            key = target.binding_id.removeprefix(f"{company_id}/")
            raise Conflict(
                f"The {target.target_type} {target.target_id} would be served by {key}, which "
                "would not be there; undo what came after it first, or set another target."
            )


def as_records(change: SettingChange, scope: Scope) -> tuple[Record | None, Record | None]:
    """Return a setting before and after a change as records, whose text has a line a field."""
    handle = RecordHandle(provider_key="memtui", provider_record_id=change.name)

    def record(row: Json | None) -> Record | None:
        if row is None:
            return None
        shown = {name: row[name] for name in (change.fields or row) if name not in _NOT_SHOWN}
        text = "\n".join(f"{name}: {_plain(shown, name)}" for name in sorted(shown))
        return Record(handle=handle, text=text, scope=scope)

    return record(change.before), record(change.after)


def in_short(change: SettingChange) -> str:
    """Return what a change does to a setting: `added`, `removed`, `enabled: true → false`."""
    before, after = change.before, change.after
    if before is None or after is None:
        return "removed" if after is None else "added"
    return ", ".join(
        f"{name}: {_plain(before, name)} → {_plain(after, name)}" for name in sorted(change.fields)
    )


def _plain(row: Json, name: str) -> str:
    value: Any = redact_config(row[name])[0] if name == "config" else row[name]
    return value if isinstance(value, str) else json_text(value)


def _keys_of(company_id: str, changes: Iterable[SettingChange]) -> Iterator[str]:
    """Yield the keys of the bindings that changes are about."""
    for one in changes:
        binding_id = (one.after or one.before or {}).get("binding_id")
        if binding_id:
            yield str(binding_id).removeprefix(f"{company_id}/")


def _without_moment(value: Json) -> Json:
    """Return a change without what differs each time that it is proposed."""
    rows = {name: value[name] for name in ("before", "after")}
    return value | {
        name: row and {key: one for key, one in row.items() if key not in _NOT_SHOWN}
        for name, row in rows.items()
    }
