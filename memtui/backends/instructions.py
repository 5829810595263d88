"""The instruction files of coding agents: `CLAUDE.md`, rules, `CLAUDE.local.md`, `AGENTS.md`.

A record is a section: the text under one heading. `@path` imports are followed four hops deep, but
only into text files of the same project or of the user's `.claude` folder, so that a foreign
repository cannot make memtui read private files.

A record's topic is the time at which Claude Code loads it, according to its documentation
(https://code.claude.com/docs/en/memory, "How Claude remembers your project"): `loaded` at the start
of every session; `by-path`, a rule with `paths` in its frontmatter, once a matching file is read,
and a `CLAUDE.md` of a subfolder, once a file there is read; `not-loaded`, an `AGENTS.md` that no
`CLAUDE.md` imports. HTML comments that begin a line outside of code are removed, as Claude Code
removes them before the model sees the text.
"""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from memtui.backends.markdown import fenced_lines, heading_of, read_document, sections
from memtui.contract import BindingContext, Invalid, Json, WriteRequest
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.entries import (
    EntriesAdapter,
    EntriesFile,
    FileEntry,
    entries_at_lines,
)
from memtui.provider_kit.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    first_line,
    printable_id,
    resolved,
    sign,
)

PROJECT_FILES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
PROJECT_RULES = ".claude/rules"
USER_FILES = ("CLAUDE.md",)
USER_RULES = "rules"
OTHERS = "AGENTS.md"
"""The file for other agents; Claude Code reads it only if it is imported."""
_RULES_DEPTH = 5
IMPORT_DEPTH = 4
LOADED, BY_PATH, NOT_LOADED = "loaded", "by-path", "not-loaded"
_BELOW = {"CLAUDE.md": BY_PATH, "CLAUDE.local.md": BY_PATH, OTHERS: NOT_LOADED}
"""The instruction files of a project's subfolders."""
_IMPORT_BYTES = 1024 * 1024
_DOCUMENTS = frozenset((".md", ".mdc", ".markdown", ".txt", ".rst", ".adoc"))
_TEXT = _DOCUMENTS | {"", ".json", ".toml", ".yaml", ".yml"}
"""File types that a project may import from itself; elsewhere such files may contain secrets."""
_OPEN_HIDDEN = frozenset((".claude", ".github", ".cursor", ".agents"))
_IMPORT_COUNT = 1_000
_IMPORT = re.compile(
    r"""(?:^|(?<=\s))@(?:(?P<quote>["'])(?P<quoted>[^"'\n]{1,1000})(?P=quote)"""
    r"""|(?P<path>(?:\\ |[^\s@`]){1,1000}))"""
)
"""`@docs/a.md`; a space in a path is escaped by a backslash."""
_COMMENT_LINE = re.compile(r" {0,3}<!--")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
_NOT_OWN = frozenset((
    "node_modules", "vendor", "third_party", "site-packages", "venv", "dist", "build", "target",
    "__pycache__",
))  # fmt: skip
"""Subfolders of third-party or generated files, which are not searched."""
_MOST_FOLDERS = 2_000


class InstructionsConfig(FilesConfig):
    """Instructions of coding agents: the CLAUDE.md, AGENTS.md and rules of a project or a person.

    `path` is the project's folder, or the person's `.claude`.
    """

    layout: Literal["project", "user"] = "project"
    """`user`: `path` itself holds CLAUDE.md and rules, as `~/.claude` does."""


