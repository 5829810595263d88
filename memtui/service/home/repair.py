"""A new database for a home whose database is damaged, gone, or older than its archive.

It is filled from the archive and the bindings' folders; its log begins with an operation that
names what is lost. No memory is deleted: the old database file is moved aside.
"""

import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import insert

from memtui.analytics.archive import segments_beyond
from memtui.analytics.engine import DuckDb
from memtui.analytics.layout import ArchiveFolder, Manifest, log_ends
from memtui.analytics.remaking import lacks_manifest, remake_manifest
from memtui.analytics.sealed import Archive
from memtui.config import Paths, Settings
from memtui.contract import (
    Adapter,
    Filter,
    Invalid,
    Json,
    MemtuiError,
    Model,
    OperationStatus,
    OperationType,
    Scope,
    Unavailable,
)
from memtui.paths import sync_folder
from memtui.service.answers import CaptureSwitches, ReviewRule
from memtui.service.home.files import (
    Remains,
    find_remains,
    read_sqlite,
    refuse_unless_all_is_theirs,
    used_database,
)
from memtui.service.providers import Providers
from memtui.store import appending, bindings
from memtui.store.database import Database, DatabaseConnection
from memtui.store.details import Details
from memtui.store.erasing import purge_request
from memtui.store.limits import add_up_sealed
from memtui.store.log import OperationStore
from memtui.store.operation import Operation, OperationDraft
from memtui.store.rows import BindingRow, CompanyRow, TargetRow
from memtui.store.tables import HEADS

_DATABASE_ENDS = ("", "-wal", "-shm")
_PAGE = 1_000
_KEPT = "kept-"
LOST = (
    "the undo journal",
    "members and tokens",
    "spending limits",
    "the companies' names and link templates",
    "the bindings' configs",
    "the namespaces and ids of `memtui serve plugin`",
)
"""Data that is lost with the database, as are the operations that were not sealed."""


class RestoredBinding(CaptureSwitches):
    """A binding that is added to the new database."""

    key: str
    provider_key: str
    enabled: bool
    """False: it needs a config, which is lost."""
    read_only: bool = False
    review: tuple[ReviewRule, ...] = ()
    """The rules for which writes of agents are held for review."""


_K = TypeVar("_K")
_V = TypeVar("_V")
_Before: TypeAlias = "tuple[dict[str, RestoredBinding | None], dict[tuple[str, str], str | None]]"
"""Bindings and targets before a change; None: it did not exist."""


class RestoredCompany(Model):
    """The part of one company that is added to the new database."""

    company_id: str
    sealed_through: int = 0
    """Operations 1 to this one are in the archive; later ones are lost."""
    lost_through: int | None = None
    """The newest lost operation, by the old database; None: unknown, or nothing is lost."""
    bindings: tuple[RestoredBinding, ...] = ()
    targets: tuple[tuple[str, str, str], ...] = ()
    """Type and id of each target, and the key of the binding that serves it."""
    erased: tuple[Json, ...] = ()
    """Fields that sealed operations lack and no sealed purge lists, in the form of a purge."""
    problems: tuple[str, ...] = ()
    """Why something is not restored or is renamed, one sentence each."""


class Repair(Model):
    """The plan of a repair."""

    fault: str
    """What is wrong with the database."""
    database: str
    aside: str | None = None
    """The new name of the old file; None: there is no file."""
    companies: tuple[RestoredCompany, ...]
    lost: tuple[str, ...] = LOST
    manifests: tuple[str, ...] = ()
    """Companies whose archive gets a new manifest; if any, the repair does nothing else."""


