"""Which project a session of an agent belongs to: the one of the folder that it works in."""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

_NOT_IN_A_SLUG = re.compile(r"[^A-Za-z0-9]")


def project_of(path: Path, cwd: object) -> str | None:
    """Return the name of the project's folder: the one that the transcript's folder is named for.

    A session may have worked in a folder below it.
    """
    parents = [parent.name for parent in path.absolute().parents]
    slug = parents[parents.index("projects") - 1] if "projects" in parents[1:] else ""
    if not isinstance(cwd, str) or not cwd:
        return slug or None
    worked_in: PurePath = PureWindowsPath(cwd) if "\\" in cwd else PurePosixPath(cwd)
    for place in (worked_in, *worked_in.parents):
        if slug and _NOT_IN_A_SLUG.sub("-", str(place)) == slug:
            return place.name or slug
    return worked_in.name or slug or None
