"""A `Filter`, a visibility and a sort order as SQL.

For the databases they are SQLAlchemy expressions over the tables, for DuckDB its SQL over the
columns of `memtui.analytics.source`, which have the sums per operation that a filter compares.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    CompoundSelect,
    Double,
    String,
    and_,
    cast,
    exists,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
    union_all,
)
from sqlalchemy.engine import default
from sqlalchemy.sql.util import ClauseAdapter

from memtui.contract import Comparison, FieldTest, Filter, Invalid, Measure
from memtui.fuzzy import pattern
from memtui.store.database import quoted, stored_text
from memtui.store.operation import ASKED, COLUMNS, INTERNAL, LogFilter, apart, is_folded
from memtui.store.tables import HANDLES, OPERATIONS, USAGE
from memtui.store.visibility import Visibility, plain_condition, seen

BEGUN = "begun"
"""The start of an operation as DuckDB's timestamp; `started_at` is a number in the databases."""

_PICO = 10**12
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_PLACES = {name: (name,) for name in COLUMNS if name in Filter.model_fields} | {
    "issue_id": ("issue_id", "source_issue_id"),
    "comment_id": ("source_comment_id",),
    "run_id": ("run_id", "source_run_id"),
}
"""The columns in which a filter's field is looked up."""
_SEARCHED = (
    "request", "error_message", "principal", "issue_id", "run_id", "source_issue_id",
    "source_run_id",
)  # fmt: skip
# DuckDB rejects a whole JSON document that holds half of a surrogate pair.
_REQUEST = r"regexp_replace(request, '\\ud[89a-f][0-9a-f]{2}', '\\ufffd', 'g')"
_TEXTS = f"json_extract_string({_REQUEST}, [{', '.join(map(quoted, ASKED))}])"
_WHAT = ", ".join(f"nullif({_TEXTS}[{place}], '')" for place in range(1, len(ASKED) + 1))
_TOKENS = "(input_tokens::HUGEINT + output_tokens + embedding_tokens)"
_MEASURED = {
    Measure.COST: "cost_pico",
    Measure.LATENCY: "latency_ms",
    Measure.TOKENS: _TOKENS,
    Measure.RESULTS: "result_count",
    Measure.SCORE: "best_score",
}

SORTS = {
    name: name
    for name in (
        "seq", "started_at", "operation_type", "status", "binding_key", "provider_key", "agent_id",
        "project_id", "issue_id", "run_id", "subject_id", "source_kind", "principal", "channel",
        "result_count", "latency_ms", "input_tokens", "output_tokens", "embedding_tokens",
        "best_score", "error_kind",
    )
} | {
    "cost_usd": "cost_pico",
    "tokens": _TOKENS,
    "what": f"lower(coalesce({_WHAT}))",
}  # fmt: skip
"""The sort keys of operations, each with its column, sum or text in SQL."""

READ = {
    *("seq", "operation_id", "to_show", *chain(*_PLACES.values()), *_SEARCHED),
    *(name for name in SORTS if name in COLUMNS),
}
"""The columns that a filter, a sort order or `INTERNAL` needs."""


def _looked_up(chosen: Filter, seq: str = "seq") -> Iterator[str]:
    """Yield the conditions of a filter on the column `seq`, in any SQL.

    Raises:
        Invalid: it has conditions on records that nobody looked up.
    """
    if chosen.uses:
        raise Invalid(f"{chosen.uses[0].use}: cannot narrow operations here; remove it.")
    if isinstance(chosen, LogFilter):
        if chosen.among is not None:
            yield f"{seq} IN ({', '.join(map(str, chosen.among)) or 'NULL'})"
        if chosen.but:
            yield f"{seq} NOT IN ({', '.join(map(str, chosen.but))})"


def visible_to(visibility: Visibility | None, handles: str = "handles") -> str:
    """Return the SQL condition of the visible operations; empty for all.

    `handles`: the SQL term for FROM of the operations' handles.
    """
    if visibility is None:
        return ""
    plain = plain_condition(visibility, handles).compile(
        dialect=default.DefaultDialect(), compile_kwargs={"literal_binds": True}
    )
    return f"({plain})"


def condition(chosen: Filter, *, begun: str = "started_at") -> str:
    """Return the condition of a filter in DuckDB's SQL; empty for all operations.

    `begun` is the column with the start of an operation.
    """
    parts = [part for test in chosen.field_tests() if (part := _asks(test))]
    parts += _looked_up(chosen)
    if chosen.since is not None:
        parts.append(f"{begun} >= {quoted(chosen.since.isoformat())}::TIMESTAMPTZ")
    if chosen.until is not None:
        parts.append(f"{begun} < {quoted(chosen.until.isoformat())}::TIMESTAMPTZ")
    parts.extend(_compared(comparison) for comparison in chosen.comparisons)
    parts.extend(_mentions(word) for word in (chosen.text or "").split())
    parts.extend(_nearly_mentions(word) for word in chosen.fuzzy)
    if chosen.excludes_internal:
        parts.append(f"NOT {INTERNAL}")
    if chosen.alternatives:
        each = (condition(one.with_internal(), begun=begun) for one in chosen.alternatives)
        parts.append(f"({' OR '.join(f'({one or True})' for one in each)})")
    return " AND ".join(parts)


