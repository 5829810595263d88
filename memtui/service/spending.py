"""What a company's operations spent in a stretch of time, hot and sealed ones together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from memtui.contract import Filter
from memtui.service.analysis import Analysis
from memtui.service.answers import Caller
from memtui.service.core import Core
from memtui.store import limits as table
from memtui.store.limits import Spent

if TYPE_CHECKING:
    from memtui.analytics.layout import Manifest

_KEPT = 16


@dataclass(frozen=True, slots=True)
class _Sum:
    """What the hot operations up to number `last` spent."""

    last: int = 0
    parts: tuple[Spent, ...] = ()


class Spending:
    """Adds up a stretch of time once, and afterwards only what was appended since."""

    def __init__(self, core: Core, analysis: Analysis) -> None:
        """Set it up.

        Args:
            core: The service's parts.
            analysis: Who reads what is sealed.
        """
        self._core = core
        self._analysis = analysis
        self._sums: dict[tuple[str, datetime, datetime], _Sum] = {}

    async def between(self, caller: Caller, since: datetime, until: datetime) -> tuple[Spent, ...]:
        """Return what the operations spent that began at or after `since` and before `until`.

        All of them count, also those that the caller may not see: a limit is kept or it is not.

        Raises:
            Unavailable: the log cannot be read.
        """
        hot, manifest = await asyncio.to_thread(self._hot, caller.company_id, since, until)
        if any(one.started_to >= since and one.started_from < until for one in manifest.segments):
            return await self._hot_and_sealed(caller, since, until)
        return hot

    def _hot(
        self, company_id: str, since: datetime, until: datetime
    ) -> tuple[tuple[Spent, ...], Manifest]:
        """Return what hot rows spent, and what was sealed afterwards.

        In this order: a seal names its rows in the manifest before it removes them, so rows that
        went while they were read are in it.
        """
        from memtui.analytics.layout import Folder

        place = (company_id, since, until)
        known = self._sums.get(place, _Sum())
        with self._core.database.read() as database:
            last = table.last_seq(database, company_id)
            fresh = list(
                table.spent(database, company_id, since, until, after=known.last, last=last)
            )
        found = _Sum(last, _added((*known.parts, *fresh)))
        if len(self._sums) >= _KEPT:
            self._sums.clear()
        self._sums[place] = found
        return found.parts, Folder(self._analysis.archive_folder, company_id).read()

    async def _hot_and_sealed(
        self, caller: Caller, since: datetime, until: datetime
    ) -> tuple[Spent, ...]:
        from memtui.analytics.figures import HitSign

        rollups = self._analysis.figures(caller.company_id, None)
        stats = await asyncio.to_thread(
            lambda: rollups.stats(
                Filter(since=since, until=until),
                by=("agent", "project", "binding"),
                hit_sign=HitSign.SCORE,  # what is asked for needs none, and this one is the cheaper
            )
        )
        return tuple(
            Spent(
                agent_id=group.keys["agent"],
                project_id=group.keys["project"],
                binding_key=group.keys["binding"],
                tokens=group.input_tokens + group.output_tokens + group.embedding_tokens,
                cost_pico=int(group.cost_usd.scaleb(12)),
                unpriced_count=group.unpriced_count,
            )
            for group in stats.groups
        )


def _added(parts: Iterable[Spent]) -> tuple[Spent, ...]:
    """Return one part for each agent, project and binding."""
    sums: dict[tuple[str | None, str | None, str | None], Spent] = {}
    for part in parts:
        key = (part.agent_id, part.project_id, part.binding_key)
        before = sums.get(key)
        sums[key] = (
            part
            if before is None
            else replace(
                part,
                tokens=before.tokens + part.tokens,
                cost_pico=before.cost_pico + part.cost_pico,
                unpriced_count=before.unpriced_count + part.unpriced_count,
            )
        )
    return tuple(sums.values())
