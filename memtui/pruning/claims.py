"""What a text states, and where two statements exclude each other.

No model is needed for a note such as “Deploys happen from main” beside `deploy_branch: release`:
the sentence speaks of the fact's key, and names a value of the same class, unit or form. The words
are in `claims.txt`. A sentence about the past, a plan or another environment excludes nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

from memtui.fact_values import pair_of
from memtui.pruning.duplicates import TextForm, form_of
from memtui.pruning.folding import alike, without_markup

LABELS = frozenset(
    {"note", "todo", "fixme", "tip", "warning", "important", "example", "see", "fact", "remember"}
)
"""Words before a colon that are labels, not keys: many texts may have the same label."""
_GONE = re.compile(
    r"\b(?:is|are|was|were|has been|have been) (?:gone|dropped|removed|replaced|retired|abandoned|"
    r"deprecated|forbidden|not used|no longer)\b"
)
"""Words that negate the words before them."""
_PAST = re.compile(
    r"^(?!need|speed|feed|seed)\w+ed (?!\w+s\b)"
    r"|(?<!\bis )(?<!are )(?<!be )(?<!been )\b(?!need|exceed|embed|feed|seed)\w{2,}ed "
    r"(?:the|an?|it|this|our|every|for|\d+)\b"
    r"|\b(?:used to|formerly|previous|previously|in the past|originally|earlier|until|had|was|were|"
    r"last (?:year|month|week)|before (?:the|that|\d+|we)|back then|legacy)\b"
)
_CHANGED = re.compile(
    r"\b(?:was|were|been) (?:moved|changed|switched|migrated|raised|lowered|increased|reduced|set|"
    r"renamed|replaced|postponed|extended|shortened)\b|\bnow\b|\bsince\b"
)
"""Words of the past that state the present."""
_OPEN = re.compile(
    r"\b(?:could|might|maybe|perhaps|consider\w*|plans?|planned|would|if|propos\w+|suggested|"
    r"evaluat\w+|also|both|as well|additionally|try|tried|wants? to|for example|e\.g|temporarily)\b"
)
"""Words that state nothing yet."""
_LIMITED = re.compile(
    r"\b(?:(?:before|after) (?:you|we|it|they)|only|unless|except|until|if|when|besides)\b"
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|(?<=[。！？])")
_TOKEN = re.compile(
    r"https?://[^\s,;)]+|(?:(?:\.|~?/)?\w|[#$])(?:[\w.:/@+#%'’-]*[\w+#%])?|[,;()?]|--?|[–—]"
)
_BREAKS = frozenset([*",;()?-–—", "--", "but"])
_APOSTROPHE = re.compile(r"['’]")
_POSSESSIVE = re.compile(r"['’]s?$")
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_AMOUNT = re.compile(r"v?(\d[\d,]*(?:\.\d+)*)([a-z%]{0,6})")
_CLOCK = re.compile(r"\d{1,2}:\d\d")
_DATE = re.compile(r"\d{4}-(\d\d)-(\d\d)")
_FORMS = {
    "url": re.compile(r"https?://\S+"),
    "mail": re.compile(r"[\w.+\-]+@[\w.\-]+"),
    "path": re.compile(r"(?:~?/)[\w.\-]+(?:/[\w.\-]*)*|[\w.\-]+/[\w./\-]*"),
    "host": re.compile(r"(?:[a-zA-Z][\w\-]*\.)+[a-z]{2,}(?::\d+)?"),
    "image": re.compile(r"[a-z]+:[\w.\-]+"),
    "code": re.compile(r"(?=.*\d)(?=.*[a-z])[a-z]\w*(?:-\w+)+"),
    "locale": re.compile(r"[a-z]{2}[-_][A-Z]{2}"),
    "name": re.compile(r"[a-z]?[A-Z][a-zA-Z]*[a-z][A-Z]*(?: [A-Z][a-z]+)?"),
}
_STEM = 3
"""Least length of a stem."""
_ENOUGH = 2
"""Least number of words that two statements share."""
_SEARCHED = 4_000
"""Characters of a text whose sentences are looked at."""
_MOST_WORDS = 40
"""Longest sentence that states something, in words; longer ones are lists and logs."""
_MOST_SENTENCES = 8
"""Longest text whose sentences are compared with those of other prose."""


class Member(NamedTuple):
    """A word or name of a class whose members exclude each other."""

    kind: int | str
    """The class: the number of its line; for an amount its unit."""
    name: str
    is_word: bool
    """Whether it is an ordinary word too."""


class _Lists:
    """The words of `claims.txt`."""

    def __init__(self) -> None:
        self.members = defaultdict[str, list[Member]](list)
        self.products = set[int]()
        """The classes of products and the like."""
        self.units: dict[str, tuple[str, float]] = {}
        """The kind of an amount and its factor, by the word for its unit."""
        self.speaking: dict[str, Sequence[str]] = {}
        """The words for a key, by the key's first word."""
        self.words: dict[str, Sequence[str]] = {}
        """The other lists, by name."""
        text = files("memtui.pruning").joinpath("claims.txt").read_text("utf-8")
        for number, line in enumerate(text.splitlines()):
            head, *rest = line.split()
            if head == "~":
                place = rest.index("=")
                self.speaking |= dict.fromkeys(rest[:place], rest[place + 1 :])
            elif head == "=":
                self.words[rest[0]] = (*self.words.get(rest[0], ()), *rest[1:])
            elif head == "%":
                self.units |= dict.fromkeys(rest[2:], (rest[0], float(rest[1])))
            elif head != "#":
                self.products |= {number} if head.endswith("*") else set()
                for names in (one.split("=") for one in rest):
                    for word in names:
                        member = Member(number, names[0].rstrip("!"), word.endswith("!"))
                        self.members[word.rstrip("!").replace("_", " ")].append(member)
        self.firsts = {*self.members, *(one.partition(" ")[0] for one in self.members)}
        """The members, and the first words of those of several."""


