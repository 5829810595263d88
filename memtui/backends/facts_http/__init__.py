"""Facts on a server with the endpoints of seed 004 §6.4."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from memtui.backends.fact_base import (
    MAKER,
    OWNER_IDS,
    FactProvider,
    check_line,
    fact_owner,
    missing,
)
from memtui.backends.facts_http.client import KEY, FactsClient, WireFact, handle_of
from memtui.contract import (
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
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
from memtui.provider_kit import check_revision, read_config, read_moment
from memtui.provider_kit.files.reading import digest
from memtui.provider_kit.matching import matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.server_provider import ServerLimits, read_token
from memtui.provider_kit.servers import check_address

USAGE = Usage(provider=KEY)
"""The usage of one call; its cost on the server is unknown."""
_LAST = datetime.max.replace(tzinfo=UTC)
_PUT_BACKS = 3
_PAUSE_SECONDS = 0.2


class FactsHttpConfig(ServerLimits):
    """Facts behind a server with the endpoints `/api/memory/user` and `/api/memory/drive`."""

    token_secret: str
    """The name of the secret that holds the bearer token."""
    subject_id: str = Field(min_length=1)
    """The subject that the token belongs to; the server's user facts belong to this subject."""
    drives: tuple[str, ...] = ()
    """Drives to show if no project is named; the server cannot list drives."""
    socket: Path | None = None
    """A unix socket to reach the server through."""
    timeout_seconds: float = Field(default=10.0, gt=0)
    """How long one request may take, in seconds, whole body included."""
    max_body_mb: float = Field(default=5.0, gt=0)
    """The largest reply that is read, in megabytes."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config = read_config(cls, context)
        is_private = config.allow_http or config.socket is not None
        check_address(config.url, what="The facts' url", is_private=is_private)
        return config

    def find_token(self, context: BindingContext) -> str:
        """Return the bearer token. Raises `Invalid` if there is none, or it cannot be sent."""
        return read_token(context, self.token_secret, "the server's token")


class FactsHttpAdapter(FactProvider):
    """Facts on a server, which assigns their ids and times; `client` has the wire format.

    A write goes to the project's drive if the scope names a project, or else to the token's user.
    A record id is `user:<id>` or `drive:<id>`. The API only stores a text: sources, tags, topics
    and metadata are dropped, and a pin or an expiry is refused. It has no update: a correction
    stores the new text and deletes the old one, so that the fact gets another id and time.
    """

    key: ClassVar[str] = KEY
    lacks = FactProvider.lacks | {
        "topic", "tags", "created_at", "created_by", "source", "metadata",
    }  # fmt: skip
    config_model = FactsHttpConfig
    abilities = Capabilities(browse=True, correction=True, namespaces=True, full_text=True)
    usage = USAGE
    capabilities = abilities

    def __init__(
        self, context: BindingContext, config: FactsHttpConfig, client: FactsClient
    ) -> None:
        super().__init__(context)
        self._config = config
        self._client = client
        self._replacing: set[asyncio.Future[RecordHandle]] = set()

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the socket or the server."""
        config = FactsHttpConfig.of(context)
        return [place_of_path(config.socket) if config.socket else place_of_url(config.url)]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Check the config; the first call connects to the server. Raises `Invalid`."""
        config = FactsHttpConfig.of(context)
        headers = {"Authorization": f"Bearer {config.find_token(context)}"}
        api = config.client("The facts' server", headers, config.socket)
        return cls(context, config, FactsClient(api))

    async def close(self) -> None:
        """Close the connections, after running corrections have ended."""
        if self._replacing:
            await asyncio.wait(self._replacing)
        await self._client.close()

    async def write(self, request: WriteRequest) -> WriteReply:
        """Store a fact."""
        self.require_writable()
        check_line(request.content)
        if request.pinned or request.expires_at is not None:
            raise Unsupported("The facts' server supports no pins and no expiry; leave them out.")
        kind, owner = fact_owner(request.scope)
        if kind == "user" and owner != self._config.subject_id:
            raise Denied(
                f"The token of this binding belongs to {self._config.subject_id}, so it cannot "
                f"store facts about {owner}; use a binding for that owner."
            )
        stored = await self._client.add(kind, owner, request.content)
        return WriteReply(records=(stored,), usage=(USAGE,))

    async def candidates(self, request: QueryRequest) -> Sequence[Record]:
        """Return the facts of the scope, the oldest first, those without a time last."""
        found = (await self._records(request.scope)).values()
        return sorted(found, key=lambda r: (r.created_at or _LAST, r.handle.provider_record_id))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return a fact, from the whole list: the server has no call for a single one."""
        return (await self._there(scope)).get(handle)

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Delete facts, one request each."""
        self.require_writable()
        there = await self._there(request.scope)
        for handle in request.handles:
            if handle in there:
                check_revision(there[handle], request.revisions.get(handle.provider_record_id))
        unknown, gone = [], 0
        for handle in request.handles:
            try:
                if handle not in there:
                    unknown.append(handle)
                else:
                    await self._client.delete(handle)
                    gone += 1
            except NotFound:
                unknown.append(handle)
            except MemtuiError as error:
                if not gone:
                    raise
                raise Unavailable(
                    f"{gone} of {len(request.handles)} facts were forgotten, then it failed: "
                    f"{error}",
                    sent=True,
                ) from error
        return ForgetReply(missing=tuple(unknown), usage=(USAGE,))

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page with the exact total."""
        records = (await self._records(request.scope)).values()
        found = page(list(filter(matcher(request.filter), records)), request)
        return found.model_copy(update={"usage": (USAGE,)})

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Store the new text and delete the old."""
        self.require_writable()
        others = (request.pinned, request.topic, request.tags)
        if request.text is None or request.sets_expiry or others != (None, None, None):
            raise Unsupported("The facts' server can only change a fact's text.")
        check_line(request.text)
        there = await self._there(request.scope)
        record = there.get(request.handle)
        if record is None:
            raise missing(request.handle)
        check_revision(record, request.revision, request.text)
        handle = record.handle
        if record.text != request.text:
            handle = await self._replaced(
                _Replacement(self._client, record, request.text, frozenset(there))
            )
        return CorrectReply(handle=handle, usage=(USAGE,))

    async def _replaced(self, replacement: _Replacement) -> RecordHandle:
        """Run a replacement to its end even if the caller is cancelled, so that no fact is lost."""
        running = asyncio.ensure_future(replacement.run())
        self._replacing.add(running)
        running.add_done_callback(self._replaced_or_not)
        return await asyncio.shield(running)

    def _replaced_or_not(self, running: asyncio.Future[RecordHandle]) -> None:
        self._replacing.discard(running)
        if not running.cancelled():
            running.exception()  # retrieved, so that asyncio does not log it as well

    async def namespaces(self) -> Sequence[Namespace]:
        """List the token's user and the drives of the config."""
        everything = Scope(company_id=self.context.company_id)
        lists = [_list_of(record) for record in (await self._records(everything)).values()]
        return [
            Namespace(name=f"{kind}:{owner}", kind=kind, records=lists.count((kind, owner)))
            for kind, owner in self._lists(everything)
        ]

    async def health(self) -> Health:
        """Return the result of listing the user's facts."""
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
        for kind, owner in self._lists(scope):
            for fact in await self._client.list_facts(kind, owner):
                record = _record(fact, kind, owner, self.context.company_id)
                if record.handle in records:
                    raise Unavailable(
                        f"The facts' server lists two facts with the id {fact.id}; correct this on "
                        "the server."
                    )
                records[record.handle] = record
        return records

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether an owner's list is one of the scope's."""
        return fact_owner(owner) in self._lists(scope)

    def _lists(self, scope: Scope) -> list[tuple[str, str]]:
        """Return the lists visible to a scope, each by its kind and owner."""
        own = ("user", self._config.subject_id)
        if not scope.project_id and not scope.subject_id:
            return [own, *(("drive", drive) for drive in self._config.drives)]
        lists = [own] if scope.subject_id == self._config.subject_id else []
        return [*lists, *([("drive", scope.project_id)] if scope.project_id else [])]


def _list_of(record: Record) -> tuple[str, str]:
    """Return the list that a record is in."""
    project_id = record.scope.project_id
    return ("drive", project_id) if project_id else ("user", record.scope.subject_id or "")


def _record(fact: WireFact, kind: str, owner: str, company_id: str) -> Record:
    moment = read_moment(fact.created_at)
    parts = (fact.id, fact.fact, fact.created_at, fact.source, fact.created_by)
    return Record(
        handle=handle_of(kind, fact.id),
        text=fact.fact,
        scope=Scope(company_id=company_id, **{OWNER_IDS[kind]: owner}),
        kind="fact",
        created_at=moment,
        updated_at=moment,
        created_by=fact.created_by,
        revision=digest(*(part or "" for part in parts)),
        metadata={MAKER: fact.source} if fact.source else {},
    )


class _Replacement:
    """The replacement of one fact by another: the API can only add and delete.

    It stores the new text first and then deletes the old fact, so that an interruption loses
    nothing. A full list accepts no new fact: there it deletes the old one first, and puts it back
    if the new text is refused.
    """

    def __init__(
        self, client: FactsClient, old: Record, text: str, there: frozenset[RecordHandle]
    ) -> None:
        """Set up the replacement of `old`; `there`: the handles that its list has already."""
        self._client = client
        self._old = old
        self._text = text
        self._there = there

    async def run(self) -> RecordHandle:
        """Return the handle of the new text.

        Raises:
            MemtuiError: the text is not stored; `moved` is set if the old fact got a new handle.
        """
        try:
            new = await self._add(self._text)
        except (Invalid, Conflict) as error:
            try:
                copy = await self._add(self._old.text)
            except (Invalid, Conflict):  # even the old text is refused, so the list is full
                return await self._run_in_full_list(error)
            await self._client.delete(copy)
            raise
        except Unavailable as error:
            found = await self._arrived() if error.sent else None
            if found is None:
                raise
            new = found
        await self._delete_old(new)
        return new

    async def _delete_old(self, new: RecordHandle) -> None:
        """Delete the old fact; if it stays, delete the new one and raise.

        After an error that leaves the outcome unknown, the list shows whether it was deleted.
        """
        try:
            await self._client.delete(self._old.handle)
        except MemtuiError as error:
            both = (
                f"The new text is stored as {new.provider_record_id}, and the old one may still "
                f"be there as {self._old.handle.provider_record_id}: {error}"
            )
            if isinstance(error, Unavailable) and error.sent:
                # If the list cannot be read, the new text stays: it may be the only one left.
                listed = await self._listed()
                if listed is None:
                    raise Unavailable(both, sent=True) from error
                if self._old.handle not in listed:
                    return
            try:
                await self._client.delete(new)
            except MemtuiError as second:
                raise Unavailable(both, sent=True) from second
            if isinstance(error, NotFound):
                raise self._deleted_meanwhile() from error
            raise

    async def _run_in_full_list(self, full: MemtuiError) -> RecordHandle:
        try:
            await self._client.delete(self._old.handle)
        except NotFound as error:
            raise self._deleted_meanwhile() from error
        except Unavailable as error:
            listed = await self._listed() if error.sent else None
            if listed is None or self._old.handle in listed:
                raise
        try:
            return await self._add(self._text)
        except MemtuiError as error:
            if isinstance(error, Unavailable) and error.sent:
                found = await self._arrived()
                if found is not None:
                    return found
            raise await self._put_back(error) from full

    async def _arrived(self) -> RecordHandle | None:
        """Return the new text's handle if it was stored although the reply was lost."""
        listed = await self._listed() or {}
        new = (one for one, text in listed.items() if text == self._text and one not in self._there)
        return next(new, None)

    async def _listed(self) -> dict[RecordHandle, str] | None:
        """Return the list's present facts; None if the server does not answer."""
        kind, owner = _list_of(self._old)
        try:
            facts = await self._client.list_facts(kind, owner)
        except MemtuiError:
            return None
        return {handle_of(kind, fact.id): fact.fact for fact in facts}

    async def _put_back(self, error: MemtuiError) -> MemtuiError:
        """Store the old text again, and return the error with its new handle."""
        for attempt in range(_PUT_BACKS):
            await asyncio.sleep(attempt * _PAUSE_SECONDS)
            try:
                handle = await self._add(self._old.text)
            except MemtuiError as second:
                failed = second
            else:
                kept = type(error)(
                    f"{error} The old text is still stored, as {handle.provider_record_id}."
                )
                kept.moved = handle
                return kept
        return Unavailable(
            "The list was full, so the old fact was deleted first; then the server refused the new "
            f"text and the old one ({failed}) Write the old one again: {self._old.text}",
            sent=True,
        )

    def _deleted_meanwhile(self) -> Conflict:
        return Conflict(
            "The fact was deleted while you changed it; write it again if it is still true.",
            proposed=self._text,
        )

    async def _add(self, text: str) -> RecordHandle:
        return await self._client.add(*_list_of(self._old), text)
