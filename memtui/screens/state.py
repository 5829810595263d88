"""Keeps what all screens share: opens the service, resolves the binding, remembers the place."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from textual.app import App

from memtui.config import Paths, Settings
from memtui.contract import Denied, Filter, Health, Invalid, MemtuiError, NotFound, Scope
from memtui.filters import parse_filter
from memtui.screens.keymap import load_keymap
from memtui.screens.log_views import LogLook, load_looks
from memtui.screens.session import CompanySession, Session, load_session, save_session
from memtui.screens.shared import Door, Phase, Shared
from memtui.widgets.background import Background

if TYPE_CHECKING:
    from memtui.service import MemoryService
    from memtui.service.answers import BindingHealth, BindingView, CompanyView, Resolution
    from memtui.service.limits import SpendingStatus

_log = logging.getLogger(__name__)


class SharedState:
    """Owns the one `Shared` value of an app; `share` is called with each new one.

    `failed` takes the sentence of anything that went wrong and is not a state of its own.

    Raises:
        Invalid: the keymap of the settings does not fit.
    """

    def __init__(
        self,
        app: App[Any],
        paths: Paths,
        settings: Settings,
        *,
        company: str | None,
        clock: Callable[[], datetime],
        share: Callable[[Shared], None],
        failed: Callable[[MemtuiError], None],
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._share = share
        self._failed = failed
        self._opening = Background(app, "open")
        self._resolving = Background(app, "resolve")
        self._checking = Background(app, "health")
        self._adding_up = Background(app, "spending")
        self._purging = Background(app, "purge")
        self._told = ""
        self.session, self.session_problem = _read_session(paths)
        looks, problem = _read_looks(paths)
        self.session_problem = self.session_problem or problem
        self._asked_for = company or settings.company
        self._company = self._asked_for or self.session.company
        self.shared = Shared(
            scope=Scope(company_id=self._company or "local"),
            filters=self.session.filters,
            read_only=settings.read_only,
            keymap=load_keymap(settings.keymap),
            clock=clock,
            editor=settings.editor,
            context_model=settings.context_model,
            context_budget=settings.context_budget,
            fact_max_chars=settings.fact_max_chars,
            fact_max_count=settings.fact_max_count,
            data=paths.data,
            zone=ZoneInfo(settings.timezone) if settings.timezone else None,
            zone_name=settings.zone_name or "UTC",
            queries_file=paths.queries_file,
            looks=looks,
            views_file=paths.views_file,
        )

    @property
    def last_screen(self) -> str:
        """The screen that was shown last in this company."""
        return self.session.of(self._company).screen

    def open(self) -> None:
        """Open the service in the background."""
        self._set(replace(self.shared, phase=Phase.OPENING, problem=""))
        self._opening.latest(self._open_service, self._opened, self._not_opened)

    async def _open_service(self) -> tuple[Door, tuple[CompanyView, ...]]:
        await asyncio.to_thread(importlib.import_module, "memtui.service")
        from memtui.service import open_service

        service = await open_service(self._paths, self._settings)
        try:
            own = self._settings.principal, self._settings.acts_for or None
            companies = tuple(await service.companies(*own))
            picked = self._pick(companies or tuple(await service.companies()))
            door = self._door(service, picked)
            await service.company(door.caller)  # who is no member there is told so at once
        except BaseException:
            await service.close()
            raise
        return door, companies

    def _door(self, service: MemoryService, company: CompanyView) -> Door:
        from memtui.service import caller_of

        return Door(service, caller_of(self._settings, company.company_id, "tui"), company)

    def _pick(self, companies: tuple[CompanyView, ...]) -> CompanyView:
        """Return the company that was asked for by id or name, else the last one, else the first.

        Raises:
            NotFound: there is none, or not the one that was asked for.
        """
        if not companies:
            raise NotFound("There is no company yet; run `memtui demo` or add one.")
        for company in companies:
            if self._company in (company.company_id, company.name):
                return company
        if self._asked_for:
            names = ", ".join(one.name for one in companies[:5])
            raise NotFound(f"There is no company {self._asked_for!r}; there are {names}.")
        return companies[0]

    def _opened(self, opened: tuple[Door, tuple[CompanyView, ...]]) -> None:
        door, companies = opened
        if not door.service.records:
            self._failed(Denied("This home cannot be written, so nothing of this is recorded."))
        self._enter(replace(self.shared, companies=companies), door)
        if self._settings.purge_after_days:
            due = door.service.purge_due
            self._purging.every(lambda: due(door.caller), lambda _done: None, self._tell_once)

    def _not_opened(self, error: MemtuiError) -> None:
        self._set(replace(self.shared, phase=Phase.FAILED, problem=str(error)))

    def _enter(self, shared: Shared, door: Door) -> None:
        """Show a company as it was left."""
        self._company = door.company.company_id
        was = self.session.of(self._company)
        scope = was.scope or Scope(company_id=self._company)
        self._settle(
            replace(
                shared,
                phase=Phase.READY,
                door=door,
                scope=scope.model_copy(update={"company_id": self._company}),
                filter=_filter_of(was.filter_line, shared),
                filter_line=was.filter_line,
                binding_key=was.binding_key,
                read_only=door.service.read_only or door.company.read_only,
            )
        )

    def choose_scope(self, scope: Scope) -> None:
        """Use a scope everywhere; another company is shown as it was left."""
        door = self.shared.door
        if door is None or scope.company_id == self._company:
            self._settle(replace(self.shared, scope=scope))
            return

        def enter(company: CompanyView) -> None:
            self._enter(self.shared, self._door(door.service, company))

        there = door.caller.model_copy(update={"company_id": scope.company_id})
        self._opening.latest(lambda: door.service.company(there), enter, self._failed)

    def choose(self, *, filter_line: str | None = None, binding_key: str | None = None) -> None:
        """Use another filter line, binding, or both; an empty binding is the resolved one."""
        wanted = self.shared
        if filter_line is not None:
            self.session = self.session.with_filter(filter_line)
            wanted = replace(
                wanted,
                filter=_filter_of(filter_line, wanted),
                filter_line=filter_line,
                filters=self.session.filters,
            )
        if binding_key is not None:
            wanted = replace(wanted, binding_key=binding_key or None)
        if wanted != self.shared:
            self._settle(wanted)

    def use_looks(self, looks: tuple[LogLook, ...]) -> None:
        """Offer other saved views of the operation log."""
        self._set(replace(self.shared, looks=looks))

    def resolve_again(self) -> None:
        """Read bindings and targets again."""
        self._settle(self.shared)

    def _settle(self, wanted: Shared) -> None:
        """Resolve the binding of a new state, then hand all of it down at once."""
        door = wanted.door
        if door is None:
            self._set(wanted)
            return
        self._resolving.latest(lambda: _resolve(door, wanted), self._settled, self._failed)

    def _settled(self, shared: Shared) -> None:
        entered = shared.door is not self.shared.door
        self._set(replace(shared, spending=() if entered else self.shared.spending))
        self.check_health()
        if entered:
            self._adding_up.forget()
            self.check_spending()

    def check_health(self) -> None:
        """Ask the active binding for its health in the background."""
        door, resolution = self.shared.door, self.shared.resolution
        if door is None or resolution is None:
            return
        key = resolution.binding_key
        self._checking.latest(
            lambda: door.service.health(door.caller, key),
            self._checked,
            partial(self._not_checked, key),
        )

    def _checked(self, health: BindingHealth) -> None:
        if self.shared.resolution and self.shared.resolution.binding_key == health.key:
            self._set(replace(self.shared, health=health))

    def _not_checked(self, key: str, error: MemtuiError) -> None:
        from memtui.service.answers import BindingHealth

        down = Health(status="down", message=str(error))
        health = BindingHealth(key=key, health=down, checked_at=self.shared.clock())
        self._set(replace(self.shared, health=health))
        self._tell_once(error)

    def check_spending(self) -> None:
        """Hold what was spent against the company's limits in the background."""
        door, zone = self.shared.door, self.shared.zone
        if door is None or self._adding_up.busy:
            return
        self._adding_up.latest(
            lambda: door.service.check_spending(door.caller, zone=zone),
            self._added_up,
            self._tell_once,
        )

    def _added_up(self, spending: list[SpendingStatus]) -> None:
        self._told = ""
        if self.shared.spending != (found := tuple(spending)):
            self._set(replace(self.shared, spending=found))

    def _tell_once(self, error: MemtuiError) -> None:
        """Tell of a problem once, however often it is met again."""
        if str(error) != self._told:
            self._told = str(error)
            self._failed(error)

    def _set(self, shared: Shared) -> None:
        self.shared = shared
        self._share(shared)

    def remember(self, screen: str, theme: str) -> None:
        """Note in the session where the person is."""
        shared = self.shared
        if shared.door is None:
            return
        here = CompanySession(
            screen=screen,
            scope=shared.scope,
            filter_line=shared.filter_line,
            binding_key=shared.binding_key,
        )
        self.session = self.session.model_copy(
            update={
                "company": self._company,
                "theme": theme,
                "companies": {**self.session.companies, self._company: here},
            }
        )

    async def close(self) -> None:
        """Keep the session and close the service."""
        if self.shared.door is None:
            return
        try:
            await asyncio.to_thread(save_session, self._paths.session_file, self.session)
        except Invalid as error:
            _log.warning("%s", error)
        await self.shared.door.service.close()


