"""Carries out the steps of the demo through the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    MemtuiError,
    QueryRequest,
    Record,
    RecordHandle,
    WriteRequest,
)
from memtui.demo.hosted import HostedConfig, Outage, Trouble
from memtui.demo.plan import (
    HOSTED,
    Action,
    AddBinding,
    Ask,
    Drop,
    Edit,
    Explain,
    HistoryStep,
    Hydrate,
    Look,
    Open,
    PlannedStep,
    Race,
    SwitchBinding,
    Sync,
    TakeBack,
    Write,
    is_hosted,
)
from memtui.demo.recall import Recall
from memtui.demo.timeline import OUTAGES
from memtui.service import Caller, MemoryService, MutationAnswer, Resolution
from memtui.service.context.contexts import ContextRequest

_TYPICAL_MS: dict[type[Action], float] = {Ask: 9, Look: 14, Open: 1.5, Write: 11, Explain: 13}
_Do = Callable[["Player", PlannedStep, Caller, Any], Awaitable[MutationAnswer | None]]
_OTHER_MS, _HOSTED_MS, _LOST_MS = 8.0, 170.0, 10_000.0


class DemoClock:
    """A simulated UTC clock and a monotonic timer, which only move when told to.

    `takes` passes at every second reading of the timer, so that each timed call takes that long.
    """

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._moment = start
        self._takes = timedelta(0)
        self._readings = 0

    def now(self) -> datetime:
        """Return the present moment, UTC."""
        return self._moment

    def timer(self) -> float:
        """Return the seconds since the start."""
        self._readings += 1
        if self._readings % 2 == 0:
            self._moment += self._takes
        return (self._moment - self._start).total_seconds()

    def move_to(self, moment: datetime, *, takes: timedelta) -> None:
        """Advance to `moment`, never backwards; `takes` is the duration of the next timed call."""
        self._moment = max(self._moment, moment)
        self._takes = takes
        self._readings = 0


class Player:
    """Carries out steps, and maps the plan's names to the written records."""

    def __init__(
        self,
        service: MemoryService,
        recall: Recall,
        clock: DemoClock,
        end: datetime,
        random: Random,
    ) -> None:
        self._service = service
        self._recall = recall
        self._clock = clock
        self._end = end
        self._random = random
        self._handles = recall.there
        self._gone: dict[str, RecordHandle] = {}
        self._last_mutation: dict[str, str] = {}
        self._resolutions: dict[tuple[str | None, str | None], Resolution] = {}

    async def play(self, step: PlannedStep) -> None:
        """Carry out one step at its time.

        Raises:
            MemtuiError: it failed, which is not part of the story.
        """
        takes = timedelta(milliseconds=round(self._latency_ms(step), 3))
        self._clock.move_to(self._end - step.ago, takes=takes)
        action = step.action
        caller = Caller(
            company_id=step.scope.company_id, principal=step.principal, channel=step.channel
        )
        read = None if step.may_fail else self._everyday(action)
        if read is not None:
            where = await self._resolved(caller, step)
            self._recall.note(step, read, where, self._clock.now(), takes)
            return
        self._recall.write_down()
        try:
            answer = await self._DO[type(action)](self, step, caller, action)
        except MemtuiError:
            if not step.may_fail and not (isinstance(action, Open) and action.name in self._gone):
                raise
        else:
            if answer is not None:
                self._last_mutation[step.principal] = answer.operation_id

    def _everyday(self, action: Action) -> Ask | Look | Open | None:
        """Return the step's read if it can be logged without a provider; None: it cannot."""
        if isinstance(action, Open):
            return action if action.name in self._handles else None
        if isinstance(action, Ask) and (action.binding_key or action.as_of):
            return None
        return action if isinstance(action, Ask | Look) else None

    async def _resolved(self, caller: Caller, step: PlannedStep) -> Resolution:
        place = step.scope.project_id, step.scope.agent_id
        if place not in self._resolutions:
            self._resolutions[place] = await self._service.resolve(caller, step.scope)
        return self._resolutions[place]

    def _latency_ms(self, step: PlannedStep) -> float:
        hosted = is_hosted(step.scope)
        typical = _HOSTED_MS if hosted else _TYPICAL_MS.get(type(step.action), _OTHER_MS)
        # Half of the calls are faster than typical, some several times slower, a few are outliers.
        factor = 0.5 + self._random.random() * 0.9 + self._random.random() ** 6 * 4
        trouble = next((one.kind for one in OUTAGES if one.start >= step.ago > one.end), None)
        if hosted and trouble is Trouble.SLOW:
            return _LOST_MS
        return typical * factor * (9 if self._random.random() < 0.004 else 1)

    async def _ask(self, step: PlannedStep, caller: Caller, action: Ask) -> None:
        request = QueryRequest(
            scope=step.scope,
            query=action.text,
            binding_key=action.binding_key,
            top_k=action.top_k,
            intent=action.intent,
            as_of=None if action.as_of is None else self._end - action.as_of,
        )
        await self._service.query(caller, request)

    async def _explain(self, step: PlannedStep, caller: Caller, action: Explain) -> None:
        await self._service.explain(caller, QueryRequest(scope=step.scope, query=action.text))

    async def _open(self, step: PlannedStep, caller: Caller, action: Open) -> None:
        await self._service.get(caller, self._named(action.name), step.scope)

    async def _look(self, step: PlannedStep, caller: Caller, action: Look) -> None:
        request = BrowseRequest(scope=step.scope, sort=action.sort, limit=action.limit)
        await self._service.browse(caller, request)

    async def _hydrate(self, step: PlannedStep, caller: Caller, action: Hydrate) -> None:
        request = ContextRequest(scope=step.scope, prompt=action.prompt, delivered=True)
        await self._service.context(caller, request)

    async def _trace(self, step: PlannedStep, caller: Caller, action: HistoryStep) -> None:
        if action.name not in self._gone:
            await self._service.history(caller, self._named(action.name), step.scope)

    async def _write(self, step: PlannedStep, caller: Caller, action: Write) -> MutationAnswer:
        expires = action.expires_after_end
        request = WriteRequest.like(
            action,
            scope=step.scope,
            content=action.text,
            expires_at=None if expires is None else self._end + expires,
            valid_from=None if action.since is None else self._end - action.since,
        )
        answer = await self._service.write(caller, request)
        self._handles[action.name] = answer.handles[0]
        return answer

    async def _edit(self, step: PlannedStep, caller: Caller, action: Edit) -> MutationAnswer | None:
        handle = self._handles.get(action.name)
        if handle is None:
            return None
        record = (await self._service.get(caller, handle, step.scope)).record
        request = CorrectRequest(
            scope=step.scope,
            handle=handle,
            text=None if action.sentence is None else _extended(record, action.sentence),
            revision=record.revision,
            pinned=action.pinned,
            tags=action.tags,
        )
        return await self._service.correct(caller, request)

    async def _drop(self, step: PlannedStep, caller: Caller, action: Drop) -> MutationAnswer | None:
        there = {name: self._handles[name] for name in action.names if name in self._handles}
        if not there:
            return None
        request = ForgetRequest(scope=step.scope, handles=tuple(there.values()))
        answer = await self._service.forget(caller, request)
        self._gone |= there
        for name in there:
            del self._handles[name]
        return answer

    async def _take_back(self, step: PlannedStep, caller: Caller, _: TakeBack) -> MutationAnswer:
        answer = await self._service.undo(caller, self._last_mutation[step.principal])
        back = set(answer.handles)
        for name, handle in list(self._gone.items()):
            new_id = answer.linked.get(handle.provider_record_id, handle.provider_record_id)
            now = handle.model_copy(update={"provider_record_id": new_id})
            if now in back:
                self._handles[name] = now
                del self._gone[name]
        return answer

    async def _race(self, step: PlannedStep, caller: Caller, action: Race) -> None:
        handle = self._handles[action.name]
        late = caller.model_copy(update={"principal": action.late, "channel": "mcp"})
        seen = (await self._service.get(caller, handle, step.scope)).record
        also_seen = (await self._service.get(late, handle, step.scope)).record
        for who, record, sentence in (
            (caller, seen, action.first),
            (late, also_seen, action.second),
        ):
            request = CorrectRequest(
                scope=step.scope,
                handle=handle,
                text=_extended(record, sentence),
                revision=record.revision,
            )
            try:
                await self._service.correct(who, request)
            except Conflict:
                if who is caller:
                    raise

    async def _add_binding(self, _: PlannedStep, caller: Caller, action: AddBinding) -> None:
        outages = tuple(
            Outage(kind=one.kind, start=self._end - one.start, end=self._end - one.end)
            for one in OUTAGES
            if action.key == HOSTED
        )
        config = HostedConfig(outages=outages) if outages else HostedConfig()
        given = config.model_dump(mode="json", exclude_unset=True)
        await self._service.bindings.add(caller, action.key, action.provider, given)
        for kind, target in action.targets:
            await self._service.bindings.set_target(caller, kind, target, action.key)

    async def _switch(self, _: PlannedStep, caller: Caller, action: SwitchBinding) -> None:
        await self._service.bindings.update(
            caller, action.key, enabled=action.enabled, read_only=action.read_only
        )

    async def _sync(self, _: PlannedStep, caller: Caller, action: Sync) -> None:
        await self._service.sync(caller, action.key)

    def _named(self, name: str) -> RecordHandle | str:
        return self._handles.get(name) or self._gone.get(name) or name

    _DO: ClassVar[dict[type[Action], _Do]] = {
        AddBinding: _add_binding, Ask: _ask, Drop: _drop, Edit: _edit, Explain: _explain,
        Hydrate: _hydrate, Look: _look, Open: _open, Race: _race, SwitchBinding: _switch,
        Sync: _sync, TakeBack: _take_back, HistoryStep: _trace, Write: _write,
    }  # fmt: skip


def _extended(record: Record, sentence: str) -> str:
    return f"{record.text.rstrip()} {sentence}"
