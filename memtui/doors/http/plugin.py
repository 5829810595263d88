"""The endpoints of the memory plugin contract v1 (seed 001), over one binding.

Each call is operations of the service, and no more.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, FastAPI, Path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from memtui import __version__
from memtui.backends.plugin_v1.config import LONGEST_NAMESPACE, NAMESPACE, is_namespace
from memtui.backends.plugin_v1.wire import CURSOR, EXTENSIONS, IDS
from memtui.contract import (
    BrowseRequest,
    Capabilities,
    Conflict,
    Denied,
    ForgetRequest,
    Invalid,
    Json,
    Model,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    Unavailable,
    Unsupported,
    WriteMode,
    WriteRequest,
    own_filter,
)
from memtui.doors.http import plugin_search
from memtui.doors.http.app import (
    Api,
    ErrorStyle,
    ExactJson,
    Served,
    build_app,
    documented,
    json_body,
    read_json,
    statuses,
)
from memtui.doors.http.plugin_records import (
    ANONYMOUS,
    KEY,
    Mark,
    ServedBinding,
    mark_for,
    mark_of,
    record_kind,
    source_for,
)
from memtui.doors.http.plugin_wire import (
    Code,
    Forget,
    Found,
    Health,
    MemoryWrite,
    Namespace,
    NamespaceKind,
    NamespacePatch,
    NamespacePut,
    Refusal,
    Search,
    Wire,
    Written,
    is_uuid,
)
from memtui.service import (
    BindingView,
    Caller,
    KeptNamespace,
    MemoryName,
    MemoryService,
    MutationAnswer,
)
from memtui.service.namespaces import no_namespace

_AT_ONCE = 8
"""Writes that wait for the provider together: the others wait here, where no timeout runs."""
_PAGE = 500


class PluginCalls(ServedBinding):
    """What a plugin's clients may change in a served binding."""

    def __init__(
        self, service: MemoryService, caller: Caller, binding: BindingView, *, only_facts: bool
    ) -> None:
        super().__init__(service, caller, binding, only_facts=only_facts)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def put(self, name: str, body: NamespacePut) -> Namespace:
        """Create a namespace, or replace it whole."""
        kept = await self.service.plugin.put(
            self.caller,
            self.key,
            name,
            body.kind,
            expires_at=body.expires_at,
            metadata=body.metadata,
        )
        return _told(kept)

    async def patch(self, name: str, body: NamespacePatch) -> Namespace:
        """Set what is given of a namespace."""
        kept = await self.service.plugin.patch(
            self.caller, self.key, name, expires_at=body.expires_at, metadata=body.metadata
        )
        return _told(kept)

    async def drop(self, name: str) -> None:
        """Forget every memory of a namespace, and then the namespace."""
        if name in await self.service.plugin.named(self.caller, self.key, [name]):
            await self._forget_all(name)
        await self.service.plugin.remove(self.caller, self.key, name)
        await self._forget_all(name)  # what was written meanwhile

    async def _forget_all(self, name: str) -> None:
        scope = self.places.scope_of(name)
        while handles := await self._page_of(name, scope):
            await self._forget(scope, handles)

    async def _page_of(self, name: str, scope: Scope) -> tuple[RecordHandle, ...]:
        """Return the handles of some of a namespace's records, none where none is left."""
        request = BrowseRequest(
            scope=scope,
            binding_key=self.key,
            filter=own_filter(scope, kind=None),
            sort="created_at",
            limit=_PAGE,
            owners=(scope,),
            expired=True,
        )
        while True:
            page = await self.service.browse(self.caller, request)
            named = await self.name(page.records, [name])
            handles = tuple(one.record.handle for one in named)
            if handles or page.next_cursor is None:
                return handles
            request = request.model_copy(update={"cursor": page.next_cursor})

    async def write(self, name: str, body: MemoryWrite) -> Written:
        """Store a memory, in place of the one that has its id.

        Raises:
            NotFound: there is no such namespace.
            Unsupported: the provider keeps no pins or no expiry, and one is asked for.
        """
        memory_id = body.id or str(uuid.uuid4())
        async with self._alone(memory_id), self._turn:
            if name not in await self.service.plugin.named(self.caller, self.key, [name]):
                await self.look(memory_id, self.places.scope_of(name))
                raise no_namespace(name)
            can = (await self.binding()).capabilities
            _refuse_lost(can, body)
            mark = await asyncio.to_thread(
                mark_for, memory_id, name, body, as_line=self.keeps_lines
            )
            known = await self.held(memory_id) if body.id else None
            if known is None:
                answer = await self._add(mark, body, can)
            else:
                answer = await self._replace(mark, body, can, known)
            await self._note(mark, answer)
        return Written(id=memory_id, namespace=name)

    async def _add(self, mark: Mark, body: MemoryWrite, can: Capabilities) -> MutationAnswer:
        """Store a memory anew, under its own id where the provider keeps ids."""
        request = self._request(mark, body)
        if not can.keeps_ids:
            return await self._store(request)
        mode = WriteMode.UPSERT if body.id else WriteMode.APPEND
        try:
            return await self._store(
                request.model_copy(update={"record_id": mark.id, "mode": mode})
            )
        except Conflict:  # an expired record of another scope has the id
            return await self._store(request)

    async def _replace(
        self, mark: Mark, body: MemoryWrite, can: Capabilities, known: tuple[MemoryName, Record]
    ) -> MutationAnswer:
        """Put a memory in the place of its record; when it came to be stays."""
        name, old = known
        request = self._request(mark, body, old)
        handle = old.handle
        if name.namespace == mark.namespace and (can.keeps_ids or not _clears(request, old)):
            update: Json = {"record_id": handle.provider_record_id, "mode": WriteMode.UPSERT}
            answer = await self._store(request.model_copy(update=update))
            if handle in answer.handles:
                return answer
        else:
            answer = await self._store(request)
        await self._forget(self.places.scope_of(name.namespace), (handle,))
        return answer

    def _request(self, mark: Mark, body: MemoryWrite, old: Record | None = None) -> WriteRequest:
        others = {name: value for name, value in old.metadata.items() if name != KEY} if old else {}
        return WriteRequest(
            scope=self.places.scope_of(mark.namespace),
            source=source_for(body.source, self.caller.company_id),
            content=mark.line or body.content,
            binding_key=self.key,
            metadata={**others, KEY: mark.as_json()},
            kind=record_kind(body.kind),
            pinned=bool(body.pin),
            created_at=old.created_at if old else None,
            expires_at=body.expires_at,
            embedding=tuple(body.embedding) if body.embedding else None,
        )

    async def _store(self, request: WriteRequest) -> MutationAnswer:
        return await self.service.write(self.caller, request)

    async def _note(self, mark: Mark, answer: MutationAnswer) -> None:
        """Keep which record it is, and the mark where the record does not."""
        if not answer.handles:
            raise Unavailable("The provider does not say where it stored the memory.", sent=True)
        is_kept = any(mark_of(record) == mark for record in answer.records)
        name = MemoryName(
            memory_id=mark.id,
            record_id=answer.handles[0].provider_record_id,
            namespace=mark.namespace,
            mark=None if is_kept else mark.as_json(),
        )
        await self.service.plugin.note(self.caller, self.key, [name])

    async def forget(self, memory_id: str, requested_by: str) -> None:
        """Delete a memory in the name of its namespace.

        Raises:
            NotFound: there is no such memory.
            Denied: it is another namespace's.
        """
        async with self._alone(memory_id), self._turn:
            known = await self.held(memory_id)
            if known is None:
                await self.look(memory_id, self.places.scope_of(requested_by))
                raise NotFound(f"There is no memory {memory_id}.")
            name, record = known
            if name.namespace != requested_by:
                raise Denied(f"The memory {memory_id} is not in {requested_by}.")
            await self._forget(self.places.scope_of(requested_by), (record.handle,))

    def _alone(self, memory_id: str) -> asyncio.Lock:
        """Return the lock of one memory: no two calls change it at a time."""
        return self._locks.setdefault(memory_id, asyncio.Lock())

    async def _forget(self, scope: Scope, handles: tuple[RecordHandle, ...]) -> None:
        request = ForgetRequest(scope=scope, handles=handles, binding_key=self.key)
        answer = await self.service.forget(self.caller, request)
        if answer.ghosts:
            raise Unavailable(
                "The provider says that the memory is deleted, and still returns it; try again."
            )


