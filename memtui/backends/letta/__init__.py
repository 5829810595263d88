"""The memory folder of a Letta agent: markdown files under git, one memory each.

Letta's prompt has the committed text of the core files: those in `system/` or, in the newer layout
that a `MEMORY.md` marks, those at the top. Its memory tool commits each change, and refuses to work
while anything is uncommitted; so does memtui commit each change, as one commit of its files alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

from memtui.backends.letta.texts import (
    INDEX,
    REFERENCE,
    SYSTEM,
    MemoryLimits,
    composed,
    exact,
    is_index,
    memory_files,
    one_line,
    parse_memory,
    with_text,
)
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
    Invalid,
    Json,
    MemtuiError,
    Model,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    SourceKind,
    SourceRef,
    Unavailable,
    WriteReply,
    WriteRequest,
)
from memtui.paths import replacing, sync_folder
from memtui.provider_kit import (
    blocking,
    check_revision,
    refused_by_system,
    require_unprotected,
)
from memtui.provider_kit.files.adapter import FilesConfig
from memtui.provider_kit.files.git import FileVersion, GitRepository, is_repository, repository
from memtui.provider_kit.files.reading import (
    FileReader,
    FileRefused,
    ParsedFile,
    ParsedRecord,
    digest,
    first_line,
    is_file,
    printable_id,
    read_whole,
    resolved,
    slug,
)
from memtui.provider_kit.files.shared import SharedFile
from memtui.provider_kit.files.writing import WritableFilesAdapter, WrittenRecord

_POLICY = ".git/letta-memory-layout-policy"
_LIMITS = ".memfs.config.json"
_NOTE = "uncommitted.json"

Edit = Callable[[bytes | None], bytes | None]
"""Returns a file's new content for the present one; None: there is no file."""


class LettaConfig(FilesConfig):
    """A Letta agent's memory: the folder `memory` of the agent."""


class _Uncommitted(Model):
    """What a killed process may have left uncommitted: the digest of each file's new content."""

    files: dict[str, str | None]
    message: str
    author: str | None


