"""Embeds texts in the background, so that they are found by meaning.

A write does not wait for a model. New texts are embedded by a long-running process such as the app,
or by a command; one process at a time per binding. Each round is logged as an operation with the
usage of its calls. Texts go to another machine only after a person has agreed to its address.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memtui.contract import (
    Embedding,
    Invalid,
    MemtuiError,
    NotFound,
    OperationType,
    Scope,
    Unavailable,
    Unsupported,
    Usage,
)
from memtui.embedding import STATIC
from memtui.service.answers import BindingView
from memtui.service.connections import Connection
from memtui.service.home.bindings import Bindings
from memtui.service.operations.redaction import redact_config
from memtui.service.recorder import RunningOperation
from memtui.service.runtime import ServiceModule, find_binding, find_company, to_its_end
from memtui.service.visibility import Caller
from memtui.store import bindings as table
from memtui.store.details import SettingDetails

if TYPE_CHECKING:
    from memtui.service.runtime import ServiceRuntime

_log = logging.getLogger(__name__)

_TEXTS_A_CALL, _INSTANT_TEXTS_A_CALL, _CALLS_AN_OPERATION = 64, 2_048, 16
_LOOK_SECONDS = 5.0
_PAUSE_SECONDS, _LONGEST_PAUSE = 10.0, 300.0


class BindingEmbeddings(ServiceModule):
    """Embeds the texts of bindings."""

    def __init__(self, runtime: ServiceRuntime) -> None:
        super().__init__(runtime)
        self._waits: dict[str, tuple[float, float]] = {}
        """Bindings that failed: the time of the next try, and the pause that follows it."""

    async def state(self, caller: Caller, key: str) -> Embedding:
        """Return how many of a binding's texts are embedded. Not an operation.

        Raises:
            Denied: the company has members, and the caller is not one.
            NotFound: no such binding.
            Unsupported: it has no embedding.
        """
        runtime = self._runtime
        await asyncio.to_thread(runtime.visibility, caller)
        row = await runtime.ask(find_binding, caller.company_id, key)
        own = await runtime.ask(find_company, caller.company_id)
        connection = await runtime.open(row, company_read_only=own.read_only)
        return await _state(connection)

    async def build(
        self,
        caller: Caller,
        key: str,
        report: Callable[[Embedding], object] = lambda _: None,
        *,
        in_background: bool = False,
    ) -> Embedding:
        """Embed all texts without a vector, and return the progress.

        It ends early if another process embeds this binding. If it is cancelled, at most the
        current round is lost.

        Args:
            caller: Who asks.
            key: The binding.
            report: Called after each step.
            in_background: End as soon as the binding's switch (`embeds`) is off.

        Raises:
            Denied: nobody has agreed to the model's address, or the caller is not a member.
            Unavailable: the model is not available.
            Unsupported: the binding has no embedding.
        """
        while True:
            before, found = await self._round(caller, key, report, in_background=in_background)
            if found.is_done or found.embedded <= before.embedded:
                return found
            if in_background and not await self._is_on(caller, key):
                return found

    async def _round(
        self,
        caller: Caller,
        key: str,
        report: Callable[[Embedding], object],
        *,
        in_background: bool,
    ) -> tuple[Embedding, Embedding]:
        """Embed some texts as one operation; return the progress before and after."""
        runtime, asked = self._runtime, SettingDetails(what="embedding")
        runtime.refuse_read_only()
        scope = Scope(company_id=caller.company_id)
        async with runtime.connected(OperationType.EMBED, caller, scope, asked, key) as (
            entry,
            connection,
        ):
            before = found = await _state(connection)
            entry.request["embedding"] = found.model
            await runtime.recorder.begin(entry, [])
            for _ in range(_CALLS_AN_OPERATION):
                last = found
                found = await _step(entry, connection, found)
                entry.result_count += max(0, found.embedded - last.embedded)
                report(found)
                if found.is_done or found.embedded <= last.embedded:
                    break
                if in_background and not await self._is_on(caller, key):
                    break
        return before, found

    async def _is_on(self, caller: Caller, key: str) -> bool:
        row = await self._runtime.ask(find_binding, caller.company_id, key)
        return row.enabled and row.embeds

    async def catch_up(
        self,
        caller: Caller,
        report: Callable[[str, Embedding], object] = lambda *_: None,
        failed: Callable[[str, MemtuiError], object] = lambda *_: None,
    ) -> None:
        """Embed the new texts of every binding; a long-running process calls this repeatedly.

        Skipped are bindings with embedding switched off (`bindings.update`), and those without
        consent to their address. A binding that fails is paused, longer each time.

        Args:
            caller: Who asks.
            report: Called after each step, with the binding's key.
            failed: Called with each error, and the binding's key.
        """
        for view in await self._runtime.module(Bindings).all(caller):
            due, pause = self._waits.get(view.key, (0.0, _PAUSE_SECONDS))
            if not keeps_up(view) or time.monotonic() < due:
                continue
            try:
                found = await self.state(caller, view.key)
                if found.agreed and not found.is_done:
                    tell = partial(report, view.key)
                    await self.build(caller, view.key, tell, in_background=True)
                self._waits.pop(view.key, None)
            except Unsupported:  # its provider has no embedding
                self._waits[view.key] = (time.monotonic() + _LONGEST_PAUSE, pause)
            except MemtuiError as error:
                now = await self._runtime.ask(find_binding, caller.company_id, view.key)
                if redact_config(now.config)[0] != view.config:
                    continue  # its settings changed meanwhile, which closed the connection
                self._waits[view.key] = (time.monotonic() + pause, min(2 * pause, _LONGEST_PAUSE))
                failed(view.key, error)

    @asynccontextmanager
    async def keeping_up(self, caller: Caller) -> AsyncIterator[None]:
        """Embed new texts while this context is entered; errors are logged."""

        async def keep() -> None:
            while True:
                try:
                    await self.catch_up(caller, failed=_not_embedded)
                except MemtuiError as error:
                    _log.warning("What is new is not looked for: %s", error)
                await asyncio.sleep(_LOOK_SECONDS)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    @to_its_end
    async def agree(self, caller: Caller, key: str, address: str, *, agreed: bool = True) -> None:
        """Agree that a binding's texts are sent to another machine for embedding, or revoke it.

        Raises:
            NotFound: no such binding.
            Invalid: its model is not at this address.
        """
        runtime, wanted = self._runtime, address.rstrip("/")
        asked = SettingDetails(update_binding=key)
        asked["texts_may_go_to" if agreed else "texts_no_longer_go_to"] = wanted
        async with runtime.configured(caller, asked, binding_key=key) as entry:
            row = await runtime.ask(find_binding, caller.company_id, key)
            kept = [one for one in row.agreed.split() if one != wanted]
            if agreed:
                found = await self.state(caller, key)
                if found.address != wanted:
                    goes = f"go to {found.address}" if found.address else "stay on this machine"
                    raise Invalid(f"The texts of {key} would {goes}, not to {address}.")
                kept.append(wanted)
            elif len(kept) == len(row.agreed.split()):
                raise NotFound(f"Nobody had agreed that texts of {key} go to {address}.")
            await runtime.configure(
                entry,
                lambda database: table.update_binding(
                    database, row.binding_id, {"agreed": " ".join(kept)}
                ),
            )
            await runtime.connections.drop(row.binding_id)


def _not_embedded(key: str, error: MemtuiError) -> None:
    _log.warning("Embedding of %s stopped: %s", key, error)


async def _state(connection: Connection) -> Embedding:
    return (await connection.derive(lambda: connection.adapter.embed(0))).embedding


async def _step(entry: RunningOperation, connection: Connection, found: Embedding) -> Embedding:
    most = _INSTANT_TEXTS_A_CALL if found.model == STATIC else _TEXTS_A_CALL
    try:
        reply = await connection.derive(lambda: connection.adapter.embed(most))
    except (Unavailable, asyncio.CancelledError) as error:
        if found.address is not None and getattr(error, "sent", True):
            # The usage of the calls so far is not known.
            provider = urlsplit(found.address).hostname or found.address
            entry.usage += (Usage(provider=provider, model=found.model),)
        if isinstance(error, Unavailable):  # without `sent`, as no record was changed
            raise Unavailable(str(error)) from error
        raise
    entry.usage += reply.usage
    return reply.embedding


def keeps_up(view: BindingView) -> bool:
    """Whether new texts of a binding are to be embedded automatically."""
    return view.enabled and view.embeds and view.capabilities.semantic
