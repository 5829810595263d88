"""Descriptions of providers for people: what a binding opens, its settings, its capabilities.

They come from the provider's class: its docstrings and the JSON schema of its config.
"""

import inspect
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel

from memtui.contract import Adapter, Capabilities, Json, Model, field_docstrings

FieldKind = Literal[
    "text", "path", "secret", "switch", "choice", "whole", "number", "list", "json"
]  # fmt: skip
"""How a value is entered: `secret` is a secret's name, `whole` a whole number, `list` texts."""


class ConfigField(Model):
    """One setting of a binding's config."""

    name: str
    kind: FieldKind
    words: str
    """The type and bounds of a value in words: `whole number, 1 or more`."""
    required: bool = False
    default: Any = None
    """The default; None: none."""
    choices: tuple[Any, ...] = ()
    """The values of a `choice`; of other kinds, empty."""
    help: str = ""


class ProviderView(Model):
    """An installed provider."""

    key: str
    package: str
    version: str | None = None
    """The package's version; None: unknown."""
    foreign: bool = False
    """Whether another package provides it."""
    usable: bool = True
    """Whether a binding can be made with it."""
    problem: str | None = None
    """Its fault, or that of another package which uses the same name."""
    opens: str = ""
    """The store that a binding to it opens: the first paragraph of the docstring."""
    about: str = ""
    """The rest of the docstring."""
    config: tuple[ConfigField, ...] = ()
    capabilities: Capabilities | None = None
    """None: they differ by binding."""


def class_view(provider: type[Adapter]) -> Json:
    """Return the fields of a `ProviderView` that come from the provider's class.

    Blocking, and a third-party class runs its own code: it may raise anything.
    """
    model = provider.config_model
    docstrings = (one.__dict__.get("__doc__") for one in (model, provider))
    words = inspect.cleandoc(next(filter(None, docstrings), ""))
    opens, _, about = words.partition("\n\n")
    able = provider.capabilities
    return {
        "opens": _one_line(opens),
        "about": _one_line(about),
        "config": tuple(_config_fields(model)),
        "capabilities": able if isinstance(able, Capabilities) else None,
    }


def _config_fields(model: type[BaseModel]) -> Iterator[ConfigField]:
    schema = model.model_json_schema()
    definitions, required = schema.get("$defs", {}), schema.get("required", ())
    docstrings = field_docstrings(model)
    for name, said in schema.get("properties", {}).items():
        kinds = [_resolved(one, definitions) for one in said.get("anyOf", [said])]
        form = next((one for one in kinds if one.get("type") != "null"), {})
        types = {one.get("type") for one in kinds}
        kind, words = _kind(name, form, types - {"null"})
        choices = _choices(form)
        if kind == "switch" and "null" in types:  # a switch has no third state, unset
            kind, choices = "choice", (True, False)
        yield ConfigField(
            name=name,
            kind=kind,
            words=words,
            required=name in required,
            default=said.get("default"),
            choices=choices,
            help=_one_line(
                said.get("description") or docstrings.get(name) or form.get("description", "")
            ),
        )


def _resolved(schema: Json, definitions: Json) -> Json:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Json = definitions.get(name, schema)
    return found


def _choices(schema: Json) -> tuple[Any, ...]:
    return tuple(schema.get("enum", [schema["const"]] if "const" in schema else ()))


_BOUNDED: dict[str, tuple[FieldKind, str]] = {
    "integer": ("whole", "whole number"),
    "number": ("number", "number"),
    "number string": ("number", "number"),
    "integer number": ("number", "number"),
}
_PATHS = frozenset({"path", "file-path", "directory-path"})
_JSON = {"array": "JSON list", "object": "JSON object"}


def _kind(name: str, form: Json, types: set[Any]) -> tuple[FieldKind, str]:
    """Return the kind of a setting and its words; `types`: its JSON types, without null."""
    kinds = " ".join(sorted(map(str, types)))
    found: tuple[FieldKind, str] = "json", _JSON.get(kinds, "JSON")
    if choices := _choices(form):
        found = "choice", f"one of {', '.join(map(str, choices))}"
    elif kinds == "boolean":
        found = "switch", "yes or no"
    elif kinds in _BOUNDED:
        kind, noun = _BOUNDED[kinds]
        found = kind, _bounded(noun, form)
    elif kinds == "string" and name.endswith("_secret"):
        found = "secret", "name of a secret"
    elif kinds == "string":
        found = ("path", "path") if form.get("format") in _PATHS else ("text", "text")
    elif kinds == "array" and form.get("items", {}).get("type") == "string":
        found = "list", "list of texts"
    return found


def _bounded(noun: str, form: Json) -> str:
    least, most = form.get("minimum"), form.get("maximum")
    above, below = form.get("exclusiveMinimum"), form.get("exclusiveMaximum")
    bounds = [
        f"{least:,} or more" if least is not None else "",
        f"more than {above:,}" if above is not None else "",
        f"{most:,} at most" if most is not None else "",
        f"less than {below:,}" if below is not None else "",
    ]
    return ", ".join([noun, *filter(None, bounds)])


def _one_line(text: str) -> str:
    return " ".join(text.split())
