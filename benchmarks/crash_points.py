"""End memtui before, after and within each change that it makes to a file, and fill the disk there.

    python -m benchmarks.crash_points
    python -m benchmarks.crash_points --only "undo many"
    python -m benchmarks.crash_points --sample 10

Each mutation runs once under `crash_shim.c`, a preloaded library that stops the process before each
write, sync, rename, unlink and the like below one folder, and again in the middle of each write,
Python's and SQLite's alike. At each stop the folder is copied: a process killed there would leave
that copy. Then the mutation runs again for each call that needs room on the disk, and that call and
all later ones fail as on a full disk. Each copy, and what each full disk left, is opened anew:

- The log proves itself.
- After `ops check` of each operation of unknown outcome, everything that can be read is as if the
  mutation had happened once or had not happened. Otherwise the same command again completes the
  mutation, or `undo` takes it back.
- A mutation that did not happen can be done, and one that happened can be undone.
- A mutation that returned without an error has happened.
- No file is left that belongs to neither state, and every error is a `MemtuiError`.

These points are counted and not opened, since their result is known:

- A copy that is the same state as an earlier one of the mutation: every file has the same bytes,
  and every database the same pages once SQLite has recovered it. So a sync, and a page of a
  transaction that is not committed yet, add no state.
- A full disk from a call on that needs no room (sync, rename, unlink, truncate): it is the full
  disk from the next call on that needs room.
- A full disk from a write on that follows another to the same file of a database, with the same
  state before both: SQLite takes back the whole transaction, or leaves the whole checkpoint for
  later, whichever of its pages does not fit.

A kill of the process is tried, not a power cut: what was written counts as written.

It needs Linux and a C compiler. Ends with 1 where a point breaks one of these rules.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import logging
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.crash_mutations import ANA, Act, Known, Mutation, Place, bind, mutations, settle
from benchmarks.crash_states import (
    Digests,
    Disk,
    copied,
    is_database,
    last,
    observed,
    put,
    take_back,
)
from memtui import scratch
from memtui.contract import Conflict, MemtuiError

_SHIM = Path(__file__).with_name("crash_shim.c")
_SECONDS = 60
"""A process that neither makes a call nor ends for longer counts as hanging."""
_SHARE = 0.03
"""The part of a mutation's stops that a sample copies."""
_FEW = 2
"""How many of the copied states a sample opens, besides one full disk."""
_PR_SET_PDEATHSIG = 1


class Done(NamedTuple):
    """How a forked process ended."""

    killed: bool
    hangs: bool
    value: Any
    error: str
    """The traceback of an exception."""


Heard = Callable[[str], None]
"""Takes each message of a process that waits until it is taken."""


class Shim:
    """The preloaded library, as the process uses it whose calls it stops."""

    def __init__(self, scratch: Path) -> None:
        self._library = ctypes.CDLL(None)
        self.scratch = scratch
        self.pipes = -1, -1
        """Where a watched process tells, and where it reads the answer."""

    def die_with_parent(self) -> None:
        """Let the kernel kill this process when its parent ends."""
        self._library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch(self, root: Path) -> None:
        """Tell each call below a folder before it is made."""
        self._library.crash_watch(f"{root}/".encode(), *self.pipes)

    def tell(self, message: str) -> None:
        """Tell something else."""
        self._library.crash_tell(message.encode())

    def fill(self, root: Path, call: int) -> None:
        """Let nothing more fit below a folder from a call on."""
        self._library.crash_fill(f"{root}/".encode(), call)

    def disarm(self) -> None:
        """Stop no further call."""
        self._library.crash_disarm()


def _forked(work: Callable[[], Any], shim: Shim, heard: Heard | None = None) -> Done:
    """Do something in a process that has everything imported; its result has to fit into JSON."""
    message, messages = os.pipe()
    answers, answer = os.pipe()
    with tempfile.TemporaryFile("w+", dir=shim.scratch) as result:
        child = os.fork()
        if child == 0:
            shim.die_with_parent()
            shim.pipes = messages, answers
            try:
                ended = {"value": work(), "error": ""}
            except BaseException:  # noqa: BLE001 - the parent reports it
                ended = {"value": None, "error": traceback.format_exc()}
            json.dump(ended, result, default=str)
            result.flush()
            os._exit(0)
        os.close(messages)
        os.close(answers)
        hangs = True
        try:
            hangs = _hang(message, answer, heard)
        finally:
            if hangs:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            os.close(message)
            os.close(answer)
        if hangs or os.WIFSIGNALED(status):
            return Done(not hangs, hangs, None, "")
        result.seek(0)
        return Done(killed=False, hangs=False, **json.load(result))


