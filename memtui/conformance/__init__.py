"""The memory plugin contract v1 as named checks of a running server (seed 001).

`run_conformance` is for the command line, screens and scripts; `memtui.conformance.suite` holds
the same checks as pytest tests.
"""

from __future__ import annotations

from .checks import CHECKS
from .probe import Check
from .runner import (
    TIMEOUT_S,
    TTL_S,
    CheckResult,
    Outcome,
    Report,
    ServerSeen,
    choose_checks,
    run_conformance,
)
from .wire import SeenReply, SentRequest

__all__ = [
    "CHECKS",
    "TIMEOUT_S",
    "TTL_S",
    "Check",
    "CheckResult",
    "Outcome",
    "Report",
    "SeenReply",
    "SentRequest",
    "ServerSeen",
    "choose_checks",
    "run_conformance",
]
