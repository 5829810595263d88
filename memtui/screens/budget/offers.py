"""Whose context there is to look at, where none was chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.content import Content

from memtui.contract import Filter, MemtuiError, Namespace, Scope
from memtui.screens.state import AppState
from memtui.widgets.display import DIM, display
from memtui.widgets.format import counted

_SEEN = 1_000
_FIELDS = (("user", "subject_id"), ("project", "project_id"), ("agent", "agent_id"))
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Offer:
    """A user, project or agent that is known. `records` is None where it is not counted."""

    word: str
    field: str
    name: str
    records: int | None = None

    def applied_to(self, scope: Scope) -> Scope:
        """Return the scope with it."""
        return scope.model_copy(update={self.field: self.name})


async def find_offers(state: AppState) -> tuple[Offer, ...]:
    """Return the users, projects and agents that the log and the active binding know."""
    session = state.session
    if session is None:
        return ()
    page = await session.service.log.page(session.caller, Filter(), limit=_SEEN)
    seen = [operation.scope for operation in page.operations]
    spaces: tuple[Namespace, ...] = ()
    if state.binding is not None and state.binding.capabilities.namespaces:
        try:
            spaces = await session.service.namespaces.all(session.caller, state.binding.key)
        except MemtuiError:
            spaces = ()  # the log still names those that were worked with
    return tuple(offers_of(seen, spaces))[:_SHOWN]


def offers_of(seen: Iterable[Scope], spaces: Iterable[Namespace]) -> list[Offer]:
    """Return what can be offered, users first, each sort by name."""
    counts = {(one.kind, one.name.partition(":")[2]): one.records for one in spaces}
    scopes = list(seen)
    found = []
    for word, name in _FIELDS:
        names = {value for scope in scopes if (value := getattr(scope, name))}
        names |= {value for kind, value in counts if kind == word and value}
        found += [Offer(word, name, value, counts.get((word, value))) for value in sorted(names)]
    return found


def offer_content(offer: Offer) -> Content:
    """Return an offer as a line."""
    held = counted(offer.records, "record") if offer.records is not None else ""
    lead = Content.styled(f"{offer.word:<9}", DIM)
    return lead + display(offer.name, limit=80) + display(f"  {held}", style=DIM)
