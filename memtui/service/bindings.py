"""Bindings and whom they serve: what there is, and changing it."""

from __future__ import annotations

import asyncio
from typing import Any

from memtui.contract import (
    Capabilities,
    Conflict,
    Health,
    Invalid,
    Json,
    MemtuiError,
    NotFound,
)
from memtui.service import companies
from memtui.service.answers import (
    BindingHealth,
    BindingView,
    Caller,
    TargetView,
)
from memtui.service.configuring import check_key, configured, write
from memtui.service.core import Core
from memtui.service.redaction import redact_config
from memtui.service.sharing import refuse_shared, shared
from memtui.store import bindings as table
from memtui.store.tables import BindingRow, TargetRow

_TARGET_TYPES = ("company", "project", "agent")
_LATENCIES = 60


async def bindings(core: Core, caller: Caller) -> list[BindingView]:
    """Return the company's bindings, the oldest first, each with what it serves.

    Raises:
        Denied: the company has members, and the caller is none.
    """

    def read() -> tuple[list[BindingRow], list[TargetRow]]:
        core.sight(caller)
        with core.database.read() as database:
            rows = table.bindings(database, caller.company_id)
            targets = table.targets(database, caller.company_id)
        return rows, targets

    rows, targets = await asyncio.to_thread(read)
    in_both = await shared(core, rows)
    return [_binding_view(row, targets, shared=row.binding_id in in_both) for row in rows]


async def add_binding(
    core: Core,
    caller: Caller,
    key: str,
    provider_key: str,
    config: Json,
    *,
    read_only: bool,
    enabled: bool,
) -> BindingView:
    """Add a binding; its adapter is opened once to learn what it can do.

    Raises:
        Invalid: the key is no slug, the config does not fit or holds a secret itself.
        Unavailable: the provider cannot be opened.
        Conflict: the key is taken, or another company's memories lie there.
    """
    asked = {"add_binding": key, "provider": provider_key, "read_only": read_only}
    async with configured(core, caller, asked) as entry:
        await companies.find(core, caller.company_id)
        await _refuse_taken(core, caller, key)
        row = BindingRow(
            binding_id=f"{caller.company_id}/{key}",
            company_id=caller.company_id,
            key=check_key(key, "binding key"),
            provider_key=provider_key,
            config=await _check_config(core, provider_key, config),
            capabilities={},
            enabled=enabled,
            read_only=read_only,
            created_at=core.clock(),
        )
        await refuse_shared(core, row)
        connection = await core.connections.to(row, read_only=read_only)
        row.capabilities = connection.adapter.capabilities.model_dump()
        entry.binding = row
        await write(core, entry, lambda database: table.add_binding(database, row))
    return _binding_view(row, [])


async def update_binding(
    core: Core,
    caller: Caller,
    key: str,
    *,
    enabled: bool | None,
    read_only: bool | None,
    config: Json | None,
) -> BindingView:
    """Change a binding; what is None stays.

    Raises:
        NotFound: no such binding.
        Invalid: the config does not fit.
        Conflict: another company's memories lie there.
    """
    changes: dict[str, Any] = {"enabled": enabled, "read_only": read_only}
    changes = {name: value for name, value in changes.items() if value is not None}
    asked = {"update_binding": key, **changes}
    if config is not None:
        asked["config"] = sorted(config)
    async with configured(core, caller, asked) as entry:
        row = entry.binding = await _find(core, caller, key)
        if config is not None:
            changes["config"] = await _check_config(core, row.provider_key, config)
            await refuse_shared(core, row.model_copy(update={"config": changes["config"]}))
        if changes:
            await write(
                core,
                entry,
                lambda database: table.update_binding(database, row.binding_id, changes),
            )
        await core.connections.drop(row.binding_id)
    return next(view for view in await bindings(core, caller) if view.key == key)


async def remove_binding(core: Core, caller: Caller, key: str) -> None:
    """Remove a binding and its targets; the memories stay where they are.

    Raises:
        NotFound: no such binding.
    """
    async with configured(core, caller, {"remove_binding": key}) as entry:
        row = entry.binding = await _find(core, caller, key)
        await write(core, entry, lambda database: table.remove_binding(database, row.binding_id))
        await core.connections.drop(row.binding_id)


