"""A small plugin in memory that keeps every rule; each fault is a subclass that breaks one."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.backends.plugin_v1.servers.loopback import Answer, Request, Talk, response, serve

CAPABILITIES = ["fts", "ttl", "pin", "propagation", "embedding"]
NAMESPACE = re.compile(r"[a-z]+:[A-Za-z0-9_:.\-]+", re.ASCII)
KINDS = ["fact", "summary", "checkpoint"]
SOURCES = ["agent", "runtime", "user"]
Row = dict[str, Any]


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer: Answer = (status, {"code": code, "message": message})


def bad(message: str) -> Refused:
    return Refused(400, "bad_request", message)


def unknown(message: str) -> Refused:
    return Refused(404, "not_found", message)


class Plugin:
    """Its state, and `__call__` as the handler."""

    def __init__(self) -> None:
        self.spaces: dict[str, Row] = {}
        self.rows: dict[str, Row] = {}
        self.requests: list[Request] = []
        self._ticks = 0

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        try:
            return self.route(request)
        except Refused as refused:
            return refused.answer

    async def handle(self, request: Request) -> Answer:
        return self(request)

    def route(self, request: Request) -> Answer:
        parts = request.path.split("/")[1:2] + request.parts
        match (request.method, *parts):
            case ("GET", "v1", "health"):
                return 200, self.health()
            case ("PUT", "v1", "namespaces", name):
                return self.put(name, self.body(request))
            case ("PATCH", "v1", "namespaces", name):
                return self.patch(name, self.body(request))
            case ("DELETE", "v1", "namespaces", name):
                return self.delete(name)
            case ("POST", "v1", "namespaces", name, "memories"):
                return self.write(name, self.body(request))
            case ("POST", "v1", "search"):
                return self.search(self.body(request))
            case ("DELETE", "v1", "memories", identity):
                return self.forget(identity, self.body(request))
        raise unknown("no such path")

    def body(self, request: Request) -> Row:
        try:
            found = json.loads(request.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise bad("the body is not JSON") from error
        if not isinstance(found, dict):
            raise bad("the body is not an object")
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise bad("the body holds half a character") from error
        return found

    def now(self) -> datetime:
        """Now, and never the same twice."""
        self._ticks += 1
        return datetime.now(UTC) + timedelta(microseconds=self._ticks)

    def health(self) -> Row:
        return {"status": "ok", "version": "1.0.0", "capabilities": CAPABILITIES}

    # namespaces

    def put(self, name: str, body: Row) -> Answer:
        if len(name) > 256 or not NAMESPACE.fullmatch(name):
            raise bad("that is not a namespace")
        space = {
            "name": name,
            "kind": _one_of(body, "kind", ["workspace", "team", "org", "custom"]),
            "created_at": self.spaces.get(name, {}).get("created_at") or _text(self.now()),
            **self.fields(body),
        }
        self.spaces[name] = space
        return 200, space

    def patch(self, name: str, body: Row) -> Answer:
        fields = self.fields(body)
        if not fields:
            raise bad("nothing to set")
        self.space(name).update(fields)
        return 200, self.spaces[name]

    def delete(self, name: str) -> Answer:
        self.space(name)
        del self.spaces[name]
        self.rows = {key: row for key, row in self.rows.items() if row["namespace"] != name}
        return 204, None

    def space(self, name: str) -> Row:
        if name not in self.spaces:
            raise unknown("there is no such namespace")
        return self.spaces[name]

    def fields(self, body: Row) -> Row:
        found: Row = {}
        expires_at = self.moment(body.get("expires_at"))
        if expires_at is not None:
            found["expires_at"] = _text(expires_at)
        if _typed(body, "metadata", dict) is not None:
            found["metadata"] = body["metadata"]
        return found

    def moment(self, value: Any) -> datetime | None:
        if value is None:
            return None
        try:
            found = datetime.fromisoformat(value)
        except (ValueError, TypeError) as error:
            raise bad("expires_at is not a time") from error
        if found.tzinfo is None:
            raise bad("expires_at has no zone")
        return found

    # memories

    def write(self, name: str, body: Row) -> Answer:
        row = self.row(name, body)
        self.space(name)
        self.keep(row)
        return 201, {"id": row["id"], "namespace": name}

    def row(self, name: str, body: Row) -> Row:
        """Return what is stored of a body."""
        row = {
            "namespace": name,
            "content": self.content(_typed(body, "content", str) or ""),
            "kind": _one_of(body, "kind", KINDS),
            "source": _one_of(body, "source", SOURCES),
            "pin": _typed(body, "pin", bool) or False,
            "propagation": self.propagation(_typed(body, "propagation", dict)),
            "expires_at": self.moment(body.get("expires_at")),
            "embedding": _embedding(body),
            "id": self.identity(body),
        }
        row["created_at"] = self.created_at(row["id"])
        return row

    def content(self, text: str) -> str:
        if not text:
            raise bad("content is empty")
        return text

    def propagation(self, given: Row | None) -> Any:
        return given

    def identity(self, body: Row) -> str:
        given = _typed(body, "id", str)
        return _uuid(given) if given is not None else str(uuid.uuid4())

    def created_at(self, identity: str) -> datetime:
        made: datetime = self.rows.get(identity, {}).get("created_at") or self.now()
        return made

    def keep(self, row: Row) -> None:
        self.rows[row["id"]] = row

    def search(self, body: Row) -> Answer:
        names = _typed(body, "namespaces", list)
        if not names or not all(isinstance(name, str) for name in names):
            raise bad("namespaces must be a list of names")
        limit = self.limit(_typed(body, "limit", int))
        query = _typed(body, "query", str) or ""
        near = _embedding(body)
        kinds = _typed(body, "kinds", list)
        rows = [row for row in self.rows.values() if self.is_readable(row, names)]
        rows = [row for row in rows if self.is_wanted(row, kinds, query) and self.is_alive(row)]
        rows.sort(key=lambda row: self.rank(row, query, near), reverse=True)
        return 200, {"memories": self.shown(rows[:limit])}

    def limit(self, limit: int | None) -> int:
        if limit is None:
            return 20
        if not 1 <= limit <= 100:
            raise bad("limit is out of range")
        return limit

    def is_readable(self, row: Row, names: list[str]) -> bool:
        return row["namespace"] in names

    def is_wanted(self, row: Row, kinds: list[str] | None, query: str) -> bool:
        if kinds and row["kind"] not in kinds:
            return False
        words = query.lower().split()
        return all(word in row["content"].lower() for word in words)

    def is_alive(self, row: Row) -> bool:
        space = self.spaces.get(row["namespace"], {})
        return not (_is_past(row["expires_at"]) or _is_past(space.get("expires_at")))

    def rank(self, row: Row, query: str, near: list[float] | None) -> tuple[Any, ...]:
        if near:
            return (_likeness(row["embedding"], near), row["created_at"])
        return (row["pin"], row["created_at"])

    def shown(self, rows: list[Row]) -> Any:
        return [self.wire(row) for row in rows]

    def wire(self, row: Row) -> Row:
        expires_at = row["expires_at"]
        return {
            **{key: value for key, value in row.items() if key != "embedding"},
            "created_at": _text(row["created_at"]),
            "expires_at": expires_at and _text(expires_at),
        }

    def forget(self, identity: str, body: Row) -> Answer:
        name = _typed(body, "requested_by_namespace", str)
        if not name:
            raise bad("requested_by_namespace is missing")
        row = self.rows.get(_uuid(identity))
        if row is None or row["namespace"] != name:
            raise unknown("there is no such memory")
        self.drop(row)
        return 204, None

    def drop(self, row: Row) -> None:
        del self.rows[row["id"]]

    def answer(self, status: int, body: Any) -> bytes:
        """Return what goes over the wire."""
        return response(status, body)


def talk(plugin: Plugin) -> Talk:
    """Return what speaks plain HTTP for a plugin; a fault of its own breaks the connection off."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> bool:
        try:
            said = plugin.answer(*await plugin.handle(request))
        except SystemExit:
            return False
        writer.write(said)
        await writer.drain()
        return True

    return answer