_lists = cache(_Lists)


@cache
def _set(name: str) -> frozenset[str]:
    return frozenset(_lists().words[name])


@cache
def _numbered(name: str) -> dict[str, int]:
    return {word: number for number, word in enumerate(_lists().words[name])}


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """Return a word without its ending: “deploys”, “deployed” and “deployment” have one stem."""
    for suffix in _lists().words["suffixes"]:
        rest = word.removesuffix(suffix)
        least = _STEM + 2 * suffix.startswith("ment")
        if rest == word or len(rest) < least or (suffix == "y" and rest[-1] in "aeiou"):
            continue
        if suffix in {"ies", "ied", "y"}:
            return rest + "i"
        doubled = len(rest) > _STEM and rest[-1] == rest[-2] and suffix != "s"
        return rest[:-1] if doubled else rest
    return word


@lru_cache(maxsize=1 << 10)
def _speaking_of(key_word: str) -> frozenset[str]:
    """Return the stems of the other words for a key's word, such as “event” for “message”."""
    return frozenset(map(stem, _lists().speaking.get(key_word, ())))


class Named(NamedTuple):
    """A member of a class in a sentence."""

    place: int
    size: int
    """Its words."""
    member: Member


class Amount(NamedTuple):
    """A number, time or date in a sentence."""

    place: int
    size: float | str
    kind: str
    """`number`, `time` (seconds), `bytes` (MB), `share`, `clock` or `date`."""
    unit: str = ""
    """The stem of the word after a number."""

    def is_like(self, other: Amount) -> bool:
        """Whether both are the same; 3.12.4 is a 3.12."""
        one, two = str(self.size), str(other.size)
        is_part = one.startswith(f"{two}.") or two.startswith(f"{one}.")
        return self.kind == other.kind and (self.size == other.size or is_part)


