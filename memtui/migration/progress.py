"""How far a run has come, told as each record is finished, and not more often than is of use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from memtui.contract import Model

_BETWEEN_SECONDS = 0.1
"""How long nothing is told after a report."""
_WINDOW_SECONDS = 10.0
"""The rate is that of these last seconds: a run that goes on begins with what is there already."""


class Progress(Model):
    """How far a run has come."""

    done: int
    total: int | None
    """None: not known yet."""
    found: int = 0
    """While the source is still searched for its records: how many there are so far."""
    failed: int
    rate: float
    """Records a second, in the last ten seconds."""
    seconds_left: float | None


class Pace:
    """Counts finished records, and reports them at most ten times a second."""

    def __init__(
        self, report: Callable[[Progress], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self.done = 0
        self.failed = 0
        self.total: int | None = None
        """None: not known yet."""
        self._report = report
        self._clock = clock
        self._marks = deque([(clock(), 0)])
        self._told_at: float | None = None

    def add(self, records: int = 1) -> None:
        """Count records as finished."""
        self.done += records
        now = self._clock()
        if self._told_at is None or now - self._told_at >= _BETWEEN_SECONDS:
            self.tell()

    def search(self, found: int) -> None:
        """Report that the source is still searched."""
        self._report(
            Progress(done=0, total=None, found=found, failed=0, rate=0.0, seconds_left=None)
        )

    def tell(self) -> None:
        """Report now."""
        now = self._told_at = self._clock()
        self._marks.append((now, self.done))
        while len(self._marks) > 2 and self._marks[1][0] <= now - _WINDOW_SECONDS:
            self._marks.popleft()
        began, before = self._marks[0]
        rate = (self.done - before) / max(now - began, 1e-6)
        left = None if self.total is None or not rate else max(0, self.total - self.done) / rate
        self._report(
            Progress(
                done=self.done,
                total=self.total,
                failed=self.failed,
                rate=rate,
                seconds_left=left,
            )
        )
