"""The command line as a whole: every command and its group, the global options, the entry."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from memtui import __version__
from memtui.doors.cli import errors
from memtui.doors.cli.command import add, group
from memtui.doors.cli.session import Invocation
from memtui.doors.cli.terminal import open_app

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


def build_app() -> typer.Typer:
    """Return the command line."""
    app = typer.Typer(
        invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(start)
    add(app, "query", "query:query", "Find the records that are relevant to TEXT, best first.")
    add(app, "note", "notes:note", "Store TEXT as a memory and print the new record's id.")
    add(app, "get", "records:get", "Show one record, whole.")
    add(app, "correct", "notes:correct", "Change a record; what is not given stays as it is.")
    add(app, "forget", "forget:forget", "Remove records; undo brings them back.")
    add(
        app,
        "purge",
        "purge:purge",
        "Erase memtui's own copies of what is gone, for good.",
    )
    add(app, "browse", "records:browse", "List what a binding stores, one page at a time.")
    add(app, "history", "records:history", "Show how a record came to be, newest first.")
    add(app, "undo", "forget:undo", "Take a change back.")
    add(
        app,
        "context",
        "context:context",
        "Show what a model is told before a run, and its tokens and price.",
    )
    _add_facts(group(app, "facts", "What every prompt is told, one line each."))
    _add_bindings(group(app, "bindings", "Which memory serves whom."))
    log = group(app, "ops", "The operation log.")
    add(log, "list", "ops:list_operations", "List operations, newest first.")
    add(log, "show", "ops:show", "Show one operation: what was asked, returned and changed.")
    add(log, "check", "ops:check", "Find out whether an operation of unknown outcome happened.")
    add(
        log,
        "import",
        "ops_import:import_operations",
        "Import another system's operation log as a company of its own.",
    )
    add(
        log,
        "export",
        "ops_export:export_operations",
        "Write operations, sealed ones too, to a file, in the order of their numbers.",
    )
    _add_analysis(app)
    owners = group(app, "companies", "Whose memory this is.")
    add(
        owners,
        "list",
        "companies:list_companies",
        "List the companies of this home that you may enter.",
    )
    add(owners, "add", "companies:add_company", "Add a company.")
    add(
        owners,
        "read-only",
        "companies:set_read_only",
        "Refuse every change in a company, or allow them again.",
    )
    add(owners, "remove", "companies:remove_company", "Remove a company that an import made.")
    people = group(app, "members", "Who may see, add and delete what.")
    add(people, "list", "members:list_members", "List the company's members and their roles.")
    add(
        people,
        "add",
        "members:add_member",
        "Give a person a role.",
    )
    add(people, "remove", "members:remove_member", "Take a person's role away.")
    keys = group(app, "tokens", "What programs prove with who they are.")
    add(
        keys,
        "list",
        "tokens:list_tokens",
        "List the company's bearer tokens.",
    )
    add(
        keys,
        "add",
        "tokens:add_token",
        "Make a bearer token and print it, this once.",
    )
    add(keys, "remove", "tokens:remove_token", "Revoke a bearer token.")
    _add_limits(group(app, "budget", "Spending limits, and what was spent of them."))
    add(
        app,
        "migrate",
        "migrate:migrate",
        "Move a binding's records into another, or prove that nothing was lost.",
    )
    add(app, "cutover", "migrate:cutover", "Let DST serve what SRC serves, or give it back.")
    add(
        app,
        "conformance",
        "conformance:conformance",
        "Check a running memory plugin against the contract v1, rule by rule.",
    )
    add(app, "doctor", "doctor:doctor", "Check that everything works, and say what to do.")
    add(app, "backup", "backup:backup", "Write everything that this home holds to one new file.")
    add(app, "restore", "backup:restore", "Make a home out of a backup, where there is none.")
    add(app, "serve", "serve:serve", "Answer other programs over HTTP.")
    add(app, "demo", "demo:demo", "Make a sample company, the same every time, and open it.")
    return app


def _add_facts(facts: typer.Typer) -> None:
    add(
        facts,
        "list",
        "facts:list_facts",
        "List facts: who added them, when, and what each costs.",
    )
    add(facts, "add", "facts:add_fact", "Add a fact and print its id.")
    add(facts, "edit", "facts:edit_fact", "Change a fact's text.")
    add(facts, "delete", "facts:delete_facts", "Delete facts; undo brings them back.")
    add(
        facts,
        "clear",
        "facts_change:clear_facts",
        "Delete all facts of one user, project or agent.",
    )
    add(
        facts,
        "merge",
        "facts_change:merge_facts",
        "Keep one of several facts that say the same.",
    )
    add(
        facts,
        "pin",
        "facts_change:pin_facts",
        "Pin facts.",
    )
    add(facts, "unpin", "facts_change:unpin_facts", "Take the pin off facts.")
    add(facts, "expire", "facts_change:expire_fact", "Let a fact expire, or never expire.")
    add(facts, "export", "facts_files:export_facts", "Write facts to a new file or to stdout.")
    add(
        facts,
        "import",
        "facts_files:import_facts",
        "Add the facts of a file.",
    )
    add(
        facts,
        "prune",
        "prune:prune_facts",
        "Show which facts could go, and why; --apply lets them go.",
    )
    add(facts, "stats", "facts_stats:facts_stats", "Show how facts are used, and by whom.")


def _add_analysis(app: typer.Typer) -> None:
    add(app, "stats", "stats:stats", "Show what the operations did, took and cost.")
    add(app, "sql", "sql:sql", "Ask anything about the operation log in SQL, in DuckDB's dialect.")
    sealed = group(app, "archive", "The old part of the operation log, in sealed files.")
    add(
        sealed, "seal", "archive:seal", "Move old operations out of the database into sealed files."
    )
    add(
        sealed,
        "verify",
        "archive:verify",
        "Check that the sealed files are as they were sealed. Exit 1 on a problem.",
    )
    add(
        sealed,
        "fetch",
        "archive:fetch",
        "Bring what other machines sealed out of the object store.",
    )
    add(sealed, "ls", "archive:list_segments", "List what is sealed, oldest first.")
    proof = group(app, "audit", "The proof that nobody altered the operation log.")
    add(
        proof,
        "verify",
        "audit:verify",
        "Prove that no operation was altered, removed or put in between.",
    )
    add(
        proof,
        "export",
        "audit:export",
        "Write every operation with its digest to a file that anybody can verify.",
    )


def _add_limits(limits: typer.Typer) -> None:
    add(limits, "list", "budget:list_limits", "List the company's spending limits.")
    add(limits, "set", "budget:set_limit", "Set a spending limit.")
    add(limits, "remove", "budget:remove_limit", "Remove the spending limits of a target.")
    add(
        limits,
        "check",
        "budget:check_limits",
        "Check what was spent against the spending limits.",
    )


def _add_bindings(served: typer.Typer) -> None:
    add(served, "list", "bindings:list_bindings", "List the company's bindings.")
    add(served, "show", "bindings:show_binding", "Show one binding.")
    add(served, "add", "bindings:add_binding", "Add a binding to a provider.")
    add(served, "configure", "bindings:configure_binding", "Change a binding's config.")
    add(served, "remove", "bindings:remove_binding", "Remove a binding.")
    add(served, "enable", "bindings:enable_binding", "Switch a binding on.")
    add(served, "disable", "bindings:disable_binding", "Switch a binding off.")
    add(served, "read-only", "bindings:set_read_only", "Refuse or allow changes through it.")
    target = group(served, "target", "Whom a binding serves.")
    add(target, "set", "bindings:set_target", "Let a binding serve a target.")
    add(target, "clear", "bindings:clear_target", "Let no binding of its own serve a target.")
    add(served, "resolve", "providers:resolve", "Say which binding serves a scope, and why.")
    add(served, "health", "providers:health", "Ask bindings whether they can serve now.")
    add(served, "discover", "discover:discover", "List the memories found on this machine.")
    add(served, "providers", "providers:providers", "List the providers that are installed.")
    add(served, "sync", "providers:sync", "Read a provider's outside source again.")
    add(served, "namespaces", "providers:namespaces", "List the partitions of a provider.")
    part = group(served, "namespace", "A partition of a provider.")
    add(part, "put", "namespaces:put_namespace", "Make a namespace, or set its expiry.")
    add(
        part,
        "delete",
        "namespaces:delete_namespace",
        "Remove a namespace with all that is in it.",
    )


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
