"""The vault behind the adapter contract: records in files, changed one at a time under one lock.

The files are the truth, the index is derived (seed 002 §3, §7).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import ClassVar, Self, TypeVar

from pydantic import Field

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    Denied,
    EmbedReply,
    EraseReply,
    EraseRequest,
    Explanation,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    Links,
    MemtuiError,
    Model,
    Namespace,
    NotFound,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    SourceRef,
    SyncReply,
    TagCount,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    place_of_path,
)
from memtui.embedding import EmbeddingConfig, open_embedder
from memtui.paths import is_writable
from memtui.provider_kit import (
    LocalPath,
    abilities_in,
    blocking,
    check_revision,
    read_config,
    require_whole,
    require_writable,
)
from memtui.provider_kit.matching import within
from memtui.provider_kit.watching import WatchEnd
from memtui.scratch import Scratch

from . import changes, links, notes, search
from .changes import FactState
from .facts import NEW_FILE
from .files import VaultFolder
from .history import FactsDocument, VaultVersion
from .index import VaultIndex, microseconds, unit_path
from .layout import (
    FACTS,
    HISTORY,
    KEY,
    StoredRecord,
    encode_name,
    folder_for,
    handle_of,
    is_document,
    place_of,
    sees,
    source_of,
    split_id,
)
from .notes import NoteState
from .vectors import Vectors
from .workspace import Workspace, WorkspaceConfig

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

INDEX, VECTORS, MADE = "index/vault.sqlite3", "index/vectors", "made_folders"
_MAX_PROBLEMS = 1000
_DEBOUNCE_MS, _STEP_MS = 200, 50
_ABSENT_SECONDS = 1.0
_COUNTED = "is_current AND (expires IS NULL OR expires > ?)"
"""Condition on counted rows: expired records stay stored until pruning, but are never found."""
_SCOPES = f"""
    SELECT area,
           CASE area WHEN 'project' THEN project_id WHEN 'user' THEN subject_id
                     WHEN 'agent' THEN agent_id END AS name,
           count(*) AS records
    FROM records WHERE {_COUNTED} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - put together from constants
_VECTOR_NOT_KEPT = "Its vector was not kept, as another process embeds; the model makes one."
_FREE = (Usage(provider=KEY, cost_usd=Decimal(0)),)
"""A local file costs nothing: a known price of zero, not an unknown one."""


_FOLDER = "vault"
"""Folder of the vault within the binding's `data_dir`, unless the config names a path."""


class _FolderConfig(Model):
    """What the vault's folder is and how it is read."""

    path: LocalPath | None = None
    """The vault's folder; unset keeps it in the binding's own data folder."""
    exclude: tuple[str, ...] = ("node_modules",)
    """Names of folders that are not read. Folders with a leading dot are not read either."""
    refresh_seconds: float = Field(default=2.0, ge=0)
    """Seconds before outside edits are noticed."""
    lock_seconds: float = Field(default=10.0, gt=0)
    """Seconds that a write waits for another program that is writing."""
    max_file_mb: int = Field(default=20, ge=1)
    """Larger files are listed as problems, not read."""
    workspaces: dict[str, WorkspaceConfig] = {}
    """Projects whose specs and docs are read in place, by project id: `{"web": "~/src/web"}`, or
    `{"web": {"path": "~/src/web", "patterns": ["/docs/**/*.md"]}}`."""
    templates: Json = {}
    """The namespaces of `memtui serve plugin` for project, agent, subject and company, such as
    `{"project": "workspace:acme-{project_id}"}`; a part that is left out keeps its usual
    namespace."""


class VaultConfig(EmbeddingConfig, _FolderConfig):
    """A folder of markdown notes and facts."""


