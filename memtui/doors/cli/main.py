"""The command line as a whole: every command and its group, the global options, the entry."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from memtui import __version__
from memtui.doors.cli import errors
from memtui.doors.cli.command import add
from memtui.doors.cli.session import Invocation, open_app

PROGRAM = "memtui"


def _print_version(value: bool) -> None:  # noqa: FBT001 - Typer's callback protocol
    if value:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        raise typer.Exit


def start(
    ctx: typer.Context,
    *,
    home: Annotated[
        Path | None, typer.Option(help="The folder that holds everything.", file_okay=False)
    ] = None,
    company: Annotated[str | None, typer.Option(help="The company, by id or name.")] = None,
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
    """See, search, audit, correct and prune what your agents remember.

    Without a command the terminal app opens. Each command takes --help.
    """
    del version
    invocation = ctx.ensure_object(Invocation)
    invocation.home, invocation.company = home, company
    invocation.principal, invocation.acts_for = principal, acts_for
    invocation.read_only = read_only
    if ctx.invoked_subcommand is not None:
        return 0
    return open_app(invocation)


GROUPS = {
    "facts": "What every prompt is told, one line each.",
    "bindings": "Which memory serves whom.",
    "bindings target": "Whom a binding serves.",
    "bindings namespace": "A partition of a provider.",
    "ops": "The operation log.",
    "archive": "The old part of the operation log, in sealed files.",
    "audit": "The proof that nobody altered the operation log.",
    "companies": "Whose memory this is.",
    "members": "Who may see, add and delete what.",
    "tokens": "What programs prove with who they are.",
    "budget": "Spending limits, and what was spent of them.",
}
"""What the list of commands says of each group."""

COMMANDS = {
    "query": ("query", "Find the records that are relevant to TEXT, best first."),
    "note": ("notes", "Store TEXT as a memory and print the new record's id."),
    "get": ("records", "Show one record, whole."),
    "correct": ("notes", "Change a record; what is not given stays as it is."),
    "forget": ("forget", "Remove records; undo brings them back."),
    "purge": ("purge", "Erase memtui's own copies of what is gone, for good."),
    "browse": ("records", "List what a binding stores, one page at a time."),
    "history": ("records", "Show how a record came to be, newest first."),
    "undo": ("forget", "Take a change back."),
    "context": ("query", "Show what a model is told before a run, and its tokens and price."),
    "facts list": ("facts", "List facts: who added them, when, and what each costs."),
    "facts add": ("facts", "Add a fact and print its id."),
    "facts edit": ("facts", "Change a fact's text."),
    "facts delete": ("facts", "Delete facts; undo brings them back."),
    "facts clear": ("facts", "Delete all facts of one user, project or agent."),
    "facts merge": ("facts", "Keep one of several facts that say the same."),
    "facts pin": ("facts", "Pin facts."),
    "facts unpin": ("facts", "Take the pin off facts."),
    "facts expire": ("facts", "Let a fact expire, or never expire."),
    "facts export": ("facts_files", "Write facts to a new file or to stdout."),
    "facts import": ("facts_files", "Add the facts of a file."),
    "facts prune": ("prune", "Show which facts could go, and why; --apply lets them go."),
    "facts stats": ("facts", "Show how facts are used, and by whom."),
    "bindings list": ("bindings", "List the company's bindings."),
    "bindings show": ("bindings", "Show one binding."),
    "bindings add": ("bindings", "Add a binding to a provider."),
    "bindings configure": ("bindings", "Change a binding's config."),
    "bindings remove": ("bindings", "Remove a binding."),
    "bindings enable": ("bindings", "Switch a binding on."),
    "bindings disable": ("bindings", "Switch a binding off."),
    "bindings read-only": ("bindings", "Refuse or allow changes through it."),
    "bindings target set": ("bindings", "Let a binding serve a target."),
    "bindings target clear": ("bindings", "Let no binding of its own serve a target."),
    "bindings resolve": ("bindings", "Say which binding serves a scope, and why."),
    "bindings health": ("bindings", "Ask bindings whether they can serve now."),
    "bindings discover": ("bindings", "List the memories found on this machine."),
    "bindings providers": ("bindings", "List the providers that are installed."),
    "bindings sync": ("bindings", "Read a provider's outside source again."),
    "bindings namespaces": ("bindings", "List the partitions of a provider."),
    "bindings namespace put": ("bindings", "Make a namespace, or set its expiry."),
    "bindings namespace delete": ("bindings", "Remove a namespace with all that is in it."),
    "ops list": ("ops", "List operations, newest first."),
    "ops show": ("ops", "Show one operation: what was asked, returned and changed."),
    "ops check": ("ops", "Find out whether an operation of unknown outcome happened."),
    "ops import": ("ops", "Import another system's operation log as a company of its own."),
    "ops export": (
        "ops",
        "Write operations, sealed ones too, to a file, in the order of their numbers.",
    ),
    "stats": ("stats", "Show what the operations did, took and cost."),
    "sql": ("stats", "Ask anything about the operation log in SQL, in DuckDB's dialect."),
    "archive seal": ("archive", "Move old operations out of the database into sealed files."),
    "archive verify": (
        "archive",
        "Check that the sealed files are as they were sealed. Exit 1 on a problem.",
    ),
    "archive fetch": ("archive", "Bring what other machines sealed out of the object store."),
    "archive ls": ("archive", "List what is sealed, oldest first."),
    "audit verify": ("archive", "Prove that no operation was altered, removed or put in between."),
    "audit export": (
        "archive",
        "Write every operation with its digest to a file that anybody can verify.",
    ),
    "companies list": ("companies", "List the companies of this home that you may enter."),
    "companies add": ("companies", "Add a company."),
    "companies read-only": ("companies", "Refuse every change in a company, or allow them again."),
    "companies remove": ("companies", "Remove a company that an import made."),
    "members list": ("companies", "List the company's members and their roles."),
    "members add": ("companies", "Give a person a role."),
    "members remove": ("companies", "Take a person's role away."),
    "tokens list": ("companies", "List the company's bearer tokens."),
    "tokens add": ("companies", "Make a bearer token and print it, this once."),
    "tokens remove": ("companies", "Revoke a bearer token."),
    "budget list": ("budget", "List the company's spending limits."),
    "budget set": ("budget", "Set a spending limit."),
    "budget remove": ("budget", "Remove the spending limits of a target."),
    "budget check": ("budget", "Check what was spent against the spending limits."),
    "migrate": (
        "migrate",
        "Move a binding's records into another, or prove that nothing was lost.",
    ),
    "cutover": ("migrate", "Let DST serve what SRC serves, or give it back."),
    "conformance": (
        "conformance",
        "Check a running memory plugin against the contract v1, rule by rule.",
    ),
    "doctor": ("doctor", "Check that everything works, and say what to do."),
    "backup": ("doctor", "Write everything that this home holds to one new file."),
    "restore": ("doctor", "Make a home out of a backup, where there is none."),
    "serve": ("serve", "Answer other programs over HTTP."),
    "demo": ("demo", "Make a sample company, the same every time, and open it."),
}
"""By its words the module of each command, whose function has the words' name (`facts_list`), and
the first sentence of that function's docstring."""


