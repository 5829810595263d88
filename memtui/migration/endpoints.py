"""The two bindings of a migration, and what is remembered of it between two runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from memtui.contract import (
    BrowseRequest,
    Conflict,
    Denied,
    Filter,
    Invalid,
    Json,
    Model,
    Scope,
    Unsupported,
    UtcDatetime,
)
from memtui.paths import make_private, replacing
from memtui.service import BindingView, BrowseAnswer, Caller, MemoryService, TargetView

_PAGE = 500


@dataclass(frozen=True, slots=True)
class ScopePart:
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
class Endpoints:
    """From where, to where, and what."""

    service: MemoryService
    caller: Caller
    source: BindingView
    destination: BindingView
    part: ScopePart

    @property
    def scope(self) -> Scope:
        """The whole company, which the part narrows."""
        return Scope(company_id=self.caller.company_id)

    async def pages(
        self,
        binding: BindingView,
        report: Callable[[int], None] = lambda _found: None,
        stay: Callable[[int], None] = lambda _number: None,
        *,
        all_problems: bool = False,
    ) -> AsyncIterator[BrowseAnswer]:
        """Yield what a binding holds of the part, the oldest first.

        What it only reads where it lies is not a memory of it: `stay` is told of how many.

        A provider that has to search for what it lists is asked again until it has nothing left to
        try; `report` is told how many records it has found so far. A page after one that may not
        be all says so too. `all_problems` is that of `MemoryService.browse`.
        """
        browse = partial(self.service.browse, self.caller, all_problems=all_problems)
        request = BrowseRequest(
            scope=self.scope,
            binding_key=binding.key,
            filter=self.part.filter,
            sort="created_at",
            limit=_PAGE,
        )
        at_least = False
        while True:
            page = await browse(request)
            while page.unfinished:
                report(page.total or 0)
                begun = request.model_copy(update={"cursor": None})
                page = await browse(begun)
                if request.cursor is not None and not page.unfinished:
                    page = await browse(request)
            at_least = at_least or page.at_least
            own = tuple(record for record in page.records if not record.read_only)
            changed: Json = {"at_least": at_least, "records": own}
            if others := len(page.records) - len(own):
                changed["total"] = None
                stay(others)
            yield page.model_copy(update=changed)
            if page.next_cursor is None:
                return
            request = request.model_copy(update={"cursor": page.next_cursor})


async def open_endpoints(
    service: MemoryService,
    caller: Caller,
    source_key: str,
    destination_key: str,
    part: ScopePart | None = None,
) -> Endpoints:
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
    views = {view.key: view for view in await service.bindings.all(caller)}
    source, destination = (views[key] for key in keys)
    for view in (source, destination):
        if not view.capabilities.browse:
            raise Unsupported(
                f"The provider {view.provider_key} of {view.key} cannot list its records, so "
                "they can be neither moved nor compared."
            )
    return Endpoints(service, caller, source, destination, part or ScopePart())


async def check_writable(endpoints: Endpoints) -> None:
    """Refuse a destination that only reads.

    Raises:
        Denied: it is read-only, or its company, provider or memtui itself is, or the caller looks
            at the past.
    """
    if endpoints.caller.as_of is not None:
        raise Denied("This is the past, where nothing can be changed; go back to now first.")
    if endpoints.service.read_only:
        raise Denied("memtui runs read-only; start it without --read-only to migrate.")
    if (await endpoints.service.companies.get(endpoints.caller)).read_only:
        raise Denied(f"The company {endpoints.caller.company_id} is read-only.")
    check_takes(endpoints.destination)


def check_takes(binding: BindingView) -> None:
    """Raise `Denied` where a binding takes no records: it, or its provider, only reads."""
    key = binding.key
    if binding.read_only:
        raise Denied(
            f"The binding {key} is read-only; `memtui bindings read-only {key} off` opens it."
        )
    if not binding.capabilities.writable:
        raise Denied(f"The provider of {key} only reads; choose another destination.")


def _own_key(key: str, caller: Caller) -> str:
    company, slash, name = key.rpartition("/")
    if slash and company != caller.company_id:
        raise Denied(f"{key} is a binding of another company; memories never cross it.")
    return name


class MigrationState(Model):
    """How far a migration has come.

    Where its file is gone, a verify proves it anew; what a cut-over switched is nowhere else.
    """

    begun_at: UtcDatetime | None = None
    """When records last began to be moved."""
    applied_at: UtcDatetime | None = None
    """When that was done; None where it was stopped half way."""
    verified_at: UtcDatetime | None = None
    """When all of it was found to be the same, since then."""
    verified_whole: bool = False
    """Whether the source could be listed to its end."""
    switched: tuple[TargetView, ...] = ()
    """What a cut-over took from the source, and gives back."""
    closed: bool = False
    """Whether the cut-over made the source read-only, and giving back opens it."""


class ProgressFile:
    """The state of one pair of bindings, in memtui's own data folder."""

    def __init__(self, data: Path, endpoints: Endpoints) -> None:
        self._folder = data / "migrations" / endpoints.caller.company_id
        self._name = f"{endpoints.source.key}--{endpoints.destination.key}.json"
        self._lock = f"{endpoints.destination.key}.lock"

    def read(self) -> MigrationState:
        """Return the state; a file that cannot be read tells nothing."""
        try:
            text = (self._folder / self._name).read_text(encoding="utf-8")
            return MigrationState.model_validate_json(text)
        except (FileNotFoundError, ValidationError, UnicodeDecodeError):
            return MigrationState()
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def write(self, state: MigrationState) -> None:
        """Keep the state; the file is never half written.

        Raises:
            Invalid: the folder cannot be written.
        """
        try:
            make_private(self._folder)
            with replacing(self._folder / self._name) as fresh:
                fresh.write_text(state.model_dump_json(), encoding="utf-8")
        except OSError as error:
            raise _unusable(self._folder, error) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other migration into the destination away.

        Raises:
            Conflict: one is running.
        """
        import filelock

        try:
            make_private(self._folder)
            lock = filelock.FileLock(self._folder / self._lock, thread_local=False, mode=0o600)
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            name = self._lock.removesuffix(".lock")
            raise Conflict(
                f"Another migration into {name} is running; wait until it is done."
            ) from error
        except OSError as error:
            raise _unusable(self._folder, error) from error
        try:
            yield
        finally:
            lock.release()


def _unusable(folder: Path, error: OSError) -> Invalid:
    return Invalid(f"Cannot use the folder {folder} ({error.strerror}); make it writable.")
