"""State shared by all screens: a frozen value, messages that change it, and its controller."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from textual.app import App
from textual.message import Message

from memtui.actions import Need
from memtui.config import Paths, Settings
from memtui.contract import Denied, Embedding, Filter, Health, Invalid, MemtuiError, NotFound, Scope
from memtui.demo import percent_made
from memtui.filters import format_filter, names_bindings, parse_expiry, parse_filter
from memtui.presenters.format import counted
from memtui.screens.following import Follower, News, tells_of_review
from memtui.screens.kept import (
    SavedCompany,
    SavedSession,
    SavedView,
    load_named,
    load_session,
    save_document,
)
from memtui.screens.keymap import Keymap, load_keymap
from memtui.screens.session import ServiceSession
from memtui.store.operation import APP_CHANNEL
from memtui.widgets.background import Background
from memtui.widgets.display import toast
from memtui.wording import unknown

if TYPE_CHECKING:
    from memtui.backends.discovery import DiscoveredMemory
    from memtui.screens.drafts import KeptDraft
    from memtui.service import MemoryService
    from memtui.service.answers import BindingHealth, BindingView, CompanyView, Resolution
    from memtui.service.review.known_risks import RiskFigures
    from memtui.service.review.queue import PendingWrite
    from memtui.service.spending import SpendingStatus
    from memtui.service.usecases.verdict import MemoryVerdict

K = TypeVar("K")

_log = logging.getLogger(__name__)
_PROGRESS_SECONDS = 0.5
"""Minimum seconds between two embedding progress updates."""
_RISKS_SECONDS = 300.0
"""Seconds after which risks are looked for again although memtui changed nothing."""
_DEMO_SECONDS = 1
"""Seconds between two checks of a demo's progress."""
_SCOPE_FIELDS = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


class Phase(StrEnum):
    """Whether the service is opening, ready, or failed to open."""

    OPENING = "opening"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PruneFigures:
    """Prunable and total records of each owner, as planned at `planned_at`."""

    company_id: str
    planned_at: datetime
    owners: Mapping[Scope, tuple[int, int]]
    """(prunable, total) by owner scope; the company's scope has the sum of all."""
    unread: tuple[str, ...] = ()
    """Bindings that did not answer; their records are not counted."""
    verdict: MemoryVerdict | None = None
    """None: memories have changed since."""

    @property
    def without(self) -> str:
        """Suffix that names the uncounted bindings: `, without notes`; empty if there are none."""
        return f", without {', '.join(self.unread)}" if self.unread else ""


