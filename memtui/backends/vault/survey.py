"""What the vault holds as a whole: its scopes, its size, and what in it cannot be read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from memtui.contract import Health, Namespace, Problem, Scope

from .index import Index
from .layout import place_of
from .scoping import sees

_MAX_PROBLEMS = 1000
_SCOPES = """
    SELECT area,
           CASE area WHEN 'project' THEN project_id WHEN 'user' THEN subject_id
                     WHEN 'agent' THEN agent_id END AS name,
           count(*) AS records
    FROM records WHERE is_current GROUP BY 1, 2 ORDER BY 1, 2
"""


def namespaces(connection: sqlite3.Connection) -> list[Namespace]:
    """Return the scopes that hold records, such as `project:web`, with their numbers."""
    return [
        Namespace(
            name=f"{row['area']}:{row['name']}" if row["name"] else row["area"],
            kind=row["area"],
            records=row["records"],
        )
        for row in connection.execute(_SCOPES)
    ]


def problems_of(index: Index, root: Path, scope: Scope, company_id: str) -> list[Problem]:
    """Return what could not be read where `scope` looks, each with whose it is."""
    found = [] if index.unusable is None else [index.unusable]
    if index.trouble:
        found.append(Problem(message=f"Search may be behind: {index.trouble}"))
    for problem in index.problems(_MAX_PROBLEMS):
        shown = problem.location.path if problem.location else str(root)
        path = Path(shown).relative_to(root).as_posix() if shown.startswith(str(root)) else shown
        place = place_of(path if Path(path).suffix else f"{path}/")
        if sees(scope, place):
            owner = Scope(
                company_id=company_id,
                project_id=place.project_id,
                agent_id=place.agent_id,
                subject_id=place.subject_id,
            )
            found.append(problem.model_copy(update={"scope": owner}))
    return found


def health(index: Index, root: Path, *, read_only: bool) -> Health:
    """Say how many records there are and what is wrong."""
    if read_only and not root.is_dir():
        return Health(status="down", message=f"The vault's folder {root} does not exist.")
    count = "SELECT count(*) FROM records WHERE is_current"
    records = index.read(lambda connection: connection.execute(count).fetchone()[0])
    problems = index.problems(_MAX_PROBLEMS)
    unusable = index.unusable
    message = f"{len(problems)} files cannot be read whole." if problems else ""
    if len(problems) == 1:
        message = "1 file cannot be read whole."
    if not root.is_dir():
        message = f"The folder {root} will be made with the first memory."
    if index.trouble:
        message = f"Search may be behind: {index.trouble}"
    if unusable:
        message = unusable.message
        problems.insert(0, unusable)
    return Health(
        status="degraded" if problems or index.trouble else "ok",
        message=message,
        records=records,
        problems=tuple(problems),
    )
