"""Every check, one module a subject, in the order in which a report lists them."""

from __future__ import annotations

from memtui.conformance.check import Check

from . import (
    expiring,
    forgetting,
    health,
    load,
    malformed,
    namespaces,
    pinning,
    propagation,
    refusals,
    searching,
    writing,
)

CHECKS: tuple[Check, ...] = tuple(
    found
    for module in (
        health,
        namespaces,
        writing,
        searching,
        expiring,
        pinning,
        propagation,
        forgetting,
        refusals,
        load,
        malformed,
    )
    for found in module.check.checks
)

__all__ = ["CHECKS"]
