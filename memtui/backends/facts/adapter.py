"""The fact tables behind the adapter contract: every blocking call in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Self

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
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    MemtuiError,
    Namespace,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
)

from .config import FactsConfig
from .database import FactsDatabase, has_password, place_of
from .fact import KEY
from .ranking import answer
from .store import FactStore

USAGE = Usage(provider=KEY, cost_usd=Decimal(0))
"""What a call consumes: a local table costs nothing."""
_ABILITIES = Capabilities(
    browse=True, correction=True, namespaces=True, restore=True, keeps_ids=True,
    chosen_owners=True, full_text=True,
)  # fmt: skip


_SHARED = (
    "The PostgreSQL of {} keeps deleted rows until it vacuums, and its write-ahead log, replicas "
    "and backups as long as they are kept; ask who runs it."
)
_HELD = (
    "Another program reads the facts of {}, whose write-ahead log may keep deleted rows until it "
    "is done; end it and purge again."
)


class FactsAdapter(Adapter):
    """Facts of users and drives in the tables of seed 004 §6.1.

    A write goes to the project's drive where the scope names a project, else to the subject's
    user. A read sees the facts of both, and everybody's where the scope names neither; only a
    prompt gets none then. A fact's handle is the id of its row; where another program put the same
    id into both tables, the drive's is `drive:<id>`.
    """

    key: ClassVar[str] = KEY
    config_model = FactsConfig
    capabilities = _ABILITIES

    def __init__(self, context: BindingContext, database: FactsDatabase, store: FactStore) -> None:
        self._context = context
        self._database = database
        self._store = store
        has = database.has_details
        changes = {"pin": has, "expiry": has}
        if context.read_only:
            changes |= {"writable": False, "correction": False, "restore": False}
        self.capabilities = _ABILITIES.model_copy(update=changes)

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Name the database, whose two tables know no company."""
        url = FactsConfig.of(context).find_url(context)
        return [place_of(url)] if url else ()

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the tables.

        Raises:
            Invalid: the config does not fit, or the tables are missing or others.
            Denied: the tables may not be created.
            Unavailable: the database cannot be reached.
        """
        return await asyncio.to_thread(cls._open, context)

    @classmethod
    def _open(cls, context: BindingContext) -> Self:
        config = FactsConfig.of(context)
        if config.url and has_password(config.url):
            raise Invalid(
                "The url holds a password; keep the whole URL as a secret and name that in "
                "url_secret."
            )
        url = config.find_url(context)
        database = FactsDatabase.open(
            context.data_dir, url, create=config.create, read_only=context.read_only
        )
        return cls(context, database, FactStore(database, config, context.company_id, context.now))

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._database.close)

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a fact. Raises `Invalid` for one that is too long, or one too many."""
        self._check_writable()
        before = await asyncio.to_thread(self._store.write, request)
        return WriteReply(records=(before.handle,), before=(before,), usage=(USAGE,))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return the facts that match, or for a prompt every fact of the user and the drive."""
        scope = request.scope
        is_prompt = request.intent is QueryIntent.AGENT_PREAMBLE
        if is_prompt and not (scope.project_id or scope.subject_id):
            return ContextBundle(usage=(USAGE,))
        return await asyncio.to_thread(self._query, request)

    def _query(self, request: QueryRequest) -> ContextBundle:
        company_id = self._context.company_id
        records = [fact.record(company_id) for fact in self._store.all_of(request)]
        return answer(records, request, USAGE)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a fact."""
        fact = await asyncio.to_thread(self._store.get, handle, scope)
        return fact.record(self._context.company_id) if fact else None

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete facts, all or none."""
        self._check_writable()
        missing = await asyncio.to_thread(self._store.forget, request)
        return ForgetReply(missing=tuple(missing), usage=(USAGE,))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page with the exact total; a fact's title is its text."""
        return await asyncio.to_thread(self._browse, request)

    def _browse(self, request: BrowseRequest) -> BrowsePage:
        page = self._store.browse(request)
        return BrowsePage(
            records=tuple(fact.record(self._context.company_id) for fact in page.facts),
            next_cursor=page.next_cursor,
            total=page.total,
            usage=(USAGE,),
        )

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Change a fact in its row; when it was made and by whom stays."""
        self._check_writable()
        await asyncio.to_thread(self._store.correct, request)
        return CorrectReply(handle=request.handle, usage=(USAGE,))

    async def namespaces(self) -> Sequence[Namespace]:
        """List the users and drives that have facts."""
        return await asyncio.to_thread(self._store.namespaces)

    async def snapshot(self, handles: Sequence[RecordHandle], scope: Scope) -> Sequence[Snapshot]:
        """Return the exact rows."""
        return await asyncio.to_thread(self._store.snapshot, handles, scope)

    async def restore(self, snapshots: Sequence[Snapshot], scope: Scope) -> WriteReply:
        """Put rows back digit for digit; all or none."""
        self._check_writable()
        await asyncio.to_thread(self._store.restore, snapshots, scope)
        there = tuple(snapshot.handle for snapshot in snapshots if snapshot.record is not None)
        return WriteReply(records=there, usage=(USAGE,))

    async def erase(self, request: EraseRequest) -> EraseReply:
        """Clear deleted rows out of memtui's own file; a database of others is left to them."""
        if self._database.is_shared:
            return EraseReply(beyond=(_SHARED.format(self._context.binding_key),))
        if request.apply and not await asyncio.to_thread(self._database.scrub):
            return EraseReply(beyond=(_HELD.format(self._context.binding_key),))
        return EraseReply()

    async def health(self) -> Health:
        """Count the facts, and say where their details are not kept."""
        try:
            page = await self.browse(
                BrowseRequest(scope=Scope(company_id=self._context.company_id), limit=1)
            )
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        message = "" if self._database.has_details else (
            "Sources, tags, topics, pins and expiry are not kept; set create to true to add a "
            "table for them."
        )  # fmt: skip
        return Health(message=message, records=page.total)

    def _check_writable(self) -> None:
        if self._context.read_only:
            raise Unsupported("These facts are open read-only; open the binding writable first.")
