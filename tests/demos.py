"""One whole demo for all tests, made once a test run."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock

from memtui.config import Paths, Settings, find_paths
from memtui.demo.making import DemoSummary, build_demo

_UNREAD = "demo-unread"
END = datetime(2026, 3, 18, 16, tzinfo=UTC)


@dataclass(frozen=True)
class Built:
    """A demo that was made."""

    paths: Paths
    summary: DemoSummary


def build_in(home: Path) -> Built:
    """Make the demo, unless it is there, ending at a fixed moment."""
    paths = find_paths(home)
    return Built(paths, build_demo(paths, Settings(), now=END))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Built:
    """The whole demo; tests only read it, and the processes of a test run share it."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    with FileLock(folder / "demo.lock"):
        begun = (folder / "demo").exists()
        made = build_in(folder / "demo")
        if not begun:
            shutil.copytree(folder / "demo", folder / _UNREAD)
        return made


@pytest.fixture
def unread(built: Built, tmp_path: Path) -> Paths:
    """A copy of the whole demo as it was made: no test has read anything in it."""
    return find_paths(shutil.copytree(built.paths.data.with_name(_UNREAD), tmp_path / "unread"))
