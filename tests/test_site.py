"""The documents as a site, and the README in front of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MOST_README_LINES = 120


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MOST_README_LINES


def test_each_document_has_one_place_in_the_navigation() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    places = Counter(pages_of(config["project"]["nav"]))
    assert places == {page.name: 1 for page in (ROOT / "docs").glob("*.md")}


def pages_of(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(one)


@pytest.mark.slow
def test_the_site_is_built_without_a_dead_link_and_asks_no_other_site(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    for page in (ROOT / "docs").glob("*.md"):
        folder = "" if page.stem == "README" else page.stem
        html = (tmp_path / "site" / folder / "index.html").read_text("utf-8")
        assert 'src="http' not in html
        assert 'rel="stylesheet" href="http' not in html
