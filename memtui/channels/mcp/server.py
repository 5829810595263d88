"""The MCP server itself: tools, resources and the prompt, over stdio or streamable HTTP.

The offered tools depend on the binding's abilities, the caller's role and read-only settings.
While a client is connected they are checked every second; 2025 clients get a change as
`notifications/tools/list_changed`, later ones on the streams that they listen to.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from time import monotonic
from typing import IO, Any, cast
from urllib.parse import unquote

import mcp_types as types
from anyio import wrap_file
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from memtui.channels.agent import Agent
from memtui.channels.mcp.guide import GUIDE_NAME, INSTRUCTIONS, guide
from memtui.channels.mcp.stdio import SERVER_INFO, streams
from memtui.channels.mcp.tools import TOOLS, Tool, call, memory_of, offered
from memtui.context.data import DATA_NOTICE
from memtui.contract import MemtuiError, NotFound
from memtui.service import Capture
from memtui.service.context.contexts import ContextRequest

Context = ServerRequestContext[Any, Any]
AgentOf = Callable[[Context], Awaitable[Agent]]
"""Returns the agent of a request. Raises `Denied`."""

DOOR = "mcp"
CONTEXT_URI = "memory://context"
_RECORD_URI = "memory://record/"
_LOOK_SECONDS = 1.0
SHADOW_SECONDS = 60.0
"""How often shadows are asked what waits for them."""
_CLIENT_CHARACTERS = 100
_CHARACTERS_OF = {"claude-code": 24_000}
"""Longest answer in characters, for clients that show their model more than the default."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Listeners:
    """The sessions and streams to notify when one agent's tools change."""

    agent: Agent
    listed: tuple[str, ...] = ()
    """Names of the tools last listed."""
    sessions: dict[str, tuple[ServerSession, float]] = field(default_factory=dict)
    """Sessions by id, each with its last request's time; over stdio one, without an id."""
    streams: int = 0
    """Number of open listening streams, which clients after 2025 use."""
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    handler: ListenHandler = field(init=False)

    def __post_init__(self) -> None:
        self.handler = ListenHandler(self.bus)

    def drop_idle(self) -> None:
        """Forget sessions that the transport has ended by now."""
        now = monotonic()
        ended = [
            name
            for name, (_, asked_at) in self.sessions.items()
            if name and now - asked_at > DEFAULT_SESSION_IDLE_TIMEOUT
        ]
        for name in ended:
            del self.sessions[name]


class _Protocol(Server[Any]):
    """A server that announces changing tools in every transport."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *others: Any, **named: Any
    ) -> InitializationOptions:
        """Describe the server."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *others, **named)


