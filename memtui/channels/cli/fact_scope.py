"""Whose facts a command is about, and which those are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memtui.channels.cli.options import BindingOptions, RunOptions
from memtui.channels.cli.session import Session
from memtui.contract import (
    BrowseRequest,
    Filter,
    Invalid,
    Problem,
    Record,
    Scope,
    own_filter,
    owned,
)

FACT = "fact"


class OwnFacts(NamedTuple):
    """A scope's own facts, the oldest first, and what could not be read where they are kept."""

    records: list[Record]
    problems: tuple[Problem, ...]
    binding_key: str


@dataclass(frozen=True)
class FactScope(BindingOptions):
    """Whose facts, and in which binding."""

    def scope(self, session: Session) -> Scope:
        """Return the scope in the session's company.

        Raises:
            Invalid: it names a user and a project; a fact belongs to one of them.
        """
        if self.subject is not None and self.project is not None:
            raise Invalid("A fact is a user's or a project's; give one of --subject and --project.")
        return super().scope(session)

    def owner(self) -> str:
        """Return the id of who owns the facts. Raises `Invalid` where nobody is named."""
        name = self.project or self.subject or self.agent
        if name is None:
            raise Invalid("Whose facts? Give --subject, --project or --agent.")
        return name

    async def facts(self, session: Session, chosen: Filter | None = None) -> OwnFacts:
        """Return the scope's own facts that a filter lets through, page by page."""
        scope = self.scope(session)
        own = own_filter(scope, kind=FACT).model_dump(exclude_defaults=True)
        narrowed = (chosen or Filter()).model_copy(update=own)
        request = self.request(session, BrowseRequest, filter=narrowed, sort="created_at")
        if chosen is not None and chosen.binding_key is not None:
            request = request.model_copy(update={"binding_key": chosen.binding_key})
        records: list[Record] = []
        async for page in session.service.pages(session.caller, request):
            records += page.records
        return OwnFacts(owned(records, scope), page.problems, page.binding_key)

    async def named(self, session: Session, record_ids: Sequence[str]) -> dict[str, list[Record]]:
        """Return the facts of these ids, by the key of their binding.

        Raises:
            NotFound: there is no such record in the scope.
            Invalid: a record is not a fact.
        """
        records: dict[str, list[Record]] = {}
        for record_id in record_ids:
            answer = await session.service.get(
                session.caller, record_id, self.scope(session), binding_key=self.binding
            )
            records.setdefault(answer.binding_key, []).append(answer.record)
            if answer.record.kind != FACT:
                raise Invalid(
                    f"{record_id} is not a fact but a {answer.record.kind}; use memtui correct."
                )
        return records


@dataclass(frozen=True)
class AddedFact(FactScope, RunOptions):
    """Whose fact, of which run, and in which binding."""
