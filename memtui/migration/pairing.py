"""Pair the source's records with the destination's, in a temporary file. Every method blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from memtui.contract import Scope
from memtui.migration.ends import Ends
from memtui.migration.index import Index, alike, storable, text_of
from memtui.migration.passport import Parcel
from memtui.migration.state import differing, identity_of

_SCHEMA = """
CREATE TABLE wanted (row INTEGER PRIMARY KEY, id BLOB, prints BLOB, identity TEXT, home BLOB,
    origin BLOB, alike BLOB, scope TEXT);
CREATE TABLE pair (wanted INTEGER PRIMARY KEY, held INTEGER UNIQUE);
"""
_PASSES = (
    ("identity || hex(prints)", "identity || hex(prints)"),
    ("hex(home) || hex(prints)", "hex(id) || hex(prints)"),
    ("prints", "prints"),
    ("identity", "identity"),
    ("home", "id"),
    ("alike", "CASE WHEN identity IS NULL THEN alike END"),
)
"""What pairs them, the surest first. The first three are the same in every field."""


class Counts(NamedTuple):
    """Numbers of records."""

    checked: int
    matched: int
    missing: int
    different: int
    extra: int
    others: int


class Pairing:
    """The source's records beside the index of the destination's."""

    def __init__(self, index: Index, ends: Ends) -> None:
        self._database = index.database
        self._source, self._destination = ends.source.key, ends.destination.key
        self._sampled = False
        self._database.executescript(_SCHEMA)

    def add_source(self, parcels: Iterable[Parcel]) -> None:
        """Remember records of the source."""
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO wanted (id, prints, identity, home, origin, alike, scope)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            map(self._row, parcels),
        )
        self._database.execute("COMMIT")

    def _row(self, parcel: Parcel) -> tuple[object, ...]:
        passport = parcel.passport
        is_home = passport is not None and passport.binding == self._destination
        return (
            storable(parcel.record_id),
            parcel.prints,
            identity_of(self._source, parcel.record_id),
            storable(passport.record_id) if passport and is_home else None,
            storable(passport.origin_id if passport else parcel.record_id),
            alike(parcel.prints),
            parcel.record.scope.model_dump_json(),
        )

    def pair(self, *, sampled: bool) -> None:
        """Pair both sides; `sampled`: the source's other records are not known."""
        self._sampled = sampled
        self._database.execute("DELETE FROM pair")
        for wanted, held in _PASSES:
            self._database.execute(
                f"""
                INSERT INTO pair SELECT w.row, h.row FROM
                    (SELECT row, {wanted} AS key,
                        row_number() OVER (PARTITION BY {wanted} ORDER BY row) AS number
                        FROM wanted WHERE row NOT IN (SELECT wanted FROM pair)) AS w
                JOIN
                    (SELECT row, {held} AS key,
                        row_number() OVER (PARTITION BY {held} ORDER BY row) AS number
                        FROM held WHERE row NOT IN (SELECT held FROM pair)) AS h
                ON w.key = h.key AND w.number = h.number
                """  # noqa: S608 — constants
            )

    def missing_names(self) -> Iterable[tuple[str, list[str], Scope]]:
        """Return each missing record's id, the ids that it may have there, and its scope."""
        rows = self._database.execute(
            "SELECT id, origin, identity, home, scope FROM wanted"
            " WHERE row NOT IN (SELECT wanted FROM pair)"
        ).fetchall()
        return [
            (
                text_of(own),
                [text_of(origin), identity, *([text_of(home)] if home else [])],
                Scope.model_validate_json(scope),
            )
            for own, origin, identity, home, scope in rows
        ]

    def surplus_names(self) -> list[tuple[str, Scope]]:
        """Return the destination's id and the scope of each migrated record the source lacks."""
        rows = self._database.execute(
            f"SELECT id, scope FROM held WHERE {self._is_extra}",  # noqa: S608 — constants
            (self._source,),
        ).fetchall()
        return [(text_of(own), Scope.model_validate_json(scope)) for own, scope in rows]

    def counts(self) -> Counts:
        """Return how many are the same, and how many are not."""
        checked = self._number("wanted")
        paired = self._number("pair")
        different = self._number(_DIFFERENT)
        extra = self._number(f"held WHERE {self._is_extra}", (self._source,))
        return Counts(
            checked=checked,
            matched=paired - different,
            missing=checked - paired,
            different=different,
            extra=extra,
            others=self._number("held") - paired - extra,
        )

    def missing(self, limit: int) -> list[str]:
        """Return the source's ids of records that the destination lacks."""
        return self._ids("wanted WHERE row NOT IN (SELECT wanted FROM pair)", (limit,))

    def surplus(self, limit: int) -> list[str]:
        """Return the destination's ids of migrated records that the source lacks."""
        return self._ids(f"held WHERE {self._is_extra}", (self._source, limit))

    def different(self, limit: int) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return both ids of records that differ, and the fields."""
        rows = self._database.execute(
            f"SELECT w.id, h.id, w.prints, h.prints FROM {_DIFFERENT} LIMIT ?",  # noqa: S608 — constants
            (limit,),
        ).fetchall()
        return [
            (text_of(left), text_of(right), differing(ours, theirs))
            for left, right, ours, theirs in rows
        ]

    @property
    def _is_extra(self) -> str:
        """A sample says of the rest only what stands twice."""
        return _SURPLUS_OF_SAMPLE if self._sampled else _SURPLUS

    def _number(self, where: str, values: tuple[object, ...] = ()) -> int:
        row = self._database.execute(f"SELECT count(*) FROM {where}", values).fetchone()  # noqa: S608 — constants
        return int(row[0])

    def _ids(self, where: str, values: tuple[object, ...]) -> list[str]:
        rows = self._database.execute(f"SELECT id FROM {where} ORDER BY row LIMIT ?", values)  # noqa: S608 — constants
        return [text_of(row[0]) for row in rows]


_SURPLUS = "origin = ? AND row NOT IN (SELECT held FROM pair)"
_SURPLUS_OF_SAMPLE = (
    "origin = ? AND row NOT IN (SELECT held FROM pair)"
    " AND identity IN (SELECT identity FROM wanted)"
)
_DIFFERENT = (
    "pair JOIN wanted AS w ON w.row = pair.wanted JOIN held AS h ON h.row = pair.held"
    " WHERE w.prints <> h.prints"
)
