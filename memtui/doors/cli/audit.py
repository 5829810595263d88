"""`audit`: the proof that no operation was altered, removed or put in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.doors.cli.output import Line, jsonable
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import facts

if TYPE_CHECKING:
    from memtui.analytics.audit import AuditCheck, Gap

_NOTED = re.compile(r"([1-9]\d{0,17}):([0-9a-f]{12,64})")


async def verify(
    session: Session,
    *,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ:DIGEST",
            help="Also compare with what an earlier check printed; its first 12 characters will "
            "do.",
        ),
    ] = None,
) -> int:
    """Prove that no operation was altered, removed or put in between.

    Checks the digest of every operation, sealed or not, and its place in the chain. Exit 1 names
    the first broken one.
    """
    noted = _noted(expect)
    found = await session.service.analysis.verify_chain(session.caller)
    problem = found.problem
    if noted is not None and problem is None:
        problem = await _differs(session, *noted, found)
    document = jsonable(found) | {"problem": problem, "passed": problem is None}
    session.out.answer(document, lambda: _lines(found, problem))
    return 0 if problem is None else 1


async def export(
    session: Session,
    *,
    to: Annotated[Path, typer.Option(help="The file to write, JSON Lines.")],
    force: Annotated[
        bool, typer.Option("--force", help="Put it in place of a file that is there.")
    ] = False,
) -> None:
    """Write every operation with its digest to a file that anybody can verify.

    The script that verifies it is in docs/audit.md; it needs nothing of memtui.
    """
    from memtui.analytics.export import check_target
    from memtui.widgets import format as shown

    check_target(to, force=force)
    count = await session.service.analysis.export_proof(session.caller, to)
    session.out.answer({"file": str(to), "operation_count": count}, lambda: ())
    if not session.out.as_json:
        session.out.say(f"Wrote {shown.counted(count, 'operation')} to {to}.")


def _noted(expect: str | None) -> tuple[int, str] | None:
    from memtui.contract import Invalid

    if expect is None:
        return None
    found = _NOTED.fullmatch(expect.lower())
    if found is None:
        raise Invalid("--expect takes a number and a digest, SEQ:DIGEST, as a check printed them.")
    return int(found[1]), found[2]


async def _differs(session: Session, seq: int, digest: str, found: AuditCheck) -> str | None:
    """Return what is wrong if an operation has another digest than was noted, else None."""
    lost = next((gap for gap in found.gaps if gap.lost_from <= seq), None)
    why = f"it was lost, as operation {lost.seq} tells" if lost else "the log was written anew"
    if seq > found.seq:
        end = f"; {why}" if lost else ""
        return f"Operation {seq} was noted, but the log ends at {found.seq}{end}."
    view = await session.service.analysis.open_log(session.caller, None, "seq")
    try:
        [operation] = await view.window(seq - 1, 1)
    finally:
        await view.close()
    if operation.digest.startswith(digest):
        return None
    return f"Operation {seq} has another digest than was noted: {why}."


def _lines(found: AuditCheck, problem: str | None) -> Iterator[Line]:
    from memtui.widgets import format as shown

    if problem is not None:
        yield problem
        return
    yield from facts(
        [
            ("intact", shown.counted(found.seq, "operation")),
            *(("gap", _gap(one)) for one in found.gaps),
            ("note this", f"{found.seq}:{found.digest}" if found.seq else ""),
        ]
    )


def _gap(gap: Gap) -> str:
    lost = f"operations from {gap.lost_from} on are lost"
    if gap.lost_through is not None:
        lost += f", as far as is known to {gap.lost_through}"
    return f"{lost}; operation {gap.seq} took their place on {gap.at:%Y-%m-%d}"
