"""Reads what an agent and an MCP server said to each other: each call of a tool with its answer."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memtui.channels.wrap.frames import WireFrame
from memtui.contract import Json, OperationStatus, OperationType
from memtui.json_text import lenient_json
from memtui.mcp_mapping import (
    Kind,
    Mapping,
    bundled_mappings,
    load_mapping,
    read_only_hint,
    texts_of,
    tools_of,
)
from memtui.service.operations.passed import LongText, PassedCall

_TYPES: dict[Kind, OperationType] = {
    "write": OperationType.WRITE,
    "correct": OperationType.CORRECT,
    "delete": OperationType.FORGET,
}
_TELLING = frozenset({"initialize", "server/discover", "tools/list"})
_MOST_OPEN = 1_000
"""How many calls wait for their answers."""
_CUT_OFF = "No answer was seen before the connection ended."


@dataclass(slots=True)
class OpenCall:
    """A call that the server has not answered yet."""

    number: int
    """The number of its line."""
    at: float
    tool: str
    arguments: Json
    request_id: Any
    is_cancelled: bool = False


@dataclass(slots=True)
class Conversation:
    """The messages so far."""

    mapping: Mapping = field(default_factory=lambda: Mapping(title=""))
    is_mapping_chosen: bool = False
    """Whether a person chose the mapping; else the server's name does."""
    client: str | None = None
    """The client and its version, as it names itself."""
    hints: dict[str, bool] = field(default_factory=dict)
    """By tool, whether it only reads by the server's word; a tool without a word has none."""
    schemas: set[str] = field(default_factory=set)
    """The tools whose results have a schema."""
    is_new: bool = True
    """Whether something was learnt that the passing process has to know."""
    _calls: dict[str, OpenCall] = field(default_factory=dict)
    _others: set[str] = field(default_factory=set)
    """The ids of requests by whose answers a server tells of itself."""

    @property
    def reads(self) -> frozenset[str]:
        """The tools that surely only read, whatever their arguments."""
        hinted = {tool for tool, only_reads in self.hints.items() if only_reads}
        changing = {call.tool for kind, call in self.mapping.calls if kind != "read"}
        return frozenset((hinted | {call.tool for _, call in self.mapping.calls}) - changing)

    @property
    def known(self) -> Json:
        """What the next process has to know, if this one ends early."""
        return {"client": self.client, "hints": self.hints, "schemas": sorted(self.schemas),
                "mapping": self.mapping.name}  # fmt: skip

    def learn(self, known: Json) -> None:
        """Take what an earlier process knew."""
        self.client, self.hints = known.get("client"), known.get("hints", {})
        self.schemas = set(known.get("schemas", ()))
        if not self.mapping.name and known.get("mapping") in bundled_mappings():
            self.mapping = load_mapping(known["mapping"])

    def asked(self, frame: WireFrame) -> list[OpenCall]:
        """Take a line of the agent; return the calls in it."""
        said = messages(b"".join(frame.content))
        return [call for one in said if (call := self._asked(frame, one))]

    def _asked(self, frame: WireFrame, said: Json) -> OpenCall | None:
        method, params = said.get("method"), said.get("params")
        params = params if isinstance(params, dict) else {}
        cancels = method == "notifications/cancelled"
        if cancels and (call := self._calls.get(_key(params.get("requestId")))):
            call.is_cancelled = True
        if isinstance(method, str) and method in _TELLING and "id" in said:
            self.client = _named(_told(params, "clientInfo")) or self.client
            self._others.add(_key(said["id"]))
        if method != "tools/call":
            return None
        tool, arguments = params.get("name"), params.get("arguments")
        tool = tool if isinstance(tool, str) else ""
        arguments = arguments if isinstance(arguments, dict) else {}
        return OpenCall(frame.number, frame.at, tool, arguments, said.get("id"))

    def open(self, call: OpenCall) -> OpenCall | None:
        """Wait for a call's answer; return the one that is waited for no longer."""
        key = _key(call.request_id)
        before = self._calls.pop(key, None)
        if len(self._calls) >= _MOST_OPEN:
            before = self._calls.pop(next(iter(self._calls)))  # the oldest: it keeps its arguments
        self._calls[key] = call
        return before

    def answered(self, frame: WireFrame) -> Iterator[tuple[OpenCall, Json]]:
        """Take a line of the server; yield the calls that it answers, each with the answer."""
        for said in messages(b"".join(frame.content)):
            if "method" in said or "id" not in said:
                continue
            key = _key(said["id"])
            result = said.get("result")
            if key in self._others:
                self._others.remove(key)
                self._learn(result if isinstance(result, dict) else {})
            elif (call := self._calls.pop(key, None)) is not None:
                yield call, said

    def stopped(self, number: int) -> None:
        """Take note that the line of a number did not pass: its calls will have no answer."""
        for key, one in [*self._calls.items()]:
            if one.number == number:
                self._calls.pop(key, None)

    def cut_off(self) -> list[OpenCall]:
        """Return the calls that were never answered."""
        left, self._calls = list(self._calls.values()), {}
        return left

    def _learn(self, result: Json) -> None:
        """Take what a server says of itself and of its tools."""
        self.is_new = True
        info = _told(result, "serverInfo")
        name = info.get("name") if isinstance(info, dict) else None
        if name is not None and not self.is_mapping_chosen:
            each = map(load_mapping, bundled_mappings())
            self.mapping = next((one for one in each if name in one.servers), self.mapping)
        for name, tool in tools_of(result).items():
            self.hints.pop(name, None)  # it may have had another one before
            if (hint := read_only_hint(tool)) is not None:
                self.hints[name] = hint
            if isinstance(tool.get("outputSchema"), dict):
                self.schemas.add(name)

    def operation_type(self, call: OpenCall) -> OperationType:
        """Return what a call does: by the mapping, else by the server's word, else it writes."""
        found = self.mapping.call_of(call.tool, call.arguments)
        kind = found[0] if found else "read" if self.hints.get(call.tool) else "write"
        if kind != "read":
            return _TYPES[kind]
        # A list that an agent gets tells it the memories: a browse would not count as that.
        is_search = found and found[1] is self.mapping.search
        return OperationType.QUERY if is_search else OperationType.GET

    def passed(self, call: OpenCall, answer: Json | None, at: float) -> PassedCall:
        """Return a call that ended at a moment; without an answer its outcome is unknown."""
        operation_type = self.operation_type(call)
        result = (answer or {}).get("result")
        result = result if isinstance(result, dict) else {}
        mapping, tool, arguments = self.mapping, call.tool, call.arguments
        named = mapping.named(tool, arguments)
        found = mapping.records(tool, result, arguments)
        error = _error(answer) or mapping.refusal(result)
        status = OperationStatus.ERROR if error else OperationStatus.OK
        if answer is None:
            status = OperationStatus.CANCELLED if call.is_cancelled else OperationStatus.UNKNOWN
            error = "The agent cancelled it." if call.is_cancelled else _CUT_OFF
        words = json.dumps(arguments, ensure_ascii=False) if arguments else ""
        written = "\n".join(one.text for one in named if one.text)
        query = None if operation_type.mutates else mapping.query(tool, arguments)
        records = found if operation_type is not OperationType.FORGET else named
        return PassedCall(
            operation_type=operation_type, tool=tool, hint=self.hints.get(tool), status=status,
            error=error, started_at=datetime.fromtimestamp(call.at, UTC),
            latency_ms=round((at - call.at) * 1000, 3),
            asked=LongText.of(query or written or words), arguments=LongText.of(words),
            returned=LongText.of(_text(result)),
            records=tuple((one.id, one.score) for one in records or named if one.id),
        )  # fmt: skip


