from __future__ import annotations

import json
import sys
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analytics.archive import Busy
from memtui.analytics.engine import Interrupted
from memtui.channels.cli.errors import KIND_CODES, kind_of
from memtui.channels.cli.output import Dim, Output, TextColumn, fields, jsonable, shown, table
from memtui.contract import MemtuiError, NotFound, Record, RecordHandle, Scope, Usage
from memtui.json_text import json_text
from tests.channels.cli.conftest import HOSTILE, Stream, Terminal, assert_harmless

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(st.recursive(ANY_TEXT | st.none() | st.integers(), st.lists, max_leaves=10))
def test_json_is_exact_utf8(value: object) -> None:
    text = json_text(value)
    assert json.loads(text.encode("utf-8")) == value
    assert "\n" not in text


@given(ANY_TEXT)
def test_a_shown_line_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    assert_harmless(shown(text, colour=True))


def test_dim_lines_are_painted_only_with_colour() -> None:
    assert shown(Dim("x\x1b"), colour=True) == "\x1b[2mx␛\x1b[0m"
    assert shown(Dim("x\x1b"), colour=False) == "x␛"


@pytest.mark.parametrize(
    ("stream", "variables", "painted"),
    [
        (Terminal, {}, True),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"TERM": "dumb"}, False),
        (Stream, {}, False),
    ],
)
def test_colour_needs_a_willing_terminal(
    stream: type[Stream],
    variables: dict[str, str],
    painted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    Output().line(Dim("quiet"))
    assert ("\x1b" in out.text()) is painted


def test_models_come_apart_with_the_contracts_field_names() -> None:
    record = Record(
        handle=RecordHandle(provider_key="vault", provider_record_id="a"),
        text="x",
        scope=Scope(company_id="c"),
    )
    usage = Usage(provider="p", cost_usd=Decimal("0.000001"))
    found = jsonable({"records": [record], "usage": (usage,)})
    assert found["records"][0]["handle"] == {"provider_key": "vault", "provider_record_id": "a"}
    assert found["usage"][0]["cost_usd"] == "0.000001"


def test_columns_align_by_cells_not_by_characters() -> None:
    lines = list(
        table(
            [TextColumn("id"), TextColumn("n", right=True)],
            [["日本", "1"], ["a", "22"], ["é", "3"]],
        )
    )
    assert lines == [Dim("id     n"), "日本   1", "a     22", "é      3"]


def test_a_table_shows_hostile_cells_harmlessly_and_cuts_floods() -> None:
    lines = list(table([TextColumn("text")], [[HOSTILE], ["x" * 10_000_000]]))
    assert all(isinstance(line, str) for line in lines[1:])
    assert_harmless(str(lines[1]))
    assert len(str(lines[2])) == 201


def test_a_terminal_cuts_the_stretching_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["a", "x" * 100]]
    lines = list(table([TextColumn("id"), TextColumn("text", stretch=True)], rows))
    assert len(str(lines[1])) == 40
    assert str(lines[1]).endswith("…")


def test_facts_leave_out_what_is_empty() -> None:
    assert list(fields(("id", "1"), ("topic", ""), ("created", "now"))) == [
        "id       1",
        "created  now",
    ]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Interrupted(), "unavailable"),
        (Busy("Another one seals."), "conflict"),
        (NotFound("It is gone."), "not_found"),
    ],
)
def test_an_error_of_a_kind_of_its_own_is_told_as_the_contracts(
    error: MemtuiError, kind: str
) -> None:
    assert kind_of(error) == kind
    assert kind in KIND_CODES
