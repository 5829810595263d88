"""The base of the providers whose program keeps changes back in files until a person decides.

A provider says what waits, and which bytes the program would write on a yes. A decision puts whole
files in place, and an undo puts them back, so both leave what the program's own command would.
"""

import os
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from memtui.contract import (
    FILE,
    Invalid,
    Location,
    MemtuiError,
    OperationType,
    Proposal,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Unavailable,
    WriteReply,
)
from memtui.provider_kit import blocking, refused_by_system
from memtui.provider_kit.files.adapter import ConfigT
from memtui.provider_kit.files.entries import EntriesAdapter, EntriesFile
from memtui.provider_kit.files.reading import FileReader, sign
from memtui.provider_kit.files.shared import (
    FileRights,
    changed_meanwhile,
    content_of,
    put,
    rights_in,
)


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file in which a change waits."""

    path: Path
    content: bytes
    by: str
    """Who proposed it."""
    text: str
    """A summary of the text that it would store."""
    since: datetime
    operation_type: OperationType = OperationType.CORRECT
    written: Mapping[Path, bytes] = field(default_factory=dict)
    """The files that the program would write, in this order."""
    refused: str = ""
    """Why the program would not; empty: it would."""


class ProposingAdapter(EntriesAdapter[ConfigT]):
    """Shows entries of files, and the changes of them that wait for a person."""

    capabilities = EntriesAdapter.capabilities.model_copy(update={"proposals": True})

    @abstractmethod
    def waiting_paths(self) -> Iterable[Path]:
        """Yield the files in which changes wait. Raises `OSError`."""

    @abstractmethod
    def waiting(self, path: Path, content: bytes, since: datetime) -> WaitingFile:
        """Return what waits in a file, also if it cannot be read; `since`: its last change.

        Raises:
            Invalid: the program would refuse it; the sentence says why.
        """

    @abstractmethod
    def is_held(self, path: Path) -> bool:
        """Whether a file may be a waiting proposal, or be changed by one."""

    @blocking
    def proposals(self, scope: Scope) -> Sequence[Proposal]:  # noqa: ARG002
        """Return the waiting proposals; one that the program would refuse has its reason."""
        records = self._load()[0].values()
        try:
            paths = sorted(self.waiting_paths())
        except OSError as error:
            raise refused_by_system(str(error.filename), error) from error
        read = ((path, content_of(path)) for path in paths)
        return [
            self._proposal(self._waiting(path, content), records)
            for path, content in read
            if content is not None  # or else it has gone meanwhile
        ]

    def _waiting(self, path: Path, content: bytes) -> WaitingFile:
        signature = sign(path)
        seconds = signature.modified_ns / 1e9 if signature else 0.0
        since = datetime.fromtimestamp(seconds, UTC)
        try:
            return self.waiting(path, content, since)
        except MemtuiError as error:
            text = content.decode("utf-8", "replace")
            return WaitingFile(path, content, self.key, text, since, refused=str(error))

    def _proposal(self, one: WaitingFile, records: Iterable[Record]) -> Proposal:
        handle, refused = self._file_handle(one.path), one.refused
        owners, named = {self._scope: None}, list[str]()
        if refused:  # it is shown as it is, and may quote any memory
            owners.update((record.scope, None) for record in records)
        before, after, accepted = list[Record](), list[Record](), list[Snapshot]()
        for path, content in () if one.refused else one.written.items():
            there = content_of(path)
            if there == content:
                continue
            try:
                named += self._changed_ids(path, there, content)
            except Invalid as error:
                refused = str(error)
            if path.is_symlink():
                refused = f"{path} is a link; replace it with a file first."
            then = self._file_state(self._file_handle(path), there)
            made = self._file_state(then.handle, content)
            accepted.append(made.model_copy(update={"replaces": _revision(there)}))
            before += self._shown(then, there)
            after += self._shown(made, content)
            if path.is_relative_to(self.config.path):
                inside = (record for record in records if _stands_in(record, path))
                owners.update((record.scope, None) for record in inside)
            else:
                owners[Scope(company_id=self._scope.company_id)] = None
        if not after:  # what waits is shown as it is
            after += self._shown(self._file_state(handle, one.content), one.content)
        away = Snapshot(handle=handle, record=None, replaces=_revision(one.content))
        return Proposal.like(
            one,
            handle=handle,
            content=sha256(one.content).hexdigest(),
            location=Location(path=str(one.path), line=1),
            owners=tuple(owners),
            refused=refused,
            before=tuple(before),
            after=tuple(after),
            accepted=(*accepted, away),
            records=tuple(map(self._handle, dict.fromkeys(named))),
        )

    def _changed_ids(self, path: Path, there: bytes | None, content: bytes) -> list[str]:
        """Return the ids of the records that go or come where a file is written."""
        if not path.is_relative_to(self.config.path):
            return []
        file = EntriesFile(path)
        ids = [{*self._taken_apart(file, one or b"").places()} for one in (there, content)]
        return [*sorted(ids[0] - ids[1]), *sorted(ids[1] - ids[0])]

    def _shown(self, state: Snapshot, content: bytes | None) -> list[Record]:
        text = None if content is None else content.decode("utf-8", "replace")
        record = state.record
        return [record.model_copy(update={"text": text})] if record and text is not None else []

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return the state of each entry, and of each whole file."""
        entries = [one for one in handles if not one.is_file]
        taken = {one.handle: one for one in await super().snapshot(entries, scope)}
        files = [one for one in handles if one.is_file]
        taken |= {one.handle: one for one in await self._files_taken(files)}
        return [taken[one] for one in handles]

    @blocking
    def _files_taken(self, handles: Sequence[RecordHandle]) -> list[Snapshot]:
        paths = [(one, self._path_of(one)) for one in handles]
        return [
            self._file_state(one, None if path is None else content_of(path)) for one, path in paths
        ]

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put files in place, then entries that are not there by that; remove those without one."""
        await self._put_files([one for one in snapshots if one.handle.is_file])
        await super().restore([one for one in snapshots if not one.handle.is_file], scope)
        return WriteReply(records=tuple(one.handle for one in snapshots if one.record is not None))

    @blocking
    def _put_files(self, snapshots: Sequence[Snapshot]) -> None:
        done = False
        with self.changing(), ExitStack() as locks:
            wanted: list[tuple[Path, bytes | None, bytes | None, Snapshot]] = []
            for one in snapshots:
                path = self._path_of(one.handle)
                if path is None or path.is_symlink():
                    raise Invalid(f"{one.handle.provider_record_id} is no file to change here.")
                if path in {file.path for file in self.entry_files(FileReader())}:
                    locks.enter_context(self.locked(path))
                there = content_of(path)
                if _revision(there) != one.replaces:
                    raise changed_meanwhile(path)
                fresh = b64decode(one.state["content"]) if one.record else None
                wanted.append((path, there, fresh, one))
            # The removals last: until then, what waits can be decided on again.
            for path, there, fresh, one in sorted(wanted, key=lambda one: one[2] is None):
                try:
                    if fresh is not None:
                        self._keep_owners(path, there, fresh)
                    put(path, there, fresh, marker=self.marker, rights=rights_in(one.state))
                except MemtuiError as error:
                    raise Unavailable(str(error), sent=True) if done else error from error
                done = True

    def _keep_owners(self, path: Path, there: bytes | None, fresh: bytes) -> None:
        """Give entries that take the place of others their owner: without one, all see them."""
        changed = self._changed_ids(path, there, fresh)
        gone = [self._known[name] for name in changed if name in self._known]
        new = [name for name in changed if name not in self._known]
        if gone and there is not None:
            self.keep_known(dict.fromkeys(new, gone[0]))

    def _file_state(self, handle: RecordHandle, content: bytes | None) -> Snapshot:
        """Return a file's state, with its content apart from its record, which is its path."""
        path = self._path_of(handle)
        if content is None or path is None:
            return Snapshot(handle=handle, record=None)
        record = Record(
            handle=handle,
            text=str(path),
            scope=self._scope,
            kind="file",
            revision=_revision(content),
            location=Location(path=str(path), line=1),
        )
        state = {"content": b64encode(content).decode(), "rights": FileRights.of(path)}
        return Snapshot(handle=handle, record=record, state=state)

    def _file_handle(self, path: Path) -> RecordHandle:
        return self._handle(f"{FILE}{os.path.relpath(path, self.config.path)}")

    def _path_of(self, handle: RecordHandle) -> Path | None:
        """Return the path of a whole file; None: it is none that waits or is changed here."""
        within = handle.provider_record_id.removeprefix(FILE)
        path = Path(os.path.normpath(self.config.path / within))
        return path if "\0" not in within and self.is_held(path) else None


def _stands_in(record: Record, path: Path) -> bool:
    return record.location is not None and record.location.path == str(path)


def _revision(content: bytes | None) -> str | None:
    return None if content is None else sha256(content).hexdigest()
