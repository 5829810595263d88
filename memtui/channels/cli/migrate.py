"""`migrate`: move a binding's records to another, verify, and switch."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.options import OwnerOptions, complete_binding
from memtui.channels.cli.output import Dim, Line, columns, table, ticker
from memtui.channels.cli.session import Session
from memtui.contract import Invalid
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.migration.cutover import Switched
    from memtui.migration.endpoints import Endpoints
    from memtui.migration.envelope import Loss
    from memtui.migration.moving import Applied, MigrationProgress
    from memtui.migration.planning import MigrationPlan
    from memtui.migration.verifying import Verified
    from memtui.service import BindingView

_Source = Annotated[
    str,
    typer.Argument(metavar="SRC", help="The binding to read.", autocompletion=complete_binding),
]
_Destination = Annotated[
    str,
    typer.Argument(
        metavar="DST", help="The binding to move into.", autocompletion=complete_binding
    ),
]
_NAMED = 3
"""Most records named for one reason of refusal."""


async def migrate_plan(
    session: Session, source: _Source, destination: _Destination, scope: OwnerOptions
) -> int:
    """Show what `migrate apply` would move, and what DST cannot keep.

    It covers the whole company, unless a project, agent or user is given. Exit 1 if a file of SRC
    cannot be read completely; it is named.
    """
    from memtui.migration.planning import plan

    endpoints = await _opened(session, source, destination, scope)
    found = await plan(endpoints, session.settings)
    session.out.answer(found, _planned(found))
    _tell_unread(session, endpoints.source, found.source_unread)
    return 1 if found.problems else 0


async def migrate_apply(
    session: Session,
    source: _Source,
    destination: _Destination,
    scope: OwnerOptions,
    *,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
) -> int:
    """Copy a binding's records into another.

    It covers the whole company, unless a project, agent or user is given. SRC is only read. If it
    was stopped, run it again: it continues, and copies nothing twice. Exit 1 if a record could not
    be moved, or a file of SRC cannot be read completely; it is named.

    Args:
        limit: Write this many records at most; run it again to go on.
    """
    from memtui.migration.moving import apply

    endpoints = await _opened(session, source, destination, scope)
    try:
        with ticker() as show:
            done = await apply(
                endpoints,
                session.paths.data,
                lambda now: show(progress_words(now)),
                limit=limit,
            )
    except CancelledError:
        session.out.say("Stopped; run the same command to continue.")
        raise
    session.out.answer(done, _applied(done))
    _tell_unread(session, endpoints.source, done.source_unread)
    return 1 if done.failed or done.problems else 0


async def migrate_verify(
    session: Session,
    source: _Source,
    destination: _Destination,
    scope: OwnerOptions,
    *,
    sample: Annotated[int | None, typer.Option(min=1)] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63)] = None,
    checks: Path | None = None,
) -> int:
    """Prove that a migration lost nothing: compare both sides.

    Exit 1 if a record is not the same on both sides, a file of SRC cannot be read completely, or
    SRC cannot be listed completely. With --checks also if a check passes on SRC and not on DST.

    Args:
        sample: Compare this many records, drawn at random.
        seed: Draw the same sample as before.
        checks: Ask both sides the checks of this file too.
    """
    from memtui.migration.verifying import verify

    if seed is not None and sample is None:
        raise Invalid("--seed goes with --sample.")
    endpoints = await _opened(session, source, destination, scope)
    with ticker() as show:
        found = await verify(
            endpoints,
            session.paths.data,
            sample=sample,
            seed=seed,
            checks=checks,
            report=lambda records: show(f"{shown.counted(records, 'record')} read"),
        )
    session.out.answer(found, _verified(found, endpoints))
    _tell_unread(session, endpoints.source, found.source_unread)
    _tell_unread(session, endpoints.destination, found.destination_unread)
    return 0 if found.passed else 1


async def migrate_cutover(
    session: Session,
    source: _Source,
    destination: _Destination,
    *,
    back: bool = False,
    force: bool = False,
) -> None:
    """Let DST serve what SRC serves, or undo that.

    Refused unless `memtui migrate verify` passed since the last `migrate apply`. SRC becomes
    read-only, and --back opens it again. No record is touched, and what was written to DST
    meanwhile stays there.

    Args:
        back: Let SRC serve again what DST serves, and make it writable.
        force: Switch even if the two sides were not proven equal.
    """
    from memtui.migration.cutover import switch

    endpoints = await _opened(session, source, destination, OwnerOptions())
    done = await switch(endpoints, session.paths.data, back=back, force=force)
    session.out.answer(done, switched_lines(done))


async def _opened(
    session: Session, source: str, destination: str, scope: OwnerOptions
) -> Endpoints:
    from memtui.migration.endpoints import ScopePart, open_endpoints

    part = ScopePart(project_id=scope.project, agent_id=scope.agent, subject_id=scope.subject)
    return await open_endpoints(session.service, session.caller, source, destination, part)


def progress_words(now: MigrationProgress) -> str:
    """Return the progress of a run in words."""
    if now.found:
        return f"{shown.counted(now.found, 'record')} found so far"
    words = [shown.of_total(now.done, now.total), f"{now.rate:,.0f}/s"]
    if now.seconds_left is not None:
        words.append(f"{shown.duration(now.seconds_left * 1000)} left")
    if now.failed:
        words.append(f"{shown.count(now.failed)} failed")
    return "  ".join(words)


def _tell_unread(session: Session, binding: BindingView, unread: Sequence[str]) -> None:
    """Say why a side could not be listed to its end."""
    for sentence in unread:
        session.out.say(f"{binding.key}: {sentence}")


def _planned(found: MigrationPlan) -> Iterator[Line]:
    rows = (
        [one.scope, one.kind, shown.count(one.records), one.place or ""] for one in found.scopes
    )
    yield from table(columns("scope*", "kind", "records>", "goes to"), rows)
    least = "" if found.complete else "at least "
    moved = shown.counted(found.records, "record")
    yield f"{least}{moved} from {found.source} to {found.destination}"
    yield from _lost(found.losses)
    if found.staying:
        yield f"read where they lie, and not moved: {shown.counted(found.staying, 'file')}"
    if found.redacted:
        yield f"secrets taken out: {shown.counted(found.redacted, 'record')}"
    yield from _not_read(found.problems)
    if found.refused:
        yield f"refused: {shown.counted(found.refused, 'record')}"
    reasons: dict[str, list[str]] = {}
    for refused in found.refusals:
        reasons.setdefault(refused.reason, []).append(refused.record_id)
    for why, ids in reasons.items():
        rest = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
        yield Dim(f"  {', '.join(ids[:_NAMED])}{rest}: {why}")


def _not_read(problems: Sequence[str]) -> Iterator[Line]:
    for problem in problems:
        yield f"not read: {problem}"


def _lost(losses: Sequence[Loss]) -> Iterator[Line]:
    for loss in losses:
        yield f"{loss.fate}: {loss.what} of {shown.counted(loss.records, 'record')}"


def _applied(done: Applied) -> Iterator[Line]:
    words = ("written", "replaced", "unchanged", "failed", "redacted")
    yield "  ".join(f"{name} {getattr(done, name):,}" for name in words)
    if done.limited:
        yield "stopped at the limit; run the same command to go on"
    elif not done.complete:
        yield f"the source holds at least {done.seen:,}: what it did not list was not moved"
    yield from _not_read(done.problems)
    yield from _lost(done.losses)
    for failure in done.failures:
        yield Dim(f"  {failure.record_id}: {failure.reason}")


def _verified(found: Verified, endpoints: Endpoints) -> Iterator[Line]:
    from memtui.migration.verifying import verdict

    words = ("checked", "matched", "missing", "different", "extra", "others")
    yield "  ".join(f"{name} {getattr(found, name):,}" for name in words)
    yield verdict(found, endpoints.source.key, endpoints.destination.key)
    for check in found.lost_checks:
        yield f"{shown.CHECK_MARKS[check.outcome]} {check.title}: {check.why}"
    yield from _not_read(found.problems)
    if found.sample is not None:
        total = shown.of_total(found.checked, found.source_records, at_least=not found.complete)
        yield f"a sample: {total} were compared, --seed {found.seed}"
    if found.missing and found.destination_at_least:
        yield f"missing means not found: {endpoints.destination.key} cannot be listed completely"
    for one in found.mismatches:
        names = " → ".join(name for name in (one.source_id, one.destination_id) if name)
        fields = f": {', '.join(one.fields).replace('_', ' ')}" if one.fields else ""
        yield f"{one.what}  {names}{fields}"


def switched_lines(done: Switched) -> Iterator[Line]:
    """Yield which binding serves each target now."""
    for target in done.targets:
        yield f"{target.target_type} {target.target_id} is served by {done.served_by}"
    for target in done.left:
        yield f"{target.target_type} {target.target_id} is served by a third binding, and stays"
    if done.closed:
        yield "the old binding is read-only now; memtui migrate cutover --back opens it again"
    if done.opened:
        yield "the binding can be written again"
