"""The base of the providers over folders in which each file is one memory, under git or not.

A provider says which files those are, how one is parsed, and how one is written. Each change is one
commit where the folder is a repository, and an undo is one more.
"""

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import ClassVar, Self

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
    Unsupported,
    WriteReply,
    WriteRequest,
)
from memtui.provider_kit import blocking, require_unprotected
from memtui.provider_kit.files.adapter import ConfigT
from memtui.provider_kit.files.committed import CommittedFiles, FilesDraft
from memtui.provider_kit.files.reading import FileReader, ParsedFile, is_gone, printable_id
from memtui.provider_kit.files.shared import FileRights, rights_in, text_of
from memtui.provider_kit.files.writing import WritableFilesAdapter, WrittenRecord, known_then


class WholeFilesAdapter(WritableFilesAdapter[ConfigT]):
    """Shows one record a file; its id is the file's path in the folder."""

    capabilities = Capabilities(
        browse=True, correction=True, history=True, restore=True, full_text=True, watch=True,
        without=True,
    )  # fmt: skip

    between: ClassVar[str] = "-"
    """The separator before the number of a second file with the same name."""
    is_committed: ClassVar[bool] = True
    """Whether the other program commits its changes where the folder is a repository."""

    def __init__(self, context: BindingContext, config: ConfigT) -> None:
        super().__init__(context, config)
        note = context.data_dir / "uncommitted.json"
        self.files = CommittedFiles(
            config.path, note=note, marker=self.marker, is_committed=self.is_committed
        )

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
        """Return the kinds that a file expresses itself; others are stored beside it."""
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
                yield path, parsed.dated(reader.modified(path))

    @blocking
    def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a memory's commits, with their authors, and what is not committed yet."""
        if not self.capabilities.history:
            raise Unsupported(f"The provider {self.key} keeps no history.")
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
        with self.changing():
            draft = self.draft()
            folder, stem, content = self.composed(request)
            name = self._free_name(folder, stem)
            before = self.added(draft, name, request)
            draft[name] = content
            self._change(draft, {name: known}, "write", request.created_by)
        handle = self._handle(name)
        taken = Snapshot(handle=handle, record=None, state=before)
        return WriteReply(records=(handle,), before=(taken,))

    def draft(self) -> FilesDraft:
        """Return a copy of the files; a change is made there before it is stored."""
        return FilesDraft(self.files.content)

    def _free_name(self, folder: str, stem: str) -> str:
        ends = (".md" if number == 1 else f"{self.between}{number}.md" for number in count(1))
        paths = (f"{folder}/{stem}{end}".lstrip("/") for end in ends)
        return next(one for one in paths if not os.path.lexists(self.config.path / one))

    def added(self, draft: FilesDraft, name: str, request: WriteRequest) -> Json:  # noqa: ARG002
        """Change other files before a new one is made; return what an undo has to know."""
        return {}

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a memory's text."""
        name, text = request.handle.provider_record_id, request.text
        with self.changing():
            record, known = self.to_correct(request)
            if text is None or text == record.text:
                self.keep_known({name: known} if known else {})
                return CorrectReply(handle=request.handle)
            if record.read_only:
                raise Denied(self.protected(record) or f"{name} is read-only.")
            draft = self.draft()
            self.corrected_in(draft, record, text)
            self._change(draft, {name: known}, "correct", request.created_by)
        return CorrectReply(handle=request.handle)

    def corrected_in(self, draft: FilesDraft, record: Record, text: str) -> None:
        """Give a record another text."""
        file = self.file_of(record)
        draft[file] = self.with_text(record, draft[file] or b"", text)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove files. Those that are protected stay."""
        with self.changing():
            there, reply = self.to_forget(request)
            stay = {name: reason for name, one in there.items() if (reason := self._stays(one))}
            draft = self.draft()
            self.removed_in(draft, [one for name, one in there.items() if name not in stay])
            self.to_forget(
                request.model_copy(
                    update={"revisions": {name: one.revision for name, one in there.items()}}
                )
            )  # fmt: skip -- another program may have written before a file was read
            self._change(draft, {}, "forget")
            self._forget_gone(request.handles)
        return reply.model_copy(update={"refused": stay})

    def removed_in(self, draft: FilesDraft, records: Sequence[Record]) -> None:
        """Remove records."""
        for one in records:
            draft[self.file_of(one)] = None

    def _forget_gone(self, asked: Iterable[RecordHandle]) -> None:
        """Drop the metadata of removed records, including those that a killed process removed.

        That of other missing files stays, as another program may bring them back.
        """
        there = self._load()[0]
        absent = [name for one in asked if (name := one.provider_record_id) not in there]
        self.keep_known({name: None for name in absent if is_gone(self.config.path / name)})

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
        draft, there = self.draft(), self._find_all(handles, scope)
        taken: list[Snapshot] = []
        for handle in handles:
            record, state = there[handle], Json()
            if record is not None:
                state = self.state_of(draft, record)
                state["known"] = self.known_json(handle.provider_record_id)
            taken.append(Snapshot(handle=handle, record=record, state=state))
        return taken

    def state_of(self, draft: FilesDraft, record: Record) -> Json:
        """Return what brings a record back. Raises `Invalid` where its file is not UTF-8."""
        name = self.file_of(record)
        path = self.config.path / name
        content = text_of(draft[name] or b"", path)
        return {"file": name, "content": content, "rights": FileRights.of(path)}

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put files back as they were; remove those whose snapshot has no record."""
        back = [one for one in snapshots if one.record is not None]
        with self.changing():
            away = {one.handle: one for one in snapshots if one.record is None}
            there = self._find_all(away, scope)
            gone = [(one, away[handle]) for handle, one in there.items() if one is not None]
            for record, _ in gone:
                if reason := self._stays(record):
                    raise Denied(reason)
            draft = self.draft()
            self.restored_in(draft, gone, back)
            known = {one.handle.provider_record_id: known_then(one) for one in back}
            self._change(draft, known, "undo a change of")
            self._forget_gone(away)
        return WriteReply(records=tuple(one.handle for one in back))

    def restored_in(
        self, draft: FilesDraft, gone: Sequence[tuple[Record, Snapshot]], back: Sequence[Snapshot]
    ) -> None:
        """Remove the records that did not exist before, and restore the others."""
        self.removed_in(draft, [record for record, _ in gone])
        for one in back:
            if "file" in one.state:
                name = one.state["file"]
                draft[name] = str(one.state["content"]).encode()
                draft.rights[name] = rights_in(one.state)

    def file_of(self, record: Record) -> str:
        """Return a record's path in the folder."""
        place = Path(record.location.path if record.location else "")
        return place.relative_to(self.config.path).as_posix()

    def _change(
        self,
        draft: FilesDraft,
        known: Mapping[str, WrittenRecord | None],
        what: str,
        author: str | None = None,
    ) -> None:
        """Store a draft and commit it; call it within `changing`. If that fails, all stay.

        Of new records, `known` is stored first: one without its owner is everybody's.
        """
        changes = draft.changes()
        for name, change in changes.items():
            if change.after is not None:
                self.check(name, change.after)
        first, *others = changes or [""]
        subject = f"{len(changes)} files" if others else printable_id(first)
        there = self._load()[0]
        with self.known_first({name: one for name, one in known.items() if name not in there}):
            if changes:
                self.files.change(changes, f"memtui: {what} {subject}", author)
        self.keep_known(known)
