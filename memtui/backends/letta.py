"""The memory folder of a Letta agent: markdown files under git, one memory each.

Letta's prompt has the committed text of the core files: those in `system/` or, in the newer layout
that a `MEMORY.md` marks, those at the top. Its memory tool commits each change, and refuses to work
while anything is uncommitted; so does memtui commit each change, as one commit of its files alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from memtui.contract import Conflict, Invalid, Model, Record, WriteRequest
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.reading import (
    FileReader,
    FileRefused,
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    is_file,
    read_whole,
    slug,
)
from memtui.provider_kit.files.shared import encoded, text_of
from memtui.provider_kit.files.whole import WholeFilesAdapter

_POLICY = ".git/letta-memory-layout-policy"
_LIMITS = ".memfs.config.json"
INDEX = "MEMORY.md"
SYSTEM, REFERENCE, SKILLS = "system", "reference", "skills"
_DEPTH = 12
_HEAD = re.compile(r"\ufeff?(?:---\r?\n(.*?)\r?\n---(?:\r?\n|\Z))?", re.DOTALL)
_GLOB = re.compile(r"\*\*/|\*\*|.", re.DOTALL)
_MOST_BYTES = 64 * 1024
"""Most bytes of `.memfs.config.json`."""
_OF_ROOT_LAYOUT = {"maxDepth": 2, "maxFileCharacters": 20_000, "maxCoreMemoryCharacters": 65_536}
"""Letta's limits in the newer layout, where its file names none."""


class LettaConfig(FilesConfig):
    """A Letta agent's memory: the folder `memory` of the agent."""


class LettaAdapter(WholeFilesAdapter[LettaConfig]):
    """Shows one record a file; those of the kind `system` are in every prompt of the agent."""

    key = "letta"
    config_model = LettaConfig
    inside = "memory/.git"

    _had_root_layout = False

    def _has_root_layout(self) -> bool:
        if not is_file(self.config.path / INDEX):
            return False
        with suppress(OSError, FileRefused):
            return read_whole(self.config.path / _POLICY)[0].strip() != b"legacy-only"
        return True

    def memories(self, reader: FileReader) -> Iterable[Path]:
        """Return the files but skills."""
        for name in (INDEX, _POLICY):
            reader.look(self.config.path / name)
        if self._has_root_layout() != self._had_root_layout:
            reader.memo.clear()  # every file is read otherwise now
            self._had_root_layout = not self._had_root_layout
        return memory_files(reader, self.config.path)

    def parse(self, content: str, name: str) -> ParsedFile:
        """Parse a file by the layout of the folder."""
        return parse_memory(content, name, is_root=self._has_root_layout())

    def _record(self, found: ParsedRecord, path: Path, record_id: str) -> Record:
        record = super()._record(found, path, record_id)
        is_protected = found.metadata["frontmatter"].get("read_only") == "true"
        return record.model_copy(update={"read_only": is_protected})

    def own_kinds(self) -> frozenset[str]:
        """Return the kind of core files, and that of the others."""
        return frozenset({SYSTEM, "note"})

    def composed(self, request: WriteRequest) -> tuple[str, str, bytes]:
        """Return a core file for the kind `system`, else one below `reference`."""
        is_core, is_root = request.kind == SYSTEM, self._has_root_layout()
        folder = "" if is_core and is_root else SYSTEM if is_core else REFERENCE
        if is_root and folder and not is_file(self.config.path / folder / INDEX):
            raise Invalid(
                f"Letta ignores a folder without a {INDEX}, and {self.config.path / folder} has "
                f"none; create it first, or write the memory with the kind {SYSTEM}."
            )
        title = one_line(request.title) or first_line(request.content)
        return folder, slug(title, "-"), composed(title, request.content, is_root=is_root)

    def with_text(self, record: Record, content: bytes, text: str) -> bytes:
        """Return a file with another text, and the frontmatter as it is."""
        name, is_root = self.file_of(record), self._has_root_layout()
        return with_text(content, record.text, text, name=name, is_root=is_root)

    def protected(self, record: Record) -> str | None:
        """Return why Letta keeps a file."""
        name = self.file_of(record)
        if record.read_only:
            return f"{self.config.path / name} is read_only, so Letta keeps it as it is."
        if is_index(name, is_root=self._has_root_layout()):
            return f"{self.config.path / name} is an index, which Letta needs."
        return None

    def check(self, name: str, content: bytes) -> None:
        """Raise `Invalid` for a file with which Letta would refuse every later commit."""
        is_root, given = self._has_root_layout(), self.files.content(_LIMITS)
        if not (is_root or given):
            return
        place, text = self.config.path / _LIMITS, text_of(content, self.config.path / name)
        try:
            limits = MemoryLimits.read(given, is_root=is_root)
        except (ValueError, TypeError, RecursionError) as error:
            raise Invalid(f"{place} is not as Letta writes it; fix it first.") from error
        core = 0
        if is_root and "/" not in name:
            others = {one.name for one in self.config.path.glob("*.md")} - {name}
            sizes = (
                len((self.files.content(one) or b"").decode("utf-8", "replace")) for one in others
            )
            core = sum(sizes) + len(text)
        for problem in limits.beyond(name, text, core):
            raise Invalid(f"Letta would refuse its next commit: {problem} ({place}); shorten it.")


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
