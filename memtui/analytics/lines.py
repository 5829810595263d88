"""Operations as the lines of a JSON Lines file, written by DuckDB.

A line is the document of `memtui.analytics.documents` as Python's `json` writes it, without spaces
and in ASCII. DuckDB puts nearly all of them together, several times as fast as Python; where it may
write something else than Python, the line is made from the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from memtui.analytics.documents import HANDLE, PLAIN, SCOPE, SOURCE, USAGE, documents
from memtui.analytics.engine import quoted
from memtui.analytics.layout import TABLES
from memtui.analytics.operations import select_list
from memtui.analytics.source import columns_of
from memtui.store.values import MARK

_BEYOND_ASCII = re.compile(r"[\x7f-\U0010ffff]+")


def lines_of(duck: Any, sources: Mapping[str, str]) -> str:
    """Return a line for each operation, in order.

    Args:
        duck: The DuckDB that has them.
        sources: The queries of their rows with the sealed columns, by table.
    """
    found = dict(duck.execute(_select_lines(sources)).fetchall())
    lines = "".join(found.values())
    if _may_differ(lines):
        differing = [seq for seq, line in found.items() if _may_differ(line)]
        lines = "".join((found | _from_documents(duck, sources, differing)).values())
    if lines.isascii() and "\x7f" not in lines:
        return lines
    return _BEYOND_ASCII.sub(lambda match: encode_basestring_ascii(match[0])[1:-1], lines)


def _may_differ(line: str) -> bool:
    """Whether a text may be escaped otherwise than Python does it, or a number is not finite."""
    return MARK in line or "\\u" in line


def _from_documents(duck: Any, sources: Mapping[str, str], seqs: Sequence[int]) -> dict[int, str]:
    among = f"seq IN ({', '.join(map(str, seqs))})"
    rows = (
        duck.execute(
            f"SELECT {select_list(table)} FROM ({sources[table]}) WHERE {among}"
        ).fetchall()
        for table in TABLES
    )
    return {
        seq: json.dumps(document, separators=(",", ":")) + "\n"
        for seq, document in documents(*rows).items()
    }


def _select_lines(sources: Mapping[str, str]) -> str:
    """Return the query of `seq` and line, in order."""
    return f"""
        WITH o AS MATERIALIZED ({sources["operations"]}),
        u AS (
            SELECT seq, string_agg({_USAGE}, ',' ORDER BY ordinal) AS list
            FROM ({sources["usage"]}) p GROUP BY seq
        ),
        h AS (
            SELECT seq, string_agg({_HANDLE}, ',' ORDER BY rank) AS list
            FROM ({sources["handles"]}) p JOIN o USING (seq) GROUP BY seq
        )
        SELECT seq, {_OPERATION} || chr(10)
        FROM o LEFT JOIN u USING (seq) LEFT JOIN h USING (seq) ORDER BY seq
    """


def _object(members: Mapping[str, str]) -> str:
    """SQL of the text of a JSON object, whose members are SQL of JSON texts."""
    parts = ", ',', ".join(f"'\"{name}\":', {value}" for name, value in members.items())
    return f"concat('{{', {parts}, '}}')"


def _members(table: str, names: Mapping[str, str], alias: str) -> dict[str, str]:
    """The members of these names, each out of a column of the table."""
    kinds = columns_of(table)
    return {name: _value(f"{alias}.{column}", kinds[column]) for name, column in names.items()}


def _value(column: str, kind: str) -> str:
    if kind == "VARCHAR":
        text = f"to_json({column})::VARCHAR"
    elif kind == "DOUBLE":
        text = f"CASE WHEN isfinite({column}) THEN {column}::VARCHAR ELSE {quoted(MARK)} END"
        return f"CASE WHEN {column} IS NULL THEN 'null' ELSE {text} END"
    else:
        text = f"{column}::VARCHAR"
    return f"coalesce({text}, 'null')"


def _same(names: tuple[str, ...]) -> dict[str, str]:
    return {name: name for name in names}


_MOMENT = (
    "replace(strftime(timezone('UTC', o.started_at), '\"%Y-%m-%dT%H:%M:%S.%fZ\"'), '.000000Z', 'Z')"
)
_SOURCE = _members(
    "operations", {"kind": "source_kind", "company_id": "company_id"}, "o"
) | _members("operations", {name: f"source_{name}" for name in SOURCE}, "o")
_OPERATION = _object(
    _members("operations", _same(PLAIN), "o")
    | {
        "started_at": _MOMENT,
        "request": "o.request",
        "scope": _object(_members("operations", _same(SCOPE), "o")),
        "source": f"CASE WHEN o.source_kind IS NULL THEN 'null' ELSE {_object(_SOURCE)} END",
        "usage": "'[', u.list, ']'",
        "handles": "'[', h.list, ']'",
        "absent": "coalesce(o.absent, '{}')",
        "digest": _value("o.digest", "VARCHAR"),
    }
)
# As Python writes a decimal: below a millionth with an exponent.
_DOLLARS = """
    CASE WHEN p.cost_pico IS NULL THEN 'null'
    WHEN p.cost_pico = 0 THEN '"0"'
    WHEN p.cost_pico < 1000000 THEN concat('"',
        regexp_replace(rtrim(p.cost_pico::VARCHAR, '0'), '^(.)(.)', '\\1.\\2'),
        'E-', 13 - length(p.cost_pico::VARCHAR), '"')
    ELSE concat('"', p.cost_pico // 1000000000000,
        rtrim(rtrim('.' || lpad((p.cost_pico % 1000000000000)::VARCHAR, 12, '0'), '0'), '.'), '"')
    END
"""
_USAGE = _object(
    _members("usage", _same(USAGE), "p") | {"cost_usd": _DOLLARS, "details": "p.details"}
)
_HANDLE = _object(
    _members("handles", _same(HANDLE), "p")
    | {
        "binding_key": "CASE WHEN p.binding_key = o.binding_key THEN 'null' "
        f"ELSE {_value('p.binding_key', 'VARCHAR')} END"
    }
)
