"""What each person sees of the log and of memories: in Python and in SQL, for every owner."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, select

from memtui.contract import Scope
from memtui.service import Caller, Membership, Role
from memtui.service.visibility import visibility_of
from memtui.store.tables import OPERATIONS
from memtui.store.visibility import EVERYTHING, Visibility, until
from tests.store.test_log import draft

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ANA = Caller(company_id="acme", principal="user:ana", channel="test")


def member(role: Role, project_id: str | None = None, subject_id: str | None = "ana") -> Membership:
    return Membership(principal="user:ana", role=role, project_id=project_id, subject_id=subject_id)


SIGHTS: dict[str, Visibility] = {
    "owner": Visibility("user:ana", frozenset({"ana"}), None, manages=True),
    "member": Visibility("user:ana", frozenset({"ana"}), None),
    "of two projects": Visibility("user:ana", frozenset({"ana", "anna"}), frozenset("pq")),
    "of no user": Visibility("user:ana", frozenset(), frozenset("p")),
    "of nothing": Visibility("user:ana"),
    "all": Visibility("", everything=True),
}
HELD = {
    "owner": [member(Role.OWNER)],
    "member": [member(Role.MEMBER), member(Role.OWNER, "p")],
    "of two projects": [member(Role.ADMIN, "p"), member(Role.MEMBER, "q", "anna")],
    "of no user": [member(Role.MEMBER, "p", None)],
    "of nothing": [],
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_seen_follows_from_the_roles(name: str) -> None:
    assert visibility_of(HELD[name], ANA) == SIGHTS[name]
    assert visibility_of(None, ANA) is None
    agent = ANA.model_copy(update={"principal": "agent:coding", "acts_for": "user:ana"})
    assert visibility_of(HELD[name], agent) == SIGHTS[name]
    held = ANA.model_copy(update={"project_id": "p"})
    visibility = visibility_of(HELD[name], held)
    assert visibility is not None
    assert visibility.person == ""


def expected(
    name: str, principal: str, project: str | None, subject: str | None, kind: str
) -> bool:
    if name == "all" or principal == "user:ana":
        return True
    projects = {"owner": "pqr", "member": "pqr", "of two projects": "pq", "of no user": "p"}
    own = {"owner": ["ana"], "member": ["ana"], "of two projects": ["ana", "anna"]}.get(name, [])
    if project is None and subject is None:
        return name == "owner"
    if project is None:
        return subject in own
    if project not in projects.get(name, ""):
        return False
    return subject is None or subject in own or kind == "write"


@pytest.mark.parametrize("name", SIGHTS)
@pytest.mark.parametrize("ends", [None, 0, 1, 2])
def test_who_sees_which_operation(name: str, ends: int | None) -> None:
    visibility = until(SIGHTS[name], None if ends is None else NOW + timedelta(hours=ends))
    assert visibility is not None
    names = ("principal", "project_id", "subject_id", "operation_type", "started_at")
    kept = (Column(one, OPERATIONS.c[one].type) for one in names)
    table = Table("operations", MetaData(), Column("seq", Integer, primary_key=True), *kept)
    people, projects = ("user:ana", "user:bea", ""), (None, "p", "q", "r")
    subjects, kinds = (None, "ana", "anna", "bea"), ("write", "correct", "query")
    cases = [*product(people, projects, subjects, kinds, (0, 1, 2))]
    rows: list[dict[str, Any]] = []
    wanted = set()
    for seq, (principal, project, subject, kind, hour) in enumerate(cases, 1):
        at = NOW + timedelta(hours=hour)
        row = dict(zip(names, (principal, project, subject, kind, at), strict=True))
        rows.append(row | {"seq": seq})
        scope = Scope(company_id="acme", project_id=project, subject_id=subject)
        done = draft(seq, principal=principal, scope=scope, operation_type=kind, started_at=at)
        is_seen = expected(name, principal, project, subject, kind)
        is_seen = is_seen and (ends is None or hour <= ends)
        assert visibility.sees(done) is is_seen, (principal, project, subject, kind, hour)
        wanted |= {seq} if is_seen else set()
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), rows)
        found = connection.execute(select(table.c.seq).where(visibility.condition(table.c)))
        assert {seq for (seq,) in found} == wanted


@pytest.mark.parametrize("name", SIGHTS)
def test_who_reads_whose_memories(name: str) -> None:
    visibility = SIGHTS[name]
    read = {
        (project, subject)
        for project, subject in product((None, "p", "q", "r"), (None, "ana", "anna", "bea"))
        if visibility.reads(Scope(company_id="acme", project_id=project, subject_id=subject))
    }
    subjects = (None, "ana", "anna", "bea")
    projects = {"of two projects": "pq", "of no user": "p", "of nothing": ""}.get(name, "pqr")
    own = {"owner": ["ana"], "member": ["ana"], "of two projects": ["ana", "anna"],
           "all": ["ana", "anna", "bea"]}.get(name, [])  # fmt: skip
    assert read == {*product(projects, subjects), *((None, one) for one in (None, *own))}


def test_a_moment_ends_what_is_seen() -> None:
    assert until(None, None) is None
    assert until(SIGHTS["owner"], None) is SIGHTS["owner"]
    everything = until(None, NOW)
    assert everything == replace(EVERYTHING, until=NOW)
    ending = until(SIGHTS["member"], NOW)
    assert ending is not None
    assert (ending.until, ending.person, ending.projects) == (NOW, "user:ana", None)
