"""The namespaces of a binding: list, create, set an expiry, delete."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Conflict, Invalid, MemtuiError, Namespace
from memtui.presenters import format as fmt
from memtui.screens.dialogs import Prompt, TypedConfirm
from memtui.screens.modal import ModalListScreen, Reasons
from memtui.screens.state import AppState
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, heading, joined, labelled, moment
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.service.answers import BindingView
    from memtui.service.operations.namespaces import NamespaceDeleted

_FOREVER = "for good"
_WHEN = "30d, 6h, 2027-01-31T14:30; empty: never   enter set   esc go back"


class NamespacesScreen(ModalListScreen[Namespace]):
    """Lists and changes the namespaces of a binding; to delete one, its name must be typed."""

    ACTION_GROUP = "namespaces"
    NOUN = "namespace"
    READING = "Reading the namespaces …"

    def __init__(self, state: AppState, binding: BindingView) -> None:
        super().__init__(state)
        self._binding = binding
        self._doing = ""
        self._gone: NamespaceDeleted | None = None

    def columns(self) -> list[Column[Namespace]]:
        """Return the columns of the list."""
        return columns(self.state.clock)

    def key(self, row: Namespace) -> str:
        """Return the name of a namespace."""
        return row.name

    def draw_head(self) -> Content:
        """Return the binding, the number of namespaces, and why they cannot be changed."""
        name = display(f"{self._binding.provider_key}·{self._binding.key}", limit=120, style=STRONG)
        doing = display(self._doing, style=WARN)
        head = line(line("namespaces of", name), self.number, doing, gap="   ")
        reason = read_only_reason(self._binding)
        return lines([head, display(reason, style=DIM)]) if reason else head

    def detail(self, row: Namespace, width: int) -> Content:
        """Return the details of a namespace."""
        return row_content(row, self.state.clock(), self.state.zone, width)

    def reasons(self) -> Reasons:
        """Return why a change is not possible."""
        changes, locked = "add expiry delete undo", read_only_reason(self._binding)
        kept = self._gone is None or self._gone.forget_operation_id is None
        return (
            (changes, locked, locked),
            (changes, self._doing, "Wait until this is done."),
            ("undo", kept, "No namespace with records was deleted here."),
        )

    async def read(self) -> list[Namespace]:
        """Read the namespaces."""
        found = await self.service.namespaces.all(self.caller, self._binding.key)
        return sorted(found, key=self.key)

    def nothing(self) -> tuple[str, str]:
        """Return the notice if no namespace is known."""
        hint = read_only_reason(self._binding)
        return "No namespace is known.", hint or "a makes one; agents make others when they write."

    async def _put(self, name: str, when: str) -> None:
        """Create a namespace, or set its expiry; raises the service's errors."""
        session, key = self.session, self._binding.key
        expires = self.state.expiry(when)

        async def put() -> str:
            made = await session.service.namespaces.put(
                session.caller, key, name, expires_at=expires
            )
            self.written = made.name
            if made.expires_at is None:
                return f"{made.name} never expires."
            return f"{made.name} expires {fmt.exact(made.expires_at, self.state.zone)}."

        await self._run("… writing", put)

    async def _run(self, doing: str, work: Callable[[], Awaitable[str]]) -> None:
        """Run a change that returns a notice, show that, and read again; raises its errors."""
        self._doing = doing
        self.draw()
        try:
            said = await self.change(work)
        finally:
            self._doing = ""
            self.draw()
        self.toast(said)
        self.action_read()

    async def _ask_expiry(self, name: str, value: str = "") -> str | None:
        check = self.state.expiry
        title = f"When does {name} expire?"
        return await self.ask(Prompt(title, value=value, hint=_WHEN, check=check))

    async def action_add(self) -> None:
        """Ask for the name and the expiry of a new namespace."""

        def check(text: str) -> None:
            name = text.strip()
            if not name:
                raise Invalid("A namespace needs a name; write one.")
            if self.rows.index_of(name) is not None:
                raise Invalid(f"{name} is there already; K sets its expiry.")

        title, name = f"New namespace in {self._binding.key}", ""
        while True:
            asked = Prompt(title, value=name, placeholder="workspace:web", go="go on", check=check)
            name = (await self.ask(asked) or "").strip()
            when = await self._ask_expiry(name) if name else None
            if when is None:
                return
            try:
                await self._put(name, when)
            except MemtuiError as error:
                self.fail(error)  # the loop asks again
            else:
                return

    async def action_expiry(self) -> None:
        """Ask for the expiry of the namespace."""
        one = self.row
        when = await self._ask_expiry(one.name, self.state.written_expiry(one.expires_at))
        if when is not None:
            await self._put(one.name, when)

    async def action_delete(self) -> None:
        """Delete the namespace after its name was typed."""
        one = self.row
        question = TypedConfirm(
            f"Delete {one.name} and {fmt.records_words(one)} from {self._binding.key}?",
            word=one.name,
            verb="delete it",
            detail="The records that can be listed are forgotten first, and u brings them "
            "back. The namespace's expiry and metadata are gone.",
            final=True,
        )
        if not await self.ask(question):
            return
        try:
            await self._delete_now(one.name)
        except Conflict as why:
            unseen = TypedConfirm(
                f"Delete {one.name} with records that nobody can bring back?",
                word=_FOREVER,
                verb="delete all of it",
                detail=f"{why}\nu would bring back the listed records only.",
                final=True,
            )
            if await self.ask(unseen):
                await self._delete_now(one.name, unseen=True)

    async def _delete_now(self, name: str, *, unseen: bool = False) -> None:
        session, key = self.session, self._binding.key

        async def delete() -> str:
            gone = await session.service.namespaces.delete(session.caller, key, name, unseen=unseen)
            self._gone = gone
            return _deleted_words(gone)

        try:
            await self._run(f"… deleting {name}", delete)
        except MemtuiError as error:
            if unseen or not isinstance(error, Conflict):
                self.action_read()
            raise

    async def action_undo(self) -> None:
        """Bring back the records of the namespace deleted last."""
        session, gone = self.session, self._gone
        operation_id = gone.forget_operation_id if gone else None
        if gone is None or operation_id is None:
            return

        async def undo() -> str:
            answer = await session.service.undo(session.caller, operation_id)
            self._gone = None
            return f"Brought {fmt.counted(len(answer.handles), 'record')} back into {gone.name}."

        await self._run("… bringing back", undo)

    def action_copy(self) -> None:
        """Copy the name of the namespace."""
        self.copy(self.row.name, "Copied the name.")


