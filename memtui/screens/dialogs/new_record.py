"""Write a new record."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from memtui.contract import Scope
from memtui.screens.dialogs.confirm import Confirm
from memtui.widgets.display import BAD, DIM, STRONG, display
from memtui.widgets.editor import ForeignInput, ForeignTextArea

_FIELDS = ("project", "agent", "subject", "kind", "topic", "tags")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """What a person wants to have remembered."""

    text: str
    scope: Scope
    kind: str
    topic: str | None
    tags: tuple[str, ...]


class WriteRecord(ModalScreen[NewRecord | None]):
    """Ask for a text, its scope, kind, topic and tags; None if the person goes back."""

    BINDINGS = [("ctrl+s", "save", "save"), ("escape", "back", "back")]

    def __init__(self, where: str, scope: Scope, begin: NewRecord | None = None) -> None:
        super().__init__()
        self._where = where
        self._scope = scope
        self._begin = begin

    def compose(self) -> ComposeResult:
        """Lay out the text and its fields."""
        begin = self._begin
        scope = begin.scope if begin else self._scope
        values = {
            "project": scope.project_id,
            "agent": scope.agent_id,
            "subject": scope.subject_id,
            "kind": begin.kind if begin else "note",
            "topic": begin.topic if begin else None,
            "tags": ", ".join(begin.tags) if begin else None,
        }
        with Vertical(classes="dialog dialog-editor"):
            yield Static(
                display(f"New record in {self._where}", limit=200, style=STRONG),
                classes="dialog-title",
            )
            yield ForeignTextArea(begin.text if begin else "", soft_wrap=True)
            for first, second in (_FIELDS[0:2], _FIELDS[2:4], _FIELDS[4:6]):
                with Horizontal(classes="fields"):
                    for name in (first, second):
                        yield Label(name)
                        yield ForeignInput(values[name] or "", compact=True, id=f"field-{name}")
            yield Static(classes="dialog-error")
            yield Static(
                display("ctrl+s write   tab next field   esc go back", style=DIM),
                classes="dialog-keys",
            )

    def on_mount(self) -> None:
        """Begin in the text."""
        self.set_focus(self.query_one(ForeignTextArea))

    def on_input_submitted(self) -> None:
        """Write from any field."""
        self.action_save()

    def action_save(self) -> None:
        """Take what was written, if there is any text."""
        text = self.query_one(ForeignTextArea).text
        if not text.strip():
            self.query_one(".dialog-error", Static).update(
                display("A record needs a text.", style=BAD)
            )
            return
        field = {name: self.query_one(f"#field-{name}", Input).value.strip() for name in _FIELDS}
        scope = self._scope.model_copy(
            update={
                "project_id": field["project"] or None,
                "agent_id": field["agent"] or None,
                "subject_id": field["subject"] or None,
            }
        )
        tags = tuple(tag.strip() for tag in field["tags"].split(",") if tag.strip())
        self.dismiss(NewRecord(text, scope, field["kind"] or "note", field["topic"] or None, tags))

    def action_back(self) -> None:
        """Go back; a written text is only thrown away after a yes."""
        if not self.query_one(ForeignTextArea).text.strip():
            self.dismiss(None)
            return
        question = Confirm("Throw your text away?", verb="throw it away")
        self.app.push_screen(question, self._answered)

    def _answered(self, yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
        if yes:
            self.dismiss(None)
