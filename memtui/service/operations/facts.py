"""Facts by their key: the nearest scope's value counts, and hidden values are listed (seed 002 §6).

A key is looked up in the binding of each scope: the project's facts in the project's binding, the
agent type's in the agent's, the company's in the company's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from memtui.contract import (
    ORCHESTRATOR,
    Denied,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    OperationType,
    Problem,
    Record,
    Scope,
    UtcDatetime,
    owner_of,
    owner_scopes,
    owner_words,
)
from memtui.fact_values import FACT, Entry, entry_of, pair_of, value_of
from memtui.service.context.contexts import own_records
from memtui.service.operations.redaction import redact_json
from memtui.service.recorder import note_owner
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, for_caller
from memtui.store import bindings
from memtui.store.details import RecordDetails, without_empty

_EARLIEST = datetime.min.replace(tzinfo=UTC)


class FactRequest(Model):
    """Scope and filters of a look-up by key: of the scopes named, the nearest wins."""

    scope: Scope
    namespace: str | None = None
    """Only this namespace, ignoring case. None: any."""
    binding_key: str | None = None
    """Read this binding only."""
    all_bindings: bool = False
    """Read every binding, not only those that serve the scopes."""


class FactValue(Model):
    """A value of a key, and its record."""

    value: Any
    """The value as JSON; a text where a number or list would lose information."""
    written: str
    """The value as written in the fact."""
    record: Record
    binding_key: str
    belongs_to: str
    """The owner of the fact: `project apollo`, `agent coding`, `company acme`."""


class KeyedFact(FactValue):
    """The value that counts for a key."""

    namespace: str | None
    key: str
    why: str
    """Why this value counts, as a sentence."""
    hidden: tuple[FactValue, ...] = ()
    """The other values of the key, the nearest scope first."""


class FactAnswer(KeyedFact):
    """The answer of a look-up of one key."""

    operation_ids: tuple[str, ...]
    """One for each binding that was read."""
    other_namespaces: tuple[str, ...] = ()
    """Other namespaces with the same key."""
    problems: tuple[Problem, ...] = ()
    """Items that could not be read, and may have another value."""
    as_of: UtcDatetime | None = None
    """The past moment that it shows; None: the present."""


class FactKeys(Model):
    """Every key with a value, by namespace and key."""

    operation_ids: tuple[str, ...]
    facts: tuple[KeyedFact, ...]
    problems: tuple[Problem, ...] = ()
    as_of: UtcDatetime | None = None
    """The past moment that they show; None: the present."""


@dataclass(frozen=True, slots=True)
class _Place:
    """An owner whose facts are looked up in a binding."""

    rank: tuple[int, int]
    """The distance of the owner's scope, then of the binding: less is nearer."""
    owner: Scope
    reason: str
    """Why the owner's facts are looked up in this binding."""


@dataclass(frozen=True, slots=True)
class _ScopedFact:
    place: _Place
    binding_key: str
    record: Record

    @property
    def order(self) -> tuple[tuple[int, int], float, str]:
        """Sort key: the nearest scope first, then the newest fact."""
        since = self.record.valid_from or self.record.updated_at or self.record.created_at
        age = -(since or _EARLIEST).timestamp()
        return self.place.rank, age, self.record.handle.provider_record_id


@dataclass(frozen=True, slots=True)
class _Read:
    """The facts of the scopes in all bindings that were read."""

    facts: Sequence[_ScopedFact]
    operation_ids: tuple[str, ...]
    problems: tuple[Problem, ...]


