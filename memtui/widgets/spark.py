"""A row of numbers as small bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the newest `width` values as bars from zero to the largest of them."""
    shown = values[-width:]
    largest = max(shown, default=0.0)
    if largest <= 0:
        return _BARS[0] * len(shown)
    steps = len(_BARS) - 1
    return "".join(_BARS[min(steps, max(0, round(value / largest * steps)))] for value in shown)
