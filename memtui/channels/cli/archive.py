"""`ops archive` and `audit`: sealed operations, and the proof that nobody altered the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.options import Force
from memtui.channels.cli.output import Line, columns, fields, jsonable, table
from memtui.channels.cli.session import Session
from memtui.contract import Invalid
from memtui.paths import check_target
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.analytics.audit import AuditCheck
    from memtui.analytics.layout import Segment


async def ops_archive_seal(
    session: Session,
    *,
    everything: Annotated[bool, typer.Option("--all")] = False,
    older_than: str | None = None,
) -> None:
    """Move old operations out of the database into sealed files.

    It moves operations that are older than the setting hot_days, unless an option is given. Lists,
    figures and proofs still cover every operation.

    Args:
        everything: Seal every operation, however new.
        older_than: Seal what is older than this instead: 30d, 2026-03-01.
    """
    if everything and older_than is not None:
        raise Invalid("Give --all or --older-than, not both.")
    done = await session.service.analysis.seal(
        session.caller, everything=everything, before=session.past(older_than)
    )
    if done.segments:
        await session.service.analysis.prepare(session.caller, zone=session.zone_name())
    document = jsonable(done) | {"segments": [_document(one) for one in done.segments]}
    waits = done.blocked_by is not None
    session.out.answer(
        document,
        _sealed(done.segments),
        "" if done.segments or waits else "Nothing was old enough to be sealed.",
    )
    if waits:
        older = shown.counted(done.waiting, "older operation")
        session.out.say(
            f"Operation {done.blocked_by} is not old enough, and {older} behind it in the log can "
            "only be sealed after it; `memtui ops archive seal --all` seals every operation."
        )


async def ops_archive_fetch(session: Session) -> None:
    """Fetch the files that other machines sealed from the object store.

    Sealing copies the files there if the setting archive_url names a store.
    """
    found = await session.service.analysis.fetch(session.caller)
    document = {"segments": [_document(one) for one in found]}
    session.out.answer(
        document,
        _sealed(found, "fetched"),
        "" if found else "The object store has no segment that is missing here.",
    )


async def ops_archive_verify(session: Session) -> int:
    """Check that no sealed file was altered. Exit 1 on a problem.

    It checks every file's SHA-256 and rows, and that the chain continues from file to file; `memtui
    audit verify` checks each operation.
    """
    found = await session.service.analysis.verify_archive(session.caller)
    is_whole = not found.problems
    counts = (
        f"{shown.counted(found.operations, 'operation')} "
        f"in {shown.counted(found.segments, 'segment')}"
    )
    result = (
        "all as they were sealed" if is_whole else shown.counted(len(found.problems), "problem")
    )
    document = jsonable(found) | {"passed": is_whole}
    session.out.answer(document, found.problems, f"{counts}: {result}.")
    return 0 if is_whole else 1


async def ops_archive_list(session: Session) -> None:
    """List the sealed files, oldest first."""
    manifest = await session.service.analysis.segments(session.caller)
    document = {
        "folder": str(session.service.analysis.archive_folder),
        "company_id": manifest.company_id,
        "sealed_through": manifest.sealed_through,
        "segments": [_document(one) for one in manifest.segments],
    }
    total = shown.counted(sum(one.count for one in manifest.segments), "operation")
    session.out.answer(document, _listed(session, manifest.segments), f"{total} sealed.")


def _document(segment: Segment) -> dict[str, object]:
    sums = {"name": segment.name, "count": segment.count, "bytes": segment.bytes}
    return sums | segment.model_dump(mode="json")


def _sealed(segments: Sequence[Segment], did: str = "sealed") -> Iterator[Line]:
    for one in segments:
        moved = shown.counted(one.count, "operation")
        yield f"{did} {moved}, {one.first_seq} to {one.last_seq}, in {one.bytes:,} bytes"


def _listed(session: Session, segments: Sequence[Segment]) -> Iterator[Line]:
    rows = [
        [
            shown.count(one.count), str(one.first_seq), str(one.last_seq),
            shown.exact(one.started_from, session.zone), shown.exact(one.started_to, session.zone),
            shown.count(one.bytes), shown.digest(one.last_digest),
        ]
        for one in segments
    ]  # fmt: skip
    titles = ("operations>", "from", "to", "began", "until", "bytes>", "last digest")
    if rows:
        yield from table(columns(*titles), rows)


_NOTED = re.compile(r"([1-9]\d{0,17}):([0-9a-f]{12,64})")


async def audit_verify(
    session: Session, *, expect: Annotated[str | None, typer.Option(metavar="SEQ:DIGEST")] = None
) -> int:
    """Prove that no operation was altered, removed or inserted.

    It checks the digest of every operation, sealed or not, and its place in the chain. Exit 1 names
    the first broken one.

    Args:
        expect: Also compare with what an earlier check printed; 12 characters of the digest are
            enough.
    """
    noted = _noted(expect)
    analysis = session.service.analysis
    found = await analysis.verify_chain(session.caller, expected=noted[0] if noted else None)
    problem = found.problem
    if noted is not None and problem is None:
        problem = _difference(*noted, found)
    document = jsonable(found) | {"problem": problem, "passed": problem is None}
    session.out.answer(document, _lines(found, problem))
    return 0 if problem is None else 1


async def audit_export(session: Session, *, to: Path, force: Force = False) -> None:
    """Write every operation with its digest to a file that anybody can verify.

    The script that verifies it is in docs/audit.md; it needs nothing of memtui.

    Args:
        to: The file to write, JSON Lines.
    """
    check_target(to, force=force)
    count = await session.service.analysis.export_proof(session.caller, to)
    session.out.answer(
        {"file": str(to), "operation_count": count},
        (),
        f"Wrote {shown.counted(count, 'operation')} to {to}.",
    )


def _noted(expect: str | None) -> tuple[int, str] | None:
    if expect is None:
        return None
    found = _NOTED.fullmatch(expect.lower())
    if found is None:
        raise Invalid(
            "--expect takes SEQ:DIGEST as a check printed it: 12 digits of the digest, or all."
        )
    return int(found[1]), found[2]


def _difference(seq: int, digest: str, found: AuditCheck) -> str | None:
    """Return a problem if an operation has another digest than the noted one; None: it matches."""
    lost = next((gap for gap in found.gaps if gap.lost_from <= seq), None)
    why = f"it was lost, as operation {lost.seq} tells" if lost else "the log was rewritten"
    if seq > found.seq:
        end = f"; {why}" if lost else ""
        return f"Operation {seq} was noted, but the log ends at {found.seq}{end}."
    if (found.expected_digest or "").startswith(digest):
        return None
    return f"Operation {seq} has another digest than was noted: {why}."


def _lines(found: AuditCheck, problem: str | None) -> Iterator[Line]:
    if problem is not None:
        yield problem
    else:
        yield from fields(*shown.proof_facts(found))
