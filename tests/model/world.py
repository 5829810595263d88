"""The real service and the plain one side by side: each step is done to both, and all is compared.

A step is one call with plain arguments, so that a run can be read, and replayed as a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar
from zoneinfo import ZoneInfo

import pytest

from memtui.config import find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    Capabilities,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    MemtuiError,
    NotFound,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    Usage,
    WriteRequest,
    owner_of,
    owner_scope,
)
from memtui.migration.endpoints import Endpoints, open_endpoints
from memtui.migration.moving import apply
from memtui.migration.syncing import resolve, sync
from memtui.service import Caller, MemoryService, open_service
from memtui.service.answers import Capture, MutationAnswer, ReviewRule, RuleAction, RuleTest
from memtui.service.context.contexts import ContextAnswer, ContextRequest
from memtui.service.home.survey import PurgeRequest
from memtui.service.runtime import SETUP_CHANNEL
from memtui.service.spending import LimitMeasure, LimitPeriod, LimitTarget, SpendingLimit
from memtui.service.visibility import Membership, Role, without_prefix
from memtui.store.operation import APP_CHANNEL
from memtui.threads import LooseThreads
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.backends.tables.kit import NAMESPACES, agno, langgraph
from tests.model.later import LaterAdapter
from tests.model.plain import (
    FIELDS,
    GATED,
    Company,
    Key,
    Member,
    Operation,
    Proposal,
    Sees,
    Settings,
    Spent,
    Waiting,
    Who,
    by_namespace,
    exactly,
    holds,
    in_folders,
    in_tables,
    shared,
    told,
)

At = tuple[str, str]
"""A company, and the key of one of its bindings."""
Clock = Callable[[], datetime]
T = TypeVar("T")
P = ParamSpec("P")

START = datetime(2026, 3, 28, 20, tzinfo=UTC)
"""The evening before Berlin's clocks change."""
ZONES = (ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"))
PAGE = 3

SMALL = {
    "service.connections._PAGE": 3, "service.operations.reading._PAGE": 3,
    "service.history.as_of._PAGE": 3, "service.home.purge._AT_ONCE": 2,
    "service.home.purge._BATCH": 2, "service.home.survey._AT_ONCE": 2,
    "service.operations.uses._AT_ONCE": 2, "analytics.company_log._PAGE": 3,
    "service.context.impact._PAGE": 3, "service.operations.tags._PAGE": 3,
    "backends.facts.rows._CHUNK": 2, "store.erasing._PAGE": 2, "store.pairs._AT_ONCE": 2,
    "migration.endpoints._PAGE": 3, "backends.mem0.stores._PAGE": 3,
    "backends.milvus.store._BATCH": 2,
}  # fmt: skip
"""What is done so many at a time, and here so few, so that there is a second time."""

PEOPLE = {
    "ana": Who("user:ana"),
    "bo": Who("user:bo"),
    "cy": Who("user:cy"),
    "zed": Who("user:zed"),
    "coding": Who("agent:coding", "user:cy"),
    "scout": Who("agent:scout", "user:ana"),
    "loose": Who("agent:loose"),
}
MEMBERS = (
    Member("user:ana", "owner"),
    Member("user:bo", "admin", "web"),
    Member("user:cy", "member", "web"),
)
PLACES: dict[str, dict[str, str]] = {
    "company": {},
    "web": {"project_id": "web"},
    "api": {"project_id": "api"},
    "user ana": {"subject_id": "ana"},
    "user cy": {"subject_id": "cy"},
    "agent coding": {"agent_id": "coding"},
    "agent scout": {"agent_id": "scout"},
    "web, cy": {"project_id": "web", "subject_id": "cy"},
    "web, coding": {"project_id": "web", "agent_id": "coding"},
}
_OF_NOTES = frozenset({"summary", "title", "metadata"})
"""What a fact, which is a line, has not."""
TARGETS = (("company", "", "one"), ("project", "web", "two"))
"""What serves whom where no binding is named."""
BINDINGS = {"acme": ("one", "two"), "bolt": ("one", "two")}


@dataclass(frozen=True)
class Provider:
    """What is to be known of a provider to foretell what it does."""

    key: str
    sees: Sees
    """What a query and a `get` find in a scope."""
    lists: Sees
    """What a list holds in a scope."""
    places: tuple[str, ...] = tuple(PLACES)
    """Where it keeps something."""
    keeps: frozenset[str] = frozenset(FIELDS)
    """The fields of a write that it keeps as they were given."""
    kinds: tuple[str, ...] = ("note",)
    corrects: frozenset[str] = frozenset({"text", "summary", "topic", "tags", "pinned", "expires"})
    takes: frozenset[str] = frozenset(
        {"title", "metadata", "summary", "topic", "tags", "pinned", "expires"}
    )
    """The fields that a write may give."""
    home: Callable[[Scope], Scope] = lambda scope: scope
    """The scope that a record has which is written in a scope."""
    hides_expired: bool = False
    """Whether nobody can list what has expired, not as of a moment before it did either."""
    keyed: bool = False
    """Whether its facts are found by their keys."""
    once: bool = False
    """Whether it has each text once, so that each is made another one."""
    path: str = ""
    program: Callable[[str], AbstractContextManager[Any]] | None = None
    """Makes what the provider opens at `path`."""
    config: tuple[tuple[str, object], ...] = ()
    serve: Callable[[Clock], AbstractAsyncContextManager[str]] | None = None
    """Starts a server of it, and gives its address."""


def _drive(scope: Scope) -> Scope:
    return scope.model_copy(update={"subject_id": None}) if scope.project_id else scope


def _row_of_agno(scope: Scope) -> Scope:
    return scope.model_copy(update={"issue_id": None, "run_id": None})


_ALL = frozenset(FIELDS)
_FILES = _ALL - {"title", "kind", "summary", "pinned", "expires_at", "valid_from", "valid_to"}
PROVIDERS = {
    one.key: one
    for one in (
        Provider(
            "vault", in_folders, exactly, keyed=True,
            kinds=("note", "guidance", "reference", "fact"),
        ),
        Provider(
            "facts", in_tables, in_tables, home=_drive, kinds=("fact",),
            keeps=_ALL - {"title", "summary", "metadata"},
            places=tuple(one for one in PLACES if one.startswith(("web", "api", "user"))),
            corrects=frozenset({"text", "topic", "tags", "pinned", "expires"}),
            takes=frozenset({"topic", "tags", "pinned", "expires"}),
        ),
        Provider(
            "claude-memory", shared, shared, keeps=_FILES, path="memory/",
            corrects=frozenset({"text", "topic", "tags"}), takes=frozenset({"topic", "tags"}),
        ),
        Provider(
            "later", shared, shared, keeps=_FILES, path="memory/", once=True,
            corrects=frozenset({"text", "topic", "tags"}), takes=frozenset({"topic", "tags"}),
        ),
        Provider(
            "mcp-memory", shared, shared, keeps=_FILES, path="memory.jsonl",
            config=(("settle_ms", 0),), corrects=frozenset({"text", "topic", "tags"}),
            takes=frozenset({"topic", "tags"}),
        ),
        Provider(
            "plugin-v1", by_namespace, by_namespace, hides_expired=True,
            serve=lambda now: serve(talk(Reference(now))),
        ),
        Provider(
            "hermes", shared, shared, keeps=_FILES, path="memories/", once=True,
            config=(("memory_chars", 100_000),), corrects=frozenset({"text", "topic", "tags"}),
            takes=frozenset({"topic", "tags"}),
        ),
        Provider(
            "langgraph", shared, shared, path="store.db", program=langgraph,
            config=(("namespaces", NAMESPACES),),
            keeps=_ALL - {"valid_from", "valid_to"},
        ),
        Provider(
            "agno", shared, shared, path="agno.db", program=agno, home=_row_of_agno,
            kinds=("memory",), keeps=frozenset({"text", "tags", "scope", "created_at"}),
            corrects=frozenset({"text", "tags"}), takes=frozenset({"tags"}),
        ),
        Provider(
            "milvus", in_folders, in_folders, path="milvus/", keyed=True,
            kinds=("note", "guidance", "fact"),
        ),
    )
}  # fmt: skip


Make = Callable[..., "World"]
"""Opens a home over a provider, or two."""


async def open_home(folder: Path, clock: Any) -> MemoryService:
    paths = find_paths(folder)
    settings = load_settings(paths, principal="user:ana")
    return await open_service(
        paths, settings, clock=clock, timer=lambda: 0.0, first_company=False,
        providers={LaterAdapter.key: LaterAdapter},
    )  # fmt: skip


def make_template(folder: Path, empty_database: Path) -> Path:
    """Make a home with the two companies: `acme` has members, `bolt` is open to everybody."""
    paths = find_paths(folder)
    paths.create()
    shutil.copy(empty_database, paths.database)

    async def make() -> None:
        service = await open_home(folder, lambda: START)
        for name in BINDINGS:
            setup = Caller(company_id=name, principal="user:ana", channel=SETUP_CHANNEL)
            await service.companies.add(setup, name.title())
        setup = Caller(company_id="acme", principal="user:ana", channel=SETUP_CHANNEL)
        for one in MEMBERS:
            await service.members.set(setup, Membership(
                principal=one.person, subject_id=one.subject, project_id=one.project,
                role=Role(one.role),
            ))  # fmt: skip
        await service.close()

    asyncio.run(make())
    return folder


def scope_of(company: str, place: str, **more: str) -> Scope:
    return Scope.model_validate({"company_id": company, **PLACES[place], **more})


def source_of(company: str, issue: str | None) -> SourceRef:
    if issue is None:
        return SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=company)
    return SourceRef(
        kind=SourceKind.ISSUE_COMMENT, company_id=company, issue_id=issue, comment_id="1",
        external_ref=address_of(issue),
    )  # fmt: skip


