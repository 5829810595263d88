"""The packages that a release has: the sdist, and the wheel that is built from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import memtui

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def build(source: Path, target: str, to: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(to)]
    subprocess.run(words, cwd=source, check=True, capture_output=True)
    [made] = to.iterdir()
    return made


def test_the_wheel_of_the_sdist_has_what_memtui_needs_and_runs(tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    wheel = build(source, "wheel", tmp_path / "wheel")
    assert wheel.name.endswith("-py3-none-any.whl")  # no compiler
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as packed_wheel:
        packed_wheel.extractall(place)
    assert {one.name.partition("-")[0] for one in place.iterdir()} == {"memtui"}  # no tests
    kept = {one.relative_to(ROOT) for one in (ROOT / "memtui").rglob("*") if one.is_file()}
    kept = {one for one in kept if "__pycache__" not in one.parts} | {Path("memtui/styles.tcss")}
    assert kept == {
        one.relative_to(place) for one in (place / "memtui").rglob("*") if one.is_file()
    }

    def typed(*words: str) -> str:
        path = os.pathsep.join([str(place), *(one for one in sys.path if "site-packages" in one)])
        start = (
            "import sys; from importlib.metadata import distribution; "
            "[script] = distribution('memtui').entry_points.select(group='console_scripts'); "
            "sys.exit(script.load()())"
        )
        done = subprocess.run(
            [sys.executable, "-c", start, *words],
            cwd=tmp_path, check=False, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": path, "MEMTUI_HOME": str(tmp_path / "home")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert typed("--version") == f"memtui {memtui.__version__}\n"
    assert json.loads(typed("note", "We deploy on Fridays.", "--json"))["handles"]
    assert "vault" in typed("bindings", "providers", "--json")
