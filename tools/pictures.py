"""Takes the pictures of the README from the demo: `python -m tools.pictures docs/pictures`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from memtui.channels.cli.pictures import Picture, Shot, take
from memtui.config import Paths, Settings, find_paths, load_settings
from memtui.demo.making import build_demo

README = {
    "tour": Shot("records", keys=("f3",)),
    "bindings": Shot("bindings"),
    "operations": Shot("operations", filter_line="since:7d type:write"),
    "query": Shot("records", keys=("f3", "a")),
    "records": Shot("records", {"project_id": "mech-fighters"}, keys=("g",)),
    "budget": Shot("budget", {"project_id": "mech-fighters", "subject_id": "ana"}),
    "prune": Shot("records", keys=("f3", "c")),
    "analytics": Shot("analytics"),
}
"""The pictures of the README by file name, taken from the demo."""
README_SIZE = (120, 34)
README_END = datetime(2026, 3, 18, 16, tzinfo=UTC)
"""End of the README's demo."""


def take_readme(paths: Paths) -> dict[str, Picture]:
    """Return the pictures of the README by file name, from an existing demo."""
    taken = asyncio.run(
        take(
            paths,
            load_settings(paths, timezone="UTC", principal="user:ana"),
            README.values(),
            size=README_SIZE,
            clock=lambda: README_END,
        )
    )
    return dict(zip(README, taken, strict=True))


def write_readme(folder: Path) -> None:
    """Write the pictures of the README, from a demo in a temporary home."""
    folder = folder.absolute()
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home  # shown paths begin there, and it has no memories to discover
        os.chdir(home)
        paths = find_paths(Path(home, ".local", "share", "memtui", "demo"))
        build_demo(paths, Settings(), now=README_END)
        for name, picture in take_readme(paths).items():
            (folder / f"{name}.svg").write_text(picture.svg, encoding="utf-8")


if __name__ == "__main__":
    write_readme(Path(sys.argv[1]))
