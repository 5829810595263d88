"""What came of a memory: who was given it, what they wrote afterwards, who was given that.

A trace follows the log from some records to the runs that they were delivered to, to what these
wrote afterwards, and on from there. What a write made of a record counts from that write until a
change takes the text away again; so time only goes forwards, and no circle can come of it. Counted,
but not followed: what the caller may not see, and what only the same agent wrote in another run.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote

from memtui.analytics.company_log import CompanyLog
from memtui.contract import (
    Filter,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    RecordHandle,
    Scope,
)
from memtui.passages import Phrase, phrases_of, repeated
from memtui.service.history.narrowing import operations_asked
from memtui.service.history.runs import Runs
from memtui.service.runtime import ServiceModule, ServiceRuntime
from memtui.service.visibility import USER_PREFIX, Caller, may_read, readable, without_prefix
from memtui.store.journal import Journal
from memtui.store.log import RecordText, copied_from, record_texts
from memtui.store.operation import Operation, Place
from memtui.text_analysis import words_in_order

MOST_WRITES = 10_000
"""Most writes that one trace follows."""
_MOST_RUNS = 50_000
_MOST_SEEDS = 1_000
_MOST_OF_AGENTS = 200
"""Most later writes of the same agents that are compared with what they were given."""
LISTED_OF_AGENTS = 100
"""Most of these that are listed although no text came back in them, unless more are asked for."""
_OLDER = 1_000
"""Writes from before the trace whose passages prove nothing, as they were known already."""
_COPY = 0.8
_COMMON = 3
"""A phrase that so many runs wrote without having been given it proves nothing either."""
_NEVER = 2**62
_SHOWN_GAPS = 20
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")
"""What JSON writes in place of a character."""


class Certainty(IntEnum):
    """How certain it is that a write came of what was delivered; 1 is the most certain."""

    BEGUN = 0
    """The trace began with it."""
    RETURNED = 1
    """A passage of the delivered text came back in it."""
    SAME_RUN = 2
    """One run was given the one and wrote the other afterwards."""
    SAME_AGENT = 3
    """Only the same agent did both."""


class Unknown(StrEnum):
    """What a log cannot know about a trace, or what the trace leaves out."""

    HIDDEN = "hidden"
    """Deliveries and writes that the caller may not see."""
    WITHOUT_RUN = "without_run"
    """Deliveries outside any run: only the agent is known."""
    WITHOUT_TEXT = "without_text"
    """Writes whose text is not stored, or no longer."""
    HELD = "held"
    """Writes that wait for review, or were refused."""
    UNSETTLED = "unsettled"
    """Writes of unknown outcome."""
    PURGED = "purged"
    """Writes that a purge erased, so that what came of them is not followed."""
    GAPS = "gaps"
    """Gaps in what `memtui mcp wrap` logged."""
    PURGES = "purges"
    IMPORTED = "imported"
    LOOKS = "looks"
    """Lists and profiles, of which the log does not name the records."""
    UNLISTED = "unlisted"
    """Later writes of the same agents, at least so many."""
    CUT = "cut"
    """Records, runs or writes were left out, as there are too many."""


_COUNTED = {
    OperationType.GAP: Unknown.GAPS,
    OperationType.PURGE: Unknown.PURGES,
    OperationType.BROWSE: Unknown.LOOKS,
    OperationType.PROFILE: Unknown.LOOKS,
}


@dataclass(eq=False)
class TracedRecord:
    """A record as one write left it, or the traced record itself."""

    place: Place
    """Its binding and its present id there."""
    operation: Operation | None
    """The write; None: the traced record, however it was written."""
    provider_key: str
    text: str | None
    """None: it is not stored, or no longer."""
    words: Sequence[str]
    """The folded words of its title, its summary and its text."""
    phrases: Collection[Phrase]
    old: Collection[Phrase] = ()
    """The phrases of the record before the write."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """When it had the text: the numbers of the change that brought it and of the one that took it
    away."""
    is_gone: bool = False
    """Whether that change removed the record."""
    certainty: Certainty | None = None
    """None: it is not in the trace."""
    given: Giving | None = None
    """The delivery that it came of."""
    passage: str = ""
    """What came back, in folded words."""
    depth: int = 0
    """How many deliveries it is away from where the trace began."""
    deliveries: int = 0
    runs: set[str] = field(default_factory=set)
    """The runs that it was delivered to."""

    @property
    def seq(self) -> int:
        """The number of the write, 0 for the traced record."""
        return self.operation.seq if self.operation else 0

    @property
    def handle(self) -> RecordHandle:
        """Its present handle."""
        return RecordHandle(provider_key=self.provider_key, provider_record_id=self.place[1])

    @property
    def until(self) -> int:
        """The number of the change that took the text away for good."""
        return self.spans[-1][1]

    @property
    def is_there(self) -> bool:
        """Whether the record still has the text, as far as the log knows."""
        return self.until == _NEVER and not self.is_gone

    def is_in(self, record: Record) -> bool:
        """Whether a record has the text; the traced one has it whatever it says."""
        if self.operation is None or self.text is None or self.text in record.text:
            return True
        return bool(repeated(_words(record), self.phrases))

    @property
    def by(self) -> str:
        """The agent that wrote it, else who did; empty for the traced record."""
        return (self.operation.scope.agent_id or self.operation.author) if self.operation else ""

    @property
    def run_id(self) -> str:
        """The run that wrote it; empty: none is known."""
        return _run_of(self.operation) if self.operation else ""


class Giving(NamedTuple):
    """The first delivery of a record to a run or an agent."""

    seq: int
    run_id: str | None
    record: TracedRecord


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """What came of some records, as a tree: each one stands before what came of it."""

    records: list[TracedRecord]
    runs: int
    """How many runs were given any of it."""
    unknown: dict[Unknown, int]
    """In numbers of operations; those of which there are none are absent."""
    gaps: Sequence[Operation]
    """The first writes that a purge erased, and the first gaps of `mcp wrap` since the trace began.
    """

    def through(self, least: Certainty) -> list[TracedRecord]:
        """Return what the trace began with, and what came of it at least as certainly."""
        return [one for one in self.records if (one.certainty or Certainty.BEGUN) <= least]


class _Givings:
    """What one run, or one agent, was given."""

    def __init__(self) -> None:
        self.all: list[Giving] = []
        self.of_phrase: dict[Phrase, Giving] = {}
        self.first = _NEVER
        """The number of the first delivery."""
        self.asked = _NEVER
        """The number above which an agent's writes were looked up."""
        self.wrote: dict[Phrase, int] = {}
        """What it wrote before it was given anything, as far as its deliveries are known."""

    def add(self, giving: Giving) -> None:
        self.all.append(giving)
        self.first = min(self.first, giving.seq)
        for phrase in giving.record.phrases:
            known = self.of_phrase.get(phrase, giving)
            self.of_phrase[phrase] = min(giving, known, key=lambda one: one.seq)

    def returned(self, record: TracedRecord, known: set[Phrase]) -> tuple[str, Giving] | None:
        """Return a passage of a text that was delivered before, and what delivered it."""
        own = (one for one, seq in self.wrote.items() if seq < self.first)
        new = set(record.phrases).difference(known, record.old, own)
        found = {self.of_phrase[one] for one in new & self.of_phrase.keys()}
        for giving in sorted(found, key=lambda one: one.seq):
            same = new.intersection(giving.record.phrases) if giving.seq < record.seq else ()
            if same and (passage := repeated(record.words, same)):
                return passage, giving
        return None


