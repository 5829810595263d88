"""`archive`: the old part of the operation log, in files of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.output import Line, jsonable
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, table

if TYPE_CHECKING:
    from datetime import datetime

    from memtui.analytics.layout import Segment

_COLUMNS = (
    Column("operations", right=True),
    Column("from"),
    Column("to"),
    Column("began"),
    Column("until"),
    Column("bytes", right=True),
    Column("last digest"),
)


async def seal(
    session: Session,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Seal every operation, however new.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(help="Seal what is older than this, 30d or 2026-03-01, not than hot_days."),
    ] = None,
) -> None:
    """Move old operations out of the database into sealed files.

    What is older than the setting hot_days moves, unless an option says otherwise. Lists, figures
    and proofs go on to cover every operation.
    """
    from memtui.contract import Invalid

    if everything and older_than is not None:
        raise Invalid("Give --all or --older-than, not both.")
    done = await session.service.analysis.seal(
        session.caller, everything=everything, before=_begin_of_hot(session, older_than)
    )
    if done.segments:
        await session.service.analysis.prepare(session.caller, zone=session.zone_name())
    document = jsonable(done) | {"segments": [_document(one) for one in done.segments]}
    session.out.answer(document, lambda: _sealed(done.segments))
    if not done.segments and not session.out.as_json:
        session.out.say("Nothing was old enough to be sealed.")


async def fetch(session: Session) -> None:
    """Bring what other machines sealed out of the object store.

    Sealing copies there where the setting archive_url names one.
    """
    found = await session.service.analysis.fetch(session.caller)
    document = {"segments": [_document(one) for one in found]}
    session.out.answer(document, lambda: _sealed(found, "fetched"))
    if not found and not session.out.as_json:
        session.out.say("The object store holds nothing that is not here.")


async def verify(session: Session) -> int:
    """Check that the sealed files are as they were sealed. Exit 1 on a problem.

    Checks every file's SHA-256 and rows, and that the chain goes on from file to file;
    `memtui audit verify` checks each operation.
    """
    from memtui.widgets import format as shown

    found = await session.service.analysis.verify_archive(session.caller)
    is_whole = not found.problems
    session.out.answer(jsonable(found) | {"passed": is_whole}, lambda: found.problems)
    if not session.out.as_json:
        counts = (
            f"{shown.counted(found.operations, 'operation')} "
            f"in {shown.counted(found.segments, 'segment')}"
        )
        problems = shown.counted(len(found.problems), "problem")
        session.out.say(f"{counts}: {'all as they were sealed' if is_whole else problems}.")
    return 0 if is_whole else 1


async def list_segments(session: Session) -> None:
    """List what is sealed, oldest first."""
    from memtui.widgets import format as shown

    manifest = await session.service.analysis.segments(session.caller)
    document = {
        "folder": str(session.service.analysis.archive_folder),
        "company_id": manifest.company_id,
        "sealed_through": manifest.sealed_through,
        "segments": [_document(one) for one in manifest.segments],
    }
    session.out.answer(document, lambda: _listed(session, manifest.segments))
    if not session.out.as_json:
        total = sum(one.count for one in manifest.segments)
        session.out.say(f"{shown.counted(total, 'operation')} sealed.")


def _begin_of_hot(session: Session, older_than: str | None) -> datetime | None:
    from memtui.contract import Invalid
    from memtui.filters import parse_when

    if older_than is None:
        return None
    moment = parse_when(older_than, now=session.now, zone=session.zone)
    if moment > session.now:
        raise Invalid(f"{older_than} is yet to come; give a moment in the past, or --all.")
    return moment


def _document(segment: Segment) -> dict[str, object]:
    sums = {"name": segment.name, "count": segment.count, "bytes": segment.bytes}
    return sums | segment.model_dump(mode="json")


def _sealed(segments: Sequence[Segment], did: str = "sealed") -> Iterator[Line]:
    from memtui.widgets import format as shown

    for one in segments:
        moved = shown.counted(one.count, "operation")
        yield f"{did} {moved}, {one.first_seq} to {one.last_seq}, in {one.bytes:,} bytes"


def _listed(session: Session, segments: Sequence[Segment]) -> Iterator[Line]:
    from memtui.widgets import format as shown

    if not segments:
        return
    yield from table(
        _COLUMNS,
        (
            [
                shown.count(one.count),
                str(one.first_seq),
                str(one.last_seq),
                shown.exact(one.started_from, session.zone),
                shown.exact(one.started_to, session.zone),
                shown.count(one.bytes),
                shown.digest(one.last_digest),
            ]
            for one in segments
        ),
    )
