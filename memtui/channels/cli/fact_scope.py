"""The options for the owner of facts, and the facts of that owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memtui.channels.cli.options import BindingOptions, RunOptions
from memtui.channels.cli.session import Session
from memtui.contract import Filter, Invalid, Record, Scope
from memtui.fact_values import FACT

if TYPE_CHECKING:
    from memtui.service import BrowseAnswer


@dataclass(frozen=True)
class FactScope(BindingOptions):
    """The owner of facts, and the binding."""

    def scope(self, session: Session) -> Scope:
        """Return the scope in the session's company.

        Raises:
            Invalid: it names a user and a project; a fact belongs to one of them.
        """
        if self.subject is not None and self.project is not None:
            raise Invalid("A fact is a user's or a project's; give one of --subject and --project.")
        return super().scope(session)

    def owner(self) -> str:
        """Return the id of the owner. Raises `Invalid` if none is named."""
        name = self.project or self.subject or self.agent
        if name is None:
            raise Invalid("Whose facts? Give --subject, --project or --agent.")
        return name

    async def facts(
        self, session: Session, chosen: Filter | None = None
    ) -> tuple[list[Record], BrowseAnswer]:
        """Return the owner's facts that match a filter, and the last page's answer."""
        from memtui.service.usecases.owned import owned_records

        binding = (chosen and chosen.binding_key) or self.binding
        return await owned_records(
            session.service, session.caller, self.scope(session),
            kind=FACT, chosen=chosen, binding_key=binding,
        )  # fmt: skip


@dataclass(frozen=True)
class AddedFact(FactScope, RunOptions):
    """The owner of a fact, its run, and the binding."""
