"""The open service, as the screens call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memtui.service import Caller, CompanyView, MemoryService, MutationAnswer


@dataclass(frozen=True, slots=True)
class ServiceSession:
    """The open service, and who calls it for which company."""

    service: MemoryService
    caller: Caller
    company: CompanyView
    undone: list[Sequence[MutationAnswer]] = field(default_factory=list)
    """What was undone here and can be redone, the latest last; any other change ends that."""
