"""The memory plugin contract v1 as named checks of a running server (seed 001).

`run_conformance` is for the command line, screens and scripts; `memtui.conformance.suite` holds
the same checks as pytest tests.
"""

from __future__ import annotations

from .check import Check
from .checks import CHECKS
from .report import CheckResult, Outcome, Report, SeenReply, SentRequest, ServerSeen
from .runner import TIMEOUT_S, TTL_S, choose_checks, run_conformance

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
