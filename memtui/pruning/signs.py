"""What a text alone shows: that it gives orders, hides characters, or says otherwise than another.

Each is a sign for a person to look at, never a proof: a runbook may quote an attack.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from memtui.pruning.duplicates import NEGATIONS, Form, is_number

_QUOTED = 60
_LOOKED_AT = 20_000
"""Characters of a text that are looked at; who hides an order hides it where a model reads it."""


def _order(signs: str, pattern: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """One sort of order; a text without any of the signs, in lower case, has none of it."""
    return tuple(signs.split()), re.compile(pattern, re.IGNORECASE)


_ORDERS = (
    _order(
        "ignore disregard forget override bypass",
        r"\b(?:ignore|disregard|forget|override|bypass) "
        r"(?:(?:all|any|every|the|your|my|these|those|of) ){0,4}"
        r"(?:previous|prior|earlier|above|preceding|former|other|system|safety) (?:\w+ )?"
        r"(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|context)\b",
    ),
    _order(
        "ignoriere vergiss ignora olvida ignorez oubliez",
        r"\b(?:ignoriere|vergiss|ignora|olvida|ignorez|oubliez) (?:\w+ ){0,3}"
        r"(?:anweisungen|regeln|instrucciones|instructions)\b",
    ),
    _order(
        "игнорируй забудь",
        r"\b(?:игнорируй|забудь)(?:те)? (?:\w+ ){0,3}(?:инструкции|указания)",
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
        r"\b(?:do not|don't|never) (?:mention|reveal|disclose|tell|show|report) (?:\w+ ){0,3}"
        r"(?:this (?:line|note|message|memory|instruction|text)|the user)\b",
    ),
    _order(
        "without",
        r"\bwithout (?:telling|asking|informing|notifying) (?:the |your )?(?:user|human|person)\b",
    ),
    _order(
        "assistant agent model llm ai",
        r"\b(?:note|message|instructions?|attention|hint) (?:to|for) (?:all |any |the )?"
        r"(?:\w+ )?(?:assistants?|agents?|models?|llms?|ais?)\b(?=.{0,60}:)"
        r"|\b(?:as an|dear|attention,?) (?:ai|assistant|language model|llm)\b",
    ),
    _order("://", r"\b(?:send|post|upload|forward|exfiltrate) (?:\w+ ){0,5}(?:to|at) https?://"),
    _order("curl wget", r"\b(?:curl|wget)\b[^\n|]{0,200}\|\s{0,5}(?:sudo )?(?:ba|z)?sh\b"),
    _order(
        "<| [inst [/inst [sys <<",
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>"
        r"|\[/?(?:INST|SYS|SYSTEM)\]|<</?SYS>>",
    ),
    _order(
        "<sys </sys <inst </inst <tool </tool",
        r"</?(?:system|system-reminder|system_prompt|instructions?|tool_result|tool_use)>",
    ),
    _order(
        "system developer",
        r"(?:\A|\n)\s{0,9}#{0,6} ?(?:system|developer)(?: prompt| message)?:\s",
    ),
    _order("instruction", r"(?:\A|\n)\s{0,9}#{1,6} ?(?:new )?instructions?\s{0,9}(?:\n|:|\Z)"),
)
_ANY_SIGN = re.compile("|".join(re.escape(sign) for signs, _ in _ORDERS for sign in signs))
_HIDING = {"Cc", "Cf", "Cs", "Co"}
_NOT_HIDDEN = frozenset("\n\r\t\f\u200c\u200d\u00ad\ufeff")
"""Line ends and tabs, and what joins letters and emoji or stands where a file begins."""


def order_in(text: str) -> str | None:
    """Return the words with which a text gives its reader orders; None where it gives none."""
    looked_at = text[:_LOOKED_AT]
    folded = looked_at.casefold()
    if _ANY_SIGN.search(folded) is None:
        return None
    found = (
        pattern.search(looked_at)
        for signs, pattern in _ORDERS
        if any(sign in folded for sign in signs)
    )
    first = min((one for one in found if one), key=lambda one: one.start(), default=None)
    return " ".join(first[0].split())[:_QUOTED] if first else None


def hidden_in(text: str) -> int:
    """Return how many characters a text has that a person does not see, but a model reads."""
    if text.isascii() and text.isprintable():
        return 0
    return sum(
        unicodedata.category(one) in _HIDING and one not in _NOT_HIDDEN for one in text[:_LOOKED_AT]
    )


_SHARED = 3
"""Words that two texts must share to speak of the same thing …"""
_BEGINNING = 2
"""… of them so many at the beginning, unless one negates the other."""
_SPAN = 4
"""Longest run of words that may be another."""
_COUNTED = frozenset(
    """
    chapter entry issue item lesson note number page part phase section step task ticket
    """.split()  # noqa: SIM905
)
"""Words after which a number says which one it is: step 2 does not take the place of step 1."""


def topic_keys(form: Form) -> tuple[str, ...]:
    """Return what two texts of the same thing share one of; nothing of one too short to tell."""
    words, ends = form.content, _SHARED - 1
    if len(words) <= _SHARED:
        return ()
    return (
        f"{' '.join(words[:_SHARED])} …",
        f"{' '.join(words[:ends])} … {' '.join(words[-ends:])}",
        f"… {' '.join(words[-_SHARED:])}",
    )


def otherwise(earlier: Form, later: Form) -> str | None:
    """Return how a later text says otherwise than an earlier one, as the rest of a sentence.

    None where nobody can tell.

    They differ in one place alone, a small part of both. Either they begin with the same words,
    as “Releases are cut on Thursdays” and “… on Tuesdays” do: another subject is another
    statement, and so is another step. Or one of them negates the other: “We use Redis”, “We no
    longer use Redis”.
    """
    one, other = earlier.content, later.content
    start = _shared(one, other)
    end = min(_shared(one[::-1], other[::-1]), min(len(one), len(other)) - start)
    was, now = one[start : len(one) - end], other[start : len(other) - end]
    changed = max(len(was), len(now))
    if not 0 < changed <= _SPAN or start + end < max(_SHARED, 2 * changed - 1):
        return None
    words = "“" + " ".join(now or was) + "”"
    if not was or not now:
        negates = not {*was, *now}.isdisjoint(NEGATIONS)
        return f"{'adds' if now else 'leaves out'} {words}" if negates else None
    are_words = all(any(map(str.isalnum, word)) for word in (*was, *now))
    if start < _BEGINNING or not are_words or _only_adds(was, now):
        return None
    if one[start - 1] in _COUNTED and is_number(was[0]) and is_number(now[0]):
        return None
    return f"says {words} where this one says “{' '.join(was)}”"


def _only_adds(was: Sequence[str], now: Sequence[str]) -> bool:
    """Whether one of the two says what the other says and more, numbers and negations aside."""
    added = {*was} ^ {*now}
    nested = {*was} <= {*now} or {*now} <= {*was}
    return nested and not added & NEGATIONS and not any(map(is_number, added))


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many words two texts have in common at their beginnings."""
    size = min(len(one), len(other))
    return next((place for place in range(size) if one[place] != other[place]), size)
