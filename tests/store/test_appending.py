"""What counts towards a limit: writes of the same company, principal, run, hour and channel."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memtui.contract import OperationStatus, OperationType, Scope
from memtui.store import appending
from memtui.store.database import Database
from memtui.store.operation import OperationDraft
from tests.databases import ON_BOTH
from tests.store.test_log import NOW, append, draft

RUN = Scope(company_id="acme", run_id="run-1")
HOUR = NOW - timedelta(hours=1)


def a_write(number: int, **changes: object) -> OperationDraft:
    own: dict[str, Any] = {
        "operation_type": OperationType.WRITE, "scope": RUN, "principal": "agent:a",
        "channel": "mcp", "started_at": NOW,
    }  # fmt: skip
    return draft(number, **{**own, **changes})


OTHERS: dict[str, dict[str, object]] = {
    "principal": {"principal": "agent:b"},
    "company": {"scope": RUN.model_copy(update={"company_id": "other"})},
    "channel": {"channel": "hook"},
    "type": {"operation_type": OperationType.CORRECT},
    "run": {"scope": RUN.model_copy(update={"run_id": "run-2"})},
    "no run": {"scope": Scope(company_id="acme")},
    "denied": {"status": OperationStatus.DENIED},
    "failed": {"status": OperationStatus.ERROR},
    "earlier": {"started_at": HOUR - timedelta(microseconds=1)},
}


@ON_BOTH
def test_only_ones_own_writes_count(database: Database) -> None:
    own = [a_write(1), a_write(2, status=OperationStatus.PENDING), a_write(3, started_at=HOUR),
           a_write(4, status=OperationStatus.UNKNOWN)]  # fmt: skip
    append(database, *own, *(a_write(n, **one) for n, one in enumerate(OTHERS.values(), 10)))
    for within, count in (("run-1", 5), (HOUR, 6), (NOW, 5), ("run-3", 0)):
        with database.read() as connection:
            asked = ("acme", "agent:a", within)
            assert appending.writes(connection, *asked, excluding="hook") == count
            assert appending.writes(connection, *asked, excluding="") == count + bool(count)


@pytest.mark.parametrize("name", [*OTHERS])
def test_of_what_is_under_way_only_ones_own_counts(database: Database, name: str) -> None:
    with database.write() as connection:
        for number, one in enumerate(({}, {}, OTHERS[name])):
            unseen = a_write(number, **one)
            appending.begin(connection, unseen, [], host="h", session="s")
        in_run, in_hour = (
            appending.writes(connection, "acme", "agent:a", one, excluding="hook")
            for one in ("run-1", HOUR)
        )
    # How it will end is not known while it is under way, and it began just now.
    others = {"denied", "failed", "earlier"}
    assert in_run == 2 + (name in others)
    assert in_hour == 2 + (name in {*others, "run", "no run"})
