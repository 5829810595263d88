"""`doctor` and `backup`: check a home, save it, and restore it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui import __version__
from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import Yes
from memtui.channels.cli.output import Dim, Line, jsonable
from memtui.channels.cli.session import DOOR, Invocation, is_utf8, logging_to, zone_of
from memtui.config import Paths, Settings, find_paths
from memtui.contract import Denied, Filter, Invalid, MemtuiError, OperationStatus, OperationType
from memtui.paths import is_writable
from memtui.presenters.format import ago, counted, embedding_words
from memtui.scratch import remove_left_of
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service import BindingHealth, Caller, MemoryService
    from memtui.service.home.backup import Backup
    from memtui.service.home.files import Remains
    from memtui.service.home.repair import Repair
    from memtui.service.home.stored_secrets import StoredSecret
    from memtui.service.review.risks import RisksAnswer


Status = Literal["ok", "warning", "broken"]
_LOW_DISK_BYTES = 200_000_000
_SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check. `broken` makes doctor fail, `warning` does not."""

    name: str
    status: Status
    message: str
    advice: str = ""


_Found = tuple[Status, str, str]
"""The result of a check without its name: status, message and advice, which may be empty."""


async def run_checks(invocation: Invocation) -> AsyncIterator[DoctorCheck]:
    """Yield each check once it is done; a broken one stops only checks that depend on it."""
    from memtui.backends.discovery import discover_here

    yield DoctorCheck(
        "versions",
        "ok",
        f"memtui {__version__}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {platform.system()}",
    )
    paths = invocation.paths()
    for check in _home(paths, invocation):
        yield check
    for path in [] if invocation.read_only else await asyncio.to_thread(remove_left_of, paths.data):
        yield DoctorCheck(
            "home", "ok", f"{path} is removed, which a memtui that was killed had left"
        )
    try:
        settings = invocation.settings()
    except MemtuiError as error:
        yield DoctorCheck(
            "settings", "broken", str(error), f"Fix {paths.config_file} or the variable."
        )
        return
    yield DoctorCheck("settings", "ok", f"{paths.config_file} and the environment fit")
    yield _tried(
        "editor", lambda: _editor(settings), "warning", "Set $EDITOR to the editor you use."
    )
    yield _tried("theme", lambda: _theme(settings), advice="Fix the theme in the settings.")
    yield DoctorCheck("keymap", *_keymap(settings))
    yield DoctorCheck("terminal", *_terminal())
    yield DoctorCheck("helper", *_helper(invocation, settings))
    async for check in _providers(settings, paths):
        yield check
    async for check in _control_plane(paths, settings, invocation):
        yield check
    found = counted(len(await asyncio.to_thread(discover_here)), "other memory", "other memories")
    yield DoctorCheck(
        "discovery",
        "ok",
        f"{found} on this machine",
        "memtui bindings discover lists what there is.",
    )


def _tried(
    name: str, look: Callable[[], str], worst: Status = "broken", advice: str = ""
) -> DoctorCheck:
    try:
        return DoctorCheck(name, "ok", look())
    except MemtuiError as error:
        return DoctorCheck(name, worst, str(error), advice)


def _home(paths: Paths, invocation: Invocation) -> Iterator[DoctorCheck]:
    for folder in dict.fromkeys((paths.data, paths.config)):
        if not folder.exists():
            yield _missing("home", str(folder), invocation)
            continue
        if invocation.read_only and not is_writable(folder):
            yield DoctorCheck("home", "ok", f"{folder} is only read, and nothing is recorded")
            continue
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            advice = "Read it with --read-only: nothing is recorded then."
            yield DoctorCheck("home", "broken", f"{folder} is on a read-only file system", advice)
            continue
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            advice = f"chmod u+rwx {folder}, or read it with --read-only"
            yield DoctorCheck("home", "broken", f"{folder} cannot be written", advice)
            continue
        yield _private(folder, 0o700)
        yield from _room(folder)
    for file in (paths.database, paths.config_file, paths.log_file):
        try:
            yield _private(file, 0o600)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield DoctorCheck("home", "broken", f"{file} cannot be read ({error.strerror})")


def _room(folder: Path) -> Iterator[DoctorCheck]:
    free, has_room = shutil.disk_usage(folder).free, is_writable(folder)
    is_low = free < _LOW_DISK_BYTES
    if is_low or not has_room:
        used_up = f"nothing more fits into {folder}: a quota, or its number of files, is used up"
        left = f"{free // 1_000_000} MB are left" if is_low else used_up
        advice = "Make some room, or read with --read-only: nothing is recorded then."
        yield DoctorCheck("disk", "warning" if has_room else "broken", left, advice)


