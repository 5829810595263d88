"""Completions of a filter line, and the filter in words."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo

from memtui.contract import (
    Comparison,
    FieldTest,
    Filter,
    Measure,
    OperationStatus,
    OperationType,
    Record,
    SourceKind,
    Use,
    UseTest,
)
from memtui.filters import FIELDS, MEASURES, RISK_WORDS, USES, WORD_OF, span_words
from memtui.presenters.format import minute
from memtui.store.operation import OperationDraft

_VALUES: dict[str, tuple[str, ...]] = {
    "type": tuple(one.value for one in OperationType),
    "status": tuple(one.value for one in OperationStatus),
    "source": tuple(one.value for one in SourceKind),
    "since": ("today", "yesterday", "1h", "24h", "7d", "30d", "3mo"),
    "until": ("today", "yesterday", "1h", "24h", "7d", "30d"),
    "read": ("never", "<1d", "<7d", "<30d", ">30d"),
    "stale": (">30d", ">90d"),
    "cost": (">20", ">50", ">100"),
    "dup": ("yes", "no"),
    "risk": tuple(dict.fromkeys(("any", "none", *RISK_WORDS))),
}
_MOST = 12
_LONGEST = 80


def last_term(line: str) -> str:
    """Return the term that is being written; empty after a blank."""
    return "" if line[-1:].isspace() else line.rpartition(" ")[2]


def completions(
    line: str, known: Mapping[str, Sequence[str]], most: int | None = _MOST
) -> list[str]:
    """Return completions of the term that is being written.

    Args:
        line: The line up to the cursor.
        known: Values that occur in the log, by field.
        most: How many at most; None: all.
    """
    term = last_term(line)
    sign = "-" if term.startswith("-") else ""
    field, colon, written = term.removeprefix("-").partition(":")
    if not colon:
        names = [
            name
            for name in (*WORD_OF.values(), *USES)
            if not sign or name not in {"since", "until"}
        ]
        words = [f"{sign}{name}:" for name in names]
        if not sign:
            words += [f"{name}>" for name in MEASURES]
        return [word for word in words if word.startswith(term)][:most]
    word = WORD_OF.get(FIELDS.get(field, ""), field)
    values = _VALUES.get(word) or known.get(word, ())
    before, comma, part = written.rpartition(",")
    found = [value for value in values if value.casefold().startswith(part.casefold())]
    kept = f"{sign}{field}:{before}{comma}"
    taken = {part, *before.split(",")}
    quote = str if field in USES else shlex.quote
    return [f"{kept}{quote(value)}" for value in found if value not in taken][:most]


def completed(line: str, word: str) -> str:
    """Return a line with a completion in place of its last term; a blank follows a value."""
    term = last_term(line)
    kept = line[: len(line) - len(term)]
    return f"{kept}{word}" if word.endswith((":", ">")) else f"{kept}{word} "


_SIGNS = {"<": "under", "<=": "at most", "=": "exactly", ">=": "at least", ">": "over"}
_MEASURED = {Measure.LATENCY: "took", Measure.SCORE: "best score"}


def understood(chosen: Filter, zone: tzinfo) -> str:
    """Return a filter in words, with moments in `zone`: `type is not query, agent is a or b`."""
    said = list(_said(chosen, zone))
    if chosen.alternatives:
        parts = (" and ".join(_said(one, zone)) for one in chosen.alternatives)
        said.append(" or ".join(f"({one})" if " and " in one else one for one in parts))
    return ", ".join(said)


def _said(chosen: Filter, zone: tzinfo) -> Iterator[str]:
    tests = list(chosen.field_tests())
    for field in WORD_OF:
        yield from (_tested(test) for test in tests if test.field == field)
    if chosen.since is not None:
        yield f"since {minute(chosen.since, zone)}"
    if chosen.until is not None:
        yield f"before {minute(chosen.until, zone)}"
    yield from map(_compared, chosen.comparisons)
    yield from map(_used, chosen.uses)
    if chosen.text:
        yield f"has {_joined(chosen.text.split(), 'and')}"
    if chosen.fuzzy:
        yield f"has what is like {_joined(chosen.fuzzy, 'and')}"
    for field, without in (("text", "without"), ("fuzzy", "without what is like")):
        yield from (f"{without} {_joined(one.values, 'or')}" for one in tests if one.field == field)


def _tested(test: FieldTest) -> str:
    values, no = _joined(test.values, "or"), "not " if test.excluded else ""
    if test.field == "principal":
        who = [f"any {one[:-1]}" if one.endswith(":") else one for one in test.values]
        return f"{no}by {_joined(who, 'or')}"
    below = " or below" if test.field == "tag" else ""
    return f"{WORD_OF[test.field]} is {no}{values}{below}"


def _compared(one: Comparison) -> str:
    number = f"{one.value:,f}"
    value = {Measure.COST: f"${number}", Measure.LATENCY: f"{number} ms"}.get(one.measure, number)
    return f"{_MEASURED.get(one.measure, one.measure)} {_SIGNS[one.sign]} {value}"


def _used(one: UseTest) -> str:
    no = "not " if one.excluded else ""
    if one.use is Use.RISK:
        return f"risk is {no}{_joined([word.replace('_', ' ') for word in one.among], 'or')}"
    if one.use is Use.DUP:
        return "repeats nothing" if one.excluded else "repeats another"
    if one.use is Use.COST:
        return f"{no}{_SIGNS[one.sign]} {one.value:,} tokens in a context"
    if one.value is None:
        return "read at least once" if one.excluded else "never read"
    span = span_words(one.value)
    return f"{no}read within {span}" if one.sign == "<" else f"{no}last read over {span} ago"


def _joined(words: Sequence[str], joint: str) -> str:
    *first, last = words
    return f"{', '.join(first)} {joint} {last}" if first else last


def known_values(operations: Iterable[OperationDraft]) -> dict[str, tuple[str, ...]]:
    """Return the values of each field in some operations, as `_distinct` does."""

    def values(one: OperationDraft) -> dict[str, str | None]:
        scope = one.scope
        return {
            "agent": scope.agent_id,
            "project": scope.project_id,
            "issue": scope.issue_id,
            "run": scope.run_id,
            "user": scope.subject_id,
            "binding": one.binding_key,
            "channel": one.channel,
            "by": one.principal,
        }

    return _distinct(map(values, operations))


def values_of(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    """Return the values of the fields of a new record in some records, as `_distinct` does."""

    def values(one: Record) -> dict[str, str | None]:
        scope = one.scope
        owners = {"project": scope.project_id, "agent": scope.agent_id, "subject": scope.subject_id}
        return {**owners, "kind": one.kind, "topic": one.topic}

    return _distinct(map(values, records))


def _distinct(rows: Iterable[Mapping[str, str | None]]) -> dict[str, tuple[str, ...]]:
    """Return the values of each field, each once, in order of appearance.

    Values that are long or not printable are left out, as nobody could type them.
    """
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for field, value in row.items():
            if value and len(value) <= _LONGEST and value.isprintable():
                found.setdefault(field, {})[value] = None
    return {field: tuple(values) for field, values in found.items()}
