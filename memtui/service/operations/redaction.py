"""Redact secrets in texts that go to a provider or to the log (seed 001, SAFE-T1201).

A secret is recognised by its shape, such as a vendor's token, or by the name before it, as in
`API_KEY=…`, `"password": "…"`, `**Token:** …` or `--password …`.

The shapes of several vendors' tokens are those of detect-secrets, which is imported only when a
text contains a sign of one. Its guesses by entropy are not used, because they match ordinary words.
Each shape begins only at the start of a word, and has no unbounded repetition inside another one,
so that the time is linear in the length of a text.
"""

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memtui.patterns import late_pattern


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of secret that is recognised by its shape."""

    label: str
    signs: tuple[str, ...]
    """In lower case; a text without any of them has no such secret, so `pattern` is not tried."""
    pattern: str = ""
    """Matches the secret; only the group `secret` is redacted, if the pattern has one."""
    detector: str = ""
    """A module of detect-secrets, whose patterns are used instead of `pattern`."""


def _read_table() -> tuple[tuple[Shape, ...], dict[str, str]]:
    """Return the shapes and the named expressions of `secrets.txt`, whose head describes it."""
    shapes: list[Shape] = []
    named: dict[str, str] = {}
    text = Path(__file__).with_name("secrets.txt").read_text("utf-8")
    for paragraph in text.split("\n\n")[1:]:
        head, *lines = (line for line in paragraph.splitlines() if not line.startswith("# "))
        label, how, *words = head.split()
        signs = [word.replace("␣", " ") for word in words]
        body = re.sub(r"\{([A-Z_]+)\}", lambda name: named[name[1]], "".join(lines))
        if how == "begins":
            body = rf"{named['START']}(?:{'|'.join(map(re.escape, signs))}){body}"
        lowered = tuple(map(str.lower, signs))
        if how == "is":
            named[label] = body
        elif how == "detected":
            shapes.append(Shape(label, lowered, detector=body))
        else:
            shapes.append(Shape(label, lowered, body))
    return tuple(shapes), named


SHAPES, _EXPRESSIONS = _read_table()
SIGNLESS = late_pattern(_EXPRESSIONS["SIGNLESS"])
_NAMED = late_pattern(_EXPRESSIONS["NAMED"])
_FLAG = late_pattern(_EXPRESSIONS["FLAG"])
_ELEMENT = late_pattern(_EXPRESSIONS["ELEMENT"])
_PAIR = late_pattern(_EXPRESSIONS["PAIR"])
_MORE = late_pattern(f"{_EXPRESSIONS['RUN']}*")
_NAMED_MEMBER = late_pattern(_EXPRESSIONS["NAMED_MEMBER"])
_ABOUT = late_pattern(_EXPRESSIONS["ABOUT"])
_LITERAL = late_pattern(_EXPRESSIONS["LITERAL"])
_REFERENCE = late_pattern(_EXPRESSIONS["REFERENCE"])
_NAMES_ONE = late_pattern(_EXPRESSIONS["NAMES_ONE"])
_BEFORE_PASS = late_pattern(_EXPRESSIONS["BEFORE_PASS"])


def shapes_in(folded: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the labels and patterns of the shapes that a text in lower case may contain."""
    for position, shape in enumerate(SHAPES):
        if any(map(folded.__contains__, shape.signs)):
            for pattern in _patterns(position):
                yield shape.label, pattern
    yield "TOKEN", SIGNLESS


@cache
def _patterns(position: int) -> tuple[re.Pattern[str], ...]:
    shape = SHAPES[position]
    if not shape.detector:
        return (re.compile(shape.pattern),)
    module = importlib.import_module(f"detect_secrets.plugins.{shape.detector}")
    from detect_secrets.plugins.base import RegexBasedDetector

    own = [
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, RegexBasedDetector)
        and one.__module__ == module.__name__
    ]
    # Extended to the end of the word: a pattern may match only the begin of a longer token.
    return tuple(
        re.compile(rf"{_EXPRESSIONS['START']}(?:{pattern.pattern})[\w\-/+=.]*", pattern.flags)
        for detector in own
        for pattern in detector().denylist
    )


