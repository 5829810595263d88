"""End memtui before, after and within each change that it makes to a file, and fill the disk there.

    python -m benchmarks.crash_points
    python -m benchmarks.crash_points --only "undo many"
    python -m benchmarks.crash_points --sample 30

Each mutation runs once while `crash_shim.c`, preloaded, counts its writes, syncs, renames, unlinks
and the like below one folder, Python's and SQLite's alike. Then it runs once for each of them and
each way to end: killed before it, killed after it, killed with half of a write done, and on a disk
on which nothing fits from it on. After each the home is opened anew and has to satisfy:

- the log proves itself;
- once `ops check` has looked at what is of unknown outcome, all that can be read is as if the
  mutation had happened once, or had not; else the same command again makes it so, or `undo` does;
- what did not happen can be done, and what happened can be undone;
- no file is left that neither of the two has, and no error was anything but memtui's own.

Not compared: the history of a vault's facts may tell of one more window that has ended, where a
write was killed between the history and the facts, or a migration of facts was run again.

It needs Linux and a C compiler. Ends with 1 where there is an exception to this.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import importlib
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from memtui.config import find_paths, load_settings
from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Invalid,
    MemtuiError,
    Model,
    OperationStatus,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.scratch import remove_left_of
from memtui.service import (
    Caller,
    Capture,
    MemoryService,
    ReviewRule,
    RuleAction,
    RuleTest,
    open_service,
)
from memtui.store.digest import GENESIS, is_intact
from memtui.store.log import company_salt

_SHIM = Path(__file__).with_name("crash_shim.c")
_COUNT, _BEFORE, _AFTER, _TORN, _FULL = range(5)
_WAYS = {_BEFORE: "before", _AFTER: "after", _TORN: "torn", _FULL: "full"}
_SECONDS = 30
"""The longest that one process takes; a longer one hangs."""
_MANY = 4
_LOADED = (
    "memtui.analytics.audit",
    "memtui.analytics.seal",
    "memtui.backends.claude_memory",
    "memtui.backends.facts",
    "memtui.backends.mcp_memory",
    "memtui.backends.vault",
    "memtui.doors.hooks.capture",
    "memtui.importing.importer",
    "memtui.migration.moving",
    "memtui.migration.syncing",
    "memtui.service.backup",
    "memtui.service.purge",
    "memtui.service.undo",
    "memtui.store.compiled",
)
_DERIVED = re.compile(
    r"/index/|\.lock$|-(wal|shm|journal)$|/sessions/|/heads/|memtui\.log|/changed$|/clients/|/LOCK$|/daily-"
)
"""Files that are made again, or tell nothing of memories."""

ANA = Caller(company_id="local", principal="user:ana", door="cli")
AGENT = Caller(company_id="local", principal="agent:coder", door="mcp")
SCOPE = Scope(company_id="local", project_id="web")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")
SECRET = "Quokkas-may-not-be-read-afterwards"

Known = dict[str, Any]
"""What preparing a mutation tells the mutation."""


class Place(NamedTuple):
    """Where everything of a point lies; what is watched is below it."""

    root: Path

    @property
    def home(self) -> Path:
        """Memtui's own folder."""
        return self.root / "home"

    @property
    def out(self) -> Path:
        """Where exports and backups go."""
        return self.root / "out"

    async def open(self) -> MemoryService:
        """Open the service as its owner."""
        paths = find_paths(self.home)
        settings = load_settings(paths, fact_max_count=0, principal="user:ana")
        return await open_service(paths, settings)


class Act(NamedTuple):
    """Who does something, with what, and where."""

    service: MemoryService
    known: Known
    place: Place
    key: str
    """The binding's."""


Work = Callable[[Act], Awaitable[Any]]


async def _nothing(_act: Act) -> None:
    pass


class Mutation(NamedTuple):
    """Something that memtui does, over a provider or by itself."""

    name: str
    provider: str
    prepare: Work
    work: Work
    undoes: bool = True
    """Whether it can be undone."""

    @property
    def title(self) -> str:
        """How it is named."""
        return f"{self.name}, {self.provider}"


