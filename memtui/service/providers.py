"""Find installed providers by entry point, and isolate those of other packages.

Listing the names loads no provider, and loading one loads no other. A provider of another package
("foreign") runs on a separate event loop in a thread, and its replies are checked. So the code of a
provider can affect its own bindings only: if it blocks, loops for ever or exits, memtui's event
loop continues, and a reply of a wrong type is reported as the package's error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from memtui import __version__
from memtui.contract import (
    Adapter,
    BindingContext,
    Capabilities,
    Conflict,
    Invalid,
    Json,
    MemtuiError,
    Record,
    RecordHandle,
    Unavailable,
)
from memtui.threads import use_loose_threads
from memtui.wording import misfit

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

    from memtui.service.home.provider_views import ProviderView

_log = logging.getLogger(__name__)

T = TypeVar("T")


def unexpected(provider: str, error: Exception) -> Unavailable:
    """Log an unexpected error of a provider, and return the error for the caller."""
    _log.error("The provider %s failed unexpectedly", provider, exc_info=error)
    return Unavailable(
        f"{provider} failed unexpectedly ({type(error).__name__}); the log file says more.",
        sent=True,
    )


_is_theirs: ContextVar[bool] = ContextVar("is_theirs", default=False)
"""Whether the running code is another package's."""


class _OwnOutput:
    """Standard output for memtui alone; output of other packages goes to standard error.

    Programs parse a command's output, and a protocol such as MCP may use it.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _is_theirs.get() else self._output, name)


GROUP = "memtui.providers"
"""The entry point group that a provider's package registers its `Adapter` class in."""
_OWN = "memtui"
_OF_DEMO = "demo-hosted"
_SHOWN_CHARS = 300


@cache
def own_providers() -> dict[str, str]:
    """Return the classes of memtui's own providers by name, as its entry points write them.

    It reads their file itself: `importlib.metadata` costs a query a tenth of its time.
    """
    for folder in sys.path:
        for file in Path(folder).glob(f"{_OWN}-*.dist-info/entry_points.txt"):
            group = file.read_text("utf-8").partition(f"[{GROUP}]\n")[2].partition("\n[")[0]
            pairs = (line.partition("=") for line in group.splitlines())
            return {name.strip(): value.strip() for name, equals, value in pairs if equals}
    return {}