def _hang(message: int, answer: int, heard: Heard | None) -> bool:
    """Answer a process until it ends, and return whether it is silent for too long."""
    while True:
        ready, _, _ = select.select([message], [], [], _SECONDS)
        if not ready:
            return True
        if not (told := os.read(message, 1 << 13)):
            return False
        if heard is not None:
            heard(told.decode())
        os.write(answer, b".")


def _preloaded() -> bool:
    return hasattr(ctypes.CDLL(None), "crash_watch")


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


_WARMING = {"vault": "accept", "vault facts": "undo many", "facts": "purge", "memtui": "seal"}
"""A mutation each, by which the processes that are forked have their modules and statements."""


def _warm(trial: Trial) -> None:
    """Do in this process what each forked one would import, compile and build again."""
    logging.getLogger("memtui").addHandler(logging.NullHandler())  # its warnings are no exceptions
    _trust_copies()
    for mutation in mutations():
        if _WARMING.get(mutation.provider) == mutation.name:
            trial.run_here(mutation)
    scratch._remove_known.cache_clear()  # noqa: SLF001 - each process is to look anew


def _trust_copies() -> None:
    """Let the vault's index trust a copied file: it has another inode, and all else is the same."""
    from memtui.backends.vault import files

    files._signature_of = lambda status: f"{status.st_mtime_ns}:{status.st_size}:0"  # noqa: SLF001


# A point


class Point(NamedTuple):
    """Where a mutation ends, and how."""

    way: str
    """before, torn, after or full."""
    at: int
    """The number of the call, from 1."""


class Moment(NamedTuple):
    """What a kill at a point leaves."""

    point: Point
    digest: str
    is_done: bool
    """Whether the mutation had returned without an error by then."""


class Template(NamedTuple):
    """A mutation, the state in which it begins, and what came of it."""

    mutation: Mutation
    begin: Disk
    key: str
    known: Known
    before: Known
    after: Known
    since: int
    """The number of the last operation before it."""


class Call(NamedTuple):
    """A call that changes a file."""

    name: str
    path: str


class Watched:
    """The calls of a mutation, and the states between them."""

    def __init__(self, root: Path, digests: Digests, wants: Callable[[], bool]) -> None:
        self._root, self._digests, self._wants = root, digests, wants
        self.calls: list[Call] = []
        self.growing: list[int] = []
        """The numbers of the calls from which on a full disk is tried."""
        self._last: tuple[Call, str] | None = None
        """The last call that needs room, and the state before it."""
        self.moments: list[Moment] = []
        self.disks: dict[str, Disk] = {}
        """By digest."""
        self.is_done = False

    def hear(self, told: str) -> None:
        """Take a message of the shim."""
        if told == "done":
            self.is_done = True
        elif told in {"torn", "after"}:
            self._keep(Point(told, len(self.calls)))
        else:
            name, path = told.split(" ", 1)
            self.calls.append(Call(name.rstrip("+"), os.path.relpath(path, self._root)))
            number = len(self.calls)
            now = self.calls[-1], self._keep(Point("before", number))
            if name.endswith("+"):
                if now != self._last or not is_database(self.disks.get(now[1], {}), now[0].path):
                    self.growing.append(number)
                self._last = now

    def _keep(self, point: Point) -> str:
        """Copy the folder and return the state's digest; empty: it is not wanted."""
        if not self._wants():
            return ""
        disk = copied(self._root)
        digest = self._digests.of(disk)
        self.disks.setdefault(digest, disk)
        self.moments.append(Moment(point, digest, self.is_done))
        return digest

    def states(self) -> dict[tuple[str, bool], list[Point]]:
        """Return the points of each state, and of each whether the mutation had returned."""
        found: dict[tuple[str, bool], list[Point]] = {}
        for one in self.moments:
            found.setdefault((one.digest, one.is_done), []).append(one.point)
        return found


