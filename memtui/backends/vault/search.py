"""Find what is relevant, and page over everything that is stored (seed 002 §3, §6).

Full text is weighed by scope; a fact whose key the query names comes first. A page's cursor
survives inserts.
"""

# ruff: noqa: S608  # the SQL is put together from constants, values are bound
from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memtui.contract import (
    OWNER_FIELDS,
    BrowsePage,
    BrowseRequest,
    ExplainStage,
    Explanation,
    Filter,
    Invalid,
    Json,
    QueryRequest,
    Record,
    Scope,
)
from memtui.fuzzy import finds
from memtui.provider_kit import Test, Words, read_cursor, take_apart, translated, write_cursor

from .files import Folder
from .index import microseconds, record_of
from .layout import weight_sql

PINNED = 1.1
"""What a pinned record's score is multiplied by."""
_ENOUGH_OF_TOPIC = 3
_RANKED = (
    "SELECT rowid AS n, -bm25(search, 2.0, 1.0, 1.0, 1.0, 2.0) AS score FROM search "
    "WHERE search MATCH ?"
)
_TEXT = "COALESCE(title, '') || char(10) || text || char(10) || COALESCE(summary, '')"
_FOLDED = f"memtui_folded({_TEXT})"
_SCOPE = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")
_COLUMNS = {
    **{name: name for name in (*_SCOPE, "source_kind", "topic", "kind", "tags")},
    "created_at": "COALESCE(created, updated)",
    "text": _TEXT,
}
"""What a filter's fields are in SQL."""
_TESTS: dict[Test, Callable[[str, Any], tuple[str, Any]]] = {
    "is": lambda column, value: (f"{column} = ?", str(value)),
    "has": lambda column, tag: (
        f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value = ?)",
        tag,
    ),
    "from": lambda column, moment: (f"{column} >= ?", microseconds(moment)),
    "before": lambda column, moment: (f"{column} < ?", microseconds(moment)),
    "holds": lambda column, word: (f"instr(memtui_folded({column}), ?)", word.casefold()),
    "finds": lambda column, word: (f"memtui_finds(?, {column})", word),
}
_SORTS = {
    "created_at": "COALESCE(created, updated, 0)",
    "updated_at": "COALESCE(updated, 0)",
    "title": "lower(substr(COALESCE(title, text), 1, 100))",
    "size": "size",
    "kind": "kind",
    "topic": "COALESCE(topic, '')",
}


class _Where:
    """Conditions on rows of `records` that must all hold, and their values."""

    def __init__(self, now: datetime, as_of: datetime | None, *, expired: bool = False) -> None:
        """Let through what holds now, or held at `as_of`; expired ones only where asked for."""
        self.clauses: list[str] = []
        self.values: list[Any] = []
        if not expired:
            self.add("expires IS NULL OR expires > ?", microseconds(as_of or now))
        if as_of is None:
            self.add("is_current")
            return
        moment = microseconds(as_of)
        self.add("valid_from IS NULL OR valid_from <= ?", moment)
        self.add("valid_to IS NULL OR valid_to > ?", moment)
        self.add("kind = 'fact' OR created IS NULL OR created <= ?", moment)

    def add(self, clause: str, *values: Any) -> None:
        self.clauses.append(f"({clause})")
        self.values += values

    @property
    def sql(self) -> str:
        return " AND ".join(self.clauses)

    def match_scope(self, scope: Scope) -> None:
        """Add the fields of a page's scope; every one that is set narrows."""
        for column in _SCOPE:
            if (value := getattr(scope, column)) is not None:
                self.add(f"{column} = ?", value)

    def match(self, wanted: Filter) -> None:
        """Add the fields of a filter; every one that is set narrows."""
        for clause in translated(wanted, _COLUMNS, _TESTS):
            if clause is not None:
                self.add(*clause)

    def match_metadata(self, wanted: Json) -> None:
        """Add an exact metadata filter; kind, topic and tag name the record's own fields."""
        for key, value in wanted.items():
            if key in {"kind", "topic"}:
                self.add(f"{key} IS ?", value if value is None else str(value))
            elif key == "tag":
                self.add(*_TESTS["has"]("tags", str(value)))
            else:
                self.add("memtui_has(metadata, ?, ?)", key, _canonical(value))

    def match_owners(self, owners: Sequence[Scope]) -> None:
        """Let through only what one of the scopes owns; no owners, no condition."""
        values: dict[str | None, list[str]] = defaultdict(list)
        for scope in owners:
            column = next((name for name in OWNER_FIELDS if getattr(scope, name)), None)
            values[column].append(getattr(scope, column or "company_id"))
        clauses, chosen = [], []
        for place, column in enumerate((*OWNER_FIELDS, None)):
            if column in values:
                wider = [f"{name} IS NULL" for name in OWNER_FIELDS[:place]]
                if column is not None:
                    wider.append(f"{column} IN (SELECT value FROM json_each(?))")
                    chosen.append(json.dumps(values[column]))
                clauses.append(" AND ".join(wider))
        if clauses:
            self.add(" OR ".join(clauses), *chosen)


