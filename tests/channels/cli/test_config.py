"""`config`: the settings as a person and an editor see them."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from memtui.channels.cli.config import settings_schema
from tests.channels.cli.conftest import Run

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


@cache
def editor() -> Any:
    """Return what an editor checks a config.toml with."""
    schema = settings_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def wrong_in(toml: str) -> list[str]:
    """Return what an editor underlines in a config.toml."""
    return [error.message for error in editor().iter_errors(tomllib.loads(toml))]


def test_the_schema_takes_what_the_settings_take_and_the_documents_show() -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example.startswith("#:schema ./config.schema.json")
    assert wrong_in(example) == []
    assert wrong_in('[keymap]\n"records.forget" = "d,delete"\n[scope_weights]\nagent = 0.7') == []


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('them = "ansi"', "'them' was unexpected"),
        ('theme = "memtu"', "'memtu' is not one of"),
        ('[keymap]\nrecords.forgt = "d"', "'forgt' was unexpected"),
        ('[keymap]\n"records.forgt" = "d"', "'records.forgt' was unexpected"),
        ('hook_timeout_ms = "1"', "is not of type 'integer'"),
        ("hook_timeout_ms = 1", "less than the minimum"),
        ("[scope_weights]\nagnet = 1", "'agnet' is not one of"),
    ],
)
def test_the_schema_refuses_what_the_settings_refuse(
    here: Run, home: Path, toml: str, said: str
) -> None:
    assert any(said in one for one in wrong_in(toml))
    (home / "config.toml").write_text(toml, encoding="utf-8")
    checked = here("config", "check", "--json")
    assert (checked.code, checked.document["passed"]) == (1, False)


def test_every_setting_says_where_it_comes_from(
    here: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-not-to-be-shown"
    file = home / "config.toml"
    assert here("config", "path").err.startswith("The file does not exist yet")
    file.write_text(
        f'theme = "ansi"\ntimezone = "Asia/Tokyo"\ndatabase_url = "postgresql://a:{secret}@h/d"\n'
    )
    monkeypatch.setenv("MEMTUI_TIMEZONE", "Europe/Berlin")
    ran = here("--principal", "user:ana", "config", "show", "--json")
    assert secret not in ran.out + here("config", "show").out
    shown = ran.document["settings"]
    assert shown["theme"] == {"value": "ansi", "from": str(file)}
    assert shown["timezone"] == {"value": "Europe/Berlin", "from": "MEMTUI_TIMEZONE"}
    assert shown["principal"] == {"value": "user:ana", "from": "--principal"}
    assert shown["mouse"] == {"value": True, "from": "default"}
    assert here("config", "path", "--json").document == {"file": str(file), "exists": True}
    assert here("config", "check").code == 0
