"""Find providers by entry point: their names without loading one, one without loading all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from pydantic import BaseModel

from memtui.contract import Adapter, Invalid, Json, MemtuiError, Unavailable
from memtui.threads import use_loose_threads

T = TypeVar("T")

GROUP = "memtui.providers"
"""The entry point group that a provider's package registers its `Adapter` class in."""
_OWN = "memtui"
_SHOWN_CHARS = 300


class Providers:
    """The providers installed here. Tests and embedders may add classes of their own."""

    def __init__(self, extra: Mapping[str, type[Adapter]] | None = None) -> None:
        self._extra = dict(extra or {})
        self._loaded: dict[str, type[Adapter]] = dict(self._extra)

    @cached_property
    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        found: defaultdict[str, dict[tuple[str, str], EntryPoint]] = defaultdict(dict)
        for entry in entry_points(group=GROUP):
            found[entry.name][_package(entry), entry.value] = entry
        return {name: list(entries.values()) for name, entries in found.items()}

    def names(self) -> list[str]:
        """Return every provider's name, sorted; loads none."""
        return sorted({*self._entry_points, *self._extra})

    def package(self, name: str) -> str:
        """Return the package that a provider comes in."""
        if name in self._extra:
            return _OWN
        packages = sorted(map(_package, self._entry_points.get(name, [])))
        return _OWN if _OWN in packages else " and ".join(packages)

    def is_foreign(self, name: str) -> bool:
        """Whether a provider comes from a package of somebody else."""
        return self.package(name) != _OWN

    def loaded(self, name: str) -> type[Adapter] | None:
        """Return a provider's class if it is loaded already."""
        return self._loaded.get(name)

    def load(self, name: str) -> type[Adapter]:
        """Return a provider's adapter class. Blocking: its package does what it likes meanwhile.

        Raises:
            Invalid: there is no such provider, more than one, or its package does not import.
        """
        if (known := self._loaded.get(name)) is not None:
            return known
        entries = self._entry_points.get(name)
        if entries is None:
            known_names = ", ".join(self.names())
            raise Invalid(f"There is no provider {name}; installed are: {known_names}.")
        if self.package(name) == _OWN:
            entries = [entry for entry in entries if _package(entry) == _OWN]
        if len(entries) > 1:
            raise Invalid(
                f"More than one class is registered as provider {name}, by {self.package(name)}; "
                "none of them is used until only one is installed."
            )
        try:
            loaded = entries[0].load()
        except BaseException as error:  # a stranger's package may fail in any way, and exit too
            why = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN_CHARS]
            raise Invalid(
                f"The provider {name} does not import ({why}); "
                f"mend or remove the package {self.package(name)}."
            ) from error
        _check(loaded, name, self.package(name))
        self._loaded[name] = loaded
        return loaded  # type: ignore[no-any-return]  # just checked

    async def within(self, name: str, timeout_ms: int, work: Callable[[], T]) -> T:
        """Run code of a provider's package in a thread, where it can block nobody else.

        Raises:
            Unavailable: it is another's package and does not come to an end.
        """
        use_loose_threads()
        try:
            async with asyncio.timeout(timeout_ms / 1000 if self.is_foreign(name) else None):
                return await asyncio.to_thread(work)
        except TimeoutError as error:
            raise Unavailable(
                f"The provider {name} did not load within {timeout_ms / 1000:g} s; "
                f"mend or remove the package {self.package(name)}."
            ) from error

    async def problems(self, timeout_ms: int) -> list[str]:
        """Say which providers of other packages are not used and why; loads them all."""
        found = [
            f"The package {_package(entry)} registers a provider {name} too; memtui's own is used."
            for name, entries in self._entry_points.items()
            if self.package(name) == _OWN
            for entry in entries
            if _package(entry) != _OWN
        ]
        for name in filter(self.is_foreign, self.names()):
            try:
                await self.within(name, timeout_ms, partial(self.load, name))
            except MemtuiError as error:
                found.append(str(error))
        return found

    def check_config(self, name: str, config: Mapping[str, object]) -> Json:
        """Return a binding's config as the provider understands it. Blocking as `load` is.

        Raises:
            Invalid: the provider does not load, or a key or value does not fit.
        """
        from pydantic import ValidationError

        model = self.load(name).config_model
        try:
            checked = model.model_validate(dict(config))
            return checked.model_dump(mode="json", exclude_unset=True)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            known = ", ".join(model.model_fields)
            raise Invalid(
                f"The config of {name} does not fit at {field}: {first['msg']}; "
                f"its keys are: {known}."
            ) from error


def _package(entry: EntryPoint) -> str:
    return str(entry.dist.name) if entry.dist else entry.value.partition(":")[0].partition(".")[0]


def _check(loaded: object, name: str, package: str) -> None:
    if not (isinstance(loaded, type) and issubclass(loaded, Adapter)):
        raise Invalid(
            f"The entry point of provider {name} is no memtui Adapter; "
            f"update or remove the package {package}."
        )
    key = getattr(loaded, "key", None)
    if key != name:
        raise Invalid(
            f"The provider {name} of the package {package} calls itself {key!r}, and its records "
            "would be nobody's; its class needs the key of its entry point."
        )
    model = getattr(loaded, "config_model", None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise Invalid(
            f"The provider {name} of the package {package} has no config_model; "
            "update or remove the package."
        )
