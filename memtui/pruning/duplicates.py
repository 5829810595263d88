"""Duplicate texts: compare two texts, and group duplicates around the one to keep.

Precision comes first, since one of the two will be deleted. The same words in another order, or
split or spelled a little differently, are the same; a word more, less or other (a number, a name,
a "not") is a difference. Where the order itself carries the meaning, it has to stay:
"X over Y" is not "Y over X", and a moved "not" is a different statement.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from memtui.contract import Invalid
from memtui.embedding import STATIC, embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


FILLERS = frozenset({"a", "an", "the", "really", "very", "quite", "also", "currently"})
"""Words whose absence does not change the meaning."""

SPEAKERS = frozenset({"user", "users"})
"""Subjects that a fact about the user need not name: "User prefers tea" is "Prefers tea"."""

NEGATIONS = _split(
    "not no never none nothing nobody neither nor without cannot except unless only avoid "
    "avoids stop stops stopped quit instead rather than over "
    "dont doesnt didnt isnt arent wasnt werent cant couldnt wont wouldnt shouldnt mustnt hasnt "
    "havent hadnt "
    "не нет ни никогда без нельзя кроме только ні ніколи "
    "nicht kein keine keinen nie niemals ohne nur "
    "ne pas jamais sans aucun aucune non seulement "
    "nunca jamás sin nada ningún ninguna solo sólo não nem sem senza mai "
    "nigdy bez niet geen nooit değil "
    "不 没 沒 無 无 非 未 别 勿 莫 只 لا ليس नहीं 않 안 못"
)
"""Words that negate or limit the next words; moving one changes the meaning."""

NUMBER_WORDS = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million billion first second third fourth fifth sixth seventh eighth ninth "
    "tenth once twice thrice half quarter dozen "
    "ноль один одна одно два две три четыре пять шесть семь восемь девять десять сто тысяча "
    "一 二 三 四 五 六 七 八 九 十 百 千 万 两"
)
"""Numbers written as words, in the languages that need a list of them most."""


MAX_CHARACTERS = 4_000
"""A longer text only matches copies in another case or spacing: near matches are for facts."""
MEANING_CHARACTERS = 300
"""A longer text is not compared by meaning: means of many word vectors are all similar."""
SLIP_LENGTH = 6
"""Least length of a word with a spelling slip; shorter words are too similar to each other."""

_KEPT = frozenset(".,:/-_#%")
"""Punctuation that can belong to a number or a name (3.11, 10:30, -5, 50%, C#, snake_case)."""
_DROPPED = frozenset("'’‘ʼ＇\ufe0e\ufe0f")
_SEPARATORS = frozenset("|`´^¨")
_REPLACED = {"\u2212": "-", "ё": "е"}
_CHAR = r"[^\s.,:/\-_#%]"
_ATOM = re.compile(rf"(?:(?<!\S)-(?=\d))?{_CHAR}+(?:(?:_+|(?<=\d)[.,:/\-](?=\d)){_CHAR}+)*[#%]*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
    "|[^\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
"""Scripts written without spaces (Han, Kana, Thai, Lao, Burmese, Khmer) split by character."""
_KEY = re.compile(r"\s*([\w.\-]+):\s", re.ASCII)
_DIGIT = re.compile(r"\d")


class _Table(dict[int, str]):
    """Replacement of each character, computed on first use."""

    def __missing__(self, code: int) -> str:
        self[code] = kept = _kept(chr(code))
        return kept


def _kept(char: str) -> str:
    if char in _KEPT or char in _REPLACED:
        return _REPLACED.get(char, char)
    category = unicodedata.category(char)
    if char in _DROPPED or category == "Cf":
        return ""
    separates = category[0] in "PZ" or category in {"Cc", "Sk"} or char in _SEPARATORS
    return " " if separates else char


_TABLE = _Table()


@dataclass(frozen=True, slots=True)
class TextForm:
    """A text reduced to words. Texts of equal `words` differ only in case and punctuation."""

    text: str
    words: tuple[str, ...]
    """Every word, in order."""
    content: tuple[str, ...]
    """The words without fillers such as "the"; empty if the text is too long for near matches."""
    key: str | None
    """The key of a `key: value` fact (seed 002 §7)."""
    blocks: tuple[str, ...]
    """Lookup keys; two near texts share one. The first is the same for the same letters and numbers
    in any order and spacing, the second for the same words with a spelling slip."""


def form_of(text: str) -> TextForm:
    """Reduce a text to its words.

    NFKC, case and apostrophes are folded; punctuation and spacing separate words, except inside a
    number. A sign, a decimal point, a percent sign and symbols such as `$`, `+` or `C#` stay: they
    change the meaning.
    """
    key = _KEY.match(text)
    folded_key = key[1].casefold() if key else None
    if len(text) > MAX_CHARACTERS:
        return TextForm(text, tuple(text.casefold().split()), (), folded_key, ())
    words = tuple(_words(text)) or (text.strip(),)
    content = _content(words)
    return TextForm(text, words, content, folded_key, _blocks(content))


@lru_cache(maxsize=1 << 16)
def slip_key(word: str) -> str:
    """Return a key that a word shares with its misspellings."""
    if len(word) < SLIP_LENGTH or is_number(word):
        return word
    stem = word.rstrip("s")
    return f"{stem[:2]}…{stem[-1:]}"


@lru_cache(maxsize=1 << 16)
def is_number(word: str) -> bool:
    """Whether a word is or holds a number."""
    return word in NUMBER_WORDS or _DIGIT.search(word) is not None


def names_in(text: str) -> frozenset[str]:
    """Return the words that contain a capital letter, in reduced form."""
    return frozenset(
        reduced for word in text.split() if word != word.lower() for reduced in _words(word)
    )


def _blocks(content: tuple[str, ...]) -> tuple[str, str]:
    numbers = sorted(filter(is_number, content))
    letters = sum(map(_letters, content)) - sum(map(_letters, numbers))
    return f"{' '.join(numbers)}\n{letters}", f"~{sum(map(_slip_number, content))}"


# Sums do not depend on the order, and are several times faster than sorting.


@lru_cache(maxsize=1 << 16)
def _letters(word: str) -> int:
    return sum(ord(letter) ** 5 for letter in word)


@lru_cache(maxsize=1 << 16)
def _slip_number(word: str) -> int:
    key = slip_key(word).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    atoms = _ATOM.findall(folded.translate(_TABLE))
    words: list[str] = []
    for atom in atoms:
        if atom.isascii():
            words.append(_THOUSANDS.sub("", atom) if "," in atom else atom)
        else:
            words.extend(_UNSPACED.findall(atom))
    return words


def _content(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = [word for word in words if word not in FILLERS]
    if len(kept) > 1 and kept[0] in SPEAKERS:
        kept = kept[1:]
    return words if len(kept) in {0, len(words)} else tuple(kept)


SLIP_CONTEXT = 4
"""Words that two texts must share for a difference to count as a slip."""

_SPAN = 3
"""Longest side of a swap, or words between the two sides, in words."""


class Likeness(StrEnum):
    """In which way two texts are the same."""

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
    sentence: str


def compare(one: TextForm, other: TextForm) -> Match | None:
    """Return why two texts say the same; None: they do not, or it is not sure."""
    if one.key and other.key and one.key != other.key:
        return None
    if one.words == other.words:
        dressed = "" if one.text == other.text else " but for case, punctuation or spacing"
        return Match(Likeness.EXACT, f"The same text{dressed}.")
    if not one.content or not other.content:
        return None
    reason = _near_reason(one, other)
    return None if reason is None else Match(Likeness.NEAR, reason)


def _near_reason(one: TextForm, other: TextForm) -> str | None:
    mine, theirs = _without(one.content, other.content), _without(other.content, one.content)
    # If one text has a word more often, the last occurrence remains.
    shared_one = _without(one.content[::-1], mine)[::-1]
    shared_other = _without(other.content[::-1], theirs)[::-1]
    reordered = shared_one != shared_other
    if reordered and (
        _sides_swapped(shared_one, shared_other) or _anchors_moved(shared_one, shared_other)
    ):
        return None
    if not mine and not theirs:
        if reordered:
            return "The same words in another order."
        return "The same except for words without meaning."
    if "".join(mine) == "".join(theirs) and not any(map(is_number, (*mine, *theirs))):
        return f"The same but for spaces: “{' '.join(mine)}” and “{' '.join(theirs)}”."
    if len(mine) == len(theirs) == 1 and len(shared_one) >= SLIP_CONTEXT:
        is_name = mine[0] in names_in(one.text) or theirs[0] in names_in(other.text)
        if _is_slip(mine[0], theirs[0]) and not is_name:
            return f"The same but for the spelling of “{mine[0]}” and “{theirs[0]}”."
    return None


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


def _sides_swapped(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the only change is from "X … Y" to "Y … X": subject and object are swapped."""
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
    """Whether a negation, or one of several numbers, precedes another word than before."""
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


def _without(words: Iterable[str], dropped: Iterable[str]) -> list[str]:
    """Return `words` without the words of `dropped`, the first occurrence of each first."""
    spare = Counter(dropped)
    kept = []
    for word in words:
        if spare[word]:
            spare[word] -= 1
        else:
            kept.append(word)
    return kept


VectorRows: TypeAlias = "Sequence[Sequence[float]] | NDArray[np.float32]"
"""Vectors of equal length, one per row."""
Vectors: TypeAlias = Callable[[Sequence[str]], VectorRows]
"""Turns texts into vectors, in order."""

_ROWS = 512
"""Vectors per matrix product with all earlier ones."""


def join_by_meaning(
    forms: Sequence[TextForm], vectors: Vectors, threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Yield (joined, kept, cosine) for each text that repeats an earlier one in other words.

    Only texts of up to `MEANING_CHARACTERS` with the same numbers, negations and names are
    compared; a text without any such other is not embedded. A kept text is never joined to another.
    """
    import numpy as np

    by_guard: dict[Hashable, list[int]] = defaultdict(list)
    for number, form in enumerate(forms):
        if len(form.text) <= MEANING_CHARACTERS:
            by_guard[guard(form)].append(number)
    alike = [numbers for numbers in by_guard.values() if len(numbers) > 1]
    texts = [forms[number].text for numbers in alike for number in numbers]
    if not texts:
        return
    rows = np.asarray(vectors(texts), np.float32).reshape(len(texts), -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    end = 0
    for numbers in alike:
        own, joined = units[end : end + len(numbers)], set[int]()
        end += len(numbers)
        for start in range(0, len(numbers), _ROWS):
            cosines = own[start : start + _ROWS] @ own[: start + _ROWS].T
            near: dict[int, list[int]] = defaultdict(list)
            for row, earlier in zip(*np.nonzero(cosines >= threshold), strict=True):
                if earlier < start + row:
                    near[int(row)].append(int(earlier))
            for row, places in near.items():
                kept = [place for place in places if place not in joined]
                if kept:
                    best = max(kept, key=lambda place: (cosines[row, place], -place))
                    joined.add(start + row)
                    cosine = min(float(cosines[row, best]), 1.0)
                    yield numbers[start + row], numbers[best], cosine


def guard(form: TextForm) -> Hashable:
    """Return the words in which duplicates must agree: numbers, negations and names.

    A capitalised word counts as a name, except at the beginning.
    """
    content = form.content
    _, _, rest = form.text.strip().partition(" ")
    return (
        tuple(sorted(word for word in content if is_number(word))),
        tuple(sorted(word for word in content if word in NEGATIONS)),
        frozenset(name for name in names_in(rest) if not is_number(name)),
    )


_BUCKET = 8
"""At most so many texts of a key are compared with each one, so the work is never quadratic."""


@dataclass(frozen=True, slots=True)
class Item:
    """A text to group, and the properties by which a survivor is chosen."""

    id: str
    text: str
    group: str = ""
    """Only texts of the same group are compared, such as one owner's."""
    pinned: bool = False
    reads: int = 0
    at: datetime | None = None
    """When it was last written, UTC."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An entry that repeats the survivor."""

    item: Item
    match: Match


@dataclass(frozen=True, slots=True)
class Cluster:
    """Entries that say the same, each compared with the survivor directly, not along a chain.

    An entry joined by meaning may itself be the survivor of another cluster.
    """

    id: str
    survivor: Item
    why_survivor: str
    duplicates: tuple[Duplicate, ...]


class DuplicateIndex:
    """Finds an earlier text that a text repeats, in time independent of their number.

    It looks a text up by its exact words, then by `TextForm.blocks`, and compares the few found.
    """

    def __init__(self) -> None:
        self._forms: list[TextForm] = []
        self._places: dict[str, tuple[int, ...]] = {}

    def add(self, form: TextForm) -> None:
        """Add a text; the first is number 0."""
        for key in _keys(form):
            places = self._places.get(key, ())
            if len(places) < _BUCKET:
                self._places[key] = (*places, len(self._forms))
        self._forms.append(form)

    def find(self, form: TextForm) -> tuple[int, Match] | None:
        """Return the first added text that says the same; exact matches come before near ones."""
        seen: set[int] = set()
        for key in _keys(form):
            for number in self._places.get(key, ()):
                if number in seen:
                    continue
                seen.add(number)
                if match := compare(form, self._forms[number]):
                    return number, match
        return None


def find_clusters(
    entries: Iterable[Item],
    *,
    vectors: Vectors | None = None,
    threshold: float = 0.95,
) -> list[Cluster]:
    """Return the groups of two and more, in the order of their survivors' ids.

    The survivor is the pinned entry, else the most read, else the newest, else the longest, else
    the first by id. The result does not depend on the order of `entries`.

    Args:
        entries: The items to group, with unique ids.
        vectors: If given, texts of the same meaning are joined too, if their numbers, negations
            and names agree.
        threshold: Cosine from which two vectors count as the same meaning (seed 002: 0.95).
    """
    ranked = sorted(entries, key=_preference)
    indexes: dict[str, DuplicateIndex] = defaultdict(DuplicateIndex)
    leaders: dict[str, list[tuple[Item, TextForm]]] = defaultdict(list)
    members: dict[str, list[Duplicate]] = {}
    for entry in ranked:
        form = form_of(entry.text)
        found = indexes[entry.group].find(form)
        if found is None:
            indexes[entry.group].add(form)
            leaders[entry.group].append((entry, form))
            members[entry.id] = []
        else:
            number, match = found
            members[leaders[entry.group][number][0].id].append(Duplicate(entry, match))
    for group in leaders.values():
        if vectors is None:
            break
        forms = [form for _, form in group]
        for joined, kept, cosine in join_by_meaning(forms, vectors, threshold):
            sentence = f"It has the same meaning in other words ({cosine:.0%} alike)."
            match = Match(Likeness.MEANING, sentence)
            members[group[kept][0].id].append(Duplicate(group[joined][0], match))
    clusters = [
        Cluster(
            id=hashlib.sha256(leader.id.encode(errors="surrogatepass")).hexdigest()[:8],
            survivor=leader,
            why_survivor=_why(leader, [duplicate.item for duplicate in repeats]),
            duplicates=tuple(sorted(repeats, key=lambda duplicate: duplicate.item.id)),
        )
        for group in leaders.values()
        for leader, _ in group
        if (repeats := members[leader.id])
    ]
    return sorted(clusters, key=lambda cluster: cluster.survivor.id)


def _preference(entry: Item) -> tuple[bool, int, float, int, str]:
    at = entry.at.timestamp() if entry.at else float("-inf")
    return not entry.pinned, -entry.reads, -at, -len(entry.text), entry.id


def _why(survivor: Item, others: Sequence[Item]) -> str:
    if survivor.pinned and not all(other.pinned for other in others):
        return "It is pinned."
    if survivor.reads > max(other.reads for other in others if other.pinned == survivor.pinned):
        return f"It was read most often: {survivor.reads:,} times."
    if survivor.at is not None and all(
        other.at is None or other.at < survivor.at for other in others
    ):
        return f"It is the newest one, from {survivor.at:%Y-%m-%d}."
    if all(len(other.text) < len(survivor.text) for other in others):
        return "It is the longest."
    return "It is the first; they differ in nothing else."


def _keys(form: TextForm) -> tuple[str, ...]:
    return (f"={' '.join(form.words)}", *form.blocks)


def static_vectors() -> Vectors | None:
    """Return an embedder with 256 dimensions; None where the extra is not installed.

    Nothing is downloaded: the weights come in a package.
    """
    try:
        model = embedder(STATIC)
    except Invalid:
        return None
    return lambda texts: model.embed(texts).vectors
