"""What a provider is built with, ours or a stranger's: config, threads, filters, pages and search.

A provider whose store blocks writes plain methods under `@blocking`. One that holds its records in
memory has `matcher`, `page` and `TextIndex`; one whose store has a query language gives its own
words for `conditions` to `translated`. One that derives an index keeps it in a `DerivedDatabase`.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import os
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, BaseModel, ValidationError

from memtui.contract import (
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    Conflict,
    CorrectRequest,
    Denied,
    Filter,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
    QueryRequest,
    Record,
    Scope,
    Snippet,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.fuzzy import finds

P = ParamSpec("P")
T = TypeVar("T")
AdapterT = TypeVar("AdapterT")
ConfigT = TypeVar("ConfigT", bound=BaseModel)
Column = TypeVar("Column")
Clause = TypeVar("Clause")


# Config and threads


def read_config(model: type[ConfigT], context: BindingContext) -> ConfigT:
    """Return the config of a binding. Raises `Invalid` where it does not fit."""
    try:
        return model.model_validate(context.config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "config"
        raise Invalid(
            f"The setting {field} of the binding {context.binding_key} does not fit: "
            f"{first['msg']}."
        ) from error


def _absolute(path: Path) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise ValueError("the home folder is not known") from error
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError("give an absolute path")
    return path


LocalPath = Annotated[Path, AfterValidator(_absolute)]
"""A file or folder that a config names, absolute or from `~`: a command may run in any folder."""


def blocking(
    work: Callable[Concatenate[AdapterT, P], T],
) -> Callable[Concatenate[AdapterT, P], Coroutine[Any, Any, T]]:
    """Make an adapter's plain method one of the contract's: it is called in a thread.

    Several run at once. How long they may take is the service's business, which gives up on one
    that does not return; give each call to the store a limit of its own, so that its thread ends.
    """

    @wraps(work)
    async def call(adapter: AdapterT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(work, adapter, *args, **kwargs)

    return call


async def together(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Make calls a few at a time and return their answers in order.

    All end before the first error, if any, is raised.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await call()

    answers = await asyncio.gather(*map(one, calls), return_exceptions=True)
    done: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done


_AT_ONCE = 8


def need_secret(context: BindingContext, name: str, what: str) -> str:
    """Return a secret. Raises `Invalid` where there is none of this name; `what` it should hold."""
    if secret := context.secret(name):
        return secret
    raise Invalid(
        f"There is no secret {name}; put {what} into the keyring or the environment under that "
        "name."
    )


_CHANGING = ("writable", "correction", "restore", "keeps_ids", "namespace_changes")


def abilities_in(context: BindingContext, abilities: Capabilities) -> Capabilities:
    """Return what is left of a provider's abilities in a binding, which may be read-only."""
    if not context.read_only:
        return abilities
    return abilities.model_copy(update=dict.fromkeys(_CHANGING, False))


def require_writable(context: BindingContext, what: str) -> None:
    """Raise `Unsupported` in a read-only binding; `what` begins the sentence."""
    if context.read_only:
        raise Unsupported(f"{what} open read-only; open the binding writable first.")


def require_kept(able: Capabilities, request: WriteRequest | CorrectRequest) -> None:
    """Raise `Unsupported` where a record is to have what the provider does not keep.

    A pin, an expiry or a validity window that is dropped in silence is a promise that nobody keeps.
    """
    asked = {
        "pins": (able.pin, request.pinned),
        "expiry": (able.expiry, request.expires_at),
        "validity windows": (
            able.validity,
            getattr(request, "valid_from", None) or getattr(request, "valid_to", None),
        ),
    }
    for what, (kept, value) in asked.items():
        if value and not kept:
            raise Unsupported(f"This provider keeps no {what}; leave that out.")


def check_revision(record: Record, revision: str | None, proposed: str | None = None) -> None:
    """Raise `Conflict` if a change is based on another revision than the record's; None is any."""
    if revision is not None and revision != record.revision:
        raise Conflict(
            f"The record {_id(record)} changed since you read it; look at both versions.",
            current=record,
            proposed=proposed,
        )


