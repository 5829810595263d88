from __future__ import annotations

import re
import stat
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlmodel import SQLModel

from memtui.contract import Invalid, OperationType, Unavailable
from memtui.store import bindings, rows, statements
from memtui.store.database import HEAD, MIGRATIONS, Database, current_revision, stored
from memtui.store.rows import CompanyRow
from tests.databases import ON_BOTH
from tests.processes import prepared_processes
from tools import generate

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_the_head_is_alembics_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_the_schema_is_made_from_the_tables() -> None:
    schema = Path(str(rows.__file__)).with_name("schema.sql")
    assert schema.read_text() == generate.schema_source(), "run python -m tools.generate"


class Cat(dict[str, str]):
    """A mapping that is not exactly a dictionary."""


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (OperationType.WRITE, "write"),
        ("\ud800", "\ue000d800"),
        (Cat(a="b"), '{"a":"b"}'),
        (("a", 1), '["a",1]'),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (Decimal("0.5"), 500_000_000_000),
        (b"x", b"x"),
        (True, True),
        (7, 7),
        (None, None),
    ],
)
def test_a_value_is_stored_by_its_type(value: object, wanted: object) -> None:
    assert stored(value) == wanted
    assert type(stored(value)) is type(wanted)


@ON_BOTH
def test_every_statement_is_valid(database: Database) -> None:
    every = [one for one in vars(statements).values() if isinstance(one, statements.Statement)]
    for one in every:
        values = dict.fromkeys(re.findall(r":(\w+)", one._sql)) | {"most": 1}
        is_read = one._sql.startswith("SELECT")
        explained = statements.Statement(("" if is_read else "EXPLAIN ") + one._sql)
        with database.read() as connection:
            found = explained._execute(connection, values).description
        assert not is_read or len(found) == len(one._results), one._sql


def test_a_statement_of_sqlalchemy_sees_what_a_plain_one_did(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "memtui.db")
    row = CompanyRow(company_id="a", name="\ud800", link_templates={}, created_at=NOW)
    with database.write() as connection:
        bindings.add_company(connection, row)
        assert connection.execute(text("SELECT count(*) FROM memory_companies")).scalar() == 1
        connection.execute(text("UPDATE memory_companies SET read_only = 1"))

    def fail() -> None:
        with database.write() as connection:
            connection.execute(text("DELETE FROM memory_companies"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as connection:
        connection.execute(text("SELECT 1"))
        assert bindings.companies(connection) == [replace(row, read_only=True)]
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """What `database_url` is set to, where no table was made yet."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_the_migrations_make_the_tables(tmp_path: Path, empty_url: str) -> None:
    database = Database.open(tmp_path / "memtui.db", empty_url)
    with database.read() as connection:
        assert current_revision(connection) == HEAD
        context = MigrationContext.configure(connection.alchemy, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []
    database.close()


def test_the_file_is_private(tmp_path: Path) -> None:
    Database.open(tmp_path / "home" / "memtui.db").close()
    assert stat.S_IMODE((tmp_path / "home" / "memtui.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "memtui.db"
    database = Database.open(path)
    kept = path.rename(tmp_path / "kept.db")
    for use in (database.read, database.write):
        with pytest.raises(Unavailable, match=r"memtui\.db is gone or was replaced"), use():
            pass
    assert not path.exists()
    kept.rename(path)
    with database.read() as connection:
        assert current_revision(connection) == HEAD
    path.unlink()
    Database.open(path).close()
    with pytest.raises(Unavailable, match="was replaced"), database.write():
        pass
    database.close()


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "memtui.db")
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(Invalid, match="upgrade memtui"):
        Database.open(tmp_path / "memtui.db")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memtui.db"
    path.write_text("these are my shopping notes, " * 200)
    with pytest.raises(Unavailable, match="not a database"):
        Database.open(path)
    assert path.read_text().startswith("these are my shopping notes")


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("nonsense", Invalid),
        ("mysql://localhost/x", Invalid),
        ("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1", Unavailable),
    ],
)
def test_a_bad_url_is_one_sentence(tmp_path: Path, url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        Database.open(tmp_path / "memtui.db", url)
    assert "\n" not in str(caught.value)


def _open_together(folder: Path, url: str, together: Barrier) -> None:
    for round_ in range(10):
        together.wait()
        Database.open(folder / f"{round_}.db", url).close()


@pytest.mark.slow
def test_many_may_be_the_first(tmp_path: Path, empty_url: str) -> None:
    together = prepared_processes().Barrier(6)
    given = (tmp_path, empty_url, together)
    workers = [prepared_processes().Process(target=_open_together, args=given) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