# What is done


def _write(text: str, kind: str, **more: Any) -> WriteRequest:
    return WriteRequest(scope=SCOPE, source=SOURCE, content=text, kind=kind, **more)


def _kind(act: Act) -> str:
    return str(act.known.get("kind", "note"))


async def _fill(act: Act, count: int) -> list[RecordHandle]:
    found: list[RecordHandle] = []
    for number in range(count):
        request = _write(f"number_{number}: {SECRET} {number}", _kind(act), binding_key=act.key)
        answer = await act.service.write(ANA, request)
        found += answer.handles
    return found


def _handles(act: Act) -> tuple[RecordHandle, ...]:
    return tuple(map(RecordHandle.model_validate, act.known["handles"]))


def _filled(count: int) -> Work:
    async def prepare(act: Act) -> None:
        act.known["handles"] = [one.model_dump() for one in await _fill(act, count)]

    return prepare


async def _note(act: Act) -> None:
    await act.service.write(ANA, _write("deploy_branch: main", _kind(act), binding_key=act.key))


async def _correct(act: Act) -> None:
    request = CorrectRequest(
        scope=SCOPE, handle=_handles(act)[0], text="number_0: another", binding_key=act.key
    )
    await act.service.correct(ANA, request)


async def _forget(act: Act) -> None:
    request = ForgetRequest(scope=SCOPE, handles=_handles(act), binding_key=act.key)
    await act.service.forget(ANA, request)


def _then(*works: Work) -> Work:
    """Do one after another, and name the last operation that changed something for `_undo`."""

    async def prepare(act: Act) -> None:
        for work in works:
            await work(act)
        [newest, *_] = (await act.service.log.page(ANA, Filter(), limit=1)).operations
        act.known["undo"] = newest.operation_id

    return prepare


async def _undo(act: Act) -> None:
    await act.service.undo(ANA, act.known["undo"])


async def _hold(act: Act) -> None:
    rule = ReviewRule(action=RuleAction.HOLD, test=RuleTest.DOOR, value="mcp")
    await act.service.review.add_rule(ANA, act.key, rule)
    request = _write("An agent says so", _kind(act), binding_key=act.key)
    answer = await act.service.write(AGENT, request)
    assert answer.held is not None
    act.known["held"] = answer.held.held_id


async def _accept(act: Act) -> None:
    await act.service.review.accept(ANA, act.known["held"])


async def _fix(act: Act) -> None:
    await act.service.review.accept(ANA, act.known["held"], text="A person says so")


async def _refuse(act: Act) -> None:
    await act.service.review.refuse(ANA, act.known["held"], "no")


async def _purge(act: Act) -> None:
    from memtui.service import PurgeRequest

    request = PurgeRequest(project_id="web", forget=True)
    await act.service.purging.apply(ANA, request)


async def _seal(act: Act) -> None:
    await act.service.analysis.seal(ANA, everything=True)


async def _backup(act: Act) -> None:
    from memtui.service.backup import backup

    service = act.service
    target = act.place.out / "home.zip"
    await asyncio.to_thread(backup, service.paths, service.settings, target, now=datetime.now(UTC))


async def _restore(act: Act) -> None:
    from memtui.service.backup import restore

    to = find_paths(act.place.out / "there")
    await asyncio.to_thread(restore, act.place.out / "home.zip", to)


async def _post_run(act: Act) -> None:
    from memtui.doors.agent import Agent
    from memtui.doors.hooks.calls import HookCall, Moment
    from memtui.doors.hooks.capture import capture_run

    answer = "The release branch is main, and deploys leave from it on Tuesdays. " * 3
    call = HookCall(
        event="x", moment=Moment.END, prompt="Which branch do deploys leave?", reply=answer
    )
    caller = AGENT.model_copy(update={"door": "hook", "run_id": "r1"})
    await capture_run(Agent(act.service, caller, SCOPE, act.key), call)


