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
from memtui.doors.cli.errors import EXIT_CODES, KIND_CODES
from memtui.doors.cli.main import PROGRAM, build_app

_COMMANDS_HEAD = """\
Options of `memtui` itself go before the command, the command's own after it. stdout carries the
answer, stderr the rest; `--json` prints one JSON document."""

_SETTINGS_HEAD = """\
A flag wins over the environment, that over `config.toml`, that over the default. An unknown key is
an error. `MEMTUI_HOME` names the one folder that holds everything."""

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
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
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


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "exit-codes.md": exit_codes_page,
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