@asynccontextmanager
async def serving(plugin: Plugin, uds: Path | None = None) -> AsyncIterator[str]:
    """Serve a plugin on a free port, or on a unix socket; gives the address."""
    async with serve(talk(plugin), uds) as address:
        yield address


def _typed(body: Row, field: str, kind: type) -> Any:
    value = body.get(field)
    is_bool_for_number = isinstance(value, bool) and kind is int
    if value is None or (isinstance(value, kind) and not is_bool_for_number):
        return value
    raise bad(f"{field} has the wrong type")


def _one_of(body: Row, field: str, values: list[str]) -> str:
    value = body.get(field)
    if value not in values:
        raise bad(f"{field} must be one of {values}")
    return str(value)


def _embedding(body: Row) -> list[float] | None:
    found = _typed(body, "embedding", list)
    if found is not None and not all(isinstance(number, int | float) for number in found):
        raise bad("embedding must be numbers")
    return found or None


def _likeness(one: list[float] | None, other: list[float]) -> float:
    if one is None or len(one) != len(other):
        return -2.0
    return sum(a * b for a, b in zip(one, other, strict=True))


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise bad("id is not a UUID") from error


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _is_past(moment: datetime | str | None) -> bool:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return moment is not None and moment <= datetime.now(UTC)


def _refuse_constant(word: str) -> None:
    raise ValueError(word)
