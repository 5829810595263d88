"""Search stored data for secrets, which earlier redaction rules may have missed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import select

from memtui.contract import BrowseRequest, MemtuiError, Model, Scope
from memtui.service.history.analysis import Analysis
from memtui.service.operations.memories import Operations
from memtui.service.operations.redaction import redact, redact_config, redact_json
from memtui.service.runtime import ServiceModule, ServiceRuntime
from memtui.service.visibility import Caller
from memtui.store import bindings, pending
from memtui.store.tables import JOURNAL

_WINDOW = 1_000
_LARGEST_FILE = 20_000_000
_OWN_FILES = ("*.json", "*.jsonl", "*.toml", "*.log", "*.txt", "*.yaml")


class StoredSecret(Model):
    """Where a secret is stored, without the secret."""

    place: str
    """Such as "operation log", "undo journal", "binding default" or "file"."""
    where: str
    """An operation's `seq`, a record's id or a path, redacted."""
    labels: tuple[str, ...]
    """The kinds of secrets found, once each."""


class Secrets(ServiceModule):
    """Searches for secrets that are stored where they should not be."""

    async def stored(
        self, caller: Caller, folders: tuple[Path, ...] = ()
    ) -> AsyncIterator[StoredSecret]:
        """Yield where secrets are stored: log, journal, pending writes, configs, records, files.

        Each page of records that is read is logged as an operation, like any other read.

        Args:
            caller: The caller, who must be allowed to change the company's settings.
            folders: Folders with files of the app itself.

        Raises:
            Denied: the caller may not change the settings.
            Unavailable: the log cannot be read.
        """
        await self._runtime.may_configure(caller)
        log = await self._runtime.module(Analysis).open_log(caller)
        try:
            for start in range(0, log.count, _WINDOW):
                for one in await asyncio.to_thread(log.window, start, _WINDOW):
                    document = one.model_dump(mode="json", exclude={"digest", "previous_digest"})
                    if labels := redact_json(document)[1]:
                        yield _found("operation log", str(one.seq), labels)
        finally:
            log.close()
        for found in await asyncio.to_thread(lambda: [*_in_journal(self._runtime, caller)]):
            yield found
        for row in await self._runtime.ask(pending.waiting, caller.company_id):
            if labels := redact_json([row.request, row.base])[1]:
                yield _found("held for review", row.pending_id, labels)
        async for found in self._in_bindings(caller):
            yield found
        for found in await asyncio.to_thread(lambda: [*_in_files(folders)]):
            yield found

    async def _in_bindings(self, caller: Caller) -> AsyncIterator[StoredSecret]:
        for row in await self._runtime.ask(bindings.bindings, caller.company_id):
            if labels := redact_config(row.config)[1]:
                yield _found("configuration of binding", row.key, labels)
            if not (row.enabled and row.capabilities["browse"] is True):
                continue
            place = f"binding {row.key}"
            scope = Scope(company_id=caller.company_id)
            request = BrowseRequest(scope=scope, binding_key=row.key)
            try:
                async for page in self._runtime.module(Operations).pages(caller, request):
                    for record in page.records:
                        if labels := redact_json(record.model_dump(mode="json"))[1]:
                            yield _found(place, record.handle.provider_record_id, labels)
            except MemtuiError as error:
                yield StoredSecret(place=place, where=f"not read: {error}", labels=())


def _in_journal(runtime: ServiceRuntime, caller: Caller) -> Iterator[StoredSecret]:
    """Yield the secrets in the undo journal.

    For a record that the caller may not see, only the `seq` is given: its id may reveal too much.
    """
    visibility = runtime.visibility(caller)
    columns = (JOURNAL.c.seq, JOURNAL.c.provider_record_id, JOURNAL.c.before, JOURNAL.c.after)
    with runtime.database.read() as database:
        rows = database.execute(select(*columns).where(JOURNAL.c.company_id == caller.company_id))
        for row in rows.yield_per(_WINDOW):
            kept = [row.provider_record_id, row.before, row.after]
            if labels := redact_json(kept)[1]:
                seen = visibility is None or all(map(visibility.reads, _scopes(row)))
                record_id = f" {row.provider_record_id}" if seen else ""
                yield _found("undo journal", f"{row.seq}{record_id}", labels)


def _scopes(row: Any) -> Iterator[Scope]:
    for state in (row.before, row.after):
        if state and state.get("record"):
            yield Scope.model_validate(state["record"]["scope"])


def _in_files(folders: tuple[Path, ...]) -> Iterator[StoredSecret]:
    for folder in dict.fromkeys(folders):
        for path in sorted(one for kind in _OWN_FILES for one in folder.glob(kind)):
            try:
                if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                yield StoredSecret(
                    place="file", where=f"{path} is not read: {error.strerror}", labels=()
                )
                continue
            if labels := redact(text)[1]:
                yield _found("file", str(path), labels)


def _found(place: str, where: str, labels: tuple[str, ...]) -> StoredSecret:
    return StoredSecret(place=place, where=redact(where)[0], labels=tuple(dict.fromkeys(labels)))
