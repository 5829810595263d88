"""What a text says of a workspace: its paths, names, flags, commands, branches and commits.

Only what a text says is so now is looked up. A sentence about the past, a plan, an example or
another repository mentions nothing: a false alarm is worse than a missed one. `not_now.txt` and
`moments.txt` say which sentences these are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

_MOST_CHARACTERS = 20_000
_MOST_MENTIONS = 50
"""Longest text that is searched, and most mentions of one text."""


MentionKind = Literal["path", "name", "flag", "command", "branch", "commit"]
"""A name is a symbol, a constant, an environment variable or a package; a command a program and its
first words: `make lint`."""


@dataclass(frozen=True, slots=True)
class Mention:
    """One thing of a workspace, as a text writes it."""

    kind: MentionKind
    name: str
    is_plain: bool = False
    """A word as prose has them too: it counts only if the workspace defined or required it."""


_SENTENCES = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d+[.)])\s|\s|\|")
"""The start of a line that goes on with a list or table, or what is within it."""
_MOMENTS = "moments.txt"
_REPLACED = re.compile(
    r"\b(?:instead of|rather than)\s[^,;:()—]*|, (?:and )?not\s[^,;:()—]*|~~.*?~~", re.IGNORECASE
)
"""What a sentence names only to say what takes its place."""
_NOT_CODE = re.compile(
    r"(?msi)^[ \t]*(`{3}|~{3})(?:diff|patch|log|output|text|txt|traceback)\b.*?(?:^[ \t]*\1|\Z)"
    r"|^(?:diff --git|@@ -|--- a/).*?(?:^$|\Z)"
)
"""A block that is a difference, or that a program printed."""
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s`]+|\b[\w.-]{1,64}@[\w.-]+\b", re.IGNORECASE)
_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)(.{1,300}?)(?<!`)\1(?!`)")
_BARE = re.compile(r"[^\s`\"'(),;<>|]+")
_ENDING = (
    "adoc|bash|bat|c|cc|cfg|clj|conf|cpp|cs|css|csv|cue|dart|ex|exs|fish|go|gradle|graphql|h|hpp"
    "|hs|html|in|ini|ipynb|java|js|json|jsonl|jsx|kt|less|lock|lua|m|md|mdx|mjs|ml|mod|mpd|php|pl"
    "|proto|ps1|py|pyi|r|rb|rs|rst|sass|scala|scss|sh|sql|svelte|svg|swift|tcss|tf|toml|ts|tsx"
    "|txt|vue|xml|yaml|yml|zig|zsh"
)
_FILE = re.compile(rf"\.?[\w@+-][\w.@+-]*\.(?:{_ENDING})|\.[a-z][\w.-]+|[A-Z][a-z]+file")
_PATH = re.compile(r"(?:\./)?[\w.@+-]+(?:/[\w.@+-]+)*/?")
_LINE = re.compile(r":\d+(?:[-:]\d+)?$|#\w.*$")
_FLAG = re.compile(r"(--[a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?:[=\s].*)?")
_ENV = re.compile(r"_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_SNAKE = re.compile(r"_*[a-z][a-z0-9]*(?:_[a-z0-9]+)+|_[a-z][a-z0-9]{2,}")
_CAMEL = re.compile(
    r"_?[A-Z]+[a-z0-9]+(?:[A-Z]+[a-z0-9]*)+|_?[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z]{3,}[a-z]{3,}"
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_PACKAGE = re.compile(r"(?:@[\w-]+/)?[a-z][a-z0-9]+(?:[-_.][a-z0-9]+)*")
_CALL = re.compile(r"\(.*?\)$")
_MODULE = re.compile(r"[a-z_]\w*(?:\.[a-z_]\w*)+")
_BRANCH = re.compile(
    r"\bbranch(?:es)? (?:named |called )?`?([\w.-]+/[\w./-]+|(?<=`)[\w./-]+)"
    r"|`([\w./-]+)` branch\b|\b([\w.-]{1,99}/[\w./-]{1,99}) branch\b"
)
_COMMIT = re.compile(r"\b(?:commit|revision|sha)\s+`?([0-9a-f]{7,40})\b", re.IGNORECASE)
_PROGRAM = re.compile(r"[a-z][a-z0-9_.-]+(?: (?:-e )?[a-z][a-z0-9:_-]*)+")


def mentions(text: str) -> list[Mention]:
    """Return what a text says of a workspace, each once; at most 50 of them."""
    found: dict[Mention, None] = {}
    text = _NOT_CODE.sub("", text[:_MOST_CHARACTERS].replace("’", "'"))
    for sentence in _of_now(text):
        found |= dict.fromkeys(_in_sentence(_URL.sub(" ", _REPLACED.sub(" ", sentence))))
    return [*found][:_MOST_MENTIONS]


def _of_now(text: str) -> Iterator[str]:
    """Yield the sentences about the present; a heading or the line above a list speaks for all."""
    is_past_part = is_past_list = is_of_a_moment = is_row = False
    for line in text.splitlines():
        was_row, is_row, is_heading = is_row, line.startswith("|"), line.startswith("#")
        sentences = _SENTENCES.split(line)
        is_past = _is_past(sentences[-1])
        if is_heading:
            is_past_part = is_past
        if is_row > was_row or (line and not _ITEM.match(line)):
            is_past_list = is_past and (is_row or not line.rstrip().endswith((".", "!", "?")))
        is_moment = bool(_any_of(_MOMENTS).search(sentences[0]))
        is_of_a_moment = bool(line) and (is_moment or is_of_a_moment)
        if not (is_past_part or is_past_list or is_of_a_moment):
            yield from (one for one in sentences if not _is_past(one))
        is_of_a_moment &= not _ITEM.match(line)


def _is_past(sentence: str) -> bool:
    """Whether a sentence tells the past, a plan or a moment, or speaks of another program."""
    return any(_any_of(file).search(sentence) for file in ("not_now.txt", _MOMENTS))


@cache
def _any_of(file: str) -> re.Pattern[str]:
    """Return a pattern of the alternatives that a file lists, one a line."""
    lines = files("memtui.pruning").joinpath(file).read_text("utf-8").splitlines()
    return re.compile("|".join(one for one in lines if one[:2] not in {"", "# "}), re.IGNORECASE)


def _in_sentence(sentence: str) -> Iterator[Mention]:
    branches = {one for match in _BRANCH.findall(sentence) for one in match if one}
    commits = {*_COMMIT.findall(sentence)}
    yield from (Mention("branch", one.rstrip(".")) for one in branches)
    yield from (Mention("commit", one.lower()) for one in commits)
    for _, span in _SPAN.findall(sentence):
        if span not in branches | commits:
            yield from _in_code(span.strip())
    for word in _BARE.findall(_SPAN.sub(" ", sentence)):
        bare = word.rstrip(".:!?*_")
        if bare not in branches | commits:
            yield from _of_word(bare.lstrip("*"), is_code=False)


def _in_code(span: str) -> Iterator[Mention]:
    """Yield what text between backticks mentions: a command with its words, or one thing."""
    words = re.sub(r"(?<=\w)\([^()]*\)", "()", span).split()
    if (match := _PROGRAM.match(span)) is not None:
        yield Mention("command", match[0])
    for word in words:
        yield from _of_word(word.rstrip(":,"), is_code=len(words) == 1)


def _of_word(word: str, *, is_code: bool) -> Iterator[Mention]:
    word, *inner = _LINE.sub("", word).split("::")
    if is_code and word.startswith("@") and "/" in word and _PACKAGE.fullmatch(word):
        yield Mention("name", word, is_plain=True)
    if set(word) & set("*{}$\\<>…") or word.startswith(("~", "..", "@")) or "/../" in word:
        return
    for one in inner:  # `tests/test_a.py::TestRow::test_b`
        yield from _of_name(f"_.{one.partition('[')[0]}", is_code=False)
    if (flag := _FLAG.fullmatch(word)) is not None:
        yield Mention("flag", flag[1])
    elif "/" in word.strip("/") or (word.endswith("/") and len(word) > 2) or _FILE.fullmatch(word):
        if word.startswith("/") or _PATH.fullmatch(word):
            yield Mention("path", word.removeprefix("./"))
    else:
        yield from _of_name(word, is_code=is_code)


def _of_name(word: str, *, is_code: bool) -> Iterator[Mention]:
    """Yield the names of a dotted word, such as `session.get_option()`.

    An attribute may be another program's, so it counts only if the workspace defined it.
    """
    name, _, value = word.partition("=")
    is_call = bool(_CALL.search(name))
    *owners, last = _CALL.sub("", name).split(".")
    of_class = [one for one in owners if _CAMEL.fullmatch(one)]
    is_attribute = bool(owners) and not of_class
    for one in (*of_class, last):
        if any(form.fullmatch(one) for form in (_ENV, _SNAKE, _CAMEL)):
            yield Mention("name", one, is_plain=is_attribute)
        elif (is_call or (is_code and not is_attribute)) and not value and _WORD.fullmatch(one):
            yield Mention("name", one, is_plain=True)
    if is_attribute and _MODULE.fullmatch(name):
        yield Mention("path", name.replace(".", "/"))
    if is_code and not is_call and "-" in word and _PACKAGE.fullmatch(word):
        yield Mention("name", word, is_plain=True)