def _add_functions(connection: sqlite3.Connection) -> None:
    """Teach a connection the functions that the conditions use."""
    connection.create_function("memtui_folded", 1, str.casefold, deterministic=True)
    connection.create_function("memtui_finds", 2, finds, deterministic=True)
    connection.create_function("memtui_has", 3, _has, deterministic=True)


def _has(metadata: str, key: str, wanted: str) -> bool:
    fields = json.loads(metadata)
    return key in fields and _canonical(fields[key]) == wanted


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def browse(
    connection: sqlite3.Connection, folder: Folder, request: BrowseRequest, now: datetime
) -> BrowsePage:
    """Return one page with the exact total.

    Raises `Invalid` for an unknown sort or a cursor that is not ours.
    """
    _add_functions(connection)
    key, is_descending = request.sort.removeprefix("-"), request.sort.startswith("-")
    if key not in _SORTS:
        raise Invalid(f"The vault cannot sort by {key!r}; choose one of {', '.join(_SORTS)}.")
    where = _Where(now, request.as_of, expired=request.expired)
    where.match_scope(request.scope)
    where.match(request.filter)
    where.match_owners(request.owners)
    total = connection.execute(
        f"SELECT count(*) FROM records WHERE {where.sql}", where.values
    ).fetchone()[0]
    order, compare = ("DESC", "<") if is_descending else ("ASC", ">")
    if request.cursor is not None:
        place = read_cursor(request.cursor, request.sort, (int, str), str)
        where.add(f"({_SORTS[key]}, id) {compare} (?, ?)", *place)
    rows = connection.execute(
        f"SELECT *, {_SORTS[key]} AS place FROM records WHERE {where.sql}"
        f" ORDER BY place {order}, id {order} LIMIT ?",
        [*where.values, request.limit + 1],
    ).fetchall()
    shown = rows[: request.limit]
    cursor = None
    if len(rows) > request.limit:
        cursor = write_cursor(request.sort, shown[-1]["place"], shown[-1]["id"])
    records = tuple(record_of(row, folder) for row in shown)
    return BrowsePage(records=records, next_cursor=cursor, total=total)


def versions(
    connection: sqlite3.Connection, folder: Folder, scope: Scope, _now: datetime
) -> list[Record]:
    """Return every version of the facts that a scope sees, one fact's together, oldest first."""
    weight, values = weight_sql(scope)
    rows = connection.execute(
        f"SELECT * FROM records WHERE kind = 'fact' AND {weight} > 0 "
        "ORDER BY id, is_current, rowid",
        values,
    )
    return [record_of(row, folder) for row in rows]


@dataclass(slots=True)
class _Hit:
    """One record that a query found, with what each stage said of it."""

    rowid: int
    id: str
    weight: float
    is_pinned: bool
    score: float = 0.0
    is_key: bool = False

    @property
    def base(self) -> float:
        """The score before keys are put first."""
        boost = PINNED if self.is_pinned else 1.0
        return self.score * self.weight * boost


@dataclass(slots=True)
class Search:
    """A query's hits, best first, and how they came about."""

    words: Words
    hits: list[_Hit]
    how: str
    topic_dropped: bool = False
    records: list[tuple[Record, float]] = field(default_factory=list)
    """What was found, each with its score from 0 to 1."""


def search(
    connection: sqlite3.Connection, folder: Folder, request: QueryRequest, now: datetime
) -> Search:
    """Answer a query with one hit more than asked for, if there are more."""
    _add_functions(connection)
    found = _Query(connection, request, now, request.topic).run()
    if request.topic is not None and len(found.hits) < min(_ENOUGH_OF_TOPIC, request.top_k):
        found = _Query(connection, request, now, None).run()
        found.topic_dropped = True
    for hit, score in zip(found.hits, _scores(found.hits), strict=True):
        row = connection.execute("SELECT * FROM records WHERE rowid = ?", (hit.rowid,)).fetchone()
        if row is not None:
            found.records.append((record_of(row, folder), score))
    return found