async def set_target(
    core: Core, caller: Caller, target_type: str, target_id: str, key: str
) -> None:
    """Let a binding serve the company, a project or an agent.

    Raises:
        Invalid: no such target type.
        NotFound: no such binding.
    """
    asked = {"set_target": target_type, "target_id": target_id, "key": key}
    async with configured(core, caller, asked) as entry:
        row = entry.binding = await _find(core, caller, key)
        target = TargetRow(
            company_id=caller.company_id,
            target_type=_check_target(target_type),
            target_id=_target_id(caller, target_type, target_id),
            binding_id=row.binding_id,
        )
        await write(core, entry, lambda database: table.set_target(database, target))


async def clear_target(core: Core, caller: Caller, target_type: str, target_id: str) -> None:
    """Let a project or an agent fall back to the next rule.

    Raises:
        NotFound: nothing serves that target by a rule of its own.
    """
    asked = {"clear_target": target_type, "target_id": target_id}
    async with configured(core, caller, asked) as entry:
        place = _check_target(target_type), _target_id(caller, target_type, target_id)

        def clear(database: Any) -> None:
            if not table.clear_target(database, caller.company_id, *place):
                raise NotFound(f"No binding is set for the {target_type} {target_id}.")

        await write(core, entry, clear)


async def health(core: Core, caller: Caller, key: str) -> BindingHealth:
    """Ask a binding's provider how it is; one that is down says so instead of raising.

    Raises:
        Denied: the company has members, and the caller is none.
        NotFound: no such binding.
    """
    sight = await asyncio.to_thread(core.sight, caller)
    row = await _find(core, caller, key)
    breaker = core.connections.breaker(row.binding_id)
    if not row.enabled:
        found = Health(status="down", message="disabled")
    else:
        try:
            own = await companies.find(core, caller.company_id)
            connection = await core.open(row, company_read_only=own.read_only)
            found = await connection.read(connection.adapter.health)
        except MemtuiError as error:
            found = Health(status="down", message=str(error))

    latencies = await asyncio.to_thread(core.log.latencies, row.company_id, key, _LATENCIES, sight)
    return BindingHealth(
        key=key,
        health=found,
        checked_at=core.clock(),
        latencies_ms=tuple(latencies),
        breaker_open=breaker.is_open,
    )


async def _refuse_taken(core: Core, caller: Caller, key: str) -> None:
    def read() -> bool:
        with core.database.read() as database:
            return table.binding(database, caller.company_id, key) is not None

    if await asyncio.to_thread(read):
        raise Conflict(f"There is already a binding {key}; choose another key.")


async def _find(core: Core, caller: Caller, key: str) -> BindingRow:
    def read() -> BindingRow:
        with core.database.read() as database:
            row = table.binding(database, caller.company_id, key)
            if row is None:
                known = ", ".join(r.key for r in table.bindings(database, caller.company_id))
                raise NotFound(f"There is no binding {key}; there are: {known or 'none'}.")
            return row

    return await asyncio.to_thread(read)


async def _check_config(core: Core, provider_key: str, config: Json) -> Json:
    if redact_config(config)[1]:
        raise Invalid(
            "The config holds a secret; keep it in the system keyring or an environment variable "
            "and give its name, in capitals, instead."
        )
    return await core.connections.check_config(provider_key, config)


def _check_target(target_type: str) -> str:
    if target_type not in _TARGET_TYPES:
        raise Invalid(f"{target_type!r} is no target; it is one of {', '.join(_TARGET_TYPES)}.")
    return target_type


def _target_id(caller: Caller, target_type: str, target_id: str) -> str:
    if target_type == "company":
        return caller.company_id
    if not 0 < len(target_id) <= 200 or not target_id.isprintable():
        raise Invalid(f"The id of the {target_type} must be 1 to 200 printable characters.")
    return target_id


def _binding_view(
    row: BindingRow, targets: list[TargetRow], *, shared: bool = False
) -> BindingView:
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
