"""The form of a company: its display name, and link templates for each kind of source."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Protocol

from memtui.contract import SourceKind
from memtui.presenters.format import counted
from memtui.screens.dialogs import Saving
from memtui.screens.form import FieldRow, Form
from memtui.service.answers import CompanyView
from memtui.service.home.companies import LINK_PLACES, link_problem
from memtui.widgets.display import DIM, display
from memtui.widgets.editor import ForeignInput

_NAME = "name"
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

    def __call__(self, *, name: str, link_templates: dict[str, str]) -> Awaitable[CompanyView]:
        """Raise one of the contract's errors if it cannot be changed."""


class CompanyForm(Form[CompanyView]):
    """Ask for a company's name and link templates; dismissed with the company once it is saved."""

    def __init__(self, company: CompanyView, save: Save) -> None:
        super().__init__(f"Settings of {company.company_id}", go="save", about=(_ABOUT, _PARTS))
        self._company = company
        self._save = save
        links = company.link_templates
        self._begin = {_NAME: company.name}
        self._begin |= {kind.value: links.get(kind, "") for kind in SourceKind}

    def rows(self) -> Iterator[FieldRow]:
        """Yield the name, and one template for each kind of source."""
        for field, value in self._begin.items():
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
        name = links.pop(_NAME)
        found = {kind: link_problem(kind, template) for kind, template in links.items()}
        wrong = {kind: problem for kind, problem in found.items() if problem}
        if wrong:
            self.refused(f"{counted(len(wrong), 'link template')} cannot be taken.", wrong)
        else:
            save = partial(self._save, name=name, link_templates=links)
            saving = Saving("saving the settings", save, self._saved, self.failed)
            self.app.push_screen(saving, lambda _: None)

    def _saved(self, company: CompanyView) -> None:
        self.dismiss(company)
