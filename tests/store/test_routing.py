from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtui.contract import NotFound
from memtui.store import bindings
from memtui.store.bindings import Route, route
from memtui.store.database import Database
from memtui.store.rows import BindingRow, CompanyRow, MemberRow, TargetRow
from tests.databases import ON_BOTH

pytestmark = ON_BOTH

NOW = datetime(2026, 3, 9, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path, database_url: str) -> Iterator[Database]:
    opened = Database.open(tmp_path / "memtui.db", database_url)
    with opened.write() as connection:
        for company in ("acme", "other"):
            bindings.add_company(
                connection,
                CompanyRow(
                    company_id=company,
                    name=company,
                    read_only=company == "other",
                    link_templates={},
                    created_at=NOW,
                ),
            )
        for company, key in (("acme", "wide"), ("acme", "narrow"), ("other", "narrow")):
            bindings.add_binding(connection, binding(company, key))
        for kind, place, key in (("company", "acme", "wide"), ("project", "p", "narrow")):
            row = TargetRow(
                company_id="acme", target_type=kind, target_id=place, binding_id=f"acme/{key}"
            )
            bindings.set_target(connection, row)
    yield opened
    opened.close()


def binding(company: str, key: str) -> BindingRow:
    return BindingRow(
        binding_id=f"{company}/{key}",
        company_id=company,
        key=key,
        provider_key="fake",
        config={"root": f"Ünïcode {key}", "deep": [1, {"a": None}]},
        capabilities={"browse": True},
        enabled=key == "wide",
        read_only=key == "narrow",
        review=[{"action": "hold", "test": "all", "value": "ü"}],
        created_at=NOW,
    )


def asked(database: Database, company: str = "acme", **wanted: str | None) -> Route:
    names = ("key", "project_id", "agent_id", "person")
    with database.read() as connection:
        return route(connection, company, **{name: wanted.get(name) for name in names})


def test_the_binding_is_the_one_that_was_stored(database: Database) -> None:
    for wanted, key in (
        ({"key": "narrow"}, "narrow"),
        ({"project_id": "p"}, "narrow"),
        ({}, "wide"),
    ):
        found = asked(database, **wanted)
        assert found.binding == binding("acme", key)


def test_what_is_not_there(database: Database) -> None:
    for company, wanted, why in (
        ("nowhere", {}, "no company nowhere"),
        ("acme", {"key": "nope"}, "no binding nope in acme"),
        ("other", {"project_id": "p"}, "No binding serves other"),
    ):
        with pytest.raises(NotFound, match=why):
            asked(database, company, **wanted)
    assert asked(database, "other", key="narrow").company_read_only


def test_the_roles_are_the_persons_in_that_company(database: Database) -> None:
    assert asked(database, person="user:ana").memberships is None
    rows = [
        MemberRow(company_id=company, principal=who, project_id=project, role=role)
        for company, who, project, role in (
            ("acme", "user:ana", "", "owner"),
            ("acme", "user:ana", "p", "member"),
            ("acme", "user:bo", "", "admin"),
            ("other", "user:ana", "", "admin"),
        )
    ]
    with database.write() as connection:
        for row in rows:
            bindings.set_member(connection, row)
    for wanted in ({"project_id": "p"}, {"key": "wide"}):
        for person, memberships in (("user:ana", rows[:2]), ("user:bo", rows[2:3]), (None, [])):
            found = asked(database, person=person, **wanted)
            assert found.memberships is not None
            kept = sorted(found.memberships, key=lambda row: row.project_id)
            assert kept == list(memberships)