class VaultAdapter(Adapter):
    """Markdown files as memory."""

    key: ClassVar[str] = KEY
    config_model = VaultConfig
    pinned_weight = search.PINNED
    capabilities = Capabilities(
        browse=True,
        correction=True,
        sync=True,
        explain=True,
        history=True,
        namespaces=True,
        restore=True,
        chosen_owners=True,
        expiry=True,
        pin=True,
        validity=True,
        summaries=True,
        similar=True,
        full_text=True,
        watch=True,
        links=True,
        tags=True,
        without=True,
    )

    def __init__(
        self,
        context: BindingContext,
        folder: VaultFolder,
        index: VaultIndex,
        *,
        vectors: Vectors | None,
        scratch: Scratch | None,
        trouble: str,
    ) -> None:
        """Set up an open vault.

        `scratch` contains the index where the binding's folder cannot; `trouble` says why the
        configured embedding is unusable.
        """
        self._context = context
        self._folder = folder
        # Of a part of a repository the history of the whole would be read, which nobody named.
        roots = {one.project_id: one.root for one in folder.workspaces}
        self.workspaces = {name: one for name, one in roots.items() if (one / ".git").exists()}
        self._index = index
        self._vectors = vectors
        self._scratch = scratch
        self._trouble = trouble
        self._stopped = asyncio.Event()
        takes = vectors is not None and vectors.dimensions() is not None
        update = {"semantic": vectors is not None, "given_embeddings": takes}
        abilities = self.capabilities.model_copy(update=update)
        self.capabilities = abilities_in(context, abilities)

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the vault's folder, unless it lies in the `data_dir`."""
        path = VaultConfig.model_validate(context.config).path
        return [place_of_path(path)] if path else ()

    @classmethod
    def lives_in(cls, data_dir: Path) -> bool:
        """Whether the `data_dir` contains a vault."""
        return (data_dir / _FOLDER).is_dir()

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:  # noqa: ARG003
        """Return the folder of a scope. Raises `Invalid` for an id that no folder can have."""
        return folder_for(scope)

    @classmethod
    def check_record(cls, config: Json, record: Record) -> None:  # noqa: ARG003
        """Raise `Invalid` for a note with a validity window."""
        _refuse_window(record)

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the vault; its folder need not exist yet. Raises `Invalid` for a bad config."""
        return await asyncio.to_thread(cls._open, context)

    @classmethod
    def _open(cls, context: BindingContext) -> Self:
        config = read_config(VaultConfig, context)
        path = config.path or context.data_dir / _FOLDER
        root = Path(os.path.realpath(path))
        if root.exists() and not root.is_dir():
            raise Invalid(f"{root} is not a folder; set the vault's path to one.")
        folder = VaultFolder(
            root,
            context.company_id,
            context.now,
            context.data_dir / MADE,
            exclude=frozenset(config.exclude),
            lock_seconds=config.lock_seconds,
            max_bytes=config.max_file_mb * 1_000_000,
            workspaces=_workspaces(config, root),
        )
        scratch = None
        if context.read_only and not is_writable(context.data_dir):
            scratch = Scratch()
        place = scratch.path if scratch else context.data_dir
        index = VaultIndex(
            place / INDEX, folder, config.refresh_seconds, writable=not context.read_only
        )
        folder.known = folder.known or not index.is_empty
        index.refresh(force=True)
        if index.leftovers and not context.read_only:
            folder.clear_leftovers(index.leftovers)
        vectors, trouble = None, ""
        try:
            model = open_embedder(config, context) if config.embedding else None
            if scratch is not None and model is not None and not model.is_instant:
                trouble = (
                    f"{context.data_dir} cannot be written, so vectors of {model.name} cannot "
                    "be stored."
                )
            elif model is not None:
                another = partial(open_embedder, config, context)
                vectors = Vectors(place / VECTORS, index, model, another)
        except Invalid as error:  # then search is by words alone
            trouble = str(error)
        return cls(context, folder, index, vectors=vectors, scratch=scratch, trouble=trouble)

    async def close(self) -> None:
        """Stop watching and close the index."""
        self._stopped.set()
        if self._vectors is not None:
            self._vectors.close()
        await asyncio.to_thread(self._index.close)
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.close)

    def _check_writable(self) -> None:
        require_writable(self._context, "This vault is")

    def _check_company(self, scope: Scope) -> None:
        if scope.company_id != self._folder.company_id:
            raise Denied("This vault belongs to another company.")

    # Read

    @blocking
    def query(self, request: QueryRequest) -> ContextBundle:
        """Search by words and meaning, and sort the results by the intent.

        An answer starts with facts whose key the query names, and favours the nearest scope. A
        preamble starts with pinned records, then rules and guidance, then records that helped
        before, then the rest as in an answer, up to `max_tokens`. Browsing lists the newest first.
        """
        found, usage = self._search(request)
        return ContextBundle(
            snippets=tuple(found.snippets),
            capped=len(found.hits) > len(found.snippets),
            usage=usage,
            stages=search.stages_of(found),
        )

    @blocking
    def explain(self, request: QueryRequest) -> Explanation:
        """Return the words searched for, and the contribution of each stage."""
        found, usage = self._search(request)
        return search.explain(found).model_copy(update={"usage": usage})

    def _search(self, request: QueryRequest) -> tuple[search.VaultHits, tuple[Usage, ...]]:
        self._index.refresh()
        meaning, trouble = None, ""
        if self._vectors is not None:
            if request.embedding:
                self._vectors.unit(request.embedding)  # one of another model is refused
            try:
                meaning = self._vectors.scores(request.query, request.embedding or None)
            except MemtuiError as error:  # the search by words works without it
                trouble = str(error)
        ask = partial(search.search, meaning=meaning, trouble=trouble)
        return self._ask(ask, request), meaning.usage if meaning and meaning.usage else _FREE

    @blocking
    def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page with the exact total."""
        return self._ask(search.browse, request)

    def _ask(
        self,
        ask: Callable[[Connection, VaultFolder, RequestT, datetime], ReplyT],
        request: RequestT,
    ) -> ReplyT:
        self._index.refresh()
        folder, now = self._folder, self._context.now()
        return self._index.read(lambda database: ask(database, folder, request, now))

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether `browse` lists an owner's records: every id of the scope narrows."""
        return within(scope, owner)

    def sees(self, scope: Scope, record: Record) -> bool:
        """Whether the folder of a record is visible to a scope."""
        path, _ = split_id(record.handle.provider_record_id)
        return sees(scope, place_of(path).area, record.scope)

    @blocking
    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Read a record from its file; None if there is none in this scope."""
        return self._find(handle, scope, {})

    def _find(
        self,
        handle: RecordHandle,
        scope: Scope,
        loaded: dict[str, FactsDocument],
        *,
        expired: bool = False,
    ) -> Record | None:
        """Return a record in this scope, an expired one only if `expired`; None: there is none.

        `loaded` caches the facts files that a bulk call has read.
        """
        self._check_company(scope)
        try:
            stored = self._read(handle, loaded)
        except Invalid:
            return None
        if stored is None or not sees(scope, stored.area, stored.record.scope):
            return None
        ends = stored.record.expires_at
        is_past = ends is not None and ends <= self._context.now()
        return None if is_past and not expired else stored.record

    def _read(self, handle: RecordHandle, loaded: dict[str, FactsDocument]) -> StoredRecord | None:
        path, name = split_id(handle.provider_record_id)
        if handle.provider_key != KEY:
            return None
        if is_document(path):  # only the index knows which files of a project are included
            self._index.refresh()
            return self._index.document(path)
        if not self._folder.is_path(path):
            return None
        if name is None:
            note = notes.load(self._folder, path)
            return note and note[1]
        return self._facts(path, loaded).find(name)

    def _facts(self, path: str, loaded: dict[str, FactsDocument]) -> FactsDocument:
        if path not in loaded:
            loaded[path] = changes.load(self._folder, path)
        return loaded[path]

    @blocking
    def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a fact's versions, newest first; of a note only the present one."""
        path, name = split_id(handle.provider_record_id)
        if name is None:
            note = self._find(handle, scope, {})
            return [RecordVersion.like(note, valid_from=note.created_at)] if note else []
        self._check_company(scope)
        if not self._folder.is_path(path):
            return []
        document = changes.load(self._folder, path)
        known = (one for one in document.records() if one.record.handle == handle)
        first = next(known, None)
        if first is None or not sees(scope, first.area, first.record.scope):
            return []
        return [
            RecordVersion.like(version, source=source_of(version.source, self._folder.company_id))
            for version in reversed(document.versions_of(name))
        ]

    @blocking
    def versions(self, scope: Scope) -> Sequence[Record]:
        """Return every version of the facts visible to a scope; notes keep no versions."""
        self._check_company(scope)
        return self._ask(search.versions, scope)

    @blocking
    def tags(self, scope: Scope) -> Sequence[TagCount]:
        """Count the tags of notes and facts."""
        self._check_company(scope)
        return self._ask(search.tags, scope)

    @blocking
    def links(self, handles: Sequence[RecordHandle], scope: Scope) -> Mapping[str, Links]:
        """Return the wikilinks in notes and facts, and the backlinks of notes."""
        self._check_company(scope)
        self._index.refresh()
        now = microseconds(self._context.now())
        ids = [handle.provider_record_id for handle in handles]
        return self._index.read(
            lambda database: links.links_of(database, self._folder, ids, scope, now)
        )

    @blocking
    def namespaces(self) -> Sequence[Namespace]:
        """List the scopes that have records, such as `project:web`, with record counts."""
        self._index.refresh()
        now = microseconds(self._context.now())
        counted = self._index.read(lambda database: database.execute(_SCOPES, [now]).fetchall())
        return [
            Namespace(
                name=f"{row['area']}:{row['name']}" if row["name"] else row["area"],
                kind=row["area"],
                records=row["records"],
            )
            for row in counted
        ]

    # Change

    @blocking
    def write(self, request: WriteRequest) -> WriteReply:
        """Store a note or a fact; a fact in upsert mode replaces the value of its key."""
        self._check_writable()
        self._check_company(request.scope)
        _refuse_window(request)
        folder = folder_for(request.scope)
        before: tuple[Snapshot, ...] = ()
        vector = None
        if self._vectors is not None and request.embedding:
            vector = self._vectors.unit(request.embedding)
        with self._folder.locked():
            if request.kind != "fact":
                record_id = notes.write(self._folder, request, folder)
            else:
                record_id, replaced = changes.write(self._folder, request, folder)
                if replaced:
                    record, state = replaced
                    sealed = _seal(state.to_json())
                    before = (Snapshot(handle=record.handle, record=record, state=sealed),)
        self._index.follow([split_id(record_id)[0]])
        lacking = ""
        if self._vectors is not None and vector is not None:
            kept = self._vectors.give(record_id, vector)
            lacking = "" if kept else _VECTOR_NOT_KEPT
        return WriteReply(
            records=(handle_of(record_id),), before=before, usage=_FREE, lacking=lacking
        )

    @blocking
    def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a note's body or frontmatter lines, or a fact's line, and nothing around them."""
        self._check_writable()
        path, name = split_id(request.handle.provider_record_id)
        with self._folder.locked():
            record = self._find(request.handle, request.scope, {})
            if record is None:
                self._read(request.handle, {})  # raises the more specific error of a broken file
                if request.revision is None:
                    raise NotFound(f"There is no record {path[:200]!r} in this scope.")
                raise Conflict("The record was removed since you read it.", proposed=request.text)
            check_revision(record, request.revision, request.text)
            _check_own(record)
            if name is not None:
                changes.correct(self._folder, request, path, name)
            else:
                notes.correct(self._folder, request, path)
        self._index.follow([path])
        return CorrectReply(handle=request.handle)

    @blocking
    def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove notes' files and facts' lines, expired ones too, and empty folders memtui made."""
        self._check_writable()
        missing: list[RecordHandle] = []
        refused: dict[str, str] = {}
        named: dict[str, list[str]] = defaultdict(list)
        """The facts to remove from a file, by its path; none: remove the file itself."""
        loaded: dict[str, FactsDocument] = {}
        with self._folder.locked():
            for handle in dict.fromkeys(request.handles):
                record = self._find(handle, request.scope, loaded, expired=True)
                if record is None:
                    missing.append(handle)
                    continue
                check_revision(record, request.revisions.get(handle.provider_record_id))
                _check_own(record)
                if record.problem:
                    refused[handle.provider_record_id] = notes.not_whole(record)
                    continue
                path, name = split_id(handle.provider_record_id)
                named[path] += [name] if name else []
            stay = {path: self._remove(path, names) for path, names in named.items()}
            for path in {split_id(handle.provider_record_id)[0] for handle in request.handles}:
                if self._folder.is_path(path):
                    self._folder.remove_made(path)
        self._index.follow(named)
        refused |= {
            f"{path}#{name}" if name else path: why
            for path, why in stay.items()
            if why
            for name in named[path] or [""]
        }
        return ForgetReply(missing=tuple(missing), refused=refused)

    def _remove(self, path: str, names: Sequence[str]) -> str:
        """Remove a note's file, or facts from a file; return the reason if it stays unchanged."""
        before = self._folder.touched
        try:
            if names:
                changes.forget(self._folder, path, names)
            else:
                self._folder.remove(path)
        except MemtuiError as error:
            if self._folder.touched > before:
                raise
            return str(error)
        return ""

    @blocking
    def sync(self, source: SourceRef | None = None) -> SyncReply:
        """Rebuild the index from all files."""
        require_whole(source)
        seen, changed, removed = self._index.rebuild()
        return SyncReply(seen=seen, changed=changed, removed=removed)

    @blocking
    def embed(self, most: int) -> EmbedReply:
        """Embed the next texts, and return the progress."""
        if self._vectors is None:
            raise Unsupported(
                self._trouble or "This vault has no embedding model; set embedding in its config."
            )
        self._index.refresh()
        usage = self._vectors.embed(most)
        return EmbedReply(embedding=self._vectors.progress(), usage=usage)

    @blocking
    def without(self, record_ids: Collection[str]) -> Adapter:
        """Return a copy of the present index without some records.

        Raises `Unsupported` where a server embeds queries: it would be sent them again.
        """
        self._index.refresh()
        if self._vectors is not None:
            if self._vectors.asks_a_server():
                raise Unsupported(
                    f"{self._context.binding_key} searches by meaning, so a replay would send the "
                    "queries to its model's server again."
                )
            self._vectors.fill()
        return _StillVault(
            self._context.model_copy(update={"read_only": True}),
            self._folder,
            self._index.without(record_ids, self._context.now()),
            vectors=self._vectors,
            scratch=None,
            trouble=self._trouble,
        )

    # Put back, and erase

    @blocking
    def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record's exact bytes and place, expired records included."""
        loaded: dict[str, FactsDocument] = {}
        return [self._snapshot(handle, scope, loaded) for handle in handles]

    def _snapshot(
        self, handle: RecordHandle, scope: Scope, loaded: dict[str, FactsDocument]
    ) -> Snapshot:
        path, name = split_id(handle.provider_record_id)
        record = self._find(handle, scope, loaded, expired=True)
        state: FactState | NoteState | None = None
        if name is not None and self._folder.is_path(path):
            state = FactState.take(self._facts(path, loaded), name)
        elif name is None and record is not None:
            state = NoteState.take(self._folder, path)
        data = state.to_json() if state else {}
        return Snapshot(handle=handle, record=record, state=_seal(data) if data else {})

    @blocking
    def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Restore records byte for byte; remove folders that memtui made and that are now empty."""
        self._check_writable()
        self._check_company(scope)
        facts: dict[str, dict[str, FactState]] = defaultdict(dict)
        files: dict[str, NoteState | None] = {}
        seen = {one.handle.provider_record_id: one.replaces for one in snapshots if one.replaces}
        for snapshot in snapshots:
            path, name = split_id(snapshot.handle.provider_record_id)
            self._folder.check_path(path)
            data = _unseal(snapshot.state)
            if name is not None:
                facts[path][name] = FactState.from_json(data)
            else:
                files[path] = NoteState.from_json(data) if snapshot.record else None
        with self._folder.locked():
            notes.check_restore(self._folder, files, seen, self._index.written)
            for path, states in facts.items():
                changes.check_restore(self._folder, path, states, seen)
            for path, states in facts.items():
                changes.restore(self._folder, path, states)
            notes.restore(self._folder, files)
            for path in {*facts, *files}:
                self._folder.remove_made(path)
        self._index.follow({*facts, *files})
        back = [one.handle.provider_record_id for one in snapshots if one.record is not None]
        return WriteReply(records=tuple(map(handle_of, back)))

    @blocking
    def erase(self, request: EraseRequest) -> EraseReply:
        """Erase deleted facts from the history files and from the index.

        For a project or subject, its empty folders are removed too, since their names contain its
        id.
        """
        if request.apply:
            self._check_writable()
        root = self._folder.root
        if not root.is_dir():
            return EraseReply()
        gone: dict[str, list[VaultVersion]] = {}
        with self._folder.locked():
            for history in sorted(self._folder.scan().signatures):
                if history.rpartition("/")[2] == HISTORY:
                    path = history.removesuffix(HISTORY) + FACTS
                    if found := changes.erase(self._folder, path, request):
                        gone[path] = found
            if request.apply:
                self._remove_empty(request.scope)
                self._folder.drop_notes()
        beyond = [
            f"The vault {root} lies in the git repository {above}: its history and its copies "
            "elsewhere keep committed texts; remove them with `git filter-repo`."
            for above in (root, *root.parents)
            if (above / ".git").exists()
        ][:1]
        if request.apply and not self._scrub():
            beyond.append(
                f"Another program has the index {self._context.data_dir / INDEX} open, so old "
                "words may stay in it; close that program and purge again."
            )
        beyond += [
            f"Texts of this vault may go to {address} to be embedded; ask its administrator to "
            "erase copies there."
            for address in sorted(self._context.agreed)
        ]
        return EraseReply(
            kept={path.removesuffix(FACTS) + HISTORY: len(found) for path, found in gone.items()},
            texts=tuple(version.text for found in gone.values() for version in found),
            record_ids=tuple(
                dict.fromkeys(f"{path}#{one.fact}" for path, found in gone.items() for one in found)
            ),
            folders=(root,),
            beyond=tuple(beyond),
        )

    def _scrub(self) -> bool:
        if self._vectors is not None:
            return self._index.scrub() and self._vectors.scrub()
        shutil.rmtree(self._context.data_dir / VECTORS, ignore_errors=True)
        return self._index.scrub()

    def _remove_empty(self, scope: Scope) -> None:
        if not (scope.project_id or scope.subject_id):
            return
        root = self._folder.root / folder_for(scope)
        facts = root / FACTS
        if facts.is_file() and facts.read_bytes() == NEW_FILE.encode():
            self._folder.remove(f"{folder_for(scope)}/{FACTS}")
        for folder, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106  # refuses where anything is in it

    # State

    @blocking
    def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return the problems in the folders visible to `scope`, each with its owner."""
        folder, found = self._folder, self._index.troubles
        for problem in self._index.problems():
            shown = problem.location.path if problem.location else str(folder.root)
            path = next(folder.names(shown), shown)
            place = place_of(path if Path(path).suffix else f"{path}/")
            owner = place.scope(folder.company_id)
            if sees(scope, place.area, owner):
                found.append(problem.model_copy(update={"scope": owner}))
        return found

    @blocking
    def health(self) -> Health:
        """Count the records and list what cannot be read."""
        try:
            self._index.refresh()
            return self._health()
        except Unavailable as error:
            return Health(status="down", message=str(error))

    def _health(self) -> Health:
        index, root = self._index, self._folder.root
        if self._context.read_only and not root.is_dir():
            return Health(status="down", message=f"The vault's folder {root} does not exist.")
        count = f"SELECT count(*) FROM records WHERE {_COUNTED}"  # noqa: S608 - a constant
        now = microseconds(self._context.now())
        records = index.read(lambda database: database.execute(count, [now]).fetchone()[0])
        problems, troubles = index.problems(_MAX_PROBLEMS), index.troubles
        if self._trouble:
            troubles.append(Problem(message=self._trouble))
        message = f"{len(problems)} files cannot be read whole." if problems else ""
        if len(problems) == 1:
            message = "1 file cannot be read whole."
        if not root.is_dir():
            message = f"The folder {root} will be made with the first record."
        if troubles:
            message = troubles[0].message
        return Health(
            status="degraded" if problems or troubles else "ok",
            message=message,
            records=records,
            problems=(*troubles, *problems),
            embedding=self._vectors.progress() if self._vectors else None,
        )

    async def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the records that people or other programs change.

        memtui's own writes are indexed before their events arrive, so they are not reported.
        """
        import watchfiles

        root, stopped = self._folder.root, self._stopped
        while not stopped.is_set() and not await asyncio.to_thread(root.is_dir):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), _ABSENT_SECONDS)
        if stopped.is_set():
            return
        batches = watchfiles.awatch(
            root,
            *[folder for one in self._folder.workspaces for folder in one.folders()],
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=WatchEnd(stopped),
        )
        self._index.is_watched = True
        try:
            async for batch in batches:
                found = await asyncio.to_thread(self._follow, {path for _, path in batch})
                if found:
                    yield [handle_of(record_id) for record_id in found]
        except OSError as error:
            raise Unavailable(f"The folder {root} cannot be watched: {error}.") from error
        finally:
            self._index.is_watched = False

    def _follow(self, changed: Iterable[str]) -> list[str]:
        self._folder.check()
        named = {path for one in changed for path in self._folder.names(one)}
        paths = {unit_path(path) for path in named if self._folder.is_read(path)}
        return self._index.update(path for path in paths if path) if any(paths) else []


class _StillVault(VaultAdapter):
    """A vault over a copy of its index, which shares the original vault's vectors."""

    async def close(self) -> None:
        """Discard the copy of the index; the vectors stay open for the original vault."""
        await asyncio.to_thread(self._index.close)


