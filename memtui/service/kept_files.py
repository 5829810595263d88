"""The home's own small files that can hold words of a memory, and taking those out. Blocking."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memtui.config import Paths
from memtui.contract import Scope, Unavailable
from memtui.json_text import json_text
from memtui.store.purging import Aim


def holding(paths: Paths, aim: Aim) -> list[Path]:
    """Return the files, and the folders of kept drafts, that hold something of what is gone."""
    return [path for path, _ in _changes(paths, aim)]


def scrub(paths: Paths, aim: Aim) -> None:
    """Take what is gone out of the session, saved views and statements, drafts and the error log.

    Raises:
        Unavailable: a file cannot be written.
    """
    for path, fresh in _changes(paths, aim):
        try:
            if fresh is None:
                shutil.rmtree(path)
            else:
                _replace(path, fresh)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be changed ({error.strerror}); make it writable and purge again."
            ) from error


def _changes(paths: Paths, aim: Aim) -> list[tuple[Path, bytes | None]]:
    """Return what each file is to hold instead; None: the folder goes."""
    found: list[tuple[Path, bytes | None]] = []
    for path in (paths.session_file, paths.views_file, paths.queries_file):
        if (raw := _read(path)) is None:
            continue
        try:
            document = json.loads(raw)
        except ValueError:
            continue
        fresh = _without(document, aim)
        if fresh != document:
            found.append((path, json_text(fresh, indent=1).encode()))
    if (raw := _read(paths.log_file)) is not None:
        lines = raw.decode("utf-8", "surrogateescape").splitlines(keepends=True)
        kept = [line for line in lines if not aim.says(line)]
        if kept != lines:
            found.append((paths.log_file, "".join(kept).encode("utf-8", "surrogateescape")))
    for folder in sorted(paths.data.glob("draft-*")):
        drafts = [_read(path) or b"" for path in folder.iterdir()] if folder.is_dir() else []
        if any(aim.says(draft.decode("utf-8", "replace")) for draft in drafts):
            found.append((folder, None))
    return found


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _without(value: Any, aim: Aim) -> Any:
    """Return a JSON value without the list members, texts and scopes that are of what is gone."""
    if isinstance(value, dict):
        return None if _is_of(value, aim) else {k: _without(v, aim) for k, v in value.items()}
    if isinstance(value, list):
        return [one for one in value if _without(one, aim) == one]
    return "" if isinstance(value, str) and aim.says(value) else value


def _is_of(value: dict[str, Any], aim: Aim) -> bool:
    if "company_id" not in value:
        return False
    try:
        scope = Scope.model_validate(value)
    except ValidationError:
        return False
    return scope.company_id == aim.company_id and aim.is_of(scope)


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
