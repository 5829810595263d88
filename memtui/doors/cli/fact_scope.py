"""Whose facts a command works on, and reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from memtui.doors.cli.complete import complete_binding, complete_name
from memtui.doors.cli.session import Session, build

if TYPE_CHECKING:
    from memtui.contract import Filter, Problem, Record, Scope

FACT = "fact"
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class FactScope:
    """Whose facts, and in which binding."""

    subject: Annotated[str | None, typer.Option(help="The user whose facts they are.")] = None
    project: Annotated[
        str | None,
        typer.Option(
            help="The project (drive) whose facts.", autocompletion=complete_name("project")
        ),
    ] = None
    agent: Annotated[
        str | None,
        typer.Option(
            help="The agent whose facts; with a subject or project, the one that they come from.",
            autocompletion=complete_name("agent"),
        ),
    ] = None
    binding: Annotated[
        str | None,
        typer.Option(
            help="Use this binding instead of the one that the scope resolves to.",
            autocompletion=complete_binding,
        ),
    ] = None

    def scope(self, session: Session) -> Scope:
        """Return the scope in the session's company.

        Raises:
            Invalid: it names a user and a project; a fact belongs to one of them.
        """
        from memtui.contract import Invalid, Scope

        if self.subject is not None and self.project is not None:
            raise Invalid("A fact is a user's or a project's; give --subject or --project.")
        return build(
            Scope,
            company_id=session.company.company_id,
            project_id=self.project,
            agent_id=self.agent,
            subject_id=self.subject,
        )

    def named(self, session: Session) -> tuple[Scope, str]:
        """Return the scope and the id of who owns its facts.

        Raises:
            Invalid: it names nobody.
        """
        from memtui.contract import Invalid

        scope = self.scope(session)
        name = self.project or self.subject or self.agent
        if name is None:
            raise Invalid("Whose facts? Give --subject, --project or --agent.")
        return scope, name


class OwnFacts(NamedTuple):
    """A scope's own facts, the oldest first, and what could not be read where they are kept."""

    records: list[Record]
    problems: tuple[Problem, ...]


async def facts_of(
    session: Session, scope: Scope, binding: str | None, chosen: Filter | None = None
) -> OwnFacts:
    """Return a scope's own facts that a filter lets through, page by page."""
    from memtui.contract import BrowseRequest, own_filter, owned

    own = own_filter(scope, kind=FACT).model_dump(exclude_none=True)
    request = build(
        BrowseRequest,
        scope=scope,
        binding_key=binding,
        filter={**(chosen.model_dump(exclude_none=True) if chosen else {}), **own},
        sort="created_at",
        limit=_PAGE,
    )
    records: list[Record] = []
    while True:
        page = await session.service.browse(session.caller, request)
        records += page.records
        if page.next_cursor is None:
            return OwnFacts(owned(records, scope), page.problems)
        request = request.model_copy(update={"cursor": page.next_cursor})


async def fact(session: Session, record_id: str, scope: Scope, binding: str | None) -> Record:
    """Return one fact.

    Raises:
        NotFound: there is no such record in the scope.
        Invalid: the record is no fact.
    """
    from memtui.contract import Invalid

    answer = await session.service.get(session.caller, record_id, scope, binding_key=binding)
    if answer.record.kind != FACT:
        raise Invalid(f"{record_id} is no fact but a {answer.record.kind}; use memtui correct.")
    return answer.record


def revisions(records: Sequence[Record]) -> dict[str, str]:
    """Return the revision of each record that has one, by record id."""
    return {
        record.handle.provider_record_id: record.revision
        for record in records
        if record.revision is not None
    }
