"""Carry out the steps of the demo through the service."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from memtui.contract import (
    BrowseRequest,
    Conflict,
    CorrectRequest,
    ForgetRequest,
    Json,
    MemtuiError,
    QueryRequest,
    Record,
    RecordHandle,
    WriteRequest,
)
from memtui.demo.clock import DemoClock
from memtui.demo.hosted_config import HostedConfig, Outage, Trouble
from memtui.demo.mishaps import OUTAGES
from memtui.demo.plan import (
    HOSTED,
    Action,
    AddBinding,
    Ask,
    Drop,
    Edit,
    Explain,
    Hydrate,
    Look,
    Open,
    Race,
    Step,
    SwitchBinding,
    Sync,
    TakeBack,
    Trace,
    Write,
    is_hosted,
)
from memtui.service import Caller, ContextRequest, MemoryService, MutationAnswer

_TYPICAL_MS: dict[type[Action], float] = {Ask: 9, Look: 14, Open: 1.5, Write: 11, Explain: 13}
_OTHER_MS, _HOSTED_MS, _LOST_MS = 8.0, 170.0, 10_000.0


class Player:
    """Knows the records that were written by the names that the plan gives them."""

    def __init__(
        self, service: MemoryService, clock: DemoClock, end: datetime, random: Random
    ) -> None:
        self._service = service
        self._clock = clock
        self._end = end
        self._random = random
        self._handles: dict[str, RecordHandle] = {}
        self._gone: dict[str, RecordHandle] = {}
        self._last_mutation: dict[str, str] = {}

    async def play(self, step: Step) -> None:
        """Do one step at its time.

        Raises:
            MemtuiError: it failed, and that is not part of the story.
        """
        takes = timedelta(milliseconds=round(self._latency_ms(step), 3))
        self._clock.move_to(self._end - step.ago, takes=takes)
        try:
            await self._do(step, self._caller(step))
        except MemtuiError:
            if not step.may_fail and not self._is_of_the_gone(step.action):
                raise

    def _is_of_the_gone(self, action: Action) -> bool:
        return isinstance(action, Open) and action.name in self._gone

    def _caller(self, step: Step) -> Caller:
        return Caller(company_id=step.scope.company_id, principal=step.principal, door=step.door)

    def _latency_ms(self, step: Step) -> float:
        typical = (
            _HOSTED_MS if is_hosted(step.scope) else _TYPICAL_MS.get(type(step.action), _OTHER_MS)
        )
        # Half of all take less than typical, some take a few times as long, a few are outliers.
        factor = 0.5 + self._random.random() * 0.9 + self._random.random() ** 6 * 4
        if is_hosted(step.scope) and self._trouble(step.ago) is Trouble.SLOW:
            return _LOST_MS
        return typical * factor * (9 if self._random.random() < 0.004 else 1)

    def _trouble(self, ago: timedelta) -> Trouble | None:
        return next((one.kind for one in OUTAGES if one.start >= ago > one.end), None)

    async def _do(self, step: Step, caller: Caller) -> None:
        match step.action:
            case Ask() | Explain() | Open() | Look() | Hydrate() | Trace():
                await self._read(step, caller, step.action)
            case Write() | Edit() | Drop() | TakeBack():
                answer = await self._change(step, caller, step.action)
                if answer is not None:
                    self._last_mutation[step.principal] = answer.operation_id
            case Race():
                await self._race(step, caller, step.action)
            case AddBinding() | SwitchBinding() | Sync():
                await self._configure(caller, step.action)

    async def _read(
        self, step: Step, caller: Caller, action: Ask | Explain | Open | Look | Hydrate | Trace
    ) -> None:
        scope, service = step.scope, self._service
        match action:
            case Ask():
                request = QueryRequest(
                    scope=scope,
                    query=action.text,
                    binding_key=action.binding_key,
                    top_k=action.top_k,
                    intent=action.intent,
                    as_of=None if action.as_of is None else self._end - action.as_of,
                )
                await service.query(caller, request)
            case Explain():
                await service.explain(caller, QueryRequest(scope=scope, query=action.text))
            case Open():
                await service.get(caller, self._named(action.name), scope)
            case Look():
                look = BrowseRequest(scope=scope, sort=action.sort, limit=action.limit)
                await service.browse(caller, look)
            case Hydrate():
                await service.context(caller, ContextRequest(scope=scope, delivered=True))
            case Trace():
                if action.name not in self._gone:
                    await service.history(caller, self._named(action.name), scope)

    async def _change(
        self, step: Step, caller: Caller, action: Write | Edit | Drop | TakeBack
    ) -> MutationAnswer | None:
        match action:
            case Write():
                return await self._write(step, caller, action)
            case Edit():
                return await self._edit(step, caller, action)
            case Drop():
                return await self._drop(step, caller, action)
            case TakeBack():
                return await self._take_back(step, caller)

    async def _write(self, step: Step, caller: Caller, action: Write) -> MutationAnswer:
        expires = action.expires_after_end
        answer = await self._service.write(
            caller,
            WriteRequest(
                scope=step.scope,
                source=action.source,
                content=action.text,
                binding_key=action.binding_key,
                mode=action.mode,
                kind=action.kind,
                title=action.title,
                topic=action.topic,
                tags=action.tags,
                pinned=action.pinned,
                expires_at=None if expires is None else self._end + expires,
            ),
        )
        self._handles[action.name] = answer.handles[0]
        return answer

    async def _edit(self, step: Step, caller: Caller, action: Edit) -> MutationAnswer | None:
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

    async def _drop(self, step: Step, caller: Caller, action: Drop) -> MutationAnswer | None:
        there = {name: self._handles[name] for name in action.names if name in self._handles}
        if not there:
            return None
        request = ForgetRequest(scope=step.scope, handles=tuple(there.values()))
        answer = await self._service.forget(caller, request)
        for name, handle in there.items():
            self._gone[name] = handle
            del self._handles[name]
        return answer

    async def _take_back(self, step: Step, caller: Caller) -> MutationAnswer:
        answer = await self._service.undo(caller, self._last_mutation[step.principal])
        back = set(answer.handles)
        for name, handle in list(self._gone.items()):
            new_id = answer.linked.get(handle.provider_record_id, handle.provider_record_id)
            now = handle.model_copy(update={"provider_record_id": new_id})
            if now in back:
                self._handles[name] = now
                del self._gone[name]
        return answer

    async def _race(self, step: Step, caller: Caller, action: Race) -> None:
        handle = self._handles[action.name]
        late = caller.model_copy(update={"principal": action.late, "door": "mcp"})
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

    async def _configure(self, caller: Caller, action: AddBinding | SwitchBinding | Sync) -> None:
        match action:
            case AddBinding():
                config = self._outages() if action.key == HOSTED else {}
                await self._service.bindings.add(caller, action.key, action.provider, config)
                for kind, target in action.targets:
                    await self._service.bindings.set_target(caller, kind, target, action.key)
            case SwitchBinding():
                await self._service.bindings.update(
                    caller, action.key, enabled=action.enabled, read_only=action.read_only
                )
            case Sync():
                await self._service.sync(caller, action.key)

    def _outages(self) -> Json:
        outages = tuple(
            Outage(kind=one.kind, start=self._end - one.start, end=self._end - one.end)
            for one in OUTAGES
        )
        config = HostedConfig(outages=outages)
        return config.model_dump(mode="json", exclude_unset=True)

    def _named(self, name: str) -> RecordHandle | str:
        return self._handles.get(name) or self._gone.get(name) or name


def _extended(record: Record, sentence: str) -> str:
    return f"{record.text.rstrip()} {sentence}"
