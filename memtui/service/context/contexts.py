"""The context of a model before a run: read the records, assemble the text, log it.

The screen, the command and the pre-run hook all use this module, so a person sees the very bytes
that the model gets (seed 000 "pre-run hydrate", seed 002's tiers, seed 004 §6.3).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Annotated, NamedTuple, TypeVar, cast

from pydantic import Field, computed_field

from memtui.context.assembly import (
    DEFAULT_BUDGET,
    AssembledContext,
    ContextFact,
    ContextSection,
    ContextWarning,
    SectionKind,
    WarningKind,
    assemble,
    by_relevance,
    is_rule,
    late_warning,
    named,
    section_of_records,
    unread_warning,
    without_given,
)
from memtui.context.cost import (
    TYPICAL_PROMPT,
    Price,
    PromptShare,
    TokenCounter,
    price,
    share_of_prompt,
)
from memtui.contract import (
    BrowsePage,
    BrowseRequest,
    Denied,
    Filter,
    Invalid,
    MemtuiError,
    Model,
    NotFound,
    OperationStatus,
    OperationType,
    Problem,
    QueryIntent,
    QueryRequest,
    Record,
    Scope,
    SourceRef,
    Unavailable,
    Usage,
    UtcDatetime,
    own_filter,
    owner_of,
)
from memtui.service.connections import Connection
from memtui.service.context.late_reads import LateReads
from memtui.service.context.prompts import prompt_size
from memtui.service.operations.redaction import redact
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule, ServiceRuntime, first_of_many
from memtui.service.visibility import Caller, as_agents_read, is_org, readable
from memtui.store import given
from memtui.store.bindings import Route
from memtui.store.details import ContextDetails
from memtui.store.operation import OperationHandle
from memtui.store.visibility import Visibility

DEFAULT_MODEL = "claude-sonnet-4-5"
_PROMPT_CHARS = 4_000
"""Characters of a prompt that are searched for and logged."""
_SEARCHED = 20
"""Records that a search for a prompt may find; the budget decides how many are included."""
_GOING_ON = {"ok", "okay", "yes", "yeah", "yep", "sure", "thanks", "please", "tell", "continue"}
"""English words that only continue a talk: like stopwords, they are not worth a search."""
_CONTEXTS_OF_RUN = 1_000
_LATE_SECONDS = 1.0
"""A provider that fails only after this long counts as late."""
_BESIDES = frozenset({SectionKind.RELATED, SectionKind.PROFILE})
_ALWAYS = frozenset({"model", "budget", "delivered"})

T = TypeVar("T")


class ContextRequest(Model):
    """The scope of a context, its model, its budget and its optional parts.

    A scope with a subject includes the user's facts, with a project the workspace's, with an agent
    the agent's identity, facts and guidance; each includes the company's facts.
    """

    scope: Scope
    model: str = DEFAULT_MODEL
    budget: Annotated[int, Field(ge=0)] = DEFAULT_BUDGET
    """Tokens, advisory; the records found for the prompt fill the tokens that the rest leaves."""
    max_tokens: int | None = None
    max_characters: int | None = None
    """Hard limits, for a channel that cannot transport more."""
    topic: str | None = None
    """Include the notes of this topic (tier L2)."""
    prompt: str | None = None
    """The prompt to the model. Includes the records that a search for it finds (tier L3), unless it
    only continues a talk: "ok", "tell me more"."""
    profile: bool = False
    """Include the provider's summary of the scope, where the provider has profiles."""
    by_relevance: bool = False
    """Of the facts, include only pinned ones, rules and those that the prompt needs."""
    skip_given: bool = False
    """Leave out texts already delivered to this run, and search results that it wrote itself."""
    given: tuple[str, ...] = ()
    """Texts delivered before: leave out what they contain word for word."""
    within_ms: Annotated[int, Field(ge=1)] | None = None
    """Time limit of the search and the profile, counted from the start; facts have twice as long.
    A part that is late is left out."""
    binding_key: str | None = None
    prompt_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of the run's last prompt as a whole, where its client knows them; logged."""
    delivered: bool = False
    """True: for a model, so its records count as read and the text is logged. False: for a person
    to look at."""
    source: SourceRef | None = None


