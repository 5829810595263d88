"""Wikilinks and inline tags of a note, as Obsidian reads them, and where a link leads.

In code, comments and URLs there are none. A link names a file by its name or the end of its path;
of several files with one name it means one of the folder that it is written in, else the one with
the shortest path. Where no file has the name, a title or an alias has. A line `- relation [[Note]]`
also says what sort of link it is, as basic-memory writes it.
"""

from __future__ import annotations

import json
import posixpath
import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memtui.contract import OWNER_FIELDS, Invalid, Link, Links, Scope
from memtui.provider_kit import MOST_BACKLINKS

from .files import Folder
from .layout import Area, StoredRecord, handle_of, sees

SCHEMA = """
CREATE TABLE names (
  id TEXT NOT NULL, name TEXT NOT NULL, whole TEXT NOT NULL, rank INTEGER NOT NULL
);
CREATE INDEX names_id ON names (id);
CREATE INDEX names_name ON names (name);
CREATE TABLE links (
  id TEXT NOT NULL, path TEXT NOT NULL, line INTEGER NOT NULL, name TEXT NOT NULL,
  target TEXT NOT NULL, heading TEXT, words TEXT, relation TEXT
);
CREATE INDEX links_id ON links (id);
CREATE INDEX links_name ON links (name);
"""
"""`names`: what a note can be linked by, and `links`: what is written; `name` is the last part of
either, folded, by which they are joined."""

_TAG_CHARS = r"""[^\s!"#$%&'()*+,.:;<=>?@\[\\\]^`{|}~\u2000-\u206F\u2E00-\u2E7F]"""
_HINT = re.compile(rf"#(?<!\S#){_TAG_CHARS}")
"""What begins each tag; most texts have none, and are not looked at further."""
_TAG = re.compile(rf"#({_TAG_CHARS}+)")
_NEXT = re.compile(r"`|~~~|<!--|%%|\[\[|#")
_LINK = re.compile(r"\[\[([^\[\]|#\n]{0,500})(#[^\[\]|\n]{0,500})?(?:\|([^\[\]\n]{0,500}))?\]\]")
_TICKS = re.compile(r"`+")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_MARGIN = re.compile(r"(?:[ \t>]|[-*+][ \t])*")
_RELATION = re.compile(r"[ \t]*[-*+][ \t]+([^\[\]`#\n]{1,60}?)[ \t]+")
_CONTEXT = re.compile(r"[ \t]*(?:\([^\n]*\))?[ \t]*(?:\r?\n|\Z)")
_SPAN_CHARS = 2_000
_ATTACHMENT = re.compile(
    r"\.(?:avif|bmp|gif|jpe?g|png|svg|webp|pdf|flac|m4a|mp3|ogg|wav|3gp|mkv|mov|mp4|ogv|webm"
    r"|canvas|base)$",
    re.IGNORECASE,
)
_FILE, _TITLE, _ALIAS = range(3)


