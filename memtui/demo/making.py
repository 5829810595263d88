"""Play the demo's whole story into an empty home, and count what came of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from memtui.config import Paths, Settings
from memtui.demo.calendar import DAYS
from memtui.demo.chance import seeded
from memtui.demo.clock import DemoClock
from memtui.demo.content import load
from memtui.demo.home import DemoSummary, Marker, commands, write_marker
from memtui.demo.player import Player
from memtui.demo.runs import RUNS
from memtui.demo.timeline import timeline
from memtui.service import BindingView, Caller, MemoryService, open_service

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many steps of it are done, and how many there are."""

_SEED = 60
_PROVIDER_TIMEOUT_MS = 60_000
_STEPS_A_REPORT = 40


async def make(
    paths: Paths, settings: Settings, end: datetime, progress: Progress | None
) -> DemoSummary:
    """Make the demo in a home that holds none, marking it as a demo from the first moment on."""
    await asyncio.to_thread(write_marker, paths, Marker())
    clock = DemoClock(end - timedelta(days=DAYS))
    ids = seeded(_SEED)
    service = await open_service(
        paths,
        settings.model_copy(update={"provider_timeout_ms": _PROVIDER_TIMEOUT_MS}),
        clock=clock.now,
        timer=clock.timer,
        new_id=lambda: uuid.UUID(int=ids.getrandbits(128), version=4).hex,
        first_company=False,
    )
    try:
        return await _Making(service, clock, paths, end).run(progress)
    finally:
        await service.close()


class _Making:
    def __init__(
        self, service: MemoryService, clock: DemoClock, paths: Paths, end: datetime
    ) -> None:
        self._service = service
        self._clock = clock
        self._paths = paths
        self._end = end
        self._company = load().company
        self._admin = Caller(company_id=self._company.id, principal="user:bo", door="cli")

    async def run(self, progress: Progress | None) -> DemoSummary:
        await self._service.companies.add(
            self._admin, self._company.name, link_templates=self._company.link_templates
        )
        player = Player(self._service, self._clock, self._end, seeded(_SEED))
        steps = timeline()
        for number, step in enumerate(steps):
            if progress is not None and number % _STEPS_A_REPORT == 0:
                progress("Making the demo company", number, len(steps))
            await player.play(step)
        if progress is not None:
            progress("Making the demo company", len(steps), len(steps))
        bindings = await self._service.bindings.all(self._admin)
        summary = await self._summary(bindings)
        ids = tuple(view.binding_id for view in bindings)
        marker = Marker(binding_ids=ids, summary=summary)
        await asyncio.to_thread(write_marker, self._paths, marker)
        return summary

    async def _summary(self, bindings: list[BindingView]) -> DemoSummary:
        health = [await self._service.bindings.health(self._admin, view.key) for view in bindings]
        log = await self._service.log.page(self._admin, limit=1)
        return DemoSummary(
            home=str(self._paths.data),
            commands=commands(self._paths),
            company=self._company.id,
            name=self._company.name,
            projects=self._company.projects,
            agents=tuple(agent.id for agent in self._company.agent),
            bindings=tuple(view.key for view in bindings),
            issues=len(load().issues),
            runs=RUNS,
            records=sum(one.health.records or 0 for one in health),
            operations=log.total,
            made_until=self._end,
        )