def _asks(test: FieldTest) -> str:
    """Return the condition of one field; empty where operations have no such field."""
    field, values = test.field, test.values
    if field in {"text", "fuzzy"}:
        mentions = _mentions if field == "text" else _nearly_mentions
        found = " OR ".join(map(mentions, values))
    elif places := _PLACES.get(field):
        kinds, names = _kinds_and_names(test)
        equal = [f"{place} IN ({', '.join(map(_text, names))})" for place in places if names]
        if len(names) == 1:
            equal = [f"{place} = {_text(names[0])}" for place in places]
        found = " OR ".join([*equal, *(f"starts_with({field}, {_text(one)})" for one in kinds)])
    else:
        return ""
    return f"NOT coalesce({found}, false)" if test.excluded else f"({found})"


def _mentions(word: str) -> str:
    # One column after another: most words are in the first, so the others need not be read.
    lowered, names = f"lower({_text(word)})", (*_SEARCHED, "operation_id")
    return f"({' OR '.join(f'contains(lower({name}), {lowered})' for name in names)})"


def _nearly_mentions(word: str) -> str:
    wanted = quoted(pattern(str(stored_text(word)).lower()))
    return f"({' OR '.join(f'regexp_matches(lower({name}), {wanted})' for name in _SEARCHED)})"


def ordering(sort: str) -> tuple[str, str]:
    """Return the `sort_key` column of a sort such as `-cost_usd`, and its ORDER BY.

    Operations without a value come last, whichever the direction.

    Raises:
        Invalid: there is no such sort key.
    """
    name, direction = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
    if name not in SORTS:
        raise Invalid(f"Operations cannot be sorted by {name}; choose {', '.join(SORTS)}.")
    return f"{SORTS[name]} AS sort_key", f"sort_key {direction} NULLS LAST, seq {direction}"


def _compared(comparison: Comparison) -> str:
    measure, value = comparison.measure, comparison.value
    if measure is Measure.COST:
        literal = str(int(value.scaleb(12)))
    elif measure in {Measure.LATENCY, Measure.SCORE}:
        literal = f"{float(value)!r}::DOUBLE"
    else:
        literal = str(int(value))
    return f"{_MEASURED[measure]} {comparison.sign} ({literal})"


def _text(value: object) -> str:
    return quoted(str(stored_text(str(value))))


def conditions(
    dialect: str, company_id: str, chosen: Filter, visibility: Visibility | None
) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter and a visibility, for a `where` over the log's table."""
    columns = OPERATIONS.c
    found: list[ColumnElement[bool]] = [*seen(visibility)]
    if is_folded(chosen):
        found.append(not_(is_folded_away(dialect, company_id, chosen, visibility)))
    if dialect == "duckdb":
        own = condition(chosen, begun=BEGUN)
        return [*found, literal_column(own, Boolean)] if own else found
    found += [
        part for test in chosen.field_tests() if (part := _asked(company_id, test)) is not None
    ]
    numbered = _looked_up(chosen, f"{OPERATIONS.name}.seq")
    found += [literal_column(part, Boolean) for part in numbered]
    if chosen.since is not None:
        found.append(columns.started_at >= chosen.since)
    if chosen.until is not None:
        found.append(columns.started_at < chosen.until)
    found.extend(_compares(comparison) for comparison in chosen.comparisons)
    found.extend(_has(word) for word in (chosen.text or "").split())
    found.extend(_nearly_has(word) for word in chosen.fuzzy)
    if chosen.excludes_internal:
        found.append(literal_column(f"NOT {INTERNAL}", Boolean))
    if chosen.alternatives:
        each = [one.with_internal() for one in chosen.alternatives]
        tests = (conditions(dialect, company_id, one, None) for one in each)
        found.append(or_(*(and_(true(), *one) for one in tests)))
    return found


def is_folded_away(
    dialect: str, company_id: str, chosen: Filter, visibility: Visibility | None
) -> ColumnElement[bool]:
    """Return the condition that an operation is part of another one in the same list.

    In the same list: visible, matching the filter, and in the database or in the archive as well.
    """
    columns, first = OPERATIONS.c, OPERATIONS.alias("first")
    to_first = ClauseAdapter(first)
    own = conditions(dialect, company_id, apart(chosen), visibility)
    is_listed = exists().where(
        first.c.company_id == company_id,
        first.c.operation_id == columns.part_of,
        first.c.seq < columns.seq,
        first.c.part_of.is_(None),
        *map(to_first.traverse, own),
    )
    return and_(columns.part_of > "", is_listed)  # not `is_not(None)`: SQLite would scan the log


