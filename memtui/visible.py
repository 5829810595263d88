"""Make foreign text safe to show: characters that a terminal obeys become visible."""

import unicodedata

_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {
    "\n": "⏎",
    "\t": " ",
    "\x7f": "\u2421",
}
_ASCII = [str.maketrans(_PICTURES), str.maketrans(_PICTURES | {"\n": "\n"})]
"""Translation tables for ASCII: newlines replaced, newlines kept."""
_MARK_LIMIT = 4
_MARK_CATEGORIES = frozenset({"Mn", "Me"})
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_NEVER_SEEN = (
    (0x2065, 0x2065),
    (0xFDD0, 0xFDEF),
    (0xFFF0, 0xFFF8),
    (0x13430, 0x1345F),
    (0xE0000, 0xE0FFF),
)
"""Ranges that Unicode reserves for invisible characters, layout controls and noncharacters."""
_KEPT_FORMAT = frozenset({"\u200c", "\u200d"})
"""Zero-width joiner and non-joiner: emoji and several scripts need them."""


def visible(text: str, *, limit: int | None = None, keep_newlines: bool = False) -> str:
    r"""Return `text` with every control, escape and bidi character shown instead of obeyed.

    C0 and DEL become their control pictures (␛); C1, bidi controls, other invisible format
    characters, private ones and lone surrogates become `\uXXXX`. A character newer than
    Python's tables is kept. More than four combining marks or joiners on one character are cut to
    `…`, and so is text past `limit` characters. Tabs become a space; newlines become ⏎ unless
    `keep_newlines`.
    """
    cut = limit is not None and len(text) > limit
    body = text[:limit] if cut else text
    if body.isascii():
        plain = body if body.isprintable() else body.translate(_ASCII[keep_newlines])
        return plain + "…" if cut else plain
    shown: list[str] = []
    marks = 0
    for char in body:
        if char in _KEPT_FORMAT or unicodedata.category(char) in _MARK_CATEGORIES:
            marks += 1
            if marks > _MARK_LIMIT:
                if marks == _MARK_LIMIT + 1:
                    shown.append("…")
                continue
        else:
            marks = 0
        shown.append(_picture(char, keep_newlines=keep_newlines))
    if cut:
        shown.append("…")
    return "".join(shown)


def _picture(char: str, *, keep_newlines: bool) -> str:
    if char in _PICTURES:
        return "\n" if char == "\n" and keep_newlines else _PICTURES[char]
    category, code = unicodedata.category(char), ord(char)
    is_unseen = category == "Cn" and (code & 0xFFFE == 0xFFFE or _is_never_seen(code))
    if (category in _ESCAPED_CATEGORIES and char not in _KEPT_FORMAT) or is_unseen:
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return char


def _is_never_seen(code: int) -> bool:
    """Whether an unassigned character is reserved to be invisible or a control.

    Any other may be an emoji or a letter newer than Python's tables.
    """
    return any(first <= code <= last for first, last in _NEVER_SEEN)
