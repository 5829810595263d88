"""The open service and its caller, for the screens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memtui.service import Caller, CompanyView, MemoryService, MutationAnswer


@dataclass(frozen=True, slots=True)
class ServiceSession:
    """The open service, its caller and the company."""

    service: MemoryService
    caller: Caller
    company: CompanyView
    undone: list[Sequence[MutationAnswer]] = field(default_factory=list)
    """Undone changes that can be redone, the latest last; any other change clears them."""
