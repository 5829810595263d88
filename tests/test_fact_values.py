"""Values of facts as JSON: typed where nothing of the text is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.fact_values import pair_of, parsed, written
from memtui.pruning.patterns import PatternRules


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("47", 47),
        ("-3", -3),
        ("3.12", 3.12),
        ("1e-07", 1e-07),
        ("true", True),
        ("null", None),
        ("[Python 3.12, Pygame]", ["Python 3.12", "Pygame"]),
        ("[3.10, 3.12]", ["3.10", 3.12]),
        ('["a, b",47]', ["a, b", 47]),
        ('{"port": 8080, "hosts": ["a"]}', {"port": 8080, "hosts": ["a"]}),
        ('"47"', "47"),
        ("[]", []),
    ],
)
def test_what_is_typed(text: str, value: Any) -> None:
    assert parsed(text) == value
    assert type(parsed(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "main", "3.10", "007", "-0", "1e5", "0x10", "1_000", "True", "yes", "nan", "2026-03-09",
        "9007199254740993", "47 ", "[[note]]", "[text](url)", "[a, [b]]", "[a,,b]", "[a", "[ ,]",
        '{"a": 1, "a": 2}', '"half', '["\\ud800"]', "4" * 5000, "[" * 5000, "é",
    ],
)  # fmt: skip
def test_what_stays_a_text(text: str) -> None:
    assert parsed(text) == text


texts = st.text(st.sampled_from('ab10 .,[]{}":-\\\n\té'), max_size=5)
whole = st.integers(-(2**53), 2**53)
scalars = texts | whole | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
values = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_every_json_value_is_written_so_that_it_reads_back(value: Any) -> None:
    assert json.dumps(parsed(written(value))) == json.dumps(value)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("deploy_branch: main", ("deploy_branch", "main")),
        ("a.b-c: x: y", ("a.b-c", "x: y")),
        ("empty:", ("empty", "")),
        ("http://example.org", None),
        ("12:30 meeting", None),
        ("two words: value", None),
        ("**bold**: value", None),
    ],
)
def test_what_is_a_key(text: str, pair: tuple[str, str] | None) -> None:
    assert pair_of(text) == pair


def test_the_page_shows_values_as_they_are_read() -> None:
    page = (Path(__file__).parents[1] / "docs" / "facts.md").read_text("utf-8")
    rows = re.findall(r"^\| `(.+)` \| `(.+)` \|$", page, re.MULTILINE)
    assert len(rows) > 10
    assert [(text, json.dumps(parsed(text), ensure_ascii=False)) for text, _ in rows] == rows
    rules = PatternRules()
    assert f"changed {rules.often} times or more in {rules.often_days} days" in page
    assert f"for {rules.stood_days} days or more, and changed in the last {rules.late_days}" in page
