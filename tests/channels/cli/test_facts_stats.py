"""`facts stats`: the metrics of seed 004 §8, on the command line."""

from __future__ import annotations

from tests.channels.cli.conftest import Run
from tests.channels.cli.test_facts import U, add


def test_the_figures(here: Run) -> None:
    record_id = add(here, "Likes tea")
    add(here, "Uses SQLite")
    here("context", *U)
    here("facts", "delete", record_id, *U, "--yes")
    found = here("facts", "stats", "--json").document
    assert (found["adoption"], found["average_facts_per_user"]) == (0.0, 1.0)
    assert (found["facts_saved"], found["share_deleted_by_hand"]) == (2, 0.5)
    assert (found["contexts"], found["average_context_budget"]) == (1, 500.0)
    assert len(found["days"]) == 31
    assert sum(day["saves_by_user"] for day in found["days"]) == 2
    out = here("facts", "stats").out
    assert "50.0% of 2 saved (target under 20%)" in out
    assert "0.0% of 1 active users (target 30%)" in out


def test_a_window_and_a_scope(here: Run) -> None:
    add(here, "Likes tea")
    assert here("facts", "stats", "--until", "2020-01-01", "--json").document["facts_of_users"] == 0
    assert here("facts", "stats", "--since", "1d", "--json").document["facts_added"] == 1
    assert here("facts", "stats", "--subject", "V", "--json").document["facts_added"] == 0
    assert here("facts", "stats", "--since", "1d", "--until", "2d").code == 2
    assert "–" in here("facts", "stats", "--subject", "V").out
