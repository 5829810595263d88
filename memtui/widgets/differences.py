"""What changed between two texts, as lines and words; pure and bounded."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

_MAX_CHARACTERS = 20_000
_MAX_WORDS = 400
_WORDS = re.compile(r"\s+|\w+|[^\w\s]+")


class DiffLine(NamedTuple):
    """One line of a diff: `-` gone, `+` new, a space where it stayed.

    `parts` are pairs of a text and whether it changed.
    """

    sign: str
    parts: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """The line without its marks."""
        return "".join(part for part, _ in self.parts)


def diff(before: str | None, after: str | None) -> list[DiffLine]:
    """Compare two texts line by line, and word by word where one line became another.

    Past 20,000 characters the rest is left out of the comparison. None is no text at all.
    """
    old = [] if before is None else before[:_MAX_CHARACTERS].splitlines()
    new = [] if after is None else after[:_MAX_CHARACTERS].splitlines()
    lines: list[DiffLine] = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=True)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag == "equal":
            lines.extend(_whole(" ", line) for line in old[old_from:old_to])
        elif tag == "replace" and old_to - old_from == new_to - new_from:
            for left, right in zip(old[old_from:old_to], new[new_from:new_to], strict=True):
                lines.extend(_word_diff(left, right))
        else:
            lines.extend(_whole("-", line) for line in old[old_from:old_to])
            lines.extend(_whole("+", line) for line in new[new_from:new_to])
    return lines


def _whole(sign: str, line: str) -> DiffLine:
    return DiffLine(sign, ((line, False),))


def _word_diff(before: str, after: str) -> list[DiffLine]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > _MAX_WORDS:
        return [_whole("-", before), _whole("+", after)]
    gone: list[tuple[str, bool]] = []
    come: list[tuple[str, bool]] = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        changed = tag != "equal"
        if old_to > old_from:
            gone.append(("".join(old[old_from:old_to]), changed))
        if new_to > new_from:
            come.append(("".join(new[new_from:new_to]), changed))
    return [DiffLine("-", tuple(gone)), DiffLine("+", tuple(come))]
