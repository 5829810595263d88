"""What changed between two texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import Record, RecordHandle, Scope
from memtui.widgets.detail_lines import DiffLine, diff, diff_lines, made_again


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


def test_what_an_undo_makes_of_a_record_is_told_in_a_few_lines() -> None:
    long = "word " * 60
    now = record(f"first\n{long}staging\nlast", pinned=True)
    then = record(f"first\n{long}production\nlast")
    assert made_again(now, then).splitlines() == [
        f"- …{'word ' * 8}staging",
        f"+ …{'word ' * 8}production",
        "pinned: yes → no",
    ]
    assert made_again(record("a\nb\nc\nd"), record("")).splitlines() == ["- a", "- b", "- c", "- d"]
    cut = made_again(record(""), record("\n".join([f"{'x' * 200}", *"bcdef"]))).splitlines()
    assert cut == [f"+ {'x' * 160}…", "+ b", "+ c", "+ d", "… and 2 more lines"]
    assert not made_again(now, now)


def record(text: str, *, pinned: bool = False) -> Record:
    scope = Scope(company_id="acme")
    handle = RecordHandle(provider_key="vault", provider_record_id="a")
    return Record(handle=handle, scope=scope, kind="note", text=text, pinned=pinned)


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
