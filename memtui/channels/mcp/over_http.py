"""The MCP server over streamable HTTP: callers need a token; foreign web pages are refused.

A token names the caller, the company and the person acted for, and may name the project. The
server's configuration sets the binding, and the project for tokens without one. A request with an
`Origin` is answered only if it is this server's own, so that no web site can reach the server
through a browser on this machine.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from memtui.channels.agent import Agent
from memtui.channels.http.app import ErrorStyle, Guard
from memtui.channels.mcp.server import DOOR, Context, MemoryServer
from memtui.contract import Denied, Json, Scope
from memtui.json_text import lenient_json
from memtui.service import Caller, MemoryService

PATH = "/mcp"
_CALLER = "memtui.caller"
_NOT_HERE = "The MCP server is at /mcp."


def _body(kind: str, message: str) -> Json:
    return {"error": {"kind": kind, "message": message}}


_STYLE = ErrorStyle(_body, invalid=400)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """The service that is served over HTTP, and its options."""

    service: MemoryService
    company_id: str
    run_id: str
    """The run of calls whose client has no session."""
    project_id: str | None = None
    """The project of callers whose token names none."""
    binding_key: str | None = None
    may_destroy: bool = False
    asks_all: bool = False

    @asynccontextmanager
    async def app(self, names: frozenset[str] | None) -> AsyncIterator[ASGIApp]:
        """Yield the ASGI app; it answers only these host `names`; None: any host."""
        server = MemoryServer(self._agent)
        sessions = StreamableHTTPSessionManager(app=server.protocol)
        inner = StreamableHTTPASGIApp(sessions)

        async def channel(scope: AsgiScope, receive: Receive, send: Send) -> None:
            refusal = await self._admit(scope, names)
            await (refusal or inner)(scope, _read_again(receive), send)
            if refusal is None and scope["method"] == "DELETE":
                await self.service.agents.left(self._in_its_run(scope[_CALLER], scope))

        async with sessions.run(), server.watching():
            yield Guard(channel, style=_STYLE, names=names)

    async def _admit(self, scope: AsgiScope, names: frozenset[str] | None) -> ASGIApp | None:
        """Put the caller into `scope`; return the refusal, or None if admitted."""
        headers = Headers(scope=scope)
        if scope["path"] != PATH:
            return _STYLE.reply(HTTPStatus.NOT_FOUND, _NOT_HERE)
        origin = headers.get("origin")
        own = names and f"{scope['scheme']}://{headers.get('host', '')}"
        if origin is not None and origin != own:
            return _STYLE.reply(HTTPStatus.FORBIDDEN, "Pages of other sites are not answered.")
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret:
            return _unknown("Send a token: Authorization: Bearer TOKEN.")
        try:
            tokens = self.service.tokens
            caller = await tokens.authenticate(self.company_id, secret.strip(), DOOR)
        except Denied as error:
            return _unknown(str(error))
        scope[_CALLER] = caller
        # The SDK lets only the credential that began a session use it.
        scope["user"] = AuthenticatedUser(
            AccessToken(token=secret, client_id=caller.principal, scopes=[], subject=secret)
        )
        return None

    def _in_its_run(self, caller: Caller, request: AsgiScope) -> Caller:
        session = Headers(scope=request).get("mcp-session-id")
        run_id = f"mcp-{session[:12]}" if session else self.run_id
        return caller.model_copy(update={"run_id": run_id})

    async def _agent(self, context: Context) -> Agent:
        request = context.request
        assert isinstance(request, Request)  # noqa: S101 - the transport gives nothing else
        caller: Caller = request.scope[_CALLER]
        scope = Scope(
            company_id=self.company_id,
            agent_id=caller.agent_id,
            project_id=caller.project_id or self.project_id,
            subject_id=await self.service.members.own_subject(caller),
        )
        caller = self._in_its_run(caller, request.scope)
        return Agent(self.service, caller, scope, self.binding_key, self.may_destroy, self.asks_all)


def _unknown(sentence: str) -> ASGIApp:
    return _STYLE.reply(
        HTTPStatus.UNAUTHORIZED, sentence, {"WWW-Authenticate": 'Bearer realm="memtui"'}
    )


def _read_again(receive: Receive) -> Receive:
    """Return a `receive` whose body is strict JSON where the client's is nearly JSON."""
    body, is_whole = bytearray(), False

    async def received() -> Message:
        nonlocal is_whole
        message = await receive()
        if is_whole or message["type"] != "http.request":
            return message
        while message["type"] == "http.request":
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                break
            message = await receive()
        is_whole = True
        if message["type"] != "http.request":
            return message
        text = bytes(body)
        with suppress(ValueError, RecursionError):  # the SDK reports that it is not JSON
            text = json.dumps(lenient_json(text)).encode()
        return {**message, "body": text, "more_body": False}

    return received
