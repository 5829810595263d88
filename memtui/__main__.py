"""`python -m memtui`, the same as the command `memtui`."""

from __future__ import annotations

import os


def main() -> None:
    """Run memtui's command line and end the process with its exit code."""
    # Looking for plugins of pydantic reads the metadata of every package that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from memtui.doors.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
