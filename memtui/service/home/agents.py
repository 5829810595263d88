"""The agents that are connected now, through any channel, and the last answer of each.

Channels with sessions announce the clients on this machine (`memtui.service.home.sessions`), even
before their first request. Other agents count as connected if the log shows them active lately.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import ValidationError

from memtui.contract import Filter, Model, OperationStatus, OperationType, Scope, UtcDatetime
from memtui.json_text import json_text
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller
from memtui.store.operation import Operation
from memtui.store.visibility import Visibility

if TYPE_CHECKING:
    from memtui.service.home.sessions import Sessions

_log = logging.getLogger(__name__)

RECENT = timedelta(minutes=10)
"""An agent without an open session counts as connected for so long after its last operation."""

_DOORS = ("mcp", "wrap", "hook", "http")
"""The channels of agents, and of programs that act for a person."""
_ANSWERS = (
    OperationType.CONTEXT, OperationType.QUERY, OperationType.BROWSE, OperationType.GET,
    OperationType.PROFILE,
)  # fmt: skip
_MOST = 500
"""The most operations read: of the last minutes, and of each session."""


class LastAnswer(Model):
    """The last answer that an agent got."""

    operation_id: str
    operation_type: OperationType
    at: UtcDatetime
    asked: str | None = None
    """The text of the query, or the prompt of the context."""
    results: int
    """Number of records in the answer."""
    tokens: int | None = None
    """Token count of a context; None: not a context."""


class Connected(Model):
    """An agent, or a program that calls in a person's name, that is connected now."""

    principal: str
    acts_for: str | None = None
    """The person; known only if a session is open."""
    channel: str
    client: str | None = None
    """The program and its version, as the client names itself."""
    project_id: str | None = None
    run_id: str | None = None
    is_open: bool
    """True: a session is open on this machine. False: it was only active lately."""
    since: UtcDatetime
    """The start of its session, or of its first operation in the last minutes."""
    last_seen: UtcDatetime
    last_answer: LastAnswer | None = None
    """None: no answer lately."""


class _Announcement(Model):
    """A process's announcement of a client that is connected to it."""

    company_id: str
    may_vanish: bool
    about: Connected


class Agents(ServiceModule):
    """The connected agents."""

    async def seen(
        self, caller: Caller, scope: Scope, client: str | None = None, *, may_vanish: bool
    ) -> None:
        """Note that a caller is connected, until this process ends or `left` is called.

        Not an operation. Nothing is noted in a read-only home; a write error is only logged.

        Args:
            caller: The connected caller; its run names the session.
            scope: The scope in which it works.
            client: The program, as the client names itself.
            may_vanish: Whether it can leave without notice, as over HTTP: then it counts as
                connected only while it keeps sending requests.
        """
        if caller.run_id is None or self._runtime.database.read_only:
            return
        about = Connected.like(
            caller,
            client=client,
            project_id=scope.project_id,
            is_open=True,
            since=self._runtime.clock(),
            last_seen=self._runtime.clock(),
        )
        said = _Announcement(company_id=caller.company_id, may_vanish=may_vanish, about=about)
        document = said.model_dump(mode="json")
        try:
            await asyncio.to_thread(
                self._runtime.recorder.sessions.announce, _name(caller), document
            )
        except OSError as error:  # a full disk must not stop the answer
            _log.warning("who is connected cannot be noted: %s", error)

    async def left(self, caller: Caller) -> None:
        """Note that the session of a caller's run has ended."""
        await asyncio.to_thread(self._runtime.recorder.sessions.withdraw, _name(caller))

    async def connected(self, caller: Caller, within: timedelta = RECENT) -> list[Connected]:
        """Return the connected agents that the caller may see, the last seen first.

        Args:
            caller: Who asks.
            within: The longest time since the last operation of one without an open session.
        """
        sessions = self._runtime.recorder.sessions

        def read() -> list[Connected]:
            visibility = self._runtime.visibility(caller)
            log = self._runtime.log(caller.company_id, visibility)
            since = self._runtime.clock() - within
            lately = Filter(since=since, internal=True)
            recent = log.page(lately, limit=_MOST, strict=False).operations
            open_here = self._announced(sessions, caller.company_id, visibility, since)
            found = {(one.principal, one.run_id): one for one in open_here}
            for place, own in _by_run(recent).items():
                found[place] = _joined(found.get(place), own)
            for place, one in found.items():
                if one.last_answer is None and one.run_id is not None and one.is_open:
                    of_run = Filter(run_id=one.run_id, internal=True)
                    older = log.page(of_run, limit=_MOST, strict=False).operations
                    found[place] = one.model_copy(update={"last_answer": _last_answer(older)})
            return sorted(found.values(), key=lambda one: one.last_seen, reverse=True)

        return await asyncio.to_thread(read)

    def _announced(
        self, sessions: Sessions, company_id: str, visibility: Visibility | None, since: datetime
    ) -> Iterator[Connected]:
        for document, seen in sessions.announced():
            try:
                said = _Announcement.model_validate_json(document)
            except ValidationError:  # by another version of memtui
                continue
            is_there = seen >= since or not said.may_vanish
            if said.company_id != company_id or not is_there:
                continue
            one = said.about.model_copy(update={"last_seen": seen})
            if _may_see(visibility, one):
                yield one


def _may_see(visibility: Visibility | None, one: Connected) -> bool:
    """Whether a session is visible: to its person, its project's members, and managers."""
    if (
        visibility is None
        or visibility.manages
        or visibility.person in {one.principal, one.acts_for}
    ):
        return True
    return one.project_id is not None and visibility.reads(
        Scope(company_id="-", project_id=one.project_id)
    )


def _by_run(recent: Sequence[Operation]) -> dict[tuple[str, str | None], list[Operation]]:
    """Return the operations of agents by principal and run, the newest first."""
    found: dict[tuple[str, str | None], list[Operation]] = {}
    for one in recent:
        if one.channel in _DOORS or one.principal.startswith("agent:"):
            found.setdefault((one.principal, one.scope.run_id), []).append(one)
    return found


def _joined(session: Connected | None, own: Sequence[Operation]) -> Connected:
    """Return a session updated from its logged operations, newest first; None: made from them."""
    newest, oldest = own[0], own[-1]
    seen = newest.started_at + timedelta(milliseconds=newest.latency_ms or 0)
    if session is not None:
        return session.model_copy(
            update={"last_seen": max(session.last_seen, seen), "last_answer": _last_answer(own)}
        )
    projects = (one.scope.project_id for one in own if one.scope.project_id)
    return Connected(
        principal=newest.principal,
        channel=newest.channel,
        project_id=next(projects, None),
        run_id=newest.scope.run_id,
        is_open=False,
        since=oldest.started_at,
        last_seen=seen,
        last_answer=_last_answer(own),
    )


def _last_answer(operations: Sequence[Operation]) -> LastAnswer | None:
    """Return the newest answer among operations that are sorted newest first."""
    for one in operations:
        if one.operation_type in _ANSWERS and one.status is OperationStatus.OK:
            asked = one.request.get("query") or one.request.get("prompt")
            tokens = one.request.get("tokens")
            return LastAnswer(
                operation_id=one.operation_id,
                operation_type=one.operation_type,
                at=one.started_at,
                asked=asked if isinstance(asked, str) else None,
                results=one.result_count,
                tokens=tokens if isinstance(tokens, int) else None,
            )
    return None


def _name(caller: Caller) -> str:
    """Return a hash of caller and run, for a file name."""
    named = json_text([caller.company_id, caller.principal, caller.run_id])
    return hashlib.sha256(named.encode()).hexdigest()[:16]