def _missing(name: str, what: str, invocation: Invocation) -> DoctorCheck:
    if invocation.names_home:
        advice = "Check --home and MEMTUI_HOME; memtui, or adding something, makes a home there."
        return DoctorCheck(name, "warning", f"{what} is not there", advice)
    return DoctorCheck(
        name, "ok", f"{what} is not there yet; memtui, or adding something, makes it"
    )


def _private(path: Path, mode: int) -> DoctorCheck:
    found = stat.S_IMODE(path.stat().st_mode)
    if found & 0o077:
        return DoctorCheck(
            "home", "warning", f"others can see {path} ({found:o})", f"chmod {mode:o} {path}"
        )
    return DoctorCheck("home", "ok", f"{path} is private")


def _editor(settings: Settings) -> str:
    from memtui.external_editor import editor_words

    return " ".join(editor_words(settings.editor))


def _theme(settings: Settings) -> str:
    from memtui.screens.themes import check_theme

    check_theme(settings.theme)
    return settings.theme


def _keymap(settings: Settings) -> _Found:
    from memtui.screens.keymap import load_keymap

    try:
        keymap = load_keymap(settings.keymap)
    except MemtuiError as error:
        return "broken", str(error), "Fix the keymap in the settings."
    if keymap.doubt:
        return "warning", keymap.doubt, "Give it a second key in the settings."
    return "ok", f"valid, {len(keymap.moved) or 'nothing'} remapped", ""


def _terminal() -> _Found:
    term = os.environ.get("TERM", "")
    encoding = (sys.stdout.encoding or "").lower()
    if not is_utf8(encoding):
        return "warning", f"its encoding is {encoding}", "Set LANG to a UTF-8 locale."
    if not sys.stdout.isatty():
        return "ok", "stdout is not a terminal", ""
    if term in {"", "dumb"}:
        return "warning", "it cannot draw", "Set TERM, as in xterm-256color."
    deep = os.environ.get("COLORTERM", "") in {"truecolor", "24bit"}
    colours = "16 million" if deep else "256" if "256" in term else "few"
    muted = ", and NO_COLOR is set" if os.environ.get("NO_COLOR") else ""
    return "ok", f"{term} with {colours} colours{muted}", ""


def _helper(invocation: Invocation, settings: Settings) -> _Found:
    from memtui.channels.helper.wire import HelperSocket

    place = HelperSocket.of(str(invocation.home or ""))
    if not place.is_usable():
        advice = "Remove it, or let XDG_RUNTIME_DIR name a folder that is yours alone."
        return "warning", f"{place.folder} is not private, so hooks are slow", advice
    if (process := place.holder()) is not None:
        return "ok", f"it runs as process {process}, and makes hooks quick", ""
    if not settings.helper_idle_s:
        return "ok", "helper_idle_s is 0, so hooks run without", ""
    return "ok", "it does not run; the next hook starts it", ""


async def _providers(settings: Settings, paths: Paths) -> AsyncIterator[DoctorCheck]:
    from memtui.service.providers import Providers

    installed = Providers(timeout_ms=settings.provider_timeout_ms, is_demo=paths.is_demo)
    for name in installed.names():
        if installed.is_foreign(name):
            continue
        try:
            installed.load(name)
        except MemtuiError as error:
            yield DoctorCheck("provider", "broken", str(error))
        else:
            yield DoctorCheck("provider", "ok", f"{name} loads")
    for problem in await installed.problems():
        yield DoctorCheck("provider", "broken", problem)


async def _control_plane(
    paths: Paths, settings: Settings, invocation: Invocation
) -> AsyncIterator[DoctorCheck]:
    from memtui.service import open_service
    from memtui.service.home.files import find_remains

    try:
        remains = await asyncio.to_thread(find_remains, paths)
    except MemtuiError as error:
        yield DoctorCheck("home", "broken", str(error))
        return
    if not settings.database_url and not paths.database.exists() and not remains.words:
        yield _missing("database", "it", invocation)
        return
    with logging_to(paths.log_file):
        try:
            service = await open_service(paths, settings, first_company=False)
        except MemtuiError as error:
            can_be = await asyncio.to_thread(_can_be_repaired, paths, settings)
            yield DoctorCheck("database", "broken", str(error), _REPAIR if can_be else "")
            for check in _left(remains) if is_writable(paths.data) else ():
                yield check
            return
        try:
            yield DoctorCheck("database", *await _pages(service))
            async for check in _companies(service, settings, remains):
                yield check
        finally:
            await service.close()