def plan(paths: Paths, settings: Settings, now: datetime) -> Repair:
    """Plan a repair, and change nothing. Blocking.

    Raises:
        Denied: the database still has members of a company, and the caller does not manage it.
        Invalid: there is nothing to repair, or nothing to repair it from.
        Unavailable: the database cannot be reached, a folder may not be read, or an archive has no
            manifest that fits.
    """
    lacking = _lacking_manifests(paths, settings)
    if lacking:
        return Repair(
            fault=f"The archive of {' and '.join(lacking)} has no manifest any more.",
            database=str(paths.database), companies=(), lost=(), manifests=lacking,
        )  # fmt: skip
    fault = _fault(paths, settings)
    remains = find_remains(paths)
    sealed_of: list[str] = []
    for sealed in remains.sealed:
        if sealed.manifest is None:
            raise Unavailable(
                f"{fault} The archive {sealed.folder} has no manifest that fits it, so a new log "
                "could not continue it; restore its manifest.json from a backup first."
            )
        sealed_of.append(sealed.manifest.company_id)
    known = _heads(paths.database) if not settings.database_url else {}
    bound = (one.company_id for one in remains.bindings)
    companies = tuple(
        _company(paths, remains, company_id, known.get(company_id))
        for company_id in dict.fromkeys((*sealed_of, *bound, *remains.companies))
    )
    if not companies:
        raise Invalid(
            f"{fault} Nothing is left to repair it from; restore a backup with `memtui backup "
            "restore`, or point MEMTUI_HOME at another folder."
        )
    has_file = not settings.database_url and paths.database.exists()
    return Repair(
        fault=fault,
        database=(settings.database_url and "at database_url") or str(paths.database),
        aside=str(_aside(paths.database, now)) if has_file else None,
        companies=companies,
    )


def _lacking_manifests(paths: Paths, settings: Settings) -> tuple[str, ...]:
    """Return the companies that lost the manifest of their segments, if the database is intact."""
    with suppress(Unavailable):
        database = used_database(paths, settings)
        if database is not None:
            with closing(database), database.read() as connection:
                if not database.problems():
                    known = [one.company_id for one in bindings.companies(connection)]
                    return tuple(
                        one for one in known if lacks_manifest(ArchiveFolder(paths.archive, one))
                    )
    return ()


def _fault(paths: Paths, settings: Settings) -> str:
    where = "at database_url" if settings.database_url else str(paths.database)
    try:
        database = used_database(paths, settings)
        if database is None:
            return f"The control plane's database {where} is gone or empty."
        with closing(database):
            problems, behind = database.problems(), _behind(database, paths)
            if behind and not problems:  # its members can still be read, so it must be theirs
                refuse_unless_all_is_theirs(database, settings, "A repair changes who may see")
    except Unavailable:
        if settings.database_url or (reason := _damage(paths.database)) is None:
            raise
        problems, behind = [reason], ""
    if problems:
        return f"The control plane's database {where} is damaged ({problems[0]})."
    if behind:
        return behind
    raise Invalid("The database is in order; there is nothing to repair.")


def _damage(path: Path) -> str | None:
    """Return what is wrong with a SQLite file's pages; None: nothing, or it cannot be opened."""
    try:
        with closing(read_sqlite(path)) as database:
            [(found,)] = database.execute("PRAGMA quick_check(1)")
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else str(found)


def _behind(database: Database, paths: Paths) -> str:
    for sealed in find_remains(paths).sealed:
        if sealed.manifest is None:
            continue
        through, company_id = sealed.manifest.sealed_through, sealed.manifest.company_id
        if (head := log_ends(database, company_id).head) < through:
            return (
                f"The database's log of {company_id} ends at operation {head}, and its archive at "
                f"{through}."
            )
    return ""


def _heads(path: Path) -> dict[str, int]:
    """Return the newest operation of each company, as far as a damaged database can be read."""
    with suppress(sqlite3.Error, OSError), closing(read_sqlite(path)) as database:
        return dict(database.execute("SELECT company_id, seq FROM memory_log_heads"))
    return {}


