"""Whose a record is: one project's, one user's, one agent's, or the whole company's.

A scope may name several of them. The record then belongs to the project, else to the user, else to
the agent; what else the scope names says where the record comes from.
"""

from __future__ import annotations

from collections.abc import Iterable

from memtui.contract import Filter, Record, Scope

_FIELDS = ("project_id", "subject_id", "agent_id")


def owner_of(scope: Scope) -> tuple[str, str]:
    """Return the owner of what is written in a scope: the field that names it, and its id."""
    for field in _FIELDS:
        if value := getattr(scope, field):
            return field, value
    return "company_id", scope.company_id


def owner_scope(scope: Scope) -> Scope:
    """Return the scope that names the owner and nothing else."""
    return Scope(**{"company_id": scope.company_id, **dict([owner_of(scope)])})


def own_filter(scope: Scope, *, kind: str | None, topic: str | None = None) -> Filter:
    """Return the filter that lets through an owner's records, and few others."""
    field, value = owner_of(scope)
    ids = {field: value} if field in _FIELDS else {}
    return Filter.model_validate({"kind": kind, "topic": topic, **ids})


def owned(records: Iterable[Record], scope: Scope) -> list[Record]:
    """Return the records of the scope's owner; a scope of the company alone owns them all."""
    owner = owner_of(scope)
    if owner[0] == "company_id":
        return list(records)
    return [record for record in records if owner_of(record.scope) == owner]