@dataclass(frozen=True, slots=True)
class AppState:
    """Service, scope, filter and active binding; a change of any makes a new value."""

    phase: Phase = Phase.OPENING
    failure: MemtuiError | None = None
    """Why the service did not open."""
    session: ServiceSession | None = None
    """None until the service is open."""
    scope: Scope = field(default_factory=lambda: Scope(company_id="local"))
    filter: Filter = field(default_factory=Filter)
    filter_line: str = ""
    """The filter as it was typed."""
    binding_key: str | None = None
    """The binding chosen by hand; None lets the service resolve it from the scope."""
    everywhere: bool = False
    """Whether queries and records of all bindings are shown at once."""
    resolution: Resolution | None = None
    """The active binding and why it was resolved; None while unknown or if none resolves."""
    resolution_problem: str = ""
    companies: tuple[CompanyView, ...] = ()
    """All companies, for choosers."""
    bindings: tuple[BindingView, ...] = ()
    """All bindings of this company."""
    binding: BindingView | None = None
    """The active binding."""
    health: BindingHealth | None = None
    """The active binding's health as last checked; None while unknown."""
    not_live: str = ""
    """Why the log cannot be followed, as a sentence; empty while it can."""
    spending: tuple[SpendingStatus, ...] = ()
    """The company's spending limits as last checked."""
    waiting: int = 0
    """Number of pending writes that the person may see."""
    risks: tuple[int, RiskFigures] | None = None
    """How often risks were looked for, and the figures since; None: not yet."""
    demo_percent: int | None = None
    """Progress of a demo that is being made; None: none is."""
    embeddings: Mapping[str, Embedding] = field(default_factory=dict)
    """Last reported embedding progress, by binding key."""
    filters: tuple[str, ...] = ()
    """Filter lines applied before, the newest last."""
    views: tuple[SavedView, ...] = ()
    """The saved views."""
    pruning: PruneFigures | None = None
    """Prunable records as last found by the prune review or the background count."""
    mended: dict[str, str] = field(default_factory=dict)
    """Edited texts of pending writes that are not accepted yet, by pending id."""
    left: dict[Path, KeptDraft] = field(default_factory=dict)
    """Drafts saved when memtui ended, by folder, until the person resumes them."""
    shares: Mapping[str, int] = field(default_factory=dict)
    """Share of a list in its `Split`, in percent, where a person moved the border."""
    read_only: bool = False
    """Whether every change is refused, by setting or by company."""
    keymap: Keymap = field(default_factory=Keymap)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """Returns the moment shown: now, or the past moment that the person chose."""
    true_clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """Returns now, even while the past is shown."""
    settings: Settings = field(default_factory=Settings)
    paths: Paths = field(default_factory=lambda: Paths(data=Path(), config=Path()))
    zone: tzinfo | None = None
    """Where days and clock times are shown; None means the system's zone."""
    zone_name: str = "UTC"
    """The IANA name of the zone that days are cut in."""

    @property
    def as_of(self) -> datetime | None:
        """The moment of the past that everything is shown at; None: now."""
        return self.session.caller.as_of if self.session else None

    @property
    def prune_figures(self) -> PruneFigures | None:
        """Prune figures of this company; None if unknown or while the past is shown."""
        found = self.pruning
        is_of_now = found and found.company_id == self.scope.company_id and self.as_of is None
        return found if is_of_now else None

    @property
    def local_zone(self) -> tzinfo:
        """The person's time zone, which decides where days begin."""
        return self.zone or datetime.now().astimezone().tzinfo or UTC

    def expiry(self, text: str) -> datetime | None:
        """Parse an expiry in the person's time zone; None: empty, which means never."""
        if not text.strip():
            return None
        return parse_expiry(text, now=self.clock(), zone=self.zone)

    def written_expiry(self, moment: datetime | None) -> str:
        """Return an expiry as text to edit; empty: never."""
        return moment.astimezone(self.zone).isoformat("T", "minutes") if moment else ""

    @property
    def no_change(self) -> str:
        """Why changes are refused now, as a sentence; empty if they are allowed."""
        if self.as_of is not None:
            back = self.keymap.label("app.past")
            return f"The past cannot be changed; {back} goes back to now."
        if self.session is not None and not self.session.service.read_only and self.read_only:
            return f"The company {self.session.company.company_id} is read-only."
        return Need.WRITABLE.value if self.read_only else ""

    @property
    def asks_all(self) -> bool:
        """Whether all bindings are queried; a filter that names one binding queries only it."""
        chosen = self.filter
        return names_bindings(chosen) or (self.everywhere and chosen.binding_key is None)

    @property
    def log_filter(self) -> Filter:
        """The filter for operations; fields that the filter line omits come from the scope."""
        return self.filter.model_copy(update=self._scoped)

    @property
    def log_line(self) -> str:
        """The typed filter line, with the terms that `log_filter` takes from the scope."""
        own = self.filter.model_dump(exclude_none=True)
        added = {name: value for name, value in self._scoped.items() if name not in own}
        return f"{self.filter_line} {format_filter(Filter(**added))}".strip()

    @property
    def record_scope(self) -> Scope:
        """The scope for queries and records: the scope, overridden by the filter line."""
        return self.scope.model_copy(update=self._scoped)

    @property
    def _scoped(self) -> dict[str, str | None]:
        return {
            name: getattr(self.filter, name) or (here if not self.filter.any_of(name) else None)
            for name in _SCOPE_FIELDS
            for here in [getattr(self.scope, name)]
        }