class Sentence:
    """One sentence: its words, and the values, amounts and denials among them."""

    def __init__(self, text: str, *, is_value: bool = False, is_alone: bool = True) -> None:
        self.text = " ".join(text.split())
        self.written: list[str] = []
        self._parts: list[int] = []
        part = 0
        for token in _TOKEN.findall(text):
            if token.casefold() in _BREAKS:
                part += 1
            else:
                self.written.append(_POSSESSIVE.sub("", token))
                self._parts.append(part)
        self.words = [alike(one) for one in self.written]
        self.stems = [stem(one) for one in self.words]
        self.subjects = frozenset(self.stems)
        self._is_value, self._is_alone = is_value, is_alone

    def said(self, place: int, size: int = 1) -> str:
        """Return words as they were written."""
        return " ".join(self.written[place : place + size])

    def _word(self, place: int) -> str:
        return self.words[place] if 0 <= place < len(self.words) else ""

    @cached_property
    def states(self) -> bool:
        """Whether it states something of the present: no question, plan, history or list."""
        low = " ".join(self.words)
        is_open = len(self.words) > _MOST_WORDS or "?" in self.text or bool(_OPEN.search(low))
        return not is_open and not (_PAST.search(low) and not _CHANGED.search(low))

    @cached_property
    def deniers(self) -> list[int]:
        """The places of the words that deny."""
        denying, limiting = _set("denying"), _set("limiting")
        return [
            place
            for place, word in enumerate(self.words)
            if _APOSTROPHE.sub("", word) in denying
            and limiting.isdisjoint(self.words[place + 1 : place + 3])
            and (word != "over" or "pref" in self.subjects)
        ]

    @cached_property
    def denied(self) -> AbstractSet[int]:
        """The places of the words that are denied."""
        found = set[int]()
        for place in self.deniers:
            is_replaced = self.stems[place] == "replac"
            for after in range(place + 1, len(self.words)):
                is_new = is_replaced and self.words[after] in {"with", "by"}
                if is_new or self._parts[after] != self._parts[place]:
                    break
                found.add(after)
        low = " ".join(self.words)
        if (gone := _GONE.search(low)) is not None:
            end = len(low[: gone.start()].split())
            found |= {place for place in range(end) if self._parts[place] == self._parts[end]}
        return found

    @cached_property
    def names(self) -> Sequence[Named]:
        """The members of classes; longer names first."""
        found, lists, place = list[Named](), _lists(), 0
        words = [one.replace("_", " ") for one in self.words]
        while place < len(words):
            size = 1
            is_first = not lists.firsts.isdisjoint({words[place], words[place].removesuffix("s")})
            for length in (3, 2, 1) if is_first else ():
                name = " ".join(words[place : place + length])
                plain = name if name in lists.members else name.removesuffix("s")
                known = lists.members.get(plain, ())
                fit = [one for one in known if not one.is_word or self._is_name(place, length)]
                if fit and place + length <= len(words):
                    found += [Named(place, length, one) for one in fit]
                    size = length
                    break
            place += size
        return found

    def _is_name(self, place: int, size: int) -> bool:
        """Whether an ordinary word is in the position of a name."""
        is_capital = place > 0 and self.written[place][:1].isupper()
        is_linked = self._word(place - 1) in _set("links") or self._word(place + size) == "branch"
        return self._is_value or is_capital or is_linked

    @cached_property
    def values(self) -> Mapping[int | str, Named]:
        """The members and amounts in the claim, where there is one of each kind.

        An amount among several sentences, as in a report of work, counts for nothing.
        """
        links = _set("copulas") | _set("links")
        said = [*self.names]
        said += [
            Named(one.place, 1, Member(f"{one.kind} {one.unit}", str(one.size), is_word=False))
            for one in (self.amounts if self._is_alone else ())
            if self._word(one.place - 1) in links or self.stems[one.place - 1] not in self.content
        ]
        kinds = [one.member.kind for one in said]
        return {one.member.kind: one for one in said if kinds.count(one.member.kind) == 1}

    def around(self, values: Iterable[Named]) -> tuple[AbstractSet[str], AbstractSet[str]]:
        """Return the stems of its content before and after values, without verbs such as “keep”."""
        taken = {place for one in values for place in range(one.place, one.place + one.size)}
        sides = range(min(taken)), range(min(taken), len(self.words))
        before, after = (
            frozenset(self.stems[place] for place in side if place not in taken)
            & self.content.keys() - _set("light")
            for side in sides
        )
        return before, after

    @cached_property
    def amounts(self) -> Sequence[Amount]:
        """The numbers, times and dates."""
        return [one for place in range(len(self.words)) if (one := self._amount(place))]

    def _amount(self, place: int) -> Amount | None:
        word, before, after = (self._word(place + step) for step in (0, -1, 1))
        number, numbers = _AMOUNT.fullmatch(word), _numbered("numbers")
        month = _numbered("months").get(after[:3], 0) or _numbered("months").get(before[:3], 0)
        kind, factor = _lists().units.get((number and number[2]) or after, ("number", 1.0))
        if word in {"a", "an"} and kind == "time":
            return Amount(place, factor, kind)
        if number is None and word not in numbers:
            date, is_clock = _DATE.fullmatch(word), _CLOCK.fullmatch(word) is not None
            written = "-".join(date.groups()) if date else word.zfill(len("00:00"))
            return Amount(place, written, "date" if date else "clock") if date or is_clock else None
        digits = number[1].replace(",", "") if number else str(numbers[word])
        if month and number is not None and digits.isdigit():
            is_day = len(digits) <= len("31")
            return Amount(place, f"{month:02}-{int(digits):02}", "date") if is_day else None
        is_version = digits.count(".") > (kind != "number")
        size = digits if is_version else float(digits) * factor
        return Amount(place, size, kind, stem(after) if kind == "number" else "")

    @cached_property
    def scopes(self) -> AbstractSet[str]:
        """The environments that it is about."""
        scopes, within = _set("scopes"), _set("within")
        return {
            word
            for place, word in enumerate(self.words)
            if word in scopes
            and (
                word in _set("anywhere")
                or not within.isdisjoint(self.words[max(place - 2, 0) : place])
                or (place == 0 and word not in {"production", "tests"})
            )
        }

    @cached_property
    def content(self) -> Mapping[str, bool]:
        """The stems of the words with a meaning of their own, each with whether it is denied."""
        denied, deniers, general = self.denied, self.deniers, _set("general")
        return {
            self.stems[place]: place in denied
            for place, word in enumerate(self.words)
            if word not in general and place not in deniers
        }

    @cached_property
    def topics(self) -> AbstractSet[str]:
        """Lookup keys; sentences of which one denies the other share one."""
        places = {
            place: f"#{one.member.kind}"
            for one in self.names
            for place in range(one.place, one.place + one.size)
        } | {one.place: "#" for one in self.amounts}
        stems = (places.get(place, one) for place, one in enumerate(self.stems)
                 if one in self.content)  # fmt: skip
        words = [*dict.fromkeys(stems)]
        kinds = {f"#{one.member.kind}" for one in self.names}
        pairs = {*pairwise(sorted(words)), *((one, kind) for one in words[:1] for kind in kinds)}
        return {f"~ {' '.join(one)}" for one in (words[:_ENOUGH], *pairs) if one}

    @cached_property
    def subject(self) -> AbstractSet[str]:
        """The stems of a subject of several words, such as “The payments module”; else empty."""
        if self._word(0) not in _set("articles") or self._word(1) in _set("whole"):
            return frozenset()
        verbs = (
            place
            for place, word in enumerate(self.words)
            if place and (word in _set("general") or (place > 1 and word.endswith("s")))
        )
        end = next(verbs, 0)
        return frozenset(self.stems[1:end]) if end > _ENOUGH else frozenset()

    @property
    def is_rule(self) -> bool:
        """Whether it is an instruction: “Use …”."""
        return self._word(0) in _set("ruling")

    @cached_property
    def is_of_all(self) -> bool:
        """Whether it is about the whole project or person: “We run on …”, “Use …”."""
        first = [place for place, one in enumerate(self.words) if one not in _set("articles")][:2]
        if not first:
            return False
        does = len(first) > 1 and self.stems[first[1]] in _set("doing")
        is_persons = does and self.written[first[0]][:1].isupper()
        is_made = self.words[1:2] == ["are"] and self.stems[2:3] and self.stems[2] in _set("light")
        return is_persons or is_made or self.is_rule or self.words[first[0]] in _set("whole")