def _company(
    paths: Paths, remains: Remains, company_id: str, lost_through: int | None
) -> RestoredCompany:
    folder = ArchiveFolder(paths.archive, company_id)
    manifest = folder.read()
    problems = [
        f"{path} is named by no manifest; it is kept as {_KEPT}{path.name}."
        for path in segments_beyond(folder, manifest)
    ]
    erased: tuple[Json, ...] = ()
    logged = _LoggedBindings()
    if manifest.segments:
        from memtui.analytics.audit import unexplained

        with closing(Archive(paths.archive, DuckDb())) as archive:
            try:
                with archive.read(company_id, manifest.segments) as connection:
                    sealed = OperationStore(connection, company_id)
                    for operation in _configurations(sealed):
                        logged.follow(operation)
                    erased = tuple(purge_request(unexplained(sealed.lacking()))["erased"])
            except MemtuiError as error:
                problems.append(f"The sealed operations cannot be read: {error}")
    folders = {one.key: one.path for one in remains.bindings if one.company_id == company_id}
    restored: list[RestoredBinding] = []
    providers = Providers(is_demo=True)
    for key in dict.fromkeys((*logged.bindings, *folders)):
        found = logged.bindings.get(key) or _guess(key, folders[key], providers)
        if found is None:
            problems.append(
                f"Nothing says which provider the binding {key} had; its folder {folders[key]} "
                "stays."
            )
            continue
        try:
            place = folders.get(key, paths.binding_dir(f"{company_id}/{key}"))
            known = _needs_no_config(providers.load(found.provider_key), place)
        except MemtuiError as error:
            problems.append(f"The binding {key} is not restored: {error}")
        else:
            restored.append(found.model_copy(update={"enabled": found.enabled and known}))
    keys = [one.key for one in restored]
    served = {place: key for place, key in logged.targets.items() if key in keys}
    if keys and ("company", company_id) not in served:
        served["company", company_id] = "default" if "default" in keys else keys[0]
    return RestoredCompany(
        company_id=company_id,
        sealed_through=manifest.sealed_through,
        lost_through=lost_through if (lost_through or 0) > manifest.sealed_through else None,
        bindings=tuple(restored),
        erased=erased,
        targets=tuple((*place, key) for place, key in served.items()),
        problems=tuple(problems),
    )


def _configurations(sealed: OperationStore) -> Iterator[Operation]:
    """Yield the sealed changes of a company's settings, and all undos, oldest first."""
    both = (_oldest_first(sealed, one) for one in (OperationType.CONFIGURE, OperationType.UNDO))
    yield from merge(*both, key=lambda one: one.seq)


def _oldest_first(sealed: OperationStore, operation_type: OperationType) -> Iterator[Operation]:
    chosen = Filter(operation_type=operation_type, status=OperationStatus.OK)
    seq = 0
    while page := sealed.page(chosen, limit=_PAGE, after=seq).operations:
        yield from page[::-1]
        seq = page[0].seq


@dataclass(slots=True)
class _LoggedBindings:
    """A company's bindings and targets, followed through its sealed operations."""

    bindings: dict[str, RestoredBinding] = field(default_factory=dict)
    targets: dict[tuple[str, str], str] = field(default_factory=dict)
    """The key of the binding that serves each target."""
    before: dict[str, _Before] = field(default_factory=dict)
    """For each operation, the previous values of the settings that it changed."""

    def follow(self, operation: Operation) -> None:
        """Apply the next operation, a change of settings or an undo."""
        then = dict(self.bindings), dict(self.targets)
        if operation.undoes is None:
            _apply(operation, self.bindings, self.targets)
        elif undone := self.before.get(operation.undoes):
            _put_back(self.bindings, undone[0])
            _put_back(self.targets, undone[1])
        changed = _changed(then[0], self.bindings), _changed(then[1], self.targets)
        if any(changed):
            self.before[operation.operation_id] = changed


def _changed(then: Mapping[_K, _V], now: Mapping[_K, _V]) -> dict[_K, _V | None]:
    return {one: then.get(one) for one in {**then, **now} if then.get(one) != now.get(one)}


def _put_back(now: dict[_K, _V], before: Mapping[_K, _V | None]) -> None:
    for one, value in before.items():
        if value is None:
            now.pop(one, None)
        else:
            now[one] = value


def _apply(
    operation: Operation,
    restored: dict[str, RestoredBinding],
    targets: dict[tuple[str, str], str],
) -> None:
    asked: Mapping[str, Any] = operation.request
    match asked:
        case {"add_binding": str(key), "provider": str(provider)}:
            restored[key] = RestoredBinding(
                key=key,
                provider_key=provider,
                enabled=bool(asked.get("enabled", True)),
                read_only=bool(asked.get("read_only")),
            )
            if serves := asked.get("serves"):
                targets[serves[0], serves[1]] = key
        case {"update_binding": str(key)} if key in restored:
            restored[key] = _updated(restored[key], asked)
        case {"remove_binding": str(key)}:
            restored.pop(key, None)
            for one in [one for one, served_by in targets.items() if served_by == key]:
                del targets[one]
        case {"set_target": str(kind), "target_id": str(target), "key": str(key)}:
            place = operation.scope.company_id if kind == "company" else target
            targets[kind, place] = key
        case {"cut_over": str(source), "targets": list(moved), "key": str(key)}:
            targets.update(dict.fromkeys(map(_target_of, moved), key))
            if source in restored:
                restored[source] = _updated(restored[source], asked)
        case {"clear_target": str(kind), "target_id": str(target)}:
            targets.pop((kind, target), None)


