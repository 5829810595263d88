"""The demo's own time: it stands still until it is moved."""

from __future__ import annotations

from datetime import datetime, timedelta


class DemoClock:
    """UTC time and a monotonic timer that move together.

    Of what is timed, `takes` passes at every second reading of the timer: it took that long.
    """

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._moment = start
        self._takes = timedelta(0)
        self._readings = 0

    def now(self) -> datetime:
        """Return the present moment, UTC."""
        return self._moment

    def timer(self) -> float:
        """Return the seconds since the start."""
        self._readings += 1
        if self._readings % 2 == 0:
            self._moment += self._takes
        return (self._moment - self._start).total_seconds()

    def move_to(self, moment: datetime, *, takes: timedelta) -> None:
        """Go on to `moment`, where something happens that takes a while; time never goes back."""
        self._moment = max(self._moment, moment)
        self._takes = takes
        self._readings = 0