class Fact:
    """A fact: the stems of its key, and its value."""

    def __init__(self, key: str, value: str) -> None:
        words = [one.casefold() for one in _KEY_WORD.findall(key)] or [key]
        own = [one for one in words if one not in _set("general")] or words
        self.words = frozenset(words)
        self.key = {stem(one): _speaking_of(one) for one in own}
        self.subject = {
            stem(one) for one in own if one not in _set("general") | _set("heads")
        } or set(self.key)
        named = [one for one in self.key if one in self.subject and one not in _set("events")]
        self.sort = frozenset(named[-1:] if len(named) > 1 else ())
        """The stem of the noun that names the sort of value, as “rate” in `vat_rate`."""
        self.value = Sentence(value, is_value=True)
        self._names = {one.member for one in Sentence(" ".join(words), is_value=True).names}
        kinds = [one.member.kind for one in self.value.names]
        is_amount = any(one.kind != "number" for one in self.value.amounts)
        self.rivals = {one for one in kinds if kinds.count(one) == 1 and not is_amount}
        """The classes of which the value names one member."""

    def is_beside(self, said: Sentence) -> bool:
        """Whether a sentence is about another environment or part, such as the frontend."""
        if said.subject and said.subject.isdisjoint(
            self.key.keys() | set().union(*self.key.values())
        ):
            return True
        kinds = {one.kind for one in self._names}
        others = {one.member for one in said.names} - self._names if kinds else ()
        return bool(said.scopes - self.words) or any(one.kind in kinds for one in others)

    def is_subject_of(self, said: Sentence, *, but: AbstractSet[str] = frozenset()) -> bool:
        """Whether a sentence is about the key; some of the key's stems are optional."""
        said_stems = said.subjects
        missing = {
            one
            for one, others in self.key.items()
            if one not in said_stems and said_stems.isdisjoint(others)
        }
        if not missing & (self.subject - but):
            return True
        found = len(self.key) - len(missing)
        return _ENOUGH <= found >= 2 * len(missing) and self.words.isdisjoint(_set("scopes"))

    @cached_property
    def keys(self) -> AbstractSet[str]:
        """The lookup keys; a sentence that speaks of it has one of them too."""
        kinds = (f"#{kind}" for kind in self.rivals & _lists().products)
        return self.subject.union(*self.key.values(), kinds)


