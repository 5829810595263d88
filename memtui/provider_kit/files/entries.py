"""The base of the providers over files that list entries, which another program rewrites.

A provider names the files and finds the entries in them; the rest is here. The text between the
entries stays byte for byte, so an undo restores the same file.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from memtui.contract import (
    Capabilities,
    Conflict,
    CorrectReply,
    CorrectRequest,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    MemtuiError,
    Model,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Unavailable,
    WriteReply,
    WriteRequest,
)
from memtui.provider_kit import blocking
from memtui.provider_kit.files.adapter import ConfigT
from memtui.provider_kit.files.reading import (
    FileReader,
    Flaw,
    ParsedFile,
    ParsedRecord,
    digest,
    first_line,
    numbered,
    own_id,
    printable_id,
    resolved,
    sign,
)
from memtui.provider_kit.files.shared import (
    FileRights,
    SharedFile,
    changed_meanwhile,
    content_of,
    encoded,
    put,
    remove_if,
    rights_in,
    text_of,
)
from memtui.provider_kit.files.writing import WritableFilesAdapter, WrittenRecord, known_then

_LINE_END = re.compile(r"[ \t]*\r?\n")
_LAST_END = re.compile(r"[ \t]*\r?\n\Z")
_MARK = "\ufeff"
"""A byte order mark, which some editors write before a text."""


@dataclass(frozen=True, slots=True)
class EntriesFile:
    """A file of entries."""

    path: Path
    """Its path below the binding's folder is part of its records' ids."""
    kind: str = "note"
    """The kind of its records; a record of this kind is written into it."""
    most_chars: int | None = None
    """The most characters, from the first entry to the last, that the other program takes."""
    goes_when_empty: bool = field(default=False, compare=False)
    """It is removed once nothing is left in it."""
    rights: FileRights | None = field(default=None, compare=False)
    """The file's rights if it is created; None: those of the other program's files."""


class FileEntry(NamedTuple):
    """An entry: its place in a file's content, and its text."""

    start: int
    end: int
    text: str
    record: ParsedRecord | None = None
    """Its record, where it has an id or fields of its own."""
    inner: tuple[int, int] | None = None
    """The place of the text in the entry, whose other parts a correction leaves as they are.

    None: a correction writes the whole entry anew.
    """

    def around(self, content: str) -> tuple[str, str]:
        """Return what is before the text in the entry, and after it."""
        start, end = self.inner or (self.start, self.end)
        return content[self.start : start], content[end : self.end]


@dataclass(slots=True)
class _Part:
    """An entry: its lines in the file, its text, and the lines up to the next entry or the end."""

    written: str
    text: str
    gap: str
    own_id: str | None = None
    """Its id before equal ones are numbered; None: not known before it is read again."""
    around: tuple[str, str] = ("", "")
    """What is written in the entry before its text, and after it."""


class _Edited(NamedTuple):
    """A file's content after an edit."""

    content: bytes
    ids: dict[str, str]
    """The ids of its entries, each with the one before the edit, or empty."""


class _Around(Model):
    """What is around an entry: up to its neighbours, and before the first one."""

    before: str | None = None
    after: str | None = None
    head: str | None = None


