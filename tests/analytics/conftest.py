from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.analytics.seal import seal
from memtui.store.database import Database
from tests.analytics.logs import fill


@pytest.fixture(scope="session")
def sealed_home(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home to be copied, see `fill_and_seal`."""
    home = tmp_path_factory.mktemp("sealed")
    shutil.copy(empty_database, home / "memtui.db")
    database = Database.open(home / "memtui.db")
    fill_and_seal(database, home / "archive")
    database.close()
    return home


def fill_and_seal(database: Database, root: Path) -> None:
    """Of acme, 60 operations in three segments and 30 hot ones; of other, 9 in one segment."""
    fill(database, 60)
    seal(database, root, "acme", segment_rows=20)
    fill(database, 30, start=61)
    fill(database, 9, "other")
    seal(database, root, "other")


@pytest.fixture
def database(tmp_path: Path, database_url: str, empty_database: Path) -> Iterator[Database]:
    path = tmp_path / "a home?#%" / "memtui.db"
    path.parent.mkdir()
    shutil.copy(empty_database, path)
    opened = Database.open(path, database_url)
    yield opened
    opened.close()


@pytest.fixture
def sealed_log(
    tmp_path: Path, database_url: str, sealed_home: Path, root: Path
) -> Iterator[Database]:
    """A database with the log of `fill_and_seal`, its archive under `root`."""
    path = root.with_name("memtui.db")
    if database_url:
        opened = Database.open(path, database_url)
        fill_and_seal(opened, root)
    else:
        shutil.copytree(sealed_home, root.parent)
        opened = Database.open(path)
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a home?#%" / "archive"