@dataclass(frozen=True)
class Claim:
    """A text as claims to compare: a fact, or the sentences of prose."""

    text: str

    @cached_property
    def form(self) -> TextForm:
        """The text reduced to words."""
        return form_of(self.text)

    @cached_property
    def fact(self) -> Fact | None:
        """The fact that it is; None: it is prose."""
        pair = pair_of(self.text.strip()) if ":" in self.text else None
        is_fact = pair is not None and pair.value and pair.key.casefold() not in LABELS
        return Fact(*pair) if pair and is_fact else None

    @cached_property
    def sentences(self) -> Sequence[Sentence]:
        """The sentences of prose; a fact is one."""
        if self.fact is not None:
            key = " ".join(_KEY_WORD.findall(self.text.partition(":")[0]))
            return [Sentence(f"{key} {self.fact.value.text}", is_value=True)]
        parts = [one for one in _SENTENCE.split(self.text[:_SEARCHED]) if one.strip()]
        return [Sentence(without_markup(one), is_alone=len(parts) == 1) for one in parts]

    @cached_property
    def keys(self) -> AbstractSet[str]:
        """The lookup keys under which prose and facts meet."""
        if self.fact is not None:
            return self.fact.keys
        said = self.sentences
        kinds = {f"#{name.member.kind}" for one in said for name in one.names}
        return kinds.union(*(one.subjects for one in said))

    @cached_property
    def topics(self) -> AbstractSet[str]:
        """The lookup keys under which prose meets prose that denies it."""
        if self.fact is not None or len(self.sentences) > _MOST_SENTENCES:
            return frozenset()
        return set[str]().union(*(one.topics for one in self.sentences))


