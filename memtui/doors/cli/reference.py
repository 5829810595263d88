"""The reference pages, made from the code: `python -m memtui.doors.cli.reference docs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from memtui.doors.cli.command import LazyCommand
from memtui.doors.cli.conformance import conformance_page
from memtui.doors.cli.errors import EXIT_CODES, KIND_CODES
from memtui.doors.cli.main import PROGRAM, build_app

_COMMANDS_HEAD = """\
Options of `memtui` itself go before the command, the command's own after it. stdout carries the
answer, stderr the rest; `--json` prints one JSON document."""

_SETTINGS_HEAD = """\
A flag wins over the environment, that over `config.toml`, that over the default. An unknown key is
an error. `MEMTUI_HOME` names the one folder that holds everything."""

_SQL_HEAD = """\
`memtui sql "SELECT …"` answers one statement that reads, in DuckDB's dialect, over these views of
one company's operation log. Operations that were sealed are in them like all others. A statement
can read nothing else, no file, no network, no setting, and changes nothing; it is stopped after
`--timeout` seconds, by ctrl+c, and where it needs too much memory.

- `--json` prints `{"columns", "types", "rows", "truncated"}`. Decimals are text, so that no digit
  is lost; so are moments and days (ISO 8601), intervals, `NaN` and `Infinity`; bytes are
  hexadecimal.
- Days and hours are cut in your time zone (the setting `timezone`, else the system's).
- `usage` and `handles` belong to the operation with the same `seq`.
- `request` and `details` are JSON: `request->>'query'` is the text of a query.

```sql
SELECT agent_id, date_trunc('week', started_at) AS week, count(*) AS queries, sum(cost_usd) AS cost
FROM operations WHERE operation_type = 'query' GROUP BY ALL ORDER BY week, cost DESC;

SELECT provider_record_id, count(*) AS times, max(score) AS best
FROM handles WHERE operation_type = 'query' GROUP BY ALL ORDER BY times DESC LIMIT 20;

SELECT model, count(*) - count(cost_usd) AS unpriced, sum(input_tokens) AS tokens
FROM usage GROUP BY model;
```"""

_ERRORS_HEAD = """\
With `--json` an error is one JSON document on stdout, `{"error": {"kind": "…", "message": "…"}}`,
and the sentence is on stderr too. A conflict adds `current`, the record as it is now or null, and
`proposed`, the text that was to be put there."""


def commands_page() -> str:
    """Return the page of every command with its arguments and options."""
    lines = [
        "# Commands",
        "",
        _COMMANDS_HEAD,
    ]
    for path, command in walk(build_app()):
        lines += ["", f"{'##' if ' ' not in path or _is_group(command) else '###'} `{path}`", ""]
        lines += [_clean(command.help), ""]
        lines += _parameters(path, command)
    return "\n".join(lines).rstrip() + "\n"


def settings_page() -> str:
    """Return the page of every setting: in the file, in the environment, its default."""
    from memtui.config import ENV_PREFIX, Settings
    from memtui.contract import field_docstrings

    words = field_docstrings(Settings)
    lines = [
        "# Settings",
        "",
        _SETTINGS_HEAD,
        "",
        "| `config.toml` | environment | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for name, field in Settings.model_fields.items():
        default = "`user:` and your login" if field.default_factory else f"`{_toml(field.default)}`"
        if name == "keymap":
            default = "`{}`"
        meaning = " ".join(words[name].split()).replace("|", "\\|")
        lines.append(f"| `{name}` | `{ENV_PREFIX}{name.upper()}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def exit_codes_page() -> str:
    """Return the page of exit codes and of the errors that lead to them."""
    lines = ["# Exit codes", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code} | {_cell(meaning)} |" for code, meaning in EXIT_CODES.items()]
    lines += [
        "",
        _ERRORS_HEAD,
        "",
        "| kind | code |",
        "| --- | --- |",
    ]
    lines += [f"| `{kind}` | {code} |" for kind, code in KIND_CODES.items()]
    return "\n".join(lines) + "\n"


def sql_page() -> str:
    """Return the page of the views that a statement reads, with every column and its type."""
    from memtui.analytics.sql import VIEWS

    lines = ["# SQL", "", _SQL_HEAD]
    for view, types in _view_types().items():
        lines += ["", f"## `{view}`", "", "| column | type | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| `{column.name}` | {types[column.name]} | {_cell(column.meaning)} |"
            for column in VIEWS[view]
        ]
    return "\n".join(lines) + "\n"


def _view_types() -> dict[str, dict[str, str]]:
    """Return the type of every column of every view, as DuckDB says it of an empty log."""
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


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "exit-codes.md": exit_codes_page,
    "sql.md": sql_page,
    "conformance.md": conformance_page,
}
"""Each page's file and what makes it."""


def walk(app: typer.Typer) -> Iterator[tuple[str, Any]]:
    """Yield every command with its whole name: the program, then its groups and commands."""
    yield from _walk(PROGRAM, get_command(app))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(command, LazyCommand):
        command = command.load()
    yield path, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _walk(f"{path} {name}", inner)


def _parameters(path: str, command: Any) -> list[str]:
    context = typer.Context(command, info_name=path)
    records = [
        record
        for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) and record[0] != "--help"
    ]
    if not records:
        return []
    rows = [f"| `{_cell(name)}` | {_cell(_clean(text))} |" for name, text in records]
    return ["| | |", "| --- | --- |", *rows]


def _is_group(command: Any) -> bool:
    return isinstance(command, TyperGroup)


def _clean(text: str | None) -> str:
    paragraphs = (text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def write(folder: Path) -> None:
    """Write every page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
