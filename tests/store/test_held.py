"""What waits for review, in either database: found again, claimed once, taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memtui.store import appending, held
from memtui.store.compiled import HeldRow
from memtui.store.database import Database
from memtui.store.settings import HELD, changes, read
from tests.databases import ON_BOTH

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)

pytestmark = ON_BOTH


def row(held_id: str, likeness: str) -> HeldRow:
    return HeldRow(
        company_id="acme",
        held_id=held_id,
        binding_key="default",
        binding_added_at=NOW,
        operation_type="write",
        request={"content": "Ünïcode \x00 \ud800", "deep": [None, {"a": 1}]},
        owners=[{"company_id": "acme"}],
        base=[],
        reasons=["hold all"],
        principal="agent:x",
        door="mcp",
        likeness=likeness,
        times=1,
        held_at=NOW,
        last_at=NOW,
    )


def test_what_waits_is_claimed_once_and_comes_back_as_it_was(database: Database) -> None:
    with database.write() as connection:
        appending.hold(connection, "acme")
        like = held.likeness(connection, "acme", {"content": "x"})
        assert like == held.likeness(connection, "acme", {"content": "x"})
        held.add(connection, row("one", like))
        held.add(connection, row("two", "other"))
        assert held.alike(connection, "acme", like) == "one"
        assert held.alike(connection, "other", like) is None
        held.ask_again(connection, "acme", "one", NOW + timedelta(seconds=1))
        assert held.count(connection, "acme", "default") == 2
        assert held.claim(connection, "acme", "one", "first")
        assert not held.claim(connection, "acme", "one", "second")
        held.release(connection, "acme", "second")
        decided = held.decided_by(connection, "acme", "first")
        assert decided is not None
        assert (decided.times, decided.last_at) == (2, NOW + timedelta(seconds=1))
        before = read(connection, "acme", [HELD])
        change = held.remove(connection, decided)
        assert [one.held_id for one in held.waiting(connection, "acme")] == ["two"]
        [told] = changes(before, read(connection, "acme", [HELD]))
        assert told.before == {**(change.before or {}), "decider": "first"}
        back = held.take_back(connection, "acme", change)
        found = held.one(connection, "acme", "one")
        assert found is not None
        assert found.request == row("one", like).request
        assert (found.decider, found.last_at) == (None, NOW + timedelta(seconds=1))
        held.take_back(connection, "acme", back)
        assert held.one(connection, "acme", "one") is None