class InstructionsAdapter(EntriesAdapter[InstructionsConfig]):
    """Shows the instructions of coding agents, one record per section.

    Agents obey these files, and a repository's are read by whoever clones it: only people change
    them. A file that is imported from outside of the folder is not changed.
    """

    key = "instructions"
    config_model = InstructionsConfig
    capabilities = EntriesAdapter.capabilities.model_copy(update={"people_only": True})

    def __init__(self, context: BindingContext, config: InstructionsConfig) -> None:
        super().__init__(context, config)
        self.workspaces = {None: config.path} if config.layout == "project" else {}
        self._files: tuple[EntriesFile, ...] = ()
        """Those that were read last, in the order of loading."""

    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:  # noqa: ARG002
        """Return the files that are there, in the order of loading."""
        self._load()
        return self._files

    def file_for(self, request: WriteRequest) -> EntriesFile:  # noqa: ARG002
        """Return the folder's first file that applies to the whole folder, or else a new one."""
        whole = {*PROJECT_FILES, OTHERS}
        new = EntriesFile(self.config.path / PROJECT_FILES[0], "instruction")
        self._load()
        return next((one for one in self._files if self.name_of(one) in whole), new)

    def entries(self, content: str, file: EntriesFile) -> Iterator[FileEntry | Flaw]:
        """Yield the sections of a file."""
        plain = content.replace("\r\n", "\n")
        return entries_at_lines(content, _parse_sheet(plain, self.name_of(file), file.kind).parsed)

    def as_written(self, text: str, before: str = "", was: str = "") -> str:
        """Return the text. Raises `Invalid` where a comment would be lost."""
        if _without_comments(was) != was:
            raise Invalid(
                "This section holds a comment that agents do not see, and that a correction would "
                "remove; change the file itself."
            )
        return super().as_written(text, before, was)

    def made(self, request: WriteRequest, file: EntriesFile) -> tuple[str, str]:
        """Return a section of its own, under a heading that the file has not."""
        name, there = self.name_of(file), self._load()[0]
        given = request.title or ""
        wanted = title = given if heading_of(f"# {given}") == (1, given) else "Note"
        number = 1
        while printable_id(f"{name}#{title}") in there:
            number += 1
            title = f"{wanted} {number}"
        written = f"# {title}\n{request.content}"
        parsed = _parse_sheet(written, name, file.kind).parsed.records
        if [one.text for one in parsed] != [request.content]:
            raise Invalid(
                "Agents would not read this text as one section: it has headings or comments, or "
                "blank lines at its ends; write it without them."
            )
        return f"{name}#{title}", written

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the instruction files in the order of loading, each before its imports.

        Files that are not loaded come last: if one is also imported, it counts as loaded.
        """
        folder, is_user = self.config.path, self.config.layout == "user"
        walk = _Walk(reader, folder, _bounds(folder, is_user=is_user))
        for name in USER_FILES if is_user else PROJECT_FILES:
            walk.start(folder / name, "instruction", LOADED)
        rules = folder / (USER_RULES if is_user else PROJECT_RULES)
        for path in reader.files(rules, ".md", depth=_RULES_DEPTH):
            walk.start(path, "rule", LOADED)
        walk.start(folder / OTHERS, "instruction", NOT_LOADED)
        if not is_user and resolved(folder) != _home():
            for path in _below(reader, folder):
                walk.start(path, "instruction", _BELOW[path.name])
        self._files = tuple(EntriesFile(path, kind) for path, kind in walk.kinds.items())
        return walk.found


def _below(reader: FileReader, folder: Path) -> Iterator[Path]:
    """Yield the instruction files of a project's subfolders, the nearest first."""
    waiting, count = deque([folder]), 0
    while waiting:
        if count > _MOST_FOLDERS:
            names = " and ".join(_BELOW)
            problem = f"Only the first {_MOST_FOLDERS:,} subfolders were searched for {names}."
            reader.report(problem, folder)
            return
        above, count = waiting.popleft(), count + 1
        reader.look(above)
        try:
            with os.scandir(above) as entries:
                found = sorted(entries, key=lambda one: one.name)
        except OSError:  # an unreadable folder is skipped
            continue
        for one in found:
            if one.name in _BELOW and above != folder:
                yield above / one.name
            elif one.is_dir(follow_symlinks=False) and one.name not in _NOT_OWN:
                waiting += [above / one.name] * (not one.name.startswith("."))


