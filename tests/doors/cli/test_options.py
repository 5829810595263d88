from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memtui.contract import Invalid
from memtui.doors.cli import options
from memtui.doors.cli.session import future

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30d", NOW + timedelta(days=30)),
        ("90min", NOW + timedelta(minutes=90)),
        ("45s", NOW + timedelta(seconds=45)),
        ("2y", NOW + timedelta(days=730)),
        ("2027-01-02", datetime(2027, 1, 2, tzinfo=UTC)),
        ("2027-01-02T03:04:05Z", datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("today", datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
def test_an_expiry_lies_ahead(text: str, moment: datetime) -> None:
    assert future(text, now=NOW, zone=UTC) == moment


@pytest.mark.parametrize("text", ["soon", "", "999999y"])
def test_a_bad_expiry_is_one_sentence(text: str) -> None:
    with pytest.raises(Invalid, match=r"\.$"):
        future(text, now=NOW, zone=UTC)


@pytest.mark.parametrize("text", ["[1]", "{", "1", "[" * 100_000, '{"a": NaN}', "null"])
def test_json_options_take_objects_only(text: str) -> None:
    with pytest.raises(Invalid, match="--metadata takes a JSON object"):
        options.json_object(text, "--metadata")


def test_json_options_are_read() -> None:
    assert options.json_object('{"a": [1, null]}', "--metadata") == {"a": [1, None]}
    assert options.json_object(None, "--metadata") == {}


def test_pairs_split_at_the_first_sign() -> None:
    assert options.pairs(["a=b=c", "d="], "--set") == {"a": "b=c", "d": ""}
    assert options.pairs(None, "--set") == {}
    for bad in ("a", "=b"):
        with pytest.raises(Invalid, match="NAME=VALUE"):
            options.pairs([bad], "--set")