def _deleted_words(gone: NamespaceDeleted) -> str:
    if gone.forget_operation_id is None:
        return f"Deleted {gone.name}; it was empty."
    them = fmt.counted(gone.records, "record")
    rest = "; the others are gone for good" if gone.at_least else ""
    return f"Deleted {gone.name}; u brings the {them} back{rest}."


# Namespaces in words.


def columns(clock: Callable[[], datetime]) -> list[Column[Namespace]]:
    """Return the columns of the list."""
    return [
        Column("name", "name", lambda one: one.name, 20, flexible=True, keep=100, share=0.5),
        Column("kind", "kind", _kind, 9, keep=50, tone="muted"),
        Column("records", "records", fmt.record_count, 7, "right", keep=90),
        Column("expires", "expires", lambda one: _expires(one, clock()), 9, "right", keep=80),
    ]


def _kind(one: Namespace) -> str | None:
    return "user" if one.kind == "subject" else one.kind


def _expires(one: Namespace, now: datetime) -> Cell:
    if one.expires_at is None:
        return Cell("never", "muted")
    return Cell(fmt.ago(one.expires_at, now), "warning" if one.expires_at <= now else "")


def read_only_reason(binding: BindingView) -> str:
    """Return why the namespaces of a binding cannot be changed, or nothing."""
    if not binding.capabilities.namespace_changes:
        return (
            f"The provider {binding.provider_key} makes and removes no namespaces: they follow "
            "from its records."
        )
    if binding.read_only:
        return f"The binding {binding.key} is read-only; ! on it in Bindings opens it."
    return ""


def row_content(one: Namespace, now: datetime, zone: tzinfo | None, width: int) -> Content:
    """Return the details of a namespace."""
    expires = moment(one.expires_at, now, zone) if one.expires_at else "never"
    about: list[Line] = [
        labelled("kind", _kind(one)),
        labelled("records", fmt.record_count(one) or "unknown"),
        labelled("expires", expires),
    ]
    metadata = [
        line(display(key, limit=100, style=DIM), _value(value))
        for key, value in one.metadata.items()
        if key != "at_least"
    ]
    if metadata:
        metadata.insert(0, heading("Metadata"))
    name = display(one.name, limit=300, style=STRONG)
    more = [display("It has more than one list shows.", style=DIM)] if one.records is None else []
    return joined([[name], about, metadata, more], width)


def _value(value: object) -> Content:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return display(shown, limit=2_000)
