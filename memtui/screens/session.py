"""What the terminal app remembers from one start to the next."""

from __future__ import annotations

from pathlib import Path

from memtui.contract import Model, Scope
from memtui.screens.kept import load_document, save_document

_HISTORY = 50


class SavedCompany(Model):
    """Where a person was in one company."""

    screen: str = "records"
    scope: Scope | None = None
    filter_line: str = ""
    binding_key: str | None = None


class SavedSession(Model):
    """The last company, the theme, and where one was in each company."""

    company: str = ""
    theme: str = ""
    companies: dict[str, SavedCompany] = {}
    filters: tuple[str, ...] = ()
    """Filter lines applied before, the newest last."""

    def of(self, company_id: str) -> SavedCompany:
        """Return where one was in a company."""
        return self.companies.get(company_id, SavedCompany())

    def with_filter(self, line: str) -> SavedSession:
        """Return a session whose history ends with `line`."""
        if not line:
            return self
        kept = [one for one in self.filters if one != line]
        return self.model_copy(update={"filters": tuple([*kept, line][-_HISTORY:])})


def load_session(path: Path) -> SavedSession:
    """Read the session; there being none is an empty one.

    Raises:
        Invalid: the file cannot be read as a session.
    """
    problem = f"The last session in {path} cannot be read, so memtui starts afresh."
    return load_document(path, SavedSession, problem)


def save_session(path: Path, session: SavedSession) -> None:
    """Write the session as `save_document` does."""
    save_document(path, session)
