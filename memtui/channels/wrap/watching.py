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
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import IO, NamedTuple

from memtui.channels.agent import Agent, agent_of
from memtui.channels.cli.session import global_options
from memtui.channels.hooks.joining import Process, client_process, noted, process_of
from memtui.channels.wrap.conversation import Conversation, OpenCall
from memtui.channels.wrap.frames import (
    ANSWERED,
    ASKED,
    END,
    GAP,
    LOGGED,
    STATE,
    STOPPED,
    WAITING,
    Unlogged,
    WireFrame,
    frames,
    send,
)
from memtui.channels.wrap.logging_process import NO_RULES
from memtui.channels.wrap.weighing import Weighing
from memtui.contract import Invalid, Json, MemtuiError, NotFound
from memtui.mcp_mapping import load_mapping
from memtui.paths import Paths, make_private, replacing
from memtui.service.operations.passed import CHANNEL, PassedCall, UnloggedCalls

_logger = logging.getLogger(__name__)

_LOOK_S = 0.5
"""How often the rules are looked at."""
_RETRY_S = 1.0
_LAST_S = 60.0
"""How long the last calls are tried, after the passing process has ended."""
_MOST_KEPT = 10_000
"""How many calls wait to be logged; more are a gap."""
_AT_ONCE = 200
_SERVER_S = 5.0
"""How long a server whose passing process was killed may take to end by itself."""
_NOTE_BYTES = 200


class KeptCall(NamedTuple):
    """A call that has ended, or a gap, until it is logged."""

    numbers: tuple[int, ...]
    """The numbers of its lines."""
    entry: PassedCall | UnloggedCalls

    @property
    def gap(self) -> Unlogged:
        """The gap that it is, or becomes where it is not logged."""
        one = self.entry
        if isinstance(one, PassedCall):
            at = one.started_at.timestamp()
            return Unlogged(1, at, at)
        return Unlogged(one.count, one.since.timestamp(), one.until.timestamp())


def gap_entry(gap: Unlogged) -> UnloggedCalls:
    """Return a gap as the log takes it."""
    since, until = (datetime.fromtimestamp(one, UTC) for one in (gap.since, gap.until))
    return UnloggedCalls(gap.calls, since, until)