class ContextAnswer(AssembledContext):
    """The assembled context, with its price and its share of the whole prompt."""

    operation_id: str
    model: str
    assembled_at: UtcDatetime
    as_of: UtcDatetime | None = None
    """The past moment that the context shows; None: the present."""
    share: PromptShare
    late: tuple[SectionKind, ...] = ()
    """Sections that were not read in time, wholly or in part."""
    problems: tuple[Problem, ...] = ()
    """Items that providers could not read; the text for the model does not mention them."""

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def price(self) -> Price:
        """The cost of a request; computed on first use, as reading the prices takes a while."""
        return price(self.model, self.tokens, at=self.assembled_at)


class _Part(NamedTuple):
    """One list of records to read for a section."""

    kind: SectionKind
    scope: Scope
    record_kind: str
    topic: str | None = None


class _Found(NamedTuple):
    """The records of a binding for a section."""

    kind: SectionKind
    binding_key: str
    records: Sequence[Record]


@dataclass(eq=False)
class _Reading:
    """The reads of one context: all at once, each until the time limit.

    A read that exceeds the limit is listed in `late`, one that fails in `problems`; the others are
    used.
    """

    runtime: ServiceRuntime
    entry: RunningOperation
    request: ContextRequest
    started: float
    """By the event loop's clock."""
    found: list[_Found] = field(default_factory=list)
    profile: str | None = None
    late: list[SectionKind] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unlisted: int = 0
    """Number of further problems, which are counted but not listed."""
    usage: list[Usage] = field(default_factory=list)
    _failed: list[MemtuiError] = field(default_factory=list)
    _wrong: list[Invalid] = field(default_factory=list)
    """Errors of providers that call a request invalid."""
    _has_answer: bool = False

    async def read(self, routed: Route, parts: Sequence[_Part]) -> None:
        """Read all parts of the context; `routed` serves its whole scope.

        Raises:
            Invalid: a provider calls a request invalid.
            MemtuiError: every read failed; the first error, mostly `Unavailable`.
        """
        served = await self._routes(routed, parts)
        by_binding: dict[str, tuple[Route, list[_Part]]] = {routed.binding.key: (routed, [])}
        for part in parts:
            if (own := served.get(part.scope)) is not None:
                by_binding.setdefault(own.binding.key, (own, []))[1].append(part)
        whole = routed.binding.key
        await asyncio.gather(
            *(self._from(own, its, whole=key == whole) for key, (own, its) in by_binding.items())
        )
        if self._wrong:
            raise self._wrong[0]
        if self._failed and not (self._has_answer or self.late):
            raise self._failed[0]

    async def given(self) -> list[str]:
        """Return the texts to leave out: those of the request, and those logged for the run.

        Where reading sealed log files takes too long, only the texts in the database count.
        """
        run_id, company_id = self.entry.scope.run_id, self.entry.caller.company_id
        if not self.request.skip_given or run_id is None:
            return list(self.request.given)
        texts, is_whole = await self.runtime.ask(given.texts_of_run, company_id, run_id)
        if not is_whole and await asyncio.to_thread(self.runtime.paths.archive.is_dir):
            texts = await self._within((), lambda: self._given_by_now(run_id)) or texts
        return [*self.request.given, *texts]

    async def _given_by_now(self, run_id: str) -> list[str]:
        contexts = Filter(
            run_id=run_id, operation_type=OperationType.CONTEXT, status=OperationStatus.OK
        )
        log = self.runtime.log(self.entry.caller.company_id)
        page = await asyncio.to_thread(log.page, contexts, limit=_CONTEXTS_OF_RUN)
        own = (one.request for one in page.operations if one.scope.run_id == run_id)
        return given.texts_given(own)[0]

    def may_summarise(self, key: str) -> bool:
        """Whether the summary of a binding is included; one could be made of held records."""
        visibility = self.entry.visibility
        return self.request.profile and not (visibility is not None and visibility.holds_in(key))

    async def _routes(self, routed: Route, parts: Sequence[_Part]) -> dict[Scope, Route]:
        """Return the binding that serves each part's scope; scopes that none serves are absent."""
        served: dict[Scope, Route] = {}
        for scope in dict.fromkeys(part.scope for part in parts):
            if self.request.binding_key is not None:
                served[scope] = routed
                continue
            try:
                served[scope] = await self.runtime.resolve(self.entry.caller, scope, None)
            except NotFound:
                continue
            except Denied as error:
                self._fails(error)
        return served

    async def _from(self, routed: Route, parts: Sequence[_Part], *, whole: bool) -> None:
        """Read the parts of one binding; search it too, if it serves the `whole` scope."""
        kinds = [part.kind for part in parts]
        searches = []
        if whole and _asks_something(self.request.prompt or ""):
            searches.append(SectionKind.RELATED)
        if whole and self.may_summarise(routed.binding.key):
            searches.append(SectionKind.PROFILE)
        if searches and self.entry.may_search():
            kinds += searches
        opening = partial(
            self.runtime.open, routed.binding, company_read_only=routed.company_read_only,
            as_of=self.entry.caller.as_of,
        )  # fmt: skip
        late = await self._late_reads(routed)
        connection = await self._within(kinds, opening, late, opens=True)
        if connection is not None:
            await self._read(connection, kinds, parts, late)
        if late is not None:
            await asyncio.to_thread(late.keep)

    async def _late_reads(self, routed: Route) -> LateReads | None:
        """Return the late reads of a binding; None where no time limit is set."""
        if self.request.within_ms is None:
            return None
        folder = self.runtime.paths.binding_dir(routed.binding.binding_id)
        return await asyncio.to_thread(LateReads, routed.binding.key, folder, self.runtime.clock())

    async def _read(
        self,
        connection: Connection,
        kinds: Sequence[SectionKind],
        parts: Sequence[_Part],
        late: LateReads | None,
    ) -> None:
        """Make the reads of a binding, all at once."""
        reads: list[tuple[Sequence[SectionKind], Callable[[], Awaitable[bool]]]] = [
            ([part.kind for part in alike], partial(self._list, connection, alike))
            for alike in _alike(parts, together=connection.adapter.capabilities.chosen_owners)
        ]
        if SectionKind.RELATED in kinds:
            reads.append(((SectionKind.RELATED,), partial(self._search, connection)))
        if SectionKind.PROFILE in kinds and connection.adapter.capabilities.profile:
            reads.append(((SectionKind.PROFILE,), partial(self._summarise, connection)))
        if any(await asyncio.gather(*(self._within(*read, late) for read in reads))):
            self._has_answer = True
            looking = partial(self.runtime.unreadable, self.entry, connection)
            found = await self._within((), looking) or ()
            listed = first_of_many(found, connection)
            self.problems += listed
            self.unlisted += len(found) - len(listed)

    async def _within(
        self,
        kinds: Sequence[SectionKind],
        read: Callable[[], Awaitable[T]],
        late: LateReads | None = None,
        *,
        opens: bool = False,
    ) -> T | None:
        """Return the result of a read for some sections; None where it is late or fails.

        One that `late` leaves out counts as late. `read` is a function, not a coroutine: one made
        earlier would never be awaited where the whole context is cancelled first.
        """
        name = "opening" if opens else " ".join(kinds)
        if late is not None and (seconds := late.seconds_left(name)):
            words = f"was late several times in a row and is tried again in {seconds:.0f} s."
            self.problems.append(Problem(message=f"{late.key}: reading {name} {words}"))
            self._is_late(kinds)
            return None
        loop = asyncio.get_running_loop()
        began, was_late = loop.time(), False
        try:
            async with asyncio.timeout_at(self._until(kinds)):
                return await read()
        except TimeoutError:
            was_late = True
            self._is_late(kinds)
        except MemtuiError as error:
            was_late = isinstance(error, Unavailable) and loop.time() - began >= _LATE_SECONDS
            self._fails(error)
            if isinstance(error, Invalid) and not opens:
                self._wrong.append(error)
        finally:
            if late is not None:
                late.tried(name, was_late=was_late)
        return None

    def _is_late(self, kinds: Sequence[SectionKind]) -> None:
        self.late += [kind for kind in kinds if kind not in self.late]

    def _until(self, kinds: Sequence[SectionKind]) -> float | None:
        """Return the deadline of a read for some sections, by the event loop's clock."""
        if self.request.within_ms is None:
            return None
        has_facts = any(kind not in _BESIDES for kind in kinds)
        return self.started + self.request.within_ms / 1_000 * (2 if has_facts else 1)

    def _fails(self, error: MemtuiError) -> None:
        self._failed.append(error)
        self.problems.append(Problem(message=str(error)))

    async def _list(self, connection: Connection, parts: Sequence[_Part]) -> bool:
        """Read the records of parts that one list covers; False: the binding lists none of them."""
        connection.require("browse")
        key, first = connection.binding.key, parts[0]
        records: dict[tuple[str, str], list[Record]] = {owner_of(part.scope): [] for part in parts}
        self.found += [_Found(part.kind, key, records[owner_of(part.scope)]) for part in parts]
        owners, is_kept = [part.scope for part in parts], False
        async for page, own in own_records(
            connection, owners, self.entry.visibility, kind=first.record_kind, topic=first.topic
        ):
            is_kept = True
            self.usage += page.usage
            for record in own:
                records[owner_of(record.scope)].append(record)
        return is_kept

    async def _search(self, connection: Connection) -> bool:
        """Search for the prompt, and leave out records of other users and projects."""
        scope, prompt = self.request.scope, self.request.prompt or ""
        asked = QueryRequest(
            scope=scope,
            query=redact(prompt[:_PROMPT_CHARS])[0],
            binding_key=connection.binding.key,
            top_k=_SEARCHED,
            intent=QueryIntent.AGENT_PREAMBLE,
            max_tokens=None,  # the context is filled to its own budget
        )
        bundle = await connection.read(lambda: connection.adapter.query(asked))
        self.usage += bundle.usage
        if self.may_summarise(connection.binding.key) and self.profile is None:
            self.profile = bundle.profile_summary
        seen = readable(bundle.snippets, scope, self.entry.visibility, connection.binding.key)
        own_run = self.entry.scope.run_id if self.request.skip_given else None
        mine = [
            one
            for one in seen
            if _may_include(one.scope, scope)
            and not (own_run and one.source and one.source.run_id == own_run)
        ]
        self.found.append(_Found(SectionKind.RELATED, connection.binding.key, mine))
        return True

    async def _summarise(self, connection: Connection) -> bool:
        scope = self.request.scope
        profile = await connection.read(lambda: connection.adapter.profile(scope))
        self.usage += profile.usage
        self.profile = profile.summary
        return True


