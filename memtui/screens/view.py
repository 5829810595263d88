"""From what all screens share to what the scope bar shows."""

from __future__ import annotations

from memtui.screens.state import AppState, Phase
from memtui.widgets import spending
from memtui.widgets.frame import ScopeView


def scope_view(state: AppState) -> ScopeView:
    """Return the scope bar's view of the state state."""
    scope = state.scope
    company = state.session.company.name if state.session else scope.company_id
    parts = [
        company,
        scope.project_id,
        scope.agent_id,
        scope.subject_id,
        f"issue {scope.issue_id}" if scope.issue_id else None,
        f"run {scope.run_id}" if scope.run_id else None,
    ]
    status, word = _health(state)
    return ScopeView(
        parts=tuple(part for part in parts if part),
        binding=_binding(state),
        status=status,
        word=word,
        read_only=state.read_only or bool(state.binding and state.binding.read_only),
        spending=spending.badge(state.spending),
        over_limit=spending.is_passed(state.spending),
    )


def _binding(state: AppState) -> str:
    if state.resolution is None:
        return "none" if state.resolution_problem else ""
    return f"{state.resolution.provider_key}·{state.resolution.binding_key}"


def _health(state: AppState) -> tuple[str, str]:
    if state.phase is not Phase.READY:
        return ("down", "closed") if state.phase is Phase.FAILED else ("unknown", "opening")
    if state.resolution is None:
        return ("down", "no binding") if state.resolution_problem else ("unknown", "resolving")
    if state.health is None:
        return "unknown", "checking"
    if state.health.breaker_open:
        return "down", "paused after failures"
    return state.health.health.status, state.health.health.status
