"""Whether two texts say the same thing, and how that is known.

Precision comes first: somebody will delete one of the two. The same words in another order, or
split or spelled a little differently, are the same; a word more, less or other (a number, a name,
a "not") is a difference. Where the order itself carries the meaning, it has to stay:
"X over Y" is not "Y over X", and a moved "not" is a different statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from memtui.pruning.lexicon import NEGATIONS
from memtui.pruning.words import SLIP_LENGTH, Form, is_number, names_in, slip_key

SLIP_CONTEXT = 4
"""Words that two texts must share for one slip to be believed."""

_SPAN = 3
"""Longest run of words that is taken for one side of a swap, or for what joins the two sides."""


class Likeness(StrEnum):
    """How two texts are the same."""

    EXACT = "exact"
    """The same words, whatever case, punctuation, spacing and Unicode form."""
    NEAR = "near"
    """The same words in another order, or spelled a little differently."""
    MEANING = "meaning"
    """Other words of the same meaning, by their vectors."""


@dataclass(frozen=True, slots=True)
class Match:
    """Why two texts are the same."""

    likeness: Likeness
    similarity: float
    """0 to 100."""
    sentence: str


def compare(one: Form, other: Form) -> Match | None:
    """Return why two texts say the same, or None where they do not or nobody can tell."""
    if one.key and other.key and one.key != other.key:
        return None
    if one.words == other.words:
        return Match(Likeness.EXACT, 100.0, _exact_sentence(one.text, other.text))
    if not one.content or not other.content:
        return None
    reason = _near_reason(one, other)
    return None if reason is None else Match(Likeness.NEAR, _similarity(one, other), reason)


def guarded(form: Form) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the numbers and the negations of a text, which must not differ between duplicates."""
    return (
        tuple(sorted(word for word in form.content if is_number(word))),
        tuple(sorted(word for word in form.content if word in NEGATIONS)),
    )


def _near_reason(one: Form, other: Form) -> str | None:
    mine, theirs = _leftover(one.content, other.content), _leftover(other.content, one.content)
    shared_one = _without(one.content, mine)
    shared_other = _without(other.content, theirs)
    reordered = shared_one != shared_other
    if reordered and _order_matters(shared_one, shared_other):
        return None
    if not mine and not theirs:
        if reordered:
            return "The same words in another order."
        return "The same but for words that say nothing."
    if "".join(mine) == "".join(theirs) and not any(map(is_number, (*mine, *theirs))):
        return f"The same but for spaces: “{' '.join(mine)}” and “{' '.join(theirs)}”."
    if len(mine) == len(theirs) == 1 and len(shared_one) >= SLIP_CONTEXT:
        return _slip_reason(mine[0], theirs[0], one, other)
    return None


def _slip_reason(mine: str, theirs: str, one: Form, other: Form) -> str | None:
    if not _is_slip(mine, theirs):
        return None
    if mine in names_in(one.text) or theirs in names_in(other.text):
        return None
    return f"The same but for the spelling of “{mine}” and “{theirs}”."


def _is_slip(one: str, other: str) -> bool:
    """Whether a letter is missing, doubled or swapped inside a word, or a plural's s is missing.

    A letter replaced by another makes another word too often (adopt, adapt) to count.
    """
    from rapidfuzz.distance import OSA

    if min(len(one), len(other)) < SLIP_LENGTH or slip_key(one) != slip_key(other):
        return False
    if is_number(one) or is_number(other) or {one, other} & NEGATIONS:
        return False
    if OSA.distance(one, other, score_cutoff=1) != 1:
        return False
    return len(one) != len(other) or sorted(one) == sorted(other)


def _order_matters(one: Sequence[str], other: Sequence[str]) -> bool:
    return _sides_swapped(one, other) or _anchors_moved(one, other)


def _sides_swapped(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the only change is "X … Y" become "Y … X", as in who does what to whom."""
    start = 0
    while one[start] == other[start]:
        start += 1
    end = len(one)
    while one[end - 1] == other[end - 1]:
        end -= 1
    mine, theirs = tuple(one[start:end]), tuple(other[start:end])
    size = len(mine)
    if size > 3 * _SPAN:
        return False
    return any(
        mine[:left] == theirs[size - left :]
        and mine[size - right :] == theirs[:right]
        and mine[left : size - right] == theirs[right : size - left]
        for left in range(1, _SPAN + 1)
        for right in range(1, _SPAN + 1)
        if 1 <= size - left - right <= _SPAN
    )


def _anchors_moved(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a negation, or one of several numbers, stands before another word than it did."""
    anchors = {word for word in one if word in NEGATIONS}
    numbers = {word for word in one if is_number(word)}
    if len(numbers) > 1:
        anchors |= numbers
    return bool(anchors) and _followers(one, anchors) != _followers(other, anchors)


def _followers(words: Sequence[str], anchors: set[str]) -> Counter[tuple[str, str]]:
    return Counter(
        (word, after)
        for word, after in zip(words, (*words[1:], ""), strict=True)
        if word in anchors
    )


def _leftover(words: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the words that the other text does not have, in order."""
    spare = Counter(other)
    left = []
    for word in words:
        if spare[word]:
            spare[word] -= 1
        else:
            left.append(word)
    return left


def _without(words: Sequence[str], dropped: Sequence[str]) -> tuple[str, ...]:
    """Return `words` without the words of `dropped`, the last occurrence of each first."""
    spare = Counter(dropped)
    kept = []
    for word in reversed(words):
        if spare[word]:
            spare[word] -= 1
        else:
            kept.append(word)
    return tuple(reversed(kept))


def _similarity(one: Form, other: Form) -> float:
    from rapidfuzz import fuzz

    return round(fuzz.token_sort_ratio(" ".join(one.words), " ".join(other.words)), 1)


def _exact_sentence(one: str, other: str) -> str:
    if one == other:
        return "The same text."
    return "The same text but for case, punctuation or spacing."
