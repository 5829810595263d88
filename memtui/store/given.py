"""What a run was given before: the texts of its delivered contexts, as the log keeps them."""

from __future__ import annotations

from collections.abc import Iterable

from memtui.contract import Json
from memtui.store import compiled
from memtui.store.database import DatabaseConnection


def texts_of_run(
    connection: DatabaseConnection, company_id: str, run_id: str
) -> tuple[list[str], bool]:
    """Return what the database's operations say that a run was given, as `texts_given` does."""
    rows = compiled.CONTEXTS_OF_RUN.each(connection, company_id=company_id, run_id=run_id)
    return texts_given(request for (request,) in rows)


def texts_given(requests: Iterable[Json]) -> tuple[list[str], bool]:
    """Return the delivered texts, the newest first, back to the last that left nothing out.

    A run is given everything when it starts, and again when its client has dropped what it was
    told: what it was given before that does not count. The second value says whether such a text
    is among them.
    """
    texts: list[str] = []
    for request in requests:
        if not request.get("delivered"):
            continue
        texts.append(request.get("text") or "")
        if not request.get("skip_given"):
            return texts, True
    return texts, False