class Providers:
    """The installed providers. Tests and embedding programs may add further classes."""

    def __init__(
        self,
        extra: Mapping[str, type[Adapter]] | None = None,
        *,
        timeout_ms: int = 10_000,
        is_demo: bool = False,
    ) -> None:
        """Create with further classes by name, and the time limit for another package to load.

        Only in a demo do the names contain the demo's own provider.
        """
        self._left_out = set() if is_demo else {_OF_DEMO}
        self._timeout_s = timeout_ms / 1000
        self._extra = dict(extra or {})
        self._loaded: dict[str, type[Adapter]] = dict(self._extra)
        self._views: dict[str, ProviderView] = {}
        """Cached descriptions of usable providers."""

    @cached_property
    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        from importlib.metadata import entry_points

        found: defaultdict[str, dict[tuple[str, str], EntryPoint]] = defaultdict(dict)
        for entry in entry_points(group=GROUP):
            found[entry.name][_package(entry), entry.value] = entry
        return {name: list(entries.values()) for name, entries in found.items()}

    def names(self) -> list[str]:
        """Return the names of the providers to choose from, sorted, without loading any."""
        return sorted({*self._entry_points, *self._extra} - self._left_out)

    def package(self, name: str) -> str:
        """Return the package of a provider; several, joined by `and`, if their names collide."""
        if name in self._extra or name in own_providers():
            return _OWN
        return " and ".join(sorted(map(_package, self._entry_points.get(name, []))))

    def is_foreign(self, name: str) -> bool:
        """Whether a provider comes from another package than memtui."""
        return self.package(name) != _OWN

    def loaded(self, name: str) -> type[Adapter] | None:
        """Return a provider's class if it is already loaded, else None."""
        return self._loaded.get(name)

    def load(self, name: str) -> type[Adapter]:
        """Return a provider's adapter class. Blocking, and runs the package's import code.

        Raises:
            Invalid: there is no such provider, or several; or its package cannot be imported, or
                registers something else than an adapter class.
        """
        if (known := self._loaded.get(name)) is not None:
            return known
        entries = self._registered(name)
        if len(entries) > 1:
            raise Invalid(
                f"More than one class is registered as provider {name}, by {self.package(name)}; "
                "none of them is used until only one is installed."
            )
        own = own_providers().get(name)
        try:
            loaded = resolve_name(own) if own else entries[0].load()
        except BaseException as error:  # a third-party package may fail in any way, or exit
            raise self._faulty(name, "does not import", error) from error
        _check(loaded, name, self.package(name))
        self._loaded[name] = loaded
        return loaded  # type: ignore[no-any-return]  # just checked

    async def view(self, name: str) -> ProviderView:
        """Return the description of a provider; if it does not load, with the reason.

        Raises:
            Invalid: there is no such provider.
        """
        from memtui.service.home.provider_views import ProviderView, class_view

        self._registered(name)
        if name in self._views:
            return self._views[name]
        known = {
            "key": name,
            "package": self.package(name),
            "version": self._version(name),
            "foreign": self.is_foreign(name),
            "problem": " ".join(self._namesakes(name)) or None,
        }
        try:
            described = await self.within(name, partial(self._described, name, class_view))
        except MemtuiError as error:
            return ProviderView(**known | {"usable": False, "problem": str(error)})
        view = self._views[name] = ProviderView(**known | described)
        return view

    def _described(self, name: str, look: Callable[[type[Adapter]], Json]) -> Json:
        provider = self.load(name)
        try:
            return look(provider)
        except BaseException as error:  # a third-party class may run code, and fail in any way
            raise self._faulty(name, "does not say what can be set", error) from error

    def _registered(self, name: str) -> list[EntryPoint]:
        """Return a provider's entry points, normally one; none for memtui's own or an added class.

        Raises:
            Invalid: there is no such provider.
        """
        if name in self._extra or name in own_providers():
            return []
        entries = self._entry_points.get(name)
        if entries is None:
            known = ", ".join(self.names())
            raise Invalid(f"There is no provider {name}; the providers are: {known}.")
        return entries

    def _version(self, name: str) -> str | None:
        if name in own_providers():
            return __version__
        found = {entry.dist.version for entry in self._registered(name) if entry.dist}
        return found.pop() if len(found) == 1 else None

    def _faulty(self, name: str, what: str, error: BaseException) -> Invalid:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN_CHARS]
        return Invalid(
            f"The provider {name} {what} ({why}); fix or remove the package {self.package(name)}."
        )

    def _namesakes(self, name: str) -> Iterator[str]:
        """Yield a sentence for each other package that uses the name of a memtui provider."""
        for entry in self._entry_points.get(name, ()):
            if self.package(name) == _OWN != _package(entry):
                yield (
                    f"The package {_package(entry)} registers a provider {name} too; "
                    "memtui's own is used."
                )

    async def within(self, name: str, work: Callable[[], T]) -> T:
        """Run code of a provider's package in a thread, so that it does not block the event loop.

        Raises:
            Unavailable: it is another package's, and does not end within the time limit.
        """
        use_loose_threads()
        if not self.is_foreign(name):
            return await asyncio.to_thread(work)

        def theirs() -> T:
            _is_theirs.set(True)
            return work()

        if not isinstance(sys.stdout, _OwnOutput):
            sys.stdout = cast("TextIO", _OwnOutput(sys.stdout))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(theirs)
        except TimeoutError as error:
            raise Unavailable(
                f"The provider {name} did not load within {self._timeout_s:g} s; "
                f"fix or remove the package {self.package(name)}."
            ) from error

    async def problems(self) -> list[str]:
        """Return why providers of other packages are not used, in sentences; loads them all."""

        def namesakes() -> list[str]:
            return [said for name in self._entry_points for said in self._namesakes(name)]

        found = await asyncio.to_thread(namesakes)
        for name in filter(self.is_foreign, self.names()):
            try:
                await self.within(name, partial(self.load, name))
            except MemtuiError as error:
                found.append(str(error))
        return found

    def check_config(self, name: str, config: Mapping[str, object]) -> Json:
        """Return a binding's config, validated by the provider's model. Blocking, like `load`.

        Raises:
            Invalid: the provider does not load, or a key or value does not fit.
        """
        model = self.load(name).config_model
        try:
            checked = model.model_validate(dict(config))
            return checked.model_dump(mode="json", exclude_unset=True, by_alias=True)
        except ValidationError as error:
            raise BadConfig(name, list(model.model_fields), error) from error


