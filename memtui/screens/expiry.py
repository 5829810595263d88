"""When something is to expire, as a person writes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from memtui.contract import Invalid
from memtui.screens.state import AppState

_SPAN = re.compile(r"(\d{1,5})\s*(min|h|d|w|mo?|y)")
_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}


def parse_expiry(text: str, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the moment of a span from now (`30min 6h 7d 2w 3mo 1y`), a date or ISO 8601.

    A date or clock time without an offset is in `zone`, the system's where it is None.

    Raises:
        Invalid: the text is none of these, or not ahead.
    """
    written = text.strip()
    try:
        if span := _SPAN.fullmatch(written):
            moment = now + int(span[1]) * _UNITS[span[2]]
        else:
            moment = datetime.fromisoformat(written)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=zone) if zone else moment.astimezone()
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise Invalid(f"{written} lies outside of the calendar; give a nearer time.") from error
    except ValueError as error:
        raise Invalid(
            f"{written!r} is not a time; try 30d, 6h, 2026-12-31 or 2026-12-31T14:30."
        ) from error
    if moment <= now:
        raise Invalid(f"{written} is over already; give a time that is still to come.")
    return moment


def moment_or_never(text: str, state: AppState) -> datetime | None:
    """Return `parse_expiry` of what was written, now and here; None for nothing, which is never."""
    if not text.strip():
        return None
    return parse_expiry(text, now=state.clock(), zone=state.zone)


def written_expiry(moment: datetime | None, state: AppState) -> str:
    """Return a moment as it is offered to be changed; nothing for never."""
    return moment.astimezone(state.zone).isoformat("T", "minutes") if moment else ""
