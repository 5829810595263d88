"""The form of a company: its name, the second yes, and link templates for its sources."""

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Protocol

from textual.widgets import Switch

from memtui.contract import MemtuiError, SourceKind
from memtui.presenters.format import ABOUT_SECOND_YES, counted
from memtui.screens.dialogs import Saving
from memtui.screens.form import FieldRow, Form
from memtui.service.answers import CompanyView
from memtui.service.home.companies import LINK_PLACES, link_problem
from memtui.service.review.proposals import AwaitsSecond
from memtui.widgets.display import DIM, display
from memtui.widgets.editor import ForeignInput

_NAME, _SECOND_YES = "name", "second yes"
_ABOUT = (
    "The address at which a source of each kind opens; {parts} of it are filled in. Without an "
    "address, a source opens by its own reference."
)
_PARTS = f"The parts are {', '.join(f'{{{name}}}' for name in LINK_PLACES)}."
_EXAMPLES = {
    SourceKind.ISSUE_COMMENT: "https://tracker.example/{issue_id}#comment-{comment_id}",
    SourceKind.ISSUE_DOCUMENT: "https://tracker.example/{issue_id}/documents/{document_key}",
    SourceKind.ISSUE: "https://tracker.example/{issue_id}",
    SourceKind.RUN: "https://runs.example/{run_id}",
    SourceKind.ACTIVITY: "https://tracker.example/activity/{activity_id}",
    SourceKind.MANUAL_NOTE: "https://wiki.example/{external_ref}",
    SourceKind.EXTERNAL_DOCUMENT: "{external_ref}",
}


class Save(Protocol):
    """Saves the settings of the company."""

    def __call__(
        self, *, name: str, link_templates: dict[str, str], second_yes: bool | None
    ) -> Awaitable[CompanyView]:
        """Raise one of the contract's errors if it cannot be changed."""


class CompanyForm(Form[CompanyView | AwaitsSecond]):
    """Ask for the settings of a company; dismissed with it once it is saved, or why that waits."""

    def __init__(self, company: CompanyView, save: Save) -> None:
        super().__init__(f"Settings of {company.company_id}", go="save", about=(_ABOUT, _PARTS))
        self._company = company
        self._save = save
        links = company.link_templates
        self._begin: dict[str, str | bool] = {
            _NAME: company.name, _SECOND_YES: company.second_yes,
        }  # fmt: skip
        self._begin |= {kind.value: links.get(kind, "") for kind in SourceKind}

    def rows(self) -> Iterator[FieldRow]:
        """Yield the name, the second yes, and one template for each kind of source."""
        for field, value in self._begin.items():
            if isinstance(value, bool):
                about = display(ABOUT_SECOND_YES, style=DIM)
                yield FieldRow(field, field, Switch(value, animate=False), about)
                continue
            hint = "What the company is called on every screen."
            if field != _NAME:
                hint = "" if value else f"Such as {_EXAMPLES[SourceKind(field)]}"
            written = ForeignInput(value, placeholder="not set", compact=True)
            yield FieldRow(
                field, field.replace("_", " "), written, display(hint, limit=300, style=DIM)
            )

    @property
    def is_written(self) -> bool:
        """Whether the person changed a field."""
        return self.values != self._begin

    def action_submit(self) -> None:
        """Save the settings if the templates are valid."""
        links = self.values
        name, second_yes = links.pop(_NAME), links.pop(_SECOND_YES)
        found = {kind: link_problem(kind, template) for kind, template in links.items()}
        wrong = {kind: problem for kind, problem in found.items() if problem}
        if wrong:
            self.refused(f"{counted(len(wrong), 'link template')} cannot be taken.", wrong)
        else:
            changed = None if second_yes == self._company.second_yes else second_yes
            save = partial(self._save, name=name, link_templates=links, second_yes=changed)
            saving = Saving("saving the settings", save, self.dismiss, self.failed)
            self.app.push_screen(saving, lambda _: None)

    def failed(self, error: MemtuiError) -> None:
        """Show an error in the form; go back where the change waits for a second person."""
        if isinstance(error, AwaitsSecond):
            self.dismiss(error)
        else:
            super().failed(error)