def _refuse_lost(can: Capabilities, body: MemoryWrite) -> None:
    if body.pin and not can.pin:
        raise Unsupported("This plugin keeps no pins (capability pin); leave pin out.")
    if body.expires_at and not can.expiry:
        raise Unsupported("This plugin keeps no expiry (capability ttl); leave expires_at out.")


def _clears(new: WriteRequest, old: Record) -> bool:
    """Whether something is taken away, or becomes what a provider may take for not given."""
    return (
        (old.pinned and not new.pinned)
        or (old.expires_at is not None and new.expires_at is None)
        or old.kind != new.kind
    )


def _told(kept: KeptNamespace) -> Namespace:
    return Namespace(
        name=kept.name,
        kind=NamespaceKind(kept.kind),
        expires_at=kept.expires_at,
        metadata=kept.metadata,
        created_at=kept.created_at,
    )


MAX_BODY_BYTES = 2_097_152
"""A megabyte of any text as JSON writes it, and as much as four clients at once can be served."""

_CODES = {
    "invalid": Code.BAD_REQUEST,
    "denied": Code.FORBIDDEN,
    "not_found": Code.NOT_FOUND,
    "unavailable": Code.UNAVAILABLE,
}
_REFUSALS = {
    400: "The address or the body cannot be right.",
    403: "It is another namespace's memory, or something on the way is read-only.",
    404: "There is no such namespace or memory.",
    503: "The memory behind the server is slow, down or answers nonsense.",
}

