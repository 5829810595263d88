"""The real service and the plain one side by side: each step is done to both, and all is compared.

A step is one call with plain arguments, so that a run can be read, and replayed as a test.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar
from zoneinfo import ZoneInfo

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
    WriteRequest,
    owner_of,
)
from memtui.service import Caller, ContextRequest, MemoryService, open_service
from memtui.service.core import SETUP_DOOR
from memtui.service.visibility import Membership, Role, without_prefix
from memtui.store.operation import APP_DOOR
from memtui.threads import LooseThreads
from tests.model.plain import (
    FIELDS,
    Company,
    Key,
    Member,
    Operation,
    Sees,
    Who,
    exactly,
    holds,
    in_folders,
    in_tables,
    shared,
    told,
)

At = tuple[str, str]
"""A company, and the key of one of its bindings."""
T = TypeVar("T")
P = ParamSpec("P")

START = datetime(2026, 3, 28, 20, tzinfo=UTC)
"""The evening before Berlin's clocks change."""
ZONES = (ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"))
PAGE = 3

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
TARGETS = (("company", "", "one"), ("project", "web", "two"))
"""What serves whom where no binding is named."""
BINDINGS = {"acme": ("one", "two"), "bolt": ("one",)}


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
    home: Callable[[Scope], Scope] = lambda scope: scope
    """The scope that a record has which is written in a scope."""
    keyed: bool = False
    """Whether its facts are found by their keys."""
    path: str = ""
    config: tuple[tuple[str, object], ...] = ()


def _drive(scope: Scope) -> Scope:
    return scope.model_copy(update={"subject_id": None}) if scope.project_id else scope


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
        ),
        Provider("claude-memory", shared, shared, keeps=_FILES, path="memory/",
                 corrects=frozenset({"text", "topic", "tags"})),
        Provider("mcp-memory", shared, shared, keeps=_FILES, path="memory.jsonl",
                 config=(("settle_ms", 0),), corrects=frozenset({"text", "topic", "tags"})),
    )
}  # fmt: skip


async def open_home(folder: Path, clock: Any) -> MemoryService:
    paths = find_paths(folder)
    settings = load_settings(paths, principal="user:ana")
    return await open_service(paths, settings, clock=clock, timer=lambda: 0.0, first_company=False)


