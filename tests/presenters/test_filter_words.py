from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from memtui.filters import FIELDS, parse_filter
from memtui.presenters.filter_words import completed, completions, known_values, understood
from tests.analytics.logs import draft

KNOWN = {"agent": ("coding", "code review", "ops"), "project": ("mech",), "user": ("ana",)}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ag", ["agent:"]),
        ("type:wr", ["type:write"]),
        ("type:write st", ["status:", "stale:"]),
        ("agent:CO", ["agent:coding", "agent:'code review'"]),
        ("agent:ops", []),
        ("since:to", ["since:today"]),
        ("cos", ["cost:", "cost>"]),
        ("deploy", []),
        ("topic:", []),
        ("-read:<3", ["-read:<30d"]),
        ("-ag", ["-agent:"]),
        ("-si", []),
        ("use", ["user:"]),
        ("subject:a", ["subject:ana"]),
        ("agent:ops,CO", ["agent:ops,coding", "agent:ops,'code review'"]),
        ("-agent:ops,", ["-agent:ops,coding", "-agent:ops,'code review'"]),
    ],
)
def test_a_term_is_completed_by_fields_and_what_they_take(line: str, offered: list[str]) -> None:
    assert completions(line, KNOWN) == offered


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("subject:ana", "user is ana"),
        ("", ""),
        ("-type:query agent:coding,ops since:2026-11-16T06:00", (
            "agent is coding or ops, type is not query, since 2026-11-16 06:00")),
        ("tag:ci -tag:old by:user:ana,agent until:2026-11-16", (
            "tag is ci or below, tag is not old or below, by user:ana or any agent, "
            "before 2026-11-16 00:00")),
        ("cost>0.01 took<=2s tokens=1000 score<0.3 results>=1", (
            "cost over $0.01, took at most 2,000 ms, tokens exactly 1,000, best score under 0.3, "
            "results at least 1")),
        ("read:never -read:>30d -read:never cost:>20 dup:yes", (
            "never read, not last read over 30d ago, read at least once, "
            "over 20 tokens in a context, repeats another")),
        ("deploy branch ~dply -draft -old -~wrd", (
            "has deploy and branch, has what is like dply, without draft or old, "
            "without what is like wrd")),
        ("agent:coding type:query or agent:ops,qa type:write or by:user", (
            "(agent is coding and type is query) or (agent is ops or qa and type is write) "
            "or by any user")),
    ],
)  # fmt: skip
def test_a_filter_is_said_in_words(line: str, said: str) -> None:
    chosen = parse_filter(line, now=datetime.now(UTC), zone=ZoneInfo("Europe/Berlin"))
    assert understood(chosen, ZoneInfo("Europe/Berlin")) == said


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
