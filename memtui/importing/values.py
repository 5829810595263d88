"""Convert foreign values. One that does not fit raises `ValueError` with the reason."""

import json
import math
import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from memtui.contract import OperationStatus, OperationType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_CARRIED = frozenset({str, int, bool, type(None)})
_ID_CHARS = 200
_LAST_SECOND = Decimal(253402300799)
"""The end of the year 9999."""

_OF_ANOTHER_LOG = {
    OperationType.SEAL: OperationType.CONFIGURE,
    OperationType.PURGE: OperationType.FORGET,
    OperationType.REPAIR: OperationType.CONFIGURE,
}
"""Operations on a foreign log itself, and the types they get here: they do not concern our log."""

M = TypeVar("M", OperationStatus, OperationType)


def moment(value: Any, zone: tzinfo) -> tuple[datetime, bool]:
    """Return the moment in UTC, and whether it had no zone and was read in `zone`."""
    if isinstance(value, datetime):
        found = value
    elif isinstance(value, date):
        found = datetime(value.year, value.month, value.day)  # noqa: DTZ001 — gets its zone below
    elif isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(f"{shown(value)} is not a time")  # noqa: TRY004 — a reason for a person
    elif not isinstance(value, str) or _NUMBER.fullmatch(value.strip()):
        return _since_epoch(value), False
    else:
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise ValueError(
                f"{shown(value)} is not a time; write ISO 8601, or seconds since 1970"
            ) from error
    naive = found.tzinfo is None
    try:
        return (found.replace(tzinfo=zone) if naive else found).astimezone(UTC), naive
    except OverflowError as error:
        raise ValueError(f"{shown(value)} is out of range") from error


def _since_epoch(value: str | float | Decimal) -> datetime:
    """Return the moment in the largest unit, seconds to nanoseconds, before the year 5138."""
    number = decimal(value)
    for unit in (1, 1_000, 1_000_000, 1_000_000_000):
        if abs(number) < 10**11 * unit:
            seconds = number / unit
            break
    else:
        raise ValueError(f"{shown(value)} is out of range")
    if not 0 <= seconds <= _LAST_SECOND:
        raise ValueError(f"{shown(value)} is before 1970")
    return _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))


def microseconds(at: datetime) -> int:
    """Return the microseconds from 1970 to a moment."""
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    """Return the moment so many microseconds after 1970 began."""
    return _EPOCH + timedelta(microseconds=count)


def decimal(value: Any) -> Decimal:
    """Return a finite number, exactly as it was written."""
    if not isinstance(value, bool) and isinstance(value, str | int | float | Decimal):
        try:
            number = Decimal(str(value).strip())
        except InvalidOperation:
            number = Decimal("nan")
        if number.is_finite():
            return number
    raise ValueError(f"{shown(value)} is not a number")


def count(value: Any) -> int:
    """Return a whole number from 0 on."""
    if type(value) is int and 0 <= value < 2**63:
        return value
    number = decimal(value)
    if number < 0 or number >= 2**63 or number != number.to_integral_value():
        raise ValueError(f"{shown(value)} is not a whole number from 0 on")
    return int(number)


def duration(value: Any) -> Decimal:
    """Return a duration in milliseconds."""
    number = decimal(value / _MILLISECOND if isinstance(value, timedelta) else value)
    if not 0 <= number < 10**15:
        raise ValueError(f"{shown(value)} is not a length of time")
    return number


def money(value: Any) -> Decimal:
    """Return US dollars, rounded to 1e-12."""
    text = value.strip().removeprefix("$") if isinstance(value, str) else value
    number = decimal(text)
    if not 0 <= number <= 9_000_000:
        raise ValueError(f"{shown(value)} is not a cost in US dollars")
    return number.quantize(Decimal("1e-12"))


def flag(value: Any) -> bool:
    """Return a truth value."""
    word = str(value).strip().lower()
    if word in {"true", "1", "yes", "t"}:
        return True
    if word in {"false", "0", "no", "f", ""}:
        return False
    raise ValueError(f"{shown(value)} is neither true nor false")


def text(value: Any) -> str:
    """Return a text; of a structure, its JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(plain(value))


def unicode(value: Any) -> str:
    """Return a text of valid Unicode, without lone surrogates."""
    found = text(value)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{shown(value)} is not valid Unicode") from error
    return found


def identifier(value: Any) -> str:
    """Return an id: 1 to 200 printable characters."""
    found = (value if type(value) is str else text(value)).strip()
    if not 0 < len(found) <= _ID_CHARS or not found.isprintable():
        raise ValueError(
            f"{shown(value)} is not an id; ids have 1 to {_ID_CHARS} printable characters"
        )
    return found


def structure(value: Any, kind: type[Any]) -> Any:
    """Return a JSON object or list, given as such or as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{shown(value)} is not JSON") from error
    if not isinstance(value, kind):
        what = "object" if kind is dict else "list"
        raise ValueError(f"{shown(value)} is not a JSON {what}")  # noqa: TRY004 — as above
    return value


def operation_type(value: Any) -> OperationType:
    """Return the operation type of this name; one on a log itself becomes another type."""
    found = _member(OperationType, value, "a type of operation")
    return _OF_ANOTHER_LOG.get(found, found)


def status(value: Any) -> OperationStatus:
    """Return the status of this name."""
    return _member(OperationStatus, value, "a status")


def _member(kind: type[M], value: Any, what: str) -> M:
    try:
        return kind(text(value).strip().lower())
    except ValueError as error:
        known = ", ".join(kind)
        raise ValueError(f"{shown(value)} is not {what}; map it to one of {known}") from error


def plain(value: Any) -> Any:
    """Return a value that JSON can represent; of any other, its text."""
    if type(value) in _CARRIED:
        return value
    if isinstance(value, dict):
        return {name(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def name(key: object) -> str:
    """Return the name of a JSON member; lone surrogates, which JSON cannot carry, are escaped."""
    word = str(key)
    return word if word.isascii() else word.encode(errors="backslashreplace").decode()


def shown(value: Any) -> str:
    """Return the beginning of a value, for an error message."""
    word = str(value)
    return repr(word if len(word) <= 60 else word[:59] + "…")
