"""Homes with two companies, over any provider, where all is read and done a few at a time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.model.world import SMALL, Make, World, make_template


@pytest.fixture(scope="session")
def template(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("model") / "home", empty_database)


@pytest.fixture
def make(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    for name, few in SMALL.items():
        monkeypatch.setattr(f"memtui.{name}", few)
    numbers = itertools.count()
    return lambda *providers: World(tmp_path / f"home{next(numbers)}", template, *providers)