class BadConfig(Invalid):
    """A config that does not fit its provider; `fields` has the problem of each setting."""

    def __init__(self, provider: str, known: Sequence[str], error: ValidationError) -> None:
        # A misspelled key is also missing under its right name: name the misspelled one first.
        found = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in found[0]["loc"])
        super().__init__(
            f"The config of {provider} does not fit{where and f' at {where}'}: {misfit(found[0])}; "
            f"its keys are: {', '.join(known)}."
        )
        self.fields = {str(one["loc"][0]): misfit(one) for one in reversed(found) if one["loc"]}


def _package(entry: EntryPoint) -> str:
    return _name(entry.dist) if entry.dist else entry.value.partition(":")[0].partition(".")[0]


@cache  # reading the name parses the whole metadata of the package
def _name(package: Distribution) -> str:
    return package.name


def _check(loaded: object, name: str, package: str) -> None:
    if not (isinstance(loaded, type) and issubclass(loaded, Adapter)):
        raise Invalid(
            f"The entry point of provider {name} is not a memtui Adapter; "
            f"update or remove the package {package}."
        )
    key = getattr(loaded, "key", None)
    if key != name:
        raise Invalid(
            f"The provider {name} of the package {package} calls itself {key!r}, so its records "
            "would belong to no provider; give its class the key of its entry point."
        )
    model = getattr(loaded, "config_model", None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise Invalid(
            f"The provider {name} of the package {package} has no config_model; "
            "update or remove the package."
        )


_CLEARING_S = 1.0


async def open_foreign(
    provider: type[Adapter], context: BindingContext, *, package: str
) -> Adapter:
    """Open a third-party provider on a separate event loop.

    Raises:
        Unavailable: it failed with another error than a `MemtuiError`.
        MemtuiError: the adapter's error.
    """
    loop = OwnLoop(f"The provider {provider.key} of the package {package}")
    try:
        adapter, able = await loop.call(lambda: _opened(provider, context))
        return cast("Adapter", _Foreign(adapter, able, provider, loop))
    except BaseException:
        loop.stop()
        raise


class OwnLoop:
    """An event loop in a daemon thread, for one provider (`who`)."""

    def __init__(self, who: str) -> None:
        self.who = who
        self._loop = asyncio.new_event_loop()
        self._is_stopped = False
        Thread(target=self._run, name="memtui-provider", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_stopped:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # from a task that the package started
                continue
        with suppress(BaseException):
            self._loop.run_until_complete(_cleared())
        self._loop.close()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` on that loop, and wait for it on the caller's.

        Raises:
            Unavailable: it failed with another error than a `MemtuiError`.
            MemtuiError: the error that it raised.
        """
        running = asyncio.run_coroutine_threadsafe(self._contained(work), self._loop)
        try:
            return await asyncio.wrap_future(running)
        except MemtuiError as error:
            raise self._sound(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise unexpected(self.who, RuntimeError("it cancelled its own call")) from None
        except Exception as error:
            raise unexpected(self.who, error) from error

    @staticmethod
    async def _contained(work: Callable[[], Awaitable[T]]) -> T:
        use_loose_threads()
        _is_theirs.set(True)
        try:
            return await work()
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def _sound(self, error: MemtuiError) -> MemtuiError:
        """Return the error if its fields have the contract's types, else an `Unavailable`."""
        fits = isinstance(error.moved, RecordHandle | None)
        if isinstance(error, Conflict):
            fits &= isinstance(error.current, Record | None)
            fits &= isinstance(error.proposed, str | None)
        return error if fits else unexpected(self.who, error)

    def wrong(self, method: str, wanted: str, found: str) -> Unavailable:
        """Return the error for a reply of a wrong type."""
        return Unavailable(
            f"{self.who} answered {method} with something else than {wanted} ({found}); "
            "update or remove the package.",
            sent=True,
        )

    def stop(self) -> None:
        """End the thread as soon as the loop is free."""
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _cleared() -> None:
    """Cancel the tasks that a package left running on its loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CLEARING_S)
    await asyncio.get_running_loop().shutdown_default_executor()


async def _opened(provider: type[Adapter], context: BindingContext) -> tuple[Adapter, object]:
    """Open an adapter and read its capabilities, which may be a property that runs code."""
    adapter = await provider.open(context)
    return adapter, getattr(adapter, "capabilities", None)


class _Foreign:
    """A proxy for a third-party adapter; forwards each coroutine of the contract to its loop."""

    def __init__(
        self, adapter: Adapter, able: object, provider: type[Adapter], loop: OwnLoop
    ) -> None:
        if not isinstance(adapter, provider):
            raise loop.wrong("open", f"a {provider.__name__}", type(adapter).__name__)
        self._adapter = adapter
        self._loop = loop
        self.key = provider.key
        self.only_facts, self.lacks = provider.only_facts, adapter.lacks
        if not isinstance(able, Capabilities):
            raise loop.wrong("open", "an adapter with Capabilities", type(able).__name__)
        self.capabilities = able

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name not in _replies():
            raise AttributeError(name)
        return partial(self._forward, name)

    async def _forward(self, name: str, *given: Any, **named: Any) -> Any:
        reply = await self._loop.call(lambda: getattr(self._adapter, name)(*given, **named))
        wanted, words = _replies()[name]
        try:
            # Pydantic does not validate a model instance again, so dump and validate its values.
            values = wanted.dump_python(wanted.validate_python(reply), warnings=False)
            return wanted.validate_python(values)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            found = f"{where}: {misfit(first)}" if where else misfit(first)
            raise self._loop.wrong(name, words, found) from error
        except (PydanticSerializationError, AttributeError, TypeError) as error:
            raise self._loop.wrong(name, words, str(error)) from error

    async def close(self) -> None:
        """Close the adapter, and end its thread."""
        try:
            await self._loop.call(self._adapter.close)
        finally:
            self._loop.stop()

    async def without(self, record_ids: Collection[str]) -> Adapter:
        """Return the adapter's copy without some records, on the same loop."""

        async def copied() -> tuple[Adapter, object]:
            copy = await self._adapter.without(record_ids)
            return copy, getattr(copy, "capabilities", None)

        copy, able = await self._loop.call(copied)
        if not isinstance(copy, Adapter):
            raise self._loop.wrong("without", "an adapter", type(copy).__name__)
        return cast("Adapter", _ForeignCopy(copy, able, type(copy), self._loop))

    async def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the adapter's changes, checked."""
        changes = await self._loop.call(partial(_begun, self._adapter))
        try:
            while (batch := await self._loop.call(partial(_next, changes))) is not None:
                yield _HANDLES.validate_python(batch)
        except ValidationError as error:
            raise self._loop.wrong("watch", "handles", misfit(error.errors()[0])) from error
        finally:
            if isinstance(changes, AsyncGenerator):
                await self._loop.call(changes.aclose)


class _ForeignCopy(_Foreign):
    """A copy of a third-party adapter without some records, on the adapter's loop."""

    async def close(self) -> None:
        """Close the copy, but not the loop, which is the adapter's."""
        await self._loop.call(self._adapter.close)


_HANDLES = TypeAdapter(Sequence[RecordHandle])
_OWN_WAY = frozenset({"close", "without"})
"""Coroutines that `_Foreign` implements itself, as their replies are not values."""


async def _begun(adapter: Adapter) -> AsyncIterator[Sequence[RecordHandle]]:
    return aiter(adapter.watch())


async def _next(changes: AsyncIterator[Sequence[RecordHandle]]) -> object:
    return await anext(changes, None)


@cache
def _replies() -> dict[str, tuple[TypeAdapter[Any], str]]:
    """Return the reply type of each coroutine of the contract, also in words."""
    found = {}
    for name, member in vars(Adapter).items():
        if inspect.iscoroutinefunction(member) and name not in _OWN_WAY:
            hint = get_type_hints(member)["return"]
            words = getattr(hint, "__name__", str(hint)).replace("memtui.contract.", "")
            found[name] = TypeAdapter(hint), words
    return found