@dataclass
class ViewChosen(Message):
    """A person wants to see a screen as in a saved view."""

    view: SavedView


@dataclass
class ViewsChanged(Message):
    """A saved view was added, renamed or removed; `views` are all of them."""

    views: tuple[SavedView, ...]


@dataclass
class PrunePlanned(Message):
    """The prune review finished a plan; None: its figures are no longer valid."""

    found: PruneFigures | None


@dataclass
class GoTo(Message):
    """Change scope, filter line, binding or screen of the app; omitted fields stay."""

    mode: str = ""
    filter_line: str | None = None
    """A filter line that parses."""
    binding_key: str | None = None
    select: str | None = None
    """Name of the row for the target screen's cursor: a record's or an operation's id."""
    then: str = ""
    """Id of an action to run on the target screen as soon as it is enabled."""
    scope: Scope | None = None
    """A new scope, with no other field; another company restores its saved line and binding."""
    as_of: datetime | None = None
    """A moment of the past; from there `app.past` goes back to now."""
    everywhere: bool | None = None
    """Whether to show queries and records of all bindings at once."""


class ConfigurationChanged(Message):
    """Bindings or targets changed: the app resolves the active binding again."""


class StateController:
    """Owns the `AppState` of an app and calls `share` with each new value.

    `failed` takes errors that `AppState` does not represent, `tell` takes new operations of the
    log, and `here` returns the current screen.

    Raises:
        Invalid: the keymap of the settings is invalid.
    """

    def __init__(
        self,
        app: App[Any],
        paths: Paths,
        settings: Settings,
        *,
        company: str | None,
        clock: Callable[[], datetime],
        share: Callable[[AppState], None],
        failed: Callable[[MemtuiError], None],
        tell: Callable[[News], None],
        here: Callable[[], object],
    ) -> None:
        self._app = app
        self._paths = paths
        self._settings = settings
        self._share = share
        self._failed = failed
        self._tell = tell
        self.follower = Follower(
            app,
            here=here,
            tell=self._news,
            stopped=self._not_live,
            notify=settings.notify_saves,
            clock=clock,
        )
        self._opening = Background(app, "open")
        self._resolving = Background(app, "resolve")
        self._checking = Background(app, "health")
        self._adding_up = Background(app, "spending")
        self._asking = Background(app, "later-writes")
        self._counting = Background(app, "review")
        self._risking = Background(app, "risks")
        self._risks_due = True
        """Whether memories have changed since risks were looked for."""
        self._risks_wait = 0.0
        """The monotonic time before which risks are not looked for again."""
        self._silent: frozenset[str] = frozenset()
        """The bindings that did not answer then, which are not asked until they are well."""
        self._planning = Background(app, "prune-figures")
        self._changes = 0
        """How often memories were seen to have changed."""
        self._shadowing = Background(app, "shadows")
        self._shadowed: dict[str, dict[tuple[str, str], int]] = {}
        """By company, up to which operation shadows were asked."""
        self._embedding = Background(app, "embedding")
        self._embedding_shown_at = 0.0
        self._purging = Background(app, "purge")
        self._finding = Background(app, "discovery")
        self.tells_of_findings = True
        """Whether a toast may announce memories found on this machine at a first start."""
        self._last_problem = ""
        self._settling: AppState | None = None
        """The next state, shared once its binding is resolved."""
        self._early_line: str | None = None
        """A filter line chosen before the service was open."""
        self.saved, problem = _read_kept(load_session, paths.session_file, SavedSession())
        no_views: tuple[SavedView, ...] = ()
        views, other = _read_kept(partial(load_named, kind=SavedView), paths.views_file, no_views)
        self.saved_problem = problem or other
        self._asked_for = company or settings.company
        self._company = self._asked_for or self.saved.company
        self._clock = clock
        self.state = AppState(
            scope=Scope(company_id=self._company or "local"),
            filters=self.saved.filters,
            shares=self.saved.shares,
            read_only=settings.read_only,
            keymap=load_keymap(settings.keymap),
            clock=self._looked_at,
            true_clock=clock,
            settings=settings,
            paths=paths,
            zone=ZoneInfo(settings.timezone) if settings.timezone else None,
            zone_name=settings.zone_name or "UTC",
            views=views,
        )

    @property
    def last_screen(self) -> str:
        """The last screen shown in this company."""
        return self.saved.of(self._company).screen

    def open(self) -> None:
        """Open the service in the background."""
        self._set(replace(self.state, phase=Phase.OPENING, failure=None))

        def failed(error: MemtuiError) -> None:
            self._set(replace(self.state, phase=Phase.FAILED, failure=error))

        self._opening.latest(self._open_service, self._opened, failed)

    async def _open_service(self) -> tuple[ServiceSession, tuple[CompanyView, ...]]:
        await asyncio.to_thread(importlib.import_module, "memtui.service")
        from memtui.service import open_service

        was_begun = self._paths.is_begun
        service = await open_service(
            self._paths, self._settings, clock=self._clock, new_id=self.follower.new_id
        )
        if not was_begun:
            toast(self._app, f"Made a new home of memtui in {self._paths.data}.", timeout=12)
        try:
            own = self._settings.principal, self._settings.acts_for or None
            companies = tuple(await service.companies.all(*own))
            picked = self._pick(companies or tuple(await service.companies.all()))
            session = self._session_of(service, picked)
            await service.companies.get(session.caller)  # fails early for a caller who is no member
        except BaseException:
            await service.close()
            raise
        return session, companies

    def _session_of(self, service: MemoryService, company: CompanyView) -> ServiceSession:
        from memtui.service import caller_of

        caller = caller_of(self._settings, company.company_id, APP_CHANNEL)
        caller = caller.model_copy(update={"as_of": self.state.as_of})
        return ServiceSession(service, caller, company)

    def _pick(self, companies: tuple[CompanyView, ...]) -> CompanyView:
        """Return the requested company (by id or name), else the last used, else the first.

        Raises:
            NotFound: there is no company, or the requested one does not exist.
        """
        if not companies:
            raise NotFound("There is no company yet; run `memtui demo` or add one.")
        for company in companies:
            if self._company in (company.company_id, company.name):
                return company
        if self._asked_for:
            names = [one.name for one in companies]
            raise NotFound(unknown("company", self._asked_for, names))
        return companies[0]

    def _opened(self, opened: tuple[ServiceSession, tuple[CompanyView, ...]]) -> None:
        session, companies = opened
        if not session.service.records:
            self._failed(Denied("This home cannot be written, so nothing of this is recorded."))
        self._enter(replace(self.state, companies=companies), session)
        if self._settings.purge_after_days:
            due = session.service.purging.due
            self._purging.every(lambda: due(session.caller), lambda _done: None, self._tell_once)

    def _enter(self, state: AppState, session: ServiceSession) -> None:
        """Show a company with its saved scope, filter line and binding."""
        self._company = session.company.company_id
        was = self.saved.of(self._company)
        line = was.filter_line if self._early_line is None else self._early_line
        self._early_line = None
        self.follower.follow(session)
        self._embedding.forget()
        self._risking.forget()
        self._risks_due, self._silent = True, frozenset()
        scope = was.scope or Scope(company_id=self._company)
        self._settle(
            replace(
                state,
                phase=Phase.READY,
                session=session,
                scope=scope.model_copy(update={"company_id": self._company}),
                embeddings={},
                risks=None,
                filter=self._filter_of(line, session.caller.as_of),
                filter_line=line,
                binding_key=was.binding_key,
                everywhere=was.everywhere,
                read_only=session.service.read_only or session.company.read_only,
            )
        )

    def choose_scope(self, scope: Scope) -> None:
        """Use a scope on all screens; another company restores its saved session."""
        session = self.state.session
        if session is None or scope.company_id == self._company:
            self._settle(replace(self._chosen, scope=scope))
            return

        def enter(company: CompanyView) -> None:
            self._enter(self.state, self._session_of(session.service, company))

        there = session.caller.model_copy(update={"company_id": scope.company_id})
        self._opening.latest(lambda: session.service.companies.get(there), enter, self._failed)

    def choose(
        self,
        *,
        filter_line: str | None = None,
        binding_key: str | None = None,
        everywhere: bool | None = None,
        as_of: datetime | None = None,
    ) -> None:
        """Use another filter line, binding or moment; an empty binding key means: resolve it."""
        chosen = self._chosen
        wanted = chosen if as_of is None else self._at(as_of)
        if filter_line is not None:
            self._early_line = filter_line if wanted.session is None else None
            self.saved = self.saved.with_filter(filter_line)
            wanted = replace(
                wanted,
                filter=self._filter_of(filter_line, wanted.as_of),
                filter_line=filter_line,
                filters=self.saved.filters,
            )
        if binding_key is not None:
            wanted = replace(wanted, binding_key=binding_key or None, everywhere=False)
        if everywhere is not None:
            wanted = replace(wanted, everywhere=everywhere)
        if wanted != chosen:
            self._settle(wanted)

    def leave_past(self) -> None:
        """Go back from a past moment to now."""
        self._settle(self._at(None))

    def _at(self, moment: datetime | None) -> AppState:
        """Return the state at a moment of the past, or now."""
        state, session = self._chosen, self._chosen.session
        if session is None:
            return state
        session = replace(session, caller=session.caller.model_copy(update={"as_of": moment}))
        self.follower.follow(session)
        return replace(state, session=session, filter=self._filter_of(state.filter_line, moment))

    def _looked_at(self) -> datetime:
        """Return the past moment that is shown, else now."""
        return self.state.as_of or self._clock()

    def _filter_of(self, line: str, as_of: datetime | None) -> Filter:
        """Parse a filter line; an invalid one (a saved one may be) gives an empty filter."""
        zone = {"zone": self.state.zone} if self.state.zone else {}
        try:
            return parse_filter(line, now=as_of or self._clock(), **zone)
        except Invalid:
            return Filter()

    def use_views(self, views: tuple[SavedView, ...]) -> None:
        """Replace the saved views."""
        self._set(replace(self.state, views=views))

    def use_pruning(self, found: PruneFigures | None) -> None:
        """Store the prune figures for the scope chooser."""
        self._set(replace(self.state, pruning=found))

    def keep_share(self, place: str, share: int | None) -> None:
        """Save the share of a list in its split, in percent; None: the default."""
        kept = {name: one for name, one in self.saved.shares.items() if name != place}
        shares = kept if share is None else {**kept, place: share}
        self.saved = self.saved.model_copy(update={"shares": shares})
        self._set(replace(self.state, shares=shares))

    def _news(self, news: News) -> None:
        """Pass on new operations; reread settings that others changed, and recount the pending."""
        if news.configures:
            self.resolve_again()
        if any(map(tells_of_review, news.operations)):
            self.count_waiting()
        if news.is_part or any(one.operation_type.mutates for one in news.operations):
            self._risks_due, self._changes = True, self._changes + 1
            found = self.state.pruning
            if found is not None:
                self.use_pruning(replace(found, verdict=None))
        self._tell(news)

    def _not_live(self, why: str) -> None:
        if why != self.state.not_live:
            self._set(replace(self.state, not_live=why))
            if why:
                self._failed(MemtuiError(f"Changes of others are not shown now: {why}"))

    def resolve_again(self) -> None:
        """Read bindings and targets again."""
        self._settle(self._chosen)

    @property
    def settling(self) -> bool:
        """Whether the binding of the last choice is still being resolved."""
        return self._settling is not None

    @property
    def _chosen(self) -> AppState:
        """The state with the latest choices, even while its binding is being resolved."""
        return self._settling or self.state

    def _settle(self, wanted: AppState) -> None:
        """Resolve the binding of a new state, then share the whole state at once."""
        session = wanted.session
        if session is None:
            self._set(wanted)
            return
        self._settling = wanted

        def failed(error: MemtuiError) -> None:
            self._settling = None
            if self.state.session is None:
                self._set(replace(self.state, phase=Phase.FAILED, failure=error))
                self._opening.every(session.service.close, lambda _done: None, self._failed)
            else:
                self.follower.follow(self.state.session)
                self._failed(error)
                self._share(self.state)

        self._resolving.latest(lambda: _resolve(session, wanted), self._settled, failed)

    def _settled(self, state: AppState) -> None:
        self._settling = None
        before, after = self.state.session, state.session
        entered = _company_of(before) != _company_of(after)
        # Prune figures count the records of the enabled bindings, so a change of these voids them.
        is_same = _asked_of(self.state) == _asked_of(state)
        self._set(
            replace(
                state,
                spending=() if entered else self.state.spending,
                waiting=0 if entered else self.state.waiting,
                pruning=self.state.pruning if entered or is_same else None,
            )
        )
        self.check_health()
        if entered:
            self._adding_up.forget()
            self.check_spending()
            self._counting.forget()
            self.count_waiting()

    def check_health(self) -> None:
        """Check the active binding's health in the background; not while the past is shown."""
        session, resolution = self.state.session, self.state.resolution
        if session is None or resolution is None or self.state.as_of is not None:
            return
        key = resolution.binding_key

        def show(health: BindingHealth) -> None:
            if self.state.resolution and self.state.resolution.binding_key == health.key:
                was, is_ok = self.state.health, health.health.status == "ok"
                if is_ok and (was is None or was.health.status != "ok"):
                    self.ask_silent(health.key)
                self._set(replace(self.state, health=health))

        def failed(error: MemtuiError) -> None:
            from memtui.service.answers import BindingHealth

            down = Health(status="down", message=str(error))
            show(BindingHealth(key=key, health=down, checked_at=self._clock()))
            self._tell_once(error)

        self._checking.latest(
            lambda: session.service.bindings.health(session.caller, key), show, failed
        )

    def check_spending(self) -> None:
        """Check spending against the company's limits in the background; not for the past."""
        session, zone = self.state.session, self.state.zone
        if session is None or self.state.as_of is not None or self._adding_up.busy:
            return

        def show(found: list[SpendingStatus]) -> None:
            self._last_problem = ""
            if self.state.spending != tuple(found):
                self._set(replace(self.state, spending=tuple(found)))

        check = partial(session.service.limits.check, session.caller, zone=zone)
        self._adding_up.latest(check, show, self._tell_once)

    def ask_later(self) -> None:
        """Ask in the background for the outcome of writes that providers store later."""
        session = self.state.session
        if session is not None and not self._asking.busy:
            ask = partial(session.service.ask_later, session.caller)
            self._asking.latest(ask, lambda _ended: None, self._tell_once)

    def count_waiting(self) -> None:
        """Count pending writes in the background, for a person who looks at now."""
        session = self.state.session
        if session is None or self.state.as_of is not None or not session.caller.by_person:
            return

        def show(found: list[PendingWrite]) -> None:
            if self.state.waiting != len(found):
                self._set(replace(self.state, waiting=len(found)))

        waiting = partial(session.service.review.waiting, session.caller)
        self._counting.latest(waiting, show, self._tell_once)

    def check_risks(self) -> None:
        """Look for risks in the background where memories have changed; not for the past.

        It takes at most a tenth of the time, and looks for changes from outside now and then.
        """
        session, began = self.state.session, monotonic()
        if session is None or self.state.as_of is not None or not session.service.records:
            return
        is_due = self._risks_due or began > self._risks_wait + _RISKS_SECONDS
        if not is_due or began < self._risks_wait or self._risking.busy:
            return
        self._risks_due, risks = False, session.service.risks

        async def check() -> RiskFigures:
            found = await risks.check(session.caller, but=self._silent)
            self._silent |= {one.binding_key for one in found.failed}
            return await risks.figures(session.caller)

        def show(figures: RiskFigures) -> None:
            self._risks_wait = monotonic() + 9 * (monotonic() - began)
            times = self.state.risks[0] + 1 if self.state.risks else 1
            self._set(replace(self.state, risks=(times, figures)))

        def failed(error: MemtuiError) -> None:
            self._risks_wait = monotonic() + _RISKS_SECONDS
            _log.info("Risks could not be looked for: %s", error)

        self._risking.latest(check, show, failed)

    def ask_silent(self, *keys: str) -> None:
        """Look for risks again in bindings that did not answer; without keys in all of these."""
        again = self._silent.intersection(keys or self._silent)
        self._silent -= again
        self._risks_due |= bool(again)

    def count_prunable(self, count: Callable[[AppState], Awaitable[PruneFigures | None]]) -> None:
        """Count prunable records in the background if unknown; not for the past."""
        state, changes = self.state, self._changes
        known = state.prune_figures
        if state.session is None or state.as_of is not None or (known and known.verdict):
            return

        def show(found: PruneFigures | None) -> None:
            if self.state.prune_figures is known and _asked_of(state) == _asked_of(self.state):
                if found is not None and changes != self._changes:
                    found = replace(found, verdict=None)
                self.use_pruning(found)

        def failed(error: MemtuiError) -> None:
            _log.info("The number of prunable records is unknown: %s", error)

        self._planning.latest(lambda: count(state), show, failed)

    def embed(self) -> None:
        """Embed new texts of the company's bindings in the background, if changes are allowed."""
        session, state = self.state.session, self.state
        if session is None or state.no_change or self._embedding.busy:
            return
        from memtui.service.context.embedding import keeps_up

        if not any(map(keeps_up, state.bindings)):
            return

        def went(key: str, found: Embedding) -> None:
            if found.is_done or monotonic() - self._embedding_shown_at > _PROGRESS_SECONDS:
                self._embedding_shown_at = monotonic()
                embeddings = {**self.state.embeddings, key: found}
                self._set(replace(self.state, embeddings=embeddings))

        def failed(key: str, error: MemtuiError) -> None:
            self._tell_once(MemtuiError(f"Embedding of {key} stopped: {error}"))

        catch_up = session.service.embedding.catch_up
        self._embedding.latest(
            lambda: catch_up(session.caller, went, failed), lambda _done: None, self._tell_once
        )

    def ask_shadows(self) -> None:
        """Ask shadows in the background what waits for them."""
        session = self.state.session
        shadowed = any(one.shadows for one in self.state.bindings)
        if session is None or not shadowed or self._shadowing.busy:
            return
        from memtui.service.usecases.shadowing import ask_shadows

        seen = self._shadowed.setdefault(session.company.company_id, {})
        ask = partial(ask_shadows, session.service, session.caller, seen)
        self._shadowing.latest(ask, lambda _states: None, self._tell_once)

    def watch_demo(self) -> None:
        """Update the demo's progress while another process makes the demo."""
        percent = percent_made(self._paths.demo_file)
        if percent != self.state.demo_percent:
            self._set(replace(self.state, demo_percent=percent))
        if percent is not None:
            self._app.set_timer(_DEMO_SECONDS, self.watch_demo)

    def _tell_once(self, error: MemtuiError) -> None:
        """Show a problem once, even if it recurs."""
        if str(error) != self._last_problem:
            self._last_problem = str(error)
            self._failed(error)

    def _set(self, state: AppState) -> None:
        self.state = state
        self._share(state)
        if state.health is not None and self.tells_of_findings:
            self.tells_of_findings = False
            if is_first_start(state):
                self._finding.latest(find_memories, self._offer, self._failed)

    def _offer(self, findings: tuple[DiscoveredMemory, ...]) -> None:
        if said := offer(findings, self.state.keymap.label("app.go_bindings")):
            toast(self._app, said, title="Memories on this machine", timeout=12)

    def toured(self) -> None:
        """Note in the session that the tour was seen; it announces found memories itself."""
        self.tells_of_findings = False
        self.saved = self.saved.model_copy(update={"toured": True})

    def remember(self, screen: str, theme: str) -> None:
        """Note screen, scope, filter line, binding and theme; `close` saves them."""
        state = self.state
        if state.session is None:
            return
        here = SavedCompany(
            screen=screen,
            scope=state.scope,
            filter_line=state.filter_line,
            binding_key=state.binding_key,
            everywhere=state.everywhere,
        )
        self.saved = self.saved.model_copy(
            update={
                "company": self._company,
                "theme": theme,
                "companies": {**self.saved.companies, self._company: here},
            }
        )

    async def close(self, *, keeps: bool = True) -> None:
        """Close the service; `keeps`: save the session first."""
        if self.state.session is None:
            return
        self._embedding.forget()
        self._planning.forget()
        try:
            if keeps:
                await asyncio.to_thread(save_document, self._paths.session_file, self.saved)
        except Invalid as error:
            _log.warning("%s", error)
        await self.state.session.service.close()


