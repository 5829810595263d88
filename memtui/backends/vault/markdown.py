"""Markdown files with YAML frontmatter, edited so that all other bytes stay unchanged.

Frontmatter is edited as text because PyYAML and python-frontmatter rewrite the whole block.
Wikilinks and inline tags follow Obsidian: code, comments and URLs have none. A line
`- relation [[Note]]` also gives the link's type, as in basic-memory.

Large metadata is one line of JSON, which is valid YAML, and is parsed as JSON: at the size that a
memory plugin accepts, YAML takes seconds.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from memtui.contract import Invalid, Json, Problem, distinct_tags, folded
from memtui.patterns import late_pattern
from memtui.provider_kit import is_nested_deeper

MAX_FRONT_CHARS = 64 * 1024
_MAX_DEPTH = 50
_MAX_NODES = 10_000
_OPEN = late_pattern(r"\ufeff?---[ \t]*(\r?\n)")
_CLOSE = late_pattern(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_NESTING = late_pattern(r"[\[{]|[-?] ")
_LARGE_CHARS = 4096
_LARGE = late_pattern(r"^metadata: (\{.{4096,}\})[ \t]*\r?$", re.MULTILINE)
_TOO_DEEP = Problem(message=f"The frontmatter is nested more than {_MAX_DEPTH} deep.")
_NO_METADATA = "metadata: {}"
_BARE_NEWLINE = late_pattern(r"(?<!\r)\n")
_PLAIN = late_pattern(r"[A-Za-z_][\w ./@+-]*(?<! )", re.ASCII)
_INTEGER = late_pattern(r"-?[1-9][0-9]{0,4000}|0")
_FLOAT = late_pattern(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_KEY_LINE = late_pattern(r"^([^\s#\-:\[\]{},][^:\r\n]*):(?=\s|\Z)", re.MULTILINE)
_BARE_WORD = late_pattern(r"[\w/.+][\w/.+-]*")
_OTHER_THAN_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
"""Words that YAML reads as values of another type."""
_TAG_CHARS = r"""[^\s!"#$%&'()*+,.:;<=>?@\[\\\]^`{|}~\u2000-\u206F\u2E00-\u2E7F]"""
_HINT = late_pattern(rf"#(?<!\S#){_TAG_CHARS}")
"""The start of a tag; a text without a match is not parsed further."""
_TAG = late_pattern(rf"#({_TAG_CHARS}+)")
_NEXT = late_pattern(r"`|~~~|<!--|%%|\[\[|#")
_LINK = late_pattern(r"\[\[([^\[\]|#\n]{0,500})(#[^\[\]|\n]{0,500})?(?:\|([^\[\]\n]{0,500}))?\]\]")
_TICKS = late_pattern(r"`+")
_BLANK_LINE = late_pattern(r"\n[ \t]*\n")
_MARGIN = late_pattern(r"(?:[ \t>]|[-*+][ \t])*")
_RELATION = late_pattern(r"[ \t]*[-*+][ \t]+([^\[\]`#\n]{1,60}?)[ \t]+")
_CONTEXT = late_pattern(r"[ \t]*(?:\([^\n]*\))?[ \t]*(?:\r?\n|\Z)")
_SPAN_CHARS = 2_000
_ATTACHMENT = late_pattern(
    r"\.(?:avif|bmp|gif|jpe?g|png|svg|webp|pdf|flac|m4a|mp3|ogg|wav|3gp|mkv|mov|mp4|ogv|webm"
    r"|canvas|base)$",
    re.IGNORECASE,
)


class _TooMany(Exception):
    """The frontmatter has more values than are plausible."""


@dataclass(frozen=True, slots=True)
class VaultDocument:
    """A markdown file in parts, which joined in order are exactly the file."""

    head: str
    """Byte order mark and opening fence."""
    front: str | None
    """The lines between the fences; None without frontmatter."""
    fence: str
    """The closing fence."""
    lead: str
    """The empty line after the frontmatter; not part of the text."""
    text: str
    trail: str
    """The last line's newline; not part of the text."""
    newline: str = "\n"

    def joined(self) -> str:
        """Return the file."""
        return f"{self.head}{self.front or ''}{self.fence}{self.lead}{self.text}{self.trail}"

    @property
    def first_text_line(self) -> int:
        """The line, counted from 1, on which the text begins."""
        before = f"{self.head}{self.front or ''}{self.fence}{self.lead}"
        return before.count("\n") + 1


def split(content: str) -> VaultDocument | Problem:
    """Split a file into its parts; a `Problem` for an opening fence that is never closed."""
    opening = _OPEN.match(content)
    if opening is None:
        bom = "\ufeff" if content.startswith("\ufeff") else ""
        first = content.find("\n")
        newline = "\r\n" if first > 0 and content[first - 1] == "\r" else "\n"
        return _with_body(VaultDocument(bom, None, "", "", "", "", newline), content[len(bom) :])
    closing = _CLOSE.search(content, opening.end())
    if closing is None:
        return Problem(message="The frontmatter is opened by --- but never closed.")
    document = VaultDocument(
        opening.group(),
        content[opening.end() : closing.start()],
        closing.group(),
        "",
        "",
        "",
        opening.group(1),
    )
    return _with_body(document, content[closing.end() :])


def _with_body(document: VaultDocument, body: str) -> VaultDocument:
    newline = document.newline
    lead = newline if document.front is not None and body.startswith(newline) else ""
    rest = body[len(lead) :]
    trail = newline if rest.endswith(newline) else ""
    return replace(document, lead=lead, text=rest[: len(rest) - len(trail)], trail=trail)


def read(content: str) -> tuple[VaultDocument, Json, str]:
    """Return a file's parts, its properties, and a message if those are partly unreadable.

    Unclosed frontmatter is text.
    """
    document = split(content)
    if isinstance(document, Problem):
        return _with_body(VaultDocument("", None, "", "", "", ""), content), {}, document.message
    fields = parse(document.front)
    if isinstance(fields, Problem):
        return document, salvaged(document.front), fields.message
    return document, fields, ""


def compose(fields: Json, text: str) -> str:
    """Return a new file with `fields` as frontmatter and `text` as its body."""
    front = "".join(f"{key}: {_flow(value)}\n" for key, value in fields.items())
    return f"---\n{front}---\n\n{text}\n"


def with_line_ends_of(document: VaultDocument, text: str) -> str:
    """Return `text` with CR LF line ends if all of the document's are CR LF."""
    if document.newline == "\n" or _BARE_NEWLINE.search(document.joined()):
        return text
    return _BARE_NEWLINE.sub(document.newline, text)


def with_text(document: VaultDocument, text: str) -> VaultDocument:
    """Return `document` with another text, only its body changed.

    Raises `Invalid` if reading the file again would give another text.
    """
    newline = document.newline
    changed = replace(document, text=text)
    if document.front is None and text.startswith(("---", "\ufeff")):
        changed = replace(changed, head=f"{document.head}---{newline}", front="")
        changed = replace(changed, fence=f"---{newline}")
    if changed.front is not None and (text.startswith(newline) or document.front is None):
        changed = replace(changed, lead=newline)
    if text.endswith(newline):
        changed = replace(changed, trail=newline)
    reread = split(changed.joined())
    if isinstance(reread, Problem) or reread.text != text:
        raise Invalid("The file cannot keep this text exactly; change its first or last line.")
    return changed


def parse(front: str | None) -> Json | Problem:
    """Read frontmatter as a mapping of JSON values and moments; a `Problem` if it is broken."""
    large = _LARGE.search(front or "")
    if front is None or large is None:
        return _from_yaml(front or "")
    rest = _from_yaml(f"{front[: large.start()]}{front[large.end() :]}")
    if isinstance(rest, Problem):
        return rest
    try:
        metadata = json.loads(large.group(1))
    except (ValueError, RecursionError):
        return Problem(message="The frontmatter's metadata is long and is not JSON.")
    if is_nested_deeper(metadata, _MAX_DEPTH):
        return _TOO_DEEP
    return rest | {"metadata": metadata}


def salvaged(front: str | None, *, nested: bool = True) -> Json:
    """Return the properties of frontmatter that `parse` refuses, each parsed separately.

    A value that is not YAML is returned as text.
    """
    found: Json = {}
    places = [*_KEY_LINE.finditer((front or "")[:MAX_FRONT_CHARS])]
    for place, after in itertools.zip_longest(places, places[1:]):
        end = after.start() if after else None
        read = _from_yaml(place.string[place.start() : end])
        if isinstance(read, Problem):
            value = place.string[place.end() : end]
            first, _, below = value.partition("\n")
            is_mapping = nested and not first.strip()
            inner = salvaged(textwrap.dedent(below), nested=False) if is_mapping else {}
            read = {place[1].strip(): inner or " ".join(value.split())}
        found |= read
    return found


def words(value: Any) -> tuple[str, ...]:
    """Return a field's words, from a list or from one line."""
    return texts(re.split(r"[,\s]+", value) if isinstance(value, str) else value)


def texts(value: Any) -> tuple[str, ...]:
    """Return a field's list of texts, or its one text."""
    given = value if isinstance(value, list) else [] if isinstance(value, dict) else [value]
    return tuple(as_written(one) for one in given if one is not None and one != "")


def as_written(value: Any) -> str:
    """Return a frontmatter value as text, a list or a mapping as JSON."""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat() if isinstance(value, date) else str(value)


def _from_yaml(front: str) -> Json | Problem:
    return _own(_read_yaml(front)) if front.strip() else {}


def _own(value: Any) -> Any:
    """Return a deep copy of a JSON value, since `_read_yaml` caches the original."""
    if isinstance(value, dict):
        return {key: _own(one) for key, one in value.items()}
    return [_own(one) for one in value] if isinstance(value, list) else value


@functools.lru_cache(maxsize=16)
def _read_yaml(front: str) -> Json | Problem:
    # A note is read several times while it is written, and PyYAML takes its time.
    if len(front) > MAX_FRONT_CHARS:
        return Problem(message="The frontmatter is longer than 64 KB.")
    import yaml

    loader = _loader()
    try:
        if len(_NESTING.findall(front)) > _MAX_DEPTH and _is_too_deep(front, loader):
            return _TOO_DEEP
        value = yaml.load(front, Loader=loader)  # noqa: S506  # both are safe loaders
        if isinstance(value, dict | None):
            budget = [_MAX_NODES]
            return {as_written(key): _plain(one, budget) for key, one in (value or {}).items()}
        wrong = "is not a list of `key: value` lines"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 2})" if mark else ""
        wrong = f"cannot be read: {getattr(error, 'problem', None) or 'it is not YAML'}{line}"
    except _TooMany:
        wrong = f"holds more than {_MAX_NODES} values"
    except (ValueError, TypeError, OverflowError) as error:
        wrong = f"holds a value that cannot be read: {error}"
    except (AttributeError, LookupError, RecursionError):
        # PyYAML raises these for a tag that does not fit its value, and for self-references.
        wrong = "holds a value that cannot be read"
    return Problem(message=f"The frontmatter {wrong}.")


