"""Filters as conditions, for records in memory and for stores with a query language."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from memtui.contract import Filter, Json, QueryRequest, Record, Scope, has_tag, sees
from memtui.fuzzy import finds
from memtui.text_analysis import folded

Column = TypeVar("Column")
Clause = TypeVar("Clause")

Test = Literal["is", "has", "from", "before", "holds", "finds"]
"""Test of a field: equals a value; has a tag (`has_tag`); at or after a moment, or before it;
contains a word in any case; matches a fuzzy word (`memtui.fuzzy`)."""

_EQUAL = (
    "agent_id", "project_id", "subject_id", "issue_id", "comment_id", "run_id", "source_kind",
    "topic", "kind",
)  # fmt: skip
_OF_WORK = frozenset({"issue_id", "run_id"})
ENOUGH_OF_TOPIC = 3
"""If a topic has fewer records, all topics are searched (seed 002, topic filtering)."""


class Condition(NamedTuple):
    """A condition on a record's field: the test holds for at least one of the values."""

    field: str
    test: Test
    values: tuple[Any, ...]
    excluded: bool = False
    """Whether it must hold for none of the values; a field without a value then passes."""


_TESTED: dict[str, tuple[str, Test]] = {
    **{field: (field, "is") for field in _EQUAL},
    "tag": ("tags", "has"),
    "text": ("text", "holds"),
    "fuzzy": ("text", "finds"),
}


def conditions(wanted: Filter) -> Iterator[Condition]:
    """Yield the conditions of a filter but its alternatives; a record must pass all of them."""
    for field, values, excluded in wanted.field_tests():
        if field in _TESTED:
            yield Condition(*_TESTED[field], values, excluded)
    if wanted.since is not None:
        yield Condition("created_at", "from", (wanted.since,))
    if wanted.until is not None:
        yield Condition("created_at", "before", (wanted.until,))
    for word in (wanted.text or "").split():
        yield Condition("text", "holds", (word,))
    for word in wanted.fuzzy:
        yield Condition("text", "finds", (word,))


class Translated(NamedTuple, Generic[Clause]):
    """A condition in a store's query language: one clause must hold, or, if excluded, none."""

    clauses: tuple[Clause, ...]
    """If empty, no record passes; if also excluded, every record does."""
    excluded: bool
    """Whether no clause may hold; one that is unknown, as NULL in SQL, does not hold."""


def translated(
    wanted: Filter,
    columns: Mapping[str, Column],
    tests: Mapping[Test, Callable[[Column, Any], Clause]],
) -> Iterator[Translated[Clause]]:
    """Yield a filter's conditions in a store's query language; all must hold.

    The store translates each of the filter's alternatives by itself.

    `columns` maps a field to its column; in a field without one, no record has a value.
    """
    for field, test, values, excluded in conditions(wanted):
        column = columns.get(field)
        clauses = () if column is None else tuple(tests[test](column, value) for value in values)
        yield Translated(clauses, excluded)


def matcher(wanted: Filter) -> Callable[[Record], bool]:
    """Return the test whether a record passes a filter.

    An issue or a run may be in the record's scope or source. Words are searched in title, text and
    summary.
    """
    asked = [
        one._replace(values=tuple(map(folded, one.values))) if one.test == "holds" else one
        for one in conditions(wanted)
    ]

    others = [matcher(one) for one in wanted.alternatives]

    def passes(record: Record) -> bool:
        return all(
            any(_passes(record, field, test, value) for value in values) != excluded
            for field, test, values, excluded in asked
        ) and (not others or any(other(record) for other in others))

    return passes


def _passes(record: Record, field: str, test: Test, value: Any) -> bool:
    match test:
        case "is":
            return value in values_of(record, field)
        case "has":
            return has_tag(record.tags, value)
        case "from":
            return record.created_at is not None and record.created_at >= value
        case "before":
            return record.created_at is not None and record.created_at < value
    text = "\n".join((record.title or "", record.text, record.summary or ""))
    return finds(value, text) if test == "finds" else value in folded(text)


def values_of(record: Record, field: str) -> tuple[object, ...]:
    """Return a record's values in a field of `conditions`; None stands for no value."""
    if field == "tags":
        return record.tags
    if field in {"topic", "kind"}:
        return (getattr(record, field),)
    if field in {"source_kind", "comment_id"}:
        return (getattr(record.source, field.removeprefix("source_"), None),)
    own = getattr(record.scope, field)
    return (own, getattr(record.source, field, None)) if field in _OF_WORK else (own,)


def within(scope: Scope, owner: Scope) -> bool:
    """Whether an owner has every id of a scope, issue and run among them."""
    asked = scope.model_dump(exclude_none=True)
    return asked.items() <= owner.model_dump(include=set(asked)).items()


def eligible(
    request: QueryRequest, is_seen: Callable[[Scope, Record], bool] | None = None
) -> Callable[[Record], bool]:
    """Return the test of a query's scope, filter, topic and metadata; its words are not tested.

    A record without a topic is eligible for any topic. `is_seen` is a provider's own rule of
    scopes (`Adapter.sees`).
    """
    passes = matcher(request.filter)
    return lambda record: (
        (is_seen(request.scope, record) if is_seen else sees(request.scope, record.scope))
        and passes(record)
        and (request.topic is None or record.topic in {None, request.topic})
        and has_metadata(record, request.metadata_filter)
    )


def has_metadata(record: Record, wanted: Json) -> bool:
    """Whether a record's metadata has every name and value of a `metadata_filter`."""
    metadata = record.metadata
    return all(name in metadata and metadata[name] == value for name, value in wanted.items())
