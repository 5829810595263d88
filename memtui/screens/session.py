"""What the terminal app remembers from one start to the next."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from memtui.contract import Invalid, Model, Scope

_HISTORY = 50


class CompanySession(Model):
    """Where a person was in one company."""

    screen: str = "records"
    scope: Scope | None = None
    filter_line: str = ""
    binding_key: str | None = None


class Session(Model):
    """The last company, the theme, and where one was in each company."""

    company: str = ""
    theme: str = ""
    companies: dict[str, CompanySession] = {}
    filters: tuple[str, ...] = ()
    """Filter lines applied before, the newest last."""

    def of(self, company_id: str) -> CompanySession:
        """Return where one was in a company."""
        return self.companies.get(company_id, CompanySession())

    def with_filter(self, line: str) -> Session:
        """Return a session whose history ends with `line`."""
        if not line:
            return self
        kept = [one for one in self.filters if one != line]
        return self.model_copy(update={"filters": tuple([*kept, line][-_HISTORY:])})


def load_session(path: Path) -> Session:
    """Read the session; there being none is an empty one.

    Raises:
        Invalid: the file cannot be read as a session.
    """
    try:
        return Session.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Session()
    except (OSError, ValidationError) as error:
        raise Invalid(
            f"The last session in {path} cannot be read, so memtui starts afresh."
        ) from error


def save_session(path: Path, session: Session) -> None:
    """Write the session as `save_document` does."""
    save_document(path, session.model_dump_json(indent=1))


def save_document(path: Path, text: str) -> None:
    """Write a file of the app's own with mode 0600, all of it or nothing.

    Raises:
        Invalid: the file cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise Invalid(f"The file {path} cannot be kept ({error.strerror}).") from error