def _target_of(words: str) -> tuple[str, str]:
    kind, _, target = words.partition(" ")
    return kind, target


def _updated(binding: RestoredBinding, asked: Mapping[str, Any]) -> RestoredBinding:
    switches = {"enabled", "read_only", *CaptureSwitches.model_fields}
    changed: dict[str, Any] = {name: bool(asked[name]) for name in switches.intersection(asked)}
    return binding.model_copy(update=changed | {"review": _rules(binding.review, asked)})


def _rules(known: tuple[ReviewRule, ...], asked: Mapping[str, Any]) -> tuple[ReviewRule, ...]:
    """Return a binding's review rules after a change."""
    for name in ("add_rule", "remove_rule"):
        if name in asked:
            rule = ReviewRule.model_validate(asked[name])
            known = tuple(one for one in known if one != rule)
            return (*known, rule) if name == "add_rule" else known
    return known


def _guess(key: str, folder: Path, providers: Providers) -> RestoredBinding | None:
    """Recognise a binding's provider by the files in its folder; None: not recognised."""
    for name in providers.names():
        if not providers.is_foreign(name) and providers.load(name).lives_in(folder):
            return RestoredBinding(key=key, provider_key=name, enabled=True)
    return None


def _needs_no_config(provider: type[Adapter], folder: Path) -> bool:
    try:
        provider.config_model.model_validate({})
    except ValueError:
        return False
    # If its files are not in the default folder, its lost config named another place.
    return provider.lives_in(folder) is not False


