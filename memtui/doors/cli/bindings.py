"""`bindings`: which memory serves whom, and changing that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtui.doors.cli.forget import confirm
from memtui.doors.cli.options import BindingKey, Switch, Yes, json_object, pairs
from memtui.doors.cli.output import Line
from memtui.doors.cli.session import Session
from memtui.doors.cli.tables import Column, facts, table

if TYPE_CHECKING:
    from memtui.contract import Json
    from memtui.service import BindingView

TargetType = Annotated[
    Literal["company", "project", "agent"],
    typer.Argument(metavar="TYPE", help="company, project or agent."),
]
TargetId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The project's or agent's id; the company needs none."),
]
ConfigPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Part of its config; the value may be JSON; may be repeated.",
    ),
]
ConfigJson = Annotated[str | None, typer.Option("--config", help="Its config as a JSON object.")]

_LIST_COLUMNS = (
    Column("key"),
    Column("provider"),
    Column("state"),
    Column("serves"),
    Column("can", stretch=True),
)


async def list_bindings(session: Session) -> None:
    """List the company's bindings.

    With what each one serves and can do.
    """
    views = await session.service.bindings.all(session.caller)
    rows = [
        [
            view.key,
            view.provider_key,
            _state(view),
            ", ".join(_targets(view)),
            ", ".join(view.capabilities.words()),
        ]
        for view in views
    ]
    session.out.answer({"bindings": views}, lambda: table(_LIST_COLUMNS, rows))


async def show_binding(session: Session, key: BindingKey) -> None:
    """Show one binding.

    With its config, where secrets are masked, and what it can do.
    """
    _answer(session, await _view(session, key))


async def add_binding(
    session: Session,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A short name for it.")],
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="The provider; see bindings providers.")
    ],
    setting: ConfigPairs = None,
    config: ConfigJson = None,
    *,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every change through it.")
    ] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it switched off.")] = False,
) -> None:
    """Add a binding to a provider."""
    view = await session.service.bindings.add(
        session.caller,
        key,
        provider,
        _config(setting, config),
        read_only=read_only,
        enabled=not disabled,
    )
    _answer(session, view)


async def configure_binding(
    session: Session, key: BindingKey, setting: ConfigPairs = None, config: ConfigJson = None
) -> None:
    """Change a binding's config.

    What --set does not name stays; --config replaces all of it.
    """
    from memtui.contract import Invalid

    if setting is None and config is None:
        raise Invalid("Nothing to change; give --set NAME=VALUE or --config JSON.")
    kept = {} if config is not None else (await _view(session, key)).config
    view = await session.service.bindings.update(
        session.caller, key, config=kept | _config(setting, config)
    )
    _answer(session, view)


async def remove_binding(session: Session, key: BindingKey, *, yes: Yes = False) -> None:
    """Remove a binding.

    The memories stay where they are.
    """
    await _view(session, key)
    if not yes:
        confirm(f"Remove the binding {key}? Its memories stay where they are.")
    await session.service.bindings.remove(session.caller, key)
    session.out.answer({"removed": key}, lambda: [f"removed {key}"])


async def enable_binding(session: Session, key: BindingKey) -> None:
    """Switch a binding on."""
    _answer(session, await session.service.bindings.update(session.caller, key, enabled=True))


async def disable_binding(session: Session, key: BindingKey) -> None:
    """Switch a binding off.

    Nothing resolves to it then.
    """
    _answer(session, await session.service.bindings.update(session.caller, key, enabled=False))


async def set_read_only(session: Session, key: BindingKey, switch: Switch) -> None:
    """Refuse or allow changes through it."""
    view = await session.service.bindings.update(session.caller, key, read_only=switch == "on")
    _answer(session, view)


async def set_target(
    session: Session, key: BindingKey, target_type: TargetType, target_id: TargetId = None
) -> None:
    """Let a binding serve a target.

    A target is the whole company, a project or an agent.
    """
    named = _target_id(session, target_type, target_id)
    await session.service.bindings.set_target(session.caller, target_type, named, key)
    _answer(session, await _view(session, key))


async def clear_target(
    session: Session, target_type: TargetType, target_id: TargetId = None
) -> None:
    """Let no binding of its own serve a target.

    What it resolves to then is the next in line: the agent's binding, or the company's.
    """
    named = _target_id(session, target_type, target_id)
    await session.service.bindings.clear_target(session.caller, target_type, named)
    session.out.answer(
        {"cleared": {"target_type": target_type, "target_id": named}},
        lambda: [f"cleared {target_type} {named}"],
    )


async def _view(session: Session, key: str) -> BindingView:
    """Return the binding. Raises `NotFound`, with the keys there are."""
    from memtui.contract import NotFound

    views = await session.service.bindings.all(session.caller)
    for view in views:
        if view.key == key:
            return view
    known = ", ".join(view.key for view in views) or "none yet"
    raise NotFound(f"There is no binding {key}; the bindings are {known}.")


def _answer(session: Session, view: BindingView) -> None:
    session.out.answer(view, lambda: _detail(view))


def _detail(view: BindingView) -> Iterator[Line]:
    yield from facts(
        [
            ("key", view.key),
            ("provider", view.provider_key),
            ("state", _state(view)),
            ("serves", ", ".join(_targets(view))),
            ("can", ", ".join(view.capabilities.words())),
            ("config", json.dumps(view.config, ensure_ascii=False, default=str)),
            ("id", view.binding_id),
        ]
    )


def _state(view: BindingView) -> str:
    words = ["on" if view.enabled else "off"]
    words += ["read-only"] if view.read_only else []
    return ", ".join([*words, "shared with another company"] if view.shared else words)


def _targets(view: BindingView) -> list[str]:
    return [
        "company" if target.target_type == "company" else f"{target.target_type} {target.target_id}"
        for target in view.targets
    ]


def _target_id(session: Session, target_type: str, target_id: str | None) -> str:
    from memtui.contract import Invalid

    if target_type == "company":
        return target_id or session.company.company_id
    if not target_id:
        raise Invalid(f"Name the {target_type} that the binding is to serve.")
    return target_id


def _config(setting: list[str] | None, config: str | None) -> Json:
    """Return a config: the JSON object, with each NAME=VALUE put over it."""
    return json_object(config, "--config") | {
        name: _value(text) for name, text in pairs(setting, "--set").items()
    }


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
