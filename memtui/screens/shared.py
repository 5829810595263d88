"""What all screens share, as one frozen value that the app owns and hands down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from memtui.contract import Filter, Scope
from memtui.screens.keymap import Keymap
from memtui.screens.log_views import LogLook

if TYPE_CHECKING:
    from memtui.service import MemoryService
    from memtui.service.answers import (
        BindingHealth,
        BindingView,
        Caller,
        CompanyView,
        Resolution,
    )
    from memtui.service.limits import SpendingStatus

_SCOPE_FIELDS = ("agent_id", "project_id", "issue_id", "run_id", "subject_id")


class Phase(StrEnum):
    """How far the service is."""

    OPENING = "opening"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Door:
    """The open service, and who calls it for which company."""

    service: MemoryService
    caller: Caller
    company: CompanyView


@dataclass(frozen=True, slots=True)
class Shared:
    """Service, scope, filter and active binding; a change of any makes a new value."""

    phase: Phase = Phase.OPENING
    problem: str = ""
    """Why the service did not open, as a sentence."""
    door: Door | None = None
    """None until the service is open."""
    scope: Scope = field(default_factory=lambda: Scope(company_id="local"))
    filter: Filter = field(default_factory=Filter)
    filter_line: str = ""
    """The filter as it was typed."""
    binding_key: str | None = None
    """The binding chosen by hand; None lets the service resolve it from the scope."""
    resolution: Resolution | None = None
    """The active binding and why it is; None while unknown or where nothing resolves."""
    resolution_problem: str = ""
    companies: tuple[CompanyView, ...] = ()
    """All companies, for choosers."""
    bindings: tuple[BindingView, ...] = ()
    """All bindings of this company."""
    binding: BindingView | None = None
    """The active binding."""
    health: BindingHealth | None = None
    """Its health as last asked; None while unknown."""
    spending: tuple[SpendingStatus, ...] = ()
    """The company's spending limits as last checked."""
    filters: tuple[str, ...] = ()
    """Filter lines applied before, the newest last."""
    looks: tuple[LogLook, ...] = ()
    """The saved views of the operation log."""
    views_file: Path = Path("views.json")
    """Where they are kept."""
    read_only: bool = False
    """Whether every change is refused, by setting or by company."""
    keymap: Keymap = field(default_factory=Keymap)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    editor: str = ""
    """The editor of the settings; empty means $VISUAL, else $EDITOR, else vi."""
    context_model: str = "claude-sonnet-4-5"
    """The model of the settings, whose tokens and prices a context is counted in."""
    context_budget: int = 500
    """Tokens that a context should stay under, by the settings."""
    fact_max_chars: int = 200
    """How many characters a fact may have; 0 sets no limit."""
    fact_max_count: int = 50
    """How many facts an owner may have; 0 sets no limit."""
    data: Path = Path("data")
    """memtui's data folder."""
    zone: tzinfo | None = None
    """Where days and clock times are shown; None means the system's zone."""
    zone_name: str = "UTC"
    """The IANA name of the zone that days are cut in."""
    queries_file: Path = Path("queries.json")
    """Where statements that were given a name are kept."""

    @property
    def log_filter(self) -> Filter:
        """The filter for operations: the filter line, narrowed to the scope where it is silent."""
        return self.filter.model_copy(
            update={
                name: getattr(self.filter, name) or getattr(self.scope, name)
                for name in _SCOPE_FIELDS
            }
        )

    @property
    def record_scope(self) -> Scope:
        """The scope for queries and records: the scope, overridden by the filter line."""
        return self.scope.model_copy(
            update={
                name: getattr(self.filter, name) or getattr(self.scope, name)
                for name in _SCOPE_FIELDS
            }
        )


class ScopeChosen(Message):
    """A person chose another scope; a screen posts it and the app applies it everywhere."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope


class BindingChosen(Message):
    """A person chose the binding to look at; None goes back to the resolved one."""

    def __init__(self, key: str | None) -> None:
        super().__init__()
        self.key = key


class FilterChosen(Message):
    """A person applied a filter line that parses."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line


class LookChosen(Message):
    """A person wants to see the operation log as in a saved view."""

    def __init__(self, look: LogLook) -> None:
        super().__init__()
        self.look = look


class LooksChanged(Message):
    """A saved view of the operation log came, changed its name or went; these are all of them."""

    def __init__(self, looks: tuple[LogLook, ...]) -> None:
        super().__init__()
        self.looks = looks


class GoTo(Message):
    """Show another screen, with another filter line and binding where they are given.

    `select` is what that screen should put its cursor on, in its own words: a record id for
    Records, an operation id for Operations.
    """

    def __init__(
        self,
        mode: str,
        *,
        filter_line: str | None = None,
        binding_key: str | None = None,
        select: str | None = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.filter_line = filter_line
        self.binding_key = binding_key
        self.select = select


class ConfigurationChanged(Message):
    """Bindings or targets changed: the app resolves the active binding again."""
