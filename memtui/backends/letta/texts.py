"""How Letta writes a memory file: its frontmatter, its text, and the limits of a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from memtui.contract import Conflict, Invalid, Model
from memtui.provider_kit.files.reading import FileReader, Flaw, ParsedFile, ParsedRecord, first_line
from memtui.provider_kit.files.shared import encoded, text_of

INDEX = "MEMORY.md"
SYSTEM, REFERENCE, SKILLS = "system", "reference", "skills"
_DEPTH = 12
_HEAD = re.compile(r"\ufeff?(?:---\r?\n(.*?)\r?\n---(?:\r?\n|\Z))?", re.DOTALL)
_GLOB = re.compile(r"\*\*/|\*\*|.", re.DOTALL)
_MOST_BYTES = 64 * 1024
"""Most bytes of `.memfs.config.json`."""
_OF_ROOT_LAYOUT = {"maxDepth": 2, "maxFileCharacters": 20_000, "maxCoreMemoryCharacters": 65_536}
"""Letta's limits in the newer layout, where its file names none."""


def memory_files(reader: FileReader, folder: Path) -> list[Path]:
    """Return the memories of a folder; skills are none."""
    found = reader.files(folder, ".md", depth=_DEPTH)
    return [one for one in found if one.relative_to(folder).parts[0] != SKILLS]


def is_index(name: str, *, is_root: bool) -> bool:
    """Whether a file has no frontmatter: it lists the memories of its folder."""
    return is_root and name.rpartition("/")[2] == INDEX


def parse_memory(content: str, name: str, *, is_root: bool) -> ParsedFile:
    """Parse a file; its frontmatter is read as Letta reads it, line by line."""
    is_text = is_index(name, is_root=is_root)
    head, fields = _head_of("" if is_text else content)
    body = content[len(head) :]
    before = body[: len(body) - len(body.lstrip("\n"))]
    is_core = "/" not in name if is_root else name.startswith(f"{SYSTEM}/")
    is_checked = is_root or name.startswith((f"{SYSTEM}/", f"{REFERENCE}/"))
    is_lacking = is_checked and not is_text and not fields.get("description")
    record = ParsedRecord(
        id=name,
        text=body.strip("\n"),
        line=(head + before).count("\n") + 1,
        title=fields.get("name") or fields.get("description") or name.removesuffix(".md"),
        kind="index" if is_text else SYSTEM if is_core else "note",
        metadata={"frontmatter": fields, "in_prompt": is_core},
    )
    flaw = Flaw("Letta requires a description in the frontmatter of this file.")
    return ParsedFile((record,), (flaw,) * is_lacking)


def _head_of(content: str) -> tuple[str, dict[str, str]]:
    """Return what is above the text, and the values of its frontmatter."""
    found = _HEAD.match(content)
    lines = (found[1] or "").replace("\r\n", "\n").split("\n") if found else []
    pairs = (line.partition(":") for line in lines)
    fields = {key.strip(): _unquoted(value.strip()) for key, colon, value in pairs if key and colon}
    return found[0] if found else "", fields


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        with suppress(ValueError):
            return str(json.loads(value))
    return value


def one_line(text: str | None) -> str:
    """Return a text without line ends and repeated blanks."""
    return " ".join((text or "").split())


def composed(title: str, text: str, *, is_root: bool) -> bytes:
    """Return a new file. Raises `Invalid` if it would not read back as this text."""
    said = one_line(title) or "Memory"
    quoted = json.dumps(said, ensure_ascii=False)
    head = f"name: {quoted}\ndescription: {quoted}" if is_root else f"description: {said}"
    return _exactly(f"---\n{head}\n---\n{text}\n", text)


def with_text(content: bytes, old: str, text: str, *, name: str, is_root: bool) -> bytes:
    """Return a file with another text; a description that repeated its first line follows it.

    Raises:
        Conflict: its text is no longer the old one.
        Invalid: it would not read back as this text.
    """
    whole = text_of(content, Path(name))
    head, fields = _head_of("" if is_index(name, is_root=is_root) else whole)
    body = whole[len(head) :]
    now = body.replace("\r\n", "\n")
    if now.strip("\n") != old:
        problem = "The file changed while you edited it; compare both versions."
        raise Conflict(problem, proposed=text)
    repeated = {key for key in ("name", "description") if fields.get(key) == first_line(old)}
    for key in repeated if old else ():
        said = first_line(text) or "Memory"
        said = json.dumps(said, ensure_ascii=False) if is_root else said
        line = re.compile(rf"^{key}:[^\r\n]*", re.MULTILINE)
        head = line.sub((f"{key}: {said}").replace("\\", r"\\"), head, count=1)
    start, end = len(now) - len(now.lstrip("\n")), len(now.rstrip("\n"))
    changed = f"{now[:start]}{text}{now[end:]}"
    return _exactly(head + (changed.replace("\n", "\r\n") if "\r\n" in body else changed), text)


def _exactly(content: str, text: str) -> bytes:
    head, _ = _head_of(content)
    if content[len(head) :].replace("\r\n", "\n").strip("\n") != text or not text.strip():
        raise Invalid(
            "A memory of Letta cannot keep this text exactly; remove carriage returns, and blank "
            "lines at its start and end."
        )
    return encoded(content)


class _CharacterLimit(Model):
    pattern: str
    maxCharacters: Annotated[int, Field(gt=0)] | None  # noqa: N815 - Letta's name


class MemoryLimits(Model):
    """Letta's `.memfs.config.json`: beyond it, Letta refuses every later commit."""

    version: Literal[1] = 1
    maxDepth: int | None = None  # noqa: N815
    maxFileCharacters: int | None = None  # noqa: N815
    maxCoreMemoryCharacters: int | None = None  # noqa: N815
    fileCharacterLimits: tuple[_CharacterLimit, ...] = ()  # noqa: N815

    @classmethod
    def read(cls, given: bytes | None, *, is_root: bool) -> MemoryLimits:
        """Return the limits of a folder. Raises `ValueError` for a file that Letta refuses."""
        if given and len(given) > _MOST_BYTES:
            raise ValueError("it is too large")
        defaults = _OF_ROOT_LAYOUT if is_root else {}
        return cls.model_validate({**defaults, **json.loads(given or b"{}")})

    def beyond(self, name: str, text: str, core: int) -> Iterator[str]:
        """Yield why a file is too much; `core`: the characters of the core memory with it."""
        most = next(
            (one.maxCharacters for one in self.fileCharacterLimits if _fits(one.pattern, name)),
            self.maxFileCharacters,
        )
        for size, limit, words in (
            (len(text), most, f"{name} would have {{:,}} characters"),
            (core, self.maxCoreMemoryCharacters, "the core memory would have {:,} characters"),
            (name.count("/"), self.maxDepth, f"{name} would lie {{:,}} folders deep"),
        ):
            if limit is not None and size > limit:
                yield f"{words.format(size)}, and {limit:,} are the limit"


def _fits(pattern: str, name: str) -> bool:
    """Whether a path fits a glob; no pattern takes longer than its length times the path's."""
    ends = {0}
    """Where the parts so far may end in the path."""
    for part in _GLOB.findall(pattern):
        rest = range(min(ends, default=len(name)), len(name))
        if part in {"**", "**/"}:
            ends |= {at + 1 for at in rest if part == "**" or name[at] == "/"}
        elif part == "*":
            for at in rest:
                if at in ends and name[at] != "/":
                    ends.add(at + 1)
        else:
            fits = {part} if part != "?" else {*name} - {"/"}
            ends = {at + 1 for at in rest if at in ends and name[at] in fits}
    return len(name) in ends
