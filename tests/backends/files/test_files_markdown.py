from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.markdown import sections

LINES = st.lists(
    st.sampled_from(
        ["# A", "## B ##", "###### C", "####### no", "#no", "    # code", "```", "````x"]
    )
    | st.text(max_size=12),
    max_size=30,
)


def test_headings_make_a_tree() -> None:
    found = sections("top\n# A\n## B ##\ntext\n\n# C #tag\n####### seven\n")
    assert [(s.level, s.trail, s.body, s.line, s.body_line, s.is_leaf) for s in found] == [
        (0, (), "top", 1, 1, False),
        (1, ("A",), "", 2, 3, False),
        (2, ("A", "B"), "text", 3, 4, True),
        (1, ("C #tag",), "####### seven", 6, 7, True),
    ]


def test_only_what_is_a_heading_outside_of_a_fence_begins_a_section() -> None:
    text = (
        "~~~\n# one\n``` \n~~~~\n   ## Two #\t\n    # code\n```py`\n```\n# three\n   ```\n"
        "````\n# four\n```\n````  \n### Five # six ##\n#\tSix\n# #\n#seven\n####### eight\n"
    )
    assert [(one.level, one.heading, one.line, one.body_line) for one in sections(text)] == [
        (0, "", 1, 1), (2, "Two", 5, 6), (3, "Five # six", 15, 16), (1, "Six", 16, 17),
    ]  # fmt: skip
    assert [one.level for one in sections(text, deepest=2)] == [0, 2, 1]
    assert [(one.line, one.body_line) for one in sections("\n\ntop\n# A\nb\n\n", first_line=7)] == [
        (7, 9), (10, 11),
    ]  # fmt: skip
    for chars, level in ((998, 1), (999, 0)):
        assert [one.level for one in sections("# " + "x" * chars)] == [level]


def test_a_section_is_a_leaf_where_no_deeper_heading_follows() -> None:
    found = sections("# A\n## B\n### C\n## D\n# E\n# F\n")
    assert [(one.heading, one.trail, one.is_leaf) for one in found] == [
        ("A", ("A",), False), ("B", ("A", "B"), False), ("C", ("A", "B", "C"), True),
        ("D", ("A", "D"), True), ("E", ("E",), True), ("F", ("F",), True),
    ]  # fmt: skip


def test_a_line_of_ten_megabytes_is_text() -> None:
    for line in (
        "# " + "x" * 10_000_000,
        "`" * 10_000_000,
        "#" * 10_000_000,
        " " * 10_000_000 + "x",
    ):
        (section,) = sections(f"{line}\n# A\nb")[:1]
        assert section.body == line


@given(LINES)
def test_every_line_is_in_one_section(lines: list[str]) -> None:
    text = "\n".join(lines)
    numbered = text.split("\n")
    told: list[str] = []
    for section in sections(text):
        if section.level:
            assert section.heading in numbered[section.line - 1]
            told.append(numbered[section.line - 1])
        if section.body:
            body = section.body.split("\n")
            start = section.body_line - 1
            assert numbered[start : start + len(body)] == body
            told.extend(body)
    assert [line for line in told if line.strip()] == [line for line in numbered if line.strip()]
