"""The vault behind the adapter contract: every blocking call in a thread, nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

from pydantic import Field, ValidationError

from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    Explanation,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    Json,
    Model,
    Namespace,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snapshot,
    Snippet,
    SourceRef,
    SyncReply,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    place_of_path,
)

from . import browsing, search, survey
from .entries import KEY, handle_of
from .files import Folder
from .index import Index
from .search import Found
from .vault import Vault
from .watcher import watch

INDEX = "index/vault.sqlite3"


class VaultConfig(Model):
    """A folder of markdown notes and facts."""

    path: Path | None = None
    """The vault's folder; None keeps it in the binding's own data folder."""
    exclude: tuple[str, ...] = ("node_modules",)
    """Names of folders that hold no memories, besides those that begin with a dot."""
    refresh_seconds: float = Field(default=2.0, ge=0)
    """How old, in seconds, what a query knows of edits made outside may be."""
    lock_seconds: float = Field(default=10.0, gt=0)
    """How long, in seconds, a write waits for another program that is writing."""
    max_file_mb: int = Field(default=20, ge=1)
    """Larger files are listed as problems, not read."""
    templates: Json = {}
    """The namespaces of `memtui serve plugin` for project, agent, subject and company, such as
    `{"project": "workspace:acme-{project_id}"}`; what is left out is as usual."""


_ABILITIES = Capabilities(
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
    full_text=True,
    watch=True,
)


_FREE = (Usage(provider=KEY, cost_usd=Decimal(0)),)
"""Files on one's own disk cost nothing, which is known and not unpriced."""


