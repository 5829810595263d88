"""The context texts that a run was given before, from the log."""

from collections.abc import Iterable, Mapping
from typing import Any

from memtui.store import statements
from memtui.store.database import DatabaseConnection


def texts_of_run(
    connection: DatabaseConnection, company_id: str, run_id: str
) -> tuple[list[str], bool]:
    """Return `texts_given` for a run's contexts in the database."""
    rows = statements.CONTEXTS_OF_RUN.each(connection, company_id=company_id, run_id=run_id)
    return texts_given(request for (request,) in rows)


def texts_given(requests: Iterable[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the delivered texts, the newest first, back to the last complete context.

    A run gets a complete context when it starts, and again when its client has dropped the earlier
    ones, so texts before a complete context do not count. The second value says whether a complete
    context was found.
    """
    texts: list[str] = []
    for request in requests:
        if not request.get("delivered"):
            continue
        texts.append(request.get("text") or "")
        if not request.get("skip_given"):
            return texts, True
    return texts, False