def _asked(company_id: str, test: FieldTest) -> ColumnElement[bool] | None:
    """Return the condition of one field; None: operations have no such field."""
    columns, values = OPERATIONS.c, test.values
    found: ColumnElement[bool]
    match _PLACES.get(test.field):
        case (place,):
            return among(columns[place], test)
        case (_, _) as places:
            found = columns.seq.in_(_seqs_of(company_id, places, values))
        case _ if test.field == "text":
            found = or_(*map(_has, values))
        case _ if test.field == "fuzzy":
            found = or_(*map(_nearly_has, values))
        case _:
            return None
    return not_(found) if test.excluded else found


def among(column: Column[Any], test: FieldTest) -> ColumnElement[bool]:
    """Return the condition that a column has one of a test's values; if excluded, none of them."""
    kinds, texts = _kinds_and_names(test)
    if kinds:
        found = or_(column.in_(texts), *(func.substr(column, 1, len(one)) == one for one in kinds))
        return not_(found) if test.excluded else found
    if test.excluded:
        return or_(column.is_(None), column.not_in(texts))
    return column == texts[0] if len(texts) == 1 else column.in_(texts)


def _kinds_and_names(test: FieldTest) -> tuple[list[str], list[str]]:
    """Return the values for a kind of principal, by prefix (`agent:`), and the others."""
    texts = [str(value) for value in test.values]
    kinds = [one for one in texts if test.field == "principal" and one.endswith(":")]
    return kinds, [one for one in texts if one not in kinds]


def _seqs_of(company_id: str, places: Sequence[str], values: Sequence[str]) -> CompoundSelect[int]:
    """Return the query of the operations with a value in any of the columns.

    A UNION, as an OR would use none of the columns' indexes.
    """
    columns = OPERATIONS.c
    return union_all(
        *(
            select(columns.seq).where(columns.company_id == company_id, columns[place].in_(values))
            for place in places
        )
    )


def _compares(comparison: Comparison) -> ColumnElement[bool]:
    columns, compare, value = OPERATIONS.c, _SIGNS[comparison.sign], comparison.value
    result: ColumnElement[bool]
    match comparison.measure:
        case Measure.COST:
            result = _part(compare(_dollars(), tuple_(*divmod(int(value.scaleb(12)), _PICO))))
        case Measure.TOKENS:
            # A sum of doubles cannot overflow, and is exact for all numbers that a filter takes.
            used = (USAGE.c.input_tokens, USAGE.c.output_tokens, USAGE.c.embedding_tokens)
            total = reduce(operator.add, (func.sum(cast(one, Double)) for one in used))
            result = compare(func.coalesce(_part(total), 0), int(value))
        case Measure.SCORE:
            result = compare(_part(func.max(HANDLES.c.score), HANDLES), float(value))
        case Measure.RESULTS:
            result = compare(columns.result_count, int(value))
        case Measure.LATENCY:
            result = compare(columns.latency_ms, float(value))
    return result


def _dollars() -> Any:
    """Return the sum of the priced usage as whole dollars and picodollars; it cannot overflow."""
    pico = type_coerce(USAGE.c.cost_usd, BigInteger)
    whole, rest = (cast(func.sum(part), BigInteger) for part in (pico // _PICO, pico % _PICO))
    return tuple_(whole + rest // _PICO, rest % _PICO)


def _part(value: Any, table: Any = USAGE) -> Any:
    """Return the subquery of an aggregate over the operation's rows in another table."""
    own = (table.c.company_id == OPERATIONS.c.company_id, table.c.seq == OPERATIONS.c.seq)
    return select(value).where(*own).scalar_subquery()


def _has(word: str) -> ColumnElement[bool]:
    return _searched(OPERATIONS.c.operation_id).icontains(word, autoescape=True)


def _nearly_has(word: str) -> ColumnElement[bool]:
    return func.lower(_searched()).regexp_match(pattern(str(stored_text(word)).lower()))


def _searched(*also: Column[str]) -> ColumnElement[str]:
    columns = OPERATIONS.c
    searched = (
        cast(columns.request, String), columns.error_message, columns.principal, columns.issue_id,
        columns.run_id, columns.source_issue_id, columns.source_run_id, *also,
    )  # fmt: skip
    # One text per row, because SQLite calls Python to lowercase each text.
    return reduce(operator.add, (func.coalesce(part, "") + "\n" for part in searched))
