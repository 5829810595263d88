"""Bindings and whom they serve. Companies share no store.

A provider tells where its records lie (`Adapter.places`). Only bindings of one control plane can be
compared; two homes that point at one folder know nothing of each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from memtui.contract import (
    Adapter,
    Capabilities,
    Conflict,
    Health,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
)
from memtui.service.answers import BindingHealth, BindingView, TargetView
from memtui.service.core import (
    Core,
    Group,
    check_key,
    check_target_id,
    find_company,
    to_its_end,
)
from memtui.service.redaction import redact_config
from memtui.service.visibility import Caller
from memtui.store import bindings as table
from memtui.store.compiled import BindingRow, TargetRow

_TARGET_TYPES = ("company", "project", "agent")
_LATENCIES = 60


class Bindings(Group):
    """The bindings of companies: those there are, and changing them."""

    def providers(self) -> list[str]:
        """Return the installed providers' names."""
        return self._core.providers.names()

    def provider(self, name: str) -> type[Adapter]:
        """Return the class of a provider. Blocking; raises `Invalid` if there is none."""
        return self._core.providers.load(name)

    async def provider_problems(self) -> list[str]:
        """Say which installed providers of other packages are not used, and why."""
        return await self._core.connections.provider_problems()

    async def all(self, caller: Caller) -> list[BindingView]:
        """Return the company's bindings, the oldest first, each with what it serves.

        Raises:
            Denied: the company has members, and the caller is none.
        """

        def read() -> tuple[list[BindingRow], list[TargetRow]]:
            self._core.sight(caller)
            with self._core.database.read() as database:
                rows = table.bindings(database, caller.company_id)
                return rows, table.targets(database, caller.company_id)

        rows, targets = await asyncio.to_thread(read)
        in_both = await _shared(self._core, rows)
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
    ) -> BindingView:
        """Add a binding; its adapter is opened once to learn what it can do.

        Raises:
            Invalid: the key is no slug, the config does not fit or holds a secret itself.
            Unavailable: the provider cannot be opened.
            Conflict: the key is taken, or another company's memories lie there.
        """
        core = self._core
        asked = {"add_binding": key, "provider": provider_key, "read_only": read_only}
        async with core.configured(caller, asked) as entry:
            await asyncio.to_thread(find_company, core.database, caller.company_id)
            if await asyncio.to_thread(self._row, caller, key) is not None:
                raise Conflict(f"There is already a binding {key}; choose another key.")
            row = BindingRow(
                binding_id=f"{caller.company_id}/{key}",
                company_id=caller.company_id,
                key=check_key(key, "binding key"),
                provider_key=provider_key,
                config=await self._checked(provider_key, config),
                capabilities={},
                enabled=enabled,
                read_only=read_only,
                created_at=core.clock(),
            )
            await refuse_shared(core, row)
            connection = await core.connections.to(row, read_only=read_only)
            row.capabilities = connection.adapter.capabilities.model_dump()
            entry.binding = row
            await core.configure(entry, lambda database: table.add_binding(database, row))
        return _view(row, [])

    @to_its_end
    async def update(
        self,
        caller: Caller,
        key: str,
        *,
        enabled: bool | None = None,
        read_only: bool | None = None,
        config: Json | None = None,
    ) -> BindingView:
        """Change a binding; what is None stays.

        Raises:
            NotFound: no such binding.
            Invalid: the config does not fit.
            Conflict: another company's memories lie there.
        """
        core = self._core
        changes: dict[str, Any] = {"enabled": enabled, "read_only": read_only}
        changes = {name: value for name, value in changes.items() if value is not None}
        asked = {"update_binding": key, **changes}
        if config is not None:
            asked["config"] = sorted(config)
        async with core.configured(caller, asked) as entry:
            row = entry.binding = await asyncio.to_thread(self._find, caller, key)
            if config is not None:
                changes["config"] = await self._checked(row.provider_key, config)
                await refuse_shared(core, replace(row, config=changes["config"]))
            if changes:
                await core.configure(
                    entry,
                    lambda database: table.update_binding(database, row.binding_id, changes),
                )
            await core.connections.drop(row.binding_id)
        return next(view for view in await self.all(caller) if view.key == key)

    @to_its_end
    async def remove(self, caller: Caller, key: str) -> None:
        """Remove a binding and its targets; the memories stay where they are.

        Raises:
            NotFound: no such binding.
        """
        core = self._core
        async with core.configured(caller, {"remove_binding": key}) as entry:
            row = entry.binding = await asyncio.to_thread(self._find, caller, key)
            await core.configure(
                entry, lambda database: table.remove_binding(database, row.binding_id)
            )
            await core.connections.drop(row.binding_id)

    @to_its_end
    async def set_target(self, caller: Caller, target_type: str, target_id: str, key: str) -> None:
        """Let a binding serve the `company`, a `project` or an `agent`.

        Raises:
            Invalid: no such target type.
            NotFound: no such binding.
        """
        asked = {"set_target": target_type, "target_id": target_id, "key": key}
        async with self._core.configured(caller, asked) as entry:
            row = entry.binding = await asyncio.to_thread(self._find, caller, key)
            kind, place = _target(caller, target_type, target_id)
            target = TargetRow(
                company_id=caller.company_id,
                target_type=kind,
                target_id=place,
                binding_id=row.binding_id,
            )
            await self._core.configure(entry, lambda database: table.set_target(database, target))

    @to_its_end
    async def clear_target(self, caller: Caller, target_type: str, target_id: str) -> None:
        """Let a project or an agent fall back to the next rule.

        Raises:
            NotFound: nothing serves that target by a rule of its own.
        """
        asked = {"clear_target": target_type, "target_id": target_id}
        async with self._core.configured(caller, asked) as entry:
            place = _target(caller, target_type, target_id)

            def clear(database: Any) -> None:
                if not table.clear_target(database, caller.company_id, *place):
                    raise NotFound(f"No binding is set for the {target_type} {target_id}.")

            await self._core.configure(entry, clear)

    async def health(self, caller: Caller, key: str) -> BindingHealth:
        """Ask a binding's provider how it is; one that is down says so instead of raising.

        Not an operation.

        Raises:
            Denied: the company has members, and the caller is none.
            NotFound: no such binding.
        """
        core = self._core
        sight = await asyncio.to_thread(core.sight, caller)
        row = await asyncio.to_thread(self._find, caller, key)
        breaker = core.connections.breaker(row.binding_id)
        if not row.enabled:
            found = Health(status="down", message="disabled")
        else:
            try:
                own = await asyncio.to_thread(find_company, core.database, caller.company_id)
                connection = await core.open(row, company_read_only=own.read_only)
                found = await connection.read(connection.adapter.health)
            except MemtuiError as error:
                found = Health(status="down", message=str(error))

        latencies = await asyncio.to_thread(
            core.log(row.company_id, sight).latencies, key, _LATENCIES
        )
        return BindingHealth(
            key=key,
            health=found,
            checked_at=core.clock(),
            latencies_ms=tuple(latencies),
            breaker_open=breaker.is_open,
        )

    def _row(self, caller: Caller, key: str) -> BindingRow | None:
        with self._core.database.read() as database:
            return table.binding(database, caller.company_id, key)

    def _find(self, caller: Caller, key: str) -> BindingRow:
        if (row := self._row(caller, key)) is not None:
            return row
        with self._core.database.read() as database:
            known = ", ".join(row.key for row in table.bindings(database, caller.company_id))
        raise NotFound(f"There is no binding {key}; there are: {known or 'none'}.")

    async def _checked(self, provider_key: str, config: Json) -> Json:
        if redact_config(config)[1]:
            raise Invalid(
                "The config holds a secret; keep it in the system keyring or an environment "
                "variable and give its name, in capitals, instead."
            )
        return await self._core.connections.check_config(provider_key, config)


