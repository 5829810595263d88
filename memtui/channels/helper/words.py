"""Which command a command line names, and which of them a helper runs."""

from __future__ import annotations

from collections.abc import Sequence

EVENTS = frozenset({"pre-run", "post-run", "comment", "document"})
"""The commands of `hook` that others call: they are quick, and never fail."""
NAMING = frozenset({"--home", "--company", "--principal", "--acts-for"})
"""The options before a command that take a value."""


def command_words(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the folder that `--home` names, empty for none, and the words from the command on.

    There are none where another option than a global one comes first.
    """
    home, words = "", iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in NAMING:
            value = value if equals else next(words, "")
            home = value or "." if name == "--home" else home
        elif word != "--read-only":
            return home, [] if word.startswith("-") else [word, *words]
    return home, []


def home_of_hook(arguments: Sequence[str]) -> str | None:
    """Return the folder that a hook's command line names as home, empty for none.

    None where it is not a command line of one of the `EVENTS`.
    """
    home, words = command_words(arguments)
    return home if words[:1] == ["hook"] and words[1:2] and words[1] in EVENTS else None
