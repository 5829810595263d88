"""The saved views of the log, as they are kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from memtui.contract import Invalid
from memtui.screens.kept import SavedView, checked_name, delete_view, load_views, save_view

DEAR = SavedView(
    name="dear",
    filter_line="cost>0.01",
    column="cost",
    hidden=("door", "by"),
    wider={"cost": 2},
)
SLOW = SavedView(name="Slow", filter_line="took>2s", column="ms", descending=False)


def names(path: Path) -> list[str]:
    return [view.name for view in load_views(path)]


def test_views_are_kept_private_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    assert load_views(path) == ()
    save_view(path, SLOW)
    assert save_view(path, DEAR) == (DEAR, SLOW) == load_views(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_view_is_replaced_renamed_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    save_view(path, SLOW)
    save_view(path, DEAR)
    save_view(path, DEAR.model_copy(update={"filter_line": "cost>1"}))
    assert load_views(path)[0].filter_line == "cost>1"
    save_view(path, DEAR.model_copy(update={"name": "zz"}), instead_of="dear")
    assert names(path) == ["Slow", "zz"]
    assert delete_view(path, "Slow")[0].name == "zz"
    assert names(path) == ["zz"]


def test_a_broken_file_is_a_sentence_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    path.write_text('{"looks": 3}')
    with pytest.raises(Invalid, match=r"saved views in .* cannot be read"):
        load_views(path)
    with pytest.raises(Invalid, match="cannot be read"):
        save_view(path, DEAR)
    assert path.read_text() == '{"looks": 3}'


@pytest.mark.parametrize("name", ["", "  ", "x" * 61])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="1 to 60 characters"):
        checked_name(name)
