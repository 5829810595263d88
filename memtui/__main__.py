"""`python -m memtui`, the same as the command `memtui`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run memtui's command line and end the process with its exit code."""
    # Looking for plugins of pydantic reads the metadata of every package that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from memtui.doors.cli.session import open_at_once

    code = open_at_once(sys.argv[1:])
    if code is None:
        from memtui.doors.cli.main import run

        code = run(sys.argv[1:])
    sys.exit(code)


if __name__ == "__main__":
    main()