def read_moment(value: object) -> datetime | None:
    """Return the moment that ISO 8601 text, a datetime or a date says, None if it says none.

    Where it names no zone it is in UTC.
    """
    try:
        found = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
        if isinstance(found, datetime):
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(found, date):
            return datetime(found.year, found.month, found.day, tzinfo=UTC)
    except (
        ValueError,
        OverflowError,
    ):  # it is not a date, or outside of the years 1 to 9999 in UTC
        return None
    return None


def is_nested_deeper(value: object, most: int) -> bool:
    """Whether lists and objects stand in each other more than `most` deep; needs no recursion."""
    level = [value]
    for _ in range(most + 1):
        held = [one for one in level if isinstance(one, (dict, list))]
        level = [
            one for part in held for one in (part.values() if isinstance(part, dict) else part)
        ]
    return bool(held)


# Filters

Test = Literal["is", "has", "from", "before", "holds", "finds"]
"""What a condition asks of a field: a value; a tag among several; a moment, or one before it; a
word in any case; a fuzzy word (`memtui.fuzzy`)."""

_EQUAL = (
    "agent_id", "project_id", "subject_id", "issue_id", "comment_id", "run_id", "source_kind",
    "topic", "kind",
)  # fmt: skip
_OF_WORK = frozenset({"issue_id", "run_id"})
_SEEN_BY = ("agent_id", "project_id", "subject_id")


class Condition(NamedTuple):
    """What a filter asks of a record's field: a test of it holds for one of the values, or none."""

    field: str
    test: Test
    values: tuple[Any, ...]
    excluded: bool = False
    """Whether it must hold for none of them; a field without a value then passes."""


_TESTED: dict[str, tuple[str, Test]] = {
    **{field: (field, "is") for field in _EQUAL},
    "tag": ("tags", "has"),
    "text": ("text", "holds"),
    "fuzzy": ("text", "finds"),
}


def conditions(wanted: Filter) -> Iterator[Condition]:
    """Yield what a filter asks of a record; all have to hold."""
    for field, values, excluded in wanted.field_tests():
        if field in _TESTED:
            yield Condition(*_TESTED[field], values, excluded)
    if wanted.since is not None:
        yield Condition("created_at", "from", (wanted.since,))
    if wanted.until is not None:
        yield Condition("created_at", "before", (wanted.until,))
    for word in (wanted.text or "").split():
        yield Condition("text", "holds", (word,))
    for word in wanted.fuzzy:
        yield Condition("text", "finds", (word,))


class Translated(NamedTuple, Generic[Clause]):
    """A condition in a store's own language: one of the clauses must hold, or none of them."""

    clauses: tuple[Clause, ...]
    """Without any, no record passes, or where they are excluded, every one does."""
    excluded: bool
    """A clause that is unknown, as NULL in SQL, does not hold."""


def translated(
    wanted: Filter,
    columns: Mapping[str, Column],
    tests: Mapping[Test, Callable[[Column, Any], Clause]],
) -> Iterator[Translated[Clause]]:
    """Yield a filter's conditions in a store's own language; all have to hold.

    `columns` says where the store keeps a field; in one that it does not keep, no record has a
    value.
    """
    for field, test, values, excluded in conditions(wanted):
        column = columns.get(field)
        clauses = () if column is None else tuple(tests[test](column, value) for value in values)
        yield Translated(clauses, excluded)


def matcher(wanted: Filter) -> Callable[[Record], bool]:
    """Return the test of a filter; an issue or a run may be the record's scope's or its source's.

    Words are looked for in title, text and summary.
    """
    asked = [
        one._replace(values=tuple(word.casefold() for word in one.values))
        if one.test == "holds"
        else one
        for one in conditions(wanted)
    ]

    def passes(record: Record) -> bool:
        return all(
            any(_passes(record, field, test, value) for value in values) != excluded
            for field, test, values, excluded in asked
        )

    return passes


