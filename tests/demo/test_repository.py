"""The demo's repository: the same each time, named in its settings, and left out without git."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.config import find_paths, load_settings
from memtui.demo.repository import make_repository
from memtui.provider_kit.files.git_past import GitPast
from tests.demos import Built

END = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_it_lost_a_file_and_is_the_same_each_time(tmp_path: Path) -> None:
    heads = set()
    for name in ("one", "it's two"):
        paths = find_paths(tmp_path / name)
        paths.create()
        make_repository(paths, END)
        [(project, folder)] = load_settings(paths).workspaces.items()
        assert (project, folder.parent.parent) == ("mech-fighters", paths.data)
        past = GitPast(folder, tmp_path / f"{name} scratch")
        assert [at for _, at in past.commits] == [END - timedelta(days=d) for d in (2, 30, 55)]
        assert [*past.deleted] == ["tools/pack_atlas.py"]
        assert (folder / "tools" / "build_atlas.py").exists()
        heads.add(past.head)
    assert len(heads) == 1


def test_settings_of_ones_own_stay(tmp_path: Path) -> None:
    paths = find_paths(tmp_path / "home")
    paths.create()
    paths.config_file.write_text('theme = "nord"\n')
    make_repository(paths, END)
    assert paths.config_file.read_text() == 'theme = "nord"\n'


def test_without_git_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    paths = find_paths(tmp_path / "home")
    paths.create()
    make_repository(paths, END)
    assert not paths.config_file.exists()
    assert not (paths.data / "repositories").exists()


def test_a_demo_has_one(built: Built) -> None:
    assert (built.paths.data / "repositories" / "mech-fighters" / ".git").is_dir()