_REPAIR = "`memtui doctor --repair` gets back what is left, `memtui backup restore` a backup."


def _can_be_repaired(paths: Paths, settings: Settings) -> bool:
    from memtui.service.home.repair import plan

    try:
        plan(paths, settings, datetime.now(UTC))
    except MemtuiError:
        return False
    return True


def _left(remains: Remains) -> Iterator[DoctorCheck]:
    """Yield what a repair can get back without the database."""
    for log in remains.sealed:
        if log.manifest is None:
            advice = "Bring its manifest.json back from a backup."
            yield DoctorCheck(
                "left", "broken", f"{log.folder} has no manifest that fits it", advice
            )
            continue
        operations = counted(log.manifest.sealed_through, "sealed operation")
        yield DoctorCheck("left", "ok", f"{operations} of {log.manifest.company_id}")
    for one in remains.bindings:
        yield DoctorCheck("left", "ok", f"of the binding {one.company_id}/{one.key}, {one.path}")


async def _pages(service: MemoryService) -> _Found:
    from memtui.store.database import HEAD

    try:
        problems = await asyncio.to_thread(service.analysis.database.problems)
    except MemtuiError as error:
        return "broken", str(error), _REPAIR
    if problems:
        return "broken", "; ".join(problems), _REPAIR
    return "ok", f"it answers, at schema {HEAD}, and its pages are whole", ""


async def _companies(
    service: MemoryService, settings: Settings, remains: Remains
) -> AsyncIterator[DoctorCheck]:
    from memtui.service import caller_of

    known = {company.company_id for company in await service.companies.all()}
    for log in remains.sealed:
        if log.manifest is None or log.manifest.company_id not in known:
            name, advice = f"archive {log.folder.name}", "Find the database that it belongs to."
            yield DoctorCheck(name, "broken", "it is of no company of this database", advice)
    for company in await service.companies.all(settings.principal, settings.acts_for or None):
        company_id = company.company_id
        caller = caller_of(settings, company_id, DOOR)
        try:
            for view in await service.bindings.all(caller):
                name = f"binding {company_id}/{view.key}"
                if view.shared:
                    advice = "Let one of the two lie elsewhere: each company reads the other's."
                    words = "another company's memories lie there too"
                    yield DoctorCheck(name, "broken", words, advice)
                if view.enabled:
                    health = await service.bindings.health(caller, view.key)
                    yield DoctorCheck(name, *_binding(health))
            yield DoctorCheck(f"archive {company_id}", *await _archive(service, caller))
            yield DoctorCheck(f"log {company_id}", *await _proof(service, caller))
            yield DoctorCheck(f"log {company_id}", *await _unknown_outcomes(service, caller))
            for name, checks in (
                ("company", _repaired(service, caller)),
                ("limits", _limits(service, caller, settings)),
                ("review", _waiting(service, caller)),
            ):
                async for found in checks:
                    yield DoctorCheck(f"{name} {company_id}", *found)
        except MemtuiError as error:
            yield DoctorCheck(f"company {company_id}", "broken", str(error))


async def _archive(service: MemoryService, caller: Caller) -> _Found:
    found = await service.analysis.verify_archive(caller)
    if not found.problems:
        segments = counted(found.segments, "segment")
        return "ok", f"{counted(found.operations, 'operation')} in {segments}, all whole", ""
    advice = "memtui ops archive verify lists them; bring the files back from a backup."
    return "broken", _problem_words(found.problems), advice


def _problem_words(problems: Sequence[str], gap: str = " ") -> str:
    return f"{counted(len(problems), 'problem')}: {gap.join(problems[:_SHOWN_PROBLEMS])}"


def _binding(found: BindingHealth) -> _Found:
    health = found.health
    messages = [one.message for one in health.problems]
    words = [health.status, "" if health.message in messages else health.message.rstrip(".")]
    if health.records is not None:
        words.append(counted(health.records, "record"))
    if health.embedding is not None:
        words.append(embedding_words(health.embedding))
    shown = [
        f"{one.location.path}:{one.location.line}: {one.message}" if one.location else one.message
        for one in health.problems
    ]
    if shown:
        words.append(_problem_words(shown, "; "))
    message = ", ".join(filter(None, words))
    if health.status == "ok":
        return "ok", message, ""
    return "broken", message, f"memtui bindings health {found.key} tells more."


