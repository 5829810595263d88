"""Maps errors to exit codes and messages."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import typer

from memtui.channels.cli.output import Output, say

if TYPE_CHECKING:
    from memtui.channels.cli.session import Invocation
    from memtui.contract import Conflict, MemtuiError

EXIT_CODES: dict[int, str] = {
    0: "Done. A reader that closes the pipe early (`| head`) counts as done too.",
    1: "The answer is no: a check failed, what was named is not there, a question was answered "
    "with no, or some of several could not be done. The others were, and the output says which.",
    2: "Nothing was done, as the request cannot be right: a bad option, value, setting or file, an "
    "extra that is not installed, a yes that nobody was there to give, or an ability that the "
    "provider does not have.",
    3: "Something else does not answer: a provider that is down, too slow or answers nonsense, "
    "memtui's own database gone or damaged, an object store, a port that is taken. Of a change it "
    "says *outcome unknown* where it may have happened: `memtui ops check` finds out.",
    4: "Denied: your role does not allow it, a token or a limit does not, an agent may not, or "
    "memtui, the company or the binding is read-only.",
    5: "Conflict: the record changed since it was read, and both versions are shown; or something "
    "else came first: the key or file is there already, the change was undone or decided on, "
    "another purge, sync or migration is running.",
    70: "A fault in memtui itself; the details are in the log file.",
    74: "The answer could not be written where stdout goes, such as a full disk.",
    75: "`memtui mcp wrap` only: the server ended with 0, and not every call that passed is in the "
    "log; stderr says how many are not.",
    130: "Interrupted with ctrl+c.",
}
"""Every exit code, and its meaning for `docs/exit-codes.md`."""

_AWAITS_SECOND = "AwaitsSecond"
"""The kind of the error that says that a change of settings waits for a second person."""
INTERNAL = 70
UNWRITTEN = 74
UNLOGGED = 75

KIND_CODES = {
    "invalid": 2,
    "unsupported": 2,
    "unavailable": 3,
    "not_found": 1,
    "denied": 4,
    "conflict": 5,
    "internal": INTERNAL,
}
"""The exit code of each kind of error in JSON."""


def report(error: Exception, invocation: Invocation, *, as_json: bool) -> int:
    """Print an error on stderr, with `as_json` also as JSON on stdout; return the exit code."""
    from memtui.contract import Conflict, MemtuiError, Unavailable

    if is_unwritten(error):
        return _tell_unwritten(error)
    if isinstance(error, typer.Abort):
        say("Nothing was changed.")
        return 1
    if isinstance(error, typer.TyperException):
        return _tell(Output(as_json), "invalid", usage_sentence(error))
    if isinstance(error, Conflict):
        return _tell_conflict(Output(as_json), error)
    if isinstance(error, MemtuiError):
        unknown = {}
        if isinstance(error, Unavailable) and error.operation_id is not None:
            unknown = {"outcome": "unknown", "operation_id": error.operation_id}
        tell = _tell_awaiting if error.kind == _AWAITS_SECOND else _tell
        return tell(Output(as_json), kind_of(error), str(error), **unknown, **error.details)
    return _tell_fault(Output(as_json), error, invocation)


_UNWRITABLE = {
    errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF,
}  # fmt: skip
"""Errors of writing to stdout; an error of one of memtui's files has a file name."""


def is_unwritten(error: Exception) -> TypeGuard[OSError]:
    """Whether the error is a failure to write to stdout."""
    return isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None


def kind_of(error: MemtuiError) -> str:
    """Return the kind of a contract's error: `not_found` for `NotFound`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", error.kind).lower()


def failures(name: str, failed: Iterable[tuple[str, MemtuiError]]) -> list[dict[str, str]]:
    """Return failures as JSON, each with its id under `name`, its kind and its message."""
    return [{name: id_, "kind": kind_of(error), "message": str(error)} for id_, error in failed]


def code_of_several(failed: Iterable[MemtuiError]) -> int:
    """Return the exit code of several failures: 5 if one is a conflict, else 1; 0 for none."""
    kinds = set(map(kind_of, failed))
    return KIND_CODES["conflict"] if "conflict" in kinds else int(bool(kinds))


def close_quietly() -> int:
    """Redirect stdout to nowhere, as its reader is gone; return 0."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return 0


