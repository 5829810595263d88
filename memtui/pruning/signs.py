"""Signs in texts: instructions to a model, hidden characters, contradiction of another text.

Each is a sign for a person to look at, never a proof: a runbook may quote an attack.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from memtui.fact_values import FactPair
from memtui.pruning.claims import Claim, excluded
from memtui.pruning.duplicates import NEGATIONS, TextForm, is_number
from memtui.pruning.folding import alike, joined, plain, spaced, without_markup, without_tags

_QUOTED = 60
_SEARCHED = 20_000
"""Longest text in which the original words of an instruction are located, to quote them."""


def _order(signs: str, pattern: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Compile one kind of instruction; texts without any of the `signs` are skipped quickly."""
    return tuple(alike(signs).split()), re.compile(alike(pattern))


class _Orders:
    """Kinds of instructions to search in one form of a text."""

    def __init__(self, *sorts: tuple[tuple[str, ...], re.Pattern[str]]) -> None:
        self._sorts = sorts
        self._any = re.compile("|".join(re.escape(sign) for signs, _ in sorts for sign in signs))

    def first_in(self, text: str) -> re.Match[str] | None:
        """Return the first instruction in a text."""
        if self._any.search(text) is None:
            return None
        found = (
            pattern.search(text)
            for signs, pattern in self._sorts
            if any(sign in text for sign in signs)
        )
        return min((one for one in found if one), key=lambda one: one.start(), default=None)


_IN_WORDS = _Orders(
    _order(
        "ignore disregard forget override bypass",
        r"\b(?:ignore|disregard|forget|override|bypass) "
        r"(?:(?:all|any|every|the|your|my|these|those|of) ){0,4}"
        r"(?:previous|prior|earlier|above|preceding|former|other|system|safety) (?:\w{1,40} )?"
        r"(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|context)\b",
    ),
    _order(
        "ignoriere vergiss ignora olvida ignorez oubliez",
        r"\b(?:ignoriere|vergiss|ignora|olvida|ignorez|oubliez) (?:\w{1,40} ){0,3}"
        r"(?:anweisungen|regeln|instrucciones|instructions)\b",
    ),
    _order(
        "игнорируй забудь",
        r"\b(?:игнорируй|забудь)(?:те)? (?:\w{1,40} ){0,3}(?:инструкции|указания)",
    ),
    _order("忽略", r"忽略.{0,6}(?:指令|指示|说明)"),
    _order("only", r"\b(?:reply|respond|answer) only with\b"),
    _order(
        "prompt instructions",
        r"\b(?:reveal|print|repeat|show|output|leak) (?:me )?(?:your|the) "
        r"(?:whole |full |hidden )?(?:system )?(?:prompt|instructions)\b",
    ),
    _order("you", r"\byou are (?:now|no longer) (?:a|an|the|in|bound|allowed)\b"),
    _order("now henceforth", r"\b(?:from now on|henceforth),? (?:you|act|behave|respond|answer)\b"),
    _order(
        "not n't never",
        r"\b(?:do not|don't|never) (?:mention|reveal|disclose|tell|show|report) "
        r"(?:\w{1,40} ){0,3}"
        r"(?:this (?:line|note|message|memory|instruction|text)|the user)\b",
    ),
    _order(
        "without",
        r"\bwithout (?:telling|asking|informing|notifying) (?:the |your )?(?:user|human|person)\b",
    ),
    _order(
        "assistant agent model llm ai",
        r"\b(?:note|message|instructions?|attention|hint) (?:to|for) (?:all |any |the )?"
        r"(?:\w{1,40} )?(?:assistants?|agents?|models?|llms?|ais?)\b(?=.{0,60}:)"
        r"|\b(?:as an|dear|attention,?) (?:ai|assistant|language model|llm)\b",
    ),
    _order(
        "://", r"\b(?:send|post|upload|forward|exfiltrate) (?:\w{1,40} ){0,5}(?:to|at) https?://"
    ),
)
_IN_MARKS = _Orders(
    _order("curl wget", r"\b(?:curl|wget)\b[^\n|]{0,200}\|\s{0,5}(?:sudo )?(?:ba|z)?sh\b"),
    _order(
        "<| [inst [/inst [sys <<",
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>"
        r"|\[/?(?:inst|sys|system)\]|<</?sys>>",
    ),
    _order(
        "system> system- system_ system\n instruct tool_",
        r"<\s?/?\s?(?:system|system-reminder|system_prompt|instructions?|tool_result|tool_use)\s?>",
    ),
    _order(
        "system developer",
        r"(?:^|\n)\s{0,9}#{0,6} ?(?:system|developer)(?: prompt| message)?:(?=\s)",
    ),
    _order("instruction", r"(?:^|\n)\s{0,9}#{1,6} ?(?:new )?instructions?\s{0,9}(?:\n|:|$)"),
    _order("[@click", r"\[@click\s?="),
    _order(
        "pinned: id:",
        r"^\s{0,9}---\n(?:[^\n]{0,200}\n){0,20}(?:pinned: (?:true|yes)|id: [^\n]{0,200}\.\./)",
    ),
)
_FORMS: Sequence[tuple[_Orders, Callable[[str], str]]] = (
    (_IN_MARKS, lambda text: text),
    (_IN_WORDS, spaced),
    (_IN_WORDS, without_tags),
    (_IN_WORDS, joined),
)
"""The instructions to search, each with the folded form of the text to search in."""