def _passes(record: Record, field: str, test: Test, value: Any) -> bool:
    match test:
        case "is":
            return value in held(record, field)
        case "has":
            return any(tag == value or tag.startswith(f"{value}/") for tag in record.tags)
        case "from":
            return record.created_at is not None and record.created_at >= value
        case "before":
            return record.created_at is not None and record.created_at < value
    text = "\n".join((record.title or "", record.text, record.summary or ""))
    return finds(value, text) if test == "finds" else value in text.casefold()


def held(record: Record, field: str) -> tuple[object, ...]:
    """Return what a record has in a field of `conditions`, None where it has nothing there."""
    if field == "tags":
        return record.tags
    if field in {"topic", "kind"}:
        return (getattr(record, field),)
    if field in {"source_kind", "comment_id"}:
        return (getattr(record.source, field.removeprefix("source_"), None),)
    own = getattr(record.scope, field)
    return (own, getattr(record.source, field, None)) if field in _OF_WORK else (own,)


def sees(scope: Scope, other: Scope) -> bool:
    """Whether `scope` sees what is in another one: no field that both set differs."""
    pairs = [(getattr(scope, name), getattr(other, name)) for name in _SEEN_BY]
    return scope.company_id == other.company_id and not any(
        asked is not None and held is not None and asked != held for asked, held in pairs
    )


def eligible(request: QueryRequest) -> Callable[[Record], bool]:
    """Return the test of what a query asks beside its words: scope, filter, topic and metadata.

    A record without a topic is eligible for any.
    """
    passes = matcher(request.filter)
    return lambda record: (
        sees(request.scope, record.scope)
        and passes(record)
        and (request.topic is None or record.topic in {None, request.topic})
        and has_metadata(record, request.metadata_filter)
    )


def has_metadata(record: Record, wanted: Json) -> bool:
    """Whether a record's metadata holds all that a query's `metadata_filter` names."""
    held = record.metadata
    return all(name in held and held[name] == value for name, value in wanted.items())


MOST_BACKLINKS = 500
"""How many links to one record are told; a hub of a large store has thousands."""


# Pages


def write_cursor(sort: str, *place: str | int | None) -> str:
    """Return the cursor of a list in this order: where its next page begins."""
    return base64.urlsafe_b64encode(json.dumps([sort, *place]).encode()).decode()


def read_cursor(cursor: str, sort: str, *kinds: type | tuple[type, ...]) -> list[Any]:
    """Return the place that a cursor holds, a value of each of the kinds.

    Raises:
        Invalid: it is not a cursor, or of a list in another order.
    """
    place: list[Any]
    try:
        written, *place = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid("The cursor is not one of this list; start from the first page.") from error
    fits = len(place) == len(kinds) and not any(isinstance(one, bool) for one in place)
    if written != sort or not fits or not all(map(isinstance, place, kinds)):
        raise Invalid("The cursor belongs to another sort; start from the first page.")
    return place


_TITLE_LIMIT = 200
"""Characters of a title that sorting and the cursor look at."""
_NONE = type(None)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="microseconds")


_SORTS: dict[str, Callable[[Record], str | int | None]] = {
    "created_at": lambda record: _moment(record.created_at),
    "updated_at": lambda record: _moment(record.updated_at or record.created_at),
    "title": lambda record: record.title and record.title[:_TITLE_LIMIT].casefold(),
    "size": lambda record: len(record.text),
    "kind": lambda record: record.kind,
    "topic": lambda record: record.topic,
}


def _sort_of(sort: str) -> tuple[Callable[[Record], str | int | None], bool]:
    """Return what a sort looks at, and whether it descends."""
    name, is_down = sort.removeprefix("-"), sort.startswith("-")
    if name not in _SORTS:
        raise Invalid(f"Cannot sort by {name}; the fields are {', '.join(_SORTS)}.")
    return _SORTS[name], is_down


def first_of(records: Sequence[Record], sort: str) -> int:
    """Return the place of the record that stands first in a list of this order.

    One without a value of its sort stands last. Raises `Invalid` for an unknown sort.
    """
    value_of, is_down = _sort_of(sort)
    values: list[Any] = [value_of(one) for one in records]
    valued = [place for place, value in enumerate(values) if value is not None]
    if not valued:
        return 0
    return (max if is_down else min)(valued, key=lambda place: values[place])