def messages(line: bytes) -> list[Json]:
    """Return the JSON-RPC messages of a line, several of a batch; none where it is no JSON.

    Some servers end a line at a carriage return too, and some read names in any case.
    """
    text, found = line.strip(), list[Json]()
    for part in (text, *(text.split(b"\r") if b"\r" in text else ())):
        with suppress(ValueError, RecursionError):
            said = lenient_json(part)
            each = said if isinstance(said, list) else [said]
            found += [{name.casefold(): value for name, value in one.items()}
                      for one in each if isinstance(one, dict)]  # fmt: skip
    return found


def _key(request_id: Any) -> str:
    return json.dumps(request_id, sort_keys=True)


def _told(said: Json, name: str) -> Any:
    """Return a side's name: formerly in a field, since 2026 in each message's `_meta`."""
    meta = said.get("_meta")
    told = meta.get(f"io.modelcontextprotocol/{name}") if isinstance(meta, dict) else None
    return said.get(name) or told


def _named(info: Any) -> str | None:
    parts = (info.get("name"), info.get("version")) if isinstance(info, dict) else ()
    return " ".join(one for one in parts if isinstance(one, str))[:100] or None


def _error(answer: Json | None) -> str | None:
    """Return the server's error of JSON-RPC; None: it answered with a result."""
    error = (answer or {}).get("error")
    said = error.get("message") if isinstance(error, dict) else None
    said = said if isinstance(said, str) and said else "The server answered with an error."
    return None if error is None else said


def _text(result: Json) -> str:
    """Return what a result says to a model: its texts, else its structured content as JSON."""
    texts, structured = texts_of(result), result.get("structuredContent")
    if not texts and structured is not None:
        return json.dumps(structured, ensure_ascii=False)
    return "\n".join(texts)
