"""Run a test as somebody whom the rights of files hold, though the tests run as root."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pytest

_VERSION = 0x20080522
_OVERRIDES = (1 << 1) | (1 << 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, see capabilities(7)."""


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


@pytest.fixture
def held_by_rights() -> Iterator[None]:
    """Let this thread, and those that it starts, open only what their rights allow."""
    if not sys.platform.startswith("linux"):
        pytest.skip("capabilities are Linux's")
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION, 0), (_Sets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective = before & ~_OVERRIDES
    assert libc.capset(ctypes.byref(header), sets) == 0
    yield
    sets[0].effective = before
    assert libc.capset(ctypes.byref(header), sets) == 0