class LettaAdapter(WritableFilesAdapter[LettaConfig]):
    """Shows one record a file; those of the kind `system` are in every prompt of the agent."""

    key = "letta"
    config_model = LettaConfig
    holds = "folder"
    capabilities = Capabilities(
        browse=True, correction=True, history=True, restore=True, full_text=True, watch=True,
        without=True,
    )  # fmt: skip

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the folder, and commit what a killed process could not."""
        adapter = await super().open(context)
        await adapter.finish()
        return adapter

    @blocking
    def finish(self) -> None:
        """Commit what a killed process could not, if that is possible."""
        if self.capabilities.writable and self._note.exists():
            with suppress(MemtuiError), self.changing(), self._repository() as git:
                self._finish_with(git)  # otherwise the next change tries again, and says why not

    @property
    def _note(self) -> Path:
        return self._context.data_dir / _NOTE

    def _has_root_layout(self) -> bool:
        if not is_file(self.config.path / INDEX):
            return False
        with suppress(OSError, FileRefused):
            return read_whole(self.config.path / _POLICY)[0].strip() != b"legacy-only"
        return True

    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read every memory; skills are none."""
        is_root = self._has_root_layout()
        for path in memory_files(reader, self.config.path):
            name = path.relative_to(self.config.path).as_posix()
            parsed = reader.parse(path, partial(parse_memory, name=name, is_root=is_root))
            if parsed is not None:
                modified = reader.modified(path)
                dated = tuple(replace(one, updated_at=modified) for one in parsed.records)
                yield path, replace(parsed, records=dated)

    def _record(self, found: ParsedRecord, path: Path, record_id: str) -> Record:
        record = super()._record(found, path, record_id)
        is_protected = found.metadata["frontmatter"].get("read_only") == "true"
        return record.model_copy(update={"read_only": is_protected})

    @blocking
    def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a memory's commits, with their authors, and what is not committed yet."""
        record = self._find(handle, scope)
        if record is None:
            return []
        name = self._file_of(record)
        with self._repository() as git:
            commits = [] if git is None else git.versions(name)
        versions = list(self._versions(name, commits))
        if not versions or versions[0].text != record.text:
            since = record.updated_at if not versions else None
            now = RecordVersion(text=record.text, valid_from=since, created_by=record.created_by)
            versions.insert(0, now)
        return versions

    def _versions(self, name: str, commits: Sequence[FileVersion]) -> Iterator[RecordVersion]:
        """Yield the texts, the newest first; a commit that leaves the text is none."""
        is_root, ends = self._has_root_layout(), None
        texts = [
            None if one.content is None
            else parse_memory(_decoded(one.content), name, is_root=is_root).records[0].text
            for one in commits
        ]  # fmt: skip
        for at, (one, text) in enumerate(zip(commits, texts, strict=True)):
            older = texts[at + 1] if at + 1 < len(texts) else None
            begins = min(filter(None, (one.moment, ends)), default=None)
            if text is not None and text != older:
                yield RecordVersion(
                    text=text, valid_from=begins, valid_to=ends, created_by=one.author,
                    source=SourceRef(
                        kind=SourceKind.EXTERNAL_DOCUMENT, company_id=self._context.company_id,
                        external_ref=one.commit,
                    ),
                )  # fmt: skip
            if text != older:
                ends = begins

    @contextmanager
    def _repository(self) -> Iterator[GitRepository | None]:
        """Open the repository; None: there is none, so nothing is committed."""
        place = self.config.path
        with repository(place) if is_repository(place) else nullcontext() as git:
            yield git

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Erase what memtui knows of removed memories; the commits stay."""
        reply = await super().erase(request)
        place = self.config.path
        if not is_repository(place):
            return reply
        kept = (
            f"The git history of {place}, its remotes and Letta's server keep every text that was "
            "committed; stop the agent, remove them with `git filter-repo`, and push that."
        )
        return reply.model_copy(update={"beyond": (kept,)})

    # Changes

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Add a file: to the core memory for the kind `system`, else below `reference`."""
        is_core, is_root = request.kind == SYSTEM, self._has_root_layout()
        known = self.known_of(
            request, kind=None if is_core or request.kind == "note" else request.kind
        )
        title = one_line(request.title) or first_line(request.content)
        content = composed(title, request.content, is_root=is_root)
        folder = "" if is_core and is_root else SYSTEM if is_core else REFERENCE
        if is_root and folder and not is_file(self.config.path / folder / INDEX):
            raise Invalid(
                f"Letta ignores a folder without a {INDEX}, and {self.config.path / folder} has "
                f"none; create it first, or write the memory with the kind {SYSTEM}."
            )
        with self.changing():
            name = self._free_name(folder, slug(title, "-"))
            self._change({name: lambda _: content}, {name: known}, "write", request.created_by)
        handle = self._handle(name)
        return WriteReply(records=(handle,), before=(Snapshot(handle=handle, record=None),))

    def _free_name(self, folder: str, stem: str) -> str:
        names = (f"{stem}.md" if number == 1 else f"{stem}-{number}.md" for number in count(1))
        paths = (f"{folder}/{name}".lstrip("/") for name in names)
        return next(one for one in paths if not (self.config.path / one).exists())

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a memory's text, and its description where that repeats the text's first line."""
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
                raise Denied(f"{self._place_of(record)} is read_only, so Letta keeps it as it is.")
            file = self._file_of(record)
            edit = partial(
                with_text, old=record.text, text=text, name=file, is_root=self._has_root_layout()
            )
            self._change({file: edit}, {name: known}, "correct", request.created_by)
        return CorrectReply(handle=request.handle)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove files. Those that Letta protects stay."""
        with self.changing():
            there = self._find_all(request.handles, request.scope)
            gone: dict[str, str] = {}
            refused: dict[str, str] = {}
            for handle, record in there.items():
                if record is not None:
                    name = handle.provider_record_id
                    check_revision(record, request.revisions.get(name))
                    if reason := self._protected(record):
                        refused[name] = reason
                    else:
                        gone[name] = self._file_of(record)
            self._change(dict.fromkeys(gone.values(), _removed), {}, "forget")
            self.keep_known(dict.fromkeys(gone))
        missing = tuple(one for one, record in there.items() if record is None)
        return ForgetReply(missing=missing, refused=refused)

    def _protected(self, record: Record) -> str | None:
        path = self._place_of(record)
        if record.read_only:
            return f"{path} is read_only, so Letta keeps it."
        if is_index(path.name, is_root=self._has_root_layout()):
            return f"{path} is an index, which Letta needs."
        try:
            require_unprotected(path, str(path))
        except Denied as error:
            return str(error)
        return None

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each memory with its file."""
        taken: list[Snapshot] = []
        there = self._find_all(handles, scope)
        for handle in handles:
            record, state = there[handle], Json()
            if record is not None:
                name = self._file_of(record)
                state = {
                    "file": name,
                    "content": exact(self._content(name) or b""),
                    "known": self.known_json(handle.provider_record_id),
                }
            taken.append(Snapshot(handle=handle, record=record, state=state))
        return taken

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put files back as they were; remove those whose snapshot has no record."""
        back = [one for one in snapshots if one.record is not None]
        with self.changing():
            edits: dict[str, Edit] = {}
            away: list[str] = []
            gone = [one.handle for one in snapshots if one.record is None]
            for handle, record in self._find_all(gone, scope).items():
                if record is not None:
                    if reason := self._protected(record):
                        raise Denied(reason)
                    edits[self._file_of(record)] = _removed
                    away.append(handle.provider_record_id)
            for one in back:
                content = str(one.state["content"]).encode()
                edits[one.state["file"]] = partial(_as_before, content=content)
            known = {one.handle.provider_record_id: _known_then(one) for one in back}
            self._change(edits, known, "undo a change of")
            self.keep_known(dict.fromkeys(away))
        return WriteReply(records=tuple(one.handle for one in back))

    def _file_of(self, record: Record) -> str:
        return self._place_of(record).relative_to(self.config.path).as_posix()

    def _place_of(self, record: Record) -> Path:
        return Path(record.location.path if record.location else "")

    def _change(
        self,
        edits: Mapping[str, Edit],
        known: Mapping[str, WrittenRecord | None],
        what: str,
        author: str | None = None,
    ) -> None:
        """Edit files and commit them; call it within `changing`. If that fails, all stay.

        `known` is stored first: a record without its owner is everybody's.
        """
        if not edits:
            return
        with self._repository() as git:
            self._finish_with(git)
            if git is not None:
                git.require_ready([*edits])
            before = {name: self._content(name) for name in edits}
            after = {name: edit(before[name]) for name, edit in edits.items()}
            for name, content in after.items():
                self._require_place(name)
                self._refuse_beyond(name, content)
            subject = printable_id(next(iter(edits))) if len(edits) == 1 else f"{len(edits)} files"
            message = f"memtui: {what} {subject}"
            was_known = {name: self._known.get(name) for name in known}
            self.keep_known(known)
            done: dict[str, bytes | None] = {}
            try:
                if git is not None:
                    self._take_note(after, message, author)
                for name, edit in edits.items():
                    done[name] = self._edit(name, edit)
                if git is not None:
                    git.commit(done, message, author)
            except MemtuiError:
                self._take_back(before, done)
                self.keep_known(was_known)
                self._note.unlink(missing_ok=True)
                raise
            self._note.unlink(missing_ok=True)

    def _take_back(
        self, before: Mapping[str, bytes | None], done: Mapping[str, bytes | None]
    ) -> None:
        """Undo edits, except where another program has changed the file since."""
        for name, content in done.items():
            try:
                self._edit(name, partial(_taken_back, before=before[name], ours=content))
            except MemtuiError as error:
                raise Unavailable(
                    f"{name} stays changed, uncommitted: {error}", sent=True
                ) from error

    def _edit(self, name: str, edit: Edit) -> bytes | None:
        """Change a file, and return its content afterwards; None: there is none."""
        path = self.config.path / name
        try:
            now = self._content(name)
            content = edit(now)
            if content is None:
                path.unlink(missing_ok=True)
            elif now is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path, 0o644, is_new=True) as fresh:
                    fresh.write_bytes(content)
            else:
                return SharedFile(path, marker=self.marker).change(lambda there: edit(there) or b"")
            sync_folder(path.parent)
        except OSError as error:
            raise refused_by_system(str(path), error) from error
        return content

    def _content(self, name: str) -> bytes | None:
        try:
            return read_whole(self.config.path / name)[0]
        except FileNotFoundError:
            return None
        except (OSError, FileRefused) as error:
            why = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise Unavailable(f"{self.config.path / name} cannot be read ({why}).") from error

    def _require_place(self, name: str) -> None:
        """Raise `Invalid` if a file, or a folder above it, is a link."""
        root, path = self.config.path, self.config.path / name
        above = next(one for one in path.parents if one.exists())
        real = resolved(root)
        if real is None or path.is_symlink() or resolved(above) != real / above.relative_to(root):
            raise Invalid(f"{path} is or lies behind a link; replace that with a file first.")
        require_unprotected(path, str(path))

    def _refuse_beyond(self, name: str, content: bytes | None) -> None:
        """Raise `Invalid` for a file with which Letta would refuse every later commit."""
        is_root, given = self._has_root_layout(), self._content(_LIMITS)
        if content is None or not (is_root or given):
            return
        place = self.config.path / _LIMITS
        try:
            limits = MemoryLimits.read(given, is_root=is_root)
        except (ValueError, TypeError) as error:
            raise Invalid(f"{place} is not as Letta writes it; fix it first.") from error
        core = 0
        if is_root and "/" not in name:
            others = {one.name for one in self.config.path.glob("*.md")} - {name}
            core = sum(len(_decoded(self._content(one) or b"")) for one in others)
            core += len(exact(content))
        for problem in limits.beyond(name, exact(content), core):
            raise Invalid(f"Letta would refuse its next commit: {problem} ({place}); shorten it.")

    # What a killed process left

    def _take_note(
        self, files: Mapping[str, bytes | None], message: str, author: str | None
    ) -> None:
        digests = {name: _digest(content) for name, content in files.items()}
        note = _Uncommitted(files=digests, message=message, author=author)
        try:
            with replacing(self._note) as fresh:
                fresh.write_text(note.model_dump_json(), "utf-8")
        except OSError as error:
            raise refused_by_system(str(self._note), error) from error

    def _finish_with(self, git: GitRepository | None) -> None:
        """Commit the files that a killed process changed, as far as nobody changed them since."""
        try:
            left = _Uncommitted.model_validate_json(self._note.read_bytes())
        except (FileNotFoundError, ValueError):
            return
        changed = [] if git is None else git.changed([*left.files])
        contents = {name: self._content(name) for name in changed}
        ours = {name: one for name, one in contents.items() if _digest(one) == left.files[name]}
        if git is not None and ours:
            git.commit(ours, left.message, left.author)
        self._note.unlink()


def _decoded(content: bytes) -> str:
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def _removed(content: bytes | None) -> None:
    del content


def _as_before(now: bytes | None, content: bytes) -> bytes:
    del now
    return content


def _taken_back(now: bytes | None, before: bytes | None, ours: bytes | None) -> bytes | None:
    return before if now == ours else now


def _digest(content: bytes | None) -> str | None:
    return None if content is None else digest(content.decode("latin-1"))


def _known_then(taken: Snapshot) -> WrittenRecord | None:
    known = taken.state["known"]
    return None if known is None else WrittenRecord.model_validate(known)