class MemoryServer:
    """MCP server of one company's memories; each agent sees only those it may see."""

    def __init__(self, agent_of: AgentOf) -> None:
        self._agent_of = agent_of
        self._listeners: dict[object, _Listeners] = {}
        self.protocol = _Protocol(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            title=SERVER_INFO["title"],
            instructions=INSTRUCTIONS,
            get_tool_input_schema={one.name: _described(one).input_schema for one in TOOLS}.get,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_subscriptions_listen=self._listen,
        )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While open, check for changes of the tools and notify the clients."""
        tasks = [asyncio.create_task(one) for one in (self._watch(), self._ask_shadows())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _ask_shadows(self) -> None:
        """Ask shadows what waits for them, of the questions that the agents see."""
        seen: dict[object, dict[tuple[str, str], int]] = {}
        while True:
            await asyncio.sleep(SHADOW_SECONDS)
            for key, one in list(self._listeners.items()):
                service, caller = one.agent.service, one.agent.caller
                with suppress(MemtuiError):  # nobody waits for it, and the log says why
                    if any(view.shadows for view in await service.bindings.all(caller)):
                        from memtui.service.usecases.shadowing import ask_shadows

                        await ask_shadows(service, caller, seen.setdefault(key, {}))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for key, one in list(self._listeners.items()):
                one.drop_idle()
                if one.sessions or one.streams:
                    await self._look(one)
                else:
                    del self._listeners[key]

    async def _look(self, listeners: _Listeners) -> None:
        names = _names(await offered(listeners.agent))
        if names == listeners.listed:
            return
        listeners.listed = names
        await listeners.bus.publish(ToolsListChanged())
        for session, _ in list(listeners.sessions.values()):
            await session.send_tool_list_changed()

    async def _agent(self, context: Context) -> tuple[Agent, _Listeners]:
        try:
            agent = await self._agent_of(context)
        except MemtuiError as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from error
        await agent.service.agents.seen(
            agent.caller,
            agent.scope,
            _client(context),
            may_vanish=context.request is not None,
        )
        agent = replace(agent, answer_characters=_answer_characters(agent, context))
        key = agent.caller.model_copy(update={"run_id": None}), agent.scope
        listeners = self._listeners.setdefault(key, _Listeners(agent))
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            headers = getattr(context.request, "headers", {})
            name = headers.get("mcp-session-id", "")
            listeners.sessions[name] = context.session, monotonic()
        return agent, listeners

    async def _list_tools(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        agent, listeners = await self._agent(context)
        tools = await offered(agent)
        listeners.listed = _names(tools)
        return types.ListToolsResult(tools=[_described(tool) for tool in tools])

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        agent, listeners = await self._agent(context)
        if not listeners.listed:
            listeners.listed = _names(await offered(agent))
        listeners.streams += 1
        try:
            return await listeners.handler(context, params)
        finally:
            listeners.streams -= 1

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        agent, _ = await self._agent(context)
        try:
            reply = await call(agent, params.name, params.arguments or {})
        except NotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        except Exception:  # noqa: BLE001 - the outermost boundary: no traceback to a client
            _log.exception("the tool %s failed", params.name)
            raise MCPError(types.INTERNAL_ERROR, _FAULT) from None
        value = reply.value
        return types.CallToolResult(
            content=[types.TextContent(text=reply.text)],
            structured_content=value and value.model_dump(mode="json", exclude_none=True),
            is_error=value is None,
        )

    async def _list_resources(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        await self._agent(context)
        delivered = types.Resource(
            uri=CONTEXT_URI,
            name="context",
            title="What is remembered for this run",
            description="The facts that are delivered to a run before it starts.",
            mime_type="text/markdown",
        )
        return types.ListResourcesResult(resources=[delivered])

    async def _list_templates(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        await self._agent(context)
        record = types.ResourceTemplate(
            uri_template=_RECORD_URI + "{id}",
            name="record",
            title="A memory",
            description="One memory by its id. " + DATA_NOTICE,
            mime_type="text/plain",
        )
        return types.ListResourceTemplatesResult(resource_templates=[record])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        agent, _ = await self._agent(context)
        try:
            kind, text = await _resource(agent, params.uri)
        except MemtuiError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        contents = types.TextResourceContents(uri=params.uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        await self._agent(context)
        prompt = types.Prompt(
            name=GUIDE_NAME,
            title="How to use this memory",
            description="When to search, to note and to correct.",
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        agent, _ = await self._agent(context)
        if params.name != GUIDE_NAME:
            raise MCPError(types.INVALID_PARAMS, f"There is one prompt here, {GUIDE_NAME}.")
        tools = _names(await offered(agent))
        text = types.TextContent(text=guide(tools, captured=await _captures_runs(agent)))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


_FAULT = "memtui ran into an internal error; the details are in its log file."


def _client(context: Context) -> str | None:
    """Return the client's name and version, as it reports them; None: it did not."""
    params = context.session.client_params
    if params is None:
        return None
    return f"{params.client_info.name} {params.client_info.version}"[:_CLIENT_CHARACTERS].strip()


def _answer_characters(agent: Agent, context: Context) -> int:
    params = context.session.client_params
    known = _CHARACTERS_OF.get(params.client_info.name) if params else None
    return agent.service.settings.mcp_answer_characters or known or agent.answer_characters


def _names(tools: list[Tool]) -> tuple[str, ...]:
    return tuple(tool.name for tool in tools)


async def _captures_runs(agent: Agent) -> bool:
    """Whether hooks write notes of the agent's runs. Calls no provider."""
    try:
        return Capture.POST_RUN in (await agent.resolve()).captures
    except MemtuiError:
        return False


@cache
def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.takes.model_json_schema(),
        output_schema=tool.gives.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.needs.mutates,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


async def _resource(agent: Agent, uri: str) -> tuple[str, str]:
    """Return the media type and the text of a resource.

    Raises:
        NotFound: there is no resource with this URI, or no such memory.
    """
    if uri == CONTEXT_URI:
        settings = agent.service.settings
        request = ContextRequest.like(
            agent, model=settings.context_model, budget=settings.context_budget, delivered=True
        )
        return "text/markdown", (await agent.service.context(agent.caller, request)).text
    if not uri.startswith(_RECORD_URI):
        raise NotFound(f"There are {CONTEXT_URI} and {_RECORD_URI}ID here.")
    name = unquote(uri.removeprefix(_RECORD_URI))
    answer = await agent.service.get(agent.caller, name, agent.scope, binding_key=agent.binding_key)
    return "text/plain", memory_of(answer.record).words()


async def serve_stdio(agent: Agent, run_of: Callable[[], str | None]) -> None:
    """Serve one client on standard input and output until it closes them.

    `run_of` returns the client's current run, or None if no hook noted it; it may block.

    Raises:
        BrokenPipeError: the client closed without reading an answer.
    """
    last = agent

    async def agent_of(_: Context) -> Agent:
        nonlocal last
        found = agent.in_run(await asyncio.to_thread(run_of))
        before, last = last, found
        if found.caller != before.caller:
            await agent.service.agents.left(before.caller)
        return found

    server = MemoryServer(agent_of)
    files = wrap_file(cast("IO[str]", streams()))
    options = server.protocol.create_initialization_options(NotificationOptions(tools_changed=True))
    try:
        async with stdio_server(files, files) as (incoming, outgoing), server.watching():
            await server.protocol.run(incoming, outgoing, options)
    except BaseExceptionGroup as group:
        if group.split(BrokenPipeError)[1] is None:
            raise BrokenPipeError from group
        raise
