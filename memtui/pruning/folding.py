"""A text as a model reads it, whatever dress its words are in.

Whoever hides words from a rule writes them in letters that look alike, with characters that nobody
sees, over several lines or under marks of Markdown; a model reads through all of that. Every step
takes time in proportion to the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_LOOK_ALIKE = """
    a ɑαаᎪᗅꓮ
    b ƅβбвьѣҍᏏᏴᑲᑳᖯᗷꓐꞵ𐌁
    c сҫᏟⲥꓚ𐌂𐐽
    d ðԁᎠᏧᑯᗞᗪꓒꓓ
    e εеҽҿᎬⴹꓰꬲ
    f ϝքᖴẝꓝꬵ
    g ƍᎶɡԍցᏀᏳꓖ
    h нћңһӈӊհᎻᏂᏲᕼⲏꓧꚕ
    i ıᏆɩιіᎥᵼꙇ
    j ϳјᎫᒍꓙ
    k κкқҟᏦⲕꓗ
    l ǀӏᏞᒪᣳⲓⳑⵏꓡꓲ𐌉𐑃
    m μϻмӎᎷᗰⲙꓟꭑ𐌑
    n ηոռⲛꓠ
    o ɵθοσоѳөօჿᎤᎾᏫᴑⲟⴱⵁⵔꓳꬽꬾ𐐬
    p ρрᏢᑭᣖⲣꓑ
    q ԛգզⵕ
    r гғᎡᎱᏒᖇᣴᴦⲅꓣꭇꭈ
    s ƽѕտᏕᏚᣵꓢ𐑈
    t τтҭᎢⲧꓔ𐌕
    u ʉυսᏌᑌꓴꞟ
    v νѵᏙᐯⴸꓦ
    w ɯѡԝաᎳᏔꓪꝡ
    x χхҳᕁᕽⲭⵝꓫꭓ𐌗
    y ɣγуүұყᎩᎽⲩꓬ
    z ζᏃᙆꓜ
"""
"""Small letters of other scripts behind the Latin letter that each, or its capital, looks like:
what Unicode lists as confusable (UTS #39) and neither a compatibility form nor a name tells."""
_MARK_ALIKE = [":", "∶꞉։׃ː፡", "'", "‘’ʼ´", '"', "“”„«»", "-", "−", "=", "꞊", ".", "․", "|", "∣│┃¦"]
_ALIKE = {
    ord(letter): plain
    for row in (_LOOK_ALIKE.split(), _MARK_ALIKE)
    for plain, letters in zip(row[::2], row[1::2], strict=True)
    for letter in letters
}
_CAPITALS = str.maketrans("ΝΗΥ", "nhy")
"""Greek capitals that look like other letters than their small forms do."""
_NAMED = re.compile(r"(?:LATIN|NEGATIVE|REGIONAL)\b.* (?:LETTER|CAPITAL) ([A-Z])(?: WITH .*)?")
"""Names of letters that are a Latin one in another form: small capitals, squares, with a stroke."""
_COMBINING = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
"""Marks on Latin, Greek and Cyrillic letters; in other scripts they are part of the word."""
_SELECTOR = "\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINING = "\u200c\u200d\u00ad\ufeff"
"""What joins letters and emoji, or stands where a line may break or a file begins."""
_HIDING = (
    "\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u070f\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000f0000-\U0010ffff"
)
"""Controls, characters of format and of private use, tags, and letters without a shape."""
_HIDDEN = re.compile(f"[{_HIDING}]|(?<=[{_SELECTOR}])[{_SELECTOR}]")
"""One selector chooses the form of the character before it; more of them hide a text."""
_UNSEEN = re.compile(f"[{_HIDING}{_JOINING}{_SELECTOR}\u034f]+")
_FOREIGN = re.compile("[^\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{1,64}")
"""Runs of characters that may have another form."""
_WORD = re.compile(r"\w+")
_MARKUP = str.maketrans(dict.fromkeys('*_`#>|~\\<()[]{}"', " "))
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|code|del|details|div|em|font|h[1-6]|hr|html|i|img"
    r"|ins|kbd|li|mark|ol|p|pre|q|s|section|small|span|strong|sub|summary|sup|table|tbody|td|th|thead"
    r"|tr|tt|u|ul|wbr)(?:[\s/][^<>]{0,500})?>|<!--[^<]{0,500}-->|\]\([^()\s]{0,500}\)",
    re.IGNORECASE,
)
"""Tags of HTML, its comments, and the ends of links: of all these a reader sees nothing."""
_IN_WORD = re.compile(r"(?<=[^\W_])[*_`~\\]{1,4}(?=[^\W_])")


def hidden_in(text: str) -> int:
    """Return how many characters a text has that a person does not see, but a model reads."""
    return len(_HIDDEN.findall(text))


def plain(text: str) -> str:
    """Return a text in small plain letters, one for all that look alike; marks and lines stay.

    Compatibility forms and entities of HTML are what they stand for, characters that nobody sees
    are left out, and every end of a line is a newline.
    """
    text = "\n".join(_UNSEEN.sub("", _unescaped(text)).splitlines())
    if text.isascii():
        return text.casefold()
    if any(chr(one) in text for one in _CAPITALS):
        text = _WORD.sub(_with_capitals, text)
    return _FOREIGN.sub(lambda run: alike(run[0]), text).casefold()


@lru_cache(maxsize=1 << 14)
def alike(word: str) -> str:
    """Return a word in small plain letters, one for all that look alike."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", word).casefold())
    return "".join(map(_alike, _COMBINING.sub("", folded)))


@lru_cache(maxsize=1 << 12)
def _alike(char: str) -> str:
    if char.isascii() or ord(char) in _ALIKE:
        return _ALIKE.get(ord(char), char)
    found = _NAMED.fullmatch(unicodedata.name(char, ""))
    return found[1].lower() if found else "-" if unicodedata.category(char) == "Pd" else char


def _with_capitals(word: re.Match[str]) -> str:
    is_latin = any(char.isascii() and char.isalpha() for char in word[0])
    return word[0].translate(_CAPITALS) if is_latin else word[0]


def spaced(text: str) -> str:
    """Return a text with each run of white space and marks of Markdown as one space."""
    return " ".join(text.translate(_MARKUP).split())


def spaced_plain(text: str) -> str:
    """Return a text in plain letters, with one space for white space and marks."""
    return without_tags(plain(text))


def without_tags(text: str) -> str:
    """Return what `spaced` does of a text without what HTML and links show nobody."""
    return spaced(_TAG.sub(" ", text)) if "<" in text or "](" in text else spaced(text)


def joined(text: str) -> str:
    """Return what `spaced` does of a text without marks and tags within its words."""
    return spaced(_IN_WORD.sub("", _TAG.sub("", text) if "<" in text else text))


def without_markup(text: str) -> str:
    """Return a text in its own letters, without markup and characters that nobody sees."""
    return without_tags(_UNSEEN.sub("", _unescaped(text)))


def _unescaped(text: str) -> str:
    if "&" not in text:
        return text
    from html import unescape

    return unescape(text)
