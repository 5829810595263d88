"""The process that logs what passes between an agent and a server, and weighs writes by the rules.

It reads copies of the lines, so that the passing process waits for none of this. What cannot be
logged now is tried again; what has no room, or cannot be logged before the end, is a gap.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import RLock, Thread
from typing import IO, Any, NamedTuple

from memtui.channels.agent import Agent, agent_of
from memtui.channels.cli.session import global_options
from memtui.channels.hooks.joining import Process, client_process, noted, process_of
from memtui.channels.wrap.conversation import Conversation, OpenCall
from memtui.channels.wrap.frames import FrameKind, LogState, WireFrame, frames, send
from memtui.channels.wrap.lines import NOT_READ, is_harmless, refused, tool_answer, unweighable
from memtui.channels.wrap.log_client import NO_RULES
from memtui.contract import Denied, Invalid, Json, MemtuiError, NotFound, Unavailable
from memtui.mcp_mapping import MOST_NAMED, load_mapping
from memtui.paths import Paths, make_private, replacing
from memtui.service.operations.passed import CHANNEL, AskedCall, PassedCall, WeighedCall
from memtui.store.unlogged import UnloggedCalls

_logger = logging.getLogger(__name__)

_LOOK_S = 0.5
"""How often the rules are looked at."""
_RETRY_S = 1.0
_LAST_S = 60.0
"""How long the last calls are tried, after the passing process has ended."""
_MOST_KEPT = 10_000
"""How many calls wait to be logged; more are a gap."""
_AT_ONCE = 50
_SERVER_S = 5.0
"""How long a server whose passing process was killed may take to end by itself."""
_NOTE_BYTES = 200


class KeptCall(NamedTuple):
    """A call that has ended, or a gap, until it is logged."""

    numbers: list[int]
    """The numbers of its lines."""
    entry: PassedCall | UnloggedCalls

    @property
    def gap(self) -> UnloggedCalls:
        """The gap that it is, or becomes where it is not logged."""
        if isinstance(self.entry, UnloggedCalls):
            return self.entry
        at = self.entry.started_at.timestamp()
        return UnloggedCalls(1, at, at)


class LogProcess:
    """Logs the messages of one passing process, and decides on the calls that wait there."""

    def __init__(self, connection: socket.socket, start: Json, state: LogState) -> None:
        """Take the socket to the passing process, and its first message."""
        self._file = connection.makefile("wb")
        self._sending = RLock()
        self._start, self._state = start, state
        self._key: str = start["binding"]
        self._conversation = Conversation()
        if chosen := start["mapping"]:
            self._conversation.mapping = load_mapping(chosen)
            self._conversation.is_mapping_chosen = True
        self._conversation.learn(state.known)
        self._kept: deque[KeptCall] = deque()
        self._unlogged: Counter[int] = Counter()
        """How many calls of a line are not logged yet, by its number."""
        self._waiting: deque[tuple[WireFrame, list[OpenCall]]] = deque()
        """The lines that wait for the rules, with their calls."""
        self._outcomes: dict[int, asyncio.Future[PassedCall | None]] = {}
        """The outcomes of the calls that are weighed, by line; None: it did not pass after all."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._is_over = self._was_cut_off = False
        self._noted: bool | None = None
        self._paths: Paths | None = None
        self._client = client_process()
        self._server = process_of(start["server"]) if start["server"] else None

    async def run(self, incoming: Iterator[WireFrame]) -> None:
        """Log until the passing process ends, and then the rest."""
        self._loop = asyncio.get_running_loop()
        Thread(target=self._read, args=[incoming], name="memtui-wrap-read", daemon=True).start()
        note, last = GapNote(Path(self._start["note"])), None
        while last is None or (self._has_more and time.monotonic() < last):
            try:
                await self._in_session(note)
            except (MemtuiError, OSError) as error:
                self._tell(trouble=str(error))
                await asyncio.sleep(_RETRY_S)
            if self._is_over and last is None:
                last = time.monotonic() + _LAST_S
        if self._was_cut_off and self._server is not None:
            await asyncio.to_thread(_end_server, self._server)
        note.close(UnloggedCalls.joined(one.gap for one in self._kept))

    @property
    def _has_more(self) -> bool:
        return bool(self._kept or self._tasks)

    # Incoming messages are read in a thread, since a long line takes a while.

    def _read(self, incoming: Iterator[WireFrame]) -> None:
        try:
            for frame in incoming:
                if frame.kind == FrameKind.END:
                    break
                self._take(frame)
            else:
                self._was_cut_off = True
            for call in self._conversation.cut_off():
                self._ended(call, None, time.time())
        except Exception:
            _logger.exception("What passed could not be read")
            os._exit(1)  # the passing process starts another one, and tells what is lost
        self._is_over = True
        self._loop.call_soon_threadsafe(self._news.set)

    def _take(self, frame: WireFrame) -> None:
        conversation, later = self._conversation, self._loop.call_soon_threadsafe
        if frame.kind == FrameKind.ASKED:
            self._open(frame.number, conversation.asked(frame))
        elif frame.kind == FrameKind.ANSWERED:
            for call, said in conversation.answered(frame):
                self._ended(call, said, frame.at)
        elif frame.kind == FrameKind.GAP:
            self._unlogged[frame.number] = 1
            later(self._keep, KeptCall([frame.number], frame.content))
        elif frame.kind == FrameKind.WAITING:
            later(self._waiting.append, (frame, conversation.asked(frame)))
            later(self._news.set)
        elif frame.kind == FrameKind.STOPPED:
            later(self._stopped, frame.number)
        if conversation.is_new:
            conversation.is_new = False
            self._tell(known=conversation.known, reads=conversation.reads)

    def _open(self, number: int, calls: Sequence[OpenCall]) -> None:
        """Wait for the answers to the calls of a line that passes."""
        for call in calls:
            if (before := self._conversation.open(call)) is not None:
                self._ended(before, None, call.at)
        if calls:
            self._unlogged[number] = len(calls)
        else:
            self._send(FrameKind.LOGGED, number)

    def _ended(self, call: OpenCall, answer: Json | None, at: float) -> None:
        """Keep a call that has ended, to be logged."""
        passed = self._conversation.passed(call, answer, at)
        if self._paths and (note := noted(self._paths, self._client)) and not self._start["run"]:
            passed = replace(passed, run_id=note.run_id)
        if outcome := self._outcomes.pop(call.number, None):
            self._loop.call_soon_threadsafe(outcome.set_result, passed)
        else:
            self._loop.call_soon_threadsafe(self._keep, KeptCall([call.number], passed))

    # The rest, on the event loop

    def _keep(self, item: KeptCall) -> None:
        if len(self._kept) >= _MOST_KEPT:
            item = KeptCall(item.numbers, item.gap)
            if isinstance(self._kept[-1].entry, UnloggedCalls):
                last = self._kept.pop()
                last.numbers.extend(item.numbers)
                item = KeptCall(last.numbers, last.gap.joined([last.gap, item.gap]) or item.gap)
        self._kept.append(item)
        self._news.set()

    def _stopped(self, number: int) -> None:
        """Take note that the passing process has refused a line."""
        self._conversation.stopped(number)
        self._waiting = deque(one for one in self._waiting if one[0].number != number)
        if outcome := self._outcomes.pop(number, None):
            outcome.set_result(None)

    async def _in_session(self, gaps: GapNote) -> None:
        """Log in one open session, until something fails or all is done."""
        options = global_options(self._start["words"])
        assert options is not None  # noqa: S101 - the passing process wrote them
        async with options.session() as session:
            self._paths = session.paths
            agent = await agent_of(
                session.service, session.caller, CHANNEL, name=self._start["agent"],
                project_id=self._start["project"], binding_key=self._key,
                run_id=self._start["run"] or self._start["session"],
            )  # fmt: skip
            await self._look(agent)
            gaps.open()
            for path, gap in gaps.earlier():
                await session.service.passed.log(agent.caller, agent.scope, self._key, [gap])
                path.unlink(missing_ok=True)
            while not self._is_over or self._has_more:
                await self._log(agent)
                await self._look(agent)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._news.wait()
                self._news.clear()
            await agent.service.agents.left(agent.caller)

    async def _look(self, agent: Agent) -> None:
        """Look at the binding's rules, and begin to weigh what waits."""
        try:
            terms = await agent.service.passed.terms(agent.caller, self._key)
        except NotFound as error:
            if self._state.has_rules is None:
                self._tell(refusal=str(error))
            raise
        if terms.mapping and not self._conversation.is_mapping_chosen:
            self._conversation.is_mapping_chosen = self._conversation.is_new = True
            try:
                self._conversation.mapping = load_mapping(terms.mapping)
            except Invalid as error:  # its calls count as without one
                _logger.warning("%s", error)
        self._tell(has_rules=terms.has_rules)
        if self._noted != terms.has_rules:
            note = Path(self._start["note"])
            make_private(note.parent)
            with replacing(note) as fresh:
                fresh.write_text("has rules\n" if terms.has_rules else NO_RULES, encoding="utf-8")
            self._noted = terms.has_rules
        while self._waiting:
            self._weigh_line(agent, *self._waiting.popleft())

    def _weigh_line(self, agent: Agent, frame: WireFrame, calls: Sequence[OpenCall]) -> None:
        """Let a line pass or answer it, by the binding's present rules."""
        line, conversation = b"".join(frame.content), self._conversation
        why = None
        if self._state.has_rules and not is_harmless(line, conversation.reads):
            why = unweighable(line)
            if why is None and conversation.operation_type(calls[0]).mutates:
                outcome = self._outcomes[frame.number] = self._loop.create_future()
                task = asyncio.create_task(self._weigh(agent, calls[0], outcome))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
        if why is None:
            self._open(frame.number, calls)
        self._send(FrameKind.WEIGHED, frame.number, why and refused(line, why))

    async def _weigh(
        self, agent: Agent, call: OpenCall, outcome: asyncio.Future[PassedCall | None]
    ) -> None:
        """Weigh one call and, where it passes, wait for its outcome."""
        number, passed, is_decided = call.number, agent.service.passed, False
        try:
            async with passed.weighed(
                agent.caller, agent.scope, self._key, self._asked(call)
            ) as weighed:
                is_decided = bool(weighed.pending) or not outcome.done()
                if weighed.pending:
                    self._send(FrameKind.WEIGHED, number, self._pending(call, weighed))
                    return
                if is_decided:
                    self._open(number, [call])
                    self._send(FrameKind.WEIGHED, number)
                if (ended := await outcome) is None:
                    raise Unavailable("It did not pass, as the rules were not read in time.")
                await asyncio.to_thread(passed.end, weighed.entry, ended)
        except MemtuiError as error:
            if not is_decided:
                said = str(error) if isinstance(error, Denied | Invalid) else NOT_READ
                answer = tool_answer(call.request_id, said, is_error=True)
                self._send(FrameKind.WEIGHED, number, answer)
        finally:
            self._outcomes.pop(number, None)
            self._unlogged.pop(number, None)
            self._send(FrameKind.LOGGED, number)

    def _asked(self, call: OpenCall) -> AskedCall:
        conversation, mapping = self._conversation, self._conversation.mapping
        values = mapping.given(call.tool, call.arguments)
        if len(values) >= MOST_NAMED:
            raise Denied(
                f"memtui weighs fewer than {MOST_NAMED:,} memories in one call; send less."
            )
        changes = ({**one, "id": mapping.id_given(one) or None} for one in values)
        return AskedCall(
            operation_type=conversation.operation_type(call), tool=call.tool,
            asked=json.dumps(call.arguments, ensure_ascii=False),
            hint=conversation.hints.get(call.tool),
            changes=tuple(one for one in changes if one["id"] or one.get("text")),
            beyond="\n".join(mapping.beyond(call.tool, call.arguments)), names=mapping.id_argument,
        )  # fmt: skip

    def _pending(self, call: OpenCall, weighed: WeighedCall) -> bytes:
        """Return the response to an agent whose call is held for review."""
        sentence = " ".join(one.sentence for one in weighed.pending)
        # A result without what its tool's schema says would be refused by the client.
        has_schema = call.tool in self._conversation.schemas
        ids = [one.pending_id for one in weighed.pending]
        return tool_answer(
            call.request_id, sentence, is_error=has_schema, _meta={"memtui/pending": ids}
        )

    async def _log(self, agent: Agent) -> None:
        """Log the calls and gaps that wait for it."""
        while items := [*islice(self._kept, _AT_ONCE)]:
            entries = [one.entry for one in items]
            await agent.service.passed.log(agent.caller, agent.scope, self._key, entries)
            for one in items:
                self._kept.popleft()
                for number in one.numbers:
                    self._unlogged[number] -= 1
                    if self._unlogged[number] <= 0:
                        del self._unlogged[number]
                        self._send(FrameKind.LOGGED, number)
            self._tell(trouble="")
            await agent.service.agents.seen(
                agent.caller, agent.scope, self._conversation.client, may_vanish=False
            )

    def _tell(self, **new: Any) -> None:
        """Send new state to the passing process."""
        with self._sending:
            before, self._state = self._state, self._state._replace(**new)
            if before != self._state:
                self._send(FrameKind.STATE, 0, self._state)

    def _send(self, kind: FrameKind, number: int, content: Any = None) -> None:
        with self._sending, suppress(OSError):  # it has ended: the reader learns it too
            send(self._file, WireFrame(kind, number, content=content))


