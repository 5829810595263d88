"""`config`: the settings, where each comes from, and their JSON schema for editors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memtui.channels.cli.output import columns, table
from memtui.channels.cli.session import Invocation
from memtui.contract import Json, MemtuiError, field_docstrings

if TYPE_CHECKING:
    from memtui.config import Settings

_DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest dialect that TOML editors support."""


def config_path(invocation: Invocation) -> None:
    """Print where the settings file is, or would be."""
    path = invocation.paths().config_file
    said = "" if path.exists() else "The file does not exist yet; every setting has its default."
    document = {"file": str(path), "exists": path.exists()}
    invocation.out.answer(document, [str(path)], said)


def config_show(invocation: Invocation) -> None:
    """Show every setting that is in force, and where it comes from.

    A secret in an address is masked.
    """
    from memtui.config import origins
    from memtui.service.operations.redaction import redact_config

    values, _ = redact_config(invocation.settings().model_dump(mode="json"))
    found = origins(invocation.paths(), **invocation.flags)
    document = {
        name: {"value": value, "from": found.get(name, "default")} for name, value in values.items()
    }
    rows = [[name, _shown(one["value"]), one["from"]] for name, one in document.items()]
    invocation.out.answer({"settings": document}, table(columns("name", "value", "from"), rows))


def config_check(invocation: Invocation) -> int:
    """Check that the settings fit: names, values, theme and keymap.

    Exit 1 if something is wrong; it says what to do.
    """
    problem = None
    try:
        fitting_settings(invocation)
    except MemtuiError as error:
        problem = str(error)
    file = str(invocation.paths().config_file)
    document = {"file": file, "passed": problem is None, "problem": problem}
    invocation.out.answer(document, [problem or f"{file} and the environment fit"])
    return 0 if problem is None else 1


def fitting_settings(invocation: Invocation) -> Settings:
    """Return the settings, after the checks of the terminal app.

    Raises:
        Invalid: a name, a value, the theme or the keymap is invalid.
    """
    from memtui.screens.keymap import load_keymap
    from memtui.screens.themes import check_theme

    settings = invocation.settings()
    check_theme(settings.theme)
    load_keymap(settings.keymap)
    return settings


def config_schema(invocation: Invocation) -> None:
    """Print the JSON schema of config.toml, for editors that complete and check it.

    It names each action and each theme.
    """
    schema = settings_schema()
    invocation.out.answer(schema, json.dumps(schema, indent=2, ensure_ascii=False).splitlines())


def settings_schema() -> Json:
    """Return the JSON schema of `config.toml`."""
    from memtui.config import Settings
    from memtui.screens.themes import theme_names

    schema = Settings.model_json_schema()
    words = field_docstrings(Settings)
    for name, property_schema in schema["properties"].items():
        property_schema.pop("title")
        property_schema["description"] = " ".join(words[name].split())
    schema["properties"]["theme"]["enum"] = list(theme_names())
    schema["properties"]["keymap"] |= _keymap_schema()
    return {"$schema": _DIALECT, **schema, "title": "memtui's config.toml"}


def _keymap_schema() -> Json:
    """Return the schema of a keymap: `"records.forget"` as a key, or a table `keymap.records`."""
    from memtui.actions import ACTIONS

    flat: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for action in ACTIONS.values():
        keys = ",".join(action.keys)
        said = {"type": "string", "description": action.description, "default": keys}
        flat[action.id] = said
        table = {"type": "object", "additionalProperties": False, "properties": {}}
        tables.setdefault(action.group, table)["properties"][action.verb] = said
    return {"properties": tables | flat, "additionalProperties": False}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
