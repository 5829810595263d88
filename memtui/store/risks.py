"""What is known of the risks of records: reasons and salted digests, without texts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from memtui.contract import Record, Snapshot
from memtui.store import statements
from memtui.store.database import DatabaseConnection, stored
from memtui.store.rows import RiskCheckRow, RiskRow

WHOLE = "-"
"""In place of a text's digest, in the rows that say when a whole binding was checked.

In place of a record's id they have the digest of whose records the reader sees; empty: all.
"""


class Owner(NamedTuple):
    """The parts of a record's scope that decide who may see it."""

    project_id: str | None
    subject_id: str | None


class KnownRisk(NamedTuple):
    """A risk that was found."""

    binding_key: str
    record_id: str
    reason: str
    other_id: str
    """The record that it was compared with; empty: none."""
    mark: str
    owner: Owner
    other: Owner
    """The owner of the other record."""
    is_fresh: bool
    """Whether the record has not changed since, and neither has the other."""
    dismissed: bool


class Count(NamedTuple):
    """How many records of an owner in a binding are known, and how many are checked."""

    binding_key: str
    owner: Owner
    records: int
    checked: int


def unchecked(record: Record, company_id: str, binding_key: str) -> RiskCheckRow:
    """Return the row of a record whose risks are not known."""
    return RiskCheckRow(
        company_id=company_id,
        binding_key=binding_key,
        record_id=record.handle.provider_record_id,
        project_id=record.scope.project_id,
        subject_id=record.scope.subject_id,
        text_digest="",
        state_digest="",
    )


def outdate(
    connection: DatabaseConnection,
    company_id: str,
    binding_key: str,
    steps: Iterable[tuple[Snapshot, Snapshot | None]],
) -> None:
    """Note that records have changed: they, and those compared with them, are to be checked."""
    for before, after in steps:
        record_id = before.handle.provider_record_id
        record = after.record if after is not None else before.record
        statements.OUTDATE_COMPARED.run(
            connection, company=company_id, binding=binding_key, record=record_id
        )
        if record is not None:
            row = unchecked(record, company_id, binding_key)
            statements.SET_RISK_CHECK.insert(connection, [_values(row)])
        elif after is not None:
            forget(connection, company_id, binding_key, [record_id])


def checks(
    connection: DatabaseConnection, company_id: str, binding_key: str
) -> dict[str, RiskCheckRow]:
    """Return the rows of a binding's records by id; `WHOLE` marks those of the binding."""
    found = statements.RISK_CHECKS.found(
        connection, RiskCheckRow, company_id=company_id, binding_key=binding_key
    )
    return {row.record_id: row for row in found}


def of_records(
    connection: DatabaseConnection, company_id: str, binding_key: str, ids: Sequence[str]
) -> tuple[dict[str, RiskCheckRow], list[KnownRisk]]:
    """Return the rows of some records by id, and their risks."""
    rows: dict[str, RiskCheckRow] = {}
    risks: list[KnownRisk] = []
    for asked in statements.id_lists(ids):
        asked |= {"company_id": company_id, "binding_key": binding_key}
        found = statements.RISK_CHECKS_OF.found(connection, RiskCheckRow, **asked)
        rows |= {row.record_id: row for row in found}
        risks += _known(statements.RISKS_OF.each(connection, **asked))
    return rows, risks


def of_company(connection: DatabaseConnection, company_id: str) -> list[KnownRisk]:
    """Return the risks of all records of a company."""
    return [*_known(statements.RISKS.each(connection, company_id=company_id))]


def of_binding(
    connection: DatabaseConnection, company_id: str, binding_key: str
) -> list[KnownRisk]:
    """Return the risks of all records of a binding."""
    found = statements.RISKS_OF_BINDING.each(
        connection, company_id=company_id, binding_key=binding_key
    )
    return [*_known(found)]


def _known(rows: Iterable[tuple[Any, ...]]) -> Iterator[KnownRisk]:
    for key, record_id, reason, other_id, mark, *owners, is_fresh, dismissed in rows:
        own, other = Owner(*owners[:2]), Owner(*owners[2:])
        yield KnownRisk(key, record_id, reason, other_id, mark, own, other, is_fresh, dismissed)


def counts(
    connection: DatabaseConnection, company_id: str
) -> tuple[list[Count], set[tuple[str, str]]]:
    """Return how many records are known and checked, and which bindings were checked as a whole.

    Of these, each with the digest of whose records the reader saw.
    """
    found, whole = list[Count](), set[tuple[str, str]]()
    rows = statements.COUNT_RISK_CHECKS.each(connection, company_id=company_id)
    for key, project_id, subject_id, reader, records, checked in rows:
        if reader is None:
            found.append(Count(key, Owner(project_id, subject_id), records, checked))
        elif checked:
            whole.add((key, reader))
    return found, whole


def store(
    connection: DatabaseConnection, rows: Sequence[RiskCheckRow], risks: Sequence[RiskRow]
) -> None:
    """Store the rows of records in place of the former ones, with their risks."""
    for row in rows:
        place = {"company_id": row.company_id, "binding_key": row.binding_key}
        statements.REMOVE_RISKS.run(connection, **place, record_id=row.record_id)
    statements.SET_RISK_CHECK.insert(connection, [*map(_values, rows)])
    statements.ADD_RISK.insert(connection, [*map(_values, risks)])


def forget(
    connection: DatabaseConnection, company_id: str, binding_key: str, ids: Collection[str]
) -> int:
    """Remove what is known of records; returns of how many something was."""
    place = {"company_id": company_id, "binding_key": binding_key}
    for record_id in ids:
        statements.REMOVE_RISKS.run(connection, **place, record_id=record_id)
    return sum(
        statements.REMOVE_RISK_CHECK.run(connection, **place, record_id=record_id)
        for record_id in ids
    )


def forget_binding(connection: DatabaseConnection, company_id: str, binding_key: str) -> None:
    """Remove what is known of all records of a binding."""
    for statement in statements.REMOVE_RISKS_OF_BINDING:
        statement.run(connection, company_id=company_id, binding_key=binding_key)


def dismissed(connection: DatabaseConnection, company_id: str) -> set[str]:
    """Return the marks of the dismissed risks."""
    return {mark for (mark,) in statements.DISMISSED_RISKS.each(connection, company_id=company_id)}


def _values(row: RiskCheckRow | RiskRow) -> tuple[object, ...]:
    return tuple(map(stored, astuple(row)))
