"""`vault`: keep a vault in sync with another binding, such as collections in Milvus."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.migrate import progress_words
from memtui.channels.cli.options import DryRun, complete_binding
from memtui.channels.cli.output import Dim, Line, columns, table, ticker
from memtui.channels.cli.session import Session
from memtui.contract import Invalid, MemtuiError, Record
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.migration.endpoints import Endpoints
    from memtui.migration.syncing import Divided, Synced

_Binding = Annotated[
    str,
    typer.Argument(
        metavar="BINDING",
        help="The binding that the vault is kept in sync with.",
        autocompletion=complete_binding,
    ),
]
_Vault = Annotated[
    str | None,
    typer.Option(
        "--vault", help="The vault's binding; left out: the only vault.",
        autocompletion=complete_binding,
    ),
]  # fmt: skip
_PROVIDER = "vault"


async def vault_sync(
    session: Session,
    binding: _Binding,
    *,
    vault: _Vault = None,
    dry_run: DryRun = False,
    delete: Annotated[int | None, typer.Option(min=1, metavar="N")] = None,
    rebuild: bool = False,
    watch: bool = False,
    every: Annotated[float, typer.Option(min=1, metavar="SECONDS")] = 30.0,
) -> int:
    """Sync a vault and BINDING, both ways.

    A change on one side is copied to the other. A change on both is a conflict, which `memtui vault
    conflicts` shows and `memtui vault resolve` decides; until then each side keeps its own.
    Deletions wait for a yes if a side is empty, was recreated or could not be read completely, or
    if more than 5% would go. Each change can be undone. Exit 1 if something is not in sync
    afterwards.

    Args:
        delete: Allow the N deletions that were held back.
        rebuild: Write again what BINDING lacks, with its history.
        watch: Continue until ctrl+c.
        every: With --watch: how often to look.
    """
    from memtui.migration.endpoints import check_takes
    from memtui.migration.syncing import sync

    if watch and (dry_run or delete is not None or rebuild):
        raise Invalid("--watch goes without --dry-run, --delete and --rebuild.")
    if delete is not None and rebuild:
        raise Invalid("--rebuild deletes nothing; leave out --delete.")
    endpoints = await _endpoints(session, binding, vault)
    if dry_run:  # a dry run must refuse what a sync would refuse
        for side in (endpoints.source, endpoints.destination):
            check_takes(side)
    if watch:
        return await _watch(session, endpoints, every)
    try:
        with ticker() as show:
            done = await sync(
                endpoints, session.paths.data, dry_run=dry_run, delete=delete, rebuild=rebuild,
                report=lambda now: show(progress_words(now)),
            )  # fmt: skip
    except CancelledError:
        session.out.say("Stopped; run the same command to continue.")
        raise
    session.out.answer(done, _synced(done))
    return 0 if done.is_whole else 1


async def vault_conflicts(session: Session, binding: _Binding, *, vault: _Vault = None) -> int:
    """List the records that changed on both sides since they were in sync.

    Exit 1 if there are some.
    """
    from memtui.migration.syncing import sync

    endpoints = await _endpoints(session, binding, vault)
    done = await sync(endpoints, session.paths.data, dry_run=True)
    found = done.conflicts
    keys = done.left, done.right
    session.out.answer(
        {"left": keys[0], "right": keys[1], "conflicts": found},
        _conflicts(found, keys) if found else ["nothing changed on both sides"],
    )
    return 1 if found else 0


async def vault_resolve(
    session: Session,
    binding: _Binding,
    record: Annotated[str, typer.Argument(metavar="ID")],
    *,
    keep: Annotated[str, typer.Option(metavar="KEY")],
    vault: _Vault = None,
) -> int:
    """Decide a conflict: the version of one side, or its deletion, is copied to the other.

    With --keep both each side also gets the other's version as a second record; a fact's key keeps
    one value.

    Args:
        record: The record's id on either side.
        keep: The binding whose version stays, or both.
    """
    from memtui.migration.syncing import resolve

    endpoints = await _endpoints(session, binding, vault)
    done = await resolve(endpoints, session.paths.data, record, keep)
    session.out.answer(done, _done(done))
    return 1 if done.failed else 0


async def _endpoints(session: Session, binding: str, vault: str | None) -> Endpoints:
    from memtui.migration.endpoints import open_endpoints

    if vault is None:
        views = await session.service.bindings.all(session.caller)
        keys = sorted(
            one.key for one in views if one.provider_key == _PROVIDER and one.key != binding
        )
        if not keys:
            raise Invalid(
                f"There is no vault to keep {binding} in sync with; "
                "`memtui bindings add KEY vault` adds one."
            )
        if len(keys) > 1:
            raise Invalid(
                f"There are {len(keys)} vaults: {', '.join(keys)}; name one with --vault."
            )
        [vault] = keys
    return await open_endpoints(session.service, session.caller, vault, binding)


async def _watch(session: Session, endpoints: Endpoints, seconds: float) -> int:
    """Sync whenever the vault changes, and every `seconds` for changes of the other side."""
    from memtui.migration.syncing import sync

    changed = asyncio.Event()

    async def follow() -> None:
        async for _ in session.service.watch(session.caller, endpoints.source.key):
            changed.set()

    following = asyncio.create_task(follow()) if endpoints.source.capabilities.watch else None
    session.out.say(
        f"Keeping {endpoints.source.key} and {endpoints.destination.key} in sync; ctrl+c ends."
    )
    last = ""
    try:
        while True:
            try:
                done = await sync(endpoints, session.paths.data)
                now = "\n".join(str(line) for line in _synced(done))
                is_news = bool(done.written or done.changed or done.deleted)
            except MemtuiError as error:
                now, is_news = str(error), False
            if is_news or now != last:
                session.out.say(now)
            last = now
            changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), seconds)
    finally:
        if following is not None:
            following.cancel()


def _synced(done: Synced) -> Iterator[Line]:
    yield f"{shown.counted(done.in_sync, 'record')} in sync already"
    yield from _done(done)


def _done(done: Synced) -> Iterator[Line]:
    would = "would be " if done.dry_run else ""
    for what in ("written", "changed", "deleted"):
        for key, number in sorted(getattr(done, what).items()):
            yield f"{key}: {shown.counted(number, 'record')} {would}{what}"
    for part in done.held_back:
        number = len(part.record_ids)
        yield f"{part.key}: {shown.counted(number, 'deletion')} held back. {part.reason}"
    if done.held_back:
        number = sum(len(one.record_ids) for one in done.held_back)
        passes = f"  --delete {number} lets {'it' if number == 1 else 'them'} pass"
        is_lost = any(one.key == done.left for one in done.held_back)
        again = f"; --rebuild writes what {done.right} lacks again"
        yield passes + (again if is_lost else "")
    if done.conflicts:
        yield (
            f"{shown.counted(len(done.conflicts), 'conflict')}; `memtui vault conflicts "
            f"{done.right}` shows both sides"
        )
    if done.failed:
        yield f"failed: {shown.counted(done.failed, 'record')}"
    for failure in done.failures:
        yield Dim(f"  {failure.record_id}: {failure.reason}")


def _conflicts(found: tuple[Divided, ...], keys: tuple[str, str]) -> Iterator[Line]:
    for one in found:
        yield one.what.replace("on the left", f"in {keys[0]}").replace(
            "on the right", f"in {keys[1]}"
        )
        yield from table(
            columns("binding", "id", "text*"),
            (_row(key, record) for key, record in zip(keys, one.records, strict=True)),
        )


def _row(key: str, record: Record | None) -> list[str]:
    if record is None:
        return [key, "", "gone"]
    return [key, record.handle.provider_record_id, record.text]
