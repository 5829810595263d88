"""Which column becomes which field: what the person said, else what the name tells."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtui.contract import Invalid, OperationStatus, OperationType
from memtui.importing.fields import DROP, FIELDS, KEEP, guess
from memtui.store.digest import CONTROL

_TABLES = ("columns", "operation_type", "status", "set")


@dataclass(slots=True)
class ColumnMap:
    """How rows are read. What it does not name is guessed."""

    columns: dict[str, str] = field(default_factory=dict)
    """Field by column; `imported` keeps a column as it is, `-` leaves it out."""
    types: dict[str, OperationType] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    """Words for types of which no row becomes an operation."""
    statuses: dict[str, OperationStatus] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    """Value by field, for rows that have none of their own."""
    timezone: str | None = None
    """The zone of moments that name none."""
    known: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)
    """What `target` has returned so far, in order of appearance."""

    def target(self, column: str) -> tuple[str, int]:
        """Return the field of a column, and its rank among those of the same field (0 first)."""
        found = self.known.get(column)
        if found is None:
            found = self.known[column] = self._target(column)
        return found

    def _target(self, column: str) -> tuple[str, int]:
        if column in self.columns:
            return self.columns[column], 0
        guessed = guess(column)
        if guessed is None or guessed[0] in self.columns.values():
            return KEEP, 0
        return guessed

    @property
    def seen(self) -> dict[str, str]:
        """The field of every column so far, in order of appearance."""
        return {column: name for column, (name, _) in self.known.items()}

    def unused(self) -> list[str]:
        """Return the columns that were named and never met."""
        return [column for column in self.columns if column not in self.known]


def column_map(
    words: Iterable[str],
    *,
    types: Mapping[str, str],
    statuses: Mapping[str, str],
    constants: Mapping[str, str],
    timezone: str | None,
) -> ColumnMap:
    """Build the map of `column=field` words and TOML files; a later word wins.

    Raises:
        Invalid: there is no such file, field, type, status or zone.
    """
    tables: dict[str, dict[str, str]] = {name: {} for name in _TABLES}
    zone = timezone
    for word in words:
        column, sign, name = word.rpartition("=")
        if sign and column and not word.endswith(".toml"):
            tables["columns"][column] = name
            continue
        if not word.endswith(".toml"):
            raise Invalid(f"--map takes COLUMN=FIELD or a file that ends in .toml, not {word}.")
        found = _load(Path(word))
        zone = zone or found.pop("timezone", None)
        for table in _TABLES:
            tables[table] |= found.get(table, {})
    _check_fields(tables["columns"], also=(KEEP, DROP))
    tables["set"] |= constants
    _check_fields(tables["set"])
    kinds = tables["operation_type"] | dict(types)
    left_out = frozenset(word for word, kind in kinds.items() if kind == DROP)
    kept = {word: kind for word, kind in kinds.items() if kind != DROP}
    return ColumnMap(
        columns=tables["columns"],
        types=_types(kept),
        left_out=left_out,
        statuses=_enum(OperationStatus, tables["status"] | dict(statuses), "status"),
        constants=tables["set"],
        timezone=zone,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"{path} is no TOML file ({error}).") from error
    for name, value in found.items():
        if name == "timezone" and isinstance(value, str):
            continue
        texts = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        if name not in _TABLES or not texts:
            raise Invalid(
                f"{path} has {name}; it may have timezone, and tables of texts named "
                f"{', '.join(_TABLES)}."
            )
    return found


def _check_fields(named: Mapping[str, str], also: tuple[str, ...] = ()) -> None:
    fields = named.values() if also else named.keys()
    for name in fields:
        if name not in FIELDS and name not in also:
            raise Invalid(f"There is no field {name}; the fields are {', '.join(FIELDS)}.")


def _types(named: Mapping[str, str]) -> dict[str, OperationType]:
    found: dict[str, OperationType] = _enum(OperationType, named, "operation type")
    for word, kind in found.items():
        if kind in CONTROL:
            raise Invalid(f"{word} cannot be a {kind}: that tells what memtui did to its own log.")
    return found


def _enum(kind: Any, named: Mapping[str, str], what: str) -> dict[str, Any]:
    try:
        return {word: kind(value) for word, value in named.items()}
    except ValueError as error:
        known = ", ".join(one.value for one in kind)
        raise Invalid(f"{error}; each {what} is one of {known}.") from error