async def _capture(act: Act) -> None:
    await act.service.bindings.update(ANA, act.key, capture={Capture.POST_RUN: True})


async def _second(act: Act) -> None:
    await _filled(_MANY)(act)
    await act.service.bindings.add(ANA, "second", "vault", {})


async def _migrate(act: Act) -> None:
    from memtui.migration import moving
    from memtui.migration.ends import open_ends

    ends = await open_ends(act.service, ANA, act.key, "second")
    done = await moving.apply(ends, act.place.home)
    _refuse_part(done.failed)


async def _in_step(act: Act) -> None:
    from memtui.migration import syncing
    from memtui.migration.ends import open_ends

    ends = await open_ends(act.service, ANA, act.key, "second")
    done = await syncing.sync(ends, act.place.home)
    _refuse_part(done.failed + len(done.conflicts))


def _refuse_part(failed: int) -> None:
    if failed:
        raise Conflict(f"{failed} failed.")


async def _changed_by_hand(act: Act) -> None:
    await _filled(_MANY)(act)
    [note, *_] = sorted((act.place.home / "bindings").rglob("*number-0*.md"))
    note.write_text("Changed by hand\n", "utf-8")


async def _reread(act: Act) -> None:
    await act.service.sync(ANA, act.key)


async def _settings(act: Act) -> None:
    await act.service.bindings.update(ANA, act.key, capture={Capture.COMMENTS: True})


async def _member(act: Act) -> None:
    from memtui.service.visibility import Membership, Role

    await act.service.members.set(ANA, Membership(principal="user:ana", role=Role.OWNER))


async def _exported(act: Act) -> None:
    await _filled(_MANY)(act)
    await _export(act)


async def _export(act: Act) -> None:
    from memtui.analytics.export import ExportFormat

    target = act.place.out / "log.jsonl"
    await act.service.analysis.export(ANA, target, ExportFormat.JSONL, force=True)


async def _import(act: Act) -> None:
    from memtui.importing.columns import column_map
    from memtui.importing.importer import Import

    columns = column_map((), types={}, statuses={}, constants={}, timezone=None)
    work = Import([act.place.out / "log.jsonl"], "theirs", columns)
    try:
        await work.run(act.service, ANA)
    finally:
        work.close()


async def _first_start(act: Act) -> None:
    paths = find_paths(act.place.out / "first")
    service = await open_service(paths, load_settings(paths, principal="user:ana"))
    await service.close()


def _mutations() -> Iterator[Mutation]:
    for provider in ("vault", "vault facts", "facts", "claude-memory", "mcp-memory"):
        for name, count, work in (
            ("note", 0, _note), ("correct", 1, _correct), ("forget", 1, _forget),
            ("forget many", _MANY, _forget),
        ):  # fmt: skip
            yield Mutation(name, provider, _filled(count), work)
        for name, count, works in (
            ("undo note", 0, (_note,)), ("undo correct", 1, (_correct,)),
            ("undo forget", 1, (_forget,)), ("undo many", _MANY, (_forget,)),
        ):  # fmt: skip
            yield Mutation(name, provider, _then(_filled(count), *works), _undo)
        redo = _then(_then(_filled(_MANY), _forget), _undo)
        yield Mutation("redo many", provider, redo, _undo)
        if provider != "vault facts":
            yield Mutation("purge", provider, _filled(2), _purge, undoes=False)
            yield Mutation("accept", provider, _hold, _accept)
    yield Mutation("fix", "vault", _hold, _fix)
    yield Mutation("refuse", "vault", _hold, _refuse)
    yield Mutation("undo accept", "vault", _then(_hold, _accept), _undo)
    yield Mutation("undo refuse", "vault", _then(_hold, _refuse), _undo)
    yield Mutation("post-run hook", "vault", _capture, _post_run)
    yield Mutation("post-run hook", "claude-memory", _capture, _post_run)
    yield Mutation("migrate", "vault", _second, _migrate, undoes=False)
    yield Mutation("migrate", "facts", _second, _migrate, undoes=False)
    yield Mutation("sync", "facts", _second, _in_step, undoes=False)
    yield Mutation("re-index", "vault", _changed_by_hand, _reread, undoes=False)
    for name, prepare, work in (
        ("seal", _filled(_MANY), _seal), ("backup", _filled(2), _backup),
        ("restore", _then(_filled(2), _backup), _restore), ("export", _filled(2), _export),
        ("import", _exported, _import),
    ):  # fmt: skip
        yield Mutation(name, "memtui", prepare, work, undoes=False)
    yield Mutation("purge of sealed", "memtui", _then(_filled(2), _seal), _purge, undoes=False)
    yield Mutation("first start", "memtui", _nothing, _first_start, undoes=False)
    yield Mutation("settings", "memtui", _nothing, _settings)
    yield Mutation("member", "memtui", _nothing, _member)


