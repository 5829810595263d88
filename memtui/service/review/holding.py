"""Hold writes of agents for a person's review, by the rules of a binding.

The rules apply on every channel to each principal that is not a person, that is, one that does not
begin with `user:`. A pending write is stored only in the control plane, not by a provider, so no
query, context or list shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Protocol, TypeAlias, TypeVar

from memtui.contract import (
    Conflict,
    CorrectRequest,
    Denied,
    ForgetRequest,
    Json,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    Scope,
    Snapshot,
    WriteRequest,
    owner_of,
    owner_scope,
)
from memtui.fact_values import FACT, Entry, FactPair, entry_of, pair_of, stated, value_of, written
from memtui.record_changes import changed_fields, corrected, names_beside, texts_beside
from memtui.service.answers import PendingChange, ReviewRule, RuleAction, RuleTest
from memtui.service.connections import Connection
from memtui.service.operations.fact_keys import of_same_key, own_facts
from memtui.service.recorder import Check, RunningOperation
from memtui.service.review.save_limits import CAPTURING_CHANNEL, check_saves
from memtui.service.runtime import ServiceRuntime, refuse_agents
from memtui.service.visibility import AGENT_PREFIX
from memtui.store import appending, pending
from memtui.store.database import DatabaseConnection
from memtui.store.details import ChangeDetails
from memtui.store.digest import canonical
from memtui.store.rows import BindingRow, PendingRow
from memtui.store.visibility import Visibility

NOT_COMPARED = "not compared"
"""The reason of a write that waits as a spending limit prevents the search for similar ones."""
NEW = "new"
"""Placeholder id of a record that is not stored yet and requests no id."""

Request: TypeAlias = "WriteRequest | CorrectRequest | ForgetRequest"
RequestT = TypeVar("RequestT", WriteRequest, CorrectRequest, ForgetRequest)

_SEARCHED = 2_000
"""Similar records are searched by a text's beginning, and by this many characters at its end."""
_HOUR = timedelta(hours=1)
_REQUESTS: dict[str, type[WriteRequest | CorrectRequest | ForgetRequest]] = {
    OperationType.WRITE: WriteRequest,
    OperationType.CORRECT: CorrectRequest,
    OperationType.FORGET: ForgetRequest,
}
_NOT_COMPARED = {"source", "created_by", "created_at", "metadata", "embedding", "revision",
                 "revisions", "replaces", "scope", "users"}  # fmt: skip
"""Fields ignored when two requests are compared; metadata is compared separately."""


def rules_of(binding: BindingRow) -> tuple[ReviewRule, ...]:
    """Return the review rules of a binding, in the order they were made."""
    return tuple(ReviewRule.model_validate(one) for one in binding.review)


def request_of(row: PendingRow) -> Request:
    """Return the request of a pending write."""
    return _REQUESTS[row.operation_type].model_validate(row.request)


def text_of(request: Request) -> str:
    """Return the text that a request would give a record; empty: it changes no text."""
    if isinstance(request, WriteRequest):
        return request.content
    return (request.text or "") if isinstance(request, CorrectRequest) else ""


_STATE = {"text", "title", "summary", "kind", "topic", "tags", "pinned", "expires_at", "metadata"}
"""The fields compared to see a change where the provider has no revisions."""


