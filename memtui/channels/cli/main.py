"""The command line: all commands and groups, the global options, and the entry point."""

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from memtui import __version__
from memtui.channels.cli import errors
from memtui.channels.cli.command import LazyGroup, RootGroup, lazy_command
from memtui.channels.cli.interrupts import INTERRUPTED
from memtui.channels.cli.session import ASKED_BY_SHELL, Invocation, is_utf8, open_app
from memtui.channels.helper.words import home_of_hook

PROGRAM = "memtui"


def _print_version(value: bool) -> None:  # noqa: FBT001 - Typer's callback protocol
    if value:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        raise typer.Exit


def _complete_company(ctx: typer.Context, incomplete: str) -> list[str]:
    from memtui.channels.cli.options import complete_company

    return complete_company(ctx, incomplete)


def start(
    ctx: typer.Context,
    *,
    home: Annotated[
        Path | None, typer.Option(help="The folder that holds everything.", file_okay=False)
    ] = None,
    company: Annotated[
        str | None,
        typer.Option(help="The company, by id or name.", autocompletion=_complete_company),
    ] = None,
    principal: Annotated[str | None, typer.Option(help="Who you are in the operation log.")] = None,
    acts_for: Annotated[
        str | None,
        typer.Option(metavar="PRINCIPAL", help="The person on whose behalf an agent acts."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> int:
    """See, search, audit, correct and prune what your agents remember."""
    del version
    invocation = ctx.ensure_object(Invocation)
    invocation.home, invocation.company = home, company
    invocation.principal, invocation.acts_for = principal, acts_for
    invocation.read_only = read_only
    if ctx.invoked_subcommand is not None:
        return 0
    return open_app(invocation)


BEGIN = {
    PROGRAM: "Open the app on your memories.",
    f"{PROGRAM} demo": "Open it on a made-up company, to try it.",
    f"{PROGRAM} bindings discover": "List the memories that are on this machine.",
    f"{PROGRAM} COMMAND --help": "Explain a command.",
}
"""What a new user types first."""


@cache
def command_line() -> Any:
    """Return the command to call, built once per process."""
    app = typer.Typer(
        cls=RootGroup,
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        subcommand_metavar="[COMMAND [ARGS]...]",
        add_completion=False,  # Typer's own options write to a shell's files without a word
    )
    app.callback()(start)
    root: Any = get_command(app)
    root.begin, root.sections = BEGIN, {}
    groups = {"": root}
    for line in Path(__file__).with_name("commands.txt").read_text("utf-8").splitlines():
        sort, _, row = line.partition(" ")
        name, *cells = row.split(" | ")
        parent = name.rpartition(" ")[0]
        if sort == "section":
            listed: list[str] = []
            root.sections[name] = cells[0], listed
        elif sort == "command":
            root.add_command(lazy_command(name, *cells))
            listed.append(name)
        elif sort == "group":
            modules, alone, sentence = cells
            groups[name] = LazyGroup(name, modules.split(), sentence, alone or None)
            groups[parent].add_command(groups[name])
            if not parent:
                listed.append(name)
    return root


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error is reported here."""
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    if ASKED_BY_SHELL in os.environ:
        from typer.completion import completion_init

        completion_init()
    invocation = Invocation()
    try:
        _refuse_other_encodings(arguments)
        code = command_line()(
            list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=invocation
        )
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost boundary: nobody sees a traceback
        if home_of_hook(arguments) is not None:
            from memtui.channels.cli import hook

            return hook.failed(error, invocation)
        return errors.report(error, invocation, as_json=_asks_for_json(arguments))
    return code or 0


def _open_missing() -> None:
    """Replace closed standard streams (`>&-`) by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _refuse_other_encodings(arguments: Sequence[str]) -> None:
    """Raise `Invalid` for arguments that are not UTF-8, which memtui cannot store.

    It also does if Python's encoding of file names is not UTF-8.
    """
    names = sys.getfilesystemencoding()
    if not is_utf8(names) and {"--help", "--version"}.isdisjoint(arguments):
        from memtui.contract import Invalid

        raise Invalid(
            f"Python takes names of files for {names} here, so memtui could not open every note; "
            "set LANG to a UTF-8 locale such as C.UTF-8, or PYTHONUTF8=1."
        )
    try:
        "".join(arguments).encode("utf-8")
    except UnicodeEncodeError as error:
        from memtui.contract import Invalid

        raise Invalid("An argument is not UTF-8 text; write it in UTF-8.") from error


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` is among the options, even if they cannot be parsed."""
    words = list(arguments)
    return "--json" in words[: words.index("--") if "--" in words else None]
