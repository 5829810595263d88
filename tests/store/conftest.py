from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.store.database import Database


@pytest.fixture
def database(tmp_path: Path, database_url: str, empty_database: Path) -> Iterator[Database]:
    """The control plane's own tables with nothing in them, in SQLite and in PostgreSQL."""
    path = tmp_path / "memtui.db"
    if not database_url:
        shutil.copy(empty_database, path)
    opened = Database.open(path, database_url)
    yield opened
    opened.close()
