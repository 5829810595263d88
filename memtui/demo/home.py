"""The folder of the demo: whose it is, and removing only what a demo made."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from memtui.config import Paths, find_paths
from memtui.contract import Invalid, Model, UtcDatetime

_MARKER = "demo.json"
_LOCK = "demo.lock"
_HOME_VARIABLE = "MEMTUI_HOME"


class DemoSummary(Model):
    """What the demo holds, as it was made."""

    home: str
    company: str
    name: str
    projects: tuple[str, ...]
    agents: tuple[str, ...]
    bindings: tuple[str, ...]
    issues: int
    runs: int
    records: int
    """In all bindings together."""
    operations: int
    made_until: UtcDatetime
    """When its last operation happened."""
    commands: tuple[str, ...]
    """What to try next."""


class Marker(Model):
    """Says that a folder holds a demo; without a summary it was interrupted."""

    made_by: str = "memtui demo"
    binding_ids: tuple[str, ...] = ()
    summary: DemoSummary | None = None


def demo_paths(env: Mapping[str, str]) -> Paths:
    """Return the demo's folders: `MEMTUI_HOME`, else `demo` inside memtui's data folder."""
    if home := env.get(_HOME_VARIABLE):
        return find_paths(Path(home))
    return find_paths(find_paths().data / "demo")


def commands(paths: Paths) -> tuple[str, ...]:
    """Return what to try with a demo, as lines for a shell."""
    home = f"{_HOME_VARIABLE}={shlex.quote(str(paths.data))}"
    return (
        f'{home} memtui query "deploy branch"',
        f"{home} memtui browse --project infra --limit 10",
        f"{home} memtui ops list --status unknown",
        f"{home} memtui",
    )


def lock_path(paths: Paths) -> Path:
    """Return the file that one build of the demo locks against another."""
    return paths.data / _LOCK


def read_marker(paths: Paths) -> Marker | None:
    """Return what the folder's marker says, None where there is none.

    A folder that was moved is described as where it is now.

    Raises:
        Invalid: it cannot be read, or the folder holds memories and no marker.
    """
    path = paths.data / _MARKER
    try:
        marker = Marker.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        if paths.database.exists() or _bindings(paths).exists():
            raise Invalid(
                f"{paths.data} holds memories of your own, and the demo leaves them alone; "
                f"give it an empty folder: {_HOME_VARIABLE}=~/memtui-demo memtui demo"
            ) from None
        return None
    except (OSError, ValidationError) as error:
        raise Invalid(
            f"{path} cannot be read, so nobody knows whose memories lie beside it; "
            f"give the demo an empty folder: {_HOME_VARIABLE}=~/memtui-demo memtui demo"
        ) from error
    if marker.summary is None:
        return marker
    here = {"home": str(paths.data), "commands": commands(paths)}
    return marker.model_copy(update={"summary": marker.summary.model_copy(update=here)})


def write_marker(paths: Paths, marker: Marker) -> None:
    """Replace the marker, whole or not at all.

    Raises:
        Invalid: the folder cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=paths.data, prefix=".demo-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(marker.model_dump_json(indent=1))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(paths.data / _MARKER)
    except OSError as error:
        raise Invalid(f"Cannot write to {paths.data}: {error.strerror}.") from error


def remove(paths: Paths, binding_ids: Iterable[str]) -> None:
    """Remove what a demo made: its database and its bindings' folders, the marker last.

    Raises:
        Invalid: something cannot be removed.
    """
    database = paths.database
    try:
        for path in (database, *(database.with_name(database.name + end) for end in _SQLITE_ENDS)):
            path.unlink(missing_ok=True)
        for binding_id in binding_ids:
            folder = paths.binding_dir(binding_id)
            if folder.is_dir():
                shutil.rmtree(folder)
            _remove_empty(folder.parent, up_to=paths.data)
        (paths.data / _MARKER).unlink(missing_ok=True)
    except OSError as error:
        raise Invalid(f"Cannot remove the demo in {paths.data}: {error}.") from error


def _remove_empty(folder: Path, *, up_to: Path) -> None:
    while folder != up_to and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


_SQLITE_ENDS = ("-wal", "-shm")


def _bindings(paths: Paths) -> Path:
    return paths.binding_dir("any").parent