class GapNote:
    """A file for the gap that cannot be logged at the end, and those of earlier processes.

    It is written ahead, so that it has room where the disk is full by then.
    """

    def __init__(self, beside: Path) -> None:
        """Take the path that the names of such files begin with."""
        self._beside = beside
        self._file: IO[bytes] | None = None

    def open(self) -> None:
        """Make the file, once. Raises `OSError`."""
        if self._file is None:
            make_private(self._beside.parent)
            path = self._beside.with_name(f"{self._beside.name}.{uuid.uuid4().hex}.gap")
            self._file = path.open("xb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.write(b" " * _NOTE_BYTES)
            os.fsync(self._file.fileno())

    def earlier(self) -> Iterator[tuple[Path, UnloggedCalls]]:
        """Yield the gaps of processes that have ended; remove the notes without one."""
        for path in sorted(self._beside.parent.glob(f"{self._beside.name}.*.gap")):
            with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    gap = UnloggedCalls(*json.loads(file.read()))
                except (ValueError, TypeError):
                    path.unlink()
                else:
                    yield path, gap

    def close(self, left: UnloggedCalls | None) -> None:
        """Note a gap for the next start, where there is a home; None: there is none."""
        if left is not None and self._beside.parents[1].exists():
            self.open()  # the log may never have been
        if self._file is None:
            return
        if left is None:
            Path(self._file.name).unlink(missing_ok=True)
        else:
            self._file.seek(0)
            self._file.write(json.dumps(left).encode().ljust(_NOTE_BYTES))
            os.fsync(self._file.fileno())
        self._file.close()


def _end_server(server: Process) -> None:
    """End a server that outlives the passing process, and whose input has ended, by signals."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _SERVER_S
        while time.monotonic() < deadline:
            now = process_of(server.pid)
            if now is None or now.name != server.name:
                return
            time.sleep(0.1)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)


def main(descriptor: int) -> None:
    """Log what the process at the other end of a socket passes on."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with the passing process
    os.nice(5)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with socket.socket(fileno=descriptor) as connection:
        incoming = frames(connection.makefile("rb"))
        if (first := next(incoming, None)) is not None:
            start, state = first.content
            asyncio.run(LogProcess(connection, start, state).run(incoming))


if __name__ == "__main__":
    main(int(sys.argv[1]))