class _Content:
    """A file's content, taken apart: `str` puts it together again."""

    def __init__(
        self, content: str, entries: Sequence[FileEntry], name: str, *, on_lines: bool = False
    ) -> None:
        self._on_lines = on_lines
        self.head = content[: entries[0].start] if entries else content
        self.line_end = "\r\n" if "\r\n" in content else "\n"
        ends = [*(one.start for one in entries[1:]), len(content)]
        self.parts = [
            _Part(
                content[one.start : one.end],
                one.text,
                content[one.end : end],
                one.record.id if one.record else record_id(name, one.text),
                one.around(content),
            )
            for one, end in zip(entries, ends, strict=False)
        ]

    def __str__(self) -> str:
        return self.head + "".join(one.written + one.gap for one in self.parts)

    @property
    def texts(self) -> list[str]:
        """The texts of the entries in order."""
        return [one.text for one in self.parts]

    def is_read_back(self, read: _Content) -> bool:
        """Whether the same entries were read from the content."""
        return len(self.parts) == len(read.parts) and all(
            one.text == there.text and one.own_id in {None, there.own_id}
            for one, there in zip(self.parts, read.parts, strict=True)
        )

    @property
    def size(self) -> int:
        """Characters from the first entry to the last."""
        return len(str(self)) - len(self.head) - (len(self.parts[-1].gap) if self.parts else 0)

    def places(self) -> dict[str, int]:
        """Return the place of each entry by its record id."""
        ids = numbered(one.own_id or "" for one in self.parts)
        return {one: place for place, one in enumerate(ids)}

    def counts(self) -> Counter[str | None]:
        """Return the number of entries of each id before equal ones are numbered."""
        return Counter(one.own_id for one in self.parts)

    def around(self, place: int) -> _Around:
        """Return what is around an entry."""
        is_last = place == len(self.parts) - 1
        return _Around(
            before=self.parts[place - 1].gap if place else None,
            after=None if is_last and not self._on_lines else self.parts[place].gap,
            head=None if place else self.head,
        )

    def insert(self, place: int, part: _Part, around: _Around, between: str) -> None:
        """Put an entry into its place, or at the end.

        `between`: the separator from its neighbours, if the entry had none.
        """
        if self._on_lines:
            self._put_back(place, part, around)
            return
        part.gap = between if around.after is None else around.after
        if place < len(self.parts):
            self.parts.insert(place, part)
        elif self.parts:
            last = self.parts[-1]
            part.gap, last.gap = last.gap, between if around.before is None else around.before
            self.parts.append(part)
        else:
            begins = around.head is not None and self.head.startswith(around.head)
            at = len(around.head or "") if begins else len(self.head)
            self.head, part.gap = self.head[:at], self.head[at:]
            self.parts.append(part)

    def remove(self, place: int) -> None:
        """Remove an entry and the separator after it; for the last one, the one before."""
        before, gone = self._gap(place), self.parts.pop(place)
        if self._on_lines:
            line_end = _line_end(gone.gap)
            stays = before if line_end else _without_line_end(before)
            self._set_gap(place, stays + gone.gap[len(line_end) :])
            return
        if place < len(self.parts):
            return
        if self.parts:
            self.parts[-1].gap = gone.gap
        else:
            self.head += gone.gap

    def add(self, at: int, part: _Part) -> None:
        """Add an entry, on a line of its own, before a line that begins at `at` between entries."""
        place, offset = 0, len(self.head)
        while place < len(self.parts) and offset < at:
            offset += len(self.parts[place].written) + len(self.parts[place].gap)
            place += 1
        gap = self._gap(place)
        before = gap[: len(gap) - max(0, offset - at)]
        said = before.rstrip()
        if not said and not place:
            before, part.gap = "", gap and self.line_end + gap
        elif line_end := _line_end(before[len(said) :]):
            before = said + line_end
            part.gap = self.line_end + gap[len(before) :]
        else:
            before, part.gap = said + self.line_end, before[len(said) :]
        self._set_gap(place, before)
        self.parts.insert(place, part)

    def _put_back(self, place: int, part: _Part, around: _Around) -> None:
        """Put an entry on a new line, after the entry that it followed if that still exists."""
        if not str(self):  # it went with its last entry
            self.head, part.gap = around.head or "", around.after or ""
            self.parts.append(part)
            return
        place = min(place, len(self.parts))
        gap, line_end = self._gap(place), _line_end(around.after or "")
        before = (around.before if place else around.head) or ""
        there = before if gap.startswith(before) else _without_line_end(before)
        if not gap.startswith(there):
            there = gap if place == 0 else _line_end(gap)
            before = there if not there or there.endswith("\n") else there + self.line_end
        after = gap[len(there) :]
        goes_on = place < len(self.parts) or after.strip()
        self._set_gap(place, before)
        part.gap = (line_end or (self.line_end if goes_on else "")) + after
        self.parts.insert(place, part)

    def _gap(self, place: int) -> str:
        """Return what is before an entry, or before the end."""
        return self.parts[place - 1].gap if place else self.head

    def _set_gap(self, place: int, gap: str) -> None:
        if place:
            self.parts[place - 1].gap = gap
        else:
            self.head = gap


