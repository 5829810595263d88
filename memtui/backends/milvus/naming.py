"""Maps scopes to collections, and weighs records for a scope (seed 002 §7).

A collection is named by its scope: `aq_system`, `aq_orchestrator`, `aq_agenttype_{type}`,
`aq_project_{id}`, and `aq_user_{id}`, which the seed does not have. Milvus takes letters, digits
and underscores only: other characters of an id are written as `_x2D_`, their UTF-8 bytes in hex.
"""

import re

from memtui.contract import ORCHESTRATOR, Invalid, Scope

SYSTEM = "system"
_PARTS = {"project_id": "project_", "subject_id": "user_", "agent_id": "agenttype_"}
_FOREIGN = re.compile(r"[^A-Za-z0-9_]+")
_FOREIGN_OR_BAR = re.compile(r"[^A-Za-z0-9]+")
_CODED = re.compile(r"_x((?:[0-9A-F]{2})+)_")
_MOST_CHARS = 255


def collection_of(prefix: str, scope: Scope) -> str:
    """Return the collection that a record of `scope` is written to. Raises `Invalid`."""
    for field, part in _PARTS.items():
        if (value := getattr(scope, field)) is not None:
            is_named = field == "agent_id" and value == ORCHESTRATOR
            name = f"{prefix}{ORCHESTRATOR if is_named else part + _encoded(value)}"
            if not value or len(name) > _MOST_CHARS:
                raise Invalid(
                    f"The id {value[:40]!r} is empty or makes the collection's name longer than "
                    f"{_MOST_CHARS} characters; use another id."
                )
            return name
    return f"{prefix}{SYSTEM}"


def owner_of_collection(prefix: str, name: str, company_id: str) -> Scope | None:
    """Return the owner of a collection's records; None if its name follows no rule of ours."""
    rest = name.removeprefix(prefix)
    if not name.startswith(prefix):
        return None
    if rest == SYSTEM:
        return Scope(company_id=company_id)
    if rest == ORCHESTRATOR:
        return Scope(company_id=company_id, agent_id=ORCHESTRATOR)
    for field, part in _PARTS.items():
        if rest.startswith(part) and rest != part:
            return Scope(**{"company_id": company_id, field: _decoded(rest.removeprefix(part))})
    return None


def _encoded(value: str) -> str:
    try:
        name = _FOREIGN.sub(_hexed, value)
        return name if _unhexed(name) == value else _FOREIGN_OR_BAR.sub(_hexed, value)
    except UnicodeEncodeError:
        raise Invalid(
            "The id contains a character that UTF-8 cannot encode; choose another id."
        ) from None


def _decoded(name: str) -> str:
    """Return the id in a name; a name that `_encoded` would not produce is the id itself."""
    value = _unhexed(name)
    return value if _encoded(value) == name else name


def _hexed(match: re.Match[str]) -> str:
    return f"_x{match.group().encode().hex().upper()}_"


def _unhexed(name: str) -> str:
    return _CODED.sub(lambda match: bytes.fromhex(match[1]).decode(errors="replace"), name)


def weight(asked: Scope, owner: Scope, scope: Scope) -> float:
    """Return the weight of a record for a scope; 0: it is not visible.

    Args:
        asked: The caller's scope; issue and run do not narrow.
        owner: The owner of the record's collection.
        scope: The record's scope.
    """
    project, subject, agent = asked.project_id, asked.subject_id, asked.agent_id
    mine = scope if project is None else owner  # with a project, only records the owner owns count
    is_company = not (owner.project_id or owner.subject_id or owner.agent_id)
    within = project is not None or agent is not None
    counts = (
        (1.0, project is None and subject is None and agent is None),
        (1.0, project is not None and owner.project_id == project),
        (1.0, subject is not None and mine.subject_id == subject),
        (0.7, agent is not None and mine.agent_id == agent),
        (0.5, within and owner.agent_id == ORCHESTRATOR),
        (0.4, within and is_company),
    )
    return next((value for value, holds in counts if holds), 0.0)


def may_hold(asked: Scope, owner: Scope) -> bool:
    """Whether a collection can contain records that are visible to the asking scope."""
    return asked.project_id is None or weight(asked, owner, owner) > 0