class Facts(ServiceModule):
    """Reads and writes facts by their key."""

    async def get(self, caller: Caller, key: str, request: FactRequest) -> FactAnswer:
        """Return the value of a key in the nearest scope, and the values that it hides.

        If a binding fails, the others answer, and `problems` names it.

        Raises:
            NotFound: no scope has the key.
            Invalid: the nearest scope has it in several namespaces, and none is named.
        """
        wanted = key.strip().casefold()
        asked = RecordDetails(key=key, namespace=request.namespace)
        read = await self._read(caller, request, OperationType.GET, asked, wanted)
        groups = _by_entry(read.facts)
        if not groups:
            raise NotFound(_nothing(key, request, read.problems))
        first, *others = sorted(groups.values(), key=lambda group: group[0].order)
        rivals = [group for group in others if group[0].place.rank == first[0].place.rank]
        if rivals:
            names = ", ".join(sorted(_heading(group[0]) or "none" for group in (first, *rivals)))
            raise Invalid(f"{key} is in several namespaces ({names}); give one of them with it.")
        return FactAnswer(
            **_keyed(caller, first),
            operation_ids=read.operation_ids,
            other_namespaces=tuple(_heading(group[0]) or "" for group in others),
            problems=read.problems,
            as_of=caller.as_of,
        )

    async def keys(self, caller: Caller, request: FactRequest) -> FactKeys:
        """Return every key with the value that counts and the values that it hides."""
        asked = RecordDetails(namespace=request.namespace)
        read = await self._read(caller, request, OperationType.BROWSE, asked, None)
        groups = _by_entry(read.facts)
        return FactKeys(
            operation_ids=read.operation_ids,
            facts=tuple(KeyedFact(**_keyed(caller, groups[entry])) for entry in sorted(groups)),
            problems=read.problems,
            as_of=caller.as_of,
        )

    async def _read(
        self,
        caller: Caller,
        request: FactRequest,
        operation_type: OperationType,
        asked: RecordDetails,
        key: str | None,
    ) -> _Read:
        """Read the facts of a key (None: of every key), with one logged operation per binding."""
        namespace = None if request.namespace is None else request.namespace.strip().casefold()
        asked = without_empty(cast("RecordDetails", redact_json(asked)[0]))
        ids: list[str] = []

        async def one(
            binding_key: str | None, places: Sequence[_Place]
        ) -> tuple[list[_ScopedFact], tuple[Problem, ...]]:
            async with self._runtime.connected(
                operation_type, caller, request.scope, asked, binding_key, needs="browse"
            ) as (entry, connection):
                ids.append(entry.operation_id)
                facts: list[_ScopedFact] = []
                of = {owner_of(place.owner): place for place in places}
                owners = [place.owner for place in places]
                # One list for all owners where the provider can choose them, else one for each.
                together = bool(owners) and connection.adapter.capabilities.chosen_owners
                for part in [owners] if together else [[owner] for owner in owners]:
                    own = own_records(connection, part, entry.visibility, kind=FACT)
                    async for _, records in own:
                        facts += [
                            _ScopedFact(of[owner_of(record.scope)], connection.binding.key, record)
                            for record in records
                            if _is_wanted(entry_of(record), key, namespace)
                        ]
                entry.about([one.record for one in facts])
                note_owner(entry, [one.record.scope for one in facts])
            return facts, entry.problems

        routes, problems = await self._routes(caller, request)
        answers = await asyncio.gather(
            *(one(key_of, places) for key_of, places in routes.items()), return_exceptions=True
        )
        facts: list[_ScopedFact] = []
        errors: list[MemtuiError] = []
        for binding_key, answer in zip(routes, answers, strict=True):
            if isinstance(answer, MemtuiError):
                errors.append(answer)
                problems.append(Problem(message=f"{binding_key or 'The memory'}: {answer}"))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                facts += answer[0]
                problems += answer[1]
        if len(errors) == len(routes):
            raise errors[0]
        return _Read(facts, tuple(ids), tuple(dict.fromkeys(problems)))

    async def _routes(
        self, caller: Caller, request: FactRequest
    ) -> tuple[dict[str | None, list[_Place]], list[Problem]]:
        """Return the owners to look up in each binding, and the problems with other owners.

        The binding key None stands for the binding that serves the request's whole scope. If no
        owner can be looked up, it is the only one, so that its error is reported and logged.
        """
        owners, asked = _owners(request.scope), request.binding_key
        if asked is not None:
            return {asked: [_Place((rank, 0), owner, "asked for") for rank, owner in owners]}, []
        serving: dict[int, str] = {}
        problems: list[Problem] = []
        routes: dict[str | None, list[_Place]] = defaultdict(list)
        whole = await self._key_of(caller, request.scope)
        for rank, owner in owners:
            try:
                routed = await self._runtime.resolve(caller, owner, None)
            except NotFound:
                continue
            except Denied as error:
                problems.append(Problem(message=f"{owner_words(owner)}: {error}"))
                continue
            key = serving[rank] = routed.binding.key
            routes[None if key == whole else key].append(_Place((rank, 0), owner, routed.reason))
        if request.all_bindings:
            rows = await self._runtime.ask(bindings.bindings, caller.company_id)
            for number, row in enumerate((row for row in rows if row.enabled), start=1):
                routes[None if row.key == whole else row.key] += [
                    _Place((rank, number), owner, "one of all bindings")
                    for rank, owner in owners
                    if serving.get(rank) != row.key
                ]
        return dict(routes) or {None: []}, problems

    async def _key_of(self, caller: Caller, scope: Scope) -> str | None:
        try:
            return (await self._runtime.resolve(caller, scope, None)).binding.key
        except MemtuiError:
            return None