async def _repaired(service: MemoryService, caller: Caller) -> AsyncIterator[_Found]:
    """Yield a warning if a repair left the company read-only."""
    repairs = Filter(operation_type=OperationType.REPAIR)
    is_closed = (await service.companies.get(caller)).read_only
    if is_closed and (await service.log.page(caller, repairs, limit=1)).total:
        advice = (
            f"memtui --company {caller.company_id} companies members add PRINCIPAL --role owner"
        )
        yield "warning", "it was repaired, and is read-only until it has an owner", advice


_PROVED = 1_000
"""Newest operations to prove; `memtui audit verify` proves all."""


async def _proof(service: MemoryService, caller: Caller) -> _Found:
    problems = await service.log.problems(caller, _PROVED)
    if not problems:
        return "ok", f"the last operations, up to {_PROVED:,}, are as they were logged", ""
    advice = "memtui audit verify checks all of it, docs/recovery.md says what to do."
    return "broken", _problem_words(problems), advice


_UNKNOWN_LOOKED_AT = 1_000
"""Operations whose checks are read; older ones count as unknown even if one was checked."""


async def _unknown_outcomes(service: MemoryService, caller: Caller) -> _Found:
    chosen = Filter(status=OperationStatus.UNKNOWN)
    page = await service.log.page(caller, chosen, limit=_UNKNOWN_LOOKED_AT)
    found = await service.log.found_outcomes(caller, page.operations)
    left = page.total - sum(one.happened is not None for one in found.values())
    if not left:
        return "ok", "every operation has a known outcome", ""
    advice = "memtui ops list --status unknown shows them, memtui ops check asks what happened."
    return "warning", f"{counted(left, 'operation')} with an unknown outcome", advice


_LONG = timedelta(days=7)
"""A write held for longer than this is a warning."""


async def _waiting(service: MemoryService, caller: Caller) -> AsyncIterator[_Found]:
    """Yield the number of held writes and the age of the oldest, if there are any."""
    found = await service.review.waiting(caller) if caller.by_person else []
    if not found:
        return
    now, oldest = datetime.now(UTC), found[0].pending_since
    words = f"{counted(len(found), 'write')} held, the oldest for {ago(oldest, now)}"
    if now - oldest <= _LONG:
        yield "ok", words, ""
    else:
        advice = "memtui review list shows them; memtui review refuse --older-than 30d clears out."
        yield "warning", words, advice


async def _limits(
    service: MemoryService, caller: Caller, settings: Settings
) -> AsyncIterator[_Found]:
    """Yield a warning for each passed spending limit."""
    from memtui.presenters.spending import sentence

    zone = zone_of(settings)
    for one in await service.limits.check(caller, zone=zone):
        if one.state == "passed":
            words = sentence(one, datetime.now(UTC), zone)
            yield "warning", words, "memtui budget check shows them all."


_MARKS = {"ok": "✓", "warning": "!", "broken": "✗"}


async def doctor(
    invocation: Invocation,
    *,
    secrets: bool = False,
    repair: bool = False,
    risks: bool = False,
    check: bool = False,
    workspace: Path | None = None,
    yes: Yes = False,
) -> int:
    """Check that everything works, and say what to do.

    Exit 1 if something is broken, or a secret is stored. --repair first says what it will do;
    docs/recovery.md says what can be recovered. --risks lists memories that a person should look
    at; `memtui review dismiss` remembers that one is no risk.

    Args:
        secrets: Instead, look for secrets in what is stored.
        repair: Instead, replace a lost database by a new one.
        risks: Instead, look for memories that are poisoned, secret, contradicted,
            outdated or doubled.
        check: With --risks: exit 1 if there is a risk, or something is not checked.
        workspace: With --risks: the folder whose git history says what is gone, for memories of
            which memtui does not know it.
    """
    if secrets + repair + risks > 1:
        raise Invalid("Give --secrets, --repair or --risks, only one of them.")
    if check and not risks:
        raise Invalid("--check goes with --risks.")
    if workspace and not risks:
        raise Invalid("--workspace goes with --risks.")
    if risks:
        return await _look_for_risks(invocation, check=check, workspace=workspace)
    if repair:
        return await _repair(invocation, yes=yes)
    if secrets:
        return await _look_for_secrets(invocation)
    checks = [check async for check in run_checks(invocation)]
    broken = any(check.status == "broken" for check in checks)
    invocation.out.answer(
        {"ok": not broken, "checks": [asdict(check) for check in checks]}, _lines(checks)
    )
    return 1 if broken else 0