def build_app() -> typer.Typer:
    """Return the command line."""
    app = typer.Typer(
        invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(start)
    groups = {"": app}
    for words, sentence in GROUPS.items():
        groups[words] = typer.Typer(help=sentence, rich_markup_mode=None)
    for words, (module, sentence) in COMMANDS.items():
        above, _, name = words.rpartition(" ")
        add(groups[above], name, f"{module}:{re.sub(r'[ -]', '_', words)}", sentence)
    for words in GROUPS:
        above, _, name = words.rpartition(" ")
        groups[above].add_typer(groups[words], name=name)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; no error gets past here."""
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    invocation = Invocation()
    try:
        _refuse_other_encodings(arguments)
        code = build_app()(
            list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=invocation
        )
        sys.stdout.flush()
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost boundary: nobody sees a traceback
        return errors.report(error, invocation, as_json=_asks_for_json(arguments))
    return code or 0


def _open_missing() -> None:
    """Give a standard stream that is closed (`>&-`) a place where what goes there is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _refuse_other_encodings(arguments: Sequence[str]) -> None:
    """Raise `Invalid` for bytes that are no UTF-8: nothing that memtui stores can hold them."""
    try:
        "".join(arguments).encode("utf-8")
    except UnicodeEncodeError as error:
        from memtui.contract import Invalid

        raise Invalid("An argument is not UTF-8 text; write it in UTF-8.") from error


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether `--json` stands among the options, also where they could not be parsed."""
    words = list(arguments)
    return "--json" in words[: words.index("--") if "--" in words else None]
