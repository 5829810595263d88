"""`hook`: commands that an agent's client calls during a run.

A hook never blocks an agent. It ends in time and always with exit code 0: other codes stop a
client or make it ask again. Errors are in the log file, and in the operation log if the operation
had begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from memtui.channels.cli.errors import close_quietly, is_unwritten, kind_of, usage_sentence
from memtui.channels.cli.input import read_stdin
from memtui.channels.cli.options import FromFolder, UseBinding, WorksIn, complete_name
from memtui.channels.cli.output import say, write_exactly
from memtui.channels.cli.session import Invocation, Session, build, logging_to
from memtui.contract import Invalid, MemtuiError, Unavailable

if TYPE_CHECKING:
    from memtui.channels.agent import Agent
    from memtui.channels.hooks.calls import HookCall
    from memtui.channels.hooks.capture import Captured, IssueText

DOOR = "hook"

_ASKED_SHARE = 0.3
"""Share of the hook's time after which a provider that has not answered is left out."""
_LOGGING_SHARE = 0.2
"""Share of the hook's time reserved to log the end, after stopping what still runs."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The agent that calls, its project and the binding.

    Args:
        agent: The agent's name in the log; left out: the client's name.
    """

    agent: Annotated[str | None, typer.Option(autocompletion=complete_name("agent"))] = None
    project: WorksIn = None
    binding: UseBinding = None


@dataclass(frozen=True, slots=True)
class ClientOptions(AgentOptions):
    """The client that calls, and its run.

    Args:
        client: The client that calls: claude-code, codex, gemini, cursor …
        run: The run's id; left out: the client's session.
    """

    client: str | None = None
    project_from_folder: FromFolder = False
    run: str | None = None


def hook_pre_run(invocation: Invocation, options: ClientOptions) -> None:
    """Give an agent memories when its session starts and at each prompt.

    The client's JSON comes on stdin. When the session starts the answer has the facts and the
    profile; at a prompt it has what is found for the prompt and was not given to the run before.
    Without anything on stdin the answer is plain text.
    """
    from memtui.channels.hooks.calls import MOST_CHARACTERS, Moment, answer_to
    from memtui.channels.hooks.transcript import prompt_tokens

    async def tell(session: Session, agent: Agent, call: HookCall) -> None:
        from memtui.service.context.contexts import ContextRequest
        from memtui.service.spending import LimitPassed

        def tell_model(text: str) -> None:
            if words := answer_to(call, text):
                write_exactly(words.encode("utf-8", "backslashreplace") + b"\n")

        if call.moment is Moment.COMPACTION:
            return
        settings = session.settings
        is_later = (call.moment is Moment.PROMPT or call.is_resumed) and not call.is_compacted
        request = build(
            ContextRequest,
            scope=agent.scope,
            model=settings.context_model,
            budget=settings.context_budget,
            max_characters=MOST_CHARACTERS,
            binding_key=agent.binding_key,
            delivered=True,
            source=agent.source if agent.caller.run_id else None,
            prompt=call.prompt if call.moment is Moment.PROMPT else None,
            profile=not is_later,
            by_relevance=settings.facts_by_relevance,
            skip_given=is_later and agent.caller.run_id is not None,
            within_ms=int(settings.hook_timeout_ms * _ASKED_SHARE),
            prompt_tokens=prompt_tokens(call.transcript),
        )
        try:
            answer = await agent.service.context(agent.caller, request)
        except LimitPassed as error:
            if session.out.as_json:
                message = {"kind": kind_of(error), "message": str(error)}
                session.out.document({"error": message})
            else:
                tell_model(str(error))
            raise
        if session.out.as_json:
            session.out.document(answer)
        else:
            tell_model(answer.text)

    _for_client(invocation, options, tell)


def hook_post_run(invocation: Invocation, options: ClientOptions) -> None:
    """Write a note of a run: what was asked, the result, and which files were changed.

    It writes only if the binding captures runs (`memtui bindings capture`). A run has one note,
    which each answer of the agent updates; a trivial exchange leaves none.
    """

    async def leave(session: Session, agent: Agent, call: HookCall) -> None:
        from memtui.channels.hooks.capture import capture_run

        if not call.event:
            raise Invalid("A note takes what the client says on stdin; nothing came.")
        if agent.caller.run_id is None:
            raise Invalid("The client names no session_id; give the run with --run.")
        _tell(session, await capture_run(agent, call))

    _for_client(invocation, options, leave)


def hook_comment(invocation: Invocation, options: AgentOptions) -> None:
    """Store a comment of an issue; the same comment again updates its memory.

    stdin has JSON with issue_id, comment_id and text, and author and url if they are known. It
    writes only if the binding captures comments.
    """
    _for_text(invocation, options, "comment_id")


def hook_document(invocation: Invocation, options: AgentOptions) -> None:
    """Store a document of an issue; the same document again updates its memory.

    stdin has JSON with issue_id, document_key and text, and author, title and url if they are
    known. It writes only if the binding captures documents.
    """
    _for_text(invocation, options, "document_key")


