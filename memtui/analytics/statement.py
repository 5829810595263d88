"""Check on its syntax tree that a person's SQL statement only reads the documented views.

Tables, table functions and kinds of statement are allowed by list; scalar functions are many and
harmless, so the others are refused by list. DuckDB is also locked (see
`memtui.analytics.engine.DuckDb`), so that a gap in this check does not open a file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from memtui.contract import Denied, Invalid
from memtui.wording import unknown

LONGEST = 20_000
"""Characters; far longer statements overflow DuckDB's planner before any limit stops it."""

TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
"""The functions that a FROM may call; it may also name the views."""

_TABLE = re.compile(r"(?!(duckdb|hot|memory|pg|pragma|raw|sqlite)_)[^\W\d]\w*", re.IGNORECASE)
"""A name that may be a mistyped view: no internal table of DuckDB or memtui, and no file."""
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_REFUSED_FUNCTIONS = frozenset(
    {
        "combine",
        "create_sort_key",
        "current_setting",
        "currval",
        "finalize",
        "getenv",
        "getvariable",
        "index_key",
        "invoke",
        "json_execute_serialized_sql",
        "json_serialize_plan",
        "nextval",
        "parse_duckdb_log_message",
        "setseed",
        "setval",
        "sleep_ms",
        "to_aggregate_state",
        "write_log",
    }
)
_REFUSED_PREFIXES = ("__internal", "has_", "inet_", "pg_", "read_")
_UNBOUNDED = frozenset(
    {
        "array_reduce",
        "array_resize",
        "bitstring",
        "format",
        "list_reduce",
        "list_resize",
        "lpad",
        "printf",
        "reduce",
        "repeat",
        "rpad",
    }
)
"""Functions that can make gigabytes in one step, which neither memory limit nor cancel stops."""

MOST_GROWTH = 10_000
"""The largest factor by which nested functions may lengthen a text."""
_GROWS = {
    "base64": 2,
    "bin": 8,
    "hex": 2,
    "json_quote": 2,
    "regexp_escape": 2,
    "to_base64": 2,
    "to_binary": 8,
    "to_hex": 2,
    "to_json": 2,
    "url_encode": 3,
}
"""The largest factor by which each function lengthens a text."""
_REPLACING = frozenset({"regexp_replace", "replace"})
_UNKNOWN_GROWTH = 1_000
"""The factor assumed for a replacement that is not a constant."""
LONGEST_LIST = 10_000_000
_LISTING = frozenset({"generate_series", "range"})
_NUMBERS = frozenset({"INTEGER", "NUMERIC"})

_PERMITTED = frozenset({"pg_typeof", "pg_size_pretty"})


def check_statement(
    connection: Any, sql: str, views: frozenset[str], *, what: str = "statement"
) -> Any:
    """Return the syntax tree of `sql`; make sure that it is one statement that only reads `views`.

    Args:
        connection: A DuckDB connection, for its parser.
        sql: The statement.
        views: The names that may be read.
        what: The name of the statement in errors.

    Raises:
        Invalid: it is not a statement that DuckDB understands, or too long or deeply nested.
        Denied: it is more than one statement, or does more than read the views.
    """
    if len(sql) > LONGEST:
        raise Invalid(f"The {what} is longer than {LONGEST:,} characters; shorten it.")
    if _UNREADABLE.search(sql):
        raise Invalid(
            f"The {what} contains a NUL or half a character (a lone surrogate); remove it."
        )
    try:
        row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        tree = json.loads(row[0])
        _refuse_unreadable(tree, what)
        nodes = list(_nodes(tree))
        _refuse_growth(tree)
    except RecursionError as error:
        raise Invalid(f"The {what} is nested too deeply; simplify it.") from error
    _refuse_more_than_reading(nodes)
    _refuse_other_tables(nodes, views)
    _refuse_functions(nodes)
    return tree


def tried(expression: str) -> str:
    """Return the SQL of a list with an expression's value, or of NULL where the expression fails.

    DuckDB refuses subqueries, aggregates, window and volatile functions inside TRY.
    """
    return f"TRY([\n{expression}\n])"


def check_expression(connection: Any, expression: str, table: str, *, what: str) -> None:
    """Make sure that `expression` is one expression over the columns of `table`.

    Args:
        connection: A DuckDB connection, for its parser.
        expression: The SQL.
        table: The name of the table.
        what: The name of the expression in errors.

    Raises:
        Invalid: DuckDB does not understand it, or it is not one expression.
        Denied: it would read something else.
    """
    tables = frozenset({table})
    check_statement(connection, f"SELECT {expression}", tables, what=what)
    tree = check_statement(
        connection, f"SELECT {tried(expression)} FROM {table}", tables, what=what
    )
    try:
        [value] = tree["statements"][0]["node"]["select_list"]
        [items] = value["children"]
        [_] = items["arguments"]
        is_one = (value["type"], items["function_name"]) == ("OPERATOR_TRY", "list_value")
    except (KeyError, ValueError):
        is_one = False
    if not is_one:
        raise Invalid(f"The {what} must be one expression.")