def excluded(earlier: Claim, later: Claim) -> str | None:
    """Return how a later text excludes an earlier one, as the rest of a sentence.

    None: nothing shows that it does. At most one of them is a fact.
    """
    fact = earlier.fact or later.fact
    prose = later if earlier.fact else earlier
    if fact is not None:
        all_found = [_against(fact, said) for said in prose.sentences]
        if (fact.value.text, "") not in all_found and any(all_found):
            was, now = next(filter(None, all_found))
            return _told(was, now) if earlier.fact else _told(now, was)
    for one in earlier.sentences:
        for other in later.sentences:
            shared = one.topics & other.topics
            if shared and (found := _reversed(one, other)) is not None:
                return _told(*found)
    return None


def _told(was: str, now: str) -> str:
    return f"says “{now}” where this one says “{was}”"


def _against(fact: Fact, said: Sentence) -> tuple[str, str] | None:
    """Return a fact's value and the words of a sentence that exclude it; none if it agrees.

    None: it neither excludes the fact nor agrees.
    """
    is_about = fact.is_subject_of(said)
    is_near = is_about or fact.is_subject_of(said, but=fact.sort)
    """A value of the same sort need not be named by its sort: “Invoices are issued in euros”."""
    products = fact.rivals & _lists().products if said.is_of_all else ()
    if not (is_near or products) or not said.states or fact.is_beside(said):
        return None
    value = fact.value
    if present := _places(value, said):
        if present <= said.denied:
            return (value.text, said.text) if is_about else None
        other = _other_version(value, said) or ("" if is_about else None)
    else:
        kinds = fact.rivals if is_near else products
        rivals = (said.said(one.place, one.size) for one in said.names
                  if one.member.kind in kinds and one.place not in said.denied)  # fmt: skip
        other = next(rivals, None)
        if other is None and is_near:
            other = (
                _other_version(value, said)
                or _other_amount(fact, said)
                or _other_form(fact, said, is_about=is_about)
            )
    return None if other is None else (value.text, other)


def _places(value: Sentence, said: Sentence) -> AbstractSet[int]:
    """Return the places in a sentence where it says a value; empty: it does not."""
    if value.names and all(one.kind == "number" for one in value.amounts):
        members = {one.member for one in value.names}
        stems = {stem(one.member.name) for one in value.names}
        named = {one.place for one in said.names if one.member in members}
        return named | {place for place, one in enumerate(said.stems) if one in stems}
    if value.amounts:
        return {one.place for one in said.amounts if any(map(one.is_like, value.amounts))}
    own = {
        one
        for word, one in zip(value.words, value.stems, strict=True)
        if word not in _set("general")
    }
    found = {place for place, one in enumerate(said.stems) if one in own}
    is_enough = 2 * len(own & said.subjects) >= max(len(own), 1)
    return found if is_enough else set()


def _other_version(value: Sentence, said: Sentence) -> str | None:
    """Return another number after the same name, as in PostgreSQL 14 for PostgreSQL 16."""
    for own in value.amounts:
        for one in said.amounts:
            names = value.stems[own.place - 1 : own.place], said.stems[one.place - 1 : one.place]
            is_of_same = names[0] == names[1] != [] or own.unit == one.unit != ""
            if is_of_same and one.kind == own.kind and not one.is_like(own):
                return said.said(one.place - (names[0] == names[1]), 2)
    return None


