"""The base of the providers over folders in which each file is one memory, under git or not.

A provider says which files those are, how one is parsed, and how one is written. Each change is one
commit where the folder is a repository, and an undo is one more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

from memtui.contract import (
    BindingContext,
    Capabilities,
    CorrectReply,
    CorrectRequest,
    Denied,
    EraseReply,
    EraseRequest,
    ForgetReply,
    ForgetRequest,
    Json,
    MemtuiError,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    WriteReply,
    WriteRequest,
)
from memtui.provider_kit import blocking, check_revision, require_unprotected
from memtui.provider_kit.files.adapter import ConfigT
from memtui.provider_kit.files.committed import CommittedFiles, ContentChange
from memtui.provider_kit.files.reading import FileReader, ParsedFile, printable_id
from memtui.provider_kit.files.shared import FileRights, rights_in, text_of
from memtui.provider_kit.files.writing import WritableFilesAdapter, WrittenRecord, known_then


class WholeFilesAdapter(WritableFilesAdapter[ConfigT]):
    """Shows one record a file; its id is the file's path in the folder."""

    capabilities = Capabilities(
        browse=True, correction=True, history=True, restore=True, full_text=True, watch=True,
        without=True,
    )  # fmt: skip

    def __init__(self, context: BindingContext, config: ConfigT) -> None:
        super().__init__(context, config)
        note = context.data_dir / "uncommitted.json"
        self.files = CommittedFiles(config.path, note=note, marker=self.marker)

    @abstractmethod
    def memories(self, reader: FileReader) -> Iterable[Path]:
        """Return the files."""

    @abstractmethod
    def parse(self, content: str, name: str) -> ParsedFile:
        """Return the one record of a file; line ends are newlines."""

    @abstractmethod
    def composed(self, request: WriteRequest) -> tuple[str, str, bytes]:
        """Return the folder, the name without its ending, and the content of a new file.

        Raises:
            Invalid: it would not read back as this text.
        """

    @abstractmethod
    def with_text(self, record: Record, content: bytes, text: str) -> bytes:
        """Return a file with another text.

        Raises:
            Conflict: its text is no longer the record's.
            Invalid: it would not read back as this text.
        """

    def own_kinds(self) -> frozenset[str]:
        """Return the kinds that a file itself tells; others are kept beside it."""
        return frozenset({"note"})

    def protected(self, record: Record) -> str | None:  # noqa: ARG002
        """Return why the other program lets nobody remove a file; None: it may go."""
        return None

    def check(self, name: str, content: bytes) -> None:
        """Raise `Invalid` for a content with which the other program could not work."""
        del name, content

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the folder, and commit what a killed process could not."""
        adapter = await super().open(context)
        await adapter.finish()
        return adapter

    @blocking
    def finish(self) -> None:
        """Commit what a killed process could not, if that is possible."""
        if self.capabilities.writable and self.files.is_unfinished:
            with suppress(MemtuiError), self.changing():
                self.files.finish()  # otherwise the next change tries again, and says why not

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read every file."""
        for path in self.memories(reader):
            name = path.relative_to(self.config.path).as_posix()
            parsed = reader.parse(path, partial(self.parse, name=name))
            if parsed is not None:
                modified = reader.modified(path)
                dated = tuple(replace(one, updated_at=modified) for one in parsed.records)
                yield path, replace(parsed, records=dated)

    @blocking
    def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a memory's commits, with their authors, and what is not committed yet."""
        record = self._find(handle, scope)
        if record is None:
            return []
        name = self.file_of(record)
        with self.files.repository() as git:
            commits = [] if git is None else git.versions(name)
        versions: list[RecordVersion] = []
        ends = None
        for one in commits:
            begins = min(filter(None, (one.moment, ends)), default=None)
            if one.content is not None:
                content = one.content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
                source = SourceRef(
                    kind=SourceKind.EXTERNAL_DOCUMENT, company_id=scope.company_id,
                    external_ref=one.commit,
                )  # fmt: skip
                versions.append(RecordVersion(
                    text=self.parse(content, name).records[0].text, valid_from=begins,
                    valid_to=ends, created_by=one.author, source=source,
                ))  # fmt: skip
            ends = begins
        if not versions or versions[0].text != record.text:
            since = None if versions else record.updated_at
            now = RecordVersion(text=record.text, valid_from=since, created_by=record.created_by)
            versions.insert(0, now)
        return versions

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase what memtui knows of removed memories; the commits stay."""
        reply = await super().erase(request)
        if not self.files.has_history:
            return reply
        kept = (
            f"The git history of {self.config.path} and its copies elsewhere keep every text that "
            "was committed; stop the agent, remove them with `git filter-repo`, and push that."
        )
        return reply.model_copy(update={"beyond": (kept,)})

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Add a file."""
        is_own = request.kind in self.own_kinds()
        known = self.known_of(request, kind=None if is_own else request.kind)
        folder, stem, content = self.composed(request)
        with self.changing():
            name = self._free_name(folder, stem)
            change = ContentChange(None, content)
            self._change({name: change}, {name: known}, "write", request.created_by)
        handle = self._handle(name)
        return WriteReply(records=(handle,), before=(Snapshot(handle=handle, record=None),))

    def _free_name(self, folder: str, stem: str) -> str:
        names = (f"{stem}.md" if number == 1 else f"{stem}-{number}.md" for number in count(1))
        paths = (f"{folder}/{name}".lstrip("/") for name in names)
        return next(one for one in paths if not (self.config.path / one).exists())

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a memory's text."""
        name, text = request.handle.provider_record_id, request.text
        with self.changing():
            record = self._find(request.handle, request.scope)
            if record is None:
                raise self.missing(request.handle)
            check_revision(record, request.revision, text)
            known: WrittenRecord | None = self.corrected(name, request)
            if name not in self._known and (request.topic, request.tags) == (None, None):
                known = None
            if text is None or text == record.text:
                self.keep_known({name: known} if known else {})
                return CorrectReply(handle=request.handle)
            if record.read_only:
                raise Denied(self.protected(record) or f"{name} is read-only.")
            file = self.file_of(record)
            before = self.files.content(file)
            change = ContentChange(before, self.with_text(record, before or b"", text))
            self._change({file: change}, {name: known}, "correct", request.created_by)
        return CorrectReply(handle=request.handle)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove files. Those that are protected stay."""
        with self.changing():
            there = self._find_all(request.handles, request.scope)
            gone: dict[str, Record] = {}
            refused: dict[str, str] = {}
            for handle, record in there.items():
                if record is not None:
                    name = handle.provider_record_id
                    check_revision(record, request.revisions.get(name))
                    if reason := self._stays(record):
                        refused[name] = reason
                    else:
                        gone[name] = record
            names = map(self.file_of, gone.values())
            away = {one: ContentChange(self.files.content(one), None) for one in names}
            self._change(away, {}, "forget")
            self.keep_known(dict.fromkeys(gone))
        missing = tuple(one for one, record in there.items() if record is None)
        return ForgetReply(missing=missing, refused=refused)

    def _stays(self, record: Record) -> str | None:
        path = self.config.path / self.file_of(record)
        try:
            require_unprotected(path, str(path))
        except Denied as error:
            return str(error)
        return self.protected(record)

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each memory with its file."""
        taken: list[Snapshot] = []
        there = self._find_all(handles, scope)
        for handle in handles:
            record, state = there[handle], Json()
            if record is not None:
                name = self.file_of(record)
                path = self.config.path / name
                state = {
                    "file": name,
                    "content": text_of(self.files.content(name) or b"", path),
                    "rights": FileRights.of(path),
                    "known": self.known_json(handle.provider_record_id),
                }
            taken.append(Snapshot(handle=handle, record=record, state=state))
        return taken

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put files back as they were; remove those whose snapshot has no record."""
        back = [one for one in snapshots if one.record is not None]
        with self.changing():
            changes: dict[str, ContentChange] = {}
            away: list[str] = []
            gone = [one.handle for one in snapshots if one.record is None]
            for handle, record in self._find_all(gone, scope).items():
                if record is not None:
                    if reason := self._stays(record):
                        raise Denied(reason)
                    name = self.file_of(record)
                    changes[name] = ContentChange(self.files.content(name), None)
                    away.append(handle.provider_record_id)
            for one in back:
                name, then = one.state["file"], str(one.state["content"]).encode()
                before = self.files.content(name)
                changes[name] = ContentChange(before, then, rights_in(one.state))
            known = {one.handle.provider_record_id: known_then(one) for one in back}
            self._change(changes, known, "undo a change of")
            self.keep_known(dict.fromkeys(away))
        return WriteReply(records=tuple(one.handle for one in back))

    def file_of(self, record: Record) -> str:
        """Return a record's path in the folder."""
        place = Path(record.location.path if record.location else "")
        return place.relative_to(self.config.path).as_posix()

    def _change(
        self,
        changes: Mapping[str, ContentChange],
        known: Mapping[str, WrittenRecord | None],
        what: str,
        author: str | None = None,
    ) -> None:
        """Change files and commit them; call it within `changing`. If that fails, all stay.

        `known` is stored first: a record without its owner is everybody's.
        """
        if not changes:
            return
        for name, change in changes.items():
            if change.after is not None:
                self.check(name, change.after)
        first, *others = changes
        subject = f"{len(changes)} files" if others else printable_id(first)
        before = {name: self._known.get(name) for name in known}
        self.keep_known(known)
        try:
            self.files.change(changes, f"memtui: {what} {subject}", author)
        except MemtuiError:
            self.keep_known(before)
            raise