class _Closure:
    """Follows the log from some records on. Blocking."""

    def __init__(self, runtime: ServiceRuntime, caller: Caller, listed: int) -> None:
        self.log = runtime.log_of(caller)
        self._listed = listed
        """Most writes of certainty `SAME_AGENT`."""
        self.company = Scope(company_id=caller.company_id)
        self.visibility = runtime.visibility(caller)
        self.found: list[TracedRecord] = []
        self.unknown = Counter[Unknown]()
        self._database = runtime.database
        self._runs: dict[str, _Givings] = defaultdict(_Givings)
        self._agents: dict[str, _Givings] = defaultdict(_Givings)
        self._written: dict[str, list[Operation]] = {}
        self._left: dict[int, list[TracedRecord]] = {}
        self._told: set[str] = set()
        """The agents that were given something since their writes were linked."""
        self._of_agents: dict[int, Operation] = {}
        self._copies: dict[Place, list[int]] = {}
        self._known: set[Phrase] = set()
        self._begun = 0
        """The number of the write that the trace begins with, as far as it is known."""
        self._origins = Counter[Phrase]()
        self._whys: dict[int, tuple[Operation, Unknown]] = {}
        """The writes that were not followed, and why."""
        self._states: dict[Place, list[RecordText]] = {}
        self._moved: dict[str, dict[str, str]] = {}
        self._fresh: list[tuple[TracedRecord, tuple[int, int]]] = []
        """The records whose deliveries are to be looked up, and between which numbers."""

    def place(self, key: str, record_id: str) -> Place:
        """Return the place of a record under its present id."""
        if key not in self._moved:
            with self._database.read() as database:
                self._moved[key] = Journal(database, self.company.company_id).moved_ids(key)
        return key, self._moved[key].get(record_id, record_id)

    def _ids(self, place: Place) -> list[str]:
        key, now = place
        return [now, *(old for old, new in self._moved[key].items() if new == now)]

    def states(self, places: Iterable[Place]) -> dict[Place, list[RecordText]]:
        """Return what the journal has of records, oldest first."""
        missing, wanted = defaultdict[str, list[str]](list), set(places) - self._states.keys()
        for one in wanted:
            self._states[one] = []
            missing[one[0]] += self._ids(one)
        with self._database.read() as database:
            for key, ids in missing.items():
                texts = record_texts(database, self.company.company_id, key, ids)
                for name, found in texts.items():
                    self._states[self.place(key, name)] += found
        for one in wanted:
            self._states[one].sort(key=lambda state: state.seq)
        return self._states

    def begin(self, record: TracedRecord) -> None:
        """Begin the trace with a record."""
        record.certainty = Certainty.BEGUN
        self.found.append(record)
        self._fresh += [(record, span) for span in record.spans]

    def left_by(self, one: Operation) -> list[TracedRecord]:
        """Return the records that the caller may read as a write left them.

        Those of which it left the text, as where only tags were changed, are not of its making.
        """
        if one.seq not in self._left:
            there = (handle for handle in one.handles if handle.provider_record_id)  # not erased
            places = {self.place(*one.place_of(handle)) for handle in there}
            states = self.states(places)
            made = [
                self._left_at(one, place, states[place])
                for place in sorted(places)
                if not any(state.seq == one.seq and state.is_same for state in states[place])
            ]
            self.unknown[Unknown.HIDDEN] += made.count(None)
            self._left[one.seq] = [record for record in made if record]
        return self._left[one.seq]

    def _left_at(
        self, one: Operation, place: Place, states: Sequence[RecordText]
    ) -> TracedRecord | None:
        own = next((state for state in states if state.seq == one.seq), RecordText(0, None, None))
        scopes = [state.scope for state in (own.before, own.after) if state]
        if not all(may_read(scope, self.company, self.visibility) for scope in scopes):
            return None
        said = own.after.text if own.after else one.request.get("content")
        text = without_prefix(said) if isinstance(said, str) else None
        words = _words(own.after or text or "")
        old = phrases_of(_words(own.before)) if own.before else ()
        made = TracedRecord(place, one, one.provider_key or "", text, words, phrases_of(words), old)
        made.spans.append((one.seq, _NEVER))
        for state in states:
            if state.seq > one.seq:
                still = state.after is not None and made.is_in(state.after)
                if still and made.until < _NEVER:
                    made.spans.append((state.seq, _NEVER))
                elif not still and made.until == _NEVER:
                    made.spans[-1] = (made.spans[-1][0], state.seq)
                made.is_gone = state.after is None
        return made

    def follow(self) -> None:
        """Find everything that came of the records that it began with."""
        self._known = self._older()
        with self._database.read() as database:
            first = min(one.seq for one in self.found)
            self._copies = copied_from(database, self.company.company_id, first)
        while self._fresh:
            while self._fresh:
                self._link_copies()
                self._link_runs({run for run in self._deliver() if run})
            self._link_agents()

    def _link_copies(self) -> None:
        """Link the copies of the fresh records in other bindings, and the copies of these."""
        for record, (start, end) in self._fresh:  # which grows meanwhile
            places = ((record.place[0], name) for name in self._ids(record.place))
            made = [seq for one in places for seq in self._copies.get(one, ()) if start < seq < end]
            for one in self._made(self.log.by_seqs(made)) if made else ():
                for copy in self.left_by(one):
                    self._add(copy, Certainty.RETURNED, "", Giving(one.seq, None, record))

    def _link_agents(self) -> None:
        """Link what agents wrote with what they were given in other runs, or outside any."""
        told, self._told = {name: self._agents[name] for name in self._told}, set()
        new = [name for name, one in told.items() if one.first < one.asked]
        above = min((told[name].first for name in new), default=0)
        most = max(_MOST_OF_AGENTS, self._listed)
        found = self.log.writes((), new, above, most) if new else ()
        self.unknown[Unknown.UNLISTED] += len(found) == most
        self._of_agents |= {one.seq: one for one in self._made(found)}
        for givings in told.values():
            givings.asked = givings.first
        for _, one in sorted(self._of_agents.items()):
            if (by := one.scope.agent_id or one.principal) in told:
                self._link(one, told[by], Certainty.SAME_AGENT)

    def _link_runs(self, runs: set[str]) -> None:
        """Link what runs wrote with what they were given."""
        missing = sorted(runs - self._written.keys())
        self._written |= {one: [] for one in missing}
        # What they wrote before they were given anything is not theirs by the trace.
        made = self.log.writes(missing, (), self._begun, _MOST_RUNS) if missing else ()
        for one in self._made(made):
            self._written.setdefault(_run_of(one), []).append(one)
        for run in missing:
            left = (record.phrases for one in self._written[run] for record in self.left_by(one))
            self._origins.update(set().union(*left).difference(self._runs[run].of_phrase))
        self._known.update(one for one, count in self._origins.items() if count >= _COMMON)
        for run in runs:
            for one in self._written[run]:
                self._link(one, self._runs[run], Certainty.SAME_RUN)

    def _older(self) -> set[Phrase]:
        """Return the phrases that were written before, but not in copies of what is traced."""
        writes = Filter(operation_type=OperationType.WRITE, internal=True)
        firsts = [
            one.seq or next((s.seq for s in self._states[one.place]), 1) for one in self.found
        ]
        known, self._begun = set[Phrase](), min(firsts)
        older = self.log.page(writes, limit=_OLDER, before=self._begun, strict=False)
        for one in older.operations:
            phrases = phrases_of(_words(str(one.request.get("content"))))
            if all(len(phrases & {*o.phrases}) <= _COPY * len(o.phrases) for o in self.found):
                known |= phrases
            else:
                self._runs[one.scope.run_id or ""].wrote |= dict.fromkeys(phrases, one.seq)
                by = one.scope.agent_id or one.principal
                self._agents[by].wrote |= dict.fromkeys(phrases, one.seq)
        return known

    def _deliver(self) -> Iterator[str | None]:
        """Look up who was given the fresh records; yield the runs."""
        batches: dict[str, dict[str, tuple[TracedRecord, tuple[int, int]]]] = defaultdict(dict)
        fresh, self._fresh = self._fresh, []
        for record, span in fresh:
            names, batch = self._ids(record.place), batches[record.place[0]]
            if batch.keys().isdisjoint(names):
                batch.update(dict.fromkeys(names, (record, span)))
            else:
                self._fresh.append((record, span))  # another version of it is looked up now
        for key, batch in batches.items():
            spans = {name: span for name, (_, span) in batch.items()}
            found = self.log.deliveries(key, spans, _MOST_RUNS)
            self.unknown[Unknown.CUT] += len(found) >= _MOST_RUNS
            for one in found:
                (record, _), run = batch[one.record_id], one.run_id
                if not one.is_seen:
                    self.unknown[Unknown.HIDDEN] += one.times
                    continue
                record.deliveries += one.times
                self.unknown[Unknown.WITHOUT_RUN] += 0 if run else one.times
                giving = Giving(one.first_seq, run, record)
                if not one.by.startswith(USER_PREFIX):  # of people only runs are followed
                    self._agents[one.by].add(giving)
                    self._told.add(one.by)
                if run:
                    record.runs.add(run)
                    self._runs[run].add(giving)
                yield run

    def _made(self, found: Sequence[Operation]) -> list[Operation]:
        """Return the writes that the caller may see and that changed a known record."""
        whys = {one.seq: (one, why) for one in found if (why := self._unmade(one))}
        self._whys |= whys
        self.unknown[Unknown.CUT] += len(found) >= _MOST_RUNS
        made = [one for one in found if one.seq not in whys]
        self.states(self.place(*one.place_of(handle)) for one in made for handle in one.handles)
        return made

    def _unmade(self, one: Operation) -> Unknown | None:
        if self.visibility and not self.visibility.sees(one):
            return Unknown.HIDDEN
        if one.status is OperationStatus.PENDING:
            return Unknown.HELD
        if not one.handles:
            return Unknown.UNSETTLED
        return None if any(made.provider_record_id for made in one.handles) else Unknown.PURGED

    def _link(self, one: Operation, givings: _Givings, least: Certainty) -> None:
        """Add what a write made of what was given before, or how certain that is by now."""
        run = _run_of(one) if least is Certainty.SAME_AGENT else ""
        before = (giving for giving in reversed(givings.all)
                  if giving.seq < one.seq and not (run and giving.run_id == run))  # fmt: skip
        last = next(before, None)
        for record in self.left_by(one):
            if last is None:
                givings.wrote = dict.fromkeys(record.phrases, one.seq) | givings.wrote
                continue
            returned = givings.returned(record, self._known)
            certainty = Certainty.RETURNED if returned else least
            self._add(record, certainty, *(returned or ("", last)))

    def _add(self, record: TracedRecord, certainty: Certainty, passage: str, given: Giving) -> None:
        """Add a record to the trace, or how certain it is by now, and follow it."""
        was = record.certainty
        if was is not None and was <= certainty:
            return
        if was is None and len(self.found) >= MOST_WRITES:
            self.unknown[Unknown.CUT] += 1
            return
        self.found += [record] if was is None else []
        record.certainty, record.passage, record.given = certainty, passage, given
        is_itself = given.record.operation is None and given.record.place == record.place
        is_new = was is not Certainty.SAME_RUN and certainty is not Certainty.SAME_AGENT
        if is_new and not is_itself:
            self._fresh += [(record, span) for span in record.spans]

    def trace(self) -> MemoryTrace:
        """Return the tree, and what the log cannot know."""
        self.follow()
        alone = [one for one in self.found if one.certainty is Certainty.SAME_AGENT]
        unlisted = set(alone[self._listed :])
        below: dict[TracedRecord | None, list[TracedRecord]] = defaultdict(list)
        # The last is taken first: by number, with what only the same agent wrote at the end.
        order = {one: (one.certainty is not Certainty.SAME_AGENT, -one.seq) for one in self.found}
        for record in sorted(order.keys() - unlisted, key=order.__getitem__):
            below[record.given.record if record.given else None].append(record)
        waiting, records = below[None], list[TracedRecord]()
        while waiting:
            records.append(record := waiting.pop())
            for one in below[record]:
                one.depth = record.depth + 1
            waiting += below[record]
        givings = (one.given.seq for one in records if one.given)
        first = min([*givings, *(one.seq for one in records if one.seq)], default=0)
        for kind, why in _COUNTED.items():
            only = Filter(operation_type=kind, internal=why is not Unknown.LOOKS)
            self.unknown[why] += self.log.count(only, after=first)
        self.unknown[Unknown.IMPORTED] = self.log.count(Filter(channel="import"), after=first)
        self.unknown[Unknown.WITHOUT_TEXT] = sum(one.text is None for one in records)
        accepted = {one.operation.request.get("pending", "") for one in self.found if one.operation}
        left = [one for one in self._whys.values() if one[0].request.get("pending") not in accepted]
        self.unknown.update(why for _, why in left)
        self.unknown[Unknown.UNLISTED] += len(unlisted)
        unknown = {why: count for why, count in self.unknown.items() if count}
        gaps = [one for one, why in left if why is Unknown.PURGED][:_SHOWN_GAPS]
        gaps += self.log.newer(Filter(operation_type=OperationType.GAP), first, _SHOWN_GAPS)
        runs = sum(bool(one.all) for one in self._runs.values())
        return MemoryTrace(records, runs, unknown, gaps)