@dataclass(frozen=True, slots=True)
class _Place:
    """A file's place in the chain of imports."""

    kind: str
    loading: str
    """When it is loaded."""
    origin: str | None = None
    """The `file:line` that imports it; None for a file that is not imported."""
    above: tuple[Path, ...] = ()


class _NotRead(Exception):
    """A file must not be read; the message is a sentence."""


@dataclass
class _Walk:
    """One load of a folder's instruction files."""

    reader: FileReader
    folder: Path
    bounds: tuple[Path, ...]
    found: list[tuple[Path, ParsedFile]] = field(default_factory=list)
    visited: set[Path] = field(default_factory=set)
    kinds: dict[Path, str] = field(default_factory=dict)
    """The kind of each file's records."""

    def start(self, path: Path, kind: str, loading: str) -> None:
        """Read a file that is not imported, if it exists, and its imports."""
        if self.reader.look(path) is None and not path.is_symlink():
            return
        try:
            self._follow(path, _Place(kind, loading))
        except _NotRead as refusal:
            self.reader.report(str(refusal), path)

    def _follow(self, path: Path, place: _Place) -> None:
        real = self._permitted(path, place)
        if real in self.visited:
            return
        self.visited.add(real)
        folders = (one for one in (self.folder, resolved(self.folder)) if one is not None)
        within = next((one for one in folders if path.is_relative_to(one)), None)
        name = str(path) if within is None else path.relative_to(within).as_posix()
        sheet = self.reader.parse(path, partial(_parse_sheet, name=name, kind=place.kind))
        if sheet is None:
            return
        if place.kind == "rule" and place.origin is None and sheet.has_paths:
            place = replace(place, loading=BY_PATH)
        extra: Json = {"file": name} | ({"imported_by": place.origin} if place.origin else {})
        modified = self.reader.modified(path)
        records = tuple(
            replace(
                one, topic=place.loading, updated_at=modified, metadata={**one.metadata, **extra}
            )
            for one in sheet.parsed.records
        )
        self.kinds[path] = place.kind
        at = len(self.found)
        flaws = [
            Flaw(f"@{target}: {refusal}", line)
            for target, line in sheet.imports
            for refusal in self._import(
                path, target, replace(place, origin=f"{name}:{line}", above=(*place.above, real))
            )
        ]
        self.found.insert(at, (path, ParsedFile(records, (*sheet.parsed.flaws, *flaws))))

    def _import(self, path: Path, wanted: str, place: _Place) -> Iterator[str]:
        """Follow one import, or yield why it fails; a mere mention of a file is ignored."""
        try:
            target = path.parent / Path(wanted).expanduser()
        except (RuntimeError, ValueError):
            return
        found = self.reader.look(target)
        if found is None or not found.is_file:
            names_path = wanted.startswith(("~/", "./", "../", "/"))
            if names_path or target.suffix.lower() in _DOCUMENTS:
                yield "the imported file is not there."
            return
        try:
            self._follow(resolved(target) or target, place)
        except _NotRead as refusal:
            yield str(refusal)

    def _permitted(self, path: Path, place: _Place) -> Path:
        real = resolved(path)
        if real is None:
            raise _NotRead("The link leads nowhere.")
        if real in place.above:
            raise _NotRead("The import leads back to a file that it is imported from.")
        if len(place.above) > IMPORT_DEPTH:
            raise _NotRead(f"Imports nest deeper than {IMPORT_DEPTH}; this one is not followed.")
        bound = next((bound for bound in self.bounds if real.is_relative_to(bound)), None)
        if bound is None:
            raise _NotRead(
                "The file is outside of the project and of ~/.claude, so it is not read."
            )
        inside = real.relative_to(bound).parts
        if any(part.startswith(".") and part not in _OPEN_HIDDEN for part in inside):
            raise _NotRead("The file is hidden, so it is not read.")
        if place.origin is not None:
            if real.suffix.lower() not in (_TEXT if bound == self.bounds[0] else _DOCUMENTS):
                raise _NotRead(f"A {real.suffix or 'plain'} file is not imported from there.")
            found = sign(real)
            if found is not None and found.size > _IMPORT_BYTES:
                raise _NotRead(f"The file has {found.size // 1024} KiB, too much to import.")
        return real