async def refuse_shared(core: Core, row: BindingRow) -> None:
    """Raise `Conflict` where a binding would lie in the store of another company's."""
    if row.binding_id in await _shared(core, [row], load=True):
        raise Conflict(
            f"Where {row.key} would keep its memories, another company's already lie, in the same "
            "place or inside it or around it; companies share no store, so choose another place."
        )


async def _shared(core: Core, rows: Iterable[BindingRow], *, load: bool = False) -> set[str]:
    """Return the ids of those bindings, of one company, that share a store with another's.

    Another package's provider that is not loaded is asked only where it is to be.
    """
    asked = list(rows)
    own = {row.company_id for row in asked}

    def read() -> list[BindingRow]:
        with core.database.read() as database:
            companies = [one.company_id for one in table.companies(database)]
            return [
                row
                for company_id in companies
                if company_id not in own
                for row in table.bindings(database, company_id)
            ]

    others = await asyncio.to_thread(read)
    if not others:
        return set()
    theirs = {place for row in others for place in await core.connections.places(row, load=load)}
    mine = {row.binding_id: await core.connections.places(row, load=load) for row in asked}
    return {
        binding_id
        for binding_id, places in mine.items()
        if any(
            one[: len(other)] == other or other[: len(one)] == one
            for one in places
            for other in theirs
        )
    }


def _target(caller: Caller, target_type: str, target_id: str) -> tuple[str, str]:
    if target_type not in _TARGET_TYPES:
        raise Invalid(f"{target_type!r} is no target; it is one of {', '.join(_TARGET_TYPES)}.")
    if target_type == "company":
        return target_type, caller.company_id
    return target_type, check_target_id(target_type, target_id)


def _view(row: BindingRow, targets: list[TargetRow], *, shared: bool = False) -> BindingView:
    return BindingView(
        binding_id=row.binding_id,
        key=row.key,
        provider_key=row.provider_key,
        config=redact_config(row.config)[0],
        enabled=row.enabled,
        read_only=row.read_only,
        capabilities=Capabilities.model_validate(row.capabilities),
        targets=tuple(
            TargetView(target_type=target.target_type, target_id=target.target_id)
            for target in targets
            if target.binding_id == row.binding_id
        ),
        shared=shared,
        created_at=row.created_at,
    )
