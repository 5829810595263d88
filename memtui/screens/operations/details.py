"""Gathers what the detail of an operation shows beyond the log entry itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memtui.contract import MemtuiError, NotFound, Record, RecordHandle
from memtui.screens.base import MemtuiScreen
from memtui.screens.operations.detail import OperationView
from memtui.screens.state import ServiceSession
from memtui.store.operation import Operation
from memtui.widgets.background import Background

if TYPE_CHECKING:
    from memtui.service.answers import Change
    from memtui.store.journal import Found

TEXTS_READ = 10
"""Records whose text is read when a person goes into the details."""


class DetailFeed:
    """Reads changes, record texts and outcomes, and keeps them while the screen lives.

    A change's records come from the undo journal, which costs nothing. The text of a record that
    a query returned takes a read, and every read is an operation of its own: it happens only when
    the person goes into the details, once a record.
    """

    def __init__(self, screen: MemtuiScreen, changed: Callable[[], None]) -> None:
        self._screen = screen
        self._changed = changed
        self._journal = Background(screen, "operation-changes")
        self._texts = Background(screen, "operation-texts")
        self._checks = Background(screen, "operation-check")
        self._records: dict[str, Record | str] = {"": "erased"}
        self._changes: dict[str, tuple[Change, ...]] = {}
        self._checked: dict[str, str] = {}

    def view(self, operation: Operation) -> OperationView:
        """Return what is known of an operation by now."""
        return OperationView(
            operation=operation,
            now=self._screen.state.clock(),
            zone=self._screen.state.zone,
            records=self._records,
            changes=self._changes.get(operation.operation_id, ()),
            checked=self._checked.get(operation.operation_id, ""),
        )

    def record(self, record_id: str) -> Record | None:
        """Return a record if it has been read."""
        found = self._records.get(record_id)
        return found if isinstance(found, Record) else None

    def read_changes(self, operation: Operation) -> None:
        """Read what a mutation did to each record."""
        wanted = operation.operation_id
        if not operation.operation_type.mutates or wanted in self._changes:
            self._journal.forget()
            return
        session = self._screen.session

        async def read() -> tuple[tuple[Change, ...], Found | None]:
            changes = await session.service.log.changes(session.caller, wanted)
            return changes, await session.service.log.found_outcome(session.caller, wanted)

        def show(read: tuple[tuple[Change, ...], Found | None]) -> None:
            changes, found = read
            self._changes[wanted] = changes
            if found is not None:
                self._checked[wanted] = found.told
            for change in changes:
                record = change.after or change.before
                if record is not None:
                    self._records.setdefault(record.handle.provider_record_id, record)
            self._changed()

        self._journal.latest(read, show, self._screen.fail)

    def read_texts(self, operation: Operation) -> None:
        """Read the records of an operation whose text is not known yet."""
        handles = [
            RecordHandle(
                provider_key=handle.provider_key, provider_record_id=handle.provider_record_id
            )
            for handle in operation.handles
            if handle.provider_record_id not in self._records
        ][:TEXTS_READ]
        session = self._screen.session

        def show(found: dict[str, Record | str]) -> None:
            self._records.update(found)
            self._changed()

        if handles:
            self._texts.latest(lambda: _read(session, operation, handles), show, self._screen.fail)

    def check(self, operation: Operation) -> None:
        """Ask the provider whether an unknown outcome happened."""
        session, wanted = self._screen.session, operation.operation_id

        def show(found: Found) -> None:
            self._checked[wanted] = found.told
            self._changes.pop(wanted, None)
            self._changed()

        self._checks.every(
            lambda: session.service.check_outcome(session.caller, wanted), show, self._screen.fail
        )


async def _read(
    session: ServiceSession, operation: Operation, handles: Sequence[RecordHandle]
) -> dict[str, Record | str]:
    found: dict[str, Record | str] = {}
    for handle in handles:
        try:
            answer = await session.service.get(
                session.caller, handle, operation.scope, binding_key=operation.binding_key
            )
        except NotFound:
            found[handle.provider_record_id] = "it is not there any more"
        except MemtuiError as error:
            found[handle.provider_record_id] = str(error)
        else:
            found[handle.provider_record_id] = answer.record
    return found
