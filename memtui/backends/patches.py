"""Unified diffs, read and applied as Gemini CLI does, whose library is jsdiff 8.

A part is looked for at its line, then ever farther away, and its context must be there exactly.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from memtui.contract import Invalid

NOWHERE = "/dev/null"
_FILE_HEADER = re.compile(r"(---|\+\+\+)\s+")
_NEXT_FILE = re.compile(r"(?:Index:|diff|---|\+\+\+)\s|={67}")
_PART = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MORE = re.compile(
    r"(?:rename|copy) (?:from|to) |(?:old|new|deleted file) mode |GIT binary|Binary "
)
_PREFIX = re.compile(r"^[ab]/")


@dataclass(slots=True)
class PatchPart:
    """A part of a patch, of lines that each begin with a blank, `+`, `-` or a backslash."""

    start: int
    """The line of the file at which it begins, counted from 1."""
    length: int
    """The lines of the file that it covers."""
    lines: list[str]


@dataclass(slots=True)
class FilePatch:
    """The patch of one file."""

    old: str = ""
    new: str = ""
    parts: list[PatchPart] = field(default_factory=list)


def read_patch(text: str) -> list[FilePatch]:
    """Return the patches of the files.

    Raises:
        Invalid: it cannot be read, or does more than to change lines.
    """
    lines, at = text.split("\n"), 0
    found: list[FilePatch] = []
    while at < len(lines):
        patch = FilePatch()
        found.append(patch)
        while at < len(lines) and not re.match(r"(---|\+\+\+|@@)\s", lines[at]):
            if _MORE.match(lines[at]):
                raise Invalid(f"It does more than to change lines of a file: {lines[at]}.")
            at += 1
        for _ in range(2):
            if at < len(lines) and (header := _FILE_HEADER.match(lines[at])):
                name = lines[at][3:].strip().split("\t")[0].replace("\\\\", "\\")
                quoted = len(name) > 1 and name[0] == name[-1] == '"'
                name = _PREFIX.sub("", name[1:-1] if quoted else name, count=1)
                patch.old, patch.new = (
                    (name, patch.new) if header[1] == "---" else (patch.old, name)
                )
                at += 1
        while at < len(lines) and not _NEXT_FILE.match(lines[at]):
            if lines[at].startswith("@@"):
                part, at = _part(lines, at)
                patch.parts.append(part)
            elif lines[at]:
                raise Invalid(f"Its line {at + 1} is none of a patch.")
            else:
                at += 1
    if not found or not all(one.parts for one in found):
        raise Invalid("It is no patch that changes lines.")
    return found


def _part(lines: Sequence[str], at: int) -> tuple[PatchPart, int]:
    """Return the part that begins at a line, and the line after it."""
    head, begun = _PART.match(lines[at]), at + 1
    if head is None:
        raise Invalid(f"Its line {begun} is no beginning of a part.")
    old, new = (1 if head[one] is None else int(head[one]) for one in (2, 4))
    part = PatchPart(int(head[1]) + (old == 0), old, [])
    removed = added = 0
    at += 1
    while at < len(lines) and (removed < old or added < new or lines[at].startswith("\\")):
        sign = lines[at][:1] or (" " if at < len(lines) - 1 else "")
        if sign not in {"+", "-", " ", "\\"}:
            raise Invalid(f"Its line {at + 1} is none of a patch.")
        removed += sign in "- "
        added += sign in "+ "
        part.lines.append(lines[at])
        at += 1
    if not removed and old == 1:
        part.length = old = 0
    if not added and new == 1:
        new = 0
    if (removed, added) != (old, new):
        raise Invalid(f"The part at its line {begun} has more or fewer lines than it says.")
    return part, at


def apply_patch(content: str, patch: FilePatch) -> str | None:
    """Return a file's content with a patch; None: it does not fit."""
    parts = _with_ends_of(content, patch.parts)
    lines = content.split("\n")
    signs = [one[:1] for one in parts[-1].lines]
    ends = {sign for sign, then in pairwise(signs) if then == "\\"} & {"+", "-"}
    if ends and (lines[-1] == "") is not (ends == {"+"}):
        return None  # the last line has an end, or lacks one, other than the patch says
    if ends == {"+"}:
        lines.pop()
    elif ends == {"-"}:
        lines.append("")
    made: list[str] = []
    done = shift = 0
    for part in parts:
        first = part.start + shift - 1
        for place in _places(first, done, len(lines) - part.length):
            if (fitted := _fitted(part.lines, lines, place)) is not None:
                break
        else:
            return None
        made += [lines[one] if one < len(lines) else "" for one in range(done, place)]
        made += fitted[0]
        done, shift = fitted[1], place + 1 - part.start
    return "\n".join([*made, *lines[done:]])


def _places(first: int, least: int, most: int) -> Iterator[int]:
    """Yield a line, then those after and before it, ever farther away."""
    yield first
    for distance in range(1, max(most - first, first - least, 0) + 1):
        if first + distance <= most:
            yield first + distance
        if first - distance >= least:
            yield first - distance


def _fitted(
    wanted: Sequence[str], lines: Sequence[str], place: int
) -> tuple[list[str], int] | None:
    """Return the lines that a part makes at a place, and the line after; None: it does not fit."""
    made: list[str] = []
    context = 0
    for one in wanted:
        sign, text = one[:1] or " ", one[1:]
        if sign in {" ", "-"}:
            if not 0 <= place < len(lines) or lines[place] != text:
                return None
            place += 1
        if sign in {" ", "+"}:
            made.append(text)
        if sign != "\\":
            context = context + 1 if sign == " " else 0
    kept = len(made) - context  # a later part may begin within the context at its end
    return made[:kept], place - context


def _with_ends_of(content: str, parts: list[PatchPart]) -> list[PatchPart]:
    """Return parts with the line ends of a content that has only ones of the other kind."""
    texts = [one for part in parts for one in part.lines if not one.startswith("\\")]
    crlf = [one.endswith("\r") for one in texts]
    is_windows = "\r\n" in content and not re.search(r"(?:^|[^\r])\n", content)
    is_unix = "\n" in content and "\r\n" not in content
    if is_windows and not any(crlf):
        return [replace(one, lines=_windows(one.lines)) for one in parts]
    if is_unix and any(crlf) and all(_windows(one.lines) == one.lines for one in parts):
        return [
            replace(one, lines=[line.removesuffix("\r") for line in one.lines]) for one in parts
        ]
    return parts


def _windows(lines: Sequence[str]) -> list[str]:
    """Return lines with carriage returns, but for one that has no end."""
    after = [*lines[1:], ""]
    return [
        one if one.startswith("\\") or one.endswith("\r") or then.startswith("\\") else f"{one}\r"
        for one, then in zip(lines, after, strict=True)
    ]