async def _bind(mutation: Mutation, place: Place) -> tuple[str, Known]:
    """Make the home, and the binding of a mutation's provider; returns its key."""
    place.out.mkdir(parents=True)
    service = await place.open()
    known: Known = {}
    provider, key = mutation.provider, "default"
    if provider in {"facts", "claude-memory", "mcp-memory"}:
        config: dict[str, Any] = {}
        key = "other"
        if provider == "claude-memory":
            folder = place.root / "memory"
            folder.mkdir()
            (folder / "MEMORY.md").write_text("# Memory\n\n- [Kept](kept.md) — kept\n")
            (folder / "kept.md").write_text("---\nname: Kept\ntype: user\n---\nKept.\n")
            config = {"path": str(folder)}
        elif provider == "mcp-memory":
            (place.root / "graph").mkdir()
            file = place.root / "graph" / "memory.jsonl"
            entity = {"type": "entity", "name": "a", "entityType": "b", "observations": ["c"]}
            file.write_text(json.dumps(entity) + "\n")
            config = {"path": str(file), "settle_ms": 0}
        await service.bindings.add(ANA, key, provider, config)
    if provider in {"facts", "vault facts"}:
        known["kind"] = "fact"
    await mutation.prepare(Act(service, known, place, key))
    await service.close()
    return key, known


# What is seen afterwards


async def _observed(service: MemoryService, place: Place) -> Known:
    """Return everything that can be read, as values that compare."""
    records: list[Any] = []
    for view in await service.bindings.all(ANA):
        request = BrowseRequest(scope=Scope(company_id="local"), binding_key=view.key, limit=500)
        page = await service.browse(ANA, request)
        records += [[view.key, *_said(one)] for one in page.records]
    bindings = [
        view.model_dump(mode="json", exclude={"created_at", "capabilities"})
        for view in await service.bindings.all(ANA)
    ]
    held = [one.model_dump(mode="json", include={"text", "kind"}) for one in
            await service.review.waiting(ANA)]  # fmt: skip
    members = [one.model_dump(mode="json") for one in await service.members.all(ANA)]
    theirs = ANA.model_copy(update={"company_id": "theirs"})
    imported = 0
    with suppress(MemtuiError):
        imported = len((await service.log.page(theirs, limit=500)).operations)
    sealed = (await service.analysis.segments(ANA)).sealed_through > 0
    seen = {
        "records": sorted(records, key=str),
        "bindings": sorted(bindings, key=str),
        "held": sorted(held, key=str),
        "members": sorted(members, key=str),
        "imported": imported,
        "sealed": sealed,
        "secret": _holds(place.root, SECRET.encode()),
        "files": sorted({name for name, _ in _files(place)}),
        "lines": [path.read_text().split("\n") for path in place.root.rglob("MEMORY.md")],
        "history": sorted(_past(place)),
    }
    told: Known = json.loads(json.dumps(seen, default=str))  # as it comes out of a process
    return told


