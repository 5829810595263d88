"""What waits for review, in either database: found again, claimed once, taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memtui.store import appending, pending
from memtui.store.database import Database
from memtui.store.rows import PendingRow
from memtui.store.settings import PENDING, changes, read
from tests.databases import ON_BOTH

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)

pytestmark = ON_BOTH


def row(pending_id: str, likeness: str) -> PendingRow:
    return PendingRow(
        company_id="acme",
        pending_id=pending_id,
        binding_key="default",
        binding_added_at=NOW,
        operation_type="write",
        request={"content": "Ünïcode \x00 \ud800", "deep": [None, {"a": 1}]},
        owners=[{"company_id": "acme"}],
        base=[],
        reasons=["hold all"],
        principal="agent:x",
        channel="mcp",
        likeness=likeness,
        times=1,
        pending_since=NOW,
        last_at=NOW,
    )


def test_what_waits_is_claimed_once_and_comes_back_as_it_was(database: Database) -> None:
    with database.write() as connection:
        appending.hold(connection, "acme")
        like = pending.likeness(connection, "acme", {"content": "x"})
        assert like == pending.likeness(connection, "acme", {"content": "x"})
        pending.add(connection, row("one", like))
        pending.add(connection, row("two", "other"))
        assert pending.alike(connection, "acme", like) == "one"
        assert pending.alike(connection, "other", like) is None
        pending.ask_again(connection, "acme", "one", NOW + timedelta(seconds=1))
        assert pending.count(connection, "acme", "default") == 2
        assert pending.claim(connection, "acme", "one", "first")
        assert not pending.claim(connection, "acme", "one", "second")
        pending.release(connection, "acme", "second")
        decided = pending.decided_by(connection, "acme", "first")
        assert decided is not None
        assert (decided.times, decided.last_at) == (2, NOW + timedelta(seconds=1))
        before = read(connection, "acme", [PENDING])
        change = pending.remove(connection, decided)
        assert [one.pending_id for one in pending.waiting(connection, "acme")] == ["two"]
        [told] = changes(before, read(connection, "acme", [PENDING]))
        assert told.before == {**(change.before or {}), "decider": "first"}
        back = pending.take_back(connection, "acme", change)
        found = pending.one(connection, "acme", "one")
        assert found is not None
        assert found.request == row("one", like).request
        assert (found.decider, found.last_at) == (None, NOW + timedelta(seconds=1))
        pending.take_back(connection, "acme", back)
        assert pending.one(connection, "acme", "one") is None