_NAME_SCHEMA: Json = {
    "pattern": f"^{NAMESPACE.pattern}$",
    "minLength": 1,
    "maxLength": LONGEST_NAMESPACE,
}

ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True, slots=True)
class ServedPlugin(Served):
    """One binding of a company, served as a memory plugin."""

    calls: PluginCalls


def _calls(request: Request) -> PluginCalls:
    return cast("ServedPlugin", request.app.state.served).calls


async def _name(name: Annotated[str, Path(json_schema_extra=_NAME_SCHEMA)]) -> str:
    """Return the namespace of the path, which the guard has left percent-encoded."""
    plain = unquote(name)
    if not is_namespace(plain):
        raise Invalid(
            f"{plain[:60]!r} is no namespace; it is a prefix in small letters, a colon, and then "
            "letters, digits and _ : . - up to 256 characters in all."
        )
    return plain


async def _memory_id(
    memory_id: Annotated[str, Path(alias="id", json_schema_extra={"format": "uuid"})],
) -> str:
    plain = unquote(memory_id)
    if not is_uuid(plain):
        raise Invalid(f"{plain[:60]!r} is no id of a memory; those are UUIDs.")
    return plain.lower()


async def _body(request: Request, model: type[ModelT]) -> ModelT:
    """Return the body; whatever is wrong with it is a bad request, as the contract has no more."""
    try:
        return await read_json(request, model, max_bytes=MAX_BODY_BYTES)
    except HTTPException as error:
        raise Invalid(str(error.detail)) from error


SpaceName = Annotated[str, Depends(_name)]
MemoryId = Annotated[str, Depends(_memory_id)]


def _documented(*refused: int, **replies: type[Wire]) -> dict[int | str, dict[str, Any]]:
    return documented(Refusal, _REFUSALS, {400, 403, 503, *refused}, replies)


router = APIRouter(prefix="/v1")


_HEALTH = _documented(s200=Health)
_HEALTH[200]["headers"] = {
    EXTENSIONS: {
        "description": "What memtui's own server can do besides: a cursor and ids in a search.",
        "schema": {"type": "string"},
    }
}


@router.get("/health", responses=_HEALTH)
async def health(request: Request) -> Response:
    """Say whether the plugin can serve now, and what it can do."""
    reply = _reply(await _health(_calls(request)))
    reply.headers[EXTENSIONS] = f"{CURSOR} {IDS}"
    return reply


