"""Claude Code's transcripts: each reply of a model with its tokens, and its calls on memories.

A transcript has one JSON object a line. A reply is written in parts, one a line; the parts repeat
the message's id and its usage, whose output tokens grow, and a resumed session repeats whole
messages in another file. A message counts once, with its largest count.

A reply becomes an operation of type `context`, since a context was given to a model. It is neither
a query nor a write, so that it does not change their figures. A call of a tool that reads or
changes a memory (`memtui.importing.memory_calls`) becomes a separate operation, once its result is
read.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memtui.contract import OperationStatus, OperationType, Scope, SourceKind, SourceRef, Usage
from memtui.importing import values
from memtui.importing.memory_calls import LOGGED, MemoryCall, memory_call, returned, structured
from memtui.importing.projects import project_of
from memtui.importing.rows import json_lines
from memtui.importing.staging import ParsedOperation, key_of
from memtui.importing.translating import DOOR, PRICED_BY
from memtui.prices import ModelCall, cost_of, table_name
from memtui.service.home.imports import IMPORTED
from memtui.store.operation import OperationDraft, OperationHandle

AGENT = "claude-code"

_OWN = "memtui"
"""The provider key of handles where memtui's own server was called."""

_PROVIDER = "anthropic"
_NO_MODEL = "<synthetic>"
_OPEN_MESSAGES = 256
_REMEMBERED_LINES = 4_096
_LONGEST_REPLY = timedelta(hours=1)
_KEPT = {
    "session": "sessionId",
    "request_id": "requestId",
    "cwd": "cwd",
    "git_branch": "gitBranch",
    "version": "version",
    "agent": "agentId",
}
"""The logged fields of a line, each with its name in the transcript."""


@dataclass(slots=True)
class _Message:
    """A reply while its parts are read."""

    line: int
    first: dict[str, Any]
    usage: dict[str, Any]
    asked_at: datetime | None
    started_at: datetime
    ended_at: datetime
    parts: list[str] = field(default_factory=list)
    """The distinct parts in order: text, thinking, the names of tools."""


@dataclass(slots=True)
class _Call:
    """A call that touches memory, until its result is read."""

    line: int
    values: dict[str, Any]
    tool: str
    did: MemoryCall
    started_at: datetime


