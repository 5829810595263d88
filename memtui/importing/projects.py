"""Find the project of an agent's session from the folder that it works in."""

import re
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

_NOT_IN_A_SLUG = re.compile(r"[^A-Za-z0-9]")


def project_of(path: Path, cwd: object) -> str | None:
    """Return the name of the project's folder; None: unknown.

    The folder of a transcript is named after the project's path. A session works in that folder or
    in one below it; where no such path fits the name, the name of `cwd` is returned.
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
