"""mem0 on loopback ports: embeddings, the open server over the real library, and the platform."""

from __future__ import annotations

import itertools
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests import loopback
from tests.loopback import DIMENSIONS, Answer, Loopback, vector

OWNERS = ("user_id", "agent_id", "run_id", "app_id")


class Embeddings(loopback.Embeddings):
    """The endpoint that a library of mem0 embeds with."""

    def config(self, folder: Path | None) -> dict[str, Any]:
        """Return the config of a library that keeps its memories in a folder, or in memory."""
        openai = {"api_key": "none", "openai_base_url": f"{self.url}/v1"}
        place: dict[str, Any]
        if folder is None:
            from qdrant_client import QdrantClient

            place = {"client": QdrantClient(":memory:")}
        else:
            place = {"path": str(folder / "qdrant"), "on_disk": True}
        store = {**place, "collection_name": "memories", "embedding_model_dims": DIMENSIONS}
        return {
            "vector_store": {"provider": "qdrant", "config": store},
            "embedder": {
                "provider": "openai",
                "config": {**openai, "model": "words", "embedding_dims": DIMENSIONS},
            },
            "llm": {"provider": "openai", "config": {**openai, "model": "none"}},
            "history_db_path": str(folder / "history.db") if folder else ":memory:",
        }


class OpenServer(Loopback):
    """mem0's open server: its library behind HTTP, in the shapes that the server answers."""

    most_listed = 1_000

    def __init__(self, config: dict[str, Any]) -> None:
        os.environ["MEM0_TELEMETRY"] = "False"
        import mem0

        self.memory = mem0.Memory.from_config(config)
        self.key: str | None = None
        super().__init__()

    def stop(self) -> None:
        super().stop()
        self.memory.close()
        for part in (self.memory.vector_store, self.memory.embedding_model, self.memory.llm):
            part.client.close()

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        if self.key and headers.get("X-API-Key") != self.key:
            return 401, {"detail": "Invalid API key."}
        parts = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            return 200, self._do(method, parts.path.split("/")[1:], asked, body)
        except ValueError as error:
            return 400, {"detail": str(error)}
        except Exception as error:  # noqa: BLE001 - as the server does
            return 502, {"detail": f"The upstream provider failed: {error}"}

    def _do(self, method: str, parts: list[str], asked: dict[str, str], body: Any) -> Any:
        memory = self.memory
        match method, parts:
            case "POST", ["memories"]:
                return memory.add(body.pop("messages"), **body)
            case "GET", ["memories"]:
                top_k, expired = int(asked.pop("top_k", 20)), bool(asked.pop("show_expired", ""))
                if top_k > self.most_listed:
                    raise ValueError(f"top_k must be at most {self.most_listed}")
                return memory.get_all(filters=asked, top_k=top_k, show_expired=expired)
            case "POST", ["search"]:
                return memory.search(body.pop("query"), **body)
            case "GET", ["memories", name]:
                return memory.get(name)
            case "PUT", ["memories", name]:
                return memory.update(name, text=body.get("text"), metadata=body.get("metadata"))
            case "DELETE", ["memories", name]:
                return memory.delete(name)
            case "GET", ["memories", name, "history"]:
                return memory.history(name)
        raise ValueError(f"There is no {method} {'/'.join(parts)}.")


