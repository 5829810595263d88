"""Bindings and their targets. Two companies must not share a store.

`Adapter.places` returns where a provider stores its records. Only bindings of one control plane are
compared: that two homes use the same folder is not noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from memtui.contract import Adapter, Conflict, Denied, Health, Invalid, Json, MemtuiError, NotFound
from memtui.service.answers import (
    BindingHealth,
    BindingView,
    Capture,
    FoundAdded,
    ReviewRule,
    Shadow,
    TargetView,
)
from memtui.service.connections import agreed_start, is_start
from memtui.service.operations.redaction import redact_config
from memtui.service.runtime import (
    ServiceModule,
    ServiceRuntime,
    check_key,
    check_target_id,
    find_binding,
    find_company,
    to_its_end,
)
from memtui.service.visibility import Caller
from memtui.store import bindings as table
from memtui.store import settings
from memtui.store.database import DatabaseConnection
from memtui.store.details import SettingDetails
from memtui.store.rows import BindingRow, TargetRow

if TYPE_CHECKING:
    from memtui.backends.discovery import DiscoveredMemory
    from memtui.service.home.provider_views import ProviderView

Look: TypeAlias = "Callable[[DatabaseConnection], None]"
"""A second check of the database, in the transaction that changes it; raises to refuse."""

_TARGET_TYPES = ("company", "project", "agent")
_LATENCIES = 60
_SEEN_BY_ADAPTERS = {"config", "enabled", "read_only"}


class Bindings(ServiceModule):
    """Reads and changes the bindings of companies."""

    def providers(self) -> list[str]:
        """Return the installed providers' names."""
        return self._runtime.providers.names()

    def provider(self, name: str) -> type[Adapter]:
        """Return the class of a provider. Blocking; raises `Invalid` if there is none."""
        return self._runtime.providers.load(name)

    async def provider_view(self, name: str) -> ProviderView:
        """Return what a provider opens, its settings and capabilities, or why it is not used.

        Raises:
            Invalid: there is no such provider.
        """
        return await self._runtime.providers.view(name)

    def is_plugin(self, name: str) -> bool:
        """Whether a provider wraps a memory plugin; False if foreign and not loaded. Blocking."""
        providers = self._runtime.providers
        load = providers.loaded if providers.is_foreign(name) else providers.load
        found = load(name)
        return found is not None and found.speaks_plugin_contract

    async def provider_problems(self) -> list[str]:
        """Return why installed providers of other packages are not used, one sentence each."""
        return await self._runtime.providers.problems()

    async def all(self, caller: Caller) -> list[BindingView]:
        """Return the company's bindings with their targets, the oldest first.

        Raises:
            Denied: the company has members, and the caller is not one.
        """
        await asyncio.to_thread(self._runtime.visibility, caller)
        rows = await self._runtime.ask(table.bindings, caller.company_id)
        targets = await self._runtime.ask(table.targets, caller.company_id)
        others = await self._runtime.ask(_of_others, caller.company_id)
        in_both = await _shared(self._runtime, rows, others)
        return [_view(row, targets, shared=row.binding_id in in_both) for row in rows]

    @to_its_end
    async def add(
        self,
        caller: Caller,
        key: str,
        provider_key: str,
        config: Json,
        *,
        read_only: bool = False,
        enabled: bool = True,
        serves: tuple[str, str] | None = None,
        starts: str | None = None,
    ) -> BindingView:
        """Add a binding; its adapter is opened to learn its capabilities.

        `serves`: type and id of a target that it serves from now on, in place of another binding.
        `starts`: the command that a person has agreed to (`to_agree`).

        Raises:
            Denied: it starts a command that nobody has agreed to.
            Invalid: the key is not a slug, the config does not fit or holds a secret itself, or
                there is no such target type.
            Unavailable: the provider cannot be opened.
            Conflict: the key is taken, or another company uses this store.
        """
        runtime = self._runtime
        asked = SettingDetails(
            add_binding=key, provider=provider_key, enabled=enabled, read_only=read_only
        )
        targets = [] if serves is None else [_target_row(caller, *serves, key)]
        if targets:
            asked["serves"] = [targets[0].target_type, targets[0].target_id]
        async with runtime.configured(caller, asked) as entry:
            row = await self._new(caller, key, provider_key, config, starts)
            row = replace(row, enabled=enabled, read_only=read_only)
            look_again = await refuse_shared(runtime, row)
            connection = await runtime.connections.to(row, read_only=read_only)
            row.capabilities = connection.adapter.capabilities.model_dump()
            entry.binding = row

            def keep(database: DatabaseConnection) -> None:
                look_again(database)
                table.forget_namesake(database, row.company_id, row.binding_id)
                table.add_binding(database, row)
                for target in targets:
                    table.set_target(database, target)

            try:
                await runtime.configure(entry, keep, kinds=(*settings.COMMON, settings.NAMESPACE))
            except MemtuiError:
                await runtime.connections.drop(row.binding_id)
                raise
        return _view(row, targets)

    async def add_found(self, caller: Caller, findings: Sequence[DiscoveredMemory]) -> FoundAdded:
        """Add read-only bindings for discovered memories that no binding reads yet.

        One that cannot be opened is left out, with the reason in the answer. A number is appended
        to a key that is taken.

        Raises:
            Denied: the caller may not change the company's settings.
        """
        views = await self.all(caller)
        added: list[BindingView] = []
        problems: list[str] = []
        taken = {one.key for one in views}
        for finding in findings:
            is_known = any(finding.is_read_by(one.provider_key, one.config) for one in views)
            if is_known or not finding.usable:
                continue
            key = _free_key(finding.key, taken)
            taken.add(key)
            try:
                view = await self.add(caller, key, finding.provider, finding.config, read_only=True)
            except Denied:
                raise
            except MemtuiError as error:
                problems.append(f"{finding.title} was not added: {error}")
            else:
                added.append(view)
                views.append(view)
        return FoundAdded(added=tuple(added), problems=tuple(problems))

    async def trial(
        self,
        caller: Caller,
        key: str,
        provider_key: str,
        config: Json,
        *,
        read_only: bool = False,
        configures: bool = False,
        starts: str | None = None,
    ) -> Health:
        """Open the binding that `add` or `update` would make once, and return its health.

        Not an operation. No binding is added or changed, but a provider may create the store that
        its config names, as `add` would. `starts` is that of `add`.

        Raises:
            Denied: the caller may not change the company's settings.
            Invalid: the key is not a slug, the config does not fit or holds a secret itself.
            Unavailable: the provider cannot be opened.
            Conflict: the key is taken, or another company uses this store.
            NotFound: there is no such binding to configure.
        """
        runtime = self._runtime
        await runtime.refuse_configuring(caller)
        if configures:
            row = await runtime.ask(find_binding, caller.company_id, key)
            row = replace(row, config=await self._checked(provider_key, config))
            row.agreed = _agreed(row, starts)
        else:
            row = await self._new(caller, key, provider_key, config, starts)
        await refuse_shared(runtime, row)
        found = await runtime.connections.trial(row, read_only=read_only)
        # An agent could be shown records that are held for review.
        return found if caller.by_person else found.model_copy(update={"first": ()})

    async def to_agree(
        self, caller: Caller, key: str, provider_key: str, config: Json
    ) -> str | None:
        """Return the command that a binding starts with a config, if nobody has agreed to it yet.

        A person sees it and says yes before `add`, `trial` or `update` is called with it.

        Raises:
            Denied: the caller may not change the company's settings.
            Invalid: the config does not fit.
        """
        await self._runtime.refuse_configuring(caller)
        row = await self._runtime.ask(table.binding, caller.company_id, key)
        checked = await self._checked(provider_key, config)
        agreed = row.agreed if row else ""
        return await self._runtime.connections.to_agree(provider_key, checked, agreed)

    async def _new(
        self, caller: Caller, key: str, provider_key: str, config: Json, starts: str | None
    ) -> BindingRow:
        """Return the row of a new binding, not stored yet.

        Raises:
            Invalid: the key is not a slug, the config does not fit or holds a secret itself.
            Conflict: the key is taken.
        """
        runtime = self._runtime
        await runtime.ask(find_company, caller.company_id)
        if await runtime.ask(table.binding, caller.company_id, key) is not None:
            raise Conflict(f"There is already a binding {key}; choose another key.")
        return BindingRow(
            binding_id=_id(caller, key),
            company_id=caller.company_id,
            key=check_key(key, "binding key"),
            provider_key=provider_key,
            config=await self._checked(provider_key, config),
            capabilities={},
            enabled=True,
            read_only=False,
            review=[],
            created_at=runtime.clock(),
            agreed="" if starts is None else agreed_start(starts),
        )

    @to_its_end
    async def update(
        self,
        caller: Caller,
        key: str,
        *,
        enabled: bool | None = None,
        read_only: bool | None = None,
        capture: Mapping[Capture, bool] | None = None,
        config: Json | None = None,
        embeds: bool | None = None,
        starts: str | None = None,
    ) -> BindingView:
        """Change a binding; arguments that are None change nothing.

        `starts` is that of `add`.

        Raises:
            Denied: with this config it starts a command that nobody has agreed to.
            NotFound: no such binding.
            Invalid: the config does not fit.
            Conflict: another company uses this store.
        """
        runtime = self._runtime
        changes: dict[str, Any] = {"enabled": enabled, "read_only": read_only, "embeds": embeds}
        changes = {name: value for name, value in changes.items() if value is not None}
        changes |= {one.switch: is_on for one, is_on in (capture or {}).items()}
        asked = cast("SettingDetails", {"update_binding": key, **changes})
        if config is not None:
            asked["config"] = sorted(config)
        async with runtime.configured(caller, asked) as entry:
            row = entry.binding = await runtime.ask(find_binding, caller.company_id, key)
            look_again: Look | None = None
            if config is not None:
                changes["config"] = await self._checked(row.provider_key, config)
                changes["agreed"] = _agreed(row, starts)
                new = replace(row, config=changes["config"], agreed=changes["agreed"])
                look_again = await refuse_shared(runtime, new)
                await runtime.connections.refuse_start(new)

            def keep(database: DatabaseConnection) -> None:
                if look_again is not None:
                    look_again(database)
                table.update_binding(database, row.binding_id, changes)

            if changes:
                await runtime.configure(entry, keep)
            if changes.keys() & _SEEN_BY_ADAPTERS:
                await runtime.reopen(row)
        return next(view for view in await self.all(caller) if view.key == key)

    @to_its_end
    async def remove(self, caller: Caller, key: str) -> None:
        """Remove a binding and its targets; its memories are not deleted.

        Raises:
            NotFound: no such binding.
        """
        runtime = self._runtime
        binding_id = _id(caller, key)
        async with runtime.configured(
            caller, SettingDetails(remove_binding=key), binding_key=key
        ) as entry:
            await runtime.configure(entry, lambda database: _remove(database, binding_id))
            await runtime.connections.drop(binding_id)

    async def set_shadow(
        self, caller: Caller, keys: tuple[str, str], shadow: Shadow | None
    ) -> None:
        """Store a person's yes to asking the second binding what the first is asked.

        Args:
            caller: Who says yes to what leaves this machine.
            keys: The two bindings.
            shadow: The yes and its terms, in place of the former ones; None: no more.

        Raises:
            Denied: an agent calls.
            NotFound: no such binding, or nobody said yes to these two.
        """
        if not caller.by_person:
            raise Denied("An agent lets no questions leave; let a person say yes.")

        def change(database: DatabaseConnection) -> None:
            row, other = (find_binding(database, caller.company_id, key) for key in keys)
            kept = [one for one in row.shadows if one["shadow_key"] != other.key]
            if shadow is not None:
                kept.append(shadow.model_dump(mode="json"))
            elif len(kept) == len(row.shadows):
                raise NotFound(f"Nobody said yes to asking {other.key} what {row.key} is asked.")
            table.update_binding(database, row.binding_id, {"shadows": kept})

        asked = SettingDetails(update_binding=keys[0], shadow=keys[1])
        await self._runtime.change(caller, asked, change, binding_key=keys[0])

    async def set_target(self, caller: Caller, target_type: str, target_id: str, key: str) -> None:
        """Let a binding serve the `company`, a `project` or an `agent`.

        Raises:
            Invalid: no such target type.
            NotFound: no such binding.
        """
        asked = SettingDetails(set_target=target_type, target_id=target_id, key=key)

        def change(database: DatabaseConnection) -> None:
            table.set_target(database, _target_row(caller, target_type, target_id, key))

        await self._runtime.change(caller, asked, change, binding_key=key)

    @to_its_end
    async def cut_over(
        self,
        caller: Caller,
        source_key: str,
        targets: Sequence[TargetView],
        key: str,
        *,
        read_only: bool | None = None,
    ) -> None:
        """Let a binding serve targets of a migration, as one change.

        `read_only`: whether the source of the migration is read-only from then on; None: as it was.

        Raises:
            NotFound: no such binding.
        """
        runtime = self._runtime
        asked = SettingDetails(
            cut_over=source_key, key=key,
            targets=[f"{one.target_type} {one.target_id}" for one in targets],
        )  # fmt: skip
        if read_only is not None:
            asked["read_only"] = read_only
        async with runtime.configured(caller, asked, binding_key=key) as entry:
            source = await runtime.ask(find_binding, caller.company_id, source_key)

            def change(database: DatabaseConnection) -> None:
                for one in targets:
                    row = _target_row(caller, one.target_type, one.target_id, key)
                    table.set_target(database, row)
                if read_only is not None:
                    table.update_binding(database, source.binding_id, {"read_only": read_only})

            await runtime.configure(entry, change)
            await runtime.reopen(source)

    async def clear_target(self, caller: Caller, target_type: str, target_id: str) -> None:
        """Remove the binding set for a target, which falls back to the next rule.

        Raises:
            NotFound: no binding is set for this target.
        """

        def clear(database: DatabaseConnection) -> None:
            place = _target(caller, target_type, target_id)
            if not table.clear_target(database, caller.company_id, *place):
                raise NotFound(f"No binding is set for the {target_type} {target_id}.")

        asked = SettingDetails(clear_target=target_type, target_id=target_id)
        await self._runtime.change(caller, asked, clear)

    async def health(self, caller: Caller, key: str) -> BindingHealth:
        """Return the health of a binding's provider; an error gives the status `down`.

        Not an operation.

        Raises:
            Denied: the company has members, and the caller is not one.
            NotFound: no such binding.
        """
        runtime = self._runtime
        visibility = await asyncio.to_thread(runtime.visibility, caller)
        row = await runtime.ask(find_binding, caller.company_id, key)
        breaker = runtime.connections.breaker(row.binding_id)
        if not row.enabled:
            found = Health(status="down", message="disabled")
        else:
            try:
                own = await runtime.ask(find_company, caller.company_id)
                connection = await runtime.open(row, company_read_only=own.read_only)
                found = await connection.read(connection.adapter.health)
            except MemtuiError as error:
                found = Health(status="down", message=str(error))

        latencies = await asyncio.to_thread(
            runtime.log(row.company_id, visibility).latencies, key, _LATENCIES
        )
        return BindingHealth(
            key=key,
            health=found,
            checked_at=runtime.clock(),
            latencies_ms=tuple(latencies),
            breaker_open=breaker.is_open,
        )

    async def lacks(self, caller: Caller, key: str) -> frozenset[str]:
        """Return the fields of a record that a binding's provider cannot store.

        Raises:
            Denied: the company has members, and the caller is not one.
            NotFound: no such binding.
        """
        runtime = self._runtime
        await asyncio.to_thread(runtime.visibility, caller)
        row = await runtime.ask(find_binding, caller.company_id, key)
        own = await runtime.ask(find_company, caller.company_id)
        return (await runtime.open(row, company_read_only=own.read_only)).adapter.lacks

    async def _checked(self, provider_key: str, config: Json) -> Json:
        if redact_config(config)[1]:
            raise Invalid(
                "The config holds a secret; keep it in the system keyring or an environment "
                "variable and give its name, in capitals, instead."
            )
        return await self._runtime.connections.check_config(provider_key, config)


