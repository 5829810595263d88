"""`config`: the settings, their JSON schema for editors, and completion in a shell."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memtui.channels.cli.clients import YesTo, carried_out
from memtui.channels.cli.main import PROGRAM
from memtui.channels.cli.output import columns, table
from memtui.channels.cli.session import ASKED_BY_SHELL, Invocation
from memtui.channels.clients import ClientPlan, FileChange, read
from memtui.config import Settings, origins
from memtui.contract import Invalid, Json, MemtuiError, field_docstrings

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


_SHELLS = ("bash", "zsh", "fish")
_NOTE = f"  # {PROGRAM} completion"

Shell = Annotated[
    Literal["bash", "zsh", "fish"] | None,
    typer.Argument(metavar="SHELL", help="bash, zsh or fish; left out: the one of $SHELL."),
]


def config_completion_show(invocation: Invocation, shell: Shell = None) -> None:
    """Print the completion script of a shell, to install it by hand."""
    chosen = _chosen(shell)
    script = _script(chosen)
    invocation.out.answer({"shell": chosen, "script": script}, script.splitlines())


def config_completion_install(
    invocation: Invocation, shell: Shell = None, *, yes: YesTo = None
) -> int:
    """Let a shell complete memtui's commands from its next start on.

    It first shows which files it would write and change. Exit 2 if nobody could be asked.
    """
    chosen = _chosen(shell)
    place, line = _places(chosen)
    script = f"{_script(chosen)}\n".encode()
    changes = [FileChange(place, read(place), script)]
    if line is not None:
        changes.append(_with_line(*line))
    plan = ClientPlan(None, _real(changes))
    done = f"{chosen} completes memtui"
    return carried_out(invocation, plan, yes, done, "start a new shell to use it")


def config_completion_remove(
    invocation: Invocation, shell: Shell = None, *, yes: YesTo = None
) -> int:
    """Remove what `config completion install` wrote. Exit 2 if nobody could be asked."""
    chosen = _chosen(shell)
    place, line = _places(chosen)
    changes = [FileChange(place, read(place), None)]
    if line is not None:
        changes.append(_without_line(*line))
    plan = ClientPlan(None, _real(changes))
    done = f"{chosen} does not complete memtui"
    return carried_out(invocation, plan, yes, done, "a shell that runs keeps it until it ends")


def _chosen(shell: str | None) -> str:
    found = shell or Path(os.environ.get("SHELL", "")).name
    if found not in _SHELLS:
        raise Invalid("The shell is not known; name it: bash, zsh or fish.")
    return found


def _script(shell: str) -> str:
    from typer.completion import get_completion_script

    return get_completion_script(prog_name=PROGRAM, complete_var=ASKED_BY_SHELL, shell=shell)


def _places(shell: str) -> tuple[Path, tuple[Path, str] | None]:
    """Return the file of a shell's script, and the line that its startup file needs, if any."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if shell == "fish":
        return config / "fish" / "completions" / f"{PROGRAM}.fish", None
    if shell == "zsh":
        place = data / "zsh" / "site-functions" / f"_{PROGRAM}"
        started = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
        ready = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }; "
    else:
        place = data / "bash-completion" / "completions" / PROGRAM
        started, ready = home / ".bashrc", ""
    return place, (started, f"{ready}source {shlex.quote(str(place))}{_NOTE}")


def _with_line(path: Path, line: str) -> FileChange:
    """Return the change that appends a line to a file, unless it contains the line."""
    before = read(path)
    content = before or b""
    if line.encode() in content.splitlines():
        return FileChange(path, before, before)
    gap = b"" if content.endswith(b"\n") or not content else b"\n"
    return FileChange(path, before, content + gap + line.encode() + b"\n")


def _without_line(path: Path, line: str) -> FileChange:
    """Return the change that removes a line from a file; a file without other content goes."""
    before = read(path)
    lines = (before or b"").splitlines(keepends=True)
    rest = b"".join(one for one in lines if one.rstrip(b"\r\n") != line.encode())
    stays = rest or before == b"" or path.is_symlink()  # removing a link would keep its target
    return FileChange(path, before, rest if stays else None)


def _real(changes: list[FileChange]) -> tuple[FileChange, ...]:
    return tuple(one for one in changes if one.before != one.after)
