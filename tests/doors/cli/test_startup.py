from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"textual", "sqlmodel", "sqlalchemy", "duckdb", "pydantic", "rich", "asyncio", "alembic"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from memtui.doors.cli.main import run; "
        f"code = run({arguments!r}); print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & HEAVY == set()
    assert done.stdout
