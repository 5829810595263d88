"""Temporal facts: entries of one key, each a value with its validity window (seed 002 §6).

A change ends the current entry's window and starts a new entry; both entries stay.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import unquote

from memtui.contract import Record, Scope

from .expressions import all_of, one_of, quoted
from .rows import TEMPORAL, Row, details_of, fact_name, moment_of, record_of, window_of

_NUMBER = re.compile(r"-\d+$")
"""The suffix in the name of a further fact of one key."""
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MilvusVersion:
    """One value and its validity window."""

    row: Row
    begins: datetime | None
    ends: datetime | None

    def holds(self, moment: datetime) -> bool:
        """Whether the version is valid at a moment."""
        return (self.begins or _FIRST) <= moment < (self.ends or _LAST)


@dataclass(frozen=True, slots=True)
class MilvusFact:
    """A fact's versions, the oldest first.

    If windows of another program's entries overlap, the later version counts.
    """

    name: str
    versions: tuple[MilvusVersion, ...]

    def at(self, moment: datetime) -> MilvusVersion | None:
        """Return the version that is valid at a moment."""
        return next((one for one in reversed(self.versions) if one.holds(moment)), None)

    def current(self, now: datetime) -> MilvusVersion | None:
        """Return the version that is valid now, or else the next one."""
        coming = (one for one in self.versions if one.begins is not None and one.begins > now)
        return self.at(now) or next((one for one in coming if one.ends != one.begins), None)

    def record(self, version: MilvusVersion, collection: str, owner: Scope) -> Record:
        """Return a version as the fact's record."""
        known = (moment_of(details_of(one.row).get("created_at")) for one in self.versions)
        created = next(filter(None, known), None) or self.versions[0].begins
        record = record_of(version.row, collection, owner, created=created)
        return record.model_copy(update={"valid_from": version.begins, "valid_to": version.ends})


def facts_of(rows: Iterable[Row]) -> list[MilvusFact]:
    """Group entries into facts; entries that are not temporal are left out."""
    found: dict[str, list[MilvusVersion]] = {}
    for row in rows:
        if row.get("entry_type") == TEMPORAL:
            found.setdefault(fact_name(row), []).append(MilvusVersion(row, *window_of(row)))
    return [MilvusFact(name, _in_order(versions)) for name, versions in found.items()]


def _in_order(versions: list[MilvusVersion]) -> tuple[MilvusVersion, ...]:
    versions.sort(
        key=lambda one: (one.begins or _FIRST, one.ends or _LAST, str(one.row["entry_id"]))
    )
    for at, following in enumerate(versions[1:]):
        begins = following.begins
        if begins is not None and begins < (versions[at].ends or _LAST):
            versions[at] = replace(versions[at], ends=begins)
    return tuple(versions)


def of_fact(name: str) -> str:
    """Return an expression that matches the entries of a fact, and a few others.

    It only uses declared fields: Milvus Lite is ten times slower with dynamic ones.
    """
    namespace, key = name.split("/", 1) if "/" in name else ("", name)
    keys = dict.fromkeys((key, _NUMBER.sub("", key), ""))
    return all_of(
        [
            f"entry_type == {quoted(TEMPORAL)}",
            f"kv_namespace == {quoted(unquote(namespace))}",
            one_of("kv_key", keys),
        ]
    )


def find(rows: Sequence[Row], name: str) -> MilvusFact | None:
    """Return the fact of a name from entries; None if there is none."""
    return next((fact for fact in facts_of(rows) if fact.name == name), None)
