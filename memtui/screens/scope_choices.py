"""The scope chooser: all known companies, projects, agents, users, issues and runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from memtui.contract import Scope
from memtui.presenters.format import since
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState
from memtui.widgets.detail_lines import SCOPE_WORDS

if TYPE_CHECKING:
    from memtui.service.answers import CompanyView

_SEEN_OPERATIONS = 1_000
_NAME_CELLS = 24
_TARGETS = ("project", "agent")

FIELDS = {word: field for field, word in SCOPE_WORDS.items()}


@dataclass(frozen=True, slots=True)
class ScopeStep:
    """A change of the scope; `field` None: another company, or without `value` the whole one."""

    field: str | None
    value: str | None

    def applied_to(self, scope: Scope) -> Scope:
        """Return the scope after this change; another company drops everything narrower."""
        if self.field is None:
            return Scope(company_id=self.value or scope.company_id)
        return scope.model_copy(update={self.field: self.value})


class ChooseScope(Choose[ScopeStep]):
    """Choose the scope to show."""

    NOTHING = "Nobody is in the log yet; a name that is typed is taken as it is."


async def seen_scopes(session: ServiceSession) -> list[Scope]:
    """Return the scopes of the newest operations."""
    return await session.service.log.scopes(session.caller, _SEEN_OPERATIONS)


async def read_targets(session: ServiceSession) -> list[Choice[tuple[str, str]]]:
    """Return the possible targets of a setting: the company, its projects and agents."""
    whole = Choice(("company", session.company.company_id), "the whole company", "company")
    seen = await seen_scopes(session)
    names = [(sort, getattr(one, f"{sort}_id")) for sort in _TARGETS for one in seen]
    return [whole, *(Choice(one, one[1], one[0]) for one in dict.fromkeys(names) if one[1])]


def offered_target(text: str) -> list[Choice[tuple[str, str]]]:
    """Return the choices for a typed project or agent."""
    return [Choice((sort, text), f"{text}  — as written", sort) for sort in _TARGETS]


def chooser_title(state: AppState) -> str:
    """Return the chooser's title, with the age of the prune figures."""
    found = state.prune_figures
    if found is None:
        return "Scope"
    planned = since(found.planned_at, state.clock())
    return f"Scope; what could go, planned {planned}{found.without}"


async def read_choices(state: AppState) -> list[Choice[ScopeStep]]:
    """Read the choices for the shown scope."""
    seen = await seen_scopes(state.session) if state.session is not None else []
    found = state.prune_figures
    return scope_choices(state.scope, state.companies, seen, found.owners if found else {})


def scope_choices(
    scope: Scope,
    companies: Iterable[CompanyView],
    seen: Iterable[Scope],
    could_go: Mapping[Scope, tuple[int, int]],
) -> list[Choice[ScopeStep]]:
    """Return the choices: first the parts to remove, then known values, grouped by sort.

    The number of an owner's prune candidates is shown, if known.
    """
    whole = Scope(company_id=scope.company_id)

    known = [*seen, *could_go]
    values = {
        word: dict.fromkeys(value for one in known if (value := getattr(one, field)))
        for word, field in FIELDS.items()
    }
    longest = max((len(one) for some in values.values() for one in some), default=0)

    def counted(label: str, owner: Scope) -> str:
        return f"{label:<{min(longest, _NAME_CELLS)}}  {going(owner, could_go)}".rstrip()

    choices = [
        Choice(ScopeStep(field, None), f"{getattr(scope, field)}  — remove", word)
        for word, field in FIELDS.items()
        if getattr(scope, field)
    ]
    if choices:
        choices.append(Choice(ScopeStep(None, None), counted("the whole company", whole), "all"))
    choices.extend(
        Choice(ScopeStep(None, one.company_id), one.name, "company")
        for one in companies
        if one.company_id != scope.company_id
    )
    for word, field in FIELDS.items():
        choices.extend(
            Choice(step, counted(value, step.applied_to(whole)), word)
            for value in values[word]
            for step in [ScopeStep(field, value)]
            if value != getattr(scope, field)
        )
    return choices


def going(owner: Scope, could_go: Mapping[Scope, tuple[int, int]]) -> str:
    """Return the number of an owner's prune candidates in words; empty: unknown."""
    if owner not in could_go:
        return ""
    could, there = could_go[owner]
    return f"{could:,} of {there:,} could go"


def offered(text: str, known: Sequence[Choice[ScopeStep]] = ()) -> list[Choice[ScopeStep]]:
    """Return the choices for a typed value that is not listed; `run:4412` names its sort.

    Choices in `known` with a similar name come first.
    """
    word, _, value = text.partition(":")
    word = "user" if word == "subject" else word  # as filters and options name it
    if value and word in FIELDS:
        return [Choice(ScopeStep(FIELDS[word], value), f"{value}  — as written", word)]
    names = {one.value.value or "" for one in known} - {""}
    near = [
        name for name in get_close_matches(text, names) if text.casefold() not in name.casefold()
    ]
    return [one for name in near for one in known if one.value.value == name] + [
        Choice(ScopeStep(field, text), f"{text}  — as written", word)
        for word, field in FIELDS.items()
    ]
