from __future__ import annotations

import pytest

from memtui.channels.cli import options
from memtui.contract import Invalid


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
