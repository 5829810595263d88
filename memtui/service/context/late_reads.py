"""Reads of a binding that were late several times in a row: hooks leave them out for a while.

Each hook is a separate process, so late reads are written to a file for the next one.
"""

import json
import logging
from datetime import datetime
from pathlib import Path

from memtui.paths import replacing
from memtui.service.connections import FAILURES_TO_OPEN, OPEN_SECONDS

LONGEST_SECONDS = 300.0
"""Most seconds for which a read is left out before it is tried again."""
_FILE = "late-reads.json"

_log = logging.getLogger(__name__)


class LateReads:
    """The late reads of one binding, by name, as its folder has them. Blocking.

    From the third in a row on a read is left out for a minute, and twice as long after each try
    that is late too.
    """

    def __init__(self, key: str, folder: Path, now: datetime) -> None:
        self.key = key
        """The binding's."""
        self._file, self._now = folder / _FILE, now.timestamp()
        self._known = _read(self._file)
        self._tried: dict[str, bool] = {}

    def seconds_left(self, name: str) -> float:
        """Return for how many seconds a read is still left out; 0: it can be tried."""
        left = self._known.get(name, (0, 0.0))[1] - self._now
        return left if 0 < left <= LONGEST_SECONDS else 0.0  # longer: the clock was set back

    def tried(self, name: str, *, was_late: bool) -> None:
        """Note a read that was tried; `keep` writes it."""
        self._tried[name] = was_late

    def keep(self) -> None:
        """Write what changed for the next hook; log where that is not possible."""
        noted = dict(self._known)
        for name, was_late in self._tried.items():
            times = noted.pop(name, (0, 0.0))[0] + 1
            if was_late:
                more = min(times - FAILURES_TO_OPEN, 10)
                seconds = min(OPEN_SECONDS * 2**more, LONGEST_SECONDS) if more >= 0 else 0.0
                noted[name] = times, self._now + seconds
        if noted == self._known:
            return
        try:
            with replacing(self._file) as fresh:
                fresh.write_text(json.dumps(noted), "utf-8")
        except OSError as error:
            _log.warning("Cannot note late reads in %s: %s", self._file, error.strerror)


def _read(file: Path) -> dict[str, tuple[int, float]]:
    """Return a file's entries; none if it is absent or damaged."""
    try:
        found = json.loads(file.read_bytes())
        return {name: (int(times), float(until)) for name, (times, until) in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        _log.warning("Cannot read %s (%s); the reads are tried.", file, error)
        return {}
