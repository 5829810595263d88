"""Plugins that break one rule each, and the check that has to find it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import unquote

from tests.backends.plugin_v1.servers.loopback import Answer, Request, response

from .plugin import KINDS, Plugin, Refused, Row, unknown


@dataclass(frozen=True)
class Fault:
    """A faulty plugin, the check that names its fault, and those that cannot help seeing it."""

    plugin: type[Plugin]
    check: str
    also: tuple[str, ...] = ()


FAULTS: dict[str, Fault] = {}
Faulty = TypeVar("Faulty", bound=type[Plugin])


def found_by(check: str, *also: str) -> Callable[[Faulty], Faulty]:
    def add(plugin: Faulty) -> Faulty:
        FAULTS[plugin.__name__] = Fault(plugin, check, also)
        return plugin

    return add


# health


@found_by("health-shape")
class HealthWithoutVersion(Plugin):
    def health(self) -> Row:
        return {"status": "ok", "capabilities": super().health()["capabilities"]}


@found_by("health-shape")
class HealthWithAnotherStatus(Plugin):
    def health(self) -> Row:
        return super().health() | {"status": "fine"}


@found_by("health-shape")
class CapabilitiesAreNull(Plugin):
    def health(self) -> Row:
        return super().health() | {"capabilities": None}


@found_by("health-capabilities")
class CapabilityOfAnotherName(Plugin):
    def health(self) -> Row:
        return super().health() | {"capabilities": ["fts", "telepathy"]}


@found_by("health-honest")
class CapabilityLies(Plugin):
    """It lists embedding, and takes none."""

    def row(self, name: str, body: Row) -> Row:
        if "embedding" in body:
            raise Refused(400, "bad_request", "embeddings are not supported")
        return super().row(name, body)


@found_by("health-honest", "search-query")
class QueriesAreIgnored(Plugin):
    def is_wanted(self, row: Row, kinds: list[str] | None, query: str) -> bool:
        return super().is_wanted(row, kinds, "")


# namespaces


@found_by("namespace-put-idempotent", "namespace-put-expiry", "ttl-cleared-by-put")
class PutIsNotIdempotent(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        if name in self.spaces and body == {"kind": "custom"}:
            raise Refused(409, "conflict", "it exists")
        return super().put(name, body)


@found_by("namespace-put-idempotent", "ttl-cleared-by-put")
class PutEmpties(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        self.rows = {key: row for key, row in self.rows.items() if row["namespace"] != name}
        return super().put(name, body)


@found_by("namespace-put-replaces")
class PutMerges(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        held = self.spaces.get(name, {}).get("metadata")
        return super().put(name, {"metadata": held} | body if held else body)


@found_by("namespace-put-idempotent", "namespace-put-replaces")
class PutMovesCreatedAt(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        self.spaces.get(name, {}).pop("created_at", None)
        return super().put(name, body)


@found_by("namespace-put-expiry", "ttl-cleared-by-put")
class PutKeepsTheExpiry(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        return super().put(name, {"expires_at": self.spaces.get(name, {}).get("expires_at")} | body)


@found_by("namespace-kinds")
class KindsAreCustom(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        if body.get("kind") == "org":
            body = body | {"kind": "custom"}
        return super().put(name, body)


@found_by("namespace-name-malformed", "malformed-paths")
class AnyName(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        plain = "custom:" + name.encode().hex()[:200]
        super().put(plain, body)
        self.spaces[name] = self.spaces[plain] | {"name": name}
        return 200, self.spaces[name]


@found_by("namespace-name")
class EncodedNamesAreOthers(Plugin):
    def route(self, request: Request) -> Answer:
        path = request.path.replace("%3A", "%253A")
        return super().route(Request(request.method, path, request.body))


@found_by("namespace-patch-expiry", "namespace-patch-metadata")
class PatchClears(Plugin):
    def patch(self, name: str, body: Row) -> Answer:
        fields = self.fields(body)
        if not fields:
            raise Refused(400, "bad_request", "nothing to set")
        for field in ("metadata", "expires_at"):
            self.space(name).pop(field, None)
        self.space(name).update(fields)
        return 200, self.spaces[name]


@found_by("namespace-patch-empty")
class PatchOfNothing(Plugin):
    def patch(self, name: str, body: Row) -> Answer:
        return super().patch(name, body) if body else (200, {"name": name})


@found_by("namespace-patch-unknown")
class PatchMakes(Plugin):
    def patch(self, name: str, body: Row) -> Answer:
        self.spaces.setdefault(name, {"name": name, "created_at": "2026-01-01T00:00:00+00:00"})
        return super().patch(name, body)


@found_by("namespace-delete-cascades")
class DeleteLeavesMemories(Plugin):
    def delete(self, name: str) -> Answer:
        self.space(name)
        del self.spaces[name]
        return 204, None


@found_by("namespace-delete")
class DeleteIsAlwaysDone(Plugin):
    def delete(self, name: str) -> Answer:
        return super().delete(name) if name in self.spaces else (204, None)


# writing


@found_by("write-created")
class Answers200(Plugin):
    def write(self, name: str, body: Row) -> Answer:
        return 200, super().write(name, body)[1]


@found_by("write-id-kept", "write-id-upserts", "parallel-upserts")
class IdIsIgnored(Plugin):
    def identity(self, body: Row) -> str:
        super().identity(body)
        return str(uuid.uuid4())


@found_by("write-id-upserts", "parallel-upserts")
class IdMakesDuplicates(Plugin):
    def keep(self, row: Row) -> None:
        key = f"{row['id']}/{len(self.rows)}" if row["id"] in self.rows else row["id"]
        self.rows[key] = row


@found_by("write-id-upserts")
class IdKeepsTheFirst(Plugin):
    def keep(self, row: Row) -> None:
        held = self.rows.setdefault(row["id"], row)
        held.update({"pin": row["pin"], "propagation": row["propagation"]})


@found_by("write-id-keeps-created-at")
class CreatedAtMoves(Plugin):
    def created_at(self, identity: str) -> datetime:
        return self.now()


@found_by("write-id-malformed")
class AnyId(Plugin):
    def identity(self, body: Row) -> str:
        try:
            return super().identity(body)
        except Refused:
            return str(uuid.uuid4())


@found_by("write-kind-unknown")
class AnyKind(Plugin):
    def row(self, name: str, body: Row) -> Row:
        is_new = isinstance(body.get("kind"), str) and body["kind"] not in KINDS
        return super().row(name, body | {"kind": "fact"} if is_new else body)


@found_by("write-content-empty")
class EmptyContent(Plugin):
    def content(self, text: str) -> str:
        return text


@found_by("write-namespace-unknown", "namespace-delete-final")
class Unknown500(Plugin):
    def write(self, name: str, body: Row) -> Answer:
        try:
            return super().write(name, body)
        except Refused as error:
            if error.answer[0] == 400:
                raise
            raise Refused(500, "internal", "violates foreign key constraint") from error


@found_by("write-namespace-unknown", "namespace-delete-final")
class WriteMakesNamespaces(Plugin):
    def write(self, name: str, body: Row) -> Answer:
        self.spaces.setdefault(name, {"name": name, "kind": "custom"})
        return super().write(name, body)


@found_by("write-content-exact")
class ContentIsTrimmed(Plugin):
    def content(self, text: str) -> str:
        return super().content(text).strip()


@found_by("write-content-unicode")
class ContentIsNormalised(Plugin):
    def content(self, text: str) -> str:
        import unicodedata

        return unicodedata.normalize("NFC", super().content(text))


@found_by("write-content-large")
class ContentIsCut(Plugin):
    def content(self, text: str) -> str:
        return super().content(text)[:65_536]


# searching


@found_by("search-kinds")
class KindIsIgnored(Plugin):
    def is_wanted(self, row: Row, kinds: list[str] | None, query: str) -> bool:
        return super().is_wanted(row, None, query)


@found_by("search-limit")
class LimitIsIgnored(Plugin):
    def limit(self, limit: int | None) -> int:
        super().limit(limit)
        return 20 if limit is None else 100


@found_by("search-limit-default")
class DefaultLimitOfTen(Plugin):
    def limit(self, limit: int | None) -> int:
        return super().limit(limit or 10)


@found_by("search-limit-range")
class LimitIsClamped(Plugin):
    def limit(self, limit: int | None) -> int:
        return max(1, min(100, 20 if limit is None else limit))


@found_by("search-no-silent-cap", "parallel-writes")
class SilentCapAt50(Plugin):
    def limit(self, limit: int | None) -> int:
        return min(50, super().limit(limit))


@found_by("search-without-hits")
class NullForNone(Plugin):
    def shown(self, rows: list[Row]) -> Any:
        return super().shown(rows) or None


@found_by("search-namespaces")
class FirstNamespaceOnly(Plugin):
    def is_readable(self, row: Row, names: list[str]) -> bool:
        return bool(row["namespace"] == names[0])


@found_by("search-isolated")
class OtherNamespaceLeaks(Plugin):
    """A query looks everywhere."""

    def search(self, body: Row) -> Answer:
        if body.get("query") and body.get("namespaces"):
            body = body | {"namespaces": list(self.spaces)}
        return super().search(body)


@found_by("search-newest-first")
class OldestFirst(Plugin):
    def search(self, body: Row) -> Answer:
        status, found = super().search(body)
        if not body.get("query") and not any(row["pin"] for row in found["memories"]):
            found["memories"].sort(key=lambda row: row["created_at"])
        return status, found


@found_by("search-shape")
class CreatedAtIsNaive(Plugin):
    def wire(self, row: Row) -> Row:
        shown = super().wire(row)
        return shown | {"created_at": shown["created_at"].removesuffix("+00:00")}


# expiry and pins


@found_by("ttl-past", "ttl-passes", "ttl-zones")
class ExpiredIsReturned(Plugin):
    def is_alive(self, row: Row) -> bool:
        return super().is_alive(row | {"expires_at": None})


@found_by("ttl-passes")
class ExpiryIsCheckedOnWriteOnly(Plugin):
    def keep(self, row: Row) -> None:
        if super().is_alive(row):
            super().keep(row)

    def is_alive(self, row: Row) -> bool:
        return super().is_alive(row | {"expires_at": None})


@found_by("namespace-prefix")
class NamespacesAreMatchedByTheirBeginning(Plugin):
    def is_readable(self, row: Row, names: list[str]) -> bool:
        return any(row["namespace"].startswith(name) for name in names)


@found_by("namespace-case")
class NamespacesFoldCase(Plugin):
    def is_readable(self, row: Row, names: list[str]) -> bool:
        return row["namespace"].lower() in {name.lower() for name in names}


@found_by("write-id-elsewhere")
class AnIdIsItsNamespaces(Plugin):
    def keep(self, row: Row) -> None:
        self.rows[f"{row['namespace']}/{row['id']}"] = row


@found_by("pin-query")
class PinsCountWithoutAQueryOnly(Plugin):
    def rank(self, row: Row, query: str, near: list[float] | None) -> tuple[Any, ...]:
        return super().rank(row | {"pin": row["pin"] and not query}, query, near)


@found_by("propagation-large")
class PropagationIsCut(Plugin):
    def propagation(self, given: Row | None) -> Any:
        words = (given or {}).get("words", [])
        return {"words": words[:5_000]} if len(words) > 5_000 else given


@found_by("health-honest")
class NoEmbeddingIsTaken(Plugin):
    """It names a length, and refuses that one too."""

    def row(self, name: str, body: Row) -> Row:
        if body.get("embedding"):
            raise Refused(500, "internal", "expected 1999 dimensions")
        return super().row(name, body)


@found_by("ttl-zones")
class ZonesAreIgnored(Plugin):
    def moment(self, value: Any) -> datetime | None:
        from datetime import UTC

        found = super().moment(value)
        return found and found.replace(tzinfo=UTC)


@found_by("ttl-kept")
class ExpiryIsRounded(Plugin):
    def wire(self, row: Row) -> Row:
        shown = super().wire(row)
        expires_at = row["expires_at"]
        later = expires_at and (expires_at + timedelta(minutes=30)).isoformat()
        return shown | {"expires_at": later}


@found_by("malformed-dates")
class BadDatesAreDropped(Plugin):
    def moment(self, value: Any) -> datetime | None:
        try:
            return super().moment(value)
        except Refused:
            return None


@found_by("pin-first")
class PinIsIgnored(Plugin):
    def rank(self, row: Row, query: str, near: list[float] | None) -> tuple[Any, ...]:
        return super().rank(row | {"pin": False}, query, near)


@found_by("pin-kept", "health-honest", "pin-first")
class PinIsLost(Plugin):
    def row(self, name: str, body: Row) -> Row:
        return super().row(name, body) | {"pin": False}


# propagation

PROPAGATION = ("propagation-unicode", "propagation-numbers", "propagation-replaced")


@found_by("propagation-nested", "health-honest", *PROPAGATION)
class PropagationIsDropped(Plugin):
    def propagation(self, given: Row | None) -> Any:
        return None


@found_by("propagation-nested", *PROPAGATION)
class PropagationIsText(Plugin):
    def propagation(self, given: Row | None) -> Any:
        return given and json.dumps(given)


@found_by("propagation-numbers")
class NumbersAreFloats(Plugin):
    def propagation(self, given: Row | None) -> Any:
        return json.loads(json.dumps(given), parse_int=float)


@found_by("propagation-nested")
class NullsAreLeftOut(Plugin):
    def propagation(self, given: Row | None) -> Any:
        return given and {key: value for key, value in given.items() if value is not None}


# forgetting


@found_by("forget-wrong-namespace")
class AnybodyForgets(Plugin):
    def forget(self, identity: str, body: Row) -> Answer:
        held = self.rows.get(identity)
        if held is not None and body.get("requested_by_namespace"):
            body = {"requested_by_namespace": held["namespace"]}
        return super().forget(identity, body)


@found_by("forget-wrong-namespace")
class RefusesAndForgets(Plugin):
    def forget(self, identity: str, body: Row) -> Answer:
        if body.get("requested_by_namespace"):
            kept = self.rows.pop(identity, None)
            if kept is None or kept["namespace"] != body["requested_by_namespace"]:
                raise unknown("there is no such memory")
            return 204, None
        return super().forget(identity, body)


@found_by("forget-removes", "recovery")
class ForgottenIsFound(Plugin):
    def __init__(self) -> None:
        super().__init__()
        self.forgotten: set[str] = set()

    def forget(self, identity: str, body: Row) -> Answer:
        if identity in self.forgotten and body.get("requested_by_namespace"):
            raise unknown("there is no such memory")
        return super().forget(identity, body)

    def drop(self, row: Row) -> None:
        self.forgotten.add(row["id"])


@found_by("forget-twice", "forget-unknown")
class ForgettingIsAlwaysDone(Plugin):
    def forget(self, identity: str, body: Row) -> Answer:
        try:
            return super().forget(identity, body)
        except Refused as error:
            if error.answer[0] == 404 and identity not in self.rows:
                return 204, None
            raise


@found_by("forget-unsigned")
class NobodyForgets(Plugin):
    def body(self, request: Request) -> Row:
        signed = b"requested_by_namespace" in request.body
        if request.parts[0] == "memories" and not signed and request.body in {b"", b"{}"}:
            held = self.rows.get(request.parts[1], {"namespace": "none"})
            return {"requested_by_namespace": held["namespace"]}
        return super().body(request)


# refusals


@found_by("error-bodies")
class ErrorsAreText(Plugin):
    def answer(self, status: int, body: Any) -> bytes:
        return super().answer(status, body["message"].encode() if status >= 400 else body)


@found_by("error-codes")
class CodesAreWrong(Plugin):
    def answer(self, status: int, body: Any) -> bytes:
        return super().answer(status, body | {"code": "internal"} if status >= 400 else body)


@found_by("replies-are-json")
class RepliesAreText(Plugin):
    def answer(self, status: int, body: Any) -> bytes:
        is_good = status < 400 and body is not None
        return super().answer(status, json.dumps(body).encode() if is_good else body)


@found_by("path-unknown")
class EveryPathIsGood(Plugin):
    def route(self, request: Request) -> Answer:
        try:
            return super().route(request)
        except Refused as error:
            if request.method == "GET" and "no-such-path" in request.path:
                return 200, {}
            raise error from None


@found_by("method-wrong")
class EveryMethodIsGood(Plugin):
    def route(self, request: Request) -> Answer:
        if request.method == "PATCH" and request.parts[0] == "memories":
            return 200, {}
        return super().route(request)


# load and malformed input


@found_by("parallel-writes")
class ParallelWritesAreLost(Plugin):
    """Its queue has 40 places, and what finds none is acknowledged all the same."""

    arrived = queued = 0
    is_lost = False

    async def handle(self, request: Request) -> Answer:
        self.arrived += 1
        self.queued += 1
        is_lost = self.queued > 40
        try:
            await asyncio.sleep(0.01)
            before = 0
            while self.queued > 3 and before != self.arrived:  # until the rush is over
                before = self.arrived
                await asyncio.sleep(0.05)
            self.is_lost = is_lost
            return self(request)
        finally:
            self.queued -= 1

    def keep(self, row: Row) -> None:
        if not self.is_lost:
            super().keep(row)


@found_by("malformed-nul", "recovery")
class NulCrashes(Plugin):
    """It is gone for good from the first NUL on."""

    is_dead = False

    def __call__(self, request: Request) -> Answer:
        self.is_dead |= b"\\u0000" in request.body
        if self.is_dead:
            raise SystemExit
        return super().__call__(request)


@found_by("malformed-nul")
class Nul500(Plugin):
    def content(self, text: str) -> str:
        if "\0" in text:
            raise Refused(500, "internal", "invalid byte sequence")
        return super().content(text)


@found_by("malformed-json", "forget-unsigned", "malformed-huge")
class NoJson500(Plugin):
    def body(self, request: Request) -> Row:
        try:
            json.loads(request.body)
        except ValueError as error:
            raise Refused(500, "internal", "unexpected end of JSON input") from error
        except RecursionError:
            pass
        return super().body(request)


@found_by("malformed-types")
class TypesAre500(Plugin):
    def search(self, body: Row) -> Answer:
        if not isinstance(body.get("namespaces", []), list):
            raise Refused(500, "internal", "cannot unmarshal")
        return super().search(body)


@found_by("malformed-depth")
class DeepIs500(Plugin):
    def body(self, request: Request) -> Row:
        if request.body.count(b"[") > 10_000:
            raise Refused(500, "internal", "maximum recursion depth exceeded")
        return super().body(request)


@found_by("malformed-surrogates")
class HalfCharactersAre500(Plugin):
    def body(self, request: Request) -> Row:
        if b"\\ud800" in request.body:
            raise Refused(500, "internal", "surrogates not allowed")
        return super().body(request)


@found_by("malformed-paths")
class SlashesAre500(Plugin):
    def put(self, name: str, body: Row) -> Answer:
        if "/" in unquote(name):
            raise Refused(500, "internal", "no route")
        return super().put(name, body)


@found_by("replies-are-json")
class HealthIsText(Plugin):
    def answer(self, status: int, body: Any) -> bytes:
        if status == 200 and isinstance(body, dict) and "version" in body:
            return response(status, json.dumps(body).encode())
        return super().answer(status, body)