@functools.cache
def _loader() -> Any:
    """Return a YAML loader that keeps words as written.

    YAML 1.1 reads 1.10 as 1.1, 010 as 8, 12:30 as 750 and No as false. Here a plain word gets
    another type only if that type's value would be written in the same way. Keys must be unique.
    """
    import yaml
    from yaml.constructor import ConstructorError

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class AsWritten(base):  # type: ignore[misc]  # a class that is found at run time
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is not yaml.ScalarNode:
                return super().resolve(kind, value, implicit)
            return f"tag:yaml.org,2002:{_type_of(value) if implicit[0] else 'str'}"

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
            seen = set[str]()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise ConstructorError(None, None, f"{key.value!r} is twice", key.start_mark)
                seen.add(key.value)
                key.tag = "tag:yaml.org,2002:str"
            return super().construct_mapping(node, deep)

    return AsWritten


def _type_of(word: str) -> str:
    if word in {"", "~", "null"}:
        return "null"
    if word in {"true", "false"}:
        return "bool"
    if _INTEGER.fullmatch(word):
        return "int"
    return "float" if _FLOAT.fullmatch(word) and repr(float(word)) == word else "str"


def _is_too_deep(front: str, loader: Any) -> bool:
    """Whether collections are nested so deeply that building them could crash the process."""
    import yaml

    depth = 0
    for event in yaml.parse(front, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            return True
    return False


def _plain(value: Any, budget: list[int]) -> Any:
    """Return a YAML value as JSON."""
    budget[0] -= 1
    if budget[0] < 0:
        raise _TooMany
    if isinstance(value, dict):
        return {as_written(key): _plain(item, budget) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item, budget) for item in value]
    if isinstance(value, date):  # in a file only by an explicit !!timestamp
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def with_fields(document: VaultDocument, fields: Json) -> VaultDocument:
    """Return `document` with frontmatter `fields` set, all other lines unchanged.

    Raises `Invalid` where a field cannot be changed without rewriting other lines.
    """
    if not fields:
        return document
    if document.front is None:
        newline = document.newline
        document = replace(
            document, head=f"{document.head}---{newline}", front="", fence=f"---{newline}",
            lead=newline,
        )  # fmt: skip
    before = parse(document.front)
    if isinstance(before, Problem):
        raise Invalid(f"{before.message} Fix the file by hand first.")
    front = document.front or ""
    large = _LARGE.search(front)
    if large:
        front = f"{front[: large.start()]}{_NO_METADATA}{front[large.end() :]}"
    for key, value in fields.items():
        front = _with_field(front, key, value, document.newline)
    if large and "metadata" not in fields:
        front = front.replace(_NO_METADATA, large.group(), 1)
    changed = replace(document, front=front)
    after = parse(front)
    said = {} if isinstance(after, Problem) else {key: after.get(key) for key in fields}
    wanted = {key: _read_back(value) for key, value in fields.items()}
    if (
        isinstance(after, Problem)
        or after | wanted != before | wanted
        or any(_comparable(said[key]) != _comparable(wanted[key]) for key in fields)
        or split(changed.joined()) != changed
    ):
        raise Invalid(
            f"The frontmatter is written in a way that {', '.join(fields)} cannot be changed"
            " line by line; edit the file by hand."
        )
    return changed


