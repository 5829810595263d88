"""Who sees what of a company with members: every method of the service, by every kind of member.

A method that is in no table here fails the first test. On PostgreSQL nothing is sealed: what is
sealed is asked in DuckDB, whatever the database.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from memtui.analytics.export import ExportFormat
from memtui.analytics.figures import Bucket
from memtui.analytics.stats import Rollups
from memtui.config import Paths, find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Denied,
    Filter,
    ForgetRequest,
    MemtuiError,
    OperationStatus,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    Use,
    UseTest,
    WriteRequest,
)
from memtui.service import (
    Caller,
    Membership,
    MemoryService,
    ReviewRule,
    Role,
    RuleAction,
    RuleTest,
    open_service,
)
from memtui.service.answers import Shadow
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.impact import ImpactRequest
from memtui.service.context.pruning import PruneRequest
from memtui.service.history.patterns import PatternRequest
from memtui.service.home.survey import PurgeRequest
from memtui.service.operations.facts import FactRequest
from memtui.service.operations.feedback import Verdict
from memtui.service.operations.in_sync import InSync
from memtui.service.operations.namespaces import MemoryName
from memtui.service.runtime import ServiceModule
from memtui.service.spending import LimitTarget, SpendingLimit
from memtui.store.operation import Operation
from tests.databases import drop_database, make_database

Call = Callable[["Home", Caller], Awaitable[Any]]

UNREAD_AND_ALONE = Filter(uses=(UseTest(use=Use.READ), UseTest(use=Use.DUP, excluded=True)))
COMPANY = Scope(company_id="local")
APOLLO = Scope(company_id="local", project_id="apollo")
ZEUS = Scope(company_id="local", project_id="zeus")
ANA = Scope(company_id="local", subject_id="ana")
BEFORE = datetime(2020, 1, 1, tzinfo=UTC)
SCOPES = {"wcompany": COMPANY, "wapollo": APOLLO, "wzeus": ZEUS, "wana": ANA}
"""A word that only memories and operations of a scope hold."""


def who(principal: str, acts_for: str | None = None) -> Caller:
    return Caller(company_id="local", principal=principal, acts_for=acts_for, channel="test")


BOSS, CHIEF, MEMBER = who("user:boss"), who("user:chief"), who("user:member")
ANA_HERSELF, OTHER, OUTSIDER = who("user:ana"), who("user:other"), who("user:outsider")
AGENT, LONE_AGENT = who("agent:x", "user:member"), who("agent:x")
STRANGERS = (OUTSIDER, LONE_AGENT, who("agent:x", "user:outsider"))
SEES: dict[Caller, set[str]] = {
    BOSS: {"wcompany", "wapollo", "wzeus"},
    CHIEF: {"wapollo"},
    MEMBER: {"wapollo"},
    AGENT: {"wapollo"},
    OTHER: {"wzeus"},
    ANA_HERSELF: {"wzeus", "wana"},
}
"""Whose operations each member sees. Memories of the company are besides every member's."""
KINDS = {
    "sqlite": (BOSS, AGENT, ANA_HERSELF),
    "postgresql": (BOSS, CHIEF, ANA_HERSELF),
}
"""One of each role, a person and an agent, and so one for each form of the conditions that a
database is asked with: the company without its members' own, a project, and a project with one's
own. The others see by the same ones."""