def _said(record: Record) -> list[Any]:
    metadata = {k: v for k, v in record.metadata.items() if k not in {"index_line", "entry_type"}}
    return [
        record.text, record.title, record.summary, record.kind, record.topic,
        sorted(record.tags), record.pinned, str(record.expires_at), record.scope.model_dump(),
        record.source and record.source.model_dump(mode="json", exclude={"run_id"}),
        record.created_by, {k: str(v) for k, v in metadata.items()},
    ]  # fmt: skip


def _past(place: Place) -> Iterator[str]:
    """Yield what the histories of the vault's facts say holds now."""
    for path in place.home.rglob("facts.history.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            version = json.loads(line)
            if version.get("valid_to") is None:
                yield str(version["text"])


def _files(place: Place) -> Iterator[tuple[str, Path]]:
    for path in place.root.rglob("*"):
        name = path.relative_to(place.root).as_posix()
        if path.is_file() and not _DERIVED.search(f"/{name}") and path.read_bytes() != b"{}":
            yield re.sub(r"\d+-\d+(\.\d+)?(?=/)", "#", name), path


def _holds(root: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in root.rglob("*") if path.is_file())


async def _chain_problem(service: MemoryService) -> str:
    """Return what `audit verify` says; where nothing is sealed, what it looks at without DuckDB."""
    if (await service.analysis.segments(ANA)).segments:
        return (await service.analysis.verify_chain(ANA)).problem or ""
    operations = (await service.log.page(ANA, limit=500)).operations[::-1]
    with service.core.database.read() as database:
        salt = company_salt(database, ANA.company_id)
    previous = GENESIS
    for seq, one in enumerate(operations, start=1):
        if (one.seq, one.previous_digest) != (seq, previous) or not is_intact(one, salt):
            return f"operation {seq} does not fit"
        previous = one.digest
    return ""


async def _settle(service: MemoryService) -> None:
    """Find out about all that is of unknown outcome."""
    chosen = Filter(status=OperationStatus.UNKNOWN, own=True)
    for one in (await service.log.page(ANA, chosen, limit=100)).operations:
        if await service.log.found_outcome(ANA, one.operation_id) is None:
            with suppress(Conflict, Invalid):
                await service.check_outcome(ANA, one.operation_id)


async def _last(service: MemoryService) -> int:
    operations = (await service.log.page(ANA, Filter(own=True), limit=1)).operations
    return operations[0].seq if operations else 0


async def _take_back(service: MemoryService, since: int) -> str:
    """Undo what changed something since an operation, the newest first; return what was refused."""
    chosen, refused = Filter(own=True), ""
    for one in (await service.log.page(ANA, chosen, limit=100)).operations:
        if one.seq > since and one.operation_type.mutates:
            try:
                await service.undo(ANA, one.operation_id)
            except (Conflict, Invalid, MemtuiError) as error:
                refused = f"{one.operation_type} {one.status}: {error}"
    return refused


# Processes


class Done(NamedTuple):
    """How a process ended that was forked."""

    killed: bool
    hangs: bool
    value: Any
    error: str


def _forked(work: Callable[[], Any]) -> Done:
    """Do something in a process that has everything imported; what it returns comes as JSON."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            said = {"value": work(), "error": ""}
        except BaseException:  # noqa: BLE001 -- all of it is told
            said = {"value": None, "error": traceback.format_exc()}
        with os.fdopen(write, "w") as told:
            json.dump(said, told, default=str)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as heard:
        parts: list[bytes] = []
        until = time.monotonic() + _SECONDS
        hangs = False
        while True:
            ready, _, _ = select.select([heard], [], [], max(0, until - time.monotonic()))
            if not ready:
                hangs = True
                os.kill(child, signal.SIGKILL)
                break
            if not (part := os.read(heard.fileno(), 1 << 16)):
                break
            parts.append(part)
    _, status = os.waitpid(child, 0)
    if hangs or os.WIFSIGNALED(status):
        return Done(not hangs, hangs, None, "")
    said = json.loads(b"".join(parts))
    return Done(killed=False, hangs=False, **said)


class Shim:
    """The preloaded functions that count, and end, what the process does below a folder."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.crash_names.restype = ctypes.c_char_p

    def arm(self, root: Path, way: int, at: int) -> None:
        """Begin to count, and end at that call in that way."""
        self._library.crash_arm(f"{root}/".encode(), way, at)

    def disarm(self) -> list[str]:
        """Count no more; returns what was counted."""
        self._library.crash_disarm()
        return str(self._library.crash_names().decode()).split()


def _preloaded() -> bool:
    return hasattr(ctypes.CDLL(None), "crash_arm")


def _start_again(work: Path) -> None:
    """Compile the shim and go on in this process with it preloaded."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        print("It needs Linux and a C compiler, `cc`.")
        sys.exit(2)
    shim = work / "shim.so"
    options = ["-shared", "-fPIC", "-O1", "-o", str(shim), str(_SHIM), "-ldl", "-lpthread"]
    subprocess.run([compiler, *options], check=True)
    environment = os.environ | {"LD_PRELOAD": str(shim)}
    arguments = [sys.executable, "-m", "benchmarks.crash_points", *sys.argv[1:]]
    os.execve(sys.executable, arguments, environment | {"CRASH_POINTS_WORK": str(work)})


def _warm(trial: Trial) -> None:
    """Import what the processes need, and build what they would each build again."""
    for name in _LOADED:
        importlib.import_module(name)
    before = set(sys.modules)
    for mutation in _mutations():
        if (mutation.name, mutation.provider) in {("accept", "vault"), ("seal", "memtui")}:
            for name in trial.imported(mutation):
                if name not in before and not name.startswith("__"):
                    with suppress(ImportError):
                        importlib.import_module(name)
    models: list[type[Model]] = [Model]
    while models:
        model = models.pop()
        models += model.__subclasses__()
        with suppress(Exception):  # one that is never used as it stands
            model.model_rebuild()


# A point


class Template(NamedTuple):
    """A mutation that can be run again and again from one state."""

    mutation: Mutation
    folder: Path
    key: str
    known: Known
    before: Known
    after: Known
    since: int
    calls: list[str]


class Point(NamedTuple):
    """Where a mutation ends, and how."""

    way: int
    at: int


class Trial:
    """Runs mutations at one place, each point in processes of its own."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.place = Place(work / "place")
        self._shim = Shim()
        self.number = 0
        """How many points were tried; `audit verify` itself runs after each twentieth."""

    def _put(self, folder: Path | None) -> None:
        shutil.rmtree(self.place.root, ignore_errors=True)
        if folder is not None:
            shutil.copytree(folder, self.place.root, symlinks=True)

    def template(self, mutation: Mutation, number: int) -> Template:
        """Make what each point of a mutation begins with, and know how it is before and after."""
        self._put(None)
        key, known = self._must(lambda: asyncio.run(_bind(mutation, self.place)), mutation)
        folder = self.work / f"template-{number}"
        shutil.copytree(self.place.root, folder, symlinks=True)
        before, since = self._must(lambda: asyncio.run(self._see()), mutation)
        self._put(folder)
        act = (mutation, key, known)
        calls = self._must(lambda: asyncio.run(self._do(*act, Point(_COUNT, 0))), mutation)
        after, _ = self._must(lambda: asyncio.run(self._see()), mutation)
        return Template(mutation, folder, key, known, before, after, since, calls)

    def imported(self, mutation: Mutation) -> list[str]:
        """Return what a process imports that makes a mutation and looks at what came of it."""
        self._put(None)

        async def all_of_it() -> list[str]:
            key, known = await _bind(mutation, self.place)
            await self._do(mutation, key, known, Point(_BEFORE, 0))
            await self._see()
            await self._proved()
            return [*sys.modules]

        found: list[str] = self._must(lambda: asyncio.run(all_of_it()), mutation)
        return found

    def _must(self, work: Callable[[], Any], mutation: Mutation) -> Any:
        done = _forked(work)
        if done.error or done.killed or done.hangs:
            raise RuntimeError(f"{mutation.title} does not work at all: {done}\n{done.error}")
        return done.value

    async def _see(self) -> tuple[Known, int]:
        service = await self.place.open()
        since = await _last(service)
        if self.number % 20 == 0 and (
            problem := (await service.analysis.verify_chain(ANA)).problem
        ):
            raise Conflict(f"`audit verify` says: {problem}")
        await _settle(service)
        remove_left_of(self.place.home)
        remove_left_of(self.place.out / "there")
        seen = await _observed(service, self.place)
        await service.close()
        return seen, since

    async def _do(self, mutation: Mutation, key: str, known: Known, point: Point) -> Any:
        """Do it, and end at a point; returns what was counted, or the error that memtui told."""
        service = await self.place.open()
        self._shim.arm(self.place.root, *point)
        told = ""
        try:
            await mutation.work(Act(service, dict(known), self.place, key))
        except MemtuiError as error:
            if point.way == _COUNT:
                raise
            told = str(error) or "an error without a word"
        calls = self._shim.disarm()
        await service.close()
        return calls if point.way == _COUNT else told

    def run(self, template: Template, point: Point) -> str:
        """Return what is wrong after a point; empty: nothing."""
        self.number += 1
        self._put(template.folder)
        mutation, key, known = template.mutation, template.key, template.known
        done = _forked(lambda: asyncio.run(self._do(mutation, key, known, point)))
        if done.hangs:
            return "it hangs"
        if done.error:
            return f"an error of Python's: {done.error.strip().splitlines()[-1]}\n{done.error}"
        acknowledged = not done.killed and not done.value
        looked = _forked(lambda: asyncio.run(self._judge(template, acknowledged=acknowledged)))
        if looked.error or looked.hangs or looked.killed:
            return f"it cannot be looked at ({looked.hangs=}): {looked.error}"
        return str(looked.value)

    async def _judge(  # noqa: PLR0911 - a reason for each end
        self, template: Template, *, acknowledged: bool
    ) -> str:
        """Return what is wrong with what is there now."""
        try:
            now, _ = await self._see()
        except MemtuiError as error:
            return f"the home does not open: {error}"
        mutation = template.mutation
        if acknowledged:
            wrong = [] if now == template.after else ["it was told as done"]
            return self._told(wrong, now, template.after) or await self._proved()
        if now == template.before:
            return await self._again(template) or await self._proved()
        if now == template.after:
            back = await self._back(template) if mutation.undoes else ""
            return back or await self._proved()
        kept = self.work / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.place.root, kept, symlinks=True)
        if not (again := await self._again(template)):
            return await self._proved()
        self._put(kept)
        back = await self._back(template) if mutation.undoes else "it cannot be undone"
        if not back:
            return await self._proved()
        part = self._told(["half done"], now, template.before)
        return f"{part}\n  again: {again}\n  undo: {back}"

    async def _again(self, template: Template) -> str:
        service = await self.place.open()
        error = ""
        try:
            act = Act(service, dict(template.known), self.place, template.key)
            await template.mutation.work(act)
        except MemtuiError as failed:
            error = str(failed)
        await service.close()
        now, _ = await self._see()
        wrong = [f"not done by the same again: {error}"] if now != template.after else []
        return self._told(wrong, now, template.after)

    async def _back(self, template: Template) -> str:
        service = await self.place.open()
        refused = await _take_back(service, template.since)
        await service.close()
        now, _ = await self._see()
        wrong = [f"not undone: {refused}"] if now != template.before else []
        return self._told(wrong, now, template.before)

    async def _proved(self) -> str:
        """Return why the log does not prove itself, as `audit verify` finds."""
        service = await self.place.open()
        problem = await _chain_problem(service)
        await service.close()
        return f"the log does not prove itself: {problem}" if problem else ""

    def _told(self, wrong: Sequence[str], now: Known, wanted: Known) -> str:
        if not wrong:
            return ""
        told = [
            f"{name}: {_more(now[name], wanted[name])} for {_more(wanted[name], now[name])}"
            for name in now
            if now[name] != wanted[name]
        ]
        return f"{wrong[0]}; " + "; ".join(told)


