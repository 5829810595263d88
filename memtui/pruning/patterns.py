"""Patterns of change in facts with a key, from their versions (seed 002 §6, on temporal history).

"This project changes deploy branches frequently", "this was stable for six months then changed":
what a person, or an agent that reflects, should look into. No pattern alone is a reason to forget.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import combinations

from memtui.contract import OWNER_FIELDS, Model, Record, holds_at, owner_of, owner_words
from memtui.fact_values import Entry, entry_of, pair_of, value_of

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_WIDE = (("agent_id", "orchestrator"),)
"""Every project and agent reads the facts of these owners, and the company's (seed 002 §7)."""
_NEAREST_FIRST = (*OWNER_FIELDS, "company_id")
_QUOTED, _LISTED = 40, 4


class PatternKind(StrEnum):
    """The kinds of pattern."""

    DISAGREES = "disagrees"
    """Scopes that are read together have different values for one key."""
    CHANGES_OFTEN = "changes_often"
    CHANGED_LATE = "changed_late"
    """A value changed after months without a change."""


class PatternRules(Model):
    """Thresholds of the patterns."""

    often: int = 3
    """Least number of changes of a value …"""
    often_days: int = 90
    """… within so many days."""
    stood_days: int = 60
    """Days after which a value counts as settled."""
    late_days: int = 30
    """Days for which the change of a settled value is reported."""


class FactVersion(Model):
    """A version of a fact, and the binding that holds it."""

    binding_key: str
    record: Record


class Pattern(Model):
    """One pattern, and the versions that show it."""

    kind: PatternKind
    namespace: str | None
    key: str
    sentence: str
    versions: tuple[FactVersion, ...]
    """For a changed key its values, oldest first; for a disagreement each scope's value, nearest
    scope first."""


def find_patterns(
    versions: Iterable[FactVersion], *, now: datetime, rules: PatternRules | None = None
) -> tuple[Pattern, ...]:
    """Return the patterns in the versions of facts, by kind, namespace and key.

    A key of one owner in one binding is followed through every record that had it. A key without a
    valid value now is skipped.

    Args:
        versions: Current and past versions, of any scopes and bindings of one company.
        now: The current time.
        rules: The thresholds.
    """
    rules = rules or PatternRules()
    histories: dict[tuple[str, tuple[str, str], Entry], list[FactVersion]] = defaultdict(list)
    for one in versions:
        entry, record = entry_of(one.record), one.record
        begun = record.valid_from is None or record.valid_from <= now
        if entry and begun and (record.valid_to is None or record.valid_from != record.valid_to):
            histories[one.binding_key, owner_of(record.scope), entry].append(one)
    found: list[Pattern] = []
    holding: dict[Entry, list[FactVersion]] = defaultdict(list)
    for (_, _, entry), known in histories.items():
        values = _values(known)
        if holds_at(values[-1][-1].record, now):
            holding[entry].append(values[-1][-1])
            found += _changes(values, now, rules)
    for rivals in holding.values():
        found += _disagreeing(rivals)
    order = list(PatternKind)
    return tuple(
        sorted(found, key=lambda one: (order.index(one.kind), one.namespace or "", one.key))
    )


def _values(known: Iterable[FactVersion]) -> list[list[FactVersion]]:
    """Group versions by value, oldest first; consecutive versions of one value form a group."""
    values: list[list[FactVersion]] = []
    for one in sorted(known, key=lambda one: one.record.valid_from or _EARLIEST):
        if values and _said(values[-1][-1].record) == _said(one.record):
            values[-1].append(one)
        else:
            values.append([one])
    return values


def _changes(
    values: Sequence[Sequence[FactVersion]], now: datetime, rules: PatternRules
) -> Iterator[Pattern]:
    """Yield the patterns in the changes of one key."""
    since = now - timedelta(days=rules.often_days)
    starts = [value[0].record.valid_from for value in values]
    recent = [at for at in starts[1:] if at is not None and at > since]
    if len(recent) >= rules.often:
        newest = values[-len(recent) - 1 :]
        said = " → ".join(_quoted(value[0].record) for value in newest[-_LISTED:])
        yield _pattern(
            PatternKind.CHANGES_OFTEN,
            f"It changed {len(recent)} times in {rules.often_days} days: {said}.",
            [value[0] for value in newest],
        )
    if len(values) < 2 or starts[-2] is None or starts[-1] is None:
        return
    stood, changed = starts[-1] - starts[-2], starts[-1]
    if stood.days >= rules.stood_days and (now - changed).days < rules.late_days:
        yield _pattern(
            PatternKind.CHANGED_LATE,
            f"It said {_quoted(values[-2][0].record)} for {stood.days:,} days, and has said "
            f"{_quoted(values[-1][0].record)} since {changed:%Y-%m-%d}.",
            [values[-2][0], values[-1][0]],
        )


def _disagreeing(rivals: Sequence[FactVersion]) -> Iterator[Pattern]:
    """Yield the disagreements among current values of a key that are read together."""
    together: dict[int, set[int]] = {}
    for (left, one), (right, other) in combinations(enumerate(rivals), 2):
        if _are_read_together(one.record, other.record) and _said(one.record) != _said(
            other.record
        ):
            joined = together.get(left, {left}) | together.get(right, {right})
            together.update(dict.fromkeys(joined, joined))
    for group in {min(places): places for places in together.values()}.values():
        sides = sorted((rivals[place] for place in group), key=_nearness)
        said = [f"{_place(one)} says {_quoted(one.record)}" for one in sides[:_LISTED]]
        more = f"; and {len(sides) - _LISTED} more" if len(sides) > _LISTED else ""
        sentence = "; ".join(said)
        yield _pattern(PatternKind.DISAGREES, f"{sentence[0].upper()}{sentence[1:]}{more}.", sides)


def _are_read_together(one: Record, other: Record) -> bool:
    """Whether both are read together: same owner, one is for all, or one is the other's agent's."""
    left, right = owner_of(one.scope), owner_of(other.scope)
    if left == right or {left, right} & {("company_id", one.scope.company_id), *_WIDE}:
        return True
    agents = {record.scope.agent_id for record in (one, other)} - {None}
    return "agent_id" in {left[0], right[0]} and len(agents) == 1


def _nearness(one: FactVersion) -> tuple[int, str, str]:
    field, name = owner_of(one.record.scope)
    return _NEAREST_FIRST.index(field), name, one.binding_key


def _pattern(kind: PatternKind, sentence: str, versions: Sequence[FactVersion]) -> Pattern:
    record = versions[-1].record
    pair = pair_of(record.text)
    return Pattern(
        kind=kind,
        namespace=record.topic or None,
        key=pair.key if pair else str(record.metadata.get("key")),
        sentence=sentence,
        versions=tuple(versions),
    )


def _place(one: FactVersion) -> str:
    return f"{owner_words(one.record.scope)} in {one.binding_key}"


def _said(record: Record) -> object:
    """Return a fact's value in a form that can be compared."""
    return repr(value_of(record))


def _quoted(record: Record) -> str:
    pair = pair_of(record.text)
    text = " ".join((pair.value if pair else record.text).split())
    return f"“{text if len(text) <= _QUOTED else text[: _QUOTED - 1] + '…'}”"