_Key = tuple[Any, int]
"""A record's sort value (None: it has none) and its place in the list."""


def page(records: Sequence[Record], request: BrowseRequest) -> BrowsePage:
    """Return one page of `records`, which are all that pass the scope and the filter.

    Records of one sort value keep their order, and those without one come last. The cursor holds
    the last record's sort value, place and id, so records that come or go between two pages
    neither repeat nor hide others.

    Raises:
        Invalid: the sort field is not supported, or the cursor is not of this sort.
    """
    value_of, is_down = _sort_of(request.sort)
    keyed: list[tuple[_Key, Record]] = [
        ((value_of(record), place), record) for place, record in enumerate(records)
    ]
    present = [pair for pair in keyed if pair[0][0] is not None]
    present.sort(key=lambda pair: pair[0][0], reverse=is_down)
    ordered = [*present, *(pair for pair in keyed if pair[0][0] is None)]
    start = 0
    if request.cursor is not None:
        value = int if request.sort.endswith("size") else str
        last, place, last_id = read_cursor(request.cursor, request.sort, (value, _NONE), int, str)
        place = next((at for at, record in enumerate(records) if _id(record) == last_id), place)
        start = sum(not _is_after(key, (last, place), is_down=is_down) for key, _ in ordered)
    chosen = ordered[start : start + request.limit]
    cursor = None
    if start + len(chosen) < len(ordered):
        key, record = chosen[-1]
        cursor = write_cursor(request.sort, *key, _id(record))
    return BrowsePage(
        records=tuple(record for _, record in chosen), next_cursor=cursor, total=len(records)
    )


def _is_after(key: _Key, last: _Key, *, is_down: bool) -> bool:
    if key[0] == last[0]:
        return key[1] > last[1]
    if key[0] is None or last[0] is None:
        return key[0] is None
    return bool(key[0] < last[0] if is_down else key[0] > last[0])


def _id(record: Record) -> str:
    return record.handle.provider_record_id


# Search


