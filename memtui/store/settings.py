"""A company's settings as rows that can be compared and restored.

A company has few of them, so a change is found by reading all before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from memtui.contract import Json, Model
from memtui.store.database import DatabaseConnection

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from sqlalchemy import Row, Table

NAMESPACE = "namespace"
PENDING = "pending"
"""Not a setting, but journaled like one: a pending change before and after a decision."""
RISK = "risk"
"""A dismissed risk, which is no setting of the company either."""
COMMON = ("company", "binding", "target", "member", "limit", "token")
"""All but pending changes, dismissed risks, and namespaces, of which there may be very many."""

_NAMED_BY = {"token": ("label",), "binding": ("key",)}
"""The columns that name a row, if that is not its primary key."""
_NOT_KEPT: Mapping[str, Json] = {"token": {"digest": ""}}
"""A token's digest is not written to the journal."""
_NOT_COMPARED = "capabilities"
"""A binding's capabilities are stored whenever its provider is opened; nobody sets them."""

Place: TypeAlias = "tuple[str, tuple[str, ...]]"
Rows: TypeAlias = "dict[Place, Row[Any]]"


class SettingChange(Model):
    """One setting before and after a change; None: it did not exist."""

    setting: str
    """Its kind: one of `COMMON`, `namespace`, `pending` or `risk`."""
    key: Json
    """The columns that name it, without its company."""
    before: Json | None
    after: Json | None

    @property
    def name(self) -> str:
        """The setting's name for a person, such as `limit agent coding usd day`."""
        if self.setting == RISK and (row := self.before or self.after):
            return f"risk {row['reason']} of {row['record_id']}"
        return " ".join([self.setting, *(str(value) for value in self.key.values() if value)])

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that changed; empty where the setting was added or removed."""
        before, after = self.before or {}, self.after or {}
        return tuple(name for name in before.keys() & after.keys() if before[name] != after[name])

    @property
    def summary(self) -> str:
        """The change for a person: `new binding a`, `removed limit b`, `binding c: read only`."""
        if self.setting in {PENDING, RISK}:
            return self.name  # its row is a decision, which the operation names
        state = "new " if self.before is None else "removed " if self.after is None else ""
        fields = ", ".join(sorted(self.fields)).replace("_", " ")
        return f"{state}{self.name}" + (f": {fields}" if fields else "")


def read(connection: DatabaseConnection, company_id: str, kinds: Collection[str] = COMMON) -> Rows:
    """Return a company's settings of these kinds by place, as database rows."""
    from sqlalchemy import select

    found: Rows = {}
    for setting in kinds:
        table = _tables()[setting][1]
        rows = connection.execute(select(table).where(table.c.company_id == company_id))
        columns = list(rows.keys())
        naming = [columns.index(name) for name in _key_of(setting)]
        for row in rows:
            found[setting, tuple(row[number] for number in naming)] = row
    return found


def changes(before: Rows, after: Rows) -> list[SettingChange]:
    """Return the differences between two readings of one company's settings."""
    found: list[SettingChange] = []
    for place in dict.fromkeys([*before, *after]):
        if before.get(place) != after.get(place):  # most are unchanged: skip the work below
            was, is_now = (shown(rows, place) for rows in (before, after))
            if not same(was, is_now):
                key = _named(place)
                found.append(SettingChange(setting=place[0], key=key, before=was, after=is_now))
    return found


def shown(rows: Rows, place: Place) -> Json | None:
    """Return a setting as a `SettingChange` has it; None where it does not exist."""
    setting, row = place[0], rows.get(place)
    if row is None:
        return None
    kind = _tables()[setting][0]
    kept: Json = _adapter(setting).dump_python(
        kind(**row._mapping),  # noqa: SLF001 — SQLAlchemy's public name
        mode="json",
        exclude=set(_NOT_KEPT.get(setting, ())),
    )
    return kept


def same(row: Json | None, other: Json | None) -> bool:
    """Whether two rows are equal, capabilities apart."""
    if row is None or other is None:
        return row is other
    return {**row, _NOT_COMPARED: None} == {**other, _NOT_COMPARED: None}


def place_of(company_id: str, change: SettingChange) -> Place:
    """Return the place of a change's setting among a company's."""
    key = {"company_id": company_id, **change.key}
    return change.setting, tuple(key[name] for name in _key_of(change.setting))


def put(connection: DatabaseConnection, company_id: str, change: SettingChange) -> None:
    """Restore a setting to its state before a change. A revoked token cannot be restored."""
    from sqlalchemy import delete, insert, update

    table = _tables()[change.setting][1]
    place = {**change.key, "company_id": company_id}
    named = [table.c[name] == value for name, value in place.items()]
    if change.before is None:
        connection.execute(delete(table).where(*named))
        return
    not_kept = _NOT_KEPT.get(change.setting, {})
    row = asdict(_adapter(change.setting).validate_python({**not_kept, **change.before}))
    values = {name: value for name, value in row.items() if name not in not_kept}
    updated = connection.execute(update(table).where(*named).values(values))
    if updated.rowcount == 0:
        connection.execute(insert(table), row)


@cache
def _tables() -> Mapping[str, tuple[type[Any], Table]]:
    """Return the row class and the table of each kind of setting."""
    from memtui.store import rows, tables

    return {
        "company": (rows.CompanyRow, tables.COMPANIES),
        "binding": (rows.BindingRow, tables.BINDINGS),
        "target": (rows.TargetRow, tables.TARGETS),
        "member": (rows.MemberRow, tables.MEMBERS),
        "limit": (rows.SpendingLimitRow, tables.SPENDING_LIMITS),
        NAMESPACE: (rows.NamespaceRow, tables.NAMESPACES),
        "token": (rows.TokenRow, tables.TOKENS),
        PENDING: (rows.PendingRow, tables.PENDING),
        RISK: (rows.DismissedRiskRow, tables.DISMISSED_RISKS),
    }


@cache
def _adapter(setting: str) -> TypeAdapter[Any]:
    """Return what makes JSON of the rows of a kind of setting, and rows of that."""
    from pydantic import TypeAdapter

    return TypeAdapter(_tables()[setting][0])


def _key_of(setting: str) -> tuple[str, ...]:
    primary = _tables()[setting][1].primary_key.columns
    return _NAMED_BY.get(setting) or tuple(column.name for column in primary)


def _named(place: Place) -> Json:
    setting, values = place
    named = dict(zip(_key_of(setting), values, strict=True))
    return {name: value for name, value in named.items() if name != "company_id"}
