"""What a budget can be looked at for: whose, in which model; and what is said beside it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.content import Content

from memtui.context.cost import TokenCounter
from memtui.contract import MemtuiError, Namespace, Scope
from memtui.screens.budget.facts import FactRow, Place
from memtui.screens.dialogs import Choice
from memtui.screens.scope_choices import ScopeStep, seen_scopes
from memtui.widgets.display import ACCENT, DIM, display, lines
from memtui.widgets.format import counted

if TYPE_CHECKING:
    from memtui.screens.state import AppState, ServiceSession

_FIELDS = (("user", "subject_id"), ("project", "project_id"), ("agent", "agent_id"))
_SHOWN = 200
_FLAGS = {"user": "--subject", "workspace": "--project", "agent": "--agent"}
_MOST = 2_000
"""Past so many facts only the review looks, which a person asks for."""
KNOWN = (
    "claude-sonnet-4-5",
    "claude-opus-4-5",
    "claude-haiku-4-5",
    "gpt-5",
    "gpt-5-mini",
    "gpt-4.1",
    "gpt-4o",
    "gpt-4o-mini",
    "o3",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "mistral-large-latest",
    "deepseek-chat",
    "grok-4",
)
"""Offered by name; any other can be typed."""


async def find_offers(state: AppState) -> list[Choice[ScopeStep]]:
    """Return the users, projects and agents that the log and the active binding know."""
    session = state.session
    if session is None:
        return []
    spaces: tuple[Namespace, ...] = ()
    if state.binding is not None and state.binding.capabilities.namespaces:
        # Without them the log still names those that were worked with.
        with suppress(MemtuiError):
            spaces = await session.service.namespaces.all(session.caller, state.binding.key)
    return offers_of(await seen_scopes(session), spaces)[:_SHOWN]


def offers_of(seen: Iterable[Scope], spaces: Iterable[Namespace]) -> list[Choice[ScopeStep]]:
    """Return what can be offered, users first, each sort by name."""
    counts = {(one.kind, one.name.partition(":")[2]): one.records for one in spaces}
    scopes = list(seen)
    found = []
    for word, field in _FIELDS:
        names = {value for scope in scopes if (value := getattr(scope, field))}
        names |= {value for kind, value in counts if kind == word and value}
        for name in sorted(names):
            records = counts.get((word, name))
            held = "" if records is None else f"  {counted(records, 'record')}"
            found.append(Choice(ScopeStep(field, name), f"{name}{held}", word))
    return found


async def model_choices(used: Iterable[str]) -> list[Choice[str]]:
    """Return the models to choose from, those in use first, each with how it is counted."""

    def choices() -> list[Choice[str]]:
        return [
            Choice(model, model, "exact" if TokenCounter(model).exact else "estimated")
            for model in dict.fromkeys([*used, *KNOWN])
        ]

    return await asyncio.to_thread(choices)


def offered_model(text: str) -> list[Choice[str]]:
    """Return the choice of a model that is not in the list."""
    return [Choice(text, f"{text}  — as written", "other")]


def files_content(places: Sequence[Place]) -> Content:
    """Return the commands for each place, or in general where nobody is chosen."""
    said = [display("Facts go into files and come back on the command line:", style=DIM)]
    flags = [f"{_FLAGS[place.word]} {shlex.quote(place.name)}" for place in places]
    for whose in flags or ["--subject NAME"]:
        said.append(Content(""))
        export = f"export {whose} --to facts"
        commands = (f"{export}.jsonl", f"{export}.md", f"import {whose} facts.jsonl")
        said += [display(f"memtui facts {command}", style=ACCENT) for command in commands]
    return lines(said)


async def count_same(
    session: ServiceSession, places: Sequence[Place], rows: Sequence[FactRow], model: str
) -> Mapping[str, int]:
    """Return how many facts of each place repeat another, by the place's word."""
    if not rows or len(rows) > _MOST:
        return {}
    from memtui.pruning.plan import Reason
    from memtui.service.context import PruneRequest

    twice = (Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE)
    found = {}
    for place in places:
        request = PruneRequest(scope=place.scope, model=model, binding_key=place.binding_key)
        plan = (await session.service.prune_plan(session.caller, request)).plan
        found[place.word] = len(
            {one.record.handle for one in plan.candidates if one.reason in twice}
        )
    return found
