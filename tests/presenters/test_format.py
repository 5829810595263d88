"""How values read on screen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import Location, OperationStatus, OperationType, SourceKind, SourceRef, Usage
from memtui.presenters import format as fmt
from memtui.service import Together
from memtui.store.operation import set_by
from memtui.widgets.detail_lines import below_heading, outcome_words

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("back", "shown"),
    [
        (timedelta(), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(hours=3, minutes=59), "3 h"),
        (timedelta(days=12), "12 d"),
        (timedelta(days=61), "2 mo"),
        (timedelta(days=400), "1 y"),
        (timedelta(days=-3), "in 3 d"),
        (-timedelta(days=1, hours=23, minutes=59, seconds=59), "in 2 d"),
    ],
)
def test_relative_times(back: timedelta, shown: str) -> None:
    assert fmt.ago(NOW - back, NOW) == shown


@pytest.mark.parametrize(
    ("request_", "change"),
    [
        ({"record_id": "a", "content": "new", "content_chars": 3, "pinned": True}, "edit"),
        ({"content_chars": 3, "pinned": True}, "edit"),
        ({"pinned": True, "together": "3f9c"}, "pin"),
        ({"pinned": False}, "unpin"),
        ({"tags": ["one"]}, "change of tags"),
        ({"topic": "builds"}, "change of topic"),
        ({"never_expires": True}, "change of expiry"),
        ({"expires_at": "2026-03-12T00:00:00+00:00"}, "change of expiry"),
        ({"tags": ["one"], "pinned": True}, "edit"),
        ({}, "edit"),
    ],
)
def test_an_edit_is_called_what_it_set(request_: dict[str, Any], change: str) -> None:
    operation: Any = SimpleNamespace(
        operation_type=OperationType.CORRECT,
        request=request_,
        principal="user:ana",
        started_at=NOW,
    )
    assert fmt.undo_question(operation, "", NOW, "user:ana") == f"Undo the {change} from 0 s ago?"
    undo: Any = SimpleNamespace(
        operation_type=OperationType.UNDO,
        request={"type": "correct", "set": set_by(operation)},
    )
    assert fmt.reversal(undo) == f"undoes the {change}"


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ({"update_binding": "default",
          "add_rule": {"action": "hold", "test": "per-run", "value": "2"}},
         "update binding default: add rule hold per-run 2"),
        ({"update_binding": "notes", "read_only": True, "enabled": False, "config": {},
          "together": "3f9c"},
         "update binding notes: read only, not enabled"),
        ({"set_target": "agent", "target_id": "scout", "key": "kb", "inferred": ["agent_id"]},
         "set target agent: target scout, key kb"),
        ({"update_company": "acme", "name": None, "links": ["issue", "run"]},
         "update company acme: links issue run"),
        ({}, ""),
    ],
)  # fmt: skip
def test_what_was_set_reads_on_one_line(request_: dict[str, Any], shown: str) -> None:
    operation: Any = SimpleNamespace(operation_type="configure", request=request_)
    assert fmt.configured(operation) == shown


def test_times_that_are_missing_or_part_of_a_sentence() -> None:
    assert fmt.ago(None, NOW) == "–"
    assert fmt.since(NOW - timedelta(hours=3), NOW) == "3 h ago"
    assert fmt.since(NOW + timedelta(days=3), NOW) == "in 3 d"


def test_an_exact_time_is_in_the_persons_zone() -> None:
    assert fmt.exact(NOW, ZoneInfo("Europe/Berlin")) == "2026-03-10 13:00:00 CET"


@pytest.mark.parametrize(
    ("amount", "unpriced", "shown"),
    [
        (Decimal("0.0000312"), False, "$0.0000312"),
        (Decimal("1234.5"), False, "$1,234.50"),
        (Decimal(0), False, "$0.00"),
        (Decimal(0), True, "unpriced"),
        (None, False, "–"),
        (None, True, "unpriced"),
        (Decimal("0.02"), True, "$0.02 + unpriced"),
    ],
)
def test_money(amount: Decimal | None, unpriced: bool, shown: str) -> None:
    assert fmt.money(amount, unpriced=unpriced) == shown
    if not amount:
        assert fmt.short_money(amount, unpriced=unpriced) == shown


@given(st.decimals(min_value=0, max_value=100_000, places=12))
def test_money_shows_the_exact_amount_and_a_column_never_overflows(amount: Decimal) -> None:
    shown = fmt.money(amount)
    assert Decimal(shown.lstrip("$").replace(",", "")) == amount
    assert fmt.short_money(amount) != "$"
    if amount:
        assert fmt.short_money(amount, unpriced=True) == fmt.short_money(amount) + "+"


def test_counts() -> None:
    assert fmt.count(12204) == "12,204"
    assert fmt.of_total(41, 12204) == "41 of 12,204"
    assert fmt.of_total(214, 1000, at_least=True) == "214 of ≥ 1,000"
    assert fmt.of_total(214, None, at_least=True) == "214+"
    assert fmt.counted(1, "query", "queries") == "1 query"
    assert fmt.counted(3, "query", "queries") == "3 queries"


def test_durations_tokens_and_reads() -> None:
    assert [fmt.duration(value) for value in (None, 0, 2.31, 18, 2000, 200_000)] == [
        "–",
        "0 ms",
        "2.3 ms",
        "18 ms",
        "2.0 s",
        "3 min 20 s",
    ]
    usage = [Usage(provider="a", input_tokens=200), Usage(provider="b", input_tokens=12)]
    assert fmt.tokens(usage) == "212 in"
    assert fmt.reads(31, NOW - timedelta(hours=3), NOW) == "31× 3 h"
    assert fmt.reads(0, None, NOW) == "never"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"kind": "issue_comment", "issue_id": "ISS-31", "comment_id": "2"}, "ISS-31 comment 2"),
        (
            {"kind": "issue_document", "issue_id": "ISS-3", "document_key": "plan"},
            "ISS-3 document plan",
        ),
        ({"kind": "issue", "issue_id": "31"}, "issue 31"),
        ({"kind": "run", "run_id": "run-4412"}, "run 4412"),
        ({"kind": "run"}, "run"),
        ({"kind": "activity", "activity_id": "88"}, "activity 88"),
        ({"kind": "manual_note"}, "manual note"),
        ({"kind": "external_document", "external_ref": "/v/facts.md:7"}, "facts.md:7"),
        ({"kind": "external_document", "external_ref": "https://x.test/a/"}, "x.test/a"),
    ],
)
def test_sources(fields: dict[str, str], shown: str) -> None:
    assert fmt.source_line(SourceRef.model_validate({"company_id": "c", **fields})) == shown


def test_every_source_kind_and_status_has_words() -> None:
    assert all(fmt.source_line(SourceRef(kind=kind, company_id="c")) for kind in SourceKind)
    symbols = {fmt.outcome(status).symbol for status in OperationStatus}
    assert len(symbols) == len(OperationStatus)
    assert fmt.outcome(OperationStatus.UNKNOWN).symbol == "?"


@pytest.mark.parametrize("status", list(OperationStatus))
def test_every_outcome_is_drawn(status: OperationStatus) -> None:
    ended: Any = SimpleNamespace(status=status)
    assert outcome_words(ended).plain


def test_places() -> None:
    assert fmt.parse_place("/a/b.md:12") == Location(path="/a/b.md", line=12)
    assert fmt.parse_place("/a/b.md") == Location(path="/a/b.md")
    assert fmt.parse_place("https://x.test/a:1") is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Code freeze\n\nIt begins in May.", "\nIt begins in May."),
        ("## Code freeze ##\nIt begins.", "## Code freeze ##\nIt begins."),
        ("# Code freeze", "# Code freeze"),
        ("Code freeze\nIt begins.", "Code freeze\nIt begins."),
        ("#freeze\nIt begins.", "#freeze\nIt begins."),
    ],
)
def test_a_heading_that_is_the_title_is_not_said_twice(text: str, shown: str) -> None:
    assert below_heading(text, "Code freeze") == shown
    assert below_heading(text, None) == text


@pytest.mark.parametrize(
    ("text", "shown"), [("one", "one"), ("\none\n", "one"), ("one\n\ntwo", "one …"), ("", "")]
)
def test_a_text_that_is_named_by_its_first_line_says_that_there_is_more(
    text: str, shown: str
) -> None:
    assert fmt.beginning(text) == shown


def test_what_is_undone_at_once_is_counted_by_what_it_is() -> None:
    both = Together(records=16, bindings=2, settings=1, waiting=0)
    assert fmt.taken_back(both) == "16 records in 2 bindings and 1 setting"
    refused = Together(records=0, bindings=0, settings=0, waiting=3)
    assert fmt.taken_back(refused) == "3 held writes"
