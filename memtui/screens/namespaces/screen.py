"""The namespaces of a binding over the Bindings screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content

from memtui.contract import Conflict, Invalid, MemtuiError, Namespace
from memtui.screens.dialogs.confirm import TypedConfirm
from memtui.screens.dialogs.prompt import Prompt
from memtui.screens.facts.expiry import parse_expiry
from memtui.screens.modal import ModalListScreen
from memtui.screens.namespaces.contents import (
    columns,
    head_content,
    read_only_reason,
    row_content,
)
from memtui.widgets import format as fmt
from memtui.widgets.background import Background
from memtui.widgets.keys import bindings_for
from memtui.widgets.rows import AppendedRows
from memtui.widgets.virtual_list import VirtualList

if TYPE_CHECKING:
    from memtui.screens.state import AppState
    from memtui.service.answers import BindingView, MutationAnswer
    from memtui.service.namespaces import NamespaceDeleted

_FOREVER = "for good"
_WHEN = "30d, 6h, 2027-01-31T14:30; empty: never   enter take it   esc go back"


class Namespaces(ModalListScreen):
    """List the namespaces of a binding and change them; nothing is deleted without its name."""

    ACTION_GROUP = "namespaces"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("namespaces")

    def __init__(self, state: AppState, binding: BindingView) -> None:
        super().__init__(state)
        self._binding = binding
        self._found: tuple[Namespace, ...] | None = None
        self._rows: AppendedRows[Namespace] = AppendedRows(lambda one: one.name)
        self._state = ""
        self._gone: NamespaceDeleted | None = None
        self._written: str | None = None
        """What the cursor goes to once it is listed."""
        self._reading = Background(self, "namespaces")
        self._changing = Background(self, "namespace")

    def make_list(self) -> VirtualList[Namespace]:
        """Return the list."""
        return VirtualList(columns(self.state.clock), self._rows, name="namespace-list")

    @property
    def _list(self) -> VirtualList[Namespace]:
        found: VirtualList[Namespace] = self.query_one("#namespace-list", VirtualList)
        return found

    @property
    def _current(self) -> Namespace | None:
        return self._list.current

    def draw_head(self, width: int) -> Content:
        """Return whose namespaces these are."""
        del width
        return head_content(self._binding, self._found, self._state)

    def draw_row(self, width: int) -> Content:
        """Return the namespace under the cursor."""
        return row_content(self._current, self.state.clock(), self.state.zone, width)

    def refusal(self, verb: str) -> str:
        """Return why a change is not possible."""
        if verb in {"add", "expiry", "delete", "undo"}:
            if reason := read_only_reason(self._binding):
                return reason
            if self._state:
                return "Wait until this is done."
        if verb in {"expiry", "delete", "copy"} and self._current is None:
            return "No namespace is selected."
        if verb == "undo" and (self._gone is None or self._gone.forget_operation_id is None):
            return "No namespace with records was deleted here."
        return ""

    def on_mount(self) -> None:
        """Read the namespaces."""
        super().on_mount()
        self.action_read()

    def action_read(self) -> None:
        """Read the namespaces again."""
        self._list.notice = ("Reading the namespaces …",)
        session, key = self.session, self._binding.key
        self._reading.latest(
            lambda: session.service.namespaces.all(session.caller, key), self._show, self._not_read
        )

    def _show(self, found: tuple[Namespace, ...]) -> None:
        self._found = tuple(sorted(found, key=lambda one: one.name))
        self._list.notice = (
            "No namespace is known.",
            read_only_reason(self._binding) or "a makes one; memories written by agents do too.",
        )
        self._rows.replace(self._found)
        self._list.show(self._rows)
        if self._written is not None:
            self._list.go_to_key(self._written)
            self._written = None
        self.draw()

    def _not_read(self, error: MemtuiError) -> None:
        self._found = None
        self._list.notice = (f"✗ {error}", "r reads again, esc goes back.")
        self._rows.replace([])
        self._list.show(self._rows)
        self.draw()

    def _change(
        self,
        state: str,
        work: Callable[[], Awaitable[str]],
        failed: Callable[[MemtuiError], None] | None = None,
    ) -> None:
        """Run a change that returns what to say, and read again."""
        self._state = state
        self.draw()

        def done(said: str) -> None:
            self._state = ""
            self.toast(said)
            self.action_read()

        def wrong(error: MemtuiError) -> None:
            self._state = ""
            self.draw()
            (failed or self.fail)(error)

        self._changing.every(work, done, wrong)

    def _moment(self, text: str) -> datetime | None:
        if not text.strip():
            return None
        return parse_expiry(text, now=self.state.clock(), zone=self.state.zone)

    def _put(
        self, name: str, when: str, failed: Callable[[MemtuiError], None] | None = None
    ) -> None:
        session, key, moment = self.session, self._binding.key, self._moment(when)

        async def put() -> str:
            made = await session.service.namespaces.put(
                session.caller, key, name, expires_at=moment
            )
            self._written = made.name
            if made.expires_at is None:
                return f"{made.name} never expires."
            return f"{made.name} expires {fmt.exact(made.expires_at, self.state.zone)}."

        self._change("… writing", put, failed)

    def action_add(self) -> None:
        """Ask for the name and the expiry of a new namespace."""
        self._ask_name("")

    def _ask_name(self, value: str) -> None:
        def check(text: str) -> None:
            name = text.strip()
            if not name:
                raise Invalid("A namespace needs a name; write one.")
            if any(one.name == name for one in self._found or ()):
                raise Invalid(f"{name} is there already; e sets its expiry.")

        def named(text: str | None) -> None:
            if text is not None:
                self._ask_first_expiry(text.strip())

        prompt = Prompt(
            f"New namespace in {self._binding.key}",
            value=value,
            placeholder="workspace:web",
            check=check,
        )
        self.app.push_screen(prompt, named)

    def _ask_first_expiry(self, name: str) -> None:
        def failed(error: MemtuiError) -> None:
            self.fail(error)
            self._ask_name(name)

        def chosen(text: str | None) -> None:
            if text is not None:
                self._put(name, text, failed)

        self.app.push_screen(
            Prompt(f"When does {name} expire?", hint=_WHEN, check=self._moment), chosen
        )

    def action_expiry(self) -> None:
        """Ask when the namespace expires."""
        one = self._current
        if one is None:
            return

        def chosen(text: str | None) -> None:
            if text is not None:
                self._put(one.name, text)

        zone = self.state.zone
        known = one.expires_at.astimezone(zone).isoformat("T", "minutes") if one.expires_at else ""
        self.app.push_screen(
            Prompt(f"When does {one.name} expire?", value=known, hint=_WHEN, check=self._moment),
            chosen,
        )

    def action_delete(self) -> None:
        """Delete the namespace once its name was typed."""
        one = self._current
        if one is None:
            return

        def typed(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._delete(one.name, unseen=False)

        self.app.push_screen(
            TypedConfirm(
                f"Delete {one.name} and {fmt.held_words(one)} from {self._binding.key}?",
                word=one.name,
                verb="delete it",
                detail="The records that can be listed are forgotten first, and u brings them "
                "back. The namespace's expiry and metadata are gone.",
            ),
            typed,
        )

    def _delete(self, name: str, *, unseen: bool) -> None:
        session, key = self.session, self._binding.key

        async def delete() -> str:
            gone = await session.service.namespaces.delete(session.caller, key, name, unseen=unseen)
            self._gone = gone
            return _deleted_words(gone)

        def failed(error: MemtuiError) -> None:
            if isinstance(error, Conflict) and not unseen:
                self._ask_unseen(name, error)
            else:
                self.fail(error)
                self.action_read()

        self._change(f"… deleting {name}", delete, failed)

    def _ask_unseen(self, name: str, why: Conflict) -> None:
        def typed(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self._delete(name, unseen=True)

        self.app.push_screen(
            TypedConfirm(
                f"Delete {name} with records that nobody can bring back?",
                word=_FOREVER,
                verb="delete all of it",
                detail=f"{why}\nu would bring back the listed records only.",
            ),
            typed,
        )

    def action_undo(self) -> None:
        """Bring back the records of the namespace deleted last."""
        gone = self._gone
        if gone is None or gone.forget_operation_id is None:
            return
        session, operation_id = self.session, gone.forget_operation_id

        async def undo() -> str:
            answer: MutationAnswer = await session.service.undo(session.caller, operation_id)
            self._gone = None
            return f"Brought {fmt.counted(len(answer.handles), 'record')} back into {gone.name}."

        self._change("… bringing back", undo)

    def action_copy(self) -> None:
        """Copy the name of the namespace."""
        if (one := self._current) is not None:
            self.copy(one.name, "Copied the name.")


def _deleted_words(gone: NamespaceDeleted) -> str:
    if gone.forget_operation_id is None:
        return f"Deleted {gone.name}; it held nothing."
    them = fmt.counted(gone.records, "record")
    rest = "; the others are gone for good" if gone.at_least else ""
    return f"Deleted {gone.name}; u brings the {them} back{rest}."
