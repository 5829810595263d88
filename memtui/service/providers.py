"""Find providers by entry point: their names without loading one, one without loading all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from memtui.contract import Adapter, Invalid

GROUP = "memtui.providers"
"""The entry point group that a provider's package registers its `Adapter` class in."""


class Providers:
    """The providers installed here. Tests and embedders may add classes of their own."""

    def __init__(self, extra: Mapping[str, type[Adapter]] | None = None) -> None:
        self._loaded: dict[str, type[Adapter]] = dict(extra or {})

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=GROUP)}

    def names(self) -> list[str]:
        """Return every provider's name, sorted; loads none."""
        return sorted({*self._entry_points, *self._loaded})

    def load(self, name: str) -> type[Adapter]:
        """Return a provider's adapter class.

        Raises:
            Invalid: there is no such provider, or its package does not import.
        """
        if name in self._loaded:
            return self._loaded[name]
        if name not in self._entry_points:
            known = ", ".join(self.names())
            raise Invalid(f"There is no provider {name}; installed are: {known}.")
        try:
            loaded = self._entry_points[name].load()
        except Exception as error:  # a stranger's package may fail in any way
            raise Invalid(
                f"The provider {name} does not import ({error}); install what it needs."
            ) from error
        if not (isinstance(loaded, type) and issubclass(loaded, Adapter)):
            raise Invalid(f"The entry point of provider {name} is no memtui Adapter.")
        self._loaded[name] = loaded
        return loaded
