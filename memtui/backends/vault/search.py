"""Search by relevance, and page over all stored records (seed 002 §3, §6).

Full text is weighed by scope; a fact whose key the query names comes first. A page's cursor
survives inserts.
"""

# ruff: noqa: S608  # the SQL is put together from constants, values are bound
from __future__ import annotations

import heapq
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from memtui.contract import (
    OWNER_FIELDS,
    BrowsePage,
    BrowseRequest,
    ExplainStage,
    Explanation,
    Filter,
    Invalid,
    Json,
    QueryIntent,
    QueryRequest,
    Record,
    Scope,
    Snippet,
    TagCount,
    folded,
)
from memtui.provider_kit.matching import ENOUGH_OF_TOPIC, Test, translated
from memtui.provider_kit.pages import read_cursor, write_cursor
from memtui.text_analysis import Words, take_apart
from memtui.text_analysis import folded as folded_text

from .files import VaultFolder
from .index import canonical, microseconds, record_of, snippet_of
from .layout import places_seen, weight_sql

if TYPE_CHECKING:
    from .vectors import Scores

PINNED = 1.1
"""Factor on the score of a pinned record."""
_FOUND = 128
"""Best matches by words that are fetched first; all are fetched if these are too few."""
MEANING = 0.4
"""Weight of meaning where there are vectors; words have the rest."""
STANDS_OUT = 1.0
"""A cosine counts from so many standard deviations above the mean of all texts."""
_MOST_MEANT = 1_000
_ALL = -1
LIFT, _LIFTING = 0.3, 16
"""Share of a neighbour's score that a record gets without a model (a model has its own,
`Embedder.lift`), and how many of the best give one."""
_RULES = ("rule", "rules", "guidance")
"""The kinds, topics and tags of records that tell an agent how to work."""
_BYTES_OF_TOKEN = 4
_CHOSEN = "SELECT value FROM json_each(?)"
_MATCHED = (
    "SELECT rowid AS n, -bm25(search, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0) AS score FROM search "
    "WHERE search MATCH ?"
)
_RANKED = f"{_MATCHED} ORDER BY score DESC LIMIT ?"
_AMONG = f"{_MATCHED} AND +rowid IN ({_CHOSEN})"
"""The plus makes SQLite run one full-text search and filter its rows; otherwise it searches once
per row."""
_BESIDE = """
    SELECT r.rowid AS n,
      (SELECT x.rowid FROM records x WHERE x.beside = r.beside AND x.is_current
         AND (x.step, x.updated, x.line) > (r.step, r.updated, r.line)
         ORDER BY x.step, x.updated, x.line LIMIT 1) AS after,
      (SELECT x.rowid FROM records x WHERE x.beside = r.beside AND x.is_current
         AND (x.step, x.updated, x.line) < (r.step, r.updated, r.line)
         ORDER BY x.step DESC, x.updated DESC, x.line DESC LIMIT 1) AS before
    FROM json_each(?) JOIN records r ON r.rowid = value WHERE r.beside IS NOT NULL
"""
"""Rows adjacent to given ones in their run or file."""
_TEXT = "COALESCE(title, '') || char(10) || text || char(10) || COALESCE(summary, '')"
_FOLDED = f"memtui_folded({_TEXT})"
_SCOPE = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")
_COLUMNS = {
    **{name: name for name in (*_SCOPE, "source_kind", "topic", "kind", "tags")},
    **{name: f"{name}, source ->> '{name}'" for name in ("issue_id", "run_id")},
    "comment_id": "source ->> 'comment_id'",
    "created_at": "COALESCE(created, updated)",
    "text": _TEXT,
}
"""Columns of a filter's fields; of several, one has to match."""
_TESTS: dict[Test, Callable[[str, Any], tuple[str, Any]]] = {
    "is": lambda columns, value: (f"? IN ({columns})", str(value)),
    "has": lambda column, tag: (f"memtui_tagged({column}, ?)", tag),
    "from": lambda column, moment: (f"{column} >= ?", microseconds(moment)),
    "before": lambda column, moment: (f"{column} < ?", microseconds(moment)),
    "holds": lambda column, word: (f"instr(memtui_folded({column}), ?)", folded_text(word)),
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
        """Match records valid now, or at `as_of`; expired ones only if `expired`."""
        self.clauses: list[str] = []
        self.values: list[Any] = []
        if not expired:
            self.add("expires IS NULL OR expires > ?", microseconds(as_of or now))
        if as_of is None:
            self.add("is_current AND (valid_to IS NULL OR valid_to > ?)", microseconds(now))
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
        for clause, values in _clauses(wanted):
            self.add(clause, *values)

    def match_metadata(self, wanted: Json) -> None:
        """Add an exact metadata filter; kind, topic and tag name the record's own fields."""
        for key, value in wanted.items():
            if key in {"kind", "topic"}:
                self.add(f"{key} IS ?", value if value is None else str(value))
            elif key == "tag":
                self.add(*_TESTS["has"]("tags", str(value)))
            else:
                self.add("memtui_has(metadata, ?, ?)", key, canonical(value))

    def match_owners(self, owners: Sequence[Scope]) -> None:
        """Match only records owned by one of the scopes; no owners: no condition."""
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


def _clauses(wanted: Filter) -> Iterator[tuple[str, list[Any]]]:
    """Yield the conditions of a filter, each with its values."""
    for clauses, excluded in translated(wanted, _COLUMNS, _TESTS):
        found = " OR ".join(sql for sql, _ in clauses) or "0"
        values = [value for _, value in clauses]
        yield (f"NOT COALESCE({found}, 0)" if excluded else found), values
    if wanted.alternatives:
        each = [list(_clauses(one)) for one in wanted.alternatives]
        either = (" AND ".join(f"({clause})" for clause, _ in one) or "1" for one in each)
        yield " OR ".join(either), [value for one in each for _, own in one for value in own]


def browse(
    connection: sqlite3.Connection, folder: VaultFolder, request: BrowseRequest, now: datetime
) -> BrowsePage:
    """Return one page with the exact total.

    Raises `Invalid` for an unknown sort or a cursor that is not ours.
    """
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
    # Select the ids first, so that only the texts of the page are read and sorted.
    chosen = (
        f"SELECT rowid FROM records WHERE {where.sql}"
        f" ORDER BY {_SORTS[key]} {order}, id {order} LIMIT ?"
    )
    rows = connection.execute(
        f"SELECT *, {_SORTS[key]} AS place FROM records WHERE rowid IN ({chosen})"
        f" ORDER BY place {order}, id {order}",
        [*where.values, request.limit + 1],
    ).fetchall()
    shown = rows[: request.limit]
    cursor = None
    if len(rows) > request.limit:
        cursor = write_cursor(request.sort, shown[-1]["place"], shown[-1]["id"])
    records = tuple(record_of(row, folder) for row in shown)
    return BrowsePage(records=records, next_cursor=cursor, total=total)


def tags(
    connection: sqlite3.Connection, folder: VaultFolder, scope: Scope, now: datetime
) -> list[TagCount]:
    """Count the tags of the records that a scope lists, by owner."""
    where = _Where(now, None)
    where.match_scope(scope)
    fields = ", ".join(OWNER_FIELDS)
    written: dict[str, str] = {}
    """Each tag as it was first written."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in connection.execute(
        f"SELECT tags, {fields} FROM records WHERE tags != '[]' AND {where.sql}"
        " ORDER BY COALESCE(created, updated), id",
        where.values,
    ):
        owned_by = next(
            ((name, row[name]) for name in OWNER_FIELDS if row[name]),
            ("company_id", folder.company_id),
        )
        for tag in json.loads(row["tags"]):
            counted[written.setdefault(folded(tag), tag), *owned_by] += 1
    return [
        TagCount(
            tag=tag,
            scope=Scope(**{"company_id": folder.company_id, field: owner}),
            records=records,
        )
        for (tag, field, owner), records in counted.items()
    ]


def versions(
    connection: sqlite3.Connection, folder: VaultFolder, scope: Scope, _now: datetime
) -> list[Record]:
    """Return every version of the facts visible to a scope, grouped by fact, oldest first."""
    weight, values = weight_sql(scope)
    rows = connection.execute(
        f"SELECT * FROM records WHERE kind = 'fact' AND {weight} > 0 "
        f"ORDER BY id, COALESCE(valid_from, {-(2**62)}), COALESCE(valid_to, {2**62}), rowid",
        values,
    )
    return [record_of(row, folder) for row in rows]


@dataclass(slots=True)
class _Hit:
    """One record that a query found, with its score from each stage."""

    rowid: int
    id: str
    weight: float
    is_pinned: bool
    is_key: bool = False
    words: float = 0.0
    """BM25; `fused` uses it as a share of the best."""
    meaning: float = 0.0
    """The cosine, where it stands out."""
    fused: float = 0.0
    """Words and meaning together, from 0 to 1."""
    lift: float = 0.0
    """Score that it got from a neighbour."""

    base: float = 0.0
    """The score before keys are put first."""


_BY_ID, _BY_FUSED = attrgetter("id"), attrgetter("fused", "id")
_BY_BASE, _BY_WEIGHT = attrgetter("base"), attrgetter("weight")


@dataclass(slots=True)
class VaultHits:
    """A query's hits, best first, and how they came about."""

    words: Words
    hits: list[_Hit]
    how: str
    lift: float
    """Share of a neighbour's score that a record gets."""
    model: str | None = None
    """The embedding model."""
    trouble: str = ""
    """Why the search by meaning failed; empty if it did not."""
    topic_dropped: bool = False
    snippets: list[Snippet] = field(default_factory=list)
    """The results, each with its score from 0 to 1."""


def search(
    connection: sqlite3.Connection,
    folder: VaultFolder,
    request: QueryRequest,
    now: datetime,
    *,
    meaning: Scores | None = None,
    trouble: str = "",
) -> VaultHits:
    """Answer a query, with one hit more than requested if there are more.

    A preamble stops before the first text that exceeds its tokens, estimated at four bytes each.
    `meaning` has the cosine of every text; `trouble` is why it is missing, if it was wanted.
    """
    found = _Query(connection, request, now, request.topic, meaning).run()
    if request.topic is not None and len(found.hits) < min(ENOUGH_OF_TOPIC, request.top_k):
        found = _Query(connection, request, now, None, meaning).run()
        found.topic_dropped = True
    found.trouble = trouble
    returned = found.hits[: request.top_k]
    rowids = json.dumps([hit.rowid for hit in returned])
    query = f"SELECT rowid AS n, * FROM records WHERE rowid IN ({_CHOSEN})"
    rows = {row["n"]: row for row in connection.execute(query, (rowids,))}
    is_preamble, room = request.intent is QueryIntent.AGENT_PREAMBLE, request.max_tokens
    for hit, score in zip(returned, _scores(returned), strict=True):
        snippet = snippet_of(rows[hit.rowid], folder, score)
        if is_preamble and room is not None:
            room -= -(-len(snippet.text.encode(errors="replace")) // _BYTES_OF_TOKEN)
            if room < 0:
                break
        found.snippets.append(snippet)
    return found


def _scores(hits: list[_Hit]) -> list[float]:
    """Scores from 0 to 1, best first; the key of a fact stands above all other matches."""
    best = max((hit.base for hit in hits), default=0.0) or 1.0
    raw = [hit.base / best + (hit.weight if hit.is_key else 0.0) for hit in hits]
    top = max(raw, default=0.0) or 1.0
    return [score / top for score in raw]


@dataclass(slots=True)
class _Found:
    """Rows that the stages found, before visibility is checked."""

    words: dict[int, float]
    how: str
    meaning: dict[int, float]
    keys: frozenset[int]
    cut: str | None
    """The search expression if it matches more rows than `words`; None: `words` is complete."""
    at_most: float
    """Upper bound of the word score of rows that are not in `words`."""

    def in_order(self, words_weigh: float) -> list[int]:
        """Return the rows found by words and meaning, best first, without lift and weights."""
        if not self.meaning:
            return list(self.words)
        score = _fusing(self.words.values(), self.meaning.values(), words_weigh)
        words, meaning = self.words.get, self.meaning.get
        scored = {n: score(words(n, 0.0), meaning(n, 0.0)) for n in self.words | self.meaning}
        return sorted(scored, key=scored.__getitem__, reverse=True)


def _fusing(
    words: Iterable[float], meaning: Iterable[float], words_weigh: float
) -> Callable[[float, float], float]:
    """Return a function that combines two scores, each as a share of the best."""
    a_word = words_weigh / (max(words, default=0.0) or 1.0)
    a_meaning = MEANING / (max(meaning, default=0.0) or 1.0)
    return lambda word, meant: a_word * word + a_meaning * meant


class _Query:
    def __init__(
        self,
        connection: sqlite3.Connection,
        request: QueryRequest,
        now: datetime,
        topic: str | None,
        meaning: Scores | None,
    ) -> None:
        self._connection = connection
        self._words = take_apart(request.query)
        self._meaning = meaning
        self._lift = LIFT if meaning is None else meaning.model.lift
        self._limit = request.top_k + 1
        self._intent = request.intent
        self._helped = request.helped
        self._places = places_seen(request.scope)
        self._weight, self._weight_values = weight_sql(request.scope)
        self._where = _Where(now, request.as_of)
        self._where.match_owners(request.owners)
        self._where.match(request.filter)
        self._where.match_metadata(request.metadata_filter)
        if topic is not None:
            self._where.add("topic IS NULL OR topic = ?", topic)

    def run(self) -> VaultHits:
        few = 2 * max(self._limit, _LIFTING)
        found, order = None, None
        if self._intent is QueryIntent.ANSWER:
            found = self._find(max(_FOUND, few))
            order = self._looked_at(found, few)
            if order is None:
                order = self._looked_at(found, None)
        if found is None or order is None:
            found = self._find(_ALL)
            order = self._intended(self._looked_at(found, None) or [])
        model = self._meaning.model.name if self._meaning else None
        return VaultHits(self._words, order[: self._limit], found.how, self._lift, model)

    def _intended(self, order: list[_Hit]) -> list[_Hit]:
        """Return all hits in the order of the query's intent, then by score."""
        if self._intent is QueryIntent.ANSWER:
            return order
        sql = f"""
            SELECT r.rowid, COALESCE(r.created, r.updated, 0) AS made,
              lower(COALESCE(r.kind, '')) IN ({_CHOSEN})
                OR lower(COALESCE(r.topic, '')) IN ({_CHOSEN})
                OR EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE lower(t.value) IN ({_CHOSEN})),
              r.id IN ({_CHOSEN})
            FROM json_each(?) CROSS JOIN records r ON r.rowid = value
        """
        rules = json.dumps(_RULES)
        helped, found = json.dumps([*self._helped]), json.dumps([hit.rowid for hit in order])
        values = [rules, rules, rules, helped, found]
        rows = {n: one for n, *one in self._connection.execute(sql, values)}
        if self._intent is QueryIntent.BROWSE:
            return sorted(order, key=lambda hit: rows[hit.rowid][0], reverse=True)

        def place(hit: _Hit) -> tuple[bool, ...]:
            _, is_rule, has_helped = rows[hit.rowid]
            return not hit.is_pinned, not is_rule, not has_helped

        return sorted(order, key=place)

    def _looked_at(self, found: _Found, few: int | None) -> list[_Hit] | None:
        """Return the visible hits, best first, after checking only the best `few` rows.

        None: a row not checked or not found yet may rank among the first, or change their scores.
        """
        ordered = found.in_order(self._words_weigh)
        rest = set(ordered[few or len(ordered) :])
        looked_at = {*ordered[:few], *found.keys, *(self._pinned() & rest if rest else ())}
        hits = self._seen(found, looked_at)
        self._fuse(hits)
        best = self._best(hits)
        beside = self._beside(best)
        if more := self._matching(found, rest, beside.keys() - looked_at):
            looked_at |= more
            hits |= self._seen(found, more)
            self._fuse(hits)
        order = _ranked(hits, beside)
        unseen = rest - looked_at
        if not (unseen or found.cut):
            return order
        is_whole = self._best(hits) == best
        return order if is_whole and self._holds(order, found, unseen) else None

    def _matching(self, found: _Found, rest: set[int], rowids: set[int]) -> set[int]:
        """Return which of the rows match, including rows that were not found yet."""
        self._complete(found, rowids - rest)
        return {n for n in rowids if n in rest or n in found.words}

    def _complete(self, found: _Found, rowids: Iterable[int]) -> None:
        """Add the word scores of rows that were not found yet."""
        if found.cut and (others := [n for n in rowids if n not in found.words]):
            found.words |= self._scored(_AMONG, [found.cut, json.dumps(others)])

    def _pinned(self) -> set[int]:
        return {n for (n,) in self._connection.execute("SELECT rowid FROM records WHERE pinned")}

    def _find(self, most: int) -> _Found:
        """Find the best rows of each stage, at most `most` by full text, ignoring visibility."""
        words = self._words
        how = "words and pairs of characters" if words.pieces else "words"
        cut = self._expression(words.match())
        found = self._scored(_RANKED, [cut, most]) if words.terms else {}
        sql = f"SELECT rowid FROM records WHERE fact_key IN ({_CHOSEN})"
        rows = self._connection.execute(sql, (json.dumps(self._words.keys),))
        keys = frozenset(n for (n,) in rows)
        if not found and not keys and words.kept:
            cut, how = self._expression(words.match_prefixes()), "beginnings of words"
            found = self._scored(_RANKED, [cut, most])
        meaning = self._meant()
        is_cut = len(found) == most
        if not found and not keys and not meaning and words.literal:
            literal = words.literal.encode(errors="replace").decode()
            found, how = self._scanned(f"instr({_FOLDED}, ?) > 0", [literal]), "the query"
        at_most = min(found.values()) if is_cut else 0.0
        return _Found(found, how, meaning, keys, cut if is_cut else None, at_most)

    def _expression(self, wanted: str) -> str:
        """Return the full-text expression, limited to places that the scope sees."""
        if not self._places:
            return wanted
        places = " OR ".join(f'"{word}"' for word in self._places)
        return f"({wanted}) AND ({places})"

    def _scanned(self, score: str, values: Sequence[str]) -> dict[int, float]:
        """Return the rows whose text matches an expression, by a full scan."""
        sql = f"SELECT rowid AS n, {score} AS score FROM records WHERE score > 0"
        return self._scored(f"{sql} ORDER BY score DESC", values)

    def _scored(self, sql: str, values: Sequence[Any]) -> dict[int, float]:
        return {row[0]: row[1] for row in self._connection.execute(sql, values)}

    def _meant(self) -> dict[int, float]:
        """Return the rows whose meaning is near the query, with their cosines."""
        if self._meaning is None:
            return {}
        cosines = self._meaning.outstanding(STANDS_OUT, _MOST_MEANT)
        sql = f"SELECT rowid, meaning FROM records WHERE meaning IN ({_CHOSEN})"
        rows = self._connection.execute(sql, (json.dumps(list(cosines)),))
        return {n: cosines[digest] for n, digest in rows}

    def _seen(self, found: _Found, rowids: Collection[int]) -> dict[int, _Hit]:
        """Return which of these rows meet the query's scope and conditions."""
        self._complete(found, rowids)
        sql = f"""
            SELECT r.rowid, r.id, {self._weight} AS weight, r.pinned
            FROM json_each(?) CROSS JOIN records r ON r.rowid = value
            WHERE weight > 0 AND {self._where.sql}
        """
        # The weight's values come first because its expression does.
        values = [*self._weight_values, json.dumps(list(rowids)), *self._where.values]
        keys, words, meaning = found.keys, found.words.get, found.meaning.get
        return {
            n: _Hit(n, name, weight, bool(is_pinned), n in keys, words(n, 0.0), meaning(n, 0.0))
            for n, name, weight, is_pinned in self._connection.execute(sql, values)
        }

    @property
    def _words_weigh(self) -> float:
        return 1.0 if self._meaning is None else 1.0 - MEANING

    def _fuse(self, hits: dict[int, _Hit]) -> None:
        """Combine word and meaning scores over the visible hits."""
        score = self._fusing(hits.values())
        for hit in hits.values():
            hit.fused = score(hit.words, hit.meaning)

    def _fusing(self, hits: Collection[_Hit]) -> Callable[[float, float], float]:
        words, meaning = [hit.words for hit in hits], [hit.meaning for hit in hits]
        return _fusing(words, meaning, self._words_weigh)

    def _best(self, hits: dict[int, _Hit]) -> dict[int, float]:
        """Return the rows that lift their neighbours, with their scores."""
        best = heapq.nlargest(_LIFTING, hits.values(), key=_BY_FUSED)
        return {hit.rowid: hit.fused for hit in best}

    def _beside(self, best: Mapping[int, float]) -> dict[int, float]:
        """Return the neighbours of the best rows, with the score that they get from those."""
        lifts: dict[int, float] = {}
        if not self._lift:
            return lifts
        for n, *beside in self._connection.execute(_BESIDE, (json.dumps(list(best)),)):
            for other in beside:
                lifts[other] = max(lifts.get(other, 0.0), self._lift * best[n])
        return lifts

    def _holds(self, order: list[_Hit], found: _Found, unseen: Iterable[int]) -> bool:
        """Whether no unchecked row can rank among the first or change their scores.

        All neighbours of the best rows were checked, so nothing else is lifted; so were all pinned
        rows found.
        """
        if len(order) < max(self._limit, _LIFTING):
            return False
        at_most = found.at_most
        others = [(found.words.get(n, at_most), found.meaning.get(n, 0.0)) for n in unseen]
        others.append((at_most, 0.0))
        words, meaning = map(max, zip(*others, strict=True))
        if words > max(hit.words for hit in order) or meaning > max(hit.meaning for hit in order):
            return False  # scores are shares of the best
        score = self._fusing(order)
        most = max(score(*one) for one in others)
        lifting = heapq.nlargest(_LIFTING, (hit.fused for hit in order))
        last, pinned = order[self._limit - 1], PINNED * score(at_most, 0.0)
        return lifting[-1] > most and (last.is_key or last.base > max(most, pinned))


def _ranked(hits: dict[int, _Hit], beside: Mapping[int, float]) -> list[_Hit]:
    """Return hits, the best first: facts whose key the query names, then all others."""
    found = list(hits.values())
    for hit in found:
        hit.lift = beside.get(hit.rowid, 0.0)
        hit.base = (hit.fused + hit.lift) * hit.weight * (PINNED if hit.is_pinned else 1.0)
    found.sort(key=_BY_ID)
    found.sort(key=_BY_BASE, reverse=True)
    keys = sorted((hit for hit in found if hit.is_key), key=_BY_WEIGHT, reverse=True)
    return keys + [hit for hit in found if not hit.is_key] if keys else found


def stages_of(found: VaultHits) -> tuple[ExplainStage, ...]:
    """Return each stage's part in each hit, without words of the query or of a record."""
    hits = found.hits
    told: dict[str, tuple[str, dict[str, float]]] = {
        "words": (
            f"BM25 over title, text, topic, tags, names and date; matched {found.how}.",
            {hit.id: round(hit.words, 4) for hit in hits if hit.words},
        )
    }
    if found.model is not None:
        told["meaning"] = (
            f"Cosine by {found.model}, where it stands out among all texts.",
            {hit.id: round(hit.meaning, 4) for hit in hits if hit.meaning},
        )
        shares = f"Words count {1 - MEANING:.0%} and meaning {MEANING:.0%}"
        fused = {hit.id: round(hit.fused, 4) for hit in hits}
        told["fused"] = f"{shares}, each as a share of the best.", fused
    if found.trouble:
        detail = f"Searched by words only, because the model could not be used: {found.trouble}"
        told["meaning"] = detail, {}
    told["neighbours"] = (
        f"A record next to one of the best in its run or file gets {found.lift:.0%} of that score.",
        {hit.id: round(hit.lift, 4) for hit in hits if hit.lift},
    )
    told["scope"] = "The nearest scope counts most.", {hit.id: hit.weight for hit in hits}
    told["pins"] = (
        f"A pinned record counts {PINNED} times.",
        {hit.id: PINNED for hit in hits if hit.is_pinned},
    )
    told["keys"] = (
        "A fact whose key the query names comes first.",
        {hit.id: 1.0 for hit in hits if hit.is_key},
    )
    if found.topic_dropped:
        detail = f"Fewer than {ENOUGH_OF_TOPIC} in the topic, so every topic was searched."
        told["topic"] = detail, {}
    return tuple(
        ExplainStage(name=name, detail=detail, scores=scores)
        for name, (detail, scores) in told.items()
        if scores or name in {"words", "meaning", "topic"}
    )


def explain(found: VaultHits) -> Explanation:
    """Return the words searched for, and what each stage of a search contributed."""
    words = found.words
    kept, dropped = ", ".join(words.terms) or "none", ", ".join(words.dropped) or "none"
    asked = ExplainStage(name="query", detail=f"Looked for: {kept}. Dropped: {dropped}.")
    return Explanation(stages=(asked, *stages_of(found)))
