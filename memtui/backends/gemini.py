"""The memories of Gemini CLI: `~/.gemini/GEMINI.md`, and each project's folder `memory`.

Its model edits these files as markdown, and older versions added to a list under a heading. Gemini
reads them when a session starts and at `/memory reload`; of a project's folder it reads `MEMORY.md`
then, and another file when its model follows a mention there.

What Gemini would remember of past sessions waits as patches in a project's `.inbox`: those in
`private` are for its own folder, those in `global` for `GEMINI.md`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from memtui.backends.markdown import fenced_lines
from memtui.backends.patches import NOWHERE, FilePatch, apply_patch, read_patch
from memtui.contract import Invalid, MemtuiError, OperationType
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import EntriesFile, FileEntry
from memtui.provider_kit.files.proposals import ProposingAdapter, WaitingFile
from memtui.provider_kit.files.reading import FileReader, is_folder
from memtui.provider_kit.files.shared import content_of, text_of

GLOBAL, INDEX = "GEMINI.md", "MEMORY.md"
_FOLDER, _INBOX = "memory", ".inbox"
_KINDS = ("private", "global")
_ADDED = "## Gemini Added Memories"
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_BULLET = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)")
_RULE = re.compile(r" {0,3}(?:([-*_])(?:[ \t]*\1){2,}|<!--.*-->)$")
_LINE_START = re.compile(r"\n(?=[^\n])")
_CODE = re.compile(r"(`+)(.*?)\1", re.DOTALL)
_IMPORT = re.compile(r"(?<!\S)@[./A-Za-z]\S*")


class GeminiConfig(FilesConfig):
    """Gemini CLI's memories: its folder `.gemini`, or the folder `memory` of a project."""


class GeminiAdapter(ProposingAdapter[GeminiConfig]):
    """Shows one record an item of a list, or a paragraph outside of lists.

    A project's files beside `MEMORY.md` give their records their names as kinds.
    """

    key = "gemini"
    config_model = GeminiConfig
    inside = "memory/MEMORY.md"
    settle_seconds = 0.05  # Gemini writes a file anew from what it has just read

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:
        """Return a project's index and the other files of its folder, or the global file."""
        folder = self.config.path
        found = reader.files(folder, ".md") if folder.name == _FOLDER else []
        first, *others = memory_files(folder, [one.name for one in found])
        return (EntriesFile(first), *(EntriesFile(one, kind=one.stem) for one in others))

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry]:  # noqa: ARG002
        """Yield items of lists, with what is indented under them, and paragraphs."""
        return entries_of(content)

    def as_written(self, text: str, before: str = "", was: str = "") -> str:  # noqa: ARG002
        """Return an item with the mark that it had, or a paragraph."""
        mark, new = _BULLET.match(was), "" if was else "- "
        return _written(mark[0] if mark else new, text, was)

    def place_of_new(self, content: str) -> int | None:
        """Return the end of the section that older versions wrote, else of what is in none."""
        heads = [
            (at, line, len(head[1]))
            for at, line, in_fence in _lines(content)
            if not in_fence and (head := _HEADING.match(line))
        ]
        for place, (_, line, _) in enumerate(heads):
            if line.rstrip() == _ADDED:
                after = (at for at, _, level in heads[place + 1 :] if level <= 2)
                return next(after, len(content))
        has_title = bool(heads) and heads[0][2] == 1
        return next((at for at, _, _ in heads[has_title:]), len(content))

    @property
    def _inbox(self) -> Path:
        return self.config.path / _INBOX

    def waiting_paths(self) -> Iterable[Path]:
        """Return the patches in the inbox of a project; links are left alone."""
        found = (one for kind in _KINDS for one in (self._inbox / kind).rglob("*.patch"))
        return (one for one in found if one.is_file() and not one.is_symlink())

    def is_held(self, path: Path) -> bool:
        """Whether a file is a patch of the inbox, or one that a patch may change."""
        kinds = (self._inbox / kind for kind in _KINDS)
        is_patch = path.suffix == ".patch" and any(map(path.is_relative_to, kinds))
        return is_patch or any(path == self._target(str(path), kind) for kind in _KINDS)

    def _target(self, name: str, kind: str) -> Path | None:
        """Return the file that a patch of a kind may change by this name; None: it may not."""
        path, folder = Path(os.path.normpath(name)), self.config.path
        if kind == "private":
            named = memory_files(folder, [path.name])
            is_here = _real(path.parent) == _real(folder) and folder / path.name in named
            return folder / path.name if is_here else None
        above = folder.parents[2] if folder.name == _FOLDER and len(folder.parents) > 2 else None
        is_global = above and path.name == GLOBAL and _real(path.parent) == _real(above)
        return above / GLOBAL if above and is_global else None

    def waiting(self, path: Path, content: bytes, since: datetime) -> WaitingFile:
        """Return a patch, with the files as Gemini would write them."""
        text = text_of(content, path)
        patches, kind = read_patch(text), path.relative_to(self._inbox).parts[0]
        written: dict[Path, str] = {}
        made: list[Path] = []
        refused = ""
        try:
            for patch in patches:
                target = self._patched(patch, kind, written)
                made += [target] if patch.old == NOWHERE else []
            if kind == "private":
                self._point_to(made, written)
        except MemtuiError as error:
            refused = str(error)
        is_new = all(one.old == NOWHERE for one in patches)
        return WaitingFile(
            path,
            content,
            "gemini",
            "\n".join(
                line[1:].strip()
                for patch in patches
                for part in patch.parts
                for line in part.lines
                if line.startswith("+")
            ),
            since,
            OperationType.WRITE if is_new else OperationType.CORRECT,
            {one: new.encode() for one, new in written.items()},
            refused,
        )

    def _patched(self, patch: FilePatch, kind: str, written: dict[Path, str]) -> Path:
        """Apply the patch of one file to its content, or to that of an earlier patch of it."""
        is_new = patch.old == NOWHERE
        if not Path(patch.new).is_absolute() or patch.new == NOWHERE:
            raise Invalid(f"Its header names {patch.new or 'no file'}, which is no absolute path.")
        if not is_new and patch.old != patch.new:
            raise Invalid(f"It would move {patch.old} to {patch.new}.")
        target = self._target(patch.new, kind)
        if target is None:
            raise Invalid(f"{patch.new} is none of the files that a {kind} patch may change.")
        if target not in written:
            there = content_of(target)
            if is_new and there is not None:
                raise Invalid(f"It would make {target}, which is there already.")
            if not is_new and there is None:
                raise Invalid(f"{target}, which it would change, is gone.")
            written[target] = text_of(there or b"", target)
        new = apply_patch(written[target], patch)
        if new is None:
            raise Invalid(f"It does not fit {target} any more.")
        written[target] = new
        return target

    def _point_to(self, made: Sequence[Path], written: dict[Path, str]) -> None:
        """Mention new notes in the index as Gemini does; its model finds no others."""
        index = self.config.path / INDEX
        there = written.get(index)
        if there is None:
            content = content_of(index)
            there = "# Project Memory\n" if content is None else text_of(content, index)
        before = there
        for path in made:
            real = _real(path)
            if path.name.lower() == INDEX.lower() or path.name in there or str(real) in there:
                continue
            words = re.sub(r"[-_]", " ", path.stem).strip() or path.name
            line_end = "" if there.endswith("\n") else "\n"
            there += f"{line_end}- See {real} for {words} notes.\n"
        if there != before:
            written[index] = there


