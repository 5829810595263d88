from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.vault import markdown
from memtui.backends.vault.markdown import VaultDocument
from memtui.contract import Invalid, Problem

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
lines = st.text(st.sampled_from("-.\n\r \ufeffa:x#"), min_size=1)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def taken(content: str) -> VaultDocument:
    document = markdown.split(content)
    assert isinstance(document, VaultDocument)
    return document


@given(texts | lines)
def test_parts_joined_are_the_file(content: str) -> None:
    document = markdown.split(content)
    assert isinstance(document, Problem) or document.joined() == content


@given(texts | lines)
def test_a_written_text_is_read_back_exactly(text: str) -> None:
    content = markdown.compose({"created": datetime(2026, 3, 9, 1, 2, 3, 4, UTC)}, text)
    assert taken(content).text == text


@given(values)
def test_a_written_field_is_read_back_exactly(value: object) -> None:
    front = taken(markdown.compose({"metadata": {"value": value}}, "x")).front
    fields = markdown.parse(front)
    assert isinstance(fields, dict)
    found = fields["metadata"]["value"]
    assert found == value
    assert str(found) == str(value)


@given(texts | lines, texts | lines)
def test_a_new_text_changes_only_the_body(content: str, text: str) -> None:
    document = markdown.split(content)
    if isinstance(document, Problem):
        return
    try:
        changed = markdown.with_text(document, text)
    except Invalid:
        return
    assert taken(changed.joined()).text == text
    if document.front is not None:
        kept = f"{document.head}{document.front}{document.fence}"
        assert changed.joined().startswith(kept)


HAND = """---
# what this is about
title:   Deploys   # as people say
tags:
    - deploy
    - "release"

topic: ops
created: 2026-03-09
pinned:
aliases: {a: 1}
---

Text.
"""


def test_fields_change_only_their_lines() -> None:
    moment = datetime(2027, 1, 1, tzinfo=UTC)
    document = markdown.with_fields(
        taken(HAND),
        {"tags": ["x", "no"], "topic": "yes: it is", "pinned": True, "expires": moment},
    )
    assert document.joined() == HAND.replace('deploy\n    - "release"', "x\n    - 'no'").replace(
        "topic: ops", 'topic: "yes: it is"'
    ).replace("pinned:", "pinned: true").replace(
        "aliases: {a: 1}\n", "aliases: {a: 1}\nexpires: 2027-01-01T00:00:00+00:00\n"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fields_of_a_file_without_frontmatter(newline: str) -> None:
    content = f"{newline}Text{newline}without."
    document = markdown.with_fields(taken(content), {"pinned": True})
    assert document.joined() == newline.join(["---", "pinned: true", "---", "", content])
    assert taken(document.joined()).text == content


@pytest.mark.parametrize(
    ("front", "field"),
    [("{a: 1}\n", "pinned"), ("topic: &x ops\nother: *x\n", "topic"), ("a: 1\n  b: 2\n", "a")],
)
def test_what_cannot_be_edited_by_line_is_refused(front: str, field: str) -> None:
    with pytest.raises(Invalid):
        markdown.with_fields(taken(f"---\n{front}---\nText\n"), {field: "new"})


@given(
    st.lists(st.sampled_from(HAND.splitlines(keepends=True)[1:-4]), unique=True),
    st.lists(texts, min_size=1, max_size=3),
)
def test_any_tags_in_any_frontmatter(some: list[str], tags: list[str]) -> None:
    content = f"---\n{''.join(some)}---\nText\n"
    document = taken(content)
    before = markdown.parse(document.front)
    if isinstance(before, Problem):
        return
    after = markdown.with_fields(document, {"tags": tags})
    assert markdown.parse(after.front) == before | {"tags": tags}
    assert after.text == document.text


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("front", "word"),
    [
        ("a: [1\n", "cannot be read"),
        ("a: b: c\n", "line 2"),
        ("- a\n- b\n", "key: value"),
        ("just words\n", "key: value"),
        ("a: " + "[" * 30_000 + "]" * 30_000, "nested"),
        ("a:\n  " + "- " * 30_000, "nested"),
        (BOMB, "more than"),
        ("a: 1\na: 2\n", "line 3"),
        ("x: " + "y" * 70_000, "longer"),
        ("a: \0\n", "cannot be read"),
        ("a: !!timestamp soon\n", "value that cannot be read"),
        ("a: !!int ''\n", "value that cannot be read"),
        ("a: !!bool maybe\n", "value that cannot be read"),
        ("a: &a [*a]\n", "cannot be read"),
    ],
    ids=[
        "flow", "colons", "list", "scalar", "deep", "deep list", "bomb", "twice", "long", "nul",
        "no moment", "no number", "no truth", "itself",
    ],
)  # fmt: skip
def test_broken_frontmatter_is_a_problem(front: str, word: str) -> None:
    problem = markdown.parse(front)
    assert isinstance(problem, Problem)
    assert word in problem.message