async def refuse_shared(runtime: ServiceRuntime, row: BindingRow) -> Look:
    """Raise `Conflict` where a binding would share a store with another company's binding.

    Returns a second check for the transaction that stores the binding, in which providers cannot be
    asked: it raises `Conflict` if another company's bindings have changed since.
    """
    theirs = await runtime.ask(_of_others, row.company_id)
    if row.binding_id in await _shared(runtime, [row], theirs, load=True):
        raise Conflict(
            f"{row.key} would keep its memories where another company keeps its own, or inside or "
            "around that place; companies share no store, so choose another place."
        )

    def look_again(database: DatabaseConnection) -> None:
        table.hold_bindings(database)
        if list(map(_store_of, _of_others(database, row.company_id))) != [*map(_store_of, theirs)]:
            raise Conflict(
                "The bindings of another company were changed at the same moment, so memtui could "
                f"not check that {row.key} shares no store with it; try again."
            )

    return look_again


def _of_others(database: DatabaseConnection, company_id: str) -> list[BindingRow]:
    """Return the bindings of all other companies."""
    others = [one.company_id for one in table.companies(database) if one.company_id != company_id]
    return [row for other in others for row in table.bindings(database, other)]


def _store_of(row: BindingRow) -> tuple[str, str, Json]:
    """Return the values that decide where a binding's memories are stored."""
    return row.binding_id, row.provider_key, row.config