def _refuse_unreadable(tree: dict[str, Any], what: str) -> None:
    if tree["error"]:
        if tree["error_type"] == "not implemented":
            raise Denied("Only a statement that reads is allowed here: SELECT, WITH or DESCRIBE.")
        message = str(tree["error_message"]).splitlines()[0]
        raise Invalid(f"The {what} cannot be read: {message.rstrip('.')}.")
    if not tree["statements"]:
        raise Invalid("There is no statement; write one such as SELECT * FROM operations.")
    if len(tree["statements"]) > 1:
        raise Denied("Only one statement at a time is allowed; run them one by one.")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _refuse_more_than_reading(nodes: list[dict[str, Any]]) -> None:
    for node in nodes:
        kind = str(node.get("type"))
        if kind.endswith("_NODE") and kind not in _NODES:
            raise Denied(
                "A statement may only read; remove the part that changes something, in WITH too."
            )
        if kind == "SHOW_REF" and node.get("query") is None:
            raise Denied("SHOW is not allowed here; use DESCRIBE with the name of a view.")


def _refuse_growth(tree: dict[str, Any]) -> None:
    """Refuse functions, nested or in nested queries, that make gigabytes of a short text."""
    by_query: list[int] = []
    _growth(tree, by_query)
    if math.prod(by_query) > MOST_GROWTH:
        raise Denied(
            f"Nested functions such as replace could make a text more than {MOST_GROWTH:,} times "
            "longer; nest them less deeply."
        )


def _growth(value: Any, by_query: list[int]) -> int:
    """Return the factor by which an expression lengthens a text; add that of each inner query."""
    if not isinstance(value, dict | list):
        return 1
    parts = value if isinstance(value, list) else value.values()
    most = max((_growth(part, by_query) for part in parts), default=1)
    if isinstance(value, list):
        return most
    if str(value.get("type")).endswith("_NODE"):
        by_query.append(most)
        return 1
    return most * _growth_of(value)


def _growth_of(node: dict[str, Any]) -> int:
    name = str(node.get("function_name")).lower()
    if name not in _REPLACING:
        return _GROWS.get(name, 1)
    constants = _constants(node)[1:3]
    if [kind for kind, _ in constants] != ["STRING", "STRING"]:
        return _UNKNOWN_GROWTH
    old, new = (len(text.encode()) for _, text in constants)
    # A pattern may match the empty text, and a replacement may repeat the match.
    return max(1, -(-new // max(1, old)) if name == "replace" else new)


def _constants(call: dict[str, Any]) -> list[tuple[str, str]]:
    """Return kind and text of each argument of a call; empty texts if it is not a constant."""
    arguments = [one["expression"].get("literal") or {} for one in call.get("arguments", [])]
    return [(str(one.get("kind", "")), str(one.get("text", ""))) for one in arguments]


def _refuse_long_lists(node: dict[str, Any]) -> None:
    constants = _constants(node)
    if len(constants) == 3 and constants[2][0] not in _NUMBERS:
        # A short step makes a very long list of moments, and DuckDB cannot be stopped meanwhile.
        raise Denied(
            f"The step of a list here is a number that is written out; "
            f"{node['function_name']} in FROM takes any, moments too."
        )
    numbers = [float(text) for kind, text in constants if kind in _NUMBERS]
    if any(abs(number) > LONGEST_LIST for number in numbers):
        raise Denied(
            f"A list here has at most {LONGEST_LIST:,} elements; "
            f"{node['function_name']} in FROM takes any number."
        )


def _refuse_other_tables(nodes: list[dict[str, Any]], views: frozenset[str]) -> None:
    own = {
        str(entry["key"]).lower()
        for node in nodes
        if isinstance(node.get("cte_map"), dict)
        for entry in node["cte_map"]["map"]
    }
    own |= {str(node["cte_name"]).lower() for node in nodes if "cte_name" in node}
    for node in nodes:
        if node.get("type") != "BASE_TABLE":
            continue
        path = node["qualified_name"]["path"]
        if len(path) != 1 or str(path[0]).lower() not in views | own:
            if len(path) == 1 and _TABLE.fullmatch(str(path[0])):
                raise Invalid(unknown("view", str(path[0]), sorted(views)))
            raise Denied(
                f"There is no {'.'.join(map(str, path))} to read here, only the views "
                f"{', '.join(sorted(views))}."
            )


def _refuse_functions(nodes: list[dict[str, Any]]) -> None:
    of_tables = [node["function"] for node in nodes if node.get("type") == "TABLE_FUNCTION"]
    for node in nodes:
        if any(node is function for function in of_tables):
            name = str(node["function_name"]).lower()
            if name not in TABLE_FUNCTIONS:
                raise Denied(f"The function {name} is not allowed in a statement here.")
        elif "function_name" in node:
            name = str(node["function_name"]).lower()
            if name in _PERMITTED:
                continue
            if name in _LISTING:
                _refuse_long_lists(node)
            if name in _REFUSED_FUNCTIONS | _UNBOUNDED or name.startswith(_REFUSED_PREFIXES):
                raise Denied(f"The function {name} is not allowed in a statement here.")
