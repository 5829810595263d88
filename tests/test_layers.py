"""What is below the screens starts without them; import-linter holds that imports run downwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERFACES = {"textual", "rich", "typer", "starlette", "fastapi", "uvicorn"}
HEAVY = {"duckdb", "alembic", "keyring", "watchfiles", "httpx", "yaml", "filelock"}
BELOW = ["contract", "visible", "filters", "config", "testing", "store", "backends", "service",
         "actions", "demo", "migration", "importing", "analytics", "conformance", "context",
         "pruning"]  # fmt: skip


def imported(statement: str) -> set[str]:
    """Return the top names of every module that a fresh Python has after a statement."""
    found = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in found.stdout.split()}


def modules(package: str) -> list[str]:
    """Return every module of a package, or the one module of that name."""
    folder = ROOT / "memtui" / package
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return [name.removesuffix(".__init__") for name in names]


def test_nothing_below_the_screens_loads_an_interface() -> None:
    below = {package: modules(package) for package in BELOW}
    assert all(below.values())
    names = [name for each in below.values() for name in each if ".migrations" not in name]
    told = "import sys\n" + "\n".join(
        f"import {name}\nassert not {INTERFACES} & sys.modules.keys(), {name!r}" for name in names
    )
    assert "memtui" in imported(told)


@pytest.mark.parametrize("module", ["memtui.contract", "memtui.config", "memtui.service"])
def test_what_is_heavy_waits_until_it_is_used(module: str) -> None:
    assert imported(f"import {module}") & HEAVY == set()


def test_the_terminal_app_paints_before_it_loads_the_database() -> None:
    late = HEAVY | {"sqlmodel", "sqlalchemy", "plotext", "genai_prices"}
    assert imported("import memtui.app") & late == set()


def test_the_contract_alone_needs_only_pydantic() -> None:
    third_party = {"sqlalchemy", "sqlmodel", "platformdirs"}
    assert imported("import memtui.contract, memtui.filters, memtui.visible") & third_party == set()