async def _look_for_secrets(invocation: Invocation) -> int:
    async with invocation.session() as session:
        folders = (session.paths.data, session.paths.config)
        found = [one async for one in session.service.secrets.stored(session.caller, folders)]
    invocation.out.answer({"ok": not found, "secrets": found}, _secret_lines(found))
    return 1 if found else 0


async def _look_for_risks(invocation: Invocation, *, check: bool, workspace: Path | None) -> int:
    async with invocation.session() as session:
        found = await session.service.risks.check(session.caller, workspace=workspace)
    figures, is_whole = found.figures, found.figures.is_complete and not found.unread
    document = {
        "ok": is_whole and not figures.risky, "complete": is_whole, "risks": figures,
        "unread": found.unread,
        "risky": [
            {"binding_key": one.binding_key, "record_id": one.record.handle.provider_record_id,
             "text": one.record.text, "risks": one.risks}
            for one in found.risky
        ],
    }  # fmt: skip
    invocation.out.answer(document, _risk_lines(found))
    return int(check and not document["ok"])


def _risk_lines(found: RisksAnswer) -> Iterator[Line]:
    from memtui.presenters.risks import SIGNS, said, totals

    active = [(one, one.severity) for one in found.risky if one.severity]
    for one, severity in active:
        why = ", ".join(said(risk) for risk in one.risks if not risk.dismissed)
        name = visible(one.record.handle.provider_record_id)
        yield f"{SIGNS[severity]} {one.binding_key} {name}"
        yield Dim(visible(f"  {why}"))
    for sentence in found.unread:
        yield f"{_MARKS['broken']} not checked: {sentence}"
    yield f"Risks: {totals(found.figures)}."
    if active:
        yield "`memtui facts prune --everything` plans what to let go."
        yield "`memtui review dismiss BINDING ID` says that one is no risk."


async def _repair(invocation: Invocation, *, yes: bool) -> int:
    from memtui.service.home import repair as repairing

    paths, settings, now = invocation.paths(), invocation.settings(), datetime.now(UTC)
    if settings.read_only:
        raise Denied("memtui runs read-only; start it without --read-only to repair the home.")
    wanted = await asyncio.to_thread(repairing.plan, paths, settings, now)
    for line in _repair_lines(wanted):
        invocation.out.say(line)
    if not yes:
        confirm("Rebuild the manifest?" if wanted.manifests else "Put a new database in place?")
    done = await asyncio.to_thread(
        repairing.repair, paths, settings, wanted, principal=settings.principal, now=now
    )
    if wanted.manifests:
        invocation.out.answer(done, ["Repaired; each segment is what the log says of it."])
        return 0
    first = wanted.companies[0].company_id
    for planned, one in zip(wanted.companies, done.companies, strict=True):
        for problem in one.problems[len(planned.problems) :]:
            invocation.out.say(problem)
    invocation.out.answer(done, [f"Repaired; a new database is in {paths.data}."])
    invocation.out.say(
        "Its companies are read-only until each has an owner: "
        f"memtui --company {first} companies members add {settings.principal} --role owner"
    )
    return 0


def _repair_lines(wanted: Repair) -> Iterator[str]:
    yield wanted.fault
    if wanted.manifests:
        yield "It is made of its segments, which are held to what the log says of them."
        return
    if wanted.aside:
        yield f"It goes to {wanted.aside}; nothing of it is deleted."
    for one in wanted.companies:
        sealed = counted(one.sealed_through, "sealed operation")
        keys = ", ".join(
            binding.key if binding.enabled else f"{binding.key} (off: its config is not known)"
            for binding in one.bindings
        )
        yield f"{one.company_id} comes back with {sealed} and the bindings: {keys or 'none'}."
        end = f" to {one.lost_through}" if one.lost_through else " on"
        if one.erased:
            yield f"Why sealed operations of {one.company_id} lack values is lost; it is noted."
        yield f"Of {one.company_id} the operations from {one.sealed_through + 1}{end} are lost."
        yield from one.problems
    yield f"Lost too: {', '.join(wanted.lost)}. What vaults and other providers hold stays."


