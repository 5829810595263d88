"""The common parts of the HTTP APIs: app factory, guard, refusals, bodies and bearer tokens."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import quote, unquote_to_bytes

from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memtui import __version__
from memtui.contract import Denied, Invalid, Json, MemtuiError, Model
from memtui.service import Caller, MemoryService
from memtui.wording import misfit

_SENTENCES = {
    404: "There is nothing at this address; /openapi.json lists the addresses there are.",
    405: "This address does not take that method; the Allow header lists those it takes.",
}
_STATUSES = {"Denied": 403, "NotFound": 404, "Unavailable": 503}
_KINDS = {401: "denied", 403: "denied", 404: "not_found", 409: "conflict", 503: "unavailable"}
_FAULT = "memtui ran into an internal error; the details are in its log file."

Body = Callable[[str, str], Json]
"""Returns the body of a refusal, given its kind and its sentence."""


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """The form of refusals in one API contract."""

    body: Body
    invalid: int
    """The status of an invalid request."""
    conflict: int = 409

    def reply(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> ExactJson:
        """Return a refusal."""
        kind = _KINDS.get(status, "internal" if status >= 500 else "invalid")
        return ExactJson(self.body(kind, message), status, headers=headers)

    def status_of(self, error: MemtuiError) -> int:
        """Return the status of one of the contract's errors."""
        own = {"Invalid": self.invalid, "Unsupported": self.invalid, "Conflict": self.conflict}
        return (_STATUSES | own).get(error.kind, HTTPStatus.INTERNAL_SERVER_ERROR)


class ExactJson(JSONResponse):
    """JSON that preserves any text, including lone surrogates."""

    def render(self, content: Any) -> bytes:
        """Return the document in ASCII, with other characters escaped."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def install(app: FastAPI, style: ErrorStyle) -> None:
    """Make an app answer every error in the style of its contract."""

    async def tell(_: Request, error: Exception) -> ExactJson:
        assert isinstance(error, MemtuiError)  # noqa: S101 - registered for these alone
        return style.reply(style.status_of(error), str(error))

    async def tell_http(request: Request, error: Exception) -> ExactJson:
        assert isinstance(error, HTTPException)  # noqa: S101
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods(app.routes, request.scope))
        sentence = _SENTENCES.get(error.status_code, error.detail)
        return style.reply(error.status_code, sentence, headers)

    async def tell_fault(_: Request, error: Exception) -> ExactJson:
        del error  # the server writes its traceback to the log
        return style.reply(HTTPStatus.INTERNAL_SERVER_ERROR, _FAULT)

    app.add_exception_handler(MemtuiError, tell)
    app.add_exception_handler(HTTPException, tell_http)
    app.add_exception_handler(Exception, tell_fault)


def _methods(routes: list[BaseRoute], scope: Scope) -> list[str]:
    """Return every method that some route accepts at this address."""
    found: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


_DROP_SECONDS = 2.0
_DROP_BYTES = 67_108_864


class Guard:
    """Refuse unknown Host headers, and pass on the path with each segment percent-encoded.

    The unread rest of a body is read and dropped before the reply: closing a connection with unread
    bytes can discard the reply, so that the client never learns the reason.

    A foreign site can point its own host name at this machine (DNS rebinding), so a server on
    loopback only answers to loopback's names; `names` None accepts any. In an encoded path, an id
    with a `/` stays one segment.
    """

    def __init__(self, app: ASGIApp, *, style: ErrorStyle, names: frozenset[str] | None) -> None:
        self._app = app
        self._style = style
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        body = _Body(receive, headers)
        app = self._app
        if self._names is not None and _without_port(headers.get("host", "")) not in self._names:
            names = " or ".join(sorted(self._names))
            app = self._style.reply(403, f"This server answers to {names} only.")
        else:
            try:
                scope = {**scope, "path": _canonical(scope["raw_path"])}
            except UnicodeDecodeError:
                app = self._style.reply(400, "The address is not UTF-8; encode it as UTF-8.")
        await app(scope, body.receive, body.ahead_of(send))


class _Body:
    """A request's body, which tracks whether a part of it is still unread."""

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        sent = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self._is_coming = sent and "expect" not in headers

    async def receive(self) -> Message:
        """Return the next part."""
        message = await self._receive()
        self._is_coming = self._is_coming and bool(message.get("more_body"))
        return message

    def ahead_of(self, send: Send) -> Send:
        """Return a `send` that drops the rest of the body before the reply."""

        async def after_the_body(message: Message) -> None:
            if self._is_coming:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DROP_SECONDS):
                        await self._drop()
            await send(message)

        return after_the_body

    async def _drop(self) -> None:
        dropped = 0
        while self._is_coming and dropped < _DROP_BYTES:
            dropped += len((await self.receive()).get("body", b""))
        self._is_coming = False


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _canonical(raw_path: bytes) -> str:
    """Return a path with every segment percent-encoded in the canonical form."""
    segments = (unquote_to_bytes(segment).decode("utf-8") for segment in raw_path.split(b"/"))
    return "/".join(quote(segment, safe="") for segment in segments)