class Contexts(ServiceModule):
    """Assembles the contexts of models."""

    async def context(self, caller: Caller, request: ContextRequest) -> ContextAnswer:
        """Assemble the context of a model before a run, with its tokens and its price.

        Raises:
            Invalid: the scope names no user, project or agent; `skip_given` is set and no run is
                named; or `delivered` is set for a moment in the past.
            Unavailable: no part could be read.
        """
        runtime = self._runtime
        started = asyncio.get_running_loop().time()
        asked = _asked(request)
        async with runtime.recorder.recorded(
            OperationType.CONTEXT, caller, request.scope, asked, request.source
        ) as entry:
            routed = await runtime.admit(entry, request.binding_key)
            parts = _parts(request)
            if not parts:
                raise Invalid("A context is about a user, project or agent; name one.")
            if request.delivered and caller.as_of is not None:
                raise Invalid(
                    "The context of a past moment cannot be delivered to a model; leave out "
                    "--delivered."
                )
            if request.skip_given and entry.scope.run_id is None:
                raise Invalid("Name the run, so that it shows what it was given already.")
            reading = _Reading(runtime, entry, request, started)
            texts, _ = await asyncio.gather(reading.given(), reading.read(routed, parts))
            assembled = await asyncio.to_thread(
                _assembled, reading, texts, caller.as_of or runtime.clock()
            )
            unread = tuple(dict.fromkeys(reading.problems))
            late = tuple(kind for kind in SectionKind if kind in reading.late)
            entry.usage = tuple(reading.usage)
            entry.result_count = sum(len(section.facts) for section in assembled.sections)
            entry.request["tokens"] = assembled.tokens
            entry.request["over_budget"] = assembled.over_budget
            entry.request["sections"] = {
                section.kind: section.tokens for section in assembled.sections
            }
            if request.delivered:
                entry.handles = _handles(assembled, routed.binding.key)
                entry.request["text"] = assembled.text
            if late:
                entry.request["late"] = list(late)
            if unread:
                entry.request["problems"] = len(unread) + reading.unlisted
        prompt = TYPICAL_PROMPT
        if not request.delivered:  # only people look at the share
            prompt = await asyncio.to_thread(
                lambda: prompt_size(runtime.settings, runtime.log_of(caller))
            )
        warnings = (
            *(late_warning(kind) for kind in late),
            *map(unread_warning, unread),
            *assembled.warnings,
        )
        # Its parts were just validated; validating 10,000 facts again would block the event loop.
        return ContextAnswer.model_construct(
            **dict(assembled) | {"warnings": warnings},
            late=late,
            problems=unread,
            operation_id=entry.operation_id,
            model=request.model,
            assembled_at=runtime.clock(),
            as_of=caller.as_of,
            share=share_of_prompt(assembled.tokens, prompt),
        )