class VaultAdapter(Adapter):
    """Markdown files as memory; the files are the truth, the index is derived (seed 002)."""

    key: ClassVar[str] = KEY
    config_model = VaultConfig
    capabilities = _ABILITIES

    def __init__(
        self,
        context: BindingContext,
        vault: Vault,
        index: Index,
        scratch: TemporaryDirectory[str] | None = None,
    ) -> None:
        """Put it together; `scratch` holds the index where the binding's folder cannot."""
        self._scratch = scratch
        self._context = context
        self._vault = vault
        self._index = index
        self._stopped = asyncio.Event()
        if context.read_only:
            self.capabilities = _ABILITIES.model_copy(
                update={"writable": False, "correction": False, "restore": False}
            )

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Name the vault's folder, where it is not the binding's own."""
        path = VaultConfig.model_validate(context.config).path
        return [place_of_path(path)] if path else ()

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the vault; its folder need not exist yet. Raises `Invalid` for a bad config."""
        return await asyncio.to_thread(cls._open, context)

    @classmethod
    def _open(cls, context: BindingContext) -> Self:
        try:
            config = VaultConfig.model_validate(context.config)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise Invalid(f"The vault's setting {where!r} is wrong: {first['msg']}.") from error
        path = config.path.expanduser() if config.path else context.data_dir / "vault"
        root = Path(os.path.realpath(path))
        if root.exists() and not root.is_dir():
            raise Invalid(f"{root} is not a folder; set the vault's path to one.")
        folder = Folder(
            root,
            exclude=frozenset(config.exclude),
            lock_seconds=config.lock_seconds,
            max_bytes=config.max_file_mb * 1_000_000,
        )
        scratch = None
        if context.read_only and not os.access(context.data_dir, os.W_OK):
            scratch = TemporaryDirectory(prefix="memtui-")
        place = Path(scratch.name) if scratch else context.data_dir
        index = Index(place / INDEX, folder, config.refresh_seconds)
        folder.known = folder.known or not index.is_empty
        index.refresh(force=True)
        if index.leftovers and not context.read_only:
            folder.clear_leftovers(index.leftovers)
        return cls(context, Vault(folder, context.company_id, context.now), index, scratch)

    async def close(self) -> None:
        """Stop watching and close the index."""
        self._stopped.set()
        await asyncio.to_thread(self._index.close)
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.cleanup)

    def _check_writable(self) -> None:
        if self._context.read_only:
            raise Unsupported("This vault is open read-only; open it writable to change it.")

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a note or a fact; a fact in upsert mode replaces the value of its key."""
        self._check_writable()
        return await asyncio.to_thread(self._write, request)

    def _write(self, request: WriteRequest) -> WriteReply:
        record_id, before = self._vault.write(request)
        self._index.follow([_path(record_id)])
        return WriteReply(records=(handle_of(record_id),), before=before, usage=_FREE)

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Search by words; keys of facts first, the nearest scope most."""
        snippets = await asyncio.to_thread(self._snippets, request)
        capped = len(snippets) > request.top_k
        return ContextBundle(snippets=tuple(snippets[: request.top_k]), capped=capped, usage=_FREE)

    def _snippets(self, request: QueryRequest) -> list[Snippet]:
        return [
            Snippet(**dict(self._vault.record(entry)), score=score)
            for entry, score in self._search(request).entries
        ]

    def _search(self, request: QueryRequest) -> Found:
        self._index.refresh()
        now = self._context.now()
        return self._index.read(lambda connection: search.search(connection, request, now))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Read a record from its file."""
        return await asyncio.to_thread(self._vault.get, handle, scope)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Remove notes' files and facts' lines."""
        self._check_writable()
        return await asyncio.to_thread(self._forget, request)

    def _forget(self, request: ForgetRequest) -> ForgetReply:
        missing, paths = self._vault.forget(request)
        self._index.follow(paths)
        return ForgetReply(missing=tuple(missing))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page with the exact total."""
        return await asyncio.to_thread(self._browse, request)

    def _browse(self, request: BrowseRequest) -> BrowsePage:
        self._index.refresh()
        now = self._context.now()
        page = self._index.read(lambda connection: browsing.browse(connection, request, now))
        records = tuple(self._vault.record(entry) for entry in page.entries)
        return BrowsePage(records=records, next_cursor=page.next_cursor, total=page.total)

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a note's body or frontmatter lines, or a fact's line, and nothing around them."""
        self._check_writable()
        await asyncio.to_thread(self._correct, request)
        return CorrectReply(handle=request.handle)

    def _correct(self, request: CorrectRequest) -> None:
        self._index.follow([self._vault.correct(request)])

    async def sync(self, source: SourceRef | None = None) -> SyncReply:  # noqa: ARG002
        """Read every file again, whatever the index holds."""
        seen, changed, removed = await asyncio.to_thread(self._index.rebuild)
        return SyncReply(seen=seen, changed=changed, removed=removed)

    async def explain(self, request: QueryRequest) -> Explanation:
        """Say which words counted and what text, scope, pins and keys contributed."""
        return search.explain(await asyncio.to_thread(self._search, request))

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return a fact's versions; of a note only the one that holds, files keep no more."""
        return await asyncio.to_thread(self._history, handle, scope)

    def _history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        return self._vault.history(handle, scope)

    async def namespaces(self) -> Sequence[Namespace]:
        """List the scopes that hold records."""
        return await asyncio.to_thread(self._namespaces)

    def _namespaces(self) -> Sequence[Namespace]:
        self._index.refresh()
        return self._index.read(survey.namespaces)

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return each record's exact bytes and place."""
        return await asyncio.to_thread(self._vault.snapshot, handles, scope)

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put records back to the byte."""
        self._check_writable()
        return await asyncio.to_thread(self._restore, snapshots, scope)

    def _restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        handles, paths = self._vault.restore(snapshots, scope, self._index.written)
        self._index.follow(paths)
        return WriteReply(records=tuple(handles))

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return what could not be read in the folders that `scope` sees."""
        return await asyncio.to_thread(self._problems, scope)

    def _problems(self, scope: Scope) -> list[Problem]:
        root, company = self._vault.folder.root, self._context.company_id
        return survey.problems_of(self._index, root, scope, company)

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Take what is gone out of the history beside the facts, and out of the index."""
        if request.apply:
            self._check_writable()
        return await asyncio.to_thread(self._erase, request)

    def _erase(self, request: EraseRequest) -> EraseReply:
        if not self._vault.folder.root.is_dir():
            return EraseReply()
        reply = self._vault.erase(request)
        if not request.apply or self._index.scrub():
            return reply
        held = (
            f"Another program reads the index {self._context.data_dir / INDEX}, which may keep old "
            "words until it is done; end it and purge again."
        )
        return reply.model_copy(update={"beyond": (*reply.beyond, held)})

    async def health(self) -> Health:
        """Count the records and list what cannot be read."""
        try:
            return await asyncio.to_thread(self._health)
        except Unavailable as error:
            return Health(status="down", message=str(error))

    def _health(self) -> Health:
        self._index.refresh()
        return survey.health(
            self._index, self._vault.folder.root, read_only=self._context.read_only
        )

    def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the records that hands or other programs change, as they change."""
        return watch(self._vault.folder.root, self._index, self._stopped)


def _path(record_id: str) -> str:
    from .layout import split_id

    return split_id(record_id)[0]
