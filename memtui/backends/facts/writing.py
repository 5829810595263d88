"""What is changed in the fact tables: one row at a time, and only as it was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from memtui.contract import Conflict, Invalid, NotFound

from .errors import is_missing_parent
from .fact import Fact
from .tables import DETAILS, OWNERS, TABLES, as_moment, as_text

_MOMENTS = ("updated_at", "expires_at")


class Writer:
    """Changes facts in one transaction. Blocking."""

    def __init__(self, connection: Connection, *, has_details: bool) -> None:
        self._connection = connection
        self._has_details = has_details

    def check_room(self, scope: str, owner: str, max_facts: int) -> None:
        """Raise `Invalid` if the user or drive has no room for one more fact."""
        table = TABLES[scope]
        counted = select(func.count()).select_from(table).where(table.c[OWNERS[scope]] == owner)
        held = self._connection.execute(counted).scalar_one()
        if held >= max_facts:
            raise Invalid(
                f"The {scope} {owner} has {held} facts, and {max_facts} is the limit; forget one "
                "that is no longer needed."
            )

    def check_free(self, record_id: str) -> None:
        """Raise `Conflict` if either table holds the id."""
        for table in TABLES.values():
            taken = select(table.c.id).where(table.c.id == record_id)
            if self._connection.execute(taken).first():
                raise Conflict(
                    f"There is already a fact {record_id}; write it with mode upsert in its own "
                    "scope, or leave the id out."
                )

    def check_details(self, fact: Fact) -> None:
        """Raise `Invalid` if there is no place for the details that the fact has."""
        if fact.details is not None and not self._has_details:
            raise Invalid(
                "The fact had a pin, tags or a source, and the table that held them is gone; set "
                "create to true to have it again."
            )

    def add(self, fact: Fact, creators: Sequence[str | None]) -> None:
        """Insert a fact, made by the first of `creators` that the table takes.

        Raises:
            NotFound: there is no such user or drive.
        """
        for created_by in creators:
            try:
                with self._connection.begin_nested():
                    self._insert(fact, created_by)
            except IntegrityError as error:
                if not is_missing_parent(error):
                    raise
                continue
            self._put_details(fact)
            return
        raise NotFound(
            f"There is no {fact.scope} {fact.owner} in this database, so it can have no facts; "
            "check the id."
        )

    def replace(self, before: Fact, after: Fact) -> None:
        """Change a fact's own row and details. Raises `Conflict` if it is no longer `before`."""
        values: dict[str, Any] = {"fact": after.text, "source": after.source}
        if after.created_at != before.created_at:
            values["createdAt"] = as_moment(self._connection, after.created_at)
        if after.created_by != before.created_by:
            values["createdBy"] = after.created_by
        changed = {"fact": before.text, "source": before.source}
        if values != changed:
            statement = update(TABLES[before.scope]).where(*_exactly(before)).values(values)
            self._need_one(statement, before)
        if after.details != before.details:
            self._put_details(after)

    def remove(self, fact: Fact) -> None:
        """Delete a fact. Raises `Conflict` if it is no longer as it was read."""
        self._need_one(delete(TABLES[fact.scope]).where(*_exactly(fact)), fact)
        self._drop_details(fact)

    def _insert(self, fact: Fact, created_by: str | None) -> None:
        values = {
            "id": fact.id,
            OWNERS[fact.scope]: fact.owner,
            "fact": fact.text,
            "createdAt": as_moment(self._connection, fact.created_at),
            "source": fact.source,
            **({"createdBy": created_by} if fact.scope == "drive" else {}),
        }
        self._connection.execute(insert(TABLES[fact.scope]).values(values))

    def _put_details(self, fact: Fact) -> None:
        self._drop_details(fact)
        if self._has_details and fact.details is not None:
            values = fact.details.model_dump()
            for name in _MOMENTS:
                values[name] = as_moment(self._connection, values[name])
            values |= {"scope": fact.scope, "id": fact.id}
            self._connection.execute(insert(DETAILS).values(values))

    def _drop_details(self, fact: Fact) -> None:
        if self._has_details:
            same = and_(DETAILS.c.scope == fact.scope, DETAILS.c.id == fact.id)
            self._connection.execute(delete(DETAILS).where(same))

    def _need_one(self, statement: Any, fact: Fact) -> None:
        if self._connection.execute(statement).rowcount != 1:
            raise Conflict(
                f"Another program changed the fact {fact.record_id} at this moment; read it again."
            )


def _exactly(fact: Fact) -> list[ColumnElement[bool]]:
    column = TABLES[fact.scope].c
    conditions = [
        column.id == fact.id,
        column[OWNERS[fact.scope]] == fact.owner,
        column.fact == fact.text,
        as_text(column.createdAt) == fact.created_at,
        column.source.is_not_distinct_from(fact.source),
    ]
    if fact.scope == "drive":
        conditions.append(column.createdBy.is_not_distinct_from(fact.created_by))
    return conditions