def _asked(request: ContextRequest) -> ContextDetails:
    """Return the request as it is logged: redacted, and without empty values."""
    asked: ContextDetails = {
        "model": request.model,
        "budget": request.budget,
        "delivered": request.delivered,
        "max_tokens": request.max_tokens,
        "max_characters": request.max_characters,
        "topic": request.topic and redact(request.topic)[0],
        "prompt": request.prompt and redact(request.prompt[:_PROMPT_CHARS])[0],
        "profile": request.profile,
        "by_relevance": request.by_relevance,
        "skip_given": request.skip_given,
        "within_ms": request.within_ms,
        "prompt_tokens": request.prompt_tokens,
    }
    kept = {name: value for name, value in asked.items() if value or name in _ALWAYS}
    return cast("ContextDetails", kept)


def _asks_something(prompt: str) -> bool:
    """Whether a prompt has a word worth a search."""
    from memtui.text_analysis import STOPWORDS, terms_of

    words, pairs = terms_of(prompt[:_PROMPT_CHARS])
    return bool(pairs) or not (STOPWORDS | _GOING_ON).issuperset(words)


def _parts(request: ContextRequest) -> list[_Part]:
    company_id, scope = request.scope.company_id, request.scope
    parts = []
    if scope.agent_id:
        agent = Scope(company_id=company_id, agent_id=scope.agent_id)
        kinds = (
            (SectionKind.IDENTITY, "identity"),
            (SectionKind.FACTS, "fact"),
            (SectionKind.GUIDANCE, "guidance"),
        )
        parts += [_Part(kind, agent, record_kind) for kind, record_kind in kinds]
    if scope.subject_id:
        user = Scope(company_id=company_id, subject_id=scope.subject_id)
        parts.append(_Part(SectionKind.USER, user, "fact"))
    if scope.project_id:
        drive = Scope(company_id=company_id, project_id=scope.project_id)
        parts.append(_Part(SectionKind.WORKSPACE, drive, "fact"))
        if request.topic:
            topic = redact(request.topic)[0]
            parts.append(_Part(SectionKind.TOPIC, drive, "note", topic))
    if parts:
        parts.append(_Part(SectionKind.COMPANY, Scope(company_id=company_id), "fact"))
    return parts


