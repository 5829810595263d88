"""The rows behind a list: pages, growth, and what stays where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.widgets.rows import AppendedRows, Selection, WindowRows


def window(count: int, *, newest_first: bool = True, max_pages: int = 64) -> WindowRows[int]:
    rows: WindowRows[int] = WindowRows(
        str, newest_first=newest_first, page_rows=10, max_pages=max_pages
    )
    rows.reset(count)
    return rows


def fill(rows: WindowRows[int], page: int) -> None:
    first, end = rows.page_bounds(page)
    rows.put(page, list(range(first, end)))


def test_newest_first_shows_the_last_ordinal_on_top_and_wants_the_visible_page_first() -> None:
    rows = window(25)
    assert rows.wanted(0, 9) == (2, 1)
    fill(rows, 2)
    assert [rows.row(index) for index in range(6)] == [24, 23, 22, 21, 20, None]
    assert rows.wanted(0, 4) == ()
    assert rows.index_of("20") == 4


def test_rows_that_are_added_move_no_page() -> None:
    rows = window(25)
    fill(rows, 2)
    rows.extend([25, 26], 27)
    assert [rows.row(index) for index in range(3)] == [26, 25, 24]
    assert rows.wanted(0, 6) == ()
    rows.extend(list(range(27, 33)), 33)
    assert rows.row(0) == 32
    assert rows.wanted(0, 12) == ()


def test_rows_that_leave_a_gap_are_left_to_be_fetched() -> None:
    rows = window(25)
    fill(rows, 2)
    rows.extend([40, 41], 42)
    assert rows.row(0) is None
    assert rows.wanted(0, 5) == (4, 3)


def test_the_least_recently_drawn_page_goes_first() -> None:
    rows = window(100, newest_first=False, max_pages=2)
    fill(rows, 0)
    fill(rows, 1)
    assert rows.row(0) == 0
    fill(rows, 2)
    assert (rows.row(0), rows.row(10), rows.row(20)) == (0, None, 20)
    assert rows.index_of("10") is None


@given(st.integers(0, 300), st.booleans(), st.integers(-5, 320), st.integers(0, 60))
def test_what_is_wanted_fills_what_is_seen(
    count: int, newest_first: bool, first: int, height: int
) -> None:
    rows = window(count, newest_first=newest_first)
    for page in rows.wanted(first, first + height):
        fill(rows, page)
    seen = range(max(0, first), min(first + height + 1, count))
    assert all(rows.row(index) is not None for index in seen if first < count)
    assert rows.wanted(first, first + height) == ()


def test_appended_rows_ask_for_the_next_page_only_near_the_end() -> None:
    rows: AppendedRows[int] = AppendedRows(str)
    rows.replace([1, 2, 3], more=True)
    assert (rows.count, rows.loaded) == (4, 3)
    assert rows.wanted(0, 2) == ()
    assert rows.wanted(0, 3) == (1,)
    rows.append([3, 4], more=False)
    assert [rows.row(index) for index in range(5)] == [1, 2, 3, 4, None]
    assert rows.wanted(0, 9) == ()


def test_appended_rows_are_narrowed_to_some_of_the_loaded_ones_and_ask_for_no_page() -> None:
    rows: AppendedRows[int] = AppendedRows(str)
    rows.replace([1, 2, 3, 4], more=True)
    rows.narrow(lambda row: row % 2 == 0)
    assert [rows.row(index) for index in range(3)] == [2, 4, None]
    assert (rows.count, rows.loaded, rows.wanted(0, 9)) == (2, 4, ())
    assert (rows.index_of("1"), rows.has("1"), rows.index_of("4")) == (None, True, 1)
    rows.append([4, 5, 6], more=True)
    rows.change({"1": 1, "8": 8})
    assert [row for _, row in rows.held()] == [8, 2, 4, 6]
    rows.narrow(None)
    assert [row for _, row in rows.held()] == [8, 1, 2, 3, 4, 5, 6]
    assert rows.wanted(0, 9) == (2,)


def test_appended_rows_change_in_place_and_a_new_one_goes_on_top() -> None:
    rows: AppendedRows[str] = AppendedRows(lambda row: row.partition("=")[0])
    rows.replace(["a=1", "b=1"])
    rows.change({"b": "b=2", "c": "c=1"})
    assert [row for _, row in rows.held()] == ["c=1", "a=1", "b=2"]
    rows.remove({"a"})
    assert rows.index_of("b") == 1


def test_marks_stay_on_their_rows_when_rows_move() -> None:
    rows: AppendedRows[str] = AppendedRows(str)
    rows.replace(["a", "b", "c", "d"])
    selection: Selection[str] = Selection(rows)
    selection.toggle(1)
    selection.toggle_range(2)
    assert list(selection.span(3)) == [2, 3]
    rows.replace(["x", "d", "c", "b", "a"])
    assert selection.rows(1) == ["d", "c", "b"]
    selection.toggle_range(1)
    assert set(selection.marks) == {"b", "c", "d"}
    selection.drop({"c"})
    selection.clear()
    assert not selection.active