class TextIndex:
    """A full-text index of records in memory, best match first. Used from one thread at a time."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self.fill(records)

    def fill(self, records: Sequence[Record]) -> None:
        """Replace what is indexed."""
        self._records = records
        with self._database as database:
            database.execute("DROP TABLE IF EXISTS entry")
            database.execute(
                "CREATE VIRTUAL TABLE entry USING fts5(title, text, labels, content='', "
                "tokenize='porter unicode61 remove_diacritics 2')"
            )
            database.executemany(
                "INSERT INTO entry (rowid, title, text, labels) VALUES (?, ?, ?, ?)",
                ((number, *_indexed(record)) for number, record in enumerate(records)),
            )

    def search(self, query: str) -> Iterator[tuple[Record, float]]:
        """Yield records and scores, higher is better; any word may match.

        Where the index knows no word of the query (text without spaces, parts of words), the
        records that contain every word follow, all with the score 0.
        """
        words = take_apart(query)
        matched = self._matched(words.match()) if words.kept else []
        for number, score in matched:
            yield self._records[number], score
        if matched or not words.literal:
            return
        needles = words.kept or (words.literal,)
        for record in self._records:
            held = f"{record.title or ''}\n{record.text}".casefold()
            if all(needle in held for needle in needles):
                yield record, 0.0

    def _matched(self, expression: str) -> list[tuple[int, float]]:
        return self._database.execute(
            "SELECT rowid, -bm25(entry, 3.0, 1.0, 1.0) FROM entry WHERE entry MATCH ? "
            "ORDER BY bm25(entry, 3.0, 1.0, 1.0), rowid",
            (expression,),
        ).fetchall()

    def close(self) -> None:
        """Free the memory."""
        self._database.close()


def ranked(records: Sequence[Record], query: str) -> list[Snippet]:
    """Return those of a few records that match, as `TextIndex` finds them."""
    with closing(TextIndex(records)) as index:
        return [Snippet(**dict(record), score=score) for record, score in index.search(query)]


def _indexed(record: Record) -> Iterator[str]:
    labels = " ".join((record.topic or "", record.kind, record.summary or "", *record.tags))
    for text in (record.title or "", record.text, labels):
        yield text.encode("utf-8", "replace").decode()  # SQLite takes no lone surrogates


# Servers

_CONNECT_SHARE = 0.8
"""Waiting for a connection may take that share of the time, so that a host that never answers is
known as one that was not sent anything."""


class NoReply(Exception):
    """No whole reply came; `why` says what happened, the text names an error of the connection."""

    def __init__(
        self, why: Literal["unreachable", "late", "broken", "compressed", "long"], detail: str = ""
    ) -> None:
        super().__init__(detail)
        self.why = why


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def require_plain(self) -> None:
        """Raise `NoReply` for a compressed body: nobody asked for one, and it may be a bomb."""
        if self.headers.get("content-encoding", "identity") != "identity":
            raise NoReply("compressed")


class HttpClient:
    """Sends requests to one server over kept connections; bounded in time and size, no redirect."""

    def __init__(
        self,
        url: str,
        *,
        socket: Path | None,
        seconds: float,
        most_bytes: int,
        headers: Mapping[str, str],
        connections: int = 16,
        trust_env: bool = False,
    ) -> None:
        import httpx

        self._seconds, self._most_bytes = seconds, most_bytes
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=16)
        is_tls = url.startswith("https:")  # its certificates take a while to load
        transport = None  # the client's own goes through the proxies of the environment
        if socket or not trust_env:
            transport = httpx.AsyncHTTPTransport(
                verify=is_tls, uds=str(socket) if socket else None, limits=limits
            )
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            transport=transport,
            verify=is_tls,
            limits=limits,
            timeout=None,  # noqa: S113 — `send` bounds each request as a whole
            headers={**headers, "accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=trust_env,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> HttpReply:
        """Send one request and return its reply, whatever the status. Raises `NoReply`."""
        import httpx

        longest = seconds or self._seconds
        waiting = longest * _CONNECT_SHARE
        try:
            async with asyncio.timeout(longest):
                return await self._exchange(
                    method,
                    path,
                    content=content,
                    headers=headers,
                    timeout=httpx.Timeout(None, connect=waiting, pool=waiting),
                )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NoReply("unreachable", type(error).__name__) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise NoReply("late") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise NoReply("broken", type(error).__name__) from error

    async def _exchange(self, method: str, path: str, **request: Any) -> HttpReply:
        async with self._client.stream(method, path, **request) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._most_bytes:
                    raise NoReply("long")
            return HttpReply(response.status_code, response.headers, bytes(body))


_NO_REPLY = {
    "unreachable": "cannot be reached; check its url and whether it runs",
    "late": "did not answer within {0:g} s; try again",
    "broken": "broke off ({2}); try again",
    "compressed": "answered something unreadable: it is compressed, and nobody asked for that",
    "long": "answered something unreadable: it is larger than {1:,} bytes",
}
_MESSAGE_CHARS = 200
_THREAD_BYTES = 500_000
"""A longer reply is read in a thread."""


class Unreadable(Exception):
    """A reply that is not what was asked for; its text says what is wrong."""


class JsonApi:
    """The calls of a server that speaks JSON; its refusals are the contract's errors.

    `who` begins their sentences. `Unavailable.sent` is true where a change may have been made all
    the same, and for a late reply: asking again at once would only wait again.
    """

    def __init__(
        self,
        who: str,
        url: str,
        *,
        seconds: float,
        most_bytes: int,
        headers: Mapping[str, str],
        socket: Path | None = None,
    ) -> None:
        self._who, self._seconds, self._most_bytes = who, seconds, most_bytes
        parts = urlsplit(url)
        # A proxy of the environment may be another machine, and would read what is not encrypted.
        stays_here = parts.scheme == "http" and is_loopback(parts.hostname or "")
        self._http = HttpClient(
            url,
            socket=socket,
            seconds=seconds,
            most_bytes=most_bytes,
            headers=headers,
            trust_env=not stays_here,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def ask(
        self,
        method: str,
        path: str,
        parse: Callable[[bytes], T],
        body: Json | None = None,
        *,
        changes: bool = True,
    ) -> T:
        """Send a request and return what `parse` makes of the reply's body (see `read_json`).

        Raises:
            MemtuiError: it is refused, or no reply came that `parse` can read (`Unreadable`).
        """
        content, headers = None, {}
        if body is not None:
            content, headers = json_bytes(body), {"Content-Type": "application/json"}
        try:
            reply = await self._http.send(method, path, content, headers)
            reply.require_plain()
            if not 200 <= reply.status < 300:
                raise self._refusal(reply, changes=changes)
            if len(reply.body) > _THREAD_BYTES:
                return await asyncio.to_thread(parse, reply.body)
            return parse(reply.body)
        except NoReply as error:
            said = _NO_REPLY[error.why].format(self._seconds, self._most_bytes, error)
            is_sent = error.why == "late" or (changes and error.why != "unreachable")
            raise Unavailable(f"{self._who} {said}.", sent=is_sent) from error
        except (Unreadable, RecursionError) as error:
            said = f"{self._who} answered something unreadable: {error}."
            raise Unavailable(said, sent=changes) from error

    def _refusal(self, reply: HttpReply, *, changes: bool) -> MemtuiError:
        """Return the contract's error for a status that is not a success."""
        status, who, said = reply.status, self._who, _said(reply.body)
        if status in {401, 403}:
            hint = "check the token" if status == 401 else "ask an owner for the right"
            return Denied(f"{who} refused{said}; {hint}.")
        if status == 404:
            return NotFound(f"{who} does not know it{said}; check the id and the url.")
        if status == 409:
            return Conflict(f"{who} has a conflict{said}; read it again.")
        if status in {400, 413, 422}:
            return Invalid(f"{who} does not take it{said}.")
        if 300 <= status < 400:
            return Unavailable(f"{who} redirects elsewhere; set url to its real address.")
        is_sent = changes and status != 429  # that is refused before it is begun
        return Unavailable(f"{who} answered {status}{said}; try again.", sent=is_sent)