async def _shared(
    runtime: ServiceRuntime,
    rows: Sequence[BindingRow],
    others: Sequence[BindingRow],
    *,
    load: bool = False,
) -> set[str]:
    """Return the ids of the bindings in `rows` that share a store with one in `others`.

    `load`: load providers of other packages for this; else only their folders are compared.
    """
    theirs = {place for row in others for place in await runtime.connections.places(row, load=load)}
    if not theirs:
        return set()
    mine = {row.binding_id: await runtime.connections.places(row, load=load) for row in rows}
    return {
        binding_id
        for binding_id, places in mine.items()
        if any(
            one[: len(other)] == other or other[: len(one)] == one
            for one in places
            for other in theirs
        )
    }


def _remove(database: DatabaseConnection, binding_id: str) -> None:
    from memtui.store import pairs  # imports SQLAlchemy, which few commands need

    table.remove_binding(database, binding_id)
    pairs.forget_binding(database, binding_id)


def _id(caller: Caller, key: str) -> str:
    return f"{caller.company_id}/{key}"


def _target(caller: Caller, target_type: str, target_id: str) -> tuple[str, str]:
    if target_type not in _TARGET_TYPES:
        raise Invalid(
            f"{target_type!r} is not a kind of target; choose from {', '.join(_TARGET_TYPES)}."
        )
    if target_type == "company":
        if target_id not in {"", caller.company_id}:
            raise Invalid(f"The company's binding is that of {caller.company_id}; name no other.")
        return target_type, caller.company_id
    return target_type, check_target_id(target_type, target_id)