def state_of(records: Iterable[Record]) -> str:
    """Return a digest of the records, which differs once one of them has changed."""
    states = sorted(
        (one.handle.provider_record_id, one.revision or one.model_dump_json(include=_STATE))
        for one in records
    )
    return sha256(canonical(states).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Met:
    """The records of the binding that a request would change, and those it contradicts."""

    changes: tuple[Record, ...]
    """Records that it would change or remove, or that have the key of its fact."""
    contradicts: tuple[Record, ...]
    """Records that it contradicts; empty where contradictions are not looked for."""
    compared: bool = True
    """Whether all were found: False where a spending limit prevented the search for them."""


async def met_by(
    entry: RunningOperation,
    connection: Connection,
    request: Request,
    there: Sequence[Snapshot],
    *,
    contradictions: bool = True,
) -> Met:
    """Return the records that a request would change, and those that it contradicts.

    Args:
        entry: The operation that looks for them.
        connection: The connection of the binding.
        request: The request.
        there: The records that it names, as they are now.
        contradictions: Whether to look for contradicted records.
    """
    named = tuple(one.record for one in there if one.record is not None)
    if not isinstance(request, WriteRequest):
        changed = isinstance(request, ForgetRequest) or any(
            corrected(one, request) != one for one in named
        )
        return Met(changes=named, contradicts=named if changed else ())
    made = as_record(connection, request)
    is_pair = pair_of(request.content) is not None
    facts: list[Record] = []
    if contradictions or is_pair:
        facts = await own_facts(connection, made.scope, entry.visibility)
    own = _key_of(request.content, request.topic)
    is_filed = request.kind == FACT and own is not None
    of_key = of_same_key(facts, request) if is_filed else []
    changes = {one.handle: one for one in (*named, *of_key)}
    if not contradictions:
        return Met(changes=tuple(changes.values()), contradicts=())
    found = {one.handle: one for one in of_key if one.text != request.content}
    found |= {
        one.handle: one for one in named if one.text != made.text or changed_fields(one, made)
    }
    others = [one for one in facts if one.handle not in changes]
    texts = texts_of(request)
    denying = await asyncio.to_thread(_denied, others, texts, own if is_filed else None)
    for one in (*denying, *await _otherwise(entry, connection, request, others)):
        found.setdefault(one.handle, one)
    return Met(
        changes=tuple(changes.values()),
        contradicts=tuple(found.values()),
        compared=not (entry.no_search and connection.adapter.capabilities.similar),
    )


def _denied(facts: Sequence[Record], texts: Sequence[str], own: Entry | None) -> list[Record]:
    """Return the facts whose value one of the texts contradicts.

    A text without a namespace, such as a note, is compared with the facts of every namespace; the
    text of a fact with a namespace, with the facts of that namespace and of none.
    """
    from memtui.pruning.signs import denied

    keyed = [(one, entry) for one in facts if (entry := entry_of(one)) is not None]
    is_filed = own is not None and own.namespace
    first, rest = (texts[:1], texts[1:]) if is_filed else ((), texts)
    pairs = [
        pair_of(one.text) or FactPair(entry.key, written(value_of(one))) for one, entry in keyed
    ]
    by_rest = denied(rest, pairs)
    by_first = denied(first, pairs)
    return [
        one
        for (one, entry), mine, theirs in zip(keyed, by_first, by_rest, strict=True)
        if theirs or (mine and own and entry.namespace in {"", own.namespace})
    ]


def as_record(connection: Connection, request: WriteRequest) -> Record:
    """Return the record that a write would create."""
    handle = connection.handle_of(request.record_id or NEW)
    return Record.like(request, handle=handle, text=request.content)


async def _otherwise(
    entry: RunningOperation,
    connection: Connection,
    request: WriteRequest,
    facts: Sequence[Record],
) -> list[Record]:
    """Return records on the same subject that disagree: another number, word or negation."""
    from memtui.pruning.signs import disagreeing
    from memtui.service.operations.similar import candidates

    prose = [one for one in (request.content, request.summary, request.title) if one]
    known = {one.handle: one for one in facts}
    if connection.adapter.capabilities.similar and entry.may_search():
        for text in dict.fromkeys((*prose, request.content[-_SEARCHED:])):
            near = await candidates(entry, connection, request, text)
            known |= {one.handle: Record.like(one) for one in near}
    said = [
        (one, text)
        for one in known.values()
        if owner_of(one.scope) == owner_of(request.scope)
        for text in (one.summary, stated(one))
        if text
    ]
    found = await asyncio.to_thread(disagreeing, prose, [text for _, text in said])
    return [one for (one, _), disagrees in zip(said, found, strict=True) if disagrees]


def _key_of(text: str, topic: str | None) -> Entry | None:
    pair = pair_of(text)
    return Entry((topic or "").casefold(), pair.key.casefold()) if pair else None


async def _is_new_subject(
    connection: Connection, made: Record, visibility: Visibility | None
) -> bool:
    """Whether the owner has no record of this key or topic; with neither, no record at all.

    True where the provider cannot list, so that a person decides.
    """
    from memtui.service.context.contexts import own_records

    if not connection.adapter.capabilities.browse:
        return True
    key = _key_of(made.text, made.topic) if made.kind == FACT else None
    if key is not None:
        facts = await own_facts(connection, made.scope, visibility)
        return key not in {entry_of(one) for one in facts}
    pages = own_records(
        connection, [owner_scope(made.scope)], visibility, kind=None, topic=made.topic
    )
    async for _, records in pages:
        if records:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request of an agent, as the rules see it."""

    runtime: ServiceRuntime
    entry: RunningOperation
    connection: Connection
    request: Request
    there: Sequence[Snapshot]
    met: Met

    async def fits(self, rule: ReviewRule) -> bool:
        """Whether a rule applies to the request."""
        is_write = isinstance(self.request, WriteRequest)
        if rule.test is RuleTest.PER_RUN:
            return is_write and await self.runtime.ask(self.is_beyond, rule)
        if rule.test is RuleTest.NEW_SUBJECT:
            made = [
                _is_new_subject(self.connection, one, self.entry.visibility) for one in self._made()
            ]
            return any(await asyncio.gather(*made))
        if rule.test is RuleTest.INSTRUCTION:  # in a thread: a megabyte takes a while
            return await asyncio.to_thread(reads_like_order, self.request)
        caller, value = self.entry.caller, rule.value.casefold()
        accepts = rule.action is RuleAction.ACCEPT
        agents = {caller.principal.removeprefix(AGENT_PREFIX).casefold()}
        if not accepts:  # chosen by the writer, so no ground to accept
            agents.add((self.entry.scope.agent_id or "").casefold())
        tests: dict[RuleTest, Callable[[], bool]] = {
            RuleTest.ALL: lambda: True,
            RuleTest.AGENT: lambda: value in agents,
            RuleTest.DOOR: lambda: value == caller.channel.casefold(),
            RuleTest.TEXT: lambda: self._says(value, wholly=accepts),
            RuleTest.SUBJECT: lambda: self._is_of(value, wholly=accepts),
            RuleTest.CONTRADICTION: lambda: bool(self.met.contradicts),
        }
        return tests[rule.test]()

    def _made(self) -> list[Record]:
        """Return the records as the request would leave them; none for a forgetting."""
        request = self.request
        if isinstance(request, WriteRequest):
            return [as_record(self.connection, request)]
        if isinstance(request, ForgetRequest):
            return []
        return [corrected(one, request) for one in self.met.changes]

    def _is_of(self, subject: str, *, wholly: bool) -> bool:
        """Whether a changed record is about a subject; `wholly`: all are, before and after.

        `wholly` is the test for accepting and compares exact names. Otherwise look-alike characters
        are folded, so that an agent cannot evade a rule with them.
        """
        from memtui.pruning.folding import spaced_plain

        if wholly:
            said = [subject in _subjects(one) for one in (*self.met.changes, *self._made())]
            return bool(said) and all(said)
        named = (_subjects(one) for one in (*self.met.changes, *self._made()))
        folded = {spaced_plain(name) for names in named for name in names}
        return spaced_plain(subject) in folded

    def _says(self, words: str, *, wholly: bool) -> bool:
        """Whether a text contains words; `wholly`: every changed text does, before and after."""
        from memtui.pruning.folding import spaced_plain

        if not wholly:
            folded = spaced_plain(words)
            return any(folded in spaced_plain(one) for one in texts_of(self.request))
        made = self._made()
        texts = [one.text for one in (*self.met.changes, *made)]
        texts += texts_beside(self.request, ("title", "summary", "metadata"))
        return bool(made) and all(words in " ".join(one.casefold().split()) for one in texts)

    def is_beyond(self, database: DatabaseConnection, rule: ReviewRule) -> bool:
        """Whether the agent has made as many writes as a rule allows in this run or the last hour.

        The hour counts too, since an agent may choose new names for its runs, but not its
        principal, which the channel sets.
        """
        caller, run_id = self.entry.caller, self.entry.scope.run_id
        hour = self.entry.started_at - _HOUR
        within: list[str | datetime] = [hour, run_id] if run_id else [hour]
        excluding = "" if caller.channel == CAPTURING_CHANNEL else CAPTURING_CHANNEL
        written = (
            appending.writes(
                database, caller.company_id, caller.principal, one, excluding=excluding
            )
            for one in within
        )
        return max(written) >= int(rule.value)

    async def begin(self, rules: Sequence[ReviewRule], check: Check | None) -> list[str]:
        """Write the intent; return the rules that hold the request instead, if any.

        Writes are counted again in this transaction, as others may have begun since.

        Args:
            rules: The rules that count writes.
            check: A further check in the same transaction.
        """

        def count(database: DatabaseConnection, entry: RunningOperation) -> None:
            if check is not None:
                check(database, entry)
            appending.hold(database, entry.caller.company_id)
            for rule in rules:
                if self.is_beyond(database, rule):
                    raise _Beyond(rule.name)

        try:
            await self.runtime.recorder.begin(self.entry, self.there, count if rules else check)
        except _Beyond as beyond:
            self.entry.steps = ()  # the intent was not written
            return [str(beyond)]
        return []


class _Beyond(Denied):
    """The named rule holds the request, as other writes have begun since the first count."""


async def hold(
    runtime: ServiceRuntime,
    entry: RunningOperation,
    connection: Connection,
    request: Request,
    there: Sequence[Snapshot],
    *,
    check: Check | None,
) -> PendingChange | None:
    """Hold a request for review if a rule says so; None: not held, and its intent is written.

    The operation is logged as pending in the transaction that adds the request to the queue.

    Args:
        runtime: The parts of the service.
        entry: The operation of the request.
        connection: The connection of the binding.
        request: The request.
        there: The records that it names, as they are now.
        check: A check in the transaction that writes the intent.

    Raises:
        Denied: a rule refuses it, or the queue is full.
    """
    weighed = await weigh(runtime, entry, connection, request, there)
    if not (reasons := weighed.reasons or await weighed.begin(check)):
        return None
    [pending] = await asyncio.to_thread(let_wait, [weighed], reasons)
    return pending


async def weigh(
    runtime: ServiceRuntime,
    entry: RunningOperation,
    connection: Connection,
    request: Request,
    there: Sequence[Snapshot],
) -> Weighed:
    """Return a request with the rules that hold it.

    A `refuse` rule that fits comes first, then an `accept` rule, which overrides all `hold` rules.
    Where a spending limit prevents the search that a rule needs, a person decides.

    Raises:
        Denied: a rule refuses it, or one of these records is held for review.
    """
    entry.refuse_held(there)
    binding = _bound(entry)
    rules = rules_of(binding)
    tests = {one.test for one in rules}
    met = await met_by(
        entry, connection, request, there,
        contradictions=RuleTest.CONTRADICTION in tests,
    )  # fmt: skip
    asked = _Asked(runtime, entry, connection, request, there, met)
    for rule in rules:
        if rule.action is RuleAction.REFUSE and await asked.fits(rule):
            raise Denied(
                f"{binding.key} refuses this change from agents ({rule.name}); do not try again."
            )
    holding = [rule for rule in rules if rule.action is RuleAction.HOLD]
    compared = met.compared
    for rule in rules:
        if rule.action is RuleAction.ACCEPT and await asked.fits(rule):
            holding, compared = [], True
            break
    reasons = [one.name for one in holding if await asked.fits(one)]
    if not compared:
        reasons.append(NOT_COMPARED)
    if not reasons:
        refuse_agents(entry, connection)
    is_write = isinstance(request, WriteRequest)
    counting = [one for one in holding if one.test is RuleTest.PER_RUN and is_write]
    return Weighed(asked, reasons, counting)


@dataclass(frozen=True, slots=True)
class Weighed:
    """A request, and the rules that hold it."""

    asked: _Asked
    reasons: list[str]
    """The names of the rules that hold it; empty: none does so far."""
    counting: list[ReviewRule]
    """The rules that count writes, which are counted again as the request begins."""

    async def begin(
        self, check: Check | None, there: Sequence[Snapshot] | None = None
    ) -> list[str]:
        """Write the intent, or return the rules that hold the request after all.

        `there`: the records of several requests that are one operation; None: its own.
        """
        asked = self.asked if there is None else replace(self.asked, there=there)
        return await asked.begin(self.counting, check)


def _bound(entry: RunningOperation) -> BindingRow:
    """Return the binding of the operation; the connection's copy may have older rules."""
    assert entry.binding is not None  # noqa: S101 - it is connected
    return entry.binding


def let_wait(weighed: Sequence[Weighed], reasons: list[str]) -> list[PendingChange]:
    """Put requests into the queue and log them as pending, all or none. Blocking.

    Raises:
        Denied: the queue is full, or the agent has reached the limit of its saves.
    """
    each = [one.asked for one in weighed]
    runtime, entry = each[0].runtime, each[0].entry
    with runtime.database.write() as database:
        appending.hold(database, entry.caller.company_id)
        found = [_let_one_wait(database, one, reasons) for one in each]
    for one in each:
        one.entry.logged = True
    return found


def _let_one_wait(database: DatabaseConnection, asked: _Asked, reasons: list[str]) -> PendingChange:
    runtime, entry = asked.runtime, asked.entry
    if entry.operation_type is OperationType.WRITE:
        check_saves(runtime.settings, database, entry)
    pending_id, again = queue(
        runtime, database, entry, asked.request, asked.met.changes, reasons, entry.operation_id
    )
    entry.status = OperationStatus.PENDING
    entry.request["pending"], entry.request["reasons"] = pending_id, reasons
    runtime.recorder.append_within(database, entry)
    return PendingChange(pending_id=pending_id, reasons=tuple(reasons), again=again)


def queue(  # noqa: PLR0917
    runtime: ServiceRuntime,
    database: DatabaseConnection,
    entry: RunningOperation,
    request: Request,
    changes: Sequence[Record],
    reasons: list[str],
    pending_id: str,
) -> tuple[str, bool]:
    """Put a request into the queue, or count it with an equal one; return the id of that.

    Args:
        runtime: The parts of the service.
        database: With a write transaction.
        entry: The operation that asks for it.
        request: The request.
        changes: The records that it would change, as they are now.
        reasons: Why it waits.
        pending_id: Its id, if no equal one waits.

    Raises:
        Denied: the queue is full.
    """
    binding, caller, company_id = _bound(entry), entry.caller, entry.caller.company_id
    does = next(name for name, kind in _REQUESTS.items() if isinstance(request, kind))
    owners = _owners(request, changes)
    # Only a person's hold is of what is stored; what an agent asks for waits alone.
    hold_id = entry.request.get("together") or entry.operation_id if caller.by_person else None
    likely = {
        "binding": [binding.key, binding.created_at.isoformat()],
        "type": does,
        "is_hold": hold_id is not None,
        "owners": [owner_of(one) for one in owners],
        **request.model_dump(mode="json", exclude=_NOT_COMPARED),
        "metadata": _without_ids(getattr(request, "metadata", {})),
    }
    likeness = pending.likeness(database, company_id, likely)
    known = pending.alike(database, company_id, likeness)
    if known is not None:
        pending.ask_again(database, company_id, known, entry.started_at)
        return known, True
    if hold_id is None:
        waiting = pending.count(database, company_id, binding.key)
        _refuse_full(waiting, runtime.settings.pending_max_count, binding.key)
    row = PendingRow(
        company_id=company_id,
        pending_id=pending_id,
        binding_key=binding.key,
        binding_added_at=binding.created_at,
        operation_type=does,
        request=request.model_dump(mode="json"),
        owners=[one.model_dump(mode="json") for one in owners],
        base=[one.model_dump(mode="json") for one in changes],
        reasons=reasons,
        principal=caller.principal,
        acts_for=caller.acts_for,
        channel=caller.channel,
        likeness=likeness,
        times=1,
        pending_since=entry.started_at,
        last_at=entry.started_at,
        hold_id=hold_id,
    )
    pending.add(database, row)
    return pending_id, False


def _subjects(one: Record) -> set[str]:
    """Return the names that count as a record's subject: key, topic, title and user; casefolded."""
    pair = pair_of(one.text)
    named = (pair and pair.key, one.topic, one.title, one.scope.subject_id)
    return {name.casefold() for name in named if name}


def _without_ids(metadata: Json) -> Json:
    """Return metadata for comparison, without the ids that a channel may give each request."""
    return {
        name: {inner: one for inner, one in value.items() if inner != "id"}
        if isinstance(value, dict)
        else value
        for name, value in metadata.items()
    }


def texts_of(request: Request) -> list[str]:
    """Return every text of a request that an agent will read, the main text first."""
    return [one for one in (text_of(request), *texts_beside(request)) if one.strip()]


def reads_like_order(request: Request) -> bool:
    """Whether a text of the request gives its reader orders, or hides characters."""
    from memtui.pruning.candidates import misleading

    return any(misleading((*texts_of(request), *names_beside(request))))


def _owners(request: Request, changes: Sequence[Record]) -> list[Scope]:
    if isinstance(request, WriteRequest):
        return [owner_scope(request.scope)]
    return list(dict.fromkeys(owner_scope(one.scope) for one in changes))


def _refuse_full(waiting: int, most: int, key: str) -> None:
    if waiting >= most:
        raise Denied(
            f"{waiting:,} writes wait for review in {key}, and no more are taken; a person has to "
            "decide on some with `memtui review` first."
        )


@dataclass(slots=True)
class Acceptance:
    """A person's decision to accept a pending write, carried along by the write itself."""

    row: PendingRow
    decision: str
    """`accept`, or `fix` where the person changed the text first."""
    seen: str | None
    """`state_of` the records shown to the person; None: they must be as when it was held."""
    _claimed_by: str = ""

    def log_entry(self) -> ChangeDetails:
        """Return the log's entry: the decision, the pending id, and the author of the write."""
        return {
            "decision": self.decision,
            "pending": self.row.pending_id,
            "author": self.row.principal,
        }

    async def checked(
        self,
        entry: RunningOperation,
        connection: Connection,
        request: RequestT,
        there: Sequence[Snapshot],
    ) -> RequestT:
        """Return the request with the revisions of the records as they are now.

        Raises:
            Conflict: the records or the binding changed, or somebody else decides on it.
        """
        if self.row.decider is not None:
            raise decided_meanwhile(self.row, self.row)
        if self.row.binding_added_at != _bound(entry).created_at:
            raise Conflict(
                f"{self.row.pending_id} was meant for a binding {self.row.binding_key} that has "
                "been removed; the one of that name today is another. Refuse it, or "
                "write it yourself."
            )
        met = await met_by(entry, connection, request, there, contradictions=False)
        now = met.changes
        then = [Record.model_validate(one) for one in self.row.base]
        if state_of(now) != (self.seen or state_of(then)):
            pending_id = self.row.pending_id
            raise Conflict(
                f"The record that {pending_id} would change has changed since it was held, or "
                f"since you looked; `memtui review show {pending_id}` shows both versions and the "
                "--seen with which it is accepted now.",
                current=now[0] if now else None,
                proposed=text_of(request),
            )
        revisions = {
            one.handle.provider_record_id: one.record.revision
            for one in there
            if one.record is not None and one.record.revision is not None
        }
        if isinstance(request, CorrectRequest):
            revision = revisions.get(request.handle.provider_record_id)
            return request.model_copy(update={"revision": revision})
        if isinstance(request, ForgetRequest):
            return request.model_copy(update={"revisions": revisions})
        return request

    def claim(self, database: DatabaseConnection, entry: RunningOperation) -> None:
        """Claim the pending write, so that nobody else decides on it meanwhile.

        Raises:
            Conflict: somebody else has decided, or is deciding.
        """
        company_id = entry.caller.company_id
        if not pending.claim(database, company_id, self.row.pending_id, entry.operation_id):
            raise decided_meanwhile(
                pending.one(database, company_id, self.row.pending_id), self.row
            )
        self._claimed_by = entry.operation_id

    def end(self, database: DatabaseConnection, entry: RunningOperation) -> None:
        """Remove the pending write from the queue once written; release it if the write failed.

        If the outcome is unknown, the claim stays.
        """
        if entry.status is OperationStatus.OK:
            entry.settings = (pending.remove(database, self.row),)
        elif entry.status is not OperationStatus.UNKNOWN:
            pending.release(database, entry.caller.company_id, self._claimed_by)


def decided_meanwhile(now: PendingRow | None, row: PendingRow) -> Conflict:
    """Return the error for a pending write that somebody else has decided or is deciding on."""
    if now is None:
        return Conflict(f"Somebody has decided on {row.pending_id} already.")
    return Conflict(
        f"{row.pending_id} is being accepted by {now.decider}; if that does not end, "
        f"`memtui ops check {now.decider}` finds out what became of it."
    )


class _Waiting(Protocol):
    @property
    def pending_id(self) -> str: ...


WaitingT = TypeVar("WaitingT", bound=_Waiting)


def find(rows: Sequence[WaitingT], pending_id: str) -> WaitingT:
    """Return the pending write with an id, or the only one whose id begins with it.

    Raises:
        NotFound: there is none, or several ids begin with it.
    """
    found = [one for one in rows if one.pending_id == pending_id] or [
        one for one in rows if pending_id and one.pending_id.startswith(pending_id)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"Several ids begin with {pending_id}; give more of it.")
    raise NotFound(
        f"No change {pending_id} waits for review; `memtui review list` shows those that do."
    )


def fixed(request: Request, text: str | None) -> Request:
    """Return a request with a person's text in place of the agent's.

    The agent's summary and embedding describe the replaced text, so they are removed.
    """
    if text is None or text == text_of(request):
        return request
    name = "content" if isinstance(request, WriteRequest) else "text"
    derived = {"summary": None, "embedding": None}
    kept = {field: value for field, value in derived.items() if field in type(request).model_fields}
    return request.model_copy(update={name: text, **kept})


def json_of(rules: Iterable[ReviewRule]) -> list[Json]:
    """Return rules in the form that a binding stores."""
    return [one.model_dump(mode="json") for one in rules]
