from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.store.database import Database


@pytest.fixture
def database(tmp_path: Path, database_url: str) -> Iterator[Database]:
    opened = Database.open(tmp_path / "a home?#%" / "memtui.db", database_url)
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a home?#%" / "archive"
