"""A copy of a company's hot operations in DuckDB, with what filters and orders ask for.

The log is only ever appended to, so the copy grows by what is new and loses what was sealed. It
lies in the engine's memory, a few hundred bytes an operation, and is spilled with all else.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sqlalchemy import select

from memtui.analytics.columns import SELECTS, create_raw, load_raw
from memtui.analytics.conditions import visible_to
from memtui.analytics.engine import Engine
from memtui.analytics.layout import Manifest
from memtui.analytics.source import Source, open_source
from memtui.analytics.stopping import Stop
from memtui.store.database import Database
from memtui.store.sight import Sight
from memtui.store.tables import OperationRow

if TYPE_CHECKING:
    import duckdb

_BATCH = 10_000
"""Operations copied at a time; between two times the copying can be stopped."""
_KEPT = {
    "operations": (
        "seq",
        "operation_id",
        "operation_type",
        "status",
        "binding_key",
        "provider_key",
        "agent_id",
        "project_id",
        "issue_id",
        "run_id",
        "subject_id",
        "source_kind",
        "source_issue_id",
        "source_run_id",
        "principal",
        "door",
        "request",
        "error_kind",
        "error_message",
        "result_count",
        "started_at",
        "latency_ms",
    ),
    "usage": ("seq", "input_tokens", "output_tokens", "embedding_tokens", "cost_usd"),
    "handles": ("seq", "score"),
}
_OPERATIONS = OperationRow.__table__  # type: ignore[attr-defined]


class HotCopy:
    """What may be seen of the operations above those that are sealed, up to `through`.

    Safe for several threads.
    """

    def __init__(
        self,
        database: Database,
        company_id: str,
        engine: Engine,
        *,
        sight: Sight | None = None,
    ) -> None:
        self._visible = visible_to(sight) or "true"
        self._database = database
        self._company_id = company_id
        self._engine = engine
        self._lock = threading.Lock()
        self._above = 0
        self._digest: str | None = None
        self.through = 0
        """The newest `seq` that is in the copy, or sealed."""
        self.begun = 0
        """How often it was begun: once more where the database turned out to hold another log."""

    def refresh(self, manifest: Manifest, through: int, stop: Stop) -> None:
        """Bring the copy up to a `seq`, and take out what is sealed. Blocking.

        What was copied before it was stopped need not be copied again.

        Raises:
            Interrupted: it was stopped.
            Unavailable: the log cannot be read.
        """
        with self._lock:
            cursor = self._engine.cursor()
            try:
                self._take_out(cursor, manifest.sealed_through, stop)
                if self.through < through:
                    with open_source(self._database) as source:
                        while self.through < through:
                            self._copy(cursor, source, min(self.through + _BATCH, through), stop)
            finally:
                cursor.close()

    def query(self, columns: str, above: int, through: int, where: str) -> str:
        """Return the query of the copied operations above one `seq` and up to another."""
        condition = f" AND ({where})" if where else ""
        return f"SELECT {columns} FROM hot WHERE seq > {above} AND seq <= {through}{condition}"

    def _take_out(self, cursor: duckdb.DuckDBPyConnection, sealed: int, stop: Stop) -> None:
        held = self.through > sealed
        if (
            not self.begun
            or sealed < self._above
            or (held and self._digest != self._digest_at(self.through))
        ):
            with stop.reaching(cursor):
                create_raw(cursor, _KEPT)
                cursor.execute(f"CREATE OR REPLACE TABLE hot AS {SELECTS['operations']}")
            self.begun += 1
            self._above = self.through = sealed
        elif sealed > self._above:
            with stop.reaching(cursor):
                # Deleted rows would keep their memory.
                cursor.execute(
                    f"CREATE OR REPLACE TABLE hot AS SELECT * FROM hot WHERE seq > {sealed}"
                )
            self._above, self.through = sealed, max(self.through, sealed)

    def _copy(
        self, cursor: duckdb.DuckDBPyConnection, source: Source, through: int, stop: Stop
    ) -> None:
        with stop.reaching(cursor):
            load_raw(cursor, source, self._company_id, self.through + 1, through, only=_KEPT)
            cursor.execute(
                f"INSERT INTO hot SELECT * FROM ({SELECTS['operations']}) WHERE {self._visible}"
            )
            self.through = through
            self._digest = self._digest_at(through)

    def _digest_at(self, seq: int) -> str | None:
        """Return the digest of an operation in the database; None where it is not there."""
        own = (_OPERATIONS.c.company_id == self._company_id, _OPERATIONS.c.seq == seq)
        with self._database.read() as connection:
            return connection.execute(select(_OPERATIONS.c.digest).where(*own)).scalar()
