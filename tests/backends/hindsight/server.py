"""Hindsight: a server that runs, or a stand-in that answers as recorded from it.

`recorded.json` has the answers of hindsight-api-slim 1.1.0 with the provider `none` for its model,
so that a text is kept as it is, and embeddings of a server of the tests. Its database starts for no
root and takes a minute, so the real one is used where `HINDSIGHT_TEST_URL` names it.
"""

from __future__ import annotations

import copy
import json
import os
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from tests.loopback import Answer, Loopback

RECORDED = Path(__file__).with_name("recorded.json")
KNOWN_ID = "11111111-1111-4111-8111-111111111111"
"""The id of the recorded memory."""
REAL = os.environ.get("HINDSIGHT_TEST_URL")
_CHUNK = 12_000
_ONLY_LISTED = {"entities": "", "proof_count": 1, "source_memory_ids": []}
_NOT_LISTED = ("observation_scopes", "source_memories", "history")


class RealServer:
    """The running server."""

    def __init__(self) -> None:
        self.url = str(REAL)

    def make_bank(self, bank: str) -> None:
        httpx.put(f"{self.url}/v1/default/banks/{bank}", json={}, timeout=30).raise_for_status()

    def stop(self) -> None:
        return


class StandIn(Loopback):
    """What the recorded answers are an example of."""

    def __init__(self, token: str | None = None, *banks: str) -> None:
        self.banks: dict[str, dict[str, dict[str, Any]]] = {bank: {} for bank in banks}
        self.histories: dict[str, list[dict[str, Any]]] = {}
        self._token = token
        super().__init__()

    def make_bank(self, bank: str) -> None:
        self.banks[bank] = {}

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
        parts = urlsplit(path)
        named = {name.lower(): value for name, value in headers.items()}
        if self._token and named.get("authorization") != f"Bearer {self._token}":
            return 401, {"detail": "Invalid API key"}
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/version":
            return 200, {"api_version": "1.1.0", "features": {}}
        _, _, _, _, bank, what, *rest = unquote(parts.path).split("/")
        match method, what, rest:
            case "POST", "memories", []:
                return self._retain(bank, body)
            case "GET", "memories", ["list"]:
                return self._list(bank, asked)
            case "POST", "memories", ["recall"]:
                return self._recall(bank, body)
            case "GET", "documents", [document]:
                units = [one for one in self.banks[bank].values() if one["document_id"] == document]
                if not units:
                    return 404, {"detail": f"Document '{document}' not found"}
                valid = sum(one["state"] == "valid" for one in units)
                return 200, {"id": document, "bank_id": bank, "memory_unit_count": valid}
            case "DELETE", "documents", [document]:
                return self._drop(bank, document)
            case _, "memories", [name, *history]:
                return self._one(bank, method, name, body, is_history=bool(history))
        return 404, {"detail": "Not Found"}

    def _retain(self, bank: str, body: Any) -> Answer:
        units = self.banks.setdefault(bank, {})
        for item in body["items"]:
            if not item["content"].strip():
                return 422, {"detail": [{"msg": "Value error, content cannot be empty"}]}
            if any(not isinstance(one, str) for one in (item.get("metadata") or {}).values()):
                return 422, {"detail": [{"msg": "Input should be a valid string"}]}
            moment = item.get("timestamp") or datetime.now(UTC).isoformat()
            text = item["content"].replace("\0", "")
            for number in range(0, len(text), _CHUNK):
                name = str(uuid.uuid4())
                units[name] = {
                    "id": name, "text": text[number : number + _CHUNK],
                    "context": item.get("context") or "", "date": moment, "type": "world",
                    "mentioned_at": moment, "occurred_start": None, "occurred_end": None,
                    "entities": [], "document_id": item.get("document_id"),
                    "chunk_id": f"{bank}_{item.get('document_id')}_{number // _CHUNK}",
                    "tags": sorted(item.get("tags") or []),
                    "metadata": item.get("metadata") or {}, "observation_scopes": None,
                    "state": "valid", "invalidation_reason": None, "invalidated_at": None,
                    "edited_at": None, "consolidated_at": None, "consolidation_failed_at": None,
                }  # fmt: skip
        tokens = dict.fromkeys(
            ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "thoughts_tokens"), 0
        )
        return 200, {
            "success": True, "bank_id": bank, "items_count": len(body["items"]), "async": False,
            "operation_id": None, "operation_ids": None, "usage": tokens,
        }  # fmt: skip

    def _list(self, bank: str, asked: dict[str, str]) -> Answer:
        if bank not in self.banks:
            return 404, {"detail": f"Bank '{bank}' not found"}
        rows = [
            {name: one for name, one in unit.items() if name not in _NOT_LISTED}
            | {"fact_type": unit["type"], "updated_at": unit["date"]}
            | {name: unit.get(name) or value for name, value in _ONLY_LISTED.items()}
            for unit in list(self.banks[bank].values())[::-1]
            if unit["state"] == asked.get("state", "valid")
            and asked.get("document_id") in {None, unit["document_id"]}
        ]
        for row in rows:
            del row["type"]
        start, limit = int(asked["offset"]), int(asked["limit"])
        page = rows[start : start + limit]
        return 200, {"items": page, "total": len(rows), "limit": limit, "offset": start}

    def _recall(self, bank: str, body: Any) -> Answer:
        if not re.search(r"\w", body["query"]):
            said = "Value error, query must contain a word character"
            return 422, {"detail": [{"msg": said, "input": body["query"]}]}
        words = set(re.findall(r"\w+", body["query"].lower()))
        if bank not in self.banks:
            return 404, {"detail": f"Bank '{bank}' not found"}
        results = []
        for unit in self.banks[bank].values():
            shared = len(words & set(re.findall(r"\w+", unit["text"].lower())))
            if shared and unit["state"] == "valid":
                scores = {"final": shared / 10, "reranker": None, "semantic": None, "keyword": 0.1}
                kept = ("id", "text", "type", "context", "occurred_start", "occurred_end",
                        "mentioned_at", "document_id", "metadata", "chunk_id", "tags")  # fmt: skip
                results.append(
                    {name: unit[name] for name in kept}
                    | {"entities": None, "source_fact_ids": None, "attachments": None}
                    | {"scores": scores}
                )
        results.sort(key=lambda one: -one["scores"]["final"])
        others = ("trace", "entities", "chunks", "source_facts", "source_facts_truncated")
        return 200, {"results": results, **dict.fromkeys(others)}

    def _drop(self, bank: str, document: str) -> Answer:
        units = self.banks[bank]
        gone = [name for name, unit in units.items() if unit["document_id"] == document]
        for name in gone:
            del units[name]
        said = f"Document '{document}' and {len(gone)} associated memory units deleted successfully"
        return 200, {
            "success": True, "message": said, "document_id": document,
            "memory_units_deleted": len(gone),
        }  # fmt: skip

    def _one(self, bank: str, method: str, name: str, body: Any, *, is_history: bool) -> Answer:
        unit = self.banks.get(bank, {}).get(name)
        if unit is None:
            return 404, {"detail": f"Memory unit '{name}' not found"}
        if is_history:
            return 200, self.histories.get(name, [])
        if method == "PATCH":
            if unit["type"] == "observation":
                return 400, {"detail": f"Memory '{name}' is a observation"}
            now = datetime.now(UTC).isoformat()
            is_gone = body.get("state") == "invalidated"
            if "state" in body:
                unit["state"] = body["state"]
                unit["invalidation_reason"] = body.get("reason") if is_gone else None
                unit["invalidated_at"] = now if is_gone else None
            for field in ("text", "context"):
                if field in body:
                    unit[field] = body[field]
                    unit["edited_at"] = now
        return 200, copy.deepcopy(unit)


def exchanges() -> list[dict[str, Any]]:
    """Return the recorded requests with their answers, of the bank `b1`."""
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text("utf-8"))
    return found


_CHANGING = frozenset({"edited_at", "updated_at", "invalidated_at", "scores", "input", "detail"})


def without_times(value: Any) -> Any:
    """Return an answer without what differs from run to run."""
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in _CHANGING}
    return [without_times(one) for one in value] if isinstance(value, list) else value
