"""What a migration would do: where records go, and what the destination refuses or loses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import computed_field

from memtui.contract import Adapter, BrowseRequest, Invalid, Model, Problem, Record, owner_words
from memtui.migration.endpoints import Endpoints
from memtui.migration.envelope import (
    Loss,
    fields_held,
    living,
    losses,
    unable,
    unpack_clean,
    why_left,
)
from memtui.service.fact_limits import FACT, FactLimits, check_text
from memtui.service.visibility import is_org

_LISTED = 1_000
_COUNTED = 10_000


class ScopeCount(Model):
    """The records of one owner and kind, and where they go."""

    scope: str
    """`company`, `project p`, `user u`, `agent a`."""
    kind: str
    records: int
    place: str | None = None
    """The destination's folder, namespace or owner; None where it cannot be said before."""


class Refusal(Model):
    """A record that the destination will not take."""

    record_id: str
    reason: str


class MigrationPlan(Model):
    """What a migration would do."""

    source: str
    destination: str
    records: int
    source_at_least: bool = False
    """The source may hold more than it lists."""
    source_unread: tuple[str, ...] = ()
    """In sentences, what that is and which setting reads further."""
    problems: tuple[str, ...] = ()
    """What of the source cannot be read, in sentences: nobody knows whether more is there."""
    destination_records: int | None = None
    """How many the destination holds already, where it knows."""
    destination_at_least: bool = False
    scopes: tuple[ScopeCount, ...] = ()
    """At most ten thousand."""
    losses: tuple[Loss, ...] = ()
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()
    """The first thousand."""
    redacted: int = 0
    """Records that hold a secret, which will be taken out."""
    staying: int = 0
    """Files of projects that the source reads where they lie; they are not memories to move."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether this is all that the source holds."""
        return not (self.source_at_least or self.problems)


class _Survey:
    """What the records of the source come to, page by page."""

    def __init__(
        self,
        endpoints: Endpoints,
        limits: FactLimits,
        provider: type[Adapter],
        lacks: frozenset[str],
    ) -> None:
        self._endpoints = endpoints
        self._limits = limits
        self._provider = provider
        self.has: Counter[str] = Counter()
        """Records by what is to be said of them."""
        self._lacks = unable(endpoints.destination.capabilities) | lacks
        self._lacking: Counter[str] = Counter()
        """Records by what the destination will not keep of them."""
        self.scopes: Counter[tuple[str, str, str]] = Counter()
        self.refusals: list[Refusal] = []
        self._facts: Counter[str] = Counter()

    def stay(self, files: int) -> None:
        """Count what is not moved."""
        self.has["staying"] += files

    def add(self, records: Sequence[Record], problems: Sequence[Problem]) -> None:
        for envelope in living(records, unpack_clean):
            record = envelope.record
            label = "company" if is_org(record.scope) else owner_words(record.scope)
            self.has["record"] += 1
            self.has["undated"] += record.created_at is None
            self.has["history"] += self._endpoints.source.capabilities.history
            self._lacking.update(fields_held(record, self._lacks))
            self._lacking["id"] += not self._endpoints.destination.capabilities.keeps_ids
            self.has["secret"] += bool(envelope.redacted)
            home, no_home = self._home(record)
            key = (label, record.kind, home or "")
            if key in self.scopes or len(self.scopes) < _COUNTED:
                self.scopes[key] += 1
            reason = (
                why_left(record, problems)
                or self._refusal(record, no_home)
                or self._too_many(record, label)
            )
            if reason is not None:
                self.has["refused"] += 1
                if len(self.refusals) < _LISTED:
                    self.refusals.append(Refusal(record_id=envelope.record_id, reason=reason))

    def _home(self, record: Record) -> tuple[str | None, str | None]:
        """Where the destination will keep a record, and why there is no place for it."""
        destination = self._endpoints.destination
        try:
            return self._provider.home_of(destination.config, record.scope), None
        except Invalid as error:
            return None, str(error)

    def _refusal(self, record: Record, no_home: str | None) -> str | None:
        """Why the destination will not take a record, None where nothing is known against it."""
        if no_home is not None:
            return no_home
        try:
            if record.kind == FACT:
                check_text(record.text, self._limits)
            self._provider.check_record(self._endpoints.destination.config, record)
            record.text.encode()
        except Invalid as error:
            return str(error)
        except UnicodeEncodeError:
            return "Its text holds a character that UTF-8 cannot carry."
        return None

    def _too_many(self, record: Record, label: str) -> str | None:
        most = self._limits.max_count
        if record.kind != FACT or not most or not label.startswith(("project ", "user ")):
            return None
        self._facts[label] += 1
        if self._facts[label] <= most:
            return None
        return f"The {label} may hold {most} facts; prune some, or raise fact_max_count."

    def losses(self) -> tuple[Loss, ...]:
        """Return what the destination will not keep, as far as is known before."""
        carried = losses(self._lacking, carried="metadata" not in self._lacks)
        never = {"time of the last change": "record", "history": "history"}
        undated = self.has["undated"]
        filled = Loss(what="time of creation", records=undated, carried=False, filled=True)
        return (
            *carried,
            *([filled] if undated else []),
            *(
                Loss(what=what, records=self.has[word], carried=False)
                for what, word in never.items()
                if self.has[word]
            ),
        )


async def plan(
    endpoints: Endpoints, limits: FactLimits, report: Callable[[int], None] = lambda _read: None
) -> MigrationPlan:
    """Read the source and say what would happen; nothing but pages is asked of either side.

    `limits` are those that the service holds facts to.
    """
    load, key = endpoints.service.bindings.provider, endpoints.destination.provider_key
    lacks = await endpoints.service.bindings.lacks(endpoints.caller, endpoints.destination.key)
    survey = _Survey(endpoints, limits, await asyncio.to_thread(load, key), lacks)
    async for page in endpoints.pages(endpoints.source, report, survey.stay):
        await asyncio.to_thread(survey.add, page.records, page.problems)
        report(survey.has["record"])
    asked = BrowseRequest(
        scope=endpoints.scope,
        binding_key=endpoints.destination.key,
        filter=endpoints.part.filter,
        limit=1,
    )
    there = await endpoints.service.browse(endpoints.caller, asked)
    return MigrationPlan(
        source=endpoints.source.key,
        destination=endpoints.destination.key,
        records=survey.has["record"],
        source_at_least=page.at_least,
        source_unread=page.unread,
        problems=tuple(one.sentence() for one in page.problems),
        destination_records=there.total,
        destination_at_least=there.at_least,
        scopes=tuple(
            ScopeCount(scope=scope, kind=kind, place=place or None, records=count)
            for (scope, kind, place), count in sorted(survey.scopes.items())
        ),
        losses=survey.losses(),
        refused=survey.has["refused"],
        refusals=tuple(survey.refusals),
        redacted=survey.has["secret"],
        staying=survey.has["staying"],
    )
