"""What a migration would do: where records go, and what the destination refuses or loses."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import computed_field

from memtui.config import Settings
from memtui.contract import Adapter, BrowseRequest, Invalid, Model, Problem, Record, owner_words
from memtui.fact_values import FACT
from memtui.migration.endpoints import Endpoints
from memtui.migration.envelope import (
    Loss,
    filled_fields,
    living,
    losses,
    unable,
    unpack_clean,
    why_left,
)
from memtui.service.review.fact_limits import check_text
from memtui.service.visibility import is_org

_LISTED = 1_000
_COUNTED = 10_000


class ScopeCount(Model):
    """Number and destination of the records of one owner and kind."""

    scope: str
    """`company`, `project p`, `user u`, `agent a`."""
    kind: str
    records: int
    place: str | None = None
    """The destination's folder, namespace or owner; None: not known before the write."""


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
    """The source may hold more records than it lists."""
    source_unread: tuple[str, ...] = ()
    """Sentences on records that were not listed, and the setting that reads further."""
    problems: tuple[str, ...] = ()
    """Sentences on unreadable parts of the source, which may have more records."""
    destination_records: int | None = None
    """Records already in the destination; None: not known."""
    destination_at_least: bool = False
    scopes: tuple[ScopeCount, ...] = ()
    """At most ten thousand."""
    losses: tuple[Loss, ...] = ()
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()
    """The first thousand."""
    redacted: int = 0
    """Records that hold a secret, which the migration removes."""
    staying: int = 0
    """Project files that the source reads in place; they are not memories, so they stay."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def complete(self) -> bool:
        """Whether every record of the source was read."""
        return not (self.source_at_least or self.problems)


class _Survey:
    """Counts over the records of the source, added page by page."""

    def __init__(
        self,
        endpoints: Endpoints,
        settings: Settings,
        provider: type[Adapter],
        lacks: frozenset[str],
    ) -> None:
        self._endpoints = endpoints
        self._settings = settings
        self._provider = provider
        self.has: Counter[str] = Counter()
        """Number of records by label: record, undated, history, secret, refused, staying."""
        self._lacks = unable(endpoints.destination.capabilities) | lacks
        self._lacking: Counter[str] = Counter()
        """Number of records by field that the destination does not store."""
        self.scopes: Counter[tuple[str, str, str]] = Counter()
        self.refusals: list[Refusal] = []
        self._facts: Counter[str] = Counter()

    def stay(self, files: int) -> None:
        """Count files that are not moved."""
        self.has["staying"] += files

    def add(self, records: Sequence[Record], problems: Sequence[Problem]) -> None:
        for envelope in living(records, unpack_clean):
            record = envelope.record
            label = "company" if is_org(record.scope) else owner_words(record.scope)
            self.has["record"] += 1
            self.has["undated"] += record.created_at is None
            self.has["history"] += self._endpoints.source.capabilities.history
            self._lacking.update(filled_fields(record, self._lacks))
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
        """Return where the destination stores a record, or why it has no place for it."""
        destination = self._endpoints.destination
        try:
            return self._provider.home_of_copy(destination.config, record), None
        except Invalid as error:
            return None, str(error)

    def _refusal(self, record: Record, no_home: str | None) -> str | None:
        """Return why the destination will refuse a record; None: no reason is known."""
        if no_home is not None:
            return no_home
        try:
            if record.kind == FACT:
                check_text(record.text, self._settings)
            self._provider.check_record(self._endpoints.destination.config, record)
            record.text.encode()
        except Invalid as error:
            return str(error)
        except UnicodeEncodeError:
            return "Its text contains a character that UTF-8 cannot encode."
        return None

    def _too_many(self, record: Record, label: str) -> str | None:
        most = self._settings.fact_max_count
        if record.kind != FACT or not most or not label.startswith(("project ", "user ")):
            return None
        self._facts[label] += 1
        if self._facts[label] <= most:
            return None
        return f"The {label} may hold {most} facts; prune some, or raise fact_max_count."

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses that are known before the migration."""
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
    endpoints: Endpoints, settings: Settings, report: Callable[[int], None] = lambda _read: None
) -> MigrationPlan:
    """Read the source and return what a migration would do; neither side is changed.

    `settings` have the limits of facts.
    """
    load, key = endpoints.service.bindings.provider, endpoints.destination.provider_key
    lacks = await endpoints.service.bindings.lacks(endpoints.caller, endpoints.destination.key)
    survey = _Survey(endpoints, settings, await asyncio.to_thread(load, key), lacks)
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