def test_unclosed_frontmatter_is_a_problem() -> None:
    assert isinstance(markdown.split("---\na: 1\n\nText\n"), Problem)


@pytest.mark.parametrize(
    "word",
    ["1.10", "010", "0x1F", "0o17", "1_000", "12:30", "1:20:30", "No", "yes", "Off", "TRUE", "Null",
     "7", "-7", "+7", "-0", "0.5", ".5", "1.", "1e3", "1.0e+3", ".inf", ".NaN", "true", "2024-05",
     "2024-13-45", "2024-05-01", "2024-05-01 10:00:00", "2024-05-01T10:00:00Z", "=", "<<",
     "9" * 900],
)  # fmt: skip
def test_words_are_as_they_are_written(word: str) -> None:
    front = f"title: {word}\ntags: [{word}]\naliases:\n  - {word}\n{word}: 1\n"
    fields = markdown.parse(front)
    assert isinstance(fields, dict)
    assert markdown.as_written(fields["title"]) == word
    assert markdown.texts(fields["tags"]) == markdown.texts(fields["aliases"]) == (word,)
    assert list(fields)[-1] == word
    for tags in ([word, "new"], ["new", word], ["new"], []):
        after = markdown.with_fields(taken(f"---\n{front}---\nText\n"), {"tags": tags})
        assert after.front == front.replace(f"[{word}]", f"[{', '.join(tags)}]")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[1.10,  'a b',010 ] # why", "[1.10,  'a b',010, new ] # why"),
        ("1.10, No", "[1.10, No, new]"),
        ("1.10 No", "[1.10, No, new]"),
        ("7", "[7, new]"),
        ("'1.10'", '["1.10", new]'),
        ("", " [new]"),
        ("\n  - 1.10 # as said\n  - 010", "\n  - 1.10 # as said\n  - 010\n  - new"),
        ("\n- [a, b]\n- No # last", '\n- "[\\"a\\", \\"b\\"]"\n- No # last\n- new'),
    ],
)
def test_a_tag_more_leaves_the_others_as_they_are(before: str, after: str) -> None:
    front = f"a: 010\ntags: {before}\nb: No\n".replace("tags: \n", "tags:\n")
    document = taken(f"---\n{front}---\nText\n")
    fields = markdown.parse(front)
    assert isinstance(fields, dict)
    tags = [*markdown.words(fields["tags"]), "new"]
    changed = markdown.with_fields(document, {"tags": tags}).front
    assert changed == f"a: 010\ntags: {after}\nb: No\n".replace("tags: \n", "tags:\n").replace(
        "tags:  ", "tags: "
    )


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("title: 50% off: now\ntags: [a]\n", {"title": "50% off: now", "tags": ["a"]}),
        ("family: [[Smith]]  [[Jones]]\n", {"family": "[[Smith]] [[Jones]]"}),
        ("year: {{date:YYYY}}\nid: 010\n", {"year": "{{date:YYYY}}", "id": "010"}),
        ("title: @handle says hi\n", {"title": "@handle says hi"}),
        ("a: 1\r\na: 2\r\n", {"a": 2}),
        ("metadata:\n  type: a\n  why: a: b\n", {"metadata": {"type": "a", "why": "a: b"}}),
        ("d: Use X\n  when: y: z\ne: 1\n", {"d": "Use X when: y: z", "e": 1}),
        ("key:value\n", {}),
        ("\tx\n", {}),
    ],
)  # fmt: skip
def test_what_can_be_read_of_broken_frontmatter(front: str, said: dict[str, object]) -> None:
    assert isinstance(markdown.parse(front), Problem)
    assert markdown.salvaged(front) == said
