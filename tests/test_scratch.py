"""Folders for a while are gone with what made them, also where that was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtui import scratch
from memtui.scratch import Scratch
from tests.processes import killed_by_itself


@pytest.fixture
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scratch, "tempfile", _below(tmp_path))
    scratch._remove_known.cache_clear()
    return tmp_path


def _below(above: Path) -> Any:
    """The system's temporary folder for these alone: processes of tests have sockets there."""
    return SimpleNamespace(
        gettempdir=lambda: str(above),
        mkdtemp=lambda **given: tempfile.mkdtemp(**given | {"dir": given["dir"] or above}),
    )


def leave_one(above: Path, within: Path | None) -> None:
    vars(scratch)["tempfile"] = _below(above)
    one = Scratch(within)
    (one.path / "x").write_text("a memory")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_folder_is_private_and_goes(above: Path) -> None:
    with closing(Scratch()) as one:
        assert one.path.stat().st_mode & 0o777 == 0o700
        (one.path / "x").write_text("a memory")
        assert list(above.iterdir()) == [one.path]
    one.close()
    assert list(above.iterdir()) == []


def test_a_folder_that_another_process_took_for_one_that_was_left_is_made_again(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter([str(above / "memtui-scratch-taken")])
    folders = vars(scratch)["tempfile"]
    make = folders.mkdtemp
    monkeypatch.setattr(folders, "mkdtemp", lambda **given: next(taken, "") or make(**given))
    with closing(Scratch()) as one:
        assert list(above.iterdir()) == [one.path]


@pytest.mark.slow
def test_what_a_killed_process_left_goes_at_a_later_start(above: Path) -> None:
    alive = Scratch()
    assert killed_by_itself(leave_one, above, None)
    other = above / "memtui-scratch-of-a-file"
    other.write_text("")
    assert len(list(above.glob("memtui-*"))) == 3
    scratch._remove_known.cache_clear()
    with closing(Scratch()) as new:
        assert {*above.glob("memtui-*")} == {alive.path, other, new.path}
    alive.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["beside it", "by the link", "by looking there"])
def test_what_a_killed_process_left_elsewhere_is_found(above: Path, how: str) -> None:
    within = above / "elsewhere"
    within.mkdir()
    alive = Scratch(within)
    assert killed_by_itself(leave_one, above, within)
    assert len(list(within.iterdir())) == 2
    if how == "beside it":
        Scratch(within).close()
    elif how == "by the link":
        scratch.remove_left()
    else:
        scratch.remove_left(above, deep=True)
    assert list(within.iterdir()) == [alive.path]
    scratch.remove_left()
    assert {path.name for path in above.iterdir()} == {"elsewhere", alive.path.name[1:]}
    alive.close()
    assert [path.name for path in above.iterdir()] == ["elsewhere"]


def test_one_beside_a_file_needs_no_temporary_folder(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(vars(scratch)["tempfile"], "gettempdir", refuse)
    with closing(Scratch(above)) as one:
        assert one.path.parent == above
    assert scratch.remove_left_of(above) == []
    assert list(above.iterdir()) == []


def test_a_folder_that_cannot_be_locked_can_be_used(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(fcntl, "flock", refuse)
    with closing(Scratch()) as one:
        scratch._remove_known.cache_clear()
        with closing(Scratch()):
            assert one.path.is_dir()
    assert list(above.iterdir()) == []