_KEYS = ("api", "access", "private", "account", "signing", "encryption", "master", "auth", "shared")
_NAME_SIGNS = (
    *(f"{kind}{between}key" for kind in _KEYS for between in ("", "_", "-", " ")),
    "token", "secret", "pass", "pwd", "pw", "credential", "kennwort", "contrase", "psk",
)  # fmt: skip
_SIGNS = (*dict.fromkeys(sign for shape in SHAPES for sign in shape.signs), *_NAME_SIGNS)
_SECRET_ENDINGS = frozenset({"", "S", "KEY", "ACCESSKEY", "KEYBASE", "VALUE"})
_LABELS = {"APIKEY": "API_KEY", "TOKEN": "TOKEN", "SECRET": "SECRET", "CREDENTIAL": "SECRET"}
_QUOTES = "\\\"'`"
_TAKEN_OUT = late_pattern(r"\[REDACTED:[A-Z_]+\]")
_VALUE_MEMBERS = ("value", "default", "plaintext")
"""Members that contain the value of a setting, in an object named like a secret."""

_OPTION = late_pattern(r"--?[A-Za-z][\w\-]{0,60}")
_HEADER = late_pattern(r"(?i)(?:proxy-)?authorization|(?:set-)?cookie")
_LABEL_BEGUN = late_pattern(r"\[REDACTED:[A-Z_]*\Z")
_SECRET_NAME = late_pattern(r"[A-Z][A-Z0-9_]{0,62}")
_VARIABLE = late_pattern(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def redact(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with each secret replaced by `[REDACTED:LABEL]`, and the labels found."""
    folded = suspicious(text)
    if folded is None:
        return text, ()
    labels: list[str] = []
    for label, pattern in shapes_in(folded):
        text = _take_out(text, pattern, label, labels)
    if any(map(folded.__contains__, _NAME_SIGNS)):
        for pattern in (_ELEMENT, _PAIR, _FLAG):
            text = _take_out_named(text, pattern, labels)
        text = _take_out_named(text, _NAMED, labels)
    return text, tuple(labels)


def suspicious(text: str) -> str | None:
    """Return the folded text if it may contain a secret, else None; ten times as fast as `redact`.

    The text may be the JSON or the `repr` of a value: where this is None, `redact_json` finds
    nothing in the value either.
    """
    folded = text.casefold()
    # Patterns that ignore case match `\u0131` and `\u0130` as an i; folding leaves more than that.
    if not folded.isascii():
        folded = folded.replace("\u0131", "i").replace("\u0307", "")
    has_sign = any(map(folded.__contains__, _SIGNS)) or SIGNLESS.search(text)
    return folded if has_sign else None


def _take_out(text: str, pattern: re.Pattern[str], label: str, labels: list[str]) -> str:
    """Replace each match of a shape, or of its group `secret`."""
    group = "secret" if "secret" in pattern.groupindex else 0

    def replaced(match: re.Match[str]) -> str:
        if "[REDACTED:" in match[group]:
            return match[0]
        labels.append(label)
        whole, (start, end) = match[0], match.span(group)
        before, after = whole[: start - match.start()], whole[end - match.start() :]
        return f"{before}[REDACTED:{label}]{after}"

    return pattern.sub(replaced, text)


def _take_out_named(text: str, pattern: re.Pattern[str], labels: list[str]) -> str:
    """Replace the values after secrets' names that are secrets.

    A value that is not one may contain another name, as in `secrets: token: …`, so the search
    continues inside it.
    """
    parts: list[str] = []
    done = position = 0
    while match := pattern.search(text, position):
        value = match[match.lastindex or 0]
        start, end = match.span(match.lastindex or 0)
        bare = value.strip(_QUOTES + "*_") if pattern is _NAMED else value.strip(_QUOTES)
        if not _is_named_secret(text, pattern, match, bare):
            position = start
            continue
        if value[0] not in _QUOTES and (more := _MORE.match(text, end)) and pattern is not _ELEMENT:
            end = more.end()
            bare = text[start:end].rstrip("*_") if pattern is _NAMED else text[start:end]
        label = _label(match[1])
        labels.append(label)
        before, _, after = text[start:end].partition(bare)
        parts += [text[done:start], before, f"[REDACTED:{label}]", after]
        done = position = end
    return "".join((*parts, text[done:])) if parts else text


def _is_named_secret(text: str, pattern: re.Pattern[str], match: re.Match[str], bare: str) -> bool:
    keyword, ending = match[1], match[2]
    start, value = match.start(match.lastindex or 0), match[match.lastindex or 0]
    is_read = _REFERENCE.match(text[start : start + 200].lstrip(_QUOTES))
    is_label = _LABEL_BEGUN.search(text, max(0, match.start() - 40), match.start())
    if not bare or _TAKEN_OUT.match(bare) or is_read or is_label:
        return False
    quoted = value[0] in _QUOTES
    sure = True
    if pattern is _FLAG:
        sure = quoted or not re.fullmatch(r"[a-z\-]+[.,]?", bare)
    elif pattern is _NAMED:
        assigned, separator = "=" in match[4], match[4].strip().lower()
        is_name = quoted and "_" in bare and _NAMES_ONE.fullmatch(bare)
        if is_name or not (quoted or _may_be_bare(text, match, bare, assigned=assigned)):
            return False
        sure = assigned or keyword.isupper() or (quoted and ('"' in match[3] or "'" in match[3]))
        if not assigned and not separator.endswith(":"):
            # Without a colon or an equals sign, name and value may be words of a sentence.
            least = 6 if separator in ("is", "was", "|") else 8
            sure = quoted and keyword.isupper()
            if not sure and len(bare) < (least if _label(keyword) == "PASSWORD" else 16):
                return False
    return _is_secret(keyword, ending, bare, sure=sure)


def _may_be_bare(text: str, match: re.Match[str], value: str, *, assigned: bool) -> bool:
    """Whether a value without quotes may be a secret, rather than a word of prose or code."""
    keyword = match[1]
    if keyword.upper() == "PASS" and not (keyword.isupper() and assigned):
        before = text[max(0, match.start() - 80) : match.start()]
        if not _BEFORE_PASS.search(before):
            return False
    if not assigned and re.match(r"\w{1,40}[=:](?!=|$)", value):
        return False  # `the tokens: input=5`
    short = len(value) < 6 and not _is_mixed(value)
    if short and not (assigned and _label(keyword) == "PASSWORD"):
        return False
    return keyword.isupper() or not _NAMES_ONE.fullmatch(value.rstrip(")."))


def _label(keyword: str) -> str:
    name = re.sub(r"[_\- ]", "", keyword).upper()
    return _LABELS.get(name, "KEY" if name.endswith("KEY") else "PASSWORD")


def _is_mixed(value: str) -> bool:
    return any(map(str.isalpha, value)) and any(map(str.isdigit, value))


def _is_secret(keyword: str, ending: str, value: str, *, sure: bool) -> bool:
    """Whether the value after a secret's name is a secret; `sure`: it is not prose.

    `API_KEY=abc…` is one; `token: budget`, `max_tokens=200000`, `tokenizer=cl100k_base`,
    `secret_name: db-creds-1` and `token_env=MEM0_TOKEN` are not.
    """
    label = _label(keyword)
    if label == "TOKEN" and re.fullmatch(r"[\d.,_]+[a-zA-Z%]{0,2}[).,]?", value):
        return False
    if _LITERAL.fullmatch(value.rstrip(").,")) or (
        keyword.upper() == "PWD" and value.startswith(("/", "~", "$"))
    ):
        return False
    words = [word for word in re.split(r"[_\-]|\d+$", ending.upper()) if word]
    if ending[:1] in ("_", "-") and words and _ABOUT.fullmatch(words[-1]):
        return False
    if "".join(words) not in _SECRET_ENDINGS:
        separated = ending[0] in "_-"
        return separated and _is_mixed(value) and len(value) >= 8 and not _VARIABLE.fullmatch(value)
    return sure or _is_mixed(value)


def redact_json(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Redact every string inside a JSON value, keys included."""
    return (_plain(value), ()) if suspicious(repr(value)) is None else _redact_inside(value)


def _plain(value: Any) -> Any:
    """Return a value with the types of parsed JSON: objects with text keys, and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value


def _redact_inside(value: Any) -> tuple[Any, tuple[str, ...]]:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        kept: dict[str, Any] = {}
        keys, found = _redact_keys(value)
        # Environment variables and headers are often listed as {"name": …, "value": …}.
        named = value.get("name", value.get("key"))
        for clean_key, (key, inner) in zip(keys, value.items(), strict=True):
            name = str(named) if key == "value" and isinstance(named, str) else clean_key
            kept[clean_key], labels = _redact_member(name, inner)
            found.extend(labels)
        return kept, tuple(found)
    if isinstance(value, list | tuple):
        # The value of a command-line option is the next item, as in ["--token", "…"].
        names = ["", *value[:-1]]
        parts = [
            _redact_member(name.lstrip("-"), inner)
            if isinstance(name, str) and _OPTION.fullmatch(name)
            else _redact_inside(inner)
            for name, inner in zip(names, value, strict=False)
        ]
        return [part for part, _ in parts], tuple(label for _, found in parts for label in found)
    return value, ()


def _redact_keys(value: Mapping[Any, Any]) -> tuple[list[str], list[str]]:
    """Return an object's keys with secrets redacted, and the labels found.

    Redacted keys that would be equal are numbered, from the second on.
    """
    keys: list[str] = []
    found: list[str] = []
    cleaned = [(key, *redact(key)) for key in map(str, value)]
    taken = {key for key, clean, _ in cleaned if key == clean}
    numbers: Counter[str] = Counter()
    for key, clean, labels in cleaned:
        name = clean
        while key != clean and name in taken:
            numbers[clean] += 1
            name = f"{clean} {numbers[clean] + 1}"
        taken.add(name)
        keys.append(name)
        found.extend(labels)
    return keys, found


def _redact_member(key: str, value: Any) -> tuple[Any, tuple[str, ...]]:
    """Redact a member of an object; its key counts as a name, like NAME in `NAME=value`."""
    if isinstance(value, str) and _HEADER.fullmatch(key):
        clean, labels = redact(f"{key}: {value}")
        return clean.removeprefix(f"{key}: "), labels
    name = _NAMED_MEMBER.fullmatch(key)
    if name is None:
        return _redact_inside(value)
    if isinstance(value, list | tuple):
        parts = [_redact_member(key, inner) for inner in value]
        return [part for part, _ in parts], tuple(label for _, found in parts for label in found)
    if isinstance(value, Mapping):
        own = [key if one in _VALUE_MEMBERS else one for one in map(str, value)]
        members = [*map(_redact_member, own, value.values())]
        keys, found = _redact_keys(value)
        kept = dict(zip(keys, (inner for inner, _ in members), strict=True))
        return kept, (*found, *(label for _, labels in members for label in labels))
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    text = str(value)
    spared = not plain or len(text) < 4 or _TAKEN_OUT.fullmatch(text) or _REFERENCE.fullmatch(text)
    if spared or not _is_secret(name[1], name[2], text, sure=True):
        return _redact_inside(value)
    return f"[REDACTED:{_label(name[1])}]", (_label(name[1]),)


def redact_config(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Redact a config, except the names of secrets in its keys that end in `_secret`."""
    names = {
        key: value
        for key, value in config.items()
        if key.endswith("_secret") and _SECRET_NAME.fullmatch(str(value)) and not redact(value)[1]
    }
    clean, labels = redact_json({key: config[key] for key in config if key not in names})
    return {**clean, **names}, labels
