"""mcp-memory-service: the installed server, or a stand-in that answers as recorded from it.

`recorded.json` has the answers of version 12.4.0. The package needs a Python whose SQLite loads
extensions, so the real server is started where its commands are on PATH; it embeds by a server of
the tests, as it would have to download its own model.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import shutil
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from tests.loopback import Answer, Embeddings, Loopback, vector

KEY = "key-1"
RECORDED = Path(__file__).with_name("recorded.json")
_TYPES = frozenset({"observation", "decision", "learning", "error", "note", "session"})
_REFUSED = {
    "error": "authorization_required",
    "error_description": "Authorization required. Provide valid API key via X-API-Key header or "
    "api_key query parameter.",
}


class RealServer:
    """The installed server over an empty database."""

    def __init__(self, folder: Path) -> None:
        self._embeddings = Embeddings()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        own = {
            "HOME": str(folder), "MCP_MEMORY_BASE_DIR": str(folder),
            "MCP_MEMORY_SQLITE_PATH": str(folder / "memories.db"),
            "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
            "MCP_EXTERNAL_EMBEDDING_URL": f"{self._embeddings.url}/v1/embeddings",
            "MCP_API_KEY": KEY, "MCP_HTTP_ENABLED": "true", "MCP_HTTP_PORT": str(port),
            "MCP_HTTP_HOST": "127.0.0.1", "MCP_CONSOLIDATION_ENABLED": "false",
            "MCP_MDNS_ENABLED": "false", "MCP_OAUTH_ENABLED": "false",
            "MCP_QUALITY_SYSTEM_ENABLED": "false", "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            ["memory", "server", "--http"],
            env={**os.environ, **own},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/api/health").status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise AssertionError((folder / "log").read_text())

    @staticmethod
    def is_installed() -> bool:
        return all(map(shutil.which, ("memory", "mcp-memory-server")))

    def empty(self) -> None:
        with httpx.Client(base_url=self.url, headers={"X-API-Key": KEY}) as client:
            while found := client.get("/api/memories?page_size=100").json()["memories"]:
                for one in found:
                    client.delete(f"/api/memories/{one['content_hash']}").raise_for_status()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()
        self._embeddings.stop()


class StandIn(Loopback):
    """What the recorded answers are an example of."""

    def __init__(self, key: str = KEY) -> None:
        self._key = key
        self.memories: dict[str, dict[str, Any]] = {}
        super().__init__()

    def empty(self) -> None:
        self.memories.clear()

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        parts = urlsplit(path)
        named = {name.lower(): value for name, value in headers.items()}
        if named.get("x-api-key") != self._key:
            return 401, {"detail": _REFUSED}
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match method, parts.path.split("/")[2:]:
            case "POST", ["memories"]:
                return self._store(body)
            case "GET", ["memories"]:
                return self._list(int(asked.get("page", 1)), int(asked.get("page_size", 10)))
            case "POST", ["search"]:
                return self._search(body)
            case "GET", ["health", "detailed"]:
                storage = {"backend": "sqlite-vec", "total_memories": len(self.memories)}
                return 200, {"status": "healthy", "version": "12.4.0", "storage": storage}
            case _, ["memories", name]:
                return self._one(method, unquote(name), body)
        return 404, {"detail": "Not Found"}

    def _store(self, body: Any) -> Answer:
        text = body["content"]
        name = hashlib.sha256(text.strip().lower().encode()).hexdigest()
        if name in self.memories:
            return _not_stored("Duplicate content detected (exact match)")
        if not body.get("conversation_id"):
            for found, one in self.memories.items():
                if _alike(text, one["content"]) >= 0.85:
                    said = f"Duplicate content detected (semantically similar to {found})"
                    return _not_stored(said)
        asked, kind = body.get("memory_type"), body.get("memory_type")
        said = "Memory stored successfully"
        if asked is not None and asked not in _TYPES:
            kind = "observation"
            said += (
                f" Warning: requested memory_type '{asked}' is not in the ontology — stored as "
                f"'{kind}'. Register custom types via MCP_CUSTOM_MEMORY_TYPES, e.g. "
                f"'{{\"{asked}\": []}}'."
            )
        metadata = copy.deepcopy(body.get("metadata") or {})
        tags = [*body.get("tags", []), *metadata.pop("tags", [])]
        metadata.pop("type", None)
        if body.get("conversation_id"):
            metadata["conversation_id"] = body["conversation_id"]
        kept = dict.fromkeys(tag.strip().replace(",", "-").lower() for tag in tags)
        moment = time.time()
        iso = datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
        self.memories[name] = {
            "content": text, "content_hash": name, "tags": [*kept] or ["untagged"],
            "memory_type": kind, "metadata": metadata, "created_at": moment,
            "created_at_iso": iso, "updated_at": moment, "updated_at_iso": iso,
        }  # fmt: skip
        stored = copy.deepcopy(self.memories[name])
        return 200, {"success": True, "message": said, "content_hash": name, "memory": stored}

    def _list(self, page: int, size: int) -> Answer:
        newest = [*self.memories.values()][::-1]
        start = (page - 1) * size
        return 200, {
            "memories": newest[start : start + size], "total": len(newest), "page": page,
            "page_size": size, "has_more": start + size < len(newest),
        }  # fmt: skip

    def _search(self, body: Any) -> Answer:
        scored = [(_alike(body["query"], one["content"]), one) for one in self.memories.values()]
        scored.sort(key=lambda pair: -pair[0])
        results = []
        for score, one in scored[: body["n_results"]]:
            uses = one["metadata"]
            uses["access_count"] = uses.get("access_count", 0) + 1
            uses["last_accessed_at"] = time.time()
            said = {"query": body["query"], "timestamp": uses["last_accessed_at"]}
            uses["access_queries"] = [*uses.get("access_queries", []), said][-10:]
            similarity = (1 + score) / 2
            reason = f"Semantic similarity: {similarity:.3f}"
            results.append(
                {"memory": one, "similarity_score": similarity, "relevance_reason": reason}
            )
        return 200, {
            "results": results, "total_found": len(results), "query": body["query"],
            "search_type": "semantic", "processing_time_ms": 1.0,
        }  # fmt: skip

    def _one(self, method: str, name: str, body: Any) -> Answer:
        found = self.memories.get(name)
        if found is None:
            said = f"Memory with hash {name} not found" if method == "PUT" else "Memory not found"
            return 404, {"detail": said}
        if method == "GET":
            return 200, found
        if method == "DELETE":
            del self.memories[name]
            said = f"Successfully deleted memory {name}"
            return 200, {"success": True, "message": said, "content_hash": name}
        found["tags"] = body.get("tags") or found["tags"]
        found["metadata"] |= body.get("metadata") or {}
        found["updated_at"] = time.time()
        said = "Updated fields: tags, custom_metadata, updated_at"
        return 200, {"success": True, "message": said, "content_hash": name, "memory": found}


def _not_stored(message: str) -> Answer:
    return 200, {"success": False, "message": message, "content_hash": None, "memory": None}


def _alike(one: str, other: str) -> float:
    """Return the cosine of two texts' bags of words."""
    a, b = vector(one), vector(other)
    length = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / length


def exchanges() -> list[dict[str, Any]]:
    """Return the recorded requests with their answers."""
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text("utf-8"))
    return found


_CHANGING = frozenset(
    {"created_at", "created_at_iso", "updated_at", "updated_at_iso", "timestamp", "system",
     "last_accessed_at", "processing_time_ms", "similarity_score", "relevance_reason",
     "uptime_seconds", "performance", "statistics", "embedding_model"}
)  # fmt: skip


def without_times(value: Any) -> Any:
    """Return an answer without what differs from run to run."""
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in _CHANGING}
    return [without_times(one) for one in value] if isinstance(value, list) else value
