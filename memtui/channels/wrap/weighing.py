"""Lines of an agent that wait for the rules of review: they pass, or are answered instead."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from memtui.channels.agent import Agent
from memtui.channels.wrap.conversation import Conversation, OpenCall
from memtui.channels.wrap.frames import ANSWER, LOGGED, PASS, WireFrame
from memtui.channels.wrap.logging_process import NOT_READ, refused, tool_answer
from memtui.channels.wrap.plain import is_harmless, plain_json
from memtui.contract import Denied, Invalid, MemtuiError, Unavailable
from memtui.mcp_mapping import MOST_NAMED
from memtui.service.operations.passed import AskedCall, PassedCall, WeighedCall

Opened: TypeAlias = Callable[[int, Sequence[OpenCall]], None]
"""Called with the number and the calls of a line that passes now."""

_ONE_BY_ONE = (
    "memtui weighs one call at a time by the rules of review here; send the calls of this batch "
    "one by one."
)
_UNREADABLE = (
    "memtui weighs calls by the rules of review here, and this line is not plain JSON: send one "
    "message in UTF-8 without a line end within it, each name once and in the protocol's case."
)
_UNKNOWN = (
    "memtui weighs calls by the rules of review here, and does not know what this method changes; "
    "call a tool instead."
)


class Weighing:
    """The lines that wait. All but `ended` run on the event loop."""

    def __init__(
        self, conversation: Conversation, binding_key: str, tell: Callable[[WireFrame], None]
    ) -> None:
        """Take what was said so far, and what sends a frame to the passing process."""
        self._conversation, self._key, self._tell = conversation, binding_key, tell
        self._waiting: deque[WireFrame] = deque()
        self._outcomes: dict[int, asyncio.Future[PassedCall | None]] = {}
        """The outcomes that passed calls will have, by line; None: it did not pass after all."""
        self._stopped: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    @property
    def is_busy(self) -> bool:
        """Whether an operation of a call has not ended yet."""
        return bool(self._tasks)

    def waits(self, frame: WireFrame) -> None:
        """Take a line that waits."""
        self._waiting.append(frame)

    def stopped(self, number: int) -> None:
        """Take note that the passing process has refused a line."""
        if future := self._outcomes.pop(number, None):
            future.set_result(None)
            return
        before = len(self._waiting)
        self._waiting = deque(one for one in self._waiting if one.number != number)
        if len(self._waiting) == before:
            self._stopped.add(number)

    def ended(self, call: OpenCall, passed: PassedCall) -> bool:
        """Take the outcome of a call that was weighed; False: it was not. From any thread."""
        future = self._outcomes.pop(call.number, None)
        if future is None:
            return False
        self._loop.call_soon_threadsafe(future.set_result, passed)
        return True

    def begin(self, agent: Agent, *, has_rules: bool, opened: Opened) -> None:
        """Weigh what waits, by the binding's present rules."""
        while self._waiting:
            frame = self._waiting.popleft()
            calls = self._conversation.asked(frame)
            reads = frozenset(self._conversation.reads)
            if not has_rules or is_harmless(frame.content, reads):
                self._pass(frame, calls, opened)
            elif (why := _unweighable(frame.content)) is not None:
                self._answer(frame, refused(b"" if why is _UNREADABLE else frame.content, why))
            elif self._conversation.kind(calls[0]) == "read":
                self._pass(frame, calls, opened)
            else:
                task = asyncio.create_task(self._weigh(agent, frame, calls[0], opened))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _pass(self, frame: WireFrame, calls: Sequence[OpenCall], opened: Opened) -> None:
        opened(frame.number, calls)
        self._tell(WireFrame(PASS, frame.number))
        if not calls:
            self._tell(WireFrame(LOGGED, frame.number))

    def _answer(self, frame: WireFrame, lines: bytes) -> None:
        self._tell(WireFrame(ANSWER, frame.number, content=lines))

    async def _weigh(self, agent: Agent, frame: WireFrame, call: OpenCall, opened: Opened) -> None:
        """Weigh one call and, where it passes, wait for its outcome."""
        number, request_id = frame.number, call.request_id
        passes = False
        try:
            async with agent.service.passed.weighed(
                agent.caller, agent.scope, self._key, self._asked(call)
            ) as weighed:
                if weighed.pending:
                    self._answer(frame, self._pending(call, weighed))
                    return
                if number in self._stopped:
                    raise _Refused
                outcome = self._outcomes[number] = self._loop.create_future()
                passes = True
                opened(number, [call])
                self._tell(WireFrame(PASS, number))
                if (passed := await outcome) is None:
                    raise _Refused
                await asyncio.to_thread(agent.service.passed.end, weighed.entry, passed)
        except (Denied, Invalid) as error:
            if not passes:
                self._answer(frame, tool_answer(request_id, str(error), is_error=True))
        except MemtuiError:
            if not passes:
                self._answer(frame, tool_answer(request_id, NOT_READ, is_error=True))
        finally:
            self._stopped.discard(number)
            self._tell(WireFrame(LOGGED, number))

    def _asked(self, call: OpenCall) -> AskedCall:
        conversation = self._conversation
        mapping, arguments = conversation.mapping, call.arguments
        found = mapping.call_of(call.tool, arguments) if mapping else None
        values = found[1].given(arguments) if found else []
        if len(values) >= MOST_NAMED:
            raise Denied(
                f"memtui weighs fewer than {MOST_NAMED:,} memories in one call; send less."
            )
        changes = []
        for one in values:
            record_id = mapping.id_given(one) if mapping else ""
            if record_id or one.get("text"):
                changes.append({**one, "id": record_id or None})
        return AskedCall(
            operation_type=conversation.operation_type(call),
            tool=call.tool,
            asked=json.dumps(arguments, ensure_ascii=False),
            hint=conversation.hints.get(call.tool),
            changes=tuple(changes),
            beyond="\n".join(found[1].beyond(arguments)) if found else "",
            names=mapping.id_argument if mapping else str,
        )

    def _pending(self, call: OpenCall, weighed: WeighedCall) -> bytes:
        """Return the line that tells an agent that its call waits."""
        sentence = " ".join(one.sentence for one in weighed.pending)
        # A result without what its tool's schema says would be refused by the client.
        has_schema = call.tool in self._conversation.schemas
        ids = [one.pending_id for one in weighed.pending]
        return tool_answer(
            call.request_id, sentence, is_error=has_schema, _meta={"memtui/pending": ids}
        )


class _Refused(Unavailable):
    """The passing process has refused the call, as the rules were read too late."""

    def __init__(self) -> None:
        super().__init__("It did not pass, as the rules of review were not read in time.")


def _unweighable(line: bytes) -> str | None:
    """Return why a line cannot be weighed, as a sentence; None: it is one call of a tool."""
    try:
        said = plain_json(line)
    except (ValueError, RecursionError):
        return _UNREADABLE
    if isinstance(said, list):
        return _ONE_BY_ONE
    is_call = isinstance(said, dict) and said.get("method") == "tools/call"
    return None if is_call else _UNKNOWN