def _alike(parts: Sequence[_Part], *, together: bool) -> list[list[_Part]]:
    """Group the parts that one list covers: `together`, all of a record kind and topic."""
    found: dict[object, list[_Part]] = {}
    for part in parts:
        found.setdefault((part.record_kind, part.topic) if together else part, []).append(part)
    return list(found.values())


async def own_records(
    connection: Connection,
    owners: Sequence[Scope],
    visibility: Visibility | None,
    *,
    kind: str | None,
    topic: str | None = None,
    everybodys: bool = False,
    expired: bool = False,
) -> AsyncIterator[tuple[BrowsePage, list[Record]]]:
    """Yield the pages of some owners' records of a kind and topic, the oldest first.

    If the owner is the company, records of users, projects and agents are left out unless
    `everybodys`. Where the provider can list the company's records alone, only these are read; a
    binding without a place for them is not read.

    Args:
        connection: The connection of the binding.
        owners: The owners; several need a provider with the capability `chosen_owners`.
        visibility: What the caller may see.
        kind: The kind of record; None: all.
        topic: The topic; None: all.
        everybodys: For the company: include the records of all owners.
        expired: Include expired records.
    """
    adapter, [scope, *others] = connection.adapter, owners
    base = Scope(company_id=scope.company_id) if others else scope
    request = BrowseRequest(
        scope=base,
        filter=own_filter(base, kind=kind, topic=topic),
        sort="created_at",
        expired=expired,
    )
    if is_org(base) and not everybodys:
        homes = _homes(connection, owners)
        if not homes:
            return
        [home, *_] = homes.values()
        if adapter.capabilities.chosen_owners:
            request = request.model_copy(update={"owners": tuple(homes)})
        elif adapter.capabilities.namespace_changes and home is not None:
            request = request.model_copy(update={"namespace": home})
    names, is_all = {owner_of(one) for one in owners}, is_org(base) and everybodys
    async for page in connection.pages(request):
        seen = readable(page.records, base, visibility, connection.binding.key)
        mine = (one for one in seen if is_all or owner_of(one.scope) in names)
        yield page, [one for one in mine if not one.read_only]