def _target_row(caller: Caller, target_type: str, target_id: str, key: str) -> TargetRow:
    kind, place = _target(caller, target_type, target_id)
    return TargetRow(
        company_id=caller.company_id,
        target_type=kind,
        target_id=place,
        binding_id=_id(caller, key),
    )


def _agreed(row: BindingRow, starts: str | None) -> str:
    """Return what was agreed to for a binding, with the command that it starts from now on."""
    if starts is None:
        return row.agreed
    others = [one for one in row.agreed.split() if not is_start(one)]
    return " ".join([*others, agreed_start(starts)])


def _free_key(wanted: str, taken: Collection[str]) -> str:
    numbered = (f"{wanted}-{number}" for number in count(2))
    return wanted if wanted not in taken else next(key for key in numbered if key not in taken)


def _view(row: BindingRow, targets: list[TargetRow], *, shared: bool = False) -> BindingView:
    own = (target for target in targets if target.binding_id == row.binding_id)
    return BindingView.like(
        row,
        config=redact_config(row.config)[0],
        targets=tuple(map(TargetView.like, own)),
        agreed=tuple(one for one in row.agreed.split() if not is_start(one)),
        review=tuple(map(ReviewRule.model_validate, row.review)),
        shadows=tuple(map(Shadow.model_validate, row.shadows)),
        shared=shared,
    )
