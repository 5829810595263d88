"""A third-party minimal plugin: a list in memory, and as little of the contract as works."""

from __future__ import annotations

from typing import Any

from .loopback import Answer, Request


class Minimal:
    """No capabilities, ids of its own, errors as text; kinds, limits, expiry and ids are ignored.

    `keeps` are the fields of a write that it stores.
    """

    def __init__(self, *keeps: str) -> None:
        self.keeps = {"content", "kind", "source", *keeps}
        self.rows: list[dict[str, Any]] = []
        self._number = 0

    def __call__(self, request: Request) -> Answer:
        match (request.method, *request.parts):
            case ("GET", "health"):
                return 200, {"status": "ok", "version": "0", "capabilities": None}
            case ("PUT", "namespaces", name):
                return 200, {"name": name, "kind": "custom"}
            case ("POST", "namespaces", name, "memories"):
                return self._write(name, request.json())
            case ("POST", "search"):
                return self._search(request.json())
            case ("DELETE", "memories", identity):
                left = [row for row in self.rows if row["id"] != identity]
                if len(left) == len(self.rows):
                    return 404, b"nothing here"
                self.rows = left
                return 204, None
        return 405, b"Method Not Allowed"

    def _write(self, name: str, body: dict[str, Any]) -> Answer:
        self._number += 1
        identity = f"flat-{self._number}"
        kept = {key: value for key, value in body.items() if key in self.keeps}
        self.rows.append({"id": identity, "namespace": name, **kept})
        return 201, {"id": identity, "namespace": name}

    def _search(self, body: dict[str, Any]) -> Answer:
        query = (body.get("query") or "").lower()
        rows = [row for row in self.rows if row["namespace"] in body["namespaces"]]
        return 200, {"memories": [row for row in rows if query in row["content"].lower()]}


class Limited(Minimal):
    """One that honours kinds and limits."""

    def _search(self, body: dict[str, Any]) -> Answer:
        status, found = super()._search(body)
        kinds = body.get("kinds") or [row["kind"] for row in found["memories"]]
        rows = [row for row in found["memories"] if row["kind"] in kinds]
        return status, {"memories": rows[: body["limit"]]}
