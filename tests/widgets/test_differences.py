"""What changed between two texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.widgets.detail_lines import DiffLine, diff, diff_lines


def text_of(line: DiffLine) -> str:
    return "".join(part for part, _ in line.parts)


def test_a_changed_word_is_marked_in_its_line() -> None:
    old, new = diff("deploy from main", "deploy from release")
    assert (old.sign, new.sign) == ("-", "+")
    assert old.parts == (("deploy from ", False), ("main", True))
    assert new.parts == (("deploy from ", False), ("release", True))


def test_a_text_that_comes_or_goes() -> None:
    assert [(line.sign, text_of(line)) for line in diff(None, "a\nb")] == [("+", "a"), ("+", "b")]
    assert [(line.sign, text_of(line)) for line in diff("a", None)] == [("-", "a")]


@given(st.text(max_size=200), st.text(max_size=200))
def test_both_sides_can_be_read_back(before: str, after: str) -> None:
    lines = diff(before, after)
    assert [text_of(line) for line in lines if line.sign != "+"] == before.splitlines()
    assert [text_of(line) for line in lines if line.sign != "-"] == after.splitlines()


def test_a_long_unchanged_stretch_and_a_huge_change_are_cut() -> None:
    body = "\n".join(map(str, range(50)))
    shown = [line.plain for line in diff_lines(body, f"{body}\nnew")]
    assert shown == ["  0", "  … 48 lines as before", "  49", "+ new"]
    many = list(diff_lines(None, "\n".join(map(str, range(500)))))
    assert many[-1].plain == "  … the rest of the change is not shown"
