"""`check`: ask the questions of a file, and say which answers do not hold what they must."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from memtui.channels.cli.options import Force, UseBinding
from memtui.channels.cli.output import Line, columns, table, ticker
from memtui.channels.cli.session import Session
from memtui.contract import Invalid
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service.usecases.checking import CheckReport


async def check_run(
    session: Session,
    file: Path | None = None,
    *,
    binding: UseBinding = None,
    junit: Path | None = None,
    force: Force = False,
) -> int:
    """Ask the checks of FILE, and say which answers do not hold what they must.

    Exit 1 if a check fails; 3 if one could not be asked, as a provider did not answer, 4 if the
    caller may not see its answer, 2 if it cannot be right.

    Args:
        file: The file of checks; the setting checks_file if left out.
        junit: Also write a JUnit report to this file, for CI.
    """
    from memtui.analytics.export import replacing
    from memtui.service.usecases.checking import check_memory

    with nullcontext() if junit is None else replacing(junit, force=force) as to:
        with ticker(on_terminal_only=True) as show:
            report = await check_memory(
                session.service, session.caller, file, binding_key=binding, so_far=show
            )
        if junit is not None and to is not None:
            if _is_same(junit, report.file):
                raise Invalid(f"{junit} has the checks; name another file for the report.")
            to.write_bytes(shown.junit(report))
    session.out.answer(report, lines(report), f"{report.words}.")
    return report.exit_code


def _is_same(file: Path, other: str) -> bool:
    return file.exists() and file.samefile(other)


async def check_record(
    session: Session, operation: str, file: Path | None = None, *, record: str | None = None
) -> None:
    """Add a check to FILE: the answer of a logged question holds its first record.

    A user's record is named by its id, any other by the beginning of its text.

    Args:
        operation: A question, a context, or feedback on one: its id, the beginning, or its number.
        file: The file of checks; the setting checks_file if left out.
        record: The id of a record of the answer; left out: the first.
    """
    from memtui.service.usecases.checking import record_check

    by = session.caller
    said = await record_check(session.service, by, operation, file, record_id=record)
    session.out.answer({"recorded": said}, [said])


def lines(report: CheckReport) -> list[Line]:
    """Return a line for each check."""
    rows = [(shown.CHECK_MARKS[one.outcome], one.title, one.why) for one in report.checks]
    return list(table(columns("", "check*", "why"), rows))
