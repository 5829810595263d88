"""The conformance report of a memory plugin: each rule of the contract, tried."""

from __future__ import annotations

from memtui.screens.conformance.screen import Conformance

__all__ = ["Conformance"]