ModelT = TypeVar("ModelT", bound=Model)


async def read_json(request: Request, model: type[ModelT], *, max_bytes: int) -> ModelT:
    """Return the body as a `model`.

    Raises:
        HTTPException: it is not JSON (400), too large (413) or of another content type (415).
        Invalid: it is JSON that does not fit the model.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != "application/json":
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send JSON, with Content-Type: application/json."
        )
    body = await _read(request, max_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"The body is not JSON text: {first['ctx']['error']}."
            ) from error
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise Invalid(f"The {field} does not fit: {misfit(first)}.") from error


async def _read(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The body broke off.") from error
    return bytes(body)


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is larger than {max_bytes:,} bytes."
    )


_REF = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Served:
    """One company of an open service, which an app serves."""

    service: MemoryService
    company_id: str


def build_app(
    served: object,
    *,
    title: str,
    description: str,
    router: APIRouter,
    bodies: Sequence[type[Model]],
    style: ErrorStyle,
    names: frozenset[str] | None,
) -> FastAPI:
    """Return the ASGI app of a contract; its endpoints find `served` in the app's state.

    `bodies` are the models that the endpoints read themselves. The app answers to the host `names`;
    None: to any.
    """
    app = FastAPI(
        title=title,
        description=description,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.served, app.state.style = served, style
    app.router.routes.extend(router.routes)  # flat, so that a 405 can name every method
    app.add_middleware(Guard, style=style, names=names)
    install(app, style)
    app.openapi = lambda: _describe(app, bodies, style)  # type: ignore[method-assign]  # as FastAPI says
    return app


def served_by(request: Request) -> Served:
    """Return the company that the app of a request serves."""
    return cast("Served", request.app.state.served)


def json_body(model: type[Model]) -> dict[str, Any]:
    """Return the description of an endpoint's body, for its `openapi_extra`."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def documented(
    refusal: type[Model],
    sentences: Mapping[int, str],
    refused: Collection[int],
    replies: Mapping[str, type[Model]],
) -> dict[int | str, dict[str, Any]]:
    """Return an endpoint's documented replies: models by status (`s200`), and its refusals."""
    responses: dict[int | str, dict[str, Any]] = {
        int(status[1:]): {"model": model} for status, model in replies.items()
    }
    for status in sorted(refused):
        responses[status] = {"model": refusal, "description": sentences[status]}
    return responses


def _describe(app: FastAPI, bodies: Sequence[type[Model]], style: ErrorStyle) -> Json:
    """Return the OpenAPI document, with the bodies that the endpoints read themselves."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            description=app.description,
            version=app.version,
            routes=app.routes,
        )
        _, known = models_json_schema(
            [(model, "validation") for model in bodies], ref_template=_REF
        )
        if style.invalid != 422:
            _drop_automatic_422(document)
        components = document.setdefault("components", {})
        components["schemas"] = {**components.get("schemas", {}), **known.get("$defs", {})}
        app.openapi_schema = document
    return app.openapi_schema


def _drop_automatic_422(document: Json) -> None:
    """Remove the refusal that FastAPI adds to every endpoint with a parameter."""
    for item in document.get("paths", {}).values():
        for operation in item.values():
            operation["responses"].pop("422", None)
    for model in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(model, None)


DOOR = "http"

_log = logging.getLogger(__name__)
_bearer = HTTPBearer(
    auto_error=False, description="A token made with `memtui companies tokens add`."
)


async def authenticated(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Caller:
    """Return the caller that the request's token identifies.

    Raises:
        HTTPException: 401, there is no token, or it is unknown in the served company.
    """
    if given is None:
        raise _refused('Bearer realm="memtui"', "Send a token: Authorization: Bearer TOKEN.")
    served = served_by(request)
    tokens = served.service.tokens
    try:
        return await tokens.authenticate(served.company_id, given.credentials, DOOR)
    except Denied as error:
        _log.warning("a request was refused: %s", error)
        challenge = 'Bearer realm="memtui", error="invalid_token"'
        raise _refused(challenge, str(error)) from error


def _refused(challenge: str, message: str) -> HTTPException:
    return HTTPException(401, message, {"WWW-Authenticate": challenge})


Authenticated = Annotated[Caller, Depends(authenticated)]
"""A parameter of this type makes an endpoint require a token, before it reads anything else."""