def _comparable(value: Any) -> Any:
    """Return a value in a comparable form, a list as words: an item 7 equals the word "7"."""
    return texts(value) if isinstance(value, list) else value


def _read_back(value: Any) -> Any:
    if isinstance(value, dict) and (large := _large_json(value)):
        return json.loads(large)
    return _plain(value, [_MAX_NODES])


def _with_field(front: str, key: str, value: Any, newline: str) -> str:
    """Return frontmatter with one value replaced in place, or a line added."""
    import yaml

    try:
        root = yaml.compose(front, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Invalid("The frontmatter is not plain YAML; edit the file by hand.") from error
    pairs = [pair for pair in root.value if pair[0].value == key] if root else []
    if not pairs:
        return f"{front}{key}: {_flow(value)}{newline}"
    name, node = pairs[-1]
    start, end = node.start_mark.index, _end(node)
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    is_list = isinstance(node, yaml.SequenceNode) and isinstance(value, list)
    if is_list and node.value and value and (not is_block or front[start] == "-"):
        return _with_items(front, node, value, newline)
    new = _flow(value)
    if isinstance(node, yaml.ScalarNode) and node.style is None and isinstance(value, list):
        bare = {one for one in words(node.value) if _BARE_WORD.fullmatch(one)}
        new = f"[{', '.join(one if one in bare else _flow(one) for one in value)}]"
    if is_block or getattr(node, "style", None) in {"|", ">"}:
        return f"{front[: name.end_mark.index]}: {new}{front[end:]}"
    space = "" if front[start - 1 : start].isspace() else " "
    return f"{front[:start]}{space}{new}{front[end:]}"


def _with_items(front: str, node: Any, wanted: Sequence[Any], newline: str) -> str:
    """Return frontmatter with a list's items replaced; text between remaining items stays."""
    is_block = not node.flow_style
    gap = f"{newline}{' ' * node.start_mark.column}- " if is_block else ", "
    spans: list[tuple[int, int]] = []
    for item in node.value:
        end = _end(item)
        if is_block:  # a comment after an item belongs to it
            line_end = re.compile(r"\r?\n|\Z").search(front, end)
            end = line_end.start() if line_end else end
        spans.append((item.start_mark.index, end))
    there = [_word_of(item) for item in node.value]
    written, last, place = front[: spans[0][0]], -1, 0
    for count, one in enumerate(wanted):
        found = there.index(one, place) if one in there[place:] else None
        if count:
            stays = found is not None and found == last + 1
            written += front[spans[last][1] : spans[last + 1][0]] if stays else gap
        written += _flow(one) if found is None else front[slice(*spans[found])]
        last = -2 if found is None else found
        place = place if found is None else found + 1
    return written + front[spans[-1][1] :]


def _word_of(node: Any) -> str | None:
    """Return a list item's word; None for an empty item or a collection."""
    is_word = isinstance(node.value, str) and _type_of(node.value) != "null"
    return node.value if is_word else None


def _end(node: Any) -> int:
    """The index after a node's last character; the mark of a block collection lies beyond it."""
    import yaml

    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end, text = int(node.end_mark.index), node.end_mark.buffer
    if getattr(node, "style", None) in {"|", ">"} and text is not None:
        while end > 0 and text[end - 1] in "\r\n":
            end -= 1
    return end


def _flow(value: Any) -> str:
    """Write a value as YAML on one line; a large object as JSON."""
    if isinstance(value, dict) and (large := _large_json(value)):
        return large
    # For the most common values, the same result as PyYAML's in a hundredth of the time.
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _OTHER_THAN_TEXT:
        return value
    if isinstance(value, datetime) and value.tzinfo is UTC:
        return value.isoformat()
    import yaml

    text = yaml.dump(
        value, Dumper=_dumper(), default_flow_style=True, allow_unicode=True, width=math.inf,
        sort_keys=False,
    )  # fmt: skip
    return str(text).removesuffix("...\n").rstrip("\n")


def _large_json(value: Json) -> str:
    """Return a large object as JSON; empty for a small one, and for one JSON cannot represent."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        return ""
    return text if len(text) > _LARGE_CHARS else ""


@functools.cache
def _dumper() -> Any:
    import yaml

    class OneLine(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the base class's signature
            return True

    def write_string(dumper: Any, value: str) -> Any:
        style = None if _PLAIN.fullmatch(value) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def write_moment(dumper: Any, value: datetime) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:timestamp", value.isoformat())

    def write_float(dumper: Any, value: float) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))

    OneLine.add_representer(str, write_string)
    OneLine.add_representer(float, write_float)
    OneLine.add_representer(datetime, write_moment)
    return OneLine


@dataclass(frozen=True, slots=True)
class Wikilink:
    """A link as written."""

    target: str
    """A note's name, title or path."""
    heading: str | None
    words: str | None
    """The display text."""
    line: int
    """Number of lines before it in the text."""
    relation: str | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """The inline tags and links of a text."""

    tags: tuple[str, ...] = ()
    links: tuple[Wikilink, ...] = ()

    def added_to(self, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tags stored beside a text, then its inline tags, each once."""
        return distinct_tags((*tags, *self.tags))


_NOTHING = Marks()


def marks_of(text: str) -> Marks:
    """Return the tags and links of a text, each tag once."""
    if "[[" not in text and _HINT.search(text) is None:
        return _NOTHING
    tags: dict[str, None] = {}
    links: list[Wikilink] = []
    line, counted, place = 0, 0, 0
    while found := _NEXT.search(text, place):
        start, sign = found.start(), found[0]
        place = found.end()
        if sign == "#":
            if (start == 0 or text[start - 1].isspace()) and (tag := _tag_at(text, start)):
                tags[tag] = None
        elif sign == "[[":
            match = _LINK.match(text, start)
            if match and text[start - 1 : start] != "\\" and (link := _link(text, match)):
                line, counted = line + text.count("\n", counted, start), start
                links.append(Wikilink(*link, line, _relation(text, match)))
            place = match.end() if match else place
        else:
            place = _end_of_block(text, start, sign)
    return Marks(tuple(tags), tuple(links))


def tags_beside(
    text: str, wanted: Sequence[str], kept: Collection[str], *, stays: bool
) -> tuple[str, ...]:
    """Return the wanted tags to store beside a text, since they are not inline in it.

    `kept` are those stored there now.

    Raises:
        Invalid: the text `stays` and has an inline tag that is not wanted.
    """
    inline = marks_of(text).tags
    asked, there = set(map(folded, wanted)), set(map(folded, kept))
    for tag in inline if stays else ():
        if folded(tag) not in asked:
            raise Invalid(f"The tag #{tag} is in the record's text; remove it there.")
    beside = there.union(asked.difference(map(folded, inline)))
    return tuple(tag for tag in wanted if folded(tag) in beside)


def _tag_at(text: str, start: int) -> str | None:
    """Return the tag at a `#`; None for a number, which is an issue's."""
    match = _TAG.match(text, start)
    tag = match[1].strip("/") if match else ""
    return tag if any(not (char.isdecimal() or char == "/") for char in tag) else None


def _link(text: str, match: re.Match[str]) -> tuple[str, str | None, str | None] | None:
    target, heading, words = match.groups(default="")
    target = target.removesuffix("\\").strip()  # a table escapes the pipe
    is_embed = text[match.start() - 1 : match.start()] == "!"
    if not target or (is_embed and words.isdecimal()) or _ATTACHMENT.search(target):
        return None
    return target, heading.lstrip("#").strip() or None, words.strip() or None


def _relation(text: str, match: re.Match[str]) -> str | None:
    begin = text.rfind("\n", 0, match.start()) + 1
    before = _RELATION.fullmatch(text, begin, match.start())
    return before[1] if before and _CONTEXT.match(text, match.end()) else None


def _end_of_block(text: str, start: int, sign: str) -> int:
    """Return the end of the code or comment at a sign; without one, the end of the sign."""
    if sign in {"<!--", "%%"}:
        closing = "-->" if sign == "<!--" else "%%"
        end = text.find(closing, start + len(sign))
        if end >= 0:
            return end + len(closing)
        return len(text) if sign == "<!--" else start + len(sign)
    run = _TICKS.match(text, start)
    marks = run[0] if run else "~~~"
    margin = text[text.rfind("\n", 0, start) + 1 : start]
    if len(marks) >= 3 and _MARGIN.fullmatch(margin):
        closing_line = re.compile(rf"^[ \t>]*{marks}+[ \t\r]*$", re.MULTILINE)
        closed = closing_line.search(text, start + len(marks))
        return closed.end() if closed else len(text)
    if run is None:
        return start + len(sign)
    paragraph = _BLANK_LINE.search(text, run.end(), run.end() + _SPAN_CHARS)
    most = paragraph.start() if paragraph else run.end() + _SPAN_CHARS
    for other in _TICKS.finditer(text, run.end(), most):
        if len(other[0]) == len(marks):
            return other.end()
    return run.end()


def link_name(target: str) -> str:
    """Return the folded name of a link's target or a note's path, without `.md`."""
    path = target.replace("\\", "/").rstrip("/")
    return folded(path[:-3] if path[-3:].lower() == ".md" else path)
