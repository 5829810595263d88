from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.importing import values
from memtui.importing.rows import Row, json_lines
from memtui.importing.translating import Translator
from memtui.prices import ModelCall, _computed, _prices, cost_of

BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "naive"),
    [
        ("2026-03-01T09:30:00Z", False),
        ("2026-03-01T10:30:00+01:00", False),
        (" 2026-03-01 10:30 ", True),
        (1772357400, False),
        ("1772357400", False),
        ("1772357400.0", False),
        (1772357400_000, False),
        ("1772357400000000", False),
        (1772357400_000_000_000, False),
        (AT, False),
        (datetime(2026, 3, 1, 10, 30), True),  # noqa: DTZ001 — as Parquet's TIMESTAMP comes
    ],
)
def test_a_moment_in_any_of_its_forms(given: Any, naive: bool) -> None:
    assert values.moment(given, BERLIN) == (AT, naive)


@pytest.mark.parametrize(
    "given", ["yesterday", "", "-5", True, [], "1e400", "99999999999999999999999", "0001-01-01"]
)
def test_no_moment(given: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a time|before 1970|out of range|not a number"):
        values.moment(given, ZoneInfo("Asia/Tokyo"))


@pytest.mark.parametrize("unit", [1_000, 1_000_000, 1_000_000_000])
def test_a_number_is_of_the_largest_unit_that_gives_a_likely_year(unit: int) -> None:
    edge = 10**8 * unit  # as seconds a thousand times as late
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=10**8)
    assert values.moment(edge, UTC) == (at, False)
    late = values.moment(edge - 1, UTC)[0]
    assert late.year > 5000


@given(st.integers(0, 7 * 10**16))
def test_microseconds_there_and_back(count: int) -> None:
    at = values.from_microseconds(count)
    assert values.microseconds(at) == count
    if 10**14 <= count < 10**17:  # from 1973 on, when it can be nothing but microseconds
        assert values.moment(str(count), UTC) == (at, False)
    milliseconds = count // 1000
    if 10**11 <= milliseconds < 10**14:
        assert at - values.moment(milliseconds, UTC)[0] < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("query", "query"), (" Write ", "write"), ("CONTEXT", "context"),
     ("seal", "configure"), ("purge", "forget"), ("repair", "configure")],
)  # fmt: skip
def test_a_type_is_named_exactly(word: str, kind: str) -> None:
    assert values.operation_type(word) == kind


@pytest.mark.parametrize("word", ["search", "memory.query", "", 1, None, ["query"]])
def test_a_word_that_is_no_type_or_status(word: Any) -> None:
    with pytest.raises(ValueError, match="is not a type of operation; map it to one of write, "):
        values.operation_type(word)
    with pytest.raises(ValueError, match="is not a status; map it to one of ok, "):
        values.status(word)


def test_a_status_is_named_exactly() -> None:
    assert [values.status(word) for word in ("ok", "Denied ", "ERROR")] == ["ok", "denied", "error"]


def test_a_length_of_time_is_in_milliseconds() -> None:
    assert values.duration("12.5") == Decimal("12.5")
    assert values.duration(timedelta(seconds=1, microseconds=500)) == Decimal("1000.5")


@pytest.mark.parametrize("bad", ["-1", "1.5", "nan", "", "1e30", None, True])
def test_no_count(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"not a whole number|not a number"):
        values.count(bad)


def test_money_is_exact() -> None:
    assert values.money("$0.1") == Decimal("0.1")
    assert values.money(0.1) == Decimal("0.1")
    assert values.money("0.00000000000049") == 0
    with pytest.raises(ValueError, match="not a cost"):
        values.money("-1")


MODELS = ["claude-sonnet-4-5", "gpt-4o-mini", "gemini-2.5-pro", "claude-opus-4-5", "deepseek-chat"]
TOKENS = st.integers(0, 300_000)


@given(st.sampled_from(MODELS), TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_price_is_the_tables_own(
    model: str, plain: int, read: int, written: int, hour: int, output: int
) -> None:
    hour = min(hour, written)
    total = plain + read + written
    call = ModelCall(model, None, AT, total, output, read, written, hour)
    held = _prices(model, None, AT)
    found = cost_of(call)
    assert held is not None
    assert found == (held[0], _computed(held[1], call).quantize(Decimal("1e-12")))


def test_an_unknown_model_has_no_price() -> None:
    assert cost_of(ModelCall("mystery-9", "nobody", AT, 10, 10)) is None
    embedding = ModelCall("text-embedding-3-small", "openai", AT, 1_000_000)
    assert cost_of(embedding) == ("openai", Decimal("0.02"))
    assert (
        cost_of(ModelCall("text-embedding-3-small", "openai", AT, 10, 10)) is None
    )  # has no output


@pytest.mark.parametrize(("count", "model"), [(0, None), (1, None), (3, None), (3, "nobody-knows")])
def test_every_call_without_a_price_counts(count: int, model: str | None) -> None:
    row: dict[str, Any] = {
        "started_at": "2026-03-01T12:00:00Z",
        "operation_type": "query",
        "model": model,
    }
    row |= {"unpriced_count": count}
    draft = Translator("theirs").entry("log.jsonl", Row(1, row), {}).draft
    assert [one.cost_usd for one in draft.usage] == [None] * count


def test_a_line_may_have_just_as_many_bytes_as_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.importing.rows._LINE_BYTES", 20)
    path = tmp_path / "a.jsonl"
    lines = [f'{{"a":"{"x" * count}"}}\n' for count in (11, 12, 3, 50, 1)]
    assert [len(line) for line in lines[:2]] == [20, 21]
    path.write_text("".join(lines))
    told = [(row.line, row.values and len(row.values["a"])) for row in json_lines(path)]
    assert told == [(1, 11), (2, None), (3, 3), (4, None), (5, 1)]
