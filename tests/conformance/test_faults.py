"""Every planted fault is found by the check that names it, and no other check is blamed."""

from __future__ import annotations

import pytest

from memtui.conformance import CHECKS, run_conformance

from .conftest import TTL_S, Serve, failed
from .faults import FAULTS, Fault

UNRELATED = {"namespace-shape", "write-sources", "search-shape"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_the_fault_is_found(serve: Serve, fault: Fault) -> None:
    plugin = fault.plugin()
    expected = {fault.check, *fault.also}
    only = sorted(expected | UNRELATED)
    report = await run_conformance(await serve(plugin), only=only, ttl_s=TTL_S)
    assert failed(report) == expected
    found = next(one for one in report.checks if one.name == fault.check)
    assert found.detail
    assert found.request is not None


def test_there_are_faults_for_every_part_of_the_contract() -> None:
    named = {fault.check for fault in FAULTS.values()}
    assert len(FAULTS) >= 25
    assert named <= {check.name for check in CHECKS}
    subjects = {check.name.partition("-")[0] for check in CHECKS}
    assert subjects - {name.partition("-")[0] for name in named} == {"recovery"}


def test_every_check_has_a_name_a_rule_and_a_source() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.rule.endswith("."), check.name
        assert check.source, check.name
