"""Shared sentences of error messages: unknown names, values that do not fit."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from memtui.contract import Invalid, NotFound


def missing_extra(what: str, extra: str) -> Invalid:
    """Return the error where `what` needs an extra that is not installed."""
    return Invalid(f"{what} needs more packages; run pip install 'memtui[{extra}]'.")


def require_extra(what: str, extra: str, *modules: str) -> None:
    """Raise `Invalid` unless these modules of an extra are installed."""
    if not all(map(find_spec, modules)):
        raise missing_extra(what, extra)


def nothing_yet(home: object) -> NotFound:
    """Return the error for a folder that is not a memtui home."""
    return NotFound(
        f"There is no memtui home at {home} yet. Run memtui to see which memories this machine "
        "has, or memtui note to add one; where your home is elsewhere, name it with --home."
    )


_NAMED, _NEAREST = 30, 4
"""Most names that are all listed in one sentence, and how many of more names are."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for an unknown name, with the nearest or all known names.

    Args:
        what: The kind of thing, such as `binding`.
        name: The unknown name.
        known: The known names.
    """
    from difflib import get_close_matches

    names = list(known)
    if not names:
        return f"There is no {what} {name}; there are none yet."
    if near := get_close_matches(name, names, n=1):
        return f"There is no {what} {name}; did you mean {near[0]}?"
    plural = f"{what[:-1]}ies" if what.endswith("y") and not what.endswith("ey") else f"{what}s"
    if len(names) > _NAMED:
        nearest = ", ".join(get_close_matches(name, names, n=_NEAREST, cutoff=0))
        return f"There is no {what} {name}; of {len(names):,} {plural} the nearest are {nearest}."
    return f"There is no {what} {name}; the {plural} are {', '.join(names)}."


def none_of_them(others: int) -> str:
    """Return the ending of "X is not there" for `others` more missing things."""
    return (
        "" if not others else ", nor the other" if others == 1 else f", nor the {others:,} others"
    )


_MISFITS = {
    "missing": "it is missing",
    "extra_forbidden": "it is not known",
    "string_type": "it takes a text",
    "too_short": "it takes at least {min_length}",
    "string_too_short": "it takes at least {min_length} characters",
    "string_too_long": "it takes at most {max_length} characters",
    "greater_than": "it takes more than {gt}",
    "greater_than_equal": "it takes at least {ge}",
    "less_than": "it takes less than {lt}",
    "less_than_equal": "it takes at most {le}",
} | {
    f"{kind}_{fault}": f"it takes {words}"
    for kind, words in (
        ("int", "a whole number"), ("float", "a number"), ("decimal", "a number"),
        ("bool", "true or false"), ("list", "a list"), ("tuple", "a list"), ("dict", "an object"),
    )
    for fault in ("type", "parsing", "from_float")
}  # fmt: skip


def bare(principal: str) -> str:
    """Return why a name is no principal (it lacks `kind:` or the name); empty: it is one."""
    kind, _, name = principal.partition(":")
    if kind.strip() and name.strip():
        return ""
    return (
        f"{principal!r} does not say what it is: write user:NAME for a person, agent:NAME for an "
        "agent"
    )


def misfit(found: Mapping[str, Any]) -> str:
    """Return in plain words why a value does not fit.

    Args:
        found: One of `pydantic.ValidationError.errors()`.
    """
    limits = found.get("ctx", {})
    if found["type"] == "string_too_short" and limits["min_length"] == 1:
        return "it is empty"
    if found["type"] in {"literal_error", "enum"}:
        return f"it takes {limits['expected'].replace(chr(39), '')}"
    words = _MISFITS.get(found["type"])
    said: str = words.format(**limits) if words else found["msg"]
    return said.removeprefix("Value error, ").rstrip(".")
