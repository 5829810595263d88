"""How well facts serve (seed 004 §8), counted from the operation log and the undo journal.

Only changes through memtui count: facts that another program wrote are unknown, and facts that
expired still count as held, since nobody deleted them. Days are UTC. Where a company has members,
only the facts and operations that the caller may see count.

* *User* and *drive*: a person (the principal `user:ana`) and a project. A fact belongs to its
  project, else to the user of its subject: the one in the membership, else `ana`.
* *Active*: a user with at least one successful operation in the window, not counting operations
  on settings and the log; an agent's operations about a user do not make the user active. A drive
  is active if such an operation has it in its scope.
* *Held*: a fact that existed at the end of the window.
* *Saved*: written as a new fact. It counts as saved by the AI if an agent wrote it, also if a
  person accepted it in the review; otherwise as saved by a user.
* *By hand*: by a principal that is not an agent. A deletion that an agent proposed and a person
  accepted in the review is the agent's. A fact was deleted by hand within 7 days if the last of
  its changes in the 7 days after the save was a deletion by hand; a fact that an undo restored
  is not deleted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

from memtui.context.cost import TARGET_SHARE, PromptSize, share_of_prompt
from memtui.contract import Filter, Invalid, Model, OperationType, Scope, UtcDatetime, owner_of
from memtui.service.context.prompts import prompt_size
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import AGENT_PREFIX, USER_PREFIX, Caller
from memtui.store import bindings
from memtui.store import log as store
from memtui.threads import in_thread

WINDOW = timedelta(days=30)
"""The default window (seed 004 §8.1)."""
SOON = timedelta(days=7)
"""A fact deleted this soon should not have been saved (seed 004 §8.2)."""
_MOST_DAYS = 366
"""A longer window starts, in a chart, at its first day with data."""
_EPOCH = date(1970, 1, 1)


class FactDay(Model):
    """One UTC day, for a chart."""

    day: date
    facts_added: int = 0
    """New facts, and facts that an undo restored."""
    facts_deleted: int = 0
    """Facts that were forgotten, or whose write was undone."""
    saves_by_ai: int = 0
    saves_by_user: int = 0
    contexts: int = 0
    """Assembled contexts, for a model or a person, except those that skip texts given before."""
    average_context_tokens: float | None = None
    most_context_tokens: int | None = None


class FactMetrics(Model):
    """The metrics of a window. Shares are 0 to 1; None where there was nothing to divide by."""

    since: UtcDatetime
    """Inclusive."""
    until: UtcDatetime
    """Exclusive."""
    active_users: int
    """People with a successful operation, about any subject."""
    active_users_with_facts: int
    adoption: float | None
    """The share of active users that have at least one fact."""
    adoption_target: float = 0.30
    users_with_facts: int
    facts_of_users: int
    average_facts_per_user: float | None
    """Over the users that have any."""
    facts_per_user_target: tuple[int, int] = (5, 15)
    active_drives: int
    facts_of_active_drives: int
    average_facts_per_active_drive: float | None
    """Over all active drives, those without facts included."""
    facts_per_drive_target: tuple[int, int] = (3, 10)
    facts_added: int
    facts_deleted: int
    facts_saved: int
    saves_by_ai: int
    saves_by_user: int
    deleted_by_hand_within_7_days: int
    """Of the facts saved in the window; the newest may still be deleted within their 7 days."""
    share_deleted_by_hand: float | None
    share_deleted_target: float = 0.20
    """At most."""
    contexts: int
    contexts_delivered: int
    """Contexts that a model received."""
    contexts_over_budget: int
    average_context_tokens: float | None
    average_context_budget: float | None
    most_context_tokens: int | None
    prompt: PromptSize
    """The prompt that the shares are of."""
    min_share_of_prompt: float | None
    """Share of the average context in the prompt, or in the largest of the default …"""
    max_share_of_prompt: float | None
    """… and in the smallest of the default."""
    share_of_prompt_target: float = TARGET_SHARE
    """At most."""
    days: tuple[FactDay, ...]


class Metrics(ServiceModule):
    """Figures of how well facts serve."""

    @in_thread
    def facts(
        self,
        caller: Caller,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        scope: Scope | None = None,
    ) -> FactMetrics:
        """Measure how facts are used, by default over the last 30 days; not logged as an operation.

        `scope` narrows to one project, user or agent.

        Raises:
            Denied: the company has members, and the caller is not one.
            Invalid: the window ends before it begins.
        """
        runtime, company_id = self._runtime, caller.company_id
        end = min(filter(None, (until, caller.as_of)), default=runtime.clock())
        start = since or end - WINDOW
        if start > end:
            raise Invalid(
                "The window ends before it begins; give --until a later time than --since."
            )
        ids = scope.model_dump(include={"project_id", "subject_id", "agent_id"}) if scope else {}
        wanted = {name: value for name, value in ids.items() if value is not None}
        chosen = Filter.model_validate({**wanted, "since": start, "until": end})
        visibility = runtime.visibility(caller)
        with runtime.database.read() as database:
            counts = _Counts(start)
            steps = _matching(store.fact_steps(database, company_id, end), wanted)
            counts.take((s for s in steps if visibility is None or visibility.reads(s)), company_id)
            members = bindings.members(database, company_id)
        subjects = {row.principal: row.subject_id for row in members if row.subject_id}
        users, drives = (
            runtime.log(company_id, visibility).active(chosen, field)
            for field in ("principal", "project_id")
        )
        log = runtime.log(company_id, visibility)
        contexts = log.contexts_by_day(chosen)
        return FactMetrics(
            since=start,
            until=end,
            **_adoption(counts, _subjects(users, subjects), drives),
            **counts.changes(),
            **_context_figures(contexts, prompt_size(runtime.settings, log)),
            days=_days(start, end, counts, contexts),
        )


@dataclass(slots=True)
class _Counts:
    """Sums over the histories of facts; `since` is the begin of the window."""

    since: datetime
    by_owner: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_day: defaultdict[date, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    soon_deleted: int = 0

    def take(self, steps: Iterable[Any], company_id: str) -> None:
        for _, group in groupby(steps, key=lambda step: (step.binding_key, step.record_id)):
            history = list(group)
            self._take_record(history)
            if history[-1].is_now:
                self.by_owner[_owner(history[-1], company_id)] += 1

    def _take_record(self, history: Sequence[Any]) -> None:
        # A record that was removed and written again has several lives, each begun by a save.
        saves = [
            place
            for place, step in enumerate(history)
            if step.operation_type == OperationType.WRITE and _came(step)
        ]
        for place, after in zip(saves, [*saves[1:], len(history)], strict=True):
            saved = history[place]
            if self.since <= saved.at:
                by_ai = _by_ai(saved) or str(saved.created_by).startswith(AGENT_PREFIX)
                self._count(saved, "saves_by_ai" if by_ai else "saves_by_user")
                self.soon_deleted += _soon_deleted_by_hand(history[place:after])
        for step in history:
            if self.since <= step.at and (change := _change(step)):
                self._count(step, change)

    def _count(self, step: Any, name: str) -> None:
        self.by_day[step.at.astimezone(UTC).date()][name] += 1

    def changes(self) -> dict[str, Any]:
        total = sum(self.by_day.values(), Counter[str]())
        saved = total["saves_by_ai"] + total["saves_by_user"]
        return {
            **{name: total[name] for name in _CHANGES},
            "facts_saved": saved,
            "deleted_by_hand_within_7_days": self.soon_deleted,
            "share_deleted_by_hand": _share(self.soon_deleted, saved),
        }


_CHANGES = ("facts_added", "facts_deleted", "saves_by_ai", "saves_by_user")


def _matching(steps: Iterable[Any], wanted: dict[str, str]) -> Iterable[Any]:
    return (s for s in steps if all(getattr(s, name) == value for name, value in wanted.items()))


def _owner(step: Any, company_id: str) -> tuple[str, str]:
    ids = {name: getattr(step, name) for name in ("project_id", "subject_id", "agent_id")}
    return owner_of(Scope(company_id=company_id, **ids))


def _came(step: Any) -> bool:
    return bool(step.is_now and not step.was)


def _by_ai(step: Any) -> bool:
    return str(step.principal).startswith(AGENT_PREFIX)


def _change(step: Any) -> str | None:
    # A correction removes one record and adds its successor: the number of facts stays the same.
    if step.operation_type == OperationType.CORRECT or step.was == step.is_now:
        return None
    return "facts_added" if _came(step) else "facts_deleted"


def _soon_deleted_by_hand(life: Sequence[Any]) -> bool:
    last = [step for step in life if step.at < life[0].at + SOON][-1]
    is_deletion = not last.is_now and last.operation_type != OperationType.CORRECT
    return is_deletion and not _by_ai(last) and not last.accepted


def _subjects(principals: set[str], named: Mapping[str, str]) -> set[str]:
    """Return the subject of each person among the principals; `named`: those of members."""
    return {
        named.get(one) or one.removeprefix(USER_PREFIX)
        for one in principals
        if one.startswith(USER_PREFIX)
    }


def _adoption(counts: _Counts, users: set[str], drives: set[str]) -> dict[str, Any]:
    of_users = {who: n for (kind, who), n in counts.by_owner.items() if kind == "subject_id"}
    of_drives = {who: n for (kind, who), n in counts.by_owner.items() if kind == "project_id"}
    in_active = sum(of_drives.get(drive, 0) for drive in drives)
    adopters = len(users & of_users.keys())
    return {
        "active_users": len(users),
        "active_users_with_facts": adopters,
        "adoption": _share(adopters, len(users)),
        "users_with_facts": len(of_users),
        "facts_of_users": sum(of_users.values()),
        "average_facts_per_user": _share(sum(of_users.values()), len(of_users)),
        "active_drives": len(drives),
        "facts_of_active_drives": in_active,
        "average_facts_per_active_drive": _share(in_active, len(drives)),
    }


def _context_figures(days: Sequence[Any], prompt: PromptSize) -> dict[str, Any]:
    count = sum(day.contexts for day in days)
    average = _share(sum(day.tokens for day in days), count)
    share = None if average is None else share_of_prompt(round(average), prompt)
    return {
        "contexts": count,
        "contexts_delivered": sum(day.delivered for day in days),
        "contexts_over_budget": sum(day.over_budget for day in days),
        "average_context_tokens": average,
        "average_context_budget": _share(sum(day.budget for day in days), count),
        "most_context_tokens": max((day.most_tokens for day in days), default=None),
        "prompt": prompt,
        "min_share_of_prompt": share and share.min_share,
        "max_share_of_prompt": share and share.max_share,
    }


def _days(
    since: datetime, until: datetime, counts: _Counts, contexts: Sequence[Any]
) -> tuple[FactDay, ...]:
    """Return every day of the window; if over `_MOST_DAYS`, from the first day with data."""
    by_day = {_EPOCH + timedelta(days=row.day): row for row in contexts}
    first, last = since.astimezone(UTC).date(), (until - timedelta(microseconds=1)).date()
    if (last - first).days >= _MOST_DAYS:
        first = min((*by_day, *counts.by_day), default=last)
    return tuple(
        _day(day, counts.by_day.get(day, Counter()), by_day.get(day))
        for day in (first + timedelta(days=n) for n in range((last - first).days + 1))
    )


def _day(day: date, changes: Counter[str], contexts: Any | None) -> FactDay:
    figures: dict[str, Any] = {name: changes[name] for name in _CHANGES}
    if contexts is not None:
        figures |= {
            "contexts": contexts.contexts,
            "average_context_tokens": _share(contexts.tokens, contexts.contexts),
            "most_context_tokens": contexts.most_tokens,
        }
    return FactDay(day=day, **figures)


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