def _other_amount(fact: Fact, said: Sentence) -> str | None:
    """Return another number, time or date than the fact's in a sentence about its key."""
    own = fact.value.amounts[0] if fact.value.amounts else None
    for one in said.amounts if own is not None and len(fact.value.words) <= _ENOUGH else ():
        before = said.stems[one.place - 1] if one.place else ""
        is_subject = one.place == 1 and before in fact.key  # as in “Port 22 is open”
        if own is None or one.kind != own.kind or one.place in said.denied or is_subject:
            continue
        is_bare = before in fact.key or (
            len(fact.value.words) == 1
            and (
                one.unit in _set("counted")
                or one.unit in fact.key
                or (
                    before in _set("copulas")
                    and (one.place + 1 == len(said.words) or said.stems[one.place - 2] in fact.key)
                )
            )
        )
        if one.kind != "number" or (one.unit == own.unit != "") or is_bare:
            return said.said(one.place, 2)
    return None


def _other_form(fact: Fact, said: Sentence, *, is_about: bool) -> str | None:
    """Return another value of the same form: an address, a path, a code, a name."""
    form = _form_of(fact.value.text)
    if form == "name" and (fact.rivals or not is_about):
        return None
    speaking = set[str]().union(*fact.key.values())
    for place, word in enumerate(said.written if form else ()):
        is_key = said.stems[place] in fact.key or said.stems[place] in speaking
        if place in said.denied or is_key or _form_of(word) != form:
            continue
        if form != "name":
            return word
        place_before = place - 1 - (said.words[place - 1] in _set("articles"))
        before, after = (said.words[at : at + 1] for at in (max(place_before, 0), place + 1))
        is_name = said.words[place] not in _set("general") and not _lists().members.get(
            said.words[place]
        )
        is_linked = place > 0 and (
            stem(before[0]) in speaking or before[0] in _set("copulas") | _set("links")
        )
        if is_name and (is_linked or after in (["is"], ["owns"])):
            return word
    return None


def _form_of(text: str) -> str | None:
    return next((form for form, pattern in _FORMS.items() if pattern.fullmatch(text)), None)


def _reversed(one: Sentence, other: Sentence) -> tuple[str, str] | None:
    """Return the words in which two sentences of the same words exclude each other."""
    sides = (one, other)
    if one.scopes != other.scopes or not all(side.states for side in sides):
        return None
    mine, yours = one.content, other.content
    shared, less = mine.keys() & yours.keys(), min(len(mine), len(yours))
    more = len((mine.keys() ^ yours.keys()) - _set("light"))
    if any(_LIMITED.search(" ".join(side.words)) for side in sides):
        return None
    if len(shared) == less >= _ENOUGH and more <= (2 if less > _ENOUGH else 1):
        is_denied = any(mine[word] != yours[word] for word in shared)
        are_simple = max(len(side.deniers) for side in sides) < _ENOUGH
        return (one.text, other.text) if is_denied and are_simple else None
    return None if one.denied or other.denied else _other_value(one, other)


def _other_value(one: Sentence, other: Sentence) -> tuple[str, str] | None:
    """Return the values that two sentences give the same thing, where these exclude each other."""
    mine, yours = one.values, other.values
    rivals = [kind for kind in mine.keys() & yours.keys()
              if mine[kind].member.name != yours[kind].member.name]  # fmt: skip
    if not rivals:
        return None
    before, after = one.around(mine[kind] for kind in rivals)
    other_before, other_after = other.around(yours[kind] for kind in rivals)
    added = after ^ other_after
    is_added = len(added) <= _ENOUGH and (after <= other_after or other_after <= after)
    is_same = before == other_before and (is_added if before else bool(after) and not added)
    if one.is_rule != other.is_rule:  # “Use UTC in the logs” says the same as “Logs are in UTC”
        mine_said, yours_said = before | after, other_before | other_after
        common, more = mine_said & yours_said, mine_said ^ yours_said
        is_same = bool(common) and len(more) < _ENOUGH
    if not is_same:
        return None
    was, now = mine[rivals[0]], yours[rivals[0]]
    return one.said(was.place, was.size), other.said(now.place, now.size)
