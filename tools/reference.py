"""Writes the reference pages from the code: `python -m tools.reference docs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from memtui.channels.cli import command
from memtui.channels.cli.errors import EXIT_CODES, KIND_CODES
from memtui.channels.cli.main import PROGRAM, command_line

MARK = "<!-- From here on made from the code: python -m tools.reference docs -->\n"
"""The text above this line in a page is written by hand."""


def commands_page() -> Iterator[str]:
    """Yield every command with its arguments and options."""
    sections = command_line().sections
    begins = {names[0]: title for title, (_, names) in sections.items()}
    for path, one in walk():
        words = path.split()[1:]
        if len(words) == 1 and words[0] in begins:
            title = begins[words[0]]
            yield from ("", f"## {title}: {sections[title][0]}")
        yield from ("", f"##{'#' * len(words)} `{path}`", "", _clean(one.help), "")
        context = typer.Context(one, info_name=path)
        records = [
            record
            for parameter in one.get_params(context)
            if (record := parameter.get_help_record(context)) and record[0] != "--help"
        ]
        if records:
            yield from _table("", "")
        for name, text in records:
            yield _row(f"`{name}`", _clean(text))


def settings_page() -> Iterator[str]:
    """Yield every setting: its name, environment variable, default and meaning."""
    from memtui.config import ENV_PREFIX, Settings
    from memtui.contract import field_docstrings

    words = field_docstrings(Settings)
    yield from _table("`config.toml`", "environment", "default", "meaning")
    for name, field in Settings.model_fields.items():
        default = "`user:` and your login" if field.default_factory else f"`{_toml(field.default)}`"
        if name == "keymap":
            default = "`{}`"
        yield _row(f"`{name}`", f"`{ENV_PREFIX}{name.upper()}`", default, _clean(words[name]))


def exit_codes_page() -> Iterator[str]:
    """Yield the exit codes, and the code of each kind of error."""
    yield from _table("code", "meaning")
    yield from (_row(str(code), meaning) for code, meaning in EXIT_CODES.items())
    yield from ("", *_table("kind", "code"))
    yield from (_row(f"`{kind}`", str(code)) for kind, code in KIND_CODES.items())


def sql_page() -> Iterator[str]:
    """Yield the SQL views with their columns and types."""
    from memtui.analytics.sql import VIEWS

    for view, types in _view_types().items():
        yield from ("", f"## `{view}`", "", *_table("column", "type", "meaning"))
        for name, meaning in VIEWS[view].items():
            yield _row(f"`{name}`", types[name], meaning)


def conformance_page() -> Iterator[str]:
    """Yield every conformance check: its rule, source and needs."""
    from memtui.conformance import CHECKS
    from memtui.conformance.probe import GUIDE

    yield from _table("check", "rule", "source", "needs")
    for check in CHECKS:
        needs = ", ".join(check.needs + (("*alone*",) if check.alone else ()))
        source = check.source.replace(GUIDE, "Guide").replace("OpenAPI v1", "OpenAPI")
        yield _row(f"`{check.name}`", check.rule, source, needs)


def keys_page() -> Iterator[str]:
    """Yield every action of the terminal app with its default keys and id."""
    from memtui.actions import DIALOG_GROUPS, SCREENS, actions_of
    from memtui.screens.help import group_title
    from memtui.screens.keymap import Keymap

    modes = (tab.mode for tab in SCREENS)
    for group in ("app", *modes, *sorted(DIALOG_GROUPS), "list", "filter", "ask", "sql"):
        yield from ("", f"## {group_title(group)}", "", *_table("keys", "what it does", "action"))
        for action in actions_of(group):
            keys = " ".join(f"`{label}`" for label in Keymap().labels(action.id).split())
            changes = " Refused where read-only." if action.mutates else ""
            yield _row(keys, f"{action.description}{changes}", f"`{action.id}`")


def _table(*titles: str) -> tuple[str, str]:
    return _row(*titles), "|" + " --- |" * len(titles)


def _row(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _view_types() -> dict[str, dict[str, str]]:
    """Return the type of every column of every view, from DuckDB over an empty log."""
    from tempfile import TemporaryDirectory

    from memtui.analytics.sql import VIEWS, SqlConsole
    from memtui.store.database import Database

    with TemporaryDirectory(prefix="memtui-") as name:
        database = Database.open(Path(name) / "memtui.db")
        console = SqlConsole(database, Path(name) / "archive", "local")
        try:
            return {
                view: {str(row[0]): str(row[1]) for row in console.run(f"DESCRIBE {view}").rows}
                for view in VIEWS
            }
        finally:
            console.close()
            database.close()


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "exit-codes.md": exit_codes_page,
    "sql.md": sql_page,
    "conformance.md": conformance_page,
    "keys.md": keys_page,
}
"""Each page's file, and the function for the lines below its mark."""


def renewed(folder: Path, name: str) -> str:
    """Return a page with the part below its mark renewed."""
    by_hand = (folder / name).read_text(encoding="utf-8").partition(MARK)[0]
    return "\n".join([by_hand + MARK, *PAGES[name]()]).rstrip() + "\n"


def walk() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name."""
    return command.walk(PROGRAM, command_line())


def _clean(text: str | None) -> str:
    paragraphs = (text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def write(folder: Path) -> None:
    """Renew every page in a folder."""
    for name in PAGES:
        (folder / name).write_text(renewed(folder, name), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