def order_in(text: str) -> str | None:
    """Return the words of a text that instruct its reader; None: there are none."""
    letters, known = plain(text), set[str]()
    for orders, form_in in _FORMS:
        form = form_in(letters)
        if orders is _IN_WORDS and form in known:
            continue
        if (found := orders.first_in(form)) is not None:
            return _quoted(text, found, form_in)
        if orders is _IN_WORDS:
            known.add(form)
    return None


def _quoted(text: str, found: re.Match[str], form_in: Callable[[str], str]) -> str:
    """Return a match in a folded form as it stands in the original text."""
    if len(text) > _SEARCHED:
        return " ".join(found[0].split())[:_QUOTED]

    def place(length: int) -> int:
        """Return the length of the shortest beginning whose form has at least this length."""
        ends = range(len(text) + 1)
        return bisect_left(ends, length, key=lambda end: len(form_in(plain(text[:end]))))

    own = text[max(place(found.start() + 1) - 1, 0) : place(found.end())]
    return " ".join(own.split())[:_QUOTED]


_SEPARATOR = re.compile(r"[\s\"'*`)\]}>]{0,6}(?:<?[-=]{1,2}>|:{1,2}=?|={1,3}|[→⇒⟶➜➔|])")
_BEFORE = 120
"""Characters before a separator that are searched for a key."""
_AFTER = 2_000
"""Characters after a separator that are searched for a value."""
_PART = re.compile(r"[^\W_]+")
_BEGINS = re.compile(r"(?:^|[,;.{(\[|:>!?])[\s\"'*`_#+\-]*$")
"""A key of one word stands only at the beginning of a line or clause."""
_CELLS = re.compile(r"</t[dh]\s?>\s{0,99}<t[dh](?:\s[^<>]{0,200})?>")
_QUOTES = "\"'`"
_AROUND = " .,;!\"'()[]{}"


def key_words(key: str) -> str:
    """Normalise a key: `deploy_branch`, `Deploy-Branch`, `deployBranch` are the same."""
    return "".join(_PART.findall(plain(key)))


def denied(texts: Iterable[str], facts: Sequence[FactPair]) -> list[bool]:
    """Return for each fact whether one of the texts gives its key another value.

    A text gives a value as `key: value`, `key = value`, `key → value`, `"key": "value"` or
    `| key | value |`, anywhere and with any markup. A look-alike value counts as another.
    """
    keys = [key_words(one.key) for one in facts]
    lone = {name for name, one in zip(keys, facts, strict=True) if name == plain(one.key)}
    values = [_value(plain(one.value)) for one in facts]
    written = [_value(without_markup(one.value).casefold()) for one in facts]
    found = [False] * len(facts)
    for text in texts if keys else ():
        said: dict[str, set[str]] = {}
        for name, value in _said(_CELLS.sub("|", plain(text)), frozenset(keys), lone):
            said.setdefault(name, set()).add(value)
        own = without_markup(text).casefold() if said else ""
        for place, name in enumerate(keys):
            if name in said:
                agrees = said[name] == {values[place]} and written[place] in own
                found[place] = found[place] or not agrees
    return found