def json_bytes(body: Json) -> bytes:
    """Return a request's body. Raises `Invalid` for what JSON cannot hold."""
    try:
        words = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return words.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(
            "The record holds something that JSON cannot carry, such as a number that is not "
            "finite or half a character; take it out."
        ) from error


def read_json(body: bytes) -> Any:
    """Return what a reply's JSON says. Raises `Unreadable`."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is not JSON") from error


def whole(value: Any) -> Any:
    """Return JSON with halves of characters, which no database holds, as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(one) for one in value]
    if isinstance(value, dict):
        return {whole(name): whole(one) for name, one in value.items()}
    return value


def _said(body: bytes) -> str:
    """Return what a refusal says, in brackets: `error`, `message` or `detail` of its JSON."""
    try:
        told = json.loads(body)
        told = next(told[name] for name in ("error", "message", "detail") if name in told)
        message = told["message"] if isinstance(told, dict) else told
    except (ValueError, RecursionError, KeyError, TypeError, StopIteration):
        return ""
    words = " ".join(str(message)[: 4 * _MESSAGE_CHARS].split())[:_MESSAGE_CHARS]
    return f" ({words.rstrip('.')})" if words else ""


def path_segment(name: str, *, what: str) -> str:
    """Return an id as one segment of a path. Raises `Invalid` where it cannot be one."""
    if name in {"", ".", ".."} or any("\ud800" <= char <= "\udfff" for char in name):
        raise Invalid(f"{what} has the id {name!r}, which no address can carry; use another.")
    return quote(name, safe="")


def check_address(url: str, *, what: str, is_private: bool) -> None:
    """Raise `Invalid` for what is not an address, or one that a token cannot safely go to.

    `what` begins the sentences. `is_private`: nobody else can listen, or the person allows it.
    """
    try:
        parts = urlsplit(url)
        host, is_odd = parts.hostname or "", parts.username or parts.query or parts.fragment
        _ = parts.port
    except ValueError as error:
        raise Invalid(f"{what} is not an address; write it as https://host.") from error
    if parts.scheme not in {"http", "https"} or not host or is_odd:
        raise Invalid(
            f"{what} must be an address such as https://host, without a user, query or fragment."
        )
    if not (parts.scheme == "https" or is_private or is_loopback(host)):
        raise Invalid(
            f"The token would go to {host} unencrypted; use https, or set allow_http to true."
        )


