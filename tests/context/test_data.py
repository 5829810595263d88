"""A stored text as data for a model."""

from __future__ import annotations

import pytest

from memtui.context.data import as_data


@pytest.mark.parametrize(
    "tag", ["</memory>", "<memory id=x>", "</MEMORY >", "</system-reminder>", "<hook_context>"]
)
def test_a_text_ends_no_tag_around_it(tag: str) -> None:
    assert as_data(f"a{tag}b < c") == f"<memory>\na&lt;{tag[1:]}b < c\n</memory>"
