"""From what all screens share to what the scope bar shows."""

from __future__ import annotations

from memtui.screens.shared import Phase, Shared
from memtui.widgets import spending
from memtui.widgets.frame import ScopeView


def scope_view(shared: Shared) -> ScopeView:
    """Return the scope bar's view of the shared state."""
    scope = shared.scope
    company = shared.door.company.name if shared.door else scope.company_id
    parts = [
        company,
        scope.project_id,
        scope.agent_id,
        scope.subject_id,
        f"issue {scope.issue_id}" if scope.issue_id else None,
        f"run {scope.run_id}" if scope.run_id else None,
    ]
    status, word = _health(shared)
    return ScopeView(
        parts=tuple(part for part in parts if part),
        binding=_binding(shared),
        status=status,
        word=word,
        read_only=shared.read_only or bool(shared.binding and shared.binding.read_only),
        spending=spending.badge(shared.spending),
        over_limit=spending.is_passed(shared.spending),
    )


def _binding(shared: Shared) -> str:
    if shared.resolution is None:
        return "none" if shared.resolution_problem else ""
    return f"{shared.resolution.provider_key}·{shared.resolution.binding_key}"


def _health(shared: Shared) -> tuple[str, str]:
    if shared.phase is not Phase.READY:
        return ("down", "closed") if shared.phase is Phase.FAILED else ("unknown", "opening")
    if shared.resolution is None:
        return ("down", "no binding") if shared.resolution_problem else ("unknown", "resolving")
    if shared.health is None:
        return "unknown", "checking"
    if shared.health.breaker_open:
        return "down", "paused after failures"
    return shared.health.health.status, shared.health.health.status
