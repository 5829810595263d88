from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.tables.kit import drop_agno


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The path of a SQLite file, or the URL of a PostgreSQL database, with nothing in it."""
    if request.param == "sqlite":
        yield str(tmp_path / "program.db")
        return
    url = str(request.getfixturevalue("postgres_url"))
    yield url
    drop_agno(url)
