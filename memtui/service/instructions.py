"""Text that looks like an instruction to a model: what a poisoned memory says.

A memory states; it does not command the model that reads it. What is found here is no proof, and
what is not found is no clearance: it is a reason to let a person look first.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cf", "Co", "Cn", "Cs"})
_KEPT = frozenset({"\u200c", "\u200d", "\ufeff"})
"""Joiners, which emoji and several scripts need, and the mark that begins a file."""

_BEFORE = (
    r"(?:all|any|every|the|these|those|your|my|of|previous|prior|earlier|above|preceding|other)"
)
_RULES = r"(?:instructions?|prompts?|rules?|guidelines?|directions?|orders?|messages?|context)"
_MODEL = r"(?:assistants?|agents?|models?|llms?|ais?|bots?|chatbots?|copilots?|claude|gpt)"
_PATTERNS = tuple(
    re.compile("".join(parts), re.IGNORECASE)
    for parts in (
        (rf"\b(?:ignore|disregard|forget|override|bypass)\s+(?:{_BEFORE}\s+){{0,4}}{_RULES}\b",),
        (r"\b(?:ignore|disregard|forget)\s+(?:everything|anything|what)\s+(?:you|above|before)\b",),
        (r"\b(?:system|developer|hidden|initial)\s+(?:prompt|message|instructions?)\b",),
        (r"\byou\s+(?:are|act)\s+now\b|\bfrom\s+now\s+on,?\s+you\b",),
        (r"\bpretend\s+(?:to\s+be|that\s+you)\b",),
        (
            r"\b(?:note|notice|message|instructions?|attention|reminder)\s*(?:to|for)?\s*:?\s*",
            rf"(?:all\s+|any\s+|the\s+|other\s+)?(?:ai\s+)?{_MODEL}\b",
        ),
        (r"\b(?:if|when)\s+you\s+are\s+an?\s+(?:ai|language|large)\b|\bas\s+an\s+ai\b",),
        (
            r"\b(?:do\s+not|don't|never)\s+(?:mention|tell|reveal|disclose|inform|warn|show|ask)\b",
            r"[^.\n]{0,60}\b(?:user|person|human|owner|anyone|anybody|line|message|this|that)\b",
        ),
        (
            r"\b(?:reply|respond|answer|output)\s+(?:only\s+)?(?:with|in)\s+(?:the\s+)?",
            r"(?:contents?|secrets?|keys?|tokens?|passwords?|only|exactly)\b",
        ),
        (
            r"\b(?:send|post|upload|forward|exfiltrate|leak|paste)\b[^.\n]{0,60}\b",
            r"(?:https?://|to\s+\S+@|secrets?|credentials?|passwords?|tokens?|api\s+keys?)",
        ),
        (
            r"\b(?:run|execute|eval)\b[^.\n]{0,30}(?:`|\bcurl\b|\bwget\b|\brm\s+-|\bbash\b|\bsudo\b)",
        ),
        (r"\b(?:curl|wget)\b[^\n|]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b",),
        (r"</?(?:system|assistant|user|instructions?|tool_call|function_calls?)\b[^>]*>",),
        (r"\[/?(?:INST|SYS|SYSTEM)\]|<\|(?:im_start|im_end|system|endoftext)\|>",),
    )
)


def looks_like_instruction(text: str) -> bool:
    """Whether a text tells a model what to do, or has characters that are obeyed and not seen.

    Those are control characters of a terminal and what Unicode hides: marks of direction, spaces
    without a width, tags.
    """
    if not text.isascii() or not text.isprintable():
        if any(_is_hidden(char) for char in text):
            return True
        text = unicodedata.normalize("NFKC", text)
    return any(pattern.search(text) for pattern in _PATTERNS)


def _is_hidden(char: str) -> bool:
    if char in "\n\r\t" or char in _KEPT:
        return False
    kind = unicodedata.category(char)
    return kind == "Cc" or kind in _HIDDEN
