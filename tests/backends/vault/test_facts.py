from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.vault import facts
from memtui.backends.vault.facts import FactsFile
from memtui.contract import Invalid

SEED = """---
tags: [facts, auto-updated]
---
# Project Facts — Mech Fighters

## Project
- tech_stack: [Python 3.12, SQLAlchemy, Pygame]
- deploy_branch: main
- test_command: pytest tests/ -v

## Conventions
* naming: snake_case
+ Review before merging
"""

pieces = st.sampled_from(
    ["- a: 1", "- b", "* c.d: x ", "  - sub", "    more", "lazy", "", " ", "## N", "# T",
     "### N ##", "```", "~~~", "  ```", "<!--", "-->", "<!-- - x: y -->",
     "---", "- - -", "-", "- ", "\t- tab",
     " + plus: p", "- key:", "- http://x", "\ufeff- bom", "1. one", "-no", "* * *"]
)  # fmt: skip
ends = st.sampled_from(["\n", "\r\n", ""])
files = st.lists(st.tuples(pieces, ends)).map(lambda all_: "".join(a + b for a, b in all_))
fact_texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1
)


def parsed(content: str) -> FactsFile:
    file = facts.parse(content)
    assert file.problem is None
    return file


def found(content: str) -> list[tuple[str | None, str]]:
    return [(bullet.namespace, bullet.text) for bullet in parsed(content).bullets]


def test_the_example_file() -> None:
    assert found(SEED) == [
        ("Project", "tech_stack: [Python 3.12, SQLAlchemy, Pygame]"),
        ("Project", "deploy_branch: main"),
        ("Project", "test_command: pytest tests/ -v"),
        ("Conventions", "naming: snake_case"),
        ("Conventions", "Review before merging"),
    ]


def test_what_belongs_to_a_bullet() -> None:
    content = "- a: 1\n  - sub\n    deeper\n\n  after a gap\n- b\nlazy\n\nparagraph\n- c\n"
    bullets = parsed(content).bullets
    assert [bullet.text for bullet in bullets] == ["a: 1", "b", "c"]
    assert bullets[0].details == "  - sub\n    deeper\n\n  after a gap\n"
    assert bullets[1].details == "lazy\n"
    assert facts.removed(parsed(content), bullets[:1]) == "- b\nlazy\n\nparagraph\n- c\n"


def test_code_and_comments_hold_no_facts() -> None:
    content = "```\n- a: 1\n```\n<!--\n- b: 2\n-->\n- c: 3\n  ```\n  - d\n- e\n* * *\n- - -\n"
    assert found(content) == [(None, "c: 3"), (None, "e")]


def test_an_open_frontmatter_is_a_problem() -> None:
    file = facts.parse("---\n- a: 1\n")
    assert file.problem is not None
    assert [bullet.text for bullet in file.bullets] == ["a: 1"]


@given(files)
def test_lines_joined_are_the_file(content: str) -> None:
    assert facts.parse(content).joined() == content


@given(files, st.data())
def test_an_edit_changes_only_its_line(content: str, data: st.DataObject) -> None:
    file = facts.parse(content)
    if file.problem or not file.bullets:
        return
    bullet = data.draw(st.sampled_from(file.bullets))
    changed = parsed(facts.replaced(file, bullet, "new: value"))
    assert len(changed.lines) == len(file.lines)
    for index, (before, after) in enumerate(zip(file.lines, changed.lines, strict=True)):
        if index == bullet.first:
            assert after == f"{bullet.prefix}new: value{bullet.suffix}"
        else:
            assert after == before
    wanted = [b.text if b is not bullet else "new: value" for b in file.bullets]
    assert [b.text for b in changed.bullets] == wanted


@given(files, fact_texts, st.sampled_from([None, "N", "Other"]))
def test_an_added_fact_leaves_every_other_byte(
    content: str, text: str, namespace: str | None
) -> None:
    file = facts.parse(content)
    try:
        clean = facts.clean(text)
    except Invalid:
        return
    if file.problem:
        return
    place = facts.place_for(file, clean, namespace)
    changed = facts.inserted(file, place)
    added = f"{place.head}{place.line}{place.tail}"
    before = "".join(file.lines[: place.index])
    assert changed == f"{before}{added}{content[len(before) :]}"


def test_where_a_fact_is_added() -> None:
    file = parsed(SEED)
    after = facts.inserted(file, facts.place_for(file, "os: linux", "Project"))
    assert after == SEED.replace("tests/ -v\n", "tests/ -v\n- os: linux\n")
    after = facts.inserted(file, facts.place_for(file, "plain", None))
    assert after == SEED.replace("Fighters\n", "Fighters\n\n- plain\n")
    after = facts.inserted(file, facts.place_for(file, "n: 1", "Stats"))
    assert after == f"{SEED}\n## Stats\n- n: 1\n"


def test_a_missing_final_newline_stays_missing() -> None:
    file = parsed("- a\r\n- b")
    assert facts.inserted(file, facts.place_for(file, "c", None)) == "- a\r\n- b\r\n- c"


@pytest.mark.parametrize("text", ["two\nlines", "a\rb", " \t "])
def test_what_is_no_fact(text: str) -> None:
    with pytest.raises(Invalid):
        facts.clean(text)