def address_of(issue: str) -> str:
    return f"https://issues.example/{issue}"


def same(found: object, wanted: object, what: str) -> None:
    """Raise what differs, field by field where it is records that do."""
    if found == wanted:
        return
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
        differ = [f"{name}: {found.get(name)!r}, not {wanted.get(name)!r}" for name in names]
        fail(f"{what}: {'; '.join(differ)}")
    fail(f"{what}: {found!r}, not {wanted!r}")


def expect(holds: object, what: str) -> None:
    """Raise where something does not hold."""
    if not holds:
        fail(what)


def fail(what: str) -> NoReturn:
    raise AssertionError(what)


class Done(NamedTuple):
    """The answer of a change that has none of its own."""

    operation_id: str


class InPlace(LooseThreads):
    """Makes each call at once, where it is asked for: a step takes a fifth of the time."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is for whoever waits for the call
            done.set_exception(error)
        return done


class World:
    """A home with both companies over one provider, and what ought to be in it."""

    def __init__(self, folder: Path, template: Path, provider: str, second: str = "") -> None:
        self.providers = {"one": PROVIDERS[provider], "two": PROVIDERS[second or provider]}
        self.now, self.texts = START, 0
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(InPlace())
        shutil.copytree(template, folder, dirs_exist_ok=True)
        self.folder = folder
        self.theirs = folder.with_name(f"{folder.name}-theirs")
        """Where other programs have their files."""
        self.servers = AsyncExitStack()
        self.run(self._open())
        self.companies = {
            name: Company(name, list(MEMBERS) if name == "acme" else []) for name in BINDINGS
        }
        self.sealed: set[str] = set()
        self.begun = {name: self._newest(name).seq for name in BINDINGS}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _open(self) -> None:
        self.service = await open_home(self.folder, lambda: self.now)
        self.able: dict[str, Capabilities] = {}
        for name, keys in BINDINGS.items():
            setup = self.caller(name, "ana", SETUP_CHANNEL)
            for key in keys:
                known = self.providers[key]
                config: dict[str, object] = dict(known.config)
                if known.path:
                    path = self.theirs / name / key / known.path
                    is_folder = known.path.endswith("/")
                    (path if is_folder else path.parent).mkdir(parents=True)
                    if known.program:
                        with known.program(str(path)):
                            pass
                    elif not is_folder:
                        path.touch()
                    config["path"] = str(path)
                if known.serve:
                    config["url"] = await self.servers.enter_async_context(
                        known.serve(lambda: self.now)
                    )
                await self.service.bindings.add(setup, key, known.key, config)
            for what, one, key in TARGETS:
                serving = key if key in keys else "one"
                await self.service.bindings.set_target(setup, what, one or name, serving)
            self.able = {b.key: b.capabilities for b in await self.service.bindings.all(setup)}

    def close(self) -> None:
        try:
            self.run(self.service.close())
            self.run(self.servers.aclose())
        finally:
            self.loop.close()
            for one in (self.folder, self.theirs):
                shutil.rmtree(one, ignore_errors=True)

    def caller(self, company: str, who: str, channel: str = "test") -> Caller:
        one = PEOPLE[who]
        return Caller(
            company_id=company, principal=one.principal, acts_for=one.acts_for, channel=channel
        )

    # Steps

    def _given(self, fields: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
        """Return the fields that are given and that the provider has a place for."""
        return {
            name: value for name, value in fields.items() if value is not None and name in known
        }

    def _of(self, record: Record) -> Provider:
        return PROVIDERS[record.handle.provider_key]

    def _own(self, binding: str, text: str) -> str:
        """Return a text as another one, where a provider has each once."""
        if not self.providers[binding].once:
            return text
        self.texts += 1
        return f"{text} {self.texts}"

    def wait(self, hours: int) -> None:
        """Let time pass; whole hours, so that things end at the very moment of others."""
        self.now += timedelta(hours=hours)

    def write(
        self, at: At, place: str, text: str, *, who: str = "ana",
        kind: str | None = None, issue: str | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Store a record; `expires` is in hours from now."""
        (company, binding), fields = at, self._given(fields, self.providers[at[1]].takes)
        if place not in self.providers[binding].places:
            return
        here, scope = self.companies[company], scope_of(company, place)
        text = self._own(binding, text)
        kind = kind or self.providers[binding].kinds[0]
        if kind == "fact":  # is a line
            fields = {n: one for n, one in fields.items() if n not in _OF_NOTES}
        self._set_expiry(fields)
        request = WriteRequest.model_validate(
            {
                "scope": scope, "source": source_of(company, issue), "content": text,
                "binding_key": binding, "kind": kind, **fields,
            }
        )  # fmt: skip
        done = self._done(here, "write", who, binding, scope, request.source)
        refused, why = not here.may(PEOPLE[who], "add", scope), ""
        refused = refused or here.stops("write", PEOPLE[who], [scope], binding, self.now)
        standing = here.standing(request, binding, self.now) if kind == "fact" else []
        if not refused and standing:
            owners = [one.scope for one in standing]
            refused = here.stops("write", PEOPLE[who], owners, binding, self.now) or not all(
                here.may(PEOPLE[who], "delete", one) for one in owners
            )
            why = "conflict" if len(standing) > 1 and not refused else ""
            if not (refused or why) and self._are_held(binding, who, here, standing):
                refused, done.type = True, "correct"
        work = self.service.write(self.caller(company, who), request)
        answer = self._do(done, refused, work, why)
        if answer is not None and standing:
            done.type = "correct"
            self._correct(done, answer, self._as_change(request, standing[0]), standing[0])
            return
        if answer is None or self._waits(done, answer, request, []):
            return
        if self.able[binding].async_ingestion:
            same(answer.handles, (), "what is stored at once")
            done.status, done.event, done.request = "unknown", answer.event or "", request
            return
        [record] = answer.records
        self._new(done, request, self._unmarked(PEOPLE[who], record))

    def _new(self, done: Operation, request: WriteRequest, record: Record) -> None:
        """Compare a new record with what was asked for."""
        binding = done.binding or ""
        key = binding, record.handle.provider_record_id
        expect(key not in self.companies[done.scope.company_id].records, f"{key} was there already")
        wanted = {**{n: getattr(request, n) for n in FIELDS if hasattr(request, n)},
                  "text": request.content, "created_at": self.now, "created_by": done.who.principal,
                  "scope": self.providers[binding].home(request.scope)}  # fmt: skip
        for name, value in wanted.items():
            if name in self.providers[binding].keeps and (value or name == "tags"):
                same(getattr(record, name), value, f"{name} of a new record")
        self._changed(done, {key: (None, record)})

    def _nth_later(self, company: str, nth: int, *, is_open: bool) -> Operation | None:
        """Return a write that its provider stores later and of which nothing is known, or came."""
        found = [
            one for one in self.companies[company].log
            if one.event and not one.steps and (one.is_open or not is_open)
        ]  # fmt: skip
        return found[nth % len(found)] if found else None

    def end(self, company: str, nth: int, how: str, *, who: str = "ana") -> None:
        """Let a provider end the nth open write, and ask what came of it.

        It is `stored`, `nothing` came of it, it `failed`, is `open` still, or its event is `lost`,
        maybe after it was stored.
        """
        taken = self._nth_later(company, nth, is_open=True)
        if taken is None:
            return
        here, caller = self.companies[company], self.caller(company, who)
        seen = here.sees(PEOPLE[who], taken)
        may = seen and here.may(PEOPLE[who], "view", taken.request.scope)
        how = how if may else "open"
        record = None if how == "open" else self.run(self._end(caller, taken, how))
        done = self._done(here, "check", who, taken.binding, taken.scope, taken.source)
        found: list[Any] = []

        async def check() -> Done:
            found.append(await self.service.check_outcome(caller, taken.id))
            return Done(found[0].check_id)

        self._do(done, not may, check())
        if not seen:  # so it is no operation for them, and nothing was asked
            here.log.remove(done)
        happened = {"open": None, "lost": None, "failed": False}.get(how, True)
        if found:
            same(found[0].happened, happened, f"whether what was {how} has happened")
        if how not in {"open", "lost"}:
            taken.ended = self.now
        if record is not None:
            self._new(taken, taken.request, record)

    async def _end(self, caller: Caller, taken: Operation, how: str) -> Record | None:
        runtime = self.service.runtime
        routed = await runtime.resolve(caller, taken.scope, taken.binding)
        adapter = (await runtime.open(routed.binding, company_read_only=False)).adapter
        return await adapter.end(taken.event, how)  # type: ignore[attr-defined, no-any-return]

    def undo_later(self, company: str, nth: int, *, who: str = "ana") -> None:
        """Try to take back a write of which nothing came, or is known."""
        here, taken = self.companies[company], self._nth_later(company, nth, is_open=False)
        if taken is None:
            return
        done = self._done(here, "undo", who, taken.binding, taken.scope, taken.source)
        refused = not here.sees(PEOPLE[who], taken)
        work = self.service.undo(self.caller(company, who), taken.id)
        self._do(done, refused, work, "" if refused else "invalid")

    def correct(
        self, at: At, nth: int, *, who: str = "ana", issue: str | None = None,
        stale: bool = False, place: str | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Change fields of one record, asked for in its scope or in a place.

        `expires` is in hours from now, 0 takes the expiry away.
        """
        (company, binding), fields = at, self._given(fields, self.providers[at[1]].corrects)
        here = self.companies[company]
        old = self._nth(here, binding, nth)
        if old is None:
            return
        if old.kind == "fact":
            fields = {n: one for n, one in fields.items() if n not in _OF_NOTES}
        if not fields:
            return
        if "text" in fields:
            fields["text"] = self._own(binding, fields["text"])
        self._set_expiry(fields)
        asked = scope_of(company, place) if place else self._asked(old)
        request = CorrectRequest.model_validate(
            {
                "scope": asked, "handle": old.handle, "binding_key": binding,
                "source": source_of(company, issue) if issue else None,
                "revision": "another" if stale else None, **fields,
            }
        )  # fmt: skip
        done = self._done(here, "correct", who, binding, request.scope, request.source)
        gone = self._is_gone(old) or not self.providers[binding].sees(asked, old.scope)
        scopes = [asked] if gone else [asked, old.scope]
        seen = gone or here.reads(PEOPLE[who], old.scope)
        refused = (
            not (seen and all(here.may(PEOPLE[who], "delete", one) for one in scopes))
            or here.stops("correct", PEOPLE[who], scopes, binding, self.now)
            or (not gone and self._are_held(binding, who, here, [old]))
        )  # fmt: skip
        why = "conflict" if stale and not refused else ""
        refused = refused or gone
        answer = self._do(
            done, refused, self.service.correct(self.caller(company, who), request), why
        )
        if answer is not None:
            self._correct(done, answer, request, old)

    def _correct(
        self, done: Operation, answer: MutationAnswer, request: CorrectRequest, old: Record
    ) -> None:
        """Compare what became of a record with what was asked for, by whatever channel."""
        if self._waits(done, answer, request, [old]):
            return
        here, binding = self.companies[done.scope.company_id], done.binding or ""
        [new] = answer.handles
        [record] = answer.records
        record = self._unmarked(done.who, record)
        same(told(record), self._corrected(old, record, request), "the corrected record")
        before, after = (binding, old.handle.provider_record_id), (binding, new.provider_record_id)
        steps: dict[Key, tuple[Record | None, Record | None]] = {before: (old, record)}
        done.source = request.source or old.source
        if before != after:
            steps = {before: (old, None), after: (None, record)}
            here.moved(before, after)
        self._changed(done, steps)

    def _as_change(self, request: WriteRequest, old: Record) -> CorrectRequest:
        """Return the change that the write of a key is that stands already."""
        tags = tuple(dict.fromkeys((*old.tags, *request.tags))) if request.tags else None
        return CorrectRequest(
            scope=request.scope, handle=old.handle, binding_key=request.binding_key,
            text=request.content, tags=tags, pinned=request.pinned or None,
            expires_at=request.expires_at, source=request.source,
        )  # fmt: skip

    def _corrected(
        self, old: Record, record: Record, request: CorrectRequest
    ) -> dict[str, object]:  # fmt: skip
        """Return what a record says once some of its fields were set."""
        asked = {name: getattr(request, name) for name in FIELDS if hasattr(request, name)}
        for name in ("scope", "source", "created_by"):
            asked.pop(name)
        wanted = (told(old) or {}) | {n: value for n, value in asked.items() if value is not None}
        if request.never_expires:
            wanted["expires_at"] = None
        wanted["summary"] = wanted["summary"] or None
        if self._of(old).keyed and old.kind == "fact" and record.text != old.text:
            wanted["valid_from"] = self.now  # the old value keeps its window
        if self._of(old).key in {"claude-memory", "later", "mcp-memory", "hermes"}:
            made = told(record) or {}  # what is not given is made of the text
            wanted |= {name: made[name] for name in ("title", "summary", "metadata")}
        return wanted

    def _set_expiry(self, fields: dict[str, Any]) -> None:
        hours = fields.pop("expires", None)
        if hours == 0:
            fields["never_expires"] = True
        elif hours is not None:
            fields["expires_at"] = self.now + timedelta(hours=hours)

    def forget(
        self, at: At, nths: Sequence[int], *, who: str = "ana", place: str | None = None
    ) -> None:
        """Remove one or more records, asked for in the scope of the first or in a place."""
        company, binding = at
        here = self.companies[company]
        chosen = [one for one in (self._nth(here, binding, nth) for nth in nths) if one]
        if not chosen:
            return
        asked = scope_of(company, place) if place else self._asked(chosen[0])
        there = [one for one in chosen if self.providers[binding].sees(asked, one.scope)]
        handles = tuple(dict.fromkeys(one.handle for one in chosen))
        request = ForgetRequest(scope=asked, handles=handles, binding_key=binding)
        done = self._done(here, "forget", who, binding, asked, None)
        refused = not there or not all(
            here.may(PEOPLE[who], "delete", one) for one in (asked, *(r.scope for r in there))
        )
        refused = refused or self._are_held(binding, who, here, there)
        answer = self._do(done, refused, self.service.forget(self.caller(company, who), request))
        if answer is None or self._waits(done, answer, request, there):
            return
        gone = {one.handle for one in there}
        sources = {one.source for one in there}
        done.source = sources.pop() if len(sources) == 1 else None
        same(set(answer.handles), gone, "what is gone")
        same((answer.ghosts, answer.refused), ((), {}), "what is left")
        same(set(answer.missing), set(handles) - gone, "what was missing")
        self._changed(
            done, {(binding, one.handle.provider_record_id): (one, None) for one in there}
        )

    def _are_held(
        self, binding: str, who: str, here: Company, records: Sequence[Record]
    ) -> bool:  # fmt: skip
        """Whether one of the records is held from somebody."""
        keys = {(binding, one.handle.provider_record_id) for one in records}
        return not here.held_from(PEOPLE[who]).isdisjoint(keys)

    def hold(self, at: At, nths: Sequence[int], *, who: str = "ana") -> None:
        """Let forgetting one or more records wait, and keep them from agents until then."""
        company, binding = at
        here, person = self.companies[company], PEOPLE[who]
        chosen = [one for one in (self._nth(here, binding, nth) for nth in nths) if one]
        if not chosen:
            return
        asked = self._asked(chosen[0])
        sees = self.providers[binding].sees
        there = [one for one in chosen if sees(asked, one.scope) and not self._is_gone(one)]
        handles = tuple(dict.fromkeys(one.handle for one in chosen))
        request = ForgetRequest(scope=asked, handles=handles, binding_key=binding)
        done = self._done(here, "review", who, binding, asked, None)
        scopes = [one.scope for one in there]
        refused = (
            person.is_agent or not there or not here.may(person, "view", asked)
            or not all(here.may(person, "delete", owner_scope(one)) for one in scopes)
        )  # fmt: skip
        work = self.service.review.hold(self.caller(company, who), request, "a trick")
        if (answer := self._do(done, refused, work)) is None:
            return
        by_name = {one.handle.provider_record_id: one for one in there}
        changes: Settings = {}
        for change in answer.settings:
            row = change.after or {}
            [name] = (one["handle"]["provider_record_id"] for one in row["base"])
            record, place = by_name.pop(name), ("pending", row["pending_id"])
            before, owners = here.state(place), [owner_scope(record.scope)]
            single = ForgetRequest.of([record], asked, binding)
            held = Waiting(row["pending_id"], binding, "forget", person, {}, single, owners,
                           {(binding, name): record}, is_hold=True)  # fmt: skip
            after = replace(before, times=before.times + 1) if before else held
            changes[place] = (before, after)
        same(by_name, {}, "what was not held")
        here.change(done, changes)

    def undo(self, company: str, nth: int = 0, *, part: Sequence[int] = ()) -> None:
        """Take back the nth newest change that was not refused, whether or not that can be.

        With `part` only these of its records that were not taken back yet.
        """
        here = self.companies[company]
        changes = [one for one in reversed(here.log) if one.steps]
        if not changes:
            return
        taken = changes[nth % len(changes)]
        done = self._done(here, "undo", "ana", taken.binding, taken.scope, taken.source)
        left = here.left(taken) or list(taken.steps)
        marked = [left[one % len(left)] for one in part]
        whole = left
        if part and not (taken.type == "correct" and len(left) > 1):  # two ids of one record
            # Equal records, numbered by their order, come back together.
            stems = {name.partition("~")[0] for _, name in marked}
            left = [one for one in left if one[1].partition("~")[0] in stems]
        steps = {key: taken.steps[key] for key in left}
        decided = taken.settings if len(left) == len(whole) else {}
        scopes = [one.scope for step in steps.values() for one in step if one]
        why = ""
        if here.undone(taken) or any(
            told(here.records.get(key)) != told(after) for key, (_, after) in steps.items()
        ) or any((here.state(one) is None) != (after is None)
                 for one, (_, after) in decided.items()):  # fmt: skip
            why = "conflict"
        refused = not all(here.may(PEOPLE["ana"], "delete", one) for one in scopes)
        refused = refused or not here.sees(PEOPLE["ana"], taken)
        if taken.erased:
            why = "invalid"
        if refused:
            why = ""
        records = [name for _, name in marked]
        undo = self.service.undo(self.caller(company, "ana"), taken.id, records=records)
        answer = self._do(done, refused, undo, why)
        if answer is None:
            return
        done.undoes = taken
        for old, new in answer.linked.items():
            here.moved((taken.binding or "", old), (taken.binding or "", new))
        self._changed(done, {key: (after, before) for key, (before, after) in steps.items()})
        here.change(done, _back(decided))

    def undo_setting(self, company: str, nth: int = 0, *, who: str = "ana") -> None:
        """Take back the nth newest change of limits, bindings or the queue."""
        here, person = self.companies[company], PEOPLE[who]
        changes = [
            one for one in reversed(here.log) if one.settings and not (one.steps or one.erased)
            and {place[0] for place in one.settings} <= {"limit", "binding", "pending"}
        ]  # fmt: skip
        if not changes or here.purged:
            return
        taken = changes[nth % len(changes)]
        back = _back(taken.settings)
        done = self._done(here, "undo", who, taken.binding, taken.scope, taken.source)
        waiting = [one or other for (kind, *_), (one, other) in back.items() if kind == "pending"]
        may = (
            all(here.decides(person, one) for one in waiting)
            if waiting
            else here.configures(person)
        )
        undone, sees = here.undone(taken), here.sees(person, taken)
        refused = not sees or not (undone or may)
        changed = undone or any(here.state(place) != before for place, (before, _) in back.items())
        why = "conflict" if changed and not refused else ""
        work = self.service.undo(self.caller(company, who), taken.id)
        self._set(done, refused, work, back, why=why, undoes=taken)

    def limit(
        self, company: str, target: str, name: str, most: int | None, *, period: str = "day",
        action: str = "refuse", who: str = "ana",
    ) -> None:  # fmt: skip
        """Set the most tokens that something may spend, and what is refused then; None: none."""
        here, person, caller = self.companies[company], PEOPLE[who], self.caller(company, who)
        place = "limit", target, name, period
        before, after = here.settings.get(place), (most, action) if most else None
        acts = before != after and any(one and one[1] != "warn" for one in (before, after))
        done = self._done(here, "configure", who, None, Scope(company_id=company), None)
        refused = not here.configures(person) or (person.is_agent and acts)
        work: Coroutine[Any, Any, object]
        if most is None:
            work = self.service.limits.remove(
                caller, LimitTarget(target), name, period=LimitPeriod(period)
            )
            refused = refused or before is None
        else:
            work = self.service.limits.set(caller, SpendingLimit.model_validate({
                "target_type": target, "target_id": name, "measure": LimitMeasure.TOKENS,
                "amount": most, "period": period, "action": action,
            }))  # fmt: skip
        self._set(done, refused, work, {place: (before, after)})

    def spend(self, at: At, place: str, tokens: int, *, who: str = "ana") -> None:
        """Ask a question, whose answer costs so many tokens."""
        (company, binding), scope = at, scope_of(at[0], place)
        here, person = self.companies[company], PEOPLE[who]
        done = self._done(here, "query", who, binding, scope, None)
        request = QueryRequest(scope=scope, query="port", binding_key=binding)
        refused = not here.may(person, "view", scope)
        refused = refused or here.stops("query", person, [scope], binding, self.now)
        if self._do(done, refused, self._paid(self.caller(company, who), request, tokens)):
            here.spending.append(Spent(self.now, tokens, binding, scope, person))

    async def _paid(self, caller: Caller, request: QueryRequest, tokens: int) -> Any:
        runtime = self.service.runtime
        routed = await runtime.resolve(caller, request.scope, request.binding_key)
        adapter = (await runtime.open(routed.binding, company_read_only=False)).adapter
        query, paid = adapter.query, Usage(provider="a model", input_tokens=tokens)

        async def priced(asked: QueryRequest) -> Any:
            bundle = await query(asked)
            return bundle.model_copy(update={"usage": (*bundle.usage, paid)})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adapter, "query", priced)
            return await self.service.query(caller, request)

    def agree_by_two(self, company: str) -> None:
        """Let a second person, who is made an admin, say yes to what changes bindings."""
        here, caller = self.companies[company], self.caller(company, "ana")
        if not here.members:  # would close it
            done = self._done(here, "configure", "ana", None, Scope(company_id=company), None)
            work = self.service.companies.update(caller, second_yes=True)
            self._set(done, False, work, {}, why="invalid")
            return
        if here.second_yes:
            return
        zed = Membership(principal="user:zed", subject_id="zed", role=Role.ADMIN)
        done = self._done(here, "configure", "ana", None, Scope(company_id=company), None)
        member = ("member", "zed")
        self._set(done, False, self.service.members.set(caller, zed), {member: (None, "admin")})
        here.members.append(Member("user:zed", "admin"))
        done = self._done(here, "configure", "ana", None, Scope(company_id=company), None)
        work = self.service.companies.update(caller, second_yes=True)
        self._set(done, False, work, {("company",): (None, True)})

    def capture(self, at: At, *, who: str = "ana") -> None:
        """Let a binding take in comments, or no longer."""
        (company, binding), person = at, PEOPLE[who]
        here, place = self.companies[company], ("binding", binding)
        word, on = here.state(place)
        done = self._done(here, "configure", who, binding, Scope(company_id=company), None)
        work = self.service.bindings.update(
            self.caller(company, who), binding, capture={Capture.COMMENTS: not on}
        )
        self._set(done, not here.configures(person), work, {place: ((word, on), (word, not on))})

    def _set(
        self, done: Operation, refused: bool, work: Coroutine[Any, Any, object],
        changes: Settings, *, why: str = "", undoes: Operation | None = None,
    ) -> None:  # fmt: skip
        """Change settings for real; they wait exactly where a second person has to say yes."""
        here = self.companies[done.scope.company_id]
        changes = {place: (a, b) for place, (a, b) in changes.items() if a != b}
        asks = here.second_yes and any(place[0] in GATED for place in changes)
        if asks and not (refused or why):
            self._do(done, refused, work, "awaitssecond")
            self._propose(done, Proposal(changes, undoes))
        elif self._do(done, refused, self._named(here.name, work), why):
            here.change(done, changes)
            done.undoes = undoes

    async def _named(self, company: str, work: Coroutine[Any, Any, object]) -> Done:
        await work
        return Done(self._newest(company).operation_id)

    def _propose(self, done: Operation, proposal: Proposal) -> None:
        """Let a change of settings wait; the same one waits once."""
        here, newest = self.companies[done.scope.company_id], self._newest(done.scope.company_id)
        done.status, done.id = "pending", newest.operation_id
        asked: dict[str, object] = {"settings": proposal.settings}
        alike = [one for one in here.queue if one.asked == asked]
        pending_id = newest.request["pending"]
        same(pending_id, alike[0].id if alike else done.id, "what it waits as")
        if alike:
            alike[0].times += 1
            return
        [binding] = {place[1] for place in proposal.settings}
        owner = Scope(company_id=here.name)
        here.queue.append(
            Waiting(pending_id, binding, "configure", done.who, asked, proposal, [owner], {})
        )

    def _decide_settings(self, here: Company, one: Waiting, how: str, who: str) -> None:
        """Agree to a proposal or refuse it; who made it may withdraw it alone."""
        caller, person = self.caller(here.name, who), PEOPLE[who]
        company, refused = Scope(company_id=here.name), not here.decides(person, one)
        if how == "refuse" or refused:
            decision = self.service.review.refuse if how == "refuse" else self.service.review.accept
            done = self._done(here, "review", who, one.binding, company, None)
            place = "pending", one.id
            work = decision(caller, one.id)
            self._set(done, refused, work, {place: (here.state(place), None)})
            return
        proposal: Proposal = one.request
        does = "undo" if proposal.undoes else "configure"
        done = self._done(here, does, who, one.binding, company, None)
        is_own = person.person in {one.who.principal, one.who.acts_for}
        settings = proposal.settings
        changed = any(here.state(place) != before for place, (before, _) in settings.items())
        why = "conflict" if changed and not is_own else ""
        if self._do(done, is_own, self.service.review.accept(caller, one.id), why):
            here.change(done, settings)
            done.undoes = proposal.undoes
            here.queue.remove(one)

    def review(self, company: str, binding: str, *, text: str = "") -> None:
        """Let what agents ask a binding for wait for a person, or only what says a text."""
        here, place = self.companies[company], ("binding", binding)
        word, on = here.state(place)
        if word is not None:
            return
        test = RuleTest.TEXT if text else RuleTest.ALL
        rule = ReviewRule(action=RuleAction.HOLD, test=test, value=text)
        done = self._done(here, "configure", "ana", binding, Scope(company_id=company), None)
        work = self.service.review.add_rule(self.caller(company, "ana"), binding, rule)
        self._set(done, False, work, {place: ((word, on), (text, on))})

    def decide(  # noqa: C901 - a refusal, and three sorts of request
        self, company: str, nth: int, how: str, *, who: str = "ana"
    ) -> None:
        """Decide on the nth request that waits: `accept`, `refuse`, or a text to fix it with."""
        here = self.companies[company]
        if not here.queue:
            return
        one = here.queue[nth % len(here.queue)]
        if one.type == "configure":
            self._decide_settings(here, one, how, who)
            return
        caller, person = self.caller(company, who), PEOPLE[who]
        action = "add" if one.type == "write" else "delete"
        seen = here.knows_of(person, one)
        refused = not (seen and here.decides(person, one))
        scope, place = one.owners[0], ("pending", one.id)
        decided: Settings = {place: (here.state(place), None)}
        if how == "refuse":
            done = self._done(here, "review", who, one.binding, scope, one.request.source)
            self._set(done, refused, self.service.review.refuse(caller, one.id), decided)
            return
        text = None if how == "accept" else self._own(one.binding, how)
        if text and not getattr(one.request, "content", getattr(one.request, "text", None)):
            return
        now = {key: here.records.get(key) for key in one.base}
        changed = any(told(now[key]) != told(then) for key, then in one.base.items())
        done = self._done(
            here, "write" if refused and not seen else one.type, who, one.binding, scope,
            one.request.source,
        )  # fmt: skip
        if refused and not seen:
            done.type = "review"
        if one.type == "write" and one.request.kind == "fact" and here.standing(
            one.request, one.binding, self.now
        ):  # fmt: skip
            here.log.remove(done)
            return
        owned = [] if None in now.values() else [then.scope for then in one.base.values()]
        refused = (
            refused
            or not here.may(person, action, one.request.scope)
            or here.stops(one.type, person, [one.request.scope, *owned], one.binding, self.now,
                          asker=one.who)
        )  # fmt: skip
        why = "conflict" if changed and not refused else ""
        answer = self._do(done, refused, self.service.review.accept(caller, one.id, text=text), why)
        if answer is None:
            return
        here.change(done, decided)
        steps: dict[Key, tuple[Record | None, Record | None]]
        if one.type == "forget":
            steps = {key: (then, None) for key, then in one.base.items()}
        else:
            [record] = answer.records
            key = one.binding, record.handle.provider_record_id
            old = next(iter(one.base.values()), None)
            self._check_accepted(one, record, old, text)
            done.source = one.request.source or (old.source if old else None)
            steps = {key: (old, record)}
            old_key = next(iter(one.base), key)
            if old_key != key:
                steps = {old_key: (old, None), key: (None, record)}
                here.moved(old_key, key)
        if one.type == "forget":
            sources = {then.source for then in one.base.values()}
            done.source = sources.pop() if len(sources) == 1 else None
        self._changed(done, steps)

    def _check_accepted(
        self, one: Waiting, record: Record, old: Record | None, text: str | None
    ) -> None:
        """Compare what was let in with what was asked for, by whom."""
        if one.type == "write":
            asked = {n: getattr(one.request, n) for n in FIELDS if hasattr(one.request, n)}
            asked |= {"text": text or one.request.content, "created_by": one.who.principal}
            if text:
                asked.pop("summary", None)
            for name in ("text", "created_by", "tags", "topic", "pinned", "expires_at"):
                if name in self.providers[one.binding].keeps and (asked[name] or name == "tags"):
                    same(getattr(record, name), asked[name], f"{name} of what was accepted")
        elif old is not None:
            asked = one.request.model_copy(update={"text": text} if text else {})
            same(told(record), self._corrected(old, record, asked), "what was accepted")

    def purge(
        self, company: str, *, at: At | None = None, nth: int = 0, subject: str | None = None,
        project: str | None = None, forget: bool = True, gone: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Erase a record, or all of a user or project; no file may say `gone` afterwards."""
        here = self.companies[company]
        ever = {key: one for _, state in here.past for key, one in state.items()}
        opened: list[Operation] = []
        if at is not None:
            names = [key for key in ever if key[0] == at[1]]
            if not names:
                return
            keys = {names[nth % len(names)]}
            request = PurgeRequest(record_id=next(iter(keys))[1], binding_key=at[1], forget=forget)
        else:
            field = "subject_id" if subject else "project_id"
            owner = subject or project
            keys = {key for key, one in ever.items() if getattr(one.scope, field) == owner}
            opened = [
                one for one in here.log
                if one.is_open and getattr(one.request.scope, field) == owner
            ]  # fmt: skip
            request = PurgeRequest(subject_id=subject, project_id=project, forget=forget)
        living = {key for key in keys if key in here.records}
        if not keys or (living and not forget):
            return
        last = self._newest(company).seq
        applied = self.service.purging.apply(self.caller(company, "ana"), request)
        owners = [owner_scope(here.records[key].scope) for key in living]
        if not all(here.may(PEOPLE["ana"], "delete", one) for one in owners):
            scope = Scope(company_id=company)
            self._do(self._done(here, "purge", "ana", None, scope, None), True, applied)
            return
        answer = self.run(applied)
        same(answer.left, (), "what a purge left")
        for key in living:
            here.records.pop(key)
        here.purge(keys)
        for each in opened:  # what comes of it later stands in the log without its text
            each.erased = True
        owned = ("subject_id", subject or "") if subject else ("project_id", project or "")
        here.queue = [one for one in here.queue if owned not in map(owner_of, one.owners)]
        self._note_purge(company, last)
        if living:
            here.changed(self.now)
        for text in gone:
            self._refuse_traces(text)

    def purge_source(self, company: str, issue: str) -> None:
        """Erase what was written from an issue, where all of it still says so and may be forgotten.

        No text of the model is long enough to come back in another.
        """
        here, ref = self.companies[company], address_of(issue)
        seeds = [
            one for one in here.log
            if one.type in {"write", "correct"} and one.status == "ok" and not one.erased
            and one.source and one.source.external_ref == ref
        ]  # fmt: skip
        request = PurgeRequest(source=ref, forget=True)
        if not seeds or not here.manages(PEOPLE["ana"]):
            return
        plan = self.run(self.service.purging.plan(self.caller(company, "ana"), request))
        self._done(here, "browse", "ana", None, Scope(company_id=company), None)
        going = {(one.binding_key, one.record_id) for one in plan.living}
        keys = {self._now(here, key) for one in seeds for key in one.steps}
        said = {
            self._now(here, key): after.text
            for one in seeds for key, (_, after) in one.steps.items() if after
        }  # fmt: skip
        same({key for key in keys if key in here.records}, going, "what would go of an issue")
        if any(one.stays for one in plan.living):
            changed = [key for key in going if said[key] not in here.records[key].text]
            expect(changed or here.members, "a record stays that nothing changed")
            return
        last = self._newest(company).seq
        answer = self.run(self.service.purging.apply(self.caller(company, "ana"), request))
        same(answer.left, (), "what a purge of an issue left")
        for key in going:
            here.records.pop(key)
        here.purge(keys | {key for one in seeds for key in one.steps})
        for one in here.log:
            one.erased = one.erased or bool(one.source and one.source.external_ref == ref)
        here.queue = [
            one for one in here.queue
            if not (one.request.source and one.request.source.external_ref == ref)
        ]  # fmt: skip
        self._note_purge(company, last)
        if going:
            here.changed(self.now)

    @staticmethod
    def _now(here: Company, key: Key) -> Key:
        return here.links.get(key, key)

    def _note_purge(self, company: str, last: int) -> None:
        """Note the operations that a purge logged after the number `last`."""
        here = self.companies[company]
        page = self.service.runtime.log(company).page(Filter(), limit=1000, after=last)
        for one in reversed(page.operations):
            kind, key = str(one.operation_type), one.binding_key
            self._done(here, kind, "ana", key, one.scope, None).erased = True

    def _refuse_traces(self, text: str) -> None:
        for path in (*self.folder.rglob("*"), *self.theirs.rglob("*")):
            if path.is_file():
                expect(text.encode() not in path.read_bytes(), f"{path.name} still says {text}")

    def seal(self, company: str) -> None:
        """Seal the whole log."""
        self.sealed.add(company)
        self.run(
            self.service.analysis.seal(self.caller(company, "ana", APP_CHANNEL), everything=True)
        )

    def migrate(self, company: str) -> None:
        """Move a copy of what the first binding holds into the second; what is there stays."""
        here = self.companies[company]
        if self._is_limited(here) or any(one.async_ingestion for one in self.able.values()):
            return
        before = {name: one for (key, name), one in here.records.items() if key == "two"}
        applied = self.run(self._between(company, apply))
        same(applied.failed, 0, "what could not be moved")
        self._read_again(company)
        for name, one in before.items():
            same(told(here.records.get(("two", name))), told(one), f"{name}, which was there")
        missing = self._common(company, "one") - self._common(company, "two")
        expect(not missing, f"not moved: {missing}")
        here.synced = None

    def sync(self, company: str) -> None:
        """Keep the two bindings in sync: where one side has changed, the other gets the change.

        Where both changed the first one's version is kept, and deletions pass.
        """
        here = self.companies[company]
        if self._is_limited(here) or any(one.async_ingestion for one in self.able.values()):
            return
        sides = [self._common(company, key) for key in BINDINGS[company]]
        synced = self.run(self._between(company, sync))
        wanted = None
        if not synced.conflicts and here.synced is not None:  # what both held, and changed since
            last = here.synced
            gone = (last - sides[0]) + (last - sides[1])
            wanted = last - gone + (sides[0] - last) + (sides[1] - last)
        for one in synced.conflicts:
            name = next(each for each in one.records if each).handle.provider_record_id
            self.run(self._between(company, partial(resolve, record_id=name, keep="one")))
        doomed = sum(len(one.record_ids) for one in synced.held_back)
        if doomed or synced.conflicts:
            synced = self.run(self._between(company, partial(sync, delete=doomed or None)))
        same((synced.failed, synced.conflicts, synced.held_back), (0, (), ()), "the sync")
        self._read_again(company)
        here.synced = self._common(company, "one")
        same(self._common(company, "two"), here.synced, "two after a sync")
        if wanted is not None:
            same(here.synced, wanted, "both after a sync")

    def _is_limited(self, here: Company) -> bool:
        """Whether a limit is passed that may refuse a part of what is done to many owners."""
        return any(
            action != "warn" and here.spent(limit, self.now) > most
            for limit, (most, action) in here.limits().items()
        )

    async def _between(self, company: str, work: Callable[[Endpoints, Path], Awaitable[T]]) -> T:
        caller = self.caller(company, "ana")
        return await work(await open_endpoints(self.service, caller, "one", "two"), self._data)

    def _common(self, company: str, binding: str) -> Counter[tuple[object, ...]]:
        """Return how often a binding says what, in the fields that both keep."""
        kept = set.intersection(*(set(one.corrects | {"text"}) for one in self.providers.values()))
        names = sorted(kept - {"expires"}) + (["expires_at"] if "expires" in kept else [])
        return Counter(
            (owner_of(one.scope), *(getattr(one, name) for name in names))
            for one in self.companies[company].of(binding)
            if self.companies[company].reads(PEOPLE["ana"], one.scope) and holds(one, self.now)
        )

    @property
    def _data(self) -> Path:
        return self.service.paths.data

    def _read_again(self, company: str) -> None:
        """Take what two bindings hold as it is: what did it is not one step each."""
        here = self.companies[company]
        here.records = {}
        sees_all = (("ana", "company"), ("cy", "company"), ("cy", "user cy"))
        for key, (who, place) in itertools.product(BINDINGS[company], sees_all):
            request = BrowseRequest(
                scope=scope_of(company, place), binding_key=key, limit=PAGE, expired=True
            )
            caller = self.caller(company, who, APP_CHANNEL)
            for one in self.run(self._pages(caller, request)) or ():
                here.records[key, one.handle.provider_record_id] = one
        here.begin_anew(self.now)
        self.begun[company] = self._newest(company).seq

    # The plain side of a step

    def _waits(
        self, done: Operation, answer: MutationAnswer, request: Any, changes: Sequence[Record]
    ) -> bool:
        """Whether a step waits for a person, as it has to where an agent asks and it is said so."""
        here, binding = self.companies[done.scope.company_id], done.binding or ""
        held = answer.pending
        word = here.state(("binding", binding))[0] if done.who.is_agent else None
        names = ("content", "text", "title", "summary", "topic", "tags")
        says = [str(getattr(request, name, "")) for name in names]
        waits = word is not None and any(word in one for one in says)
        same(held is not None, waits, "whether it waits")
        if held is None:
            return False
        done.status = "pending"
        owners = list(dict.fromkeys(self._asked(one) for one in changes)) or [
            owner_scope(self.providers[binding].home(request.scope))
        ]
        owners = [owner_scope(one) for one in owners]
        asked = request.model_dump(exclude={
            "source", "created_by", "created_at", "metadata", "embedding", "revision", "revisions",
            "scope",
        })  # fmt: skip
        asked |= {"type": done.type, "binding": binding, "owners": [owner_of(o) for o in owners]}
        alike = [one for one in here.queue if one.asked == asked]
        same(held.again, bool(alike), "whether it waits already")
        if alike:
            same(held.pending_id, alike[0].id, "what it waits as")
            alike[0].times += 1
        else:
            base = {(binding, one.handle.provider_record_id): one for one in changes}
            here.queue.append(
                Waiting(held.pending_id, binding, done.type, done.who, asked, request, owners, base)
            )
        return True

    def _done(
        self, here: Company, type_: str, who: str, binding: str | None, scope: Scope,
        source: SourceRef | None,
    ) -> Operation:  # fmt: skip
        done = Operation(type_, "ok", PEOPLE[who], self.now, binding, scope, source)
        here.log.append(done)
        return done

    def _do(
        self, done: Operation, refused: bool, work: Coroutine[Any, Any, T], why: str = ""
    ) -> T | None:  # fmt: skip
        """Do a step for real; it must be refused exactly where that is foretold."""
        try:
            answer = self.run(work)
        except MemtuiError as error:
            kind = error.kind.lower()
            foretold = {why} if why else {"denied", "notfound"} if refused else set()
            expect(kind in foretold, f"{type(error).__name__}: {error}")
            done.status = {"denied": "denied", "conflict": "conflict"}.get(kind, "error")
            return None
        expect(not (refused or why), f"the {done.type} was not refused")
        done.id = answer.operation_id  # type: ignore[attr-defined]
        return answer

    def _changed(
        self, done: Operation, steps: dict[Key, tuple[Record | None, Record | None]]
    ) -> None:
        here = self.companies[done.scope.company_id]
        done.steps, done.ids = steps, [name for _, name in steps]
        for key, (_, after) in steps.items():
            if after is None:
                here.records.pop(key, None)
            else:
                here.records[key] = after
        here.changed(self.now)

    def _nth(self, here: Company, binding: str, nth: int) -> Record | None:
        found = here.of(binding)
        return found[nth % len(found)] if found else None

    def _asked(self, record: Record) -> Scope:
        names = ("project_id", "subject_id", "agent_id")
        return Scope(
            company_id=record.scope.company_id, **{n: getattr(record.scope, n) for n in names}
        )

    def _is_gone(self, record: Record) -> bool:
        return not holds(record, self.now)

    def _unmarked(self, who: Who, record: Record) -> Record:
        """Return a record without the mark that an agent gets on what is the whole company's."""
        if not who.is_agent:
            return record
        told_ = {"text": record.text, "summary": record.summary}
        return record.model_copy(
            update={name: without_prefix(text) for name, text in told_.items() if text}
        )

    # What is compared

    def check(self) -> None:
        """Compare everything that can be read."""
        looks = [("ana", "company"), ("coding", "user cy"), ("cy", "web, cy"), ("ana", "web"),
                 ("scout", "web, coding"), ("zed", "company"), ("zed", "user ana")]  # fmt: skip
        for name, bindings in BINDINGS.items():
            here = self.companies[name]
            if not here.log:
                continue
            for binding in bindings:
                for who, place in looks if here.members else looks[:3]:  # all see the same
                    self.check_list((name, binding), place, who)
                for word in ("port", "deploy"):
                    self.check_query((name, binding), "web, cy", "cy", word)
                for hours in (1, 3, 30):
                    self.check_list((name, binding), "company", "ana", hours=hours)
                    self.check_list((name, binding), "company", "ana", hours=hours, just=True)
                    self.check_changes((name, binding), "company", "ana", hours)
                for zone in (0, 1):
                    self.check_days((name, binding), zone, 30, 1)
                self.check_query((name, binding), "web", "ana", "port", hours=2)
                self.check_query((name, binding), "web", "ana", "port", hours=2, owners=["web"])
            for place in ("web", "web, cy", "agent coding"):
                self.check_context(name, place, "cy", "port")
            self.check_queue(name)
            self.check_limits(name)
            self.check_records(name)
            self.check_log(name)
            if here.purged:
                chain = self.run(
                    self.service.analysis.verify_chain(self.caller(name, "ana", APP_CHANNEL))
                )
                expect(chain.broken_seq is None, "the chain does not hold after a purge")

    def _view(
        self, at: At, scope: Scope, who: str, sees: Sees, moment: datetime | None = None
    ) -> dict[str, Record]:
        """Return what somebody sees of a binding in a scope, now or at a moment."""
        here = self.companies[at[0]]
        state = here.records if moment is None else here.at(moment)
        return {
            name: one
            for (key, name), one in state.items()
            if key == at[1]
            and (key, name) not in here.held_from(PEOPLE[who])
            and sees(scope, one.scope)
            and here.reads(PEOPLE[who], one.scope)
            and holds(one, moment or self.now)
            and (holds(one, self.now) or not self.providers[at[1]].hides_expired)
        }

    def _may(self, what: str, at: At, who: str, scope: Scope) -> bool:
        """Whether somebody may look at a scope, and no passed limit stops it."""
        (company, binding), person = at, PEOPLE[who]
        here = self.companies[company]
        return here.may(person, "view", scope) and not here.stops(
            what, person, [scope], binding, self.now
        )

    def _moment(self, hours: int | None, *, just: bool = False) -> datetime | None:
        """Return the moment so many hours ago, or the last one before it; None: now."""
        return self.now - timedelta(hours=hours, microseconds=just) if hours else None

    def check_list(
        self, at: At, place: str, who: str, *, hours: int | None = None, newest: bool = False,
        tag: str | None = None, topic: str | None = None, issue: str | None = None,
        kind: str | None = None, since: int | None = None, until: int | None = None,
        owners: Sequence[str] | None = None, just: bool = False,
    ) -> None:  # fmt: skip
        """Compare a list, read three at a time; `since` and `until` are in hours from now back."""
        company, binding = at
        here, scope = self.companies[company], scope_of(company, place)
        moment = self._moment(hours, just=just)
        begin = None if since is None else self.now - timedelta(hours=since)
        end = None if until is None else self.now - timedelta(hours=until)
        chosen = Filter(tag=tag, topic=topic, issue_id=issue, kind=kind, since=begin, until=end)
        owned = tuple(scope_of(company, one) for one in owners or ())
        if not here.knows(moment or self.now) or (owned and not self.able[binding].chosen_owners):
            return
        request = BrowseRequest(
            scope=scope, binding_key=binding, limit=PAGE, filter=chosen, owners=owned,
            sort="-created_at" if newest else "created_at", as_of=moment,
        )  # fmt: skip
        wanted = {
            name: one
            for name, one in self._view(
                at, scope, who, self.providers[binding].lists, moment
            ).items()
            if (tag is None or any(t == tag or t.startswith(f"{tag}/") for t in one.tags))
            and topic in (None, one.topic)
            and kind in (None, one.kind)
            and (issue is None or (one.source is not None and one.source.issue_id == issue))
            and (begin is None or (one.created_at is not None and begin <= one.created_at))
            and (end is None or (one.created_at is not None and one.created_at < end))
            and (not owned or owner_of(one.scope) in map(owner_of, owned))
        }
        found = self.run(self._pages(self.caller(company, who, APP_CHANNEL), request))
        allowed = self._may("browse", at, who, scope)
        same(found is not None, allowed, "whether the list may be seen")
        if found is None:
            return
        records = [self._unmarked(PEOPLE[who], one) for one in found]
        ids = [one.handle.provider_record_id for one in records]
        same(sorted(ids), sorted(wanted), f"the list of {place} in {binding} for {who}")
        for record in records:
            name = record.handle.provider_record_id
            same(told(record), told(wanted[name]), f"{name} in the list of {place}")
        made = [one.created_at for one in records if one.created_at]
        same(made, sorted(made, reverse=newest), "the order of a list")

    async def _pages(self, caller: Caller, request: BrowseRequest) -> list[Record] | None:
        found: list[Record] = []
        for _ in range(100):
            try:
                page = await self.service.browse(caller, request)
            except Denied:
                return None
            found += page.records
            if page.next_cursor is None:
                expect(page.total in (None, len(found)), f"{page.total} in a list of {len(found)}")
                return found
            request = request.model_copy(update={"cursor": page.next_cursor})
        fail("the list does not end")

    def check_query(
        self, at: At, place: str, who: str, word: str, *, hours: int | None = None,
        owners: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Compare what a query of one word finds, whatever its rank."""
        company, binding = at
        here, scope, moment = self.companies[company], scope_of(company, place), self._moment(hours)
        owned = tuple(scope_of(company, one) for one in owners or ())
        if not here.knows(moment or self.now) or (owned and not self.able[binding].chosen_owners):
            return
        request = QueryRequest(
            scope=scope, query=word, binding_key=binding, top_k=100, as_of=moment, owners=owned
        )
        work = self.service.query(self.caller(company, who, APP_CHANNEL), request)
        try:
            found = self.run(work).snippets
        except Denied:
            expect(not self._may("query", at, who, scope), "the query was denied")
            return
        expect(self._may("query", at, who, scope), "the query was not denied")
        view = self._view(at, scope, who, self.providers[binding].sees, moment)
        owner_set = set(map(owner_of, owned))
        seen = {n: one for n, one in view.items() if not owned or owner_of(one.scope) in owner_set}
        ids = {one.handle.provider_record_id for one in found}
        missed = {name for name, one in seen.items() if _says(one, word)} - ids
        expect(not missed, f"it does not find {missed}")
        expect(ids <= seen.keys(), f"it finds {ids - seen.keys()}")
        for one in found:
            name = one.handle.provider_record_id
            same(told(self._unmarked(PEOPLE[who], one)), told(seen[name]), f"{name} in a query")

    def check_got(self, at: At, place: str, who: str, *, hours: int) -> None:
        """Compare which records there ever were can be got in a place as of a moment, and how."""
        (company, binding), scope = at, scope_of(at[0], place)
        here, moment = self.companies[company], self.now - timedelta(hours=hours)
        view = self._view(at, scope, who, self.providers[binding].sees, moment)
        caller = self.caller(company, who, APP_CHANNEL).at(moment)
        for name in {name for _, state in here.past for key, name in state if key == binding}:
            record = None
            with contextlib.suppress(Denied, NotFound):
                work = self.service.get(caller, name, scope, binding_key=binding)
                record = self._unmarked(PEOPLE[who], self.run(work).record)
            wanted = view.get(name) if self._may("get", at, who, scope) else None
            same(told(record), told(wanted), f"{name} in {place} for {who}")

    def check_context(self, company: str, place: str, who: str, prompt: str) -> None:
        """Compare what a model is told: the facts of each owner, from what serves that owner."""
        scope, caller = scope_of(company, place), self.caller(company, who, APP_CHANNEL)
        request = ContextRequest(scope=scope, prompt=prompt, budget=100_000)
        whole = self._serving(company, scope)
        at, work = (company, whole), self.service.context(caller, request)
        try:
            answer = self.run(work)
        except Denied:
            expect(not self._may("context", at, who, scope), "the context was denied")
            return
        expect(self._may("context", at, who, scope), "the context was not denied")
        wanted: dict[str, set[Key]] = {}
        listed: set[Key] = set()
        for section, owner, kind in _parts(scope):
            binding = self._serving(company, owner)
            wanted[section] = {
                (binding, name)
                for name, one in self._view((company, binding), owner, who, exactly).items()
                if one.kind == kind and owner_of(one.scope) == owner_of(owner)
            }
            listed |= wanted[section]
        found = {
            one.kind.value: {
                (fact.binding_key or "", fact.handle.provider_record_id)
                for fact in one.facts
                if fact.handle
            }
            for one in answer.sections
        }
        related, searched = found.pop("related", set()), self._may("query", at, who, scope)
        same("notice" in found, not searched, "whether a context says that nothing was searched")
        found.pop("notice", None)
        same(found, {name: keys for name, keys in wanted.items() if keys}, "a context")
        if not searched:
            same(related, set(), "what was found past a limit")
            return
        self._check_cut(company, scope, who, prompt, answer)
        view = self._view((company, whole), scope, who, self.providers[whole].sees)
        mine = {
            (whole, name): one
            for name, one in view.items()
            if owner_of(one.scope)[0] not in {"project_id", "subject_id"}
            or owner_of(one.scope)[1] == getattr(scope, owner_of(one.scope)[0])
        }
        extra = related - (mine.keys() - listed)
        expect(not extra, f"a context tells {extra} too")
        missed = {key for key, one in mine.items() if _says(one, prompt)} - listed - related
        expect(not missed, f"a context does not tell {missed}")

    def check_queue(self, company: str) -> None:
        """Compare what waits for review, as each person sees it."""
        here = self.companies[company]
        for who in ("ana", "bo", "cy", *["zed"] * here.second_yes) if here.members else ("cy",):
            person, caller = PEOPLE[who], self.caller(company, who, APP_CHANNEL)
            wanted = [
                (one.id, one.binding, one.type, one.who.principal, one.times)
                for one in here.queue
                if here.knows_of(person, one)
            ]
            found = self.run(self.service.review.waiting(caller))
            shown = [
                (one.pending_id, one.binding_key, one.operation_type, one.principal, one.times)
                for one in found
            ]
            same(sorted(shown), sorted(wanted), f"what waits for {who}")

    def check_limits(self, company: str) -> None:
        """Compare the limits, and what was spent of each."""
        here = self.companies[company]
        found = self.run(self.service.limits.check(self.caller(company, "ana", APP_CHANNEL)))
        names = [one.target_id if one.target_type != "company" else "" for one in found]
        shown = {
            ("limit", one.target_type, name, one.period): (
                one.amount, one.action, one.spent, one.state == "passed"
            )
            for one, name in zip(found, names, strict=True)
        }  # fmt: skip
        wanted = {
            limit: (most, action, spent, spent > most)
            for limit, (most, action) in here.limits().items()
            for spent in [here.spent(limit, self.now)]
        }
        same(shown, wanted, "the limits")

    def check_changes(self, at: At, place: str, who: str, hours: int) -> None:
        """Compare what differs between now and so many hours ago."""
        (company, binding), scope = at, scope_of(at[0], place)
        here, moment = self.companies[company], self.now - timedelta(hours=hours)
        caller = self.caller(company, who, APP_CHANNEL)
        if not here.knows(moment):
            return
        lists = self.providers[binding].lists
        before, after = (self._view(at, scope, who, lists, one) for one in (moment, self.now))
        wanted = {
            (before.get(name) and name, after.get(name) and name)
            for name in {*before, *after}
            if _shown(before.get(name)) != _shown(after.get(name))
        }
        work = self.service.past.compare(caller, scope, moment, binding_key=binding)
        try:
            answer = self.run(work)
        except Denied:
            expect(not self._may("history", at, who, scope), "the comparison was denied")
            return
        expect(self._may("history", at, who, scope), "the comparison was not denied")
        found = {
            tuple(one and one.handle.provider_record_id for one in (each.before, each.after))
            for each in answer.differences
        }
        same(found, wanted, f"what changed in {binding} since {hours} h")

    def check_days(self, at: At, zone: int, since: int, until: int) -> None:
        """Compare how much changed on each day of a zone; the clocks change on one of them."""
        company, binding = at
        if self.able[binding].validity or self.companies[company].purged:
            return
        here, caller = self.companies[company], self.caller(company, "ana", APP_CHANNEL)
        begin, end = (self.now - timedelta(hours=hours) for hours in (since, until))
        if here.since is not None and begin <= here.since:
            return
        counts: dict[date, dict[str, int]] = {}
        for done in here.log:
            if not begin <= done.at < end or done.binding != binding:
                continue
            for before, after in done.steps.values():
                scope = (before or after).scope  # type: ignore[union-attr]
                if not here.reads(PEOPLE["ana"], scope):
                    continue
                kind = "removed" if after is None else "changed" if before else "added"
                day = counts.setdefault(done.at.astimezone(ZONES[zone]).date(), {})
                day[kind] = day.get(kind, 0) + 1
        answer = self.run(
            self.service.past.moments(
                caller, Scope(company_id=company), since=begin, until=end, zone=ZONES[zone],
                binding_key=binding,
            )
        )  # fmt: skip
        found = {
            one.day: {kind: n for kind in ("added", "changed", "removed")
                      if (n := getattr(one, kind))}
            for one in answer.days
        }  # fmt: skip
        same(found, counts, "the days with changes")

    def _check_cut(
        self, company: str, scope: Scope, who: str, prompt: str, whole: ContextAnswer
    ) -> None:
        """What does not fit is the end: nothing short follows what is left out."""
        for section in whole.sections:
            if section.kind.value != "related" or len(section.facts) < 2:
                continue
            request = ContextRequest(scope=scope, prompt=prompt, budget=whole.tokens - 5)
            work = self.service.context(self.caller(company, who, APP_CHANNEL), request)
            cut = [one.facts for one in self.run(work).sections if one.kind is section.kind]
            handles = [one.handle for facts in cut for one in facts]
            same(handles, [one.handle for one in section.facts][: len(handles)], "a cut context")

    def check_figures(self, company: str, hours: int) -> None:
        """Compare how much the log's figures count at a moment of the past."""
        caller = self.caller(company, "ana", APP_CHANNEL)
        then = caller.at(self.now - timedelta(hours=hours))
        counted = self.run(self.service.analysis.stats(then)).operation_count
        before = self.run(self.service.log.page(then, limit=1)).total
        same(counted, before, "the figures of the past")

    def _serving(self, company: str, scope: Scope) -> str:
        return "two" if scope.project_id == "web" and "two" in BINDINGS[company] else "one"

    def check_records(self, company: str) -> None:
        """Compare each record that is or was there, and how it came to be so."""
        here = self.companies[company]
        ever = {key: one for _, state in here.past for key, one in state.items()}
        for who in ("ana", "cy") if here.members else ("ana",):
            for (binding, name), last in sorted(ever.items()):
                now = here.now((binding, name))
                record, scope = here.records.get(now), self._asked(last)
                allowed = here.reads(PEOPLE[who], last.scope) and here.may(
                    PEOPLE[who], "view", scope
                )
                shows = record is not None and holds(record, self.now) and allowed
                caller = self.caller(company, who, APP_CHANNEL)
                work = self.service.get(caller, name, scope, binding_key=binding)
                try:
                    found = self.run(work).record
                except (Denied, NotFound) as error:
                    expect(not shows, f"{name} is not found: {error}")
                else:
                    expect(shows, f"{name} is found")
                    same(told(found), told(record), f"{binding}: {name}")
                if who == "ana" and allowed and now not in here.purged:
                    self.check_history(company, binding, name, scope)

    def check_history(self, company: str, binding: str, name: str, scope: Scope) -> None:
        """Compare what was done to a record, under any of its ids."""
        here = self.companies[company]
        now = here.now((binding, name))
        ids = {now, *(old for old, to in here.links.items() if to == now)}
        wanted = []
        for done in reversed(here.log):
            steps = [step for key, step in done.steps.items() if key in ids]
            if steps and not done.erased and here.sees(PEOPLE["ana"], done):
                sides = zip(*steps, strict=True)
                before, after = (next(filter(None, side), None) for side in sides)
                wanted.append((done.id, told(before), told(after)))
        caller = self.caller(company, "ana", APP_CHANNEL)
        answer = self.run(self.service.history(caller, name, scope, binding_key=binding))
        own = {done.id for done in here.log if not done.erased}
        found = [(one.operation.operation_id, told(one.before), told(one.after))
                 for one in answer.changes if one.operation.operation_id in own]  # fmt: skip
        same(found, wanted, f"the history of {binding}: {name}")

    def _newest(self, company: str) -> Any:
        """Return the newest operation of the log."""
        return self.service.runtime.log(company).page(Filter(), limit=1).operations[0]

    def _log(self, company: str) -> list[Any]:
        """Return the whole log, the oldest first; what is sealed is slow to be read in pages."""
        core = self.service.runtime.log(company)
        limit = 25 if company in self.sealed else PAGE
        found: list[Any] = []
        before = None
        while True:
            page = core.page(Filter(), limit=limit, before=before)
            found += page.operations
            if (before := page.next_before) is None:
                same(len(found), page.total, "the length of the log")
                return found[::-1]

    def check_log(self, company: str) -> None:
        """Compare the log, as it is and as each person sees it, and what can be taken back."""
        here = self.companies[company]
        whole = [one for one in self._log(company) if one.seq > self.begun[company]]
        logged = [one for one in whole if one.channel != APP_CHANNEL]  # what compares is no step
        types = [(str(one.operation_type), str(one.status)) for one in logged]
        same(types, [(one.type, one.status) for one in here.log], "the log")
        for found, done in zip(logged, here.log, strict=True):
            done.id, done.scope = found.operation_id, found.scope
            done.touched = {found.place_of(one) for one in found.handles}
            by = (found.principal, found.started_at)
            same(by, (done.who.principal, done.at), "who and when")
            if done.steps and not (done.erased or done.event):
                names = {one.provider_record_id for one in found.handles}
                place = (found.binding_key, names, found.result_count)
                same(place, (done.binding, set(done.ids), len(done.ids)), f"a {done.type}")
            if done.status == "ok" and not (done.settings or done.erased):
                same(found.source, done.source, f"the source of a {done.type}")
            if done.undoes is not None:
                same(found.undoes, done.undoes.id, "what was taken back")
        own = {one.id for one in here.log}
        for who in ("ana", "bo", "cy", "coding") if here.members else ("ana", "coding"):
            seen = [one for one in here.log if here.sees(PEOPLE[who], one)]
            caller = self.caller(company, who, APP_CHANNEL)
            page = self.run(self.service.log.page(caller, limit=1000))
            ids = [one.operation_id for one in reversed(page.operations)]
            mine = [one for one in ids if one in own]
            same(mine, [one.id for one in seen], f"the log of {who}")
            left = [
                one.id
                for one in reversed(seen)
                if (one.steps or one.settings or one.is_open) and not here.undone(one)
                and one.undoes is None and not one.erased
            ]  # fmt: skip
            found_left = self.run(self.service.undoable(caller, 1000))
            unclear = {one.operation.operation_id for one in found_left
                       if "outcome is unknown" in (one.why_not or "")}  # fmt: skip
            same(unclear, {one.id for one in seen if one.is_open}, "what may have happened")
            found_ids = [one.operation.operation_id for one in found_left]
            lasting = {one.id for one in seen if not one.erased}
            found_ids = [one for one in found_ids if one in lasting]
            same(found_ids, left, f"what {who} can undo")


def _back(changes: Settings) -> Settings:
    """Return what takes changes of settings back."""
    return {place: (after, before) for place, (before, after) in changes.items()}


def _shown(record: Record | None) -> object:
    """Return what of a record makes another of it."""
    names = ("text", "title", "summary", "kind", "topic", "tags", "pinned", "expires_at")
    return record and [getattr(record, name) for name in names]


def _says(record: Record, word: str) -> bool:
    """Whether a record is sure to be found by a word; one with a summary is searched by that."""
    return word in (record.summary or record.text).replace(":", " ").split()


def _parts(scope: Scope) -> Iterator[tuple[str, Scope, str]]:
    """Yield the lists that a context is made of: the section, the owner and the kind of record."""
    base = Scope(company_id=scope.company_id)
    if scope.agent_id:
        owner = base.model_copy(update={"agent_id": scope.agent_id})
        yield from (("facts", owner, "fact"), ("guidance", owner, "guidance"))
    if scope.subject_id:
        yield "user", base.model_copy(update={"subject_id": scope.subject_id}), "fact"
    if scope.project_id:
        yield "workspace", base.model_copy(update={"project_id": scope.project_id}), "fact"
    yield "company", base, "fact"