def is_loopback(host: str) -> bool:
    """Whether a host of an address is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# What was derived, in a SQLite file: damaged, it is thrown away and begun anew. One that cannot be
# opened or written, as on a full disk, may be sound, and is left alone.

_BUSY_SECONDS = 30.0
_REPLACED_OFTEN = 5
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_UNUSABLE = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
     sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS}
)  # fmt: skip


class Broken(Exception):
    """The database cannot go on as it is; its text says why.

    Only what a damaged file holds cannot be trusted.
    """

    def __init__(self, message: str, *, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.is_damaged = is_damaged


_CACHE_KB = 16_000


class DerivedDatabase:
    """One connection that threads take turns with. Without a path it is in memory."""

    def __init__(
        self,
        path: Path | None,
        schema: str,
        *,
        version: int,
        what: str,
        synchronous: str = "FULL",
        functions: Mapping[str, tuple[int, Callable[..., Any]]] | None = None,
    ) -> None:
        """Take what the file holds; a file of another `version` is begun anew.

        `what` begins the sentences about it, which go on with its path. `functions` are what
        statements may call, each with the number of its arguments.
        """
        self._path, self._schema, self._version = path, schema, version
        self._where = f"{what} {path or 'in memory'}"
        self._synchronous = synchronous
        self._functions = functions or {}
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        """The file that the connection is to: another process may put a new one in its place."""
        self._is_closed = False

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection; once more where another process began the file anew.

        Nothing is committed but by the work itself.

        Raises:
            Broken: the file is damaged, or cannot be used.
            Unavailable: it is held by another process for too long.
        """
        with self._turn:
            for _ in range(_REPLACED_OFTEN):
                connection = self._opened()
                try:
                    return work(connection)
                except sqlite3.DatabaseError as error:
                    if self._inode == self._inode_now():
                        raise self._fault(error) from error
                finally:
                    self._give_back(connection)
        raise Unavailable(f"{self._where} is replaced again and again; try again.")

    def discard(self) -> None:
        """Throw everything away; the next call begins anew. Raises `Broken`."""
        with self._turn:
            self._drop()
            if self._path is not None:
                with self._locked(self._path):
                    _remove(self._path)

    def close(self) -> None:
        """Close the file; again is harmless."""
        with self._turn:
            self._is_closed = True
            self._drop()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._inode == self._inode_now():
            return self._connection
        self._drop()
        path = self._path
        if path is None:
            self._connection = self._created(":memory:")
            return self._connection
        with self._locked(path):
            connection = self._connected(path)
            if not self._is_ours(connection):
                connection.close()
                _remove(path)
                connection = self._created(path)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            self._connection, self._inode = connection, self._inode_now()
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()
        except sqlite3.Error:
            self._drop()
        if self._is_closed:  # a call that was late
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._inode = None, 0

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is sound, of this version, and not empty."""
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            holds = connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            if is_damaged(error):
                return False
            connection.close()
            raise
        return holds is not None and version == self._version

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Keep every other process from opening the file, or from throwing it away."""
        import filelock

        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(
                path.with_suffix(".lock"), timeout=_BUSY_SECONDS, mode=0o600,
                poll_interval=0.01, preserve_lock_file=True,
            ):  # fmt: skip
                yield
        except filelock.Timeout as error:
            raise Unavailable(f"{self._where} is held by another program; try again.") from error
        except OSError as error:
            raise Broken(f"{path}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _connected(self, path: Path | str) -> sqlite3.Connection:
        if isinstance(path, Path):  # SQLite itself would let others read it
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        for name, (arguments, function) in self._functions.items():
            connection.create_function(name, arguments, function, deterministic=True)
        return connection

    def _created(self, path: Path | str) -> sqlite3.Connection:
        connection = self._connected(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(
            f"BEGIN; {self._schema} PRAGMA user_version = {self._version}; COMMIT;"
        )
        return connection

    def _fault(self, error: sqlite3.Error) -> Broken | Unavailable:
        """Say what an error of SQLite means for the file."""
        if is_damaged(error) or _code(error) in _UNUSABLE:
            return Broken(f"{self._path or 'in memory'}: {error}", is_damaged=is_damaged(error))
        return Unavailable(f"{self._where} cannot answer now ({error}); try again.")

    def _inode_now(self) -> int:
        try:
            return self._path.stat().st_ino if self._path else 0
        except OSError:
            return 0


def scrub(connection: sqlite3.Connection) -> bool:
    """Keep nothing of deleted rows in freed pages and the write-ahead log.

    Returns False where another process still holds that log.
    """
    connection.execute("VACUUM")
    [busy, *_] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def is_damaged(error: Exception) -> bool:
    """Whether what a file holds cannot be trusted: only then it is to be thrown away."""
    lacks = isinstance(error, sqlite3.OperationalError) and "no such " in str(error)
    return lacks or _code(error) in _DAMAGED


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


# Words

_MAX_CHARS, _MAX_WORDS = 20_000, 64
_MAX_KEY_WORDS, _MAX_KEY_CHARS = 4, 200
_WORD = re.compile(r"[^\W_]+")
_KEY = re.compile(r"[a-z0-9](?:[a-z0-9_.\-]*[a-z0-9])?")
_CJK = re.compile(
    "[\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
_COMMON = (
    "a about above after again all also am an and any are as at be been being both but by can "
    "could did do does doing down during each few for from further had has have having he her "
    "here hers him his how i if in into is it its itself just me more most my no nor not of off "
    "on once only or other our out over own s same she should so some such t than that the their "
    "them then there these they this those through to too under until up very was we were what "
    "when where which while who whom whose why will with would you your"
)
STOPWORDS = frozenset(_COMMON.split())
"""English words that say nothing about what is asked for."""


@dataclass(frozen=True, slots=True)
class Words:
    """A query taken apart."""

    kept: tuple[str, ...]
    """The words that are looked for, each once."""
    dropped: tuple[str, ...]
    """Stopwords, and words beyond the first 64."""
    keys: tuple[str, ...]
    """What the query would be as the key of a fact."""
    pieces: tuple[str, ...]
    """Pairs of characters of text without spaces between words, such as Chinese."""
    literal: str
    """The query itself, for one that has no words."""

    def match(self, *, prefix: bool = False) -> str:
        """Return the words as a full-text expression: any of them, as words or beginnings."""
        star = "*" if prefix else ""
        return " OR ".join(f'"{word}"{star}' for word in self.kept)


def take_apart(query: str) -> Words:
    """Take a query of any length and content apart."""
    text = unicodedata.normalize("NFC", query[:_MAX_CHARS]).casefold()
    found = list(dict.fromkeys(_WORD.findall(text)))
    meant = [word for word in found if word not in STOPWORDS] or found
    kept = tuple(meant[:_MAX_WORDS])
    return Words(
        kept=kept,
        dropped=tuple(word for word in found if word not in kept),
        keys=_keys(text),
        pieces=_pieces(text),
        literal=text.strip()[:200],
    )


def _keys(text: str) -> tuple[str, ...]:
    words = _WORD.findall(text)[:_MAX_WORDS]
    parts = [_KEY.search(part[:_MAX_KEY_CHARS]) for part in text.split()[:_MAX_WORDS]]
    keys = [part.group() for part in parts if part and not part.group().isalnum()]
    if len(words) == 1:
        keys += words
    for size in range(2, _MAX_KEY_WORDS + 1):
        for start in range(len(words) - size + 1):
            run = words[start : start + size]
            keys += [joint.join(run) for joint in "_-."]
    return tuple(dict.fromkeys(keys))


def _pieces(text: str) -> tuple[str, ...]:
    pieces: list[str] = []
    for run in _CJK.findall(text):
        pieces += [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
    return tuple(dict.fromkeys(pieces))[:_MAX_WORDS]
