"""The demo's chance: the same every time."""

from random import Random


def seeded(seed: int) -> Random:
    """Return a generator that gives the same numbers on every machine."""
    return Random(seed)  # noqa: S311 — it makes up a story, no secret
