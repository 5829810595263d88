"""The operations and memories of a company that a person may see."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from memtui.contract import OperationType
from memtui.store.operation import OperationDraft, Place, text_place

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, FromClause, Select

_WRITE = str(OperationType.WRITE)
_NAMES = ("seq", "operation_id", "principal", "project_id", "subject_id", "operation_type")


class _Owned(Protocol):
    """A scope, or a row with a scope's ids: names the owner of a memory."""

    @property
    def project_id(self) -> str | None: ...
    @property
    def subject_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Visibility:
    """What one person may see in a company with members; None in its place: everything.

    An operation is visible to the person who did it, and besides:

    * in a project: to the project's members;
    * about a user, in no project: to that user;
    * about a user, in a project: to that user as a member of the project; a write to all members,
      as its memory is the project's;
    * otherwise (the whole company, an agent type): to owners and admins.

    A memory is visible to its project's members, else to its user alone, else to every member.
    A record that is held for review is hidden from agents, with the operations on it.
    """

    person: str
    """The principal; for an agent, the person for whom it acts."""
    subjects: frozenset[str] = frozenset()
    """The users whose memories belong to this person."""
    projects: frozenset[str] | None = frozenset()
    """None: every project."""
    manages: bool = False
    """An owner or admin of the whole company."""
    everything: bool = False
    """All operations and memories are visible: the company has no members."""
    until: datetime | None = None
    """Operations that began later are hidden; None: no limit."""
    held: frozenset[Place] = frozenset()
    """The records that are held for review, and their texts; empty for a person."""
    requested: frozenset[str] = frozenset()
    """The operations by which agents asked for these records, while that waited for review."""

    def sees(self, operation: OperationDraft) -> bool:
        """Return whether this person may see an operation; `condition` is the same in SQL."""
        if self.until is not None and operation.started_at > self.until:
            return False
        if operation.operation_id in self.requested:
            return False
        if self.held and any(operation.place_of(one) in self.held for one in operation.handles):
            return False
        if self.everything or operation.principal == self.person:
            return True
        project_id, subject_id = operation.scope.project_id, operation.scope.subject_id
        is_own = subject_id in self.subjects
        if project_id is None:
            return self.manages if subject_id is None else is_own
        return self._is_member(project_id) and (
            subject_id is None or is_own or operation.operation_type is OperationType.WRITE
        )

    def reads(self, scope: _Owned) -> bool:
        """Return whether this person may see memories of this scope."""
        if self.everything:
            return True
        if scope.project_id:
            return self._is_member(scope.project_id)
        return not scope.subject_id or scope.subject_id in self.subjects

    def _is_member(self, project_id: str) -> bool:
        return self.projects is None or project_id in self.projects

    def hides(self, place: Place, text: str = "") -> bool:
        """Return whether a record is held for review, by its id or its text.

        An id changes where somebody renames the record's file, or another program moves it.
        """
        return bool(self.held) and not self.held.isdisjoint({place, text_place(place[0], text)})

    def holds_in(self, binding_key: str) -> bool:
        """Return whether any record of a binding is held for review."""
        return any(key == binding_key for key, _ in self.held)

    def condition(
        self, columns: Any = None, handles: FromClause | None = None
    ) -> ColumnElement[bool]:
        """Return `sees` as SQL over the columns of operations, by default the hot table's.

        `handles`: the handles of these operations, if not the hot table's.
        """
        from sqlalchemy import and_, false, or_, true

        from memtui.store.tables import OPERATIONS

        of = columns or OPERATIONS.c
        in_time = true() if self.until is None else of["started_at"] <= self.until
        if self.held:
            in_time = and_(in_time, of["seq"].not_in(self._on_held(of, handles)))
            in_time = and_(in_time, of["operation_id"].not_in(sorted(self.requested)))
        if self.everything:
            return in_time
        principal, project, subject, kind = (of[name] for name in _NAMES[2:])
        own = subject.in_(sorted(self.subjects)) if self.subjects else false()
        if self.projects is None:
            member: ColumnElement[bool] = project.is_not(None)
        else:
            member = project.in_(sorted(self.projects)) if self.projects else false()
        cases = [
            principal == self.person,
            and_(member, or_(subject.is_(None), kind == _WRITE, own)),
            and_(project.is_(None), own),
        ]
        if self.manages:
            cases.append(and_(project.is_(None), subject.is_(None)))
        return and_(in_time, or_(*cases))

    def _on_held(self, of: Any, handles: FromClause | None) -> Select[Any]:
        """Return the query of the numbers of the operations on held records."""
        from sqlalchemy import and_, or_, select, true

        from memtui.store.tables import HANDLES

        own = HANDLES.alias("held") if handles is None else handles
        is_own = own.c.company_id == of["company_id"] if handles is None else true()
        ids = defaultdict[str, list[str]](list)
        for key, record_id in sorted(self.held):
            ids[key].append(record_id)
        named = (
            and_(own.c.binding_key == key, own.c.provider_record_id.in_(some))
            for key, some in ids.items()
        )
        return select(own.c.seq).where(is_own, or_(*named))


EVERYTHING = Visibility(person="", projects=None, manages=True, everything=True)
"""The visibility of everybody in a company without members."""


def until(visibility: Visibility | None, moment: datetime | None) -> Visibility | None:
    """Return a visibility limited to operations that began by a moment; None: unchanged."""
    if moment is None:
        return visibility
    return replace(visibility or EVERYTHING, until=moment)


def without(
    visibility: Visibility | None, held: frozenset[Place], requested: frozenset[str] = frozenset()
) -> Visibility | None:
    """Return a visibility without the records that are held for review, if any are.

    `requested`: the operations by which agents asked for them.
    """
    if not held:
        return visibility
    return replace(visibility or EVERYTHING, held=held, requested=requested)


def plain_condition(visibility: Visibility, handles: str) -> ColumnElement[bool]:
    """Return the condition without tables, for other engines that read the same rows.

    `handles`: the SQL term for FROM of the operations' handles.
    """
    from sqlalchemy import column, select, text

    from memtui.store.columns import ForeignText

    columns = {name: column(name, ForeignText) for name in _NAMES}
    names = ("seq", "binding_key", "provider_record_id")
    rows = text(handles.replace(":", "\\:"))  # not the name of a parameter
    own = select(*(column(name, ForeignText) for name in names)).select_from(rows)
    return visibility.condition(columns, own.subquery("held"))


def seen(visibility: Visibility | None) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the visible operations, for a `where` over the hot table."""
    return () if visibility is None else (visibility.condition(),)
