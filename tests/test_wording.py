"""Shared sentences of error messages."""

from memtui.wording import unknown


def test_of_many_names_the_nearest_few_are_named() -> None:
    runs = [f"run-{n:04}" for n in range(1000)] + ["deploy-1", "deploy-2"]
    said = unknown("run", "dep", runs)
    assert said.startswith("There is no run dep; of 1,002 runs the nearest are deploy-")
    assert said.count("-") == 4
    assert unknown("run", "depoly-2", runs) == "There is no run depoly-2; did you mean deploy-2?"
    assert (
        unknown("run", "nope", runs[:2]) == "There is no run nope; the runs are run-0000, run-0001."
    )