def _read_session(paths: Paths) -> tuple[Session, str]:
    try:
        return load_session(paths.session_file), ""
    except Invalid as error:
        return Session(), str(error)


def _read_looks(paths: Paths) -> tuple[tuple[LogLook, ...], str]:
    try:
        return load_looks(paths.views_file), ""
    except Invalid as error:
        return (), str(error)


def _filter_of(line: str, shared: Shared) -> Filter:
    """Return the filter of a line; a remembered line that no longer parses narrows nothing."""
    try:
        return parse_filter(
            line, now=shared.clock(), **({"zone": shared.zone} if shared.zone else {})
        )
    except Invalid:
        return Filter()


async def _resolve(door: Door, wanted: Shared) -> Shared:
    bindings = tuple(await door.service.bindings(door.caller))
    key = wanted.filter.binding_key or wanted.binding_key
    if key not in {one.key for one in bindings}:
        key = None
    try:
        resolution = await door.service.resolve(door.caller, wanted.record_scope, key)
    except MemtuiError as error:
        return replace(
            wanted,
            bindings=bindings,
            resolution=None,
            resolution_problem=str(error),
            binding=None,
            health=None,
        )
    return _resolved(wanted, bindings, resolution)


def _resolved(wanted: Shared, bindings: tuple[BindingView, ...], resolution: Resolution) -> Shared:
    same = wanted.resolution is not None and wanted.resolution.binding_key == resolution.binding_key
    return replace(
        wanted,
        bindings=bindings,
        resolution=resolution,
        resolution_problem="",
        binding=next((one for one in bindings if one.key == resolution.binding_key), None),
        health=wanted.health if same else None,
    )