def _homes(connection: Connection, owners: Sequence[Scope]) -> dict[Scope, str | None]:
    """Return each owner's namespace in a binding; the company only if it has a place there."""
    found: dict[Scope, str | None] = {}
    for scope in owners:
        try:
            found[scope] = connection.adapter.home_of(connection.binding.config, scope)
        except Invalid:
            if not is_org(scope):
                found[scope] = None
    return found


def _may_include(owner: Scope, scope: Scope) -> bool:
    """Whether a context of `scope` may include records of `owner`: no other user or project."""
    field, name = owner_of(owner)
    return field not in {"project_id", "subject_id"} or getattr(scope, field) == name


def _assembled(reading: _Reading, texts: Sequence[str], now: datetime) -> AssembledContext:
    """Assemble the records that were read, without those in `texts`, delivered before."""
    request = reading.request
    listed = [one for one in reading.found if one.kind is not SectionKind.RELATED]
    known = {(one.binding_key, record.handle) for one in listed for record in one.records}
    sections = []
    for one in reading.found:
        fresh = one.records
        if one.kind is SectionKind.RELATED:
            fresh = [r for r in one.records if (one.binding_key, r.handle) not in known]
        sections.append(
            section_of_records(
                one.kind,
                as_agents_read(fresh),
                now=now,
                binding_key=one.binding_key,
                prompt=(request.prompt or "")[:_PROMPT_CHARS],
            )
        )
    if reading.profile and reading.profile.strip():
        summary = ContextFact(text=reading.profile, kind="profile")
        sections.append(ContextSection(kind=SectionKind.PROFILE, facts=(summary,)))
    if why := reading.entry.request.get("no_search"):
        notice = ContextFact(text=why, kind="notice")
        sections.append(ContextSection(kind=SectionKind.NOTICE, facts=(notice,)))
    if texts:
        sections = [
            without_given(one, texts, logged=lambda text: redact(text)[0]) for one in sections
        ]
    counter = TokenCounter(request.model)
    if request.by_relevance:
        searched = [one for one in reading.found if one.kind is SectionKind.RELATED]
        sections = by_relevance(
            sections,
            (request.prompt or "")[:_PROMPT_CHARS],
            always={(one.binding_key, record.handle): "pinned" if record.pinned else "a rule"
                    for one in listed for record in one.records
                    if record.pinned or is_rule(record)},
            found={(one.binding_key, record.handle) for one in searched for record in one.records},
            counter=counter,
            budget=request.budget,
        )  # fmt: skip
    context = assemble(
        sections,
        counter=counter,
        budget=request.budget,
        max_tokens=request.max_tokens,
        max_characters=request.max_characters,
    )
    if request.delivered:
        return context  # the warnings are for a person
    return context.model_copy(update={"warnings": (*context.warnings, *_poisoned(context))})


def _poisoned(context: AssembledContext) -> Iterator[ContextWarning]:
    """Yield warnings of records that read like an order, or that hide characters."""
    from memtui.pruning.folding import hidden_in
    from memtui.pruning.signs import order_in

    known = {handle for one in context.warnings if one.kind is WarningKind.CONTROL_CHARACTERS
             for handle in one.handles}  # fmt: skip
    for section in context.sections:
        found = [
            fact
            for fact in section.facts
            if order_in(fact.text) or (hidden_in(fact.text) and fact.handle not in known)
        ]
        if found:
            count = "1 record" if len(found) == 1 else f"{len(found):,} records"
            verb = "reads like an order or hides" if len(found) == 1 else "read like orders or hide"
            yield ContextWarning(
                kind=WarningKind.POISONED,
                section=section.title,
                message=f"{count} in {section.title} {verb} something.",
                where=named(found),
                handles=tuple(fact.handle for fact in found if fact.handle is not None),
            )


def _handles(assembled: AssembledContext, own_binding: str) -> tuple[OperationHandle, ...]:
    """Return the handles of the records in a context, in their order."""
    included = (fact for section in assembled.sections for fact in section.facts)
    return tuple(
        OperationHandle(
            rank=rank,
            binding_key=None if fact.binding_key == own_binding else fact.binding_key,
            **dict(fact.handle),
        )
        for rank, fact in enumerate((fact for fact in included if fact.handle), start=1)
        if fact.handle
    )