def _workspaces(config: VaultConfig, vault: Path) -> list[Workspace]:
    """Return the configured workspaces. Raises `Invalid` for a bad id or a path in the vault."""
    found = [
        Workspace(project_id, one, vault, frozenset(config.exclude))
        for project_id, one in config.workspaces.items()
    ]
    for one in found:
        encode_name(one.project_id, "project")
        if one.root.is_relative_to(vault):
            raise Invalid(
                f"The workspace {one.root} lies in the vault {vault}, whose files are notes "
                "already; name the project's own folder."
            )
    return found


def _check_own(record: Record) -> None:
    if record.read_only and record.location is not None:
        raise Denied(
            f"{record.location.path} is a file of the project {record.scope.project_id} itself, "
            "which memtui only reads; change it there."
        )


def _refuse_window(wanted: Record | WriteRequest) -> None:
    if wanted.kind != "fact" and (wanted.valid_from or wanted.valid_to):
        raise Invalid("A note of a vault has no validity window; write it as a fact.")


def _seal(data: Json) -> Json:
    """Encode a snapshot's state in base64, so that no store or redaction alters its text."""
    return {"vault": base64.b64encode(json.dumps(data).encode()).decode()}


def _unseal(state: Json) -> Json:
    """Decode the result of `_seal`; empty stays empty. Raises `Invalid` for a foreign state."""
    if not state:
        return {}
    try:
        data = json.loads(base64.b64decode(state["vault"], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error):
        data = None
    if not isinstance(data, dict):
        raise Invalid("This snapshot was not taken by the vault; it cannot be restored.")
    return data
