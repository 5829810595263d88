from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memtui.filters import FIELDS, parse_filter
from memtui.widgets.filter_words import completed, completions, known_values
from tests.analytics.logs import draft

KNOWN = {"agent": ("coding", "code review", "ops"), "project": ("mech",)}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ag", ["agent:"]),
        ("type:wr", ["type:write"]),
        ("type:write st", ["status:"]),
        ("agent:CO", ["agent:coding", "agent:'code review'"]),
        ("agent:ops", []),
        ("since:to", ["since:today"]),
        ("cos", ["cost>"]),
        ("deploy", []),
        ("topic:", []),
    ],
)
def test_a_term_is_completed_by_fields_and_what_they_take(line: str, offered: list[str]) -> None:
    assert completions(line, KNOWN) == offered


def test_an_empty_term_offers_the_fields() -> None:
    assert completions("type:write ", KNOWN)[:3] == ["agent:", "project:", "issue:"]


def test_what_is_completed_parses() -> None:
    line = completed("type:write agent:code", "agent:'code review'")
    assert line == "type:write agent:'code review' "
    assert parse_filter(line, now=datetime.now(UTC)).agent_id == "code review"
    assert completed("type:write ag", "agent:") == "type:write agent:"


def test_the_log_tells_values_once_and_none_that_nobody_can_write() -> None:
    drafts = [draft(number) for number in range(40)]
    found = known_values(drafts)
    assert set(found) <= set(FIELDS)
    assert found["by"] == tuple(dict.fromkeys(one.principal for one in drafts))
    assert found["project"] == ("p",)