def _tell(out: Output, kind: str, sentence: str, **more: Any) -> int:
    say(sentence)
    if out.as_json:
        try:
            out.document({"error": {"kind": kind, "message": sentence, **more}})
        except OSError:
            close_quietly()
    return KIND_CODES.get(kind, INTERNAL)


def _tell_awaiting(out: Output, _kind: str, sentence: str, **more: Any) -> int:
    """Tell that a change waits, which is no error."""
    say(sentence)
    if out.as_json:
        out.document(more)
    return 0


def _tell_unwritten(error: OSError) -> int:
    done = close_quietly()
    if isinstance(error, BrokenPipeError):
        return done
    say(
        f"The answer could not be written: {error.strerror}; `memtui ops list` shows what was done."
    )
    return UNWRITTEN


def _tell_conflict(out: Output, error: Conflict) -> int:
    code = _tell(out, "conflict", str(error), current=error.current, proposed=error.proposed)
    if not out.as_json and error.current is not None:
        say(f"--- current\n{error.current.text}")
    if not out.as_json and error.proposed is not None:
        say(f"--- proposed\n{error.proposed}")
    return code


def _tell_fault(out: Output, error: Exception, invocation: Invocation) -> int:
    import logging

    from memtui.channels.cli.session import logging_to

    path = invocation.paths().log_file
    with logging_to(path) as log:
        logging.getLogger("memtui").error("unexpected error", exc_info=error)
    where = f"the details are in {path}" if log.is_whole else "they are in no log"
    return _tell(
        out, "internal", f"memtui ran into an internal error ({type(error).__name__}); {where}."
    )


def usage_sentence(error: typer.TyperException) -> str:
    """Return Typer's message as one sentence, with the command whose help explains it."""
    cause: Any = error.__cause__
    if hasattr(cause, "errors") and isinstance(error, typer.BadParameter):
        from memtui.wording import misfit

        error.message = misfit(cause.errors()[0])
    message = " ".join(error.format_message().split()).rstrip(".")
    context: typer.Context | None = getattr(error, "ctx", None)
    if context is None:
        return f"{message}."
    name = getattr(error, "option_name", "")
    root = context.find_root()
    if context is not root and name in {word for one in root.command.params for word in one.opts}:
        rest = context.command_path.removeprefix(f"{root.info_name} ")
        return f"{name} goes before the command: {root.info_name} {name} … {rest}."
    if hasattr(error, "possibilities"):
        near = _nearest(name, [one for param in context.command.params for one in param.opts])
        message = f"{error.message}; did you mean {near}?" if near else error.message
    end = " See" if message.endswith("?") else "; see"
    return f"{message}{end} {context.command_path} --help."


_ALIKE = (
    {"--limit", "--last", "--top-k", "--max", "--count", "--number", "-n"},
    {"--user", "--person", "--subject"},
    {"--drive", "--workspace", "--repo", "--project"},
    {"--to", "--out", "--output", "--file", "-o"},
    {"--since", "--from", "--after", "--start"},
    {"--until", "--before", "--end"},
    {"--yes", "--force", "--confirm", "--overwrite"},
    {"--dry-run", "--check", "--preview"},
    {"--reason", "--message", "--why", "-m"},
    {"--text", "--search", "--grep", "--query"},
    {"--follow", "--watch", "--tail"},
    {"--by", "--group", "--group-by"},
    {"--sort", "--order", "--order-by"},
    {"--expires", "--ttl", "--expires-at"},
)
"""Groups of options with the same meaning, here or in other programs."""


def _nearest(name: str, known: Sequence[str]) -> str:
    """Return the option probably meant: one of the same meaning, else of similar spelling."""
    from difflib import get_close_matches

    for alike in _ALIKE:
        if name in alike and (meant := [one for one in known if one in alike]):
            return meant[0]
    words = {one.removeprefix("--"): one for one in known if one.startswith("--")}
    near = get_close_matches(name.lower().lstrip("-").replace("_", "-"), words, n=1, cutoff=0.7)
    return words[near[0]] if near else ""