def repair(
    paths: Paths, settings: Settings, wanted: Repair, *, principal: str, now: datetime
) -> Repair:
    """Carry out a plan, and return it with the problems that only this showed. Blocking.

    If killed at any moment, it can be repeated.

    Raises:
        Invalid: the home cannot be written.
        Unavailable: another memtui repairs it, the database cannot be written, a segment differs
            from the log, or the archive changed since the plan.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(paths.data / ".repair.lock", timeout=0, mode=0o600):
            if wanted.companies and paths.heads.is_dir():
                shutil.rmtree(paths.heads)  # ends of the old logs, which the new ones do not reach
            for company in wanted.companies:
                _keep_unnamed(paths, company.company_id)
            if wanted.manifests:
                with closing(
                    Database.open(paths.database, settings.database_url, create=False)
                ) as database:
                    for company_id in wanted.manifests:
                        remake_manifest(database, ArchiveFolder(paths.archive, company_id))
                return wanted
            if settings.database_url:
                with closing(Database.open(paths.database, settings.database_url)) as database:
                    return _fill(database, paths, wanted, principal, now)
            return _replace(paths, wanted, principal, now)
    except Timeout as error:
        raise Unavailable(
            "Another memtui is repairing this home; wait until it is done."
        ) from error
    except OSError as error:
        raise Invalid(
            f"{error.filename or paths.data} cannot be written ({error.strerror}); "
            "nothing was repaired."
        ) from error


def _replace(paths: Paths, wanted: Repair, principal: str, now: datetime) -> Repair:
    fresh = paths.database.with_name(f"{paths.database.name}.repairing")
    for end in _DATABASE_ENDS:
        fresh.with_name(fresh.name + end).unlink(missing_ok=True)
    with closing(Database.open(fresh)) as database:
        done = _fill(database, paths, wanted, principal, now)
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    aside = _aside(paths.database, now)
    for end in reversed(_DATABASE_ENDS):  # the database file last
        old = paths.database.with_name(paths.database.name + end)
        if old.exists():
            old.rename(aside.with_name(aside.name + end))
    fresh.rename(paths.database)
    sync_folder(paths.data)
    return done


def _aside(database: Path, now: datetime) -> Path:
    """Return a name for the old file that no earlier repair used."""
    stem, number = f"{database.name}.damaged-{now:%Y%m%dT%H%M%SZ}", 1
    name = stem
    while list(database.parent.glob(f"{name}*")):
        number += 1
        name = f"{stem}.{number}"
    return database.with_name(name)


def _keep_unnamed(paths: Paths, company_id: str) -> None:
    """Rename segments that no manifest names, left by a killed seal.

    Otherwise the new log would take them for copies of its own operations.
    """
    folder = ArchiveFolder(paths.archive, company_id)
    for path in segments_beyond(folder, folder.read()):
        path.rename(path.with_name(_KEPT + path.name))


def _fill(
    database: Database, paths: Paths, wanted: Repair, principal: str, now: datetime
) -> Repair:
    done = []
    with database.write() as connection:
        for company in wanted.companies:
            manifest = ArchiveFolder(paths.archive, company.company_id).read()
            if manifest.sealed_through != company.sealed_through:
                raise Unavailable(
                    f"The archive of {company.company_id} changed meanwhile; start the repair "
                    "again."
                )
            _begin_log(connection, manifest)
            problems = (*company.problems, *_add_up(connection, paths, manifest))
            done.append(company.model_copy(update={"problems": problems}))
            appending.append(connection, _gap(company, manifest, principal, now))
            _fill_settings(connection, company, now)
    return wanted.model_copy(update={"companies": tuple(done)})


def _fill_settings(connection: DatabaseConnection, company: RestoredCompany, now: datetime) -> None:
    company_id = company.company_id
    row = CompanyRow(
        company_id=company_id, name=company_id, read_only=True, link_templates={}, created_at=now
    )
    bindings.add_company(connection, row)
    providers = Providers()
    for one in company.bindings:
        binding = BindingRow(
            **dict(one) | {"review": [rule.model_dump(mode="json") for rule in one.review]},
            binding_id=f"{company_id}/{one.key}",
            company_id=company_id,
            config={},
            capabilities=providers.load(one.provider_key).capabilities.model_dump(),
            created_at=now,
        )
        bindings.add_binding(connection, binding)
    for target_type, target_id, key in company.targets:
        target = TargetRow(
            company_id=company_id,
            target_type=target_type,
            target_id=target_id,
            binding_id=f"{company_id}/{key}",
        )
        bindings.set_target(connection, target)


def _begin_log(connection: DatabaseConnection, manifest: Manifest) -> None:
    """Set the end of the log to that of the archive, so that it continues there; and its salt."""
    if manifest.segments:
        values = {
            "company_id": manifest.company_id,
            "seq": manifest.sealed_through,
            "digest": manifest.last_digest,
            "salt": bytes.fromhex(manifest.salt),
        }
        connection.execute(insert(HEADS), values)


def _add_up(connection: DatabaseConnection, paths: Paths, manifest: Manifest) -> Iterator[str]:
    """Add up what the sealed operations spent; yield a sentence where they cannot be read."""
    company_id = manifest.company_id
    if manifest.segments:
        try:
            with (
                closing(Archive(paths.archive, DuckDb())) as archive,
                archive.read(company_id, manifest.segments) as sealed,
            ):
                add_up_sealed(connection, company_id, sealed)
        except MemtuiError as error:
            yield f"The spending limits of {company_id} begin again at 0: {error}"


def _gap(
    company: RestoredCompany, manifest: Manifest, principal: str, now: datetime
) -> OperationDraft:
    asked: Details = {
        "erased": list(company.erased),
        "lost_from": company.sealed_through + 1,
        "lost_through": company.lost_through,
        "restored": [one.key for one in company.bindings],
        # The operation that logged the newest segments' hashes may be among the lost ones.
        "segments": [segment.proof() for segment in manifest.segments],
    }
    return OperationDraft(
        operation_id=uuid.uuid4().hex,
        operation_type=OperationType.REPAIR,
        status=OperationStatus.OK,
        scope=Scope(company_id=company.company_id),
        principal=principal,
        channel="cli",
        request=asked,
        result_count=len(company.bindings),
        started_at=now,
        latency_ms=None,
    )
