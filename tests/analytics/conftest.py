from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memtui.analytics.seal import seal
from memtui.store.database import Database
from tests.analytics.logs import draft, fill, seal_unlogged

Seal = Callable[..., Any]


def _home(folder: Path, empty_database: Path, seal: Seal) -> Path:
    shutil.copy(empty_database, folder / "memtui.db")
    database = Database.open(folder / "memtui.db")
    fill_and_seal(database, folder / "archive", seal)
    database.close()
    return folder


@pytest.fixture(scope="session")
def sealed_home(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home to be copied, see `fill_and_seal`; its log does not tell of the sealing."""
    return _home(tmp_path_factory.mktemp("sealed"), empty_database, seal_unlogged)


@pytest.fixture(scope="session")
def proved_home(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home to be copied, see `fill_and_seal`."""
    return _home(tmp_path_factory.mktemp("proved"), empty_database, seal)


def fill_and_seal(database: Database, root: Path, seal: Seal) -> None:
    """Of acme, 60 operations in three segments and 30 hot ones; of other, 9 in one segment.

    The sealing of acme appends three more.
    """
    fill(database, 90)
    seal(database, root, "acme", before=draft(61).started_at, segment_rows=20)
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
def sealed_log(database_url: str, sealed_home: Path, root: Path) -> Iterator[Database]:
    """A database with the log of `sealed_home`, its archive under `root`."""
    yield from _opened(database_url, sealed_home, root, seal_unlogged)


@pytest.fixture
def proved_log(database_url: str, proved_home: Path, root: Path) -> Iterator[Database]:
    """A database with the log of `proved_home`, its archive under `root`."""
    yield from _opened(database_url, proved_home, root, seal)


def _opened(database_url: str, home: Path, root: Path, seal: Seal) -> Iterator[Database]:
    path = root.with_name("memtui.db")
    if database_url:
        opened = Database.open(path, database_url)
        fill_and_seal(opened, root, seal)
    else:
        shutil.copytree(home, root.parent)
        opened = Database.open(path)
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a home?#%" / "archive"
