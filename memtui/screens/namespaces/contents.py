"""The words of the namespaces: columns, head, and one of them whole; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import Namespace
from memtui.widgets import format as fmt
from memtui.widgets.columns import Cell, Column
from memtui.widgets.detail_lines import Line, heading, joined, labelled
from memtui.widgets.display import DIM, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.service.answers import BindingView


def columns(clock: Callable[[], datetime]) -> list[Column[Namespace]]:
    """Return the columns of the list."""
    return [
        Column("name", "name", lambda one: Cell(one.name), 20, flexible=True, keep=100, share=0.5),
        Column("kind", "kind", lambda one: Cell(one.kind, "muted"), 9, keep=50),
        Column("records", "records", lambda one: Cell(fmt.held(one)), 7, "right", keep=90),
        Column("expires", "expires", lambda one: _expires(one, clock()), 9, "right", keep=80),
    ]


def _expires(one: Namespace, now: datetime) -> Cell:
    if one.expires_at is None:
        return Cell("never", "muted")
    return Cell(fmt.ago(one.expires_at, now), "warning" if one.expires_at <= now else "")


def read_only_reason(binding: BindingView) -> str:
    """Return why the namespaces of a binding can only be looked at, or nothing."""
    if not binding.capabilities.namespace_changes:
        return (
            f"The provider {binding.provider_key} makes and removes no namespaces: they follow "
            "from its records."
        )
    if binding.read_only:
        return f"The binding {binding.key} is read-only; w on it in Bindings opens it."
    return ""


def head_content(binding: BindingView, found: Sequence[Namespace] | None, state: str) -> Content:
    """Return whose namespaces these are, how many, and why nothing can be changed."""
    name = f"{binding.provider_key}·{binding.key}"
    number = "" if found is None else fmt.counted(len(found), "namespace")
    head = line(
        line("namespaces of", display(name, limit=120, style=STRONG)),
        display(number),
        display(state, style=WARN),
        gap="   ",
    )
    reason = read_only_reason(binding)
    return lines([head, display(reason, style=DIM)]) if reason else head


def row_content(one: Namespace | None, now: datetime, zone: tzinfo | None, width: int) -> Content:
    """Return a namespace whole."""
    if one is None:
        return Content("")
    if one.expires_at is None:
        expires = "never"
    else:
        expires = f"{fmt.exact(one.expires_at, zone)} ({fmt.since(one.expires_at, now)})"
    about: list[Line] = [
        labelled("kind", one.kind),
        labelled("records", fmt.held(one) or "unknown"),
        labelled("expires", expires),
    ]
    metadata: list[Line] = [heading("Metadata")]
    metadata += [
        line(display(key, limit=100, style=DIM), _value(value))
        for key, value in one.metadata.items()
        if key != "at_least"
    ]
    blocks: list[Sequence[Line]] = [[display(one.name, limit=300, style=STRONG)], about]
    if len(metadata) > 1:
        blocks.append(metadata)
    if one.records is None:
        blocks.append([display("It holds more than one list shows.", style=DIM)])
    return joined(blocks, width)


def _value(value: object) -> Content:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return display(shown, limit=2_000)