def failed(error: Exception, invocation: Invocation) -> int:
    """Report an error on stderr and in the log file; return the exit code 0."""
    sentence = str(error) or type(error).__name__
    if isinstance(error, typer.TyperException):
        sentence = usage_sentence(error)
    elif isinstance(error, OSError):
        sentence = f"{error.filename or 'The answer'}: {error.strerror or error}."
    say(sentence)
    if is_unwritten(error):
        close_quietly()  # at its end Python would write the rest, and fail again
    try:
        paths = invocation.paths()
    except Invalid:
        return 0
    if paths.is_begun:
        with logging_to(paths.log_file):
            is_fault = not isinstance(error, (MemtuiError, typer.TyperException, OSError))
            logging.getLogger("memtui.hook").error(sentence, exc_info=error if is_fault else None)
    return 0


def _for_client(
    invocation: Invocation,
    options: ClientOptions,
    work: Callable[[Session, Agent, HookCall], Awaitable[None]],
) -> None:
    """Read the client's call from stdin, and do the work as its agent."""
    with _in_time(invocation) as limit:
        from memtui.channels.hooks.calls import MOST_BYTES, read_call

        said = read_call(read_stdin(MOST_BYTES), client=options.client)
        run = options.run or said.run_id
        project = options.project
        if project is None and options.project_from_folder:
            project = _project_of(said)

        async def inside(session: Session) -> None:
            from memtui.channels.agent import agent_of

            own = session.caller.principal.removeprefix("agent:") if session.caller.by_ai else None
            agent = await agent_of(
                session.service,
                session.caller,
                DOOR,
                name=options.agent or own or said.client or "assistant",
                project_id=project,
                run_id=run,
                binding_key=options.binding,
            )
            call = said
            if said.event and run is not None:
                call = await asyncio.to_thread(_joined, session, run, said)
            await work(session, agent, call)

        _run(invocation, limit, inside)


def _for_text(invocation: Invocation, options: AgentOptions, name_of_it: str) -> None:
    with _in_time(invocation) as limit:
        from memtui.channels.hooks.calls import MOST_BYTES

        given = _issue_text(read_stdin(MOST_BYTES), name_of_it)

        async def inside(session: Session) -> None:
            from memtui.channels.agent import agent_of
            from memtui.channels.hooks.capture import capture_text

            own = await agent_of(
                session.service,
                session.caller,
                DOOR,
                name=options.agent,
                project_id=options.project,
                binding_key=options.binding,
            )
            _tell(session, await capture_text(own, given))

        _run(invocation, limit, inside)


def _issue_text(text: str, name_of_it: str) -> IssueText:
    from memtui.channels.hooks.calls import json_object
    from memtui.channels.hooks.capture import IssueText

    said = json_object(text)
    taken = {"issue_id", name_of_it, "text", "author", "title", "url"}
    given = build(IssueText, **{name: said[name] for name in taken if said.get(name) is not None})
    if getattr(given, name_of_it) is None:
        raise Invalid(f"The {name_of_it} is missing.")
    return given


def _tell(session: Session, found: Captured) -> None:
    """Print the result of a capture, but only as JSON: clients expect no output."""
    if session.out.as_json:
        session.out.document(found)


def _project_of(call: HookCall) -> str | None:
    from memtui.importing.projects import project_of

    return project_of(call.transcript or Path(), call.cwd or str(Path.cwd()))


def _joined(session: Session, run: str, call: HookCall) -> HookCall:
    """Note the client's run, so that its MCP server uses it; without a note that has its own runs.

    Returns the call, with `is_compacted` from the earlier note.
    """
    from memtui.channels.hooks.calls import Moment
    from memtui.channels.hooks.joining import RunNote, client_process, note_run, noted

    if (process := client_process()) is None:
        return call
    is_compacted = noted(session.paths, process) == RunNote(run, compacted=True)
    if call.moment in {Moment.START, Moment.PROMPT}:  # now it gets everything again
        note = RunNote(run)
    else:
        note = RunNote(run, compacted=is_compacted or call.moment is Moment.COMPACTION)
    try:
        note_run(session.paths, process, note)
    except OSError as error:
        logging.getLogger("memtui.hook").warning("the run could not be noted: %s", error)
    return replace(call, is_compacted=is_compacted)


class _Limit(NamedTuple):
    """Time limit of a hook in milliseconds, and its end by the monotonic clock."""

    most_ms: int
    end: float

    @property
    def passed(self) -> Unavailable:
        """The error for a hook that took too long."""
        return Unavailable(
            f"The hook took more than {self.most_ms:,} ms (hook_timeout_ms) and was ended."
        )


def _run(invocation: Invocation, limit: _Limit, work: Callable[[Session], Awaitable[None]]) -> None:
    """Do the work in an existing home; stop it early enough to log the time-out."""

    async def inside() -> None:
        try:
            async with asyncio.timeout_at(limit.end - limit.most_ms * _LOGGING_SHARE / 1_000):
                async with invocation.session(make=False) as session:
                    await work(session)
        except TimeoutError as error:
            raise limit.passed from error

    asyncio.run(inside())


@contextmanager
def _in_time(invocation: Invocation) -> Iterator[_Limit]:
    """End the process with exit code 0 when the hook's time is over."""
    most_ms, done = invocation.settings().hook_timeout_ms, Event()
    limit = _Limit(most_ms, monotonic() + most_ms / 1_000)

    def watch() -> None:
        if not done.wait(most_ms / 1_000):
            failed(limit.passed, invocation)
            os._exit(0)

    Thread(target=watch, name="memtui-hook-limit", daemon=True).start()
    try:
        yield limit
    finally:
        done.set()
