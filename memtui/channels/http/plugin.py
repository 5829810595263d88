"""The endpoints of the memory plugin contract v1 (seed 001), over one binding."""

from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from memtui import __version__
from memtui.backends.plugin_v1.config import LONGEST_NAMESPACE, NAMESPACE, is_namespace
from memtui.backends.plugin_v1.wire import CURSOR, EXTENSIONS, IDS
from memtui.channels.http import plugin_search
from memtui.channels.http.app import (
    ErrorStyle,
    ExactJson,
    Served,
    build_app,
    documented,
    json_body,
    read_json,
)
from memtui.channels.http.plugin_binding import ANONYMOUS, ServedBinding
from memtui.channels.http.plugin_wire import (
    Code,
    Forget,
    HealthBody,
    MemoryWrite,
    NamespaceBody,
    NamespacePatch,
    NamespacePut,
    PendingBody,
    PluginBody,
    RefusalBody,
    SearchBody,
    SearchReply,
    Written,
    is_uuid,
)
from memtui.contract import Invalid, Json, Model, Unavailable

MAX_BODY_BYTES = 2_097_152
"""Enough for a megabyte of text as JSON, and little enough for four clients at once."""

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


def _served(request: Request) -> ServedBinding:
    return cast("ServedBinding", request.app.state.served)


async def _name(name: Annotated[str, Path(json_schema_extra=_NAME_SCHEMA)]) -> str:
    """Return the namespace in the path, in which the guard percent-encodes segments."""
    plain = unquote(name)
    if not is_namespace(plain):
        raise Invalid(
            f"{plain[:60]!r} is not a namespace; write a prefix in small letters, a colon, and "
            "then letters, digits and _ : . - up to 256 characters in all."
        )
    return plain


async def _memory_id(
    memory_id: Annotated[str, Path(alias="id", json_schema_extra={"format": "uuid"})],
) -> str:
    plain = unquote(memory_id)
    if not is_uuid(plain):
        raise Invalid(f"{plain[:60]!r} is not a memory's id; give its UUID.")
    return plain.lower()


async def _body(request: Request, model: type[ModelT]) -> ModelT:
    """Return the body; every error is a bad request, as the contract has no other status."""
    try:
        return await read_json(request, model, max_bytes=MAX_BODY_BYTES)
    except HTTPException as error:
        raise Invalid(str(error.detail)) from error


SpaceName = Annotated[str, Depends(_name)]
MemoryId = Annotated[str, Depends(_memory_id)]


def _documented(*refused: int, **replies: type[PluginBody]) -> dict[int | str, dict[str, Any]]:
    return documented(RefusalBody, _REFUSALS, {400, 403, 503, *refused}, replies)


router = APIRouter(prefix="/v1")


_HEALTH = _documented(s200=HealthBody)
_HEALTH[200]["headers"] = {
    EXTENSIONS: {
        "description": "The extensions of memtui's own server: a cursor and ids in a search.",
        "schema": {"type": "string"},
    }
}


@router.get("/health", responses=_HEALTH)
async def health(request: Request) -> Response:
    """Say whether the plugin can serve now, and what it can do."""
    reply = _reply(await _health(_served(request)))
    reply.headers[EXTENSIONS] = f"{CURSOR} {IDS}"
    return reply


@router.put(
    "/namespaces/{name}",
    responses=_documented(404, s200=NamespaceBody),
    openapi_extra=json_body(NamespacePut),
)
async def put_namespace(request: Request, name: SpaceName) -> Response:
    """Create a namespace, or replace it whole: an expiry or metadata left out is cleared."""
    return _reply(await _served(request).put(name, await _body(request, NamespacePut)))


@router.patch(
    "/namespaces/{name}",
    responses=_documented(404, s200=NamespaceBody),
    openapi_extra=json_body(NamespacePatch),
)
async def patch_namespace(request: Request, name: SpaceName) -> Response:
    """Set the expiry of a namespace, or its metadata whole."""
    return _reply(await _served(request).patch(name, await _body(request, NamespacePatch)))


@router.delete("/namespaces/{name}", status_code=204, responses=_documented(404))
async def delete_namespace(request: Request, name: SpaceName) -> Response:
    """Delete a namespace and every memory in it."""
    await _served(request).drop(name)
    return Response(status_code=204)


@router.post(
    "/namespaces/{name}/memories",
    status_code=201,
    responses=_documented(404, s201=Written, s202=PendingBody),
    openapi_extra=json_body(MemoryWrite),
)
async def write_memory(request: Request, name: SpaceName) -> Response:
    """Store a memory, in place of the one that has the same id."""
    body = await _body(request, MemoryWrite)
    written = await _served(request).write(name, body)
    return _reply(written, 202 if isinstance(written, PendingBody) else 201)


@router.post(
    "/search", responses=_documented(404, s200=SearchReply), openapi_extra=json_body(SearchBody)
)
async def search(request: Request) -> Response:
    """Search several namespaces; without a query list them, pinned first, then newest first."""
    asked = await _body(request, SearchBody)
    return _reply(await plugin_search.search(_served(request), asked))


@router.delete(
    "/memories/{id}",
    status_code=204,
    responses=_documented(404, s202=PendingBody),
    openapi_extra=json_body(Forget),
)
async def forget_memory(request: Request, memory_id: MemoryId) -> Response:
    """Delete a memory, in the name of the namespace that it is in."""
    body = await _body(request, Forget)
    waiting = await _served(request).forget(memory_id, body.requested_by_namespace)
    return _reply(waiting, 202) if waiting else Response(status_code=204)


async def plugin_app(
    served: Served, key: str, *, names: frozenset[str] | None, principal: str | None = None
) -> FastAPI:
    """Return the app that serves a binding; `names` are the hosts it answers to.

    Raises:
        NotFound: there is no such binding.
        Unsupported: its provider cannot be served as a memory plugin.
    """
    return build_app(
        await ServedBinding.open(served, key, principal or ANONYMOUS),
        title="memtui memory plugin",
        description="The memory plugin contract v1, over a binding of memtui. It asks for no "
        "login, so it belongs on a private network.",
        router=router,
        bodies=(NamespacePut, NamespacePatch, MemoryWrite, SearchBody, Forget),
        style=ErrorStyle(_error_body, invalid=400, conflict=503),
        names=names,
    )


async def _health(served: ServedBinding) -> HealthBody:
    """Return the provider's health. Raises `Unavailable` if it is down."""
    found = (await served.service.bindings.health(served.caller, served.key)).health
    if found.status == "down":
        raise Unavailable(f"The memory behind the server is down: {found.message}")
    binding = await served.binding(now=True)
    can = binding.capabilities
    writable = can.writable and not (binding.read_only or served.service.read_only)
    listed = {
        "embedding": can.given_embeddings,
        "fts": can.full_text or can.semantic,
        "ttl": can.expiry,
        "pin": can.pin,
        "propagation": True,
    }
    return HealthBody(
        status="ok" if found.status == "ok" and writable else "degraded",
        version=__version__,
        capabilities=[name for name, is_there in listed.items() if is_there],
    )


def _error_body(kind: str, message: str) -> Json:
    return {"code": _CODES.get(kind, Code.INTERNAL), "message": message}


def _reply(body: PluginBody, status: int = 200) -> Response:
    return ExactJson(body.model_dump(mode="json", exclude_none=True), status)
