"""The service does what the plain model of it does, over each provider that can be written to."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import machine_for
from tests.model.world import PROVIDERS, Make


@pytest.mark.parametrize("provider", PROVIDERS)
def test_whatever_is_done_ends_as_the_model_says(provider: str, make: Make) -> None:
    many = settings().max_examples  # of the profile
    is_quick = many <= 25  # the same programs each time, and what fails as it was drawn
    run_state_machine_as_test(
        machine_for(provider, make),
        settings=settings(
            max_examples=many // 8,
            stateful_step_count=20,
            derandomize=is_quick,
            phases=[Phase.generate] if is_quick else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