@dataclass(frozen=True, slots=True)
class Wikilink:
    """A link as it is written."""

    target: str
    """A note's name, title or path."""
    heading: str | None
    words: str | None
    """What is shown instead of the target."""
    line: int
    """Lines before it in the text."""
    relation: str | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """What a text says besides its words."""

    tags: tuple[str, ...] = ()
    links: tuple[Wikilink, ...] = ()

    def added_to(self, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tags that are kept beside a text, and after them those that it says."""
        return (*tags, *(tag for tag in self.tags if tag not in tags))


_NOTHING = Marks()


def read(text: str) -> Marks:
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
    """Return which of a record's wanted tags are to be kept beside its text, which says the others.

    `kept` are those that are kept there by now.

    Raises:
        Invalid: the text, which `stays`, says a tag that is not wanted.
    """
    inline = read(text).tags
    for tag in inline if stays else ():
        if tag not in wanted:
            raise Invalid(f"The tag #{tag} stands in the record's text; take it out there.")
    return tuple(tag for tag in wanted if tag in kept or tag not in inline)


def _tag_at(text: str, start: int) -> str | None:
    """Return the tag that begins at a `#`; a number is none, as it is an issue's."""
    match = _TAG.match(text, start)
    tag = match[1].strip("/") if match else ""
    return tag if any(not (char.isdecimal() or char == "/") for char in tag) else None


def _link(text: str, match: re.Match[str]) -> tuple[str, str | None, str | None] | None:
    target, heading, words = match.groups(default="")
    target = target.removesuffix("\\").strip()  # in a table, the pipe is escaped
    is_embed = text[match.start() - 1 : match.start()] == "!"
    if not target or (is_embed and words.isdecimal()) or _ATTACHMENT.search(target):
        return None
    return target, heading.lstrip("#").strip() or None, words.strip() or None


def _relation(text: str, match: re.Match[str]) -> str | None:
    begin = text.rfind("\n", 0, match.start()) + 1
    before = _RELATION.fullmatch(text, begin, match.start())
    return before[1] if before and _CONTEXT.match(text, match.end()) else None


def _end_of_block(text: str, start: int, sign: str) -> int:
    """Return where the code or comment ends that begins with a sign; what is none is passed by."""
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


def folded(name: str) -> str:
    """Return a name as names are compared: whatever its case and its Unicode form."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", name).casefold()


def _without_suffix(path: str) -> str:
    return path[:-3] if path[-3:].lower() == ".md" else path


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def put(
    connection: sqlite3.Connection,
    stored: Iterable[tuple[str, StoredRecord]],
) -> None:
    """Keep what records link to, each given with its file, and what notes can be linked by.

    What was there of the files is gone already: see `drop`.
    """
    names: list[tuple[str, str, str, int]] = []
    links: list[tuple[str | int | None, ...]] = []
    for path, one in stored:
        if one.id == path:
            names += _names_of(path, one.record.title, one.aliases)
        first = one.record.location.line if one.record.location else 1
        links += [
            (
                one.id,
                path,
                first + link.line,
                _last(_name(link.target)),
                link.target,
                link.heading,
                link.words,
                link.relation,
            )
            for link in one.links
        ]
    connection.executemany("INSERT INTO names VALUES (?, ?, ?, ?)", names)
    if links:
        connection.executemany("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)", links)


def _names_of(
    path: str, title: str | None, aliases: Sequence[str]
) -> Iterator[tuple[str, str, str, int]]:
    whole = folded(_without_suffix(path))
    last = _last(whole)
    yield path, last, whole, _FILE
    for rank, words in ((_TITLE, title), *((_ALIAS, alias) for alias in aliases)):
        if words and (name := folded(words)) != last:
            yield path, _last(name), name, rank


def drop(connection: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Forget what these records link to, and what they can be linked by."""
    for one in ids:
        connection.execute("DELETE FROM names WHERE id = ?", (one,))
        connection.execute("DELETE FROM links WHERE id = ?", (one,))


def _name(target: str) -> str:
    return folded(_without_suffix(target.replace("\\", "/").rstrip("/")))


def links_of(
    connection: sqlite3.Connection,
    folder: Folder,
    ids: Collection[str],
    scope: Scope,
    now: int | None,
) -> dict[str, Links]:
    """Return what these records link to, and what links to them, as far as `scope` sees it.

    `now` is in microseconds since 1970. A link to what is not seen leads nowhere.
    """
    going = _chosen(connection, "SELECT * FROM links WHERE id IN ({}) ORDER BY rowid", ids)
    own_names = _chosen(connection, "SELECT DISTINCT name FROM names WHERE id IN ({})", ids)
    linking = "SELECT * FROM links WHERE name = ? LIMIT ?"
    coming: list[sqlite3.Row] = []
    hubs = set()
    for row in own_names:
        found = connection.execute(linking, (row["name"], MOST_BACKLINKS + 1)).fetchall()
        coming += found[:MOST_BACKLINKS]
        hubs |= {row["name"]} if len(found) > MOST_BACKLINKS else set()
    candidates: dict[str, list[sqlite3.Row]] = defaultdict(list)
    wanted = {row["name"] for row in (*going, *coming)}
    for row in _chosen(connection, "SELECT * FROM names WHERE name IN ({})", wanted):
        candidates[row["name"]].append(row)
    leads = {
        (row["path"], row["target"]): _led_to(row["path"], row["target"], candidates[row["name"]])
        for row in (*going, *coming)
    }
    ends = _ends(connection, folder, {*leads.values(), *(row["id"] for row in coming)}, scope, now)
    links: dict[str, list[Link]] = defaultdict(list)
    backlinks: dict[str, list[Link]] = defaultdict(list)
    for row in going:
        to = leads[row["path"], row["target"]]
        if to != row["id"]:
            links[row["id"]].append(_link_of(row, ends.get(to or ""), folder))
    for row in sorted(coming, key=lambda row: (row["path"], row["line"])):
        to = leads[row["path"], row["target"]]
        if to is not None and to in ids and to != row["id"] and (end := ends.get(row["id"])):
            backlinks[to].append(_link_of(row, end, folder))
    crowded = {
        row["id"] for row in _chosen(connection, "SELECT * FROM names WHERE name IN ({})", hubs)
    }
    return {
        one: Links(
            links=tuple(links[one]),
            backlinks=tuple(backlinks[one]),
            backlinks_capped=one in crowded,
        )
        for one in ids
        if one in links or one in backlinks
    }


class _End(NamedTuple):
    """The record at one end of a link."""

    id: str
    title: str
    scope: Scope


def _chosen(
    connection: sqlite3.Connection, query: str, values: Collection[str]
) -> list[sqlite3.Row]:
    """Return the rows of a query of which `{}` stands for the values."""
    chosen = query.format("SELECT value FROM json_each(?)")
    return connection.execute(chosen, [json.dumps(list(values))]).fetchall()


def _ends(
    connection: sqlite3.Connection,
    folder: Folder,
    ids: Collection[str | None],
    scope: Scope,
    now: int | None,
) -> dict[str, _End]:
    """Return those of the records that a scope sees."""
    rows = _chosen(
        connection,
        "SELECT id, area, project_id, agent_id, subject_id,"
        " COALESCE(title, substr(text, 1, 200)) AS title, expires"
        " FROM records WHERE id IN ({}) AND is_current",
        [one for one in ids if one],
    )
    found: dict[str, _End] = {}
    for row in rows:
        owner = Scope(
            company_id=folder.company_id,
            **{name: row[name] for name in OWNER_FIELDS},
        )
        is_there = row["expires"] is None or now is None or row["expires"] > now
        if is_there and sees(scope, Area(row["area"]), owner):
            found[row["id"]] = _End(row["id"], row["title"].partition("\n")[0], owner)
    return found


def _link_of(row: sqlite3.Row, end: _End | None, folder: Folder) -> Link:
    return Link(
        target=f"{row['target']}#{row['heading']}" if row["heading"] else row["target"],
        words=row["words"],
        relation=row["relation"],
        handle=handle_of(end.id) if end else None,
        title=end.title if end else None,
        scope=end.scope if end else None,
        location=folder.location(row["path"], row["line"]),
    )


def _led_to(path: str, target: str, candidates: Sequence[sqlite3.Row]) -> str | None:
    """Return the id of the note that a link in the file at `path` means; None: there is none."""
    here, name = posixpath.dirname(path), _name(target)
    if name.startswith(("./", "../")):
        exact = posixpath.normpath(posixpath.join(folded(here), name))
    else:
        exact = name.lstrip("/")
    is_exact = exact != name
    fitting = [
        row
        for row in candidates
        if row["whole"] == exact
        or (row["rank"] == _FILE and not is_exact and row["whole"].endswith(f"/{name}"))
    ]
    best = min(
        fitting,
        key=lambda row: (
            row["rank"],
            row["whole"] != exact,
            not row["id"].startswith(f"{here}/"),
            len(row["id"]),
            row["id"],
        ),
        default=None,
    )
    return best["id"] if best else None
