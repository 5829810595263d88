"""The saved views of the log, as they are kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from memtui.contract import Invalid, NotFound
from memtui.screens.kept import (
    SavedView,
    checked_name,
    delete_named,
    load_named,
    rename_named,
    save_named,
)

DEAR = SavedView(
    name="dear",
    filter_line="cost>0.01",
    column="cost",
    hidden=("channel", "by"),
    wider={"cost": 2},
)
SLOW = SavedView(name="Slow", filter_line="took>2s", column="ms", descending=False)


def names(path: Path) -> list[str]:
    return [view.name for view in load_named(path, SavedView)]


def test_views_are_kept_private_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    assert load_named(path, SavedView) == ()
    save_named(path, SLOW)
    assert save_named(path, DEAR) == (DEAR, SLOW) == load_named(path, SavedView)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_view_is_replaced_renamed_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    save_named(path, SLOW)
    save_named(path, DEAR)
    save_named(path, DEAR.model_copy(update={"filter_line": "cost>1"}))
    assert load_named(path, SavedView)[0].filter_line == "cost>1"
    save_named(path, DEAR.model_copy(update={"name": "zz"}), instead_of="dear")
    assert names(path) == ["Slow", "zz"]
    [slow, last] = load_named(path, SavedView)
    assert [one.name for one in rename_named(path, last, " a  b ")] == ["a b", "Slow"]
    with pytest.raises(Invalid, match="There is a view Slow already"):
        rename_named(path, last.model_copy(update={"name": "a b"}), "Slow")
    with pytest.raises(NotFound, match="view zz was deleted"):
        rename_named(path, last, "other")
    assert delete_named(path, SavedView, "a b") == (slow,)
    assert names(path) == ["Slow"]


def test_a_broken_file_is_a_sentence_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    path.write_text('{"kept": 3}')
    with pytest.raises(Invalid, match=r"saved views in .* cannot be read"):
        load_named(path, SavedView)
    with pytest.raises(Invalid, match="cannot be read"):
        save_named(path, DEAR)
    assert path.read_text() == '{"kept": 3}'


@pytest.mark.parametrize("name", ["", "  ", "x" * 61])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="1 to 60 characters"):
        checked_name(name)