def _secret_lines(found: list[StoredSecret]) -> Iterator[Line]:
    if not found:
        yield "No secrets are stored, as far as their shapes and names tell."
        return
    for one in found:
        sorts = f": {', '.join(one.labels)}" if one.labels else ""
        yield f"{_MARKS['broken']} {one.place}, {one.where}{sorts}"
    yield "Give each of them up where it was issued; then correct or forget the records,"
    yield "and erase memtui's own copies with memtui purge."


def _lines(checks: list[DoctorCheck]) -> Iterator[Line]:
    for check in checks:
        advice = f" — {check.advice}" if check.advice else ""
        yield f"{_MARKS[check.status]} {check.name}: {check.message}{advice}"


_Target = Annotated[Path, typer.Argument(metavar="FILE", help="The new file, a ZIP file.")]
_Source = Annotated[Path, typer.Argument(metavar="FILE", help="What `memtui backup create` wrote.")]


async def backup_create(invocation: Invocation, file: _Target, *, vaults: bool = False) -> None:
    """Write everything that this home holds to one new file.

    It holds the database, the archive, the bindings' own folders and the settings, and can be
    written while memtui runs. Secrets in the system's keyring are not in it. It names what it
    leaves out, and each company's log records it.

    Args:
        vaults: Include the vaults outside the home.
    """
    from memtui.service.home.backup import backup as write

    settings, target = invocation.settings(), file.expanduser()
    done = await asyncio.to_thread(
        write, invocation.paths(), settings, target, outside=vaults, now=datetime.now(UTC)
    )
    if not settings.read_only:
        await _log_backup(invocation, done, target)
    for sentence in done.left_out:
        invocation.out.say(f"Left out: {sentence}")
    invocation.out.answer(
        jsonable(done) | {"file": str(file), "files": sorted(done.files)},
        [str(file)],
        f"Wrote {_contents(done)} of {counted(len(done.logs), 'company', 'companies')}; "
        "it holds every text, keep it safe.",
    )


async def _log_backup(invocation: Invocation, done: Backup, file: Path) -> None:
    named = str(await asyncio.to_thread(file.absolute))
    try:
        async with invocation.session(make=False) as session:
            for company_id in done.logs:
                caller = session.caller.model_copy(update={"company_id": company_id})
                await session.service.companies.backed_up(caller, named)
    except MemtuiError as error:
        invocation.out.say(f"The backup is there, but the log does not tell of it: {error}")


def _contents(of: Backup) -> str:
    operations = sum(end.seq for end in of.logs.values())
    return f"{counted(len(of.files), 'file')} with {counted(operations, 'operation')}"


def _restored(done: Backup) -> str:
    """Return what a restore proved: operations have digests; files only the backup's hashes."""
    files = (
        f"{counted(len(done.files), 'file')} as packed, by the hashes that the backup has of them"
    )
    if done.database != "sqlite":
        return f"Restored {files}. The operation log is in PostgreSQL and was not checked."
    operations = counted(sum(end.seq for end in done.logs.values()), "operation")
    return f"Restored {operations}, proved by their chain of digests, and {files}."


def backup_restore(
    invocation: Invocation,
    file: _Source,
    *,
    to: Annotated[Path | None, typer.Option(file_okay=False)] = None,
) -> None:
    """Restore a backup to a home that does not exist yet.

    First it checks the digest of each operation and its place in the chain. It compares files with
    the SHA-256 in the backup, which proves only that they are as they were packed.

    Args:
        to: An empty folder to restore to, instead of this home.
    """
    from memtui.service.home.backup import restore as read

    if invocation.settings().read_only:
        raise Denied("memtui runs read-only; start it without --read-only to restore a home.")
    paths = find_paths(to) if to else invocation.paths()
    done = read(file.expanduser(), paths)
    for place, was in done.outside.items():
        key = place.removeprefix("outside/")
        invocation.out.say(
            f"The vault of {key}, which lay in {was}, is in {paths.data / place}; move it, or "
            f"`memtui bindings configure {key.partition('/')[2]} --set path=…`."
        )
    for sentence in done.left_out:
        invocation.out.say(f"Not in it: {sentence}")
    invocation.out.answer(
        jsonable(done) | {"home": str(paths.data), "files": sorted(done.files)},
        [str(paths.data)],
        _restored(done),
    )