def _real(path: Path) -> Path:
    """Return a path without links, also where its file is missing."""
    return Path(os.path.realpath(path))


def memory_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files with memories of a folder with these names; the first may be missing."""
    if folder.name != _FOLDER:
        return [folder / GLOBAL]
    others = (one for one in names if one.lower().endswith(".md") and one != INDEX)
    visible = (one for one in others if one.isprintable() and not one.startswith("."))
    return [folder / name for name in (INDEX, *sorted(visible))]


def has_inbox(folder: Path) -> bool:
    """Whether patches may wait in a project's folder."""
    return folder.name == _FOLDER and is_folder(folder / _INBOX)


def entries_of(content: str) -> Iterator[FileEntry]:
    """Yield the items of lists, with what is indented under them, and the paragraphs."""
    start: int | None = None
    end = indent = 0
    is_blank = was_fenced = False
    for at, line, in_fence in _lines(content):
        text = line.rstrip()
        if text or in_fence:
            mark = None if in_fence else _BULLET.match(line)
            apart = not in_fence and (_HEADING.match(text) or _RULE.match(text))
            goes_on = start is not None and (
                (in_fence and was_fenced)
                or (indent and (line[:indent].isspace() or line[:1] == "\t"))
                or not (is_blank or mark or apart)
            )
            if not goes_on:
                if start is not None:
                    yield _entry(content[start:end], start)
                indent = len(mark[0]) if mark else 0
                begins = at if mark else at + len(line) - len(line.lstrip())
                start = None if apart else begins
            end = at + len(text)
        is_blank, was_fenced = not (text or in_fence), in_fence
    if start is not None:
        yield _entry(content[start:end], start)


def _entry(written: str, start: int) -> FileEntry:
    text = written.replace("\r\n", "\n")
    if mark := _BULLET.match(text):
        width = mark.end()
        first, *rest = text[width:].split("\n")
        text = "\n".join((first, *(one[:width].lstrip(" ") + one[width:] for one in rest)))
    return FileEntry(start, start + len(written), text)


def _lines(content: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line with its place, and whether it is in a code fence."""
    lines, at = content.split("\n"), 0
    for line, in_fence in zip(lines, fenced_lines(lines), strict=True):
        yield at, line, in_fence
        at += len(line) + 1


def _written(mark: str, text: str, old: str) -> str:
    """Return a text as it is written after a mark; `old`: the entry in its place."""
    if new := _imports(text) - _imports(old):
        raise Invalid(
            f"Gemini would read a file in the place of {min(new)}; write it between backticks."
        )
    written = mark + _LINE_START.sub("\n" + " " * len(mark), text)
    if "\r" in text or [one.text for one in entries_of(written)] != [text]:
        raise Invalid(
            "Gemini's file would not give this text back; write it without blanks at its ends and "
            f"without carriage returns{'' if mark else ', as one paragraph'}."
        )
    return written


def _imports(text: str) -> set[str]:
    return set(_IMPORT.findall(_CODE.sub("", text)))