def _value(text: str) -> str:
    return spaced(text).strip(_AROUND)


def _said(text: str, keys: frozenset[str], lone: set[str]) -> Iterator[tuple[str, str]]:
    """Yield key and value wherever a text in plain letters gives one of the keys a value.

    A key of one word counts only at the beginning of a line or clause; elsewhere the word before
    may belong to the key.
    """
    longest, last = max(map(len, keys), default=0), {name[-1:] for name in keys}
    for separator in _SEPARATOR.finditer(text):
        if text[separator.start() - 1 : separator.start()] not in last:
            continue
        before = text[max(separator.start() - _BEFORE, 0) : separator.start()].rpartition("\n")[2]
        name = ""
        for part in reversed(list(_PART.finditer(before))):
            name = part[0] + name
            if len(name) > longest:
                break
            is_part = part.start() > 0 and before[part.start() - 1] in "_-"
            if name not in keys or (is_part and before[: part.start() - 1].rstrip("_- ")):
                continue
            if name not in lone or _BEGINS.search(before[: part.start()]):
                yield name, _value(_value_at(text, separator, in_braces="{" in before))


def _value_at(text: str, separator: re.Match[str], *, in_braces: bool) -> str:
    """Return the value after a separator, up to the end of its quotes, cell or line."""
    rest = text[separator.end() : separator.end() + _AFTER].lstrip()
    quote = rest[:1]
    if quote and quote in _QUOTES:
        closed = rest.find(quote, 1)
        return rest[1:closed] if closed > 0 else rest
    line = rest.partition("\n")[0]
    if separator[0].endswith("|"):
        return line.partition("|")[0]
    return re.split("[,}]", line, maxsplit=1)[0] if in_braces else line


_SHARED = 3
"""Least number of words that two texts on the same subject share."""
_BEGINNING = 2
"""Least number of them at the beginning, unless one text negates the other."""
_SPAN = 4
"""Longest run of words that may differ."""
_COUNTED = frozenset(
    """
    chapter entry issue item lesson note number page part phase section step task ticket
    """.split()  # noqa: SIM905
)
"""Words after which a number is an ordinal: step 2 does not contradict step 1."""


_NEGATIONS = frozenset(map(alike, NEGATIONS))
_SENTENCE = re.compile(r"(?<=[.!?]) |(?<=[。！？])")
_MOST_WORDS = 60
"""Longest text that is compared in more than one place, in words."""


def topic_keys(said: Claim) -> tuple[str, ...]:
    """Return lookup keys; texts on the same subject share one. Empty for a text too short."""
    words, ends = tuple(map(alike, said.form.content)), _SHARED - 1
    if len(words) <= _SHARED:
        return tuple(said.topics)
    return (
        f"{' '.join(words[:_SHARED])} …",
        f"{' '.join(words[:ends])} … {' '.join(words[-ends:])}",
        f"… {' '.join(words[-_SHARED:])}",
        *said.topics,
    )


def disagreeing(texts: Iterable[str], known: Sequence[str]) -> list[bool]:
    """Return for each known text whether one of `texts`, or a sentence there, contradicts it."""
    found = [False] * len(known)
    prose: dict[str, list[tuple[int, Claim]]] = {}
    facts: dict[str, list[tuple[int, Claim]]] = {}
    for place, text in enumerate(known):
        for one in _claims(text):
            for key in () if one.fact else topic_keys(one):
                prose.setdefault(key, []).append((place, one))
            for key in one.keys:
                (facts if one.fact else prose).setdefault(f"= {key}", []).append((place, one))
    for text in texts:
        for later in _claims(text):
            keys = [f"= {key}" for key in later.keys]
            pairs = [pair for key in keys for pair in (prose if later.fact else facts).get(key, ())]
            for key in () if later.fact else topic_keys(later):
                pairs += prose.get(key, ())
            for place, one in pairs:
                if not found[place]:
                    found[place] = otherwise(one, later, places=_SPAN) is not None
    return found


def _claims(text: str) -> list[Claim]:
    """Return a text as a whole, and each of its sentences."""
    whole = Claim(text.strip())
    if whole.fact is not None:
        return [whole]
    return [Claim(one) for one in dict.fromkeys((without_markup(text), *_sentences(text)))]