class Platform(Loopback):
    """mem0's platform, version 3 of its API, as far as its own client and documents tell."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.changes: dict[str, list[dict[str, Any]]] = {}
        self.profiles: dict[str, Any] = {}
        self.events: dict[str, dict[str, Any]] = {}
        """What its client shows of them: `said`, which is ours, is the body of the write."""
        self.refuses_events = False
        self.tick = itertools.count()
        super().__init__()

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        if headers.get("Authorization") != "Token k3y":
            return 401, {"detail": "Invalid API key."}
        parts = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match method, [unquote(part) for part in parts.path.strip("/").split("/")]:
            case "GET", ["v1", "ping"]:
                owner = {"org_id": "o", "project_id": "p", "user_email": "ann@example.com"}
                return 200, {"status": "ok", **owner}
            case "POST", ["v3", "memories", "add"]:
                return 200, self._add(body)
            case "POST", ["v3", "memories"]:
                return self._page(body, int(asked.get("page", 1)), int(asked.get("page_size", 50)))
            case "POST", ["v3", "memories", "search"]:
                return self._search(body)
            case _, ["v1", "memories", name]:
                return self._one(method, name, body)
            case "GET", ["v1", "memories", name, "history"]:
                return 200, self.changes.get(name, [])
            case "GET", rest:
                return self._told(rest)
        return 404, {"detail": "Not found."}

    def _told(self, rest: list[str]) -> Answer:
        match rest:
            case ["v1", "event", _] if self.refuses_events:
                return 400, {"detail": "The project was moved."}
            case ["v1", "event", name] if name in self.events:
                shown = {key: one for key, one in self.events[name].items() if key != "said"}
                return 200, shown
            case ["v2", "entities", "user", name, "profile"]:
                if name in self.profiles:
                    return 200, {"profile": self.profiles[name], "status": "succeeded"}
                return 200, {"profile": None, "status": "insufficient_data"}
        return 404, {"detail": "Not found."}

    def _add(self, body: Any) -> Any:
        if body.get("infer", True):
            name = f"event-{len(self.events) + 1}"
            self.events[name] = {"id": name, "event_type": "ADD", "status": "PENDING", "said": body}
            return {"message": "Queued.", "event_id": name, "status": "PENDING"}
        return {"results": [self._stored(body, body["messages"][0]["content"])]}

    def ingest(self, name: str, *texts: str, changes: str = "") -> None:
        """End an event: its model made these memories, and gave `changes` the last text."""
        event = self.events[name]
        made = [self._stored(event["said"], text) for text in texts]
        if changes:
            gone = made.pop()
            self._one("PUT", changes, {"text": gone["memory"]})
            self.rows.pop(gone["id"])
            made.append({**gone, "id": changes, "event": "UPDATE"})
        told = [
            {"id": one["id"], "event": one["event"], "data": {"memory": one["memory"]}}
            for one in made
        ]
        event |= {"status": "SUCCEEDED", "results": told}

    def _stored(self, body: Any, text: str) -> dict[str, Any]:
        name, now = str(uuid.uuid4()), self._now()
        stamp = body.get("timestamp")
        created = datetime.fromtimestamp(stamp, UTC).isoformat() if stamp else now
        self.rows[name] = {
            "id": name,
            "memory": text,
            **{owner: body.get(owner) for owner in OWNERS},
            "metadata": body.get("metadata") or None,
            "categories": None,
            "created_at": created,
            "updated_at": now,
            "expiration_date": body.get("expiration_date"),
        }
        self._changed(name, None, text, "ADD")
        return {"id": name, "memory": text, "event": "ADD"}

    def _now(self) -> str:
        return f"2026-03-01T10:00:{next(self.tick) / 1000:09.6f}Z"

    def _changed(self, name: str, old: str | None, new: str | None, event: str) -> None:
        row = {"memory_id": name, "old_memory": old, "new_memory": new, "event": event}
        self.changes.setdefault(name, []).append({**row, "created_at": self._now()})

    def _found(self, body: Any) -> list[dict[str, Any]]:
        """Return what passes `{"OR": [{"user_id": "*"}, …]}`, which is all that memtui asks."""
        wanted = [name for each in body["filters"]["OR"] for name in each if each[name] == "*"]
        assert wanted
        return [row for row in self.rows.values() if any(row[name] for name in wanted)]

    def _page(self, body: Any, number: int, size: int) -> Answer:
        if not body.get("filters"):
            return 400, {"error": "At least one entity ID is required in filters."}
        rows = self._found(body)
        part = rows[(number - 1) * size : number * size]
        following = (
            f"{self.url}/v3/memories/?page={number + 1}" if number * size < len(rows) else None
        )
        return 200, {"count": len(rows), "next": following, "previous": None, "results": part}

    def _search(self, body: Any) -> Answer:
        asked = vector(body["query"])
        scored = []
        for row in self._found(body):
            score = sum(a * b for a, b in zip(asked, vector(row["memory"]), strict=True))
            if score > 0.1:
                scored.append({**row, "score": score / (1 + score)})
        scored.sort(key=lambda row: -row["score"])
        return 200, {"results": scored[: body["top_k"]]}

    def _one(self, method: str, name: str, body: Any) -> Answer:
        row = self.rows.get(name)
        if row is None:
            return 404, {"error": "Memory not found!"}
        if method == "DELETE":
            self._changed(name, row["memory"], None, "DELETE")
            del self.rows[name]
            return 200, {"message": "Memory deleted successfully!"}
        if method == "PUT":
            if "text" in body:
                self._changed(name, row["memory"], body["text"], "UPDATE")
                row["memory"] = body["text"]
            row |= {key: body[key] for key in ("metadata", "expiration_date") if key in body}
            row["updated_at"] = self._now()
        return 200, row
