"""A database's refusal as an error of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError

from memtui.contract import Conflict, Denied, Invalid, MemtuiError, Unavailable

_DENIED = frozenset({"42501", "25006", "28000", "28P01", "SQLITE_READONLY"})
_CLASH = frozenset({"23505", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"})
_MISSING = frozenset({"23503", "SQLITE_CONSTRAINT_FOREIGNKEY"})
_CHANGED = frozenset({"42P01", "42703", "42804"})


def code_of(error: DBAPIError) -> str:
    """Return PostgreSQL's state code, or SQLite's name of the error."""
    original = error.orig
    return str(
        getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None) or ""
    )


def is_missing_parent(error: IntegrityError) -> bool:
    """Whether a foreign key names a row that is not there."""
    return code_of(error) in _MISSING


@contextmanager
def translated(*, sent: bool = False) -> Iterator[None]:
    """Raise the contract's errors for the database's; `sent`: it may have taken effect."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise Invalid("The text holds a lone surrogate, which no database keeps.") from error
    except DBAPIError as error:
        raise _translate(error, sent=sent) from error


def _translate(error: DBAPIError, *, sent: bool) -> MemtuiError:
    code, reason = code_of(error), _reason(error)
    if code in _DENIED:
        return Denied(f"The database does not allow it ({reason}); ask its owner for the right.")
    if code in _CLASH:
        return Conflict("A fact of the same id is there already; read it and try again.")
    if code in _CHANGED:
        return Unavailable(f"The fact tables are not what they were ({reason}); open them anew.")
    if code.startswith(("22", "23")) or "NUL" in reason:
        return Invalid(f"The database does not take it ({reason}).")
    return Unavailable(
        f"The facts' database failed ({reason}); check its disk or server and try again.", sent=sent
    )


def _reason(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0][:200] if lines else type(error.orig).__name__