def _sentences(text: str) -> Iterable[str]:
    """Return the sentences of a text, and its lines if there are several, without duplicates."""
    lines = text.splitlines()
    split = [*_SENTENCE.split(without_markup(text)), *map(without_markup, lines * (len(lines) > 1))]
    return dict.fromkeys(filter(None, split))


def otherwise(earlier: Claim, later: Claim, *, places: int = 1) -> str | None:
    """Return how a later text contradicts an earlier one, as the rest of a sentence.

    None: no contradiction is evident. Two facts are compared by their keys elsewhere.
    """
    if earlier.fact and later.fact:
        return None
    in_words = None if earlier.fact or later.fact else _differing(earlier.form, later.form, places)
    return in_words or excluded(earlier, later)


def _differing(earlier: TextForm, later: TextForm, places: int) -> str | None:
    """Return how two texts contradict that are the same but for some words.

    They contradict if they differ in one short place, and either begin with the same words
    (“Releases are cut on Thursdays”, “… on Tuesdays”), or one negates the other (“We use Redis”,
    “We no longer use Redis”). Texts with another subject or step number do not contradict. With
    the same beginning, up to `places` places may differ, if a number or negation differs or most
    words are the same.
    """
    one, other = tuple(map(alike, earlier.content)), tuple(map(alike, later.content))
    start = _shared(one, other)
    end = min(_shared(one[::-1], other[::-1]), min(len(one), len(other)) - start)
    was, now = one[start : len(one) - end], other[start : len(other) - end]
    changed = max(len(was), len(now))
    if not 0 < changed <= _SPAN or start + end < max(_SHARED, 2 * changed - 1):
        return _in_places(one, other, places) if changed and start >= _BEGINNING else None
    said_was = " ".join(earlier.content[start : len(one) - end])
    said_now = " ".join(later.content[start : len(other) - end])
    if not was or not now:
        negates = not {*was, *now}.isdisjoint(_NEGATIONS)
        words = f"“{said_now or said_was}”"
        return f"{'adds' if now else 'leaves out'} {words}" if negates else None
    are_words = all(any(map(str.isalnum, word)) for word in (*was, *now))
    if start < _BEGINNING or not are_words or _only_adds(was, now):
        return None
    if _counts(one, start) and is_number(was[0]) and is_number(now[0]):
        return None
    return f"says “{said_now}” where this one says “{said_was}”"


def _in_places(one: Sequence[str], other: Sequence[str], places: int) -> str | None:
    """Return how two texts that differ in several places contradict; None: not evident."""
    if places < 2 or max(len(one), len(other)) > _MOST_WORDS:
        return None
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    steps = [step[1:] for step in matcher.get_opcodes() if step[0] != "equal"]
    if len(steps) > places or steps[0][0] < _BEGINNING:
        return None
    changed = sum(max(to - since, till - at) for since, to, at, till in steps)
    shared = sum(block.size for block in matcher.get_matching_blocks())
    sides = [(one[since:to], other[at:till]) for since, to, at, till in steps
             if not _counts(one, since)]  # fmt: skip
    was, now = (set[str]().union(*side) for side in zip(*sides, strict=True)) if sides else ((), ())
    amounts = [{word for word in side if is_number(word) or word in _NEGATIONS}
               for side in (was, now)]  # fmt: skip
    is_other_amount = all(amounts) and amounts[0] != amounts[1]
    if changed > _SPAN or shared < max(_SHARED, changed if is_other_amount else 2 * changed):
        return None
    if not any(mine and yours and not _only_adds(mine, yours) for mine, yours in sides):
        return None
    return f"says “{' '.join(other)}” where this one says “{' '.join(one)}”"


def _counts(words: Sequence[str], place: int) -> bool:
    """Whether the word before a place makes a number there an ordinal, as in “step 2”."""
    return place > 0 and words[place - 1] in _COUNTED


def _only_adds(was: Sequence[str], now: Sequence[str]) -> bool:
    """Whether one of the two only adds words to the other, no number or negation."""
    added = {*was} ^ {*now}
    nested = {*was} <= {*now} or {*now} <= {*was}
    return nested and not added & _NEGATIONS and not any(map(is_number, added))


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common beginning of two texts, in words."""
    size = min(len(one), len(other))
    return next((place for place in range(size) if one[place] != other[place]), size)