def _bounds(folder: Path, *, is_user: bool) -> tuple[Path, ...]:
    """Return the folders, links resolved, from which instruction files may be read.

    For a project, these are its git root and the user's `.claude`; for the user's own files, the
    whole home folder.
    """
    own, home = resolved(folder) or folder, _home()
    if is_user:
        return (own,) if home is None else (own, home)
    root = next((above for above in (own, *own.parents) if sign(above / ".git") is not None), own)
    if root == home:
        root = own
    return (root,) if home is None else (root, home / ".claude")


def _home() -> Path | None:
    try:
        return resolved(Path.home())
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class _Sheet:
    """One instruction file, parsed."""

    parsed: ParsedFile
    imports: tuple[tuple[str, int], ...] = ()
    """Each `@path` and its line."""
    has_paths: bool = False
    """Its frontmatter names the files that it applies to."""


def _parse_sheet(text: str, name: str, kind: str) -> _Sheet:
    """Parse one file; `name` is the prefix of its records' ids."""
    if "\0" in text[:4096]:
        return _Sheet(ParsedFile(flaws=(Flaw("The file is binary, so it is not shown."),)))
    document = read_document(text)
    flaws = [] if document.flaw is None else [document.flaw]
    body = _without_comments(document.body)
    front: Json = {"frontmatter": document.values} if document.values else {}
    records = tuple(
        ParsedRecord(
            id=f"{name}#{'/'.join(section.trail)}",
            text=section.body or section.heading,
            line=section.body_line if section.body else section.line,
            lines=section.lines,
            title=section.heading or first_line(section.body),
            kind=kind,
            metadata=({"headings": list(section.trail)} if section.trail else {}) | front,
        )
        for section in sections(body, first_line=document.body_line)
        if section.body or (section.is_leaf and section.heading)
    )
    lines = body.split("\n")
    imports: list[tuple[str, int]] = []
    for number, (line, is_fenced) in enumerate(zip(lines, fenced_lines(lines), strict=True)):
        at = document.body_line + number
        for match in () if is_fenced else _IMPORT.finditer(_CODE_SPAN.sub("``", line)):
            if (quoted := match["quoted"]) is None:
                target = match["path"].rstrip(".,;:!?)]}'\"*").replace("\\ ", " ")
                imports += [(target, at)] if target else []
            elif Path(quoted).suffix.lower() in _DOCUMENTS:
                plain = quoted.replace(" ", "\\ ")
                flaws.append(
                    Flaw(f"A path in quotes is not imported; write @{plain} to import it.", at)
                )
    if len(imports) > _IMPORT_COUNT:
        _, at = imports[_IMPORT_COUNT]
        flaws.append(Flaw(f"Only the first {_IMPORT_COUNT} imports are followed.", at))
    has_paths = bool(document.values.get("paths"))
    return _Sheet(ParsedFile(records, tuple(flaws)), tuple(imports[:_IMPORT_COUNT]), has_paths)


def _without_comments(body: str) -> str:
    """Return the text without the HTML comments that begin a line outside of code.

    Other text on their lines stays, and so does the number of lines.
    """
    lines = body.split("\n")
    fenced = fenced_lines(lines)
    number = 0
    while number < len(lines):
        start = number
        number += 1
        if fenced[start] or not _COMMENT_LINE.match(lines[start]):
            continue
        end = next((at for at in range(start, len(lines)) if "-->" in lines[at]), None)
        if end is None:
            break
        left = _COMMENT.sub("", "\n".join(lines[start : end + 1]))
        lines[start : end + 1] = [*[""] * (end - start), left if left.strip() else ""]
        number = end + 1
    return "\n".join(lines)
