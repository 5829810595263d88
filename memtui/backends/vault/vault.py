"""The vault itself: records in files, changed one at a time under one lock (seed 002 §3, §7)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Denied,
    EraseReply,
    EraseRequest,
    ForgetRequest,
    Invalid,
    NotFound,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    WriteRequest,
)

from . import book as books
from . import factrestore, noterestore
from .entries import KEY, Entry, handle_of, source_of, to_record
from .factrestore import FactState
from .factstore import NEW_FILE, FactStore
from .files import Folder
from .layout import FACTS, HISTORY, folder_for, split_id
from .noterestore import NoteState, Written
from .notestore import NoteStore
from .scoping import sees
from .seal import seal, unseal


class Vault:
    """Reads and writes of one vault. Its methods block; the adapter runs them in threads.

    Methods that change something return the paths they touched, for the index to read again.
    """

    def __init__(self, folder: Folder, company_id: str, now: Callable[[], datetime]) -> None:
        self.folder = folder
        self._company_id = company_id
        self._now = now
        self._facts = FactStore(folder, now, self._conflict)
        self._notes = NoteStore(folder, now, self._conflict)

    def record(self, entry: Entry) -> Record:
        """Return the contract's record of an entry."""
        return to_record(entry, self._company_id, str(self.folder.root))

    def _conflict(
        self, message: str, entry: Entry | None = None, proposed: str | None = None
    ) -> Conflict:
        current = self.record(entry) if entry else None
        return Conflict(message, current=current, proposed=proposed)

    def write(self, request: WriteRequest) -> tuple[str, tuple[Snapshot, ...]]:
        """Store a record; return its id, and the snapshot of the fact that it replaced."""
        self._check_company(request.scope)
        folder = folder_for(request.scope)
        with self.folder.locked():
            if request.kind != "fact":
                return self._notes.write(request, folder), ()
            replaced = self._facts.replaces(request, folder)
            handles = [handle_of(replaced)] if replaced else []
            before = tuple(self.snapshot(handles, request.scope))
            return self._facts.write(request, folder), before

    def _check_company(self, scope: Scope) -> None:
        if scope.company_id != self._company_id:
            raise Denied("This vault belongs to another company.")

    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a record from its file; None if there is none in this scope."""
        entry = self._find(handle, scope)
        return self.record(entry) if entry else None

    def _find(
        self,
        handle: RecordHandle,
        scope: Scope,
        loaded: dict[str, books.Book] | None = None,
        *,
        expired: bool = False,
    ) -> Entry | None:
        """Find a record, an `expired` one only if asked to.

        `loaded` keeps the facts files that a bulk call has read already.
        """
        self._check_company(scope)
        try:
            entry = self._entry(handle, {} if loaded is None else loaded)
        except Invalid:
            return None
        if entry is None or not sees(scope, entry):
            return None
        is_past = entry.expires is not None and entry.expires <= self._now()
        return None if is_past and not expired else entry

    def _entry(self, handle: RecordHandle, loaded: dict[str, books.Book]) -> Entry | None:
        if handle.provider_key != KEY:
            return None
        path, name = split_id(handle.provider_record_id)
        if not self.folder.is_path(path):
            return None
        if name is None:
            return self._notes.entry(path)
        if path not in loaded:
            loaded[path] = self._facts.load(path)
        return self._facts.entry_in(loaded[path], name)

    def correct(self, request: CorrectRequest) -> str:
        """Change a record and return the path touched. Raises `NotFound` and `Conflict`."""
        record_id = request.handle.provider_record_id
        path, name = split_id(record_id)
        with self.folder.locked():
            entry = self._find(request.handle, request.scope)
            if entry is None:
                self._raise_missing(request, path)
            elif request.revision is not None and request.revision != entry.revision:
                raise self._conflict(
                    "The record was changed since you read it; compare both versions.",
                    entry,
                    request.text,
                )
            if name is not None:
                self._facts.correct(request, path, name)
            else:
                self._notes.correct(request, path)
        return path

    def _raise_missing(self, request: CorrectRequest, path: str) -> None:
        self._entry(request.handle, {})
        if request.revision is not None:
            raise Conflict("The record was removed since you read it.", proposed=request.text)
        raise NotFound(f"There is no record {path[:200]!r} in this scope.")

    def forget(self, request: ForgetRequest) -> tuple[list[RecordHandle], set[str]]:
        """Remove records, expired ones too; return the handles that named none, and the paths."""
        missing: list[RecordHandle] = []
        named: dict[str, list[str]] = defaultdict(list)
        paths: list[str] = []
        loaded: dict[str, books.Book] = {}
        with self.folder.locked():
            for handle in dict.fromkeys(request.handles):
                entry = self._find(handle, request.scope, loaded, expired=True)
                wanted = request.revisions.get(handle.provider_record_id)
                if entry is None:
                    missing.append(handle)
                    continue
                if wanted is not None and wanted != entry.revision:
                    message = f"{entry.id} was changed since you read it; nothing was removed."
                    raise self._conflict(message, entry)
                path, name = split_id(entry.id)
                named[path].append(name) if name else paths.append(path)
            for path, names in named.items():
                self._facts.forget(path, names)
            for path in paths:
                self.folder.remove(path)
        return missing, {*named, *paths}

    def history(self, handle: RecordHandle, scope: Scope) -> list[RecordVersion]:
        """Return a record's versions, newest first; for a note only the one that holds."""
        path, name = split_id(handle.provider_record_id)
        if name is None:
            entry = self._find(handle, scope)
            return [self._version(entry)] if entry else []
        self._check_company(scope)
        if not self.folder.is_path(path):
            return []
        book = self._facts.load(path)
        found = [entry for entry in books.entries(book) if entry.id == handle.provider_record_id]
        versions = [v for v in books.versions_of(book, name) if found and sees(scope, found[0])]
        return [
            RecordVersion(
                text=v.text, valid_from=v.valid_from, valid_to=v.valid_to,
                created_by=v.created_by, source=source_of(v.source, self._company_id),
            )
            for v in reversed(versions)
        ]  # fmt: skip

    def _version(self, entry: Entry) -> RecordVersion:
        record = self.record(entry)
        return RecordVersion(
            text=entry.text, valid_from=entry.created, created_by=entry.created_by,
            source=record.source,
        )  # fmt: skip

    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> list[Snapshot]:
        """Return each record's exact bytes and place, an expired one's too."""
        loaded: dict[str, books.Book] = {}
        return [self._snapshot(handle, scope, loaded) for handle in handles]

    def _snapshot(
        self, handle: RecordHandle, scope: Scope, loaded: dict[str, books.Book]
    ) -> Snapshot:
        path, name = split_id(handle.provider_record_id)
        entry = self._find(handle, scope, loaded, expired=True)
        record = self.record(entry) if entry else None
        if name is None:
            note = NoteState.take(self.folder, path) if record else None
            return Snapshot(
                handle=handle, record=record, state=seal(note.to_json()) if note else {}
            )
        if not self.folder.is_path(path):
            return Snapshot(handle=handle, record=None)
        if path not in loaded:
            loaded[path] = self._facts.load(path)
        state = FactState.take(loaded[path], name)
        return Snapshot(handle=handle, record=record, state=seal(state.to_json()))

    def restore(
        self, snapshots: Sequence[Snapshot], scope: Scope, written: Written
    ) -> tuple[list[RecordHandle], set[str]]:
        """Put records back; return their handles and the paths touched."""
        self._check_company(scope)
        states: dict[str, dict[str, FactState]] = defaultdict(dict)
        contents: dict[str, NoteState | None] = {}
        for snapshot in snapshots:
            path, name = split_id(snapshot.handle.provider_record_id)
            self.folder.check_path(path)
            data = unseal(snapshot.state)
            if name is not None:
                states[path][name] = FactState.from_json(data)
            else:
                contents[path] = NoteState.from_json(data) if snapshot.record else None
        with self.folder.locked():
            noterestore.check(self.folder, contents, written, self._conflict)
            for path, found in states.items():
                factrestore.check(self._facts, path, found, self._conflict)
            for path, found in states.items():
                factrestore.restore(self._facts, path, found)
            noterestore.restore(self.folder, contents)
        back = [handle_of(s.handle.provider_record_id) for s in snapshots if s.record is not None]
        return back, {*states, *contents}

    def erase(self, request: EraseRequest) -> EraseReply:
        """Take the versions of facts that are gone out of the history files.

        Of a project or a subject, folders that hold nothing any more go too: their names say whose
        they were.
        """
        kept: dict[str, int] = {}
        texts: list[str] = []
        ids: list[str] = []
        with self.folder.locked():
            for path in sorted(self.folder.scan().signatures):
                if path.rpartition("/")[2] == HISTORY:
                    gone = self._facts.gone(path.removesuffix(HISTORY) + FACTS, request)
                    if gone:
                        kept[path] = len(gone)
                        texts += [version.text for version in gone]
                        names = dict.fromkeys(version.fact for version in gone)
                        ids += [f"{path.removesuffix(HISTORY)}{FACTS}#{name}" for name in names]
            if request.apply:
                self._remove_empty(request.scope)
        beyond = [
            f"The vault {self.folder.root} lies in the git repository {above}: its history and "
            "its copies elsewhere keep what was committed; `git filter-repo` takes it out."
            for above in (self.folder.root, *self.folder.root.parents)
            if (above / ".git").exists()
        ]
        return EraseReply(
            kept=kept,
            texts=tuple(texts),
            record_ids=tuple(ids),
            folders=(self.folder.root,),
            beyond=tuple(beyond[:1]),
        )

    def _remove_empty(self, scope: Scope) -> None:
        if not (scope.project_id or scope.subject_id):
            return
        root = self.folder.root / folder_for(scope)
        facts = root / FACTS
        if facts.is_file() and facts.read_bytes() == NEW_FILE.encode():
            self.folder.remove(f"{folder_for(scope)}/{FACTS}")
        for folder, _, _ in os.walk(root, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106  # refuses where anything is in it