def _more(some: Any, others: Any) -> Any:
    """Return what a list has more of than another; another value itself."""
    if not isinstance(some, list):
        return some
    return list((Counter(map(str, some)) - Counter(map(str, others))).elements())


def _points(calls: Sequence[str]) -> list[Point]:
    found = []
    for at, name in enumerate(calls, start=1):
        found += [Point(_BEFORE, at), Point(_FULL, at)]
        if name == "write":
            found.append(Point(_TORN, at))
    return [*found, Point(_AFTER, len(calls))] if calls else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="mutations whose name and provider have this")
    parser.add_argument("--sample", type=float, help="some points of all, for so many seconds")
    parser.add_argument("--seed", type=int, default=0, help="which points a sample takes")
    parser.add_argument("--at", type=int, nargs="*", help="the points of these calls alone")
    parser.add_argument("--list", action="store_true", help="name the mutations and end")
    parser.add_argument("--verbose", action="store_true", help="tell each exception in full")
    options = parser.parse_args()
    chosen = [one for one in _mutations() if options.only in one.title]
    if options.list:
        print("\n".join(one.title for one in chosen))
        return 0
    if not _preloaded():
        above = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _start_again(Path(tempfile.mkdtemp(prefix="memtui-crash-", dir=above)))
    work = Path(os.environ.pop("CRASH_POINTS_WORK"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that its folder goes
    os.environ["TMPDIR"] = tempfile.tempdir = str(work / "tmp")
    os.environ.pop("LD_PRELOAD")
    (work / "tmp").mkdir()
    try:
        return _tried(Trial(work), chosen, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _tried(trial: Trial, chosen: list[Mutation], options: argparse.Namespace) -> int:
    _warm(trial)
    chance = random.Random(options.seed)
    until = None if options.sample is None else time.monotonic() + options.sample
    if until is not None:
        chance.shuffle(chosen)
    share = None if options.sample is None else options.sample / max(1, len(chosen))
    print(f"{'mutation':18}{'provider':16}{'calls':>6}{'points':>8}{'exceptions':>12}", flush=True)
    total: Counter[str] = Counter()
    for number, mutation in enumerate(chosen):
        if until is not None and time.monotonic() > until:
            break
        began = time.monotonic()
        template = trial.template(mutation, number)
        points = _points(template.calls)
        if options.at:
            points = [one for one in points if one.at in options.at]
        if share is not None:
            chance.shuffle(points)
        wrong: dict[str, list[Point]] = {}
        tried = 0
        for point in points:
            is_over = share is not None and tried and time.monotonic() - began > max(share, 2.0)
            if is_over or (until is not None and time.monotonic() > until and tried):
                break
            tried += 1
            if told := trial.run(template, point):
                what = told if options.verbose else told.splitlines()[0][:300]
                wrong.setdefault(what, []).append(point)
        count = sum(map(len, wrong.values()))
        total += Counter(calls=len(template.calls), points=tried, exceptions=count)
        print(
            f"{mutation.name:18}{mutation.provider:16}{len(template.calls):6}{tried:8}{count:12}",
            flush=True,
        )
        for told, where in wrong.items():
            places = ", ".join(
                f"{_WAYS[one.way]} {one.at} ({template.calls[one.at - 1]})" for one in where[:4]
            )
            print(f"    {len(where)} x {places}: {told}", flush=True)
        shutil.rmtree(template.folder, ignore_errors=True)
    print(
        f"{'all':18}{'':16}{total['calls']:6}{total['points']:8}{total['exceptions']:12}",
        flush=True,
    )
    return 1 if total["exceptions"] else 0


if __name__ == "__main__":
    sys.exit(main())
