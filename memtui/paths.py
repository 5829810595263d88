"""The files and folders of memtui, and its settings as written, unchecked.

This module does without pydantic, so that the terminal app can paint before it imports the rest.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENV_PREFIX = "MEMTUI_"
TABLES = frozenset({"keymap", "scope_weights", "score_thresholds", "workspaces"})
"""The settings that are tables: several named values."""

HOME_VARIABLE = "MEMTUI_HOME"
HOOK_PARENT = "MEMTUI_HOOK_PARENT"
"""Environment variable with the process id of a forked hook's caller."""


_LEAST_ROOM = 1_000_000
"""Bytes that a disk must have free to count as writable."""


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700; raises `OSError`."""
    for missing in [path for path in (*reversed(folder.parents), folder) if not path.is_dir()]:
        missing.mkdir(mode=0o700, exist_ok=True)


def is_writable(folder: Path) -> bool:
    """Whether files can be written in a folder: permissions allow it, and there is room."""
    if not os.access(folder, os.W_OK):
        return False
    disk = os.statvfs(folder)
    has_names = disk.f_favail > 0 or disk.f_files == 0  # some file systems do not count them
    has_room = disk.f_bavail * disk.f_frsize >= _LEAST_ROOM
    return has_names and has_room and _allows_more(folder)


def _allows_more(folder: Path) -> bool:
    """Whether a quota leaves room: tested by allocating an unnamed temporary file.

    True where the system has no unnamed files or reports another error.
    """
    if not hasattr(os, "O_TMPFILE"):
        return True
    try:
        work = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(work, 0, _LEAST_ROOM)
        finally:
            os.close(work)
    except OSError as error:
        return error.errno not in {errno.ENOSPC, errno.EDQUOT}
    return True


def check_target(target: Path, *, force: bool) -> None:
    """Check that a new file may be written at `target`.

    Raises:
        Conflict: it exists and `force` is not given.
        Invalid: it is a folder, or its folder is missing.
    """
    from memtui.contract import Conflict, Invalid

    try:
        if target.is_dir():
            raise Invalid(f"{target} is a folder; name a file in it.")
        if not target.parent.is_dir():
            raise Invalid(
                f"The folder {target.parent} does not exist; create it, or choose another place."
            )
        if not force and (target.exists() or target.is_symlink()):
            raise Conflict(f"{target} is there already; name a new file, or give --force.")
    except OSError as error:
        raise unwritable(target, error) from error


def unwritable(target: Path, error: OSError) -> Exception:
    """Return the error for a file that cannot be written."""
    from memtui.contract import Invalid

    return Invalid(f"{target} cannot be written ({error.strerror}); choose another place.")


@contextmanager
def replacing(target: Path, mode: int | None = 0o600, *, is_new: bool = False) -> Iterator[Path]:
    """Yield a private file to write; it durably replaces `target` if the block succeeds.

    It then has `mode`; None: the one that the writer or the system gave it. With `is_new`, an
    existing `target` is an error. The file of a killed process is removed by the next call
    (`memtui.scratch`).

    Raises `OSError`.
    """
    from memtui.scratch import Scratch

    with closing(Scratch(target.parent)) as scratch:
        fresh = scratch.path / target.name
        fresh.touch(0o666 if mode is None else 0o600)
        yield fresh
        if mode is not None:
            fresh.chmod(mode)  # the writer may have created it anew
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        if is_new:
            os.link(fresh, target)
        else:
            fresh.replace(target)


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_other_than_file(path: Path) -> None:
    """Refuse a path that is not a file: reading a pipe or a device may never end.

    Raises:
        Invalid: it is not a file, or it does not exist.
    """
    from memtui.contract import Invalid

    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Invalid(f"{path} cannot be read ({reason}).") from error
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise Invalid(f"{path} is {name}; name a file.")


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its entries are durable. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def project_here() -> str | None:
    """Return the project of the working folder, by the name that hooks use; None: it has none."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # the working folder was deleted
        return None
    return (folder.name or None) if folder != Path.home() else None


