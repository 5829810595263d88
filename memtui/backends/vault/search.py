"""Find what is relevant: full text weighed by scope, keys of facts first (seed 002 §3, §6)."""

# ruff: noqa: S608  # the SQL is put together from constants, values are bound
from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from datetime import datetime

from memtui.contract import ExplainStage, Explanation, QueryRequest
from memtui.words import Words, take_apart

from .conditions import Where, add_functions, holding, match_metadata, owned_by
from .entries import Entry
from .index import entry_of
from .scoping import weight_sql

PINNED = 1.1
"""What a pinned record's score is multiplied by."""
_ENOUGH_OF_TOPIC = 3
_BM25 = "bm25(search, 2.0, 1.0, 1.0, 1.0, 2.0)"
_FOLDED = "memtui_folded(COALESCE(title, '') || char(10) || text)"


@dataclass(slots=True)
class Hit:
    """One record that a query found, with what each stage said of it."""

    rowid: int
    id: str
    weight: float
    is_pinned: bool
    text_score: float = 0.0
    piece_score: float = 0.0
    is_key: bool = False

    @property
    def base(self) -> float:
        """The score before keys are put first."""
        boost = PINNED if self.is_pinned else 1.0
        return (self.text_score + self.piece_score) * self.weight * boost


@dataclass(slots=True)
class Found:
    """A query's hits, best first, and how they came about."""

    words: Words
    hits: list[Hit] = field(default_factory=list)
    how: str = ""
    topic_dropped: bool = False
    entries: list[tuple[Entry, float]] = field(default_factory=list)


def search(connection: sqlite3.Connection, request: QueryRequest, now: datetime) -> Found:
    """Answer a query with one hit more than asked for, if there are more."""
    add_functions(connection)
    found = _Search(connection, request, now, request.topic).run()
    if request.topic is not None and len(found.hits) < min(_ENOUGH_OF_TOPIC, request.top_k):
        found = _Search(connection, request, now, None).run()
        found.topic_dropped = True
    scores = _scores(found.hits)
    for hit, score in zip(found.hits, scores, strict=True):
        row = connection.execute("SELECT * FROM records WHERE rowid = ?", (hit.rowid,)).fetchone()
        if row is not None:
            found.entries.append((entry_of(row), score))
    return found


def _scores(hits: list[Hit]) -> list[float]:
    """Scores from 0 to 1, best first; the key of a fact stands above all other matches."""
    best = max((hit.base for hit in hits), default=0.0) or 1.0
    raw = [hit.base / best + (hit.weight if hit.is_key else 0.0) for hit in hits]
    top = max(raw, default=0.0) or 1.0
    return [score / top for score in raw]


class _Search:
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
        self._where = holding(now, request.as_of)
        owned_by(self._where, request.owners)
        match_metadata(self._where, request.metadata_filter)
        if topic is not None:
            self._where.add("topic IS NULL OR topic = ?", topic)
        self._hits: dict[int, Hit] = {}

    def run(self) -> Found:
        words, how = self._words, "words"
        if words.kept:
            self._full_text(words.match())
        if words.pieces:
            self._pieces()
            how = "words and pairs of characters"
        self._keys()
        if not self._hits and words.kept:
            self._full_text(words.match(prefix=True))
            how = "beginnings of words"
        if not self._hits and words.literal:
            self._literal()
            how = "the query as it stands"
        order = sorted(
            self._hits.values(),
            key=lambda hit: (not hit.is_key, -hit.weight if hit.is_key else 0, -hit.base, hit.id),
        )
        return Found(words, order[: self._limit], how)

    def _full_text(self, expression: str) -> None:
        rows = self._select(
            f"SELECT rowid AS n, -{_BM25} AS score FROM search WHERE search MATCH ?",
            [expression],
        )
        for row in rows:
            self._hit(row).text_score = row["score"]

    def _pieces(self) -> None:
        score = " + ".join([f"(instr({_FOLDED}, ?) > 0)"] * len(self._words.pieces))
        count = len(self._words.pieces)
        rows = self._select(
            f"SELECT rowid AS n, ({score}) * 10.0 / {count} AS score FROM records",
            list(self._words.pieces),
        )
        for row in rows:
            self._hit(row).piece_score = row["score"]

    def _literal(self) -> None:
        literal = self._words.literal.encode(errors="replace").decode()
        sql = f"SELECT rowid AS n, instr({_FOLDED}, ?) > 0 AS score FROM records"
        for row in self._select(sql, [literal]):
            self._hit(row).piece_score = row["score"]

    def _keys(self) -> None:
        keys = self._words.keys
        if keys:
            marks = ", ".join("?" * len(keys))
            sql = f"SELECT rowid AS n, 1e-6 AS score FROM records WHERE fact_key IN ({marks})"
            for row in self._select(sql, list(keys)):
                self._hit(row).is_key = True

    def _select(self, scored: str, values: list[str]) -> list[sqlite3.Row]:
        """Run a selection of row numbers and scores under the query's scope and conditions."""
        where: Where = self._where
        sql = f"""
            SELECT n, r.id, r.pinned, {self._weight} AS weight, score
            FROM ({scored}) JOIN records r ON r.rowid = n
            WHERE score > 0 AND weight > 0 AND {where.sql}
            ORDER BY score * weight * CASE WHEN pinned THEN {PINNED} ELSE 1 END DESC,
                     r.updated DESC, r.id
            LIMIT ?
        """
        # The weight's values come first because its expression does.
        all_values = [*self._weight_values, *values, *where.values, self._limit]
        return self._connection.execute(sql, all_values).fetchall()

    def _hit(self, row: sqlite3.Row) -> Hit:
        if row["n"] not in self._hits:
            self._hits[row["n"]] = Hit(row["n"], row["id"], row["weight"], bool(row["pinned"]))
        return self._hits[row["n"]]


def explain(found: Found) -> Explanation:
    """Say what each stage of a search contributed."""
    words, hits = found.words, found.hits
    kept, dropped = ", ".join(words.kept) or "none", ", ".join(words.dropped) or "none"
    stages = [
        ExplainStage(name="words", detail=f"Looked for: {kept}. Dropped: {dropped}."),
        ExplainStage(
            name="full text",
            detail=f"Rank by BM25 over title, text, topic, tags and names; matched {found.how}.",
            scores={h.id: round(h.text_score + h.piece_score, 6) for h in hits},
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