class Watch:
    """What passes by one passing process."""

    def __init__(self, connection: socket.socket, start: Json) -> None:
        """Take the socket to the passing process, and what it said first."""
        self._connection, self._start = connection, start
        self._key: str = start["binding"]
        self._conversation = Conversation()
        if chosen := start["mapping"]:
            self._conversation.mapping = load_mapping(chosen)
            self._conversation.is_mapping_chosen = True
        self._conversation.learn(start.get("known", {}))
        self._weighing = Weighing(self._conversation, self._key, self._send)
        self._told: Json = {}
        self._kept: deque[KeptCall] = deque()
        self._lost: Unlogged | None = None
        """What has no room; `_lost_lines`: the numbers of its lines."""
        self._lost_lines: list[int] = []
        self._unlogged: dict[int, int] = {}
        """How many calls of a line are not logged yet, by its number."""
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_over = self._was_cut_off = False
        self._paths: Paths | None = None
        self._client = client_process()
        self._server = process_of(start["server"]) if start["server"] else None
        self._sending = Lock()

    async def run(self, incoming: Iterator[WireFrame]) -> None:
        """Log until the passing process ends, and then the rest."""
        Thread(target=self._read, args=[incoming], name="memtui-wrap-read", daemon=True).start()
        note, last = GapNote(Path(self._start["note"])), None
        while last is None or (self._has_more and time.monotonic() < last):
            try:
                await self._in_session(note)
            except (MemtuiError, OSError) as error:
                self._tell({"trouble": str(error)})
                await asyncio.sleep(_RETRY_S)
            if self._is_over and last is None:
                last = time.monotonic() + _LAST_S
        if self._was_cut_off and self._server is not None:
            await asyncio.to_thread(_end_server, self._server)
        left = self._lost
        for one in self._kept:
            left = one.gap.and_(left)
        note.close(left)

    @property
    def _has_more(self) -> bool:
        return bool(self._kept or self._lost or self._weighing.is_busy)

    def _read(self, incoming: Iterator[WireFrame]) -> None:
        """Take what comes, in a thread: a long line takes a while to read."""
        try:
            for frame in incoming:
                if frame.kind == END:
                    break
                self._take(frame)
            else:
                self._was_cut_off = True
            now = time.time()
            for call in self._conversation.cut_off():
                self._ended(call, None, now)
        except Exception:
            _logger.exception("What passed could not be read")
            os._exit(1)  # the passing process starts another one, and tells what is lost
        self._is_over = True
        self._loop.call_soon_threadsafe(self._news.set)

    def _take(self, frame: WireFrame) -> None:
        if frame.kind == ASKED:
            calls = self._conversation.asked(frame)
            for call in calls:
                self._open(call)
            if calls:
                self._unlogged[frame.number] = len(calls)
            else:
                self._send(WireFrame(LOGGED, frame.number))
        elif frame.kind == ANSWERED:
            for call, said in self._conversation.answered(frame):
                self._ended(call, said, frame.at)
        elif frame.kind == GAP:
            self._unlogged[frame.number] = 1
            self._keep(KeptCall((frame.number,), gap_entry(Unlogged(*frame.document))))
        elif frame.kind in {WAITING, STOPPED}:
            self._loop.call_soon_threadsafe(self._weigh, frame)
        if self._conversation.is_new:
            self._conversation.is_new = False
            known = self._conversation.known
            self._tell({"known": known, "reads": self._conversation.reads})

    def _open(self, call: OpenCall) -> None:
        if (before := self._conversation.open(call)) is not None:
            self._ended(before, None, call.at)

    def _ended(self, call: OpenCall, answer: Json | None, at: float) -> None:
        """Keep a call that has ended, to be logged."""
        passed = self._conversation.passed(call, answer, at)
        if self._paths and (note := noted(self._paths, self._client)) and not self._start["run"]:
            passed = replace(passed, run_id=note.run_id)
        if not self._weighing.ended(call, passed):
            self._keep(KeptCall((call.number,), passed))

    def _keep(self, item: KeptCall) -> None:
        self._loop.call_soon_threadsafe(self._kept_now, item)

    def _kept_now(self, item: KeptCall) -> None:
        if len(self._kept) < _MOST_KEPT:
            self._kept.append(item)
        else:
            self._lost = item.gap.and_(self._lost)
            self._lost_lines += item.numbers
        self._news.set()

    def _weigh(self, frame: WireFrame) -> None:
        if frame.kind == STOPPED:
            self._weighing.stopped(frame.number)
            return
        self._weighing.waits(frame)
        self._news.set()

    async def _in_session(self, gaps: GapNote) -> None:
        """Log in one open session, until something fails or all is done."""
        options = global_options(self._start["words"])
        assert options is not None  # noqa: S101 - the passing process wrote them
        async with options.session() as session:
            self._paths = session.paths
            agent = await agent_of(
                session.service,
                session.caller,
                CHANNEL,
                name=self._start["agent"],
                project_id=self._start["project"],
                run_id=self._start["run"] or self._start["session"],
                binding_key=self._key,
            )
            await self._look(agent)
            gaps.open()
            for path, gap in gaps.earlier():
                lost = [gap_entry(gap)]
                await session.service.passed.log(agent.caller, agent.scope, self._key, lost)
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
            if "has_rules" not in self._told:
                self._tell({"refusal": str(error)})
            raise
        has_rules = terms.has_rules
        if terms.mapping and not self._conversation.is_mapping_chosen:
            self._conversation.is_mapping_chosen = self._conversation.is_new = True
            try:
                self._conversation.mapping = load_mapping(terms.mapping)
            except Invalid as error:  # its calls count as without one
                _logger.warning("%s", error)
        if self._tell({"has_rules": has_rules}):
            note = Path(self._start["note"])
            make_private(note.parent)
            with replacing(note) as fresh:
                fresh.write_text("has rules\n" if has_rules else NO_RULES, encoding="utf-8")
        self._weighing.begin(agent, has_rules=has_rules, opened=self._weighed)

    def _weighed(self, number: int, calls: Sequence[OpenCall]) -> None:
        """Take the calls of a line that waited and passes now."""
        for call in calls:
            self._open(call)
        if calls:
            self._unlogged[number] = len(calls)

    async def _log(self, agent: Agent) -> None:
        """Log the calls and gaps that wait for it."""
        while self._kept or self._lost:
            items = [*islice(self._kept, _AT_ONCE)]
            if self._lost is not None and len(items) < _AT_ONCE:
                lost, self._lost = self._lost, None
                items.append(KeptCall(tuple(self._lost_lines), gap_entry(lost)))
                self._kept.append(items[-1])
                self._lost_lines = []
            entries = [one.entry for one in items]
            await agent.service.passed.log(agent.caller, agent.scope, self._key, entries)
            for one in items:
                self._kept.popleft()
                for number in one.numbers:
                    self._logged(number)
            self._tell({"trouble": ""})
            await agent.service.agents.seen(
                agent.caller, agent.scope, self._conversation.client, may_vanish=False
            )

    def _logged(self, number: int) -> None:
        left = self._unlogged.get(number, 1) - 1
        if left:
            self._unlogged[number] = left
            return
        self._unlogged.pop(number, None)
        self._send(WireFrame(LOGGED, number))

    def _tell(self, state: Json) -> bool:
        """Tell the passing process what is new of a state; return whether anything is."""
        new = {name: value for name, value in state.items() if self._told.get(name) != value}
        if new:
            self._told = {**self._told, **json.loads(json.dumps(new))}
            self._send(WireFrame(STATE, content=json.dumps(new).encode()))
        return bool(new)

    def _send(self, frame: WireFrame) -> None:
        with self._sending, suppress(OSError):  # it has ended: the reader learns it too
            send(self._connection, frame)


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

    def earlier(self) -> Iterator[tuple[Path, Unlogged]]:
        """Yield the gaps of processes that have ended; remove the notes without one."""
        for path in sorted(self._beside.parent.glob(f"{self._beside.name}.*.gap")):
            with suppress(FileNotFoundError), path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                try:
                    yield path, Unlogged(*json.loads(file.read()))
                except (ValueError, TypeError):
                    path.unlink()

    def close(self, left: Unlogged | None) -> None:
        """Note a gap for the next start; None: there is none."""
        if self._file is None:
            return
        if left is None:
            with suppress(FileNotFoundError):
                Path(self._file.name).unlink()
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
        incoming = frames(connection)
        if (first := next(incoming, None)) is not None:
            asyncio.run(_watch(connection, first.document, incoming))


async def _watch(connection: socket.socket, start: Json, incoming: Iterator[WireFrame]) -> None:
    await Watch(connection, start).run(incoming)


if __name__ == "__main__":
    main(int(sys.argv[1]))
