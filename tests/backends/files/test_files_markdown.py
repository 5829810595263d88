from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.files.markdown import sections

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