class Home:
    """The service, and what is in it: an operation and a record of each scope, sealed and hot."""

    def __init__(self, service: MemoryService, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.records: dict[str, RecordHandle] = {}
        self.written: dict[str, str] = {}
        self.files = 0

    def file(self, ending: str) -> Path:
        self.files += 1
        return self.folder / f"{self.files}.{ending}"


def dialect(home: Home) -> str:
    return home.service.analysis.database.dialect


def kinds(home: Home) -> dict[Caller, set[str]]:
    return {caller: SEES[caller] for caller in KINDS[dialect(home)]}


Template = tuple[Path, str, Home]
"""A folder and a database to be copied, and what was made there."""


@pytest.fixture(scope="module")
def sqlite(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A home in which everybody did something, closed: what it takes to make one is paid once."""
    paths = find_paths(tmp_path_factory.mktemp("visibility") / "home")
    paths.create()
    shutil.copy(empty_database, paths.database)
    return paths.data, "", asyncio.run(_fill(paths, ""))


@pytest.fixture(scope="module")
def postgresql(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Such a home whose database is in PostgreSQL."""
    paths = find_paths(tmp_path_factory.mktemp("visibility") / "home")
    paths.create()
    # A process that helps another makes the fixtures of a module more than once.
    url = make_database(postgres_server, f"sight_{uuid.uuid4().hex}")
    return paths.data, url, asyncio.run(_fill(paths, url))


async def _fill(paths: Paths, database_url: str) -> Home:
    service = await open_service(
        paths, load_settings(paths, principal="user:setup", database_url=database_url)
    )
    made = Home(service, paths.data)
    setup = who("user:setup")
    for member in (
        Membership(principal="user:boss", role=Role.OWNER),
        Membership(principal="user:chief", role=Role.ADMIN, project_id="apollo"),
        Membership(principal="user:member", role=Role.MEMBER, project_id="apollo"),
        Membership(principal="user:other", role=Role.MEMBER, project_id="zeus"),
        Membership(principal="user:ana", role=Role.MEMBER, project_id="zeus", subject_id="ana"),
    ):
        await service.members.set(setup, member)
        setup = BOSS
    writers = {"wcompany": BOSS, "wapollo": who("agent:y", "user:chief"), "wana": ANA_HERSELF,
               "wzeus": who("agent:y", "user:other")}  # fmt: skip
    for part in ("sealed", "hot"):
        for word, scope in SCOPES.items():
            request = WriteRequest(
                scope=scope,
                source=SourceRef(kind="manual_note", company_id="local"),
                content=f"{word} {part}: {part} {word}{part} #w/{word}{part}",
                kind="fact",
            )
            answer = await service.write(writers[word], request)
            made.records[word + part] = answer.handles[0]
            made.written[word + part] = answer.operation_id
            run = writers[word].model_copy(update={"run_id": f"run-{word}{part}"})
            await service.query(run, QueryRequest(scope=scope, query=word + part))
        if part == "sealed" and not database_url:
            await service.analysis.seal(BOSS, everything=True)
    await service.limits.set(BOSS, limit("project", "apollo", 3))
    await service.limits.set(BOSS, limit("agent", "wcompany", 2))
    await service.tokens.add(BOSS, "one", "agent:x", acts_for="user:member")
    await service.close()
    return made


@pytest.fixture
def template(request: pytest.FixtureRequest) -> Template:
    made: Template = request.getfixturevalue(getattr(request, "param", "sqlite"))
    return made


@pytest.fixture
async def home(
    template: Template, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Home]:
    folder, url, filled = template
    shutil.copytree(folder, tmp_path / "home")
    paths = find_paths(tmp_path / "home")
    copy = ""
    if url:
        server = request.getfixturevalue("postgres_server")
        copy = make_database(server, "sight_copy", template=str(conninfo_to_dict(url)["dbname"]))
    service = await open_service(
        paths, load_settings(paths, principal="user:setup", database_url=copy)
    )
    made = Home(service, tmp_path)
    made.records, made.written = filled.records, filled.written
    yield made
    await service.close()
    if url:
        drop_database(server, "sight_copy")


ON_BOTH = pytest.mark.parametrize("template", KINDS, indirect=True)


def limit(kind: str, target: str, amount: int) -> SpendingLimit:
    given = {"target_type": kind, "target_id": target, "amount": amount}
    return SpendingLimit.model_validate({**given, "measure": "usd", "period": "day"})


async def view(home: Home, caller: Caller, chosen: Filter | None = None, sort: str = "-seq") -> Any:
    opened = await home.service.analysis.open_log(caller, chosen, sort)
    try:
        window = await asyncio.to_thread(opened.window, 0, 1_000)
        assert len(window) == opened.count
        return window, (await asyncio.to_thread(opened.tail, 0)).operations
    finally:
        opened.close()


async def exported(home: Home, caller: Caller, form: ExportFormat) -> Any:
    target = home.file(form)
    await home.service.analysis.export(caller, target, form)
    return target.read_text(encoding="utf-8")


async def proven(home: Home, caller: Caller) -> str:
    target = home.file("jsonl")
    head = (await home.service.analysis.verify_chain(caller)).seq
    assert await home.service.analysis.export_proof(caller, target) == head
    return target.read_text(encoding="utf-8")


async def each(home: Home, call: Callable[[str], Awaitable[Any]]) -> list[Any]:
    """Ask for each record or operation; one that is not there or not allowed answers nothing."""
    return [await _answer(call(name)) for name in home.records]


async def each_scope(call: Callable[[Scope], Awaitable[Any]]) -> list[Any]:
    """Ask in each scope; one that is not allowed answers nothing."""
    return [await _answer(call(scope)) for scope in SCOPES.values()]


async def _answer(asked: Awaitable[Any]) -> Any:
    try:
        return await asked
    except MemtuiError as error:
        return str(error)


async def found(home: Home, caller: Caller, name: str) -> str:
    """Return the word of a write, whose operation does not hold it where it is the company's."""
    operation = await home.service.log.get(caller, home.written[name])
    return name + words_in(operation).pop() if words_in(operation) else name


async def undoable(home: Home, caller: Caller) -> list[str]:
    names = {operation_id: name for name, operation_id in home.written.items()}
    found = await home.service.undoable(caller, 1_000)
    return [names.get(one.operation.operation_id, "") for one in found]


async def let_undo(home: Home, caller: Caller, name: str) -> str:
    """Return what may be undone; one that is not seen is refused."""
    await home.service.refuse_undo(caller, [home.written[name]])
    return name


async def replayed(home: Home, caller: Caller) -> list[Any]:
    """Replay each run; that one is not there says nothing but its id, which was asked for."""
    asked = [
        (f"run-{name}", home.service.runs.replay(caller, f"run-{name}")) for name in home.written
    ]
    found = [(run_id, await _answer(replay)) for run_id, replay in asked]
    return [one.replace(run_id, "") if isinstance(one, str) else one for run_id, one in found]


async def by_ids(home: Home, caller: Caller) -> list[str]:
    names = {operation_id: name for name, operation_id in home.written.items()}
    found = await home.service.log.by_ids(caller, [*names])
    return [names[one.operation_id] for one in found]


async def made_by(home: Home, caller: Caller) -> list[str]:
    """Ask who made each write; the names of those that are told."""
    names = {operation_id: name for name, operation_id in home.written.items()}
    whole = home.service.runtime.log("local").by_ids([*names])
    writes = {names[one.operation_id]: one for one in whole}
    moments = [one.started_at for one in writes.values()]
    found = await home.service.past.made_by(caller, moments, "default")
    told = zip(writes.items(), found, strict=True)
    return [name for (name, operation), made in told if made == operation.operation_id]


async def found_outcomes(home: Home, caller: Caller) -> list[str]:
    """Ask what checks found of each write, as if its outcome were unknown."""
    whole = home.service.runtime.log("local").by_ids([*home.written.values()])
    unknown = [one.model_copy(update={"status": OperationStatus.UNKNOWN}) for one in whole]
    return list(await home.service.log.found_outcomes(caller, unknown))


def sql(statement: str) -> Call:
    return lambda h, c: h.service.analysis.sql(c, statement)


def handle_of(home: Home, name: str) -> str:
    return home.records[name].provider_record_id


LOG: dict[str, list[Call]] = {
    "log.page": [
        lambda h, c: h.service.log.page(c, limit=1_000),
        lambda h, c: h.service.log.page(c, Filter(text="w"), limit=1_000, after=0),
    ],
    "log.get": [lambda h, c: each(h, lambda name: found(h, c, name))],
    "past.made_by": [made_by],
    "log.by_ids": [by_ids],
    "log.changes": [lambda h, c: each(h, lambda name: h.service.log.changes(c, h.written[name]))],
    "log.provenance": [
        lambda h, c: each(h, lambda name: h.service.log.provenance(c, "default", h.records[name]))
    ],
    "undoable": [undoable],
    "undo_candidate": [
        lambda h, c: each(h, lambda name: h.service.undo_candidate(c, h.written[name]))
    ],
    "refuse_undo": [lambda h, c: each(h, lambda name: let_undo(h, c, name))],
    "runs.page": [lambda h, c: h.service.runs.page(c)],
    "runs.replay": [replayed],
    "analysis.open_log": [
        view,
        lambda h, c: view(h, c, Filter(text="w")),
        lambda h, c: view(h, c, Filter(), "what"),
    ],
    "analysis.sql": [
        sql("SELECT * FROM operations"),
        sql("SELECT request FROM operations WHERE status = 'ok' ORDER BY seq DESC"),
    ],
    "analysis.export_proof": [proven],
    "analysis.export": [
        lambda h, c: exported(h, c, ExportFormat.JSONL),
        lambda h, c: exported(h, c, ExportFormat.CSV),
    ],
}
"""What answers with operations: each member finds exactly the words of those they see."""


async def streamed(home: Home, caller: Caller) -> bytes:
    stream = BytesIO()
    await home.service.analysis.export(caller, stream, ExportFormat.JSONL)
    return stream.getvalue()


async def watched(home: Home, caller: Caller) -> None:
    changes = home.service.watch(caller, "default")
    try:
        if caller in STRANGERS:
            await anext(changes)
    finally:
        await changes.aclose()  # type: ignore[attr-defined]


async def check_one(home: Home, caller: Caller) -> object:
    return await home.service.check_outcome(caller, home.written["wapollohot"])


async def erasures(home: Home, caller: Caller) -> object:
    shown = await home.service.log.get(ANA_HERSELF, home.written["wanahot"])
    return await home.service.log.erasures(caller, shown)


MEMBERS: dict[str, list[Call]] = {
    "companies.get": [lambda h, c: h.service.companies.get(c)],
    "bindings.all": [lambda h, c: h.service.bindings.all(c)],
    "resolve": [lambda h, c: h.service.resolve(c, APOLLO)],
    "allowed": [lambda h, c: h.service.allowed(c, APOLLO)],
    "bindings.health": [lambda h, c: h.service.bindings.health(c, "default")],
    "bindings.lacks": [lambda h, c: h.service.bindings.lacks(c, "default")],
    "embedding.state": [lambda h, c: h.service.embedding.state(c, "default")],
    "embedding.build": [lambda h, c: h.service.embedding.build(c, "default")],
    "watch": [watched],
    "members.all": [lambda h, c: h.service.members.all(c)],
    "tokens.all": [lambda h, c: h.service.tokens.all(c)],
    "limits.all": [lambda h, c: h.service.limits.all(c)],
    "limits.check": [lambda h, c: h.service.limits.check(c)],
    "log.erasures": [erasures],
    "agents.connected": [
        lambda h, c: h.service.agents.connected(c),
        lambda h, c: h.service.agents.connected(c, timedelta(days=10_000)),
    ],
    "log.scopes": [lambda h, c: h.service.log.scopes(c, 1_000)],
    "log.newest": [lambda h, c: h.service.log.newest(c)],
    "metrics.facts": [lambda h, c: h.service.metrics.facts(c)],
    "log.retrieval_stats": [
        lambda h, c: h.service.log.retrieval_stats(
            c, "default", [handle_of(h, name) for name in h.records]
        )
    ],
    "companies.content": [lambda h, c: h.service.companies.content(c)],
    "ask_later": [lambda h, c: h.service.ask_later(c)],
    "check_outcome": [check_one],
    "runs.assembled_now": [
        lambda h, c: each(h, lambda name: h.service.runs.assembled_now(c, h.written[name]))
    ],
    "log.sources": [lambda h, c: h.service.log.sources(c)],
    "log.problem": [lambda h, c: h.service.log.problem(c, h.written["wapollohot"])],
    "log.problems": [lambda h, c: h.service.log.problems(c, 1_000)],
    "log.found_outcome": [lambda h, c: h.service.log.found_outcome(c, h.written["wapollohot"])],
    "log.found_outcomes": [found_outcomes],
    "log.with_found": [lambda h, c: h.service.log.with_found(c, (), {})],
    "log.undone": [lambda h, c: h.service.log.undone(c, [*h.written.values()])],
    "pairs.all": [lambda h, c: h.service.pairs.all(c)],
    "pairs.sees_all": [lambda h, c: h.service.pairs.sees_all(c)],
    "pairs.versions": [lambda h, c: h.service.pairs.versions(c, "default")],
    "plugin.namespaces": [lambda h, c: h.service.plugin.namespaces(c, "default")],
    "plugin.named": [lambda h, c: h.service.plugin.named(c, "default", ["a:b"])],
    "plugin.names": [lambda h, c: h.service.plugin.names(c, "default", memory_ids=["x"])],
    "plugin.note": [
        lambda h, c: h.service.plugin.note(
            c, "default", [MemoryName(memory_id="m", record_id="r", namespace="a:b")]
        )
    ],
    "review.queue": [lambda h, c: h.service.review.queue(c)],
    "review.waiting": [lambda h, c: h.service.review.waiting(c)],
    "review.rules": [lambda h, c: h.service.review.rules(c, "default")],
    "analysis.stats": [
        lambda h, c: h.service.analysis.stats(c, by=("project", "principal")),
        lambda h, c: h.service.analysis.stats(c, Filter(text="wana")),
    ],
    "analysis.dashboard": [
        lambda h, c: h.service.analysis.dashboard(c, Bucket.DAY, since=date(2020, 1, 1))
    ],
    "analysis.segments": [lambda h, c: h.service.analysis.segments(c)],
    "analysis.prepare": [lambda h, c: h.service.analysis.prepare(c)],
    "analysis.verify_archive": [lambda h, c: h.service.analysis.verify_archive(c)],
    "analysis.verify_chain": [lambda h, c: h.service.analysis.verify_chain(c)],
}
"""What a member may ask, and may be told no hidden word by."""


MEMORIES: dict[str, list[Call]] = {
    "query": [
        lambda h, c: each(
            h, lambda n: h.service.query(c, QueryRequest(scope=scope_of(n), query=n[:-3]))
        )
    ],
    "explain": [
        lambda h, c: each_scope(
            lambda scope: h.service.explain(c, QueryRequest(scope=scope, query="w"))
        )
    ],
    "browse": [
        lambda h, c: each_scope(lambda scope: h.service.browse(c, BrowseRequest(scope=scope))),
        lambda h, c: each_scope(
            lambda scope: h.service.browse(c, BrowseRequest(scope=scope, filter=UNREAD_AND_ALONE))
        ),
    ],
    "everywhere.query": [
        lambda h, c: each(
            h,
            lambda n: h.service.everywhere.query(c, QueryRequest(scope=scope_of(n), query=n[:-3])),
        )
    ],
    "everywhere.browse": [
        lambda h, c: each_scope(
            lambda scope: h.service.everywhere.browse(c, BrowseRequest(scope=scope))
        )
    ],
    "tags.counts": [lambda h, c: h.service.tags.counts(c, COMPANY)],
    "feedback.say": [
        lambda h, c: each(h, lambda n: h.service.feedback.say(c, h.records[n], Verdict.HELPED)),
        lambda h, c: each(
            h,
            lambda n: h.service.feedback.say(
                c, handle_of(h, n), Verdict.HELPED, operation_id=h.written[n]
            ),
        ),
    ],
    "get": [
        lambda h, c: each(h, lambda n: h.service.get(c, handle_of(h, n), scope_of(n))),
        lambda h, c: each(h, lambda n: h.service.get(c, handle_of(h, n), APOLLO)),
    ],
    "history": [
        lambda h, c: each(h, lambda n: h.service.history(c, handle_of(h, n), scope_of(n))),
        lambda h, c: each(h, lambda n: h.service.history(c, handle_of(h, n), APOLLO)),
    ],
    "profile": [lambda h, c: each_scope(lambda scope: h.service.profile(c, scope))],
    "context": [
        lambda h, c: each_scope(lambda scope: h.service.context(c, ContextRequest(scope=scope)))
    ],
    "facts.get": [
        lambda h, c: each_scope(
            lambda scope: h.service.facts.get(c, word_of(scope), FactRequest(scope=scope))
        ),
        lambda h, c: each_scope(
            lambda scope: h.service.facts.get(c, word_of(scope), FactRequest(scope=APOLLO))
        ),
    ],
    "past.compare": [
        lambda h, c: each_scope(lambda scope: h.service.past.compare(c, scope, BEFORE))
    ],
    "past.timeline": [
        lambda h, c: each(h, lambda n: h.service.past.timeline(c, handle_of(h, n), scope_of(n)))
    ],
    "past.moments": [lambda h, c: each_scope(lambda scope: h.service.past.moments(c, scope))],
    "facts.keys": [
        lambda h, c: each_scope(lambda scope: h.service.facts.keys(c, FactRequest(scope=scope)))
    ],
    "patterns.find": [
        lambda h, c: each_scope(
            lambda scope: h.service.patterns.find(c, PatternRequest(scope=scope))
        )
    ],
    "impact.of": [
        lambda h, c: each(
            h,
            lambda n: h.service.impact.of(
                c,
                ImpactRequest(records={"default": (h.records[n],)}, filter=Filter(channel="test")),
            ),
        )
    ],
    "traces.of_record": [
        lambda h, c: each(h, lambda n: h.service.traces.of_record(c, "default", h.records[n]))
    ],
    "traces.of_writes": [lambda h, c: h.service.traces.of_writes(c, Filter(channel="test"))],
    "pruning.plan": [
        lambda h, c: each_scope(lambda scope: h.service.pruning.plan(c, PruneRequest(scope=scope)))
    ],
    "risks.check": [lambda h, c: h.service.risks.check(c)],
    "pruning.everything": [
        lambda h, c: h.service.pruning.everything(c, PruneRequest(scope=COMPANY, kind=None))
    ],
}
"""What answers with memories, in every scope: no word but of those that a member reads."""

ON_POSTGRESQL = {"browse", "feedback.say", "history", "past.moments"}
"""Of MEMORIES, what answers with more from the control plane than whom it asks: the others run on
SQLite alone."""

MANAGERS: dict[str, Call] = {
    "namespaces.all": lambda h, c: h.service.namespaces.all(c, "default"),
    "namespaces.put": lambda h, c: h.service.namespaces.put(c, "default", "custom:x"),
    "namespaces.delete": lambda h, c: h.service.namespaces.delete(c, "default", "custom:x"),
    "companies.set_read_only": lambda h, c: h.service.companies.set_read_only(c, read_only=True),
    "companies.update": lambda h, c: h.service.companies.update(c, name="Again"),
    "companies.backed_up": lambda h, c: h.service.companies.backed_up(c, "b.zip"),
    "companies.add": lambda h, c: h.service.companies.add(c, "Again"),
    "companies.remove": lambda h, c: h.service.companies.remove(c, "other"),
    "imports.append": lambda h, c: h.service.imports.append(c, "theirs", [], name="x", asked={}),
    "bindings.add": lambda h, c: h.service.bindings.add(c, "x", "vault", {}),
    "bindings.to_agree": lambda h, c: h.service.bindings.to_agree(c, "x", "vault", {}),
    "bindings.trial": lambda h, c: h.service.bindings.trial(c, "x", "vault", {}),
    "bindings.update": lambda h, c: h.service.bindings.update(c, "default", enabled=False),
    "bindings.remove": lambda h, c: h.service.bindings.remove(c, "default"),
    "embedding.agree": lambda h, c: h.service.embedding.agree(c, "default", "https://x.example"),
    "bindings.set_target": lambda h, c: h.service.bindings.set_target(c, "project", "x", "default"),
    "bindings.set_shadow": lambda h, c: h.service.bindings.set_shadow(
        c, ("default", "second"), Shadow(binding_key="default", shadow_key="second")
    ),
    "bindings.cut_over": lambda h, c: h.service.bindings.cut_over(c, "default", [], "second"),
    "bindings.clear_target": lambda h, c: h.service.bindings.clear_target(c, "company", "local"),
    "members.set": lambda h, c: h.service.members.set(
        c, Membership(principal=c.principal, role=Role.OWNER)
    ),
    "members.remove": lambda h, c: h.service.members.remove(c, "user:member", "apollo"),
    "tokens.add": lambda h, c: h.service.tokens.add(c, "two", "user:boss"),
    "tokens.remove": lambda h, c: h.service.tokens.remove(c, "one"),
    "limits.set": lambda h, c: h.service.limits.set(c, limit("agent", "x", 1)),
    "limits.remove": lambda h, c: h.service.limits.remove(c, LimitTarget.AGENT, "wcompany"),
    "review.add_rule": lambda h, c: h.service.review.add_rule(
        c, "default", ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    ),
    "review.remove_rule": lambda h, c: h.service.review.remove_rule(
        c, "default", ReviewRule(action=RuleAction.HOLD, test=RuleTest.ALL)
    ),
    "sync": lambda h, c: h.service.sync(c, "default"),
    "secrets.stored": lambda h, c: anext(h.service.secrets.stored(c)),
    "write": lambda h, c: h.service.write(
        c,
        WriteRequest(
            scope=COMPANY,
            source=SourceRef(kind="manual_note", company_id="local"),
            content="x",
        ),
    ),
    "correct": lambda h, c: h.service.correct(
        c, CorrectRequest(scope=COMPANY, handle=h.records["wcompanyhot"], text="x")
    ),
    "forget": lambda h, c: h.service.forget(
        c, ForgetRequest(scope=COMPANY, handles=(h.records["wcompanyhot"],))
    ),
    "purging.plan": lambda h, c: h.service.purging.plan(c, PurgeRequest(project_id="apollo")),
    "purging.apply": lambda h, c: h.service.purging.apply(c, PurgeRequest(project_id="apollo")),
    "purging.keep_doing": lambda h, c: h.service.purging.keep_doing(c, 30),
    "pairs.of": lambda h, c: h.service.pairs.of(c, "default", "second"),
    "pairs.note": lambda h, c: h.service.pairs.note(
        c, InSync(left="default", right="second", salt=b"s")
    ),
    "plugin.put": lambda h, c: h.service.plugin.put(c, "default", "a:b", "custom"),
    "plugin.patch": lambda h, c: h.service.plugin.patch(c, "default", "a:b"),
    "plugin.remove": lambda h, c: h.service.plugin.remove(
        c, "default", "a:b", Scope(company_id=c.company_id, subject_id="b")
    ),
    "analysis.seal": lambda h, c: h.service.analysis.seal(c),
    "analysis.fetch": lambda h, c: h.service.analysis.fetch(c),
}
"""What changes the company or its own memory: its owners and admins alone."""

OTHERWISE = {
    "undo": "test_undo_finds_what_one_sees",
    "undo_together": "is `undo` of each",
    "log.parts": "test_everywhere: test_who_sees_only_some_operations_of_a_question_has_these_and_"
    "no_count_of_others",
    "companies.all": "test_a_stranger_finds_no_company",
    "agents.seen": "says only that the caller is there",
    "agents.left": "says only that the caller is gone",
    "passed.terms": "says only whether there are rules, and what the tools are for",
    "passed.log": "logs what has happened already, and answers nothing",
    "passed.weighed": "is `write`, `correct` or `forget`, which each is tried as",
    "passed.end": "puts an outcome into an operation, and asks nothing",
    "members.own_subject": "tells nobody anything but their own name",
    "tokens.authenticate": "asks for a token",
    "review.get": "is one of `waiting`",
    "review.show": "test_review: test_who_may_decide_follows_from_the_roles",
    "review.accept": "test_review: test_who_may_decide_follows_from_the_roles",
    "review.hold": "test_traces: test_who_may_hold_follows_from_the_roles",
    "analysis.search_on": "goes on with a view of `analysis.open_log`, which checks each time",
    "runs.read": "what `runs.replay` and a trace read with",
    "review.refuse": "test_review: test_who_may_decide_follows_from_the_roles",
    "review.may_decide": "the service's own, behind undo",
    "review.may_know": "the service's own, behind undo",
    "risks.figures": "test_risks: test_nobody_learns_of_records_that_they_may_not_see",
    "risks.marks": "test_risks: test_nobody_learns_of_records_that_they_may_not_see",
    "known_risks.marks": "is `risks.marks`",
    "known_risks.passing": "is `risks.passing`",
    "known_risks.of_operations": "is `risks.of_operations`",
    "risks.passing": "tells what `risks.marks` does",
    "risks.of_operations": "test_risks: test_nobody_finds_operations_by_the_risks_of_records_that_"
    "they_may_not_see",
    "risks.dismiss": "test_risks: test_nobody_learns_of_records_that_they_may_not_see",
    "risks.check_binding": "is the part of `risks.check` for one binding",
    "risks.checked": "is `risks.check_binding` where something changed",
    "review.rule_from": "makes a rule and asks nothing",
    "has_records": "is `browse` of one record, and says only whether there is one",
    "pruning.contradictions": "digests alone, of records that the caller's own browse returns",
    "has_written": "says nothing to anybody who does not see everything",
    "kept_history": "the service's own, behind `history` and `past.timeline`",
    "pages": "is `browse` again and again",
    "embedding.keeping_up": "is `catch_up` again and again",
    "embedding.catch_up": "is `build` of one binding after another",
    "close": "the process's own",
    "bindings.add_found": "is `add` again and again",
    "bindings.providers": "the process's own",
    "bindings.provider": "the process's own",
    "bindings.provider_view": "the process's own",
    "bindings.is_plugin": "the process's own",
    "read_only": "the process's own",
    "bindings.provider_problems": "the process's own",
    "records": "the process's own",
    "everywhere.begin": "names the bindings to the service's own groups",
    "purging.due": "does what was allowed before, as purge does",
    "analysis.renew_store": "the service's own, behind purge",
    "analysis.forget_copies": "the service's own, behind purge",
    "analysis.cancel_sql": "stops the caller's own statements",
    "analysis.recover": "the service's own",
    "analysis.remove": "the service's own, behind remove_company",
    "analysis.figures": "the service's own, behind stats and check_spending",
}


def test_every_method_is_in_a_table(home: Home) -> None:
    service = home.service
    named = [name for name in dir(type(service)) if name[0] != "_"]
    found = {name: getattr(service, name) for name in named}
    parts = {name: part for name, part in found.items() if isinstance(part, ServiceModule)}
    public = {name for name in named if name not in parts} | {
        f"{name}.{method}"
        for name, part in parts.items()
        for method, _ in inspect.getmembers(type(part))
        if not method.startswith("_") and method not in vars(ServiceModule)
    }
    told = [*LOG, *MEMBERS, *MEMORIES, *MANAGERS, *OTHERWISE]
    assert public == set(told)
    assert len(told) == len(set(told))


def scope_of(name: str) -> Scope:
    return next(scope for word, scope in SCOPES.items() if name.startswith(word))


def word_of(scope: Scope) -> str:
    return next(word for word, named in SCOPES.items() if named == scope)


def words_in(answer: object) -> set[str]:
    text = answer if isinstance(answer, str) else repr(answer)
    return {word + part for word in SCOPES for part in ("sealed", "hot") if word + part in text}


def both_halves(words: set[str]) -> set[str]:
    return {word + part for word in words for part in ("sealed", "hot")}


@ON_BOTH
async def test_nobody_is_told_more_than_they_see(home: Home) -> None:
    wrong: list[tuple[object, ...]] = []
    memories = MEMORIES
    if dialect(home) == "postgresql":
        memories = {name: MEMORIES[name] for name in ON_POSTGRESQL}
    asked = {caller: {**LOG, **memories, **MEMBERS} for caller in kinds(home)}
    if dialect(home) == "sqlite":
        asked[CHIEF] = MEMORIES
    for caller, methods in asked.items():
        seen = SEES[caller]
        may_know = both_halves(seen | {"wcompany"})
        for name, calls in methods.items():
            for number, call in enumerate(calls):
                cell = caller.principal, caller.acts_for, name, number
                try:
                    told = words_in(await call(home, caller))
                except MemtuiError as error:
                    told = words_in(str(error))
                if name in LOG and told != both_halves(seen):
                    wrong.append((*cell, "told", sorted(told)))
                if not told <= may_know:
                    wrong.append((*cell, "leaks", sorted(told - may_know)))
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_stranger_is_refused_everywhere(home: Home) -> None:
    wrong: list[tuple[object, ...]] = []
    changing = {name: [call] for name, call in MANAGERS.items()}
    for caller in STRANGERS:
        for name, calls in {**LOG, **MEMBERS, **MEMORIES, **changing}.items():
            for call in calls:
                try:
                    answer = await call(home, caller)
                except Denied:
                    continue
                except MemtuiError as error:
                    wrong.append((caller.principal, name, repr(error)))
                    continue
                refused = isinstance(answer, list) and all(isinstance(one, str) for one in answer)
                if not refused or words_in(answer):
                    wrong.append((caller.principal, name, repr(answer)[:200]))
    assert not wrong, "\n".join(map(str, wrong))


async def test_only_owners_and_admins_change_the_company(home: Home) -> None:
    wrong: list[tuple[object, ...]] = []
    for caller in SEES:
        for name, call in MANAGERS.items() if caller is not BOSS else ():
            if name == "write" and caller.by_ai:
                continue  # seed 004: what an agent adds during a member's chat
            try:
                await call(home, caller)
            except Denied:
                continue
            except MemtuiError as error:
                wrong.append((caller.principal, name, repr(error)))
            else:
                wrong.append((caller.principal, name))
    assert not wrong, "\n".join(map(str, wrong))


@ON_BOTH
async def test_figures_are_of_what_one_sees(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rollups, "short", 0)
    service = home.service
    for caller in kinds(home):
        page = await service.log.page(caller, limit=1_000)
        count = len(page.operations)
        assert page.total == count
        view = await service.analysis.open_log(caller, Filter(text="nowhere", internal=True))
        assert (view.count, view.logged) == (0, count)
        view.close()
        stats = await service.analysis.stats(caller)
        dashboard = await service.analysis.dashboard(caller, Bucket.DAY)
        again = await service.analysis.dashboard(caller, Bucket.DAY)
        assert stats.operation_count == dashboard.stats.operation_count == count
        assert again == dashboard
        answer = await service.analysis.sql(caller, "SELECT count(*) FROM operations")
        assert answer.rows == ((count,),)
        shown = (await service.analysis.sql(caller, "SELECT count(*) FROM handles")).rows[0][0]
        assert shown == sum(len(one.handles) for one in page.operations)
        proof = await streamed(home, caller)
        assert len(proof.splitlines()) == count
        first = await service.log.page(caller, limit=2)
        rest: list[Operation] = []
        while first.next_before is not None:
            rest += first.operations
            first = await service.log.page(caller, limit=2, before=first.next_before)
        assert [*rest, *first.operations] == list(page.operations)
    facts = {c.principal: (await service.metrics.facts(c)).facts_added for c in SEES}
    assert (facts["user:other"], facts["user:ana"]) == (4, 6)


async def test_a_failing_statement_shows_no_hidden_row(home: Home) -> None:
    for statement in (
        "SELECT * FROM operations WHERE request::INTEGER = 1",
        "SELECT * FROM operations WHERE subject_id = 'ana' AND error(request) IS NULL",
        "SELECT request::INTEGER FROM operations",
        "SELECT * FROM handles JOIN operations USING (seq) WHERE provider_record_id::INT = 1",
        "SELECT * FROM records WHERE provider_record_id::INTEGER = 1",
    ):
        try:
            told = repr(await home.service.analysis.sql(OTHER, statement))
        except MemtuiError as error:
            told = str(error)
        assert words_in(told) <= both_halves({"wzeus"}), statement


async def test_limits_and_tokens_are_shown_to_whom_they_concern(home: Home) -> None:
    service = home.service
    limits = {c.principal: len(await service.limits.check(c)) for c in SEES if not c.by_ai}
    assert limits == {
        "user:boss": 2, "user:chief": 1, "user:member": 1, "user:other": 0, "user:ana": 0,
    }  # fmt: skip
    tokens = {c.principal: len(await service.tokens.all(c)) for c in SEES if not c.by_ai}
    assert tokens == {
        "user:boss": 1, "user:chief": 0, "user:member": 1, "user:other": 0, "user:ana": 0,
    }  # fmt: skip


async def test_a_page_counts_no_record_that_one_may_not_read(home: Home) -> None:
    page = await home.service.browse(BOSS, BrowseRequest(scope=COMPANY))
    assert (len(page.records), page.total) == (6, None)
    page = await home.service.browse(ANA_HERSELF, BrowseRequest(scope=ANA))
    assert page.total == len(page.records)


async def test_undo_finds_what_one_sees(home: Home) -> None:
    with pytest.raises(MemtuiError, match="no operation"):
        await home.service.undo(BOSS, home.written["wanahot"])
    undone = await home.service.undo(ANA_HERSELF, None)
    assert undone.undoes == home.written["wanahot"]
    with pytest.raises(Denied):
        await home.service.undo(OUTSIDER, None)

    name = home.records["wapollohot"]
    await home.service.forget(CHIEF, ForgetRequest(scope=APOLLO, handles=(name,)))
    assert "wapollo" in repr((await home.service.undoable(CHIEF))[0].record)
    moved = Membership(principal="user:chief", role=Role.ADMIN, project_id="zeus")
    await home.service.members.set(BOSS, moved)
    await home.service.members.remove(BOSS, "user:chief", "apollo")
    [forgotten, *_] = await home.service.undoable(CHIEF)
    assert (forgotten.operation.operation_type, forgotten.record) == ("forget", None)
    assert forgotten.before is None


@ON_BOTH
async def test_ones_own_memory_stays_ones_own_whatever_the_scope_of_the_request(home: Home) -> None:
    service, admin = home.service, who("user:admin")
    await service.members.set(BOSS, Membership(principal="user:admin", role=Role.ADMIN))
    written = await service.write(
        BOSS,
        WriteRequest(
            scope=Scope(company_id="local", subject_id="boss"),
            source=SourceRef(kind="manual_note", company_id="local"),
            content="wprivate parrot",
            title="wprivate",
        ),
    )
    handle = written.handles[0]
    await service.get(BOSS, handle.provider_record_id, COMPANY)
    await service.query(BOSS, QueryRequest(scope=COMPANY, query="parrot"))
    of_boss = Scope(company_id="local", subject_id="boss", agent_id="x")
    for prompted in (None, "wprivate parrot"):
        given = ContextRequest(scope=of_boss, prompt=prompted, budget=2_000, delivered=True)
        context = await service.context(who("agent:x", "user:boss"), given)
    assert "wprivate parrot" in context.text
    await service.correct(
        BOSS, CorrectRequest(scope=COMPANY, handle=handle, text="wprivate cockatoo")
    )
    await service.history(BOSS, handle.provider_record_id, COMPANY)
    await service.forget(BOSS, ForgetRequest(scope=COMPANY, handles=(handle,)))
    await service.undo(BOSS, None)
    assert "wprivate" in repr((await service.log.page(BOSS, limit=1_000)).operations)

    explained = await service.explain(admin, QueryRequest(scope=COMPANY, query="cockatoo"))
    purging = await service.purging.plan(admin, PurgeRequest(subject_id="boss"))
    for told in (
        await service.log.page(admin, limit=1_000),
        await service.analysis.sql(admin, "SELECT * FROM operations"),
        await service.analysis.sql(admin, "SELECT * FROM handles"),
        await streamed(home, admin),
        await proven(home, admin),
        explained,
        purging,
    ):
        assert "wprivate" not in repr(told)
    assert len(purging.living) == 1
    own = await service.explain(BOSS, QueryRequest(scope=COMPANY, query="cockatoo"))
    assert "wprivate" in repr(own)


async def test_a_view_ends_with_the_role_it_was_opened_under(home: Home) -> None:
    opened = await home.service.analysis.open_log(MEMBER)
    await home.service.members.remove(BOSS, "user:member", "apollo")
    for reading in (partial(opened.window, 0, 10), partial(opened.tail, 0)):
        with pytest.raises(Denied):
            await asyncio.to_thread(reading)
    opened.close()


async def test_a_stranger_finds_no_company(home: Home) -> None:
    service = home.service
    await service.companies.add(
        who("user:outsider").model_copy(update={"company_id": "two"}), "Two"
    )
    assert [one.company_id for one in await service.companies.all("user:outsider")] == ["two"]
    assert [one.company_id for one in await service.companies.all("agent:x")] == ["two"]
    assert len(await service.companies.all("agent:x", "user:member")) == 2
    assert len(await service.companies.all("user:boss")) == 2