def _run_of(one: Operation) -> str:
    """Return the run of a write; an accepted one has it in its source. Empty: none is known."""
    return one.scope.run_id or (one.source and one.source.run_id) or ""


def _words(said: Record | str) -> list[str]:
    """Return the folded words of a text, or of all that a record says, without escapes.

    A text that came back in JSON, HTML or an address has escapes.
    """
    if isinstance(said, Record):
        said = "\n".join(filter(None, (said.title, said.summary, said.text)))
    plain = html.unescape(unquote(said))
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", plain)
    return words_in_order(plain)


class Traces(ServiceModule):
    """Follows what came of memories through the log."""

    async def of_record(
        self,
        caller: Caller,
        binding_key: str,
        handle: RecordHandle,
        *,
        listed: int = LISTED_OF_AGENTS,
    ) -> MemoryTrace:
        """Return what came of a record, whatever its text was.

        `listed`: the most writes that only the same agent made.

        Raises:
            NotFound: there is no such record, and the log knows of none.
            Denied: the caller may see nothing here.
        """
        scope = Scope(company_id=caller.company_id)
        read = self._runtime.module(Runs).read(caller, binding_key, scope, [handle], "trace")
        [there] = (await read).values()

        def trace() -> MemoryTrace:
            closure = _Closure(self._runtime, caller, listed)
            place = closure.place(binding_key, handle.provider_record_id)
            states = closure.states([place])[place]
            then = [one for state in states for one in (state.before, state.after) if one]
            then += [there.record] if there.record else []
            known = readable(then, scope, closure.visibility, binding_key)
            if there.is_hidden or not (known or closure.log.mutations_of_record(*place)):
                raise NotFound(
                    f"There is no record {handle.provider_record_id} in {binding_key}, and the log "
                    "knows of none; `memtui browse` lists those there are."
                )
            phrases = {phrase for one in known for phrase in phrases_of(_words(one))}
            text = known[-1].text if known else None
            record = TracedRecord(place, None, handle.provider_key, text, (), phrases)
            record.spans.append((0, _NEVER))
            record.is_gone = not (there.record or there.why)
            closure.begin(record)
            return closure.trace()

        return await asyncio.to_thread(trace)

    async def of_writes(
        self, caller: Caller, chosen: Filter, ref: str = "", *, listed: int = LISTED_OF_AGENTS
    ) -> MemoryTrace:
        """Return what came of the records that some operations wrote or corrected.

        Args:
            caller: Who asks.
            chosen: The operations, such as those of a run, an agent or an issue.
            ref: Only those from the external document of this address.
            listed: The most writes that only the same agent made.

        Raises:
            NotFound: no such operation wrote anything.
        """

        def trace() -> MemoryTrace:
            closure = _Closure(self._runtime, caller, listed)
            asked = operations_asked(self._runtime, caller, chosen)
            writes = list(islice(_writes(closure.log, asked, ref), _MOST_SEEDS))
            closure.unknown[Unknown.CUT] += len(writes) == _MOST_SEEDS
            if closure.visibility:
                every = _writes(self._runtime.log(caller.company_id), asked, ref)
                hidden = sum(1 for _ in islice(every, _MOST_SEEDS)) - len(writes)
                closure.unknown[Unknown.HIDDEN] += hidden
            for record in (one for write in writes for one in closure.left_by(write)):
                closure.begin(record)
            if not closure.found:
                raise NotFound(
                    "Nothing that you may see was written there, or a purge has erased it."
                )
            return closure.trace()

        return await asyncio.to_thread(trace)


def _writes(log: CompanyLog, chosen: Filter, ref: str) -> Iterator[Operation]:
    """Yield the writes and then the corrections that match, each oldest first."""
    for kind in (OperationType.WRITE, OperationType.CORRECT):
        only, after = chosen.narrowed_to(operation_type=kind, status=OperationStatus.OK), 0
        while found := log.newer(only, after, _MOST_SEEDS):
            after = found[-1].seq
            yield from (
                one for one in found if not ref or (one.source and one.source.external_ref == ref)
            )
