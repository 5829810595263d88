"""The auto memory of Claude Code: `~/.claude/projects/<slug>/memory/`.

`MEMORY.md` is an index whose first 200 lines or 25,000 bytes are loaded into every session; each
other file is one memory with frontmatter, flat (`type`, `originSessionId`) or with those keys
under `metadata`. `loaded` in a record's metadata is the part that a new session sees: `text`,
`part` (truncated), `hook` (only its line in the index) or `no`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import ClassVar

from memtui.backends.claude_memory.texts import (
    HOOK_CHARS,
    INDEX,
    INDEX_KIND,
    NESTED,
    SESSION,
    IndexLine,
    composed,
    entries_of,
    parse_index,
    parse_memory,
    whole_section,
    with_block,
    with_body,
    with_entry,
    with_hook,
    with_lines,
    with_section,
    without_entries,
    without_section,
)
from memtui.contract import (
    Capabilities,
    CorrectReply,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    MemtuiError,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Unavailable,
    WriteReply,
    WriteRequest,
)
from memtui.paths import sync_folder
from memtui.provider_kit import (
    blocking,
    check_revision,
    refused_by_system,
    require_unprotected,
)
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.reading import (
    FileReader,
    ParsedFile,
    ParsedRecord,
    first_line,
    resolved,
    slug,
)
from memtui.provider_kit.files.shared import (
    FileRights,
    SharedFile,
    content_of,
    create,
    rights_in,
    text_of,
)
from memtui.provider_kit.files.writing import WritableFilesAdapter, known_then

_DEPTH = 4
_TYPES = ("user", "feedback", "reference", "project")
"""Claude Code's types of memories; the last one is used for all other kinds."""


class ClaudeMemoryConfig(FilesConfig):
    """A Claude Code project's auto memory: its `memory` folder."""