def _scores(hits: list[_Hit]) -> list[float]:
    """Scores from 0 to 1, best first; the key of a fact stands above all other matches."""
    best = max((hit.base for hit in hits), default=0.0) or 1.0
    raw = [hit.base / best + (hit.weight if hit.is_key else 0.0) for hit in hits]
    top = max(raw, default=0.0) or 1.0
    return [score / top for score in raw]


class _Query:
    def __init__(
        self,
        connection: sqlite3.Connection,
        request: QueryRequest,
        now: datetime,
        topic: str | None,
    ) -> None:
        self._connection = connection
        self._words = take_apart(request.query)
        self._limit = request.top_k + 1
        self._weight, self._weight_values = weight_sql(request.scope)
        self._where = _Where(now, request.as_of)
        self._where.match_owners(request.owners)
        self._where.match(request.filter)
        self._where.match_metadata(request.metadata_filter)
        if topic is not None:
            self._where.add("topic IS NULL OR topic = ?", topic)
        self._hits: dict[int, _Hit] = {}

    def run(self) -> Search:
        words, how = self._words, "words"
        if words.kept:
            self._score(_RANKED, [words.match()])
        if words.pieces:
            score = " + ".join([f"(instr({_FOLDED}, ?) > 0)"] * len(words.pieces))
            score = f"({score}) * 10.0 / {len(words.pieces)}"
            self._score(f"SELECT rowid AS n, {score} AS score FROM records", words.pieces)
            how = "words and pairs of characters"
        if words.keys:
            marks = ", ".join("?" * len(words.keys))
            sql = f"SELECT rowid AS n, 1e-6 AS score FROM records WHERE fact_key IN ({marks})"
            for hit, _ in self._select(sql, words.keys):
                hit.is_key = True
        if not self._hits and words.kept:
            self._score(_RANKED, [words.match(prefix=True)])
            how = "beginnings of words"
        if not self._hits and words.literal:
            sql = f"SELECT rowid AS n, instr({_FOLDED}, ?) > 0 AS score FROM records"
            self._score(sql, [words.literal.encode(errors="replace").decode()])
            how = "the query as it stands"
        order = sorted(
            self._hits.values(),
            key=lambda hit: (not hit.is_key, -hit.weight if hit.is_key else 0, -hit.base, hit.id),
        )
        return Search(words, order[: self._limit], how)

    def _score(self, scored: str, values: Sequence[str]) -> None:
        for hit, score in self._select(scored, values):
            hit.score += score

    def _select(self, scored: str, values: Sequence[str]) -> list[tuple[_Hit, float]]:
        """Run a selection of row numbers and scores under the query's scope and conditions."""
        sql = f"""
            SELECT n, r.id, r.pinned, {self._weight} AS weight, score
            FROM ({scored}) JOIN records r ON r.rowid = n
            WHERE score > 0 AND weight > 0 AND {self._where.sql}
            ORDER BY score * weight * CASE WHEN pinned THEN {PINNED} ELSE 1 END DESC,
                     r.updated DESC, r.id
            LIMIT ?
        """
        # The weight's values come first because its expression does.
        all_values = [*self._weight_values, *values, *self._where.values, self._limit]
        return [
            (
                self._hits.setdefault(number, _Hit(number, name, weight, bool(is_pinned))),
                score,
            )
            for number, name, is_pinned, weight, score in self._connection.execute(sql, all_values)
        ]


def explain(found: Search) -> Explanation:
    """Say what each stage of a search contributed."""
    words, hits = found.words, found.hits
    kept, dropped = ", ".join(words.kept) or "none", ", ".join(words.dropped) or "none"
    stages = [
        ExplainStage(name="words", detail=f"Looked for: {kept}. Dropped: {dropped}."),
        ExplainStage(
            name="full text",
            detail=f"Rank by BM25 over title, text, topic, tags and names; matched {found.how}.",
            scores={hit.id: round(hit.score, 6) for hit in hits},
        ),
        ExplainStage(
            name="scope",
            detail="The nearest scope counts most.",
            scores={hit.id: hit.weight for hit in hits},
        ),
        ExplainStage(
            name="pins",
            detail=f"A pinned record counts {PINNED} times.",
            scores={hit.id: PINNED for hit in hits if hit.is_pinned},
        ),
        ExplainStage(
            name="keys",
            detail="A fact whose key the query names comes first.",
            scores={hit.id: 1.0 for hit in hits if hit.is_key},
        ),
    ]
    if found.topic_dropped:
        detail = f"Fewer than {_ENOUGH_OF_TOPIC} in the topic, so every topic was searched."
        stages.append(ExplainStage(name="topic", detail=detail))
    return Explanation(stages=tuple(stages))
