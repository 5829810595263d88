"""The words of SQL that are completed and emphasised; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_KEYWORDS = """
SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET HAVING JOIN LEFT INNER FULL CROSS SEMI ANTI ON USING
AS AND OR NOT IN IS NULL LIKE ILIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT WITH RECURSIVE UNION
ALL EXCEPT INTERSECT DESC ASC NULLS FIRST LAST INTERVAL OVER PARTITION QUALIFY FILTER EXCLUDE
REPLACE VALUES DESCRIBE SUMMARIZE EXISTS TRUE FALSE CAST DATE TIMESTAMP
"""
_FUNCTIONS = """
count sum avg min max median quantile_cont mode stddev any_value arg_max arg_min list string_agg
bool_and bool_or count_if histogram approx_count_distinct date_trunc date_part date_diff strftime
now age epoch epoch_ms extract coalesce nullif greatest least round floor ceil abs ln log sqrt pow
lower upper trim length contains starts_with substr replace split_part regexp_matches
regexp_extract regexp_replace concat concat_ws json_extract_string json_extract json_array_length
unnest range generate_series row_number rank dense_rank lag lead first_value last_value ntile
to_seconds to_minutes to_hours to_days if typeof
"""
KEYWORDS = tuple(_KEYWORDS.split())
FUNCTIONS = tuple(_FUNCTIONS.split())
EXAMPLE = """\
-- ctrl+r runs this example; write, and it makes room for yours
SELECT date_trunc('day', started_at) AS day, agent_id,
       count(*) AS operations, round(sum(cost_usd), 6) AS cost_usd
FROM operations
WHERE started_at > now() - INTERVAL 7 DAY
GROUP BY ALL ORDER BY day DESC, operations DESC"""

_WORD = re.compile(r"[A-Za-z_][\w.]*\Z|\Z")
_SOURCE = re.compile(r"\b(?:from|join)\s+(\w+)(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE)
_AFTER_SOURCE = re.compile(r"\b(?:from|join)\s+\w*\Z", re.IGNORECASE)
_PLAIN = re.compile(r"'(?:[^']|'')*'|--[^\n]*")
_PIECES = re.compile(r"(?P<note>--.*)|(?P<text>'(?:[^']|'')*'?)|(?P<word>[A-Za-z_]\w*)")
_MOST = 40
_UPPER = frozenset(KEYWORDS)


class Completion(NamedTuple):
    """A word that fits: what it is, and what is written for it."""

    word: str
    sort: str
    meaning: str = ""

    @property
    def written(self) -> str:
        """What is put into the statement."""
        return f"{self.word}(" if self.sort == "function" else self.word


class Words(NamedTuple):
    """What there is to complete: the columns of each view, with their meaning."""

    views: Mapping[str, Sequence[tuple[str, str]]]


def word_before(text: str) -> str:
    """Return the word that ends at the end of `text`; empty in a quoted text or a comment."""
    rest = _PLAIN.sub("", text)
    if "'" in rest or "--" in text.rpartition("\n")[2]:
        return ""
    found = _WORD.search(text)
    return found.group() if found else ""


def completions(words: Words, statement: str, before: str) -> list[Completion]:
    """Return what completes the word at the end of `before`, the best first.

    Args:
        words: What there is.
        statement: The whole statement, for the views that it names.
        before: The statement up to the cursor.
    """
    typed = word_before(before)
    owner, dot, part = typed.rpartition(".")
    sources = _sources(words, statement)
    if dot:
        view = sources.get(owner.casefold(), owner.casefold())
        return _fitting(_columns(words, [view] if view in words.views else words.views), part)
    if not typed:
        return []
    views = [Completion(view, "view") for view in words.views]
    if _AFTER_SOURCE.search(before):
        return _fitting(views, typed)
    offered = [
        *_columns(words, dict.fromkeys(sources.values()) or words.views),
        *views,
        *(Completion(name, "function") for name in FUNCTIONS),
        *(Completion(name, "keyword") for name in KEYWORDS),
    ]
    return _fitting(offered, typed)


def _sources(words: Words, statement: str) -> dict[str, str]:
    """Return the views that a statement reads, by their name and by their alias."""
    found: dict[str, str] = {}
    for view, alias in _SOURCE.findall(_PLAIN.sub("", statement)):
        if (name := view.casefold()) in words.views:
            found[name] = name
            if alias and alias.upper() not in _UPPER:
                found[alias.casefold()] = name
    return found


def _columns(words: Words, views: Iterable[str]) -> list[Completion]:
    named: dict[str, Completion] = {}
    for view in views:
        for name, meaning in words.views[view]:
            named.setdefault(name, Completion(name, view, meaning))
    return list(named.values())


def _fitting(offered: Iterable[Completion], typed: str) -> list[Completion]:
    """Return those that begin with what was typed, then those that have it behind a `_`."""
    wanted = typed.casefold()
    begin, inside = [], []
    for one in offered:
        name = one.word.casefold()
        if name == wanted and one.sort != "function":
            continue
        if name.startswith(wanted):
            begin.append(one)
        elif wanted and f"_{wanted}" in name:
            inside.append(one)
    return [*begin, *inside][:_MOST]


def emphasised(text: str) -> list[tuple[int, int, str]]:
    """Return from where to where a line is a keyword, a text or a comment, and as what to draw."""
    styles = {"note": "dim italic", "text": "italic"}
    found = []
    for piece in _PIECES.finditer(text):
        sort = piece.lastgroup or ""
        if sort == "word" and piece.group().upper() in _UPPER:
            found.append((*piece.span(), "bold"))
        elif sort in styles:
            found.append((*piece.span(), styles[sort]))
    return found