class ClaudeMemoryAdapter(WritableFilesAdapter[ClaudeMemoryConfig]):
    """Shows a project's auto memory: one record per file, and per section of the index's own text.

    A write creates a file, with the frontmatter format of the others, and a line in the index. A
    correction changes the text, and also the description and the index line if they repeat its
    first line. Forgetting removes the file and its line.
    """

    key: ClassVar[str] = "claude-memory"
    config_model = ClaudeMemoryConfig
    inside = "memory/MEMORY.md"
    capabilities = Capabilities(
        browse=True, correction=True, restore=True, full_text=True, watch=True, without=True
    )

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read the index, then every memory."""
        folder = self.config.path
        paths = reader.files(folder, ".md", depth=_DEPTH)
        names = {path.relative_to(folder).as_posix(): path for path in paths}
        links: dict[str, IndexLine] = {}
        index_path = names.pop(INDEX, None)
        if index_path is not None and (text := reader.parse(index_path, str)) is not None:
            index = parse_index(text, frozenset(names))  # not cached, as it depends on the names
            links = index.links
            modified = reader.modified(index_path)
            dated = (replace(entry, updated_at=modified) for entry in index.parsed.records)
            yield index_path, replace(index.parsed, records=tuple(dated))
        for name, path in names.items():
            parsed = reader.parse(path, partial(parse_memory, name=name))
            if parsed is not None:
                entries = (self._placed(entry, path, links, reader) for entry in parsed.records)
                yield path, replace(parsed, records=tuple(entries))

    def _placed(
        self, entry: ParsedRecord, path: Path, links: dict[str, IndexLine], reader: FileReader
    ) -> ParsedRecord:
        link = links.get(entry.id)
        metadata: Json = {**entry.metadata, "loaded": "hook" if link and link.loaded else "no"}
        if link is not None:
            metadata |= {"index_line": link.line, "hook": link.hook}
        transcript: Path | None = None
        if entry.run_id is not None:
            transcript = self.config.path.parent / f"{entry.run_id}.jsonl"
            found = reader.look(transcript)
            if found is None or not found.is_file:
                metadata["transcript"] = "missing"
                transcript = None
        return replace(
            entry,
            updated_at=entry.updated_at or reader.modified(path),
            external_ref=None if transcript is None else str(transcript),
            title=entry.title or (link.title if link else None) or path.stem,
            metadata=metadata,
        )

    # Changes

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Add a file, and its line to the index."""
        kind = request.kind if request.kind in _TYPES else _TYPES[-1]
        is_own_type = request.kind in {*_TYPES, "note"}
        known = self.known_of(request, kind=None if is_own_type else request.kind)
        title = " ".join((request.title or "").split()) or first_line(request.content)
        hook = first_line(request.content, HOOK_CHARS)
        own = {"node_type": "memory", "type": kind}
        run_id = request.source.run_id if request.source else None
        if run_id is not None and SESSION.fullmatch(run_id):
            own["originSessionId"] = run_id
        with self.changing():
            values = {"name": title, "description": hook}
            content = composed(values, own, request.content, is_flat=self._is_flat())
            name = self._free_name(f"{kind}_{slug(title)}")
            self.keep_known({name: known})  # first: without its owner, everybody would see it
            try:
                self._change_index(partial(with_entry, name=name, title=title, hook=hook))
                try:
                    self._create(name, content)
                except MemtuiError:
                    self._change_index(partial(without_entries, names={name}))
                    raise
            except MemtuiError:
                self.keep_known({name: None})
                raise
        handle = self._handle(name)
        return WriteReply(records=(handle,), before=(Snapshot(handle=handle, record=None),))

    def _is_flat(self) -> bool:
        """Whether there are memories, and all have the older flat frontmatter."""
        there = [one.metadata for one in self._load()[0].values() if one.kind != INDEX_KIND]
        return bool(there) and not any(one.get("generation") == NESTED for one in there)

    def _free_name(self, stem: str) -> str:
        names = (f"{stem}.md" if number == 1 else f"{stem}_{number}.md" for number in count(1))
        return next(name for name in names if not self._place(name).exists())

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change the text of a memory, or of a section of the index."""
        name, text = request.handle.provider_record_id, request.text
        with self.changing():
            record = self._find(request.handle, request.scope)
            if record is None:
                raise self.missing(request.handle)
            check_revision(record, request.revision, text)
            known = self.corrected(name, request)
            if text is not None and text != record.text:
                if record.kind == INDEX_KIND:
                    self._change_index(partial(with_section, record=record, text=text))
                else:
                    file = self._file_of(record)
                    new = record.model_copy(update={"text": text})
                    self._change_index(partial(with_hook, name=file, record=record, text=text))
                    try:
                        self._change(file, partial(with_body, record=record, text=text))
                    except MemtuiError:
                        back = partial(with_hook, name=file, record=new, text=record.text)
                        self._change_index(back)
                        raise
            if name in self._known or (request.topic, request.tags) != (None, None):
                self.keep_known({name: known})
        return CorrectReply(handle=request.handle)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove memories with their index lines, and sections of the index itself."""
        with self.changing():
            there = self._find_all(request.handles, request.scope)
            for handle, record in there.items():
                if record is not None:
                    check_revision(record, request.revisions.get(handle.provider_record_id))
            gone = {one: record for one, record in there.items() if record is not None}
            refused = self._remove(gone, request.scope)
            self.keep_known(self._unknown_by_now())
        missing = tuple(one for one in there if one not in gone)
        return ForgetReply(missing=missing, refused=refused)

    def _remove(self, gone: Mapping[RecordHandle, Record], scope: Scope) -> dict[str, str]:
        """Remove memories; return the reasons, by record id, for files that stay."""
        self._check_index()
        names = {
            one.provider_record_id: self._file_of(record)
            for one, record in gone.items()
            if record.kind != INDEX_KIND
        }
        refused: dict[str, str] = {}
        for record_id, name in names.items():
            try:
                require_unprotected(self._place(name), str(self._place(name)))
            except MemtuiError as error:
                refused[record_id] = str(error)
        going = {one: name for one, name in names.items() if one not in refused}
        is_changed = False
        try:
            for handle in [one for one, record in gone.items() if record.kind == INDEX_KIND]:
                if (now := self._find(handle, scope)) is not None:  # its place may have changed
                    self._change_index(partial(without_section, record=now))
                    is_changed = True
            entries = entries_of(self._index_text().split("\n"))
            self._change_index(partial(without_entries, names=frozenset(going.values())))
            is_changed = is_changed or bool(going)
            for record_id, name in going.items():
                try:
                    self._unlink(name)
                except MemtuiError as error:
                    refused[record_id] = str(error)
            stay = [line for one in refused for line in entries.get(names[one], [])]
            self._change_index(partial(with_lines, added=sorted(stay)))
        except MemtuiError as error:
            raise (Unavailable(str(error), sent=True) if is_changed else error) from error
        return refused

    def _unknown_by_now(self) -> dict[str, None]:
        """Return the ids of removed memories, including those that a killed process removed."""
        there = self._load()[0]
        absent = (one for one in self._known if one not in there)
        return dict.fromkeys(one for one in absent if not self._place(one).exists())

    def _unlink(self, name: str) -> None:
        path = self._place(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise refused_by_system(str(path), error) from error
        with suppress(OSError):  # the removal succeeded; the system syncs the folder later
            sync_folder(path.parent)

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each memory with its file and its index lines."""
        index = self._index_text()
        entries = entries_of(index.split("\n"))
        taken: list[Snapshot] = []
        there = self._find_all(handles, scope)
        for handle in handles:
            record, name = there[handle], handle.provider_record_id
            state: Json = {}
            if record is not None:
                state["known"] = self.known_json(name)
                if record.kind == INDEX_KIND:
                    state["at"], state["lines"] = whole_section(index, record)
                else:
                    file = self._file_of(record)
                    state |= {"file": file, "content": self._content(file)}
                    state["rights"] = FileRights.of(self._place(file))
                    state["lines"] = entries.get(file, [])
            taken.append(Snapshot(handle=handle, record=record, state=state))
        return taken

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Restore memories and their index lines; remove those whose snapshot has no record."""
        back = [one for one in snapshots if one.record is not None]
        files = [one for one in back if "file" in one.state]
        with self.changing():
            self._check_index()
            away = {
                one.handle: self._find(one.handle, scope) for one in snapshots if not one.record
            }
            there = {one: record for one, record in away.items() if record is not None}
            if there and (refused := self._remove(there, scope)):
                why = next(iter(refused.values()))
                if len(refused) == len(there):
                    raise Denied(why)
                raise Unavailable(why, sent=True)
            for place in [self._place(one.state["file"]) for one in files]:
                require_unprotected(place, str(place))
            # A file needs its source beside it; a change of the source alone looks like the undo.
            known = {one.handle.provider_record_id: known_then(one) for one in back}
            gone = [one.handle for one in back if self._find(one.handle, scope) is None]
            first = {one.provider_record_id for one in gone}
            self.keep_known({one: known[one] for one in first})
            try:
                for one in back:
                    if "file" not in one.state:
                        self._put_section_back(one, scope)
                self._change_index(partial(_with_lines_of, taken=files))
                for one in files:
                    self._put_file_back(one, scope)
            except MemtuiError as error:
                raise Unavailable(str(error), sent=True) from error
            self.keep_known({**known, **self._unknown_by_now()})
        return WriteReply(records=tuple(one.handle for one in snapshots))

    def _put_section_back(self, taken: Snapshot, scope: Scope) -> None:
        edit = partial(with_block, at=taken.state["at"], block=taken.state["lines"])
        now = self._find(taken.handle, scope)
        if now is not None and taken.record is not None:
            edit = partial(with_section, record=now, text=taken.record.text)
        self._change_index(edit)

    def _put_file_back(self, taken: Snapshot, scope: Scope) -> None:
        name, content = taken.state["file"], str(taken.state["content"])
        if self._find(taken.handle, scope) is None:
            self._create(name, content, rights_in(taken.state))
        else:
            self._change(name, lambda _: content)

    def _file_of(self, record: Record) -> str:
        """Return a memory's file name; its id is the printable form of that."""
        path = self._place(record.location.path if record.location else "")
        return path.relative_to(self.config.path).as_posix()

    def _place(self, name: str) -> Path:
        return self.config.path / name

    def _index_text(self) -> str:
        return self._content(INDEX)

    def _content(self, name: str) -> str:
        """Return a file's exact text; empty: there is none. Raises `Invalid` if it is not UTF-8."""
        return text_of(content_of(self._place(name)) or b"", self._place(name))

    def _create(self, name: str, content: str, rights: FileRights | None = None) -> None:
        try:
            create(self._place(name), content.encode(), rights)
        except UnicodeEncodeError as error:
            problem = (
                "The text contains half a character (a lone surrogate), which no file can store; "
                "remove it."
            )
            raise Invalid(problem) from error
        except OSError as error:
            raise refused_by_system(str(self._place(name)), error) from error

    def _check_index(self) -> None:
        """Raise `Denied` if the index is write-protected, before any file is changed."""
        require_unprotected(self._place(INDEX), str(self._place(INDEX)))

    def _change_index(self, edit: Callable[[str], str]) -> None:
        if self._place(INDEX).exists():
            self._change(INDEX, edit)
        elif content := edit(""):
            self._create(INDEX, content)

    def _change(self, name: str, edit: Callable[[str], str]) -> None:
        def changed(content: bytes) -> bytes:
            try:
                return edit(content.decode()).encode()
            except UnicodeError as error:
                raise self._not_text(name) from error

        real, root = resolved(self._place(name)), resolved(self.config.path)
        if real is None or root is None or not real.is_relative_to(root):
            raise Invalid(
                f"{self._place(name)} is a link that leads nowhere or out of its folder; replace "
                "it with a file first."
            )
        SharedFile(real, marker=self.marker).change(changed)

    def _not_text(self, name: str) -> Invalid:
        return Invalid(f"{self._place(name)} or the new text is not UTF-8; fix it first.")


def _with_lines_of(content: str, taken: Sequence[Snapshot]) -> str:
    """Return an index in which the memories of snapshots have exactly their earlier lines."""
    lines = [(at, line) for one in taken for at, line in one.state["lines"]]
    return with_lines(without_entries(content, {one.state["file"] for one in taken}), sorted(lines))
