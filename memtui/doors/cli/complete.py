"""What the shell completes: binding keys, and the projects and agents that bindings serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from memtui.service import BindingView


def complete_binding(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the binding keys that begin with `incomplete`."""
    return [view.key for view in _bindings(ctx) if view.key.startswith(incomplete)]


def complete_name(target_type: str) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer of the ids of that target type that some binding serves."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        names = {
            target.target_id
            for view in _bindings(ctx)
            for target in view.targets
            if target.target_type == target_type and target.target_id.startswith(incomplete)
        }
        return sorted(names)

    return complete


def _bindings(ctx: typer.Context) -> list[BindingView]:
    import asyncio

    from memtui.contract import MemtuiError
    from memtui.doors.cli.session import Invocation

    given = ctx.find_root().params
    invocation = Invocation(
        home=given.get("home"),
        company=given.get("company"),
        principal=given.get("principal"),
        acts_for=given.get("acts_for"),
    )

    async def read() -> list[BindingView]:
        async with invocation.session() as session:
            return list(await session.service.bindings.all(session.caller))

    try:
        return asyncio.run(read())
    except MemtuiError:
        return []  # a completion has no place to complain; the command itself will
