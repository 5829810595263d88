"""The two bindings of a migration, and its state between two runs."""

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
from memtui.store import bindings

_PAGE = 500


@dataclass(frozen=True, slots=True)
class ScopePart:
    """Which records to move: all, or those of one project, agent or subject."""

    project_id: str | None = None
    agent_id: str | None = None
    subject_id: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether all records are selected."""
        return (self.project_id, self.agent_id, self.subject_id) == (None, None, None)

    @property
    def filter(self) -> Filter:
        """The filter that selects these records."""
        return Filter(
            project_id=self.project_id, agent_id=self.agent_id, subject_id=self.subject_id
        )


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Source, destination, and the part of the records to move."""

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
        """Yield pages of a binding's records of the part, the oldest first.

        Read-only records (files that the binding reads in place) are left out, since they are not
        its memories; `stay` receives their number.

        A provider that lists by searching is queried until its search is finished; `report`
        receives the number of records found so far. Once a page is `at_least`, all later pages
        are too. `all_problems` is passed to `MemoryService.browse`.
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
    *,
    moves: bool = True,
) -> Endpoints:
    """Find both bindings and check that records can be read from both, if any are to be moved.

    Raises:
        Invalid: both keys name the same binding.
        NotFound: there is no such binding.
        Denied: a binding belongs to another company, or is disabled.
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
        if moves and not view.capabilities.browse:
            raise Unsupported(
                f"The provider {view.provider_key} of {view.key} cannot list its records, so "
                "they can be neither moved nor compared."
            )
    return Endpoints(service, caller, source, destination, part or ScopePart())


async def check_writable(endpoints: Endpoints) -> None:
    """Refuse a destination that cannot be written, or a source that has records held for review.

    Raises:
        Conflict: records of the source are held.
        Denied: the binding, its company, its provider or memtui itself is read-only, or the caller
            views the past.
    """
    if endpoints.caller.as_of is not None:
        raise Denied("The past cannot be changed; go back to now first.")
    if endpoints.service.read_only:
        raise Denied("memtui runs read-only; start it without --read-only to migrate.")
    if (await endpoints.service.companies.get(endpoints.caller)).read_only:
        raise Denied(f"The company {endpoints.caller.company_id} is read-only.")
    check_takes(endpoints.destination)
    await refuse_held(endpoints)


async def refuse_held(endpoints: Endpoints) -> None:
    """Raise `Conflict` where records of the source are held, as agents would get their copies."""
    key, company_id = endpoints.source.key, endpoints.caller.company_id
    held = await endpoints.service.runtime.ask(bindings.held, company_id)
    if any(of == key for of, _ in held):
        raise Conflict(
            f"Records of {key} are held for review, and agents would get their copies; decide on "
            "them first, with `memtui review list`."
        )


def check_takes(binding: BindingView) -> None:
    """Raise `Denied` if a binding or its provider is read-only."""
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
        raise Denied(f"{key} is a binding of another company; name two bindings of one company.")
    return name


class MigrationState(Model):
    """How far a migration has come.

    If the file is lost, a verify restores all but `switched` and `closed`.
    """

    begun_at: UtcDatetime | None = None
    """Start of the last run that moved records."""
    applied_at: UtcDatetime | None = None
    """End of that run; None: it was interrupted."""
    verified_at: UtcDatetime | None = None
    """When a verify since then found both sides the same."""
    verified_whole: bool = False
    """Whether the source could be listed to its end."""
    switched: tuple[TargetView, ...] = ()
    """Targets that a cut-over took from the source; giving back returns them."""
    closed: bool = False
    """Whether the cut-over made the source read-only; giving back makes it writable again."""


class ProgressFile:
    """The state of one pair of bindings, in memtui's own data folder."""

    def __init__(self, data: Path, endpoints: Endpoints) -> None:
        self._folder = data / "migrations" / endpoints.caller.company_id
        self._name = f"{endpoints.source.key}--{endpoints.destination.key}.json"
        self._lock = f"{endpoints.destination.key}.lock"
        self._served = endpoints.source.targets

    def read(self) -> MigrationState:
        """Return the state, without the cut-over of targets that the source serves.

        That cut-over was undone, or waits until a second person agrees.
        """
        state = self.stored()
        switched = tuple(one for one in state.switched if one not in self._served)
        closed = state.closed and bool(switched)
        return state.model_copy(update={"switched": switched, "closed": closed})

    def stored(self) -> MigrationState:
        """Return the state as it was saved; a missing or malformed file counts as an empty one."""
        try:
            text = (self._folder / self._name).read_text(encoding="utf-8")
            return MigrationState.model_validate_json(text)
        except (FileNotFoundError, ValidationError, UnicodeDecodeError):
            return MigrationState()
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def write(self, state: MigrationState) -> None:
        """Save the state atomically.

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
        """Lock the destination against other migrations.

        Raises:
            Conflict: another migration into the destination is running.
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
