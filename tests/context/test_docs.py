"""`docs/context.md` says which sections there are, in which order, under which budgets."""

from __future__ import annotations

import re
from pathlib import Path

from memtui.context.assembly import RULES, SectionKind

PAGE = (Path(__file__).parents[2] / "docs" / "context.md").read_text(encoding="utf-8")


def test_the_page_names_the_sections_in_order() -> None:
    rows = re.findall(r"^\| (\w+) \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)[1:]
    left = "what the others leave"
    assert rows == [
        (str(kind), RULES[kind].title, left if RULES[kind].fills else str(RULES[kind].budget))
        for kind in SectionKind
    ]