def _owners(scope: Scope) -> list[tuple[int, Scope]]:
    """Return the owners whose facts a scope includes, the nearest first (seed 002 §3)."""
    company = Scope(company_id=scope.company_id)
    owners = owner_scopes(scope)
    if scope.project_id or scope.agent_id:
        owners.append(company.model_copy(update={"agent_id": ORCHESTRATOR}))
    return list(enumerate(dict.fromkeys([*owners, company])))


def _is_wanted(entry: Entry | None, key: str | None, namespace: str | None) -> bool:
    return entry is not None and key in {None, entry.key} and namespace in {None, entry.namespace}


def _by_entry(facts: Iterable[_ScopedFact]) -> dict[Entry, list[_ScopedFact]]:
    """Return the facts by key, the one that counts first."""
    groups: dict[Entry, list[_ScopedFact]] = defaultdict(list)
    for one in sorted(facts, key=lambda one: one.order):
        if (entry := entry_of(one.record)) is not None:
            groups[entry].append(one)
    return dict(groups)


def _keyed(caller: Caller, group: Sequence[_ScopedFact]) -> dict[str, Any]:
    """Return the fields of a `KeyedFact` for the facts of one key."""
    first, *others = group
    pair = pair_of(first.record.text)
    return {
        **dict(_value(caller, first)),
        "namespace": _heading(first),
        "key": pair.key if pair else first.record.metadata["key"],
        "why": _why(first, others),
        "hidden": tuple(_value(caller, one) for one in others),
    }


def _value(caller: Caller, facts: _ScopedFact) -> FactValue:
    pair = pair_of(facts.record.text)
    return FactValue(
        value=value_of(facts.record),
        written=pair.value if pair else facts.record.text,
        record=for_caller(caller, [facts.record])[0],
        binding_key=facts.binding_key,
        belongs_to=owner_words(facts.place.owner),
    )


def _why(first: _ScopedFact, others: Sequence[_ScopedFact]) -> str:
    """Return the sentence that says why the first value counts."""
    owner, key = owner_words(first.place.owner), first.binding_key
    where = f"{key} holds it ({first.place.reason})."
    if not others:
        return f"Nobody but {owner} has this key; {where}"
    farther = [one for one in others if one.place.rank[0] > first.place.rank[0]]
    beside = [one for one in others if one.place.rank == first.place.rank]
    said = []
    if farther:
        names = dict.fromkeys(owner_words(one.place.owner) for one in farther)
        said.append(f"{owner} comes before {' and '.join(names)}")
    if beside:
        said.append(f"it is the newest of {len(beside) + 1} in {owner}")
    if len(farther) + len(beside) < len(others):
        said.append(f"{key} is the binding of {owner}")
    sentence = "; ".join(said)
    return f"{sentence[0].upper()}{sentence[1:]}; {where}"


def _heading(facts: _ScopedFact) -> str | None:
    return facts.record.topic or None


def _nothing(key: str, request: FactRequest, problems: Sequence[Problem]) -> str:
    place = f" in the namespace {request.namespace}" if request.namespace else ""
    unread = f" Not all could be read: {problems[0].sentence()}" if problems else ""
    return f"No fact has the key {key}{place} here; memtui facts keys lists them all.{unread}"
