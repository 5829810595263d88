"""Fold a text into plain letters, so that disguised words match a rule.

Words can be hidden from a rule by look-alike letters, invisible characters, line breaks or Markdown
marks, and a model reads them all the same. Every step takes linear time.
"""

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
"""Each Latin letter, then small letters of other scripts that it or its capital looks like: the
confusables of Unicode (UTS #39) that neither a compatibility form nor a name reveals."""
_MARK_ALIKE = [":", "∶꞉։׃ː፡", "'", "‘’ʼ´", '"', "“”„«»", "-", "−", "=", "꞊", ".", "․", "|", "∣│┃¦"]
_ALIKE = {
    ord(letter): plain
    for row in (_LOOK_ALIKE.split(), _MARK_ALIKE)
    for plain, letters in zip(row[::2], row[1::2], strict=True)
    for letter in letters
}
_CAPITALS = str.maketrans("ΝΗΥ", "nhy")
"""Greek capitals that look like other letters than their small forms."""
_NAMED = re.compile(r"(?:LATIN|NEGATIVE|REGIONAL)\b.* (?:LETTER|CAPITAL) ([A-Z])(?: WITH .*)?")
"""Unicode names of variants of Latin letters: small capitals, squares, with a stroke."""
_COMBINING = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
"""Marks on Latin, Greek and Cyrillic letters; in other scripts they are part of the word."""
_SELECTOR = "\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINING = "\u200c\u200d\u00ad\ufeff"
"""Invisible but legitimate: joiners, the soft hyphen and the byte order mark."""
_HIDING = (
    "\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u070f\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000f0000-\U0010ffff"
)
"""Controls, format and private-use characters, tags, and letters without a glyph."""
_MARK = "\u0300-\u036f"
_HIDDEN = re.compile(
    f"[{_HIDING}]|(?<=[{_SELECTOR}])[{_SELECTOR}]|(?<=[{_MARK}][{_MARK}][{_MARK}])[{_MARK}]"
)
"""One variation selector is normal after a character, and up to three marks are on a letter; more
in a row can hide a text."""
_UNSEEN = re.compile(f"[{_HIDING}{_JOINING}{_SELECTOR}\u034f]+")
_FOREIGN = re.compile("[^\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{1,64}")
"""Runs of characters that may have a plain form."""
_WORD = re.compile(r"\w+")
_MARKUP = str.maketrans(dict.fromkeys('*_`#>|~\\<()[]{}"', " "))
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|code|del|details|div|em|font|h[1-6]|hr|html|i|img"
    r"|ins|kbd|li|mark|ol|p|pre|q|s|section|small|span|strong|sub|summary|sup|table|tbody|td|th|thead"
    r"|tr|tt|u|ul|wbr)(?:[\s/][^<>]{0,500})?>|<!--[^<]{0,500}-->|\]\([^()\s]{0,500}\)",
    re.IGNORECASE,
)
"""HTML tags and comments, and link targets: invisible once rendered."""
_IN_WORD = re.compile(r"(?<=[^\W_])[*_`~\\]{1,4}(?=[^\W_])")


def hidden_in(text: str) -> int:
    """Count the characters that are invisible to a person and read by a model."""
    return len(_HIDDEN.findall(text))


def plain(text: str) -> str:
    """Return a text in lower-case plain letters; look-alikes become one letter, marks stay.

    Compatibility forms and HTML entities are replaced, invisible characters removed, and line ends
    become newlines.
    """
    text = "\n".join(_UNSEEN.sub("", _unescaped(text)).splitlines())
    if text.isascii():
        return text.casefold()
    if any(chr(one) in text for one in _CAPITALS):
        text = _WORD.sub(_with_capitals, text)
    return _FOREIGN.sub(lambda run: alike(run[0]), text).casefold()


@lru_cache(maxsize=1 << 14)
def alike(word: str) -> str:
    """Return a word in lower-case plain letters; look-alikes become one letter."""
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
    """Return a text with each run of white space and Markdown marks replaced by one space."""
    return " ".join(text.translate(_MARKUP).split())


def spaced_plain(text: str) -> str:
    """Return a text in plain letters, without tags, marks and repeated white space."""
    return without_tags(plain(text))


def without_tags(text: str) -> str:
    """Return `spaced` of a text without HTML tags, comments and link targets."""
    return spaced(_TAG.sub(" ", text)) if "<" in text or "](" in text else spaced(text)


def joined(text: str) -> str:
    """Return `spaced` of a text whose words are joined where marks or tags split them."""
    return spaced(_IN_WORD.sub("", _TAG.sub("", text) if "<" in text else text))


def without_markup(text: str) -> str:
    """Return a text with its letters unchanged, without markup and invisible characters."""
    return without_tags(_UNSEEN.sub("", _unescaped(text)))


def _unescaped(text: str) -> str:
    if "&" not in text:
        return text
    from html import unescape

    return unescape(text)
