"""How `bindings conformance --forgetting` ends where a provider does not forget, or fails."""

from __future__ import annotations

from tests.channels.cli.conftest import Run
from tests.service.fake import FakeAdapter, down

CHECK = ("bindings", "conformance", "--forgetting", "default", "--yes", "--within", "0.3")


def test_a_ghost_ends_it_with_1_and_names_what_is_left(here: Run, fake: type[FakeAdapter]) -> None:
    fake.haunted = True
    ran = here(*CHECK)
    assert ran.code == 1
    assert "✗ found" in ran.out
    assert "Not gone in time." in ran.out
    left = ran.err.partition("Not removed again: ")[2].rstrip(".\n").split(", ")
    assert {*left} == {name for held in fake.records.values() for name in held}
    assert here(*CHECK, "--json").document["passed"] is False


def test_a_provider_that_is_down_ends_it_with_3(here: Run, fake: type[FakeAdapter]) -> None:
    fake.fault = down()
    ran = here(*CHECK)
    assert ran.code == 3
    assert ran.err == "The provider is down; try again.\n"