class Trial:
    """Runs mutations in one place, in a new process each time."""

    def __init__(self, work: Path) -> None:
        self.place = Place(work / "place")
        self._digests = Digests(work)
        self._shim = Shim(work)
        self._kept = 0
        """How many states were judged; the whole of `audit verify` runs for each twentieth."""

    def template(
        self, mutation: Mutation, wants: Callable[[], bool] = lambda: True
    ) -> tuple[Template, Watched]:
        """Run a mutation to its end; copies are kept of the stops that are wanted."""
        shutil.rmtree(self.place.root, ignore_errors=True)
        key, known = self._must(lambda: asyncio.run(bind(mutation, self.place)), mutation)
        begin = copied(self.place.root)
        if mutation.broken is not None:
            begin = self._halfway(mutation._replace(work=mutation.broken), key, known)
            put(self.place.root, begin)
        before, since = self._must(lambda: asyncio.run(self._see()), mutation)
        put(self.place.root, begin)
        watched = Watched(self.place.root, self._digests, wants)
        do = partial(self._do, mutation, key, known)
        self._must(lambda: asyncio.run(do(None)), mutation, watched.hear)
        after, _ = self._must(lambda: asyncio.run(self._see()), mutation)
        return Template(mutation, begin, key, known, before, after, since), watched

    def _halfway(self, mutation: Mutation, key: str, known: Known) -> Disk:
        """Return the state in the middle of those that kills of a mutation leave."""
        watched = Watched(self.place.root, self._digests, lambda: True)
        do = partial(self._do, mutation, key, known)
        self._must(lambda: asyncio.run(do(None)), mutation, watched.hear)
        states = [digest for digest, is_done in watched.states() if not is_done]
        return watched.disks[states[len(states) // 2]]

    def run_here(self, mutation: Mutation) -> None:
        """Do a mutation and look at the result, in this process."""

        async def all_of_it() -> None:
            key, known = await bind(mutation, self.place)
            await self._do(mutation, key, known, 0)
            await self._see()

        shutil.rmtree(self.place.root, ignore_errors=True)
        asyncio.run(all_of_it())

    def _must(self, work: Callable[[], Any], mutation: Mutation, heard: Heard | None = None) -> Any:
        done = _forked(work, self._shim, heard)
        if done.error or done.killed or done.hangs:
            raise RuntimeError(f"{mutation.title} does not work at all: {done}\n{done.error}")
        return done.value

    async def _see(self) -> tuple[Known, int]:
        service = await self.place.open()
        since = await last(service)
        if self._kept % 20 == 0 and (problem := (await service.analysis.verify_chain(ANA)).problem):
            raise Conflict(f"`audit verify` says: {problem}")
        await settle(service)
        scratch.remove_left_of(self.place.home)
        scratch.remove_left_of(self.place.out / "there")
        seen = await observed(service, self.place)
        await service.close()
        return seen, since

    async def _do(self, mutation: Mutation, key: str, known: Known, full: int | None) -> str:
        """Do it on a disk that is full from a call on, 0 for never, or watched for None.

        Returns memtui's error; empty: it was done.
        """
        error = ""
        if full is None:
            self._shim.watch(self.place.root)
        elif full:
            self._shim.fill(self.place.root, full)
        try:
            service = await self.place.open()
            try:
                await mutation.work(Act(service, dict(known), self.place, key))
            except MemtuiError as refused:
                if not full:
                    raise
                error = str(refused) or "an error without a word"
            if full is None:
                self._shim.tell("done")
            await service.close()
        except MemtuiError as refused:
            if not full:
                raise
            error = str(refused) or "an error without a word"
        if full is None:
            self._shim.tell("after")
        self._shim.disarm()
        return error

    def killed(self, template: Template, disk: Disk, *, is_done: bool) -> str:
        """Return what is wrong with a state that a kill leaves; empty: nothing."""
        put(self.place.root, disk)
        return self._judged(template, is_done=is_done)

    def full(self, template: Template, call: int) -> str:
        """Return what is wrong after a disk was full from a call on; empty: nothing."""
        put(self.place.root, template.begin)
        mutation, key, known = template.mutation, template.key, template.known
        done = _forked(lambda: asyncio.run(self._do(mutation, key, known, call)), self._shim)
        if done.hangs:
            return "it hangs"
        if done.error:
            return f"an error of Python's: {done.error.strip().splitlines()[-1]}\n{done.error}"
        return self._judged(template, is_done=not done.value)

    def _judged(self, template: Template, *, is_done: bool) -> str:
        self._kept += 1
        judge = partial(self._judge, template, acknowledged=is_done)
        done = _forked(lambda: asyncio.run(judge()), self._shim)
        if done.error or done.hangs or done.killed:
            return f"it cannot be looked at ({done.hangs=}): {done.error}"
        return str(done.value)

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
            wrong = "" if now == template.after else "it returned without an error"
            return _unlike(wrong, now, template.after)
        if now == template.before:
            return await self._again(template)
        if now == template.after:
            return await self._back(template) if mutation.undoes else ""
        kept = copied(self.place.root)
        if not (again := await self._again(template)):
            return ""
        put(self.place.root, kept)
        back = await self._back(template) if mutation.undoes else "it cannot be undone"
        if not back:
            return ""
        part = _unlike("half done", now, template.before)
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
        wrong = f"the same command again does not complete it: {error}"
        return _unlike(wrong if now != template.after else "", now, template.after)

    async def _back(self, template: Template) -> str:
        service = await self.place.open()
        refused = await take_back(service, template.since)
        await service.close()
        now, _ = await self._see()
        wrong = f"undo does not take it back: {refused}"
        return _unlike(wrong if now != template.before else "", now, template.before)


def _unlike(wrong: str, now: Known, wanted: Known) -> str:
    """Return what is wrong, and how what was read differs from what was wanted."""
    if not wrong:
        return ""
    unlike = [
        f"{name}: {_more(now[name], wanted[name])} for {_more(wanted[name], now[name])}"
        for name in now
        if now[name] != wanted[name]
    ]
    return f"{wrong}; " + "; ".join(unlike)


def _more(some: Any, others: Any) -> Any:
    """Return what a list has more of than another; another value itself."""
    if not isinstance(some, list):
        return some
    return list((Counter(map(str, some)) - Counter(map(str, others))).elements())


class Row(NamedTuple):
    """A line of the table."""

    calls: int = 0
    points: int = 0
    tried: int = 0
    exceptions: int = 0

    def line(self, name: str, provider: str) -> str:
        """Return it as text."""
        return f"{name:26}{provider:16}" + "".join(f"{one:>12}" for one in self)


def _tried(trial: Trial, mutation: Mutation, options: argparse.Namespace) -> tuple[Row, list[str]]:
    """Try the points of a mutation; return its row, and a sentence for each kind of exception."""
    wants: Callable[[], bool] = lambda: True  # noqa: E731 - one of two
    if is_sample := options.sample is not None:
        chance = random.Random(f"{options.seed} {mutation.title}")
        wants = lambda: chance.random() < _SHARE  # noqa: E731
    template, watched = trial.template(mutation, wants)
    calls, states = watched.calls, list(watched.states().items())
    growing = watched.growing
    points = len(watched.moments) + len(calls)
    if is_sample:
        states = chance.sample(states, min(_FEW, len(states)))
        growing = chance.sample(growing, min(1, len(growing)))
    if options.at:
        states = [one for one in states if any(point.at in options.at for point in one[1])]
        growing = [one for one in growing if one in options.at]
    wrong: dict[str, list[Point]] = {}
    for (digest, is_done), where in states:
        if told := trial.killed(template, watched.disks[digest], is_done=is_done):
            wrong.setdefault(told, []).extend(where)
    for call in growing:
        if told := trial.full(template, call):
            wrong.setdefault(told, []).append(Point("full", call))
    sentences = []
    for told, where in wrong.items():
        places = ", ".join(
            f"{one.way} {one.at} ({calls[one.at - 1].name} {calls[one.at - 1].path})"
            for one in where[:4]
        )
        what = told if options.verbose else told.splitlines()[0][:300]
        sentences.append(f"    {len(where)} x {places}: {what}")
    count = sum(map(len, wrong.values()))
    return Row(len(calls), points, len(states) + len(growing), count), sentences


def _spread(chosen: list[Mutation], seed: int) -> list[Mutation]:
    """Return mutations in the order of a sample: one of each name before a second of any."""
    random.Random(seed).shuffle(chosen)
    turn: Counter[str] = Counter()
    turns = []
    for one in chosen:
        turn[one.name] += 1
        turns.append(turn[one.name])
    return [one for _, one in sorted(zip(turns, chosen, strict=True), key=lambda pair: pair[0])]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="mutations whose name and provider have this")
    parser.add_argument("--sample", type=int, help="a few points of so many mutations")
    parser.add_argument("--seed", type=int, default=0, help="which points a sample takes")
    parser.add_argument("--at", type=int, nargs="*", help="the points of these calls alone")
    parser.add_argument("--list", action="store_true", help="name the mutations and end")
    parser.add_argument("--verbose", action="store_true", help="print each exception in full")
    options = parser.parse_args()
    chosen = [one for one in mutations() if options.only in one.title]
    if options.list:
        print("\n".join(one.title for one in chosen))
        return 0
    if not _preloaded():
        above = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _start_again(Path(tempfile.mkdtemp(prefix="memtui-crash-", dir=above)))
    work = Path(os.environ.pop("CRASH_POINTS_WORK"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that its folder goes
    os.environ.pop("LD_PRELOAD")
    try:
        trial = Trial(work)
        os.environ["TMPDIR"] = tempfile.tempdir = str(trial.place.temporary)
        return _all_tried(trial, chosen, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _all_tried(trial: Trial, chosen: list[Mutation], options: argparse.Namespace) -> int:
    if options.sample is not None:
        chosen = _spread(chosen, options.seed)[: options.sample]
    _warm(trial)
    print(f"{'mutation':26}{'provider':16}" + "".join(f"{one:>12}" for one in Row._fields))
    total = Row()
    for mutation in chosen:
        row, sentences = _tried(trial, mutation, options)
        total = Row(*map(sum, zip(total, row, strict=True)))
        print("\n".join([row.line(mutation.name, mutation.provider), *sentences]), flush=True)
    print(total.line("all", ""), flush=True)
    return 1 if total.exceptions else 0


if __name__ == "__main__":
    sys.exit(main())