@dataclass(slots=True)
class Transcripts:
    """Reads transcripts for one company, and counts the lines that it leaves out."""

    company_id: str
    lose: Callable[[Path, int, str], None]
    """Called for each line that is lost, at least in part, with the reason."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Lines that became no operation, by reason."""
    repeated: int = 0
    """Lines that continued a reply."""

    def entries(self, path: Path) -> Iterator[ParsedOperation]:
        """Yield the operations of one file.

        Raises:
            Invalid: the file cannot be read.
        """
        messages: OrderedDict[str, _Message] = OrderedDict()
        times: OrderedDict[str, datetime] = OrderedDict()
        calls: dict[str, _Call] = {}
        for row in json_lines(path, spliced=True):
            if row.values is None:
                self.skipped["no JSON" if row.problem == "it is not JSON" else "unreadable"] += 1
                self.lose(path, row.line, row.problem)
                continue
            try:
                done = self._line(row.line, row.values, messages, times)
            except ValueError:
                self._unreadable(path, row.line)
                continue
            if done is not None:
                yield from self._finished(path, *done)
            try:
                yield from self._calls(path, row.line, row.values, calls)
            except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError too
                self._unreadable(path, row.line)
        for key, message in messages.items():
            yield from self._finished(path, key, message)
        if calls:
            self.skipped["no result yet"] += len(calls)

    def _unreadable(self, path: Path, line: int) -> None:
        self.skipped["unreadable"] += 1
        self.lose(path, line, "a field of it cannot be read")

    def _calls(
        self, path: Path, line: int, said: dict[str, Any], calls: dict[str, _Call]
    ) -> Iterator[ParsedOperation]:
        """Remember the calls of a line, and yield the earlier calls whose results it contains."""
        message = said.get("message")
        if not isinstance(message, dict):
            return
        for part in _blocks(message):
            key, given = part.get("id"), part.get("input")
            if part.get("type") == "tool_use" and isinstance(key, str) and isinstance(given, dict):
                tool, at = str(part.get("name")), _moment(said)
                if at is not None and (did := memory_call(tool, given)) is not None:
                    calls.setdefault(key, _Call(line, said, tool, did, at))
            elif part.get("type") == "tool_result":
                key = str(part.get("tool_use_id"))
                if (begun := calls.pop(key, None)) is not None:
                    draft = self._call_draft(path, key, begun, part, said)
                    yield ParsedOperation(begun.line, draft, key_of("claude-code", "call", key))

    def _call_draft(
        self, path: Path, key: str, call: _Call, result: dict[str, Any], line: dict[str, Any]
    ) -> OperationDraft:
        did, failed = call.did, bool(result.get("is_error"))
        reply = line.get("toolUseResult")
        returned_value = structured(reply) or structured(result.get("content"))
        kind, record_ids = did.kind, did.record_ids or returned(returned_value)
        # `Write` replaces a file that exists: then it corrected a memory.
        if call.tool == "Write" and isinstance(reply, dict) and reply.get("type") == "update":
            kind = OperationType.CORRECT
        origin = _origin(path, call.line, key, call.values) | {"tool": call.tool}
        if LOGGED in returned_value:
            origin[LOGGED] = returned_value[LOGGED]
        took = (_moment(line) or call.started_at) - call.started_at
        return OperationDraft(
            **self._of_session(path, call.line, call.values),
            operation_type=kind,
            status=OperationStatus.ERROR if failed else OperationStatus.OK,
            provider_key=did.provider_key,
            request={**did.request, IMPORTED: values.plain(origin)},
            error_kind="error" if failed else None,
            error_message="The tool answered with an error." if failed else None,
            result_count=0 if failed else len(record_ids),
            handles=()
            if failed
            else tuple(
                OperationHandle(
                    rank=rank, provider_key=did.provider_key or _OWN, provider_record_id=one
                )
                for rank, one in enumerate(record_ids, start=1)
            ),
            started_at=call.started_at,
            latency_ms=max(took, timedelta(0)) / timedelta(milliseconds=1),
        )

    def _line(
        self,
        line: int,
        said: dict[str, Any],
        messages: OrderedDict[str, _Message],
        times: OrderedDict[str, datetime],
    ) -> tuple[str, _Message] | None:
        """Process a line; if too many messages are open, return the oldest one as ended."""
        at = _remembered(times, said)
        message = said.get("message")
        if said.get("type") != "assistant" or not isinstance(message, dict):
            self.skipped["no reply"] += 1
            return None
        usage = message.get("usage")
        if not isinstance(usage, dict):
            self.skipped["no usage"] += 1
            return None
        if message.get("model") == _NO_MODEL:
            self.skipped["not by a model"] += 1
            return None
        if at is None:
            raise ValueError("it has no timestamp")
        key = str(message.get("id") or said.get("uuid") or key_of("line", said))
        current = messages.get(key)
        if current is None:
            asked_at = times.get(str(said.get("parentUuid")))
            current = messages[key] = _Message(line, said, usage, asked_at, at, at)
        else:
            self.repeated += 1
            current.ended_at = max(current.ended_at, at)
            if _output(usage) >= _output(current.usage):
                current.usage = usage
        for part in _parts(message):
            if part not in current.parts:
                current.parts.append(part)
        return messages.popitem(last=False) if len(messages) > _OPEN_MESSAGES else None

    def _finished(self, path: Path, key: str, message: _Message) -> Iterator[ParsedOperation]:
        try:
            draft = self._draft(path, key, message)
        except ValueError:
            self._unreadable(path, message.line)
            return
        weight = draft.usage[0].output_tokens
        yield ParsedOperation(message.line, draft, key_of("claude-code", key), weight=weight)

    def _draft(self, path: Path, key: str, message: _Message) -> OperationDraft:
        origin = _origin(path, message.line, key, message.first)
        return OperationDraft(
            **self._of_session(path, message.line, message.first),
            operation_type=OperationType.CONTEXT,
            status=OperationStatus.OK,
            request={"text": ", ".join(message.parts), IMPORTED: values.plain(origin)},
            usage=(self._usage(message),),
            started_at=message.started_at,
            latency_ms=self._latency(message),
        )

    def _of_session(self, path: Path, number: int, line: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an operation that name its agent, scope and source."""
        session = line.get("sessionId")
        run_id = values.identifier(session) if session else None
        return {
            "operation_id": "",
            "scope": Scope(
                company_id=self.company_id,
                agent_id=AGENT,
                project_id=project_of(path, line.get("cwd")),
                run_id=run_id,
            ),
            "source": SourceRef(
                kind=SourceKind.RUN,
                company_id=self.company_id,
                run_id=run_id,
                external_ref=f"{path.absolute()}:{number}",
            ),
            "principal": f"agent:{AGENT}",
            "channel": DOOR,
        }

    def _latency(self, message: _Message) -> float | None:
        """Return the time from the question to the reply's last part; None: unknown."""
        if message.asked_at is not None:
            took = message.ended_at - message.asked_at
            if timedelta(0) <= took <= _LONGEST_REPLY:
                return took / timedelta(milliseconds=1)
        return None

    def _usage(self, message: _Message) -> Usage:
        counts = {
            name: values.count(message.usage.get(name) or 0)
            for name in (
                "input_tokens",
                "cache_creation_input_tokens",
                "cache_read_input_tokens",
                "output_tokens",
            )
        }
        output = counts.pop("output_tokens")
        # Cached tokens are not part of `input_tokens` there, so the sum is the whole input.
        details: dict[str, Any] = dict(counts)
        kept = message.usage.get("cache_creation")
        an_hour = 0
        if isinstance(kept, dict) and kept.get("ephemeral_1h_input_tokens"):
            an_hour = values.count(kept["ephemeral_1h_input_tokens"])
            an_hour = min(an_hour, counts["cache_creation_input_tokens"])
            details["ephemeral_1h_input_tokens"] = an_hour
        model = values.identifier(message.first["message"].get("model"))
        dollars = message.first.get("costUSD")
        cost = None if dollars is None else values.money(dollars)
        if cost is None:
            found = cost_of(
                ModelCall(
                    model=model,
                    provider=_PROVIDER,
                    at=message.started_at,
                    input_tokens=sum(counts.values()),
                    output_tokens=output,
                    cache_read_tokens=counts["cache_read_input_tokens"],
                    cache_write_tokens=counts["cache_creation_input_tokens"],
                    cache_write_1h_tokens=an_hour,
                )
            )
            if found is not None:
                _, cost = found
                details[PRICED_BY] = table_name()
        return Usage(
            provider=_PROVIDER,
            model=model,
            input_tokens=sum(counts.values()),
            output_tokens=output,
            cost_usd=cost,
            details=details,
        )


def transcripts_in(folder: Path) -> list[Path]:
    """Return the transcripts below a folder, subagents' included, sorted by path."""
    return sorted(path for path in folder.rglob("*.jsonl") if path.is_file())


def _origin(path: Path, number: int, key: str, line: dict[str, Any]) -> dict[str, Any]:
    origin: dict[str, Any] = {"file": path.name, "line": number, "id": key}
    origin |= {name: line[there] for name, there in _KEPT.items() if line.get(there)}
    return origin | ({"sidechain": True} if line.get("isSidechain") else {})


def _moment(line: dict[str, Any]) -> datetime | None:
    at = line.get("timestamp")
    return None if at is None else values.moment(at, UTC)[0]


def _remembered(times: OrderedDict[str, datetime], line: dict[str, Any]) -> datetime | None:
    """Return a line's moment, and remember it for the latency of the reply to this line."""
    at = _moment(line)
    if at is not None and line.get("uuid") is not None:
        times[str(line["uuid"])] = at
        if len(times) > _REMEMBERED_LINES:
            times.popitem(last=False)
    return at


def _output(usage: dict[str, Any]) -> int:
    return values.count(usage.get("output_tokens") or 0)


def _parts(message: dict[str, Any]) -> Iterator[str]:
    for part in _blocks(message):
        yield str(part.get("name") if part.get("type") == "tool_use" else part.get("type"))


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