def make_template(folder: Path, empty_database: Path) -> Path:
    """Make a home with the two companies: `acme` has members, `bolt` is open to everybody."""
    paths = find_paths(folder)
    paths.create()
    shutil.copy(empty_database, paths.database)

    async def make() -> None:
        service = await open_home(folder, lambda: START)
        for name in BINDINGS:
            setup = Caller(company_id=name, principal="user:ana", door=SETUP_DOOR)
            await service.companies.add(setup, name.title())
        setup = Caller(company_id="acme", principal="user:ana", door=SETUP_DOOR)
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
        kind=SourceKind.ISSUE_COMMENT, company_id=company, issue_id=issue, comment_id="1"
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


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

    def __init__(self, folder: Path, template: Path, provider: str) -> None:
        self.provider = PROVIDERS[provider]
        self.now = START
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(InPlace())
        shutil.copytree(template, folder, dirs_exist_ok=True)
        self.folder = folder
        self.run(self._open())
        self.companies = {
            name: Company(name, list(MEMBERS) if name == "acme" else []) for name in BINDINGS
        }
        self.begun = {name: len(self._log(name)) for name in BINDINGS}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _open(self) -> None:
        self.service = await open_home(self.folder, lambda: self.now)
        self.able: Capabilities
        for name, keys in BINDINGS.items():
            setup = self.caller(name, "ana", SETUP_DOOR)
            for key in keys:
                config: dict[str, object] = dict(self.provider.config)
                if self.provider.path:
                    path = self.folder / "theirs" / name / key / self.provider.path
                    is_folder = self.provider.path.endswith("/")
                    (path if is_folder else path.parent).mkdir(parents=True)
                    if not is_folder:
                        path.touch()
                    config["path"] = str(path)
                await self.service.bindings.add(setup, key, self.provider.key, config)
            for what, one, key in TARGETS:
                serving = key if key in keys else "one"
                await self.service.bindings.set_target(setup, what, one or name, serving)
            [self.able, *_] = [one.capabilities for one in await self.service.bindings.all(setup)]

    def close(self) -> None:
        try:
            self.run(self.service.close())
        finally:
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def caller(self, company: str, who: str, door: str = "test") -> Caller:
        one = PEOPLE[who]
        return Caller(company_id=company, principal=one.principal, acts_for=one.acts_for, door=door)

    # Steps

    def wait(self, hours: int) -> None:
        """Let time pass; whole hours, so that things end at the very moment of others."""
        self.now += timedelta(hours=hours)

    def write(
        self, at: At, place: str, text: str, *, who: str = "ana",
        kind: str | None = None, issue: str | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Store a record; `expires` is in hours from now."""
        (company, binding), fields = at, _given(fields)
        here, scope = self.companies[company], scope_of(company, place)
        kind = kind or self.provider.kinds[0]
        if kind == "fact" and self._stands(here, binding, scope, text):
            return
        if kind == "fact":  # is a line
            fields.pop("summary", None)
        self._set_expiry(fields)
        request = WriteRequest.model_validate(
            {
                "scope": scope, "source": source_of(company, issue), "content": text,
                "binding_key": binding, "kind": kind, **fields,
            }
        )  # fmt: skip
        done = self._done(here, "write", who, binding, scope, request.source)
        refused = not here.may(PEOPLE[who], "add", scope)
        answer = self._do(done, refused, self.service.write(self.caller(company, who), request))
        if answer is None:
            return
        [record] = answer.records
        key = binding, record.handle.provider_record_id
        expect(key not in here.records, f"{key} was there already")
        record = self._unmarked(who, record)
        wanted = {**{n: getattr(request, n) for n in FIELDS if hasattr(request, n)},
                  "text": text, "created_at": self.now, "created_by": PEOPLE[who].principal,
                  "scope": self.provider.home(scope)}  # fmt: skip
        for name, value in wanted.items():
            if name in self.provider.keeps and (value or name == "tags"):
                same(getattr(record, name), value, f"{name} of a new record")
        self._changed(done, {key: (None, record)})

    def _stands(self, here: Company, binding: str, scope: Scope, text: str) -> bool:
        """Whether the key of a fact stands there: writing it again would be a change."""
        key, colon, _ = text.partition(": ")
        return bool(colon) and any(
            one.text.startswith(f"{key}: ") and owner_of(one.scope) == owner_of(scope)
            for one in here.of(binding)
        )

    def correct(
        self, at: At, nth: int, *, who: str = "ana", issue: str | None = None,
        stale: bool = False, **fields: Any,
    ) -> None:  # fmt: skip
        """Change fields of one record; `expires` is in hours from now, 0 takes the expiry away."""
        (company, binding), fields = at, _given(fields)
        here = self.companies[company]
        old = self._nth(here, binding, nth)
        if old is None:
            return
        if old.kind == "fact":
            fields.pop("summary", None)
        if not fields:
            return
        self._set_expiry(fields)
        request = CorrectRequest.model_validate(
            {
                "scope": self._asked(old), "handle": old.handle, "binding_key": binding,
                "source": source_of(company, issue) if issue else None,
                "revision": "another" if stale else None, **fields,
            }
        )  # fmt: skip
        done = self._done(here, "correct", who, binding, request.scope, request.source)
        seen = here.reads(PEOPLE[who], old.scope)
        refused = not (seen and here.may(PEOPLE[who], "delete", old.scope))
        why = "conflict" if stale and not refused and not self._is_gone(old) else ""
        refused = refused or self._is_gone(old)
        answer = self._do(
            done, refused, self.service.correct(self.caller(company, who), request), why
        )
        if answer is None:
            return
        [new] = answer.handles
        [record] = answer.records
        record = self._unmarked(who, record)
        wanted = self._corrected(old, record, fields)
        same(told(record), wanted, "the corrected record")
        before, after = (binding, old.handle.provider_record_id), (binding, new.provider_record_id)
        steps: dict[Key, tuple[Record | None, Record | None]] = {before: (old, record)}
        done.source = request.source or old.source
        if before != after:
            steps = {before: (old, None), after: (None, record)}
            here.moved(before, after)
        self._changed(done, steps)

    def _corrected(
        self, old: Record, record: Record, fields: dict[str, Any]
    ) -> dict[str, object]:  # fmt: skip
        """Return what a record says once some of its fields were set."""
        wanted = (told(old) or {}) | {n: value for n, value in fields.items() if n in FIELDS}
        if "never_expires" in fields:
            wanted["expires_at"] = None
        wanted["summary"] = wanted["summary"] or None
        if self.provider.keyed and old.kind == "fact" and record.text != old.text:
            wanted["valid_from"] = self.now  # the old value keeps its window
        if self.provider.key in {"claude-memory", "mcp-memory"}:
            wanted["title"] = record.title  # may be made of the text
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
        there = [one for one in chosen if self.provider.sees(asked, one.scope)]
        handles = tuple(dict.fromkeys(one.handle for one in chosen))
        request = ForgetRequest(scope=asked, handles=handles, binding_key=binding)
        done = self._done(here, "forget", who, binding, asked, None)
        there = [one for one in there if not self._is_gone(one)]
        refused = not there or not all(
            here.may(PEOPLE[who], "delete", one) for one in (asked, *(r.scope for r in there))
        )
        answer = self._do(done, refused, self.service.forget(self.caller(company, who), request))
        if answer is None:
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

    def undo(self, company: str, nth: int = 0) -> None:
        """Take back the nth newest change that was not refused, whether or not that can be."""
        here = self.companies[company]
        changes = [one for one in reversed(here.log) if one.steps]
        if not changes:
            return
        taken = changes[nth % len(changes)]
        done = self._done(here, "undo", "ana", taken.binding, taken.scope, taken.source)
        scopes = [one.scope for step in taken.steps.values() for one in step if one]
        why = ""
        if here.undone(taken) or any(
            told(here.records.get(key)) != told(after) for key, (_, after) in taken.steps.items()
        ):
            why = "conflict"
        refused = not all(here.may(PEOPLE["ana"], "delete", one) for one in scopes)
        refused = refused or not here.sees(PEOPLE["ana"], taken)
        if refused:
            why = ""
        answer = self._do(
            done, refused, self.service.undo(self.caller(company, "ana"), taken.id), why
        )
        if answer is None:
            return
        done.undoes = taken
        for old, new in answer.linked.items():
            here.moved((taken.binding or "", old), (taken.binding or "", new))
        self._changed(done, {key: (after, before) for key, (before, after) in taken.steps.items()})

    # The plain side of a step

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

    def _unmarked(self, who: str, record: Record) -> Record:
        """Return a record without the mark that an agent gets on what is the whole company's."""
        if not PEOPLE[who].is_agent:
            return record
        told_ = {"text": record.text, "summary": record.summary}
        return record.model_copy(
            update={name: without_prefix(text) for name, text in told_.items() if text}
        )

    # What is compared

    def check(self) -> None:
        """Compare everything that can be read."""
        looks = [("ana", "company"), ("ana", "web"), ("cy", "web, cy"), ("coding", "user cy"),
                 ("scout", "web, coding"), ("zed", "company"), ("zed", "user ana")]  # fmt: skip
        for name, bindings in BINDINGS.items():
            for binding in bindings:
                for who, place in looks:
                    self.check_list((name, binding), place, who)
                for word in ("port", "deploy"):
                    self.check_query((name, binding), "web, cy", "cy", word)
                for hours in (1, 3, 30):
                    self.check_list((name, binding), "company", "ana", hours=hours)
                self.check_query((name, binding), "web", "ana", "port", hours=2)
            for place in ("web", "web, cy", "agent coding"):
                self.check_context(name, place, "cy", "port")
            self.check_records(name)
            self.check_log(name)

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
            and sees(scope, one.scope)
            and here.reads(PEOPLE[who], one.scope)
            and holds(one, moment or self.now)
        }

    def _moment(self, hours: int | None) -> datetime | None:
        """Return the last moment before so many hours ago; None: now."""
        return self.now - timedelta(hours=hours, microseconds=1) if hours else None

    def check_list(
        self, at: At, place: str, who: str, *, hours: int | None = None, newest: bool = False,
        tag: str | None = None, topic: str | None = None, issue: str | None = None,
        kind: str | None = None, since: int | None = None, until: int | None = None,
        owners: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Compare a list, read three at a time; `since` and `until` are in hours from now back."""
        company, binding = at
        here, scope, moment = self.companies[company], scope_of(company, place), self._moment(hours)
        begin = None if since is None else self.now - timedelta(hours=since)
        end = None if until is None else self.now - timedelta(hours=until)
        chosen = Filter(tag=tag, topic=topic, issue_id=issue, kind=kind, since=begin, until=end)
        owned = tuple(scope_of(company, one) for one in owners or ())
        if owned and not self.able.chosen_owners:
            return
        request = BrowseRequest(
            scope=scope, binding_key=binding, limit=PAGE, filter=chosen, owners=owned,
            sort="-created_at" if newest else "created_at", as_of=moment,
        )  # fmt: skip
        wanted = {
            name: one
            for name, one in self._view(at, scope, who, self.provider.lists, moment).items()
            if (tag is None or any(t == tag or t.startswith(f"{tag}/") for t in one.tags))
            and topic in (None, one.topic)
            and kind in (None, one.kind)
            and (issue is None or (one.source is not None and one.source.issue_id == issue))
            and (begin is None or (one.created_at is not None and begin <= one.created_at))
            and (end is None or (one.created_at is not None and one.created_at < end))
            and (not owned or owner_of(one.scope) in map(owner_of, owned))
        }
        found = self.run(self._pages(self.caller(company, who, APP_DOOR), request))
        allowed = here.may(PEOPLE[who], "view", scope)
        same(found is not None, allowed, "whether the list may be seen")
        if found is None:
            return
        records = [self._unmarked(who, one) for one in found]
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
        return fail("the list does not end")

    def check_query(
        self, at: At, place: str, who: str, word: str, *, hours: int | None = None
    ) -> None:  # fmt: skip
        """Compare what a query of one word finds, whatever its rank."""
        company, binding = at
        here, scope, moment = self.companies[company], scope_of(company, place), self._moment(hours)
        request = QueryRequest(
            scope=scope, query=word, binding_key=binding, top_k=100, as_of=moment
        )
        work = self.service.query(self.caller(company, who, APP_DOOR), request)
        try:
            found = self.run(work).snippets
        except Denied:
            expect(not here.may(PEOPLE[who], "view", scope), "the query was denied")
            return
        expect(here.may(PEOPLE[who], "view", scope), "the query was not denied")
        seen = self._view(at, scope, who, self.provider.sees, moment)
        ids = {one.handle.provider_record_id for one in found}
        missed = {name for name, one in seen.items() if _says(one, word)} - ids
        expect(not missed, f"it does not find {missed}")
        expect(ids <= seen.keys(), f"it finds {ids - seen.keys()}")
        for one in found:
            name = one.handle.provider_record_id
            same(told(self._unmarked(who, one)), told(seen[name]), f"{name} in a query")

    def check_context(self, company: str, place: str, who: str, prompt: str) -> None:
        """Compare what a model is told: the facts of each owner, from what serves that owner."""
        here, scope = self.companies[company], scope_of(company, place)
        request = ContextRequest(scope=scope, prompt=prompt, budget=100_000)
        work = self.service.context(self.caller(company, who, APP_DOOR), request)
        try:
            answer = self.run(work)
        except Denied:
            expect(not here.may(PEOPLE[who], "view", scope), "the context was denied")
            return
        expect(here.may(PEOPLE[who], "view", scope), "the context was not denied")
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
        related = found.pop("related", set())
        same(found, {name: keys for name, keys in wanted.items() if keys}, "a context")
        whole = self._serving(company, scope)
        view = self._view((company, whole), scope, who, self.provider.sees)
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

    def _serving(self, company: str, scope: Scope) -> str:
        return "two" if scope.project_id == "web" and "two" in BINDINGS[company] else "one"

    def check_records(self, company: str) -> None:
        """Compare each record that is or was there, and how it came to be so."""
        here = self.companies[company]
        ever = {key: one for _, state in here.past for key, one in state.items()}
        for who in ("ana", "cy"):
            for (binding, name), last in sorted(ever.items()):
                now = here.now((binding, name))
                record, scope = here.records.get(now), self._asked(last)
                allowed = here.reads(PEOPLE[who], last.scope) and here.may(
                    PEOPLE[who], "view", scope
                )
                shows = record is not None and holds(record, self.now) and allowed
                caller = self.caller(company, who, APP_DOOR)
                work = self.service.get(caller, name, scope, binding_key=binding)
                try:
                    found = self.run(work).record
                except (Denied, NotFound) as error:
                    expect(not shows, f"{name} is not found: {error}")
                else:
                    expect(shows, f"{name} is found")
                    same(told(found), told(record), f"{binding}: {name}")
                if who == "ana" and allowed:
                    self.check_history(company, binding, name, scope)

    def check_history(self, company: str, binding: str, name: str, scope: Scope) -> None:
        """Compare what was done to a record, under any of its ids."""
        here = self.companies[company]
        now = here.now((binding, name))
        ids = {now, *(old for old, to in here.links.items() if to == now)}
        wanted = []
        for done in reversed(here.log):
            steps = [step for key, step in done.steps.items() if key in ids]
            if steps and here.sees(PEOPLE["ana"], done):
                sides = zip(*steps, strict=True)
                before, after = (next(filter(None, side), None) for side in sides)
                wanted.append((done.id, told(before), told(after)))
        caller = self.caller(company, "ana", APP_DOOR)
        answer = self.run(self.service.history(caller, name, scope, binding_key=binding))
        found = [(one.operation.operation_id, told(one.before), told(one.after))
                 for one in answer.changes]  # fmt: skip
        same(found, wanted, f"the history of {binding}: {name}")

    def _log(self, company: str) -> list[Any]:
        """Return the whole log, the oldest first, read three at a time."""
        core = self.service.core.log(company)
        found: list[Any] = []
        before = None
        while True:
            page = core.page(Filter(), limit=PAGE, before=before)
            found += page.operations
            if (before := page.next_before) is None:
                same(len(found), page.total, "the length of the log")
                return found[::-1]

    def check_log(self, company: str) -> None:
        """Compare the log, as it is and as each person sees it, and what can be taken back."""
        here = self.companies[company]
        whole = self._log(company)[self.begun[company] :]
        logged = [one for one in whole if one.door != APP_DOOR]  # what compares is no step
        types = [(str(one.operation_type), str(one.status)) for one in logged]
        same(types, [(one.type, one.status) for one in here.log], "the log")
        for found, done in zip(logged, here.log, strict=True):
            done.id, done.scope = found.operation_id, found.scope
            by = (found.principal, found.started_at)
            same(by, (done.who.principal, done.at), "who and when")
            if done.steps:
                names = {one.provider_record_id for one in found.handles}
                place = (found.binding_key, names, found.result_count)
                same(place, (done.binding, set(done.ids), len(done.ids)), f"a {done.type}")
            if done.status == "ok":
                same(found.source, done.source, f"the source of a {done.type}")
            if done.undoes is not None:
                same(found.undoes, done.undoes.id, "what was taken back")
        own = {one.id for one in here.log}
        for who in ("ana", "bo", "cy", "coding"):
            seen = [one for one in here.log if here.sees(PEOPLE[who], one)]
            caller = self.caller(company, who, APP_DOOR)
            page = self.run(self.service.log.page(caller, limit=1000))
            ids = [one.operation_id for one in reversed(page.operations)]
            mine = [one for one in ids if one in own]
            same(mine, [one.id for one in seen], f"the log of {who}")
            left = [one.id for one in reversed(seen)
                    if one.steps and not here.undone(one) and one.undoes is None]  # fmt: skip
            found_left = self.run(self.service.undoable(caller, 1000))
            same([one.operation.operation_id for one in found_left], left, "what can be undone")


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
