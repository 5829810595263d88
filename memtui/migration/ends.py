"""The two bindings of a migration, and reading through one of them page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from memtui.contract import BrowseRequest, Denied, Filter, Invalid, Scope, Unsupported
from memtui.service import BindingView, BrowseAnswer, Caller, MemoryService

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Part:
    """Whose records: all of them, or those of one project, agent or subject."""

    project_id: str | None = None
    agent_id: str | None = None
    subject_id: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return (self.project_id, self.agent_id, self.subject_id) == (None, None, None)

    @property
    def filter(self) -> Filter:
        """The filter that lets these records through."""
        return Filter(
            project_id=self.project_id, agent_id=self.agent_id, subject_id=self.subject_id
        )


@dataclass(frozen=True, slots=True)
class Ends:
    """From where, to where, and what."""

    service: MemoryService
    caller: Caller
    source: BindingView
    destination: BindingView
    part: Part

    @property
    def scope(self) -> Scope:
        """The whole company, which the part narrows."""
        return Scope(company_id=self.caller.company_id)

    async def pages(
        self, binding: BindingView, report: Callable[[int], None] = lambda _found: None
    ) -> AsyncIterator[BrowseAnswer]:
        """Yield what a binding holds of the part, the oldest first.

        A provider that has to search for what it lists is asked again until it has nothing left to
        try; `report` is told how many records it has found so far.
        """
        request = BrowseRequest(
            scope=self.scope,
            binding_key=binding.key,
            filter=self.part.filter,
            sort="created_at",
            limit=_PAGE,
        )
        while True:
            page = await self.service.browse(self.caller, request)
            while page.unfinished:
                report(page.total or 0)
                begun = request.model_copy(update={"cursor": None})
                page = await self.service.browse(self.caller, begun)
                if request.cursor is not None and not page.unfinished:
                    page = await self.service.browse(self.caller, request)
            yield page
            if page.next_cursor is None:
                return
            request = request.model_copy(update={"cursor": page.next_cursor})


async def open_ends(
    service: MemoryService,
    caller: Caller,
    source_key: str,
    destination_key: str,
    part: Part | None = None,
) -> Ends:
    """Find both bindings and check that records can be read from both.

    Raises:
        Invalid: they are the same binding.
        NotFound: there is no such binding.
        Denied: a binding is another company's, or disabled.
        Unsupported: a provider cannot be browsed.
    """
    keys = [_own_key(key, caller) for key in (source_key, destination_key)]
    if keys[0] == keys[1]:
        raise Invalid(f"{keys[0]} is both source and destination; name two bindings.")
    scope = Scope(company_id=caller.company_id)
    for key in keys:
        await service.resolve(caller, scope, key)
    views = {view.key: view for view in await service.bindings(caller)}
    source, destination = (views[key] for key in keys)
    for view in (source, destination):
        if not view.capabilities.browse:
            raise Unsupported(
                f"The provider {view.provider_key} of {view.key} cannot list its records, so "
                "they can be neither moved nor compared."
            )
    return Ends(service, caller, source, destination, part or Part())


async def check_writable(ends: Ends) -> None:
    """Refuse a destination that only reads.

    Raises:
        Denied: it is read-only, or its company, provider or memtui itself is.
    """
    key = ends.destination.key
    if ends.service.read_only:
        raise Denied("memtui runs read-only; start it without --read-only to migrate.")
    if (await ends.service.company(ends.caller)).read_only:
        raise Denied(f"The company {ends.caller.company_id} is read-only.")
    if ends.destination.read_only:
        raise Denied(
            f"The binding {key} is read-only; `memtui bindings read-only {key} off` opens it."
        )
    if not ends.destination.capabilities.writable:
        raise Denied(f"The provider of {key} only reads; choose another destination.")


def _own_key(key: str, caller: Caller) -> str:
    company, slash, name = key.rpartition("/")
    if slash and company != caller.company_id:
        raise Denied(f"{key} is a binding of another company; memories never cross it.")
    return name