@router.put(
    "/namespaces/{name}",
    responses=_documented(404, s200=Namespace),
    openapi_extra=json_body(NamespacePut),
)
async def put_namespace(request: Request, name: SpaceName) -> Response:
    """Create a namespace, or replace it whole: an expiry or metadata left out is cleared."""
    return _reply(await _calls(request).put(name, await _body(request, NamespacePut)))


@router.patch(
    "/namespaces/{name}",
    responses=_documented(404, s200=Namespace),
    openapi_extra=json_body(NamespacePatch),
)
async def patch_namespace(request: Request, name: SpaceName) -> Response:
    """Set the expiry of a namespace, or its metadata whole."""
    return _reply(await _calls(request).patch(name, await _body(request, NamespacePatch)))


@router.delete("/namespaces/{name}", status_code=204, responses=_documented(404))
async def delete_namespace(request: Request, name: SpaceName) -> Response:
    """Delete a namespace and every memory in it."""
    await _calls(request).drop(name)
    return Response(status_code=204)


@router.post(
    "/namespaces/{name}/memories",
    status_code=201,
    responses=_documented(404, s201=Written),
    openapi_extra=json_body(MemoryWrite),
)
async def write_memory(request: Request, name: SpaceName) -> Response:
    """Store a memory, in place of the one that has the same id."""
    body = await _body(request, MemoryWrite)
    return _reply(await _calls(request).write(name, body), 201)


@router.post("/search", responses=_documented(404, s200=Found), openapi_extra=json_body(Search))
async def search(request: Request) -> Response:
    """Search several namespaces; without a query list them, pinned first, then newest first."""
    asked = await _body(request, Search)
    return _reply(await plugin_search.search(_calls(request), asked))


@router.delete(
    "/memories/{id}",
    status_code=204,
    responses=_documented(404),
    openapi_extra=json_body(Forget),
)
async def forget_memory(request: Request, memory_id: MemoryId) -> Response:
    """Delete a memory, in the name of the namespace that it is in."""
    body = await _body(request, Forget)
    await _calls(request).forget(memory_id, body.requested_by_namespace)
    return Response(status_code=204)


async def plugin_app(
    served: Served, key: str, *, names: frozenset[str] | None, principal: str = ANONYMOUS
) -> FastAPI:
    """Return the app that serves a binding; `names` are the hosts it answers to.

    Raises:
        NotFound: there is no such binding.
        Unsupported: its provider cannot be a memory plugin.
    """
    calls = await PluginCalls.open(served, key, principal)
    api = Api(
        title="memtui memory plugin",
        description="The memory plugin contract v1, over a binding of memtui. It asks for no "
        "login, so it belongs on a private network.",
        router=router,
        bodies=(NamespacePut, NamespacePatch, MemoryWrite, Search, Forget),
        style=ErrorStyle(statuses(invalid=400) | {Conflict: 503}, _error_body),
    )
    plugin = ServedPlugin(served.service, served.company_id, calls)
    return build_app(api, plugin, names=names)


async def _health(calls: PluginCalls) -> Health:
    """Ask the provider. Raises `Unavailable` where it is down."""
    found = (await calls.service.bindings.health(calls.caller, calls.key)).health
    if found.status == "down":
        raise Unavailable(f"The memory behind the server is down: {found.message}")
    binding = await calls.binding(now=True)
    can = binding.capabilities
    writable = can.writable and not (binding.read_only or calls.service.read_only)
    listed = {
        "embedding": can.semantic,
        "fts": can.full_text or can.semantic,
        "ttl": can.expiry,
        "pin": can.pin,
        "propagation": True,
    }
    return Health(
        status="ok" if found.status == "ok" and writable else "degraded",
        version=__version__,
        capabilities=[name for name, is_there in listed.items() if is_there],
    )


def _error_body(kind: str, message: str) -> Json:
    return {"code": _CODES.get(kind, Code.INTERNAL), "message": message}


def _reply(body: Wire, status: int = 200) -> Response:
    return ExactJson(body.model_dump(mode="json", exclude_none=True), status)
