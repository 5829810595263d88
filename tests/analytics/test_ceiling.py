from __future__ import annotations

import resource
from pathlib import Path

import pytest

from memtui.analytics.sql import memory_ceiling

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the ceiling on memory needs /proc"
)


def test_what_goes_through_the_ceiling_fails_and_the_limit_is_lifted_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_ceiling(64), pytest.raises(MemoryError):
        bytearray(512 * 2**20)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(bytearray(512 * 2**20)) == 512 * 2**20


def test_the_first_of_several_blocks_sets_it_and_the_last_lifts_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    first, second = memory_ceiling(64), memory_ceiling(4096)
    first.__enter__()
    set_by_first = resource.getrlimit(resource.RLIMIT_DATA)
    second.__enter__()
    first.__exit__(None, None, None)
    assert resource.getrlimit(resource.RLIMIT_DATA) == set_by_first != before
    second.__exit__(None, None, None)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_limit_that_was_lower_stays() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    lower = 3 * 2**30
    resource.setrlimit(resource.RLIMIT_DATA, (lower, hard))
    try:
        with memory_ceiling(100_000):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == lower
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
