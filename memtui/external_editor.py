"""The person's own editor: a file at its line, or one text through a private temporary file."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from memtui.contract import Invalid, Location

DRAFT_OF = "of.json"
"""File beside a saved draft with the binding and the record id of its text."""
DRAFT_TEXT = "record.md"
"""File with the text of a draft."""

_GOTO_FLAG = frozenset({"code", "code-insiders", "codium", "cursor", "windsurf"})
_COLON = frozenset({"subl", "zed", "hx", "helix"})


def editor_words(setting: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the editor's command: the setting, else $VISUAL, else $EDITOR, else vi.

    Raises:
        Invalid: the command has an unclosed quote or names no program that is installed.
    """
    command = (
        setting.strip()
        or environment.get("VISUAL", "").strip()
        or environment.get("EDITOR", "").strip()
        or "vi"
    )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"The editor command {command!r} has an unclosed quote.") from error
    if not words or shutil.which(words[0]) is None:
        raise Invalid(
            f"The editor {words[0] if words else command!r} is not installed; "
            "set editor in the settings, or $EDITOR."
        )
    return words


def command_at(editor: Sequence[str], location: Location) -> list[str]:
    """Return the command that opens a file at its line, in the syntax of this editor."""
    path = str(Path(location.path).absolute())
    name = Path(editor[0]).name
    if name in _GOTO_FLAG:
        return [*editor, "--goto", f"{path}:{location.line}"]
    if name in _COLON:
        return [*editor, f"{path}:{location.line}"]
    return [*editor, f"+{location.line}", path]


def run_program(command: Sequence[str]) -> int:
    """Run a program in this terminal until it ends; return its exit code.

    Raises:
        Invalid: it cannot be started.
    """
    # Only the program gets ctrl+c: not SIG_IGN, which it would inherit, but an empty handler.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.call(list(command))  # noqa: S603 - the person's own editor
    except OSError as error:
        raise Invalid(f"The editor {command[0]} does not start: {error.strerror}.") from error
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def edited(
    text: str,
    setting: str,
    run: Callable[[Sequence[str]], int] = run_program,
    *,
    within: Path | None = None,
    keep: Callable[[Path], None] | None = None,
    of: tuple[str, str] = ("", ""),
) -> Iterator[str]:
    """Let the person edit a text in their editor, and yield the edited text.

    The text is a file with mode 0600 in a temporary folder inside `within`; the folder is removed
    afterwards. If the block fails after the text was changed, the folder stays and `keep` gets the
    file; `of` (binding, record id) is written beside it, so that a purge finds it. A final line
    end that the editor added is removed.

    Raises:
        Invalid: there is no editor, it failed, or the file it saved is missing or not UTF-8.
    """
    words = editor_words(setting)
    folder = Path(tempfile.mkdtemp(prefix="draft-", dir=within))
    file, content = folder / DRAFT_TEXT, text.encode("utf-8", "surrogatepass")
    kept = False
    try:
        file.touch(mode=0o600)
        file.write_bytes(content)
        left = _read_back(file, run([*words, str(file)]))
        yield left if text.endswith("\n") else left.removesuffix("\n")
    except BaseException:
        if keep is not None and file.exists() and file.read_bytes() != content:
            kept = True
            (folder / DRAFT_OF).write_text(json.dumps(of), "ascii")
            keep(file)
        raise
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _read_back(file: Path, code: int) -> str:
    if code:
        raise Invalid(f"The editor ended with code {code}; nothing was written.")
    try:
        return file.read_bytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Invalid("What the editor saved is not UTF-8; nothing was written.") from error
    except OSError as error:
        raise Invalid("The editor left no file behind; nothing was written.") from error