def _line_end(text: str) -> str:
    """Return the blanks and the line end with which a text begins; empty: it has none there."""
    found = _LINE_END.match(text)
    return found[0] if found else ""


def _without_line_end(text: str) -> str:
    return _LAST_END.sub("", text)


def entries_at_lines(content: str, parsed: ParsedFile) -> Iterator[FileEntry | Flaw]:
    """Yield what was parsed of a file's content as its entries, by the lines of its records."""
    starts = [0]
    for line in content.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    for one in parsed.records:
        last = one.line + one.text.count("\n")
        first_line, last_line = one.lines or (one.line, last)
        start, end = starts[one.line - 1], starts[last] - 1
        stop = starts[last_line] - 1
        end, stop = (at - (content[at - 1 : at] == "\r") for at in (end, stop))
        if last == one.line and (found := content.find(one.text, start, end)) >= 0:
            start, end = found, found + len(one.text)
        yield FileEntry(starts[first_line - 1], stop, one.text, one, (start, end))
    yield from parsed.flaws


def record_id(name: str, text: str) -> str:
    """Return the id of an entry of a file: it has none but its text."""
    return f"{name}#{digest(text)}"


class EntriesAdapter(WritableFilesAdapter[ConfigT]):
    """Shows one record an entry, and changes the entries.

    A corrected entry gets another id, as an entry's id is made of its text. A text that a file has
    already is refused: the other program would keep only one of the two.
    """

    separator: ClassVar[str] = ""
    """The other program's separator of entries.

    Empty: each entry begins a line, and other text between entries, such as headings, stays.
    """
    settle_seconds: float = 0.0
    """How long a change is watched, and repeated where another program overwrites it."""
    capabilities = Capabilities(
        browse=True, correction=True, restore=True, full_text=True, watch=True, without=True
    )

    @abstractmethod
    def entry_files(self, reader: FileReader) -> Sequence[EntriesFile]:
        """Return the files; records of other kinds are written into the first.

        `reader` looks into folders, and lists those that cannot be read.
        """

    @abstractmethod
    def entries(self, content: str, file: EntriesFile) -> Iterable[FileEntry | Flaw]:
        """Yield the entries and unreadable parts of a file in order. Line ends may be CRLF."""

    def as_written(self, text: str, before: str = "", was: str = "") -> str:  # noqa: ARG002
        """Return a text as it is written in an entry, after `before` and in the place of `was`.

        Both are empty for a new entry; `was` is the whole entry where that has no `inner`.

        Raises:
            Invalid: the other program would read another text, or lose a part of the entry.
        """
        return text

    def place_of_new(self, content: str) -> int | None:
        """Return the line, by its place, before which a new entry is added; None: after the last.

        For entries on lines of their own.
        """
        return None if self.separator else len(content)

    def file_for(self, request: WriteRequest) -> EntriesFile:
        """Return the file of a write: the one of its kind, or else the first."""
        files = self.entry_files(FileReader())
        return next((one for one in files if one.kind == request.kind), files[0])

    def made(self, request: WriteRequest, file: EntriesFile) -> tuple[str, str]:
        """Return the id of a new entry, and how it is written."""
        return record_id(self.name_of(file), request.content), self.as_written(request.content)

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the files."""
        reader.look(self.config.path)  # a folder, to notice new files
        for file in self.entry_files(reader):
            if reader.look(file.path) is None:
                continue
            parsed = reader.parse(file.path, partial(self._parsed, file=file))
            if parsed is not None:
                yield file.path, parsed.dated(reader.modified(file.path))

    def name_of(self, file: EntriesFile) -> str:
        """Return the name of a file in its records' ids: its path below the binding's folder."""
        folder = self._folder
        is_inside = file.path.is_relative_to(folder)
        return file.path.relative_to(folder).as_posix() if is_inside else str(file.path)

    @property
    def _folder(self) -> Path:
        return self.config.path if self.holds == "folder" else self.config.path.parent

    def _parsed(self, content: str, file: EntriesFile) -> ParsedFile:
        found = [*self.entries(content, file)]
        name, line, at = self.name_of(file), 1, 0
        records: list[ParsedRecord] = []
        for one in found:
            if isinstance(one, FileEntry):
                begins = one.inner[0] if one.inner else one.start
                line, at = line + content.count("\n", at, begins), begins
                records.append(
                    replace(one.record, line=line) if one.record else ParsedRecord(
                        id=record_id(name, one.text), text=one.text, line=line,
                        title=first_line(one.text), kind=file.kind,
                    )
                )  # fmt: skip
        return ParsedFile(tuple(records), tuple(one for one in found if isinstance(one, Flaw)))

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Add an entry at the end of the file of its kind."""
        file = self.file_for(request)
        known = self.known_of(request, kind=None if request.kind == file.kind else request.kind)
        with self.changing():
            name, written = self.made(request, file)
            handle = self._handle(printable_id(name))
            self._refuse_twice(handle, request.content)
            part = _Part(written, request.content, "", name)
            before = Snapshot(handle=handle, record=None, state={"is_new": not file.path.exists()})
            added = self._edit(file, partial(self._with_added, part=part))
            self._change({file: added}, {handle.provider_record_id: known})
        return WriteReply(records=(handle,), before=(before,))

    def _refuse_twice(self, handle: RecordHandle, text: str) -> None:
        there = self._load()[0].get(handle.provider_record_id)
        if there is not None:
            path = there.location.path if there.location else self.config.path
            raise Conflict(
                f"{path} has this text already, and keeps each only once; change that record.",
                current=there,
                proposed=text,
            )

    def _with_added(self, content: _Content, part: _Part) -> None:
        if part.own_id in content.counts():
            return
        written = part.written.replace("\n", content.line_end)
        added = replace(part, written=written)
        if (at := self.place_of_new(str(content))) is not None:
            content.add(at, added)
            return
        content.insert(len(content.parts), added, _Around(head=""), self.separator)

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change an entry's text in its place."""
        old, text = request.handle.provider_record_id, request.text
        with self.changing():
            record, known = self.to_correct(request)
            if text is None or text == record.text:
                self.keep_known({old: known} if known else {})
                return CorrectReply(handle=request.handle)
            file = self._by_path()[_place_of(record)]
            edit = self._edit(
                file, partial(self._with_text, name=old, before=record.text, text=text)
            )
            ids = edit(content_of(file.path) or b"").ids
            name = next((new for new, before in ids.items() if before == old), None)
            if name is None:
                raise changed_meanwhile(file.path)
            if name != old:
                self._refuse_twice(self._handle(own_id(name)), text)
            self._change({file: edit}, {name: known}, [old])
        return CorrectReply(handle=self._handle(name))

    def _with_text(self, content: _Content, name: str, before: str, text: str) -> None:
        place = content.places().get(name)
        part = None if place is None else content.parts[place]
        if part is not None and part.text == before:
            lead, tail = part.around
            was = part.written[len(lead) : len(part.written) - len(tail)]
            new = lead + self.as_written(text, lead, was) + tail
            part.written, part.text, part.own_id = new.replace("\n", content.line_end), text, None
        elif text not in content.texts:
            raise Conflict("Another program changed the entry at this moment; read it again.")

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Take entries out."""
        with self.changing():
            there, reply = self.to_forget(request)
            gone: dict[EntriesFile, list[str]] = {}
            files = self._by_path() if there else {}
            for name, record in there.items():
                gone.setdefault(files[_place_of(record)], []).append(name)
            edits = {
                file: self._edit(file, partial(_without, names=names))
                for file, names in gone.items()
            }
            self._change(edits, {}, there)
        return reply

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each entry's text in the file, its place, and its neighbours."""
        read: dict[EntriesFile, tuple[_Content, dict[str, int], Counter[str | None]]] = {}
        taken: list[Snapshot] = []
        there = self._find_all(handles, scope)
        files = self._by_path() if any(there.values()) else {}
        for handle in handles:
            record, name = there[handle], handle.provider_record_id
            state: Json = {}
            if record is not None:
                file = files[_place_of(record)]
                if file not in read:
                    content = self._taken_apart(file, content_of(file.path) or b"")
                    read[file] = content, content.places(), content.counts()
                content, places, counts = read[file]
                if (place := places.get(name)) is None:
                    raise changed_meanwhile(file.path)
                part = content.parts[place]
                state = {
                    "file": self.name_of(file),
                    "rights": FileRights.of(file.path),
                    "place": place,
                    "written": part.written,
                    "own_id": part.own_id,
                    "equal": counts[part.own_id],
                    "around": content.around(place).model_dump(),
                    "known": self.known_json(name),
                }
            taken.append(Snapshot(handle=handle, record=record, state=state))
        return taken

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put entries back into their places; remove those whose snapshot has no record."""
        by_path = self._by_path()
        files = {self.name_of(file): file for file in by_path.values()}
        back = [one for one in snapshots if one.record is not None]
        with self.changing():
            away: dict[EntriesFile, list[str]] = {}
            for one in snapshots:
                if one.record is None and (there := self._find(one.handle, scope)) is not None:
                    file, name = by_path[_place_of(there)], one.handle.provider_record_id
                    if one.state.get("is_new"):
                        file = replace(file, goes_when_empty=True)
                    away.setdefault(file, []).append(name)
            stays: dict[EntriesFile, list[Snapshot]] = {}
            for one in sorted(back, key=lambda one: int(one.state["place"])):
                name = str(one.state["file"])
                file = files.get(name) or EntriesFile(self._folder / name, goes_when_empty=True)
                file = replace(file, rights=rights_in(one.state))
                stays.setdefault(file, []).append(one)
            edits = {
                file: self._edit(
                    file,
                    partial(self._as_before, gone=away.get(file, []), back=stays.get(file, [])),
                )
                for file in {**away, **stays}
            }
            known = {one.handle.provider_record_id: known_then(one) for one in back}
            self._change(edits, known, (one for names in away.values() for one in names))
        return WriteReply(records=tuple(one.handle for one in back))

    def _as_before(self, content: _Content, gone: Sequence[str], back: Sequence[Snapshot]) -> None:
        _without(content, gone)
        counts = content.counts()
        for one in back:
            state, text = one.state, one.record.text if one.record else ""
            part = _Part(str(state["written"]), text, "", state["own_id"])
            missing = int(state["equal"]) - counts[part.own_id]
            if missing > 0:
                around = _Around.model_validate(state["around"])
                content.insert(int(state["place"]), part, around, self.separator)
                counts[part.own_id] += 1
                continue
            there = content.places().get(one.handle.provider_record_id)
            if there is not None and missing < 0:
                content.remove(there)  # then the next of that id was in its place
                counts[part.own_id] -= 1
            elif there is not None and content.parts[there].text != part.text:
                content.parts[there] = replace(part, gap=content.parts[there].gap)

    def _by_path(self) -> dict[str, EntriesFile]:
        """Return the files by their paths."""
        return {str(one.path): one for one in self.entry_files(FileReader())}

    def _taken_apart(self, file: EntriesFile, read: bytes) -> _Content:
        content = text_of(read, file.path)
        text = content.removeprefix(_MARK)
        found = [one for one in self.entries(text, file) if isinstance(one, FileEntry)]
        apart = _Content(text, found, self.name_of(file), on_lines=not self.separator)
        apart.head = content[: len(content) - len(text)] + apart.head
        return apart

    def _change(
        self,
        edits: Mapping[EntriesFile, Callable[[bytes], _Edited]],
        known: Mapping[str, WrittenRecord | None],
        gone: Iterable[str] = (),
    ) -> None:
        """Edit files, each under the other program's lock; call it within `changing`.

        `known` is stored first, as a record without an owner would be everybody's. If the ids of
        equal entries change, because one is added or removed, `known` follows them; for `gone` it
        is removed.
        """
        ids, is_changed = dict[str, str](), False
        with ExitStack() as held:
            for file in edits:
                held.enter_context(self.locked(file.path))
            for file, edit in edits.items():  # what is refused leaves all files as they were
                ids |= edit(content_of(file.path) or b"").ids
            moved = {new: self._known.get(old) for new, old in ids.items() if old and new != old}
            held.enter_context(self.known_first({**moved, **known}))
            for file, edit in edits.items():
                try:
                    self._change_one(file, edit)
                except MemtuiError as error:
                    raise Unavailable(str(error), sent=True) if is_changed else error from error
                is_changed = True
        self.keep_known(dict.fromkeys({*gone, *ids.values()} - {*ids}))

    def _edit(
        self, file: EntriesFile, edit: Callable[[_Content], None]
    ) -> Callable[[bytes], _Edited]:
        """Return an edit of a file's content; what it made of a content last is not made again."""
        return lru_cache(maxsize=2)(partial(self._edited, file, edit))

    def _edited(
        self, file: EntriesFile, edit: Callable[[_Content], None], content: bytes
    ) -> _Edited:
        apart = self._taken_apart(file, content)
        size = apart.size
        parts = [*apart.parts]  # kept, so that no new one has the identity of one that went
        before = {id(part): name for part, name in zip(parts, apart.places(), strict=True)}
        edit(apart)
        changed = encoded(str(apart))
        read = self._taken_apart(file, changed)
        if not apart.is_read_back(read):
            raise Invalid(
                f"After this change, other entries would be read from {file.path}; make it in "
                "the file by hand."
            )
        if file.most_chars is not None and apart.size > max(size, file.most_chars):
            raise Invalid(
                f"{file.path} would have {apart.size:,} characters, and {file.most_chars:,} "
                "are its limit; forget or shorten one of its entries."
            )
        ids = {
            name: before.get(id(part), "")
            for name, part in zip(read.places(), apart.parts, strict=True)
        }
        return _Edited(changed, ids)

    def _change_one(self, file: EntriesFile, edit: Callable[[bytes], _Edited]) -> None:
        is_new = not file.path.is_symlink() and sign(file.path) is None
        there = next(one for one in file.path.parents if sign(one)) if is_new else file.path
        real, root = resolved(there), resolved(self._folder)
        if self.holds == "file" and real is not None:
            root = real  # the person has named this very file
        if real is None or root is None or not real.is_relative_to(root):
            raise Invalid(
                f"{file.path} leads nowhere or out of {self.config.path}, so it is not changed "
                "here; change it there, or replace the link with a file."
            )
        if is_new:
            put(file.path, None, edit(b"").content, marker=self.marker, rights=file.rights)
            return
        shared = SharedFile(real, marker=self.marker, settle_seconds=self.settle_seconds)
        left = shared.change(lambda content: edit(content).content)
        if file.goes_when_empty and not left.strip():
            remove_if(real, lambda content: not content.strip())

    @contextmanager
    def locked(self, path: Path) -> Iterator[None]:  # noqa: ARG002
        """Hold the other program's lock of a file; by default there is none."""
        yield


def _place_of(record: Record) -> str:
    return record.location.path if record.location else ""


def _without(content: _Content, names: Sequence[str]) -> None:
    there = content.places()
    for place in sorted((there[name] for name in names if name in there), reverse=True):
        content.remove(place)
