"""The memories of Gemini CLI: `~/.gemini/GEMINI.md`, and each project's folder `memory`.

Its model edits these files as markdown, and older versions added to a list under a heading. Gemini
reads them when a session starts and at `/memory reload`; of a project's folder it reads `MEMORY.md`
then, and another file when its model follows a mention there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from memtui.backends.markdown import fenced_lines
from memtui.contract import Invalid
from memtui.provider_kit import refused_by_system
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import EntriesAdapter, EntriesFile, FileEntry
from memtui.provider_kit.files.reading import is_folder

GLOBAL, INDEX = "GEMINI.md", "MEMORY.md"
_FOLDER, _INBOX = "memory", ".inbox"
_ADDED = "## Gemini Added Memories"
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_BULLET = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)")
_RULE = re.compile(r" {0,3}(?:([-*_])(?:[ \t]*\1){2,}|<!--.*-->)$")
_LINE_START = re.compile(r"\n(?=[^\n])")
_CODE = re.compile(r"(`+)(.*?)\1", re.DOTALL)
_IMPORT = re.compile(r"(?<!\S)@[./A-Za-z]\S*")


class GeminiConfig(FilesConfig):
    """Gemini CLI's memories: its folder `.gemini`, or the folder `memory` of a project."""


class GeminiAdapter(EntriesAdapter[GeminiConfig]):
    """Shows one record an item of a list, or a paragraph outside of lists.

    A project's files beside `MEMORY.md` give their records their names as kinds.
    """

    key = "gemini"
    config_model = GeminiConfig
    holds = "folder"
    separator = "\n"
    on_lines = True

    def entry_files(self) -> Sequence[EntriesFile]:
        """Return a project's index and the other files of its folder, or the global file."""
        folder = self.config.path
        try:
            names = [one.name for one in folder.iterdir()]
        except OSError as error:
            raise refused_by_system(str(folder), error) from error
        first, *others = memory_files(folder, names)
        return (EntriesFile(first), *(EntriesFile(one, kind=one.stem) for one in others))

    def entries(self, content: str) -> Iterator[FileEntry]:
        """Yield items of lists, with what is indented under them, and paragraphs."""
        return entries_of(content)

    def as_written(self, text: str) -> str:
        """Return the text as an item. Raises `Invalid` if it would be read otherwise."""
        return _written("- ", text, "")

    def rewritten(self, written: str, text: str) -> str:
        """Return an item with the same mark, or a paragraph."""
        mark = _BULLET.match(written)
        return _written(mark[0] if mark else "", text, written)

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
