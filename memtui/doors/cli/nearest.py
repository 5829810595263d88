"""Values of a filter that nothing has, named with what is near to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from memtui.doors.cli.session import Session

if TYPE_CHECKING:
    from memtui.contract import Filter, Record, Scope

_LOOKED_AT = 500
"""The newest operations, or as many records, whose values are compared."""
_NEAR = 60
"""From this likeness on, of 100, a value is near."""
_MOST_NEAR = 3
_NAMES = ("agent", "project", "issue", "run", "subject", "binding", "door", "by", "topic", "tag")

_Has = Callable[["Filter"], Awaitable[bool]]


async def say_unknown_of_operations(session: Session, chosen: Filter) -> None:
    """Name each value of a filter that no operation has; for where it found none."""
    from memtui.widgets.filter_words import known_values

    async def has(only: Filter) -> bool:
        return bool((await session.service.log.page(session.caller, only, limit=1)).total)

    if names := _given(chosen):
        page = await session.service.log.page(session.caller, limit=_LOOKED_AT)
        await _say(session, names, known_values(page.operations), has)


async def say_unknown_of_records(
    session: Session, chosen: Filter, scope: Scope, binding: str | None
) -> None:
    """Name each value of a filter that no record has; for where it found none."""
    from memtui.contract import BrowseRequest, Filter

    async def browsed(only: Filter, limit: int) -> tuple[Record, ...]:
        request = BrowseRequest(scope=scope, binding_key=binding, filter=only, limit=limit)
        return (await session.service.browse(session.caller, request)).records

    async def has(only: Filter) -> bool:
        return bool(await browsed(only, 1))

    names = {name: value for name, value in _given(chosen).items() if name != "binding"}
    if names:
        await _say(session, names, _values_of(await browsed(Filter(), _LOOKED_AT)), has)


def _given(chosen: Filter) -> dict[str, str]:
    from memtui.filters import FIELDS

    given = {name: getattr(chosen, FIELDS[name]) for name in _NAMES}
    return {name: value for name, value in given.items() if value is not None}


async def _say(
    session: Session, given: Mapping[str, str], known: Mapping[str, Iterable[str]], has: _Has
) -> None:
    from rapidfuzz import process

    from memtui.contract import Filter
    from memtui.filters import FIELDS

    for name, value in given.items():
        if await has(Filter.model_validate({FIELDS[name]: value})):
            continue
        found = process.extract(
            value, list(known.get(name, ())), limit=_MOST_NEAR, score_cutoff=_NEAR
        )
        near = " and ".join(f"{name}:{other}" for other, _, _ in found)
        session.out.say(f"Nothing has {name}:{value}" + (f"; near is {near}." if near else "."))


def _values_of(records: Iterable[Record]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in _NAMES}
    for record in records:
        source = record.source
        values = {
            "agent": record.scope.agent_id,
            "project": record.scope.project_id,
            "subject": record.scope.subject_id,
            "issue": source.issue_id if source else None,
            "run": source.run_id if source else None,
            "topic": record.topic,
        }
        for name, value in values.items():
            found[name].update({value} if value else ())
        found["tag"].update(record.tags)
    return found
