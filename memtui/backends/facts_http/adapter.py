"""A server's facts behind the adapter contract."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from memtui.backends.facts.ranking import answer
from memtui.backends.facts.rules import check_line
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    Denied,
    ForgetReply,
    ForgetRequest,
    Health,
    Invalid,
    MemtuiError,
    Namespace,
    NotFound,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    Usage,
    WriteReply,
    WriteRequest,
    place_of_path,
    place_of_url,
)
from memtui.provider_kit import matcher, page

from .client import FactsClient
from .config import FactsHttpConfig
from .records import KEY, age, check_revision, handle_of, place_of, record_of, wire_id
from .replacing import Replacement

USAGE = Usage(provider=KEY)
"""What a call consumes; what the server spends on it, nobody says."""


_ABILITIES = Capabilities(browse=True, correction=True, namespaces=True, full_text=True)


class FactsHttpAdapter(Adapter):
    """Facts that a server keeps; it makes their ids and times (the bodies are in `wire`).

    A write goes to the project's drive where the scope names a project, else to the token's user.
    A fact's handle is `user:<id>` or `drive:<id>`. The wire has a text and nothing else: sources,
    tags, topics and metadata stay behind, and a pin or an expiry is refused. It has no change
    either: a correction stores the new text and deletes the old one, so that the fact gets another
    handle and another time.
    """

    key: ClassVar[str] = KEY
    config_model = FactsHttpConfig
    capabilities = _ABILITIES

    def __init__(
        self, context: BindingContext, config: FactsHttpConfig, client: FactsClient
    ) -> None:
        self._context = context
        self._config = config
        self._client = client
        self._replacing: set[asyncio.Future[RecordHandle]] = set()
        if context.read_only:
            self.capabilities = _ABILITIES.model_copy(
                update={"writable": False, "correction": False}
            )

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Name the server, whose facts are one company's."""
        config = FactsHttpConfig.of(context)
        return [place_of_path(config.socket) if config.socket else place_of_url(config.url)]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Check the config; the server is first asked by a call. Raises `Invalid`."""
        config = FactsHttpConfig.of(context)
        client = FactsClient(
            config.url,
            config.find_token(context),
            socket=config.socket,
            timeout_seconds=config.timeout_seconds,
            max_body_bytes=int(config.max_body_mb * 1_000_000),
        )
        return cls(context, config, client)

    async def close(self) -> None:
        """Close the connections, after a correction that is under way."""
        if self._replacing:
            await asyncio.wait(self._replacing)
        await self._client.close()

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a fact."""
        self._check_writable()
        check_line(request.content)
        if request.pinned or request.expires_at is not None:
            raise Unsupported("The facts' server has no pins and no expiry; write it without.")
        kind, owner = self._place(request.scope)
        stored = await self._client.add(kind, owner, request.content)
        return WriteReply(records=(handle_of(kind, stored.id),), usage=(USAGE,))

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return the facts that match, or for a prompt every fact of the user and the drive."""
        scope = request.scope
        is_prompt = request.intent is QueryIntent.AGENT_PREAMBLE
        if is_prompt and not (scope.project_id or scope.subject_id):
            return ContextBundle(usage=(USAGE,))
        records = sorted((await self._records(scope)).values(), key=age)
        return answer(records, request, USAGE)

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a fact; the server is asked for the whole list, it has no other way."""
        return (await self._there(scope)).get(handle)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete facts, one request each."""
        self._check_writable()
        there = await self._there(request.scope)
        for handle in request.handles:
            if handle in there:
                check_revision(
                    there[handle], request.revisions.get(handle.provider_record_id), None
                )
        missing, gone = [], 0
        for handle in request.handles:
            try:
                if handle not in there:
                    missing.append(handle)
                else:
                    await self._client.delete(*wire_id(handle))
                    gone += 1
            except NotFound:
                missing.append(handle)
            except MemtuiError as error:
                if not gone:
                    raise
                raise Unavailable(
                    f"{gone} of {len(request.handles)} facts were forgotten, then it failed: "
                    f"{error}",
                    sent=True,
                ) from error
        return ForgetReply(missing=tuple(missing), usage=(USAGE,))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page with the exact total."""
        records = (await self._records(request.scope)).values()
        chosen = list(filter(matcher(request.filter), records))
        return page(chosen, request).model_copy(update={"usage": (USAGE,)})

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Store the new text and delete the old; see `Replacement`."""
        self._check_writable()
        others = (request.pinned, request.topic, request.tags)
        if request.text is None or request.sets_expiry or others != (None, None, None):
            raise Unsupported("The facts' server can only change a fact's text.")
        check_line(request.text)
        record = (await self._there(request.scope)).get(request.handle)
        if record is None:
            raise NotFound(
                f"There is no fact {request.handle.provider_record_id} in this scope; list the "
                "facts again."
            )
        check_revision(record, request.revision, request.text)
        if record.text == request.text:
            return CorrectReply(handle=record.handle, usage=(USAGE,))
        new = await self._replaced(Replacement(self._client, record, request.text))
        return CorrectReply(handle=new, usage=(USAGE,))

    async def _replaced(self, replacement: Replacement) -> RecordHandle:
        """Run to the end even if the caller no longer waits: in the middle a fact may be gone."""
        running = asyncio.ensure_future(replacement.run())
        self._replacing.add(running)
        running.add_done_callback(self._replaced_or_not)
        return await asyncio.shield(running)

    def _replaced_or_not(self, running: asyncio.Future[RecordHandle]) -> None:
        self._replacing.discard(running)
        if not running.cancelled():
            running.exception()  # looked at, so that nobody is told of it twice

    async def namespaces(self) -> Sequence[Namespace]:
        """List the token's user and the drives of the config."""
        records = await self._records(Scope(company_id=self._context.company_id))
        places = [place_of(record) for record in records.values()]
        known = [("user", self._config.subject_id), *(("drive", d) for d in self._config.drives)]
        return [
            Namespace(name=f"{kind}:{owner}", kind=kind, records=places.count((kind, owner)))
            for kind, owner in known
        ]

    async def health(self) -> Health:
        """Ask for the user's facts."""
        try:
            facts = await self._client.list_facts("user", self._config.subject_id)
        except MemtuiError as error:
            return Health(status="down", message=str(error))
        return Health(records=len(facts))

    async def _there(self, scope: Scope) -> Mapping[RecordHandle, Record]:
        try:
            return await self._records(scope)
        except NotFound:
            return {}

    async def _records(self, scope: Scope) -> Mapping[RecordHandle, Record]:
        records: dict[RecordHandle, Record] = {}
        for kind, owner in self._places(scope):
            for fact in await self._client.list_facts(kind, owner):
                record = record_of(fact, kind, owner, self._context.company_id)
                if record.handle in records:
                    raise Unavailable(
                        f"The facts' server lists two facts with the id {fact.id}; it has to be "
                        "put right there."
                    )
                records[record.handle] = record
        return records

    def _places(self, scope: Scope) -> list[tuple[str, str]]:
        """Return the lists that a scope sees."""
        own = ("user", self._config.subject_id)
        if not scope.project_id and not scope.subject_id:
            return [own, *(("drive", drive) for drive in self._config.drives)]
        places = [own] if scope.subject_id == self._config.subject_id else []
        return [*places, *([("drive", scope.project_id)] if scope.project_id else [])]

    def _place(self, scope: Scope) -> tuple[str, str]:
        """Return the list that a write goes to."""
        if scope.project_id:
            return "drive", scope.project_id
        if not scope.subject_id:
            raise Invalid(
                "A fact is about a user or a project; name one with --subject or --project."
            )
        if scope.subject_id != self._config.subject_id:
            raise Denied(
                f"The token of this binding is {self._config.subject_id}'s, so it keeps no facts "
                f"about {scope.subject_id}; use a binding of theirs."
            )
        return "user", scope.subject_id

    def _check_writable(self) -> None:
        if self._context.read_only:
            raise Unsupported("These facts are open read-only; open the binding writable first.")
