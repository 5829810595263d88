"""The reference server as it was seen to behave, in memory.

PUT replaces, an upsert resets what it does not name and moves a row between namespaces, an unknown
namespace is a 500 with the foreign key's text, optional fields are left out, no hits are null.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from .loopback import Answer, Request

CAPABILITIES = ["pin", "propagation", "fts", "embedding", "ttl"]
_STOP = re.compile(
    r"(an?|and|are|as|at|be|but|by|for|from|has|have|how|i|in|is|its?|not?|of|on|or|over|so|that|the"
    r"|their|then|there|these|they|this|to|was|we|what|when|where|which|who|will|with|your?)"
)
_ZONE = timezone(timedelta(hours=5, minutes=30))
_NAME = re.compile(r"[a-z]+:[A-Za-z0-9_:.\-]{1,254}")


class Reference:
    """Its state, and `__call__` as the handler."""

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        self._now = now
        self.namespaces: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.is_down = False
        self._ticks = 0

    def __call__(self, request: Request) -> Answer:
        self.calls.append((request.method, request.path))
        match (request.method, *request.parts):
            case ("GET", "health"):
                return self._health()
            case ("PUT", "namespaces", name):
                return self._put(name, request.json())
            case ("PATCH", "namespaces", name):
                return self._patch(name, request.json())
            case ("DELETE", "namespaces", name):
                return self._delete(name)
            case ("POST", "namespaces", name, "memories"):
                return self._write(name, request.json())
            case ("POST", "search"):
                return self._search(request.json())
            case ("DELETE", "memories", identity):
                return self._forget(identity, request.json())
        return error(404, "not_found", "no such route")

    def clock(self) -> datetime:
        """Return the given time, or else the present one, a little later with each call."""
        if self._now is not None:
            return self._now()
        self._ticks += 1
        return datetime.now(UTC) + timedelta(microseconds=self._ticks)

    def _is_past(self, expires_at: str | None) -> bool:
        now = self._now() if self._now else datetime.now(UTC)
        return bool(expires_at) and datetime.fromisoformat(str(expires_at)) <= now

    def _health(self) -> Answer:
        if self.is_down:
            return error(503, "unavailable", "database is starting")
        return 200, {"status": "ok", "version": "1.0.0", "capabilities": CAPABILITIES}

    def _put(self, name: str, body: dict[str, Any]) -> Answer:
        if body.get("kind") not in {"workspace", "team", "org", "custom"}:
            return error(400, "bad_request", "kind must be one of workspace, team, org, custom")
        if not _NAME.fullmatch(name):
            return error(400, "bad_request", "bad namespace name")
        made = self.namespaces.get(name, {}).get("created_at", _shown(self.clock()))
        kept = {key: body[key] for key in ("expires_at", "metadata") if body.get(key)}
        self.namespaces[name] = {"name": name, "kind": body["kind"], "created_at": made, **kept}
        return 200, self.namespaces[name]

    def _patch(self, name: str, body: dict[str, Any]) -> Answer:
        kept = {key: body[key] for key in ("expires_at", "metadata") if body.get(key) is not None}
        if not kept:
            return error(400, "bad_request", "no fields set")
        if name not in self.namespaces:
            return error(404, "not_found", "namespace not found")
        self.namespaces[name] |= kept
        return 200, self.namespaces[name]

    def _delete(self, name: str) -> Answer:
        if self.namespaces.pop(name, None) is None:
            return error(404, "not_found", "namespace not found")
        self.rows = {key: row for key, row in self.rows.items() if row["namespace"] != name}
        return 204, None

    def _write(self, name: str, body: dict[str, Any]) -> Answer:
        if not body.get("content"):
            return error(400, "bad_request", "content is empty")
        if body.get("kind") not in {"fact", "summary", "checkpoint"}:
            return error(400, "bad_request", "invalid kind")
        if body.get("source") not in {"agent", "runtime", "user"}:
            return error(400, "bad_request", "invalid source")
        if "\0" in json.dumps(body, ensure_ascii=False):
            return error(500, "internal", 'pq: invalid byte sequence for encoding "UTF8": 0x00')
        identity = body.get("id") or str(uuid.uuid4())
        if not _is_uuid(identity):
            return error(500, "internal", f'pq: invalid input syntax for type uuid: "{identity}"')
        if name not in self.namespaces:
            return error(500, "internal", 'pq: insert or update on table "memory_records" violates '
                         'foreign key constraint "memory_records_namespace_fkey"')  # fmt: skip
        made = self.rows.get(identity, {}).get("created", self.clock())
        self.rows[identity] = {
            "id": identity, "namespace": name, "content": body["content"], "kind": body["kind"],
            "source": body["source"], "pin": body.get("pin") or False, "created": made,
            "expires_at": body.get("expires_at"), "propagation": body.get("propagation") or {},
            "embedding": body.get("embedding"), "stems": _stems(body["content"]),
        }  # fmt: skip
        return 201, {"id": identity, "namespace": name}

    def _search(self, body: dict[str, Any]) -> Answer:
        if not body.get("namespaces"):
            return error(400, "bad_request", "namespaces is empty")
        limit = body.get("limit") or 20
        if not 0 < limit <= 100:
            return error(400, "bad_request", "limit out of range")
        rows = [row for row in self.rows.values() if row["namespace"] in body["namespaces"]]
        rows = [row for row in rows if not self._is_past(row["expires_at"])]
        if body.get("kinds"):
            rows = [row for row in rows if row["kind"] in body["kinds"]]
        ranked = _ranked(rows, body.get("query") or "", body.get("embedding"))
        return 200, {"memories": [_wire(row, score) for row, score in ranked[:limit]] or None}

    def _forget(self, identity: str, body: dict[str, Any]) -> Answer:
        if not _is_uuid(identity):
            return error(500, "internal", f'pq: invalid input syntax for type uuid: "{identity}"')
        row = self.rows.get(identity)
        if row is None or row["namespace"] != body.get("requested_by_namespace"):
            return error(404, "not_found", "memory not found")
        del self.rows[identity]
        return 204, None


def error(status: int, code: str, message: str) -> Answer:
    return status, {"code": code, "message": message}


def _ranked(
    rows: list[dict[str, Any]], query: str, embedding: list[float] | None
) -> Sequence[tuple[dict[str, Any], float | None]]:
    if embedding:
        near = [(row, _cosine(row["embedding"], embedding)) for row in rows if row["embedding"]]
        return sorted(near, key=lambda pair: -pair[1])
    if len(query) >= 2:
        wanted = set(_stems(query))
        found = [(row, _rank(row, wanted)) for row in rows]
        hits = [(row, score) for row, score in found if score]
        return sorted(hits, key=lambda pair: (-pair[1], -pair[0]["created"].timestamp()))
    if query:
        rows = [row for row in rows if query.lower() in row["content"].lower()]
    newest = sorted(rows, key=lambda row: (not row["pin"], -row["created"].timestamp()))
    return [(row, None) for row in newest]


def _rank(row: dict[str, Any], wanted: set[str]) -> float:
    held: list[str] = row["stems"]
    if not wanted or not wanted <= set(held):
        return 0.0
    return sum(held.count(word) for word in wanted) / (len(held) + 10)


def _stems(text: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [
        re.sub(r"(?<=\w{3})(ing|ed|es|s|e)$", "", word)
        for word in words
        if not _STOP.fullmatch(word)
    ]


def _cosine(one: list[float], other: list[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return float(product / (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5)


def _wire(row: dict[str, Any], score: float | None) -> dict[str, Any]:
    found = {key: row[key] for key in ("id", "namespace", "content", "kind", "source")}
    optional = {key: row[key] for key in ("pin", "propagation", "expires_at") if row[key]}
    shown = {} if score is None else {"score": score}
    return found | optional | {"created_at": _shown(row["created"])} | shown


def _shown(when: datetime) -> str:
    return when.astimezone(_ZONE).isoformat(timespec="microseconds")


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
