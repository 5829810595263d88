"""Finds the command in a command line, and whether a helper runs it."""

from collections.abc import Sequence

EVENTS = frozenset({"pre-run", "post-run", "comment", "document"})
"""The `hook` commands that agents' clients call: quick, and they never fail."""
NAMING = frozenset({"--home", "--company", "--principal", "--acts-for"})
"""Global options (before the command) that take a value."""


def command_words(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the folder of `--home` (empty: not given), and the words from the command on.

    There are no words where a non-global option comes before the command.
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
    """Return the folder of `--home` in a hook's command line; empty: not given.

    None: it is not the command line of one of the `EVENTS`.
    """
    home, words = command_words(arguments)
    return home if words[:1] == ["hook"] and words[1:2] and words[1] in EVENTS else None