def _company_of(session: ServiceSession | None) -> str:
    return session.company.company_id if session else ""


def _asked_of(state: AppState) -> set[str]:
    """Return the keys of the enabled bindings."""
    return {one.key for one in state.bindings if one.enabled}


def _read_kept(read: Callable[[Path], K], path: Path, none: K) -> tuple[K, str]:
    """Read a file of the app; if that fails, return `none` and the reason."""
    try:
        return read(path), ""
    except Invalid as error:
        return none, str(error)


async def _resolve(session: ServiceSession, wanted: AppState) -> AppState:
    company = await session.service.companies.get(session.caller)
    by_id = {one.company_id: one for one in (*wanted.companies, company)}
    bindings = tuple(await session.service.bindings.all(session.caller))
    key = wanted.filter.binding_key or wanted.binding_key
    if key not in {one.key for one in bindings}:
        key = None
    try:
        resolution = await session.service.resolve(session.caller, wanted.record_scope, key)
    except MemtuiError as error:
        resolution, problem = None, str(error)
    else:
        problem = ""
    resolved = resolution.binding_key if resolution else None
    same = wanted.resolution is not None and wanted.resolution.binding_key == resolved
    return replace(
        wanted,
        session=replace(session, company=company),
        companies=tuple(by_id.values()),
        read_only=session.service.read_only or company.read_only,
        bindings=bindings,
        resolution=resolution,
        resolution_problem=problem,
        binding=next((one for one in bindings if one.key == resolved), None),
        health=wanted.health if same else None,
    )


async def find_memories() -> tuple[DiscoveredMemory, ...]:
    """Look for memories on this machine in a thread; nothing is added."""
    from memtui.backends.discovery import discover_here

    return tuple(await asyncio.to_thread(discover_here))


def is_first_start(state: AppState) -> bool:
    """Whether there is at most one binding, and it is empty."""
    health = state.health
    return len(state.bindings) <= 1 and health is not None and health.health.records == 0


def offer(findings: tuple[DiscoveredMemory, ...], key: str) -> str:
    """Return the sentence that announces found memories; empty if none is usable."""
    usable = sum(1 for one in findings if one.usable)
    if not usable:
        return ""
    found = counted(usable, "memory store")
    return f"Found {found} on this machine. {key} shows them; nothing is added without a yes."