@dataclass(frozen=True, slots=True)
class Paths:
    """The files and folders of one home; `MEMTUI_HOME` puts all of them in one folder."""

    data: Path
    config: Path

    @property
    def config_file(self) -> Path:
        """The settings file, TOML."""
        return self.config / "config.toml"

    @property
    def database(self) -> Path:
        """The control plane's SQLite file, unless `database_url` names another database."""
        return self.data / "memtui.db"

    @property
    def session_file(self) -> Path:
        """The session that the terminal app restores at its next start."""
        return self.data / "session.json"

    @property
    def demo_file(self) -> Path:
        """The file that marks this home as a demo, without anybody's real memories."""
        return self.data / "demo.json"

    @property
    def is_demo(self) -> bool:
        """Whether this home is a demo."""
        return self.demo_file.exists()

    @property
    def views_file(self) -> Path:
        """The saved views."""
        return self.data / "views.json"

    @property
    def queries_file(self) -> Path:
        """The saved SQL statements."""
        return self.data / "queries.json"

    @property
    def checks_file(self) -> Path:
        """The checks, unless the setting `checks_file` names another file."""
        return self.data / "checks.toml"

    @property
    def folders_file(self) -> Path:
        """The list of folders that memtui made for files of other programs."""
        return self.data / "folders.json"

    @property
    def is_begun(self) -> bool:
        """Whether memtui was ever opened here; if not, it writes no log file here."""
        return self.database.exists() or self.log_file.exists()

    @property
    def log_file(self) -> Path:
        """The log of unexpected errors and of degraded providers."""
        return self.data / "memtui.log"

    @property
    def archive(self) -> Path:
        """The folder of sealed operations, with one folder for each company."""
        return self.data / "archive"

    @property
    def heads(self) -> Path:
        """The notes of the last entry (head) of each operation log."""
        return self.data / "heads"

    def binding_dir(self, binding_id: str) -> Path:
        """The private folder of one binding."""
        return self.data / "bindings" / binding_id

    def create(self) -> None:
        """Create the folders with mode 0700.

        Raises:
            Invalid: a folder cannot be made or written.
        """
        for folder in (self.data, self.config):
            try:
                make_private(folder)
                folder.chmod(0o700)
            except OSError as error:
                from memtui.contract import Invalid

                raise Invalid(
                    f"Cannot use the folder {folder} ({error.strerror}); "
                    f"point {HOME_VARIABLE} at one that you can write, or read it with "
                    "--read-only."
                ) from error


def find_paths(home: Path | None = None) -> Paths:
    """Return the folders: `home` (a flag), else `MEMTUI_HOME`, else the platform's default.

    Raises:
        Invalid: the path starts with `~name` and there is no such user.
    """
    chosen = home or (Path(value) if (value := os.environ.get(HOME_VARIABLE)) else None)
    if chosen is not None:
        try:
            chosen = chosen.expanduser().absolute()
        except RuntimeError as error:
            from memtui.contract import Invalid

            raise Invalid(f"Nobody has the home folder that {chosen} starts with.") from error
        return Paths(data=chosen, config=chosen)
    import platformdirs

    return Paths(
        data=platformdirs.user_data_path("memtui", appauthor=False),
        config=platformdirs.user_config_path("memtui", appauthor=False),
    )


def read_environment() -> dict[str, Any]:
    """Return the settings in the environment by name.

    A table is one JSON variable, or one variable for each name (`MEMTUI_KEYMAP__UNDO`), which wins.

    Raises:
        Invalid: a table is not a JSON object.
    """
    own = {
        name.lower().removeprefix(ENV_PREFIX.lower()): value
        for name, value in os.environ.items()
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in {HOME_VARIABLE, HOOK_PARENT}
    }
    found: dict[str, Any] = {}
    for name in sorted(own):
        setting, *keys = name.split("__")
        if setting not in TABLES:
            found[setting] = own[name]
        elif keys:
            found[setting] = flat(found.get(setting)) | {".".join(keys): own[name]}
        else:
            found[setting] = _read_table(setting, own[name])
    return found


def _read_table(setting: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        variable = f"{ENV_PREFIX}{setting.upper()}"
        from memtui.contract import Invalid

        raise Invalid(
            f"{variable} in the environment is not a JSON object; "
            f"set {variable}__NAME=VALUE instead."
        ) from error
    return flat(found) or found


def flat(table: Any, prefix: str = "") -> dict[str, Any]:
    """Return a table with nested tables flattened: TOML reads `records.forget` as one."""
    found: dict[str, Any] = {}
    for name, value in table.items() if isinstance(table, dict) else ():
        dotted = f"{prefix}{name}"
        found |= flat(value, f"{dotted}.") if isinstance(value, dict) else {dotted: value}
    return found


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings in the file; a missing file has none.

    Raises:
        Invalid: the file cannot be read or is not valid TOML.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows' editors write the mark
        import tomllib  # few homes have the file

        return tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:  # of UTF-8, or of TOML
        from memtui.contract import Invalid

        raise Invalid(f"{path} is not valid TOML: {error}.") from error
    except OSError as error:
        from memtui.contract import Invalid

        raise Invalid(f"Cannot read {path}: {error.strerror}.") from error
