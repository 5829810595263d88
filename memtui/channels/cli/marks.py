"""The marks of risky records in the lists of the command line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from memtui.channels.cli.output import jsonable
from memtui.contract import Record
from memtui.presenters.risks import briefly, sign, sign_of
from memtui.store.operation import Operation, Place

if TYPE_CHECKING:
    from memtui.channels.cli.session import Session
    from memtui.service.review.known_risks import RiskMark


class RiskMarks(NamedTuple):
    """What is known of the risks of records, by binding and id."""

    known: Mapping[Place, RiskMark]

    def of(self, key: str, record: Record) -> RiskMark | None:
        """Return what is known of a record of a binding."""
        return self.known.get((key, record.handle.provider_record_id))

    def sign(self, key: str, record: Record) -> str:
        """Return the mark of a record (`memtui.presenters.risks.sign`)."""
        return sign(self.of(key, record))

    def briefly(self, key: str, record: Record) -> str:
        """Return the risks of a record in words; empty where none is known."""
        mark = self.of(key, record)
        return briefly(mark) if mark is not None and (mark.checked or mark.held) else ""

    def risks(self, key: str, record: Record) -> Any:
        """Return the risks of a record as JSON; null: it is not checked."""
        return _document(self.of(key, record))

    def document(self, key: str, record: Record) -> dict[str, Any]:
        """Return a record as JSON with its `risks` (null: it is not checked), and if it is held."""
        mark = self.of(key, record)
        return {**jsonable(record), "risks": _document(mark), "held": bool(mark and mark.held)}

    def with_risks(self, operation: Operation) -> dict[str, Any]:
        """Return an operation as JSON with the `risks` of what it wrote or changed, by id."""
        return {**jsonable(operation), "risks": self.risks_at(changed(operation))}

    def risks_at(self, places: Iterable[Place]) -> dict[str, Any]:
        """Return the risks of records by id, as JSON; null: one is not checked."""
        return {place[1]: _document(self.known.get(place)) for place in places}

    def worst_at(self, places: Iterable[Place]) -> str:
        """Return the mark of the worst risk of some records, if there is any."""
        known = filter(None, map(self.known.get, places))
        return sign_of(reason for one in known for reason in one.reasons)


async def marks_of(session: Session, records: Iterable[tuple[str, Record | str]]) -> RiskMarks:
    """Return what is known of the risks of records or their ids, each with its binding's key."""
    places: dict[str, list[Record | str]] = defaultdict(list)
    for key, record in records:
        places[key].append(record)
    return RiskMarks(await session.service.known_risks.marks(session.caller, places))


def changed(operation: Operation) -> list[Place]:
    """Return the binding and id of each record that an operation wrote or changed."""
    mutates = operation.operation_type.mutates
    return [*map(operation.place_of, operation.handles if mutates else ())]


def _document(mark: RiskMark | None) -> Any:
    return jsonable(mark)["risks"] if mark is not None and mark.checked else None
