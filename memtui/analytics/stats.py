"""Rollups over hot and sealed operations together (seed 000, "Cost And Evaluation")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtui.analytics.buckets import Bucket
from memtui.analytics.conditions import condition
from memtui.analytics.cuts import DIMENSIONS, Cut
from memtui.analytics.daily import Daily
from memtui.analytics.dashboard import Dashboard, Span, paint
from memtui.analytics.engine import Engine, guarded, quoted
from memtui.analytics.figures import Figures, Group, HitSign, Stats
from memtui.analytics.layout import Manifest
from memtui.analytics.partials import is_use
from memtui.analytics.question import Question
from memtui.analytics.rows import Rows
from memtui.analytics.source import stored_text
from memtui.contract import Filter, Invalid
from memtui.store.database import Database
from memtui.store.sight import Sight

if TYPE_CHECKING:
    import duckdb


class Rollups:
    """The figures of one company's log. Blocking; close it when done."""

    def __init__(
        self,
        database: Database,
        root: Path,
        company_id: str,
        *,
        zone: str = "UTC",
        score_threshold: float = 0.5,
        thresholds: Mapping[str, float] | None = None,
        sight: Sight | None = None,
        memory_mb: int = 512,
    ) -> None:
        """Set it up.

        Args:
            database: The control plane's.
            root: The archive folder of all companies.
            company_id: Whose log.
            zone: The IANA name of the zone that days are cut in.
            score_threshold: From this score on a returned record is a hit.
            thresholds: The same for single bindings, by key.
            sight: What may be seen, and counts; None is everything.
            memory_mb: What DuckDB may use.
        """
        self._engine = Engine(memory_mb=memory_mb)
        self._rows = Rows(database, root, company_id, self._engine, sight=sight)
        self._zone = zone
        self._threshold = score_threshold
        self._thresholds = dict(thresholds or {})
        self._daily = Daily(
            root,
            self._rows,
            zone=zone,
            good_score=self._good_score(),
            depends={"threshold": score_threshold, "thresholds": self._thresholds},
        )

    def stats(
        self,
        chosen: Filter | None = None,
        *,
        by: Sequence[str] = (),
        bucket: Bucket | None = None,
        hit_sign: HitSign | None = None,
    ) -> Stats:
        """Return the figures of the operations that a filter lets through.

        Args:
            chosen: The filter; None is everything.
            by: Names of `DIMENSIONS` to group by.
            bucket: How to cut time; None does not.
            hit_sign: What makes a query a hit; None is `USED` where the log has any opening of a
                record, else `SCORE`.

        Raises:
            Invalid: a name of `by` is no dimension.
            Unavailable: the log cannot be read.
        """
        for name in by:
            if name not in DIMENSIONS:
                raise Invalid(f"There is no dimension {name}; choose {', '.join(DIMENSIONS)}.")
        manifest, last = self._rows.refresh()
        with guarded():
            cursor = self._engine.cursor()
            try:
                sign = hit_sign or self._sign(cursor, manifest)
                where = condition(chosen or Filter())
                ask = Question(
                    cursor,
                    self._rows,
                    (manifest, last),
                    where,
                    zone=self._zone,
                    sign=sign,
                    good_score=self._good_score(),
                )
                cuts = [Cut(), Cut(("binding",)), Cut(tuple(by), bucket)]
                found = ask.groups(cuts if by or bucket else cuts[:2])
                [total] = found[0]
                return Stats(
                    **_own(total),
                    hit_sign=sign,
                    bindings=found[1],
                    groups=found[2] if by or bucket else (),
                )
            finally:
                cursor.close()

    def close(self) -> None:
        """Free the memory."""
        self._engine.close()

    def dashboard(
        self,
        bucket: Bucket = Bucket.DAY,
        *,
        since: date | None = None,
        until: date | None = None,
        hit_sign: HitSign | None = None,
    ) -> Dashboard:
        """Return the figures of whole days, from partial figures made once a sealed segment.

        They equal those of `stats`, except for percentiles of latency, which may be off by
        `Stats.latency_error` of themselves.

        Args:
            bucket: How to cut time; an hour is too short.
            since: The first local day; None is the log's first.
            until: The local day after the last; None is the log's last.
            hit_sign: As in `stats`.

        Raises:
            Invalid: the bucket is an hour.
            Unavailable: the log cannot be read, or the figures cannot be kept beside it.
        """
        if bucket is Bucket.HOUR:
            raise Invalid("The dashboard has days, weeks and months; ask stats for hours.")
        manifest, last = self._rows.refresh()
        with guarded():
            cursor = self._engine.cursor()
            try:
                sign = hit_sign or self._sign(cursor, manifest)
                sealed = self._daily.tables(cursor, manifest)
                hot = self._daily.hot(cursor, manifest, last)
                return paint(
                    cursor,
                    [hot, sealed] if sealed else [hot],
                    Span(bucket=bucket, zone=self._zone, since=since, until=until),
                    sign,
                )
            finally:
                cursor.close()

    def prepare(self) -> None:
        """Make the partial figures of what is sealed, so that the next dashboard need not."""
        manifest, _ = self._rows.place()
        with guarded():
            cursor = self._engine.cursor()
            try:
                self._daily.tables(cursor, manifest)
            finally:
                cursor.close()

    def _good_score(self) -> str:
        """Return the SQL of whether a query's best score reaches its binding's threshold."""
        single = " ".join(
            f"WHEN {quoted(stored_text(key))} THEN {value!r}"
            for key, value in self._thresholds.items()
        )
        limit = (
            f"CASE binding_key {single} ELSE {self._threshold!r} END"
            if single
            else repr(self._threshold)
        )
        return f"coalesce(best_score >= {limit}, false)"

    def _sign(self, cursor: duckdb.DuckDBPyConnection, manifest: Manifest) -> HitSign:
        uses = self._rows.everything(manifest, "handles", "1", is_use("operation_type"))
        found = cursor.execute(f"SELECT 1 FROM ({uses}) LIMIT 1").fetchone()
        return HitSign.USED if found else HitSign.SCORE


def _own(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in Figures.model_fields}
